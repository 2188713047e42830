// SPDX-License-Identifier: Apache-2.0
// What the kernel counted or noted besides gaps and samples: reclaim and compaction in the target's
// own context, softirqs, OOM kills, steal time, the quota's counter, dead cgroups.
#include <stdio.h>
#include <string.h>

#include "common/containers/search.h"
#include "reports/analyse/stalls/parts.h"

const struct trace_fact *facts_by_other(
        const struct trace *trace, int what, uint32_t thread, int64_t begin, int64_t end)
{
    enum { BACK_NS = 2000000000, LATE_NS = 2000000 }; // no fact of interest lasts longer
    bool tallied = what == UG_FACT_MIGRATE;
    for (size_t i = trace_fact_from(trace, begin - BACK_NS);
            i < trace->fact_count && trace->facts[i].begin < end; i++) {
        const struct trace_fact *fact = &trace->facts[i];
        // A tally is a sum, sent with the last of what it counts: only its end is a moment at which
        // something happened. It is noted when the pages are free again, a little late.
        if (tallied && fact->end > end + LATE_NS)
            continue;
        if (fact->what == what && fact->end >= begin && !fact->flags &&
                parts_blamable(trace, fact->actor) &&
                trace->threads[fact->actor].process != trace->threads[thread].process)
            return fact;
    }
    return NULL;
}

static bool facts_named(const struct trace_counter *counter, const char *source, const char *name)
{
    return !strcmp(counter->source, source) && strstr(counter->name, name);
}

static bool facts_throttled_rank(
        const struct trace *trace, int32_t rank, int64_t begin, int64_t end)
{
    const struct trace_throttle *list = trace->throttles;
    size_t low = search_first(middle, trace->throttle_count,
            list[middle].rank > rank || (list[middle].rank == rank && list[middle].end > begin));
    return low < trace->throttle_count && list[low].rank == rank && list[low].begin < end;
}

bool facts_throttled(const struct trace *trace, uint32_t thread, int64_t begin, int64_t end)
{
    int32_t rank = trace->processes[trace->threads[thread].process].rank;
    return facts_throttled_rank(trace, -1, begin, end) ||
            (rank >= 0 && facts_throttled_rank(trace, rank, begin, end));
}

// The thread of the target that ran most, or that ran most on this CPU about then.
static uint32_t facts_busiest(const struct trace *trace)
{
    uint32_t best = TRACE_NONE;
    for (uint32_t i = 0; i < trace->thread_count; i++)
        if (trace_is_target(trace, i) &&
                (best == TRACE_NONE || trace->threads[i].run_ns > trace->threads[best].run_ns))
            best = i;
    return best;
}

static void facts_interval(struct work *work, const struct trace_fact *fact, enum cause cause)
{
    int64_t begin = fact->begin, end = fact->end;
    uint32_t thread = trace_is_target(work->trace, fact->target) ? fact->target : fact->actor;
    if (!trace_is_target(work->trace, thread) || !trace_clip(work->trace, &begin, &end))
        return;
    struct part *part = parts_add(work, thread, begin, end, cause, SPLIT_ON_CPU);
    part->confidence = 0.85F;
    part->culprit_stack = fact->kernel;
}

// A killed process of the target: the rest waits from its death until another took its place, or to
// the end of what was recorded.
static void facts_oom(struct work *work, const struct trace_fact *fact)
{
    const struct trace *trace = work->trace;
    if (!trace_is_target(trace, fact->target))
        return;
    uint32_t process = trace->threads[fact->target].process, victim = TRACE_NONE;
    int64_t end = trace->windows[trace->window_count - 1].end;
    for (size_t i = 0; i < trace->process_count; i++) {
        const struct trace_process *other = &trace->processes[i];
        if (i != process && other->kind == TRACE_TARGET &&
                other->ppid == trace->processes[process].ppid && other->started_ns > fact->begin &&
                other->started_ns < end)
            end = other->started_ns;
    }
    uint32_t parent = trace->processes[process].parent;
    if (parent != TRACE_NONE && trace->processes[parent].kind == TRACE_TARGET)
        victim = trace->processes[parent].leader;
    for (uint32_t i = 0; i < trace->thread_count && victim == TRACE_NONE; i++)
        if (trace_is_target(trace, i) && trace->threads[i].process != process)
            victim = i;
    if (victim == TRACE_NONE) { // it was alone: nobody is left to wait
        victim = fact->target;
        end = trace->processes[process].ended_ns ? trace->processes[process].ended_ns : end;
    }
    int64_t begin = fact->begin;
    // Who worked on lost nothing but the one that was killed: that is told by a part of 1 ns.
    if (end <= begin || trace_ran_ns(trace, victim, begin, end) * 10 >= (end - begin) * 3)
        end = begin + 1;
    if (!trace_clip(trace, &begin, &end))
        return;
    struct part *part = parts_add(work, victim, begin, end, CAUSE_OOM_KILL, SPLIT_BLOCKED);
    part->culprit = fact->target;
    part->confidence = 0.9F;
}

