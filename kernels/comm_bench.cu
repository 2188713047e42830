// SPDX-License-Identifier: Apache-2.0
// Checks and times comm.cu over all GPUs of the machine, up to COMM_GPUS, in one process. Known
// answers: whole numbers that follow from a rank and a place, whose sums every type holds. Timed
// beside a plain loop of NCCL's calls on the same communicators, in turns. Bandwidth is that of the
// bus, as nccl-tests define it: bytes of the whole (all-reduce: twice) * (ranks - 1) / ranks, over
// the time.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/comm_bench.cu
#include "kernels/bench.h"
#include "kernels/comm_nccl.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string>
#include <time.h>

#define COMM_GPUS 8
#define COMM_SAMPLES 9
#define COMM_SAMPLE_NS 2e7

enum comm_op { COMM_ALL_REDUCE, COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_TO_ALL };
static const char *const op_names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};

struct comm_shape {
    enum comm_op op;
    enum kernel_type type;
    int64_t count; // of all-to-all: to each rank; varied: more to some, nothing to others
    bool varied, in_place;
};

struct comm_case {
    struct comm_shape shape;
    int ranks;
    uint64_t seed;
    struct kernel_comm *comms[COMM_GPUS];
    cudaStream_t streams[COMM_GPUS];
    void *send[COMM_GPUS], *receive[COMM_GPUS];
};

static __device__ int comm_value(uint64_t seed, int rank, int64_t at)
{
    uint64_t z =
            seed + (uint64_t)rank * 0xd1342543de82ef95u + ((uint64_t)at + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return (int)((z ^ (z >> 31)) >> 32 & 15) - 8;
}

// What goes from one rank to another in an all-to-all.
static __host__ __device__ int64_t comm_part(const struct comm_shape &shape, int from, int to)
{
    if (!shape.varied)
        return shape.count;
    return (from + 2 * to) % 3 == 1 ? 0 : shape.count + 3 * from + to;
}

static __host__ __device__ int64_t comm_before(const struct comm_shape &shape, int from, int to)
{
    int64_t before = 0;
    for (int rank = 0; rank < to; rank++)
        before += comm_part(shape, from, rank);
    return before;
}

// The value at a place of what a rank receives.
static __device__ int comm_answer(
        const struct comm_shape &shape, uint64_t seed, int ranks, int rank, int64_t at)
{
    int sum = 0;
    if (shape.op == COMM_ALL_GATHER)
        return comm_value(seed, (int)(at / shape.count), at % shape.count);
    if (shape.op == COMM_ALL_TO_ALL) {
        int from = 0;
        for (; at >= comm_part(shape, from, rank); from++)
            at -= comm_part(shape, from, rank);
        return comm_value(seed, from, comm_before(shape, from, rank) + at);
    }
    for (int from = 0; from < ranks; from++)
        sum += comm_value(seed, from, shape.op == COMM_ALL_REDUCE ? at : rank * shape.count + at);
    return sum;
}

template <typename T>
static __global__ void comm_fill(uint64_t seed, int rank, int64_t count, T *to)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
            i += (int64_t)gridDim.x * blockDim.x)
        to[i] = (T)(float)comm_value(seed, rank, i);
}

template <typename T>
static __global__ void comm_wrong(struct comm_shape shape, uint64_t seed, int ranks, int rank,
        int64_t count, const T *got, unsigned long long *wrong)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
            i += (int64_t)gridDim.x * blockDim.x)
        if (!((float)got[i] == (float)comm_answer(shape, seed, ranks, rank, i)))
            atomicAdd(wrong, 1ull);
}

static int64_t sent(const struct comm_case *t, int rank)
{
    return t->shape.op == COMM_ALL_TO_ALL        ? comm_before(t->shape, rank, t->ranks)
            : t->shape.op == COMM_REDUCE_SCATTER ? t->shape.count * t->ranks
                                                 : t->shape.count;
}

static int64_t received(const struct comm_case *t, int rank)
{
    int64_t count = 0;
    if (t->shape.op == COMM_ALL_TO_ALL)
        for (int from = 0; from < t->ranks; from++)
            count += comm_part(t->shape, from, rank);
    return t->shape.op == COMM_ALL_TO_ALL    ? count
            : t->shape.op == COMM_ALL_GATHER ? t->shape.count * t->ranks
                                             : t->shape.count;
}

