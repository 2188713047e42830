// SPDX-License-Identifier: Apache-2.0
// Compares two recordings: each is cut into seconds, a row's cost a unit is its mean over them, and
// the difference is told by Welch's interval over the seconds of both. Seconds hang together a
// little, so the level is shared among all rows.
#include "reports/analyse/diff/recordings/recordings.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/events.h"
#include "common/containers/arena.h"
#include "common/containers/intern.h"
#include "common/containers/map.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/distribution.h"
#include "reports/analyse/mean_interval.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/analyse/trace/trace.h"

enum {
    RECORDINGS_SLICES_MAX = 600, // of a longer recording the first ten minutes count
    RECORDINGS_NOTES_MAX = 32,
};

static const int64_t recordings_slice_ns = 1000000000;

struct recordings_cost { // of one thing
    enum recordings_kind kind;
    const char *name, *where; // where: NULL
    double *ns[2];            // of each second of a side; ns[0] is one allocation with ns[1]
};

struct recordings_side {
    struct store *store;
    int64_t id, begin_ns, end_ns;
    int64_t recorded_ns; // with what --max-size deleted of it, before begin_ns
    double sample_hz;
};

struct recordings_job {
    struct recordings_diff *diff;
    struct recordings_side sides[2];
    double unit_slice[2];          // units of one second
    struct intern *names, *same;   // kind, name, where: as they are, and comparable
    struct trace_builds *builds;   // of both
    uint32_t *cost_of;             // by number of names
    struct recordings_cost *costs; // by number of same
    size_t name_count, cost_count;
};

static void recordings_note(struct recordings_job *job, struct recordings_note note)
{
    note.name = arena_copy_utf8(job->diff->arena, note.name);
    note.what = arena_copy_utf8(job->diff->arena, note.what);
    if (job->diff->note_count < RECORDINGS_NOTES_MAX)
        job->diff->notes[job->diff->note_count++] = note;
}

// What --max-size deleted goes with the counts of its seconds: before the first one that is left is
// no time in which nothing happened.
static int recordings_kept(struct recordings_job *job, int side, struct error *err)
{
    struct recordings_side *to = &job->sides[side];
    int64_t deleted = 0, oldest = 0;
    int rc = trace_was_trimmed(to->store, &deleted, err);
    if (rc == 0 && deleted)
        rc = store_get_int(to->store, &oldest, err,
                "SELECT coalesce(min(at_ns), 0) FROM counter WHERE recording_id = ?", "i", to->id);
    if (rc || oldest <= to->begin_ns || oldest > to->end_ns)
        return rc;
    recordings_note(job,
            (struct recordings_note){.kind = RECORDINGS_NOTE_DELETED,
                    .side = side,
                    .seconds = (double)(oldest - to->begin_ns) / 1e9});
    to->begin_ns = oldest;
    return 0;
}

static int recordings_open(
        struct recordings_job *job, int side, struct store *store, struct error *err)
{
    struct recordings_side *to = &job->sides[side];
    to->store = store;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT id, begin_ns, coalesce(end_ns, 0), sample_hz, end_ns IS NULL, launch_id IS NOT NULL FROM recording "
            "ORDER BY id LIMIT 1",
            "");
    int rc = stmt ? store_step(store, stmt, err) : err->code;
    if (rc < 0)
        return rc;
    if (rc == 0)
        return error_set(err, -ENODATA,
                "'%s' has no recording: `upgate record -o RUN.db --pid PID --duration 10s` makes one",
                store_path(store));
    to->id = sqlite3_column_int64(stmt, 0);
    to->begin_ns = sqlite3_column_int64(stmt, 1);
    to->end_ns = sqlite3_column_int64(stmt, 2);
    to->sample_hz = sqlite3_column_double(stmt, 3);
    bool ended = sqlite3_column_int(stmt, 4) == 0, of_launch = sqlite3_column_int(stmt, 5) != 0;
    sqlite3_reset(stmt);
    if (of_launch)
        return error_set(err, -ENODATA,
                "'%s' is a run of `upgate ab` and holds both sides: `upgate diff %s`, without another store, compares them; two "
                "stores are compared where both are recordings of `upgate record`",
                store_path(store), store_path(store));
    if (!ended) { // killed: it holds what was written until then
        int64_t last = to->begin_ns;
        rc = store_get_int(store, &last, err,
                "SELECT max(at_ns) FROM counter WHERE recording_id = ?", "i", to->id);
        if (rc && rc != -ENOENT)
            return rc;
        to->end_ns = last;
        recordings_note(
                job, (struct recordings_note){.kind = RECORDINGS_NOTE_CUT_OFF, .side = side});
    }
    if (to->begin_ns < 0 || to->end_ns < to->begin_ns)
        return error_set(err, -EBADMSG,
                "the recording in '%s' ends before it begins: the store is damaged",
                store_path(store));
    to->recorded_ns = to->end_ns - to->begin_ns;
    rc = recordings_kept(job, side, err);
    if (rc)
        return rc;
    int64_t slices = (to->end_ns - to->begin_ns) / recordings_slice_ns;
    job->diff->slices[side] =
            (int32_t)(slices < RECORDINGS_SLICES_MAX ? slices : RECORDINGS_SLICES_MAX);
    job->diff->window_ns[side] = to->end_ns - to->begin_ns;
    if (slices > RECORDINGS_SLICES_MAX)
        recordings_note(job,
                (struct recordings_note){.kind = RECORDINGS_NOTE_LONGER,
                        .side = side,
                        .seconds = RECORDINGS_SLICES_MAX});
    if (job->diff->slices[side] == 0)
        return error_set(err, -ENODATA,
                "the recording in '%s' is shorter than a second: nothing can be compared",
                store_path(store));
    return 0;
}

