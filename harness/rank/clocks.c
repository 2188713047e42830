// SPDX-License-Identifier: Apache-2.0
// From the collectives of all shards to the clocks of the nodes: of each node when its last rank
// came to each collective and its first one left; of each pair of nodes how far one clock is ahead
// of the other; and of all pairs each node's clock against the first one's, by the pairs that know
// best. Only collectives of NCCL have a name that all ranks know, and only of some nobody leaves
// before all have come.
#include "harness/rank/clocks.h"

#include <math.h>
#include <stdlib.h>

#include "common/containers/hash.h"
#include "common/containers/vector.h"
#include "common/parallel.h"
#include "common/strings.h"
#include "harness/rank/choose.h"

enum {
    CLOCKS_KEPT_MAX = 1 << 18, // collectives that are looked at, of all shards: 16 MB
    CLOCKS_RANK_MIN = 128,     // of a rank
    CLOCKS_RANK_MAX = 8192,
    CLOCKS_ALL_PAIRS_MAX =
            24, // nodes: of more each is compared with the first one and its neighbour only
    CLOCKS_LENGTH_MIN_NS = 100000000 // of a recording: a rate cannot be told from a moment
};
#define CLOCKS_STAMP_NS \
    "10000" // the begin of a kernel is told late by microseconds (tracer/inject/nccl/nccl_record.c)

struct clocks_came { // a rank, or the ranks of a node, to a collective
    uint64_t key;    // of communicator, function and number
    int64_t owner;   // shard and process
    int64_t enter_ns, exit_ns;
};

struct clocks_list { // of a shard, one process after the other
    struct clocks_came *items;
    size_t count, most, limit; // limit: of a process up to twice as many
    size_t first;              // of the last process
    int64_t owner;             // the last process
    uint64_t key_max;          // of it those above are left out: of all ranks the same ones stay
};

struct clocks_node {
    struct clocks_came *items; // by key, each once
    size_t count;
    int64_t begin_ns, end_ns; // when its ranks were recorded
};

struct clocks_pair {
    size_t first, second; // nodes
    struct clock_fit fit;
    bool usable; // the kernels do not know that it is wrong
};

struct clocks {
    struct merge_result *result;
    struct clocks_list *lists; // of chosen shards
    struct clocks_node *nodes;
    struct clocks_pair *pairs; // that have a fit
    size_t pair_count;
    struct clock_map *maps; // of nodes, to the clock of the first one
    int64_t *errors;        // -1: no way of pairs leads to it
};

// --- collectives ---------------------------------------------------------------------------------

static void clocks_keep(struct clocks_list *list, struct clocks_came came)
{
    if (came.owner != list->owner) {
        list->owner = came.owner;
        list->first = list->count;
        list->key_max = UINT64_MAX;
    }
    if (came.key > list->key_max || !list->most)
        return;
    if (!list->items)
        list->items = xcalloc(list->most, sizeof *list->items);
    while (list->count - list->first == 2 * list->limit && list->key_max) {
        size_t kept = list->first;
        list->key_max /= 2;
        for (size_t i = list->first; i < list->count; i++)
            if (list->items[i].key <= list->key_max)
                list->items[kept++] = list->items[i];
        list->count = kept;
    }
    if (list->count < list->most && came.key <= list->key_max)
        list->items[list->count++] = came;
}

// A kernel ends behind the begin of all others. Where no end of one was told, its channels' end was
// seen by the proxy, from version 3 of NCCL's plugins on; what the network told before that ends
// earlier. A shard that cannot be read has none: who merges it says so.
static void clocks_read(void *arg, size_t index)
{
    const struct clocks *clocks = arg;
    struct clocks_list *list = &clocks->lists[index];
    struct error err = {0};
    struct store *store = NULL;
    if (scan_open(clocks->result->chosen[index], &store, &err))
        return;
    sqlite3_stmt *stmt = store_query(store, &err,
            "SELECT n.process_id, n.communicator, " STORE_NCCL_NUMBER(
                    n) ", max(n.enqueued_ns, coalesce(n.kernel_start_ns - " CLOCKS_STAMP_NS
                       ", 0)) AS "
                       "enter_ns, coalesce(n.kernel_end_ns, n.ended_ns) AS exit_ns FROM nccl_op n WHERE n.peer IS NULL AND n.ranks > 1 AND n.count > 0 AND n.function IN "
                       "('AllReduce', 'AllGather', 'ReduceScatter', 'AlltoAll') AND (n.kernel_end_ns IS NOT NULL OR (n.ended_ns IS NOT NULL AND n.plugin_version >= 3 AND "
                       "n.channels > 0)) ORDER BY n.process_id",
            "");
    int rc;
    while ((rc = store_step(store, stmt, &err)) == 1) {
        const struct clocks_came came = {
                .key = hash_mix(hash_mix(0, (uint64_t)sqlite3_column_int64(stmt, 1)),
                        (uint64_t)sqlite3_column_int64(stmt, 2)),
                .owner = (int64_t)((uint64_t)index << 40 ^ (uint64_t)sqlite3_column_int64(stmt, 0)),
                .enter_ns = sqlite3_column_int64(stmt, 3),
                .exit_ns = sqlite3_column_int64(stmt, 4)};
        if (came.enter_ns > 0 && came.exit_ns >= came.enter_ns)
            clocks_keep(list, came);
    }
    if (rc)
        list->count = 0;
    store_close(store);
}

