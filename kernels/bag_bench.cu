// SPDX-License-Identifier: Apache-2.0
// Checks and times bag_forward.cu and bags_check.cu, and makes the inputs of bag_update_bench.cu.
// The reference adds in float64, from values that it computes itself; where ops_bag of the native
// models can do the case too, host() holds one to the other.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/bag_bench.cu
#include "kernels/bag_bench.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define BAG_SAMPLE 4096 // bags of a timed shape that are compared

// 24 bits of a hash as a float in [-1, 1): exact.
static __host__ __device__ float hash_value(uint64_t seed, uint64_t at)
{
    uint64_t z = seed + (at + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)(int32_t)((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1;
}

template <typename T> static __global__ void fill(uint64_t seed, uint64_t count, T *to)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
            i += (uint64_t)gridDim.x * blockDim.x)
        to[i] = (T)hash_value(seed, i);
}

static uint64_t table_seed(const struct bag_case *t, int64_t table)
{
    return t->seed ^ rng_mix((uint64_t)table + 1);
}

double bag_value(const struct bag_case *t, int64_t table, int64_t row, int64_t column)
{
    double value = hash_value(table_seed(t, table), (uint64_t)(row * t->shape.dim + column));
    bench_round(t->shape.type, &value, 1);
    return value;
}

void bag_fill_tables(struct bench *bench, struct bag_case *t)
{
    const uint64_t count = (uint64_t)t->shape.rows * (uint64_t)t->shape.dim;
    for (int64_t i = 0; i < t->shape.tables; i++) {
        if (!t->bags.rows[i])
            BENCH_CHECK(cudaMalloc(&t->bags.rows[i], count * kernel_type_bytes(t->shape.type)));
        void *to = t->bags.rows[i];
        if (std::find(bench->memory.begin(), bench->memory.end(), to) == bench->memory.end())
            bench->memory.push_back(to);
        if (t->shape.type == KERNEL_FLOAT32)
            fill<<<2048, 256>>>(table_seed(t, i), count, (float *)to);
        else if (t->shape.type == KERNEL_FLOAT16)
            fill<<<2048, 256>>>(table_seed(t, i), count, (__half *)to);
        else
            fill<<<2048, 256>>>(table_seed(t, i), count, (__nv_bfloat16 *)to);
        BENCH_CHECK(cudaGetLastError());
    }
    BENCH_CHECK(cudaDeviceSynchronize());
}

static void draw_lookups(struct bench *bench, struct bag_case *t)
{
    const struct bag_shape *shape = &t->shape;
    struct zipf zipf = {};
    struct error err;
    if (shape->power)
        bench_must(zipf_init(&zipf, (uint64_t)shape->rows, 1.05, &err), &err);
    t->offsets.assign(1, 0);
    for (int64_t i = 0; i < shape->tables * shape->bags; i++) {
        const uint64_t length = shape->varied
                ? rng_below(&bench->rng, 2 * (uint64_t)shape->length + 1)
                : (uint64_t)shape->length;
        for (uint64_t k = 0; k < length; k++)
            t->ids.push_back(
                    (int64_t)(shape->power ? zipf_draw(&zipf, &bench->rng)
                                           : rng_below(&bench->rng, (uint64_t)shape->rows)));
        t->offsets.push_back((int64_t)t->ids.size());
    }
    if (shape->pooling == KERNEL_WEIGHTED)
        for (size_t i = 0; i < t->ids.size(); i++)
            t->weights.push_back((float)(0.25 + rng_uniform(&bench->rng)));
    zipf_free(&zipf);
}

void bag_set(struct bench *bench, struct bag_case *t, const struct bag_shape *shape,
        const struct bag_case *tables)
{
    *t = {};
    t->shape = *shape;
    t->seed = tables ? tables->seed : rng_next(&bench->rng);
    t->bags.type = shape->type;
    t->bags.pooling = shape->pooling;
    t->bags.tables = shape->tables;
    t->bags.bags = shape->bags;
    t->bags.dim = shape->dim;
    draw_lookups(bench, t);
    t->bags.ids_count = (int64_t)t->ids.size();
    t->bags.ids =
            (const int64_t *)bench_upload(bench, t->ids.data(), t->ids.size() * sizeof(int64_t));
    t->bags.offsets = (const int64_t *)bench_upload(
            bench, t->offsets.data(), t->offsets.size() * sizeof(int64_t));
    if (shape->pooling == KERNEL_WEIGHTED)
        t->bags.weights = (const float *)bench_upload(
                bench, t->weights.data(), t->weights.size() * sizeof(float));
    for (int64_t i = 0; i < shape->tables; i++) {
        t->bags.row_counts[i] = shape->rows;
        t->bags.rows[i] = tables ? tables->bags.rows[i] : NULL;
    }
    if (!tables)
        bag_fill_tables(bench, t);
}