static double *recordings_seconds(const struct recordings_job *job) // of both sides
{
    return xcalloc((size_t)job->diff->slices[0] + (size_t)job->diff->slices[1], sizeof(double));
}

// A cost's number: one for what two versions call one function or kernel. It is told by the name
// that came first.
static uint32_t recordings_same(
        struct recordings_job *job, enum recordings_kind kind, const char *name, const char *where)
{
    char normal[NAMES_LENGTH_MAX] = "";
    if (kind != RECORDINGS_PYTHON && *name != '[' && !names_is_nameless(name))
        names_normalise(name, normal, sizeof normal);
    char *key = xasprintf("%c%s%c%s", 'a' + (int)kind, *normal ? normal : name, 1, where);
    uint32_t number = intern_text(job->same, key);
    free(key);
    if (number == job->cost_count) {
        double *ns = recordings_seconds(job);
        vector_push(job->costs, job->cost_count,
                ((struct recordings_cost){.kind = kind,
                        .name = arena_copy(job->diff->arena, name),
                        .where = *where ? arena_copy(job->diff->arena, where) : NULL,
                        .ns = {ns, ns + job->diff->slices[0]}}));
    }
    return number;
}

static uint32_t recordings_number(
        struct recordings_job *job, enum recordings_kind kind, const char *name, const char *where)
{
    char *key = xasprintf("%c%s%c%s", 'a' + (int)kind, name, 1, where);
    uint32_t number = intern_text(job->names, key);
    free(key);
    if (number == job->name_count) // each name is made comparable once
        vector_push(job->cost_of, job->name_count, recordings_same(job, kind, name, where));
    return job->cost_of[number];
}

// What a function without a name, the leaf of such a stack, is inside of; NULL: not known. *number:
// of that text, plus 1; MAP_NONE: not asked for yet.
static const char *recordings_inside(
        struct store *store, int64_t stack, struct intern *texts, uint32_t *number)
{
    if (*number == MAP_NONE) {
        char *inside = trace_leaf_inside(store, stack),
             *text = inside ? xasprintf("[inside %s]", inside) : NULL;
        *number = text ? intern_text(texts, text) + 1 : 0;
        free(text);
        free(inside);
    }
    return *number ? intern_get(texts, *number - 1) : NULL;
}

