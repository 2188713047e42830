// SPDX-License-Identifier: Apache-2.0
// What a person must know about the trace: which process had what switched on, and in the trust
// ledger what was seen, kept and lost, by whom. A breach is what makes sums of kernel time, of
// collectives or the join to launches wrong.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tracer/gpu/inside.h"

static const struct {
    const char *name;
    bool breach; // a lost one makes sums wrong
} ledger_producers[UG_PRODUCER_COUNT] = {
        [UG_PRODUCER_KERNEL] = {"gpu.kernel", true},
        [UG_PRODUCER_COPY] = {"gpu.copy", true},
        [UG_PRODUCER_CALL] = {"gpu.call", true},
        [UG_PRODUCER_SYNC] = {"gpu.sync", false},
        [UG_PRODUCER_MEMORY] = {"gpu.memory", false},
        [UG_PRODUCER_NVTX] = {"gpu.nvtx", false},
        [UG_PRODUCER_OVERHEAD] = {"gpu.overhead", false},
        [UG_PRODUCER_NCCL] = {"gpu.nccl", true},
        [UG_PRODUCER_PYTHON] = {"gpu.python", false},
        [UG_PRODUCER_OTHER] = {"gpu.other", false},
};

void gpu_process_row(struct gpu_process *process)
{
    const struct ug_spool_header *header = &process->header;
    const struct clock_fit *fit = &process->fit;
    bool refused = header->state == UG_SPOOL_REFUSED && !process->ever_active;
    int64_t cupti = header->cupti_version, driver = header->driver_version,
            nccl = header->nccl_version;
    int64_t buffers = header->per_thread_buffers, residual = clock_fit_residual_ns(fit),
            worst = fit->residual_max_ns;
    if (!batch_begin(process->gpu->batch))
        return;
    int rc = store_exec(process->gpu->store, NULL,
            "INSERT OR REPLACE INTO gpu_process (process_id, state, reason, kinds, cupti_version, cupti_path, "
            "driver_version, nccl_version, per_thread_buffers, clock_slope, clock_residual_ns, "
            "clock_residual_max_ns, clock_samples) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            "issiIsIIIdIIi", (int64_t)process->row, refused ? "refused" : "traced",
            header->reason[0] ? header->reason : NULL, (int64_t)process->kinds,
            cupti ? &cupti : NULL, header->cupti_path[0] ? header->cupti_path : NULL,
            driver ? &driver : NULL, nccl ? &nccl : NULL, buffers == UINT32_MAX ? NULL : &buffers,
            fit->piece_count ? clock_fit_slope(fit) : NAN, residual < 0 ? NULL : &residual,
            residual < 0 ? NULL : &worst, (int64_t)fit->samples);
    if (rc)
        batch_fail(process->gpu->batch);
}

static uint64_t process_cupti_dropped(const struct gpu_process *process)
{
    return process->header.cupti_dropped - process->before_cupti_dropped;
}

uint64_t gpu_process_dropped(const struct gpu_process *process)
{
    uint64_t dropped = process_cupti_dropped(process) + process->damage.records +
            process->counters.zero_times + process->counters.vanished +
            process->header.unknown_records - process->before_unknown +
            process->counters.launches_cut;
    for (int i = 0; i < UG_PRODUCER_COUNT; i++)
        dropped += process->header.counts[i].dropped - process->before[i].dropped;
    return dropped;
}

static void ledger_row(struct gpu_process *process, const char *producer, const char *kind,
        int64_t seen, uint64_t lost, bool breach, const char *text)
{
    const struct gpu_recorder *gpu = process->gpu;
    if (!batch_begin(gpu->batch))
        return;
    char *detail = xasprintf("process %d: %s", (int)process->pid, text);
    if (store_ledger(gpu->store, gpu->has_launch ? &gpu->launch_id : NULL, producer, kind, seen,
                seen < 0 ? -1 : seen - (int64_t)lost, (int64_t)lost, breach && lost, detail, NULL))
        batch_fail(gpu->batch); // which says why, to whoever stops the recording
    free(detail);
}

// A row when something was lost.
static void ledger_lost(struct gpu_process *process, const char *producer, const char *kind,
        uint64_t lost, bool breach, const char *text)
{
    if (lost)
        ledger_row(process, producer, kind, -1, lost, breach, text);
}

static void ledger_producer(struct gpu_process *process, enum ug_spool_producer producer)
{
    const struct ug_spool_counts *now = &process->header.counts[producer],
                                 *before = &process->before[producer];
    uint64_t seen = now->seen - before->seen, dropped = now->dropped - before->dropped;
    uint64_t read = process->counters.read[producer];
    if (!seen && !read)
        return;
    // Nothing is kept on purpose where only the hooks are measured.
    bool counted_only = process->kinds & UG_WANT_NOTHING_KEPT;
    // Published and not read: the spool was damaged, or ended while a thread was between counting
    // and publishing.
    uint64_t vanished = !counted_only && seen > dropped + read ? seen - dropped - read : 0;
    process->counters.vanished += vanished;
    char *text =
            xasprintf("%" PRIu64 " without room in the spool, %" PRIu64 " counted and not in it%s",
                    dropped, vanished, counted_only ? "; records were only counted" : "");
    ledger_row(process, ledger_producers[producer].name, "records", (int64_t)seen,
            dropped + vanished, ledger_producers[producer].breach, text);
    free(text);
}

