// SPDX-License-Identifier: Apache-2.0
// Sentences and numbers about a difference, the same in the table, in Markdown and in the page.
// Pure; the caller frees what is returned. Texts of the store are not cleaned here.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/diff/diff_words.h"
#include "reports/render/text/numbers.h"

enum { DIFF_TEXT_ANSWER_MAX = 3 };

char *diff_text_join(const char *from, const char *word, const char *to)
{
    const char *blank = strrchr(from, ' '), *unit = strrchr(to, ' ');
    bool shared = blank && unit && strcmp(blank, unit) == 0;
    return xasprintf(
            "%.*s%s%s", (int)(shared ? (size_t)(blank - from) : strlen(from)), from, word, to);
}

char *diff_text_interval(const struct diff_contribution *contribution)
{
    if (!isfinite(contribution->ci_lo_ns) || !isfinite(contribution->ci_hi_ns))
        return xstrdup("-");
    return diff_text_join(numbers_delta(contribution->ci_lo_ns, NUMBERS_BUFFER), " to ",
            numbers_delta(contribution->ci_hi_ns, NUMBERS_BUFFER));
}

char *diff_text_share(double share, char *buf)
{
    bool none = fabs(share) < 0.0005; // no "-0.0 %"
    return isfinite(share)
            ? numbers_print(buf, "%.*f %%", fabs(share) < 0.095 ? 1 : 0, none ? 0 : 100 * share)
            : numbers_print(buf, "-");
}

char *diff_text_title(const struct diff_contribution *contribution)
{
    const char *title = diff_text_change(contribution), *cause = contribution->beside_cause;
    const char *label = contribution->label ? contribution->label : "";
    return xasprintf("%s%s%s%s%s%s", title, *label ? ": " : "", label,
            cause ? " (by what runs beside it: " : "", cause ? cause : "", cause ? ")" : "");
}

char *diff_text_headline(const struct diff_workload *workload)
{
    if (!isfinite(workload->delta_ns) || !(workload->step_a_ns > 0))
        return xasprintf(
                "%s: the %s time was not measured on both sides", workload->name, workload->unit);
    struct strbuf text = {0};
    strbuf_add(&text, "%s: %s %s -> %s (%s", workload->name, workload->unit,
            numbers_ns(workload->step_a_ns, NUMBERS_BUFFER),
            numbers_ns(workload->step_b_ns, NUMBERS_BUFFER),
            numbers_change(workload->delta_ns / workload->step_a_ns, NUMBERS_BUFFER));
    if (isfinite(workload->delta_lo_ns) && isfinite(workload->delta_hi_ns)) {
        char *interval = diff_text_join(
                numbers_change(workload->delta_lo_ns / workload->step_a_ns, NUMBERS_BUFFER), " to ",
                numbers_change(workload->delta_hi_ns / workload->step_a_ns, NUMBERS_BUFFER));
        strbuf_add(&text, ", %s", interval);
        free(interval);
    }
    strbuf_add(&text, ")");
    return strbuf_take(&text);
}

char *diff_text_first(const struct diff_workload *workload)
{
    if (!isfinite(workload->cold_a_ns) || !isfinite(workload->cold_b_ns))
        return NULL;
    return xasprintf("%s -> %s (%s)", numbers_ns(workload->cold_a_ns, NUMBERS_BUFFER),
            numbers_ns(workload->cold_b_ns, NUMBERS_BUFFER),
            numbers_change(workload->cold_b_ns / workload->cold_a_ns - 1, NUMBERS_BUFFER));
}

// " (a 0, 0; b 312 ms, 308 ms)"
static void diff_text_launches(struct strbuf *text, const struct diff_launch_part *part)
{
    for (int side = 0; side < 2; side++) {
        strbuf_add(text, "%s", side ? "; b " : " (a ");
        for (size_t i = 0; i < part->launch_count; i++) {
            double ns = part->launch_ns[side][i]; // below 0: less than in typical steps
            strbuf_add(text, "%s%s", i ? ", " : "",
                    fabs(ns) < 0.5 ? "0" : numbers_ns(ns, NUMBERS_BUFFER));
        }
    }
    strbuf_add(text, ")");
}

char *diff_text_launch_part(const struct diff_launch_part *part, bool launches)
{
    const struct diff_contribution *contribution = &part->contribution;
    bool place = contribution->where && *contribution->where;
    char *title = diff_text_title(contribution);
    struct strbuf text = {0};
    strbuf_add(&text, "%s %s%s%s", numbers_delta(contribution->delta_ns, NUMBERS_BUFFER), title,
            place ? ", in " : "", place ? contribution->where : "");
    if (launches)
        diff_text_launches(&text, part);
    free(title);
    return strbuf_take(&text);
}

// What the first step's difference is, behind what is said about all the others.
static char *diff_text_with_first(const struct diff_workload *workload, char *answer)
{
    if (!workload->first.part_count)
        return answer;
    char *first = diff_text_first(workload),
         *part = diff_text_launch_part(&workload->first.parts[0], false);
    char *text = xasprintf("%s First step %s: %s.", answer, first ? first : "", part);
    free(first);
    free(part);
    free(answer);
    return text;
}

