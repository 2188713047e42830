// SPDX-License-Identifier: Apache-2.0
// The recommender of native/models/dlrm.c on the GPU: the same shapes, start values and inputs.
// Tables in float32, everything between them and the loss in bfloat16 with sums in float32,
// parameters in float32. Reads kernels.h's launchers only.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference_models/cuda/layer.h"
#include "reference_models/native/models/dlrm_data.h"

// The inputs of a step, in pinned memory.
struct inputs {
    int64_t *ids; // [table][batch][bag]
    float *dense, *label;
};

struct model {
    struct device device;
    struct params params;
    struct dlrm_shape shape[1];
    struct dlrm_data data;
    bool train;
    float rate;
    struct layer bottom1, bottom2, top1, top2, top3;
    struct kernel_bags bags;
    struct kernel_update update;
    struct kernel_interaction interaction;
    struct kernel_binary_entropy entropy;
    struct inputs *inputs; // of each step of the data's pool, or one
    uint32_t *drawn;       // ids as the data gives them
    int64_t *ids, *offsets;
    float *dense32, *label, *row_loss, *table[DLRM_TABLES_MAX], *pooled, *dpooled, *logits32;
    // bfloat16, as what follows
    void *dense, *bottom_active, *bottom_out, *concat, *features, *top_active1, *top_active2,
            *logits;
    void *dlogits, *dtop2, *dtop1, *dfeatures, *dconcat, *dbottom_out, *dbottom1;
    void *scratch;
    size_t scratch_bytes, lookups;            // lookups: of a sample
    float *host_loss, *host_logits, *answers; // answers: the logits without their padding
    float *host_table[DLRM_TABLES_MAX];
    struct model_param name[PARAMS_MAX]; // of the CPU's parameters; the addresses are its
};

#define DENSE ((DLRM_DENSE + 7) / 8 * 8)
#define LOGITS 8 // columns of the last layer: one, padded

static void dlrm_plan(struct model *model)
{
    const struct dlrm_shape *shape = model->shape;
    size_t width = shape->dim + (shape->tables + 1) * shape->tables / 2;
    model->bottom1 = layer_add(&model->params, DLRM_DENSE, shape->bottom, KERNEL_RELU);
    model->bottom2 = layer_add(&model->params, shape->bottom, shape->dim, KERNEL_IDENTITY);
    model->top1 = layer_add(&model->params, width, shape->top1, KERNEL_RELU);
    model->top2 = layer_add(&model->params, shape->top1, shape->top2, KERNEL_RELU);
    model->top3 = layer_add(&model->params, shape->top2, 1, KERNEL_IDENTITY);
}

static void dlrm_tables(struct model *model, const struct model_param *start)
{
    struct device *device = &model->device;
    const struct dlrm_shape *shape = model->shape;
    size_t batch = shape->batch;
    int64_t *offsets = malloc((shape->tables * batch + 1) * sizeof *offsets), at = 0;
    if (!offsets) {
        device_must(device, error_set(&device->err, -ENOMEM, "no memory for the bags"));
        return;
    }
    for (size_t t = 0; t < shape->tables; t++) {
        size_t bytes = shape->table[t].rows * shape->dim * 4;
        model->table[t] = device_alloc(device, bytes, "a table");
        device_upload(device, model->table[t], start[t].value, bytes);
        for (size_t b = 0; b < batch; b++, at += shape->table[t].bag)
            offsets[t * batch + b] = at;
        model->lookups += shape->table[t].bag;
    }
    offsets[shape->tables * batch] = at;
    model->ids = device_alloc(device, (size_t)at * 8, "the ids");
    model->offsets = device_alloc(device, (shape->tables * batch + 1) * 8, "the bags");
    device_upload(device, model->offsets, offsets, (shape->tables * batch + 1) * 8);
    device_wait(device);
    free(offsets);
    model->bags = (struct kernel_bags){.type = KERNEL_FLOAT32,
            .pooling = KERNEL_SUM,
            .tables = (int64_t)shape->tables,
            .bags = (int64_t)batch,
            .dim = (int64_t)shape->dim,
            .ids_count = at,
            .ids = model->ids,
            .offsets = model->offsets};
    for (size_t t = 0; t < shape->tables; t++) {
        model->bags.rows[t] = model->table[t];
        model->bags.row_counts[t] = shape->table[t].rows;
    }
    model->update = (struct kernel_update){.optimizer = KERNEL_SGD, .rate = model->rate};
    if (!model->train || device_failed(device))
        return;
    device_must(
            device, kernel_bag_update_scratch(&model->bags, &model->scratch_bytes, &device->err));
    model->scratch = device_alloc(device, model->scratch_bytes, "the sort of the ids");
}

