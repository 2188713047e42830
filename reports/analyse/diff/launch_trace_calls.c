// SPDX-License-Identifier: Apache-2.0
// What the host of a launch said to its GPUs and about itself: calls that wait or allocate, collectives, marks of Python, graph
// nodes, NVTX ranges. Reads tables gpu_call, gpu_sync, nccl_op, python_mark, gpu_graph_node, nvtx_range.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/launch_trace_inside.h"
#include "reports/analyse/diff/launch_trace_scan.h"

// One of the tables while it is read.
struct calls_reader {
    struct load *load;
    size_t capacity, joined_capacity;
    struct calls_join *joined; // calls by process and correlation, for their syncs
    size_t joined_count;
    size_t first; // rows before this reader
};

struct calls_join {
    int64_t process_id, correlation;
};

static const int64_t calls_time_max = INT64_MAX / 4; // beyond any clock: a damaged row

static int64_t calls_owner(const struct calls_reader *reader, int64_t process_id)
{
    uint32_t at = trace_ids_find(&reader->load->process_ids, process_id);
    return at == TRACE_NONE ? 0 : reader->load->processes[at].recording_id;
}

// False: not of this launch, damaged, or in no window. The process is column 2 of all these tables but one.
static bool calls_place(struct calls_reader *reader, int64_t process_id, int64_t begin, int64_t length, uint32_t *ret_rank)
{
    struct load *load = reader->load;
    uint32_t process = load_process_at(load, process_id);
    if (process == LAUNCH_TRACE_NONE || begin < 0 || begin > calls_time_max || length < 0 || length > calls_time_max)
        return false;
    *ret_rank = load->processes[process].rank;
    return load_counts(load, *ret_rank, begin, begin + length);
}

// ---- calls ----

enum { CALL_START, CALL_DUR, CALL_PROCESS, CALL_THREAD, CALL_NAME, CALL_CORRELATION };

static void calls_row(void *arg, const int64_t *values, uint32_t nulls)
{
    struct calls_reader *reader = arg;
    struct load *load = reader->load;
    uint32_t rank;
    (void)nulls;
    if (!calls_place(reader, values[CALL_PROCESS], values[CALL_START], values[CALL_DUR], &rank))
        return;
    struct calls_join *join = trace_push((void **)&reader->joined, &reader->joined_count, &reader->joined_capacity,
                                         sizeof *join);
    *join = (struct calls_join){values[CALL_PROCESS], values[CALL_CORRELATION]};
    struct launch_call *row = trace_push((void **)&load->trace->calls, &load->trace->call_count, &reader->capacity,
                                         sizeof *row);
    *row = (struct launch_call){values[CALL_START], values[CALL_START] + values[CALL_DUR],
                                (const char *)(intptr_t)values[CALL_NAME], load_thread(load, values[CALL_THREAD]), rank};
}

static void calls_restart(void *arg)
{
    struct calls_reader *reader = arg;
    reader->load->trace->call_count = reader->first;
    reader->joined_count = 0;
}

static int64_t calls_call_owner(void *arg, const int64_t *values, uint32_t nulls)
{
    (void)nulls;
    return calls_owner(arg, values[CALL_PROCESS]);
}

static int calls_by_join(const void *left, const void *right)
{
    const struct calls_join *a = left, *b = right;
    if (a->process_id != b->process_id)
        return a->process_id < b->process_id ? -1 : 1;
    return (a->correlation > b->correlation) - (a->correlation < b->correlation);
}

static int calls_read(struct calls_reader *reader)
{
    struct load *load = reader->load;
    const struct scan scan = {.table = "gpu_call",
                              .columns = "start_ns, dur_ns, process_id, thread_id, name_id, correlation",
                              .column_count = 6,
                              .row = calls_row,
                              .restart = calls_restart,
                              .owner = calls_call_owner,
                              .wanted = load->trace->recording_id,
                              .arg = reader};
    int rc = scan_table(load->store, &scan, load->err);
    for (size_t i = 0; i < load->trace->call_count; i++) { // ids until here: no query runs inside a scan
        struct launch_call *row = &load->trace->calls[i];
        const char *name = load_text(load, (int64_t)(intptr_t)row->name);
        row->name = name ? name : "[unknown]";
    }
    trace_sort(reader->joined, reader->joined_count, sizeof *reader->joined, calls_by_join);
    return rc;
}

