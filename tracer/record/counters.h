// SPDX-License-Identifier: Apache-2.0
// Numbers of the machine that tell why, read once a second: memory management, CPU limit of the
// target's cgroup, stolen time, pressure. Rows of table counter. A file that is not there is left
// out. One thread.
#ifndef UPGATE_TRACER_RECORD_COUNTERS_H
#define UPGATE_TRACER_RECORD_COUNTERS_H

#include <stdint.h>
#include <sys/types.h>

#include "tracer/record/writer.h"

struct counters;

// pid: whose cgroups are read; cgroup: a directory instead, or NULL. rank: which one of a job that
// is; -1: none, or not told. The sum of what cgroups above it count that have a quota is
// "nr_throttled.above".
struct counters *counters_new(
        struct writer *writer, int64_t recording_id, pid_t pid, const char *cgroup, int32_t rank);
void counters_free(struct counters *counters); // NULL ok
char *counters_cpu_stat(pid_t pid); // path of that of its cgroup; NULL: none; caller frees
// One more rank of the target, with the path of its cgroup's cpu.stat (taken; NULL: none). While
// all have the same one it is that of the target. From the first that has another one on each has
// its own: "nr_throttled rank 3".
void counters_add_rank(struct counters *counters, int32_t rank, char *cpu_stat, int64_t now_ns);
void counters_remove_rank(struct counters *counters, int32_t rank);
// last: also those of ranks that were read just before, so that the end of the recording is in
// them.
void counters_read(struct counters *counters, int64_t now_ns, bool last);
// How many memory cgroups the kernel keeps, dead ones too, and how many directories there are:
// thousands of directories take a while, so only at the begin and at the end.
void counters_read_cgroups(struct counters *counters, int64_t now_ns);
void counters_put(struct counters *counters, int64_t now_ns, const char *source, const char *name,
        int64_t value);

#endif
