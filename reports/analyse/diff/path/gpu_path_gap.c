// SPDX-License-Identifier: Apache-2.0
// Why the device had nothing. The next operation tells: its call began after the gap did or lasted
// into it, then the host was late, and what it did meanwhile is host_path's to say; between the
// call's end and the begin it is the launch's own latency; the call was over long before, then the
// device took its time between two. A host that is late because a call held it up until the queue
// was empty (a wait for the device, cudaMalloc and cudaFree, a module that is loaded) owes the time
// to that call, not to the kernels behind it: that is how an added wait shows. One rank; one owner
// thread.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/hash.h"
#include "common/containers/map.h"
#include "common/strings.h"
#include "reports/analyse/diff/path/gpu_path_parts.h"
#include "reports/analyse/names/wordlists.h"

enum {
    // between two operations that were queued; longer ones wait for something that is not known
    BETWEEN_NS_MAX = 20000,
    // from the end of a call to the begin on an idle device; measured 3 to 8 us
    LATENCY_NS_MAX = 10000,
    RESUME_NS_MAX = 50000, // from the return of a call that waited to the next operation in the
                           // queue: still that call's cost
    LATE_NS_MAX = 100000, // shorter ones between ticks 1 to 10 ms apart: samples would scatter them
                          // over functions by chance
    CLOCK_NS = 2000,      // what host and device may disagree about
    LOOK_BACK_MAX = 64
};

enum gap { // between two operations of levels a and b: a * GPU_LEVEL_COUNT + b
    GAP_LATENCY = GPU_LEVEL_COUNT * GPU_LEVEL_COUNT,
    GAP_FIRST,
    GAP_COUNT
};

struct wait { // a call that holds up its thread
    int64_t begin, end;
    int64_t end_max; // of it and all before it
    const char *name;
    uint32_t thread;
    bool waits; // for the device
};

struct gpu_gaps {
    struct wait *waits;
    size_t wait_count, at; // at: the first one that begins at or after the last gap's begin
    struct map nodes;      // by place and name: leaves
    struct recent {        // most gaps are like one of the last
        const char *name;
        uint32_t place, leaf;
        enum cost_class class;
    } recent[4];
    const char *names[GAP_COUNT], *late; // of short ones: between levels, and the rest
    struct last { // leaves of them in the phase of the last one, short and long; COST_NONE: not
                  // asked for
        uint32_t phase, leaves[GAP_COUNT][2];
    } last;
    // The wait for the device that found the queue full and left it empty, until the host is as far
    // ahead as it was: launches that are late meanwhile may be late by it. COST_NONE: none.
    uint32_t drained, window;
    int64_t ahead, lost; // how long before the device was free the last operation had been
                         // launched; how long before the wait
};

static bool begins(const char *name, const char *part)
{
    return !strncmp(name, part, strlen(part));
}

static bool contains(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

// Calls that return when the device is through with something, and those that take long by
// themselves.
static bool wait_named(const char *name, bool *ret_waits)
{
    const char *rest = begins(name, "cuda") ? name + 4 : begins(name, "cu") ? name + 2 : NULL;
    *ret_waits = false;
    if (!rest)
        return false;
    if (contains(rest, "Synchronize") || (begins(rest, "Memcpy") && !contains(rest, "Async")) ||
            (begins(rest, "Memset") && !contains(rest, "Async")))
        return *ret_waits = true;
    if (begins(rest, "Free") || begins(rest, "MemFree")) {
        *ret_waits = !contains(rest, "Async");
        return true;
    }
    static const char *const slow[] = {"Malloc", "MemAlloc", "HostAlloc", "MemHostAlloc",
            "HostRegister", "MemCreate", "MemMap", "MemUnmap", "ModuleLoad", "LibraryLoad",
            "ModuleUnload", "LibraryUnload", "GraphInstantiate", "FuncGetAttributes", NULL};
    return words_begin(rest, slow);
}

static int by_begin(const void *left, const void *right)
{
    const struct wait *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->end < b->end) - (a->end > b->end);
}

