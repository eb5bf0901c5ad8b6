/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* One socket, as written by status.bpf.c and read by crates/kernel/src/status.rs, its mirror. */
#ifndef LULL_STATUS_H
#define LULL_STATUS_H

/* The owner of the state in the map of sockets; crates/kernel/src/status.rs has the same order
 * (Kind). */
enum status_state { STATE_UNKNOWN = 0, STATE_NICE = 1, STATE_BACKGROUND = 2, STATE_LULL = 3 };

struct status_record {
	u64 window;
	u64 yielded_us;
	u64 bytes_acked;
	u64 bytes_sent;
	u64 bytes_received;
	u64 inode;
	u64 cgroup;
	u64 epoch; /* of its shared path; 0: none */
	u32 netns;
	u32 family;
	u32 state;
	u32 min_rtt_us;
	u32 max_rtt_us;
	u32 srtt_us;
	u32 rounds;
	u32 rounds_congested;
	u32 mss;
	u32 receive_window; /* bytes that the other side may send, from the last advertisement */
	u16 local_port;
	u16 remote_port;
	u32 member; /* number of the socket within that path */
	u8 local[16]; /* IPv4 addresses in the first four bytes */
	u8 remote[16];
	char congestion[16];
};

#endif
