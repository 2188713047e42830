// SPDX-License-Identifier: Apache-2.0
// What is interned of launches: kernels by shape and resources (gpu_kernel), what was launched (a
// target), and by which call of which thread (gpu_work). Bounded: what is forgotten gets another
// row.
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "tracer/gpu/inside.h"
#include "tracer/symbols/demangle.h"

// --- kernels -------------------------------------------------------------------------------------

static uint32_t round_up(uint32_t value, uint32_t to)
{
    return (value + to - 1) / to * to;
}

static uint32_t blocks_max(uint32_t major, uint32_t minor)
{
    if ((major == 8 && (minor == 6 || minor == 7)) || (major == 7 && minor == 5))
        return 16;
    return (major == 8 && minor == 9) || major == 12 ? 24 : 32;
}

// As cudaOccupancyMaxActiveBlocksPerMultiprocessor counts: warps in units of 4, registers of a warp
// in units of 256, shared memory in units of 128 (of 256 before 8.0) with 1 KiB of the system's for
// each block from 8.0 on. Below 0: not known.
static double gpu_occupancy(const struct ug_rec_device *device, const struct ug_rec_kernel *kernel)
{
    uint64_t threads = (uint64_t)kernel->block[0] * kernel->block[1] * kernel->block[2];
    if (threads == 0 || threads > 1024 || device->max_threads_sm < 32)
        return -1;
    uint32_t warps = (uint32_t)(threads + 31) / 32, warps_max = device->max_threads_sm / 32;
    uint32_t blocks = warps_max / warps, limit = blocks_max(device->cc_major, device->cc_minor);
    blocks = blocks < limit ? blocks : limit;
    if (kernel->registers && device->registers_sm) {
        uint32_t by_registers =
                device->registers_sm / round_up(kernel->registers * 32u, 256) / 4 * 4 / warps;
        blocks = blocks < by_registers ? blocks : by_registers;
    }
    bool recent = device->cc_major >= 8;
    uint64_t shared = (uint64_t)kernel->static_shared_bytes + kernel->dynamic_shared_bytes +
            (recent ? 1024 : 0);
    shared = (shared + (recent ? 127 : 255)) / (recent ? 128 : 256) * (recent ? 128 : 256);
    if (shared && device->shared_sm_bytes) {
        uint64_t by_shared = device->shared_sm_bytes / shared;
        blocks = blocks < by_shared ? blocks : (uint32_t)by_shared;
    }
    return blocks ? (double)(blocks * warps) / warps_max : -1;
}

static void kernel_write(struct gpu_process *process, int64_t row,
        const struct ug_rec_kernel *kernel, int64_t name_id, double occupancy)
{
    struct gpu_recorder *gpu = process->gpu;
    char *mangled =
            store_get_text(gpu->store, "SELECT text FROM string WHERE id = ?", "i", name_id);
    char name[SYMBOL_NAME_MAX];
    symbol_name_readable(mangled ? mangled : "", mangled ? strlen(mangled) : 0, name);
    free(mangled);
    if (!batch_begin(gpu->batch))
        return;
    int64_t cluster[3] = {kernel->cluster[0], kernel->cluster[1], kernel->cluster[2]};
    bool clustered = cluster[0] && cluster[1] && cluster[2];
    int rc = store_exec(gpu->store, NULL,
            "INSERT INTO gpu_kernel (id, name_id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, cluster_x, cluster_y, "
            "cluster_z, registers, static_shared_bytes, dynamic_shared_bytes, local_bytes, occupancy) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            "iisiiiiiiIIIiiiid", row, name_id, name, (int64_t)kernel->grid[0],
            (int64_t)kernel->grid[1], (int64_t)kernel->grid[2], (int64_t)kernel->block[0],
            (int64_t)kernel->block[1], (int64_t)kernel->block[2], clustered ? &cluster[0] : NULL,
            clustered ? &cluster[1] : NULL, clustered ? &cluster[2] : NULL,
            (int64_t)kernel->registers, (int64_t)kernel->static_shared_bytes,
            (int64_t)kernel->dynamic_shared_bytes, (int64_t)kernel->local_bytes,
            occupancy < 0 ? NAN : occupancy);
    if (rc)
        batch_fail(gpu->batch);
}

