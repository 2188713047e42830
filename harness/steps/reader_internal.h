// SPDX-License-Identifier: Apache-2.0
// What reader.c (file, gate) and reader_rings.c (records) share.
#ifndef UPGATE_HARNESS_STEPS_READER_INTERNAL_H
#define UPGATE_HARNESS_STEPS_READER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/time_namespace.h"
#include "contracts/step_layout.h"

struct reader_rings {
    const struct ug_step_record *records; // NULL: not mapped yet
    const unsigned char *bytes;           // mapped twice in a row
};

// Of a process: how far it is from ours.
struct reader_clock {
    bool looked;
    uint64_t inode; // of its time namespace, as the slot says it; 0: not told
    int code;       // 0: known; else -errno of clock_compare()
    struct time_offsets ahead;
};

struct reader {
    int fd;
    int told_fd;                   // -1: nobody wants to know of grants
    char *path;                    // NULL: it is left alone at the end
    struct ug_step_header *header; // shared: only event, waiting and the counts are read back
    struct ug_step_header plan; // ours: a process that writes over the header must not mislead us
    struct ug_step_slot *slots;
    uint64_t map_bytes;
    struct reader_rings *rings; // one a slot
    uint64_t pid_namespace;
    struct reader_outside {
        uint32_t pid, tid;          // as the process of a slot says them, in a namespace of its own
        pid_t outer_pid, outer_tid; // as we know them; -1 = not to be seen
        struct reader_clock clock;
        uint64_t unplaced; // records that were not handed out, as their times are not known
    } * outside;           // one a slot; what was found out once
    struct reader_seen {
        uint32_t claims, count; // slots claimed when so many claims had been counted
    } seen;
};

void reader_rings_unmap(struct reader *reader, uint32_t slot_idx);

// reader_outside.c. A process's number as we know it; -1: of a namespace that cannot be seen from
// here. To find it is a look at every process.
pid_t reader_slot_pid(const struct reader *reader, const struct ug_step_slot *slot);
pid_t reader_slot_tid(const struct reader *reader, const struct ug_step_slot *slot); // 0: as above
const struct reader_clock *reader_slot_clock(
        const struct reader *reader, const struct ug_step_slot *slot);
// A time of such a clock as one of ours; 0 where it is 0, or not known.
uint64_t reader_our_time(const struct reader_clock *clock, uint64_t ns);

#endif
