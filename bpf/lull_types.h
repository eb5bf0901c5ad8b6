/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What `lull` keeps for each path and for each of its flows, and what it is told. lull.h is the
 * algorithm. The includer provides u32 and u64.
 */
#ifndef LULL_LULL_TYPES_H
#define LULL_LULL_TYPES_H

#define LULL_SHIFT 16
#define LULL_ONE (1ULL << LULL_SHIFT)
#define LULL_TWO (2ULL << LULL_SHIFT)
/* A window beyond any path of today; keeps every product below 64 bits. */
#define LULL_WINDOW_LIMIT ((1ULL << 20) << LULL_SHIFT)
/* Round-trip times above this are cut: 16.7 s. */
#define LULL_RTT_LIMIT ((1U << 24) - 1)

/* One acknowledgement, as the transport saw it. */
struct lull_ack {
	u64 now_us;
	u32 delivered;	     /* packets delivered so far, this ACK's included */
	u32 prior_delivered; /* the same count when the newest packet of this ACK was sent */
	u32 acked;	     /* packets newly acknowledged or selectively acknowledged */
	u32 lost;	     /* packets newly marked lost */
	u32 in_flight;	     /* packets in flight before this ACK */
	u32 rtt_us;	     /* 0: no sample */
	u32 interval_us; /* time in which the packets since prior_delivered arrived, 0: no sample */
	u32 app_limited; /* the newest packet was sent for want of data, not of window */
	u32 maybe_delayed; /* the transport knows that the receiver may have held this ACK back */
	u32 is_small; /* less than three quarters of a full packet each, on average */
};

/* What connections of this host that are not in the background send on the path. */
struct lull_foreground {
	u64 connected_us; /* when the last one began to connect; 0: none has */
	u64 data_us;	  /* when the last packet with data left; 0: none has */
	u64 recent_bytes; /* of data in the last whole tenth of a second before that */
};

/* What all flows of a path share. */
struct lull_path {
	u64 window;	      /* of the leader */
	u64 rate;	      /* highest delivery rate, packets per second */
	u64 leader_seen_us;   /* last acknowledgement of the leader */
	u64 changed_us;	      /* the window was cut, or the leader changed */
	struct lull_foreground foreground; /* as it was last told */
	u32 base_rtt_us;      /* lowest round-trip time; 0: none was measured */
	u32 members;	      /* flows */
	u32 leader;	      /* number of the flow that uses the window; 0: none */
	u32 last_member;      /* number of the flow that joined last */
};

/* What a flow has of its own. */
struct lull_member {
	u64 window;
	u32 number;	/* within the path; 0: of no path */
	u32 rtt_us;	/* last sample */
	u32 pause_us;	/* from one pair of packets to the next, where it does not lead */
	u32 cut_end;	/* no second reaction before a packet sent after this count is delivered */
};

#endif
