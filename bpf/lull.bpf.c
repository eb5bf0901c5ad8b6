// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * `lull` as a congestion control of the kernel: the connections of this host that share a path share
 * one state (lull.h). A connection for which the table of paths has no room runs Nice by itself.
 */
#include <linux/bpf.h>
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "lull_types.h"
#include "nice_types.h"
#include "shared_path_types.h"
#define SOCKET_STATE struct lull_socket
#include "socket.h"

/* Nice's state of the connections without a shared path. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nice);
} unshared_nice_states SEC(".maps");

#define NICE_SOCKETS unshared_nice_states
#include "nice_socket.h"
#define LULL_INLINE inline __attribute__((always_inline))
#include "lull.h"
#include "shared_path.h"

static LULL_INLINE struct lull_socket *state_of(struct sock *sk)
{
	return bpf_sk_storage_get(&sockets, sk, 0, 0);
}

/* Writes the window and its pacing rate to the socket. */
static LULL_INLINE void apply(struct sock *sk, struct lull_socket *s)
{
	struct tcp_sock *tp = tcp_of(sk);
	u64 rate = lull_pacing_rate(&s->member, tp->srtt_us >> 3, tp->mss_cache);
	u32 cwnd = lull_cwnd(&s->member, packets_in_flight(tp));

	/* Like Nice: an fq qdisc must not take over the pacing. */
	sk->sk_pacing_status = PACING_NEEDED;
	if (rate)
		set_pace(sk, rate);
	/* The second packet of a pair may still be due. */
	if (cwnd < 2 && tp->data_segs_out == s->pair_began + 1)
		cwnd = 2;
	/* A route may have a largest window (`ip route ... cwnd N`). */
	if (cwnd > tp->snd_cwnd_clamp)
		cwnd = tp->snd_cwnd_clamp;
	tp->snd_cwnd = cwnd;
}

/* Joins a path, or starts to run Nice. */
static LULL_INLINE void begin(struct sock *sk, struct lull_socket *s)
{
	struct nice *n;

	/* The kernel calls `cong_control` for the ACK of a SYN before `init`: the socket has joined then. */
	leave_path(s);
	s->bytes_acked = tcp_of(sk)->bytes_acked;
	join_path(sk, s);
	if (s->epoch) {
		apply(sk, s);
		return;
	}
	n = nice_socket_open(sk);
	if (n)
		nice_socket_apply(sk, n);
	else
		tcp_of(sk)->snd_cwnd = 2;
}

/* The path of the socket, locked; if it was deleted, the socket joins it again. */
static LULL_INLINE struct shared_path *enter_path(struct sock *sk, struct lull_socket *s)
{
	struct shared_path *p = s->epoch ? lock_path(s) : 0;

	if (p || !s->epoch)
		return p;
	join_path(sk, s);
	return s->epoch ? lock_path(s) : 0;
}

SEC("struct_ops")
void BPF_PROG(lull_init, struct sock *sk)
{
	struct lull_socket *s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_CREATE);

	__sync_fetch_and_add(&connections, 1);
	nice_socket_retry_evenly(sk);
	if (s)
		begin(sk, s);
	else
		tcp_of(sk)->snd_cwnd = 2;
}

/* The socket closes, or changes to another congestion control, which must not find these pauses. */
SEC("struct_ops")
void BPF_PROG(lull_release, struct sock *sk)
{
	struct lull_socket *s = state_of(sk);

	__sync_fetch_and_sub(&connections, 1);
	if (s)
		leave_path(s);
	/* ~0: the application has set no maximum. A maximum would need pacing without this control,
	 * too. */
	if (sk->sk_max_pacing_rate == ~0UL)
		sk->sk_pacing_status = PACING_NONE;
	bpf_sk_storage_delete(&unshared_nice_states, sk);
	forget(sk);
}

/* Whether a packet may leave at this attempt: there is one, new or lost, and no pause before it. */
static LULL_INLINE bool may_send(const struct tcp_sock *tp)
{
	bool has_data = tp->write_seq != tp->snd_nxt || tp->lost_out > tp->retrans_out;

	return has_data && tp->tcp_wstamp_ns / 1000 <= tp->tcp_mstamp;
}

static LULL_INLINE void ask_path(struct sock *sk, struct lull_socket *s)
{
	struct tcp_sock *tp = tcp_of(sk);
	u64 now_us = tp->tcp_mstamp, next_pair = s->member.next_pair;
	struct shared_path *p = enter_path(sk, s);
	bool is_at_floor;

	if (!p)
		return;
	begin_event(p, now_us);
	lull_on_send(&p->state, &s->member, now_us, tp->delivered);
	is_at_floor = lull_path_is_at_floor(&p->state);
	bpf_spin_unlock(&p->lock);
	if (is_at_floor && s->member.next_pair != next_pair)
		s->yielded_us += s->member.pause;
	apply(sk, s);
}

