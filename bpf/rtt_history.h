/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The record of round-trip times, min_rtt and max_rtt: the mirror of `RttHistory` in
 * crates/cc/src/rtt.rs, the reference.
 *
 * The verifier follows every path of a plain loop, so the loop over the slots has no branches. The
 * includer provides u32, u64, NICE_INLINE, NICE_OPAQUE(variable), which hides a variable's value from
 * the compiler, and NICE_VERIFIED_ONCE. A function with that is global in BPF: it returns a number,
 * its pointer may be null, and no lock may be held.
 */
#ifndef LULL_RTT_HISTORY_H
#define LULL_RTT_HISTORY_H

#include "rtt_history_types.h"

/* All ones if a < b, both below 2^63. Opaque, because the compiler would otherwise generate a
 * branch. */
static NICE_INLINE u64 rtt_is_lower(u64 a, u64 b)
{
	u64 mask = -((a - b) >> 63);

	NICE_OPAQUE(mask);
	return mask;
}

static NICE_INLINE u64 rtt_lower(u64 a, u64 b)
{
	return b + ((a - b) & rtt_is_lower(a, b));
}

static NICE_INLINE u64 rtt_higher(u64 a, u64 b)
{
	return a + ((b - a) & rtt_is_lower(a, b));
}

/* A slot by its number; the mask proves the bound to the verifier. */
static NICE_INLINE struct rtt_slot *rtt_slot_at(struct rtt_history *h, u32 slot)
{
	u64 index = slot;

	NICE_OPAQUE(index);
	return &h->history[index & (RTT_SLOTS_ALLOCATED - 1)];
}

/*
 * min_rtt and max_rtt from the slots, in place of the 5th and the 95th percentile of SSR 4.1.2 and
 * their decaying averages (docs/algorithm.md explains why). With twenty slots one value at each end
 * is an outlier and dropped; with fewer, none is.
 */
NICE_VERIFIED_ONCE int rtt_history_estimate(struct rtt_history *h)
{
	u64 low = ~0U, second_low = ~0U, high = 0, second_high = 0, full = 0, second_full = 0;
	u32 i;

	if (!h)
		return 0;
	for (i = 0; i < RTT_SLOTS; i++) {
		const struct rtt_slot *s = &h->history[i];
		u64 is_used = rtt_is_lower(i, h->slots);
		u64 slot_low = (s->low & is_used) | (~0U & ~is_used);
		u64 slot_high = s->high & is_used;
		u64 slot_full = s->full & is_used;

		second_low = rtt_lower(second_low, rtt_higher(low, slot_low));
		low = rtt_lower(low, slot_low);
		second_high = rtt_higher(second_high, rtt_lower(high, slot_high));
		high = rtt_higher(high, slot_high);
		second_full = rtt_higher(second_full, rtt_lower(full, slot_full));
		full = rtt_higher(full, slot_full);
	}
	if (h->slots >= RTT_SLOTS) {
		low = second_low;
		high = second_high;
		if (second_full)
			full = second_full;
	}
	h->min_rtt = low;
	/* Nice 2.3: max_rtt is 2 min_rtt until a better value is known. A loss is better: the queue
	 * was full then. */
	h->max_rtt = rtt_higher(high, full ? full : 2 * low);
	/* A buffer below an eighth of the BDP cannot be distinguished from a random loss. */
	h->max_rtt = rtt_higher(h->max_rtt, h->min_rtt + h->min_rtt / 8);
	return 0;
}

/* Discards all state, which is no longer valid. */
static NICE_INLINE void rtt_history_forget(struct rtt_history *h)
{
	h->slots = 0;
}

/* A round's lowest and mean RTT; opens the next slot when this one's time is over. Two rounds have
 * to reach a mean: one late packet is not a full queue, and below two packets a round has one
 * sample. The first sample of all has no mean, 0: it counts in that of its round, and may have been
 * acknowledged late. */
static NICE_INLINE void rtt_history_remember(struct rtt_history *h, u64 now_us, u32 low, u32 mean)
{
	struct rtt_slot *s;
	u32 before, high;

	/* Another path: less than half of the previous shortest RTT. No old state is valid. */
	if (h->slots && low < h->min_rtt / 2)
		rtt_history_forget(h);
	before = h->slots ? h->highest : 0;
	high = mean < before ? mean : before;
	if (!h->slots || now_us - h->slot_start_us >= RTT_SLOT_US) {
		h->highest = mean;
		h->slot = h->slots && h->slot + 1 < RTT_SLOTS ? h->slot + 1 : 0;
		if (h->slots < RTT_SLOTS)
			h->slots++;
		h->slot_start_us = now_us;
		s = rtt_slot_at(h, h->slot);
		s->low = low;
		s->high = high;
		s->full = 0;
	} else {
		h->highest = before > mean ? before : mean;
		s = rtt_slot_at(h, h->slot);
		if (low >= s->low && high <= s->high)
			return;
		s->low = rtt_lower(s->low, low);
		s->high = rtt_higher(s->high, high);
	}
	rtt_history_estimate(h);
}

/* A loss with `seen` as the highest RTT around it: the queue was full then. */
static NICE_INLINE void rtt_history_remember_full(struct rtt_history *h, u32 seen)
{
	struct rtt_slot *s = rtt_slot_at(h, h->slot);

	if (!h->slots || seen <= s->full)
		return;
	s->full = seen;
	rtt_history_estimate(h);
}

#endif
