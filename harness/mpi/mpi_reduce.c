// SPDX-License-Identifier: Apache-2.0
// The program upgate-mpi-reduce: shards on the disks of many nodes, reduced where they lie by the
// processes that mpirun or srun started there, and added in a tree; process 0 writes and prints
// what `upgate merge --reduced` would of all shards in one directory. Which shards those are is
// decided by process 0, as a merge does, of all that anybody sees (harness/rank/seen.h).
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/launcher.h"
#include "common/log.h"
#include "common/options.h"
#include "harness/mpi/team.h"
#include "harness/rank/choose.h"
#include "harness/rank/reduce.h"
#include "harness/rank/seen.h"
#include "harness/verbs/man.h"
#include "harness/verbs/merge/reduced.h"
#include "harness/verbs/merge/reduced_job.h"
#include "harness/verbs/program.h"
#include "harness/verbs/shard_options.h"
#include "harness/verbs/version.h"

struct mpi_values {
    struct shard_values shards;
    uint64_t window;
    bool version;
    struct options_common common;
};

static const struct option_spec mpi_options[] = {OPTIONS_SHARDS(struct mpi_values, shards),
        {NULL, 0, "window", OPTION_UINT, "N", NULL, MERGE_WINDOW_TEXT,
                "steps of a window; all that are ever merged have the same",
                offsetof(struct mpi_values, window), 1, 1000000, 0},
        {NULL, 0, "version", OPTION_FLAG, NULL, NULL, NULL, "print the version and stop",
                offsetof(struct mpi_values, version), 0, 0, 0},
        OPTIONS_COMMON(struct mpi_values, common, "FILE",
                "a reduced file, which must not exist yet; without -o none is written", NULL),
        {.name = NULL}};

static const char *const mpi_usage[] = {
        "mpi-reduce DIR [--job NAME] [--restart N] [--window N] [-o FILE]", NULL};

static const char *const mpi_examples[] = {
        "mpirun -np 4 --map-by ppr:1:node --bind-to none upgate-mpi-reduce /local/run -o run.reduced",
        "one process a node is enough, with all of its CPUs",
        "srun --mpi=pmix --ntasks-per-node 4 upgate-mpi-reduce /local/run -o run.reduced",
        "the shards of a node are divided among its processes",
        "upgate merge --reduced run.reduced",
        "the ranks of the file once more",
        NULL,
};

static const char mpi_exit_codes[] =
        "  0  reduced: every rank of the job is there\n"
        "  2  usage, no shards, several runs, a rank twice, processes of two versions; nothing written\n"
        "  3  reduced, but ranks are missing\n"
        "  4  operational failure: no permission, disk full\n"
        "All processes exit with the same code.\n";

static const struct verb mpi_verb = {
        .name = "mpi-reduce",
        .alone = true,
        .summary =
                "Reduce the shards of a job's ranks on the nodes where they lie, and add them with MPI.",
        .usage = mpi_usage,
        .options = mpi_options,
        .examples = mpi_examples,
        .exit_codes = mpi_exit_codes,
        .positional_min = 1,
        .positional_max = 1,
};

struct mpi_work {
    const struct team *team;
    const struct mpi_values *values;
    struct merge_opts find;
    struct seen seen;         // in process 0, by all of them
    struct merge_result all;  // of process 0: the shards of all, as if they lay in one directory
    struct merge_result mine; // what lies here, and is this process's to reduce
    struct reduced sum;       // of those that this process has by now
};

// --- which shards --------------------------------------------------------------------------------

static int mpi_look(struct mpi_work *work, struct error *err)
{
    int rc = merge_scan(&work->find, &work->mine, err);
    if (rc == 0)
        seen_put(&work->seen, &work->mine.scan, work->team->number);
    if (rc != -EINVAL)
        return rc;
    char *why = xasprintf("process %d of %d, on '%s': %s", work->team->number, work->team->count,
            work->team->host, err->text);
    seen_put_none(&work->seen, work->team->count > 1 ? why : err->text); // others may have them all
    free(why);
    return 0;
}

static int mpi_give_seen(void *arg, struct strbuf *ret, struct error *err)
{
    struct mpi_work *work = arg;
    return seen_encode(&work->seen, ret, err);
}

