/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Which downloads of a path are active: the mirror of crates/cc/src/receive/accounts.rs, the reference,
 * which says why each rule is there.
 */
#ifndef LULL_RECEIVE_ACCOUNTS_H
#define LULL_RECEIVE_ACCOUNTS_H

#include "lull_path.h"
#include "receive_types.h"

#define RECEIVE_PERIOD_RTTS 4
#define RECEIVE_MIN_PERIOD_US 500000

static LULL_INLINE void receive_path_init(struct receive_path *p)
{
	__builtin_memset(p, 0, sizeof(*p));
	lull_path_init(&p->path);
}

static LULL_INLINE void receive_open(const struct receive_path *p, struct receive_account *a,
				     u32 weight)
{
	__builtin_memset(a, 0, sizeof(*a));
	a->period = p->period - 2;
	a->weight = weight;
}

static LULL_INLINE void receive_replace(struct receive_sums *sums, u64 is_known,
					const struct receive_account *old, u32 in_flight, u32 spare)
{
	sums->in_flight += (u64)in_flight - lull_choose(is_known, old->in_flight, 0);
	sums->spare += (u64)spare - lull_choose(is_known, old->spare, 0);
	sums->downloads += is_known ^ 1;
	sums->weight += lull_choose(is_known, 0, old->weight);
}

static LULL_INLINE void receive_remove(struct receive_sums *sums, const struct receive_account *a)
{
	sums->downloads--;
	sums->weight -= a->weight;
}

static LULL_INLINE void receive_copy(struct receive_sums *to, const struct receive_sums *from,
				     u64 is_kept)
{
	to->in_flight = lull_choose(is_kept, from->in_flight, 0);
	to->spare = lull_choose(is_kept, from->spare, 0);
	to->downloads = lull_choose(is_kept, from->downloads, 0);
	to->weight = lull_choose(is_kept, from->weight, 0);
}

static LULL_INLINE void receive_advance(struct receive_path *p, u64 now_us)
{
	u64 lasts = lull_max(RECEIVE_PERIOD_RTTS * lull_path_min_rtt(&p->path),
			     RECEIVE_MIN_PERIOD_US);
	u64 is_silent;

	if (now_us < p->since + lasts)
		return;
	is_silent = lull_is_least(now_us, p->since + 2 * lasts);
	receive_copy(&p->active, &p->heard, is_silent ^ 1);
	receive_copy(&p->heard, &p->heard, 0);
	p->since = now_us;
	p->period += 1 + is_silent;
}

static LULL_INLINE void receive_count(struct receive_path *p, struct receive_account *a,
				      u32 in_flight, u32 spare)
{
	u32 age = p->period - a->period;

	receive_replace(&p->active, lull_is_least(1, age), a, in_flight, spare);
	receive_replace(&p->heard, lull_is_nonzero(age) ^ 1, a, in_flight, spare);
	a->period = p->period;
	a->in_flight = in_flight;
	a->spare = spare;
}

static LULL_INLINE void receive_close(struct receive_path *p, struct receive_account *a)
{
	receive_count(p, a, 0, 0);
	receive_remove(&p->heard, a);
	receive_remove(&p->active, a);
}

#endif
