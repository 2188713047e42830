// SPDX-License-Identifier: Apache-2.0
// The recorder: takes what bpf/ captures of a target into the store. One thread (recorder_poll's
// caller) reads the rings, resolves stacks, walks Python frames of threads that are still blocked,
// reads command lines and counters, and writes in transactions of about a second. A disk that fills
// up ends the recording with what was committed readable. Never blocks, stops or changes the
// target.
#ifndef UPGATE_TRACER_RECORD_H
#define UPGATE_TRACER_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "tracer/gpu/gpu.h"
#include "tracer/store/store.h"

struct recorder;

struct recorder_opts {
    // process ids; their children and threads born later belong to the target too
    const pid_t *pids;
    size_t pid_count;
    const char *cgroup;       // directory of a cgroup, or NULL
    const int64_t *launch_id; // of a traced launch; NULL for `upgate record`
    int64_t threshold_ns;     // 0 = 1 ms
    uint32_t sample_hz;       // 0 = 199 (never a divisor of the timer tick); UINT32_MAX: no samples
    bool faults;              // page faults are sampled: who touched memory first
    // Processes that user stacks are walked and named in at one time, and interpreters that are
    // followed: so many, or twice those of the target that are there at the start, whichever is
    // more; from 256 to 2,048.
    uint32_t processes_max;
    bool no_python;
    bool no_children;
    bool prompt; // Python stacks of samples are read at once, and may cost more: a traced launch
    const char *command; // for table recording.target, JSON array text, or NULL
    const char *rank;    // likewise, JSON object: which rank of a job the target is; or NULL
    uint32_t gpu_kinds; // enum ug_spool_want of prepared processes; 0: their GPU side is left alone
    const char *gpu_library; // for the sentence that says how to prepare a process; NULL ok
    bool host_optional;      // go on with the GPU side alone where the host side is not permitted
    int64_t max_bytes;       // of the store: the oldest events go; 0: no limit
    bool live;    // our parent reads meanwhile: each second it has the waits that go on, too
    bool scratch; // the store goes with the recorder: it has no index, and no loss of power harms
                  // it
};

// Could these be a target? -EINVAL: one is no process that lives, a thread of one, or we ourselves;
// other -errno.
ERROR_CHECKED int recorder_check_pids(const pid_t *pids, size_t count, struct error *err);
// Attach. Until recorder_stop the store belongs to the recorder: a transaction of its may be open
// whenever recorder_poll has returned. -EINVAL: no such process, or no such cgroup. On
// -EPERM/-ENOTSUP the error says which permission or feature is missing and what still works.
// Sources that could not be attached are no error: they are in recording.missing; with
// host_optional, or where a process is prepared for its GPU side, the host side as a whole is such
// a source.
ERROR_CHECKED int recorder_start(struct store *store, const struct recorder_opts *opts,
        struct recorder **ret_recorder, struct error *err);
// Read what is there, at most wait_ms for more. 0, or -errno (disk full, store locked): then
// recorder_stop still writes what it can. *ret_alive: a process of the target lives.
ERROR_CHECKED int recorder_poll(
        struct recorder *recorder, int wait_ms, bool *ret_alive, struct error *err);
// Detach, drain, write the ledger and the end. The recording's id in *ret_recording_id (may be
// NULL).
ERROR_CHECKED int recorder_stop(
        struct recorder *recorder, int64_t *ret_recording_id, struct error *err);
void recorder_free(struct recorder *recorder); // NULL ok; detaches; before store_close

// One more process becomes a target, with its children: rank `rank` of the job that opts.rank is
// one of. recording.target says so in "joined". -EEXIST: such a rank has joined already; -ESRCH:
// the process has ended; other -errno: it cannot be taken. Of one that is refused nothing is
// recorded, and nothing waits for its end. Before recorder_stop.
ERROR_CHECKED int recorder_join(
        struct recorder *recorder, pid_t pid, int32_t rank, struct error *err);
// That rank is another recorder's, or nobody's: neither "joined" nor "ranks" says that it is here,
// and its process and what descends from it are strangers: nothing more is recorded of them, and
// nothing waits for their end. What was recorded of it stays.
void recorder_leave(struct recorder *recorder, int32_t rank);

// A step of the target, for table recorded_step; before recorder_stop.
void recorder_step(
        struct recorder *recorder, int64_t rank, int64_t idx, int64_t begin_ns, int64_t dur_ns);

struct recorder_totals {
    uint64_t gaps, samples, locks, facts, dropped;
    uint32_t threads; // of the target, that a record named
    uint32_t pythons; // interpreters found so far
    bool host;        // the host side is recorded
    struct gpu_totals gpu;
};
// for progress
void recorder_totals(const struct recorder *recorder, struct recorder_totals *ret_totals);

#endif