static void ledger_joins(struct gpu_process *process)
{
    const struct gpu_counters *counters = &process->counters;
    char *text = xasprintf("ran on the GPU, the call that launched it is not known; %" PRIu64
                           " launching calls of which nothing ran, %" PRIu64
                           " forgotten early for want of room",
            counters->launches_alone, calls_crowded(process->calls));
    if (counters->ops)
        ledger_row(process, "gpu.join", "correlations", (int64_t)counters->ops,
                counters->ops_without_call, false, text);
    free(text);
    // Below the error of the fit it is the clock's, not the trace's.
    int64_t residual = process->fit.residual_max_ns;
    text = xasprintf("began before the call that launched it, by %" PRIu64 " ns at most",
            counters->order_worst_ns);
    ledger_lost(process, "gpu.join", "order", counters->order_violations,
            (int64_t)counters->order_worst_ns > (residual > 1000 ? residual : 1000), text);
    free(text);
}

static void ledger_clock(struct gpu_process *process)
{
    const struct clock_fit *fit = &process->fit;
    if (process->ahead_ns) {
        char *moved = xasprintf(
                "in a time namespace, whose clock is off by %+.9f s: times were brought to the machine's clock",
                (double)process->ahead_ns / 1e9);
        ledger_row(process, "gpu.clock", "time namespace", -1, 0, false, moved);
        free(moved);
    }
    if (!fit->samples && !process->counters.ops)
        return;
    char *text = xasprintf("residual %" PRId64 " ns median, %" PRId64
                           " ns at most; slope %+.3f ppm; %" PRIu64 " jumps; %" PRIu64
                           " events before any sample after them",
            clock_fit_residual_ns(fit), fit->residual_max_ns, (clock_fit_slope(fit) - 1) * 1e6,
            fit->jumps, process->counters.without_clock);
    ledger_row(process, "gpu.clock", "samples", (int64_t)fit->samples, fit->ignored, false, text);
    free(text);
    if (!clock_fit_ready(fit) && process->counters.ops)
        ledger_lost(process, "gpu.clock", "missing", process->counters.ops, true,
                "no clock sample: times are those of CUPTI");
}

static void ledger_process(struct gpu_process *process)
{
    const struct ug_spool_header *header = &process->header;
    const struct gpu_counters *counters = &process->counters;
    for (int i = 0; i < UG_PRODUCER_COUNT; i++)
        ledger_producer(process, (enum ug_spool_producer)i);
    ledger_lost(process, "gpu.cupti", "records", process_cupti_dropped(process), true,
            "CUPTI had no buffer for them");
    ledger_lost(process, "gpu.cupti", "buffers",
            header->cupti_buffers_discarded - process->before_discarded, true,
            "buffers handed to CUPTI only to be thrown away: all others were in use");
    ledger_lost(process, "gpu.cupti", "unknown", header->unknown_records - process->before_unknown,
            true, "records of a kind or size that is not known");
    ledger_lost(process, "gpu.cupti", "times", counters->zero_times, true, "without times: no row");
    ledger_lost(process, "gpu.spool", "records", process->damage.records, true, "damaged");
    // No breach: who kills its workers has lost at most their last second.
    ledger_lost(process, "gpu.cupti", "end", counters->launches_cut, false,
            "launched, and nothing of it was seen: the process was killed, or did not answer, before CUPTI handed over its "
            "last second");
    ledger_lost(process, "gpu.spool", "taken", process->taken, true,
            "another recorder took the process over: what it ran from then on is not here");
    ledger_lost(process, "gpu.spool", "away", counters->lapses, true,
            "the recorder stood still for 10 s, and the process took it for gone: what it ran until it was asked again is not "
            "here");
    ledger_lost(process, "gpu.spool", "names", counters->unknown_strings, false,
            "a name that never came: [unknown]");
    ledger_lost(process, "gpu.spool", "ids", counters->no_room, false,
            "more names, threads or streams than are remembered");
    ledger_lost(process, "gpu.nvtx", "ranges", counters->ranges_unknown, false,
            "ended, their begin was not seen");
    if (counters->ranges_open)
        ledger_row(process, "gpu.nvtx", "open", (int64_t)counters->ranges_open, 0, false,
                "their end was not seen");
    ledger_joins(process);
    ledger_clock(process);
    gpu_process_row(process);
}

void gpu_ledger(struct gpu_recorder *gpu)
{
    if (!gpu->process_count || !batch_begin(gpu->batch))
        return;
    for (uint32_t i = 0; i < gpu->process_count; i++)
        ledger_process(gpu->processes[i]);
    if (batch_odd(gpu->batch) && batch_begin(gpu->batch) &&
            store_ledger(gpu->store, gpu->has_launch ? &gpu->launch_id : NULL, "gpu", "times", -1,
                    -1, (int64_t)batch_odd(gpu->batch), 1, "times that no clock gives: no row",
                    NULL))
        batch_fail(gpu->batch);
    if (batch_lost(gpu->batch) && batch_begin(gpu->batch) &&
            store_ledger(gpu->store, gpu->has_launch ? &gpu->launch_id : NULL, "gpu", "rows", -1,
                    -1, (int64_t)batch_lost(gpu->batch), 1, "the store could not be written", NULL))
        batch_fail(gpu->batch);
}
