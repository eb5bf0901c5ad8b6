/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * TCP Nice in plain C: the mirror of crates/cc (nice.rs, rtt.rs, vegas.rs), the reference.
 *
 * It makes no kernel call, has no clock and no memory. The includer provides u32, s32, u64, bool,
 * NICE_INLINE and NICE_OPAQUE(variable), which rtt_history.h explains. Windows are packets in fixed
 * point with 16 fractional bits, times microseconds. The conformance test feeds this file and the
 * Rust the same events; every answer must be equal. With `refinements` = 0 it is the published
 * algorithm. nice.bpf.c enables all refinements. Below two packets the step is then W/2 or 3W, and
 * at most one packet (`gentle`), not the published +1.
 *
 * "Nice" cites Venkataramani, Kokku, Dahlin: TCP Nice (OSDI 2002); "SSR" cites Safe Speculative
 * Replication, whose section 4 refines it.
 */
#ifndef LULL_NICE_H
#define LULL_NICE_H

#include "nice_minimum_progress.h"
#include "nice_types.h"
#include "noise_floor.h"
#include "rtt_history.h"

static NICE_INLINE u64 nice_max64(u64 a, u64 b)
{
	return a > b ? a : b;
}

static NICE_INLINE u64 nice_min64(u64 a, u64 b)
{
	return a < b ? a : b;
}

static NICE_INLINE u32 nice_min32(u32 a, u32 b)
{
	return a < b ? a : b;
}

static NICE_INLINE u32 nice_max32(u32 a, u32 b)
{
	return a > b ? a : b;
}

static NICE_INLINE void nice_reset_round(struct nice *n)
{
	n->rtt_sum = 0;
	n->num_cong = 0;
	n->num_sampled = 0;
	n->round_low = 0;
	n->last_high = n->round_high;
	n->round_high = 0;
	n->pending = 0;
	n->reacted = 0;
	n->unlimited = 0;
}

static NICE_INLINE void nice_init(struct nice *n, u64 window, u64 ssthresh)
{
	__builtin_memset(n, 0, sizeof(*n));
	n->window = window;
	n->ssthresh = ssthresh;
}

/*
 * t of Nice 2.2. `probation`: a quarter of it at first, all of it after sixty-four rounds without
 * congestion. A flow that starts late mistakes the foreground's queue for the path, and twice that
 * for the full queue. It measures the path while it yields.
 */
static NICE_INLINE u32 nice_threshold(const struct nice_params *p, const struct nice *n)
{
	u32 clean = nice_min32(n->clean, NICE_PROBATION_ROUNDS);

	if (!(p->refinements & NICE_PROBATION))
		return p->threshold;
	return p->threshold * (NICE_PROBATION_ROUNDS + 3 * clean) / (4 * NICE_PROBATION_ROUNDS);
}

/* The highest RTT of a packet without a queue: min_rtt, and with `noise` the effect of jitter
 * alone. */
static NICE_INLINE u32 nice_quiet_rtt(const struct nice_params *p, const struct nice *n)
{
	if (!(p->refinements & NICE_NOISE))
		return n->rtt.min_rtt;
	return n->rtt.min_rtt + nice_min32(noise_floor_us(&n->noise), n->rtt.max_rtt - n->rtt.min_rtt);
}

/* Nice 2.2: t (max_rtt - min_rtt), but at least the floor. */
static NICE_INLINE u32 nice_tolerance(const struct nice_params *p, const struct nice *n)
{
	u64 delay = ((u64)(n->rtt.max_rtt - n->rtt.min_rtt) * nice_threshold(p, n)) >> NICE_SHIFT;

	return delay < p->delay_floor_us ? p->delay_floor_us : (u32)delay;
}

/* Nice 2.2: the RTT above which a packet has met congestion. */
static NICE_INLINE u32 nice_trigger_rtt(const struct nice_params *p, const struct nice *n)
{
	return nice_quiet_rtt(p, n) + nice_tolerance(p, n);
}

/*
 * RFC 1122 4.2.3.2: a receiver may delay the acknowledgement of a single packet. It may always do
 * so for the only packet in flight. Otherwise the sample then exceeds the previous one by at least
 * the receivers' minimum delay. A queue that has grown so much at once is accepted with the next
 * sample.
 */
