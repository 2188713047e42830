// SPDX-License-Identifier: Apache-2.0
// Where the memory is, of a workload whose peak_memory differs: what the traced launches held, by
// kind and file, side against side. Libraries are the same by their names without versions. The
// same of its peak_gpu_memory, by what the framework's allocator tells and who allocated
// (gpu_memory.c). Reads the store.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "contracts/metrics.h"
#include "reports/analyse/diff/estimate/estimate.h"
#include "reports/analyse/diff/memory/memory.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

enum {
    MEMORY_LAUNCHES_MAX = 64, // the first ones; a launch has some 106 rows at most
    MEMORY_ROWS_MAX = 8192
};

static const char *const memory_words[DIFF_MEMORY_KIND_COUNT] = {
        [DIFF_MEMORY_FILE] = "file",
        [DIFF_MEMORY_HEAP] = "heap",
        [DIFF_MEMORY_ANONYMOUS] = "anonymous",
        [DIFF_MEMORY_STACK] = "stack",
        [DIFF_MEMORY_SHARED] = "shared",
        [DIFF_MEMORY_OTHER] = "other",
        [DIFF_MEMORY_TENSORS] = "tensors",
        [DIFF_MEMORY_RESERVE] = "reserve",
        [DIFF_MEMORY_ALLOCATOR] = "allocator",
        [DIFF_MEMORY_DIRECT] = "direct",
};

struct memory_launch {
    int64_t id;
    int side;
    double peak;
};
struct memory_row {
    size_t launch, part;
    double bytes, anonymous;
};
struct memory_job {
    const struct diff_input *input;
    struct diff_memory *memory;
    struct memory_launch *launches;
    size_t launch_count;
    struct memory_row *rows;
    size_t row_count;
    struct diff_memory_part *parts;
    size_t part_count;
};

const char *diff_memory_word(enum diff_memory_kind kind)
{
    return memory_words[kind];
}

static enum diff_memory_kind memory_kind(const char *word)
{
    for (int kind = 0; kind < DIFF_MEMORY_KIND_COUNT; kind++)
        if (strcmp(memory_words[kind], word) == 0)
            return (enum diff_memory_kind)kind;
    return DIFF_MEMORY_OTHER;
}

// --- the same file on both sides -----------------------------------------------------------------

const char *diff_memory_key(struct arena *arena, const char *name)
{
    char library[NAMES_LENGTH_MAX];
    names_library(name, library, sizeof library);
    return arena_copy(arena, library);
}

// --- out of the store ----------------------------------------------------------------------------

// False: the cell says nothing that had to be explained.
static bool memory_wanted(
        struct diff_memory *memory, const struct diff_cell *cells, enum metric_id metric)
{
    const struct diff_cell *cell = &cells[metric];
    memory->failed = cell->fails;
    for (int i = 0; i < METRIC_COUNT; i++)
        memory->time_failed |=
                cells[i].gates && cells[i].fails && strcmp(cells[i].unit, cell->unit) != 0;
    memory->peak_a_bytes = cell->a;
    memory->peak_b_bytes = cell->a * cell->ratio;
    bool open = memory->gpu && cell->inconclusive, told = open || cell->lo > 1 || cell->hi < 1;
    bool differs =
            told && fabs(cell->ratio - 1) > (memory->gpu ? memory_gpu_differs_min : cell->margin);
    return cell->a > 0 && cell->a < INFINITY && cell->ratio > 0 && cell->ratio < INFINITY &&
            (memory->failed || differs);
}

// False: there are enough.
static bool memory_launch(struct memory_job *job, int64_t id, int side, double peak)
{
    if (job->launch_count && job->launches[job->launch_count - 1].id == id)
        return true;
    if (job->launch_count == MEMORY_LAUNCHES_MAX)
        return false;
    vector_push(job->launches, job->launch_count, (struct memory_launch){id, side, peak});
    return true;
}

static size_t memory_part(struct memory_job *job, enum diff_memory_kind kind, const char *name)
{
    for (size_t i = 0; i < job->part_count; i++)
        if (job->parts[i].kind == kind && strcmp(job->parts[i].name, name) == 0)
            return i;
    vector_push(job->parts, job->part_count, (struct diff_memory_part){.kind = kind, .name = name});
    return job->part_count - 1;
}

