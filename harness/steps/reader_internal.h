// SPDX-License-Identifier: Apache-2.0
// What reader.c (file, gate) and reader_rings.c (records) share.
#ifndef UPGATE_HARNESS_STEPS_READER_INTERNAL_H
#define UPGATE_HARNESS_STEPS_READER_INTERNAL_H

#include <stdint.h>
#include <sys/types.h>

#include "contracts/step_layout.h"

struct reader_rings {
    const struct ug_step_record *records; // NULL: not mapped yet
    const unsigned char *bytes;           // mapped twice in a row
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
    } * outside;                    // one a slot; what was found out once
    struct reader_seen {
        uint32_t claims, count; // slots claimed when so many claims had been counted
    } seen;
};

void reader_rings_unmap(struct reader *reader, uint32_t slot_idx);

#endif
