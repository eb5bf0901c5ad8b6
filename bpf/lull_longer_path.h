/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Whether the path has become longer: the mirror of crates/cc/src/lull/longer_path.rs, the reference,
 * which says why each rule is there.
 */
#ifndef LULL_LULL_LONGER_PATH_H
#define LULL_LULL_LONGER_PATH_H

#include "lull_arithmetic.h"
#include "lull_types.h"

#define LULL_MAX_SPACING_US 20000
#define LULL_MIN_SPACING_US 12000
#define LULL_MIN_WAIT_US 2000000ULL
#define LULL_MAX_LONGER_PATH_WAIT_US 64000000ULL
#define LULL_MIN_SAMPLES 4
#define LULL_VARYING_PART 8
#define LULL_MIN_VARIATION_US 500ULL
#define LULL_MAX_VARYING 3
#define LULL_TRIAL_SPACING_US 13000
#define LULL_RECEIVER_TIMER_US 40000
#define LULL_TIMER_VARIATION_US 4500ULL
#define LULL_HELD_BACK_WAIT_US 3000000ULL
#define LULL_HELD_BACK_PAUSE_US 4000000ULL

static LULL_INLINE u64 lull_difference(u64 a, u64 b)
{
	return lull_most_of(a, b) - lull_least_of(a, b);
}

/* How far apart the packets of a pair leave, where the last round-trip time was `rtt`. */
static LULL_INLINE u64 lull_pair_spacing(u64 rtt)
{
	u64 spacing = lull_least_of(lull_most_of(rtt / 4, LULL_MIN_SPACING_US), rtt / 2);

	return lull_least_of(spacing, LULL_MAX_SPACING_US);
}

/* A pair at the floor has met a queue. Returns whether enough have, and a receiver's timer explains it. */
static LULL_INLINE u64 lull_longer_path_is_held_back(struct lull_longer_path *l, u64 now_us,
						     u32 rtt, u32 min_rtt, u32 noise)
{
	u64 most = LULL_TIMER_VARIATION_US + noise, is_other, longer, from;

	is_other = lull_is_least(most, lull_difference(rtt, l->alike)) ^ 1;
	is_other |= lull_is_nonzero(l->alike_samples) ^ 1;
	l->alike_since = lull_choose(is_other, now_us, l->alike_since);
	l->alike = lull_choose(is_other, rtt, l->alike);
	l->alike_samples = lull_least_of(lull_choose(is_other, 0, l->alike_samples) + 1,
					 LULL_MIN_SAMPLES);
	longer = l->alike - lull_least_of(l->alike, min_rtt) + lull_pair_spacing(l->alike);
	from = l->alike_since + lull_choose(l->holds_back, 0, LULL_HELD_BACK_WAIT_US);
	return lull_is_least(l->alike_samples, LULL_MIN_SAMPLES) &
	       lull_is_least(now_us, lull_most_of(from, l->not_before)) &
	       lull_is_least(longer + most, LULL_RECEIVER_TIMER_US) &
	       lull_is_least(LULL_RECEIVER_TIMER_US + most, longer);
}

/* A pair at the floor has met a queue. Returns whether a round-trip time is to be tried, `tried`. */
static LULL_INLINE bool lull_longer_path_on_queue(struct lull_longer_path *l, u64 now_us, u32 rtt,
						  u32 min_rtt, u32 noise)
{
	u64 is_held_back = lull_longer_path_is_held_back(l, now_us, rtt, min_rtt, noise);
	u64 is_first = lull_is_nonzero(l->samples) ^ 1;
	u64 is_over, is_steady, most, varying, tries;

	l->since = lull_choose(is_first, now_us, l->since);
	l->low = lull_least_of(lull_choose(is_first, rtt, l->low), rtt);
	l->high = lull_most_of(lull_choose(is_first, rtt, l->high), rtt);
	l->samples = lull_least_of(l->samples + 1, LULL_MIN_SAMPLES);
	is_over = lull_is_least(now_us, l->since + lull_most_of(l->wait, LULL_MIN_WAIT_US)) &
		  lull_is_least(l->samples, LULL_MIN_SAMPLES);
	l->samples = lull_choose(is_over | is_held_back, 0, l->samples);
	most = (l->low - lull_least_of(l->low, min_rtt)) / LULL_VARYING_PART;
	most = lull_most_of(most, LULL_MIN_VARIATION_US + noise);
	is_steady = lull_is_least(most, l->high - l->low);
	varying = lull_choose(is_steady, 0, l->varying + 1);
	varying = lull_choose(lull_is_least(LULL_MAX_VARYING, varying), varying, 0);
	tries = is_over & (lull_is_nonzero(varying) ^ 1);
	l->varying = lull_choose(is_over, varying, l->varying);
	l->varying = lull_choose(is_held_back, 0, l->varying);
	l->alike_samples = lull_choose(is_held_back, 0, l->alike_samples);
	l->not_before = lull_choose(is_held_back, now_us + LULL_HELD_BACK_PAUSE_US, l->not_before);
	/* A comparison that varies ends without a trial, and changes nothing. */
	l->suspects_receiver = lull_choose(tries, 0, l->suspects_receiver) | is_held_back;
	l->tried = lull_choose(tries, l->low, l->tried);
	l->tried = lull_choose(is_held_back, l->alike, l->tried);
	return tries | is_held_back;
}

/* The floor begins, or a pair has met no queue. */
static LULL_INLINE void lull_longer_path_restart(struct lull_longer_path *l)
{
	l->samples = 0;
	l->varying = 0;
	l->alike_samples = 0;
}

/* There was a queue, if there was a trial. Returns whether what was known before is true. */
static LULL_INLINE bool lull_longer_path_fail(struct lull_longer_path *l)
{
	u64 wait = lull_most_of(2 * l->wait, 2 * LULL_MIN_WAIT_US);
	u64 was_trial = l->is_trial;

	wait = lull_least_of(wait, LULL_MAX_LONGER_PATH_WAIT_US);
	l->wait = lull_choose(was_trial, wait, l->wait);
	l->holds_back &= was_trial ^ 1;
	l->is_trial = 0;
	return was_trial;
}

#endif
