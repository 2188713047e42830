// SPDX-License-Identifier: Apache-2.0
// Which shards are merged: of one run, of one restart, each rank once.
#include "harness/rank/choose.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/containers/intern.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"

void merge_free(struct merge_result *result)
{
    for (size_t i = 0; i < result->missing_count; i++)
        free(result->missing[i].why);
    for (size_t i = 0; i < result->duplicate_count; i++)
        free(result->duplicates[i].why);
    for (size_t i = 0; i < result->note_count; i++)
        free(result->notes[i]);
    free(result->lacks);
    free(result->missing);
    free(result->duplicates);
    free(result->notes);
    free(result->nodes);
    free(result->chosen);
    free(result->path);
    scan_free(&result->scan);
    *result = (struct merge_result){0};
}

void choose_add_missing(struct merge_result *result, int32_t rank, const char *why)
{
    if (result->lacks[rank])
        return;
    result->lacks[rank] = true;
    vector_push(result->missing, result->missing_count, (struct merge_rank){rank, xstrdup(why)});
}

void choose_note(struct merge_result *result, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    vector_push(result->notes, result->note_count, text);
}

static const char *choose_time(int64_t wall_ns, char text[32])
{
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm local;
    if (!localtime_r(&seconds, &local) || !strftime(text, 32, "%F %T", &local))
        snprintf(text, 32, "?");
    return text;
}

// --- the run -------------------------------------------------------------------------------------

// "'77.0' (4 ranks, from 2026-11-26 22:10:01)" of each run.
static char *choose_runs_text(const struct scan *scan, size_t *ret_count)
{
    enum { NAMED_MAX = 12 };
    struct strbuf text = {0};
    *ret_count = 0;
    for (size_t first = 0, end; first < scan->count; first = end) {
        int64_t started_ns = INT64_MAX;
        size_t shards = 0;
        char at[32];
        for (end = first;
                end < scan->count && strcmp(scan->shards[end].run, scan->shards[first].run) == 0;
                end++) {
            if (scan->shards[end].why)
                continue;
            shards++;
            started_ns = scan->shards[end].started_wall_ns < started_ns
                    ? scan->shards[end].started_wall_ns
                    : started_ns;
        }
        if (++*ret_count > NAMED_MAX)
            continue;
        strbuf_add(&text, "%s'%s' (%zu shard%s", text.len ? ", " : "", scan->shards[first].run,
                shards, shards == 1 ? "" : "s");
        strbuf_add(&text, shards ? ", from %s)" : ")", choose_time(started_ns, at));
    }
    if (*ret_count > NAMED_MAX)
        strbuf_add(&text, " and %zu more", *ret_count - NAMED_MAX);
    return strbuf_take(&text);
}

static int choose_run(
        const char *run, const char *dir, struct merge_result *result, struct error *err)
{
    size_t count = 0;
    char *runs = choose_runs_text(&result->scan, &count);
    int rc = 0;
    for (size_t i = 0; i < result->scan.count && run && !result->run; i++)
        if (strcmp(result->scan.shards[i].run, run) == 0)
            result->run = result->scan.shards[i].run;
    if (run && !result->run)
        rc = error_set(err, -EINVAL, "'%s' has no run '%s'; it has %s", dir, run, runs);
    else if (!run && count > 1)
        rc = error_set(err, -EINVAL,
                "'%s' has several runs, which cannot become one: %s; name one with --job", dir,
                runs);
    else if (!run)
        result->run = result->scan.shards[0].run;
    free(runs);
    return rc;
}

// --- the restart ---------------------------------------------------------------------------------

static bool choose_of_run(const struct merge_result *result, const struct scan_shard *shard)
{
    return strcmp(shard->run, result->run) == 0;
}

// A shard knows its restart better than the name of its file, which may have been changed.
static int64_t choose_restart_of(const struct scan_shard *shard)
{
    return shard->why ? shard->restart : shard->who.launcher.restart;
}