/* The kernel calls this before each attempt to send. */
SEC("struct_ops")
u32 BPF_PROG(lull_min_tso_segs, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct lull_socket *s = state_of(sk);
	struct nice *n;
	u64 rate;

	if (!s)
		return 1;
	if (s->epoch && !packets_in_flight(tp) && may_send(tp))
		ask_path(sk, s);
	if (!s->epoch) {
		n = nice_socket_state(sk);
		if (n)
			nice_socket_send(sk, n);
		return 1;
	}
	if (s->member.window >= LULL_TWO) {
		if (tp->snd_cwnd > lull_cwnd(&s->member, 0))
			tp->snd_cwnd = lull_cwnd(&s->member, 0);
		return 1;
	}
	rate = lull_pacing_rate(&s->member, tp->srtt_us >> 3, tp->mss_cache);
	if (rate)
		pace_pair(sk, &s->pair_began, rate, lull_spacing(&s->member));
	return 1;
}

SEC("struct_ops")
u32 BPF_PROG(lull_ssthresh, struct sock *sk)
{
	struct lull_socket *s = state_of(sk);
	struct nice *n;

	if (s && s->epoch)
		return lull_cwnd(&s->member, 0);
	n = nice_socket_state(sk);
	return n ? nice_cwnd(n, 0) : 2;
}

SEC("struct_ops")
void BPF_PROG(lull_set_state, struct sock *sk, u8 state)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct lull_socket *s;
	struct shared_path *p;
	struct nice *n;
	u64 now_us = tp->tcp_mstamp;

	if (state < CA_CWR)
		return;
	s = state_of(sk);
	if (!s)
		return;
	p = enter_path(sk, s);
	if (!p) {
		n = nice_socket_find(sk);
		if (n)
			nice_socket_set_state(sk, n, state);
		return;
	}
	begin_event(p, now_us);
	/* The lost packets were sent a window ago: if a mark or a loss has reduced the window since, this
	 * is the same congestion. */
	if (state == CA_LOSS)
		lull_on_timeout(&p->state, &s->member, now_us, tp->delivered);
	else if (state != CA_RECOVERY ||
		 lull_is_new_loss(&s->member, tp->delivered - tp->packets_out))
		lull_on_loss(&p->state, &s->member, now_us, tp->delivered);
	bpf_spin_unlock(&p->lock);
	apply(sk, s);
}

/* Whether the receiver or SO_MAX_PACING_RATE leaves a part of the socket's window unused. Others
 * may use that part, and it must not grow. */
static LULL_INLINE bool is_held_back(const struct sock *sk, const struct lull_socket *s)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	u64 bytes = (s->member.window >> LULL_SHIFT) * tp->mss_cache;

	return lull_is_least(bytes, tp->snd_wnd + 1ULL) |
	       lull_is_least(sk->sk_pacing_rate, sk->sk_max_pacing_rate & ~(1ULL << 63));
}

static LULL_INLINE void acknowledge_shared(struct sock *sk, struct lull_socket *s,
					   struct shared_path *p, const struct ack *ack)
{
	u64 rtt_us = tcp_of(sk)->srtt_us >> 3;
	bool leaves_room;

	begin_event(p, ack->now_us);
	lull_on_ack(&p->state, &s->member, ack);
	leaves_room = !lull_path_is_at_floor(&p->state) &&
		      lull_path_has_left_room(&p->state, ack->now_us);
	bpf_spin_unlock(&p->lock);
	/* Without the time in which nothing was in flight. */
	if (leaves_room && !ack->app_limited && s->acked_us)
		s->yielded_us += lull_min(lull_less(ack->now_us, s->acked_us), rtt_us);
	s->acked_us = ack->now_us;
	if (s->member.is_apart)
		part_from_path(sk, s);
	if (s->epoch)
		apply(sk, s);
}

static LULL_INLINE void resume(struct sock *sk)
{
	struct lull_socket *s = state_of(sk);
	struct nice *n = s && !s->epoch ? nice_socket_state(sk) : 0;

	/* A socket with a shared path was checked before this attempt to send. */
	if (n)
		nice_socket_resume(sk, n);
}

static LULL_INLINE void acknowledge(struct sock *sk, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct lull_socket *s = state_of(sk);
	struct ack ack = {};
	struct shared_path *p;
	struct nice *n;
	bool was_alone;

	if (!s) {
		/* The allocation in `init` has failed; the connection waits with two packets. */
		s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_CREATE);
		if (s)
			begin(sk, s);
		else
			tp->snd_cwnd = 2;
		return;
	}
	was_alone = !s->epoch;
	follow_path(sk, s);
	/* If it is alone again, it starts with its window at that time. */
	if (was_alone && s->epoch)
		bpf_sk_storage_delete(&unshared_nice_states, sk);
	p = enter_path(sk, s);
	if (!p) {
		n = nice_socket_find(sk);
		if (n)
			nice_socket_acknowledge(sk, n, rs);
		else
			tp->snd_cwnd = 2;
		return;
	}
	fill_ack(&ack, tp, rs, &s->bytes_acked, LULL_RTT_LIMIT);
	ack.app_limited |= is_held_back(sk, s);
	acknowledge_shared(sk, s, p, &ack);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lull = {
	.init = (void *)lull_init,
	.release = (void *)lull_release,
	.min_tso_segs = (void *)lull_min_tso_segs,
	.ssthresh = (void *)lull_ssthresh,
	.set_state = (void *)lull_set_state,
	.cwnd_event = (void *)socket_cwnd_event,
	.cwnd_event_tx_start = (void *)socket_cwnd_event_tx_start,
	.cong_control = (void *)socket_cong_control,
	.undo_cwnd = (void *)socket_undo_cwnd,
	.name = "lull",
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";
