/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The arithmetic of lull.h, as Rust's integers have it. The includer provides u64 and LULL_INLINE. */
#ifndef LULL_LULL_ARITHMETIC_H
#define LULL_LULL_ARITHMETIC_H

static LULL_INLINE u64 lull_min(u64 a, u64 b)
{
	return a < b ? a : b;
}

static LULL_INLINE u64 lull_max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* saturating_sub */
static LULL_INLINE u64 lull_less(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

#endif