static NICE_INLINE bool nice_is_maybe_delayed(const struct nice *n, const struct ack *a,
					      u32 rtt)
{
	if (a->maybe_delayed || a->in_flight <= 1)
		return 1;
	return a->acked == 1 && n->last_rtt && rtt >= n->last_rtt + NICE_RECEIVER_DELAY_US;
}

/* Nice 2.2, per ACK: count the packets that met a queue. */
static NICE_INLINE void nice_sample(const struct nice_params *p, struct nice *n,
				    const struct ack *a)
{
	u32 rtt = nice_min32(a->rtt_us, NICE_RTT_LIMIT);
	u32 trigger, shortest;
	bool delayed;

	/* A full packet's own time on a slow link is not a queue: measurements by small packets are
	 * discarded when full ones arrive. */
	if (n->of_small && !a->is_small)
		rtt_history_forget(&n->rtt);
	if (!n->rtt.slots) {
		n->of_small = a->is_small;
		n->round_low = 0;
		rtt_history_remember(&n->rtt, a->now_us, rtt, 0);
	}
	trigger = nice_trigger_rtt(p, n);
	delayed = nice_is_maybe_delayed(n, a, rtt);
	if (!delayed)
		noise_floor_on_sample(&n->noise, a->now_us, rtt, n->rtt.min_rtt);
	n->last_rtt = rtt;
	/* A delay by the receiver can only hide the absence of a queue. */
	if (rtt > trigger && delayed)
		return;
	if (rtt > trigger)
		n->num_cong += a->acked;
	n->num_sampled += a->acked;
	n->rtt_sum += (u64)rtt * a->acked;
	/* A small packet among full ones does not measure how short the path is for those. */
	shortest = a->is_small && !n->of_small ? nice_max32(rtt, n->rtt.min_rtt) : rtt;
	if (!n->round_low || shortest < n->round_low)
		n->round_low = shortest;
	n->round_high = nice_max32(n->round_high, rtt);
}

/* W/2, not below the floor, which never raises a window that a timeout left below it. */
static NICE_INLINE void nice_halve(const struct nice_params *p, struct nice *n)
{
	u64 half = n->window / 2;

	if (half < p->min_window)
		half = nice_min64(p->min_window, n->window);
	n->window = half;
}

/* W - 1, with the same floor. */
static NICE_INLINE void nice_take_one(const struct nice_params *p, struct nice *n)
{
	u64 less = n->window > NICE_ONE ? n->window - NICE_ONE : 0;

	if (less < p->min_window)
		less = nice_min64(p->min_window, n->window);
	n->window = less;
}

/* The longest queue in this round or the previous one. */
static NICE_INLINE u32 nice_queue_us(const struct nice *n)
{
	return noise_above(nice_max32(n->round_high, n->last_high), n->rtt.min_rtt);
}

/* A loss, for which Nice 2.2 uses Reno's rules, or a mark (RFC 3168 6.1.2). It halves the window;
 * RFC 5681 3.1 equation 4 and RFC 6675 5 step 4.2 halve the data in flight, which is no more. Slow
 * start ends here next time, as in Reno. */
static NICE_INLINE void nice_halve_for_loss(const struct nice_params *p, struct nice *n)
{
	nice_halve(p, n);
	noise_floor_on_loss(&n->noise, nice_queue_us(n));
	n->ssthresh = n->window;
	n->recall = 0;
}

/* The detector's rule (Nice 2.2). Reno has not cut here, so the slow-start threshold may fall, but
 * not rise. `recall`: of a series of cuts only the first says something about the path; the others
 * show how long the foreground stayed. */
static NICE_INLINE void nice_halve_for_delay(const struct nice_params *p, struct nice *n)
{
	bool is_first = n->window > n->recall;

	if (p->detector == NICE_DETECTOR_TAKES_ONE)
		nice_take_one(p, n);
	else
		nice_halve(p, n);
	n->ssthresh = nice_min64(n->ssthresh, n->window);
	if (is_first && (p->refinements & NICE_RECALL))
		n->recall = n->window;
}

