// SPDX-License-Identifier: Apache-2.0
// What the host of a launch said to its GPUs: calls that wait or allocate, waits whose call is not
// known, collectives. Reads tables gpu_call, gpu_sync, nccl_op.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "reports/analyse/trace/launch/launch_trace_inside.h"
#include "reports/analyse/trace/trace_scan.h"

// One of the tables while it is read.
struct calls_reader {
    struct load *load;
    struct calls_join
            *joined; // of each call that was read, then by process and correlation: for their syncs
    size_t first;    // calls there were before this table
};

struct calls_join {
    int64_t process_id, correlation;
};

// ---- calls ----

enum { CALL_START, CALL_DUR, CALL_PROCESS, CALL_THREAD, CALL_NAME, CALL_CORRELATION };

static void calls_rows(void *arg, const struct scan_row *rows, size_t count)
{
    struct calls_reader *reader = arg;
    struct launch_trace *trace = reader->load->trace;
    for (size_t i = 0; i < count; i++) {
        const int64_t *values = rows[i].values;
        uint32_t rank;
        if (!load_place(reader->load, values[CALL_PROCESS], values[CALL_START], values[CALL_DUR],
                    &rank))
            continue;
        reader->joined = vector_room(reader->joined, trace->call_count, sizeof *reader->joined);
        reader->joined[trace->call_count] =
                (struct calls_join){values[CALL_PROCESS], values[CALL_CORRELATION]};
        vector_push(trace->calls, trace->call_count,
                (struct launch_call){values[CALL_START], values[CALL_START] + values[CALL_DUR],
                        (const char *)(intptr_t)values[CALL_NAME],
                        load_thread(reader->load, values[CALL_THREAD]), rank});
    }
}

static void calls_restart(void *arg)
{
    struct calls_reader *reader = arg;
    reader->load->trace->call_count = reader->first;
}

static int64_t calls_owner(void *arg, const int64_t *values)
{
    return load_owner(((struct calls_reader *)arg)->load, values[CALL_PROCESS]);
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
            .rows = calls_rows,
            .restart = calls_restart,
            .owner = calls_owner,
            .wanted = load->trace->recording_id,
            .arg = reader};
    int rc = scan_table(load->store, &scan, load->err);
    // ids until here: no query runs inside a scan
    for (size_t i = 0; i < load->trace->call_count; i++) {
        struct launch_call *row = &load->trace->calls[i];
        const char *name = load_text(load, (int64_t)(intptr_t)row->name);
        row->name = name ? name : "[unknown]";
    }
    trace_sort(reader->joined, load->trace->call_count, sizeof *reader->joined, calls_by_join);
    return rc;
}

// ---- syncs whose call was not recorded ----

enum { SYNC_KIND = 3, SYNC_THREAD = 5, SYNC_CORRELATION = 6 };

static void syncs_rows(void *arg, const struct scan_row *rows, size_t count)
{
    static const char *const names[] = {NULL, "wait for an event",
            NULL /* the GPU waits, not the host */, "wait for a stream", "wait for a context"};
    struct calls_reader *reader = arg;
    struct launch_trace *trace = reader->load->trace;
    for (size_t i = 0; i < count; i++) {
        const int64_t *values = rows[i].values, kind = values[SYNC_KIND];
        const struct calls_join join = {values[CALL_PROCESS], values[SYNC_CORRELATION]};
        uint32_t rank;
        if (kind < 0 || kind > 4 || !names[kind] ||
                !load_place(reader->load, values[CALL_PROCESS], values[CALL_START],
                        values[CALL_DUR], &rank))
            continue;
        if (reader->first &&
                bsearch(&join, reader->joined, reader->first, sizeof join, calls_by_join))
            continue;
        vector_push(trace->calls, trace->call_count,
                (struct launch_call){values[CALL_START], values[CALL_START] + values[CALL_DUR],
                        names[kind], load_thread(reader->load, values[SYNC_THREAD]), rank});
    }
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
            .rows = syncs_rows,
            .restart = calls_restart,
            .owner = calls_owner,
            .wanted = load->trace->recording_id,
            .arg = reader};
    reader->first = load->trace->call_count;
    int rc = scan_table(load->store, &scan, load->err);
    trace_sort(load->trace->calls, load->trace->call_count, sizeof *load->trace->calls,
            calls_by_begin);
    return rc;
}

// ---- collectives ----

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

static int nccl_read(struct load *load)
{
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT process_id, enqueued_ns, coalesce(kernel_end_ns, ended_ns, "
            "enqueued_ns) AS end_ns, coalesce(kernel_start_ns, 0) AS kernel_start_ns, "
            "coalesce(kernel_end_ns, 0) AS kernel_end_ns, bytes, " STORE_NCCL_NUMBER(
                    nccl_op) ", communicator, function, "
                             "datatype, algorithm, protocol, ranks, "
                             "coalesce(channels, 0) FROM nccl_op",
            "");
    if (!stmt)
        return load->err->code;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        int64_t enqueued = sqlite3_column_int64(stmt, 1), end = sqlite3_column_int64(stmt, 2);
        uint32_t rank;
        if (enqueued < 0 || end < 0 ||
                !load_place(load, sqlite3_column_int64(stmt, 0), enqueued,
                        end > enqueued ? end - enqueued : 0, &rank))
            continue;
        struct launch_nccl *row = vector_add(load->trace->nccl, load->trace->nccl_count);
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
    trace_sort(load->trace->nccl, load->trace->nccl_count, sizeof *load->trace->nccl,
            nccl_by_enqueued);
    return rc;
}

int load_calls(struct load *load)
{
    struct calls_reader reader = {.load = load};
    int rc = calls_read(&reader);
    if (!rc)
        rc = syncs_read(&reader);
    if (!rc)
        rc = nccl_read(load);
    free(reader.joined);
    return rc;
}
