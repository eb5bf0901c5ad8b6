/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The state of a path: the mirror of crates/cc/src/lull/path.rs, the reference, which says why each
 * rule is there.
 */
#ifndef LULL_LULL_PATH_H
#define LULL_LULL_PATH_H

#include "lull_arithmetic.h"
#include "lull_capacity.h"
#include "lull_delay.h"
#include "lull_fair_queueing.h"
#include "lull_growth.h"
#include "lull_host.h"
#include "lull_longer_path.h"
#include "lull_minimum_progress.h"
#include "lull_types.h"

#define LULL_MIN_RETURN (4 * LULL_ONE)
#define LULL_SETTLED_ROUNDS 8
#define LULL_ALONE_ROUNDS 16
#define LULL_DRAIN_ROUNDS 4
#define LULL_SHARED_ROUNDS 4
#define LULL_IGNORED_ROUNDS 2
#define LULL_MAX_ROUNDS 100
#define LULL_MAX_PATIENCE_US 2000000ULL
#define LULL_LOSS_PATIENCE_US 500000ULL
#define LULL_SHALLOW_PATIENCE 8
#define LULL_MAX_SHALLOW_PATIENCE 32
#define LULL_SHALLOW_RETURN 16
#define LULL_LONG_FLOOR_US 2000000ULL
#define LULL_LEAD_US 500000ULL
#define LULL_MIN_LEAD_RTTS 8
#define LULL_TRIAL_TRIGGERS 3
#define LULL_IN_FLIGHT_LIMIT (1ULL << 32)
#define LULL_MIN_TRIAL (16 * LULL_ONE)
#define LULL_SHORTER_PART 8
#define LULL_EXPLAINED_ROUNDS 8
#define LULL_ROOM_PART 16
#define LULL_ROOM_RTTS 4

static LULL_INLINE void lull_path_init(struct lull_path *p)
{
	__builtin_memset(p, 0, sizeof(*p));
	p->window = LULL_TWO;
	p->window_before = LULL_TWO;
	p->idle_share = LULL_ONE;
}

static LULL_INLINE u64 lull_path_min_rtt(const struct lull_path *p)
{
	return lull_delay_min_rtt(&p->delay);
}

/* The window of all connections together: without what is left to the host's own foreground. */
static LULL_INLINE u64 lull_path_window(const struct lull_path *p)
{
	u64 least = lull_least_of(p->window, LULL_TWO);
	u64 is_left = lull_is_least(p->window, p->reserved);
	u64 usable = lull_most_of(lull_choose(is_left, p->window - p->reserved, 0), least);

	return lull_choose(lull_is_nonzero(p->fair_queueing.packets), p->window, usable);
}

/* The part of the window that is free beside so many packets in flight. */
static LULL_INLINE u64 lull_path_free_beside(const struct lull_path *p, u64 packets)
{
	return lull_less(lull_path_window(p), lull_min(packets, LULL_IN_FLIGHT_LIMIT) << LULL_SHIFT);
}

/* Whether a connection that does not lead may use this part of the window. */
static LULL_INLINE u64 lull_path_is_worth_sharing(const struct lull_path *p, u64 free)
{
	return lull_is_least(free, p->window / 4) & lull_is_least(free, 2 * LULL_TWO);
}

/* Whether a leader with so many packets in flight leaves too little for any other connection. */
static LULL_INLINE bool lull_path_is_used_up_by(const struct lull_path *p, u32 packets)
{
	u64 free = lull_path_free_beside(p, packets);

	return p->members > 1 && !lull_path_is_worth_sharing(p, free);
}

static LULL_INLINE bool lull_path_is_at_floor(const struct lull_path *p)
{
	return p->phase == LULL_FLOOR;
}

/* The buffer holds little, and others share it. */
static LULL_INLINE bool lull_path_is_shallow(const struct lull_path *p)
{
	return lull_delay_is_shallow(&p->delay) & (p->fair_queueing.keeps_flows_apart ^ 1);
}

static LULL_INLINE u32 lull_path_trigger(const struct lull_path *p)
{
	return lull_delay_trigger(&p->delay, lull_capacity_likely_packet_us(&p->capacity),
				  lull_path_is_shallow(p));
}

/* A queue below this counts as noise: half of the trigger, and at least a packet. */
static LULL_INLINE u32 lull_path_noise_margin(const struct lull_path *p)
{
	return lull_max(lull_path_trigger(p) / 2, lull_capacity_likely_packet_us(&p->capacity));
}

