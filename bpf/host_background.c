// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* background.h on the host, for the conformance test. */
#define HOST_PARAMETERS 6
#define HOST_ANSWERS 3
#include "host.h"

#define BACKGROUND_INLINE HOST_INLINE
#include "background.h"

static struct background b;
static struct background_params p;

static void host_start(const u64 *w)
{
	p = (struct background_params){
		.decrease = w[0],
		.amount = w[1],
		.limit = w[2],
		.limit_amount = w[3],
		.factor = w[4],
		.hold = w[5],
	};
	background_init(&b, BACKGROUND_INITIAL_WINDOW, BACKGROUND_NO_THRESHOLD);
}

static void host_step(const struct host_event *event, u64 *answer)
{
	struct background_ack a = {
		.delivered = event->delivered,
		.prior_delivered = event->prior_delivered,
		.acked = event->acked,
		.lost = event->lost,
		.app_limited = event->app_limited,
	};

	switch (event->kind) {
	case EVENT_ACK:
		background_on_ack(&p, &b, &a);
		break;
	case EVENT_LOSS:
		background_on_loss(&p, &b, a.delivered, a.delivered);
		break;
	case EVENT_MARK:
		background_drop(&p, &b, a.delivered);
		break;
	case EVENT_TIMEOUT:
		background_on_timeout(&p, &b, a.delivered);
		break;
	default:
		background_on_idle(&b);
		break;
	}
	answer[0] = b.window;
	answer[1] = b.ssthresh;
	answer[2] = background_cwnd(&b);
}
