// SPDX-License-Identifier: Apache-2.0
// What a launch costs, for ci/bench/gpu/overhead.py: reads commands from stdin (or one from the
// command line), answers each with a line of JSON on stdout. A process is one arm: how it is traced
// is decided by its environment and by who opens its spool (spool_switch). Single-threaded but for
// `soak`. Nothing is written.
//     loop N        N empty kernels into one stream: ns a launch, of all, the median and the tenth
//                   part of chunks of 250
//     burst N B     the same in bursts of B with a wait between them that is not counted: the CPU's
//                   share alone
//     graph R       R replays of a graph of 1,000 empty kernels: ns a replay, the wait at the end
//                   included
//     soak S T      S seconds of launches from T threads, each with a stream (T 0: what launches
//                   most of 1, 2 and 4)
//     soakgraph S   S seconds of replays
//     play          the script of a small program, see play_all(): prints what a trace of it must
//                   hold
//     quit
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK = 250,
    GRAPH_NODES = 1000,
    PLAY_KERNELS = 300,
    PLAY_COPIES = 7,
    PLAY_SETS = 5,
    PLAY_THREADS = 3,
    PLAY_REPLAYS = 4,
    PLAY_NODES = 20
};

__global__ void bench_empty()
{
}
__global__ void play_first(int *value, int add)
{
    atomicAdd(value, add);
}
__global__ void play_second(int *value)
{
    atomicAdd(value, 2);
}
__global__ void play_thread(int *value)
{
    atomicAdd(value, 3);
}
__global__ void play_node(int *value)
{
    atomicAdd(value, 4);
}

static uint64_t launched; // by this process, all commands together

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "launch_bench: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
#define CHECK(call) check(call, #call)

static uint64_t now_ns()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double quantile(std::vector<double> &values, double share)
{
    if (values.empty())
        return 0;
    std::sort(values.begin(), values.end());
    return values[(size_t)(share * (double)(values.size() - 1))];
}

static double median(std::vector<double> &values)
{
    return quantile(values, 0.5);
}

// The thread that launches, and it alone, on one CPU ($BENCH_CPU): where arms take turns on it,
// what differs between two CPUs falls out. After CUDA has started its own threads, which stay free.
static void stay_on_cpu()
{
    const char *cpu = getenv("BENCH_CPU");
    cpu_set_t set;

    CPU_ZERO(&set);
    if (!cpu)
        return;
    CPU_SET(atoi(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set))
        perror("launch_bench: sched_setaffinity");
}

static void loop(long count)
{
    std::vector<double> chunks;
    uint64_t begin = now_ns(), last = begin;

    for (long i = 0; i < count; i++) {
        bench_empty<<<1, 32>>>();
        if ((i + 1) % CHUNK == 0) {
            uint64_t now = now_ns();
            chunks.push_back((double)(now - last) / CHUNK);
            last = now;
        }
    }
    uint64_t end = now_ns();
    CHECK(cudaDeviceSynchronize());
    launched += (uint64_t)count;
    printf("{\"ns\": %.1f, \"chunk_ns\": %.1f, \"low_ns\": %.2f, \"launched\": %lu}\n",
            (double)(end - begin) / (double)count, median(chunks), quantile(chunks, 0.1), launched);
}

static void burst(long count, long size)
{
    std::vector<double> bursts;

    for (long i = 0; i < count; i += size) {
        uint64_t begin = now_ns();
        for (long k = 0; k < size; k++)
            bench_empty<<<1, 32>>>();
        bursts.push_back((double)(now_ns() - begin) / (double)size);
        CHECK(cudaDeviceSynchronize());
        launched += (uint64_t)size;
    }
    printf("{\"ns\": %.1f, \"launched\": %lu}\n", median(bursts), launched);
}

