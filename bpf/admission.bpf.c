// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * Connections of a cgroup that start together are admitted one after the other: each gets a time
 * for its SYN. An earlier SYN is dropped, and the first retransmission timeout is set so that the
 * kernel sends it again at that time. The first ten segments of a connection are not paced, so many
 * connections can be spread out only before their SYNs.
 *
 * The kernel doubles the timeout of a SYN from then on. After a short first one it would send many,
 * and time out early. So retransmissions that come sooner after the sent SYN than RFC 6298 (5.5,
 * 5.7) allows are dropped, too. The number of retries is raised by the number of halvings of the
 * first timeout.
 */
#include <linux/bpf.h>
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "path_key.h"

#define INLINE inline __attribute__((always_inline))

/* Set before loading. The time between two SYNs to one path, while few wait. */
const volatile u64 gap_us = 4000;
/* The longest time that a SYN is held. */
const volatile u64 longest_us = 1000000;

enum {
	LEVEL_TCP = 6,
	OPTION_SYN_COUNT = 7,
	MAX_SYNS = 127,
	/* The values of a kernel with default settings. */
	DEFAULT_SYN_RETRIES = 6,
	STATE_SYN_SENT = 2,
	/* In TCP_CONNECT_CB the timeout is still that of a new socket: one second. */
	MICROS = 1000000,
	/* A first timeout of a jiffy is below this many halvings of a second. */
	MAX_HALVINGS = 10,
	/* Timers count jiffies, and may fire this much before the time of a SYN in microseconds. */
	EARLY_US = 1000,
	PASS = 1,
	/* Silent: `connect` continues (NET_XMIT_DROP). */
	DROP = 2,
};

/* The admission of a connection. */
struct held {
	u64 due_us;  /* the time for its SYN */
	u64 sent_us; /* when the SYN was last sent; 0: never */
	u32 timeout; /* jiffies from `connect` to that time */
	u32 sent;    /* how often it was sent */
	u32 retries; /* its previous TCP_SYNCNT */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct held);
} held_connections SEC(".maps");

/* The time of the next SYN to each path. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct path_key);
	__type(value, u64);
} next_due SEC(".maps");

static INLINE u64 monotonic_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

/*
 * Takes the next time of the path. The gap shrinks as more connections wait, so that their wait
 * approaches the longest one without exceeding it. If two processors take a time at once, both may
 * get the same.
 */
static INLINE u64 take_turn(const struct path_key *key, u64 now_us)
{
	u64 *next = bpf_map_lookup_elem(&next_due, key);
	u64 due = now_us, wait, following;

	if (next && *next > now_us)
		due = *next;
	wait = due - now_us;
	if (wait >= longest_us)
		return now_us + longest_us;
	following = due + gap_us * (longest_us - wait) / longest_us;
	if (next)
		*next = following;
	else
		bpf_map_update_elem(&next_due, key, &following, BPF_ANY);
	return due;
}

/* Times out no earlier than without this program: adds a retry for each halving of the timeout. */
static INLINE void add_retries(struct bpf_sock_ops *ops, struct held *h, u32 second)
{
	int retries = 0;
	u32 halvings;

	if (bpf_getsockopt(ops, LEVEL_TCP, OPTION_SYN_COUNT, &retries, sizeof(retries)) ||
	    retries < 1)
		retries = DEFAULT_SYN_RETRIES;
	h->retries = retries;
	for (halvings = 0; halvings < MAX_HALVINGS; halvings++)
		retries += (u64)h->timeout << halvings < second;
	if (retries > MAX_SYNS)
		retries = MAX_SYNS;
	bpf_setsockopt(ops, LEVEL_TCP, OPTION_SYN_COUNT, &retries, sizeof(retries));
}

static INLINE void hold(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : 0;
	u64 now_us = monotonic_us(), due_us;
	struct path_key key = {};
	struct held *h;
	u32 second;

	if (!tp)
		return;
	path_key_of((struct sock *)tp, &key);
	due_us = take_turn(&key, now_us);
	if (due_us <= now_us)
		return;
	h = bpf_sk_storage_get(&held_connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!h)
		return;
	second = tp->inet_conn.icsk_rto;
	*h = (struct held){ .due_us = due_us };
	h->timeout = (due_us - now_us) * second / MICROS + 1;
	add_retries(ops, h, second);
}

static INLINE struct held *held_of(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	return sk ? bpf_sk_storage_get(&held_connections, sk, 0, 0) : 0;
}

SEC("sockops")
int lull_admission(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct held *h;
	int retries;

	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		hold(ops);
		break;
	case BPF_SOCK_OPS_TIMEOUT_INIT:
		h = held_of(ops);
		if (h && !h->sent)
			ops->reply = h->timeout;
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		h = held_of(ops);
		if (!h || !sk)
			break;
		retries = h->retries;
		bpf_setsockopt(ops, LEVEL_TCP, OPTION_SYN_COUNT, &retries, sizeof(retries));
		bpf_sk_storage_delete(&held_connections, sk);
		break;
	}
	return 1;
}

SEC("cgroup_skb/egress")
int lull_hold_syn(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct held *h;
	u64 now_us;

	if (!sk || !(sk = bpf_sk_fullsock(sk)) || sk->state != STATE_SYN_SENT)
		return PASS;
	h = bpf_sk_storage_get(&held_connections, sk, 0, 0);
	if (!h)
		return PASS;
	now_us = monotonic_us();
	if (now_us + EARLY_US < h->due_us)
		return DROP;
	if (h->sent && now_us + EARLY_US < h->sent_us + ((u64)MICROS << (h->sent - 1 & 7)))
		return DROP;
	h->sent_us = now_us;
	h->sent++;
	return PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
