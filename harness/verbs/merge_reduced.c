// SPDX-License-Identifier: Apache-2.0
// What is reduced and read, written and printed. Who is late is decided in reports/analyse/reduce.
#include "harness/verbs/merge_reduced.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/directory.h"
#include "common/log.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/rank/reduce.h"
#include "harness/verbs/shard_options.h"
#include "reports/analyse/reduce/reduced_table.h"
#include "reports/render/render.h"
#include "reports/render/text/json_text.h"
#include "reports/render/text/screen.h"

struct merge_reduced {
    struct reduced all;
    struct merge_rank *missing; // of the job, that is in nothing that was given
    size_t missing_count;
    struct map missing_of;      // by rank
    size_t gist_median, gist_most, file_bytes;
};

// --- what there is --------------------------------------------------------------------------------

static bool reduced_has(const struct reduced *all, int32_t rank)
{
    size_t at = search_first(i, all->member_count, all->members[i].rank >= rank);
    return at < all->member_count && all->members[at].rank == rank;
}

static void reduced_miss(struct merge_reduced *work, int32_t rank, const char *why)
{
    uint32_t *known = map_put(&work->missing_of, (uint64_t)rank);
    if (*known != MAP_NONE)
        return;
    *known = (uint32_t)work->missing_count;
    vector_push(work->missing, work->missing_count, ((struct merge_rank){rank, xstrdup(why)}));
}

// One of the paths. Why ranks of its shards are missing is kept; that others have them is seen at the end.
static int reduced_take_path(const struct merge_reduced_opts *opts, const char *path, struct merge_reduced *work, struct reduced *ret,
                             struct error *err)
{
    struct stat info;
    if (stat(path, &info) < 0 || !S_ISDIR(info.st_mode))
        return reduced_read(path, ret, err);
    const struct merge_opts find = {.dir = path, .part = opts->part, .run = opts->run, .restart = opts->restart, .dry_run = opts->dry_run};
    struct merge_result shards = {0};
    int rc = reduce_shards(&find, opts->window_steps, &shards, ret, err);
    for (size_t i = 0; i < shards.missing_count && rc == 0; i++)
        reduced_miss(work, shards.missing[i].rank, shards.missing[i].why);
    for (size_t i = 0; i < shards.note_count && rc == 0; i++)
        log_info("%s", shards.notes[i]);
    if (rc == 0 && opts->dry_run)
        log_info("would reduce %zu shards of run '%s', restart %lld", shards.chosen_count, shards.run, (long long)shards.restart);
    merge_free(&shards);
    return rc;
}

