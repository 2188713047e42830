// SPDX-License-Identifier: Apache-2.0
// What a contribution rests on, in sentences with numbers: time and executions on both sides, what
// changed in shape, where it is, what is below it, what to do about a stall. Pure.
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "common/units.h"
#include "reports/analyse/diff/contribute/contributions.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/stalls/stalls.h"

enum { EVIDENCE_TOP = 4, EVIDENCE_PLACES = 3, EVIDENCE_NAME_MAX = 60, EVIDENCE_MEMBERS_MAX = 4000 };

struct evidence {
    struct diff_job *job;
    struct diff_contribution *contribution;
    const struct diff_group *groups;
};

static void evidence_add(struct evidence *evidence, const char *text)
{
    struct diff_contribution *contribution = evidence->contribution;
    if (!contribution->evidence)
        contribution->evidence = arena_alloc(
                evidence->job->arena, DIFF_EVIDENCE_MAX, sizeof *contribution->evidence);
    if (text && contribution->evidence_count < DIFF_EVIDENCE_MAX)
        contribution->evidence[contribution->evidence_count++] = text;
}

static void evidence_print(struct evidence *evidence, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
static void evidence_print(struct evidence *evidence, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    evidence_add(evidence, arena_copy(evidence->job->arena, text));
    free(text);
}

// "5.90 ms a step in 96 executions", or "5.90 ms a step" where executions are not counted.
static const char *evidence_side(struct evidence *evidence, double ns, double count)
{
    const char *unit = evidence->job->untraced.unit;
    if (!(count > 0) && ns < 0.5)
        return "nothing";
    if (!isfinite(count) || count <= 0)
        return arena_print(evidence->job->arena, "%s a %s", diff_time(evidence->job, ns), unit);
    return arena_print(evidence->job->arena, "%s a %s in %.*f execution%s",
            diff_time(evidence->job, ns), unit, count < 10 && count != floor(count) ? 2 : 0, count,
            count == 1 ? "" : "s");
}

// Of the times: waiting for launches, which an operation of one side has taken over (launches.c).
static void evidence_launches(struct evidence *evidence, double launch[2])
{
    const struct diff_contribution *contribution = evidence->contribution;
    struct diff_job *job = evidence->job;
    launch[0] = launch[1] = 0;
    for (size_t i = 0; i < contribution->group_count; i++) {
        const struct diff_group *group = &evidence->groups[contribution->groups[i]];
        launch[0] += fmax(group->launch_a, 0);
        launch[1] += fmax(group->launch_b, 0);
    }
    if (launch[0] + launch[1] > contributions_floor * job->untraced.step[0])
        evidence_print(evidence,
                contribution->kind == DIFF_SYNC_ADDED
                        ? "of it late launches behind it, until the host was as far ahead of the device again: a %s, b %s a %s"
                        : "of it until the host had launched it, with nothing else on the device: a %s, b %s a %s",
                diff_time(job, launch[0]), diff_time(job, launch[1]), job->untraced.unit);
}

static void evidence_times(struct evidence *evidence)
{
    const struct diff_contribution *contribution = evidence->contribution;
    struct diff_job *job = evidence->job;
    const char *unit = job->untraced.unit;
    bool counted =
            isfinite(contribution->count_a) && contribution->count_a + contribution->count_b > 0;
    evidence_print(evidence, "a: %s; b: %s",
            evidence_side(evidence, contribution->a_ns, contribution->count_a),
            evidence_side(evidence, contribution->b_ns, contribution->count_b));
    double busy_a = contribution->busy_a_ns, busy_b = contribution->busy_b_ns;
    double least = contributions_floor * job->untraced.step[0];
    double launch[2];
    evidence_launches(evidence, launch);
    bool hidden = fabs(busy_a + launch[0] - contribution->a_ns) > least ||
            fabs(busy_b + launch[1] - contribution->b_ns) > least;
    if (hidden)
        evidence_print(evidence, "busy, also behind other work: a %s, b %s a %s",
                diff_time(job, busy_a), diff_time(job, busy_b), unit);
    if (counted && contribution->count_a > 0 && contribution->count_b > 0 && busy_a > 0) {
        double one_a = busy_a / contribution->count_a, one_b = busy_b / contribution->count_b;
        char change[32];
        evidence_print(evidence, "one execution: a %s, b %s (%s)", diff_time(job, one_a),
                diff_time(job, one_b),
                unit_format_change(change, sizeof change, one_b / one_a - 1));
    }
}

static void shape_three(
        struct strbuf *text, const char *what, const uint32_t a[3], const uint32_t b[3])
{
    if (memcmp(a, b, 3 * sizeof *a) != 0)
        strbuf_add(text, "%s%s %ux%ux%u -> %ux%ux%u", text->len ? ", " : "", what, a[0], a[1], a[2],
                b[0], b[1], b[2]);
}

static void shape_one(struct strbuf *text, const char *what, int64_t a, int64_t b)
{
    if (a != b)
        strbuf_add(
                text, "%s%s %lld -> %lld", text->len ? ", " : "", what, (long long)a, (long long)b);
}

static void evidence_shape(struct evidence *evidence)
{
    struct diff_job *job = evidence->job;
    const struct align_group *top = evidence->groups[evidence->contribution->groups[0]].group;
    if (top->count_a != 1 || top->count_b != 1) // shapes of other work
        return;
    const struct cost_node *a = &job->workload->trees[0]->nodes[top->a[0]],
                           *b = &job->workload->trees[1]->nodes[top->b[0]];
    struct strbuf text = {0};
    shape_three(&text, "grid", a->shape.grid, b->shape.grid);
    shape_three(&text, "block", a->shape.block, b->shape.block);
    shape_one(&text, "registers", a->shape.registers, b->shape.registers);
    shape_one(&text, "shared bytes", a->shape.shared_bytes, b->shape.shared_bytes);
    shape_one(&text, "bytes", a->shape.bytes, b->shape.bytes);
    if (a->kind == COST_COLLECTIVE && b->kind == COST_COLLECTIVE && strcmp(a->name, b->name) != 0)
        strbuf_add(&text, "%s%s -> %s", text.len ? ", " : "", a->name, b->name);
    if (text.len)
        evidence_print(evidence, "changed: %s", text.text);
    strbuf_free(&text);
}

// "3 for 1 at 24 places: a + b + c -> d"
static void evidence_names(struct evidence *evidence)
{
    struct diff_job *job = evidence->job;
    const struct diff_contribution *contribution = evidence->contribution;
    const struct diff_group *top = &evidence->groups[contribution->groups[0]];
    const struct align_group *group = top->group;
    char a[NAMES_LENGTH_MAX] = "", b[NAMES_LENGTH_MAX] = "";
    if (group->match < ALIGN_RESOURCES || group->match > ALIGN_GROUP || !top->name_a ||
            !top->name_b)
        return;
    names_short(top->name_a, a, sizeof a, 2 * EVIDENCE_NAME_MAX);
    names_short(top->name_b, b, sizeof b, 2 * EVIDENCE_NAME_MAX);
    static const char *const how[ALIGN_MATCH_COUNT] = {
            [ALIGN_RESOURCES] = "same place in the order and same shape",
            [ALIGN_SIMILAR] = "similar, or the only ones left at their place",
            [ALIGN_GROUP] = "what is left at their place"};
    if (group->count_a > 1 || group->count_b > 1)
        evidence_print(evidence, "%zu of a for %zu of b: %s -> %s (%s)", group->count_a,
                group->count_b, contributions_group_side(job, top, 0),
                contributions_group_side(job, top, 1), how[group->match]);
    else if (strcmp(a, b) != 0)
        evidence_print(evidence, "%s -> %s (%s)", a, b, how[group->match]);
}

struct evidence_sum {
    const char *text;
    double delta;
};

static int sum_compare(const void *left, const void *right)
{
    const struct evidence_sum *a = left, *b = right;
    double x = fabs(a->delta), y = fabs(b->delta);
    return x > y ? -1 : x < y ? 1 : strcmp(a->text, b->text);
}

static int sum_compare_text(const void *left, const void *right)
{
    return strcmp(
            ((const struct evidence_sum *)left)->text, ((const struct evidence_sum *)right)->text);
}

// Equal texts become one, largest change first; returns how many there are.
static size_t sums_merge(struct evidence_sum *sums, size_t count)
{
    size_t kept = 0;
    qsort(sums, count, sizeof *sums, sum_compare_text);
    for (size_t i = 0; i < count; i++) {
        if (kept && strcmp(sums[kept - 1].text, sums[i].text) == 0)
            sums[kept - 1].delta += sums[i].delta;
        else
            sums[kept++] = sums[i];
    }
    qsort(sums, kept, sizeof *sums, sum_compare);
    return kept;
}

static const char *sums_text(
        struct evidence *evidence, const struct evidence_sum *sums, size_t count, size_t max)
{
    struct strbuf text = {0};
    for (size_t i = 0; i < count && i < max; i++) {
        if (i && fabs(sums[i].delta) < evidence_share * fabs(sums[0].delta))
            break;
        strbuf_add(&text, "%s%s %s%s", i ? ", " : "", sums[i].text, sums[i].delta > 0 ? "+" : "",
                diff_time(evidence->job, sums[i].delta));
    }
    return diff_text(evidence->job, &text);
}

// What most of the change is of: by place, or by function. NULL: it is of one function.
static const char *evidence_most(struct evidence *evidence, bool places, size_t max)
{
    const struct diff_contribution *contribution = evidence->contribution;
    struct diff_job *job = evidence->job;
    size_t count = contribution->group_count < EVIDENCE_MEMBERS_MAX ? contribution->group_count
                                                                    : EVIDENCE_MEMBERS_MAX;
    struct evidence_sum *sums = xcalloc(count + 1, sizeof *sums);
    for (size_t i = 0; i < count; i++) {
        const struct diff_group *group = &evidence->groups[contribution->groups[i]];
        const struct cost_node *leaf = diff_leaf(job, group);
        const char *place =
                places ? diff_place(job, job->workload->trees[group->side], leaf->parent) : NULL;
        char name[NAMES_LENGTH_MAX] = "";
        if (!places)
            names_short(leaf->name, name, sizeof name, EVIDENCE_NAME_MAX);
        sums[i] = (struct evidence_sum){!places ? arena_copy(job->arena, name)
                        : *place                ? place
                                                : "elsewhere",
                group->b - group->a};
    }
    size_t kinds = sums_merge(sums, count);
    const char *text = places || kinds > 1 ? sums_text(evidence, sums, kinds, max) : NULL;
    free(sums);
    return text;
}

static void evidence_places(struct evidence *evidence)
{
    const struct diff_contribution *contribution = evidence->contribution;
    size_t places = diff_places_count(
            evidence->job, evidence->groups, contribution->groups, contribution->group_count);
    if (places > 1)
        evidence_print(evidence, "at %zu places: %s", places,
                evidence_most(evidence, true, EVIDENCE_PLACES));
}

// What contributions of several functions are made of.
static void evidence_parts(struct evidence *evidence)
{
    const char *text = evidence_most(evidence, false, EVIDENCE_TOP);
    if (text)
        evidence_print(evidence, "most of it: %s", text);
}

// What shares of its parts are of: its change, or all that goes the same way where other parts take
// of that. No share is more than all.
static double evidence_whole(const struct diff_contribution *contribution)
{
    double own = 0;
    for (size_t i = 0; i < contribution->part_count; i++) {
        double delta = contribution->parts[i].b_ns - contribution->parts[i].a_ns;
        own += delta * contribution->delta_ns > 0 ? fabs(delta) : 0;
    }
    return copysign(fmax(fabs(contribution->delta_ns), own), contribution->delta_ns);
}

// What a contribution of a place is spread over, with each one's share of it.
static void evidence_spread(struct evidence *evidence)
{
    const struct diff_contribution *contribution = evidence->contribution;
    struct diff_job *job = evidence->job;
    struct strbuf text = {0};
    const double whole = evidence_whole(contribution);
    size_t shown = 0;
    for (; shown < contribution->part_count && shown < 2 * EVIDENCE_TOP; shown++) {
        const struct diff_contribution_part *part = &contribution->parts[shown];
        double delta = part->b_ns - part->a_ns, share = delta / whole;
        if (!(share >= evidence_share))
            break;
        strbuf_add(&text, "%s%s %s%s (%.0f %%)", shown ? ", " : "", part->label,
                delta > 0 ? "+" : "", diff_time(job, delta), 100 * share);
    }
    evidence_print(evidence,
            diff_kind_is_code(contribution->kind)
                    ? "what it causes, in %zu part%s: %s%s"
                    : "spread over %zu part%s, none of which is told from noise alone: %s%s",
            contribution->part_count, contribution->part_count == 1 ? "" : "s",
            text.text ? text.text : "-", shown < contribution->part_count ? ", and less" : "");
    strbuf_free(&text);
}

static void evidence_advice(struct evidence *evidence)
{
    const struct cost_node *leaf =
            diff_leaf(evidence->job, &evidence->groups[evidence->contribution->groups[0]]);
    size_t count = 0;
    const struct stall_cause *causes = stall_causes(&count);
    for (size_t i = 0; i < count && leaf->kind == COST_STALL; i++)
        if (strcmp(causes[i].id, leaf->name) == 0 && causes[i].advice &&
                evidence->contribution->delta_ns > 0)
            evidence_print(evidence, "to do: %s",
                    arena_print(evidence->job->arena, causes[i].advice,
                            leaf->module ? leaf->module : "the culprit"));
}

static void evidence_special(struct evidence *evidence)
{
    struct diff_job *job = evidence->job;
    const struct diff_contribution *contribution = evidence->contribution;
    const struct diff_parallel *a = &job->parallel[0], *b = &job->parallel[1];
    switch (contribution->kind) {
    case DIFF_CLOCK_THROTTLE:
        evidence_print(evidence,
                "every one of %zu kernels takes %.1f %% %s: a clock, not a kernel, has changed",
                contribution->group_count,
                100 * fabs(contribution->busy_b_ns / contribution->busy_a_ns - 1),
                contribution->busy_b_ns > contribution->busy_a_ns ? "longer" : "less");
        break;
    case DIFF_PARALLELISM:
        evidence_print(evidence,
                "threads that worked: a %.3g, b %.3g; on a CPU at a time: a %.2f, b %.2f; %zu functions take longer together",
                a->threads, b->threads, a->running, b->running, contribution->group_count);
        break;
    case DIFF_NATIVE_CODE:
        evidence_add(
                evidence, "compared by place: one side has no names for most of these functions");
        break;
    case DIFF_CODE_MOVED:
        evidence_print(evidence, "the %s runs it too, outside of its first step",
                contribution->delta_ns > 0 ? "baseline" : "candidate");
        break;
    default:
        break;
    }
}

void diff_evidence(struct diff_job *job, struct diff_contribution *contribution,
        const struct diff_group *groups)
{
    struct evidence evidence = {job, contribution, groups};
    evidence_times(&evidence);
    // there the launches' own values tell
    if (contribution->few && job->subject == DIFF_SUBJECT_STEPS)
        evidence_print(
                &evidence, "too few traced launches to tell: %u of each side", job->units.pairs);
    if (!contribution->named && contribution->rank > 20)
        return; // nobody asks for more of what is noise
    if (contribution->part_count) {
        evidence_spread(&evidence);
        if (contribution->kind == DIFF_CODE_MOVED)
            evidence_special(&evidence);
        if (contribution->kind == DIFF_NATIVE_CODE) {
            evidence_special(&evidence);
            evidence_parts(&evidence);
        }
        evidence_places(&evidence);
        return;
    }
    diff_beside(job, contribution, groups);
    evidence_add(&evidence, diff_beside_text(job, contribution));
    evidence_add(&evidence, diff_beside_split(job, contribution, groups));
    evidence_special(&evidence);
    evidence_names(&evidence);
    evidence_shape(&evidence);
    evidence_parts(&evidence);
    evidence_places(&evidence);
    evidence_advice(&evidence);
}

void diff_contributions(struct diff_job *job)
{
    struct diff_workload *workload = job->workload;
    struct diff_group *groups = diff_contribute(job);
    for (size_t i = 0; i < workload->contribution_count; i++) {
        struct diff_contribution *made = &workload->contributions[i];
        diff_evidence(job, made, groups);
        if (made->named)
            diff_suspects(job, made, groups);
    }
    diff_rows_make(job, groups);
    free(groups);
}