static void comm_wait(const struct comm_case *t)
{
    for (int rank = 0; rank < t->ranks; rank++)
        BENCH_CHECK(cudaStreamSynchronize(t->streams[rank]));
}

// Communicators of all GPUs; false, and why, when there is nothing to run on.
static bool comm_open(struct bench *bench, struct comm_case *t)
{
    unsigned char id[KERNEL_COMM_ID_BYTES];
    struct error err;
    int version = 0;
    *t = {};
    BENCH_CHECK(cudaGetDeviceCount(&t->ranks));
    t->ranks = std::min(t->ranks, COMM_GPUS);
    if (t->ranks < 2 || kernel_comm_version(&version, &err)) {
        fprintf(stderr, "upgate_kernels: no collectives: %s\n",
                t->ranks < 2 ? "one GPU" : err.text);
        return false;
    }
    t->seed = rng_next(&bench->rng);
    bench_must(kernel_comm_id(id, &err), &err);
    bench_must(kernel_comm_begin(&err), &err);
    for (int rank = 0; rank < t->ranks; rank++) {
        BENCH_CHECK(cudaSetDevice(rank));
        BENCH_CHECK(cudaStreamCreateWithFlags(&t->streams[rank], cudaStreamNonBlocking));
        bench_must(kernel_comm_new(id, t->ranks, rank, &t->comms[rank], &err), &err);
    }
    bench_must(kernel_comm_end(&err), &err);
    BENCH_CHECK(cudaSetDevice(0));
    printf("{\"nccl\": %d, \"ranks\": %d}\n", version, t->ranks);
    return true;
}

static void comm_close(struct bench *bench, struct comm_case *t)
{
    comm_wait(t);
    bench_release(bench);
    for (int rank = 0; rank < t->ranks; rank++) {
        BENCH_CHECK(cudaSetDevice(rank));
        kernel_comm_free(t->comms[rank]);
        BENCH_CHECK(cudaStreamDestroy(t->streams[rank]));
    }
    BENCH_CHECK(cudaSetDevice(0));
}

template <typename T> static void comm_fill_rank(const struct comm_case *t, int rank)
{
    comm_fill<<<512, 256, 0, t->streams[rank]>>>(t->seed, rank, sent(t, rank), (T *)t->send[rank]);
    BENCH_CHECK(cudaGetLastError());
}

static void comm_fill_all(const struct comm_case *t)
{
    for (int rank = 0; rank < t->ranks; rank++) {
        BENCH_CHECK(cudaSetDevice(rank));
        if (t->receive[rank] != t->send[rank])
            BENCH_CHECK(cudaMemsetAsync(t->receive[rank], 0xff,
                    (size_t)received(t, rank) * kernel_type_bytes(t->shape.type),
                    t->streams[rank]));
        if (t->shape.type == KERNEL_FLOAT32)
            comm_fill_rank<float>(t, rank);
        else if (t->shape.type == KERNEL_FLOAT16)
            comm_fill_rank<__half>(t, rank);
        else
            comm_fill_rank<__nv_bfloat16>(t, rank);
    }
    comm_wait(t);
    BENCH_CHECK(cudaSetDevice(0));
}

// Buffers on each GPU. In place: the received lies where NCCL wants it in the sent, or the other
// way round.
static void comm_set(struct bench *bench, struct comm_case *t, const struct comm_shape *shape)
{
    t->shape = *shape;
    const size_t size = kernel_type_bytes(shape->type);
    for (int rank = 0; rank < t->ranks; rank++) {
        BENCH_CHECK(cudaSetDevice(rank));
        const size_t part = (size_t)(rank * shape->count) * size;
        if (!shape->in_place || shape->op == COMM_ALL_REDUCE || shape->op == COMM_REDUCE_SCATTER)
            t->send[rank] = bench_memory(bench, (size_t)sent(t, rank) * size);
        if (!shape->in_place || shape->op == COMM_ALL_GATHER)
            t->receive[rank] = bench_memory(bench, (size_t)received(t, rank) * size);
        if (shape->in_place && shape->op == COMM_ALL_GATHER)
            t->send[rank] = (char *)t->receive[rank] + part;
        else if (shape->in_place)
            t->receive[rank] =
                    (char *)t->send[rank] + (shape->op == COMM_REDUCE_SCATTER ? part : 0);
    }
    BENCH_CHECK(cudaSetDevice(0));
}

