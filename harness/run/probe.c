// SPDX-License-Identifier: Apache-2.0
// Starts a side for a moment and reads it. An interpreter gets the text of
// tracer/python/upgate/fingerprint.py as its program (through -c, so that it also works behind a
// container prefix where our files are not): it answers with one marked line and holds still. Any
// other program is read when its set of mapped files has stopped growing. Either is killed
// afterwards, with all that descends from it (keeper.h). What it writes is read as it comes, and
// only its end is kept.
#include "harness/run/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/proc.h"
#include "common/strings.h"
#include "harness/contain/keeper.h"
#include "harness/fingerprint/fingerprint.h"
#include "harness/fingerprint/maps.h"
#include "harness/fingerprint/probe_source.h"
#include "harness/fingerprint/read.h"

#define PROBE_MARK "UPGATE-FINGERPRINT "

static const char *const probe_modules[] = {"torch", "jax", "tensorflow", "numpy"};
enum { PROBE_MODULE_COUNT = sizeof(probe_modules) / sizeof(probe_modules[0]) };

enum {
    ANSWER_BYTES_MAX = 16 << 20, // and of noise before it
    OUTPUT_TAIL_BYTES = 1200,
    READ_BYTES = 65536,
    SETTLE_POLLS = 6,          // equal readings in a row
    SETTLE_POLL_NS = 20000000, // 20 ms: a loader maps a library in well under that
    SETTLE_POLLS_PYTHON = 50,  // an import runs for longer between two libraries
    EXIT_WAIT_NS = 10000000,
};
// within which who has closed its output is expected to end
static const int64_t exit_lag_max_ns = 10 * INT64_C(1000000000);
static const int64_t timeout_default_ns = 120 * INT64_C(1000000000);
static const int64_t settle_max_ns = 3 * INT64_C(1000000000);
static const int64_t settle_python_max_ns = 20 * INT64_C(1000000000);
static const int64_t gentle_max_ns = 5 * INT64_C(1000000000);

struct probe {
    const struct probe_spec *spec;
    char **argv;
    struct keeper *keeper;
    pid_t pid;
    // its stdin, stdout, stderr, and why it could not be executed
    int in[2], out[2], err[2], report[2];
    char tail[OUTPUT_TAIL_BYTES]; // the end of what it wrote to stderr
    size_t tail_len;
    int64_t deadline_ns;
    bool ended;
    int status;
};

static char **probe_argv(const struct probe_spec *spec)
{
    size_t count = 0, at = 0;
    while (spec->argv[count])
        count++;
    char **argv = xcalloc(count + 3 + 2 * PROBE_MODULE_COUNT, sizeof(*argv));
    for (size_t i = 0; i < count; i++)
        argv[at++] = spec->argv[i];
    if (spec->interpreter) {
        static char command[] = "-c", import[] = "--import";
        argv[at++] = command;
        argv[at++] = (char *)probe_source;
        for (size_t i = 0; i < PROBE_MODULE_COUNT; i++) {
            argv[at++] = import;
            argv[at++] = (char *)probe_modules[i];
        }
    }
    return argv;
}

static void probe_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void probe_child(void *arg)
{
    const struct probe *probe = arg;
    int code = probe->spec->prepare ? -probe->spec->prepare(probe->spec->prepare_arg) : 0;
    if (!code &&
            (dup2(probe->in[0], 0) < 0 || dup2(probe->out[1], 1) < 0 || dup2(probe->err[1], 2) < 0))
        code = errno;
    if (!code) {
        signal(SIGPIPE, SIG_DFL);
        descriptors_restore();
        execvp(probe->argv[0], probe->argv);
        code = errno;
    }
    if (write(probe->report[1], &code, sizeof(code)) < 0)
        _exit(126);
    _exit(127);
}

