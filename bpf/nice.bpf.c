// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * TCP Nice as a congestion control of the kernel; with other parameters, Vegas.
 *
 * This file turns the kernel's callbacks into the events of nice.h and writes window and pace
 * back. `cong_control` leaves both wholly to us; what the kernel writes in between
 * (tcp_enter_loss, tcp_init_cwnd_reduction, undo) is overwritten at the next acknowledgement.
 * The kernel paces none of the first ten data segments of a connection, whatever the rate: until
 * then a window below two packets sends a pair each round trip (docs/algorithm.md).
 */
#include "kernel.h"
#define NICE_INLINE inline __attribute__((always_inline))
#define NICE_CALLBACK __attribute__((noinline))
#define NICE_FOR(count, callback, context) bpf_loop(count, callback, context, 0)
#define NICE_OPAQUE(variable) asm volatile("" : "+r"(variable))
#include "nice.h"
#define SOCKET_STATE struct nice
#include "socket.h"

/* Set before loading: NiceParameters::refined() unless told. */
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

/* Connections that are under this congestion control; they share the minimum progress. */
u32 connections = 0;

/* SOL_TCP and TCP_THIN_LINEAR_TIMEOUTS of the kernel's headers. */
enum { LEVEL_TCP = 6, THIN_LINEAR_TIMEOUTS = 16 };

/* Bytes per second between the two packets of a pair: 15 us. */
#define PAIR_RATE 100000000

#define MICROS 1000000ULL

/* The pace at which a packet makes a pause of so many microseconds; 0 would mean unpaced. */
static NICE_INLINE u64 pace_of(u32 bytes, u64 pause_us)
{
	u64 pace = bytes * MICROS / (pause_us ? pause_us : 1);

	return pace ? pace : 1;
}

/* Writes the window and its pace to the socket. */
static NICE_INLINE void apply(struct sock *sk, struct nice *n)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct nice_params p = parameters();
	u64 rate = nice_pacing_rate(&p, n, tp->srtt_us >> 3, tp->mss_cache);

	n->connections = connections;
	/* An fq qdisc sets PACING_FQ, takes what is due later at once, and drops what is due in
	 * more than ten seconds, as a pair at 1/48 may be. TCP's own timer holds it as long as
	 * it takes. */
	sk->sk_pacing_status = PACING_NEEDED;
	if (rate)
		set_pace(sk, rate);
	tp->snd_cwnd = nice_cwnd(n, packets_in_flight(tp));
	/* The second packet of a pair may still be due. */
	if (tp->snd_cwnd < 2 && tp->data_segs_out == n->pair_began + 1)
		tp->snd_cwnd = 2;
}

static NICE_INLINE struct nice *open_socket(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct nice *n = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_CREATE);

	if (!n)
		return 0;
	/* A new connection starts with two packets: ten from each of many flows would overfill
	 * any buffer before the first sample. One that is taken over keeps its window, and has
	 * its slow start behind it. */
	if (!tp->data_segs_out)
		nice_init(n, NICE_TWO, ~0U);
	else
		nice_init(n, (u64)tp->snd_cwnd << NICE_SHIFT, (u64)tp->snd_cwnd << NICE_SHIFT);
	n->bytes_acked = tp->bytes_acked;
	return n;
}

static NICE_INLINE struct nice *find_socket(struct sock *sk)
{
	struct nice *n = bpf_sk_storage_get(&sockets, sk, 0, 0);

	/* The allocation in `init` may have failed; the connection waits with two packets. */
	return n && n->window ? n : open_socket(sk);
}

