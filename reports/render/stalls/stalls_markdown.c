// SPDX-License-Identifier: Apache-2.0
// Stalls in Markdown, for an incident's page or a pull request: the answer, the causes as a table,
// the first few in full and folded. Built whole in memory; texts of the store cannot act as markup.
#include <math.h>
#include <stdlib.h>

#include "reports/render/stalls/stalls_heat.h"
#include "reports/render/stalls/stalls_text.h"
#include "reports/render/stalls/stalls_view.h"
#include "reports/render/stalls/stalls_what_if.h"
#include "reports/render/text/markdown_text.h"
#include "reports/render/text/screen.h"

enum { MARKDOWN_FRAMES_MAX = 20 };

static void markdown_stalls_rows(struct strbuf *out, const struct stall *stalls, size_t count,
        int64_t window_ns, size_t rows_max)
{
    strbuf_add(out, "|");
    for (int column = 0; column < STALLS_COLUMNS; column++)
        strbuf_add(out, " %s |", stalls_heads[column]);
    strbuf_add(out, "\n|");
    for (int column = 0; column < STALLS_COLUMNS; column++)
        strbuf_add(out, stalls_column_is_right(column) ? "--:|" : "---|");
    strbuf_add(out, "\n");
    for (size_t i = 0; i < count && i < rows_max; i++) {
        char *row[STALLS_COLUMNS];
        stalls_text_row(&stalls[i], i, window_ns, true, row);
        strbuf_add(out, "|");
        for (int column = 0; column < STALLS_COLUMNS; column++)
            markdown_take(out, " ", row[column], " |");
        strbuf_add(out, "\n");
    }
    if (count > rows_max)
        strbuf_add(out, "\n%zu more with less.\n", count - rows_max);
}

// Takes the text.
static void markdown_stalls_item(struct strbuf *out, const char *label, char *text)
{
    if (text && *text) {
        strbuf_add(out, "* **%s**: ", label);
        markdown_put(out, "", text, "\n");
    }
    free(text);
}

// Indented by four blanks it is code, whatever is in it.
static void markdown_stalls_stack(
        struct strbuf *out, const char *label, const struct stall_stack *stack)
{
    if (stack->count == 0)
        return;
    strbuf_add(out, "\n%s stack, leaf first:\n\n", label);
    for (size_t i = 0; i < stack->count && i < MARKDOWN_FRAMES_MAX; i++) {
        char *frame = stalls_text_frame(stack, i), *clean = screen_clean(frame, true);
        strbuf_add(out, "    %s\n", clean);
        free(clean);
        free(frame);
    }
}

static void markdown_stalls_detail(struct strbuf *out, const struct stall *stall, size_t i)
{
    strbuf_add(out, "\n<details%s><summary>%zu. ", i == 0 ? " open" : "", i + 1);
    markdown_html(out, stall->title);
    strbuf_add(out, "</summary>\n\n");
    markdown_stalls_item(out, "lost", stalls_text_lost(stall));
    markdown_stalls_item(out, "steps hit", stalls_text_steps(stall));
    if (!stall->is_straggler)
        markdown_stalls_item(out, "victim", stalls_text_thread(&stall->victim));
    markdown_stalls_item(out, "culprit",
            stall->is_straggler ? stalls_text_rank(stall) : stalls_text_thread(&stall->culprit));
    if (stall->is_straggler && stall->host)
        markdown_stalls_item(out, "on", xstrdup(stall->host));
    if (stall->is_straggler)
        markdown_stalls_item(out, "what", stalls_text_what(stall));
    if (stall->culprit.known && stall->culprit.cmdline)
        markdown_stalls_item(out, "its command", xstrdup(stall->culprit.cmdline));
    if (stall->culprit_function)
        markdown_stalls_item(out, "kernel function", xstrdup(stall->culprit_function));
    markdown_stalls_item(out, "over", stalls_text_resource(&stall->resource));
    for (size_t k = 0; k < stall->chain_count; k++)
        markdown_stalls_item(
                out, k ? "then" : "chain", stalls_text_link(stall, &stall->chain[k], true));
    markdown_stalls_item(out, "sure", stalls_text_sure(stall));
    markdown_stalls_item(out, "do", stalls_text_advice(stall));
    markdown_stalls_stack(out, "Kernel", &stall->victim_kernel);
    markdown_stalls_stack(out, "Native", &stall->victim_user);
    markdown_stalls_stack(out, "Python", &stall->victim_python);
    markdown_stalls_stack(out, "The culprit's kernel", &stall->culprit_kernel);
    markdown_stalls_stack(out, "The culprit's native", &stall->culprit_user);
    markdown_stalls_stack(out, "The culprit's Python", &stall->culprit_python);
    strbuf_add(out, "\n</details>\n");
}