double bag_scale(const struct bag_case *t, int64_t number, int64_t place)
{
    if (t->shape.pooling == KERNEL_WEIGHTED)
        return (double)t->weights[(size_t)place];
    const int64_t length = t->offsets[(size_t)number + 1] - t->offsets[(size_t)number];
    return t->shape.pooling == KERNEL_MEAN ? 1 / (double)length : 1;
}

void bag_reference(const struct bag_case *t, int64_t number, double *sum)
{
    std::fill(sum, sum + t->shape.dim, 0);
    for (int64_t i = t->offsets[(size_t)number]; i < t->offsets[(size_t)number + 1]; i++)
        for (int64_t d = 0; d < t->shape.dim; d++)
            sum[d] += bag_scale(t, number, i) *
                    bag_value(t, number / t->shape.bags, t->ids[(size_t)i], d);
}

double bag_unique(const struct bag_case *t)
{
    double unique = 0;
    for (int64_t table = 0; table < t->shape.tables; table++) {
        std::vector<bool> named((size_t)t->shape.rows);
        const size_t begin = (size_t)t->offsets[(size_t)(table * t->shape.bags)];
        const size_t end = (size_t)t->offsets[(size_t)((table + 1) * t->shape.bags)];
        for (size_t i = begin; i < end; i++) {
            unique += !named[(size_t)t->ids[i]];
            named[(size_t)t->ids[i]] = true;
        }
    }
    return unique;
}

void bag_name(const struct bag_shape *shape, const char *what, char *text, size_t size)
{
    static const char *const pooling[] = {"sum", "mean", "weighted"};
    snprintf(text, size, "%s%s%lld tables %lldx%lld, %lld bags of %s%lld, %s %s %s", what,
            *what ? " " : "", (long long)shape->tables, (long long)shape->rows,
            (long long)shape->dim, (long long)shape->bags, shape->varied ? "0-" : "",
            (long long)(shape->varied ? 2 * shape->length : shape->length),
            kernel_type_name(shape->type), pooling[shape->pooling],
            shape->power ? "power" : "uniform");
}

struct forward_case {
    struct bag_case *cases;
    void *out;
};

static void launch_forward(void *arg, int set, cudaStream_t stream)
{
    struct error err;
    const struct forward_case *t = (const struct forward_case *)arg;
    bench_must(kernel_bag_forward(&t->cases[set].bags, t->out, stream, &err), &err);
}

static void launch_check(void *arg, int set, cudaStream_t stream)
{
    struct error err;
    bench_must(
            kernel_bags_check(&((const struct forward_case *)arg)->cases[set].bags, stream, &err),
            &err);
}

// Sums of float32: the roundings of a bag; outputs of 16 bits: half a unit in the last place.
static double forward_limit(enum kernel_type type)
{
    return type == KERNEL_FLOAT32 ? 1e-6 : type == KERNEL_FLOAT16 ? 0x1p-11 : 0x1p-8;
}

// All bags, or BAG_SAMPLE of them drawn.
static double forward_error(struct bench *bench, const struct bag_case *t, void *out)
{
    const int64_t count = t->shape.tables * t->shape.bags, dim = t->shape.dim;
    const bool all = count <= BAG_SAMPLE;
    std::vector<double> got, want((size_t)((all ? count : BAG_SAMPLE) * dim)), of_all;
    struct error err;

    bench_poison(out, (size_t)(count * dim) * kernel_type_bytes(t->shape.type));
    bench_must(kernel_bags_check(&t->bags, bench->stream, &err), &err);
    bench_must(kernel_bag_forward(&t->bags, out, bench->stream, &err), &err);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    of_all = bench_download(t->shape.type, out, (size_t)(count * dim));
    for (int64_t i = 0; i < (all ? count : BAG_SAMPLE); i++) {
        const int64_t number = all ? i : (int64_t)rng_below(&bench->rng, (uint64_t)count);
        // out: [bags][tables][dim]
        const int64_t at = number % t->shape.bags * t->shape.tables + number / t->shape.bags;
        bag_reference(t, number, &want[(size_t)(i * dim)]);
        got.insert(got.end(), of_all.begin() + at * dim, of_all.begin() + (at + 1) * dim);
    }
    for (double value : of_all)
        if (std::isnan(value))
            return INFINITY; // a bag that nobody wrote
    return bench_error(got.data(), want.data(), want.size(), forward_limit(t->shape.type));
}

