// SPDX-License-Identifier: Apache-2.0
// Reduced ranks, added: lists in order become one list in order, and what both have of a collective
// on a node is added.
#include "reports/analyse/reduce/reduced.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"

// --- what is put in ------------------------------------------------------------------------------

void reduced_put_gist(
        struct reduced *reduced, int32_t rank, uint64_t window, const uint8_t *bytes, size_t size)
{
    vector_push(reduced->gists, reduced->gist_count,
            (struct reduced_gist){.rank = rank,
                    .size = (uint32_t)size,
                    .window = window,
                    .at = reduced->gist_bytes.len});
    strbuf_add_bytes(&reduced->gist_bytes, bytes, size);
}

static int reduced_meeting_order(const struct reduced_meeting *a, const struct reduced_meeting *b)
{
    if (a->communicator != b->communicator)
        return a->communicator < b->communicator ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static int reduced_by_meeting(const void *left, const void *right)
{
    const struct reduced_meeting *a = left, *b = right;
    int order = reduced_meeting_order(a, b);
    return order ? order : (a->last_ns > b->last_ns) - (a->last_ns < b->last_ns);
}

void reduced_sort_meetings(struct reduced *reduced)
{
    struct reduced_meeting *list = reduced->meetings;
    size_t kept = 0;
    if (reduced->meeting_count)
        qsort(list, reduced->meeting_count, sizeof *list, reduced_by_meeting);
    for (size_t i = 0; i < reduced->meeting_count; i++) {
        if (kept && reduced_meeting_order(&list[kept - 1], &list[i]) == 0)
            list[kept - 1].repeats = true;
        else
            list[kept++] = list[i];
    }
    reduced->meeting_count = kept;
}

// --- nodes ---------------------------------------------------------------------------------------

// Two say of one node what its clock is: the lower of both, by a rule that knows no order, and
// within what that is right for either of them. Where it was set between their begins it is not
// known better than that.
static void reduced_node_add(struct reduced_node *sum, const struct reduced_node *more)
{
    if (strcmp(more->host, sum->host) < 0) { // a container may have a name of its own
        free(sum->host);
        sum->host = xstrdup(more->host);
    }
    // all below 2^61
    int64_t of_sum = sum->wall_minus_monotonic_ns, of_more = more->wall_minus_monotonic_ns;
    int64_t wall = of_more < of_sum ? of_more : of_sum;
    int64_t error_of_sum = of_sum - wall + sum->error_ns,
            error_of_more = of_more - wall + more->error_ns;
    int64_t error_ns = error_of_more > error_of_sum ? error_of_more : error_of_sum;
    bool known = sum->error_ns >= 0 && more->error_ns >= 0 && error_ns < REDUCED_NS_END - 1;
    sum->wall_minus_monotonic_ns = wall;
    sum->error_ns = known ? error_ns : -1;
}

static struct reduced_node reduced_node_copy(const struct reduced_node *node)
{
    return (struct reduced_node){xstrdup(node->boot), xstrdup(node->host),
            node->wall_minus_monotonic_ns, node->error_ns};
}

// Nodes of both into ret; of each its new number, which rises as the old one does.
static void reduced_join_nodes(const struct reduced *a, const struct reduced *b,
        struct reduced *ret, uint32_t *of_a, uint32_t *of_b)
{
    for (size_t i = 0, k = 0; i < a->node_count || k < b->node_count;) {
        int order = i == a->node_count ? 1
                : k == b->node_count   ? -1
                                       : strcmp(a->nodes[i].boot, b->nodes[k].boot);
        struct reduced_node node = reduced_node_copy(order <= 0 ? &a->nodes[i] : &b->nodes[k]);
        if (order == 0)
            reduced_node_add(&node, &b->nodes[k]);
        if (order <= 0)
            of_a[i++] = (uint32_t)ret->node_count;
        if (order >= 0)
            of_b[k++] = (uint32_t)ret->node_count;
        vector_push(ret->nodes, ret->node_count, node);
    }
}

// --- the lists -----------------------------------------------------------------------------------

static void reduced_join_members(const struct reduced *a, const struct reduced *b,
        struct reduced *ret, const uint32_t *of_a, const uint32_t *of_b)
{
    for (size_t i = 0, k = 0; i < a->member_count || k < b->member_count;) {
        bool first = k == b->member_count ||
                (i < a->member_count && a->members[i].rank < b->members[k].rank);
        struct reduced_rank one = first ? a->members[i] : b->members[k];
        one.node = first ? of_a[one.node] : of_b[one.node];
        vector_push(ret->members, ret->member_count, one);
        i += first;
        k += !first;
    }
}

// The bytes of a are taken as they lie, and those of b put behind them: of a job's windows they are
// nearly all there is, and each sum of a tree would copy them again.
static void reduced_join_gists(struct reduced *a, const struct reduced *b, struct reduced *ret)
{
    for (size_t i = 0, k = 0; i < a->gist_count || k < b->gist_count;) {
        // no rank is in both
        bool first =
                k == b->gist_count || (i < a->gist_count && a->gists[i].rank < b->gists[k].rank);
        struct reduced_gist one = first ? a->gists[i] : b->gists[k];
        one.at += first ? 0 : a->gist_bytes.len;
        vector_push(ret->gists, ret->gist_count, one);
        i += first;
        k += !first;
    }
    ret->gist_bytes = a->gist_bytes;
    a->gist_bytes = (struct strbuf){0};
    strbuf_add_bytes(&ret->gist_bytes, b->gist_bytes.text, b->gist_bytes.len);
}

// False: the waits are too long together. What is added makes them longer in every order, so that
// they are too long by any tree.
static bool reduced_meeting_add(struct reduced_meeting *sum, const struct reduced_meeting *more)
{
    bool later = more->last_ns > sum->last_ns ||
            (more->last_ns == sum->last_ns && more->last > sum->last);
    int64_t last_ns = later ? more->last_ns : sum->last_ns;
    // counts below 2^32, times below 2^62: there is room
    unsigned __int128 waits_ns = (unsigned __int128)sum->waits_ns + more->waits_ns;
    waits_ns += (unsigned __int128)sum->count * ((uint64_t)last_ns - (uint64_t)sum->last_ns);
    waits_ns += (unsigned __int128)more->count * ((uint64_t)last_ns - (uint64_t)more->last_ns);
    sum->waits_ns = (uint64_t)waits_ns;
    sum->last = later ? more->last : sum->last;
    sum->last_ns = last_ns;
    sum->count += more->count;
    sum->repeats |= more->repeats;
    return waits_ns < REDUCED_WAITS_NS_END;
}

static int reduced_join_meetings(const struct reduced *a, const struct reduced *b,
        struct reduced *ret, const uint32_t *of_a, const uint32_t *of_b, struct error *err)
{
    for (size_t i = 0, k = 0; i < a->meeting_count || k < b->meeting_count;) {
        struct reduced_meeting of_first = {0}, of_second = {0};
        if (i < a->meeting_count) {
            of_first = a->meetings[i];
            of_first.node = of_a[of_first.node];
        }
        if (k < b->meeting_count) {
            of_second = b->meetings[k];
            of_second.node = of_b[of_second.node];
        }
        int order = i == a->meeting_count ? 1
                : k == b->meeting_count   ? -1
                                          : reduced_meeting_order(&of_first, &of_second);
        if (order == 0 && !reduced_meeting_add(&of_first, &of_second))
            return error_set(err, -EBADMSG,
                    "ranks wait longer in collective %llu than a clock can show: one of the files, or a shard, is damaged",
                    (unsigned long long)of_first.number);
        if (ret->meeting_count == REDUCED_MEETINGS_MAX)
            return error_set(err, -E2BIG,
                    "the ranks have more than %d collectives, of each node its own: give fewer directories or files at a time",
                    (int)REDUCED_MEETINGS_MAX);
        vector_push(ret->meetings, ret->meeting_count, order <= 0 ? of_first : of_second);
        i += order <= 0;
        k += order >= 0;
    }
    return 0;
}

// --- all -----------------------------------------------------------------------------------------

static int reduced_check(const struct reduced *a, const struct reduced *b, struct error *err)
{
    if (strcmp(a->run, b->run) != 0 || a->restart != b->restart || a->ranks != b->ranks)
        return error_set(err, -EINVAL,
                "ranks of run '%s' (restart %lld, of %d ranks) and of run '%s' (restart %lld, of %d ranks) cannot become one",
                a->run, (long long)a->restart, (int)a->ranks, b->run, (long long)b->restart,
                (int)b->ranks);
    if (a->window_steps != b->window_steps)
        return error_set(err, -EINVAL,
                "ranks were reduced with windows of %llu steps and of %llu steps: give all of them one --window",
                (unsigned long long)a->window_steps, (unsigned long long)b->window_steps);
    for (size_t i = 0, k = 0; i < a->member_count && k < b->member_count;) {
        if (a->members[i].rank == b->members[k].rank)
            return error_set(err, -EINVAL,
                    "rank %d of run '%s' is there twice, and would count twice",
                    (int)a->members[i].rank, a->run);
        bool first = a->members[i].rank < b->members[k].rank;
        i += first;
        k += !first;
    }
    return 0;
}

int reduced_add(struct reduced *sum, const struct reduced *more, struct error *err)
{
    if (!more->run)
        return 0;
    int rc = sum->run ? reduced_check(sum, more, err) : 0;
    if (rc)
        return rc;
    struct reduced both = {.run = xstrdup(more->run),
            .restart = more->restart,
            .ranks = more->ranks,
            .window_steps = more->window_steps};
    uint32_t *of_own = xcalloc(sum->node_count + 1, sizeof *of_own),
             *of_more = xcalloc(more->node_count + 1, sizeof *of_more);
    reduced_join_nodes(sum, more, &both, of_own, of_more);
    reduced_join_members(sum, more, &both, of_own, of_more);
    rc = reduced_join_meetings(sum, more, &both, of_own, of_more, err);
    free(of_own);
    free(of_more);
    if (rc == 0) {
        reduced_join_gists(sum, more, &both); // last: it takes what sum has
        struct reduced old = *sum;
        *sum = both;
        both = old;
    }
    reduced_free(&both);
    return rc;
}

const struct reduced_rank *reduced_member(const struct reduced *reduced, int64_t rank)
{
    size_t at = search_first(i, reduced->member_count, reduced->members[i].rank >= rank);
    return at < reduced->member_count && reduced->members[at].rank == rank ? &reduced->members[at]
                                                                           : NULL;
}

void reduced_free(struct reduced *reduced)
{
    for (size_t i = 0; i < reduced->node_count; i++) {
        free(reduced->nodes[i].boot);
        free(reduced->nodes[i].host);
    }
    free(reduced->run);
    free(reduced->nodes);
    free(reduced->members);
    free(reduced->gists);
    strbuf_free(&reduced->gist_bytes);
    free(reduced->meetings);
    *reduced = (struct reduced){0};
}
