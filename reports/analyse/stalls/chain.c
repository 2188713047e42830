// SPDX-License-Identifier: Apache-2.0
// Wait-for chains. A thread that waits for another one lost its time to whatever the other one lost
// it to: waker W ended our wait, so what did W do meanwhile? Its own stalls take the blame when
// they cover half of our wait, also across the processes of the target; a W that worked takes none.
// Then the soft waits are decided: a stall, or idle.
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/parts.h"
#include "reports/analyse/stalls/ranks/ranks.h"

struct chain {
    struct part_hop hops[STALL_CHAIN_MAX];
    int count;
    uint32_t visited[STALL_CHAIN_MAX + 1];
    uint32_t last;          // thread reached
    const struct part *end; // a stall that explains the wait; NULL: none
    int64_t end_ns;         // how much of it
    bool cycle;             // it waited for us
    bool worked;            // the last one was on the CPU
};

static bool chain_visited(const struct chain *chain, uint32_t thread)
{
    for (int i = 0; i <= chain->count; i++)
        if (chain->visited[i] == thread)
            return true;
    return false;
}

// The stall of `thread` that covers most of [begin, end): its longest part, and the time of that
// cause.
static const struct part *chain_dominant(const struct work *work, uint32_t thread, int64_t begin,
        int64_t end, bool soft, int64_t *ret_ns)
{
    int64_t sum[CAUSE_COUNT + 1] = {0};
    int64_t longest[CAUSE_COUNT + 1] = {0};
    const struct part *parts[CAUSE_COUNT + 1] = {NULL};
    uint32_t last, first = parts_range(work, thread, begin, end, &last);
    for (uint32_t i = first; i < last; i++) {
        const struct part *part = &work->parts[i];
        int64_t overlap = parts_overlap(begin, end, part->begin, part->end);
        if (!overlap || (part->soft != SOFT_NO) != soft)
            continue;
        sum[part->cause] += overlap;
        if (overlap > longest[part->cause]) {
            longest[part->cause] = overlap;
            parts[part->cause] = part;
        }
    }
    int best = CAUSE_COUNT;
    for (int i = 0; i < CAUSE_COUNT; i++)
        if (i != CAUSE_UNKNOWN && sum[i] > (best == CAUSE_COUNT && !soft ? 0 : sum[best]))
            best = i;
    *ret_ns = sum[best];
    return parts[best];
}

// Waits whose blame goes on to what held the other one up. A kernel lock stays the cause of its
// waits: there it counts that it was held, unless the holder itself was stopped from outside.
static bool chain_goes_on(enum cause cause)
{
    return cause == CAUSE_PTHREAD_MUTEX || cause == CAUSE_GIL_WAIT || cause == CAUSE_PIPE_WRITE ||
            cause == CAUSE_FUSE_HANG;
}

// What was done to the waiting one from outside, as opposed to what it does of its own will.
static bool chain_is_outside(enum cause cause)
{
    static const bool outside[CAUSE_COUNT + 1] = {
            [CAUSE_SIGSTOP] = true,
            [CAUSE_CGROUP_FREEZER] = true,
            [CAUSE_PTRACE] = true,
            [CAUSE_CPU_QUOTA] = true,
            [CAUSE_RT_HOG] = true,
            [CAUSE_SMAPS_READ] = true,
            [CAUSE_FORK_LARGE] = true,
    };
    return outside[cause];
}

// The soft waits of `thread` in [begin, end): somebody waits for it meanwhile, so they are not
// idle.
static void chain_mark_needed(struct work *work, uint32_t thread, int64_t begin, int64_t end)
{
    uint32_t last, first = parts_range(work, thread, begin, end, &last);
    for (uint32_t i = first; i < last; i++)
        if (work->parts[i].soft != SOFT_NO &&
                parts_overlap(begin, end, work->parts[i].begin, work->parts[i].end))
            work->needed[i] = 1;
}

static void chain_walk(
        struct work *work, struct chain *chain, const struct part *from, int64_t begin, int64_t end)
{
    const struct trace *trace = work->trace;
    while (chain->count < STALL_CHAIN_MAX && from->waits_for != TRACE_NONE) {
        uint32_t to = from->waits_for;
        if (chain_visited(chain, to)) {
            chain->cycle = true;
            return;
        }
        chain->hops[chain->count++] = (struct part_hop){from->thread, to, from->gap, from->via};
        chain->visited[chain->count] = to;
        chain->last = to;
        if (!trace_is_target(trace, to))
            return;
        if (trace->threads[chain->visited[0]].leads)
            chain_mark_needed(work, to, begin, end);
        int64_t hard_ns, soft_ns;
        const struct part *hard = chain_dominant(work, to, begin, end, false, &hard_ns);
        const struct part *soft = chain_dominant(work, to, begin, end, true, &soft_ns);
        chain->worked =
                trace->tick_ns && trace_ran_ns(trace, to, begin, end) * 10 >= (end - begin) * 3;
        if (hard && hard_ns * 2 >= end - begin) {
            if (chain->end && !chain_goes_on(chain->end->cause) && !chain_is_outside(hard->cause))
                return;
            chain->end = hard;
            chain->end_ns = hard_ns;
            from = hard;
        } else if (!chain->end && soft && soft_ns * 2 >= end - begin &&
                soft->waits_for != TRACE_NONE) {
            from = soft;
        } else {
            return;
        }
        begin = from->begin > begin ? from->begin : begin;
        end = from->end < end ? from->end : end;
    }
}

