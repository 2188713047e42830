// SPDX-License-Identifier: Apache-2.0
// Who the processes of slots are to us: their numbers, and their clocks, where they are in
// namespaces of their own. Each is found out once.
#include <errno.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/proc.h"
#include "harness/steps/reader.h"
#include "harness/steps/reader_internal.h"

pid_t reader_slot_pid(const struct reader *reader, const struct ug_step_slot *slot)
{
    struct reader_outside *outside = &reader->outside[slot - reader->slots];
    uint32_t pid = slot->pid;

    if (slot->pid_namespace == reader->pid_namespace) {
        return (pid_t)pid;
    }
    if (outside->pid != pid) {
        outside->pid = pid;
        outside->outer_pid = proc_outer_pid((pid_t)pid, slot->pid_namespace);
        outside->tid = 0;
    }
    return outside->outer_pid;
}

pid_t reader_slot_tid(const struct reader *reader, const struct ug_step_slot *slot)
{
    struct reader_outside *outside = &reader->outside[slot - reader->slots];
    uint32_t tid = __atomic_load_n(&slot->hold_tid, __ATOMIC_RELAXED);

    if (slot->pid_namespace == reader->pid_namespace || tid == 0) {
        return (pid_t)tid;
    }
    if (reader_slot_pid(reader, slot) < 0) {
        return 0;
    }
    if (outside->tid != tid) {
        outside->tid = tid;
        outside->outer_tid = proc_outer_tid(outside->outer_pid, (pid_t)tid);
    }
    return outside->outer_tid < 0 ? 0 : outside->outer_tid;
}

// What another process of that namespace has told: the one that is asked for may have ended.
static const struct reader_clock *find_clock(const struct reader *reader, uint64_t inode)
{
    for (uint32_t i = 0; i < reader->plan.slot_count; i++) {
        const struct reader_clock *clock = &reader->outside[i].clock;

        if (clock->looked && clock->code == 0 && clock->inode == inode) {
            return clock;
        }
    }
    return NULL;
}

static struct reader_clock look_at_clock(
        const struct reader *reader, const struct ug_step_slot *slot, uint64_t inode)
{
    struct reader_clock clock = {.looked = true, .inode = inode, .code = -ESRCH};
    const struct reader_clock *known;
    char dir[32];
    uint64_t found;
    pid_t pid;

    if (clock_knows(inode, &clock.ahead)) {
        clock.code = 0;
        return clock;
    }
    pid = reader_slot_pid(reader, slot);
    if (pid > 0) {
        snprintf(dir, sizeof(dir), "/proc/%d", (int)pid);
        clock.code = clock_compare(dir, &found, &clock.ahead);
        if (clock.code == 0 && inode != 0 && found != inode) {
            clock.code = -ESRCH; // the number is another one's by now, or it another program
        }
    }
    if (clock.code != 0 && inode == 0) {
        clock.code = 0; // an older writer does not say; it has ours, as nearly all have
        clock.ahead = (struct time_offsets){0};
    }
    known = clock.code != 0 ? find_clock(reader, inode) : NULL;
    if (known != NULL) {
        clock = *known;
    }
    return clock;
}

const struct reader_clock *reader_slot_clock(
        const struct reader *reader, const struct ug_step_slot *slot)
{
    struct reader_clock *clock = &reader->outside[slot - reader->slots].clock;
    uint64_t inode = slot->time_namespace;

    if (!clock->looked || clock->inode != inode) {
        *clock = look_at_clock(reader, slot, inode);
    }
    return clock;
}

uint64_t reader_our_time(const struct reader_clock *clock, uint64_t ns)
{
    return ns == 0 || clock->code != 0 ? 0 : ns - (uint64_t)clock->ahead.monotonic_ns;
}
