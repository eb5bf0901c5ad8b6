// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* nice.h on the host, for the conformance test. */
#define HOST_PARAMETERS 9
#define HOST_ANSWERS 11
#include "host.h"

#define NICE_INLINE HOST_INLINE
#define NICE_VERIFIED_ONCE static HOST_INLINE
#define NICE_OPAQUE(variable) (void)(variable)
#include "nice.h"

static struct nice n;
static struct nice_params p;

static void host_start(const u64 *w)
{
	p = (struct nice_params){
		.min_window = w[0],
		.threshold = w[1],
		.fraction = w[2],
		.alpha = w[3],
		.beta = w[4],
		.delay_floor_us = w[5],
		.base = w[6],
		.detector = w[7],
		.refinements = w[8],
	};
	nice_init(&n, NICE_TWO, ~0U);
}

static void host_step(const struct host_event *event, u64 *answer)
{
	struct ack a = host_ack(event);

	n.connections = event->delivered % 100;
	switch (event->kind) {
	case EVENT_ACK:
		nice_on_ack(&p, &n, &a);
		break;
	case EVENT_LOSS:
		nice_on_loss(&p, &n, a.delivered, a.delivered);
		break;
	case EVENT_MARK:
		nice_on_mark(&p, &n, a.delivered);
		break;
	case EVENT_TIMEOUT:
		nice_on_timeout(&n, a.delivered);
		break;
	default:
		nice_on_idle(&n);
		break;
	}
	answer[0] = n.window;
	answer[1] = nice_slow_start_end(&n);
	answer[2] = n.rtt.min_rtt;
	answer[3] = n.rtt.max_rtt;
	answer[4] = n.rounds;
	answer[5] = n.rounds_congested;
	answer[6] = n.yielded_us;
	answer[7] = nice_cwnd(&n, a.in_flight);
	answer[8] = nice_pacing_rate(&p, &n, a.rtt_us, 1448);
	answer[9] = nice_spacing(&p, &n);
	answer[10] = nice_quiet_rtt(&p, &n);
}