// "Slower by 3.1 ms (19 % of a step): Kernel slower: softmax +2 ms; Copy added +1.1 ms"
static void diff_text_list(struct strbuf *text, const struct diff_workload *workload, bool slower)
{
    double sum = slower ? workload->slower_ns : workload->faster_ns;
    char *together = diff_text_list_sum(workload, slower);
    size_t count = 0;
    for (size_t i = 0; i < workload->contribution_count; i++) {
        const struct diff_contribution *contribution = &workload->contributions[i];
        if (!contribution->named || contribution->delta_ns * sum <= 0)
            continue;
        if (count++ >= DIFF_TEXT_ANSWER_MAX)
            continue;
        char *title = diff_text_title(contribution);
        strbuf_add(text, "%s%s %s", count > 1 ? "; " : "", title,
                numbers_delta(contribution->delta_ns, NUMBERS_BUFFER));
        free(title);
    }
    if (count > DIFF_TEXT_ANSWER_MAX)
        strbuf_add(text, "; and %zu more", count - DIFF_TEXT_ANSWER_MAX);
    if (count)
        strbuf_add(text, ". %s. ", together);
    free(together);
}

char *diff_text_list_sum(const struct diff_workload *workload, bool slower)
{
    double sum = slower ? workload->slower_ns : workload->faster_ns;
    return xasprintf("Together %s %s, %s of a %s", numbers_ns(fabs(sum), NUMBERS_BUFFER),
            slower ? "slower" : "faster",
            diff_text_share(fabs(sum) / workload->step_a_ns, NUMBERS_BUFFER), workload->unit);
}

static char *diff_text_steps(const struct diff_workload *workload)
{
    struct strbuf text = {0};
    if (workload->unexplained) {
        char *why = diff_text_unexplained(workload);
        strbuf_add(&text, "Not explained: %s.", why);
        free(why);
        return strbuf_take(&text);
    }
    double sum = workload->slower_ns + workload->faster_ns;
    bool told = workload->delta_lo_ns * workload->delta_hi_ns > 0;
    if (workload->slower_ns == 0 && workload->faster_ns == 0)
        return told
                ? xasprintf(
                          "The %s changed, but no single part of it by more than its noise: more or "
                          "longer traced launches (schedule.traced_launches) tell more.",
                          workload->unit)
                : xasprintf("Nothing stands out: no part of the %s differs by more than its noise.",
                          workload->unit);
    char *late = diff_text_late(workload->late);
    if (late)
        strbuf_add(&text, "%s. ", late);
    free(late);
    bool first = workload->contributions[0].delta_ns > 0; // they come list by list
    diff_text_list(&text, workload, first);
    diff_text_list(&text, workload, !first);
    strbuf_add(&text, "Not told from noise: %s.",
            numbers_delta(workload->delta_ns - sum, NUMBERS_BUFFER));
    if (told && sum / workload->delta_ns < 0.5)
        strbuf_add(&text, " That is most of the difference.");
    return strbuf_take(&text);
}

char *diff_text_answer(const struct diff_workload *workload)
{
    return diff_text_with_first(workload, diff_text_steps(workload));
}

bool diff_view_explained(const struct diff *diff)
{
    for (size_t i = 0; i < diff->workload_count; i++)
        if (!diff->workloads[i].unexplained || diff->workloads[i].memory.part_count ||
                diff->workloads[i].gpu_memory.part_count)
            return true;
    return false;
}

// ": Function added: save +4.9 ms; …; and 2 more"
static void diff_text_parts(struct strbuf *text, const struct diff_launch_part *parts, size_t count)
{
    for (size_t i = 0; i < count && i < DIFF_TEXT_ANSWER_MAX; i++) {
        char *title = diff_text_title(&parts[i].contribution);
        strbuf_add(text, "%s%s %s", i ? "; " : ": ", title,
                numbers_delta(parts[i].contribution.delta_ns, NUMBERS_BUFFER));
        free(title);
    }
    if (count > DIFF_TEXT_ANSWER_MAX)
        strbuf_add(text, "; and %zu more", count - DIFF_TEXT_ANSWER_MAX);
}

// --- what slow steps, or the slowest requests, have that typical ones have not -------------------

static const double slow_unseen_min = 0.05;  // of the difference; less is not worth a sentence
static const double slow_beyond_min = 0.005; // the same; less than that beyond it reads as 100 %

