// SPDX-License-Identifier: Apache-2.0
// What the ranks of a model on GPUs tell each other, as exchange.h says it. One stream takes all
// collectives, so that they have one order.
#include "reference_models/cuda/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reference_models/native/ranks/share.h"

#define EXCHANGE_SHARDS_MAX \
    8 // what params_add() aligns to, 64 values, in parts of which Adam reads 16 bytes at a time

struct exchange {
    const struct exchange_plan *plan;
    uint32_t rank;
    struct params *params;
    struct device *device;
    struct kernel_comm *comm;
    cudaStream_t stream;
    // ready: one that is recorded and waited for at once
    cudaEvent_t ready, gathered[MODEL_UNITS_MAX];
    size_t units, first[MODEL_UNITS_MAX + 1];
    size_t bucket_end, bucket_bytes; // narrow values from bucket_end on are on their way
};

static void exchange_check(const struct exchange *exchange, cudaError_t error)
{
    device_check(exchange->device, error, "order the streams");
}

// What is put into `later` from here on waits for what is in `earlier` now.
static void exchange_order(
        const struct exchange *exchange, cudaStream_t earlier, cudaStream_t later)
{
    exchange_check(exchange, cudaEventRecord(exchange->ready, earlier));
    exchange_check(exchange, cudaStreamWaitEvent(later, exchange->ready, 0));
}

// Where a unit's values begin among all; how many it has.
static size_t exchange_unit(const struct exchange *exchange, size_t unit, size_t *ret_count)
{
    const struct params *params = exchange->params;
    *ret_count = unit ? exchange->first[unit + 1] - exchange->first[unit] : params->wide;
    return unit ? exchange->first[unit] : params->narrow;
}

static void exchange_reduce(const struct exchange *exchange, size_t begin, size_t count)
{
    struct device *device = exchange->device;
    const struct params *params = exchange->params;
    float *grad = params->grad + begin;
    size_t part = count / exchange->plan->ranks;
    exchange_order(exchange, device->stream, exchange->stream);
    if (begin < params->narrow)
        params_widen(params, begin, count, exchange->stream);
    if (exchange->plan->sharded)
        device_must(device,
                kernel_reduce_scatter(exchange->comm, KERNEL_FLOAT32, (int64_t)part, grad,
                        grad + exchange->rank * part, exchange->stream, &device->err));
    else
        device_must(device,
                kernel_all_reduce(exchange->comm, KERNEL_FLOAT32, (int64_t)count, grad, grad,
                        exchange->stream, &device->err));
}

// In the order in which the forward pass reads them: it may begin with the first while the others
// come.
static void exchange_start_gather(struct exchange *exchange)
{
    struct device *device = exchange->device;
    const struct params *params = exchange->params;
    exchange_order(exchange, device->stream, exchange->stream);
    for (size_t unit = 0; unit < exchange->units; unit++) {
        size_t count, begin = exchange_unit(exchange, unit, &count),
                      part = count / exchange->plan->ranks;
        float *value = params->value + begin;
        device_must(device,
                kernel_all_gather(exchange->comm, KERNEL_FLOAT32, (int64_t)part,
                        value + exchange->rank * part, value, exchange->stream, &device->err));
        if (unit)
            params_narrow(params, begin, count, exchange->stream);
        exchange_check(exchange, cudaEventRecord(exchange->gathered[unit], exchange->stream));
    }
}

void exchange_before(struct exchange *exchange, size_t unit)
{
    if (!exchange->plan->sharded)
        return;
    if (unit == 0)
        exchange_start_gather(exchange);
    exchange_check(
            exchange, cudaStreamWaitEvent(exchange->device->stream, exchange->gathered[unit], 0));
}

// The tables lie behind all others in memory: they are a bucket of their own, the last one.
void exchange_after(struct exchange *exchange, size_t unit)
{
    const struct exchange_plan *plan = exchange->plan;
    size_t count, begin = exchange_unit(exchange, unit, &count);
    if (plan->sharded || unit == 0) {
        exchange_reduce(exchange, begin, count);
        return;
    }
    if (unit + 1 == exchange->units) {
        exchange->bucket_end = begin + count;
        exchange->bucket_bytes = plan->bucket_bytes ? plan->bucket_bytes : SHARE_BUCKET_FIRST_BYTES;
    }
    if (unit > 1 && (exchange->bucket_end - begin) * sizeof(float) < exchange->bucket_bytes)
        return;
    exchange_reduce(exchange, begin, exchange->bucket_end - begin);
    exchange->bucket_end = begin;
    exchange->bucket_bytes = plan->bucket_bytes ? plan->bucket_bytes : SHARE_BUCKET_BYTES;
}

