// SPDX-License-Identifier: Apache-2.0
// Checks and times cache.cu. The reference is the same table wholly on the GPU, with the same
// lookups and updates: every output, row and state must have its bits. SGD's values are whole
// numbers, which float32 adds without rounding: there a plain table on the host must have them too.
// Timed beside the copies of pinned memory by the copy engines, both ways at once.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/cache_bench.cu
#include <string>
#include <unordered_set>

#include "kernels/bench.h"
#include "kernels/cache.h"

struct cache_shape {
    enum kernel_optimizer optimizer;
    int64_t rows, dim, slots, tables, bags, length; // rows: of all tables
    int look_ahead;
    double exponent; // of the power law of the ids, 0: uniform
};

struct cache_batch {
    std::vector<int64_t> ids;  // [tables][bags][length], rows of the host's memory
    std::vector<double> dout;  // [bags][tables][dim]
    const int64_t *device_ids; // as the batch's ids, and of each table by itself
    const int64_t *table_ids;
    const float *device_dout;
};

struct cache_case {
    struct cache_shape shape;
    struct kernel_cache *cache;
    struct kernel_bags bags;     // with the offsets
    struct kernel_update update; // without the state
    std::vector<struct cache_batch> batches;
    float *out, *full, *full_state, *full_out; // of the table on the GPU
    void *scratch;
    size_t scratch_bytes;
    std::string fault;
};

static void fault(struct cache_case *t, const char *what, long long a, long long b)
{
    char text[160];
    snprintf(text, sizeof text, "%s: %lld, %lld", what, a, b);
    if (t->fault.empty())
        t->fault = text;
}

static int64_t cache_lookups(const struct cache_shape *shape)
{
    return shape->tables * shape->bags * shape->length;
}

static int64_t state_of(const struct cache_shape *shape)
{
    const int64_t floats[] = {0, 1, 2 * shape->dim, shape->dim};
    return floats[shape->optimizer];
}

// Ids of a batch; every third of them, if `again`, is one of the batch before or of the one before
// that: rows that have just been changed, or written back, come again.
static void cache_draw(struct bench *bench, struct cache_case *t, struct zipf *zipf, bool again)
{
    const struct cache_shape *shape = &t->shape;
    const int64_t each = shape->rows / shape->tables, lookups = cache_lookups(shape),
                  per_table = shape->bags * shape->length;
    const size_t before = t->batches.size();
    struct cache_batch batch;
    std::vector<int64_t> own((size_t)lookups);
    batch.ids.resize((size_t)lookups);
    for (int64_t i = 0; i < lookups; i++) {
        const int64_t table = i / per_table;
        int64_t id = (int64_t)(shape->exponent > 0 ? zipf_draw(zipf, &bench->rng)
                                                   : rng_below(&bench->rng, (uint64_t)each));
        if (again && before && rng_below(&bench->rng, 3) == 0) {
            const struct cache_batch *from =
                    &t->batches[before > 1 && rng_below(&bench->rng, 2) ? before - 2 : before - 1];
            id = from->ids[(size_t)(table * per_table +
                         (int64_t)rng_below(&bench->rng, (uint64_t)per_table))] -
                    table * each;
        }
        own[(size_t)i] = id;
        batch.ids[(size_t)i] = table * each + id;
    }
    batch.dout.resize((size_t)(shape->bags * shape->tables * shape->dim));
    std::vector<float> dout(batch.dout.size());
    for (size_t i = 0; i < dout.size(); i++) {
        batch.dout[i] = shape->optimizer == KERNEL_SGD ? (double)rng_below(&bench->rng, 9) - 4
                                                       : rng_signed(&bench->rng);
        dout[i] = (float)batch.dout[i];
    }
    batch.device_ids = (const int64_t *)bench_upload(bench, batch.ids.data(), batch.ids.size() * 8);
    batch.table_ids = shape->tables == 1
            ? batch.device_ids
            : (const int64_t *)bench_upload(bench, own.data(), own.size() * 8);
    batch.device_dout = (const float *)bench_upload(bench, dout.data(), dout.size() * 4);
    t->batches.push_back(batch);
}

