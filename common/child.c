// SPDX-License-Identifier: Apache-2.0
// One child, two pipes, one deadline.
#include "common/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/strings.h"

enum { CHILD_OUTPUT_MAX = 65536, CHILD_EXIT_UNSTARTED = 127 };
#define CHILD_LOOK_NS 10000000LL
#define CHILD_DIES_NS 1000000000LL // after SIGKILL; one that hangs in a driver does not die

struct child {
    pid_t pid;
    int fds[2]; // its stdout and stderr
    int failure_fd;
    struct strbuf texts[2];
};

// In the child: a group of its own, no input, default signals. It ends with us.
static void child_exec(
        char *const *argv, pid_t parent, bool shows, int out, int errors, int failure_fd)
{
    static const int signals[] = {
            SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGXFSZ, SIGALRM, SIGUSR1, SIGUSR2};
    int null = open("/dev/null", O_RDONLY);
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    out = shows ? STDERR_FILENO : out; // stdout is data
    if (getppid() == parent && null >= 0 && dup2(null, 0) >= 0 && dup2(out, 1) >= 0 &&
            (shows || dup2(errors, 2) >= 0)) {
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
            signal(signals[i], SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        descriptors_restore();
        execvp(argv[0], argv);
    }
    int failure = errno;
    (void)!write(failure_fd, &failure, sizeof failure);
    _exit(CHILD_EXIT_UNSTARTED);
}

static int child_start(struct child *child, char *const *argv, bool shows, struct error *err)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t parent = getpid(), pid = -1;
    int rc = 0;
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = pipe2(pipes[i], O_CLOEXEC) ? -errno : 0;
    if (rc == 0 && (pid = fork()) < 0)
        rc = -errno;
    if (rc == 0 && pid == 0)
        child_exec(argv, parent, shows, pipes[0][1], pipes[1][1], pipes[2][1]);
    for (int i = 0; i < 3; i++) {
        if (pipes[i][1] >= 0)
            close(pipes[i][1]);
        if (rc && pipes[i][0] >= 0)
            close(pipes[i][0]);
    }
    if (rc)
        return error_set(err, rc, "failed to start '%s': %s", argv[0], strerror(-rc));
    setpgid(pid, pid); // whoever comes first
    *child = (struct child){
            .pid = pid, .fds = {pipes[0][0], pipes[1][0]}, .failure_fd = pipes[2][0]};
    for (int i = 0; i < 2; i++)
        fcntl(child->fds[i], F_SETFL, O_NONBLOCK);
    return 0;
}

// What lies in a pipe; closes it at its end. What is too much is read and dropped: nobody waits for
// room.
static void child_read(struct child *child, int which)
{
    char bytes[8192];
    ssize_t got = 1;
    while (child->fds[which] >= 0 && got > 0) {
        got = read(child->fds[which], bytes, sizeof bytes);
        size_t room = CHILD_OUTPUT_MAX - child->texts[which].len;
        if (got > 0)
            strbuf_add_bytes(&child->texts[which], bytes, (size_t)got < room ? (size_t)got : room);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            close(child->fds[which]);
            child->fds[which] = -1;
        }
    }
}

// Until it has ended. What it left running may hold the pipes open: nobody waits for that.
// -ETIMEDOUT; -ECHILD: it has ended, and nobody knows how.
static int child_wait(struct child *child, int64_t deadline_ns, const volatile sig_atomic_t *stop,
        int *ret_status)
{
    for (;;) {
        pid_t ended = waitpid(child->pid, ret_status, WNOHANG);
        bool lost = ended < 0 && errno != EINTR;
        child_read(child, 0);
        child_read(child, 1);
        if (ended == child->pid)
            return 0;
        if (lost)
            return -ECHILD;
        int64_t left_ns = deadline_ns - clock_monotonic_ns();
        if (left_ns <= 0 || (stop && *stop))
            return -ETIMEDOUT;
        struct pollfd fds[2] = {
                {.fd = child->fds[0], .events = POLLIN}, {.fd = child->fds[1], .events = POLLIN}};
        int wait_ms = (int)((left_ns < CHILD_LOOK_NS ? left_ns : CHILD_LOOK_NS) / 1000000) + 1;
        poll(fds, 2, wait_ms);
    }
}

