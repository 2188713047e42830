// SPDX-License-Identifier: Apache-2.0
// A recorder that goes on for weeks: what it keeps of events is bounded by --max-size, names and
// stacks are not. Where those have outgrown it, another recorder takes over, with the processes
// that live then. One thread.
#ifndef UPGATE_HARNESS_LIVE_RENEW_H
#define UPGATE_HARNESS_LIVE_RENEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "harness/live/look.h"
#include "harness/record/recording.h"

enum { RENEW_ENDED = 1 }; // there is nobody left to record

struct renew {
    struct recording_opts recording; // of each recorder; the caller's at first. path NULL: a store
                                     // of ours, which may go
    bool silent;                     // as look_start()
    int64_t begun_ns;                // when the recorder was started
    pid_t *pids, *roots; // of a recorder behind another one: its target, and those that the others
                         // descend from
    size_t pid_count;
};

// The first recorder. As look_start().
int renew_start(struct renew *renew, struct look *look, struct error *err);
// Another one where it is due; what was looked at is forgotten then. 0: one goes on; RENEW_ENDED;
// -errno.
int renew_when_outgrown(struct renew *renew, struct look *look, struct error *err);
// -EAGAIN: it goes on. Else how it ended: 0, RENEW_ENDED, or its error.
int renew_reap(struct renew *renew, struct look *look, struct error *err);
void renew_free(struct renew *renew);

#endif
