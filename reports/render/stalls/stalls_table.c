// SPDX-License-Identifier: Apache-2.0
// The terminal table of stalls: the answer first, then all causes by what they cost, the first few
// in full, what the answer rests on, and what to do next. Reads what was found, writes the stream.
// Every text of the store is cleaned on its way.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/render/stalls/stalls_grid.h"
#include "reports/render/stalls/stalls_heat.h"
#include "reports/render/stalls/stalls_text.h"
#include "reports/render/stalls/stalls_view.h"
#include "reports/render/stalls/stalls_what_if.h"
#include "reports/render/text/table.h"

enum {
    STALLS_KERNEL_MAX = 6, // frames of a line
    STALLS_USER_MAX = 5,
    STALLS_CMDLINE_MAX = 240, // columns of a command line
    STALLS_MISSING_MAX = 8
};

// Below a hundredth of the window nobody needs to get up.
static enum screen_style stalls_style(const struct stalls *stalls)
{
    if (stalls->count == 0)
        return stalls->quiet.known || stalls_text_dropped(stalls) > 0 ? SCREEN_STYLE_INCONCLUSIVE
                                                                      : SCREEN_STYLE_PASS;
    return stalls_text_fraction(stalls, &stalls->stalls[0]) < 0.01 ? SCREEN_STYLE_INCONCLUSIVE
                                                                   : SCREEN_STYLE_FAIL;
}

static void stalls_answer(struct table *table, const struct stalls_shown *shown)
{
    char *why_not = stalls_view_nothing(shown);
    char *answer = why_not ? why_not : stalls_text_answer(shown);
    table_paragraph(table, why_not ? SCREEN_STYLE_INCONCLUSIVE : stalls_style(shown->stalls), answer);
    free(answer);
}

// A line of the details; nothing for an empty text. Takes the text.
static void stalls_line(struct table *table, const char *label, char *text)
{
    if (text && *text)
        table_line(table, label, SCREEN_STYLE_BOLD, text);
    free(text);
}

static void stalls_stacks(struct table *table, const struct stall *stall)
{
    stalls_line(table, "  kernel",
                stalls_text_stack(&stall->victim_kernel, STALLS_KERNEL_MAX, table->utf8));
    stalls_line(table, "  native",
                stalls_text_stack(&stall->victim_user, STALLS_USER_MAX, table->utf8));
    stalls_line(table, "  python",
                stalls_text_stack(&stall->victim_python, STALLS_USER_MAX, table->utf8));
}

static void stalls_culprit(struct table *table, const struct stall *stall)
{
    if (!stall->culprit.known) {
        stalls_line(table, "culprit", xstrdup("nobody: none was seen, or the cause needs none"));
        return;
    }
    stalls_line(table, "culprit", stalls_text_thread(&stall->culprit));
    if (stall->culprit.cmdline) {
        char *clean = screen_clean(stall->culprit.cmdline, table->utf8);
        stalls_line(table, "  command", screen_fit(clean, STALLS_CMDLINE_MAX, table->utf8));
        free(clean);
    }
    char *stack = stalls_text_stack(&stall->culprit_kernel, STALLS_KERNEL_MAX, table->utf8);
    size_t len = stall->culprit_function ? strlen(stall->culprit_function) : 0;
    if (len && strncmp(stack, stall->culprit_function, len) == 0 &&
        (!stack[len] || stack[len] == ' '))
        stalls_line(table, "  in", xstrdup(stack)); // it is the leaf of the stack
    else if (stall->culprit_function && *stack)
        stalls_line(table, "  in", xasprintf("%s: %s", stall->culprit_function, stack));
    else if (stall->culprit_function || *stack)
        stalls_line(table, "  in",
                    xstrdup(stall->culprit_function ? stall->culprit_function : stack));
    free(stack);
}

static void stalls_straggler(struct table *table, const struct stall *stall)
{
    char *who = stalls_text_rank(stall);
    stalls_line(table, "culprit", stall->host ? xasprintf("%s on %s", who, stall->host) : xstrdup(who));
    free(who);
    stalls_line(table, "  late", xstrdup(numbers_ns((double)stall->late_ns, NUMBERS_BUFFER)));
    stalls_line(table, "  what", stalls_text_what(stall));
    stalls_line(table, "  native", stalls_text_stack(&stall->culprit_user, STALLS_USER_MAX, table->utf8));
    stalls_line(table, "  python", stalls_text_stack(&stall->culprit_python, STALLS_USER_MAX, table->utf8));
}

