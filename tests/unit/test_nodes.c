// SPDX-License-Identifier: Apache-2.0
// What nodes say to each other, with what somebody else has written into their files; and which
// steps of a pair on several nodes count. Node 1 is a child here, or a file.
#include "harness/run/nodes/nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/run/pair_internal.h"
#include "tests/unit/runner.h"

static char made_dir[64], made_run[80];

// what is missing is waited for so long, and what is on its way
enum { SHORTLY_MS = 300, LONG_MS = 60000 };

// How long the others are waited for, and each of their answers.
static struct nodes_opts made_opts(int node, int64_t wait_ms, int64_t handover_ms)
{
    return (struct nodes_opts){.dir = made_run,
            .node = node,
            .count = 2,
            .master = node ? "other" : "first",
            .identity = "plan 1",
            .wait_ns = wait_ms * 1000000,
            .handover_ns = handover_ms * 1000000};
}

static void made_begin(void)
{
    snprintf(made_dir, sizeof made_dir, "/tmp/upgate-test-nodes-XXXXXX");
    CHECK(mkdtemp(made_dir) != NULL);
    snprintf(made_run, sizeof made_run, "%s/run", made_dir);
}

static void made_end(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", made_dir);
    CHECK_INT(system(command), 0);
}

static char *made_path(int node)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/node-%d.log", made_run, node);
    return path;
}

