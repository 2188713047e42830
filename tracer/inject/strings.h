// SPDX-License-Identifier: Apache-2.0
// Texts and their ids; used through spool_writer.h, which makes and drops the tables together with the spool.
#ifndef UPGATE_TRACER_INJECT_STRINGS_H
#define UPGATE_TRACER_INJECT_STRINGS_H

#include <stdint.h>

// Maps the tables, empty; takes no memory before the first text. 0 or -errno.
int strings_create(void);
// In a child after fork: the ids belong to the parent's spool. Async-signal-safe.
void strings_forget(void);

// The id of a text by its address, 0: not remembered. Writes nothing, so it may be asked between spool_room and
// spool_publish.
uint32_t strings_known(const char *text);
// Grows when the strings are written again: ids remembered elsewhere are to be asked for again.
uint32_t strings_run(void);

#endif
