// SPDX-License-Identifier: Apache-2.0
// Lookups, interaction and attention, in fp64: forward against plain code, backward against finite
// differences, repeats without any effect on a bit.
#define NATIVE_REAL_BITS 64
#include <stdlib.h>

#include "reference_models/native/ops/ops.h"
#include "test_native_gradient.h"

enum { BATCH = 3, TABLE = 11, DIM = 6, BAG0 = 4, BAG1 = 1, STRIDE = 3 * DIM };

struct bag_case {
    struct pool *pool;
    uint32_t ids0[BATCH * BAG0], ids1[BATCH * BAG1], spare[BATCH * BAG0];
    double table[2][TABLE * DIM], out[BATCH * STRIDE], weight[BATCH * STRIDE];
    struct bag bag[2];
    struct bags bags;
};

static void bag_init(struct bag_case *t, double extra)
{
    static const uint32_t ids0[BATCH * BAG0] = {0, 5, 5, 10, 1, 2, 3, 5, 7, 7, 7, 7};
    static const uint32_t ids1[BATCH * BAG1] = {4, 0, 4};
    *t = (struct bag_case){0};
    CHECK_INT(pool_new(1, &t->pool, NULL), 0);
    pool_set_extra(t->pool, extra);
    memcpy(t->ids0, ids0, sizeof ids0);
    memcpy(t->ids1, ids1, sizeof ids1);
    gradient_draw(t->table[0], 2 * TABLE * DIM, 1);
    gradient_draw(t->weight, BATCH * STRIDE, 2);
    t->bag[0] = (struct bag){.size = BAG0,
            .ids = t->ids0,
            .spare_ids = t->spare,
            .table = t->table[0],
            .out = t->out + DIM,
            .dout = t->weight + DIM};
    t->bag[1] = (struct bag){.size = BAG1,
            .ids = t->ids1,
            .spare_ids = t->spare,
            .table = t->table[1],
            .out = t->out + 2 * DIM,
            .dout = t->weight + 2 * DIM};
    t->bags = (struct bags){
            .tables = 2, .rows = BATCH, .dim = DIM, .out_stride = STRIDE, .bag = t->bag};
}

static double bag_value(void *arg)
{
    struct bag_case *t = arg;
    ops_bag(t->pool, &t->bags);
    return gradient_dot(t->out, t->weight, BATCH * STRIDE);
}

TEST(embedding_bag_gradient)
{
    struct bag_case t;
    bag_init(&t, 0);
    bag_value(&t);
    CHECK_DBL(t.out[DIM], t.table[0][0] + 2 * t.table[0][5 * DIM] + t.table[0][10 * DIM], 1e-15);
    CHECK_DBL(t.out[0], 0, 0); // vector 0 belongs to the bottom MLP
    double before[2 * TABLE * DIM], claimed[2 * TABLE * DIM];
    memcpy(before, t.table, sizeof before);
    ops_bag_sgd(t.pool, &t.bags, 1);
    for (size_t i = 0; i < 2 * TABLE * DIM; i++)
        claimed[i] = before[i] - t.table[i / (TABLE * DIM)][i % (TABLE * DIM)];
    memcpy(t.table, before, sizeof before);
    gradient_check(bag_value, &t, t.table[0], claimed, TABLE * DIM, 1);
    gradient_check(bag_value, &t, t.table[1], claimed + TABLE * DIM, TABLE * DIM, 1);
    pool_free(t.pool);
}

TEST(embedding_bag_repeats_change_no_bit)
{
    struct bag_case once, often;
    bag_init(&once, 0);
    bag_init(&often, 3);
    bag_value(&once);
    bag_value(&often);
    ops_bag_sgd(once.pool, &once.bags, 0.3);
    ops_bag_sgd(often.pool, &often.bags, 0.3);
    CHECK(memcmp(once.table, often.table, sizeof once.table) == 0);
    CHECK(memcmp(once.out, often.out, sizeof once.out) == 0);
    pool_free(once.pool);
    pool_free(often.pool);
}

