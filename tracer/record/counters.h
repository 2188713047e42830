// SPDX-License-Identifier: Apache-2.0
// Numbers of the machine that tell why, read once a second: memory management, CPU limit of the target's cgroup,
// stolen time, pressure. Rows of table counter. A file that is not there is left out. One thread.
#ifndef UPGATE_TRACER_RECORD_COUNTERS_H
#define UPGATE_TRACER_RECORD_COUNTERS_H

#include <stdint.h>
#include <sys/types.h>

#include "tracer/record/writer.h"

struct counters;

// pid: whose cgroups are read; cgroup: a directory instead, or NULL.
struct counters *counters_new(struct writer *writer, int64_t recording_id, pid_t pid, const char *cgroup);
void counters_free(struct counters *counters); // NULL ok
void counters_read(struct counters *counters, int64_t now_ns);
// How many memory cgroups the kernel keeps, dead ones too, and how many directories there are: thousands of
// directories take a while, so only at the begin and at the end.
void counters_read_cgroups(struct counters *counters, int64_t now_ns);
void counters_put(struct counters *counters, int64_t now_ns, const char *source, const char *name, int64_t value);

#endif
