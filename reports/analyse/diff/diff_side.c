// SPDX-License-Identifier: Apache-2.0
// Both sides' cost trees of a workload: its traced launches are loaded one after the other, put
// into their side's tree and freed, so that memory holds the events of one launch at a time. Notes
// what makes a trace doubtful. Reads the store.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/events.h"
#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/path/gpu_path.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/wordlists.h"
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

static void side_doubts(
        struct diff_job *job, size_t pair, int side, const struct launch_trace *trace)
{
    for (size_t i = 0; i < trace->doubt_count; i++)
        if (job->notes->count < SIDE_NOTES_MAX)
            diff_note(job->notes,
                    (struct diff_note){.kind = DIFF_NOTE_DOUBT,
                            .side = side,
                            .pair = pair,
                            .doubt = trace->doubts[i]});
        else
            job->doubts_left++;
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
static bool side_is_alone(struct diff_job *job, size_t pair, int a, int b)
{
    bool none_a = a == 0 && b == DIFF_TICKS_MIN, none_b = b == 0 && a == DIFF_TICKS_MIN;
    if (!none_a && !none_b)
        return false;
    diff_note(job->notes,
            (struct diff_note){.kind = DIFF_NOTE_NO_SAMPLES, .side = none_b, .pair = pair});
    job->one_sided++;
    return true;
}

// samples: of the baseline's launch, which comes first.
static int side_add(struct diff_job *job, size_t pair, int side, int *samples, struct error *err)
{
    struct launch_trace *trace = NULL;
    struct cost_tree *tree = job->workload->trees[side];
    int rc = launch_work_load(job->input->store, job->pairs[pair].launch[side], NULL, &trace, err);
    if (rc == -ENOENT) {
        diff_note(job->notes,
                (struct diff_note){.kind = DIFF_NOTE_LEFT_OUT, .pair = pair, .text = err->text});
        *err = (struct error){0};
        return 1;
    }
    if (rc)
        return rc;
    int own = side_samples(trace);
    if (side == 1 && side_is_alone(job, pair, *samples, own)) {
        launch_work_free(trace);
        return 1;
    }
    *samples = own;
    trace->pair = (uint32_t)pair;
    trace->side = side;
    struct host_path *host = host_path_new(trace, tree);
    launch_path_add(trace, host, tree);
    if (job->workload->first.trees[side])
        diff_first_add(trace, job->workload->first.trees[side]);
    if (job->workload->cpu.trees[side])
        diff_cpu_add(trace, job->workload->cpu.trees[side]);
    side_parallel(&job->parallel[side], trace);
    diff_stragglers_add(job, trace);
    job->has_gpu = job->has_gpu || trace->has_gpu;
    side_doubts(job, pair, side, trace);
    host_path_free(host);
    launch_work_free(trace);
    return 0;
}

static int side_pairs(struct diff_job *job, struct error *err)
{
    sqlite3_stmt *stmt = store_query(job->input->store, err,
            "SELECT a.id, b.id FROM pair p JOIN launch a ON a.pair_id = "
            "p.id AND a.side = 0 JOIN launch b ON b.pair_id = p.id AND "
            "b.side = 1 WHERE p.workload_id = ? AND p.phase = 'traced' "
            "AND p.state = 'valid' ORDER BY p.idx, a.id, b.id LIMIT 256",
            "i", job->input->workload_id);
    if (!stmt)
        return err->code;
    job->pairs = arena_alloc(job->arena, 257, sizeof *job->pairs);
    int rc;
    while ((rc = store_step(job->input->store, stmt, err)) > 0 && job->pair_count < 256)
        job->pairs[job->pair_count++] =
                (struct diff_pair){{sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1)}};
    if (rc > 0)
        sqlite3_reset(stmt);
    return rc < 0 ? rc : 0;
}

// What other programs, or the machine's owner, took from the target's threads.
static bool side_is_foreign(const struct cost_node *leaf)
{
    static const char *const causes[] = {
            "cpu_contention", "rt_hog", "softirq_storm", "steal", NULL};
    return leaf->kind == COST_STALL && words_equal(leaf->name, causes);
}

// Both sides lose it alike when they take turns, the untraced medians pass over such steps, and a
// busy machine would drown every other difference in it: it is taken out of the windows.
double diff_take_foreign(struct cost_tree *tree)
{
    double taken = 0, wall = 0;
    for (size_t w = 0; w < tree->window_count; w++)
        wall += (double)tree->windows[w].wall_ns;
    for (size_t r = 0; r < tree->row_count; r++) {
        struct cost_row *row = &tree->rows[r];
        if (!side_is_foreign(&tree->nodes[row->node]))
            continue;
        taken += (double)row->ns;
        tree->windows[row->window].wall_ns -= row->ns;
        row->ns = row->busy_ns = row->count = 0;
    }
    return wall > 0 ? taken / wall : 0;
}

int diff_load_sides(struct diff_job *job, struct error *err)
{
    struct diff_workload *workload = job->workload;
    int rc = side_pairs(job, err);
    if (rc || job->pair_count == 0)
        return rc;
    workload->trees[0] = cost_tree_new();
    workload->trees[1] = cost_tree_new();
    for (int side = 0; side < 2 && diff_first_wanted(job); side++)
        workload->first.trees[side] = cost_tree_new();
    for (int side = 0; side < 2 && diff_cpu_wanted(job); side++)
        workload->cpu.trees[side] = cost_tree_new();
    for (size_t pair = 0; pair < job->pair_count; pair++) {
        int samples = 0;
        for (int side = 0; side < 2 && rc == 0; side++)
            rc = side_add(job, pair, side, &samples, err);
        if (rc < 0)
            return rc;
        if (rc == 0 && workload->launches[0] == 0) {
            workload->launches[0] = job->pairs[pair].launch[0];
            workload->launches[1] = job->pairs[pair].launch[1];
        }
        rc = 0;
    }
    if (job->doubts_left)
        diff_note(job->notes,
                (struct diff_note){.kind = DIFF_NOTE_DOUBTS_LEFT, .count = job->doubts_left});
    double *foreign = job->foreign;
    for (int side = 0; side < 2; side++) {
        job->first[side] = cost_tree_finish(workload->trees[side]);
        foreign[side] = diff_take_foreign(workload->trees[side]);
    }
    if (fmax(foreign[0], foreign[1]) > side_foreign_told)
        diff_note(job->notes,
                (struct diff_note){.kind = DIFF_NOTE_FOREIGN, .share = {foreign[0], foreign[1]}});
    return 0;
}