static void check_faults(struct bench *bench)
{
    static const struct bag_shape shape = {
            2, 50, 8, 10, 4, KERNEL_FLOAT32, KERNEL_SUM, false, false};
    static const struct {
        bool offset;
        size_t place;
        int64_t value;
        const char *words;
    } faults[] = {
            {false, 47, 50,
                    "id 50 at place 47 (bag 1 of table 1) is out of range: the table has 50 rows"},
            {false, 0, -1, "id -1 at place 0 (bag 0 of table 0)"},
            {true, 3, 17, "offset 4 is 16, less than the one before"},
            {true, 0, 1, "the first offset is 1"},
            {true, 20, 81, "the last offset is 81, there are 80 ids"},
    };
    for (const auto &fault : faults) {
        struct bag_case t;
        struct error err;
        bag_set(bench, &t, &shape, NULL);
        const int64_t *array = fault.offset ? t.bags.offsets : t.bags.ids;
        BENCH_CHECK(cudaMemcpy((void *)(array + fault.place), &fault.value, sizeof fault.value,
                cudaMemcpyHostToDevice));
        bench->cases++;
        bench->failures +=
                bench_refused(kernel_bags_check(&t.bags, bench->stream, &err), &err, fault.words);
        bench_release(bench);
    }
}

static void forward_check(struct bench *bench)
{
    static const int64_t row_bytes[] = {16, 48, 64, 80, 128, 192, 256, 384, 512, 768, 1024, 2048};
    for (int64_t bytes : row_bytes)
        for (int type = KERNEL_FLOAT32; type <= KERNEL_BFLOAT16; type++)
            for (int pooling = KERNEL_SUM; pooling <= KERNEL_WEIGHTED; pooling++)
                // short and long varied bags, several tables; one length
                for (int kind = 0; kind < 3; kind++) {
                    const int64_t dim = bytes / (int64_t)kernel_type_bytes((enum kernel_type)type);
                    const struct bag_shape shape = {kind == 2 ? 1 : 3, 997, dim,
                            bench->quick ? 13 : 101, kind == 0 ? 3 : 40, (enum kernel_type)type,
                            (enum kernel_pooling)pooling, kind == 1, kind != 2};
                    struct bag_case t;
                    char name[96];
                    if (bench->quick && bytes != 48 && bytes != 512 && bytes != 2048)
                        continue;
                    bag_set(bench, &t, &shape, NULL);
                    void *out = bench_memory(bench, (size_t)(shape.tables * shape.bags * bytes));
                    bag_name(&shape, "", name, sizeof name);
                    bench_expect(bench, forward_error(bench, &t, out), forward_limit(shape.type),
                            "bag_forward", name);
                    bench_release(bench);
                }
    check_faults(bench);
}

static void forward_time(struct bench *bench)
{
    static const struct {
        struct bag_shape shape;
        double target;
    } shapes[] = {
            {{1, 20000000, 128, 65536, 32, KERNEL_FLOAT32, KERNEL_SUM, false, false}, 0.90},
            {{1, 20000000, 128, 65536, 32, KERNEL_BFLOAT16, KERNEL_SUM, false, false}, 0.90},
            {{1, 20000000, 128, 65536, 32, KERNEL_FLOAT16, KERNEL_MEAN, false, false}, 0.90},
            {{1, 20000000, 128, 65536, 32, KERNEL_FLOAT32, KERNEL_WEIGHTED, false, false}, 0.90},
            {{1, 20000000, 128, 65536, 32, KERNEL_FLOAT32, KERNEL_SUM, true, false}, 1.3},
            {{26, 1000000, 64, 4096, 20, KERNEL_FLOAT32, KERNEL_SUM, false, true}, 0.90},
    };
    for (const auto &each : shapes) {
        const struct bag_shape *shape = &each.shape;
        const double row = (double)shape->dim * (double)kernel_type_bytes(shape->type);
        struct bag_case cases[2];
        struct forward_case forward = {cases, NULL};
        struct bench_row line = {"bag_forward", "", 0, forward_limit(shape->type), 0, each.target};

        bag_set(bench, &cases[0], shape, NULL);
        bag_set(bench, &cases[1], shape, &cases[0]);
        forward.out = bench_memory(bench, (size_t)(row * (double)(shape->tables * shape->bags)));
        line.error = forward_error(bench, &cases[1], forward.out);
        // A power law is counted by its lookups, as its public records are: hot rows come from the
        // L2 and count again.
        const double ids = (double)(cases[0].ids.size() + cases[1].ids.size()) / 2;
        const double lookups =
                shape->power ? ids : (bag_unique(&cases[0]) + bag_unique(&cases[1])) / 2;
        line.bytes = row * (lookups + (double)(shape->tables * shape->bags)) + 8 * ids +
                8 * (double)cases[0].offsets.size() +
                (shape->pooling == KERNEL_WEIGHTED ? 4 * ids : 0);
        bag_name(shape, "", line.shape, sizeof line.shape);
        bench_report(bench, &line, bench_time(bench, launch_forward, &forward, 2));
        if (&each == &shapes[0]) { // what the look at the ids costs
            struct bench_row check = {
                    "bags_check", "", 0, 0, 8 * ids + 8 * (double)cases[0].offsets.size(), 0};
            memcpy(check.shape, line.shape, sizeof check.shape);
            bench_report(bench, &check, bench_time(bench, launch_check, &forward, 2));
        }
        bench_release(bench);
    }
}