// Fork and execute. The report pipe closes at a successful exec, or brings the errno of a failed
// one.
static int probe_start(struct probe *probe, struct error *err)
{
    int failure = 0;
    if (pipe2(probe->in, O_CLOEXEC) || pipe2(probe->out, O_CLOEXEC) ||
            pipe2(probe->err, O_CLOEXEC | O_NONBLOCK) || pipe2(probe->report, O_CLOEXEC))
        return error_set(
                err, -errno, "failed to start side '%s': %s", probe->spec->side, strerror(errno));
    fcntl(probe->err[1], F_SETFL, 0); // it may wait for us, we do not wait for it
    int code = keeper_start(probe_child, probe, NULL, false, &probe->keeper, &probe->pid, err);
    probe_close(&probe->report[1]);
    probe_close(&probe->in[0]);
    probe_close(&probe->out[1]);
    probe_close(&probe->err[1]);
    if (!code && read(probe->report[0], &failure, sizeof(failure)) == sizeof(failure))
        code = error_set(err, failure ? -failure : -EIO,
                "failed to start side '%s': '%s': %s; check the "
                "plan's paths",
                probe->spec->side, probe->argv[0], strerror(failure));
    return code;
}

static bool probe_ended(struct probe *probe)
{
    struct pollfd end = {keeper_fd(probe->keeper), POLLIN, 0};
    struct rusage usage;
    if (!probe->ended && poll(&end, 1, 0) > 0) {
        probe->ended = true;
        // somebody killed the keeper, and so the probe
        if (keeper_wait(probe->keeper, &probe->status, &usage))
            probe->status = SIGKILL;
    }
    return probe->ended;
}

static void probe_end(struct probe *probe)
{
    // a line ends it at once, and so its container
    if (probe->spec->gentle && probe->in[1] >= 0 && !probe_ended(probe)) {
        void (*before)(int) = signal(SIGPIPE, SIG_IGN);
        (void)!write(probe->in[1], "\n", 1);
        signal(SIGPIPE, before);
    }
    probe_close(&probe->in[1]); // lets it go
    for (int64_t until = clock_monotonic_ns() + gentle_max_ns; probe->spec->gentle &&
            probe->spec->interpreter && probe->keeper && !probe_ended(probe) &&
            clock_monotonic_ns() < until;)
        clock_sleep_until_ns(clock_monotonic_ns() + EXIT_WAIT_NS);
    keeper_free(probe->keeper);
    for (int end = 0; end < 2; end++) {
        probe_close(&probe->in[end]);
        probe_close(&probe->out[end]);
        probe_close(&probe->err[end]);
        probe_close(&probe->report[end]);
    }
    free(probe->argv);
}

// What it wrote to stderr since the last time; the end of it is kept. No more than a pipe holds, so
// that who writes without a pause does not hold us up.
static void probe_drain(struct probe *probe)
{
    char chunk[READ_BYTES];
    ssize_t got = read(probe->err[0], chunk, sizeof(chunk));
    if (got <= 0)
        return;
    size_t len = (size_t)got, kept = probe->tail_len;
    const char *from = chunk;
    if (len > sizeof(probe->tail)) {
        from += len - sizeof(probe->tail);
        len = sizeof(probe->tail);
    }
    if (kept + len > sizeof(probe->tail)) {
        memmove(probe->tail, probe->tail + kept + len - sizeof(probe->tail),
                sizeof(probe->tail) - len);
        kept = sizeof(probe->tail) - len;
    }
    memcpy(probe->tail + kept, from, len);
    probe->tail_len = kept + len;
}

// The last lines it wrote to stderr, on one line each with " | " between. The caller frees.
static char *output_tail(struct probe *probe)
{
    probe_drain(probe);
    size_t length = probe->tail_len;
    while (length > 0 && (probe->tail[length - 1] == '\n' || probe->tail[length - 1] == ' '))
        length--;
    struct strbuf line = {0};
    for (size_t at = 0; at < length && probe->tail[at]; at++)
        strbuf_add(&line, probe->tail[at] == '\n' ? " | " : "%c", probe->tail[at]);
    return line.len ? strbuf_take(&line) : xstrdup("it wrote nothing to stderr");
}

