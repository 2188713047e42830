// SPDX-License-Identifier: Apache-2.0
// Joins recorded tensors of the two sides, pair by pair, with float64 values and repetitions of the
// baseline, and applies the rules of reports/analyse. Reads the store through parity_rows; writes
// nothing.
#include "harness/gate/parity/parity_gate.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/gate/parity/parity_internal.h"

double parity_alpha(const struct parity_context *context)
{
    return context->gate->alpha / context->schedule->look_count;
}

int parity_looks_reached(const struct parity_context *context)
{
    int reached = 0;
    while (reached < context->schedule->look_count &&
            (int)context->schedule->looks[reached] <= context->facts->main_count)
        reached++;
    return reached;
}

int parity_next_look(const struct parity_context *context)
{
    int reached = parity_looks_reached(context);
    return reached < context->schedule->look_count ? (int)context->schedule->looks[reached] : 0;
}

bool parity_is_judged(const struct pair_head *head)
{
    return (head->phase == PAIR_PHASE_MAIN || head->phase == PAIR_PHASE_CONFIRM) &&
            head->fate != PAIR_FATE_FAILED;
}

bool parity_is_counted(const struct pair_head *head)
{
    return head->phase == PAIR_PHASE_MAIN && head->fate == PAIR_FATE_VALID;
}

static int parity_load(const struct parity_work *work, const char *phase, int64_t pair_id, int side,
        struct tensor_rows *ret_rows, struct error *err)
{
    struct tensor_query query = {work->context->facts->id, pair_id, phase, work->name, side};
    return tensor_rows_load(work->context->store, &query, ret_rows, err);
}

static bool parity_has_seed(const struct tensor_rows *rows, int64_t seed)
{
    for (int i = 0; i < rows->count; i++)
        if (rows->items[i].seed == seed)
            return true;
    return false;
}

// Of pairs whose seed was run in float64 or once more.
static int parity_yardsticks(struct parity_work *work, struct error *err)
{
    const struct workload_facts *facts = work->context->facts;
    int rc = parity_load(work, "anchor", -1, 0, &work->anchor, err);
    if (rc == 0)
        rc = parity_load(work, "pilot", -1, 0, &work->repeat, err);
    for (int i = 0; i < facts->head_count && rc == 0; i++) {
        const struct pair_head *head = &facts->heads[i];
        struct tensor_rows rows = {0};
        if (!parity_is_judged(head) ||
                (!parity_has_seed(&work->anchor, head->seed) &&
                        !parity_has_seed(&work->repeat, head->seed)))
            continue;
        rc = parity_load(work, NULL, head->id, 0, &rows, err);
        if (rc == 0)
            parity_learn(work, &rows);
        tensor_rows_clear(&rows);
    }
    return rc;
}

// Outputs that the ring or the limit of a launch's outputs took from the candidate were not left
// out by it: of this launch, and no more than were taken. `unmatched`: of this pair.
static int parity_lost(
        struct parity_work *work, int64_t pair_id, long unmatched, bool missing, struct error *err)
{
    int64_t lost = 0;
    int rc = store_get_int(work->context->store, &lost, err,
            "SELECT coalesce(sum(g.dropped), 0) FROM ledger g JOIN launch l ON l.id = "
            "g.launch_id WHERE l.pair_id = ? AND l.side = 1 AND g.producer = "
            "'step protocol' AND g.kind LIKE 'tensors%'",
            "i", pair_id);
    bool excused = lost >= unmatched;
    work->tally.lost += excused;
    work->tally.left_out += !excused;
    work->tally.missing += missing && !excused;
    return rc;
}

static int parity_pairs(struct parity_work *work, struct error *err)
{
    const struct parity_context *context = work->context;
    int rc = 0, counted = 0, look = 0;
    for (int i = 0; i < context->facts->head_count && rc == 0; i++) {
        const struct pair_head *head = &context->facts->heads[i];
        struct tensor_rows a = {0}, b = {0};
        long unmatched = work->tally.unmatched;
        if (!parity_is_judged(head))
            continue;
        rc = parity_load(work, NULL, head->id, 0, &a, err);
        if (rc == 0)
            rc = parity_load(work, NULL, head->id, 1, &b, err);
        if (rc == 0)
            parity_pair(work, head, &a, &b);
        if (rc == 0 && work->tally.unmatched > unmatched)
            rc = parity_lost(work, head->id, work->tally.unmatched - unmatched, b.count == 0, err);
        tensor_rows_clear(&a);
        tensor_rows_clear(&b);
        counted += parity_is_counted(head);
        if (look < context->schedule->look_count &&
                counted == (int)context->schedule->looks[look]) {
            parity_settle_mismatch(work);
            work->mismatch_settled = work->mismatch.state == MISMATCH_BEYOND;
            look++;
        }
    }
    parity_settle_mismatch(work);
    return rc;
}

static void parity_work_clear(struct parity_work *work)
{
    tensor_rows_clear(&work->anchor);
    tensor_rows_clear(&work->repeat);
    for (int i = 0; i < work->pool_count; i++) {
        free(work->pools[i].sides[0]);
        free(work->pools[i].sides[1]);
    }
    free(work->pools);
    free(work->steps.items);
}

