// SPDX-License-Identifier: Apache-2.0
// What a recording knows of the ranks of a job: who is which rank, what NCCL told, and what went
// over the connections between processes.
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/trace/trace_inside.h"

// node: -1: told by nobody, there is one.
static void trace_set_rank(struct trace *trace, int64_t tgid, int64_t start_ns, int64_t rank,
        int64_t ranks, int64_t node)
{
    enum { START_GRAIN_NS = 20000000 }; // /proc tells it in ticks of 10 ms
    if (rank < 0 || ranks > INT32_MAX || rank >= ranks)
        return;
    for (size_t i = 0; i < trace->process_count; i++) {
        struct trace_process *process = &trace->processes[i];
        if (process->tgid != tgid || process->kind != TRACE_TARGET ||
                (node >= 0 && process->node != node) ||
                (start_ns > 0 && llabs(process->start_ns - start_ns) > START_GRAIN_NS))
            continue;
        process->rank = (int32_t)rank;
        process->ranks = (int32_t)ranks;
    }
}

// By its launcher's environment; of a traced launch, by the step protocol.
static int trace_load_named(struct trace *trace, struct store *store, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT j.value ->> 'pid', j.value ->> 'start_ns' AS start_ns, j.value ->> 'rank', j.value ->> 'ranks', j.value ->> 'node' FROM recording r, "
            "json_each(CASE WHEN json_valid(r.target) THEN r.target ELSE '{}' END, '$.ranks') j WHERE r.id = ?1 AND j.type = 'object' "
            "UNION ALL SELECT pid, 0, rank, (SELECT count(*) FROM launch_rank WHERE launch_id = ?2), NULL FROM launch_rank WHERE launch_id = ?2",
            "ii", trace->recording_id, trace->launch_id);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1)
        trace_set_rank(trace, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1),
                store_int64(stmt, 2, -1), sqlite3_column_int64(stmt, 3), store_int64(stmt, 4, -1));
    return rc;
}

// -1: no number that a rank has
static int32_t trace_rank_at(sqlite3_stmt *stmt, int column)
{
    int64_t rank = sqlite3_column_int64(stmt, column);
    return rank >= 0 && rank < INT32_MAX ? (int32_t)rank : -1;
}

static int trace_load_sends(struct trace *trace, struct store *store,
        const struct trace_ids *processes, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT n.process_id, coalesce(n.kernel_start_ns, 0) AS kernel_start_ns, coalesce(n.kernel_end_ns, 0) AS kernel_end_ns, n.communicator, "
            "n.rank, n.peer, n.function = 'Send' FROM nccl_op n JOIN process p ON p.id = n.process_id WHERE p.recording_id = ? AND n.peer IS NOT NULL "
            "AND n.ranks > 1 AND n.function IN ('Send', 'Recv') ORDER BY n.process_id, n.enqueued_ns, n.rowid",
            "i", trace->recording_id);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        uint32_t process = trace_ids_find(processes, sqlite3_column_int64(stmt, 0));
        int32_t rank = trace_rank_at(stmt, 4), peer = trace_rank_at(stmt, 5);
        bool sends = sqlite3_column_int(stmt, 6) != 0;
        if (process != TRACE_NONE)
            vector_push(trace->sends, trace->send_count,
                    ((struct trace_send){sqlite3_column_int64(stmt, 1),
                            sqlite3_column_int64(stmt, 2), sqlite3_column_int64(stmt, 3), process,
                            sends ? rank : peer, sends ? peer : rank, sends}));
    }
    return rc;
}

static int trace_load_connections(struct trace *trace, struct store *store,
        const struct trace_ids *processes, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT c.sender_process, c.receiver_process, c.begin_ns AS begin_ns, c.end_ns AS end_ns, c.bytes, c.retransmits, 1.0 * c.underway / c.looks FROM "
            "connection c JOIN process p ON p.id = c.sender_process WHERE p.recording_id = ? AND c.looks > 0 AND c.underway BETWEEN 0 AND c.looks AND "
            "c.begin_ns < c.end_ns AND c.bytes >= 0 AND c.end_ns >= ? ORDER BY c.rowid",
            "ii", trace->recording_id, trace->from_ns);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        uint32_t sender = trace_ids_find(processes, sqlite3_column_int64(stmt, 0)),
                 receiver = trace_ids_find(processes, sqlite3_column_int64(stmt, 1));
        if (sender != TRACE_NONE && receiver != TRACE_NONE && sender != receiver)
            vector_push(trace->connections, trace->connection_count,
                    ((struct trace_connection){sqlite3_column_int64(stmt, 2),
                            sqlite3_column_int64(stmt, 3), sqlite3_column_int64(stmt, 4),
                            sqlite3_column_int64(stmt, 5), sqlite3_column_double(stmt, 6), sender,
                            receiver}));
    }
    return rc;
}

