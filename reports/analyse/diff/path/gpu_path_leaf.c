// SPDX-License-Identifier: Apache-2.0
// Which leaf of the cost tree an operation is: at its place it is the k-th of its name and shape in
// its step. Ten millions of operations repeat a few thousand leaves, so what does not change from
// one to the next is looked up beforehand: a label for each work. What is left is the place and one
// look-up by place and label. One rank; one owner thread.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/hash.h"
#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "contracts/spool.h"
#include "reports/analyse/diff/path/gpu_path_parts.h"

enum {
    AHEAD = 8, // steps that are on the device at one time: a stream may be ahead of another one by
               // as many
    OCCURRENCE_MAX = 4096, // of one kernel at one place in a step: those after it are one leaf
    STRETCHES = 4,         // at a time, by line: two threads launch by turns
    LEAVES_MAX = 1 << 18   // after it no occurrences of their own: memory stays bounded whatever a
                           // trace holds
};

struct label { // what an operation is, without its place
    enum cost_kind kind;
    enum cost_class class;
    const char *name; // of the tree
    struct cost_shape shape;
    struct cost_collective collective;
};

struct leaf_work {
    uint32_t label;
    uint32_t line; // time line of the thread; COST_NONE: its module is `module`
    uint32_t module;
};

// Between two changes of phase, module and step: what operations of one line have in common.
struct stretch {
    int64_t begin, end;
    uint32_t line, module; // as of leaf_work
    uint32_t place, step;
};

struct entry { // of a label at a place
    uint64_t key;
    uint32_t after; // the entry that came behind it the last time: steps repeat, and so it is
                    // mostly that one again
    uint32_t count, capacity; // of nodes
    uint32_t *nodes;
    uint32_t step[AHEAD];
    uint16_t next[AHEAD]; // below OCCURRENCE_MAX
};

struct gpu_leaves {
    struct label *labels;
    struct entry *entries;
    struct leaf_work *works;
    struct map label_map, entry_map;
    uint32_t *collective_labels; // by row of trace->nccl; COST_NONE: not asked for yet
    const struct launch_step *steps;
    size_t label_count, entry_count, step_count, leaf_count;
    size_t step; // cursor
    uint32_t last_entry;
    uint32_t position[AHEAD], position_step[AHEAD];
    struct stretch stretches[STRETCHES];
};

// --- labels

static uint32_t label_of(struct gpu_path *path, struct label label)
{
    struct gpu_leaves *leaves = path->leaves;
    label.name = cost_tree_text(path->tree, label.name ? label.name : "?");
    uint64_t key = cost_shape_hash(
            hash_mix((uint64_t)(uintptr_t)label.name, (uint64_t)label.kind), &label.shape);
    uint32_t *slot;
    for (;; key++) { // another one of the same hash: the next key
        slot = map_put(&leaves->label_map, key);
        if (*slot == COST_NONE)
            break;
        const struct label *there = &leaves->labels[*slot];
        if (there->name == label.name && there->kind == label.kind && there->class == label.class &&
                cost_shape_same(&there->shape, &label.shape))
            return *slot;
    }
    *slot = (uint32_t)leaves->label_count;
    vector_push(leaves->labels, leaves->label_count, label);
    return *slot;
}

static struct label kernel_label(const struct launch_kernel *kernel)
{
    struct label label = {.kind = kernel->comm ? COST_COLLECTIVE : COST_KERNEL,
            .class = kernel->comm ? COST_COMM_EXPOSED : COST_GPU_COMPUTE,
            .name = kernel->name};
    memcpy(label.shape.grid, kernel->grid, sizeof label.shape.grid);
    memcpy(label.shape.block, kernel->block, sizeof label.shape.block);
    label.shape.registers = kernel->registers;
    label.shape.shared_bytes = kernel->shared_bytes;
    label.shape.local_bytes = kernel->local_bytes;
    return label;
}

static const char *memory_word(unsigned memory) // CUpti_ActivityMemoryKind
{
    return memory == 1                   ? " pageable"
            : memory == 2                ? " pinned"
            : memory == 5 || memory == 7 ? " managed"
                                         : "";
}