// ---- syncs whose call was not recorded ----

enum { SYNC_KIND = 3, SYNC_THREAD = 5, SYNC_CORRELATION = 6 };

static void syncs_row(void *arg, const int64_t *values, uint32_t nulls)
{
    static const char *const names[] = {NULL, "wait for an event", NULL /* the GPU waits, not the host */,
                                        "wait for a stream", "wait for a context"};
    struct calls_reader *reader = arg;
    struct load *load = reader->load;
    int64_t kind = values[SYNC_KIND];
    uint32_t rank;
    (void)nulls;
    if (kind < 0 || kind > 4 || !names[kind] ||
        !calls_place(reader, values[CALL_PROCESS], values[CALL_START], values[CALL_DUR], &rank))
        return;
    struct calls_join join = {values[CALL_PROCESS], values[SYNC_CORRELATION]};
    if (reader->joined_count &&
        bsearch(&join, reader->joined, reader->joined_count, sizeof join, calls_by_join))
        return;
    struct launch_call *row = trace_push((void **)&load->trace->calls, &load->trace->call_count, &reader->capacity,
                                         sizeof *row);
    *row = (struct launch_call){values[CALL_START], values[CALL_START] + values[CALL_DUR], names[kind],
                                load_thread(load, values[SYNC_THREAD]), rank};
}

static void syncs_restart(void *arg)
{
    struct calls_reader *reader = arg;
    reader->load->trace->call_count = reader->first;
}

static int calls_by_begin(const void *left, const void *right)
{
    const struct launch_call *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end > b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int syncs_read(struct calls_reader *reader)
{
    struct load *load = reader->load;
    const struct scan scan = {.table = "gpu_sync",
                              .columns = "start_ns, dur_ns, process_id, kind, stream_id, thread_id, correlation",
                              .column_count = 7,
                              .row = syncs_row,
                              .restart = syncs_restart,
                              .owner = calls_call_owner,
                              .wanted = load->trace->recording_id,
                              .arg = reader};
    reader->first = load->trace->call_count;
    int rc = scan_table(load->store, &scan, load->err);
    trace_sort(load->trace->calls, load->trace->call_count, sizeof *load->trace->calls, calls_by_begin);
    return rc;
}

// ---- marks ----

enum { MARK_PROCESS, MARK_THREAD, MARK_AT, MARK_KIND, MARK_NAME, MARK_VALUE };

static void marks_row(void *arg, const int64_t *values, uint32_t nulls)
{
    struct calls_reader *reader = arg;
    struct load *load = reader->load;
    uint32_t process = load_process_at(load, values[MARK_PROCESS]);
    int64_t at = values[MARK_AT], kind = values[MARK_KIND];
    (void)nulls;
    if (process == LAUNCH_TRACE_NONE || at < 0 || at > calls_time_max || kind < 0 || kind > UINT8_MAX)
        return;
    struct launch_mark *row = trace_push((void **)&load->trace->marks, &load->trace->mark_count, &reader->capacity,
                                         sizeof *row);
    *row = (struct launch_mark){at, (const char *)(intptr_t)values[MARK_NAME], values[MARK_VALUE],
                                load_thread(load, values[MARK_THREAD]), load->processes[process].rank, (uint8_t)kind};
}

static void marks_restart(void *arg)
{
    ((struct calls_reader *)arg)->load->trace->mark_count = 0;
}

static int64_t marks_owner(void *arg, const int64_t *values, uint32_t nulls)
{
    (void)nulls;
    return calls_owner(arg, values[MARK_PROCESS]);
}

// One that ends before one that begins at the same instant.
static int marks_by_time(const void *left, const void *right)
{
    const struct launch_mark *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return 0;
}

// In place, keeping the order of equal ones, which is that of the recorder: nearly sorted already.
static void marks_sort(struct launch_mark *marks, size_t count)
{
    bool sorted = true;
    for (size_t i = 1; i < count && sorted; i++)
        sorted = marks_by_time(&marks[i - 1], &marks[i]) <= 0;
    if (sorted)
        return;
    struct launch_mark *other = xcalloc(count, sizeof *other), *from = marks, *to = other;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            size_t middle = begin + width < count ? begin + width : count;
            size_t end = begin + 2 * width < count ? begin + 2 * width : count, a = begin, b = middle;
            for (size_t i = begin; i < end; i++)
                to[i] = b == end || (a < middle && marks_by_time(&from[a], &from[b]) <= 0) ? from[a++] : from[b++];
        }
        struct launch_mark *swap = from;
        from = to;
        to = swap;
    }
    if (from != marks)
        memcpy(marks, from, count * sizeof *marks);
    free(other);
}

