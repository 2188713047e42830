// SPDX-License-Identifier: Apache-2.0
// What if: the operations of a job's ranks as a graph, which is run again with other durations. A
// computation begins when all that it depends on has ended. A communication ends for each of its
// members when the last of them has begun, and its transfer has taken its time: transfer = end -
// the last begin of its group, as in "Understanding Stragglers in Large Model Training Using
// What-if Analysis" (OSDI 2025, arXiv 2505.05713). What was between the end of the last dependency
// and the begin of an operation is its delay. Pure: no store, no clock, no output. O(operations +
// dependencies) a run. Times are nanoseconds. One owner thread.
#ifndef UPGATE_ANALYSE_REPLAY_H
#define UPGATE_ANALYSE_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define REPLAY_NONE UINT32_MAX // no group
// Begins, ends, and what all operations last together are below: 9 years.
#define REPLAY_END_NS ((int64_t)1 << 58)

struct replay_op {
    int64_t begin_ns, end_ns; // as measured, end >= begin
    uint32_t rank, step;
    uint32_t kind;  // operations of a kind do the same work: on several ranks, in several steps
    uint32_t group; // of a communication: those that wait for each other; REPLAY_NONE: it waits for
                    // nobody
    bool communicates; // true wherever there is a group
};

// The caller's, and unchanged for as long as the struct replay lives.
struct replay_job {
    const struct replay_op *ops; // [op_count]
    size_t op_count;             // below UINT32_MAX
    const size_t *dep_first;     // [op_count + 1]: op i depends on deps[dep_first[i]] to
                                 // deps[dep_first[i + 1] - 1]
    const uint32_t *deps;        // indexes of ops
    // [step_count]: what depends on nothing begins then, and its delay later
    const int64_t *step_begin_ns;
    const uint32_t *stage_of; // [rank_count] in [0, stage_count); NULL: there are no stages
    size_t step_count, rank_count, kind_count, group_count, stage_count;
};

struct replay;

// -EINVAL: an index out of range, an end before its begin; -ELOOP: operations wait for each other
// in a circle; -ERANGE: longer than nine years. Memory that is missing ends the program.
int replay_new(const struct replay_job *job, struct replay **ret_replay, struct error *err);
void replay_free(struct replay *replay); // NULL ok

// [op_count]: of a computation how long it took, of a communication its transfer, never below 0.
const int64_t *replay_durations(const struct replay *replay);
// The end of the last operation of each step, in ret_end_ns [step_count]; INT64_MIN: the step has
// none. delays: they are kept, else what depends on something begins at once, and what depends on
// nothing with its step.
void replay_run(
        const struct replay *replay, const int64_t *durations, bool delays, int64_t *ret_end_ns);

// ---- replay_if.c: other durations, in ret [op_count]. What is not named stays as measured. ----

// What a rank computes of a kind in a step takes the mean of the ranks that do: one may do it in
// two parts, and another one in one.
void replay_if_even(const struct replay *replay, int64_t *ret);
// The ranks ([rank_count]) are like the others: over the steps of a kind the noise of the others,
// in the order of what each took beyond the others' mean, in place of it. Of kinds that they are
// not longer in they keep what they took; of kinds with few steps they get the mean. In all they
// compute no less than the others of their stage in the mean, if they did before.
void replay_if_without(const struct replay *replay, const bool *ranks, int64_t *ret);
// No communication takes time: the ranks wait for each other only.
void replay_if_instant(const struct replay *replay, int64_t *ret);
// The work is the same, but each stage has as much of it. false: there are no stages, or one
// without work.
bool replay_if_balanced(const struct replay *replay, int64_t *ret);
// As in the paper: each computation takes the mean of its kind, each communication the median, over
// all ranks and steps.
void replay_if_ideal(const struct replay *replay, int64_t *ret);

#endif
