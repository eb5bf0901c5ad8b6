/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Acknowledgements that were sent: the mirror of crates/cc/src/receive/marks.rs, the reference, which
 * says why each rule is there. RFC 9840, "Measuring Delays".
 */
#ifndef LULL_RECEIVE_MARKS_H
#define LULL_RECEIVE_MARKS_H

#include "receive_types.h"

#define RECEIVE_MARKS_PER_RTT 24

static LULL_INLINE struct receive_mark *receive_mark_at(struct receive_download *d, u32 number)
{
	u32 at = number & (RECEIVE_MARKS - 1);

	/* The verifier is to see the bound where it is used. */
	asm volatile("" : "+r"(at));
	return &d->marks[at & (RECEIVE_MARKS - 1)];
}

static LULL_INLINE void receive_clear_marks(struct receive_download *d)
{
	d->first = d->next;
}

static LULL_INLINE void receive_advertise(struct receive_download *d, u32 packets)
{
	if (d->is_last)
		receive_mark_at(d, d->next - 1)->window = packets;
}

/* Makes room for a mark; 0: none is to be kept now. */
static LULL_INLINE struct receive_mark *receive_push_mark(struct receive_download *d, u64 sent,
							  bool is_new_clock)
{
	u32 pending = d->next - d->first;
	u64 last = receive_mark_at(d, d->next - 1)->sent;
	bool is_near = pending && sent < last + d->last_rtt / RECEIVE_MARKS_PER_RTT;

	d->is_last = pending < RECEIVE_MARKS && !is_near && is_new_clock;
	if (!d->is_last)
		return 0;
	d->next++;
	return receive_mark_at(d, d->next - 1);
}

/* A packet arrives that echoes this time stamp. */
static LULL_INLINE void receive_on_echo(struct receive_download *d, u64 now_us, u32 echo)
{
	struct receive_mark *mark = receive_mark_at(d, d->first);

	if (d->first != d->next && mark->clock == echo && !mark->echoed)
		mark->echoed = now_us;
}

/* The oldest mark if it is answered. */
static LULL_INLINE struct receive_mark *receive_pass_mark(struct receive_download *d,
							  const struct receive_arrival *a)
{
	struct receive_mark *mark = receive_mark_at(d, d->first);
	bool is_answered = a->has_echo ? (s32)(a->echo - mark->clock) >= 0 :
					 (s32)(a->packets - mark->edge) > 0;

	if (d->first == d->next || !is_answered)
		return 0;
	d->first++;
	return mark;
}

#endif
