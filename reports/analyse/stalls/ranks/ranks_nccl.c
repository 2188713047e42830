// SPDX-License-Identifier: Apache-2.0
// Who came when, as NCCL told it: to collectives by communicator and sequence number, to sends and
// receives by their order between two ranks, as they have no numbers. Where every communicator is
// of all ranks, who comes last to a collective is late. Where they are of some, or ranks send to
// each other, they hand on each other's lateness: ranks_work.c tells whose it was. What one side of
// a communication has no record of, as it was lost, is taken to have held that rank up as long as
// what it has one of.
#include "reports/analyse/stalls/ranks/ranks_find.h"

#include <stdlib.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"

enum {
    NCCL_ALL_MIN = 4, // ranks: with three, the stages of a pipeline may all send to each other
    NCCL_NEAR = 32,   // messages of a channel, before and behind, that show together which send a
                      // receive is of: a step or more
    NCCL_LOST = 100 // a rank of whose communications one in so many was lost, and nothing is known
                    // of how long those take, is not judged
};

struct nccl_came {                           // a rank to a collective
    int64_t communicator, sequence, at, end; // end 0: not told
    uint32_t row;
};

struct nccl_message {                 // one side of it
    int64_t communicator, begin, end; // 0: not told
    int32_t from, to;                 // ranks of the communicator
    uint32_t row;
    bool sends;
    size_t order;
};

struct nccl_row {
    double ns; // of its communications of one communicator, or channel
    size_t count;
    double known_ns, lost_ns; // of all; that were lost, as far as it is known
    size_t all, missing;      // of all; that were lost where nothing is known of such
    size_t seen;              // in the group of this number
};

struct nccl_find {
    struct ranks *ranks;
    struct nccl_came *came;
    struct nccl_message *messages;
    struct ranks_wait *waits;
    struct nccl_row *rows;
    const struct nccl_came **last_on; // of each node, of the collective that is looked at
    size_t came_count, message_count, wait_count, group;
    bool kernels; // came is when kernels began, else when they were called for
};

// ---- what there is ----

static int nccl_by_collective(const void *left, const void *right)
{
    const struct nccl_came *a = left, *b = right;
    return trace_order(a->communicator, b->communicator) ?: trace_order(a->sequence, b->sequence) ?:
           trace_order(a->at, b->at) ?: trace_order(a->row, b->row);
}

static int nccl_by_channel(const struct nccl_message *a, const struct nccl_message *b)
{
    return trace_order(a->communicator, b->communicator) ?: trace_order(a->from, b->from) ?:
           trace_order(a->to, b->to);
}

// Within a channel first what is received.
static int nccl_by_message(const void *left, const void *right)
{
    const struct nccl_message *a = left, *b = right;
    return nccl_by_channel(a, b) ?: trace_order(a->sends, b->sends) ?:
           trace_order(a->row, b->row) ?: trace_order(a->order, b->order);
}

static void nccl_collect_messages(struct nccl_find *find, const uint32_t *row_of)
{
    const struct trace *trace = find->ranks->trace;
    find->messages = xcalloc(trace->send_count + 1, sizeof *find->messages);
    for (size_t i = 0; i < trace->send_count; i++) {
        const struct trace_send *one = &trace->sends[i];
        bool timed = one->kernel_begin > 0 && one->kernel_end >= one->kernel_begin;
        if (row_of[one->process] == TRACE_NONE || one->from < 0 || one->to < 0 ||
                one->from == one->to)
            continue;
        find->messages[find->message_count++] =
                (struct nccl_message){.communicator = one->communicator,
                        .begin = timed ? one->kernel_begin : 0,
                        .end = timed ? one->kernel_end : 0,
                        .from = one->from,
                        .to = one->to,
                        .row = row_of[one->process],
                        .sends = one->sends,
                        .order = i};
    }
    if (find->message_count)
        qsort(find->messages, find->message_count, sizeof *find->messages, nccl_by_message);
}

