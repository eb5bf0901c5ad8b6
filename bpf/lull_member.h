/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What a connection knows for itself: the mirror of crates/cc/src/lull/member.rs, the reference,
 * which says why each rule is there.
 */
#ifndef LULL_LULL_MEMBER_H
#define LULL_LULL_MEMBER_H

#include "lull_arithmetic.h"
#include "lull_path.h"
#include "lull_types.h"

#define LULL_PAIR 2
#define LULL_TRAIN_RATE (1ULL << 33)
#define LULL_QUARTER_SAMPLES 4
#define LULL_MORE_PART 16
#define LULL_RECEIVER_DELAY_US 35000
#define LULL_APART_PAIRS 12
#define LULL_APART_RECENT_US 600000ULL
#define LULL_APART_US 2000000ULL
#define LULL_APART_VARYING_PART 8
#define LULL_APART_VARIATION_US 250ULL

static LULL_INLINE bool lull_leads(const struct lull_path *p, const struct lull_member *m)
{
	return m->number && p->lead.leader == m->number;
}

static LULL_INLINE void lull_set_in_flight(struct lull_path *p, struct lull_member *m, u32 packets)
{
	p->in_flight = p->in_flight - m->in_flight + packets;
	m->in_flight = packets;
}

static LULL_INLINE void lull_join(struct lull_path *p, struct lull_member *m, u32 weight)
{
	__builtin_memset(m, 0, sizeof(*m));
	p->members++;
	p->last_number++;
	/* Zero stands for no member. */
	p->last_number += !p->last_number;
	m->number = p->last_number;
	m->weight = lull_min(lull_max(weight, 1), LULL_MAX_WEIGHT);
	m->window = LULL_TWO;
}

static LULL_INLINE void lull_leave(struct lull_path *p, struct lull_member *m)
{
	p->members -= !!p->members;
	lull_set_in_flight(p, m, 0);
	if (lull_leads(p, m))
		lull_path_set_leader(p, 0, 0, 0);
	m->number = 0;
}

static LULL_INLINE void lull_clear_round(struct lull_member *m)
{
	m->high_before = m->high;
	m->high = 0;
	m->low = 0;
	m->highest = 0;
	m->unlimited = 0;
}

/* The round-trip time when packets were lost. */
static LULL_INLINE u32 lull_rtt_at_loss(const struct lull_member *m)
{
	return lull_max(lull_max(m->high, m->high_before), m->last_rtt);
}

static LULL_INLINE void lull_restart_round(struct lull_member *m, u32 delivered)
{
	m->round_end = delivered;
	m->loss_end = delivered;
	m->started = 1;
	m->quarter_samples = 0;
	lull_clear_round(m);
}

static LULL_INLINE bool lull_is_new_loss(const struct lull_member *m, u32 prior_delivered)
{
	return !m->started || (s32)(prior_delivered - m->loss_end) >= 0;
}

static LULL_INLINE void lull_take_lead(struct lull_path *p, struct lull_member *m, u64 now_us,
				       u32 delivered)
{
	lull_path_set_leader(p, now_us, m->number, m->weight);
	lull_restart_round(m, delivered);
}

/* Takes its part of the path's window, and none while it sleeps: it could not send. */
static LULL_INLINE void lull_update(struct lull_path *p, struct lull_member *m, u64 now_us,
				    u32 in_flight, bool wants_all)
{
	u64 window = lull_path_window(p);
	u64 free = lull_path_free_beside(p, p->in_flight - m->in_flight);
	u64 leads = lull_is_nonzero(m->number) & ~lull_is_nonzero(p->lead.leader ^ m->number);
	u64 is_alike = lull_is_nonzero(m->weight ^ p->lead.weight) ^ 1;
	u64 is_large = lull_path_is_worth_sharing(p, free);
	u64 wants = wants_all, allowed, is_using;

	p->lead.wants_all = lull_choose(leads, wants, p->lead.wants_all);
	is_large &= (is_alike & lull_delay_is_shallow(&p->delay)) | (p->lead.wants_all ^ 1);
	is_large &= lull_is_least(now_us, m->next_pair);
	is_using = (leads | is_large) & lull_is_nonzero(p->phase ^ LULL_FLOOR);
	m->is_using = is_using;
	m->is_train = leads & lull_is_nonzero(p->fair_queueing.packets);
	m->is_trial = leads & p->longer_path.is_trial;
	m->has_room = lull_is_least(lull_path_full_window(p), window + window / LULL_MORE_PART) |
		      (lull_delay_is_shallow(&p->delay) ^ 1);
	free = lull_choose(lull_is_least(free, LULL_TWO), free, LULL_TWO);
	m->window = lull_choose(is_using, free, LULL_ONE);
	allowed = m->window >> LULL_SHIFT;
	allowed = lull_choose(lull_is_least(allowed, in_flight), allowed, in_flight);
	lull_set_in_flight(p, m, lull_choose(is_using & wants, allowed, in_flight));
}

