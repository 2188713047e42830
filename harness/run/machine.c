// SPDX-License-Identifier: Apache-2.0
// Readings of the scheduler around the turns of a side. Reads /proc/PID/task/TID/schedstat of the
// threads that make the steps, and how long any task ran on the side's CPUs. A turn takes two
// readings, of 0.6 us a thread and 0.7 us for the CPUs (Linux 6.18); the files stay open, for
// opening one costs more than reading it.
//
// What is excused is a lower bound. A thread that is ready and has no CPU waits behind somebody who
// runs there: a sibling of its own tree, for no longer than all of those ran, or somebody else, for
// no longer than all of those ran. So a candidate whose helper threads push its step thread off the
// CPU gets nothing for it.
#include "harness/run/machine.h"

#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"

enum {
    MACHINE_RANKS_MAX = 64, // of one launch; of more nothing is told
    MACHINE_TEXT_BYTES = 65536,
    // /proc/schedstat has a line for every domain of every CPU: where a reading of it takes longer,
    // turns would cost more than it tells. 2 CPUs: some 10 us.
    MACHINE_READ_NS_MAX = 20000,
    // A frozen thread that is thawed is switched in once. More: it was preempted, or slept and woke
    // up.
    MACHINE_RUNS_UNDISTURBED = 1
};

struct machine_rank { // of the thread that stands at the gate; tid 0 = not told
    uint32_t tid;
    int64_t cpu_ns, wait_ns, runs;
};

struct machine_reading {
    uint32_t ranks_count; // 0 = not told
    struct machine_rank ranks[MACHINE_RANKS_MAX];
    int64_t cpu_ns, busy_ns;
};

struct machine {
    cpu_set_t cpus;
    int busy_fd; // -1 = this machine does not tell
    int64_t (*busy_parse)(const char *text, const cpu_set_t *cpus);
    char *text; // MACHINE_TEXT_BYTES
    struct {
        uint32_t tid;
        int fd;
    } files[MACHINE_RANKS_MAX];
    struct machine_reading before, after;
    int64_t resumed_ns, arrived_ns[MACHINE_RANKS_MAX];
    bool has_before, has_after;
};

int64_t machine_parse_percpu(const char *text, const cpu_set_t *cpus)
{
    int64_t sum = 0;
    int found = 0;
    const char *at = text;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char *end;
        int64_t ns = strtoll(at, &end, 10);
        if (end == at)
            break;
        at = end;
        sum += CPU_ISSET(cpu, cpus) ? ns : 0;
        found += CPU_ISSET(cpu, cpus) != 0;
    }
    return found == CPU_COUNT(cpus) && found ? sum : -1;
}

int64_t machine_parse_schedstat(const char *text, const cpu_set_t *cpus)
{
    int64_t sum = 0;
    int found = 0;
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        int cpu;
        long long run_ns; // the seventh of the numbers
        if (sscanf(line, "cpu%d %*u %*u %*u %*u %*u %*u %lld", &cpu, &run_ns) != 2 || cpu < 0 ||
                cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, cpus))
            continue;
        sum += run_ns;
        found++;
    }
    return found == CPU_COUNT(cpus) && found ? sum : -1;
}

// The files of a container's own cpuacct group look the same and count its own tasks only:
// release_agent exists in the root of a hierarchy alone.
static int machine_open_cpuacct(void)
{
    FILE *mounts = setmntent("/proc/self/mounts", "r");
    struct mntent *entry;
    int fd = -1;
    while (mounts && fd < 0 && (entry = getmntent(mounts))) {
        if (strcmp(entry->mnt_type, "cgroup") != 0 || !hasmntopt(entry, "cpuacct"))
            continue;
        char *root = xasprintf("%s/release_agent", entry->mnt_dir);
        char *usage = xasprintf("%s/cpuacct.usage_percpu", entry->mnt_dir);
        fd = access(root, F_OK) == 0 ? open(usage, O_RDONLY | O_CLOEXEC) : -1;
        free(root);
        free(usage);
    }
    if (mounts)
        endmntent(mounts);
    return fd;
}

