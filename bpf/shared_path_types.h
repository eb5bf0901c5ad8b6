/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The table of paths: the state that the background connections of this host share.
 * crates/kernel/src/paths.rs reads it. The includer has kernel.h and lull_types.h.
 */
#ifndef LULL_SHARED_PATH_TYPES_H
#define LULL_SHARED_PATH_TYPES_H

#include "path_key_types.h"

/* One interval of path_foreground. */
#define FOREGROUND_INTERVAL_US 100000ULL

/* The traffic of this host's other connections on the path (foreground.bpf.c). Written without the
 * lock: each field is complete, but they may be of different moments. Times are CLOCK_MONOTONIC; 0:
 * never. */
struct path_foreground {
	u64 connected_us;   /* last SYN */
	u64 data_us;	    /* last packet with data */
	u64 bytes;	    /* in such packets, without headers */
	u64 interval_us;    /* the beginning of the current interval */
	u64 interval_bytes; /* in it so far */
	u64 last_bytes;	    /* in the previous one, which began at least its length earlier */
};

struct shared_path {
	struct bpf_spin_lock lock;
	u32 is_dead; /* about to be deleted: a connection that still finds it searches again */
	/* Distinguishes this entry from an earlier or later one of the same key; 0: unused. */
	u64 epoch;
	u64 used_us; /* last event of any of its connections, CLOCK_MONOTONIC */
	struct path_key key;
	struct path_foreground foreground;
	struct lull_path state;
};

/* The state of `lull` for each socket. */
struct lull_socket {
	/* Pauses between pairs on a path that yields. First: exec.bpf.c reads it as struct
	 * exec_state. */
	u64 yielded_us;
	struct lull_member member;
	struct path_key key;
	u64 epoch;	 /* of its path; 0: it shares none, and runs Nice alone */
	u64 looked_us;	 /* when it last checked its path */
	u64 bytes_acked; /* the kernel's count at the last ACK */
	u32 pair_began;	 /* segments sent at the beginning of the pair */
	u32 reserved;
};

#endif
