// SPDX-License-Identifier: Apache-2.0
// Traced launches. A recorder attaches to each side's process before it becomes the workload, on a
// thread of its own, at normal priority (the harness is at real-time priority and keeps the turns)
// and off the CPUs of the launches, and writes a shard. When the pair is over its rows go to the
// store, then the recordings. A side with CUDA loads the library of tracer/inject, and its GPU side
// is recorded too.
#include "harness/run/traced.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/units.h"
#include "contracts/spool.h"
#include "harness/contain/host.h"
#include "harness/run/session_store.h"
#include "harness/run/shard.h"
#include "tracer/record/privileges.h"
#include "tracer/record/record.h"

enum {
    TRACED_POLL_MS = 100,
    TRACED_LOOK_NS = 2000000,    // at a recorder that attaches: some 0.3 s
    TRACED_ATTACH_NS_MAX_S = 60, // then the launch goes on without it
    // Finer than `upgate record`: a traced launch is not judged, and of a step of 5 ms 199 samples
    // a second see one instant. No divisor of the timer's ticks. What it costs: docs/OVERHEAD.md.
    TRACED_SAMPLE_HZ = 997,
    TRACED_THRESHOLD_NS = 100000
};

struct traced_side {
    pthread_t thread;
    cpu_set_t launch_cpus;
    bool running; // the thread
    pid_t pid;
    atomic_bool attached, ended, stop;
    const struct inject *inject; // NULL: its GPU side is not recorded
    uint32_t kinds;              // enum ug_spool_want
    struct store *shard;         // NULL: nothing was recorded
    bool recorded, host_missing; // host_missing: not permitted, the GPU side alone is recorded
    struct error error;          // of the first failure; code 0: none
    struct error kept;           // why the recorder keeps all privileges; code 0: it does not
};

struct traced {
    struct session *session;
    struct traced_side sides[PLAN_SIDES];
    struct inject inject; // library NULL: there is none
    volatile int stop;    // ends the pair: a signal came, or nothing can be recorded
};

// --- a recorder and its thread -------------------------------------------------------------------

static void *traced_main(void *arg)
{
    struct traced_side *side = arg;
    struct recorder *recorder = NULL;
    host_leave_cpus(&side->launch_cpus);
    struct recorder_opts opts = {.pids = &side->pid,
            .pid_count = 1,
            .threshold_ns = TRACED_THRESHOLD_NS,
            .sample_hz = TRACED_SAMPLE_HZ,
            .faults = true,
            .prompt = true,
            .gpu_kinds = side->inject ? side->kinds : 0,
            .host_optional = side->inject && inject_has_gpu()};
    int rc = shard_open(&side->shard, &side->error);
    if (rc == 0)
        rc = recorder_start(side->shard, &opts, &recorder, &side->error);
    side->recorded = rc == 0;
    if (rc == 0)
        privileges_drop(&side->kept); // of this thread; the others keep theirs
    struct recorder_totals totals = {.host = true};
    if (rc == 0)
        recorder_totals(recorder, &totals);
    side->host_missing = !totals.host;
    if (rc == 0)
        atomic_store(&side->attached, true);
    bool alive = true;
    while (rc == 0 && alive && !atomic_load(&side->stop))
        rc = recorder_poll(recorder, TRACED_POLL_MS, &alive, &side->error);
    // Also after an error: what it has is worth keeping, and the first error is the one to tell.
    struct error end = {0};
    if (recorder && recorder_stop(recorder, NULL, &end) && !side->error.code)
        side->error = end;
    recorder_free(recorder);
    atomic_store(&side->ended, true);
    return NULL;
}

// Signals belong to the thread that keeps the turns: its waits must end. Faults stay where they
// happen.
static int traced_spawn(struct traced_side *side)
{
    sigset_t all, before;
    sigfillset(&all);
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&side->thread, NULL, traced_main, side);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

static void traced_tick(void *arg)
{
    struct traced *traced = arg;
    session_tick(traced->session);
    if (session_stop)
        traced->stop = 1;
}

// The process of a side waits before exec until this returns.
static void traced_on_start(void *arg, int side_idx, pid_t pid)
{
    struct traced *traced = arg;
    struct traced_side *side = &traced->sides[side_idx];
    int64_t deadline = clock_monotonic_ns() + TRACED_ATTACH_NS_MAX_S * 1000000000LL;
    if (traced->stop) // the other side has said why, or a signal came
        return;
    side->pid = pid;
    int rc = traced_spawn(side);
    if (rc) {
        error_set(&side->error, rc, "failed to start a thread: %s", strerror(-rc));
        traced->stop = 1;
        return;
    }
    side->running = true;
    while (!atomic_load(&side->attached) && !atomic_load(&side->ended)) {
        traced_tick(traced);
        if (traced->stop || clock_monotonic_ns() > deadline)
            break;
        clock_sleep_until_ns(clock_monotonic_ns() + TRACED_LOOK_NS);
    }
    if (atomic_load(&side->ended) && !side->recorded)
        traced->stop = 1; // no need to run a pair that nobody records
}

