// SPDX-License-Identifier: Apache-2.0
// Collectives of a model over several GPUs, by NCCL of the side that runs, opened at run time:
// UPGATE_NCCL=path, or libnccl.so.2. A rank is a GPU: one process for each, or one for all with
// every call of a collective between kernel_comm_begin() and kernel_comm_end(). Tensors in device
// memory of the rank's GPU, which must be the current one. A collective is put into `stream` and
// returns at once; its ranks must all call it, in the same order. -ENOSYS: no NCCL, or one that
// lacks something; -EINVAL: what it was given, in words, as two ranks on one GPU; -EIO: it failed.
// One thread at a time for a communicator.
#ifndef UPGATE_KERNELS_COMM_H
#define UPGATE_KERNELS_COMM_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KERNEL_COMM_ID_BYTES 128
#define KERNEL_COMM_RANKS_MAX 1024

struct kernel_comm;

int kernel_comm_version(int *ret, struct error *err); // 22809: 2.28.9
// Of one rank, which hands it to all the others.
int kernel_comm_id(unsigned char id[KERNEL_COMM_ID_BYTES], struct error *err);
// Waits for the other ranks (between begin and end: kernel_comm_end() does, and *ret may be used
// behind it).
int kernel_comm_new(const unsigned char id[KERNEL_COMM_ID_BYTES], int ranks, int rank,
        struct kernel_comm **ret, struct error *err);
// NULL: nothing; what is in its streams must have ended
void kernel_comm_free(struct kernel_comm *comm);
int kernel_comm_begin(struct error *err);
int kernel_comm_end(struct error *err);

// sum[count] over all ranks of send[count], in each. Both may be the same.
int kernel_all_reduce(struct kernel_comm *comm, enum kernel_type type, int64_t count,
        const void *send, void *sum, cudaStream_t stream, struct error *err);
// all[ranks][count] from each rank's send[count], which may be its own part of it.
int kernel_all_gather(struct kernel_comm *comm, enum kernel_type type, int64_t count,
        const void *send, void *all, cudaStream_t stream, struct error *err);
// part[count], the rank's own of the sum of all ranks' send[ranks][count], in which it may lie.
int kernel_reduce_scatter(struct kernel_comm *comm, enum kernel_type type, int64_t count,
        const void *send, void *part, cudaStream_t stream, struct error *err);
// To rank r go send_counts[r] values of `send`, one rank's behind the other's; from it come
// receive_counts[r]. Counts are on the host; any may be 0. Bits are moved as they are: an id of 64
// bits is two values of float32.
int kernel_all_to_all(struct kernel_comm *comm, enum kernel_type type, const int64_t *send_counts,
        const void *send, const int64_t *receive_counts, void *receive, cudaStream_t stream,
        struct error *err);

#ifdef __cplusplus
}
#endif

#endif
