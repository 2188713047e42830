// SPDX-License-Identifier: Apache-2.0
// Both sides' cost trees of a workload: its traced launches are loaded one after the other, put
// into their side's tree and freed, so that memory holds the events of one launch at a time. Notes
// what makes a trace doubtful. Reads the store.
#include "reports/analyse/diff/diff_side.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/events.h"
#include "common/strings.h"
#include "reports/analyse/diff/path/gpu_path.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/stalls/launch_work.h"

enum {
    SIDE_BUSY_PARTS = 20,
    SIDE_NOTES_MAX = 24 // with those of traced launches: a launch of 8 ranks may have 20 doubts,
                        // and the answer's own notes come last
};

static uint32_t side_ticks(
        const struct trace *host, uint32_t thread, const struct launch_trace *trace)
{
    const struct trace_thread *of = &host->threads[thread];
    uint32_t ticks = 0;
    for (size_t w = 0; w < trace->window_count; w++) {
        const struct launch_window *window = &trace->windows[w];
        if (window->rank !=
                // ranks step together: the first one's windows stand for all
                trace->windows[0].rank)
            break;
        uint32_t end = of->sample_first + of->sample_count;
        for (uint32_t s = trace_sample_from(host, thread, window->begin);
                s < end && host->samples[s].at < window->end; s++)
            ticks++;
    }
    return ticks;
}

// How many threads of the target worked, and how many at a time: a step that lost its threads is
// slower in all it does.
static void side_parallel(struct diff_parallel *parallel, const struct launch_trace *trace)
{
    const struct trace *host = trace->host;
    if (!host || host->tick_ns <= 0 || trace->window_count == 0)
        return;
    uint32_t *ticks = xcalloc(host->thread_count + 1, sizeof *ticks), most = 0;
    double sum = 0, wall = 0, threads = 0;
    for (uint32_t t = 0; t < host->thread_count; t++) {
        ticks[t] = trace_is_target(host, t) ? side_ticks(host, t, trace) : 0;
        most = ticks[t] > most ? ticks[t] : most;
        sum += ticks[t];
    }
    for (uint32_t t = 0; t < host->thread_count; t++)
        threads += ticks[t] > 0 && (uint64_t)ticks[t] * SIDE_BUSY_PARTS >= most;
    for (size_t w = 0; w < trace->window_count && trace->windows[w].rank == trace->windows[0].rank;
            w++)
        wall += (double)(trace->windows[w].end - trace->windows[w].begin);
    free(ticks);
    if (wall <= 0)
        return;
    parallel->running =
            (parallel->running * parallel->launches + sum * (double)host->tick_ns / wall) /
            (parallel->launches + 1);
    parallel->threads =
            (parallel->threads * parallel->launches + threads) / (parallel->launches + 1);
    parallel->launches++;
}

// Returns how many are left: there are too many for notes.
static size_t side_doubts(
        struct diff_notes *notes, size_t pair, int side, const struct launch_trace *trace)
{
    size_t left = 0;
    for (size_t i = 0; i < trace->doubt_count; i++)
        if (notes->count < SIDE_NOTES_MAX)
            diff_note(notes,
                    (struct diff_note){.kind = DIFF_NOTE_DOUBT,
                            .side = side,
                            .pair = pair,
                            .doubt = trace->doubts[i]});
        else
            left++;
    return left;
}

// Samples of the target's own threads, up to DIFF_TICKS_MIN.
static int side_samples(const struct launch_trace *trace)
{
    const struct trace *host = trace->host;
    int count = 0;
    for (size_t i = 0; host && i < host->sample_count && count < DIFF_TICKS_MIN; i++)
        count += (host->samples[i].why & UG_SAMPLE_TARGET) != 0;
    return count;
}

// Of a launch without samples no function is known: all that the other side's runs would be new.
static bool side_is_alone(int a, int b)
{
    return (a == 0 && b == DIFF_TICKS_MIN) || (b == 0 && a == DIFF_TICKS_MIN);
}

struct side_loading {
    const struct diff_input *input;
    struct diff_notes *notes;
    struct diff_sides *to;
    size_t doubts_left; // about traced launches, that are no notes: there are too many
};

