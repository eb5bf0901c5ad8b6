/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The information in the round-trip times of a path: the mirror of crates/cc/src/lull/delay.rs, the reference,
 * which says why each rule is there.
 */
#ifndef LULL_LULL_DELAY_H
#define LULL_LULL_DELAY_H

#include "lull_arithmetic.h"
#include "lull_jitter.h"
#include "lull_types.h"

#define LULL_LOWEST_MEMORY_US 100000000ULL
#define LULL_MAX_NOISE_US 20000
#define LULL_SHALLOW_TRIGGER 3
#define LULL_MAX_SAMPLES 16
#define LULL_FULL_QUEUE_PART 8

static LULL_INLINE void lull_lowest_record(struct lull_lowest *l, u64 now_us, u32 value)
{
	if (!l->now || lull_less(now_us, l->since) >= LULL_LOWEST_MEMORY_US) {
		l->before = l->now;
		l->now = value;
		l->since = now_us;
	} else {
		l->now = lull_min(l->now, value);
	}
}

static LULL_INLINE u32 lull_lowest_get(const struct lull_lowest *l)
{
	return lull_choose(lull_is_nonzero(l->before), lull_least_of(l->before, l->now), l->now);
}

static LULL_INLINE u32 lull_delay_min_rtt(const struct lull_delay *d)
{
	return lull_lowest_get(&d->empty);
}

static LULL_INLINE u32 lull_delay_full_queue(const struct lull_delay *d)
{
	u32 min_rtt = lull_lowest_get(&d->empty);

	return lull_most_of(lull_lowest_get(&d->full), min_rtt) - min_rtt;
}

/* The round-trip time to go by, of one that was measured. */
static LULL_INLINE u32 lull_delay_adjust(struct lull_delay *d, u32 rtt, bool is_small)
{
	if (!lull_delay_min_rtt(d)) {
		d->is_of_small = is_small;
	} else if (d->is_of_small && !is_small) {
		d->is_of_small = 0;
		__builtin_memset(&d->empty, 0, sizeof(d->empty));
	}
	return is_small && !d->is_of_small ? lull_max(rtt, lull_delay_min_rtt(d)) : rtt;
}

static LULL_INLINE void lull_delay_on_sample(struct lull_delay *d, u64 now_us, u32 rtt)
{
	lull_jitter_on_sample(&d->jitter, now_us, rtt, lull_delay_min_rtt(d));
}

static LULL_INLINE void lull_delay_record(struct lull_delay *d, u64 now_us, u32 rtt)
{
	lull_lowest_record(&d->empty, now_us, rtt);
}

/* The path is taken to be as long as this. */
static LULL_INLINE void lull_delay_replace_min_rtt(struct lull_delay *d, u64 now_us, u32 rtt)
{
	d->empty.since = now_us;
	d->empty.now = rtt;
	d->empty.before = 0;
}

static LULL_INLINE void lull_delay_record_full(struct lull_delay *d, u64 now_us, u32 rtt)
{
	u32 min_rtt = lull_delay_min_rtt(d);
	u32 queue = lull_less(rtt, min_rtt);

	if (queue)
		lull_lowest_record(&d->full, now_us,
				   min_rtt + lull_max(queue, lull_delay_full_queue(d) / 2));
}

static LULL_INLINE bool lull_delay_is_shallow(const struct lull_delay *d)
{
	u32 full = lull_delay_full_queue(d);

	return lull_is_nonzero(full) & (lull_is_least(full, lull_delay_min_rtt(d) / 2) ^ 1);
}

static LULL_INLINE u32 lull_delay_noise(const struct lull_delay *d)
{
	u64 full = lull_delay_full_queue(d);
	u64 most = full ? full / LULL_FULL_QUEUE_PART :
			  lull_max(lull_delay_min_rtt(d), LULL_MAX_NOISE_US);

	return lull_delay_is_shallow(d) ? 0 : lull_min(lull_jitter_us(&d->jitter), most);
}

static LULL_INLINE u32 lull_delay_queue(const struct lull_delay *d, u32 rtt)
{
	return lull_less(rtt, lull_delay_min_rtt(d) + lull_delay_noise(d));
}

/* The queue of a round of so many microseconds and packets, whose lowest round-trip time is `low`. */
static LULL_INLINE u32 lull_delay_queue_of_round(const struct lull_delay *d, u32 low, u64 us,
						 u64 packets)
{
	u64 noise = lull_delay_noise(d);
	u64 samples = lull_min(us / lull_max(2 * noise, 1), packets / 4);

	samples = lull_min(lull_max(samples, 1), LULL_MAX_SAMPLES);
	return lull_less(low, lull_delay_min_rtt(d) + noise / samples);
}

static LULL_INLINE u32 lull_delay_trigger(const struct lull_delay *d, u64 packet_us,
					  bool is_shallow)
{
	u64 trigger = 500 + lull_min(lull_delay_min_rtt(d) / 16, 2000) + packet_us * 3 / 2;
	u64 full = lull_delay_full_queue(d);
	u64 most = is_shallow ? full / LULL_SHALLOW_TRIGGER : full / 2;

	if (full)
		trigger = lull_min(trigger, lull_max(most, packet_us + 200));
	return trigger;
}

#endif
