// SPDX-License-Identifier: Apache-2.0
// Joins recorded tensors of the two sides, pair by pair, with the fp64 anchor of the same seed, and
// applies the rules of reports/analyse. Reads the store through parity_rows; writes nothing.
#include "harness/gate/parity_gate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/gate/parity_rows.h"
#include "harness/gate/phrase.h"
#include "reports/analyse/parity.h"

static const double parity_gross_cosine = 0.99;

// Values of one pair side by side, of all its ranks and steps.
struct parity_pool {
    double *a, *b, *anchor;
    size_t count, capacity;
};

static void parity_pool_add(struct parity_pool *pool, const struct tensor_row *a,
                            const struct tensor_row *b, const struct tensor_row *anchor)
{
    size_t count = a->stored < b->stored ? a->stored : b->stored;
    if (anchor && anchor->stored < count)
        count = anchor->stored;
    if (pool->count + count > pool->capacity) {
        pool->capacity = 2 * (pool->count + count);
        pool->a = xrealloc(pool->a, pool->capacity * sizeof(double));
        pool->b = xrealloc(pool->b, pool->capacity * sizeof(double));
        pool->anchor = xrealloc(pool->anchor, pool->capacity * sizeof(double));
    }
    memcpy(pool->a + pool->count, a->values, count * sizeof(double));
    memcpy(pool->b + pool->count, b->values, count * sizeof(double));
    if (anchor)
        memcpy(pool->anchor + pool->count, anchor->values, count * sizeof(double));
    pool->count += count;
}

static void parity_pool_free(struct parity_pool *pool)
{
    free(pool->a);
    free(pool->b);
    free(pool->anchor);
}

// All that is known about one tensor name while it is judged.
struct parity_work {
    struct store *store;
    const struct workload_facts *facts;
    const char *name;
    struct tensor_rows anchor, pilot; // of all seeds; few
    double factor, spread;
    struct parity_result worst;
    bool has_result;
    int rows_a, rows_b, anchored_pairs, plain_pairs, unmatched, truncated;
    int undecoded_equal, undecoded_unequal;
    bool shape_differs, type_differs;
    enum dtype dtype_a, dtype_b;
};

static int parity_load(const struct parity_work *work, const char *phase, int64_t pair_id, int side,
                       struct tensor_rows *ret_rows, struct error *err)
{
    struct tensor_query query = {work->facts->id, pair_id, phase, work->name, side};
    return tensor_rows_load(work->store, &query, ret_rows, err);
}

static bool parity_has_seed(const struct tensor_rows *rows, int64_t seed)
{
    for (int i = 0; i < rows->count; i++)
        if (rows->items[i].seed == seed)
            return true;
    return false;
}

static bool parity_is_judged(const struct pair_head *head)
{
    return head->phase == PAIR_PHASE_MAIN && head->fate == PAIR_FATE_VALID;
}

// How much the baseline differs from itself with the same seed: its pilot launch against its main
// ones.
static int parity_find_spread(struct parity_work *work, struct error *err)
{
    work->spread = NAN;
    for (int i = 0; i < work->facts->head_count; i++) {
        const struct pair_head *head = &work->facts->heads[i];
        struct tensor_rows rows;
        if (!parity_is_judged(head) || !parity_has_seed(&work->pilot, head->seed))
            continue;
        int rc = parity_load(work, "main", head->id, 0, &rows, err);
        if (rc)
            return rc;
        for (int k = 0; k < rows.count; k++) {
            const struct tensor_row *row = &rows.items[k];
            const struct tensor_row *again =
                tensor_rows_find(&work->pilot, row->seed, row->rank, row->step);
            if (!again || !again->values || !row->values || again->count != row->count)
                continue;
            double rmse = parity_rmse(row->values, again->values,
                                      row->stored < again->stored ? row->stored : again->stored);
            work->spread = isnan(work->spread) || rmse > work->spread ? rmse : work->spread;
        }
        tensor_rows_clear(&rows);
    }
    return 0;
}

static double parity_severity(const struct parity_result *result)
{
    static const double of_state[PARITY_STATE_COUNT] = {
        [PARITY_PASS] = 0, [PARITY_INCONCLUSIVE] = 1e6, [PARITY_FAIL] = 2e6};
    double used = result->limit > 0 ? result->error_b / result->limit : 0;
    // A rule that allows more says more about the data than one that found nothing to allow.
    return of_state[result->state] + (result->rule == PARITY_RULE_BITWISE ? 0 : 1) +
           fmin(used, 1e5);
}

static void parity_keep_worst(struct parity_work *work, const struct parity_result *result)
{
    if (!work->has_result || parity_severity(result) > parity_severity(&work->worst))
        work->worst = *result;
    work->has_result = true;
}

// A pair without an anchor, when another pair has one: that one judges the rounding, this one is
// looked at for what no rounding explains.
static void parity_plain(struct parity_work *work, const struct parity_input *input, bool anchored)
{
    struct parity_result result = parity_compare(input);
    work->plain_pairs++;
    if (!anchored || result.rule == PARITY_RULE_FINITE || result.cosine < parity_gross_cosine ||
        result.rule == PARITY_RULE_EXACT)
        parity_keep_worst(work, &result);
}

