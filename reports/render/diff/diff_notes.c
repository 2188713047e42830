// SPDX-License-Identifier: Apache-2.0
// The sentences of what weakens the answer about a difference, and of why there is none. Pure.
#include <stdlib.h>

#include "common/strings.h"
#include "common/units.h"
#include "reports/render/diff/diff_words.h"
#include "reports/render/text/numbers.h"
#include "reports/render/text/slow_text.h"

static const char *notes_side(const struct diff_note *note)
{
    return note->side ? "candidate" : "baseline";
}

// ": why" where it is told.
static void notes_detail(struct strbuf *text, const struct launch_doubt *doubt)
{
    if (doubt->detail)
        strbuf_add(text, ": %s", doubt->detail);
}

static void notes_launch(struct strbuf *text, const struct launch_doubt *doubt)
{
    const long long count = doubt->count, of = doubt->of, pid = doubt->pid;
    switch (doubt->kind) {
    case LAUNCH_DOUBT_NOT_ENDED:
        strbuf_add(text, "the recording was not ended in order");
        return;
    case LAUNCH_DOUBT_RECORDINGS:
        strbuf_add(text, "the launch has %lld recordings: the first one is looked at", count);
        return;
    case LAUNCH_DOUBT_NO_HOST:
        strbuf_add(text, "nothing of the host was recorded in the turns of this launch");
        return;
    case LAUNCH_DOUBT_LOST:
        strbuf_add(text, "%s (%s): %lld", doubt->producer, doubt->what, count);
        if (of)
            strbuf_add(text, " of %lld", of);
        strbuf_add(text, " lost");
        notes_detail(text, doubt);
        return;
    case LAUNCH_DOUBT_REFUSED:
        strbuf_add(text, "what process %lld ran on the GPU is not recorded", pid);
        notes_detail(text, doubt);
        return;
    case LAUNCH_DOUBT_CLOCK:
        strbuf_add(text, "the GPU's clock of process %lld is up to %lld us off", pid, count);
        return;
    case LAUNCH_DOUBT_OUTSIDE:
        strbuf_add(
                text, "%lld step%s outside the recording", count, count == 1 ? " lies" : "s lie");
        return;
    case LAUNCH_DOUBT_RANKS_BY_PID:
        strbuf_add(text,
                "which process is which rank is not recorded: taken in the order of their pids");
        return;
    case LAUNCH_DOUBT_RANKS_UNKNOWN:
        strbuf_add(
                text, "of %lld of %lld ranks it is not known which process they were", count, of);
        return;
    case LAUNCH_DOUBT_EARLY:
        strbuf_add(text,
                "%lld of %lld operations of the GPU began before the call that launched them: its clock is off",
                count, of);
        return;
    case LAUNCH_DOUBT_KINDS:
        return;
    }
}

static char *notes_doubt(const struct diff_note *note)
{
    struct strbuf text = {0};
    strbuf_add(&text, "%s, traced pair %zu: ", note->side ? "Candidate" : "Baseline", note->pair);
    notes_launch(&text, &note->doubt);
    return strbuf_take(&text);
}

static char *notes_traced_slow(const struct diff_note *note)
{
    char traced[160];
    unit_format_traced(traced, sizeof traced, note->unit, note->share);
    return xasprintf("A%s: what is short and often is told too long.", traced + 1);
}

static char *notes_few(const struct diff_note *note)
{
    bool one = note->count == 1;
    return xasprintf(
            "%zu part%s that differ%s by up to %s: too few traced launches to tell, %zu of each side; "
            "traced_launches: %d and more tell more.",
            note->count, one ? "" : "s", one ? "s" : "", numbers_ns(note->ns[0], NUMBERS_BUFFER),
            note->of, DIFF_LAUNCHES);
}

