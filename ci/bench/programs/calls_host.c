// SPDX-License-Identifier: Apache-2.0
// A function that is called without end, for ci/bench/calls_cost.py: `calls_host usual|leaf`. Of
// every 500 calls a line: the clock, and the CPU time of a call, in ns. usual: the function saves
// registers, as all do that call others. leaf: it saves none.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { HOST_CALLS = 500, HOST_WORK = 200000 }; // some 50 us

static volatile uint64_t sink;

static int64_t host_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static __attribute__((noinline)) uint64_t host_part(uint64_t x, int count)
{
    for (int i = 0; i < count; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

static __attribute__((noinline)) uint64_t host_usual(uint64_t x)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 2; i++)
        sum += host_part(x + i, HOST_WORK / 4);
    return sum;
}

static __attribute__((noinline)) uint64_t host_leaf(uint64_t x)
{
    for (int i = 0; i < HOST_WORK / 2; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

int main(int argc, char **argv)
{
    uint64_t (*step)(uint64_t) = argc > 1 && strcmp(argv[1], "leaf") == 0 ? host_leaf : host_usual;
    for (;;) {
        int64_t begin_ns = host_ns(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < HOST_CALLS; i++)
            sink += step(sink);
        int64_t cpu_ns = host_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
        if (printf("%lld %lld\n", (long long)host_ns(CLOCK_MONOTONIC),
                    (long long)(cpu_ns / HOST_CALLS)) < 0 ||
                fflush(stdout))
            return 1;
    }
}
