// SPDX-License-Identifier: Apache-2.0
// Who is a rank, and who came last to each collective. On the host a rank has come to a collective
// when it begins to wait in it: waits of two ranks that overlap, and end next to each other, are of
// the same one. Who does not wait at all, while another does, comes last; as waits below the
// threshold are not recorded, it may have come that much before the other's end. Who that is,
// ranks_host.c finds. Of a job that waits in sends and receives that does not hold: see
// ranks_work.c. What NCCL told is in ranks_nccl.c.
#include "reports/analyse/stalls/ranks/ranks_find.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"

enum {
    RANKS_JOIN_NS = 200000,
    RANKS_LATES_MAX = 1 << 26 // 1.6 GB, and two hours of waits of the shortest kind: beyond, the
                              // store is damaged
};

bool ranks_waits(const struct trace *trace, const struct trace_gap *gap)
{
    struct marks marks = marks_join(trace_marks(trace, gap->user), trace_marks(trace, gap->python));
    if (!gap->waking || !marks_has(marks, MARK_COLLECTIVE) || marks_has(marks, MARK_STORE))
        return false;
    struct marks kernel = trace_kernel_marks(trace, gap);
    static const enum mark soft[] = {MARK_FUTEX, MARK_EPOLL, MARK_POLL, MARK_SOCKET_RECV,
            MARK_SOCKET_SEND, MARK_SLEEP, MARK_READ};
    for (size_t i = 0; i < sizeof soft / sizeof soft[0]; i++)
        if (marks_has(kernel, soft[i]))
            return true;
    return false;
}

bool ranks_communicates(const struct trace *trace, const struct trace_sample *sample)
{
    return marks_has(
            marks_join(trace_marks(trace, sample->user), trace_marks(trace, sample->python)),
            MARK_COLLECTIVE);
}

// ---- who is a rank ----

// Workers of a rank, such as a data loader's, inherit its environment.
static bool ranks_inherited(const struct trace *trace, uint32_t process)
{
    const struct trace_process *row = &trace->processes[process];
    uint32_t parent = row->parent;
    for (int depth = 0; parent != TRACE_NONE && depth < 64; depth++) {
        const struct trace_process *above = &trace->processes[parent];
        if (above->rank == row->rank && above->ranks == row->ranks)
            return true;
        parent = above->parent;
    }
    return false;
}

static bool ranks_thread_waits(const struct trace *trace, uint32_t thread)
{
    const struct trace_thread *row = &trace->threads[thread];
    for (uint32_t i = 0; i < row->gap_count; i++)
        if (ranks_waits(trace, &trace->gaps[row->gap_first + i]))
            return true;
    return false;
}

// Of each process, whether NCCL told of it. The caller frees.
static bool *ranks_told(const struct trace *trace)
{
    bool *told = xcalloc(trace->process_count + 1, sizeof *told);
    for (size_t i = 0; i < trace->nccl_count; i++)
        told[trace->nccl[i].process] = true;
    for (size_t i = 0; i < trace->send_count; i++)
        told[trace->sends[i].process] = true;
    return told;
}

// Of the rank itself: it waits for others, or NCCL told of it.
static bool ranks_works(const struct trace *trace, const bool *told, uint32_t process)
{
    uint32_t leader = trace->processes[process].leader;
    return told[process] || (leader != TRACE_NONE && ranks_thread_waits(trace, leader));
}

static bool ranks_descends(const struct trace *trace, uint32_t process, uint32_t from)
{
    uint32_t above = trace->processes[process].parent;
    for (int depth = 0; above != TRACE_NONE && above != from && depth < 64; depth++)
        above = trace->processes[above].parent;
    return above == from;
}

