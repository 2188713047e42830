// SPDX-License-Identifier: Apache-2.0
// Completion files for shells, made from the option tables: verbs, options of each verb, choices of
// each option, file names elsewhere, the words of another command behind "--".
#ifndef UPGATE_VERBS_COMPLETION_H
#define UPGATE_VERBS_COMPLETION_H

#include <stdio.h>

#include "common/options.h"

// `shell` is "bash", "zsh" or "fish"; `verbs` is NULL-terminated. -EINVAL: another shell.
int completion_print(const char *shell, const struct verb *const *verbs, FILE *file);

#endif
