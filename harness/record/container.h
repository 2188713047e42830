// SPDX-License-Identifier: Apache-2.0
// From what a user names to processes and to the directory of a cgroup.
#ifndef UPGATE_HARNESS_RECORD_CONTAINER_H
#define UPGATE_HARNESS_RECORD_CONTAINER_H

#include <stddef.h>
#include <sys/types.h>

#include "common/error.h"

enum { CONTAINER_PIDS_MAX = 4096 };

// "12,34" of the option --pid. Caller frees.
int container_pids(const char *text, pid_t **ret_pids, size_t *ret_count, struct error *err);

// A directory, or a path below any cgroup mount ("/system.slice/job.service"). Caller frees. -EINVAL: there is none.
int container_cgroup(const char *name, char **ret_directory, struct error *err);
// The cgroup whose name holds a container's id (at least 6 digits of it), as Docker, containerd, CRI-O and Podman make
// them. Caller frees. -EINVAL: none, or more than one container fits.
int container_find(const char *id, char **ret_directory, struct error *err);

#endif
