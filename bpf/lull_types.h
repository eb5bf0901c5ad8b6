/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The state of `lull` for each path and connection, and its events. lull.h is
 * the algorithm. The includer provides u32 and u64.
 */
#ifndef LULL_LULL_TYPES_H
#define LULL_LULL_TYPES_H

#include "ack.h"
#include "noise_floor_types.h"

#define LULL_SHIFT 16
#define LULL_ONE (1ULL << LULL_SHIFT)
#define LULL_TWO (2ULL << LULL_SHIFT)
/* A window beyond any path of today; keeps every product below 64 bits. */
#define LULL_WINDOW_LIMIT ((1ULL << 20) << LULL_SHIFT)
/* Round-trip times above this are cut: 16.7 s. */
#define LULL_RTT_LIMIT ((1U << 24) - 1)
#define LULL_USUAL_WEIGHT 10
#define LULL_MAX_WEIGHT 100

/* Traffic of this host's foreground connections on the path. */
struct lull_foreground {
	u64 connected_us; /* when the last one began to connect; 0: none has */
	u64 data_us;	  /* when the last packet with data left; 0: none has */
	u64 bytes;	  /* of data so far */
};

/* Packets delivered in a time. */
struct lull_count {
	u64 packets;
	u64 micros;
};

/* Rates are in packets per second, with LULL_RATE_SHIFT fractional bits. */
struct lull_capacity {
	u64 current;
	u64 peak;
	u64 peak_before;
	u64 confirmed;	/* the peak at which a queue of the background's own was seen */
	u64 used_us;	/* of use in which `peak` was collected */
	u64 round_start; /* 0: none to measure */
	u64 ignored_until; /* nothing is measured before */
	u64 packets;	/* delivered in the round */
	struct lull_count last;
	struct lull_count measured;
	struct lull_count longer; /* what may become the peak */
	u32 longer_rounds;
	u32 reserved;
};

/* The lowest value of a time; 0: none. */
struct lull_lowest {
	u64 since;
	u32 now;
	u32 before;
};

struct lull_jitter {
	struct noise_floor floor;
	u32 us;	   /* as the last block without a queue showed it */
	u32 quiet; /* high on a steady path */
};

struct lull_delay {
	struct lull_lowest empty;
	struct lull_lowest full; /* the queue that losses have met */
	struct lull_jitter jitter;
	u32 is_of_small; /* no full packet has come yet: `empty` is of small ones */
	u32 reserved;
};

struct lull_growth {
	u64 remembered_window; /* that the path had room for */
	u32 hold;	       /* rounds to wait for */
	u32 beyond;	       /* rounds beyond the remembered window */
};

struct lull_competition_pause {
	u64 last;
	u64 last_harm;
	u64 wait;
};

struct lull_lead {
	u64 since;
	u64 seen;   /* when the leader was heard of last */
	u32 leader; /* its number; 0: none */
	u32 rounds; /* of the leader so far */
	u32 weight; /* of the leader */
	u32 wants_all; /* the leader uses all of the window that it gets */
};

/* Whether the path keeps flows apart. */
struct lull_fair_queueing {
	u32 keeps_flows_apart; /* the last train was served in turns with others */
	u32 is_due;	       /* the next return is to begin with a train */
	u32 packets;	       /* of the train under way; 0: none */
	u32 free;	       /* trains that have met no others, one after the other */
};

/* Whether the path has become longer. */
struct lull_longer_path {
	u64 since;		     /* when the comparison of pairs began */
	u64 wait;		     /* how long it lasts; 0: the shortest wait */
	struct lull_lowest shorter;  /* to return to if a trial fails */
	u64 floor_since;	     /* when the floor before the trial began */
	u32 low;		     /* the lowest round-trip time since then */
	u32 high;		     /* the highest one */
	u32 samples;		     /* how many there were */
	u32 varying;		     /* comparisons that have shown different queues */
	u64 alike_since;	     /* since when pairs have been alike */
	u32 alike;		     /* the round-trip time of the first of them */
	u32 alike_samples;	     /* how many there were */
	u64 not_before;		     /* when such pairs may begin a trial again */
	u32 tried;		     /* the round-trip time of the last trial */
	u32 holds_back;		     /* a receiver does so with the ACKs of pairs, as it has shown */
	u32 is_trial;
	u32 suspects_receiver;	     /* of that, in the last trial */
	u32 is_no_queue;	     /* the last round-trip time has ended a trial that suspected one */
	u32 reserved;
};

