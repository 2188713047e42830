// SPDX-License-Identifier: Apache-2.0
// The loop of `upgate ab`: workloads in turn, look by look, only those that are still undecided,
// until the gate has no more questions. Everything it needs to go on stands in the store, so that
// --resume is the same loop entered later.
#include "harness/run/session.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/signals.h"
#include "common/strings.h"
#include "contracts/skipped.h"
#include "harness/contain/host.h"
#include "harness/contain/process.h"
#include "harness/fingerprint/gpu.h"
#include "harness/gate/measure/pair_rows.h"
#include "harness/run/calibrate.h"
#include "harness/run/inputs.h"
#include "harness/run/nodes/nodes.h"
#include "harness/run/session_internal.h"
#include "harness/run/session_store.h"
#include "harness/run/traced.h"

enum { SESSION_TICK_NS = 100000000 };

volatile int session_stop;

static void session_on_signal(int signal_number)
{
    session_stop = signal_number;
}

// A workload that cuts its step file short takes pages from under us. They read as zeros from then
// on, and the pair fails in words (pair_check_file); any other SIGBUS is a fault of our own.
static void session_on_bus(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *at = (void *)((uintptr_t)info->si_addr & ~(page - 1));
    if (info->si_code == BUS_ADRERR &&
            mmap(at, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                    0) == at)
        return;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void session_catch_signals(void)
{
    struct sigaction bus = {.sa_sigaction = session_on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGBUS, &bus, NULL);
    signals_catch_end(session_on_signal);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // a file at the limit of its size is an error in words
}

// --- the display ---------------------------------------------------------------------------------

// Time to the next look of this workload, and of all behind it at the mean length of a pair so far.
static int64_t session_remaining_ns(const struct session *session)
{
    int64_t known_ns = 0, known = 0, pairs = 0;
    for (int i = 0; i < session->plan->workload_count; i++) {
        known_ns += session->workloads[i].pair_ns_sum;
        known += session->workloads[i].pair_count;
    }
    const struct session_workload *now = &session->workloads[session->workload_idx];
    pairs = session->need.pairs_wanted - session->need.pairs_valid;
    if (!known)
        return -1;
    int64_t here = now->pair_count ? now->pair_ns_sum / now->pair_count : known_ns / known;
    int64_t rest = pairs > 0 ? pairs * here : 0;
    for (int i = session->workload_idx + 1; i < session->plan->workload_count; i++)
        if (!session->workloads[i].pair_count)
            rest += (int64_t)session->plan->schedule.looks[0] * (known_ns / known);
    return rest;
}

static int session_look(const struct session *session)
{
    const struct plan_schedule *schedule = &session->plan->schedule;
    int look = 0;
    while (look + 1 < schedule->look_count &&
            (int64_t)schedule->looks[look] < session->need.pairs_wanted)
        look++;
    return look;
}

void session_display(struct session *session)
{
    struct gate_glance glances[SESSION_CELLS_MAX];
    const struct session_workload *workload = &session->workloads[session->workload_idx];
    int count = gate_glance(session->store, workload->id, glances, SESSION_CELLS_MAX);
    for (int i = 0; i < count; i++)
        session->cells[i] = (struct progress_cell){.metric = glances[i].metric,
                .verdict = glances[i].verdict,
                .ratio = glances[i].ratio,
                .ci_lower = glances[i].ci_lower,
                .ci_upper = glances[i].ci_upper};
    session->shown = (struct progress_state){
            .workload = workload->plan->name,
            .workload_idx = session->workload_idx,
            .workload_count = session->plan->workload_count,
            .pair = (int)session->need.pairs_valid,
            .pairs_target = (int)session->need.pairs_wanted,
            .phase = session->phase,
            .look_idx = session_look(session),
            .look_count = session->plan->schedule.look_count,
            .elapsed_ns = clock_monotonic_ns() - session->started_ns,
            .remaining_ns = session_remaining_ns(session),
            .cells = session->cells,
            .cell_count = count > 0 ? count : 0,
    };
    progress_update(&session->shown);
}

// From the waiting loops, many times a second: the clock moves, the numbers stay.
void session_tick(void *arg)
{
    struct session *session = arg;
    int64_t elapsed = clock_monotonic_ns() - session->started_ns;
    if (!session->shown.workload || elapsed - session->shown.elapsed_ns < SESSION_TICK_NS)
        return;
    session->shown.elapsed_ns = elapsed;
    progress_update(&session->shown);
}

// --- start and end -------------------------------------------------------------------------------

// One of several that would go on with a run: who looks and writes in one transaction.
static int session_claim(struct session *session, struct error *err)
{
    int rc = store_begin(session->store, err);
    if (rc)
        return rc;
    rc = store_check_writer(session->store, err);
    if (rc == 0) {
        store_get_int(session->store, &session->ended_before_ns, NULL,
                "SELECT ended_wall_ns FROM run WHERE state = 'done'", "");
        rc = session_store_state(session->store, "running", NULL, err);
    }
    if (rc == 0)
        rc = store_commit(session->store, err);
    else
        store_rollback(session->store);
    session->claimed = rc == 0;
    return rc;
}

static int session_open_resume(struct session *session, struct error *err)
{
    int rc = store_open(session->opts->store_path, STORE_WRITE, &session->store, err);
    if (rc == 0)
        rc = store_check_run(session->store, err);
    if (rc)
        return rc;
    int64_t nodes = 1;
    store_get_int(
            session->store, &nodes, NULL, "SELECT json_extract(host, '$.nodes') FROM run", "");
    if (nodes > 1)
        return error_set(err, -EINVAL,
                "'%s' is of `upgate node` on %lld nodes, which cannot be gone on with; start a new run with another --job; "
                "`upgate gate %s` judges what is there",
                session->opts->store_path, (long long)nodes, session->opts->store_path);
    char *text = store_get_text(session->store, "SELECT plan FROM run", "");
    json_error_t json_err;
    json_t *json = text ? json_loads(text, 0, &json_err) : NULL;
    const char *path = session->opts->store_path;
    rc = store_failed(session->store, err);
    if (rc)
        json_decref(json);
    else if (!json && text)
        rc = error_set(err, -EINVAL, "the plan in '%s' is damaged (%s); start a new run", path,
                json_err.text);
    else if (!json)
        rc = error_set(err, -EINVAL,
                "'%s' holds no run of `upgate ab` to go on with; start one with "
                "`upgate ab PLAN.yaml -o %s`",
                path, path);
    free(text);
    if (rc)
        return rc;
    rc = plan_from_json(json, &session->plan, err);
    json_decref(json);
    session->plan_owned = rc == 0;
    char *kind = store_get_text(session->store, "SELECT kind FROM run", "");
    session->aa = kind && strcmp(kind, "aa") == 0;
    free(kind);
    return rc == 0 ? store_failed(session->store, err) : rc;
}

// Pairs of another machine, or of another command, say nothing of those that are there; nor does
// what is known of this one say anything of them.
static int session_check_same(struct session *session, struct error *err)
{
    char *text = store_get_text(session->store, "SELECT host FROM run", "");
    json_t *before = text ? json_loads(text, 0, NULL) : NULL,
           *now = host_describe(session->cpus_text);
    json_t *inputs = inputs_describe(session->plan);
    int64_t pairs = 0;
    store_get_int(session->store, &pairs, NULL, "SELECT count(*) FROM pair", "");
    session->inputs = json_incref(json_object_get(before, "inputs"));
    char *changes = before ? host_changes(before, now) : NULL,
         *other = pairs ? inputs_changes(session->inputs, inputs) : NULL;
    const char *path = session->opts->store_path;
    int rc = store_failed(session->store, err);
    if (rc == 0 && changes)
        rc = error_set(err, -ESTALE,
                "this machine differs from the one on which the run in '%s' began: %s; go on there, or start a new run; "
                "`upgate gate %s` judges what is there",
                path, changes, path);
    else if (rc == 0 && other)
        rc = error_set(err, -ESTALE,
                "the run in '%s' would go on with something else: %s; go back to that, or start a new run; "
                "`upgate gate %s` judges what is there",
                path, other, path);
    free(text);
    free(changes);
    free(other);
    json_decref(inputs);
    json_decref(before);
    json_decref(now);
    return rc;
}

// A certificate is one of the GPUs, too, that the baseline sees.
static void session_describe_gpu(const struct session *session, json_t *host)
{
    const struct plan_side *side = &session->plan->sides[0];
    const char *visible = session_variable(side, "CUDA_VISIBLE_DEVICES");
    json_t *missing = json_object(), *gpu = gpu_collect("", NULL, missing);
    host_set_gpu(host, gpu, visible ? visible : session_variable(side, "NVIDIA_VISIBLE_DEVICES"));
    json_decref(gpu);
    json_decref(missing);
}

static int session_open(struct session *session, struct error *err)
{
    cpu_set_t cpus;
    int rc;
    if (session->opts->resume) {
        rc = session_open_resume(session, err);
        if (rc)
            return rc;
    } else {
        session->plan = (struct plan *)session->opts->plan;
        session->aa = session->opts->aa;
    }
    rc = host_choose_cpus(session->plan->schedule.cpus, &cpus, &session->cpus_text, err);
    if (rc)
        return rc;
    session->env.cpus = cpus;
    session->env.cpus_named = session->plan->schedule.cpus != NULL;
    if (session->opts->resume) {
        rc = session_check_same(session, err);
        return rc == 0 ? session_claim(session, err) : rc;
    }
    json_t *host = host_describe(session->cpus_text);
    session_describe_gpu(session, host);
    session->inputs = inputs_describe(session->plan);
    json_object_set(host, "inputs", session->inputs);
    if (session->nodes)
        json_object_set_new(host, "nodes", json_integer(nodes_count(session->nodes)));
    rc = store_open(session->opts->store_path, STORE_CREATE, &session->store, err);
    if (rc == 0)
        rc = session_store_create(
                session->store, session->plan, session->aa, session->opts->command_line, host, err);
    session->claimed = rc == 0;
    json_decref(host);
    return rc;
}

// How it takes turns. A kill may have come after the first good pair and before what it had shown
// was written down: then the pair says it.
static int session_restore_interleave(
        struct session *session, struct session_workload *workload, struct error *err)
{
    char *name = store_get_text(
            session->store, "SELECT interleave FROM workload WHERE id = ?", "i", workload->id);
    bool known = name != NULL;
    if (!known)
        name = store_get_text(session->store,
                "SELECT interleave FROM pair WHERE workload_id = ? AND phase = 'main' AND "
                "state = 'valid' ORDER BY id DESC LIMIT 1",
                "i", workload->id);
    for (int i = 0; name && i < PLAN_INTERLEAVE_COUNT; i++)
        if (strcmp(name, plan_interleave_name((enum plan_interleave)i)) == 0)
            workload->interleave = (enum plan_interleave)i;
    bool found = !known && name;
    free(name);
    return found ? session_store_workload(session->store, workload->id, workload->interleave,
                           workload->note, workload->rate_per_s, err)
                 : 0;
}

// Did a side of the last pair say that this workload cannot be run here? By its launch, as the gate
// finds it, or by the word of another node.
static bool session_was_skipped(
        const struct session *session, const struct session_workload *workload)
{
    int64_t count = 0;
    store_get_int(session->store, &count, NULL,
            "SELECT count(*) FROM pair p WHERE p.state = 'failed' AND "
            "p.id = (SELECT max(id) FROM pair WHERE workload_id = ? AND phase IN ('main', 'confirm')) AND "
            "(p.reason GLOB '" UG_SKIPPED_WORD
            "*' OR p.reason GLOB '*node [0-9]* of [0-9]*: " UG_SKIPPED_WORD "*' OR "
            "EXISTS (SELECT 1 FROM launch l WHERE l.pair_id = p.id AND l.exit_code = ? AND l.steps IS NULL AND "
            "instr(l.stderr_tail, '" UG_SKIPPED_WORD "') > 0))",
            "ii", workload->id, (int64_t)UG_SKIPPED_STATUS);
    return count > 0;
}

// Pairs that failed while both sides were alive, before `auto` has found out how they take turns
// (session_fall_back).
#define SESSION_BESIDE_SQL \
    "FROM pair p WHERE p.workload_id = ? AND p.state = 'failed' AND p.phase = 'main' AND p.interleave <> 'launches' AND " PAIR_ROWS_BESIDE_SQL

static void session_restore_beside(struct store *store, struct session_workload *workload)
{
    int64_t count = 0;
    if (workload->interleave == PLAN_INTERLEAVE_AUTO)
        store_get_int(
                store, &count, NULL, "SELECT count(*) " SESSION_BESIDE_SQL, "i", workload->id);
    workload->beside = (int)count;
    workload->failures =
            workload->failures > workload->beside ? workload->failures - workload->beside : 0;
    if (workload->beside < SESSION_BESIDE_MAX)
        return;
    char *reason = store_get_text(store,
            "SELECT p.reason " SESSION_BESIDE_SQL " ORDER BY p.id DESC LIMIT 1", "i", workload->id);
    workload->apart = session_apart_note(reason ? reason : "no reason recorded");
    free(reason);
}

// What earlier parts of this run have found out, as --resume needs it.
static int session_restore(
        struct session *session, struct session_workload *workload, struct error *err)
{
    struct store *store = session->store;
    workload->note =
            store_get_text(store, "SELECT note FROM workload WHERE id = ?", "i", workload->id);
    char *rate = store_get_text(
            store, "SELECT rate_per_s FROM workload WHERE id = ?", "i", workload->id);
    if (rate)
        workload->rate_per_s = strtod(rate, NULL);
    free(rate);
    int rc = session_restore_interleave(session, workload, err);
    if (rc)
        return rc;
    int64_t value = 0;
    if (store_get_int(store, &value, NULL,
                "SELECT b.steps FROM block b JOIN pair p ON p.id = b.pair_id WHERE p.workload_id = ? "
                "AND p.phase = 'main' ORDER BY p.id DESC, b.couple DESC LIMIT 1",
                "i", workload->id) == 0 &&
            value > 0)
        workload->block_steps = (uint64_t)value;
    value = 0;
    // Launches without steps: those that were found were of no use.
    store_get_int(store, &value, NULL,
            "SELECT coalesce(min(coalesce(l.steps, -1)), 0) FROM launch l JOIN pair p ON p.id = l.pair_id "
            "WHERE p.workload_id = ? AND p.phase = 'main' AND p.state = 'valid'",
            "i", workload->id);
    if (value > 0 && workload->steps_open)
        workload->steps = (uint64_t)value;
    workload->steps_open = workload->steps_open && value == 0;
    workload->finds_steps = workload->finds_steps && value >= 0;
    value = 0;
    store_get_int(store, &value, NULL,
            "SELECT sum(DISTINCT l.side + 1) FROM launch l JOIN pair p ON p.id = l.pair_id "
            "WHERE p.workload_id = ? AND p.phase = 'main' AND l.steps IS NOT NULL",
            "i", workload->id);
    workload->steps_seen = (int)value & 3;
    value = 0;
    store_get_int(store, &value, NULL,
            "SELECT count(*) FROM pair WHERE workload_id = ?1 AND state = 'void'", "i",
            workload->id);
    workload->voids = (uint64_t)value;
    value = 0;
    store_get_int(store, &value, NULL,
            "SELECT count(*) FROM pair WHERE workload_id = ?1 AND state = 'failed' AND "
            "phase IN ('main', 'confirm') AND id > "
            "(SELECT coalesce(max(id), 0) FROM pair WHERE workload_id = ?1 AND state <> 'failed')",
            "i", workload->id);
    workload->failures = (int)value;
    value = 0;
    store_get_int(store, &value, NULL,
            "SELECT count(*) FROM pair WHERE workload_id = ?1 AND state = 'failed' AND "
            "phase IN ('main', 'confirm')",
            "i", workload->id);
    workload->failures_all = (int)value;
    session_restore_beside(store, workload);
    workload->broken = session_failed_too_often(workload) ||
            session_was_skipped(session, workload) ||
            workload->voids > session->plan->schedule.voids_max;
    return 0;
}

static int session_prepare_workloads(struct session *session, struct error *err)
{
    int rc = 0;
    session->workloads = xcalloc((size_t)session->plan->workload_count, sizeof *session->workloads);
    for (int i = 0; i < session->plan->workload_count; i++) {
        struct session_workload *workload = &session->workloads[i];
        const struct plan_workload *plan = &session->plan->workloads[i];
        workload->id = i + 1;
        workload->plan = plan;
        workload->interleave = session_interleave(session->plan, plan);
        workload->steps = plan->steps;
        workload->finds_steps = plan->command && plan->steps_from == PLAN_STEPS_FROM_AUTO;
        workload->steps_open = workload->finds_steps && !plan_workload_says_steps(plan);
        workload->rate_per_s = plan->rate_per_s;
        if (session->opts->resume && rc == 0)
            rc = session_restore(session, workload, err);
    }
    for (int side = 0; side < PLAN_SIDES; side++) {
        char *text = store_get_text(
                session->store, "SELECT fingerprint FROM side WHERE id = ?", "i", (int64_t)side);
        session->fingerprinted[side] = text != NULL;
        // read once more: somebody may have upgraded it meanwhile
        if (text && session->opts->resume) {
            session->begun_with[side] = json_loads(text, 0, NULL);
            session->fingerprinted[side] = !session->begun_with[side];
        }
        free(text);
    }
    // what --resume could not read it would do again, or not at all
    return rc ? rc : store_failed(session->store, err);
}

static void session_tell_guardian(void *arg, const char *base)
{
    guardian_set_base(arg, base);
}

// The images of the sides that are not there yet.
static int session_get_images(void *arg, struct error *err)
{
    struct session *session = arg;
    const struct plan *plan = session->plan ? session->plan : session->opts->plan;
    int rc = 0;
    for (int i = 0; i < PLAN_SIDES && rc == 0; i++)
        if (plan->sides[i].image && !session->env.images[i].name)
            rc = image_open(&plan->sides[i], &session_stop, &session->env.images[i], err);
    return rc;
}

// The images of the sides, before anything is measured; and what earlier runs have left of them.
static int session_open_images(struct session *session, struct error *err)
{
    int rc = session_get_images(session, err);
    for (int i = 0; i < PLAN_SIDES && rc == 0; i++) {
        const struct plan_side *side = &session->plan->sides[i];
        struct image *image = &session->env.images[i];
        if (!side->image)
            continue;
        char *before = store_get_text(session->store,
                "SELECT json_extract(fingerprint, '$.image.id') FROM side WHERE id = ?", "i",
                (int64_t)i);
        char *text = image_describe(image);
        if (before && strcmp(before, image->id) != 0)
            rc = error_set(err, -ESTALE,
                    "image '%s' of side '%s' is %s now, and this run has begun with %s; start a new one",
                    side->image, side->name, image->id, before);
        else
            rc = store_note(session->store, err, "info", "side '%s' is %s", side->name, text);
        if (rc == 0)
            log_info("side '%s' is %s", side->name, text);
        free(before);
        free(text);
        if (rc == 0)
            image_sweep(image);
    }
    return rc;
}

const char *session_variable(const struct plan_side *side, const char *name)
{
    for (int i = 0; i < side->env_count; i++)
        if (strcmp(side->env[i].name, name) == 0)
            return side->env[i].value;
    return side->image ? NULL : getenv(name); // what an image sets is left alone by inject_set()
}

static const char *session_get(void *side, const char *name)
{
    return session_variable(side, name);
}

// The library that marks steps in programs, where a workload asks for it and nobody else is in its
// place.
static int session_find_inject(struct session *session, struct error *err)
{
    for (int i = 0; i < session->plan->workload_count; i++) {
        const struct plan_workload *workload = &session->plan->workloads[i];
        if (!plan_step_is_injected(workload->step))
            continue;
        for (int side = 0; side < PLAN_SIDES; side++) {
            const char *rival =
                    inject_steps_rival(workload->step, session_get, &session->plan->sides[side]);
            if (rival)
                return error_set(err, -EINVAL,
                        "'%s' cannot be seen on side '%s': %s is set to '%s', another tool's; unset it",
                        workload->step, session->plan->sides[side].name, rival,
                        session_variable(&session->plan->sides[side], rival));
        }
        int rc = session->env.inject.library ? 0 : inject_find(&session->env.inject, err);
        if (rc)
            return rc;
    }
    return 0;
}

// What this gate will not see is said before hours are spent on it, and not only behind a pass.
static int session_note_gate(struct session *session, struct error *err)
{
    char *why = session->opts->resume ? NULL : plan_time_unjudged(&session->plan->gate);
    int rc = 0;
    if (why) {
        log_warn("time is not judged: %s", why);
        rc = store_note(session->store, err, "warning", "time is not judged: %s", why);
    }
    free(why);
    return rc;
}

static int session_start(struct session *session, struct error *err)
{
    session->started_ns = clock_monotonic_ns();
    int rc = launch_env_find(&session->env, err);
    if (rc == 0)
        rc = session_find_inject(session, err);
    if (rc == 0)
        rc = session_open_images(session, err);
    if (rc)
        return rc;
    rc = guardian_start("", &session->env.guardian, err);
    if (rc)
        return rc;
    char *base = NULL;
    session->env.means = tree_detect_telling(session_tell_guardian, session->env.guardian, &base);
    session->env.base = base;
    if (host_raise_priority())
        log_debug("no real-time priority: turns may last a scheduler slice longer");
    session_peers_init(session);
    rc = session_prepare_workloads(session, err);
    if (rc)
        return rc;
    if (session->nodes && nodes_self(session->nodes)) // never judged for all
        return store_ledger(session->store, NULL, "nodes", "ranks of other nodes", -1, -1,
                nodes_count(session->nodes) - 1, 1,
                "this store has the ranks of one node; the verdict is in run.db beside it", err);
    rc = session_note_gate(session, err);
    if (rc)
        return rc;
    if (session->nodes)
        return store_note(session->store, err, "info",
                "%d nodes: sides are held at their gates by step number, not frozen; of each block the "
                "slowest node counts; pinned to CPUs %s",
                nodes_count(session->nodes), session->cpus_text);
    return store_note(session->store, err, "info", "sides are stopped by %s; pinned to CPUs %s",
            tree_means_name(session->env.means), session->cpus_text);
}

static void session_close(struct session *session)
{
    for (int i = 0; session->workloads && i < session->plan->workload_count; i++) {
        free(session->workloads[i].note);
        free(session->workloads[i].apart);
    }
    free(session->workloads);
    for (int side = 0; side < PLAN_SIDES; side++) {
        json_decref(session->process_facts[side]); // of a pair that was stopped
        json_decref(session->begun_with[side]);
    }
    json_decref(session->inputs);
    guardian_stop(session->env.guardian);
    tree_release_base(session->env.base);
    free((char *)session->env.base);
    session_peers_free(session->peers);
    nodes_close(session->nodes);
    for (int side = 0; side < PLAN_SIDES; side++)
        image_clear(&session->env.images[side]);
    inject_free(&session->env.inject);
    free(session->env.python_dir);
    free(session->env.models_dir);
    free(session->cpus_text);
    if (session->plan_owned)
        plan_free(session->plan);
    store_close(session->store);
}

// --- the loop ------------------------------------------------------------------------------------

// Behind the first pair of a workload: a file that it has changed is one that its command writes,
// and --resume does not ask for it.
static int session_settle_inputs(
        struct session *session, const struct session_workload *workload, struct error *err)
{
    if (!session->inputs || workload->pair_count != 1)
        return 0;
    json_t *now = inputs_describe(session->plan);
    bool dropped = inputs_drop_changed(session->inputs, now);
    json_decref(now);
    if (!dropped)
        return 0;
    char *text = json_dumps(session->inputs, JSON_COMPACT);
    int rc = store_exec(session->store, err,
            "UPDATE run SET host = json_set(host, '$.inputs', json(?))", "s", text);
    free(text);
    return rc;
}

static int session_workload_look(struct session *session, int idx, bool *ret_ran, struct error *err)
{
    struct session_workload *workload = &session->workloads[idx];
    session->workload_idx = idx;
    int rc = 0;
    if (workload->plan->mode == PLAN_MODE_INFER && workload->rate_per_s == 0 && !workload->broken) {
        session->phase = "capacity of the baseline";
        session_display(session);
        rc = session_find_rate(session, workload, err);
    }
    while (rc == 0 && !session_stop && !workload->broken) {
        rc = gate_need(session->store, workload->id, &session->need, err);
        if (rc || session->need.pairs_wanted <= session->need.pairs_valid)
            break;
        // The target of this look stays the target until it is reached; then others have their
        // turn.
        if (*ret_ran && session->need.pairs_wanted > workload->look_target)
            break;
        workload->look_target = session->need.pairs_wanted;
        session->phase =
                strcmp(session->need.phase, "confirm") == 0 ? "confirming a fail" : "pairs";
        session_display(session);
        *ret_ran = true;
        rc = session_pair(session, workload, session->need.phase, err);
        if (rc == 0)
            rc = session_settle_inputs(session, workload, err);
        if (rc == 0)
            rc = session_parity(session, workload, err);
    }
    return rc;
}

static int session_loop(struct session *session, struct error *err)
{
    bool again = true;
    while (again && !session_stop) {
        again = false;
        for (int i = 0; i < session->plan->workload_count && !session_stop; i++) {
            bool ran = false;
            int rc = session_workload_look(session, i, &ran, err);
            if (rc)
                return rc;
            again |= ran;
        }
    }
    int rc = 0;
    for (int i = 0; i < session->plan->workload_count && rc == 0; i++)
        rc = calibrate_workload(session, &session->workloads[i], err);
    return rc;
}

// A run that was done is gone on with, and nothing was left to make: it stays as it was.
static bool session_is_as_before(const struct session *session)
{
    return session->ended_before_ns && !session->launched;
}

int64_t session_ended_wall_ns(const struct session *session)
{
    return session_is_as_before(session) ? session->ended_before_ns : clock_wall_ns();
}

// whole: nothing cut it short.
static int session_store_end(struct session *session, bool whole, struct error *err)
{
    int64_t ended_ns = session_ended_wall_ns(session);
    return session_store_state(session->store,
            whole || session_is_as_before(session) ? "done" : "interrupted", &ended_ns, err);
}

static int session_finish(struct session *session, enum exit_code *ret_exit, struct error *err)
{
    int rc = session_store_end(session, !session_stop, err);
    if (rc == 0 && !session_stop)
        rc = gate_certify(session->store, err);
    if (rc == 0)
        rc = gate_judge(session->store, NULL, ret_exit, err);
    return rc;
}

static int session_meet(struct session *session, struct error *err)
{
    if (!session->opts->nodes)
        return 0;
    struct nodes_opts opts = *session->opts->nodes;
    opts.stop = &session_stop;
    opts.prepare = session_get_images; // a pull takes minutes on one node and nothing on another
    opts.arg = session;
    return nodes_open(&opts, &session->nodes, err);
}

static int session_all(struct session *session, enum exit_code *ret_exit, struct error *err)
{
    bool leads = !session->nodes || nodes_self(session->nodes) == 0;
    int rc = leads ? session_loop(session, err) : session_follow(session, ret_exit, err);
    if (rc == 0 && leads)
        rc = session_finish(session, ret_exit, err);
    else if (rc == 0)
        rc = session_store_end(session, !session_stop, err);
    // The verdict stands from here on, whatever becomes of these.
    if (rc == 0 && leads && !session_stop && !session->aa && session->lost < SESSION_LOST_MAX &&
            session->plan->schedule.traced_launches)
        traced_run(session);
    return rc;
}

int session_run(const struct session_opts *opts, struct store **ret_store, enum exit_code *ret_exit,
        struct error *err)
{
    struct session session = {.opts = opts};
    session_stop = 0;
    session_catch_signals();
    int rc = session_meet(&session, err);
    if (rc == 0)
        rc = session_open(&session, err);
    if (rc == 0)
        rc = session_start(&session, err);
    if (rc == 0) {
        progress_start(session.plan->workload_count, opts->progress);
        rc = session_all(&session, ret_exit, err);
        progress_stop();
    }
    if (session.nodes && rc)
        nodes_end(session.nodes, error_exit_code(rc));
    struct error late = {0};
    if (rc && session.claimed && session_store_end(&session, false, &late))
        // `--resume` finds that it does not
        log_warn("the store still says that this run goes on: %s", late.text);
    if (rc == 0) {
        *ret_store = session.store;
        session.store = NULL;
        if (session.nodes)
            *opts->ret_nodes = session.nodes;
        session.nodes = NULL;
    }
    session_close(&session);
    return rc;
}
