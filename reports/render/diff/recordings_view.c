// SPDX-License-Identifier: Apache-2.0
// Two recordings compared, in words; see recordings_view.h. Buffers and streams only.
#include "reports/render/diff/recordings_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/diff.h"
#include "reports/render/causes/cause_text.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/text/json_text.h"
#include "reports/render/text/markdown_text.h"
#include "reports/render/text/numbers.h"
#include "reports/render/text/screen.h"

enum { VIEW_ROWS = 15, VIEW_NAME = 46, VIEW_INTERVAL = 2 * NUMBERS_SIZE + 4, VIEW_RANKS = 3 };

static const char *recordings_view_kind(enum recordings_kind kind)
{
    static const char *const words[RECORDINGS_KINDS] = {
            "function", "Python function", "GPU", "stall"};
    return words[kind];
}

static char *view_interval(const struct recordings_row *row, char *buf)
{
    if (isnan(row->lo_ns))
        snprintf(buf, VIEW_INTERVAL, "-");
    else
        snprintf(buf, VIEW_INTERVAL, "%s to %s", numbers_delta(row->lo_ns, NUMBERS_BUFFER),
                numbers_delta(row->hi_ns, NUMBERS_BUFFER));
    return buf;
}

static void view_total(
        struct strbuf *out, const struct recordings_diff *diff, const struct recordings_row *total)
{
    const char *a = numbers_ns(total->a_ns, NUMBERS_BUFFER),
               *b = numbers_ns(total->b_ns, NUMBERS_BUFFER);
    const char *what = total->kind == RECORDINGS_CPU ? "CPU" : "GPU";
    if (total->told)
        strbuf_add(out, "%sA %s of the candidate takes %s of %s time %s (%s -> %s).",
                out->len ? " " : "", diff->unit, numbers_ns(fabs(total->delta_ns), NUMBERS_BUFFER),
                what, total->delta_ns > 0 ? "more" : "less", a, b);
    else
        strbuf_add(out, "%s%s time of a %s is not told apart (%s -> %s).", out->len ? " " : "",
                what, diff->unit, a, b);
}

char *recordings_view_answer(const struct recordings_diff *diff)
{
    struct strbuf out = {0};
    static const enum recordings_kind kinds[] = {RECORDINGS_CPU, RECORDINGS_GPU};
    for (size_t i = 0; i < 2; i++)
        if (diff->totals[kinds[i]].name)
            view_total(&out, diff, &diff->totals[kinds[i]]);
    if (!out.len)
        strbuf_add(&out, "Neither CPU samples nor GPU work were recorded of both sides.");
    return strbuf_take(&out);
}

// Stalls are never told by a test and always shown: there are few of them.
static bool view_shown(const struct recordings_row *row, bool all)
{
    return all || row->told || row->kind == RECORDINGS_STALL;
}

static void view_late(struct strbuf *out, const struct recordings_ranks *ranks)
{
    if (ranks->late_rank >= 0)
        strbuf_add(out, "rank %d comes late", (int)ranks->late_rank);
    else
        strbuf_add(out, "one rank comes late");
    if (isfinite(ranks->late_share))
        strbuf_add(out, ", for %.1f %% of the time", ranks->late_share * 100);
    char *deed = cause_text_deed(&ranks->late_deed);
    if (deed)
        strbuf_add(out, ": %s", deed);
    free(deed);
}

// "Of the 4 ranks of the baseline that made enough steps rank 1 is the typical one, 26.5 ms a step,
// and rank 3 the slowest, 28.1 ms: +1.62 ms in the same steps (+1.55 ms to +1.69 ms); rank 3 comes
// late, for 6.1 % of the time: computing in augment (data.py)." NULL: it has none. The caller
// frees.
static char *view_ranks(const struct recordings_diff *diff, int side)
{
    const struct recordings_ranks *ranks = &diff->ranks[side];
    const char *word = side ? "candidate" : "baseline";
    struct strbuf out = {0};
    if (ranks->count < 2 && !ranks->late)
        return NULL;
    if (ranks->count > 1)
        strbuf_add(&out,
                "Of the %zu ranks of the %s that made enough steps rank %d is the %s one, %s a step, and rank %d the slowest, %s",
                ranks->count, word, (int)ranks->typical.rank,
                ranks->count > 2 ? "typical" : "faster",
                numbers_ns(ranks->typical.step_ns, NUMBERS_BUFFER), (int)ranks->slowest.rank,
                numbers_ns(ranks->slowest.step_ns, NUMBERS_BUFFER));
    if (ranks->count > 1 && ranks->told)
        strbuf_add(&out, ": %s in the same steps (%s to %s)",
                numbers_delta(ranks->more_ns, NUMBERS_BUFFER),
                numbers_delta(ranks->lo_ns, NUMBERS_BUFFER),
                numbers_delta(ranks->hi_ns, NUMBERS_BUFFER));
    else if (ranks->count > 1)
        strbuf_add(&out, ", which is not told apart in the same steps");
    if (ranks->late && out.len)
        strbuf_add(&out, "; ");
    else if (ranks->late)
        strbuf_add(&out, "Of the ranks of the %s ", word);
    if (ranks->late)
        view_late(&out, ranks);
    strbuf_add(&out, ".");
    return strbuf_take(&out);
}

