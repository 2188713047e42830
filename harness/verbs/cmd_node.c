// SPDX-License-Identifier: Apache-2.0
// `upgate node`: one node of an A/B on several, under whatever launcher starts it on each. Reads
// options and the plan, finds out which node it is, and hands both to the session
// (harness/run/nodes). Node 0 prints the verdict, all exit with its code.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/containers/hash.h"
#include "common/log.h"
#include "common/options.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#include "harness/rank/identity.h"
#include "harness/run/nodes/nodes.h"
#include "harness/run/session.h"
#include "harness/run/session_store.h"
#include "harness/verbs/command_line.h"
#include "harness/verbs/program.h"
#include "reports/render/render.h"

struct node_values {
    const char *run, *master;
    int64_t wait_ns;
    struct options_common common;
};

enum { NODE_WAIT_UNSAID = -1 };

extern const struct verb verb_node;

static const struct option_spec node_options[] = {
        // Not --run: torchrun takes that for its own --run-path, wherever it stands.
        {"Node", 0, "job", OPTION_TEXT, "NAME", NULL, "the launcher's name of the job",
                "name of the run, a directory in DIR: the same on every node, new for each start",
                offsetof(struct node_values, run), 0, 0, 0},
        // Not --master, which torchrun takes for its --master-addr.
        {NULL, 0, "host", OPTION_TEXT, "HOST", NULL, "MASTER_ADDR, else the host name",
                "where the other nodes reach node 0: {master} and MASTER_ADDR of both sides",
                offsetof(struct node_values, master), 0, 0, 0},
        {NULL, 0, "wait", OPTION_DURATION, "TIME", NULL, "60s, 10min where a side is an image",
                "how long nodes wait for each other at the start",
                offsetof(struct node_values, wait_ns), 0, 0, 0},
        OPTIONS_COMMON_SEED(struct node_values, common, "DIR",
                "directory that all nodes share: DIR/RUN/run.db", NULL),
        {.name = NULL}};

static const char *const node_usage[] = {"node PLAN.yaml -o DIR [--job NAME]", NULL};

static const char *const node_examples[] = {
        "srun --ntasks-per-node 1 upgate node plan.yaml -o /shared/ab",
        "on each node of a Slurm job",
        "torchrun --nnodes 4 --nproc-per-node 1 --no-python upgate node plan.yaml -o /shared/ab",
        "under torchrun, with its options of a rendezvous",
        "mpirun -np 4 --map-by ppr:1:node upgate node plan.yaml -o /shared/ab",
        "under Open MPI",
        "RANK=1 WORLD_SIZE=4 upgate node plan.yaml -o /shared/ab --job nightly --host node0",
        "without a launcher, each node by hand",
        "upgate report /shared/ab/nightly/run.db -o run.html",
        "afterwards: the store of node 0 has the ranks of all nodes",
        NULL,
};

static const char node_exit_codes[] =
        "  0  pass: every gating cell is shown to be within its margin, on all nodes\n"
        "  1  fail: a regression beyond its margin, a numerical difference, a candidate that crashes\n"
        "  2  usage, invalid plan, nodes with different plans, or a run that exists already\n"
        "  3  inconclusive: interrupted, a node lost, not enough evidence, or evidence that cannot be trusted\n"
        "  4  operational failure: a node did not come, a side could not be started, disk full, no permission\n";

static int node_check(
        const struct node_values *values, const struct identity *identity, struct error *err)
{
    if (!values->common.output || !*values->common.output)
        return error_set(err, -EINVAL,
                "no directory for the run: name one that all nodes share with -o DIR");
    if (values->run && !*values->run)
        return error_set(err, -EINVAL, "option '--job': the name is empty");
    if (values->wait_ns == 0)
        return error_set(err, -EINVAL, "option '--wait': it must be longer than 0");
    if (!identity->launcher.launcher)
        return error_set(err, -EINVAL,
                "no launcher says which node this is: start it by srun, torchrun or mpirun, once a node, or set "
                "RANK and WORLD_SIZE; for one machine there is `upgate ab`");
    return 0;
}

static int node_plan(const char *path, const struct node_values *values, struct plan **ret_plan,
        struct error *err)
{
    int rc = plan_load(path, ret_plan, err);
    if (rc)
        return rc;
    struct plan *plan = *ret_plan;
    if (values->common.seed_given)
        plan->schedule.seed = values->common.seed;
    for (int i = 0; i < plan->workload_count; i++)
        if (session_interleave(plan, &plan->workloads[i]) == PLAN_INTERLEAVE_SLICES)
            return error_set(err, -EINVAL,
                    "workload '%s' has interleave: slices, and a node that is frozen holds up the others; take "
                    "steps, launches or auto",
                    plan->workloads[i].name);
    return 0;
}

