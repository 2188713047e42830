// SPDX-License-Identifier: Apache-2.0
// A straggler in words: who, how late, what it did meanwhile, and whom that leads to. All strings
// lie in the trace's arena.
#include <ctype.h>

#include "common/strings.h"
#include "reports/analyse/stalls/group.h"
#include "reports/analyse/stalls/ranks/ranks.h"

// "rank 1", or "process 4121" where the rank is not known.
static const char *late_name(const struct ranks *ranks, uint32_t row)
{
    const struct rank_row *one = &ranks->rows[row];
    struct arena *arena = ranks->trace->arena;
    return one->rank >= 0
            ? arena_print(arena, "rank %d", (int)one->rank)
            : arena_print(arena, "process %d", ranks->trace->processes[one->process].tgid);
}

// "reads wait for the disk", "python's garbage collector runs": the title of the cause within a
// sentence.
static const char *late_cause(struct arena *arena, enum cause cause)
{
    char *title = arena_copy(arena, stall_causes(&(size_t){0})[cause].title);
    if (islower((unsigned char)title[1]) || title[1] == ' ')
        title[0] = (char)tolower((unsigned char)title[0]);
    return title;
}

static const char *late_what(const struct ranks *ranks, const struct late_rank *straggler)
{
    struct arena *arena = ranks->trace->arena;
    const char *function = straggler->function;
    if (straggler->cause < CAUSE_COUNT)
        return arena_print(arena, "%s%s%s", late_cause(arena, straggler->cause),
                function ? ", in " : "", function ? function : "");
    if (straggler->by_connections)
        return arena_print(arena,
                straggler->receives
                        ? "messages from %s to it come late, by the network or its connection"
                        : "its messages to %s come late, by the network or its connection",
                late_name(ranks, straggler->peer));
    if (straggler->messages)
        return "its messages come late, by the network or its connection";
    if (!function)
        return NULL;
    if (straggler->kernels)
        return arena_print(arena, "%s", function);
    return arena_print(arena, "%s in %s",
            straggler->sleeping          ? "sleeping"
                    : straggler->waiting ? "waiting"
                                         : "computing",
            function);
}

static const char *late_advice(const struct ranks *ranks, const struct late_rank *straggler)
{
    const struct trace *trace = ranks->trace;
    struct arena *arena = trace->arena;
    const char *name = late_name(ranks, straggler->row);
    if (straggler->cause < CAUSE_COUNT) {
        const struct stall_cause *cause = &stall_causes(&(size_t){0})[straggler->cause];
        const char *who = straggler->culprit == TRACE_NONE
                ? "whoever does it"
                : describe_program(trace, trace->threads[straggler->culprit].process);
        const char *advice = arena_print(arena, cause->advice, who);
        return arena_print(arena, "on %s: %s", name, advice);
    }
    if (straggler->kernels)
        return arena_print(arena,
                "compare the GPU of %s with the others': clocks and throttling (nvidia-smi -q -d CLOCK,PERFORMANCE), who else "
                "uses it, and whether its input is larger",
                name);
    if (straggler->function)
        return arena_print(arena,
                "look at %s, which takes %s longer than the other ranks: %s, or take it out of the step",
                straggler->function, name,
                ranks->messages ? "divide stages and input evenly" : "spread its input evenly");
    if (straggler->by_connections) {
        const char *again = straggler->retransmits > 0
                ? arena_print(arena, "; %.0f segments were sent again", straggler->retransmits)
                : "";
        return arena_print(arena,
                "look at the link of %s and at who else uses it: while messages from %s to %s were under way they came at %.1f Mbit/s%s",
                name, late_name(ranks, straggler->receives ? straggler->peer : straggler->row),
                late_name(ranks, straggler->receives ? straggler->row : straggler->peer),
                straggler->bits_per_s / 1e6, again);
    }
    if (straggler->messages)
        return arena_print(arena,
                "look at the link of %s and at who else uses it: outside of collectives it does no more than the other ranks",
                name);
    return arena_print(arena,
            "look at what %s does between its collectives that the other ranks do not", name);
}

struct stall_gpu late_gpu(const struct ranks *ranks, uint32_t row)
{
    const struct trace_device *device = trace_device_of(ranks->trace, ranks->rows[row].process);
    return device ? (struct stall_gpu){true, device->device, device->uuid, device->name}
                  : (struct stall_gpu){.uuid = "", .name = ""};
}

