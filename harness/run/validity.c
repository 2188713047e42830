// SPDX-License-Identifier: Apache-2.0
// Validity rules of a pair. Reads covariates and counters of its two launches.
#include "harness/run/validity.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"

enum {
    VALIDITY_SUSPENDED_NS_MAX = 10000000, // a suspend lasts longer; clock slewing stays far below
    VALIDITY_OVERLAP_SHARE = 100, // a hundredth of its CPU time, half of what the gate looks for
    // from a twentieth on is told what a side did that was held, not frozen
    VALIDITY_HELD_SHARE = 20,
    // Foreign CPU use, or steal, that one launch met and the other did not, in launches mode: a
    // tenth of a CPU moves the 2 % that a gate looks for. In turns both sides share what comes, so
    // it does not void.
    VALIDITY_FOREIGN_PCT_MAX = 10,
    // /proc/stat counts in ticks of 10 ms: what begins and what ends may each be off by one.
    VALIDITY_TICKS_NS = 20000000
};

static int64_t validity_value(const json_t *covariates, const char *name)
{
    const json_t *value = json_object_get(covariates, name);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

// How much of a CPU the count may be off, in the shorter of the two windows.
static double validity_resolution_pct(const json_t *a, const json_t *b)
{
    int64_t window_a = validity_value(a, "window_ns"), window_b = validity_value(b, "window_ns");
    int64_t window = window_a < window_b ? window_a : window_b;
    return window > 0 ? 100.0 * VALIDITY_TICKS_NS / (double)window : 0;
}

// Of a CPU; -1 = not told.
static double validity_pct(const json_t *covariates, const char *name)
{
    int64_t ns = validity_value(covariates, name), window = validity_value(covariates, "window_ns");
    return ns < 0 || window <= 0 ? -1 : 100.0 * (double)ns / (double)window;
}

// What one launch met of it and the other did not, beyond the limit: the side that met more, else
// -1.
static int validity_one_sided(const struct pair *pair, const char *name, double ret_pct[2])
{
    const json_t *a = pair->covariates[0], *b = pair->covariates[1];
    double most = VALIDITY_FOREIGN_PCT_MAX + validity_resolution_pct(a, b);
    ret_pct[0] = validity_pct(a, name);
    ret_pct[1] = validity_pct(b, name);
    return ret_pct[0] < 0 || ret_pct[1] < 0 || fabs(ret_pct[0] - ret_pct[1]) <= most
            ? -1
            : ret_pct[1] > ret_pct[0];
}

static bool validity_overlaps(const struct launch *launch, int64_t overlap_ns)
{
    return launch->cpu_ns > 0 && overlap_ns * VALIDITY_OVERLAP_SHARE > launch->cpu_ns;
}

// What a side that is held and not frozen, on one of several nodes, did in the turns of the other.
// It may have had to, so that it is told, and counts.
static char *validity_held(const struct launch *launch, int side)
{
    if (!launch->held_only || launch->cpu_ns <= 0 ||
            launch->held_cpu_ns * VALIDITY_HELD_SHARE < launch->cpu_ns)
        return NULL;
    return xasprintf(
            "side %s used %.0f ms of %.0f ms of CPU time while it was held: helper threads of it took time from the other",
            side ? "b" : "a", (double)launch->held_cpu_ns / 1e6, (double)launch->cpu_ns / 1e6);
}

// A side that did not stand still in the turns of the other. Where the hypervisor takes a CPU away,
// who should stop on it cannot, and its CPU time may count what was taken: as much of it is no
// work. Nobody else ran on that CPU meanwhile, and what is taken comes in the turns of both sides
// alike.
static struct validity validity_overlap(const struct launch *launch, int side)
{
    int64_t steal_ns = launch->overlap_steal_ns, left_ns = launch->overlap_ns - steal_ns;
    if (validity_overlaps(launch, left_ns))
        return (struct validity){
                xasprintf(
                        "a side went on working in the turns of the other: %.0f ms of %.0f ms of CPU "
                        "time%s",
                        (double)left_ns / 1e6, (double)launch->cpu_ns / 1e6,
                        steal_ns > 0 ? ", without what the hypervisor took" : ""),
                side, NULL};
    if (!validity_overlaps(launch, launch->overlap_ns))
        return (struct validity){NULL, -1, NULL};
    return (struct validity){NULL, -1,
            xasprintf("the hypervisor took %.0f ms of the CPUs while side %s was told to stop; "
                      "both sides share what it takes, and the pair counts",
                    (double)steal_ns / 1e6, side ? "b" : "a")};
}

struct validity validity_check(const struct pair *pair, enum plan_interleave interleave)
{
    const json_t *a = pair->covariates[0], *b = pair->covariates[1];
    char *note = NULL;
    for (int side = 0; side < 2; side++) {
        if (!pair->launches[side])
            continue;
        uint64_t dropped = samples_dropped(pair->launches[side]);
        if (dropped)
            return (struct validity){xasprintf("%llu step records were lost: the ring was full",
                                             (unsigned long long)dropped),
                    side, note};
        if (validity_value(pair->covariates[side], "suspended_ns") > VALIDITY_SUSPENDED_NS_MAX)
            return (struct validity){xstrdup("the machine was suspended"), -1, note};
        struct validity overlap = validity_overlap(pair->launches[side], side);
        if (overlap.reason) {
            free(note);
            return overlap;
        }
        char *held = overlap.note ? overlap.note : validity_held(pair->launches[side], side);
        if (held) {
            free(note);
            note = held;
        }
    }
    int64_t throttle_a = validity_value(a, "throttle_events"),
            throttle_b = validity_value(b, "throttle_events");
    if (throttle_a >= 0 && throttle_b >= 0 && (throttle_a > 0) != (throttle_b > 0))
        return (struct validity){
                xstrdup("the processor throttled while one side ran, not the other"),
                throttle_b > 0, note};
    double pct[2];
    int side =
            interleave == PLAN_INTERLEAVE_LAUNCHES ? validity_one_sided(pair, "steal_ns", pct) : -1;
    if (side >= 0)
        return (struct validity){
                xasprintf(
                        "the hypervisor took %.0f %% of a CPU beside one side and %.0f %% beside the "
                        "other",
                        pct[0], pct[1]),
                side, note};
    side = interleave == PLAN_INTERLEAVE_LAUNCHES ? validity_one_sided(pair, "foreign_cpu_ns", pct)
                                                  : -1;
    if (side >= 0)
        return (struct validity){
                xasprintf("other processes used %.0f %% of a CPU beside one side and "
                          "%.0f %% beside the other",
                        pct[0], pct[1]),
                side, note};
    return (struct validity){NULL, -1, note};
}
