// SPDX-License-Identifier: Apache-2.0
// A worker and its recorder. The recorder is forked twice, so that the worker has no child it does
// not know of: a program that waits for any child, or counts SIGCHLD, sees none of us.
#include "harness/rank/wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/directory.h"
#include "common/environment.h"
#include "common/log.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/contain/host.h"
#include "harness/contain/inject.h"
#include "harness/contain/python_steps.h"
#include "harness/rank/scan.h"
#include "harness/rank/share.h"
#include "tracer/store/store.h"

enum {
    WRAP_ATTACH_MS = 20000, // attaching takes 0.3 s, of eight ranks on two busy CPUs 5 s; a
                            // directory that hangs holds nobody up for longer
    WRAP_JOIN_MS = 10000,   // of these: whom another rank's recorder does not answer starts its own
    WRAP_JOIN_TRIES = 3,
    WRAP_JOINS_NS = 50000000, // of a round: rings fill meanwhile
    WRAP_STEP_SLOTS = 1024,
    WRAP_RANK_PROCESSES = 2, // of each rank of the job that are named: more than one node of it may
                             // be this machine
    WRAP_FD = 3,
    WRAP_NAMES_MAX = 100, // shards of one rank and restart in one directory
};

// From the recorder to the process that becomes the worker.
struct wrap_message {
    bool recorded, finds_steps, injects, has_steps;
    char text[1000]; // value of UPGATE_STEPS; or why nothing is recorded
};

struct wrap_guest {
    struct share_guest guest;
    bool joined; // or was refused
};

struct wrap {
    const struct wrap_opts *opts;
    int fd;     // by which the recorder tells the worker, and the worker hears it
    int log_fd; // the recorder's stderr: its own would keep the launcher waiting for the end of the
                // worker's
    bool told;
    char *path; // of the shard
    char *rank_json;
    int end_fd;                  // on which a byte is the end; -1: nobody says so
    int listener;                // where other ranks of the node join; -1: nobody does
    char *alone;                 // why not, where it was asked for
    struct wrap_message message; // what they are told
    struct wrap_guest *guests;   // who have not confirmed it yet
    size_t guest_count;
    int64_t end_ns; // until when the worker waits
};

// --- the shard and what stands in its place ------------------------------------------------------

void wrap_find_restart(struct wrap_opts *opts)
{
    char *dir = xasprintf("%s/%s", opts->dir, opts->identity.run);
    if (opts->again)
        opts->identity.launcher.restart = scan_next_restart(dir, opts->identity.launcher.rank);
    free(dir);
}

char *wrap_path(const struct wrap_opts *opts)
{
    const struct launcher_rank *rank = &opts->identity.launcher;
    return xasprintf(
            "%s/%s/%d-%d.db", opts->dir, opts->identity.run, (int)rank->restart, (int)rank->rank);
}

// An empty file of that name, which nobody else has: of two runs of one name neither loses its
// shard, and a merge tells of both.
static int wrap_reserve(struct wrap *wrap, struct error *err)
{
    wrap->path = wrap_path(wrap->opts);
    int rc = directory_make_above(wrap->path, 0777, err);
    for (int number = 2; rc == 0; number++) {
        int fd = open(wrap->path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (fd >= 0) {
            close(fd);
            return 0;
        }
        if (errno != EEXIST || number > WRAP_NAMES_MAX)
            return error_set(
                    err, -errno, "failed to make shard '%s': %s", wrap->path, strerror(errno));
        char *first = wrap_path(wrap->opts),
             *next = xasprintf("%.*s.%d.db", (int)strlen(first) - 3, first, number);
        free(first);
        free(wrap->path);
        wrap->path = next;
    }
    return rc;
}

// A line beside it, by the same name: `upgate merge` tells why this rank is missing.
static void wrap_leave_reason(const struct wrap *wrap, const char *reason)
{
    size_t len = strlen(wrap->path);
    struct stat info;
    if (stat(wrap->path, &info) == 0 && info.st_size == 0)
        unlink(wrap->path);
    char *path = xasprintf("%.*s.why", (int)(len - 3), wrap->path);
    int fd = open(path, O_CREAT | O_TRUNC | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) {
        dprintf(fd, "%s\n", reason);
        close(fd);
    }
    free(path);
}

// --- the recorder --------------------------------------------------------------------------------

static void wrap_tell(struct wrap *wrap, const struct wrap_message *message)
{
    if (wrap->told)
        return;
    wrap->told = true;
    (void)!write(wrap->fd, message, sizeof *message);
    close(wrap->fd);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC); // nobody reads it from here on
    dup2(null, STDERR_FILENO);
    close(null);
}