/* The time to go by: clocks of connections may differ a little, and time never goes back. */
static LULL_INLINE u64 lull_path_advance(struct lull_path *p, u64 now_us)
{
	p->now = lull_max(p->now, now_us);
	return p->now;
}

static LULL_INLINE u64 lull_path_full_window(const struct lull_path *p)
{
	return lull_capacity_window(&p->capacity, lull_path_min_rtt(p));
}

static LULL_INLINE u64 lull_path_current_window(const struct lull_path *p)
{
	return lull_capacity_current_window(&p->capacity, lull_path_min_rtt(p));
}

static LULL_INLINE bool lull_path_is_lead_free(const struct lull_path *p, u64 now_us)
{
	u64 silence = lull_min(lull_max(4 * lull_path_min_rtt(p), 200000), 2000000);
	u64 lasts = lull_max(LULL_LEAD_US * p->lead.weight,
			     LULL_MIN_LEAD_RTTS * lull_path_min_rtt(p));
	bool is_due = p->members > 1 && now_us > p->lead.since + lasts;

	return !p->lead.leader || is_due || now_us > p->lead.seen + silence;
}

static LULL_INLINE void lull_path_set_leader(struct lull_path *p, u64 now_us, u32 leader,
						 u32 weight)
{
	p->lead.leader = leader;
	p->lead.since = now_us;
	p->lead.seen = now_us;
	p->lead.rounds = 0;
	p->lead.weight = weight;
	p->lead.wants_all = leader != 0;
	lull_capacity_restart(&p->capacity);
}

static LULL_INLINE u64 lull_path_next_slot(struct lull_path *p, u64 now_us)
{
	u64 packet = lull_capacity_packet_us(&p->capacity);
	u64 pause = lull_minimum_progress_pause(packet, p->members);
	u64 two_rtts;

	if (lull_path_is_at_floor(p))
		pause = lull_min(pause, lull_less(now_us, p->floor_since) / 2);
	two_rtts = 2 * lull_max(lull_path_min_rtt(p), 5000);
	pause = lull_max(pause, lull_min(two_rtts, lull_minimum_progress_longest_pause(p->members)));
	p->slot = lull_min(lull_max(p->slot, now_us) + pause,
			   now_us + lull_minimum_progress_longest_sleep(packet, p->members));
	return p->slot;
}

static LULL_INLINE u64 lull_path_queue_of(const struct lull_path *p, u64 window)
{
	u64 beyond = lull_less(window, lull_path_full_window(p)) >> (LULL_SHIFT / 2);

	return (beyond * lull_capacity_packet_us(&p->capacity)) >> (LULL_SHIFT / 2);
}

static LULL_INLINE u64 lull_path_own_queue(const struct lull_path *p)
{
	return lull_path_queue_of(p, lull_max(p->window, p->window_before));
}

/* What the host's own foreground has sent explains the queue, and has not done so for long. */
static LULL_INLINE u64 lull_path_is_of_host(const struct lull_path *p, u32 low)
{
	u64 own = ((p->reserved >> (LULL_SHIFT / 2)) * lull_capacity_packet_us(&p->capacity)) >>
		  (LULL_SHIFT / 2);

	return (lull_is_least(p->explained, LULL_EXPLAINED_ROUNDS) ^ 1) &
	       (lull_is_least(lull_delay_queue(&p->delay, low), own) ^ 1);
}

/* The host's foreground has needed room in the last rounds. */
static LULL_INLINE u64 lull_path_has_left_room(const struct lull_path *p, u64 now_us)
{
	u64 lasts = LULL_ROOM_RTTS * lull_path_min_rtt(p);

	return lull_is_nonzero(p->reserved_at) &
	       (lull_is_least(now_us, p->reserved_at + lasts) ^ 1);
}

/* The window has made room already. If it fills what that leaves, the path carries no more. */
static LULL_INLINE void lull_path_shrink_beside_host(struct lull_path *p)
{
	u64 full = lull_most_of(lull_path_full_window(p), LULL_TWO);
	u64 is_used = lull_is_least(lull_path_window(p), lull_most_of(full, LULL_MIN_RETURN)) &
		      lull_capacity_is_reached(&p->capacity);

	p->explained++;
	p->window = lull_least_of(p->window, full);
	if (is_used) {
		lull_growth_hold_at(&p->growth, p->window);
		lull_capacity_confirm(&p->capacity);
	}
}

