// SPDX-License-Identifier: Apache-2.0
// The row of a stall, and lines of its details: what was lost and how, stacks cut to what matters,
// links of the chain, what was recorded. Pure functions.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/render/stalls/stalls_text.h"

const char *const stalls_heads[STALLS_COLUMNS] = {
        "#", "cause", "lost", "of time", "times", "longest", "every", "culprit", "sure"};

bool stalls_column_is_right(int column)
{
    return column != STALLS_COLUMN_CAUSE && column != STALLS_COLUMN_CULPRIT;
}

void stalls_text_row(
        const struct stall *stall, size_t i, int64_t window_ns, bool title, char **ret_row)
{
    double period_ns = stall->has_period ? (double)stall->period_ns : NAN,
           share = window_ns > 0 ? (double)stall->total_ns / (double)window_ns : NAN;
    ret_row[STALLS_COLUMN_RANK] = xasprintf("%zu", i + 1);
    ret_row[STALLS_COLUMN_CAUSE] = xstrdup(title ? stall->title : stall->cause);
    ret_row[STALLS_COLUMN_LOST] = xstrdup(numbers_ns((double)stall->total_ns, NUMBERS_BUFFER));
    ret_row[STALLS_COLUMN_SHARE] = xstrdup(stalls_text_share(share, NUMBERS_BUFFER));
    ret_row[STALLS_COLUMN_COUNT] = xstrdup(numbers_count((int64_t)stall->count, NUMBERS_BUFFER));
    ret_row[STALLS_COLUMN_LONGEST] = xstrdup(numbers_ns((double)stall->max_ns, NUMBERS_BUFFER));
    ret_row[STALLS_COLUMN_PERIOD] = xstrdup(numbers_ns(period_ns, NUMBERS_BUFFER));
    ret_row[STALLS_COLUMN_CULPRIT] = stall->is_straggler ? stalls_text_rank(stall)
            : stall->culprit.known ? stalls_text_task(&stall->culprit, STALLS_NAME_PROGRAM)
                                   : xstrdup("-");
    ret_row[STALLS_COLUMN_SURE] =
            xstrdup(stalls_text_confidence(stall->confidence, NUMBERS_BUFFER));
}

static void phrases_part(
        struct strbuf *out, bool *begun, int64_t ns, int64_t total_ns, const char *what)
{
    // Below a hundredth a part explains nothing.
    if (ns <= 0 || ns * 100 < total_ns)
        return;
    strbuf_add(out, "%s%s %s", *begun ? ", " : "; ", numbers_ns((double)ns, NUMBERS_BUFFER), what);
    *begun = true;
}

char *stalls_text_lost(const struct stall *stall)
{
    struct strbuf out = {0};
    strbuf_add(&out, "%s", numbers_ns((double)stall->total_ns, NUMBERS_BUFFER));
    strbuf_add(&out, stall->count == 1 ? ", once" : ", %s times",
            numbers_count((int64_t)stall->count, NUMBERS_BUFFER));
    if (stall->victim_threads > 1 && !stall->is_straggler)
        strbuf_add(&out, " in %zu threads", stall->victim_threads);
    if (stall->count > 1)
        strbuf_add(&out, ", the longest %s", numbers_ns((double)stall->max_ns, NUMBERS_BUFFER));
    if (stall->is_straggler && stall->ranks > 2)
        strbuf_add(&out, "; %s by all ranks that waited",
                numbers_ns((double)stall->ranks_ns, NUMBERS_BUFFER));
    bool begun = stall->is_straggler;
    if (begun)
        return strbuf_take(&out);
    phrases_part(&out, &begun, stall->blocked_ns, stall->total_ns, "blocked");
    phrases_part(&out, &begun, stall->run_queue_ns, stall->total_ns, "woken and waiting for a CPU");
    phrases_part(&out, &begun, stall->preempted_ns, stall->total_ns, "pushed off its CPU");
    phrases_part(&out, &begun, stall->on_cpu_ns, stall->total_ns, "on the CPU");
    return strbuf_take(&out);
}

char *stalls_text_recording(const struct stalls_recording *recording)
{
    if (!recording->workload)
        return xasprintf("recording %lld", (long long)recording->id);
    struct strbuf out = {0};
    strbuf_add(&out, "%s", recording->workload);
    if (recording->side >= 0)
        strbuf_add(&out, ", %s", recording->side ? "candidate" : "baseline");
    if (recording->side_name)
        strbuf_add(&out, " (%s)", recording->side_name);
    if (recording->pair >= 0)
        strbuf_add(&out, ", pair %lld", (long long)recording->pair);
    strbuf_add(&out, ", recording %lld", (long long)recording->id);
    return strbuf_take(&out);
}

