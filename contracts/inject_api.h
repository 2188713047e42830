// SPDX-License-Identifier: Apache-2.0
// What the library in the workload (libupgate_inject.so) offers to others in the same process: the
// CPython extension, which looks for it in /proc/self/maps, opens it with RTLD_NOLOAD and asks for
// UG_INJECT_API_SYMBOL. Every function may be called from any thread at any time, allocates nothing
// and waits for nobody; while the spool is dormant they do nothing.
#ifndef UPGATE_CONTRACTS_INJECT_API_H
#define UPGATE_CONTRACTS_INJECT_API_H

#include <stddef.h>
#include <stdint.h>

#include "contracts/spool.h"

#define UG_INJECT_API_SYMBOL "upgate_inject_api"
#define UG_INJECT_API_VERSION 1u
#define UG_INJECT_LIBRARY "libupgate_inject.so"

struct ug_inject_api {
    uint32_t version, bytes;
    // enum ug_spool_want that is on now; 0: dormant. One load.
    uint32_t (*kinds)(void);
    // The id of a text, which is written to the spool at its first use; 0: no room, or dormant. Ids
    // last until the process ends: a caller may keep them.
    uint32_t (*string)(const char *text, size_t text_bytes);
    // A whole record, head filled in (tid 0 = of the calling thread), copied. 0, or -1: dropped and
    // counted.
    int (*put)(enum ug_spool_producer producer, const void *record);
    // Asks to be called, from the library's own thread, when the kinds change; at once if some are
    // on. One listener.
    void (*listen)(void (*changed)(uint32_t kinds));
    // Correlation id of the launch this thread is in, inside a launch callback; 0: none.
    uint32_t (*correlation)(void);
    // Since `bytes` covers it. What to call at the enter of each launch while UG_WANT_LAUNCH_STACKS
    // is on, on the launching thread, inside the callback, with the launch's correlation id; NULL:
    // nothing any more. It may take the GIL.
    void (*on_launch)(void (*launched)(uint32_t correlation));
};

typedef const struct ug_inject_api *(*ug_inject_api_fn)(uint32_t version); // NULL: no such version

#endif