static int choose_restart(int64_t restart, struct merge_result *result, struct error *err)
{
    int64_t last = -1;
    bool there = false;
    for (size_t i = 0; i < result->scan.count; i++) {
        const struct scan_shard *shard = &result->scan.shards[i];
        if (!choose_of_run(result, shard))
            continue;
        last = choose_restart_of(shard) > last ? choose_restart_of(shard) : last;
        there |= choose_restart_of(shard) == restart;
    }
    if (restart >= 0 && !there)
        return error_set(err, -EINVAL, "run '%s' has no restart %lld; its last one is %lld",
                result->run, (long long)restart, (long long)last);
    result->restart = restart >= 0 ? restart : last;
    int64_t others = 0, least = -1;
    for (size_t i = 0; i < result->scan.count; i++) {
        const struct scan_shard *shard = &result->scan.shards[i];
        if (!choose_of_run(result, shard) || choose_restart_of(shard) == result->restart)
            continue;
        others++;
        least = least < 0 || choose_restart_of(shard) < least ? choose_restart_of(shard) : least;
    }
    if (others)
        choose_note(result,
                "the job was restarted: this is restart %lld; %lld shard%s of other restarts, from %lld on, are left out (--restart N)",
                (long long)result->restart, (long long)others, others == 1 ? "" : "s",
                (long long)least);
    return 0;
}

// --- ranks ---------------------------------------------------------------------------------------

static bool choose_is_candidate(const struct merge_result *result, const struct scan_shard *shard)
{
    return choose_of_run(result, shard) && choose_restart_of(shard) == result->restart;
}

static int choose_check_job(struct merge_result *result, const struct scan_shard *first,
        const struct scan_shard *shard, struct error *err)
{
    if (strcmp(first->who.run, shard->who.run) != 0)
        return error_set(err, -EINVAL,
                "'%s' is of run '%s', '%s' of run '%s': they cannot become one; take one of them out of the directory",
                first->path, first->who.run, shard->path, shard->who.run);
    if (first->who.launcher.ranks != shard->who.launcher.ranks)
        return error_set(err, -EINVAL,
                "'%s' is of a job of %d ranks, '%s' of one of %d: two jobs of one name; take one of them out of the "
                "directory, and give each its own --job",
                first->path, (int)first->who.launcher.ranks, shard->path,
                (int)shard->who.launcher.ranks);
    int32_t named = shard->outer_ranks ? shard->outer_rank : shard->who.launcher.rank;
    if (shard->rank != named)
        choose_note(result, "'%s' is of rank %d, whatever its name says", shard->path, (int)named);
    return 0;
}

// A recorder around a launcher knows the launcher's own number only, where it saw none of the ranks
// that it started: beside others of such launchers that is no rank of the job.
static void choose_find_rankless(struct merge_result *result)
{
    const struct scan *scan = &result->scan;
    const struct scan_shard *several = NULL;
    for (size_t i = 0; i < scan->count && !several; i++)
        if (choose_is_candidate(result, &scan->shards[i]) && !scan->shards[i].why &&
                scan->shards[i].outer_ranks)
            several = &scan->shards[i];
    for (size_t i = 0; i < scan->count && several; i++) {
        struct scan_shard *shard = &scan->shards[i];
        if (choose_is_candidate(result, shard) && !shard->why && !shard->part &&
                !shard->outer_ranks && shard->who.launcher.ranks == several->outer_ranks &&
                strcmp(shard->who.run, several->who.run) == 0)
            shard->why = xasprintf(
                    "'%s' has none of the ranks that its launcher started: its recorder was ended before them, or saw no "
                    "environment of theirs",
                    shard->path);
    }
}

static int choose_by_rank(const void *left, const void *right)
{
    const struct scan_shard *a = *(struct scan_shard *const *)left,
                            *b = *(struct scan_shard *const *)right;
    int32_t of_a = a->who.launcher.rank, of_b = b->who.launcher.rank;
    return (of_a > of_b) - (of_a < of_b);
}

// A part is made once, and the store of all may be made of it long after: it is not made while
// somebody records.
static int choose_collect(struct merge_result *result, bool part, struct error *err)
{
    struct scan *scan = &result->scan;
    int rc = 0;
    choose_find_rankless(result);
    for (size_t i = 0; i < scan->count && rc == 0; i++) {
        struct scan_shard *shard = &scan->shards[i];
        if (!choose_is_candidate(result, shard) || shard->why)
            continue;
        rc = result->chosen_count ? choose_check_job(result, result->chosen[0], shard, err)
                                  : choose_check_job(result, shard, shard, err);
        vector_push(result->chosen, result->chosen_count, shard);
        result->bytes += shard->bytes;
        if (rc == 0 && shard->alive && part)
            rc = error_set(err, -EINVAL,
                    "rank %d is still being recorded into '%s': make the part when the job has ended",
                    (int)shard->who.launcher.rank, shard->path);
        else if (shard->alive)
            choose_note(result, "rank %d is still being recorded: what it has by now is taken",
                    (int)shard->who.launcher.rank);
    }
    if (result->chosen_count)
        qsort(result->chosen, result->chosen_count, sizeof *result->chosen, choose_by_rank);
    return rc;
}

