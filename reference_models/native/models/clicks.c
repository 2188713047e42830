// SPDX-License-Identifier: Apache-2.0
// Zipf's law in blocks, and clicks that depend on dense features and ids. Reads nothing.
#include "reference_models/native/models/clicks.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "common/containers/search.h"
#include "reference_models/native/models/dlrm_data.h"

#define CLICKS_ZIPF 1.05

static uint64_t zipf_edge(uint64_t edge, uint64_t rows)
{
    uint64_t next = edge + (edge > 1024 ? edge / 32 : 1);
    return next > rows ? rows + 1 : next;
}

int zipf_blocks_init(struct zipf_blocks *zipf, uint64_t rows, struct error *err)
{
    size_t count = 0, i = 0;
    double total = 0;
    for (uint64_t edge = 1; edge <= rows; edge = zipf_edge(edge, rows))
        count++;
    *zipf = (struct zipf_blocks){.rows = rows,
            .count = count,
            .first = calloc(count, sizeof *zipf->first),
            .width = calloc(count, sizeof *zipf->width),
            .up_to = calloc(count, sizeof *zipf->up_to)};
    if (!zipf->first || !zipf->width || !zipf->up_to)
        return error_set(err, -ENOMEM, "no memory for the popular ids of a table");
    for (uint64_t edge = 1; edge <= rows; i++) {
        uint64_t next = zipf_edge(edge, rows);
        zipf->first[i] = edge;
        zipf->width[i] = next - edge;
        total += (double)(next - edge) * pow((double)(edge + next - 1) / 2, -CLICKS_ZIPF);
        zipf->up_to[i] = total;
        edge = next;
    }
    for (i = 0; i < count; i++)
        zipf->up_to[i] /= total;
    return 0;
}

void zipf_blocks_free(struct zipf_blocks *zipf)
{
    free(zipf->first);
    free(zipf->width);
    free(zipf->up_to);
    *zipf = (struct zipf_blocks){.rows = 0};
}

int64_t zipf_blocks_id(const struct zipf_blocks *zipf, double block, double inside)
{
    size_t at = search_first(i, zipf->count - 1, zipf->up_to[i] > block);
    uint64_t rank = zipf->first[at] + (uint64_t)(inside * (double)zipf->width[at]) - 1;
    return (int64_t)(rank * 2654435761u % zipf->rows);
}

void clicks_begin(struct draw *draw, size_t batch, double *dense, double *score)
{
    for (size_t b = 0; b < batch; b++, dense += DLRM_DENSE) {
        for (size_t i = 0; i < DLRM_DENSE; i++)
            dense[i] = draw_uniform(draw) * 2 - 1;
        score[b] = dense[0] - dense[1] + dense[2] * dense[3];
    }
}

void clicks_end(struct draw *draw, size_t batch, double *score)
{
    for (size_t b = 0; b < batch; b++) {
        double chance = 0.5 + score[b] * 0.25;
        chance = chance < 0.02 ? 0.02 : chance > 0.98 ? 0.98 : chance;
        score[b] = draw_uniform(draw) < chance ? 1 : 0;
    }
}