char *stalls_text_watched(const struct stalls_shown *shown)
{
    const struct stalls_recording *recording = shown->recording;
    char *target = stalls_text_task(&recording->target, STALLS_NAME_PROGRAM);
    struct strbuf out = {0};
    strbuf_add(&out, "%s of %s",
            numbers_ns((double)(shown->stalls->window_ns + shown->stalls->startup_ns +
                               shown->stalls->exit_ns),
                    NUMBERS_BUFFER),
            recording->target.known ? target : "a target that was never seen");
    if (recording->processes > 1)
        strbuf_add(&out, " and %s more process%s",
                numbers_count(recording->processes - 1, NUMBERS_BUFFER),
                recording->processes == 2 ? "" : "es");
    strbuf_add(&out, ", %s thread%s", numbers_count(recording->threads, NUMBERS_BUFFER),
            recording->threads == 1 ? "" : "s");
    strbuf_add(&out, "; %s waits of %s and longer", numbers_count(recording->gaps, NUMBERS_BUFFER),
            numbers_ns((double)recording->threshold_ns, NUMBERS_BUFFER));
    if (recording->sample_hz > 0)
        strbuf_add(&out, ", %s samples", numbers_count(recording->samples, NUMBERS_BUFFER));
    else
        strbuf_add(&out, ", no samples");
    if (shown->stalls->idle_ns > 0)
        strbuf_add(&out, "; %s of idle waiting left out",
                numbers_ns((double)shown->stalls->idle_ns, NUMBERS_BUFFER));
    if (recording->end_ns == 0)
        strbuf_add(&out, "; the recording was not ended in order");
    free(target);
    return strbuf_take(&out);
}

// Every blocked thread is in these: they tell nothing apart.
static bool phrases_dull(const char *frame)
{
    static const char *const names[] = {"schedule", "__schedule", "schedule_preempt_disabled",
            "preempt_schedule_common", "do_syscall_64", "do_syscall_x64", "x64_sys_call",
            "invoke_syscall", "el0_svc", "do_el0_svc", "el0_svc_common", "el0t_64_sync",
            "el0t_64_sync_handler", "el0_da", "entry_SYSCALL_64_after_hwframe", "entry_SYSCALL_64",
            "ret_from_fork", "ret_from_fork_asm", "asm_exc_page_fault", "_start",
            "__libc_start_main", "__libc_start_call_main", "clone", "clone3", "start_thread"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t len = strlen(names[i]);
        if (strncmp(frame, names[i], len) == 0 &&
                (frame[len] == 0 || frame[len] == '+' || frame[len] == ' '))
            return true;
    }
    return strncmp(frame, "__traceiter_", 12) == 0 || strncmp(frame, "__bpf_trace_", 12) == 0 ||
            strncmp(frame, "bpf_prog_", 9) == 0 || strncmp(frame, "bpf_trampoline", 14) == 0;
}

char *stalls_text_frame(const struct stall_stack *stack, size_t i)
{
    const char *inside = stack->inside ? stack->inside[i] : NULL;
    return inside ? xasprintf("%s (inside %s)", stack->frames[i], inside)
                  : xstrdup(stack->frames[i]);
}

// Is that all the same as of the frame before? Then it need not be said again.
static bool phrases_inside_same(const struct stall_stack *stack, size_t i, size_t before)
{
    const char *a = stack->inside ? stack->inside[i] : NULL, *b = a ? stack->inside[before] : NULL;
    return b && strcmp(a, b) == 0;
}

// The frames that are shown, from *ret_begin on. Gives where they end.
static size_t phrases_shown(const struct stall_stack *stack, size_t *ret_begin)
{
    size_t begin = 0, end = stack->count;
    while (begin < end && phrases_dull(stack->frames[begin]))
        begin++;
    while (end > begin && phrases_dull(stack->frames[end - 1]))
        end--;
    bool none = begin == end; // nothing but dull ones: better than nothing
    *ret_begin = none ? 0 : begin;
    return none ? stack->count : end;
}

bool stalls_text_begins(const struct stall_stack *stack, const char *function)
{
    size_t begin, end = phrases_shown(stack, &begin);
    return begin < end && strcmp(stack->frames[begin], function) == 0;
}