// "A step of the typical rank: 26.5 ms -> 30 ms (+13.2 %), of the slowest: 28.1 ms -> 35 ms (+24.6
// %); shown, not tested." NULL: not both sides have several.
static char *view_ranks_sides(const struct recordings_diff *diff)
{
    const struct recordings_ranks *a = &diff->ranks[0], *b = &diff->ranks[1];
    const struct recordings_rank *both[2][2] = {
            {&a->typical, &b->typical}, {&a->slowest, &b->slowest}};
    struct strbuf out = {0};
    if (a->count < 2 || b->count < 2)
        return NULL;
    for (int i = 0; i < 2; i++)
        strbuf_add(&out, "%s: %s -> %s (%s)",
                i                                      ? ", of the slowest"
                        : a->count > 2 && b->count > 2 ? "A step of the typical rank"
                                                       : "A step of the faster rank",
                numbers_ns(both[i][0]->step_ns, NUMBERS_BUFFER),
                numbers_ns(both[i][1]->step_ns, NUMBERS_BUFFER),
                numbers_change(both[i][1]->step_ns / both[i][0]->step_ns - 1, NUMBERS_BUFFER));
    strbuf_add(&out, "; shown, not tested.");
    return strbuf_take(&out);
}

// The section of ranks: at most VIEW_RANKS sentences, each the caller's to free.
static size_t view_ranks_all(const struct recordings_diff *diff, char **ret_sentences)
{
    size_t count = 0;
    char *sentences[VIEW_RANKS] = {
            view_ranks(diff, 0), view_ranks(diff, 1), view_ranks_sides(diff)};
    for (size_t i = 0; i < VIEW_RANKS; i++)
        if (sentences[i])
            ret_sentences[count++] = sentences[i];
    return count;
}

char *recordings_view_note(const struct recordings_note *note)
{
    const char *side = note->side ? "candidate" : "baseline";
    switch (note->kind) {
    case RECORDINGS_NOTE_DELETED:
        return xasprintf(
                "The first %.0f s of the recording of the %s were deleted (--max-size): what is left is compared.",
                note->seconds, side);
    case RECORDINGS_NOTE_CUT_OFF:
        return xasprintf(
                "The recording of the %s was cut off: it is compared up to its last second.", side);
    case RECORDINGS_NOTE_LONGER:
        return xasprintf(
                "Of the recording of the %s, which is longer, the first %.0f minutes are compared: functions, what ran on GPUs and steps are of "
                "these, stalls are of all of it.",
                side, note->seconds / 60);
    case RECORDINGS_NOTE_NO_SAMPLES:
        return xasprintf(
                "The %s was recorded without samples: its functions are not compared.", side);
    case RECORDINGS_NOTE_LOST:
        return xasprintf("The recording of the %s lost %lld (%s %s).", side, (long long)note->count,
                note->name, note->what);
    case RECORDINGS_NOTE_NOT_RECORDED:
        return xasprintf(
                "No %s was recorded of the %s: it is not compared. `upgate stalls` of its recording says what could not be recorded.",
                note->name, side);
    case RECORDINGS_NOTE_NO_REQUESTS:
        return xstrdup(
                "How many requests each side answered while it was recorded is not known: times are of a second of the recording, and a side "
                "with more requests spends more.");
    case RECORDINGS_NOTE_SHORT:
        return xasprintf(
                "A recording of fewer than %.0f s does not measure its noise: nothing is told apart, record for longer.",
                note->seconds);
    case RECORDINGS_NOTE_KINDS:
        break;
    }
    return xstrdup("");
}

// Sentences under one label, wrapped.
static void view_lines(struct strbuf *out, const char *label, const char *sentence, bool first)
{
    char *clean = screen_clean(sentence, false);
    int indent = (int)strlen(label) + 2;
    strbuf_add(out, "%s%s  ", first ? "\n" : "", label);
    screen_wrap(out, clean, 100, indent, indent);
    free(clean);
}

