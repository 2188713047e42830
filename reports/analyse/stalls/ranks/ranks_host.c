// SPDX-License-Identifier: Apache-2.0
// Who came last while a rank waited on the host; ranks.c says when a rank has come. Of another rank
// that wait counts which ends next to the end of the wait that is looked at and overlaps it: the
// last one that was over by then, or the one that goes on. So waits are taken in the order of their
// ends, and of each rank one of them stands in a tree over these ends. Each wait takes its place
// twice and is asked about once: n log n, and what is found: 0.14 s for 4,096 ranks with 24 waits
// each (ci/bench/host_waits).
#include "reports/analyse/stalls/ranks/ranks_find.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/strings.h"

#define HOST_NONE UINT32_MAX // no wait, no rank

struct host_wait {
    int64_t begin, end;
    uint32_t rank, before; // of host_ranks.rows; that rank's wait before this one
    uint32_t index;        // of ranks.waits
    bool asks;             // who came last to it is asked
};

struct host_node {         // of the tree: of all waits below it
    uint32_t last, count;  // the wait that began last, of equal ones that of the first rank; how
                           // many there are
    uint32_t late, beside; // with clocks: the wait that may have begun last, as far as its clock is
                           // known, and the same of other nodes than its own
};

struct host_ranks { // that are compared with each other
    struct ranks *ranks;
    bool clocks;          // they have several
    const uint32_t *rows; // ascending
    size_t row_count;
    struct host_wait *waits; // of these rows, by end
    size_t wait_count;
    // Leaf i has wait i for who began to wait before it was over. Leaf wait_count + i has the wait
    // behind it that goes on, for who began later than that. So a wait that begins when `over`
    // waits are over finds each rank at most once in [over, wait_count + over).
    struct host_node *tree; // [4 * wait_count]; node i is that of 2 * i and 2 * i + 1
    int64_t *ended;   // [2 * row_count]: such a tree of the least end of a rank's last wait so far;
                      // INT64_MIN: it had none
    uint32_t *unseen; // [row_count]: room for a list of ranks
    bool *asked;      // of ranks.waits
};

static uint32_t host_node_of(const struct host_ranks *host, uint32_t rank)
{
    return ranks_node_of(host->ranks, host->rows[rank]);
}

// ---- the trees ----

// When it began, at the latest.
static int64_t host_begun(const struct host_ranks *host, uint32_t wait)
{
    int64_t error_ns =
                    host->ranks->trace->nodes[host_node_of(host, host->waits[wait].rank)].error_ns,
            at;
    return __builtin_add_overflow(host->waits[wait].begin, 2 * error_ns, &at) ? INT64_MAX : at;
}

static struct host_node host_join(
        const struct host_ranks *host, struct host_node a, struct host_node b)
{
    if (!a.count || !b.count)
        return a.count ? a : b;
    const struct host_wait *of_a = &host->waits[a.last], *of_b = &host->waits[b.last];
    bool later =
            of_b->begin > of_a->begin || (of_b->begin == of_a->begin && of_b->rank < of_a->rank);
    struct host_node both = {.last = later ? b.last : a.last,
            .count = a.count + b.count,
            .late = HOST_NONE,
            .beside = HOST_NONE};
    if (!host->clocks)
        return both;
    bool swap = host_begun(host, b.late) > host_begun(host, a.late);
    struct host_node first = swap ? b : a, second = swap ? a : b;
    bool same = host_node_of(host, host->waits[first.late].rank) ==
            host_node_of(host, host->waits[second.late].rank);
    uint32_t other = same ? second.beside : second.late;
    bool takes = first.beside == HOST_NONE ||
            (other != HOST_NONE && host_begun(host, other) > host_begun(host, first.beside));
    both.late = first.late;
    both.beside = takes ? other : first.beside;
    return both;
}

