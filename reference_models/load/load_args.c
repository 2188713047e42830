// SPDX-License-Identifier: Apache-2.0
// Parses the command line of upgate-load with getopt_long.
#include "reference_models/load/load_args.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/units.h"
#include "contracts/exit_code.h"

enum load_option {
    LOAD_RATE = 256,
    LOAD_CURVE,
    LOAD_SCALE,
    LOAD_DURATION,
    LOAD_REQUESTS,
    LOAD_ARRIVALS,
    LOAD_CONNECTIONS,
    LOAD_TIMEOUT,
    LOAD_SEED,
    LOAD_KIND,
    LOAD_FEATURES,
    LOAD_LONG,
    LOAD_POOL,
    LOAD_REFERENCE,
    LOAD_TOLERANCE,
    LOAD_GET,
    LOAD_OUTPUT,
    LOAD_LOG,
    LOAD_PROGRESS,
    LOAD_QUIET,
    LOAD_HELP
};

static const struct option load_options[] = {
        {"rate", required_argument, NULL, LOAD_RATE},
        {"curve", required_argument, NULL, LOAD_CURVE},
        {"scale", required_argument, NULL, LOAD_SCALE},
        {"duration", required_argument, NULL, LOAD_DURATION},
        {"requests", required_argument, NULL, LOAD_REQUESTS},
        {"arrivals", required_argument, NULL, LOAD_ARRIVALS},
        {"connections", required_argument, NULL, LOAD_CONNECTIONS},
        {"timeout", required_argument, NULL, LOAD_TIMEOUT},
        {"seed", required_argument, NULL, LOAD_SEED},
        {"kind", required_argument, NULL, LOAD_KIND},
        {"features", required_argument, NULL, LOAD_FEATURES},
        {"long", required_argument, NULL, LOAD_LONG},
        {"pool", required_argument, NULL, LOAD_POOL},
        {"reference", required_argument, NULL, LOAD_REFERENCE},
        {"tolerance", required_argument, NULL, LOAD_TOLERANCE},
        {"get", no_argument, NULL, LOAD_GET},
        {"output", required_argument, NULL, LOAD_OUTPUT},
        {"log", required_argument, NULL, LOAD_LOG},
        {"progress", no_argument, NULL, LOAD_PROGRESS},
        {"quiet", no_argument, NULL, LOAD_QUIET},
        {"help", no_argument, NULL, LOAD_HELP},
        {NULL, 0, NULL, 0},
};
#define LOAD_OPTIONS (sizeof load_options / sizeof *load_options - 1)

static const char load_help[] =
        "upgate-load: open-loop load with an account of every request at the client\n\n"
        "usage: upgate-load [--rate HZ | --curve FILE] [options] http://HOST:PORT[/score]\n\n"
        "  --rate HZ                requests a second (100/s)\n"
        "  --curve FILE             lines \"SECONDS RATE\", straight in between: a recorded day, replayed\n"
        "  --scale X                the rates of the curve times X (1)\n"
        "  --duration TIME          with --rate (10s; with --requests: until those are sent)\n"
        "  --requests N             so many at most\n"
        "  --arrivals poisson|even  gaps between requests (poisson)\n"
        "  --connections N          at the same time at most (256)\n"
        "  --timeout TIME           for an answer, from when the request is due (5s)\n"
        "  --seed S                 of arrivals and features (1)\n"
        "  --kind dlrm|transformer  of the features (as /health says)\n"
        "  --features LEAST..MOST   numbers of a request (as /health says)\n"
        "  --long P%                of the requests have the most features (5%)\n"
        "  --pool N                 feature lists that are drawn from (997: prime, so that each meets every side)\n"
        "  --reference SIDE         scores of this side are right: others are compared with them\n"
        "  --tolerance X            relative, of that comparison (1e-4)\n"
        "  --get                    GET without a body; only the status is checked\n"
        "  --output FILE            the account as JSON (stdout)\n"
        "  --log FILE               a CSV line for each request\n"
        "  --progress               a line a second on stderr\n"
        "  --quiet                  no account on stderr\n\n"
        "SIGINT and SIGTERM end the load; what is in flight is waited for.\n\n"
        "exit codes: 0 every request was answered rightly, 1 some were not, 2 wrong argument, 4 could not\n"
        "run\n";