static int reduced_by_rank(const void *left, const void *right)
{
    const struct merge_rank *a = left, *b = right;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static void reduced_find_missing(const struct merge_reduced_opts *opts, struct merge_reduced *work)
{
    size_t kept = 0;
    for (int32_t rank = 0; rank < work->all.ranks && !opts->part; rank++)
        if (!reduced_has(&work->all, rank))
            reduced_miss(work, rank, "it is in nothing that was given");
    for (size_t i = 0; i < work->missing_count; i++) {
        if (reduced_has(&work->all, work->missing[i].rank))
            free(work->missing[i].why);
        else
            work->missing[kept++] = work->missing[i];
    }
    work->missing_count = kept;
    if (kept)
        qsort(work->missing, kept, sizeof *work->missing, reduced_by_rank);
}

static int reduced_gather(const struct merge_reduced_opts *opts, struct merge_reduced *work, struct error *err)
{
    struct reduced *list = xcalloc(opts->count, sizeof *list);
    int rc = 0;
    for (size_t i = 0; i < opts->count && rc == 0; i++)
        rc = reduced_take_path(opts, opts->paths[i], work, &list[i], err);
    if (rc == 0)
        rc = reduce_add_all(list, opts->count, err);
    if (rc == 0) {
        work->all = list[0];
        list[0] = (struct reduced){0};
        reduced_find_missing(opts, work);
    }
    for (size_t i = 0; i < opts->count; i++)
        reduced_free(&list[i]);
    free(list);
    return rc;
}

static int reduced_by_size(const void *left, const void *right)
{
    size_t a = *(const size_t *)left, b = *(const size_t *)right;
    return (a > b) - (a < b);
}

static void reduced_measure(struct merge_reduced *work)
{
    size_t count = work->all.gist_count, *sizes = xcalloc(count + 1, sizeof *sizes);
    for (size_t i = 0; i < count; i++)
        sizes[i] = work->all.gists[i].size;
    if (count)
        qsort(sizes, count, sizeof *sizes, reduced_by_size);
    work->gist_median = sizes[count / 2];
    work->gist_most = count ? sizes[count - 1] : 0;
    free(sizes);
}

// -o: a file that is not there yet; of a part a directory, in which it has the name of its first rank.
static int reduced_write(const struct merge_reduced_opts *opts, const struct reduced *all, const struct strbuf *bytes, struct error *err)
{
    struct stat info;
    char *path = opts->part ? xasprintf("%s/%s/%lld-%d.reduced", opts->output, all->run, (long long)all->restart, (int)all->members[0].rank)
                            : xstrdup(opts->output);
    int rc = stat(path, &info) < 0 ? 0 : error_set(err, -EINVAL, "'%s' exists already; name another place with -o", path);
    if (rc == 0 && opts->part && (all->run[0] == '.' || strchr(all->run, '/'))) // of somebody's file: `upgate rank` makes no such name
        rc = error_set(err, -EINVAL, "run '%s' is no name of a directory", all->run);
    if (rc == 0 && opts->part)
        rc = directory_make_above(path, 0777, err);
    if (rc == 0)
        rc = render_write_bytes(path, bytes->text, bytes->len, err);
    free(path);
    return rc;
}

// --- as text --------------------------------------------------------------------------------------

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

static void reduced_print_row(const struct reduced_table *table, const struct reduced_row *row, bool utf8)
{
    enum { TIMES = 7 };
    const double times[TIMES] = {row->step_p50_ns, row->step_p99_ns, reduced_a_step(row, row->ns[GIST_WAIT_RANKS]),
                                 reduced_a_step(row, row->ns[GIST_WAIT_OTHER]), reduced_a_step(row, reduced_kernels_ns(row)),
                                 reduced_a_step(row, row->ns[GIST_KERNEL_COLLECTIVE]), reduced_a_step(row, row->late_ns)};
    char text[32];
    struct strbuf line = {0};
    char *clean = screen_clean(row->host, utf8), *host = screen_fit(clean, REDUCED_HOST_COLUMNS, utf8);
    strbuf_add(&line, "%6d  ", (int)row->rank);
    screen_pad(&line, host, REDUCED_HOST_COLUMNS, false);
    strbuf_add(&line, "  %8llu", (unsigned long long)row->steps);
    for (size_t i = 0; i < TIMES; i++)
        strbuf_add(&line, "  %8s", unit_format_ns(text, sizeof text, times[i]));
    if (table->by_collectives)
        strbuf_add(&line, "  %8llu", (unsigned long long)row->last);
    printf("%s%s\n", line.text, row->late ? "  late" : "");
    strbuf_free(&line);
    free(host);
    free(clean);
}

static const char *reduced_why_text(enum reduced_why why)
{
    static const char *const texts[REDUCED_WHY_COUNT] = {
        [REDUCED_TOLD] = "",
        [REDUCED_WHY_ALONE] = "there are not two ranks",
        [REDUCED_WHY_NO_STEPS] = "no steps were recorded",
        [REDUCED_WHY_MESSAGES] = "ranks send to each other, and hand on each other's lateness; `upgate merge` of their shards tells whose it is",
        [REDUCED_WHY_GROUPS] = "collectives are of groups of ranks, which hand on each other's lateness; `upgate merge` of their shards tells whose it is",
        [REDUCED_WHY_MIXED] = "of some ranks it is known when kernels of collectives began, of others when they were called for",
        [REDUCED_WHY_FEW] = "there are too few collectives, or windows of steps that all ranks have, to tell it from chance"};
    return texts[why];
}

static void reduced_print_late(const struct reduced_table *table, bool utf8)
{
    size_t named = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct reduced_row *row = &table->rows[i];
        char text[32];
        if (!row->late)
            continue;
        char *host = screen_clean(row->host, utf8);
        printf("late: rank %d on %s: the others wait %s for it in each step, %.1f %% of the time more than for each other\n", (int)row->rank, host,
               unit_format_ns(text, sizeof text, reduced_a_step(row, row->late_ns)), 100 * row->more_share);
        free(host);
        named++;
    }
    if (table->why != REDUCED_TOLD)
        printf("late: not known: %s\n", reduced_why_text(table->why));
    else if (!named)
        puts("late: no rank");
}

