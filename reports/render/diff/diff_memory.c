// SPDX-License-Identifier: Apache-2.0
// Where the memory is, in words: the same in the table, in Markdown and on the page. Pure; the
// caller frees what is returned. Names of the store are not cleaned here.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "common/units.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/text/numbers.h"

enum { MEMORY_TEXT_MAX = 3 };

// Of the peaks' difference; less than that is not worth a sentence.
static const double memory_freed_min = 0.1;
// Of what a piece of code touched; then it is told when.
static const double touch_start_min = 0.9;

static char *memory_bytes(double bytes, char *buf)
{
    return unit_format_bytes(buf, NUMBERS_SIZE, bytes);
}

static char *memory_delta(double bytes, char *buf)
{
    bool sign = bytes > 0 || bytes < 0;
    *buf = bytes > 0 ? '+' : '-';
    unit_format_bytes(buf + sign, NUMBERS_SIZE - 1, fabs(bytes));
    return buf;
}

const char *diff_text_memory_name(const struct diff_memory_part *part)
{
    static const char *const titles[DIFF_MEMORY_KIND_COUNT] = {
            [DIFF_MEMORY_FILE] = "smaller files",
            [DIFF_MEMORY_HEAP] = "heap",
            [DIFF_MEMORY_ANONYMOUS] = "anonymous memory",
            [DIFF_MEMORY_STACK] = "stack of the main thread",
            [DIFF_MEMORY_SHARED] = "shared memory",
            [DIFF_MEMORY_OTHER] = "devices",
            [DIFF_MEMORY_TENSORS] = "tensors",
            [DIFF_MEMORY_RESERVE] = "the allocator's reserve beyond tensors",
            [DIFF_MEMORY_ALLOCATOR] = "the framework's allocator",
            [DIFF_MEMORY_DIRECT] = "past the framework's allocator",
    };
    return *part->name ? part->name : titles[part->kind];
}

// "; libtorch_cpu.so +61 MiB, heap +30 MiB, and 2 more": of one sign.
static void memory_list(struct strbuf *text, const struct diff_memory *memory, bool more)
{
    size_t count = 0;
    for (size_t i = 0; i < memory->told_count; i++) {
        const struct diff_memory_part *part = &memory->parts[i];
        double delta = part->b_bytes - part->a_bytes;
        if ((delta > 0) != more)
            continue;
        if (count++ >= MEMORY_TEXT_MAX)
            continue;
        strbuf_add(text, "%s%s %s", count > 1 ? ", " : "", diff_text_memory_name(part),
                memory_delta(delta, NUMBERS_BUFFER));
    }
    if (count > MEMORY_TEXT_MAX)
        strbuf_add(text, ", and %zu more", count - MEMORY_TEXT_MAX);
}

char *diff_text_memory(const struct diff_workload *workload, const struct diff_memory *memory)
{
    if (!memory->part_count)
        return NULL;
    double change = memory->peak_b_bytes - memory->peak_a_bytes;
    struct strbuf text = {0};
    strbuf_add(&text, "%s: peak %smemory %s -> %s (%s, %s): ", workload->name,
            memory->gpu ? "GPU " : "", memory_bytes(memory->peak_a_bytes, NUMBERS_BUFFER),
            memory_bytes(memory->peak_b_bytes, NUMBERS_BUFFER),
            numbers_change(change / memory->peak_a_bytes, NUMBERS_BUFFER),
            memory_delta(change, NUMBERS_BUFFER));
    bool first = change > 0, of_first = first ? memory->more_bytes > 0 : memory->less_bytes < 0;
    if (of_first)
        memory_list(&text, memory, first);
    else
        strbuf_add(&text, "no single %s memory that the traced launches held",
                memory->gpu ? "kind of" : "file and no kind of");
    return strbuf_take(&text);
}

// "At their last stop the traced launches held 291 of 292 MiB (a) and 343 of 344 MiB (b) of their
// peaks."
static void memory_held(struct strbuf *text, const struct diff_memory *memory)
{
    for (int side = 0; side < 2; side++) {
        // not of launches that were too short to be watched
        bool told = isfinite(memory->peak[side]);
        strbuf_add(text, "%s%s%s%s (%s)",
                side ? ", " : "Where they were stopped last, the traced launches held ",
                memory_bytes(memory->held[side], NUMBERS_BUFFER), told ? " of a peak of " : "",
                told ? memory_bytes(memory->peak[side], NUMBERS_BUFFER) : "", side ? "b" : "a");
    }
    strbuf_add(text, ".");
    double held = memory->held[1] - memory->held[0],
           peak = memory->peak_b_bytes - memory->peak_a_bytes;
    if (held / peak > 1 - memory_freed_min)
        return;
    strbuf_add(text, " %s of the difference is of memory that was freed by then: it is in no part.",
            memory_delta(peak - held, NUMBERS_BUFFER));
}

// "The traced launches held 4.2 GiB at most, of it 4 GiB reserved by the framework's allocator
// (a), 5.1 GiB, of it 5 GiB (b)."
static void memory_held_gpu(struct strbuf *text, const struct diff_memory *memory)
{
    for (int side = 0; side < 2; side++)
        strbuf_add(text, "%s%s%s, of it %s%s (%s)", side ? ", " : "The traced launches held ",
                memory_bytes(memory->held[side], NUMBERS_BUFFER), side ? "" : " at most",
                memory_bytes(memory->peak[side], NUMBERS_BUFFER),
                side ? "" : " reserved by the framework's allocator", side ? "b" : "a");
    strbuf_add(text, ".");
}

