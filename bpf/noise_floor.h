/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The noise floor of a path: the mirror of crates/cc/src/noise_floor.rs, the reference, which
 * explains each rule. The includer provides u32, u64, bool and NICE_INLINE.
 */
#ifndef LULL_NOISE_FLOOR_H
#define LULL_NOISE_FLOOR_H

#include "noise_floor_types.h"

#define NOISE_MIN_LAG_US 10000
#define NOISE_MAX_LAG_US 25000
#define NOISE_FIRST_MAX_LAG_US 2000000
#define NOISE_FIRST_COMPARISONS 64
#define NOISE_LARGE_STEPS 16
#define NOISE_MAX_STEPS 8
#define NOISE_BLOCK 8
#define NOISE_MIN_US 500
#define NOISE_LOSS_QUEUE_PART 16
#define NOISE_TRUSTED_PACKETS 4096
#define NOISE_TRUSTED_US 120000000ULL
#define NOISE_SHIFT 4
/* No block without a queue has ended. */
#define NOISE_UNKNOWN 0xffffffffU

static NICE_INLINE u64 noise_since(u64 later, u64 earlier)
{
	return later > earlier ? later - earlier : 0;
}

static NICE_INLINE u32 noise_above(u32 rtt, u32 min_rtt)
{
	return rtt > min_rtt ? rtt - min_rtt : 0;
}

static NICE_INLINE u32 noise_at_least(u32 delay, u32 least)
{
	return delay > least ? delay : least;
}

/* How far above the lowest round-trip time a sample may be without a queue. */
static NICE_INLINE u32 noise_floor_us(const struct noise_floor *f)
{
	bool trusted = !f->has_lost || f->delivered >= NOISE_TRUSTED_PACKETS ||
		       noise_since(f->reference_at_us, f->lost_at_us) >= NOISE_TRUSTED_US;

	u32 noise = trusted || f->noise < f->limit ? f->noise : f->limit;

	return noise >= 2 * NOISE_MIN_US ? noise : 0;
}

/* A loss, a mark or a timeout, while round-trip times were this far above the lowest. */
static NICE_INLINE void noise_floor_on_loss(struct noise_floor *f, u32 queue_us)
{
	f->limit = queue_us / NOISE_LOSS_QUEUE_PART;
	f->has_lost = 1;
	f->lost_at_us = f->reference_at_us;
	f->delivered = 0;
}

static NICE_INLINE void noise_floor_on_delivery(struct noise_floor *f, u32 packets)
{
	u64 delivered = (u64)f->delivered + packets;

	f->delivered = delivered < NOISE_TRUSTED_PACKETS ? (u32)delivered : NOISE_TRUSTED_PACKETS;
}

static NICE_INLINE void noise_floor_extend(struct noise_floor *f, u32 rtt)
{
	if (rtt < f->low)
		f->low = rtt;
	if (rtt > f->high)
		f->high = rtt;
}

/* Moves the deviation towards the median of all differences. */
static NICE_INLINE void noise_floor_compare(struct noise_floor *f, u32 difference)
{
	u32 part = 4, least = 4 << NOISE_SHIFT, step;

	if (f->compared < NOISE_MAX_STEPS) {
		part = 1;
		least = 1000 << NOISE_SHIFT;
	} else if (f->compared < NOISE_LARGE_STEPS) {
		part = 2;
	}
	step = (f->deviation >> part) + least;
	if (difference > f->deviation)
		f->deviation += step;
	else
		f->deviation = f->deviation > step ? f->deviation - step : 0;
	if (f->compared < NOISE_FIRST_COMPARISONS)
		f->compared++;
}

static NICE_INLINE u32 noise_floor_add_to_block(struct noise_floor *f, u32 rtt, u32 min_rtt)
{
	u32 deviation = f->deviation >> NOISE_SHIFT;
	bool low, bounded;

	if (!f->count) {
		f->low = rtt;
		f->high = rtt;
	}
	noise_floor_extend(f, rtt);
	f->count++;
	if (f->count < NOISE_BLOCK)
		return NOISE_UNKNOWN;
	f->count = 0;
	low = noise_above(f->low, min_rtt) <= noise_at_least(deviation * 3 / 2, NOISE_MIN_US);
	bounded = noise_above(f->high, min_rtt) <= noise_at_least(deviation * 10, NOISE_MIN_US);
	if (bounded && low) {
		f->noise = deviation * 7 / 2;
		return f->noise;
	}
	f->noise -= f->noise / (bounded ? 8 : 2);
	return NOISE_UNKNOWN;
}

/* A round-trip time below 2^24 us that no receiver has delayed. Returns how far jitter raises
 * round-trip times at the end of a block without a queue, and otherwise NOISE_UNKNOWN. */
static NICE_INLINE u32 noise_floor_on_sample(struct noise_floor *f, u64 now_us, u32 rtt,
					     u32 min_rtt)
{
	u64 lag = noise_since(now_us, f->reference_at_us);
	u64 longest = f->compared < NOISE_FIRST_COMPARISONS ? NOISE_FIRST_MAX_LAG_US :
							      NOISE_MAX_LAG_US;
	u32 before = f->reference_rtt, learned = NOISE_UNKNOWN;

	if (before && lag < NOISE_MIN_LAG_US) {
		noise_floor_extend(f, rtt);
		return NOISE_UNKNOWN;
	}
	if (before && lag <= longest) {
		noise_floor_compare(f, (rtt > before ? rtt - before : before - rtt) << NOISE_SHIFT);
		learned = noise_floor_add_to_block(f, rtt, min_rtt);
	}
	f->reference_at_us = now_us;
	f->reference_rtt = rtt;
	return learned;
}

#endif
