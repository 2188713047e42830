// SPDX-License-Identifier: Apache-2.0
// The section of the Markdown report: where the difference comes from. The answer and a table of
// what is named a workload, evidence and suspects folded below. Texts of the store cannot act as
// markup. Pure; the caller frees.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/render/diff/diff_view.h"
#include "reports/render/text/markdown_text.h"
#include "reports/render/text/numbers.h"

enum { DIFF_MARKDOWN_ROWS = 15, DIFF_MARKDOWN_BYTES = 200000 };

static void diff_markdown_text(struct strbuf *out, char *text)
{
    markdown_text(out, text);
    free(text);
}

static void diff_markdown_row(struct strbuf *out, const struct diff_contribution *contribution)
{
    strbuf_add(out, "| %d | %s | ", contribution->rank, diff_title(contribution));
    markdown_name(out, contribution->label ? contribution->label : "");
    strbuf_add(out, " | ");
    markdown_text(out, contribution->where ? contribution->where : "");
    strbuf_add(out, " | **");
    markdown_text(out, diff_text_delta(contribution->delta_ns, NUMBERS_BUFFER));
    strbuf_add(out, "** | ");
    diff_markdown_text(out, diff_text_interval(contribution));
    strbuf_add(out, " | ");
    markdown_text(out, diff_text_share(contribution->share, NUMBERS_BUFFER));
    strbuf_add(out, " |\n");
}

static void diff_markdown_list(struct strbuf *out, const char *what, const char *const *texts,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        strbuf_add(out, "  - %s", what);
        markdown_text(out, texts[i]);
        strbuf_add(out, "\n");
    }
}

static void diff_markdown_details(struct strbuf *out, const struct diff_workload *workload,
                                  size_t count)
{
    strbuf_add(out, "<details><summary>Evidence and suspects</summary>\n\n");
    for (size_t i = 0; i < count && out->len < DIFF_MARKDOWN_BYTES; i++) {
        const struct diff_contribution *contribution = &workload->contributions[i];
        strbuf_add(out, "- ");
        diff_markdown_text(out, diff_text_title(contribution));
        strbuf_add(out, "\n");
        diff_markdown_list(out, "", contribution->evidence, contribution->evidence_count);
        diff_markdown_list(out, "suspect: ", contribution->suspects, contribution->suspect_count);
    }
    for (size_t i = 0; i < workload->note_count; i++) {
        strbuf_add(out, "- note: ");
        markdown_text(out, workload->notes[i]);
        strbuf_add(out, "\n");
    }
    strbuf_add(out, "\n</details>\n\n");
}

static void diff_markdown_first(struct strbuf *out, const struct diff_workload *workload)
{
    if (!workload->first.part_count)
        return;
    strbuf_add(out, "First step, ");
    diff_markdown_text(out, diff_text_first(workload));
    strbuf_add(out, ":\n\n");
    for (size_t i = 0; i < workload->first.part_count && out->len < DIFF_MARKDOWN_BYTES; i++) {
        strbuf_add(out, "- ");
        const struct diff_contribution *part = &workload->first.parts[i].contribution;
        diff_markdown_text(out, diff_text_launch_part(&workload->first.parts[i], true));
        strbuf_add(out, "\n");
        if (part->evidence_count > 1) // the first one says the times again
            diff_markdown_list(out, "", part->evidence + 1, part->evidence_count - 1);
    }
    strbuf_add(out, "\n");
}

static void diff_markdown_collectives(struct strbuf *out, const struct diff_workload *workload)
{
    if (!workload->collective_count)
        return;
    strbuf_add(out, "Collectives: ");
    diff_markdown_text(out, diff_text_collectives(workload));
    strbuf_add(out, ".\n\n");
    for (size_t i = 0; i < workload->collective_count && i < DIFF_MARKDOWN_ROWS; i++) {
        strbuf_add(out, "- ");
        diff_markdown_text(out, diff_text_collective(workload, &workload->collectives[i]));
        strbuf_add(out, "\n");
    }
    strbuf_add(out, "\n");
}

static void diff_markdown_memory(struct strbuf *out, const struct diff_workload *workload, const struct diff_memory *memory)
{
    char *headline = diff_text_memory(workload, memory);
    if (!headline)
        return;
    strbuf_add(out, "**");
    diff_markdown_text(out, headline);
    strbuf_add(out, "**\n\n");
    diff_markdown_text(out, diff_text_memory_answer(memory));
    strbuf_add(out, "\n\n");
    for (size_t i = 0; i < memory->told_count && i < DIFF_MARKDOWN_ROWS; i++) {
        strbuf_add(out, "- ");
        diff_markdown_text(out, diff_text_memory_part(&memory->parts[i]));
        strbuf_add(out, "\n");
    }
    strbuf_add(out, memory->told_count ? "\n" : "");
    char *touched = diff_text_memory_touched(memory);
    if (!touched)
        return;
    diff_markdown_text(out, touched);
    strbuf_add(out, "\n\n");
    for (size_t i = 0; i < memory->touch_told_count && i < DIFF_MARKDOWN_ROWS; i++) {
        strbuf_add(out, "- ");
        diff_markdown_text(out, diff_text_touch(memory, &memory->touches[i]));
        strbuf_add(out, "\n");
    }
    strbuf_add(out, memory->touch_told_count ? "\n" : "");
}

