// SPDX-License-Identifier: Apache-2.0
// When the GPUs of the ranks of a job had something else to do than to communicate. A GPU that
// waits in a communication loses nothing as long as its host has given it nothing more to do: were
// the others in time, it would wait for its host instead. Of two ranks whose hosts are as fast, one
// can be ahead of the other by the same time in each step, and its GPU waits for the other's in
// each, at no cost. So to wait for others costs only as much as the host waits for the GPU behind
// it, in a synchronisation, in a copy, or for a place in a full queue; the rest of such a wait is
// busy here, its begin first. What a collective takes when all have come is no such wait. Beside
// that, of any program: when its GPUs had anything to do, and which threads have to launch that
// (gpu_waits.c).
#include <stdlib.h>
#include <string.h>

#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/trace/trace_inside.h"

enum {
    BUSY_JOIN_NS = 5000,
    BUSY_BETWEEN_NS = 20000, // between two operations of a queue, at most
    // Operations that are on their way in a stream when a call that gives it one more waits. On an
    // H100, CUDA 13.0, there were 1,022 at most, calls of over 200 us came with 1,021 and 1,022,
    // and calls with fewer took 8 to 10 us in the mean.
    BUSY_QUEUE = 1021,
    BUSY_CALL_NS = 10000,
    BUSY_STREAMS_MAX = 1024, // that are looked at so: of a damaged store
    BUSY_LAUNCHER = 10 // a thread that starts one kernel in so many of its process paces its GPU:
                       // main and autograd threads started 27 to 73 % there
};

struct busy_wait { // of a GPU for the others in a communication, with nothing else to do
    int64_t begin, end;
    int64_t open; // of it, what its host has not waited for yet
    int64_t paid; // what it has
};

struct busy_block {             // a host waited for its GPU
    int64_t begin, end, thread; // thread: its id in the store; 0: not known
};

struct busy_stream {
    int64_t ends[BUSY_QUEUE]; // of the last operations
    size_t count;
    int64_t correlation; // of the last one: the nodes of a graph are one operation
};

struct busy_host { // of a process
    struct busy_block *blocks;
    size_t block_count;
    size_t ops, called; // of all, and of those whose call is known
    size_t syncs;
    uint32_t launches; // kernels and graphs that its threads started
    int64_t *ahead;    // of each span of trace_busy, how long before it the host had called for it
    size_t ahead_count;
    struct trace_window *comms,
            *early; // of kernels that communicate; of these, until the last of the others had come
    size_t comm_count, early_count;
};

struct busy_work {                  // what operations were launched as: a row of the store
    int64_t stream, thread, kernel; // ids; thread: that called; 0: not known, no kernel
    const char *name;               // of the kernel; NULL: not told
    uint32_t process;
    uint32_t queue;    // of its stream; MAP_NONE: not asked for yet, or there are too many
    uint32_t sum;      // of its kernel; MAP_NONE: not asked for yet
    uint32_t launches; // that its thread started
    bool copies, communicates;
};

struct busy_find {
    struct trace *trace;
    bool of_ranks;
    struct busy_host *hosts; // of each process
    struct busy_work *works; // there are thousands, of millions of operations
    size_t work_count;
    struct map work_of;            // id -> index
    int64_t work_first, work_last; // ids
    struct map launches;           // of each thread, by its id: kernels and graphs that it started
    struct map streams;            // id -> index
    struct busy_stream **list;
    size_t stream_count;
};

struct busy_op { // on a GPU, as a row of the store has it
    int64_t begin, end, correlation;
    struct busy_work *work;
    bool called;            // when it was is known:
    int64_t ahead, call_ns; // how long before its begin, and how long that took
};

// ---- what there is ----

static void busy_add_kernel(struct trace *trace, struct map *map, const struct busy_op *op)
{
    struct busy_work *work = op->work;
    uint32_t *at = work->sum == MAP_NONE
            ? map_put(map, (uint64_t)work->process << 32 | (uint32_t)work->kernel)
            : &work->sum;
    if (*at == MAP_NONE) {
        *at = (uint32_t)trace->kernel_count;
        vector_push(trace->kernels, trace->kernel_count,
                ((struct trace_kernel){
                        .name = work->name ? work->name : "?", .process = work->process}));
    }
    work->sum = *at;
    int64_t ns = op->end - op->begin, *sum = &trace->kernels[*at].ns;
    *sum += ns < TRACE_SUM_END - *sum ? ns : TRACE_SUM_END - *sum; // of a damaged store
}