static void cache_set(struct bench *bench, struct cache_case *t, const struct cache_shape *shape,
        int batches, bool again)
{
    const int64_t numbers = shape->tables * shape->bags;
    std::vector<int64_t> offsets;
    struct zipf zipf = {};
    struct error err;

    t->shape = *shape;
    t->bags = {};
    t->bags.type = KERNEL_FLOAT32;
    t->bags.pooling = KERNEL_SUM;
    t->bags.tables = shape->tables;
    t->bags.bags = shape->bags;
    t->bags.dim = shape->dim;
    t->bags.ids_count = cache_lookups(shape);
    for (int64_t i = 0; i <= numbers; i++)
        offsets.push_back(i * shape->length);
    t->bags.offsets = (const int64_t *)bench_upload(bench, offsets.data(), offsets.size() * 8);
    t->update = {shape->optimizer, shape->optimizer == KERNEL_SGD ? 1.0f : 0.05f, 1, 0.9f, 0.99f, 1,
            NULL};
    const struct kernel_cache_opts opts = {shape->optimizer, shape->rows, shape->dim, shape->slots,
            cache_lookups(shape), shape->look_ahead};
    bench_must(kernel_cache_new(&opts, &t->cache, &err), &err);
    if (shape->exponent > 0)
        bench_must(zipf_init(&zipf, (uint64_t)(shape->rows / shape->tables), shape->exponent, &err),
                &err);
    for (int i = 0; i < batches; i++)
        cache_draw(bench, t, &zipf, again);
    zipf_free(&zipf);
    t->out = (float *)bench_memory(bench, (size_t)(numbers * shape->dim) * 4);
}

static void cache_unset(struct bench *bench, struct cache_case *t)
{
    BENCH_CHECK(cudaDeviceSynchronize());
    kernel_cache_free(t->cache);
    t->cache = NULL;
    bench_release(bench);
}

// The table on the GPU: the rows that the host's memory has. Its lookups are those of the cache's
// batches, each table by itself.
static void cache_set_full(struct bench *bench, struct cache_case *t)
{
    const struct cache_shape *shape = &t->shape;
    const size_t state = (size_t)(shape->rows * state_of(shape)) * 4;
    struct error err;
    t->full = (float *)bench_upload(
            bench, kernel_cache_rows(t->cache), (size_t)(shape->rows * shape->dim) * 4);
    t->full_state = (float *)bench_memory(bench, state);
    BENCH_CHECK(cudaMemset(t->full_state, 0, state));
    t->full_out =
            (float *)bench_memory(bench, (size_t)(shape->tables * shape->bags * shape->dim) * 4);
    struct kernel_bags bags = t->bags;
    for (int64_t i = 0; i < shape->tables; i++) {
        bags.rows[i] = t->full;
        bags.row_counts[i] = shape->rows; // of both, the more: the scratch is for either
    }
    bags.ids = t->batches[0].device_ids;
    bench_must(kernel_bag_update_scratch(&bags, &t->scratch_bytes, &err), &err);
    t->scratch = bench_memory(bench, t->scratch_bytes);
}

static struct kernel_bags full_bags(const struct cache_case *t, const struct cache_batch *batch)
{
    struct kernel_bags bags = t->bags;
    const int64_t each = t->shape.rows / t->shape.tables;
    for (int64_t i = 0; i < t->shape.tables; i++) {
        bags.rows[i] = t->full + (size_t)(i * each * t->shape.dim);
        bags.row_counts[i] = each;
    }
    bags.ids = batch->table_ids;
    return bags;
}

static void step_full(struct cache_case *t, size_t at, cudaStream_t stream)
{
    const struct cache_batch *batch = &t->batches[at];
    const struct kernel_bags bags = full_bags(t, batch);
    struct kernel_update update = t->update;
    struct error err;
    update.state = t->full_state;
    bench_must(kernel_bag_forward(&bags, t->full_out, stream, &err), &err);
    bench_must(kernel_bag_update(&bags, &update, batch->device_dout, t->scratch, t->scratch_bytes,
                       stream, &err),
            &err);
}

// Step `at` through the cache; batches come round again.
static void step_cached(struct cache_case *t, size_t at, cudaStream_t stream)
{
    const struct cache_batch *batch = &t->batches[at % t->batches.size()];
    struct kernel_cache_batch on_gpu;
    struct kernel_bags bags = t->bags;
    struct kernel_update update = t->update;
    struct error err;
    bench_must(kernel_cache_acquire(t->cache, true, stream, &on_gpu, &err), &err);
    const struct cache_batch *next =
            &t->batches[(at + (size_t)t->shape.look_ahead) % t->batches.size()];
    bench_must(kernel_cache_prefetch(
                       t->cache, (int64_t)next->ids.size(), next->device_ids, stream, &err),
            &err);
    kernel_cache_bags(&on_gpu, false, &bags);
    bench_must(kernel_bag_forward(&bags, t->out, stream, &err), &err);
    kernel_cache_bags(&on_gpu, true, &bags);
    update.state = on_gpu.state;
    bench_must(kernel_bag_update(&bags, &update, batch->device_dout, t->scratch, t->scratch_bytes,
                       stream, &err),
            &err);
    bench_must(kernel_cache_release(t->cache, stream, &err), &err);
}

