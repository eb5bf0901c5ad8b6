/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Whether the path keeps flows apart: the mirror of crates/cc/src/lull/fair_queueing.rs, the
 * reference, which says why each rule is there.
 */
#ifndef LULL_LULL_FAIR_QUEUEING_H
#define LULL_LULL_FAIR_QUEUEING_H

#include "lull_arithmetic.h"
#include "lull_types.h"

#define LULL_MIN_TRAIN 4
#define LULL_MAX_TRAIN 16
#define LULL_TRAIN_PART 6
#define LULL_STRETCHED_PART 2
#define LULL_LATE_PART 4
#define LULL_FREE_TRAINS 2
#define LULL_PAUSE_TRAINS 48

enum lull_finding {
	LULL_FOUND_SHARED = 0,
	LULL_FOUND_OTHERS = 1,
	LULL_FOUND_MAYBE_FREE = 2,
	LULL_FOUND_FREE = 3,
};

static LULL_INLINE void lull_fair_queueing_on_competition(struct lull_fair_queueing *f)
{
	f->keeps_flows_apart = 0;
	f->is_due = 1;
	f->packets = 0;
	f->free = 0;
}

static LULL_INLINE u64 lull_train(u64 full)
{
	return lull_least_of(lull_most_of(full / LULL_TRAIN_PART, LULL_MIN_TRAIN),
			     LULL_MAX_TRAIN);
}

/* The packets of the train that a return begins with; 0: it needs none. */
static LULL_INLINE u64 lull_fair_queueing_begin_return(struct lull_fair_queueing *f, u64 full,
						       bool is_steady)
{
	u32 is_needed = f->keeps_flows_apart | f->is_due;

	f->keeps_flows_apart &= is_steady;
	f->packets = lull_choose(is_needed & is_steady, lull_train(full), 0);
	f->free = 0;
	return f->packets;
}

static LULL_INLINE u32 lull_fair_queueing_end_train(struct lull_fair_queueing *f, u32 low, u32 high,
						    u64 packet_us)
{
	u64 own = (f->packets - lull_is_nonzero(f->packets)) * packet_us;
	u64 is_late = lull_is_least(own + own / LULL_LATE_PART, high) ^ 1;
	u64 stretch = lull_choose(lull_is_least(high, low), high - low, 0);
	u64 keeps_flows_apart = lull_is_least(own + own / LULL_STRETCHED_PART, stretch) ^ 1;
	u64 is_open;
	u32 found;

	keeps_flows_apart |= f->keeps_flows_apart;
	is_open = lull_is_least(f->free + 1, LULL_FREE_TRAINS) ^ 1;
	is_open &= keeps_flows_apart & (is_late ^ 1);
	f->keeps_flows_apart = keeps_flows_apart;
	f->is_due = 0;
	f->free += is_open;
	f->packets = lull_choose(is_open, f->packets, 0);
	found = lull_choose(is_late, LULL_FOUND_OTHERS, LULL_FOUND_FREE);
	found = lull_choose(is_open, LULL_FOUND_MAYBE_FREE, found);
	return lull_choose(keeps_flows_apart, found, LULL_FOUND_SHARED);
}

/* The pause in microseconds after a train that met others. */
static LULL_INLINE u64 lull_train_pause(u64 full, u64 packet_us, u32 min_rtt)
{
	return lull_most_of(LULL_PAUSE_TRAINS * lull_train(full) * packet_us, 4ULL * min_rtt);
}

#endif
