// SPDX-License-Identifier: Apache-2.0
// Deep learning recommender of several ranks, that of torch/dlrm-sharded.py: tables whole, by rows
// or by columns, where the planner puts them, and networks that every rank has. A rank asks the
// owners of the pieces for the vectors of its samples, and tells them their gradients. Mean binary
// cross-entropy of its own samples; Adagrad on the tables, SGD on the networks. Inputs from
// dlrm_sharded_data.h, start values from draw.h. Compiled once per type.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/containers/sort.h"
#include "reference_models/native/models/dlrm_sharded_data.h"
#include "reference_models/native/models/perceptron.h"
#include "reference_models/native/models/placement.h"
#include "reference_models/native/ops/alltoall.h"
#include "reference_models/native/ops/reduce.h"

#define SHARDED_RATE 0.1         // of SGD
#define SHARDED_TABLES_RATE 0.01 // of Adagrad
#define SHARDED_EPSILON 1e-10

_Static_assert(DLRM_TABLES_MAX <= PLACEMENT_TABLES_MAX && REDUCE_RANKS_MAX <= PLACEMENT_RANKS_MAX,
        "what there is can be placed");
_Static_assert(
        PLACEMENT_RANKS_MAX <= OPS_SUM_PARTS_MAX, "the vectors of a table by rows can be added");

// Of the box of a rank that owns pieces. Vectors are [ranks][samples][columns of all its pieces];
// gradients are [ranks][samples][columns] of one piece after the other.
enum { PART_IDS, PART_VECTORS, PART_GRADIENTS };

enum { UNIT_BOTTOM, UNIT_TOP, UNITS };

// Which rank has what, the same in all of them.
struct sharding {
    struct placement plan;
    size_t samples;                      // of a rank's batch
    size_t width[PLACEMENT_RANKS_MAX];   // columns of all pieces of a rank
    size_t ids[PLACEMENT_RANKS_MAX];     // and numbers that it may be asked
    size_t column[PLACEMENT_PIECES_MAX]; // where a piece begins among those of its rank,
    size_t first[PLACEMENT_PIECES_MAX];  // and what is asked of it
};

struct lookup {
    uint32_t row, bag;
};

// A piece of this rank. Its bags are those of all ranks' samples, rank by rank.
struct owned {
    size_t piece;                 // which of the plan's
    real *value, *square;         // [rows][columns]
    uint32_t *ids[2], *offset[2]; // the step's, and those of the one before for repeats, see ops.h
    struct lookup *lookup;        // to sort by row
    uint32_t *row, *begin, *vector; // see struct bag_rows
    size_t distinct;
};

struct model {
    struct network net;
    const struct dlrm_sharded_shape *shape;
    const struct model_ranks *ranks;
    const struct alltoall *alltoall;
    struct sharding sharding;
    struct dlrm_sharded_stream stream;
    struct dlrm_sharded_batch batch, spare;
    uint64_t step;
    int now; // of struct owned: which are the step's
    struct owned *owned;
    size_t owned_count;
    bool sgd;
    real rate;
    size_t vectors, width; // of the interaction
    size_t unit_first[UNITS + 1];
    size_t updated;
    real *updated_value;
    const real *updated_grad;
    struct perceptron bottom, top;
    // concat[samples][vectors][dim]: bottom output, then the vector of each table.
    real *dense, *label, *concat, *features, *row_loss, *dlogits, *dfeatures, *dconcat, *dbottom;
};

static const char *const sharded_bottom[] = {
        "bottom.0.weight", "bottom.2.weight", "bottom.4.weight"};
static const char *const sharded_top[] = {"top.0.weight", "top.2.weight", "top.4.weight"};

// --- who has what --------------------------------------------------------------------------------

// What a rank asks of a piece: where the bags of its samples begin, and the ids.
static size_t sharding_asked(
        const struct sharding *sharding, const struct dlrm_sharded_shape *shape, size_t piece)
{
    return sharding->samples + 1 +
            dlrm_sharded_lookups_max(shape, sharding->plan.piece[piece].table, sharding->samples);
}