static LULL_INLINE bool lull_is_maybe_delayed(const struct lull_path *p,
					      const struct lull_member *m, const struct ack *a,
					      u32 rtt)
{
	bool stands_out = m->last_rtt && rtt >= m->last_rtt + LULL_RECEIVER_DELAY_US;
	bool is_few = a->acked == 1 || p->longer_path.holds_back;

	return a->maybe_delayed || a->in_flight <= 1 || (is_few && stands_out);
}

static LULL_INLINE void lull_set_low(const struct lull_path *p, struct lull_member *m, u32 rtt)
{
	m->low = rtt;
	m->low_is_small = p->delay.is_of_small;
}

static LULL_INLINE void lull_on_quarter(struct lull_path *p, struct lull_member *m,
					const struct ack *a, u64 now_us, u32 rtt)
{
	if (!m->quarter_samples) {
		m->quarter_start = now_us;
		m->quarter_low = rtt;
	}
	m->quarter_low = lull_min(m->quarter_low, rtt);
	m->quarter_samples++;
	if (m->quarter_samples < LULL_QUARTER_SAMPLES ||
	    now_us < m->quarter_start + lull_path_min_rtt(p) / 4)
		return;
	m->quarter_samples = 0;
	if (lull_leads(p, m) && lull_path_on_quarter(p, now_us, m->quarter_low))
		lull_restart_round(m, a->delivered);
}

/* Whether the pairs of others meet the queue of a pair as well. A receiver may hold back pairs only. */
static LULL_INLINE void lull_compare_with_others(struct lull_path *p, struct lull_member *m,
						 u64 now_us, u32 rtt)
{
	u64 queue = lull_delay_queue(&p->delay, rtt);
	u64 is_empty = lull_is_least(lull_path_noise_margin(p), queue);
	u64 is_others = lull_is_nonzero(p->empty_by ^ m->number);
	u64 fits = lull_delay_is_shallow(&p->delay) &
		   lull_is_least(lull_delay_full_queue(&p->delay), queue);
	u64 is_pair = (is_empty ^ 1) & (m->is_using ^ 1) & (fits ^ 1);
	u64 most = lull_most_of(queue / LULL_APART_VARYING_PART,
				LULL_APART_VARIATION_US + lull_delay_noise(&p->delay));
	u64 counts, is_other, pairs;

	counts = is_pair & lull_is_nonzero(m->apart_last) & is_others &
		 lull_is_least(p->empty_at, m->apart_last + 1) &
		 lull_is_least(p->empty_at + LULL_APART_RECENT_US, now_us);
	is_other = lull_is_least(most, lull_difference(rtt, m->apart_first)) ^ 1;
	is_other = counts & (is_other | (lull_is_nonzero(m->apart_pairs) ^ 1));
	m->apart_since = lull_choose(is_other, now_us, m->apart_since);
	m->apart_first = lull_choose(is_other, rtt, m->apart_first);
	pairs = lull_least_of(lull_choose(is_other, 0, m->apart_pairs) + 1, LULL_APART_PAIRS);
	m->apart_pairs = lull_choose(counts, pairs, m->apart_pairs);
	m->is_apart |= is_pair & lull_is_least(m->apart_pairs, LULL_APART_PAIRS) &
		       lull_is_least(now_us, m->apart_since + LULL_APART_US);
	m->apart_last = lull_choose(is_empty | is_pair, now_us, m->apart_last);
	m->apart_since = lull_choose(is_empty, 0, m->apart_since);
	m->apart_first = lull_choose(is_empty, 0, m->apart_first);
	m->apart_pairs = lull_choose(is_empty, 0, m->apart_pairs);
	is_empty &= m->is_using ^ 1;
	p->empty_at = lull_choose(is_empty, now_us, p->empty_at);
	p->empty_by = lull_choose(is_empty, m->number, p->empty_by);
}

