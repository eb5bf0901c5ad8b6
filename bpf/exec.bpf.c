// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * The programs that `lull exec` attaches to a cgroup. Every TCP connection that a process of the
 * cgroup opens or accepts gets the chosen congestion control and DSCP, regardless of the process's
 * own settings. UDP is counted and otherwise unchanged.
 *
 * The hooks belong to sockets, not to processes: a socket always runs those of the cgroup in which
 * it was made. Accepted connections belong to the listener's cgroup.
 */
#include <linux/bpf.h>
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "exec.h"
#include "exec_sockets.h"

#define INLINE inline __attribute__((always_inline))

/* crates/kernel/src/hooks.rs reads the same number of words (COUNTERS), in this order. */
_Static_assert(sizeof(struct exec_counters) == 10 * sizeof(u64),
	       "change COUNTERS in crates/kernel/src/hooks.rs, too");

/* Set before loading. */
const volatile char congestion[CONGESTION_NAME_SIZE] = "reno";
/* The TOS byte, or traffic class, of every packet; 0: left to the program. */
const volatile u8 traffic_class = 0;
/* Whether sent traffic yields; otherwise connections keep the programs' congestion controls. */
const volatile bool is_sending = true;
/* Weight of connections under `lull`; 0: the default. */
const volatile u32 weight = 0;
/* Tests of the workaround for old kernels, see ask_parent(). */
const volatile bool mapped_by_parent = false;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct exec_counters);
} counters SEC(".maps");

/* One entry, with any value, for each socket that the parent has to mark. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} requests SEC(".maps");

struct connection {
	u64 opened_us; /* 0: not counted */
	u32 is_unmarked;
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} opened SEC(".maps");

struct destination {
	u32 address[4]; /* IPv4 as a mapped IPv6 address */
};

/* Destinations where packets with the mark got no answer. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct destination);
	__type(value, u32);
} silent_if_marked SEC(".maps");

/* The weight of each socket, for `lull`: the loader puts its map here. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} weights SEC(".maps");

/* The state of each socket: the loader puts the congestion control's map here. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct exec_state);
} sockets SEC(".maps");

enum {
	FAMILY_INET = 2,
	FAMILY_INET6 = 10,
	ETHERNET_IP = 0x0800,
	ETHERNET_IPV6 = 0x86dd,
	LEVEL_IP = 0,
	LEVEL_TCP = 6,
	LEVEL_IPV6 = 41,
	OPTION_TOS = 1,
	OPTION_WINDOW_CLAMP = 10,
	OPTION_CONGESTION = 13,
	OPTION_TCLASS = 67,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_MPTCP = 262,
	STATE_SYN_SENT = 2,
	STATE_CLOSE = 7,
	/* Half a second before the kernel would send the third SYN (RFC 6298). */
	MARKED_SYNS_US = 2500000,
};