static void reduced_print(const struct merge_reduced *work, const struct reduced_table *table)
{
    const struct reduced *all = &work->all;
    bool utf8 = screen_locale_utf8();
    uint64_t steps = 0, dropped = 0;
    double worst = 0;
    for (size_t i = 0; i < table->count; i++) {
        steps = spread_sum(steps, table->rows[i].steps);
        dropped = spread_sum(dropped, table->rows[i].dropped);
        worst = table->rows[i].steps ? fmax(worst, table->rows[i].step_error) : worst;
    }
    char *run = screen_clean(all->run, utf8);
    printf("%zu of %d rank%s of run '%s', restart %lld: %zu node%s, %zu windows of %llu steps\n", all->member_count, (int)all->ranks,
           all->ranks == 1 ? "" : "s", run, (long long)all->restart, all->node_count, all->node_count == 1 ? "" : "s", all->gist_count,
           (unsigned long long)all->window_steps);
    free(run);
    if (steps)
        printf("bytes: %zu, %.1f a rank and step; a window's %zu in the median, at most %zu\n", work->file_bytes,
               (double)work->file_bytes / (double)steps, work->gist_median, work->gist_most);
    for (size_t i = 0; i < work->missing_count; i++) {
        char *why = screen_clean(work->missing[i].why, utf8);
        printf("missing: rank %d: %s\n", (int)work->missing[i].rank, why);
        free(why);
    }
    if (dropped)
        printf("note: recorders lost %llu records\n", (unsigned long long)dropped);
    if (table->unclear)
        printf("note: of %llu of %llu collectives the clocks of nodes do not tell who came last: it is told within each node\n",
               (unsigned long long)table->unclear, (unsigned long long)table->collectives);
    printf("\n%6s  %-*s  %8s  %8s  %8s  %8s  %8s  %8s  %8s  %8s%s\n", "rank", REDUCED_HOST_COLUMNS, "node", "steps", "step p50", "p99", "wait", "off CPU",
           "GPU", "NCCL", "late", table->by_collectives ? "      last" : "");
    for (size_t i = 0; i < table->count; i++)
        reduced_print_row(table, &table->rows[i], utf8);
    printf("\nmeans of a step but for p50 and p99, which are known within %.1f %%; wait: in collectives on the host; late: how long the others waited "
           "for it\n", 100 * worst);
    reduced_print_late(table, utf8);
}

// --- as JSON --------------------------------------------------------------------------------------

static json_t *reduced_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

