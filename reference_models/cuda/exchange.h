// SPDX-License-Identifier: Apache-2.0
// Data parallel training on GPUs, a process and a GPU for each rank: native/ranks/share.h by NCCL
// (kernels/comm.h), on a stream beside that of the model. Replicated: the gradients of units are
// added in buckets while the backward pass goes on. Sharded: a rank updates its part of each unit
// and keeps the optimizer's state of that part only; an all-gather brings a unit before the forward
// pass reads it, a reduce-scatter leaves the part of its gradients. What was gathered stays until
// the next step, as on the CPU. The model scales its gradients by 1 / ranks, so that sums are
// means.
#ifndef UPGATE_CUDA_EXCHANGE_H
#define UPGATE_CUDA_EXCHANGE_H

#include "kernels/comm.h"
#include "reference_models/cuda/params.h"
#include "reference_models/native/ranks/ranks.h"

// In memory that the ranks share, zeroed.
struct exchange_meeting {
    struct ranks_barrier barrier;
    unsigned char id[KERNEL_COMM_ID_BYTES]; // of the communicator, from rank 0
};

// model_ranks.arg of a model on a GPU that is trained; the same in all ranks, outlives the model.
struct exchange_plan {
    uint32_t ranks;
    bool sharded;        // 1, 2, 4 or 8 ranks
    size_t bucket_bytes; // of every bucket, at least a unit; 0: those of share.h
    struct exchange_meeting *meeting;
};

struct exchange;

// All ranks call it, and it waits for them: -ENOSYS: no NCCL; -EINVAL: two ranks on one GPU, or a
// number that cannot be sharded. first: unit u, from 1, is the narrow values first[u] up to first[u
// + 1]; unit 0 is the wide ones. params: allocated.
int exchange_new(const struct exchange_plan *plan, uint32_t rank, struct params *params,
        size_t units, const size_t *first, struct exchange **ret, struct error *err);
void exchange_free(struct exchange *exchange); // before the device is closed; NULL is fine

// Start work, as everything of a step; the ranks all call them in the same order.
void exchange_before(struct exchange *exchange, size_t unit); // as model_ranks.before()
void exchange_after(struct exchange *exchange, size_t unit);  // as model_ranks.after()
// AdamW, of what this rank updates.
void exchange_update(struct exchange *exchange, float rate, float beta1, float beta2, float epsilon,
        float decay);
void exchange_gather(struct exchange *exchange); // all parameters into every rank

#endif
