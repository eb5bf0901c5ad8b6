/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The table of paths: the state that the background connections of this host share.
 * crates/kernel/src/paths.rs reads it. The includer has kernel.h and lull_types.h.
 */
#ifndef LULL_SHARED_PATH_TYPES_H
#define LULL_SHARED_PATH_TYPES_H

#include "path_foreground_types.h"
#include "path_key_types.h"

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
	/* Pauses between pairs on a path that yields, and time in which the window left room for
	 * this host's foreground. First: exec.bpf.c reads it as struct exec_state. */
	u64 yielded_us;
	u64 acked_us; /* the last acknowledgement */
	struct lull_member member;
	struct path_key key;
	u64 epoch;	 /* of its path; 0: it shares none, and runs Nice alone */
	u64 looked_us;	 /* when it last checked its path */
	u64 bytes_acked; /* the kernel's count at the last ACK */
	u32 pair_began;	 /* segments sent at the beginning of the pair */
	u32 reserved;
};

#endif
