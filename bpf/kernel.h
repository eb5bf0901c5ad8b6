/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The part of the kernel's types that our programs use. Offsets are relocated at load time against
 * the running kernel's BTF, so only names and types matter here, not order or size.
 */
#ifndef LULL_KERNEL_H
#define LULL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define RELOCATED __attribute__((preserve_access_index))

enum { BPF_MAP_TYPE_SK_STORAGE_LOCAL = 24 };
#define BPF_F_NO_PREALLOC_LOCAL 1U
#define BPF_SK_STORAGE_CREATE 1U

struct in6_addr {
	u8 in6_u[16];
} RELOCATED;

struct ns_common {
	u32 inum;
} RELOCATED;

struct net {
	struct ns_common ns;
	u64 net_cookie;
} RELOCATED;

struct net_device {
	int ifindex;
} RELOCATED;

struct dst_entry {
	struct net_device *dev;
} RELOCATED;

typedef struct {
	struct net *net;
} RELOCATED possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	volatile u8 skc_state;
	u8 skc_ipv6only : 1;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} RELOCATED;

struct kernfs_node {
	u64 id;
} RELOCATED;

struct cgroup {
	struct kernfs_node *kn;
} RELOCATED;

struct sock_cgroup_data {
	struct cgroup *cgroup;
} RELOCATED;

struct inode {
	unsigned long i_ino;
} RELOCATED;

struct file {
	struct inode *f_inode;
} RELOCATED;

struct socket {
	struct file *file;
} RELOCATED;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} RELOCATED;

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct sock *sk;
	void *value;
} RELOCATED;

struct sock {
	struct sock_common __sk_common;
	u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	struct socket *sk_socket;
	struct dst_entry *sk_dst_cache;
	struct sock_cgroup_data sk_cgrp_data;
} RELOCATED;

struct ipv6_pinfo {
	u8 tclass;
} RELOCATED;

struct inet_sock {
	struct sock sk;
	struct ipv6_pinfo *pinet6;
	__be16 inet_sport;
	u8 tos;
} RELOCATED;

enum { PACING_NONE = 0, PACING_NEEDED = 1, PACING_FQ = 2 };

struct tcp_congestion_ops;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u32 icsk_rto;
	const struct tcp_congestion_ops *icsk_ca_ops;
} RELOCATED;

struct tcp_options_received {
	u32 rcv_tsval;
	u32 rcv_tsecr;
	u8 num_sacks;
} RELOCATED;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 rcv_wup;
	u32 rcv_nxt;
	u32 rcv_wnd;
	u32 window_clamp;
	u32 data_segs_in;
	u32 tsoffset;
	u16 advmss;
	struct tcp_options_received rx_opt;
	u32 srtt_us;
	u32 rttvar_us;
	u32 mss_cache;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 snd_wnd;
	u32 snd_ssthresh;
	u32 packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 delivered;
	u32 data_segs_out;
	u32 lsndtime;
	u32 write_seq;
	u32 snd_nxt;
	u64 tcp_mstamp;
	u64 tcp_wstamp_ns;
	u64 bytes_acked;
	u64 bytes_sent;
	u64 bytes_received;
} RELOCATED;

struct rate_sample {
	u64 prior_mstamp;
	u32 prior_delivered;
	long interval_us;
	long rtt_us;
	int losses;
	u32 acked_sacked;
	u32 prior_in_flight;
	bool is_app_limited;
	bool is_ack_delayed;
} RELOCATED;

/* States of uapi/linux/tcp.h, and events of net/tcp.h, which no stable header has: their values are
 * relocated like offsets. */
enum { CA_OPEN = 0, CA_DISORDER = 1, CA_CWR = 2, CA_RECOVERY = 3, CA_LOSS = 4 };
enum tcp_ca_event { CA_EVENT_TX_START = 0 };

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, u8 state);
	void (*cwnd_event)(struct sock *sk, u32 event);
	void (*cwnd_event_tx_start)(struct sock *sk); /* from Linux 7.1 */
	u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_control)(struct sock *sk, const struct rate_sample *rs);
	u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

#endif
