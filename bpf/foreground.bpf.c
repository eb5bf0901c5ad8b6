// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * Sees what the host's other connections send, and writes it to the table of paths of lull.bpf.c:
 * attached to the root cgroup, it runs for each packet that leaves a socket of this host. A packet
 * counts as foreground unless its socket runs `lull` or it is marked lower effort (RFC 8622).
 */
#include <linux/bpf.h>
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "lull_types.h"
#include "shared_path_types.h"

#define INLINE inline __attribute__((always_inline))

/* Set before loading: the name that `lull` is registered by. */
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

/* What is asked of a packet. */
struct packet {
	struct path_key key;
	u32 header; /* length of the network header */
	u8 protocol;
	u8 class;
};

/* Not for IPv6 with extension headers, which is not counted. */
static INLINE bool read_network_header(struct __sk_buff *skb, struct packet *p)
{
	u8 ipv4[20], ipv6[40];

	if (skb->protocol == bpf_htons(ETHERNET_IP)) {
		if (bpf_skb_load_bytes(skb, 0, ipv4, sizeof(ipv4)))
			return false;
		p->header = (ipv4[0] & 0xf) * 4;
		p->class = ipv4[1];
		p->protocol = ipv4[9];
		__builtin_memcpy(p->key.prefix, ipv4 + 16, 3);
		p->key.family = FAMILY_INET;
		return true;
	}
	if (skb->protocol != bpf_htons(ETHERNET_IPV6) ||
	    bpf_skb_load_bytes(skb, 0, ipv6, sizeof(ipv6)))
		return false;
	p->header = sizeof(ipv6);
	p->class = ipv6[0] << 4 | ipv6[1] >> 4;
	p->protocol = ipv6[6];
	__builtin_memcpy(p->key.prefix, ipv6 + 24, 6);
	p->key.family = FAMILY_INET6;
	return true;
}

/* Payload; `connects`: it is the first packet of a connection that this host opens. */
static INLINE u32 read_payload(struct __sk_buff *skb, const struct packet *p, bool *connects)
{
	u32 header = p->header;
	u8 words[2];

	*connects = false;
	if (p->protocol == PROTOCOL_UDP) {
		header += 8;
	} else if (p->protocol == PROTOCOL_TCP) {
		if (bpf_skb_load_bytes(skb, header + 12, words, sizeof(words)))
			return 0;
		header += (words[0] >> 4) * 4;
		*connects = (words[1] & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	} else {
		return 0;
	}
	return skb->len > header ? skb->len - header : 0;
}

static INLINE void add_data(struct path_foreground *f, u64 now_us, u32 bytes)
{
	u64 age = now_us - f->interval_us;

	f->data_us = now_us;
	__sync_fetch_and_add(&f->bytes, bytes);
	/* Another processor may do the same at the same time; an interval is then short of a packet. */
	if (age >= FOREGROUND_INTERVAL_US) {
		f->last_bytes = age < 2 * FOREGROUND_INTERVAL_US ? f->interval_bytes : 0;
		f->interval_us = now_us;
		f->interval_bytes = 0;
	}
	__sync_fetch_and_add(&f->interval_bytes, bytes);
}

/* A connection that was given `lull` before it connects has no state yet when its SYN leaves. */
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

SEC("cgroup_skb/egress")
int lull_foreground(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	const struct sock *socket;
	struct shared_path *path;
	struct packet p = {};
	bool connects;
	u64 now_us;
	u32 bytes;

	if (!sk || !(sk = bpf_sk_fullsock(sk)) || bpf_sk_storage_get(&sockets, sk, 0, 0))
		return 1;
	if (!read_network_header(skb, &p) || (p.class & CLASS_BITS) == LOWER_EFFORT)
		return 1;
	socket = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct sock));
	p.key.network_namespace = socket->__sk_common.skc_net.net->net_cookie;
	p.key.interface = skb->ifindex;
	path = bpf_map_lookup_elem(&paths, &p.key);
	if (!path)
		return 1;
	bytes = read_payload(skb, &p, &connects);
	now_us = bpf_ktime_get_ns() / 1000;
	if (connects && !will_run_lull(socket))
		path->foreground.connected_us = now_us;
	if (bytes)
		add_data(&path->foreground, now_us, bytes);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
