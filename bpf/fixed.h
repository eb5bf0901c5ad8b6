/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Powers and logarithms of windows in integers: the mirror of crates/cc/src/fixed.rs, the
 * reference. Windows are packets with 16 fractional bits. The includer provides u32, u64 and
 * BACKGROUND_INLINE.
 *
 * Both loops have a fixed number of turns and no branch: the verifier follows one path.
 */
#ifndef LULL_FIXED_H
#define LULL_FIXED_H

#define FIXED_SHIFT 16
#define FIXED_ONE (1ULL << FIXED_SHIFT)
/* Fractional bits of a logarithm. */
#define FIXED_LOG_BITS 28
/* Fractional bits of a number between one and two. */
#define FIXED_MANTISSA_BITS 31
#define FIXED_MANTISSA_ONE (1ULL << FIXED_MANTISSA_BITS)
/* ln 2 with 30 fractional bits. */
#define FIXED_LN_2 744261118ULL

/* 2^(1/2), 2^(1/4), ... with 31 fractional bits, rounded. fixed.rs computes them. */
static const u32 fixed_roots_of_two[FIXED_LOG_BITS] = {
	0xb504f334, 0x9837f052, 0x8b95c1e4, 0x85aac368, 0x82cd8699, 0x8164d1f4, 0x80b1ed50,
	0x8058d7d3, 0x802c6437, 0x8016302f, 0x800b179d, 0x80058baf, 0x8002c5d0, 0x800162e6,
	0x8000b173, 0x800058b9, 0x80002c5d, 0x8000162e, 0x80000b17, 0x8000058c, 0x800002c6,
	0x80000163, 0x800000b1, 0x80000059, 0x8000002c, 0x80000016, 0x8000000b, 0x80000006,
};

/* The position of the highest bit that is set. clang 14 fails on __builtin_clzll for BPF. */
static BACKGROUND_INLINE u32 fixed_magnitude(u64 window)
{
	u32 magnitude = 0;
	u32 step;

	for (step = 32; step; step /= 2) {
		u32 is_above = window >> step != 0;

		magnitude += is_above * step;
		window >>= is_above * step;
	}
	return magnitude;
}

/* The binary logarithm of a window of at least one packet. Squaring a number between one and two
 * doubles its logarithm: each time it passes two, the next bit is one. */
static BACKGROUND_INLINE u64 fixed_log2(u64 window)
{
	u32 magnitude = fixed_magnitude(window);
	u64 log = magnitude - FIXED_SHIFT;
	u64 x, bit;
	u32 i;

	if (magnitude > FIXED_MANTISSA_BITS)
		x = window >> (magnitude - FIXED_MANTISSA_BITS);
	else
		x = window << (FIXED_MANTISSA_BITS - magnitude);
	for (i = 0; i < FIXED_LOG_BITS; i++) {
		x = (x * x) >> FIXED_MANTISSA_BITS;
		bit = x >> (FIXED_MANTISSA_BITS + 1);
		x >>= bit;
		log = log << 1 | bit;
	}
	return log;
}

/* Two to the power of `log`, as a window. */
static BACKGROUND_INLINE u64 fixed_exp2(u64 log)
{
	u64 y = FIXED_MANTISSA_ONE;
	u64 bit;
	u32 i;

	for (i = 0; i < FIXED_LOG_BITS; i++) {
		bit = log >> (FIXED_LOG_BITS - 1 - i) & 1;
		y = (y * (FIXED_MANTISSA_ONE + bit * (fixed_roots_of_two[i] - FIXED_MANTISSA_ONE))) >>
		    FIXED_MANTISSA_BITS;
	}
	return (y << (log >> FIXED_LOG_BITS)) >> (FIXED_MANTISSA_BITS - FIXED_SHIFT);
}

/* `window` to the power of percent/100, in packets. At least one packet, at most 100 %. */
static BACKGROUND_INLINE u64 fixed_power(u64 window, u32 percent)
{
	return fixed_exp2(fixed_log2(window) * percent / 100);
}

/* The natural logarithm of a window in packets, as a window. */
static BACKGROUND_INLINE u64 fixed_ln(u64 window)
{
	return (fixed_log2(window) * FIXED_LN_2) >> (FIXED_LOG_BITS + 30 - FIXED_SHIFT);
}

#endif