static void wrap_on_release(void *context, const struct recording_release *with)
{
    struct wrap_message message = {.recorded = true,
            .finds_steps = with->finds_steps,
            .injects = with->injects,
            .has_steps = with->steps_path != NULL};
    snprintf(message.text, sizeof message.text, "%s", with->steps_path ? with->steps_path : "");
    ((struct wrap *)context)->message = message;
    wrap_tell(context, &message);
}

// Who has given up before the answer came has a recorder of its own, or none.
static void wrap_settle_guests(struct wrap *wrap, struct recorder *recorder, bool last)
{
    size_t kept = 0;
    for (size_t i = 0; i < wrap->guest_count; i++) {
        struct wrap_guest *one = &wrap->guests[i];
        int confirmed = share_confirmed(one->guest.fd);
        if (confirmed == 0 && !last) {
            wrap->guests[kept++] = *one;
            continue;
        }
        if (confirmed != 1 && one->joined)
            recorder_leave(recorder, one->guest.rank);
        close(one->guest.fd);
    }
    wrap->guest_count = kept;
}

// Other ranks of the node.
static void wrap_on_round(void *context, struct recorder *recorder, bool last)
{
    struct wrap *wrap = context;
    struct share_guest guest;
    int64_t end_ns = clock_monotonic_ns() + WRAP_JOINS_NS;
    wrap_settle_guests(wrap, recorder, last);
    while (!last && share_accept(wrap->listener, end_ns, &guest) == 1) {
        struct wrap_message message = wrap->message;
        struct error err = {0};
        const struct launcher_rank *own = &wrap->opts->identity.launcher;
        // of a shard that has a rank twice nothing counts
        int rc = guest.rank < 0 || guest.rank >= own->ranks || guest.rank == own->rank
                ? error_set(&err, -EEXIST, "rank %d has a recorder already, or is none of the job",
                          (int)guest.rank)
                : recorder_join(recorder, guest.pid, guest.rank, &err);
        if (rc) {
            message = (struct wrap_message){.recorded = false};
            snprintf(message.text, sizeof message.text, "%s", err.text);
        }
        send(guest.fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
        vector_push(wrap->guests, wrap->guest_count, (struct wrap_guest){guest, rc == 0});
    }
    if (!last)
        return;
    close(wrap->listener); // who waits there is told by it, and starts another one
    wrap->listener = -1;
    free(wrap->guests);
}

// Where the worker has no more to say it has ended, and that is seen.
static bool wrap_is_over(void *context)
{
    struct wrap *wrap = context;
    struct pollfd end = {.fd = wrap->end_fd, .events = POLLIN};
    char byte;
    if (wrap->end_fd < 0 || poll(&end, 1, 0) <= 0)
        return false;
    if (read(wrap->end_fd, &byte, 1) == 1)
        return true;
    close(wrap->end_fd);
    wrap->end_fd = -1;
    return false;
}

// Forked on a CPU from which the scheduler moves nobody away (isolcpus), it would stay there beside
// the rank that is bound to it.
static void wrap_leave_cpus(void)
{
    cpu_set_t all, others;
    memset(&all, 0xff, sizeof all);
    others = all;
    host_take_cpus("/sys/devices/system/cpu/isolated", &others);
    if (sched_setaffinity(0, sizeof others, &others) < 0) // it may have no others
        sched_setaffinity(0, sizeof all, &all);
}

// All that is the launcher's or the worker's is left behind: its session, signals, descriptors, the
// CPUs it is bound to. Where memory runs out in its cgroup the recorder goes first.
static void wrap_detach(struct wrap *wrap)
{
    setsid();
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int *const kept[] = {&wrap->fd, &wrap->listener, &wrap->end_fd};
    enum { KEPT = sizeof kept / sizeof *kept };
    int copies[KEPT], next = WRAP_FD;
    for (size_t i = 0; i < KEPT; i++) // beside what is closed below
        copies[i] = *kept[i] < 0 ? -1 : fcntl(*kept[i], F_DUPFD_CLOEXEC, WRAP_FD + KEPT);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(wrap->log_fd, STDERR_FILENO);
    for (size_t i = 0; i < KEPT; i++)
        *kept[i] = copies[i] < 0 ? -1 : dup3(copies[i], next++, O_CLOEXEC);
    descriptors_close_from(next);
    wrap_leave_cpus();
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "1000", 4);
        close(fd);
    }
}

// How the clock stands at the end: it may have been set meanwhile.
static int wrap_write_clock(const struct wrap *wrap, struct error *err)
{
    struct store *store;
    struct identity_clock clock;
    identity_clock_read(&clock);
    int rc = store_open(wrap->path, STORE_WRITE, &store, err);
    if (rc)
        return rc;
    const int64_t error_ns = clock.error_ns;
    rc = store_exec(store, err,
            "UPDATE recording SET target = json_set(target, '$.rank.wall_minus_monotonic_end_ns', ?, '$.rank.clock_error_end_ns', ?)",
            "iI", clock.wall_minus_monotonic_ns, error_ns < 0 ? NULL : &error_ns);
    store_close(store);
    return rc;
}

