// SPDX-License-Identifier: Apache-2.0
// A shard, reduced. Rows come in about the order of time, table by table: the gists of some windows
// are open, those of the others are bytes. Memory grows with the shard all the same: its waits and
// collectives are loaded as for `upgate stalls`, and what each row of gpu_work is; rows of gpu_op,
// steps and phases are read one by one. Of several ranks each is reduced as if it were alone, and
// then they are added.
#include "reports/analyse/reduce/reduced_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/arena.h"
#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "contracts/spool.h"
#include "reports/analyse/stalls/ranks/ranks.h"

enum {
    LOAD_PHASES_DEEP = 8, // as the step protocol nests them
    LOAD_OPEN_MAX = 64,   // gists of a rank, 9 KB each: of 200 steps all windows, which then are
                          // encoded once, not once for each table
    LOAD_OPEN_RANKS = 64, // of so many ranks, 37 MB; where there are more some share their places
    LOAD_WHAT_BITS = 8    // of a row of gpu_work: which spread, and above that which rank
};
static const uint32_t load_nobody = UINT32_MAX;

struct load_part { // steps side by side of one window
    int64_t begin;
    uint64_t window;
    uint8_t *bytes; // its gist; NULL: empty, or never closed
    size_t size;
};

// Where a gist is open, of a place that parts of several numbers and ranks share.
struct load_open {
    struct load *load; // NULL: none is
    size_t part;       // of the load's
    struct gist gist;
};

struct load_job { // a shard
    struct store *store;
    const struct reduced_source *source;
    const struct trace *trace;
    struct ranks ranks;
    struct load *loads; // of each of its ranks, as they rise
    size_t count;
    struct load_open *open; // LOAD_OPEN_MAX for each of LOAD_OPEN_RANKS ranks at most
    size_t open_ranks;
    uint32_t *owner; // of each process of the trace: of which load it is, or load_nobody; NULL: all
                     // is of the one
    struct trace_ids processes; // where there are owners
};

struct load { // a rank
    const struct load_job *job;
    uint32_t number; // of job->loads
    int32_t rank;
    const struct rank_row *row; // NULL: it waits for nobody, and is not told
    size_t nccl_count;          // of its collectives
    bool nccl_kernels;          // it is told when their kernels began
    struct load_part *parts;    // by begin
    size_t part_count;
    int64_t end; // of the last step
};

// --- windows -------------------------------------------------------------------------------------

static void load_close(struct load_open *open)
{
    uint8_t bytes[GIST_BYTES_MAX];
    if (!open->load)
        return;
    struct load_part *part = &open->load->parts[open->part];
    part->size = gist_encode(&open->gist, bytes);
    free(part->bytes);
    part->bytes = xcalloc(part->size, 1);
    memcpy(part->bytes, bytes, part->size);
    open->load = NULL;
}

static struct load_open *load_places(const struct load *load)
{
    return &load->job->open[load->number % load->job->open_ranks * LOAD_OPEN_MAX];
}

static struct gist *load_open(struct load *load, size_t index)
{
    struct load_open *open = &load_places(load)[index % LOAD_OPEN_MAX];
    if (open->load == load && open->part == index)
        return &open->gist;
    load_close(open);
    open->gist = (struct gist){0};
    if (load->parts[index].bytes)
        // it made them itself
        gist_decode(load->parts[index].bytes, load->parts[index].size, &open->gist);
    open->load = load;
    open->part = index;
    return &open->gist;
}

// Of the step that had begun last; NULL: none had, or all had ended.
static struct gist *load_at(struct load *load, int64_t at)
{
    size_t next = search_first(i, load->part_count, load->parts[i].begin > at);
    return next && at < load->end ? load_open(load, next - 1) : NULL;
}

static void load_put(struct load *load, enum gist_spread what, int64_t begin, int64_t ns)
{
    struct gist *gist = ns >= 0 ? load_at(load, begin) : NULL;
    if (gist)
        gist_put(gist, what, (uint64_t)ns);
}

