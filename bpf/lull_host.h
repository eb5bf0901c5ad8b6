/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The host's own foreground: the mirror of crates/cc/src/lull/host.rs, the reference, which says why
 * each rule is there.
 */
#ifndef LULL_LULL_HOST_H
#define LULL_LULL_HOST_H

#include "lull_arithmetic.h"
#include "lull_types.h"

#define LULL_INTERVAL_RTTS 4
#define LULL_MIN_INTERVAL_US 100000ULL
#define LULL_MAX_INTERVAL_US 2000000ULL
#define LULL_BUSY_PART 16
#define LULL_BUSY_BYTES 16384ULL
#define LULL_PACKET_BYTES 1448ULL
#define LULL_HOST_RATE_LIMIT (1ULL << 26)
#define LULL_MIN_HOLDOFF_US 2000000ULL
#define LULL_MAX_HOLDOFF_US 64000000ULL
#define LULL_SLOW_START 2
#define LULL_FIRST_ROOM (20 * LULL_ONE)
#define LULL_FIRST_ROOM_RTTS 2
#define LULL_RECENT_LIMIT (1ULL << 32)

enum lull_foreground_change {
	LULL_FOREGROUND_UNCHANGED = 0,
	LULL_FOREGROUND_BEGINS = 1, /* it connects, or sends after a pause */
	LULL_FOREGROUND_ENDS = 2,   /* it was busy and sends nothing now */
};

static LULL_INLINE void lull_host_restart(struct lull_host *h, u64 now_us, u64 bytes)
{
	h->since = now_us;
	h->bytes = bytes;
}


static LULL_INLINE u64 lull_host_clamp(u64 value, u64 least, u64 most)
{
	value = lull_choose(lull_is_least(value, least), value, least);
	return lull_choose(lull_is_least(most, value), value, most);
}

/* The interval that ends now; `ends`: 1 if it does. */
static LULL_INLINE void lull_host_end_interval(struct lull_host *h, u64 now_us, u64 bytes,
					       u64 packets_per_second, u64 ends)
{
	u64 elapsed = lull_host_clamp(now_us - h->since, 0, 2 * LULL_MAX_INTERVAL_US);
	u64 rate = lull_host_clamp(packets_per_second, 0, LULL_HOST_RATE_LIMIT) * LULL_PACKET_BYTES;
	u64 least = rate * (elapsed >> 10) / (1000000 >> 10) / LULL_BUSY_PART;
	u64 is_busy = lull_is_least(bytes, h->bytes + lull_host_clamp(least, LULL_BUSY_BYTES, 1ULL << 62));
	u64 holdoff = lull_host_clamp(2 * h->holdoff, LULL_MIN_HOLDOFF_US,
				       LULL_MAX_HOLDOFF_US);

	holdoff = lull_choose(h->is_judging, holdoff, h->holdoff) & (is_busy - 1);
	h->holdoff = lull_choose(ends, holdoff, h->holdoff);
	h->is_busy = lull_choose(ends, is_busy, h->is_busy);
	h->is_known |= h->is_busy;
	h->is_judging &= ends ^ 1;
	h->since = lull_choose(ends, now_us, h->since);
	h->bytes = lull_choose(ends, bytes, h->bytes);
}

static LULL_INLINE void lull_host_end_round(struct lull_host *h, u64 now_us, u64 bytes, u64 rtt)
{
	u64 ends = lull_is_least(now_us, h->round_start + rtt);
	u64 is_late = lull_is_least(now_us, h->round_start + 2 * rtt);
	u64 before = lull_choose(is_late, h->last.bytes, h->round_bytes);

	h->before_bytes = lull_choose(ends, before, h->before_bytes);
	h->round_bytes = lull_choose(ends, bytes, h->round_bytes);
	h->round_start = lull_choose(ends, now_us, h->round_start);
}

static LULL_INLINE u64 lull_host_is_heeded_within(const struct lull_host *h, u64 now_us, u64 micros)
{
	return lull_is_nonzero(h->heeded) & (lull_is_least(now_us, h->heeded + micros) ^ 1);
}

/* The part of the window that the foreground needs. */
static LULL_INLINE u64 lull_host_room(const struct lull_host *h, u64 now_us, u64 rtt)
{
	u64 recent = lull_least_of(lull_less(h->last.bytes, h->before_bytes), LULL_RECENT_LIMIT);
	u64 room = ((LULL_SLOW_START * recent) << LULL_SHIFT) / LULL_PACKET_BYTES;
	u64 is_new = lull_host_is_heeded_within(h, now_us, LULL_FIRST_ROOM_RTTS * rtt);

	return lull_choose(h->is_known & is_new, lull_most_of(room, LULL_FIRST_ROOM), room);
}

static LULL_INLINE u64 lull_host_begins(struct lull_host *h, u64 now_us, u64 starts, u64 rtt,
					u64 bytes)
{
	u64 ignored = lull_host_clamp(LULL_INTERVAL_RTTS * rtt, h->holdoff, 1ULL << 62);

	starts &= lull_is_least(now_us, h->heeded + ignored);
	h->heeded = lull_choose(starts, now_us, h->heeded);
	h->is_judging |= starts;
	h->since = lull_choose(starts, now_us, h->since);
	h->bytes = lull_choose(starts, bytes, h->bytes);
	return starts;
}

static LULL_INLINE u32 lull_host_handle(struct lull_host *h, u64 now_us,
					const struct lull_foreground *f, u64 rtt,
					u64 packets_per_second)
{
	u64 interval = lull_host_clamp(LULL_INTERVAL_RTTS * rtt, LULL_MIN_INTERVAL_US,
				       LULL_MAX_INTERVAL_US);
	u64 quiet = lull_host_clamp(2 * rtt, LULL_MIN_INTERVAL_US, 1ULL << 62);
	u64 starts, begins, ends;

	lull_host_end_interval(h, now_us, f->bytes, packets_per_second,
			       lull_is_least(now_us, h->since + interval));
	lull_host_end_round(h, now_us, f->bytes, rtt);
	/* Where the background was silent, a pause of the foreground looks the same. */
	starts = (lull_is_least(now_us, h->looked + interval) ^ 1) &
		 lull_is_least(f->data_us, h->last.data_us + interval);
	starts |= lull_is_least(f->connected_us, h->last.connected_us + 1);
	h->last = *f;
	h->looked = now_us;
	begins = lull_host_begins(h, now_us, starts, rtt, f->bytes);
	ends = (begins ^ 1) & h->is_busy & lull_is_least(now_us, f->data_us + quiet);
	h->is_busy &= ends ^ 1;
	return begins * LULL_FOREGROUND_BEGINS + ends * LULL_FOREGROUND_ENDS;
}

/* The window must not grow: a start of a foreground that is not known was heeded less than four round-trip
 * times ago. */
static LULL_INLINE bool lull_host_is_beginning(const struct lull_host *h, u64 now_us, u64 rtt)
{
	return (h->is_known ^ 1) & lull_host_is_heeded_within(h, now_us, LULL_INTERVAL_RTTS * rtt);
}

#endif