static int sharding_plan(
        struct sharding *sharding, const struct model_opts *opts, uint32_t ranks, struct error *err)
{
    const struct dlrm_sharded_shape *shape = &dlrm_sharded_shapes[opts->size];
    uint32_t rows[DLRM_TABLES_MAX] = {0};
    for (size_t t = 0; t < shape->tables; t++)
        rows[t] = shape->table[t].rows;
    memset(sharding, 0, sizeof *sharding);
    sharding->samples = dlrm_sharded_samples(shape, opts->train);
    uint64_t budget = opts->budget_bytes ? opts->budget_bytes
                                         : placement_budget(rows, shape->tables, shape->dim, ranks);
    int rc = placement_plan(rows, shape->tables, shape->dim, ranks, budget, &sharding->plan, err);
    if (rc) {
        error_prefix(err, "failed to place the tables by --budget");
        return rc;
    }
    for (size_t i = 0; i < sharding->plan.pieces; i++) {
        const struct placement_piece *piece = &sharding->plan.piece[i];
        sharding->column[i] = sharding->width[piece->rank];
        sharding->first[i] = sharding->ids[piece->rank];
        sharding->width[piece->rank] += piece->columns;
        sharding->ids[piece->rank] += ranks * sharding_asked(sharding, shape, i);
    }
    return 0;
}

static int sharded_boxes(const struct model_opts *opts, struct alltoall *ret, struct error *err)
{
    struct sharding sharding;
    int rc = sharding_plan(&sharding, opts, ret->ranks, err);
    if (rc)
        return rc;
    size_t ids = 0, width = 0;
    for (uint32_t rank = 0; rank < ret->ranks; rank++) {
        ids = sharding.ids[rank] > ids ? sharding.ids[rank] : ids;
        width = sharding.width[rank] > width ? sharding.width[rank] : width;
    }
    size_t vectors = ret->ranks * sharding.samples * width * sizeof(real);
    ret->part_bytes[PART_IDS] = ids * sizeof(uint32_t);
    ret->part_bytes[PART_VECTORS] = vectors;
    ret->part_bytes[PART_GRADIENTS] = opts->train ? vectors : 0;
    return 0;
}

static const struct placement_piece *sharded_piece(const struct model *model, size_t piece)
{
    return &model->sharding.plan.piece[piece];
}

// What the rank `source` asks of a piece: offset[samples + 1], then rows.
static uint32_t *sharded_asked(const struct model *model, size_t piece, uint32_t source)
{
    uint32_t *ids = alltoall_part(model->alltoall, sharded_piece(model, piece)->rank, PART_IDS);
    return ids + model->sharding.first[piece] +
            source * sharding_asked(&model->sharding, model->shape, piece);
}

// Of the samples of the rank `to`, [samples] times the width of the piece's rank.
static real *sharded_vectors(const struct model *model, size_t piece, uint32_t to)
{
    uint32_t owner = sharded_piece(model, piece)->rank;
    real *vectors = alltoall_part(model->alltoall, owner, PART_VECTORS);
    return vectors + to * model->sharding.samples * model->sharding.width[owner] +
            model->sharding.column[piece];
}

// From the rank `source`, [samples][columns]; those of the next rank lie behind.
static real *sharded_gradients(const struct model *model, size_t piece, uint32_t source)
{
    size_t samples = model->sharding.samples;
    real *gradients =
            alltoall_part(model->alltoall, sharded_piece(model, piece)->rank, PART_GRADIENTS);
    return gradients + model->alltoall->ranks * samples * model->sharding.column[piece] +
            source * samples * sharded_piece(model, piece)->columns;
}

static size_t sharded_bags(const struct model *model)
{
    return model->alltoall->ranks * model->sharding.samples;
}

// --- inputs --------------------------------------------------------------------------------------

static size_t sharded_lookups(const struct model *model)
{
    size_t lookups = 0;
    for (size_t t = 0; t < model->shape->tables; t++)
        lookups += model->sharding.samples * model->shape->table[t].bag;
    return lookups;
}

// One item: a batch is drawn as a whole. A repeat draws the one behind it, into the spare.
static void sharded_draw_part(void *arg, size_t begin, size_t end, bool again)
{
    struct model *model = arg;
    size_t samples = model->sharding.samples;
    (void)begin;
    (void)end;
    dlrm_sharded_draw(&model->stream, again ? model->step + 1 : model->step,
            again ? &model->spare : &model->batch);
    if (again)
        return;
    for (size_t i = 0; i < samples * DLRM_DENSE; i++)
        model->dense[i] = (real)model->batch.dense[i];
    for (size_t i = 0; i < samples; i++)
        model->label[i] = (real)model->batch.label[i];
}