static INLINE struct exec_counters *counted(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

static INLINE void add(u64 *counter, u64 amount)
{
	__sync_fetch_and_add(counter, amount);
}

static INLINE u64 now_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

static INLINE bool is_released(struct bpf_sock *sk)
{
	return sk && bpf_sk_storage_get(&lull_released, sk, 0, 0);
}

/*
 * An IPv6 socket with IPv4 traffic takes its TOS byte from IP_TOS, which bpf_setsockopt rejects for
 * this family before Linux 6.13. The parent then sets it with the system call.
 */
static INLINE void ask_parent(void)
{
	u32 *request = bpf_ringbuf_reserve(&requests, sizeof(*request), 0);

	if (!request)
		return;
	*request = 0;
	bpf_ringbuf_submit(request, 0);
}

static INLINE bool is_mapped(struct bpf_sock_ops *ops)
{
	return !ops->remote_ip6[0] && !ops->remote_ip6[1] &&
	       ops->remote_ip6[2] == bpf_htonl(0xffff);
}

static INLINE void set_class(struct bpf_sock_ops *ops, bool listens, int class)
{
	if (ops->family == FAMILY_INET) {
		bpf_setsockopt(ops, LEVEL_IP, OPTION_TOS, &class, sizeof(class));
		return;
	}
	bpf_setsockopt(ops, LEVEL_IPV6, OPTION_TCLASS, &class, sizeof(class));
	/* Accepted connections inherit the TOS byte of a listener, which also answers with it. */
	if ((listens || is_mapped(ops)) &&
	    (mapped_by_parent ||
	     bpf_setsockopt(ops, LEVEL_IP, OPTION_TOS, &class, sizeof(class))))
		ask_parent();
}

static INLINE void mark(struct bpf_sock_ops *ops, bool listens)
{
	if (traffic_class)
		set_class(ops, listens, traffic_class);
}

static INLINE struct destination destination_of(struct bpf_sock_ops *ops)
{
	struct destination to = { { 0, 0, bpf_htonl(0xffff), 0 } };
	u32 v4 = ops->remote_ip4, v6 = ops->remote_ip6[3];

	/* The verifier rejects a load from one of two offsets, which the compiler would generate. */
	barrier_var(v4);
	barrier_var(v6);
	if (ops->family == FAMILY_INET) {
		to.address[3] = v4;
		return to;
	}
	to.address[0] = ops->remote_ip6[0];
	to.address[1] = ops->remote_ip6[1];
	to.address[2] = ops->remote_ip6[2];
	to.address[3] = v6;
	return to;
}

static INLINE bool choose(void *socket)
{
	char name[CONGESTION_NAME_SIZE];
	int i;

	if (!is_sending)
		return true;
	for (i = 0; i < CONGESTION_NAME_SIZE; i++)
		name[i] = congestion[i];
	return !bpf_setsockopt(socket, LEVEL_TCP, OPTION_CONGESTION, name, sizeof(name));
}

/*
 * A socket for which NEEDS_ECN is answered sends its SYN with an ECN-capable code point, as the kernel
 * does for DCTCP. RFC 3168 6.1.1 forbids that, and servers then refuse ECN. A change of the
 * congestion control takes the code point off. So a connection starts with Reno, which every kernel
 * has, and gets its congestion control when the header of its SYN is written.
 */
static INLINE void begin_with_reno(struct bpf_sock_ops *ops)
{
	char reno[CONGESTION_NAME_SIZE] = "reno";

	if (is_sending)
		bpf_setsockopt(ops, LEVEL_TCP, OPTION_CONGESTION, reno, sizeof(reno));
}

static INLINE bool asks_for_ecn(struct bpf_sock_ops *ops)
{
	/* Without a socket, the question is about a request, which a server answers as its system is
	 * configured. For Reno, nothing would take the code point off the SYN. */
	bool is_reno = congestion[0] == 'r' && congestion[1] == 'e' && congestion[2] == 'n' &&
		       congestion[3] == 'o' && !congestion[4];

	return is_sending && !is_reno && ops->sk && ops->state == STATE_SYN_SENT;
}

static INLINE void choose_with_syn(struct bpf_sock_ops *ops)
{
	/* The kernel only asks for the length of the options, to know how much data fits. */
	if (ops->state != STATE_SYN_SENT || ops->args[0] & BPF_WRITE_HDR_TCP_CURRENT_MSS)
		return;
	choose(ops);
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags &
					       ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

/* Before the congestion control is chosen, which reads it when it starts. */
static INLINE void weigh(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	u32 value = weight;

	if (value && sk)
		bpf_sk_storage_get(&weights, sk, &value, BPF_SK_STORAGE_GET_F_CREATE);
}

/* Whether the socket runs it. Both names are padded with zeros. */
static INLINE bool is_chosen(struct bpf_sock_ops *ops)
{
	char name[CONGESTION_NAME_SIZE];
	int i, difference = 0;

	if (bpf_getsockopt(ops, LEVEL_TCP, OPTION_CONGESTION, name, sizeof(name)))
		return false;
	for (i = 0; i < CONGESTION_NAME_SIZE; i++)
		difference |= name[i] ^ congestion[i];
	return !difference;
}

/*
 * An established connection keeps its congestion control. If it was chosen with the SYN, it is not
 * set again: it would start again.
 */
static INLINE void confirm_congestion(struct bpf_sock_ops *ops)
{
	struct exec_counters *c = counted();
	struct bpf_sock *sk = ops->sk;

	if (is_chosen(ops) || choose(ops))
		return;
	if (c)
		add(&c->refused, 1);
	/* A route replaced the earlier choice without a notification (tcp_ca_dst_init). Its state
	 * would be mistaken for that of a connection that runs it. */
	if (sk)
		bpf_sk_storage_delete(&sockets, sk);
}

static INLINE void open_connection(struct bpf_sock_ops *ops, bool unmarked)
{
	struct exec_counters *c = counted();
	struct bpf_sock *sk = ops->sk;
	struct connection *connection;

	if (!c || !sk)
		return;
	connection = bpf_sk_storage_get(&opened, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	/* The second call for the same connection: it was seen when it began to connect. */
	if (!connection || connection->opened_us)
		return;
	connection->opened_us = now_us();
	connection->is_unmarked = unmarked;
	add(&c->connections, 1);
}

static INLINE void watch(struct bpf_sock_ops *ops, int flags)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | flags);
}

static INLINE void begin_to_connect(struct bpf_sock_ops *ops)
{
	struct destination to = destination_of(ops);
	bool unmarked = traffic_class && bpf_map_lookup_elem(&silent_if_marked, &to);

	if (traffic_class)
		set_class(ops, false, unmarked ? 0 : traffic_class);
	open_connection(ops, unmarked);
	watch(ops, BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_RTO_CB_FLAG |
			   BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

/*
 * Some routers drop packets with an unknown DSCP. If the first SYN and its first retransmission had
 * the mark and got no answer, the next one is sent without it. Timeouts are not counted, but their
 * time is measured. The reason is admission.bpf.c: it holds the first SYN for up to a second by
 * short timeouts. It does not let retransmissions leave sooner after it than without. By then, both
 * have been sent.
 */
static INLINE void unmark_unanswered(struct bpf_sock_ops *ops)
{
	struct connection *connection;
	struct bpf_sock *sk = ops->sk;

	if (!traffic_class || ops->state != STATE_SYN_SENT || ops->args[0] < 1 || !sk)
		return;
	connection = bpf_sk_storage_get(&opened, sk, 0, 0);
	if (!connection || connection->is_unmarked ||
	    now_us() - connection->opened_us < MARKED_SYNS_US)
		return;
	connection->is_unmarked = true;
	set_class(ops, false, 0);
}

static INLINE void note_if_unmarked(struct bpf_sock_ops *ops)
{
	struct exec_counters *c = counted();
	struct destination to = destination_of(ops);
	struct connection *connection;
	struct bpf_sock *sk = ops->sk;
	u32 one = 1;

	if (!c || !sk)
		return;
	/* Later timeouts are not those of a SYN. */
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_RTO_CB_FLAG);
	connection = bpf_sk_storage_get(&opened, sk, 0, 0);
	if (!connection || !connection->is_unmarked)
		return;
	add(&c->unmarked, 1);
	bpf_map_update_elem(&silent_if_marked, &to, &one, BPF_ANY);
}

static INLINE void close_connection(struct bpf_sock_ops *ops)
{
	struct exec_counters *c = counted();
	struct bpf_sock *sk = ops->sk;
	struct connection *connection;
	struct exec_state *state;

	if (!c || !sk)
		return;
	connection = bpf_sk_storage_get(&opened, sk, 0, 0);
	if (!connection || !connection->opened_us)
		return;
	add(&c->lived_us, now_us() - connection->opened_us);
	connection->opened_us = 0;
	state = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (state)
		add(&c->yielded_us, state->yielded_us);
}

SEC("sockops")
int lull_sock_ops(struct bpf_sock_ops *ops)
{
	/* It is still counted. */
	if (ops->op != BPF_SOCK_OPS_STATE_CB && is_released(ops->sk))
		return 1;
	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		choose(ops);
		mark(ops, true);
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		weigh(ops);
		begin_with_reno(ops);
		begin_to_connect(ops);
		break;
	case BPF_SOCK_OPS_NEEDS_ECN:
		ops->reply = asks_for_ecn(ops);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		choose_with_syn(ops);
		break;
	case BPF_SOCK_OPS_RTO_CB:
		unmark_unanswered(ops);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		weigh(ops);
		confirm_congestion(ops);
		mark(ops, false);
		open_connection(ops, false);
		watch(ops, BPF_SOCK_OPS_STATE_CB_FLAG);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		confirm_congestion(ops);
		note_if_unmarked(ops);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ops->args[1] == STATE_CLOSE)
			close_connection(ops);
		break;
	}
	return 1;
}

