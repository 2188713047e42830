// SPDX-License-Identifier: Apache-2.0
// The terminal table of a difference: how the step changed, what both sides spent it on, what the
// change is made of with place, interval, evidence and suspects, and what weakens the answer. Every
// text of the store is cleaned on its way.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/units.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/diff/diff_words.h"
#include "reports/render/text/numbers.h"
#include "reports/render/text/table.h"

enum {
    DIFF_BRIEF = 3,
    DIFF_NAMED_MAX = 20,  // told in full
    DIFF_UNNAMED_MAX = 3, // shown when nothing is named
    DIFF_FIRST_MAX = 5,   // parts of the first step
    DIFF_FIRST_EVIDENCE = 2,
    DIFF_SLOW_MAX = 5, // parts of slow steps, without --all
    DIFF_SLOW_SUSPECTS = 2,
    DIFF_COLLECTIVES = 4, // kinds of them, without --all
    DIFF_MEMORY_MAX = 8,  // kinds and files, without --all
    DIFF_PARTS_WIDTH = 30,
    DIFF_NUMBER_WIDTH = 10
};

// Of a step, as for what is named: less is not worth its lines.
static const double diff_unnamed_min = 0.002;

static enum screen_style diff_style(double delta_ns)
{
    return delta_ns > 0 ? SCREEN_STYLE_FAIL : SCREEN_STYLE_PASS;
}

static void diff_paragraph(struct table *table, enum screen_style style, char *text)
{
    table_paragraph(table, style, text);
    free(text);
}

static void diff_head(struct table *table, const struct diff_workload *workload)
{
    bool told = workload->delta_lo_ns * workload->delta_hi_ns > 0;
    diff_paragraph(table, told ? diff_style(workload->delta_ns) : SCREEN_STYLE_BOLD,
            diff_text_headline(workload));
}

static void diff_parts(struct table *table, const struct diff_workload *workload)
{
    struct strbuf head = {0};
    char *what = xasprintf("what the %s was spent on", workload->unit);
    screen_pad(&head, what, DIFF_PARTS_WIDTH, false);
    free(what);
    screen_pad(&head, "baseline", DIFF_NUMBER_WIDTH, true);
    screen_pad(&head, "candidate", DIFF_NUMBER_WIDTH, true);
    screen_pad(&head, "change", DIFF_NUMBER_WIDTH, true);
    strbuf_add(&table->out, "\n");
    screen_style(&table->out, SCREEN_STYLE_DIM, table->color, head.text);
    strbuf_add(&table->out, "\n");
    strbuf_free(&head);
    for (int class = 0; class < COST_CLASS_COUNT; class ++) {
        const struct diff_part *part = &workload->parts[class];
        if (part->a_ns < 1e-4 * workload->step_a_ns && part->b_ns < 1e-4 * workload->step_a_ns)
            continue;
        screen_pad(&table->out, diff_text_class((enum cost_class) class), DIFF_PARTS_WIDTH, false);
        screen_pad(&table->out, numbers_ns(part->a_ns, NUMBERS_BUFFER), DIFF_NUMBER_WIDTH, true);
        screen_pad(&table->out, numbers_ns(part->b_ns, NUMBERS_BUFFER), DIFF_NUMBER_WIDTH, true);
        screen_pad(&table->out, numbers_delta(part->b_ns - part->a_ns, NUMBERS_BUFFER),
                DIFF_NUMBER_WIDTH, true);
        strbuf_add(&table->out, "\n");
    }
}

static void diff_line(struct table *table, const char *label, char *text)
{
    if (text && *text)
        table_line(table, label, SCREEN_STYLE_DIM, text);
    free(text);
}

static char *diff_change(
        const struct diff_workload *workload, const struct diff_contribution *contribution)
{
    char *interval = diff_text_interval(contribution);
    const char *share = diff_text_share(contribution->share, NUMBERS_BUFFER);
    struct strbuf text = {0};
    if (strcmp(interval, "-") != 0)
        strbuf_add(&text, "99 %% interval %s", interval);
    else
        strbuf_add(&text, "no interval: one traced pair gives none");
    if (strcmp(share, "-") != 0)
        strbuf_add(&text, "; %s of a %s", share, workload->unit);
    free(interval);
    return strbuf_take(&text);
}