static int error_ended(struct probe *probe, struct error *err)
{
    // The exit may lag behind the end of the output by a moment, until who ends, its keeper and we
    // have had the CPU.
    for (int64_t until = clock_monotonic_ns() + exit_lag_max_ns;
            !probe_ended(probe) && clock_monotonic_ns() < until;)
        clock_sleep_until_ns(clock_monotonic_ns() + EXIT_WAIT_NS);
    char *tail = output_tail(probe), how[64] = "closed its output";
    if (probe->ended && WIFSIGNALED(probe->status))
        snprintf(how, sizeof(how), "was ended by signal %d", WTERMSIG(probe->status));
    else if (probe->ended)
        snprintf(how, sizeof(how), "ended with exit code %d", WEXITSTATUS(probe->status));
    int code =
            error_set(err, -ECHILD, "failed to read side '%s': '%s' %s before it could be read: %s",
                    probe->spec->side, probe->spec->argv[0], how, tail);
    free(tail);
    return code;
}

// The answer in what was read, if it is whole. Noise before it is dropped; an answer that has begun
// stays.
static bool answer_take(const struct probe *probe, struct strbuf *text, json_t **ret_answer,
        int *ret_code, struct error *err)
{
    const size_t mark_len = strlen(PROBE_MARK);
    const char *mark = text->len ? memmem(text->text, text->len, PROBE_MARK, mark_len) : NULL;
    if (!mark) {
        size_t keep = text->len < mark_len ? text->len : mark_len - 1;
        if (text->len)
            memmove(text->text, text->text + text->len - keep, keep);
        text->len = keep;
        return false;
    }
    mark += mark_len;
    const char *end = memchr(mark, '\n', text->len - (size_t)(mark - text->text));
    if (!end)
        return false;
    json_error_t problem;
    *ret_answer = json_loadb(mark, (size_t)(end - mark), 0, &problem);
    *ret_code = *ret_answer
            ? 0
            : error_set(err, -EPROTO, "failed to read side '%s': its answer is damaged: %s",
                      probe->spec->side, problem.text);
    return true;
}

static int answer_late(const struct probe *probe, struct error *err)
{
    return error_set(err, -ETIME,
            "failed to read side '%s': no answer from '%s' in time; it may hang "
            "while it imports a framework",
            probe->spec->side, probe->spec->argv[0]);
}

static int answer_long(const struct probe *probe, struct error *err)
{
    return error_set(err, -EMSGSIZE,
            "failed to read side '%s': '%s' wrote more than %d MB to stdout and no answer in it",
            probe->spec->side, probe->spec->argv[0], ANSWER_BYTES_MAX >> 20);
}

