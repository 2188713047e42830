// SPDX-License-Identifier: Apache-2.0
// One pair of a session: which interleave, which seed and order, what becomes of it when a side
// fails, and into the store with it. The rules of `auto` live here.
#include "harness/run/session_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/containers/sort.h"
#include "common/log.h"
#include "common/strings.h"
#include "common/units.h"
#include "contracts/step_cycle.h"
#include "contracts/step_range.h"
#include "harness/fingerprint/fingerprint.h"
#include "harness/gate/parity/parity_launches.h"
#include "harness/run/nodes/nodes.h"
#include "harness/run/session_store.h"
#include "harness/run/validity.h"

#define SESSION_GRAPHS_RATIO_MAX \
    1.2 // of the counts of both sides; who runs for a time makes some more

enum {
    SESSION_OUTPUT_BYTES = 16384, // of the output in which words of memory are looked for: a
                                  // traceback of some frames
    SESSION_CONFIRM_SEED = 1000,
    SESSION_FOUND_STEPS_MIN = 10, // the first 5 are the warm-up
    SESSION_RATE_STEPS_MIN = 40,  // of the launch that finds the baseline's capacity
    SESSION_RATE_STEPS_MAX = 400
};

int64_t session_next_idx(
        struct session *session, const struct session_workload *workload, const char *phase)
{
    int64_t count = 0;
    store_get_int(session->store, &count, NULL,
            "SELECT count(*) FROM pair WHERE workload_id = ? AND phase = ?", "is", workload->id,
            phase);
    return count;
}

// Every random choice of a pair follows from the plan's seed and the pair's place, so that --resume
// goes on with the very coin flips an undisturbed run would have made.
static uint64_t session_hash(const struct session *session, const struct session_workload *workload,
        const char *phase, uint64_t idx)
{
    uint64_t state = session->plan->schedule.seed;
    for (const char *at = phase; *at; at++)
        state = pair_random(&state) ^ (uint64_t)*at;
    state = pair_random(&state) ^ (uint64_t)workload->id;
    state = pair_random(&state) ^ idx;
    return pair_random(&state);
}

// Who starts: fair, and balanced in blocks of four pairs (two of each order). The block's coin
// picks one of the six arrangements.
static int session_first_side(const struct session *session,
        const struct session_workload *workload, const char *phase, int64_t idx)
{
    static const unsigned char arrangements[6] = {0x3, 0x5, 0x6, 0x9, 0xa, 0xc};
    uint64_t coin = session_hash(session, workload, phase, 0x626c6f636bu + (uint64_t)(idx / 4));
    return arrangements[coin % 6] >> (idx % 4) & 1;
}

void session_on_held(void *arg, int side, pid_t pid)
{
    struct session *session = arg;
    if (session->fingerprinted[side] || session->process_facts[side])
        return;
    struct error err = {0};
    if (fingerprint_process(pid, &session->process_facts[side], &err))
        log_debug("no fingerprint of side %d yet: %s", side, err.text);
}

// What an image lacks by which something of ours cannot work in it; told with its fingerprint.
static int session_note_guest(struct session *session, int side, struct error *err)
{
    const struct inside_hello *guest = &session->env.guests[side];
    if (!session->plan->sides[side].image || !guest->magic || guest->glibc_major)
        return 0;
    return store_note(session->store, err, "warning",
            "image '%s' of side '%s' has %s: steps of Python programs are not found in it, and its GPU side is not recorded",
            session->plan->sides[side].image, session->plan->sides[side].name,
            guest->musl ? "musl, not glibc" : "no glibc");
}

// Of a side whose process was read in this pair. New reference.
static json_t *session_document(const struct session *session, int side, const struct pair *pair)
{
    const char *text = pair->samples[side].fingerprint;
    json_t *python = text ? json_loads(text, 0, NULL) : NULL;
    json_t *document = fingerprint_merge(session->process_facts[side], python);
    if (session->plan->sides[side].image)
        json_object_set_new(document, "image", image_to_json(&session->env.images[side]));
    json_decref(python);
    return document;
}

