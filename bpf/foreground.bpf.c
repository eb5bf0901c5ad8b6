// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * Measures the host's other connections, and writes the results to the tables of paths of lull.bpf.c,
 * what they send, and receive.bpf.c, what they receive. Attached to the root cgroup, it runs for each
 * packet that leaves or reaches a socket of this host. A packet counts as foreground unless its socket
 * runs `lull`, or it or what its socket sends is marked lower effort (RFC 8622).
 */
#include <linux/bpf.h>
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "lull_types.h"
#include "ack.h"
/* The loader puts the map of receive.bpf.c here, if there is one; otherwise later backgrounds use this. */
#include "receive_table.h"
#include "shared_path_types.h"

#define INLINE inline __attribute__((always_inline))

/* Set before loading: the registered name of `lull`. */
const volatile char congestion[16] = "lull";

enum {
	FAMILY_INET = 2,
	FAMILY_INET6 = 10,
	ETHERNET_IP = 0x0800,
	ETHERNET_IPV6 = 0x86dd,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	TCP_SYN = 2,
	TCP_ACK = 16,
	/* The TOS byte, without its two bits of ECN. */
	LOWER_EFFORT = 1 << 2,
	CLASS_BITS = 0xfc,
};

/* The loader puts the maps of lull.bpf.c here. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct lull_socket);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct path_key);
	__type(value, struct shared_path);
} paths SEC(".maps");

extern void *bpf_rdonly_cast(const void *object, u32 type) __attribute__((section(".ksyms")));

/* The properties of a packet. */
struct packet {
	struct path_key key;
	u32 payload;
	bool is_tcp;
	bool connects; /* it is the first packet of a connection that this host opens */
};

/* The payload of a packet with such a network header, and whether it opens a connection. */
static INLINE void read_transport(const struct __sk_buff *skb, const u8 *header, u32 length,
				  u8 protocol, struct packet *p)
{
	const u8 *end = (const u8 *)(long)skb->data_end, *transport = header + length;

	if (protocol == PROTOCOL_UDP) {
		length += 8;
	} else if (protocol == PROTOCOL_TCP && transport + 14 <= end) {
		p->is_tcp = true;
		length += (transport[12] >> 4) * 4;
		p->connects = (transport[13] & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	} else {
		return;
	}
	p->payload = skb->len > length ? skb->len - length : 0;
}

/* Whether the packet counts: it carries data or opens a connection, and is not of lower effort. The
 * headers of a socket's packets are contiguous. IPv6 with extension headers is not counted. The peer's
 * address is the destination of a packet that leaves, and the source of one that `arrives`. */
static INLINE bool read_packet(const struct __sk_buff *skb, struct packet *p, bool arrives)
{
	const u8 *data = (const u8 *)(long)skb->data, *end = (const u8 *)(long)skb->data_end;

	if (skb->protocol == bpf_htons(ETHERNET_IP)) {
		if (data + 20 > end || (data[1] & CLASS_BITS) == LOWER_EFFORT)
			return false;
		read_transport(skb, data, (data[0] & 0xf) * 4, data[9], p);
		p->key.family = FAMILY_INET;
		__builtin_memcpy(p->key.prefix, data + (arrives ? 12 : 16), 3);
	} else if (skb->protocol == bpf_htons(ETHERNET_IPV6)) {
		if (data + 40 > end || ((data[0] << 4 | data[1] >> 4) & CLASS_BITS) == LOWER_EFFORT)
			return false;
		read_transport(skb, data, 40, data[6], p);
		p->key.family = FAMILY_INET6;
		__builtin_memcpy(p->key.prefix, data + (arrives ? 8 : 24), 6);
	}
	return p->payload || p->connects;
}

static INLINE void add_data(struct path_foreground *f, u64 now_us, u32 bytes)
{
	u64 age = now_us - f->interval_us;

	f->data_us = now_us;
	__sync_fetch_and_add(&f->bytes, bytes);
	/* Another processor may do the same at the same time; an interval then misses a packet. */
	if (age >= FOREGROUND_INTERVAL_US) {
		f->last_bytes = age < 2 * FOREGROUND_INTERVAL_US ? f->interval_bytes : 0;
		f->interval_us = now_us;
		f->interval_bytes = 0;
	}
	__sync_fetch_and_add(&f->interval_bytes, bytes);
}

/* A connection with `lull` chosen before it connects has no state yet when its SYN leaves. */
static INLINE bool will_run_lull(const struct sock *sk)
{
	const struct tcp_sock *tp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));
	char name[16] = {};
	int i, difference = 0;

	bpf_core_read(name, sizeof(name), &tp->inet_conn.icsk_ca_ops->name);
	for (i = 0; i < 16; i++)
		difference |= name[i] ^ congestion[i];
	return !difference;
}

/* A background socket under another congestion control: what it sends is marked. */
static INLINE bool is_marked(const struct sock *sk)
{
	const struct tcp_sock *tp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));
	u8 class = BPF_CORE_READ(tp, inet_conn.icsk_inet.tos);

	if (BPF_CORE_READ(sk, __sk_common.skc_family) == FAMILY_INET6)
		class = BPF_CORE_READ(tp, inet_conn.icsk_inet.pinet6, tclass);
	return (class & CLASS_BITS) == LOWER_EFFORT;
}

static INLINE const struct sock *find_key(const struct __sk_buff *skb, struct bpf_sock *sk,
					  struct packet *p)
{
	const struct sock *socket = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct sock));

	p->key.network_namespace = socket->__sk_common.skc_net.net->net_cookie;
	p->key.interface = skb->ifindex;
	return socket;
}

SEC("cgroup_skb/egress")
int lull_foreground(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct receive_entry *received;
	const struct sock *socket;
	struct shared_path *path;
	struct packet p = {};
	u64 now_us;

	/* Acknowledgements are half of all packets, so they are checked first. */
	if (!read_packet(skb, &p, false) || !sk || !(sk = bpf_sk_fullsock(sk)) ||
	    bpf_sk_storage_get(&sockets, sk, 0, 0))
		return 1;
	socket = find_key(skb, sk, &p);
	path = bpf_map_lookup_elem(&paths, &p.key);
	/* What a new connection is for is not known: it counts in both directions. */
	received = p.connects ? bpf_map_lookup_elem(&receive_paths, &p.key) : 0;
	if (!path && !received)
		return 1;
	now_us = bpf_ktime_get_ns() / 1000;
	if (p.connects && !will_run_lull(socket)) {
		if (path)
			path->foreground.connected_us = now_us;
		if (received)
			received->foreground.connected_us = now_us;
	}
	if (path && p.payload)
		add_data(&path->foreground, now_us, p.payload);
	return 1;
}

SEC("cgroup_skb/ingress")
int lull_foreground_received(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct receive_entry *received;
	const struct sock *socket;
	struct packet p = {};

	if (!read_packet(skb, &p, true) || !p.payload || !sk || !(sk = bpf_sk_fullsock(sk)))
		return 1;
	socket = find_key(skb, sk, &p);
	received = bpf_map_lookup_elem(&receive_paths, &p.key);
	if (!received || (p.is_tcp && (will_run_lull(socket) || is_marked(socket))))
		return 1;
	add_data(&received->foreground, bpf_ktime_get_ns() / 1000, p.payload);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
