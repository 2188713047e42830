// SPDX-License-Identifier: Apache-2.0
// The command line of the reference workloads and the planted faults: what is accepted, what is
// refused in which words, and what the text of the transformer is made of.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reference_models/native/args.h"
#include "reference_models/native/text.h"
#include "runner.h"

static const struct args_program one = {
        .name = "dlrm", .summary = "a test", .ranks_default = 1, .ranks_min = 1, .ranks_max = 1};
static const struct args_program many = {.name = "allreduce",
        .summary = "a test",
        .ranks_default = 2,
        .ranks_min = 2,
        .ranks_max = 64,
        .root = true,
        .cpu_only = "its ranks share memory"};
static const struct args_program ddp = {.name = "ddp",
        .summary = "a test",
        .ranks_default = 2,
        .ranks_min = 1,
        .ranks_max = 64,
        .root = true,
        .buckets = true};
static const struct args_program decoder = {.name = "transformer",
        .summary = "a test",
        .ranks_default = 1,
        .ranks_min = 1,
        .ranks_max = 1,
        .decodes = true};
static const struct args_program cached = {.name = "dlrm-cached",
        .summary = "a test",
        .ranks_default = 1,
        .ranks_min = 1,
        .ranks_max = 1,
        .cached = true,
        .cpu_only = "its reason"};

static const struct args_program sharded = {.name = "dlrm-sharded",
        .summary = "a test",
        .ranks_default = 2,
        .ranks_min = 1,
        .ranks_max = 64,
        .budgeted = true};

// Splits at spaces; at most 31 words.
static int parse(
        const struct args_program *program, const char *line, struct args *args, struct error *err)
{
    char *copy = strdup(line), *rest = copy, *argv[32] = {0};
    int argc = 0;
    argv[argc++] = (char *)program->name;
    for (char *word; (word = strsep(&rest, " ")) && argc < 31;) {
        if (*word)
            argv[argc++] = word;
    }
    int rc = args_parse(program, argc, argv, args, err);
    free(copy);
    return rc;
}

TEST(defaults)
{
    struct args args;
    CHECK_INT(parse(&one, "", &args, NULL), 0);
    CHECK(args.train);
    CHECK_INT(args.steps, 100);
    CHECK_INT(args.ranks, 1);
    CHECK_INT(args.threads, 1);
    CHECK_INT(args.real_bits, 32);
    CHECK_INT(args.size, MODEL_SIZE_DEMO);
    CHECK_DBL(args.plant.slow, 0, 0);
    CHECK(args.plant.nan_step == UINT64_MAX && args.plant.exit_code == -1);
    CHECK_INT(parse(&many, "", &args, NULL), 0);
    CHECK_INT(args.ranks, 2);
}

TEST(everything)
{
    struct args args;
    CHECK_INT(parse(&many,
                      "--mode infer --steps 7 --seed 9 --ranks 3 --rate 200/s --dtype float64 "
                      "--threads 4 --size=large --plant slow:5%,leak:4K",
                      &args, NULL),
            0);
    CHECK(!args.train);
    CHECK_INT(args.steps, 7);
    CHECK_INT(args.seed, 9);
    CHECK_INT(args.ranks, 3);
    CHECK_DBL(args.rate_per_s, 200, 0);
    CHECK_INT(args.real_bits, 64);
    CHECK_INT(args.threads, 4);
    CHECK_INT(args.size, MODEL_SIZE_LARGE);
    CHECK_DBL(args.plant.slow, 0.05, 1e-12);
    CHECK_INT(args.plant.leak_bytes, 4096);
}

