/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The state and the inputs of virtual_queue.h. The includer provides u32 and u64. */
#ifndef LULL_VIRTUAL_QUEUE_TYPES_H
#define LULL_VIRTUAL_QUEUE_TYPES_H

#define VIRTUAL_QUEUE_MICROS 1000000ULL
/* The queue drains for at most this time at once. */
#define VIRTUAL_QUEUE_MAX_DRAIN_US VIRTUAL_QUEUE_MICROS
#define VIRTUAL_QUEUE_RATE_LIMIT (1ULL << 34)
#define VIRTUAL_QUEUE_BYTES_LIMIT (1ULL << 40)
/* How long measurements are used, and the rate and limit without them. */
#define VIRTUAL_QUEUE_FRESH_US 2000000ULL
#define VIRTUAL_QUEUE_UNKNOWN_RATE 125000ULL
#define VIRTUAL_QUEUE_UNKNOWN_LIMIT 15000ULL
/* The value of virtual_allowance.delivered that is not known. */
#define VIRTUAL_QUEUE_NOT_KNOWN (~0ULL)

struct virtual_allowance {
	u64 written;   /* when it was measured, in microseconds; 0: never */
	u64 limit;     /* bytes that the path may hold */
	u64 rate;      /* bytes per second that leave the path */
	u64 delivered; /* bytes of `passed` that it had delivered at that time */
};

struct virtual_queue {
	u64 level;   /* bytes times VIRTUAL_QUEUE_MICROS */
	u64 updated; /* when the level was computed, in microseconds */
	u64 corrected; /* virtual_allowance.written of the last correction */
	u64 passed;  /* bytes so far */
};

enum virtual_verdict {
	VIRTUAL_PASS = 0,
	VIRTUAL_MARK = 1,
	VIRTUAL_DROP = 2,
};

#endif
