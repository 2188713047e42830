// SPDX-License-Identifier: Apache-2.0
// Starts a side for a moment and reads it. An interpreter gets the text of
// tracer/python/upgate/fingerprint.py as its program (through -c, so that it also works behind a
// container prefix where our files are not): it answers with one marked line and holds still. Any
// other program is read when its set of mapped files has stopped growing. Either is killed
// afterwards, with its process group.
#include "harness/fingerprint/probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/fingerprint/fingerprint.h"
#include "harness/fingerprint/maps.h"
#include "harness/fingerprint/probe_source.h"
#include "harness/fingerprint/read.h"

#define PROBE_MARK "UPGATE-FINGERPRINT "

static const char *const probe_modules[] = {"torch", "jax", "tensorflow", "numpy"};
enum { PROBE_MODULE_COUNT = sizeof(probe_modules) / sizeof(probe_modules[0]) };

enum {
    ANSWER_BYTES_MAX = 16 << 20,
    OUTPUT_TAIL_BYTES = 1200,
    SETTLE_POLLS = 6,          // equal readings in a row
    SETTLE_POLL_NS = 20000000, // 20 ms: a loader maps a library in well under that
    EXIT_WAIT_NS = 10000000,
};
static const int64_t timeout_default_ns = 120 * INT64_C(1000000000);
static const int64_t settle_max_ns = 3 * INT64_C(1000000000);

struct probe {
    const struct probe_spec *spec;
    pid_t pid;
    int answer_fd; // its stdout
    int hold_fd;   // our end of its stdin: closing it lets it go
    int output_fd; // its stderr, a memory file
    int64_t deadline_ns;
    bool reaped;
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

static void run_child(const struct probe *probe, char **argv, int stdin_fd, int stdout_fd,
                      int report_fd) __attribute__((noreturn));
static void run_child(const struct probe *probe, char **argv, int stdin_fd, int stdout_fd,
                      int report_fd)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = probe->spec->prepare ? -probe->spec->prepare(probe->spec->prepare_arg) : 0;
    if (!code && (dup2(stdin_fd, 0) < 0 || dup2(stdout_fd, 1) < 0 || dup2(probe->output_fd, 2) < 0))
        code = errno;
    if (!code) {
        signal(SIGPIPE, SIG_DFL);
        execvp(argv[0], argv);
        code = errno;
    }
    if (write(report_fd, &code, sizeof(code)) < 0)
        _exit(126);
    _exit(127);
}

// Fork and execute. The report pipe closes at a successful exec, or brings the errno of a failed
// one.
static int probe_start(struct probe *probe, struct error *err)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, report[2] = {-1, -1}, failure = 0;
    char **argv = probe_argv(probe->spec);
    int code = 0;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(report, O_CLOEXEC) ||
        (probe->output_fd = memfd_create("probe output", MFD_CLOEXEC)) < 0) {
        code = error_set(err, -errno, "failed to start side '%s': %s", probe->spec->side,
                         strerror(errno));
        goto out;
    }
    probe->pid = fork();
    if (probe->pid < 0) {
        code = error_set(err, -errno, "failed to start side '%s': %s", probe->spec->side,
                         strerror(errno));
        goto out;
    }
    if (probe->pid == 0)
        run_child(probe, argv, in[0], out[1], report[1]);
    close(report[1]);
    report[1] = -1;
    if (read(report[0], &failure, sizeof(failure)) == sizeof(failure))
        code = error_set(err, failure ? -failure : -EIO,
                         "failed to start side '%s': '%s': %s; check the "
                         "plan's paths",
                         probe->spec->side, argv[0], strerror(failure));
    probe->answer_fd = out[0];
    probe->hold_fd = in[1];
    out[0] = in[1] = -1;
out:
    for (int end = 0; end < 2; end++) {
        if (in[end] >= 0)
            close(in[end]);
        if (out[end] >= 0)
            close(out[end]);
        if (report[end] >= 0)
            close(report[end]);
    }
    free(argv);
    return code;
}

static bool probe_ended(struct probe *probe)
{
    if (!probe->reaped && waitpid(probe->pid, &probe->status, WNOHANG) == probe->pid)
        probe->reaped = true;
    return probe->reaped;
}

static void probe_end(struct probe *probe)
{
    if (probe->hold_fd >= 0)
        close(probe->hold_fd);
    if (probe->pid > 0) {
        kill(-probe->pid, SIGKILL);
        if (!probe->reaped)
            waitpid(probe->pid, &probe->status, 0);
    }
    if (probe->answer_fd >= 0)
        close(probe->answer_fd);
    if (probe->output_fd >= 0)
        close(probe->output_fd);
}

// The last lines it wrote to stderr, on one line each with " | " between. The caller frees.
static char *output_tail(const struct probe *probe)
{
    char text[OUTPUT_TAIL_BYTES + 1];
    struct stat status;
    off_t size = fstat(probe->output_fd, &status) ? 0 : status.st_size;
    off_t from = size > OUTPUT_TAIL_BYTES ? size - OUTPUT_TAIL_BYTES : 0;
    ssize_t length = pread(probe->output_fd, text, OUTPUT_TAIL_BYTES, from);
    text[length > 0 ? length : 0] = '\0';
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' '))
        text[--length] = '\0';
    struct strbuf line = {0};
    for (char *at = text; *at; at++)
        strbuf_add(&line, *at == '\n' ? " | " : "%c", *at);
    return line.len ? strbuf_take(&line) : xstrdup("it wrote nothing to stderr");
}