static cudaGraphExec_t make_graph(cudaStream_t stream, int nodes, int *value)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < nodes; i++) {
        if (value)
            play_node<<<1, 32, 0, stream>>>(value);
        else
            bench_empty<<<1, 32, 0, stream>>>();
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

static cudaStream_t graph_stream;
static cudaGraphExec_t graph_exec;

static void open_graph()
{
    if (graph_exec)
        return;
    CHECK(cudaStreamCreate(&graph_stream));
    graph_exec = make_graph(graph_stream, GRAPH_NODES, NULL);
    for (int i = 0; i < 3; i++)
        CHECK(cudaGraphLaunch(graph_exec, graph_stream));
    CHECK(cudaStreamSynchronize(graph_stream));
    launched += 3 * GRAPH_NODES;
}

static void graph(long replays)
{
    open_graph();
    uint64_t begin = now_ns();
    for (long i = 0; i < replays; i++)
        CHECK(cudaGraphLaunch(graph_exec, graph_stream));
    CHECK(cudaStreamSynchronize(graph_stream));
    launched += (uint64_t)replays * GRAPH_NODES;
    printf("{\"ns\": %.0f, \"launched\": %lu}\n", (double)(now_ns() - begin) / (double)replays,
            launched);
}

// Launches of `threads` threads in `seconds`.
static uint64_t launch_for(double seconds, int threads)
{
    std::atomic<uint64_t> total(0);
    std::vector<std::thread> workers;

    for (int t = 0; t < threads; t++)
        workers.emplace_back([&total, seconds] {
            cudaStream_t stream;
            uint64_t mine = 0, end = now_ns() + (uint64_t)(seconds * 1e9);
            CHECK(cudaStreamCreate(&stream));
            while (now_ns() < end) {
                for (int i = 0; i < 500; i++)
                    bench_empty<<<1, 32, 0, stream>>>();
                mine += 500;
            }
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaStreamDestroy(stream));
            total += mine;
        });
    for (std::thread &worker : workers)
        worker.join();
    launched += total;
    return total;
}

// How many threads launch most in a second here.
static int best_threads()
{
    int best = 1;
    uint64_t most = 0;

    for (int threads = 1; threads <= 4; threads *= 2) {
        uint64_t count = launch_for(0.3, threads);
        if (count > most + most / 20) {
            most = count;
            best = threads;
        }
    }
    return best;
}

static void soak(double seconds, int threads)
{
    if (threads == 0)
        threads = best_threads();
    uint64_t begin = now_ns(), count = launch_for(seconds, threads);
    double took = (double)(now_ns() - begin) / 1e9;
    printf("{\"launches\": %lu, \"seconds\": %.3f, \"per_second\": %.0f, \"threads\": %d, \"launched\": %lu}\n",
            count, took, (double)count / took, threads, launched);
}

static void soak_graph(double seconds)
{
    uint64_t replays = 0;

    open_graph();
    uint64_t begin = now_ns(), end = begin + (uint64_t)(seconds * 1e9);
    while (now_ns() < end) {
        for (int i = 0; i < 10; i++)
            CHECK(cudaGraphLaunch(graph_exec, graph_stream));
        CHECK(cudaStreamSynchronize(graph_stream));
        replays += 10;
    }
    double took = (double)(now_ns() - begin) / 1e9;
    launched += replays * GRAPH_NODES;
    printf("{\"replays\": %lu, \"launches\": %lu, \"seconds\": %.3f, \"per_second\": %.0f, \"launched\": %lu}\n",
            replays, replays * GRAPH_NODES, took, (double)(replays * GRAPH_NODES) / took, launched);
}

