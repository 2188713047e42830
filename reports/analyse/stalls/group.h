// SPDX-License-Identifier: Apache-2.0
// Groups: all parts of one cause and one culprit, with their sums. Made by merge.c, told by
// describe.c. One owner thread.
#ifndef UPGATE_STALLS_GROUP_H
#define UPGATE_STALLS_GROUP_H

#include "reports/analyse/stalls/parts.h"

struct group {
    enum cause cause;
    uint32_t culprit;          // process; TRACE_NONE
    const struct part **parts; // by begin; not owned
    size_t part_count;
    struct trace_window *spans; // the time lost by anybody, without overlaps, by begin
    size_t span_count;
    int64_t total_ns, max_ns;     // total: of spans; max: of one thread at one go
    int64_t worst_ns;             // of the thread that lost most
    int64_t lead_ns, lead_max_ns; // the same and max_ns among the threads that lead the work
    double weight;                // what it is ranked by
    int64_t split_ns[SPLIT_COUNT];
    size_t count; // episodes: spans, those next to each other taken as one
    uint32_t worst_thread, culprit_thread;
    uint32_t rival; // of CPU contention: who took most of it, to blame or not
    size_t threads;
    double confidence;
    unsigned notes; // as of parts; those that hold for a good part of the time
    bool has_period;
    int64_t period_ns;
    uint64_t steps_hit;
};

struct groups {
    struct group *groups; // worst first
    size_t count;
    const struct part **parts; // behind every group
};

// Waits for mmap_lock get the cause that their holder is known for by others, in [begin, end) and
// outside of it. Once, on all parts, before stragglers and groups.
void groups_explain(struct work *work, int64_t begin, int64_t end);
// Is one deed known, of which there were so many, and that took ns of all waits?
bool groups_deed_known(uint32_t count, int64_t ns, int64_t all);
// share_min as in stalls_opts. Work's parts are final.
void groups_make(struct work *work, double share_min, struct groups *ret_groups);
void groups_free(struct groups *groups);

// By its spans, of how many steps they take a tenth: fills steps_hit.
void group_find_steps(const struct trace *trace, struct group *group);
// period.c: how regularly the culprit acts; fills has_period, period_ns.
void period_find(const struct trace *trace, struct group *group);
// The regular distance of the begins of spans in rising order; 0: none. Multiples (missed ones) are
// folded.
int64_t period_of(const struct trace_window *spans, size_t count);

// quiet.c: a main thread that waited all the time. Fills stalls->quiet and what belongs to it: the
// longest wait of a main thread of the target that ran for less than 2 % of the window and waited
// for half of it at one go.
void quiet_find(const struct work *work, struct stalls *stalls);

// describe.c: as it is told, strings in the trace's arena.
struct stall_task describe_task(const struct trace *trace, uint32_t thread); // TRACE_NONE: nobody
struct stall_stack describe_stack(const struct trace *trace, uint32_t stack);
void describe_group(const struct work *work, const struct group *group, struct stall *ret_stall);

#endif