TEST(regressions)
{
    struct args args;
    CHECK_INT(parse(&ddp, "--plant op:bag_part:3%,fill:1.5%,lock:0.2,pool1,root,buckets", &args,
                      NULL),
            0);
    CHECK_STR(args.plant.op_name, "bag_part");
    CHECK_DBL(args.plant.op_share, 0.03, 1e-12);
    CHECK_INT(args.plant.op, POOL_OP_SLOW);
    CHECK_DBL(args.plant.share[PLANT_SHARE_FILL], 0.015, 1e-12);
    CHECK_DBL(args.plant.share[PLANT_SHARE_LOCK], 0.2, 1e-12);
    CHECK_DBL(args.plant.share[PLANT_SHARE_COPY], 0, 0);
    CHECK(args.plant.pool1 && args.plant.root && args.plant.buckets && !args.plant.nostep);
    CHECK_INT(parse(&one, "--plant unfuse:5%", &args, NULL), 0);
    CHECK_STR(args.plant.op_name, "bias_part");
    CHECK_INT(args.plant.op, POOL_OP_ADDED);
    CHECK_INT(parse(&one, "--plant replace:5%", &args, NULL), 0);
    CHECK_STR(args.plant.op_name, "gemm_rows");
    CHECK_INT(args.plant.op, POOL_OP_REPLACE);
}

static void check_refused(const struct args_program *program, const char *line, const char *words)
{
    struct args args = {.steps = 42};
    struct error err = {0};
    CHECK_INT(parse(program, line, &args, &err), -EINVAL);
    CHECK_CONTAINS(err.text, words);
    CHECK_INT(args.steps, 42); // untouched
}

TEST(refused)
{
    check_refused(&one, "--mode trian", "nearest: train");
    check_refused(&one, "--plant op:5%", "gemm_rows:5%");
    check_refused(&one, "--plant op::5%", "gemm_rows:5%");
    check_refused(&one, "--plant fill:0%", "out of range");
    check_refused(&one, "--plant pool1:3", "takes no value");
    check_refused(&one, "--plant syscalls:3%", "nearest: syscall");
    check_refused(&one, "--stepps 3", "nearest: --steps");
    check_refused(&one, "--steps 0", "--steps");
    check_refused(&one, "--steps -1", "whole number");
    check_refused(&one, "--steps", "needs a value");
    check_refused(&one, "--dtype fp32", "--dtype");
    check_refused(&one, "--size huge", "--size");
    check_refused(&one, "--threads 0", "out of range");
    check_refused(&one, "--ranks 2", "1 to 1");
    check_refused(&many, "--ranks 1", "2 to 64");
    check_refused(&many, "--ranks 65", "2 to 64");
    check_refused(&many, "--device cuda", "allreduce is the CPU's only: its ranks share memory");
    check_refused(&one, "--device cuda", "this program has no CUDA");
    check_refused(&one, "--plant buckets:3", "takes no value");
    check_refused(&one, "--mode infer --rate -3", "negative");
    check_refused(&one, "--mode train --rate 3", "--rate");
    check_refused(&one, "word", "'word'");
    check_refused(&one, "--plant slow", "needs a value");
    check_refused(&one, "--plant slow:0%", "out of range");
    check_refused(&one, "--plant slow:fast", "slow");
    check_refused(&one, "--plant lsow:5%", "nearest: slow");
    check_refused(&one, "--plant slow:5%,", "can be planted");
    check_refused(&one, "--plant exit:256", "out of range");
    check_refused(&one, "--plant nan:x", "nan");
    check_refused(&one, "--plant nostep:1", "no value");
}

// What would change nothing: a control that plants it would find nothing, and say so of upgate.
TEST(what_a_program_has_not)
{
    struct args args;
    CHECK_INT(parse(&many, "--plant root", &args, NULL), 0);
    CHECK(args.plant.root && !args.plant.buckets);
    CHECK_INT(parse(&decoder, "--mode infer --decode 3", &args, NULL), 0);
    CHECK_INT(args.decode, 3);
    CHECK_INT(parse(&many, "--mode infer --decode 0", &args, NULL), 0);
    check_refused(&one, "--plant root", "'root' in allreduce too; dlrm has nothing of the kind");
    check_refused(&one, "--plant slow:5%,buckets", "dlrm has nothing of the kind");
    check_refused(&many, "--plant buckets", "are planted in ddp");
    check_refused(&many, "--mode infer --decode 3", "--decode is the transformer's");
    check_refused(&decoder, "--decode 3", "--decode is for --mode infer");
}

