// SPDX-License-Identifier: Apache-2.0
// Records of a spool into rows. What ran goes to ops.c; what has CUPTI's times but needs no order
// is held back for some seconds, until its call and a clock sample have come; what has our times is
// written at once.
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tracer/gpu/inside.h"

static const uint8_t record_producer[UG_REC_TYPE_COUNT] = {
        [UG_REC_STRING] = UG_PRODUCER_OTHER,
        [UG_REC_CLOCK] = UG_PRODUCER_OTHER,
        [UG_REC_DEVICE] = UG_PRODUCER_OTHER,
        [UG_REC_STREAM] = UG_PRODUCER_OTHER,
        [UG_REC_THREAD] = UG_PRODUCER_OTHER,
        [UG_REC_KERNEL] = UG_PRODUCER_KERNEL,
        [UG_REC_COPY] = UG_PRODUCER_COPY,
        [UG_REC_GRAPH] = UG_PRODUCER_KERNEL,
        [UG_REC_CALL] = UG_PRODUCER_CALL,
        [UG_REC_SYNC] = UG_PRODUCER_SYNC,
        [UG_REC_MEMORY] = UG_PRODUCER_MEMORY,
        [UG_REC_RANGE] = UG_PRODUCER_NVTX,
        [UG_REC_OVERHEAD] = UG_PRODUCER_OVERHEAD,
        [UG_REC_NCCL] = UG_PRODUCER_NCCL,
        [UG_REC_MARK] = UG_PRODUCER_PYTHON,
        [UG_REC_GC] = UG_PRODUCER_PYTHON,
        [UG_REC_LAUNCH_STACK] = UG_PRODUCER_PYTHON,
        [UG_REC_GRAPH_NODE] = UG_PRODUCER_OTHER,
};

static int64_t or_null(uint64_t value)
{
    return value ? (int64_t)value : BATCH_NULL;
}

// A time of ours. Beyond any clock's it must not become BATCH_NULL; the batch drops and counts it.
static int64_t our_time(uint64_t ns)
{
    return ns < INT64_MAX ? (int64_t)ns : INT64_MAX;
}

// --- what ran ------------------------------------------------------------------------------------

static bool record_timeless(struct gpu_process *process, uint64_t start_gpu, uint64_t end_gpu)
{
    bool timeless = start_gpu == 0 || end_gpu == 0;
    process->counters.zero_times += timeless;
    return timeless;
}

static void record_kernel(struct gpu_process *process, const struct ug_rec_kernel *kernel)
{
    process->gpu->rows_kernels++;
    if (record_timeless(process, kernel->start_gpu, kernel->end_gpu))
        return;
    struct op op = {
            .correlation = kernel->correlation, .target = gpu_target_kernel(process, kernel)};
    gpu_op_add(process, &op, kernel->start_gpu, kernel->end_gpu);
}

static void record_copy(struct gpu_process *process, const struct ug_rec_copy *copy)
{
    process->gpu->rows_copies++;
    if (record_timeless(process, copy->start_gpu, copy->end_gpu))
        return;
    struct op op = {.correlation = copy->correlation, .target = gpu_target_copy(process, copy)};
    gpu_op_add(process, &op, copy->start_gpu, copy->end_gpu);
}

static void record_graph(struct gpu_process *process, const struct ug_rec_graph *graph)
{
    process->gpu->rows_graphs++;
    if (record_timeless(process, graph->start_gpu, graph->end_gpu))
        return;
    struct op op = {.correlation = graph->correlation, .target = gpu_target_graph(process, graph)};
    gpu_op_add(process, &op, graph->start_gpu, graph->end_gpu);
}

// --- calls ---------------------------------------------------------------------------------------

static void record_call(struct gpu_process *process, const struct ug_rec_call *record)
{
    const struct gpu_string *name = gpu_string(process, record->name);
    struct call call = {.start_gpu = record->start_gpu,
            .end_gpu = record->end_gpu,
            .arrived_ms = (uint32_t)(process->gpu->now_ns / 1000000),
            .correlation = record->correlation,
            .name = record->name,
            .tid = record->head.tid,
            .result = record->result,
            .flags = name->row ? name->flags : (uint32_t)CALL_LAUNCHES};
    calls_add(process->calls, &call, process->gpu->now_ns);
}

