/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The state of rtt_history.h. The includer provides u32 and u64. */
#ifndef LULL_RTT_HISTORY_TYPES_H
#define LULL_RTT_HISTORY_TYPES_H

/* In place of SSR 4.1.2's percentiles and decaying averages: 20 slots, so that one slot is five per
 * cent of them. Each lasts at least ten seconds and one round. See docs/algorithm.md. */
#define RTT_SLOTS 20
#define RTT_SLOTS_ALLOCATED 32
#define RTT_SLOT_US 10000000ULL

struct rtt_slot {
	u32 low;  /* lowest RTT of the slot */
	u32 high; /* highest mean RTT that two rounds of it, or of it and the previous slot, reached */
	u32 full; /* highest RTT seen around a loss, 0: no loss */
};

struct rtt_history {
	u64 slot_start_us;
	u32 min_rtt;
	u32 max_rtt;
	u32 slot;
	u32 slots;
	u32 highest; /* highest mean RTT of a round of the slot */
	u32 reserved;
	struct rtt_slot history[RTT_SLOTS_ALLOCATED];
};

#endif
