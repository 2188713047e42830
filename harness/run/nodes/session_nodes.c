// SPDX-License-Identifier: Apache-2.0
// A session on several nodes. Node 0 runs the session: its pairs are orders, which every node
// carries out on its own processes; the others follow it. Within a pair nobody says anything: who
// has its turn follows from the seed, how long from step numbers. What the others have recorded
// goes into the store of node 0 with the pair, in one transaction.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"
#include "harness/fingerprint/fingerprint.h"
#include "harness/run/nodes/nodes.h"
#include "harness/run/nodes/peer_rows.h"
#include "harness/run/session_internal.h"

enum {
    PEERS_BLOCK_STEPS = 10,    // of the first pair, when nobody knows how long a step is
    PEERS_BLOCK_STEPS_MIN = 4, // the first of them is not counted
    // a way to the first step so many times longer than the longest is no way any more
    PEERS_ARRIVAL_TIMES = 10,
    PEERS_REASON_BYTES = 1000
};

struct session_peers {
    struct launch_nodes place;
    const json_t **answers; // of each node to the present pair
    struct store **stores;  // in which what it has recorded stands; NULL: nothing
    bool *compared; // of each node, whether its sides are known to be those of node 0, or not
};

void session_peers_init(struct session *session)
{
    struct nodes *nodes = session->nodes;
    if (!nodes)
        return;
    struct session_peers *peers = session->peers = xcalloc(1, sizeof *peers);
    peers->place = (struct launch_nodes){
            .node = nodes_self(nodes), .count = nodes_count(nodes), .master = nodes_master(nodes)};
    peers->answers = xcalloc((size_t)nodes_count(nodes), sizeof *peers->answers);
    peers->stores = xcalloc((size_t)nodes_count(nodes), sizeof *peers->stores);
    peers->compared = xcalloc((size_t)nodes_count(nodes), sizeof *peers->compared);
}

static void peers_clear(struct session_peers *peers)
{
    for (int k = 0; k < peers->place.count; k++) {
        store_close(peers->stores[k]);
        peers->stores[k] = NULL;
        peers->answers[k] = NULL;
    }
}

void session_peers_free(struct session_peers *peers)
{
    if (!peers)
        return;
    peers_clear(peers);
    free(peers->answers);
    free(peers->stores);
    free(peers->compared);
    free(peers);
}

static const char *peers_on_look(void *arg, int side)
{
    return nodes_failed(arg, side);
}

static void peers_on_fail(void *arg, int side, const char *reason)
{
    char *text = xasprintf("%.*s", PEERS_REASON_BYTES, reason);
    string_make_utf8(text, strlen(text));
    nodes_fail(arg, side, text);
    free(text);
}

static void peers_complete(
        struct session *session, const struct session_workload *workload, struct pair_spec *spec)
{
    spec->nodes = &session->peers->place;
    spec->on_look = peers_on_look;
    spec->on_fail = peers_on_fail;
    spec->nodes_arg = session->nodes;
    int64_t arrival_ns =
            workload->arrival_ns * PEERS_ARRIVAL_TIMES + session->plan->schedule.handover_ns;
    // Launches that take no turns may have no steps by which to see that they have come.
    spec->arrival_max_ns =
            workload->arrival_ns && spec->interleave == PLAN_INTERLEAVE_STEPS ? arrival_ns : 0;
}

// --- orders --------------------------------------------------------------------------------------

static json_t *peers_order(
        const struct session_workload *workload, const char *phase, const struct pair_spec *spec)
{
    return json_pack("{sI ss ss sI sI si sI sI sf ss si si sb sb sb sb s[ii]}", "workload",
            (json_int_t)workload->id, "phase", phase, "interleave",
            plan_interleave_name(spec->interleave), "seed", (json_int_t)spec->seed, "coin_seed",
            (json_int_t)spec->coin_seed, "first_side", spec->first_side, "steps",
            (json_int_t)spec->steps, "block_steps", (json_int_t)spec->block_steps, "rate_per_s",
            spec->rate_per_s, "dtype", spec->dtype, "sides", spec->sides, "control_ppm",
            (int)spec->control_ppm, "control_frozen", spec->control_frozen, "equal", spec->equal,
            "finds_steps", spec->finds_steps, "steps_open", spec->steps_open, "ports",
            spec->nodes->ports[0], spec->nodes->ports[1]);
}

