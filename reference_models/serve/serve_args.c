// SPDX-License-Identifier: Apache-2.0
// Parses the command line of upgate-serve with getopt_long.
#include "reference_models/serve/serve_args.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/strings.h"
#include "common/units.h"
#include "contracts/exit_code.h"

enum serve_option {
    SERVE_MODEL = 256,
    SERVE_SIZE,
    SERVE_SEED,
    SERVE_NAME,
    SERVE_FILE,
    SERVE_MODELS,
    SERVE_HOST,
    SERVE_PORT,
    SERVE_SIDE,
    SERVE_WORKERS,
    SERVE_BATCH,
    SERVE_WAIT,
    SERVE_QUEUE,
    SERVE_CONNECTIONS,
    SERVE_STUCK,
    SERVE_DELAY,
    SERVE_TIMEOUT,
    SERVE_HELP
};

static const struct option serve_options[] = {
        {"model", required_argument, NULL, SERVE_MODEL},
        {"size", required_argument, NULL, SERVE_SIZE},
        {"seed", required_argument, NULL, SERVE_SEED},
        {"name", required_argument, NULL, SERVE_NAME},
        {"model-file", required_argument, NULL, SERVE_FILE},
        {"models", required_argument, NULL, SERVE_MODELS},
        {"host", required_argument, NULL, SERVE_HOST},
        {"port", required_argument, NULL, SERVE_PORT},
        {"side", required_argument, NULL, SERVE_SIDE},
        {"workers", required_argument, NULL, SERVE_WORKERS},
        {"max-batch", required_argument, NULL, SERVE_BATCH},
        {"max-wait", required_argument, NULL, SERVE_WAIT},
        {"queue", required_argument, NULL, SERVE_QUEUE},
        {"connections", required_argument, NULL, SERVE_CONNECTIONS},
        {"stuck", required_argument, NULL, SERVE_STUCK},
        {"drain-delay", required_argument, NULL, SERVE_DELAY},
        {"drain-timeout", required_argument, NULL, SERVE_TIMEOUT},
        {"help", no_argument, NULL, SERVE_HELP},
        {NULL, 0, NULL, 0},
};
#define SERVE_OPTIONS (sizeof serve_options / sizeof *serve_options - 1)

static const char serve_help[] =
        "upgate-serve: a reference model behind HTTP\n\n"
        "usage: upgate-serve [--model dlrm|transformer] [--port N] [options]\n\n"
        "  --model dlrm|transformer  what is served (dlrm)\n"
        "  --size small|demo|large   its shape (small)\n"
        "  --seed S                  of its weights (1)\n"
        "  --name NAME               in answers (MODEL-SIZE-SEED)\n"
        "  --model-file FILE         model, size, seed and name from this file of --models\n"
        "  --models DIR              folder of model files, for --model-file and POST /reload (.)\n"
        "  --host ADDRESS            IPv4 (127.0.0.1)\n"
        "  --port N                  0 = a free one (0)\n"
        "  --side NAME               header x-upgate-side of every answer (native)\n"
        "  --workers N               threads, each with a copy of the model, 1 to 64 (1)\n"
        "  --max-batch N             requests computed together at most, 1 to 4096 (32)\n"
        "  --max-wait TIME           of the oldest request of a batch that is not full (1ms)\n"
        "  --queue N                 requests that may wait; more are answered 503 (4096)\n"
        "  --connections N           open at the same time at most (4096)\n"
        "  --stuck TIME              a request that waits longer: /health is 503 (5s)\n"
        "  --drain-delay TIME        after SIGTERM: not ready, but still accepting (2s)\n"
        "  --drain-timeout TIME      then: for what is in flight (30s)\n\n"
        "PLANT_SERVE=KIND[:VALUE][,KIND...] plants faults:\n" PLANTS_HELP "\n"
        "exit codes: 0 drained, 2 wrong argument, 4 could not serve, or requests were not finished\n";

static const char *serve_option_name(int option)
{
    for (const struct option *known = serve_options; known->name; known++) {
        if (known->val == option)
            return known->name;
    }
    return "?";
}

static int serve_refuse(char **argv, int found, struct error *err)
{
    const char *word = argv[optind - 1];
    if (found == ':')
        return error_set(err, -EINVAL, "'%s' needs a value", word);
    const char *names[SERVE_OPTIONS];
    for (size_t i = 0; i < SERVE_OPTIONS; i++)
        names[i] = serve_options[i].name;
    const char *nearest = string_nearest(word + strspn(word, "-"), names, SERVE_OPTIONS);
    return error_set(err, -EINVAL, "unknown option '%s'%s%s", word, nearest ? "; nearest: --" : "",
            nearest ? nearest : "");
}