static LULL_INLINE void lull_on_rtt(struct lull_path *p, struct lull_member *m,
				    const struct ack *a, u64 now_us, u32 rtt)
{
	bool is_maybe_delayed = lull_is_maybe_delayed(p, m, a, rtt);

	m->last_rtt = rtt;
	m->high = lull_max(m->high, rtt);
	rtt = lull_delay_adjust(&p->delay, rtt, a->is_small);
	if (!lull_path_min_rtt(p)) {
		m->low = 0;
		lull_delay_record(&p->delay, now_us, rtt);
	}
	LULL_FORGET();
	if (!is_maybe_delayed) {
		lull_path_on_exact_sample(p, now_us, rtt);
		LULL_FORGET();
		lull_compare_with_others(p, m, now_us, rtt);
	} else if (rtt > lull_path_min_rtt(p) + lull_path_noise_margin(p)) {
		return;
	}
	m->highest = lull_max(m->highest, rtt);
	if (!m->low || rtt < m->low)
		lull_set_low(p, m, rtt);
	LULL_FORGET();
	lull_on_quarter(p, m, a, now_us, rtt);
	LULL_FORGET();
	if (lull_path_on_sample(p, now_us, rtt)) {
		lull_path_set_leader(p, now_us, p->members == 1 ? m->number : 0, m->weight);
		lull_restart_round(m, a->delivered);
	}
}

static LULL_INLINE void lull_end_round(struct lull_path *p, struct lull_member *m,
				       const struct ack *a, u64 now_us, u32 highest,
				       bool leads)
{
	if (!a->acked || (s32)(a->prior_delivered - m->round_end) < 0)
		return;
	m->round_end = a->delivered;
	if (leads && m->low && (!m->low_is_small || p->delay.is_of_small))
		lull_path_end_round(p, now_us, m->low, highest, m->unlimited);
	lull_clear_round(m);
}

static LULL_INLINE void lull_on_ack(struct lull_path *p, struct lull_member *m,
				    const struct ack *a)
{
	u32 left = lull_less(a->in_flight, (u64)a->acked + a->lost);
	bool may_lead = p->members == 1 || p->phase == LULL_START;
	u64 now_us = lull_path_advance(p, a->now_us);
	u32 highest;
	bool leads;

	lull_set_in_flight(p, m, left);
	if (!p->lead.leader && may_lead)
		lull_take_lead(p, m, now_us, a->delivered);
	leads = lull_leads(p, m);
	if (leads)
		p->lead.seen = now_us;
	if (!m->started) {
		m->round_end = a->delivered - a->acked;
		m->loss_end = m->round_end;
		m->started = 1;
	}
	LULL_FORGET();
	highest = m->highest;
	if (a->rtt_us)
		lull_on_rtt(p, m, a, now_us, lull_min(a->rtt_us, LULL_RTT_LIMIT));
	LULL_FORGET();
	m->unlimited |= a->acked && (!a->app_limited || lull_path_is_used_up_by(p, left));
	lull_capacity_deliver(&p->capacity, a->acked);
	LULL_FORGET();
	if (a->lost && lull_is_new_loss(m, a->prior_delivered)) {
		lull_path_on_loss(p, now_us, lull_rtt_at_loss(m));
		lull_restart_round(m, a->delivered);
	}
	LULL_FORGET();
	lull_end_round(p, m, a, now_us, highest, leads);
	LULL_FORGET();

	lull_update(p, m, now_us, left, !a->app_limited);
}

