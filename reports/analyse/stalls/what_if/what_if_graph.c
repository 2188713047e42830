// SPDX-License-Identifier: Apache-2.0
// From aligned communications to operations. A rank works from the first step's begin to the last
// one's end, but for when it waits: its work is cut where a communication begins, which depends on
// what lies before, and where one ends that held it up, on which depends what comes behind. A
// communication behind which other work went on is waited for at the next step's begin only. All
// work before a communication is of one kind with that of other ranks before the same one, and with
// that before the same one of other steps, as long as steps have as many of them.
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/what_if/what_if_comms.h"

enum {
    GRAPH_HELD_MAX = 64, // at a time by one rank; more are taken for hidden: each is looked at
                         // again for each that begins
    GRAPH_ENDED_MAX = 4  // before they are joined into one: each is a dependency of all that begins
                         // before the next work
};

struct graph_held { // a communication that has begun, and will hold the rank up
    int64_t exposed, end;
    uint32_t op;
};

struct graph_row {
    int64_t now;
    uint32_t last;           // work; REPLAY_NONE: none yet
    struct graph_held *held; // that have begun
    size_t held_count;
    uint32_t *ended; // that the next work depends on
    size_t ended_count;
    // the one that ends last of those that hold nothing up; op REPLAY_NONE: none
    struct graph_held hidden;
    uint32_t hidden_step;
};

struct graph_make {
    struct what_if_comms *comms;
    struct what_if_graph *graph;
    uint32_t *before; // of each stream: its last operation of the row; REPLAY_NONE
    bool regular;     // steps have as many communications
    uint32_t places;  // in a step, at most
};

static int graph_by_row(const void *left, const void *right)
{
    const struct what_if_comm *a = left, *b = right;
    int order = trace_order(a->row, b->row);
    order = order ?: trace_order(a->ready, b->ready);
    order = order ?: trace_order(a->begin, b->begin);
    return order ?: trace_order(a->group, b->group);
}

// To the steps: what lasts over their begin or end is cut, what is outside goes.
static void graph_cut(struct what_if_comms *comms)
{
    int64_t begin = comms->steps->begins[0], end = comms->steps->end;
    size_t kept = 0;
    for (size_t i = 0; i < comms->count; i++) {
        struct what_if_comm one = comms->list[i];
        if (one.end < begin || one.begin >= end)
            continue;
        one.begin = one.begin < begin ? begin : one.begin;
        one.end = one.end > end ? end : one.end;
        one.exposed = one.exposed < one.begin ? one.begin
                : one.exposed > one.end       ? one.end
                                              : one.exposed;
        one.ready = one.begin;
        comms->list[kept++] = one;
    }
    comms->count = kept;
    if (kept)
        qsort(comms->list, kept, sizeof *comms->list, graph_by_row);
}

static uint32_t graph_step(const struct what_if_comms *comms, int64_t at)
{
    size_t behind = search_first(middle, comms->steps->count, comms->steps->begins[middle] > at);
    return behind ? (uint32_t)behind - 1 : 0;
}

// The step of a group is that in which its first member came to it.
static uint32_t *graph_group_steps(const struct what_if_comms *comms)
{
    int64_t *first = xcalloc(comms->group_count + 1, sizeof *first);
    uint32_t *steps = xcalloc(comms->group_count + 1, sizeof *steps);
    for (size_t i = 0; i < comms->count; i++) {
        const struct what_if_comm *one = &comms->list[i];
        if (!first[one->group] || one->begin < first[one->group])
            first[one->group] = one->begin;
    }
    for (size_t i = 0; i < comms->group_count; i++)
        steps[i] = graph_step(comms, first[i]);
    free(first);
    return steps;
}

