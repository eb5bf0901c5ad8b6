/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The messages of elsewhere.bpf.c to crates/kernel/src/elsewhere.rs, its mirror. */
#ifndef LULL_ELSEWHERE_H
#define LULL_ELSEWHERE_H

enum elsewhere_kind {
	ELSEWHERE_SOCKET = 1,	 /* `process` has a TCP socket that was made outside the background */
	ELSEWHERE_FILE = 2,	 /* `process` writes to a file of device `device` */
	ELSEWHERE_CONNECTED = 3, /* `process` has connected to the Unix socket `path` */
	ELSEWHERE_MOVED = 4,	 /* `process` has left the background */
};

/* The iterator's output for a descriptor. */
struct elsewhere_record {
	u32 kind;
	u32 process;
	u32 device;
	u32 unused;
	u64 inode;
};

/* sizeof(sun_path) */
#define ELSEWHERE_PATH_SIZE 108

struct elsewhere_event {
	u32 kind;
	u32 process;
	char path[ELSEWHERE_PATH_SIZE];
};

#endif
