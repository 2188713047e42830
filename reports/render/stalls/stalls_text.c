// SPDX-License-Identifier: Apache-2.0
// The sentences about stalls. A cause that is known here by its identifier gets a sentence of its
// own, with the culprit as its subject; any other is told by its title, so that a new cause needs
// nothing here. Pure functions.
#include "reports/render/stalls/stalls_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/render/causes/cause_text.h"

enum { TEXT_NOTHING_NS = 1000 };

char *stalls_text_share(double fraction, char *buf)
{
    double percent = fraction * 100;
    int decimals = percent >= 100 ? 0 : percent >= 0.1 || percent == 0 ? 1 : 2;
    return isfinite(percent) ? numbers_print(buf, "%.*f %%", decimals, percent)
                             : numbers_print(buf, "-");
}

char *stalls_text_confidence(double confidence, char *buf)
{
    // 100 % would promise more than any evidence does.
    double percent = floor(confidence * 100 + 0.5);
    return numbers_print(buf, "%.0f %%", percent > 99 ? 99 : percent < 0 ? 0 : percent);
}

double stalls_text_fraction(const struct stalls *stalls, const struct stall *stall)
{
    return stalls->window_ns > 0 ? (double)stall->total_ns / (double)stalls->window_ns : NAN;
}

// "reads its smaps": what the kernel function that shows a file of /proc belongs to.
static const char *text_proc_file(const struct stall *stall)
{
    static const char *const files[][2] = {{"smaps_rollup", "smaps_rollup"}, {"smap", "smaps"},
            {"numa_map", "numa_maps"}, {"pagemap", "pagemap"}, {"clear_refs", "clear_refs"}};
    const char *function = stall->culprit_function ? stall->culprit_function : "";
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strstr(function, files[i][0]))
            return files[i][1];
    return "smaps";
}

// {culprit}, {file}, {every}: a phrase whose culprit is not known is not used; then the title
// speaks.
static const struct text_phrase {
    const char *cause, *text;
} text_phrases[] = {
        {"smaps_read", "{culprit} reads its {file}{every} and holds its mmap_lock meanwhile"},
        {"fork_large", "{culprit} forks{every}, and copying the page tables holds every thread up"},
        {"munmap_large",
                "{culprit} gives a large mapping back{every} and holds mmap_lock meanwhile"},
        {"page_populate",
                "{culprit} pins or populates memory{every} and holds mmap_lock meanwhile"},
        {"compaction", "{culprit} compacts memory{every}"},
        {"page_migration", "{culprit} moves its pages{every}"},
        {"khugepaged", "khugepaged collapses its pages{every} and holds mmap_lock meanwhile"},
        {"rwsem_inode", "{culprit} holds the lock of a file that it needs too"},
        {"mmap_lock", "{culprit} holds its mmap_lock{every}"},
        {"kernel_mutex", "{culprit} holds a lock of the kernel that it needs{every}"},
        {"tlb_shootdown", "{culprit} changes mappings{every}, and the TLB flushes interrupt it"},
        {"cpu_quota", "the CPU quota of its cgroup is used up"},
        {"cpu_contention", "{culprit} runs on the CPU that it needs"},
        {"rt_hog", "{culprit} runs with real-time priority on its CPU{every}"},
        {"rstat_lock", "{culprit} reads cgroup statistics{every} and holds their lock meanwhile"},
        {"sigstop", "{culprit} stopped it by a signal{every}"},
        {"cgroup_freezer", "{culprit} froze its cgroup{every}"},
        {"ptrace", "{culprit} stops its threads{every}, as debuggers and profilers do"},
        {"memcg_reclaim", "its cgroup is at its memory limit, and it has to free pages itself"},
        {"memory_high", "memory.high of its cgroup slows it down"},
        {"oom_kill", "{culprit} was killed for lack of memory"},
        {"gil_wait", "{culprit} holds Python's global interpreter lock"},
        {"python_gc", "Python's garbage collector runs{every}"},
        {"data_loader", "it waits for its data loader; what is slow there is {culprit}"},
        {"pipe_write", "its output waits for {culprit}, which reads too slowly"},
        {"pthread_mutex", "{culprit} holds a mutex that it needs"},
        {"futex_wait", "it waits for {culprit}, which comes late"},
        {"network_peer", "it waits for {culprit} at the other end of a connection"},
        {"driver_lock", "{culprit} keeps the GPU driver busy{every}, and it has to wait"},
        {"unknown", "a wait that is not recognised"},
};

static char *text_every(const struct stall *stall)
{
    if (!stall->has_period)
        return xstrdup("");
    return xasprintf(" every %s", numbers_ns((double)stall->period_ns, NUMBERS_BUFFER));
}

