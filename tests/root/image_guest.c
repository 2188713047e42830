// SPDX-License-Identifier: Apache-2.0
// What runs in an image that has nothing else: linked statically. `steps N`: N steps of a
// millisecond; `calls N`: the same without step calls; `eat`: touches memory until it is killed;
// `sleep S`.
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "contracts/upgate_step.h"

static volatile unsigned long guest_sink;

static __attribute__((noinline)) void guest_work(double seconds)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    do {
        for (int i = 0; i < 1000; i++)
            guest_sink += (unsigned long)i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while ((double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec) <
            seconds);
}

int main(int argc, char **argv)
{
    long count = argc > 2 ? atol(argv[2]) : 0;
    if (argc > 1 && strcmp(argv[1], "eat") == 0)
        for (;;) {
            char *block = malloc(1 << 20);
            if (block)
                memset(block, 1, 1 << 20);
        }
    if (argc > 1 && strcmp(argv[1], "sleep") == 0)
        sleep((unsigned)count);
    for (long i = 0; argc > 1 && strcmp(argv[1], "steps") == 0 && i < count; i++) {
        ug_step_begin();
        guest_work(1e-3);
        ug_step_end(1);
    }
    for (long i = 0; argc > 1 && strcmp(argv[1], "calls") == 0 && i < count; i++)
        guest_work(1e-3);
    return 0;
}