// Do four of five steps have as many communications of the first row? Of a pipeline, whose stages
// have orders of their own, that is taken for granted, unless there are too many places in a step.
static void graph_regular(struct graph_make *make, const uint32_t *steps)
{
    enum { KINDS_FEW = 1 << 20 };
    struct what_if_comms *comms = make->comms;
    uint32_t place = 0;
    size_t best = 0;
    for (size_t i = 0; i < comms->count; i++) {
        const struct what_if_comm *one = &comms->list[i], *last = i ? one - 1 : one;
        place = one->row == last->row && steps[one->group] == steps[last->group] ? place + 1 : 1;
        make->places = place > make->places ? place : make->places;
    }
    uint32_t *times = xcalloc((size_t)make->places + 2, sizeof *times);
    for (size_t first = 0, end;
            first < comms->count && comms->list[first].row == comms->list[0].row; first = end) {
        for (end = first + 1;
                end < comms->count && comms->list[end].row == comms->list[first].row &&
                steps[comms->list[end].group] == steps[comms->list[first].group];
                end++)
            ;
        best = ++times[end - first] > best ? times[end - first] : best;
    }
    if (comms->stage_of && comms->stage_count * ((size_t)make->places + 1) > KINDS_FEW) {
        free(comms->stage_of);
        comms->stage_of = NULL;
        comms->stage_count = 0;
    }
    make->regular = comms->stage_of || best * 5 >= comms->steps->count * 4;
    free(times);
}

static uint32_t graph_op(struct graph_make *make, struct replay_op op)
{
    struct what_if_graph *graph = make->graph;
    vector_push(graph->ops, graph->op_count, op);
    graph->dep_first = vector_room(graph->dep_first, graph->op_count, sizeof *graph->dep_first);
    graph->dep_first[graph->op_count] = graph->dep_count;
    return (uint32_t)graph->op_count - 1;
}

// Of the operation that was made last.
static void graph_dep(struct graph_make *make, uint32_t on)
{
    struct what_if_graph *graph = make->graph;
    if (on == REPLAY_NONE)
        return;
    vector_push(graph->deps, graph->dep_count, on);
    graph->dep_first[graph->op_count] = graph->dep_count;
}

static void graph_deps(struct graph_make *make, const struct graph_row *row)
{
    graph_dep(make, row->last);
    for (size_t i = 0; i < row->ended_count; i++)
        graph_dep(make, row->ended[i]);
}

// What has ended becomes one operation, which takes no time.
static void graph_join(
        struct graph_make *make, struct graph_row *row, uint32_t step, uint32_t kind, uint32_t rank)
{
    if (row->ended_count < GRAPH_ENDED_MAX)
        return;
    uint32_t op = graph_op(
            make, (struct replay_op){row->now, row->now, rank, step, kind + 1, REPLAY_NONE, true});
    graph_deps(make, row);
    row->ended_count = 0;
    row->last = op;
}

// The rank works until `end`; what comes next has this place in this step.
static void graph_work(struct graph_make *make, struct graph_row *row, int64_t end, uint32_t step,
        uint32_t kind, uint32_t rank)
{
    if (end <= row->now)
        return;
    uint32_t op =
            graph_op(make, (struct replay_op){row->now, end, rank, step, kind, REPLAY_NONE, false});
    graph_deps(make, row);
    row->ended_count = 0;
    if (row->hidden.op != REPLAY_NONE && row->hidden.end <= row->now && row->hidden_step < step) {
        graph_dep(make, row->hidden.op);
        row->hidden.op = REPLAY_NONE;
    }
    row->last = op;
    row->now = end;
}

// The end, by `until`, of what holds the rank up, one after the other as they end.
static void graph_ends(struct graph_make *make, struct graph_row *row, int64_t until, uint32_t step,
        uint32_t kind, uint32_t rank)
{
    while (row->held_count) {
        size_t first = 0;
        for (size_t i = 1; i < row->held_count; i++)
            first = row->held[i].end < row->held[first].end ? i : first;
        struct graph_held one = row->held[first];
        if (one.end > until)
            return;
        graph_work(make, row, one.exposed, step, kind, rank);
        row->now = one.end > row->now ? one.end : row->now;
        vector_push(row->ended, row->ended_count, one.op);
        row->held[first] = row->held[--row->held_count];
        graph_join(make, row, step, kind, rank);
    }
}

static uint32_t graph_kind(
        const struct graph_make *make, uint32_t row, uint32_t group, uint32_t place)
{
    const struct what_if_comms *comms = make->comms;
    uint32_t stage = comms->stage_of ? comms->stage_of[row] : 0;
    return 2 *
            (stage * (make->regular ? make->places + 1 : (uint32_t)comms->group_count + 1) +
                    (make->regular ? place : group));
}

