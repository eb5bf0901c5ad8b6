/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Mirrors whose connections share a path, on the host, for the conformance test: parameters and
 * events from standard input, state to standard output, all as 64-bit words. First come the
 * parameters, then events of fourteen words, the fields of struct host_event; each is answered by
 * HOST_ANSWERS words.
 *
 * The includer defines HOST_PARAMETERS, 0 without any; HOST_ANSWERS; HOST_TYPES, the header with the
 * types of the states; HOST_PATH and HOST_MEMBER, their names; and the functions that are declared
 * below.
 */
#ifndef LULL_HOST_SHARED_H
#define LULL_HOST_SHARED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;

#define HOST_INLINE inline __attribute__((unused))

#include HOST_TYPES

enum { HOST_PATHS = 2, HOST_CONNECTIONS = 8 };

enum host_kind {
	EVENT_ACK = 0,
	EVENT_LOSS = 1,
	EVENT_MARK = 2,
	EVENT_TIMEOUT = 3,
	EVENT_IDLE = 4,
	EVENT_SEND = 5,
	EVENT_JOIN = 6,
	EVENT_LEAVE = 7,
	EVENT_LEADER_LEAVES = 8,
	EVENT_MOVE = 9,
	EVENT_FOREGROUND = 10,
	EVENT_KINDS = 11,
};

struct host_event {
	u64 kind;
	u64 path;
	u64 connection;
	u64 now_us;
	u64 delivered;
	u64 prior_delivered;
	u64 acked;
	u64 lost;
	u64 in_flight;
	u64 rtt_us;
	u64 interval_us;
	u64 app_limited;
	u64 maybe_delayed;
	u64 is_small;
};

#include "host_ack.h"

/* Takes the parameters. */
static void host_start(const u64 *words);
static void host_init(HOST_PATH *path);
static void host_join(HOST_PATH *path, HOST_MEMBER *member, u64 now_us);
static void host_leave(HOST_PATH *path, HOST_MEMBER *member, u64 now_us);
static bool host_leads(const HOST_PATH *path, const HOST_MEMBER *member);
/* For a path: when the host's foreground last connected and sent, and its number of bytes so far,
 * in the words `delivered`, `prior_delivered` and `acked`. */
static void host_foreground(HOST_PATH *path, const struct host_event *event);
/* Any other event of a member. */
static void host_feed(HOST_PATH *path, HOST_MEMBER *member, const struct host_event *event);
/* Answers for a path and one of its members. */
static void host_answer(const HOST_PATH *path, const HOST_MEMBER *member,
			const struct host_event *event, u64 *answer);

static HOST_PATH host_paths[HOST_PATHS];

struct host_connection {
	HOST_PATH *path; /* 0: on none */
	HOST_MEMBER member;
};

static struct host_connection host_connections[HOST_CONNECTIONS];

static void host_leave_path(struct host_connection *c, u64 now_us)
{
	if (c->path)
		host_leave(c->path, &c->member, now_us);
	c->path = 0;
}

static void host_join_path(struct host_connection *c, HOST_PATH *path, u64 now_us)
{
	if (c->path)
		return;
	c->path = path;
	host_join(path, &c->member, now_us);
}

static void host_leader_leaves(HOST_PATH *path, u64 now_us)
{
	int i;

	for (i = 0; i < HOST_CONNECTIONS; i++)
		if (host_connections[i].path == path &&
		    host_leads(path, &host_connections[i].member)) {
			host_leave_path(&host_connections[i], now_us);
			return;
		}
}

static void host_step(const struct host_event *event)
{
	struct host_connection *c = &host_connections[event->connection];
	HOST_PATH *path = &host_paths[event->path];

	switch (event->kind) {
	case EVENT_JOIN:
		host_join_path(c, path, event->now_us);
		break;
	case EVENT_LEAVE:
		host_leave_path(c, event->now_us);
		break;
	case EVENT_LEADER_LEAVES:
		host_leader_leaves(path, event->now_us);
		break;
	case EVENT_FOREGROUND:
		host_foreground(path, event);
		break;
	case EVENT_MOVE:
		host_leave_path(c, event->now_us);
		host_join_path(c, path, event->now_us);
		break;
	default:
		if (c->path)
			host_feed(c->path, &c->member, event);
		break;
	}
}

/* The words of an unused path or connection are zero. */
static void host_tell(const struct host_event *event, u64 *answer)
{
	struct host_connection *c = &host_connections[event->connection];

	memset(answer, 0, HOST_ANSWERS * sizeof(*answer));
	if (c->path)
		host_answer(c->path, &c->member, event, answer);
}

int main(void)
{
	u64 parameters[HOST_PARAMETERS + 1], answer[HOST_ANSWERS];
	struct host_event event;
	int i;

	if (fread(parameters, sizeof(u64), HOST_PARAMETERS, stdin) != HOST_PARAMETERS)
		return 1;
	host_start(parameters);
	for (i = 0; i < HOST_PATHS; i++)
		host_init(&host_paths[i]);
	while (fread(&event, sizeof(event), 1, stdin) == 1) {
		if (event.kind >= EVENT_KINDS || event.path >= HOST_PATHS ||
		    event.connection >= HOST_CONNECTIONS)
			return 2;
		host_step(&event);
		host_tell(&event, answer);
		if (fwrite(answer, sizeof(answer), 1, stdout) != 1)
			return 1;
	}
	return 0;
}

#endif
