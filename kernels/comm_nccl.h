// SPDX-License-Identifier: Apache-2.0
// NCCL as comm.cu opens it, for the plain loop of comm_bench.cu too. Declared here is what its ABI
// has had since 2.13.
#ifndef UPGATE_KERNELS_COMM_NCCL_H
#define UPGATE_KERNELS_COMM_NCCL_H

#include "kernels/comm.h"

enum { NCCL_SUCCESS = 0, NCCL_INVALID_ARGUMENT = 4, NCCL_INVALID_USAGE = 5 };
enum { NCCL_FLOAT16 = 6, NCCL_FLOAT32 = 7, NCCL_BFLOAT16 = 9 };
enum { NCCL_SUM = 0 };

struct nccl_id { // passed by value
    char bytes[KERNEL_COMM_ID_BYTES];
};

struct nccl {
    int (*version)(int *ret);
    int (*unique_id)(struct nccl_id *ret);
    int (*comm_new)(void **ret, int ranks, struct nccl_id id, int rank);
    int (*comm_free)(void *comm);
    const char *(*sentence)(int result);
    const char *(*last_error)(void *comm);
    int (*group_start)();
    int (*group_end)();
    int (*all_reduce)(const void *send, void *receive, size_t count, int type, int operation,
            void *comm, cudaStream_t stream);
    int (*all_gather)(const void *send, void *receive, size_t count, int type, void *comm,
            cudaStream_t stream);
    int (*reduce_scatter)(const void *send, void *receive, size_t count, int type, int operation,
            void *comm, cudaStream_t stream);
    int (*send)(
            const void *send, size_t count, int type, int peer, void *comm, cudaStream_t stream);
    int (*receive)(
            void *receive, size_t count, int type, int peer, void *comm, cudaStream_t stream);
};

struct kernel_comm {
    const struct nccl *nccl;
    void *comm;
    int ranks;
};

// The one of this process, opened by the first call, which must have returned before a second
// thread asks. -ENOSYS when there is none.
int nccl_open(const struct nccl **ret, struct error *err);
// 0, or "NCCL: failed to WHAT: its sentence"; comm may be NULL.
int nccl_error(
        const struct nccl *nccl, int result, void *comm, const char *what, struct error *err);
int nccl_type(enum kernel_type type);

#endif