static void comm_run(const struct comm_case *t)
{
    const enum kernel_type type = t->shape.type;
    struct error err;
    bench_must(kernel_comm_begin(&err), &err);
    for (int rank = 0; rank < t->ranks; rank++) {
        int64_t to[COMM_GPUS], from[COMM_GPUS];
        int rc = 0;
        BENCH_CHECK(cudaSetDevice(rank));
        for (int other = 0; other < t->ranks; other++) {
            to[other] = comm_part(t->shape, rank, other);
            from[other] = comm_part(t->shape, other, rank);
        }
        if (t->shape.op == COMM_ALL_REDUCE)
            rc = kernel_all_reduce(t->comms[rank], type, t->shape.count, t->send[rank],
                    t->receive[rank], t->streams[rank], &err);
        else if (t->shape.op == COMM_ALL_GATHER)
            rc = kernel_all_gather(t->comms[rank], type, t->shape.count, t->send[rank],
                    t->receive[rank], t->streams[rank], &err);
        else if (t->shape.op == COMM_REDUCE_SCATTER)
            rc = kernel_reduce_scatter(t->comms[rank], type, t->shape.count, t->send[rank],
                    t->receive[rank], t->streams[rank], &err);
        else
            rc = kernel_all_to_all(t->comms[rank], type, to, t->send[rank], from, t->receive[rank],
                    t->streams[rank], &err);
        bench_must(rc, &err);
    }
    bench_must(kernel_comm_end(&err), &err);
}

// The same by NCCL's own calls, in a loop as one would write it.
static void comm_run_plain(const struct comm_case *t)
{
    const struct nccl *nccl = t->comms[0]->nccl;
    const int type = nccl_type(t->shape.type);
    const size_t count = (size_t)t->shape.count, bytes = count * kernel_type_bytes(t->shape.type);
    int result = nccl->group_start();
    for (int rank = 0; rank < t->ranks; rank++) {
        void *comm = t->comms[rank]->comm;
        BENCH_CHECK(cudaSetDevice(rank));
        if (t->shape.op == COMM_ALL_REDUCE)
            result |= nccl->all_reduce(
                    t->send[rank], t->receive[rank], count, type, NCCL_SUM, comm, t->streams[rank]);
        else if (t->shape.op == COMM_ALL_GATHER)
            result |= nccl->all_gather(
                    t->send[rank], t->receive[rank], count, type, comm, t->streams[rank]);
        else if (t->shape.op == COMM_REDUCE_SCATTER)
            result |= nccl->reduce_scatter(
                    t->send[rank], t->receive[rank], count, type, NCCL_SUM, comm, t->streams[rank]);
        for (int other = 0; t->shape.op == COMM_ALL_TO_ALL && other < t->ranks; other++) {
            result |= nccl->send((char *)t->send[rank] + (size_t)other * bytes, count, type, other,
                    comm, t->streams[rank]);
            result |= nccl->receive((char *)t->receive[rank] + (size_t)other * bytes, count, type,
                    other, comm, t->streams[rank]);
        }
    }
    result |= nccl->group_end();
    if (result) {
        fprintf(stderr, "upgate_kernels: the plain loop of NCCL failed\n");
        exit(4);
    }
}

