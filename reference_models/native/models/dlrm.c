// SPDX-License-Identifier: Apache-2.0
// Deep learning recommender: embedding bags over several tables, a bottom MLP for the dense
// features, dot interaction of all pairs, a top MLP, binary cross-entropy, SGD (sparse on the
// tables). Inputs from dlrm_data.h. Compiled once per type.
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "reference_models/native/models/dlrm_data.h"
#include "reference_models/native/models/network.h"

struct model {
    struct network net;
    struct dlrm_shape shape[1]; // its own: the batch may be another than the size's
    struct dlrm_data data;
    uint64_t step; // whose inputs are being loaded
    real rate;
    size_t vectors, width; // of the interaction
    struct linear bottom1, bottom2, top1, top2, top3;
    struct bag bag[DLRM_TABLES_MAX];
    uint32_t *ids[DLRM_TABLES_MAX], *spare_ids[DLRM_TABLES_MAX]; // spare: for repeats, see ops.h
    real *dense, *label;
    // Activations. concat[batch][vectors][dim]: bottom output, then the bag of each table.
    real *bottom_hidden, *bottom_active, *bottom_out, *concat, *features;
    real *top_hidden1, *top_active1, *top_hidden2, *top_active2, *logits;
    real *row_loss, *dlogits, *dtop1, *dtop2, *dwide1, *dwide2, *dfeatures, *dconcat, *dbottom;
    real *dbottom1, *dbottom2;
};

static void dlrm_plan(struct model *model)
{
    struct network *net = &model->net;
    const struct dlrm_shape *shape = model->shape;
    size_t batch = shape->batch;
    model->bottom1 = network_linear(net, "bottom1", DLRM_DENSE, shape->bottom, batch);
    model->bottom2 = network_linear(net, "bottom2", shape->bottom, shape->dim, batch);
    model->top1 = network_linear(net, "top1", model->width, shape->top1, batch);
    model->top2 = network_linear(net, "top2", shape->top1, shape->top2, batch);
    model->top3 = network_linear(net, "top3", shape->top2, 1, batch);
    network_allocate(net);
    for (size_t t = 0; t < shape->tables; t++) {
        const struct dlrm_table_shape *table = &shape->table[t];
        real *value = network_reals(net, table->rows * shape->dim);
        double spread = 1 / sqrt((double)(shape->dim * table->bag));
        network_fill(net, "table", value, table->rows * shape->dim, spread);
        model->ids[t] = arena_alloc(&net->arena, batch * table->bag, sizeof(uint32_t));
        model->spare_ids[t] = arena_alloc(&net->arena, batch * table->bag, sizeof(uint32_t));
        model->bag[t] = (struct bag){.size = table->bag,
                .ids = model->ids[t],
                .spare_ids = model->spare_ids[t],
                .table = value};
    }
}

static void dlrm_buffers(struct model *model)
{
    struct network *net = &model->net;
    const struct dlrm_shape *shape = model->shape;
    size_t batch = shape->batch, concat = batch * model->vectors * shape->dim;
    model->dense = network_reals(net, batch * DLRM_DENSE);
    model->label = network_reals(net, batch);
    model->bottom_hidden = network_reals(net, batch * shape->bottom);
    model->bottom_active = network_reals(net, batch * shape->bottom);
    model->bottom_out = network_reals(net, batch * shape->dim);
    model->concat = network_reals(net, concat);
    model->features = network_reals(net, batch * model->width);
    model->top_hidden1 = network_reals(net, batch * shape->top1);
    model->top_active1 = network_reals(net, batch * shape->top1);
    model->top_hidden2 = network_reals(net, batch * shape->top2);
    model->top_active2 = network_reals(net, batch * shape->top2);
    model->logits = network_reals(net, batch);
    if (net->train) {
        model->row_loss = network_reals(net, batch);
        model->dlogits = network_reals(net, batch);
        model->dtop2 = network_reals(net, batch * shape->top2);
        model->dwide2 = network_reals(net, batch * shape->top2);
        model->dtop1 = network_reals(net, batch * shape->top1);
        model->dwide1 = network_reals(net, batch * shape->top1);
        model->dfeatures = network_reals(net, batch * model->width);
        model->dconcat = network_reals(net, concat);
        model->dbottom = network_reals(net, batch * shape->dim);
        model->dbottom1 = network_reals(net, batch * shape->bottom);
        model->dbottom2 = network_reals(net, batch * shape->bottom);
    }
    for (size_t t = 0; t < shape->tables; t++) {
        model->bag[t].out = model->concat + (t + 1) * shape->dim;
        model->bag[t].dout = net->train ? model->dconcat + (t + 1) * shape->dim : NULL;
    }
}