// Where it is not told when kernels began, the calls are compared on every rank, unless there are
// messages, which have kernels.
static void nccl_collect(struct nccl_find *find, const uint32_t *row_of)
{
    const struct trace *trace = find->ranks->trace;
    find->came = xcalloc(trace->nccl_count + 1, sizeof *find->came);
    find->kernels = find->ranks->messages || trace_nccl_kernels(trace);
    for (size_t i = 0; i < trace->nccl_count; i++) {
        const struct trace_nccl *op = &trace->nccl[i];
        uint32_t row = row_of[op->process];
        int64_t at = find->kernels ? op->kernel_begin : op->enqueued;
        if (row == TRACE_NONE)
            continue;
        if (at > 0)
            find->came[find->came_count++] = (struct nccl_came){
                    op->communicator, op->sequence, at, find->kernels ? op->kernel_end : 0, row};
        else
            find->rows[row].missing++; // beside messages, whose kernels are told: its wait in it
                                       // would pass for work
    }
    if (find->came_count)
        qsort(find->came, find->came_count, sizeof *find->came, nccl_by_collective);
}

// Do several ranks send, to some of the others only? Four or more of which each sends to all
// exchange something, which is a collective in pieces.
static bool nccl_is_pipeline(const struct nccl_find *find)
{
    const struct nccl_message *list = find->messages;
    bool several = false;
    for (size_t i = 1; i < find->message_count && !several; i++)
        several = list[i].row != list[0].row;
    for (size_t first = 0, end; first < find->message_count && several; first = end) {
        size_t channels = 0, senders = 0;
        for (end = first;
                end < find->message_count && list[end].communicator == list[first].communicator;
                end++) {
            channels += end == first || nccl_by_channel(&list[end], &list[end - 1]);
            senders += end == first || list[end].from != list[end - 1].from;
        }
        if (senders < NCCL_ALL_MIN || channels != senders * (senders - 1))
            return true;
    }
    return false;
}

// Is a rank in them for as much of the window as counts? A checkpoint that is gathered now and then
// makes no pipeline. Where it was not told how long they take, as much of all that it communicates
// does.
static bool nccl_sends_much(const struct nccl_find *find, const uint32_t *row_of)
{
    const struct ranks *ranks = find->ranks;
    const struct trace *trace = ranks->trace;
    struct nccl_row *rows = xcalloc(ranks->row_count + 1, sizeof *rows);
    bool much = false;
    for (size_t i = 0; i < find->message_count; i++) {
        const struct nccl_message *one = &find->messages[i];
        int64_t begin = one->begin, end = one->end;
        rows[one->row].all++;
        rows[one->row].missing += !begin;
        if (begin && trace_clip(trace, &begin, &end))
            rows[one->row].ns += (double)(end - begin);
    }
    for (size_t i = 0; i < trace->nccl_count; i++)
        if (row_of[trace->nccl[i].process] != TRACE_NONE)
            rows[row_of[trace->nccl[i].process]].all++;
    for (size_t i = 0; i < ranks->row_count; i++)
        much |= (rows[i].ns > 0 && rows[i].ns * RANKS_SEND_SHARE >= (double)trace->window_ns) ||
                (rows[i].missing && rows[i].missing * RANKS_SEND_SHARE >= rows[i].all);
    free(rows);
    return much;
}

// Is there a communicator of some of the ranks that NCCL told of?
static bool nccl_is_grouped(struct nccl_find *find)
{
    const struct nccl_came *came = find->came;
    size_t all = 0, least = SIZE_MAX;
    for (size_t i = 0; i < find->came_count; i++) {
        all += !find->rows[came[i].row].seen;
        find->rows[came[i].row].seen = 1;
    }
    find->group = 1;
    for (size_t first = 0, end; first < find->came_count; first = end) {
        size_t members = 0;
        find->group++;
        for (end = first;
                end < find->came_count && came[end].communicator == came[first].communicator;
                end++) {
            members += find->rows[came[end].row].seen != find->group;
            find->rows[came[end].row].seen = find->group;
        }
        least = members > 1 && members < least ? members : least;
    }
    return least < all;
}

// ---- what holds ranks up, where they are compared by their work ----

static void nccl_wait(struct nccl_find *find, uint32_t row, int64_t begin, int64_t came,
        int64_t end, uint32_t last)
{
    struct nccl_row *one = &find->rows[row];
    came = came > begin ? came : begin;
    end = end > came ? end : came;
    find->ranks->rows[row].told = true;
    one->ns += (double)(end - begin);
    one->known_ns += (double)(end - begin);
    one->count++;
    one->all++;
    if (end > begin)
        vector_push(find->waits, find->wait_count,
                (struct ranks_wait){
                        .begin = begin, .end = end, .came = came, .row = row, .last = last});
}