// A script that the launcher started is the rank by its environment; what it started does the
// rank's work. Who is always the last one waits for nobody: then it is who ran most by far. A
// rank's own main thread runs, too, when a worker of its data loader runs more.
static uint32_t ranks_worker_of(const struct trace *trace, const bool *told, uint32_t process)
{
    enum { IDLE_SHARE = 20 };
    const struct trace_process *row = &trace->processes[process];
    uint32_t best = process;
    if (row->rank < 0 || row->leader == TRACE_NONE || ranks_works(trace, told, process))
        return process;
    for (uint32_t i = 0; i < trace->process_count; i++) {
        const struct trace_process *other = &trace->processes[i];
        if (i == process || other->kind != TRACE_TARGET || other->leader == TRACE_NONE ||
                other->rank != row->rank || other->ranks != row->ranks ||
                other->node != row->node || !ranks_descends(trace, i, process))
            continue;
        if (ranks_works(trace, told, i))
            return i;
        if (trace->threads[other->leader].run_ns >
                trace->threads[trace->processes[best].leader].run_ns)
            best = i;
    }
    int64_t own_ns = trace->threads[row->leader].run_ns,
            most_ns = trace->threads[trace->processes[best].leader].run_ns;
    return row->python || own_ns > most_ns / IDLE_SHARE ? process : best;
}

static void ranks_add(struct ranks *ranks, const bool *told, uint32_t process)
{
    process = ranks_worker_of(ranks->trace, told, process);
    const struct trace_process *row = &ranks->trace->processes[process];
    if (row->leader == TRACE_NONE || ranks->row_count == RANKS_MAX)
        return;
    vector_push(ranks->rows, ranks->row_count,
            (struct rank_row){.process = process, .thread = row->leader, .rank = row->rank});
}

static size_t ranks_count_waits(const struct trace *trace, uint32_t thread)
{
    const struct trace_thread *row = &trace->threads[thread];
    size_t count = 0;
    for (uint32_t i = 0; i < row->gap_count; i++)
        count += trace->gaps[row->gap_first + i].python &&
                ranks_waits(trace, &trace->gaps[row->gap_first + i]);
    return count;
}

static bool ranks_runs_python(const struct trace *trace, uint32_t thread)
{
    const struct trace_thread *row = &trace->threads[thread];
    for (uint32_t i = 0; i < row->sample_count; i++)
        if (trace->samples[row->sample_first + i].python)
            return true;
    return false;
}

// Of each row the thread that trains, where that is no main thread in the whole job: under Ray
// Train the main thread serves its peers. Then it is the one that waits for other ranks most often,
// and of who never does the one that runs Python most.
static void ranks_find_threads(struct ranks *ranks)
{
    enum { IDLE_SHARE = 8 }; // whose main thread is not idle beside it stays as it is
    const struct trace *trace = ranks->trace;
    uint32_t *row_of = ranks_row_of(ranks);
    size_t *waits = xcalloc(ranks->row_count + 1, sizeof *waits), all = 0;
    // runs: and 1; 0: none
    uint32_t *runs = xcalloc(ranks->row_count + 1, sizeof *runs),
             *best = xcalloc(ranks->row_count + 1, sizeof *best);
    for (uint32_t i = 0; i < trace->thread_count; i++) {
        const struct trace_thread *thread = &trace->threads[i];
        uint32_t row = thread->own || thread->main ? TRACE_NONE : row_of[thread->process];
        if (row == TRACE_NONE)
            continue;
        size_t count = ranks_count_waits(trace, i);
        all += count;
        if (count > waits[row]) {
            waits[row] = count;
            best[row] = i;
        }
        if ((!runs[row] || thread->run_ns > trace->threads[runs[row] - 1].run_ns) &&
                ranks_runs_python(trace, i))
            runs[row] = i + 1;
    }
    for (size_t i = 0; i < ranks->row_count && all; i++) {
        struct rank_row *row = &ranks->rows[i];
        bool busy = runs[i] &&
                trace->threads[row->thread].run_ns <
                        trace->threads[runs[i] - 1].run_ns / IDLE_SHARE;
        row->thread = waits[i] ? best[i] : busy ? runs[i] - 1 : row->thread;
    }
    free(row_of);
    free(waits);
    free(runs);
    free(best);
}