// Rows of (second, name, where, samples, the stack of a function without a name).
static int recordings_read(struct recordings_job *job, int side, enum recordings_kind kind,
        double scale, const char *sql, struct error *err)
{
    const struct recordings_side *from = &job->sides[side];
    struct map numbers = {0}; // by stack
    struct intern *texts = intern_new();
    sqlite3_stmt *stmt = store_query(from->store, err, sql, "ii", from->begin_ns, from->id);
    int rc;
    while ((rc = store_step(from->store, stmt, err)) > 0) {
        int64_t slice = sqlite3_column_int64(stmt, 0);
        const char *name = (const char *)sqlite3_column_text(stmt, 1),
                   *where = (const char *)sqlite3_column_text(stmt, 2);
        double amount = sqlite3_column_double(stmt, 3);
        int64_t nameless = sqlite3_column_int64(stmt, 4);
        if (slice < 0 || slice >= job->diff->slices[side] || !(amount >= 0) || !isfinite(amount))
            continue; // the rest of a second at the end
        if (nameless && names_is_nameless(name)) {
            const char *inside = recordings_inside(
                    from->store, nameless, texts, map_put(&numbers, (uint64_t)nameless));
            // In another build its address is another one's: as if it were gone, and a new one
            // there.
            name = inside ? inside : trace_builds_one(job->builds, where) ? name : "[unknown]";
        }
        char file[NAMES_LENGTH_MAX] = ""; // as both sides have it: another environment, another
                                          // version are not another function
        if (where)
            (kind == RECORDINGS_PYTHON ? names_place : names_library)(where, file, sizeof file);
        uint32_t number = recordings_number(job, kind, name && *name ? name : "[unknown]", file);
        job->costs[number].ns[side][slice] += amount * scale;
        if (kind == RECORDINGS_CPU)
            job->diff->samples[side] += (uint64_t)amount;
    }
    map_free(&numbers);
    intern_free(texts);
    return rc;
}

// ---- what ran on GPUs ----

struct gpu_works { // of a recording
    struct arena *arena;
    struct map of_id;   // -> number of the others
    const char **names; // of the arena
    uint32_t *costs;    // MAP_NONE: nothing of it has run yet
    size_t count, cost_count;
};

static void gpu_take_work(void *arg, const struct trace_work *work)
{
    struct gpu_works *works = arg;
    const char *name = work->kind == TRACE_WORK_KERNEL ? work->kernel
            : work->kind == TRACE_WORK_GRAPH           ? "CUDA graph"
                                                       : "copies and sets";
    *map_put(&works->of_id, (uint64_t)work->id) = (uint32_t)works->count;
    vector_push(works->names, works->count,
            arena_copy(works->arena, name && *name ? name : "[unknown]"));
    vector_push(works->costs, works->cost_count, MAP_NONE);
}

static int gpu_read_ops(
        struct recordings_job *job, int side, struct gpu_works *works, struct error *err)
{
    const struct recordings_side *from = &job->sides[side];
    sqlite3_stmt *stmt = store_query(from->store, err,
            "SELECT start_ns - ?, work_id, dur_ns + 0 FROM gpu_op", "i", from->begin_ns);
    int rc;
    while ((rc = store_step(from->store, stmt, err)) > 0) {
        int64_t at_ns = sqlite3_column_int64(stmt, 0), ns = sqlite3_column_int64(stmt, 2);
        uint32_t work = map_get(&works->of_id, (uint64_t)sqlite3_column_int64(stmt, 1));
        if (work == MAP_NONE || at_ns < 0 ||
                at_ns / recordings_slice_ns >= job->diff->slices[side] || ns < 0)
            continue; // another recording's, as above, or of a clock that was fitted a little early
        if (works->costs[work] == MAP_NONE)
            works->costs[work] = recordings_number(job, RECORDINGS_GPU, works->names[work], "");
        job->costs[works->costs[work]].ns[side][at_ns / recordings_slice_ns] += (double)ns;
    }
    return rc;
}

// Tens of millions of operations, of a few thousand works: what each work is called is asked once,
// and nothing is sorted.
static int recordings_read_gpu(struct recordings_job *job, int side, struct error *err)
{
    struct gpu_works works = {.arena = job->diff->arena};
    int rc = trace_works_read(
            job->sides[side].store, job->sides[side].id, gpu_take_work, &works, err);
    if (rc == 0 && works.count)
        rc = gpu_read_ops(job, side, &works, err);
    map_free(&works.of_id);
    free(works.names);
    free(works.costs);
    return rc;
}

