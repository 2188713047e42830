// SPDX-License-Identifier: Apache-2.0
// A pair of launches and its turns.
//
// interleave steps: both are started, each stops at its first step; then they take turns of a block
// of steps, the waiting one held at its step border and frozen. The first couple of blocks is one
// step each (the cold step), the second two (to learn how long a step is), from then on as many
// steps as make a block. interleave slices: both run, frozen in turn. launches: one after the
// other.
#include "harness/run/pair.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "common/units.h"
#include "contracts/skipped.h"
#include "harness/contain/host.h"
#include "harness/fingerprint/limits.h"
#include "harness/run/pair_internal.h"

enum {
    // Every rank stands at its gate: what still moves are helper threads, and they stop as soon as
    // they
    // are scheduled. A freeze takes 2 us on an idle machine, less than it takes to let the other
    // side go
    // on; where it takes longer, what they can do to the other side is less than waiting costs, and
    // measured.
    PAIR_HELD_PATIENCE_NS = -1,
    PAIR_SKIP_BYTES = 4096,              // of the output in which the reason is looked for
    PAIR_SLICE_PATIENCE_NS = 1000000000, // the work itself must stop before the other side begins
    PAIR_LOOK_NS = 100000000,            // between two looks at a side that does not arrive
    PAIR_LOOK_COUPLES = 16, // after these, whether the held side has stopped is looked at in
    // one turn of so many: a look and what follows are a quarter of a turn's cost
    PAIR_LOOK_SHARE = 4,
    PAIR_SLICES_TO_FINGERPRINT = 8, // of 20 ms: interpreters have loaded their libraries by then
    // an eighth of the ring: drain before steps and their phases can fill it
    PAIR_DRAIN_STEPS = 8192,
    // for the other ranks to come to their first step, once one stands there
    PAIR_RANKS_NS = 5000000000
};

struct pair_run {
    struct launch_env *env;
    const struct pair_spec *spec;
    struct pair *pair;
    struct host_reading before;
    uint64_t coin;
    uint64_t undrained[2];
    int64_t resident_peak_bytes[2]; // when what a side holds was read last
    int64_t couple;                 // that is going on
    bool no_room;                   // a rank found no room for its step records
    struct pair_nodes nodes;        // where it is a part of one on several nodes
};

uint64_t pair_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool pair_stopped(const struct pair_run *run)
{
    return run->spec->stop && *run->spec->stop;
}

static const char *pair_side_name(const struct pair_run *run, int side)
{
    return run->spec->plan->sides[side].name;
}

// What a workload says that cannot be run here: "skipped: REASON" as the start of its last such
// line, and the status for it. NULL: no such word, or it made steps.
static char *pair_skip_reason(const struct launch *launch)
{
    if (launch->exit_code != UG_SKIPPED_STATUS || reader_slot_count(launch->reader))
        return NULL;
    char *tail = launch_output_tail(launch, PAIR_SKIP_BYTES), *found = NULL;
    for (char *line = tail, *end; line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        if (end)
            *end = 0;
        if (strncmp(line, UG_SKIPPED_WORD, strlen(UG_SKIPPED_WORD)) == 0)
            found = line;
    }
    char *reason = found ? xstrdup(found) : NULL;
    free(tail);
    return reason;
}

static void pair_fail_launch(struct pair_run *run, int side)
{
    const struct launch *launch = run->pair->launches[side];
    const char *name = pair_side_name(run, side);
    char *skip = pair_skip_reason(launch);
    if (skip) { // no fault of being alive together: nothing else is to be tried
        run->pair->skipped = true;
        pair_fail(run->pair, xasprintf("%s (side '%s')", skip, name));
        free(skip);
        return;
    }
    uint32_t slots = reader_slot_count(launch->reader);
    char *how = NULL;
    if (launch->state == LAUNCH_TIMEOUT && slots && slots < run->spec->workload->ranks)
        how = xasprintf("reached the timeout: %u of its %llu ranks made step calls", slots,
                (unsigned long long)run->spec->workload->ranks);
    else if (launch->state == LAUNCH_TIMEOUT)
        how = xstrdup("reached the timeout");
    else if (launch->state == LAUNCH_OOM)
        how = xstrdup("was killed for want of memory");
    else if (launch->exit_signal > 0)
        how = xasprintf(
                "was ended by signal %d (%s)", launch->exit_signal, strsignal(launch->exit_signal));
    else
        how = xasprintf("exited with %d", launch->exit_code);
    const struct launch *other = run->pair->launches[!side];
    if (other && other->pid > 0 && !run->pair->lost)
        run->pair->failed_beside = true;
    if (run->spec->nodes)
        pair_nodes_fail(&run->nodes, run->spec, side, how);
    pair_fail(run->pair, xasprintf("side '%s' %s", name, how));
    free(how);
}

