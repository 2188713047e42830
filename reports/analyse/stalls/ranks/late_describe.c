// SPDX-License-Identifier: Apache-2.0
// What is told of a straggler: who, how late, what it did meanwhile, and whom that leads to. All
// strings lie in the trace's arena.
#include "reports/analyse/stalls/group.h"
#include "reports/analyse/stalls/ranks/ranks.h"

static enum stall_deed_kind late_deed_kind(const struct late_rank *straggler)
{
    if (straggler->cause < CAUSE_COUNT)
        return STALL_DEED_CAUSE;
    if (straggler->by_connections)
        return straggler->receives ? STALL_DEED_RECEIVES : STALL_DEED_SENDS;
    if (straggler->messages)
        return STALL_DEED_MESSAGES;
    if (straggler->kernels)
        return straggler->function ? STALL_DEED_KERNEL : STALL_DEED_KERNELS;
    if (!straggler->function)
        return STALL_DEED_UNSEEN;
    return straggler->sleeping   ? STALL_DEED_SLEEPS
            : straggler->waiting ? STALL_DEED_WAITS
                                 : STALL_DEED_COMPUTES;
}

static struct stall_deed late_deed(const struct ranks *ranks, const struct late_rank *straggler)
{
    struct stall_deed deed = {.kind = late_deed_kind(straggler),
            .function = straggler->function,
            .more_share = straggler->kernels_share,
            .peer_rank = -1};
    if (deed.kind == STALL_DEED_CAUSE)
        deed.cause = causes_row(straggler->cause)->id;
    if (straggler->by_connections) {
        const struct rank_row *peer = &ranks->rows[straggler->peer];
        deed.peer_rank = peer->rank;
        deed.peer_pid = ranks->trace->processes[peer->process].tgid;
        deed.bits_per_s = straggler->bits_per_s;
        deed.retransmits = straggler->retransmits;
    }
    return deed;
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
    const struct stall_cause *cause = causes_row(CAUSE_STRAGGLER);
    const struct rank_row *row = &ranks->rows[straggler->row];
    struct group group = {.cause = CAUSE_STRAGGLER,
            .culprit = TRACE_NONE,
            .spans = straggler->spans,
            .span_count = straggler->span_count};
    size_t count = 0;
    int64_t longest = 0;
    struct stall_deed deed = late_deed(ranks, straggler);
    bool seen = deed.kind != STALL_DEED_UNSEEN && deed.kind != STALL_DEED_MESSAGES;
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
            .deed = deed,
            .late_by = describe_task(trace, straggler->culprit),
            .stages = ranks->messages,
            .late_ns = count ? straggler->total_ns / (int64_t)count : 0,
            .more_ns = count && seen && !straggler->by_connections
                    ? straggler->deed_ns / (int64_t)count
                    : 0,
            .ranks_ns = straggler->ranks_ns,
            .culprit_python = describe_stack(trace, straggler->python),
            .culprit_user = describe_stack(trace, straggler->user),
            .weight = (double)straggler->total_ns,
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
                .name = deed.cause,
                .cpu = -1};
        ret_stall->chain_count = 2;
        if (straggler->culprit_stack)
            ret_stall->culprit_kernel = describe_stack(trace, straggler->culprit_stack);
    }
}

struct stall_missing ranks_missing(const struct ranks *ranks)
{
    struct stall_missing ret = {.kind = STALL_MISSING_RANKS};
    if (ranks->size < 2 || !ranks->row_count)
        return ret;
    ret.of = (size_t)ranks->size;
    for (int32_t rank = 0; rank < ranks->size; rank++) {
        bool found = false;
        for (size_t i = 0; i < ranks->row_count && !found; i++)
            found = ranks->rows[i].rank == rank;
        if (!found && ret.count < STALL_MISSING_RANKS_MAX)
            ret.ranks[ret.count] = rank;
        ret.count += !found;
    }
    return ret;
}
