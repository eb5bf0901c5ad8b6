/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * How long connections pause between pairs of packets: the mirror of crates/cc/src/lull/minimum_progress.rs, the
 * reference, which says why each rule is there.
 */
#ifndef LULL_LULL_MINIMUM_PROGRESS_H
#define LULL_LULL_MINIMUM_PROGRESS_H

#include "lull_arithmetic.h"

#define LULL_PAUSE_PACKETS 200
#define LULL_LONE_PAUSE_US 1000000ULL
#define LULL_SHARED_PAUSE_PACKETS 150
#define LULL_FULL_PROGRESS 4
#define LULL_SERVED 6
#define LULL_MAX_SLEEP_US 5000000ULL
#define LULL_FEW 16
#define LULL_CROWD_PAUSE_PACKETS 50
#define LULL_MAX_CROWD_SLEEP_US 10000000ULL

static LULL_INLINE u64 lull_minimum_progress_longest_pause(u32 members)
{
	u64 parts = lull_min(lull_max(members, 1), LULL_FULL_PROGRESS);

	return LULL_LONE_PAUSE_US / lull_choose(lull_is_least(LULL_SERVED, members), parts, 1);
}

static LULL_INLINE u64 lull_minimum_progress_pause(u64 packet, u32 members)
{
	u64 shared = lull_min(LULL_SHARED_PAUSE_PACKETS * packet,
			      lull_minimum_progress_longest_pause(members));
	u64 needed = LULL_LONE_PAUSE_US / lull_max(members, 1);

	return lull_min(LULL_PAUSE_PACKETS * packet, lull_max(shared, needed));
}

static LULL_INLINE u64 lull_minimum_progress_longest_sleep(u64 packet, u32 members)
{
	u64 crowd = LULL_CROWD_PAUSE_PACKETS * packet * lull_less(members, LULL_FEW);

	return lull_min(lull_max(crowd, LULL_MAX_SLEEP_US), LULL_MAX_CROWD_SLEEP_US);
}

#endif
