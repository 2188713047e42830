// SPDX-License-Identifier: Apache-2.0
// Recorded tensors and losses of a workload in memory.
#ifndef UPGATE_GATE_PARITY_ROWS_H
#define UPGATE_GATE_PARITY_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "reports/analyse/dtype.h"
#include "reports/analyse/sketch.h"
#include "tracer/store/store.h"

enum { TENSOR_VALUES_MAX = 4096 }; // of a tensor that the store keeps one by one

struct tensor_row {
    int64_t seed, rank, step;
    enum dtype dtype;     // DTYPE_COUNT: not decodable
    size_t count, stored; // elements, and those of them in bytes
    char digest[20];      // of all
    void *bytes;
    double *sketch; // of a longer one, SKETCH_SUMS sums over all its values; NULL
};
struct tensor_rows {
    struct tensor_row *items;
    int count;
};

// Names of tensors that a judged pair of the workload recorded on either side; the caller frees
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
// The row of a seed, rank and step at or behind *at, which becomes the place behind it; NULL: none.
// at NULL: anywhere.
const struct tensor_row *tensor_rows_find(
        const struct tensor_rows *rows, int64_t seed, int64_t rank, int64_t step, int *at);
void tensor_rows_clear(struct tensor_rows *rows);

// The losses of one launch: for each step the mean over its ranks.
struct loss_launch {
    int64_t pair_id, seed;
    double *values; // in order of steps
    int64_t *idx;   // which steps those are
    int steps;
    bool dropped;        // step records were lost: its steps are not those of others
    int64_t broken_step; // the first NaN or Inf of any rank; -1: none
};
struct loss_launches {
    struct loss_launch *items;
    int count;
};
// Of all launches of a side in pairs of main and confirm (void ones too: a disturbed machine
// changes no number), or with phase 'pilot' the repetitions of the baseline. In order of pairs.
int loss_launches_load(struct store *store, int64_t workload_id, bool pilot, int side,
        struct loss_launches *ret_launches, struct error *err);
const struct loss_launch *loss_launches_find(const struct loss_launches *launches, int64_t pair_id);
void loss_launches_clear(struct loss_launches *launches);

#endif
