// SPDX-License-Identifier: Apache-2.0
// The program `upgate-serve`: a reference model behind HTTP (server.h says the API). Reads its
// command line and PLANT_SERVE; writes two lines of JSON to stdout (where it listens, when it is
// ready), messages to stderr. SIGTERM or SIGINT drains: not ready, still answering for
// --drain-delay; then nobody new, what is in flight is finished, the end. A second one ends at
// once.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/clock.h"
#include "contracts/exit_code.h"
#include "reference_models/serve/serve_args.h"
#include "reference_models/serve/server.h"

#define SERVE_MS INT64_C(1000000)
#define SERVE_QUIET_LOOKS \
    20 // with nothing in flight, 1 ms apart. Not a time, which passes without a CPU, too

struct serve {
    struct serve_args args;
    struct plants *plants;
    struct batcher *batcher;
    struct workers *workers;
    struct server *server;
    pthread_t load_thread;
    bool has_load_thread;
    int load_rc;
    struct error load_error;
    _Atomic bool loaded; // load_rc is set
};

static void *serve_load(void *arg)
{
    struct serve *serve = arg;
    serve->load_rc = workers_load(serve->workers, &serve->args.choice, &serve->load_error);
    atomic_store(&serve->loaded, true);
    return NULL;
}

static int serve_start(struct serve *serve, struct error *err)
{
    const struct serve_args *args = &serve->args;
    int rc = plants_new(getenv("PLANT_SERVE"), &serve->plants, err);
    if (rc)
        return rc;
    serve->batcher = batcher_new(&args->batch);
    rc = workers_new(args->workers, args->batch.batch_max, serve->batcher, serve->plants,
            &serve->workers, err);
    if (rc)
        return rc;
    rc = server_new(
            &args->server, serve->batcher, serve->workers, serve->plants, &serve->server, err);
    if (rc)
        return rc;
    rc = -pthread_create(&serve->load_thread, NULL, serve_load, serve);
    if (rc)
        return error_set(err, rc, "failed to start a thread: %s", strerror(-rc));
    serve->has_load_thread = true;
    printf("{\"listening\":\"%s:%u\",\"side\":\"%s\",\"pid\":%d}\n", args->server.host,
            server_port(serve->server), args->server.side, (int)getpid());
    fflush(stdout);
    return 0;
}

// A signal within `ns`? Negative: no limit.
static bool serve_signal(const sigset_t *signals, int64_t ns)
{
    struct timespec span = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    int got;
    do
        got = ns < 0 ? sigwaitinfo(signals, NULL) : sigtimedwait(signals, NULL, &span);
    while (got < 0 && errno == EINTR);
    return got > 0;
}

// Until the model is warm, then until a signal. 0, or the error of the model.
static int serve_run(struct serve *serve, const sigset_t *signals, struct error *err)
{
    int64_t begin = clock_monotonic_ns();
    while (!atomic_load(&serve->loaded)) {
        if (serve_signal(signals, 10 * SERVE_MS))
            return 0;
    }
    if (serve->load_rc) {
        *err = serve->load_error;
        return serve->load_rc;
    }
    printf("{\"ready\":true,\"model\":\"%s\",\"warm_s\":%.3f}\n", serve->args.choice.name,
            (double)(clock_monotonic_ns() - begin) / 1e9);
    fflush(stdout);
    serve_signal(signals, -1);
    return 0;
}

static void serve_second_signal(void)
{
    fprintf(stderr, "upgate-serve: a second signal: ending at once\n");
    _exit(EXIT_CODE_OPERATIONAL);
}

static int serve_drain(struct serve *serve, const sigset_t *signals, struct error *err)
{
    server_drain(serve->server);
    fprintf(stderr, "upgate-serve: draining\n");
    if (serve_signal(signals, serve->args.drain_delay_ns))
        serve_second_signal();
    server_close_door(serve->server);
    int64_t limit = clock_monotonic_ns() + serve->args.drain_timeout_ns;
    for (int quiet = 0; quiet < SERVE_QUIET_LOOKS; quiet++) {
        if (serve_signal(signals, SERVE_MS))
            serve_second_signal();
        uint64_t left = server_in_flight(serve->server);
        if (!left)
            continue;
        if (clock_monotonic_ns() > limit)
            return error_set(err, -ETIMEDOUT,
                    "%llu requests were not finished within the drain timeout",
                    (unsigned long long)left);
        quiet = -1;
    }
    return 0;
}

static void serve_end(struct serve *serve)
{
    server_free(serve->server);
    if (serve->has_load_thread && !atomic_load(&serve->loaded))
        _exit(EXIT_CODE_PASS); // stopped while the model was being made: nobody waits for it
    if (serve->has_load_thread)
        pthread_join(serve->load_thread, NULL);
    if (serve->batcher)
        batcher_close(serve->batcher);
    workers_free(serve->workers);
    batcher_free(serve->batcher);
    plants_free(serve->plants);
}

int main(int argc, char **argv)
{
    struct serve serve = {0};
    int code = EXIT_CODE_PASS;
    if (!serve_args_begin(argc, argv, &serve.args, &code))
        return code;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGPIPE, SIG_IGN);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); // every thread inherits it: this one waits for them
    struct error err = {0};
    int rc = serve_start(&serve, &err);
    if (!rc)
        rc = serve_run(&serve, &signals, &err);
    if (!rc)
        rc = serve_drain(&serve, &signals, &err);
    if (rc)
        fprintf(stderr, "upgate-serve: %s\n", err.text);
    if (rc == -ETIMEDOUT)
        _exit(EXIT_CODE_OPERATIONAL); // workers hold what was not finished
    serve_end(&serve);
    return error_exit_code(rc);
}