/* A loss without an acknowledgement, or a mark. */
static LULL_INLINE void lull_on_loss(struct lull_path *p, struct lull_member *m, u64 now_us,
				     u32 delivered)
{
	now_us = lull_path_advance(p, now_us);
	if (lull_is_new_loss(m, delivered)) {
		lull_path_on_loss(p, now_us, lull_rtt_at_loss(m));
		lull_restart_round(m, delivered);
	}
	lull_update(p, m, now_us, m->in_flight, true);
}

static LULL_INLINE void lull_on_timeout(struct lull_path *p, struct lull_member *m, u64 now_us,
					u32 delivered)
{
	now_us = lull_path_advance(p, now_us);
	if (lull_leads(p, m))
		lull_path_on_timeout(p, now_us);
	lull_set_in_flight(p, m, 0);
	lull_restart_round(m, delivered);
	lull_update(p, m, now_us, 0, false);
}

/* The connection has data, nothing in flight, and no pause before it: what it sends now, it sends
 * with the window that this leaves. */
static LULL_INLINE void lull_on_send(struct lull_path *p, struct lull_member *m, u64 now_us,
				     u32 delivered)
{
	now_us = lull_path_advance(p, now_us);
	if (!m->last_rtt) {
		lull_set_in_flight(p, m, LULL_PAIR);
		return;
	}
	if (!lull_path_is_at_floor(p) && !lull_leads(p, m) && lull_path_is_lead_free(p, now_us))
		lull_take_lead(p, m, now_us, delivered);
	lull_update(p, m, now_us, LULL_PAIR, true);
	if (!m->is_using && now_us >= m->next_pair) {
		m->next_pair = lull_path_next_slot(p, now_us);
		m->pause = m->next_pair - now_us;
	}
}

/* At a receiver, which cannot see when its sender is about to send: another packet may be allowed.
 * Returns whether that is a new pair. */
static LULL_INLINE bool lull_on_turn(struct lull_path *p, struct lull_member *m, u64 now_us,
				     u32 delivered)
{
	now_us = lull_path_advance(p, now_us);
	if (!m->last_rtt)
		return true;
	if (!lull_path_is_at_floor(p) && !lull_leads(p, m) && lull_path_is_lead_free(p, now_us))
		lull_take_lead(p, m, now_us, delivered);
	LULL_FORGET();
	if (now_us < m->next_pair)
		return false;
	m->next_pair = lull_path_next_slot(p, now_us);
	m->pause = m->next_pair - now_us;
	return true;
}

/* What the transport may have in flight: whole packets, and never less than one pair, which the
 * pacing rate spreads. The next pair waits for the last one. */
static LULL_INLINE u32 lull_cwnd(const struct lull_member *m, u32 in_flight)
{
	if (m->window >= LULL_TWO)
		return (u32)(m->window >> LULL_SHIFT);
	return in_flight ? in_flight : LULL_PAIR;
}

/* Bytes per second: a pair in each pause, a sixteenth more than the window needs, or a train at once;
 * 0: unpaced. */
static LULL_INLINE u64 lull_pacing_rate(const struct lull_member *m, u32 srtt_us, u32 mss)
{
	u64 spacing = lull_choose(m->is_trial, LULL_TRIAL_SPACING_US, LULL_MAX_SPACING_US);
	u64 rate;

	if (!srtt_us)
		return 0;
	if (!m->is_using)
		return lull_max(1000000ULL * LULL_PAIR * mss / lull_max(m->pause, 1), 1);
	rate = ((m->window * mss) >> LULL_SHIFT) * 1000000 /
	       lull_min(srtt_us, lull_max(m->last_rtt, 1));
	rate += lull_choose(m->has_room, rate / LULL_MORE_PART, 0);
	rate = lull_max(rate, mss * 1000000ULL / spacing);
	return lull_choose(m->is_train, LULL_TRAIN_RATE, rate);
}

/* Packets of a burst. Before the first pair, what is in flight has to arrive. */
static LULL_INLINE u32 lull_burst(const struct lull_member *m)
{
	return m->is_using || !m->pause ? 1 : LULL_PAIR;
}

/* From the first packet of a pair to the second, in microseconds; 0 where it sends no pairs. */
static LULL_INLINE u32 lull_spacing(const struct lull_member *m)
{
	return m->is_using ? 0 : lull_pair_spacing(m->last_rtt);
}

#endif