static void cache_ahead(struct cache_case *t, cudaStream_t stream)
{
    struct error err;
    for (int i = 0; i < t->shape.look_ahead; i++) {
        const struct cache_batch *batch = &t->batches[(size_t)i % t->batches.size()];
        bench_must(kernel_cache_prefetch(
                           t->cache, (int64_t)batch->ids.size(), batch->device_ids, stream, &err),
                &err);
    }
}

// A plain table of floats on the host: SGD at rate 1 on whole numbers.
static void step_host(const struct cache_case *t, const struct cache_batch *batch,
        std::vector<float> *table, std::vector<float> *out)
{
    const struct cache_shape *shape = &t->shape;
    const std::vector<float> before = *table;
    for (int64_t number = 0; number < shape->tables * shape->bags; number++) {
        const size_t to = (size_t)((number % shape->bags * shape->tables + number / shape->bags) *
                shape->dim);
        for (int64_t d = 0; d < shape->dim; d++) {
            float sum = 0;
            for (int64_t i = 0; i < shape->length; i++) {
                const size_t at =
                        (size_t)(batch->ids[(size_t)(number * shape->length + i)] * shape->dim + d);
                sum += before[at];
                (*table)[at] -= (float)batch->dout[to + (size_t)d];
            }
            (*out)[to + (size_t)d] = sum;
        }
    }
}

static void same_bits(
        struct cache_case *t, const void *got, const void *want, size_t count, const char *what)
{
    const uint32_t *a = (const uint32_t *)got, *b = (const uint32_t *)want;
    for (size_t i = 0; i < count; i++)
        if (a[i] != b[i]) {
            fault(t, what, (long long)i, (long long)count);
            return;
        }
}

static std::vector<float> fetch(const float *device, size_t count)
{
    std::vector<float> host(count);
    BENCH_CHECK(cudaMemcpy(host.data(), device, count * 4, cudaMemcpyDeviceToHost));
    return host;
}

static void check_stats(struct cache_case *t)
{
    struct kernel_cache_stats stats;
    struct error err;
    uint64_t rows = 0;
    bench_must(kernel_cache_stats(t->cache, &stats, &err), &err);
    for (const struct cache_batch &batch : t->batches)
        rows += std::unordered_set<int64_t>(batch.ids.begin(), batch.ids.end()).size();
    if (stats.batches != t->batches.size() ||
            stats.lookups != t->batches.size() * t->batches[0].ids.size() || stats.rows != rows)
        fault(t, "rows counted, of", (long long)stats.rows, (long long)rows);
    if (stats.no_place || stats.kept == 0 || stats.ahead == 0)
        fault(t, "kept and fetched ahead", (long long)stats.kept, (long long)stats.ahead);
    if (stats.written == 0 || stats.written > stats.ahead + stats.late)
        fault(t, "written back, of fetched", (long long)stats.written,
                (long long)(stats.ahead + stats.late));
}

