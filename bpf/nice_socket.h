/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * TCP Nice on a socket of the kernel: turns the kernel's callbacks into the events of nice.h, and
 * writes window and pacing rate back. With `cong_control`, the kernel leaves both to this file. The
 * kernel's own changes in between (tcp_enter_loss, tcp_init_cwnd_reduction, undo) are overwritten
 * at the next acknowledgement.
 *
 * The kernel does not pace the first ten data segments of a connection at any rate. Until then, a
 * window below two packets sends a pair each round trip (docs/algorithm.md).
 *
 * The includer has socket.h, and defines NICE_SOCKETS, the map with the state of each socket.
 */
#ifndef LULL_NICE_SOCKET_H
#define LULL_NICE_SOCKET_H

#define NICE_INLINE inline __attribute__((always_inline))
#define NICE_VERIFIED_ONCE __attribute__((noinline))
#define NICE_OPAQUE(variable) asm volatile("" : "+r"(variable))
#include "nice.h"
#include "pair.h"

/* Set before loading: NiceParameters::refined() by default. */
const volatile struct nice_params params = {
	.min_window = NICE_ONE / 48,
	.threshold = NICE_ONE / 5,
	.fraction = NICE_ONE / 2,
	.alpha = NICE_ONE,
	.beta = 3 * NICE_ONE,
	.delay_floor_us = 500,
	.base = NICE_BASE_VEGAS,
	.detector = NICE_DETECTOR_HALVES,
	.refinements = NICE_HEADROOM | NICE_GENTLE | NICE_PROBATION | NICE_SPACED | NICE_RECALL |
		       NICE_LEAST | NICE_FULL | NICE_NOISE | NICE_PROGRESS,
};

static NICE_INLINE struct nice_params parameters(void)
{
	struct nice_params p = {
		.min_window = params.min_window,
		.threshold = params.threshold,
		.fraction = params.fraction,
		.alpha = params.alpha,
		.beta = params.beta,
		.delay_floor_us = params.delay_floor_us,
		.base = params.base,
		.detector = params.detector,
		.refinements = params.refinements,
	};

	return p;
}

/* Connections under this congestion control; they share the minimum progress. */
u32 connections = 0;

/* SOL_TCP and TCP_THIN_LINEAR_TIMEOUTS of the kernel's headers. */
enum { LEVEL_TCP = 6, THIN_LINEAR_TIMEOUTS = 16 };

static NICE_INLINE struct nice *nice_socket_state(struct sock *sk)
{
	return bpf_sk_storage_get(&NICE_SOCKETS, sk, 0, 0);
}

/* Writes the window and its pacing rate to the socket. */
static NICE_INLINE void nice_socket_apply(struct sock *sk, struct nice *n)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct nice_params p = parameters();
	u64 rate = nice_pacing_rate(&p, n, tp->srtt_us >> 3, tp->mss_cache);

	n->connections = connections;
	/* An fq qdisc sets PACING_FQ, accepts packets that are due later at once, and drops those
	 * that are due in more than ten seconds. That is possible for a pair at 1/48. TCP's own
	 * timer holds a packet for any time. */
	sk->sk_pacing_status = PACING_NEEDED;
	if (rate)
		set_pace(sk, rate);
	tp->snd_cwnd = nice_cwnd(n, packets_in_flight(tp));
	/* The second packet of a pair may still be due. */
	if (tp->snd_cwnd < 2 && tp->data_segs_out == n->pair_began + 1)
		tp->snd_cwnd = 2;
}

static NICE_INLINE struct nice *nice_socket_open(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct nice *n = bpf_sk_storage_get(&NICE_SOCKETS, sk, 0, BPF_SK_STORAGE_CREATE);

	if (!n)
		return 0;
	/* A new connection starts with two packets: ten from each of many flows would overfill any
	 * buffer before the first sample. An existing one keeps its window, and has no slow
	 * start. */
	if (!tp->data_segs_out)
		nice_init(n, NICE_TWO, ~0U);
	else
		nice_init(n, (u64)tp->snd_cwnd << NICE_SHIFT, (u64)tp->snd_cwnd << NICE_SHIFT);
	n->bytes_acked = tp->bytes_acked;
	return n;
}

static NICE_INLINE struct nice *nice_socket_find(struct sock *sk)
{
	struct nice *n = nice_socket_state(sk);

	/* The allocation in `init` may have failed; the connection waits with two packets. */
	return n && n->window ? n : nice_socket_open(sk);
}

/* If both packets of a pair are lost in a full buffer, only the retransmission timer continues.
 * Each of its doublings is a pause without progress. */
static NICE_INLINE void nice_socket_retry_evenly(struct sock *sk)
{
	struct nice_params p = parameters();
	int on = 1;

	if (p.refinements & NICE_PROGRESS)
		bpf_setsockopt(sk, LEVEL_TCP, THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
}

/* Before each attempt to send. */
static NICE_INLINE void nice_socket_send(struct sock *sk, struct nice *n)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct nice_params p = parameters();
	u64 rate;

	if (nice_phase(n) != NICE_PAIRS) {
		/* If the congestion control was chosen in TCP_CONNECT_CB, `init` came before the
		 * handshake. The kernel set ten packets after it, also if the SYN had data. */
		if (tp->snd_cwnd > nice_cwnd(n, 0))
			tp->snd_cwnd = nice_cwnd(n, 0);
		return;
	}
	/* Between pairs the connection is intentionally silent, so the start of sending has no
	 * meaning. A silence begins when the pair could have been sent. */
	if (tp->data_segs_out && !packets_in_flight(tp) &&
	    tp->tcp_mstamp > tp->tcp_wstamp_ns / 1000 + timeout_us(tp))
		nice_on_idle(n);
	rate = nice_pacing_rate(&p, n, tp->srtt_us >> 3, tp->mss_cache);
	if (rate)
		pace_pair(sk, &n->pair_began, rate, nice_spacing(&p, n));
}

static NICE_INLINE void nice_socket_set_state(struct sock *sk, struct nice *n, u8 state)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct nice_params p = parameters();

	if (state == CA_LOSS) {
		nice_on_timeout(n, tp->delivered);
		return;
	}
	/* The lost packets were sent a window ago: if a mark or a loss has cut since, this is the
	 * same congestion. */
	if (state == CA_RECOVERY)
		nice_on_loss(&p, n, tp->delivered, tp->delivered - tp->packets_out);
	else
		nice_on_mark(&p, n, tp->delivered);
	nice_socket_apply(sk, n);
}

/* The first packet after a time with nothing in flight is about to be sent. */
static NICE_INLINE void nice_socket_resume(struct sock *sk, struct nice *n)
{
	/* Pairs read this before they are sent. */
	if (nice_phase(n) == NICE_PAIRS || !was_silent(tcp_of(sk)))
		return;
	nice_on_idle(n);
	nice_socket_apply(sk, n);
}

static NICE_INLINE void nice_socket_acknowledge(struct sock *sk, struct nice *n,
						const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct nice_params p = parameters();
	struct ack ack = {};

	fill_ack(&ack, tp, rs, &n->bytes_acked, NICE_RTT_LIMIT);
	nice_on_ack(&p, n, &ack);
	/* A route may have a largest window (`ip route ... cwnd N`). */
	n->window = nice_min64(n->window, (u64)tp->snd_cwnd_clamp << NICE_SHIFT);
	nice_socket_apply(sk, n);
}

#endif
