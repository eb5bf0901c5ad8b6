/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The state of downloads in the background, for each path and connection, and their events.
 * receive.h is the algorithm. The includer provides u32 and u64.
 */
#ifndef LULL_RECEIVE_TYPES_H
#define LULL_RECEIVE_TYPES_H

#include "lull_types.h"

/* Marks that a connection keeps; a power of two. */
#define RECEIVE_MARKS 32

/* What is known when an acknowledgement is about to leave. */
struct receive_arrival {
	u64 now_us;
	u32 packets; /* with data, that have arrived so far, repeated ones included */
	u32 has_echo; /* the connection has time stamps */
	u32 echo; /* TSecr of the newest packet */
	u32 clock; /* TSval of this acknowledgement */
	u32 advertised; /* whole packets of the window of the last acknowledgement */
	u32 granted; /* whole packets that may still arrive by the window that was advertised before */
	u32 blocks; /* of data that have arrived behind missing data */
	u32 reserved;
};

/* What an arrival shows without its path. */
struct receive_news {
	u64 silence;
	u32 acked;
	u32 is_lost;
	u32 rtt_us; /* 0: none */
	u32 reserved;
};

/* An acknowledgement that has left. */
struct receive_mark {
	u64 sent;
	u64 echoed; /* when the first packet that echoes its time stamp arrived; 0: not yet */
	u32 clock;
	u32 packets; /* that had arrived */
	u32 edge; /* the number of the last packet that earlier acknowledgements allowed */
	u32 window; /* packets that its window has room for; 0: less than one */
	u32 part; /* packets that the connection's part of the path's window allows */
	u32 path_window;
};

/* Sums over connections that were heard of in a period. */
struct receive_sums {
	u64 in_flight;
	u64 spare;
	u64 weight;
	u32 downloads;
	u32 reserved;
};

/* What a connection counts for. */
struct receive_account {
	u32 period; /* in which it was heard of last */
	u32 in_flight;
	u32 spare; /* packets of its part of the window that it does not use */
	u32 weight; /* its part of the window, relative to others */
};

/* What all downloads of a path share. */
struct receive_path {
	struct lull_path path;
	u64 since; /* when the period began */
	struct receive_sums heard; /* in this period so far */
	struct receive_sums active;
	u32 period;
	u32 reserved;
};

/* What a connection has of its own. */
struct receive_download {
	struct lull_member member;
	struct receive_mark marks[RECEIVE_MARKS];
	u32 first; /* mark, and the next one */
	u32 next;
	struct receive_account account;
	u64 seen;
	u32 clock; /* the time stamp of the last acknowledgement */
	u32 packets; /* that have arrived, and that had when the newest packet was allowed */
	u32 prior;
	u32 window_then; /* packets of the path's window, and of its part of it, at that time */
	u32 part_then;
	u32 part; /* packets of its part of the path's window; 0: it waits */
	u32 last_rtt; /* 0: none */
	u32 blocks; /* behind missing data, and the packets that had arrived before */
	u32 hole;
	u32 is_lost; /* the hole counts as a loss */
	u32 has_pair; /* it may show whether there is a queue */
	u32 is_last; /* the last acknowledgement was marked */
};

#endif
