/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The common part of our congestion controls: their reads of the kernel's socket, the place of
 * their state, and their common callbacks.
 *
 * The includer has kernel.h, defines SOCKET_STATE, the type of the state, and the functions
 * `acknowledge` and `resume`.
 */
#ifndef LULL_SOCKET_H
#define LULL_SOCKET_H

#include "ack.h"

#define SOCKET_INLINE inline __attribute__((always_inline))

/* tcp_congestion_ops programs get a tcp_sock with the type of its first member. */
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

/* The retransmission timeout without backoff (__tcp_set_rto). */
static SOCKET_INLINE u64 timeout_us(const struct tcp_sock *tp)
{
	return (u64)(tp->srtt_us >> 3) + tp->rttvar_us;
}

/* A pacing rate in bytes per second, or the application's limit if that is lower
 * (SO_MAX_PACING_RATE): with cong_control the kernel leaves that to this program. A rate of 0 from
 * either source would mean no pacing. */
static SOCKET_INLINE void set_pace(struct sock *sk, u64 rate)
{
	u64 most = sk->sk_max_pacing_rate;

	if (most && most < rate)
		rate = most;
	sk->sk_pacing_rate = rate ? rate : 1;
}

/* The count of delivered packets when the newest one of this ACK was sent. If none was delivered:
 * about the count at the newest packet's sending. */
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

/* The round-trip time of the newest packet of an ACK, at most `limit`; 0: no sample. */
static SOCKET_INLINE u32 sampled_rtt_us(const struct rate_sample *rs, u32 limit)
{
	if (!rs->prior_mstamp || rs->rtt_us < 0)
		return 0;
	return rs->rtt_us > limit ? limit : rs->rtt_us ? (u32)rs->rtt_us : 1;
}

/* The packets of an ACK were on average smaller than three quarters of a full one. Selectively
 * acknowledged ones are not counted in bytes. `bytes_acked` keeps the socket's count. */
static SOCKET_INLINE bool is_small(const struct tcp_sock *tp, u32 acked, u64 *bytes_acked)
{
	u64 bytes = tp->bytes_acked - *bytes_acked;

	*bytes_acked = tp->bytes_acked;
	return bytes && bytes < (u64)acked * tp->mss_cache * 3 / 4;
}

/* An acknowledgement as the input of an algorithm. Round-trip times are at most `rtt_limit`;
 * `bytes_acked` keeps the socket's count. */
static SOCKET_INLINE void fill_ack(struct ack *ack, const struct tcp_sock *tp,
				   const struct rate_sample *rs, u64 *bytes_acked, u32 rtt_limit)
{
	ack->now_us = tp->tcp_mstamp;
	ack->delivered = tp->delivered;
	ack->prior_delivered = prior_delivered(tp, rs);
	ack->acked = newly_acked(rs);
	ack->lost = newly_lost(rs);
	ack->in_flight = rs->prior_in_flight;
	ack->app_limited = rs->is_app_limited;
	ack->maybe_delayed = rs->is_ack_delayed;
	ack->is_small = is_small(tp, ack->acked, bytes_acked);
	ack->rtt_us = sampled_rtt_us(rs, rtt_limit);
}

/* An acknowledgement, after the kernel's own processing. */
static void acknowledge(struct sock *sk, const struct rate_sample *rs);
/* The first packet after a time with nothing in flight is about to be sent. */
static void resume(struct sock *sk);

/* From Linux 6.10 `cong_control` gets the ACK number and flags before the rate sample. Set before
 * loading. */
const volatile u32 cong_control_has_ack = 1;

/* More than the 104 bytes of icsk_ca_priv, and readable by an iterator over all namespaces. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE_LOCAL);
	__uint(map_flags, BPF_F_NO_PREALLOC_LOCAL);
	__type(key, int);
	__type(value, SOCKET_STATE);
} sockets SEC(".maps");

enum { INITIAL_WINDOW = 10 };

/* Leaves a socket as another congestion control expects it: without state, and with the pacing rate
 * of a new one, which an fq qdisc uses until the next acknowledgement. */
static SOCKET_INLINE void forget(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);

	/* The connection may be in the foreground now, and a new one would be allowed ten packets
	 * (RFC 6928). The window in the background only shows that the background had to yield. The
	 * threshold is kept, so that slow start leads no further than before. If packets are
	 * missing, the window does describe the path. */
	if (!tp->lost_out && !tp->sacked_out && tp->snd_cwnd < INITIAL_WINDOW)
		tp->snd_cwnd = INITIAL_WINDOW;
	sk->sk_pacing_rate = sk->sk_max_pacing_rate;
	bpf_sk_storage_delete(&sockets, sk);
}

SEC("struct_ops")
void socket_cong_control(unsigned long long *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];

	/* The verifier sees only the branch that fits the running kernel. */
	if (cong_control_has_ack)
		acknowledge(sk, (const struct rate_sample *)ctx[3]);
	else
		acknowledge(sk, (const struct rate_sample *)ctx[1]);
}

SEC("struct_ops")
u32 BPF_PROG(socket_undo_cwnd, struct sock *sk)
{
	/* No undo by the kernel raises our window. */
	return tcp_of(sk)->snd_cwnd;
}

/* Before Linux 7.1 the start of sending is one event of many. From there on it has a separate
 * operation, and the others may have moved down to its number. */
SEC("struct_ops")
void BPF_PROG(socket_cwnd_event, struct sock *sk, u32 event)
{
	if (bpf_core_enum_value_exists(enum tcp_ca_event, CA_EVENT_TX_START) &&
	    event == bpf_core_enum_value(enum tcp_ca_event, CA_EVENT_TX_START))
		resume(sk);
}

/* The loader leaves it out if the kernel has no such operation. */
SEC("struct_ops")
void BPF_PROG(socket_cwnd_event_tx_start, struct sock *sk)
{
	resume(sk);
}

#endif