// Behind the last one of a communicator or channel, of which the row lacks so many.
static void nccl_lose(struct nccl_find *find, uint32_t row, size_t lost)
{
    struct nccl_row *one = &find->rows[row];
    one->missing += one->count ? 0 : lost;
    if (one->count)
        one->lost_ns += (double)lost * one->ns / (double)one->count;
    one->ns = 0;
    one->count = 0;
}

// A side whose other one is not known. 1: nor is how long it took; else 0.
static size_t nccl_alone(struct nccl_find *find, const struct nccl_message *side)
{
    if (side->begin)
        nccl_wait(find, side->row, side->begin, side->begin, side->end, TRACE_NONE);
    return !side->begin;
}

// ---- collectives ----

static uint32_t nccl_node(const struct nccl_find *find, const struct nccl_came *one)
{
    return ranks_node_of(find->ranks, one->row);
}

// Can its time be compared with that of ranks on other nodes?
static bool nccl_is_clocked(const struct nccl_find *find, const struct nccl_came *one)
{
    const struct trace *trace = find->ranks->trace;
    return trace->node_count < 2 || trace->nodes[nccl_node(find, one)].error_ns >= 0;
}

// The last one to a collective of those whose times can be compared; NULL: there is none, or it was
// not surely the last. They are in the order of arrival.
static const struct nccl_came *nccl_last_of_all(
        const struct nccl_find *find, const struct nccl_came *came, size_t count)
{
    const struct nccl_came *last = NULL;
    for (size_t i = count; i > 0; i--) {
        const struct nccl_came *one = &came[i - 1];
        if (!nccl_is_clocked(find, one))
            continue;
        if (last && !ranks_surely_later(find->ranks, last->row, last->at, one->row, one->at))
            return NULL;
        last = last ? last : one;
    }
    return last;
}

// For whom `waiter` waited, as far as clocks tell: for the last one of all, if that is known, else
// of its node. NULL: for nobody.
static const struct nccl_came *nccl_last_for(const struct nccl_find *find,
        const struct nccl_came *waiter, const struct nccl_came *of_all)
{
    const struct nccl_came *last = of_all && nccl_is_clocked(find, waiter)
            ? of_all
            : find->last_on[nccl_node(find, waiter)];
    return last > waiter ? last : NULL;
}

static void nccl_met(struct ranks *ranks, int64_t at)
{
    ranks->nccl = true;
    if (!ranks->first_end || at < ranks->first_end)
        ranks->first_end = at;
    if (at > ranks->last_end)
        ranks->last_end = at;
}

// Ranks of one collective, in the order of arrival.
static void nccl_collective(struct nccl_find *find, const struct nccl_came *came, size_t count)
{
    struct ranks *ranks = find->ranks;
    const struct nccl_came *of_all = NULL;
    bool once = true; // numbers of a rank that repeat tell nothing
    find->group++;
    for (size_t i = 0; i < count; i++) {
        once &= find->rows[came[i].row].seen != find->group;
        find->rows[came[i].row].seen = find->group;
    }
    if (count > 1 && once) {
        nccl_met(ranks, came[count - 1].at);
        of_all = nccl_last_of_all(find, came, count);
        for (size_t i = 0; i < count; i++)
            find->last_on[nccl_node(find, &came[i])] = &came[i];
    }
    for (size_t i = 0; i < count; i++) {
        const struct nccl_came *one =
                count > 1 && once ? nccl_last_for(find, &came[i], of_all) : NULL;
        if (ranks->by_work)
            nccl_wait(find, came[i].row, came[i].at, one ? one->at : came[i].at, came[i].end,
                    one ? one->row : TRACE_NONE);
        else if (one)
            ranks_put_idle(ranks, &ranks->trace->busy[ranks->rows[came[i].row].process], came[i].at,
                    one->at, came[i].row, one->row);
    }
}

static void nccl_collectives(struct nccl_find *find)
{
    const struct nccl_came *came = find->came;
    for (size_t first = 0, end, groups = 0, members = 0; first < find->came_count; first = end) {
        for (end = first + 1;
                end < find->came_count && came[end].communicator == came[first].communicator &&
                came[end].sequence == came[first].sequence;
                end++)
            ;
        nccl_collective(find, &came[first], end - first);
        groups++;
        members += end - first;
        if (end < find->came_count && came[end].communicator == came[first].communicator)
            continue;
        for (size_t i = end - members; i < end && find->ranks->by_work; i++) {
            size_t has = find->rows[came[i].row].count;
            if (has)
                nccl_lose(find, came[i].row, has < groups ? groups - has : 0);
        }
        groups = members = 0;
    }
}