static void pair_drain(struct pair_run *run, int side)
{
    samples_drain(&run->pair->samples[side], run->pair->launches[side]->reader);
    run->undrained[side] = 0;
}

// What every waiting loop asks between two looks: false = give up this side (it was killed).
static bool pair_patience(struct pair_run *run, int side)
{
    struct launch *launch = run->pair->launches[side];
    if (run->spec->on_tick)
        run->spec->on_tick(run->spec->arg);
    if (run->spec->nodes && !pair_nodes_patience(&run->nodes, run->spec, run->pair, side))
        return false;
    if (pair_stopped(run)) {
        launch_kill(launch, LAUNCH_STOPPED);
        run->pair->state = PAIR_STOPPED;
        return false;
    }
    const struct samples *samples = &run->pair->samples[side];
    if (samples->step_count + samples->loss_count > SAMPLES_STEPS_MAX) {
        launch_kill(launch, LAUNCH_STOPPED);
        pair_fail(run->pair,
                xasprintf("side '%s' made more than %d steps in one launch; make fewer, or "
                          "mark larger ones",
                        pair_side_name(run, side), SAMPLES_STEPS_MAX));
        return false;
    }
    // Breakpoints of the other side may stand in its file still: what is no use need not run to its
    // end.
    if (native_calls_left(launch->calls) && launch->pid > 0) {
        launch_kill(launch, LAUNCH_STOPPED);
        pair_drain(run, side);
        pair_check_rules(run->spec, run->pair);
        if (!run->pair->rules_differ)
            pair_miss_steps(run->spec, run->pair, side);
        return false;
    }
    if (launch_active_ns(launch) > run->spec->plan->schedule.timeout_ns) {
        launch_kill(launch, LAUNCH_TIMEOUT);
        return false;
    }
    return true;
}

// Ranks that found no room for their records will never be held: no finding about the side, no
// reason to wait for the timeout.
static bool pair_no_room(struct pair_run *run, int side, uint32_t slots)
{
    struct launch *launch = run->pair->launches[side];
    if (reader_slot_count(launch->reader) >= slots || !reader_refused_count(launch->reader))
        return false;
    run->no_room = true;
    launch_kill(launch, LAUNCH_STOPPED);
    pair_fail(run->pair,
            xasprintf("no room in /dev/shm for the step records of side '%s'",
                    pair_side_name(run, side)));
    return true;
}

// Wait until every rank is held at the gate (true), or the launch has ended (false).
static bool pair_wait_held(struct pair_run *run, int side, uint32_t slots)
{
    struct launch *launch = run->pair->launches[side];
    for (;;) {
        int rc = reader_wait_held(launch->reader, slots, clock_monotonic_ns() + PAIR_LOOK_NS);
        if (rc == 0)
            return true;
        if (rc == -ESRCH) {
            // Every rank has ended. Its launcher may live a little longer, or start another
            // program, which must find an open gate: it would be held where the first one stopped,
            // and nobody waits for it there.
            reader_open_gate(launch->reader);
            while (!launch_wait(launch, clock_monotonic_ns() + PAIR_LOOK_NS)) {
                if (!pair_patience(run, side))
                    return false;
                pair_drain(run, side);
            }
            return false;
        }
        if (pair_no_room(run, side, slots) || pair_check_even(run->spec, run->pair, side) ||
                launch_ended(launch) || !pair_patience(run, side))
            return false;
        if (rc != -EINTR)
            pair_drain(run, side); // a workload whose gate stays open must not fill its ring
    }
}