static const char *machine_read_file(struct machine *machine, int fd)
{
    ssize_t got = pread(fd, machine->text, MACHINE_TEXT_BYTES - 1, 0);
    machine->text[got > 0 ? got : 0] = 0;
    return machine->text;
}

static void machine_find_busy(struct machine *machine)
{
    machine->busy_parse = machine_parse_percpu;
    machine->busy_fd = machine_open_cpuacct();
    if (machine->busy_fd >= 0)
        return;
    machine->busy_parse = machine_parse_schedstat;
    machine->busy_fd = open("/proc/schedstat", O_RDONLY | O_CLOEXEC);
    if (machine->busy_fd < 0)
        return;
    int64_t begin = clock_monotonic_ns();
    machine_read_file(machine, machine->busy_fd);
    if (clock_monotonic_ns() - begin <= MACHINE_READ_NS_MAX)
        return;
    close(machine->busy_fd);
    machine->busy_fd = -1;
}

struct machine *machine_new(const cpu_set_t *cpus)
{
    struct machine *machine = xcalloc(1, sizeof *machine);
    machine->cpus = *cpus;
    machine->text = xcalloc(1, MACHINE_TEXT_BYTES);
    for (int i = 0; i < MACHINE_RANKS_MAX; i++)
        machine->files[i].fd = -1;
    machine_find_busy(machine);
    return machine;
}

void machine_free(struct machine *machine)
{
    if (!machine)
        return;
    for (int i = 0; i < MACHINE_RANKS_MAX; i++)
        if (machine->files[i].fd >= 0)
            close(machine->files[i].fd);
    if (machine->busy_fd >= 0)
        close(machine->busy_fd);
    free(machine->text);
    free(machine);
}

static struct machine_rank machine_read_rank(
        struct machine *machine, uint32_t idx, const struct reader_slot *slot)
{
    if (!slot->hold_tid)
        return (struct machine_rank){0};
    if (machine->files[idx].tid != slot->hold_tid) {
        char path[64];
        if (machine->files[idx].fd >= 0)
            close(machine->files[idx].fd);
        snprintf(path, sizeof path, "/proc/%u/task/%u/schedstat", slot->pid, slot->hold_tid);
        machine->files[idx].fd = open(path, O_RDONLY | O_CLOEXEC);
        machine->files[idx].tid = slot->hold_tid;
    }
    char text[96], *at = text; // "CPU time, wait, runs"
    ssize_t got = machine->files[idx].fd < 0
            ? -1
            : pread(machine->files[idx].fd, text, sizeof text - 1, 0);
    if (got <= 0)
        return (struct machine_rank){0}; // it has ended, or this kernel does not tell
    text[got] = 0;
    int64_t cpu_ns = strtoll(at, &at, 10), wait_ns = strtoll(at, &at, 10);
    return (struct machine_rank){slot->hold_tid, cpu_ns, wait_ns, strtoll(at, NULL, 10)};
}

// Everything at one moment. ret_arrived_ns (NULL ok): when each rank arrived.
static struct machine_reading machine_read(struct machine *machine, const struct reader *reader,
        int64_t cpu_ns, int64_t *ret_arrived_ns)
{
    struct machine_reading reading = {.cpu_ns = cpu_ns, .busy_ns = -1};
    uint32_t count = reader_slot_count(reader);
    for (uint32_t i = 0; i < count && count <= MACHINE_RANKS_MAX; i++) {
        struct reader_slot slot = {0};
        reader_slot(reader, i, &slot);
        reading.ranks[reading.ranks_count++] = machine_read_rank(machine, i, &slot);
        if (ret_arrived_ns)
            ret_arrived_ns[i] = (int64_t)slot.hold_begin_ns;
    }
    if (machine->busy_fd >= 0)
        reading.busy_ns =
                machine->busy_parse(machine_read_file(machine, machine->busy_fd), &machine->cpus);
    return reading;
}

