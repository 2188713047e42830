// SPDX-License-Identifier: Apache-2.0
// The table of reduced ranks on stdout: as text, and as upgate.reduced/1 (docs/SCHEMA.md).
#include "harness/verbs/merge/reduced_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "common/strings.h"
#include "common/units.h"
#include "harness/verbs/shard_options.h"
#include "reports/render/render.h"
#include "reports/render/text/json_text.h"
#include "reports/render/text/screen.h"

// --- as text -------------------------------------------------------------------------------------

enum { REDUCED_HOST_COLUMNS = 16 };

static double reduced_a_step(const struct reduced_row *row, double ns)
{
    return row->steps ? ns / (double)row->steps : NAN;
}

static double reduced_kernels_ns(const struct reduced_row *row)
{
    double ns = 0;
    for (size_t i = GIST_KERNEL_MATRIX; i <= GIST_COPY; i++)
        ns += i == GIST_KERNEL_COLLECTIVE ? 0 : row->ns[i];
    return ns;
}

static void reduced_print_row(
        const struct reduced_table *table, const struct reduced_row *row, bool utf8)
{
    enum { TIMES = 7 };
    const double times[TIMES] = {row->step_p50_ns, row->step_p99_ns,
            reduced_a_step(row, row->ns[GIST_WAIT_RANKS]),
            reduced_a_step(row, row->ns[GIST_WAIT_OTHER]),
            reduced_a_step(row, reduced_kernels_ns(row)),
            reduced_a_step(row, row->ns[GIST_KERNEL_COLLECTIVE]),
            reduced_a_step(row, row->late_ns)};
    char text[32];
    struct strbuf line = {0};
    char *clean = screen_clean(row->host, utf8),
         *host = screen_fit(clean, REDUCED_HOST_COLUMNS, utf8);
    strbuf_add(&line, "%6d  ", (int)row->rank);
    screen_pad(&line, host, REDUCED_HOST_COLUMNS, false);
    strbuf_add(&line, "  %8llu", (unsigned long long)row->steps);
    for (size_t i = 0; i < TIMES; i++)
        strbuf_add(&line, "  %8s", unit_format_ns(text, sizeof text, times[i]));
    if (table->by_collectives)
        strbuf_add(&line, "  %8llu", (unsigned long long)row->last);
    printf("%s%s%s\n", line.text, row->late ? "  late" : "", row->ended ? "" : "  not ended");
    strbuf_free(&line);
    free(host);
    free(clean);
}

static const char *reduced_why_text(enum reduced_why why)
{
    static const char *const texts[REDUCED_WHY_COUNT] = {[REDUCED_TOLD] = "",
            [REDUCED_WHY_ALONE] = "there are not two ranks",
            [REDUCED_WHY_NO_STEPS] = "no steps were recorded",
            [REDUCED_WHY_MESSAGES] =
                    "ranks send to each other, and hand on each other's lateness; `upgate merge` of their shards tells whose it is",
            [REDUCED_WHY_GROUPS] =
                    "collectives are of groups of ranks, which hand on each other's lateness; `upgate merge` of their shards tells whose it is",
            [REDUCED_WHY_MIXED] =
                    "of some ranks it is known when kernels of collectives began, of others when they were called for",
            [REDUCED_WHY_FEW] =
                    "there are too few collectives, or windows of steps that all ranks have, or waits, to tell it from chance",
            [REDUCED_WHY_CLOCKS] =
                    "each node has one rank, and clocks of nodes are not known well enough to tell who came last to collectives"};
    return texts[why];
}

// ", GPU-1a2b3c4d H100 80GB HBM3" behind who is late; "": no GPU of it is known. The caller frees.
static char *reduced_gpu_text(const struct reduced_row *row)
{
    enum { UUID_SHORT = 12 };
    return *row->gpu
            ? xasprintf(", %.*s%s%s", UUID_SHORT, row->gpu, *row->model ? " " : "", row->model)
            : xstrdup("");
}