// "slow steps take 0 -> 5.2 ms of the mean step (+5.2 ms)"
static void slow_change(struct strbuf *text, const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    char *times =
            diff_text_join(fabs(slow->a_ns) < 0.5 ? "0" : numbers_ns(slow->a_ns, NUMBERS_BUFFER),
                    " -> ", fabs(slow->b_ns) < 0.5 ? "0" : numbers_ns(slow->b_ns, NUMBERS_BUFFER));
    const char *delta = numbers_delta(slow->b_ns - slow->a_ns, NUMBERS_BUFFER);
    if (slow->tail)
        strbuf_add(text, "the slowest %ss take %s more than a typical one (%s)", workload->unit,
                times, delta);
    else
        strbuf_add(text, "slow %ss take %s of the mean %s (%s)", workload->unit, times,
                workload->unit, delta);
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
        char *why = diff_text_slow_why(workload);
        strbuf_add(&text,
                slow->failed ? "what %s fails by is not explained: %s"
                             : "%s is inconclusive, and not explained: %s",
                slow->metric, why ? why : "it is not known");
        free(why);
        return strbuf_take(&text);
    }
    slow_change(&text, workload);
    diff_text_parts(&text, slow->parts, slow->part_count);
    return strbuf_take(&text);
}

char *diff_text_slow_answer(const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    struct strbuf text = {0};
    if (!slow->metric)
        return NULL;
    char *candidate = diff_text_slow_found(workload, 1),
         *baseline = diff_text_slow_found(workload, 0);
    strbuf_add(&text, "In the traced launches, candidate: %s; baseline: %s.", candidate, baseline);
    free(candidate);
    free(baseline);
    if (!slow->part_count && slow->launch_count && (slow->a_ns > 0 || slow->b_ns > 0)) {
        const struct diff_launch_part sum = {.launch_ns = {slow->launch_ns[0], slow->launch_ns[1]},
                .launch_count = slow->launch_count};
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
        strbuf_add(&text,
                " In sum the traced launches of the sides overlap: told is what stands apart in each.");
    else if (slow->part_count && slow->told_ns / total > 1 + slow_beyond_min)
        strbuf_add(&text,
                " What is told is all of it and %s more: what is not told goes the other way.",
                numbers_ns(fabs(slow->told_ns - total), NUMBERS_BUFFER));
    else if (slow->part_count)
        strbuf_add(&text, " What is told is %s of it.",
                diff_text_share(slow->told_ns / total, NUMBERS_BUFFER));
    if (slow->where && !slow->overlaps && slow->unseen_ns / total > slow_unseen_min)
        strbuf_add(&text, " In %s of it nothing was seen to run.",
                diff_text_share(slow->unseen_ns / total, NUMBERS_BUFFER));
    return strbuf_take(&text);
}

char *diff_text_slow_part(const struct diff_launch_part *part)
{
    char *told = diff_text_launch_part(part, true);
    char *text = xasprintf(
            "%s, %s of it", told, diff_text_share(part->contribution.share, NUMBERS_BUFFER));
    free(told);
    return text;
}

bool diff_text_slow_first(const struct diff_workload *workload)
{
    return workload->slow.failed && !workload->slow.typical_failed;
}

// --- what the CPU time of a launch is made of ----------------------------------------------------

static const double cpu_place_min = 0.05; // of the difference; less is not worth its words

char *diff_text_cpu(const struct diff_workload *workload)
{
    const struct diff_once *cpu = &workload->cpu;
    if (!cpu->pairs && !cpu->why_not)
        return NULL;
    struct strbuf text = {0};
    strbuf_add(&text, "%s: CPU time of a launch %s -> %s (%s)", workload->name,
            numbers_ns(workload->cpu_a_ns, NUMBERS_BUFFER),
            numbers_ns(workload->cpu_b_ns, NUMBERS_BUFFER),
            numbers_change(workload->cpu_b_ns / workload->cpu_a_ns - 1, NUMBERS_BUFFER));
    if (!cpu->part_count) {
        char *why = diff_text_once_why(cpu->why_not, "CPU time");
        strbuf_add(&text, ", not explained: %s", why ? why : "it is not known");
        free(why);
    }
    diff_text_parts(&text, cpu->parts, cpu->part_count);
    return strbuf_take(&text);
}

// "By thread, and by phase of those that make steps: thread python 0 -> 2.5 s; backward 1.2 -> 1.5
// s."
char *diff_text_cpu_answer(const struct diff_workload *workload)
{
    const struct diff_once *cpu = &workload->cpu;
    double least = cpu_place_min * fabs(workload->cpu_b_ns - workload->cpu_a_ns);
    struct strbuf text = {0};
    for (size_t i = 0; i < cpu->phase_count; i++) {
        const struct diff_once_place *place = &cpu->phases[i];
        if (!(fabs(place->b_ns - place->a_ns) >= least))
            continue;
        char *times =
                diff_text_join(place->a_ns < 0.5 ? "0" : numbers_ns(place->a_ns, NUMBERS_BUFFER),
                        " -> ", place->b_ns < 0.5 ? "0" : numbers_ns(place->b_ns, NUMBERS_BUFFER));
        char *name = diff_text_once_place(place);
        strbuf_add(&text, "%s%s %s",
                text.len ? "; " : "By thread, and by phase of those that make steps: ", name,
                times);
        free(name);
        free(times);
    }
    if (text.len)
        strbuf_add(&text, ".");
    return text.len ? strbuf_take(&text) : NULL;
}
