// SPDX-License-Identifier: Apache-2.0
// A shard, reduced. Rows come in about the order of time, table by table: the gists of some windows are open, those of the others are bytes. Memory
// grows with the shard all the same: its waits and collectives are loaded as for `upgate stalls`, and what each row of gpu_work is; rows of gpu_op,
// steps and phases are read one by one.
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
    LOAD_OPEN_MAX = 64    // gists of 9 KB: of 200 steps all windows, which then are encoded once, not once for each table
};

struct load_part { // steps side by side of one window
    int64_t begin;
    uint64_t window;
    uint8_t *bytes; // its gist; NULL: empty, or never closed
    size_t size;
};

struct load {
    struct store *store;
    const struct reduced_source *source;
    const struct trace *trace;
    struct load_part *parts; // by begin
    size_t part_count;
    int64_t end;             // of the last step
    size_t open[LOAD_OPEN_MAX]; // the part whose gist is open there, which is its number modulo LOAD_OPEN_MAX; SIZE_MAX: none
    struct gist gists[LOAD_OPEN_MAX];
};

// --- windows --------------------------------------------------------------------------------------

static void load_close(struct load *load, size_t place)
{
    uint8_t bytes[GIST_BYTES_MAX];
    if (load->open[place] == SIZE_MAX)
        return;
    struct load_part *part = &load->parts[load->open[place]];
    part->size = gist_encode(&load->gists[place], bytes);
    free(part->bytes);
    part->bytes = xcalloc(part->size, 1);
    memcpy(part->bytes, bytes, part->size);
    load->open[place] = SIZE_MAX;
}