static void memory_take(struct memory_job *job, sqlite3_stmt *stmt)
{
    struct arena *arena = job->input->arena;
    int side = sqlite3_column_int(stmt, 1) == 1;
    const char *kind_word = (const char *)sqlite3_column_text(stmt, 3),
               *name = (const char *)sqlite3_column_text(stmt, 4);
    enum diff_memory_kind kind = memory_kind(kind_word ? kind_word : "");
    name = name ? name : "";
    if (!memory_launch(job, sqlite3_column_int64(stmt, 0), side, store_double(stmt, 2)))
        return;
    size_t idx = memory_part(job, kind, *name ? diff_memory_key(arena, name) : "");
    struct diff_memory_part *part = &job->parts[idx];
    const char **whole = side ? &part->name_b : &part->name_a; // the largest one comes first
    *whole = *whole ? *whole : arena_copy(arena, name);
    vector_push(job->rows, job->row_count,
            (struct memory_row){
                    job->launch_count - 1, idx, store_double(stmt, 5), store_double(stmt, 6)});
}

static int memory_load(struct memory_job *job, struct error *err)
{
    struct store *store = job->input->store;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT l.id, l.side, l.peak_memory_bytes, m.kind, m.name, m.resident_bytes, m.anonymous_bytes "
            "FROM pair p JOIN launch l ON l.pair_id = p.id JOIN launch_memory m ON m.launch_id = l.id "
            "WHERE p.workload_id = ? AND p.phase = 'traced' AND p.state = 'valid' "
            "ORDER BY l.id, m.resident_bytes DESC, m.kind, m.name LIMIT ?",
            "ii", job->input->workload_id, (int64_t)MEMORY_ROWS_MAX);
    int rc;
    while ((rc = store_step(store, stmt, err)) > 0)
        if (sqlite3_column_double(stmt, 5) >= 0 && sqlite3_column_double(stmt, 6) >= 0)
            memory_take(job, stmt);
    return rc;
}

static void memory_give(struct memory_job *job, enum diff_memory_kind kind, double bytes)
{
    size_t idx = memory_part(job, kind, "");
    job->parts[idx].name_a = job->parts[idx].name_b = "";
    vector_push(
            job->rows, job->row_count, (struct memory_row){job->launch_count - 1, idx, bytes, 0});
}

// What the allocator tells is that of its process with the most, as is what was allocated: past it
// is what is left.
static int memory_load_gpu(struct memory_job *job, struct error *err)
{
    struct diff_gpu_launch *launches = NULL;
    size_t count = 0;
    bool tensors = true, held = true;
    double least = memory_share_min * fabs(job->memory->peak_b_bytes - job->memory->peak_a_bytes);
    int rc = diff_gpu_memory(job->input, job->memory, least, &launches, &count, err);
    for (size_t i = 0; i < count; i++) {
        tensors &= !isnan(launches[i].tensors);
        held &= !isnan(launches[i].held);
    }
    for (size_t i = 0; i < count && rc == 0; i++) {
        const struct diff_gpu_launch *launch = &launches[i];
        if (!memory_launch(job, launch->id, launch->side, launch->reserved))
            break;
        if (tensors)
            memory_give(job, DIFF_MEMORY_TENSORS, launch->tensors);
        memory_give(job, tensors ? DIFF_MEMORY_RESERVE : DIFF_MEMORY_ALLOCATOR,
                launch->reserved - (tensors ? launch->tensors : 0));
        if (held)
            memory_give(job, DIFF_MEMORY_DIRECT, fmax(launch->held - launch->reserved, 0));
    }
    free(launches);
    return rc;
}

// --- what differs --------------------------------------------------------------------------------

static void memory_launches(struct memory_job *job)
{
    struct diff_memory *memory = job->memory;
    for (size_t i = 0; i < job->launch_count; i++) {
        int side = job->launches[i].side;
        memory->launches[side]++;
        memory->peak[side] += job->launches[i].peak;
    }
    for (size_t i = 0; i < job->row_count; i++)
        memory->held[job->launches[job->rows[i].launch].side] += job->rows[i].bytes;
    for (int side = 0; side < 2; side++) {
        memory->peak[side] /= (double)memory->launches[side];
        memory->held[side] /= (double)memory->launches[side];
    }
}