// ---- messages ----

// Which send each receive is of, as the number of sends before it less that of receives: it ends
// behind the begin of its own, and now and then, as where a step begins, before that of the next
// one. So it is the least number that those near it allow, and loses its step where a record was
// lost.
static void nccl_offsets(const struct nccl_find *find, const struct nccl_message *receives,
        size_t count, const struct nccl_message *sends, size_t send_count, int64_t *ret_offsets)
{
    int64_t residual = trace_residual_ns(find->ranks->trace,
            find->ranks->rows[receives->row].process, find->ranks->rows[sends->row].process);
    int64_t *allowed = xcalloc(count, sizeof *allowed);
    for (size_t i = 0, at = 0; i < count; i++) {
        while (receives[i].begin && at < send_count &&
                (!sends[at].begin || sends[at].begin - 2 * residual <= receives[i].end))
            at++;
        // behind the last send all are allowed
        allowed[i] =
                receives[i].begin && at < send_count ? (int64_t)at - 1 - (int64_t)i : INT64_MAX;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t least = INT64_MAX;
        for (size_t k = i > NCCL_NEAR ? i - NCCL_NEAR : 0; k < count && k <= i + NCCL_NEAR; k++)
            least = allowed[k] < least ? allowed[k] : least;
        ret_offsets[i] = least < INT64_MAX ? least
                : i                        ? ret_offsets[i - 1]
                                           : (int64_t)send_count - (int64_t)count;
    }
    free(allowed);
}

// Who comes first waits for the other one; a send that ends before its receive begins did not.
static void nccl_pair(
        struct nccl_find *find, const struct nccl_message *receive, const struct nccl_message *send)
{
    bool receives_first = receive->begin < send->begin;
    const struct nccl_message *first = receives_first ? receive : send,
                              *last = receives_first ? send : receive;
    bool waits = first->end > last->begin &&
            ranks_surely_later(find->ranks, last->row, last->begin, first->row, first->begin);
    nccl_wait(find, first->row, first->begin, waits ? last->begin : first->begin, first->end,
            last->row);
    nccl_wait(find, last->row, last->begin, last->begin, last->end, TRACE_NONE);
    nccl_met(find->ranks, last->begin);
}

// Of a channel with one rank at each end.
static void nccl_channel(struct nccl_find *find, const struct nccl_message *receives, size_t count,
        const struct nccl_message *sends, size_t send_count)
{
    int64_t *offsets = xcalloc(count, sizeof *offsets);
    size_t receives_lost = 0, sends_lost = 0, next = 0;
    nccl_offsets(find, receives, count, sends, send_count, offsets);
    for (size_t i = 0; i < count; i++) {
        int64_t at = (int64_t)i + offsets[i];
        if (at < (int64_t)next || at >= (int64_t)send_count) {
            receives_lost += nccl_alone(find, &receives[i]);
            sends_lost++;
            continue;
        }
        for (; next < (size_t)at; next++) {
            sends_lost += nccl_alone(find, &sends[next]);
            receives_lost++;
        }
        const struct nccl_message *send = &sends[next++];
        if (receives[i].begin && send->begin) {
            nccl_pair(find, &receives[i], send);
            continue;
        }
        receives_lost += nccl_alone(find, &receives[i]);
        sends_lost += nccl_alone(find, send);
    }
    for (; next < send_count; next++) {
        sends_lost += nccl_alone(find, &sends[next]);
        receives_lost++;
    }
    nccl_lose(find, receives->row, receives_lost);
    nccl_lose(find, sends->row, sends_lost);
    free(offsets);
}

struct nccl_member { // who is which rank of a communicator
    int64_t communicator;
    int32_t rank;
    uint32_t row;
};

static int nccl_by_member(const void *left, const void *right)
{
    const struct nccl_member *a = left, *b = right;
    int order = trace_order(a->communicator, b->communicator);
    order = order ?: trace_order(a->rank, b->rank);
    return order ?: trace_order(a->row, b->row);
}