static struct gist *load_open(struct load *load, size_t index)
{
    size_t place = index % LOAD_OPEN_MAX;
    struct gist *gist = &load->gists[place];
    if (load->open[place] == index)
        return gist;
    load_close(load, place);
    *gist = (struct gist){0};
    if (load->parts[index].bytes)
        gist_decode(load->parts[index].bytes, load->parts[index].size, gist); // it made them itself
    load->open[place] = index;
    return gist;
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

static int load_steps(struct load *load, uint64_t window_steps, struct error *err)
{
    sqlite3_stmt *stmt = store_query(load->store, err, "SELECT idx, begin_ns, dur_ns FROM recorded_step WHERE recording_id = ? ORDER BY begin_ns, idx",
                                     "i", load->trace->recording_id);
    if (!stmt)
        return err ? err->code : -EIO;
    int rc;
    while ((rc = store_step(load->store, stmt, err)) == 1) {
        int64_t idx = sqlite3_column_int64(stmt, 0), begin = sqlite3_column_int64(stmt, 1), ns = sqlite3_column_int64(stmt, 2);
        if (idx < 0 || begin < 0 || ns < 0) // of a damaged store some are
            continue;
        uint64_t window = (uint64_t)idx / window_steps;
        if (!load->part_count || load->parts[load->part_count - 1].window != window)
            vector_push(load->parts, load->part_count, (struct load_part){.begin = begin, .window = window});
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
        load_close(load, place);
    if (load->part_count)
        qsort(load->parts, load->part_count, sizeof *load->parts, load_by_window);
    for (size_t first = 0, end; first < load->part_count; first = end) {
        const struct load_part *part = &load->parts[first];
        for (end = first + 1; end < load->part_count && load->parts[end].window == part->window; end++)
            ;
        if (end == first + 1 && part->bytes) { // as most are: its bytes are those of the sum
            reduced_put_gist(ret, load->source->rank, part->window, part->bytes, part->size);
            continue;
        }
        sum = (struct gist){0};
        for (size_t i = first; i < end; i++)
            if (load->parts[i].bytes && gist_decode(load->parts[i].bytes, load->parts[i].size, &one))
                gist_add(&sum, &one);
        size_t size = gist_encode(&sum, bytes);
        reduced_put_gist(ret, load->source->rank, part->window, bytes, size);
    }
}

// --- what is in them ------------------------------------------------------------------------------

// The rank's process by its launcher, else whoever waits for others, else the worker.
static const struct rank_row *load_row(const struct load *load, const struct ranks *ranks)
{
    for (size_t i = 0; i < ranks->row_count; i++)
        if (load->trace->processes[ranks->rows[i].process].tgid == load->source->pid)
            return &ranks->rows[i];
    return ranks->row_count ? &ranks->rows[0] : NULL;
}

static uint32_t load_worker(const struct load *load)
{
    for (size_t i = 0; i < load->trace->process_count; i++)
        if (load->trace->processes[i].kind == TRACE_TARGET && load->trace->processes[i].tgid == load->source->pid)
            return load->trace->processes[i].leader;
    return TRACE_NONE;
}

static void load_waits(struct load *load, const struct ranks *ranks)
{
    const struct trace *trace = load->trace;
    const struct rank_row *row = load_row(load, ranks);
    uint32_t thread = row ? row->thread : load_worker(load);
    for (size_t i = 0; row && i < row->wait_count; i++) {
        const struct trace_window *wait = &ranks->waits[row->wait_first + i];
        load_put(load, GIST_WAIT_RANKS, wait->begin, wait->end - wait->begin);
    }
    for (uint32_t i = 0; thread != TRACE_NONE && i < trace->threads[thread].gap_count; i++) {
        const struct trace_gap *gap = &trace->gaps[trace->threads[thread].gap_first + i];
        if (!ranks_waits(trace, gap))
            load_put(load, GIST_WAIT_OTHER, gap->out, gap->in - gap->out);
    }
}

// Of each row of gpu_work, where its time goes.
static int load_works(struct load *load, struct map *ret, struct error *err)
{
    enum { KERNEL = 0, GRAPH = 1 };
    sqlite3_stmt *stmt = store_query(load->store, err, "SELECT w.id, w.kind, k.name FROM gpu_work w LEFT JOIN gpu_kernel k ON k.id = w.kernel_id", "");
    if (!stmt)
        return err ? err->code : -EIO;
    int rc;
    while ((rc = store_step(load->store, stmt, err)) == 1) {
        const char *name = (const char *)sqlite3_column_text(stmt, 2);
        int64_t kind = sqlite3_column_int64(stmt, 1);
        uint32_t *what = map_put(ret, (uint64_t)sqlite3_column_int64(stmt, 0));
        *what = kind == KERNEL && name ? gist_kernel(name) : kind == KERNEL || kind == GRAPH ? GIST_KERNEL_OTHER : GIST_COPY;
    }
    return rc;
}

static int load_kernels(struct load *load, struct error *err)
{
    struct map works = {0};
    int rc = load_works(load, &works, err);
    sqlite3_stmt *stmt = rc ? NULL : store_query(load->store, err, "SELECT work_id, start_ns, dur_ns FROM gpu_op ORDER BY rowid", "");
    if (!stmt) {
        map_free(&works);
        return rc ? rc : err ? err->code : -EIO;
    }
    while ((rc = store_step(load->store, stmt, err)) == 1) {
        uint32_t what = map_get(&works, (uint64_t)sqlite3_column_int64(stmt, 0));
        if (what != MAP_NONE)
            load_put(load, (enum gist_spread)what, sqlite3_column_int64(stmt, 1), sqlite3_column_int64(stmt, 2));
    }
    map_free(&works);
    return rc;
}

struct load_phase {
    char name[GIST_NAME_MAX + 1];
    int64_t begin;
};

// Phases of `upgate.phase`, nested ones with their own time and that of the outer ones.
static int load_phases(struct load *load, struct error *err)
{
    struct load_phase deep[LOAD_PHASES_DEEP] = {{{0}, 0}};
    size_t depth = 0;
    int64_t process = -1, thread = -1;
    sqlite3_stmt *stmt = store_query(load->store, err,
                                     "SELECT m.process_id, coalesce(m.thread_id, 0), m.at_ns, m.kind, coalesce(s.text, '') FROM python_mark m "
                                     "LEFT JOIN string s ON s.id = m.name_id WHERE m.kind IN (?, ?) ORDER BY 1, 2, m.at_ns, m.rowid",
                                     "ii", (int64_t)UG_MARK_PHASE_BEGIN, (int64_t)UG_MARK_PHASE_END);
    if (!stmt)
        return err ? err->code : -EIO;
    int rc;
    while ((rc = store_step(load->store, stmt, err)) == 1) {
        int64_t at = sqlite3_column_int64(stmt, 2);
        if (sqlite3_column_int64(stmt, 0) != process || sqlite3_column_int64(stmt, 1) != thread)
            depth = 0;
        process = sqlite3_column_int64(stmt, 0);
        thread = sqlite3_column_int64(stmt, 1);
        if (sqlite3_column_int64(stmt, 3) == UG_MARK_PHASE_BEGIN) {
            const char *name = store_text(load->store, stmt, 4);
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
        struct gist *gist = depth < LOAD_PHASES_DEEP ? load_at(load, deep[depth].begin) : NULL;
        if (gist)
            gist_put_phase(gist, deep[depth].name, (uint64_t)(at - deep[depth].begin)); // by at_ns
    }
    return rc;
}

// --- collectives ----------------------------------------------------------------------------------

static int load_collectives(const struct load *load, struct reduced *ret, struct error *err)
{
    const struct trace *trace = load->trace;
    bool kernels = trace_nccl_kernels(trace);
    for (size_t i = 0; i < trace->nccl_count; i++) {
        const struct trace_nccl *op = &trace->nccl[i];
        int64_t at = kernels ? op->kernel_begin : op->enqueued;
        if (at <= 0 || op->sequence < 0)
            continue;
        if (ret->meeting_count == REDUCED_MEETINGS_MAX)
            return error_set(err, -E2BIG, "'%s' has more than %d collectives, which are too many to be reduced: record less of the job at a time",
                             store_path(load->store), (int)REDUCED_MEETINGS_MAX);
        vector_push(ret->meetings, ret->meeting_count,
                    (struct reduced_meeting){.communicator = (uint64_t)op->communicator, .number = (uint64_t)op->sequence, .count = 1,
                                             .last = load->source->rank, .last_ns = at});
    }
    reduced_sort_meetings(ret);
    return 0;
}

// For as much of the time as a late rank must cost, or, where it was not told how long they take, as much of what it communicates.
static bool load_sends(const struct load *load, const struct ranks *ranks)
{
    const struct trace *trace = load->trace;
    const struct rank_row *row = load_row(load, ranks);
    double ns = row ? (double)row->message_ns : 0, untold = 0;
    for (size_t i = 0; i < trace->send_count; i++) {
        int64_t begin = trace->sends[i].kernel_begin, end = trace->sends[i].kernel_end;
        untold += begin <= 0;
        if (begin > 0 && trace_clip(trace, &begin, &end))
            ns += (double)(end - begin);
    }
    return (ns > 0 && ns >= late_rank_share * (double)trace->window_ns) ||
           (untold > 0 && untold >= late_rank_share * (double)(trace->send_count + trace->nccl_count));
}

// --- all ------------------------------------------------------------------------------------------

static int load_check(const struct load *load, const struct ranks *ranks, struct error *err)
{
    int64_t told = 0, wall = load->source->wall_minus_monotonic_ns;
    int rc = store_get_int(load->store, &told, err, "SELECT count(DISTINCT rank) FROM recorded_step", "");
    for (size_t i = 1; i < ranks->row_count; i++)
        if (ranks->rows[i].rank != ranks->rows[0].rank)
            told = 2;
    if (rc == 0 && told > 1)
        rc = error_set(err, -EINVAL, "'%s' has several ranks in one, and is not reduced: `upgate rank` stands in front of a launcher there, not of "
                       "its workers", store_path(load->store));
    if (rc == 0 && (wall <= -REDUCED_NS_END || wall >= REDUCED_NS_END))
        rc = error_set(err, -EBADMSG, "'%s' is damaged: the clock of its node", store_path(load->store));
    return rc;
}

static void load_member(const struct load *load, const struct ranks *ranks, int64_t dropped, struct reduced *ret)
{
    const struct reduced_source *source = load->source;
    bool nccl = load->trace->nccl_count > 0;
    struct reduced_node node = {.boot = xstrdup(source->boot), .host = xstrdup(source->host),
                                .wall_minus_monotonic_ns = source->wall_minus_monotonic_ns,
                                .error_ns = source->clock_error_ns < 0 || source->clock_error_ns >= REDUCED_NS_END / 2 ? -1 : source->clock_error_ns};
    struct reduced_rank member = {.rank = source->rank, .dropped = dropped > 0 ? (uint64_t)dropped : 0};
    if (source->ended)
        member.flags |= REDUCED_ENDED;
    if (nccl)
        member.flags |= REDUCED_NCCL;
    if (nccl && trace_nccl_kernels(load->trace))
        member.flags |= REDUCED_KERNELS;
    if (load_sends(load, ranks))
        member.flags |= REDUCED_MESSAGES;
    vector_push(ret->nodes, ret->node_count, node);
    vector_push(ret->members, ret->member_count, member);
}

static int load_all(struct load *load, const struct ranks *ranks, uint64_t window_steps, struct reduced *ret, struct error *err)
{
    int64_t dropped = 0;
    int rc = load_check(load, ranks, err);
    if (rc == 0)
        rc = load_steps(load, window_steps, err);
    if (rc == 0)
        load_waits(load, ranks);
    if (rc == 0)
        rc = load_kernels(load, err);
    if (rc == 0)
        rc = load_phases(load, err);
    if (rc == 0)
        rc = load_collectives(load, ret, err);
    if (rc == 0)
        rc = store_get_int(load->store, &dropped, err, "SELECT coalesce(sum(dropped), 0) AS dropped FROM ledger", "");
    if (rc)
        return rc;
    load_put_gists(load, ret);
    load_member(load, ranks, dropped, ret);
    return 0;
}

// What is read is read in one transaction: SQLite locks the file once, not once for each of some 25 SELECTs, and trace_load opens no connections of
// its own, each of which would read the schema again, where a thread for each CPU reads another shard already. Not of a shard whose recorder may
// still write: it would wait all the time. True: it was begun here.
static bool load_begin(struct store *store, const struct reduced_source *source)
{
    return source->ended && sqlite3_get_autocommit(store_db(store)) && sqlite3_exec(store_db(store), "BEGIN", NULL, NULL, NULL) == SQLITE_OK;
}

int reduced_load(struct store *store, const struct reduced_source *source, uint64_t window_steps, struct reduced *ret, struct error *err)
{
    bool begun = load_begin(store, source);
    struct arena *arena = arena_new();
    struct trace *trace = NULL;
    struct ranks ranks = {0};
    struct load *load = xcalloc(1, sizeof *load);
    struct reduced reduced = {.run = xstrdup(source->run), .restart = source->restart, .ranks = source->ranks, .window_steps = window_steps};
    int rc = trace_load(store, 0, arena, &trace, err);
    if (rc == 0)
        rc = trace_load_ranks(trace, store, err);
    if (rc == 0) {
        ranks_find(trace, &ranks);
        load->store = store;
        load->source = source;
        load->trace = trace;
        memset(load->open, 0xff, sizeof load->open);
        rc = load_all(load, &ranks, window_steps, &reduced, err);
    }
    for (size_t i = 0; i < load->part_count; i++)
        free(load->parts[i].bytes);
    free(load->parts);
    free(load);
    ranks_free(&ranks);
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