struct gpu_gaps *gpu_gaps_new(struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    struct gpu_gaps *gaps = xcalloc(1, sizeof *gaps);
    size_t threads = trace->host ? trace->host->thread_count : 0;
    // others' waits (a watchdog's) hold up nothing
    bool *launches = xcalloc(threads + 1, sizeof *launches);
    for (size_t i = 0; i < trace->work_count; i++)
        if (trace->works[i].rank == path->rank && trace->works[i].thread < threads)
            launches[trace->works[i].thread] = true;
    gaps->waits = xcalloc(trace->call_count + 1, sizeof *gaps->waits);
    for (size_t i = 0; i < trace->call_count; i++) {
        const struct launch_call *call = &trace->calls[i];
        bool waits;
        if (call->rank != path->rank || !call->name || call->end <= call->begin ||
                !wait_named(call->name, &waits) ||
                (call->thread < threads && !launches[call->thread] &&
                        call->thread != trace->ranks[path->rank].thread))
            continue;
        gaps->waits[gaps->wait_count++] = (struct wait){.begin = call->begin,
                .end = call->end,
                .thread = call->thread,
                .waits = waits,
                .name = cost_tree_text(path->tree, call->name)};
    }
    free(launches);
    qsort(gaps->waits, gaps->wait_count, sizeof *gaps->waits, by_begin);
    int64_t end = INT64_MIN;
    for (size_t i = 0; i < gaps->wait_count; i++)
        gaps->waits[i].end_max = end = end > gaps->waits[i].end ? end : gaps->waits[i].end;
    static const char *const words[3] = {"kernel", "communication", "copy"};
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            char name[64];
            snprintf(name, sizeof name, "between %s and %s", words[a], words[b]);
            gaps->names[a * GPU_LEVEL_COUNT + b] = cost_tree_text(path->tree, name);
        }
    gaps->last.phase = gaps->drained = gaps->window = COST_NONE;
    gaps->names[GAP_LATENCY] = cost_tree_text(path->tree, "launch latency");
    gaps->names[GAP_FIRST] = cost_tree_text(path->tree, "before the first");
    gaps->late = cost_tree_text(path->tree, "the host launches late");
    return gaps;
}

void gpu_gaps_free(struct gpu_gaps *gaps)
{
    if (!gaps)
        return;
    map_free(&gaps->nodes);
    free(gaps->waits);
    free(gaps);
}

// name: a text of the tree. The same name of a place has one leaf a class.
static uint32_t leaf_of(struct gpu_path *path, uint32_t place, enum cost_kind kind,
        enum cost_class class, const char *name)
{
    struct recent *recent = &path->gaps->recent[((uintptr_t)name >> 4 ^ place) % 4];
    if (recent->name == name && recent->place == place && recent->class == class)
        return recent->leaf;
    uint64_t key = hash_mix((uint64_t)(uintptr_t)name, (uint64_t)place << 8 | (uint64_t) class);
    for (;; key++) { // another leaf of the same hash: the next key
        uint32_t *slot = map_put(&path->gaps->nodes, key);
        if (*slot == COST_NONE)
            *slot = cost_tree_child(path->tree, place,
                    &(struct cost_key){.kind = kind, .class = class, .name = name});
        const struct cost_node *node = &path->tree->nodes[*slot];
        if (node->name != name || node->parent != place || node->class != class)
            continue;
        *recent = (struct recent){.name = name, .place = place, .leaf = *slot, .class = class};
        return *slot;
    }
}

static void give(
        struct gpu_path *path, uint32_t place, enum cost_kind kind, const char *name, int64_t ns)
{
    if (ns <= 0)
        return;
    struct gpu_amount *amount =
            gpu_amount(path, leaf_of(path, place, kind, COST_LAUNCH_BOUND, name));
    amount->ns += ns;
    amount->busy_ns += ns;
    amount->count++;
}

static uint32_t phase_above(const struct cost_tree *tree, uint32_t node)
{
    while (node && tree->nodes[node].kind != COST_PHASE)
        node = tree->nodes[node].parent;
    return node;
}

void gpu_gap_flush(struct gpu_path *path, uint32_t leaf, const struct gpu_amount *amount)
{
    struct cost_late late = {.node = leaf, .window = path->window, .ns = amount->late_ns};
    late.gap = leaf_of(
            path, path->tree->nodes[leaf].parent, COST_GAP, COST_LAUNCH_BOUND, path->gaps->late);
    if (late.ns)
        cost_tree_late(path->tree, &late);
    late.ns = amount->latency_ns;
    if (!late.ns)
        return;
    late.gap = leaf_of(path, phase_above(path->tree, leaf), COST_GAP, COST_LAUNCH_BOUND,
            path->gaps->names[GAP_LATENCY]);
    cost_tree_late(path->tree, &late);
}