static void parity_compare_pools(struct parity_work *work, const struct parity_pool *with,
                                 const struct parity_pool *without, bool anchored)
{
    struct parity_input input = {
        .dtype = work->dtype_a, .factor = work->factor, .spread = work->spread};
    if (with->count) {
        input.a = with->a;
        input.b = with->b;
        input.anchor = with->anchor;
        input.count = with->count;
        struct parity_result result = parity_compare(&input);
        work->anchored_pairs++;
        parity_keep_worst(work, &result);
    }
    if (without->count) {
        input.a = without->a;
        input.b = without->b;
        input.anchor = NULL;
        input.count = without->count;
        parity_plain(work, &input, anchored);
    }
}

// One tensor of both sides: into the pool with the anchor's values, where there are some, or
// without.
static void parity_match(struct parity_work *work, const struct tensor_row *a,
                         const struct tensor_row *b, struct parity_pool *with,
                         struct parity_pool *without)
{
    work->dtype_a = a->dtype;
    work->dtype_b = b->dtype;
    work->type_differs = work->type_differs || a->dtype != b->dtype;
    work->shape_differs = work->shape_differs || a->count != b->count;
    if (!a->values || !b->values) {
        bool equal = strcmp(a->digest, b->digest) == 0;
        work->undecoded_equal += equal;
        work->undecoded_unequal += !equal;
        return;
    }
    work->truncated += a->stored < a->count;
    const struct tensor_row *anchor = tensor_rows_find(&work->anchor, a->seed, a->rank, a->step);
    bool fits = anchor && anchor->values && anchor->count == a->count;
    parity_pool_add(fits ? with : without, a, b, fits ? anchor : NULL);
}

static void parity_pair(struct parity_work *work, const struct tensor_rows *rows_a,
                        const struct tensor_rows *rows_b, bool anchored)
{
    struct parity_pool with = {0}, without = {0};
    int at = 0; // both are in the same order: the partner is behind the last one found
    for (int i = 0; i < rows_a->count; i++) {
        const struct tensor_row *a = &rows_a->items[i], *b = NULL;
        for (int k = at; k < rows_b->count && !b; k++) {
            if (rows_b->items[k].rank == a->rank && rows_b->items[k].step == a->step) {
                b = &rows_b->items[k];
                at = k + 1;
            }
        }
        if (b)
            parity_match(work, a, b, &with, &without);
        else
            work->unmatched++;
    }
    parity_compare_pools(work, &with, &without, anchored);
    parity_pool_free(&with);
    parity_pool_free(&without);
}

static int parity_pairs(struct parity_work *work, bool anchored, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < work->facts->head_count && rc == 0; i++) {
        const struct pair_head *head = &work->facts->heads[i];
        struct tensor_rows a = {0}, b = {0};
        if (!parity_is_judged(head))
            continue;
        rc = parity_load(work, "main", head->id, 0, &a, err);
        if (rc == 0)
            rc = parity_load(work, "main", head->id, 1, &b, err);
        if (rc == 0) {
            work->rows_a += a.count;
            work->rows_b += b.count;
            parity_pair(work, &a, &b, anchored);
        }
        tensor_rows_clear(&a);
        tensor_rows_clear(&b);
    }
    return rc;
}

static enum cell_verdict parity_verdict(enum parity_state state)
{
    return state == PARITY_PASS ? CELL_PASS : state == PARITY_FAIL ? CELL_FAIL : CELL_INCONCLUSIVE;
}

static void parity_explain(const struct parity_work *work, struct strbuf *text)
{
    const struct parity_result *worst = &work->worst;
    switch (worst->rule) {
    case PARITY_RULE_BITWISE:
        strbuf_add(text, "equal to the last bit");
        break;
    case PARITY_RULE_FINITE:
        strbuf_add(text, "%s",
                   worst->has_nan_a   ? "the baseline itself yields NaN: nothing to compare with"
                   : worst->has_nan_b ? "the candidate yields NaN where the baseline does not"
                                      : "Inf on one side where the other is finite");
        break;
    case PARITY_RULE_FP64_ANCHORED:
        strbuf_add(text, "rmse to float64: candidate %.3g, baseline %.3g, at most %.3g",
                   worst->error_b, worst->error_a, worst->limit);
        break;
    case PARITY_RULE_EXACT:
        strbuf_add(text, "%zu integers differ", worst->unequal);
        break;
    default:
        strbuf_add(text, "rmse to the baseline %.3g", worst->error_b);
        if (!isnan(worst->limit))
            strbuf_add(text, ", at most %.3g (the baseline's own spread)", worst->limit);
        if (worst->state == PARITY_INCONCLUSIVE)
            strbuf_add(
                text,
                ", outside torch.testing's tolerance for %s: rounding or a defect? A float64 "
                "anchor would tell (anchor: true and {dtype} in the command)",
                dtype_name(work->dtype_a));
    }
    if (!isnan(worst->cosine) && worst->rule != PARITY_RULE_BITWISE)
        strbuf_add(text, "; cosine %.6f", worst->cosine);
    strbuf_add(text, "; %d pairs%s", work->anchored_pairs + work->plain_pairs,
               work->anchored_pairs ? "" : ", no float64 anchor");
    if (work->anchored_pairs && work->plain_pairs)
        strbuf_add(text, ", %d with the float64 anchor", work->anchored_pairs);
    if (work->type_differs)
        strbuf_add(text, "; the type changed from %s to %s", dtype_name(work->dtype_a),
                   dtype_name(work->dtype_b));
    if (work->truncated)
        strbuf_add(text, "; of long tensors the first 4,096 values are compared");
    if (work->unmatched)
        strbuf_add(text, "; %d tensors recorded by the baseline only", work->unmatched);
}