static void diff_markdown_slow(struct strbuf *out, const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    char *headline = diff_text_slow(workload);
    if (!headline)
        return;
    strbuf_add(out, "**");
    diff_markdown_text(out, headline);
    strbuf_add(out, "**\n\n");
    diff_markdown_text(out, diff_text_slow_answer(workload));
    strbuf_add(out, "\n\n");
    for (size_t i = 0; i < slow->part_count && out->len < DIFF_MARKDOWN_BYTES; i++) {
        const struct diff_contribution *part = &slow->parts[i].contribution;
        strbuf_add(out, "- ");
        diff_markdown_text(out, diff_text_slow_part(&slow->parts[i]));
        strbuf_add(out, "\n");
        diff_markdown_list(out, "suspect: ", part->suspects, part->suspect_count);
    }
    strbuf_add(out, slow->part_count ? "\n" : "");
}

static void diff_markdown_cpu(struct strbuf *out, const struct diff_workload *workload)
{
    const struct diff_once *cpu = &workload->cpu;
    char *headline = diff_text_cpu(workload), *places = headline ? diff_text_cpu_answer(workload) : NULL;
    if (!headline)
        return;
    strbuf_add(out, "**");
    diff_markdown_text(out, headline);
    strbuf_add(out, "**\n\n");
    if (places) {
        diff_markdown_text(out, places);
        strbuf_add(out, "\n\n");
    }
    for (size_t i = 0; i < cpu->part_count && out->len < DIFF_MARKDOWN_BYTES; i++) {
        strbuf_add(out, "- ");
        diff_markdown_text(out, diff_text_launch_part(&cpu->parts[i], true));
        strbuf_add(out, "\n");
        diff_markdown_list(out, "", cpu->parts[i].contribution.evidence, cpu->parts[i].contribution.evidence_count);
    }
    strbuf_add(out, cpu->part_count ? "\n" : "");
}

static void diff_markdown_workload(struct strbuf *out, const struct diff_workload *workload)
{
    size_t named = 0;
    const struct diff_memory *memories[] = {&workload->memory, &workload->gpu_memory};
    bool slow_first = diff_text_slow_first(workload);
    if (slow_first)
        diff_markdown_slow(out, workload);
    for (int i = 0; i < 2; i++)
        if (diff_text_memory_first(memories[i]))
            diff_markdown_memory(out, workload, memories[i]);
    strbuf_add(out, "**");
    diff_markdown_text(out, diff_text_headline(workload));
    strbuf_add(out, "**\n\n");
    diff_markdown_text(out, diff_text_answer(workload));
    strbuf_add(out, "\n\n");
    if (!slow_first)
        diff_markdown_slow(out, workload);
    for (int i = 0; i < 2; i++)
        if (!diff_text_memory_first(memories[i]))
            diff_markdown_memory(out, workload, memories[i]);
    diff_markdown_cpu(out, workload);
    for (size_t i = 0; i < workload->contribution_count; i++)
        named += workload->contributions[i].named;
    size_t rows = named < DIFF_MARKDOWN_ROWS ? named : DIFF_MARKDOWN_ROWS;
    if (rows == 0) {
        diff_markdown_collectives(out, workload);
        diff_markdown_first(out, workload);
        return;
    }
    strbuf_add(out,
               "| # | what | name | where | change a %s | 99 %% interval | of a %s "
               "|\n|--:|---|---|---|--:|:-:|--:|\n",
               workload->unit, workload->unit);
    for (size_t i = 0; i < rows && out->len < DIFF_MARKDOWN_BYTES; i++)
        diff_markdown_row(out, &workload->contributions[i]);
    if (named > rows)
        strbuf_add(out, "\n%zu more are named: `upgate diff RUN.db` has all.\n", named - rows);
    strbuf_add(out, "\n");
    diff_markdown_collectives(out, workload);
    diff_markdown_first(out, workload);
    diff_markdown_details(out, workload, rows);
}

char *diff_view_markdown(const struct diff *diff)
{
    struct strbuf out = {0};
    if (!diff_view_explained(diff))
        return xstrdup("");
    strbuf_add(&out, "### Where the difference comes from\n\n");
    for (size_t i = 0; i < diff->workload_count && out.len < DIFF_MARKDOWN_BYTES; i++)
        diff_markdown_workload(&out, &diff->workloads[i]);
    return strbuf_take(&out);
}
