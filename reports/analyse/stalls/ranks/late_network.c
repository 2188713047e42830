// SPDX-License-Identifier: Apache-2.0
// Whose messages come late, of more than two ranks. A ring hands on to all of them what one link
// holds up, so their waits do not tell; the connections between them do: of each the recorder has
// looked now and then whether something that was sent had not come yet, while its receiver had read
// all that had. That is what a slow link has, and a slow receiver, a slow sender or a late
// acknowledgement has not.
//
// All ranks may be connected badly, and one of them may send more than the others: somebody is
// named only whose bytes take longer than those between the others do, and whose worst connection
// has something under way for longer than any of theirs.
#include <math.h>
#include <stdlib.h>

#include "common/containers/map.h"
#include "common/containers/vector.h"
#include "reports/analyse/stalls/ranks/ranks.h"

enum {
    // of table connection: shorter blocks would be parts of one row, and alike
    NETWORK_ROW_NS = 500000000,
    NETWORK_BLOCKS_MIN = 8, // Student's t with 7 degrees of freedom exceeds 4, as late_ranks.c asks
                            // for, with probability 0.003
};

struct network_edge {              // all connections from one rank to another
    uint32_t sender, receiver;     // rows
    double ns, bytes, retransmits; // ns: something was under way for so long
};

struct network {
    const struct ranks *ranks;
    int64_t begin, end;
    uint32_t *row_of; // of each process; TRACE_NONE
    struct map at;    // of the rows of an edge: its index
    struct network_edge *edges;
    size_t edge_count;
};

static double network_part(const struct network *network, const struct trace_connection *one)
{
    return (double)parts_overlap(one->begin, one->end, network->begin, network->end) /
            (double)(one->end - one->begin);
}

// NULL: it is not between two ranks, or outside of the time.
static struct network_edge *network_edge_of(
        struct network *network, const struct trace_connection *one)
{
    uint32_t sender = network->row_of[one->sender], receiver = network->row_of[one->receiver];
    if (sender == TRACE_NONE || receiver == TRACE_NONE || network_part(network, one) <= 0)
        return NULL;
    uint32_t *index = map_put(&network->at, (uint64_t)sender << 32 | receiver);
    if (*index == MAP_NONE) {
        *index = (uint32_t)network->edge_count;
        vector_push(network->edges, network->edge_count,
                ((struct network_edge){.sender = sender, .receiver = receiver}));
    }
    return &network->edges[*index];
}

static void network_find_edges(struct network *network)
{
    const struct trace *trace = network->ranks->trace;
    double window = (double)(network->end - network->begin);
    network->row_of = ranks_row_of(network->ranks);
    for (size_t i = 0; i < trace->connection_count; i++) {
        const struct trace_connection *one = &trace->connections[i];
        struct network_edge *edge = network_edge_of(network, one);
        if (!edge)
            continue;
        double part = network_part(network, one);
        // of several connections at a time
        edge->ns = fmin(edge->ns + one->underway * part * (double)(one->end - one->begin), window);
        edge->bytes += (double)one->bytes * part;
        edge->retransmits += (double)one->retransmits;
    }
}

// The one whose time is furthest beyond what its bytes take on all others. NULL: there is nothing
// to compare it with.
static const struct network_edge *network_worst(const struct network *network)
{
    const struct network_edge *worst = NULL;
    double ns = 0, bytes = 0, most = 0;
    for (size_t i = 0; i < network->edge_count; i++) {
        ns += network->edges[i].ns;
        bytes += network->edges[i].bytes;
    }
    for (size_t i = 0; i < network->edge_count; i++) {
        const struct network_edge *edge = &network->edges[i];
        double others = bytes - edge->bytes,
               more = others > 0 ? edge->ns - edge->bytes * (ns - edge->ns) / others : 0;
        if (more > most) {
            most = more;
            worst = edge;
        }
    }
    return worst;
}

// The longest time of what else the rank sends, or of what else is sent to it.
static double network_beside(
        const struct network *network, const struct network_edge *worst, bool receives)
{
    uint32_t row = receives ? worst->receiver : worst->sender;
    double most = 0;
    for (size_t i = 0; i < network->edge_count; i++) {
        const struct network_edge *edge = &network->edges[i];
        if (edge != worst && (receives ? edge->receiver : edge->sender) == row)
            most = fmax(most, edge->ns);
    }
    return most;
}

// For how long something of the worst edge would be under way were it as those between the other
// ranks. INFINITY: nothing is known of them.
static double network_expected(
        const struct network *network, const struct network_edge *worst, uint32_t row)
{
    double ns = 0, bytes = 0, most = 0;
    for (size_t i = 0; i < network->edge_count; i++) {
        const struct network_edge *edge = &network->edges[i];
        if (edge->sender == row || edge->receiver == row)
            continue;
        ns += edge->ns;
        bytes += edge->bytes;
        most = fmax(most, edge->ns);
    }
    return bytes > 0 ? fmax(most, worst->bytes * ns / bytes) : INFINITY;
}