static void sharded_load(struct model *model, uint64_t step)
{
    model->step = step;
    model->now = !model->now;
    pool_for(model->net.pool,
            &(struct pool_work){.count = 1,
                    .cost = 100.0 * (double)sharded_lookups(model),
                    POOL_FN(sharded_draw_part),
                    .arg = model});
}

// --- what ranks tell each other ------------------------------------------------------------------

// An item is a piece. Of a table by rows each owner is asked for its rows only; of others for all.
static void sharded_ask_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct model *model = arg;
    size_t samples = model->sharding.samples;
    (void)again;
    for (size_t i = begin; i < end; i++) {
        const struct placement_piece *piece = sharded_piece(model, i);
        const uint32_t *offset = model->batch.offset[piece->table],
                       *ids = model->batch.ids[piece->table];
        uint32_t *to = sharded_asked(model, i, model->alltoall->rank), *rows = to + samples + 1,
                 count = 0;
        to[0] = 0;
        for (size_t b = 0; b < samples; b++) {
            for (uint32_t k = offset[b]; k < offset[b + 1]; k++)
                // below its first row the difference wraps around
                if (ids[k] - piece->row < piece->rows)
                    rows[count++] = ids[k] - piece->row;
            to[b + 1] = count;
        }
    }
}

// An item is a piece of this rank: what all ranks ask of it, rank by rank.
static void sharded_take_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct model *model = arg;
    size_t samples = model->sharding.samples;
    (void)again;
    for (size_t i = begin; i < end; i++) {
        const struct owned *own = &model->owned[i];
        uint32_t *offset = own->offset[model->now], *ids = own->ids[model->now], count = 0;
        for (uint32_t source = 0; source < model->alltoall->ranks; source++) {
            const uint32_t *asked = sharded_asked(model, own->piece, source);
            for (size_t b = 0; b < samples; b++)
                *offset++ = count + asked[b];
            memcpy(ids + count, asked + samples + 1, asked[samples] * sizeof *ids);
            count += asked[samples];
        }
        *offset = count;
    }
}

static void sharded_answer(struct model *model)
{
    for (size_t i = 0; i < model->owned_count; i++) {
        const struct owned *own = &model->owned[i];
        const struct placement_piece *piece = sharded_piece(model, own->piece);
        struct bag bag = {.size = model->shape->table[piece->table].bag,
                .ids = own->ids[model->now],
                .spare_ids = own->ids[!model->now],
                .offset = own->offset[model->now],
                .spare_offset = own->offset[!model->now],
                .table = own->value,
                .out = sharded_vectors(model, own->piece, 0)};
        struct bags bags = {.tables = 1,
                .rows = sharded_bags(model),
                .dim = piece->columns,
                .out_stride = model->sharding.width[piece->rank],
                .bag = &bag};
        ops_bag(model->net.pool, &bags);
    }
}

// The vectors of this rank's samples: columns side by side, the sums of the rows.
static void sharded_collect(struct model *model)
{
    const struct placement *plan = &model->sharding.plan;
    size_t dim = model->shape->dim;
    for (size_t i = 0; i < plan->pieces;) {
        const struct placement_piece *first = &plan->piece[i];
        struct row_sum sum = {.rows = model->sharding.samples,
                .dim = first->columns,
                .to = model->concat + (first->table + 1) * dim + first->column,
                .to_stride = model->vectors * dim,
                .divisor = 1};
        do {
            sum.from[sum.parts] = sharded_vectors(model, i, model->alltoall->rank);
            sum.from_stride[sum.parts++] = model->sharding.width[plan->piece[i].rank];
            i++;
        } while (first->kind == PLACEMENT_ROW && i < plan->pieces &&
                plan->piece[i].table == first->table);
        ops_sum_rows(model->net.pool, &sum);
    }
}

static void sharded_look_up(struct model *model)
{
    double lookups = (double)sharded_lookups(model);
    pool_for(model->net.pool,
            &(struct pool_work){.count = model->sharding.plan.pieces,
                    .cost = 4 * lookups / (double)model->shape->tables,
                    POOL_FN(sharded_ask_part),
                    .arg = model});
    alltoall_meet(model->alltoall);
    pool_for(model->net.pool,
            &(struct pool_work){.count = model->owned_count,
                    .cost = 2 * lookups / (double)model->shape->tables * model->alltoall->ranks,
                    POOL_FN(sharded_take_part),
                    .arg = model});
    sharded_answer(model);
    alltoall_meet(model->alltoall);
    sharded_collect(model);
}

