// SPDX-License-Identifier: Apache-2.0
// Between the parts of the Perfetto trace: the recording that is written, its processes and threads
// with their tracks, made when something happens on them.
#ifndef UPGATE_REPORTS_PFTRACE_PARTS_H
#define UPGATE_REPORTS_PFTRACE_PARTS_H

#include "reports/analyse/trace/trace.h"
#include "reports/render/perfetto/pftrace_file.h"
#include "tracer/store/store.h"

struct pftrace_process {
    int64_t id;
    int32_t pid;
    char *name;
    uint64_t track; // 0: not yet
    struct pf_lane nccl;
};

enum pftrace_row {
    PFTRACE_WAITS,
    PFTRACE_SAMPLES,
    PFTRACE_CALLS,
    PFTRACE_NVTX,
    PFTRACE_GC,
    PFTRACE_ROWS
};

struct pftrace_thread {
    int64_t id;
    size_t process;
    int32_t tid;
    char *name;
    uint64_t track;
    struct pf_lane rows[PFTRACE_ROWS];
};

struct pftrace {
    struct store *store;
    struct pf *pf;
    int64_t recording, launch, started_ns; // launch 0: none
    struct trace *events;                  // of the recording, until the host's part is written
    struct pftrace_process *processes;     // as those of events, by id
    struct pftrace_thread *threads;        // likewise
    size_t process_count, thread_count;
};

// NULL: not of the recording
struct pftrace_process *pftrace_process(struct pftrace *trace, int64_t id);
struct pftrace_thread *pftrace_thread(struct pftrace *trace, int64_t id);
uint64_t pftrace_process_track(struct pftrace *trace, struct pftrace_process *process);
// The thread's row of this kind, ready for slices.
struct pf_lane *pftrace_row(
        struct pftrace *trace, struct pftrace_thread *thread, enum pftrace_row row);

const char *pftrace_text(sqlite3_stmt *stmt, int column); // "" for NULL

int pftrace_host(struct pftrace *trace, struct error *err);
int pftrace_gpu(struct pftrace *trace, struct error *err);

#endif