static int serve_side(const char *value, struct serve_args *args, struct error *err)
{
    size_t len = strlen(value);
    bool plain = len > 0 && len < 64;
    for (size_t i = 0; plain && i < len; i++)
        plain = isgraph((unsigned char)value[i]) && !strchr("\"\\", value[i]);
    if (!plain)
        return error_set(err, -EINVAL, "1 to 63 printable characters without quotes are accepted");
    args->server.side = value;
    return 0;
}

struct serve_words { // what makes the choice of a model
    const char *model, *size, *name, *file;
};

static int serve_set(int option, const char *value, struct serve_args *args,
        struct serve_words *words, struct error *err)
{
    uint64_t number = 0;
    int rc = 0;
    switch (option) {
    case SERVE_MODEL:
        words->model = value;
        return 0;
    case SERVE_SIZE:
        words->size = value;
        return 0;
    case SERVE_SEED:
        return unit_parse_uint(value, 0, INT64_MAX, &args->choice.seed, err);
    case SERVE_NAME:
        words->name = value;
        return 0;
    case SERVE_FILE:
        words->file = value;
        return 0;
    case SERVE_MODELS:
        args->server.models = value;
        return 0;
    case SERVE_HOST:
        args->server.host = value;
        return 0;
    case SERVE_PORT:
        rc = unit_parse_uint(value, 0, 65535, &number, err);
        args->server.port = (uint16_t)number;
        return rc;
    case SERVE_SIDE:
        return serve_side(value, args, err);
    case SERVE_WORKERS:
        return unit_parse_uint(value, 1, 64, &args->workers, err);
    case SERVE_BATCH:
        rc = unit_parse_uint(value, 1, 4096, &number, err);
        args->batch.batch_max = (size_t)number;
        return rc;
    case SERVE_WAIT:
        return unit_parse_duration(value, &args->batch.wait_ns, err);
    case SERVE_QUEUE:
        rc = unit_parse_uint(value, 1, 1 << 20, &number, err);
        args->batch.queue_max = (size_t)number;
        return rc;
    case SERVE_CONNECTIONS:
        rc = unit_parse_uint(value, 1, 1 << 20, &number, err);
        args->server.connections_max = (unsigned)number;
        return rc;
    case SERVE_STUCK:
        return unit_parse_duration(value, &args->server.stuck_ns, err);
    case SERVE_DELAY:
        return unit_parse_duration(value, &args->drain_delay_ns, err);
    default:
        return unit_parse_duration(value, &args->drain_timeout_ns, err);
    }
}

static int serve_choose(struct serve_args *args, const struct serve_words *words, struct error *err)
{
    if (words->file)
        return model_choice_load(args->server.models, words->file, &args->choice, err);
    int rc = model_choice_set(&args->choice, words->model, words->size, err);
    if (rc)
        return rc;
    char made[REQUEST_MODEL_MAX];
    snprintf(made, sizeof made, "%s-%s-%" PRIu64, words->model, words->size, args->choice.seed);
    return model_choice_name(&args->choice, words->name ? words->name : made, err);
}

static int serve_parse(
        int argc, char **argv, struct serve_args *args, bool *ret_help, struct error *err)
{
    struct serve_words words = {.model = "dlrm", .size = "small"};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", serve_options, NULL)) != -1) {
        if (option == '?' || option == ':')
            return serve_refuse(argv, option, err);
        *ret_help = option == SERVE_HELP;
        if (*ret_help)
            return 0;
        if (serve_set(option, optarg, args, &words, err))
            return error_prefix(err, "failed to read --%s", serve_option_name(option));
    }
    if (optind < argc)
        return error_set(
                err, -EINVAL, "'%s' is no option; every argument has a --name", argv[optind]);
    return serve_choose(args, &words, err);
}

bool serve_args_begin(int argc, char **argv, struct serve_args *ret_args, int *ret_exit)
{
    *ret_args = (struct serve_args){
            .choice = {.seed = 1},
            .batch = {.batch_max = 32, .wait_ns = 1000000, .queue_max = 4096},
            .server = {.host = "127.0.0.1",
                    .side = "native",
                    .models = ".",
                    .stuck_ns = INT64_C(5000000000),
                    .connections_max = 4096},
            .workers = 1,
            .drain_delay_ns = INT64_C(2000000000),
            .drain_timeout_ns = INT64_C(30000000000),
    };
    struct error err = {0};
    bool help = false;
    int rc = serve_parse(argc, argv, ret_args, &help, &err);
    if (rc) {
        fprintf(stderr, "upgate-serve: %s; try `upgate-serve --help`\n", err.text);
        *ret_exit = error_exit_code(rc);
        return false;
    }
    if (help)
        fputs(serve_help, stdout);
    *ret_exit = EXIT_CODE_PASS;
    return !help;
}
