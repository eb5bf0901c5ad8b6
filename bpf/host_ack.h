/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* An event of the conformance tests as an acknowledgement. The includer has struct host_event. */
#ifndef LULL_HOST_ACK_H
#define LULL_HOST_ACK_H

#include "ack.h"

static HOST_INLINE struct ack host_ack(const struct host_event *event)
{
	struct ack ack = {
		.now_us = event->now_us,
		.delivered = event->delivered,
		.prior_delivered = event->prior_delivered,
		.acked = event->acked,
		.lost = event->lost,
		.in_flight = event->in_flight,
		.rtt_us = event->rtt_us,
		.app_limited = event->app_limited,
		.maybe_delayed = event->maybe_delayed,
		.is_small = event->is_small,
	};

	return ack;
}

#endif