static uint32_t kernel_row(struct gpu_process *process, const struct ug_rec_kernel *kernel)
{
    struct gpu_recorder *gpu = process->gpu;
    double occupancy = -1;
    if (gpu_context_device(process, kernel->context) == UINT32_MAX)
        gpu_names_peek(process);
    for (uint32_t i = 0; i < process->device_count; i++)
        if (process->devices[i].context == kernel->context)
            occupancy = gpu_occupancy(&process->devices[i].record, kernel);
    uint32_t name = gpu_string_row(process, kernel->name);
    uint64_t key[8] = {(uint64_t)name << 32 | kernel->registers,
            (uint64_t)kernel->grid[0] << 32 | kernel->grid[1],
            (uint64_t)kernel->grid[2] << 32 | kernel->block[0],
            (uint64_t)kernel->block[1] << 32 | kernel->block[2],
            (uint64_t)kernel->cluster[0] << 32 | (uint64_t)kernel->cluster[1] << 16 |
                    kernel->cluster[2],
            (uint64_t)kernel->static_shared_bytes << 32 | kernel->dynamic_shared_bytes,
            kernel->local_bytes, (uint64_t)(int64_t)(occupancy * 10000)};
    bool fresh;
    uint32_t number = gpu_number(gpu->kernel_ids, key, 8, GPU_KERNELS_MAX, &fresh);
    if (number == INTERN_NONE) {
        intern_clear(gpu->kernel_ids); // some will have a second row
        number = gpu_number(gpu->kernel_ids, key, 8, GPU_KERNELS_MAX, &fresh);
    }
    gpu->kernels = vector_reserve(
            gpu->kernels, &gpu->kernel_capacity, (size_t)number + 1, sizeof *gpu->kernels);
    if (fresh) {
        gpu->kernels[number] = (uint32_t)++gpu->kernel_last;
        if (!name) { // without any name: gpu_kernel wants one
            if (!gpu->unknown_string)
                gpu->unknown_string = gpu_text_row(gpu, "[unknown]");
            name = (uint32_t)gpu->unknown_string;
        }
        kernel_write(process, gpu->kernels[number], kernel, name, occupancy);
    }
    return gpu->kernels[number];
}

// --- targets and work ----------------------------------------------------------------------------

static struct gpu_target *target_of(struct gpu_recorder *gpu, uint32_t number)
{
    return &gpu->targets[number >> GPU_TARGET_BITS][number & (GPU_TARGETS_MAX - 1)];
}

// Launches that are held back name targets by number, of this generation or one of those before it.
static void target_next_generation(struct gpu_recorder *gpu)
{
    gpu->generation = (gpu->generation + 1) % GPU_GENERATIONS;
    gpu_ops_forget(gpu, gpu->generation);
    intern_clear(gpu->target_ids);
    intern_clear(gpu->work_ids); // named targets by number
    gpu->target_last = 0;
}

static uint32_t target_number(struct gpu_recorder *gpu, const uint64_t *key, bool *ret_new)
{
    // Steps repeat: what followed the last one before follows it again, and the search is saved.
    bool known = gpu->target_last < intern_count(gpu->target_ids);
    uint32_t guess = known ? gpu->targets[gpu->generation][gpu->target_last].next : 0,
             number = guess;
    *ret_new = false;
    if (!known || guess >= intern_count(gpu->target_ids) ||
            memcmp(intern_get(gpu->target_ids, guess), key, GPU_TARGET_WORDS * sizeof *key) != 0) {
        number = gpu_number(gpu->target_ids, key, GPU_TARGET_WORDS, GPU_TARGETS_MAX, ret_new);
        if (number == INTERN_NONE) {
            target_next_generation(gpu);
            number = gpu_number(gpu->target_ids, key, GPU_TARGET_WORDS, GPU_TARGETS_MAX, ret_new);
        } else if (known) {
            gpu->targets[gpu->generation][gpu->target_last].next = number;
        }
        gpu->targets[gpu->generation] = vector_reserve(gpu->targets[gpu->generation],
                &gpu->target_capacity[gpu->generation], (size_t)number + 1, sizeof **gpu->targets);
    }
    gpu->target_last = number;
    return gpu->generation << GPU_TARGET_BITS | number;
}

uint32_t gpu_target_kernel(struct gpu_process *process, const struct ug_rec_kernel *kernel)
{
    uint64_t key[GPU_TARGET_WORDS] = {(uint64_t)process->index << 8 | 0};
    memcpy(key + 1, &kernel->name,
            offsetof(struct ug_rec_kernel, channel) - offsetof(struct ug_rec_kernel, name));
    bool fresh;
    uint32_t number = target_number(process->gpu, key, &fresh);
    if (fresh) {
        uint32_t row = kernel_row(process, kernel); // both may write
        uint32_t stream = gpu_stream_row(process, kernel->device, kernel->context, kernel->stream);
        *target_of(process->gpu, number) = (struct gpu_target){.kind = 0,
                .stream = stream,
                .kernel = row,
                .graph = kernel->graph,
                .graph_node = kernel->graph_node,
                .bytes = BATCH_NULL,
                .memory = BATCH_NULL};
    }
    return number;
}

