/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The jitter of a path: the mirror of crates/cc/src/lull/jitter.rs, the reference, which says why
 * each rule is there.
 */
#ifndef LULL_LULL_JITTER_H
#define LULL_LULL_JITTER_H

#include "lull_arithmetic.h"
#include "lull_types.h"
#include "noise_floor.h"

#define LULL_JITTER_MIN_US 1000
#define LULL_QUIET_STEP 4
#define LULL_QUIET_LIMIT 8
#define LULL_MAX_QUIET 32

static LULL_INLINE void lull_jitter_on_sample(struct lull_jitter *j, u64 now_us, u32 rtt,
					      u32 min_rtt)
{
	u32 learned = noise_floor_on_sample(&j->floor, now_us, rtt, min_rtt);

	if (learned == NOISE_UNKNOWN)
		return;
	j->us = learned;
	if (learned >= LULL_JITTER_MIN_US)
		j->quiet = lull_less(j->quiet, 1);
	else
		j->quiet = lull_min(j->quiet + LULL_QUIET_STEP, LULL_MAX_QUIET);
}

static LULL_INLINE bool lull_jitter_is_steady(const struct lull_jitter *j)
{
	return j->quiet > LULL_QUIET_LIMIT;
}

static LULL_INLINE u32 lull_jitter_us(const struct lull_jitter *j)
{
	return lull_jitter_is_steady(j) || j->us < LULL_JITTER_MIN_US ? 0 : j->us;
}

#endif
