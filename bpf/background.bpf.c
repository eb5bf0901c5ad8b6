// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * TCP-Background as a congestion control of the kernel; with other parameters, any other protocol
 * of its paper. For networks that serve a lower class last: it does not yield on its own.
 *
 * This file turns the kernel's callbacks into the events of background.h and writes the window
 * back. The kernel's own changes in between (tcp_enter_loss, tcp_init_cwnd_reduction, undo) are
 * overwritten at the next acknowledgement.
 */
#include "kernel.h"
#define BACKGROUND_INLINE inline __attribute__((always_inline))
#include "background.h"
#define SOCKET_STATE struct background
#include "socket.h"

/* Set before loading. Table 5, last row: 0.75 cwnd, then slow start by a half to cwnd^0.95. */
const volatile struct background_params params = {
	.decrease = BACKGROUND_MULTIPLICATIVE,
	.amount = 75,
	.limit = BACKGROUND_LIMIT_POWER,
	.limit_amount = 95,
	.factor = 50,
	.hold = 0,
};

static BACKGROUND_INLINE struct background_params parameters(void)
{
	struct background_params p = {
		.decrease = params.decrease,
		.amount = params.amount,
		.limit = params.limit,
		.limit_amount = params.limit_amount,
		.factor = params.factor,
		.hold = params.hold,
	};

	return p;
}

/* The kernel's default (net.ipv4.tcp_min_tso_segs). */
#define MIN_TSO_SEGS 2

/* The kernel's own limit of a threshold (TCP_INFINITE_SSTHRESH). */
#define NO_SSTHRESH 0x7fffffff

static BACKGROUND_INLINE u32 ssthresh_of(const struct background *b)
{
	return b->ssthresh >= BACKGROUND_NO_THRESHOLD ? NO_SSTHRESH :
							 (u32)(b->ssthresh >> FIXED_SHIFT);
}

/* Writes the window to the socket, and the kernel's default pacing rate. The rate sizes the bursts
 * of segmentation offload, and an fq qdisc spreads packets by it. It is twice the window's rate
 * while the window grows by acknowledgements, otherwise a fifth more. */
static BACKGROUND_INLINE void apply(struct sock *sk, const struct background *b)
{
	struct tcp_sock *tp = tcp_of(sk);
	u32 cwnd = background_cwnd(b);
	u32 srtt = tp->srtt_us >> 3;
	u64 rate;

	tp->snd_cwnd = cwnd;
	tp->snd_ssthresh = ssthresh_of(b);
	if (!srtt)
		return;
	rate = (u64)cwnd * tp->mss_cache * 1000000 / srtt;
	rate += b->phase == BACKGROUND_AVOIDANCE ? rate / 5 : rate;
	set_pace(sk, rate);
}

static BACKGROUND_INLINE struct background *open_socket(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct background *b = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_CREATE);
	u64 window;

	if (!b)
		return 0;
	/* An existing connection keeps its window, and has no slow start. In a new one, its SYN
	 * counts as delivered. */
	if (!tp->data_segs_out) {
		background_init(b, BACKGROUND_INITIAL_WINDOW, BACKGROUND_NO_THRESHOLD);
	} else {
		window = (u64)(tp->snd_cwnd ? tp->snd_cwnd : 1) << FIXED_SHIFT;
		background_init(b, window, window);
	}
	return b;
}

static BACKGROUND_INLINE struct background *find_socket(struct sock *sk)
{
	struct background *b = bpf_sk_storage_get(&sockets, sk, 0, 0);

	/* The allocation in `init` may have failed; the connection waits with two packets. */
	return b && b->window ? b : open_socket(sk);
}

SEC("struct_ops")
void BPF_PROG(tcp_background_init, struct sock *sk)
{
	struct background *b = open_socket(sk);

	if (b)
		apply(sk, b);
	else
		tcp_of(sk)->snd_cwnd = 2;
}

/*
 * The kernel calls this before each attempt to send. If the congestion control was chosen in
 * TCP_CONNECT_CB, `init` came before the handshake. The kernel set ten packets after it (also if
 * the SYN had data). The first flight is that of algorithm 1, as in a connection that chose before.
 */
SEC("struct_ops")
u32 BPF_PROG(tcp_background_min_tso_segs, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct background *b = bpf_sk_storage_get(&sockets, sk, 0, 0);

	if (b && tp->snd_cwnd > background_cwnd(b))
		tp->snd_cwnd = background_cwnd(b);
	return MIN_TSO_SEGS;
}

SEC("struct_ops")
u32 BPF_PROG(tcp_background_ssthresh, struct sock *sk)
{
	struct background *b = bpf_sk_storage_get(&sockets, sk, 0, 0);

	return b ? ssthresh_of(b) : 2;
}

SEC("struct_ops")
void BPF_PROG(tcp_background_set_state, struct sock *sk, u8 state)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct background_params p = parameters();
	struct background *b;

	if (state < CA_CWR)
		return;
	b = find_socket(sk);
	if (!b)
		return;
	if (state == CA_LOSS) {
		background_on_timeout(&p, b, tp->delivered);
		return;
	}
	/* The lost packets were sent a window ago: if a mark or a loss has cut since, this is the
	 * same congestion. */
	if (state == CA_RECOVERY)
		background_on_loss(&p, b, tp->delivered, tp->delivered - tp->packets_out);
	else
		background_drop(&p, b, tp->delivered);
	apply(sk, b);
}

/* The socket closes, or changes to another congestion control, which must not find this state or
 * this pacing rate. */
SEC("struct_ops")
void BPF_PROG(tcp_background_release, struct sock *sk)
{
	forget(sk);
}

static BACKGROUND_INLINE void resume(struct sock *sk)
{
	struct background *b = bpf_sk_storage_get(&sockets, sk, 0, 0);

	if (!b || !b->window || !was_silent(tcp_of(sk)))
		return;
	background_on_idle(b);
	apply(sk, b);
}

static BACKGROUND_INLINE void acknowledge(struct sock *sk, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct background_params p = parameters();
	struct background *b = find_socket(sk);
	struct background_ack ack = {};

	if (!b) {
		tp->snd_cwnd = 2;
		return;
	}
	ack.delivered = tp->delivered;
	ack.prior_delivered = prior_delivered(tp, rs);
	ack.acked = newly_acked(rs);
	ack.lost = newly_lost(rs);
	ack.app_limited = rs->is_app_limited;
	background_on_ack(&p, b, &ack);
	apply(sk, b);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops background = {
	.init = (void *)tcp_background_init,
	.release = (void *)tcp_background_release,
	.min_tso_segs = (void *)tcp_background_min_tso_segs,
	.ssthresh = (void *)tcp_background_ssthresh,
	.set_state = (void *)tcp_background_set_state,
	.cwnd_event = (void *)socket_cwnd_event,
	.cwnd_event_tx_start = (void *)socket_cwnd_event_tx_start,
	.cong_control = (void *)socket_cong_control,
	.undo_cwnd = (void *)socket_undo_cwnd,
	.name = "background",
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";
