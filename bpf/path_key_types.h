/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The identity of a path of this host. The includer has kernel.h. */
#ifndef LULL_PATH_KEY_TYPES_H
#define LULL_PATH_KEY_TYPES_H

/* Connections with an equal key share one state (docs/adr/0016). No padding: keys are compared as
 * bytes. */
struct path_key {
	u64 network_namespace; /* cookie of the namespace: never used twice, unlike its inode */
	u8 prefix[8];	       /* first bytes of the destination: three of IPv4, six of IPv6,
				* or four and eight of one that is apart */
	u32 interface;	       /* index of the egress interface; 0: no route is known */
	u32 family;
};

#endif
