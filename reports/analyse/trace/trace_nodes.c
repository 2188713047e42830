// SPDX-License-Identifier: Apache-2.0
// Of a recording that `upgate merge` made of several nodes' shards: whose the processes are, and
// how well the clocks of two of them are known against each other. A recording of one machine has
// no nodes.
#include "common/containers/vector.h"
#include "reports/analyse/trace/trace_inside.h"

enum { NODES_MAX = 65536 };

int trace_load_nodes(struct trace *trace, struct store *store, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT j.value ->> 'host', j.value ->> 'process_first', j.value ->> 'process_last', j.value ->> 'cpu_first', "
            "j.value ->> 'clock_error_ns' FROM recording r, json_each(CASE WHEN json_valid(r.target) THEN r.target ELSE '{}' END, '$.nodes') j "
            "WHERE r.id = ? AND j.type = 'object' ORDER BY j.key",
            "i", trace->recording_id);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        int64_t error_ns = store_int64(stmt, 4, -1), cpu_first = store_int64(stmt, 3, 0);
        if (trace->node_count == NODES_MAX)
            continue;
        vector_push(trace->nodes, trace->node_count,
                ((struct trace_node){.host = arena_copy(trace->arena,
                                             (const char *)sqlite3_column_text(stmt, 0)),
                        .process_first = sqlite3_column_int64(stmt, 1),
                        .process_last = sqlite3_column_int64(stmt, 2),
                        .cpu_first = cpu_first > 0 && cpu_first < INT16_MAX ? (int)cpu_first : 0,
                        .error_ns =
                                error_ns >= 0 && error_ns < TRACE_SUM_END / 8 ? error_ns : -1}));
    }
    return rc;
}

uint32_t trace_node_at(const struct trace *trace, int64_t process_id)
{
    for (uint32_t i = 0; i < trace->node_count; i++)
        if (process_id >= trace->nodes[i].process_first &&
                process_id <= trace->nodes[i].process_last)
            return i;
    return 0;
}

int64_t trace_residual_ns(const struct trace *trace, uint32_t process, uint32_t other)
{
    uint32_t a = trace->processes[process].node, b = trace->processes[other].node;
    if (a == b || trace->node_count <= a || trace->node_count <= b)
        return 0;
    int64_t of_a = trace->nodes[a].error_ns, of_b = trace->nodes[b].error_ns;
    return of_a < 0 || of_b < 0 ? -1 : of_a + of_b;
}

const char *trace_host_of(const struct trace *trace, uint32_t process)
{
    uint32_t node = trace->processes[process].node;
    return node < trace->node_count ? trace->nodes[node].host : NULL;
}

int trace_cpu_of(const struct trace *trace, const struct trace_gap *gap)
{
    uint32_t node = trace->processes[trace->threads[gap->thread].process].node;
    return node < trace->node_count ? gap->cpu_in - trace->nodes[node].cpu_first : gap->cpu_in;
}

size_t trace_clocks_unknown(const struct trace *trace)
{
    size_t unknown = 0;
    for (size_t i = 0; i < trace->node_count; i++)
        unknown += trace->nodes[i].error_ns < 0;
    return trace->node_count < 2 ? 0 : unknown;
}
