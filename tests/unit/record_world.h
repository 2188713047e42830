// SPDX-License-Identifier: Apache-2.0
// The recorder over a capture that is none: records made by hand go in, rows of a real store come
// out. Compiled into a test, so that its functions of bpf/capture.h come before the library's.
#ifndef UPGATE_TESTS_UNIT_RECORD_WORLD_H
#define UPGATE_TESTS_UNIT_RECORD_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/capture.h"
#include "tracer/record/record.h"
#include "tracer/store/store.h"

// What the capture answers, and what it was told.
struct fake_capture {
    struct ug_counts counts[UG_COUNTER_COUNT];
    int open_error, add_error, detach_error, look_error, totals_error; // 0, or -errno
    size_t targets; // that are there at the start
    pid_t added, unwound;
    uint32_t processes_max;
    bool faults;
    uint32_t slabs, rules; // of unwind tables
    struct ug_unwind_process process;
};
extern struct fake_capture fake_capture;

struct record_world {
    char dir[sizeof "/tmp/upgate-record-XXXXXX"], path[64]; // path: of the store, in it
    pid_t target;                                           // a process that sleeps
    struct store *store;
    struct recorder *recorder;
};
extern struct record_world world;

void world_begin(void);            // a recorder of the target that writes to a new store
void world_begin_as(bool scratch); // the same; scratch: recorder_opts.scratch
void world_end(void); // what was pushed is written, the recorder stopped, the target killed; the
                      // store stays open
void world_end_target(void);
pid_t world_reader(void); // who reads files for us, a child of ours; 0: nobody. Stopped, it waits
                          // as one does where an mmap lock is held
int64_t world_number(const char *sql); // -1: no such row
void world_check_text(const char *sql, const char *part);

// A record that the next poll reads; its size is set here. addresses: what stands behind it.
void world_push(const void *record, size_t size, const __u64 *addresses, size_t count);
// of the target's: 2 ms asleep, 1 ms until it ran
struct ug_gap world_gap(uint32_t tid, uint64_t out_ns);

#endif