static void traced_join(struct traced *traced)
{
    for (int i = 0; i < PLAN_SIDES; i++) {
        struct traced_side *side = &traced->sides[i];
        atomic_store(&side->stop, true);
        if (side->running)
            pthread_join(side->thread, NULL);
        side->running = false;
    }
}

// --- a pair --------------------------------------------------------------------------------------

// Once a session, however many pairs it happens to.
static void traced_note(struct session *session, const char *what, const struct error *err)
{
    if (session->traced_told)
        return;
    session->traced_told = true;
    log_warn("%s: %s", what, err->text);
    struct error local = {0};
    if (store_note(session->store, &local, "warning", "%s: %s", what, err->text))
        log_warn("%s", local.text);
}

// Each side has its own CUDA and its own profilers.
static void traced_find_library(struct traced *traced)
{
    struct session *session = traced->session;
    enum plan_traced_gpu gpu = session->plan->schedule.traced_gpu;
    if (gpu == PLAN_TRACED_GPU_OFF || inject_find(&traced->inject, NULL))
        return;
    for (int i = 0; i < PLAN_SIDES; i++) {
        const struct plan_side *side = &session->plan->sides[i];
        const char *taken = session_variable(side, INJECT_CUDA_VARIABLE);
        struct error err = {0};
        const struct inside_hello *guest = &session->env.guests[i];
        int needs = image_glibc_needed(traced->inject.library);
        if (side->image && guest->magic && guest->glibc_major * 1000 + guest->glibc_minor < needs) {
            error_set(&err, -ELIBACC,
                    "image '%s' of side '%s' has glibc %d.%d, and upgate's library needs %d.%d",
                    side->image, side->name, guest->glibc_major, guest->glibc_minor, needs / 1000,
                    needs % 1000);
            if (inject_has_gpu())
                traced_note(session, "a GPU side is not recorded", &err);
            continue;
        }
        if (!inject_is_foreign(taken)) {
            traced->sides[i].inject = &traced->inject;
            traced->sides[i].kinds =
                    UG_WANT_DEFAULT | (gpu == PLAN_TRACED_GPU_NODES ? UG_WANT_GRAPH_NODES : 0);
            continue;
        }
        error_set(&err, -EBUSY, "side '%s' has %s=%s, another profiler's", side->name,
                INJECT_CUDA_VARIABLE, taken);
        traced_note(session, "a GPU side is not recorded", &err);
    }
}

static int traced_store(struct traced *traced, int64_t pair_id, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < PLAN_SIDES && rc == 0; i++) {
        struct traced_side *side = &traced->sides[i];
        int64_t launch_id = 0;
        if (side->error.code)
            traced_note(traced->session, "a recording is not whole", &side->error);
        if (side->kept.code)
            traced_note(traced->session, "a recorder keeps all privileges", &side->kept);
        if (side->recorded &&
                store_get_int(traced->session->store, &launch_id, NULL,
                        "SELECT id FROM launch WHERE pair_id = ? AND side = ?", "ii", pair_id,
                        (int64_t)i) == 0)
            rc = shard_merge(traced->session->store, side->shard, launch_id, err);
    }
    return rc;
}

// 0: go on; -ECANCELED: no more, for a reason that has been told or a signal.
static int traced_pair(struct session *session, struct session_workload *workload)
{
    struct traced traced = {.session = session};
    for (int i = 0; i < PLAN_SIDES; i++)
        traced.sides[i].launch_cpus = launch_cpus(&session->env, workload->plan);
    struct pair_spec hooks = {.on_start = traced_on_start,
            .on_tick = traced_tick,
            .arg = &traced,
            .stop = &traced.stop};
    struct error err = {0};
    int64_t pair_id = 0;
    traced_find_library(&traced);
    // leaves a side's own profiler alone
    hooks.inject = traced.inject.library ? &traced.inject : NULL;
    for (int i = 0; i < PLAN_SIDES; i++)
        hooks.inject_kinds |= traced.sides[i].kinds;
    int rc = session_pair_traced(session, workload, &hooks, &pair_id, &err);
    traced_join(&traced);
    if (traced.sides[0].host_missing || traced.sides[1].host_missing)
        traced_note(session, "launches are traced without their host side",
                &(struct error){.text = "no permission; `upgate doctor` says which"});
    for (int i = 0; i < PLAN_SIDES; i++)
        if (rc == 0 && !pair_id && !session_stop && traced.sides[i].error.code)
            traced_note(session, "launches are not traced", &traced.sides[i].error);
    if (rc == 0 && pair_id)
        rc = traced_store(&traced, pair_id, &err);
    if (rc)
        traced_note(session, "the traced launches end here", &err);
    for (int i = 0; i < PLAN_SIDES; i++)
        store_close(traced.sides[i].shard);
    inject_free(&traced.inject);
    return rc || !pair_id ? -ECANCELED : 0;
}

