/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The table of paths whose downloads share a state. The includer has kernel.h. */
#ifndef LULL_RECEIVE_PATH_TYPES_H
#define LULL_RECEIVE_PATH_TYPES_H

#include "path_foreground_types.h"
#include "path_key_types.h"
#include "receive_types.h"

struct receive_entry {
	struct bpf_spin_lock lock;
	u32 is_dead; /* about to be deleted: a connection that still finds it looks again */
	u64 epoch;   /* no other entry has it; 0: nothing has used it */
	u64 used_us; /* last event of any of its connections, CLOCK_MONOTONIC */
	struct path_key key;
	struct path_foreground foreground;
	struct receive_path state;
};

struct receive_socket {
	struct receive_download download;
	struct path_key key;
	u64 epoch;   /* of its path; 0: it shares none, and is not slowed */
	u64 looked_us; /* when it last checked its path */
	u32 reserved;
	u32 tsoffset; /* what the kernel adds to time stamps of the socket */
	/* Of the event under way: on the stack, the verifier would follow each of their values. */
	struct receive_arrival arrival;
	struct receive_news news;
	struct ack ack;
};

#endif
