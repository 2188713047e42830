// SPDX-License-Identifier: Apache-2.0
// Who is missing of a job, its file, and what is printed of it (reduced_print.c).
#include "harness/verbs/merge/reduced_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/log.h"
#include "common/strings.h"
#include "harness/verbs/merge/reduced_print.h"
#include "reports/analyse/reduce/reduced_table.h"
#include "reports/render/render.h"

int reduced_job_new(const char *path, struct error *err)
{
    struct stat info;
    return stat(path, &info) < 0
            ? 0
            : error_set(err, -EINVAL, "'%s' exists already; name another place with -o", path);
}

int reduced_job_place(const char *path, struct error *err)
{
    char *folder = string_folder(path);
    int rc = reduced_job_new(path, err);
    if (rc == 0 && access(folder, W_OK | X_OK) < 0)
        rc = error_set(err, -errno, "no place for '%s': %s; name another one with -o", path,
                strerror(errno));
    free(folder);
    return rc;
}

// --- who is missing ------------------------------------------------------------------------------

// The first reason counts.
static void reduced_job_miss(struct reduced_job *job, int32_t rank, const char *why)
{
    uint32_t *known = map_put(&job->missing_of, (uint64_t)rank);
    if (*known != MAP_NONE)
        return;
    *known = (uint32_t)job->missing_count;
    vector_push(job->missing, job->missing_count, ((struct merge_rank){rank, xstrdup(why)}));
}

void reduced_job_take(struct reduced_job *job, const struct merge_result *shards)
{
    for (size_t i = 0; i < shards->missing_count; i++)
        reduced_job_miss(job, shards->missing[i].rank, shards->missing[i].why);
    for (size_t i = 0; i < shards->note_count; i++)
        log_info("%s", shards->notes[i]);
}

static int reduced_by_rank(const void *left, const void *right)
{
    const struct merge_rank *a = left, *b = right;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

// Of each member. The caller frees.
static uint64_t *reduced_steps(const struct reduced *all)
{
    struct gist *gist = xcalloc(1, sizeof *gist);
    uint64_t *steps = xcalloc(all->member_count + 1, sizeof *steps);
    size_t at = 0;
    for (size_t i = 0; i < all->member_count; i++) // members and gists are both by rank
        for (; at < all->gist_count && all->gists[at].rank == all->members[i].rank; at++)
            if (gist_decode((const uint8_t *)all->gist_bytes.text + all->gists[at].at,
                        all->gists[at].size, gist))
                steps[i] = spread_sum(steps[i], spread_count(&gist->spreads[GIST_STEP]));
    free(gist);
    return steps;
}

// As in a merge, who was recorded for less than half as long as most is missing. Here that is known
// of those whose recorder was killed, by their steps; what there is of them stays.
static void reduced_miss_short(struct reduced_job *job)
{
    const struct reduced *all = &job->all;
    size_t count = all->member_count, cut = 0;
    for (size_t i = 0; i < count; i++)
        cut += !(all->members[i].flags & REDUCED_ENDED);
    if (!cut)
        return;
    uint64_t *steps = reduced_steps(all), *sorted = xcalloc(count, sizeof *sorted);
    memcpy(sorted, steps, count * sizeof *sorted);
    sort_in_place(sorted, count, x, y, *x < *y);
    uint64_t usual = sorted[(count - 1) / 2];
    for (size_t i = 0; i < count; i++) {
        if (all->members[i].flags & REDUCED_ENDED || steps[i] >= usual / 2)
            continue;
        char *why = xasprintf(
                "it has %llu steps of %llu only: its recorder was killed, or records still",
                (unsigned long long)steps[i], (unsigned long long)usual);
        vector_push(
                job->missing, job->missing_count, ((struct merge_rank){all->members[i].rank, why}));
    }
    free(sorted);
    free(steps);
}

int reduced_job_settle(struct reduced_job *job, bool part, const char *where, struct error *err)
{
    size_t kept = 0;
    for (int32_t rank = 0; rank < job->all.ranks && !part; rank++)
        if (!reduced_member(&job->all, rank))
            reduced_job_miss(job, rank, "it is in nothing that was given");
    for (size_t i = 0; i < job->missing_count; i++) {
        if (reduced_member(&job->all, job->missing[i].rank))
            free(job->missing[i].why);
        else
            job->missing[kept++] = job->missing[i];
    }
    job->missing_count = kept;
    if (!part) // whose node may be an odd one
        reduced_miss_short(job);
    if (job->missing_count)
        qsort(job->missing, job->missing_count, sizeof *job->missing, reduced_by_rank);
    return job->all.member_count ? 0 : error_set(err, -EINVAL, "there are no ranks in '%s'", where);
}

enum exit_code reduced_job_exit(const struct reduced_job *job)
{
    return job->missing_count ? EXIT_CODE_INCONCLUSIVE : EXIT_CODE_PASS;
}

// --- what is told --------------------------------------------------------------------------------

// A file that is not there yet; nothing that appears meanwhile is replaced.
static int reduced_store(
        const struct reduced *all, const char *path, size_t *ret_bytes, struct error *err)
{
    char *partial = merge_partial(path);
    struct render_stream *stream = NULL;
    int rc = render_stream_open(partial, &stream, err);
    if (rc == 0) {
        rc = reduced_encode_file(all, render_stream_file(stream), ret_bytes, err);
        int close_rc = render_stream_close(stream, rc == 0, err);
        rc = rc ? rc : close_rc;
    }
    if (rc == 0)
        rc = merge_settle(partial, path, err);
    unlink(partial);
    free(partial);
    return rc;
}

static void reduced_measure(const struct reduced *all, struct reduced_told *told)
{
    size_t count = all->gist_count, *sizes = xcalloc(count + 1, sizeof *sizes);
    for (size_t i = 0; i < count; i++)
        sizes[i] = all->gists[i].size;
    sort_in_place(sizes, count, x, y, *x < *y);
    told->gist_median = sizes[count / 2];
    told->gist_most = count ? sizes[count - 1] : 0;
    free(sizes);
}

int reduced_job_tell(
        const struct reduced_job *job, const char *output, bool json, struct error *err)
{
    size_t bytes = 0;
    struct reduced_table table = {0};
    struct error second = {0}; // behind that of the file
    int file_rc = output ? reduced_store(&job->all, output, &bytes, err) : 0;
    // A disk that is full must not take what all nodes have reduced with it.
    int rc = output && file_rc == 0
            ? 0
            : reduced_encode_file(&job->all, NULL, &bytes, file_rc ? &second : err);
    if (rc == 0) {
        struct reduced_told told = {.all = &job->all,
                .table = &table,
                .missing = job->missing,
                .missing_count = job->missing_count,
                .file_bytes = bytes};
        reduced_table_make(&job->all, &table);
        reduced_measure(&job->all, &told);
        if (json)
            rc = reduced_print_json(&told, file_rc ? &second : err);
        else
            reduced_print(&told);
        reduced_table_free(&table);
    }
    return file_rc ? file_rc : rc;
}

void reduced_job_free(struct reduced_job *job)
{
    for (size_t i = 0; i < job->missing_count; i++)
        free(job->missing[i].why);
    free(job->missing);
    map_free(&job->missing_of);
    reduced_free(&job->all);
}
