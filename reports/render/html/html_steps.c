// SPDX-License-Identifier: Apache-2.0
// All steps of the pairs that a workload was judged by, both sides, in the HTML report's data
// document. Reads the tables pair, launch, step and block; writes JSON (html/page/DATA.md, strip).
#include <math.h>
#include <stdlib.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/quantile.h"
#include "reports/render/html/html_parts.h"
#include "reports/render/html/html_strip.h"

enum {
    STEPS_NUMBER_BYTES = 6,   // of a time with its comma
    STEPS_LAUNCH_BYTES = 250, // what a launch takes without them
    STEPS_NUMBERS_MIN = 16    // of a launch; with less room than that launches are left out
};

// Numbers of one side that are medians over its launches, and the times of all marked steps.
struct steps_side {
    double *medians, *firsts, *others, *marked;
    size_t median_count, first_count, marked_count;
    int64_t launches, steps, steady_steps;
    double slowest;
};

struct steps_launch {
    int64_t id, pair_id, pair;
    int side;
};

static int steps_launches(struct store *store, const char *workload, struct steps_launch **ret,
        size_t *ret_count, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT l.id, p.id, p.idx, l.side FROM launch l JOIN pair p ON p.id = l.pair_id JOIN "
            "workload w ON w.id = p.workload_id WHERE w.name = ? AND p.phase = 'main' AND p.state = "
            "'valid' AND EXISTS (SELECT 1 FROM step s WHERE s.launch_id = l.id) ORDER BY p.idx, l.side",
            "s", workload);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1)
        vector_push(*ret, *ret_count,
                (struct steps_launch){.id = sqlite3_column_int64(stmt, 0),
                        .pair_id = sqlite3_column_int64(stmt, 1),
                        .pair = sqlite3_column_int64(stmt, 2),
                        .side = sqlite3_column_int(stmt, 3) != 0});
    return rc;
}

// A step of several ranks takes as long as its slowest.
static int steps_read(
        struct store *store, int64_t launch, struct html_strip *strip, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT idx, max(dur_ns) AS dur_ns FROM step WHERE launch_id = ? GROUP BY idx ORDER BY idx",
            "i", launch);
    if (!stmt)
        return err->code;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        strip->ns = vector_room(strip->ns, strip->count, sizeof *strip->ns);
        strip->idx = vector_room(strip->idx, strip->count, sizeof *strip->idx);
        strip->idx[strip->count] = sqlite3_column_int64(stmt, 0);
        strip->ns[strip->count++] =
                fmax(sqlite3_column_double(stmt, 1), 1); // its logarithm is drawn
    }
    return rc;
}

static int steps_blocks(struct store *store, const struct steps_launch *launch,
        struct html_strip *strip, struct error *err)
{
    strip->first = xcalloc((size_t)strip->count + 1, sizeof *strip->first);
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT first_step, steps FROM block WHERE pair_id = ? AND "
            "side = ? AND first_step IS NOT NULL ORDER BY couple",
            "ii", launch->pair_id, (int64_t)launch->side);
    if (!stmt)
        return err->code;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        int64_t first = sqlite3_column_int64(stmt, 0);
        size_t found = search_first(i, (size_t)strip->count, strip->idx[i] >= first);
        if (found == (size_t)strip->count || strip->idx[found] != first)
            continue;
        strip->first[found] = true;
        strip->blocks |= sqlite3_column_int64(stmt, 1) > 1;
    }
    return rc;
}

static void steps_count(struct steps_side *side, const struct html_strip *strip)
{
    side->launches++;
    side->steps += strip->count;
    side->steady_steps += strip->count - strip->start;
    for (int i = 0; i < strip->count; i++)
        side->slowest = fmax(side->slowest, strip->ns[i]);
    if (isfinite(strip->median))
        vector_push(side->medians, side->median_count, strip->median);
    if (isfinite(strip->first_ns) && isfinite(strip->other_ns)) {
        side->others = vector_room(side->others, side->first_count, sizeof *side->others);
        side->others[side->first_count] = strip->other_ns;
        vector_push(side->firsts, side->first_count, strip->first_ns);
    }
    for (int i = strip->start; i < strip->count && strip->marked; i++)
        if (html_strip_marks(strip, i))
            vector_push(side->marked, side->marked_count, strip->ns[i]);
}

