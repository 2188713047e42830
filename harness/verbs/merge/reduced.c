// SPDX-License-Identifier: Apache-2.0
// What is reduced and read, and added; what becomes of it: reduced_job.c. Who is late is decided in
// reports/analyse/reduce.
#include "harness/verbs/merge/reduced.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/containers/intern.h"
#include "common/directory.h"
#include "common/log.h"
#include "common/strings.h"
#include "harness/rank/reduce.h"
#include "harness/verbs/merge/reduced_job.h"

struct reduced_given { // a path
    const char *path;
    bool is_file;               // reduced
    struct merge_result shards; // of a directory
    struct reduced reduced;     // of a directory only when it is reduced
};

struct merge_reduced {
    struct reduced_given *given;
    size_t given_count;
    char *output; // NULL: only printed
    struct reduced_job job;
};

// --- what there is -------------------------------------------------------------------------------

// Where reduced files are: the directory, or that of a run in it. NULL: there are none. The caller
// frees.
static char *reduced_folder(const char *dir, int deep)
{
    static const char ending[] = ".reduced";
    DIR *folder = opendir(dir);
    struct dirent *entry;
    char *found = NULL;
    while (folder && !found && (entry = readdir(folder))) {
        size_t len = strlen(entry->d_name), end = sizeof ending - 1;
        char *path = xasprintf("%s/%s", dir, entry->d_name);
        if (entry->d_name[0] != '.' && len > end && strcmp(entry->d_name + len - end, ending) == 0)
            found = xstrdup(dir);
        else if (entry->d_name[0] != '.' && deep > 0)
            found = reduced_folder(path, deep - 1);
        free(path);
    }
    if (folder)
        closedir(folder);
    return found;
}

// A file has one run and one restart, and was reduced with its window.
static int reduced_check_file(const struct merge_reduced_opts *opts, const char *path,
        const struct reduced *file, struct error *err)
{
    if (opts->run && strcmp(opts->run, file->run) != 0)
        return error_set(err, -EINVAL, "'%s' is of run '%s', not of '%s': leave it out, or --job",
                path, file->run, opts->run);
    if (opts->restart >= 0 && opts->restart != file->restart)
        return error_set(err, -EINVAL,
                "'%s' is of restart %lld, not %lld: leave it out, or --restart", path,
                (long long)file->restart, (long long)opts->restart);
    if (opts->window_given && opts->window_steps != file->window_steps)
        return error_set(err, -EINVAL,
                "'%s' was reduced with windows of %llu steps, which stay: --window %llu is for shards",
                path, (unsigned long long)file->window_steps,
                (unsigned long long)opts->window_steps);
    return 0;
}

static int reduced_find(
        const struct merge_reduced_opts *opts, struct reduced_given *given, struct error *err)
{
    struct stat info;
    int rc;
    if (stat(given->path, &info) < 0 || !S_ISDIR(info.st_mode)) {
        given->is_file = true;
        rc = reduced_read(given->path, &given->reduced, err);
        return rc ? rc : reduced_check_file(opts, given->path, &given->reduced, err);
    }
    const struct merge_opts find = {.dir = given->path,
            .part = opts->part,
            .run = opts->run,
            .restart = opts->restart,
            .dry_run = opts->dry_run};
    rc = merge_find(&find, &given->shards, err);
    char *folder =
            rc == -EINVAL && !given->shards.scan.count ? reduced_folder(given->path, 1) : NULL;
    if (folder)
        rc = error_set(err, -EINVAL,
                "'%s' has no shards; reduced files are named one by one: upgate merge --reduced %s/*.reduced",
                given->path, folder);
    free(folder);
    return rc;
}

static int reduced_find_all(
        const struct merge_reduced_opts *opts, struct merge_reduced *work, struct error *err)
{
    int rc = 0;
    work->given = xcalloc(opts->count, sizeof *work->given);
    for (; work->given_count < opts->count && rc == 0; work->given_count++) {
        work->given[work->given_count].path = opts->paths[work->given_count];
        rc = reduced_find(opts, &work->given[work->given_count], err);
    }
    return rc;
}

// --- where it goes -------------------------------------------------------------------------------

