/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What TCP-Background keeps for each connection, and what it is told. background.h is the algorithm;
 * programs that only read the state want this alone. The includer provides u32 and u64.
 */
#ifndef LULL_BACKGROUND_TYPES_H
#define LULL_BACKGROUND_TYPES_H

#define BACKGROUND_SHIFT 16
#define BACKGROUND_ONE (1ULL << BACKGROUND_SHIFT)
#define BACKGROUND_TWO (2ULL << BACKGROUND_SHIFT)
/* A window beyond any path of today; keeps every product below 64 bits. */
#define BACKGROUND_WINDOW_LIMIT ((1ULL << 20) << BACKGROUND_SHIFT)
/* What an unset slow-start threshold holds. */
#define BACKGROUND_NO_THRESHOLD 0xffffffffULL
/* Algorithm 1: the window of a new connection, and the most that a pause leaves. */
#define BACKGROUND_INITIAL_WINDOW BACKGROUND_ONE

/* What a drop leaves of the window, with `amount`. */
enum background_decrease {
	BACKGROUND_LINEAR = 0,	       /* 3.1: less so many packets */
	BACKGROUND_LESS_POWER = 1,     /* 3.2: less its power of so many hundredths */
	BACKGROUND_MULTIPLICATIVE = 2, /* 3.3: so many hundredths of it */
	BACKGROUND_POWER = 3,	       /* 3.4: its power of so many hundredths */
	BACKGROUND_LOGARITHMIC = 4,    /* 3.5: less so many times its natural logarithm */
};

/* How far the slow start after a drop goes, with `limit_amount` (3.6, table 5). */
enum background_limit {
	BACKGROUND_NO_REGROWTH = 0,  /* there is none */
	BACKGROUND_LIMIT_LINEAR = 1, /* the window before, less so many packets */
	BACKGROUND_LIMIT_POWER = 2,  /* its power of so many hundredths */
};

struct background_params {
	u32 decrease;	  /* enum background_decrease */
	u32 amount;	  /* packets, hundredths or a factor */
	u32 limit;	  /* enum background_limit */
	u32 limit_amount; /* packets or hundredths */
	u32 factor;	  /* 3.6: hundredths of a packet for each acknowledged one */
	u32 hold;	  /* 4.4: hundredths of the power that a timeout leaves; 0: half */
};

/* One acknowledgement, as the transport saw it. */
struct background_ack {
	u32 delivered;	     /* packets delivered so far, this ACK's included */
	u32 prior_delivered; /* the same count when the newest packet of this ACK was sent */
	u32 acked;	     /* packets newly acknowledged or selectively acknowledged */
	u32 lost;	     /* packets newly marked lost */
	u32 app_limited;     /* the newest packet was sent for want of data, not of window */
};

enum background_phase {
	BACKGROUND_SLOW_START = 0, /* algorithm 1: at the start and after a timeout */
	BACKGROUND_REGROWTH = 1,   /* 3.6: after a drop */
	BACKGROUND_AVOIDANCE = 2,  /* algorithm 1: a packet a round */
};

struct background {
	u64 window;
	u64 ssthresh;
	u32 round_end; /* the round ends when a packet sent at or after this count is delivered */
	u32 loss_end;  /* no second reaction before a packet sent after this count is delivered */
	u32 phase;     /* enum background_phase */
	u32 started;   /* round_end and loss_end are valid */
	u32 reacted;   /* the window was cut, and what is in flight was sent before that */
	u32 unlimited; /* some packet of the round was limited by the window */
};

#endif
