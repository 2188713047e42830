// SPDX-License-Identifier: Apache-2.0
// Holds cells against certificates. Reads table control.
#include "harness/gate/certificate/calibration.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/gate/phrase.h"
#include "reports/analyse/control.h"

// Of one workload's cells, so many lose the cover of pairs that are as noisy by chance.
static const double calibration_spread_alpha = 0.01;
static const double calibration_day_ns = 86400e9;

// How far a certificate gets with a cell; the one that gets farthest says why none covers it.
enum calibration_stage {
    CALIBRATION_OTHER_METRIC,
    CALIBRATION_OTHER_TURNS,
    CALIBRATION_OTHER_KIND,
    CALIBRATION_NO_CERTIFICATE, // a control that was made and did not certify
    CALIBRATION_SMALLER_MARGIN,
    CALIBRATION_POLICY,
    CALIBRATION_SPREAD,
    CALIBRATION_COVERS
};

void calibration_kind(const struct workload_facts *facts, char kind[CERTIFICATE_TEXT])
{
    snprintf(kind, CERTIFICATE_TEXT, "%s %s", plan_mode_name(facts->mode),
            facts->plan && facts->plan->model ? "model" : "command");
}

bool calibration_concerns(const struct cell *cell)
{
    return cell->gating && cell->pairs > 0 &&
            (cell->verdict == CELL_PASS || cell->verdict == CELL_FAIL);
}

static int calibration_gated(const struct run_workload *workload)
{
    int count = 0;
    for (int i = 0; i < workload->cell_count; i++)
        count += workload->cells[i].gating;
    return count;
}

static enum calibration_stage calibration_stage(const struct run_facts *run,
        const struct run_workload *workload, const struct cell *cell, const struct certificate *one)
{
    char kind[CERTIFICATE_TEXT];
    // so may a workload be named: that one's own is of its kind anyway
    bool host = strcmp(one->scope, "host") == 0;
    bool own = !host && strcmp(one->scope, workload->facts.name) == 0;
    calibration_kind(&workload->facts, kind);
    if (one->metric != cell->metric || (!own && !host))
        return CALIBRATION_OTHER_METRIC;
    if (one->interleave != workload->facts.interleave)
        return CALIBRATION_OTHER_TURNS;
    if (!own && strcmp(one->kind, kind) != 0)
        return CALIBRATION_OTHER_KIND;
    if (one->objection)
        return CALIBRATION_NO_CERTIFICATE;
    if (one->margin > cell->margin)
        return CALIBRATION_SMALLER_MARGIN;
    if (one->upper_bound > run->gate.calibration_bound ||
            run->started_wall_ns - one->made_wall_ns > run->gate.calibration_age_ns)
        return CALIBRATION_POLICY;
    if (!control_spread_covered(cell->pair_sd, cell->pairs, one->pair_sd, (int)one->aa_pairs,
                cell->margin, calibration_spread_alpha / calibration_gated(workload)))
        return CALIBRATION_SPREAD;
    return CALIBRATION_COVERS;
}

static char *calibration_why(const struct run_facts *run, const struct run_workload *workload,
        const struct cell *cell, const struct certificate *one, enum calibration_stage stage)
{
    char here[CERTIFICATE_TEXT], cell_margin[32], margin[32], cell_spread[32], spread[32];
    calibration_kind(&workload->facts, here);
    phrase_floor(cell_margin, sizeof cell_margin, cell->margin);
    phrase_floor(margin, sizeof margin, one ? one->margin : 0);
    switch (stage) {
    case CALIBRATION_OTHER_TURNS:
        return xasprintf("certificates are of turns of %s only, and it takes turns of %s",
                plan_interleave_name(one->interleave),
                plan_interleave_name(workload->facts.interleave));
    case CALIBRATION_OTHER_KIND:
        return xasprintf("certificates are of workloads of the kind '%s' only, and it is '%s'",
                one->kind, here);
    case CALIBRATION_NO_CERTIFICATE:
        return xstrdup(one->objection);
    case CALIBRATION_SMALLER_MARGIN:
        return xasprintf(
                "its margin is %s, the certificate is for %s and more", cell_margin, margin);
    case CALIBRATION_POLICY:
        if (one->upper_bound > run->gate.calibration_bound)
            return xasprintf("%lld A/A gates bound false fails at %.2g %% only, the policy asks "
                             "for %.2g %%",
                    (long long)one->gates, 100 * one->upper_bound,
                    100 * run->gate.calibration_bound);
        return xasprintf("its certificate is %.0f days old, the policy allows %.0f",
                (double)(run->started_wall_ns - one->made_wall_ns) / calibration_day_ns,
                (double)run->gate.calibration_age_ns / calibration_day_ns);
    case CALIBRATION_SPREAD:
        return xasprintf("its pairs spread %s, those of the control %s",
                phrase_fraction(cell_spread, sizeof cell_spread, cell->pair_sd),
                phrase_fraction(spread, sizeof spread, one->pair_sd));
    default:
        return xasprintf("no control of turns of %s with workloads of the kind '%s' is known here",
                plan_interleave_name(workload->facts.interleave), here);
    }
}

