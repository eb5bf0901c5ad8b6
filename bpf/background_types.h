/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The state and the inputs of TCP-Background for each connection. background.h is the algorithm;
 * programs that only read the state need only this. The includer provides u32 and u64.
 */
#ifndef LULL_BACKGROUND_TYPES_H
#define LULL_BACKGROUND_TYPES_H

#define BACKGROUND_SHIFT 16
#define BACKGROUND_ONE (1ULL << BACKGROUND_SHIFT)
#define BACKGROUND_TWO (2ULL << BACKGROUND_SHIFT)
/* A window larger than any present path needs; it keeps every product below 64 bits. */
#define BACKGROUND_WINDOW_LIMIT ((1ULL << 20) << BACKGROUND_SHIFT)
/* The value of an unset slow-start threshold. */
#define BACKGROUND_NO_THRESHOLD 0xffffffffULL
/* Algorithm 1: the window of a new connection, and the maximum after a pause. */
#define BACKGROUND_INITIAL_WINDOW BACKGROUND_ONE

/* The part of the window that a drop leaves, with `amount`. */
enum background_decrease {
	BACKGROUND_LINEAR = 0,	       /* 3.1: less this many packets */
	BACKGROUND_LESS_POWER = 1,     /* 3.2: less its power of this many hundredths */
	BACKGROUND_MULTIPLICATIVE = 2, /* 3.3: this many hundredths of it */
	BACKGROUND_POWER = 3,	       /* 3.4: its power of this many hundredths */
	BACKGROUND_LOGARITHMIC = 4,    /* 3.5: less this multiple of its natural logarithm */
};

/* How far the slow start after a drop goes, with `limit_amount` (3.6, table 5). */
enum background_limit {
	BACKGROUND_NO_REGROWTH = 0,  /* no slow start */
	BACKGROUND_LIMIT_LINEAR = 1, /* the previous window, less this many packets */
	BACKGROUND_LIMIT_POWER = 2,  /* its power of this many hundredths */
};

struct background_params {
	u32 decrease;	  /* enum background_decrease */
	u32 amount;	  /* packets, hundredths or a factor */
	u32 limit;	  /* enum background_limit */
	u32 limit_amount; /* packets or hundredths */
	u32 factor;	  /* 3.6: hundredths of a packet for each acknowledged one */
	u32 hold;	  /* 4.4: hundredths of the power that a timeout leaves; 0: half */
};

/* One acknowledgement, as seen by the transport. */
struct background_ack {
	u32 delivered;	     /* packets delivered so far, this ACK's included */
	u32 prior_delivered; /* the same count when the newest packet of this ACK was sent */
	u32 acked;	     /* packets newly acknowledged or selectively acknowledged */
	u32 lost;	     /* packets newly marked lost */
	u32 app_limited;     /* the application, not the window, limited the newest packet */
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
	u32 reacted;   /* the window was cut, and the packets in flight were sent before that */
	u32 unlimited; /* a packet of the round was limited by the window */
};

#endif
