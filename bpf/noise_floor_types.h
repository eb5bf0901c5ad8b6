/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The state of noise_floor.h for each path. The includer provides u32 and u64. */
#ifndef LULL_NOISE_FLOOR_TYPES_H
#define LULL_NOISE_FLOOR_TYPES_H

struct noise_floor {
	u64 reference_at_us; /* the sample that the next one is compared with */
	u64 lost_at_us;
	u32 reference_rtt;
	u32 deviation; /* median difference in us, with 4 fractional bits */
	u32 compared;  /* comparisons so far, up to 64 */
	u32 count;     /* comparisons of the block, and its extremes */
	u32 low;
	u32 high;
	u32 noise;
	u32 has_lost;
	u32 delivered; /* since the loss, up to 4096 */
	u32 limit;     /* the highest noise floor while noise does not count in full */
};

#endif
