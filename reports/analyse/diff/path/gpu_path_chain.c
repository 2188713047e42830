// SPDX-License-Identifier: Apache-2.0
// Which of several kernels at one instant the step waits for. From the operation that ends last a
// chain goes back: each began when the one before it on its stream ended, or, when it had been
// queued long before, when an operation of another stream ended that it waited for. What is on no
// chain may become slower without anybody waiting longer. Only asked for when there are kernels on
// several streams. Reads a window's operations; one owner thread.
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/diff/path/gpu_path_parts.h"

enum {
    CHAIN_BEHIND_NS = 5000,   // begins at most this long after what it waited for on its stream;
                              // measured 0.8 to 2 us
    CHAIN_JOIN_NS = 15000,    // ... on another stream: an event comes in between
    CHAIN_LATENCY_NS = 10000, // after its call
    CHAIN_LOOK_BACK = 64      // operations
};

struct chain {
    const struct launch_op *ops;
    const uint32_t *order;
    size_t first, last;
    uint32_t *before; // on the stream, index minus first; COST_NONE
};

static const struct launch_op *chain_op(const struct chain *chain, size_t at)
{
    at += chain->first;
    return &chain->ops[chain->order ? chain->order[at] : at];
}

static int64_t op_end(const struct launch_op *op)
{
    return op->start + op->dur;
}

static void streams_link(const struct gpu_path *path, struct chain *chain)
{
    const struct launch_trace *trace = path->trace;
    uint32_t *last = xcalloc(trace->stream_count + (size_t)1, sizeof *last);
    for (size_t i = 0; i <= trace->stream_count; i++)
        last[i] = COST_NONE;
    chain->before = xcalloc(chain->last - chain->first + 1, sizeof *chain->before);
    for (size_t i = 0; i < chain->last - chain->first; i++) {
        uint32_t stream = trace->works[chain_op(chain, i)->work].stream;
        stream = stream < trace->stream_count ? stream : trace->stream_count;
        chain->before[i] = last[stream];
        last[stream] = (uint32_t)i;
    }
    free(last);
}

// What an operation had to wait for; COST_NONE: nothing in this window.
static uint32_t chain_before(const struct chain *chain, size_t at)
{
    const struct launch_op *op = chain_op(chain, at);
    uint32_t own = chain->before[at], best = own;
    if (own != COST_NONE && op->start - op_end(chain_op(chain, own)) <= CHAIN_BEHIND_NS)
        return own;
    if (op->call_ago != UINT32_MAX && op->call_dur != UINT32_MAX &&
            (int64_t)op->call_ago - op->call_dur <= CHAIN_LATENCY_NS)
        return own; // the host was late, whatever else ended then
    int64_t end = op->start - CHAIN_JOIN_NS;
    for (size_t i = at, k = 0; i-- > 0 && k < CHAIN_LOOK_BACK && end < op->start - CHAIN_BEHIND_NS;
            k++) {
        int64_t other = op_end(chain_op(chain, i));
        if (other > end && other <= op->start) {
            end = other;
            best = (uint32_t)i;
        }
    }
    return best;
}

void gpu_chain_find(struct gpu_path *path, const uint32_t *order, size_t first, size_t last,
        uint8_t *ret_critical)
{
    struct chain chain = {.ops = path->trace->ops, .order = order, .first = first, .last = last};
    uint32_t at = COST_NONE;
    int64_t end = INT64_MIN;
    for (size_t i = 0; i < last - first; i++)
        if (op_end(chain_op(&chain, i)) > end) {
            end = op_end(chain_op(&chain, i));
            at = (uint32_t)i;
        }
    streams_link(path, &chain);
    while (at != COST_NONE && !ret_critical[at]) { // always goes to a smaller index
        ret_critical[at] = 1;
        at = chain_before(&chain, at);
    }
    free(chain.before);
}