void gpu_call_given_up(void *context, const struct call *call)
{
    struct gpu_process *process = context;
    if (call->flags & CALL_MATCHED)
        return;
    // else it launched nothing
    process->counters.launches_alone += (call->flags & CALL_LAUNCHES) && call->result == 0;
    uint32_t thread = gpu_thread_row(process, call->tid);
    uint32_t name = gpu_string_row(process, call->name);
    int64_t start_ns = clock_fit_convert(&process->fit, call->start_gpu);
    if (!name) // table gpu_call wants one
        return;
    int64_t *row = batch_row(process->gpu->batch, BATCH_CALL);
    row[0] = start_ns;
    row[1] = clock_fit_convert(&process->fit, call->end_gpu) - start_ns;
    row[2] = process->row;
    row[3] = or_null(thread);
    row[4] = name;
    row[5] = call->correlation;
    row[6] = call->result;
}

// --- held back -----------------------------------------------------------------------------------

static void write_sync(struct gpu_process *process, const struct ug_rec_sync *sync)
{
    struct call *call = calls_find(process->calls, sync->correlation);
    uint32_t thread = gpu_thread_row(process, call ? call->tid : sync->head.tid);
    uint32_t device = gpu_context_device(process, sync->context);
    uint32_t stream = sync->stream == UINT32_MAX || device == UINT32_MAX
            ? 0
            : gpu_stream_row(process, device, sync->context, sync->stream);
    int64_t start_ns = clock_fit_convert(&process->fit, sync->start_gpu);
    int64_t *row = batch_row(process->gpu->batch, BATCH_SYNC);
    row[0] = start_ns;
    row[1] = clock_fit_convert(&process->fit, sync->end_gpu) - start_ns;
    row[2] = process->row;
    row[3] = sync->kind;
    row[4] = or_null(stream);
    row[5] = or_null(thread);
    row[6] = sync->correlation;
    row[7] = or_null(sync->event);
    row[8] = or_null(sync->event_sync);
}

static void write_memory(struct gpu_process *process, const struct ug_rec_memory *memory)
{
    uint32_t stream = memory->stream && memory->stream != UINT32_MAX
            ? gpu_stream_row(process, memory->device, memory->context, memory->stream)
            : 0;
    int64_t *row = batch_row(process->gpu->batch, BATCH_MEMORY);
    row[0] = clock_fit_convert(&process->fit, memory->at_gpu);
    row[1] = process->row;
    row[2] = memory->operation;
    row[3] = memory->kind;
    row[4] = memory->device;
    row[5] = (int64_t)memory->address == BATCH_NULL ? 0 : (int64_t)memory->address;
    row[6] = memory->size_bytes > INT64_MAX ? INT64_MAX : (int64_t)memory->size_bytes;
    row[7] = or_null(stream);
    row[8] = or_null(memory->pool);
    row[9] = memory->pool ? (int64_t)(memory->pool_used_bytes & INT64_MAX) : BATCH_NULL;
    row[10] = memory->pool ? (int64_t)(memory->pool_bytes & INT64_MAX) : BATCH_NULL;
    row[11] = memory->correlation;
}

static void write_overhead(struct gpu_process *process, const struct ug_rec_overhead *overhead)
{
    uint32_t thread = gpu_thread_row(process, overhead->head.tid);
    int64_t start_ns = clock_fit_convert(&process->fit, overhead->start_gpu);
    int64_t *row = batch_row(process->gpu->batch, BATCH_OVERHEAD);
    row[0] = start_ns;
    row[1] = clock_fit_convert(&process->fit, overhead->end_gpu) - start_ns;
    row[2] = process->row;
    row[3] = or_null(thread);
    row[4] = overhead->kind;
}

static void range_put(struct gpu_process *process, const struct open_range *range, int64_t dur_ns)
{
    uint32_t thread = gpu_thread_row(process, range->tid);
    if (!range->name)
        return;
    int64_t *row = batch_row(process->gpu->batch, BATCH_RANGE);
    row[0] = range->start_ns;
    row[1] = dur_ns;
    row[2] = process->row;
    row[3] = or_null(thread);
    row[4] = range->name;
    row[5] = or_null(range->domain);
}

