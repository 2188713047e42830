// SPDX-License-Identifier: Apache-2.0
// `upgate rank`: one rank of a job, recorded under whatever launcher starts it. Reads options,
// finds out who it is, and becomes the worker (harness/rank). `upgate merge` puts the shards of all
// ranks together.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/environment.h"
#include "common/log.h"
#include "common/options.h"
#include "contracts/exit_code.h"
#include "harness/rank/wrap.h"
#include "harness/verbs/command_line.h"
#include "harness/verbs/program.h"
#include "harness/verbs/recording_options.h"

struct rank_values {
    const char *run;
    uint64_t pid, rank, ranks;
    bool pid_given, rank_given, ranks_given, again, stdin_ends, shared;
    struct recording_values recording;
    struct options_common common;
};

extern const struct verb verb_rank;

static const struct option_spec rank_options[] = {
        // Not --run: torchrun takes that for its own --run-path, wherever it stands.
        {"Rank", 0, "job", OPTION_TEXT, "NAME", NULL, "the launcher's name of the job",
                "the run that this rank belongs to: a directory in DIR; the same on all ranks, another one for each start of a job",
                offsetof(struct rank_values, run), 0, 0, 0},
        {NULL, 'p', "pid", OPTION_UINT, "PID", NULL, NULL,
                "a rank that runs already and has our environment, in place of a command: upgate.rank(DIR) in Python calls it",
                offsetof(struct rank_values, pid), 1, INT32_MAX,
                offsetof(struct rank_values, pid_given)},
        {NULL, 0, "rank", OPTION_UINT, "N", NULL, "what the launcher says",
                "who it is, where no launcher says so: with --ranks and --job",
                offsetof(struct rank_values, rank), 0, INT32_MAX - 1,
                offsetof(struct rank_values, rank_given)},
        {NULL, 0, "ranks", OPTION_UINT, "N", NULL, NULL, "of how many",
                offsetof(struct rank_values, ranks), 1, INT32_MAX,
                offsetof(struct rank_values, ranks_given)},
        {NULL, 0, "again", OPTION_FLAG, NULL, NULL, NULL,
                "no launcher counts restarts: it is of the run's last one, or where it has been in that already, of the next",
                offsetof(struct rank_values, again), 0, 0, 0},
        {NULL, 0, "stdin-ends", OPTION_FLAG, NULL, NULL, NULL,
                "with --pid: a byte on stdin ends the recording, though the rank lives",
                offsetof(struct rank_values, stdin_ends), 0, 0, 0},
        {NULL, 0, "shared", OPTION_FLAG, NULL, NULL, NULL,
                "one recorder, and one shard, for all ranks of this node that are started so: its programs run once at each switch",
                offsetof(struct rank_values, shared), 0, 0, 0},
        OPTIONS_RECORDING("Recording", struct rank_values, recording),
        OPTIONS_RECORDING_GPU(struct rank_values, recording),
        OPTIONS_COMMON(struct rank_values, common, "DIR",
                "shared directory of the shards: DIR/RUN/RESTART-RANK.db", NULL),
        {.name = NULL}};

static const char *const rank_usage[] = {"rank -o DIR [--job NAME] -- COMMAND…",
        "rank -o DIR [--job NAME] [--rank N --ranks N] --pid PID", NULL};

static const char *const rank_examples[] = {
        "torchrun --nproc-per-node 8 --no-python upgate rank -o /shared/run -- python train.py",
        "each rank of torchrun",
        "srun upgate rank -o /shared/run -- python train.py",
        "each task of Slurm",
        "mpirun -np 4 upgate rank -o /shared/run -- ./solver",
        "each process of MPI",
        "upgate merge /shared/run -o run.db; upgate stalls run.db",
        "afterwards: which rank was late, and why",
        "srun upgate rank -o /shared/run --dry-run -- true",
        "only say which rank of which run each would be",
        NULL,
};

static const char rank_exit_codes[] =
        "  that of COMMAND, which becomes the process of `upgate rank`, recorded or not\n"
        "  0  with --pid: the rank is being recorded; stdout says UPGATE_STEPS=FILE, for its step calls\n"
        "  2  usage\n"
        "  4  COMMAND cannot be started; with --pid: why it is not recorded\n";