static int ranks_by_rank(const void *left, const void *right)
{
    const struct rank_row *a = left, *b = right;
    return trace_order(a->rank, b->rank) ?: trace_order(a->process, b->process);
}

struct ranks_job {
    int32_t size;
    size_t count; // of processes that have a rank of it by themselves
};

// The job with most processes, of equal ones the first: torchrun under srun has a rank of its own,
// of another size.
static int32_t ranks_size(const struct trace *trace)
{
    struct ranks_job *jobs = NULL, best = {.size = -1};
    struct map by_size = {0};
    size_t job_count = 0;
    for (uint32_t i = 0; i < trace->process_count; i++) {
        const struct trace_process *process = &trace->processes[i];
        if (process->rank < 0)
            continue;
        uint32_t *at = map_put(&by_size, (uint32_t)process->ranks);
        if (*at == MAP_NONE) {
            *at = (uint32_t)job_count;
            vector_push(jobs, job_count, (struct ranks_job){.size = process->ranks});
        }
        jobs[*at].count += !ranks_inherited(trace, i);
    }
    for (size_t i = 0; i < job_count; i++)
        best = jobs[i].count > best.count ? jobs[i] : best;
    free(jobs);
    map_free(&by_size);
    return best.size;
}

static void ranks_rows(struct ranks *ranks)
{
    const struct trace *trace = ranks->trace;
    bool *told = ranks_told(trace);
    ranks->size = ranks_size(trace);
    for (uint32_t i = 0; i < trace->process_count; i++) {
        const struct trace_process *process = &trace->processes[i];
        if (process->kind != TRACE_TARGET || process->leader == TRACE_NONE)
            continue;
        if (ranks->size > 0 ? process->rank >= 0 && process->ranks == ranks->size &&
                                !ranks_inherited(trace, i)
                            : ranks_thread_waits(trace, process->leader))
            ranks_add(ranks, told, i);
    }
    bool works = false;
    for (size_t i = 0; i < ranks->row_count; i++)
        works |= ranks_works(trace, told, ranks->rows[i].process);
    if (ranks->row_count > 1 && !works)
        ranks_find_threads(ranks);
    free(told);
    if (ranks->row_count)
        qsort(ranks->rows, ranks->row_count, sizeof *ranks->rows, ranks_by_rank);
}

uint32_t *ranks_row_of(const struct ranks *ranks)
{
    uint32_t *row_of = xcalloc(ranks->trace->process_count + 1, sizeof *row_of);
    memset(row_of, 0xff, (ranks->trace->process_count + 1) * sizeof *row_of);
    for (size_t i = 0; i < ranks->row_count; i++)
        row_of[ranks->rows[i].process] = (uint32_t)i;
    return row_of;
}

// ---- waits on the host ----

static int ranks_by_begin(const void *left, const void *right)
{
    const struct trace_window *a = left, *b = right;
    return trace_order(a->begin, b->begin);
}

// Is the wait for one other rank, as those of a pipeline are?
static bool ranks_in_message(const struct trace *trace, uint32_t user, uint32_t python)
{
    return marks_has(
            marks_join(trace_marks(trace, user), trace_marks(trace, python)), MARK_MESSAGE);
}

// MPI spins: ticks that hit it are a wait as well, as long as they follow each other.
static void ranks_spins(struct ranks *ranks, struct rank_row *row)
{
    const struct trace *trace = ranks->trace;
    const struct trace_thread *thread = &trace->threads[row->thread];
    for (uint32_t i = thread->sample_first; i < thread->sample_first + thread->sample_count; i++) {
        const struct trace_sample *sample = &trace->samples[i];
        if (!marks_has(trace_marks(trace, sample->user), MARK_MPI))
            continue;
        vector_push(ranks->waits, ranks->wait_count,
                (struct trace_window){
                        sample->at - trace->tick_ns / 2, sample->at + trace->tick_ns / 2});
        row->message_ns +=
                ranks_in_message(trace, sample->user, sample->python) ? trace->tick_ns : 0;
    }
}

