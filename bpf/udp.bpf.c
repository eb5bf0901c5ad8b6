// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * What `lull exec --udp yield` attaches to a cgroup: the UDP packets of its sockets to each path
 * pass a virtual queue (virtual_queue.h), which marks or drops those above the path's allowance. The
 * loader measures the path, and writes the allowance.
 *
 * A dropped packet is no error for its sender: the kernel reports success, or ENOBUFS, as for a full
 * queue of an interface, to sockets that ask for errors (IP_RECVERR).
 */
#include <linux/bpf.h>
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "udp.h"

#define INLINE inline __attribute__((always_inline))
#define VIRTUAL_QUEUE_INLINE INLINE
#include "virtual_queue.h"

enum {
	FAMILY_INET = 2,
	FAMILY_INET6 = 10,
	ETHERNET_IP = 0x0800,
	ETHERNET_IPV6 = 0x86dd,
	PROTOCOL_UDP = 17,
	UDP_HEADER = 8,
	/* Every network namespace has its own, with this index. Nothing shares it with others. */
	LOOPBACK = 1,
	ECN_BITS = 3,
	/* The first packet of QUIC is at least as long (RFC 9000, 14.1). */
	WAKE_BYTES = 1200,
	WAKE_AGAIN_US = 100000,
	FULL_WAKE_AGAIN_US = 1000000,
	PASS = 1,
	/* Silent (NET_XMIT_DROP), unlike 0, which is EPERM. */
	DROP = 2,
};

/* Set before loading: `sockets` is the map of `lull`. */
const volatile bool is_sharing_paths = false;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct path_key);
	__type(value, struct udp_path);
} udp_paths SEC(".maps");

/* Written by the loader. Not preallocated: a replaced value stays readable (RCU). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct path_key);
	__type(value, struct virtual_allowance);
} udp_allowances SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct udp_counters);
} udp_counters SEC(".maps");

/* Keys of paths whose measurements are old, and that carry more than a little. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} udp_wakes SEC(".maps");

/* The state of each socket that runs `lull`: the loader puts its map here. foreground.bpf.c does not
 * count sockets that have one. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} sockets SEC(".maps");

const struct udp_path unused_path = {};

u64 full_woken_us = 0;

extern void *bpf_rdonly_cast(const void *object, u32 type) __attribute__((section(".ksyms")));

struct packet {
	struct path_key key;
	u32 destination[4];
	u32 header; /* length of the IP header */
	bool is_ecn_capable;
};

/* Whether the packet is UDP. Headers of a socket's packets are contiguous. Packets with IPv6
 * extension headers pass. */
static INLINE bool read_packet(const struct __sk_buff *skb, struct packet *p)
{
	const u8 *data = (const u8 *)(long)skb->data, *end = (const u8 *)(long)skb->data_end;

	if (skb->protocol == bpf_htons(ETHERNET_IP)) {
		if (data + 20 > end || data[9] != PROTOCOL_UDP)
			return false;
		p->header = (data[0] & 0xf) * 4;
		p->is_ecn_capable = data[1] & ECN_BITS;
		p->key.family = FAMILY_INET;
		__builtin_memcpy(p->key.prefix, data + 16, 3);
		__builtin_memcpy(p->destination, data + 16, 4);
		return true;
	}
	if (skb->protocol != bpf_htons(ETHERNET_IPV6) || data + 40 > end ||
	    data[6] != PROTOCOL_UDP)
		return false;
	p->header = 40;
	p->is_ecn_capable = data[1] >> 4 & ECN_BITS;
	p->key.family = FAMILY_INET6;
	__builtin_memcpy(p->key.prefix, data + 24, 6);
	__builtin_memcpy(p->destination, data + 24, 16);
	return true;
}

static INLINE struct udp_path *obtain_path(const struct path_key *key)
{
	struct udp_path *path = bpf_map_lookup_elem(&udp_paths, key);

	if (path)
		return path;
	bpf_map_update_elem(&udp_paths, key, &unused_path, BPF_NOEXIST);
	return bpf_map_lookup_elem(&udp_paths, key);
}

