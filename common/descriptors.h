// SPDX-License-Identifier: Apache-2.0
// Descriptors of this process: which it keeps, and how many it may have.
#ifndef UPGATE_COMMON_DESCRIPTORS_H
#define UPGATE_COMMON_DESCRIPTORS_H

#include <sys/resource.h>

// Closes all from first on. System calls only: safe in a fork of a process with threads.
void descriptors_close_from(int first);

// From here on as many as the hard limit permits; whom we start is to have the limit that we were
// given.
void descriptors_raise(void);
// In a fork, right before exec: the limit that we were given. Nothing can be opened then while as
// many are open. System calls only.
void descriptors_restore(void);
// RLIMIT_NOFILE as those get it whom we start. 0, or -1 and errno.
int descriptors_limit(struct rlimit *ret);

#endif