// One node has an image, another one pulls it.
static int64_t node_wait_ns(const struct node_values *values, const struct plan *plan)
{
    bool pulls = plan->sides[0].image || plan->sides[1].image;
    return values->wait_ns != NODE_WAIT_UNSAID ? values->wait_ns
                                               : (pulls ? 600 : 60) * 1000000000LL;
}

// What must be the same on all nodes: the plan with every default filled in, and the program.
static char *node_identity(const struct plan *plan)
{
    json_t *json = plan_to_json(plan);
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    char *identity = xasprintf("%s %016llx", UPGATE_VERSION,
            (unsigned long long)hash_bytes(0, text ? text : "", text ? strlen(text) : 0));
    free(text);
    json_decref(json);
    return identity;
}

// Of this start: a job that Slurm has put back into its queue has the name that it had, and what it
// left then stays.
static char *node_directory(const struct node_values *values, const struct identity *identity)
{
    const struct launcher_rank *rank = &identity->launcher;
    return rank->restart && strcmp(rank->launcher, "Slurm") == 0
            ? xasprintf("%s/%s-requeue%d", values->common.output, identity->run, (int)rank->restart)
            : xasprintf("%s/%s", values->common.output, identity->run);
}

static int node_session(const struct node_values *values, const struct identity *identity,
        const struct plan *plan, json_t *command_line, enum exit_code *ret_exit, struct error *err)
{
    const struct launcher_rank *rank = &identity->launcher;
    const char *said = getenv("MASTER_ADDR");
    char *dir = node_directory(values, identity), *text = node_identity(plan);
    char *path = rank->rank ? xasprintf("%s/node-%d.db", dir, (int)rank->rank)
                            : xasprintf("%s/run.db", dir);
    const struct nodes_opts nodes = {.dir = dir,
            .node = rank->rank,
            .count = rank->ranks,
            .master = values->master ? values->master
                    : said && *said  ? said
                                     : identity->host,
            .identity = text,
            .wait_ns = node_wait_ns(values, plan),
            .handover_ns = plan->schedule.handover_ns};
    struct nodes *open = NULL;
    const struct session_opts opts = {.plan = plan,
            .store_path = path,
            .nodes = &nodes,
            .ret_nodes = &open,
            .progress = !values->common.quiet && rank->rank == 0,
            .command_line = command_line};
    struct store *store = NULL;
    int rc = 0;
    if (rank->local_ranks > 1)
        log_warn(
                "the launcher has started `upgate node` %d times on this machine: start it once, and the ranks of the job by the plan's command",
                (int)rank->local_ranks);
    if (values->common.dry_run)
        log_info("would be node %d of %d (%s, run '%s'), with node 0 at '%s', and write '%s'",
                (int)rank->rank, (int)rank->ranks, rank->launcher, identity->run, nodes.master,
                path);
    else
        rc = session_run(&opts, &store, ret_exit, err);
    if (rc == 0 && store && rank->rank == 0)
        rc = render_stdout(store, &values->common, err);
    else if (rc == 0 && store)
        log_info("node %d of %d has ended; the verdict is in '%s/run.db'", (int)rank->rank,
                (int)rank->ranks, dir);
    if (rc == 0 && values->common.dry_run)
        *ret_exit = EXIT_CODE_PASS;
    // Not before it is printed: launchers end all nodes as soon as one has exited with another code
    // than 0.
    fflush(stdout);
    if (open)
        nodes_end(open, rc ? error_exit_code(rc) : (int)*ret_exit);
    nodes_close(open);
    store_close(store);
    free(dir);
    free(path);
    free(text);
    return rc;
}

static int cmd_node(int argc, char **argv)
{
    struct node_values values = {.wait_ns = NODE_WAIT_UNSAID, .common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct identity identity;
    struct error err = {0};
    struct plan *plan = NULL;
    json_t *command_line = command_line_json(argc, argv);
    enum exit_code exit_code = EXIT_CODE_INCONCLUSIVE;
    int rc = program_parse(&verb_node, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0) {
        json_decref(command_line);
        return EXIT_CODE_PASS;
    }
    identity_find(values.run, &identity);
    if (rc == 0)
        rc = node_check(&values, &identity, &err);
    if (rc == 0)
        rc = node_plan(rest.positional[0], &values, &plan, &err);
    if (rc == 0)
        rc = node_session(&values, &identity, plan, command_line, &exit_code, &err);
    if (rc)
        log_error("%s", err.text);
    plan_free(plan);
    json_decref(command_line);
    if (rc == -EINTR) // while it waited for the others
        return EXIT_CODE_INCONCLUSIVE;
    return rc ? error_exit_code(rc) : (int)exit_code;
}

const struct verb verb_node = {
        .name = "node",
        .summary =
                "Run this node's part of an A/B on several nodes; started once on each, under any launcher.",
        .usage = node_usage,
        .options = node_options,
        .examples = node_examples,
        .exit_codes = node_exit_codes,
        .positional_min = 1,
        .positional_max = 1,
        .run = cmd_node,
};
