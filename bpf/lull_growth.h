/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * How fast the window of a path grows: the mirror of crates/cc/src/lull/growth.rs, the reference,
 * which says why each rule is there.
 */
#ifndef LULL_LULL_GROWTH_H
#define LULL_LULL_GROWTH_H

#include "lull_arithmetic.h"
#include "lull_types.h"

#define LULL_HOLD_AT_REMEMBERED_WINDOW 4
#define LULL_HOLD_AT_CAPACITY 16
#define LULL_DOUBLING_ROUNDS 4
#define LULL_MAX_WAIT_US 4000000ULL

static LULL_INLINE void lull_growth_remember_window(struct lull_growth *g, u64 window)
{
	g->remembered_window = lull_max(window, LULL_TWO);
}

static LULL_INLINE void lull_growth_limit_remembered_window(struct lull_growth *g, u64 window)
{
	lull_growth_remember_window(g, lull_min(g->remembered_window, window));
}

static LULL_INLINE void lull_growth_hold_at(struct lull_growth *g, u64 window)
{
	g->remembered_window = window;
	g->hold = LULL_HOLD_AT_CAPACITY;
}

static LULL_INLINE u64 lull_growth_grow_to_remembered_window(struct lull_growth *g, u64 window)
{
	g->beyond = 0;
	if (window < g->remembered_window / 2)
		return window + lull_max(window / 2, LULL_ONE);
	window += lull_max(g->remembered_window / 8, LULL_ONE);
	window = lull_min(window, g->remembered_window);
	if (window == g->remembered_window)
		g->hold = LULL_HOLD_AT_REMEMBERED_WINDOW;
	return window;
}

static LULL_INLINE u64 lull_growth_grow(struct lull_growth *g, u64 window, u64 gentle, bool may_pass,
					u64 full)
{
	u64 step, grown;

	if (window < g->remembered_window)
		return lull_growth_grow_to_remembered_window(g, window);
	if (g->hold || !may_pass) {
		g->hold -= !!g->hold;
		g->beyond = 0;
		return window;
	}
	step = gentle << lull_min(g->beyond / LULL_DOUBLING_ROUNDS, 16);
	grown = window + lull_min(step, window / 4);
	g->beyond++;
	if (window < full && grown >= full) {
		grown = full;
		g->beyond = 0;
		g->hold = LULL_HOLD_AT_REMEMBERED_WINDOW;
	}
	g->remembered_window = lull_max(g->remembered_window, grown);
	return grown;
}

static LULL_INLINE u64 lull_growth_grow_in_shallow(u64 window, u64 step, u64 full)
{
	return lull_min(window + lull_max(lull_min(window / 4, step), LULL_ONE), full);
}

static LULL_INLINE void lull_competition_pause_on_competition(struct lull_competition_pause *r, u64 now_us,
						      u32 min_rtt, bool is_harmful)
{
	bool is_soon = r->wait && now_us < r->last_harm + 4 * r->wait;
	u64 rtt = min_rtt;

	if (is_harmful) {
		r->wait = is_soon ? lull_min(r->wait * 2, LULL_MAX_WAIT_US) : r->wait / 2;
		r->wait = lull_max(r->wait, 8 * rtt);
		r->last_harm = now_us;
	} else if (now_us > r->last_harm + 8 * r->wait) {
		r->wait = 2 * rtt;
	}
	r->last = now_us;
}

static LULL_INLINE bool lull_competition_pause_is_over(const struct lull_competition_pause *r, u64 now_us)
{
	return now_us >= r->last + r->wait;
}

#endif
