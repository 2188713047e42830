// SPDX-License-Identifier: Apache-2.0
// What the host of a launch said about itself: marks of Python (modules, steps), NVTX ranges, and
// where nodes of CUDA graphs were captured. Reads tables python_mark, nvtx_range, gpu_graph_node.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/trace/launch/launch_trace_inside.h"
#include "reports/analyse/trace/trace_scan.h"

struct marks_reader { // while a table is read
    struct load *load;
    size_t capacity;
    int64_t process_id, thread_id; // of the last mark, and which they are
    uint32_t process, thread;
};

// ---- marks ----

enum { MARK_PROCESS, MARK_THREAD, MARK_AT, MARK_KIND, MARK_NAME, MARK_VALUE };

static inline bool marks_row(
        struct marks_reader *reader, const int64_t *values, struct launch_mark *ret)
{
    struct load *load = reader->load;
    int64_t at = values[MARK_AT], kind = values[MARK_KIND];
    if (values[MARK_PROCESS] != reader->process_id) {
        reader->process_id = values[MARK_PROCESS];
        reader->process = load_process_at(load, reader->process_id);
    }
    if (reader->process == LAUNCH_TRACE_NONE || at < 0 || kind < 0 || kind > UINT8_MAX)
        return false;
    if (values[MARK_THREAD] != reader->thread_id) {
        reader->thread_id = values[MARK_THREAD];
        reader->thread = load_thread(load, reader->thread_id);
    }
    *ret = (struct launch_mark){at, (const char *)(intptr_t)values[MARK_NAME], values[MARK_VALUE],
            reader->thread, load->processes[reader->process].rank, (uint8_t)kind};
    return true;
}

// A launch has millions of them: room for all rows at once, and who made the last one made this
// one.
static void marks_rows(void *arg, const struct scan_row *rows, size_t count)
{
    struct marks_reader *reader = arg;
    struct launch_trace *trace = reader->load->trace;
    trace->marks = vector_reserve(
            trace->marks, &reader->capacity, trace->mark_count + count, sizeof *trace->marks);
    for (size_t i = 0; i < count; i++)
        trace->mark_count += marks_row(reader, rows[i].values, &trace->marks[trace->mark_count]);
}

static void marks_restart(void *arg)
{
    ((struct marks_reader *)arg)->load->trace->mark_count = 0;
}

static int64_t marks_owner(void *arg, const int64_t *values)
{
    return load_owner(((struct marks_reader *)arg)->load, values[MARK_PROCESS]);
}

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
            size_t end = begin + 2 * width < count ? begin + 2 * width : count, a = begin,
                   b = middle;
            for (size_t i = begin; i < end; i++)
                to[i] = b == end || (a < middle && marks_by_time(&from[a], &from[b]) <= 0)
                        ? from[a++]
                        : from[b++];
        }
        struct launch_mark *swap = from;
        from = to;
        to = swap;
    }
    if (from != marks)
        memcpy(marks, from, count * sizeof *marks);
    free(other);
}

static int marks_read(struct marks_reader *reader)
{
    struct load *load = reader->load;
    const struct scan scan = {.table = "python_mark",
            .columns = "process_id, thread_id, at_ns, kind, name_id, value",
            .column_count = 6,
            .rows = marks_rows,
            .restart = marks_restart,
            .owner = marks_owner,
            .wanted = load->trace->recording_id,
            .arg = reader};
    reader->capacity = 0;                               // each table has its own array
    reader->process_id = reader->thread_id = INT64_MIN; // none yet
    reader->process = reader->thread = LAUNCH_TRACE_NONE;
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

static void ranges_rows(void *arg, const struct scan_row *rows, size_t count)
{
    struct load *load = ((struct marks_reader *)arg)->load;
    for (size_t i = 0; i < count; i++) {
        const int64_t *values = rows[i].values;
        uint32_t rank;
        if (rows[i].nulls & 1 << RANGE_DUR || // an instant, or it never ended
                !load_place(
                        load, values[RANGE_PROCESS], values[RANGE_START], values[RANGE_DUR], &rank))
            continue;
        vector_push(load->trace->ranges, load->trace->range_count,
                (struct launch_range){values[RANGE_START], values[RANGE_START] + values[RANGE_DUR],
                        (const char *)(intptr_t)values[RANGE_NAME],
                        load_thread(load, values[RANGE_THREAD])});
    }
}

static void ranges_restart(void *arg)
{
    ((struct marks_reader *)arg)->load->trace->range_count = 0;
}

static int64_t ranges_owner(void *arg, const int64_t *values)
{
    return load_owner(((struct marks_reader *)arg)->load, values[RANGE_PROCESS]);
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

static int ranges_read(struct marks_reader *reader)
{
    struct load *load = reader->load;
    const struct scan scan = {.table = "nvtx_range",
            .columns = "start_ns, dur_ns, process_id, thread_id, name_id",
            .column_count = 5,
            .rows = ranges_rows,
            .restart = ranges_restart,
            .owner = ranges_owner,
            .wanted = load->trace->recording_id,
            .arg = reader};
    int rc = scan_table(load->store, &scan, load->err);
    for (size_t i = 0; i < load->trace->range_count; i++) {
        struct launch_range *row = &load->trace->ranges[i];
        const char *name = load_text(load, (int64_t)(intptr_t)row->name);
        row->name = name ? name : "[unknown]";
    }
    trace_sort(load->trace->ranges, load->trace->range_count, sizeof *load->trace->ranges,
            ranges_by_begin);
    return rc;
}

// ---- nodes of graphs ----

static int nodes_by_node(const void *left, const void *right)
{
    const struct launch_node *a = left, *b = right;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int nodes_read(struct load *load)
{
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT g.process_id, g.node, g.at_ns, g.thread_id FROM gpu_graph_node g JOIN process p ON "
            "p.id = g.process_id WHERE p.recording_id = ?",
            "i", load->trace->recording_id);
    if (!stmt)
        return load->err->code;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        uint32_t process = load_process_at(load, sqlite3_column_int64(stmt, 0));
        if (process == LAUNCH_TRACE_NONE)
            continue;
        struct launch_node *row = vector_add(load->trace->nodes, load->trace->node_count);
        *row = (struct launch_node){(uint64_t)sqlite3_column_int64(stmt, 1),
                sqlite3_column_int64(stmt, 2), load_thread(load, sqlite3_column_int64(stmt, 3)),
                load->processes[process].rank};
    }
    trace_sort(
            load->trace->nodes, load->trace->node_count, sizeof *load->trace->nodes, nodes_by_node);
    return rc;
}

int load_marks(struct load *load)
{
    struct marks_reader reader = {.load = load};
    int rc = marks_read(&reader);
    if (!rc)
        rc = ranges_read(&reader);
    return rc ? rc : nodes_read(load);
}