// Each rank's loss is the mean of its own samples: the mean over all ranks is what counts.
static void sharded_tell(struct model *model)
{
    size_t dim = model->shape->dim;
    for (size_t i = 0; i < model->sharding.plan.pieces; i++) {
        const struct placement_piece *piece = sharded_piece(model, i);
        struct row_sum sum = {.rows = model->sharding.samples,
                .dim = piece->columns,
                .parts = 1,
                .from = {model->dconcat + (piece->table + 1) * dim + piece->column},
                .from_stride = {model->vectors * dim},
                .to = sharded_gradients(model, i, model->alltoall->rank),
                .to_stride = piece->columns,
                .divisor = (real)model->alltoall->ranks};
        ops_sum_rows(model->net.pool, &sum);
    }
}

// --- the model -----------------------------------------------------------------------------------

static void sharded_networks(struct model *model)
{
    struct network *net = &model->net;
    size_t dim = model->shape->dim, samples = model->sharding.samples;
    model->vectors = model->shape->tables + 1;
    model->width = OPS_INTERACT_WIDTH(model->vectors, dim);
    model->top.open = true;
    perceptron_widths(dim, model->bottom.width, model->top.width);
    model->unit_first[UNIT_BOTTOM] = network_align(net, REDUCE_BLOCK);
    perceptron_plan(net, &model->bottom, sharded_bottom, DLRM_DENSE, samples);
    model->unit_first[UNIT_TOP] = network_align(net, REDUCE_BLOCK);
    perceptron_plan(net, &model->top, sharded_top, model->width, samples);
    model->unit_first[UNITS] = network_align(net, REDUCE_BLOCK);
}

static size_t sharded_units(const struct model_opts *opts, size_t first[MODEL_UNITS_MAX + 1])
{
    struct model model = {.shape = &dlrm_sharded_shapes[opts->size]};
    sharded_networks(&model);
    memcpy(first, model.unit_first, sizeof model.unit_first);
    return UNITS;
}

// The flat arrays, and what update() works on.
static void sharded_arrays(struct model *model)
{
    const struct model_ranks *ranks = model->ranks;
    struct network *net = &model->net;
    net->value = ranks->value;
    net->grad = ranks->grad;
    network_allocate(net);
    perceptron_begin(net, &model->bottom, sharded_bottom, model->sharding.samples);
    perceptron_begin(net, &model->top, sharded_top, model->sharding.samples);
    model->updated = ranks->updated_value ? ranks->updated : net->count;
    model->updated_value = ranks->updated_value ? ranks->updated_value : net->value;
    model->updated_grad = ranks->updated_value ? ranks->updated_grad : net->grad;
}

static void sharded_set(void *arg, size_t i, double value)
{
    ((real *)arg)[i] = (real)value;
}

// Those of the whole table: of a piece by columns a part of each row.
static void sharded_start(struct model *model, const struct owned *own)
{
    const struct placement_piece *piece = sharded_piece(model, own->piece);
    size_t dim = model->shape->dim, columns = piece->columns, count = piece->rows * columns;
    size_t run = columns == dim ? count : columns;
    char name[48];
    snprintf(name, sizeof name, "tables.%u.weight", (unsigned)piece->table);
    for (size_t at = 0; at < count; at += run)
        draw_start_from(model->net.seed, name, (piece->row + at / columns) * dim + piece->column,
                run, dim, sharded_set, own->value + at);
}

static void sharded_own(struct model *model, size_t i, struct owned *own)
{
    struct network *net = &model->net;
    const struct placement_piece *piece = sharded_piece(model, i);
    size_t count = (size_t)piece->rows * piece->columns, bags = sharded_bags(model);
    size_t lookups = dlrm_sharded_lookups_max(model->shape, piece->table, bags);
    own->piece = i;
    own->value = network_reals(net, count);
    for (int half = 0; half < 2; half++) {
        own->ids[half] = arena_alloc(&net->arena, lookups, sizeof *own->ids[half]);
        own->offset[half] = arena_alloc(&net->arena, bags + 1, sizeof *own->offset[half]);
    }
    if (model->sgd)
        network_fill(net, "table", own->value, count, 0);
    sharded_start(model, own);
    if (!net->train)
        return;
    own->square = model->sgd ? NULL : network_reals(net, count);
    own->lookup = arena_alloc(&net->arena, lookups, sizeof *own->lookup);
    own->row = arena_alloc(&net->arena, lookups, sizeof *own->row);
    own->begin = arena_alloc(&net->arena, lookups + 1, sizeof *own->begin);
    own->vector = arena_alloc(&net->arena, lookups, sizeof *own->vector);
}