static void diff_contribution(struct table *table, const struct diff_workload *workload,
        const struct diff_contribution *contribution)
{
    char *title = diff_text_title(contribution), *clean = screen_clean(title, table->utf8);
    char *number = xasprintf("%d. ", contribution->rank);
    struct strbuf head = {0};
    screen_pad(&head, numbers_delta(contribution->delta_ns, NUMBERS_BUFFER), DIFF_NUMBER_WIDTH - 1,
            true);
    strbuf_add(&table->out, "\n%s", number);
    screen_style(&table->out,
            contribution->named ? diff_style(contribution->delta_ns) : SCREEN_STYLE_DIM,
            table->color, head.text);
    strbuf_add(&table->out, "  ");
    const char *doubt = contribution->named ? "" : " (not told from noise)";
    char *fit = screen_fit(clean,
            table->width - DIFF_NUMBER_WIDTH - (int)strlen(number) - 1 - (int)strlen(doubt),
            table->utf8);
    screen_style(&table->out, contribution->named ? SCREEN_STYLE_BOLD : SCREEN_STYLE_DIM,
            table->color, fit);
    strbuf_add(&table->out, "%s\n", doubt);
    strbuf_free(&head);
    free(fit);
    free(number);
    free(clean);
    free(title);
    diff_line(table, "  change", diff_change(workload, contribution));
    if (contribution->where && *contribution->where)
        diff_line(table, "  where", xstrdup(contribution->where));
    for (size_t i = 0; i < contribution->evidence_count; i++)
        diff_line(table, i ? "" : "  evidence", diff_text_evidence(&contribution->evidence[i]));
    for (size_t i = 0; i < contribution->suspect_count; i++)
        diff_line(table, i ? "" : "  suspects", diff_text_suspect(&contribution->suspects[i]));
}

// What is named makes two lists.
static void diff_list_head(struct table *table, const struct diff_workload *workload, bool slower)
{
    char *sum = diff_text_list_sum(workload, slower);
    strbuf_add(&table->out, "\n");
    screen_style(&table->out, SCREEN_STYLE_BOLD, table->color, sum);
    strbuf_add(&table->out, "\n");
    free(sum);
}

static void diff_contributions(
        struct table *table, const struct diff_view *view, const struct diff_workload *workload)
{
    size_t named = 0, shown = 0;
    for (size_t i = 0; i < workload->contribution_count; i++)
        named += workload->contributions[i].named;
    size_t max = view->all ? SIZE_MAX
            : named        ? (named < DIFF_NAMED_MAX ? named : DIFF_NAMED_MAX)
                           : DIFF_UNNAMED_MAX;
    int list = 0;
    for (size_t i = 0; i < workload->contribution_count && shown < max; i++, shown++) {
        const struct diff_contribution *contribution = &workload->contributions[i];
        if (!view->all && !contribution->named &&
                fabs(contribution->delta_ns) < diff_unnamed_min * workload->step_a_ns)
            break;
        int of = contribution->named ? contribution->delta_ns > 0 ? 1 : -1 : 0;
        if (of && of != list)
            diff_list_head(table, workload, of > 0);
        list = of;
        diff_contribution(table, workload, contribution);
    }
    double rest = 0;
    for (size_t i = shown; i < workload->contribution_count; i++)
        rest += workload->contributions[i].delta_ns;
    size_t more = workload->contribution_count - shown;
    strbuf_add(&table->out, "\n");
    if (more)
        diff_line(table, "the rest",
                xasprintf("%zu more, together %s%s", more, numbers_delta(rest, NUMBERS_BUFFER),
                        view->all || !view->path ? "" : "; --all lists them"));
    diff_line(table, "residual",
            fabs(workload->residual_ns) < 0.5
                    ? xstrdup("nothing: all of them sum to the difference")
                    : xasprintf("%s are in none of them",
                              numbers_delta(workload->residual_ns, NUMBERS_BUFFER)));
}

static void diff_collectives(
        struct table *table, const struct diff_view *view, const struct diff_workload *workload)
{
    diff_line(table, "collectives", diff_text_collectives(workload));
    for (size_t i = 0; i < workload->collective_count && (view->all || i < DIFF_COLLECTIVES); i++)
        diff_line(table, "", diff_text_collective(workload, &workload->collectives[i]));
}

