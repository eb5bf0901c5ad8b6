/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The mirrors on the host, for the conformance test: parameters and events from standard input,
 * state to standard output, all as 64-bit words. First come the parameters, then events of eleven
 * words each, with the kind first; each is answered.
 *
 * The includer defines HOST_PARAMETERS and HOST_ANSWERS, the numbers of words, and the functions
 * host_start and host_step.
 */
#ifndef LULL_HOST_H
#define LULL_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;

#define HOST_INLINE inline __attribute__((unused))

enum host_kind {
	EVENT_ACK = 0,
	EVENT_LOSS = 1,
	EVENT_MARK = 2,
	EVENT_TIMEOUT = 3,
	EVENT_IDLE = 4,
	EVENT_KINDS = 5,
};

struct host_event {
	u64 kind;
	u64 now_us;
	u64 delivered;
	u64 prior_delivered;
	u64 acked;
	u64 lost;
	u64 in_flight;
	u64 rtt_us;
	u64 app_limited;
	u64 maybe_delayed;
	u64 is_small;
};

#include "host_ack.h"

/* Takes the parameters. */
static void host_start(const u64 *words);
/* Takes an event, and answers. */
static void host_step(const struct host_event *event, u64 *answer);

int main(void)
{
	u64 parameters[HOST_PARAMETERS], answer[HOST_ANSWERS];
	struct host_event event;

	if (fread(parameters, sizeof(parameters), 1, stdin) != 1)
		return 1;
	host_start(parameters);
	while (fread(&event, sizeof(event), 1, stdin) == 1) {
		if (event.kind >= EVENT_KINDS)
			return 2;
		host_step(&event, answer);
		if (fwrite(answer, sizeof(answer), 1, stdout) != 1)
			return 1;
	}
	return 0;
}

#endif