static int clocks_by_key(const void *left, const void *right)
{
    const struct clocks_came *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->owner > b->owner) - (a->owner < b->owner);
}

// The last to come and the first to leave. What a rank has twice has no name, and on one clock
// nobody leaves before all have come.
static void clocks_fold(struct clocks_node *node)
{
    size_t kept = 0;
    qsort(node->items, node->count, sizeof *node->items, clocks_by_key);
    for (size_t first = 0, end; first < node->count; first = end) {
        struct clocks_came one = node->items[first];
        bool once = true;
        for (end = first + 1; end < node->count && node->items[end].key == one.key; end++) {
            const struct clocks_came *came = &node->items[end];
            once &= came->owner != node->items[end - 1].owner;
            one.enter_ns = came->enter_ns > one.enter_ns ? came->enter_ns : one.enter_ns;
            one.exit_ns = came->exit_ns < one.exit_ns ? came->exit_ns : one.exit_ns;
        }
        if (once && one.exit_ns >= one.enter_ns)
            node->items[kept++] = one;
    }
    node->count = kept;
}

static void clocks_put_shard(
        struct clocks_node *node, const struct scan_shard *shard, struct clocks_list *list)
{
    for (size_t i = 0; i < shard->held_count; i++) {
        const struct scan_rank *held = &shard->held[i];
        if (!node->end_ns || held->begin_ns < node->begin_ns)
            node->begin_ns = held->begin_ns;
        if (held->end_ns > node->end_ns)
            node->end_ns = held->end_ns;
    }
    for (size_t i = 0; i < list->count; i++)
        vector_push(node->items, node->count, list->items[i]);
    free(list->items);
    list->items = NULL;
}

static void clocks_read_all(struct clocks *clocks)
{
    const struct merge_result *result = clocks->result;
    size_t ranks = 1;
    for (size_t i = 0; i < result->chosen_count; i++)
        ranks += result->chosen[i]->held_count;
    size_t limit = CLOCKS_KEPT_MAX / ranks; // of a rank's process, so that parts and the shards
                                            // that they are of tell the same
    limit = limit < CLOCKS_RANK_MIN   ? CLOCKS_RANK_MIN
            : limit > CLOCKS_RANK_MAX ? CLOCKS_RANK_MAX
                                      : limit;
    for (size_t i = 0; i < result->chosen_count; i++)
        clocks->lists[i] = (struct clocks_list){.most = 2 * limit * result->chosen[i]->held_count,
                .limit = limit,
                .owner = -1,
                .key_max = UINT64_MAX};
    parallel_each(result->chosen_count, clocks_read, clocks);
    for (size_t i = 0; i < result->chosen_count; i++)
        clocks_put_shard(
                &clocks->nodes[result->chosen[i]->node], result->chosen[i], &clocks->lists[i]);
    for (size_t i = 0; i < result->node_count; i++)
        if (clocks->nodes[i].count)
            clocks_fold(&clocks->nodes[i]);
}

// --- pairs of nodes ------------------------------------------------------------------------------

static size_t clocks_meet(
        const struct clocks_node *a, const struct clocks_node *b, struct clock_bounds *ret)
{
    size_t count = 0;
    for (size_t i = 0, k = 0; i < a->count && k < b->count;) {
        const struct clocks_came *of_a = &a->items[i], *of_b = &b->items[k];
        if (of_a->key == of_b->key)
            ret[count++] = (struct clock_bounds){.low_at_ns = of_a->exit_ns,
                    .low_ns = of_b->enter_ns - of_a->exit_ns,
                    .high_at_ns = of_a->enter_ns,
                    .high_ns = of_b->exit_ns - of_a->enter_ns};
        i += of_a->key <= of_b->key;
        k += of_b->key <= of_a->key;
    }
    return count;
}

