// SPDX-License-Identifier: Apache-2.0
// The sources of the capture by name: what each tells, which programs it consists of, what is lost
// without it. `upgate doctor` shows the table as it is on this machine: everything is loaded and
// attached for an empty target, and taken off again.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/capture_inside.h"
#include "common/descriptors.h"
#include "common/strings.h"

const struct source sources[SOURCE_COUNT] = {
        [SOURCE_SCHED] = {"scheduler", "when and where each thread waited, and who woke it",
                "nothing can be recorded", {"task_switch", "task_waking"}},
        [SOURCE_TASKS] = {"tasks", "births, execs and deaths; threads born later are followed",
                "threads born later are missed, short-lived processes have no name",
                {"task_fork", "task_exec", "task_exit", "task_name"}},
        [SOURCE_LOOK] = {"look", "what the target waits for when recording begins",
                "threads that exist already cannot be found", {"each_task"}},
        [SOURCE_LOCKS] = {"locks", "which kernel lock a thread waits for, and who holds it",
                "the holder of a kernel lock is guessed from wakers only",
                {"lock_begin", "lock_end"}},
        [SOURCE_OWNERS] = {"owners", "names and stacks of those who hold locks",
                "holders of futexes are not named, those of kernel locks without their stack",
                {NULL}},
        [SOURCE_SAMPLES] = {"samples",
                "what runs on a CPU: in the target, in holders of locks, in neighbours",
                "stalls on the CPU (garbage collection, page tables) are not seen",
                {"sample_tick"}},
        [SOURCE_FAULTS] = {"page faults", "which code touched memory first",
                "`upgate diff` tells where memory is, not which code touched it", {"fault_tick"}},
        [SOURCE_STACKS] = {"stacks",
                "native stacks of code without frame pointers, and Python's at their moment",
                "stacks of such code, most libraries, end early, and Python's are read from outside, later",
                {NULL}},
        [SOURCE_CONTEXT] = {"context", "whether a thread was woken by an interrupt",
                "interrupts are told from processes by the waker's stack only", {NULL}},
        [SOURCE_MAPPINGS] = {"mappings", "which file was mapped where, and when",
                "code of libraries loaded or replaced while it records may have no name, or a wrong one",
                {NULL}},
        [SOURCE_SIGNALS] = {"signals", "who stops a process by a signal",
                "who sent SIGSTOP is told from wakers only", {"fact_signal"}},
        [SOURCE_RECLAIM] = {"reclaim", "time in memory reclaim, of the machine and of cgroups",
                "reclaim is told from stacks only",
                {"fact_reclaim_begin", "fact_reclaim_end", "fact_memcg_begin", "fact_memcg_end",
                        "fact_reclaim_throttled"}},
        [SOURCE_COMPACTION] = {"compaction", "who compacts memory",
                "compaction is told from stacks only",
                {"fact_compaction_begin", "fact_compaction_end"}},
        [SOURCE_MIGRATION] = {"migration", "page migration and huge page collapse",
                "migration and collapse are told from stacks only",
                {"fact_migrate", "fact_collapse"}},
        [SOURCE_WRITEBACK] = {"writeback", "pauses of writers by the kernel",
                "dirty throttling is told from stacks only", {"fact_dirty_pause"}},
        [SOURCE_INTERRUPTS] = {"interrupts", "interrupts that keep a CPU for 1 ms or more",
                "long interrupts are told from samples only",
                {"fact_softirq_begin", "fact_softirq_end", "fact_irq_begin", "fact_irq_end"}},
        [SOURCE_OOM] = {"oom", "victims of the out-of-memory killer",
                "a victim looks like any killed process", {"fact_oom_victim"}},
        [SOURCE_NUMA] = {"numa", "NUMA balancing that moves threads",
                "NUMA balancing is told from samples only", {"fact_move_numa", "fact_swap_numa"}},
        [SOURCE_FREEZER] = {"freezer", "who freezes a cgroup",
                "who froze it is told from wakers only", {"fact_freeze", "fact_unfreeze"}},
        [SOURCE_NETWORK] = {"network", "TCP retransmissions",
                "a lossy network looks like a slow peer", {"fact_retransmit"}},
        [SOURCE_RSTAT] = {"rstat", "fights for the lock of cgroup statistics",
                "they are told from samples only", {"fact_rstat"}},
        [SOURCE_JOURNAL] = {"journal", "commits of the file system's journal",
                "the journal is told from stacks only", {"fact_journal"}},
};

enum source_id source_of_program(const char *program)
{
    for (int id = 0; id < SOURCE_COUNT; id++)
        for (size_t i = 0; i < 8 && sources[id].programs[i]; i++)
            if (!strcmp(sources[id].programs[i], program))
                return id;
    return SOURCE_COUNT;
}

void capture_lack(struct capture *capture, enum source_id id, const char *fmt, ...)
{
    char why[300];
    va_list args;

    capture->lost[id] = true;
    if (capture->missing_count == CAPTURE_MISSING_MAX)
        return;
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    capture->missing[capture->missing_count++] =
            xasprintf("%s: %s; %s", sources[id].name, why, sources[id].lost);
}

void capture_say(struct capture *capture, const char *sentence)
{
    if (capture->missing_count < CAPTURE_MISSING_MAX)
        capture->missing[capture->missing_count++] = xstrdup(sentence);
}

void capture_forget_missing(struct capture *capture)
{
    while (capture->missing_count)
        free(capture->missing[--capture->missing_count]);
    memset(capture->lost, 0, sizeof(capture->lost));
}

static void ignore_event(void *context, const struct ug_head *event)
{
    (void)context;
    (void)event;
}

// The sentence of a source without its name.
static void copy_why(struct capture_source *source, const struct capture *capture)
{
    size_t length = strlen(source->name);

    for (size_t i = 0; i < capture->missing_count; i++)
        if (!strncmp(capture->missing[i], source->name, length) &&
                capture->missing[i][length] == ':') {
            snprintf(source->why, sizeof(source->why), "%s", capture->missing[i] + length + 2);
            return;
        }
}

static void ignore_mapping(void *context, const struct mapping_event *event)
{
    (void)context;
    (void)event;
}

size_t capture_sources(struct capture_source *ret_sources, size_t max)
{
    struct capture_opts opts = {.threshold_ns = INT64_MAX / 2,
            .sample_hz = 1,
            .faults = true,
            .ring_bytes = 65536,
            .on_mapping = ignore_mapping};
    struct capture *capture = NULL;
    struct error err = {0};
    int status;
    size_t count = 0;

    descriptors_raise(); // as a recorder does
    status = capture_open(&opts, ignore_event, NULL, &capture, &err);

    for (int id = 0; id < SOURCE_COUNT && count < max; id++) {
        struct capture_source *source = &ret_sources[count++];

        *source = (struct capture_source){.name = sources[id].name, .gives = sources[id].gives};
        if (status) {
            snprintf(source->why, sizeof(source->why), "%s", err.text);
            continue;
        }
        source->works = !capture->lost[id];
        if (!source->works)
            copy_why(source, capture);
    }
    capture_close(capture);
    return count;
}