static void ranks_find_waits(struct ranks *ranks, struct rank_row *row)
{
    const struct trace *trace = ranks->trace;
    const struct trace_thread *thread = &trace->threads[row->thread];
    row->wait_first = ranks->wait_count;
    for (uint32_t i = thread->gap_first; i < thread->gap_first + thread->gap_count; i++) {
        const struct trace_gap *gap = &trace->gaps[i];
        if (!ranks_waits(trace, gap))
            continue;
        vector_push(ranks->waits, ranks->wait_count, (struct trace_window){gap->out, gap->waking});
        row->message_ns +=
                ranks_in_message(trace, gap->user, gap->python) ? gap->waking - gap->out : 0;
    }
    ranks_spins(ranks, row);
    if (ranks->wait_count == row->wait_first)
        return; // perhaps nobody waited: there is no array
    struct trace_window *waits = ranks->waits + row->wait_first;
    size_t count = ranks->wait_count - row->wait_first, kept = 0;
    qsort(waits, count, sizeof *waits, ranks_by_begin);
    for (size_t i = 0; i < count; i++) {
        if (kept && waits[i].begin - waits[kept - 1].end < RANKS_JOIN_NS)
            waits[kept - 1].end =
                    waits[i].end > waits[kept - 1].end ? waits[i].end : waits[kept - 1].end;
        else
            waits[kept++] = waits[i];
    }
    row->wait_count = kept;
    ranks->wait_count = row->wait_first + kept;
}

// ---- waits below the threshold ----

// No two rows have one thread: of processes that descend from each other and have one rank, one is
// a row.
static void ranks_put_shorts(struct ranks *ranks)
{
    const struct trace *trace = ranks->trace;
    uint32_t *row_of = xcalloc(trace->thread_count + 1, sizeof *row_of);
    size_t first = 0;
    memset(row_of, 0xff, (trace->thread_count + 1) * sizeof *row_of); // TRACE_NONE
    for (size_t i = 0; i < ranks->row_count; i++)
        row_of[ranks->rows[i].thread] = (uint32_t)i;
    ranks->shorts = xcalloc(trace->short_count + 1, sizeof *ranks->shorts);
    ranks->short_rows = xcalloc(trace->short_count + 1, sizeof *ranks->short_rows);
    for (size_t i = 0; i < trace->short_count; i++) {
        uint32_t row = ranks->short_rows[i] = row_of[trace->shorts[i].thread];
        if (row != TRACE_NONE)
            ranks->rows[row].short_count++;
    }
    for (size_t i = 0; i < ranks->row_count; i++) {
        ranks->rows[i].short_first = first;
        first += ranks->rows[i].short_count;
        ranks->rows[i].short_count = 0;
    }
    for (size_t i = 0; i < trace->short_count; i++) {
        struct rank_row *row =
                ranks->short_rows[i] == TRACE_NONE ? NULL : &ranks->rows[ranks->short_rows[i]];
        if (row)
            ranks->shorts[row->short_first + row->short_count++] = (uint32_t)i;
    }
    free(row_of);
}

// ---- arrivals ----

void ranks_put_late(struct ranks *ranks, int64_t begin, int64_t end, size_t waiter, size_t last)
{
    if (end - begin >= RANKS_LATE_MIN_NS && ranks->late_count < RANKS_LATES_MAX &&
            trace_clip(ranks->trace, &begin, &end))
        vector_push(ranks->lates, ranks->late_count,
                (struct rank_late){begin, end, (uint32_t)waiter, (uint32_t)last});
}