void late_describe(const struct ranks *ranks, const struct work *work,
        const struct late_rank *straggler, struct stall *ret_stall)
{
    const struct trace *trace = work->trace;
    const struct stall_cause *cause = &stall_causes(&(size_t){0})[CAUSE_STRAGGLER];
    const struct rank_row *row = &ranks->rows[straggler->row];
    struct group group = {.cause = CAUSE_STRAGGLER,
            .culprit = TRACE_NONE,
            .spans = straggler->spans,
            .span_count = straggler->span_count};
    size_t count = 0;
    int64_t longest = 0;
    bool seen = straggler->function || straggler->cause < CAUSE_COUNT || straggler->by_connections;
    for (size_t i = 0; i < straggler->span_count; i++) {
        const struct trace_window *span = &straggler->spans[i];
        // pieces of one time, between which a GPU was busy
        count += !i || span->begin - span[-1].end > 1000000;
        longest = span->end - span->begin > longest ? span->end - span->begin : longest;
    }
    group_find_steps(trace, &group);
    period_find(trace, &group);
    *ret_stall = (struct stall){
            .cause = cause->id,
            .title = cause->title,
            .total_ns = straggler->total_ns,
            .max_ns = longest,
            .count = count,
            .first_ns = straggler->spans[0].begin,
            .last_ns = straggler->spans[straggler->span_count - 1].end,
            .has_period = group.has_period,
            .period_ns = group.period_ns,
            .blocked_ns = straggler->total_ns,
            .confidence = seen ? 0.95 : 0.8,
            .doubts = seen ? 0 : STALL_DOUBT_UNSEEN,
            .victim_threads = ranks->row_count - 1,
            .culprit = describe_task(trace, row->thread),
            .has_steps = trace->step_count > 0,
            .steps_hit = group.steps_hit,
            .steps_total = trace->step_count,
            .is_straggler = true,
            .rank = row->rank,
            .gpu = late_gpu(ranks, straggler->row),
            .ranks = ranks->size > 0 ? ranks->size : (int32_t)ranks->row_count,
            .late_cause = straggler->cause < CAUSE_COUNT
                    ? stall_causes(&(size_t){0})[straggler->cause].id
                    : NULL,
            .what = late_what(ranks, straggler),
            .late_ns = count ? straggler->total_ns / (int64_t)count : 0,
            .more_ns = count && (straggler->function || straggler->cause < CAUSE_COUNT)
                    ? straggler->deed_ns / (int64_t)count
                    : 0,
            .ranks_ns = straggler->ranks_ns,
            .culprit_python = describe_stack(trace, straggler->python),
            .culprit_user = describe_stack(trace, straggler->user),
            .weight = (double)straggler->total_ns,
            .advice = late_advice(ranks, straggler),
    };
    if (straggler->culprit != TRACE_NONE && straggler->culprit != row->thread) {
        ret_stall->chain[0] = (struct stall_link){
                .from = describe_task(trace, ranks->rows[straggler->waiter].thread),
                .to = describe_task(trace, row->thread),
                .via = ranks->messages ? VIA_MESSAGE : VIA_COLLECTIVE,
                .cpu = -1};
        ret_stall->chain[1] = (struct stall_link){.from = describe_task(trace, row->thread),
                .to = describe_task(trace, straggler->culprit),
                .via = VIA_CAUSE,
                .name = stall_causes(&(size_t){0})[straggler->cause].id,
                .cpu = -1};
        ret_stall->chain_count = 2;
        if (straggler->culprit_stack)
            ret_stall->culprit_kernel = describe_stack(trace, straggler->culprit_stack);
    }
}

const char *ranks_missing(const struct ranks *ranks)
{
    enum { NAMED_MAX = 8 };
    if (ranks->size < 2 || !ranks->row_count)
        return NULL;
    struct strbuf text = {0};
    size_t missing = 0;
    for (int32_t rank = 0; rank < ranks->size; rank++) {
        bool found = false;
        for (size_t i = 0; i < ranks->row_count && !found; i++)
            found = ranks->rows[i].rank == rank;
        if (found)
            continue;
        if (missing++ < NAMED_MAX)
            strbuf_add(&text, "%s%d", missing > 1 ? ", " : "", (int)rank);
    }
    const char *sentence = NULL;
    if (missing > NAMED_MAX)
        strbuf_add(&text, " and %zu more", missing - NAMED_MAX);
    if (missing)
        sentence = arena_print(ranks->trace->arena,
                "rank%s %s of %d %s not recorded: whether the others wait for %s cannot be told",
                missing == 1 ? "" : "s", text.text, (int)ranks->size, missing == 1 ? "was" : "were",
                missing == 1 ? "it" : "them");
    strbuf_free(&text);
    return sentence;
}
