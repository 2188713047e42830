// SPDX-License-Identifier: Apache-2.0
// The sentences of what reports/analyse/stalls/reasons.h enumerates, and what to do about a cause.
// Pure functions.
#include <stdlib.h>
#include <string.h>

#include "reports/render/causes/cause_text.h"
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

// "3045 memory cgroups, 45 directories"; how many directories is not always counted.
static char *reasons_cgroups(const struct stall_resource *resource)
{
    const long long cgroups = resource->cgroups, directories = resource->directories;
    struct strbuf out = {0};
    strbuf_add(&out, "%lld memory cgroup%s", cgroups, cgroups == 1 ? "" : "s");
    if (directories >= 0)
        strbuf_add(&out, ", %lld director%s", directories, directories == 1 ? "y" : "ies");
    return strbuf_take(&out);
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
        return reasons_cgroups(resource);
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

static char *reasons_missing_ranks(const struct stall_missing *missing)
{
    bool one = missing->count == 1;
    struct strbuf out = {0};
    strbuf_add(&out, "rank%s ", one ? "" : "s");
    for (size_t i = 0; i < missing->count && i < STALL_MISSING_RANKS_MAX; i++)
        strbuf_add(&out, "%s%d", i ? ", " : "", (int)missing->ranks[i]);
    if (missing->count > STALL_MISSING_RANKS_MAX)
        strbuf_add(&out, " and %zu more", missing->count - STALL_MISSING_RANKS_MAX);
    strbuf_add(&out, " of %zu %s not recorded: whether the others wait for %s cannot be told",
            missing->of, one ? "was" : "were", one ? "it" : "them");
    return strbuf_take(&out);
}

char *stalls_text_missing(const struct stall_missing *missing)
{
    switch (missing->kind) {
    case STALL_MISSING_RANKS:
        return reasons_missing_ranks(missing);
    case STALL_MISSING_CLOCKS:
        return xasprintf(
                "the clocks of %zu of %zu nodes were not synchronised: their ranks are compared with those of their own "
                "node only; chrony, ntpd or PTP on all nodes makes them comparable",
                missing->count, missing->of);
    case STALL_MISSING_GPUS:
        return xstrdup(
                "records of what the GPUs did were lost: waits for them are told as if none of it was recorded");
    default:
        return xstrdup(missing->text);
    }
}

// ---- what to do ----

// "`python3 agent.py` (pid 4188)", "whoever does it"
static char *reasons_program(const struct stall_task *task)
{
    const char *name = task->cmdline && *task->cmdline ? task->cmdline : task->process_comm;
    return task->known ? xasprintf("`%.200s` (pid %d)", name ? name : "?", (int)task->pid)
                       : xstrdup("whoever does it");
}

// The same, or "thread 4127 (worker) of the program itself", "the neighbours".
static char *reasons_who(const struct stall *stall)
{
    const struct stall_task *task = &stall->culprit;
    if (!task->known && strcmp(stall->cause, "cpu_contention") == 0)
        return xstrdup("the neighbours");
    if (task->known && stall->culprit_own)
        return xasprintf("thread %d (%s) of the program itself", (int)task->tid,
                task->comm ? task->comm : "?");
    return reasons_program(task);
}

static char *reasons_advise(const struct stall *stall, const char *who)
{
    char *advice = cause_text_advice(stall->cause, who);
    if (!advice || strcmp(stall->cause, "smaps_read") != 0 || !stall->has_period)
        return advice;
    char *text = xasprintf("%s (now every %.0f ms)", advice, (double)stall->period_ns / 1e6);
    free(advice);
    return text;
}

static char *reasons_advise_cause(const struct stall *stall, const char *name)
{
    char *who = reasons_program(&stall->late_by),
         *advice = cause_text_advice(stall->deed.cause, who),
         *text = xasprintf("on %s: %s", name, advice ? advice : "");
    free(advice);
    free(who);
    return text;
}

static char *reasons_advise_link(const struct stall *stall, const char *name)
{
    const struct stall_deed *deed = &stall->deed;
    bool receives = deed->kind == STALL_DEED_RECEIVES;
    char *peer = cause_text_rank(deed->peer_rank, deed->peer_pid);
    struct strbuf out = {0};
    strbuf_add(&out,
            "look at the link of %s and at who else uses it: while messages from %s to %s were under way they came at %.1f Mbit/s",
            name, receives ? peer : name, receives ? name : peer, deed->bits_per_s / 1e6);
    if (deed->retransmits > 0)
        strbuf_add(&out, "; %.0f segments were sent again", deed->retransmits);
    free(peer);
    return strbuf_take(&out);
}

static char *reasons_advise_rank(const struct stall *stall, const char *name)
{
    switch (stall->deed.kind) {
    case STALL_DEED_CAUSE:
        return reasons_advise_cause(stall, name);
    case STALL_DEED_KERNEL:
    case STALL_DEED_KERNELS:
        return xasprintf(
                "compare the GPU of %s with the others': clocks and throttling (nvidia-smi -q -d CLOCK,PERFORMANCE), who else "
                "uses it, and whether its input is larger",
                name);
    case STALL_DEED_COMPUTES:
    case STALL_DEED_WAITS:
    case STALL_DEED_SLEEPS:
        return xasprintf(
                "look at %s, which takes %s longer than the other ranks: %s, or take it out of the step",
                stall->deed.function, name,
                stall->stages ? "divide stages and input evenly" : "spread its input evenly");
    case STALL_DEED_SENDS:
    case STALL_DEED_RECEIVES:
        return reasons_advise_link(stall, name);
    case STALL_DEED_MESSAGES:
        return xasprintf(
                "look at the link of %s and at who else uses it: outside of collectives it does no more than the other ranks",
                name);
    default:
        return xasprintf(
                "look at what %s does between its collectives that the other ranks do not", name);
    }
}

static char *reasons_advise_straggler(const struct stall *stall)
{
    char *name = cause_text_rank(stall->rank, stall->culprit.pid),
         *text = reasons_advise_rank(stall, name);
    free(name);
    return text;
}

char *stalls_text_advice_full(const struct stall *stall)
{
    if (stall->is_straggler)
        return reasons_advise_straggler(stall);
    char *who = reasons_who(stall), *text = reasons_advise(stall, who);
    free(who);
    return text;
}

char *stalls_text_advice(const struct stall *stall)
{
    const struct stall_task *task = &stall->culprit;
    if (stall->is_straggler || !task->known || stall->culprit_own || !task->cmdline ||
            !*task->cmdline)
        return stalls_text_advice_full(stall);
    char *who = stalls_text_task(task, STALLS_NAME_PROGRAM), *text = reasons_advise(stall, who);
    free(who);
    return text;
}