// The positive control of a side that is not held longer by its step calls: it stands still for a
// share of what it has been active since it had `active_ns` behind it, and that counts as active.
// Left frozen.
static void pair_control(struct pair_run *run, int side, int64_t active_ns)
{
    struct launch *launch = run->pair->launches[side];
    if (!run->spec->control_ppm || !run->spec->control_frozen || side != 1)
        return;
    double more_ns = 1e-6 * run->spec->control_ppm * (double)(launch_active_ns(launch) - active_ns);
    launch_suspend(launch, PAIR_SLICE_PATIENCE_NS);
    int64_t from_ns = clock_monotonic_ns();
    clock_sleep_until_ns(from_ns + (int64_t)more_ns);
    int64_t slept_ns = clock_monotonic_ns() - from_ns;
    launch->active_ns += slept_ns;
    launch->control_ns += slept_ns;
    if (launch->pid <= 0)
        launch->ended_ns += slept_ns;
}

static bool pair_wait_end(struct pair_run *run, int side)
{
    struct launch *launch = run->pair->launches[side];
    bool ended = false;
    while (!ended) {
        int64_t active_ns = launch_active_ns(launch);
        ended = launch_wait(launch, clock_monotonic_ns() + PAIR_LOOK_NS);
        if (!ended && !pair_patience(run, side))
            return false;
        pair_control(run, side, active_ns);
        if (ended)
            break;
        launch_resume(launch);
        pair_drain(run, side);
    }
    return launch->state == LAUNCH_OK;
}

// May the second side come to life beside the first, which stands at its first step?
static bool pair_memory_allows(struct pair_run *run, int side)
{
    struct launch *other = run->pair->launches[!side];
    if (!other || run->spec->interleave == PLAN_INTERLEAVE_LAUNCHES)
        return true;
    if (!other->sample_count) // else looked at when it was stopped, a moment ago
        tree_sample_memory(other->tree);
    int64_t peak = tree_peak_memory_bytes(other->tree), free_bytes = host_memory_available_bytes();
    // a container has less than its host
    int64_t allowed = limits_memory_free_bytes("/proc/self", "/proc/self/mountinfo");
    free_bytes = allowed < free_bytes ? allowed : free_bytes;
    if (peak < 0 || free_bytes < 0 || free_bytes > peak + peak / 2)
        return true;
    char need[32], have[32];
    run->pair->failed_beside = true;
    pair_fail(run->pair,
            xasprintf("not enough memory for both sides at once: side '%s' took %s, %s are free",
                    pair_side_name(run, !side), unit_format_bytes(need, sizeof need, (double)peak),
                    unit_format_bytes(have, sizeof have, (double)free_bytes)));
    return false;
}

static int pair_start(struct pair_run *run, int side, struct error *err)
{
    const struct pair_spec *spec = run->spec;
    if (!pair_memory_allows(run, side))
        return 0;
    struct launch_spec launch_spec = {.side = &spec->plan->sides[side],
            .workload = spec->workload,
            .steps = spec->steps,
            .seed = spec->seed,
            .rate_per_s = spec->rate_per_s,
            .dtype = spec->dtype,
            .on_start = spec->on_start,
            .finds_steps = spec->finds_steps,
            .nodes = spec->nodes,
            .held_only = spec->nodes && spec->interleave == PLAN_INTERLEAVE_STEPS,
            .inject = spec->inject,
            .inject_kinds = spec->inject_kinds,
            .arg = spec->arg,
            .stop = spec->stop,
            .side_idx = side,
            .image_idx = spec->equal ? 0 : side,
            .control_ppm = side == 1 && !spec->control_frozen ? spec->control_ppm : 0};
    // Sides that are alive together have one window, and neither is foreign to the other in it.
    if (!run->before.at_ns || spec->interleave == PLAN_INTERLEAVE_LAUNCHES)
        host_read(&run->before);
    launch_spec.oom_kills = run->before.oom_kills;
    struct error local = {0};
    int rc = launch_start(run->env, &launch_spec, &run->pair->launches[side], &local);
    if (rc == -EINTR && pair_stopped(run)) {
        run->pair->state = PAIR_STOPPED;
        return 0;
    }
    if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == -EAGAIN || rc == -ENOSPC)
        return error_set(err, rc, "%s", local.text); // ours, not the side's
    if (rc) {
        run->pair->start_error[side] = xstrdup(local.text);
        pair_fail(run->pair, xstrdup(local.text));
    }
    return 0;
}

static void pair_finish_launch(struct pair_run *run, int side)
{
    struct pair *pair = run->pair;
    struct launch *launch = pair->launches[side];
    if (!launch)
        return;
    if (launch->pid > 0)
        launch_kill(launch, LAUNCH_STOPPED);
    pair_drain(run, side);
    if (samples_steps(launch) >= 0)
        pair->has_steps = true;
}

