/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * virtual_queue.h on the host, for the conformance test. From standard input come seven words for
 * each packet: time, bytes, whether its sender supports ECN, and the four fields of the allowance.
 * Each is answered by the verdict and the four fields of the queue.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef uint32_t u32;
typedef uint64_t u64;

#define VIRTUAL_QUEUE_INLINE inline __attribute__((unused))
#include "virtual_queue_types.h"
#include "virtual_queue.h"

int main(void)
{
	struct virtual_queue queue = {};
	u64 words[7], answer[5];

	while (fread(words, sizeof(words), 1, stdin) == 1) {
		struct virtual_allowance allowance = {
			.written = words[3],
			.limit = words[4],
			.rate = words[5],
			.delivered = words[6],
		};

		answer[0] = virtual_queue_admit(&queue, words[0], words[1], words[2], &allowance);
		answer[1] = queue.level;
		answer[2] = queue.updated;
		answer[3] = queue.corrected;
		answer[4] = queue.passed;
		if (fwrite(answer, sizeof(answer), 1, stdout) != 1)
			return 1;
	}
	return 0;
}
