/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What every congestion control of ours asks the kernel's socket. The includer has kernel.h.
 */
#ifndef LULL_SOCKET_H
#define LULL_SOCKET_H

#define SOCKET_INLINE inline __attribute__((always_inline))

/* tcp_congestion_ops programs get a tcp_sock under the name of its first member. */
static SOCKET_INLINE struct tcp_sock *tcp_of(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static SOCKET_INLINE u32 packets_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

/* Nothing was sent for more than a retransmission timeout. */
static SOCKET_INLINE bool was_silent(const struct tcp_sock *tp)
{
	return (u32)bpf_jiffies64() - tp->lsndtime > tp->inet_conn.icsk_rto;
}

/* A pace in bytes per second, or what the application allows if that is less
 * (SO_MAX_PACING_RATE): with cong_control the kernel leaves that to us. A pace of 0 would mean
 * none, from whichever side it comes. */
static SOCKET_INLINE void set_pace(struct sock *sk, u64 rate)
{
	u64 most = sk->sk_max_pacing_rate;

	if (most && most < rate)
		rate = most;
	sk->sk_pacing_rate = rate ? rate : 1;
}

/* The count of delivered packets when the newest one of this ACK was sent. Where nothing was
 * delivered: about what the newest packet would remember. */
static SOCKET_INLINE u32 prior_delivered(const struct tcp_sock *tp, const struct rate_sample *rs)
{
	return rs->prior_mstamp ? rs->prior_delivered : tp->delivered - rs->prior_in_flight;
}

static SOCKET_INLINE u32 newly_acked(const struct rate_sample *rs)
{
	return rs->prior_mstamp ? rs->acked_sacked : 0;
}

static SOCKET_INLINE u32 newly_lost(const struct rate_sample *rs)
{
	return rs->losses > 0 ? rs->losses : 0;
}

#endif
