// SPDX-License-Identifier: Apache-2.0
// Checks certificates against the policy. Reads table calibration.
#include "harness/gate/calibration.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

char *calibration_objection(const struct plan_gate *gate, int64_t made_wall_ns, int64_t at_wall_ns,
                            double upper_bound)
{
    const double day_ns = 86400e9;
    if (upper_bound > gate->calibration_bound)
        return xasprintf(
            "its certificate bounds false fails at %.2g %% only, the policy asks for %.2g %%",
            100 * upper_bound, 100 * gate->calibration_bound);
    if (at_wall_ns - made_wall_ns > gate->calibration_age_ns)
        return xasprintf("its certificate is %.0f days old, the policy allows %.0f",
                         (double)(at_wall_ns - made_wall_ns) / day_ns,
                         (double)gate->calibration_age_ns / day_ns);
    return NULL;
}

// NULL: this workload is covered (*ret_which says by what); else the objection.
static char *calibration_of(struct store *store, const struct run_facts *run,
                            const struct workload_facts *facts, char **ret_which, int *ret_rc,
                            struct error *err)
{
    const char *interleave = plan_interleave_name(facts->interleave);
    sqlite3_stmt *stmt = store_query(
        store, err,
        "SELECT scope, made_wall_ns, gates, false_fails, upper_bound, method FROM calibration "
        "WHERE (scope = ? OR scope = 'host') AND interleave = ? ORDER BY scope = 'host', "
        "made_wall_ns DESC, id DESC",
        "ss", facts->name, interleave);
    if (!stmt) {
        *ret_rc = -EIO;
        return NULL;
    }
    char *objection = NULL;
    bool covered = false;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        char *wrong = calibration_objection(&run->gate, sqlite3_column_int64(stmt, 1),
                                            run->started_wall_ns, sqlite3_column_double(stmt, 4));
        if (!wrong && !covered) {
            covered = true;
            *ret_which = xasprintf(
                "%s (%s): %lld false fails in %lld A/A gates (%s), at most %.2g %% (95 %%)",
                sqlite3_column_text(stmt, 0), interleave, (long long)sqlite3_column_int64(stmt, 3),
                (long long)sqlite3_column_int64(stmt, 2), sqlite3_column_text(stmt, 5),
                100 * sqlite3_column_double(stmt, 4));
        }
        if (wrong && !objection)
            objection = wrong;
        else
            free(wrong);
    }
    *ret_rc = rc;
    if (covered) {
        free(objection);
        return NULL;
    }
    return objection ? objection : xasprintf("no certificate for turns of %s", interleave);
}

int calibration_check(struct store *store, const struct run_facts *run,
                      struct calibration *ret_calibration, struct error *err)
{
    struct strbuf which = {0};
    char *objection = NULL;
    int rc = 0;
    if (run->aa) {
        *ret_calibration =
            (struct calibration){true, xstrdup("an A/A run needs no certificate: it makes one")};
        return 0;
    }
    for (int i = 0; i < run->workload_count && rc == 0 && !objection; i++) {
        const struct workload_facts *facts = &run->workloads[i].facts;
        char *text = NULL;
        if (!facts->main_count) // nothing was judged on it
            continue;
        objection = calibration_of(store, run, facts, &text, &rc, err);
        if (text && !(which.text && strstr(which.text, text)))
            strbuf_add(&which, "%s%s", which.len ? "; " : "", text);
        free(text);
    }
    if (rc) {
        free(objection);
        strbuf_free(&which);
        return rc;
    }
    ret_calibration->covered = !objection && which.len;
    ret_calibration->note =
        objection   ? xasprintf("uncalibrated host: %s", objection)
        : which.len ? xstrdup(which.text)
                    : xstrdup("uncalibrated host: no pair to look a certificate up for");
    free(objection);
    strbuf_free(&which);
    return 0;
}
