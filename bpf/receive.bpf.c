// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * What `lull exec` attaches to a cgroup so that what its processes receive yields: the window that
 * their TCP connections advertise follows receive.h. Senders need nothing.
 *
 * The kernel calls BPF_SOCK_OPS_HDR_OPT_LEN_CB for each segment that is about to leave, before it
 * chooses the window that the segment advertises. No option is added.
 */
#include <linux/bpf.h>
#include "kernel.h"
#include <bpf/bpf_endian.h>
#define LULL_INLINE inline __attribute__((always_inline))
#define NICE_INLINE inline __attribute__((always_inline))
#include "exec_sockets.h"
#include "receive.h"
#include "receive_path.h"

/* Set before loading. */
const volatile u32 weight = LULL_USUAL_WEIGHT;
/* The cgroup is that of a process before `lull exec --pid` moved it: only its sockets that lull_adopt() is called for
 * yield. */
const volatile bool is_adopting = false;

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct receive_socket);
} downloads SEC(".maps");

/* Listeners from before, which new connections inherit. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, u32);
} adopted_listeners SEC(".maps");

enum {
	LEVEL_TCP = 6,
	OPTION_WINDOW_CLAMP = 10,
	/* TCP_BPF_SOCK_OPS_CB_FLAGS, from Linux 6.12. */
	OPTION_CALLBACK_FLAGS = 1008,
	/* No option of the kernel: existing_sockets.rs (ADOPT) calls lull_adopt() by it. */
	OPTION_ADOPT = 0x6c756c6c,
	ETHERNET_IP = 0x0800,
	ETHERNET_IPV6 = 0x86dd,
	PROTOCOL_TCP = 6,
	STATE_CLOSE = 7,
	STATE_LISTEN = 10,
	/* Packets that the SYN allows. */
	FIRST_WINDOW = 2,
	/* A larger clamp makes the kernel choose a window scale above 7, and then the least window is more
	 * than a packet. */
	MAX_CLAMP = (8 << 20) - 1,
	/* Less than a packet: what the kernel makes of less (SOCK_MIN_RCVBUF / 2). */
	MIN_CLAMP = 1152,
	/* The 12 bytes of options with a time stamp that Linux sends: two of padding, kind, length. */
	TIME_STAMP_OPTION = 0x0101080a,
	TIME_STAMP_BYTES = 32,
};

static LULL_INLINE void set_clamp(struct bpf_sock_ops *ops, int bytes)
{
	bpf_setsockopt(ops, LEVEL_TCP, OPTION_WINDOW_CLAMP, &bytes, sizeof(bytes));
}

/* The program's own clamp; without one, the largest. */
static LULL_INLINE u32 own_clamp(struct bpf_sock *sk)
{
	u32 *own = bpf_sk_storage_get(&window_clamps, sk, 0, 0);

	return own && *own ? *own : MAX_CLAMP;
}

/* RFC 9840, "Setting the Window Scale Option": at this scale a window can be less than a packet. It follows from the clamp that
 * the socket has when it connects. */
static LULL_INLINE void limit_scale(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	if (sk)
		set_clamp(ops, lull_least_of(own_clamp(sk), MAX_CLAMP));
}

enum { CALLBACKS = BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG };

static LULL_INLINE void begin(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct receive_socket *s;
	struct tcp_sock *tp;

	if (!sk)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	s = bpf_sk_storage_get(&downloads, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!tp || !s)
		return;
	join_entry((struct sock *)tp, s, weight);
	s->tsoffset = tp->tsoffset;
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | CALLBACKS);
}

/* What the kernel knows of what has arrived. */
static LULL_INLINE void look(const struct tcp_sock *tp, struct receive_arrival *a)
{
	u32 segment = tp->advmss ? tp->advmss : 1;
	u32 granted = tp->rcv_wup + tp->rcv_wnd - tp->rcv_nxt;

	a->now_us = monotonic_us();
	a->packets = tp->data_segs_in;
	a->has_echo = tp->rx_opt.rcv_tsecr != 0;
	a->echo = tp->rx_opt.rcv_tsecr;
	a->clock = tp->tcp_wstamp_ns / 1000000;
	/* A receiver that has shrunk its window by the reset of a socket may be beyond its edge. */
	a->advertised = tp->rcv_wnd / segment;
	a->granted = (s32)granted > 0 ? granted / segment : 0;
	a->blocks = tp->rx_opt.num_sacks;
}