// Three bags of 3, 1 and 3 ids, one behind the other; repeats look up another batch's.
TEST(bags_of_different_sizes)
{
    static const uint32_t ids[] = {0, 5, 5, 10, 1, 2, 3}, offset[] = {0, 3, 4, 7};
    static const uint32_t spare[] = {9, 9, 9, 9}, spare_offset[] = {0, 1, 3, 4};
    struct bag_case t;
    for (int extra = 0; extra < 6; extra += 5) {
        bag_init(&t, extra);
        t.bag[0].ids = ids;
        t.bag[0].offset = offset;
        t.bag[0].spare_ids = spare;
        t.bag[0].spare_offset = spare_offset;
        bag_value(&t);
        const double *row = t.table[0];
        for (size_t j = 0; j < DIM; j++) {
            CHECK_DBL(t.out[DIM + j], row[j] + 2 * row[5 * DIM + j], 1e-14);
            CHECK_DBL(t.out[STRIDE + DIM + j], row[10 * DIM + j], 0);
            CHECK_DBL(t.out[2 * STRIDE + DIM + j],
                    row[DIM + j] + row[2 * DIM + j] + row[3 * DIM + j], 1e-14);
            // the other table's bags are of one size
            CHECK_DBL(t.out[STRIDE + 2 * DIM + j], t.table[1][j], 0);
        }
        pool_free(t.pool);
    }
}

// Row 7 is named twice, row 2 once, the others not.
static void check_update(int extra, bool adagrad)
{
    static const uint32_t row[] = {7, 2}, begin[] = {0, 2, 3}, vector[] = {0, 2, 1};
    double table[TABLE * DIM], square[TABLE * DIM], dout[3 * DIM], old[TABLE * DIM];
    struct pool *pool;
    CHECK_INT(pool_new(1, &pool, NULL), 0);
    pool_set_extra(pool, extra);
    gradient_draw(table, TABLE * DIM, 1);
    gradient_draw(dout, 3 * DIM, 2);
    memcpy(old, table, sizeof old);
    for (size_t i = 0; i < TABLE * DIM; i++)
        square[i] = 0.25 * (double)i;
    struct bag_rows rows = {.rows = 2,
            .dim = DIM,
            .row = row,
            .begin = begin,
            .vector = vector,
            .dout = dout,
            .table = table,
            .square = adagrad ? square : NULL};
    ops_bag_update(pool, &rows, 0.1, 1e-10);
    for (size_t i = 0; i < TABLE * DIM; i++) {
        size_t j = i % DIM;
        double gradient = i / DIM == 7 ? dout[j] + dout[2 * DIM + j]
                : i / DIM == 2         ? dout[DIM + j]
                                       : 0;
        double all = 0.25 * (double)i + gradient * gradient;
        double by = gradient == 0 ? 0
                : adagrad         ? 0.1 * gradient / (sqrt(all) + 1e-10)
                                  : 0.1 * gradient;
        CHECK_DBL(square[i], adagrad ? all : 0.25 * (double)i, 1e-14);
        CHECK_DBL(table[i], old[i] - by, 1e-14);
    }
    rows.rows = 0;
    ops_bag_update(pool, &rows, 0.1, 1e-10); // a batch that names none
    pool_free(pool);
}

TEST(rows_that_a_batch_named_are_updated_once)
{
    for (int extra = 0; extra < 4; extra += 3) {
        check_update(extra, true);
        check_update(extra, false);
    }
}

