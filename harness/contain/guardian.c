// SPDX-License-Identifier: Apache-2.0
// The guardian. Reads lines from a pipe whose other end only upgate holds: "+MARK", "-MARK",
// "bBASE", "q". End of file without "q" means that upgate died. Writes nothing; acts on cgroups and
// processes.
#include "harness/contain/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/contain/keeper.h"
#include "harness/contain/process.h"
#include "harness/contain/tree.h"

enum { GUARDIAN_MARKS_MAX = 8, GUARDIAN_MARK_BYTES = 256 }; // two launches at a time, and room

struct guardian {
    pid_t pid;
    int pipe_fd;
    char *base;
    char marks[GUARDIAN_MARKS_MAX][GUARDIAN_MARK_BYTES]; // to tell a new guardian
};

static void guardian_set(char marks[][GUARDIAN_MARK_BYTES], const char *from, const char *to)
{
    for (int i = 0; i < GUARDIAN_MARKS_MAX; i++) {
        if (strcmp(marks[i], from) == 0) {
            snprintf(marks[i], GUARDIAN_MARK_BYTES, "%s", to);
            return;
        }
    }
}

// Is it the socket of a container (image_hold_path)?
static bool guardian_is_hold(const char *mark)
{
    const char *slash = strrchr(mark, '/');
    return slash && strcmp(slash, "/socket") == 0;
}

static void guardian_clean(const char *base, char marks[][GUARDIAN_MARK_BYTES])
{
    bool gentle = false;
    for (int i = 0; i < GUARDIAN_MARKS_MAX; i++)
        gentle |= guardian_is_hold(marks[i]);
    if (gentle && *base)
        tree_let_end(base, KEEPER_GENTLE_S * 1000000000LL);
    tree_release_base(base);
    for (int i = 0; i < GUARDIAN_MARKS_MAX; i++) {
        if (!marks[i][0])
            continue;
        // Killing a stopped process works without SIGCONT; new forks are met by looking again.
        pid_t pids[1024];
        for (int round = 0; round < 100; round++) {
            int count = process_find_tree(-1, 0, marks[i], pids, 1024);
            for (int k = 0; k < count; k++)
                kill(pids[k], SIGKILL);
            if (!count)
                break;
            clock_sleep_until_ns(clock_monotonic_ns() + 5000000);
        }
        unlink(marks[i]);
        if (guardian_is_hold(marks[i])) {
            *strrchr(marks[i], '/') = 0;
            rmdir(marks[i]);
        }
    }
}

static void guardian_main(int pipe_fd, const char *base) __attribute__((noreturn));
static void guardian_main(int pipe_fd, const char *base)
{
    static char marks[GUARDIAN_MARKS_MAX][GUARDIAN_MARK_BYTES];
    FILE *in = fdopen(process_detach("ug-guardian", pipe_fd, -1), "r");
    static char line[PATH_MAX + 2];
    bool quit = false;
    while (in && !quit && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '+')
            guardian_set(marks, "", line + 1);
        else if (line[0] == '-')
            guardian_set(marks, line + 1, "");
        else if (line[0] == 'b')
            base = xstrdup(line + 1);
        else
            quit = line[0] == 'q';
    }
    if (!quit)
        guardian_clean(base, marks);
    _exit(0);
}

static int guardian_spawn(struct guardian *guardian, struct error *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return error_set(err, -errno, "failed to start the guardian: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0) {
        int rc = error_set(err, -errno, "failed to start the guardian: %s", strerror(errno));
        close(fds[0]);
        close(fds[1]);
        return rc;
    }
    if (pid == 0) {
        close(fds[1]); // before all: its end of file is how we learn of a death
        guardian_main(fds[0], guardian->base);
    }
    close(fds[0]);
    guardian->pid = pid;
    guardian->pipe_fd = fds[1];
    return 0;
}

static int guardian_say(struct guardian *guardian, char what, const char *mark)
{
    char line[PATH_MAX + 2];
    int len = snprintf(line, sizeof line, "%c%s\n", what, mark);
    return write(guardian->pipe_fd, line, (size_t)len) == len ? 0 : -errno;
}

int guardian_start(const char *base, struct guardian **ret_guardian, struct error *err)
{
    signal(SIGPIPE, SIG_IGN); // a killed guardian must not kill us
    struct guardian *guardian = xcalloc(1, sizeof *guardian);
    guardian->base = xstrdup(base);
    int rc = guardian_spawn(guardian, err);
    if (rc) {
        free(guardian->base);
        free(guardian);
        return rc;
    }
    *ret_guardian = guardian;
    return 0;
}

// Where no new one can be started, neither number may be used again: they are soon somebody else's.
static int guardian_respawn(struct guardian *guardian, struct error *err)
{
    if (guardian->pid > 0) {
        close(guardian->pipe_fd);
        kill(guardian->pid, SIGKILL);
        waitpid(guardian->pid, NULL, 0);
    }
    guardian->pid = guardian->pipe_fd = -1;
    int rc = guardian_spawn(guardian, err);
    for (int i = 0; rc == 0 && i < GUARDIAN_MARKS_MAX; i++)
        if (guardian->marks[i][0])
            guardian_say(guardian, '+', guardian->marks[i]);
    return rc;
}

void guardian_set_base(struct guardian *guardian, const char *base)
{
    free(guardian->base);
    guardian->base = xstrdup(base);
    if (guardian_say(guardian, 'b', base))
        guardian_respawn(guardian, NULL);
}

int guardian_watch(struct guardian *guardian, const char *mark, struct error *err)
{
    if (strlen(mark) >= GUARDIAN_MARK_BYTES)
        return error_set(err, -ENAMETOOLONG, "path '%s' is too long", mark);
    guardian_set(guardian->marks, "", mark);
    if (guardian_say(guardian, '+', mark) == 0)
        return 0;
    return guardian_respawn(guardian, err);
}

void guardian_forget(struct guardian *guardian, const char *mark)
{
    guardian_set(guardian->marks, mark, "");
    if (guardian_say(guardian, '-', mark))
        guardian_respawn(guardian, NULL);
}

void guardian_stop(struct guardian *guardian)
{
    if (!guardian)
        return;
    if (guardian->pid > 0) {
        guardian_say(guardian, 'q', "");
        close(guardian->pipe_fd);
        kill(guardian->pid, SIGCONT); // a side may have stopped it
        waitpid(guardian->pid, NULL, 0);
    }
    free(guardian->base);
    free(guardian);
}