// A run that is gone on with: are its sides what it has begun with? Asked of the first pair whose
// processes could be read, before it is stored: pairs of another stack would be judged as this
// one's.
static int session_check_sides(struct session *session, const struct session_workload *workload,
        const struct pair *pair, struct error *err)
{
    // What was read is of the first workload's program; another one has loaded other libraries.
    int64_t first = workload->id;
    if (session->begun_with[0] || session->begun_with[1])
        store_get_int(session->store, &first, NULL,
                "SELECT workload_id FROM pair ORDER BY id LIMIT 1", "");
    for (int side = 0; side < PLAN_SIDES; side++) {
        if (!session->begun_with[side] || !session->process_facts[side])
            continue;
        json_t *now = session_document(session, side, pair);
        char *changes = fingerprint_changes(session->begun_with[side], now, workload->id == first);
        json_decref(now);
        if (changes) {
            int rc = error_set(err, -ESTALE,
                    "side '%s' is not what this run has begun with: %s; put it back, or start a new run",
                    session->plan->sides[side].name, changes);
            free(changes);
            return rc;
        }
        json_decref(session->begun_with[side]);
        session->begun_with[side] = NULL;
        session->fingerprinted[side] = true; // the stored one stays
    }
    return 0;
}

// The fingerprint of each side, once, from the first pair whose processes could be read.
static int session_store_fingerprints(
        struct session *session, const struct pair *pair, struct error *err)
{
    int rc = 0;
    for (int side = 0; side < PLAN_SIDES && rc == 0; side++) {
        if (session->fingerprinted[side] || session->begun_with[side] ||
                !session->process_facts[side])
            continue;
        json_t *document = session_document(session, side, pair);
        rc = session_store_fingerprint(session->store, side, document, err);
        session->fingerprinted[side] = rc == 0;
        if (rc == 0)
            rc = session_note_guest(session, side, err);
        json_decref(document);
    }
    for (int side = 0; side < PLAN_SIDES; side++) {
        json_decref(session->process_facts[side]);
        session->process_facts[side] = NULL;
    }
    return rc;
}

static struct pair_spec session_spec(
        struct session *session, struct session_workload *workload, const char *phase, int64_t idx)
{
    bool wants_fingerprint = !session->fingerprinted[0] || !session->fingerprinted[1];
    return (struct pair_spec){
            .plan = session->plan,
            .workload = workload->plan,
            .interleave = workload->interleave,
            // Fresh pairs that confirm a fail get inputs of their own.
            .seed = session->plan->schedule.seed + (uint64_t)idx +
                    (strcmp(phase, "confirm") == 0 ? SESSION_CONFIRM_SEED : 0),
            .coin_seed = session_hash(session, workload, phase, (uint64_t)idx),
            .first_side = session_first_side(session, workload, phase, idx),
            .steps = workload->steps,
            // In slices steps are cut in their middle, and nobody looks at them.
            .finds_steps = workload->finds_steps && workload->interleave != PLAN_INTERLEAVE_SLICES,
            .steps_open = workload->steps_open,
            .steps_seen = workload->steps_seen,
            .block_steps = workload->block_steps,
            .rate_per_s = fmax(workload->rate_per_s, 0),
            .dtype = "float32",
            .sides = 3,
            .on_held = wants_fingerprint ? session_on_held : NULL,
            .on_tick = session_tick,
            .arg = session,
            .stop = &session_stop,
    };
}

// note NULL keeps the one there is.
static int session_set_interleave(struct session *session, struct session_workload *workload,
        enum plan_interleave interleave, char *note, struct error *err)
{
    workload->interleave = interleave;
    if (note) {
        free(workload->note);
        workload->note = note;
        log_info("workload '%s': %s", workload->plan->name, note);
    }
    return session_store_workload(
            session->store, workload->id, interleave, workload->note, workload->rate_per_s, err);
}

// How a workload is taken as a whole. Not in slices on several nodes: whoever is frozen holds up
// the others.
static enum plan_interleave session_whole(const struct session *session)
{
    return session->peers ? PLAN_INTERLEAVE_LAUNCHES : PLAN_INTERLEAVE_SLICES;
}

// And in words, behind the reason.
static const char *session_total_time(
        const struct session *session, const struct session_workload *workload)
{
    if (session->peers)
        return "turns are not possible, launches alternate and are judged on total time; expect a spread of pairs some 10 times larger on a "
               "shared machine, and so many more pairs";
    return workload->interleave == PLAN_INTERLEAVE_LAUNCHES
            ? "judged on total time"
            : "both sides are frozen in turn, and judged on total time";
}

