// SPDX-License-Identifier: Apache-2.0
// How the time in which it is found who waited on the host for whom grows with the number of ranks
// of a job: all but rank 5 wait in each of 24 steps, and rank 7 in three of four. Least CPU time of
// three rounds. Exit 1 where somebody else is blamed, or where time from 512 ranks on grows by a
// power of their number above 1.5: comparing all with all has 2.
// Usage: host_waits [RANKS…]   (8 64 512 1024 4096 16384)
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/ranks/ranks_find.h"

enum {
    STEPS = 24,
    ROUNDS = 3,
    LATE = 5,
    ALSO_LATE = 7,
    SIZES_MAX = 16,
    SLOPE_FROM = 512,
    RANKS_MOST = 1 << 17
};
static const int64_t ms = 1000000;
static const double slope_max = 1.5;

static uint32_t below(uint64_t *seed, uint32_t end)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % end;
}

static void put_rows(struct ranks *ranks, uint32_t count)
{
    uint64_t seed = 1;
    for (uint32_t rank = 0; rank < count; rank++) {
        struct rank_row row = {.process = rank,
                .thread = rank,
                .rank = (int32_t)rank,
                .wait_first = ranks->wait_count};
        for (int step = 0; step < STEPS; step++) {
            int64_t begin = step * 100 * ms + below(&seed, 20 * 1000000),
                    end = step * 100 * ms + 80 * ms + below(&seed, 50000);
            if (rank == LATE || (rank == ALSO_LATE && step % 4 == 0))
                continue;
            vector_push(ranks->waits, ranks->wait_count, (struct trace_window){begin, end});
            row.wait_count++;
        }
        vector_push(ranks->rows, ranks->row_count, row);
    }
}

// Is each late one of those two, and none missing?
static bool is_right(const struct ranks *ranks)
{
    size_t of_late = 0, of_also = 0, others = ranks->row_count - 1;
    for (size_t i = 0; i < ranks->late_count; i++) {
        of_late += ranks->lates[i].last == LATE;
        of_also += ranks->lates[i].last == ALSO_LATE;
    }
    return of_late == STEPS * others - STEPS / 4 && of_also == STEPS / 4 * (others - 1) &&
            of_late + of_also == ranks->late_count;
}

static double cpu_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

// Negative: it was not right.
static double seconds(uint32_t count)
{
    struct trace_process *processes = xcalloc(count, sizeof *processes);
    struct trace_window window = {0, 100 * STEPS * ms};
    const struct trace trace = {.processes = processes,
            .process_count = count,
            .windows = &window,
            .window_count = 1,
            .threshold_ns = ms};
    double least = INFINITY;
    for (int round = 0; round < ROUNDS && least >= 0; round++) {
        struct ranks ranks = {.trace = &trace};
        put_rows(&ranks, count);
        double began = cpu_s();
        ranks_host(&ranks);
        least = fmin(least, cpu_s() - began);
        least = is_right(&ranks) ? least : -1;
        ranks_free(&ranks);
    }
    free(processes);
    return least;
}

// Of the logarithm of time over that of ranks, by least squares.
static double slope(const uint32_t *ranks, const double *times, size_t count)
{
    double x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = 0; i < count; i++) {
        double a = log(ranks[i]), b = log(times[i]);
        x += a;
        y += b;
        xx += a * a;
        xy += a * b;
    }
    return (xy - x * y / (double)count) / (xx - x * x / (double)count);
}

int main(int argc, char **argv)
{
    uint32_t sizes[SIZES_MAX] = {8, 64, 512, 1024, 4096, 16384}, large[SIZES_MAX];
    double times[SIZES_MAX];
    size_t count = argc > 1 ? (size_t)argc - 1 : 6, large_count = 0;
    bool usage = count > SIZES_MAX;
    for (size_t i = 0; i < count && argc > 1 && !usage; i++) {
        char *end;
        long size = strtol(argv[i + 1], &end, 10);
        usage = *end || size < LATE + 3 || size > RANKS_MOST;
        sizes[i] = usage ? 0 : (uint32_t)size;
    }
    if (usage) {
        fprintf(stderr, "usage: host_waits [RANKS…]   (at most %d numbers, of %d to %d)\n",
                SIZES_MAX, LATE + 3, RANKS_MOST);
        return 2;
    }
    for (size_t i = 0; i < count; i++) {
        double taken = seconds(sizes[i]);
        if (taken < 0) {
            fprintf(stderr, "host_waits: of %u ranks, others than those that are late are blamed\n",
                    sizes[i]);
            return 1;
        }
        printf("%6u ranks, %8u waits  %9.4f s of CPU\n", sizes[i], sizes[i] * STEPS, taken);
        if (sizes[i] >= SLOPE_FROM) {
            large[large_count] = sizes[i];
            times[large_count++] = taken;
        }
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("memory %ld MB\n", used.ru_maxrss / 1024);
    if (large_count < 2)
        return 0;
    double steep = slope(large, times, large_count);
    printf("log time over log ranks, from %d on  %.2f (at most %.1f)\n", SLOPE_FROM, steep,
            slope_max);
    return !(steep <= slope_max);
}
