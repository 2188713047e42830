// SPDX-License-Identifier: Apache-2.0
// diff_analyse: for each workload the untraced difference (measure.c), both sides' trees
// (diff_side.c), their alignment, what is compared (units.c) and the contributions
// (contributions.c), and notes of what weakens all that. Reads the store.
#include "reports/analyse/diff/diff.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/fingerprint/fingerprint.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/memory/memory.h"
#include "reports/analyse/diff/thresholds.h"

static void diff_notes_traced(struct diff_job *job)
{
    const struct diff_workload *workload = job->workload;
    const double *ratio = workload->traced_ratio;
    if (!isfinite(ratio[0]) || !isfinite(ratio[1]) || job->untraced.launches)
        return;
    bool quiet = fmax(job->foreign[0], job->foreign[1]) < diff_traced_far;
    if (fmax(ratio[0], ratio[1]) > 1 + diff_traced_far && quiet)
        diff_note(job->notes,
                (struct diff_note){.kind = DIFF_NOTE_TRACED_SLOW,
                        .unit = job->untraced.unit,
                        .share = {ratio[0], ratio[1]}});
    double apart = fabs(log(job->units.scale[0] / job->units.scale[1]));
    if (apart > diff_traced_apart)
        diff_note(job->notes, (struct diff_note){.kind = DIFF_NOTE_TRACED_APART, .share = {apart}});
}

static void diff_notes_few(struct diff_job *job)
{
    const struct diff_workload *workload = job->workload;
    size_t few = 0;
    double most = 0;
    for (size_t i = 0; i < workload->contribution_count; i++) {
        const struct diff_contribution *contribution = &workload->contributions[i];
        few += contribution->few;
        most = contribution->few ? fmax(most, fabs(contribution->delta_ns)) : most;
    }
    if (few && job->units.pairs < DIFF_LAUNCHES)
        diff_note(job->notes,
                (struct diff_note){
                        .kind = DIFF_NOTE_FEW, .count = few, .of = job->units.pairs, .ns = {most}});
}

static void diff_notes(struct diff_job *job)
{
    const struct diff_workload *workload = job->workload;
    const struct diff_units *units = &job->units;
    const struct diff_untraced_once *first = &job->untraced.cold;
    diff_notes_traced(job);
    if (units->pairs == 1)
        diff_note(job->notes, (struct diff_note){.kind = DIFF_NOTE_ONE_PAIR});
    diff_notes_few(job);
    if (units->left_out)
        diff_note(job->notes,
                (struct diff_note){
                        .kind = DIFF_NOTE_COUPLES, .count = units->left_out, .of = units->count});
    if (workload->match_coverage < diff_coverage_low)
        diff_note(job->notes,
                (struct diff_note){.kind = DIFF_NOTE_MATCHED, .share = {workload->match_coverage}});
    for (int side = 0; side < 2; side++)
        if (workload->unaccounted[side] > diff_unaccounted_high)
            diff_note(job->notes,
                    (struct diff_note){.kind = DIFF_NOTE_UNKNOWN,
                            .side = side,
                            .share = {workload->unaccounted[side]}});
    if (diff_first_wanted(job))
        diff_note(job->notes,
                (struct diff_note){.kind = DIFF_NOTE_FIRST_STEP,
                        .ns = {first->of[0], first->of[1]},
                        .why = workload->first.why_not});
    if (!job->input->differences)
        diff_note(job->notes, (struct diff_note){.kind = DIFF_NOTE_NO_FINGERPRINT});
}

// What was found so far is taken back.
static int diff_unexplained(struct diff_job *job, enum diff_unexplained why)
{
    struct diff_workload *workload = job->workload;
    workload->unexplained = why;
    alignment_free(workload->alignment);
    workload->alignment = NULL;
    for (int side = 0; side < 2; side++) {
        cost_tree_free(workload->trees[side]);
        workload->trees[side] = NULL;
    }
    workload->contribution_count = workload->row_count = 0; // their names went with the trees
    workload->residual_ns = workload->slower_ns = workload->faster_ns = NAN;
    return 0;
}

