/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Whether the path has become longer: the mirror of crates/cc/src/lull/longer_path.rs, the reference,
 * which says why each rule is there.
 */
#ifndef LULL_LULL_LONGER_PATH_H
#define LULL_LULL_LONGER_PATH_H

#include "lull_arithmetic.h"
#include "lull_types.h"

#define LULL_MIN_WAIT_US 2000000ULL
#define LULL_MAX_LONGER_PATH_WAIT_US 64000000ULL
#define LULL_MIN_SAMPLES 4
#define LULL_VARYING_PART 8
#define LULL_MIN_VARIATION_US 500ULL
#define LULL_MAX_VARYING 3

/* A pair at the floor has met a queue. Returns whether a round-trip time is to be tried, `low`. */
static LULL_INLINE bool lull_longer_path_on_queue(struct lull_longer_path *l, u64 now_us, u32 rtt,
						  u32 min_rtt, u32 noise)
{
	u64 is_first = lull_is_nonzero(l->samples) ^ 1;
	u64 is_over, is_steady, most, varying;

	l->since = lull_choose(is_first, now_us, l->since);
	l->low = lull_least_of(lull_choose(is_first, rtt, l->low), rtt);
	l->high = lull_most_of(lull_choose(is_first, rtt, l->high), rtt);
	l->samples = lull_least_of(l->samples + 1, LULL_MIN_SAMPLES);
	is_over = lull_is_least(now_us, l->since + lull_most_of(l->wait, LULL_MIN_WAIT_US)) &
		  lull_is_least(l->samples, LULL_MIN_SAMPLES);
	l->samples = lull_choose(is_over, 0, l->samples);
	most = (l->low - lull_least_of(l->low, min_rtt)) / LULL_VARYING_PART;
	most = lull_most_of(most, LULL_MIN_VARIATION_US + noise);
	is_steady = lull_is_least(most, l->high - l->low);
	varying = lull_choose(is_steady, 0, l->varying + 1);
	varying = lull_choose(lull_is_least(LULL_MAX_VARYING, varying), varying, 0);
	l->varying = lull_choose(is_over, varying, l->varying);
	return is_over & (lull_is_nonzero(varying) ^ 1);
}

/* The floor begins, or a pair has met no queue. */
static LULL_INLINE void lull_longer_path_restart(struct lull_longer_path *l)
{
	l->samples = 0;
	l->varying = 0;
}

/* There was a queue, if there was a trial. Returns whether what was known before is true. */
static LULL_INLINE bool lull_longer_path_fail(struct lull_longer_path *l)
{
	u64 wait = lull_most_of(2 * l->wait, 2 * LULL_MIN_WAIT_US);
	u64 was_trial = l->is_trial;

	wait = lull_least_of(wait, LULL_MAX_LONGER_PATH_WAIT_US);
	l->wait = lull_choose(was_trial, wait, l->wait);
	l->is_trial = 0;
	return was_trial;
}

#endif