static int64_t peers_int(const json_t *json, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(json, key));
}

// false: it is no order of this plan.
static bool peers_read_order(struct session *session, const json_t *order, struct plan *equal,
        struct session_workload **ret_workload, const char **ret_phase, struct pair_spec *ret_spec)
{
    static const char *const dtypes[] = {"float32", "float64"};
    const char *interleave = json_string_value(json_object_get(order, "interleave"));
    const char *dtype = json_string_value(json_object_get(order, "dtype"));
    const json_t *ports = json_object_get(order, "ports");
    int64_t id = peers_int(order, "workload");
    *ret_phase = json_string_value(json_object_get(order, "phase"));
    if (id < 1 || id > session->plan->workload_count || !*ret_phase || !interleave || !dtype)
        return false;
    *ret_workload = &session->workloads[id - 1];
    *equal = *session->plan; // as it is, but for the side that is the baseline twice
    equal->sides[1] = equal->sides[0];
    bool is_equal = json_is_true(json_object_get(order, "equal"));
    *ret_spec = (struct pair_spec){.plan = is_equal ? equal : session->plan,
            .equal = is_equal,
            .workload = (*ret_workload)->plan,
            .interleave = PLAN_INTERLEAVE_AUTO,
            .seed = (uint64_t)peers_int(order, "seed"),
            .coin_seed = (uint64_t)peers_int(order, "coin_seed"),
            .first_side = peers_int(order, "first_side") == 1,
            .steps = (uint64_t)peers_int(order, "steps"),
            .block_steps = (uint64_t)peers_int(order, "block_steps"),
            .rate_per_s = json_number_value(json_object_get(order, "rate_per_s")),
            .dtype = dtypes[strcmp(dtype, dtypes[1]) == 0],
            .sides = (int)peers_int(order, "sides"),
            // By their step calls all ranks wait at once. Frozen stands one node, and the others
            // wait for it.
            .control_ppm = json_is_true(json_object_get(order, "control_frozen"))
                    ? 0
                    : (uint32_t)peers_int(order, "control_ppm"),
            .finds_steps = json_is_true(json_object_get(order, "finds_steps")),
            .steps_open = json_is_true(json_object_get(order, "steps_open")),
            .on_held =
                    session->fingerprinted[0] && session->fingerprinted[1] ? NULL : session_on_held,
            .arg = session,
            .stop = &session_stop};
    for (int i = 0; i < PLAN_INTERLEAVE_COUNT; i++)
        if (strcmp(interleave, plan_interleave_name((enum plan_interleave)i)) == 0)
            ret_spec->interleave = (enum plan_interleave)i;
    for (int side = 0; side < PLAN_SIDES; side++)
        session->peers->place.ports[side] =
                (int)json_integer_value(json_array_get(ports, (size_t)side));
    return ret_spec->interleave == PLAN_INTERLEAVE_STEPS ||
            ret_spec->interleave == PLAN_INTERLEAVE_LAUNCHES;
}

// --- answers -------------------------------------------------------------------------------------

static json_t *peers_answer_side(const struct launch *launch)
{
    return launch ? json_pack("{si si si}", "state", (int)launch->state, "exit_code",
                            launch->exit_code, "exit_signal", launch->exit_signal)
                  : json_null();
}

