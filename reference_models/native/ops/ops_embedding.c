// SPDX-License-Identifier: Apache-2.0
// Lookups in tables and what recommenders do with them: embedding bags, token and position
// embeddings, dot interaction. Compiled once per type. An item is a row of the batch (of one
// table), or of a table.
#include "reference_models/native/ops/ops.h"

#define TOKEN_COLUMNS (64 / sizeof(real))

struct bags_update {
    const struct bags *bags;
    real rate;
};

static double bags_cost(const struct bags *bags)
{
    double lookups = 0;
    for (size_t t = 0; t < bags->tables; t++)
        lookups += (double)bags->bag[t].size;
    return lookups / (double)bags->tables * (double)bags->dim;
}

// The ids of a bag.
static inline const uint32_t *bag_ids(
        const struct bag *bag, size_t row, bool again, size_t *ret_count)
{
    const uint32_t *ids = again ? bag->spare_ids : bag->ids;
    const uint32_t *offset = again ? bag->spare_offset : bag->offset;
    *ret_count = offset ? offset[row + 1] - offset[row] : bag->size;
    return ids + (offset ? offset[row] : row * bag->size);
}

NATIVE_CLONES static void bag_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct bags *bags = arg;
    size_t dim = bags->dim;
    real nowhere[OPS_BAG_DIM_MAX];
    for (size_t item = begin; item < end; item++) {
        const struct bag *bag = &bags->bag[item / bags->rows];
        size_t row = item % bags->rows, count;
        const uint32_t *ids = bag_ids(bag, row, again, &count);
        real *restrict out = again ? nowhere : bag->out + row * bags->out_stride;
        memset(out, 0, dim * sizeof *out);
        for (size_t i = 0; i < count; i++) {
            const real *restrict from = bag->table + ids[i] * dim;
            NATIVE_SIMD
            for (size_t j = 0; j < dim; j++)
                out[j] += from[j];
        }
    }
    __asm__ volatile("" : : "r"(nowhere) : "memory"); // the sums there count as used
}

void ops_bag(struct pool *pool, const struct bags *bags)
{
    pool_for(pool,
            &(struct pool_work){.count = bags->tables * bags->rows,
                    .cost = 8 * bags_cost(bags),
                    POOL_FN(bag_part),
                    .arg = (void *)bags});
}

// One thread owns a table (the grain of the call), so duplicates are added in order.
NATIVE_CLONES static void bag_sgd_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct bags_update *work = arg;
    const struct bags *bags = work->bags;
    size_t dim = bags->dim;
    real rate = again ? 0 : work->rate;
    for (size_t item = begin; item < end; item++) {
        const struct bag *bag = &bags->bag[item / bags->rows];
        size_t row = item % bags->rows, count;
        const uint32_t *ids = bag_ids(bag, row, again, &count);
        const real *restrict dout = bag->dout + row * bags->out_stride;
        for (size_t i = 0; i < count; i++) {
            real *restrict to = bag->table + ids[i] * dim;
            NATIVE_SIMD
            for (size_t j = 0; j < dim; j++)
                to[j] -= rate * dout[j];
        }
    }
}

void ops_bag_sgd(struct pool *pool, const struct bags *bags, real rate)
{
    struct bags_update work = {.bags = bags, .rate = rate};
    pool_for(pool,
            &(struct pool_work){.count = bags->tables * bags->rows,
                    .grain = bags->rows,
                    .cost = 12 * bags_cost(bags),
                    POOL_FN(bag_sgd_part),
                    .arg = &work});
}

struct bag_rows_update {
    const struct bag_rows *rows;
    real rate, epsilon;
};

// An item is a row, so no two threads write to one. A repeat writes nowhere.
NATIVE_CLONES static void bag_update_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct bag_rows_update *work = arg;
    const struct bag_rows *rows = work->rows;
    size_t dim = rows->dim;
    real rate = work->rate, epsilon = work->epsilon;
    real sum[OPS_BAG_DIM_MAX], nowhere[2 * OPS_BAG_DIM_MAX];
    for (size_t item = begin; item < end; item++) {
        memset(sum, 0, dim * sizeof *sum);
        for (size_t k = rows->begin[item]; k < rows->begin[item + 1]; k++) {
            const real *restrict dout = rows->dout + rows->vector[k] * dim;
            NATIVE_SIMD
            for (size_t j = 0; j < dim; j++)
                sum[j] += dout[j];
        }
        const real *value = rows->table + rows->row[item] * dim;
        real *to = again ? nowhere : rows->table + rows->row[item] * dim;
        if (!rows->square) {
            NATIVE_SIMD
            for (size_t j = 0; j < dim; j++)
                to[j] = value[j] - rate * sum[j];
            continue;
        }
        const real *square = rows->square + rows->row[item] * dim;
        real *to_square = again ? nowhere + OPS_BAG_DIM_MAX : rows->square + rows->row[item] * dim;
        NATIVE_SIMD
        for (size_t j = 0; j < dim; j++) {
            real all = square[j] + sum[j] * sum[j];
            to_square[j] = all;
            to[j] = value[j] - rate * sum[j] / (NATIVE_SQRT(all) + epsilon);
        }
    }
    __asm__ volatile("" : : "r"(nowhere) : "memory"); // what is written there counts as used
}

