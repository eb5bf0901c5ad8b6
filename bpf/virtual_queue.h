/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The queue that a UDP upload would have at a link of the allowed rate: the mirror of
 * crates/cc/src/datagram/virtual_queue.rs, the reference. The includer has virtual_queue_types.h,
 * and defines VIRTUAL_QUEUE_INLINE.
 */
#ifndef LULL_VIRTUAL_QUEUE_H
#define LULL_VIRTUAL_QUEUE_H

static VIRTUAL_QUEUE_INLINE u64 virtual_queue_least(u64 a, u64 b)
{
	return a < b ? a : b;
}

/* The time from `then` to `now`, as far as the queue drains at once; 0 if time has gone back. */
static VIRTUAL_QUEUE_INLINE u64 virtual_queue_elapsed(u64 now_us, u64 then_us)
{
	return now_us > then_us ?
		       virtual_queue_least(now_us - then_us, VIRTUAL_QUEUE_MAX_DRAIN_US) :
		       0;
}

static VIRTUAL_QUEUE_INLINE u64 virtual_queue_less(u64 level, u64 amount)
{
	return level > amount ? level - amount : 0;
}

static VIRTUAL_QUEUE_INLINE bool virtual_allowance_is_fresh(const struct virtual_allowance *a,
							    u64 now_us)
{
	return a->written && (now_us <= a->written || now_us - a->written <= VIRTUAL_QUEUE_FRESH_US);
}

static VIRTUAL_QUEUE_INLINE void virtual_queue_correct(struct virtual_queue *q, u64 now_us,
						       u64 rate, const struct virtual_allowance *a)
{
	u64 held;

	if (a->delivered == VIRTUAL_QUEUE_NOT_KNOWN || a->written <= q->corrected)
		return;
	q->corrected = a->written;
	held = virtual_queue_less(q->passed, a->delivered);
	held = virtual_queue_least(held, VIRTUAL_QUEUE_BYTES_LIMIT) * VIRTUAL_QUEUE_MICROS;
	q->level = virtual_queue_less(held, rate * virtual_queue_elapsed(now_us, a->written));
}

/* Decides on a packet of so many bytes. */
static VIRTUAL_QUEUE_INLINE enum virtual_verdict
virtual_queue_admit(struct virtual_queue *q, u64 now_us, u64 bytes, bool is_ecn_capable,
		    const struct virtual_allowance *a)
{
	enum virtual_verdict verdict = VIRTUAL_PASS;
	bool is_fresh = virtual_allowance_is_fresh(a, now_us);
	u64 rate = VIRTUAL_QUEUE_UNKNOWN_RATE, limit = VIRTUAL_QUEUE_UNKNOWN_LIMIT, filled;

	if (is_fresh) {
		rate = virtual_queue_least(a->rate, VIRTUAL_QUEUE_RATE_LIMIT);
		limit = virtual_queue_least(a->limit, VIRTUAL_QUEUE_BYTES_LIMIT);
	}
	limit *= VIRTUAL_QUEUE_MICROS;
	q->level = virtual_queue_less(q->level, rate * virtual_queue_elapsed(now_us, q->updated));
	if (now_us > q->updated)
		q->updated = now_us;
	if (is_fresh)
		virtual_queue_correct(q, now_us, rate, a);
	bytes = virtual_queue_least(bytes, VIRTUAL_QUEUE_BYTES_LIMIT);
	filled = q->level + bytes * VIRTUAL_QUEUE_MICROS;
	if (q->level && filled > limit) {
		if (!is_ecn_capable || filled > limit + limit / 4)
			return VIRTUAL_DROP;
		verdict = VIRTUAL_MARK;
	}
	q->level = filled;
	q->passed += bytes;
	return verdict;
}

#endif