static void cache_check_shape(struct bench *bench, const struct cache_shape *shape, int batches)
{
    struct cache_case t = {};
    struct error err;
    char name[96];
    const size_t values = (size_t)(shape->rows * shape->dim),
                 outs = (size_t)(shape->tables * shape->bags * shape->dim);

    cache_set(bench, &t, shape, batches, true);
    float *rows = kernel_cache_rows(t.cache);
    for (size_t i = 0; i < values; i++)
        rows[i] = shape->optimizer == KERNEL_SGD ? (float)rng_below(&bench->rng, 201) - 100
                                                 : (float)rng_signed(&bench->rng);
    std::vector<float> plain(rows, rows + values), plain_out(outs);
    cache_set_full(bench, &t);
    cache_ahead(&t, bench->stream);
    for (size_t i = 0; i < t.batches.size(); i++) {
        bench_poison(t.out, outs * 4);
        t.update.step = (int64_t)i + 1;
        // behind the last, batches are prefetched that nobody acquires
        step_cached(&t, i, bench->stream);
        step_full(&t, i, bench->stream);
        BENCH_CHECK(cudaStreamSynchronize(bench->stream));
        const std::vector<float> out = fetch(t.out, outs);
        same_bits(&t, out.data(), fetch(t.full_out, outs).data(), outs,
                "an output differs from the table's on the GPU");
        if (shape->optimizer == KERNEL_SGD) {
            step_host(&t, &t.batches[i], &plain, &plain_out);
            same_bits(&t, out.data(), plain_out.data(), outs, "an output differs from the host's");
        }
    }
    check_stats(&t);
    bench_must(kernel_cache_flush(t.cache, &err), &err);
    same_bits(&t, rows, fetch(t.full, values).data(), values,
            "a row differs from the table's on the GPU");
    if (shape->optimizer == KERNEL_SGD)
        same_bits(&t, rows, plain.data(), values, "a row differs from the host's");
    else
        same_bits(&t, kernel_cache_state(t.cache),
                fetch(t.full_state, (size_t)(shape->rows * state_of(shape))).data(),
                (size_t)(shape->rows * state_of(shape)),
                "a state differs from the table's on the GPU");
    snprintf(name, sizeof name, "%lldx%lld in %lld slots, %lld tables, %lld bags of %lld, %d ahead",
            (long long)shape->rows, (long long)shape->dim, (long long)shape->slots,
            (long long)shape->tables, (long long)shape->bags, (long long)shape->length,
            shape->look_ahead);
    if (!t.fault.empty())
        printf("cache: %s: %s\n", name, t.fault.c_str());
    bench_expect(bench, t.fault.empty() ? 0 : INFINITY, 0, "cache", name);
    cache_unset(bench, &t);
}

static void refused(
        struct bench *bench, int rc, const struct error *err, int want, const char *words)
{
    bench->cases++;
    if (rc == want && strstr(err->text, words))
        return;
    bench->failures++;
    printf("cache: expected %d and \"%s\", got %d \"%s\"\n", want, words, rc, rc ? err->text : "");
}

// Calls out of order; and more rows in one batch than there are slots.
static void cache_check_refusals(struct bench *bench)
{
    const struct cache_shape shape = {KERNEL_SGD, 1000, 8, 32, 1, 40, 2, 1, 0};
    struct cache_case t = {};
    struct kernel_cache_batch batch;
    struct error err;
    cache_set(bench, &t, &shape, 1, false);
    memset(kernel_cache_rows(t.cache), 0, 1000 * 8 * 4);
    refused(bench, kernel_cache_acquire(t.cache, true, bench->stream, &batch, &err), &err, -EINVAL,
            "batch 0 was not prefetched");
    refused(bench, kernel_cache_release(t.cache, bench->stream, &err), &err, -EINVAL,
            "no batch is acquired");
    refused(bench, kernel_cache_prefetch(t.cache, 81, t.batches[0].device_ids, bench->stream, &err),
            &err, -EINVAL, "81 lookups: 1 to 80");
    bench_must(
            kernel_cache_prefetch(t.cache, 80, t.batches[0].device_ids, bench->stream, &err), &err);
    refused(bench, kernel_cache_prefetch(t.cache, 80, t.batches[0].device_ids, bench->stream, &err),
            &err, -EINVAL, "the look-ahead is 1");
    bench_must(kernel_cache_acquire(t.cache, true, bench->stream, &batch, &err), &err);
    refused(bench, kernel_cache_acquire(t.cache, true, bench->stream, &batch, &err), &err, -EINVAL,
            "batch 0 is acquired and not released");
    refused(bench, kernel_cache_flush(t.cache, &err), &err, -EINVAL,
            "batch 0 is acquired and not released");
    bench_must(kernel_cache_release(t.cache, bench->stream, &err), &err);
    refused(bench, kernel_cache_flush(t.cache, &err), &err, -ENOSPC,
            "found no place among 32 slots");
    cache_unset(bench, &t);
}

// Rows and slots of a caller's own books: slots [planes][slots][dim] on the GPU, rows
// [rows][planes][dim] of the host.
struct moves_case {
    struct kernel_cache_moves work;
    float *rows;
    std::vector<struct kernel_cache_move> moves;
};

static void launch_moves(void *arg, int, cudaStream_t stream)
{
    struct error err;
    bench_must(kernel_cache_move((const struct kernel_cache_moves *)arg, stream, &err), &err);
}