// Rows of three arrays, each with a stride of its own, added and divided; between the rows nothing
// is written.
TEST(rows_of_several_arrays_are_added)
{
    enum { TO_STRIDE = DIM + 1 };
    double from[3][BATCH * STRIDE], to[BATCH * TO_STRIDE];
    struct pool *pool;
    CHECK_INT(pool_new(1, &pool, NULL), 0);
    gradient_draw(from[0], 3 * BATCH * STRIDE, 5);
    for (size_t parts = 1; parts <= 3; parts++) {
        struct row_sum sum = {.rows = BATCH,
                .dim = DIM,
                .parts = parts,
                .from = {from[0], from[1], from[2]},
                .from_stride = {DIM, STRIDE, 2 * DIM},
                .to = to,
                .to_stride = TO_STRIDE,
                .divisor = 4};
        memset(to, 0, sizeof to);
        pool_set_extra(pool, (double)parts); // repeats change nothing
        ops_sum_rows(pool, &sum);
        for (size_t row = 0; row < BATCH; row++) {
            for (size_t j = 0; j < DIM; j++) {
                double want = 0;
                for (size_t part = 0; part < parts; part++)
                    want += from[part][row * sum.from_stride[part] + j] / 4;
                CHECK_DBL(to[row * TO_STRIDE + j], want, 1e-15);
            }
            CHECK_DBL(to[row * TO_STRIDE + DIM], 0, 0);
        }
    }
    pool_free(pool);
}

enum { TOKENS = 10, CONTEXT = 5, WORDS = 8, WIDTH = 21 };

struct token_case {
    struct pool *pool;
    uint32_t token[TOKENS];
    struct token embed;
    double token_table[WORDS * WIDTH], position_table[CONTEXT * WIDTH];
    double out[TOKENS * WIDTH], weight[TOKENS * WIDTH];
};

static double token_value(void *arg)
{
    struct token_case *t = arg;
    ops_token(t->pool, &t->embed, t->token_table, t->position_table, t->out);
    return gradient_dot(t->out, t->weight, TOKENS * WIDTH);
}

TEST(token_gradient)
{
    struct token_case t = {.token = {0, 3, 3, 7, 1, 0, 0, 2, 6, 3}};
    CHECK_INT(pool_new(2, &t.pool, NULL), 0);
    t.embed = (struct token){.rows = TOKENS,
            .dim = WIDTH,
            .context = CONTEXT,
            .vocabulary = WORDS,
            .token = t.token};
    gradient_draw(t.token_table, WORDS * WIDTH, 3);
    gradient_draw(t.position_table, CONTEXT * WIDTH, 4);
    gradient_draw(t.weight, TOKENS * WIDTH, 5);
    double dtoken[WORDS * WIDTH], dposition[CONTEXT * WIDTH];
    gradient_draw(dtoken, WORDS * WIDTH, 6); // what was there before must not matter
    ops_token_backward(t.pool, &t.embed, t.weight, dtoken, dposition);
    gradient_check(token_value, &t, t.token_table, dtoken, WORDS * WIDTH, 1);
    gradient_check(token_value, &t, t.position_table, dposition, CONTEXT * WIDTH, 1);
    pool_free(t.pool);
}

enum { VECTORS = 4, INTERACT = OPS_INTERACT_WIDTH(VECTORS, DIM) };

struct interact_case {
    struct pool *pool;
    double x[BATCH * VECTORS * DIM], out[BATCH * INTERACT], weight[BATCH * INTERACT];
};

static double interact_value(void *arg)
{
    struct interact_case *t = arg;
    ops_interact(t->pool, BATCH, VECTORS, DIM, t->x, t->out);
    return gradient_dot(t->out, t->weight, BATCH * INTERACT);
}

TEST(interaction_gradient)
{
    struct interact_case t = {0};
    CHECK_INT(pool_new(1, &t.pool, NULL), 0);
    gradient_draw(t.x, BATCH * VECTORS * DIM, 7);
    gradient_draw(t.weight, BATCH * INTERACT, 8);
    interact_value(&t);
    double dot = 0;
    for (size_t j = 0; j < DIM; j++)
        dot += t.x[2 * DIM + j] * t.x[1 * DIM + j];
    CHECK_DBL(t.out[DIM + 2], dot, 1e-15); // pairs (1,0) (2,0) (2,1)
    double dx[BATCH * VECTORS * DIM];
    ops_interact_backward(t.pool, BATCH, VECTORS, DIM, t.x, t.weight, dx);
    gradient_check(interact_value, &t, t.x, dx, BATCH * VECTORS * DIM, 1);
    pool_free(t.pool);
}