bool ranks_surely_later(
        const struct ranks *ranks, size_t last, int64_t last_ns, size_t other, int64_t other_ns)
{
    int64_t residual =
            trace_residual_ns(ranks->trace, ranks->rows[last].process, ranks->rows[other].process);
    return residual == 0 || (residual > 0 && last_ns - other_ns >= 2 * residual);
}

static int ranks_by_late(const void *left, const void *right)
{
    const struct rank_late *a = left, *b = right;
    return trace_order(a->begin, b->begin) ?: trace_order(a->waiter, b->waiter);
}

// Does a rank wait in sends and receives for as much of the window as a late one must cost?
static bool ranks_send(const struct ranks *ranks)
{
    bool send = false;
    for (size_t i = 0; i < ranks->row_count; i++)
        send |= ranks->rows[i].message_ns > 0 &&
                ranks->rows[i].message_ns >= ranks->trace->window_ns / RANKS_SEND_SHARE;
    return send;
}

static void ranks_of_waits(struct ranks *ranks)
{
    ranks->messages = ranks->by_work = ranks_send(ranks);
    for (size_t i = 0; i < ranks->row_count; i++) {
        const struct rank_row *row = &ranks->rows[i];
        if (!row->wait_count)
            continue;
        const struct trace_window *waits = ranks->waits + row->wait_first;
        if (!ranks->first_end || waits[0].end < ranks->first_end)
            ranks->first_end = waits[0].end;
        if (waits[row->wait_count - 1].end > ranks->last_end)
            ranks->last_end = waits[row->wait_count - 1].end;
    }
    if (ranks->by_work)
        ranks_work_of_waits(ranks);
    else
        ranks_host(ranks);
}

void ranks_find(const struct trace *trace, struct ranks *ret_ranks)
{
    *ret_ranks = (struct ranks){.trace = trace};
    ranks_rows(ret_ranks);
    for (size_t i = 0; i < ret_ranks->row_count; i++)
        ranks_find_waits(ret_ranks, &ret_ranks->rows[i]);
    if (ret_ranks->row_count < 2)
        return;
    ranks_put_shorts(ret_ranks);
    ranks_of_nccl(ret_ranks);
    if (!ret_ranks->nccl)
        ranks_of_waits(ret_ranks);
    if (ret_ranks->late_count == RANKS_LATES_MAX)
        ret_ranks->late_count = 0; // who was left out would seem in time, and others late
    if (ret_ranks->late_count)
        qsort(ret_ranks->lates, ret_ranks->late_count, sizeof *ret_ranks->lates, ranks_by_late);
}

void ranks_take_waits(const struct ranks *ranks, struct work *work)
{
    const struct trace *trace = work->trace;
    bool *is_rank = xcalloc(trace->process_count + 1, sizeof *is_rank);
    size_t kept = 0;
    for (size_t i = 0; i < ranks->row_count; i++)
        is_rank[ranks->rows[i].process] = ranks->row_count > 1;
    for (size_t i = 0; i < work->part_count; i++) {
        const struct part *part = &work->parts[i];
        bool soft = part->cause == CAUSE_FUTEX_WAIT || part->cause == CAUSE_NETWORK_PEER ||
                part->cause == CAUSE_UNKNOWN || part->cause == CAUSE_DATA_LOADER;
        uint32_t process = trace->threads[part->thread].process;
        uint32_t culprit =
                part->culprit == TRACE_NONE ? process : trace->threads[part->culprit].process;
        bool of_ranks = part->gap != TRACE_NONE &&
                (ranks_waits(trace, &trace->gaps[part->gap]) ||
                        (culprit != process && is_rank[culprit]));
        if (is_rank[process] && soft && of_ranks)
            continue;
        work->parts[kept++] = *part;
    }
    work->part_count = kept;
    free(is_rank);
}

void ranks_free(struct ranks *ranks)
{
    free(ranks->rows);
    free(ranks->waits);
    free(ranks->lates);
    free(ranks->held);
    free(ranks->shorts);
    free(ranks->short_rows);
    *ranks = (struct ranks){0};
}