// Steps that were found are of no use: from here on the workload is taken as a whole.
static void session_no_steps(const struct session *session, struct session_workload *workload)
{
    workload->finds_steps = workload->steps_open = false;
    if (workload->interleave == PLAN_INTERLEAVE_STEPS)
        workload->interleave = session_whole(session);
}

// Why the steps that a good pair has shown are none to judge by; NULL: they are. Caller frees.
static char *session_doubt_steps(const struct session_workload *workload,
        const struct pair_spec *spec, const struct pair *pair, const char *rule,
        const int64_t steps[PLAN_SIDES])
{
    int64_t least = steps[1] < steps[0] ? steps[1] : steps[0],
            most = steps[1] < steps[0] ? steps[0] : steps[1], behind_ns;
    if (least < SESSION_FOUND_STEPS_MIN)
        return xasprintf(" comes %lld time%s only", (long long)least, least == 1 ? "" : "s");
    for (int side = 0; side < PLAN_SIDES && !workload->plan->step; side++)
        if (steps[side] < CYCLE_STEPS_MAX && pair_steps_end_early(pair, side, &behind_ns))
            return xasprintf(
                    ": the last of %lld is over %.1f s before the end on side '%s', so most of the work is in none",
                    (long long)steps[side], (double)behind_ns / 1e9, spec->plan->sides[side].name);
    // Graphs have no names: one side may have cut the same work into more of them, or replay one
    // more often.
    if (strcmp(rule, UG_GRAPH_RULE) == 0 && (double)most > SESSION_GRAPHS_RATIO_MAX * (double)least)
        return xasprintf(": %lld on side '%s', %lld on side '%s', so they are not the same work",
                (long long)steps[0], spec->plan->sides[0].name, (long long)steps[1],
                spec->plan->sides[1].name);
    return NULL;
}

// A good pair has shown what the steps are, and how many: said in *note, behind what stands there.
// True: they are of no use, and another way is left.
static bool session_learn_steps(const struct session *session, struct session_workload *workload,
        const struct pair_spec *spec, const struct pair *pair, bool may_fall_back, char **note)
{
    char *why = NULL, *before = *note;
    const char *rule = pair_rule(spec, pair, &why);
    free(why);
    if (!rule || !workload->finds_steps)
        return false;
    const char *found = pair->samples[0].found ? pair->samples[0].found : rule;
    int64_t steps[PLAN_SIDES] = {
            samples_steps(pair->launches[0]), samples_steps(pair->launches[1])};
    why = may_fall_back ? session_doubt_steps(workload, spec, pair, rule, steps) : NULL;
    if (why) {
        session_no_steps(session, workload);
        *note = xasprintf("%s%s%s%s: %s", before ? before : "", before ? "; " : "", found, why,
                session_total_time(session, workload));
        free(before);
        free(why);
        return true;
    }
    uint32_t ranks = reader_slot_count(pair->launches[0]->reader);
    char *counts = steps[0] == steps[1]
            ? xasprintf("%lld", (long long)steps[0])
            : xasprintf("%lld and %lld", (long long)steps[0], (long long)steps[1]);
    char *many = ranks > 1 ? xasprintf("rank, %u ranks", ranks) : xstrdup("launch");
    *note = xasprintf("%s%ssteps: %s, %s a %s", before ? before : "", before ? "; " : "", found,
            counts, many);
    free(before);
    free(counts);
    free(many);
    if (workload->steps_open)
        workload->steps = (uint64_t)(steps[1] < steps[0] ? steps[1] : steps[0]);
    workload->steps_open = false;
    return false;
}

// Did it end for want of memory, by the kernel's word or by its own? What crashes in any other way
// would crash alone as well, now and then: that it does not the next time says nothing.
static bool session_lacked_memory(const struct launch *launch)
{
    static const char *const words[] = {"out of memory", "OutOfMemory", "MemoryError", "bad_alloc",
            "Cannot allocate memory", "cudaErrorMemoryAlloc", "_ALLOC_FAILED", "RESOURCE_EXHAUSTED",
            "hipErrorOutOfMemory"};
    if (launch->state != LAUNCH_CRASHED)
        return launch->state == LAUNCH_OOM;
    char *tail = launch_output_tail(launch, SESSION_OUTPUT_BYTES);
    bool found = false;
    for (size_t i = 0; i < sizeof words / sizeof *words && !found; i++)
        found = strcasestr(tail, words[i]) != NULL;
    free(tail);
    return found;
}

