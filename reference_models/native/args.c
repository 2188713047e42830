// SPDX-License-Identifier: Apache-2.0
// Parses the command line of the reference workloads with getopt_long. Writes help to stdout and
// nothing else; messages are returned.
#include "reference_models/native/args.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "common/strings.h"
#include "common/units.h"
#include "contracts/exit_code.h"
#include "reference_models/native/row_cache.h"
#include "reference_models/native/text.h"

static const char *const args_modes[] = {"train", "infer"};
static const char *const args_devices[] = {"cpu", "cuda"};
static const char *const args_dtypes[] = {"float32", "float64"};
static const char *const args_sizes[MODEL_SIZE_COUNT] = {"small", "demo", "large"};
static const char *const args_names[] = {"mode", "steps", "seed", "ranks", "rate", "dtype",
        "device", "decode", "cache", "budget", "threads", "size", "plant", "text", "help"};

enum args_option {
    ARGS_MODE = 256,
    ARGS_STEPS,
    ARGS_SEED,
    ARGS_RANKS,
    ARGS_RATE,
    ARGS_DTYPE,
    ARGS_DEVICE,
    ARGS_DECODE,
    ARGS_CACHE,
    ARGS_BUDGET,
    ARGS_THREADS,
    ARGS_SIZE,
    ARGS_PLANT,
    ARGS_TEXT,
    ARGS_HELP
};

static const struct option args_options[] = {
        {"mode", required_argument, NULL, ARGS_MODE},
        {"steps", required_argument, NULL, ARGS_STEPS},
        {"seed", required_argument, NULL, ARGS_SEED},
        {"ranks", required_argument, NULL, ARGS_RANKS},
        {"rate", required_argument, NULL, ARGS_RATE},
        {"dtype", required_argument, NULL, ARGS_DTYPE},
        {"device", required_argument, NULL, ARGS_DEVICE},
        {"decode", required_argument, NULL, ARGS_DECODE},
        {"cache", required_argument, NULL, ARGS_CACHE},
        {"budget", required_argument, NULL, ARGS_BUDGET},
        {"threads", required_argument, NULL, ARGS_THREADS},
        {"size", required_argument, NULL, ARGS_SIZE},
        {"plant", required_argument, NULL, ARGS_PLANT},
        {"text", required_argument, NULL, ARGS_TEXT},
        {"help", no_argument, NULL, ARGS_HELP},
        {NULL, 0, NULL, 0},
};

const char *args_size_name(enum model_size size)
{
    return args_sizes[size];
}

static int args_choice(
        const char *text, const char *const *choices, size_t count, size_t *ret, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, choices[i]) == 0) {
            *ret = i;
            return 0;
        }
    }
    const char *nearest = string_nearest(text, choices, count);
    return error_set(
            err, -EINVAL, "'%s' is unknown; nearest: %s", text, nearest ? nearest : choices[0]);
}

static int args_budget(const char *value, uint64_t *ret_bytes, struct error *err)
{
    int rc = unit_parse_bytes(value, ret_bytes, err);
    if (rc == 0 && *ret_bytes < 1)
        return error_set(err, -EINVAL, "must be at least 1 byte, not %s", value);
    return rc;
}

static int args_set(const struct args_program *program, int option, const char *value,
        struct args *args, struct error *err)
{
    size_t idx = 0;
    int rc = 0;
    switch (option) {
    case ARGS_MODE:
        rc = args_choice(value, args_modes, 2, &idx, err);
        args->train = idx == 0;
        return rc;
    case ARGS_STEPS:
        return unit_parse_uint(value, 1, ARGS_STEPS_MAX, &args->steps, err);
    case ARGS_SEED:
        return unit_parse_uint(value, 0, UINT64_MAX, &args->seed, err);
    case ARGS_RANKS:
        return unit_parse_uint(value, program->ranks_min, program->ranks_max, &args->ranks, err);
    case ARGS_RATE:
        return unit_parse_rate(value, &args->rate_per_s, err);
    case ARGS_DTYPE:
        rc = args_choice(value, args_dtypes, 2, &idx, err);
        args->real_bits = idx == 0 ? 32 : 64;
        return rc;
    case ARGS_DEVICE:
        rc = args_choice(value, args_devices, 2, &idx, err);
        args->cuda = idx == 1;
        if (rc == 0 && args->cuda && program->cpu_only)
            return error_set(
                    err, -EINVAL, "%s is the CPU's only: %s", program->name, program->cpu_only);
        if (rc == 0 && args->cuda && !program->cuda)
            return error_set(err, -EINVAL,
                    "this program has no CUDA; %s of reference_models/native-cuda has, which needs nvcc to build",
                    program->name);
        return rc;
    case ARGS_DECODE:
        return unit_parse_uint(value, 0, 1 << 20, &args->decode, err);
    case ARGS_CACHE:
        if (!program->cached)
            return error_set(err, -EINVAL, "only dlrm-cached has a cache of rows");
        return unit_parse_uint(value, 0, ROW_CACHE_SLOTS_MAX, &args->cache_rows, err);
    case ARGS_BUDGET:
        if (!program->budgeted)
            return error_set(err, -EINVAL, "only dlrm-sharded has tables to place");
        return args_budget(value, &args->budget_bytes, err);
    case ARGS_THREADS:
        return unit_parse_uint(value, 1, POOL_THREADS_MAX, &args->threads, err);
    case ARGS_SIZE:
        rc = args_choice(value, args_sizes, MODEL_SIZE_COUNT, &idx, err);
        args->size = (enum model_size)idx;
        return rc;
    case ARGS_PLANT:
        return plant_parse(value, &args->plant, err);
    case ARGS_TEXT:
        args->text_path = value;
        return 0;
    default:
        args->help = true;
        return 0;
    }
}