const struct certificate *calibration_find(const struct run_facts *run,
        const struct run_workload *workload, const struct cell *cell,
        const struct certificate *certificates, int count, const struct certificate **ret_nearest,
        char **ret_why)
{
    const struct certificate *best = NULL;
    enum calibration_stage reached = CALIBRATION_OTHER_METRIC;
    for (int i = 0; i < count; i++) {
        const struct certificate *one = &certificates[i];
        enum calibration_stage stage = calibration_stage(run, workload, cell, one);
        bool own = strcmp(one->scope, "host") != 0;
        bool better = best && stage == reached && stage > CALIBRATION_OTHER_METRIC &&
                (own > (strcmp(best->scope, "host") != 0) ||
                        (own == (strcmp(best->scope, "host") != 0) &&
                                one->made_wall_ns > best->made_wall_ns));
        if (stage > reached || better) {
            best = one;
            reached = stage;
        }
    }
    if (ret_nearest)
        *ret_nearest = best;
    if (reached == CALIBRATION_COVERS)
        return best;
    if (ret_why)
        *ret_why = calibration_why(run, workload, cell, best, reached);
    return NULL;
}

int calibration_load(struct store *store, struct certificate **ret_certificates, int *ret_count,
        struct error *err)
{
    sqlite3_stmt *stmt =
            store_query(store, err, "SELECT " CERTIFICATE_COLUMNS " FROM control ORDER BY id", "");
    struct certificate *all = NULL, one;
    int count = 0, rc;
    if (!stmt)
        return -EIO;
    while ((rc = store_step(store, stmt, err)) == 1) {
        if (!certificate_read(stmt, &one))
            continue;
        vector_push(all, count, one);
    }
    if (rc) {
        certificates_free(all, count);
        return rc;
    }
    *ret_certificates = all;
    *ret_count = count;
    return 0;
}

// --- in words ------------------------------------------------------------------------------------

static void calibration_add_name(struct strbuf *list, enum metric_id metric)
{
    strbuf_add(list, "%s%s", list->len ? ", " : "", metric_infos[metric].name);
}

static char *calibration_origin(const struct run_facts *run, const struct certificate *one)
{
    double days = (double)(run->started_wall_ns - one->made_wall_ns) / calibration_day_ns;
    if (strcmp(one->scope, "host") != 0)
        return xstrdup("this run");
    return days < 1 ? xstrdup("a control of the last 24 hours")
                    : xasprintf("a control %.0f day%s ago", days, days < 2 ? "" : "s");
}

