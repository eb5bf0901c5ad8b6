/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The state and the inputs of TCP Nice for each connection. nice.h is the algorithm; programs that
 * only read the state need only this. The includer provides u32 and u64.
 */
#ifndef LULL_NICE_TYPES_H
#define LULL_NICE_TYPES_H

#include "ack.h"
#include "noise_floor_types.h"
#include "rtt_history_types.h"

#define NICE_SHIFT 16
#define NICE_ONE (1ULL << NICE_SHIFT)
#define NICE_TWO (2ULL << NICE_SHIFT)
/* A window larger than any present path needs; it keeps every product below 64 bits. */
#define NICE_WINDOW_LIMIT ((1ULL << 20) << NICE_SHIFT)
/* Round-trip times above this are limited: 16.7 s keeps window times RTT below 2^60. */
#define NICE_RTT_LIMIT ((1U << 24) - 1)

/* Rounds without congestion until a new flow has the whole threshold. */
#define NICE_PROBATION_ROUNDS 64

/* The step doubles after each eight rounds with a nearly empty queue, up to 2^6. */
#define NICE_EMPTY_ROUNDS 48

/* The acknowledgement of the previous packet must still be delayed when a packet arrives. */
#define NICE_MAX_SPACING_US 20000

/* A window is sent in bursts of a millisecond (tcp_tso_autosize). */
#define NICE_BURST_US 1000

/* Linux delays a single packet's acknowledgement by at least 40 ms, other systems by more. */
#define NICE_RECEIVER_DELAY_US 35000

enum nice_base { NICE_BASE_VEGAS = 0, NICE_BASE_RENO = 1 };

/* Changes beyond the published algorithm; docs/algorithm.md gives reasons and measurements. */
enum nice_refinement {
	NICE_HEADROOM = 1,  /* growth above two packets is limited by the room below the trigger */
	NICE_GENTLE = 2,    /* growth below two packets is half the window */
	NICE_PROBATION = 4, /* a new flow has a quarter of the threshold at first */
	NICE_SPACED = 8,    /* the two packets of a pair are sent apart */
	NICE_RECALL = 16,   /* slow start up to half of the detector's first window in a series of cuts */
	NICE_LEAST = 32,    /* Vegas uses the lowest RTT of a round, not the mean */
	NICE_FULL = 64,	    /* max_rtt, once a loss was seen, is the RTT around it */
	NICE_NOISE = 128,   /* delay that jitter explains is not congestion */
	NICE_PROGRESS = 256, /* a pair is sent once a second, at any delay */
};

/* The reaction to the interference trigger. */
enum nice_detector {
	NICE_DETECTOR_NONE = 0, /* only the base */
	NICE_DETECTOR_HALVES = 1,
	NICE_DETECTOR_TAKES_ONE = 2, /* subtracts one packet, like Vegas: an ablation */
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
	u32 refinements;    /* bits of enum nice_refinement */
};

/* The states of the diagram in crates/cc/src/nice.rs. They follow from the window and the end of
 * slow start, so none is stored. */
enum nice_phase {
	NICE_SLOW_START = 0, /* each ACK raises the window */
	NICE_AVOIDANCE = 1,  /* each round without congestion does */
	NICE_PAIRS = 2,	     /* below two packets, a pair is the round */
};

struct nice {
	/* Time in rounds that ended in a reduction or ran below two packets, with data to send.
	 * First: exec.bpf.c reads it as struct exec_state. */
	u64 yielded_us;
	u64 window;
	u64 ssthresh;
	u64 recall; /* half of the window before the detector's last series of cuts; 0 after others */
	u64 round_start_us;
	u64 rtt_sum;	 /* of the round, weighted by packets */
	u64 bytes_acked; /* the transport's count of acknowledged bytes at the last ACK */
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
	u32 pending;  /* a round has ended, its operation waits for the pair to return */
	u32 reacted;  /* a loss, a mark or a timeout has cut the window in this round */
	u32 unlimited; /* a packet of the round was limited by the window */
	u32 of_small;	/* only small packets have measured the path so far */
	u32 pair_began; /* the transport's: segments sent at the beginning of the pair */
	u32 empty;	/* consecutive rounds with a nearly empty queue */
	u32 quiet;	/* the last round was without congestion */
	u32 clean;	/* rounds without congestion, up to NICE_PROBATION_ROUNDS */
	u32 last_rtt;	/* the previous sample, in any case */
	u32 connections; /* of this host that share the minimum progress */
	struct noise_floor noise;
	struct rtt_history rtt;
};

#endif
