// SPDX-License-Identifier: Apache-2.0
// Opens NCCL and calls it, as comm.h says it.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/comm.cu
#include "kernels/comm_nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <new>
#include <stdlib.h>
#include <string.h>

int nccl_open(const struct nccl **ret, struct error *err)
{
    static struct nccl nccl;
    static bool opened;
    const char *asked = getenv("UPGATE_NCCL");
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"ncclGetVersion", &nccl.version}, {"ncclGetUniqueId", &nccl.unique_id},
            {"ncclCommInitRank", &nccl.comm_new}, {"ncclCommDestroy", &nccl.comm_free},
            {"ncclGetErrorString", &nccl.sentence}, {"ncclGetLastError", &nccl.last_error},
            {"ncclGroupStart", &nccl.group_start}, {"ncclGroupEnd", &nccl.group_end},
            {"ncclAllReduce", &nccl.all_reduce}, {"ncclAllGather", &nccl.all_gather},
            {"ncclReduceScatter", &nccl.reduce_scatter}, {"ncclSend", &nccl.send},
            {"ncclRecv", &nccl.receive}};
    *ret = &nccl;
    if (opened)
        return 0;
    if (asked && !*asked) // "" would be the program itself
        asked = NULL;
    void *library = dlopen(asked ? asked : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(err, -ENOSYS, "no NCCL: %s; UPGATE_NCCL=path of libnccl.so.2", dlerror());
    for (const auto &symbol : symbols) {
        void *found = dlsym(library, symbol.name);
        if (!found)
            return error_set(err, -ENOSYS, "NCCL is too old: %s", dlerror());
        memcpy(symbol.to, &found, sizeof found);
    }
    opened = true;
    return 0;
}

int nccl_error(const struct nccl *nccl, int result, void *comm, const char *what, struct error *err)
{
    if (result == NCCL_SUCCESS)
        return 0;
    const char *more = nccl->last_error(comm);
    return error_set(err,
            result == NCCL_INVALID_ARGUMENT || result == NCCL_INVALID_USAGE ? -EINVAL : -EIO,
            "NCCL: failed to %s: %s%s%s", what, nccl->sentence(result), more && *more ? "; " : "",
            more ? more : "");
}

int nccl_type(enum kernel_type type)
{
    return type == KERNEL_FLOAT32    ? NCCL_FLOAT32
            : type == KERNEL_FLOAT16 ? NCCL_FLOAT16
                                     : NCCL_BFLOAT16;
}

int kernel_comm_version(int *ret, struct error *err)
{
    const struct nccl *nccl;
    int rc = nccl_open(&nccl, err);
    return rc ? rc : nccl_error(nccl, nccl->version(ret), NULL, "tell its version", err);
}

int kernel_comm_id(unsigned char id[KERNEL_COMM_ID_BYTES], struct error *err)
{
    const struct nccl *nccl;
    struct nccl_id own;
    int rc = nccl_open(&nccl, err);
    if (!rc)
        rc = nccl_error(nccl, nccl->unique_id(&own), NULL, "make an id", err);
    if (!rc)
        memcpy(id, own.bytes, sizeof own.bytes);
    return rc;
}

int kernel_comm_new(const unsigned char id[KERNEL_COMM_ID_BYTES], int ranks, int rank,
        struct kernel_comm **ret, struct error *err)
{
    const struct nccl *nccl;
    struct nccl_id own;
    if (ranks < 1 || ranks > KERNEL_COMM_RANKS_MAX || rank < 0 || rank >= ranks)
        return error_set(err, -EINVAL, "communicator: rank %d of %d: 0 to ranks - 1, of 1 to %d",
                rank, ranks, KERNEL_COMM_RANKS_MAX);
    int rc = nccl_open(&nccl, err);
    if (rc)
        return rc;
    struct kernel_comm *comm = new (std::nothrow) kernel_comm();
    if (!comm)
        return error_set(err, -ENOMEM, "out of memory");
    comm->nccl = nccl;
    comm->ranks = ranks;
    memcpy(own.bytes, id, sizeof own.bytes);
    rc = nccl_error(nccl, nccl->comm_new(&comm->comm, ranks, own, rank), NULL,
            "join the communicator", err);
    if (rc)
        delete comm;
    else
        *ret = comm;
    return rc;
}

void kernel_comm_free(struct kernel_comm *comm)
{
    if (comm && comm->comm)
        comm->nccl->comm_free(comm->comm);
    delete comm;
}

