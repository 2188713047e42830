// SPDX-License-Identifier: Apache-2.0
// Reads which launches differ, by digests of tensors and bits of losses; compares no values.
#include "harness/gate/parity/parity_launches.h"

#include <errno.h>
#include <stdlib.h>

#include "common/strings.h"

// Outputs that are drawn at random have no yardstick but other seeds.
#define TENSORS_DIFFER_AND(left, right, more) \
    "EXISTS (SELECT 1 FROM tensor t JOIN tensor u ON u.launch_id = " right " AND u.rank = t.rank " \
    "AND u.step = t.step AND u.name = t.name WHERE t.launch_id = " left \
    " AND t.name NOT LIKE 'sampled%' AND (t.digest <> u.digest OR t.dtype <> u.dtype)" more ")"
#define TENSORS_DIFFER(left, right) TENSORS_DIFFER_AND(left, right, "")
// A launch tells nothing of what differs by digest only.
#define VALUES_DIFFER(left, right) \
    TENSORS_DIFFER_AND(left, right, " AND length(t.data) AND length(u.data)")
#define LOSSES_DIFFER(left, right) \
    "EXISTS (SELECT 1 FROM loss t JOIN loss u ON u.launch_id = " right " AND u.rank = t.rank AND " \
    "u.step = t.step WHERE t.launch_id = " left " AND t.bits <> u.bits)"
#define SIDES \
    "FROM pair p JOIN launch a ON a.pair_id = p.id AND a.side = 0 JOIN launch b ON b.pair_id = " \
    "p.id AND b.side = 1 WHERE p.workload_id = ?1 AND p.phase = 'main' AND p.state IN ('valid', " \
    "'void') "

// As many steps as outputs were compared at, when the first anchor says that they take no longer
// than a pair does.
static int64_t launches_longer_anchor(struct store *store, int64_t workload_id)
{
    int64_t last = 0, step_ns = 0, pair_ns = 0;
    if (store_get_int(store, &last, NULL,
                "SELECT max(t.step) FROM pair p JOIN launch l ON l.pair_id = p.id JOIN tensor t "
                "ON t.launch_id = l.id WHERE p.workload_id = ? AND p.phase = 'main' AND "
                "l.side = 0 AND length(t.data) AND t.name NOT LIKE 'sampled%'",
                "i", workload_id) ||
            store_get_int(store, &step_ns, NULL,
                    "SELECT avg(s.dur_ns) FROM pair p JOIN launch l ON l.pair_id = p.id JOIN step s "
                    "ON s.launch_id = l.id WHERE p.workload_id = ? AND p.phase = 'anchor' AND "
                    "p.state = 'valid'",
                    "i", workload_id) ||
            store_get_int(store, &pair_ns, NULL,
                    "SELECT avg(ended_ns - started_ns) FROM pair WHERE workload_id = ? AND phase = "
                    "'main' AND state = 'valid'",
                    "i", workload_id) ||
            step_ns <= 0)
        return 0;
    int64_t affordable = pair_ns / step_ns, wanted = last + 1;
    int64_t steps = wanted < affordable ? wanted : affordable;
    return steps > PARITY_ANCHOR_STEPS ? steps : 0;
}

static void launches_anchor(
        struct store *store, int64_t workload_id, struct parity_launches *launches)
{
    int64_t anchors = 0, failed = 0;
    store_get_int(store, &anchors, NULL,
            "SELECT count(*) FROM pair WHERE workload_id = ? AND phase = 'anchor'", "i",
            workload_id);
    store_get_int(store, &failed, NULL,
            "SELECT count(*) FROM pair WHERE workload_id = ? AND phase = 'anchor' AND state <> "
            "'valid'",
            "i", workload_id);
    if (anchors > 1 || failed ||
            store_get_int(store, &launches->anchor_seed, NULL,
                    "SELECT p.seed " SIDES "AND " VALUES_DIFFER("a.id", "b.id") " ORDER BY p.idx "
                                                                                "LIMIT 1",
                    "i", workload_id))
        return;
    launches->anchor_steps = PARITY_ANCHOR_STEPS;
    if (anchors) {
        // Requests do not build upon each other: what rounding does is known from the first ones.
        char *mode =
                store_get_text(store, "SELECT mode FROM workload WHERE id = ?", "i", workload_id);
        bool feedback = mode && *mode != 'i';
        free(mode);
        launches->anchor_steps = feedback ? launches_longer_anchor(store, workload_id) : 0;
    }
    launches->wants_anchor = launches->anchor_steps > 0;
}

static void launches_repeat(
        struct store *store, int64_t workload_id, struct parity_launches *launches)
{
    int64_t repeats = 0, failed = 0, equal = 0;
    store_get_int(store, &repeats, NULL,
            "SELECT count(*) FROM pair WHERE workload_id = ? AND phase = 'pilot'", "i",
            workload_id);
    store_get_int(store, &failed, NULL,
            "SELECT count(*) FROM pair WHERE workload_id = ? AND phase = 'pilot' AND state <> "
            "'valid'",
            "i", workload_id);
    // One that is equal to the last bit says the same of all.
    store_get_int(store, &equal, NULL,
            "SELECT count(*) " SIDES "AND EXISTS (SELECT 1 FROM pair q JOIN launch c ON "
            "c.pair_id = q.id AND c.side = 0 WHERE q.workload_id = ?1 AND q.phase = 'pilot' AND "
            "q.state = 'valid' AND q.seed = p.seed AND NOT " TENSORS_DIFFER(
                    "a.id", "c.id") " AND NOT " LOSSES_DIFFER("a.id", "c.id") ")",
            "i", workload_id);
    if (repeats >= PARITY_REPEATS_MAX || failed || equal)
        return;
    launches->wants_repeat = store_get_int(store, &launches->repeat_seed, NULL,
                                     "SELECT p.seed " SIDES
                                     "AND NOT EXISTS (SELECT 1 FROM pair q WHERE q.workload_id "
                                     "= ?1 AND q.phase = 'pilot' AND q.seed = p.seed) AND "
                                     "(" VALUES_DIFFER("a.id", "b.id") " OR " LOSSES_DIFFER(
                                             "a.id", "b.id") ") "
                                                             "ORDER BY p.idx LIMIT 1",
                                     "i", workload_id) == 0;
}

int parity_launches_wanted(struct store *store, int64_t workload_id,
        struct parity_launches *ret_launches, struct error *err)
{
    int64_t pairs = 0;
    *ret_launches = (struct parity_launches){0};
    int rc = store_get_int(store, &pairs, err, "SELECT count(*) FROM pair WHERE workload_id = ?",
            "i", workload_id);
    if (rc)
        return rc;
    launches_anchor(store, workload_id, ret_launches);
    launches_repeat(store, workload_id, ret_launches);
    return 0;
}
