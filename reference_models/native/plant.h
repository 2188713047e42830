// SPDX-License-Identifier: Apache-2.0
// Planted faults: what upgate must find. `--plant SPEC[,SPEC...]` makes a workload slower, or fail
// in one of the ways real ones do. They act for real: more work, memory that is gone, a dead
// process.
#ifndef UPGATE_NATIVE_PLANT_H
#define UPGATE_NATIVE_PLANT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "reference_models/native/pool.h"

#define PLANT_HELP \
    "slow:P%        repeat P % of the work of every step\n" \
    "  nan:STEP       the parameters become NaN in that step (from 0)\n" \
    "  crash:STEP     SIGSEGV in that step\n" \
    "  hang:STEP      that step never ends\n" \
    "  leak:BYTES     keep so many bytes more after every step (4096, 64K, 1M)\n" \
    "  coldstart:MS   so many ms of CPU more in the first step, as phase 'compile'\n" \
    "  exit:CODE      end with that code (0..255) after half of the steps\n" \
    "  nostep         end with 0 and no step taken\n" \
    " and regressions, of every step P % (regress.h):\n" \
    "  op:NAME:P%     the work NAME is repeated (gemm_rows, bag_part, layernorm_part, ...)\n" \
    "  replace:P%     gemm_rows is done by gemm_tiles_v2, which is slower\n" \
    "  unfuse:P%      biases are added in a pass of their own\n" \
    "  compute:P%, fill:P%, copy:P%, fault:P%, syscall:P%, fsync:P%\n" \
    "                 computing, memset, memcpy, page faults, reads of /proc, writes to disk\n" \
    "  sleep:P%       data come late\n" \
    "  lock:P%        another thread holds a lock; rival:P%: it takes the CPU\n" \
    "  straggle:P%    the last of several ranks computes more\n" \
    "  root           allreduce and ddp add up in one rank\n" \
    "  buckets        ddp reduces its gradients in many small pieces\n" \
    "  pool1          one thread, whatever --threads says"

enum plant_share { // what takes a share of every step, in regress.c
    PLANT_SHARE_COMPUTE,
    PLANT_SHARE_FILL,
    PLANT_SHARE_COPY,
    PLANT_SHARE_FAULT,
    PLANT_SHARE_SYSCALL,
    PLANT_SHARE_FSYNC,
    PLANT_SHARE_SLEEP,
    PLANT_SHARE_LOCK,
    PLANT_SHARE_RIVAL,
    PLANT_SHARE_STRAGGLE,
    PLANT_SHARE_COUNT
};

// `= PLANT_NONE` plants nothing. A step of UINT64_MAX never comes.
struct plant {
    double slow; // share of the work that is repeated
    uint64_t nan_step, crash_step, hang_step;
    uint64_t leak_bytes;
    int64_t coldstart_ns;
    int exit_code; // -1: none
    bool nostep;
    double share[PLANT_SHARE_COUNT]; // of a step; 0: none
    enum pool_op op;                 // with op_share > 0
    char op_name[32];
    double op_share;
    bool root, buckets, pool1;
};
#define PLANT_NONE \
    { \
        .nan_step = UINT64_MAX, .crash_step = UINT64_MAX, .hang_step = UINT64_MAX, .exit_code = -1 \
    }

// Adds to *plant. -EINVAL with what is accepted and the nearest kind.
int plant_parse(const char *text, struct plant *plant, struct error *err);

// Call inside each step, before its work: crash, hang, leak and cold start act here. True when the
// parameters are to become NaN.
bool plant_enter_step(const struct plant *plant, uint64_t step);

// Call before each step: ends the process when exit:CODE says so.
void plant_before_step(const struct plant *plant, uint64_t step, uint64_t steps);

#endif
