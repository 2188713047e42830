// SPDX-License-Identifier: Apache-2.0
// The questions, and whether they can be asked: where the job as it was, run again, does not take
// what was measured, no answer is given.
#include "reports/analyse/stalls/what_if/what_if.h"

#include <math.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/what_if/what_if_comms.h"

enum { WHAT_IF_STEPS_MIN = 5, WHAT_IF_WARM_MIN = 10 };
static const double what_if_error_max = 0.05, what_if_odd_max = 0.2;

// The first step is left out where there are many.
static void what_if_steps(const struct trace *trace, struct what_if_steps *ret)
{
    int32_t best = -1;
    size_t most = 0, *counts = xcalloc(RANKS_MAX, sizeof *counts);
    for (size_t i = 0; i < trace->step_count; i++) {
        int32_t rank = trace->step_ranks[i];
        if (rank >= 0 && rank < RANKS_MAX && ++counts[rank] > most) {
            most = counts[rank];
            best = rank;
        }
    }
    free(counts);
    *ret = (struct what_if_steps){.rank = best};
    const struct trace_window *window = &trace->windows[0];
    bool first = most >= WHAT_IF_WARM_MIN;
    for (size_t i = 0; i < trace->step_count; i++) {
        const struct trace_window *one = &trace->steps[i];
        if (trace->step_ranks[i] != best || one->begin < window->begin || one->end > window->end ||
                one->begin < ret->end)
            continue;
        ret->end = one->end;
        if (!first)
            vector_push(ret->begins, ret->count, one->begin);
        first = false;
    }
}

// Without steps all that lies between the first collective and the last is one.
static void what_if_whole(const struct ranks *ranks, struct what_if_steps *ret)
{
    const struct trace_window *window = &ranks->trace->windows[0];
    int64_t begin = ranks->first_end > window->begin ? ranks->first_end : window->begin,
            end = ranks->last_end < window->end ? ranks->last_end : window->end;
    *ret = (struct what_if_steps){.rank = -1, .end = end};
    if (ranks->first_end && begin < end)
        vector_push(ret->begins, ret->count, begin);
}

// Each rank once, and all of them; on clocks that are known against each other.
static bool what_if_ranks(const struct ranks *ranks)
{
    if (ranks->row_count < 2 || (ranks->size > 0 && ranks->row_count != (size_t)ranks->size))
        return false;
    for (size_t i = 1; i < ranks->row_count && ranks->size > 0; i++)
        if (ranks->rows[i].rank == ranks->rows[i - 1].rank)
            return false;
    return ranks_clocks_known(ranks);
}

struct what_if_asked {
    const struct replay *replay;
    const struct what_if_graph *graph;
    const struct what_if_steps *steps;
    int64_t *durations, *ends;
};

// ns a step
static double what_if_run(const struct what_if_asked *asked, const int64_t *durations)
{
    int64_t end = INT64_MIN;
    replay_run(asked->replay, durations, true, asked->ends);
    for (size_t i = 0; i < asked->steps->count; i++)
        end = asked->ends[i] > end ? asked->ends[i] : end;
    return (double)(end - asked->steps->begins[0]) / (double)asked->steps->count;
}

// Is each late rank one of several that do the same? Who is alone in its stage has nobody to be
// like.
static bool what_if_alike(const struct replay_job *job, const bool *late)
{
    bool alike = true;
    for (size_t i = 0; i < job->rank_count && job->stage_of; i++) {
        bool others = !late[i];
        for (size_t k = 0; k < job->rank_count && !others; k++)
            others = !late[k] && job->stage_of[k] == job->stage_of[i];
        alike &= others;
    }
    return alike;
}

