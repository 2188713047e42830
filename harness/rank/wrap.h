// SPDX-License-Identifier: Apache-2.0
// `upgate rank`: stands before a worker, forks a recorder that is no child of it, and becomes the
// worker, in the pid that the launcher knows. The recorder has a session of its own, no descriptor
// of the worker's, all CPUs, and ends when the worker has ended; it writes one shard, a transaction
// a second. Whatever becomes of it, the worker runs: why nothing is recorded is said once on
// stderr, and stands in the shard's place.
#ifndef UPGATE_HARNESS_RANK_WRAP_H
#define UPGATE_HARNESS_RANK_WRAP_H

#include "common/error.h"
#include "harness/rank/identity.h"
#include "harness/record/recording.h"

struct wrap_opts {
    pid_t pid;       // not 0: a rank that runs already; it has called us, and stays what it is
    const char *dir; // in which DIR/RUN/RESTART-RANK.db comes to be
    bool again;      // its launcher counts no restarts: it is of the next one in DIR/RUN
                     // (scan_next_restart)
    bool stdin_ends; // of pid: a byte on stdin is the end of the recording, though the rank lives
    bool shared; // one recorder for all ranks of this node that are so, and one shard, that of the
                 // first
    struct identity identity;
    struct recording_opts recording; // its command, and how it is recorded; path, worker and what
                                     // follows it are filled here
};

// The restart of a rank that is `again`, into opts->identity: reads the directory.
void wrap_find_restart(struct wrap_opts *opts);
// The path of the shard, as it would be if no other were there; the caller frees.
char *wrap_path(const struct wrap_opts *opts);
// Returns only when the command cannot be executed: -ENOENT, -EACCES, … in words. With pid: 0, it
// is being recorded, or why not; *ret_steps is the value of UPGATE_STEPS for its step calls, NULL:
// none. The caller frees it.
int wrap_run(const struct wrap_opts *opts, char **ret_steps, struct error *err);

#endif