static void busy_put_block(struct busy_host *host, int64_t begin, int64_t end, int64_t thread)
{
    if (begin >= 0 && begin < end)
        vector_push(host->blocks, host->block_count, ((struct busy_block){begin, end, thread}));
}

// Those of streams beside each other, and long ones that were written when they had ended, are out
// of order.
static void busy_add_gpu(struct trace_busy *gpu, int64_t begin, int64_t end)
{
    struct trace_window *last = gpu->count ? &gpu->spans[gpu->count - 1] : NULL;
    if (last && begin >= last->begin && begin - BUSY_BETWEEN_NS <= last->end)
        last->end = end > last->end ? end : last->end;
    else
        vector_push(gpu->spans, gpu->count, ((struct trace_window){begin, end}));
}

// When the operation that had to end before there was a place for this one in its stream did; 0:
// there is none.
static int64_t busy_queue(struct busy_find *find, const struct busy_op *op)
{
    struct busy_work *work = op->work;
    uint32_t *at = work->queue == MAP_NONE ? map_put(&find->streams, (uint64_t)work->stream)
                                           : &work->queue;
    if (*at == MAP_NONE && find->stream_count < BUSY_STREAMS_MAX) {
        *at = (uint32_t)find->stream_count;
        vector_push(find->list, find->stream_count, xcalloc(1, sizeof **find->list));
    }
    work->queue = *at;
    if (*at == MAP_NONE)
        return 0;
    struct busy_stream *stream = find->list[*at];
    bool again = stream->count && stream->correlation == op->correlation;
    int64_t *place = &stream->ends[(stream->count - again) % BUSY_QUEUE],
            before = again ? 0 : *place;
    stream->count += !again;
    stream->correlation = op->correlation;
    *place = op->end;
    return before;
}

// Did the host wait in the call? For a place in the queue, for what is before a copy, or, with
// CUDA_LAUNCH_BLOCKING, for the end of a kernel.
static void busy_call(struct busy_find *find, const struct busy_op *op)
{
    struct busy_work *work = op->work;
    struct busy_host *host = &find->hosts[work->process];
    int64_t before = busy_queue(find, op), called = op->begin - op->ahead,
            returned = called + op->call_ns;
    host->ops++;
    if (!op->called)
        return;
    host->called++;
    if (!work->copies && work->thread) {
        work->launches++;
        host->launches++;
    }
    if (before > called)
        busy_put_block(host, called + BUSY_CALL_NS, returned, work->thread);
    else if (work->copies ? returned > op->begin : returned >= op->end)
        busy_put_block(host, called, work->copies ? op->begin : op->end, work->thread);
}

static void busy_add(struct busy_host *host, struct trace_busy *busy, const struct busy_op *op)
{
    struct trace_window *last = busy->count ? &busy->spans[busy->count - 1] : NULL;
    if (last && op->begin - BUSY_JOIN_NS <= last->end && op->begin >= last->begin) {
        last->end = op->end > last->end ? op->end : last->end;
    } else if (!last || op->begin > last->end) { // rows are in order, but for few that came late:
                                                 // those are left out
        vector_push(busy->spans, busy->count, ((struct trace_window){op->begin, op->end}));
        vector_push(host->ahead, host->ahead_count, op->called ? op->ahead : INT64_MAX);
    }
}

struct busy_works { // while they are read
    struct busy_find *find;
    const struct trace_ids *processes;
    struct map named; // by kernel: each one's name once
    const char **names;
    size_t name_count;
};

static void busy_take_work(void *arg, const struct trace_work *row)
{
    struct busy_works *works = arg;
    struct busy_find *find = works->find;
    struct busy_work work = {.process = trace_ids_find(works->processes, row->process_id),
            .stream = row->stream_id,
            .thread = row->thread_id,
            .kernel = row->kernel_id,
            .copies = row->kind >= TRACE_WORK_COPY,
            .communicates = row->kernel && strcasestr(row->kernel, "nccl"),
            .queue = MAP_NONE,
            .sum = MAP_NONE};
    if (work.process == TRACE_NONE)
        return;
    uint32_t *at = row->kernel ? map_put(&works->named, (uint64_t)work.kernel) : NULL;
    if (at && *at == MAP_NONE) {
        *at = (uint32_t)works->name_count;
        vector_push(works->names, works->name_count, arena_copy(find->trace->arena, row->kernel));
    }
    work.name = at ? works->names[*at] : NULL;
    find->work_first = find->work_count && find->work_first < row->id ? find->work_first : row->id;
    find->work_last = find->work_count && find->work_last > row->id ? find->work_last : row->id;
    *map_put(&find->work_of, (uint64_t)row->id) = (uint32_t)find->work_count;
    vector_push(find->works, find->work_count, work);
}

