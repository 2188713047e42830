// SPDX-License-Identifier: Apache-2.0
// A file that somebody else writes, line by line, and that may be rotated: renamed and begun anew,
// or cut to nothing. What stood in it at the begin is passed over. Never waits.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_TAIL_H
#define UPGATE_HARNESS_CANARY_SOURCES_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { TAIL_LINE_MAX = 65536 };

struct tail {
    char *path; // our own
    int fd;     // -1: not there
    dev_t device;
    ino_t inode;
    off_t at;
    char *buf; // a line that is not whole yet
    size_t len;
    bool skipping;     // up to the next line end
    int64_t looked_ns; // at its name
    uint64_t too_long; // lines
    char problem[200]; // "": none
};

void tail_begin(struct tail *tail, const char *path);
void tail_end(struct tail *tail);

// Gives each whole line that has come, without its end. True: there may be more, it stopped because
// it was much.
bool tail_read(struct tail *tail, int64_t now_ns,
        void (*take)(void *arg, const char *line, size_t len), void *arg);

#endif
