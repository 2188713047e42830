// SPDX-License-Identifier: Apache-2.0
// What ran on the GPUs of one launch: the works (what was launched, on which stream, by which
// call), their kernels, and the operations themselves, ten millions of them: kept in 24 bytes each
// when they lie in a window. Reads tables gpu_stream, gpu_work, gpu_kernel, gpu_op.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/trace/launch/launch_trace_inside.h"
#include "reports/analyse/trace/trace_scan.h"

struct gpu_stream_row {
    int64_t id, process_id;
    uint32_t stream; // dense; LAUNCH_TRACE_NONE: no work of this launch
};

struct gpu_work_row { // every one of the store, by id
    int64_t id;
    int64_t recording_id;     // 0: not known
    struct load_spans *spans; // what counts of it
    uint32_t work;            // of this launch; LAUNCH_TRACE_NONE
};

struct gpu_loader {
    struct load *load;
    struct gpu_stream_row *streams;
    struct gpu_work_row *works;
    int64_t *kernel_ids; // of launch works
    size_t stream_count, work_count, kernel_id_count;
    struct trace_ids stream_ids, work_ids;
    struct launch_op *op, *op_limit; // the next one; behind the last there is room for
    size_t ordered;                  // of the first operations, how many come in the order of start
    int64_t early;                   // operations that began before their call
};

static int gpu_streams(struct gpu_loader *loader)
{
    struct load *load = loader->load;
    sqlite3_stmt *stmt = store_query(
            load->store, load->err, "SELECT id, process_id FROM gpu_stream ORDER BY id", "");
    if (!stmt)
        return load->err->code;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        const struct gpu_stream_row row = {
                sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1), LAUNCH_TRACE_NONE};
        vector_push(loader->streams, loader->stream_count, row);
    }
    trace_ids_build(
            &loader->stream_ids, loader->streams, loader->stream_count, sizeof *loader->streams);
    return rc;
}

static void gpu_work_read(struct gpu_loader *loader, sqlite3_stmt *stmt,
        struct gpu_stream_row *stream, uint32_t process, struct launch_work *row)
{
    struct load *load = loader->load;
    if (stream->stream == LAUNCH_TRACE_NONE)
        stream->stream = load->trace->stream_count++;
    int64_t kind = sqlite3_column_int64(stmt, 1);
    *row = (struct launch_work){.rank = load->processes[process].rank,
            .stream = stream->stream,
            .kernel = LAUNCH_TRACE_NONE,
            .thread = load_thread(load, sqlite3_column_int64(stmt, 5)),
            .call_name = load_text(load, sqlite3_column_int64(stmt, 4)),
            .bytes = sqlite3_column_int64(stmt, 6),
            .memory = (uint32_t)sqlite3_column_int64(stmt, 7),
            .graph = (uint64_t)sqlite3_column_int64(stmt, 8),
            .graph_node = (uint64_t)sqlite3_column_int64(stmt, 9),
            .kind = (uint8_t)(kind < 0 || kind > UINT8_MAX ? UINT8_MAX : kind)};
}

static int gpu_works(struct gpu_loader *loader)
{
    struct load *load = loader->load;
    struct launch_trace *trace = load->trace;
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT id, kind, stream_id, kernel_id, call_name_id, thread_id, bytes, memory, graph, "
            "graph_node FROM gpu_work ORDER BY id",
            "");
    if (!stmt)
        return load->err->code;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        struct gpu_work_row *all = vector_add(loader->works, loader->work_count);
        *all = (struct gpu_work_row){
                .id = sqlite3_column_int64(stmt, 0), .work = LAUNCH_TRACE_NONE};
        uint32_t stream = trace_ids_find(&loader->stream_ids, sqlite3_column_int64(stmt, 2));
        uint32_t process = stream == TRACE_NONE
                ? TRACE_NONE
                : trace_ids_find(&load->process_ids, loader->streams[stream].process_id);
        if (process == TRACE_NONE)
            continue;
        all->recording_id = load->processes[process].recording_id;
        if (all->recording_id != trace->recording_id)
            continue;
        all->work = (uint32_t)trace->work_count;
        struct launch_work *row = vector_add(trace->works, trace->work_count);
        gpu_work_read(loader, stmt, &loader->streams[stream], process, row);
        // ids begin at 1: NULL reads as 0
        vector_push(loader->kernel_ids, loader->kernel_id_count, sqlite3_column_int64(stmt, 3));
    }
    trace_ids_build(&loader->work_ids, loader->works, loader->work_count, sizeof *loader->works);
    return rc;
}

