// SPDX-License-Identifier: Apache-2.0
// Clocks in nanoseconds. The state is how far those of this process are from the machine's: found
// once, and again in a fork, which may be in another time namespace than its parent.
#include "common/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

static struct {
    struct time_offsets taken_off; // by the clocks below
    bool follows;
    // Of this process; code 0: they are known.
    int code;
    uint64_t inode;
    struct time_offsets own;
} clock_state;
static pthread_once_t clock_found = PTHREAD_ONCE_INIT;

// Where nothing of our own namespace can be seen (a policy forbids it, a container covers /proc),
// our clock is taken for the machine's, as nearly all are: it must cost nobody a recording.
static void clock_find(void)
{
    clock_state.code = time_offsets_of("/proc/self", &clock_state.inode, &clock_state.own);
    if (clock_state.code && !clock_state.inode) {
        clock_state.code = 0;
        clock_state.own = (struct time_offsets){0};
    }
    if (clock_state.follows)
        clock_state.taken_off = clock_state.own;
}

static void clock_forked(void)
{
    uint64_t inode;
    struct time_offsets own;
    if (time_offsets_of("/proc/self", &inode, &own) == 0 && inode && inode != clock_state.inode)
        clock_find();
}

static void clock_begin(void)
{
    clock_find();
    pthread_atfork(NULL, NULL, clock_forked);
}

void clock_follow_machine(void)
{
    pthread_once(&clock_found, clock_begin);
    clock_state.follows = true;
    clock_state.taken_off = clock_state.own;
}

static int64_t clock_read_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t clock_monotonic_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC) - clock_state.taken_off.monotonic_ns;
}

int64_t clock_wall_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

int64_t clock_boottime_ns(void)
{
    return clock_read_ns(CLOCK_BOOTTIME) - clock_state.taken_off.boottime_ns;
}

void clock_sleep_until_ns(int64_t monotonic_ns)
{
    int64_t own_ns = monotonic_ns + clock_state.taken_off.monotonic_ns;
    struct timespec ts = {.tv_sec = own_ns / 1000000000, .tv_nsec = own_ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, 0);
}

int clock_machine_code(void)
{
    return clock_state.follows ? clock_state.code : 0;
}

static struct time_offsets clock_ahead(const struct time_offsets *of_machine)
{
    static const struct time_offsets machine;
    const struct time_offsets *ours = clock_state.follows ? &machine : &clock_state.own;
    return (struct time_offsets){of_machine->monotonic_ns - ours->monotonic_ns,
            of_machine->boottime_ns - ours->boottime_ns};
}

bool clock_knows(uint64_t inode, struct time_offsets *ret_ahead)
{
    static const struct time_offsets machine;
    pthread_once(&clock_found, clock_begin);
    if (inode == clock_state.inode) // not known, it is taken off nowhere
        *ret_ahead = clock_ahead(&clock_state.own);
    else if (inode == TIME_NAMESPACE_FIRST && !clock_state.code)
        *ret_ahead = clock_ahead(&machine);
    else
        return false;
    return true;
}

int clock_compare(const char *dir, uint64_t *ret_inode, struct time_offsets *ret_ahead)
{
    struct time_offsets other;
    int code = time_offsets_of(dir, ret_inode, &other);
    if (*ret_inode && clock_knows(*ret_inode, ret_ahead))
        return 0;
    pthread_once(&clock_found, clock_begin);
    code = code ? code : clock_state.code;
    if (code == 0)
        *ret_ahead = clock_ahead(&other);
    return code;
}

uint64_t clock_namespace(void)
{
    pthread_once(&clock_found, clock_begin);
    bool machine = clock_state.follows && !clock_state.code && clock_state.inode;
    return machine ? TIME_NAMESPACE_FIRST : clock_state.inode;
}

int64_t clock_boottime_ahead_ns(void)
{
    return clock_state.taken_off.boottime_ns;
}