// row: of the pair in our own store, 0: it was stopped.
static json_t *peers_answer(struct session *session, int64_t row, const struct pair *pair)
{
    char *state = store_get_text(session->store, "SELECT state FROM pair WHERE id = ?", "i", row);
    char *reason = store_get_text(session->store, "SELECT reason FROM pair WHERE id = ?", "i", row);
    int64_t side = -1;
    store_get_int(session->store, &side, NULL, "SELECT void_side FROM pair WHERE id = ?", "i", row);
    json_t *answer = json_pack("{sb sI ss ss? si sb sb sb sb sb so so}", "timed_out",
            pair->timed_out || pair->state == PAIR_STOPPED, "pair", (json_int_t)row, "state",
            state ? state : "void", "reason",
            reason          ? reason
                    : state ? NULL
                            : "stopped",
            "void_side", (int)side, "lost", pair->lost, "missed_steps", pair->missed_steps,
            "rules_differ", pair->rules_differ, "skipped", pair->skipped, "beside",
            pair->failed_beside, "a", peers_answer_side(pair->launches[0]), "b",
            peers_answer_side(pair->launches[1]));
    free(state);
    free(reason);
    return answer;
}

static void peers_lose(struct pair *pair, int side, char *reason)
{
    if (!pair->lost || pair->disturbed) { // what failed here may have failed for that
        free(pair->reason);
        pair->reason = NULL;
    }
    if (pair->reason)
        free(reason);
    else
        pair->reason = reason;
    pair->state = PAIR_FAILED;
    pair->lost = true;
    pair->lost_side = side;
    pair->disturbed = false;
}

// A side that has failed there. A signal that ended it tells more than the exit of one that had
// waited for it.
static void peers_fail_side(struct pair *pair, int side, const json_t *there)
{
    struct launch *launch = pair->launches[side];
    int64_t state = peers_int(there, "state"), signal = peers_int(there, "exit_signal");
    bool failed = state == LAUNCH_CRASHED || state == LAUNCH_TIMEOUT || state == LAUNCH_OOM;
    if (!launch || !json_is_object(there) || !failed)
        return;
    bool here = launch->state == LAUNCH_CRASHED || launch->state == LAUNCH_TIMEOUT ||
            launch->state == LAUNCH_OOM;
    if (here && (signal <= 0 || launch->exit_signal > 0))
        return;
    launch->state = (enum launch_state)state;
    launch->exit_code = (int)peers_int(there, "exit_code");
    launch->exit_signal = (int)signal;
}

// What a node says of the pair, into what is known here.
static void peers_hear(struct session *session, struct pair *pair, int node, const json_t *answer)
{
    const char *state = json_string_value(json_object_get(answer, "state")),
               *said = json_string_value(json_object_get(answer, "reason"));
    int count = session->peers->place.count;
    char why[PEERS_REASON_BYTES];
    snprintf(why, sizeof why, "%s", said ? said : "no reason");
    string_make_plain(why, strlen(why));
    if (!answer) {
        peers_lose(pair, -1, xasprintf("node %d of %d did not say what became of it", node, count));
        return;
    }
    if (state && strcmp(state, "valid") == 0)
        return;
    bool lost =
            json_is_true(json_object_get(answer, "lost")) || !state || strcmp(state, "failed") != 0;
    bool cause = json_is_true(json_object_get(answer, "timed_out"));
    bool was_good = pair->state == PAIR_VALID;
    bool disturbed = state && strcmp(state, "void") == 0 &&
            !json_is_true(json_object_get(answer, "lost")) && peers_int(answer, "pair") > 0;
    if (lost && (was_good || cause)) {
        peers_lose(pair, (int)peers_int(answer, "void_side"),
                xasprintf("node %d of %d: %s", node, count, why));
        pair->disturbed = was_good && disturbed;
    }
    if (lost || pair->timed_out)
        return;
    pair->missed_steps |= json_is_true(json_object_get(answer, "missed_steps"));
    pair->rules_differ |= json_is_true(json_object_get(answer, "rules_differ"));
    pair->skipped |= json_is_true(json_object_get(answer, "skipped"));
    pair->failed_beside |= json_is_true(json_object_get(answer, "beside"));
    peers_fail_side(pair, 0, json_object_get(answer, "a"));
    peers_fail_side(pair, 1, json_object_get(answer, "b"));
    char *before = pair->lost ? NULL : pair->reason; // lost: for what this node now tells
    char *text = xasprintf(
            "%s%snode %d of %d: %s", before ? before : "", before ? "; " : "", node, count, why);
    free(pair->reason);
    pair->reason = text;
    pair->state = PAIR_FAILED;
    pair->lost = false;
}

