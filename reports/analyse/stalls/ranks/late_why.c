// SPDX-License-Identifier: Apache-2.0
// What a late rank does that the others do not. Everything that the main threads of the ranks did
// in the window, outside of collectives, is added up, by cause and by function, and a rank's sums
// are set against the others' mean: the late time itself may show something else, as who is late
// with its input is still in its backward pass while the others wait for it.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/strings.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/stalls/ranks/late_why.h"

// ---- functions ----

static int why_compare(const struct trace *trace, uint32_t left, uint32_t right)
{
    const struct trace_frame *a = &trace->frames[left], *b = &trace->frames[right];
    return trace_order(a->kind, b->kind) ?: strcmp(a->name, b->name) ?: strcmp(a->module ? a->module : "", b->module ? b->module : "");
}

static int why_by_function(const void *left, const void *right, void *trace)
{
    const uint32_t *a = left, *b = right;
    return why_compare(trace, *a, *b) ?: trace_order(*a, *b);
}

// A function has a frame for each of its lines.
static void why_functions(struct why *why)
{
    const struct trace *trace = why->ranks->trace;
    uint32_t *order = xcalloc(trace->frame_count + 1, sizeof *order);
    why->function_of = xcalloc(trace->frame_count + 1, sizeof *why->function_of);
    why->frame_of = xcalloc(trace->frame_count + 1, sizeof *why->frame_of);
    for (uint32_t i = 0; i < trace->frame_count; i++)
        order[i] = i;
    qsort_r(order, trace->frame_count, sizeof *order, why_by_function, (void *)trace);
    for (size_t i = 0; i < trace->frame_count; i++) {
        if (!i || why_compare(trace, order[i - 1], order[i]))
            why->frame_of[why->function_count++] = order[i];
        why->function_of[order[i]] = trace->frames[order[i]].kind == 'k'
                ? TRACE_NONE
                : (uint32_t)why->function_count - 1;
    }
    why->seen = xcalloc(why->function_count + 1, sizeof *why->seen);
    why->sums = xcalloc(why->function_count + 1, sizeof *why->sums);
    free(order);
}

static void why_add_stack(
        struct why *why, uint32_t stack, double ns, double late, bool off, bool sleeps)
{
    const struct trace *trace = why->ranks->trace;
    const struct trace_stack *row = &trace->stacks[stack];
    for (uint32_t i = 0; i < row->count; i++) {
        uint32_t function = why->function_of[trace->stack_frames[row->first + i]];
        if (function == TRACE_NONE || why->seen[function] == why->visit)
            continue;
        why->seen[function] = why->visit;
        struct why_sum *sum = &why->sums[function];
        sum->off += off ? ns * late : 0;
        sum->slept += sleeps ? ns * late : 0;
        if (late > 0) {
            sum->late += ns;
            sum->depth += ns * i;
        } else {
            sum->others -= ns * late;
        }
    }
}

static void why_add(struct why *why, uint32_t python, uint32_t user, double ns, double late,
        bool off, bool sleeps)
{
    why->visit++;
    why->all += late > 0 ? ns : 0;
    why->python += late > 0 && python ? ns : 0;
    why->user += late > 0 && user ? ns : 0;
    why_add_stack(why, python, ns, late, off, sleeps);
    why_add_stack(why, user, ns, late, off, sleeps);
}

// Does the rank wait for its GPU at this moment? Calls do that on the CPU.
static bool why_blocked(const struct trace *trace, uint32_t process, int64_t at)
{
    const struct trace_busy *busy = trace->busy ? &trace->busy[process] : NULL;
    size_t next = busy ? search_first(middle, busy->block_count, busy->blocks[middle].end > at) : 0;
    return busy && next < busy->block_count && busy->blocks[next].begin <= at;
}

static void why_add_gap(
        struct why *why, const struct trace_gap *gap, double ns, double slept_ns, double late)
{
    bool off = gap->waking != 0;
    why->slept += off ? slept_ns * late : 0;
    why_add(why, gap->python, gap->user, ns, late, off,
            marks_has(trace_marks(why->ranks->trace, gap->kernel), MARK_SLEEP));
}