void ops_bag_update(struct pool *pool, const struct bag_rows *rows, real rate, real epsilon)
{
    struct bag_rows_update work = {.rows = rows, .rate = rate, .epsilon = epsilon};
    if (rows->rows == 0)
        return;
    double lookups = (double)rows->begin[rows->rows] / (double)rows->rows;
    pool_for(pool,
            &(struct pool_work){.count = rows->rows,
                    .cost = (8 * lookups + 20) * (double)rows->dim,
                    POOL_FN(bag_update_part),
                    .arg = &work});
}

struct token_work {
    struct token embed;
    const real *token_table, *position_table, *dout;
    real *out, *dtoken_table, *dposition_table;
};

NATIVE_CLONES static void token_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct token_work *work = arg;
    size_t dim = work->embed.dim;
    (void)again;
    for (size_t row = begin; row < end; row++) {
        const real *restrict token = work->token_table + work->embed.token[row] * dim;
        const real *restrict position = work->position_table + row % work->embed.context * dim;
        real *restrict out = work->out + row * dim;
        NATIVE_SIMD
        for (size_t j = 0; j < dim; j++)
            out[j] = token[j] + position[j];
    }
}

void ops_token(struct pool *pool, const struct token *embed, const real *token_table,
        const real *position_table, real *out)
{
    struct token_work work = {.embed = *embed,
            .token_table = token_table,
            .position_table = position_table,
            .out = out};
    pool_for(pool,
            &(struct pool_work){.count = embed->rows,
                    .cost = 4.0 * (double)embed->dim,
                    POOL_FN(token_part),
                    .arg = &work});
}

// Item = TOKEN_COLUMNS columns of both tables, cleared and filled, so that an item can be repeated
// and two threads never add to one row.
NATIVE_CLONES static void token_backward_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct token_work *work = arg;
    const struct token *embed = &work->embed;
    size_t dim = embed->dim;
    (void)again;
    for (size_t block = begin; block < end; block++) {
        size_t first = block * TOKEN_COLUMNS;
        size_t width = dim - first < TOKEN_COLUMNS ? dim - first : TOKEN_COLUMNS;
        for (size_t i = 0; i < embed->vocabulary; i++)
            memset(work->dtoken_table + i * dim + first, 0, width * sizeof(real));
        for (size_t i = 0; i < embed->context; i++)
            memset(work->dposition_table + i * dim + first, 0, width * sizeof(real));
        for (size_t row = 0; row < embed->rows; row++) {
            const real *restrict d = work->dout + row * dim + first;
            real *restrict token = work->dtoken_table + embed->token[row] * dim + first;
            real *restrict position = work->dposition_table + row % embed->context * dim + first;
            NATIVE_SIMD
            for (size_t j = 0; j < width; j++) {
                token[j] += d[j];
                position[j] += d[j];
            }
        }
    }
}

void ops_token_backward(struct pool *pool, const struct token *embed, const real *dout,
        real *dtoken_table, real *dposition_table)
{
    struct token_work work = {.embed = *embed,
            .dout = dout,
            .dtoken_table = dtoken_table,
            .dposition_table = dposition_table};
    pool_for(pool,
            &(struct pool_work){.count = (embed->dim + TOKEN_COLUMNS - 1) / TOKEN_COLUMNS,
                    .cost = 10.0 * (double)((embed->rows + embed->vocabulary) * TOKEN_COLUMNS),
                    POOL_FN(token_backward_part),
                    .arg = &work});
}

struct copied_rows {
    size_t dim, from_stride, to_stride;
    const real *from;
    real *to;
};

