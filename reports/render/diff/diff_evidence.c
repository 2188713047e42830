// SPDX-License-Identifier: Apache-2.0
// The sentences of what a contribution rests on. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/causes/cause_text.h"
#include "reports/render/diff/diff_words.h"
#include "reports/render/text/numbers.h"

// "5.90 ms a step in 96 executions", or "5.90 ms a step" where executions are not counted.
static void evidence_side(struct strbuf *text, const char *unit, double ns, double count)
{
    if (!(count > 0) && ns < 0.5) {
        strbuf_add(text, "nothing");
        return;
    }
    strbuf_add(text, "%s a %s", numbers_ns(ns, NUMBERS_BUFFER), unit);
    if (isfinite(count) && count > 0)
        strbuf_add(text, " in %.*f execution%s", count < 10 && count != floor(count) ? 2 : 0, count,
                count == 1 ? "" : "s");
}

static void evidence_times(struct strbuf *text, const struct diff_evidence *evidence)
{
    for (int side = 0; side < 2; side++) {
        strbuf_add(text, side ? "; b: " : "a: ");
        evidence_side(
                text, evidence->sides.unit, evidence->sides.ns[side], evidence->sides.count[side]);
    }
}

static void evidence_sides(
        struct strbuf *text, const char *what, const struct diff_evidence *evidence)
{
    strbuf_add(text, "%s: a %s, b %s a %s", what, numbers_ns(evidence->sides.ns[0], NUMBERS_BUFFER),
            numbers_ns(evidence->sides.ns[1], NUMBERS_BUFFER), evidence->sides.unit);
}

static void evidence_execution(struct strbuf *text, const double ns[2])
{
    strbuf_add(text, "one execution: a %s, b %s (%s)", numbers_ns(ns[0], NUMBERS_BUFFER),
            numbers_ns(ns[1], NUMBERS_BUFFER), numbers_change(ns[1] / ns[0] - 1, NUMBERS_BUFFER));
}

// "softmax +1.7 ms (94 %), copy -120 us (3 %)"
static void evidence_list(struct strbuf *text, const struct diff_evidence *evidence)
{
    for (size_t i = 0; i < evidence->list.count; i++) {
        const struct diff_evidence_part *part = &evidence->list.parts[i];
        bool whole = evidence->kind == DIFF_EVIDENCE_PLACES && !*part->name;
        strbuf_add(text, "%s%s %s%s", i ? ", " : "", whole ? "elsewhere" : part->name,
                part->delta_ns > 0 ? "+" : "", numbers_ns(part->delta_ns, NUMBERS_BUFFER));
        if (isfinite(part->share))
            strbuf_add(text, " (%.0f %%)", 100 * part->share);
    }
}

static void evidence_parts(struct strbuf *text, const struct diff_evidence *evidence)
{
    bool causes = evidence->kind == DIFF_EVIDENCE_CAUSES;
    size_t of = evidence->list.of;
    strbuf_add(text, "%s %zu part%s%s: ", causes ? "what it causes, in" : "spread over", of,
            of == 1 ? "" : "s", causes ? "" : ", none of which is told from noise alone");
    evidence_list(text, evidence);
    strbuf_add(text, "%s%s", evidence->list.count ? "" : "-",
            evidence->list.count < of ? ", and less" : "");
}