static const char *args_option_name(int option)
{
    for (const struct option *known = args_options; known->name; known++) {
        if (known->val == option)
            return known->name;
    }
    return "?";
}

// getopt has said only that argv[optind - 1] is wrong; say what would be right.
static int args_refuse(char **argv, int found, struct error *err)
{
    const char *word = argv[optind - 1];
    if (found == ':')
        return error_set(err, -EINVAL, "'%s' needs a value", word);
    const char *nearest = string_nearest(
            word + strspn(word, "-"), args_names, sizeof args_names / sizeof *args_names);
    return error_set(err, -EINVAL, "unknown option '%s'%s%s", word, nearest ? "; nearest: --" : "",
            nearest ? nearest : "");
}

int args_parse(const struct args_program *program, int argc, char **argv, struct args *ret_args,
        struct error *err)
{
    struct args args = {.train = true,
            .steps = 100,
            .seed = 1,
            .ranks = program->ranks_default,
            .real_bits = 32,
            .cuda = program->cuda,
            .threads = 1,
            .size = MODEL_SIZE_COUNT,
            .plant = PLANT_NONE};
    int option;
    optind = 0; // start afresh, also in a test that parses twice
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", args_options, NULL)) != -1) {
        if (option == '?' || option == ':')
            return args_refuse(argv, option, err);
        int rc = args_set(program, option, optarg, &args, err);
        if (rc)
            return error_prefix(err, "failed to read --%s", args_option_name(option));
    }
    if (optind < argc)
        return error_set(
                err, -EINVAL, "'%s' is no option; every argument has a --name", argv[optind]);
    if (args.train && args.rate_per_s > 0)
        return error_set(err, -EINVAL, "--rate is for --mode infer; training steps do not arrive");
    if (args.train && args.decode > 0)
        return error_set(err, -EINVAL,
                "--decode is for --mode infer; training sees all of a sequence at once");
    if (args.decode > 0 && !program->decodes)
        return error_set(err, -EINVAL, "--decode is the transformer's");
    if ((args.plant.root && !program->root) || (args.plant.buckets && !program->buckets))
        return error_set(err, -EINVAL,
                "'root' and 'buckets' are planted in ddp, 'root' in allreduce too; %s has nothing of the kind",
                program->name);
    if (args.size == MODEL_SIZE_COUNT)
        args.size = args.cuda ? MODEL_SIZE_LARGE : MODEL_SIZE_DEMO;
    if (args.cuda && args.plant.slow > 0)
        return error_set(err, -EINVAL,
                "slow:P%% repeats the CPU's work; a slower side on the GPU is one of another compiler");
    *ret_args = args;
    return 0;
}

void args_print_help(const struct args_program *program)
{
    printf("%s: %s\n\n"
           "usage: %s [--mode train|infer] [--steps N] [--seed S] [options]\n\n"
           "  --mode train|infer       training steps or requests (train)\n"
           "  --steps N                steps, or requests (100)\n"
           "  --seed S                 of the start values, the inputs and the arrivals (1)\n"
           "  --ranks R                processes, %llu to %llu (%llu)\n"
           "  --rate HZ                requests a second, open loop; 0 = closed loop (0)\n"
           "  --dtype float32|float64  type of all values (float32)\n"
           "  --device cpu|cuda        cuda: float32 parameters, bfloat16 products; needs native-cuda/ (%s)\n"
           "  --decode N               transformer, --mode infer: the last N bytes one at a time, with a cache (0)\n"
           "  --cache ROWS             dlrm-cached: rows in its cache; 0 = as many as the size has (0)\n"
           "  --budget BYTES           dlrm-sharded: memory of a rank for tables and their optimizer state (1.25 of an equal share)\n"
           "  --threads T              of each process, 1 to %d (1)\n"
           "  --size small|demo|large  shape of the model (demo; on CUDA large)\n"
           "  --text DIR               texts of the transformer (%s)\n"
           "  --plant SPEC[,SPEC...]   a fault to be found:\n  %s\n\n"
           "One line of JSON goes to stdout: model, mode, steps, samples, loss_first, loss_last,\n"
           "checksum; of dlrm-cached cache_hits, cache_misses, new_ids; of dlrm-sharded table_pieces,\n"
           "row_pieces, column_pieces. The same seed and threads give the same bits.\n\n"
           "exit codes: 0 done, 1 a result was wrong, 2 wrong argument, 4 the machine refused\n",
            program->name, program->summary, program->name, (unsigned long long)program->ranks_min,
            (unsigned long long)program->ranks_max, (unsigned long long)program->ranks_default,
            program->cuda ? "cuda" : "cpu", POOL_THREADS_MAX, TEXT_PATH_DEFAULT, PLANT_HELP);
}

bool args_begin(const struct args_program *program, int argc, char **argv, struct args *ret_args,
        int *ret_exit)
{
    struct error err = {0};
    int rc = args_parse(program, argc, argv, ret_args, &err);
    if (rc) {
        fprintf(stderr, "%s: %s; try `%s --help`\n", program->name, err.text, program->name);
        *ret_exit = error_exit_code(rc);
        return false;
    }
    if (ret_args->help) {
        args_print_help(program);
        *ret_exit = EXIT_CODE_PASS;
        return false;
    }
    return true;
}