struct choose_claim { // who has that rank
    int32_t rank;
    const struct scan_shard *shard;
};

struct choose_claims { // by rank
    struct choose_claim *claims;
    size_t count;
};

static int choose_claim_by_rank(const void *left, const void *right)
{
    const struct choose_claim *a = left, *b = right;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static struct choose_claims choose_claims_of(const struct merge_result *result)
{
    struct choose_claims all = {0};
    for (size_t i = 0; i < result->chosen_count; i++)
        for (size_t k = 0; k < result->chosen[i]->held_count; k++)
            vector_push(all.claims, all.count,
                    (struct choose_claim){result->chosen[i]->held[k].rank, result->chosen[i]});
    if (all.count)
        qsort(all.claims, all.count, sizeof *all.claims, choose_claim_by_rank);
    return all;
}

static int choose_find_duplicates(
        struct merge_result *result, const struct choose_claims *all, struct error *err)
{
    for (size_t i = 1; i < all->count; i++) {
        const struct scan_shard *a = all->claims[i - 1].shard, *b = all->claims[i].shard;
        char at_a[32], at_b[32];
        if (all->claims[i - 1].rank != all->claims[i].rank)
            continue;
        char *why = xasprintf("'%s' (%s, from %s) and '%s' (%s, from %s)", a->path, a->who.host,
                choose_time(a->started_wall_ns, at_a), b->path, b->who.host,
                choose_time(b->started_wall_ns, at_b));
        vector_push(result->duplicates, result->duplicate_count,
                (struct merge_rank){all->claims[i].rank, why});
    }
    if (!result->duplicate_count)
        return 0;
    const struct merge_rank *one = &result->duplicates[0];
    return error_set(err, -EINVAL,
            "rank %d of run '%s' is there twice: %s%s; of a job that was started twice in one directory take the shards of "
            "one start out, and next time give each its own --job or -o",
            (int)one->rank, result->run, one->why,
            result->duplicate_count > 1 ? ", and others are, too" : "");
}

static bool choose_has(const struct choose_claims *all, int32_t rank)
{
    const struct choose_claim key = {.rank = rank};
    return all->count && bsearch(&key, all->claims, all->count, sizeof key, choose_claim_by_rank);
}

// Of the ranks that a part lacks: those that nobody else has.
static void choose_find_missing_of_part(struct merge_result *result,
        const struct choose_claims *all, const struct scan_shard *shard)
{
    json_t *one;
    size_t i;
    json_array_foreach(shard->missing, i, one)
    {
        json_int_t rank = json_integer_value(json_object_get(one, "rank"));
        const char *why = json_string_value(json_object_get(one, "why"));
        if (!why || rank < 0 || rank >= result->ranks || choose_has(all, (int32_t)rank))
            continue;
        char *plain = xstrdup(why);
        string_make_plain(plain, strlen(plain));
        choose_add_missing(result, (int32_t)rank, plain);
        free(plain);
    }
}

// By rank: another restart of the run has it. Each node's torchrun counts the restarts that its own
// workers caused, and no others: after one, nodes of one round have several counts.
static bool *choose_elsewhere(const struct merge_result *result)
{
    bool *elsewhere = xcalloc((size_t)result->ranks, sizeof *elsewhere);
    for (size_t i = 0; i < result->scan.count; i++) {
        const struct scan_shard *shard = &result->scan.shards[i];
        for (size_t k = 0; k < shard->held_count && choose_of_run(result, shard) &&
                !choose_is_candidate(result, shard);
                k++)
            if (shard->held[k].rank < result->ranks)
                elsewhere[shard->held[k].rank] = true;
    }
    return elsewhere;
}

static void choose_find_shardless(struct merge_result *result, const struct choose_claims *all)
{
    bool *elsewhere = choose_elsewhere(result);
    char *why = xasprintf(
            "it has no shard of restart %lld, but of another one; torchrun on several nodes counts restarts on each of them apart",
            (long long)result->restart);
    for (int32_t rank = 0; rank < result->ranks; rank++)
        if (!choose_has(all, rank))
            choose_add_missing(result, rank, elsewhere[rank] ? why : "it has no shard");
    free(why);
    free(elsewhere);
}

// One that was read, but not to the end that somebody wanted, has told which ranks it is of. False:
// it has not, or others have them.
static bool choose_miss_held(struct merge_result *result, const struct choose_claims *all,
        const struct scan_shard *shard)
{
    bool some = false;
    if (!shard->read || shard->who.launcher.ranks != result->ranks ||
            strcmp(shard->who.run, result->chosen[0]->who.run) != 0)
        return false;
    for (size_t k = 0; k < shard->held_count; k++) {
        if (choose_has(all, shard->held[k].rank))
            continue;
        choose_add_missing(result, shard->held[k].rank, shard->why);
        some = true;
    }
    return some;
}

// Why of those whose shard is not one, or who left a reason in its place; the others have left
// nothing, or are of another node's part.
static void choose_find_missing(
        struct merge_result *result, const struct choose_claims *all, bool part)
{
    bool several = false;
    for (size_t i = 0; i < result->chosen_count; i++)
        several |= result->chosen[i]->outer_ranks > 0;
    for (size_t i = 0; i < result->scan.count; i++) {
        const struct scan_shard *shard = &result->scan.shards[i];
        if (!choose_is_candidate(result, shard) || !shard->why)
            continue;
        bool told = choose_miss_held(result, all, shard),
             launcher = several || shard->outer_ranks > 0;
        if (!launcher && shard->rank < result->ranks && !choose_has(all, (int32_t)shard->rank))
            choose_add_missing(result, (int32_t)shard->rank, shard->why);
        else if (!told) // the number in a name is that of a launcher, of whose ranks nothing is
                        // known
            choose_note(result, "%s %lld: %s", launcher ? "recorder" : "rank",
                    (long long)shard->rank, shard->why);
    }
    for (size_t i = 0; i < result->chosen_count; i++)
        choose_find_missing_of_part(result, all, result->chosen[i]);
    if (!part)
        choose_find_shardless(result, all);
}

static int choose_missing_by_rank(const void *left, const void *right)
{
    const struct merge_rank *a = left, *b = right;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

// By node, the node of the lowest rank first; they are by rank. A counting sort: a job of 16,384
// ranks has thousands of nodes.
static void choose_sort_by_node(struct merge_result *result)
{
    struct intern *boots = intern_new();
    for (size_t i = 0; i < result->chosen_count; i++)
        result->chosen[i]->node = intern_text(boots, result->chosen[i]->who.boot);
    size_t nodes = intern_count(boots), *next = xcalloc(nodes + 1, sizeof *next);
    struct scan_shard **sorted = xcalloc(result->chosen_count, sizeof *sorted);
    for (size_t i = 0; i < result->chosen_count; i++)
        next[result->chosen[i]->node + 1]++;
    for (size_t node = 0; node < nodes; node++)
        next[node + 1] += next[node];
    for (size_t i = 0; i < result->chosen_count; i++)
        sorted[next[result->chosen[i]->node]++] = result->chosen[i];
    free(result->chosen);
    result->chosen = sorted; // none is put to it any more
    free(next);
    intern_free(boots);
}

int choose_shards(const struct merge_opts *opts, struct merge_result *result, struct error *err)
{
    enum { RANKS_TOLD_MAX = 1 << 20 };
    int rc = choose_run(opts->run, opts->dir, result, err);
    if (rc == 0)
        rc = choose_restart(opts->restart, result, err);
    if (rc == 0)
        rc = choose_collect(result, opts->part, err);
    if (rc == 0 && !result->chosen_count) {
        const char *why = "there is none";
        for (size_t i = 0; i < result->scan.count; i++)
            if (choose_is_candidate(result, &result->scan.shards[i]))
                why = result->scan.shards[i].why;
        rc = error_set(err, -EINVAL, "no shard of run '%s' can be read: %s", result->run, why);
    }
    if (rc)
        return rc;
    struct choose_claims all = choose_claims_of(result);
    rc = choose_find_duplicates(result, &all, err);
    if (rc == 0) {
        result->ranks = result->chosen[0]->who.launcher.ranks;
        if (result->ranks > RANKS_TOLD_MAX)
            rc = error_set(err, -EINVAL,
                    "'%s' is of a job of %d ranks: more than %d are not merged",
                    result->chosen[0]->path, (int)result->ranks, RANKS_TOLD_MAX);
    }
    if (rc == 0) {
        result->lacks = xcalloc((size_t)result->ranks, sizeof *result->lacks);
        choose_find_missing(result, &all, opts->part);
        choose_sort_by_node(result);
    }
    free(all.claims);
    return rc;
}

// --- the time in which all recorded --------------------------------------------------------------

static int64_t choose_length(const struct scan_rank *rank)
{
    return rank->end_ns - rank->begin_ns;
}

// The median over ranks, and of two the shorter: one shard that says what is not so takes nobody
// else out.
static int64_t choose_usual_length(const struct merge_result *result, int64_t *ret_longest)
{
    int64_t *lengths = NULL;
    size_t count = 0;
    for (size_t i = 0; i < result->chosen_count; i++)
        for (size_t k = 0; k < result->chosen[i]->held_count; k++)
            vector_push(lengths, count, choose_length(&result->chosen[i]->held[k]));
    sort_in_place(lengths, count, x, y, *x < *y);
    int64_t usual = lengths[(count - 1) / 2];
    *ret_longest = lengths[count - 1];
    free(lengths);
    return usual;
}

// When the first rank of each node began, on the clock of the first node.
static int64_t *choose_first_begins(const struct merge_result *result)
{
    int64_t *first = xcalloc(result->node_count, sizeof *first);
    for (size_t i = 0; i < result->node_count; i++)
        first[i] = INT64_MAX;
    for (size_t i = 0; i < result->chosen_count; i++) {
        const struct scan_shard *shard = result->chosen[i];
        for (size_t k = 0; k < shard->held_count; k++)
            first[shard->node] = shard->held[k].begin_ns < first[shard->node]
                    ? shard->held[k].begin_ns
                    : first[shard->node];
    }
    for (size_t i = 0; i < result->node_count; i++)
        first[i] = clock_map_apply(&result->nodes[i].map, first[i]);
    return first;
}

// A clock that nobody sets may be hours off. Its ranks are compared among themselves only, so that
// it is enough to have them in the same window: the ranks of a job begin together.
static void choose_fit_clocks(struct merge_result *result, int64_t usual)
{
    int64_t *begins = choose_first_begins(result);
    for (size_t i = 1; i < result->node_count; i++) {
        struct merge_node *node = &result->nodes[i];
        int64_t off = begins[i] - begins[0];
        if ((node->error_ns >= 0 && result->nodes[0].error_ns >= 0) || llabs(off) < usual / 2)
            continue;
        node->wall_minus_monotonic_ns -= off;
        node->map.shift_ns -= off;
        choose_note(result,
                "the clock of %s, or that of %s, is %.1f s off: its ranks are put where the job begins",
                node->host, result->nodes[0].host, (double)off / 1e9);
    }
    free(begins);
}

// Whether none of its ranks was recorded for half of what is due; then they are missing. A part
// goes as a whole: who was short in it has been left out where it was made.
static bool choose_is_short(
        struct merge_result *result, const struct scan_shard *shard, int64_t due_ns)
{
    for (size_t k = 0; k < shard->held_count; k++)
        if (choose_length(&shard->held[k]) >= due_ns / 2)
            return false;
    for (size_t k = 0; k < shard->held_count; k++) {
        char *why = xasprintf("it was recorded for %.1f s of %.1f s only: its recorder was ended",
                (double)choose_length(&shard->held[k]) / 1e9, (double)due_ns / 1e9);
        choose_add_missing(result, shard->held[k].rank, why);
        free(why);
    }
    return true;
}

void choose_window(struct merge_result *result, bool part)
{
    int64_t longest, usual = choose_usual_length(result, &longest);
    size_t kept = 0;
    choose_fit_clocks(result, usual);
    result->begin_ns = INT64_MIN;
    result->end_ns = INT64_MAX;
    for (size_t i = 0; i < result->chosen_count; i++) {
        struct scan_shard *shard = result->chosen[i];
        const struct clock_map *map = &result->nodes[shard->node].map;
        // Most ranks of one node may have lost their recorders, and those of others, which would
        // tell, are not here.
        if (choose_is_short(result, shard, part && !shard->ended ? longest : usual))
            continue;
        result->chosen[kept++] = shard;
        result->merged += (int64_t)shard->held_count;
        for (size_t k = 0; k < shard->held_count; k++) {
            int64_t begin_ns = clock_map_apply(map, shard->held[k].begin_ns),
                    end_ns = clock_map_apply(map, shard->held[k].end_ns);
            result->begin_ns = begin_ns > result->begin_ns ? begin_ns : result->begin_ns;
            result->end_ns = end_ns < result->end_ns ? end_ns : result->end_ns;
        }
    }
    result->chosen_count = kept;
    if (result->end_ns < result->begin_ns) {
        choose_note(result,
                "there is no time in which all ranks were recorded: nobody can have waited for another as far as this shows");
        result->end_ns = result->begin_ns;
    }
    if (result->missing_count)
        qsort(result->missing, result->missing_count, sizeof *result->missing,
                choose_missing_by_rank);
}
