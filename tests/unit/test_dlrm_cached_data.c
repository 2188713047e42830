// SPDX-License-Identifier: Apache-2.0
// The inputs of dlrm-cached: what a batch holds, that ids come and go, what is refused. That they
// are PyTorch's is held by tests/e2e/torch_variants.py, by the losses.
#include <errno.h>
#include <stdlib.h>

#include "reference_models/native/models/dlrm_cached_data.h"
#include "runner.h"

struct drawn {
    struct dlrm_cached_shape shape;
    struct dlrm_cached_stream stream;
    struct dlrm_cached_batch batch;
};

static void drawn_begin(struct drawn *drawn, uint64_t seed, bool train)
{
    drawn->shape = dlrm_cached_shapes[MODEL_SIZE_SMALL];
    CHECK_INT(dlrm_cached_stream_init(&drawn->stream, &drawn->shape, seed, train, NULL), 0);
    CHECK_INT(dlrm_cached_batch_new(&drawn->shape, &drawn->batch, NULL), 0);
    dlrm_cached_draw(&drawn->stream, &drawn->batch);
}

static void drawn_end(struct drawn *drawn)
{
    dlrm_cached_batch_free(&drawn->batch);
    dlrm_cached_stream_free(&drawn->stream);
}

static void check_bags(const struct drawn *drawn)
{
    const struct dlrm_cached_shape *shape = &drawn->shape;
    const struct dlrm_cached_batch *batch = &drawn->batch;
    CHECK_INT(dlrm_cached_batch_check(shape, batch, NULL), 0);
    CHECK(batch->lookups <= dlrm_cached_lookups_max(shape));
    for (size_t t = 0; t < shape->tables; t++)
        for (size_t b = 0; b < shape->batch; b++) {
            const uint32_t *offset = batch->offset + t * (shape->batch + 1) + b;
            CHECK(offset[1] - offset[0] < 2 * shape->table[t].bag);
        }
    for (size_t b = 0; b < shape->batch; b++)
        CHECK(batch->label[b] == 0 || batch->label[b] == 1);
}

// By id: the same lookups, each once, in order, and the bag that named it.
static void check_by_id(const struct drawn *drawn)
{
    const struct dlrm_cached_batch *batch = &drawn->batch;
    size_t vectors = drawn->shape.tables + 1, bags = drawn->shape.batch + 1, seen = 0;
    CHECK_INT(batch->begin[0], 0);
    CHECK_INT(batch->begin[batch->distinct], batch->lookups);
    for (size_t i = 0; i < batch->distinct; i++) {
        CHECK(i == 0 || batch->distinct_id[i] > batch->distinct_id[i - 1]);
        for (size_t k = batch->begin[i]; k < batch->begin[i + 1]; k++, seen++) {
            size_t lookup = batch->lookup[k], sample = batch->vector[k] / vectors,
                   table = batch->vector[k] % vectors - 1;
            CHECK(batch->ids[lookup] == batch->distinct_id[i]);
            CHECK(k == batch->begin[i] || lookup > batch->lookup[k - 1]);
            CHECK(lookup >= batch->offset[table * bags + sample] &&
                    lookup < batch->offset[table * bags + sample + 1]);
        }
    }
    CHECK_INT(seen, batch->lookups);
}

TEST(a_batch_is_as_said)
{
    struct drawn drawn;
    drawn_begin(&drawn, 3, true);
    for (int i = 0; i < 20; i++) {
        check_bags(&drawn);
        check_by_id(&drawn);
        dlrm_cached_draw(&drawn.stream, &drawn.batch);
    }
    drawn_end(&drawn);
}

// A tenth of the lookups is of items, whose numbers rise with the batches; the others are popular
// ids.
TEST(ids_come_and_go)
{
    enum { BATCHES = 200, ITEMS = 36 };
    struct drawn drawn;
    int64_t newest[2] = {0};
    double items = 0, all = 0;
    drawn_begin(&drawn, 3, true);
    for (int i = 0; i < BATCHES; i++) {
        for (size_t k = 0; k < drawn.batch.lookups; k++) {
            int64_t id = drawn.batch.ids[k] & (((int64_t)1 << DLRM_CACHED_TABLE_BITS) - 1);
            bool item = id >> (ITEMS - 1) != 0;
            CHECK(item || id < 400);
            items += item;
            all++;
            if (item && i % (BATCHES - 1) == 0 && id > newest[i > 0])
                newest[i > 0] = id;
        }
        dlrm_cached_draw(&drawn.stream, &drawn.batch);
    }
    CHECK_DBL(items / all, 0.1, 0.01);                   // of 32,000: six times its spread
    CHECK(newest[0] > 0 && newest[1] > newest[0] + 300); // 4 a batch
    CHECK(newest[1] <= ((int64_t)1 << ITEMS) + 4 * (BATCHES - 1));
    drawn_end(&drawn);
}

