// SPDX-License-Identifier: Apache-2.0
// What a step marker costs in C: ns for a begin or an end, next to a clock_gettime() of the same
// run, and the round trip of the gate (grant one step, wait until it is held again). Exit 1 above
// the limit.
//     step_marker [BATCHES]

#include "contracts/upgate_step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "harness/steps/reader.h"

enum { STEPS_PER_BATCH = 20000, TURNS = 500, BATCHES_MAX = 1000 };
#define MARKER_LIMIT_NS 60.0

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[count / 2];
}

static void ignore(void *arg, uint32_t slot_idx, const struct ug_step_record *record)
{
    (void)slot_idx;
    *(uint64_t *)arg += record->kind;
}

static double time_clock(void)
{
    uint64_t begin_ns = ug_impl_now_ns(), sum = 0;

    for (int i = 0; i < STEPS_PER_BATCH; i++) {
        sum += ug_impl_now_ns();
    }
    begin_ns = ug_impl_now_ns() - begin_ns;
    return sum == 0 ? NAN : (double)begin_ns / STEPS_PER_BATCH;
}

static double time_steps(void)
{
    uint64_t begin_ns = ug_impl_now_ns();

    for (int i = 0; i < STEPS_PER_BATCH; i++) {
        ug_step_begin();
        ug_step_end(1);
    }
    return (double)(ug_impl_now_ns() - begin_ns) / (2 * STEPS_PER_BATCH);
}

static double time_phases(void)
{
    uint64_t begin_ns;
    double cost_ns;

    ug_step_begin();
    begin_ns = ug_impl_now_ns();
    for (int i = 0; i < STEPS_PER_BATCH; i++) {
        ug_step_phase_begin("forward");
        ug_step_phase_end();
    }
    cost_ns = (double)(ug_impl_now_ns() - begin_ns) / (2 * STEPS_PER_BATCH);
    ug_step_end(1);
    return cost_ns;
}

static double time_turns(struct reader *reader)
{
    static double turns[TURNS];
    pid_t pid = fork();

    if (pid == 0) {
        for (;;) {
            ug_step_begin();
            ug_step_end(1);
        }
    }
    for (int i = -1; i < TURNS; i++) {
        int64_t begin_ns = clock_monotonic_ns();

        if (i >= 0) {
            reader_grant(reader, 1);
        }
        if (reader_wait_held(reader, 1, begin_ns + 10000000000) != 0) {
            fprintf(stderr, "step_marker: the gate does not answer\n");
            exit(1);
        }
        if (i >= 0) {
            turns[i] = (double)(clock_monotonic_ns() - begin_ns);
        }
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return median(turns, TURNS);
}

static struct reader *make_reader(bool open)
{
    struct error err = {0};
    struct reader *reader;
    char path[64];

    snprintf(path, sizeof(path), "/dev/shm/upgate-step-marker-%d-%d", (int)getpid(), open);
    if (reader_create(&reader, path, &(struct reader_opts){.open = open}, &err) < 0) {
        fprintf(stderr, "step_marker: %s\n", err.text);
        exit(1);
    }
    setenv("UPGATE_STEPS", path, 1);
    return reader;
}

int main(int argc, char **argv)
{
    static double clocks[BATCHES_MAX], steps[BATCHES_MAX], phases[BATCHES_MAX];
    int batches = argc > 1 ? atoi(argv[1]) : 50;
    struct reader_counters counters = {0};
    struct error err = {0};
    struct reader *reader = make_reader(false);
    double turn_ns = time_turns(reader), clock_ns, step_ns, phase_ns;
    uint64_t sum = 0;

    reader_free(reader);
    batches = batches < 1 ? 1 : batches > BATCHES_MAX ? BATCHES_MAX : batches;
    reader = make_reader(true);
    for (int i = 0; i < batches; i++) {
        clocks[i] = time_clock();
        steps[i] = time_steps();
        phases[i] = time_phases();
        reader_drain(reader, 0, ignore, NULL, &sum, &err);
    }
    clock_ns = median(clocks, batches);
    step_ns = median(steps, batches);
    phase_ns = median(phases, batches);
    reader_counters(reader, 0, &counters);
    reader_free(reader);
    if (counters.records_dropped > 0 ||
            counters.records_kept != (uint64_t)batches * (2 * STEPS_PER_BATCH + 1)) {
        fprintf(stderr, "step_marker: records were lost, so the figures are not those of a step\n");
        return 1;
    }
    printf("clock_gettime       %7.1f ns\n", clock_ns);
    printf("step marker in C    %7.1f ns  limit %.0f ns  %.2f clocks  %s\n", step_ns,
            MARKER_LIMIT_NS, step_ns / clock_ns, step_ns <= MARKER_LIMIT_NS ? "ok" : "TOO SLOW");
    printf("phase marker in C   %7.1f ns  %.2f clocks\n", phase_ns, phase_ns / clock_ns);
    printf("gate round trip     %7.1f us\n", turn_ns / 1000);
    return step_ns <= MARKER_LIMIT_NS ? 0 : 1;
}
