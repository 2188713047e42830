// SPDX-License-Identifier: Apache-2.0
// What the lookups and the updates of embedding bags share: what they refuse, and which table a bag
// belongs to.
#ifndef UPGATE_KERNELS_BAGS_CUH
#define UPGATE_KERNELS_BAGS_CUH

#include "kernels/device.cuh"

#define BAGS_ROW_BYTES_MAX 2048

// The tables of a launch, passed by value.
struct bags_tables {
    void *rows[KERNEL_TABLES_MAX];
};

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
static inline int bags_refuse(const struct kernel_bags *bags, struct error *err)
{
    const int64_t size = (int64_t)kernel_type_bytes(bags->type);
    if (bags->tables < 1 || bags->tables > KERNEL_TABLES_MAX)
        return error_set(err, -EINVAL,
                "embedding bag: %lld tables in one launch are not supported: 1 to %d are",
                (long long)bags->tables, KERNEL_TABLES_MAX);
    if (bags->bags < 1 || bags->bags > INT32_MAX / bags->tables)
        return error_set(err, -EINVAL,
                "embedding bag: %lld bags of %lld tables are not supported: 1 to 2^31 - 1 in all are",
                (long long)bags->bags, (long long)bags->tables);
    if (bags->dim < 1 || bags->dim * size % 16 != 0 || bags->dim * size > BAGS_ROW_BYTES_MAX)
        return error_set(err, -EINVAL,
                "embedding bag: rows of %lld %s are not supported: a multiple of %lld up to %lld is",
                (long long)bags->dim, kernel_type_name(bags->type), (long long)(16 / size),
                (long long)(BAGS_ROW_BYTES_MAX / size));
    if (bags->ids_count < 0 || bags->ids_count > INT32_MAX)
        return error_set(err, -EINVAL,
                "embedding bag: %lld ids are not supported: 0 to 2^31 - 1 are",
                (long long)bags->ids_count);
    if (!bags->offsets || (bags->ids_count && !bags->ids))
        return error_set(err, -EINVAL, "embedding bag: ids and offsets must not be NULL");
    if (bags->ids_count && (bags->pooling == KERNEL_WEIGHTED) != (bags->weights != NULL))
        return error_set(err, -EINVAL,
                "embedding bag: weights are given for a weighted sum, and only for that");
    for (int64_t t = 0; t < bags->tables; t++) {
        if (bags->row_counts[t] < 1 || bags->row_counts[t] > INT32_MAX)
            return error_set(err, -EINVAL,
                    "embedding bag: table %lld has %lld rows: 1 to 2^31 - 1 are supported",
                    (long long)t, (long long)bags->row_counts[t]);
        if (!bags->rows[t] || (uintptr_t)bags->rows[t] % 16 != 0)
            return error_set(err, -EINVAL,
                    "embedding bag: table %lld is NULL or does not start at a multiple of 16 bytes",
                    (long long)t);
    }
    return 0;
}
#endif

#endif
