// SPDX-License-Identifier: Apache-2.0
// `upgate merge`: the shards of a job's ranks in one store (harness/rank), and which rank the
// others waited for. What else the store knows is read by `upgate stalls` and `upgate report`.
// Reduced ranks: merge/reduced.c.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/log.h"
#include "common/options.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#include "harness/rank/merge.h"
#include "harness/verbs/command_line.h"
#include "harness/verbs/merge/reduced.h"
#include "harness/verbs/program.h"
#include "harness/verbs/shard_options.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/render/causes/cause_text.h"
#include "reports/render/stalls/stalls_text.h"
#include "reports/render/text/json_text.h"
#include "tracer/store/store.h"

struct merge_values {
    struct shard_values shards;
    bool part, reduced, window_given;
    uint64_t window;
    struct options_common common;
};

extern const struct verb verb_merge;

static const struct option_spec merge_options[] = {OPTIONS_SHARDS(struct merge_values, shards),
        {NULL, 0, "part", OPTION_FLAG, NULL, NULL, NULL,
                "only the ranks of this node: -o is a directory for the parts of all nodes, which are merged in their turn",
                offsetof(struct merge_values, part), 0, 0, 0},
        {NULL, 0, "reduced", OPTION_FLAG, NULL, NULL, NULL,
                "no store: at most 1,000 bytes of each rank and window of steps, and a table of ranks; takes directories of shards and files that it made",
                offsetof(struct merge_values, reduced), 0, 0, 0},
        {NULL, 0, "window", OPTION_UINT, "N", NULL, MERGE_WINDOW_TEXT,
                "with --reduced: steps of a window; all that are ever merged have the same",
                offsetof(struct merge_values, window), 1, 1000000,
                offsetof(struct merge_values, window_given)},
        OPTIONS_COMMON(struct merge_values, common, "RUN.db",
                "the store; must not exist yet; with --reduced: a reduced file, and without -o none",
                "run.db"),
        {.name = NULL}};

static const char *const merge_usage[] = {"merge DIR [--job NAME] [--restart N] [-o RUN.db]",
        "merge DIR --part [--job NAME] [--restart N] -o DIR",
        "merge --reduced (DIR | FILE.reduced)… [--window N] [--part] [-o FILE.reduced]", NULL};

static const char *const merge_examples[] = {
        "upgate merge /shared/run -o run.db; upgate stalls run.db",
        "which rank was late, on which node, and why",
        "upgate merge /shared/run --job 4711.0 --restart 0 -o before.db",
        "one of several jobs, before its elastic restart",
        "srun -n \"$SLURM_JOB_NUM_NODES\" --ntasks-per-node 1 upgate merge /local/run --part -o /shared/run",
        "each node its own ranks, then all of them",
        "upgate merge --reduced /shared/run -o run.reduced",
        "at most 1,000 bytes of each rank and window of steps",
        "upgate merge --reduced run.reduced",
        "the ranks of a reduced file: steps, waits, who is late",
        "upgate merge /shared/run --format json | jq '.stragglers[] | {rank, node, what}'",
        "for a script",
        NULL,
};

static const char merge_exit_codes[] =
        "  0  merged: every rank of the job is there; with --part: nothing tells of a missing one\n"
        "  2  usage, no shards, several runs, a rank twice, a part of a job that runs; nothing written\n"
        "  3  merged, but ranks are missing\n"
        "  4  operational failure: no permission, disk full\n";

// The device of a process; NULL: it had none. The caller frees.
static char *merge_gpu(struct store *store, const struct stall *stall)
{
    return store_get_text(store,
            "SELECT group_concat(d.uuid, ' ') FROM gpu_device d JOIN thread t ON t.process_id = d.process_id WHERE t.id = ?",
            "i", stall->culprit.known ? stall->culprit.thread_id : (int64_t)0);
}

static json_t *merge_json_stragglers(struct store *store, const struct stalls *stalls)
{
    json_t *list = json_array();
    for (size_t i = 0; i < stalls->count; i++) {
        const struct stall *stall = &stalls->stalls[i];
        if (!stall->is_straggler)
            continue;
        char *gpu = merge_gpu(store, stall);
        json_t *item = json_object();
        json_object_set_new(
                item, "rank", stall->rank < 0 ? json_null() : json_integer(stall->rank));
        json_object_set_new(item, "node", render_json_text(stall->host));
        json_object_set_new(item, "gpu", render_json_text(gpu));
        json_object_set_new(item, "late_ns", json_integer((json_int_t)stall->late_ns));
        json_object_set_new(item, "share",
                json_real(stalls->window_ns > 0
                                ? (double)stall->total_ns / (double)stalls->window_ns
                                : 0));
        json_object_set_new(item, "cause", render_json_text(stall->deed.cause));
        json_object_set_new(item, "what", render_json_take(cause_text_deed(&stall->deed)));
        json_array_append_new(list, item);
        free(gpu);
    }
    return list;
}