// The store of a node, as far as it holds what its answer names.
static void peers_open(struct session *session, struct pair *pair, int node, const json_t *answer)
{
    struct session_peers *peers = session->peers;
    char *path = nodes_store_path(session->nodes, node), *state = NULL;
    struct error err = {0};
    int64_t row = peers_int(answer, "pair");
    int rc = store_open(path, STORE_READ, &peers->stores[node], &err);
    if (rc == 0)
        state = store_get_text(
                peers->stores[node], "SELECT state FROM pair WHERE id = ?", "i", row);
    const char *said = json_string_value(json_object_get(answer, "state"));
    if (rc == 0 && (!state || !said || strcmp(state, said) != 0))
        error_set(&err, -ENOENT, "'%s' does not hold pair %lld", path, (long long)row);
    if (err.code) {
        store_close(peers->stores[node]);
        peers->stores[node] = NULL;
        peers_lose(pair, -1, xasprintf("node %d of %d: %s", node, peers->place.count, err.text));
    }
    free(state);
    free(path);
}

// What was recorded until then says nothing: parity would find steps that one side alone has made.
static void peers_forget(struct pair *pair)
{
    bool forgotten = pair->lost && !pair->disturbed;
    for (int side = 0; side < PLAN_SIDES && forgotten; side++)
        samples_free(&pair->samples[side]);
    if (forgotten)
        pair->block_count = 0;
}

// A rank that somebody has killed is a rank that was lost, like its node: no act of the program,
// and no sign that the sides cannot be alive together. The end of its peers follows from it.
static void peers_killed(struct pair *pair)
{
    static const int signals[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP};
    for (int side = 0; side < PLAN_SIDES; side++)
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
            const struct launch *launch = pair->launches[side];
            if (pair->state != PAIR_FAILED || !launch || launch->state != LAUNCH_CRASHED ||
                    launch->exit_signal != signals[i])
                continue;
            pair->lost = true;
            pair->lost_side = -1;
        }
}

static void peers_gather(struct session *session, struct pair *pair)
{
    struct session_peers *peers = session->peers;
    for (int k = 1; k < peers->place.count; k++) {
        peers->answers[k] = nodes_wait_answer(session->nodes, k);
        pair->timed_out |=
                !peers->answers[k] || json_is_true(json_object_get(peers->answers[k], "timed_out"));
    }
    for (int k = 1; k < peers->place.count; k++)
        peers_hear(session, pair, k, peers->answers[k]);
    peers_killed(pair);
    for (int k = 1; k < peers->place.count; k++)
        if (peers->answers[k] && !pair->lost)
            peers_open(session, pair, k, peers->answers[k]);
}

static int peers_more(void *arg, int64_t pair_id, struct error *err)
{
    struct session *session = arg;
    struct session_peers *peers = session->peers;
    int rc = 0;
    for (int k = 1; k < peers->place.count && rc == 0; k++)
        if (peers->stores[k])
            rc = peer_rows_take(session->store, pair_id, peers->stores[k],
                    peers_int(peers->answers[k], "pair"), err);
    return rc;
}

// --- node 0 --------------------------------------------------------------------------------------

// Who ends a job often signals all of its processes (Slurm: --signal, scancel), the sides before
// us: what they did then is no finding. Another part of the run makes the pair anew.
static int peers_run_pair(struct session *session, const struct pair_spec *spec,
        struct pair **ret_pair, struct error *err)
{
    int rc = pair_run(&session->env, spec, ret_pair, err);
    if (rc == 0 && session_stop && (*ret_pair)->state == PAIR_FAILED)
        (*ret_pair)->state = PAIR_STOPPED;
    return rc;
}

