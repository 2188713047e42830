// SPDX-License-Identifier: Apache-2.0
// A wait for a CPU: the quota of the cgroup, or others that ran there meanwhile. Who they were is
// told by who got the CPU, who left it last, and the samples in between.
#include <string.h>

#include "reports/analyse/stalls/parts.h"

enum { CPU_RIVALS_MAX = 16 };

struct cpu_rival {
    uint32_t process, thread;
    int64_t ns;
    bool real_time;
    uint32_t stack;
};

static void cpu_add(const struct trace *trace, struct cpu_rival *list, int *count, uint32_t thread,
        int64_t ns, uint32_t stack)
{
    if (thread == TRACE_NONE || trace->processes[trace->threads[thread].process].kind == TRACE_IDLE)
        return;
    uint32_t process = trace->threads[thread].process;
    int i = 0;
    while (i < *count && list[i].process != process)
        i++;
    if (i == CPU_RIVALS_MAX)
        return;
    if (i == *count)
        list[(*count)++] = (struct cpu_rival){process, thread, 0, false, 0};
    list[i].ns += ns;
    list[i].real_time |= trace->threads[thread].real_time;
    if (stack && !list[i].stack)
        list[i].stack = stack;
}

static int cpu_rivals(const struct trace *trace, const struct trace_gap *gap, int64_t begin,
        struct cpu_rival *list)
{
    enum { SLICE_NS = 4000000 }; // what one of them alone proves: about a time slice
    int count = 0;
    int64_t edge = (gap->in - begin) / 2;
    edge = edge < SLICE_NS ? edge : SLICE_NS;
    if (!gap->waking) // after a sleep it is old news who got the CPU then
        cpu_add(trace, list, &count, gap->next, edge, 0);
    cpu_add(trace, list, &count, gap->before, edge, 0);
    if (gap->cpu_in < 0 || (size_t)gap->cpu_in >= trace->cpu_count)
        return count;
    uint32_t at = trace_cpu_sample_from(trace, gap->cpu_in, begin);
    for (int n = 0; at < trace->cpu_first[gap->cpu_in + 1] && n < 1000; at++, n++) {
        const struct trace_sample *sample = &trace->samples[trace->cpu_samples[at]];
        if (sample->at >= gap->in)
            break;
        if (sample->thread != gap->thread)
            cpu_add(trace, list, &count, sample->thread, trace->tick_ns, sample->kernel);
    }
    return count;
}

static bool cpu_is_softirq(const struct trace_process *process)
{
    return process->kind == TRACE_KERNEL &&
            (!strncmp(process->comm, "ksoftirqd", 9) || !strncmp(process->comm, "irq/", 4));
}

void cpu_wait(struct work *work, const struct trace_gap *gap, uint32_t gap_index, int64_t begin)
{
    const struct trace *trace = work->trace;
    const bool preempted = !gap->waking;
    struct part *part = parts_add(work, gap->thread, begin, gap->in, CAUSE_CPU_CONTENTION,
            preempted ? SPLIT_PREEMPTED : SPLIT_RUN_QUEUE);
    part->gap = gap_index;
    part->via = VIA_CPU;
    // The flags tell of the switch-out. Of a thread that was preempted then, THROTTLED says all.
    // One that went to sleep waited for the CPU later: IDLE_CPU says nothing of that, and THROTTLED
    // (before Linux 6.18 the run queue's flag, also where the quota ended just as it went to sleep)
    // only together with the counter.
    const bool throttled = gap->flags & UG_GAP_THROTTLED,
               left_idle = preempted && gap->flags & UG_GAP_IDLE_CPU;
    if (preempted && throttled) {
        part->cause = CAUSE_CPU_QUOTA;
        part->confidence = 0.95F;
        return;
    }
    struct cpu_rival list[CPU_RIVALS_MAX];
    int count = cpu_rivals(trace, gap, begin, list);
    if ((left_idle || throttled || !count) && facts_throttled(trace, gap->thread, begin, gap->in)) {
        part->cause = CAUSE_CPU_QUOTA;
        part->confidence = 0.75F;
        part->notes |= STALL_DOUBT_INFERRED;
        return;
    }
    const struct cpu_rival *best = NULL;
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
        total += list[i].ns;
        if (!best || list[i].ns > best->ns)
            best = &list[i];
    }
    if (!best) { // the recorder itself, the hypervisor, or nobody who was seen
        part->confidence = 0.4F;
        return;
    }
    for (int i = 0; i < count; i++) // who has a real-time priority keeps the others waiting as well
        if (list[i].real_time && list[i].ns * 5 >= total * 2 &&
                trace->processes[list[i].process].kind != TRACE_KERNEL)
            best = &list[i];
    double share = total ? (double)best->ns / (double)total : 0;
    part->confidence = (float)(0.5 + 0.4 * share);
    if (share < 0.6)
        part->notes |= STALL_DOUBT_SHARED;
    if (parts_blamable(trace, best->thread)) {
        part->culprit = best->thread;
        part->culprit_stack = best->stack;
    }
    const struct trace_process *process = &trace->processes[best->process];
    if (cpu_is_softirq(process)) {
        part->cause = CAUSE_SOFTIRQ_STORM;
    } else if (best->real_time && process->kind != TRACE_KERNEL && !process->own)
        part->cause = CAUSE_RT_HOG;
}