void recordings_view_table(const struct recordings_diff *diff, bool all, FILE *stream)
{
    struct strbuf out = {0};
    char *answer = recordings_view_answer(diff);
    size_t shown = 0;
    strbuf_add(&out, "%s\n\n", answer);
    for (size_t i = 0; i < diff->row_count; i++) {
        const struct recordings_row *row = &diff->rows[i];
        char interval[VIEW_INTERVAL], *clean = screen_clean(row->name, false),
                                      *name = screen_fit(clean, VIEW_NAME, false);
        if (view_shown(row, all) && shown++ == 0)
            strbuf_add(&out, "%-15s %-*s %11s %11s %11s  99 %% interval, a %s\n", "kind", VIEW_NAME,
                    "name", "baseline", "candidate", "change", diff->unit);
        if (view_shown(row, all))
            strbuf_add(&out, "%-15s %-*s %11s %11s %11s  %s\n", recordings_view_kind(row->kind),
                    VIEW_NAME, name, numbers_ns(row->a_ns, NUMBERS_BUFFER),
                    numbers_ns(row->b_ns, NUMBERS_BUFFER),
                    numbers_delta(row->delta_ns, NUMBERS_BUFFER), view_interval(row, interval));
        free(name);
        free(clean);
    }
    if (shown == 0)
        strbuf_add(&out, "Nothing stands out of the noise of these windows.\n");
    char *ranks[VIEW_RANKS];
    size_t rank_count = view_ranks_all(diff, ranks);
    for (size_t i = 0; i < rank_count; i++) {
        view_lines(&out, "ranks", ranks[i], i == 0);
        free(ranks[i]);
    }
    for (size_t i = 0; i < diff->note_count; i++) {
        char *note = recordings_view_note(&diff->notes[i]);
        view_lines(&out, "note", note, i == 0);
        free(note);
    }
    fputs(out.text, stream);
    strbuf_free(&out);
    free(answer);
}

char *recordings_view_markdown(const struct recordings_diff *diff, const char *heading)
{
    struct strbuf out = {0};
    char *answer = recordings_view_answer(diff);
    size_t shown = 0;
    strbuf_add(&out, "%s\n\n%s Recorded: %.0f s of the baseline, %.0f s of the candidate.\n\n",
            heading, answer, (double)diff->window_ns[0] / 1e9, (double)diff->window_ns[1] / 1e9);
    for (size_t i = 0; i < diff->row_count; i++) {
        const struct recordings_row *row = &diff->rows[i];
        char interval[VIEW_INTERVAL];
        if (!view_shown(row, false) || shown++ >= VIEW_ROWS)
            continue;
        if (shown == 1)
            strbuf_add(&out,
                    "| kind | name | where | baseline | candidate | change a %s | 99 %% interval |\n|---|---|---|--:|--:|--:|:-:|\n",
                    diff->unit);
        strbuf_add(&out, "| %s | ", recordings_view_kind(row->kind));
        markdown_name(&out, row->name);
        markdown_put(&out, " | ", row->where ? row->where : "", "");
        strbuf_add(&out, " | %s | %s | %s | %s |\n", numbers_ns(row->a_ns, NUMBERS_BUFFER),
                numbers_ns(row->b_ns, NUMBERS_BUFFER), numbers_delta(row->delta_ns, NUMBERS_BUFFER),
                view_interval(row, interval));
    }
    if (shown > VIEW_ROWS)
        strbuf_add(
                &out, "\n%zu more: `upgate diff` of both recordings has all.\n", shown - VIEW_ROWS);
    if (shown == 0)
        strbuf_add(&out, "Nothing stands out of the noise of these windows.\n");
    char *ranks[VIEW_RANKS];
    size_t rank_count = view_ranks_all(diff, ranks);
    for (size_t i = 0; i < rank_count; i++) {
        markdown_put(&out, "\n", ranks[i], "\n");
        free(ranks[i]);
    }
    for (size_t i = 0; i < diff->note_count; i++) {
        markdown_take(&out, i ? "- " : "\n- ", recordings_view_note(&diff->notes[i]), "\n");
    }
    free(answer);
    return strbuf_take(&out);
}

static enum diff_kind view_diff_kind(const struct recordings_row *row)
{
    bool added = !(row->a_ns > 0), removed = !(row->b_ns > 0);
    switch (row->kind) {
    case RECORDINGS_STALL:
        return DIFF_HOST_STALL;
    case RECORDINGS_GPU:
        return added ? DIFF_KERNEL_ADDED : removed ? DIFF_KERNEL_REMOVED : DIFF_KERNEL_SLOWER;
    default:
        return added      ? DIFF_CPU_FUNCTION_ADDED
                : removed ? DIFF_CPU_FUNCTION_REMOVED
                          : DIFF_CPU_FUNCTION_SLOWER;
    }
}

