/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The algorithm that the connections of a path share, in plain C: the mirror of crates/cc/src/lull,
 * the reference, which explains each rule; one header for each of its modules.
 * crates/kernel/tests/it/shared_state.rs holds both equal, bit for bit.
 *
 * It makes no kernel call, has no clock and no memory, so all of it may run under the spin lock of
 * the path. It also has no loop with branches that depend on data: the verifier follows every path
 * through them, and bpf_loop is not allowed under a lock (docs/adr/0016). The includer provides
 * u32, s32, u64, bool, LULL_INLINE and NICE_INLINE.
 */
#ifndef LULL_LULL_H
#define LULL_LULL_H

#include "lull_types.h"
#include "lull_member.h"

/* The traffic of the host's foreground so far; call it before each other event. */
static LULL_INLINE void lull_on_foreground(struct lull_path *p, u64 now_us,
					   const struct lull_foreground *f)
{
	lull_path_on_foreground(p, lull_path_advance(p, now_us), f);
}

#endif