// Values that are not the known answer, over all ranks.
static double comm_error(struct bench *bench, struct comm_case *t)
{
    unsigned long long wrong = 0, *counts[COMM_GPUS];
    comm_fill_all(t);
    comm_run(t);
    comm_wait(t);
    for (int rank = 0; rank < t->ranks; rank++) {
        const int64_t count = received(t, rank);
        unsigned long long here = 0;
        BENCH_CHECK(cudaSetDevice(rank));
        counts[rank] = (unsigned long long *)bench_upload(bench, &here, sizeof here);
        if (t->shape.type == KERNEL_FLOAT32)
            comm_wrong<<<512, 256, 0, t->streams[rank]>>>(t->shape, t->seed, t->ranks, rank, count,
                    (const float *)t->receive[rank], counts[rank]);
        else if (t->shape.type == KERNEL_FLOAT16)
            comm_wrong<<<512, 256, 0, t->streams[rank]>>>(t->shape, t->seed, t->ranks, rank, count,
                    (const __half *)t->receive[rank], counts[rank]);
        else
            comm_wrong<<<512, 256, 0, t->streams[rank]>>>(t->shape, t->seed, t->ranks, rank, count,
                    (const __nv_bfloat16 *)t->receive[rank], counts[rank]);
        BENCH_CHECK(cudaGetLastError());
        BENCH_CHECK(cudaStreamSynchronize(t->streams[rank]));
        BENCH_CHECK(cudaMemcpy(&here, counts[rank], sizeof here, cudaMemcpyDeviceToHost));
        wrong += here;
    }
    BENCH_CHECK(cudaSetDevice(0));
    return wrong ? INFINITY : 0;
}

static void comm_name(const struct comm_case *t, char *text, size_t size)
{
    const double bytes =
            (double)(t->shape.op == COMM_ALL_REDUCE ? t->shape.count : t->shape.count * t->ranks) *
            (double)kernel_type_bytes(t->shape.type);
    snprintf(text, size, "%.6g %s %s%s%s, %d GPUs", bytes < 0x1p20 ? bytes : bytes / 0x1p20,
            bytes < 0x1p20 ? "B" : "MiB", kernel_type_name(t->shape.type),
            t->shape.varied ? " varied" : "", t->shape.in_place ? " in place" : "", t->ranks);
}

// Two ranks of one GPU: refused in words, not a hang. What NCCL keeps of them is not freed: that is
// its own bug to have.
static void check_one_gpu(struct bench *bench)
{
    unsigned char id[KERNEL_COMM_ID_BYTES];
    struct kernel_comm *comms[2];
    struct error err;
    bench_must(kernel_comm_id(id, &err), &err);
    bench_must(kernel_comm_begin(&err), &err);
    int rc = 0;
    for (int rank = 0; rank < 2; rank++)
        rc = rc ? rc : kernel_comm_new(id, 2, rank, &comms[rank], &err);
    if (!rc)
        rc = kernel_comm_end(&err);
    bench->cases++;
    bench->failures += bench_refused(rc, &err, "NCCL: failed to");
}

static void comm_check(struct bench *bench)
{
    static const int64_t counts[] = {1, 3, 1000, (1 << 18) + 5};
    struct comm_case t;
    if (!comm_open(bench, &t))
        return;
    for (int op = COMM_ALL_REDUCE; op <= COMM_ALL_TO_ALL; op++)
        for (int type = KERNEL_FLOAT32; type <= KERNEL_BFLOAT16; type++)
            for (int64_t count : counts)
                // all-to-all: parts of one size, of several; the others: apart, in place
                for (int kind = 0; kind < 2; kind++) {
                    const struct comm_shape shape = {(enum comm_op)op, (enum kernel_type)type,
                            count, op == COMM_ALL_TO_ALL && kind, op != COMM_ALL_TO_ALL && kind};
                    char name[96];
                    comm_set(bench, &t, &shape);
                    comm_name(&t, name, sizeof name);
                    bench_expect(bench, comm_error(bench, &t), 0, op_names[op], name);
                    bench_release(bench);
                }
    check_one_gpu(bench);
    comm_close(bench, &t);
}

static double comm_sample(
        const struct comm_case *t, void (*run)(const struct comm_case *t), int count)
{
    struct timespec begin, end;
    comm_wait(t);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < count; i++)
        run(t);
    comm_wait(t);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
            count;
}

