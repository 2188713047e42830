// SPDX-License-Identifier: Apache-2.0
// The metrics of upgate: the names scripts rely on, their units and which way is better. One table;
// the plan parser, the gate, the reports and docs/METRICS.md all read it.
#ifndef UPGATE_CONTRACTS_METRICS_H
#define UPGATE_CONTRACTS_METRICS_H

enum metric_id {
    METRIC_TOTAL_TIME,
    METRIC_STEP_TIME,
    METRIC_THROUGHPUT,
    METRIC_FIRST_STEP_TIME,
    METRIC_COMPILE_TIME,
    METRIC_LATENCY_P50,
    METRIC_LATENCY_P99,
    METRIC_CPU_TIME,
    METRIC_PEAK_MEMORY,
    METRIC_PEAK_GPU_MEMORY,
    METRIC_SCALING_EFFICIENCY,
    METRIC_MEAN_STEP_TIME,
    METRIC_SLOW_STEPS,
    METRIC_WARM_UP_TIME,
    METRIC_STARTUP_TIME,
    METRIC_RECOMPILES,
    METRIC_MEMORY_SAVED,
    METRIC_COUNT
};

// What the reason of a cell says already, for forms that would say it: bits of cell.told.
enum metric_told {
    METRIC_TOLD_NEED = 1,  // how many pairs would settle it
    METRIC_TOLD_FRESH = 2, // what fresh pairs said, or how many are to come
};

struct metric_info {
    const char *name;
    const char *unit;      // ns, 1/s, bytes, ratio
    const char *direction; // "lower" or "higher": which way is better
    double margin_default; // fraction; the gate's margin when the plan does not say
    const char *help;      // what one launch contributes
};

static const struct metric_info metric_infos[METRIC_COUNT] = {
        [METRIC_TOTAL_TIME] = {"total_time", "ns", "lower", 0.02,
                "wall time of a launch, less the time it was held or frozen"},
        [METRIC_STEP_TIME] = {"step_time", "ns", "lower", 0.02,
                "median wall time of a step in the steady state"},
        [METRIC_THROUGHPUT] = {"throughput", "1/s", "higher", 0.02,
                "samples a second of active time in the steady state, all ranks"},
        [METRIC_FIRST_STEP_TIME] = {"first_step_time", "ns", "lower", 0.10,
                "duration of the first step (cold: lazy loading, autotuning)"},
        [METRIC_COMPILE_TIME] = {"compile_time", "ns", "lower", 0.10,
                "sum of the phases named 'compile'"},
        [METRIC_LATENCY_P50] = {"latency_p50", "ns", "lower", 0.05,
                "median latency of requests, from the scheduled arrival (open loop) or, without arrivals, how long it took"},
        [METRIC_LATENCY_P99] = {"latency_p99", "ns", "lower", 0.05,
                "99th percentile of the same; needs 662 requests a launch"},
        [METRIC_CPU_TIME] = {"cpu_time", "ns", "lower", 0.02,
                "user and system time of the process tree"},
        [METRIC_PEAK_MEMORY] = {"peak_memory", "bytes", "lower", 0.01,
                "peak host memory of the process tree"},
        // 5 %: torch's allocator takes memory in segments of 2 to 20 MiB. Of anything below 2 GiB
        // one of these is more than 1 %, and whether the last one is needed hangs on the order of a
        // few allocations.
        [METRIC_PEAK_GPU_MEMORY] = {"peak_gpu_memory", "bytes", "lower", 0.05,
                "peak GPU memory that PyTorch has reserved, of the rank with the most"},
        [METRIC_SCALING_EFFICIENCY] = {"scaling_efficiency", "ratio", "higher", 0.02,
                "throughput over ranks times that of the same workload with 1 rank"},
        [METRIC_MEAN_STEP_TIME] = {"mean_step_time", "ns", "lower", 0.02,
                "mean active time of a step after the warm-up, what the machine took left out"},
        [METRIC_SLOW_STEPS] = {"slow_steps", "ratio", "lower", 0.02,
                "share of the time lost in slow steps, beyond a typical step"},
        [METRIC_WARM_UP_TIME] = {"warm_up_time", "ns", "lower", 0.02,
                "what the steps of the warm-up took beyond steady ones"},
        [METRIC_STARTUP_TIME] = {"startup_time", "ns", "lower", 0.10,
                "from the start of the launch to its first step"},
        [METRIC_RECOMPILES] = {"recompiles", "ratio", "lower", 0.02,
                "graphs compiled, over those of the first step: 1 is none later; notes compiled_graphs, recompiles"},
        // As peak_gpu_memory, of which it mostly is a quotient.
        [METRIC_MEMORY_SAVED] = {"memory_saved", "ratio", "higher", 0.05,
                "share of the peak memory of the same workload with variant eager that a compiled one does without"},
};

#endif
