// SPDX-License-Identifier: Apache-2.0
// Synthetic recordings, row by row.
#include "tests/unit/stall_story.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/strings.h"

static const int64_t story_begin_ns = INT64_C(5000000000000); // a machine up for 83 minutes
static const double story_tick_ms = 1000.0 / 199;

static void story_die(struct story *story, const char *what, const struct error *err)
{
    printf("    story: %s: %s\n", what, err->text);
    store_rollback(story->store);
    exit(1);
}

int64_t story_ns(double ms)
{
    return story_begin_ns + (int64_t)(ms * 1e6);
}

void story_sql(struct story *story, const char *sql)
{
    struct error err = {0};
    if (store_exec(story->store, &err, sql, ""))
        story_die(story, sql, &err);
}

static int64_t *story_id(int64_t *id)
{
    return *id ? id : NULL;
}

int64_t story_process(struct story *story, const char *kind, int pid, int ppid, const char *comm,
        const char *cmdline)
{
    struct error err = {0};
    int64_t id = 0;
    if (store_insert(story->store, &id, &err,
                "INSERT INTO process (recording_id, tgid, start_ns, ppid, comm, cmdline, "
                "kind) VALUES (?, ?, 1, ?, ?, ?, ?)",
                "iiisss", story->recording, (int64_t)pid, (int64_t)ppid, comm, cmdline, kind))
        story_die(story, "process", &err);
    story_thread(story, id, pid, comm);
    return id;
}

int64_t story_thread(struct story *story, int64_t process, int tid, const char *comm)
{
    struct error err = {0};
    int64_t id = 0;
    if (store_insert(story->store, &id, &err,
                "INSERT INTO thread (process_id, tid, comm) VALUES (?, ?, ?)", "iis", process,
                (int64_t)tid, comm))
        story_die(story, "thread", &err);
    return id;
}

int64_t story_leader(struct story *story, int64_t process)
{
    int64_t id = 0;
    store_get_int(story->store, &id, NULL, "SELECT min(id) FROM thread WHERE process_id = ?", "i",
            process);
    return id;
}

int64_t story_other(struct story *story, int pid, const char *comm, const char *cmdline)
{
    return story_leader(
            story, story_process(story, cmdline ? "other" : "kernel", pid, 1, comm, cmdline));
}

void story_rank(struct story *story, int pid, int rank, int ranks)
{
    struct error err = {0};
    if (store_exec(story->store, &err,
                "UPDATE recording SET target = json_set(target, '$.ranks[#]', json_object('pid', ?, 'start_ns', 1, 'rank', ?, "
                "'ranks', ?)) WHERE json_type(target, '$.ranks') IS NOT NULL",
                "iii", (int64_t)pid, (int64_t)rank, (int64_t)ranks) ||
            store_exec(story->store, &err,
                    "UPDATE recording SET target = json_set(target, '$.ranks', json_array(json_object('pid', ?, 'start_ns', 1, 'rank', "
                    "?, 'ranks', ?))) WHERE json_type(target, '$.ranks') IS NULL",
                    "iii", (int64_t)pid, (int64_t)rank, (int64_t)ranks))
        story_die(story, "rank", &err);
}

static int story_frame(struct story *story, char kind, const char *text)
{
    char *key = xasprintf("%c%s", kind, text);
    for (int i = 0; i < story->frame_count; i++)
        if (!strcmp(story->frames[i], key)) {
            free(key);
            return i + 1;
        }
    if (story->frame_count == STORY_FRAMES_MAX)
        exit(1);
    story->frames[story->frame_count++] = key;
    char name[200], module[200] = "";
    int64_t line = 0;
    snprintf(name, sizeof name, "%s", text);
    // '@' stands in versions of symbols
    char *at = kind == 'p' ? strchr(name, '@') : kind == 'u' ? strchr(name, '|') : NULL;
    if (at) {
        *at = 0;
        snprintf(module, sizeof module, "%s", at + 1);
        char *colon = strrchr(module, ':');
        if (colon) {
            line = atoi(colon + 1);
            *colon = 0;
        }
    }
    struct error err = {0};
    if (store_exec(story->store, &err,
                "INSERT INTO frame (id, name, module, line) VALUES (?, ?, nullif(?, ''), nullif(?, 0))",
                "issi", (int64_t)story->frame_count, name, kind == 'k' ? "[kernel]" : module, line))
        story_die(story, "frame", &err);
    return story->frame_count;
}