// The turn between `before` and `after`; `now` tells what had not come to rest at its end.
static struct machine_turn machine_complete(
        const struct machine *machine, const struct machine_reading *now)
{
    const struct machine_reading *before = &machine->before, *after = &machine->after;
    struct machine_turn turn = {machine->resumed_ns, before->ranks_count, -1, 0, -1, -1, -1};
    int64_t most = -1;
    if (before->cpu_ns >= 0 && now->cpu_ns >= before->cpu_ns)
        turn.cpu_ns = now->cpu_ns - before->cpu_ns;
    if (before->busy_ns >= 0 && after->busy_ns >= 0 && turn.cpu_ns >= 0) {
        int64_t foreign = after->busy_ns - before->busy_ns - turn.cpu_ns;
        // what the side did after its arrival is in cpu_ns alone
        turn.foreign_ns = foreign > 0 ? foreign : 0;
    }
    for (uint32_t i = 0; i < before->ranks_count; i++) {
        const struct machine_rank *a = &before->ranks[i], *b = &after->ranks[i],
                                  *c = &now->ranks[i];
        if (!a->tid || b->tid != a->tid || c->tid != a->tid ||
                after->ranks_count != before->ranks_count ||
                now->ranks_count != before->ranks_count) {
            turn.wait_ns = turn.rest_ns = turn.step_cpu_ns = -1;
            return turn;
        }
        int64_t wait = b->wait_ns - a->wait_ns, cpu = c->cpu_ns - a->cpu_ns;
        int64_t rest = machine->arrived_ns[i] - machine->resumed_ns - wait - cpu;
        bool slept = b->runs - a->runs > MACHINE_RUNS_UNDISTURBED;
        turn.step_cpu_ns += cpu;
        rest = slept ? -1 : rest > 0 ? rest : 0;
        if (wait + (rest > 0 ? rest : 0) > most) {
            most = wait + (rest > 0 ? rest : 0);
            turn.wait_ns = wait;
            turn.rest_ns = rest;
        }
    }
    if (!before->ranks_count)
        turn.step_cpu_ns = -1;
    return turn;
}

bool machine_begin(struct machine *machine, const struct reader *reader, int64_t cpu_ns,
        struct machine_turn *ret_turn)
{
    struct machine_reading now = machine_read(machine, reader, cpu_ns, NULL);
    bool had = machine->has_before && machine->has_after;
    if (had)
        *ret_turn = machine_complete(machine, &now);
    machine->before = now;
    machine->has_before = true;
    machine->has_after = false;
    return had;
}

void machine_end(struct machine *machine, const struct reader *reader, int64_t resumed_ns)
{
    machine->after = machine_read(machine, reader, -1, machine->arrived_ns);
    machine->resumed_ns = resumed_ns;
    machine->has_after = true;
}

static int64_t machine_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void machine_judge(const struct machine_turn *turn, int64_t begin_ns, int64_t active_ns,
        struct machine_share *ret_share)
{
    *ret_share = (struct machine_share){-1, -1, -1};
    if (turn->wait_ns < 0)
        return;
    // Between the thaw and the first step it waits for us: that is no part of the block.
    int64_t early = begin_ns > turn->resumed_ns ? begin_ns - turn->resumed_ns : 0;
    int64_t wait = turn->wait_ns > early ? turn->wait_ns - early : 0;
    // It may lose its CPU between the moment it stamps as its arrival and the arrival itself, too:
    // a thread does not wait while it runs.
    int64_t room =
            turn->ranks == 1 && turn->step_cpu_ns > 0 ? active_ns - turn->step_cpu_ns : active_ns;
    ret_share->wait_ns = machine_min(wait, room > 0 ? room : 0);
    ret_share->steal_ns = machine_min(turn->rest_ns > 0 ? turn->rest_ns : 0, active_ns);
    // Nothing is known of its helpers; or ranks wait for each other: what a block of theirs lost
    // lies between the longest wait and the sum of all, and with the longest taken out the spread
    // of pairs was larger, not smaller.
    if (turn->cpu_ns < 0 || turn->step_cpu_ns < 0 || turn->ranks > 1)
        return;
    int64_t helpers = turn->cpu_ns > turn->step_cpu_ns ? turn->cpu_ns - turn->step_cpu_ns : 0;
    int64_t behind_others = ret_share->wait_ns > helpers ? ret_share->wait_ns - helpers : 0;
    if (turn->foreign_ns >= 0)
        behind_others = machine_min(behind_others, turn->foreign_ns);
    ret_share->machine_ns = machine_min(behind_others + ret_share->steal_ns, active_ns);
}
