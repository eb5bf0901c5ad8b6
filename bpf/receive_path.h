/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Paths that downloads share, as shared_path.h has them for connections that send. The includer has
 * kernel.h, bpf/bpf_endian.h and receive.h, and defines LULL_INLINE.
 */
#ifndef LULL_RECEIVE_PATH_H
#define LULL_RECEIVE_PATH_H

#include "path_foreground.h"
#include "path_key.h"
#include "receive_table.h"

enum { NO_ROOM = -7 /* -E2BIG */ };

/* An entry that no connection has used for so long is deleted. */
#define RECEIVE_KEPT_US 200000000ULL
#define RECEIVE_SWEEP_US 10000000ULL
#define RECEIVE_FULL_SWEEP_US 100000ULL
/* How often a connection checks whether its route has changed, and without a path whether there is room. */
#define RECEIVE_LOOK_US 1000000ULL

/* An entry that was not used; more than the stack of a program holds. */
const char unused_entry[sizeof(struct receive_entry)] = {};

u64 receive_swept_us = 0;

static LULL_INLINE u64 monotonic_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

struct receive_sweep {
	u64 now_us;
	u64 is_full;
};

static long sweep_entry(void *map, struct path_key *key, struct receive_entry *e,
			struct receive_sweep *sweep)
{
	bool is_dead;

	bpf_spin_lock(&e->lock);
	is_dead = (s64)(sweep->now_us - e->used_us) > (s64)RECEIVE_KEPT_US ||
		  (sweep->is_full && e->epoch && !e->state.path.members);
	e->is_dead |= is_dead;
	bpf_spin_unlock(&e->lock);
	if (is_dead)
		bpf_map_delete_elem(map, key);
	return 0;
}

static LULL_INLINE void sweep_entries(u64 now_us, bool is_full)
{
	struct receive_sweep sweep = { .now_us = now_us, .is_full = is_full };

	if (now_us - receive_swept_us < (is_full ? RECEIVE_FULL_SWEEP_US : RECEIVE_SWEEP_US))
		return;
	receive_swept_us = now_us;
	bpf_for_each_map_elem(&receive_paths, sweep_entry, &sweep, 0);
}

/* The entry of a key; makes it, and room for it, if need be. */
static LULL_INLINE struct receive_entry *obtain_entry(const struct path_key *key, u64 now_us)
{
	struct receive_entry *e = bpf_map_lookup_elem(&receive_paths, key);

	if (e)
		return e;
	sweep_entries(now_us, false);
	if (bpf_map_update_elem(&receive_paths, key, unused_entry, BPF_NOEXIST) == NO_ROOM) {
		sweep_entries(now_us, true);
		bpf_map_update_elem(&receive_paths, key, unused_entry, BPF_NOEXIST);
	}
	return bpf_map_lookup_elem(&receive_paths, key);
}

/* Joins the path of the socket. Without room it is on none. */
static LULL_INLINE void join_entry(struct sock *sk, struct receive_socket *s, u32 weight)
{
	/* Programs of several backgrounds share the table, and no memory else. */
	u64 epoch = bpf_ktime_get_ns();
	u64 now_us = monotonic_us();
	struct receive_entry *e;

	s->epoch = 0;
	s->looked_us = now_us;
	path_key_of(sk, &s->key);
	e = obtain_entry(&s->key, now_us);
	if (!e)
		return;
	bpf_spin_lock(&e->lock);
	if (!e->epoch) {
		e->epoch = epoch;
		e->key = s->key;
		receive_path_init(&e->state);
	}
	if (!e->is_dead && path_keys_equal(&e->key, &s->key)) {
		e->used_us = now_us;
		receive_join(&e->state, &s->download, weight);
		s->epoch = e->epoch;
	}
	bpf_spin_unlock(&e->lock);
}

/* The socket's entry with its lock held; 0: it has gone, and nothing is locked. */
static LULL_INLINE struct receive_entry *lock_entry(const struct receive_socket *s)
{
	struct receive_entry *e = bpf_map_lookup_elem(&receive_paths, &s->key);

	if (!e)
		return 0;
	bpf_spin_lock(&e->lock);
	if (e->epoch == s->epoch)
		return e;
	bpf_spin_unlock(&e->lock);
	return 0;
}

/* Begins an event on a path that is locked. */
static LULL_INLINE void begin_event(struct receive_entry *e, u64 now_us)
{
	struct lull_foreground f = path_foreground_read(&e->foreground);

	e->used_us = now_us;
	lull_on_foreground(&e->state.path, now_us, &f);
	LULL_FORGET();
}

static LULL_INLINE void leave_entry(struct receive_socket *s)
{
	struct receive_entry *e;

	if (!s->epoch)
		return;
	e = lock_entry(s);
	if (e) {
		receive_leave(&e->state, &s->download);
		bpf_spin_unlock(&e->lock);
	}
	s->epoch = 0;
}

/* Occasionally checks whether the route of the socket has changed, or there is room. */
static LULL_INLINE void follow_entry(struct sock *sk, struct receive_socket *s, u32 weight)
{
	u64 now_us = monotonic_us();
	struct path_key key = {};

	if ((s64)(now_us - s->looked_us) < (s64)RECEIVE_LOOK_US)
		return;
	s->looked_us = now_us;
	path_key_of(sk, &key);
	if (s->epoch && path_keys_equal(&key, &s->key))
		return;
	leave_entry(s);
	join_entry(sk, s, weight);
}

#endif