TEST(rows_of_a_cache)
{
    struct args args;
    CHECK_INT(parse(&cached, "", &args, NULL), 0);
    CHECK_INT(args.cache_rows, 0);
    CHECK_INT(parse(&cached, "--cache 5000", &args, NULL), 0);
    CHECK_INT(args.cache_rows, 5000);
    check_refused(&cached, "--cache -5", "failed to read --cache");
    check_refused(&cached, "--cache 1073741825", "out of range");
    check_refused(&cached, "--cache", "needs a value");
    check_refused(&cached, "--device cuda", "dlrm-cached is the CPU's only: its reason");
    check_refused(&one, "--cache 5", "only dlrm-cached has a cache");
}

TEST(budget_of_a_rank)
{
    struct args args;
    CHECK_INT(parse(&sharded, "", &args, NULL), 0);
    CHECK_INT(args.budget_bytes, 0);
    CHECK_INT(parse(&sharded, "--budget 12M", &args, NULL), 0);
    CHECK_INT(args.budget_bytes, 12 << 20);
    check_refused(&sharded, "--budget 0", "must be at least 1 byte, not 0");
    check_refused(&sharded, "--budget -3", "failed to read --budget");
    check_refused(&sharded, "--budget much", "failed to read --budget");
    check_refused(&sharded, "--plant root", "dlrm-sharded has nothing of the kind");
    check_refused(&ddp, "--budget 12M", "only dlrm-sharded has tables to place");
}

TEST(plants)
{
    struct plant plant = PLANT_NONE;
    CHECK_INT(plant_parse("nan:3,crash:4,hang:5,leak:1M,coldstart:2.5,exit:0,nostep", &plant, NULL),
            0);
    CHECK_INT(plant.nan_step, 3);
    CHECK_INT(plant.crash_step, 4);
    CHECK_INT(plant.hang_step, 5);
    CHECK_INT(plant.leak_bytes, 1048576);
    CHECK_INT(plant.coldstart_ns, 2500000);
    CHECK_INT(plant.exit_code, 0);
    CHECK(plant.nostep);
}

TEST(plant_nan_in_its_step_only)
{
    struct plant plant = PLANT_NONE;
    CHECK(!plant_enter_step(&plant, 0));
    plant.nan_step = 2;
    CHECK(!plant_enter_step(&plant, 1));
    CHECK(plant_enter_step(&plant, 2));
    CHECK(!plant_enter_step(&plant, 3));
}

TEST(text_of_a_directory)
{
    char dir[] = "/tmp/upgate-text-XXXXXX", path[64], link[64];
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/b", dir);
    FILE *file = fopen(path, "w");
    for (size_t i = 0; i < TEXT_BYTES_MIN; i++)
        fputc('a' + (int)(i % 26), file);
    fclose(file);
    snprintf(link, sizeof link, "%s/a", dir);
    CHECK_INT(symlink(path, link), 0);
    struct text text;
    CHECK_INT(text_load(dir, &text, NULL), 0);
    CHECK(!text.generated);
    CHECK(!text.truncated);
    CHECK_INT(text.count, TEXT_BYTES_MIN); // the link's text only once
    CHECK(memcmp(text.bytes, "abcdefgh", 8) == 0);
    text_free(&text);
    unlink(link);
    unlink(path);
    CHECK_INT(text_load(dir, &text, NULL), 0); // empty now
    CHECK(text.generated);
    text_free(&text);
    rmdir(dir);
}

TEST(text_generated_repeats)
{
    struct text first, again;
    CHECK_INT(text_load("/nonexistent", &first, NULL), 0);
    CHECK_INT(text_load("/nonexistent", &again, NULL), 0);
    CHECK(first.generated);
    CHECK(first.count >= TEXT_BYTES_MIN);
    CHECK(first.count == again.count && memcmp(first.bytes, again.bytes, first.count) == 0);
    CHECK(memcmp(first.bytes, "The ", 4) == 0);
    text_free(&first);
    text_free(&again);
}