static int recordings_read_side(struct recordings_job *job, int side, struct error *err)
{
    static const char samples[] =
            "SELECT (s.at_ns - ?1) / 1000000000 AS slice, f.name, f.module, count(*), CASE WHEN f.name LIKE '_%%+0x%%' THEN k.id END AS nameless"
            " FROM sample s JOIN thread t ON t.id = s.thread_id"
            " JOIN process p ON p.id = t.process_id LEFT JOIN stack k ON k.id = %s"
            " LEFT JOIN frame f ON f.id = json_extract(k.frames, '$[0]') WHERE p.recording_id = ?2 AND s.at_ns >= ?1 AND s.why & %d%s"
            " GROUP BY slice, f.name, f.module, nameless";
    const double hz = job->sides[side].sample_hz;
    int rc = 0;
    if (!(hz > 0))
        recordings_note(
                job, (struct recordings_note){.kind = RECORDINGS_NOTE_NO_SAMPLES, .side = side});
    for (int python = 0; hz > 0 && python < 2 && rc == 0; python++) {
        char *sql = xasprintf(samples,
                python ? "s.python_stack" : "coalesce(s.kernel_stack, s.user_stack)",
                UG_SAMPLE_TARGET, python ? " AND s.python_stack IS NOT NULL" : "");
        rc = recordings_read(
                job, side, python ? RECORDINGS_PYTHON : RECORDINGS_CPU, 1e9 / hz, sql, err);
        free(sql);
    }
    return rc ? rc : recordings_read_gpu(job, side, err);
}

static void recordings_mean(
        const double *ns, int32_t count, double units, double *ret_mean, double *ret_error2)
{
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < count; i++)
        sum += ns[i] / units;
    for (int32_t i = 0; i < count; i++)
        squares += (ns[i] / units - sum / count) * (ns[i] / units - sum / count);
    *ret_mean = sum / count;
    *ret_error2 = count > 1 ? squares / (count - 1) / count : NAN;
}

static void recordings_compare(const struct recordings_job *job, const struct recordings_cost *cost,
        double alpha, struct recordings_row *row)
{
    double mean[2], error2[2], degrees = 0;
    const int32_t *slices = job->diff->slices;
    for (int side = 0; side < 2; side++)
        recordings_mean(
                cost->ns[side], slices[side], job->unit_slice[side], &mean[side], &error2[side]);
    row->a_ns = mean[0];
    row->b_ns = mean[1];
    row->delta_ns = mean[1] - mean[0];
    row->lo_ns = row->hi_ns = NAN;
    double both = error2[0] + error2[1];
    if (slices[0] < RECORDINGS_SLICES_MIN || slices[1] < RECORDINGS_SLICES_MIN || !(both > 0))
        return;
    for (int side = 0; side < 2; side++)
        degrees += error2[side] * error2[side] / (slices[side] - 1);
    double half = distribution_t_quantile(1 - alpha / 2, both * both / degrees) * sqrt(both);
    row->lo_ns = row->delta_ns - half;
    row->hi_ns = row->delta_ns + half;
    row->told = row->lo_ns > 0 || row->hi_ns < 0;
}

static int recordings_order(const void *left, const void *right)
{
    const struct recordings_row *a = left, *b = right;
    if (a->told != b->told)
        return a->told ? -1 : 1;
    double x = fabs(a->delta_ns), y = fabs(b->delta_ns);
    if (x != y)
        return x > y ? -1 : 1;
    int names = strcmp(a->name, b->name);
    return names ? names : strcmp(a->where ? a->where : "", b->where ? b->where : "");
}

// ---- ranks ----
// The typical and the slowest rank of a recorded job, by the median of each one's steps. By how
// much the slowest takes longer is told by the steps that both made, second by second: what a step
// had more to do than another one is in both. Ranks that wait for each other in each step take as
// long, and are not told apart so: who of them comes late is the stall analysis's to say.

struct ranks_step {
    int64_t idx, begin_ns, dur_ns;
    int32_t rank;
};

struct ranks_one {
    struct recordings_rank told;
    const struct ranks_step *steps; // by idx
    size_t count;
};

// By rank and idx.
static int ranks_read(const struct recordings_job *job, int side, struct ranks_step **ret_steps,
        size_t *ret_count, struct error *err)
{
    const struct recordings_side *from = &job->sides[side];
    sqlite3_stmt *stmt = store_query(from->store, err,
            "SELECT rank, idx, begin_ns, dur_ns FROM recorded_step WHERE recording_id = ? AND rank BETWEEN 0 AND 2147483646 AND "
            "begin_ns >= ? AND begin_ns < ? AND dur_ns > 0 ORDER BY rank, idx",
            "iii", from->id, from->begin_ns,
            from->begin_ns + job->diff->slices[side] * recordings_slice_ns);
    int rc;
    while ((rc = store_step(from->store, stmt, err)) > 0)
        vector_push(*ret_steps, *ret_count,
                ((struct ranks_step){.rank = (int32_t)sqlite3_column_int64(stmt, 0),
                        .idx = sqlite3_column_int64(stmt, 1),
                        .begin_ns = sqlite3_column_int64(stmt, 2),
                        .dur_ns = sqlite3_column_int64(stmt, 3)}));
    return rc;
}