static int mpi_take_seen(void *arg, const void *bytes, size_t size, int from, struct error *err)
{
    struct mpi_work *work = arg;
    (void)from;
    return seen_add(&work->seen, bytes, size, err);
}

// In process 0: what a merge of one directory with all of them would take, and who reduces it.
static int mpi_choose(struct mpi_work *work, struct strbuf *ret_shares, struct error *err)
{
    int rc = seen_scan(&work->seen, &work->all.scan, err);
    if (rc)
        return rc;
    if (!work->all.scan.count)
        return error_set(err, -EINVAL, "%s", work->seen.why ? work->seen.why : "nobody has looked");
    if (work->seen.blind)
        log_info("%lld of %d processes see no shard: %s", (long long)work->seen.blind,
                work->team->count, work->seen.why);
    rc = choose_shards(&work->find, &work->all, err);
    return rc ? rc
              : seen_share(&work->seen, &work->all, work->team->count, work->values->window,
                        ret_shares, err);
}

static int mpi_find(struct mpi_work *work, uint64_t *ret_window_steps, struct error *err)
{
    const struct team_sum sum = {mpi_give_seen, mpi_take_seen, work};
    struct strbuf shares = {0};
    int rc = team_agree(work->team, TEAM_OF_PROCESS, mpi_look(work, err), err);
    if (rc == 0)
        rc = team_add(work->team, &sum, err);
    if (rc == 0)
        rc = team_agree(work->team, TEAM_OF_ALL,
                work->team->number == 0 ? mpi_choose(work, &shares, err) : 0, err);
    if (rc == 0)
        rc = team_tell(work->team, &shares, err);
    if (rc == 0)
        rc = team_agree(work->team, TEAM_OF_PROCESS,
                seen_take_share(shares.text, shares.len, work->team->number, &work->mine,
                        ret_window_steps, err),
                err);
    strbuf_free(&shares);
    return rc;
}

// --- reduced, and added --------------------------------------------------------------------------

static int mpi_give_missing(void *arg, struct strbuf *ret, struct error *err)
{
    struct mpi_work *work = arg;
    return seen_missing_encode(&work->mine, ret, err);
}

static int mpi_take_missing(void *arg, const void *bytes, size_t size, int from, struct error *err)
{
    struct mpi_work *work = arg;
    (void)from;
    return seen_missing_add(&work->mine, bytes, size, err);
}

static int mpi_give_reduced(void *arg, struct strbuf *ret, struct error *err)
{
    struct mpi_work *work = arg;
    // nothing where nobody could be reduced
    int rc = work->sum.run ? reduced_encode(&work->sum, ret, err) : 0;
    if (rc == 0)
        reduced_free(&work->sum);
    return rc;
}

static int mpi_take_reduced(void *arg, const void *bytes, size_t size, int from, struct error *err)
{
    struct mpi_work *work = arg;
    struct reduced more = {0};
    char *name = xasprintf("what process %d sent", from);
    int rc = size ? reduced_decode(bytes, size, name, &more, err) : 0;
    if (rc == 0)
        rc = reduced_add(&work->sum, &more, err);
    reduced_free(&more);
    free(name);
    return rc;
}

static int mpi_reduce(struct mpi_work *work, uint64_t window_steps, struct error *err)
{
    const struct reduce_opts opts = {
            .window_steps = window_steps, .dry_run = work->values->common.dry_run};
    const struct team_sum missing = {mpi_give_missing, mpi_take_missing, work},
                          reduced = {mpi_give_reduced, mpi_take_reduced, work};
    int rc = team_agree(
            work->team, TEAM_OF_PROCESS, reduce_chosen(&work->mine, &opts, &work->sum, err), err);
    if (rc == 0)
        rc = team_add(work->team, &missing, err);
    if (rc == 0)
        rc = team_add(work->team, &reduced, err);
    return rc;
}

// --- what comes of it ----------------------------------------------------------------------------