// --- what tracing costs --------------------------------------------------------------------------

#define TRACED_OF "FROM launch l JOIN pair p ON p.id = l.pair_id "
#define TRACED_WHERE \
    "WHERE p.workload_id = ?1 AND p.phase = ?2 AND p.state = 'valid' AND l.side = ?3 "

// The median step of a side in a phase, or its median launch where there are no steps to compare; 0
// = none.
static int64_t traced_median_ns(struct session *session, const struct session_workload *workload,
        const char *phase, int side)
{
    static const char *const counts[2] = {"SELECT count(l.active_ns) " TRACED_OF TRACED_WHERE,
            "SELECT count(*) " TRACED_OF "JOIN step s ON s.launch_id = l.id " TRACED_WHERE
            "AND s.idx > 0"};
    static const char *const values[2] = {
            "SELECT l.active_ns " TRACED_OF TRACED_WHERE
            "AND l.active_ns IS NOT NULL ORDER BY l.active_ns LIMIT 1 OFFSET ?4 / 2",
            "SELECT s.dur_ns " TRACED_OF "JOIN step s ON s.launch_id = l.id " TRACED_WHERE
            "AND s.idx > 0 ORDER BY s.dur_ns LIMIT 1 OFFSET ?4 / 2"};
    int of_steps = workload->interleave != PLAN_INTERLEAVE_SLICES;
    int64_t count = 0, value = 0;
    store_get_int(session->store, &count, NULL, counts[of_steps], "isi", workload->id, phase,
            (int64_t)side);
    if (!count && of_steps) {
        of_steps = 0;
        store_get_int(session->store, &count, NULL, counts[of_steps], "isi", workload->id, phase,
                (int64_t)side);
    }
    if (count)
        store_get_int(session->store, &value, NULL, values[of_steps], "isii", workload->id, phase,
                (int64_t)side, count);
    return value;
}

static void traced_note_cost(struct session *session, const struct session_workload *workload)
{
    double ratio[PLAN_SIDES];
    char text[160];
    for (int side = 0; side < PLAN_SIDES; side++) {
        int64_t traced = traced_median_ns(session, workload, "traced", side);
        int64_t plain = traced_median_ns(session, workload, "main", side);
        if (traced <= 0 || plain <= 0)
            return;
        ratio[side] = (double)traced / (double)plain;
    }
    unit_format_traced(text, sizeof text,
            workload->interleave == PLAN_INTERLEAVE_SLICES ? "launch" : "step", ratio);
    log_info("workload '%s': recorded; %s, by their medians", workload->plan->name, text);
    struct error err = {0};
    if (store_note(session->store, &err, "info", "workload '%s': %s, by their medians",
                workload->plan->name, text))
        log_warn("%s", err.text);
}

// --- the run -------------------------------------------------------------------------------------

static int64_t traced_done(struct session *session, const struct session_workload *workload)
{
    int64_t count = 0;
    store_get_int(session->store, &count, NULL,
            "SELECT count(*) FROM pair WHERE workload_id = ? AND phase = 'traced'", "i",
            workload->id);
    return count;
}

static int traced_workload(struct session *session, int idx)
{
    struct session_workload *workload = &session->workloads[idx];
    int64_t wanted = (int64_t)session->plan->schedule.traced_launches,
            done = traced_done(session, workload);
    // A workload that was given up, or of which no pair has shown how it takes turns, has nothing
    // to explain.
    if (workload->broken || workload->interleave == PLAN_INTERLEAVE_AUTO || done >= wanted)
        return 0;
    session->workload_idx = idx;
    session->phase = "traced launches";
    int rc = 0;
    for (; done < wanted && rc == 0 && !session_stop; done++) {
        session->need.pairs_valid = done;
        session->need.pairs_wanted = wanted;
        session_display(session);
        rc = traced_pair(session, workload);
    }
    if (rc == 0)
        traced_note_cost(session, workload);
    return rc;
}

void traced_run(struct session *session)
{
    struct error err = {0};
    int rc = session_store_writer(session->store, NULL, &err);
    if (rc)
        traced_note(session, "launches are not traced", &err);
    for (int i = 0; i < session->plan->workload_count && rc == 0 && !session_stop; i++)
        rc = traced_workload(session, i);
    if (session_stop)
        log_warn(
                "interrupted while tracing: the verdict stands, `--resume` makes the traced launches that "
                "are missing");
    int64_t ended_ns = session_ended_wall_ns(session); // they are the run's, too
    if (session_store_writer(session->store, &ended_ns, &err))
        log_warn("%s", err.text);
}