/* The end of slow start. Up to the window of `recall` it grows only from quiet to quiet round,
 * because it would otherwise undo the cuts. */
static NICE_INLINE u64 nice_slow_start_end(const struct nice *n)
{
	return n->quiet && n->ssthresh < n->recall ? n->recall : n->ssthresh;
}

static NICE_INLINE enum nice_phase nice_phase(const struct nice *n)
{
	if (n->window < NICE_TWO)
		return NICE_PAIRS;
	return n->window < nice_slow_start_end(n) ? NICE_SLOW_START : NICE_AVOIDANCE;
}

/* A reaction to loss, mark or timeout closes the round: its counts are final. */
static NICE_INLINE void nice_close_round(struct nice *n, u32 delivered)
{
	n->num_cong = 0;
	n->num_sampled = 0;
	n->rtt_sum = 0;
	n->pending = 0;
	n->reacted = 1;
	n->loss_end = delivered;
	n->round_end = delivered;
	n->started = 1;
}

/* Nice 2.2: a lost packet triggers Reno's rule; once a round. `full`: max_rtt is at least the RTT
 * around it, and no longer twice min_rtt. */
static NICE_INLINE void nice_on_loss(const struct nice_params *p, struct nice *n, u32 delivered,
				     u32 prior_delivered)
{
	u32 seen = nice_max32(n->round_high, n->last_high);

	if (p->refinements & NICE_FULL)
		rtt_history_remember_full(&n->rtt, seen);
	if (n->started && (s32)(prior_delivered - n->loss_end) < 0)
		return;
	nice_halve_for_loss(p, n);
	nice_close_round(n, delivered);
}

/* ECN echo or local congestion: like a loss, but no packet met a full queue. The caller reports it
 * once a window of data, as in RFC 3168. */
static NICE_INLINE void nice_on_mark(const struct nice_params *p, struct nice *n, u32 delivered)
{
	nice_halve_for_loss(p, n);
	nice_close_round(n, delivered);
}

/* W = min(W, 1): a timeout never raises a window that was already below one. */
static NICE_INLINE void nice_on_timeout(struct nice *n, u32 delivered)
{
	n->ssthresh = n->window / 2;
	noise_floor_on_loss(&n->noise, nice_queue_us(n));
	n->recall = 0;
	n->window = nice_min64(n->window, NICE_ONE);
	nice_close_round(n, delivered);
}

/* After a pause the network may have changed: start again like a new connection. */
static NICE_INLINE void nice_on_idle(struct nice *n)
{
	u32 reacted = n->reacted;

	n->window = nice_min64(n->window, NICE_TWO);
	n->recall = 0;
	n->round_start_us = 0;
	nice_reset_round(n);
	n->reacted = reacted;
}

/*
 * Vegas (Nice 2.1): Diff = (W/min - W/observed) * min, in packets with 16 fractional bits.
 * Queueing below the floor is jitter, and not a queued packet of this flow.
 */
static NICE_INLINE u64 nice_diff(const struct nice_params *p, const struct nice *n, u32 observed)
{
	u32 quiet = nice_quiet_rtt(p, n);

	if (observed <= quiet || observed < quiet + p->delay_floor_us)
		return 0;
	return n->window * (observed - quiet) / observed;
}

/* Below this the queue is nearly empty: a quarter of the way to the trigger. The foreground has
 * ended, or pauses. */
static NICE_INLINE u32 nice_empty_rtt(const struct nice_params *p, const struct nice *n)
{
	return nice_quiet_rtt(p, n) + nice_max32(nice_tolerance(p, n) / 4, p->delay_floor_us);
}

/*
 * The additive step below two packets: the published +1, for one pair's round (Nice 2.3). `gentle`:
 * half the window. In packets per RTT the published step grows as W/2 and a halving takes W^2/4. So
 * many small windows keep any queue above the trigger most of the time. With half the window,
 * growth and cut are equal when half of the rounds are congested. If the queue is nearly empty, the
 * window is multiplied by four.
 */
static NICE_INLINE u64 nice_small_step(const struct nice_params *p, const struct nice *n,
				       u32 observed)
{
	if (!(p->refinements & NICE_GENTLE))
		return NICE_ONE;
	if (observed <= nice_empty_rtt(p, n))
		return nice_min64(3 * n->window, NICE_ONE);
	return n->window / 2;
}

