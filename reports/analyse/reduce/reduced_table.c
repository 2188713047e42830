// SPDX-License-Identifier: Apache-2.0
// Rows of ranks, and who is late. The windows, or the collectives, are cut into LATE_BLOCKS parts;
// how much a rank is waited for more than the others varies from part to part, and that is the
// noise which it must exceed.
#include "reports/analyse/reduce/reduced_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/stalls/ranks/ranks.h"

struct table_part { // a gist
    uint64_t window, steps, waits;
    size_t row;
    double step_ns, wait_ns;
};

struct table_work {
    const struct reduced *reduced;
    struct reduced_table *table; // rows by rank, as members
    struct table_part *parts;    // by window
    double *more;    // of each row LATE_BLOCKS: how long it was waited for, then how much more than
                     // the others
    double steps_ns; // of a rank, in the mean
};

static int table_by_window(const void *left, const void *right)
{
    const struct table_part *a = left, *b = right;
    if (a->window != b->window)
        return a->window < b->window ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

// --- rows ----------------------------------------------------------------------------------------

static void table_gpu(const struct reduced_rank *member, struct reduced_row *ret)
{
    const uint8_t *u = member->gpu;
    if (!(member->flags & REDUCED_GPU))
        return;
    snprintf(ret->gpu, sizeof ret->gpu,
            "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
            u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
            u[15]);
    memcpy(ret->model, member->model, sizeof ret->model);
}

static void table_row(const struct reduced *reduced, const struct reduced_rank *member,
        const struct gist *all, struct reduced_row *ret)
{
    const struct spread *steps = &all->spreads[GIST_STEP];
    *ret = (struct reduced_row){.rank = member->rank,
            .host = reduced->nodes[member->node].host,
            .steps = spread_count(steps),
            .dropped = member->dropped,
            .ended = (member->flags & REDUCED_ENDED) != 0,
            .step_p50_ns = spread_quantile(steps, 0.5),
            .step_p99_ns = spread_quantile(steps, 0.99),
            .step_error = spread_error(steps),
            .late_ns = NAN,
            .more_share = NAN};
    for (size_t i = 0; i < GIST_SPREAD_COUNT; i++)
        ret->ns[i] = (double)all->spreads[i].sum_ns;
    memcpy(ret->phases, all->phases, all->phase_count * sizeof *all->phases);
    ret->phases[GIST_PHASES_MAX] = all->others;
    table_gpu(member, ret);
}

// Members and gists are both by rank.
static void table_rows(struct table_work *work)
{
    const struct reduced *reduced = work->reduced;
    struct gist one, *all = xcalloc(1, sizeof *all);
    size_t at = 0;
    for (size_t i = 0; i < reduced->member_count; i++) {
        const struct reduced_rank *member = &reduced->members[i];
        *all = (struct gist){0};
        for (; at < reduced->gist_count && reduced->gists[at].rank == member->rank; at++) {
            const struct reduced_gist *gist = &reduced->gists[at];
            // never
            if (!gist_decode(
                        (const uint8_t *)reduced->gist_bytes.text + gist->at, gist->size, &one))
                continue;
            gist_add(all, &one);
            work->parts[at] =
                    (struct table_part){gist->window, spread_count(&one.spreads[GIST_STEP]),
                            spread_count(&one.spreads[GIST_WAIT_RANKS]), i,
                            (double)one.spreads[GIST_STEP].sum_ns,
                            (double)one.spreads[GIST_WAIT_RANKS].sum_ns};
        }
        table_row(reduced, member, all, &work->table->rows[i]);
        work->steps_ns += work->table->rows[i].ns[GIST_STEP] / (double)reduced->member_count;
    }
    free(all);
}

// --- who came last to collectives ----------------------------------------------------------------

static void table_last(struct table_work *work, int32_t rank, double waited_ns, size_t block)
{
    // of a meeting: it is there
    size_t at = (size_t)(reduced_member(work->reduced, rank) - work->reduced->members);
    work->table->rows[at].last++;
    work->more[at * LATE_BLOCKS + block] += waited_ns;
}

static int64_t table_wall(const struct table_work *work, const struct reduced_meeting *one)
{
    // both below 2^61
    return one->last_ns + work->reduced->nodes[one->node].wall_minus_monotonic_ns;
}

// Was it surely so? As ranks_surely_later: beyond twice what both clocks are known within.
static bool table_surely_last(const struct table_work *work, const struct reduced_meeting *last,
        const struct reduced_meeting *other)
{
    int64_t error_a = work->reduced->nodes[last->node].error_ns,
            error_b = work->reduced->nodes[other->node].error_ns;
    double later_ns = (double)table_wall(work, last) - (double)table_wall(work, other);
    return last == other ||
            (error_a >= 0 && error_b >= 0 && later_ns >= 2 * ((double)error_a + (double)error_b));
}

// One collective: of each node what it knows.
static void table_collective(
        struct table_work *work, const struct reduced_meeting *nodes, size_t count, size_t block)
{
    const struct reduced_meeting *last = nodes;
    double came = 0, waits_ns = 0;
    bool sure = true;
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].repeats)
            return;
        came += nodes[i].count;
        last = table_wall(work, &nodes[i]) > table_wall(work, last) ? &nodes[i] : last;
    }
    if (came < 2)
        return;
    for (size_t i = 0; i < count; i++) {
        sure &= table_surely_last(work, last, &nodes[i]);
        waits_ns += (double)nodes[i].waits_ns +
                (double)nodes[i].count *
                        (double)(table_wall(work, last) - table_wall(work, &nodes[i]));
    }
    work->table->collectives++;
    work->table->unclear += !sure;
    bool told = sure;
    if (sure)
        table_last(work, last->last, waits_ns / (came - 1), block);
    for (size_t i = 0; i < count && !sure; i++) {
        if (nodes[i].count < 2)
            continue;
        told = true;
        table_last(work, nodes[i].last, (double)nodes[i].waits_ns / (nodes[i].count - 1), block);
    }
    work->table->told += told;
}