static void stalls_chain(struct table *table, const struct stall *stall)
{
    // One link says what victim and culprit say already; only what it went by is news.
    if (stall->chain_count == 1 && stall->chain[0].via && !stall->resource)
        stalls_line(table, "by", xstrdup(stall->chain[0].via));
    for (size_t i = 0; stall->chain_count > 1 && i < stall->chain_count; i++)
        stalls_line(table, i ? "" : "chain",
                    stalls_text_link(stall, &stall->chain[i], table->utf8));
}

static void stalls_detail(struct table *table, const struct stalls *stalls, size_t i)
{
    const struct stall *stall = &stalls->stalls[i];
    char *title = screen_clean(stall->title ? stall->title : stall->cause, table->utf8);
    char *head = xasprintf("%zu. %s", i + 1, title);
    strbuf_add(&table->out, "\n");
    screen_style(&table->out, SCREEN_STYLE_BOLD, table->color, head);
    strbuf_add(&table->out, " (%s)\n", stall->cause);
    free(head);
    free(title);
    stalls_line(table, "lost", stalls_text_lost(stall));
    stalls_line(table, "steps hit", stalls_text_steps(stall));
    if (stall->is_straggler) {
        stalls_straggler(table, stall);
    } else {
        stalls_line(table, "victim", stalls_text_thread(&stall->victim));
        stalls_stacks(table, stall);
        stalls_culprit(table, stall);
    }
    if (stall->has_period)
        stalls_line(table, "  every", xstrdup(numbers_ns((double)stall->period_ns, NUMBERS_BUFFER)));
    if (stall->resource)
        stalls_line(table, "over", xstrdup(stall->resource));
    stalls_chain(table, stall);
    const char *note = stall->confidence_note;
    stalls_line(table, "sure", xasprintf("%s%s%s", stalls_text_confidence(stall->confidence, NUMBERS_BUFFER), note ? ": " : "", note ? note : ""));
    if (stall->advice) {
        char *advice = stalls_text_advice(stall);
        table_line(table, "do", SCREEN_STYLE_PASS, advice);
        free(advice);
    }
}

static void stalls_trust(struct table *table, const struct stalls_shown *shown)
{
    const struct stalls *stalls = shown->stalls;
    stalls_line(table, "recorded", stalls_text_watched(shown));
    if (stalls->breach_count == 0)
        table_line(table, "trust", SCREEN_STYLE_PASS, "ok: no event was dropped");
    for (size_t i = 0; i < stalls->breach_count; i++) {
        char *breach = stalls_text_breach(&stalls->breaches[i]);
        char *text = xasprintf("%s%s", i ? "" : "BREACHED: ", breach);
        table_line(table, i ? "" : "trust", SCREEN_STYLE_INCONCLUSIVE, text);
        free(text);
        free(breach);
    }
    bool blind = !shown->recording->python && stalls_text_is_python(&shown->recording->target);
    if (blind)
        stalls_line(table, "not seen", xstrdup("Python stacks: they were not walked"));
    for (size_t i = 0; i < stalls->missing_count && i < STALLS_MISSING_MAX; i++)
        stalls_line(table, i || blind ? "" : "not seen", xstrdup(stalls->missing[i]));
    if (stalls->missing_count > STALLS_MISSING_MAX)
        stalls_line(table, "",
                    xasprintf("%zu more: select missing from recording",
                              stalls->missing_count - STALLS_MISSING_MAX));
}

static void stalls_more(struct table *table, const struct stalls_view *view,
                        const struct stalls_shown *shown)
{
    char *clean = screen_clean(view->path, table->utf8);
    struct strbuf line = {0};
    strbuf_add(&line, "\n%zu more in full: upgate stalls %s --all",
               shown->stalls->count - view->details_max, clean);
    if (view->count > 1)
        strbuf_add(&line, " --recording %lld", (long long)shown->recording->id);
    screen_style(&table->out, SCREEN_STYLE_DIM, table->color, line.text);
    strbuf_add(&table->out, "\n");
    strbuf_free(&line);
    free(clean);
}

