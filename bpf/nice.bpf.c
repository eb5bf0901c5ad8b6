// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * TCP Nice as a congestion control of the kernel; with other parameters, Vegas.
 */
#include "kernel.h"
#include "nice_types.h"
#define SOCKET_STATE struct nice
#include "socket.h"
#define NICE_SOCKETS sockets
#include "nice_socket.h"

SEC("struct_ops")
void BPF_PROG(tcp_nice_init, struct sock *sk)
{
	struct nice *n = nice_socket_open(sk);

	__sync_fetch_and_add(&connections, 1);
	nice_socket_retry_evenly(sk);
	if (n)
		nice_socket_apply(sk, n);
	else
		tcp_of(sk)->snd_cwnd = 2;
}

SEC("struct_ops")
u32 BPF_PROG(tcp_nice_min_tso_segs, struct sock *sk)
{
	struct nice *n = nice_socket_state(sk);

	if (n)
		nice_socket_send(sk, n);
	return 1;
}

SEC("struct_ops")
u32 BPF_PROG(tcp_nice_ssthresh, struct sock *sk)
{
	struct nice *n = nice_socket_state(sk);

	return n ? nice_cwnd(n, 0) : 2;
}

SEC("struct_ops")
void BPF_PROG(tcp_nice_set_state, struct sock *sk, u8 state)
{
	struct nice *n;

	if (state < CA_CWR)
		return;
	n = nice_socket_find(sk);
	if (n)
		nice_socket_set_state(sk, n, state);
}

/* The socket closes, or changes to another congestion control, which must not find these pauses. */
SEC("struct_ops")
void BPF_PROG(tcp_nice_release, struct sock *sk)
{
	__sync_fetch_and_sub(&connections, 1);
	/* ~0: the application has set no maximum. A maximum would need pacing without this control,
	 * too. */
	if (sk->sk_max_pacing_rate == ~0UL)
		sk->sk_pacing_status = PACING_NONE;
	forget(sk);
}

static NICE_INLINE void resume(struct sock *sk)
{
	struct nice *n = nice_socket_state(sk);

	if (n)
		nice_socket_resume(sk, n);
}

static NICE_INLINE void acknowledge(struct sock *sk, const struct rate_sample *rs)
{
	struct nice *n = nice_socket_find(sk);

	if (n)
		nice_socket_acknowledge(sk, n, rs);
	else
		tcp_of(sk)->snd_cwnd = 2;
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