int session_run_pair(struct session *session, const struct session_workload *workload,
        const char *phase, struct pair_spec *spec, struct pair **ret_pair, struct error *err)
{
    if (!session->peers)
        return peers_run_pair(session, spec, ret_pair, err);
    uint64_t fixed = session->plan->schedule.block_steps, known = spec->block_steps;
    // Turns of an open loop last for seconds: their steps follow from the rate, which all nodes
    // know.
    bool open_loop = workload->plan->mode == PLAN_MODE_INFER && spec->rate_per_s > 0;
    if (fixed || open_loop)
        spec->block_steps = fixed;
    else
        spec->block_steps = known > PEERS_BLOCK_STEPS_MIN ? known
                : known                                   ? PEERS_BLOCK_STEPS_MIN
                                                          : PEERS_BLOCK_STEPS;
    peers_complete(session, workload, spec);
    for (int side = 0; side < PLAN_SIDES; side++)
        do
            session->peers->place.ports[side] = launch_free_port();
        while (side && session->peers->place.ports[1] == session->peers->place.ports[0]);
    peers_clear(session->peers);
    char *why = NULL;
    int rc = nodes_order(session->nodes, peers_order(workload, phase, spec), &why, err);
    if (rc < 0)
        return rc;
    if (rc == 1) { // nobody has started anything
        struct pair *pair = xcalloc(1, sizeof *pair);
        *pair = (struct pair){.state = session_stop ? PAIR_STOPPED : PAIR_FAILED,
                .lost = true,
                .lost_side = -1,
                .reason = why};
        pair->started_ns = pair->ended_ns = clock_monotonic_ns();
        *ret_pair = pair;
        return 0;
    }
    rc = peers_run_pair(session, spec, ret_pair, err);
    if (rc)
        nodes_fail(session->nodes, -1, err->text);
    else if ((*ret_pair)->state == PAIR_STOPPED)
        nodes_fail(session->nodes, -1, "stopped");
    else
        peers_gather(session, *ret_pair);
    if (rc == 0)
        peers_forget(*ret_pair);
    if (rc == 0 && (*ret_pair)->arrival_ns > workload->arrival_ns)
        session->workloads[workload->id - 1].arrival_ns = (*ret_pair)->arrival_ns;
    return rc;
}

static bool peers_is_judged(const char *phase)
{
    return strcmp(phase, "main") == 0 || strcmp(phase, "confirm") == 0;
}

int session_put_pair(struct session *session, struct session_pair_row *row,
        const struct pair_spec *spec, const struct pair *pair, struct error *err)
{
    bool leads = session->peers && session->peers->place.node == 0;
    if (leads && pair->lost)
        row->state = "void";
    row->more = leads ? peers_more : NULL;
    row->arg = session;
    int rc = session_store_pair(session->store, row, spec, pair, err);
    session->launched |= rc == 0;
    // On one node a candidate that hangs is no pass; a lost pair must not hide it.
    if (rc == 0 && leads && pair->lost && pair->lost_side == 1 && peers_is_judged(row->phase))
        rc = store_ledger(session->store, NULL, "nodes", "pairs of which the candidate stood still",
                1, 0, 1, true, pair->reason, err);
    if (leads)
        peers_clear(session->peers);
    return rc;
}

// --- are the sides the same everywhere? ----------------------------------------------------------

static json_t *peers_fingerprint(struct store *store, int side)
{
    char *text =
            store_get_text(store, "SELECT fingerprint FROM side WHERE id = ?", "i", (int64_t)side);
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return json;
}

// Both sides in the same way: the node has something else, and each compares them on its own. One
// of them: what was measured there is another change.
static int peers_tell_apart(
        struct session *session, int node, char *const texts[PLAN_SIDES], struct error *err)
{
    int rc = 0;
    if (texts[0] && texts[1] && strcmp(texts[0], texts[1]) == 0)
        return store_note(session->store, err, "warning",
                "node %d has other parts than node 0 on both sides: %s", node, texts[0]);
    for (int side = 0; side < PLAN_SIDES && rc == 0; side++) {
        if (!texts[side])
            continue;
        char *detail = xasprintf(
                "side '%s' on node %d: %s", session->plan->sides[side].name, node, texts[side]);
        log_warn("%s: the run will not pass", detail);
        rc = store_ledger(session->store, NULL, "nodes", "sides that are not the same on all nodes",
                -1, -1, 1, true, detail, err);
        free(detail);
    }
    return rc;
}

