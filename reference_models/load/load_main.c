// SPDX-License-Identifier: Apache-2.0
// The program `upgate-load`: an open-loop HTTP/1.1 load generator that accounts for every request
// at the client. Reads its command line, a rate curve, and /health of the server for what its model
// takes; prints the account for people on stderr and as JSON (upgate.load/1) on stdout or into a
// file.
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "contracts/exit_code.h"
#include "reference_models/load/client.h"
#include "reference_models/load/load_args.h"

static volatile int stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static void load_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static int load_write(
        const struct load_args *args, const struct account *account, struct error *err)
{
    json_t *result = account_json(account, args->url.text);
    FILE *file = args->output ? fopen(args->output, "we") : stdout;
    int rc = file ? 0 : -errno;
    if (file) {
        char *text =
                json_dumps(result, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
        if (fprintf(file, "%s\n", text) < 0 || fflush(file) != 0)
            rc = -errno;
        free(text);
    }
    if (file && args->output && fclose(file) != 0 && !rc)
        rc = -errno;
    json_decref(result);
    return rc ? error_set(err, rc, "failed to write the account to '%s': %s",
                        args->output ? args->output : "stdout", strerror(-rc))
              : 0;
}

static int load_run(struct load_args *args, struct account *account, struct error *err)
{
    struct client_opts opts = {.address = args->url.address,
            .host = args->url.host,
            .path = args->url.path,
            .connections_max = (size_t)args->connections,
            .timeout_ns = args->timeout_ns,
            .requests_max = args->requests,
            .progress = args->progress,
            .stop = &stop};
    int rc = 0;
    if (args->log) {
        opts.log = fopen(args->log, "we");
        if (!opts.log)
            return error_set(err, -errno, "failed to open '%s': %s", args->log, strerror(errno));
        fputs(ACCOUNT_LOG_HEADER, opts.log);
    }
    if (!args->get)
        opts.bodies = bodies_new(&args->bodies);
    schedule_begin(&args->schedule, args->seed, args->even);
    rc = client_run(&opts, &args->schedule, account, err);
    bodies_free(opts.bodies);
    if (opts.log && fclose(opts.log) != 0 && !rc)
        rc = error_set(err, -errno, "failed to write '%s': %s", args->log, strerror(errno));
    return rc;
}

int main(int argc, char **argv)
{
    static struct account account; // 600 KiB of bins
    struct load_args args;
    int code = EXIT_CODE_PASS;
    if (!load_args_begin(argc, argv, &args, &code))
        return code;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    load_signals();
    struct error err = {0};
    int rc = load_run(&args, &account, &err);
    if (!rc && !args.quiet)
        account_print(&account, stderr);
    if (!rc)
        rc = load_write(&args, &account, &err);
    load_args_free(&args);
    if (rc) {
        fprintf(stderr, "upgate-load: %s\n", err.text);
        return error_exit_code(rc);
    }
    return account_failed(&account) ? EXIT_CODE_FAIL : EXIT_CODE_PASS;
}