// Read stdout up to the marked line. *ret_answer: the JSON behind the mark.
static int read_answer(struct probe *probe, json_t **ret_answer, struct error *err)
{
    struct strbuf text = {0};
    size_t total = 0;
    int code = 0;
    char *chunk = xcalloc(1, READ_BYTES);
    while (!answer_take(probe, &text, ret_answer, &code, err)) {
        int64_t left_ns = probe->deadline_ns - clock_monotonic_ns();
        struct pollfd wait[3] = {{probe->out[0], POLLIN, 0}, {probe->err[0], POLLIN, 0},
                {keeper_fd(probe->keeper), POLLIN, 0}};
        int ready = left_ns > 0 ? poll(wait, 3, (int)(left_ns / 1000000) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        code = ready <= 0                  ? answer_late(probe, err)
                : total > ANSWER_BYTES_MAX ? answer_long(probe, err)
                                           : 0;
        if (code)
            break;
        if (wait[1].revents & POLLIN)
            probe_drain(probe);
        else if (wait[1].revents) // closed: it would be ready for ever
            probe_close(&probe->err[0]);
        // it ended, and who hides may hold its output open for ever
        if (!wait[0].revents && wait[2].revents) {
            code = error_ended(probe, err);
            break;
        }
        if (!wait[0].revents)
            continue;
        ssize_t got = read(probe->out[0], chunk, READ_BYTES);
        if (got <= 0) {
            code = error_ended(probe, err);
            break;
        }
        total += (size_t)got;
        strbuf_add_bytes(&text, chunk, (size_t)got);
    }
    strbuf_free(&text);
    free(chunk);
    return code;
}

static int read_interpreter(struct probe *probe, json_t **ret_document, struct error *err)
{
    json_t *answer = NULL, *process = NULL;
    int code = read_answer(probe, &answer, err);
    if (code)
        return code;
    pid_t pid = proc_outer_pid((pid_t)json_integer_value(json_object_get(answer, "pid")),
            (uint64_t)json_integer_value(json_object_get(answer, "pid_namespace")));
    struct error problem = {0};
    code = pid > 0 ? fingerprint_process(pid, &process, &problem)
                   : error_set(&problem, -ESRCH,
                             "the process runs in a namespace that cannot be seen from here");
    *ret_document = fingerprint_merge(process, json_object_get(answer, "python"));
    if (code) // what the interpreter said about itself is still worth having
        missing_add(json_object_get(*ret_document, "missing"), "process", "%s", problem.text);
    json_decref(process);
    json_decref(answer);
    return 0;
}

// *ret_python: it is an interpreter, of a command that names it by itself.
static size_t mapped_count(pid_t pid, bool *ret_python)
{
    char *proc_dir = xasprintf("/proc/%d", (int)pid);
    struct maps maps = {0};
    size_t count = maps_read(proc_dir, &maps, NULL) ? 0 : maps.file_count;
    *ret_python = false;
    for (size_t i = 0; i < count; i++) {
        const char *name = string_base_name(maps.files[i].path); // an absolute path
        *ret_python |= strncmp(name, "python3", 7) == 0 || strncmp(name, "libpython3", 10) == 0;
    }
    maps_free(&maps);
    free(proc_dir);
    return count;
}

// A program that does not speak: read it early, and again whenever it has loaded more and settled.
static int read_program(struct probe *probe, json_t **ret_document, struct error *err)
{
    json_t *process = NULL;
    size_t last = 0, taken = 0;
    int same = 0;
    bool python = false;
    int64_t begin_ns = clock_monotonic_ns(), python_end_ns = begin_ns + settle_python_max_ns;
    if (python_end_ns > probe->deadline_ns)
        python_end_ns = probe->deadline_ns;
    while (!probe_ended(probe) &&
            clock_monotonic_ns() < (python ? python_end_ns : begin_ns + settle_max_ns) &&
            same < (python ? SETTLE_POLLS_PYTHON : SETTLE_POLLS)) {
        probe_drain(probe);
        size_t count = mapped_count(probe->pid, &python);
        same = count && count == last ? same + 1 : 0;
        if (count > taken && (!process || same)) {
            json_t *newer = NULL;
            if (!fingerprint_process(probe->pid, &newer, NULL)) {
                json_decref(process);
                process = newer;
                taken = count;
            }
        }
        last = count;
        clock_sleep_until_ns(clock_monotonic_ns() + SETTLE_POLL_NS);
    }
    if (!process)
        return error_ended(probe, err);
    *ret_document = fingerprint_merge(process, NULL);
    json_decref(process);
    return 0;
}

int fingerprint_probe(const struct probe_spec *spec, json_t **ret_document, struct error *err)
{
    struct probe probe = {.spec = spec,
            .argv = probe_argv(spec),
            .in = {-1, -1},
            .out = {-1, -1},
            .err = {-1, -1},
            .report = {-1, -1}};
    int64_t timeout_ns = spec->timeout_ns ? spec->timeout_ns : timeout_default_ns;
    probe.deadline_ns = clock_monotonic_ns() + timeout_ns;
    int code = probe_start(&probe, err);
    if (!code)
        code = spec->interpreter ? read_interpreter(&probe, ret_document, err)
                                 : read_program(&probe, ret_document, err);
    probe_end(&probe);
    return code;
}