// How far ahead the second clock is by what the kernels say.
static int64_t clocks_told(const struct clocks *clocks, size_t first, size_t second)
{
    return clocks->result->nodes[first].wall_minus_monotonic_ns -
            clocks->result->nodes[second].wall_minus_monotonic_ns;
}

// Within what; -1: not known.
static int64_t clocks_told_within(const struct clocks *clocks, size_t first, size_t second)
{
    int64_t of_first = clocks->result->nodes[first].error_ns,
            of_second = clocks->result->nodes[second].error_ns;
    return of_first < 0 || of_second < 0 ? -1 : of_first + of_second;
}

static enum clock_fit_state clocks_fit_pair(struct clocks *clocks, size_t first, size_t second)
{
    const struct clocks_node *a = &clocks->nodes[first], *b = &clocks->nodes[second];
    size_t most = a->count < b->count ? a->count : b->count;
    if (most < CLOCK_FIT_MIN || a->end_ns - a->begin_ns < CLOCKS_LENGTH_MIN_NS)
        return CLOCK_FIT_FEW;
    struct clock_bounds *bounds = xcalloc(most, sizeof *bounds);
    struct clocks_pair pair = {.first = first, .second = second, .usable = true};
    enum clock_fit_state state =
            clock_fit(bounds, clocks_meet(a, b, bounds), a->begin_ns, a->end_ns, &pair.fit);
    free(bounds);
    if (state != CLOCK_FIT_DONE)
        return state;
    int64_t within = clocks_told_within(clocks, first, second);
    if (within >= 0)
        pair.usable = clock_fit_clip(&pair.fit, clocks_told(clocks, first, second), within);
    vector_push(clocks->pairs, clocks->pair_count, pair);
    return state;
}

static void clocks_fit_all(struct clocks *clocks)
{
    struct merge_result *result = clocks->result;
    size_t wrong = 0, first = 0, second = 0;
    for (size_t i = 0; i < result->node_count; i++)
        for (size_t k = i + 1; k < result->node_count; k++) {
            if (result->node_count > CLOCKS_ALL_PAIRS_MAX && i > 0 && k > i + 1)
                break;
            if (clocks_fit_pair(clocks, i, k) != CLOCK_FIT_CONTRADICT || wrong++)
                continue;
            first = i;
            second = k;
        }
    if (wrong)
        choose_note(result,
                "the times of collectives on %s and %s%s contradict each other, and tell nothing of their clocks: what the kernels know of "
                "these counts",
                result->nodes[first].host, result->nodes[second].host,
                wrong > 1 ? ", and on other nodes," : "");
}

// --- all nodes -----------------------------------------------------------------------------------

static void clocks_reach(struct clocks *clocks, size_t from, size_t to, int64_t error_ns,
        const struct clock_map *map)
{
    int64_t sum_ns = clocks->errors[from] + error_ns;
    if (clocks->errors[to] >= 0 && clocks->errors[to] <= sum_ns)
        return;
    clocks->errors[to] = sum_ns;
    clocks->maps[to] = clock_map_compose(map, &clocks->maps[from]);
}

// From the first node on, each by the way of pairs that knows best.
static size_t clocks_walk(struct clocks *clocks)
{
    size_t node_count = clocks->result->node_count, reached = 0;
    bool *done = xcalloc(node_count, sizeof *done);
    for (size_t i = 0; i < node_count; i++)
        clocks->errors[i] = i ? -1 : 0;
    clocks->maps[0] = (struct clock_map){0};
    for (;; reached++) {
        size_t next = node_count;
        for (size_t i = 0; i < node_count; i++)
            if (!done[i] && clocks->errors[i] >= 0 &&
                    (next == node_count || clocks->errors[i] < clocks->errors[next]))
                next = i;
        if (next == node_count)
            break;
        done[next] = true;
        for (size_t i = 0; i < clocks->pair_count; i++) {
            const struct clocks_pair *pair = &clocks->pairs[i];
            const struct clock_map back = clock_map_inverse(&pair->fit.map);
            if (pair->usable && pair->first == next && !done[pair->second])
                clocks_reach(clocks, next, pair->second, clock_fit_error_ns(&pair->fit), &back);
            else if (pair->usable && pair->second == next && !done[pair->first])
                clocks_reach(
                        clocks, next, pair->first, clock_fit_error_ns(&pair->fit), &pair->fit.map);
        }
    }
    free(done);
    return reached;
}