static void dlrm_destroy(struct model *model)
{
    if (!model)
        return;
    dlrm_data_free(&model->data);
    arena_free(&model->net.arena);
    free(model);
}

// A repeat draws a sample of a step that never comes, into the spare ids.
static void dlrm_load_part(void *arg, size_t begin, size_t end, bool again)
{
    struct model *model = arg;
    uint64_t step = again ? ~model->step : model->step;
    uint32_t *const *ids = again ? model->spare_ids : model->ids;
    for (size_t row = begin; row < end; row++) {
        double dense[DLRM_DENSE], label;
        dlrm_data_sample(&model->data, step, row, dense, ids, &label);
        if (again)
            continue;
        for (size_t i = 0; i < DLRM_DENSE; i++)
            model->dense[row * DLRM_DENSE + i] = real_start(dense[i]);
        model->label[row] = (real)label;
    }
}

static int dlrm_create(const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the dlrm: out of memory");
    model->shape[0] = dlrm_shapes[opts->size];
    if (opts->batch)
        model->shape->batch = opts->batch;
    model->net = (struct network){.pool = opts->pool, .seed = opts->seed, .train = opts->train};
    int rc = dlrm_data_init(&model->data, model->shape, opts->seed, err);
    if (rc) {
        dlrm_destroy(model);
        return rc;
    }
    model->rate = (real)(opts->learning_rate > 0 ? opts->learning_rate : model->shape->rate);
    model->vectors = model->shape->tables + 1;
    model->width = OPS_INTERACT_WIDTH(model->vectors, model->shape->dim);
    dlrm_plan(model);
    dlrm_buffers(model);
    dlrm_load_part(model, 0, model->shape->batch, true);
    *ret_model = model;
    return 0;
}

static size_t dlrm_lookups(const struct model *model)
{
    size_t lookups = 0;
    for (size_t t = 0; t < model->shape->tables; t++)
        lookups += model->shape->table[t].bag;
    return lookups;
}

static void dlrm_load(struct model *model, uint64_t step)
{
    size_t lookups = dlrm_lookups(model);
    model->step = step;
    pool_for(model->net.pool,
            &(struct pool_work){.count = model->shape->batch,
                    .cost = 400.0 * (double)lookups + 4000,
                    POOL_FN(dlrm_load_part),
                    .arg = model});
}

static struct bags dlrm_bags(const struct model *model)
{
    return (struct bags){.tables = model->shape->tables,
            .rows = model->shape->batch,
            .dim = model->shape->dim,
            .out_stride = model->vectors * model->shape->dim,
            .bag = model->bag};
}

static void dlrm_forward(struct model *model)
{
    struct network *net = &model->net;
    const struct dlrm_shape *shape = model->shape;
    size_t batch = shape->batch, stride = model->vectors * shape->dim;
    struct bags bags = dlrm_bags(model);
    ops_bag(net->pool, &bags);
    network_linear_forward(net, &model->bottom1, batch, model->dense, model->bottom_hidden);
    ops_relu(net->pool, batch * shape->bottom, model->bottom_hidden, model->bottom_active);
    network_linear_forward(net, &model->bottom2, batch, model->bottom_active, model->bottom_out);
    ops_copy_rows(
            net->pool, batch, shape->dim, model->bottom_out, shape->dim, model->concat, stride);
    ops_interact(net->pool, batch, model->vectors, shape->dim, model->concat, model->features);
    network_linear_forward(net, &model->top1, batch, model->features, model->top_hidden1);
    ops_relu(net->pool, batch * shape->top1, model->top_hidden1, model->top_active1);
    network_linear_forward(net, &model->top2, batch, model->top_active1, model->top_hidden2);
    ops_relu(net->pool, batch * shape->top2, model->top_hidden2, model->top_active2);
    network_linear_forward(net, &model->top3, batch, model->top_active2, model->logits);
}

static double dlrm_loss(struct model *model)
{
    return ops_bce_loss(model->net.pool, model->shape->batch, model->logits, model->label,
            model->row_loss, model->dlogits);
}