static void copy_rows_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct copied_rows *work = arg;
    (void)again;
    for (size_t row = begin; row < end; row++)
        memcpy(work->to + row * work->to_stride, work->from + row * work->from_stride,
                work->dim * sizeof(real));
}

void ops_copy_rows(struct pool *pool, size_t rows, size_t dim, const real *from, size_t from_stride,
        real *to, size_t to_stride)
{
    struct copied_rows work = {
            .dim = dim, .from_stride = from_stride, .to_stride = to_stride, .from = from, .to = to};
    pool_for(pool,
            &(struct pool_work){.count = rows,
                    .cost = 4.0 * (double)dim,
                    POOL_FN(copy_rows_part),
                    .arg = &work});
}

NATIVE_CLONES static void sum_rows_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct row_sum *sum = arg;
    size_t dim = sum->dim;
    (void)again;
    for (size_t row = begin; row < end; row++) {
        real *restrict to = sum->to + row * sum->to_stride;
        memcpy(to, sum->from[0] + row * sum->from_stride[0], dim * sizeof *to);
        for (size_t part = 1; part < sum->parts; part++) {
            const real *restrict from = sum->from[part] + row * sum->from_stride[part];
            NATIVE_SIMD
            for (size_t j = 0; j < dim; j++)
                to[j] += from[j];
        }
        if (sum->divisor == 1)
            continue;
        NATIVE_SIMD
        for (size_t j = 0; j < dim; j++)
            to[j] /= sum->divisor;
    }
}

void ops_sum_rows(struct pool *pool, const struct row_sum *sum)
{
    pool_for(pool,
            &(struct pool_work){.count = sum->rows,
                    .cost = 4.0 * (double)((sum->parts + 1) * sum->dim),
                    POOL_FN(sum_rows_part),
                    .arg = (void *)sum});
}

struct interact {
    size_t vectors, dim;
    const real *x, *dout;
    real *out;
};

NATIVE_CLONES static void interact_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct interact *work = arg;
    size_t vectors = work->vectors, dim = work->dim;
    size_t width = OPS_INTERACT_WIDTH(vectors, dim);
    (void)again;
    for (size_t row = begin; row < end; row++) {
        const real *restrict x = work->x + row * vectors * dim;
        real *restrict out = work->out + row * width;
        memcpy(out, x, dim * sizeof *out);
        real *restrict pair = out + dim;
        for (size_t a = 1; a < vectors; a++) {
            for (size_t b = 0; b < a; b++) {
                real sum = 0;
                NATIVE_SIMD_SUM(sum)
                for (size_t j = 0; j < dim; j++)
                    sum += x[a * dim + j] * x[b * dim + j];
                *pair++ = sum;
            }
        }
    }
}

void ops_interact(
        struct pool *pool, size_t rows, size_t vectors, size_t dim, const real *x, real *out)
{
    struct interact work = {.vectors = vectors, .dim = dim, .x = x, .out = out};
    pool_for(pool,
            &(struct pool_work){.count = rows,
                    .cost = 3.0 * (double)(vectors * vectors * dim),
                    POOL_FN(interact_part),
                    .arg = &work});
}

NATIVE_CLONES static void interact_backward_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct interact *work = arg;
    size_t vectors = work->vectors, dim = work->dim;
    size_t width = OPS_INTERACT_WIDTH(vectors, dim);
    (void)again;
    for (size_t row = begin; row < end; row++) {
        const real *restrict x = work->x + row * vectors * dim;
        const real *dout = work->dout + row * width;
        real *restrict dx = work->out + row * vectors * dim;
        memcpy(dx, dout, dim * sizeof *dx);
        memset(dx + dim, 0, (vectors - 1) * dim * sizeof *dx);
        const real *pair = dout + dim;
        for (size_t a = 1; a < vectors; a++) {
            for (size_t b = 0; b < a; b++, pair++) {
                NATIVE_SIMD
                for (size_t j = 0; j < dim; j++) {
                    dx[a * dim + j] += *pair * x[b * dim + j];
                    dx[b * dim + j] += *pair * x[a * dim + j];
                }
            }
        }
    }
}

void ops_interact_backward(struct pool *pool, size_t rows, size_t vectors, size_t dim,
        const real *x, const real *dout, real *dx)
{
    struct interact work = {.vectors = vectors, .dim = dim, .x = x, .dout = dout, .out = dx};
    pool_for(pool,
            &(struct pool_work){.count = rows,
                    .cost = 5.0 * (double)(vectors * vectors * dim),
                    POOL_FN(interact_backward_part),
                    .arg = &work});
}
