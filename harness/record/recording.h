// SPDX-License-Identifier: Apache-2.0
// `upgate record` from begin to end: the store, the program if one is to be started, the recorder's
// rounds until time, signal or target end them, and the steps of a started program that makes step
// calls.
#ifndef UPGATE_HARNESS_RECORD_RECORDING_H
#define UPGATE_HARNESS_RECORD_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "common/error.h"
#include "tracer/record/record.h"

// What a process that becomes the command by itself is to have in its environment.
struct recording_release {
    const char *steps_path; // value of UPGATE_STEPS, NULL: none
    bool finds_steps;       // and steps are to be found (harness/contain/python_steps.h)
    bool injects;           // its GPU side is to be recorded
};

struct recording_opts {
    const char *path; // of the store; must not exist yet, or be empty
    const pid_t *pids;
    size_t pid_count;
    const char *cgroup;   // directory, or NULL
    char *const *command; // NULL-terminated, or NULL
    size_t command_count;
    // Not 0: this process, no child of ours, waits to become the command, and is told by release
    // when it may. Without a command it runs already, and is told where it may make step calls.
    // Signals do not end the recording then: its end does.
    pid_t worker;
    void (*release)(void *context, const struct recording_release *with);
    // Called in each round, and last when there is no other: processes may join meanwhile
    // (recorder_join). NULL ok.
    void (*on_round)(void *context, struct recorder *recorder, bool last);
    // Asked in each round; true: that is the end. NULL ok.
    bool (*is_over)(void *context);
    void *context;
    int32_t worker_rank; // of a worker that runs already: the rank of its step calls, as its
                         // environment may know another one
    uint32_t step_slots; // processes that may make step calls; 0: 64
    // Of a command: its file of steps, which stays at the end, for a recording of the same
    // processes that goes on with it (and names them by pids, with no command). The caller unlinks
    // it. NULL: one of its own.
    const char *steps_path;
    uint32_t processes_max; // as recorder_opts
    const char *rank;       // JSON object: who it is, for recording.target; or NULL
    int64_t duration_ns;    // 0: until the target ends or a signal comes
    int64_t threshold_ns;   // 0: the recorder's
    uint32_t sample_hz;     // as recorder_opts
    bool no_python, no_children;
    bool no_steps, finds_steps; // of a command: no step calls; steps found in a Python program that
                                // makes none
    const char *step;           // "FILE.py:FUNCTION" whose calls are the steps, NULL
    const char *symbol;         // "symbol:NAME", likewise, also of processes that run already, NULL
    const char *injected; // "nvtx:NAME", "graph": steps that our library marks in a command, NULL
    uint32_t gpu_kinds;   // enum ug_spool_want; 0: no GPU side
    bool gpu_named;       // the user asked for it by name
    int64_t max_bytes;    // of the store; 0: no limit
    bool live, scratch;   // as recorder_opts
    bool progress;        // on stderr, if it is a terminal
    const char *command_line; // of upgate, JSON array
};

enum recording_ending { RECORDING_TIME, RECORDING_SIGNAL, RECORDING_TARGET };

struct recording_result {
    int64_t recording_id;
    int64_t length_ns;
    enum recording_ending ending;
    int signal; // of RECORDING_SIGNAL
    bool command_ended;
    int command_status; // wait status
    uint64_t steps, steps_dropped;
    struct recorder_totals totals;
    json_t *gpu;   // array of the processes whose GPU side was looked at; caller's
    char *missing; // sentences of sources that were not there, a line each; caller frees
};

// A file for steps_path: its name, which the caller frees, and a descriptor, as long as which is
// open no other upgate takes the file away. NULL: none can be made.
char *recording_steps_reserve(int *ret_fd);

// What recording_run() would refuse at once: 0, or its error. path NULL: not looked at.
int recording_check(const struct recording_opts *opts, struct error *err);
// 0; -EINVAL: bad input, no such process; other -errno: not permitted, disk full, ... What was
// written before a failure in the middle stays; a store in which nothing was recorded is removed
// again.
int recording_run(
        const struct recording_opts *opts, struct recording_result *ret_result, struct error *err);

#endif
