// SPDX-License-Identifier: Apache-2.0
// From parts to causes: same cause, same culprit. Adds up what each thread lost, finds episodes,
// drops what is too little to be called a stall, and ranks by what the worst thread lost.
#include <stdlib.h>
#include <string.h>

#include "common/containers/map.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/group.h"

static const int64_t merge_join_ns = 2000000; // spans nearer than this are one episode
// the same of what samples found, which turns of others cut into pieces, unless their begin and end
// are known
enum { MERGE_JOIN_TICKS = 4 };
static const int64_t merge_single_ns = 100000000; // a single stall of this length always counts

static uint32_t merge_process(const struct trace *trace, uint32_t thread)
{
    return thread == TRACE_NONE ? TRACE_NONE : trace->threads[thread].process;
}

// Programs that share the CPU are one cause together, the largest is named; the program's own
// threads are another.
static uint32_t merge_key(
        const struct trace *trace, const uint32_t *first_alike, const struct part *part)
{
    uint32_t process = merge_process(trace, part->culprit);
    if (part->cause == CAUSE_CPU_CONTENTION && process != trace->threads[part->thread].process)
        return TRACE_NONE;
    return process == TRACE_NONE ? TRACE_NONE : first_alike[process];
}

struct merge_alike {
    const struct trace_process *process;
    uint32_t index;
};

// 0: one and the same program that was started again. Compilers differ in their arguments each
// time.
static int merge_kin(const struct trace_process *a, const struct trace_process *b)
{
    if (a->ppid != b->ppid)
        return a->ppid < b->ppid ? -1 : 1;
    int order = strcmp(a->comm, b->comm);
    if (order || (a->compiler && b->compiler))
        return order;
    return strcmp(a->cmdline ? a->cmdline : "", b->cmdline ? b->cmdline : "");
}

static int merge_by_kin(const void *left, const void *right)
{
    const struct merge_alike *a = left, *b = right;
    return merge_kin(a->process, b->process) ?: trace_order(a->index, b->index);
}

// Children of one parent with one command are one culprit (a script that is started again and
// again, the workers of a loader); init's children and kernel threads only share a parent by
// accident.
static uint32_t *merge_first_alike(const struct trace *trace)
{
    uint32_t *first = xcalloc(trace->process_count + 1, sizeof *first);
    struct merge_alike *list = xcalloc(trace->process_count + 1, sizeof *list);
    for (size_t i = 0; i < trace->process_count; i++)
        list[i] = (struct merge_alike){&trace->processes[i], (uint32_t)i};
    qsort(list, trace->process_count, sizeof *list, merge_by_kin);
    for (size_t i = 0, k = 0; i < trace->process_count; i++) {
        const struct trace_process *process = list[i].process;
        if (process->ppid <= 2 || merge_kin(process, list[k].process))
            k = i;
        first[list[i].index] = list[k].index;
    }
    free(list);
    return first;
}

enum { MERGE_DEEDS = 6, MERGE_DEEDS_MIN = 3 };
static const enum cause merge_deeds[MERGE_DEEDS] = {CAUSE_SMAPS_READ, CAUSE_FORK_LARGE,
        CAUSE_MUNMAP_LARGE, CAUSE_PAGE_POPULATE, CAUSE_KHUGEPAGED, CAUSE_MADVISE_STORM};

struct merge_known { // what a process was seen to hold mmap_lock for
    int64_t ns[MERGE_DEEDS];
    uint32_t count[MERGE_DEEDS];
};

bool groups_deed_known(uint32_t count, int64_t ns, int64_t all)
{
    return count >= MERGE_DEEDS_MIN && ns * 10 >= all * 8;
}

// The one deed that explains 80 % of it and was seen three times; CAUSE_COUNT: none.
static enum cause merge_known_for(const struct merge_known *known)
{
    int64_t all = 0;
    int best = 0;
    for (int i = 0; i < MERGE_DEEDS; i++) {
        all += known->ns[i];
        best = known->ns[i] > known->ns[best] ? i : best;
    }
    return groups_deed_known(known->count[best], known->ns[best], all) ? merge_deeds[best]
                                                                       : CAUSE_COUNT;
}