int64_t story_stack(struct story *story, char kind, const char *frames)
{
    if (!frames)
        return 0;
    struct strbuf json = {0};
    int64_t depth = 0, id = 0;
    char *copy = xstrdup(frames), *rest = copy;
    for (char *name; (name = strsep(&rest, ";"));)
        strbuf_add(&json, "%s%d", depth++ ? "," : "[", story_frame(story, kind, name));
    strbuf_add(&json, "]");
    free(copy);
    struct error err = {0};
    const char *kinds = kind == 'k' ? "kernel" : kind == 'u' ? "user" : "python";
    if (store_get_int(story->store, &id, NULL, "SELECT id FROM stack WHERE kind = ? AND frames = ?",
                "ss", kinds, json.text) &&
            store_insert(story->store, &id, &err,
                    "INSERT INTO stack (kind, depth, frames) VALUES (?, ?, ?)", "sis", kinds, depth,
                    json.text))
        story_die(story, "stack", &err);
    strbuf_free(&json);
    return id;
}

void story_gap(struct story *story, struct story_gap gap)
{
    int64_t thread = gap.thread ? gap.thread : story->main;
    int64_t kernel = story_stack(story, 'k', gap.kernel), user = story_stack(story, 'u', gap.user);
    int64_t python = story_stack(story, 'p', gap.python),
            waker = story_stack(story, 'k', gap.waker_stack);
    int64_t waking = gap.waking > 0 ? story_ns(gap.waking) : 0, lock_kind = gap.lock_kind,
            syscall_nr = gap.syscall;
    struct error err = {0};
    if (store_exec(story->store, &err,
                "INSERT INTO gap (thread_id, out_ns, waking_ns, in_ns, state, flags, cpu_out, "
                "cpu_in, kernel_stack, user_stack, "
                "python_stack, waker_thread, waker_stack, next_thread, next_prio, "
                "before_thread, before_prio, owner_thread, "
                "lock_kind, lock_address, syscall_nr, syscall_arg0, syscall_target) VALUES "
                "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                "iiIiiiiiIIIIIIiIiIIiIis", thread, story_ns(gap.out), story_id(&waking),
                story_ns(gap.in), (int64_t)gap.state, (int64_t)gap.flags, (int64_t)gap.cpu,
                (int64_t)gap.cpu, story_id(&kernel), story_id(&user), story_id(&python),
                story_id(&gap.waker), story_id(&waker), story_id(&gap.next),
                (int64_t)(gap.next_prio ? gap.next_prio : 120), story_id(&gap.before),
                (int64_t)(gap.before_prio ? gap.before_prio : 120), story_id(&gap.owner),
                story_id(&lock_kind), gap.lock, story_id(&syscall_nr), gap.arg0, gap.target))
        story_die(story, "gap", &err);
}

void story_samples(struct story *story, struct story_samples samples)
{
    int64_t thread = samples.thread ? samples.thread : story->main;
    int64_t kernel = story_stack(story, 'k', samples.kernel),
            user = story_stack(story, 'u', samples.user);
    int64_t python = story_stack(story, 'p', samples.python);
    struct error err = {0};
    for (double at = samples.from;
            at<samples.to; at += samples.every> 0 ? samples.every : story_tick_ms)
        if (store_exec(story->store, &err,
                    "INSERT INTO sample (thread_id, at_ns, cpu, why, kernel_stack, user_stack, "
                    "python_stack) VALUES "
                    "(?, ?, ?, ?, ?, ?, ?)",
                    "iiiiIII", thread, story_ns(at), (int64_t)samples.cpu,
                    (int64_t)(samples.why ? samples.why : UG_SAMPLE_TARGET), story_id(&kernel),
                    story_id(&user), story_id(&python)))
            story_die(story, "sample", &err);
}

void story_lock(struct story *story, struct story_lock lock)
{
    int64_t kernel = story_stack(story, 'k', lock.kernel),
            owner = story_stack(story, 'k', lock.owner_stack);
    int64_t flags = lock.reader ? (int64_t)(UG_GAP_OWNER_READER >> 12) << 32 : 0;
    struct error err = {0};
    if (store_exec(story->store, &err,
                "INSERT INTO lock_wait (thread_id, begin_ns, end_ns, address, kind, flags, "
                "owner_thread, kernel_stack, owner_stack) "
                "VALUES (?, ?, ?, 4096, ?, ?, ?, ?, ?)",
                "iiiiiIII", lock.thread ? lock.thread : story->main, story_ns(lock.begin),
                story_ns(lock.end), (int64_t)lock.kind, flags, story_id(&lock.owner),
                story_id(&kernel), story_id(&owner)))
        story_die(story, "lock", &err);
}

