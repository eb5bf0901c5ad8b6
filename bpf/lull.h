/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The algorithm that the flows of a path share, in plain C: a stand-in until the mirror of
 * lull_cc's controller replaces it. crates/kernel/tests/it/shared_state.rs holds it equal to its
 * Rust, bit for bit.
 *
 * No kernel call, no clock, no memory of its own, so that all of it may run under the spin lock of
 * the path. No loop whose turns branch on data either: the verifier follows every path through
 * them, and bpf_loop is refused under a lock (docs/adr/0016). The includer provides u32, s32, u64,
 * bool and LULL_INLINE.
 */
#ifndef LULL_LULL_H
#define LULL_LULL_H

#include "lull_types.h"

/* A leader that was not heard of for so long, and for four round trips, has stopped. */
#define LULL_STALE_US 200000ULL
/* Flows that do not lead send a pair each. */
#define LULL_PAUSE_PER_MEMBER_US 50000U
#define LULL_SHORTEST_PAUSE_US 100000U
#define LULL_LONGEST_PAUSE_US 2000000U
/* Queueing delay that never counts. */
#define LULL_TOLERANCE_US 1000U

static LULL_INLINE void lull_path_init(struct lull_path *p)
{
	__builtin_memset(p, 0, sizeof(*p));
	p->window = LULL_TWO;
}

static LULL_INLINE bool lull_leads(const struct lull_path *p, const struct lull_member *m)
{
	return m->number && p->leader == m->number;
}

/* What the flow may do until its next event. */
static LULL_INLINE void lull_settle(const struct lull_path *p, struct lull_member *m)
{
	u64 pause = (u64)p->members * LULL_PAUSE_PER_MEMBER_US;

	m->window = lull_leads(p, m) ? p->window : LULL_ONE;
	if (pause < LULL_SHORTEST_PAUSE_US)
		pause = LULL_SHORTEST_PAUSE_US;
	m->pause_us = pause > LULL_LONGEST_PAUSE_US ? LULL_LONGEST_PAUSE_US : (u32)pause;
}

/* Leads if nobody does. What was in flight before says nothing of the new window. */
static LULL_INLINE void lull_take_lead(struct lull_path *p, struct lull_member *m, u64 now_us,
				       u32 delivered)
{
	u64 stale = 4ULL * p->base_rtt_us;

	if (stale < LULL_STALE_US)
		stale = LULL_STALE_US;
	if (p->leader == m->number || (p->leader && now_us < p->leader_seen_us + stale))
		return;
	p->leader = m->number;
	p->leader_seen_us = now_us;
	p->changed_us = now_us;
	m->cut_end = delivered;
}

static LULL_INLINE void lull_give_up_lead(struct lull_path *p, const struct lull_member *m)
{
	if (lull_leads(p, m))
		p->leader = 0;
}

static LULL_INLINE void lull_join(struct lull_path *p, struct lull_member *m)
{
	__builtin_memset(m, 0, sizeof(*m));
	p->members++;
	p->last_member++;
	/* Zero is nobody. */
	p->last_member += !p->last_member;
	m->number = p->last_member;
	lull_settle(p, m);
}

static LULL_INLINE void lull_leave(struct lull_path *p, struct lull_member *m)
{
	lull_give_up_lead(p, m);
	p->members -= !!p->members;
	m->number = 0;
}

/* Sets the leader's window, once for what was in flight. */
static LULL_INLINE void lull_cut(struct lull_path *p, struct lull_member *m, u64 window, u64 now_us,
				 u32 delivered)
{
	p->window = window < LULL_TWO ? LULL_TWO : window;
	p->changed_us = now_us;
	m->cut_end = delivered;
}

static LULL_INLINE void lull_on_loss(struct lull_path *p, struct lull_member *m, u64 now_us,
				     u32 delivered, u32 prior_delivered)
{
	if (lull_leads(p, m) && (s32)(prior_delivered - m->cut_end) >= 0)
		lull_cut(p, m, p->window / 2, now_us, delivered);
	lull_settle(p, m);
}

static LULL_INLINE void lull_on_mark(struct lull_path *p, struct lull_member *m, u64 now_us,
				     u32 delivered)
{
	lull_on_loss(p, m, now_us, delivered, delivered);
}