char *stalls_text_stack(const struct stall_stack *stack, size_t max, bool utf8)
{
    const char *arrow = utf8 ? " \xe2\x86\x90 " : " < "; // ←
    struct strbuf out = {0};
    size_t begin, end = phrases_shown(stack, &begin), shown = 0;
    // A single frame more costs less room than to say so.
    size_t room = end - begin == max + 1 ? max + 1 : max;
    size_t at = begin;
    for (; at < end && shown < room; shown++) {
        size_t same = 1; // recursion, or one unknown after the other
        while (at + same < end && strcmp(stack->frames[at], stack->frames[at + same]) == 0)
            same++;
        char *frame = shown && phrases_inside_same(stack, at, at - 1)
                ? xstrdup(stack->frames[at])
                : stalls_text_frame(stack, at);
        strbuf_add(&out, "%s%s", shown ? arrow : "", frame);
        free(frame);
        if (same > 1)
            strbuf_add(&out, " (%zu times)", same);
        at += same;
    }
    if (at < end)
        strbuf_add(&out, "%s%zu more", arrow, end - at);
    return strbuf_take(&out);
}

// A thread of the victim's process by itself, anybody else by the name of the process.
static char *phrases_end(const struct stall *stall, const struct stall_task *task)
{
    if (!task->known || !stall->victim.known || task->pid != stall->victim.pid || task->tid == 0)
        return stalls_text_task(task, STALLS_NAME_PROGRAM);
    return stalls_text_own(task);
}

char *stalls_text_link(const struct stall *stall, const struct stall_link *link, bool utf8)
{
    char *from = phrases_end(stall, &link->from), *to = phrases_end(stall, &link->to);
    char *via = stalls_text_via(link);
    char *text = xasprintf("%s %s %s, %s", from, utf8 ? "\xe2\x86\x92" : "->", to, via);
    free(from);
    free(to);
    free(via);
    return text;
}

const char *stalls_text_breach_detail(const struct stall_breach *breach)
{
    return breach->unended ? "the recording was not ended in order" : breach->detail;
}

char *stalls_text_breach(const struct stall_breach *breach)
{
    struct strbuf out = {0};
    strbuf_add(&out, "%s %s", breach->producer, breach->kind);
    if (breach->count > 0)
        strbuf_add(&out, ": %s dropped", numbers_count(breach->count, NUMBERS_BUFFER));
    const char *detail = stalls_text_breach_detail(breach);
    if (detail)
        strbuf_add(&out, "%s%s", breach->count > 0 ? ", " : ": ", detail);
    return strbuf_take(&out);
}

int64_t stalls_text_dropped(const struct stalls *stalls)
{
    int64_t dropped = 0;
    for (size_t i = 0; i < stalls->breach_count; i++)
        if (stalls->breaches[i].events && stalls->breaches[i].count > 0)
            dropped += stalls->breaches[i].count;
    return dropped;
}

char *stalls_text_steps(const struct stall *stall)
{
    if (!stall->has_steps)
        return NULL;
    return xasprintf("%s of %s", numbers_count((int64_t)stall->steps_hit, NUMBERS_BUFFER),
            numbers_count((int64_t)stall->steps_total, NUMBERS_BUFFER));
}

char *stalls_view_nothing(const struct stalls_shown *shown)
{
    const struct stalls_recording *recording = shown->recording;
    bool events =
            recording->gaps || recording->samples || recording->lock_waits || recording->facts;
    // Those of others say nothing about a target that was never seen.
    if (shown->stalls->count || (events && recording->threads > 0))
        return NULL;
    int64_t dropped = events ? 0 : stalls_text_dropped(shown->stalls);
    char *name = stalls_text_recording(recording);
    char *text = dropped > 0
            ? xasprintf(
                      "%s: all %s events were dropped, none was kept: nothing can be said; record "
                      "again with a higher threshold or without samples",
                      name, numbers_count(dropped, NUMBERS_BUFFER))
            : recording->threads == 0
            ? xasprintf(
                      "%s: no thread of the target was seen: nothing can be said; did it end before "
                      "the recording began?",
                      name)
            : xasprintf(
                      "%s: no event of its %s thread%s: nothing can be said; `upgate doctor` tells "
                      "what can be captured here",
                      name, numbers_count(recording->threads, NUMBERS_BUFFER),
                      recording->threads == 1 ? "" : "s");
    free(name);
    return text;
}