// wait: HOST_NONE: the leaf becomes empty.
static void host_put(struct host_ranks *host, size_t leaf, uint32_t wait)
{
    size_t at = 2 * host->wait_count + leaf;
    host->tree[at] = (struct host_node){
            .last = wait, .count = wait != HOST_NONE, .late = wait, .beside = HOST_NONE};
    while (at /= 2)
        host->tree[at] = host_join(host, host->tree[2 * at], host->tree[2 * at + 1]);
}

// Of the leaves in [from, to).
static struct host_node host_all(const struct host_ranks *host, size_t from, size_t to)
{
    struct host_node all = {.last = HOST_NONE, .late = HOST_NONE, .beside = HOST_NONE};
    for (from += 2 * host->wait_count, to += 2 * host->wait_count; from < to; from /= 2, to /= 2) {
        if (from & 1)
            all = host_join(host, all, host->tree[from++]);
        if (to & 1)
            all = host_join(host, all, host->tree[--to]);
    }
    return all;
}

static void host_put_end(struct host_ranks *host, uint32_t rank, int64_t end)
{
    size_t at = host->row_count + rank;
    host->ended[at] = end;
    while (at /= 2)
        host->ended[at] = host->ended[2 * at] < host->ended[2 * at + 1] ? host->ended[2 * at]
                                                                        : host->ended[2 * at + 1];
}

// Ranks below a node whose waits so far were all over at `begin`, behind `count` others in
// host.unseen; how many there are then.
static size_t host_list_unseen(
        const struct host_ranks *host, size_t node, int64_t begin, size_t count)
{
    if (host->ended[node] > begin)
        return count;
    if (node < host->row_count)
        return host_list_unseen(
                host, 2 * node + 1, begin, host_list_unseen(host, 2 * node, begin, count));
    host->unseen[count] = (uint32_t)(node - host->row_count);
    return count + 1;
}

// ---- who came last to a wait ----

// Did `last` surely come later than all others? others: those that wait; alone: one that does not,
// or HOST_NONE.
static bool host_is_sure(const struct host_ranks *host, const struct host_wait *wait,
        struct host_node others, uint32_t alone, int64_t alone_ns, uint32_t last, int64_t last_ns)
{
    const struct ranks *ranks = host->ranks;
    uint32_t row = host->rows[last], other = others.late;
    if (!ranks_surely_later(ranks, row, last_ns, host->rows[wait->rank], wait->begin) ||
            (alone != HOST_NONE && alone != last &&
                    !ranks_surely_later(ranks, row, last_ns, host->rows[alone], alone_ns)))
        return false;
    if (other != HOST_NONE &&
            host_node_of(host, host->waits[other].rank) == host_node_of(host, last))
        other = others.beside; // a node has one clock
    return other == HOST_NONE ||
            ranks_surely_later(ranks, row, last_ns, host->rows[host->waits[other].rank],
                    host->waits[other].begin);
}

// Several who did not wait at all are late alike, unless most are: then nobody is.
static void host_put_unseen(
        struct host_ranks *host, const struct host_wait *wait, size_t unseen, int64_t unseen_ns)
{
    if (unseen * 2 > host->row_count || unseen_ns - wait->begin < RANKS_LATE_MIN_NS)
        return;
    size_t count = host_list_unseen(host, 1, wait->begin, 0);
    for (size_t i = 0; i < count; i++) {
        uint32_t row = host->rows[host->unseen[i]], waiter = host->rows[wait->rank];
        if (row != waiter && ranks_surely_later(host->ranks, row, unseen_ns, waiter, wait->begin))
            ranks_put_late(host->ranks, wait->begin, unseen_ns, waiter, row);
    }
}