// The reference against ops_bag of the native models: bags of one length, float32 tables, sums.
static int reference_differs()
{
    enum { ROWS = 23, DIM = 8, BAGS = 5, LENGTH = 4 };
    static double table[ROWS * DIM], want[BAGS * DIM], sum[DIM];
    uint32_t ids[BAGS * LENGTH];
    struct bag_case t = {};
    struct error err;
    struct pool *pool = NULL;
    int failures = 0;

    t.shape = {1, ROWS, DIM, BAGS, LENGTH, KERNEL_FLOAT32, KERNEL_SUM, false, false};
    t.seed = 11;
    for (int i = 0; i < ROWS * DIM; i++)
        table[i] = bag_value(&t, 0, i / DIM, i % DIM);
    for (uint32_t i = 0; i < BAGS * LENGTH; i++) {
        ids[i] = i * 7 % ROWS;
        t.ids.push_back(ids[i]);
    }
    for (int i = 0; i <= BAGS; i++)
        t.offsets.push_back(i * LENGTH);
    bench_must(pool_new(1, &pool, &err), &err);
    struct bag bag = {LENGTH, ids, ids, NULL, NULL, table, want, NULL};
    struct bags bags = {1, BAGS, DIM, DIM, &bag};
    ops_bag(pool, &bags);
    for (int number = 0; number < BAGS; number++) {
        bag_reference(&t, number, sum);
        for (int d = 0; d < DIM; d++)
            failures += !(fabs(sum[d] - want[number * DIM + d]) < 1e-14) || sum[d] == 0;
    }
    pool_free(pool);
    if (failures)
        printf("%d values of the reference differ from ops_bag\n", failures);
    return failures;
}

static int forward_host()
{
    alignas(16) static int64_t memory[8];
    struct kernel_bags good = {}, bad;
    struct error err;
    int failures = reference_differs();

    good.type = KERNEL_BFLOAT16;
    good.tables = 1;
    good.bags = 2;
    good.dim = 8;
    good.ids_count = 1;
    good.rows[0] = memory;
    good.row_counts[0] = 4;
    good.ids = good.offsets = memory;
    bad = good;
    bad.tables = KERNEL_TABLES_MAX + 1;
    failures += bench_refused(
            kernel_bag_forward(&bad, memory, 0, &err), &err, "65 tables in one launch");
    bad = good;
    bad.bags = 0;
    failures += bench_refused(kernel_bag_forward(&bad, memory, 0, &err), &err, "0 bags");
    bad = good;
    bad.dim = 12;
    failures += bench_refused(kernel_bag_forward(&bad, memory, 0, &err), &err,
            "rows of 12 bfloat16 are not supported: a multiple of 8");
    bad.dim = 1032;
    failures += bench_refused(kernel_bags_check(&bad, 0, &err), &err, "up to 1024");
    bad = good;
    bad.pooling = KERNEL_WEIGHTED;
    failures += bench_refused(kernel_bag_forward(&bad, memory, 0, &err), &err, "weights are given");
    bad = good;
    bad.row_counts[0] = 0;
    failures +=
            bench_refused(kernel_bag_forward(&bad, memory, 0, &err), &err, "table 0 has 0 rows");
    bad = good;
    bad.rows[0] = NULL;
    failures += bench_refused(kernel_bag_forward(&bad, memory, 0, &err), &err, "table 0 is NULL");
    bad = good;
    bad.places = (const int32_t *)memory;
    failures += bench_refused(
            kernel_bag_forward(&bad, memory, 0, &err), &err, "places are of the update");
    failures += bench_refused(kernel_bag_forward(&good, NULL, 0, &err), &err, "out is NULL");
    return failures;
}

const struct suite suite_bag_forward = {"bag_forward", forward_host, forward_check, forward_time};
