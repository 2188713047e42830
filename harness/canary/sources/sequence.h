// SPDX-License-Identifier: Apache-2.0
// How many numbered lines never came. HAProxy numbers the log lines of each frontend and process
// from 0; threads may give one number twice and leave out the next, and lines may overtake each
// other, so counts are compared, not numbers.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_SEQUENCE_H
#define UPGATE_HARNESS_CANARY_SOURCES_SEQUENCE_H

#include <stddef.h>
#include <stdint.h>

enum { SEQUENCE_STREAMS_MAX = 64 }; // frontends times processes that are alive during reloads

struct sequence {
    struct sequence_stream {
        uint64_t key, first, highest, count;
        int64_t last_ns;
    } streams[SEQUENCE_STREAMS_MAX];
    int stream_count;
    uint64_t ended;               // lost of streams that are no longer kept
    uint64_t lost, lost_at_least; // told; the least since `since_ns`
    int64_t since_ns;
};

// key: of the process and the frontend.
void sequence_add(struct sequence *sequence, uint64_t key, uint64_t number, int64_t now_ns);
// What has been missing for a second is lost: what was only overtaken has come by then. Only grows.
uint64_t sequence_lost(struct sequence *sequence, int64_t now_ns);

#endif
