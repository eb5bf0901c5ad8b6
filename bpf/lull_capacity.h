/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What a path delivers: the mirror of crates/cc/src/lull/capacity.rs, the reference, which says why
 * each rule is there.
 */
#ifndef LULL_LULL_CAPACITY_H
#define LULL_LULL_CAPACITY_H

#include "lull_arithmetic.h"
#include "lull_types.h"

#define LULL_RATE_SHIFT 8
#define LULL_PACKETS_LIMIT (1ULL << 28)
#define LULL_RATE_LIMIT (1ULL << 38)
#define LULL_PEAK_ROUNDS 4
#define LULL_PEAK_US 100000ULL
#define LULL_RATE_MEMORY_US 60000000ULL

static LULL_INLINE void lull_count_add(struct lull_count *c, const struct lull_count *other)
{
	c->packets += other->packets;
	c->micros += other->micros;
}

static LULL_INLINE u64 lull_count_rate(const struct lull_count *c)
{
	u64 packets = lull_min(c->packets, LULL_PACKETS_LIMIT);
	u64 rate = ((packets * 1000000) << LULL_RATE_SHIFT) / lull_max(c->micros, 1);

	return lull_min(rate, LULL_RATE_LIMIT);
}

static LULL_INLINE void lull_capacity_deliver(struct lull_capacity *c, u32 packets)
{
	c->packets += packets;
}

static LULL_INLINE void lull_capacity_restart(struct lull_capacity *c)
{
	c->round_start = 0;
}

/* Others have what the path carries. */
static LULL_INLINE void lull_capacity_stop(struct lull_capacity *c)
{
	c->current = 0;
	lull_capacity_restart(c);
}

/* Packets of two paths arrive together until then. */
static LULL_INLINE void lull_capacity_ignore_until(struct lull_capacity *c, u64 time_us)
{
	c->ignored_until = time_us;
	lull_capacity_restart(c);
}

static LULL_INLINE void lull_capacity_update_peak(struct lull_capacity *c)
{
	if (c->longer_rounds < LULL_PEAK_ROUNDS || c->longer.micros < LULL_PEAK_US)
		return;
	if (c->used_us >= LULL_RATE_MEMORY_US) {
		c->used_us = 0;
		c->peak_before = c->peak;
		c->peak = 0;
	}
	c->peak = lull_max(c->peak, lull_count_rate(&c->longer));
	c->longer.packets = 0;
	c->longer.micros = 0;
	c->longer_rounds = 0;
}

/* What the round has delivered that ends now; nothing where it was not measured. */
static LULL_INLINE struct lull_count lull_capacity_round(const struct lull_capacity *c, u64 now_us)
{
	struct lull_count round = {};

	if (c->round_start) {
		round.packets = c->packets;
		round.micros = lull_less(now_us, c->round_start);
	}
	return round;
}

static LULL_INLINE void lull_capacity_measure(struct lull_capacity *c, u64 now_us, u64 shortest,
					      bool is_first)
{
	struct lull_count round = lull_capacity_round(c, now_us);
	struct lull_count both;

	lull_count_add(&c->measured, &round);
	lull_count_add(&c->longer, &round);
	c->longer_rounds++;
	c->used_us += round.micros;
	if (c->measured.micros >= shortest) {
		both = c->measured;
		lull_count_add(&both, &c->last);
		c->current = lull_count_rate(&both);
		c->last = c->measured;
		c->measured.packets = 0;
		c->measured.micros = 0;
	}
	if (is_first)
		c->peak = lull_max(c->peak, c->current);
	lull_capacity_update_peak(c);
}

static LULL_INLINE void lull_capacity_end_round(struct lull_capacity *c, u64 now_us, u64 shortest,
						bool is_first)
{
	if (now_us < c->ignored_until)
		return;
	if (c->round_start) {
		lull_capacity_measure(c, now_us, shortest, is_first);
	} else {
		__builtin_memset(&c->last, 0, sizeof(c->last));
		__builtin_memset(&c->measured, 0, sizeof(c->measured));
		__builtin_memset(&c->longer, 0, sizeof(c->longer));
		c->longer_rounds = 0;
	}
	c->round_start = now_us;
	c->packets = 0;
}

static LULL_INLINE u64 lull_capacity_peak(const struct lull_capacity *c)
{
	return lull_max(c->peak, c->peak_before);
}

/* The background itself has filled the path at this rate. */
static LULL_INLINE void lull_capacity_confirm(struct lull_capacity *c)
{
	c->confirmed = lull_capacity_peak(c);
}

static LULL_INLINE void lull_capacity_doubt(struct lull_capacity *c)
{
	c->confirmed = 0;
}

static LULL_INLINE bool lull_capacity_is_confirmed(const struct lull_capacity *c)
{
	return lull_capacity_peak(c) * 8 <= c->confirmed * 9;
}

static LULL_INLINE bool lull_capacity_is_reached(const struct lull_capacity *c)
{
	return c->current * 10 >= lull_capacity_peak(c) * 9;
}

static LULL_INLINE u64 lull_capacity_packet_us(const struct lull_capacity *c)
{
	u64 peak = lull_capacity_peak(c);

	return peak ? (1000000ULL << LULL_RATE_SHIFT) / peak : 0;
}

static LULL_INLINE u64 lull_capacity_likely_packet_us(const struct lull_capacity *c)
{
	u64 is_known = lull_is_least(c->confirmed * 9, lull_capacity_peak(c) * 8);

	return lull_capacity_packet_us(c) >> (is_known ^ 1);
}

static LULL_INLINE u64 lull_window_of(u64 rate, u32 min_rtt)
{
	u64 packets = rate * min_rtt / 1000000;

	return lull_min(packets, LULL_WINDOW_LIMIT >> (LULL_SHIFT - LULL_RATE_SHIFT))
	       << (LULL_SHIFT - LULL_RATE_SHIFT);
}

static LULL_INLINE u64 lull_capacity_window(const struct lull_capacity *c, u32 min_rtt)
{
	return lull_window_of(lull_capacity_peak(c), min_rtt);
}

static LULL_INLINE u64 lull_capacity_current_window(const struct lull_capacity *c, u32 min_rtt)
{
	return lull_window_of(c->current, min_rtt);
}

static LULL_INLINE u64 lull_capacity_packets_per_second(const struct lull_capacity *c)
{
	return lull_capacity_peak(c) >> LULL_RATE_SHIFT;
}

#endif