/*
 * The additive step of congestion avoidance: as published, one packet. `headroom`: a quarter of the
 * step that would bring the RTT half way to the trigger if every flow at the bottleneck took it at
 * once. That is small if the path is long and the window small. So while the queue stays nearly
 * empty, it doubles every eight rounds, up to the published one.
 */
static NICE_INLINE u64 nice_step(const struct nice_params *p, const struct nice *n, u32 observed)
{
	u32 target;
	u64 step;

	if (!(p->refinements & NICE_HEADROOM))
		return NICE_ONE;
	target = nice_quiet_rtt(p, n) + nice_tolerance(p, n) / 2;
	if (!observed || observed >= target)
		return 0;
	step = n->window * (target - observed) / observed / 4;
	return nice_min64(NICE_ONE, step << (n->empty / 8));
}

static NICE_INLINE void nice_grow(const struct nice_params *p, struct nice *n, u32 observed,
				  enum nice_phase began)
{
	/* `least`: from two packets in a millisecond on, Vegas uses the lowest RTT of the round. A
	 * window is sent in bursts of that length, whose packets wait for each other, and the
	 * jitter of paths is as large. */
	bool dense = n->window * NICE_BURST_US > NICE_TWO * n->rtt.min_rtt;
	u32 seen = p->refinements & NICE_LEAST && dense ? n->round_low : observed;
	u64 diff;

	if (nice_phase(n) == NICE_PAIRS) {
		n->window += nice_small_step(p, n, observed);
		return;
	}
	diff = nice_diff(p, n, seen);
	if (began == NICE_SLOW_START) {
		/* The slow start itself is per ACK; it ends when a queue forms. */
		if (p->base == NICE_BASE_VEGAS && diff > p->alpha) {
			n->ssthresh = nice_min64(n->ssthresh, n->window);
			n->recall = nice_min64(n->recall, n->window);
		}
		return;
	}
	if (p->base == NICE_BASE_RENO || diff < p->alpha)
		n->window += nice_step(p, n, observed);
	else if (diff > p->beta)
		n->window = n->window - NICE_ONE < NICE_TWO ? NICE_TWO : n->window - NICE_ONE;
	n->window = nice_min64(n->window, NICE_WINDOW_LIMIT);
}

/* Nice 2.2, per round. `began`: the phase when the acknowledgement that ends the round arrived. */
static NICE_INLINE void nice_round(const struct nice_params *p, struct nice *n, u64 now_us,
				   enum nice_phase began)
{
	bool yielding = n->reacted || nice_phase(n) == NICE_PAIRS, congested;
	u32 observed;

	n->rounds++;
	if (n->num_sampled) {
		observed = (u32)(n->rtt_sum / n->num_sampled);
		/* numCong > f * (packets of the round), in packets that gave a sample. */
		congested = p->detector && ((u64)n->num_cong << NICE_SHIFT) >
						   (u64)p->fraction * n->num_sampled;
		n->quiet = !congested && !n->reacted;
		n->empty = n->quiet && observed <= nice_empty_rtt(p, n) ?
				   nice_min32(n->empty + 1, NICE_EMPTY_ROUNDS) : 0;
		if (congested && !n->reacted) {
			n->rounds_congested++;
			yielding = 1;
			nice_halve_for_delay(p, n);
		} else if (!n->reacted) {
			n->clean = nice_min32(n->clean + 1, NICE_PROBATION_ROUNDS);
			if (n->unlimited)
				nice_grow(p, n, observed, began);
		}
		rtt_history_remember(&n->rtt, now_us, n->round_low, observed);
	}
	/* A flow without data does not yield. */
	if (yielding && n->unlimited && n->round_start_us && now_us > n->round_start_us)
		n->yielded_us += now_us - n->round_start_us;
	n->round_start_us = now_us;
	nice_reset_round(n);
}

