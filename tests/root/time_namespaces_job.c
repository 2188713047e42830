// SPDX-License-Identifier: Apache-2.0
// Steps that sleep, beginning at moments of the wall clock, which is the same in all time
// namespaces, and what that clock was around each border:
//     time_namespaces_job STEPS GO EVERY_NS SLEEP_NS FILE
// GO will be a file that says when the first step begins; it is waited for. FILE is there from the
// start, and in the end has a line a step: before and behind its begin, before and behind its end.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "contracts/upgate_step.h"

static int64_t job_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

// By a name of its own, which a recorder has to find.
__attribute__((noinline)) static void planted_sleep(int64_t ns)
{
    struct timespec wait = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&wait, NULL);
    __asm__ volatile(""); // no tail call
}

// In pieces, so that a recorder has something to tell before the first step, too. Nobody is waited
// for longer than two minutes. -1: there is no such file.
static int64_t job_first_ns(const char *go)
{
    const struct timespec piece = {.tv_nsec = 15000000};
    int64_t first_ns = -1;
    FILE *file = NULL;
    for (int i = 0; i < 8000 && !(file = fopen(go, "r")); i++)
        nanosleep(&piece, NULL);
    if (file && fscanf(file, "%" SCNd64, &first_ns) != 1)
        first_ns = -1;
    if (file)
        fclose(file);
    return first_ns;
}

static void job_wait_until(int64_t wall_ns)
{
    struct timespec until = {.tv_sec = wall_ns / 1000000000, .tv_nsec = wall_ns % 1000000000};
    clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    FILE *out = fopen(argv[5], "w");
    const int64_t first_ns = job_first_ns(argv[2]), every_ns = atoll(argv[3]),
                  sleep_ns = atoll(argv[4]);
    if (first_ns < 0)
        return 1;
    for (int64_t i = 0; out && i < atoll(argv[1]); i++) {
        job_wait_until(first_ns + i * every_ns);
        int64_t before_ns = job_wall_ns();
        ug_step_begin();
        int64_t begun_ns = job_wall_ns();
        planted_sleep(sleep_ns);
        int64_t ends_ns = job_wall_ns();
        ug_step_end(1);
        fprintf(out, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", before_ns, begun_ns,
                ends_ns, job_wall_ns());
    }
    return out && fclose(out) == 0 ? 0 : 1;
}
