// SPDX-License-Identifier: Apache-2.0
// Recorded tensors and losses of a workload in memory, decoded.
#ifndef UPGATE_GATE_PARITY_ROWS_H
#define UPGATE_GATE_PARITY_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "reports/analyse/dtype.h"
#include "tracer/store/store.h"

struct tensor_row {
    int64_t pair_id, seed, rank, step;
    enum dtype dtype;
    size_t count, stored; // elements; the store keeps the first 4,096
    char digest[20];
    double *values; // stored; NULL when the type is not decodable
};
struct tensor_rows {
    struct tensor_row *items;
    int count;
};

// Names of tensors that a valid main pair of the workload recorded on either side; caller frees
// all.
int tensor_names_load(struct store *store, int64_t workload_id, char ***ret_names, int *ret_count,
                      struct error *err);
// Which rows: of one pair, or (pair_id -1) of all valid pairs of a phase.
struct tensor_query {
    int64_t workload_id, pair_id;
    const char *phase, *name;
    int side;
};
// In order of pair, rank and step.
int tensor_rows_load(struct store *store, const struct tensor_query *query,
                     struct tensor_rows *ret_rows, struct error *err);
// The row of a seed, rank and step; NULL: none.
const struct tensor_row *tensor_rows_find(const struct tensor_rows *rows, int64_t seed,
                                          int64_t rank, int64_t step);
void tensor_rows_clear(struct tensor_rows *rows);

// Losses of the lowest rank, of valid main pairs in which both sides recorded some: [seed * steps +
// step], as many steps as every launch has.
struct loss_rows {
    double *a, *b;
    int seed_count, step_count;
    int only_a, only_b; // pairs in which one side alone recorded a loss
};
int loss_rows_load(struct store *store, int64_t workload_id, struct loss_rows *ret_rows,
                   struct error *err);
void loss_rows_clear(struct loss_rows *rows);

#endif