// late: 1 of the late rank, else minus its part in the mean of the others.
static void why_add_rank(struct why *why, const struct rank_row *rank, double late)
{
    const struct trace *trace = why->ranks->trace;
    uint32_t index = rank->thread;
    const struct trace_thread *thread = &trace->threads[index];
    // late_ranks.c takes them from a rank's work
    bool calls_apart = why->ranks->by_work && !why->ranks->nccl;
    for (uint32_t i = trace_sample_from(trace, index, why->begin);
            i < thread->sample_first + thread->sample_count && trace->samples[i].at < why->end;
            i++) {
        const struct trace_sample *sample = &trace->samples[i];
        if (marks_has(trace_marks(trace, sample->user), MARK_MPI) ||
                (calls_apart && ranks_communicates(trace, sample)) ||
                why_blocked(trace, thread->process, sample->at))
            continue;
        why->ran += (double)trace->tick_ns * late;
        why_add(why, sample->python, sample->user, (double)trace->tick_ns, late, false, false);
    }
    for (uint32_t i = trace_gap_from(trace, index, why->begin);
            i < thread->gap_first + thread->gap_count && trace->gaps[i].out < why->end; i++) {
        const struct trace_gap *gap = &trace->gaps[i];
        if (ranks_waits(trace, gap))
            continue;
        // Pushed off its CPU it is still in that function, and late there.
        why_add_gap(why, gap, (double)parts_overlap(gap->out, gap->in, why->begin, why->end),
                (double)parts_overlap(gap->out, gap->waking, why->begin, why->end), late);
    }
    for (size_t i = rank->short_first; i < rank->short_first + rank->short_count; i++) {
        const struct trace_gap *gap = &trace->shorts[why->ranks->shorts[i]];
        if (gap->out < why->begin || gap->in > why->end || ranks_waits(trace, gap))
            continue;
        why_add_gap(why, gap, (double)trace->short_ns, (double)trace->short_ns, late);
    }
}

// Where in the stack the function is, from the leaf; TRACE_NONE: it is not.
static uint32_t why_depth(const struct why *why, uint32_t stack, uint32_t function)
{
    const struct trace *trace = why->ranks->trace;
    const struct trace_stack *row = &trace->stacks[stack];
    for (uint32_t i = 0; i < row->count; i++)
        if (why->function_of[trace->stack_frames[row->first + i]] == function)
            return i;
    return TRACE_NONE;
}

static bool why_has(const struct why *why, uint32_t python, uint32_t user, uint32_t function)
{
    return why_depth(why, python, function) != TRACE_NONE ||
            why_depth(why, user, function) != TRACE_NONE;
}

// A stack in which the late rank was seen in the function.
static void why_witness(const struct why *why, uint32_t function, struct late_rank *straggler)
{
    const struct trace *trace = why->ranks->trace;
    uint32_t index = why->ranks->rows[straggler->row].thread;
    const struct trace_thread *thread = &trace->threads[index];
    for (uint32_t i = trace_sample_from(trace, index, why->begin);
            i < thread->sample_first + thread->sample_count && !straggler->waiting; i++) {
        const struct trace_sample *sample = &trace->samples[i];
        if (!why_has(why, sample->python, sample->user, function))
            continue;
        straggler->python = sample->python;
        straggler->user = sample->user;
        return;
    }
    for (uint32_t i = trace_gap_from(trace, index, why->begin);
            i < thread->gap_first + thread->gap_count; i++) {
        const struct trace_gap *gap = &trace->gaps[i];
        if (!gap->waking || !why_has(why, gap->python, gap->user, function))
            continue;
        straggler->python = gap->python;
        straggler->user = gap->user;
        return;
    }
}