static void chain_keep_hops(struct work *work, struct part *part, const struct chain *chain)
{
    part->hop_first = (uint32_t)work->hop_count;
    part->hop_count = (uint8_t)chain->count;
    for (int i = 0; i < chain->count; i++)
        vector_push(work->hops, work->hop_count, chain->hops[i]);
}

static void chain_take_blame(struct part *part, const struct chain *chain)
{
    const struct part *end = chain->end;
    double covered = (double)chain->end_ns / (double)(part->end - part->begin);
    part->cause = end->cause;
    part->culprit = end->culprit;
    part->culprit_stack = end->culprit_stack;
    part->notes |= end->notes;
    part->sample = part->sample == TRACE_NONE ? end->sample : part->sample;
    part->confidence = end->confidence * (float)(0.7 + 0.3 * (covered > 1 ? 1 : covered));
    part->soft = SOFT_NO;
}

// A compiler that runs as a descendant of the target during half of the wait.
static uint32_t chain_compiler(const struct work *work, const struct part *part)
{
    const struct trace *trace = work->trace;
    if (trace->processes[trace->threads[part->thread].process].compiler)
        return TRACE_NONE;
    uint32_t best = TRACE_NONE;
    int64_t best_ns = (part->end - part->begin) / 2;
    for (size_t i = 0; i < work->compiler_count; i++) {
        const struct trace_process *process = &trace->processes[work->compilers[i]];
        int64_t end = process->ended_ns ? process->ended_ns : INT64_MAX;
        int64_t overlap = parts_overlap(part->begin, part->end, process->started_ns, end);
        if (overlap > best_ns) {
            best_ns = overlap;
            best = process->leader;
        }
    }
    return best;
}

static bool chain_is_child(const struct trace *trace, uint32_t process)
{
    uint32_t parent = trace->processes[process].parent;
    return parent != TRACE_NONE && trace->processes[parent].kind == TRACE_TARGET;
}

// The far end feeds this thread: a loader's frames say so, or it is a worker process of the target.
static bool chain_is_loader(
        const struct work *work, const struct part *part, const struct chain *chain)
{
    const struct trace *trace = work->trace;
    struct marks python = {{0, 0}};
    if (part->gap != TRACE_NONE)
        python = trace_marks(trace, trace->gaps[part->gap].python);
    if (marks_has(python, MARK_WORKER_LOOP) || !trace->threads[part->thread].main ||
            (part->gap != TRACE_NONE && ranks_waits(trace, &trace->gaps[part->gap])))
        return false;
    if (marks_has(python, MARK_LOADER))
        return true;
    uint32_t own = trace->threads[part->thread].process;
    bool feeds = false;
    for (int i = 0; i < chain->count; i++) {
        uint32_t process = trace->threads[chain->hops[i].to].process;
        feeds |= !strncmp(trace->threads[chain->hops[i].to].comm, "pt_data", 7);
        feeds |= process != own && trace->processes[process].kind == TRACE_TARGET &&
                trace->processes[process].parent == own;
    }
    // Main thread, queue's thread, worker: that is how Python's loaders are built. In other
    // programs two hops are any two threads.
    feeds |= chain->count >= 2 && trace->processes[own].python && !chain_is_child(trace, own) &&
            trace->threads[chain->last].process == own;
    return feeds ||
            (marks_has(python, MARK_QUEUE_GET) && chain->count && !chain_is_child(trace, own));
}

static void chain_blame_last(
        struct part *part, const struct chain *chain, enum cause cause, float confidence)
{
    part->cause = (uint8_t)cause;
    part->soft = SOFT_NO;
    part->confidence = confidence;
    if (chain->count && chain->last != TRACE_NONE)
        part->culprit = chain->last;
    else
        part->notes |= STALL_DOUBT_NO_OWNER;
}