static void comm_time_shape(
        struct bench *bench, struct comm_case *t, const struct comm_shape *shape, double target)
{
    double ours[COMM_SAMPLES], ratios[COMM_SAMPLES];
    struct bench_row row = {op_names[shape->op], "", 0, 0, 0, target};
    comm_set(bench, t, shape);
    comm_name(t, row.shape, sizeof row.shape);
    row.error = comm_error(bench, t);
    row.beside = "loop";
    const double values =
            (double)(shape->op == COMM_ALL_REDUCE ? 2 * shape->count : shape->count * t->ranks);
    row.bytes = values * (double)kernel_type_bytes(shape->type) * (t->ranks - 1) / t->ranks;
    comm_sample(t, comm_run_plain, 3);
    const int count = std::max(1, (int)(COMM_SAMPLE_NS / comm_sample(t, comm_run, 3)));
    for (int i = 0; i < COMM_SAMPLES; i++) { // in turns, the first another one each time
        const double first = comm_sample(t, i % 2 ? comm_run : comm_run_plain, count),
                     second = comm_sample(t, i % 2 ? comm_run_plain : comm_run, count);
        ours[i] = i % 2 ? first : second;
        ratios[i] = i % 2 ? second / first : first / second;
    }
    std::sort(ours, ours + COMM_SAMPLES);
    std::sort(ratios, ratios + COMM_SAMPLES);
    const double ns = ours[COMM_SAMPLES / 2], ratio = ratios[COMM_SAMPLES / 2];
    snprintf(row.note, sizeof row.note, "bus %.1f GB/s, ratio to the plain loop %.3f to %.3f",
            row.bytes / ns, ratios[0], ratios[COMM_SAMPLES - 1]);
    bench_report(bench, &row, {ns, row.bytes / ns / ratio, -1, -1, {}});
    bench_release(bench);
    BENCH_CHECK(cudaSetDevice(0));
}

static void comm_time(struct bench *bench)
{
    static const int64_t mib[] = {1, 16, 256, 1024};
    struct comm_case t;
    if (!comm_open(bench, &t))
        return;
    for (int op = COMM_ALL_REDUCE; op <= COMM_ALL_TO_ALL; op++)
        for (int64_t size : mib) {
            const int64_t whole = (size << 20) / 4;
            const struct comm_shape shape = {(enum comm_op)op, KERNEL_FLOAT32,
                    op == COMM_ALL_REDUCE ? whole : whole / t.ranks, false, false};
            comm_time_shape(bench, &t, &shape, op == COMM_ALL_REDUCE ? 0.98 : 0);
        }
    comm_close(bench, &t);
}

static int comm_host()
{
    unsigned char id[KERNEL_COMM_ID_BYTES] = {0};
    struct nccl none = {};
    struct kernel_comm comm = {&none, NULL, 2}, *ret = NULL;
    static float memory[4];
    const int64_t good[2] = {1, 1}, bad[2] = {1, -1};
    struct error err;
    int failures = 0;
    failures += bench_refused(kernel_comm_new(id, 2, 2, &ret, &err), &err, "rank 2 of 2");
    failures += bench_refused(kernel_all_reduce(NULL, KERNEL_FLOAT32, 1, memory, memory, 0, &err),
            &err, "no communicator");
    failures += bench_refused(kernel_all_gather(&comm, KERNEL_FLOAT32, -1, memory, memory, 0, &err),
            &err, "-1 values");
    failures +=
            bench_refused(kernel_reduce_scatter(&comm, KERNEL_FLOAT32, 1, NULL, memory, 0, &err),
                    &err, "must not be NULL");
    failures += bench_refused(
            kernel_all_to_all(&comm, KERNEL_FLOAT32, good, memory, bad, memory, 0, &err), &err,
            "-1 from it");
    failures += bench_refused(
            kernel_all_to_all(&comm, KERNEL_FLOAT32, good, NULL, good, memory, 0, &err), &err,
            "must not be NULL");
    const char *before = getenv("UPGATE_NCCL");
    const std::string kept = before ? before : "";
    setenv("UPGATE_NCCL", "/nowhere/libnccl.so.2", 1); // before any call has opened one
    const int rc = kernel_comm_id(id, &err);
    if (before)
        setenv("UPGATE_NCCL", kept.c_str(), 1);
    else
        unsetenv("UPGATE_NCCL");
    if (rc != -ENOSYS || !strstr(err.text, "no NCCL: /nowhere/libnccl.so.2")) {
        printf("without NCCL: %d \"%s\"\n", rc, rc ? err.text : "");
        failures++;
    }
    return failures;
}

const struct suite suite_comm = {"comm", comm_host, comm_check, comm_time};
