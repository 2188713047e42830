// SPDX-License-Identifier: Apache-2.0
// A program started to be recorded. It waits before its exec until it is released, so that nothing
// of its start is missed; it keeps the terminal, its output and its signals. The recording neither
// ends nor changes it.
#ifndef UPGATE_HARNESS_RECORD_COMMAND_H
#define UPGATE_HARNESS_RECORD_COMMAND_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"
#include "harness/contain/inject.h"

struct command {
    pid_t pid;
    int release_fd; // its end starts the program
    int failure_fd; // tells errno of a failed exec
    bool ended;
    int status; // wait status
};

// Steps of a Python program that makes no step calls are found (harness/contain/python_steps.h).
struct command_find {
    const char *python_dir, *step; // step may be NULL
    const struct inject *marks;    // not NULL: it marks `step` in any program, in the file at
                                   // steps_path, which nobody else gets
};

// steps_path: value of UPGATE_STEPS, or NULL. find: NULL: only its own step calls. inject: its GPU
// side is to be recorded, with these kinds (enum ug_spool_want); or NULL.
int command_start(char *const *argv, const char *steps_path, const struct command_find *find,
        const struct inject *inject, uint32_t kinds, struct command *ret_command,
        struct error *err);
// Let it become the program. -ENOENT, -EACCES, ... with the program's name when it cannot be
// executed.
int command_release(struct command *command, const char *name, struct error *err);
bool command_ended(struct command *command); // collects its status
// End one that was never released; leaves a released one alone. Closes what is open.
void command_close(struct command *command);

#endif
