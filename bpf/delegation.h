/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The messages of delegation.bpf.c to crates/kernel/src/delegation.rs, its mirror. */
#ifndef LULL_DELEGATION_H
#define LULL_DELEGATION_H

enum delegation_kind {
	DELEGATION_SOCKET = 1,	 /* `process` has a TCP socket that was made outside the background */
	DELEGATION_FILE = 2,	 /* `process` writes to a file of device `device` */
	DELEGATION_CONNECTED = 3, /* `process` has connected to the Unix socket `path` */
	DELEGATION_MOVED = 4,	 /* `process` has left the background */
};

/* The iterator's output for a descriptor. */
struct delegation_record {
	u32 kind;
	u32 process;
	u32 device;
	u32 unused;
	u64 inode;
};

/* sizeof(sun_path) */
#define DELEGATION_PATH_SIZE 108

struct delegation_event {
	u32 kind;
	u32 process;
	char path[DELEGATION_PATH_SIZE];
};

#endif