// Of the recording; a store of many launches has the works of all.
static int busy_load_works(struct busy_find *find, struct store *store,
        const struct trace_ids *processes, struct error *err)
{
    struct busy_works works = {.find = find, .processes = processes};
    int rc = trace_works_read(store, find->trace->recording_id, busy_take_work, &works, err);
    map_free(&works.named);
    free(works.names);
    return rc;
}

static void busy_count_launches(struct busy_find *find)
{
    for (size_t i = 0; i < find->work_count; i++) {
        const struct busy_work *work = &find->works[i];
        uint32_t *launches =
                work->launches ? map_put(&find->launches, (uint64_t)work->thread) : NULL;
        if (launches)
            *launches = *launches == MAP_NONE ? work->launches : *launches + work->launches;
    }
}

// Tens of millions: what is known of each by its work is not asked for again.
static int busy_load_ops(struct busy_find *find, struct store *store, struct error *err)
{
    struct trace *trace = find->trace;
    if (!find->work_count)
        return 0;
    int64_t before =
            find->of_ranks ? 0 : trace_row_before(store, "gpu_op", "start_ns", trace->from_ns);
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT work_id, start_ns, dur_ns, call_ns, coalesce(call_dur_ns, 0) AS call_dur_ns, correlation FROM gpu_op "
            "WHERE rowid > ? AND work_id BETWEEN ? AND ?",
            "iii", before, find->work_first, find->work_last);
    struct map kernels = {0};
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        uint32_t at = map_get(&find->work_of, (uint64_t)sqlite3_column_int64(stmt, 0));
        struct busy_op op = {.begin = sqlite3_column_int64(stmt, 1),
                .called = sqlite3_column_type(stmt, 3) != SQLITE_NULL,
                .ahead = sqlite3_column_int64(stmt, 3),
                .call_ns = sqlite3_column_int64(stmt, 4),
                .correlation = sqlite3_column_int64(stmt, 5)};
        op.end = op.begin + sqlite3_column_int64(stmt, 2);
        if (at == MAP_NONE || op.begin < 0 || op.end <= op.begin)
            continue;
        struct busy_work *work = op.work = &find->works[at];
        busy_call(find, &op);
        busy_add_gpu(&trace->gpus[work->process], op.begin, op.end);
        if (work->communicates || !find->of_ranks)
            continue;
        if (work->kernel)
            busy_add_kernel(trace, &kernels, &op);
        busy_add(&find->hosts[work->process], &trace->busy[work->process], &op);
    }
    map_free(&kernels);
    busy_count_launches(find);
    return rc;
}

static int busy_load_syncs(struct busy_find *find, struct store *store,
        const struct trace_ids *processes, struct error *err)
{
    // 2: a stream waits
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT process_id, start_ns, dur_ns, coalesce(thread_id, 0) FROM gpu_sync WHERE kind <> 2",
            "");
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        uint32_t process = trace_ids_find(processes, sqlite3_column_int64(stmt, 0));
        int64_t begin = sqlite3_column_int64(stmt, 1);
        if (process == TRACE_NONE)
            continue;
        find->hosts[process].syncs++;
        busy_put_block(&find->hosts[process], begin, begin + sqlite3_column_int64(stmt, 2),
                sqlite3_column_int64(stmt, 3));
    }
    return rc;
}

// last: when the last of the others came. end: 0: not told.
static void busy_put_comm(struct busy_host *host, int64_t begin, int64_t last, int64_t end)
{
    end = end > begin ? end : last;
    if (begin <= 0 || begin >= end)
        return;
    vector_push(host->comms, host->comm_count, ((struct trace_window){begin, end}));
    if (last > begin)
        vector_push(host->early, host->early_count,
                ((struct trace_window){begin, last < end ? last : end}));
}

static int busy_by_collective(const void *left, const void *right)
{
    const struct trace_nccl *a = *(const struct trace_nccl *const *)left,
                            *b = *(const struct trace_nccl *const *)right;
    return trace_order(a->communicator, b->communicator) ?: trace_order(a->sequence, b->sequence);
}

// Of each node, when the last of its ranks came to the collective, and which process that was.
struct busy_last {
    int64_t at;
    uint32_t process;
};