static void diff_stragglers(
        struct table *table, const struct diff_view *view, const struct diff_workload *workload)
{
    size_t shown = 0;
    for (size_t i = 0; i < workload->straggler_count; i++) {
        const struct diff_straggler *straggler = &workload->stragglers[i];
        if (!view->all && !straggler->told)
            continue; // some rank always comes last
        bool hidden = straggler->exposed_ns < straggler->wait_ns;
        char *deed = diff_text_deed(straggler);
        diff_line(table, shown++ ? "" : "straggler",
                xasprintf("%s: rank %d came last to %lld of %lld collectives, by %s; the others "
                          "wait %s a %s%s%s%s%s",
                        straggler->side ? "b" : "a", straggler->rank,
                        (long long)straggler->last_count, (long long)straggler->collectives,
                        numbers_ns(straggler->late_ns, NUMBERS_BUFFER),
                        numbers_ns(straggler->wait_ns, NUMBERS_BUFFER), workload->unit,
                        hidden ? ", of which nothing hides " : "",
                        hidden ? numbers_ns(straggler->exposed_ns, NUMBERS_BUFFER) : "",
                        deed ? "; meanwhile " : "", deed ? deed : ""));
        free(deed);
    }
}

static void diff_basis(struct table *table, const struct diff_workload *workload)
{
    char traced[160];
    unit_format_traced(traced, sizeof traced, workload->unit, workload->traced_ratio);
    diff_line(table, "made of",
            xasprintf("%zu traced pair%s, %zu and %zu windows; %.1f %% of the time matched; %s",
                    workload->traced_pairs, workload->traced_pairs == 1 ? "" : "s",
                    workload->windows[0], workload->windows[1], 100 * workload->match_coverage,
                    traced));
    diff_line(table, "first step", diff_text_first(workload));
    for (size_t i = 0; i < workload->first.part_count && i < DIFF_FIRST_MAX; i++) {
        const struct diff_contribution *part = &workload->first.parts[i].contribution;
        diff_line(table, "", diff_text_launch_part(&workload->first.parts[i], true));
        for (size_t k = 1; k < part->evidence_count && k <= DIFF_FIRST_EVIDENCE; k++)
            diff_line(table, "", diff_text_evidence(&part->evidence[k])); // the first: the times
    }
    for (size_t i = 0; i < workload->note_count; i++)
        table_take(table, i ? "" : "note", SCREEN_STYLE_INCONCLUSIVE,
                diff_text_note(&workload->notes[i]));
}

static void diff_brief(struct table *table, const struct diff_workload *workload)
{
    size_t shown = 0;
    if (workload->late)
        diff_line(table, shown++ ? "" : "  because", diff_text_late(workload->late));
    for (size_t i = 0; i < workload->contribution_count && shown < DIFF_BRIEF; i++) {
        const struct diff_contribution *contribution = &workload->contributions[i];
        if (!contribution->named)
            continue;
        char *title = diff_text_title(contribution);
        bool place = contribution->where && *contribution->where;
        diff_line(table, shown++ ? "" : "  because",
                xasprintf("%s %s%s%s", numbers_delta(contribution->delta_ns, NUMBERS_BUFFER), title,
                        place ? ", in " : "", place ? contribution->where : ""));
        free(title);
    }
    if (shown == 0)
        diff_line(table, "  because", diff_text_answer(workload));
}

static void diff_memory_section(struct table *table, const struct diff_view *view,
        const struct diff_workload *workload, const struct diff_memory *memory)
{
    char *headline = diff_text_memory(workload, memory);
    if (!headline)
        return;
    diff_paragraph(table, diff_style(memory->peak_b_bytes - memory->peak_a_bytes), headline);
    if (view->brief)
        return;
    diff_paragraph(table, SCREEN_STYLE_PLAIN, diff_text_memory_answer(memory));
    size_t max = view->all                         ? memory->part_count
            : memory->told_count < DIFF_MEMORY_MAX ? memory->told_count
                                                   : DIFF_MEMORY_MAX;
    for (size_t i = 0; i < max; i++)
        diff_line(table,
                i                     ? ""
                        : memory->gpu ? "GPU memory"
                                      : "memory",
                diff_text_memory_part(&memory->parts[i]));
    char *touched = diff_text_memory_touched(memory);
    if (!touched)
        return;
    diff_paragraph(table, SCREEN_STYLE_PLAIN, touched);
    max = view->all ? memory->touch_count : memory->touch_told_count;
    for (size_t i = 0; i < max && i < DIFF_MEMORY_MAX; i++)
        diff_line(table,
                i                     ? ""
                        : memory->gpu ? "allocated"
                                      : "touched",
                diff_text_touch(memory, &memory->touches[i]));
}