// A wait for mmap_lock whose holder's deed was not sampled: it is known for one deed in other
// waits, or khugepaged noted what it did.
void groups_explain(struct work *work, int64_t begin, int64_t end)
{
    struct trace *trace = work->trace;
    // of each process outside and inside
    struct merge_known *known = xcalloc(2 * (trace->process_count + 1), sizeof *known);
    for (size_t i = 0; i < work->part_count; i++) {
        const struct part *part = &work->parts[i];
        if (part->culprit == TRACE_NONE || part->via != VIA_MMAP_LOCK)
            continue;
        bool inside = part->begin >= begin && part->begin < end;
        struct merge_known *row = &known[2 * merge_process(trace, part->culprit) + inside];
        for (int k = 0; k < MERGE_DEEDS; k++)
            if (part->cause == merge_deeds[k]) {
                row->ns[k] += part->end - part->begin;
                row->count[k]++;
            }
    }
    for (size_t i = 0; i < work->part_count; i++) {
        struct part *part = &work->parts[i];
        if (part->cause != CAUSE_MMAP_LOCK)
            continue;
        uint32_t process = merge_process(trace, part->culprit);
        bool inside = part->begin >= begin && part->begin < end;
        enum cause deed =
                process == TRACE_NONE ? CAUSE_COUNT : merge_known_for(&known[2 * process + inside]);
        if (deed < CAUSE_COUNT) {
            part->cause = (uint8_t)deed;
            part->notes |= STALL_DOUBT_INFERRED;
            part->confidence *= 0.8F;
        } else if (process == TRACE_NONE) {
            const struct trace_fact *fact =
                    facts_by_other(trace, UG_FACT_COLLAPSE, part->thread, part->begin, part->end);
            part->cause = fact ? CAUSE_KHUGEPAGED : part->cause;
            part->culprit = fact ? fact->actor : part->culprit;
        }
    }
    free(known);
}

// Waits of these kinds are for one lock, file or connection of many.
static bool merge_is_particular(enum cause cause)
{
    static const bool particular[CAUSE_COUNT + 1] = {
            [CAUSE_KERNEL_MUTEX] = true,
            [CAUSE_RWSEM_INODE] = true,
            [CAUSE_DRIVER_LOCK] = true,
            [CAUSE_PTHREAD_MUTEX] = true,
            [CAUSE_FUTEX_WAIT] = true,
            [CAUSE_NETWORK_PEER] = true,
            [CAUSE_DATA_LOADER] = true,
            [CAUSE_PIPE_WRITE] = true,
    };
    return particular[cause];
}

// What a part waited for: the lock's address, or the name of the file. 0: not known.
static uint64_t merge_object(const struct trace *trace, const struct part *part)
{
    if (part->gap == TRACE_NONE)
        return 0;
    const struct trace_gap *gap = &trace->gaps[part->gap];
    if (gap->lock_address)
        return (uint64_t)gap->lock_address;
    const char *target = trace->texts[gap->target];
    return *target ? hash_bytes(0, target, strlen(target)) : 0;
}

// Parts of the cause without a culprit become those of `thread`, of what it is known to have held.
static void merge_adopt_cause(struct work *work, enum cause cause, uint32_t thread)
{
    const struct trace *trace = work->trace;
    uint32_t process = merge_process(trace, thread);
    struct map objects = {0};
    for (size_t i = 0; i < work->part_count && merge_is_particular(cause); i++)
        if (work->parts[i].cause == cause &&
                merge_process(trace, work->parts[i].culprit) == process)
            *map_put(&objects, merge_object(trace, &work->parts[i])) = 0;
    for (size_t i = 0; i < work->part_count; i++) {
        struct part *part = &work->parts[i];
        if (part->cause != cause || part->culprit != TRACE_NONE)
            continue;
        if (merge_is_particular(cause) && map_get(&objects, merge_object(trace, part)) == MAP_NONE)
            continue;
        part->culprit = thread;
        part->notes |= STALL_DOUBT_INFERRED;
        part->confidence *= 0.8F;
    }
    map_free(&objects);
}

