// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* receive.h on the host, for the conformance test. */
#define HOST_PARAMETERS 0
#define HOST_ANSWERS 14
#define HOST_TYPES "receive_types.h"
#define HOST_PATH struct receive_path
#define HOST_MEMBER struct receive_download
#include <stddef.h>
#include "host_shared.h"
#define LULL_INLINE HOST_INLINE
#define NICE_INLINE HOST_INLINE
#include "receive.h"

static void host_start(const u64 *words)
{
	(void)words;
}

static void host_init(struct receive_path *path)
{
	receive_path_init(path);
}

static void host_join(struct receive_path *path, struct receive_download *member, u64 now_us)
{
	(void)now_us;
	receive_join(path, member, 1 + path->path.members * 9);
}

static void host_leave(struct receive_path *path, struct receive_download *member, u64 now_us)
{
	(void)now_us;
	receive_leave(path, member);
}

static bool host_leads(const struct receive_path *path, const struct receive_download *member)
{
	return lull_leads(&path->path, &member->member);
}

static void host_foreground(struct receive_path *path, const struct host_event *event)
{
	struct lull_foreground f = {
		.connected_us = event->delivered,
		.data_us = event->prior_delivered,
		.bytes = event->acked,
	};

	lull_on_foreground(&path->path, event->now_us, &f);
}

/* An acknowledgement as an arrival: a third of those that are odd have no time stamps. */
static void host_feed(struct receive_path *path, struct receive_download *member,
		      const struct host_event *event)
{
	struct receive_arrival arrival = {
		.now_us = event->now_us,
		.packets = event->delivered,
		.has_echo = event->delivered % 3 > 0,
		.echo = (event->now_us - event->rtt_us) / 1000,
		.clock = event->now_us / 1000,
		.advertised = event->in_flight + event->acked,
		.granted = event->in_flight,
		.blocks = event->lost,
	};
	struct receive_news news;
	struct ack ack;

	if (event->kind != EVENT_ACK)
		return;
	if (arrival.has_echo)
		receive_on_echo(member, event->now_us, arrival.echo);
	receive_before(member, &arrival, &news);
	receive_on_arrival(path, member, &arrival, &news, &ack);
	receive_after(member, &arrival, lull_path_window(&path->path));
}

static void host_answer(const struct receive_path *path, const struct receive_download *member,
			const struct host_event *event, u64 *answer)
{
	(void)event;
	answer[0] = lull_path_window(&path->path);
	answer[1] = lull_path_min_rtt(&path->path);
	answer[2] = lull_capacity_packets_per_second(&path->path.capacity);
	answer[3] = path->path.members;
	answer[4] = path->active.in_flight;
	answer[5] = path->active.downloads;
	answer[6] = path->active.spare;
	answer[7] = lull_path_is_at_floor(&path->path);
	answer[8] = lull_leads(&path->path, &member->member);
	answer[9] = receive_packets(member);
	answer[10] = member->part;
	answer[11] = member->last_rtt;
	answer[12] = member->has_pair;
	answer[13] = path->active.weight;
}