static void merge_print_json(
        const struct merge_result *result, struct store *store, const struct stalls *stalls)
{
    json_t *document = json_object();
    json_object_set_new(document, "schema", json_string("upgate.merge/1"));
    json_object_set_new(document, "run", render_json_text(result->run));
    json_object_set_new(document, "restart",
            result->restart < 0 ? json_null() : json_integer((json_int_t)result->restart));
    json_object_set_new(document, "ranks", json_integer(result->ranks));
    json_object_set_new(
            document, "missing", shard_ranks_json(result->missing, result->missing_count));
    json_object_set_new(
            document, "duplicates", shard_ranks_json(result->duplicates, result->duplicate_count));
    json_object_set_new(document, "nodes", json_integer((json_int_t)result->node_count));
    json_object_set_new(
            document, "steps", store ? json_integer((json_int_t)result->steps) : json_null());
    json_object_set_new(document, "bytes", json_integer((json_int_t)result->bytes));
    json_object_set_new(document, "clock_residual_ns",
            !store || result->clock_residual_ns < 0
                    ? json_null()
                    : json_integer((json_int_t)result->clock_residual_ns));
    json_object_set_new(
            document, "clocks_by_collectives", json_integer((json_int_t)result->by_collectives));
    json_object_set_new(
            document, "stragglers", stalls ? merge_json_stragglers(store, stalls) : json_array());
    json_t *notes = json_array();
    for (size_t i = 0; i < result->note_count; i++)
        json_array_append_new(notes, render_json_text(result->notes[i]));
    json_object_set_new(document, "notes", notes);
    json_dumpf(document, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(document);
}

static char *merge_clock_text(const struct merge_result *result)
{
    if (result->node_count < 2)
        return xstrdup("one clock");
    if (result->clock_residual_ns < 0)
        return xstrdup("clocks not synchronised: ranks are compared within each node only");
    char *how = result->by_collectives == 0 ? xstrdup("")
            : result->by_collectives == result->node_count
            ? xstrdup(" by their collectives")
            : xasprintf(", %zu of them by their collectives", result->by_collectives);
    char *text =
            xasprintf("clocks within %.1f us of each other%s: nobody is named below twice that",
                    (double)result->clock_residual_ns / 1e3, how);
    free(how);
    return text;
}

static void merge_print(const struct merge_values *values, const struct merge_result *result,
        const struct stalls *stalls)
{
    char *clock = merge_clock_text(result);
    size_t named = 0;
    shard_say("merged %zu of %d rank%s of run '%s', restart %lld: %zu node%s, %s",
            (size_t)result->merged, (int)result->ranks, result->ranks == 1 ? "" : "s", result->run,
            (long long)result->restart, result->node_count, result->node_count == 1 ? "" : "s",
            clock);
    printf("together they recorded %.1f s, %lld steps; shards of %.1f MB\n",
            (double)(result->end_ns - result->begin_ns) / 1e9, (long long)result->steps,
            (double)result->bytes / 1e6);
    for (size_t i = 0; i < result->missing_count; i++)
        shard_say("missing: rank %d: %s", (int)result->missing[i].rank, result->missing[i].why);
    for (size_t i = 0; i < result->note_count; i++)
        shard_say("note: %s", result->notes[i]);
    for (size_t i = 0; stalls && i < stalls->count; i++) {
        const struct stall *stall = &stalls->stalls[i];
        if (!stall->is_straggler)
            continue;
        named++;
        char *gpu = stalls_text_gpu(&stall->gpu, true), *deed = cause_text_deed(&stall->deed);
        shard_say("late: rank %d on %s%s%s, %.1f ms each time, %.1f %% of the time: %s",
                (int)stall->rank, stall->host ? stall->host : "?", gpu ? ", " : "", gpu ? gpu : "",
                (double)stall->late_ns / 1e6,
                100 * (double)stall->total_ns / (double)stalls->window_ns,
                deed ? deed : "what it did meanwhile was not seen");
        free(deed);
        free(gpu);
    }
    if (stalls && !named)
        puts(result->missing_count ? "late: none of the ranks that are there" : "late: no rank");
    printf(values->part ? "next: upgate merge %s -o run.db, when the parts of all nodes are there\n"
                        : "next: upgate stalls %s\n",
            values->common.output);
    free(clock);
}

static int merge_analyse(
        const char *path, struct store **ret_store, struct stalls **ret_stalls, struct error *err)
{
    int rc = store_open(path, STORE_READ, ret_store, err);
    return rc ? rc : stalls_analyse(*ret_store, NULL, ret_stalls, err);
}

static int merge_go(const struct merge_values *values, const char *dir, const char *command_line,
        enum exit_code *ret_exit, struct error *err)
{
    const struct merge_opts opts = {.dir = dir,
            .path = values->common.output,
            .part = values->part,
            .run = values->shards.run,
            .restart = shard_values_restart(&values->shards),
            .command_line = command_line,
            .dry_run = values->common.dry_run};
    struct merge_result result;
    struct store *store = NULL;
    struct stalls *stalls = NULL;
    bool json = strcmp(values->common.format, "json") == 0;
    int rc = merge_run(&opts, &result, err);
    if (rc == 0 && opts.dry_run)
        log_info("would merge %lld of %d ranks of run '%s', restart %lld, into '%s'",
                (long long)result.merged, (int)result.ranks, result.run, (long long)result.restart,
                result.path);
    else if (rc == 0)
        // within a part nobody is late yet: whom its ranks wait for may be on another node
        rc = opts.part ? store_open(result.path, STORE_READ, &store, err)
                       : merge_analyse(result.path, &store, &stalls, err);
    if (json && !opts.dry_run && (rc == 0 || result.duplicate_count))
        merge_print_json(&result, store, stalls);
    else if (rc == 0 && !opts.dry_run)
        merge_print(values, &result, stalls);
    *ret_exit = result.missing_count ? EXIT_CODE_INCONCLUSIVE : EXIT_CODE_PASS;
    stalls_free(stalls);
    store_close(store);
    merge_free(&result);
    return rc;
}

static int merge_go_reduced(const struct merge_values *values, const struct options_rest *rest,
        enum exit_code *ret_exit, struct error *err)
{
    const struct merge_reduced_opts opts = {.paths = rest->positional,
            .count = rest->positional_count,
            .run = values->shards.run,
            .restart = shard_values_restart(&values->shards),
            .window_steps = values->window,
            .window_given = values->window_given,
            .output = values->common.output,
            .part = values->part,
            .json = strcmp(values->common.format, "json") == 0,
            .dry_run = values->common.dry_run};
    return merge_reduced(&opts, ret_exit, err);
}

// What does not go together.
static int merge_check(
        const struct merge_values *values, const struct options_rest *rest, struct error *err)
{
    if (values->part && (!values->common.output || !*values->common.output))
        return error_set(err, -EINVAL,
                "no directory for the part: name one that all nodes share with -o DIR");
    if (!values->reduced && values->window_given)
        return error_set(err, -EINVAL, "--window is of --reduced: a store has every step");
    if (!values->reduced && rest->positional_count > 1)
        return error_set(err, -EINVAL,
                "unexpected argument '%s'; usage: upgate %s; try `upgate merge --help`",
                rest->positional[1], merge_usage[0]);
    return 0;
}

static int cmd_merge(int argc, char **argv)
{
    struct merge_values values = {.window = MERGE_WINDOW_STEPS, .common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct error err = {0};
    enum exit_code code = EXIT_CODE_PASS;
    char *command_line = command_line_text(argc, argv);
    int rc = program_parse(&verb_merge, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0) {
        free(command_line);
        return EXIT_CODE_PASS;
    }
    if (rc == 0)
        rc = merge_check(&values, &rest, &err);
    if (rc == 0 && values.reduced) {
        rc = merge_go_reduced(&values, &rest, &code, &err);
    } else if (rc == 0) {
        values.common.output = values.common.output ? values.common.output : "run.db";
        rc = merge_go(&values, rest.positional[0], command_line, &code, &err);
    }
    free(command_line);
    return program_judge(rc, (int)code, &err);
}

const struct verb verb_merge = {
        .name = "merge",
        .summary =
                "Put the shards of a job's ranks into one store, and say which rank the others waited for.",
        .usage = merge_usage,
        .options = merge_options,
        .examples = merge_examples,
        .exit_codes = merge_exit_codes,
        .positional_min = 1,
        .positional_max = SCAN_SHARDS_MAX,
        .run = cmd_merge,
};