static void dlrm_buffers(struct model *model)
{
    struct device *device = &model->device;
    const struct dlrm_shape *shape = model->shape;
    size_t batch = shape->batch, vectors = shape->tables + 1,
           pooled = batch * shape->tables * shape->dim;
    const struct {
        void *to;
        size_t bytes;
        bool train;
    } arrays[] = {{&model->dense32, batch * DENSE * 4, false}, {&model->label, batch * 4, false},
            {&model->row_loss, batch * 4, true}, {&model->pooled, pooled * 4, false},
            {&model->dpooled, pooled * 4, true}, {&model->logits32, batch * LOGITS * 4, false},
            {&model->dense, batch * DENSE * 2, false},
            {&model->bottom_active, batch * shape->bottom * 2, false},
            {&model->bottom_out, batch * shape->dim * 2, false},
            {&model->concat, batch * vectors * shape->dim * 2, false},
            {&model->features, batch * model->top1.in * 2, false},
            {&model->top_active1, batch * shape->top1 * 2, false},
            {&model->top_active2, batch * shape->top2 * 2, false},
            {&model->logits, batch * LOGITS * 2, false},
            {&model->dlogits, batch * LOGITS * 2, true},
            {&model->dtop2, batch * shape->top2 * 2, true},
            {&model->dtop1, batch * shape->top1 * 2, true},
            {&model->dfeatures, batch * model->top1.in * 2, true},
            {&model->dconcat, batch * vectors * shape->dim * 2, true},
            {&model->dbottom_out, batch * shape->dim * 2, true},
            {&model->dbottom1, batch * shape->bottom * 2, true}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (arrays[i].train && !model->train)
            continue;
        void *memory = device_alloc(device, arrays[i].bytes, "activations");
        memcpy(arrays[i].to, &memory, sizeof memory);
    }
    model->host_loss = device_pinned(device, batch * 4);
    model->host_logits = device_pinned(device, batch * LOGITS * 4);
    model->answers = device_pinned(device, batch * 4);
    model->interaction = (struct kernel_interaction){.type = KERNEL_BFLOAT16,
            .rows = (int64_t)batch,
            .vectors = (int64_t)vectors,
            .dim = (int64_t)shape->dim,
            .stride = (int64_t)model->top1.in,
            .x = model->concat};
    model->entropy = (struct kernel_binary_entropy){.type = KERNEL_BFLOAT16,
            .rows = (int64_t)batch,
            .stride = LOGITS,
            .scale = 1 / (float)batch,
            .logits = model->logits,
            .label = model->label,
            .loss = model->row_loss,
            .dlogits = model->dlogits};
}