// All of a communicator, whose order is that of time. Returns how many ranks it has at most.
static uint64_t table_communicator(
        struct table_work *work, const struct reduced_meeting *list, size_t count)
{
    size_t collectives = 0, at = 0;
    uint64_t most = 0, came;
    for (size_t i = 0; i < count; i++)
        collectives += !i || list[i].number != list[i - 1].number;
    for (size_t first = 0, end; first < count; first = end, at++) {
        came = 0;
        for (end = first; end < count && list[end].number == list[first].number; end++)
            came += list[end].count;
        most = came > most ? came : most;
        table_collective(work, &list[first], end - first, at * LATE_BLOCKS / collectives);
    }
    return most;
}

static void table_collectives(struct table_work *work)
{
    const struct reduced *reduced = work->reduced;
    const struct reduced_meeting *list = reduced->meetings;
    uint64_t members = 0, kernels = 0;
    bool grouped = false;
    for (size_t i = 0; i < reduced->member_count; i++) {
        members += (reduced->members[i].flags & REDUCED_NCCL) != 0;
        kernels += (reduced->members[i].flags & (REDUCED_NCCL | REDUCED_KERNELS)) ==
                (REDUCED_NCCL | REDUCED_KERNELS);
    }
    for (size_t first = 0, end; first < reduced->meeting_count; first = end) {
        for (end = first;
                end < reduced->meeting_count && list[end].communicator == list[first].communicator;
                end++)
            ;
        uint64_t most = table_communicator(work, &list[first], end - first);
        grouped |= most > 1 && most < members;
    }
    work->table->by_collectives = work->table->collectives > 0;
    if (!work->table->by_collectives)
        return;
    work->table->why = grouped                       ? REDUCED_WHY_GROUPS
            : kernels && kernels < members           ? REDUCED_WHY_MIXED
            : work->table->collectives < LATE_BLOCKS ? REDUCED_WHY_FEW
            : work->table->told < LATE_BLOCKS        ? REDUCED_WHY_CLOCKS
                                                     : REDUCED_TOLD;
    // who nobody told of is not 0 late
    if (work->table->told < LATE_BLOCKS && work->table->told < work->table->collectives)
        return;
    for (size_t i = 0; i < reduced->member_count; i++) {
        work->table->rows[i].late_ns = 0;
        for (size_t block = 0; block < LATE_BLOCKS; block++)
            work->table->rows[i].late_ns += work->more[i * LATE_BLOCKS + block];
    }
}

// --- who waited less than the others -------------------------------------------------------------

// Do all ranks have this window, with as many steps?
static bool table_is_common(const struct table_part *parts, size_t count, size_t rows)
{
    bool common = count == rows && parts[0].steps > 0;
    for (size_t i = 1; i < count; i++)
        common &= parts[i].steps == parts[0].steps;
    return common;
}

// The windows that all have, side by side; returns how many.
static size_t table_keep_common(struct table_part *parts, size_t count, size_t rows)
{
    size_t kept = 0;
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && parts[end].window == parts[first].window; end++)
            ;
        if (!table_is_common(&parts[first], end - first, rows))
            continue;
        memmove(&parts[kept * rows], &parts[first], rows * sizeof *parts);
        kept++;
    }
    return kept;
}