// Names that say nothing to who wrote the program: of the interpreter, of nobody, and of what has
// none (before Python 3.11, later see why_written()).
static bool why_speaks(const struct trace_frame *frame)
{
    static const char *const dull[] = {"[", "_Py", "Py", "python3", "_start", "__libc_start",
            "start_thread", "clone", "<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"};
    for (size_t i = 0; i < sizeof dull / sizeof dull[0]; i++)
        if (!strncmp(frame->name, dull[i], strlen(dull[i])))
            return false;
    return true;
}

// Of two functions with about the same time the inner one.
static bool why_is_inner(const struct why_sum *a, const struct why_sum *b)
{
    if (a->late < 0.98 * b->late || b->late < 0.98 * a->late)
        return a->late < b->late;
    return a->depth / a->late < b->depth / b->late;
}

// The innermost function that has nearly all of what the rank does more: of those the one that it
// spends least time in.
static uint32_t why_innermost(const struct why *why, char kind, double least)
{
    uint32_t best = TRACE_NONE;
    double most = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < why->function_count; i++) {
            const struct trace_frame *frame = &why->ranks->trace->frames[why->frame_of[i]];
            const struct why_sum *sum = &why->sums[i];
            double more = sum->late - sum->others;
            if (frame->kind != kind || !why_speaks(frame))
                continue;
            if (!pass)
                most = more > most ? more : most;
            else if (more > 0 && more >= least && more >= 0.7 * most &&
                    (best == TRACE_NONE || why_is_inner(sum, &why->sums[best])))
                best = i;
        }
    return best;
}

// "prepare.<locals>.<genexpr>" is what people wrote as `prepare`.
static const char *why_written(struct arena *arena, const char *name)
{
    const char *last = NULL;
    for (const char *at = name; (at = strstr(at, ".<locals>.<")); at++)
        last = at;
    return last ? arena_print(arena, "%.*s", (int)(last - name), name) : name;
}

static void why_name(const struct why *why, struct late_rank *straggler)
{
    const struct trace *trace = why->ranks->trace;
    // ticks hit at random, and not all have a stack
    double least = why->all > 0 ? 0.4 * (double)straggler->total_ns / why->all : INFINITY;
    uint32_t best = why_innermost(why, 'p', least * why->python);
    best = best == TRACE_NONE ? why_innermost(why, 'u', least * why->user) : best;
    if (best == TRACE_NONE)
        return;
    const struct trace_frame *frame = &trace->frames[why->frame_of[best]];
    const struct why_sum *sum = &why->sums[best];
    const char *file = frame->module ? string_base_name(frame->module) : NULL;
    const char *name = why_written(trace->arena, frame->name);
    straggler->function = file && !names_is_nameless(name)
            ? arena_print(trace->arena, "%s (%s)", name, file)
            : name;
    straggler->waiting = sum->off * 2 > sum->late - sum->others;
    straggler->sleeping = sum->slept * 2 > sum->late - sum->others;
    if (straggler->cause == CAUSE_COUNT)
        straggler->deed_ns = (int64_t)((sum->late - sum->others) * why->all /
                (frame->kind == 'p' ? why->python : why->user));
    why_witness(why, best, straggler);
    const char *inside =
            trace_inside(trace, straggler->user, why_depth(why, straggler->user, best));
    if (inside)
        straggler->function = arena_print(trace->arena, "%s (inside %s)", name, inside);
}

// ---- kernels ----

static int why_by_kernel(const void *left, const void *right)
{
    const struct trace_kernel *a = left, *b = right;
    return strcmp(a->name, b->name) ?: trace_order(a->process, b->process);
}

// What it does where its template says only how ("sin elementwise"), else its name as people read
// it.
static const char *why_kernel_name(const struct trace *trace, const char *name)
{
    char label[NAMES_LENGTH_MAX];
    names_label(name, label, sizeof label, sizeof label - 1);
    return arena_print(trace->arena, "%s", label);
}

