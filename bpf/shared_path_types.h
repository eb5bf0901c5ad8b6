/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The table of paths: the state that the background connections of this host share.
 * crates/kernel/src/paths.rs reads it. The includer has kernel.h and lull_types.h.
 */
#ifndef LULL_SHARED_PATH_TYPES_H
#define LULL_SHARED_PATH_TYPES_H

/* Connections with an equal key share one state (docs/adr/0016). No padding: keys are compared as
 * bytes. */
struct path_key {
	u64 network_namespace; /* cookie of the namespace: never used twice, unlike its inode */
	u8 prefix[8];	       /* first bytes of the destination: three of IPv4, six of IPv6 */
	u32 interface;	       /* index of the egress interface; 0: no route is known */
	u32 family;
};

struct shared_path {
	struct bpf_spin_lock lock;
	u32 is_dead; /* about to be deleted: a connection that still finds it looks again */
	/* Tells this entry from an earlier or later one of the same key; 0: nothing has used it. */
	u64 epoch;
	u64 used_us; /* last event of any of its connections, CLOCK_MONOTONIC */
	struct path_key key;
	struct lull_path state;
};

/* What `lull` keeps for each socket. */
struct lull_socket {
	struct lull_member member;
	struct path_key key;
	u64 epoch;	 /* of its path; 0: it shares none, and runs Nice by itself */
	u64 looked_us;	 /* when it last looked which path it is on */
	u64 bytes_acked; /* the kernel's count at the last ACK */
	u32 pair_began;	 /* segments sent when the pair was begun */
	u32 reserved;
};

#endif
