// SPDX-License-Identifier: Apache-2.0
// The cells of one workload in the HTML report's data document, each with the pairs it was judged
// from: the ratio of every valid pair and both launches' values. Reads struct report and the tables
// pair, pair_ratio, launch, launch_metric.
#include <math.h>
#include <string.h>

#include "reports/render/html/html_parts.h"

// Pairs that were judged: what ran to confirm a fail comes after them, in the order of running.
static const char cells_points_sql[] =
    "SELECT p.idx, r.log_ratio, "
    "(SELECT m.value FROM launch l JOIN launch_metric m ON m.launch_id = l.id AND m.metric = "
    "r.metric WHERE l.pair_id = "
    "p.id AND l.side = 0), "
    "(SELECT m.value FROM launch l JOIN launch_metric m ON m.launch_id = l.id AND m.metric = "
    "r.metric WHERE l.pair_id = "
    "p.id AND l.side = 1) "
    "FROM pair_ratio r JOIN pair p ON p.id = r.pair_id JOIN workload w ON w.id = p.workload_id "
    "WHERE w.name = ? AND r.metric = ? AND p.state = 'valid' AND p.phase IN ('main', 'confirm') "
    "ORDER BY p.phase = 'confirm', p.idx LIMIT ?";

static json_t *cells_column(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL
               ? json_null()
               : html_real(sqlite3_column_double(stmt, column));
}

static int cells_points(struct store *store, const struct report_cell *cell, size_t points_max,
                        json_t *points, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err, cells_points_sql, "ssi", cell->workload,
                                     cell->metric, (int64_t)points_max);
    if (!stmt)
        return err->code;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        json_t *point = json_array();
        json_array_append_new(point, json_integer(sqlite3_column_int64(stmt, 0)));
        json_array_append_new(point, html_real(exp(sqlite3_column_double(stmt, 1))));
        json_array_append_new(point, cells_column(stmt, 2));
        json_array_append_new(point, cells_column(stmt, 3));
        json_array_append_new(points, point);
    }
    return rc;
}

static void cells_numbers(json_t *item, const struct report_cell *cell)
{
    bool interval = isfinite(cell->ci_lower) && isfinite(cell->ci_upper);
    json_object_set_new(item, "median_a", html_real(cell->median_a));
    json_object_set_new(item, "median_b", html_real(cell->median_b));
    json_object_set_new(item, "ratio", html_real(cell->ratio));
    json_object_set_new(item, "ci_lower", html_real(cell->ci_lower));
    json_object_set_new(item, "ci_upper", html_real(cell->ci_upper));
    json_object_set_new(item, "level", interval ? html_real(1 - 2 * cell->alpha) : json_null());
    json_object_set_new(item, "margin", html_real(cell->margin));
    json_object_set_new(item, "mde", html_real(cell->mde));
    json_object_set_new(item, "alpha", html_real(cell->alpha));
    json_object_set_new(item, "pairs", html_count(cell->pairs));
    json_object_set_new(item, "look", html_count(cell->look));
    json_object_set_new(item, "pairs_needed", html_count(cell->pairs_needed));
    json_object_set_new(item, "confirmed",
                        cell->confirmed < 0 ? json_null() : json_boolean(cell->confirmed));
    json_object_set_new(item, "confirm_pairs", html_count(cell->confirm_pairs));
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
        json_object_set_new(item, "metric", html_text(cell->metric, HTML_NAME_BYTES_MAX));
        json_object_set_new(item, "unit", html_text(cell->unit, HTML_NAME_BYTES_MAX));
        json_object_set_new(item, "direction",
                            json_string(cell->higher_is_better ? "higher" : "lower"));
        json_object_set_new(item, "gating", json_boolean(cell->gating));
        json_object_set_new(item, "verdict", json_string(report_verdict_word(cell->verdict)));
        json_object_set_new(item, "reason", html_text(cell->reason, HTML_TEXT_BYTES_MAX));
        json_object_set_new(item, "improved", json_boolean(cell->improved));
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