// Parts without a culprit go to the one that did most of the same kind, when that is known of most.
static void merge_adopt(struct work *work)
{
    struct trace *trace = work->trace;
    int64_t *by_process = xcalloc(trace->process_count + 1, sizeof *by_process);
    size_t orphans[CAUSE_COUNT] = {0};
    for (size_t i = 0; i < work->part_count; i++)
        orphans[work->parts[i].cause] += work->parts[i].culprit == TRACE_NONE;
    for (int cause = 0; cause < CAUSE_UNKNOWN; cause++) {
        if (!orphans[cause] || cause == CAUSE_CPU_CONTENTION)
            continue;
        int64_t known = 0, all = 0;
        uint32_t best = TRACE_NONE, thread = TRACE_NONE;
        memset(by_process, 0, (trace->process_count + 1) * sizeof *by_process);
        for (size_t i = 0; i < work->part_count; i++) {
            const struct part *part = &work->parts[i];
            if (part->cause != cause)
                continue;
            all += part->end - part->begin;
            uint32_t process = merge_process(trace, part->culprit);
            if (process == TRACE_NONE)
                continue;
            known += part->end - part->begin;
            by_process[process] += part->end - part->begin;
            if (best == TRACE_NONE || by_process[process] > by_process[best]) {
                best = process;
                thread = part->culprit;
            }
        }
        if (best == TRACE_NONE || by_process[best] * 10 < known * 8 || known * 10 < all * 6 ||
                known == all)
            continue;
        merge_adopt_cause(work, (enum cause)cause, thread);
    }
    free(by_process);
}

struct merge_entry {
    const struct part *part;
    uint32_t key;
};

static int merge_by_key(const void *left, const void *right)
{
    const struct merge_entry *a = left, *b = right;
    int order = trace_order(a->part->cause, b->part->cause);
    order = order ?: trace_order(a->key, b->key);
    order = order ?: trace_order(a->part->begin, b->part->begin);
    return order ?: trace_order(a->part->thread, b->part->thread);
}

static int64_t merge_join(const struct trace *trace, const struct part *part)
{
    bool sampled = part->split == SPLIT_ON_CPU && !(part->notes & NOTE_GPU_KNOWN);
    return sampled && trace->tick_ns ? MERGE_JOIN_TICKS * trace->tick_ns : merge_join_ns;
}

static void merge_spans(const struct trace *trace, struct group *group)
{
    group->spans = xcalloc(group->part_count, sizeof *group->spans);
    int64_t covered = INT64_MIN, joined = INT64_MIN;
    for (size_t i = 0; i < group->part_count; i++) {
        const struct part *part = group->parts[i];
        int64_t from = part->begin > covered ? part->begin : covered;
        if (part->end > from)
            group->split_ns[part->split] += part->end - from;
        if (part->begin <= covered && group->span_count) {
            if (part->end > group->spans[group->span_count - 1].end)
                group->spans[group->span_count - 1].end = part->end;
        } else {
            group->spans[group->span_count++] = (struct trace_window){part->begin, part->end};
            group->count += joined == INT64_MIN || part->begin - joined > merge_join(trace, part);
        }
        covered = part->end > covered ? part->end : covered;
        joined = covered;
    }
    for (int i = 0; i < SPLIT_COUNT; i++)
        group->total_ns += group->split_ns[i];
}

struct merge_thread {
    int64_t lost, covered, run, run_end, culprit;
};

// Who held this thread up most, of those that held it up.
static uint32_t merge_culprit_of(
        const struct group *group, uint32_t victim, struct merge_thread *threads)
{
    uint32_t best = TRACE_NONE;
    for (size_t i = 0; i < group->part_count; i++)
        if (group->parts[i]->culprit != TRACE_NONE)
            threads[group->parts[i]->culprit].culprit = 0;
    for (size_t i = 0; i < group->part_count; i++) {
        const struct part *part = group->parts[i];
        if (part->thread != victim || part->culprit == TRACE_NONE)
            continue;
        threads[part->culprit].culprit += part->end - part->begin;
        if (best == TRACE_NONE || threads[part->culprit].culprit > threads[best].culprit)
            best = part->culprit;
    }
    return best;
}