int kernel_comm_begin(struct error *err)
{
    const struct nccl *nccl;
    int rc = nccl_open(&nccl, err);
    return rc ? rc : nccl_error(nccl, nccl->group_start(), NULL, "begin a group", err);
}

int kernel_comm_end(struct error *err)
{
    const struct nccl *nccl;
    int rc = nccl_open(&nccl, err);
    return rc ? rc : nccl_error(nccl, nccl->group_end(), NULL, "end a group", err);
}

static int comm_refuse(const struct kernel_comm *comm, int64_t count, const void *a, const void *b,
        struct error *err)
{
    if (!comm)
        return error_set(err, -EINVAL, "collective: no communicator");
    if (count < 0)
        return error_set(err, -EINVAL, "collective: %lld values", (long long)count);
    if (count && (!a || !b))
        return error_set(
                err, -EINVAL, "collective: what is sent and what is received must not be NULL");
    return 0;
}

int kernel_all_reduce(struct kernel_comm *comm, enum kernel_type type, int64_t count,
        const void *send, void *sum, cudaStream_t stream, struct error *err)
{
    int rc = comm_refuse(comm, count, send, sum, err);
    return rc ? rc
              : nccl_error(comm->nccl,
                        comm->nccl->all_reduce(send, sum, (size_t)count, nccl_type(type), NCCL_SUM,
                                comm->comm, stream),
                        comm->comm, "all-reduce", err);
}

int kernel_all_gather(struct kernel_comm *comm, enum kernel_type type, int64_t count,
        const void *send, void *all, cudaStream_t stream, struct error *err)
{
    int rc = comm_refuse(comm, count, send, all, err);
    return rc ? rc
              : nccl_error(comm->nccl,
                        comm->nccl->all_gather(
                                send, all, (size_t)count, nccl_type(type), comm->comm, stream),
                        comm->comm, "all-gather", err);
}

int kernel_reduce_scatter(struct kernel_comm *comm, enum kernel_type type, int64_t count,
        const void *send, void *part, cudaStream_t stream, struct error *err)
{
    int rc = comm_refuse(comm, count, send, part, err);
    return rc ? rc
              : nccl_error(comm->nccl,
                        comm->nccl->reduce_scatter(send, part, (size_t)count, nccl_type(type),
                                NCCL_SUM, comm->comm, stream),
                        comm->comm, "reduce-scatter", err);
}

int kernel_all_to_all(struct kernel_comm *comm, enum kernel_type type, const int64_t *send_counts,
        const void *send, const int64_t *receive_counts, void *receive, cudaStream_t stream,
        struct error *err)
{
    const char *from = (const char *)send;
    char *to = (char *)receive;
    int64_t sent = 0, received = 0;
    if (!send_counts || !receive_counts)
        return error_set(err, -EINVAL, "all-to-all: no counts");
    int rc = comm_refuse(comm, 0, send, receive, err);
    for (int rank = 0; !rc && rank < comm->ranks; rank++) {
        if (send_counts[rank] < 0 || receive_counts[rank] < 0)
            return error_set(err, -EINVAL, "all-to-all: %lld values to rank %d, %lld from it",
                    (long long)send_counts[rank], rank, (long long)receive_counts[rank]);
        sent += send_counts[rank];
        received += receive_counts[rank];
    }
    if (!rc && ((sent && !send) || (received && !receive)))
        rc = error_set(
                err, -EINVAL, "all-to-all: what is sent and what is received must not be NULL");
    if (rc ||
            (rc = nccl_error(comm->nccl, comm->nccl->group_start(), comm->comm,
                     "begin an all-to-all", err)))
        return rc;
    int result = NCCL_SUCCESS;
    for (int rank = 0; result == NCCL_SUCCESS && rank < comm->ranks; rank++) {
        if (send_counts[rank])
            result = comm->nccl->send(
                    from, (size_t)send_counts[rank], nccl_type(type), rank, comm->comm, stream);
        if (result == NCCL_SUCCESS && receive_counts[rank])
            result = comm->nccl->receive(
                    to, (size_t)receive_counts[rank], nccl_type(type), rank, comm->comm, stream);
        from += (size_t)send_counts[rank] * kernel_type_bytes(type);
        to += (size_t)receive_counts[rank] * kernel_type_bytes(type);
    }
    const int ended = comm->nccl->group_end(); // a group that was begun must end
    return nccl_error(
            comm->nccl, result == NCCL_SUCCESS ? ended : result, comm->comm, "all-to-all", err);
}
