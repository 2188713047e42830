// SPDX-License-Identifier: Apache-2.0
// One child, two pipes, one deadline.
#include "harness/canary/traffic/hook.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "common/vector.h"

enum { HOOK_OUTPUT_MAX = 65536, HOOK_EXIT_UNSTARTED = 127 };
#define HOOK_LOOK_NS 10000000LL

char **hook_argv(char *const *command, const struct hook_word *words, int word_count)
{
    char **argv = NULL;
    int count = 0;
    for (; *command; command++) {
        struct strbuf text = {0};
        for (const char *at = *command; *at;) {
            int found = -1;
            size_t len = 0;
            for (int i = 0; found < 0 && *at == '{' && i < word_count; i++) {
                len = strlen(words[i].name);
                if (strncmp(at + 1, words[i].name, len) == 0 && at[1 + len] == '}')
                    found = i;
            }
            if (found >= 0)
                strbuf_add(&text, "%s", words[found].value);
            else
                strbuf_add_bytes(&text, at, 1);
            at += found >= 0 ? len + 2 : 1;
        }
        vector_push(argv, count, strbuf_take(&text));
    }
    vector_push(argv, count, NULL);
    return argv;
}

void hook_argv_free(char **argv)
{
    for (char **at = argv; at && *at; at++)
        free(*at);
    free(argv);
}

struct hook {
    pid_t pid;
    int fds[2]; // its stdout and stderr
    int failure_fd;
    struct strbuf texts[2];
};

// In the child: a group of its own, no input, default signals. It ends with us: a restarted controller sets the weights again, and
// two that set different ones at once would leave either.
static void hook_child(char *const *argv, pid_t parent, int out, int errors, int failure_fd)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGXFSZ, SIGALRM, SIGUSR1, SIGUSR2};
    int null = open("/dev/null", O_RDONLY);
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && null >= 0 && dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && dup2(errors, 2) >= 0) {
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
            signal(signals[i], SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execvp(argv[0], argv);
    }
    int failure = errno;
    (void)!write(failure_fd, &failure, sizeof failure);
    _exit(HOOK_EXIT_UNSTARTED);
}

static int hook_start(struct hook *hook, char *const *argv, struct error *err)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t parent = getpid(), pid = -1;
    int rc = 0;
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = pipe2(pipes[i], O_CLOEXEC) ? -errno : 0;
    if (rc == 0 && (pid = fork()) < 0)
        rc = -errno;
    if (rc == 0 && pid == 0)
        hook_child(argv, parent, pipes[0][1], pipes[1][1], pipes[2][1]);
    for (int i = 0; i < 3; i++) {
        if (pipes[i][1] >= 0)
            close(pipes[i][1]);
        if (rc && pipes[i][0] >= 0)
            close(pipes[i][0]);
    }
    if (rc)
        return error_set(err, rc, "failed to start '%s': %s", argv[0], strerror(-rc));
    setpgid(pid, pid); // whoever comes first
    *hook = (struct hook){.pid = pid, .fds = {pipes[0][0], pipes[1][0]}, .failure_fd = pipes[2][0]};
    for (int i = 0; i < 2; i++)
        fcntl(hook->fds[i], F_SETFL, O_NONBLOCK);
    return 0;
}

// What lies in a pipe; closes it at its end. What is too much is read and dropped: nobody waits for room.
static void hook_read(struct hook *hook, int which)
{
    char bytes[8192];
    ssize_t got = 1;
    while (hook->fds[which] >= 0 && got > 0) {
        got = read(hook->fds[which], bytes, sizeof bytes);
        size_t room = HOOK_OUTPUT_MAX - hook->texts[which].len;
        if (got > 0)
            strbuf_add_bytes(&hook->texts[which], bytes, (size_t)got < room ? (size_t)got : room);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            close(hook->fds[which]);
            hook->fds[which] = -1;
        }
    }
}

// Until it has ended. What it left running may hold the pipes open: nobody waits for that.
static bool hook_wait(struct hook *hook, int64_t deadline_ns, int *ret_status)
{
    for (;;) {
        pid_t ended = waitpid(hook->pid, ret_status, WNOHANG);
        hook_read(hook, 0);
        hook_read(hook, 1);
        if (ended == hook->pid || (ended < 0 && errno != EINTR))
            return true;
        int64_t left_ns = deadline_ns - clock_monotonic_ns();
        if (left_ns <= 0)
            return false;
        struct pollfd fds[2] = {{.fd = hook->fds[0], .events = POLLIN}, {.fd = hook->fds[1], .events = POLLIN}};
        int wait_ms = (int)((left_ns < HOOK_LOOK_NS ? left_ns : HOOK_LOOK_NS) / 1000000) + 1;
        poll(fds, 2, wait_ms);
    }
}

// The last line, plain and short.
static void hook_last_line(struct strbuf *text, char *ret, size_t size)
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
    for (size_t i = 0; i <= len && i < size; i++)
        ret[i] = line[i];
    ret[size - 1] = 0;
}

static int hook_judge(struct hook *hook, const char *name, int status, struct error *err)
{
    char said[300];
    int failure;
    if (read(hook->failure_fd, &failure, sizeof failure) == (ssize_t)sizeof failure)
        return error_set(err, -failure, "failed to start '%s': %s", name, strerror(failure));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    hook_last_line(&hook->texts[1], said, sizeof said);
    if (WIFSIGNALED(status))
        return error_set(err, -EIO, "'%s' was ended by signal %d%s%s", name, WTERMSIG(status), said[0] ? ": " : "", said);
    return error_set(err, -EIO, "'%s' ended with exit status %d%s%s", name, WEXITSTATUS(status), said[0] ? ": " : "", said);
}

int hook_run(char *const *argv, int64_t deadline_ns, char **ret_output, struct error *err)
{
    struct hook hook;
    int status = 0, rc = hook_start(&hook, argv, err);
    if (rc)
        return rc;
    bool ended = hook_wait(&hook, deadline_ns, &status);
    if (!ended) {
        kill(-hook.pid, SIGKILL); // its group: it is not reaped yet, so the number is still its own
        waitpid(hook.pid, &status, 0);
        rc = error_set(err, -ETIMEDOUT, "'%s' did not end in time and was killed", argv[0]);
    } else {
        rc = hook_judge(&hook, argv[0], status, err);
    }
    for (int i = 0; i < 2; i++)
        if (hook.fds[i] >= 0)
            close(hook.fds[i]);
    close(hook.failure_fd);
    if (rc == 0)
        *ret_output = strbuf_take(&hook.texts[0]);
    strbuf_free(&hook.texts[0]);
    strbuf_free(&hook.texts[1]);
    return rc;
}