// All waits that began before the end of this one are in their places.
static void host_ask(struct host_ranks *host, size_t index)
{
    const struct host_wait *wait = &host->waits[index];
    size_t over = search_first(i, host->wait_count, host->waits[i].end > wait->begin),
           behind = index + 1 > over ? index + 1 : over;
    struct host_node others = host_join(
            host, host_all(host, over, index), host_all(host, behind, host->wait_count + over));
    size_t unseen = host->row_count - 1 - others.count;
    int64_t unseen_ns = wait->end - host->ranks->trace->threshold_ns, last_ns = INT64_MIN;
    uint32_t last = HOST_NONE, alone = HOST_NONE;
    if (unseen > 1) {
        host_put_unseen(host, wait, unseen, unseen_ns);
        return;
    }
    if (others.count) {
        last = host->waits[others.last].rank;
        last_ns = host->waits[others.last].begin;
    }
    if (unseen) {
        size_t count = host_list_unseen(host, 1, wait->begin, 0);
        for (size_t i = 0; i < count; i++)
            alone = host->unseen[i] == wait->rank ? alone : host->unseen[i];
        if (last == HOST_NONE || unseen_ns > last_ns || (unseen_ns == last_ns && alone < last)) {
            last = alone;
            last_ns = unseen_ns;
        }
    }
    if (!host->clocks || host_is_sure(host, wait, others, alone, unseen_ns, last, last_ns))
        ranks_put_late(host->ranks, wait->begin, last_ns, host->rows[wait->rank], host->rows[last]);
    else
        host->asked[wait->index] = true; // among the ranks of its node
}

// ---- waits in the order of time ----

// From when on a wait overlaps those that end then.
static int64_t host_enters(const struct host_ranks *host, uint32_t wait)
{
    return host->waits[wait].begin + 1;
}

// From when on it also ends nearer to their end than that rank's wait before it.
static int64_t host_nears(const struct host_ranks *host, uint32_t wait)
{
    const struct host_wait *one = &host->waits[wait];
    if (one->before == HOST_NONE)
        return host_enters(host, wait);
    int64_t before = host->waits[one->before].end,
            middle = before + (int64_t)(((uint64_t)one->end - (uint64_t)before) / 2);
    return middle > one->begin ? middle + 1 : host_enters(host, wait);
}

// A move is twice the wait, 1 more where it nears.
static int64_t host_moves_at(const struct host_ranks *host, uint32_t move)
{
    return move & 1 ? host_nears(host, move / 2) : host_enters(host, move / 2);
}

static void host_move(struct host_ranks *host, uint32_t move)
{
    uint32_t wait = move / 2, before = host->waits[wait].before;
    bool enters = !(move & 1), nears = !enters || host_nears(host, wait) == host_enters(host, wait);
    if (enters)
        host_put_end(host, host->waits[wait].rank, host->waits[wait].end);
    if (!nears) {
        host_put(host, host->wait_count + before, wait);
        return;
    }
    if (before != HOST_NONE)
        host_put(host, before, HOST_NONE);
    if (!enters)
        host_put(host, host->wait_count + before, HOST_NONE);
    host_put(host, wait, wait);
}

static void host_sweep(struct host_ranks *host)
{
    uint32_t *moves = xcalloc(2 * host->wait_count, sizeof *moves);
    size_t count = 0, next = 0;
    for (uint32_t i = 0; i < host->wait_count; i++) {
        moves[count++] = 2 * i;
        if (host_nears(host, i) > host_enters(host, i))
            moves[count++] = 2 * i + 1;
    }
    sort_in_place(moves, count, x, y, host_moves_at(host, *x) < host_moves_at(host, *y));
    for (size_t i = 0; i < host->wait_count; i++) {
        while (next < count && host_moves_at(host, moves[next]) <= host->waits[i].end)
            host_move(host, moves[next++]);
        if (host->waits[i].asks)
            host_ask(host, i);
    }
    free(moves);
}

// ---- who is compared with whom ----

static int host_by_end(const void *left, const void *right)
{
    const struct host_wait *a = left, *b = right;
    return trace_order(a->end, b->end) ?: trace_order(a->rank, b->rank);
}