/* The window that may not be passed now: such rounds do not show whether the path carries more. */
static LULL_INLINE u64 lull_path_most_beside_host(const struct lull_path *p, u64 now_us)
{
	u64 full = lull_path_full_window(p);
	u64 more = lull_most_of(full + full / 4, LULL_MIN_RETURN) + p->reserved;

	more = lull_choose(lull_capacity_is_confirmed(&p->capacity), full, more);
	return lull_choose(lull_path_has_left_room(p, now_us), more, LULL_WINDOW_LIMIT);
}

/* A round-trip time that no receiver has held back. Bursts of the host's own foreground are not jitter. */
static LULL_INLINE void lull_path_on_exact_sample(struct lull_path *p, u64 now_us, u32 rtt)
{
	if (!lull_path_has_left_room(p, now_us))
		lull_delay_on_sample(&p->delay, now_us, rtt);
}

static LULL_INLINE void lull_path_enter_use(struct lull_path *p, u32 rounds)
{
	p->phase = LULL_USE;
	p->use_rounds = rounds;
}

/* The first queue shows what the path has room for. */
static LULL_INLINE void lull_path_end_start(struct lull_path *p)
{
	lull_growth_remember_window(&p->growth, lull_min(p->window, lull_path_full_window(p)));
	p->window = p->growth.remembered_window / 8 * 7;
	lull_capacity_confirm(&p->capacity);
	lull_path_enter_use(p, LULL_SETTLED_ROUNDS + 1);
}

static LULL_INLINE void lull_path_end_start_round(struct lull_path *p, bool is_queue, bool unlimited)
{
	if (is_queue)
		lull_path_end_start(p);
	else if (unlimited)
		p->window += p->window / 2;
}

static LULL_INLINE bool lull_path_is_end_of_probe(const struct lull_path *p, u32 low)
{
	u64 least = lull_path_queue_of(p, lull_min(p->window, p->window_before));
	u64 queue = lull_delay_queue(&p->delay, low);
	bool is_there = queue > lull_capacity_packet_us(&p->capacity) && queue * 2 >= least;

	return lull_path_is_shallow(p) && least && is_there;
}

static LULL_INLINE u64 lull_path_packets_in(const struct lull_path *p, u64 micros)
{
	return (micros << LULL_SHIFT) / lull_max(lull_capacity_packet_us(&p->capacity), 1);
}

static LULL_INLINE void lull_path_grow(struct lull_path *p, u64 now_us, u32 trigger)
{
	bool is_shallow = lull_path_is_shallow(p);
	u64 queue = lull_delay_full_queue(&p->delay) / 4;
	u64 step = lull_path_packets_in(p, queue);
	u64 gentle = lull_path_packets_in(p, lull_max(trigger, queue) / 2);
	u64 full = lull_path_full_window(p);
	bool is_known = lull_capacity_is_confirmed(&p->capacity);
	u64 most = lull_path_most_beside_host(p, now_us);
	u64 grown;

	if (p->window >= most)
		return;
	if (is_shallow && (p->window < full || !is_known)) {
		most = is_known ? full : most;
		p->window = lull_growth_grow_in_shallow(p->window, step, most);
		lull_growth_remember_window(&p->growth, p->window);
		if (p->window == most)
			lull_growth_hold_at(&p->growth, full);
		return;
	}
	full = is_known ? full : 0;
	gentle = lull_min(lull_max(gentle, LULL_ONE / 4), p->window / 4);
	grown = lull_growth_grow(&p->growth, p->window, gentle,
				 lull_competition_pause_is_over(&p->competition_pause, now_us), full);
	most = is_shallow ? lull_min(most, p->window + gentle) : most;
	p->window = lull_min(grown, most);
}

static LULL_INLINE void lull_path_end_free_round(struct lull_path *p, u64 now_us, u32 low,
						 u32 trigger, bool unlimited)
{
	p->drained = 0;
	p->explained = 0;
	if (lull_path_is_end_of_probe(p, low)) {
		p->window = lull_path_full_window(p);
		lull_growth_hold_at(&p->growth, p->window);
		lull_capacity_confirm(&p->capacity);
	} else if (unlimited) {
		lull_path_grow(p, now_us, trigger);
	}
	if (p->use_rounds > LULL_SETTLED_ROUNDS)
		p->idle_share = lull_min(p->idle_share + p->idle_share / 4, LULL_ONE);
	p->use_rounds = lull_min(p->use_rounds + 1, LULL_MAX_ROUNDS);
}