static LULL_INLINE u32 clamp_of(const struct tcp_sock *tp, const struct receive_download *d,
				u32 own)
{
	u64 bytes = (u64)receive_packets(d) * tp->advmss;

	bytes = lull_least_of(lull_least_of(bytes, own), MAX_CLAMP);
	return lull_most_of(bytes, MIN_CLAMP);
}

/* The socket has left the background: the clamp is the program's again. */
static LULL_INLINE void stop(struct bpf_sock_ops *ops, struct bpf_sock *sk, struct receive_socket *s)
{
	leave_entry(s);
	set_clamp(ops, own_clamp(sk));
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags &
					       ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

/* RFC 9840, "Controlling the Receive Window": the clamp, from which the kernel never takes back what it has advertised. Set after an arrival. A global function is verified by itself, and not again for
 * each state of its caller. */
__attribute__((noinline)) int set_window(struct bpf_sock_ops *ops, u64 path_window)
{
	struct bpf_sock *sk = ops->sk;
	struct receive_socket *s;
	struct tcp_sock *tp;
	u32 clamp;

	if (!sk)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	s = bpf_sk_storage_get(&downloads, sk, 0, 0);
	if (!tp || !s)
		return 0;
	receive_after(&s->download, &s->arrival, path_window);
	clamp = clamp_of(tp, &s->download, own_clamp(sk));
	/* The kernel raises the clamp on its own, with the buffer of a socket that receives much. */
	if (clamp != tp->window_clamp)
		set_clamp(ops, clamp);
	return 0;
}

/* A segment is about to leave. */
static LULL_INLINE void advertise(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct receive_socket *s;
	struct receive_entry *e;
	struct tcp_sock *tp;
	u64 window;

	/* The kernel only asks for the length of the options, to know how much data fits. */
	if (ops->args[0] & BPF_WRITE_HDR_TCP_CURRENT_MSS || !sk)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	s = bpf_sk_storage_get(&downloads, sk, 0, 0);
	if (!tp || !s)
		return;
	if (bpf_sk_storage_get(&lull_released, sk, 0, 0)) {
		stop(ops, sk, s);
		return;
	}
	/* One from before joins its path here. */
	s->tsoffset = tp->tsoffset;
	follow_entry((struct sock *)tp, s, weight);
	LULL_FORGET();
	if (!s->epoch)
		return;
	look(tp, &s->arrival);
	LULL_FORGET();
	receive_before(&s->download, &s->arrival, &s->news);
	LULL_FORGET();
	e = lock_entry(s);
	if (!e) {
		join_entry((struct sock *)tp, s, weight);
		return;
	}
	begin_event(e, s->arrival.now_us);
	receive_on_arrival(&e->state, &s->download, &s->arrival, &s->news, &s->ack);
	window = lull_path_window(&e->state.path);
	bpf_spin_unlock(&e->lock);
	set_window(ops, window);
}

static LULL_INLINE void end(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct receive_socket *s;

	s = sk ? bpf_sk_storage_get(&downloads, sk, 0, 0) : 0;
	if (s)
		leave_entry(s);
}

/* A connection from before that a listener has accepted now. */
static LULL_INLINE bool is_adopted(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	return ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB && sk &&
	       bpf_sk_storage_get(&adopted_listeners, sk, 0, 0);
}

SEC("sockops")
int lull_receive(struct bpf_sock_ops *ops)
{
	if (is_adopting && ops->op != BPF_SOCK_OPS_HDR_OPT_LEN_CB &&
	    ops->op != BPF_SOCK_OPS_STATE_CB && !is_adopted(ops))
		return 1;
	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		limit_scale(ops);
		break;
	case BPF_SOCK_OPS_RWND_INIT:
		ops->reply = FIRST_WINDOW;
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		begin(ops);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		advertise(ops);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ops->args[1] == STATE_CLOSE)
			end(ops);
		break;
	}
	return 1;
}