static char *notes_first_step(const struct diff_note *note)
{
    char *why = diff_text_once_why(note->why, "first step");
    char *text = xasprintf(
            "The first step changed too, and is in no contribution: %s -> %s (%+.1f %%)%s%s.",
            numbers_ns(note->ns[0], NUMBERS_BUFFER), numbers_ns(note->ns[1], NUMBERS_BUFFER),
            100 * (note->ns[1] / note->ns[0] - 1), why ? "; " : "", why ? why : "");
    free(why);
    return text;
}

char *diff_text_note(const struct diff_note *note)
{
    switch (note->kind) {
    case DIFF_NOTE_TRACED_ONLY:
        return xstrdup(
                "There are no untraced launches: the traced ones stand in for them, with what tracing costs.");
    case DIFF_NOTE_NOT_JUDGED:
        return xstrdup(
                "The run was not judged: the step times are medians of its launches so far.");
    case DIFF_NOTE_MEAN:
        return xasprintf(
                "Few steps take most of the difference: the mean step changed by %s, the median by %s; the mean "
                "is what is explained here.",
                numbers_change(note->share[0], NUMBERS_BUFFER),
                numbers_change(note->share[1], NUMBERS_BUFFER));
    case DIFF_NOTE_DOUBT:
        return notes_doubt(note);
    case DIFF_NOTE_DOUBTS_LEFT:
        return xasprintf("%zu more of the kind, of traced launches, %s not listed.", note->count,
                note->count == 1 ? "is" : "are");
    case DIFF_NOTE_NO_SAMPLES:
        return xasprintf("Traced pair %zu is left out: no samples of the %s were recorded.",
                note->pair, notes_side(note));
    case DIFF_NOTE_LEFT_OUT:
        return xasprintf("Traced pair %zu is left out: %s.", note->pair, note->text);
    case DIFF_NOTE_FOREIGN:
        return xasprintf(
                "Other programs took the CPU for %.1f %% (a) and %.1f %% (b) of the traced time: that is left out.",
                100 * note->share[0], 100 * note->share[1]);
    case DIFF_NOTE_RESIDUAL:
        return xasprintf(
                "%s of the difference (%.1f %% of a step) are in no contribution: not all time of the traced windows is accounted for.",
                numbers_ns(note->ns[0], NUMBERS_BUFFER), 100 * note->share[0]);
    case DIFF_NOTE_TRACED_SLOW:
        return notes_traced_slow(note);
    case DIFF_NOTE_TRACED_APART:
        return xasprintf(
                "The traced steps of the sides differ otherwise than the untraced ones do, by %.1f %%: intervals are wider by that.",
                100 * note->share[0]);
    case DIFF_NOTE_ONE_PAIR:
        return xasprintf(
                "One traced pair: how far launches of one side differ from each other is not known, "
                "and nothing is told from it; traced_launches: %d and more measure it.",
                DIFF_LAUNCHES);
    case DIFF_NOTE_FEW:
        return notes_few(note);
    case DIFF_NOTE_COUPLES:
        return xasprintf(
                "%zu of %zu couples of windows %s left out: one took far longer than the others, and the "
                "middle of the steps is what is explained.",
                note->count, note->of, note->count == 1 ? "is" : "are");
    case DIFF_NOTE_MATCHED:
        return xasprintf(
                "%.0f %% of the time was matched between the sides; the rest stands on one side only.",
                100 * note->share[0]);
    case DIFF_NOTE_UNKNOWN:
        return xasprintf("Of %.0f %% of a step of the %s it is not known what ran.",
                100 * note->share[0], notes_side(note));
    case DIFF_NOTE_FIRST_STEP:
        return notes_first_step(note);
    case DIFF_NOTE_NO_FINGERPRINT:
        return xstrdup("No suspects: the fingerprint of a side is not in the store.");
    case DIFF_NOTE_KINDS:
        break;
    }
    return xstrdup("");
}