static void range_close(struct gpu_recorder *gpu, uint32_t at, int64_t dur_ns)
{
    struct open_range range = gpu->ranges[at];
    memmove(gpu->ranges + at, gpu->ranges + at + 1,
            (--gpu->range_count - at) * sizeof *gpu->ranges);
    range_put(gpu->processes[range.process], &range, dur_ns);
}

// Pushes and pops nest by thread, starts and ends have an id.
static void write_range(struct gpu_process *process, const struct ug_rec_range *record)
{
    struct gpu_recorder *gpu = process->gpu;
    int64_t at_ns = clock_fit_convert(&process->fit, record->at_gpu);
    if (record->what == 2) {
        for (uint32_t i = gpu->range_count; i-- > 0;) {
            const struct open_range *open = &gpu->ranges[i];
            if (open->process != process->index || open->id != record->id ||
                    (record->id == 0 && open->tid != record->head.tid))
                continue;
            range_close(gpu, i, at_ns < open->start_ns ? 0 : at_ns - open->start_ns);
            return;
        }
        process->counters.ranges_unknown++;
        return;
    }
    uint32_t name = gpu_string_row(process, record->name),
             domain = gpu_string_row(process, record->domain);
    struct open_range range = {.start_ns = at_ns,
            .id = record->id,
            .process = process->index,
            .tid = record->head.tid,
            .name = name,
            .domain = domain};
    if (record->what != 1) {
        range_put(process, &range, BATCH_NULL);
        return;
    }
    if (gpu->range_count == GPU_RANGES_MAX) {
        gpu->processes[gpu->ranges[0].process]->counters.ranges_open++;
        range_close(gpu, 0, BATCH_NULL);
    }
    gpu->ranges[gpu->range_count++] = range;
}

void gpu_ranges_end(struct gpu_recorder *gpu)
{
    while (gpu->range_count) {
        gpu->processes[gpu->ranges[0].process]->counters.ranges_open++;
        range_close(gpu, 0, BATCH_NULL);
    }
}

static void held_write(struct gpu_recorder *gpu)
{
    const struct held *held = &gpu->held[gpu->held_first];
    struct gpu_process *process = gpu->processes[held->process];
    if (held->record.head.type == UG_REC_SYNC)
        write_sync(process, &held->record.sync);
    else if (held->record.head.type == UG_REC_MEMORY)
        write_memory(process, &held->record.memory);
    else if (held->record.head.type == UG_REC_RANGE)
        write_range(process, &held->record.range);
    else
        write_overhead(process, &held->record.overhead);
    gpu->held_first = (gpu->held_first + 1) % GPU_HELD_MAX;
    gpu->held_count--;
}

void gpu_held_write(struct gpu_recorder *gpu, bool all)
{
    while (gpu->held_count &&
            (all || gpu->now_ns - gpu->held[gpu->held_first].arrived_ns >= GPU_DELAY_NS))
        held_write(gpu);
}

static void record_hold(struct gpu_process *process, const struct ug_rec_head *record, size_t bytes)
{
    struct gpu_recorder *gpu = process->gpu;
    if (gpu->held_count == GPU_HELD_MAX)
        held_write(gpu);
    struct held *held = &gpu->held[(gpu->held_first + gpu->held_count++) % GPU_HELD_MAX];
    held->arrived_ns = gpu->now_ns;
    held->process = process->index;
    memcpy(&held->record, record, bytes);
    gpu->rows_others++;
}

// --- written at once -----------------------------------------------------------------------------

static void record_mark(struct gpu_process *process, const struct ug_rec_mark *mark)
{
    uint32_t thread = gpu_thread_row(process, mark->head.tid),
             name = gpu_string_row(process, mark->name);
    bool has_value = mark->kind >= UG_MARK_STEP_BEGIN;
    int64_t *row = batch_row(process->gpu->batch, BATCH_MARK);
    row[0] = process->row;
    row[1] = or_null(thread);
    row[2] = our_time(mark->at_ns);
    row[3] = mark->kind;
    row[4] = or_null(name);
    row[5] = has_value ? (int64_t)(mark->value & INT64_MAX) : BATCH_NULL;
}