// How far the places of two nodes are from what somebody says at most.
static int64_t clocks_apart(
        const struct clocks *clocks, size_t first, size_t second, const struct clock_map *said)
{
    const struct clock_map back = clock_map_inverse(&clocks->maps[second]),
                           way = clock_map_compose(&clocks->maps[first], &back);
    const int64_t ends[2] = {clocks->nodes[first].begin_ns, clocks->nodes[first].end_ns};
    int64_t most = 0;
    for (int i = 0; i < 2; i++) {
        int64_t apart_ns = llabs(clock_map_apply(&way, ends[i]) - clock_map_apply(said, ends[i]));
        most = apart_ns > most ? apart_ns : most;
    }
    return most;
}

// Does what the pair says agree with what the ways to both of its nodes say?
static bool clocks_agree(const struct clocks *clocks, const struct clocks_pair *pair)
{
    if (clocks->errors[pair->first] < 0 || clocks->errors[pair->second] < 0)
        return true;
    int64_t within_ns = clocks->errors[pair->first] + clocks->errors[pair->second] +
            clock_fit_error_ns(&pair->fit);
    return clocks_apart(clocks, pair->first, pair->second, &pair->fit.map) <=
            within_ns + CLOCK_FIT_ERROR_MIN_NS;
}

// Collectives that agree with each other, and not with the kernels: nobody is named by a difference
// that only one of both knows.
static void clocks_doubt(struct clocks *clocks, const struct clocks_pair *pair, bool told)
{
    struct merge_node *first = &clocks->result->nodes[pair->first],
                      *second = &clocks->result->nodes[pair->second];
    int64_t apart_ns = clock_fit_distance_ns(
                    &pair->fit, clocks_told(clocks, pair->first, pair->second)),
            within_ns = first->error_ns + second->error_ns;
    if (apart_ns <= within_ns)
        return;
    if (!told)
        choose_note(clocks->result,
                "by the times of their collectives the clocks of %s and %s are up to %.3f ms away from where their kernels have them, who "
                "claim to know them within %.3f ms: they count as known no better than both allow",
                first->host, second->host, (double)apart_ns / 1e6, (double)within_ns / 1e6);
    second->error_ns += apart_ns - within_ns;
}

// The node that is reached and whose place the others can best be told from by what kernels know.
// node_count: none.
static size_t clocks_anchor(const struct clocks *clocks)
{
    const struct merge_result *result = clocks->result;
    size_t best = result->node_count;
    for (size_t i = 0; i < result->node_count; i++) {
        if (clocks->errors[i] < 0 || result->nodes[i].error_ns < 0)
            continue;
        if (best == result->node_count ||
                clocks->errors[i] + result->nodes[i].error_ns <
                        clocks->errors[best] + result->nodes[best].error_ns)
            best = i;
    }
    return best;
}

// Those that no way leads to, by the kernel of the anchor and their own. Without an anchor they
// stay where their kernels have them, known to nobody.
static void clocks_place(struct clocks *clocks)
{
    const struct merge_result *result = clocks->result;
    size_t anchor = clocks_anchor(clocks);
    bool placed = anchor < result->node_count;
    int64_t anchor_ns = placed ? clocks->errors[anchor] + result->nodes[anchor].error_ns : 0;
    for (size_t i = 0; i < result->node_count; i++) {
        const struct clock_map map = {.shift_ns = clocks_told(clocks, i, placed ? anchor : 0)};
        if (clocks->errors[i] >= 0)
            continue;
        clocks->maps[i] = placed ? clock_map_compose(&map, &clocks->maps[anchor]) : map;
        clocks->errors[i] = placed && result->nodes[i].error_ns >= 0
                ? result->nodes[i].error_ns + anchor_ns
                : -1;
    }
}

// Of all pairs of nodes together what they are known within, but for a factor. told: of those nodes
// that kernels know, of which there must be two.
static double clocks_sum(const struct clocks *clocks, const int64_t *errors, bool told)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < clocks->result->node_count; i++) {
        if (told ? clocks->result->nodes[i].error_ns < 0 : errors[i] < 0)
            continue;
        sum += errors[i] < 0 ? INFINITY : (double)errors[i];
        count++;
    }
    return count < 2 ? INFINITY : sum;
}

