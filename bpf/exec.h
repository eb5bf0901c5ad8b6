/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The shared data of exec.bpf.c and crates/kernel/src/hooks.rs, its mirror. */
#ifndef LULL_EXEC_H
#define LULL_EXEC_H

/* TCP_CA_NAME_MAX of the kernel, including the final zero. */
#define CONGESTION_NAME_SIZE 16

/* The beginning of each socket's state of a congestion control. */
struct exec_state {
	u64 yielded_us;
};

struct exec_counters {
	u64 tcp_bytes;	 /* payload handed to the network, including retransmissions */
	u64 tcp_received; /* payload that arrived, including retransmissions */
	u64 udp_bytes;	 /* payload of datagrams, including QUIC */
	u64 connections; /* opened or accepted */
	u64 refused;	 /* connections that were established without the congestion control */
	u64 lived_us;	 /* time from opening to closing, all closed connections together */
	u64 yielded_us;	 /* the part of it that was spent yielding */
	u64 unmarked;	 /* connections that were established only without the mark */
	u64 open_lived_us; /* the same for open connections, filled in by the iterator */
	u64 open_yielded_us;
};

#endif