static NICE_INLINE void nice_on_ack(const struct nice_params *p, struct nice *n,
				    const struct ack *a)
{
	enum nice_phase began;
	bool whole;

	if (!n->started) {
		n->started = 1;
		n->round_end = a->delivered - a->acked;
		n->loss_end = n->round_end;
	}
	noise_floor_on_delivery(&n->noise, a->acked);
	if (a->rtt_us && a->acked)
		nice_sample(p, n, a);
	/* An acknowledgement of no new packets does not show what limited the sender. While the
	 * round waits for the pair to return, its state is final. */
	if (a->acked && !a->app_limited && !n->pending)
		n->unlimited = 1;
	if (a->lost)
		nice_on_loss(p, n, a->delivered, a->prior_delivered);
	/* Slow start: half of Reno's growth, as Vegas doubles every other round. */
	began = nice_phase(n);
	if (began == NICE_SLOW_START && !a->app_limited && !n->reacted) {
		u64 step = (u64)a->acked << (NICE_SHIFT - (p->base == NICE_BASE_VEGAS));

		n->window = nice_min64(nice_min64(n->window + step, nice_slow_start_end(n)),
				       NICE_WINDOW_LIMIT);
	}
	/* Nice 2.3: below two packets the pair is the round, so wait for all of it. That is, until
	 * nothing is in flight or, if pairs overlap, until another round has passed. */
	whole = nice_phase(n) != NICE_PAIRS || a->in_flight <= a->acked + a->lost;
	if (a->acked && (s32)(a->prior_delivered - n->round_end) >= 0) {
		n->round_end = a->delivered;
		if (n->pending)
			whole = 1;
		n->pending = 1;
	}
	if (n->pending && whole)
		nice_round(p, n, a->now_us, began);
}

/* The packets that the transport may have in flight: whole packets, and at least one pair, which
 * the pacing rate spreads (Nice 2.3). The next pair waits for the last one for any time: a single
 * packet would wait at the receiver for a second one. */
static NICE_INLINE u32 nice_cwnd(const struct nice *n, u32 in_flight)
{
	if (nice_phase(n) != NICE_PAIRS)
		return (u32)(n->window >> NICE_SHIFT);
	return in_flight ? in_flight : 2;
}

/*
 * Bytes per second. Below two packets exactly W per RTT, which is a pair each 2/W RTTs, or at least
 * the rate of `progress`. Above, a quarter more than the window needs (twice in slow start). So
 * ACKs set the rate, and pacing only spreads the bursts. Packets are not so far apart that the
 * receiver would acknowledge each one by its timer.
 */
static NICE_INLINE u64 nice_pacing_rate(const struct nice_params *p, const struct nice *n,
					u32 srtt_us, u32 mss)
{
	enum nice_phase phase = nice_phase(n);
	u64 rate;

	if (!srtt_us)
		return 0;
	/* Pairs are far apart, and the mean over eight of them still includes a queue that has
	 * drained. */
	if (phase == NICE_PAIRS && n->last_rtt && n->last_rtt < srtt_us)
		srtt_us = n->last_rtt;
	/* A million is below 2^20: the product fits, or the window is so large that its fraction
	 * does not matter. */
	rate = n->window * mss;
	if (rate < (1ULL << 43))
		rate = (rate * 1000000 / srtt_us) >> NICE_SHIFT;
	else
		rate = (rate >> NICE_SHIFT) * 1000000 / srtt_us;
	if (phase != NICE_PAIRS) {
		rate += phase == NICE_SLOW_START ? rate : rate / 4;
		rate = nice_max64(rate, mss * 1000000ULL / NICE_MAX_SPACING_US);
	} else if (p->refinements & NICE_PROGRESS) {
		rate = nice_max64(rate, progress_lowest_rate(n->connections, srtt_us, mss));
	}
	/* 0 would mean unpaced. */
	return rate ? rate : 1;
}

/* From the first packet of a pair to the second, in microseconds: a quarter of the round trip, so
 * that the first has left any link that holds four packets of this path. */
static NICE_INLINE u32 nice_spacing(const struct nice_params *p, const struct nice *n)
{
	if (nice_phase(n) != NICE_PAIRS || !(p->refinements & NICE_SPACED))
		return 0;
	return nice_min32(n->rtt.min_rtt / 4, NICE_MAX_SPACING_US);
}

#endif