static void record_gc(struct gpu_process *process, const struct ug_rec_gc *gc)
{
    uint32_t thread = gpu_thread_row(process, gc->head.tid);
    int64_t *row = batch_row(process->gpu->batch, BATCH_GC);
    row[0] = process->row;
    row[1] = or_null(thread);
    row[2] = our_time(gc->start_ns);
    row[3] = gc->end_ns > gc->start_ns ? our_time(gc->end_ns - gc->start_ns) : 0;
    row[4] = gc->generation;
    row[5] = gc->collected;
}

static void record_clock(struct gpu_process *process, const struct ug_rec_clock *clock)
{
    clock_fit_add(&process->fit, clock->before_ns, clock->gpu_ns, clock->after_ns);
    int64_t *row = batch_row(process->gpu->batch, BATCH_CLOCK);
    row[0] = process->row;
    row[1] = our_time(clock->before_ns);
    row[2] = our_time(clock->gpu_ns);
    row[3] = our_time(clock->after_ns);
    gpu_ops_clocked(process, false);
}

static void record_nccl(struct gpu_process *process, const struct ug_rec_nccl *nccl)
{
    struct gpu_recorder *gpu = process->gpu;
    int64_t thread = gpu_thread_row(process, nccl->head.tid), peer = nccl->peer;
    int64_t enqueued = our_time(nccl->enqueued_ns), ended = our_time(nccl->ended_ns),
            start = our_time(nccl->kernel_start_ns), end = our_time(nccl->kernel_end_ns);
    int64_t channels = nccl->channels, warps = nccl->warps;
    uint64_t bytes;
    if (__builtin_mul_overflow(nccl->count, (uint64_t)nccl->element_bytes, &bytes) ||
            bytes > INT64_MAX)
        bytes = INT64_MAX;
    uint32_t names[5] = {nccl->communicator_name, nccl->function, nccl->datatype, nccl->algorithm,
            nccl->protocol};
    for (int i = 0; i < 5; i++)
        names[i] = gpu_string_row(process, names[i]);
    const int64_t times[] = {enqueued, ended, start, end};
    if (!batch_holds(gpu->batch, times, sizeof times / sizeof *times) || !batch_begin(gpu->batch))
        return;
    int rc = store_exec(gpu->store, NULL,
            "INSERT INTO nccl_op (process_id, thread_id, enqueued_ns, ended_ns, kernel_start_ns, kernel_end_ns, communicator, "
            "communicator_name, rank, ranks, peer, sequence, function, datatype, algorithm, protocol, count, bytes, channels, "
            "warps, plugin_version) VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT text FROM string WHERE id = ?), ?, ?, ?, ?, "
            "coalesce((SELECT text FROM string WHERE id = ?), '[unknown]'), (SELECT text FROM string WHERE id = ?), "
            "(SELECT text FROM string WHERE id = ?), (SELECT text FROM string WHERE id = ?), ?, ?, ?, ?, ?)",
            "iIiIIIiiiiIiiiiiiiIIi", (int64_t)process->row, thread ? &thread : NULL, enqueued,
            ended ? &ended : NULL, start ? &start : NULL, end ? &end : NULL,
            (int64_t)nccl->communicator, (int64_t)names[0], (int64_t)nccl->rank,
            (int64_t)nccl->ranks, nccl->peer == UINT32_MAX ? NULL : &peer, (int64_t)nccl->sequence,
            (int64_t)names[1], (int64_t)names[2], (int64_t)names[3], (int64_t)names[4],
            (int64_t)nccl->count, (int64_t)bytes, channels ? &channels : NULL,
            warps ? &warps : NULL, (int64_t)nccl->plugin_version);
    if (rc)
        batch_fail(gpu->batch);
    gpu->rows_nccl++;
}