// Of a count, or nanoseconds; null: not known, or more than JSON's integers hold.
static json_t *reduced_whole(double value)
{
    return value >= 0 && value < 9e18 ? json_integer((json_int_t)value) : json_null();
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
        json_object_set_new(one, "name", *phase->name ? render_json_text(phase->name) : json_null());
        json_object_set_new(one, "count", reduced_whole((double)phase->count));
        json_object_set_new(one, "ns", reduced_whole((double)phase->ns));
        json_array_append_new(phases, one);
    }
    json_object_set_new(item, "rank", json_integer(row->rank));
    json_object_set_new(item, "node", render_json_text(row->host));
    json_object_set_new(item, "steps", reduced_whole((double)row->steps));
    json_object_set_new(item, "dropped", reduced_whole((double)row->dropped));
    json_object_set_new(item, "step_p50_ns", reduced_whole(row->step_p50_ns));
    json_object_set_new(item, "step_p99_ns", reduced_whole(row->step_p99_ns));
    json_object_set_new(item, "step_error", row->steps ? reduced_number(row->step_error) : json_null());
    json_object_set_new(item, "ns", ns);
    json_object_set_new(item, "phases", phases);
    json_object_set_new(item, "last", table->by_collectives ? reduced_whole((double)row->last) : json_null());
    json_object_set_new(item, "late_ns", reduced_whole(row->late_ns));
    json_object_set_new(item, "more_share", reduced_number(row->more_share));
    json_object_set_new(item, "late", json_boolean(row->late));
    return item;
}

static int reduced_print_json(const struct merge_reduced *work, const struct reduced_table *table, struct error *err)
{
    const struct reduced *all = &work->all;
    json_t *document = json_object(), *rows = json_array();
    for (size_t i = 0; i < table->count; i++)
        json_array_append_new(rows, reduced_json_row(table, &table->rows[i]));
    json_object_set_new(document, "schema", json_string("upgate.reduced/1"));
    json_object_set_new(document, "run", render_json_text(all->run));
    json_object_set_new(document, "restart", json_integer((json_int_t)all->restart));
    json_object_set_new(document, "ranks", json_integer(all->ranks));
    json_object_set_new(document, "missing", shard_ranks_json(work->missing, work->missing_count));
    json_object_set_new(document, "nodes", json_integer((json_int_t)all->node_count));
    json_object_set_new(document, "window_steps", reduced_whole((double)all->window_steps));
    json_object_set_new(document, "windows", json_integer((json_int_t)all->gist_count));
    json_object_set_new(document, "bytes", json_integer((json_int_t)work->file_bytes));
    json_object_set_new(document, "window_bytes_median", json_integer((json_int_t)work->gist_median));
    json_object_set_new(document, "window_bytes_most", json_integer((json_int_t)work->gist_most));
    json_object_set_new(document, "collectives", table->by_collectives ? reduced_whole((double)table->collectives) : json_null());
    json_object_set_new(document, "unclear", table->by_collectives ? reduced_whole((double)table->unclear) : json_null());
    json_object_set_new(document, "why_not", table->why == REDUCED_TOLD ? json_null() : json_string(reduced_why_text(table->why)));
    json_object_set_new(document, "rows", rows);
    char *text = render_json_dump(document, 17, err);
    int rc = text ? render_print(text, "the ranks", err) : err->code;
    free(text);
    return rc;
}

// --- all ------------------------------------------------------------------------------------------

int merge_reduced(const struct merge_reduced_opts *opts, enum exit_code *ret_exit, struct error *err)
{
    struct merge_reduced work = {0};
    struct strbuf bytes = {0};
    int rc = reduced_gather(opts, &work, err);
    if (rc == 0 && !opts->dry_run && !work.all.member_count)
        rc = error_set(err, -EINVAL, "there are no ranks in '%s'", opts->paths[0]);
    if (rc == 0 && !opts->dry_run) {
        struct reduced_table table;
        rc = reduced_encode(&work.all, &bytes, err);
        work.file_bytes = bytes.len;
        reduced_measure(&work);
        reduced_table_make(&work.all, &table);
        if (rc == 0 && opts->output)
            rc = reduced_write(opts, &work.all, &bytes, err);
        if (rc == 0 && opts->json)
            rc = reduced_print_json(&work, &table, err);
        else if (rc == 0)
            reduced_print(&work, &table);
        reduced_table_free(&table);
    }
    *ret_exit = work.missing_count ? EXIT_CODE_INCONCLUSIVE : EXIT_CODE_PASS;
    for (size_t i = 0; i < work.missing_count; i++)
        free(work.missing[i].why);
    free(work.missing);
    map_free(&work.missing_of);
    reduced_free(&work.all);
    strbuf_free(&bytes);
    return rc;
}