static void wrap_record(struct wrap *wrap, pid_t worker)
{
    struct error err = {0};
    struct recording_result result = {0};
    struct recording_opts recording = wrap->opts->recording;
    const uint32_t ranks = (uint32_t)wrap->opts->identity.launcher.ranks;
    struct wrap_opts opts = *wrap->opts;
    wrap_detach(wrap);
    wrap_find_restart(&opts); // here: a directory that hangs holds the recorder up only
    wrap->opts = &opts;
    int rc = wrap_reserve(wrap, &err);
    json_t *json = identity_json(&wrap->opts->identity);
    json_object_set_new(json, "pid", json_integer(worker));
    if (wrap->alone)
        json_object_set_new(json, "alone", json_string(wrap->alone));
    wrap->rank_json = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    recording.path = wrap->path;
    recording.worker = worker;
    recording.release = wrap_on_release;
    recording.on_round = wrap->listener >= 0 ? wrap_on_round : NULL;
    recording.is_over = wrap_is_over;
    recording.worker_rank = opts.identity.launcher.rank;
    recording.step_slots = wrap->listener >= 0 ? WRAP_STEP_SLOTS : 0;
    if (wrap->listener >= 0)
        recording.processes_max = ranks * WRAP_RANK_PROCESSES;
    recording.context = wrap;
    recording.rank = wrap->rank_json;
    recording.progress = false;
    if (rc == 0)
        rc = recording_run(&recording, &result, &err);
    if (rc == 0)
        rc = wrap_write_clock(wrap, &err);
    if (rc) {
        struct wrap_message message = {.recorded = false};
        snprintf(message.text, sizeof message.text, "%s", err.text);
        wrap_leave_reason(wrap, err.text);
        wrap_tell(wrap, &message);
    }
    _exit(rc ? 1 : 0);
}

// --- the worker ----------------------------------------------------------------------------------

