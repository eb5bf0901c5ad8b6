/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What TCP Nice keeps for each connection, and what it is told. nice.h is the algorithm; programs
 * that only read the state want this alone. The includer provides u32 and u64.
 */
#ifndef LULL_NICE_TYPES_H
#define LULL_NICE_TYPES_H

#include "ack.h"
#include "noise_floor_types.h"
#include "rtt_history_types.h"

#define NICE_SHIFT 16
#define NICE_ONE (1ULL << NICE_SHIFT)
#define NICE_TWO (2ULL << NICE_SHIFT)
/* A window beyond any path of today; keeps every product below 64 bits. */
#define NICE_WINDOW_LIMIT ((1ULL << 20) << NICE_SHIFT)
/* Round-trip times above this are cut: 16.7 s keeps window times RTT below 2^60. */
#define NICE_RTT_LIMIT ((1U << 24) - 1)

/* Rounds without congestion until a new flow has the whole threshold. */
#define NICE_PROBATION_ROUNDS 64

/* The step doubles with each eight rounds in which the queue was as good as empty, up to 2^6. */
#define NICE_EMPTY_ROUNDS 48

/* A packet must find the acknowledgement of the one before still held back. */
#define NICE_LARGEST_SPACING_US 20000

/* A window leaves in bursts of a millisecond (tcp_tso_autosize). */
#define NICE_BURST_US 1000

/* Linux holds a single packet's acknowledgement back by 40 ms at the least, others by more. */
#define NICE_RECEIVER_DELAY_US 35000

enum nice_base { NICE_BASE_VEGAS = 0, NICE_BASE_RENO = 1 };

/* What goes beyond the letter of the papers; docs/algorithm.md says why, with measurements. */
enum nice_refinement {
	NICE_HEADROOM = 1,  /* growth above two packets is limited by the room below the trigger */
	NICE_GENTLE = 2,    /* growth below two packets is half the window */
	NICE_PROBATION = 4, /* a new flow has a quarter of the threshold at first */
	NICE_SPACED = 8,    /* the two packets of a pair leave apart */
	NICE_RECALL = 16,   /* slow start to half of where the detector's run of cuts began */
	NICE_LEAST = 32,    /* Vegas looks at the least RTT of a round, not at the mean */
	NICE_FULL = 64,	    /* max_rtt, once a loss was seen, is the RTT around it */
	NICE_NOISE = 128,   /* delay that jitter explains is no congestion */
	NICE_PROGRESS = 256, /* a pair leaves once a second, whatever the delay says */
};

/* What the interference trigger does. */
enum nice_detector {
	NICE_DETECTOR_NONE = 0, /* the base alone */
	NICE_DETECTOR_HALVES = 1,
	NICE_DETECTOR_TAKES_ONE = 2, /* a packet off, as Vegas does: an ablation */
};

struct nice_params {
	u64 min_window;	    /* Nice 2.3: 1/48 */
	u32 threshold;	    /* t of Nice 2.2, 16 fractional bits */
	u32 fraction;	    /* f of Nice 2.2, 16 fractional bits */
	u32 alpha;	    /* Vegas, packets with 16 fractional bits */
	u32 beta;	    /* Vegas, packets with 16 fractional bits */
	u32 delay_floor_us; /* queueing delay that never counts as congestion */
	u32 base;	    /* enum nice_base */
	u32 detector;	    /* enum nice_detector */
	u32 refinements;    /* of enum nice_refinement */
};

struct nice {
	/* Time in rounds that ended in a reduction or ran below two packets, with something to send.
	 * First: exec.bpf.c reads it as struct exec_state. */
	u64 yielded_us;
	u64 window;
	u64 ssthresh;
	u64 recall; /* half of where the detector's run of cuts began; 0 after any other cut */
	u64 round_start_us;
	u64 rtt_sum;	 /* of the round, weighted by packets */
	u64 bytes_acked; /* the transport's: what was acknowledged at the last ACK */
	u32 round_end; /* the round ends when a packet sent at or after this count is delivered */
	u32 loss_end;  /* no second reaction before a packet sent after this count is delivered */
	u32 num_cong;
	u32 num_sampled;
	u32 round_low;
	u32 round_high;
	u32 last_high;
	u32 rounds;
	u32 rounds_congested;
	u32 started;  /* round_end and loss_end are valid */
	u32 pending;  /* a round has passed, its operation waits for the pair to return */
	u32 reacted;  /* a loss, a mark or a timeout has cut the window in this round */
	u32 unlimited; /* some packet of the round was limited by the window */
	u32 of_small;	/* nothing but small packets has shown the path so far */
	u32 pair_began; /* the transport's: segments sent when the pair was begun */
	u32 empty;	/* rounds in a row in which the queue was as good as empty */
	u32 quiet;	/* the last round was without congestion */
	u32 clean;	/* rounds without congestion, up to NICE_PROBATION_ROUNDS */
	u32 last_rtt;	/* the sample before, whatever it was good for */
	u32 connections; /* of this host that share the minimum progress */
	struct noise_floor noise;
	struct rtt_history rtt;
};

#endif