static void dlrm_backward(struct model *model)
{
    struct network *net = &model->net;
    const struct dlrm_shape *shape = model->shape;
    size_t batch = shape->batch, stride = model->vectors * shape->dim;
    network_linear_backward(
            net, &model->top3, batch, model->top_active2, model->dlogits, model->dtop2);
    ops_relu_backward(
            net->pool, batch * shape->top2, model->top_active2, model->dtop2, model->dwide2);
    network_linear_backward(
            net, &model->top2, batch, model->top_active1, model->dwide2, model->dtop1);
    ops_relu_backward(
            net->pool, batch * shape->top1, model->top_active1, model->dtop1, model->dwide1);
    network_linear_backward(
            net, &model->top1, batch, model->features, model->dwide1, model->dfeatures);
    ops_interact_backward(net->pool, batch, model->vectors, shape->dim, model->concat,
            model->dfeatures, model->dconcat);
    ops_copy_rows(net->pool, batch, shape->dim, model->dconcat, stride, model->dbottom, shape->dim);
    network_linear_backward(
            net, &model->bottom2, batch, model->bottom_active, model->dbottom, model->dbottom2);
    ops_relu_backward(net->pool, batch * shape->bottom, model->bottom_active, model->dbottom2,
            model->dbottom1);
    network_linear_backward(net, &model->bottom1, batch, model->dense, model->dbottom1, NULL);
}

static void dlrm_update(struct model *model)
{
    struct bags bags = dlrm_bags(model);
    ops_sgd(model->net.pool, model->net.count, model->rate, model->net.grad, model->net.value);
    ops_bag_sgd(model->net.pool, &bags, model->rate);
}

static size_t dlrm_samples(const struct model *model)
{
    return model->shape->batch;
}

static const void *dlrm_logits(const struct model *model, size_t *ret_count)
{
    *ret_count = model->shape->batch;
    return model->logits;
}

static const struct model_param *dlrm_params(const struct model *model, size_t *ret_count)
{
    *ret_count = model->net.params;
    return model->net.param;
}

static size_t dlrm_request_values(const struct model *model, size_t *ret_least)
{
    *ret_least = DLRM_DENSE + 1;
    return DLRM_DENSE + dlrm_lookups(model);
}

// The dense features, then ids: slot i of the bags, table by table, gets id i, and begins again
// where fewer ids have come. An id beyond its table wraps around, as hashing does.
static int dlrm_put(
        struct model *model, size_t row, const double *values, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        bool dense = i < DLRM_DENSE;
        if (dense ? !(fabs(values[i]) <= 1e6) : !(values[i] >= 0 && values[i] <= 0x1p53))
            return error_set(err, -EINVAL, "features[%zu] is %g; %s", i, values[i],
                    dense ? "the first 13 are numbers from -1e6 to 1e6"
                          : "ids are whole numbers from 0 to 2^53");
    }
    for (size_t i = 0; i < DLRM_DENSE; i++)
        model->dense[row * DLRM_DENSE + i] = real_start(values[i]);
    size_t ids = count - DLRM_DENSE, slot = 0;
    for (size_t t = 0; t < model->shape->tables; t++) {
        const struct dlrm_table_shape *table = &model->shape->table[t];
        for (uint32_t i = 0; i < table->bag; i++, slot++)
            model->ids[t][row * table->bag + i] =
                    (uint32_t)((uint64_t)values[DLRM_DENSE + slot % ids] % table->rows);
    }
    return 0;
}

static void dlrm_set_rows(struct model *model, size_t rows)
{
    model->shape->batch = rows;
}

static double dlrm_score(const struct model *model, size_t row)
{
    return 1 / (1 + exp(-(double)model->logits[row]));
}

const struct model_ops NATIVE_NAME(dlrm_ops) = {
        .name = "dlrm",
        .real_bytes = sizeof(real),
        .create = dlrm_create,
        .destroy = dlrm_destroy,
        .load = dlrm_load,
        .forward = dlrm_forward,
        .loss = dlrm_loss,
        .backward = dlrm_backward,
        .update = dlrm_update,
        .samples = dlrm_samples,
        .logits = dlrm_logits,
        .params = dlrm_params,
        .request_values = dlrm_request_values,
        .put = dlrm_put,
        .set_rows = dlrm_set_rows,
        .score = dlrm_score,
};
