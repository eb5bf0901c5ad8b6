/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* One acknowledgement, as seen by the transport. The includer provides u32 and u64. */
#ifndef LULL_ACK_H
#define LULL_ACK_H

struct ack {
	u64 now_us;
	u32 delivered;	     /* packets delivered so far, this ACK's included */
	u32 prior_delivered; /* the same count when the newest packet of this ACK was sent */
	u32 acked;	     /* packets newly acknowledged or selectively acknowledged */
	u32 lost;	     /* packets newly marked lost */
	u32 in_flight;	     /* packets in flight before this ACK */
	u32 rtt_us;	     /* 0: no sample */
	u32 app_limited;     /* the application, not the window, limited the newest packet */
	u32 maybe_delayed;   /* the transport knows that the receiver may have delayed this ACK */
	u32 is_small;	     /* less than three quarters of a full packet each, on average */
};

#endif
