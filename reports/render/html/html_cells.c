// SPDX-License-Identifier: Apache-2.0
// The cells of one workload in the HTML report's data document, each with the pairs it was judged
// from: the ratio of every valid pair and both launches' values. Reads struct report and the tables
// pair, pair_ratio, launch, launch_metric.
#include <math.h>
#include <string.h>

#include "reports/render/html/html_parts.h"

// Pairs that were judged: what ran to confirm a fail comes after them, in the order of running.
static const char cells_points_sql[] =
        "SELECT p.idx, r.log_ratio, (SELECT m.value FROM launch l JOIN launch_metric m ON m.launch_id = l.id AND m.metric = r.metric WHERE "
        "l.pair_id = p.id AND l.side = 0), (SELECT m.value FROM launch l JOIN launch_metric m ON m.launch_id = l.id AND m.metric = r.metric "
        "WHERE l.pair_id = p.id AND l.side = 1) FROM pair_ratio r JOIN pair p ON p.id = r.pair_id JOIN workload w ON w.id = p.workload_id "
        "WHERE w.name = ? AND r.metric = ? AND p.state = 'valid' AND p.phase IN ('main', 'confirm') ORDER BY p.phase = 'confirm', p.idx LIMIT ?";

static json_t *cells_column(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL
            ? json_null()
            : render_json_real(sqlite3_column_double(stmt, column));
}

static int cells_points(struct store *store, const struct report_cell *cell, size_t points_max,
        json_t *points, struct error *err)
{
    sqlite3_stmt *stmt = store_query(
            store, err, cells_points_sql, "ssi", cell->workload, cell->metric, (int64_t)points_max);
    if (!stmt)
        return err->code;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        json_int_t pair = sqlite3_column_int64(stmt, 0);
        json_array_append_new(points,
                json_pack("[I, o, o, o]", pair,
                        render_json_real(exp(sqlite3_column_double(stmt, 1))),
                        cells_column(stmt, 2), cells_column(stmt, 3)));
    }
    return rc;
}

static void cells_numbers(json_t *item, const struct report_cell *cell)
{
    bool interval = isfinite(cell->ci_lower) && isfinite(cell->ci_upper);
    render_json_set(item, "median_a", render_json_real(cell->median_a), "median_b",
            render_json_real(cell->median_b), "ratio", render_json_real(cell->ratio), "ci_lower",
            render_json_real(cell->ci_lower), "ci_upper", render_json_real(cell->ci_upper), "level",
            interval ? render_json_real(1 - 2 * cell->alpha) : json_null(), "margin",
            render_json_real(cell->margin), "mde", render_json_real(cell->mde), "alpha",
            render_json_real(cell->alpha), "pairs", render_json_count(cell->pairs), "look",
            render_json_count(cell->look), "pairs_needed", render_json_count(cell->pairs_needed),
            "confirmed", cell->confirmed < 0 ? json_null() : json_boolean(cell->confirmed),
            "confirm_pairs", render_json_count(cell->confirm_pairs), NULL);
}

json_t *html_cells(struct store *store, const struct report *report, const char *workload,
        size_t points_max, struct error *err)
{
    json_t *cells = json_array();
    for (int i = 0; i < report->cell_count; i++) {
        const struct report_cell *cell = &report->cells[i];
        if (strcmp(cell->workload, workload) != 0)
            continue;
        json_t *item = json_object(), *points = json_array();
        render_json_set(item, "metric", html_text(cell->metric, HTML_NAME_BYTES_MAX), "unit",
                html_text(cell->unit, HTML_NAME_BYTES_MAX), "direction",
                json_string(cell->higher_is_better ? "higher" : "lower"), "gating",
                json_boolean(cell->gating), "verdict",
                json_string(report_verdict_word(cell->verdict)), "reason",
                html_text(cell->reason, HTML_TEXT_BYTES_MAX), "improved",
                json_boolean(cell->improved), NULL);
        cells_numbers(item, cell);
        json_object_set_new(item, "points", points);
        json_array_append_new(cells, item);
        if (cells_points(store, cell, points_max, points, err) < 0) {
            json_decref(cells);
            return NULL;
        }
    }
    return cells;
}