static void give_wait(struct gpu_path *path, const struct wait *wait, int64_t ns)
{
    uint32_t place = gpu_place_at(path, wait->thread, wait->begin);
    give(path, place, COST_SYNC, wait->name, ns);
    struct gpu_gaps *gaps = path->gaps;
    if (!wait->waits || ns <= 0 || (gaps->ahead <= 0 && gaps->drained == COST_NONE))
        return;
    gaps->lost = gaps->drained == COST_NONE ? gaps->ahead : gaps->lost;
    gaps->drained = leaf_of(path, place, COST_SYNC, COST_LAUNCH_BOUND, wait->name);
}

// What went to a leaf, if a wait has drained the queue. What takes longer than launches do is
// something else that the host did.
static void give_drained(struct gpu_path *path, uint32_t leaf, int64_t ns)
{
    uint32_t wait = path->gaps->drained;
    if (wait != COST_NONE && ns > 0 && ns <= LATE_NS_MAX)
        cost_tree_late(path->tree,
                &(struct cost_late){.node = wait, .gap = leaf, .window = path->window, .ns = ns});
}

// What the host did while the device waited for it. The few us that a launch comes late have a
// better place than samples could give: the module whose operation was late. Recorders tell no
// stall as short as that.
static void give_host(struct gpu_path *path, int64_t begin, int64_t end,
        const struct launch_op *next, uint32_t next_leaf)
{
    if (begin >= end)
        return;
    const struct launch_rank *rank = &path->trace->ranks[path->rank];
    if (end - begin > LATE_NS_MAX && path->trace->host && path->trace->host_work &&
            rank->thread != LAUNCH_TRACE_NONE && rank->process != LAUNCH_TRACE_NONE) {
        host_path_add(path->host, path->rank, begin, end, COST_LAUNCH_BOUND, path->window);
        return;
    }
    uint32_t late_phase = next ? gpu_place_phase(path, gpu_call_begin(next)) : COST_NONE;
    while (begin < end) { // each phase its own; in the last one the module of what was late
        int64_t to = gpu_place_phase_end(path, begin);
        to = to < end ? to : end;
        uint32_t phase = gpu_place_phase(path, begin);
        bool known = to == end && next_leaf != COST_NONE && late_phase == phase;
        uint32_t place = known ? path->tree->nodes[next_leaf].parent : phase;
        give(path, place, COST_GAP, path->gaps->late, to - begin);
        give_drained(path, leaf_of(path, place, COST_GAP, COST_LAUNCH_BOUND, path->gaps->late),
                to - begin);
        if (known)
            gpu_amount(path, next_leaf)->late_ns += to - begin;
        begin = to;
    }
}

// The call that waited for the device when it ran dry at `at`; the one that returned last. NULL:
// there is none.
static const struct wait *wait_in_progress(struct gpu_gaps *gaps, int64_t at)
{
    while (gaps->at < gaps->wait_count && gaps->waits[gaps->at].begin < at)
        gaps->at++;
    while (gaps->at && gaps->waits[gaps->at - 1].begin >= at)
        gaps->at--;
    const struct wait *best = NULL;
    for (size_t i = gaps->at, k = 0;
            i-- > 0 && k < LOOK_BACK_MAX && gaps->waits[i].end_max >= at - CLOCK_NS; k++)
        if (gaps->waits[i].waits && gaps->waits[i].end >= at - CLOCK_NS &&
                (!best || gaps->waits[i].end > best->end))
            best = &gaps->waits[i];
    return best;
}

// A copy that the host waited for is no call of its own: it is the one that launched the copy.
static bool copy_waited(
        struct gpu_path *path, const struct launch_op *before, int64_t at, struct wait *ret)
{
    const struct launch_work *work = before ? &path->trace->works[before->work] : NULL;
    bool waits;
    if (!work || !work->call_name || before->call_ago == UINT32_MAX ||
            before->call_dur == UINT32_MAX || work->kind < 16 ||
            !wait_named(work->call_name, &waits) || !waits)
        return false;
    *ret = (struct wait){.begin = gpu_call_begin(before), .thread = work->thread, .waits = true};
    ret->end = ret->begin + before->call_dur;
    ret->name = cost_tree_text(path->tree, work->call_name);
    return ret->end >= at - CLOCK_NS;
}