enum { SEQUENCES = 2, KEYS = 9, HEADS = 2, HEAD_DIM = 5, MODEL_DIM = HEADS * HEAD_DIM };
enum { QKV = SEQUENCES * KEYS * 3 * MODEL_DIM, OUT = SEQUENCES * KEYS * MODEL_DIM };
enum { PROB = SEQUENCES * HEADS * KEYS * KEYS };

struct attention_case {
    struct pool *pool;
    struct attention shape;
    double qkv[QKV], out[OUT], prob[PROB], scratch[2 * OUT], weight[OUT], dprob[PROB], dqkv[QKV];
};

static void attention_init(struct attention_case *t, size_t threads, double extra)
{
    *t = (struct attention_case){0};
    CHECK_INT(pool_new(threads, &t->pool, NULL), 0);
    pool_set_extra(t->pool, extra);
    t->shape = (struct attention){.batch = SEQUENCES,
            .context = KEYS,
            .heads = HEADS,
            .dim = HEAD_DIM,
            .qkv = t->qkv,
            .out = t->out,
            .prob = t->prob,
            .scratch = t->scratch};
    gradient_draw(t->qkv, QKV, 9);
    gradient_draw(t->weight, OUT, 10);
}

static double attention_value(void *arg)
{
    struct attention_case *t = arg;
    ops_attention(t->pool, &t->shape);
    return gradient_dot(t->out, t->weight, OUT);
}

// out[0] of one query, by the definition.
static double attention_plain(
        const struct attention_case *t, size_t sequence, size_t row, size_t head)
{
    const double *qkv = t->qkv + sequence * KEYS * 3 * MODEL_DIM;
    const double *q = qkv + row * 3 * MODEL_DIM + head * HEAD_DIM;
    double sum = 0, out = 0;
    for (size_t i = 0; i <= row; i++) {
        const double *k = qkv + (i * 3 + 1) * MODEL_DIM + head * HEAD_DIM;
        double dot = 0;
        for (size_t j = 0; j < HEAD_DIM; j++)
            dot += q[j] * k[j];
        double weight = exp(dot / sqrt(HEAD_DIM));
        sum += weight;
        out += weight * qkv[(i * 3 + 2) * MODEL_DIM + head * HEAD_DIM];
    }
    return out / sum;
}

TEST(attention_forward)
{
    struct attention_case t;
    attention_init(&t, 1, 0);
    attention_value(&t);
    for (size_t s = 0; s < SEQUENCES; s++) {
        for (size_t row = 0; row < KEYS; row++) {
            for (size_t head = 0; head < HEADS; head++)
                CHECK_DBL(t.out[((s * KEYS + row) * HEADS + head) * HEAD_DIM],
                        attention_plain(&t, s, row, head), 1e-14);
        }
    }
    pool_free(t.pool);
}

TEST(attention_gradient)
{
    struct attention_case t;
    attention_init(&t, 1, 0);
    attention_value(&t);
    memset(t.scratch, 0x7f, sizeof t.scratch); // another layer has used it since
    ops_attention_backward(t.pool, &t.shape, t.weight, t.dprob, t.dqkv);
    gradient_check(attention_value, &t, t.qkv, t.dqkv, QKV, 1);
    pool_free(t.pool);
}

TEST(attention_threads_and_repeats_change_no_bit)
{
    struct attention_case once, often;
    attention_init(&once, 1, 0);
    attention_init(&often, 3, 1.7);
    struct attention_case *both[] = {&once, &often};
    for (int i = 0; i < 2; i++) {
        attention_value(both[i]);
        ops_attention_backward(
                both[i]->pool, &both[i]->shape, both[i]->weight, both[i]->dprob, both[i]->dqkv);
        pool_free(both[i]->pool);
    }
    CHECK(memcmp(once.out, often.out, sizeof once.out) == 0);
    CHECK(memcmp(once.dqkv, often.dqkv, sizeof once.dqkv) == 0);
}
