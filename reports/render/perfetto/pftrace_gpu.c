// SPDX-License-Identifier: Apache-2.0
// The GPU's part of a Perfetto trace: every kernel, copy and set on its stream, the calls of CUDA
// on their threads with an arrow to what they launched, NVTX and NCCL. Operations are written as
// they are read; of the calls 24 bytes each are kept, to be sorted: a thread's calls come in the
// order of what they launched.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/render/perfetto/pftrace_parts.h"

enum { GPU_FLOWS_MAX = 1000000 }; // arrows: 18 bytes each, and no eye follows more

struct gpu_stream {
    int64_t id;
    struct pf_lane lane;
};

struct gpu_work {
    int64_t id;
    uint64_t name, call; // numbers of texts; call 0: not known
    uint64_t note;       // shape or bytes
    size_t stream;
    int64_t thread; // 0: not known
};

struct gpu_call {
    int64_t begin;
    uint32_t dur, thread, name, flow; // thread: index
};

struct gpu {
    struct pftrace *trace;
    struct gpu_stream *streams;
    struct gpu_work *works; // by id
    struct gpu_call *calls;
    size_t stream_count, work_count, call_count;
    uint32_t flows;
    int64_t last_thread, last_call; // of the newest arrow: kernels of a graph share it
    uint64_t key_shape;
};

static int gpu_streams(struct gpu *gpu, struct error *err)
{
    struct pftrace *trace = gpu->trace;
    sqlite3_stmt *stmt = store_query(trace->store, err,
            "SELECT s.id, s.process_id, s.device, s.stream, s.name, d.name FROM process p "
            "JOIN gpu_stream s ON s.process_id = p.id LEFT JOIN gpu_device d ON d.process_id = s.process_id "
            "AND d.device = s.device WHERE p.recording_id = ? ORDER BY s.id",
            "i", trace->recording);
    int rc = stmt ? 1 : -EIO;
    while (rc == 1 && (rc = store_step(trace->store, stmt, err)) == 1) {
        struct pftrace_process *process = pftrace_process(trace, sqlite3_column_int64(stmt, 1));
        struct gpu_stream *stream = vector_add(gpu->streams, gpu->stream_count);
        stream->id = sqlite3_column_int64(stmt, 0);
        const char *name = pftrace_text(stmt, 4), *device = pftrace_text(stmt, 5);
        char *text = xasprintf("GPU %lld%s%s: stream %lld%s%s",
                (long long)sqlite3_column_int64(stmt, 2), *device ? " " : "", device,
                (long long)sqlite3_column_int64(stmt, 3), *name ? " " : "", name);
        pf_lane_init(&stream->lane, process ? pftrace_process_track(trace, process) : 0, 0, text);
        free(text);
    }
    return rc;
}

static const char *gpu_kind(int kind)
{
    static const char *const copies[] = {"copy", "copy HtoD", "copy DtoH", "copy HtoA", "copy AtoH",
            "copy AtoA", "copy AtoD", "copy DtoA", "copy DtoD", "copy HtoH", "copy PtoP"};
    if (kind == TRACE_WORK_GRAPH)
        return "CUDA graph";
    if (kind == TRACE_WORK_SET)
        return "set";
    size_t at = kind >= TRACE_WORK_COPY ? (size_t)(kind - TRACE_WORK_COPY) : 0;
    return copies[at < sizeof copies / sizeof *copies ? at : 0];
}

static int64_t gpu_stream_index(const struct gpu *gpu, int64_t id)
{
    for (size_t i = 0; i < gpu->stream_count; i++)
        if (gpu->streams[i].id == id)
            return (int64_t)i;
    return -1;
}

static void gpu_take_work(void *arg, const struct trace_work *row)
{
    struct gpu *gpu = arg;
    struct pf *pf = gpu->trace->pf;
    int64_t stream = gpu_stream_index(gpu, row->stream_id);
    if (stream < 0)
        return;
    struct gpu_work *work = vector_add(gpu->works, gpu->work_count);
    *work = (struct gpu_work){.id = row->id, .stream = (size_t)stream, .thread = row->thread_id};
    work->name = pf_text(pf, PF_TEXT_NAME, row->kernel ? row->kernel : gpu_kind((int)row->kind));
    if (row->call)
        work->call = pf_text(pf, PF_TEXT_NAME, row->call);
    char *note = NULL;
    if (row->kernel)
        note = xasprintf("grid %dx%dx%d, block %dx%dx%d, %d registers, %lld bytes shared",
                row->grid[0], row->grid[1], row->grid[2], row->block[0], row->block[1],
                row->block[2], row->registers, (long long)row->shared_bytes);
    else if (row->bytes >= 0)
        note = xasprintf("%lld bytes", (long long)row->bytes);
    if (note)
        work->note = pf_text(pf, PF_TEXT_VALUE, note);
    free(note);
}