void exchange_update(
        struct exchange *exchange, float rate, float beta1, float beta2, float epsilon, float decay)
{
    struct params *params = exchange->params;
    struct params_adamw adamw = {
            .rate = rate, .beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .decay = decay};
    size_t all = params->narrow + params->wide;
    exchange_order(exchange, exchange->stream, exchange->device->stream);
    params->updates++;
    if (!exchange->plan->sharded) {
        params_adamw(params, &adamw, 0, 0, all);
        params_narrow(params, 0, params->narrow, exchange->device->stream);
        return;
    }
    for (size_t unit = 0; unit < exchange->units; unit++) {
        size_t count, begin = exchange_unit(exchange, unit, &count),
                      part = count / exchange->plan->ranks;
        params_adamw(
                params, &adamw, begin + exchange->rank * part, begin / exchange->plan->ranks, part);
    }
}

void exchange_gather(struct exchange *exchange)
{
    if (!exchange->plan->sharded)
        return;
    exchange_start_gather(exchange);
    exchange_order(exchange, exchange->stream, exchange->device->stream);
}

// Rank 0 makes the id. Where it cannot it ends, and with it the others, which wait here.
static int exchange_join(struct exchange *exchange, struct error *err)
{
    const struct exchange_plan *plan = exchange->plan;
    int rc = exchange->rank == 0 ? kernel_comm_id(plan->meeting->id, err) : 0;
    if (rc)
        return rc;
    ranks_barrier_wait(&plan->meeting->barrier, plan->ranks);
    return kernel_comm_new(
            plan->meeting->id, (int)plan->ranks, (int)exchange->rank, &exchange->comm, err);
}

int exchange_new(const struct exchange_plan *plan, uint32_t rank, struct params *params,
        size_t units, const size_t *first, struct exchange **ret, struct error *err)
{
    uint32_t ranks = plan->ranks;
    if (plan->sharded && (ranks > EXCHANGE_SHARDS_MAX || (ranks & (ranks - 1)) != 0))
        return error_set(err, -EINVAL,
                "%u ranks cannot share the parameters on GPUs: 1, 2, 4 and %d can", ranks,
                EXCHANGE_SHARDS_MAX);
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (!exchange)
        return error_set(err, -ENOMEM, "no memory for the exchange between ranks");
    *exchange = (struct exchange){
            .plan = plan, .rank = rank, .params = params, .device = params->device, .units = units};
    memcpy(exchange->first, first, (units + 1) * sizeof *first);
    cudaError_t error = cudaStreamCreateWithFlags(&exchange->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&exchange->ready, cudaEventDisableTiming);
    for (size_t unit = 0; unit < units && error == cudaSuccess; unit++)
        error = cudaEventCreateWithFlags(&exchange->gathered[unit], cudaEventDisableTiming);
    int rc = error == cudaSuccess ? exchange_join(exchange, err)
                                  : error_set(err, -EIO, "failed to open a second stream: %s (%s)",
                                            cudaGetErrorString(error), cudaGetErrorName(error));
    if (rc)
        exchange_free(exchange);
    else
        *ret = exchange;
    return rc;
}

void exchange_free(struct exchange *exchange)
{
    if (!exchange)
        return;
    if (exchange->stream) {
        cudaStreamSynchronize(exchange->device->stream);
        cudaStreamSynchronize(exchange->stream);
    }
    kernel_comm_free(exchange->comm);
    for (size_t unit = 0; unit < exchange->units; unit++)
        if (exchange->gathered[unit])
            cudaEventDestroy(exchange->gathered[unit]);
    if (exchange->ready)
        cudaEventDestroy(exchange->ready);
    if (exchange->stream)
        cudaStreamDestroy(exchange->stream);
    free(exchange);
}
