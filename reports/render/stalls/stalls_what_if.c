// SPDX-License-Identifier: Apache-2.0
// What a step would take if: in words, the same in the table, in Markdown and on the page; as JSON.
// Pure.
#include <math.h>
#include <stdlib.h>

#include "reports/render/stalls/stalls_text.h"
#include "reports/render/stalls/stalls_what_if.h"
#include "reports/render/text/json_text.h"

enum { WHAT_IF_CALM = 100 }; // what is not known is told where it is more than this part of a step

double stalls_what_if_ns(const struct stall_what_if *what_if, enum stalls_question question)
{
    const double ns[STALLS_QUESTION_COUNT] = {what_if->without_stragglers_ns, what_if->even_ns,
            what_if->instant_ns, what_if->balanced_ns};
    return what_if->known ? ns[question] : NAN;
}

char *stalls_what_if_question(const struct stall_what_if *what_if, enum stalls_question question)
{
    switch (question) {
    case STALLS_QUESTION_STRAGGLERS:
        if (what_if->stragglers > 1)
            return xasprintf("the %zu late ranks on time", what_if->stragglers);
        return what_if->straggler < 0 ? xstrdup("the late rank on time")
                                      : xasprintf("rank %d on time", (int)what_if->straggler);
    case STALLS_QUESTION_EVEN:
        return xstrdup("every rank at the mean speed");
    case STALLS_QUESTION_INSTANT:
        return xstrdup("instant communication");
    default:
        return xstrdup("stages with equal work");
    }
}

static char *what_if_percent(double ns, double of, char *buf)
{
    double percent = (ns / of - 1) * 100;
    return numbers_print(buf, "%+.1f %%", fabs(percent) < 0.05 ? 0.0 : percent);
}

char *stalls_what_if_change(const struct stall_what_if *what_if, double ns, char *buf)
{
    return what_if_percent(ns, what_if->replayed_ns, buf);
}

static char *what_if_why_not(const struct stall_what_if *what_if)
{
    double off = what_if->replayed_ns / what_if->measured_ns - 1;
    switch (what_if->why_not) {
    case STALL_WHY_NOT_LOST:
        return xstrdup("events were lost while it was recorded: who waits for whom is not known");
    case STALL_WHY_NOT_APART:
        return xstrdup(
                "the waits of its ranks do not end together, as with sends and receives, groups of some ranks, or nodes with different clocks");
    case STALL_WHY_NOT_CONTRADICTION:
        return xasprintf("the recorded operations of its ranks contradict each other (%s)",
                what_if->contradiction);
    case STALL_WHY_NOT_OFF:
        return xasprintf(
                "the replay takes %.1f %% %s than the job did, so what its ranks waited for is not known well enough",
                fabs(off) * 100, off > 0 ? "more" : "less");
    default:
        return NULL;
    }
}

char *stalls_what_if_head(const struct stall_what_if *what_if)
{
    char *why_not = what_if_why_not(what_if);
    if (why_not) {
        char *text = xasprintf("What if: not known: %s", why_not);
        free(why_not);
        return text;
    }
    if (!what_if->known)
        return NULL;
    const char *measured = numbers_ns(what_if->measured_ns, NUMBERS_BUFFER),
               *replayed = numbers_ns(what_if->replayed_ns, NUMBERS_BUFFER);
    const char *off = what_if_percent(what_if->replayed_ns, what_if->measured_ns, NUMBERS_BUFFER);
    struct strbuf out = {0};
    if (what_if->by_steps)
        strbuf_add(&out, "What if: a step took %s, the mean of %s; the replay gives %s (%s)",
                measured, numbers_count(what_if->steps, NUMBERS_BUFFER), replayed, off);
    else
        strbuf_add(&out,
                "What if: the job took %s from its first collective to its last one; the replay gives %s (%s)",
                measured, replayed, off);
    if (what_if->unsure_ns * WHAT_IF_CALM > what_if->measured_ns)
        strbuf_add(&out, "; give or take %s, as waits below the threshold are not recorded",
                numbers_ns(what_if->unsure_ns, NUMBERS_BUFFER));
    return strbuf_take(&out);
}

json_t *stalls_what_if_json(const struct stall_what_if *what_if)
{
    char *why_not = what_if_why_not(what_if);
    if (!what_if->known && !why_not)
        return json_null();
    json_t *item = json_object();
    bool measured = what_if->measured_ns > 0;
    return render_json_set(item, "known", json_boolean(what_if->known), "why_not",
            render_json_take(why_not), "steps",
            what_if->by_steps && measured ? json_integer(what_if->steps) : json_null(),
            "measured_ns", render_json_whole(measured ? what_if->measured_ns : NAN), "replayed_ns",
            render_json_whole(measured ? what_if->replayed_ns : NAN), "without_stragglers_ns",
            render_json_whole(stalls_what_if_ns(what_if, STALLS_QUESTION_STRAGGLERS)), "even_ns",
            render_json_whole(stalls_what_if_ns(what_if, STALLS_QUESTION_EVEN)), "instant_ns",
            render_json_whole(stalls_what_if_ns(what_if, STALLS_QUESTION_INSTANT)), "balanced_ns",
            render_json_whole(stalls_what_if_ns(what_if, STALLS_QUESTION_BALANCED)), "unsure_ns",
            render_json_whole(measured ? what_if->unsure_ns : NAN), NULL);
}