static void reduced_print_late(const struct reduced_told *told)
{
    const struct reduced_table *table = told->table;
    size_t named = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct reduced_row *row = &table->rows[i];
        char text[32];
        if (!row->late)
            continue;
        char *gpu = reduced_gpu_text(row);
        shard_say(
                "late: rank %d on %s%s: the others wait %s for it in each step, %.1f %% of the time more than for each other",
                (int)row->rank, row->host, gpu,
                unit_format_ns(text, sizeof text, reduced_a_step(row, row->late_ns)),
                100 * row->more_share);
        free(gpu);
        named++;
    }
    if (table->why != REDUCED_TOLD)
        printf("late: not known: %s\n", reduced_why_text(table->why));
    else if (!named)
        puts(told->all->member_count < (size_t)told->all->ranks
                        ? "late: none of the ranks that are there"
                        : "late: no rank");
}

void reduced_print(const struct reduced_told *told)
{
    const struct reduced *all = told->all;
    const struct reduced_table *table = told->table;
    bool utf8 = screen_locale_utf8();
    uint64_t steps = 0, dropped = 0;
    size_t cut = 0;
    double worst = 0;
    for (size_t i = 0; i < table->count; i++) {
        steps = spread_sum(steps, table->rows[i].steps);
        dropped = spread_sum(dropped, table->rows[i].dropped);
        cut += !table->rows[i].ended;
        worst = table->rows[i].steps ? fmax(worst, table->rows[i].step_error) : worst;
    }
    shard_say("%zu of %d rank%s of run '%s', restart %lld: %zu node%s, %zu windows of %llu steps",
            all->member_count, (int)all->ranks, all->ranks == 1 ? "" : "s", all->run,
            (long long)all->restart, all->node_count, all->node_count == 1 ? "" : "s",
            all->gist_count, (unsigned long long)all->window_steps);
    if (steps)
        printf("bytes: %zu, %.1f a rank and step; a window's %zu in the median, at most %zu\n",
                told->file_bytes, (double)told->file_bytes / (double)steps, told->gist_median,
                told->gist_most);
    for (size_t i = 0; i < told->missing_count; i++)
        shard_say("missing: rank %d: %s", (int)told->missing[i].rank, told->missing[i].why);
    if (dropped)
        printf("note: recorders lost %llu records\n", (unsigned long long)dropped);
    if (cut)
        printf("note: recorders of %zu rank%s (\"not ended\") were killed, or record still: what came later is not there\n",
                cut, cut == 1 ? "" : "s");
    if (table->unclear)
        printf("note: of %llu of %llu collectives the clocks of nodes do not tell who came last: of %llu of these it is told within each node\n",
                (unsigned long long)table->unclear, (unsigned long long)table->collectives,
                (unsigned long long)(table->told + table->unclear - table->collectives));
    printf("\n%6s  %-*s  %8s  %8s  %8s  %8s  %8s  %8s  %8s  %8s%s\n", "rank", REDUCED_HOST_COLUMNS,
            "node", "steps", "step p50", "p99", "wait", "off CPU", "GPU", "NCCL", "late",
            table->by_collectives ? "      last" : "");
    for (size_t i = 0; i < table->count; i++)
        reduced_print_row(table, &table->rows[i], utf8);
    printf("\nmeans of a step but for p50 and p99, which are known within %.1f %%; wait: in collectives on the host; late: how long the others waited "
           "for it\n",
            100 * worst);
    reduced_print_late(told);
}

// --- as JSON -------------------------------------------------------------------------------------

static json_t *reduced_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

// Of a count, or nanoseconds; null: not known, or more than JSON's integers hold.
static json_t *reduced_whole(double value)
{
    return value >= 0 && value < 9e18 ? json_integer((json_int_t)value) : json_null();
}

static json_t *reduced_json_gpu(const struct reduced_row *row)
{
    if (!*row->gpu)
        return json_null();
    json_t *item = json_object();
    json_object_set_new(item, "uuid", json_string(row->gpu));
    json_object_set_new(item, "name", *row->model ? render_json_text(row->model) : json_null());
    return item;
}

