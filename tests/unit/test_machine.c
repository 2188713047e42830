// SPDX-License-Identifier: Apache-2.0
// What of a block's time the machine took: the arithmetic on readings made by hand, the texts of
// the kernel, and a real process that stands at a gate.
#include "harness/run/machine.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/unit/runner.h"
#include "tests/unit/test_step_rig.h"

#define MS 1000000LL

// A turn that was thawed at 0, its first step began 1 ms later; a block of 20 ms.
static struct machine_share judge(struct machine_turn turn)
{
    struct machine_share share;
    turn.resumed_ns = 1000 * MS;
    turn.ranks = turn.ranks ? turn.ranks : 1;
    machine_judge(&turn, 1001 * MS, 20 * MS, &share);
    return share;
}

TEST(wait_behind_others_is_the_machines)
{
    struct machine_share share = judge((struct machine_turn){.cpu_ns = 12 * MS,
            .step_cpu_ns = 12 * MS,
            .wait_ns = 9 * MS,
            .foreign_ns = 10 * MS,
            .rest_ns = -1});
    // what it waited before the first step is no part of the block
    CHECK_INT(share.wait_ns, 8 * MS);
    CHECK_INT(share.steal_ns, 0);
    CHECK_INT(share.machine_ns, 8 * MS);
}

TEST(wait_behind_own_helpers_is_not)
{
    struct machine_turn turn = {.cpu_ns = 19 * MS,
            .step_cpu_ns = 10 * MS,
            .wait_ns = 10 * MS,
            .foreign_ns = 50 * MS,
            .rest_ns = -1};
    // helpers ran for 9 ms: all of it may have been behind them
    CHECK_INT(judge(turn).machine_ns, 0);
    turn.cpu_ns = 13 * MS;
    CHECK_INT(judge(turn).machine_ns, 6 * MS); // for 3 ms only
    // microseconds of one, nanoseconds of the other: a little below is nothing
    turn.cpu_ns = 9 * MS;
    CHECK_INT(judge(turn).machine_ns, 9 * MS);
}

TEST(no_more_than_others_ran)
{
    struct machine_turn turn = {.cpu_ns = 12 * MS,
            .step_cpu_ns = 12 * MS,
            .wait_ns = 9 * MS,
            .foreign_ns = 2 * MS,
            .rest_ns = -1};
    CHECK_INT(judge(turn).machine_ns, 2 * MS);
    turn.foreign_ns = -1; // not told by this kernel: the helpers' bound alone
    CHECK_INT(judge(turn).machine_ns, 8 * MS);
}

TEST(steal_counts_and_never_more_than_the_block)
{
    struct machine_turn turn = {.cpu_ns = 12 * MS,
            .step_cpu_ns = 12 * MS,
            .wait_ns = 1 * MS,
            .foreign_ns = 0,
            .rest_ns = 7 * MS};
    CHECK_INT(judge(turn).steal_ns, 7 * MS);
    CHECK_INT(judge(turn).machine_ns, 7 * MS);
    turn.wait_ns = turn.foreign_ns = 19 * MS;
    CHECK_INT(judge(turn).wait_ns, 8 * MS); // it ran for the other 12
    CHECK_INT(judge(turn).machine_ns, 15 * MS);
    turn.cpu_ns = turn.step_cpu_ns = 0;
    CHECK_INT(judge(turn).machine_ns, 20 * MS);
    turn.wait_ns = turn.foreign_ns = turn.rest_ns = 500 * MS;
    CHECK_INT(judge(turn).wait_ns, 20 * MS);
    CHECK_INT(judge(turn).machine_ns, 20 * MS);
}

TEST(what_is_not_told_excuses_nothing)
{
    CHECK_INT(judge(MACHINE_NOT_TOLD).machine_ns, -1);
    struct machine_turn turn = {.cpu_ns = -1,
            .step_cpu_ns = 12 * MS,
            .wait_ns = 9 * MS,
            .foreign_ns = -1,
            .rest_ns = -1};
    CHECK_INT(judge(turn).machine_ns, -1); // no cgroup v2: who knows what its helpers did
    CHECK_INT(judge(turn).wait_ns, 8 * MS);
    turn.cpu_ns = 24 * MS;
    turn.ranks = 2; // who waited for whom?
    CHECK_INT(judge(turn).machine_ns, -1);
    CHECK_INT(judge(turn).wait_ns, 8 * MS);
}