// The side that ran out of memory while the other one was alive, to which nothing happened; -1:
// none.
static int session_crowded_out(enum plan_interleave interleave, const struct pair *pair)
{
    for (int side = 0; side < PLAN_SIDES && interleave != PLAN_INTERLEAVE_LAUNCHES; side++) {
        const struct launch *launch = pair->launches[side], *other = pair->launches[!side];
        if (launch && other && other->ended_ns >= launch->ended_ns &&
                (other->state == LAUNCH_OK || other->state == LAUNCH_STOPPED) &&
                session_lacked_memory(launch))
            return side;
    }
    return -1;
}

// A side ended badly while the other one was alive, here or on another node; as
// PAIR_ROWS_BESIDE_SQL finds it in the store. The other one may have come to its end before anybody
// looked (pair->failed_beside).
static bool session_failed_beside(const struct session *session, const struct pair *pair)
{
    for (int side = 0; side < PLAN_SIDES; side++) {
        const struct launch *launch = pair->launches[side], *other = pair->launches[!side];
        if (launch && other && launch->state != LAUNCH_OK && launch->state != LAUNCH_STOPPED &&
                (session->peers ||
                        (other->started_ns <= launch->ended_ns &&
                                launch->ended_ns <= other->ended_ns)))
            return !pair->skipped;
    }
    return pair->failed_beside;
}

// Memory that did not do for both says so itself, or a side was not even started, here or on
// another node: then none ended badly.
static bool session_short_of_memory(const struct pair *pair)
{
    bool bad = false;
    for (int side = 0; side < PLAN_SIDES; side++) {
        const struct launch *launch = pair->launches[side];
        if (!launch || session_lacked_memory(launch))
            return true;
        bad = bad || (launch->state != LAUNCH_OK && launch->state != LAUNCH_STOPPED);
    }
    return !bad;
}

char *session_apart_note(const char *reason)
{
    return xasprintf(
            "the two sides cannot be alive together (%s): one after the other; expect a spread of pairs some 10 times larger on a shared "
            "machine, and so many more pairs",
            reason);
}

// What `auto` tries after a pair that failed: another interleave, and why; the note is kept when a
// pair has shown that it works. True = run the pair again, this one does not count.
static bool session_fall_back(const struct session *session, struct session_workload *workload,
        const struct pair *pair, char **ret_note)
{
    if (pair->start_error[0] || pair->start_error[1] || pair->lost)
        return false;
    if (workload->interleave == PLAN_INTERLEAVE_STEPS && pair->missed_steps) {
        workload->interleave = session_whole(session);
        if (pair->unseen || session->peers) {
            free(*ret_note);
            *ret_note = xasprintf("%s: %s",
                    pair->unseen ? pair->unseen : "makes no step calls on both sides",
                    session_total_time(session, workload));
        }
        return true;
    }
    if (workload->finds_steps && pair->rules_differ) {
        session_no_steps(session, workload);
        free(*ret_note);
        *ret_note = xasprintf("%s: %s", pair->reason, session_total_time(session, workload));
        return true;
    }
    if (workload->interleave == PLAN_INTERLEAVE_LAUNCHES || !session_failed_beside(session, pair))
        return false;
    if (session_short_of_memory(pair)) {
        workload->interleave = PLAN_INTERLEAVE_LAUNCHES;
        free(*ret_note);
        *ret_note = session_apart_note(pair->reason);
        return true;
    }
    // Any other crash may be one side's own, and come alone as well: this pair is stored, and
    // counts as failed unless the next one fails so, too. It is none of those by which a workload
    // is given up: launches one after the other have their two attempts.
    workload->failures--;
    if (++workload->beside == SESSION_BESIDE_MAX)
        workload->apart = session_apart_note(pair->reason);
    return false;
}