// "3 of a for 1 of b: a + b + c -> d (what is left at their place)"
static void evidence_names(struct strbuf *text, const struct diff_evidence *evidence)
{
    static const char *const how[ALIGN_MATCH_COUNT] = {
            [ALIGN_RESOURCES] = "same place in the order and same shape",
            [ALIGN_SIMILAR] = "similar, or the only ones left at their place",
            [ALIGN_GROUP] = "what is left at their place"};
    const size_t *count = evidence->names.count;
    if (count[0] > 1 || count[1] > 1)
        strbuf_add(text, "%zu of a for %zu of b: ", count[0], count[1]);
    strbuf_add(text, "%s -> %s (%s)", evidence->names.name[0], evidence->names.name[1],
            how[evidence->names.match]);
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

static void evidence_shape(struct strbuf *text, const struct diff_evidence *evidence)
{
    const struct cost_shape *a = &evidence->shape.of[0], *b = &evidence->shape.of[1];
    const char *const *name = evidence->shape.name;
    struct strbuf changes = {0};
    shape_three(&changes, "grid", a->grid, b->grid);
    shape_three(&changes, "block", a->block, b->block);
    shape_one(&changes, "registers", a->registers, b->registers);
    shape_one(&changes, "shared bytes", a->shared_bytes, b->shared_bytes);
    shape_one(&changes, "bytes", a->bytes, b->bytes);
    if (name[0])
        strbuf_add(&changes, "%s%s -> %s", changes.len ? ", " : "", name[0], name[1]);
    strbuf_add(text, "changed: %s", changes.text ? changes.text : "-");
    strbuf_free(&changes);
}

static void evidence_beside(struct strbuf *text, const struct diff_evidence *evidence)
{
    strbuf_add(text, "beside it on the same device: ");
    for (int side = 0; side < 2; side++) {
        bool any = false;
        strbuf_add(text, "%s", side ? "; b: " : "a: ");
        for (size_t i = 0; i < evidence->beside.count; i++) {
            const struct diff_beside *one = &evidence->beside.of[i];
            if (!one->told[side])
                continue;
            strbuf_add(text, "%s%s %.0f %% of its time", any ? ", " : "", one->label,
                    100 * one->share[side]);
            any = true;
        }
        strbuf_add(text, "%s", any ? "" : "nothing");
    }
}

static void overlap_means(struct strbuf *text, const char *which, const double mean[2])
{
    if (!isfinite(mean[0]) && !isfinite(mean[1]))
        return;
    strbuf_add(text, "; one of %s: a %s, b %s", which, numbers_ns(mean[0], NUMBERS_BUFFER),
            numbers_ns(mean[1], NUMBERS_BUFFER));
    if (isfinite(mean[0]) && isfinite(mean[1]) && mean[0] > 0)
        strbuf_add(text, " (%+.1f %%)", 100 * (mean[1] / mean[0] - 1));
}

// "others ran beside 32 % (a) and 95 % (b) of the executions; one of them: a 250 us, b 290 us (+16
// %); one of the others: a 190 us, b 191 us (+0.5 %)"
static void evidence_overlap(struct strbuf *text, const struct diff_evidence *evidence)
{
    strbuf_add(text, "others ran beside %.0f %% (a) and %.0f %% (b) of the executions",
            100 * evidence->overlap.share[0], 100 * evidence->overlap.share[1]);
    overlap_means(text, "them", evidence->overlap.with);
    overlap_means(text, "the others", evidence->overlap.without);
    if (evidence->overlap.cause)
        strbuf_add(text, ": the kernel is the same, what runs beside it is not");
}

static void evidence_clock(struct strbuf *text, const struct diff_evidence *evidence)
{
    double a = evidence->clock.busy_ns[0], b = evidence->clock.busy_ns[1];
    strbuf_add(text,
            "every one of %zu kernels takes %.1f %% %s: a clock, not a kernel, has changed",
            evidence->clock.kernels, 100 * fabs(b / a - 1), b > a ? "longer" : "less");
}

static void evidence_threads(struct strbuf *text, const struct diff_evidence *evidence)
{
    const double *working = evidence->threads.working, *running = evidence->threads.running;
    strbuf_add(text,
            "threads that worked: a %.3g, b %.3g; on a CPU at a time: a %.2f, b %.2f; %zu functions take longer together",
            working[0], working[1], running[0], running[1], evidence->threads.functions);
}

static void evidence_stall(struct strbuf *text, const struct diff_evidence *evidence)
{
    const char *who = evidence->stall.culprit ? evidence->stall.culprit : "the culprit";
    char *advice = cause_text_advice(evidence->stall.cause, who);
    strbuf_add(text, "to do: %s", advice);
    free(advice);
}

char *diff_text_deed(const struct diff_straggler *straggler)
{
    static const char *const words[DIFF_DEEDS] = {[DIFF_DEED_FUNCTION] = "function",
            [DIFF_DEED_STALL] = "stall",
            [DIFF_DEED_HOST] = "host",
            [DIFF_DEED_CALL] = "call",
            [DIFF_DEED_KERNEL] = "kernel"};
    const char *word = words[straggler->deed];
    return word ? xasprintf("%s %s", word, straggler->why) : NULL;
}

static void evidence_late(struct strbuf *text, const struct diff_straggler *late)
{
    strbuf_add(text, "%s %d arrives last at ", late->side ? "Rank" : "In the baseline, rank",
            late->rank);
    if (late->last_count == late->collectives)
        strbuf_add(text, "all %lld", (long long)late->collectives);
    else
        strbuf_add(text, "%lld of %lld", (long long)late->last_count, (long long)late->collectives);
    strbuf_add(text, " collectives, by %s", numbers_ns(late->late_ns, NUMBERS_BUFFER));
    char *deed = diff_text_deed(late);
    if (!deed)
        return;
    strbuf_add(text, ": %s", deed);
    free(deed);
    if (isfinite(late->why_ns))
        strbuf_add(text, ", %s a traced step more than on the other ranks",
                numbers_ns(late->why_ns, NUMBERS_BUFFER));
}

char *diff_text_late(const struct diff_straggler *late)
{
    struct strbuf text = {0};
    if (!late)
        return NULL;
    evidence_late(&text, late);
    return strbuf_take(&text);
}

static void evidence_add(struct strbuf *text, const struct diff_evidence *evidence)
{
    switch (evidence->kind) {
    case DIFF_EVIDENCE_TIMES:
        evidence_times(text, evidence);
        return;
    case DIFF_EVIDENCE_LAUNCH_WAIT:
        evidence_sides(text,
                "of it until the host had launched it, with nothing else on the device", evidence);
        return;
    case DIFF_EVIDENCE_LATE_BEHIND:
        evidence_sides(text,
                "of it late launches behind it, until the host was as far ahead of the device again",
                evidence);
        return;
    case DIFF_EVIDENCE_BUSY:
        evidence_sides(text, "busy, also behind other work", evidence);
        return;
    case DIFF_EVIDENCE_EXECUTION:
        evidence_execution(text, evidence->sides.ns);
        return;
    case DIFF_EVIDENCE_CLOCK:
        evidence_clock(text, evidence);
        return;
    case DIFF_EVIDENCE_FEW:
        strbuf_add(text, "too few traced launches to tell: %zu of each side", evidence->number);
        return;
    case DIFF_EVIDENCE_CAUSES:
    case DIFF_EVIDENCE_SPREAD:
        evidence_parts(text, evidence);
        return;
    case DIFF_EVIDENCE_FUNCTIONS:
        strbuf_add(text, "most of it: ");
        evidence_list(text, evidence);
        return;
    case DIFF_EVIDENCE_PLACES:
        strbuf_add(text, "at %zu places: ", evidence->list.of);
        evidence_list(text, evidence);
        return;
    case DIFF_EVIDENCE_NAMES:
        evidence_names(text, evidence);
        return;
    case DIFF_EVIDENCE_SHAPE:
        evidence_shape(text, evidence);
        return;
    case DIFF_EVIDENCE_BESIDE:
        evidence_beside(text, evidence);
        return;
    case DIFF_EVIDENCE_OVERLAP:
        evidence_overlap(text, evidence);
        return;
    case DIFF_EVIDENCE_THREADS:
        evidence_threads(text, evidence);
        return;
    case DIFF_EVIDENCE_NO_NAMES:
        strbuf_add(text, "compared by place: one side has no names for most of these functions");
        return;
    case DIFF_EVIDENCE_ALSO_LATER:
        strbuf_add(text, "the %s runs it too, outside of its first step",
                evidence->number ? "candidate" : "baseline");
        return;
    case DIFF_EVIDENCE_STALL:
        evidence_stall(text, evidence);
        return;
    case DIFF_EVIDENCE_LATE_RANK:
        evidence_late(text, evidence->late);
        return;
    case DIFF_EVIDENCE_KINDS:
        return;
    }
}

char *diff_text_evidence(const struct diff_evidence *evidence)
{
    struct strbuf text = {0};
    evidence_add(&text, evidence);
    return strbuf_take(&text);
}
