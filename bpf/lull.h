/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The algorithm that the connections of a path share, in plain C: the mirror of crates/cc/src/lull,
 * the reference, which says why each rule is there; one header for each of its modules.
 * crates/kernel/tests/it/shared_state.rs holds both equal, bit for bit.
 *
 * No kernel call, no clock, no memory of its own, so that all of it may run under the spin lock of
 * the path. No loop whose turns branch on data either: the verifier follows every path through
 * them, and bpf_loop is refused under a lock (docs/adr/0016). The includer provides u32, s32, u64,
 * bool, LULL_INLINE and NICE_INLINE.
 */
#ifndef LULL_LULL_H
#define LULL_LULL_H

#include "lull_types.h"
#include "lull_member.h"

/* What the host's foreground has sent so far; to be given before each other event. */
static LULL_INLINE void lull_on_foreground(struct lull_path *p, u64 now_us,
					   const struct lull_foreground *f)
{
	lull_path_on_foreground(p, lull_path_advance(p, now_us), f);
}

#endif
