// SPDX-License-Identifier: Apache-2.0
// Replays operations that a script wrote, under what reports/analyse/replay has, prints the time of
// each step. For bytedance.py.
//
//     replay_file [RANK…] < FILE      RANK: what if these ranks took the ideal time; and only these
//                                     what they took
//
// FILE: "OPS STEPS RANKS KINDS GROUPS STAGES", the stage of each rank, the begin of each step, and
// for each operation "BEGIN END RANK STEP KIND GROUP COMMUNICATES N" with N dependencies behind it;
// group -1: none. Times are ns. Prints a line for each question: its name, then ns a step.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/replay/replay.h"

struct file {
    struct replay_job job;
    struct replay_op *ops;
    size_t *dep_first;
    uint32_t *deps, *stages;
    int64_t *begins;
};

static uint64_t file_number(void)
{
    int64_t number;
    if (scanf("%" SCNd64, &number) != 1) {
        fprintf(stderr, "replay_file: a number is missing\n");
        exit(2);
    }
    return (uint64_t)number;
}

static void file_read(struct file *file)
{
    struct replay_job *job = &file->job;
    size_t *counts[] = {&job->op_count, &job->step_count, &job->rank_count, &job->kind_count,
            &job->group_count, &job->stage_count};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i] = file_number();
    file->stages = xcalloc(job->rank_count + 1, sizeof *file->stages);
    file->begins = xcalloc(job->step_count + 1, sizeof *file->begins);
    file->ops = xcalloc(job->op_count + 1, sizeof *file->ops);
    file->dep_first = xcalloc(job->op_count + 1, sizeof *file->dep_first);
    for (size_t i = 0; i < job->rank_count; i++)
        file->stages[i] = (uint32_t)file_number();
    for (size_t i = 0; i < job->step_count; i++)
        file->begins[i] = (int64_t)file_number();
    for (size_t i = 0; i < job->op_count; i++) {
        struct replay_op *op = &file->ops[i];
        op->begin_ns = (int64_t)file_number();
        op->end_ns = (int64_t)file_number();
        op->rank = (uint32_t)file_number();
        op->step = (uint32_t)file_number();
        op->kind = (uint32_t)file_number();
        op->group = (uint32_t)file_number();
        op->communicates = file_number() != 0;
        size_t count = file_number();
        file->dep_first[i + 1] = file->dep_first[i] + count;
        file->deps = xrealloc(file->deps, (file->dep_first[i + 1] + 1) * sizeof *file->deps);
        for (size_t k = 0; k < count; k++)
            file->deps[file->dep_first[i] + k] = (uint32_t)file_number();
    }
    job->ops = file->ops;
    job->dep_first = file->dep_first;
    job->deps = file->deps;
    job->step_begin_ns = file->begins;
    job->stage_of = job->stage_count ? file->stages : NULL;
}

static void file_print(const struct file *file, const struct replay *replay, const char *name,
        const int64_t *durations, bool delays)
{
    int64_t *ends = xcalloc(file->job.step_count + 1, sizeof *ends);
    replay_run(replay, durations, delays, ends);
    printf("%s", name);
    for (size_t i = 0; i < file->job.step_count; i++)
        printf(" %" PRId64, ends[i] - file->begins[i]);
    printf("\n");
    free(ends);
}

// One set of durations, and for the ranks of the mask the other one.
static void file_mixed(const struct file *file, const struct replay *replay, const char *name,
        const int64_t *durations, const int64_t *masked, const bool *mask)
{
    int64_t *mixed = xcalloc(file->job.op_count + 1, sizeof *mixed);
    for (size_t i = 0; i < file->job.op_count; i++)
        mixed[i] = mask[file->ops[i].rank] ? masked[i] : durations[i];
    file_print(file, replay, name, mixed, false);
    free(mixed);
}

int main(int argc, char **argv)
{
    struct file file = {0};
    struct error err = {0};
    struct replay *replay = NULL;
    file_read(&file);
    if (replay_new(&file.job, &replay, &err)) {
        fprintf(stderr, "replay_file: %s\n", err.text);
        return 2;
    }
    bool *last = xcalloc(file.job.rank_count + 1, sizeof *last),
         *ranks = xcalloc(file.job.rank_count + 1, sizeof *ranks);
    for (size_t i = 0; i < file.job.rank_count; i++)
        last[i] = file.stages[i] + 1 == file.job.stage_count;
    for (int i = 1; i < argc; i++) {
        size_t rank = strtoul(argv[i], NULL, 10);
        if (rank >= file.job.rank_count) {
            fprintf(stderr, "replay_file: there is no rank %s\n", argv[i]);
            return 2;
        }
        ranks[rank] = true;
    }
    const int64_t *measured = replay_durations(replay);
    int64_t *other = xcalloc(file.job.op_count + 1, sizeof *other);
    file_print(&file, replay, "delayed", measured, true);
    file_print(&file, replay, "replayed", measured, false);
    replay_if_instant(replay, other);
    file_print(&file, replay, "instant", other, false);
    replay_if_without(replay, ranks, other);
    file_print(&file, replay, "without", other, false);
    if (replay_if_balanced(replay, other))
        file_print(&file, replay, "balanced", other, false);
    replay_if_ideal(replay, other);
    file_print(&file, replay, "ideal", other, false);
    file_mixed(&file, replay, "last_removed", measured, other, last);
    file_mixed(&file, replay, "last_added", other, measured, last);
    file_mixed(&file, replay, "ranks_removed", measured, other, ranks);
    file_mixed(&file, replay, "ranks_added", other, measured, ranks);
    free(other);
    free(ranks);
    free(last);
    replay_free(replay);
    free(file.ops);
    free(file.dep_first);
    free(file.deps);
    free(file.stages);
    free(file.begins);
    return 0;
}