/* When the host's foreground begins and ends. */
struct lull_host {
	struct lull_foreground last;
	u64 looked;
	u64 since;    /* when the interval began */
	u64 bytes;    /* sent before */
	u64 heeded;   /* when a start was heeded last */
	u64 holdoff; /* how long further ones are ignored after that */
	u64 round_start;
	u64 round_bytes;  /* sent before the round, and before the last one */
	u64 before_bytes;
	u32 is_busy;
	u32 is_judging; /* the interval shows what a start comes to */
	u32 is_known;	/* it has been busy */
	u32 reserved;
};

enum lull_phase {
	LULL_START = 0, /* the capacity is unknown */
	LULL_FLOOR = 1, /* others use the path */
	LULL_USE = 2,	/* the background uses it */
};

/* What all connections of a path share. */
struct lull_path {
	struct lull_delay delay;
	struct lull_capacity capacity;
	u64 window;
	u64 window_before; /* the last round's change */
	u64 floor_since;
	struct lull_growth growth;
	struct lull_competition_pause competition_pause;
	struct lull_fair_queueing fair_queueing;
	struct lull_longer_path longer_path;
	struct lull_host host;
	u64 now;	/* the latest time that any connection has named */
	u64 patience;	/* how long the floor lasts at the least, in microseconds */
	u64 idle_share; /* the part of the path that returns have found idle */
	struct lull_lead lead;
	u64 in_flight;	/* packets that all members have in flight, or may have */
	u64 slot;	/* when the last pair is due that was given a time */
	u64 empty_at;	/* when a pair has last met no queue */
	u64 reserved;	/* the part of the window that is left to the host's own foreground */
	u64 reserved_at; /* when that was more than a little */
	u32 phase;	/* enum lull_phase */
	u32 use_rounds; /* of the phase LULL_USE */
	u32 alone;	/* rounds with the whole path */
	u32 members;	/* connections */
	u32 last_number; /* of the connection that joined last */
	u32 drained; /* rounds in which the window was set to what the path delivers */
	u32 explained; /* rounds in a row with a queue that the host's own foreground may have caused */
	u32 empty_by; /* the number of the connection whose pair has met no queue */
};

/* What a connection has of its own. */
struct lull_member {
	u64 window;
	u64 quarter_start; /* when the quarter of a round began */
	u64 next_pair;	/* when the next pair is due, and the pause before it */
	u64 pause;
	u32 number;	/* within the path; 0: of no path */
	u32 weight;	/* how long it leads, relative to others */
	u32 is_using;	/* it carries a part of the path's window; otherwise it sends pairs */
	u32 in_flight;	/* packets in flight, or allowed to be */
	u32 last_rtt;	/* 0: none */
	u32 high;	/* the highest of this round, and of the one before: a loss is found a round after it */
	u32 high_before;
	u32 round_end;
	u32 loss_end;
	u32 started;	/* round_end and loss_end count */
	u32 low;	/* the lowest round-trip time of the round; 0: none */
	u32 low_is_small; /* it is a small packet's */
	u32 unlimited;	/* some packet of the round was limited by the window */
	u32 quarter_low; /* the lowest round-trip time of the quarter */
	u32 quarter_samples; /* its samples so far */
	u32 highest;	/* the highest of the round that no receiver has held back */
	u32 is_train;	/* its window is a train, to be sent at once */
	u32 is_trial;	/* its window shows whether the path is longer */
	u32 has_room;	/* a pace above what the window needs fills no shallow buffer */
	u32 is_apart;	/* it has a longer path than the others */
	u64 apart_last;	/* when its last pair arrived */
	u64 apart_since; /* since when its pairs have been alike, while others met no queue */
	u32 apart_first; /* the round-trip time of the first of them */
	u32 apart_pairs; /* how many there were */
};

#endif
