// SPDX-License-Identifier: Apache-2.0
// The stalls of each recording of a workload in the HTML report's data document: who was held up,
// on what, by whom, in the words that `upgate stalls` uses. Reads the store through the stall
// analysis; writes JSON.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/html/html_parts.h"
#include "reports/render/stalls/stalls_heat.h"
#include "reports/render/stalls/stalls_text.h"
#include "reports/render/stalls/stalls_what_if.h"

enum { HTML_STALLS_MAX = 25, HTML_STALL_FRAMES_MAX = 12, HTML_STALL_RECORDINGS_MAX = 40 };

static json_t *stalls_item(const struct stalls *stalls, const struct stall *stall, size_t rank)
{
    return render_json_set(json_object(), "rank", json_integer((json_int_t)rank), "cause",
            html_text(stall->cause, HTML_NAME_BYTES_MAX), "title",
            html_text(stall->title, HTML_TEXT_BYTES_MAX), "total_ns", json_integer(stall->total_ns),
            "share", render_json_real(stalls_text_fraction(stalls, stall)), "count",
            json_integer((json_int_t)stall->count), "max_ns", json_integer(stall->max_ns),
            "period_ns", stall->has_period ? json_integer(stall->period_ns) : json_null(),
            "confidence", render_json_real(stall->confidence), "blame",
            html_take(stalls_text_blame(stall)), "lost", html_take(stalls_text_lost(stall)),
            "steps", html_take(stalls_text_steps(stall)), "victim",
            html_take(stalls_text_thread(&stall->victim)), "culprit",
            stall->culprit.known ? html_take(stalls_text_task(&stall->culprit, STALLS_NAME_PROGRAM))
                                 : json_null(),
            "where",
            html_take(stalls_text_stack(&stall->victim_kernel, HTML_STALL_FRAMES_MAX, true)),
            "python",
            html_take(stalls_text_stack(&stall->victim_python, HTML_STALL_FRAMES_MAX, true)),
            "advice", html_take(stalls_text_advice(stall)), NULL);
}

// What the job took, and what it would take if, as sentences.
static json_t *stalls_what_if(const struct stall_what_if *what_if)
{
    json_t *lines = json_array();
    json_array_append_new(lines, html_take(stalls_what_if_head(what_if)));
    for (int i = 0; i < STALLS_QUESTION_COUNT; i++) {
        double ns = stalls_what_if_ns(what_if, (enum stalls_question)i);
        if (!isfinite(ns))
            continue;
        char *question = stalls_what_if_question(what_if, (enum stalls_question)i);
        json_array_append_new(lines,
                html_take(xasprintf("%s: %s%s, %s", question, numbers_ns(ns, NUMBERS_BUFFER),
                        what_if->by_steps ? " a step" : "",
                        stalls_what_if_change(what_if, ns, NUMBERS_BUFFER))));
        free(question);
    }
    return lines;
}

// Who was late when: the sentence, and a row a rank of thousandths of each part.
static json_t *stalls_heat(const struct stall_heat *heat)
{
    json_t *item = json_object(), *rows = json_array();
    for (size_t i = 0; i < heat->row_count; i++) {
        json_t *values = render_json_list(
                k, heat->blocks, json_integer((json_int_t)llround(heat->rows[i].shares[k] * 1000)));
        json_array_append_new(rows,
                render_json_set(json_object(), "label",
                        html_take(stalls_heat_label(heat, &heat->rows[i])), "values", values,
                        NULL));
    }
    return render_json_set(item, "text", html_take(stalls_heat_head(heat)), "span_ns",
            json_integer(heat->end_ns - heat->begin_ns), "rows", rows, NULL);
}

static json_t *stalls_recording(const struct stalls_shown *shown)
{
    const struct stalls_recording *recording = shown->recording;
    json_t *entry = json_object(), *items = json_array();
    char *why_not = stalls_view_nothing(shown);
    for (size_t i = 0; i < shown->stalls->count && i < HTML_STALLS_MAX; i++)
        json_array_append_new(items, stalls_item(shown->stalls, &shown->stalls->stalls[i], i + 1));
    render_json_set(entry, "side",
            recording->side < 0 ? json_null() : json_string(recording->side ? "b" : "a"), "pair",
            render_json_count(recording->pair), "recording", json_integer(recording->id),
            "window_ns", json_integer(shown->stalls->window_ns), "answer",
            html_take(why_not ? why_not : stalls_text_answer(shown)), "watched",
            html_take(stalls_text_watched(shown)), "items", items, NULL);
    if (shown->stalls->what_if.known || shown->stalls->what_if.why_not)
        json_object_set_new(entry, "what_if", stalls_what_if(&shown->stalls->what_if));
    if (shown->stalls->heat.blocks)
        json_object_set_new(entry, "heat", stalls_heat(&shown->stalls->heat));
    return entry;
}

static bool stalls_mine(const struct stalls_recording *recording, const char *workload, int64_t id)
{
    if (!workload)
        return recording->id == id;
    return recording->workload && strcmp(recording->workload, workload) == 0;
}

json_t *html_stalls(struct store *store, const struct stalls_recordings *recordings,
        const char *workload, int64_t id, struct error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < recordings->count && json_array_size(list) < HTML_STALL_RECORDINGS_MAX;
            i++) {
        const struct stalls_recording *recording = &recordings->items[i];
        if (!stalls_mine(recording, workload, id))
            continue;
        struct stalls *stalls = NULL;
        const struct stalls_opts opts = {.recording_id = recording->id};
        if (stalls_analyse(store, &opts, &stalls, err)) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, stalls_recording(&(struct stalls_shown){recording, stalls}));
        stalls_free(stalls);
    }
    return list;
}