static json_t *reduced_json_row(const struct reduced_table *table, const struct reduced_row *row)
{
    json_t *item = json_object(), *ns = json_object(), *phases = json_array();
    for (size_t i = 0; i < GIST_SPREAD_COUNT; i++)
        json_object_set_new(ns, gist_name((enum gist_spread)i), reduced_whole(row->ns[i]));
    for (size_t i = 0; i <= GIST_PHASES_MAX; i++) {
        const struct gist_phase *phase = &row->phases[i];
        if (!phase->count)
            continue;
        json_t *one = json_object();
        json_object_set_new(
                one, "name", *phase->name ? render_json_text(phase->name) : json_null());
        json_object_set_new(one, "count", reduced_whole((double)phase->count));
        json_object_set_new(one, "ns", reduced_whole((double)phase->ns));
        json_array_append_new(phases, one);
    }
    json_object_set_new(item, "rank", json_integer(row->rank));
    json_object_set_new(item, "node", render_json_text(row->host));
    json_object_set_new(item, "gpu", reduced_json_gpu(row));
    json_object_set_new(item, "steps", reduced_whole((double)row->steps));
    json_object_set_new(item, "dropped", reduced_whole((double)row->dropped));
    json_object_set_new(item, "ended", json_boolean(row->ended));
    json_object_set_new(item, "step_p50_ns", reduced_whole(row->step_p50_ns));
    json_object_set_new(item, "step_p99_ns", reduced_whole(row->step_p99_ns));
    json_object_set_new(
            item, "step_error", row->steps ? reduced_number(row->step_error) : json_null());
    json_object_set_new(item, "ns", ns);
    json_object_set_new(item, "phases", phases);
    json_object_set_new(
            item, "last", table->by_collectives ? reduced_whole((double)row->last) : json_null());
    json_object_set_new(item, "late_ns", reduced_whole(row->late_ns));
    json_object_set_new(item, "more_share", reduced_number(row->more_share));
    json_object_set_new(item, "late", json_boolean(row->late));
    return item;
}

int reduced_print_json(const struct reduced_told *told, struct error *err)
{
    const struct reduced *all = told->all;
    const struct reduced_table *table = told->table;
    json_t *document = json_object(), *rows = json_array();
    for (size_t i = 0; i < table->count; i++)
        json_array_append_new(rows, reduced_json_row(table, &table->rows[i]));
    json_object_set_new(document, "schema", json_string("upgate.reduced/1"));
    json_object_set_new(document, "run", render_json_text(all->run));
    json_object_set_new(document, "restart", json_integer((json_int_t)all->restart));
    json_object_set_new(document, "ranks", json_integer(all->ranks));
    json_object_set_new(document, "missing", shard_ranks_json(told->missing, told->missing_count));
    json_object_set_new(document, "nodes", json_integer((json_int_t)all->node_count));
    json_object_set_new(document, "window_steps", reduced_whole((double)all->window_steps));
    json_object_set_new(document, "windows", json_integer((json_int_t)all->gist_count));
    json_object_set_new(document, "bytes", json_integer((json_int_t)told->file_bytes));
    json_object_set_new(
            document, "window_bytes_median", json_integer((json_int_t)told->gist_median));
    json_object_set_new(document, "window_bytes_most", json_integer((json_int_t)told->gist_most));
    json_object_set_new(document, "collectives",
            table->by_collectives ? reduced_whole((double)table->collectives) : json_null());
    json_object_set_new(document, "unclear",
            table->by_collectives ? reduced_whole((double)table->unclear) : json_null());
    json_object_set_new(document, "told",
            table->by_collectives ? reduced_whole((double)table->told) : json_null());
    json_object_set_new(document, "why_not",
            table->why == REDUCED_TOLD ? json_null() : json_string(reduced_why_text(table->why)));
    json_object_set_new(document, "rows", rows);
    char *text = render_json_dump(document, 17, err);
    int rc = text ? render_print(text, "the ranks", err) : err->code;
    free(text);
    return rc;
}