// When the last one came, by the clock of `process`: surely, as far as clocks are known against
// each other.
static int64_t busy_last_of(
        const struct trace *trace, const struct busy_last *nodes, uint32_t process)
{
    int64_t last = 0;
    for (size_t i = 0; i <= trace->node_count; i++) {
        int64_t residual = nodes[i].at ? trace_residual_ns(trace, process, nodes[i].process) : -1;
        if (residual >= 0 && nodes[i].at - 2 * residual > last)
            last = nodes[i].at - 2 * residual;
    }
    return last;
}

static void busy_comms(struct busy_find *find)
{
    const struct trace *trace = find->trace;
    bool kernels = trace->send_count || trace_nccl_kernels(trace);
    const struct trace_nccl **list = xcalloc(trace->nccl_count + 1, sizeof *list);
    struct busy_last *nodes = xcalloc(trace->node_count + 1, sizeof *nodes);
    for (size_t i = 0; i < trace->nccl_count; i++)
        list[i] = &trace->nccl[i];
    if (trace->nccl_count)
        qsort(list, trace->nccl_count, sizeof *list, busy_by_collective);
    for (size_t first = 0, end; first < trace->nccl_count; first = end) {
        memset(nodes, 0, (trace->node_count + 1) * sizeof *nodes);
        for (end = first; end < trace->nccl_count && !busy_by_collective(&list[first], &list[end]);
                end++) {
            uint32_t node = trace->processes[list[end]->process].node;
            struct busy_last *last = &nodes[node < trace->node_count ? node : trace->node_count];
            int64_t at = kernels ? list[end]->kernel_begin : list[end]->enqueued;
            if (at > last->at)
                *last = (struct busy_last){at, list[end]->process};
        }
        for (size_t i = first; i < end; i++)
            busy_put_comm(&find->hosts[list[i]->process],
                    kernels ? list[i]->kernel_begin : list[i]->enqueued,
                    busy_last_of(trace, nodes, list[i]->process),
                    kernels ? list[i]->kernel_end : 0);
    }
    free(list);
    free(nodes);
    for (size_t i = 0; i < trace->send_count; i++)
        busy_put_comm(&find->hosts[trace->sends[i].process], trace->sends[i].kernel_begin,
                trace->sends[i].kernel_end, trace->sends[i].kernel_end);
}

// ---- what a wait costs ----

static int busy_by_begin(const void *left, const void *right)
{
    const struct trace_window *a = left, *b = right;
    return trace_order(a->begin, b->begin) ?: trace_order(a->end, b->end);
}

// By begin, without overlaps, and those as near as near_ns are one.
static size_t busy_join(struct trace_window *list, size_t count, int64_t near_ns)
{
    size_t kept = 0;
    if (count)
        qsort(list, count, sizeof *list, busy_by_begin);
    for (size_t i = 0; i < count; i++) {
        if (kept && list[i].begin - near_ns <= list[kept - 1].end)
            list[kept - 1].end =
                    list[i].end > list[kept - 1].end ? list[i].end : list[kept - 1].end;
        else
            list[kept++] = list[i];
    }
    return kept;
}

// Does the thread, by its id in the store, pace its GPU? One that copies, and waits for that, or
// starts a kernel now and then, goes on ahead of the others.
static bool busy_paces(const struct busy_find *find, const struct busy_host *host, int64_t thread)
{
    uint32_t launches = thread ? map_get(&find->launches, (uint64_t)thread) : MAP_NONE;
    return launches != MAP_NONE && (uint64_t)launches * BUSY_LAUNCHER >= host->launches;
}

static void busy_blocks(
        const struct busy_find *find, const struct busy_host *host, struct trace_busy *busy)
{
    busy->blocks = xcalloc(host->block_count + 1, sizeof *busy->blocks);
    for (size_t i = 0; i < host->block_count; i++)
        if (busy_paces(find, host, host->blocks[i].thread))
            busy->blocks[busy->block_count++] =
                    (struct trace_window){host->blocks[i].begin, host->blocks[i].end};
    busy->block_count = busy_join(busy->blocks, busy->block_count, 0);
}

static struct busy_wait *busy_waits(
        const struct busy_host *host, const struct trace_busy *busy, size_t *ret_count)
{
    struct busy_wait *waits = NULL;
    struct trace_window piece;
    size_t count = 0;
    for (size_t i = 0; i < host->early_count; i++) {
        int64_t begin = host->early[i].begin, end = host->early[i].end;
        size_t at = trace_idle_from(busy, begin);
        while (trace_idle(busy, &at, &begin, end, &piece))
            vector_push(waits, count,
                    ((struct busy_wait){.begin = piece.begin,
                            .end = piece.end,
                            .open = piece.end - piece.begin}));
    }
    *ret_count = count;
    return waits;
}