// Why `auto` takes slices, now that a pair has shown what the sides do.
static char *session_slices_note(const struct session *session,
        const struct session_workload *workload, const struct pair *pair)
{
    if (workload->plan->step && !pair->has_steps)
        return xasprintf("'%s' was not called on both sides: %s", workload->plan->step,
                session_total_time(session, workload));
    return xasprintf("makes %s: %s",
            pair->has_steps                 ? "step calls on one side only"
                    : workload->finds_steps ? "no step calls, and none were found on both sides"
                                            : "no step calls",
            session_total_time(session, workload));
}

// A pair that fails may take its timeout, however short the good ones are: their number is bounded,
// too.
bool session_failed_too_often(const struct session_workload *workload)
{
    return workload->failures >= SESSION_FAILURES_MAX ||
            workload->failures_all >= SESSION_FAILURES_ALL;
}

static int session_count_pair(struct session *session, struct session_workload *workload,
        const struct session_pair_row *row, const struct pair *pair, struct error *err)
{
    if (session->peers && nodes_self(session->nodes)) // what follows from it, node 0 says
        return 0;
    workload->pair_ns_sum += pair->ended_ns - pair->started_ns;
    workload->pair_count++;
    session->lost = pair->lost && !pair->disturbed ? session->lost + 1 : 0;
    if (pair->block_steps)
        workload->block_steps = pair->block_steps;
    if (pair->skipped) {
        workload->broken = true;
        log_warn("workload '%s' is not run: %s", workload->plan->name, row->reason);
        return 0;
    }
    if (strcmp(row->state, "failed") == 0) {
        workload->failures++;
        workload->failures_all++;
        if (session_failed_too_often(workload)) {
            workload->broken = true;
            log_warn("workload '%s' is given up after %d failed pairs: %s", workload->plan->name,
                    workload->failures_all, row->reason);
        }
        return 0;
    }
    workload->failures = 0;
    if (strcmp(row->state, "void") == 0) {
        log_warn("workload '%s': a pair does not count: %s", workload->plan->name, row->reason);
        if (session->lost == SESSION_LOST_MAX) {
            for (int i = 0; i < session->plan->workload_count; i++)
                session->workloads[i].broken = true;
            log_warn("%d pairs in a row were lost: the run ends", SESSION_LOST_MAX);
            return store_note(session->store, err, "warning",
                    "the run ended when %d pairs in a row were lost: %s", SESSION_LOST_MAX,
                    row->reason);
        }
        if (++workload->voids > session->plan->schedule.voids_max) {
            workload->broken = true;
            return store_note(session->store, err, "warning",
                    "workload '%s': more than %llu pairs were void; the machine is not fit to judge on",
                    workload->plan->name, (unsigned long long)session->plan->schedule.voids_max);
        }
    }
    return 0;
}

int session_store_result(struct session *session, struct session_workload *workload,
        const char *phase, int64_t idx, const struct pair_spec *spec, const struct pair *pair,
        struct error *err)
{
    struct validity validity = {NULL, -1, NULL};
    if (pair->state == PAIR_VALID)
        validity = validity_check(pair, spec->interleave);
    struct session_pair_row row = {.workload_id = workload->id,
            .phase = phase,
            .idx = idx,
            .state = pair->lost || pair->crowded ? "void"
                    : pair->state == PAIR_FAILED ? "failed"
                    : validity.reason            ? "void"
                                                 : "valid",
            .reason = pair->state == PAIR_FAILED ? pair->reason : validity.reason,
            // that both at once do not fit is no side's doing
            .void_side = pair->crowded ? -1
                    : pair->lost       ? pair->lost_side
                                       : validity.side};
    int rc = session_check_sides(session, workload, pair, err);
    if (rc == 0)
        rc = session_put_pair(session, &row, spec, pair, err);
    if (rc == 0)
        rc = session_store_fingerprints(session, pair, err);
    if (rc == 0)
        rc = session_compare_nodes(session, err);
    if (rc == 0)
        rc = session_count_pair(session, workload, &row, pair, err);
    if (validity.note)
        log_info("workload '%s': %s", workload->plan->name, validity.note);
    free(validity.reason);
    free(validity.note);
    return rc;
}

static const char *session_why_unstarted(const struct pair *pair)
{
    return pair->start_error[0] ? pair->start_error[0] : pair->start_error[1];
}

static int session_start_error(const struct pair *pair, struct error *err)
{
    return error_set(err, -ENOEXEC, "%s", session_why_unstarted(pair));
}

