// SPDX-License-Identifier: Apache-2.0
// What made the CPU time of a launch more or less: the ticks of all threads and processes of the target, whether a step waits for them
// or not (a pool that spins between two loops, a worker that computes). once.c explains them, scaled to the untraced launches.
// Reads launches; one owner thread.
#include <math.h>

#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/path/host_path.h"

// Told from 0, and by another factor than the step, by its estimate: a step that is measured badly hides nothing. The time that a step takes more is CPU
// time, too, and is explained with it; where most of the CPU time is not that, an interval that is wide enough for it hides nothing either.
bool diff_cpu_wanted(const struct diff_job *job)
{
    const struct diff_untraced *of = &job->untraced;
    double as_step = of->delta / of->step[0] * of->cpu.of[0], delta = of->cpu.of[1] - of->cpu.of[0];
    bool as_much = of->cpu.lo <= as_step && as_step <= of->cpu.hi && fabs(delta - as_step) <= fabs(delta) / 2;
    return of->cpu.lo * of->cpu.hi > 0 && !as_much;
}

void diff_cpu_add(const struct launch_trace *trace, struct cost_tree *tree)
{
    if (!trace->host_work || !trace->rank_count)
        return;
    struct launch_trace ticks = *trace; // the same launch without its calls, of which there are ten millions
    ticks.call_count = 0;
    struct host_path *host = host_path_new(&ticks, tree);
    uint32_t window = cost_tree_window(tree, &(struct cost_window){.pair = trace->pair, .couple = 0, .steps = 1});
    int64_t cpu_ns = host_path_cpu(host, window);
    tree->windows[window].wall_ns = cpu_ns;
    host_path_free(host);
}

void diff_cpu(struct diff_job *job)
{
    const struct diff_untraced *of = &job->untraced;
    struct diff_once *cpu = &job->workload->cpu;
    if (!cpu->trees[0])
        return;
    diff_once(job, "CPU time", &of->cpu, cpu);
    for (size_t i = 0; i < cpu->part_count; i++) { // the first one says the times again, as those of a step
        struct diff_contribution *made = &cpu->parts[i].contribution;
        if (!made->evidence_count)
            continue;
        made->evidence++;
        made->evidence_count--;
    }
}
