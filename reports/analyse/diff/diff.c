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
#include "reports/analyse/diff/diff_side.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/memory/memory.h"
#include "reports/analyse/diff/thresholds.h"

static void diff_notes_traced(const struct diff_compared *compared, const double foreign[2],
        const double ratio[2], struct diff_notes *notes)
{
    const struct diff_untraced *untraced = compared->untraced;
    const struct diff_units *units = compared->units;
    if (!isfinite(ratio[0]) || !isfinite(ratio[1]) || untraced->launches)
        return;
    bool quiet = fmax(foreign[0], foreign[1]) < diff_traced_far;
    if (fmax(ratio[0], ratio[1]) > 1 + diff_traced_far && quiet)
        diff_note(notes,
                (struct diff_note){.kind = DIFF_NOTE_TRACED_SLOW,
                        .unit = untraced->unit,
                        .share = {ratio[0], ratio[1]}});
    double apart = fabs(log(units->scale[0] / units->scale[1]));
    if (apart > diff_traced_apart)
        diff_note(notes, (struct diff_note){.kind = DIFF_NOTE_TRACED_APART, .share = {apart}});
}

static void diff_notes_few(
        const struct diff_workload *workload, uint32_t pairs, struct diff_notes *notes)
{
    size_t few = 0;
    double most = 0;
    for (size_t i = 0; i < workload->contribution_count; i++) {
        const struct diff_contribution *contribution = &workload->contributions[i];
        few += contribution->few;
        most = contribution->few ? fmax(most, fabs(contribution->delta_ns)) : most;
    }
    if (few && pairs < DIFF_LAUNCHES)
        diff_note(notes,
                (struct diff_note){.kind = DIFF_NOTE_FEW, .count = few, .of = pairs, .ns = {most}});
}

static void diff_notes_last(const struct diff_compared *compared, const double foreign[2],
        const struct diff_workload *workload, struct diff_notes *notes)
{
    const struct diff_units *units = compared->units;
    const struct diff_untraced_once *first = &compared->untraced->cold;
    diff_notes_traced(compared, foreign, workload->traced_ratio, notes);
    if (units->pairs == 1)
        diff_note(notes, (struct diff_note){.kind = DIFF_NOTE_ONE_PAIR});
    diff_notes_few(workload, units->pairs, notes);
    if (units->left_out)
        diff_note(notes,
                (struct diff_note){
                        .kind = DIFF_NOTE_COUPLES, .count = units->left_out, .of = units->count});
    if (workload->match_coverage < diff_coverage_low)
        diff_note(notes,
                (struct diff_note){.kind = DIFF_NOTE_MATCHED, .share = {workload->match_coverage}});
    for (int side = 0; side < 2; side++)
        if (workload->unaccounted[side] > diff_unaccounted_high)
            diff_note(notes,
                    (struct diff_note){.kind = DIFF_NOTE_UNKNOWN,
                            .side = side,
                            .share = {workload->unaccounted[side]}});
    if (diff_first_wanted(compared->untraced))
        diff_note(notes,
                (struct diff_note){.kind = DIFF_NOTE_FIRST_STEP,
                        .ns = {first->of[0], first->of[1]},
                        .why = workload->first.why_not});
}

