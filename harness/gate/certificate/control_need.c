// SPDX-License-Identifier: Apache-2.0
// Which control pairs a run still has to make, once its cells are decided. An A/A run: until its
// interval lies within half the margin, and a side held longer was found. Any other run: when all
// its cells would pass, and no certificate of this host covers them. Copies those that do into the
// run.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/gate/certificate/calibration.h"
#include "harness/gate/certificate/certify.h"
#include "harness/gate/certificate/control.h"
#include "harness/gate/gate.h"

// A run that an older upgate began has a table pair that takes no control pair.
static bool control_storable(struct store *store)
{
    int64_t at = 0;
    store_get_int(store, &at, NULL,
            "SELECT instr(sql, '''control''') FROM main.sqlite_master WHERE name = 'pair'", "");
    return at > 0;
}

// The first look behind `count` pairs, or 0.
static int control_next_look(const struct plan_schedule *schedule, int count, int most)
{
    for (int k = 0; k < schedule->look_count; k++)
        if ((int)schedule->looks[k] > count)
            return (int)schedule->looks[k] <= most ? (int)schedule->looks[k] : 0;
    return 0;
}

static bool control_at_look(const struct plan_schedule *schedule, int count)
{
    for (int k = 0; k < schedule->look_count; k++)
        if ((int)schedule->looks[k] == count)
            return true;
    return false;
}

static bool control_all_pass(const struct run_facts *run)
{
    int gated = 0;
    for (int i = 0; i < run->workload_count; i++)
        for (int k = 0; k < run->workloads[i].cell_count; k++) {
            const struct cell *cell = &run->workloads[i].cells[k];
            if (cell->gating && cell->verdict != CELL_PASS)
                return false;
            gated += cell->gating;
        }
    return gated > 0;
}

static bool control_noted(struct store *store, const char *text)
{
    int64_t count = 0;
    store_get_int(store, &count, NULL, "SELECT count(*) FROM note WHERE text = ?", "s", text);
    return count > 0;
}

// Rows of the run and of the host's file, in this order; the caller frees. A file that cannot be
// read is said, once, and is none.
static int control_known(struct store *store, const struct run_facts *run, bool host_too,
        struct certificate **ret_all, int *ret_own, int *ret_count, struct error *err)
{
    struct certificate *all = NULL, *host = NULL;
    struct error local = {0};
    int own = 0, more = 0, rc = calibration_load(store, &all, &own, err);
    char *path = rc == 0 && host_too ? certificate_path() : NULL;
    int load = path ? certificate_load(path, run->host_key, &host, &more, &local) : -ENOENT;
    if (load != 0 && load != -ENOENT && !control_noted(store, local.text))
        rc = store_note(store, err, "warning", "%s", local.text);
    free(path);
    if (rc) {
        certificates_free(all, own);
        certificates_free(host, more);
        return rc;
    }
    all = xrealloc(all, (size_t)(own + more + 1) * sizeof *all);
    for (int i = 0; i < more; i++) {
        all[own + i] = host[i];
        snprintf(all[own + i].scope, sizeof all[own + i].scope, "host");
    }
    free(host); // what it points to is in `all` now
    *ret_all = all;
    *ret_own = own;
    *ret_count = own + more;
    return 0;
}

static bool control_has(const struct certificate *all, int count, const struct certificate *one)
{
    for (int i = 0; i < count; i++)
        if (strcmp(all[i].scope, "host") == 0 && all[i].metric == one->metric &&
                all[i].interleave == one->interleave && all[i].made_wall_ns == one->made_wall_ns &&
                strcmp(all[i].source_run, one->source_run) == 0)
            return true;
    return false;
}

// For each cell the certificate that covers it, else the nearest, into the run. *ret_covered: all
// are.
static int control_copy(struct store *store, const struct run_facts *run,
        const struct run_workload *workload, bool *ret_covered, struct error *err)
{
    struct certificate *all;
    // Once control pairs are made, what the host knows has been copied.
    bool host_too = !control_pairs_count(&workload->facts);
    int own, count, rc = control_known(store, run, host_too, &all, &own, &count, err);
    if (rc)
        return rc;
    *ret_covered = true;
    for (int i = 0; i < workload->cell_count && rc == 0; i++) {
        const struct cell *cell = &workload->cells[i];
        const struct certificate *nearest;
        if (!calibration_concerns(cell))
            continue;
        if (!calibration_find(run, workload, cell, all, count, &nearest, NULL))
            *ret_covered = false;
        if (nearest && nearest >= all + own && !control_has(all, own, nearest))
            rc = certify_insert(store, nearest, "host", err);
    }
    certificates_free(all, count);
    return rc;
}