static void sharded_tables(struct model *model)
{
    const struct placement *plan = &model->sharding.plan;
    model->owned = arena_alloc(&model->net.arena, plan->pieces, sizeof *model->owned);
    for (size_t i = 0; i < plan->pieces; i++)
        if (plan->piece[i].rank == model->alltoall->rank)
            sharded_own(model, i, &model->owned[model->owned_count++]);
}

static void sharded_buffers(struct model *model)
{
    struct network *net = &model->net;
    size_t samples = model->sharding.samples, dim = model->shape->dim,
           concat = samples * model->vectors * dim;
    model->batch = dlrm_sharded_batch_new(&net->arena, model->shape, samples);
    model->spare = dlrm_sharded_batch_new(&net->arena, model->shape, samples);
    model->dense = network_reals(net, samples * DLRM_DENSE);
    model->label = network_reals(net, samples);
    model->concat = network_reals(net, concat);
    model->features = network_reals(net, samples * model->width);
    if (!net->train)
        return;
    model->row_loss = network_reals(net, samples);
    model->dlogits = network_reals(net, samples);
    model->dfeatures = network_reals(net, samples * model->width);
    model->dconcat = network_reals(net, concat);
    model->dbottom = network_reals(net, samples * dim);
}

static void sharded_destroy(struct model *model)
{
    if (!model)
        return;
    dlrm_sharded_stream_free(&model->stream);
    arena_free(&model->net.arena);
    free(model);
}

static int sharded_create(
        const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    const struct model_ranks *ranks = opts->ranks;
    if (!ranks || !ranks->alltoall)
        return error_set(err, -EINVAL, "dlrm-sharded needs the boxes of its ranks, also of one");
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the dlrm-sharded: out of memory");
    model->shape = &dlrm_sharded_shapes[opts->size];
    model->ranks = ranks;
    model->alltoall = ranks->alltoall;
    model->net = (struct network){.pool = opts->pool, .seed = opts->seed, .train = opts->train};
    model->sgd = opts->plain_sgd;
    model->rate = (real)(opts->learning_rate > 0 ? opts->learning_rate : SHARDED_RATE);
    int rc = sharding_plan(&model->sharding, opts, model->alltoall->ranks, err);
    if (rc == 0)
        rc = dlrm_sharded_stream_init(
                &model->stream, model->shape, opts->seed, opts->train, ranks->rank, err);
    if (rc) {
        sharded_destroy(model);
        return rc;
    }
    sharded_networks(model);
    sharded_arrays(model);
    sharded_tables(model);
    sharded_buffers(model);
    *ret_model = model;
    return 0;
}

static void sharded_before(const struct model *model, size_t unit)
{
    if (model->ranks->before)
        model->ranks->before(model->ranks->arg, unit);
}

static void sharded_after(const struct model *model, size_t unit)
{
    if (model->ranks->after)
        model->ranks->after(model->ranks->arg, unit);
}

static void sharded_forward(struct model *model)
{
    struct network *net = &model->net;
    size_t samples = model->sharding.samples, dim = model->shape->dim;
    sharded_look_up(model);
    sharded_before(model, UNIT_BOTTOM);
    const real *bottom = perceptron_forward(net, &model->bottom, samples, model->dense);
    ops_copy_rows(net->pool, samples, dim, bottom, dim, model->concat, model->vectors * dim);
    ops_interact(net->pool, samples, model->vectors, dim, model->concat, model->features);
    sharded_before(model, UNIT_TOP);
    perceptron_forward(net, &model->top, samples, model->features);
}

static const real *sharded_scores(const struct model *model)
{
    return model->top.hidden[PERCEPTRON_LAYERS - 1];
}

static double sharded_loss(struct model *model)
{
    return ops_bce_loss(model->net.pool, model->sharding.samples, sharded_scores(model),
            model->label, model->row_loss, model->dlogits);
}

