// SPDX-License-Identifier: Apache-2.0
// A recorder behind another one.
#include "harness/live/renew.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/log.h"
#include "common/proc.h"

enum { RENEW_OUTGROWN = 2 }; // times --max-size

int renew_start(struct renew *renew, struct look *look, struct error *err)
{
    renew->begun_ns = clock_monotonic_ns();
    return look_start(look, &renew->recording, renew->silent, err);
}

// The processes of the target, by what was named and by the store of the recorder that has ended.
static void renew_find_target(struct renew *renew, const struct look *look)
{
    struct error err = {0};
    struct store *store = NULL;
    pid_t *pids = NULL;
    size_t count = 0;
    for (size_t i = 0; i < renew->recording.pid_count; i++)
        vector_push(pids, count, renew->recording.pids[i]);
    if (store_open(look->path, STORE_READ, &store, &err) == 0) {
        sqlite3_stmt *stmt = store_query(store, &err,
                "SELECT tgid FROM process WHERE kind = 'target' AND ended_ns IS NULL", "");
        while (stmt && store_step(store, stmt, NULL) == 1)
            vector_push(pids, count, (pid_t)sqlite3_column_int64(stmt, 0));
    }
    store_close(store);
    free(renew->pids);
    renew->pids = pids;
    renew->pid_count = count;
}

// Leaves out who has ended. Gives how many that were.
static size_t renew_keep_living(struct renew *renew)
{
    size_t living = 0, ended = 0;
    for (size_t i = 0; i < renew->pid_count; i++) {
        struct proc_stat stat;
        if (proc_stat_of(renew->pids[i], &stat) || proc_stat_ended(&stat))
            ended++;
        else
            renew->pids[living++] = renew->pids[i];
    }
    renew->pid_count = living;
    return ended;
}

// Each once, and no child of another one: it comes with that, and to find what is below one takes a
// look at every process.
static void renew_choose_roots(struct renew *renew)
{
    struct recording_opts *recording = &renew->recording;
    free(renew->roots);
    renew->roots = NULL;
    recording->pid_count = 0;
    for (size_t i = 0; i < renew->pid_count; i++) {
        struct proc_stat stat;
        pid_t parent =
                recording->no_children || proc_stat_of(renew->pids[i], &stat) ? -1 : stat.parent;
        bool there = false;
        for (size_t k = 0; k < renew->pid_count && !there; k++)
            there = renew->pids[k] == parent || (k < i && renew->pids[k] == renew->pids[i]);
        if (!there)
            vector_push(renew->roots, recording->pid_count, renew->pids[i]);
    }
    recording->pids = renew->roots;
}

// A recorder of those that live. RENEW_ENDED: nobody does.
static int renew_begin_anew(struct renew *renew, struct look *look, struct error *err)
{
    look_free(look);
    *look = (struct look){.report_fd = -1};
    if (!renew->recording.cgroup) {
        renew_keep_living(renew);
        renew_choose_roots(renew);
        renew->recording.command = NULL; // it runs
        renew->recording.command_count = 0;
        renew->recording.injected = NULL; // marks go on, and what they are has been said
        renew->recording.finds_steps = false;
    }
    if (!renew->recording.cgroup && !renew->recording.pid_count)
        return RENEW_ENDED;
    return renew_start(renew, look, err);
}

int renew_when_outgrown(struct renew *renew, struct look *look, struct error *err)
{
    struct stat info;
    struct error end = {0};
    if (renew->recording.path || stat(look->path, &info) ||
            info.st_size < RENEW_OUTGROWN * renew->recording.max_bytes)
        return 0;
    if (!renew->silent) // there may be a screen
        log_info("names and stacks have outgrown --max-size: the recording begins anew");
    if (look_stop(look, &end))
        log_warn("the recorder before it: %s", end.text);
    if (!renew->recording.cgroup)
        renew_find_target(renew, look);
    return renew_begin_anew(renew, look, err);
}

// A process may end before the next recorder finds it: then another one takes the rest.
int renew_reap(struct renew *renew, struct look *look, struct error *err)
{
    int rc = look_reap(look, 0, err);
    bool gone = (rc == -EINVAL || rc == -ESRCH) && renew->pid_count && !look->stalls;
    if (!gone || !renew_keep_living(renew))
        return rc;
    rc = renew_begin_anew(renew, look, err);
    return rc ? rc : -EAGAIN;
}

void renew_free(struct renew *renew)
{
    free(renew->pids);
    free(renew->roots);
}