// Do these control pairs certify every gated cell? *ret_usable: pairs that the cell with the fewest
// has.
static int control_certified(struct store *store, const struct run_facts *run,
        const struct run_workload *workload, int *ret_usable, bool *ret_certified,
        struct error *err)
{
    struct control_pairs pairs;
    int rc = control_pairs_load(store, &workload->facts, &pairs, err);
    if (rc)
        return rc;
    *ret_certified = true;
    *ret_usable = pairs.count;
    for (int i = 0; i < workload->cell_count; i++) {
        const struct cell *cell = &workload->cells[i];
        if (!cell->gating)
            continue;
        struct control_result result = control_of_cell(run, workload, &pairs, cell);
        *ret_certified = *ret_certified && result.state == CONTROL_CERTIFIED;
        *ret_usable = result.held_pairs < *ret_usable ? result.held_pairs : *ret_usable;
    }
    control_pairs_clear(&pairs);
    return 0;
}

static int control_held_need(struct store *store, const struct run_facts *run,
        const struct run_workload *workload, struct gate_control *control, struct error *err)
{
    const struct plan_schedule *schedule = &run->plan->schedule;
    const struct workload_facts *facts = &workload->facts;
    int first = (int)schedule->looks[0], count = control_pairs_count(facts), usable = count;
    bool certified = false;
    control->share = control_share(workload);
    control->frozen = facts->interleave == PLAN_INTERLEAVE_SLICES ||
            (facts->interleave == PLAN_INTERLEAVE_LAUNCHES && !facts->has_steps);
    control->need = (struct gate_need){"control", count, first};
    if (count < first)
        return 0;
    int rc = control_certified(store, run, workload, &usable, &certified, err);
    // At most one look more than the cells themselves took: they may have passed by a lucky
    // estimate, the control needs a narrow interval. Pairs without a metric are made up for, not
    // for ever.
    int last = (int)schedule->looks[schedule->look_count - 1];
    int most = control_next_look(schedule, facts->main_count, last);
    most = most ? most : last;
    int look = control_next_look(schedule, usable, most);
    bool done = !look || (certified && control_at_look(schedule, usable)) || count >= 2 * most;
    control->need.pairs_wanted = done ? 0 : count + look - usable;
    return rc;
}

// Main pairs that an A/A run still needs until equal sides are seen as equal, closely enough;
// false: it fails, or never will.
static bool control_aa_need(const struct run_facts *run, const struct run_workload *workload,
        struct gate_control *control)
{
    const struct plan_schedule *schedule = &run->plan->schedule;
    int count = workload->facts.main_count, wanted = 0;
    struct control_pairs none = {0};
    for (int i = 0; i < workload->cell_count; i++) {
        const struct cell *cell = &workload->cells[i];
        if (!cell->gating)
            continue;
        struct control_result result = control_of_cell(run, workload, &none, cell);
        double half = 0.5 * log1p(cell->margin);
        if (cell->verdict == CELL_FAIL || result.aa.lower > half || result.aa.upper < -half)
            return false;
        if (cell_pairs_had(&workload->facts, cell->metric, false) < count)
            continue; // more pairs of this workload alone have no more of it
        if (result.state == CONTROL_BIASED || result.state == CONTROL_INSENSITIVE ||
                !control_at_look(schedule, count))
            wanted = control_next_look(
                    schedule, count, (int)schedule->looks[schedule->look_count - 1]);
    }
    control->need = (struct gate_need){"main", count, wanted};
    return true;
}

static const struct run_workload *control_workload(const struct run_facts *run, int64_t workload_id)
{
    for (int i = 0; i < run->workload_count; i++)
        if (run->workloads[i].facts.id == workload_id)
            return &run->workloads[i];
    return NULL;
}

int gate_control_need(struct store *store, int64_t workload_id, struct gate_control *ret_control,
        struct error *err)
{
    struct run_facts run;
    int rc = run_facts_load(store, NULL, FACTS_CACHED, &run, err);
    if (rc)
        return rc;
    run_facts_judge(store, &run);
    const struct run_workload *workload = control_workload(&run, workload_id);
    struct gate_control control = {.need = {"control", 0, 0}};
    // One that others are only held against has nothing that a control could be of.
    bool wanted = workload && workload->health.state == HEALTH_OK && workload->facts.main_count &&
            cells_count_gated(&workload->facts, &run.gate);
    if (wanted && run.aa) {
        wanted = control_aa_need(&run, workload, &control) && !control.need.pairs_wanted;
    } else if (wanted) {
        bool covered = false;
        rc = control_copy(store, &run, workload, &covered, err);
        wanted = !covered && run.gate.calibrate == PLAN_CALIBRATE_AUTO && control_all_pass(&run);
    }
    if (rc == 0 && wanted && control_storable(store))
        rc = control_held_need(store, &run, workload, &control, err);
    run_facts_clear(&run);
    if (rc == 0)
        *ret_control = control;
    return rc;
}
