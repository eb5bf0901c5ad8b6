// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * nice.h on the host, for the conformance test: events from standard input, state to standard
 * output, both as 64-bit words. The first nine words are the parameters; an event is ten words,
 * its kind first; an answer is ten.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;

#define NICE_INLINE inline __attribute__((unused))
#define NICE_CALLBACK
#define NICE_FOR(count, callback, context)                                                 \
	do {                                                                               \
		u32 nice_i;                                                                \
		for (nice_i = 0; nice_i < (count); nice_i++)                               \
			if (callback(nice_i, context))                                     \
				break;                                                     \
	} while (0)
#define NICE_OPAQUE(variable) (void)(variable)
#include "nice.h"

enum { EVENT_ACK = 0, EVENT_LOSS = 1, EVENT_MARK = 2, EVENT_TIMEOUT = 3, EVENT_IDLE = 4 };

int main(void)
{
	struct nice n;
	u64 w[10], answer[10];
	struct nice_params p;

	if (fread(w, 8, 9, stdin) != 9)
		return 1;
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
	while (fread(w, 8, 10, stdin) == 10) {
		struct nice_ack a = {
			.now_us = w[1],
			.delivered = w[2],
			.prior_delivered = w[3],
			.acked = w[4],
			.lost = w[5],
			.in_flight = w[6],
			.rtt_us = w[7],
			.app_limited = w[8],
			.maybe_delayed = w[9],
		};

		switch (w[0]) {
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
			nice_on_timeout(&p, &n, a.delivered);
			break;
		case EVENT_IDLE:
			nice_on_idle(&n);
			break;
		default:
			return 2;
		}
		answer[0] = n.window;
		answer[1] = nice_slow_start_end(&n);
		answer[2] = n.min_rtt;
		answer[3] = n.max_rtt;
		answer[4] = n.rounds;
		answer[5] = n.rounds_congested;
		answer[6] = n.yielded_us;
		answer[7] = nice_cwnd(&n, a.in_flight);
		answer[8] = nice_pacing_rate(&n, a.rtt_us, 1448);
		answer[9] = nice_spacing(&p, &n);
		if (fwrite(answer, 8, 10, stdout) != 10)
			return 1;
	}
	return 0;
}
