// SPDX-License-Identifier: Apache-2.0
// The sentences of what reports/analyse/stalls/reasons.h enumerates, and what to do about a cause.
// Pure functions.
#include <stdlib.h>
#include <string.h>

#include "reports/render/stalls/stalls_text.h"

char *stalls_text_doubts(const struct stall *stall)
{
    static const char *const texts[STALL_DOUBT_BITS] = {
            "the lock was held by readers, of which only one is known",
            "who held it was not recorded",
            "the owner that was recorded is another task",
            "what the holder did was not seen",
            "the culprit is concluded from the timing",
            "the wait lies across the edge of the recording",
            "several programs had their share",
            "what the GPU did meanwhile was not recorded",
            "no samples were taken",
            "what it did meanwhile was not seen",
            "events were lost while recording",
    };
    struct strbuf out = {0};
    for (int bit = 0; bit < STALL_DOUBT_BITS; bit++)
        if (stall->doubts >> bit & 1)
            strbuf_add(&out, "%s%s", out.len ? "; " : "", texts[bit]);
    return out.len ? strbuf_take(&out) : NULL;
}

char *stalls_text_sure(const struct stall *stall)
{
    char *doubts = stalls_text_doubts(stall);
    char *text = xasprintf("%s%s%s", stalls_text_confidence(stall->confidence, NUMBERS_BUFFER),
            doubts ? ": " : "", doubts ? doubts : "");
    free(doubts);
    return text;
}

const char *stalls_text_meanwhile(const struct stall *stall)
{
    switch (stall->meanwhile) {
    case STALL_MEANWHILE_IDLE:
        return "only the time counts in which that has nothing to do for it";
    case STALL_MEANWHILE_PARTLY:
        return "what it does meanwhile was recorded of some of the time only";
    case STALL_MEANWHILE_UNKNOWN:
        return "what it does meanwhile was not recorded";
    default:
        return NULL;
    }
}

static char *reasons_cpu(int cpu)
{
    return cpu < 0 ? xstrdup("CPU") : xasprintf("CPU %d", cpu);
}

static char *reasons_lock(const char *lock, uint64_t address)
{
    return address ? xasprintf("%s 0x%llx", lock, (unsigned long long)address)
                   : xasprintf("a %s", lock);
}

char *stalls_text_resource(const struct stall_resource *resource)
{
    switch (resource->kind) {
    case STALL_RESOURCE_NAMED:
        return xstrdup(resource->name);
    case STALL_RESOURCE_MMAP_LOCK:
        return xasprintf("mmap_lock of pid %d", (int)resource->pid);
    case STALL_RESOURCE_KERNEL_LOCK:
        return reasons_lock("kernel lock", resource->address);
    case STALL_RESOURCE_MUTEX:
        return reasons_lock("mutex", resource->address);
    case STALL_RESOURCE_GIL:
        return xstrdup("GIL");
    case STALL_RESOURCE_CPU:
        return reasons_cpu(resource->cpu);
    case STALL_RESOURCE_CPU_TIME:
        return xasprintf("CPU time, most of it to %s (pid %d)", resource->name, (int)resource->pid);
    case STALL_RESOURCE_CGROUPS:
        return xasprintf("%lld memory cgroups, %lld directories", (long long)resource->cgroups,
                (long long)resource->directories);
    default:
        return NULL;
    }
}

char *stalls_text_via(const struct stall_link *link)
{
    static const char *const texts[] = {
            [VIA_NONE] = "woken by",
            [VIA_MMAP_LOCK] = "mmap_lock",
            [VIA_KERNEL_LOCK] = "kernel lock",
            [VIA_WAKE] = "woken by",
            [VIA_PIPE] = "pipe",
            [VIA_SOCKET] = "socket",
            [VIA_FUTEX] = "woken by futex",
            [VIA_MUTEX] = "mutex",
            [VIA_GIL] = "GIL",
            [VIA_CPU] = "CPU",
            [VIA_SIGNAL] = "signal",
            [VIA_FREEZER] = "cgroup freezer",
            [VIA_PTRACE] = "ptrace",
            [VIA_CHILD] = "waits for child",
            [VIA_FILE] = "file",
            [VIA_MEMORY] = "memory",
            [VIA_CAUSE] = "cause",
            [VIA_COLLECTIVE] = "collective",
            [VIA_MESSAGE] = "message",
    };
    return link->via == VIA_CPU ? reasons_cpu(link->cpu)
                                : xstrdup(link->name ? link->name : texts[link->via]);
}

// ---- what to do ----

// "`python3 agent.py` (pid 4188)", "thread 4127 (worker) of the program itself", "whoever does it"
static char *reasons_who(const struct stall *stall)
{
    const struct stall_task *task = &stall->culprit;
    const char *name = task->cmdline && *task->cmdline ? task->cmdline : task->process_comm;
    if (!task->known)
        return xstrdup(
                strcmp(stall->cause, "cpu_contention") == 0 ? "the neighbours" : "whoever does it");
    if (stall->culprit_own)
        return xasprintf("thread %d (%s) of the program itself", (int)task->tid,
                task->comm ? task->comm : "?");
    return xasprintf("`%.200s` (pid %d)", name ? name : "?", (int)task->pid);
}

static char *reasons_advise(const struct stall *stall, const char *who)
{
    const struct stall_cause *cause = stall_cause_of(stall->cause);
    struct strbuf out = {0};
    if (!cause)
        return NULL;
    strbuf_add(&out, cause->advice, who);
    if (strcmp(stall->cause, "smaps_read") == 0 && stall->has_period)
        strbuf_add(&out, " (now every %.0f ms)", (double)stall->period_ns / 1e6);
    return strbuf_take(&out);
}

char *stalls_text_advice_full(const struct stall *stall)
{
    if (stall->advice)
        return xstrdup(stall->advice);
    char *who = reasons_who(stall), *text = reasons_advise(stall, who);
    free(who);
    return text;
}

char *stalls_text_advice(const struct stall *stall)
{
    const struct stall_task *task = &stall->culprit;
    if (stall->advice || !task->known || stall->culprit_own || !task->cmdline || !*task->cmdline)
        return stalls_text_advice_full(stall);
    char *who = stalls_text_task(task, STALLS_NAME_PROGRAM), *text = reasons_advise(stall, who);
    free(who);
    return text;
}