static int error_ended(struct probe *probe, struct error *err)
{
    // The exit may lag behind the end of the output by a moment.
    for (int64_t until = clock_monotonic_ns() + 50 * EXIT_WAIT_NS;
         !probe_ended(probe) && clock_monotonic_ns() < until;)
        clock_sleep_until_ns(clock_monotonic_ns() + EXIT_WAIT_NS);
    char *tail = output_tail(probe), how[64] = "closed its output";
    if (probe->reaped && WIFSIGNALED(probe->status))
        snprintf(how, sizeof(how), "was ended by signal %d", WTERMSIG(probe->status));
    else if (probe->reaped)
        snprintf(how, sizeof(how), "ended with exit code %d", WEXITSTATUS(probe->status));
    int code =
        error_set(err, -ECHILD, "failed to read side '%s': '%s' %s before it could be read: %s",
                  probe->spec->side, probe->spec->argv[0], how, tail);
    free(tail);
    return code;
}

// Read stdout up to the marked line. *ret_answer: the JSON behind the mark.
static int read_answer(struct probe *probe, json_t **ret_answer, struct error *err)
{
    struct strbuf text = {0};
    int code = 0;
    for (;;) {
        const char *mark = text.text ? strstr(text.text, PROBE_MARK) : NULL;
        const char *end = mark ? strchr(mark, '\n') : NULL;
        if (end) {
            mark += strlen(PROBE_MARK);
            json_error_t problem;
            *ret_answer = json_loadb(mark, (size_t)(end - mark), 0, &problem);
            if (!*ret_answer)
                code =
                    error_set(err, -EPROTO, "failed to read side '%s': its answer is damaged: %s",
                              probe->spec->side, problem.text);
            break;
        }
        int64_t left_ns = probe->deadline_ns - clock_monotonic_ns();
        struct pollfd wait = {probe->answer_fd, POLLIN, 0};
        int ready = left_ns > 0 ? poll(&wait, 1, (int)(left_ns / 1000000) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0 || text.len > ANSWER_BYTES_MAX) {
            code = error_set(err, -ETIME,
                             "failed to read side '%s': no answer from '%s' in time; it may hang "
                             "while it imports a framework",
                             probe->spec->side, probe->spec->argv[0]);
            break;
        }
        char chunk[65536];
        ssize_t got = read(probe->answer_fd, chunk, sizeof(chunk));
        if (got <= 0) {
            code = error_ended(probe, err);
            break;
        }
        strbuf_add_bytes(&text, chunk, (size_t)got);
    }
    strbuf_free(&text);
    return code;
}

// Last number of the NSpid line of /proc/PID/status: the pid inside its innermost namespace.
static long inner_pid(const char *name)
{
    char *status = read_text("/proc/%s/status", name);
    char *line = status ? strstr(status, "\nNSpid:") : NULL;
    long pid = -1;
    if (line) {
        line[1 + strcspn(line + 1, "\n")] = '\0';
        const char *last = strrchr(line, '\t');
        pid = last ? strtol(last + 1, NULL, 10) : -1;
    }
    free(status);
    return pid;
}

static uint64_t pid_namespace(const char *name)
{
    char *path = xasprintf("/proc/%s/ns/pid", name);
    struct stat status;
    uint64_t inode = stat(path, &status) ? 0 : status.st_ino;
    free(path);
    return inode;
}

// The pid, as we see it, of the process that calls itself `pid` in `pid_space` (a container's).
static pid_t pid_outside(long pid, uint64_t pid_space)
{
    if (!pid_space || pid_space == pid_namespace("self"))
        return (pid_t)pid;
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    pid_t found = -1;
    while (dir && found < 0 && (entry = readdir(dir)))
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            pid_namespace(entry->d_name) == pid_space && inner_pid(entry->d_name) == pid)
            found = (pid_t)strtol(entry->d_name, NULL, 10);
    if (dir)
        closedir(dir);
    return found;
}

static int read_interpreter(struct probe *probe, json_t **ret_document, struct error *err)
{
    json_t *answer = NULL, *process = NULL;
    int code = read_answer(probe, &answer, err);
    if (code)
        return code;
    pid_t pid = pid_outside((long)json_integer_value(json_object_get(answer, "pid")),
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

static size_t mapped_count(pid_t pid)
{
    char *proc_dir = xasprintf("/proc/%d", (int)pid);
    struct maps maps = {0};
    size_t count = maps_read(proc_dir, &maps, NULL) ? 0 : maps.file_count;
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
    int64_t end_ns = clock_monotonic_ns() + settle_max_ns;
    while (!probe_ended(probe) && clock_monotonic_ns() < end_ns && same < SETTLE_POLLS) {
        size_t count = mapped_count(probe->pid);
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
    struct probe probe = {.spec = spec, .pid = -1, .answer_fd = -1, .hold_fd = -1, .output_fd = -1};
    int64_t timeout_ns = spec->timeout_ns ? spec->timeout_ns : timeout_default_ns;
    probe.deadline_ns = clock_monotonic_ns() + timeout_ns;
    int code = probe_start(&probe, err);
    if (!code)
        code = spec->interpreter ? read_interpreter(&probe, ret_document, err)
                                 : read_program(&probe, ret_document, err);
    probe_end(&probe);
    return code;
}