static LULL_INLINE void lull_path_on_competition(struct lull_path *p, u64 now_us, bool is_harmful)
{
	lull_competition_pause_on_competition(&p->competition_pause, now_us, lull_path_min_rtt(p), is_harmful);
	p->alone = 0;
}

static LULL_INLINE u64 lull_path_train_pause(const struct lull_path *p)
{
	u64 pause = lull_train_pause(lull_path_full_window(p) >> LULL_SHIFT,
				     lull_capacity_packet_us(&p->capacity), lull_path_min_rtt(p));

	return lull_least_of(pause, LULL_MAX_PATIENCE_US);
}

/* Only pairs from now on, for so many microseconds at the least. */
static LULL_INLINE void lull_path_start_floor(struct lull_path *p, u64 now_us, u64 patience)
{
	struct lull_lowest *empty = &p->delay.empty;
	u64 has_failed = lull_longer_path_fail(&p->longer_path);

	empty->since = lull_choose(has_failed, p->longer_path.shorter.since, empty->since);
	empty->now = lull_choose(has_failed, p->longer_path.shorter.now, empty->now);
	empty->before = lull_choose(has_failed, p->longer_path.shorter.before, empty->before);
	lull_longer_path_restart(&p->longer_path);
	p->patience = patience;
	p->alone = 0;
	p->drained = 0;
	p->explained = 0;
	p->window = LULL_ONE;
	p->phase = LULL_FLOOR;
	p->floor_since = lull_choose(has_failed, p->longer_path.floor_since, now_us);
}

static LULL_INLINE void lull_path_enter_floor(struct lull_path *p, u64 now_us, u32 rounds,
					      u64 patience)
{
	u64 rtt = lull_path_min_rtt(p);
	u64 longer = lull_min(lull_max(2 * p->patience, rtt), LULL_MAX_PATIENCE_US);

	if (p->fair_queueing.keeps_flows_apart) {
		p->patience = lull_choose(lull_is_least(rounds, LULL_SETTLED_ROUNDS), 0, longer);
		patience = lull_path_train_pause(p);
	} else if (lull_delay_is_shallow(&p->delay) &&
		   p->window < lull_path_full_window(p) / 4 * 3) {
		p->patience = lull_min(longer, LULL_MAX_SHALLOW_PATIENCE * rtt);
	} else if (rounds < LULL_SETTLED_ROUNDS) {
		p->patience = longer;
		lull_growth_limit_remembered_window(&p->growth, p->growth.remembered_window / 2);
		p->idle_share = lull_max(p->idle_share / 2, LULL_ONE / 8);
	} else {
		p->patience = 0;
	}
	lull_fair_queueing_on_competition(&p->fair_queueing);
	lull_path_start_floor(p, now_us, lull_max(p->patience, patience));
}

static LULL_INLINE void lull_path_yield_to_others(struct lull_path *p, u64 now_us)
{
	bool was_alone = p->alone >= LULL_ALONE_ROUNDS;
	u64 share = lull_path_current_window(p);
	u64 full = lull_path_full_window(p);
	bool is_harmful = lull_path_is_shallow(p);
	u64 patience = 0;

	p->longer_path.wait = lull_choose(was_alone, 0, p->longer_path.wait);
	p->longer_path.not_before = lull_choose(was_alone, 0, p->longer_path.not_before);
	lull_path_on_competition(p, now_us, is_harmful);
	if (p->fair_queueing.keeps_flows_apart) {
		patience = 0;
	} else if (is_harmful) {
		patience = LULL_SHALLOW_PATIENCE * lull_path_min_rtt(p);
	} else if (p->window >= full / 4 * 3) {
		if (was_alone)
			lull_growth_remember_window(&p->growth, full);
		else
			lull_growth_limit_remembered_window(&p->growth, share / 2);
		patience = 4 * lull_path_min_rtt(p);
	} else if (p->window <= LULL_MIN_RETURN || p->window <= p->growth.remembered_window / 4) {
		lull_growth_limit_remembered_window(
			&p->growth, lull_min(share, p->growth.remembered_window / 2));
	} else {
		lull_growth_limit_remembered_window(&p->growth, share);
		p->window /= 2;
		p->use_rounds = lull_min(p->use_rounds, LULL_SETTLED_ROUNDS);
		return;
	}
	lull_path_enter_floor(p, now_us, p->use_rounds, patience);
}

