// SPDX-License-Identifier: Apache-2.0
// Which process is which rank: by the pid that the step calls told, and where that is not known (an
// older store, another pid namespace) by who works. Reads table process and the host's trace, fills
// launch_trace.ranks.
#include <errno.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/trace/launch/launch_trace_inside.h"

int load_ranks(struct load *load)
{
    struct launch_trace *trace = load->trace;
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT rank, max(pid) FROM (SELECT DISTINCT rank, 0 AS pid FROM step WHERE launch_id = ?1 UNION ALL "
            "SELECT rank, pid FROM launch_rank WHERE launch_id = ?1) GROUP BY rank ORDER BY rank LIMIT "
            "1024", // UG_STEP_SLOTS_MAX; each walks over all operations, and damage may claim a
                    // million
            "i", trace->launch_id);
    if (!stmt)
        return load->err->code;
    size_t pids = 0;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        struct launch_rank *row = vector_add(trace->ranks, trace->rank_count);
        row->rank = sqlite3_column_int(stmt, 0);
        row->process = row->thread = LAUNCH_TRACE_NONE;
        vector_push(load->rank_pids, pids, sqlite3_column_int(stmt, 1));
    }
    if (rc || trace->rank_count)
        return rc;
    // Without steps: whoever works is the only rank.
    struct launch_rank *row = vector_add(trace->ranks, trace->rank_count);
    row->process = row->thread = LAUNCH_TRACE_NONE;
    vector_push(load->rank_pids, pids, 0);
    return 0;
}

int load_processes(struct load *load)
{
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT p.id, p.recording_id, p.tgid, p.kind = 'target', "
            "coalesce(p.started_ns, 0) AS started_ns, coalesce(p.ended_ns, 0) AS ended_ns, "
            "g.process_id IS NOT NULL FROM process p LEFT JOIN gpu_process g ON "
            "g.process_id = p.id ORDER BY p.id",
            "");
    if (!stmt)
        return load->err->code;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        struct load_process *row = vector_add(load->processes, load->process_count);
        row->id = sqlite3_column_int64(stmt, 0);
        row->recording_id = sqlite3_column_int64(stmt, 1);
        row->tgid = sqlite3_column_int(stmt, 2);
        row->target = sqlite3_column_int(stmt, 3);
        row->started_ns = sqlite3_column_int64(stmt, 4);
        row->ended_ns = sqlite3_column_int64(stmt, 5);
        row->gpu = sqlite3_column_int(stmt, 6);
        row->rank = LAUNCH_TRACE_NONE;
    }
    trace_ids_build(
            &load->process_ids, load->processes, load->process_count, sizeof *load->processes);
    return rc;
}

// The one with this pid that lived while the rank made steps; of a pid that was given out again,
// the last one.
static struct load_process *ranks_by_pid(const struct load *load, int32_t pid)
{
    const struct launch_trace *trace = load->trace;
    int64_t begin = trace->step_count ? trace->steps[0].begin : load->started;
    struct load_process *found = NULL;
    for (size_t i = 0; i < load->process_count && pid > 0; i++) {
        struct load_process *row = &load->processes[i];
        if (row->recording_id == trace->recording_id && row->tgid == pid && row->target &&
                !(row->ended_ns && row->ended_ns < begin))
            found = row;
    }
    return found;
}

// Main threads that lead the work, the ones that ran most: as many as there are ranks, in the order
// of their pids.
static size_t ranks_by_work(const struct load *load, struct load_process **found, size_t max)
{
    const struct trace *host = load->trace->host;
    size_t count = 0;
    int64_t *ran = xcalloc(max + 1, sizeof *ran);
    for (size_t i = 0; host && i < host->thread_count; i++) {
        const struct trace_thread *thread = &host->threads[i];
        uint32_t at = thread->leads ? load_process_at(load, host->processes[thread->process].id)
                                    : LAUNCH_TRACE_NONE;
        if (at == LAUNCH_TRACE_NONE)
            continue;
        size_t place = count < max ? count++ : max;
        for (; place && ran[place - 1] < thread->run_ns; place--)
            if (place < max) {
                ran[place] = ran[place - 1];
                found[place] = found[place - 1];
            }
        if (place < max) {
            ran[place] = thread->run_ns;
            found[place] = &load->processes[at];
        }
    }
    free(ran);
    for (size_t i = 0; !host && i < load->process_count && count < max; i++)
        if (load->processes[i].gpu && load->processes[i].recording_id == load->trace->recording_id)
            found[count++] = &load->processes[i];
    for (size_t i = 1; i < count; i++)
        for (size_t k = i; k && found[k - 1]->tgid > found[k]->tgid; k--) {
            struct load_process *swap = found[k];
            found[k] = found[k - 1];
            found[k - 1] = swap;
        }
    return count;
}

static void ranks_bind(struct load *load, uint32_t rank, struct load_process *process)
{
    const struct trace *host = load->trace->host;
    struct launch_rank *row = &load->trace->ranks[rank];
    process->rank = rank;
    row->process_id = process->id;
    for (size_t i = 0; host && i < host->process_count; i++)
        if (host->processes[i].id == process->id) {
            row->process = (uint32_t)i;
            row->thread = host->processes[i].leader;
        }
}

void load_match_ranks(struct load *load)
{
    struct launch_trace *trace = load->trace;
    size_t missing = 0;
    for (uint32_t i = 0; i < trace->rank_count; i++) {
        struct load_process *process = ranks_by_pid(load, load->rank_pids[i]);
        if (process && process->rank == LAUNCH_TRACE_NONE)
            ranks_bind(load, i, process);
        missing += !trace->ranks[i].process_id;
    }
    if (!missing)
        return;
    bool all = missing == trace->rank_count; // some alone: who is left over may be anybody
    struct load_process **found = xcalloc(trace->rank_count + 1, sizeof *found);
    if (all && ranks_by_work(load, found, trace->rank_count) == trace->rank_count) {
        for (uint32_t i = 0; i < trace->rank_count; i++)
            ranks_bind(load, i, found[i]);
        if (trace->rank_count > 1)
            load_doubt(load, (struct launch_doubt){.kind = LAUNCH_DOUBT_RANKS_BY_PID});
    } else {
        load_doubt(load,
                (struct launch_doubt){.kind = LAUNCH_DOUBT_RANKS_UNKNOWN,
                        .count = (int64_t)missing,
                        .of = (int64_t)trace->rank_count});
    }
    free(found);
}