static const struct gpu_work *gpu_work_of(const struct gpu *gpu, int64_t id)
{
    size_t low = search_first(middle, gpu->work_count, gpu->works[middle].id >= id);
    return low < gpu->work_count && gpu->works[low].id == id ? &gpu->works[low] : NULL;
}

static void gpu_call_add(struct gpu *gpu, int64_t thread_id, int64_t begin, int64_t dur,
        uint64_t name, uint32_t flow)
{
    struct pftrace_thread *thread = pftrace_thread(gpu->trace, thread_id);
    if (!thread || dur < 0)
        return;
    vector_push(gpu->calls, gpu->call_count,
            (struct gpu_call){.begin = begin,
                    .dur = dur < UINT32_MAX ? (uint32_t)dur : UINT32_MAX,
                    .thread = (uint32_t)(thread - gpu->trace->threads),
                    .name = (uint32_t)name,
                    .flow = flow});
}

// Operations in the order of the table: nearly that of their start. A late one gets a track where
// it overlaps nothing.
static int gpu_ops(struct gpu *gpu, struct error *err)
{
    struct pftrace *trace = gpu->trace;
    sqlite3_stmt *stmt = gpu->work_count
            ? store_query(trace->store, err,
                      "SELECT start_ns, dur_ns, work_id, call_ns, call_dur_ns FROM "
                      "gpu_op ORDER BY rowid",
                      "")
            : NULL;
    int rc = stmt ? 1 : gpu->work_count ? -EIO : 0;
    while (rc == 1 && !pf_failed(trace->pf) && (rc = store_step(trace->store, stmt, err)) == 1) {
        const struct gpu_work *work = gpu_work_of(gpu, sqlite3_column_int64(stmt, 2));
        int64_t begin = sqlite3_column_int64(stmt, 0), dur = sqlite3_column_int64(stmt, 1);
        if (!work || dur < 0)
            continue;
        struct pf_slice slice = {.begin = begin, .end = begin + dur, .name = work->name};
        if (work->note)
            slice.notes[0] = (struct pf_note){gpu->key_shape, work->note};
        if (work->call && work->thread && sqlite3_column_type(stmt, 3) != SQLITE_NULL) {
            int64_t call = begin - sqlite3_column_int64(stmt, 3);
            bool again = gpu->flows && work->thread == gpu->last_thread && call == gpu->last_call;
            gpu->last_thread = work->thread;
            gpu->last_call = call;
            if (again || gpu->flows < GPU_FLOWS_MAX)
                slice.flow = again ? gpu->flows : ++gpu->flows;
            if (!again)
                gpu_call_add(gpu, work->thread, call, sqlite3_column_int64(stmt, 4), work->call,
                        (uint32_t)slice.flow);
        }
        pf_lane_add(trace->pf, &gpu->streams[work->stream].lane, &slice);
    }
    return rc == 1 ? 0 : rc;
}

static void gpu_take_call(void *arg, const struct trace_call *call)
{
    struct gpu *gpu = arg;
    if (call->name)
        gpu_call_add(gpu, call->thread_id, call->begin, call->ns,
                pf_text(gpu->trace->pf, PF_TEXT_NAME, call->name), 0);
}

static int gpu_by_call(const void *left, const void *right)
{
    const struct gpu_call *a = left, *b = right;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->dur != b->dur)
        return a->dur < b->dur ? 1 : -1;
    return (a->flow > b->flow) - (a->flow < b->flow);
}

// One slice a call: a graph's kernels all name the same one.
static void gpu_calls(struct gpu *gpu)
{
    struct pftrace *trace = gpu->trace;
    if (gpu->call_count)
        qsort(gpu->calls, gpu->call_count, sizeof *gpu->calls, gpu_by_call);
    for (size_t i = 0; i < gpu->call_count; i++) {
        const struct gpu_call *call = &gpu->calls[i], *last = i ? call - 1 : NULL;
        if (last && last->thread == call->thread && last->begin == call->begin &&
                last->dur == call->dur && last->name == call->name)
            continue;
        struct pf_slice slice = {.begin = call->begin,
                .end = call->begin + call->dur,
                .name = call->name,
                .flow = call->flow};
        pf_lane_add(trace->pf, pftrace_row(trace, &trace->threads[call->thread], PFTRACE_CALLS),
                &slice);
    }
}