// Sums of the launches into means; and whether every launch of one side lies above every one of the
// other.
static void memory_judge(struct memory_job *job, size_t idx, double *bytes, double least)
{
    struct diff_memory *memory = job->memory;
    struct diff_memory_part *part = &job->parts[idx];
    double low[2] = {INFINITY, INFINITY}, high[2] = {0, 0}, sum[2] = {0, 0};
    memset(bytes, 0, job->launch_count * sizeof *bytes);
    for (size_t i = 0; i < job->row_count; i++) {
        const struct memory_row *row = &job->rows[i];
        if (row->part != idx)
            continue;
        bytes[row->launch] += row->bytes;
        part->anonymous_bytes[job->launches[row->launch].side] += row->anonymous;
    }
    for (size_t i = 0; i < job->launch_count; i++) {
        int side = job->launches[i].side;
        low[side] = fmin(low[side], bytes[i]);
        high[side] = fmax(high[side], bytes[i]);
        sum[side] += bytes[i];
    }
    part->a_bytes = sum[0] / (double)memory->launches[0];
    part->b_bytes = sum[1] / (double)memory->launches[1];
    for (int side = 0; side < 2; side++)
        part->anonymous_bytes[side] /= (double)memory->launches[side];
    double delta = part->b_bytes - part->a_bytes;
    part->told = fabs(delta) >= least && (low[1] > high[0] || low[0] > high[1]);
    memory->told_count += part->told;
    *(delta > 0 ? &memory->more_bytes : &memory->less_bytes) += part->told ? delta : 0;
}

int diff_memory_order(bool told_a, double delta_a, bool told_b, double delta_b)
{
    if (told_a != told_b)
        return told_a ? -1 : 1;
    if (told_a && (delta_a > 0) != (delta_b > 0))
        return delta_a > 0 ? -1 : 1;
    if (fabs(delta_a) != fabs(delta_b))
        return fabs(delta_a) > fabs(delta_b) ? -1 : 1;
    return 0;
}

static int memory_compare(const void *left, const void *right)
{
    const struct diff_memory_part *a = left, *b = right;
    int order =
            diff_memory_order(a->told, a->b_bytes - a->a_bytes, b->told, b->b_bytes - b->a_bytes);
    if (order)
        return order;
    return a->kind != b->kind ? (int)a->kind - (int)b->kind : strcmp(a->name, b->name);
}

static void memory_parts(struct memory_job *job)
{
    struct diff_memory *memory = job->memory;
    double least = fmin(
            metric_infos[memory->gpu ? METRIC_PEAK_GPU_MEMORY : METRIC_PEAK_MEMORY].margin_default *
                    memory->peak_a_bytes,
            memory_share_min * fabs(memory->peak_b_bytes - memory->peak_a_bytes));
    double *bytes = xcalloc(job->launch_count, sizeof *bytes);
    memory_launches(job);
    for (size_t i = 0; i < job->part_count; i++)
        memory_judge(job, i, bytes, least);
    free(bytes);
    qsort(job->parts, job->part_count, sizeof *job->parts, memory_compare);
    memory->parts = arena_alloc(job->input->arena, job->part_count, sizeof *memory->parts);
    memcpy(memory->parts, job->parts, job->part_count * sizeof *memory->parts);
    memory->part_count = job->part_count;
}

static int memory_of(const struct diff_input *input, bool gpu, const struct diff_cell *cells,
        struct diff_memory *ret, struct error *err)
{
    struct diff_memory memory = {.gpu = gpu};
    struct memory_job job = {.input = input, .memory = &memory};
    bool wanted = memory_wanted(&memory, cells, gpu ? METRIC_PEAK_GPU_MEMORY : METRIC_PEAK_MEMORY),
         sides[2] = {false, false};
    int rc = !wanted ? 0 : gpu ? memory_load_gpu(&job, err) : memory_load(&job, err);
    for (size_t i = 0; i < job.launch_count; i++)
        sides[job.launches[i].side] = true;
    if (rc == 0 && sides[0] && sides[1]) {
        memory_parts(&job);
        rc = gpu ? 0
                 : diff_touched(input, &memory,
                           memory_share_min * fabs(memory.peak_b_bytes - memory.peak_a_bytes), err);
        *ret = memory;
    }
    free(job.launches);
    free(job.rows);
    free(job.parts);
    return rc;
}

int diff_memory(const struct diff_input *input, struct diff_memory *ret,
        struct diff_memory *ret_gpu, struct error *err)
{
    struct diff_cell cells[METRIC_COUNT];
    int rc = diff_cells(input, cells, err);
    rc = rc ? rc : memory_of(input, false, cells, ret, err);
    return rc ? rc : memory_of(input, true, cells, ret_gpu, err);
}
