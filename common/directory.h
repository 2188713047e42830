// SPDX-License-Identifier: Apache-2.0
// Directories that a file of ours needs.
#ifndef UPGATE_COMMON_DIRECTORY_H
#define UPGATE_COMMON_DIRECTORY_H

#include <sys/types.h>

#include "common/error.h"

// Makes those above a file which are not there.
int directory_make_above(const char *path, mode_t mode, struct error *err);

#endif