static bool session_has_pairs(const struct session *session)
{
    int64_t count = 0;
    store_get_int(session->store, &count, NULL, "SELECT count(*) FROM pair", "");
    return count > 0;
}

// Where both sides could be started before, a file system is gone, or an environment is being
// renewed: once it is back the run goes on, and a pair of this would stand in it as a failure of
// that side.
static int session_keep_pair(struct session *session, struct session_workload *workload,
        const char *phase, int64_t idx, const struct pair_spec *spec, const struct pair *pair,
        struct error *err)
{
    const char *unstarted = session_why_unstarted(pair);
    int rc = unstarted && session_has_pairs(session)
            ? store_note(session->store, err, "warning", "a pair was not made: %s", unstarted)
            : session_store_result(session, workload, phase, idx, spec, pair, err);
    // A side that cannot be executed at all is a mistake in the plan, not a finding.
    return rc == 0 && unstarted ? session_start_error(pair, err) : rc;
}

// Both launches of a control pair are the baseline's: one tells of it, and none of the candidate.
static void session_on_held_control(void *arg, int side, pid_t pid)
{
    if (side == 0)
        session_on_held(arg, side, pid);
}

int session_pair_control(struct session *session, struct session_workload *workload,
        const struct gate_control *control, struct error *err)
{
    int64_t idx = session_next_idx(session, workload, "control");
    struct pair_spec spec = session_spec(session, workload, "control", idx);
    struct plan equal = *session->plan; // as it is, but for the side that is the baseline twice
    equal.sides[1] = equal.sides[0];
    spec.plan = &equal;
    spec.equal = true;
    spec.on_held = session->begun_with[0] ? session_on_held_control : NULL;
    spec.control_ppm = (uint32_t)lround(1e6 * control->share);
    spec.control_frozen = control->frozen;
    struct pair *pair = NULL;
    int rc = session_run_pair(session, workload, "control", &spec, &pair, err);
    if (rc)
        return rc;
    if (pair->state != PAIR_STOPPED)
        rc = session_keep_pair(session, workload, "control", idx, &spec, pair, err);
    pair_free(&session->env, pair);
    return rc;
}

// A side that ran out of memory beside the other, once more and alone. Where it works so, it was
// both at once that did not fit: the pair is void. The lone launch is no evidence of anything else,
// and is not stored.
static int session_try_alone(struct session *session, struct session_workload *workload,
        const char *phase, const struct pair_spec *beside, int side, struct pair *pair,
        struct error *err)
{
    struct pair_spec spec = *beside;
    struct pair *alone = NULL;
    spec.interleave = PLAN_INTERLEAVE_LAUNCHES;
    spec.sides = 1 << side;
    spec.first_side = side;
    spec.on_held = NULL;
    session->phase = "one side alone, for want of memory beside the other";
    session_display(session);
    int rc = session_run_pair(session, workload, phase, &spec, &alone, err);
    if (rc)
        return rc;
    if (alone->state == PAIR_STOPPED) {
        // nobody knows what it was: another part of the run makes it anew
        pair->state = PAIR_STOPPED;
    } else if (alone->state == PAIR_VALID) {
        char *reason = xasprintf(
                "%s; it ran out of memory beside the other side, and not alone: `interleave: launches` runs them one after the other",
                pair->reason);
        free(pair->reason);
        pair->reason = reason;
        pair->crowded = true;
    }
    pair_free(&session->env, alone);
    return 0;
}

// Which side of a failed pair is worth that; -1: none. Where the way of its turns was ours to
// choose, and a pair before has shown that both sides work.
static int session_worth_alone(const struct session *session,
        const struct session_workload *workload, const struct pair_spec *spec,
        const struct pair *pair)
{
    bool ours = session_interleave(session->plan, workload->plan) == PLAN_INTERLEAVE_AUTO;
    return ours && !session->peers && pair->state == PAIR_FAILED && !pair->lost
            ? session_crowded_out(spec->interleave, pair)
            : -1;
}

