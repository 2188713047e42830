// SPDX-License-Identifier: Apache-2.0
// Maps and unmaps as fast as it can, for ci/bench/record_cost.py --mappings.
//     mapper code|data SECONDS     a page of this program's file as code; or 256 KiB of memory, as
//                                  large arrays are
// Prints "MAPPINGS NS_A_MAPPING", the second the median CPU time of bursts of 1,000.
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/clock.h"
#include "common/strings.h"

enum { BURST = 1000, DATA_BYTES = 256 << 10 };

static int by_size(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void burst(bool code, int fd)
{
    for (int i = 0; i < BURST; i++) {
        size_t bytes = code ? 4096 : DATA_BYTES;
        void *at = code
                ? mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0)
                : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            exit(1);
        munmap(at, bytes);
    }
}

int main(int argc, char **argv)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (argc < 3 || fd < 0) {
        fprintf(stderr, "usage: mapper code|data SECONDS\n");
        return 2;
    }
    bool code = strcmp(argv[1], "code") == 0;
    int64_t end_ns = clock_monotonic_ns() + (int64_t)(atof(argv[2]) * 1e9), *bursts = NULL;
    size_t count = 0;
    while (clock_monotonic_ns() < end_ns) {
        bursts = xrealloc(bursts, (count + 1) * sizeof *bursts);
        int64_t begin_ns = cpu_ns();
        burst(code, fd);
        bursts[count++] = cpu_ns() - begin_ns;
    }
    qsort(bursts, count, sizeof *bursts, by_size);
    printf("%zu %.0f\n", count * BURST, (double)bursts[count / 2] / BURST);
    free(bursts);
    return 0;
}