// By how much side b was held longer: of ranks, which wait for each other, the one that waited
// most.
static void pair_describe_control(const struct pair_run *run, json_t *covariates)
{
    const struct launch *launch = run->pair->launches[1];
    int64_t wait_ns = launch->control_ns, cpu_ns = 0;
    struct reader_slot slot;
    for (uint32_t i = 0; i < reader_slot_count(launch->reader); i++) {
        if (reader_slot(launch->reader, i, &slot))
            continue;
        wait_ns = (int64_t)slot.control_wait_ns > wait_ns ? (int64_t)slot.control_wait_ns : wait_ns;
        cpu_ns += (int64_t)slot.control_cpu_ns;
    }
    json_object_set_new(covariates, "control_ppm", json_integer(run->spec->control_ppm));
    json_object_set_new(covariates, "control_frozen", json_boolean(run->spec->control_frozen));
    json_object_set_new(covariates, "control_wait_ns", json_integer(wait_ns));
    json_object_set_new(covariates, "control_cpu_ns", json_integer(cpu_ns));
}

// What happened to the machine around a launch, once all that ran in the window have ended.
static void pair_describe(struct pair_run *run, int side, const struct host_reading *after)
{
    struct pair *pair = run->pair;
    const struct launch *launch = pair->launches[side], *other = pair->launches[!side];
    int64_t own = launch->cpu_ns, others = other ? other->cpu_ns : 0;
    if (own >= 0 && others > 0 && run->spec->interleave != PLAN_INTERLEAVE_LAUNCHES)
        own += others;
    pair->covariates[side] = host_covariates(&run->before, after, own);
    json_object_set_new(
            pair->covariates[side], "freezer", json_string(tree_means_name(run->env->means)));
    json_object_set_new(pair->covariates[side], "freeze_count", json_integer(launch->freeze_count));
    json_object_set_new(pair->covariates[side], "freeze_ns", json_integer(launch->freeze_ns));
    json_object_set_new(
            pair->covariates[side], "machine_read_ns", json_integer(launch->machine_read_ns));
    json_object_set_new(pair->covariates[side], "overlap_ns", json_integer(launch->overlap_ns));
    json_object_set_new(
            pair->covariates[side], "overlap_steal_ns", json_integer(launch->overlap_steal_ns));
    if (launch->held_only)
        json_object_set_new(
                pair->covariates[side], "held_cpu_ns", json_integer(launch->held_cpu_ns));
    if (side == 1 && run->spec->control_ppm)
        pair_describe_control(run, pair->covariates[side]);
}

// Whoever has not been finished yet: both, or the one whose turn of launches it was.
static void pair_finish(struct pair_run *run)
{
    struct host_reading after = {0};
    bool open[2];
    for (int side = 0; side < 2; side++) {
        open[side] = run->pair->launches[side] && !run->pair->covariates[side];
        if (open[side])
            pair_finish_launch(run, side);
    }
    if (open[0] || open[1])
        host_read(&after);
    for (int side = 0; side < 2; side++)
        if (open[side])
            pair_describe(run, side, &after);
}

// --- turns of steps ------------------------------------------------------------------------------

// When it arrived at the gate, by its own word, which must lie within its turn.
static int64_t pair_arrival_ns(const struct launch *launch, const struct reader_slot *slot)
{
    int64_t now = clock_monotonic_ns();
    return slot->hold_begin_ns >= (uint64_t)launch->started_ns &&
                    slot->hold_begin_ns <= (uint64_t)now
            ? (int64_t)slot->hold_begin_ns
            : now;
}

// Held after the first step: it has answered what was asked for before it said that it is held. The
// time since its arrival is ours, not its own.
static void pair_reports(struct pair_run *run, int side)
{
    struct launch *launch = run->pair->launches[side];
    struct reader_slot slot;
    if (reader_slot(launch->reader, 0, &slot) || !launch->active_since_ns)
        return;
    pair_drain(run, side);
    // The pid is what the side says: of another namespace, or of somebody whose environment is none
    // of our business.
    if (tree_holds(launch->tree, (pid_t)slot.pid))
        run->spec->on_held(run->spec->arg, side, (pid_t)slot.pid);
    launch->active_since_ns += clock_monotonic_ns() - pair_arrival_ns(launch, &slot);
}

