// SPDX-License-Identifier: Apache-2.0
// What a record costs from CUPTI's completed buffer to the spool: 4 MB buffers of kernels of
// CUPTI 13.0, decoded by 1 and by 2 threads while a reader drains the spool. Prints the CPU time
// and the time of a record, medians of the rounds; exits 1 above the limit of 25 ns CPU time. The
// CPU's own time is taken, because the reader and the writers share the machine's cores. Usage:
// inject_decode [ROUNDS]
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "contracts/spool.h"
#include "tracer/inject/decode/decode.h"
#include "tracer/inject/decode/layout.h"
#include "tracer/inject/spool/spool_writer.h"

enum { BUFFER_BYTES = 4 << 20, BUFFERS = 4, KERNELS = 400, ROUNDS = 60, THREADS_MAX = 2 };

static const double limit_ns = 25;

struct arm {
    pthread_t thread;
    unsigned char *buffers[BUFFERS];
    double cpu_ns[1000], wall_ns[1000]; // a record, by round
    int rounds;
};

static const struct cupti_layout *layout;
static char names[KERNELS][160];
static size_t valid_bytes, records; // of a buffer
static int stop;

static double now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void put(unsigned char *record, int offset, uint64_t value, size_t bytes)
{
    memcpy(record + offset, &value, bytes);
}

static void fill(unsigned char *buffer)
{
    size_t kernel_bytes = layout->bytes[10];
    unsigned char *at = buffer;
    records = 0;
    for (uint32_t i = 1; at + kernel_bytes <= buffer + BUFFER_BYTES; i++) {
        memset(at, 0, kernel_bytes);
        put(at, 0, 10, 4);
        put(at, layout->kernel.start, 1000000000ull + i * 4000, 8);
        put(at, layout->kernel.end, 1000000000ull + i * 4000 + 3000, 8);
        put(at, layout->kernel.correlation, i, 4);
        put(at, layout->kernel.name, (uintptr_t)names[i * 7 % KERNELS], 8);
        put(at, layout->kernel.grid, 132, 4);
        put(at, layout->kernel.block, 256, 4);
        at += kernel_bytes;
        records++;
    }
    valid_bytes = (size_t)(at - buffer);
}

static void *decode_rounds(void *user)
{
    struct arm *arm = user;
    struct decode_counts counts = {0};
    decode_buffer(layout, arm->buffers[0], valid_bytes, UG_WANT_KERNELS, &counts);
    for (int round = 0; round < arm->rounds; round++) {
        double cpu = now_ns(CLOCK_THREAD_CPUTIME_ID), wall = now_ns(CLOCK_MONOTONIC);
        decode_buffer(layout, arm->buffers[round % BUFFERS], valid_bytes, UG_WANT_KERNELS, &counts);
        arm->cpu_ns[round] = (now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu) / (double)records;
        arm->wall_ns[round] = (now_ns(CLOCK_MONOTONIC) - wall) / (double)records;
        // 6 million records a second are enough
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (counts.unknown || counts.records != records * (size_t)(arm->rounds + 1)) {
        fprintf(stderr, "inject_decode: %llu records of %llu, %llu unknown\n",
                (unsigned long long)counts.records,
                (unsigned long long)records * (unsigned long long)(arm->rounds + 1),
                (unsigned long long)counts.unknown);
        exit(2);
    }
    return NULL;
}

// Reads every record's head, as the recorder does at the least, and gives the segments back.
static void drain(struct ug_spool_header *header, uint64_t *read)
{
    struct ug_spool_segment *segments = (void *)((unsigned char *)header + UG_SPOOL_HEADER_BYTES);
    for (uint32_t i = 0; i < header->segment_count; i++) {
        if (__atomic_load_n(&segments[i].state, __ATOMIC_ACQUIRE) != UG_SEGMENT_FULL)
            continue;
        const unsigned char *data =
                (unsigned char *)header + header->data_offset + (size_t)i * header->segment_bytes;
        for (uint32_t at = 0; at < segments[i].committed; (*read)++)
            at += ((const struct ug_rec_head *)(const void *)(data + at))->bytes;
        __atomic_store_n(&segments[i].committed, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&segments[i].state, UG_SEGMENT_FREE, __ATOMIC_RELEASE);
    }
}

static void *read_spool(void *user)
{
    uint64_t *read = user;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        drain(spool_header(), read);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    drain(spool_header(), read);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static double measure(struct arm *arms, int threads, int rounds)
{
    double worst = 0;
    for (int i = 0; i < threads; i++) {
        arms[i].rounds = rounds;
        pthread_create(&arms[i].thread, NULL, decode_rounds, &arms[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(arms[i].thread, NULL);
    for (int i = 0; i < threads; i++) {
        double cpu = median(arms[i].cpu_ns, rounds), wall = median(arms[i].wall_ns, rounds);
        printf("  %d threads, thread %d: %5.1f ns CPU a record, %5.1f ns with waiting\n", threads,
                i + 1, cpu, wall);
        worst = cpu > worst ? cpu : worst;
    }
    return worst;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS, exact = 0;
    static struct arm arms[THREADS_MAX];
    uint64_t read = 0;
    pthread_t reader;
    if (rounds < 1 || rounds > 1000 || spool_create() < 0)
        return 2;
    layout = cupti_layout_find(130000, &exact);
    for (int i = 0; i < KERNELS; i++)
        snprintf(names[i], sizeof names[i],
                "_ZN2at6native29vectorized_elementwise_kernelILi%d"
                "ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
                i);
    for (int i = 0; i < THREADS_MAX; i++)
        for (int j = 0; j < BUFFERS; j++) {
            arms[i].buffers[j] = malloc(BUFFER_BYTES);
            fill(arms[i].buffers[j]);
        }
    spool_prepare(64); // 16 MiB: two rounds of two threads
    pthread_create(&reader, NULL, read_spool, &read);
    printf("callback to spool, CUPTI 13.0, 4 MB of kernels (112 bytes in the spool), "
           "%zu records a buffer, %d rounds\n",
            records, rounds);
    double one = measure(arms, 1, rounds), two = measure(arms, THREADS_MAX, rounds);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(reader, NULL);
    const struct ug_spool_counts *counts = spool_header()->counts;
    uint64_t seen = counts[UG_PRODUCER_KERNEL].seen;
    uint64_t dropped = counts[UG_PRODUCER_KERNEL].dropped;
    printf("  %llu records, %llu dropped\n", (unsigned long long)seen, (unsigned long long)dropped);
    double worst = one > two ? one : two;
    printf("limit %.0f ns: %s\n", limit_ns, worst <= limit_ns && !dropped ? "met" : "MISSED");
    return worst <= limit_ns && !dropped ? 0 : 1;
}