// Takes the waits that are asked about. False: there are none.
static bool host_take_waits(struct host_ranks *host)
{
    const struct ranks *ranks = host->ranks;
    bool asks = false;
    size_t count = 0;
    for (size_t i = 0; i < host->row_count; i++)
        count += ranks->rows[host->rows[i]].wait_count;
    host->waits = xcalloc(count + 1, sizeof *host->waits);
    for (uint32_t rank = 0; rank < host->row_count; rank++) {
        const struct rank_row *row = &ranks->rows[host->rows[rank]];
        for (size_t i = row->wait_first; i < row->wait_first + row->wait_count; i++) {
            host->waits[host->wait_count++] = (struct host_wait){.begin = ranks->waits[i].begin,
                    .end = ranks->waits[i].end,
                    .rank = rank,
                    .before = HOST_NONE,
                    .index = (uint32_t)i,
                    .asks = host->asked[i]};
            asks |= host->asked[i];
            host->asked[i] = false;
        }
    }
    if (!asks)
        return false;
    qsort(host->waits, count, sizeof *host->waits, host_by_end);
    uint32_t *before = xcalloc(host->row_count, sizeof *before);
    memset(before, 0xff, host->row_count * sizeof *before); // HOST_NONE
    for (uint32_t i = 0; i < count; i++) {
        host->waits[i].before = before[host->waits[i].rank];
        before[host->waits[i].rank] = i;
    }
    free(before);
    return true;
}

// asked: of the waits of these ranks, those that are asked about; then those of which it is not
// known who came last, as their clocks do not tell.
static void host_compare(
        struct ranks *ranks, const uint32_t *rows, size_t row_count, bool clocks, bool *asked)
{
    struct host_ranks host = {
            .ranks = ranks, .clocks = clocks, .rows = rows, .row_count = row_count, .asked = asked};
    if (host_take_waits(&host) && row_count > 1) {
        host.tree = xcalloc(4 * host.wait_count, sizeof *host.tree); // empty, as nothing is counted
        host.ended = xcalloc(2 * row_count, sizeof *host.ended);
        host.unseen = xcalloc(row_count, sizeof *host.unseen);
        for (size_t i = 0; i < 2 * row_count; i++)
            host.ended[i] = INT64_MIN;
        host_sweep(&host);
    }
    free(host.waits);
    free(host.tree);
    free(host.ended);
    free(host.unseen);
}

static int host_by_node(const void *left, const void *right, void *ranks)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right,
             of_a = ranks_node_of(ranks, a), of_b = ranks_node_of(ranks, b);
    if (of_a != of_b)
        return of_a < of_b ? -1 : 1;
    return (a > b) - (a < b);
}

void ranks_host(struct ranks *ranks)
{
    const struct trace *trace = ranks->trace;
    bool clocks = trace->node_count > 1;
    // 16 GB of them: the store is damaged
    if (!ranks->wait_count || ranks->wait_count > HOST_NONE / 4)
        return;
    uint32_t *rows = xcalloc(ranks->row_count, sizeof *rows);
    bool *asked = xcalloc(ranks->wait_count, sizeof *asked);
    size_t count = 0;
    memset(asked, true, ranks->wait_count * sizeof *asked);
    for (uint32_t i = 0; i < ranks->row_count; i++)
        if (!clocks || trace->nodes[ranks_node_of(ranks, i)].error_ns >= 0)
            rows[count++] = i;
    host_compare(ranks, rows, count, clocks, asked);
    // Who is on a node whose clock is not known, and of whom the clocks do not tell, is compared
    // with its own node only.
    for (uint32_t i = 0; i < ranks->row_count; i++)
        rows[i] = i;
    if (clocks)
        qsort_r(rows, ranks->row_count, sizeof *rows, host_by_node, ranks);
    for (size_t first = 0, end; clocks && first < ranks->row_count; first = end) {
        for (end = first + 1; end < ranks->row_count &&
                ranks_node_of(ranks, rows[end]) == ranks_node_of(ranks, rows[first]);
                end++)
            ;
        host_compare(ranks, rows + first, end - first, false, asked);
    }
    sort_in_place(ranks->lates, ranks->late_count, x, y,
            x->begin != y->begin             ? x->begin < y->begin
                    : x->waiter != y->waiter ? x->waiter < y->waiter
                                             : x->last < y->last);
    free(rows);
    free(asked);
}