// Which turns are looked at: spread, so that what a side does in every fourth block is not always
// met.
static bool pair_looks_at(int64_t couple)
{
    return ((uint32_t)couple * 2654435761u >> 16) % PAIR_LOOK_SHARE == 0;
}

// Readings of a side that is about to be thawed, or is left standing at the end: they complete its
// block before.
static void pair_read_machine(struct pair_run *run, int side)
{
    struct launch *launch = run->pair->launches[side];
    struct machine_turn turn;
    size_t before = run->pair->block_count + (size_t)side;
    int64_t now = clock_monotonic_ns();
    if (machine_begin(launch->machine, launch->reader, tree_cpu_ns(launch->tree), &turn) &&
            before >= 2)
        run->pair->blocks[before - 2].turn = turn;
    launch->machine_read_ns += clock_monotonic_ns() - now;
}

// What a recorded launch holds in memory. Only while it stands still: the kernel holds its mmap
// lock meanwhile. What cannot be read leaves the reading before.
static void pair_read_resident(struct pair_run *run, int side)
{
    struct resident resident;
    if (!run->spec->on_start || tree_resident(run->pair->launches[side]->tree, &resident) ||
            !resident.count)
        return;
    resident_clear(&run->pair->resident[side]);
    run->pair->resident[side] = resident;
    // what is held now is no more than the peak, however seldom it was looked at
    tree_sample_memory(run->pair->launches[side]->tree);
    run->resident_peak_bytes[side] = tree_peak_memory_bytes(run->pair->launches[side]->tree);
}

// Has it held more since it was read last, by 2 %? Less than the 5 % of a peak from which a
// difference is told.
static bool pair_holds_more(const struct pair_run *run, int side)
{
    struct tree *tree = run->pair->launches[side]->tree;
    int64_t read_bytes = run->resident_peak_bytes[side];
    if (!run->spec->on_start)
        return false;
    tree_sample_memory(tree);
    return tree_peak_memory_bytes(tree) > read_bytes + read_bytes / 50;
}

// One block of one side. *ret_block gets what can be said before the records are drained: the
// moment of the last rank's arrival stands in active_ns. False = the launch has ended.
static bool pair_turn(struct pair_run *run, int side, uint64_t steps, struct pair_block *ret_block)
{
    struct launch *launch = run->pair->launches[side];
    uint32_t slots = reader_slot_count(launch->reader);
    struct reader_slot slot;
    int64_t first = 0;
    for (uint32_t i = 0; i < slots; i++)
        if (reader_slot(launch->reader, i, &slot) == 0 && slot.steps > first)
            first = slot.steps;
    if (run->couple == 0 && run->spec->on_held)
        reader_request(launch->reader, UG_REQUEST_FINGERPRINT);
    pair_read_machine(run, side);
    int64_t resumed_ns = clock_monotonic_ns();
    run->nodes.moved_ns[side] = 0;
    reader_grant(launch->reader, (uint32_t)steps);
    launch_resume(launch);
    if (run->couple < PAIR_LOOK_COUPLES)
        launch_look(run->pair->launches[!side], 1);
    else if (pair_looks_at(run->couple))
        launch_look(run->pair->launches[!side], PAIR_LOOK_SHARE);
    if (!pair_wait_held(run, side, slots))
        return false;
    int64_t arrival = 0;
    for (uint32_t i = 0; i < reader_slot_count(launch->reader); i++)
        if (reader_slot(launch->reader, i, &slot) == 0 && pair_arrival_ns(launch, &slot) > arrival)
            arrival = pair_arrival_ns(launch, &slot);
    if (run->couple == 0 && run->spec->on_held)
        pair_reports(run, side);
    int64_t now = clock_monotonic_ns();
    machine_end(launch->machine, launch->reader, resumed_ns);
    launch->machine_read_ns += clock_monotonic_ns() - now;
    launch_suspend(launch, PAIR_HELD_PATIENCE_NS);
    run->undrained[side] += steps;
    if (run->undrained[side] > PAIR_DRAIN_STEPS || reader_is_filling(launch->reader))
        pair_drain(run, side);
    *ret_block = (struct pair_block){.couple = run->couple,
            .side = side,
            .first_step = first,
            .steps = (int64_t)steps,
            .active_ns = arrival,
            .turn = MACHINE_NOT_TOLD};
    return true;
}

