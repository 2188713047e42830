// SPDX-License-Identifier: Apache-2.0
// What slow steps, or the slowest requests, have that typical ones have not, in words: the same in the table, in Markdown and on
// the page. Pure; the caller frees what is returned. Names of the store are not cleaned here.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/text/numbers.h"

enum { SLOW_TEXT_MAX = 3 };

static const double slow_unseen_min = 0.05; // of the difference; less is not worth a sentence

// "slow steps take 0 -> 5.2 ms of the mean step (+5.2 ms)"
static void slow_change(struct strbuf *text, const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    char *times = diff_text_join(fabs(slow->a_ns) < 0.5 ? "0" : numbers_ns(slow->a_ns, NUMBERS_BUFFER), " -> ",
                                 fabs(slow->b_ns) < 0.5 ? "0" : numbers_ns(slow->b_ns, NUMBERS_BUFFER));
    const char *delta = diff_text_delta(slow->b_ns - slow->a_ns, NUMBERS_BUFFER);
    if (slow->tail)
        strbuf_add(text, "the slowest %ss take %s more than a typical one (%s)", workload->unit, times, delta);
    else
        strbuf_add(text, "slow %ss take %s of the mean %s (%s)", workload->unit, times, workload->unit, delta);
    free(times);
}

char *diff_text_slow(const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    struct strbuf text = {0};
    if (!slow->metric || (!slow->part_count && !slow->failed && !slow->open))
        return NULL;
    strbuf_add(&text, "%s: ", workload->name);
    if (!slow->part_count) {
        strbuf_add(&text, slow->failed ? "what %s fails by is not explained: %s" : "%s is inconclusive, and not explained: %s", slow->metric,
                   slow->why_not ? slow->why_not : "it is not known");
        return strbuf_take(&text);
    }
    slow_change(&text, workload);
    for (size_t i = 0; i < slow->part_count && i < SLOW_TEXT_MAX; i++) {
        char *title = diff_text_title(&slow->parts[i].contribution);
        strbuf_add(&text, "%s%s %s", i ? "; " : ": ", title, diff_text_delta(slow->parts[i].contribution.delta_ns, NUMBERS_BUFFER));
        free(title);
    }
    if (slow->part_count > SLOW_TEXT_MAX)
        strbuf_add(&text, "; and %zu more", slow->part_count - SLOW_TEXT_MAX);
    return strbuf_take(&text);
}

char *diff_text_slow_answer(const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    struct strbuf text = {0};
    if (!slow->metric)
        return NULL;
    strbuf_add(&text, "In the traced launches, candidate: %s; baseline: %s.", slow->told[1] ? slow->told[1] : "nothing",
               slow->told[0] ? slow->told[0] : "nothing");
    if (!slow->part_count && slow->launch_count && (slow->a_ns > 0 || slow->b_ns > 0)) {
        const struct diff_launch_part sum = {.launch_ns = {slow->launch_ns[0], slow->launch_ns[1]}, .launch_count = slow->launch_count};
        strbuf_add(&text, " There ");
        slow_change(&text, workload);
        strbuf_add(&text, ", launch by launch");
        diff_text_launches(&text, &sum);
        strbuf_add(&text, ".");
    }
    if (slow->where && *slow->where)
        strbuf_add(&text, " Most of it is in %s.", slow->where);
    double total = slow->b_ns - slow->a_ns;
    if (slow->part_count && slow->overlaps)
        strbuf_add(&text, " In sum the traced launches of the sides overlap: told is what stands apart in each.");
    else if (slow->part_count)
        strbuf_add(&text, " What is told is %s of it.", diff_text_share(slow->told_ns / total, NUMBERS_BUFFER));
    if (slow->where && !slow->overlaps && slow->unseen_ns / total > slow_unseen_min)
        strbuf_add(&text, " In %s of it nothing was seen to run.", diff_text_share(slow->unseen_ns / total, NUMBERS_BUFFER));
    return strbuf_take(&text);
}

char *diff_text_slow_part(const struct diff_launch_part *part)
{
    char *told = diff_text_launch_part(part, true);
    char *text = xasprintf("%s, %s of it", told, diff_text_share(part->contribution.share, NUMBERS_BUFFER));
    free(told);
    return text;
}

bool diff_text_slow_first(const struct diff_workload *workload)
{
    return workload->slow.failed && !workload->slow.typical_failed;
}