// A move for each of the first `count` slots in a drawn order; two thirds of them bring a row back.
static void moves_set(struct bench *bench, struct moves_case *t, int planes, int64_t dim,
        int64_t slots, int64_t count)
{
    const size_t row = (size_t)(planes * dim);
    std::vector<size_t> order((size_t)slots);
    std::vector<double> ignored;
    for (size_t i = 0; i < order.size(); i++)
        order[i] = i;
    for (size_t i = order.size(); i > 1; i--)
        std::swap(order[i - 1], order[(size_t)rng_below(&bench->rng, i)]);
    BENCH_CHECK(cudaHostAlloc((void **)&t->rows, 2 * (size_t)count * row * 4,
            cudaHostAllocPortable | cudaHostAllocMapped));
    for (size_t i = 0; i < 2 * (size_t)count * row; i++)
        t->rows[i] = (float)(i % 16777213); // another in each, exactly
    for (size_t i = 0; i < (size_t)count; i++) {
        const bool back = rng_below(&bench->rng, 3) != 0;
        t->moves.push_back({back ? t->rows + (2 * i + 1) * row : NULL, t->rows + 2 * i * row,
                (int64_t)order[i]});
    }
    t->work.count = count;
    t->work.dim = dim;
    t->work.planes = planes;
    t->work.moves = (const struct kernel_cache_move *)bench_upload(
            bench, t->moves.data(), t->moves.size() * sizeof t->moves[0]);
    for (int plane = 0; plane < planes; plane++)
        t->work.slots[plane] = (float *)bench_draw(
                bench, KERNEL_FLOAT32, (size_t)(slots * dim), 1, false, &ignored);
}

static void moves_unset(struct bench *bench, struct moves_case *t)
{
    BENCH_CHECK(cudaDeviceSynchronize());
    BENCH_CHECK(cudaFreeHost(t->rows));
    bench_release(bench);
}

// Every row and slot afterwards, those that no move names too.
static bool moves_right(const struct moves_case *t, int64_t slots, const std::vector<float> *before)
{
    const size_t dim = (size_t)t->work.dim, planes = (size_t)t->work.planes, row = planes * dim,
                 values = (size_t)t->work.count * 2 * row;
    std::vector<float> want_rows(values), want[KERNEL_CACHE_PLANES_MAX];
    for (size_t i = 0; i < values; i++)
        want_rows[i] = (float)(i % 16777213);
    for (size_t plane = 0; plane < planes; plane++) {
        want[plane] = before[plane];
        for (const struct kernel_cache_move &move : t->moves) {
            float *slot = &want[plane][(size_t)move.slot * dim];
            if (move.out)
                memcpy(&want_rows[(size_t)(move.out - t->rows) + plane * dim], slot, dim * 4);
            memcpy(slot, move.in + plane * dim, dim * 4); // `in` is never written
        }
    }
    bool right = memcmp(want_rows.data(), t->rows, values * 4) == 0;
    for (size_t plane = 0; plane < planes; plane++)
        right &= memcmp(want[plane].data(), fetch(t->work.slots[plane], (size_t)slots * dim).data(),
                         (size_t)slots * dim * 4) == 0;
    return right;
}

static void moves_check(struct bench *bench, int planes, int64_t dim, int64_t count, bool late)
{
    const int64_t slots = count + count / 2;
    struct moves_case t = {};
    std::vector<float> before[KERNEL_CACHE_PLANES_MAX];
    char name[96];
    moves_set(bench, &t, planes, dim, slots, count);
    t.work.late = late;
    for (int plane = 0; plane < planes; plane++)
        before[plane] = fetch(t.work.slots[plane], (size_t)(slots * dim));
    launch_moves(&t.work, 0, bench->stream);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    snprintf(name, sizeof name, "%lld moves of %dx%lld in %lld slots", (long long)count, planes,
            (long long)dim, (long long)slots);
    bench_expect(bench, moves_right(&t, slots, before) ? 0 : INFINITY, 0, "cache_move", name);
    moves_unset(bench, &t);
}