/* Replaces the program's class by this one; a single byte is a valid TOS, too. */
static INLINE void rewrite_class(struct bpf_sockopt *ctx, struct bpf_sock *sk)
{
	struct connection *connection = bpf_sk_storage_get(&opened, sk, 0, 0);
	u8 *value = ctx->optval;

	if (value + sizeof(int) > (u8 *)ctx->optval_end)
		return;
	value[0] = connection && connection->is_unmarked ? 0 : traffic_class;
	value[1] = 0;
	value[2] = 0;
	value[3] = 0;
	ctx->optlen = sizeof(int);
}

static INLINE void rewrite_congestion(struct bpf_sockopt *ctx)
{
	char *value = ctx->optval;
	int i;

	if (value + CONGESTION_NAME_SIZE > (char *)ctx->optval_end)
		return;
	for (i = 0; i < CONGESTION_NAME_SIZE; i++)
		value[i] = congestion[i];
	ctx->optlen = CONGESTION_NAME_SIZE;
}

static INLINE void remember_clamp(struct bpf_sockopt *ctx, struct bpf_sock *sk)
{
	int *value = ctx->optval;
	u32 *clamp;

	if (ctx->level != LEVEL_TCP || ctx->optname != OPTION_WINDOW_CLAMP)
		return;
	/* A connection has a clamp: the kernel will reject 0, which only a closed socket accepts. */
	if (value + 1 > (int *)ctx->optval_end || (!*value && sk->state != STATE_CLOSE))
		return;
	clamp = bpf_sk_storage_get(&window_clamps, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (clamp)
		*clamp = *value < 0 ? 1 : *value;
}

/*
 * The choices of the program, such as those of OpenSSH and rsync, are replaced. The call succeeds,
 * and a later getsockopt returns the real setting.
 */
SEC("cgroup/setsockopt")
int lull_setsockopt(struct bpf_sockopt *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	if (!sk || (sk->protocol != PROTOCOL_TCP && sk->protocol != PROTOCOL_MPTCP))
		return 1;
	remember_clamp(ctx, sk);
	if (!is_sending || is_released(sk))
		return 1;
	if (ctx->level == LEVEL_TCP && ctx->optname == OPTION_CONGESTION) {
		/* Chosen here, it needs no privilege of the program; the call itself is skipped.
		 * MPTCP has to see the name to pass it to its subflows, and may require the
		 * privilege. */
		if (sk->protocol == PROTOCOL_TCP && choose(sk))
			ctx->optlen = -1;
		else
			rewrite_congestion(ctx);
	} else if (traffic_class && ((ctx->level == LEVEL_IP && ctx->optname == OPTION_TOS) ||
				     (ctx->level == LEVEL_IPV6 && ctx->optname == OPTION_TCLASS))) {
		rewrite_class(ctx, sk);
	}
	return 1;
}

/* The payload of a packet over TCP or UDP, and which of the two; 0 for other packets. */
static INLINE u32 payload(struct __sk_buff *skb, u8 *protocol)
{
	u32 header;
	u8 byte = 0;

	*protocol = 0;
	if (skb->protocol == bpf_htons(ETHERNET_IP)) {
		if (bpf_skb_load_bytes(skb, 0, &byte, 1))
			return 0;
		header = (byte & 0xf) * 4;
		if (bpf_skb_load_bytes(skb, 9, protocol, 1))
			return 0;
	} else if (skb->protocol == bpf_htons(ETHERNET_IPV6)) {
		/* Packets with extension headers are not counted. */
		header = 40;
		if (bpf_skb_load_bytes(skb, 6, protocol, 1))
			return 0;
	} else {
		return 0;
	}
	if (*protocol == PROTOCOL_UDP) {
		header += 8;
	} else if (*protocol == PROTOCOL_TCP) {
		if (bpf_skb_load_bytes(skb, header + 12, &byte, 1))
			return 0;
		header += (byte >> 4) * 4;
	} else {
		return 0;
	}
	return skb->len > header ? skb->len - header : 0;
}

/* Counts packets from the sockets of the cgroup, and lets them pass. */
SEC("cgroup_skb/egress")
int lull_egress(struct __sk_buff *skb)
{
	struct exec_counters *c = counted();
	u8 protocol;
	u32 length = payload(skb, &protocol);

	if (c && length)
		add(protocol == PROTOCOL_TCP ? &c->tcp_bytes : &c->udp_bytes, length);
	return 1;
}

/* Counts arriving packets: the other side sends them, so they are not slowed. */
SEC("cgroup_skb/ingress")
int lull_ingress(struct __sk_buff *skb)
{
	struct exec_counters *c = counted();
	u8 protocol;
	u32 length = payload(skb, &protocol);

	if (c && length && protocol == PROTOCOL_TCP)
		add(&c->tcp_received, length);
	return 1;
}

/* Sums up the connections that are still open, into the counters. */
SEC("iter/bpf_sk_storage_map")
int lull_open(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct exec_counters *c = counted();
	struct sock *sk = ctx->sk;
	struct connection *connection = ctx->value;
	struct exec_state *state;

	if (!c || !sk || !connection || !connection->opened_us)
		return 0;
	add(&c->open_lived_us, now_us() - connection->opened_us);
	state = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (state)
		add(&c->open_yielded_us, state->yielded_us);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