static void table_waits(struct table_work *work)
{
    size_t rows = work->reduced->member_count, count = work->reduced->gist_count;
    if (count)
        qsort(work->parts, count, sizeof *work->parts, table_by_window);
    size_t windows = table_keep_common(work->parts, count, rows);
    uint64_t waits = 0;
    for (size_t i = 0; i < windows * rows; i++)
        waits = spread_sum(waits, work->parts[i].waits);
    if (windows < LATE_BLOCKS || waits < LATE_BLOCKS) {
        work->table->why = REDUCED_WHY_FEW;
        return;
    }
    work->steps_ns = 0;
    for (size_t i = 0; i < rows; i++)
        work->table->rows[i].late_ns = 0;
    for (size_t k = 0; k < windows; k++) {
        const struct table_part *parts = &work->parts[k * rows];
        double all_ns = 0;
        for (size_t i = 0; i < rows; i++)
            all_ns += parts[i].wait_ns;
        for (size_t i = 0; i < rows; i++) {
            double waited_ns = (all_ns - parts[i].wait_ns) / (double)(rows - 1) - parts[i].wait_ns;
            work->more[parts[i].row * LATE_BLOCKS + k * LATE_BLOCKS / windows] += waited_ns;
            work->table->rows[parts[i].row].late_ns += waited_ns;
            work->steps_ns += parts[i].step_ns / (double)rows;
        }
    }
    for (size_t i = 0; i < rows; i++)
        work->table->rows[i].late_ns = fmax(work->table->rows[i].late_ns, 0);
}

// --- who is late ---------------------------------------------------------------------------------

// From how long ranks were waited for to how much longer than the others.
static void table_compare(struct table_work *work)
{
    size_t rows = work->reduced->member_count;
    for (size_t block = 0; block < LATE_BLOCKS; block++) {
        double all = 0;
        for (size_t i = 0; i < rows; i++)
            all += work->more[i * LATE_BLOCKS + block];
        for (size_t i = 0; i < rows; i++) {
            double *own = &work->more[i * LATE_BLOCKS + block];
            *own -= (all - *own) / (double)(rows - 1);
        }
    }
}

static void table_name(struct table_work *work, size_t index)
{
    struct reduced_row *row = &work->table->rows[index];
    double sum, errors = late_errors(&work->more[index * LATE_BLOCKS], LATE_BLOCKS, &sum);
    row->more_share = sum / work->steps_ns;
    row->late = work->table->why == REDUCED_TOLD && row->more_share >= late_rank_share &&
            errors >= late_rank_errors;
}

static int table_by_late(const void *left, const void *right)
{
    const struct reduced_row *a = left, *b = right;
    double late_a = isnan(a->late_ns) ? 0 : a->late_ns, late_b = isnan(b->late_ns) ? 0 : b->late_ns;
    if (late_a < late_b || late_a > late_b)
        return late_a > late_b ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

void reduced_table_make(const struct reduced *reduced, struct reduced_table *ret)
{
    size_t rows = reduced->member_count;
    *ret = (struct reduced_table){.count = rows, .rows = xcalloc(rows + 1, sizeof *ret->rows)};
    struct table_work work = {.reduced = reduced,
            .table = ret,
            .parts = xcalloc(reduced->gist_count + 1, sizeof *work.parts),
            .more = xcalloc(rows * LATE_BLOCKS + 1, sizeof *work.more)};
    bool messages = false;
    for (size_t i = 0; i < rows; i++)
        messages |= (reduced->members[i].flags & REDUCED_MESSAGES) != 0;
    table_rows(&work);
    if (rows < 2)
        ret->why = REDUCED_WHY_ALONE;
    else
        table_collectives(&work);
    if (rows > 1 && !ret->by_collectives)
        table_waits(&work);
    else if (rows > 1)
        table_compare(&work);
    if (rows > 1 && messages)
        ret->why = REDUCED_WHY_MESSAGES;
    if (rows > 1 && !(work.steps_ns > 0))
        ret->why = REDUCED_WHY_NO_STEPS;
    for (size_t i = 0; i < rows && rows > 1 && work.steps_ns > 0; i++)
        if (!isnan(ret->rows[i].late_ns))
            table_name(&work, i);
    if (rows)
        qsort(ret->rows, rows, sizeof *ret->rows, table_by_late);
    free(work.parts);
    free(work.more);
}

void reduced_table_free(struct reduced_table *table)
{
    free(table->rows);
    *table = (struct reduced_table){0};
}