static void merge_threads(
        const struct trace *trace, struct group *group, struct merge_thread *threads)
{
    double weight = 0, all = 0, noted[NOTE_BITS] = {0};
    int64_t worst_culprit = 0;
    for (size_t i = 0; i < group->part_count; i++) { // this group's rows of the table begin empty
        threads[group->parts[i]->thread] =
                (struct merge_thread){.covered = INT64_MIN, .run_end = INT64_MIN};
        if (group->parts[i]->culprit != TRACE_NONE)
            threads[group->parts[i]->culprit].culprit = 0;
    }
    group->worst_thread = group->culprit_thread = TRACE_NONE;
    for (size_t i = 0; i < group->part_count; i++) {
        const struct part *part = group->parts[i];
        struct merge_thread *thread = &threads[part->thread];
        int64_t from = part->begin > thread->covered ? part->begin : thread->covered;
        int64_t own = part->end > from ? part->end - from : 0, length = part->end - part->begin;
        int64_t join = merge_join(trace, part);
        group->threads += !thread->lost;
        thread->lost += own;
        if (thread->run_end == INT64_MIN || part->begin - thread->run_end > join)
            thread->run = 0;
        thread->run += own;
        thread->run_end = thread->covered =
                part->end > thread->covered ? part->end : thread->covered;
        group->max_ns = thread->run > group->max_ns ? thread->run : group->max_ns;
        if (trace->threads[part->thread].leads) {
            group->lead_max_ns =
                    thread->run > group->lead_max_ns ? thread->run : group->lead_max_ns;
            group->lead_ns = thread->lost > group->lead_ns ? thread->lost : group->lead_ns;
        }
        if (thread->lost > group->worst_ns) {
            group->worst_ns = thread->lost;
            group->worst_thread = part->thread;
        }
        if (part->culprit != TRACE_NONE &&
                (threads[part->culprit].culprit += length) > worst_culprit) {
            worst_culprit = threads[part->culprit].culprit;
            group->culprit_thread = part->culprit;
        }
        all += (double)length;
        weight += (double)length * (double)part->confidence;
        for (int bit = 0; bit < NOTE_BITS; bit++)
            noted[bit] += part->notes >> bit & 1 ? (double)length : 0;
    }
    // Threads that want the same lock hold each other up: the one that loses most may hold it most
    // as well, and does not lose to itself.
    if (group->culprit_thread != TRACE_NONE && group->culprit_thread == group->worst_thread) {
        uint32_t other = merge_culprit_of(group, group->worst_thread, threads);
        group->culprit_thread = other == TRACE_NONE ? group->culprit_thread : other;
    }
    group->confidence = all > 0 ? weight / all : 0;
    for (int bit = 0; bit < NOTE_BITS; bit++)
        group->notes |= noted[bit] > 0.3 * all ? 1U << bit : 0;
}

void group_find_steps(const struct trace *trace, struct group *group)
{
    size_t first = 0;
    for (size_t i = 0; i < trace->step_count; i++) {
        const struct trace_window *step = &trace->steps[i];
        int64_t lost = 0;
        while (first < group->span_count && group->spans[first].end <= step->begin)
            first++; // steps are in the order of their begins
        for (size_t k = first; k < group->span_count && group->spans[k].begin < step->end; k++)
            lost += parts_overlap(
                    step->begin, step->end, group->spans[k].begin, group->spans[k].end);
        group->steps_hit += lost * 10 >= step->end - step->begin && lost > 0;
    }
}

// Is it enough to be called a stall? The floors are by how easily a healthy program makes such
// parts.
static bool merge_counts(const struct trace *trace, const struct group *group, double share_min)
{
    double share = trace->window_ns ? (double)group->worst_ns / (double)trace->window_ns : 0;
    bool on_cpu = group->split_ns[SPLIT_ON_CPU] == group->total_ns;
    bool own =
            group->culprit != TRACE_NONE && trace->processes[group->culprit].kind == TRACE_TARGET;
    const int64_t ms = 1000000;
    if (group->cause == CAUSE_OOM_KILL || group->cause == CAUSE_ZOMBIE_MEMCG)
        return group->cause == CAUSE_OOM_KILL || group->total_ns == 1 || share >= 0.02 ||
                group->parts[0]->sample == TRACE_NONE;
    if (share < (share_min > 0 ? share_min : 0.001) &&
            (share_min > 0 || group->max_ns < merge_single_ns))
        return false;
    if (group->count < 3 && group->max_ns < 10 * ms)
        return false;
    switch (group->cause) {
    case CAUSE_CPU_CONTENTION: {
        bool lead =
                group->lead_ns * 50 >= trace->window_ns || group->lead_max_ns >= merge_single_ns;
        return lead || share >= 0.1;
    }
    case CAUSE_UNKNOWN:
    case CAUSE_RT_HOG:
    case CAUSE_GIL_WAIT:
        return share >= 0.01 || group->max_ns >= 20 * ms;
    case CAUSE_DATA_LOADER:
    case CAUSE_FUTEX_WAIT:
    case CAUSE_NETWORK_PEER:
    case CAUSE_GPU_SYNC:
        return share >= 0.05 || group->max_ns >= 200 * ms;
    case CAUSE_SOFTIRQ_STORM:
    case CAUSE_STEAL:
        return share >= 0.05;
    case CAUSE_TLB_SHOOTDOWN:
    case CAUSE_MADVISE_STORM:
        return share >= 0.1 || group->max_ns >= (on_cpu ? 15 : 20) * ms;
    case CAUSE_MUNMAP_LARGE:
    case CAUSE_PAGE_POPULATE:
        return group->max_ns >= 30 * ms || (!on_cpu && share >= 0.005);
    case CAUSE_MMAP_LOCK:
    case CAUSE_KERNEL_MUTEX:
    case CAUSE_PTHREAD_MUTEX:
        return !own || share >= 0.02 || group->max_ns >= 50 * ms;
    default:
        return !on_cpu || share >= 0.03 || group->max_ns >= 20 * ms;
    }
}