static void graph_comm(struct graph_make *make, struct graph_row *row,
        const struct what_if_comm *one, uint32_t step, uint32_t kind)
{
    int64_t stop = one->ready;
    graph_ends(make, row, one->ready, step, kind, one->row);
    for (size_t i = 0; i < row->held_count; i++) // it waits for another one already
        stop = row->held[i].exposed < stop ? row->held[i].exposed : stop;
    graph_work(make, row, stop, step, kind, one->row);
    uint32_t *before = &make->before[one->stream];
    uint32_t op = graph_op(make,
            (struct replay_op){one->begin, one->end, one->row, step, kind + 1, one->group, true});
    graph_deps(make, row);
    if (*before != REPLAY_NONE && make->graph->ops[*before].rank == one->row &&
            make->graph->ops[*before].end_ns <= one->begin)
        graph_dep(make, *before);
    *before = op;
    struct graph_held held = {one->exposed, one->end, op};
    bool holds = one->exposed < one->end || (one->begin == one->end && one->exposed == one->begin);
    if (holds && row->held_count < GRAPH_HELD_MAX) {
        vector_push(row->held, row->held_count, held);
    } else if (row->hidden.op == REPLAY_NONE || one->end >= row->hidden.end) {
        row->hidden = held;
        row->hidden_step = step;
    }
}

static size_t graph_rank(struct graph_make *make, uint32_t rank, size_t at, const uint32_t *steps)
{
    const struct what_if_comms *comms = make->comms;
    struct graph_row row = {
            .now = comms->steps->begins[0], .last = REPLAY_NONE, .hidden = {.op = REPLAY_NONE}};
    uint32_t place = 0, step = UINT32_MAX, last_step = (uint32_t)comms->steps->count - 1;
    for (; at < comms->count && comms->list[at].row == rank; at++) {
        const struct what_if_comm *one = &comms->list[at];
        place = steps[one->group] == step ? place + 1 : 0;
        step = steps[one->group];
        graph_comm(make, &row, one, step, graph_kind(make, rank, one->group, place));
    }
    uint32_t kind = graph_kind(make, rank, (uint32_t)comms->group_count, make->places);
    graph_ends(make, &row, INT64_MAX, last_step, kind, rank);
    graph_work(make, &row, comms->steps->end, last_step, kind, rank);
    free(row.held);
    free(row.ended);
    return at;
}

void what_if_graph_make(struct what_if_comms *comms, struct what_if_graph *ret_graph)
{
    struct graph_make make = {.comms = comms, .graph = ret_graph, .places = 1};
    struct what_if_graph *graph = ret_graph;
    *graph = (struct what_if_graph){0};
    graph->dep_first = vector_room(NULL, 0, sizeof *graph->dep_first);
    graph->dep_first[0] = 0;
    graph_cut(comms);
    uint32_t *steps = graph_group_steps(comms);
    what_if_ready(comms, steps);
    if (comms->count)
        qsort(comms->list, comms->count, sizeof *comms->list, graph_by_row);
    graph_regular(&make, steps);
    make.before = xcalloc(comms->stream_count + 1, sizeof *make.before);
    memset(make.before, 0xff, (comms->stream_count + 1) * sizeof *make.before);
    size_t at = 0, stages = comms->stage_of ? comms->stage_count : 1;
    for (size_t i = 0; i < comms->ranks->row_count; i++)
        at = graph_rank(&make, (uint32_t)i, at, steps);
    graph->begins = xcalloc(comms->steps->count + 1, sizeof *graph->begins);
    // what depends on nothing begins with the first step
    for (size_t i = 0; i < comms->steps->count; i++)
        graph->begins[i] = comms->steps->begins[0];
    graph->job = (struct replay_job){.ops = graph->ops,
            .op_count = graph->op_count,
            .dep_first = graph->dep_first,
            .deps = graph->deps,
            .step_begin_ns = graph->begins,
            .stage_of = comms->stage_of,
            .step_count = comms->steps->count,
            .rank_count = comms->ranks->row_count,
            .group_count = comms->group_count,
            .stage_count = comms->stage_count,
            .kind_count = 2 * stages * ((make.regular ? make.places : comms->group_count) + 1)};
    free(make.before);
    free(steps);
}

void what_if_graph_free(struct what_if_graph *graph)
{
    free(graph->ops);
    free(graph->dep_first);
    free(graph->deps);
    free(graph->begins);
    *graph = (struct what_if_graph){0};
}