static int wrap_fork(struct wrap *wrap, struct error *err)
{
    int ends[2], log[2], status;
    pid_t worker = wrap->opts->pid ? wrap->opts->pid : getpid();
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set(err, -errno, "failed to make a pipe: %s", strerror(errno));
    pid_t between = pipe2(log, O_CLOEXEC | O_NONBLOCK) < 0 ? -1 : fork();
    if (between == 0) {
        wrap->fd = ends[1];
        wrap->log_fd = log[1];
        if (fork() == 0)
            wrap_record(wrap, worker);
        _exit(0);
    }
    int code = errno;
    if (wrap->listener >= 0) // the recorder's: with it the name goes
        close(wrap->listener);
    wrap->listener = -1;
    close(ends[1]);
    wrap->fd = ends[0];
    if (between < 0)
        return error_set(err, -code, "failed to fork a recorder: %s", strerror(code));
    close(log[1]);
    wrap->log_fd = log[0];
    while (waitpid(between, &status, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

// What the recorder has to say to people.
static void wrap_pass_log(const struct wrap *wrap)
{
    char text[4096];
    ssize_t got;
    while (wrap->log_fd >= 0 && (got = read(wrap->log_fd, text, sizeof text)) > 0)
        (void)!write(STDERR_FILENO, text, (size_t)got);
}

// What the recorder says; false: nothing, as it has died, or does not get ready.
static bool wrap_await(struct wrap *wrap, struct wrap_message *ret, struct error *err)
{
    int64_t left_ns;
    struct pollfd ready = {.fd = wrap->fd, .events = POLLIN};
    int count = 0;
    while ((left_ns = wrap->end_ns - clock_monotonic_ns()) > 0 &&
            (count = poll(&ready, 1, (int)(left_ns / 1000000) + 1)) < 0 && errno == EINTR)
        ;
    ssize_t got = count > 0 ? read(wrap->fd, ret, sizeof *ret) : -1;
    if (got == (ssize_t)sizeof *ret)
        return true;
    if (count > 0)
        error_set(err, -EIO, "the recorder ended before it was ready");
    else
        error_set(err, -ETIMEDOUT,
                "the recorder is not ready after %d s: the directory may hang; it goes on by itself, and the shard lacks the start",
                WRAP_ATTACH_MS / 1000);
    return false;
}

// What all that share a recorder must want of it. NULL: it is to be the rank's own, *ret_why.
static char *wrap_key(const struct wrap_opts *opts, const char **ret_why)
{
    const struct recording_opts *recording = &opts->recording;
    if (opts->pid || recording->no_children || recording->symbol) {
        *ret_why = opts->pid        ? "it ran already"
                : recording->symbol ? "calls of a native function are seen in one process"
                                    : "without its children";
        return NULL;
    }
    char *cwd = *opts->dir == '/' ? xstrdup("") : getcwd(NULL, 0);
    if (!cwd)
        *ret_why = "the current directory has no name";
    char *key = cwd
            ? xasprintf("%s/%s\n%s\n%d %d %lld %u %u %lld %d %d %d\n%s\n%s", cwd, opts->dir,
                      opts->identity.run, (int)opts->identity.launcher.restart,
                      (int)opts->identity.launcher.ranks, (long long)recording->threshold_ns,
                      recording->sample_hz, recording->gpu_kinds, (long long)recording->max_bytes,
                      recording->no_python, recording->no_steps, recording->finds_steps,
                      recording->step ? recording->step : "",
                      recording->injected ? recording->injected : "")
            : NULL;
    free(cwd);
    return key;
}

// True: another rank of this node has a recorder, which records this one, too. False: it is this
// one that starts it, or it has its own.
static bool wrap_meet(struct wrap *wrap, struct wrap_message *ret)
{
    const struct wrap_opts *opts = wrap->opts;
    int64_t end_ns = clock_monotonic_ns() + WRAP_JOIN_MS * (int64_t)1000000;
    struct error err = {0};
    char name[SHARE_NAME_MAX];
    const char *why = "";
    char *key = wrap_key(opts, &why);
    int rc = key ? share_name(key, name, &err) : error_set(&err, -ENOTSUP, "%s", why);
    free(key);
    for (int tries = 0; rc == 0; tries++) {
        int fd = share_listen(name);
        if (fd >= 0) {
            wrap->listener = fd;
            return false;
        }
        if (fd != -EADDRINUSE) {
            rc = error_set(&err, fd, "no socket to meet at: %s", strerror(-fd));
            break;
        }
        int join = share_join(name, opts->identity.launcher.rank, ret, sizeof *ret, end_ns);
        ret->text[sizeof ret->text - 1] = 0;
        if (join == 0 && ret->recorded)
            return true;
        if (join == 0)
            rc = error_set(&err, -EIO, "the node's recorder refused it: %s", ret->text);
        else if ((join != -ECONNREFUSED && join != -ECONNRESET) || tries == WRAP_JOIN_TRIES)
            rc = error_set(&err, join, "the node's recorder %s",
                    join == -EPERM               ? "is another user's"
                            : join == -ETIMEDOUT ? "does not answer"
                                                 : "ended, over and over");
    }
    *ret = (struct wrap_message){0};
    wrap->alone = xstrdup(err.text);
    return false;
}

static void wrap_set_environment(const struct wrap_opts *opts, const struct wrap_message *message)
{
    struct inject inject = {0};
    const char *injected = message->has_steps ? opts->recording.injected : NULL;
    if (message->has_steps && !injected)
        setenv(environment_name(ENVIRONMENT_STEPS), message->text, 1);
    char *python_dir = message->finds_steps ? python_steps_dir() : NULL;
    if (python_dir)
        python_steps_set(python_dir, opts->recording.step);
    else
        python_steps_unset();
    bool found = (message->injects || injected) && inject_find(&inject, NULL) == 0;
    if (message->injects && found)
        inject_set(&inject, opts->recording.gpu_kinds);
    inject_set_steps(injected && found ? &inject : NULL, injected, message->text);
    inject_free(&inject);
    free(python_dir);
}

int wrap_run(const struct wrap_opts *opts, char **ret_steps, struct error *err)
{
    struct wrap wrap = {.opts = opts,
            .fd = -1,
            .log_fd = -1,
            .listener = -1,
            .end_fd = opts->stdin_ends ? STDIN_FILENO : -1};
    struct wrap_message message = {0};
    struct error why = {0};
    wrap.end_ns = clock_monotonic_ns() + WRAP_ATTACH_MS * (int64_t)1000000;
    bool joined = opts->shared && wrap_meet(&wrap, &message);
    int rc = joined ? 0 : wrap_fork(&wrap, &why);
    bool told = joined || (rc == 0 && wrap_await(&wrap, &message, &why));
    wrap_pass_log(&wrap); // both ends here close with exec
    if (opts->pid && told && message.recorded) {
        *ret_steps = message.has_steps ? xstrdup(message.text) : NULL;
        return 0;
    }
    if (opts->pid)
        return error_set(err, rc ? rc : -EIO, "rank %d of %d is not recorded: %s",
                (int)opts->identity.launcher.rank, (int)opts->identity.launcher.ranks,
                told ? message.text : why.text);
    if (told && message.recorded)
        wrap_set_environment(opts, &message);
    else
        log_warn("rank %d of %d runs without being recorded: %s", (int)opts->identity.launcher.rank,
                (int)opts->identity.launcher.ranks, told ? message.text : why.text);
    char *const *argv = opts->recording.command;
    execvp(argv[0], argv);
    return error_set(err, -errno, "failed to start '%s': %s", argv[0], strerror(errno));
}