static LULL_INLINE bool lull_path_is_foreign(const struct lull_path *p, u32 low, u32 trigger)
{
	/* Where capacity varies, a longer queue may be the background's own. */
	return !lull_capacity_is_reached(&p->capacity) ||
	       (!lull_delay_noise(&p->delay) &&
		lull_delay_queue(&p->delay, low) > lull_path_own_queue(p) + trigger);
}

/* Whether the background yields to a queue of a quarter of a round. */
static LULL_INLINE bool lull_path_on_quarter(struct lull_path *p, u64 now_us, u32 low)
{
	u32 trigger = lull_path_trigger(p);

	if (lull_delay_queue(&p->delay, low) <= trigger)
		return false;
	if (p->phase == LULL_START) {
		lull_path_end_start(p);
		return true;
	}
	if (p->phase != LULL_USE || !lull_path_is_shallow(p) ||
	    p->lead.rounds <= LULL_IGNORED_ROUNDS || !lull_path_is_foreign(p, low, trigger) ||
	    lull_path_is_of_host(p, low))
		return false;
	p->window_before = p->window;
	lull_path_yield_to_others(p, now_us);
	return true;
}

/* How many rounds with a queue may empty it, before it counts as others'. */
static LULL_INLINE u32 lull_path_drain_rounds(const struct lull_path *p)
{
	u64 is_shared = (lull_is_least(p->alone, LULL_SHARED_ROUNDS) ^ 1) &
			(lull_path_is_shallow(p) ^ 1);

	return lull_choose(lull_is_nonzero(lull_delay_noise(&p->delay)), LULL_DRAIN_ROUNDS,
			   is_shared);
}

static LULL_INLINE void lull_path_end_queued_round(struct lull_path *p, u64 now_us, u32 low,
						   u32 trigger)
{
	u64 least = lull_max(p->window / 8 * 7, LULL_TWO);

	if (lull_path_is_of_host(p, low)) {
		lull_path_shrink_beside_host(p);
	} else if (!lull_path_is_foreign(p, low, trigger)) {
		p->window = lull_min(lull_max(lull_path_full_window(p), least), p->window);
		lull_growth_hold_at(&p->growth, p->window);
		lull_capacity_confirm(&p->capacity);
	} else if (p->drained < lull_path_drain_rounds(p)) {
		p->drained++;
		least = lull_max(p->window / 2, LULL_MIN_RETURN);
		p->window = lull_min(lull_max(lull_path_current_window(p), least), p->window);
	} else {
		lull_path_yield_to_others(p, now_us);
	}
}

/* The window that a return begins with. */
static LULL_INLINE u64 lull_path_start_window(const struct lull_path *p)
{
	u64 start = ((p->growth.remembered_window * p->idle_share) >> LULL_SHIFT) / 4;
	u64 shallow = lull_path_full_window(p) / LULL_SHALLOW_RETURN;

	start = lull_choose(lull_path_is_shallow(p), shallow, start);
	return lull_most_of(start, LULL_MIN_RETURN);
}

/* Without branches, which the verifier would follow one by one. */
static LULL_INLINE void lull_path_end_train(struct lull_path *p, u64 now_us, u32 low, u32 high)
{
	u64 pause = lull_most_of(p->patience, lull_path_train_pause(p));
	u32 found = lull_fair_queueing_end_train(&p->fair_queueing,
						 lull_delay_queue(&p->delay, low),
						 lull_delay_queue(&p->delay, high),
						 lull_capacity_packet_us(&p->capacity));
	u64 is_shared = lull_is_nonzero(found ^ LULL_FOUND_SHARED) ^ 1;
	u64 are_others = lull_is_nonzero(found ^ LULL_FOUND_OTHERS) ^ 1;
	u64 is_maybe_free = lull_is_nonzero(found ^ LULL_FOUND_MAYBE_FREE) ^ 1;
	u64 is_free = lull_is_nonzero(found ^ LULL_FOUND_FREE) ^ 1;
	u64 full = lull_path_full_window(p);
	u64 quarter = lull_most_of(full / 4, LULL_MIN_RETURN);

	p->window = lull_choose(is_shared, lull_path_start_window(p), p->window);
	p->window = lull_choose(is_free, quarter, p->window);
	p->window = lull_choose(are_others, LULL_ONE, p->window);
	p->growth.remembered_window = lull_choose(is_free, lull_most_of(full, LULL_TWO),
						  p->growth.remembered_window);
	p->idle_share = lull_choose(is_free, LULL_ONE, p->idle_share);
	p->lead.rounds = lull_choose(is_maybe_free, 0, p->lead.rounds);
	p->patience = lull_choose(are_others, pause, p->patience);
	p->alone = lull_choose(are_others, 0, p->alone);
	p->drained = lull_choose(are_others, 0, p->drained);
	p->explained = lull_choose(are_others, 0, p->explained);
	p->longer_path.samples = lull_choose(are_others, 0, p->longer_path.samples);
	p->longer_path.varying = lull_choose(are_others, 0, p->longer_path.varying);
	p->longer_path.alike_samples = lull_choose(are_others, 0, p->longer_path.alike_samples);
	p->phase = lull_choose(are_others, LULL_FLOOR, p->phase);
	p->floor_since = lull_choose(are_others, now_us, p->floor_since);
}