// What a group is ranked by: what the leading threads lost, and a quarter of what a helper lost
// beyond that. Turns that neighbours take on a busy machine come second to what somebody does to
// the program, unless they take most of the time.
static double merge_weight(const struct trace *trace, const struct group *group)
{
    double weight = (double)group->lead_ns + 0.25 * (double)(group->worst_ns - group->lead_ns);
    bool turns = (group->cause == CAUSE_CPU_CONTENTION || group->cause == CAUSE_STEAL) &&
            group->lead_ns * 5 < trace->window_ns * 3;
    return turns ? 0.25 * weight : weight;
}

static int merge_by_rank(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    bool a_oom = a->cause == CAUSE_OOM_KILL, b_oom = b->cause == CAUSE_OOM_KILL;
    if (a_oom != b_oom) // what follows from a kill, and what led to it, stands behind it
        return a_oom ? -1 : 1;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return trace_order(a->cause, b->cause);
}

static void merge_group(
        const struct trace *trace, struct group *group, struct merge_thread *threads)
{
    merge_spans(trace, group);
    merge_threads(trace, group, threads);
    group->weight = merge_weight(trace, group);
    if (group->cause != CAUSE_CPU_CONTENTION || group->culprit != TRACE_NONE) {
        group->culprit = merge_process(trace, group->culprit_thread);
        return;
    }
    // Ordinary neighbours have their turns: one is accused only when a fifth of the time is lost.
    group->rival = group->culprit_thread;
    if (group->lead_ns * 5 < trace->window_ns && group->lead_max_ns < 2 * merge_single_ns)
        group->culprit_thread = TRACE_NONE;
    group->culprit = merge_process(trace, group->culprit_thread);
}

void groups_make(struct work *work, double share_min, struct groups *ret_groups)
{
    const struct trace *trace = work->trace;
    merge_adopt(work);
    struct merge_entry *entries = xcalloc(work->part_count + 1, sizeof *entries);
    uint32_t *first_alike = merge_first_alike(trace);
    for (size_t i = 0; i < work->part_count; i++)
        entries[i] = (struct merge_entry){
                &work->parts[i], merge_key(trace, first_alike, &work->parts[i])};
    free(first_alike);
    qsort(entries, work->part_count, sizeof *entries, merge_by_key);
    *ret_groups = (struct groups){.parts = xcalloc(work->part_count + 1, sizeof(struct part *))};
    struct merge_thread *threads = xcalloc(trace->thread_count + 1, sizeof *threads);
    for (size_t i = 0, k; i < work->part_count; i = k) {
        for (k = i; k < work->part_count && entries[k].part->cause == entries[i].part->cause &&
                entries[k].key == entries[i].key;
                k++)
            ret_groups->parts[k] = entries[k].part;
        struct group group = {.cause = entries[i].part->cause,
                .culprit = entries[i].key,
                .rival = TRACE_NONE,
                .parts = ret_groups->parts + i,
                .part_count = k - i};
        merge_group(trace, &group, threads);
        if (!merge_counts(trace, &group, share_min)) {
            free(group.spans);
            continue;
        }
        group_find_steps(trace, &group);
        period_find(trace, &group);
        vector_push(ret_groups->groups, ret_groups->count, group);
    }
    free(entries);
    free(threads);
    if (ret_groups->count)
        qsort(ret_groups->groups, ret_groups->count, sizeof *ret_groups->groups, merge_by_rank);
}

void groups_free(struct groups *groups)
{
    for (size_t i = 0; i < groups->count; i++)
        free(groups->groups[i].spans);
    free(groups->groups);
    free(groups->parts);
    *groups = (struct groups){0};
}