// By their messages, each once.
static struct nccl_member *nccl_members(const struct nccl_find *find, size_t *ret_count)
{
    struct nccl_member *members = xcalloc(find->message_count + 1, sizeof *members);
    size_t count = 0;
    for (size_t i = 0; i < find->message_count; i++) {
        const struct nccl_message *one = &find->messages[i];
        members[i] =
                (struct nccl_member){one->communicator, one->sends ? one->from : one->to, one->row};
    }
    if (find->message_count)
        qsort(members, find->message_count, sizeof *members, nccl_by_member);
    for (size_t i = 0; i < find->message_count; i++)
        if (!count || nccl_by_member(&members[i], &members[count - 1]))
            members[count++] = members[i];
    *ret_count = count;
    return members;
}

// All that the other side of these has of the channel was lost, if that rank was recorded.
static void nccl_lose_side(struct nccl_find *find, const struct nccl_member *members,
        size_t member_count, const struct nccl_message *side, size_t count)
{
    struct nccl_member other = {side->communicator, side->sends ? side->to : side->from, 0};
    for (size_t i = search_first(k, member_count, nccl_by_member(&members[k], &other) >= 0);
            i < member_count && members[i].communicator == other.communicator &&
            members[i].rank == other.rank;
            i++)
        find->rows[members[i].row].missing += count;
}

static void nccl_messages(struct nccl_find *find)
{
    const struct ranks *ranks = find->ranks;
    const struct nccl_message *list = find->messages;
    size_t member_count;
    struct nccl_member *members = nccl_members(find, &member_count);
    for (size_t first = 0, middle, end; first < find->message_count; first = end) {
        for (middle = first; middle < find->message_count && !list[middle].sends &&
                !nccl_by_channel(&list[middle], &list[first]);
                middle++)
            ;
        for (end = middle; end < find->message_count && !nccl_by_channel(&list[end], &list[first]);
                end++)
            ;
        bool pairs = middle > first && end > middle && list[first].row == list[middle - 1].row &&
                list[middle].row == list[end - 1].row && list[first].row != list[middle].row &&
                trace_residual_ns(ranks->trace, ranks->rows[list[first].row].process,
                        ranks->rows[list[middle].row].process) >= 0;
        if (pairs) {
            nccl_channel(find, &list[first], middle - first, &list[middle], end - middle);
            continue;
        }
        if (middle == first || end == middle)
            nccl_lose_side(find, members, member_count, &list[first], end - first);
        for (size_t i = first; i < end; i++)
            nccl_lose(find, list[i].row, nccl_alone(find, &list[i]));
    }
    free(members);
}

// ---- all ----

// Is it known of each of them what its GPU does but communicate?
static bool nccl_gpus(const struct ranks *ranks)
{
    bool all = true;
    for (size_t i = 0; i < ranks->row_count; i++)
        all &= !ranks->rows[i].told || ranks->trace->busy[ranks->rows[i].process].count > 0;
    return all;
}

// A receive may be called for long before it is needed: without what the GPU did meanwhile nobody
// is held against another.
static void nccl_compare(struct nccl_find *find)
{
    struct ranks *ranks = find->ranks;
    bool gpus = nccl_gpus(ranks);
    for (size_t i = 0; i < ranks->row_count; i++) {
        const struct nccl_row *one = &find->rows[i];
        // of most, how long they took
        bool known = one->missing * NCCL_LOST <= one->all && one->lost_ns <= one->known_ns;
        ranks->rows[i].told &= known && (gpus || !ranks->messages);
        ranks->rows[i].held_times = one->known_ns > 0 ? 1 + one->lost_ns / one->known_ns : 1;
    }
    if (gpus || !ranks->messages)
        ranks_work_of(ranks, find->waits, find->wait_count, gpus);
}

void ranks_of_nccl(struct ranks *ranks)
{
    const struct trace *trace = ranks->trace;
    struct nccl_find find = {.ranks = ranks,
            .rows = xcalloc(ranks->row_count + 1, sizeof *find.rows),
            .last_on = xcalloc(trace->node_count + 1, sizeof *find.last_on)};
    uint32_t *row_of = ranks_row_of(ranks);
    nccl_collect_messages(&find, row_of);
    ranks->messages = nccl_is_pipeline(&find) && nccl_sends_much(&find, row_of);
    nccl_collect(&find, row_of);
    ranks->by_work = nccl_is_grouped(&find) || ranks->messages;
    ranks->nccl = ranks->by_work;
    nccl_collectives(&find);
    if (ranks->by_work && find.kernels)
        nccl_messages(&find);
    if (ranks->by_work)
        nccl_compare(&find);
    free(row_of);
    free(find.came);
    free(find.messages);
    free(find.waits);
    free(find.rows);
    free(find.last_on);
}
