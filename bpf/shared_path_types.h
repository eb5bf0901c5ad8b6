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

/* What other connections of this host send on the path (foreground.bpf.c). Written without the lock:
 * each field is whole, but they may be of different moments. Times are CLOCK_MONOTONIC; 0: never. */
struct path_foreground {
	u64 connected_us;   /* last SYN */
	u64 data_us;	    /* last packet with data */
	u64 bytes;	    /* in such packets, headers left out */
	u64 interval_us;    /* when the interval began that is counted now */
	u64 interval_bytes; /* in it so far */
	u64 last_bytes;	    /* in the one before, which began at least as long before as it lasts */
};

struct shared_path {
	struct bpf_spin_lock lock;
	u32 is_dead; /* about to be deleted: a connection that still finds it looks again */
	/* Tells this entry from an earlier or later one of the same key; 0: nothing has used it. */
	u64 epoch;
	u64 used_us; /* last event of any of its connections, CLOCK_MONOTONIC */
	struct path_key key;
	struct path_foreground foreground;
	struct lull_path state;
};

/* What `lull` keeps for each socket. */
struct lull_socket {
	/* Pauses between pairs on a path that is left to others. First: exec.bpf.c reads it as
	 * struct exec_state. */
	u64 yielded_us;
	struct lull_member member;
	struct path_key key;
	u64 epoch;	 /* of its path; 0: it shares none, and runs Nice by itself */
	u64 looked_us;	 /* when it last looked which path it is on */
	u64 bytes_acked; /* the kernel's count at the last ACK */
	u32 pair_began;	 /* segments sent when the pair was begun */
	u32 reserved;
};

#endif