// Two streams, threads of their own, copies of all directions, sets, a graph, events and waits. The
// counts it prints are those of a trace with the nodes of graphs one by one; as wholes the graph
// gives PLAY_REPLAYS launches instead.
static void play_all()
{
    int *value, *other, host = 0, *pinned;
    cudaStream_t streams[2];
    cudaEvent_t event;
    std::vector<std::thread> threads;
    uint64_t begin = now_ns();

    CHECK(cudaMalloc(&value, 1 << 20));
    CHECK(cudaMalloc(&other, 1 << 20));
    CHECK(cudaMallocHost(&pinned, 1 << 20));
    for (cudaStream_t &stream : streams)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&event));
    for (int i = 0; i < PLAY_SETS; i++)
        CHECK(cudaMemsetAsync(value, 0, 1024, streams[0]));
    for (int i = 0; i < PLAY_COPIES; i++) {
        CHECK(cudaMemcpyAsync(value, pinned, 4096, cudaMemcpyHostToDevice, streams[0]));
        CHECK(cudaMemcpyAsync(other, value, 2048, cudaMemcpyDeviceToDevice, streams[0]));
        CHECK(cudaMemcpyAsync(pinned, other, 1024, cudaMemcpyDeviceToHost, streams[0]));
    }
    CHECK(cudaMemsetAsync(value, 0, 4, streams[0]));
    for (int i = 0; i < PLAY_KERNELS; i++) {
        play_first<<<dim3(2, 1, 1), dim3(64, 1, 1), 128, streams[0]>>>(value, 1);
        if (i % 3 == 0)
            play_second<<<1, 32, 0, streams[1]>>>(value + 64);
    }
    CHECK(cudaEventRecord(event, streams[0]));
    CHECK(cudaStreamWaitEvent(streams[1], event, 0));
    CHECK(cudaEventSynchronize(event));
    for (int t = 0; t < PLAY_THREADS; t++)
        threads.emplace_back([value] {
            for (int i = 0; i < PLAY_KERNELS; i++)
                play_thread<<<1, 32>>>(value + 128);
            CHECK(cudaStreamSynchronize(0));
        });
    for (std::thread &thread : threads)
        thread.join();
    cudaGraphExec_t exec = make_graph(streams[1], PLAY_NODES, value + 192);
    for (int i = 0; i < PLAY_REPLAYS; i++)
        CHECK(cudaGraphLaunch(exec, streams[1]));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&host, value, sizeof host, cudaMemcpyDeviceToHost));
    printf("{\"play_first\": %d, \"play_second\": %d, \"play_thread\": %d, \"play_node\": %d, \"graphs\": %d, \"HtoD\": %d, \"DtoD\": %d, "
           "\"DtoH\": %d, \"sets\": %d, \"sum\": %d, \"begin_ns\": %lu, \"end_ns\": %lu}\n",
            PLAY_KERNELS, (PLAY_KERNELS + 2) / 3, PLAY_THREADS * PLAY_KERNELS,
            PLAY_NODES * PLAY_REPLAYS, PLAY_REPLAYS, PLAY_COPIES, PLAY_COPIES, PLAY_COPIES + 1,
            PLAY_SETS + 1, host, begin, now_ns());
    launched += PLAY_KERNELS + (PLAY_KERNELS + 2) / 3 + PLAY_THREADS * PLAY_KERNELS +
            PLAY_NODES * PLAY_REPLAYS;
}

static bool obey(const char *line)
{
    char name[32] = "";
    double first = 0, second = 0;
    int words = sscanf(line, "%31s %lf %lf", name, &first, &second);

    if (words < 1 || strcmp(name, "quit") == 0)
        return false;
    if (strcmp(name, "loop") == 0)
        loop((long)first);
    else if (strcmp(name, "burst") == 0)
        burst((long)first, second > 0 ? (long)second : 500);
    else if (strcmp(name, "graph") == 0)
        graph((long)first);
    else if (strcmp(name, "soak") == 0)
        soak(first, (int)second);
    else if (strcmp(name, "soakgraph") == 0)
        soak_graph(first);
    else if (strcmp(name, "play") == 0)
        play_all();
    else
        printf("{\"error\": \"no such command\"}\n");
    fflush(stdout);
    return true;
}

int main(int argc, char **argv)
{
    char line[256] = "";

    CHECK(cudaFree(0));
    for (int i = 0; i < 1000; i++)
        bench_empty<<<1, 32>>>();
    CHECK(cudaDeviceSynchronize());
    launched += 1000;
    stay_on_cpu();
    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            snprintf(line + strlen(line), sizeof line - strlen(line), "%s ", argv[i]);
        obey(line);
        return 0;
    }
    printf("{\"ready\": %d}\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && obey(line))
        ;
    return 0;
}
