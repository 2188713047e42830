// SPDX-License-Identifier: Apache-2.0
// A process mapped code, or became another program: what the kernel told of it, and when. From bpf/
// to tracer/symbols.
#ifndef UPGATE_COMMON_MAPPING_EVENT_H
#define UPGATE_COMMON_MAPPING_EVENT_H

#include <stdint.h>
#include <sys/types.h>

enum mapping_event_what {
    MAPPING_EVENT_ADDED,
    MAPPING_EVENT_EXEC, // nothing of what was mapped before is there any more
    MAPPING_EVENT_LOST, // events of any process are missing; only at_ns is set
};

enum { MAPPING_BUILD_ID_LEN = 40 };

struct mapping_event {
    enum mapping_event_what what;
    pid_t tgid;
    uint64_t at_ns; // CLOCK_MONOTONIC
    uint64_t start, end, offset;
    uint64_t device, inode;                  // 0 where there is a build-id
    char build_id[MAPPING_BUILD_ID_LEN + 1]; // lower-case hex; "": none was told
    const char *path;                        // as the process sees it; valid during the call only
};

#endif