static INLINE void wake_loader(const struct path_key *key)
{
	struct path_key *event = bpf_ringbuf_reserve(&udp_wakes, sizeof(*event), 0);

	if (!event)
		return;
	*event = *key;
	bpf_ringbuf_submit(event, 0);
}

static INLINE void count(enum virtual_verdict verdict, u64 bytes, u64 packets)
{
	u32 zero = 0;
	struct udp_counters *c = bpf_map_lookup_elem(&udp_counters, &zero);

	if (!c)
		return;
	if (verdict == VIRTUAL_DROP) {
		__sync_fetch_and_add(&c->dropped, packets);
		return;
	}
	__sync_fetch_and_add(&c->passed, bytes);
	if (verdict == VIRTUAL_MARK)
		__sync_fetch_and_add(&c->marked, packets);
}

/* The table of paths is full: the packet passes, and the loader is to make room. */
static INLINE void pass_uncontrolled(u64 now_us, u64 packets)
{
	u32 zero = 0;
	struct udp_counters *c = bpf_map_lookup_elem(&udp_counters, &zero);
	struct path_key none = {};

	if (c)
		__sync_fetch_and_add(&c->uncontrolled, packets);
	if (now_us - full_woken_us < FULL_WAKE_AGAIN_US)
		return;
	full_woken_us = now_us;
	wake_loader(&none);
}

static INLINE enum virtual_verdict admit(struct packet *p, u64 bytes, u64 packets)
{
	struct udp_path *path = obtain_path(&p->key);
	struct virtual_allowance *written = bpf_map_lookup_elem(&udp_allowances, &p->key);
	struct virtual_allowance allowance = {};
	u64 now_us = bpf_ktime_get_ns() / 1000;
	enum virtual_verdict verdict;
	bool needs_loader;

	if (!path) {
		pass_uncontrolled(now_us, packets);
		return VIRTUAL_PASS;
	}
	if (written)
		allowance = *written;
	bpf_spin_lock(&path->lock);
	verdict = virtual_queue_admit(&path->queue, now_us, bytes, p->is_ecn_capable, &allowance);
	if (verdict == VIRTUAL_MARK)
		path->marked += packets;
	if (verdict == VIRTUAL_DROP)
		path->dropped += packets;
	path->seen_us = now_us;
	path->is_ipv6 = p->key.family == FAMILY_INET6;
	path->destination[0] = p->destination[0];
	path->destination[1] = p->destination[1];
	path->destination[2] = p->destination[2];
	path->destination[3] = p->destination[3];
	needs_loader = path->queue.level >= WAKE_BYTES * VIRTUAL_QUEUE_MICROS &&
		       !virtual_allowance_is_fresh(&allowance, now_us) &&
		       now_us - path->woken_us > WAKE_AGAIN_US;
	if (needs_loader)
		path->woken_us = now_us;
	bpf_spin_unlock(&path->lock);
	if (needs_loader)
		wake_loader(&p->key);
	count(verdict, bytes, packets);
	return verdict;
}

SEC("cgroup_skb/egress")
int lull_udp(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	const struct sock *socket;
	enum virtual_verdict verdict;
	struct packet p = {};
	u64 packets, bytes;

	if (!read_packet(skb, &p) || skb->ifindex == LOOPBACK || !sk ||
	    !(sk = bpf_sk_fullsock(sk)))
		return PASS;
	socket = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct sock));
	p.key.network_namespace = socket->__sk_common.skc_net.net->net_cookie;
	p.key.interface = skb->ifindex;
	if (is_sharing_paths)
		bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	packets = skb->gso_segs ? skb->gso_segs : 1;
	bytes = skb->len + (packets - 1) * (p.header + UDP_HEADER);
	verdict = admit(&p, bytes, packets);
	if (verdict == VIRTUAL_MARK)
		bpf_skb_ecn_set_ce(skb);
	return verdict == VIRTUAL_DROP ? DROP : PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