// How many steps the launches will make. Where nobody knows: as long as both go on.
static uint64_t pair_steps_asked(const struct pair_run *run)
{
    return run->spec->steps_open && run->pair->samples[0].rule_count ? SAMPLES_STEPS_MAX
                                                                     : run->spec->steps;
}

static uint64_t pair_steps_left(const struct pair_run *run, int side)
{
    int64_t done = samples_steps(run->pair->launches[side]);
    uint64_t asked = pair_steps_asked(run);
    return done < 0 ? 0 : asked > (uint64_t)done ? asked - (uint64_t)done : 0;
}

// The rest of a side whose steps are over or whose partner is gone: no gate, to the end.
static void pair_run_out(struct pair_run *run, int side)
{
    struct launch *launch = run->pair->launches[side];
    if (launch->pid <= 0)
        return;
    run->nodes.moved_ns[side] = 0;
    reader_open_gate(launch->reader);
    launch_resume(launch);
    pair_wait_end(run, side);
}

static void pair_turns(struct pair_run *run)
{
    struct pair *pair = run->pair;
    bool going = true;
    run->nodes.turned = run->nodes.turning = true;
    // Each couple is a step at least on both sides; the processes' own count is not to be trusted.
    while (going && pair->state == PAIR_VALID && (uint64_t)run->couple <= pair_steps_asked(run)) {
        if (!pair_patience(run, 0) || !pair_patience(run, 1))
            break;
        uint64_t steps = pair_block_steps(run->spec, pair, run->couple);
        uint64_t left = fmin(pair_steps_left(run, 0), pair_steps_left(run, 1));
        // The arrival after the last step is the end of the process: no block ends there.
        if (left <= steps)
            break;
        struct pair_block blocks[2];
        int first = (int)(pair_random(&run->coin) >> 63);
        for (int i = 0; i < 2 && going; i++) {
            int side = i ? !first : first;
            // Where nobody knows the end: after couple 1, 2, 4, 8, …
            bool last = left <= 2 * steps ||
                    (left > run->spec->steps && !(run->couple & (run->couple - 1)));
            if (last)
                reader_request(pair->launches[side]->reader, UG_REQUEST_GPU_MEMORY);
            going = pair_turn(run, side, steps, &blocks[side]);
            blocks[side].ran_first = i == 0;
        }
        if (!going)
            break;
        vector_push(pair->blocks, pair->block_count, blocks[0]);
        vector_push(pair->blocks, pair->block_count, blocks[1]);
        if (run->couple == 1 && !pair->block_steps) {
            pair_drain(run, 0);
            pair_drain(run, 1);
            pair_learn_block(run->spec, pair);
        }
        run->couple++;
    }
    run->nodes.turning = false;
    for (int side = 0; side < 2 && going && pair->state == PAIR_VALID; side++) {
        if (!run->spec->nodes)
            // it was told to; now it must have
            tree_freeze(pair->launches[side]->tree, PAIR_SLICE_PATIENCE_NS);
        pair_read_machine(run, side);
        pair_read_resident(run, side);
    }
}

// A command that does not say how many ranks it starts: its processes do. Some of a job may have no
// steps.
static void pair_wait_ranks(struct pair_run *run, int side)
{
    struct launch *launch = run->pair->launches[side];
    int64_t deadline_ns = clock_monotonic_ns() + PAIR_RANKS_NS;
    while (clock_monotonic_ns() < deadline_ns && !launch_ended(launch)) {
        int rc = reader_wait_held(
                launch->reader, pair_told_ranks(launch), clock_monotonic_ns() + PAIR_LOOK_NS);
        if (rc == 0 || rc == -ESRCH || !pair_patience(run, side))
            return;
    }
}

// Wait for the first step of a side, which is then held and frozen.
static void pair_arrive(struct pair_run *run, int side)
{
    struct pair *pair = run->pair;
    if (pair_wait_held(run, side, (uint32_t)run->spec->workload->ranks)) {
        if (run->spec->finds_steps)
            pair_wait_ranks(run, side);
        pair->arrival_ns = launch_active_ns(pair->launches[side]) > pair->arrival_ns
                ? launch_active_ns(pair->launches[side])
                : pair->arrival_ns;
        launch_suspend(pair->launches[side], PAIR_SLICE_PATIENCE_NS);
    } else if (pair->state == PAIR_STOPPED || pair->missed_steps || pair->rules_differ ||
            pair_no_room(run, side, 1)) {
        return;
    } else if (pair->launches[side]->state != LAUNCH_OK) {
        pair_fail_launch(run, side);
    } else { // in good order: the caller chooses other turns
        pair_miss_steps(run->spec, run->pair, side);
    }
}

