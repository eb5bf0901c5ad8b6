// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * Writes one record for each socket with a state in the map of a congestion control. The map has no
 * network namespace, so it includes the sockets of all of them.
 */
#include <linux/bpf.h>
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include "background_types.h"
#include "lull_types.h"
#include "nice_types.h"
#include "shared_path_types.h"
#include "status.h"

enum { FAMILY_INET = 2 };

/* crates/kernel/src/status.rs reads records of this size (RECORD_SIZE), field by field (parse). */
_Static_assert(sizeof(struct status_record) == 160 &&
		       __builtin_offsetof(struct status_record, netns) == 64 &&
		       __builtin_offsetof(struct status_record, local_port) == 104 &&
		       __builtin_offsetof(struct status_record, local) == 112,
	       "change RECORD_SIZE and parse in crates/kernel/src/status.rs, too");

/* Never created: it gives the loader the size of the state that this program reads. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nice);
} sockets SEC(".maps");

/* Set before loading: enum status_state. The verifier sees only the branch that fits. */
const volatile u32 state_kind = STATE_NICE;

static inline __attribute__((always_inline)) void
tell_state(struct status_record *record, const void *state, const struct tcp_sock *tp)
{
	if (state_kind == STATE_NICE) {
		const struct nice *n = state;

		record->window = n->window;
		record->yielded_us = n->yielded_us;
		record->min_rtt_us = n->rtt.min_rtt;
		record->max_rtt_us = n->rtt.max_rtt;
		record->rounds = n->rounds;
		record->rounds_congested = n->rounds_congested;
	} else if (state_kind == STATE_LULL) {
		const struct lull_socket *s = state;

		record->epoch = s->epoch;
		record->member = s->member.number;
		/* Without a path it runs Nice, whose state is in another map. */
		record->window = s->epoch ? s->member.window : (u64)tp->snd_cwnd << LULL_SHIFT;
	} else if (state_kind == STATE_BACKGROUND) {
		const struct background *b = state;

		record->window = b->window;
	}
}

SEC("iter/bpf_sk_storage_map")
int lull_status(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct status_record record = {};
	struct sock *sk = ctx->sk;
	void *state = ctx->value;
	const struct tcp_congestion_ops *name;
	struct tcp_sock *tp;

	if (!sk || !state)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	tell_state(&record, state, tp);
	record.srtt_us = tp->srtt_us >> 3;
	record.bytes_acked = tp->bytes_acked;
	record.bytes_sent = tp->bytes_sent;
	record.bytes_received = tp->bytes_received;
	record.mss = tp->mss_cache;
	record.receive_window = tp->rcv_wnd;
	record.family = sk->__sk_common.skc_family;
	record.state = sk->__sk_common.skc_state;
	record.local_port = sk->__sk_common.skc_num;
	record.remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	if (record.family == FAMILY_INET) {
		*(u32 *)record.local = sk->__sk_common.skc_rcv_saddr;
		*(u32 *)record.remote = sk->__sk_common.skc_daddr;
	} else {
		BPF_CORE_READ_INTO(&record.local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&record.remote, sk, __sk_common.skc_v6_daddr);
	}
	record.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	record.inode = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
	record.cgroup = BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id);
	name = BPF_CORE_READ(tp, inet_conn.icsk_ca_ops);
	if (name)
		bpf_core_read_str(record.congestion, sizeof(record.congestion), &name->name);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

/* A byte for each socket with a state. The state may be that of another version, so it is not read.
 * The byte is 1 while a program holds the socket. */
SEC("iter/bpf_sk_storage_map")
int lull_count(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;
	u8 is_open;

	if (!sk || !ctx->value)
		return 0;
	is_open = !!sk->sk_socket;
	bpf_seq_write(ctx->meta->seq, &is_open, sizeof(is_open));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
