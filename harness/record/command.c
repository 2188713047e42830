// SPDX-License-Identifier: Apache-2.0
// A program started to be recorded.
#include "harness/record/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/environment.h"
#include "common/signals.h"
#include "harness/contain/python_steps.h"

enum { COMMAND_EXIT_UNSTARTED = 127 };

// In the child. Signals that the recorder handles are the program's own business again: they are as
// the recorder found them.
static void command_child(char *const *argv, const char *steps_path,
        const struct command_find *find, const struct inject *inject, uint32_t kinds,
        int release_fd, int failure_fd)
{
    char byte;
    ssize_t got;
    while ((got = read(release_fd, &byte, 1)) < 0 && errno == EINTR)
        ;
    if (got <= 0) // the recorder has died, or given up
        _exit(COMMAND_EXIT_UNSTARTED);
    signals_restore();
    const struct inject *marks = find ? find->marks : NULL;
    if (steps_path && !marks)
        setenv(environment_name(ENVIRONMENT_STEPS), steps_path, 1);
    if (find && !marks)
        python_steps_set(find->python_dir, find->step);
    else
        python_steps_unset();
    if (inject)
        inject_set(inject, kinds);
    inject_set_steps(marks, marks ? find->step : NULL, steps_path);
    execvp(argv[0], argv);
    int failure = errno;
    (void)!write(failure_fd, &failure, sizeof failure);
    _exit(COMMAND_EXIT_UNSTARTED);
}

int command_start(char *const *argv, const char *steps_path, const struct command_find *find,
        const struct inject *inject, uint32_t kinds, struct command *ret_command, struct error *err)
{
    int release[2] = {-1, -1}, failure[2] = {-1, -1};
    pid_t pid = -1;
    if (pipe2(release, O_CLOEXEC) == 0 && pipe2(failure, O_CLOEXEC) == 0)
        pid = fork();
    if (pid == 0) {
        close(release[1]);
        command_child(argv, steps_path, find, inject, kinds, release[0], failure[1]);
    }
    int rc = pid < 0 ? error_set(err, -errno, "failed to start '%s': %s", argv[0], strerror(errno))
                     : 0;
    if (release[0] >= 0)
        close(release[0]);
    if (failure[1] >= 0)
        close(failure[1]);
    if (rc && release[1] >= 0)
        close(release[1]);
    if (rc && failure[0] >= 0)
        close(failure[0]);
    if (rc == 0)
        *ret_command =
                (struct command){.pid = pid, .release_fd = release[1], .failure_fd = failure[0]};
    return rc;
}

int command_release(struct command *command, const char *name, struct error *err)
{
    int failure = 0;
    ssize_t got;
    (void)!write(command->release_fd, "", 1);
    close(command->release_fd);
    command->release_fd = -1;
    while ((got = read(command->failure_fd, &failure, sizeof failure)) < 0 && errno == EINTR)
        ;
    if (got != (ssize_t)sizeof failure)
        return 0; // closed by exec
    waitpid(command->pid, &command->status, 0);
    command->ended = true;
    return error_set(err, -failure, "failed to start '%s': %s", name, strerror(failure));
}

bool command_ended(struct command *command)
{
    if (command->pid > 0 && !command->ended &&
            waitpid(command->pid, &command->status, WNOHANG) == command->pid)
        command->ended = true;
    return command->ended;
}

void command_close(struct command *command)
{
    if (command->release_fd >= 0 && command->pid > 0) { // its read ends without a byte: it leaves
        close(command->release_fd);
        waitpid(command->pid, &command->status, 0);
    }
    if (command->pid > 0 && command->failure_fd >= 0)
        close(command->failure_fd);
    *command = (struct command){.release_fd = -1, .failure_fd = -1};
}