struct load_words {
    double rate, scale;
    const char *curve;
    int64_t duration_ns; // 0: not given
    bool kind, features; // given
};

static int load_choice(const char *value, const char *first, const char *second, bool *ret_second,
        struct error *err)
{
    *ret_second = strcmp(value, second) == 0;
    if (*ret_second || strcmp(value, first) == 0)
        return 0;
    return error_set(err, -EINVAL, "'%s' is unknown; known: %s, %s", value, first, second);
}

static int load_range(const char *value, struct bodies_opts *bodies, struct error *err)
{
    char *text = xstrdup(value), *dots = strstr(text, "..");
    uint64_t least = 0, most = 0;
    int rc = 0;
    if (dots)
        *dots = '\0';
    rc = unit_parse_uint(text, 1, 4096, &least, err);
    if (!rc)
        rc = unit_parse_uint(dots ? dots + 2 : text, least, 4096, &most, err);
    free(text);
    bodies->least = (size_t)least;
    bodies->most = (size_t)most;
    return rc;
}

static int load_set_bodies(int option, const char *value, struct load_args *args,
        struct load_words *words, struct error *err)
{
    bool second = false;
    uint64_t number = 0;
    int rc = 0;
    switch (option) {
    case LOAD_KIND:
        rc = load_choice(value, "dlrm", "transformer", &second, err);
        args->bodies.kind = second ? BODIES_TRANSFORMER : BODIES_DLRM;
        words->kind = true;
        return rc;
    case LOAD_FEATURES:
        words->features = true;
        return load_range(value, &args->bodies, err);
    case LOAD_LONG:
        rc = unit_parse_fraction(value, &args->bodies.long_share, err);
        if (!rc && args->bodies.long_share > 1)
            rc = error_set(err, -EINVAL, "a share of requests is at most 100%%");
        return rc;
    case LOAD_POOL:
        rc = unit_parse_uint(value, 1, 1000000, &number, err);
        args->bodies.pool = (size_t)number;
        return rc;
    case LOAD_REFERENCE:
        args->bodies.reference = value;
        return 0;
    default:
        return unit_parse_double(value, 0, 1, &args->bodies.tolerance, err);
    }
}

static int load_set(int option, const char *value, struct load_args *args, struct load_words *words,
        struct error *err)
{
    switch (option) {
    case LOAD_RATE:
        return unit_parse_rate(value, &words->rate, err);
    case LOAD_CURVE:
        words->curve = value;
        return 0;
    case LOAD_SCALE:
        return unit_parse_double(value, 0, 1e6, &words->scale, err);
    case LOAD_DURATION:
        return unit_parse_duration(value, &words->duration_ns, err);
    case LOAD_REQUESTS:
        return unit_parse_uint(value, 1, UINT64_MAX - 1, &args->requests, err);
    case LOAD_ARRIVALS:
        return load_choice(value, "poisson", "even", &args->even, err);
    case LOAD_CONNECTIONS:
        return unit_parse_uint(value, 1, 60000, &args->connections, err);
    case LOAD_TIMEOUT:
        return unit_parse_duration(value, &args->timeout_ns, err);
    case LOAD_SEED:
        return unit_parse_uint(value, 0, UINT64_MAX, &args->seed, err);
    case LOAD_GET:
        args->get = true;
        return 0;
    case LOAD_OUTPUT:
        args->output = value;
        return 0;
    case LOAD_LOG:
        args->log = value;
        return 0;
    case LOAD_PROGRESS:
        args->progress = true;
        return 0;
    case LOAD_QUIET:
        args->quiet = true;
        return 0;
    default:
        return load_set_bodies(option, value, args, words, err);
    }
}

