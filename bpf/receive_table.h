/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The table of paths of downloads: one for all programs that use it. The includer has kernel.h. */
#ifndef LULL_RECEIVE_TABLE_H
#define LULL_RECEIVE_TABLE_H

#include "receive_path_types.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct path_key);
	__type(value, struct receive_entry);
} receive_paths SEC(".maps");

#endif
