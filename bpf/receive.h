/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Downloads in the background, in plain C: the mirror of crates/cc/src/receive, the reference, which
 * says why each rule is there. crates/kernel/tests/it/shared_state.rs holds both equal, bit for bit.
 *
 * receive_before() and receive_after() need no lock of the path, all else does. The includer
 * provides u32, s32, u64, bool, LULL_INLINE and NICE_INLINE.
 */
#ifndef LULL_RECEIVE_H
#define LULL_RECEIVE_H

#include "lull.h"
#include "receive_accounts.h"
#include "receive_marks.h"
#include "receive_types.h"

#define RECEIVE_PAIR 2
#define RECEIVE_PACKETS_LIMIT (1U << 20)
#define RECEIVE_REORDERED 3
#define RECEIVE_SPARE_PACKETS 4
#define RECEIVE_SILENCE_US 1000000
#define RECEIVE_PASSES 4
#define RECEIVE_MIN_PACKETS 4

static LULL_INLINE void receive_join(struct receive_path *p, struct receive_download *d, u32 weight)
{
	const u32 size = sizeof(*d) - offsetof(struct receive_download, first);

	/* All but the marks, of which none is pending: clang has no memset of so many bytes for BPF. */
	__builtin_memset(&d->first, 0, size);
	lull_join(&p->path, &d->member, weight);
	receive_open(p, &d->account, d->member.weight);
	d->window_then = RECEIVE_PAIR;
	d->part_then = RECEIVE_PAIR;
	d->part = RECEIVE_PAIR;
	d->has_pair = 1;
}

static LULL_INLINE void receive_leave(struct receive_path *p, struct receive_download *d)
{
	lull_leave(&p->path, &d->member);
	receive_close(p, &d->account);
}

static LULL_INLINE u32 receive_recent(const struct receive_download *d)
{
	return lull_min((u32)(d->packets - d->prior), RECEIVE_PACKETS_LIMIT);
}

/* Packets that the window to advertise has room for; 0: less than one. */
static LULL_INLINE u32 receive_packets(const struct receive_download *d)
{
	return lull_min(d->part, 2 * receive_recent(d) + RECEIVE_SPARE_PACKETS);
}

/* RFC 9840, "Detecting Packet Losses and Retransmissions". */
static LULL_INLINE bool receive_find_loss(struct receive_download *d,
					  const struct receive_arrival *a)
{
	bool is_new;

	if (a->blocks > d->blocks || !d->blocks) {
		d->hole = d->packets;
		d->is_lost = 0;
	}
	d->blocks = a->blocks;
	is_new = a->blocks && a->packets - d->hole >= RECEIVE_REORDERED && !d->is_lost;
	d->is_lost |= is_new;
	return is_new;
}

static LULL_INLINE u32 receive_pass_marks(struct receive_download *d,
					  const struct receive_arrival *a)
{
	struct receive_mark *mark;
	u64 answered;
	u32 rtt = 0;
	int i;

	for (i = 0; i < RECEIVE_PASSES; i++) {
		mark = receive_pass_mark(d, a);
		if (!mark)
			break;
		d->prior = mark->packets;
		d->window_then = mark->path_window;
		d->part_then = mark->part;
		answered = a->has_echo ? mark->echoed : a->now_us;
		if (mark->window && answered)
			rtt = lull_max(lull_min(lull_less(answered, mark->sent), ~0U), 1);
		LULL_FORGET();
	}
	return rtt;
}

/* First of all that an arrival changes. */
static LULL_INLINE void receive_before(struct receive_download *d, const struct receive_arrival *a,
				       struct receive_news *news)
{
	news->silence = lull_less(a->now_us, d->seen);
	if (!d->seen) {
		d->packets = a->packets;
		d->prior = a->packets;
	}
	d->seen = lull_max(a->now_us, 1);
	receive_advertise(d, a->advertised);
	if (news->silence >= RECEIVE_SILENCE_US)
		receive_clear_marks(d);
	LULL_FORGET();
	news->is_lost = receive_find_loss(d, a);
	LULL_FORGET();
	news->acked = lull_min((u32)(a->packets - d->packets), RECEIVE_PACKETS_LIMIT);
	d->packets = a->packets;
	LULL_FORGET();
	news->rtt_us = receive_pass_marks(d, a);
	LULL_FORGET();
	if (news->rtt_us)
		d->last_rtt = news->rtt_us;
}