static int load_refuse(char **argv, int found, struct error *err)
{
    const char *word = argv[optind - 1];
    if (found == ':')
        return error_set(err, -EINVAL, "'%s' needs a value", word);
    const char *names[LOAD_OPTIONS];
    for (size_t i = 0; i < LOAD_OPTIONS; i++)
        names[i] = load_options[i].name;
    const char *nearest = string_nearest(word + strspn(word, "-"), names, LOAD_OPTIONS);
    return error_set(err, -EINVAL, "unknown option '%s'%s%s", word, nearest ? "; nearest: --" : "",
            nearest ? nearest : "");
}

static int load_parse(int argc, char **argv, struct load_args *args, struct load_words *words,
        bool *ret_help, struct error *err)
{
    int option, idx = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", load_options, &idx)) != -1) {
        if (option == '?' || option == ':')
            return load_refuse(argv, option, err);
        *ret_help = option == LOAD_HELP;
        if (*ret_help)
            return 0;
        if (load_set(option, optarg, args, words, err))
            return error_prefix(err, "failed to read --%s", load_options[idx].name);
    }
    if (optind + 1 != argc)
        return error_set(err, -EINVAL, optind == argc ? "the URL is missing" : "more than one URL");
    if (!(words->rate > 0 && words->rate <= 1e7))
        return error_set(err, -EINVAL, "--rate is above 0 and at most 1e7 per second");
    if (args->timeout_ns <= 0)
        return error_set(err, -EINVAL, "--timeout is 0");
    return 0;
}

static int load_prepare(
        const char *url, struct load_args *args, const struct load_words *words, struct error *err)
{
    int rc = load_url_parse(url, args->get ? "/" : "/score", &args->url, err);
    if (rc)
        return rc;
    double duration_s = words->duration_ns ? (double)words->duration_ns / 1e9
            : args->requests == UINT64_MAX ? 10
                                           : INFINITY;
    if (words->curve)
        rc = schedule_read(&args->schedule, words->curve, words->scale, err);
    else
        schedule_constant(&args->schedule, words->rate, duration_s);
    if (rc || args->get || (words->kind && words->features))
        return rc;
    struct bodies_opts said = args->bodies;
    rc = load_ask_health(&args->url, &said, err);
    if (rc)
        return rc;
    if (!words->kind)
        args->bodies.kind = said.kind;
    if (!words->features) {
        args->bodies.least = said.least;
        args->bodies.most = said.most;
    }
    return 0;
}

bool load_args_begin(int argc, char **argv, struct load_args *ret_args, int *ret_exit)
{
    *ret_args = (struct load_args){
            .bodies = {.long_share = 0.05, .pool = 997, .tolerance = 1e-4},
            .requests = UINT64_MAX,
            .connections = 256,
            .seed = 1,
            .timeout_ns = INT64_C(5000000000),
    };
    struct load_words words = {.rate = 100, .scale = 1};
    struct error err = {0};
    bool help = false;
    int rc = load_parse(argc, argv, ret_args, &words, &help, &err);
    *ret_exit = EXIT_CODE_PASS;
    if (help) {
        fputs(load_help, stdout);
        return false;
    }
    if (!rc) {
        ret_args->bodies.seed = ret_args->seed;
        rc = load_prepare(argv[optind], ret_args, &words, &err);
    }
    if (rc) {
        fprintf(stderr, "upgate-load: %s%s\n", err.text,
                rc == -EINVAL ? "; try `upgate-load --help`" : "");
        load_args_free(ret_args);
        *ret_exit = error_exit_code(rc);
        return false;
    }
    return true;
}

void load_args_free(struct load_args *args)
{
    load_url_free(&args->url);
    schedule_free(&args->schedule);
}