// In process 0.
static int mpi_tell(
        struct mpi_work *work, const char *dir, enum exit_code *ret_exit, struct error *err)
{
    const struct options_common *common = &work->values->common;
    struct reduced_job job = {0};
    int rc = 0;
    for (size_t i = 0; i < work->mine.missing_count; i++)
        choose_add_missing(&work->all, work->mine.missing[i].rank, work->mine.missing[i].why);
    if (!work->sum.run)
        rc = reduce_nobody(&work->all, err);
    if (rc == 0) {
        reduced_job_take(&job, &work->all);
        job.all = work->sum;
        work->sum = (struct reduced){0};
        rc = reduced_job_settle(&job, false, dir, err);
    }
    if (rc == 0 && common->dry_run)
        log_info("would reduce %zu shards of run '%s', restart %lld", job.all.member_count,
                work->all.run, (long long)work->all.restart);
    else if (rc == 0)
        rc = reduced_job_tell(&job, common->output, strcmp(common->format, "json") == 0, err);
    *ret_exit = reduced_job_exit(&job);
    reduced_job_free(&job);
    return rc;
}

static int mpi_go(const struct team *team, const struct mpi_values *values, const char *dir,
        enum exit_code *ret_exit, struct error *err)
{
    const char *output = values->common.output;
    uint64_t window_steps = 0;
    struct mpi_work work = {.team = team,
            .values = values,
            .seen = {.version = version_text()},
            .all = {.restart = -1},
            .mine = {.restart = -1}};
    work.find = (struct merge_opts){.dir = dir,
            .run = values->shards.run,
            .restart = shard_values_restart(&values->shards)};
    // before all the work
    int rc = team_agree(team, TEAM_OF_ALL,
            team->number == 0 && output ? reduced_job_place(output, err) : 0, err);
    if (rc == 0)
        rc = mpi_find(&work, &window_steps, err);
    if (rc == 0)
        rc = mpi_reduce(&work, window_steps, err);
    if (rc == 0)
        rc = team_agree(team, TEAM_OF_ALL,
                team->number == 0 ? mpi_tell(&work, dir, ret_exit, err) : 0, err);
    seen_free(&work.seen);
    merge_free(&work.all);
    merge_free(&work.mine);
    reduced_free(&work.sum);
    return rc;
}

// --- the program ---------------------------------------------------------------------------------

// A launcher that MPI cannot speak to starts many programs that are each alone, and each would
// write what it sees. A batch script of Slurm, or a pod of many, that starts one looks the same.
static int mpi_check_team(
        const struct team *team, const struct launcher_rank *launcher, struct error *err)
{
    if (team->count > 1 || !launcher->launcher || launcher->ranks <= 1)
        return 0;
    return error_set(err, -EINVAL,
            "%s started %d processes, and this MPI knows of one: start them with the mpirun of this MPI, or with "
            "srun --mpi=pmix where Slurm and MPI have PMIx; one that is to do it alone: mpirun -n 1",
            launcher->launcher, (int)launcher->ranks);
}

static int mpi_man(const char *directory)
{
    struct error err = {0};
    int rc = man_write_alone(&mpi_verb, directory, &err);
    if (rc)
        log_error("%s", err.text);
    return error_exit_code(rc);
}

static int mpi_main(int argc, char **argv)
{
    struct mpi_values values = {.window = MERGE_WINDOW_STEPS, .common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct launcher_rank launcher = {0};
    struct error err = {0};
    struct team team;
    enum exit_code code = EXIT_CODE_PASS;
    if (!launcher_find_own(&launcher))
        launcher = (struct launcher_rank){0};
    int rc = options_parse(&mpi_verb, argc, argv, &values, &rest, &err);
    if (rest.help)
        options_print_help(&mpi_verb, stdout);
    else if (values.version) // without a directory, too
        puts(version_text());
    if (rest.help || values.version)
        return program_end(EXIT_CODE_PASS);
    options_apply_common(&values.common);
    team_join(&team); // whoever is called wrongly, too: others wait for it there
    if (rc == 0)
        rc = mpi_check_team(&team, &launcher, &err);
    rc = team_agree(&team, TEAM_OF_ALL, rc, &err);
    if (rc == 0)
        rc = mpi_go(&team, &values, rest.positional[0], &code, &err);
    if (rc && team.number == 0)
        log_error("%s", err.text);
    // mpirun ends the others as soon as one has ended with another code than 0: by then process 0
    // has printed everything.
    int status = team_tell_number(program_end(rc ? error_exit_code(rc) : (int)code));
    team_leave();
    return status;
}

int main(int argc, char **argv)
{
    program_begin();
    if (argc == 3 && strcmp(argv[1], "--print-man") == 0) // of the build
        return mpi_man(argv[2]);
    return mpi_main(argc, argv);
}
