// SPDX-License-Identifier: Apache-2.0
// What recommenders that PyTorch has too are fed with (torch/dlrm_data.py), value by value: ids by
// Zipf's law, dense features, and clicks of a hidden rule. Fp64 and integers, the same for every
// type.
#ifndef UPGATE_NATIVE_CLICKS_H
#define UPGATE_NATIVE_CLICKS_H

#include "common/error.h"
#include "reference_models/native/models/draw.h"

// Ranks by Zipf's law: up to 1,024 each has a chance of its own, beyond blocks share one
// (torch/dlrm_data.py, class Zipf).
struct zipf_blocks {
    uint64_t rows;
    size_t count;
    uint64_t *first, *width; // [count]
    double *up_to;           // [count]: chance of a block and all before it
};
// -ENOMEM. To be freed in every case, zeroed is fine.
int zipf_blocks_init(struct zipf_blocks *zipf, uint64_t rows, struct error *err);
void zipf_blocks_free(struct zipf_blocks *zipf);
// The id, below rows, of two values of [0, 1): which block, and where in it.
int64_t zipf_blocks_id(const struct zipf_blocks *zipf, double block, double inside);

// dense[batch][DLRM_DENSE], and what they add to score[batch], which begins with it.
void clicks_begin(struct draw *draw, size_t batch, double *dense, double *score);
// The first id of a bag has a hidden effect of its own.
static inline double clicks_score(double score, int64_t first_id)
{
    return score + (double)(first_id * 40503 % 1024) * 0x1p-10 - 0.5;
}
// Scores become labels, 0 or 1.
void clicks_end(struct draw *draw, size_t batch, double *score);

#endif