// samples: of the baseline's launch, which comes first. 1: the launch is left out.
static int side_add(
        struct side_loading *loading, size_t pair, int side, int *samples, struct error *err)
{
    struct launch_trace *trace = NULL;
    struct diff_sides *to = loading->to;
    struct diff_notes *notes = loading->notes;
    struct cost_tree *tree = to->trees[side];
    int rc = launch_work_load(
            loading->input->store, to->pairs[pair].launch[side], NULL, &trace, err);
    if (rc == -ENOENT) {
        diff_note(notes,
                (struct diff_note){.kind = DIFF_NOTE_LEFT_OUT, .pair = pair, .text = err->text});
        *err = (struct error){0};
        return 1;
    }
    if (rc)
        return rc;
    int own = side_samples(trace);
    if (side == 1 && side_is_alone(*samples, own)) {
        diff_note(notes,
                (struct diff_note){.kind = DIFF_NOTE_NO_SAMPLES, .side = own == 0, .pair = pair});
        to->one_sided++;
        launch_work_free(trace);
        return 1;
    }
    *samples = own;
    trace->pair = (uint32_t)pair;
    trace->side = side;
    struct host_path *host = host_path_new(trace, tree);
    launch_path_add(trace, host, tree);
    if (to->first_trees[side])
        diff_first_add(trace, to->first_trees[side]);
    if (to->cpu_trees[side])
        diff_cpu_add(trace, to->cpu_trees[side]);
    side_parallel(&to->parallel[side], trace);
    diff_stragglers_add(loading->input->arena, trace, tree, &to->stragglers);
    to->has_gpu = to->has_gpu || trace->has_gpu;
    loading->doubts_left += side_doubts(notes, pair, side, trace);
    host_path_free(host);
    launch_work_free(trace);
    return 0;
}

static int side_pairs(const struct diff_input *input, struct diff_sides *to, struct error *err)
{
    sqlite3_stmt *stmt = store_query(input->store, err,
            "SELECT a.id, b.id FROM pair p JOIN launch a ON a.pair_id = "
            "p.id AND a.side = 0 JOIN launch b ON b.pair_id = p.id AND "
            "b.side = 1 WHERE p.workload_id = ? AND p.phase = 'traced' "
            "AND p.state = 'valid' ORDER BY p.idx, a.id, b.id LIMIT 256",
            "i", input->workload_id);
    if (!stmt)
        return err->code;
    to->pairs = arena_alloc(input->arena, 257, sizeof *to->pairs);
    int rc;
    while ((rc = store_step(input->store, stmt, err)) > 0 && to->pair_count < 256)
        to->pairs[to->pair_count++] =
                (struct diff_pair){{sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1)}};
    if (rc > 0)
        sqlite3_reset(stmt);
    return rc < 0 ? rc : 0;
}

int diff_load_sides(const struct diff_input *input, const struct diff_untraced *untraced,
        struct diff_notes *notes, struct diff_sides *to, struct error *err)
{
    *to = (struct diff_sides){0};
    struct side_loading loading = {.input = input, .notes = notes, .to = to};
    int rc = side_pairs(input, to, err);
    if (rc || to->pair_count == 0)
        return rc;
    for (int side = 0; side < 2; side++) {
        to->trees[side] = cost_tree_new();
        to->first_trees[side] = diff_first_wanted(untraced) ? cost_tree_new() : NULL;
        to->cpu_trees[side] = diff_cpu_wanted(untraced) ? cost_tree_new() : NULL;
    }
    for (size_t pair = 0; pair < to->pair_count; pair++) {
        int samples = 0;
        for (int side = 0; side < 2 && rc == 0; side++)
            rc = side_add(&loading, pair, side, &samples, err);
        if (rc < 0)
            return rc;
        if (rc == 0 && to->launches[0] == 0) {
            to->launches[0] = to->pairs[pair].launch[0];
            to->launches[1] = to->pairs[pair].launch[1];
        }
        rc = 0;
    }
    if (loading.doubts_left)
        diff_note(notes,
                (struct diff_note){.kind = DIFF_NOTE_DOUBTS_LEFT, .count = loading.doubts_left});
    double *foreign = to->foreign;
    for (int side = 0; side < 2; side++) {
        to->first[side] = cost_tree_finish(to->trees[side]);
        foreign[side] = diff_take_foreign(to->trees[side]);
    }
    if (fmax(foreign[0], foreign[1]) > side_foreign_told)
        diff_note(notes,
                (struct diff_note){.kind = DIFF_NOTE_FOREIGN, .share = {foreign[0], foreign[1]}});
    return 0;
}