// What was found so far is taken back.
static int diff_unexplained(struct diff_workload *workload, enum diff_unexplained why)
{
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

static void diff_take_sides(const struct diff_sides *sides, struct diff_workload *workload)
{
    for (int side = 0; side < 2; side++) {
        workload->trees[side] = sides->trees[side];
        workload->first.trees[side] = sides->first_trees[side];
        workload->cpu.trees[side] = sides->cpu_trees[side];
        workload->launches[side] = sides->launches[side];
    }
    workload->stragglers = sides->stragglers.all;
    workload->straggler_count = sides->stragglers.count;
}

// Contributions, and the table of everything.
static void diff_contribute_steps(const struct diff_input *input,
        const struct diff_compared *compared, struct diff_notes *notes,
        struct diff_workload *workload)
{
    struct diff_contributed made;
    diff_contributions(input->differences, compared, &made);
    workload->contributions = made.contributions;
    workload->contribution_count = made.count;
    workload->slower_ns = made.slower_ns;
    workload->faster_ns = made.faster_ns;
    workload->residual_ns = made.residual_ns;
    memcpy(workload->parts, made.parts, sizeof made.parts);
    memcpy(workload->unaccounted, made.unaccounted, sizeof made.unaccounted);
    if (fabs(made.residual_ns) > contributions_residual * workload->step_a_ns)
        diff_note(notes,
                (struct diff_note){.kind = DIFF_NOTE_RESIDUAL,
                        .ns = {made.residual_ns},
                        .share = {fabs(made.residual_ns) / workload->step_a_ns}});
    workload->rows = diff_rows_make(compared, made.groups, &workload->row_count);
    diff_contributed_clear(&made);
}

static int diff_explain_compared(const struct diff_input *input,
        const struct diff_compared *compared, const struct diff_sides *sides,
        struct diff_notes *notes, struct diff_workload *workload, struct error *err)
{
    const struct diff_untraced *untraced = compared->untraced;
    const struct diff_units *units = compared->units;
    for (int side = 0; side < 2; side++) {
        double of = untraced->launches ? units->pairs : units->total_steps[side];
        double traced = units->total_wall[side] / of;
        workload->traced_ratio[side] =
                traced / (1 - fmin(sides->foreign[side], 0.99)) / untraced->step[side];
        workload->windows[side] = units->used[side];
    }
    workload->traced_pairs = units->pairs;
    workload->match_coverage = compared->alignment->coverage;
    diff_contribute_steps(input, compared, notes, workload);
    if (workload->unaccounted[0] > diff_blind && workload->unaccounted[1] > diff_blind)
        return diff_unexplained(workload, DIFF_UNEXPLAINED_BLIND);
    diff_collectives(input, compared, workload);
    diff_stragglers_judge(workload);
    diff_late(input->arena, workload);
    diff_first(input, untraced, sides->has_gpu, &workload->first);
    diff_cpu(input, untraced, sides->has_gpu, &workload->cpu);
    int rc = diff_slow(input, compared, &workload->slow, err);
    diff_typical(compared, sides->pairs, sides->pair_count, workload);
    diff_notes_last(compared, sides->foreign, workload, notes);
    if (!input->differences)
        diff_note(notes, (struct diff_note){.kind = DIFF_NOTE_NO_FINGERPRINT});
    return rc;
}

static int diff_explain(const struct diff_input *input, const struct diff_untraced *untraced,
        struct diff_notes *notes, struct diff_workload *workload, struct error *err)
{
    struct diff_sides sides;
    int rc = diff_load_sides(input, untraced, notes, &sides, err);
    diff_take_sides(&sides, workload);
    if (rc)
        return rc;
    if (sides.pair_count == 0)
        return diff_unexplained(workload, DIFF_UNEXPLAINED_NOT_TRACED);
    if (sides.launches[0] == 0 && sides.one_sided)
        return diff_unexplained(workload, DIFF_UNEXPLAINED_ONE_SIDED);
    if (sides.launches[0] == 0 || sides.trees[0]->window_count == 0 ||
            sides.trees[1]->window_count == 0)
        return diff_unexplained(workload, DIFF_UNEXPLAINED_NO_STEPS);
    if (isnan(untraced->delta))
        return diff_unexplained(workload, DIFF_UNEXPLAINED_NO_TIME);
    struct diff_units units;
    struct diff_compared compared = {.arena = input->arena,
            .subject = DIFF_SUBJECT_STEPS,
            .trees = {sides.trees[0], sides.trees[1]},
            .first = {sides.first[0], sides.first[1]},
            .untraced = untraced,
            .units = &units,
            .parallel = {sides.parallel[0], sides.parallel[1]},
            .has_gpu = sides.has_gpu,
            .places = diff_places_new(input->arena, sides.trees[0], sides.trees[1])};
    if (diff_units_make(compared.trees, untraced, &units)) {
        const struct align_opts opts = {.ignore_names = input->opts->ignore_names};
        compared.alignment = workload->alignment =
                align_trees(sides.trees[0], sides.trees[1], &opts);
        rc = diff_explain_compared(input, &compared, &sides, notes, workload, err);
    } else
        rc = diff_unexplained(workload, DIFF_UNEXPLAINED_NO_PAIR);
    diff_units_clear(&units);
    return rc;
}

static int diff_workload_make(
        const struct diff_input *input, struct diff_workload *workload, struct error *err)
{
    struct diff_notes notes = {.arena = input->arena};
    struct diff_untraced untraced;
    int rc = diff_measure(input, &notes, &untraced, err);
    workload->unit = untraced.unit;
    workload->step_a_ns = untraced.step[0];
    workload->step_b_ns = untraced.step[1];
    workload->delta_ns = untraced.delta;
    workload->delta_lo_ns = untraced.lo;
    workload->delta_hi_ns = untraced.hi;
    workload->cold_a_ns = untraced.cold.of[0];
    workload->cold_b_ns = untraced.cold.of[1];
    workload->cpu_a_ns = untraced.cpu.of[0];
    workload->cpu_b_ns = untraced.cpu.of[1];
    workload->traced_ratio[0] = workload->traced_ratio[1] = NAN;
    workload->match_coverage = workload->residual_ns = workload->slower_ns = workload->faster_ns =
            NAN;
    workload->unaccounted[0] = workload->unaccounted[1] = NAN;
    workload->couple = -1;
    workload->typical_ns[0] = workload->typical_ns[1] = NAN;
    workload->typical_median_ns[0] = workload->typical_median_ns[1] = NAN;
    if (rc == 0)
        rc = diff_explain(input, &untraced, &notes, workload, err);
    if (rc == 0)
        rc = diff_memory(input, &workload->memory, &workload->gpu_memory, err);
    struct diff_note *all = arena_alloc(input->arena, notes.count + 1, sizeof *all);
    memcpy(all, notes.all, notes.count * sizeof *all);
    workload->notes = all;
    workload->note_count = notes.count;
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
        rc = diff_workload_make(&input, &diff->workloads[i], to);
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