static int marks_read(struct calls_reader *reader)
{
    struct load *load = reader->load;
    const struct scan scan = {.table = "python_mark",
                              .columns = "process_id, thread_id, at_ns, kind, name_id, value",
                              .column_count = 6,
                              .row = marks_row,
                              .restart = marks_restart,
                              .owner = marks_owner,
                              .wanted = load->trace->recording_id,
                              .arg = reader};
    reader->capacity = 0;
    int rc = scan_table(load->store, &scan, load->err);
    for (size_t i = 0; i < load->trace->mark_count; i++) {
        struct launch_mark *row = &load->trace->marks[i];
        row->name = load_text(load, (int64_t)(intptr_t)row->name);
    }
    marks_sort(load->trace->marks, load->trace->mark_count);
    return rc;
}

// ---- ranges ----

enum { RANGE_START, RANGE_DUR, RANGE_PROCESS, RANGE_THREAD, RANGE_NAME };

static void ranges_row(void *arg, const int64_t *values, uint32_t nulls)
{
    struct calls_reader *reader = arg;
    struct load *load = reader->load;
    uint32_t rank;
    if (nulls & 1 << RANGE_DUR || // an instant, or it never ended
        !calls_place(reader, values[RANGE_PROCESS], values[RANGE_START], values[RANGE_DUR], &rank))
        return;
    struct launch_range *row = trace_push((void **)&load->trace->ranges, &load->trace->range_count, &reader->capacity,
                                          sizeof *row);
    *row = (struct launch_range){values[RANGE_START], values[RANGE_START] + values[RANGE_DUR],
                                 (const char *)(intptr_t)values[RANGE_NAME], load_thread(load, values[RANGE_THREAD])};
}

static void ranges_restart(void *arg)
{
    ((struct calls_reader *)arg)->load->trace->range_count = 0;
}

static int ranges_by_begin(const void *left, const void *right)
{
    const struct launch_range *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end > b->end ? -1 : 1;
    return (a->thread > b->thread) - (a->thread < b->thread);
}

static int ranges_read(struct calls_reader *reader)
{
    struct load *load = reader->load;
    const struct scan scan = {.table = "nvtx_range",
                              .columns = "start_ns, dur_ns, process_id, thread_id, name_id",
                              .column_count = 5,
                              .row = ranges_row,
                              .restart = ranges_restart,
                              .owner = calls_call_owner,
                              .wanted = load->trace->recording_id,
                              .arg = reader};
    reader->capacity = 0;
    int rc = scan_table(load->store, &scan, load->err);
    for (size_t i = 0; i < load->trace->range_count; i++) {
        struct launch_range *row = &load->trace->ranges[i];
        const char *name = load_text(load, (int64_t)(intptr_t)row->name);
        row->name = name ? name : "[unknown]";
    }
    trace_sort(load->trace->ranges, load->trace->range_count, sizeof *load->trace->ranges, ranges_by_begin);
    return rc;
}

// ---- collectives, graph nodes ----

static int nccl_by_enqueued(const void *left, const void *right)
{
    const struct launch_nccl *a = left, *b = right;
    if (a->enqueued != b->enqueued)
        return a->enqueued < b->enqueued ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

// Most are as in the row before.
static const char *nccl_text(struct load *load, sqlite3_stmt *stmt, int column, const char *last)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return text && last && !strcmp(text, last) ? last : arena_copy(load->trace->arena, text);
}