// One that cannot be read now, or has not read both of its sides, is asked again behind the next
// pair.
static int peers_compare(struct session *session, int node, struct error *err)
{
    char *path = nodes_store_path(session->nodes, node), *texts[PLAN_SIDES] = {NULL};
    struct store *store = NULL;
    struct error unreadable = {0};
    bool known = store_open(path, STORE_READ, &store, &unreadable) == 0;
    int rc = 0;
    for (int side = 0; side < PLAN_SIDES && known; side++) {
        json_t *first = peers_fingerprint(session->store, side),
               *other = peers_fingerprint(store, side);
        known = first && other;
        if (known) // of several workloads another one may have been read there
            texts[side] = fingerprint_apart(first, other, session->plan->workload_count == 1);
        json_decref(first);
        json_decref(other);
    }
    store_close(store);
    session->peers->compared[node] = known;
    if (known)
        rc = peers_tell_apart(session, node, texts, err);
    for (int side = 0; side < PLAN_SIDES; side++)
        free(texts[side]);
    free(path);
    return rc;
}

int session_compare_nodes(struct session *session, struct error *err)
{
    struct session_peers *peers = session->peers;
    int rc = 0;
    for (int k = 1; peers && peers->place.node == 0 && k < peers->place.count && rc == 0; k++)
        if (!peers->compared[k] && session->fingerprinted[0] && session->fingerprinted[1])
            rc = peers_compare(session, k, err);
    return rc;
}

// --- the others ----------------------------------------------------------------------------------

static int peers_carry_out(struct session *session, const json_t *order, struct error *err)
{
    struct session_workload *workload = NULL;
    struct plan equal;
    struct pair_spec spec;
    struct pair *pair = NULL;
    const char *phase = NULL;
    if (!peers_read_order(session, order, &equal, &workload, &phase, &spec))
        return error_set(err, -EPROTO, "node 0 asks for a pair that this version does not know");
    peers_complete(session, workload, &spec);
    int64_t row = 0;
    int rc = peers_run_pair(session, &spec, &pair, err);
    if (rc)
        return rc;
    peers_forget(pair);
    if (pair->state != PAIR_STOPPED) {
        if (pair->arrival_ns > workload->arrival_ns)
            workload->arrival_ns = pair->arrival_ns;
        rc = session_store_result(session, workload, phase,
                session_next_idx(session, workload, phase), &spec, pair, err);
        store_get_int(session->store, &row, NULL, "SELECT max(id) FROM pair", "");
    }
    if (rc == 0)
        rc = nodes_answer(session->nodes, peers_answer(session, row, pair), err);
    const char *start = pair->start_error[0] ? pair->start_error[0] : pair->start_error[1];
    if (rc == 0 && start) // a mistake in the plan, or a node that is not like the others
        rc = error_set(err, -ENOEXEC, "%s", start);
    pair_free(&session->env, pair);
    return rc;
}

int session_follow(struct session *session, enum exit_code *ret_exit, struct error *err)
{
    int rc = 0, exit_code = EXIT_CODE_INCONCLUSIVE;
    const json_t *order = NULL;
    log_info("node %d of %d follows node 0", session->peers->place.node,
            session->peers->place.count);
    while (!session_stop && (rc = nodes_next(session->nodes, &order, &exit_code, err)) == 1) {
        json_t *kept = json_incref((json_t *)order); // the line goes where node 0 begins a new file
        rc = peers_carry_out(session, kept, err);
        json_decref(kept);
        if (rc) {
            nodes_fail(session->nodes, -1, err->text);
            return rc;
        }
    }
    *ret_exit = (enum exit_code)exit_code;
    if (session_stop || rc == -EINTR)
        return 0;
    if (rc == -ETIMEDOUT) { // of no verdict is known
        log_warn("%s", err->text);
        return 0;
    }
    return rc;
}
