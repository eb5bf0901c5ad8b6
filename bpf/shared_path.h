/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The table of paths, and how a socket finds the state that it shares.
 *
 * An entry is used only under its lock, and only by a socket that has found it by its key there.
 * The memory of a deleted entry may be reused at once, so each use compares the epoch that the
 * socket joined. A socket whose entry was deleted joins again; one without room has epoch 0. The
 * includer has socket.h, lull.h and shared_path_types.h.
 */
#ifndef LULL_SHARED_PATH_H
#define LULL_SHARED_PATH_H

#include "path_foreground.h"
#include "path_key.h"

enum { NO_ROOM = -7 /* -E2BIG */ };

/* An entry that no connection has used for this long is deleted: its state is as old as the oldest
 * round-trip time that Nice uses. Set before loading. */
const volatile u64 path_kept_us = 200000000;
/* At most PATH_SWEEPS sweeps of the table in that time; if it is full, one each
 * PATH_FULL_SWEEP_US. */
#define PATH_SWEEPS 20
#define PATH_FULL_SWEEP_US 100000ULL
/* How often a connection checks whether its route has changed, and without a path whether there is
 * room. */
#define PATH_LOOK_US 1000000ULL

/* The loader may change the size. Memory is allocated on use. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct path_key);
	__type(value, struct shared_path);
} paths SEC(".maps");

/* An unused entry; larger than a program's stack. */
const char unused_path[sizeof(struct shared_path)] = {};

u64 path_epochs = 0;
u64 path_swept_us = 0;

static SOCKET_INLINE u64 monotonic_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

/* Destinations that have turned out to have a longer path than their network. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct path_key);
	__type(value, u32);
} paths_apart SEC(".maps");

static SOCKET_INLINE void find_path_key(struct sock *sk, struct path_key *key)
{
	struct path_key apart = {};

	path_key_with(sk, &apart, true);
	if (bpf_map_lookup_elem(&paths_apart, &apart))
		*key = apart;
	else
		path_key_of(sk, key);
}

struct path_sweep {
	u64 now_us;
	u64 is_full;
};

static long sweep_path(void *map, struct path_key *key, struct shared_path *p,
		       struct path_sweep *sweep)
{
	bool is_dead;

	bpf_spin_lock(&p->lock);
	/* Another processor may have used it since. */
	is_dead = (s64)(sweep->now_us - p->used_us) > (s64)path_kept_us ||
		  (sweep->is_full && p->epoch && !p->state.members);
	p->is_dead |= is_dead;
	bpf_spin_unlock(&p->lock);
	if (is_dead)
		bpf_map_delete_elem(map, key);
	return 0;
}

static SOCKET_INLINE void sweep_paths(u64 now_us, bool is_full)
{
	struct path_sweep sweep = { .now_us = now_us, .is_full = is_full };

	if (now_us - path_swept_us < (is_full ? PATH_FULL_SWEEP_US : path_kept_us / PATH_SWEEPS))
		return;
	path_swept_us = now_us;
	bpf_for_each_map_elem(&paths, sweep_path, &sweep, 0);
}

/* The entry of a key; creates it, and room for it, if necessary. */
static SOCKET_INLINE struct shared_path *obtain_path(const struct path_key *key, u64 now_us)
{
	struct shared_path *p = bpf_map_lookup_elem(&paths, key);

	if (p)
		return p;
	sweep_paths(now_us, false);
	if (bpf_map_update_elem(&paths, key, unused_path, BPF_NOEXIST) == NO_ROOM) {
		sweep_paths(now_us, true);
		bpf_map_update_elem(&paths, key, unused_path, BPF_NOEXIST);
	}
	return bpf_map_lookup_elem(&paths, key);
}

/* The weight of each socket that differs from the default: exec.bpf.c sets it. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} weights SEC(".maps");

/* Joins the path of the socket. Without room, the socket has no path. */
static SOCKET_INLINE void join_path(struct sock *sk, struct lull_socket *s)
{
	u64 now_us = monotonic_us();
	u64 epoch = __sync_fetch_and_add(&path_epochs, 1) + 1;
	u32 *weight = bpf_sk_storage_get(&weights, sk, 0, 0);
	u32 own = weight ? *weight : LULL_USUAL_WEIGHT;
	struct shared_path *p;

	s->epoch = 0;
	s->looked_us = now_us;
	find_path_key(sk, &s->key);
	p = obtain_path(&s->key, now_us);
	if (!p)
		return;
	bpf_spin_lock(&p->lock);
	if (!p->epoch) {
		p->epoch = epoch;
		p->key = s->key;
		lull_path_init(&p->state);
	}
	if (!p->is_dead && path_keys_equal(&p->key, &s->key)) {
		p->used_us = now_us;
		lull_join(&p->state, &s->member, own);
		s->epoch = p->epoch;
	}
	bpf_spin_unlock(&p->lock);
}

/* The socket's path with its lock held; 0: it was deleted, and nothing is locked. */
static SOCKET_INLINE struct shared_path *lock_path(const struct lull_socket *s)
{
	struct shared_path *p = bpf_map_lookup_elem(&paths, &s->key);

	if (!p)
		return 0;
	bpf_spin_lock(&p->lock);
	if (p->epoch == s->epoch)
		return p;
	bpf_spin_unlock(&p->lock);
	return 0;
}

/* Begins an event on a path that is locked. */
static SOCKET_INLINE void begin_event(struct shared_path *p, u64 now_us)
{
	struct lull_foreground f = path_foreground_read(&p->foreground);

	p->used_us = now_us;
	lull_on_foreground(&p->state, now_us, &f);
	LULL_FORGET();
}

static SOCKET_INLINE void leave_path(struct lull_socket *s)
{
	u64 now_us = monotonic_us();
	struct shared_path *p;

	if (!s->epoch)
		return;
	p = lock_path(s);
	if (p) {
		p->used_us = now_us;
		lull_leave(&p->state, &s->member);
		bpf_spin_unlock(&p->lock);
	}
	s->epoch = 0;
}

/* Occasionally checks whether the route of the socket has changed, or there is room. */
static SOCKET_INLINE void follow_path(struct sock *sk, struct lull_socket *s)
{
	u64 now_us = tcp_of(sk)->tcp_mstamp;
	struct path_key key = {};

	if ((s64)(now_us - s->looked_us) < (s64)PATH_LOOK_US)
		return;
	s->looked_us = now_us;
	find_path_key(sk, &key);
	if (s->epoch && path_keys_equal(&key, &s->key))
		return;
	leave_path(s);
	join_path(sk, s);
}

/* The destination of the socket has a path of its own from now on. */
static SOCKET_INLINE void part_from_path(struct sock *sk, struct lull_socket *s)
{
	struct path_key apart = {};
	u32 one = 1;

	path_key_with(sk, &apart, true);
	bpf_map_update_elem(&paths_apart, &apart, &one, BPF_ANY);
	leave_path(s);
	join_path(sk, s);
}

#endif