// A soft wait of a thread that works. Left soft: idle. needed: a thread that leads the work waits
// for this one meanwhile, or it leads itself. A pool's threads wait for work in the same calls as a
// thread that is held up: only this tells them apart.
static void chain_decide(
        struct work *work, struct part *part, const struct chain *chain, bool needed)
{
    enum { LONG_NS = 10000000, PEER_NS = 20000000 };
    const struct trace *trace = work->trace;
    int64_t length = part->end - part->begin;
    uint32_t compiler =
            part->soft == SOFT_SLEEP || length < LONG_NS ? TRACE_NONE : chain_compiler(work, part);
    if (compiler != TRACE_NONE) {
        chain_blame_last(part, chain, CAUSE_COMPILE_CHILD, 0.9F);
        part->culprit = compiler;
        return;
    }
    if (part->soft == SOFT_OTHER && length >= LONG_NS && part->gap != TRACE_NONE &&
            trace->gaps[part->gap].kernel) {
        part->cause = CAUSE_UNKNOWN;
        part->soft = SOFT_NO;
        part->confidence = 0.3F;
        return;
    }
    if (part->soft == SOFT_SLEEP || part->soft == SOFT_CHILD || chain->cycle || length < 2000000)
        return;
    if (part->soft != SOFT_SOCKET && chain_is_loader(work, part, chain)) {
        chain_blame_last(part, chain, CAUSE_DATA_LOADER, chain->count >= 2 ? 0.9F : 0.8F);
        return;
    }
    if (part->soft == SOFT_SOCKET && length >= PEER_NS) {
        chain_blame_last(part, chain, CAUSE_NETWORK_PEER, chain->count ? 0.85F : 0.6F);
        return;
    }
    // A worker that waits for its parent has nothing to do; a program that waits for its input is
    // starved.
    uint32_t own = trace->threads[part->thread].process;
    uint32_t far = chain->count ? trace->threads[chain->last].process : own;
    if (part->soft == SOFT_PIPE && length >= PEER_NS && far != own &&
            far != trace->processes[own].parent) {
        chain_blame_last(part, chain, CAUSE_DATA_LOADER, 0.7F);
        return;
    }
    if (part->soft == SOFT_FUTEX && needed && length >= LONG_NS && chain->count && !chain->worked &&
            trace->tick_ns)
        chain_blame_last(part, chain, CAUSE_FUTEX_WAIT, 0.7F);
}

static void chain_part(struct work *work, struct part *part, bool needed)
{
    const struct trace *trace = work->trace;
    bool soft = part->soft != SOFT_NO;
    bool waits_for_compiler =
            part->soft == SOFT_CHILD && work->compiler_count && trace->threads[part->thread].main;
    if (soft && !trace->threads[part->thread].working && !waits_for_compiler)
        return;
    if (!soft && (part->waits_for == TRACE_NONE || !trace_is_target(trace, part->waits_for)))
        return;
    struct chain chain = {.last = TRACE_NONE, .visited = {part->thread}};
    chain_walk(work, &chain, part, part->begin, part->end);
    // Somebody who holds a lock or works for others, and shares his CPU: only nearly all of the
    // wait counts.
    if (chain.end &&
            (chain.end->cause == CAUSE_CPU_CONTENTION || chain.end->cause == CAUSE_UNKNOWN) &&
            (!soft || part->soft == SOFT_CHILD || chain.end_ns * 5 < (part->end - part->begin) * 4))
        chain.end = NULL;
    // In a circle the one that waits stands at its own end: then who holds what it waits for is all
    // that can be said.
    if (chain.end && chain.end->culprit == part->thread)
        chain.end = NULL;
    // What nobody waits for is no loss, whatever held up the one that would have given it work. Who
    // waits for a pipe or a connection may serve others than the main thread.
    bool idle = soft && !needed && part->soft != SOFT_PIPE && part->soft != SOFT_SOCKET;
    if (chain.end && !idle &&
            (soft || chain_goes_on(part->cause) || chain_is_outside(chain.end->cause)))
        chain_take_blame(part, &chain);
    else if (soft)
        chain_decide(work, part, &chain, needed);
    if (chain.count && part->soft == SOFT_NO)
        chain_keep_hops(work, part, &chain);
}

// Decides on a copy of each part, so that every chain sees the parts as they were. The waits of
// those that lead come first: they tell whom somebody needs.
void chain_follow(struct work *work)
{
    const struct trace *trace = work->trace;
    struct part *decided = xcalloc(work->part_count + 1, sizeof *decided);
    memcpy(decided, work->parts, work->part_count * sizeof *decided);
    work->needed = xcalloc(work->part_count + 1, 1);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < work->part_count; i++)
            if (trace->threads[work->parts[i].thread].leads == !pass)
                chain_part(work, &decided[i], !pass || work->needed[i]);
    memcpy(work->parts, decided, work->part_count * sizeof *decided);
    free(decided);
    free(work->needed);
    work->needed = NULL;
    for (size_t i = 0; i < work->part_count; i++)
        if (work->parts[i].culprit != TRACE_NONE && trace->threads[work->parts[i].culprit].own) {
            work->parts[i].culprit = TRACE_NONE;
            work->parts[i].notes |= STALL_DOUBT_NO_OWNER;
        }
    size_t kept = 0;
    for (size_t i = 0; i < work->part_count; i++) {
        if (work->parts[i].cause == CAUSE_IDLE)
            work->idle_ns += work->parts[i].end - work->parts[i].begin;
        else
            work->parts[kept++] = work->parts[i];
    }
    work->part_count = kept;
}
