// SPDX-License-Identifier: Apache-2.0
// Where the memory is, in words: the same in the table, in Markdown and on the page. Pure; the caller frees what is returned.
// Names of the store are not cleaned here.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "common/units.h"
#include "reports/render/diff/diff_view.h"

enum { MEMORY_TEXT_MAX = 3, MEMORY_NUMBER = 64 };

// Of the peaks' difference; less than that is not worth a sentence.
static const double memory_freed_min = 0.1;
// Of what a piece of code touched; then it is told when.
static const double touch_start_min = 0.9;

char *diff_text_bytes(double bytes)
{
    char number[MEMORY_NUMBER];
    return xstrdup(unit_format_bytes(number, sizeof number, bytes));
}

char *diff_text_bytes_delta(double bytes)
{
    char number[MEMORY_NUMBER];
    return xasprintf("%s%s", bytes > 0 ? "+" : bytes < 0 ? "-" : "", unit_format_bytes(number, sizeof number, fabs(bytes)));
}

const char *diff_text_memory_name(const struct diff_memory_part *part)
{
    static const char *const titles[DIFF_MEMORY_KIND_COUNT] = {
        [DIFF_MEMORY_FILE] = "smaller files", [DIFF_MEMORY_HEAP] = "heap",
        [DIFF_MEMORY_ANONYMOUS] = "anonymous memory", [DIFF_MEMORY_STACK] = "stack of the main thread",
        [DIFF_MEMORY_SHARED] = "shared memory", [DIFF_MEMORY_OTHER] = "devices",
        [DIFF_MEMORY_TENSORS] = "tensors", [DIFF_MEMORY_RESERVE] = "the allocator's reserve beyond tensors",
        [DIFF_MEMORY_ALLOCATOR] = "the framework's allocator", [DIFF_MEMORY_DIRECT] = "past the framework's allocator",
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
        char *bytes = diff_text_bytes_delta(delta);
        strbuf_add(text, "%s%s %s", count > 1 ? ", " : "", diff_text_memory_name(part), bytes);
        free(bytes);
    }
    if (count > MEMORY_TEXT_MAX)
        strbuf_add(text, ", and %zu more", count - MEMORY_TEXT_MAX);
}

char *diff_text_memory(const struct diff_workload *workload, const struct diff_memory *memory)
{
    if (!memory->part_count)
        return NULL;
    double change = memory->peak_b_bytes - memory->peak_a_bytes;
    char *a = diff_text_bytes(memory->peak_a_bytes), *b = diff_text_bytes(memory->peak_b_bytes), *delta = diff_text_bytes_delta(change);
    struct strbuf text = {0};
    strbuf_add(&text, "%s: peak %smemory %s -> %s (%+.1f %%, %s): ", workload->name, memory->gpu ? "GPU " : "", a, b,
               100 * change / memory->peak_a_bytes, delta);
    bool first = change > 0, of_first = first ? memory->more_bytes > 0 : memory->less_bytes < 0;
    if (of_first)
        memory_list(&text, memory, first);
    else
        strbuf_add(&text, "no single %s memory that the traced launches held", memory->gpu ? "kind of" : "file and no kind of");
    free(delta);
    free(b);
    free(a);
    return strbuf_take(&text);
}

// "At their last stop the traced launches held 291 of 292 MiB (a) and 343 of 344 MiB (b) of their peaks."
static void memory_held(struct strbuf *text, const struct diff_memory *memory)
{
    for (int side = 0; side < 2; side++) {
        char *held = diff_text_bytes(memory->held[side]), *peak = diff_text_bytes(memory->peak[side]);
        bool told = isfinite(memory->peak[side]); // not of launches that were too short to be watched
        strbuf_add(text, "%s%s%s%s (%s)", side ? ", " : "Where they were stopped last, the traced launches held ", held,
                   told ? " of a peak of " : "", told ? peak : "", side ? "b" : "a");
        free(held);
        free(peak);
    }
    strbuf_add(text, ".");
    double held = memory->held[1] - memory->held[0], peak = memory->peak_b_bytes - memory->peak_a_bytes;
    if (held / peak > 1 - memory_freed_min)
        return;
    char *freed = diff_text_bytes_delta(peak - held);
    strbuf_add(text, " %s of the difference is of memory that was freed by then: it is in no part.", freed);
    free(freed);
}

// "The traced launches held 4.2 GiB at most, of it 4 GiB reserved by the framework's allocator (a), 5.1 GiB, of it 5 GiB (b)."
static void memory_held_gpu(struct strbuf *text, const struct diff_memory *memory)
{
    for (int side = 0; side < 2; side++) {
        char *held = diff_text_bytes(memory->held[side]), *reserved = diff_text_bytes(memory->peak[side]);
        strbuf_add(text, "%s%s%s, of it %s%s (%s)", side ? ", " : "The traced launches held ", held, side ? "" : " at most", reserved,
                   side ? "" : " reserved by the framework's allocator", side ? "b" : "a");
        free(reserved);
        free(held);
    }
    strbuf_add(text, ".");
}