// Of all that was given: how many nodes, and the lowest rank.
static size_t reduced_count_nodes(const struct merge_reduced *work, int32_t *ret_first)
{
    struct intern *boots = intern_new();
    *ret_first = INT32_MAX;
    for (size_t i = 0; i < work->given_count; i++) {
        const struct reduced_given *given = &work->given[i];
        for (size_t k = 0; k < given->shards.chosen_count; k++) {
            const struct identity *who = &given->shards.chosen[k]->who;
            intern_text(boots, who->boot);
            *ret_first = who->launcher.rank < *ret_first ? who->launcher.rank : *ret_first;
        }
        for (size_t k = 0; k < given->reduced.node_count; k++)
            intern_text(boots, given->reduced.nodes[k].boot);
        if (given->reduced.member_count && given->reduced.members[0].rank < *ret_first)
            *ret_first = given->reduced.members[0].rank;
    }
    size_t count = intern_count(boots);
    intern_free(boots);
    return count;
}

// A part is named by its first rank, so that those of all nodes go into one directory.
static int reduced_place_part(
        const struct merge_reduced_opts *opts, struct merge_reduced *work, struct error *err)
{
    const struct reduced_given *given = &work->given[0];
    const char *run = given->is_file ? given->reduced.run : given->shards.run;
    int64_t restart = given->is_file ? given->reduced.restart : given->shards.restart;
    int32_t first;
    size_t nodes = reduced_count_nodes(work, &first);
    if (nodes > 1)
        return error_set(
                err, -EINVAL, "a part is of one node, and these are %zu: leave --part out", nodes);
    if (run[0] == '.' || strchr(run, '/')) // of somebody's file: `upgate rank` makes no such name
        return error_set(err, -EINVAL, "run '%s' is no name of a directory", run);
    work->output =
            xasprintf("%s/%s/%lld-%d.reduced", opts->output, run, (long long)restart, (int)first);
    int rc = reduced_job_new(work->output, err); // its directory is made
    return rc || opts->dry_run ? rc : directory_make_above(work->output, 0777, err);
}

// --- all of it -----------------------------------------------------------------------------------

// Why ranks of its shards are missing is kept; that others have them is seen at the end.
static int reduced_take(const struct merge_reduced_opts *opts, struct merge_reduced *work,
        struct reduced_given *given, struct error *err)
{
    struct merge_result *shards = &given->shards;
    if (given->is_file)
        return 0;
    const struct reduce_opts reduce = {
            .window_steps = opts->window_steps, .dry_run = opts->dry_run};
    int rc = reduce_shards(shards, &reduce, &given->reduced, err);
    if (rc == 0)
        reduced_job_take(&work->job, shards);
    if (rc == 0 && opts->dry_run)
        log_info("would reduce %zu shards of run '%s', restart %lld", given->reduced.member_count,
                shards->run, (long long)shards->restart);
    return rc;
}

static int reduced_gather(
        const struct merge_reduced_opts *opts, struct merge_reduced *work, struct error *err)
{
    struct reduced *list = xcalloc(work->given_count, sizeof *list);
    int rc = 0;
    for (size_t i = 0; i < work->given_count && rc == 0; i++) {
        rc = reduced_take(opts, work, &work->given[i], err);
        list[i] = work->given[i].reduced;
        work->given[i].reduced = (struct reduced){0};
    }
    if (rc == 0)
        rc = reduce_add_all(list, work->given_count, err);
    if (rc == 0) {
        work->job.all = list[0];
        list[0] = (struct reduced){0};
        rc = reduced_job_settle(&work->job, opts->part, opts->paths[0], err);
    }
    for (size_t i = 0; i < work->given_count; i++)
        reduced_free(&list[i]);
    free(list);
    return rc;
}

static void reduced_close(struct merge_reduced *work)
{
    for (size_t i = 0; i < work->given_count; i++) {
        merge_free(&work->given[i].shards);
        reduced_free(&work->given[i].reduced);
    }
    free(work->given);
    free(work->output);
    reduced_job_free(&work->job);
}

int merge_reduced(
        const struct merge_reduced_opts *opts, enum exit_code *ret_exit, struct error *err)
{
    struct merge_reduced work = {
            .output = opts->output && !opts->part ? xstrdup(opts->output) : NULL};
    int rc = work.output ? reduced_job_place(work.output, err) : 0; // before all the work
    if (rc == 0)
        rc = reduced_find_all(opts, &work, err);
    if (rc == 0 && opts->part)
        rc = reduced_place_part(opts, &work, err);
    if (rc == 0)
        rc = reduced_gather(opts, &work, err);
    if (rc == 0 && !opts->dry_run)
        rc = reduced_job_tell(&work.job, work.output, opts->json, err);
    *ret_exit = reduced_job_exit(&work.job);
    reduced_close(&work);
    return rc;
}