// Ranks with enough steps, by the median of them. The caller frees.
static struct ranks_one *ranks_group(
        const struct ranks_step *steps, size_t count, size_t *ret_count)
{
    struct ranks_one *list = NULL;
    double *ns = xcalloc(count + 1, sizeof *ns);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && steps[end].rank == steps[first].rank; end++)
            ns[end - first] = (double)steps[end].dur_ns;
        if (end - first < RECORDINGS_SLICES_MIN)
            continue;
        vector_push(list, *ret_count,
                ((struct ranks_one){.told = {.rank = steps[first].rank,
                                            .step_ns = quantile_median(ns, end - first)},
                        .steps = steps + first,
                        .count = end - first}));
    }
    free(ns);
    sort_in_place(list, *ret_count, x, y,
            x->told.step_ns != y->told.step_ns ? x->told.step_ns < y->told.step_ns
                                               : x->told.rank < y->told.rank);
    return list;
}

// Of each second of the typical rank, the mean of what the slowest took more in the steps that
// began there. Gives how many have one.
static size_t ranks_more(const struct recordings_job *job, int side,
        const struct ranks_one *typical, const struct ranks_one *slowest, double *ret_ns)
{
    int32_t slices = job->diff->slices[side];
    int64_t *counts = xcalloc((size_t)slices, sizeof *counts);
    size_t seconds = 0;
    for (size_t i = 0, k = 0; i < typical->count && k < slowest->count;) {
        const struct ranks_step *a = &typical->steps[i], *b = &slowest->steps[k];
        if (a->idx == b->idx) {
            int64_t second = (a->begin_ns - job->sides[side].begin_ns) / recordings_slice_ns;
            ret_ns[second] += (double)(b->dur_ns - a->dur_ns);
            counts[second]++;
        }
        i += a->idx <= b->idx;
        k += b->idx <= a->idx;
    }
    for (int32_t second = 0; second < slices; second++)
        if (counts[second])
            ret_ns[seconds++] = ret_ns[second] / (double)counts[second];
    free(counts);
    return seconds;
}

static void ranks_compare(const struct recordings_job *job, int side,
        const struct ranks_one *typical, const struct ranks_one *slowest,
        struct recordings_ranks *ranks)
{
    double *more = xcalloc((size_t)job->diff->slices[side], sizeof *more);
    size_t seconds = ranks_more(job, side, typical, slowest, more);
    // The slowest one is the worst of all others.
    struct interval of =
            mean_interval(more, (int)seconds, recordings_alpha / 2 / (double)(ranks->count - 1));
    ranks->more_ns = of.estimate;
    if (seconds >= RECORDINGS_SLICES_MIN && of.has_bounds && of.upper > of.lower) {
        ranks->lo_ns = of.lower;
        ranks->hi_ns = of.upper;
        ranks->told = ranks->lo_ns > 0;
    }
    free(more);
}

static int recordings_ranks(struct recordings_job *job, int side, struct error *err)
{
    struct recordings_ranks *ranks = &job->diff->ranks[side];
    struct ranks_step *steps = NULL;
    size_t step_count = 0, count = 0;
    int rc = ranks_read(job, side, &steps, &step_count, err);
    struct ranks_one *list = rc ? NULL : ranks_group(steps, step_count, &count);
    ranks->count = count;
    ranks->more_ns = ranks->lo_ns = ranks->hi_ns = NAN;
    if (count > 1) {
        const struct ranks_one *typical = &list[(count - 1) / 2], *slowest = &list[count - 1];
        ranks->typical = typical->told;
        ranks->slowest = slowest->told;
        ranks_compare(job, side, typical, slowest, ranks);
    }
    free(list);
    free(steps);
    return rc;
}

