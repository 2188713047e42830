// SPDX-License-Identifier: Apache-2.0
// What bounds a process from outside: rlimits, cgroups, CPU affinity, scheduling, transparent huge
// pages. Each function takes "/proc/PID" and returns a new object with null for what cannot be
// read; reasons go to `missing`. "unlimited" is a value, null is "not known".
#ifndef UPGATE_FINGERPRINT_LIMITS_H
#define UPGATE_FINGERPRINT_LIMITS_H

#include <stdint.h>

#include <jansson.h>

json_t *limits_rlimits(const char *proc_dir, json_t *missing);
json_t *limits_scheduling(const char *proc_dir, json_t *missing);
json_t *limits_memory(const char *proc_dir, json_t *missing);

// The tightest limit on the way from the process's group to the top, for v1 and v2. `mountinfo` is
// the file that says where the hierarchies are mounted, normally "/proc/self/mountinfo".
json_t *limits_cgroup(const char *proc_dir, const char *mountinfo, json_t *missing);
// What the memory limits on that way still allow; pages of files that nobody has mapped or read
// again lately count as free. Bytes; INT64_MAX: no group has a limit, or none is to be found.
int64_t limits_memory_free_bytes(const char *proc_dir, const char *mountinfo);

#endif