static int rank_check(
        const struct rank_values *values, const struct options_rest *rest, struct error *err)
{
    if (!values->common.output || !*values->common.output)
        return error_set(err, -EINVAL,
                "no directory for the shards: name one that all nodes share with -o DIR");
    if (!rest->command_count && !values->pid_given)
        return error_set(err, -EINVAL,
                "nothing to record: name the worker behind --, as in `upgate rank -o DIR -- python train.py`");
    if (rest->command_count && values->pid_given)
        return error_set(err, -EINVAL, "--pid and a command exclude each other: name one");
    if (values->run && !*values->run)
        return error_set(err, -EINVAL, "option '--job': the name is empty");
    if (values->rank_given != values->ranks_given ||
            (values->rank_given && (!values->run || values->rank >= values->ranks)))
        return error_set(err, -EINVAL,
                "--rank N, --ranks M and --job NAME go together, with N from 0 to M - 1");
    if (values->stdin_ends && !values->pid_given)
        return error_set(err, -EINVAL, "--stdin-ends is of --pid: stdin is the command's");
    if (values->again && values->shared)
        return error_set(err, -EINVAL,
                "--again and --shared exclude each other: ranks of one restart share a recorder");
    return recording_values_check(&values->recording, !values->pid_given, err);
}

static void rank_fill(
        const struct rank_values *values, const struct options_rest *rest, struct wrap_opts *opts)
{
    opts->pid = (pid_t)values->pid;
    opts->dir = values->common.output;
    opts->shared = values->shared;
    opts->again = values->again;
    opts->stdin_ends = values->stdin_ends;
    opts->recording.command = rest->command_count ? rest->command : NULL;
    opts->recording.command_count = rest->command_count;
    recording_values_apply(&values->recording, &opts->recording);
    identity_find(values->run, &opts->identity);
    if (values->rank_given)
        opts->identity.launcher = (struct launcher_rank){.launcher = "--rank",
                .rank = (int32_t)values->rank,
                .ranks = (int32_t)values->ranks,
                .local_rank = -1,
                .local_ranks = -1,
                .node = -1};
}

static int rank_go(const struct rank_values *values, struct wrap_opts *opts, struct error *err)
{
    const struct launcher_rank *rank = &opts->identity.launcher;
    if (getpid() == 1 && !values->pid_given) // whoever loses its parent is a child of process 1
        log_warn(
                "the worker is process 1 of its container, and the recorder becomes its child: a program that waits until it has no child "
                "would wait for ever; start the container with an init (docker, podman: --init; a pod: shareProcessNamespace: true)");
    if (values->common.dry_run) {
        wrap_find_restart(opts);
        char *path = wrap_path(opts);
        log_info("would record rank %d of %d (%s, run '%s', restart %d) into '%s'", (int)rank->rank,
                (int)rank->ranks, rank->launcher ? rank->launcher : "no launcher",
                opts->identity.run, (int)rank->restart, path);
        free(path);
        return 0;
    }
    if (!rank->launcher)
        log_warn(
                "no launcher says which rank this is (docs/SCALE.md has the variables): recorded as rank 0 of 1, run '%s'",
                opts->identity.run);
    char *steps = NULL;
    int rc = wrap_run(opts, &steps, err);
    if (rc == 0 && steps)
        printf("%s=%s\n", environment_name(ENVIRONMENT_STEPS), steps);
    free(steps);
    return rc;
}

static int cmd_rank(int argc, char **argv)
{
    struct rank_values values = {
            .recording = RECORDING_VALUES_DEFAULT, .common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct wrap_opts opts = {0};
    struct error err = {0};
    char *command_line = command_line_text(argc, argv);
    int rc = program_parse(&verb_rank, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0) {
        free(command_line);
        return EXIT_CODE_PASS;
    }
    if (rc == 0)
        rc = rank_check(&values, &rest, &err);
    if (rc == 0) {
        rank_fill(&values, &rest, &opts);
        opts.recording.command_line = command_line;
        rc = rank_go(&values, &opts, &err);
    }
    free(command_line);
    return program_judge(rc, EXIT_CODE_PASS, &err);
}

const struct verb verb_rank = {
        .name = "rank",
        .summary =
                "Record one rank of a job under any launcher: a shard a rank, the worker as it would be without.",
        .usage = rank_usage,
        .options = rank_options,
        .examples = rank_examples,
        .exit_codes = rank_exit_codes,
        .takes_command = true,
        .run = cmd_rank,
};