int session_pair(struct session *session, struct session_workload *workload, const char *phase,
        struct error *err)
{
    int64_t idx = session_next_idx(session, workload, phase);
    bool was_auto = workload->interleave == PLAN_INTERLEAVE_AUTO, again = true;
    char *note = NULL;
    int rc = 0;
    if (was_auto)
        workload->interleave = workload->apart                      ? PLAN_INTERLEAVE_LAUNCHES
                : workload->plan->steps_from == PLAN_STEPS_FROM_OFF ? session_whole(session)
                                                                    : PLAN_INTERLEAVE_STEPS;
    if (was_auto && workload->apart)
        note = xstrdup(workload->apart);
    while (rc == 0 && again) {
        struct pair_spec spec = session_spec(session, workload, phase, idx);
        struct pair *pair = NULL;
        again = false;
        rc = session_run_pair(session, workload, phase, &spec, &pair, err);
        if (rc)
            break;
        if (pair->state == PAIR_FAILED && was_auto)
            again = session_fall_back(session, workload, pair, &note);
        else if (pair->state == PAIR_VALID && (was_auto || workload->steps_open))
            again = session_learn_steps(session, workload, &spec, pair, was_auto, &note);
        spec.steps = workload->steps;
        int crowded = was_auto || again ? -1 : session_worth_alone(session, workload, &spec, pair);
        if (crowded >= 0)
            rc = session_try_alone(session, workload, phase, &spec, crowded, pair, err);
        if (rc == 0 && !again && pair->state != PAIR_STOPPED) {
            for (int side = 0; side < PLAN_SIDES; side++)
                if (pair->launches[side] && samples_steps(pair->launches[side]) >= 0)
                    workload->steps_seen |= 1 << side;
            rc = session_keep_pair(session, workload, phase, idx, &spec, pair, err);
        }
        if ((was_auto || note) && !again && pair->state == PAIR_VALID && rc == 0) {
            if (was_auto && !note && workload->interleave == PLAN_INTERLEAVE_SLICES)
                note = session_slices_note(session, workload, pair);
            rc = session_set_interleave(session, workload, workload->interleave, note, err);
            note = NULL;
        } else if (was_auto && !again && pair->state != PAIR_VALID) {
            // nothing learnt: the next pair finds out anew
            workload->interleave = PLAN_INTERLEAVE_AUTO;
        }
        pair_free(&session->env, pair);
    }
    free(note);
    return rc;
}

// --- launches of the baseline alone --------------------------------------------------------------

static int session_alone(struct session *session, struct session_workload *workload,
        const char *phase, struct pair_spec *spec, struct pair **ret_pair, struct error *err)
{
    spec->interleave = PLAN_INTERLEAVE_LAUNCHES;
    spec->sides = 1;
    spec->first_side = 0;
    spec->on_held = NULL;
    int rc = session_run_pair(session, workload, phase, spec, ret_pair, err);
    if (rc || (*ret_pair)->state == PAIR_STOPPED)
        return rc;
    struct session_pair_row row = {.workload_id = workload->id,
            .phase = phase,
            .idx = session_next_idx(session, workload, phase),
            .state = (*ret_pair)->state == PAIR_VALID ? "valid" : "failed",
            .reason = (*ret_pair)->reason,
            .void_side = -1};
    return session_put_pair(session, &row, spec, *ret_pair, err);
}

int session_pair_traced(struct session *session, struct session_workload *workload,
        const struct pair_spec *hooks, int64_t *ret_pair_id, struct error *err)
{
    int64_t idx = session_next_idx(session, workload, "traced");
    struct pair_spec spec = session_spec(session, workload, "traced", idx);
    spec.on_held = NULL;
    spec.on_start = hooks->on_start;
    spec.inject = hooks->inject;
    spec.inject_kinds = hooks->inject_kinds;
    spec.on_tick = hooks->on_tick;
    spec.arg = hooks->arg;
    spec.stop = hooks->stop;
    struct pair *pair = NULL;
    int rc = session_run_pair(session, workload, "traced", &spec, &pair, err);
    if (rc)
        return rc;
    struct session_pair_row row = {.workload_id = workload->id,
            .phase = "traced",
            .idx = idx,
            .state = pair->state == PAIR_VALID ? "valid" : "failed",
            .reason = pair->reason,
            .void_side = -1};
    if (pair->state != PAIR_STOPPED)
        rc = session_put_pair(session, &row, &spec, pair, err);
    if (rc == 0 && pair->state != PAIR_STOPPED)
        rc = store_get_int(session->store, ret_pair_id, err,
                "SELECT id FROM pair WHERE workload_id = ? AND phase = 'traced' AND idx = ?", "ii",
                workload->id, idx);
    pair_free(&session->env, pair);
    return rc;
}