// The rank that comes latest, which is what the title of the cause leaves out.
static void recordings_late(struct recordings_diff *diff, int side, const struct stalls *stalls)
{
    struct recordings_ranks *ranks = &diff->ranks[side];
    for (size_t i = 0; i < stalls->count && !ranks->late; i++) {
        const struct stall *stall = &stalls->stalls[i];
        if (!stall->is_straggler)
            continue;
        ranks->late = true;
        ranks->late_rank = stall->rank;
        ranks->late_share =
                stalls->window_ns > 0 ? (double)stall->total_ns / (double)stalls->window_ns : NAN;
        ranks->late_deed = stall->deed;
        ranks->late_deed.cause = arena_copy(diff->arena, stall->deed.cause);
        ranks->late_deed.function = arena_copy(diff->arena, stall->deed.function);
    }
}

// ---- stalls ----

// Causes are not tested: a stall of a second is one event, and ten windows of it measure nothing.
static int recordings_stalls(struct recordings_job *job, struct error *err)
{
    struct stalls *sides[2] = {0};
    struct recordings_diff *diff = job->diff;
    int rc = 0;
    for (int side = 0; side < 2 && rc == 0; side++) {
        const struct stalls_opts opts = {.recording_id = job->sides[side].id};
        rc = stalls_analyse(job->sides[side].store, &opts, &sides[side], err);
        if (rc == 0)
            recordings_late(diff, side, sides[side]);
        for (size_t i = 0; rc == 0 && i < sides[side]->breach_count; i++)
            if (sides[side]->breaches[i].count > 0) // that it was cut off is said already
                recordings_note(job,
                        (struct recordings_note){.kind = RECORDINGS_NOTE_LOST,
                                .side = side,
                                .count = sides[side]->breaches[i].count,
                                .name = sides[side]->breaches[i].producer,
                                .what = sides[side]->breaches[i].kind});
        for (size_t i = 0; rc == 0 && i < sides[side]->count; i++) {
            const struct stall *stall = &sides[side]->stalls[i];
            struct recordings_row *row = NULL;
            for (size_t j = 0; j < diff->row_count; j++)
                if (diff->rows[j].kind == RECORDINGS_STALL &&
                        strcmp(diff->rows[j].cause, stall->cause) == 0)
                    row = &diff->rows[j];
            if (!row) {
                row = vector_add(diff->rows, diff->row_count);
                *row = (struct recordings_row){.kind = RECORDINGS_STALL,
                        .cause = arena_copy(diff->arena, stall->cause),
                        .name = arena_copy(diff->arena, stall->title),
                        .lo_ns = NAN,
                        .hi_ns = NAN,
                        .where = arena_copy(diff->arena, stall->culprit_function)};
            }
            *(side ? &row->b_ns : &row->a_ns) += (double)stall->total_ns / diff->units[side];
            row->delta_ns = row->b_ns - row->a_ns;
        }
    }
    for (int side = 0; side < 2; side++)
        stalls_free(sides[side]);
    return rc;
}

static bool recordings_any(const double *ns, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (ns[i] > 0)
            return true;
    return false;
}

// The rows of one kind, and their sum second by second. What was recorded of one side alone
// (without samples, without Python, a GPU that nobody looked at) is no difference.
static void recordings_rows(struct recordings_job *job, enum recordings_kind kind, size_t tested)
{
    static const char *const titles[RECORDINGS_KINDS] = {
            "CPU time", "CPU time in Python", "GPU time", "Stalls"};
    struct recordings_diff *diff = job->diff;
    double *seconds = recordings_seconds(job);
    struct recordings_cost sum = {.ns = {seconds, seconds + diff->slices[0]}};
    size_t first = diff->row_count;
    for (size_t i = 0; i < job->cost_count; i++) {
        const struct recordings_cost *cost = &job->costs[i];
        if (cost->kind != kind)
            continue;
        for (int side = 0; side < 2; side++)
            for (int32_t slice = 0; slice < diff->slices[side]; slice++)
                sum.ns[side][slice] += cost->ns[side][slice];
        struct recordings_row row = {.kind = kind, .name = cost->name, .where = cost->where};
        recordings_compare(job, cost, recordings_alpha / (double)tested, &row);
        vector_push(diff->rows, diff->row_count, row);
    }
    bool any[2] = {
            recordings_any(sum.ns[0], diff->slices[0]), recordings_any(sum.ns[1], diff->slices[1])};
    if (any[0] != any[1]) {
        diff->row_count = first;
        if (job->sides[any[0]].sample_hz > 0 || kind == RECORDINGS_GPU) // else it is said already
            recordings_note(job,
                    (struct recordings_note){.kind = RECORDINGS_NOTE_NOT_RECORDED,
                            .side = any[0],
                            .name = titles[kind]});
    }
    if (diff->row_count > first) {
        diff->totals[kind] = (struct recordings_row){.kind = kind, .name = titles[kind]};
        recordings_compare(job, &sum, recordings_alpha / (double)tested, &diff->totals[kind]);
    }
    double least = recordings_least * fmax(diff->totals[kind].a_ns, diff->totals[kind].b_ns);
    size_t kept = first;
    for (size_t i = first; i < diff->row_count; i++)
        if (fmax(diff->rows[i].a_ns, diff->rows[i].b_ns) >= least)
            diff->rows[kept++] = diff->rows[i];
    diff->row_count = kept;
    free(seconds);
}