static void made_write(int node, const char *mode, const char *text)
{
    FILE *file = fopen(made_path(node), mode);
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

// In the child: its exit code is how far it came.
static pid_t made_other(int (*live)(struct nodes *nodes))
{
    pid_t pid = fork();
    if (pid)
        return pid;
    struct nodes_opts opts = made_opts(1, LONG_MS, LONG_MS);
    struct nodes *nodes = NULL;
    struct error err = {0};
    if (nodes_open(&opts, &nodes, &err)) {
        fprintf(stderr, "node 1: %s\n", err.text);
        _exit(100);
    }
    _exit(live(nodes));
}

static int made_status(pid_t pid)
{
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int live_one_pair(struct nodes *nodes)
{
    const json_t *order = NULL;
    int exit_code = 0;
    struct error err = {0};
    if (strcmp(nodes_master(nodes), "first") != 0 ||
            nodes_next(nodes, &order, &exit_code, &err) != 1)
        return 101;
    nodes_fail(nodes, 1, "exited with 5");
    if (nodes_answer(nodes, json_pack("{sO}", "echo", order), &err) ||
            nodes_next(nodes, &order, &exit_code, &err) != 0)
        return 102;
    return exit_code;
}

TEST(a_pair_is_ordered_answered_and_ends)
{
    made_begin();
    pid_t other = made_other(live_one_pair);
    struct nodes_opts opts = made_opts(0, LONG_MS, LONG_MS);
    struct nodes *nodes = NULL;
    struct error err = {0};
    char *why = NULL;
    CHECK_INT(nodes_open(&opts, &nodes, &err), 0);
    CHECK_INT(nodes_order(nodes, json_pack("{si}", "seed", 7), &why, &err), 0);
    const json_t *answer = nodes_wait_answer(nodes, 1);
    CHECK_INT(json_integer_value(json_object_get(json_object_get(answer, "echo"), "seed")), 7);
    CHECK_STR(nodes_failed(nodes, 1), "node 1: exited with 5");
    CHECK(nodes_failed(nodes, 0) == NULL);
    nodes_end(nodes, 42);
    CHECK_INT(made_status(other), 42);
    nodes_close(nodes);
    made_end();
}

static int live_silent(struct nodes *nodes)
{
    (void)nodes;
    return 0;
}

TEST(who_does_not_answer_is_named_and_garbage_is_no_answer)
{
    made_begin();
    pid_t other = made_other(live_silent);
    struct nodes_opts opts = made_opts(0, LONG_MS, SHORTLY_MS);
    struct nodes *nodes = NULL;
    struct error err = {0};
    char *why = NULL;
    CHECK_INT(nodes_open(&opts, &nodes, &err), 0);
    CHECK_INT(made_status(other), 0);
    // the last line is not ended
    made_write(1, "a", "no JSON\n[1]\n{\"n\":\"one\",\"begun\":true}\n{\"n\":1,\"begun\":true}");
    CHECK_INT(nodes_order(nodes, json_object(), &why, &err), 1);
    CHECK_CONTAINS(why, "node 1 of 2 did not answer within 300 ms");
    free(why);
    made_write(1, "a", "\n{\"n\":2,\"begun\":true}\n");
    CHECK_INT(nodes_order(nodes, json_object(), &why, &err), 0); // number 2
    CHECK(nodes_wait_answer(nodes, 1) == NULL);
    made_write(1, "a", "{\"n\":2,\"fail\":-1,\"why\":\"no \\u001b[31mspace\"}\n{\"end\":4}\n");
    CHECK_STR(nodes_failed(nodes, 0), "node 1: no ?[31mspace");
    CHECK_INT(nodes_order(nodes, json_object(), &why, &err), 1);
    CHECK_STR(why, "node 1 of 2 has ended: no ?[31mspace");
    free(why);
    nodes_close(nodes);
    made_end();
}

TEST(an_earlier_run_is_not_obeyed)
{
    made_begin();
    struct nodes_opts opts = made_opts(1, 400, SHORTLY_MS);
    struct nodes *nodes = NULL;
    struct error err = {0};
    char path[80];
    snprintf(path, sizeof path, "mkdir %s", made_run);
    CHECK_INT(system(path), 0);
    made_write(0, "w",
            "{\"here\":true,\"node\":0,\"count\":2,\"nonce\":\"old\",\"identity\":\"plan 1\",\"master\":\"x\"}\n"
            "{\"all\":[\"old\",\"older\"]}\n{\"end\":0}\n");
    CHECK_INT(nodes_open(&opts, &nodes, &err), -ETIMEDOUT);
    CHECK_CONTAINS(err.text, "node 0 did not come within 400 ms");
    CHECK(access(made_path(1), F_OK) != 0);
    made_write(1, "w", "");
    CHECK_INT(nodes_open(&opts, &nodes, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "this run has been started before");
    CHECK(access(made_path(1), F_OK) == 0);
    made_end();
}

// Nobody may have been told yet that this node has come. arg: a text, with which it fails; NULL: it
// does not.
static int made_prepare(void *arg, struct error *err)
{
    char said[8];
    FILE *file = fopen(made_path(1), "r");
    CHECK(file != NULL);
    CHECK(fgets(said, sizeof said, file) == NULL);
    fclose(file);
    return arg ? error_set(err, -EIO, "%s", (const char *)arg) : 0;
}

TEST(a_node_comes_once_it_is_prepared)
{
    made_begin();
    struct nodes_opts opts = made_opts(1, LONG_MS, LONG_MS);
    struct nodes *nodes = NULL;
    struct error err = {0};
    pid_t other = fork();
    if (!other) { // node 0
        struct nodes_opts first = made_opts(0, LONG_MS, LONG_MS);
        _exit(nodes_open(&first, &nodes, &err) ? 100 : 0);
    }
    opts.prepare = made_prepare;
    CHECK_INT(nodes_open(&opts, &nodes, &err), 0);
    CHECK_INT(made_status(other), 0);
    nodes_close(nodes);
    made_end();
}

TEST(who_cannot_prepare_itself_says_why)
{
    static const int stop = 2;
    static char why[] = "failed to get image 'r/\xffx\x1b[31mtrain'";
    made_begin();
    struct nodes_opts opts = made_opts(1, LONG_MS, LONG_MS), first = made_opts(0, LONG_MS, LONG_MS);
    struct nodes *nodes = NULL;
    struct error err = {0};
    opts.prepare = made_prepare;
    opts.arg = why;
    opts.stop = &stop; // by a signal: it is told to nobody, and nothing is left
    CHECK_INT(nodes_open(&opts, &nodes, &err), -EINTR);
    CHECK(access(made_path(1), F_OK) != 0);
    opts.stop = NULL;
    CHECK_INT(nodes_open(&opts, &nodes, &err), -EIO);
    CHECK_STR(err.text, why);
    CHECK_INT(nodes_open(&first, &nodes, &err), -ECANCELED); // at once
    CHECK_STR(err.text, "node 1 cannot take part: failed to get image 'r/?x?[31mtrain'");
    CHECK(access(made_path(0), F_OK) != 0 && access(made_path(1), F_OK) == 0);
    CHECK_INT(nodes_open(&opts, &nodes, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "this run has been started before");
    made_end();
}

TEST(nodes_of_two_minds_do_not_begin)
{
    static const struct {
        const char *here, *text;
    } cases[] = {
            {"{\"here\":true,\"node\":1,\"count\":2,\"nonce\":\"a\",\"identity\":\"plan 2\"}\n",
                    "another plan, seed or version"},
            {"{\"here\":true,\"node\":1,\"count\":3,\"nonce\":\"a\",\"identity\":\"plan 1\"}\n",
                    "one of 3 nodes"},
            {"{\"here\":true,\"node\":7,\"count\":2,\"nonce\":\"a\",\"identity\":\"plan 1\"}\n",
                    "start all with the same launcher"},
            {"{\"here\":true}\n", "one of 0 nodes"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        made_begin();
        struct nodes_opts opts = made_opts(0, 400, SHORTLY_MS);
        struct nodes *nodes = NULL;
        struct error err = {0};
        char path[80];
        snprintf(path, sizeof path, "mkdir %s", made_run);
        CHECK_INT(system(path), 0);
        made_write(1, "w", cases[i].here);
        CHECK_INT(nodes_open(&opts, &nodes, &err), -EINVAL);
        CHECK_CONTAINS(err.text, cases[i].text);
        made_end();
    }
}

TEST(the_first_step_of_a_block_does_not_count)
{
    struct pair pair = {0};
    struct pair_block blocks[6];
    struct samples_step steps[2][22];
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < 22; i++) // two ranks, 11 steps each
            steps[side][i] =
                    (struct samples_step){.slot = (uint32_t)(i / 11), .idx = (uint32_t)(i % 11)};
        const struct {
            int first, steps;
        } of[3] = {{0, 1}, {1, 4}, {5, 4}};
        for (int k = 0; k < 3; k++)
            blocks[2 * k + side] = (struct pair_block){
                    .couple = k, .side = side, .first_step = of[k].first, .steps = of[k].steps};
        pair.samples[side].steps = steps[side];
        pair.samples[side].step_count = 22;
    }
    pair.blocks = blocks;
    pair.block_count = 6;
    pair_skip_borders(&pair);
    // of 9 on nobody has a turn: its first step is a border, too
    static const uint32_t kept[] = {0, 2, 3, 4, 6, 7, 8, 10};
    CHECK_INT(pair.samples[1].step_count, 16);
    for (size_t i = 0; i < 16; i++)
        CHECK_INT(steps[1][i].idx, kept[i % 8]);
    CHECK_INT(blocks[0].first_step, 0);
    CHECK_INT(blocks[0].steps, 1);
    CHECK_INT(blocks[3].first_step, 2);
    CHECK_INT(blocks[3].steps, 3);
    CHECK_INT(blocks[5].first_step, 6);
}