// Does a thread hold itself up?
static bool text_is_self(const struct stall *stall)
{
    return stall->culprit.known && stall->victim.known && stall->culprit.pid == stall->victim.pid &&
            stall->culprit.tid == stall->victim.tid;
}

static char *text_culprit(const struct stall *stall)
{
    if (text_is_self(stall))
        return xstrdup("it");
    if (!stall->culprit.known || !stall->victim.known || stall->culprit.pid != stall->victim.pid)
        return stalls_text_task(&stall->culprit, STALLS_NAME_PROGRAM);
    return xasprintf("its own thread %d \"%s\"", stall->culprit.tid,
            stall->culprit.comm ? stall->culprit.comm : "?");
}

// The phrase with its names put in; NULL when one of them is not known.
static char *text_fill(const char *phrase, const struct stall *stall)
{
    struct strbuf out = {0};
    bool complete = true;
    for (const char *at = phrase; *at && complete;) {
        size_t len = strcspn(at, "{");
        strbuf_add_bytes(&out, at, len);
        at += len;
        if (!*at)
            break;
        size_t name = strcspn(at, "}") + 1;
        char *value = NULL;
        if (strncmp(at, "{culprit}", name) == 0)
            value = stall->culprit.known ? text_culprit(stall) : NULL;
        else if (strncmp(at, "{file}", name) == 0)
            value = xstrdup(text_proc_file(stall));
        else if (strncmp(at, "{every}", name) == 0)
            value = text_every(stall);
        complete = value != NULL;
        strbuf_add(&out, "%s", value ? value : "");
        free(value);
        at += name;
    }
    char *text = strbuf_take(&out);
    if (complete)
        return text;
    free(text);
    return NULL;
}

char *stalls_text_gpu(const struct stall_gpu *gpu, bool model)
{
    enum { UUID_SHORT = 12 }; // "GPU-1a2b3c4d", as nvidia-smi takes it
    if (!gpu->known)
        return NULL;
    struct strbuf out = {0};
    if (*gpu->uuid)
        strbuf_add(&out, "%.*s", UUID_SHORT, gpu->uuid);
    else
        strbuf_add(&out, "GPU %d", (int)gpu->device);
    if (model && *gpu->name)
        strbuf_add(&out, " %s", gpu->name);
    return strbuf_take(&out);
}

char *stalls_text_rank(const struct stall *stall)
{
    char *name = stalls_text_name(&stall->culprit, STALLS_NAME_SHORT),
         *gpu = stalls_text_gpu(&stall->gpu, true);
    const char *between = gpu ? ", " : "", *own = gpu ? gpu : "";
    char *text = stall->rank < 0
            ? xasprintf("%s (pid %d%s%s)", name, stall->culprit.pid, between, own)
            : xasprintf("rank %d of %d (%s, pid %d%s%s)", (int)stall->rank, (int)stall->ranks, name,
                      stall->culprit.pid, between, own);
    free(gpu);
    free(name);
    return text;
}

char *stalls_text_what(const struct stall *stall)
{
    char *deed = cause_text_deed(&stall->deed);
    if (!deed || stall->more_ns <= 0)
        return deed ? deed : xstrdup("not seen");
    char *text = xasprintf("%s, some %s more than the others each time", deed,
            numbers_ns((double)stall->more_ns, NUMBERS_BUFFER));
    free(deed);
    return text;
}

// "rank 1 of 2 (ddp.py, pid 4188) comes late 148 times, 4 ms each: computing in prepare_features
// (ddp.py)"
static char *text_straggler(const struct stall *stall)
{
    char *who = stalls_text_rank(stall), *deed = cause_text_deed(&stall->deed);
    const char *late = numbers_ns((double)stall->late_ns, NUMBERS_BUFFER);
    struct strbuf out = {0};
    if (stall->count == 1)
        strbuf_add(&out, "%s comes %s late once", who, late);
    else
        strbuf_add(&out, "%s comes late %s times, %s each", who,
                numbers_count((int64_t)stall->count, NUMBERS_BUFFER), late);
    if (deed)
        strbuf_add(&out, ": %s", deed);
    if (stall->chain_count == 2) {
        char *to = stalls_text_task(&stall->chain[1].to, STALLS_NAME_PROGRAM);
        strbuf_add(&out, ", by %s", to);
        free(to);
    }
    free(deed);
    free(who);
    return strbuf_take(&out);
}

