// SPDX-License-Identifier: Apache-2.0
// Makes context switches at a given rate, for ci/bench/capture_cost.py and record_cost.py: two
// threads on one CPU hand a byte back and forth through pipes, in a burst each millisecond. A round
// trip is two switches.
//     switcher SWITCHES_PER_S SECONDS [CPU]     0 = as many as go; prints "ROUND_TRIPS
//                                               NS_A_ROUND_TRIP"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"

enum { BURST_NS = 1000000 };

static int there[2], back[2];

static void *echo(void *unused)
{
    char byte;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
        ;
    return unused;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: switcher SWITCHES_PER_S SECONDS [CPU]\n");
        return 2;
    }
    long rate = atol(argv[1]);
    int64_t end_ns = clock_monotonic_ns() + (int64_t)(atof(argv[2]) * 1e9);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(argc > 3 ? atoi(argv[3]) : 0, &cpus);
    pthread_t thread;
    if (sched_setaffinity(0, sizeof cpus, &cpus) || pipe(there) || pipe(back) ||
            pthread_create(&thread, NULL, echo, NULL)) {
        perror("switcher");
        return 4;
    }
    long burst = rate ? rate / 2 / (1000000000 / BURST_NS) : 1000;
    int64_t trips = 0, busy_ns = 0, next_ns = clock_monotonic_ns();
    char byte = 0;
    while (clock_monotonic_ns() < end_ns) {
        int64_t begin_ns = clock_monotonic_ns();
        for (long i = 0; i < burst; i++) {
            if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
                return 4;
        }
        busy_ns += clock_monotonic_ns() - begin_ns;
        trips += burst;
        next_ns += BURST_NS;
        if (rate)
            clock_sleep_until_ns(next_ns);
    }
    printf("%lld %.1f\n", (long long)trips, (double)busy_ns / (double)trips);
    return 0;
}