// The last line, plain and short.
static void child_last_line(struct strbuf *text, char *ret, size_t size)
{
    ret[0] = 0;
    if (!text->text)
        return;
    string_make_plain(text->text, text->len);
    while (text->len && strchr(" \t\r\n", text->text[text->len - 1]))
        text->text[--text->len] = 0;
    const char *line = strrchr(text->text, '\n');
    line = line ? line + 1 : text->text;
    size_t len = strlen(line);
    snprintf(ret, size, "%.*s", (int)(len < size ? len : size - 1), line);
}

// What did not end is killed with its group: it is not reaped yet, so the number is still its own.
static int child_kill(struct child *child, const char *name, const struct child_opts *opts,
        int *status, struct error *err)
{
    kill(-child->pid, SIGKILL);
    bool died = child_wait(child, clock_monotonic_ns() + CHILD_DIES_NS, NULL, status) != -ETIMEDOUT;
    if (opts->stop && *opts->stop)
        return error_set(err, -EINTR, "'%s' was ended by a signal", name);
    return error_set(err, -ETIMEDOUT, "'%s' did not end in time and %s", name,
            died ? "was killed" : "cannot be killed");
}

int child_run(
        char *const *argv, const struct child_opts *opts, struct child_end *ret, struct error *err)
{
    struct child child;
    int status = 0, failure, rc = child_start(&child, argv, opts->shows, err);
    if (rc)
        return rc;
    rc = child_wait(&child, opts->deadline_ns, opts->stop, &status);
    if (rc == -ETIMEDOUT)
        rc = child_kill(&child, argv[0], opts, &status, err);
    else if (read(child.failure_fd, &failure, sizeof failure) == (ssize_t)sizeof failure)
        rc = error_set(err, -failure, "failed to start '%s': %s", argv[0], strerror(failure));
    else if (rc)
        rc = error_set(err, rc,
                "nobody knows how '%s' ended: SIGCHLD is ignored; start upgate by `env --default-signal=CHLD upgate ...`",
                argv[0]);
    for (int i = 0; i < 2; i++)
        if (child.fds[i] >= 0)
            close(child.fds[i]);
    close(child.failure_fd);
    if (rc == 0) {
        *ret = (struct child_end){.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
        child_last_line(&child.texts[1], ret->said, sizeof ret->said);
        ret->output = strbuf_take(&child.texts[0]);
    }
    strbuf_free(&child.texts[0]);
    strbuf_free(&child.texts[1]);
    return rc;
}

char *child_find_program(const char *name)
{
    const char *path = getenv("PATH");
    if (strchr(name, '/'))
        return access(name, X_OK) == 0 ? xstrdup(name) : NULL;
    char *dirs = xstrdup(path ? path : "/usr/local/bin:/usr/bin:/bin"), *rest = dirs, *dir,
         *found = NULL;
    while (!found && (dir = strsep(&rest, ":"))) {
        char *file = xasprintf("%s/%s", *dir ? dir : ".", name);
        struct stat info;
        if (stat(file, &info) == 0 && S_ISREG(info.st_mode) && access(file, X_OK) == 0)
            found = file;
        else
            free(file);
    }
    free(dirs);
    return found;
}

int child_judge(const struct child_end *end, const char *name, struct error *err)
{
    const char *colon = end->said[0] ? ": " : "";
    if (end->code == 0)
        return 0;
    if (end->signal)
        return error_set(
                err, -EIO, "'%s' was ended by signal %d%s%s", name, end->signal, colon, end->said);
    return error_set(
            err, -EIO, "'%s' ended with exit status %d%s%s", name, end->code, colon, end->said);
}