static int pair_run_steps(struct pair_run *run, struct error *err)
{
    struct pair *pair = run->pair;
    for (int i = 0; i < 2 && pair->state != PAIR_STOPPED && !pair->missed_steps &&
            !pair->rules_differ && !run->no_room;
            i++) {
        int side = i ? !run->spec->first_side : run->spec->first_side;
        int rc = pair_start(run, side, err);
        if (rc || !pair->launches[side])
            return rc;
        pair_arrive(run, side);
    }
    for (int side = 0; side < 2 && pair->state == PAIR_VALID; side++)
        pair_drain(run, side);
    if (pair->state == PAIR_VALID)
        pair_check_rules(run->spec, pair);
    if (pair->state == PAIR_VALID)
        pair_turns(run);
    // On several nodes the others are told at once: their ranks wait for those that are gone.
    for (int side = 0; side < 2 && run->spec->nodes && pair->state != PAIR_STOPPED; side++)
        if (pair->launches[side] && launch_ended(pair->launches[side]) &&
                pair->launches[side]->state != LAUNCH_OK)
            pair_fail_launch(run, side);
    // Also of a pair that has failed: whether the other side works decides what the failure means.
    for (int i = 0; i < 2 && pair->state != PAIR_STOPPED && !pair->rules_differ; i++) {
        int side = i ? !run->spec->first_side : run->spec->first_side;
        if (!pair->launches[side])
            continue;
        pair_run_out(run, side);
        if (pair->state != PAIR_STOPPED && pair->launches[side]->state != LAUNCH_OK)
            pair_fail_launch(run, side);
    }
    return 0;
}

// --- turns of slices -----------------------------------------------------------------------------

// Of a recorded launch: when it had its turn. What was seen of it outside of that is our doing.
static void pair_note_turn(
        struct pair_run *run, int side, bool ran_first, int64_t begin_ns, int64_t end_ns)
{
    if (run->spec->on_start)
        vector_push(run->pair->blocks, run->pair->block_count,
                (struct pair_block){.couple = run->couple / 2,
                        .side = side,
                        .ran_first = ran_first,
                        .first_step = -1,
                        .steps = -1,
                        .begin_ns = begin_ns,
                        .active_ns = end_ns - begin_ns,
                        .turn = MACHINE_NOT_TOLD,
                        .share = {-1, -1, -1}});
}

// One slice of a side that is alive. Alone, there is nobody to take turns with.
static void pair_slice(struct pair_run *run, int side)
{
    struct launch *launch = run->pair->launches[side];
    bool alone = run->pair->launches[!side]->pid <= 0;
    int64_t begin_ns = clock_monotonic_ns(), active_ns = launch_active_ns(launch);
    launch_resume(launch);
    int64_t slice = alone ? PAIR_LOOK_NS : run->spec->plan->schedule.block_ns;
    bool ended = launch_wait(launch, clock_monotonic_ns() + slice) || !pair_patience(run, side);
    pair_note_turn(run, side, run->couple % 2 == 0, begin_ns, clock_monotonic_ns());
    // Of a program without step calls nobody knows which slice is its last.
    bool more = !ended && pair_holds_more(run, side);
    if (!ended && (!alone || more))
        launch_suspend(launch, PAIR_SLICE_PATIENCE_NS);
    if (more)
        pair_read_resident(run, side);
    pair_control(run, side, active_ns);
    if (ended && run->pair->state != PAIR_STOPPED && launch->state != LAUNCH_OK)
        pair_fail_launch(run, side);
    pair_drain(run, side);
    // The moment for the fingerprint of a program without step calls: it has run for a while.
    if (run->couple / 2 == PAIR_SLICES_TO_FINGERPRINT && run->spec->on_held && launch->pid > 0)
        run->spec->on_held(run->spec->arg, side, launch->program);
}