static void facts_softirq(struct work *work, const struct trace_fact *fact)
{
    const struct trace *trace = work->trace;
    int64_t begin = fact->begin, end = fact->end;
    if (!trace_is_target(trace, fact->target) || !trace_clip(trace, &begin, &end))
        return;
    struct part *part =
            parts_add(work, fact->target, begin, end, CAUSE_SOFTIRQ_STORM, SPLIT_ON_CPU);
    part->via = VIA_CPU;
    part->confidence = 0.9F;
}

// One row of neighbouring ticks in page faults: from half a tick before the first to half a tick
// after the last, and nothing of what lies between two rows.
static void facts_moved_row(struct work *work, const struct trace_fact *fact, uint32_t thread,
        uint32_t first, uint32_t last)
{
    const struct trace *trace = work->trace;
    int64_t begin = trace->samples[first].at - trace->tick_ns / 2,
            end = trace->samples[last].at + trace->tick_ns / 2;
    if (!trace_clip(trace, &begin, &end))
        return;
    struct part *part = parts_add(work, thread, begin, end, CAUSE_PAGE_MIGRATION, SPLIT_ON_CPU);
    part->sample = first;
    part->culprit = fact->actor;
    part->culprit_stack = fact->kernel;
    part->confidence = 0.75F;
    part->notes |= STALL_DOUBT_INFERRED;
}

// Somebody else compacts memory: threads of the target that fault meanwhile, twice at least, wait
// for it.
static void facts_moved(struct work *work, const struct trace_fact *fact)
{
    const struct trace *trace = work->trace;
    if (fact->flags || !parts_blamable(trace, fact->actor) || trace_is_target(trace, fact->actor))
        return;
    for (uint32_t thread = 0; thread < trace->thread_count; thread++) {
        if (!trace_is_target(trace, thread) || !trace->threads[thread].sample_count)
            continue;
        uint32_t from = trace_sample_from(trace, thread, fact->begin), first = TRACE_NONE,
                 stop = trace_sample_from(trace, thread, fact->end), last = TRACE_NONE, faults = 0;
        for (uint32_t i = from; i < stop; i++)
            faults += marks_has(trace_marks(trace, trace->samples[i].kernel), MARK_FAULT);
        for (uint32_t i = from; i < stop && faults >= 2; i++) {
            if (!marks_has(trace_marks(trace, trace->samples[i].kernel), MARK_FAULT))
                continue;
            int64_t reach = trace->tick_ns * 16 / 10;
            if (last != TRACE_NONE &&
                    (last + 1 != i || trace->samples[i].at - trace->samples[last].at > reach)) {
                facts_moved_row(work, fact, thread, first, last);
                first = TRACE_NONE;
            }
            first = first == TRACE_NONE ? i : first;
            last = i;
        }
        if (last != TRACE_NONE)
            facts_moved_row(work, fact, thread, first, last);
    }
}

