// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* lull.h on the host, for the conformance test. */
#define HOST_PARAMETERS 0
#define HOST_ANSWERS 13
#define HOST_TYPES "lull_types.h"
#define HOST_PATH struct lull_path
#define HOST_MEMBER struct lull_member
#include "host_shared.h"
#define LULL_INLINE HOST_INLINE
#define NICE_INLINE HOST_INLINE
#include "lull.h"

static void host_start(const u64 *words)
{
	(void)words;
}

static void host_init(struct lull_path *path)
{
	lull_path_init(path);
}

static void host_join(struct lull_path *path, struct lull_member *member, u64 now_us)
{
	(void)now_us;
	lull_join(path, member, 1 + path->members * 9);
}

static void host_leave(struct lull_path *path, struct lull_member *member, u64 now_us)
{
	(void)now_us;
	lull_leave(path, member);
}

static bool host_leads(const struct lull_path *path, const struct lull_member *member)
{
	return lull_leads(path, member);
}

static void host_foreground(struct lull_path *path, const struct host_event *event)
{
	struct lull_foreground f = {
		.connected_us = event->delivered,
		.data_us = event->prior_delivered,
		.bytes = event->acked,
	};

	lull_on_foreground(path, event->now_us, &f);
}

static void host_acknowledge(struct lull_path *path, struct lull_member *member,
			     const struct host_event *event)
{
	struct ack ack = host_ack(event);

	lull_on_ack(path, member, &ack);
}

static void host_feed(struct lull_path *path, struct lull_member *member,
		      const struct host_event *event)
{
	u32 delivered = event->delivered;

	switch (event->kind) {
	case EVENT_ACK:
		host_acknowledge(path, member, event);
		break;
	case EVENT_LOSS:
	case EVENT_MARK:
		lull_on_loss(path, member, event->now_us, delivered);
		break;
	case EVENT_TIMEOUT:
		lull_on_timeout(path, member, event->now_us, delivered);
		break;
	case EVENT_SEND:
		if (!event->in_flight)
			lull_on_send(path, member, event->now_us, delivered);
		break;
	default:
		break;
	}
}

static void host_answer(const struct lull_path *path, const struct lull_member *member,
			const struct host_event *event, u64 *answer)
{
	u64 rate = lull_pacing_rate(member, event->rtt_us, 1448);

	answer[0] = lull_path_window(path);
	answer[1] = lull_path_min_rtt(path);
	answer[2] = lull_capacity_packets_per_second(&path->capacity);
	answer[3] = path->members;
	answer[4] = path->in_flight;
	answer[5] = lull_path_is_at_floor(path);
	answer[6] = lull_leads(path, member);
	answer[7] = member->window;
	answer[8] = lull_cwnd(member, event->in_flight);
	answer[9] = rate;
	answer[10] = rate ? lull_spacing(member) : 0;
	answer[11] = rate ? lull_burst(member) : 0;
	answer[12] = member->is_apart;
}