static int nccl_read(struct calls_reader *reader)
{
    struct load *load = reader->load;
    sqlite3_stmt *stmt =
        store_query(load->store, load->err,
                    "SELECT process_id, enqueued_ns, coalesce(kernel_end_ns, ended_ns, enqueued_ns), coalesce(kernel_start_ns, 0), "
                    "coalesce(kernel_end_ns, 0), bytes, sequence, communicator, function, datatype, algorithm, protocol, ranks, "
                    "coalesce(channels, 0) FROM nccl_op",
                    "");
    if (!stmt)
        return load_fail(load);
    size_t capacity = 0;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        int64_t enqueued = sqlite3_column_int64(stmt, 1), end = sqlite3_column_int64(stmt, 2);
        uint32_t rank;
        if (enqueued < 0 || end < 0 ||
            !calls_place(reader, sqlite3_column_int64(stmt, 0), enqueued, end > enqueued ? end - enqueued : 0, &rank))
            continue;
        struct launch_nccl *row = trace_push((void **)&load->trace->nccl, &load->trace->nccl_count, &capacity, sizeof *row);
        const struct launch_nccl *last = load->trace->nccl_count > 1 ? row - 1 : row;
        row->enqueued = enqueued;
        row->kernel_begin = sqlite3_column_int64(stmt, 3);
        row->kernel_end = sqlite3_column_int64(stmt, 4);
        row->bytes = sqlite3_column_int64(stmt, 5);
        row->sequence = sqlite3_column_int64(stmt, 6);
        row->communicator = (uint64_t)sqlite3_column_int64(stmt, 7);
        row->function = nccl_text(load, stmt, 8, last->function);
        row->datatype = nccl_text(load, stmt, 9, last->datatype);
        row->algorithm = nccl_text(load, stmt, 10, last->algorithm);
        row->protocol = nccl_text(load, stmt, 11, last->protocol);
        row->rank = rank;
        row->ranks = sqlite3_column_int(stmt, 12);
        row->channels = sqlite3_column_int(stmt, 13);
    }
    trace_sort(load->trace->nccl, load->trace->nccl_count, sizeof *load->trace->nccl, nccl_by_enqueued);
    return rc;
}

static int nodes_by_node(const void *left, const void *right)
{
    const struct launch_node *a = left, *b = right;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int nodes_read(struct calls_reader *reader)
{
    struct load *load = reader->load;
    sqlite3_stmt *stmt = store_query(load->store, load->err,
                                     "SELECT g.process_id, g.node, g.at_ns, g.thread_id FROM gpu_graph_node g JOIN process p ON "
                                     "p.id = g.process_id WHERE p.recording_id = ?",
                                     "i", load->trace->recording_id);
    if (!stmt)
        return load_fail(load);
    size_t capacity = 0;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        uint32_t process = load_process_at(load, sqlite3_column_int64(stmt, 0));
        if (process == LAUNCH_TRACE_NONE)
            continue;
        struct launch_node *row = trace_push((void **)&load->trace->nodes, &load->trace->node_count, &capacity, sizeof *row);
        *row = (struct launch_node){(uint64_t)sqlite3_column_int64(stmt, 1), sqlite3_column_int64(stmt, 2),
                                    load_thread(load, sqlite3_column_int64(stmt, 3)), load->processes[process].rank};
    }
    trace_sort(load->trace->nodes, load->trace->node_count, sizeof *load->trace->nodes, nodes_by_node);
    return rc;
}

int load_calls(struct load *load)
{
    struct calls_reader reader = {.load = load};
    int rc = calls_read(&reader);
    if (!rc)
        rc = syncs_read(&reader);
    if (!rc)
        rc = marks_read(&reader);
    if (!rc)
        rc = ranges_read(&reader);
    if (!rc)
        rc = nccl_read(&reader);
    if (!rc)
        rc = nodes_read(&reader);
    free(reader.joined);
    return rc;
}