static int pair_run_slices(struct pair_run *run, struct error *err)
{
    struct pair *pair = run->pair;
    int turn = run->spec->first_side;
    for (int i = 0; i < 2; i++) {
        int side = i ? !run->spec->first_side : run->spec->first_side;
        int rc = pair_start(run, side, err);
        if (rc || !pair->launches[side])
            return rc;
        reader_open_gate(pair->launches[side]->reader);
        launch_suspend(pair->launches[side], PAIR_SLICE_PATIENCE_NS);
    }
    while (pair->state != PAIR_STOPPED &&
            (pair->launches[0]->pid > 0 || pair->launches[1]->pid > 0)) {
        if (pair->launches[turn]->pid > 0)
            pair_slice(run, turn);
        // Couples in random order, as in turns of steps: after both had a slice, the coin decides.
        run->couple++;
        turn = run->couple % 2 ? !turn : (int)(pair_random(&run->coin) >> 63);
    }
    return 0;
}

// --- one after the other -------------------------------------------------------------------------

static int pair_run_launches(struct pair_run *run, struct error *err)
{
    struct pair *pair = run->pair;
    for (int i = 0; i < 2 && pair->state != PAIR_STOPPED; i++) {
        int side = i ? !run->spec->first_side : run->spec->first_side;
        if (!(run->spec->sides & 1 << side))
            continue;
        int rc = pair_start(run, side, err);
        if (rc || !pair->launches[side])
            return rc;
        struct launch *launch = pair->launches[side];
        uint32_t ranks = (uint32_t)run->spec->workload->ranks;
        // The first step is held here too: the same first step, and the moment for the fingerprint.
        if (run->spec->on_held) {
            if (pair_wait_held(run, side, ranks)) {
                reader_request(launch->reader, UG_REQUEST_FINGERPRINT);
                reader_grant(launch->reader, 1);
                if (pair_wait_held(run, side, ranks))
                    pair_reports(run, side);
            }
        }
        reader_open_gate(launch->reader);
        if (launch->pid > 0)
            pair_wait_end(run, side);
        if (pair->state != PAIR_STOPPED && launch->state != LAUNCH_OK)
            pair_fail_launch(run, side);
        pair_finish(run);
        pair_note_turn(run, side, i == 0, launch->started_ns, launch->ended_ns);
    }
    return 0;
}

int pair_run(struct launch_env *env, const struct pair_spec *spec, struct pair **ret_pair,
        struct error *err)
{
    struct pair *pair = xcalloc(1, sizeof *pair);
    struct pair_run run = {.env = env, .spec = spec, .pair = pair, .coin = spec->coin_seed};
    pair->block_steps = spec->block_steps;
    pair->lost_side = -1;
    pair->started_ns = clock_monotonic_ns();
    for (int side = 0; side < 2; side++)
        pair->samples[side].traced = spec->on_start != NULL;
    int rc = spec->interleave == PLAN_INTERLEAVE_STEPS   ? pair_run_steps(&run, err)
            : spec->interleave == PLAN_INTERLEAVE_SLICES ? pair_run_slices(&run, err)
                                                         : pair_run_launches(&run, err);
    pair_finish(&run);
    if (rc == 0 && run.no_room)
        rc = error_set(err, -ENOSPC,
                "%s; make it larger (docker: --shm-size), or end what fills it", pair->reason);
    if (rc == 0 && pair->state != PAIR_STOPPED)
        pair_check(spec, pair);
    if (pair->block_count && spec->interleave == PLAN_INTERLEAVE_STEPS) {
        if (spec->nodes)
            pair_skip_borders(pair);
        pair_close_blocks(pair);
        if (spec->workload->mode != PLAN_MODE_INFER || spec->rate_per_s <= 0)
            pair_learn_block(spec, pair);
    }
    pair->ended_ns = clock_monotonic_ns();
    if (rc) {
        pair_free(env, pair);
        return rc;
    }
    *ret_pair = pair;
    return 0;
}

void pair_free(struct launch_env *env, struct pair *pair)
{
    if (!pair)
        return;
    for (int side = 0; side < 2; side++) {
        launch_free(env, pair->launches[side]);
        samples_free(&pair->samples[side]);
        resident_clear(&pair->resident[side]);
        json_decref(pair->covariates[side]);
        free(pair->start_error[side]);
    }
    free(pair->blocks);
    free(pair->unseen);
    free(pair->reason);
    free(pair);
}