// ---- kernels ----

// Sums of shared memory of a damaged row stay in range.
static uint32_t gpu_u32(sqlite3_stmt *stmt, int column)
{
    int64_t value = sqlite3_column_int64(stmt, column);
    return value < 0 ? 0 : value > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)value;
}

static void gpu_kernel_read(struct load *load, sqlite3_stmt *stmt, struct launch_kernel *row)
{
    const char *name = (const char *)sqlite3_column_text(stmt, 1);
    row->name = arena_copy(load->trace->arena, name && *name ? name : "[unknown]");
    for (int i = 0; i < 3; i++) {
        row->grid[i] = gpu_u32(stmt, 2 + i);
        row->block[i] = gpu_u32(stmt, 5 + i);
    }
    row->registers = gpu_u32(stmt, 8);
    row->shared_bytes = gpu_u32(stmt, 9) + gpu_u32(stmt, 10);
    row->local_bytes = gpu_u32(stmt, 11);
    // "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)", older ones "ncclKernel_...".
    row->comm = !strncmp(row->name, "nccl", 4) || strstr(row->name, "ncclDevKernel") ||
            strstr(row->name, "ncclKernel");
}

// Kernels are shared by all recordings of a store: those of this launch.
static int gpu_kernels(struct gpu_loader *loader)
{
    struct load *load = loader->load;
    struct launch_trace *trace = load->trace;
    int64_t *ids = xcalloc(loader->kernel_id_count + 1, sizeof *ids);
    size_t count = 0;
    if (loader->kernel_id_count)
        memcpy(ids, loader->kernel_ids, loader->kernel_id_count * sizeof *ids);
    sort_in_place(ids, loader->kernel_id_count, x, y, *x < *y);
    for (size_t i = 0; i < loader->kernel_id_count; i++)
        if (ids[i] > 0 && (!count || ids[count - 1] != ids[i]))
            ids[count++] = ids[i];
    struct trace_ids wanted;
    trace_ids_build(&wanted, ids, count, sizeof *ids);
    trace->kernel_count = count;
    trace->kernels = xcalloc(count + 1, sizeof *trace->kernels);
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, "
            "static_shared_bytes, dynamic_shared_bytes, local_bytes FROM gpu_kernel ORDER BY id",
            "");
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        uint32_t at = trace_ids_find(&wanted, sqlite3_column_int64(stmt, 0));
        if (at != TRACE_NONE)
            gpu_kernel_read(load, stmt, &trace->kernels[at]);
    }
    for (size_t i = 0; i < count; i++) // a reference that leads nowhere
        if (!trace->kernels[i].name)
            trace->kernels[i].name = "[unknown]";
    for (size_t i = 0; i < trace->work_count; i++)
        if (loader->kernel_ids[i] > 0)
            trace->works[i].kernel = trace_ids_find(&wanted, loader->kernel_ids[i]);
    free(wanted.index);
    free(ids);
    return rc;
}

// ---- operations ----

enum { OP_START, OP_DUR, OP_WORK, OP_CALL, OP_CALL_DUR };