static int parity_tensor(const struct parity_context *context, const char *name,
        struct parity_row *ret_row, struct error *err)
{
    struct parity_work work = {.context = context,
            .name = name,
            .sampled = strncmp(name, "sampled", strlen("sampled")) == 0};
    int rc = parity_yardsticks(&work, err);
    if (rc == 0)
        rc = parity_pairs(&work, err);
    if (rc == 0)
        parity_tell(&work, ret_row);
    parity_work_clear(&work);
    return rc;
}

int parity_judge(const struct parity_context *context, struct parity_row **ret_rows, int *ret_count,
        struct error *err)
{
    char **names = NULL;
    int name_count = 0, count = 0;
    *ret_rows = NULL;
    *ret_count = 0;
    if (context->gate->parity == PLAN_PARITY_OFF)
        return 0;
    int rc = tensor_names_load(context->store, context->facts->id, &names, &name_count, err);
    if (rc)
        return rc;
    struct parity_row *rows = xcalloc((size_t)name_count + PARITY_LOSS_ROWS_MAX, sizeof *rows);
    for (int i = 0; i < name_count && rc == 0; i++) {
        rc = parity_tensor(context, names[i], &rows[count], err);
        count += rc == 0;
    }
    if (rc == 0)
        rc = parity_losses(context, rows + count, err);
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

int parity_find_uncompared(const struct parity_context *context, const struct parity_row *rows,
        int count, struct findings *findings, struct error *err)
{
    long differ = 0;
    int64_t lost = 0;
    for (int i = 0; i < count; i++)
        differ += rows[i].uncompared;
    int rc = context->gate->parity == PLAN_PARITY_OFF
            ? 0
            : store_get_int(context->store, &lost, err,
                      "SELECT coalesce(sum(g.dropped), 0) FROM ledger g JOIN launch l ON l.id = g.launch_id JOIN pair p ON "
                      "p.id = l.pair_id WHERE p.workload_id = ? AND p.phase IN ('main', 'confirm') AND p.state IN ('valid', "
                      "'void') AND g.producer = 'step protocol' AND g.kind LIKE 'tensors%'",
                      "i", context->facts->id);
    if (rc || (!differ && lost <= 0))
        return rc;
    struct strbuf text = {0};
    if (differ)
        strbuf_add(&text,
                "%ld output%s behind the first 16 MiB of a launch, whose values are not kept, %s not compared",
                differ, differ == 1 ? "" : "s", differ == 1 ? "was" : "were");
    if (lost > 0)
        strbuf_add(&text,
                "%s%lld recorded output%s of the launches %s lost, or too many to be kept: not compared",
                differ ? "; " : "", (long long)lost, lost == 1 ? "" : "s",
                lost == 1 ? "was" : "were");
    findings_add(findings, context->facts->name, "outputs", -1, FINDING_NOTE, "%s", text.text);
    strbuf_free(&text);
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

// What the last look left open is kept with the connection, like the measured pairs.
static int parity_cache(
        const struct parity_context *context, int *wanted, bool put, struct error *err)
{
    struct store *store = context->store;
    int64_t id = context->facts->id, value = -1;
    int rc = store_exec(store, err,
            "CREATE TEMP TABLE IF NOT EXISTS parity_wanted (workload_id INTEGER PRIMARY "
            "KEY, pairs INTEGER NOT NULL)",
            "");
    if (rc == 0 && put)
        return store_exec(store, err, "INSERT OR REPLACE INTO temp.parity_wanted VALUES (?, ?)",
                "ii", id, (int64_t)*wanted);
    if (rc == 0)
        store_get_int(store, &value, NULL,
                "SELECT pairs FROM temp.parity_wanted WHERE workload_id = ?", "i", id);
    *wanted = (int)value;
    return rc;
}

int parity_pairs_wanted(const struct parity_context *context, int *ret_pairs, struct error *err)
{
    struct parity_row *rows;
    int count, wanted = 0, reached = parity_looks_reached(context);
    *ret_pairs = 0;
    if (!reached || !parity_next_look(context))
        return 0;
    if (context->facts->main_count != (int)context->schedule->looks[reached - 1]) {
        int rc = parity_cache(context, &wanted, false, err);
        if (rc || wanted >= 0) { // -1: a run that is resumed between two looks
            *ret_pairs = rc || wanted <= context->facts->main_count ? 0 : wanted;
            return rc;
        }
    }
    int rc = parity_judge(context, &rows, &count, err);
    if (rc)
        return rc;
    wanted = 0;
    for (int i = 0; i < count; i++)
        wanted = rows[i].want_main > wanted ? rows[i].want_main : wanted;
    // One that fails is reason enough to stop.
    for (int i = 0; i < count; i++)
        wanted = rows[i].verdict == CELL_FAIL ? 0 : wanted;
    parity_free(rows, count);
    *ret_pairs = wanted;
    return parity_cache(context, &wanted, true, err);
}