// [begin, end): the host had not launched yet. Not inlined: most gaps are the device's own.
static __attribute__((noinline)) void gap_host(struct gpu_path *path, int64_t begin, int64_t end,
        const struct launch_op *before, const struct launch_op *next, uint32_t next_leaf)
{
    struct gpu_gaps *gaps = path->gaps;
    const struct wait *wait = wait_in_progress(gaps, begin);
    struct wait copy;
    int64_t now = begin;
    if (!wait && copy_waited(path, before, begin, &copy))
        wait = &copy;
    if (wait) {
        int64_t until = wait->end + (next ? RESUME_NS_MAX : 0);
        until = until < end ? until : end;
        if (until > now) {
            give_wait(path, wait, until - now);
            now = until;
        }
    }
    for (size_t i = gaps->at; i < gaps->wait_count && gaps->waits[i].begin < end; i++) {
        wait = &gaps->waits[i];
        int64_t from = wait->begin > now ? wait->begin : now,
                to = wait->end < end ? wait->end : end;
        if (to <= from)
            continue;
        give_host(path, now, from, next, next_leaf);
        give_wait(path, wait, to - from);
        now = to;
    }
    give_host(path, now, end, next, next_leaf);
}

// The leaf of what the device took before an operation. Ten millions of them alternate between a
// few.
static inline uint32_t gap_leaf(
        struct gpu_path *path, const struct launch_op *next, enum gap gap, bool idle)
{
    struct last *last = &path->gaps->last;
    uint32_t phase = gpu_place_phase(path, gpu_call_begin(next));
    if (last->phase != phase) {
        memset(last->leaves, 0xff, sizeof last->leaves);
        last->phase = phase;
    }
    uint32_t *leaf = &last->leaves[gap][idle];
    if (*leaf == COST_NONE)
        *leaf = leaf_of(path, phase, COST_GAP, idle ? COST_IDLE : COST_LAUNCH_BOUND,
                path->gaps->names[gap]);
    return *leaf;
}

void gpu_gap_add(struct gpu_path *path, int64_t begin, int64_t end, const struct launch_op *before,
        const struct launch_op *next, uint32_t next_leaf)
{
    struct gpu_gaps *gaps = path->gaps;
    int64_t launched = end; // what is before it is the host's
    bool known = next && next->call_ago != UINT32_MAX, latency = false;
    if (known) {
        int64_t call = gpu_call_begin(next);
        launched = call + (next->call_dur == UINT32_MAX ? 0 : next->call_dur);
        // it waited for the operation itself: the queue had it before
        if (launched > end && call < begin)
            launched = call;
        latency = launched > begin || end - launched <= LATENCY_NS_MAX;
        launched = launched < begin ? begin : launched > end ? end : launched;
    } else if (next && end - begin <= BETWEEN_NS_MAX) {
        launched = begin; // a node of a graph, or a call that was lost
    }
    if (gaps->window != path->window) {
        gaps->window = path->window;
        gaps->drained = COST_NONE;
        gaps->ahead = 0;
    }
    int64_t ahead = known && !latency ? begin - gpu_call_begin(next) : 0;
    if (ahead >= gaps->lost)
        gaps->drained = COST_NONE;
    if (launched > begin)
        gap_host(path, begin, launched, before, next, next_leaf);
    gaps->ahead = ahead;
    if (launched == end)
        return;
    int gap = latency ? GAP_LATENCY : GAP_FIRST;
    if (!latency && before)
        gap = path->levels[before->work] * GPU_LEVEL_COUNT + path->levels[next->work];
    struct gpu_amount *amount =
            gpu_amount(path, gap_leaf(path, next, (enum gap)gap, end - launched > BETWEEN_NS_MAX));
    amount->ns += end - launched;
    amount->busy_ns += end - launched;
    amount->count++;
    if (gap == GAP_LATENCY && end - launched <= BETWEEN_NS_MAX)
        give_drained(path, gap_leaf(path, next, GAP_LATENCY, false), end - launched);
    if (gap == GAP_LATENCY && end - launched <= BETWEEN_NS_MAX &&
            phase_above(path->tree, next_leaf) == path->gaps->last.phase)
        gpu_amount(path, next_leaf)->latency_ns += end - launched;
}