uint32_t gpu_target_copy(struct gpu_process *process, const struct ug_rec_copy *copy)
{
    uint64_t key[GPU_TARGET_WORDS] = {(uint64_t)process->index << 8 | 1, copy->size_bytes,
            copy->graph_node, (uint64_t)copy->graph << 32 | copy->device,
            (uint64_t)copy->context << 32 | copy->stream,
            (uint64_t)copy->kind << 16 | (uint64_t)copy->source << 8 | copy->target};
    bool fresh;
    uint32_t number = target_number(process->gpu, key, &fresh);
    if (fresh) {
        uint32_t stream = gpu_stream_row(process, copy->device, copy->context, copy->stream);
        bool set = copy->kind == UG_COPY_SET;
        *target_of(process->gpu, number) = (struct gpu_target){.kind = 16u + copy->kind,
                .stream = stream,
                .graph = copy->graph,
                .graph_node = copy->graph_node,
                .bytes = copy->size_bytes > INT64_MAX ? INT64_MAX : (int64_t)copy->size_bytes,
                .memory = set ? copy->target : (copy->source & 15) * 16 + (copy->target & 15)};
    }
    return number;
}

uint32_t gpu_target_graph(struct gpu_process *process, const struct ug_rec_graph *graph)
{
    uint64_t key[GPU_TARGET_WORDS] = {(uint64_t)process->index << 8 | 2,
            (uint64_t)graph->graph << 32 | graph->device,
            (uint64_t)graph->context << 32 | graph->stream};
    bool fresh;
    uint32_t number = target_number(process->gpu, key, &fresh);
    if (fresh) {
        uint32_t stream = gpu_stream_row(process, graph->device, graph->context, graph->stream);
        *target_of(process->gpu, number) = (struct gpu_target){.kind = 1,
                .stream = stream,
                .graph = graph->graph,
                .bytes = BATCH_NULL,
                .memory = BATCH_NULL};
    }
    return number;
}

static void work_write(struct gpu_recorder *gpu, int64_t id, const struct op *op)
{
    struct gpu_process *process = gpu->processes[op->process];
    const struct gpu_target *target = target_of(gpu, op->target);
    uint32_t name = op->call_ns != OP_NO_CALL ? gpu_string_row(process, op->call_name) : 0;
    uint32_t thread = op->call_ns != OP_NO_CALL ? gpu_thread_row(process, op->call_tid) : 0;
    int64_t *row = batch_row(gpu->batch, BATCH_WORK);
    row[0] = id;
    row[1] = target->kind;
    row[2] = target->stream;
    row[3] = target->kernel ? (int64_t)target->kernel : BATCH_NULL;
    row[4] = name ? (int64_t)name : BATCH_NULL;
    row[5] = thread ? (int64_t)thread : BATCH_NULL;
    row[6] = target->bytes;
    row[7] = target->memory;
    row[8] = target->graph ? (int64_t)target->graph : BATCH_NULL;
    row[9] = target->graph_node ? (int64_t)target->graph_node : BATCH_NULL;
}

int64_t gpu_work_row(struct gpu_recorder *gpu, const struct op *op)
{
    struct gpu_target *target = target_of(gpu, op->target);
    uint32_t name = op->call_ns != OP_NO_CALL ? op->call_name : 0,
             tid = op->call_ns != OP_NO_CALL ? op->call_tid : 0;
    if (target->last_work && target->last_name == name && target->last_tid == tid)
        return target->last_work;
    bool fresh;
    uint64_t key[2] = {op->target, (uint64_t)name << 32 | tid};
    uint32_t number = gpu_number(gpu->work_ids, key, 2, GPU_WORKS_MAX, &fresh);
    if (number == INTERN_NONE) {
        intern_clear(gpu->work_ids); // some will have a second row
        number = gpu_number(gpu->work_ids, key, 2, GPU_WORKS_MAX, &fresh);
    }
    gpu->works =
            vector_reserve(gpu->works, &gpu->work_capacity, (size_t)number + 1, sizeof *gpu->works);
    if (fresh) {
        gpu->works[number] = (uint32_t)++gpu->work_last;
        work_write(gpu, gpu->works[number], op);
    }
    target->last_name = name;
    target->last_tid = tid;
    target->last_work = gpu->works[number];
    return target->last_work;
}
