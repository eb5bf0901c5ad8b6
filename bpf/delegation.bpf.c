// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * Finds work that other processes do for a background program: `lull exec` reports it, because it
 * runs in the foreground.
 */
#include <linux/bpf.h>
#include "kernel.h"
#include "delegation.h"

#define INLINE inline __attribute__((always_inline))

/* crates/kernel/src/delegation.rs reads the fields by their position. */
_Static_assert(sizeof(struct delegation_record) == 24 && sizeof(struct delegation_event) == 116,
	       "change RECORD_SIZE and EVENT_SIZE in crates/kernel/src/delegation.rs, too");

/* Variants of the kernel's structures, with fields that only this file needs. */
struct sock___protocol {
	u16 sk_protocol;
} RELOCATED;

struct socket___sk {
	struct sock *sk;
} RELOCATED;

struct super_block {
	u32 s_dev;
} RELOCATED;

struct inode___device {
	struct super_block *i_sb;
	u16 i_mode;
} RELOCATED;

struct file___open {
	struct inode___device *f_inode;
	unsigned int f_flags;
	void *private_data;
} RELOCATED;

struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
} RELOCATED;

struct css_set {
	struct cgroup *dfl_cgrp;
} RELOCATED;

struct upid {
	int nr;
} RELOCATED;

struct pid {
	unsigned int level;
	struct upid numbers[1];
} RELOCATED;

struct task_struct {
	struct css_set *cgroups;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
} RELOCATED;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file___open *file;
};

struct bpf_sock_addr_kern {
	void *uaddr;
} RELOCATED;

/* Set before loading: the background. */
const volatile u64 background_id = 0;
/* How many process namespaces are around that of `lull`: lull_level() finds out. */
u32 process_level = 0;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} events SEC(".maps");

/* The devices of file systems whose data other processes send. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, u32);
} devices SEC(".maps");

/* The processes that were in the background when they started. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, u32);
} members SEC(".maps");

enum {
	FAMILY_INET = 2,
	FAMILY_INET6 = 10,
	PROTOCOL_TCP = 6,
	PROTOCOL_MPTCP = 262,
	MODE_TYPE = 0170000,
	MODE_SOCKET = 0140000,
	ACCESS_MODE = 3,
};

/* Whether a cgroup is the background or inside it. */
static INLINE bool is_inside(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *css = (struct cgroup_subsys_state *)cgroup;
	int depth;

	/* The structure of a cgroup begins with that of its subsystem state. */
	for (depth = 0; depth < 32 && css; depth++) {
		if (BPF_CORE_READ((struct cgroup *)css, kn, id) == background_id)
			return true;
		css = BPF_CORE_READ(css, parent);
	}
	return false;
}

/* The number of a task's process as `lull` sees it; 0: not at all. */
static INLINE u32 process_of(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	u32 at = bpf_core_field_offset(struct pid, numbers) +
		 process_level * bpf_core_type_size(struct upid);
	int number = 0;

	if (BPF_CORE_READ(pid, level) >= process_level)
		bpf_probe_read_kernel(&number, sizeof(number), (void *)pid + at);
	return number;
}

static INLINE bool is_foreign_socket(struct file___open *file)
{
	struct socket___sk *socket = BPF_CORE_READ(file, private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	u16 protocol = BPF_CORE_READ((struct sock___protocol *)sk, sk_protocol);

	if (family != FAMILY_INET && family != FAMILY_INET6)
		return false;
	if (protocol != PROTOCOL_TCP && protocol != PROTOCOL_MPTCP)
		return false;
	return !is_inside(BPF_CORE_READ(sk, sk_cgrp_data.cgroup));
}

/* A record for each descriptor of the background through which other processes send. */
SEC("iter/task_file")
int lull_descriptors(struct bpf_iter__task_file *ctx)
{
	struct delegation_record record = {};
	struct task_struct *task = ctx->task;
	struct file___open *file = ctx->file;
	struct inode___device *inode;
	u32 device;

	if (!task || !file || !is_inside(BPF_CORE_READ(task, cgroups, dfl_cgrp)))
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	device = BPF_CORE_READ(inode, i_sb, s_dev);
	if ((BPF_CORE_READ(inode, i_mode) & MODE_TYPE) == MODE_SOCKET) {
		if (!is_foreign_socket(file))
			return 0;
		record.kind = DELEGATION_SOCKET;
	} else {
		if (!(BPF_CORE_READ(file, f_flags) & ACCESS_MODE) ||
		    !bpf_map_lookup_elem(&devices, &device))
			return 0;
		record.kind = DELEGATION_FILE;
	}
	record.process = process_of(task);
	record.device = device;
	record.inode = BPF_CORE_READ((struct inode *)inode, i_ino);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

static INLINE struct delegation_event *event(u32 kind, u32 process)
{
	struct delegation_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e)
		return NULL;
	e->kind = kind;
	e->process = process;
	e->path[0] = 0;
	return e;
}

static INLINE void tell_of_move(u32 process)
{
	struct delegation_event *e = event(DELEGATION_MOVED, process);

	if (e)
		bpf_ringbuf_submit(e, 0);
}

/* A child may start in another cgroup (clone3, CLONE_INTO_CGROUP). */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(lull_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 process = BPF_CORE_READ(child, tgid), one = 1;

	if (!is_inside(BPF_CORE_READ(parent, cgroups, dfl_cgrp)))
		return 0;
	if (is_inside(BPF_CORE_READ(child, cgroups, dfl_cgrp)))
		bpf_map_update_elem(&members, &process, &one, BPF_ANY);
	else
		tell_of_move(process_of(child));
	return 0;
}

/* Any process may move it: podman requests it from systemd. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(lull_move, struct cgroup *to, const char *path, struct task_struct *task)
{
	u32 process = BPF_CORE_READ(task, tgid);

	if (!bpf_map_lookup_elem(&members, &process) || is_inside(to))
		return 0;
	bpf_map_delete_elem(&members, &process);
	tell_of_move(process_of(task));
	return 0;
}

/* `lull` runs this itself. */
SEC("syscall")
int lull_level(void *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	process_level = BPF_CORE_READ(task, thread_pid, level);
	return 0;
}

extern void *bpf_cast_to_kern_ctx(void *context) __ksym;

/* From Linux 6.7. */
SEC("cgroup/connect_unix")
int lull_connect_unix(struct bpf_sock_addr *ctx)
{
	struct bpf_sock_addr_kern *kernel = bpf_cast_to_kern_ctx(ctx);
	struct delegation_event *e = event(DELEGATION_CONNECTED, bpf_get_current_pid_tgid() >> 32);

	if (!e)
		return 1;
	/* The path follows the family. */
	bpf_probe_read_kernel_str(e->path, sizeof(e->path), BPF_CORE_READ(kernel, uaddr) + 2);
	bpf_ringbuf_submit(e, 0);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
