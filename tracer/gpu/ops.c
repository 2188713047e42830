// SPDX-License-Identifier: Apache-2.0
// What ran on a GPU, held back until its time can be converted, its call has come and others that
// began before it have, then written in the order of start.
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tracer/gpu/inside.h"

enum { OPS_DIGIT_BITS = 11, OPS_DIGITS = 1 << OPS_DIGIT_BITS, OPS_STEPS_MAX = 16 };

struct op_key {
    uint64_t start;
    uint32_t index;
};

int gpu_ops_new(struct gpu_recorder *gpu)
{
    gpu->ops = xcalloc(GPU_OPS_MAX, sizeof *gpu->ops);
    gpu->ops_sorted = xcalloc(GPU_OPS_MAX, sizeof *gpu->ops_sorted);
    gpu->keys = xcalloc(2 * GPU_OPS_MAX, sizeof *gpu->keys);
    gpu->op_min_ns = INT64_MAX;
    return 0;
}

void gpu_ops_free(struct gpu_recorder *gpu)
{
    free(gpu->ops);
    free(gpu->ops_sorted);
    free(gpu->keys);
}

// --- order ---------------------------------------------------------------------------------------

// Least significant digit first; as many digits as the span of times needs (1.5 s: 3).
static void ops_sort(struct gpu_recorder *gpu)
{
    if (!gpu->ops_unsorted)
        return;
    struct op_key *from = gpu->keys, *to = gpu->keys + GPU_OPS_MAX;
    uint64_t span = 0;
    for (uint32_t i = 0; i < gpu->op_count; i++) {
        uint64_t start = (uint64_t)gpu->ops[i].start_ns - (uint64_t)gpu->op_min_ns;
        from[i] = (struct op_key){.start = start, .index = i};
        span = start > span ? start : span;
    }
    for (int shift = 0; shift < 64 && span >> shift; shift += OPS_DIGIT_BITS) {
        uint32_t counts[OPS_DIGITS] = {0}, sum = 0;
        for (uint32_t i = 0; i < gpu->op_count; i++)
            counts[from[i].start >> shift & (OPS_DIGITS - 1)]++;
        for (int digit = 0; digit < OPS_DIGITS; digit++) {
            uint32_t count = counts[digit];
            counts[digit] = sum;
            sum += count;
        }
        for (uint32_t i = 0; i < gpu->op_count; i++)
            to[counts[from[i].start >> shift & (OPS_DIGITS - 1)]++] = from[i];
        struct op_key *swap = from;
        from = to;
        to = swap;
    }
    for (uint32_t i = 0; i < gpu->op_count; i++)
        gpu->ops_sorted[i] = gpu->ops[from[i].index];
    struct op *swap = gpu->ops;
    gpu->ops = gpu->ops_sorted;
    gpu->ops_sorted = swap;
    gpu->ops_unsorted = false;
}

// --- write ---------------------------------------------------------------------------------------

// call_ns: as in the row.
static void op_take_call(
        struct gpu_process *process, struct op *op, struct call *call, int64_t call_ns)
{
    uint64_t dur = call->end_gpu > call->start_gpu ? call->end_gpu - call->start_gpu : 0;
    op->call_ns = call_ns;
    op->call_dur_ns = dur < UINT32_MAX ? (uint32_t)dur : UINT32_MAX;
    op->call_name = call->name;
    op->call_tid = call->tid;
    calls_matched(process->calls, call);
}

static void op_write(struct gpu_recorder *gpu, struct op *op)
{
    struct gpu_process *process = gpu->processes[op->process];
    struct call *call =
            op->call_ns == OP_NO_CALL ? calls_find(process->calls, op->correlation) : NULL;
    if (call)
        op_take_call(process, op, call,
                op->start_ns - clock_fit_convert(&process->fit, call->start_gpu));
    if (op->call_ns < 0 && op->call_ns != OP_NO_CALL) {
        process->counters.order_violations++;
        if ((uint64_t)-op->call_ns > process->counters.order_worst_ns)
            process->counters.order_worst_ns = (uint64_t)-op->call_ns;
    } else if (op->call_ns == OP_NO_CALL) {
        process->counters.ops_without_call++;
    }
    process->counters.ops++;
    int64_t work = gpu_work_row(gpu, op); // may hand over a full batch
    int64_t *row = batch_row(gpu->batch, BATCH_OP);
    row[0] = op->start_ns;
    row[1] = op->dur_ns;
    row[2] = work;
    row[3] = op->call_ns == OP_NO_CALL ? BATCH_NULL : op->call_ns;
    row[4] = op->call_ns == OP_NO_CALL ? BATCH_NULL : (int64_t)op->call_dur_ns;
    row[5] = op->correlation;
}