// Those that are open, the last one on top.
struct busy_stack {
    struct busy_wait *waits;
    size_t *open;
    size_t bottom, top;
    int64_t ns;
};

static void busy_push(struct busy_stack *stack, size_t wait)
{
    stack->open[stack->top++] = wait;
    stack->ns += stack->waits[wait].open;
}

// By as much as the host waited for its GPU it would have gone on earlier.
static void busy_pay(struct busy_stack *stack, const struct trace_window *block)
{
    int64_t at = block->end, ns = block->end - block->begin;
    while (stack->top > stack->bottom && ns > 0) {
        struct busy_wait *one = &stack->waits[stack->open[stack->top - 1]];
        int64_t to_come = one->end > at ? one->end - at : 0,
                most = one->open > to_come ? one->open - to_come : 0, paid = ns < most ? ns : most;
        one->open -= paid;
        one->paid += paid;
        stack->ns -= paid;
        ns -= paid;
        if (one->open > 0)
            break;
        stack->top--;
    }
}

// The GPU had nothing to do, and the host called so long before: more than that no wait before can
// have held it up.
static void busy_starve(struct busy_stack *stack, int64_t ahead)
{
    while (stack->top > stack->bottom && stack->ns > ahead) {
        struct busy_wait *one = &stack->waits[stack->open[stack->bottom]];
        int64_t gone = stack->ns - ahead < one->open ? stack->ns - ahead : one->open;
        one->open -= gone;
        stack->ns -= gone;
        stack->bottom += one->open == 0;
    }
}

static void busy_settle(const struct busy_host *host, struct trace_busy *busy,
        struct busy_wait *waits, size_t count)
{
    struct busy_stack stack = {.waits = waits, .open = xcalloc(count + 1, sizeof *stack.open)};
    size_t next = 0, comm = 0;
    for (size_t block = 0, span = 0; block < busy->block_count || span < busy->count;) {
        bool starves = block == busy->block_count ||
                (span < busy->count && busy->spans[span].begin < busy->blocks[block].end);
        int64_t at = starves ? busy->spans[span].begin : busy->blocks[block].end;
        while (next < count && waits[next].begin < at)
            busy_push(&stack, next++);
        while (comm < host->comm_count && host->comms[comm].end <= at)
            comm++;
        bool communicates = comm < host->comm_count && host->comms[comm].begin < at;
        if (!starves)
            busy_pay(&stack, &busy->blocks[block]);
        else if (!communicates)
            busy_starve(&stack, host->ahead[span] > 0 ? host->ahead[span] : 0);
        starves ? span++ : block++;
    }
    free(stack.open);
}

// What was not paid of them is busy.
static void busy_hide(struct trace_busy *busy, const struct busy_wait *waits, size_t count)
{
    struct trace_window *both = xcalloc(busy->count + count + 1, sizeof *both);
    size_t both_count = 0;
    for (size_t i = 0; i < busy->count; i++)
        both[both_count++] = busy->spans[i];
    for (size_t i = 0; i < count; i++)
        if (waits[i].end - waits[i].paid > waits[i].begin)
            both[both_count++] =
                    (struct trace_window){waits[i].begin, waits[i].end - waits[i].paid};
    free(busy->spans);
    busy->spans = both;
    busy->count = busy_join(both, both_count, 0);
}

static void busy_host_bound(
        const struct busy_find *find, struct busy_host *host, struct trace_busy *busy)
{
    size_t count;
    host->comm_count = busy_join(host->comms, host->comm_count, 0);
    host->early_count = busy_join(host->early, host->early_count, 0);
    busy_blocks(find, host, busy);
    struct busy_wait *waits = busy_waits(host, busy, &count);
    busy_settle(host, busy, waits, count);
    busy_hide(busy, waits, count);
    free(waits);
}

// Is it known of all that communicate when their hosts called, and whether they waited? Else what
// is hidden of one would be held against another.
static bool busy_known(const struct busy_find *find)
{
    bool known = true;
    for (size_t i = 0; i < find->trace->process_count; i++) {
        const struct busy_host *host = &find->hosts[i];
        known &= !host->comm_count ||
                (find->trace->busy[i].count && host->syncs && host->called * 2 >= host->ops);
    }
    return known;
}

