/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The lowest rate of a connection: the mirror of crates/cc/src/nice/minimum_progress.rs, the reference.
 * The includer provides u32, u64 and NICE_INLINE.
 */
#ifndef LULL_NICE_MINIMUM_PROGRESS_H
#define LULL_NICE_MINIMUM_PROGRESS_H

#define PROGRESS_MIN_PAUSE_US 1000000ULL
#define PROGRESS_PAUSE_PER_CONNECTION_US 250000ULL
#define PROGRESS_MAX_PAUSE_US 10000000ULL

/* The longest pause between two pairs of packets. */
static NICE_INLINE u64 progress_longest_pause_us(u32 connections, u32 rtt_us)
{
	u64 pause = connections * PROGRESS_PAUSE_PER_CONNECTION_US;

	if (pause < PROGRESS_MIN_PAUSE_US)
		pause = PROGRESS_MIN_PAUSE_US;
	if (pause > PROGRESS_MAX_PAUSE_US)
		pause = PROGRESS_MAX_PAUSE_US;
	return 2ULL * rtt_us > pause ? 2ULL * rtt_us : pause;
}

/* The lowest rate in bytes per second: a pair in each longest pause. */
static NICE_INLINE u64 progress_lowest_rate(u32 connections, u32 rtt_us, u32 mss)
{
	return 2ULL * mss * 1000000 / progress_longest_pause_us(connections, rtt_us);
}

#endif