char *diff_text_unexplained(const struct diff_workload *workload)
{
    const char *name = workload->name;
    switch (workload->unexplained) {
    case DIFF_UNEXPLAINED_NOT_TRACED:
        return xasprintf(
                "no launches of '%s' were traced: `schedule: {traced_launches: %d}` in the plan makes `upgate ab` "
                "trace some once the verdict stands; `--resume RUN.db` adds nothing to a finished run",
                name, DIFF_LAUNCHES);
    case DIFF_UNEXPLAINED_ONE_SIDED:
        return xasprintf(
                "of the traced launches of '%s' one side has no samples of what ran: all that the other side's ran "
                "would be new (`upgate doctor` says what this machine allows)",
                name);
    case DIFF_UNEXPLAINED_NO_STEPS:
        return xasprintf(
                "the traced launches of '%s' hold no step that could be compared on both sides: they were too "
                "short, or nothing was recorded",
                name);
    case DIFF_UNEXPLAINED_NO_TIME:
        return xasprintf("the step time of '%s' was not measured on both sides", name);
    case DIFF_UNEXPLAINED_NO_PAIR:
        return xasprintf(
                "no pair of traced launches of '%s' has steps on both sides that could be compared",
                name);
    case DIFF_UNEXPLAINED_BLIND:
        return xasprintf(
                "the traced launches of '%s' show next to nothing of what ran: events were lost, or could not be "
                "recorded on this machine (`upgate doctor` says what it allows)",
                name);
    case DIFF_EXPLAINED:
    case DIFF_UNEXPLAINED_KINDS:
        break;
    }
    return NULL;
}

char *diff_text_once_why(enum diff_once_why why, const char *what)
{
    switch (why) {
    case DIFF_ONCE_NOT_TRACED:
        return xasprintf("the %ss are not in the traces", what);
    case DIFF_ONCE_NO_PAIR:
        return xasprintf("no pair of traced launches has both %ss", what);
    case DIFF_ONCE_ONE_LAUNCH:
        return xstrdup("one traced launch a side does not tell which part of it differs");
    case DIFF_ONCE_NOT_ALIKE:
        return xstrdup("no part of it differs in all traced launches alike");
    case DIFF_ONCE_EXPLAINED:
    case DIFF_ONCE_WHYS:
        break;
    }
    return NULL;
}

char *diff_text_once_place(const struct diff_once_place *place)
{
    return place->name ? xstrdup(place->name)
                       : xasprintf("%zu other%s", place->others, place->others == 1 ? "" : "s");
}

char *diff_text_slow_why(const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    switch (slow->why_not) {
    case DIFF_SLOW_NO_PAIR:
        return xasprintf("no pair of traced launches has %ss on both sides", workload->unit);
    case DIFF_SLOW_NONE:
        return xasprintf(
                "the traced launches had no slow %ss: none of %ld took twice the typical one; trace more "
                "(schedule.traced_launches)",
                workload->unit, slow->found[0].of + slow->found[1].of);
    case DIFF_SLOW_ONE_LAUNCH:
        return xstrdup(
                "one traced launch a side does not tell what is chance; trace more (schedule.traced_launches)");
    case DIFF_SLOW_NOT_EVERY:
        return xstrdup(
                "not every traced launch of the side that is worse lies beyond those of the other; trace more (schedule.traced_launches)");
    case DIFF_SLOW_BLIND:
        return xstrdup("in most of the time that they take longer, nothing was seen to run");
    case DIFF_SLOW_NOT_ALIKE:
        return xstrdup("no part of them is larger in all traced launches alike");
    case DIFF_SLOW_EXPLAINED:
    case DIFF_SLOW_WHYS:
        break;
    }
    return NULL;
}

char *diff_text_slow_found(const struct diff_workload *workload, int side)
{
    struct strbuf text = {0};
    slow_text(&text, &workload->slow.found[side], workload->slow.tail ? "slowest" : "slow",
            workload->unit);
    return strbuf_take(&text);
}
