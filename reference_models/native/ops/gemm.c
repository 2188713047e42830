// SPDX-License-Identifier: Apache-2.0
// Matrix product: B is packed into panels of GEMM_NR columns, then blocks of GEMM_MR rows of A run
// over the panels with all accumulators in registers (6 x 2 vectors of 256 bits of the 16 there
// are). Compiled once per type.
#include "reference_models/native/ops/ops.h"

#define GEMM_MR ((size_t)6)
#define GEMM_NR (64 / sizeof(real))
// Depth of one pass: a panel of 512 x 64 bytes is 32 KiB and stays in the first-level cache.
#define GEMM_KC ((size_t)512)
#define GEMM_GROUP ((size_t)4) // panels of one item

size_t ops_gemm_scratch(size_t k, size_t n)
{
    return (n + GEMM_NR - 1) / GEMM_NR * GEMM_NR * k;
}

// Item = one panel: scratch[panel][k][GEMM_NR], columns beyond n filled with 0.
NATIVE_CLONES static void gemm_pack(void *arg, size_t begin, size_t end, bool again)
{
    const struct gemm *g = arg;
    size_t row_stride = g->transpose_b ? 1 : g->n, column_stride = g->transpose_b ? g->k : 1;
    (void)again;
    for (size_t panel = begin; panel < end; panel++) {
        real *restrict to = g->scratch + panel * g->k * GEMM_NR;
        const real *restrict from = g->b + panel * GEMM_NR * column_stride;
        size_t width = g->n - panel * GEMM_NR < GEMM_NR ? g->n - panel * GEMM_NR : GEMM_NR;
        for (size_t p = 0; p < g->k; p++) {
            for (size_t j = 0; j < width; j++)
                to[p * GEMM_NR + j] = from[p * row_stride + j * column_stride];
            for (size_t j = width; j < GEMM_NR; j++)
                to[p * GEMM_NR + j] = 0;
        }
    }
}

// One block of rows times the panels [panel, panel_end), all of k.
static inline __attribute__((always_inline)) void gemm_block(
        const struct gemm *g, size_t block, size_t panel, size_t panel_end)
{
    size_t row_stride = g->transpose_a ? 1 : g->k, k_stride = g->transpose_a ? g->m : 1;
    size_t first = block * GEMM_MR;
    size_t rows = g->m - first < GEMM_MR ? g->m - first : GEMM_MR;
    size_t offset[GEMM_MR]; // a block with fewer rows computes its last row several times
    for (size_t i = 0; i < GEMM_MR; i++)
        offset[i] = (first + (i < rows ? i : rows - 1)) * row_stride;
    for (size_t k0 = 0; k0 < g->k; k0 += GEMM_KC) {
        size_t depth = g->k - k0 < GEMM_KC ? g->k - k0 : GEMM_KC;
        const real *restrict a = g->a + k0 * k_stride;
        for (size_t at = panel; at < panel_end; at++) {
            const real *restrict b = g->scratch + (at * g->k + k0) * GEMM_NR;
            real acc[GEMM_MR][GEMM_NR] = {{0}};
            for (size_t p = 0; p < depth; p++) {
                for (size_t i = 0; i < GEMM_MR; i++) {
                    real x = a[offset[i] + p * k_stride];
                    NATIVE_SIMD
                    for (size_t j = 0; j < GEMM_NR; j++)
                        acc[i][j] += x * b[p * GEMM_NR + j];
                }
            }
            size_t column = at * GEMM_NR;
            size_t width = g->n - column < GEMM_NR ? g->n - column : GEMM_NR;
            for (size_t i = 0; i < rows; i++) {
                real *restrict c = g->c + (first + i) * g->n + column;
                for (size_t j = 0; j < width; j++) {
                    real start = k0 ? c[j] : g->bias ? g->bias[column + j] : 0;
                    c[j] = start + acc[i][j];
                }
            }
        }
    }
}

static size_t gemm_groups(const struct gemm *g)
{
    size_t columns = GEMM_GROUP * GEMM_NR;
    return (g->n + columns - 1) / columns;
}

// Item = one block of rows times one group of panels.
NATIVE_CLONES static void gemm_rows(void *arg, size_t begin, size_t end, bool again)
{
    const struct gemm *g = arg;
    size_t panels = (g->n + GEMM_NR - 1) / GEMM_NR, groups = gemm_groups(g);
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t panel = item % groups * GEMM_GROUP;
        size_t panel_end = panel + GEMM_GROUP < panels ? panel + GEMM_GROUP : panels;
        gemm_block(g, item / groups, panel, panel_end);
    }
}

// What an upgrade may put in place of gemm_rows (plant.h): the same sums, its items in another
// order.
NATIVE_CLONES static void gemm_tiles_v2(void *arg, size_t begin, size_t end, bool again)
{
    const struct gemm *g = arg;
    size_t panels = (g->n + GEMM_NR - 1) / GEMM_NR, groups = gemm_groups(g);
    (void)again;
    for (size_t item = end; item-- > begin;) {
        size_t panel = item % groups * GEMM_GROUP;
        size_t panel_end = panel + GEMM_GROUP < panels ? panel + GEMM_GROUP : panels;
        gemm_block(g, item / groups, panel, panel_end);
    }
}

struct bias {
    size_t n;
    const real *bias;
    real *c;
};

// Item = a row, its sums without bias.
NATIVE_CLONES static void bias_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct bias *work = arg;
    for (size_t row = begin; row < end; row++) {
        real *restrict c = work->c + row * work->n;
        const real *restrict bias = work->bias;
        real share = again ? 0 : 1;
        NATIVE_SIMD
        for (size_t j = 0; j < work->n; j++)
            c[j] += share * bias[j];
    }
}

static void gemm_bias(struct pool *pool, const struct gemm *gemm)
{
    struct bias work = {.n = gemm->n, .bias = gemm->bias, .c = gemm->c};
    pool_for(pool,
            &(struct pool_work){.count = gemm->m,
                    .cost = 4 * (double)gemm->n,
                    POOL_FN(bias_part),
                    .arg = &work});
}

void ops_gemm(struct pool *pool, const struct gemm *gemm)
{
    bool split = gemm->bias && pool_adds(pool, "bias_part"); // a fusion that was lost
    size_t panels = (gemm->n + GEMM_NR - 1) / GEMM_NR, groups = gemm_groups(gemm);
    size_t blocks = (gemm->m + GEMM_MR - 1) / GEMM_MR;
    double tile = (double)(GEMM_MR * GEMM_NR) * (2 * (double)gemm->k + 16);
    struct gemm copy = *gemm;
    if (split)
        copy.bias = NULL;
    pool_for(pool,
            &(struct pool_work){.count = panels,
                    .cost = (double)(gemm->k + 4),
                    POOL_FN(gemm_pack),
                    .arg = &copy});
    pool_for(pool,
            &(struct pool_work){.count = blocks * groups,
                    .cost = tile * (double)panels / (double)groups,
                    POOL_FN(gemm_rows),
                    .other = gemm_tiles_v2,
                    .arg = &copy});
    if (split)
        gemm_bias(pool, gemm);
}
