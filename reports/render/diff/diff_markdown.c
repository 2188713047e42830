// SPDX-License-Identifier: Apache-2.0
// The section of the Markdown report: where the difference comes from. The answer and a table of
// what is named a workload, evidence and suspects folded below. Texts of the store cannot act as
// markup. Pure; the caller frees.
#include "reports/render/diff/diff_view.h"
#include "reports/render/diff/diff_words.h"
#include "reports/render/text/markdown_text.h"
#include "reports/render/text/numbers.h"

enum { DIFF_MARKDOWN_ROWS = 15, DIFF_MARKDOWN_BYTES = 200000 };

static void diff_markdown_row(struct strbuf *out, const struct diff_contribution *contribution)
{
    strbuf_add(out, "| %d | %s | ", contribution->rank, diff_text_change(contribution));
    markdown_name(out, contribution->label ? contribution->label : "");
    markdown_put(out, " | ", contribution->where ? contribution->where : "", " | **");
    markdown_put(out, "", numbers_delta(contribution->delta_ns, NUMBERS_BUFFER), "** | ");
    markdown_take(out, "", diff_text_interval(contribution), " | ");
    markdown_put(out, "", diff_text_share(contribution->share, NUMBERS_BUFFER), " |\n");
}

static void diff_markdown_suspects(struct strbuf *out, const struct diff_contribution *contribution)
{
    for (size_t i = 0; i < contribution->suspect_count; i++)
        markdown_take(out, "  - suspect: ", diff_text_suspect(&contribution->suspects[i]), "\n");
}

// From the `first` one on.
static void diff_markdown_evidence(
        struct strbuf *out, const struct diff_contribution *contribution, size_t first)
{
    for (size_t i = first; i < contribution->evidence_count; i++)
        markdown_take(out, "  - ", diff_text_evidence(&contribution->evidence[i]), "\n");
}

// What weakens the answer.
static void diff_markdown_notes(struct strbuf *out, const struct diff_workload *workload)
{
    for (size_t i = 0; i < workload->note_count; i++)
        markdown_take(out, "- note: ", diff_text_note(&workload->notes[i]), "\n");
}

static void diff_markdown_details(
        struct strbuf *out, const struct diff_workload *workload, size_t count)
{
    strbuf_add(out, "<details><summary>Evidence and suspects</summary>\n\n");
    for (size_t i = 0; i < count && out->len < DIFF_MARKDOWN_BYTES; i++) {
        const struct diff_contribution *contribution = &workload->contributions[i];
        markdown_take(out, "- ", diff_text_title(contribution), "\n");
        diff_markdown_evidence(out, contribution, 0);
        diff_markdown_suspects(out, contribution);
    }
    diff_markdown_notes(out, workload);
    strbuf_add(out, "\n</details>\n\n");
}

static void diff_markdown_first(struct strbuf *out, const struct diff_workload *workload)
{
    if (!workload->first.part_count)
        return;
    markdown_take(out, "First step, ", diff_text_first(workload), ":\n\n");
    for (size_t i = 0; i < workload->first.part_count && out->len < DIFF_MARKDOWN_BYTES; i++) {
        const struct diff_contribution *part = &workload->first.parts[i].contribution;
        markdown_take(out, "- ", diff_text_launch_part(&workload->first.parts[i], true), "\n");
        diff_markdown_evidence(out, part, 1); // the first one says the times again
    }
    strbuf_add(out, "\n");
}

static void diff_markdown_collectives(struct strbuf *out, const struct diff_workload *workload)
{
    if (!workload->collective_count)
        return;
    markdown_take(out, "Collectives: ", diff_text_collectives(workload), ".\n\n");
    for (size_t i = 0; i < workload->collective_count && i < DIFF_MARKDOWN_ROWS; i++)
        markdown_take(out, "- ", diff_text_collective(workload, &workload->collectives[i]), "\n");
    strbuf_add(out, "\n");
}

static void diff_markdown_memory(
        struct strbuf *out, const struct diff_workload *workload, const struct diff_memory *memory)
{
    char *headline = diff_text_memory(workload, memory);
    if (!headline)
        return;
    markdown_take(out, "**", headline, "**\n\n");
    markdown_take(out, "", diff_text_memory_answer(memory), "\n\n");
    for (size_t i = 0; i < memory->told_count && i < DIFF_MARKDOWN_ROWS; i++)
        markdown_take(out, "- ", diff_text_memory_part(&memory->parts[i]), "\n");
    strbuf_add(out, memory->told_count ? "\n" : "");
    char *touched = diff_text_memory_touched(memory);
    if (!touched)
        return;
    markdown_take(out, "", touched, "\n\n");
    for (size_t i = 0; i < memory->touch_told_count && i < DIFF_MARKDOWN_ROWS; i++)
        markdown_take(out, "- ", diff_text_touch(memory, &memory->touches[i]), "\n");
    strbuf_add(out, memory->touch_told_count ? "\n" : "");
}

static void diff_markdown_slow(struct strbuf *out, const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    char *headline = diff_text_slow(workload);
    if (!headline)
        return;
    markdown_take(out, "**", headline, "**\n\n");
    markdown_take(out, "", diff_text_slow_answer(workload), "\n\n");
    for (size_t i = 0; i < slow->part_count && out->len < DIFF_MARKDOWN_BYTES; i++) {
        const struct diff_contribution *part = &slow->parts[i].contribution;
        markdown_take(out, "- ", diff_text_slow_part(&slow->parts[i]), "\n");
        diff_markdown_suspects(out, part);
    }
    strbuf_add(out, slow->part_count ? "\n" : "");
}

static void diff_markdown_cpu(struct strbuf *out, const struct diff_workload *workload)
{
    const struct diff_once *cpu = &workload->cpu;
    char *headline = diff_text_cpu(workload),
         *places = headline ? diff_text_cpu_answer(workload) : NULL;
    if (!headline)
        return;
    markdown_take(out, "**", headline, "**\n\n");
    if (places)
        markdown_take(out, "", places, "\n\n");
    for (size_t i = 0; i < cpu->part_count && out->len < DIFF_MARKDOWN_BYTES; i++) {
        markdown_take(out, "- ", diff_text_launch_part(&cpu->parts[i], true), "\n");
        diff_markdown_evidence(out, &cpu->parts[i].contribution, 0);
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
    markdown_take(out, "**", diff_text_headline(workload), "**\n\n");
    markdown_take(out, "", diff_text_answer(workload), "\n\n");
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
        if (workload->note_count && !workload->unexplained) {
            diff_markdown_notes(out, workload);
            strbuf_add(out, "\n");
        }
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
    size_t told = 0;
    for (; told < diff->workload_count && out.len < DIFF_MARKDOWN_BYTES; told++)
        diff_markdown_workload(&out, &diff->workloads[told]);
    size_t left_out = diff->workload_count - told;
    if (left_out)
        strbuf_add(&out, "%zu more workload%s did not fit here: `upgate diff RUN.db` has all.\n",
                left_out, left_out == 1 ? "" : "s");
    return strbuf_take(&out);
}
