/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* What exec.bpf.c and crates/kernel/src/hooks.rs, its mirror, tell each other. */
#ifndef LULL_EXEC_H
#define LULL_EXEC_H

/* TCP_CA_NAME_MAX of the kernel, the final zero included. */
#define CONGESTION_NAME_SIZE 16

/* How the state begins that a congestion control keeps for each socket. */
struct exec_state {
	u64 yielded_us;
};

struct exec_counters {
	u64 tcp_bytes;	 /* payload handed to the network, retransmissions included */
	u64 tcp_received; /* payload that arrived, retransmissions included */
	u64 udp_bytes;	 /* payload of datagrams, QUIC included */
	u64 connections; /* opened or accepted */
	u64 refused;	 /* those that were established without the congestion control */
	u64 lived_us;	 /* time from opening to closing, all closed connections together */
	u64 yielded_us;	 /* the part of it that was spent yielding */
	u64 unmarked;	 /* connections that were established only without the mark */
	u64 open_lived_us; /* the same of the open ones, filled in by the iterator */
	u64 open_yielded_us;
};

#endif
