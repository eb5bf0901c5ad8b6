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

/* What has been read so far is read again. The verifier would follow each value of it through all that comes,
 * and a job would wait for it at its start. */
#define LULL_FORGET() asm volatile("" ::: "memory")

/* saturating_sub */
static LULL_INLINE u64 lull_less(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

/* 1 or 0. Without a branch: what follows would be verified once for each of both. */
static LULL_INLINE u64 lull_is_nonzero(u64 value)
{
	return (value | -value) >> 63;
}

/* Whether a >= b, without a branch; both below 2^63. */
static LULL_INLINE u64 lull_is_least(u64 a, u64 b)
{
	return ((a - b) >> 63) ^ 1;
}

/* a or b, likewise. The compiler does not see the mask's values, or it would generate a branch. `volatile` also
 * keeps it from moving the choice, which halves what the verifier follows. */
static LULL_INLINE u64 lull_choose(u64 is_first, u64 a, u64 b)
{
	u64 mask = -is_first;

	asm volatile("" : "+r"(mask));
	return (a & mask) | (b & ~mask);
}

/* The smaller and the larger one, likewise; both below 2^63. */
static LULL_INLINE u64 lull_least_of(u64 a, u64 b)
{
	u64 mask = -lull_is_least(b, a);

	asm("" : "+r"(mask));
	return (a & mask) | (b & ~mask);
}

static LULL_INLINE u64 lull_most_of(u64 a, u64 b)
{
	u64 mask = -lull_is_least(a, b);

	asm("" : "+r"(mask));
	return (a & mask) | (b & ~mask);
}

#endif