static void cache_check(struct bench *bench)
{
    static const int64_t dims[] = {4, 12, 64, 128, 512};
    for (int optimizer = KERNEL_SGD; optimizer <= KERNEL_ADAGRAD_EACH; optimizer++)
        for (int64_t dim : dims)
            for (int look_ahead = 1; look_ahead <= 3; look_ahead++) {
                // a power law names fewer rows
                const bool several = (look_ahead + optimizer) % 2, power = look_ahead == 2;
                const struct cache_shape shape = {(enum kernel_optimizer)optimizer, 3000, dim,
                        32 * (1 + look_ahead) * (power ? 4 : 10), several ? 3 : 1,
                        several ? 11 : 17, several ? 2 : 4, look_ahead, power ? 1.05 : 0};
                if (!bench->quick ||
                        (power && (dim == 12 || (dim == 128 && optimizer == KERNEL_ADAGRAD))))
                    cache_check_shape(bench, &shape, bench->quick ? 20 : 40);
            }
    if (!bench->quick) { // many misses at once; a row of thousands of lookups
        const struct cache_shape large = {KERNEL_ADAGRAD, 400000, 64, 49152, 2, 512, 4, 2, 0};
        const struct cache_shape hot = {KERNEL_ADAGRAD, 30000, 128, 8192, 1, 4096, 8, 1, 1.5};
        cache_check_shape(bench, &large, 40);
        cache_check_shape(bench, &hot, 20);
    }
    cache_check_refusals(bench);
    for (int planes = 1; planes <= KERNEL_CACHE_PLANES_MAX; planes++)
        for (int64_t dim : dims)
            moves_check(bench, planes, dim, bench->quick ? 200 : 3000, planes % 2 == 0);
}

#define LINK_BYTES ((size_t)256 << 20)

struct cache_link {
    // bytes a ns of pinned memory; both: of the two ways at once, together
    double to_gpu, to_host, both;
};

static double link_ns(void *to_gpu, const void *from_host, void *to_host, const void *from_gpu)
{
    cudaStream_t streams[2];
    cudaEvent_t begin, end, other;
    float ms, best = INFINITY;
    for (cudaStream_t &stream : streams)
        BENCH_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    BENCH_CHECK(cudaEventCreate(&begin));
    BENCH_CHECK(cudaEventCreate(&end));
    BENCH_CHECK(cudaEventCreate(&other));
    for (int i = 0; i < 4; i++) { // the first warms up
        BENCH_CHECK(cudaEventRecord(begin, streams[0]));
        BENCH_CHECK(cudaStreamWaitEvent(streams[1], begin, 0));
        if (to_gpu)
            BENCH_CHECK(cudaMemcpyAsync(
                    to_gpu, from_host, LINK_BYTES, cudaMemcpyHostToDevice, streams[0]));
        if (to_host)
            BENCH_CHECK(cudaMemcpyAsync(
                    to_host, from_gpu, LINK_BYTES, cudaMemcpyDeviceToHost, streams[1]));
        BENCH_CHECK(cudaEventRecord(other, streams[1]));
        BENCH_CHECK(cudaStreamWaitEvent(streams[0], other, 0));
        BENCH_CHECK(cudaEventRecord(end, streams[0]));
        BENCH_CHECK(cudaEventSynchronize(end));
        BENCH_CHECK(cudaEventElapsedTime(&ms, begin, end));
        best = i ? std::min(best, ms) : best;
    }
    for (cudaEvent_t event : {begin, end, other})
        BENCH_CHECK(cudaEventDestroy(event));
    for (cudaStream_t stream : streams)
        BENCH_CHECK(cudaStreamDestroy(stream));
    return (double)best * 1e6;
}

static struct cache_link link_rates(struct bench *bench)
{
    char *from = NULL, *to = NULL;
    void *a = bench_memory(bench, LINK_BYTES), *b = bench_memory(bench, LINK_BYTES);
    BENCH_CHECK(cudaHostAlloc((void **)&from, LINK_BYTES, cudaHostAllocDefault));
    BENCH_CHECK(cudaHostAlloc((void **)&to, LINK_BYTES, cudaHostAllocDefault));
    memset(from, 1, LINK_BYTES);
    const double bytes = (double)LINK_BYTES;
    const struct cache_link link = {bytes / link_ns(a, from, NULL, NULL),
            bytes / link_ns(NULL, NULL, to, b), 2 * bytes / link_ns(a, from, to, b)};
    BENCH_CHECK(cudaFreeHost(from));
    BENCH_CHECK(cudaFreeHost(to));
    bench_release(bench);
    return link;
}

// Mean ns of `count` steps.
static double cache_ns(struct bench *bench, struct cache_case *t,
        void (*step)(struct cache_case *t, size_t at, cudaStream_t stream), size_t *at, int count)
{
    cudaEvent_t begin, end;
    float ms;
    BENCH_CHECK(cudaEventCreate(&begin));
    BENCH_CHECK(cudaEventCreate(&end));
    BENCH_CHECK(cudaDeviceSynchronize());
    BENCH_CHECK(cudaEventRecord(begin, bench->stream));
    for (int i = 0; i < count; i++, ++*at)
        step(t, *at % t->batches.size(), bench->stream);
    BENCH_CHECK(cudaEventRecord(end, bench->stream));
    BENCH_CHECK(cudaEventSynchronize(end));
    BENCH_CHECK(cudaEventElapsedTime(&ms, begin, end));
    BENCH_CHECK(cudaEventDestroy(begin));
    BENCH_CHECK(cudaEventDestroy(end));
    return (double)ms * 1e6 / count;
}