// The share of [begin, end) that the thread was seen on this CPU; without samples, of the window on
// any.
static double facts_share_of(
        const struct trace *trace, uint32_t thread, int cpu, int64_t begin, int64_t end)
{
    const struct trace_thread *row = &trace->threads[thread];
    double share = (double)row->run_ns / (double)trace->window_ns;
    if (row->sample_count && trace->tick_ns) {
        int64_t seen = 0;
        for (uint32_t i = trace_sample_from(trace, thread, begin),
                      stop = trace_sample_from(trace, thread, end);
                i < stop; i++)
            seen += trace->samples[i].cpu == cpu;
        share = (double)(seen * trace->tick_ns) / (double)(end - begin);
    }
    return share > 1 ? 1 : share;
}

// Steal: each second in which the hypervisor took 5 % or more of a CPU, as one piece of time. It
// hits who runs there: the busiest thread's share of it is its share of that CPU.
static void facts_steal(struct work *work)
{
    const struct trace *trace = work->trace;
    uint32_t thread = facts_busiest(trace);
    if (thread == TRACE_NONE || !trace->window_ns)
        return;
    for (size_t i = 1; i < trace->counter_count; i++) {
        const struct trace_counter *now = &trace->counters[i], *last = now - 1;
        if (!facts_named(now, "stat", "steal") || strcmp(now->name, last->name) ||
                now->at <= last->at)
            continue;
        int64_t stolen = now->value - last->value;
        if (stolen * 20 < now->at - last->at)
            continue;
        int cpu = -1;
        sscanf(now->name, "cpu%d", &cpu);
        stolen = (int64_t)((double)stolen * facts_share_of(trace, thread, cpu, last->at, now->at));
        int64_t begin = last->at, end = last->at + stolen;
        if (!trace_clip(trace, &begin, &end))
            continue;
        struct part *part = parts_add(
                work, thread, begin, end < now->at ? end : now->at, CAUSE_STEAL, SPLIT_ON_CPU);
        part->confidence = 0.7F;
        part->notes |= STALL_DOUBT_INFERRED;
    }
}

static int64_t facts_last(const struct trace *trace, const char *source, const char *name)
{
    int64_t value = -1, at = -1;
    for (size_t i = 0; i < trace->counter_count; i++)
        if (facts_named(&trace->counters[i], source, name) && trace->counters[i].at > at) {
            at = trace->counters[i].at;
            value = trace->counters[i].value;
        }
    return value;
}

// Dead cgroups: the kernel counts many more than there are directories. What they cost is in
// samples; that they are there is told even when nobody has paid yet, by a part of 1 ns.
static void facts_zombies(struct work *work)
{
    enum { ZOMBIES_MIN = 500, TIMES = 4 };
    const struct trace *trace = work->trace;
    int64_t groups = facts_last(trace, "cgroups", "num_cgroups"),
            directories = facts_last(trace, "cgroups", "directories");
    uint32_t thread = facts_busiest(trace);
    if (groups < 0 || directories < 0 || groups - directories < ZOMBIES_MIN ||
            groups < TIMES * directories || thread == TRACE_NONE)
        return;
    int64_t begin = trace->windows[0].begin;
    struct part *part = parts_add(work, thread, begin, begin + 1, CAUSE_ZOMBIE_MEMCG, SPLIT_ON_CPU);
    part->confidence = 0.8F;
}

void facts_find(struct work *work)
{
    const struct trace *trace = work->trace;
    for (size_t i = 0; i < trace->fact_count; i++) {
        const struct trace_fact *fact = &trace->facts[i];
        bool lasts = fact->end - fact->begin >= 1000000;
        if (fact->what == UG_FACT_OOM_VICTIM)
            facts_oom(work, fact);
        else if (!lasts)
            continue;
        else if (fact->what == UG_FACT_RECLAIM)
            facts_interval(work, fact, CAUSE_DIRECT_RECLAIM);
        else if (fact->what == UG_FACT_MEMCG_RECLAIM)
            facts_interval(work, fact, CAUSE_MEMCG_RECLAIM);
        else if (fact->what == UG_FACT_COMPACTION) {
            facts_moved(work, fact);
            facts_interval(work, fact, CAUSE_COMPACTION);
        } else if (fact->what == UG_FACT_SOFTIRQ || fact->what == UG_FACT_HARDIRQ)
            facts_softirq(work, fact);
    }
    facts_steal(work);
    facts_zombies(work);
}