static int diff_explain(struct diff_job *job, struct error *err)
{
    struct diff_workload *workload = job->workload;
    int rc = diff_load_sides(job, err);
    if (rc)
        return rc;
    if (job->pair_count == 0)
        return diff_unexplained(job, DIFF_UNEXPLAINED_NOT_TRACED);
    if (workload->launches[0] == 0 && job->one_sided)
        return diff_unexplained(job, DIFF_UNEXPLAINED_ONE_SIDED);
    if (workload->launches[0] == 0 || workload->trees[0]->window_count == 0 ||
            workload->trees[1]->window_count == 0)
        return diff_unexplained(job, DIFF_UNEXPLAINED_NO_STEPS);
    if (isnan(job->untraced.delta))
        return diff_unexplained(job, DIFF_UNEXPLAINED_NO_TIME);
    const struct cost_tree *const trees[2] = {workload->trees[0], workload->trees[1]};
    if (!diff_units_make(trees, &job->untraced, &job->units))
        return diff_unexplained(job, DIFF_UNEXPLAINED_NO_PAIR);
    for (int side = 0; side < 2; side++) {
        double of = job->untraced.launches ? job->units.pairs : job->units.total_steps[side];
        double traced = job->units.total_wall[side] / of;
        workload->traced_ratio[side] =
                traced / (1 - fmin(job->foreign[side], 0.99)) / job->untraced.step[side];
        workload->windows[side] = job->units.used[side];
    }
    workload->traced_pairs = job->units.pairs;
    const struct align_opts opts = {.ignore_names = job->input->opts->ignore_names};
    workload->alignment = align_trees(workload->trees[0], workload->trees[1], &opts);
    workload->match_coverage = workload->alignment->coverage;
    diff_contributions(job);
    if (workload->unaccounted[0] > diff_blind && workload->unaccounted[1] > diff_blind)
        return diff_unexplained(job, DIFF_UNEXPLAINED_BLIND);
    diff_collectives(job);
    diff_stragglers_judge(job);
    diff_late(job);
    diff_first(job);
    diff_cpu(job);
    rc = diff_slow(job, err);
    diff_typical(job);
    diff_notes(job);
    return rc;
}

static int diff_workload_make(struct diff_job *job, struct error *err)
{
    struct diff_workload *workload = job->workload;
    int rc = diff_measure(job->input, job->notes, &job->untraced, err);
    const struct diff_untraced *untraced = &job->untraced;
    workload->unit = untraced->unit;
    workload->step_a_ns = untraced->step[0];
    workload->step_b_ns = untraced->step[1];
    workload->delta_ns = untraced->delta;
    workload->delta_lo_ns = untraced->lo;
    workload->delta_hi_ns = untraced->hi;
    workload->cold_a_ns = untraced->cold.of[0];
    workload->cold_b_ns = untraced->cold.of[1];
    workload->cpu_a_ns = untraced->cpu.of[0];
    workload->cpu_b_ns = untraced->cpu.of[1];
    workload->traced_ratio[0] = workload->traced_ratio[1] = NAN;
    workload->match_coverage = workload->residual_ns = workload->slower_ns = workload->faster_ns =
            NAN;
    workload->unaccounted[0] = workload->unaccounted[1] = NAN;
    workload->couple = -1;
    workload->typical_ns[0] = workload->typical_ns[1] = NAN;
    workload->typical_median_ns[0] = workload->typical_median_ns[1] = NAN;
    if (rc == 0)
        rc = diff_explain(job, err);
    if (rc == 0)
        rc = diff_memory(job->input, &workload->memory, &workload->gpu_memory, err);
    struct diff_note *notes = arena_alloc(job->arena, job->notes->count + 1, sizeof *notes);
    memcpy(notes, job->notes->all, job->notes->count * sizeof *notes);
    workload->notes = notes;
    workload->note_count = job->notes->count;
    diff_units_clear(&job->units);
    return rc;
}

static json_t *diff_fingerprint(struct store *store, int side)
{
    char *text =
            store_get_text(store, "SELECT fingerprint FROM side WHERE id = ?", "i", (int64_t)side);
    json_t *document = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return document;
}

static json_t *diff_differences(struct store *store)
{
    json_t *a = diff_fingerprint(store, 0), *b = diff_fingerprint(store, 1), *differences = NULL;
    struct error none = {0};
    if (a && b && fingerprint_diff(a, b, &differences, NULL, &none) != 0)
        differences = NULL;
    json_decref(a);
    json_decref(b);
    return differences;
}