char *stalls_text_blame(const struct stall *stall)
{
    if (stall->is_straggler)
        return text_straggler(stall);
    for (size_t i = 0; i < sizeof text_phrases / sizeof *text_phrases; i++) {
        char *text = strcmp(text_phrases[i].cause, stall->cause) == 0
                ? text_fill(text_phrases[i].text, stall)
                : NULL;
        if (text)
            return text;
    }
    char *title = cause_text_title(stall->title), *every = text_every(stall);
    struct strbuf out = {0};
    strbuf_add(&out, "%s%s", title, every);
    if (stall->culprit.known) {
        char *culprit = text_culprit(stall);
        bool self = text_is_self(stall);
        if (!self)
            strbuf_add(&out, ": %s", culprit);
        if (stall->culprit_function)
            strbuf_add(&out, "%s in %s", self ? "," : "", stall->culprit_function);
        free(culprit);
    }
    char *resource = stalls_text_resource(&stall->resource);
    const char *meanwhile = stalls_text_meanwhile(stall);
    if (resource)
        strbuf_add(&out, " (%s)", resource);
    if (meanwhile)
        strbuf_add(&out, "; %s", meanwhile);
    free(resource);
    free(title);
    free(every);
    return strbuf_take(&out);
}

// "30 s", "4.1 s between start-up and exit"
static char *text_window(const struct stalls *stalls)
{
    return xasprintf("%s%s", numbers_ns((double)stalls->window_ns, NUMBERS_BUFFER),
            stalls->startup_ns && stalls->exit_ns ? " between start-up and exit"
                    : stalls->startup_ns          ? " after its start-up"
                    : stalls->exit_ns             ? " before its exit"
                                                  : "");
}

// Nothing was found: what that covers.
static char *text_answer_none(const struct stalls_shown *shown)
{
    const struct stalls *stalls = shown->stalls;
    char *target = stalls_text_task(&shown->recording->target, STALLS_NAME_SHORT);
    char *window = text_window(stalls);
    int64_t dropped = stalls_text_dropped(stalls);
    struct strbuf out = {0};
    if (stalls->quiet.known) {
        char *whose = stalls_text_task(&stalls->quiet, STALLS_NAME_SHORT);
        const char *place = stalls->quiet_function, *file = stalls->quiet_target;
        strbuf_add(&out, "no stall found, but the main thread of %s hardly ran: it waited %s",
                whose, numbers_ns((double)stalls->quiet_ns, NUMBERS_BUFFER));
        if (place)
            strbuf_add(&out, " in %s", place);
        if (file && *file)
            strbuf_add(&out, " (%s)", file);
        strbuf_add(&out, ": idle, or hung?");
        free(whose);
    } else {
        strbuf_add(&out, "no stall found: in %s nothing held %s up", window,
                shown->recording->target.known ? target : "the target");
    }
    if (dropped > 0)
        strbuf_add(&out, ", but %s event%s dropped", numbers_count(dropped, NUMBERS_BUFFER),
                dropped == 1 ? " was" : "s were");
    free(window);
    free(target);
    return strbuf_take(&out);
}

char *stalls_text_outside(const struct stalls *stalls)
{
    const char *unit = stalls->by_steps ? "step" : "collective";
    struct strbuf out = {0};
    if (stalls->startup_ns)
        strbuf_add(&out, "Start-up, %s before the first %s",
                numbers_ns((double)stalls->startup_ns, NUMBERS_BUFFER), unit);
    if (stalls->exit_ns)
        strbuf_add(&out, "%s, %s behind the last%s%s", stalls->startup_ns ? ", and exit" : "Exit",
                numbers_ns((double)stalls->exit_ns, NUMBERS_BUFFER), stalls->startup_ns ? "" : " ",
                stalls->startup_ns ? "" : unit);
    return strbuf_take(&out);
}

char *stalls_text_answer(const struct stalls_shown *shown)
{
    const struct stalls *stalls = shown->stalls;
    if (stalls->count == 0)
        return text_answer_none(shown);
    const struct stall *stall = &stalls->stalls[0];
    char *victim = stalls_text_task(
            stall->victim.known ? &stall->victim : &shown->recording->target, STALLS_NAME_SHORT);
    char *window = text_window(stalls);
    char *blame = stalls_text_blame(stall);
    const char *share = stalls_text_share(stalls_text_fraction(stalls, stall), NUMBERS_BUFFER);
    const char *doubt = stall->confidence < 0.5 ? "probably " : "";
    // Dead cgroups that nobody paid for yet, a process that was killed: there, and no time was
    // lost.
    char *text = stall->total_ns < TEXT_NOTHING_NS
            ? xasprintf("%s: %s%s", victim, doubt, blame)
            : xasprintf("%s lost %s of %s: %s%s", victim, share, window, doubt, blame);
    free(victim);
    free(window);
    free(blame);
    return text;
}