static void record_stack(struct gpu_process *process, const struct ug_rec_launch_stack *stack)
{
    struct gpu_recorder *gpu = process->gpu;
    uint32_t room = (uint32_t)(stack->head.bytes - sizeof *stack) / sizeof stack->frames[0];
    uint32_t depth = stack->depth < room ? stack->depth : room;
    struct strbuf json = {0};
    strbuf_add(&json, "[");
    for (uint32_t i = 0; i < depth; i++)
        strbuf_add(&json, "%s%u", i ? "," : "", gpu_string_row(process, stack->frames[i]));
    strbuf_add(&json, "]");
    if (batch_begin(gpu->batch) &&
            store_exec(gpu->store, NULL,
                    "INSERT OR REPLACE INTO launch_stack (process_id, correlation, frames) VALUES (?, ?, ?)",
                    "iis", (int64_t)process->row, (int64_t)stack->correlation, json.text))
        batch_fail(gpu->batch);
    strbuf_free(&json);
    gpu->rows_stacks++;
}

// A clone is from where its original is.
static void record_node(struct gpu_process *process, const struct ug_rec_graph_node *node)
{
    struct gpu_recorder *gpu = process->gpu;
    int64_t thread = gpu_thread_row(process, node->head.tid), original = (int64_t)node->original,
            at_ns = our_time(node->at_ns);
    if (batch_holds(gpu->batch, &at_ns, 1) && batch_begin(gpu->batch) &&
            store_exec(gpu->store, NULL,
                    "INSERT OR REPLACE INTO gpu_graph_node (process_id, node, thread_id, at_ns, original) SELECT p, n, "
                    "coalesce(g.thread_id, t), coalesce(g.at_ns, a), o FROM (SELECT ? AS p, ? AS n, ? AS t, ? AS a, ? AS o) "
                    "LEFT JOIN gpu_graph_node g ON g.process_id = p AND g.node = o",
                    "iiIiI", (int64_t)process->row, (int64_t)node->node, thread ? &thread : NULL,
                    at_ns, original ? &original : NULL))
        batch_fail(gpu->batch);
}

void gpu_record(void *context, const struct ug_rec_head *record)
{
    struct gpu_process *process = context;
    process->counters.read[record_producer[record->type]]++;
    switch ((enum ug_record_type)record->type) {
    case UG_REC_STRING:
    case UG_REC_DEVICE:
    case UG_REC_STREAM:
    case UG_REC_THREAD:
        gpu_define(process, record);
        return;
    case UG_REC_CLOCK:
        record_clock(process, (const struct ug_rec_clock *)record);
        return;
    case UG_REC_KERNEL:
        record_kernel(process, (const struct ug_rec_kernel *)record);
        return;
    case UG_REC_COPY:
        record_copy(process, (const struct ug_rec_copy *)record);
        return;
    case UG_REC_GRAPH:
        record_graph(process, (const struct ug_rec_graph *)record);
        return;
    case UG_REC_CALL:
        record_call(process, (const struct ug_rec_call *)record);
        return;
    case UG_REC_SYNC:
        record_hold(process, record, sizeof(struct ug_rec_sync));
        return;
    case UG_REC_MEMORY:
        record_hold(process, record, sizeof(struct ug_rec_memory));
        return;
    case UG_REC_RANGE:
        record_hold(process, record, sizeof(struct ug_rec_range));
        return;
    case UG_REC_OVERHEAD:
        record_hold(process, record, sizeof(struct ug_rec_overhead));
        return;
    case UG_REC_NCCL:
        record_nccl(process, (const struct ug_rec_nccl *)record);
        return;
    case UG_REC_MARK:
        record_mark(process, (const struct ug_rec_mark *)record);
        return;
    case UG_REC_GC:
        record_gc(process, (const struct ug_rec_gc *)record);
        return;
    case UG_REC_LAUNCH_STACK:
        record_stack(process, (const struct ug_rec_launch_stack *)record);
        return;
    case UG_REC_GRAPH_NODE:
        record_node(process, (const struct ug_rec_graph_node *)record);
        return;
    case UG_REC_TYPE_COUNT:
        return;
    }
}

void gpu_write_all(struct gpu_recorder *gpu)
{
    for (uint32_t i = 0; i < gpu->process_count; i++) {
        gpu->processes[i]->counters.without_clock +=
                clock_fit_ready(&gpu->processes[i]->fit) ? 0 : gpu->processes[i]->raw_count;
        gpu_ops_clocked(gpu->processes[i], true);
    }
    gpu_ops_write(gpu, INT64_MAX);
    gpu_held_write(gpu, true);
}