// Of several recordings the one that lost most speaks first.
static void stalls_worst(struct table *table, const struct stalls_view *view)
{
    const struct stalls_shown *worst = &view->shown[0];
    double most = 0;
    size_t mute = 0;
    for (size_t i = 0; i < view->count; i++) {
        const struct stalls *stalls = view->shown[i].stalls;
        double share = stalls->count ? stalls_text_fraction(stalls, &stalls->stalls[0]) : 0;
        char *why_not = stalls_view_nothing(&view->shown[i]);
        mute += why_not != NULL;
        free(why_not);
        if (share > most) {
            most = share;
            worst = &view->shown[i];
        }
    }
    char *name = stalls_text_recording(worst->recording), *answer = stalls_text_answer(worst);
    char *text = most > 0 ? xasprintf("Worst of %zu recordings, %s: %s", view->count, name, answer)
                 : mute
                     ? xasprintf("No stall found in %zu of %zu recordings; the others say nothing",
                                 view->count - mute, view->count)
                     : xasprintf("No stall found in %zu recordings", view->count);
    table_paragraph(table, SCREEN_STYLE_PLAIN, text);
    strbuf_add(&table->out, "\n");
    free(text);
    free(answer);
    free(name);
}

// What happens once is told behind what happens in every step, and in short.
static void stalls_outside(struct table *table, const struct stalls *stalls, size_t rows_max)
{
    enum { ROWS_MAX = 5 };
    char *head = stalls_text_outside(stalls);
    strbuf_add(&table->out, "\n");
    screen_style(&table->out, SCREEN_STYLE_BOLD, table->color, head);
    strbuf_add(&table->out, "\n");
    free(head);
    stalls_grid(table, stalls->outside, stalls->outside_count, stalls->startup_ns + stalls->exit_ns,
                rows_max < SIZE_MAX && rows_max > ROWS_MAX ? ROWS_MAX : rows_max);
}

// A line a question, behind what the job took.
static void stalls_what_if(struct table *table, const struct stall_what_if *what_if)
{
    enum { QUESTION = 34, TIME = 10, CHANGE = 9 };
    char *head = stalls_what_if_head(what_if);
    if (!head)
        return;
    strbuf_add(&table->out, "\n");
    table_paragraph(table, SCREEN_STYLE_PLAIN, head);
    for (int i = 0; i < STALLS_QUESTION_COUNT; i++) {
        double ns = stalls_what_if_ns(what_if, (enum stalls_question)i);
        if (!isfinite(ns))
            continue;
        char *question = stalls_what_if_question(what_if, (enum stalls_question)i);
        screen_pad(&table->out, question, QUESTION, false);
        screen_pad(&table->out, numbers_ns(ns, NUMBERS_BUFFER), TIME, true);
        screen_pad(&table->out, stalls_what_if_change(what_if, ns, NUMBERS_BUFFER), CHANGE, true);
        strbuf_add(&table->out, "\n");
        free(question);
    }
    free(head);
}

static void stalls_section(struct table *table, const struct stalls_view *view, size_t i)
{
    const struct stalls_shown *shown = &view->shown[i];
    if (view->count > 1) {
        char *name = stalls_text_recording(shown->recording);
        char *clean = screen_clean(name, table->utf8);
        strbuf_add(&table->out, i ? "\n" : "");
        screen_style(&table->out, SCREEN_STYLE_BOLD, table->color, clean);
        strbuf_add(&table->out, "\n");
        free(clean);
        free(name);
    }
    stalls_answer(table, shown);
    const struct stalls *stalls = shown->stalls;
    if (stalls->count)
        strbuf_add(&table->out, "\n");
    stalls_grid(table, stalls->stalls, stalls->count, stalls->window_ns, view->rows_max);
    stalls_what_if(table, &stalls->what_if);
    if (view->heat)
        stalls_heat_table(table, &stalls->heat);
    for (size_t k = view->details_from; k < stalls->count && k - view->details_from < view->details_max; k++)
        stalls_detail(table, stalls, k);
    if (view->path && stalls->count > view->details_max)
        stalls_more(table, view, shown);
    if (stalls->outside_count)
        stalls_outside(table, stalls, view->rows_max);
    strbuf_add(&table->out, "\n");
    stalls_trust(table, shown);
}

int stalls_view_table(const struct stalls_view *view, const struct render_opts *opts, FILE *stream,
                      struct error *err)
{
    struct table table = table_begin(opts->width > 0 ? opts->width : RENDER_WIDTH_DEFAULT, opts->color, opts->utf8);
    if (view->count > 1)
        stalls_worst(&table, view);
    for (size_t i = 0; i < view->count; i++)
        stalls_section(&table, view, i);
    return table_end(&table, stream, "the stalls", err);
}