// What NCCL told of kernels that communicate counts as well, where it is known what the GPU does
// beside.
static void busy_finish_gpus(const struct busy_find *find)
{
    struct trace *trace = find->trace;
    bool kernels = trace->send_count || trace_nccl_kernels(trace); // else comms are calls
    for (size_t i = 0; i < trace->process_count; i++) {
        struct trace_busy *gpu = &trace->gpus[i];
        const struct busy_host *host = &find->hosts[i];
        for (size_t k = 0; k < host->comm_count && kernels && gpu->count; k++)
            vector_push(gpu->spans, gpu->count, host->comms[k]);
        gpu->count = busy_join(gpu->spans, gpu->count, BUSY_BETWEEN_NS);
    }
    for (size_t i = 0; i < trace->thread_count; i++) {
        struct trace_thread *thread = &trace->threads[i];
        const struct busy_host *host = &find->hosts[thread->process];
        // who launched need not have been told
        thread->paces = host->launches ? busy_paces(find, host, thread->id) : thread->main;
    }
}

// Where more than a hundredth of the operations were lost, a GPU would seem to have had nothing to
// do while they ran. How many were in a buffer of CUPTI nobody knows.
static int busy_lost(struct trace *trace, struct store *store, struct error *err)
{
    int64_t lost = 0;
    int rc = store_get_int(store, &lost, err,
            "SELECT coalesce(100 * total(dropped) > total(seen) OR max(kind = 'buffers'), 0) FROM ledger WHERE (launch_id IS NULL OR "
            "launch_id = ?) AND dropped >= 0 AND ((producer IN ('gpu.kernel', 'gpu.copy', 'gpu.spool') AND kind = 'records') OR "
            "(producer = 'gpu.cupti' AND kind IN ('records', 'buffers', 'unknown', 'times')) OR producer = 'gpu')",
            "i", trace->launch_id);
    trace->gpus_lost = lost != 0;
    for (size_t i = 0; i < trace->process_count && trace->gpus_lost; i++)
        trace->gpus[i].count = 0;
    return rc;
}

int trace_load_busy(struct trace *trace, struct store *store, bool of_ranks, struct error *err)
{
    struct trace_ids processes;
    struct busy_find find = {.trace = trace,
            .of_ranks = of_ranks,
            .hosts = xcalloc(trace->process_count + 1, sizeof *find.hosts)};
    trace->gpus = xcalloc(trace->process_count + 1, sizeof *trace->gpus);
    trace_ids_build(&processes, trace->processes, trace->process_count, sizeof *trace->processes);
    int rc = busy_load_works(&find, store, &processes, err);
    if (!rc)
        rc = busy_load_ops(&find, store, err);
    if (!rc && of_ranks)
        rc = busy_load_syncs(&find, store, &processes, err);
    if (!rc && of_ranks)
        busy_comms(&find);
    bool known = !rc && of_ranks && busy_known(&find);
    busy_finish_gpus(&find);
    if (!rc)
        rc = busy_lost(trace, store, err);
    for (size_t i = 0; i < trace->process_count; i++) {
        struct busy_host *host = &find.hosts[i];
        if (known && host->comm_count)
            busy_host_bound(&find, host, &trace->busy[i]);
        free(host->blocks);
        free(host->ahead);
        free(host->comms);
        free(host->early);
    }
    for (size_t i = 0; i < find.stream_count; i++)
        free(find.list[i]);
    free(find.list);
    free(find.works);
    map_free(&find.work_of);
    free(find.hosts);
    free(processes.index);
    map_free(&find.launches);
    map_free(&find.streams);
    return rc;
}

int trace_load_gpus(struct trace *trace, struct store *store, struct error *err)
{
    return trace->gpus ? 0 : trace_load_busy(trace, store, false, err);
}

// ---- between ----

size_t trace_idle_from(const struct trace_busy *busy, int64_t begin)
{
    return search_first(middle, busy->count, busy->spans[middle].end > begin);
}

bool trace_idle(const struct trace_busy *busy, size_t *at, int64_t *begin, int64_t end,
        struct trace_window *ret_piece)
{
    for (; *at < busy->count && busy->spans[*at].begin < end && *begin < end; (*at)++) {
        int64_t from = *begin;
        const struct trace_window *span = &busy->spans[*at];
        *begin = span->end > from ? span->end : from;
        if (span->begin <= from)
            continue;
        *ret_piece = (struct trace_window){from, span->begin};
        return true;
    }
    *ret_piece = (struct trace_window){*begin, end};
    *begin = *begin < end ? end : *begin;
    return ret_piece->begin < end;
}