static void markdown_stalls_what_if(struct strbuf *out, const struct stall_what_if *what_if)
{
    char *head = stalls_what_if_head(what_if);
    if (!head)
        return;
    markdown_take(out, "\n", head, "");
    strbuf_add(out, what_if->known ? "\n\n| what if | %s | change |\n|---|--:|--:|\n" : "\n",
            what_if->by_steps ? "a step" : "in all");
    for (int i = 0; i < STALLS_QUESTION_COUNT; i++) {
        double ns = stalls_what_if_ns(what_if, (enum stalls_question)i);
        if (!isfinite(ns))
            continue;
        markdown_take(out, "| ", stalls_what_if_question(what_if, (enum stalls_question)i), " | ");
        markdown_put(out, "", numbers_ns(ns, NUMBERS_BUFFER), " | ");
        markdown_put(out, "", stalls_what_if_change(what_if, ns, NUMBERS_BUFFER), " |\n");
    }
}

static void markdown_stalls_trust(struct strbuf *out, const struct stalls_shown *shown)
{
    const struct stalls *stalls = shown->stalls;
    strbuf_add(out, "\n");
    markdown_stalls_item(out, "recorded", stalls_text_watched(shown));
    if (stalls->breach_count == 0)
        strbuf_add(out, "* **trust**: ok, no event was dropped\n");
    for (size_t i = 0; i < stalls->breach_count; i++)
        markdown_stalls_item(out, "breach", stalls_text_breach(&stalls->breaches[i]));
    const char *blind = stalls_text_blind(shown->recording);
    markdown_stalls_item(out, "not seen", blind ? xstrdup(blind) : NULL);
    for (size_t i = 0; i < stalls->missing_count; i++)
        markdown_stalls_item(out, "not seen", stalls_text_missing(&stalls->missing[i]));
}

char *stalls_view_markdown(const struct stalls_view *view)
{
    struct strbuf out = {0};
    for (size_t i = 0; i < view->count; i++) {
        const struct stalls_shown *shown = &view->shown[i];
        strbuf_add(&out, "%s## Stalls: ", i ? "\n" : "");
        markdown_take(&out, "", stalls_text_recording(shown->recording), "\n\n**");
        char *why_not = stalls_view_nothing(shown);
        markdown_take(&out, "", why_not ? why_not : stalls_text_answer(shown), "**\n\n");
        const struct stalls *stalls = shown->stalls;
        if (stalls->count)
            markdown_stalls_rows(
                    &out, stalls->stalls, stalls->count, stalls->window_ns, view->rows_max);
        markdown_stalls_what_if(&out, &stalls->what_if);
        stalls_heat_markdown(&out, &stalls->heat);
        for (size_t k = 0; k < shown->stalls->count && k < view->details_max; k++)
            markdown_stalls_detail(&out, &shown->stalls->stalls[k], k);
        if (stalls->outside_count) {
            markdown_take(&out, "\n### ", stalls_text_outside(stalls), "\n\n");
            markdown_stalls_rows(&out, stalls->outside, stalls->outside_count,
                    stalls->startup_ns + stalls->exit_ns, view->rows_max);
        }
        markdown_stalls_trust(&out, shown);
    }
    return strbuf_take(&out);
}