static uint32_t ops_u32(int64_t value)
{
    return value < 0 ? 0 : value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static size_t ops_count(const struct gpu_loader *loader)
{
    return (size_t)(loader->op - loader->load->trace->ops);
}

static void ops_grow(struct gpu_loader *loader)
{
    struct launch_trace *trace = loader->load->trace;
    size_t count = trace->ops ? ops_count(loader) : 0, capacity = count ? count * 2 : 4096;
    trace->ops = xrealloc(trace->ops, capacity * sizeof *trace->ops);
    loader->op = trace->ops + count;
    loader->op_limit = trace->ops + capacity;
}

// False: it does not count.
static inline bool ops_row(
        struct gpu_loader *loader, const struct scan_row *from, struct launch_op *ret)
{
    // trace_ids_find is too far away for ten million calls.
    uint64_t place = (uint64_t)from->values[OP_WORK] - (uint64_t)loader->work_ids.min;
    uint32_t at = place < loader->work_ids.span ? loader->work_ids.index[place] - 1 : TRACE_NONE;
    if (at == TRACE_NONE)
        return false;
    const struct gpu_work_row *row = &loader->works[at];
    int64_t start = from->values[OP_START], call = from->values[OP_CALL];
    uint32_t dur = ops_u32(from->values[OP_DUR]);
    if (row->work == LAUNCH_TRACE_NONE || start < 0 ||
            !load_spans_touch(row->spans, start, start + dur))
        return false;
    bool has_call = !(from->nulls & 1 << OP_CALL) && call >= 0;
    loader->early += call < 0; // NULL reads as 0
    *ret = (struct launch_op){.start = start,
            .dur = dur,
            .work = row->work,
            .call_ago = has_call ? ops_u32(call) : UINT32_MAX,
            .call_dur = ops_u32(from->values[OP_CALL_DUR])};
    return true;
}

static void ops_rows(void *arg, const struct scan_row *rows, size_t count)
{
    struct gpu_loader *loader = arg;
    while ((size_t)(loader->op_limit - loader->op) < count)
        ops_grow(loader);
    struct launch_op *op = loader->op, *ops = loader->load->trace->ops;
    for (size_t i = 0; i < count; i++)
        op += ops_row(loader, &rows[i], op);
    const struct launch_op *at = ops + loader->ordered;
    if (at == loader->op) // all before these are
        while (at < op && (at == ops || at[-1].start <= at->start))
            at++;
    loader->ordered = (size_t)(at - ops);
    loader->op = op;
}

static void ops_restart(void *arg)
{
    struct gpu_loader *loader = arg;
    loader->op = loader->load->trace->ops;
    loader->ordered = 0;
    loader->early = 0;
}

static int64_t ops_owner(void *arg, const int64_t *values)
{
    struct gpu_loader *loader = arg;
    uint32_t at = trace_ids_find(&loader->work_ids, values[OP_WORK]);
    return at == TRACE_NONE ? 0 : loader->works[at].recording_id;
}

static int ops_by_start(const void *left, const void *right)
{
    const struct launch_op *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->work != b->work)
        return a->work < b->work ? -1 : 1;
    return (a->dur > b->dur) - (a->dur < b->dur);
}

// Rows are nearly in order, the first `ordered` are: the few late ones are taken out, sorted and
// put back.
static void ops_sort(struct launch_op *ops, size_t ordered, size_t count)
{
    struct launch_op *late = NULL;
    size_t late_count = 0, kept = ordered;
    for (size_t i = ordered; i < count; i++) {
        if (!kept || ops[i].start >= ops[kept - 1].start) {
            if (kept != i)
                ops[kept] = ops[i];
            kept++;
            continue;
        }
        vector_push(late, late_count, ops[i]);
    }
    if (late_count)
        qsort(late, late_count, sizeof *late, ops_by_start);
    for (size_t at = count; late_count;)
        ops[--at] = kept && ops[kept - 1].start > late[late_count - 1].start ? ops[--kept]
                                                                             : late[--late_count];
    free(late);
}

static int gpu_ops(struct gpu_loader *loader)
{
    struct load *load = loader->load;
    struct launch_trace *trace = load->trace;
    const struct scan scan = {.table = "gpu_op",
            .columns = "start_ns, dur_ns, work_id, call_ns, call_dur_ns",
            .column_count = 5,
            .rows = ops_rows,
            .restart = ops_restart,
            .owner = ops_owner,
            .wanted = trace->recording_id,
            .arg = loader};
    trace->has_gpu = true; // for the windows
    load_windows(load);
    for (size_t i = 0; i < loader->work_count; i++)
        if (loader->works[i].work != LAUNCH_TRACE_NONE)
            loader->works[i].spans = load_spans_of(load, trace->works[loader->works[i].work].rank);
    ops_grow(loader);
    int rc = scan_table(load->store, &scan, load->err);
    trace->op_count = ops_count(loader);
    if (rc)
        return rc;
    ops_sort(trace->ops, loader->ordered, trace->op_count);
    if (loader->early)
        load_doubt(load,
                (struct launch_doubt){.kind = LAUNCH_DOUBT_EARLY,
                        .count = loader->early,
                        .of = (int64_t)trace->op_count});
    return 0;
}

int load_gpu(struct load *load)
{
    struct gpu_loader loader = {.load = load};
    int rc = gpu_streams(&loader);
    if (!rc)
        rc = gpu_works(&loader);
    if (!rc && load->trace->work_count)
        rc = gpu_kernels(&loader);
    if (!rc && load->trace->work_count)
        rc = gpu_ops(&loader);
    load->trace->has_gpu = load->trace->op_count > 0;
    if (!rc && !load->trace->has_gpu)
        load_windows(load); // nothing ran in a window: the host's
    free(loader.streams);
    free(loader.works);
    free(loader.kernel_ids);
    free(loader.stream_ids.index);
    free(loader.work_ids.index);
    return rc;
}