/* A round of a trial of a longer path has ended. */
static LULL_INLINE void lull_path_end_trial_round(struct lull_path *p, u64 now_us, u32 low,
						  bool is_queue, u32 trigger, bool may_grow)
{
	u64 enough = lull_most_of(lull_path_packets_in(p, LULL_TRIAL_TRIGGERS * trigger),
				  LULL_MIN_TRIAL);

	if (is_queue && lull_delay_queue(&p->delay, low) > lull_path_own_queue(p) + trigger) {
		lull_path_start_floor(p, now_us, p->patience);
	} else if (p->window_before >= enough) {
		p->longer_path.is_trial = 0;
		p->longer_path.wait = 0;
		/* The buffer of another path is unknown. */
		__builtin_memset(&p->delay.full, 0, sizeof(p->delay.full));
		lull_growth_remember_window(&p->growth, lull_path_full_window(p));
		p->idle_share = LULL_ONE;
		lull_path_enter_use(p, LULL_SETTLED_ROUNDS);
	} else if (may_grow) {
		p->window += p->window / 2;
	}
}

static LULL_INLINE void lull_path_end_round(struct lull_path *p, u64 now_us, u32 low, u32 high,
					    bool unlimited)
{
	u64 window_before = p->window;
	struct lull_count round = lull_capacity_round(&p->capacity, now_us);
	bool is_heard, is_queue;
	u32 trigger;

	/* The way back needs what was known before others came. */
	if (lull_path_is_at_floor(p) &&
	    lull_delay_queue(&p->delay, low) > lull_path_min_rtt(p) / 4) {
		lull_capacity_stop(&p->capacity);
		return;
	}
	lull_delay_record(&p->delay, now_us, low);
	lull_capacity_end_round(&p->capacity, now_us, 2ULL * lull_delay_noise(&p->delay),
				p->phase == LULL_START);
	LULL_FORGET();
	trigger = lull_path_trigger(p);
	if (lull_capacity_is_reached(&p->capacity))
		p->alone = lull_min(p->alone + 1, LULL_MAX_ROUNDS);
	else if (lull_less(low, lull_path_min_rtt(p)) <= trigger)
		p->alone -= !!p->alone;
	p->lead.rounds++;
	unlimited &= !lull_host_is_beginning(&p->host, now_us, lull_path_min_rtt(p));
	is_heard = p->phase == LULL_USE && p->lead.rounds > LULL_IGNORED_ROUNDS;
	is_queue = lull_delay_queue_of_round(&p->delay, low, round.micros, round.packets) > trigger;
	LULL_FORGET();
	if (p->phase == LULL_START)
		lull_path_end_start_round(p, is_queue, unlimited);
	else if (is_heard && p->longer_path.is_trial)
		lull_path_end_trial_round(p, now_us, low, is_queue, trigger, unlimited);
	else if (is_heard && is_queue)
		lull_path_end_queued_round(p, now_us, low, trigger);
	else if (is_heard)
		lull_path_end_free_round(p, now_us, low, trigger, unlimited);
	else if (p->phase == LULL_USE && p->fair_queueing.packets &&
		 p->lead.rounds == LULL_IGNORED_ROUNDS)
		lull_path_end_train(p, now_us, low, high);
	LULL_FORGET();
	p->window = lull_min(p->window, LULL_WINDOW_LIMIT);
	p->window_before = window_before;
}