// One workload whose cells are covered: what was held longer and found, and what rests on equal
// sides.
static void calibration_tell(const struct run_facts *run, const struct run_workload *workload,
        const struct certificate *const *found, struct strbuf *text)
{
    struct strbuf others = {0}, unfelt = {0};
    const struct certificate *first = NULL, *any = NULL;
    for (int i = 0; i < workload->cell_count; i++) {
        if (!found[i])
            continue;
        any = found[i];
        if (isnan(found[i]->held))
            calibration_add_name(&unfelt, found[i]->metric);
        else if (first)
            calibration_add_name(&others, found[i]->metric);
        else
            first = found[i];
    }
    char *origin = calibration_origin(run, first ? first : any);
    strbuf_add(text, "%s%s: ", text->len ? "; " : "", workload->facts.name);
    if (first)
        strbuf_add(text,
                "a side held %.2g %% longer was found, %+.2f to %+.2f %% in %s, at %lld pairs "
                "of %s%s%s; equal sides %+.2f to %+.2f %%",
                100 * first->held, 100 * expm1(first->held_lower), 100 * expm1(first->held_upper),
                metric_infos[first->metric].name, (long long)first->held_pairs, origin,
                others.len ? ", and in " : "", others.len ? others.text : "",
                100 * expm1(first->aa_lower), 100 * expm1(first->aa_upper));
    if (unfelt.len)
        strbuf_add(text, "%s%s by equal sides alone%s%s", first ? "; " : "", unfelt.text,
                first ? "" : " of ", first ? "" : origin);
    strbuf_add(text, "; %lld false fail%s in %lld A/A gate%s here", (long long)any->false_fails,
            any->false_fails == 1 ? "" : "s", (long long)any->gates, any->gates == 1 ? "" : "s");
    strbuf_free(&others);
    strbuf_free(&unfelt);
    free(origin);
}

// What stores of version 4 and before had. It proved nothing, whatever it says.
static bool calibration_resplit(struct store *store)
{
    int64_t tables = 0, rows = 0;
    store_get_int(store, &tables, NULL,
            "SELECT count(*) FROM main.sqlite_master WHERE type = 'table' AND name = "
            "'calibration'",
            "");
    if (tables)
        store_get_int(store, &rows, NULL, "SELECT count(*) FROM main.calibration", "");
    return rows > 0;
}

// Of one workload: cells that are covered go into *covered, the first that is not into *open.
static int calibration_workload(const struct run_facts *run, const struct run_workload *workload,
        const struct certificate *certificates, int count, struct strbuf *covered,
        struct strbuf *open)
{
    const struct certificate *found[METRIC_COUNT] = {NULL};
    int uncovered = 0, cells = 0;
    for (int i = 0; i < workload->cell_count && i < METRIC_COUNT; i++) {
        const struct cell *cell = &workload->cells[i];
        char *why = NULL;
        if (!calibration_concerns(cell))
            continue;
        found[i] = calibration_find(run, workload, cell, certificates, count, NULL, &why);
        cells += found[i] != NULL;
        if (!found[i] && !open->len)
            strbuf_add(open, "%s %s: %s", cell->workload, metric_infos[cell->metric].name, why);
        uncovered += !found[i];
        free(why);
    }
    if (cells)
        calibration_tell(run, workload, found, covered);
    return uncovered;
}

int calibration_check(struct store *store, const struct run_facts *run,
        struct calibration *ret_calibration, struct error *err)
{
    struct strbuf covered = {0}, open = {0};
    struct certificate *certificates = NULL;
    int count = 0, uncovered = 0;
    if (run->aa) {
        *ret_calibration = (struct calibration){
                true, xstrdup("an A/A run needs no certificate: it makes one")};
        return 0;
    }
    int rc = calibration_load(store, &certificates, &count, err);
    if (rc)
        return rc;
    for (int i = 0; i < run->workload_count; i++)
        uncovered +=
                calibration_workload(run, &run->workloads[i], certificates, count, &covered, &open);
    ret_calibration->covered = !uncovered && covered.len;
    if (uncovered && calibration_resplit(store))
        ret_calibration->note = xstrdup("its certificate is of a kind that could not fail (pairs "
                                        "with their signs flipped): not covered");
    else if (uncovered > 1)
        ret_calibration->note = xasprintf("not covered by a control: %s; nor %s %d more cell%s",
                open.text, uncovered == 2 ? "is" : "are", uncovered - 1, uncovered == 2 ? "" : "s");
    else if (uncovered)
        ret_calibration->note = xasprintf("not covered by a control: %s", open.text);
    else
        ret_calibration->note = xstrdup(covered.len
                        ? covered.text
                        : "not covered by a control: no cell passes or fails, so none was asked for");
    strbuf_free(&covered);
    strbuf_free(&open);
    certificates_free(certificates, count);
    return 0;
}