// Of few nodes more is known than the ways from the first one: what each pair says, and its
// kernels. Each node takes half of what it and the others are known within, at worst, so that no
// two have less.
static void clocks_share(const struct clocks *clocks, int64_t *ret_errors)
{
    static const size_t side = CLOCKS_ALL_PAIRS_MAX;
    size_t count = clocks->result->node_count;
    int64_t *within = xcalloc(side * side, sizeof *within);
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++) {
            const struct clock_map told = {.shift_ns = clocks_told(clocks, i, k)};
            int64_t told_ns = clocks_told_within(clocks, i, k),
                    sum_ns = clocks->errors[i] + clocks->errors[k];
            if (told_ns >= 0)
                told_ns += clocks_apart(clocks, i, k, &told);
            within[i * side + k] = told_ns >= 0 && told_ns < sum_ns ? told_ns : sum_ns;
        }
    for (size_t i = 0; i < clocks->pair_count; i++) {
        const struct clocks_pair *pair = &clocks->pairs[i];
        int64_t *one = &within[pair->first * side + pair->second];
        int64_t pair_ns = clocks_apart(clocks, pair->first, pair->second, &pair->fit.map) +
                clock_fit_error_ns(&pair->fit);
        if (pair->usable && pair_ns < *one)
            *one = pair_ns;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t most = 0;
        for (size_t k = 0; k < count; k++) {
            int64_t one = k > i ? within[i * side + k] : k < i ? within[k * side + i] : 0;
            if (clocks->errors[k] >= 0 && one > most)
                most = one;
        }
        ret_errors[i] = clocks->errors[i] < 0 ? -1 : (most + 1) / 2;
    }
    free(within);
}

// Of both ways to say it, and of what the kernels know, that which leaves least to doubt.
static void clocks_apply(struct clocks *clocks)
{
    struct merge_result *result = clocks->result;
    int64_t *errors = xcalloc(result->node_count, sizeof *errors);
    for (size_t i = 0; i < result->node_count; i++) {
        errors[i] = result->nodes[i].error_ns;
        result->nodes[i].by_collectives = clocks->errors[i] >= 0;
    }
    double told = clocks_sum(clocks, errors, true);
    clocks_place(clocks);
    if (result->node_count <= CLOCKS_ALL_PAIRS_MAX)
        clocks_share(clocks, errors);
    bool shared = result->node_count <= CLOCKS_ALL_PAIRS_MAX &&
            clocks_sum(clocks, errors, false) < clocks_sum(clocks, clocks->errors, false);
    for (size_t i = 0; i < result->node_count && !shared; i++)
        errors[i] = clocks->errors[i];
    bool better = told == INFINITY || clocks_sum(clocks, errors, true) < told;
    for (size_t i = 0; i < result->node_count; i++) {
        struct merge_node *node = &result->nodes[i];
        node->by_collectives &= better;
        node->map = better ? clocks->maps[i] : node->map;
        node->error_ns = better ? errors[i] : node->error_ns;
    }
    free(errors);
}

static void clocks_compare(struct clocks *clocks)
{
    struct merge_result *result = clocks->result;
    bool agree = true, told = false;
    clocks_fit_all(clocks);
    size_t reached = clocks_walk(clocks);
    for (size_t i = 0; i < clocks->pair_count && agree; i++) {
        const struct clocks_pair *pair = &clocks->pairs[i];
        agree = clocks_agree(clocks, pair);
        if (!agree && pair->usable)
            choose_note(result,
                    "the times of collectives on %s and %s contradict those that both have in common with other nodes: what the kernels know of "
                    "all clocks counts",
                    result->nodes[pair->first].host, result->nodes[pair->second].host);
    }
    for (size_t i = 0; i < clocks->pair_count; i++) {
        if (clocks->pairs[i].usable)
            continue;
        clocks_doubt(clocks, &clocks->pairs[i], told);
        told = true;
    }
    if (agree && reached > 1)
        clocks_apply(clocks);
}

void clocks_find(struct merge_result *result)
{
    for (size_t i = 0; i < result->node_count; i++)
        result->nodes[i].map =
                (struct clock_map){.shift_ns = result->nodes[i].wall_minus_monotonic_ns -
                                result->nodes[0].wall_minus_monotonic_ns};
    if (result->node_count < 2)
        return;
    struct clocks clocks = {.result = result,
            .lists = xcalloc(result->chosen_count, sizeof *clocks.lists),
            .nodes = xcalloc(result->node_count, sizeof *clocks.nodes),
            .maps = xcalloc(result->node_count, sizeof *clocks.maps),
            .errors = xcalloc(result->node_count, sizeof *clocks.errors)};
    clocks_read_all(&clocks);
    clocks_compare(&clocks);
    for (size_t i = 0; i < result->node_count; i++) {
        result->nodes[i].error_ns =
                result->nodes[i].error_ns < MERGE_ERROR_NS_END ? result->nodes[i].error_ns : -1;
        free(clocks.nodes[i].items);
    }
    free(clocks.lists);
    free(clocks.nodes);
    free(clocks.pairs);
    free(clocks.maps);
    free(clocks.errors);
}