/* In a deep buffer the queue of others stays until they have gone. */
static LULL_INLINE void lull_path_on_others_gone(struct lull_path *p, u64 now_us)
{
	if (now_us < p->floor_since + LULL_LONG_FLOOR_US || lull_path_is_shallow(p))
		return;
	lull_growth_remember_window(&p->growth, lull_path_full_window(p));
	p->idle_share = LULL_ONE;
}

/* The host's foreground has ended: the next pair may end the floor. */
static LULL_INLINE void lull_path_on_host_gone(struct lull_path *p, u64 now_us)
{
	if (!lull_path_is_at_floor(p))
		return;
	lull_path_on_others_gone(p, now_us);
	p->patience = 0;
	p->floor_since = now_us;
	p->slot = now_us;
}

static LULL_INLINE void lull_path_on_foreground(struct lull_path *p, u64 now_us,
						const struct lull_foreground *f)
{
	u64 rtt = lull_path_min_rtt(p);
	u32 news = lull_host_handle(&p->host, now_us, f, rtt,
				    lull_capacity_packets_per_second(&p->capacity));
	u64 is_large;

	if (news == LULL_FOREGROUND_BEGINS && !lull_path_is_at_floor(p) && !p->host.is_known)
		p->window = lull_max(p->window / 4, LULL_TWO);
	else if (news == LULL_FOREGROUND_ENDS)
		lull_path_on_host_gone(p, now_us);
	p->reserved = lull_host_room(&p->host, now_us, rtt);
	is_large = lull_is_least(p->window / LULL_ROOM_PART, p->reserved) ^ 1;
	p->reserved_at = lull_choose(is_large, now_us, p->reserved_at);
}

/* A pair at the floor has met a queue. Returns whether a trial of a longer path begins. */
static LULL_INLINE bool lull_path_on_queued_pair(struct lull_path *p, u64 now_us, u32 rtt)
{
	if (!lull_longer_path_on_queue(&p->longer_path, now_us, rtt, lull_path_min_rtt(p),
				       lull_delay_noise(&p->delay)))
		return false;
	p->longer_path.shorter = p->delay.empty;
	p->longer_path.floor_since = p->floor_since;
	p->longer_path.is_trial = 1;
	lull_delay_replace_min_rtt(&p->delay, now_us, p->longer_path.tried);
	p->window = LULL_MIN_RETURN;
	p->window_before = LULL_MIN_RETURN;
	lull_path_enter_use(p, 0);
	return true;
}

/* A round-trip time that is lower than any before. In a trial, the queue of others became shorter, or there
 * is none, and a receiver has only held back pairs. */
static LULL_INLINE void lull_path_on_lowest(struct lull_path *p, u64 now_us, u32 rtt)
{
	struct lull_longer_path *l = &p->longer_path;
	u32 shorter = lull_path_min_rtt(p) - rtt;
	u64 most, is_no_queue;
	u32 min_rtt;

	if (l->is_trial && shorter > lull_path_noise_margin(p) + lull_delay_noise(&p->delay)) {
		lull_path_start_floor(p, now_us, p->patience);
		most = lull_path_noise_margin(p) +
		       lull_choose(l->suspects_receiver, LULL_TRIAL_SPACING_US, 0);
		is_no_queue = lull_is_least(most, lull_delay_queue(&p->delay, rtt));
		l->holds_back |= is_no_queue;
		l->wait = lull_choose(is_no_queue, 0, l->wait);
		l->not_before = lull_choose(is_no_queue, 0, l->not_before);
		l->is_no_queue = is_no_queue;
	}
	LULL_FORGET();
	min_rtt = lull_path_min_rtt(p);
	if (rtt + lull_path_noise_margin(p) < min_rtt)
		lull_capacity_doubt(&p->capacity);
	if (rtt < min_rtt)
		lull_delay_record(&p->delay, now_us, rtt);
	if (rtt < min_rtt / LULL_SHORTER_PART * (LULL_SHORTER_PART - 1))
		lull_capacity_ignore_until(&p->capacity, now_us + min_rtt);
}

