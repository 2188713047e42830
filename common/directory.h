// SPDX-License-Identifier: Apache-2.0
// Directories that a file of ours needs, and those that we were installed in.
#ifndef UPGATE_COMMON_DIRECTORY_H
#define UPGATE_COMMON_DIRECTORY_H

#include <sys/types.h>

#include "common/error.h"

// Makes those above a file which are not there.
int directory_make_above(const char *path, mode_t mode, struct error *err);

// Where a part of upgate lies, "python" say: installed in ../lib/upgate, or beside the running
// program, as in a build. The caller frees; NULL with errno where the own program cannot be found.
char *directory_of_part(const char *name);

#endif
