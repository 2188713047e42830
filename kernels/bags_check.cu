// SPDX-License-Identifier: Apache-2.0
// Looks at the ids and offsets of embedding bags before a launch trusts them: one pass, a thread an
// offset and an id; the first that is wrong is told with its place. Bytes: ids and offsets, read
// once.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/bags_check.cu
#include "kernels/bags.cuh"

enum bags_fault { BAGS_FIRST_OFFSET, BAGS_OFFSET, BAGS_LAST_OFFSET, BAGS_ID };

struct bags_counts {
    int64_t rows[KERNEL_TABLES_MAX];
};

// What is wrong, least place first: place * 4 + fault.
static __device__ void bags_tell(unsigned long long *first, int64_t place, enum bags_fault fault)
{
    atomicMin(first, (unsigned long long)place * 4 + (unsigned long long)fault);
}

static __global__ void bags_check_offsets(
        int64_t count, int64_t ids_count, const int64_t *offsets, unsigned long long *first)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i > count)
        return;
    if (i == 0 && offsets[0] != 0)
        bags_tell(first, 0, BAGS_FIRST_OFFSET);
    if (i == count && offsets[i] != ids_count)
        bags_tell(first, i, BAGS_LAST_OFFSET);
    if (i > 0 && offsets[i] < offsets[i - 1])
        bags_tell(first, i, BAGS_OFFSET);
}

// Trusts the offsets. The bags of a table lie together: its ids begin where its first bag begins.
static __global__ void bags_check_ids(int tables, int64_t bags,
        const __grid_constant__ struct bags_counts counts, const int64_t *ids,
        const int64_t *offsets, unsigned long long *first)
{
    for (int t = 0; t < tables; t++) {
        const int64_t end = offsets[(t + 1) * bags];
        for (int64_t i = offsets[t * bags] + (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
                i < end; i += (int64_t)gridDim.x * blockDim.x)
            if (ids[i] < 0 || ids[i] >= counts.rows[t])
                bags_tell(first, i, BAGS_ID);
    }
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
static cudaError_t bags_read(const int64_t *device, int64_t *ret)
{
    return cudaMemcpy(ret, device, sizeof *ret, cudaMemcpyDeviceToHost);
}

// The sentence for what was found at `place`.
static int bags_explain(
        const struct kernel_bags *bags, enum bags_fault fault, int64_t place, struct error *err)
{
    int64_t value = 0, low = 0, high = bags->tables * bags->bags, begin = 0;
    cudaError_t error =
            bags_read(fault == BAGS_ID ? bags->ids + place : bags->offsets + place, &value);
    if (fault == BAGS_FIRST_OFFSET)
        return error_set(
                err, -EINVAL, "embedding bag: the first offset is %lld, not 0", (long long)value);
    if (fault == BAGS_LAST_OFFSET)
        return error_set(err, -EINVAL, "embedding bag: the last offset is %lld, there are %lld ids",
                (long long)value, (long long)bags->ids_count);
    if (fault == BAGS_OFFSET)
        return error_set(err, -EINVAL,
                "embedding bag: offset %lld is %lld, less than the one before", (long long)place,
                (long long)value);
    while (error == cudaSuccess && high - low > 1) { // the last bag that begins at or before the id
        const int64_t middle = (low + high) / 2;
        error = bags_read(bags->offsets + middle, &begin);
        if (begin <= place)
            low = middle;
        else
            high = middle;
    }
    if (error != cudaSuccess)
        return device_error(error, "read the offsets", err);
    const int64_t table = low / bags->bags;
    return error_set(err, -EINVAL,
            "embedding bag: id %lld at place %lld (bag %lld of table %lld) is out of range: the table has %lld rows",
            (long long)value, (long long)place, (long long)(low % bags->bags), (long long)table,
            (long long)bags->row_counts[table]);
}

int kernel_bags_check(const struct kernel_bags *bags, cudaStream_t stream, struct error *err)
{
    unsigned long long first = ~0ull, *found = NULL;
    struct bags_counts counts = {};
    int rc = bags_refuse(bags, err);

    if (rc)
        return rc;
    for (int64_t t = 0; t < bags->tables; t++)
        counts.rows[t] = bags->row_counts[t];
    const int64_t count = bags->tables * bags->bags;
    cudaError_t error = cudaMallocAsync((void **)&found, sizeof *found, stream);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(found, 0xff, sizeof *found, stream);
    for (int pass = 0; pass < 2 && error == cudaSuccess && first == ~0ull; pass++) {
        if (pass == 0)
            bags_check_offsets<<<(unsigned)(count / 256 + 1), 256, 0, stream>>>(
                    count, bags->ids_count, bags->offsets, found);
        else
            bags_check_ids<<<1024, 256, 0, stream>>>(
                    (int)bags->tables, bags->bags, counts, bags->ids, bags->offsets, found);
        error = cudaGetLastError();
        if (error == cudaSuccess)
            error = cudaMemcpyAsync(&first, found, sizeof first, cudaMemcpyDeviceToHost, stream);
        if (error == cudaSuccess)
            error = cudaStreamSynchronize(stream);
    }
    if (found)
        cudaFreeAsync(found, stream);
    if (error != cudaSuccess)
        return device_error(error, "check the ids", err);
    return first == ~0ull
            ? 0
            : bags_explain(bags, (enum bags_fault)(first % 4), (int64_t)(first / 4), err);
}
#endif
