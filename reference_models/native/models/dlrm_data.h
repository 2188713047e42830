// SPDX-License-Identifier: Apache-2.0
// Inputs of the recommender: ids drawn by Zipf 1.05 over tables of skewed sizes, dense features,
// and clicks from a planted teacher, so that there is something to learn. Fp64, the same for both
// types.
#ifndef UPGATE_NATIVE_DLRM_DATA_H
#define UPGATE_NATIVE_DLRM_DATA_H

#include "reference_models/native/model.h"
#include "reference_models/native/rng.h"

#define DLRM_TABLES_MAX 16
#define DLRM_DENSE 13

struct dlrm_table_shape {
    uint32_t rows, bag; // size of the table; ids looked up in it for each sample
};

struct dlrm_shape {
    size_t tables, dim, batch, bottom, top1, top2; // widths of the hidden layers
    double rate;                                   // of SGD
    uint64_t pool; // so many steps have inputs of their own, then they come again; 0: all have
    struct dlrm_table_shape table[DLRM_TABLES_MAX];
};

extern const struct dlrm_shape dlrm_shapes[MODEL_SIZE_COUNT];

struct dlrm_data {
    const struct dlrm_shape *shape;
    uint64_t seed;
    struct zipf zipf[DLRM_TABLES_MAX];
    double *teacher[DLRM_TABLES_MAX]; // what an id adds to the log-odds of a click
    double dense[DLRM_DENSE];         // and a dense feature
};

int dlrm_data_init(
        struct dlrm_data *data, const struct dlrm_shape *shape, uint64_t seed, struct error *err);
void dlrm_data_free(struct dlrm_data *data);

// Draw sample `row` of `step`: dense[DLRM_DENSE], ids of each table (ids[t] + row * bag), the
// label.
void dlrm_data_sample(const struct dlrm_data *data, uint64_t step, size_t row, double *dense,
        uint32_t *const *ids, double *ret_label);

#endif