static int steps_launch(struct store *store, const struct steps_launch *launch, size_t numbers_max,
        struct steps_side *side, json_t *list, struct error *err)
{
    struct html_strip strip = {0};
    int rc = steps_read(store, launch->id, &strip, err);
    if (rc == 0)
        rc = steps_blocks(store, launch, &strip, err);
    if (rc == 0) {
        html_strip_look(&strip);
        steps_count(side, &strip);
    }
    if (rc == 0 && numbers_max) {
        json_t *item = render_json_set(json_object(), "pair", json_integer(launch->pair), "side",
                json_string(launch->side ? "b" : "a"), NULL);
        html_strip_write(&strip, numbers_max, item);
        json_array_append_new(list, item);
    }
    html_strip_clear(&strip);
    return rc;
}

// What the marked steps lose is mostly lost in those that take about *ret_ns, so many: few steps of
// 250 ms weigh more than many that a neighbour made a little longer.
static int64_t steps_slow(struct steps_side *side, double *ret_ns)
{
    double median = quantile_median(side->medians, side->median_count), lost = 0, above = 0;
    size_t at = side->marked_count;
    quantile_sort(side->marked, side->marked_count);
    for (size_t i = 0; i < side->marked_count; i++)
        lost += side->marked[i] - median;
    while (at > 0 && above < lost / 2)
        above += side->marked[--at] - median;
    *ret_ns = side->marked_count ? side->marked[at] : NAN;
    while (at > 0 && side->marked[at - 1] >= *ret_ns / HTML_STRIP_MARK)
        at--;
    return (int64_t)(side->marked_count - at);
}

static json_t *steps_side_json(struct steps_side *side)
{
    double slow_ns;
    int64_t slow = steps_slow(side, &slow_ns);
    return render_json_set(json_object(), "launches", json_integer(side->launches), "steps",
            json_integer(side->steps), "steady_steps", json_integer(side->steady_steps),
            "median_ns", render_json_whole(quantile_median(side->medians, side->median_count)),
            "slowest_ns", render_json_whole(side->slowest), "marked",
            json_integer((json_int_t)side->marked_count), "slow", json_integer(slow), "slow_ns",
            render_json_whole(slow_ns), "first_ns",
            render_json_whole(quantile_median(side->firsts, side->first_count)), "other_ns",
            render_json_whole(quantile_median(side->others, side->first_count)), NULL);
}

int html_steps(struct store *store, const char *workload, size_t bytes_max, json_t **ret_steps,
        struct error *err)
{
    struct steps_launch *launches = NULL;
    struct steps_side sides[2] = {0};
    size_t count = 0;
    json_t *list = json_array();
    int rc = steps_launches(store, workload, &launches, &count, err);
    size_t least = STEPS_LAUNCH_BYTES + STEPS_NUMBERS_MIN * STEPS_NUMBER_BYTES;
    size_t shown = bytes_max / least < count ? bytes_max / least : count;
    size_t each = shown ? bytes_max / shown : 0;
    size_t numbers =
            each > least ? (each - STEPS_LAUNCH_BYTES) / STEPS_NUMBER_BYTES : STEPS_NUMBERS_MIN;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = steps_launch(
                store, &launches[i], i < shown ? numbers : 0, &sides[launches[i].side], list, err);
    *ret_steps = json_null();
    if (rc == 0 && sides[0].launches && sides[1].launches) {
        *ret_steps = json_object();
        render_json_set(*ret_steps, "mark", json_integer(HTML_STRIP_MARK), "sides",
                render_json_pair(steps_side_json(&sides[0]), steps_side_json(&sides[1])), NULL);
        json_object_set(*ret_steps, "launches", list);
        json_object_set_new(*ret_steps, "left_out", json_integer((json_int_t)(count - shown)));
    }
    json_decref(list);
    for (int side = 0; side < 2; side++) {
        free(sides[side].medians), free(sides[side].firsts);
        free(sides[side].others), free(sides[side].marked);
    }
    free(launches);
    return rc;
}