static json_t *view_row(const struct recordings_row *row, size_t rank)
{
    return json_pack("{s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:[o, o], s:n, s:b, s:s, s:[]}",
            "rank", (json_int_t)rank, "kind", diff_kind_word(view_diff_kind(row)), "name_a",
            row->a_ns > 0 ? render_json_text(row->name) : json_null(), "name_b",
            row->b_ns > 0 ? render_json_text(row->name) : json_null(), "where",
            render_json_text(row->where), "a_ns", render_json_whole(row->a_ns), "b_ns",
            render_json_whole(row->b_ns), "delta_ns", render_json_whole(row->delta_ns), "ci_ns",
            render_json_whole(row->lo_ns), render_json_whole(row->hi_ns), "share", "named",
            row->told, "of", recordings_view_kind(row->kind), "evidence");
}

static json_t *view_rank(const struct recordings_rank *rank)
{
    return render_json_set(json_object(), "rank", json_integer(rank->rank), "step_ns",
            render_json_whole(rank->step_ns), NULL);
}

static json_t *view_ranks_side(const struct recordings_ranks *ranks)
{
    bool several = ranks->count > 1;
    json_t *late = ranks->late ? json_object() : json_null();
    json_t *interval = render_json_pair(render_json_whole(several ? ranks->lo_ns : NAN),
            render_json_whole(several ? ranks->hi_ns : NAN));
    if (ranks->late)
        render_json_set(late, "rank", render_json_count(ranks->late_rank), "share",
                render_json_real(ranks->late_share), "what",
                render_json_take(cause_text_deed(&ranks->late_deed)), NULL);
    return render_json_set(json_object(), "ranks", json_integer((json_int_t)ranks->count),
            "typical", several ? view_rank(&ranks->typical) : json_null(), "slowest",
            several ? view_rank(&ranks->slowest) : json_null(), "more_ns",
            several ? render_json_whole(ranks->more_ns) : json_null(), "more_ci_ns", interval,
            "told", json_boolean(ranks->told), "late", late, NULL);
}

// Of both sides, where one has any; a recording of one process has none.
static void view_add_ranks(json_t *workload, const struct recordings_diff *diff)
{
    bool any = false;
    json_t *sides = json_object();
    for (int side = 0; side < 2; side++) {
        any |= diff->ranks[side].count > 1 || diff->ranks[side].late;
        json_object_set_new(sides, side ? "b" : "a", view_ranks_side(&diff->ranks[side]));
    }
    if (any)
        json_object_set_new(workload, "ranks", sides);
    else
        json_decref(sides);
}

json_t *recordings_view_json(const struct recordings_diff *diff)
{
    json_t *rows = render_json_list(i, diff->row_count, view_row(&diff->rows[i], i + 1));
    json_t *notes = render_json_list(
                   i, diff->note_count, render_json_take(recordings_view_note(&diff->notes[i]))),
           *totals = json_array();
    for (int kind = 0; kind < RECORDINGS_KINDS; kind++)
        if (diff->totals[kind].name)
            json_array_append_new(totals,
                    json_pack("{s:s, s:o, s:o, s:o, s:[o, o]}", "what", diff->totals[kind].name,
                            "a_ns", render_json_whole(diff->totals[kind].a_ns), "b_ns",
                            render_json_whole(diff->totals[kind].b_ns), "delta_ns",
                            render_json_whole(diff->totals[kind].delta_ns), "ci_ns",
                            render_json_whole(diff->totals[kind].lo_ns),
                            render_json_whole(diff->totals[kind].hi_ns)));
    json_t *document = json_pack(
            "{s:s, s:[{s:s, s:s, s:n, s:n, s:n, s:[n, n], s:n, s:n, s:[I, I], s:o, s:o, s:o}]}",
            "schema", "upgate.diff/1", "workloads", "workload", "recording", "unit", diff->unit,
            "step_a_ns", "step_b_ns", "delta_ns", "delta_ci_ns", "match_coverage", "residual_ns",
            "window_ns", (json_int_t)diff->window_ns[0], (json_int_t)diff->window_ns[1], "totals",
            totals, "contributions", rows, "notes", notes);
    view_add_ranks(json_array_get(json_object_get(document, "workloads"), 0), diff);
    return document;
}