static struct kernel_cache_stats stats_between(
        struct cache_case *t, const struct kernel_cache_stats *before)
{
    struct kernel_cache_stats now;
    struct error err;
    bench_must(kernel_cache_stats(t->cache, &now, &err), &err);
    if (!before)
        return now;
    return {now.batches - before->batches, now.lookups - before->lookups, now.rows - before->rows,
            now.kept - before->kept, now.ahead - before->ahead, now.late - before->late,
            now.written - before->written, now.no_place - before->no_place};
}

// Steps (lookup and update) through the cache, once the slots are full, beside the same steps with
// the table on the GPU.
static void cache_time_shape(
        struct bench *bench, const struct cache_shape *shape, const struct cache_link *link)
{
    static const char *const names[] = {"sgd", "adagrad", "adam", "adagrad_each"};
    const int steps = 24;
    struct cache_case t = {};
    struct error err;
    size_t at = 0, full = 0;

    cache_set(bench, &t, shape, 24, false);
    const size_t bytes = (size_t)(shape->rows * shape->dim) * 4;
    std::vector<float> noise(1 << 20);
    for (float &value : noise)
        value = (float)rng_signed(&bench->rng);
    for (size_t i = 0; i < bytes; i += noise.size() * 4)
        memcpy((char *)kernel_cache_rows(t.cache) + i, noise.data(),
                std::min(noise.size() * 4, bytes - i));
    cache_set_full(bench, &t);
    cache_ahead(&t, bench->stream);
    cache_ns(bench, &t, step_cached, &at, 2 * steps); // fills the slots
    cache_ns(bench, &t, step_full, &full, 4);
    const struct kernel_cache_stats before = stats_between(&t, NULL);
    const double ns = cache_ns(bench, &t, step_cached, &at, steps);
    const struct kernel_cache_stats count = stats_between(&t, &before);
    const double full_ns = cache_ns(bench, &t, step_full, &full, steps);
    bench_must(kernel_cache_flush(t.cache, &err), &err);

    const double row = 4.0 * (double)(shape->dim + state_of(shape)),
                 fetched = (double)(count.ahead + count.late);
    const double moved = row * (fetched + (double)count.written) / steps;
    struct bench_row line = {"cache_step", "", count.no_place ? INFINITY : 0, 0, moved, 0};
    line.beside = "link";
    snprintf(line.shape, sizeof line.shape, "%s %lldx%lld in %lld slots, %lld lookups %s, %d ahead",
            names[shape->optimizer], (long long)shape->rows, (long long)shape->dim,
            (long long)shape->slots, (long long)cache_lookups(shape),
            shape->exponent > 0 ? "power" : "uniform", shape->look_ahead);
    snprintf(line.note, sizeof line.note,
            "%.1f %% of %.0f rows kept, %.1f %% late, %.1f Mrows/s fetched, %.1f written; on the GPU %.1f us",
            100 * (1 - fetched / (double)count.rows), (double)count.rows / steps,
            100 * (double)count.late / (double)count.rows, fetched / steps / ns * 1e3,
            (double)count.written / steps / ns * 1e3, full_ns / 1e3);
    bench_report(bench, &line, {ns, link->both, -1, -1, {}});
    cache_unset(bench, &t);
}

// Moves of a caller's own books, beside a step and with the step waiting for them.
static void moves_time(struct bench *bench, const struct cache_link *link, bool late)
{
    const int64_t count = 40000, slots = 120000, dim = 128;
    const int planes = 2;
    struct moves_case t = {};
    moves_set(bench, &t, planes, dim, slots, count);
    t.work.late = late;
    double rows = (double)count;
    for (const struct kernel_cache_move &move : t.moves)
        rows += move.out != NULL;
    struct bench_row line = {"cache_move", "", 0, 0, rows * (double)(planes * dim) * 4, 0};
    line.beside = "link";
    snprintf(line.shape, sizeof line.shape, "%lld moves of %dx%lld in %lld slots%s",
            (long long)count, planes, (long long)dim, (long long)slots, late ? ", waited for" : "");
    bench_report(bench, &line,
            {bench_ns(bench->stream, launch_moves, &t.work, 1, 5), link->both, -1, -1, {}});
    moves_unset(bench, &t);
}