static LULL_INLINE void lull_on_timeout(struct lull_path *p, struct lull_member *m, u64 now_us,
					u32 delivered)
{
	if (lull_leads(p, m))
		lull_cut(p, m, LULL_TWO, now_us, delivered);
	lull_give_up_lead(p, m);
	lull_settle(p, m);
}

/* What the host's foreground does, before each other event. A new connection is met by a small
 * window. */
static LULL_INLINE void lull_on_foreground(struct lull_path *p, u64 now_us,
					   const struct lull_foreground *f)
{
	if (f->connected_us != p->foreground.connected_us) {
		p->window = p->window / 4 > LULL_TWO ? p->window / 4 : LULL_TWO;
		p->changed_us = now_us;
	}
	p->foreground = *f;
}

/* The flow was silent for more than a retransmission timeout. */
static LULL_INLINE void lull_on_idle(struct lull_path *p, struct lull_member *m)
{
	lull_give_up_lead(p, m);
	lull_settle(p, m);
}

/* The flow has something to send, and its pace allows it now. What it sends, it sends with the window
 * that this leaves. */
static LULL_INLINE void lull_on_send(struct lull_path *p, struct lull_member *m, u64 now_us,
				     u32 delivered, u32 in_flight)
{
	if (!in_flight)
		lull_take_lead(p, m, now_us, delivered);
	lull_settle(p, m);
}

static LULL_INLINE void lull_measure(struct lull_path *p, struct lull_member *m,
				     const struct lull_ack *a)
{
	u32 packets = a->delivered - a->prior_delivered;
	u32 rtt = a->rtt_us < LULL_RTT_LIMIT ? a->rtt_us : LULL_RTT_LIMIT;
	u64 rate;

	if (rtt) {
		m->rtt_us = rtt;
		if (!p->base_rtt_us || rtt < p->base_rtt_us)
			p->base_rtt_us = rtt;
	}
	if (a->interval_us) {
		rate = packets * 1000000ULL / a->interval_us;
		if (rate > p->rate)
			p->rate = rate;
	}
}

static LULL_INLINE void lull_on_ack(struct lull_path *p, struct lull_member *m,
				    const struct lull_ack *a)
{
	lull_measure(p, m, a);
	lull_take_lead(p, m, a->now_us, a->delivered);
	if (!lull_leads(p, m)) {
		lull_settle(p, m);
		return;
	}
	p->leader_seen_us = a->now_us;
	if (a->lost) {
		lull_on_loss(p, m, a->now_us, a->delivered, a->prior_delivered);
	} else if (a->rtt_us && m->rtt_us - p->base_rtt_us > p->base_rtt_us / 4 + LULL_TOLERANCE_US) {
		if ((s32)(a->prior_delivered - m->cut_end) >= 0)
			lull_cut(p, m, p->window - p->window / 8, a->now_us, a->delivered);
	} else if (!a->app_limited) {
		p->window += (u64)a->acked << (LULL_SHIFT - 1);
		if (p->window > LULL_WINDOW_LIMIT)
			p->window = LULL_WINDOW_LIMIT;
	} else if (a->in_flight <= a->acked) {
		/* It has nothing more to send: another flow may lead. */
		lull_give_up_lead(p, m);
	}
	lull_settle(p, m);
}

/* What the transport may have in flight: whole packets, and never less than one pair, which the
 * pacing rate spreads. The next pair waits for the last one. */
static LULL_INLINE u32 lull_cwnd(const struct lull_member *m, u32 in_flight)
{
	if (m->window >= LULL_TWO)
		return (u32)(m->window >> LULL_SHIFT);
	return in_flight ? in_flight : 2;
}

/* Bytes per second: a pair in each pause, or a quarter more than the window needs; 0: unpaced. */
static LULL_INLINE u64 lull_pacing_rate(const struct lull_member *m, u32 srtt_us, u32 mss)
{
	u64 rate;

	if (!srtt_us)
		return 0;
	if (m->window < LULL_TWO)
		rate = 2ULL * mss * 1000000 / m->pause_us;
	else
		rate = (m->window >> LULL_SHIFT) * mss * 1250000 / srtt_us;
	return rate ? rate : 1;
}

/* From the first packet of a pair to the second, in microseconds. */
static LULL_INLINE u32 lull_spacing(const struct lull_member *m)
{
	return m->rtt_us / 4 < 20000 ? m->rtt_us / 4 : 20000;
}

#endif