static void recordings_units(struct recordings_job *job, const double requests[2])
{
    struct recordings_diff *diff = job->diff;
    bool known = requests && requests[0] > 0 && requests[1] > 0 && isfinite(requests[0]) &&
            isfinite(requests[1]);
    diff->unit = known ? "request" : "second";
    for (int side = 0; side < 2; side++) {
        double seconds = (double)diff->window_ns[side] / 1e9;
        diff->units[side] = known ? requests[side] * (double)diff->window_ns[side] /
                        (double)job->sides[side].recorded_ns
                                  : seconds;
        job->unit_slice[side] = diff->units[side] / seconds;
    }
    if (!known)
        recordings_note(job, (struct recordings_note){.kind = RECORDINGS_NOTE_NO_REQUESTS});
    if (diff->slices[0] < RECORDINGS_SLICES_MIN || diff->slices[1] < RECORDINGS_SLICES_MIN)
        recordings_note(job,
                (struct recordings_note){
                        .kind = RECORDINGS_NOTE_SHORT, .seconds = RECORDINGS_SLICES_MIN});
}

static int recordings_fill(struct recordings_job *job, struct store *const stores[2],
        const double requests[2], struct error *err)
{
    int rc = 0;
    for (int side = 0; side < 2 && rc == 0; side++)
        rc = recordings_open(job, side, stores[side], err);
    if (rc)
        return rc;
    recordings_units(job, requests);
    for (int side = 0; side < 2 && rc == 0; side++)
        rc = trace_builds_read(job->builds, stores[side], err);
    for (int side = 0; side < 2 && rc == 0; side++)
        rc = recordings_read_side(job, side, err);
    for (int side = 0; side < 2 && rc == 0; side++)
        rc = recordings_ranks(job, side, err);
    for (int kind = RECORDINGS_CPU; kind < RECORDINGS_STALL && rc == 0; kind++)
        recordings_rows(job, (enum recordings_kind)kind, job->cost_count + RECORDINGS_KINDS);
    if (rc == 0)
        rc = recordings_stalls(job, err);
    for (int side = 0; side < 2 && rc == 0; side++)
        rc = store_failed(stores[side], err);
    if (job->diff->row_count)
        qsort(job->diff->rows, job->diff->row_count, sizeof *job->diff->rows, recordings_order);
    return rc;
}

int recordings_diff(struct store *const stores[2], const double requests[2],
        struct recordings_diff **ret_diff, struct error *err)
{
    struct recordings_job job = {.diff = xcalloc(1, sizeof *job.diff),
            .names = intern_new(),
            .same = intern_new(),
            .builds = trace_builds_new()};
    struct error local = {0};
    job.diff->arena = arena_new();
    job.diff->notes = arena_alloc(job.diff->arena, RECORDINGS_NOTES_MAX, sizeof *job.diff->notes);
    int rc = recordings_fill(&job, stores, requests, &local);
    for (size_t i = 0; i < job.cost_count; i++)
        free(job.costs[i].ns[0]);
    free(job.costs);
    free(job.cost_of);
    intern_free(job.names);
    intern_free(job.same);
    trace_builds_free(job.builds);
    if (rc) {
        recordings_diff_free(job.diff);
        return error_set(err, rc, "%s", local.text);
    }
    *ret_diff = job.diff;
    return 0;
}

void recordings_diff_free(struct recordings_diff *diff)
{
    if (!diff)
        return;
    arena_free(diff->arena);
    free(diff->rows);
    free(diff);
}