TEST(run_time_by_cpu)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(1, &cpus);
    const char *schedstat =
            "version 17\ntimestamp 4295\ncpu0 0 0 0 0 0 0 100 7 3\ndomain0 MC 3 1 2 3 4 5 6 7 8 9\n"
            "cpu1 1 0 2 0 3 4 2000 8 9\ndomain0 MC 3 1 2 3\ncpu10 0 0 0 0 0 0 50000 1 1\n";
    CHECK_INT(machine_parse_percpu("100 2000 30 \n", &cpus), 2000);
    CHECK_INT(machine_parse_schedstat(schedstat, &cpus), 2000);
    CPU_SET(0, &cpus);
    CHECK_INT(machine_parse_percpu("100 2000 30 \n", &cpus), 2100);
    CHECK_INT(machine_parse_schedstat(schedstat, &cpus), 2100);
    CPU_SET(7, &cpus); // not there: a part of the sum would be a lie
    CHECK_INT(machine_parse_percpu("100 2000 30 \n", &cpus), -1);
    CHECK_INT(machine_parse_schedstat(schedstat, &cpus), -1);
    CHECK_INT(machine_parse_percpu("", &cpus), -1);
    CHECK_INT(machine_parse_schedstat("", &cpus), -1);
}

static void busy_until(int64_t at_ns)
{
    while (clock_monotonic_ns() < at_ns) {
    }
}

static void steps_of_20_ms(void *arg)
{
    sched_setaffinity(0, sizeof(cpu_set_t), arg);
    for (int i = 0; i < 3; i++) {
        ug_step_begin();
        busy_until(clock_monotonic_ns() + 20 * MS);
        ug_step_end(1);
    }
}

static int64_t cpu_of(pid_t pid)
{
    clockid_t clock;
    struct timespec time = {0};
    CHECK_INT(clock_getcpuclockid(pid, &clock), 0);
    clock_gettime(clock, &time);
    return time.tv_sec * 1000 * MS + time.tv_nsec;
}

// A competitor on the same CPU takes about half of it: that is wait of the step thread, and CPU
// time of others.
TEST(a_real_competitor)
{
    struct rig rig = rig_make(NULL);
    cpu_set_t allowed, cpus;
    struct machine_turn turn = MACHINE_NOT_TOLD;
    sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&cpus);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&cpus); cpu++)
        if (CPU_ISSET(cpu, &allowed))
            CPU_SET(cpu, &cpus);
    struct machine *machine = machine_new(&cpus);
    pid_t child = rig_fork(steps_of_20_ms, &cpus), rival = fork();
    if (rival == 0) {
        alarm(300);
        sched_setaffinity(0, sizeof cpus, &cpus);
        for (;;) {
        }
    }
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    // until it spins
    for (int64_t late_ns = rig_deadline(60);
            cpu_of(rival) < 10 * MS && clock_monotonic_ns() < late_ns;)
        clock_sleep_until_ns(clock_monotonic_ns() + MS);
    CHECK(!machine_begin(machine, rig.reader, cpu_of(child), &turn)); // nothing before it
    int64_t resumed_ns = clock_monotonic_ns();
    reader_grant(rig.reader, 2);
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    int64_t arrived_ns = clock_monotonic_ns();
    machine_end(machine, rig.reader, resumed_ns);
    CHECK(machine_begin(machine, rig.reader, cpu_of(child), &turn));
    kill(rival, SIGKILL);
    waitpid(rival, NULL, 0);
    printf("    wall %.1f ms, ran %.1f, waited %.1f, others %.1f\n",
            (double)(arrived_ns - resumed_ns) / 1e6, (double)turn.step_cpu_ns / 1e6,
            (double)turn.wait_ns / 1e6, (double)turn.foreign_ns / 1e6);
    CHECK(turn.wait_ns > 4 * MS && turn.wait_ns <= arrived_ns - resumed_ns);
    // two ticks
    CHECK(turn.step_cpu_ns > 0 &&
            turn.step_cpu_ns + turn.wait_ns <= arrived_ns - resumed_ns + 8 * MS);
    CHECK(turn.foreign_ns == -1 || turn.foreign_ns >= turn.wait_ns - 8 * MS);
    CHECK_INT(turn.rest_ns, -1); // it left its CPU: what is not accounted for is no proof of steal
    reader_open_gate(rig.reader);
    rig_join(child);
    machine_free(machine);
    rig_free(&rig);
}