char *diff_text_memory_answer(const struct diff_memory *memory)
{
    bool first = memory->peak_b_bytes > memory->peak_a_bytes;
    double other = first ? memory->less_bytes : memory->more_bytes;
    double rest = memory->held[1] - memory->held[0] - memory->more_bytes - memory->less_bytes;
    const char *more = memory_delta(memory->more_bytes, NUMBERS_BUFFER),
               *less = memory_delta(memory->less_bytes, NUMBERS_BUFFER),
               *all_else = memory_delta(rest, NUMBERS_BUFFER);
    struct strbuf text = {0};
    if (other != 0) {
        strbuf_add(&text, first ? "Less: " : "More: ");
        memory_list(&text, memory, !first);
        strbuf_add(&text, ". ");
    }
    if (memory->told_count && other != 0)
        strbuf_add(&text, "Together %s and %s, all else %s. ", first ? more : less,
                first ? less : more, all_else);
    else if (memory->told_count)
        strbuf_add(&text, "Together %s, all else %s. ", first ? more : less, all_else);
    (memory->gpu ? memory_held_gpu : memory_held)(&text, memory);
    return strbuf_take(&text);
}

char *diff_text_memory_part(const struct diff_memory_part *part)
{
    struct strbuf text = {0};
    strbuf_add(&text, "%s %s: %s -> %s",
            memory_delta(part->b_bytes - part->a_bytes, NUMBERS_BUFFER),
            diff_text_memory_name(part), memory_bytes(part->a_bytes, NUMBERS_BUFFER),
            memory_bytes(part->b_bytes, NUMBERS_BUFFER));
    if (part->name_a && part->name_b && strcmp(part->name_a, part->name_b) != 0)
        strbuf_add(&text, " (%s -> %s)", part->name_a, part->name_b);
    else if (!part->name_a != !part->name_b)
        strbuf_add(&text, " (%s only)", part->name_b ? "b" : "a");
    return strbuf_take(&text);
}

// --- who touched it ------------------------------------------------------------------------------

char *diff_text_touch_function(const struct diff_touch *touch)
{
    return !touch->function ? NULL
            : touch->loads  ? xasprintf("loading of %s", touch->function)
                            : xstrdup(touch->function);
}

char *diff_text_touch_name(const struct diff_touch *touch)
{
    struct strbuf text = {0};
    char *function = diff_text_touch_function(touch);
    if (touch->caller)
        strbuf_add(&text, "%s", touch->caller);
    if (touch->caller_file)
        strbuf_add(&text, " (%s)", touch->caller_file);
    if (touch->outside)
        strbuf_add(&text, ", called by %s (%s)", touch->outside,
                touch->outside_file ? touch->outside_file : "");
    if (function)
        strbuf_add(&text, "%s%s%s%s", touch->caller ? ", most by " : "", function,
                touch->module ? " of " : "", touch->module ? touch->module : "");
    free(function);
    return text.text ? strbuf_take(&text) : xstrdup("[unknown]");
}

static bool touch_at_start(const struct diff_touch *touch)
{
    bool b = touch->b_bytes > touch->a_bytes;
    return touch->start_bytes[b] > touch_start_min * (b ? touch->b_bytes : touch->a_bytes);
}

char *diff_text_touch(const struct diff_memory *memory, const struct diff_touch *touch)
{
    char *name = diff_text_touch_name(touch);
    char *text = xasprintf("%s %s in %s: %s -> %s%s",
            memory_delta(touch->b_bytes - touch->a_bytes, NUMBERS_BUFFER),
            memory->gpu ? "allocated" : "first touched", name,
            memory_bytes(touch->a_bytes, NUMBERS_BUFFER),
            memory_bytes(touch->b_bytes, NUMBERS_BUFFER),
            touch_at_start(touch) ? ", before the first step" : "");
    free(name);
    return text;
}

static void touch_list(struct strbuf *text, const struct diff_memory *memory)
{
    for (size_t i = 0; i < memory->touch_told_count && i < MEMORY_TEXT_MAX; i++) {
        const struct diff_touch *touch = &memory->touches[i];
        char *name = diff_text_touch_name(touch);
        strbuf_add(text, "%s%s in %s", i ? "; " : "",
                memory_delta(touch->b_bytes - touch->a_bytes, NUMBERS_BUFFER), name);
        free(name);
    }
    if (memory->touch_told_count > MEMORY_TEXT_MAX)
        strbuf_add(text, "; and %zu more", memory->touch_told_count - MEMORY_TEXT_MAX);
}

char *diff_text_memory_touched(const struct diff_memory *memory)
{
    if (!memory->part_count || !memory->touch_count)
        return NULL;
    struct strbuf text = {0};
    double rest =
            memory->held[1] - memory->held[0] - memory->touch_more_bytes - memory->touch_less_bytes;
    if (memory->touch_told_count) {
        strbuf_add(
                &text, "By the code that %s: ", memory->gpu ? "allocated it" : "touched it first");
        touch_list(&text, memory);
        strbuf_add(&text, "; all else %s.", memory_delta(rest, NUMBERS_BUFFER));
    } else {
        strbuf_add(&text, "No single piece of code accounts for the difference.");
    }
    if (memory->held[0] > 0 && memory->held[1] > 0)
        strbuf_add(&text, " %s: %.0f %% (a) and %.0f %% (b) of what was held lies at one.",
                memory->gpu ? "Allocations are recorded" : "Page faults are sampled",
                100 * memory->seen[0] / memory->held[0], 100 * memory->seen[1] / memory->held[1]);
    return strbuf_take(&text);
}

bool diff_text_memory_first(const struct diff_memory *memory)
{
    return memory->part_count && memory->failed && !memory->time_failed;
}