// Collectives of all ranks: sends and receives have numbers of their own on each side.
static int trace_load_nccl(struct trace *trace, struct store *store,
        const struct trace_ids *processes, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT n.process_id, n.enqueued_ns, coalesce(n.kernel_start_ns, 0) AS kernel_start_ns, n.communicator, " STORE_NCCL_NUMBER(
                    n) ", n.rank, "
                       "n.ranks, coalesce(n.kernel_end_ns, 0) AS kernel_end_ns FROM nccl_op n JOIN process p ON p.id = n.process_id WHERE p.recording_id = ? AND n.peer IS NULL AND n.ranks > 1",
            "i", trace->recording_id);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        uint32_t process = trace_ids_find(processes, sqlite3_column_int64(stmt, 0));
        if (process == TRACE_NONE)
            continue;
        vector_push(trace->nccl, trace->nccl_count,
                ((struct trace_nccl){sqlite3_column_int64(stmt, 1), sqlite3_column_int64(stmt, 2),
                        sqlite3_column_int64(stmt, 7), sqlite3_column_int64(stmt, 3),
                        sqlite3_column_int64(stmt, 4), process, trace_rank_at(stmt, 6)}));
        struct trace_process *row = &trace->processes[process];
        int64_t rank = sqlite3_column_int64(stmt, 5), ranks = sqlite3_column_int64(stmt, 6);
        bool larger = !row->told_rank && rank >= 0 && rank < ranks && ranks <= INT32_MAX &&
                ranks > row->ranks;
        if (larger) { // its number in the largest communicator, where nobody else tells one
            row->rank = (int32_t)rank;
            row->ranks = (int32_t)ranks;
        }
    }
    return rc;
}

static int trace_load_devices(struct trace *trace, struct store *store,
        const struct trace_ids *processes, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT d.process_id, d.device, coalesce(d.uuid, ''), coalesce(d.name, ''), (SELECT count(*) FROM gpu_stream s WHERE s.process_id = "
            "d.process_id AND s.device = d.device) AS streams FROM gpu_device d JOIN process p ON p.id = d.process_id WHERE p.recording_id = ? "
            "ORDER BY d.process_id, streams DESC, d.device",
            "i", trace->recording_id);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        uint32_t process = trace_ids_find(processes, sqlite3_column_int64(stmt, 0));
        int64_t device = sqlite3_column_int64(stmt, 1);
        if (process != TRACE_NONE && device >= 0 && device < INT32_MAX)
            vector_push(trace->devices, trace->device_count,
                    ((struct trace_device){process, (int32_t)device,
                            arena_copy(trace->arena, store_text(store, stmt, 2)),
                            arena_copy(trace->arena, store_text(store, stmt, 3)),
                            sqlite3_column_int64(stmt, 4)}));
    }
    return rc;
}

const struct trace_device *trace_device_of(const struct trace *trace, uint32_t process)
{
    for (size_t i = 0; i < trace->device_count; i++)
        if (trace->devices[i].process == process)
            return &trace->devices[i];
    return NULL;
}

bool trace_nccl_few(size_t lost, size_t all)
{
    enum { LOST = 100 }; // one in so many
    return lost * LOST <= all;
}

bool trace_nccl_kernels(const struct trace *trace)
{
    size_t lost = 0;
    for (size_t i = 0; i < trace->nccl_count; i++)
        lost += trace->nccl[i].kernel_begin <= 0;
    return trace_nccl_few(lost, trace->nccl_count);
}

int trace_load_ranks(struct trace *trace, struct store *store, struct error *err)
{
    struct trace_ids processes = {0};
    trace_ids_build(&processes, trace->processes, trace->process_count, sizeof *trace->processes);
    trace->busy = xcalloc(trace->process_count + 1, sizeof *trace->busy);
    int rc = trace_load_named(trace, store, err);
    for (size_t i = 0; i < trace->process_count; i++)
        trace->processes[i].told_rank = trace->processes[i].rank >= 0;
    if (!rc)
        rc = trace_load_nccl(trace, store, &processes, err);
    if (!rc)
        rc = trace_load_sends(trace, store, &processes, err);
    if (!rc)
        rc = trace_load_connections(trace, store, &processes, err);
    if (!rc)
        rc = trace_load_devices(trace, store, &processes, err);
    bool several = false;
    for (size_t i = 1; i < trace->nccl_count; i++)
        several |= trace->nccl[i].process != trace->nccl[0].process;
    for (size_t i = 1; i < trace->send_count; i++)
        several |= trace->sends[i].process != trace->sends[0].process;
    if (!rc && several)
        rc = trace_load_busy(trace, store, true, err);
    free(processes.index);
    return rc;
}
