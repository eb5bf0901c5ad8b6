/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Reads what is known of the host's other connections on a path. The includer has kernel.h and lull_types.h. */
#ifndef LULL_PATH_FOREGROUND_H
#define LULL_PATH_FOREGROUND_H

#include "path_foreground_types.h"

/* The part that lull_on_foreground() takes. */
static inline __attribute__((always_inline)) struct lull_foreground
path_foreground_read(const struct path_foreground *f)
{
	return (struct lull_foreground){
		.connected_us = f->connected_us,
		.data_us = f->data_us,
		.bytes = f->bytes,
	};
}

#endif