// Both sides, or a sentence that says what this store is.
static int diff_check(struct store *store, struct diff *diff, struct error *err)
{
    char *kind = store_get_text(store, "SELECT kind FROM run", "");
    bool recorded = kind && strcmp(kind, "record") == 0;
    free(kind);
    for (int side = 0; side < 2; side++) {
        char *name =
                store_get_text(store, "SELECT name FROM side WHERE id = ?", "i", (int64_t)side);
        diff->side_names[side] = name ? arena_copy(diff->arena, name) : NULL;
        free(name);
    }
    int failed = store_failed(store, err); // no kind, no side: or not read
    if (failed)
        return failed;
    if (recorded)
        return error_set(err, -ENODATA,
                "'%s' is a recording of one program: there is nothing to compare it with; "
                "`upgate stalls` "
                "reads it, `upgate ab` makes stores of two sides",
                store_path(store));
    if (!diff->side_names[0] || !diff->side_names[1])
        return error_set(err, -ENODATA,
                "'%s' has only one side, the %s: there is nothing to compare it with",
                store_path(store),
                diff->side_names[0]           ? "baseline"
                        : diff->side_names[1] ? "candidate"
                                              : "run did not get as far as its sides");
    int64_t launches[2] = {0};
    for (int side = 0; side < 2; side++) {
        int rc = store_get_int(store, &launches[side], err,
                "SELECT count(*) FROM launch WHERE side = ?", "i", (int64_t)side);
        if (rc)
            return rc;
    }
    if (launches[0] == 0 || launches[1] == 0)
        return error_set(err, -ENODATA, "'%s' has launches of %s only: there is nothing to compare",
                store_path(store),
                launches[0]           ? "the baseline"
                        : launches[1] ? "the candidate"
                                      : "neither side");
    return 0;
}

static int diff_workloads(struct store *store, const struct diff_opts *opts, struct diff *diff,
        int64_t **ret_ids, struct error *err)
{
    sqlite3_stmt *stmt =
            store_query(store, err, "SELECT id, name FROM workload ORDER BY id LIMIT 1000", "");
    if (!stmt)
        return err->code;
    int64_t *ids = arena_alloc(diff->arena, 1000, sizeof *ids);
    diff->workloads = arena_alloc(diff->arena, 1000, sizeof *diff->workloads);
    struct strbuf names = {0};
    int rc;
    while ((rc = store_step(store, stmt, err)) > 0 && diff->workload_count < 1000) {
        const char *name = (const char *)sqlite3_column_text(stmt, 1);
        name = name ? name : "";
        strbuf_add(&names, "%s'%s'", names.len ? ", " : "", name);
        if (opts->workload && strcmp(opts->workload, name) != 0)
            continue;
        ids[diff->workload_count] = sqlite3_column_int64(stmt, 0);
        diff->workloads[diff->workload_count++].name = arena_copy(diff->arena, name);
    }
    if (rc > 0)
        sqlite3_reset(stmt);
    if (rc >= 0 && diff->workload_count == 0)
        rc = opts->workload
                ? error_set(err, -ENOENT, "'%s' has no workload '%s'; it has %s", store_path(store),
                          opts->workload, names.text ? names.text : "none")
                : error_set(err, -ENODATA, "'%s' has no workload: nothing was run",
                          store_path(store));
    strbuf_free(&names);
    *ret_ids = ids;
    return rc < 0 ? rc : 0;
}

int diff_analyse(struct store *store, const struct diff_opts *opts, struct diff **ret_diff,
        struct error *err)
{
    struct diff *diff = xcalloc(1, sizeof *diff);
    int64_t *ids = NULL;
    struct error own = {0};
    struct error *to = err ? err : &own;
    diff->arena = arena_new();
    int rc = diff_check(store, diff, to);
    if (rc == 0)
        rc = diff_workloads(store, opts, diff, &ids, to);
    json_t *differences = rc == 0 ? diff_differences(store) : NULL;
    for (size_t i = 0; i < diff->workload_count && rc == 0; i++) {
        const struct diff_input input = {.store = store,
                .arena = diff->arena,
                .opts = opts,
                .workload = diff->workloads[i].name,
                .workload_id = ids[i],
                .differences = differences};
        struct diff_notes notes = {.arena = diff->arena};
        struct diff_job job = {.input = &input,
                .notes = &notes,
                .arena = diff->arena,
                .workload = &diff->workloads[i]};
        rc = diff_workload_make(&job, to);
    }
    json_decref(differences);
    rc = rc ? rc : store_failed(store, to);
    if (rc) {
        diff_free(diff);
        return rc;
    }
    *ret_diff = diff;
    return 0;
}

void diff_free(struct diff *diff)
{
    if (!diff)
        return;
    for (size_t i = 0; i < diff->workload_count; i++) {
        alignment_free(diff->workloads[i].alignment);
        cost_tree_free(diff->workloads[i].trees[0]);
        cost_tree_free(diff->workloads[i].trees[1]);
        cost_tree_free(diff->workloads[i].first.trees[0]);
        cost_tree_free(diff->workloads[i].first.trees[1]);
        cost_tree_free(diff->workloads[i].cpu.trees[0]);
        cost_tree_free(diff->workloads[i].cpu.trees[1]);
    }
    arena_free(diff->arena);
    free(diff);
}