static LULL_INLINE bool lull_path_on_sample(struct lull_path *p, u64 now_us, u32 rtt)
{
	u64 memory, packets, most, is_shared, is_queued;

	p->longer_path.is_no_queue = 0;
	if (rtt < lull_path_min_rtt(p))
		lull_path_on_lowest(p, now_us, rtt);
	LULL_FORGET();
	if (!lull_path_is_at_floor(p))
		return false;
	/* More than the packets that others have between a pair's where flows are kept apart. */
	most = lull_path_trigger(p) + 2 * lull_capacity_packet_us(&p->capacity);
	is_shared = lull_is_least(most, lull_delay_queue(&p->delay, rtt)) ^ 1;
	is_shared &= lull_is_least(now_us, p->floor_since + 4 * lull_path_min_rtt(p));
	p->fair_queueing.keeps_flows_apart &= is_shared ^ 1;
	is_queued = lull_is_least(lull_path_noise_margin(p), lull_delay_queue(&p->delay, rtt)) ^ 1;
	if (is_queued & (p->longer_path.is_no_queue ^ 1))
		return lull_path_on_queued_pair(p, now_us, rtt);
	lull_longer_path_restart(&p->longer_path);
	if (now_us < p->floor_since + p->patience)
		return false;
	lull_path_on_others_gone(p, now_us);
	memory = lull_min(lull_path_full_window(p), p->growth.remembered_window);
	lull_growth_remember_window(&p->growth, lull_max(memory, LULL_MIN_RETURN));
	packets = lull_fair_queueing_begin_return(&p->fair_queueing,
						  lull_path_full_window(p) >> LULL_SHIFT,
						  lull_jitter_is_steady(&p->delay.jitter));
	p->window = lull_choose(lull_is_nonzero(packets), packets << LULL_SHIFT,
				lull_path_start_window(p));
	lull_path_enter_use(p, 0);
	if (!packets && !lull_capacity_is_confirmed(&p->capacity)) {
		p->window = LULL_MIN_RETURN;
		p->phase = LULL_START;
	}
	return true;
}

static LULL_INLINE void lull_path_shrink_after_own_loss(struct lull_path *p)
{
	u64 half = p->window / 2;

	if (!lull_path_own_queue(p)) {
		p->window = half;
		return;
	}
	p->window = lull_min(lull_max(lull_path_full_window(p) / 8 * 7, half), p->window);
	lull_growth_hold_at(&p->growth, p->window);
	lull_capacity_confirm(&p->capacity);
}

static LULL_INLINE void lull_path_on_loss_in_use(struct lull_path *p, u64 now_us)
{
	u64 is_return = (lull_is_least(p->use_rounds, LULL_SETTLED_ROUNDS) ^ 1) &
			(p->fair_queueing.keeps_flows_apart ^ 1);
	bool is_competing = (!lull_capacity_is_reached(&p->capacity)) | is_return;

	if (is_competing || p->window <= LULL_MIN_RETURN) {
		lull_path_on_competition(p, now_us, true);
		lull_growth_limit_remembered_window(&p->growth, lull_path_current_window(p) / 2);
		lull_path_enter_floor(p, now_us, p->use_rounds,
				      lull_max(8 * lull_path_min_rtt(p), LULL_LOSS_PATIENCE_US));
	} else {
		lull_path_shrink_after_own_loss(p);
		p->use_rounds = 0;
	}
}

static LULL_INLINE void lull_path_on_loss(struct lull_path *p, u64 now_us, u32 rtt)
{
	if (!lull_path_is_at_floor(p))
		lull_delay_record_full(&p->delay, now_us, rtt);
	if (p->phase == LULL_START) {
		p->window = lull_max(p->window / 2, LULL_TWO);
		lull_growth_remember_window(&p->growth, p->window);
		lull_path_enter_use(p, LULL_SETTLED_ROUNDS + 1);
	} else if (p->phase == LULL_USE && lull_path_is_of_host(p, rtt)) {
		p->window = lull_max(p->window / 2, LULL_TWO);
	} else if (p->phase == LULL_USE) {
		lull_path_on_loss_in_use(p, now_us);
	} else {
		/* A longer path does not lose packets. */
		lull_longer_path_restart(&p->longer_path);
	}
}

static LULL_INLINE void lull_path_on_timeout(struct lull_path *p, u64 now_us)
{
	if (lull_path_is_at_floor(p))
		lull_longer_path_restart(&p->longer_path);
	else
		lull_path_enter_floor(p, now_us,
				      p->phase == LULL_USE ? p->use_rounds : LULL_SETTLED_ROUNDS, 0);
}

#endif
