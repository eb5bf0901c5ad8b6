/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * TCP-Background and the LowPri families in plain C: the mirror of crates/cc/src/filler, the
 * reference.
 *
 * No kernel call, no clock, no memory of its own. The includer provides u32, s32, u64, bool and
 * BACKGROUND_INLINE. Windows are packets in fixed point with 16 fractional bits. The conformance
 * test feeds this file and the Rust the same events; every field must be equal.
 *
 * Sections and tables are of Ott, Warnky, Liberatore: Congestion control for low-priority filler
 * traffic. docs/algorithm-filler.md lists what it leaves open.
 */
#ifndef LULL_BACKGROUND_H
#define LULL_BACKGROUND_H

#include "background_types.h"
#include "fixed.h"

static BACKGROUND_INLINE u64 background_min(u64 a, u64 b)
{
	return a < b ? a : b;
}

static BACKGROUND_INLINE u64 background_less(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

static BACKGROUND_INLINE void background_init(struct background *b, u64 window, u64 ssthresh)
{
	__builtin_memset(b, 0, sizeof(*b));
	b->window = background_min(window, BACKGROUND_WINDOW_LIMIT);
	b->ssthresh = ssthresh;
	b->phase = window < ssthresh ? BACKGROUND_SLOW_START : BACKGROUND_AVOIDANCE;
}

/* A reaction closes the round. */
static BACKGROUND_INLINE void background_close_round(struct background *b, u32 delivered)
{
	b->round_end = delivered;
	b->loss_end = delivered;
	b->started = 1;
	b->reacted = 1;
}

/* 3.1 to 3.5. The paper has no floor. Here it is two packets, as in RFC 5681 3.1 for Reno. A drop
 * does not raise a window that a timeout left below that. */
static BACKGROUND_INLINE u64 background_decreased(const struct background_params *p, u64 window,
						  u64 power)
{
	u64 decreased;

	switch (p->decrease) {
	case BACKGROUND_LINEAR:
		decreased = background_less(window, p->amount * BACKGROUND_ONE);
		break;
	case BACKGROUND_LESS_POWER:
		decreased = window - power;
		break;
	case BACKGROUND_MULTIPLICATIVE:
		decreased = window * p->amount / 100;
		break;
	case BACKGROUND_POWER:
		decreased = power;
		break;
	default:
		decreased = background_less(window, p->amount * fixed_ln(window));
		break;
	}
	if (decreased < BACKGROUND_TWO)
		decreased = BACKGROUND_TWO;
	return background_min(decreased, window);
}

static BACKGROUND_INLINE void background_drop(const struct background_params *p,
					      struct background *b, u32 delivered)
{
	u64 before = b->window;
	u64 limit = 0;
	u64 power = 0;

	if (p->decrease == BACKGROUND_LESS_POWER || p->decrease == BACKGROUND_POWER)
		power = fixed_power(before, p->amount);
	b->window = background_decreased(p, before, power);
	b->ssthresh = b->window;
	b->phase = BACKGROUND_AVOIDANCE;
	if (p->limit == BACKGROUND_LIMIT_LINEAR)
		limit = background_less(before, p->limit_amount * BACKGROUND_ONE);
	else if (p->limit == BACKGROUND_LIMIT_POWER)
		limit = fixed_power(before, p->limit_amount);
	/* 3.6. A power grows slower than a share: 0.75 cwnd is above cwnd^0.95 from 316 packets.
	 * There the window is already at or beyond the end of the slow start. */
	if (limit > b->window) {
		b->ssthresh = limit;
		b->phase = BACKGROUND_REGROWTH;
	}
	background_close_round(b, delivered);
}

/* A loss found without an acknowledgement, or entry into recovery, of a packet that was sent at the
 * count `prior_delivered`: once for a window of data. */
static BACKGROUND_INLINE void background_on_loss(const struct background_params *p,
						 struct background *b, u32 delivered,
						 u32 prior_delivered)
{
	if (!b->started || (s32)(prior_delivered - b->loss_end) >= 0)
		background_drop(p, b, delivered);
}

/* Algorithm 1: slow start from one packet. */
static BACKGROUND_INLINE void background_on_timeout(const struct background_params *p,
						    struct background *b, u32 delivered)
{
	/* The start of a connection has no threshold to hold. */
	bool held = b->phase != BACKGROUND_AVOIDANCE && b->ssthresh != BACKGROUND_NO_THRESHOLD;
	u64 ssthresh = b->window / 2;

	if (p->hold)
		ssthresh = held ? b->ssthresh : fixed_power(b->window, p->hold);
	b->ssthresh = ssthresh < BACKGROUND_TWO ? BACKGROUND_TWO : ssthresh;
	b->window = BACKGROUND_ONE;
	b->phase = BACKGROUND_SLOW_START;
	background_close_round(b, delivered);
	/* Packets acknowledged from here on were retransmitted after the timeout. */
	b->reacted = 0;
}

/* RFC 5681 4.1: after a pause at most the initial window. */
static BACKGROUND_INLINE void background_on_idle(struct background *b)
{
	b->window = background_min(b->window, BACKGROUND_INITIAL_WINDOW);
	if (b->phase == BACKGROUND_AVOIDANCE && b->window < b->ssthresh)
		b->phase = BACKGROUND_SLOW_START;
}

static BACKGROUND_INLINE void background_on_ack(const struct background_params *p,
						struct background *b,
						const struct background_ack *a)
{
	u64 factor = 0;

	if (!b->started) {
		b->started = 1;
		b->round_end = a->delivered - a->acked;
		b->loss_end = b->round_end;
	}
	/* An acknowledgement of no new packets does not show what limited the sender. */
	if (a->acked && !a->app_limited)
		b->unlimited = 1;
	if (a->lost && (s32)(a->prior_delivered - b->loss_end) >= 0)
		background_drop(p, b, a->delivered);
	if (!b->reacted && !a->app_limited) {
		if (b->phase == BACKGROUND_SLOW_START)
			factor = 100;
		else if (b->phase == BACKGROUND_REGROWTH)
			factor = p->factor;
	}
	if (factor) {
		b->window += a->acked * factor * BACKGROUND_ONE / 100;
		/* The slow start after a drop stops at its limit; the first one with the
		 * acknowledgement that exceeds the threshold. */
		if (b->phase != BACKGROUND_SLOW_START)
			b->window = background_min(b->window, b->ssthresh);
		b->window = background_min(b->window, BACKGROUND_WINDOW_LIMIT);
	}
	if (a->acked && (s32)(a->prior_delivered - b->round_end) >= 0) {
		b->round_end = a->delivered;
		if (b->phase == BACKGROUND_AVOIDANCE && !b->reacted && b->unlimited)
			b->window = background_min(b->window + BACKGROUND_ONE,
						   BACKGROUND_WINDOW_LIMIT);
		b->reacted = 0;
		b->unlimited = 0;
	}
	if (b->window >= b->ssthresh)
		b->phase = BACKGROUND_AVOIDANCE;
}

/* The whole packets that the transport may have in flight. */
static BACKGROUND_INLINE u32 background_cwnd(const struct background *b)
{
	return (u32)(b->window >> FIXED_SHIFT);
}

#endif