static int gpu_ranges(struct pftrace *trace, struct error *err)
{
    sqlite3_stmt *stmt = store_query(trace->store, err,
            "SELECT n.thread_id, n.start_ns, n.dur_ns, s.text FROM process p JOIN nvtx_range n "
            "ON n.process_id = p.id JOIN string s ON s.id = n.name_id WHERE p.recording_id = ? "
            "ORDER BY n.start_ns, n.dur_ns DESC",
            "i", trace->recording);
    int rc = stmt ? 1 : -EIO;
    while (rc == 1 && (rc = store_step(trace->store, stmt, err)) == 1) {
        struct pftrace_thread *thread = pftrace_thread(trace, sqlite3_column_int64(stmt, 0));
        int64_t begin = sqlite3_column_int64(stmt, 1), dur = sqlite3_column_int64(stmt, 2);
        if (!thread || dur < 0)
            continue;
        bool instant = sqlite3_column_type(stmt, 2) == SQLITE_NULL;
        struct pf_slice slice = {.begin = begin,
                .end = instant ? begin - 1 : begin + dur,
                .name = pf_text(trace->pf, PF_TEXT_NAME, pftrace_text(stmt, 3))};
        pf_lane_add(trace->pf, pftrace_row(trace, thread, PFTRACE_NVTX), &slice);
    }
    return rc;
}

// A collective from its enqueueing to its end, as far as NCCL told.
static int gpu_collectives(struct pftrace *trace, struct error *err)
{
    sqlite3_stmt *stmt = store_query(trace->store, err,
            "SELECT n.process_id, n.enqueued_ns, coalesce(n.kernel_end_ns, n.ended_ns) AS end_ns, n.function || coalesce(' ' || n.datatype, '') || "
            "coalesce(' ' || n.algorithm, '') || coalesce(' ' || n.protocol, ''), 'rank ' || n.rank || ' of ' || n.ranks || ', number ' || "
            "n.sequence || ', ' || n.bytes || ' bytes' FROM process p JOIN nccl_op n ON n.process_id = p.id WHERE p.recording_id = ? "
            "ORDER BY n.process_id, n.enqueued_ns",
            "i", trace->recording);
    int rc = stmt ? 1 : -EIO;
    uint64_t key = 0;
    while (rc == 1 && (rc = store_step(trace->store, stmt, err)) == 1) {
        struct pftrace_process *process = pftrace_process(trace, sqlite3_column_int64(stmt, 0));
        int64_t begin = sqlite3_column_int64(stmt, 1), end = sqlite3_column_int64(stmt, 2);
        if (!process)
            continue;
        if (!process->nccl.name)
            pf_lane_init(&process->nccl, pftrace_process_track(trace, process), 0, "NCCL");
        key = key ? key : pf_text(trace->pf, PF_TEXT_KEY, "collective");
        struct pf_slice slice = {.begin = begin,
                .end = end < begin ? begin - 1 : end,
                .name = pf_text(trace->pf, PF_TEXT_NAME, pftrace_text(stmt, 3))};
        slice.notes[0] =
                (struct pf_note){key, pf_text(trace->pf, PF_TEXT_VALUE, pftrace_text(stmt, 4))};
        pf_lane_add(trace->pf, &process->nccl, &slice);
    }
    return rc;
}

int pftrace_gpu(struct pftrace *trace, struct error *err)
{
    struct gpu gpu = {.trace = trace, .key_shape = pf_text(trace->pf, PF_TEXT_KEY, "shape")};
    int rc = gpu_streams(&gpu, err);
    if (!rc)
        rc = trace_works_read(trace->store, trace->recording, gpu_take_work, &gpu, err);
    if (!rc)
        rc = gpu_ops(&gpu, err);
    if (!rc)
        rc = trace_calls_read(trace->store, trace->recording, gpu_take_call, &gpu, err);
    if (!rc)
        gpu_calls(&gpu);
    if (!rc)
        rc = gpu_ranges(trace, err);
    if (!rc)
        rc = gpu_collectives(trace, err);
    for (size_t i = 0; i < gpu.stream_count; i++)
        pf_lane_free(&gpu.streams[i].lane);
    free(gpu.streams);
    free(gpu.works);
    free(gpu.calls);
    return rc;
}