void story_fact(struct story *story, int what, double begin, double end, int64_t target,
        int64_t actor, int64_t value0)
{
    struct error err = {0};
    if (store_exec(story->store, &err,
                "INSERT INTO host_fact (recording_id, what, begin_ns, end_ns, target_thread, "
                "actor_thread, flags, value0) VALUES "
                "(?, ?, ?, ?, ?, ?, 0, ?)",
                "iiiiIIi", story->recording, (int64_t)what, story_ns(begin), story_ns(end),
                story_id(&target), story_id(&actor), value0))
        story_die(story, "fact", &err);
}

void story_counter(
        struct story *story, const char *source, const char *name, double at, int64_t value)
{
    struct error err = {0};
    if (store_exec(story->store, &err,
                "INSERT INTO counter (recording_id, at_ns, source, name, value) VALUES (?, ?, ?, ?, ?)",
                "iissi", story->recording, story_ns(at), source, name, value))
        story_die(story, "counter", &err);
}

void story_step(struct story *story, int idx, double begin, double length)
{
    struct error err = {0};
    if (store_exec(story->store, &err, "INSERT INTO recorded_step VALUES (?, 0, ?, ?, ?)", "iiii",
                story->recording, (int64_t)idx, story_ns(begin), (int64_t)(length * 1e6)))
        story_die(story, "step", &err);
}

void story_total(struct story *story, int64_t thread, double run_ms)
{
    struct error err = {0};
    if (store_exec(story->store, &err, "INSERT INTO thread_total VALUES (?, 1000, 900, 1000000, ?)",
                "ii", thread, (int64_t)(run_ms * 1e6)))
        story_die(story, "total", &err);
}

void story_open_quiet(struct story *story)
{
    struct error err = {0};
    *story = (struct story){.recording = 1};
    snprintf(story->dir, sizeof story->dir, "/tmp/upgate-story-XXXXXX");
    if (!mkdtemp(story->dir))
        exit(1);
    snprintf(story->path, sizeof story->path, "%s/run.db", story->dir);
    if (store_open(story->path, STORE_CREATE, &story->store, &err) ||
            store_begin(story->store, &err))
        story_die(story, "store", &err);
    if (store_exec(story->store, &err,
                "INSERT INTO recording (id, begin_ns, end_ns, threshold_ns, sample_hz, python, "
                "target, missing) VALUES "
                "(1, ?, ?, 1000000, 199, 1, '{}', '[]')",
                "ii", story_ns(0), story_ns(STORY_WINDOW_MS)))
        story_die(story, "recording", &err);
    story->process = story_process(story, "target", 1000, 1, "python3", "python3 train.py");
    story->main = story_leader(story, story->process);
    story->worker = story_thread(story, story->process, 1001, "worker");
    story->idle_task = story_leader(story, story_process(story, "idle", 0, 0, "swapper/0", NULL));
}

void story_open(struct story *story)
{
    story_open_quiet(story);
    story_total(story, story->main, STORY_WINDOW_MS * 0.8);
}

void story_close(struct story *story)
{
    stalls_free(story->stalls);
    store_rollback(story->store);
    store_close(story->store);
    unlink(story->path);
    rmdir(story->dir);
    for (int i = 0; i < story->frame_count; i++)
        free(story->frames[i]);
}

struct stalls *story_analyse(struct story *story)
{
    struct error err = {0};
    stalls_free(story->stalls);
    story->stalls = NULL;
    if (stalls_analyse(story->store, NULL, &story->stalls, &err))
        story_die(story, "analysis", &err);
    return story->stalls;
}

const struct stall *story_top(struct story *story)
{
    static const struct stall none = {.cause = "(none)", .title = "(none)"};
    story_analyse(story);
    return story->stalls->count ? &story->stalls->stalls[0] : &none;
}

const struct stall *story_find(struct story *story, const char *cause)
{
    for (size_t i = 0; i < story->stalls->count; i++)
        if (!strcmp(story->stalls->stalls[i].cause, cause))
            return &story->stalls->stalls[i];
    return NULL;
}

void story_check_innocent(struct story *story)
{
    story_analyse(story);
    for (size_t i = 0; i < story->stalls->count; i++) {
        const struct stall *stall = &story->stalls->stalls[i];
        runner_checked();
        if (stall->culprit.known && stall->total_ns * 100 > story->stalls->window_ns)
            runner_fail(__FILE__, __LINE__, "%s blames %s for %.1f ms", stall->cause,
                    stall->culprit.comm, (double)stall->total_ns / 1e6);
    }
    runner_checked();
}