static void sharded_backward(struct model *model)
{
    struct network *net = &model->net;
    size_t samples = model->sharding.samples, dim = model->shape->dim;
    perceptron_backward(
            net, &model->top, samples, model->features, model->dlogits, model->dfeatures);
    sharded_after(model, UNIT_TOP);
    ops_interact_backward(net->pool, samples, model->vectors, dim, model->concat, model->dfeatures,
            model->dconcat);
    sharded_tell(model);
    ops_copy_rows(
            net->pool, samples, dim, model->dconcat, model->vectors * dim, model->dbottom, dim);
    perceptron_backward(net, &model->bottom, samples, model->dense, model->dbottom, NULL);
    sharded_after(model, UNIT_BOTTOM);
    alltoall_meet(model->alltoall);
}

// An item is a piece of this rank: which rows were named, and in which bags.
static void sharded_sort_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct model *model = arg;
    size_t bags = sharded_bags(model);
    (void)again;
    for (size_t i = begin; i < end; i++) {
        struct owned *own = &model->owned[i];
        const uint32_t *offset = own->offset[model->now], *ids = own->ids[model->now];
        size_t count = offset[bags], distinct = 0;
        for (size_t bag = 0; bag < bags; bag++)
            for (size_t k = offset[bag]; k < offset[bag + 1]; k++)
                own->lookup[k] = (struct lookup){.row = ids[k], .bag = (uint32_t)bag};
        sort_in_place(
                own->lookup, count, x, y, x->row < y->row || (x->row == y->row && x->bag < y->bag));
        for (size_t k = 0; k < count; k++) {
            own->vector[k] = own->lookup[k].bag;
            if (k > 0 && own->lookup[k].row == own->lookup[k - 1].row)
                continue;
            own->row[distinct] = own->lookup[k].row;
            own->begin[distinct++] = (uint32_t)k;
        }
        own->begin[distinct] = (uint32_t)count;
        own->distinct = distinct;
    }
}

static void sharded_update(struct model *model)
{
    struct pool *pool = model->net.pool;
    ops_sgd(pool, model->updated, model->rate, model->updated_grad, model->updated_value);
    pool_for(pool,
            &(struct pool_work){.count = model->owned_count,
                    .cost = 60.0 * (double)sharded_lookups(model) / (double)model->shape->tables *
                            model->alltoall->ranks,
                    POOL_FN(sharded_sort_part),
                    .arg = model});
    for (size_t i = 0; i < model->owned_count; i++) {
        const struct owned *own = &model->owned[i];
        struct bag_rows rows = {.rows = own->distinct,
                .dim = sharded_piece(model, own->piece)->columns,
                .row = own->row,
                .begin = own->begin,
                .vector = own->vector,
                .dout = sharded_gradients(model, own->piece, 0),
                .table = own->value,
                .square = own->square};
        ops_bag_update(pool, &rows, model->sgd ? model->rate : (real)SHARDED_TABLES_RATE,
                (real)SHARDED_EPSILON);
    }
}

static size_t sharded_samples(const struct model *model)
{
    return model->sharding.samples;
}

static const void *sharded_logits(const struct model *model, size_t *ret_count)
{
    *ret_count = model->sharding.samples;
    return sharded_scores(model);
}

// The networks': the tables differ from rank to rank.
static const struct model_param *sharded_params(const struct model *model, size_t *ret_count)
{
    *ret_count = model->net.params;
    return model->net.param;
}

static size_t sharded_notes(const struct model *model, struct model_note *ret)
{
    static const char *const names[PLACEMENT_KIND_COUNT] = {
            "table_pieces", "row_pieces", "column_pieces"};
    for (int kind = 0; kind < PLACEMENT_KIND_COUNT; kind++)
        ret[kind] = (struct model_note){.name = names[kind]};
    for (size_t i = 0; i < model->sharding.plan.pieces; i++)
        ret[sharded_piece(model, i)->kind].value++;
    return PLACEMENT_KIND_COUNT;
}

const struct model_ops NATIVE_NAME(dlrm_sharded_ops) = {
        .name = "dlrm-sharded",
        .real_bytes = sizeof(real),
        .create = sharded_create,
        .destroy = sharded_destroy,
        .load = sharded_load,
        .forward = sharded_forward,
        .loss = sharded_loss,
        .backward = sharded_backward,
        .update = sharded_update,
        .units = sharded_units,
        .boxes = sharded_boxes,
        .samples = sharded_samples,
        .logits = sharded_logits,
        .params = sharded_params,
        .notes = sharded_notes,
};
