/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* What is known of the host's other connections on a path. The includer has kernel.h. */
#ifndef LULL_PATH_FOREGROUND_TYPES_H
#define LULL_PATH_FOREGROUND_TYPES_H

/* One interval of path_foreground. */
#define FOREGROUND_INTERVAL_US 100000ULL

/* The traffic of this host's other connections on a path, in one direction (foreground.bpf.c). Written
 * without the lock: each field is complete, but they may be of different moments. Times are
 * CLOCK_MONOTONIC; 0: never. */
struct path_foreground {
	u64 connected_us;   /* last SYN */
	u64 data_us;	    /* last packet with data */
	u64 bytes;	    /* in such packets, without headers */
	u64 interval_us;    /* the beginning of the current interval */
	u64 interval_bytes; /* in it so far */
	u64 last_bytes;	    /* in the previous one, which began at least its length earlier */
};

#endif