static void what_if_ask(const struct what_if_asked *asked, const struct ranks *ranks,
        const struct late_ranks *stragglers, struct stall_what_if *ret)
{
    bool *late = xcalloc(ranks->row_count + 1, sizeof *late);
    for (size_t i = 0; i < stragglers->count; i++)
        late[stragglers->list[i].row] = true;
    if (stragglers->count && stragglers->count < ranks->row_count &&
            what_if_alike(&asked->graph->job, late)) {
        replay_if_without(asked->replay, late, asked->durations);
        ret->without_stragglers_ns = what_if_run(asked, asked->durations);
        ret->stragglers = stragglers->count;
        ret->straggler = ranks->rows[stragglers->list[0].row].rank;
    }
    const struct replay_job *job = &asked->graph->job;
    // else it is not known which of their work is the same, or none is
    if (!ranks->messages || (job->stage_of && job->stage_count < job->rank_count)) {
        replay_if_even(asked->replay, asked->durations);
        ret->even_ns = what_if_run(asked, asked->durations);
    }
    replay_if_instant(asked->replay, asked->durations);
    ret->instant_ns = what_if_run(asked, asked->durations);
    if (replay_if_balanced(asked->replay, asked->durations))
        ret->balanced_ns = what_if_run(asked, asked->durations);
    free(late);
}

static void what_if_replay(
        struct what_if_comms *comms, const struct late_ranks *stragglers, struct stall_what_if *ret)
{
    struct what_if_graph graph;
    struct replay *replay = NULL;
    struct error err = {0};
    what_if_graph_make(comms, &graph);
    if (replay_new(&graph.job, &replay, &err)) {
        ret->why_not = STALL_WHY_NOT_CONTRADICTION;
        ret->contradiction = arena_copy(comms->ranks->trace->arena, err.text);
        what_if_graph_free(&graph);
        return;
    }
    struct what_if_asked asked = {.replay = replay,
            .graph = &graph,
            .steps = comms->steps,
            .durations = xcalloc(graph.op_count + 1, sizeof *asked.durations),
            .ends = xcalloc(comms->steps->count + 1, sizeof *asked.ends)};
    ret->steps = (int64_t)comms->steps->count;
    ret->measured_ns =
            (double)(comms->steps->end - comms->steps->begins[0]) / (double)comms->steps->count;
    ret->replayed_ns = what_if_run(&asked, replay_durations(replay));
    ret->unsure_ns = (double)comms->guessed * (double)comms->guess_ns / (double)comms->steps->count;
    if (fabs(ret->replayed_ns / ret->measured_ns - 1) <= what_if_error_max)
        what_if_ask(&asked, comms->ranks, stragglers, ret);
    else
        ret->why_not = STALL_WHY_NOT_OFF;
    ret->known = !ret->why_not;
    free(asked.durations);
    free(asked.ends);
    replay_free(replay);
    what_if_graph_free(&graph);
}

void what_if_find(const struct ranks *ranks, const struct late_ranks *stragglers, bool lost,
        struct stall_what_if *ret)
{
    const struct trace *trace = ranks->trace;
    *ret = (struct stall_what_if){.straggler = -1,
            .without_stragglers_ns = NAN,
            .even_ns = NAN,
            .instant_ns = NAN,
            .balanced_ns = NAN};
    if (!what_if_ranks(ranks) || trace->window_count != 1)
        return;
    struct what_if_steps steps;
    struct what_if_comms comms = {.ranks = ranks, .steps = &steps};
    ret->by_steps = trace->step_count > 0;
    if (ret->by_steps)
        what_if_steps(trace, &steps);
    else
        what_if_whole(ranks, &steps);
    bool many = steps.count >= (ret->by_steps ? WHAT_IF_STEPS_MIN : 1);
    if (many && (trace->nccl_count || trace->send_count))
        what_if_align_nccl(&comms);
    else if (many)
        what_if_align_waits(&comms);
    while (comms.until_ns && steps.count > 1 && steps.end > comms.until_ns)
        steps.end = steps.begins[--steps.count];
    if (comms.until_ns && steps.end > comms.until_ns)
        steps.end = comms.until_ns;
    many = many && steps.count >= (ret->by_steps ? WHAT_IF_STEPS_MIN : 1) &&
            steps.end > steps.begins[0];
    // it hardly waits, or most of it was not recorded
    if (!many || comms.group_count < (ret->by_steps ? steps.count / 2 + 1 : LATE_BLOCKS))
        ;
    else if (lost)
        ret->why_not = STALL_WHY_NOT_LOST;
    else if (comms.odd > what_if_odd_max * comms.whole)
        ret->why_not = STALL_WHY_NOT_APART;
    else
        what_if_replay(&comms, stragglers, ret);
    free(comms.list);
    free(comms.stage_of);
    free(steps.begins);
}
