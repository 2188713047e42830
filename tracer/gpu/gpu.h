// SPDX-License-Identifier: Apache-2.0
// The GPU side of a recording: switches the library in the workload on (contracts/spool.h), takes
// its records out of the spools of any number of processes, brings their times to CLOCK_MONOTONIC,
// joins launches to what ran, and writes rows of the gpu_*, nccl_op, nvtx_range, python_* and
// clock_sample tables. One thread, the one that owns the store. Never waits but in
// gpu_recorder_stop; 25 MB as a rule, 80 MB at the highest launch rate with CUPTI a second behind,
// however long (ci/bench/store_load).
#ifndef UPGATE_TRACER_GPU_GPU_H
#define UPGATE_TRACER_GPU_GPU_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "tracer/store/store.h"

struct gpu_recorder;

// Who knows the rows of processes and threads, and whose transaction it is.
struct gpu_callbacks {
    void *context;
    // Row of table process; pid as given to gpu_recorder_attach. 0: not known.
    uint32_t (*process)(void *context, pid_t pid);
    // Row of table thread. tid is what the thread itself sees (gettid in its own pid namespace):
    // mapping it is the callback's part. Asked once a thread. 0: not known.
    uint32_t (*thread)(void *context, pid_t pid, uint32_t tid);
    // Open a transaction unless one is open; not 0: nothing can be written any more, rows are
    // counted as lost. NULL: the recorder makes its own, about one a second (tests, benchmarks).
    int (*begin)(void *context);
    // A statement failed (sqlite3_errcode of the store says why): roll back and write no more. NULL
    // with begin.
    void (*failed)(void *context);
};

struct gpu_opts {
    uint32_t kinds;           // enum ug_spool_want; 0 = UG_WANT_DEFAULT
    const int64_t *launch_id; // for the ledger; NULL: of `upgate record`
};

// The store must hold the recording's row. -EIO: cannot be written.
ERROR_CHECKED int gpu_recorder_new(struct store *store, int64_t recording_id,
        const struct gpu_callbacks *callbacks, const struct gpu_opts *opts,
        struct gpu_recorder **ret_gpu, struct error *err);
// NULL ok; switches off what is still on, does not wait for it
void gpu_recorder_free(struct gpu_recorder *gpu);

// Looks for the spool of a process and switches it on. Reads /proc/PID/fd: a try costs about 1 us a
// file descriptor, so try a few times a second, for as long as -ENOENT comes. 0 also when it is
// attached already (after exec it may be a new spool: the old one is read to its end). -ENOENT: no
// spool (yet), no error text. -EACCES: may not be looked into. -EPROTO: a spool of another version,
// a damaged one, or one of a clock that cannot be compared with ours; try no more.
ERROR_CHECKED int gpu_recorder_attach(struct gpu_recorder *gpu, pid_t pid, struct error *err);
// fd stays the caller's; of a process that has our clock
ERROR_CHECKED int gpu_recorder_attach_fd(
        struct gpu_recorder *gpu, pid_t pid, int fd, struct error *err);

// Takes what is there; call every 20 to 100 ms (64 MiB of spool hold 0.7 M launches). Rows come 3 s
// after the event, in the order of start. 0, or -errno when the store cannot be written. gone: see
// gpu_recorder_gone.
ERROR_CHECKED int gpu_recorder_poll(struct gpu_recorder *gpu, int64_t now_ns, struct error *err);
// The process has ended: its spool is read to the end at the next poll and then let go.
void gpu_recorder_gone(struct gpu_recorder *gpu, pid_t pid);
// Switch off, wait at most wait_ms for the libraries to hand over what they hold, read it, write
// all rows and the ledger. The transaction is left open where `begin` opened it. The process of the
// recorder's rows must still be known.
ERROR_CHECKED int gpu_recorder_stop(struct gpu_recorder *gpu, int wait_ms, struct error *err);

struct gpu_totals {
    // rows, what is held back included
    uint64_t kernels, copies, graphs, calls, marks, collectives, others;
    uint64_t dropped;   // records lost anywhere: no room in the spool, CUPTI's own, damaged, not
                        // writable
    uint32_t processes; // attached so far
    uint32_t active;    // of them recording now
    uint32_t refused;   // of them refused
    char refused_reason[160]; // of the last one
    pid_t taken;              // one that another recorder has taken over; 0: none
};
void gpu_recorder_totals(const struct gpu_recorder *gpu, struct gpu_totals *ret_totals);

#endif