static void cache_time(struct bench *bench)
{
    static const struct cache_shape shapes[] = {
            {KERNEL_ADAGRAD, 4000000, 128, 1 << 20, 1, 16384, 32, 1, 1.05},
            {KERNEL_ADAGRAD, 4000000, 128, 1 << 20, 1, 16384, 8, 4, 1.05},
            {KERNEL_ADAGRAD, 4000000, 128, 1 << 20, 1, 16384, 8, 1, 0},
            {KERNEL_SGD, 4000000, 64, 1 << 20, 1, 16384, 8, 1, 0},
            {KERNEL_ADAM, 2000000, 64, 1 << 20, 1, 16384, 8, 1, 0},
            {KERNEL_ADAGRAD_EACH, 2000000, 128, 1 << 20, 1, 16384, 8, 1, 0},
    };
    const struct cache_link link = link_rates(bench);
    printf("{\"pinned\": \"256 MiB\", \"to_gpu\": %.1f, \"to_host\": %.1f, \"both\": %.1f}\n",
            link.to_gpu, link.to_host, link.both);
    for (const struct cache_shape &shape : shapes)
        cache_time_shape(bench, &shape, &link);
    for (bool late : {false, true})
        moves_time(bench, &link, late);
}

static int cache_host()
{
    const struct kernel_cache_opts good = {KERNEL_ADAGRAD, 100, 8, 32, 10, 1};
    struct kernel_cache *cache = NULL;
    struct kernel_cache_opts bad = good;
    struct error err;
    int failures = 0;
    bad.rows = 1ll << 31;
    failures += bench_refused(
            kernel_cache_new(&bad, &cache, &err), &err, "2147483648 rows are not supported");
    bad = good;
    bad.dim = 516;
    failures += bench_refused(kernel_cache_new(&bad, &cache, &err), &err, "rows of 516 float32");
    bad = good;
    bad.slots = 48;
    failures += bench_refused(kernel_cache_new(&bad, &cache, &err), &err,
            "48 slots are not supported: a multiple of 32");
    bad = good;
    bad.lookups = 0;
    failures += bench_refused(kernel_cache_new(&bad, &cache, &err), &err, "batches of 0 lookups");
    bad = good;
    bad.look_ahead = KERNEL_CACHE_AHEAD_MAX + 1;
    failures +=
            bench_refused(kernel_cache_new(&bad, &cache, &err), &err, "a look-ahead of 17 batches");
    alignas(16) static float memory[64];
    const struct kernel_cache_moves moves = {1, 8, 2, {memory, memory + 32}, NULL, false};
    struct kernel_cache_moves wrong = moves;
    failures += bench_refused(kernel_cache_move(&wrong, 0, &err), &err, "moves is NULL");
    wrong.count = 1ll << 30;
    failures += bench_refused(
            kernel_cache_move(&wrong, 0, &err), &err, "1073741824 moves of rows of 2 times 8");
    wrong = moves;
    wrong.dim = 6;
    failures +=
            bench_refused(kernel_cache_move(&wrong, 0, &err), &err, "rows of 2 times 6 float32");
    wrong = moves;
    wrong.planes = KERNEL_CACHE_PLANES_MAX + 1;
    failures +=
            bench_refused(kernel_cache_move(&wrong, 0, &err), &err, "rows of 4 times 8 float32");
    wrong = moves;
    wrong.slots[1] = memory + 1;
    failures += bench_refused(kernel_cache_move(&wrong, 0, &err), &err, "plane 1 of the slots");
    wrong = moves;
    wrong.count = 0;
    failures += kernel_cache_move(&wrong, 0, &err) != 0;
    struct kernel_bags bags = {};
    const struct kernel_cache_batch batch = {5, (const int64_t *)&good, (const int64_t *)&bad,
            (const int32_t *)&err, (float *)&good, NULL, 33};
    bags.tables = 2;
    kernel_cache_bags(&batch, false, &bags);
    failures += !(bags.ids == batch.slots && !bags.places && bags.rows[1] == batch.rows &&
            bags.row_counts[1] == 33 && bags.ids_count == 5);
    kernel_cache_bags(&batch, true, &bags);
    failures += !(bags.ids == batch.ranks && bags.places == batch.places && bags.slots == 33 &&
            bags.row_counts[1] == 5);
    return failures;
}

const struct suite suite_cache = {"cache", cache_host, cache_check, cache_time};
