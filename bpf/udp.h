/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The shared data of udp.bpf.c and crates/kernel/src/udp/table.rs, its mirror. */
#ifndef LULL_UDP_H
#define LULL_UDP_H

#include "path_key_types.h"
#include "virtual_queue_types.h"

/* The UDP traffic of a background to one network. */
struct udp_path {
	struct bpf_spin_lock lock;
	u32 is_ipv6;
	u32 destination[4]; /* of the latest packet, in network byte order; IPv4 in the first word */
	u64 seen_us;	    /* when it was sent */
	u64 woken_us;	    /* when the loader was last woken for this path */
	struct virtual_queue queue;
	u64 marked; /* packets */
	u64 dropped;
};

/* The UDP traffic of a background to all networks. */
struct udp_counters {
	u64 passed; /* bytes, with headers */
	u64 marked; /* packets */
	u64 dropped;
	u64 uncontrolled; /* packets without an entry in the table of paths, which was full */
};

#endif