static struct label transfer_label(const struct launch_work *work, char *buf, size_t size)
{
    static const char *const words[] = {
            "copy", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
    unsigned kind = work->kind >= 16 ? work->kind - 16u : 0, memory = 0;
    if (kind == UG_COPY_HTOD || kind == UG_COPY_HTOA)
        memory = work->memory / 16;
    else if (kind == UG_COPY_DTOH || kind == UG_COPY_ATOH)
        memory = work->memory % 16;
    if (kind == UG_COPY_SET)
        snprintf(buf, size, "set");
    else
        snprintf(buf, size, "%s%s", kind < sizeof words / sizeof *words ? words[kind] : "copy",
                memory_word(memory));
    return (struct label){
            .kind = COST_TRANSFER, .class = COST_COPY, .name = buf, .shape.bytes = work->bytes};
}

// --- operations

// A kernel of NCCL is what NCCL says it does; when it says nothing, the kernel.
static uint32_t collective_label(struct gpu_path *path, const struct launch_op *op, uint32_t kernel)
{
    struct gpu_leaves *leaves = path->leaves;
    size_t row = gpu_comm_row(path, op);
    if (row == SIZE_MAX)
        return kernel;
    if (leaves->collective_labels[row] == COST_NONE) {
        struct label label = {.kind = COST_COLLECTIVE,
                .class = COST_COMM_EXPOSED,
                .shape.bytes = path->trace->nccl[row].bytes};
        label.name = gpu_comm_name(path->tree, &path->trace->nccl[row], &label.collective);
        leaves->collective_labels[row] = label_of(path, label);
    }
    return leaves->collective_labels[row];
}

static void works_load(struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    struct gpu_leaves *leaves = path->leaves;
    leaves->works = xcalloc(trace->work_count + 1, sizeof *leaves->works);
    leaves->collective_labels = xcalloc(trace->nccl_count + 1, sizeof *leaves->collective_labels);
    memset(leaves->collective_labels, 0xff,
            (trace->nccl_count + 1) * sizeof *leaves->collective_labels);
    for (size_t i = 0; i < trace->work_count; i++) {
        const struct launch_work *work = &trace->works[i];
        struct leaf_work *ret = &leaves->works[i];
        char name[64];
        if (work->rank != path->rank)
            continue;
        struct label label = {
                .kind = COST_KERNEL, .class = COST_GPU_COMPUTE, .name = "[unknown kernel]"};
        if (work->kind == 1)
            label = (struct label){
                    .kind = COST_GRAPH, .class = COST_GPU_COMPUTE, .name = "CUDA graph"};
        else if (work->kind >= 16)
            label = transfer_label(work, name, sizeof name);
        else if (work->kernel < trace->kernel_count)
            label = kernel_label(&trace->kernels[work->kernel]);
        if (path->levels[i] == GPU_COMM && label.kind == COST_KERNEL) {
            label.kind = COST_COLLECTIVE;
            label.class = COST_COMM_EXPOSED;
        }
        ret->label = label_of(path, label);
        ret->line = gpu_place_line(path, work->thread);
        if (work->graph_node && gpu_place_captured(path, work->graph_node, &ret->module))
            ret->line = COST_NONE;
    }
}

struct gpu_leaves *gpu_leaves_new(struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    struct gpu_leaves *leaves = path->leaves = xcalloc(1, sizeof *leaves);
    for (size_t i = 0; i < trace->step_count; i++)
        if (trace->steps[i].rank == path->rank) {
            leaves->steps = leaves->step_count ? leaves->steps : &trace->steps[i];
            leaves->step_count++;
        }
    // before the first: no label has this key
    vector_push(leaves->entries, leaves->entry_count, (struct entry){.key = UINT64_MAX});
    works_load(path);
    return leaves;
}

void gpu_leaves_free(struct gpu_leaves *leaves)
{
    if (!leaves)
        return;
    for (size_t i = 0; i < leaves->entry_count; i++)
        free(leaves->entries[i].nodes);
    map_free(&leaves->label_map);
    map_free(&leaves->entry_map);
    free(leaves->labels);
    free(leaves->entries);
    free(leaves->works);
    free(leaves->collective_labels);
    free(leaves);
}

// The step that a time is in: the last one that had begun.
static uint32_t step_at(struct gpu_leaves *leaves, int64_t at)
{
    const struct launch_step *steps = leaves->steps;
    size_t i = leaves->step;
    if (!leaves->step_count)
        return 0;
    for (int k = 0; k < 8; k++) {
        if (i && at < steps[i].begin)
            i--;
        else if (i + 1 < leaves->step_count && at >= steps[i + 1].begin)
            i++;
        else
            return (uint32_t)(leaves->step = i);
    }
    return (uint32_t)(leaves->step = search_between(middle, 1, leaves->step_count,
                                             steps[middle].begin > at) -
                    1);
}

static struct entry *entry_of(struct gpu_leaves *leaves, uint32_t place, uint32_t label)
{
    uint64_t key = (uint64_t)place << 32 | label;
    struct entry *last = &leaves->entries[leaves->last_entry];
    if (leaves->entries[last->after].key != key) {
        uint32_t *slot = map_put(&leaves->entry_map, key);
        if (*slot == COST_NONE) {
            struct entry entry = {.key = key};
            memset(entry.step, 0xff, sizeof entry.step); // COST_NONE: no step yet
            *slot = (uint32_t)leaves->entry_count;
            vector_push(leaves->entries, leaves->entry_count, entry);
        }
        leaves->entries[leaves->last_entry].after = *slot;
    }
    leaves->last_entry = leaves->entries[leaves->last_entry].after;
    return &leaves->entries[leaves->last_entry];
}

static uint32_t entry_add(
        struct gpu_path *path, struct entry *entry, uint32_t place, const struct label *label)
{
    if (entry->count == entry->capacity) { // mostly there is one: what thousands of entries have
                                           // stays close together
        entry->capacity = entry->capacity ? entry->capacity * 4 : 2;
        entry->nodes = xrealloc(entry->nodes, entry->capacity * sizeof *entry->nodes);
    }
    uint32_t node = cost_tree_child(path->tree, place,
            &(struct cost_key){.kind = label->kind,
                    .class = label->class,
                    .name = label->name,
                    .shape = &label->shape,
                    .occurrence = entry->count,
                    .collective = &label->collective});
    entry->nodes[entry->count++] = node;
    path->leaves->leaf_count++;
    return node;
}

// When it began and when the next one does.
static void stretch_cut(struct stretch *stretch, int64_t begin, int64_t end)
{
    stretch->begin = begin > stretch->begin ? begin : stretch->begin;
    stretch->end = end < stretch->end ? end : stretch->end;
}

static void stretch_cut_timeline(struct stretch *stretch, const struct gpu_timeline *timeline)
{
    size_t at = timeline->cursor;
    stretch_cut(
            stretch, timeline->at[at], at + 1 < timeline->count ? timeline->at[at + 1] : INT64_MAX);
}

static __attribute__((noinline)) void stretch_find(
        struct gpu_path *path, const struct leaf_work *work, int64_t call, struct stretch *ret)
{
    struct gpu_leaves *leaves = path->leaves;
    uint32_t module = work->module, phase = gpu_timeline_at(&path->phases, call);
    *ret = (struct stretch){
            .begin = INT64_MIN, .end = INT64_MAX, .line = work->line, .module = work->module};
    stretch_cut_timeline(ret, &path->phases);
    if (work->line != COST_NONE) {
        module = gpu_timeline_at(&path->lines[work->line], call);
        stretch_cut_timeline(ret, &path->lines[work->line]);
    }
    ret->place = gpu_place_of(path, phase, module);
    uint32_t step = ret->step = step_at(leaves, call);
    if (leaves->step_count)
        stretch_cut(ret, step ? leaves->steps[step].begin : INT64_MIN,
                step + (size_t)1 < leaves->step_count ? leaves->steps[step + 1].begin : INT64_MAX);
}

// Where an operation of its kind was in its step: of those that are no more than others before it.
static __attribute__((noinline)) uint32_t leaf_beyond(
        struct gpu_path *path, struct entry *entry, uint32_t place, uint32_t label, uint32_t slot)
{
    struct gpu_leaves *leaves = path->leaves;
    // without steps there is no k-th of one
    uint32_t k = leaves->step_count ? entry->next[slot] : 0;
    bool full = leaves->leaf_count >= LEAVES_MAX && entry->count;
    if (leaves->step_count && k + 1 < OCCURRENCE_MAX && !full)
        entry->next[slot]++;
    if (full)
        k = entry->count - 1;
    return k < entry->count ? entry->nodes[k]
                            : entry_add(path, entry, place, &leaves->labels[label]);
}

uint32_t gpu_leaf_of(struct gpu_path *path, const struct launch_op *op)
{
    struct gpu_leaves *leaves = path->leaves;
    const struct leaf_work *work = &leaves->works[op->work];
    int64_t call = gpu_call_begin(op);
    struct stretch *stretch = &leaves->stretches[work->line % STRETCHES];
    if (call < stretch->begin || call >= stretch->end || work->line != stretch->line ||
            work->module != stretch->module)
        stretch_find(path, work, call, stretch);
    uint32_t label = work->label, step = stretch->step, slot = step % AHEAD, place = stretch->place;
    if (path->levels[op->work] == GPU_COMM)
        label = collective_label(path, op, label);
    struct entry *entry = entry_of(leaves, place, label);
    if (!leaves->step_count)
        return entry->count ? entry->nodes[0] : leaf_beyond(path, entry, place, label, 0);
    if (entry->step[slot] != step) {
        entry->step[slot] = step;
        entry->next[slot] = 0;
    }
    if (leaves->position_step[slot] != step) {
        leaves->position_step[slot] = step;
        leaves->position[slot] = 0;
    }
    uint32_t k = entry->next[slot], node;
    if (k < entry->count) {
        node = entry->nodes[k];
        entry->next[slot] = (uint16_t)(k + (k + 1 < OCCURRENCE_MAX));
    } else {
        node = leaf_beyond(path, entry, place, label, slot);
    }
    struct gpu_amount *amount = gpu_amount(path, node);
    amount->placed++;
    amount->place_sum += leaves->position[slot]++;
    return node;
}