// At least `must`, and all that began before before_ns.
static void ops_write(struct gpu_recorder *gpu, uint32_t must, int64_t before_ns)
{
    uint32_t count = 0;
    while (count < gpu->op_count && (count < must || gpu->ops[count].start_ns < before_ns))
        op_write(gpu, &gpu->ops[count++]);
    gpu->op_count -= count;
    memmove(gpu->ops, gpu->ops + count, gpu->op_count * sizeof *gpu->ops);
    gpu->op_min_ns = gpu->op_count ? gpu->ops[0].start_ns : INT64_MAX;
}

void gpu_ops_write(struct gpu_recorder *gpu, int64_t before_ns)
{
    if (!gpu->op_count)
        return;
    ops_sort(gpu);
    ops_write(gpu, gpu->op_count == GPU_OPS_MAX ? GPU_OPS_MAX / 4 : 0, before_ns);
}

void gpu_ops_forget(struct gpu_recorder *gpu, uint32_t generation)
{
    for (uint32_t i = 0; i < gpu->process_count; i++)
        for (uint32_t at = 0; at < gpu->processes[i]->raw_count; at++)
            if (gpu->processes[i]->raw[at].target >> GPU_TARGET_BITS == generation) {
                gpu->processes[i]->counters.without_clock += gpu->processes[i]->raw_count;
                gpu_ops_clocked(gpu->processes[i], true);
                break;
            }
    ops_sort(gpu);
    uint32_t must = gpu->op_count;
    while (must && gpu->ops[must - 1].target >> GPU_TARGET_BITS != generation)
        must--;
    ops_write(gpu, must, INT64_MIN);
}

// --- add -----------------------------------------------------------------------------------------

// Its times are CUPTI's; the row of the clock's piece is known or will never be.
static void op_place(struct gpu_process *process, const struct op *raw)
{
    struct gpu_recorder *gpu = process->gpu;
    if (gpu->op_count == GPU_OPS_MAX)
        gpu_ops_write(gpu, INT64_MIN);
    struct op *op = &gpu->ops[gpu->op_count++];
    *op = *raw;
    op->start_ns = clock_fit_convert(&process->fit, (uint64_t)raw->start_ns);
    op->dur_ns = clock_fit_span(&process->fit, raw->dur_ns);
    gpu->op_min_ns = op->start_ns < gpu->op_min_ns ? op->start_ns : gpu->op_min_ns;
    if (gpu->ops_unsorted || gpu->op_count == 1 || op->start_ns >= op[-1].start_ns)
        return;
    // Most come nearly in order: a few steps down are cheaper than sorting all.
    struct op late = *op;
    for (int step = 0; step < OPS_STEPS_MAX && op > gpu->ops && late.start_ns < op[-1].start_ns;
            step++, op--)
        *op = op[-1];
    *op = late;
    gpu->ops_unsorted = op > gpu->ops && late.start_ns < op[-1].start_ns;
}

void gpu_ops_clocked(struct gpu_process *process, bool all)
{
    int64_t until = all ? INT64_MAX : clock_fit_until_ns(&process->fit);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < process->raw_count; i++) {
        struct op *op = &process->raw[i];
        if (op->start_ns + op->dur_ns <= until)
            op_place(process, op);
        else
            process->raw[kept++] = *op;
    }
    process->raw_count = kept;
    process->raw_since_ns = process->gpu->now_ns;
}

static bool op_grow_raw(struct gpu_process *process)
{
    uint32_t more = process->raw_capacity ? process->raw_capacity : 1024;
    if (process->raw_capacity &&
            (process->raw_capacity + more > GPU_RAW_MAX || (int64_t)more > process->gpu->raw_left))
        return false;
    process->gpu->raw_left -= more;
    process->raw_capacity += more;
    process->raw = xrealloc(process->raw, process->raw_capacity * sizeof *process->raw);
    return true;
}

void gpu_op_add(struct gpu_process *process, struct op *op, uint64_t start_gpu, uint64_t end_gpu)
{
    // Times of a damaged record: beyond any clock.
    if (start_gpu > INT64_MAX / 4 || end_gpu < start_gpu || end_gpu > INT64_MAX / 4) {
        process->counters.zero_times++;
        return;
    }
    op->start_ns = (int64_t)start_gpu;
    op->dur_ns = (int64_t)(end_gpu - start_gpu);
    op->process = process->index;
    struct call *call = calls_find(process->calls, op->correlation);
    op->call_ns = OP_NO_CALL;
    if (call && call->start_gpu <= INT64_MAX / 4)
        op_take_call(process, op, call,
                clock_fit_span(&process->fit, (int64_t)(start_gpu - call->start_gpu)));
    if ((int64_t)end_gpu <= clock_fit_until_ns(&process->fit)) {
        op_place(process, op);
        return;
    }
    if (process->raw_count == process->raw_capacity && !op_grow_raw(process)) {
        process->counters.without_clock += process->raw_count;
        gpu_ops_clocked(process, true);
    }
    if (!process->raw_count)
        process->raw_since_ns = process->gpu->now_ns;
    process->raw[process->raw_count++] = *op;
}
