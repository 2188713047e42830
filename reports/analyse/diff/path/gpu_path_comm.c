// SPDX-License-Identifier: Apache-2.0
// Communication: which operations are NCCL's, and which of its collectives a kernel does. A kernel
// is NCCL's by its name; when none is by name (a version that names them otherwise), those are
// whose begin and end are where NCCL told them to be. What it does is told by NCCL's rows:
// function, type, bytes, algorithm, protocol. One rank; one owner thread.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/strings.h"
#include "reports/analyse/diff/path/gpu_path_parts.h"

enum {
    COMM_OFF_NS = 5000,   // NCCL's own times of a kernel are the device's clock, rounded
    COMM_CANDIDATES = 64, // operations looked at for a row
    COMM_LOOK_BACK = 16   // rows looked at for a kernel
};

struct collective {     // by the begin of its kernel, or when NCCL did not tell, by when it was
                        // enqueued
    int64_t begin, end; // end 0: not told
    size_t row;         // of trace->nccl
};

struct gpu_comm {
    struct collective *rows;
    size_t count;
};

static const char *datatype_word(const char *type) // "ncclFloat32" -> "f32"
{
    static const char *const words[][2] = {{"Float16", "f16"}, {"Float32", "f32"},
            {"Float64", "f64"}, {"Bfloat16", "bf16"}, {"Int8", "i8"}, {"Uint8", "u8"},
            {"Int32", "i32"}, {"Uint32", "u32"}, {"Int64", "i64"}, {"Uint64", "u64"}};
    if (!type)
        return "";
    if (!strncmp(type, "nccl", 4))
        type += 4;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(type, words[i][0]))
            return words[i][1];
    return type;
}

const char *gpu_comm_name(
        struct cost_tree *tree, const struct launch_nccl *row, struct cost_collective *ret)
{
    const char *type = datatype_word(row->datatype),
               *function = row->function ? row->function : "collective";
    char what[128], how[64], name[256];
    snprintf(what, sizeof what, "%s%s%s", function, *type ? " " : "", type);
    snprintf(how, sizeof how, "%s%s%s", row->algorithm ? row->algorithm : "",
            row->algorithm && row->protocol ? " " : "", row->protocol ? row->protocol : "");
    snprintf(name, sizeof name, "%s%s%s", what, *how ? " / " : "", how);
    *ret = (struct cost_collective){.function = cost_tree_text(tree, function),
            .what = cost_tree_text(tree, what),
            .how = *how ? cost_tree_text(tree, how) : NULL};
    return cost_tree_text(tree, name);
}

static bool told(const struct launch_nccl *row)
{
    return row->kernel_begin > 0 && row->kernel_end > row->kernel_begin;
}

static void rows_load(struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    struct gpu_comm *comm = path->comm;
    bool any = false;
    comm->rows = xcalloc(trace->nccl_count + 1, sizeof *comm->rows);
    for (size_t i = 0; i < trace->nccl_count; i++)
        any |= trace->nccl[i].rank == path->rank && told(&trace->nccl[i]);
    for (size_t i = 0; i < trace->nccl_count; i++) {
        const struct launch_nccl *row = &trace->nccl[i];
        if (row->rank == path->rank && (!any || told(row)))
            comm->rows[comm->count++] =
                    (struct collective){.begin = any ? row->kernel_begin : row->enqueued,
                            .end = any ? row->kernel_end : 0,
                            .row = i};
    }
    sort_in_place(comm->rows, comm->count, x, y,
            x->begin != y->begin ? x->begin < y->begin : x->row < y->row);
}

// The work of the kernel that ran when NCCL says its own did; COST_NONE: there is none.
static uint32_t work_of(const struct gpu_path *path, const struct collective *row)
{
    const struct launch_trace *trace = path->trace;
    int64_t off = COMM_OFF_NS + (row->end - row->begin) / 20, best = 2 * off + 1;
    uint32_t work = COST_NONE;
    size_t low =
            search_first(middle, trace->op_count, trace->ops[middle].start >= row->begin - off);
    for (size_t i = low, k = 0;
            i < trace->op_count && k < COMM_CANDIDATES && trace->ops[i].start <= row->begin + off;
            i++, k++) {
        const struct launch_op *op = &trace->ops[i];
        int64_t begin = llabs(op->start - row->begin), end = llabs(op->start + op->dur - row->end);
        const struct launch_work *at = &trace->works[op->work];
        if (at->rank != path->rank || at->kind != 0 || begin > off || end > off ||
                begin + end >= best)
            continue;
        best = begin + end;
        work = op->work;
    }
    return work;
}

// Works whose kernels run where NCCL's do, three of four times and more.
static void levels_by_time(struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    struct gpu_comm *comm = path->comm;
    int64_t *votes = xcalloc(trace->work_count + 1, sizeof *votes),
            *counts = xcalloc(trace->work_count + 1, sizeof *counts);
    for (size_t i = 0; i < comm->count; i++) {
        uint32_t work = comm->rows[i].end ? work_of(path, &comm->rows[i]) : COST_NONE;
        if (work != COST_NONE)
            votes[work]++;
    }
    for (size_t i = 0; i < trace->op_count; i++)
        counts[trace->ops[i].work]++;
    for (size_t i = 0; i < trace->work_count; i++)
        if (votes[i] * 4 >= counts[i] * 3 && votes[i] > 0)
            path->levels[i] = GPU_COMM;
    free(votes);
    free(counts);
}

struct gpu_comm *gpu_comm_new(struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    bool named = false;
    path->comm = xcalloc(1, sizeof *path->comm);
    path->levels = xcalloc(trace->work_count + 1, sizeof *path->levels);
    for (size_t i = 0; i < trace->work_count; i++) {
        const struct launch_work *work = &trace->works[i];
        bool comm = work->kind == 0 && work->kernel < trace->kernel_count &&
                trace->kernels[work->kernel].comm;
        path->levels[i] = work->kind >= 16 ? GPU_COPY : comm ? GPU_COMM : GPU_COMPUTE;
        named |= comm && work->rank == path->rank;
    }
    rows_load(path);
    if (!named && path->comm->count)
        levels_by_time(path);
    return path->comm;
}

void gpu_comm_free(struct gpu_comm *comm)
{
    if (!comm)
        return;
    free(comm->rows);
    free(comm);
}

// Whose kernel it is: the row whose channels ran when it did; when NCCL did not tell, the last one
// enqueued before the call's end. One kernel may do several operations: then it is the one that
// covers most of it.
size_t gpu_comm_row(const struct gpu_path *path, const struct launch_op *op)
{
    const struct gpu_comm *comm = path->comm;
    const struct collective *rows = comm->rows;
    int64_t until = op->start + op->dur, call = gpu_call_begin(op), best = 0;
    size_t found = SIZE_MAX;
    bool ends = comm->count && rows[0].end;
    if (!ends)
        until = op->call_dur == UINT32_MAX ? call : call + op->call_dur;
    size_t after = search_first(middle, comm->count, rows[middle].begin > until);
    if (after && !ends)
        return rows[after - 1].row;
    for (size_t i = after, k = 0; i-- > 0 && k < COMM_LOOK_BACK; k++) {
        int64_t begin = rows[i].begin > op->start ? rows[i].begin : op->start,
                end = rows[i].end < until ? rows[i].end : until;
        if (end - begin >= best && end > begin) {
            best = end - begin;
            found = rows[i].row;
        }
    }
    return found;
}