SEC("struct_ops")
void BPF_PROG(tcp_nice_init, struct sock *sk)
{
	struct nice *n = open_socket(sk);
	struct nice_params p = parameters();
	int on = 1;

	__sync_fetch_and_add(&connections, 1);
	/* Where both packets of a pair are lost in a full buffer, nothing but the retransmission
	 * timer goes on, and each of its doublings is a pause without progress. */
	if (p.refinements & NICE_PROGRESS)
		bpf_setsockopt(sk, LEVEL_TCP, THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
	if (n)
		apply(sk, n);
	else
		tcp_of(sk)->snd_cwnd = 2;
}

/*
 * The kernel asks this before each attempt to send, and takes the pause after a packet from the
 * pacing rate when it sends it. Below two packets two leave together and the pause of 2/W RTTs
 * follows (Nice 2.3). A window of two never lets both go as one buffer (tcp_cwnd_test halves it),
 * so the first is sent at a rate that makes the pause within the pair, and the second at half the
 * rate, which makes it the pause of both.
 */
SEC("struct_ops")
u32 BPF_PROG(tcp_nice_min_tso_segs, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct nice *n = bpf_sk_storage_get(&sockets, sk, 0, 0);
	struct nice_params p = parameters();
	u64 rate, pause, spacing;

	if (!n)
		return 1;
	if (n->window >= NICE_TWO) {
		/* Where the congestion control was chosen in TCP_CONNECT_CB, `init` came before
		 * the handshake, and the kernel's ten packets after it, also where the SYN had
		 * data. */
		if (tp->snd_cwnd > nice_cwnd(n, 0))
			tp->snd_cwnd = nice_cwnd(n, 0);
		return 1;
	}
	/* Between pairs the connection is silent by its own will, so that the beginning of sending
	 * says nothing. A silence begins when the pair might have left. */
	if (tp->data_segs_out && !packets_in_flight(tp) &&
	    tp->tcp_mstamp > tp->tcp_wstamp_ns / 1000 + timeout_us(tp))
		nice_on_idle(n);
	rate = nice_pacing_rate(&p, n, tp->srtt_us >> 3, tp->mss_cache);
	if (!rate)
		return 1;
	sk->sk_pacing_status = PACING_NEEDED;
	spacing = nice_spacing(&p, n);
	if (packets_in_flight(tp) || tp->data_segs_out == n->pair_began + 1) {
		/* The second, or the first had gone alone for want of data. */
		pause = 2ULL * tp->mss_cache * MICROS / rate;
		pause = pause > 2 * spacing ? pause - spacing : pause / 2;
		set_pace(sk, pace_of(tp->mss_cache, pause));
	} else {
		n->pair_began = tp->data_segs_out;
		set_pace(sk, spacing ? pace_of(tp->mss_cache, spacing) : PAIR_RATE);
	}
	return 1;
}

SEC("struct_ops")
u32 BPF_PROG(tcp_nice_ssthresh, struct sock *sk)
{
	struct nice *n = bpf_sk_storage_get(&sockets, sk, 0, 0);

	return n ? nice_cwnd(n, 0) : 2;
}

SEC("struct_ops")
void BPF_PROG(tcp_nice_set_state, struct sock *sk, u8 state)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct nice_params p = parameters();
	struct nice *n;

	if (state < CA_CWR)
		return;
	n = find_socket(sk);
	if (!n)
		return;
	if (state == CA_LOSS) {
		nice_on_timeout(n, tp->delivered);
		return;
	}
	/* What is lost was sent a window ago: where a mark or a loss has cut since, this is the same
	 * congestion. */
	if (state == CA_RECOVERY)
		nice_on_loss(&p, n, tp->delivered, tp->delivered - tp->packets_out);
	else
		nice_on_mark(&p, n, tp->delivered);
	apply(sk, n);
}

/* The socket closes, or goes on with another congestion control, which must not find our pauses. */
SEC("struct_ops")
void BPF_PROG(tcp_nice_release, struct sock *sk)
{
	__sync_fetch_and_sub(&connections, 1);
	/* ~0: the application has set no maximum, which had to be paced without us, too. */
	if (sk->sk_max_pacing_rate == ~0UL)
		sk->sk_pacing_status = PACING_NONE;
	forget(sk);
}

static NICE_INLINE void resume(struct sock *sk)
{
	struct nice *n = bpf_sk_storage_get(&sockets, sk, 0, 0);

	/* Pairs look at this before they are sent. */
	if (!n || n->window < NICE_TWO)
		return;
	if (!was_silent(tcp_of(sk)))
		return;
	nice_on_idle(n);
	apply(sk, n);
}

static NICE_INLINE void acknowledge(struct sock *sk, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct nice_params p = parameters();
	struct nice *n = find_socket(sk);
	struct nice_ack ack = {};
	u64 bytes;

	if (!n) {
		tp->snd_cwnd = 2;
		return;
	}
	ack.now_us = tp->tcp_mstamp;
	ack.delivered = tp->delivered;
	ack.prior_delivered = prior_delivered(tp, rs);
	ack.acked = newly_acked(rs);
	ack.lost = newly_lost(rs);
	ack.in_flight = rs->prior_in_flight;
	ack.app_limited = rs->is_app_limited;
	ack.maybe_delayed = rs->is_ack_delayed;
	/* What is acknowledged selectively is not counted in bytes. */
	bytes = tp->bytes_acked - n->bytes_acked;
	n->bytes_acked = tp->bytes_acked;
	ack.is_small = bytes && bytes < (u64)ack.acked * tp->mss_cache * 3 / 4;
	if (rs->prior_mstamp && rs->rtt_us >= 0)
		ack.rtt_us = rs->rtt_us > NICE_RTT_LIMIT ? NICE_RTT_LIMIT :
			      rs->rtt_us		 ? (u32)rs->rtt_us :
							   1;
	nice_on_ack(&p, n, &ack);
	/* A route may have a largest window (`ip route ... cwnd N`). */
	n->window = nice_min64(n->window, (u64)tp->snd_cwnd_clamp << NICE_SHIFT);
	apply(sk, n);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops nice = {
	.init = (void *)tcp_nice_init,
	.release = (void *)tcp_nice_release,
	.min_tso_segs = (void *)tcp_nice_min_tso_segs,
	.ssthresh = (void *)tcp_nice_ssthresh,
	.set_state = (void *)tcp_nice_set_state,
	.cwnd_event = (void *)socket_cwnd_event,
	.cwnd_event_tx_start = (void *)socket_cwnd_event_tx_start,
	.cong_control = (void *)socket_cong_control,
	.undo_cwnd = (void *)socket_undo_cwnd,
	.name = "nice",
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";
