// SPDX-License-Identifier: Apache-2.0
// Who is recorded: from what a user names, --pid, --cgroup or --container, to processes and the
// directory of a cgroup.
#ifndef UPGATE_HARNESS_RECORD_TARGET_H
#define UPGATE_HARNESS_RECORD_TARGET_H

#include <stddef.h>
#include <sys/types.h>

#include "common/error.h"

struct target {
    pid_t *pids;
    size_t pid_count;
    char *cgroup; // directory, or NULL
};

// One of them, the others NULL; all NULL: nobody. pids: "12,34". cgroup: a directory, or a path
// below any cgroup mount
// ("/system.slice/job.service"). container: 6 digits or more of its id, as Docker, containerd,
// CRI-O and Podman name cgroups by it. -EINVAL: there is none, or more than one container fits.
int target_find(const char *pids, const char *cgroup, const char *container, struct target *ret,
        struct error *err);
void target_free(struct target *target);

#endif
