// SPDX-License-Identifier: Apache-2.0
// The judgement: everything afresh from the raw rows, in one transaction. Called at the end of a
// run and by `upgate gate` at any time later. On a store that cannot be written it judges and
// writes nothing.
#include <errno.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/gate/gate.h"
#include "harness/gate/judge_rows.h"

struct judge_parity {
    struct parity_row *rows;
    int count;
};

// Breaches of launches whose pair counts, and of the run itself; what a void pair lost harms
// nobody.
static int judge_trust(struct store *store, bool *ret_ok, char **ret_breach, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT g.producer, g.kind, g.dropped, coalesce(g.detail, 'no detail') FROM ledger g "
            "LEFT JOIN launch l ON l.id = g.launch_id LEFT JOIN pair p ON p.id = l.pair_id "
            "WHERE g.breach <> 0 AND (g.launch_id IS NULL OR (p.state = 'valid' AND p.phase IN "
            "('main', 'confirm', 'control'))) "
            "ORDER BY g.id",
            "");
    if (!stmt)
        return -EIO;
    int rc, breaches = 0;
    char *first = NULL;
    while ((rc = store_step(store, stmt, err)) == 1)
        if (!breaches++)
            first = xasprintf("%s, %s: %lld lost (%s)", store_text(store, stmt, 0),
                    store_text(store, stmt, 1), (long long)sqlite3_column_int64(stmt, 2),
                    store_text(store, stmt, 3));
    if (rc < 0) {
        free(first);
        return rc;
    }
    *ret_ok = breaches == 0;
    *ret_breach = first;
    return 0;
}

static int judge_parity(
        struct store *store, struct run_facts *run, struct judge_parity *parity, struct error *err)
{
    for (int i = 0; i < run->workload_count; i++) {
        struct parity_context context = {
                store, &run->workloads[i].facts, &run->gate, &run->plan->schedule};
        struct parity_row *rows;
        int count, rc = parity_judge(&context, &rows, &count, err);
        if (rc)
            return rc;
        rc = parity_find_uncompared(&context, rows, count, &run->findings, err);
        for (int k = 0; k < count; k++)
            vector_push(parity->rows, parity->count, rows[k]);
        free(rows);
        if (rc)
            return rc;
    }
    return 0;
}

static int judge_run(struct store *store, struct run_facts *run, bool write,
        enum exit_code *ret_exit, struct error *err)
{
    struct judge_parity parity = {0};
    struct calibration calibration = {0};
    struct summary summary = {0};
    bool trust_ok = false;
    char *breach = NULL;
    run_facts_judge(store, run);
    run_facts_find_same(store, run);
    int rc = judge_parity(store, run, &parity, err);
    if (rc == 0)
        rc = calibration_check(store, run, &calibration, err);
    if (rc == 0)
        rc = judge_trust(store, &trust_ok, &breach, err);
    if (rc == 0) {
        struct summary_input input = {
                run, parity.rows, parity.count, &calibration, trust_ok, breach};
        summary = summary_make(&input);
        // Findings of the run come after the sentence, which says the same in its own words.
        if (!trust_ok)
            findings_add(&run->findings, NULL, "trust", -1, FINDING_INCONCLUSIVE, "%s", breach);
        if (!calibration.covered)
            findings_add(&run->findings, NULL, "calibration", -1, FINDING_INCONCLUSIVE, "%s",
                    calibration.note);
        if (write)
            rc = judge_rows_write(store, &input, &summary, err);
    }
    if (rc == 0)
        *ret_exit = summary.exit;
    parity_free(parity.rows, parity.count);
    free(calibration.note);
    free(breach);
    free(summary.reason);
    free(summary.margin_note);
    return rc;
}

// A store opened for reading, or on a file that cannot be written.
static bool judge_may_write(struct store *store)
{
    int64_t query_only = 0;
    store_get_int(store, &query_only, NULL, "PRAGMA query_only", "");
    return !query_only && !sqlite3_db_readonly(store_db(store), "main");
}

int gate_judge(struct store *store, const struct plan_gate *policy, enum exit_code *ret_exit,
        struct error *err)
{
    struct run_facts run;
    bool write = judge_may_write(store);
    enum exit_code verdict = EXIT_CODE_INCONCLUSIVE;
    // The rows are read inside the transaction too: nobody changes them between reading and
    // writing.
    int rc = write ? store_begin(store, err) : 0;
    if (rc)
        return rc;
    rc = run_facts_load(store, policy, FACTS_FROM_ROWS, &run, err);
    if (rc == 0) {
        rc = judge_run(store, &run, write, &verdict, err);
        run_facts_clear(&run);
    }
    if (rc == 0)
        rc = write ? store_commit(store, err) : store_failed(store, err);
    else if (write)
        store_rollback(store);
    if (rc == 0)
        *ret_exit = verdict;
    return rc;
}