static LULL_INLINE u32 receive_share(const struct receive_path *p, const struct receive_download *d)
{
	u32 window = lull_path_window(&p->path) >> LULL_SHIFT;
	u32 active = lull_max(p->active.downloads, 1);
	u32 users = lull_min(lull_max(window / RECEIVE_MIN_PACKETS, 1), active);
	u32 place = (u32)(d->member.number - p->path.lead.leader) % active;
	u64 others = lull_less(p->active.spare, d->account.spare);
	u32 packets = window + lull_min(others, window);
	u64 is_rotating = lull_is_least(users, active) ^ 1;
	u64 weight = lull_choose(is_rotating, 1, d->member.weight);
	u64 sum = lull_choose(is_rotating, users, lull_max(p->active.weight, 1));
	u64 rounding = ((u64)users - 1 - place) * sum;
	u32 part = lull_max((u32)((packets * weight * users + rounding) / (sum * users)), RECEIVE_PAIR);
	u64 waits = (lull_is_nonzero(p->path.phase ^ LULL_FLOOR) ^ 1) | lull_is_least(place, users);

	return lull_choose(waits, lull_choose(d->has_pair, RECEIVE_PAIR, 0), part);
}

static LULL_INLINE void receive_take_turn(struct receive_path *p, struct receive_download *d,
					  const struct receive_arrival *a, u32 acked)
{
	bool is_turn = lull_on_turn(&p->path, &d->member, a->now_us, a->packets);
	u64 has_arrived = lull_is_nonzero(acked) & lull_is_nonzero(a->advertised);

	d->has_pair = is_turn | (d->has_pair & (has_arrived ^ 1));
	if (is_turn && lull_path_is_at_floor(&p->path))
		receive_clear_marks(d);
}

static LULL_INLINE u64 receive_least_used(const struct receive_path *p,
					  const struct receive_download *d)
{
	u64 window = d->window_then;
	u64 all = RECEIVE_MIN_PACKETS * lull_max(p->active.downloads, 1);

	return window * (2 * all + lull_least_of(window, all)) / (4 * all);
}

/* An acknowledgement is about to leave. `ack` is a place for what lull.h hears of it: in memory that the verifier
 * does not follow, or it takes each value of it through all that comes. */
static LULL_INLINE void receive_on_arrival(struct receive_path *p, struct receive_download *d,
					   const struct receive_arrival *a,
					   const struct receive_news *news, struct ack *ack)
{
	u32 recent = receive_recent(d);
	u32 granted = lull_min(a->granted, RECEIVE_PACKETS_LIMIT);
	u32 in_flight = lull_min(lull_min(granted + news->acked, recent), d->part);
	u32 spare = lull_less(d->part_then * 3 / 4, recent);

	receive_advance(p, a->now_us);
	LULL_FORGET();
	receive_count(p, &d->account, in_flight, spare);
	ack->now_us = a->now_us;
	ack->delivered = a->packets;
	ack->prior_delivered = d->prior;
	ack->acked = news->acked;
	ack->lost = news->is_lost;
	ack->in_flight = lull_max(in_flight, RECEIVE_PAIR);
	ack->rtt_us = news->rtt_us;
	ack->app_limited = p->active.in_flight < receive_least_used(p, d);
	ack->maybe_delayed = spare && news->silence > d->last_rtt / 4;
	ack->is_small = 0;
	asm volatile("" ::: "memory");
	lull_on_ack(&p->path, &d->member, ack);
	asm volatile("" ::: "memory");
	receive_take_turn(p, d, a, news->acked);
	LULL_FORGET();
	d->part = receive_share(p, d);
}

/* Last of all that an arrival changes; `path_window` is that of the path. */
static LULL_INLINE void receive_after(struct receive_download *d, const struct receive_arrival *a,
				      u64 path_window)
{
	bool is_new_clock = !a->has_echo || a->clock != d->clock;
	struct receive_mark *mark = receive_push_mark(d, a->now_us, is_new_clock);

	d->clock = a->clock;
	if (!mark)
		return;
	mark->sent = a->now_us;
	mark->echoed = 0;
	mark->clock = a->clock;
	mark->packets = a->packets;
	mark->edge = a->packets + a->granted;
	mark->window = 0;
	mark->part = d->part;
	mark->path_window = path_window >> LULL_SHIFT;
}

#endif