// How many standard errors the edge is beyond that, from the spread over blocks of the time. 0:
// there are too few.
static double network_errors(
        const struct network *network, const struct network_edge *worst, double expected)
{
    const struct trace *trace = network->ranks->trace;
    double more[LATE_BLOCKS] = {0}, sum;
    int64_t window = network->end - network->begin;
    int count =
            window / NETWORK_ROW_NS < LATE_BLOCKS ? (int)(window / NETWORK_ROW_NS) : LATE_BLOCKS;
    if (count < NETWORK_BLOCKS_MIN)
        return 0;
    for (size_t i = 0; i < trace->connection_count; i++) {
        const struct trace_connection *one = &trace->connections[i];
        if (network->row_of[one->sender] != worst->sender ||
                network->row_of[one->receiver] != worst->receiver)
            continue;
        for (int b = 0; b < count; b++) {
            int64_t from = network->begin + (int64_t)((double)window / count * b),
                    to = network->begin + (int64_t)((double)window / count * (b + 1));
            more[b] += one->underway * (double)parts_overlap(one->begin, one->end, from, to);
        }
    }
    for (int b = 0; b < count; b++)
        more[b] -= expected / count;
    return late_errors(more, count, &sum);
}

static double network_waited(const struct network *network, size_t index)
{
    const struct rank_row *row = &network->ranks->rows[index];
    double ns = 0;
    for (size_t i = 0; i < row->wait_count; i++) {
        const struct trace_window *wait = &network->ranks->waits[row->wait_first + i];
        ns += (double)parts_overlap(wait->begin, wait->end, network->begin, network->end);
    }
    return ns;
}

// Who of the others waited most in collectives, and its waits, in which the messages were waited
// for.
static void network_waits(const struct network *network, struct late_rank *ret)
{
    const struct ranks *ranks = network->ranks;
    double most = -1;
    for (size_t i = 0; i < ranks->row_count; i++) {
        double waited = i == ret->row ? -1 : network_waited(network, i);
        if (waited > most) {
            most = waited;
            ret->waiter = (uint32_t)i;
        }
    }
    ret->total_ns = (int64_t)fmin(fmax(most, 0), (double)ret->excess_ns);
    for (size_t i = 0; i < ranks->row_count; i++)
        ret->ranks_ns += i == ret->row
                ? 0
                : (int64_t)fmin(network_waited(network, i), (double)ret->total_ns);
    const struct rank_row *row = &ranks->rows[ret->waiter];
    for (size_t i = 0; i < row->wait_count; i++) {
        struct trace_window wait = ranks->waits[row->wait_first + i];
        wait.begin = wait.begin > network->begin ? wait.begin : network->begin;
        wait.end = wait.end < network->end ? wait.end : network->end;
        if (wait.begin < wait.end)
            vector_push(ret->spans, ret->span_count, wait);
    }
}

// One slow connection may be the sender's fault or its receiver's: whoever has another slow one of
// that kind. All of them send and receive in a collective, if only that they are ready. Where
// neither has, the sender is named, and the receiver with it.
static bool network_judge(const struct network *network, const struct network_edge *worst,
        double errors_min, double share_min, struct late_rank *ret)
{
    double least = share_min * (double)(network->end - network->begin),
           beside = network_beside(network, worst, true);
    bool receives = beside >= least && beside > network_beside(network, worst, false);
    uint32_t row = receives ? worst->receiver : worst->sender;
    double expected = network_expected(network, worst, row), excess = worst->ns - expected;
    // Beside what the others' bytes take, what is named must be most of it.
    if (!(excess >= least) || excess * 2 < worst->ns)
        return false;
    double errors = network_errors(network, worst, expected);
    if (errors < errors_min)
        return false;
    *ret = (struct late_rank){.row = row,
            .excess_ns = (int64_t)excess,
            .errors = errors,
            .cause = CAUSE_COUNT,
            .culprit = TRACE_NONE,
            .messages = true,
            .by_connections = true,
            .receives = receives,
            .peer = receives ? worst->sender : worst->receiver,
            .bits_per_s = worst->bytes * 8 / worst->ns * 1e9,
            .retransmits = worst->retransmits};
    network_waits(network, ret);
    // What nobody waits for, such as a copy beside the work, makes nobody late.
    if ((double)ret->total_ns >= least && ret->total_ns * 2 >= ret->excess_ns)
        return true;
    free(ret->spans);
    return false;
}

bool late_network(const struct ranks *ranks, int64_t begin, int64_t end, double errors_min,
        double share_min, struct late_rank *ret)
{
    struct network network = {.ranks = ranks, .begin = begin, .end = end};
    if (ranks->row_count < 3 || ranks->nccl || !ranks->trace->connection_count)
        return false;
    network_find_edges(&network);
    const struct network_edge *worst = network_worst(&network);
    bool found = worst && network_judge(&network, worst, errors_min, share_min, ret);
    free(network.row_of);
    free(network.edges);
    map_free(&network.at);
    return found;
}