static LULL_INLINE bool ask_for_callbacks(struct bpf_sock *sk)
{
	int flags = 0;

	if (bpf_getsockopt(sk, LEVEL_TCP, OPTION_CALLBACK_FLAGS, &flags, sizeof(flags)))
		return false;
	flags |= CALLBACKS;
	return !bpf_setsockopt(sk, LEVEL_TCP, OPTION_CALLBACK_FLAGS, &flags, sizeof(flags));
}

/* The socket is to leave the background before these programs are taken off its cgroup. */
static LULL_INLINE void release_socket(struct bpf_sock *sk)
{
	struct receive_socket *s = bpf_sk_storage_get(&downloads, sk, 0, 0);
	int clamp = own_clamp(sk);

	bpf_sk_storage_delete(&adopted_listeners, sk);
	if (!s)
		return;
	leave_entry(s);
	bpf_sk_storage_delete(&downloads, sk);
	bpf_setsockopt(sk, LEVEL_TCP, OPTION_WINDOW_CLAMP, &clamp, sizeof(clamp));
}

/* A socket from before `lull exec --pid`. The call succeeds if the socket yields from now on: the kernel knows no such
 * option. A program that calls it slows itself. With the value 0, the socket leaves. */
SEC("cgroup/setsockopt")
int lull_adopt(struct bpf_sockopt *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	int *value = ctx->optval;

	if (!sk || ctx->level != LEVEL_TCP || ctx->optname != OPTION_ADOPT ||
	    sk->protocol != PROTOCOL_TCP)
		return 1;
	if (value + 1 > (int *)ctx->optval_end)
		return 1;
	if (!*value) {
		release_socket(sk);
		ctx->optlen = -1;
		return 1;
	}
	if (sk->state == STATE_LISTEN) {
		if (bpf_sk_storage_get(&adopted_listeners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE))
			ctx->optlen = -1;
		return 1;
	}
	if (bpf_sk_storage_get(&downloads, sk, 0, BPF_SK_STORAGE_GET_F_CREATE) &&
	    ask_for_callbacks(sk))
		ctx->optlen = -1;
	return 1;
}

/* Where the TCP header of a packet begins; 0: it has none that is looked at. */
static LULL_INLINE u32 transport_header(struct __sk_buff *skb)
{
	u8 byte = 0, protocol = 0;

	if (skb->protocol == bpf_htons(ETHERNET_IP)) {
		if (bpf_skb_load_bytes(skb, 0, &byte, 1) ||
		    bpf_skb_load_bytes(skb, 9, &protocol, 1))
			return 0;
		return protocol == PROTOCOL_TCP ? (byte & 0xf) * 4 : 0;
	}
	if (skb->protocol != bpf_htons(ETHERNET_IPV6) || bpf_skb_load_bytes(skb, 6, &protocol, 1))
		return 0;
	return protocol == PROTOCOL_TCP ? 40 : 0;
}

/* A packet arrives. The time at which one first echoes a time stamp is more exact here than when it is
 * acknowledged. */
SEC("cgroup_skb/ingress")
int lull_echo(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct receive_socket *s;
	u32 header, words[3];
	u8 length = 0;

	sk = sk ? bpf_sk_fullsock(sk) : 0;
	s = sk ? bpf_sk_storage_get(&downloads, sk, 0, 0) : 0;
	if (!s || !s->epoch)
		return 1;
	header = transport_header(skb);
	if (!header || bpf_skb_load_bytes(skb, header + 12, &length, 1) ||
	    (length >> 4) * 4 != TIME_STAMP_BYTES || skb->len <= header + TIME_STAMP_BYTES ||
	    bpf_skb_load_bytes(skb, header + 20, words, sizeof(words)) ||
	    words[0] != bpf_htonl(TIME_STAMP_OPTION))
		return 1;
	receive_on_echo(&s->download, monotonic_us(), bpf_ntohl(words[2]) - s->tsoffset);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