TEST(a_batch_is_of_seed_mode_and_number)
{
    struct drawn drawn, other;
    drawn_begin(&drawn, 3, true);
    struct dlrm_cached_stream copy = drawn.stream;
    dlrm_cached_draw(&drawn.stream, &drawn.batch);
    drawn_begin(&other, 3, true);
    CHECK(other.batch.lookups != drawn.batch.lookups ||
            memcmp(other.batch.dense, drawn.batch.dense, sizeof(double) * DLRM_DENSE) != 0);
    dlrm_cached_draw(&copy, &other.batch); // the second again, from a copy
    CHECK_INT(other.batch.lookups, drawn.batch.lookups);
    CHECK(memcmp(other.batch.ids, drawn.batch.ids, drawn.batch.lookups * sizeof *drawn.batch.ids) ==
            0);
    CHECK(memcmp(other.batch.label, drawn.batch.label,
                  drawn.shape.batch * sizeof *drawn.batch.label) == 0);
    drawn_end(&other);
    drawn_begin(&other, 4, true);
    // the second of another seed, and of the other mode
    dlrm_cached_draw(&other.stream, &other.batch);
    CHECK(memcmp(other.batch.dense, drawn.batch.dense, sizeof(double) * DLRM_DENSE) != 0);
    drawn_end(&other);
    drawn_begin(&other, 3, false);
    dlrm_cached_draw(&other.stream, &other.batch);
    CHECK(memcmp(other.batch.dense, drawn.batch.dense, sizeof(double) * DLRM_DENSE) != 0);
    drawn_end(&other);
    drawn_end(&drawn);
}

TEST(rows_start_with_values_of_their_id)
{
    double first[8], again[8], other[8];
    dlrm_cached_row(8, 3, 77, first);
    dlrm_cached_row(8, 3, 77, again);
    CHECK(memcmp(first, again, sizeof first) == 0);
    dlrm_cached_row(8, 3, 78, other);
    CHECK(memcmp(first, other, sizeof first) != 0);
    dlrm_cached_row(8, 4, 77, other);
    CHECK(memcmp(first, other, sizeof first) != 0);
    for (int j = 0; j < 8; j++)
        CHECK(fabs(first[j]) <= pow(8, -0.5));
}

static void check_wrong(const struct drawn *drawn, const char *words)
{
    struct error err = {0};
    CHECK_INT(dlrm_cached_batch_check(&drawn->shape, &drawn->batch, &err), -EINVAL);
    CHECK_CONTAINS(err.text, words);
}

TEST(wrong_batches)
{
    struct drawn drawn;
    drawn_begin(&drawn, 3, true);
    // of table 1
    uint32_t *offset = drawn.batch.offset + drawn.shape.batch + 1, old_offset = offset[6];
    int64_t *id = &drawn.batch.ids[offset[4]], old_id = *id;
    offset[6] = offset[5];
    check_wrong(&drawn, "bag 5 of table 1 is empty; a bag names one id at least");
    offset[6] = old_offset;
    *id = 5;
    check_wrong(&drawn,
            "id 5 of bag 4 of table 1 is out of range: its ids are 1099511627776 to 2199023255551");
    *id = -1;
    check_wrong(&drawn, "id -1 of bag 4 of table 1 is out of range");
    *id = (int64_t)2 << DLRM_CACHED_TABLE_BITS;
    check_wrong(&drawn, "id 2199023255552 of bag 4 of table 1 is out of range");
    *id = old_id;
    CHECK_INT(dlrm_cached_batch_check(&drawn.shape, &drawn.batch, NULL), 0);
    drawn_end(&drawn);
}