// Of a shard of one rank those of whatever number: the program may have another one by its own
// environment.
static int load_steps(struct load *load, uint64_t window_steps, struct error *err)
{
    struct store *store = load->job->store;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT idx, begin_ns, dur_ns FROM recorded_step WHERE recording_id = ?1 AND (?2 < 0 OR rank = ?2) "
            "ORDER BY begin_ns, idx",
            "ii", load->job->trace->recording_id,
            load->job->owner ? (int64_t)load->rank : (int64_t)-1);
    if (!stmt)
        return err ? err->code : -EIO;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        int64_t idx = sqlite3_column_int64(stmt, 0), begin = sqlite3_column_int64(stmt, 1),
                ns = sqlite3_column_int64(stmt, 2);
        if (idx < 0 || begin < 0 || ns < 0) // of a damaged store some are
            continue;
        uint64_t window = (uint64_t)idx / window_steps;
        if (!load->part_count || load->parts[load->part_count - 1].window != window)
            vector_push(load->parts, load->part_count,
                    (struct load_part){.begin = begin, .window = window});
        gist_put(load_open(load, load->part_count - 1), GIST_STEP, (uint64_t)ns);
        load->end = begin + ns > load->end ? begin + ns : load->end;
    }
    return rc;
}

static int load_by_window(const void *left, const void *right)
{
    const struct load_part *a = left, *b = right;
    if (a->window != b->window)
        return a->window < b->window ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

// A window whose steps did not lie side by side has several parts.
static void load_put_gists(struct load *load, struct reduced *ret)
{
    struct gist one, sum;
    uint8_t bytes[GIST_BYTES_MAX];
    for (size_t place = 0; place < LOAD_OPEN_MAX; place++)
        if (load_places(load)[place].load == load)
            load_close(&load_places(load)[place]);
    if (load->part_count)
        qsort(load->parts, load->part_count, sizeof *load->parts, load_by_window);
    for (size_t first = 0, end; first < load->part_count; first = end) {
        const struct load_part *part = &load->parts[first];
        for (end = first + 1; end < load->part_count && load->parts[end].window == part->window;
                end++)
            ;
        if (end == first + 1 && part->bytes) { // as most are: its bytes are those of the sum
            reduced_put_gist(ret, load->rank, part->window, part->bytes, part->size);
            continue;
        }
        sum = (struct gist){0};
        for (size_t i = first; i < end; i++)
            if (load->parts[i].bytes &&
                    gist_decode(load->parts[i].bytes, load->parts[i].size, &one))
                gist_add(&sum, &one);
        size_t size = gist_encode(&sum, bytes);
        reduced_put_gist(ret, load->rank, part->window, bytes, size);
    }
}

// --- what is in them -----------------------------------------------------------------------------

// Whose a process of the store is; NULL: nobody's.
static struct load *load_of(const struct load_job *job, int64_t id)
{
    if (!job->owner)
        return &job->loads[0];
    uint32_t process = trace_ids_find(&job->processes, id);
    return process != TRACE_NONE && job->owner[process] != load_nobody
            ? &job->loads[job->owner[process]]
            : NULL;
}

static bool load_owns(const struct load *load, uint32_t process)
{
    return !load->job->owner || load->job->owner[process] == load->number;
}

// The rank's process by its launcher, else whoever waits for others, else the worker. Of several
// ranks, its own.
static const struct rank_row *load_row(const struct load *load)
{
    const struct load_job *job = load->job;
    const struct ranks *ranks = &job->ranks;
    for (size_t i = 0; i < ranks->row_count; i++)
        if (job->owner ? ranks->rows[i].rank == load->rank
                       : job->trace->processes[ranks->rows[i].process].tgid == job->source->pid)
            return &ranks->rows[i];
    return ranks->row_count && !job->owner ? &ranks->rows[0] : NULL;
}

static uint32_t load_worker(const struct load_job *job)
{
    for (size_t i = 0; i < job->trace->process_count && !job->owner; i++)
        if (job->trace->processes[i].kind == TRACE_TARGET &&
                job->trace->processes[i].tgid == job->source->pid)
            return job->trace->processes[i].leader;
    return TRACE_NONE;
}

static void load_waits(struct load *load)
{
    const struct trace *trace = load->job->trace;
    const struct rank_row *row = load->row;
    uint32_t thread = row ? row->thread : load_worker(load->job);
    for (size_t i = 0; row && i < row->wait_count; i++) {
        const struct trace_window *wait = &load->job->ranks.waits[row->wait_first + i];
        load_put(load, GIST_WAIT_RANKS, wait->begin, wait->end - wait->begin);
    }
    for (uint32_t i = 0; thread != TRACE_NONE && i < trace->threads[thread].gap_count; i++) {
        const struct trace_gap *gap = &trace->gaps[trace->threads[thread].gap_first + i];
        if (!ranks_waits(trace, gap))
            load_put(load, GIST_WAIT_OTHER, gap->out, gap->in - gap->out);
    }
}

struct load_works { // of each, where its time goes, and whose it is
    const struct load_job *job;
    struct map of_id;
};

static void load_take_work(void *arg, const struct trace_work *work)
{
    struct load_works *works = arg;
    const struct load *load = load_of(works->job, work->process_id);
    uint32_t what = work->kind == TRACE_WORK_KERNEL && work->kernel ? gist_kernel(work->kernel)
            : work->kind == TRACE_WORK_KERNEL || work->kind == TRACE_WORK_GRAPH ? GIST_KERNEL_OTHER
                                                                                : GIST_COPY;
    if (load)
        *map_put(&works->of_id, (uint64_t)work->id) = load->number << LOAD_WHAT_BITS | what;
}

static int load_kernels(const struct load_job *job, struct error *err)
{
    struct load_works works = {.job = job};
    int rc = trace_works_read(job->store, 0, load_take_work, &works, err);
    sqlite3_stmt *stmt = rc
            ? NULL
            : store_query(job->store, err,
                      "SELECT work_id, start_ns, dur_ns FROM gpu_op ORDER BY rowid", "");
    if (!stmt) {
        map_free(&works.of_id);
        return rc ? rc : err ? err->code : -EIO;
    }
    while ((rc = store_step(job->store, stmt, err)) == 1) {
        uint32_t work = map_get(&works.of_id, (uint64_t)sqlite3_column_int64(stmt, 0));
        if (work != MAP_NONE)
            load_put(&job->loads[work >> LOAD_WHAT_BITS],
                    (enum gist_spread)(work & ((1U << LOAD_WHAT_BITS) - 1)),
                    sqlite3_column_int64(stmt, 1), sqlite3_column_int64(stmt, 2));
    }
    map_free(&works.of_id);
    return rc;
}

struct load_phase {
    char name[GIST_NAME_MAX + 1];
    int64_t begin;
};

// Phases of `upgate.phase`, nested ones with their own time and that of the outer ones.
static int load_phases(const struct load_job *job, struct error *err)
{
    struct load_phase deep[LOAD_PHASES_DEEP] = {{{0}, 0}};
    size_t depth = 0;
    int64_t process = -1, thread = -1;
    sqlite3_stmt *stmt = store_query(job->store, err,
            "SELECT m.process_id, coalesce(m.thread_id, 0), m.at_ns, m.kind, coalesce(s.text, '') FROM python_mark m "
            "LEFT JOIN string s ON s.id = m.name_id WHERE m.kind IN (?, ?) ORDER BY 1, 2, m.at_ns, m.rowid",
            "ii", (int64_t)UG_MARK_PHASE_BEGIN, (int64_t)UG_MARK_PHASE_END);
    if (!stmt)
        return err ? err->code : -EIO;
    int rc;
    while ((rc = store_step(job->store, stmt, err)) == 1) {
        int64_t at = sqlite3_column_int64(stmt, 2);
        if (sqlite3_column_int64(stmt, 0) != process || sqlite3_column_int64(stmt, 1) != thread)
            depth = 0;
        process = sqlite3_column_int64(stmt, 0);
        thread = sqlite3_column_int64(stmt, 1);
        if (sqlite3_column_int64(stmt, 3) == UG_MARK_PHASE_BEGIN) {
            const char *name = store_text(job->store, stmt, 4);
            struct load_phase begun = {.begin = at};
            memcpy(begun.name, name, strnlen(name, GIST_NAME_MAX));
            if (depth < LOAD_PHASES_DEEP)
                deep[depth] = begun;
            depth++;
            continue;
        }
        if (!depth) // begun before the recording
            continue;
        depth--;
        struct load *load = depth < LOAD_PHASES_DEEP ? load_of(job, process) : NULL;
        struct gist *gist = load ? load_at(load, deep[depth].begin) : NULL;
        if (gist)
            gist_put_phase(gist, deep[depth].name, (uint64_t)(at - deep[depth].begin)); // by at_ns
    }
    return rc;
}

// --- collectives ---------------------------------------------------------------------------------

// Of its collectives, how many there are, and whether NCCL told when their kernels began.
static void load_count_nccl(struct load *load)
{
    const struct trace *trace = load->job->trace;
    size_t lost = 0;
    for (size_t i = 0; i < trace->nccl_count; i++) {
        bool own = load_owns(load, trace->nccl[i].process);
        load->nccl_count += own;
        lost += own && trace->nccl[i].kernel_begin <= 0;
    }
    load->nccl_kernels = trace_nccl_few(lost, load->nccl_count);
}

static int load_collectives(const struct load *load, struct reduced *ret, struct error *err)
{
    const struct trace *trace = load->job->trace;
    for (size_t i = 0; i < trace->nccl_count; i++) {
        const struct trace_nccl *op = &trace->nccl[i];
        int64_t at = load->nccl_kernels ? op->kernel_begin : op->enqueued;
        if (at <= 0 || op->sequence < 0 || !load_owns(load, op->process))
            continue;
        if (ret->meeting_count == REDUCED_MEETINGS_MAX)
            return error_set(err, -E2BIG,
                    "'%s' has more than %d collectives, which are too many to be reduced: record less of the job at a time",
                    store_path(load->job->store), (int)REDUCED_MEETINGS_MAX);
        vector_push(ret->meetings, ret->meeting_count,
                (struct reduced_meeting){.communicator = (uint64_t)op->communicator,
                        .number = (uint64_t)op->sequence,
                        .count = 1,
                        .last = load->rank,
                        .last_ns = at});
    }
    reduced_sort_meetings(ret);
    return 0;
}

// For as much of the time as a late rank must cost, or, where it was not told how long they take,
// as much of what it communicates.
static bool load_sends(const struct load *load)
{
    const struct trace *trace = load->job->trace;
    double ns = load->row ? (double)load->row->message_ns : 0, untold = 0,
           all = (double)load->nccl_count;
    for (size_t i = 0; i < trace->send_count; i++) {
        int64_t begin = trace->sends[i].kernel_begin, end = trace->sends[i].kernel_end;
        if (!load_owns(load, trace->sends[i].process))
            continue;
        all++;
        untold += begin <= 0;
        if (begin > 0 && trace_clip(trace, &begin, &end))
            ns += (double)(end - begin);
    }
    return (ns > 0 && ns >= late_rank_share * (double)trace->window_ns) ||
            (untold > 0 && untold >= late_rank_share * all);
}

// --- whose it is ---------------------------------------------------------------------------------

// Of a process that is of a rank of the job, or descends from one, that rank; -1: it is of none.
static int32_t load_rank_of(const struct trace *trace, uint32_t process, int32_t ranks)
{
    for (int depth = 0; process != TRACE_NONE && depth < 64; depth++) {
        const struct trace_process *one = &trace->processes[process];
        if (one->rank >= 0 && one->ranks == ranks)
            return one->rank;
        process = one->parent;
    }
    return -1;
}

// The launcher that the ranks of a shard have in common may be a rank itself, of another job.
static void load_own(struct load_job *job, struct trace *trace)
{
    const struct reduced_source *source = job->source;
    for (size_t i = 0; i < trace->process_count; i++)
        if (trace->processes[i].ranks != source->ranks)
            trace->processes[i].rank = trace->processes[i].ranks = -1;
    job->owner = xcalloc(trace->process_count + 1, sizeof *job->owner);
    trace_ids_build(
            &job->processes, trace->processes, trace->process_count, sizeof *trace->processes);
    for (uint32_t i = 0; i < trace->process_count; i++) {
        int32_t rank = load_rank_of(trace, i, source->ranks);
        size_t at = search_first(k, job->count, source->several[k] >= rank);
        job->owner[i] = rank >= 0 && at < job->count && source->several[at] == rank ? (uint32_t)at
                                                                                    : load_nobody;
    }
}

static void load_job_open(struct load_job *job, struct trace *trace)
{
    const struct reduced_source *source = job->source;
    job->trace = trace;
    if (source->several)
        load_own(job, trace);
    ranks_find(trace, &job->ranks);
    job->loads = xcalloc(job->count, sizeof *job->loads);
    job->open_ranks = job->count < LOAD_OPEN_RANKS ? job->count : LOAD_OPEN_RANKS;
    job->open = xcalloc(job->open_ranks * LOAD_OPEN_MAX, sizeof *job->open);
    for (size_t i = 0; i < job->count; i++) {
        struct load *load = &job->loads[i];
        load->job = job;
        load->number = (uint32_t)i;
        load->rank = source->several ? source->several[i] : source->rank;
        load->row = load_row(load);
        load_count_nccl(load);
    }
}

static void load_job_close(struct load_job *job)
{
    for (size_t i = 0; i < job->count && job->loads; i++) {
        for (size_t k = 0; k < job->loads[i].part_count; k++)
            free(job->loads[i].parts[k].bytes);
        free(job->loads[i].parts);
    }
    free(job->loads);
    free(job->open);
    free(job->owner);
    free(job->processes.index);
    ranks_free(&job->ranks);
}

// --- all -----------------------------------------------------------------------------------------

// Of one rank: nobody else may be in it. Of several, each once: a launcher that starts them again
// does so within one recording.
static int load_check(const struct load_job *job, struct error *err)
{
    const struct ranks *ranks = &job->ranks;
    int64_t told = 0, wall = job->source->wall_minus_monotonic_ns;
    int rc = job->owner ? 0
                        : store_get_int(job->store, &told, err,
                                  "SELECT count(DISTINCT rank) FROM recorded_step", "");
    for (size_t i = 1; i < ranks->row_count && rc == 0; i++) {
        if (!job->owner && ranks->rows[i].rank != ranks->rows[0].rank)
            told = 2;
        if (job->owner && ranks->rows[i].rank >= 0 &&
                ranks->rows[i].rank == ranks->rows[i - 1].rank)
            rc = error_set(err, -EINVAL,
                    "'%s' has rank %d twice, as its launcher started the ranks again, and is not reduced: `upgate rank` in "
                    "front of the workers makes a shard of each start",
                    store_path(job->store), (int)ranks->rows[i].rank);
    }
    if (rc == 0 && told > 1)
        rc = error_set(err, -EINVAL,
                "'%s' has several ranks in one that their environment does not tell apart, and is not reduced: `upgate rank` "
                "stands in front of a launcher there, not of its workers",
                store_path(job->store));
    if (rc == 0 && (wall <= -REDUCED_NS_END || wall >= REDUCED_NS_END))
        rc = error_set(
                err, -EBADMSG, "'%s' is damaged: the clock of its node", store_path(job->store));
    return rc;
}

static int load_digit(char one)
{
    return one >= '0' && one <= '9' ? one - '0' : one >= 'a' && one <= 'f' ? one - 'a' + 10 : -1;
}

// "GPU-1a2b3c4d-0011-…". False: it is none.
static bool load_uuid(const char *text, uint8_t ret[REDUCED_UUID_SIZE])
{
    static const char before[] = "GPU-";
    size_t digits = 0;
    if (strncmp(text, before, sizeof before - 1) != 0)
        return false;
    for (text += sizeof before - 1; *text; text++) {
        int digit = load_digit(*text);
        if (*text == '-')
            continue;
        if (digit < 0 || digits == 2 * REDUCED_UUID_SIZE)
            return false;
        ret[digits / 2] = (uint8_t)(ret[digits / 2] << 4 | digit);
        digits++;
    }
    return digits == 2 * REDUCED_UUID_SIZE;
}

// That of its process, else of one that descends from it.
static void load_gpu(const struct load *load, struct reduced_rank *ret)
{
    static const char maker[] = "NVIDIA ";
    const struct trace *trace = load->job->trace;
    const struct trace_device *device =
            load->row ? trace_device_of(trace, load->row->process) : NULL;
    uint8_t uuid[REDUCED_UUID_SIZE] = {0};
    for (size_t i = 0; i < trace->device_count && !device; i++)
        device = load_owns(load, trace->devices[i].process) ? &trace->devices[i] : NULL;
    if (!device || !load_uuid(device->uuid, uuid))
        return;
    const char *model = device->name +
            (strncmp(device->name, maker, sizeof maker - 1) == 0 ? sizeof maker - 1 : 0);
    ret->flags |= REDUCED_GPU;
    memcpy(ret->gpu, uuid, sizeof uuid);
    memcpy(ret->model, model, strnlen(model, REDUCED_MODEL_MAX));
}

static void load_member(const struct load *load, int64_t dropped, struct reduced *ret)
{
    const struct reduced_source *source = load->job->source;
    struct reduced_node node = {.boot = xstrdup(source->boot),
            .host = xstrdup(source->host),
            .wall_minus_monotonic_ns = source->wall_minus_monotonic_ns,
            .error_ns = source->clock_error_ns < 0 || source->clock_error_ns >= REDUCED_NS_END / 2
                    ? -1
                    : source->clock_error_ns};
    struct reduced_rank member = {
            .rank = load->rank, .dropped = dropped > 0 ? (uint64_t)dropped : 0};
    if (source->ended)
        member.flags |= REDUCED_ENDED;
    if (load->nccl_count)
        member.flags |= REDUCED_NCCL;
    if (load->nccl_count && load->nccl_kernels)
        member.flags |= REDUCED_KERNELS;
    if (load_sends(load))
        member.flags |= REDUCED_MESSAGES;
    load_gpu(load, &member);
    vector_push(ret->nodes, ret->node_count, node);
    vector_push(ret->members, ret->member_count, member);
}

// To what there is of the ranks before it. dropped: of the recorder.
static int load_add(struct load *load, int64_t dropped, struct reduced *sum, struct error *err)
{
    const struct reduced_source *source = load->job->source;
    struct reduced one = {.run = xstrdup(source->run),
            .restart = source->restart,
            .ranks = source->ranks,
            .window_steps = sum->window_steps};
    int rc = load_collectives(load, &one, err);
    if (rc == 0) {
        load_put_gists(load, &one);
        load_member(load, dropped, &one);
    }
    if (rc == 0 && sum->run)
        rc = reduced_add(sum, &one, err);
    else if (rc == 0) {
        *sum = one;
        one = (struct reduced){0};
    }
    reduced_free(&one);
    return rc;
}

// ret has its window_steps.
static int load_all(struct load_job *job, struct reduced *ret, struct error *err)
{
    int64_t dropped = 0;
    int rc = load_check(job, err);
    for (size_t i = 0; i < job->count && rc == 0; i++) {
        rc = load_steps(&job->loads[i], ret->window_steps, err);
        if (rc == 0)
            load_waits(&job->loads[i]);
    }
    if (rc == 0)
        rc = load_kernels(job, err);
    if (rc == 0)
        rc = load_phases(job, err);
    if (rc == 0)
        rc = store_get_int(job->store, &dropped, err,
                "SELECT coalesce(sum(dropped), 0) AS dropped FROM ledger", "");
    for (size_t i = 0; i < job->count && rc == 0; i++)
        // whose records were lost is not known: they count once
        rc = load_add(&job->loads[i], i ? 0 : dropped, ret, err);
    return rc;
}

// What is read is read in one transaction: SQLite locks the file once, not once for each of some 25
// SELECTs, and trace_load opens no connections of its own, each of which would read the schema
// again, where a thread for each CPU reads another shard already. Not of a shard whose recorder may
// still write: it would wait all the time. True: it was begun here.
static bool load_begin(struct store *store, const struct reduced_source *source)
{
    return source->ended && sqlite3_get_autocommit(store_db(store)) &&
            sqlite3_exec(store_db(store), "BEGIN", NULL, NULL, NULL) == SQLITE_OK;
}

int reduced_load(struct store *store, const struct reduced_source *source, uint64_t window_steps,
        struct reduced *ret, struct error *err)
{
    if (source->several &&
            (!source->several_count || source->several_count > REDUCED_LOAD_RANKS_MAX))
        return error_set(err, -EINVAL,
                "'%s' has %zu ranks in one, and one to %d of them are reduced: `upgate rank` in front of the workers makes "
                "a shard of each",
                store_path(store), source->several_count, (int)REDUCED_LOAD_RANKS_MAX);
    bool begun = load_begin(store, source);
    struct arena *arena = arena_new();
    struct trace *trace = NULL;
    struct load_job job = {
            .store = store, .source = source, .count = source->several ? source->several_count : 1};
    struct reduced reduced = {.window_steps = window_steps};
    int rc = trace_load(store, 0, arena, &trace, err);
    if (rc == 0)
        rc = trace_load_ranks(trace, store, err);
    if (rc == 0) {
        load_job_open(&job, trace);
        rc = load_all(&job, &reduced, err);
    }
    load_job_close(&job);
    trace_free(trace);
    arena_free(arena);
    if (begun)
        sqlite3_exec(store_db(store), "COMMIT", NULL, NULL, NULL); // there is nothing to lose
    if (rc)
        reduced_free(&reduced);
    else
        *ret = reduced;
    return rc;
}