static void dlrm_layers(struct model *model)
{
    struct device *device = &model->device;
    size_t rows = model->shape->batch;
    const struct {
        struct layer *layer;
        struct layer_arrays arrays;
    } layers[] = {
            {&model->bottom1,
                    {rows, model->dense, model->dbottom1, model->bottom_active, NULL, NULL}},
            {&model->bottom2,
                    {rows, model->bottom_active, model->dbottom_out, model->bottom_out,
                            model->dbottom1, &model->bottom1}},
            {&model->top1,
                    {rows, model->features, model->dtop1, model->top_active1, model->dfeatures,
                            NULL}},
            {&model->top2,
                    {rows, model->top_active1, model->dtop2, model->top_active2, model->dtop1,
                            &model->top1}},
            {&model->top3,
                    {rows, model->top_active2, model->dlogits, model->logits, model->dtop2,
                            &model->top2}},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        layer_plan(layers[i].layer, device, model->train, &layers[i].arrays);
}

static void dlrm_draw(struct model *model, uint64_t step, struct inputs *to)
{
    const struct dlrm_shape *shape = model->shape;
    size_t batch = shape->batch;
    uint32_t *ids[DLRM_TABLES_MAX], *end = model->drawn;
    for (size_t t = 0; t < shape->tables; end += batch * shape->table[t++].bag)
        ids[t] = end;
    for (size_t row = 0; row < batch; row++) {
        double dense[DLRM_DENSE], label;
        dlrm_data_sample(&model->data, step, row, dense, ids, &label);
        for (size_t i = 0; i < DENSE; i++)
            to->dense[row * DENSE + i] = i < DLRM_DENSE ? (float)dense[i] : 0;
        to->label[row] = (float)label;
    }
    for (size_t i = 0; i < batch * model->lookups; i++)
        to->ids[i] = model->drawn[i];
}

static void dlrm_inputs(struct model *model)
{
    size_t count = model->shape->pool ? model->shape->pool : 1, batch = model->shape->batch;
    model->inputs = calloc(count, sizeof *model->inputs);
    model->drawn = calloc(batch * model->lookups + 1, sizeof *model->drawn);
    if (!model->inputs || !model->drawn) {
        device_must(
                &model->device, error_set(&model->device.err, -ENOMEM, "no memory for the inputs"));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        model->inputs[i].ids = device_pinned(&model->device, batch * model->lookups * 8);
        model->inputs[i].dense = device_pinned(&model->device, batch * DENSE * 4);
        model->inputs[i].label = device_pinned(&model->device, batch * 4);
    }
    for (size_t i = 0; i < model->shape->pool && !device_failed(&model->device); i++)
        dlrm_draw(model, i, &model->inputs[i]);
}

static void dlrm_destroy(struct model *model)
{
    if (!model)
        return;
    struct layer *layers[] = {
            &model->bottom1, &model->bottom2, &model->top1, &model->top2, &model->top3};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        layer_free(layers[i]);
    for (size_t t = 0; t < DLRM_TABLES_MAX; t++)
        free(model->host_table[t]);
    device_close(&model->device);
    params_free(&model->params);
    dlrm_data_free(&model->data);
    free(model->inputs);
    free(model->drawn);
    free(model);
}

static int dlrm_refuse(const struct dlrm_shape *shape, struct error *err)
{
    for (size_t t = 0; t < shape->tables; t++)
        if (shape->table[t].bag < 1 || shape->table[t].rows < 1)
            return error_set(err, -EINVAL,
                    "table %zu has %u rows and bags of %u: both are 1 or more", t,
                    shape->table[t].rows, shape->table[t].bag);
    if ((shape->dim != 32 && shape->dim != 64 && shape->dim != 128) || shape->bottom % 128 ||
            shape->top1 % 128 || shape->top2 % 128)
        return error_set(err, -EINVAL,
                "rows of %zu and layers of %zu, %zu, %zu are not supported on the GPU: 32, 64 or 128, and multiples of 128; "
                "--size demo or large",
                shape->dim, shape->bottom, shape->top1, shape->top2);
    return 0;
}

// The CPU's model is there for its start values only.
static int dlrm_create_from(struct model *model, const struct model_opts *opts, struct error *err)
{
    struct model_opts cpu_opts = *opts;
    struct model *cpu = NULL;
    size_t count;
    cpu_opts.train = false;
    int rc = dlrm_ops_f32.create(&cpu_opts, &cpu, err);
    if (rc)
        return rc;
    const struct model_param *start = dlrm_ops_f32.params(cpu, &count);
    memcpy(model->name, start, count * sizeof *start);
    dlrm_plan(model);
    params_allocate(&model->params, &model->device, model->train, false, start, count);
    dlrm_tables(model, start + model->params.entries);
    dlrm_ops_f32.destroy(cpu);
    dlrm_buffers(model);
    dlrm_layers(model);
    dlrm_inputs(model);
    return device_created(&model->device, err);
}

static void dlrm_load(struct model *model, uint64_t step);

static int dlrm_create(const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the dlrm: out of memory");
    model->shape[0] = dlrm_shapes[opts->size];
    if (opts->batch)
        model->shape->batch = opts->batch;
    model->train = opts->train;
    model->rate = (float)(opts->learning_rate > 0 ? opts->learning_rate : model->shape->rate);
    int rc = dlrm_refuse(model->shape, err);
    if (rc == 0)
        rc = device_open(&model->device, err);
    if (rc == 0)
        rc = dlrm_data_init(&model->data, model->shape, opts->seed, err);
    if (rc == 0)
        rc = dlrm_create_from(model, opts, err);
    if (rc == 0) { // the launchers trust what this has seen
        dlrm_load(model, 0);
        rc = kernel_bags_check(&model->bags, model->device.stream, err);
    }
    if (rc) {
        dlrm_destroy(model);
        return rc;
    }
    *ret_model = model;
    return 0;
}

static void dlrm_load(struct model *model, uint64_t step)
{
    struct device *device = &model->device;
    const struct dlrm_shape *shape = model->shape;
    struct inputs *inputs = &model->inputs[shape->pool ? step % shape->pool : 0];
    if (!shape->pool)
        dlrm_draw(model, step, inputs); // the step before has been waited for
    device_upload(device, model->ids, inputs->ids, shape->batch * model->lookups * 8);
    device_upload(device, model->dense32, inputs->dense, shape->batch * DENSE * 4);
    device_upload(device, model->label, inputs->label, shape->batch * 4);
}

// columns of each row, from rows of `from_row` to rows of `to_row` values.
static void dlrm_copy(struct model *model, size_t columns, void *from, enum kernel_type from_type,
        size_t from_row, void *to, enum kernel_type to_type, size_t to_row)
{
    struct device *device = &model->device;
    const struct kernel_pointwise copy = {.op = KERNEL_POINT_COPY,
            .outer = 1,
            .rows = (int64_t)model->shape->batch,
            .columns = (int64_t)columns,
            .a = {.at = from, .type = from_type, .row = (int64_t)from_row},
            .out = {.at = to, .type = to_type, .row = (int64_t)to_row}};
    device_must(device, kernel_pointwise(&copy, device->stream, &device->err));
}

static void dlrm_start_forward(struct model *model)
{
    struct device *device = &model->device;
    const size_t dim = model->shape->dim, pooled = model->shape->tables * dim, row = pooled + dim;
    device_must(
            device, kernel_bag_forward(&model->bags, model->pooled, device->stream, &device->err));
    dlrm_copy(model, pooled, model->pooled, KERNEL_FLOAT32, pooled, (char *)model->concat + 2 * dim,
            KERNEL_BFLOAT16, row);
    dlrm_copy(model, DENSE, model->dense32, KERNEL_FLOAT32, DENSE, model->dense, KERNEL_BFLOAT16,
            DENSE);
    layer_forward(&model->bottom1);
    layer_forward(&model->bottom2);
    dlrm_copy(model, dim, model->bottom_out, KERNEL_BFLOAT16, dim, model->concat, KERNEL_BFLOAT16,
            row);
    device_must(device,
            kernel_interaction_forward(
                    &model->interaction, model->features, device->stream, &device->err));
    layer_forward(&model->top1);
    layer_forward(&model->top2);
    layer_forward(&model->top3);
    dlrm_copy(model, LOGITS, model->logits, KERNEL_BFLOAT16, LOGITS, model->logits32,
            KERNEL_FLOAT32, LOGITS);
    device_download(device, model->host_logits, model->logits32, model->shape->batch * LOGITS * 4);
}

// A request is answered when its scores are on the host.
static void dlrm_forward(struct model *model)
{
    dlrm_start_forward(model);
    if (!model->train)
        device_wait(&model->device);
}

static double dlrm_loss(struct model *model)
{
    struct device *device = &model->device;
    device_must(device, kernel_binary_entropy(&model->entropy, device->stream, &device->err));
    device_download(device, model->host_loss, model->row_loss, model->shape->batch * 4);
    return NAN;
}

static void dlrm_backward(struct model *model)
{
    struct device *device = &model->device;
    const size_t dim = model->shape->dim, pooled = model->shape->tables * dim, row = pooled + dim;
    layer_backward(&model->top3);
    layer_backward(&model->top2);
    layer_backward(&model->top1);
    device_must(device,
            kernel_interaction_backward(&model->interaction, model->dfeatures, model->dconcat,
                    device->stream, &device->err));
    dlrm_copy(model, dim, model->dconcat, KERNEL_BFLOAT16, row, model->dbottom_out, KERNEL_BFLOAT16,
            dim);
    dlrm_copy(model, pooled, (char *)model->dconcat + 2 * dim, KERNEL_BFLOAT16, row, model->dpooled,
            KERNEL_FLOAT32, pooled);
    layer_backward(&model->bottom2);
    layer_backward(&model->bottom1);
}

static void dlrm_update(struct model *model)
{
    struct device *device = &model->device;
    params_sgd(&model->params, model->rate);
    device_must(device,
            kernel_bag_update(&model->bags, &model->update, model->dpooled, model->scratch,
                    model->scratch_bytes, device->stream, &device->err));
}

static double dlrm_settle(struct model *model)
{
    double sum = 0;
    device_wait(&model->device);
    for (size_t row = 0; row < model->shape->batch; row++)
        sum += (double)model->host_loss[row];
    return sum / (double)model->shape->batch;
}

static size_t dlrm_samples(const struct model *model)
{
    return model->shape->batch;
}

static const void *dlrm_logits(const struct model *model, size_t *ret_count)
{
    size_t batch = model->shape->batch;
    *ret_count = batch;
    for (size_t row = 0; row < batch; row++)
        model->answers[row] = model->host_logits[row * LOGITS];
    return model->answers;
}

static void dlrm_poison(struct model *model)
{
    static const float nan_value = NAN;
    for (size_t t = 0; t < model->shape->tables; t++)
        device_upload(&model->device, model->table[t], &nan_value, sizeof nan_value);
    params_poison(&model->params);
}

static const struct model_param *dlrm_params(const struct model *model_const, size_t *ret_count)
{
    struct model *model = (struct model *)model_const; // the copies are its own
    struct model_param tables[DLRM_TABLES_MAX];
    for (size_t t = 0; t < model->shape->tables; t++) {
        size_t count = model->shape->table[t].rows * model->shape->dim;
        free(model->host_table[t]);
        model->host_table[t] = malloc(count * 4);
        if (!model->host_table[t])
            device_must(&model->device,
                    error_set(&model->device.err, -ENOMEM, "no memory for a copy of the tables"));
        device_download(&model->device, model->host_table[t], model->table[t], count * 4);
        tables[t] = (struct model_param){
                .name = "table", .value = model->host_table[t], .count = count};
    }
    return params_download(&model->params, model->name, tables, model->shape->tables, ret_count);
}

const struct model_ops dlrm_ops_cuda = {
        .name = "dlrm",
        .real_bytes = 4,
        .create = dlrm_create,
        .destroy = dlrm_destroy,
        .load = dlrm_load,
        .forward = dlrm_forward,
        .loss = dlrm_loss,
        .backward = dlrm_backward,
        .update = dlrm_update,
        .settle = dlrm_settle,
        .poison = dlrm_poison,
        .samples = dlrm_samples,
        .logits = dlrm_logits,
        .params = dlrm_params,
};