// Where its host was in time and its GPU was not: which kernel took longer than on the others, or,
// when none stands out, all.
static void why_kernels(const struct why *why, struct late_rank *straggler)
{
    const struct trace *trace = why->ranks->trace;
    struct trace_kernel *list = xcalloc(trace->kernel_count + 1, sizeof *list);
    uint32_t *row_of = ranks_row_of(why->ranks);
    const char *best = NULL;
    double most = 0, all = 0, usual = 0, others = (double)(why->ranks->row_count - 1);
    uint32_t late = why->ranks->rows[straggler->row].process;
    if (trace->kernel_count)
        memcpy(list, trace->kernels, trace->kernel_count * sizeof *list);
    qsort(list, trace->kernel_count, sizeof *list, why_by_kernel);
    for (size_t i = 0; i < trace->kernel_count;) {
        const char *name = list[i].name;
        double more = 0;
        for (; i < trace->kernel_count && !strcmp(list[i].name, name); i++) {
            if (row_of[list[i].process] == TRACE_NONE)
                continue;
            more += list[i].process == late ? (double)list[i].ns : -(double)list[i].ns / others;
            usual += list[i].process == late ? 0 : (double)list[i].ns / others;
        }
        all += more;
        if (more > most) {
            most = more;
            best = name;
        }
    }
    double least = 0.4 * (double)straggler->total_ns;
    bool one = most >= least && most >= 0.6 * all;
    if (one || all >= least) {
        straggler->function = one ? why_kernel_name(trace, best) : NULL;
        straggler->kernels = true;
        straggler->kernels_share = one ? 0 : all / usual;
        straggler->deed_ns = (int64_t)(one ? most : all);
    }
    free(list);
    free(row_of);
}

// ---- messages ----

// How long a rank was outside of collectives.
static double why_outside(const struct why *why, size_t index)
{
    const struct rank_row *row = &why->ranks->rows[index];
    const struct trace_window *waits = why->ranks->waits + row->wait_first;
    int64_t ns = why->end - why->begin;
    for (size_t i = 0; i < row->wait_count; i++)
        ns -= parts_overlap(waits[i].begin, waits[i].end, why->begin, why->end);
    return (double)ns;
}

// Is it outside of collectives for about as long as the others that wait for it?
static bool why_is_alike(const struct why *why, const struct late_rank *straggler)
{
    double more = why_outside(why, straggler->row);
    size_t count = why->ranks->row_count;
    for (size_t i = 0; i < count; i++)
        more -= i == straggler->row ? 0 : why_outside(why, i) / (double)(count - 1);
    return more * 2 < (double)straggler->excess_ns;
}

// It comes late and does nothing longer than the others: of two ranks what it sends comes late. Of
// more, a ring hands on to all of them what one link holds up, and lets them go one after the
// other: who seems to come last, by waits of about the threshold, need not be the one. Then
// late_network.c asks their connections.
// Of stages that send to each other it is not known for whom one waits: that a rank works longer
// must be seen in what it does.
static void why_messages(const struct why *why, struct late_rank *straggler)
{
    if (straggler->cause < CAUSE_COUNT || straggler->function || straggler->kernels ||
            why->ranks->nccl || (!why->ranks->by_work && !why_is_alike(why, straggler)))
        return;
    straggler->messages = why->ranks->row_count == 2 && !why->ranks->by_work;
    straggler->unfounded = !straggler->messages;
}

void late_why(const struct ranks *ranks, const struct work *work, int64_t begin, int64_t end,
        struct late_rank *straggler)
{
    struct why why = {.ranks = ranks, .work = work, .begin = begin, .end = end};
    why_causes(&why, straggler);
    why_functions(&why);
    for (size_t i = 0; i < ranks->row_count; i++)
        why_add_rank(&why, &ranks->rows[i],
                i == straggler->row ? 1 : -1 / (double)(ranks->row_count - 1));
    why_decide(&why, straggler);
    why_name(&why, straggler);
    if (straggler->cause == CAUSE_COUNT && !straggler->function)
        why_kernels(&why, straggler);
    why_messages(&why, straggler);
    free(why.function_of);
    free(why.frame_of);
    free(why.seen);
    free(why.sums);
}
