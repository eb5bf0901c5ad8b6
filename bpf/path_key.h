/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The path of a socket. The includer has kernel.h and bpf/bpf_endian.h. */
#ifndef LULL_PATH_KEY_H
#define LULL_PATH_KEY_H

#include "path_key_types.h"

#define PATH_KEY_INLINE inline __attribute__((always_inline))

enum { FAMILY_INET = 2, FAMILY_INET6 = 10 };

/* The path of a single host, or of 64 bits of IPv6, has this in its family. */
#define PATH_KEY_APART 0x100

/* An IPv4 destination of an IPv6 socket is an IPv4 one. */
static PATH_KEY_INLINE void path_key_with(struct sock *sk, struct path_key *key, bool is_apart)
{
	u32 words[4] = {};
	u32 address = 0;

	key->network_namespace = BPF_CORE_READ(sk, __sk_common.skc_net.net, net_cookie);
	key->interface = BPF_CORE_READ(sk, sk_dst_cache, dev, ifindex);
	key->family = sk->__sk_common.skc_family;
	if (key->family == FAMILY_INET6) {
		BPF_CORE_READ_INTO(&words, sk, __sk_common.skc_v6_daddr);
		if (!words[0] && !words[1] && words[2] == bpf_htonl(0xffff))
			key->family = FAMILY_INET;
		address = words[3];
	} else {
		address = sk->__sk_common.skc_daddr;
	}
	if (key->family == FAMILY_INET) {
		words[0] = is_apart ? address : address & bpf_htonl(0xffffff00);
		words[1] = 0;
	} else if (!is_apart) {
		words[1] &= bpf_htonl(0xffff0000);
	}
	if (is_apart)
		key->family |= PATH_KEY_APART;
	__builtin_memcpy(key->prefix, words, sizeof(key->prefix));
}

static PATH_KEY_INLINE void path_key_of(struct sock *sk, struct path_key *key)
{
	path_key_with(sk, key, false);
}

static PATH_KEY_INLINE bool path_keys_equal(const struct path_key *a, const struct path_key *b)
{
	const u64 *x = (const u64 *)a, *y = (const u64 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

#endif
