// SPDX-License-Identifier: Apache-2.0
// Syslog datagrams by UDP or at a Unix socket, many at a time.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_DATAGRAMS_H
#define UPGATE_HARNESS_CANARY_SOURCES_DATAGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct datagrams {
    int fd;
    char *path;       // of a Unix socket, ours: removed at the end
    bool short_queue; // of a Unix socket: the kernel keeps only a few datagrams, and refuses others
    int64_t gather_ns; // so long they may be left lying there, so that one wake-up takes many
    uint32_t drops;    // as the kernel counts
    uint64_t lost;     // dropped by the kernel because nobody read in time
    uint64_t too_long;
    struct datagrams_room *room;
};

// "HOST:PORT", "[IPv6]:PORT" or "unix:PATH". -EINVAL for another form; -EADDRINUSE and the like in
// words.
int datagrams_open(struct datagrams *datagrams, const char *listen, struct error *err);
void datagrams_close(struct datagrams *datagrams); // NULL members ok

// Gives each line that is there; never waits. *ret_count: datagrams. True: there may be more, it
// stopped because it was much.
bool datagrams_read(struct datagrams *datagrams,
        void (*take)(void *arg, const char *line, size_t len), void *arg, uint64_t *ret_count);

#endif