char *diff_text_memory_answer(const struct diff_memory *memory)
{
    bool first = memory->peak_b_bytes > memory->peak_a_bytes;
    double other = first ? memory->less_bytes : memory->more_bytes;
    double rest = memory->held[1] - memory->held[0] - memory->more_bytes - memory->less_bytes;
    char *more = diff_text_bytes_delta(memory->more_bytes), *less = diff_text_bytes_delta(memory->less_bytes),
         *all_else = diff_text_bytes_delta(rest);
    struct strbuf text = {0};
    if (other != 0) {
        strbuf_add(&text, first ? "Less: " : "More: ");
        memory_list(&text, memory, !first);
        strbuf_add(&text, ". ");
    }
    if (memory->told_count && other != 0)
        strbuf_add(&text, "Together %s and %s, all else %s. ", first ? more : less, first ? less : more, all_else);
    else if (memory->told_count)
        strbuf_add(&text, "Together %s, all else %s. ", first ? more : less, all_else);
    (memory->gpu ? memory_held_gpu : memory_held)(&text, memory);
    free(all_else);
    free(less);
    free(more);
    return strbuf_take(&text);
}

char *diff_text_memory_part(const struct diff_memory_part *part)
{
    char *delta = diff_text_bytes_delta(part->b_bytes - part->a_bytes);
    char *a = diff_text_bytes(part->a_bytes), *b = diff_text_bytes(part->b_bytes);
    struct strbuf text = {0};
    strbuf_add(&text, "%s %s: %s -> %s", delta, diff_text_memory_name(part), a, b);
    if (part->name_a && part->name_b && strcmp(part->name_a, part->name_b) != 0)
        strbuf_add(&text, " (%s -> %s)", part->name_a, part->name_b);
    else if (!part->name_a != !part->name_b)
        strbuf_add(&text, " (%s only)", part->name_b ? "b" : "a");
    free(b);
    free(a);
    free(delta);
    return strbuf_take(&text);
}

// --- who touched it -------------------------------------------------------------------------------

char *diff_text_touch_name(const struct diff_touch *touch)
{
    struct strbuf text = {0};
    if (touch->caller)
        strbuf_add(&text, "%s", touch->caller);
    if (touch->caller_file)
        strbuf_add(&text, " (%s)", touch->caller_file);
    if (touch->outside)
        strbuf_add(&text, ", called by %s (%s)", touch->outside, touch->outside_file ? touch->outside_file : "");
    if (touch->function)
        strbuf_add(&text, "%s%s%s%s", touch->caller ? ", most by " : "", touch->function, touch->module ? " of " : "",
                   touch->module ? touch->module : "");
    return text.text ? strbuf_take(&text) : xstrdup("[unknown]");
}

static bool touch_at_start(const struct diff_touch *touch)
{
    bool b = touch->b_bytes > touch->a_bytes;
    return touch->start_bytes[b] > touch_start_min * (b ? touch->b_bytes : touch->a_bytes);
}

char *diff_text_touch(const struct diff_memory *memory, const struct diff_touch *touch)
{
    char *delta = diff_text_bytes_delta(touch->b_bytes - touch->a_bytes), *name = diff_text_touch_name(touch);
    char *a = diff_text_bytes(touch->a_bytes), *b = diff_text_bytes(touch->b_bytes);
    char *text = xasprintf("%s %s in %s: %s -> %s%s", delta, memory->gpu ? "allocated" : "first touched", name, a, b,
                           touch_at_start(touch) ? ", before the first step" : "");
    free(b);
    free(a);
    free(name);
    free(delta);
    return text;
}

static void touch_list(struct strbuf *text, const struct diff_memory *memory)
{
    for (size_t i = 0; i < memory->touch_told_count && i < MEMORY_TEXT_MAX; i++) {
        const struct diff_touch *touch = &memory->touches[i];
        char *delta = diff_text_bytes_delta(touch->b_bytes - touch->a_bytes), *name = diff_text_touch_name(touch);
        strbuf_add(text, "%s%s in %s", i ? "; " : "", delta, name);
        free(name);
        free(delta);
    }
    if (memory->touch_told_count > MEMORY_TEXT_MAX)
        strbuf_add(text, "; and %zu more", memory->touch_told_count - MEMORY_TEXT_MAX);
}

char *diff_text_memory_touched(const struct diff_memory *memory)
{
    if (!memory->part_count || !memory->touch_count)
        return NULL;
    struct strbuf text = {0};
    char *rest = diff_text_bytes_delta(memory->held[1] - memory->held[0] - memory->touch_more_bytes - memory->touch_less_bytes);
    if (memory->touch_told_count) {
        strbuf_add(&text, "By the code that %s: ", memory->gpu ? "allocated it" : "touched it first");
        touch_list(&text, memory);
        strbuf_add(&text, "; all else %s.", rest);
    } else {
        strbuf_add(&text, "No single piece of code accounts for the difference.");
    }
    if (memory->held[0] > 0 && memory->held[1] > 0)
        strbuf_add(&text, " %s: %.0f %% (a) and %.0f %% (b) of what was held lies at one.",
                   memory->gpu ? "Allocations are recorded" : "Page faults are sampled", 100 * memory->seen[0] / memory->held[0],
                   100 * memory->seen[1] / memory->held[1]);
    free(rest);
    return strbuf_take(&text);
}

bool diff_text_memory_first(const struct diff_memory *memory)
{
    return memory->part_count && memory->failed && !memory->time_failed;
}
