// SPDX-License-Identifier: Apache-2.0
// A command of the user (common/child.h). It ends with us: a restarted controller sets the weights
// again, and two that set different ones at once would leave either.
#ifndef UPGATE_HARNESS_CANARY_TRAFFIC_HOOK_H
#define UPGATE_HARNESS_CANARY_TRAFFIC_HOOK_H

#include <stdint.h>

#include "common/error.h"

struct hook_word {
    const char *name, *value; // "{percent}" in an argument becomes the value of "percent"
};

// Arguments with all words put in; NULL-terminated, the caller's, freed with hook_argv_free.
char **hook_argv(char *const *command, const struct hook_word *words, int word_count);
void hook_argv_free(char **argv);

// *ret_output: what it wrote to stdout (64 KiB at most), the caller's. An exit other than 0 is -EIO
// with the last line of its stderr; -ETIMEDOUT; -ENOENT, -EACCES and the like of one that could not
// be started.
int hook_run(char *const *argv, int64_t deadline_ns, char **ret_output, struct error *err);

#endif
