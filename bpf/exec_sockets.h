/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The maps that exec.bpf.c and receive.bpf.c share: the loader gives the second program those of the first. */
#ifndef LULL_EXEC_SOCKETS_H
#define LULL_EXEC_SOCKETS_H

/* The sockets that `lull exec --pid` has moved out of this background since. Connections accepted
 * by their listeners are moved with them. crates/kernel/src/release.rs finds the map by its
 * name. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, u32);
} lull_released SEC(".maps");

/* The window clamp that the program has chosen for a socket. Accepted connections have their listener's. The programs for
 * received traffic set lower ones only. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, u32);
} window_clamps SEC(".maps");

#endif