int session_find_rate(struct session *session, struct session_workload *workload, struct error *err)
{
    uint64_t steps = workload->plan->steps / 4;
    steps = steps < SESSION_RATE_STEPS_MIN   ? SESSION_RATE_STEPS_MIN
            : steps > SESSION_RATE_STEPS_MAX ? SESSION_RATE_STEPS_MAX
                                             : steps;
    struct pair_spec spec = session_spec(session, workload, "pilot", 0);
    spec.steps = steps;
    spec.rate_per_s = 0;
    struct pair *pair = NULL;
    int rc = session_alone(session, workload, "pilot", &spec, &pair, err);
    const struct samples *samples = pair ? &pair->samples[0] : NULL;
    if (rc == 0 && pair->state == PAIR_VALID && samples->step_count >= 8) {
        // The first quarter warms up; the median of the rest is the time to serve one request.
        size_t from = samples->step_count / 4, count = samples->step_count - from;
        double *times = xcalloc(count, sizeof *times);
        for (size_t i = 0; i < count; i++)
            times[i] =
                    (double)(samples->steps[from + i].end_ns - samples->steps[from + i].begin_ns);
        sort_in_place(times, count, x, y, *x < *y);
        workload->rate_per_s = 0.5e9 / fmax(times[count / 2], 1);
        char serve[32];
        char *note =
                xasprintf("open loop at %.4g requests/s, half of what side '%s' can do (%s each)",
                        workload->rate_per_s, session->plan->sides[0].name,
                        unit_format_ns(serve, sizeof serve, times[count / 2]));
        free(times);
        rc = session_set_interleave(session, workload, workload->interleave, note, err);
    } else if (rc == 0 && pair->start_error[0]) {
        rc = session_start_error(pair, err);
    } else if (rc == 0 && pair->state != PAIR_STOPPED) {
        workload->rate_per_s = -1; // closed loop: the pairs themselves will show what is wrong
    }
    pair_free(&session->env, pair);
    return rc;
}

// One launch of the baseline alone; what fails is a note, not an end.
static int session_yardstick(struct session *session, struct session_workload *workload,
        const char *phase, struct pair_spec *spec, struct error *err)
{
    struct pair *pair = NULL;
    bool anchor = strcmp(phase, "anchor") == 0;
    session->phase =
            anchor ? "fp64 anchor of the parity rule" : "the baseline once more, for parity";
    session_display(session);
    int rc = session_alone(session, workload, phase, spec, &pair, err);
    if (rc == 0 && pair->state == PAIR_FAILED)
        rc = store_note(session->store, err, "warning", "workload '%s': %s failed: %s",
                workload->plan->name, anchor ? "the fp64 anchor" : "the repetition of the baseline",
                pair->reason);
    pair_free(&session->env, pair);
    return rc;
}

int session_parity(struct session *session, struct session_workload *workload, struct error *err)
{
    const struct plan_workload *plan = workload->plan;
    struct parity_launches wanted;
    if (session->plan->gate.parity == PLAN_PARITY_OFF || workload->broken || session_stop)
        return 0;
    int rc = parity_launches_wanted(session->store, workload->id, &wanted, err);
    if (rc == 0 && wanted.wants_anchor && (plan->model || plan->anchor)) {
        struct pair_spec spec = session_spec(session, workload, "anchor", 0);
        uint64_t steps = (uint64_t)wanted.anchor_steps;
        spec.seed = (uint64_t)wanted.anchor_seed;
        spec.steps = plan->steps < steps ? plan->steps : steps;
        spec.rate_per_s = 0;
        spec.dtype = "float64";
        rc = session_yardstick(session, workload, "anchor", &spec, err);
    }
    if (rc == 0 && wanted.wants_repeat && !session_stop) {
        struct pair_spec spec = session_spec(session, workload, "pilot", 0);
        spec.seed = (uint64_t)wanted.repeat_seed;
        spec.rate_per_s = 0;
        rc = session_yardstick(session, workload, "pilot", &spec, err);
    }
    return rc;
}