static void diff_slow_section(
        struct table *table, const struct diff_view *view, const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    char *headline =
            view->brief && !slow->failed && !slow->part_count ? NULL : diff_text_slow(workload);
    if (!headline)
        return;
    diff_paragraph(table,
            slow->part_count ? diff_style(slow->b_ns - slow->a_ns) : SCREEN_STYLE_INCONCLUSIVE,
            headline);
    if (view->brief)
        return;
    diff_paragraph(table, SCREEN_STYLE_PLAIN, diff_text_slow_answer(workload));
    for (size_t i = 0; i < slow->part_count && (view->all || i < DIFF_SLOW_MAX); i++) {
        const struct diff_contribution *part = &slow->parts[i].contribution;
        diff_line(table, i ? "" : "slow", diff_text_slow_part(&slow->parts[i]));
        for (size_t k = 0; k < part->suspect_count && k < DIFF_SLOW_SUSPECTS; k++) {
            char *suspect = diff_text_suspect(&part->suspects[k]);
            diff_line(table, "", xasprintf("suspect: %s", suspect));
            free(suspect);
        }
    }
}

static void diff_cpu_section(
        struct table *table, const struct diff_view *view, const struct diff_workload *workload)
{
    const struct diff_once *cpu = &workload->cpu;
    char *headline = view->brief && !cpu->part_count ? NULL : diff_text_cpu(workload);
    if (!headline)
        return;
    diff_paragraph(table,
            cpu->part_count ? diff_style(workload->cpu_b_ns - workload->cpu_a_ns)
                            : SCREEN_STYLE_INCONCLUSIVE,
            headline);
    char *places = diff_text_cpu_answer(workload);
    if (view->brief || !places)
        free(places);
    else
        diff_paragraph(table, SCREEN_STYLE_PLAIN, places);
    for (size_t i = 0; !view->brief && i < cpu->part_count && (view->all || i < DIFF_FIRST_MAX);
            i++) {
        const struct diff_contribution *part = &cpu->parts[i].contribution;
        diff_line(table, i ? "" : "CPU time", diff_text_launch_part(&cpu->parts[i], true));
        for (size_t k = 0; k < part->evidence_count && k < DIFF_FIRST_EVIDENCE; k++)
            diff_line(table, "", diff_text_evidence(&part->evidence[k]));
    }
}

static void diff_section(
        struct table *table, const struct diff_view *view, const struct diff_workload *workload)
{
    const struct diff_memory *memories[] = {&workload->memory, &workload->gpu_memory};
    bool memory_first = false, slow_first = diff_text_slow_first(workload);
    for (int i = 0; i < 2; i++)
        if (diff_text_memory_first(memories[i])) {
            diff_memory_section(table, view, workload, memories[i]);
            memory_first = true;
        }
    if (slow_first)
        diff_slow_section(table, view, workload);
    if ((memory_first || slow_first) && !view->brief)
        strbuf_add(&table->out, "\n");
    diff_head(table, workload);
    if (view->brief)
        diff_brief(table, workload);
    else
        diff_paragraph(table, SCREEN_STYLE_PLAIN, diff_text_answer(workload));
    if (!slow_first)
        diff_slow_section(table, view, workload);
    for (int i = 0; i < 2; i++)
        if (!diff_text_memory_first(memories[i]))
            diff_memory_section(table, view, workload, memories[i]);
    diff_cpu_section(table, view, workload);
    if (view->brief || workload->unexplained)
        return;
    diff_parts(table, workload);
    diff_contributions(table, view, workload);
    diff_collectives(table, view, workload);
    diff_stragglers(table, view, workload);
    diff_basis(table, workload);
}

int diff_view_table(const struct diff_view *view, const struct render_opts *opts, FILE *stream,
        struct error *err)
{
    struct table table = table_begin(
            opts->width > 0 ? opts->width : RENDER_WIDTH_DEFAULT, opts->color, opts->utf8);
    for (size_t i = 0; i < view->diff->workload_count; i++) {
        strbuf_add(&table.out, i ? "\n" : "");
        diff_section(&table, view, &view->diff->workloads[i]);
    }
    return table_end(&table, stream, "the difference", err);
}