static struct parity_row parity_row_of(const struct parity_work *work, const char *workload,
                                       const char *name)
{
    struct parity_row row = {.workload = workload,
                             .tensor = xstrdup(name),
                             .rule = "missing",
                             .error_a = NAN,
                             .error_b = NAN,
                             .verdict = CELL_INCONCLUSIVE};
    if (work->rows_a && !work->rows_b) {
        row.verdict = CELL_FAIL;
        row.reason = xstrdup("missing: recorded by the baseline only");
    } else if (!work->rows_a) {
        row.reason = xstrdup("recorded by the candidate only: nothing to compare with");
    } else if (work->shape_differs) {
        row.rule = "shape";
        row.verdict = CELL_FAIL;
        row.reason = xstrdup("the number of elements differs between the sides");
    } else if (!work->has_result) {
        row.rule = "bitwise";
        bool equal = work->undecoded_equal && !work->undecoded_unequal;
        row.verdict = equal ? CELL_PASS : CELL_INCONCLUSIVE;
        row.reason =
            xstrdup(work->undecoded_unequal ? "differs, and its type cannot be decoded here"
                    : equal ? "equal to the last bit (by digest: its type is not decoded)"
                            : "no tensor was recorded by both sides at the same step");
    } else {
        struct strbuf text = {0};
        parity_explain(work, &text);
        row.rule = parity_rule_name(work->worst.rule);
        row.error_a = work->worst.error_a;
        row.error_b = work->worst.error_b;
        row.verdict = parity_verdict(work->worst.state);
        row.reason = strbuf_take(&text);
    }
    return row;
}

static int parity_tensor(struct store *store, const struct workload_facts *facts,
                         const struct plan_gate *gate, const char *name, struct parity_row *ret_row,
                         struct error *err)
{
    struct parity_work work = {
        .store = store, .facts = facts, .name = name, .factor = gate->parity_factor};
    bool anchored = false;
    int rc = parity_load(&work, "anchor", -1, 0, &work.anchor, err);
    if (rc == 0)
        rc = parity_load(&work, "pilot", -1, 0, &work.pilot, err);
    if (rc == 0)
        rc = parity_find_spread(&work, err);
    for (int i = 0; i < facts->head_count; i++)
        anchored = anchored || (parity_is_judged(&facts->heads[i]) &&
                                parity_has_seed(&work.anchor, facts->heads[i].seed));
    if (rc == 0)
        rc = parity_pairs(&work, anchored, err);
    if (rc == 0 && anchored &&
        !work.anchored_pairs) { // the anchor recorded other steps or another shape
        struct parity_work again = {.store = store,
                                    .facts = facts,
                                    .name = name,
                                    .factor = work.factor,
                                    .spread = work.spread,
                                    .anchor = work.anchor,
                                    .pilot = work.pilot};
        work = again;
        rc = parity_pairs(&work, false, err);
    }
    if (rc == 0)
        *ret_row = parity_row_of(&work, facts->name, name);
    tensor_rows_clear(&work.anchor);
    tensor_rows_clear(&work.pilot);
    return rc;
}

int parity_judge(struct store *store, const struct workload_facts *facts,
                 const struct plan_gate *gate, struct parity_row **ret_rows, int *ret_count,
                 struct error *err)
{
    char **names = NULL;
    int name_count = 0, count = 0;
    *ret_rows = NULL;
    *ret_count = 0;
    if (gate->parity == PLAN_PARITY_OFF)
        return 0;
    int rc = tensor_names_load(store, facts->id, &names, &name_count, err);
    if (rc)
        return rc;
    struct parity_row *rows = xcalloc((size_t)name_count + PARITY_LOSS_ROWS_MAX, sizeof *rows);
    for (int i = 0; i < name_count && rc == 0; i++) {
        rc = parity_tensor(store, facts, gate, names[i], &rows[count], err);
        count += rc == 0;
    }
    if (rc == 0)
        rc = parity_losses(store, facts, gate, rows + count, err);
    for (int i = 0; i < name_count; i++)
        free(names[i]);
    free(names);
    if (rc < 0) {
        parity_free(rows, count);
        return rc;
    }
    *ret_rows = rows;
    *ret_count = count + rc;
    return 0;
}

void parity_free(struct parity_row *rows, int count)
{
    for (int i = 0; i < count; i++) {
        free(rows[i].tensor);
        free(rows[i].reason);
    }
    free(rows);
}
