// SPDX-License-Identifier: Apache-2.0
// What a pair that is one node's part of a pair on several needs besides: no wait for other nodes
// lasts for ever. Reads the step files of the sides, asks the session what others say. Runs on the
// thread of the pair.
#include "harness/run/pair_internal.h"

#include "common/clock.h"
#include "common/strings.h"
#include "common/units.h"

// a look at what others say opens a file of a shared directory
enum { PAIR_NODES_LOOK_NS = 500000000 };

void pair_nodes_fail(
        struct pair_nodes *nodes, const struct pair_spec *spec, int side, const char *how)
{
    if (!nodes->failed[side] && spec->on_fail)
        spec->on_fail(spec->nodes_arg, side, how);
    nodes->failed[side] = true;
}

// No more steps of this side: they would not be an answer to what was asked. blamed: the side that
// hangs; -1: nobody is known to.
static void pair_nodes_end(struct pair_nodes *nodes, const struct pair_spec *spec,
        struct pair *pair, int side, int blamed, char *reason)
{
    if (pair->state == PAIR_VALID) {
        pair->lost = true;
        pair->lost_side = blamed;
    }
    if (pair->launches[side])
        launch_kill(pair->launches[side], LAUNCH_STOPPED);
    pair_nodes_fail(nodes, spec, side, reason);
    pair_fail(pair, reason);
}

// Must steps come now? Between its first turn and the last step that was asked for; what is left
// then may take its time.
static bool pair_nodes_must_move(
        const struct pair_nodes *nodes, const struct pair_spec *spec, const struct launch *launch)
{
    return nodes->turning ||
            (nodes->turned && plan_workload_says_steps(spec->workload) &&
                    samples_steps(launch) < (int64_t)spec->steps);
}

// Has a side moved since it was looked at last? Whose gate is closed need not.
static bool pair_nodes_moved(
        struct pair_nodes *nodes, const struct launch *launch, int side, int64_t now_ns)
{
    struct reader_slot slot;
    uint64_t moved = 0;
    for (uint32_t i = 0; i < reader_slot_count(launch->reader); i++)
        if (reader_slot(launch->reader, i, &slot) == 0)
            moved += slot.steps + slot.hold_count;
    bool has = moved != nodes->moved[side] || !nodes->moved_ns[side] || !launch->active_since_ns;
    if (has) {
        nodes->moved[side] = moved;
        nodes->moved_ns[side] = now_ns;
    }
    return has;
}

bool pair_nodes_patience(
        struct pair_nodes *nodes, const struct pair_spec *spec, struct pair *pair, int side)
{
    int64_t now = clock_monotonic_ns(), handover_ns = spec->plan->schedule.handover_ns;
    if (now - nodes->looked_ns > PAIR_NODES_LOOK_NS) {
        nodes->looked_ns = now;
        for (int i = 0; i < 2 && spec->on_look; i++) {
            const char *why = nodes->failed[i] ? NULL : spec->on_look(spec->nodes_arg, i);
            if (why)
                pair_nodes_end(nodes, spec, pair, i, -1, xstrdup(why));
        }
    }
    const struct launch *launch = pair->launches[side];
    char limit[32];
    if (launch->pid <= 0 || nodes->failed[side])
        return !nodes->failed[side];
    bool moved = pair_nodes_moved(nodes, launch, side, now),
         has_come = nodes->turned || nodes->moved[side] > 0;
    if (!has_come && spec->arrival_max_ns && launch_active_ns(launch) > spec->arrival_max_ns) {
        pair->timed_out = true;
        pair_nodes_end(nodes, spec, pair, side, side,
                xasprintf("side '%s' did not come to its first step within %s",
                        spec->plan->sides[side].name,
                        unit_format_ns(limit, sizeof limit, (double)spec->arrival_max_ns)));
    } else if (!moved && pair_nodes_must_move(nodes, spec, launch) &&
            now - nodes->moved_ns[side] > handover_ns) {
        pair->timed_out = true;
        pair_nodes_end(nodes, spec, pair, side, side,
                xasprintf("side '%s' made no step for more than %s (schedule.handover)",
                        spec->plan->sides[side].name,
                        unit_format_ns(limit, sizeof limit, (double)handover_ns)));
    }
    return !nodes->failed[side];
}
