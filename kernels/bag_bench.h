// SPDX-License-Identifier: Apache-2.0
// Inputs of the embedding kernels, for their checks and timings: tables whose values follow from a
// hash, so that a host that never holds 10 GB knows every value; ids of a uniform or a power law;
// bags of one length or of many.
#ifndef UPGATE_KERNELS_BAG_BENCH_H
#define UPGATE_KERNELS_BAG_BENCH_H

#include "kernels/bench.h"

struct bag_shape {
    int64_t tables, rows, dim, bags, length;
    enum kernel_type type;
    enum kernel_pooling pooling;
    bool power;  // ids of a power law of exponent 1.05, else uniform
    bool varied; // lengths 0 to 2 * length, else all `length`
};

struct bag_case {
    struct bag_shape shape;
    struct kernel_bags bags;
    std::vector<int64_t> ids, offsets;
    std::vector<float> weights;
    uint64_t seed; // of the tables' values
};

// Value of a table as it starts, -1 to 1, of the type.
double bag_value(const struct bag_case *t, int64_t table, int64_t row, int64_t column);
void bag_fill_tables(struct bench *bench, struct bag_case *t); // allocates them, if there are none
// Ids, offsets and weights, on both sides. The tables are those of `tables`, or new ones when it is
// NULL.
void bag_set(struct bench *bench, struct bag_case *t, const struct bag_shape *shape,
        const struct bag_case *tables);
// of a lookup: its weight or share
double bag_scale(const struct bag_case *t, int64_t number, int64_t place);
// sum[dim] of bag `number`
void bag_reference(const struct bag_case *t, int64_t number, double *sum);
double bag_unique(const struct bag_case *t); // rows that are named
void bag_name(const struct bag_shape *shape, const char *what, char *text, size_t size);

#endif
