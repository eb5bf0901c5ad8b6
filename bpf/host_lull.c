// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* lull.h on the host, for the conformance test. */
#define HOST_PARAMETERS 0
#define HOST_ANSWERS 11
#define HOST_TYPES "lull_types.h"
#define HOST_PATH struct lull_path
#define HOST_MEMBER struct lull_member
#include "host_shared.h"
#define LULL_INLINE HOST_INLINE
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
	lull_join(path, member);
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
		.recent_bytes = event->acked,
	};

	lull_on_foreground(path, event->now_us, &f);
}

static void host_acknowledge(struct lull_path *path, struct lull_member *member,
			     const struct host_event *event)
{
	struct lull_ack ack = {
		.now_us = event->now_us,
		.delivered = event->delivered,
		.prior_delivered = event->prior_delivered,
		.acked = event->acked,
		.lost = event->lost,
		.in_flight = event->in_flight,
		.rtt_us = event->rtt_us,
		.interval_us = event->interval_us,
		.app_limited = event->app_limited,
		.maybe_delayed = event->maybe_delayed,
		.is_small = event->is_small,
	};

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
		lull_on_loss(path, member, event->now_us, delivered, delivered);
		break;
	case EVENT_MARK:
		lull_on_mark(path, member, event->now_us, delivered);
		break;
	case EVENT_TIMEOUT:
		lull_on_timeout(path, member, event->now_us, delivered);
		break;
	case EVENT_SEND:
		lull_on_send(path, member, event->now_us, delivered, event->in_flight);
		break;
	default:
		lull_on_idle(path, member);
		break;
	}
}

static void host_answer(const struct lull_path *path, const struct lull_member *member,
			const struct host_event *event, u64 *answer)
{
	answer[0] = path->window;
	answer[1] = path->rate;
	answer[2] = path->base_rtt_us;
	answer[3] = path->members;
	answer[4] = path->leader;
	answer[5] = path->changed_us;
	answer[6] = member->number;
	answer[7] = member->window;
	answer[8] = lull_cwnd(member, event->in_flight);
	answer[9] = lull_pacing_rate(member, event->rtt_us, 1448);
	answer[10] = lull_spacing(member);
}
