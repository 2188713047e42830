// SPDX-License-Identifier: Apache-2.0
// upgate.stalls/1 (INTERFACES: "JSON documents"): the stalls of one recording as other tools read
// them. Returns a jansson tree. What is not known is null, times are integers of nanoseconds.
// Members beyond the contract may be added.
#include <stdlib.h>

#include "reports/render/causes/cause_text.h"
#include "reports/render/stalls/stalls_heat.h"
#include "reports/render/stalls/stalls_text.h"
#include "reports/render/stalls/stalls_view.h"
#include "reports/render/stalls/stalls_what_if.h"
#include "reports/render/text/json_text.h"

static json_t *stalls_json_stack(const struct stall_stack *stack)
{
    json_t *frames = json_array();
    for (size_t i = 0; i < stack->count; i++)
        json_array_append_new(frames, render_json_take(stalls_text_frame(stack, i)));
    return frames;
}

static json_t *stalls_json_task(const struct stall_task *task)
{
    if (!task->known)
        return json_null();
    return render_json_set(json_object(), "pid", json_integer(task->pid), "tid",
            json_integer(task->tid), "comm", render_json_text(task->comm), "cmdline",
            render_json_text(task->cmdline), "kind", render_json_text(task->kind), NULL);
}

static json_t *stalls_json_victim(const struct stall *stall)
{
    json_t *item = stalls_json_task(&stall->victim);
    if (json_is_null(item))
        return item;
    return render_json_set(item, "kernel_stack", stalls_json_stack(&stall->victim_kernel),
            "user_stack", stalls_json_stack(&stall->victim_user), "python_stack",
            stalls_json_stack(&stall->victim_python), NULL);
}

static json_t *stalls_json_culprit(const struct stall *stall)
{
    json_t *item = stalls_json_task(&stall->culprit);
    if (json_is_null(item))
        return item;
    render_json_set(item, "kernel_function", render_json_text(stall->culprit_function),
            "kernel_stack", stalls_json_stack(&stall->culprit_kernel), NULL);
    if (!stall->is_straggler)
        return item;
    render_json_set(item, "rank", render_json_count(stall->rank), "host",
            render_json_text(stall->host), NULL);
    if (stall->gpu.known)
        json_object_set_new(item, "gpu", stalls_gpu_json(&stall->gpu));
    return render_json_set(item, "what", render_json_take(cause_text_deed(&stall->deed)),
            "user_stack", stalls_json_stack(&stall->culprit_user), "python_stack",
            stalls_json_stack(&stall->culprit_python), NULL);
}

static json_t *stalls_json_chain(const struct stall *stall)
{
    json_t *chain = json_array();
    for (size_t i = 0; i < stall->chain_count; i++) {
        json_array_append_new(chain,
                render_json_set(json_object(), "from", stalls_json_task(&stall->chain[i].from),
                        "to", stalls_json_task(&stall->chain[i].to), "via",
                        render_json_take(stalls_text_via(&stall->chain[i])), NULL));
    }
    return chain;
}

static json_t *stalls_json_stall(const struct stall *stall)
{
    json_t *item = render_json_set(json_object(), "cause", render_json_text(stall->cause), "title",
            render_json_text(stall->title), "total_ns", json_integer(stall->total_ns), "count",
            json_integer((json_int_t)stall->count), "max_ns", json_integer(stall->max_ns),
            "period_ns", stall->has_period ? json_integer(stall->period_ns) : json_null(),
            "first_ns", json_integer(stall->first_ns), "last_ns", json_integer(stall->last_ns),
            "blocked_ns", json_integer(stall->blocked_ns), "run_queue_ns",
            json_integer(stall->run_queue_ns), "preempted_ns", json_integer(stall->preempted_ns),
            "on_cpu_ns", json_integer(stall->on_cpu_ns), "confidence",
            render_json_real(stall->confidence), "confidence_note",
            render_json_take(stalls_text_doubts(stall)), "steps_hit",
            stall->has_steps ? json_integer((json_int_t)stall->steps_hit) : json_null(),
            "steps_total",
            stall->has_steps ? json_integer((json_int_t)stall->steps_total) : json_null(),
            "resource", render_json_take(stalls_text_resource(&stall->resource)), "victim",
            stalls_json_victim(stall), "victim_threads",
            json_integer((json_int_t)stall->victim_threads), "culprit", stalls_json_culprit(stall),
            "chain", stalls_json_chain(stall), NULL);
    if (stall->is_straggler)
        render_json_set(item, "ranks", json_integer(stall->ranks), "late_ns",
                json_integer(stall->late_ns), "more_ns",
                stall->more_ns > 0 ? json_integer(stall->more_ns) : json_null(), "ranks_ns",
                json_integer(stall->ranks_ns), NULL);
    json_object_set_new(item, "advice", render_json_take(stalls_text_advice_full(stall)));
    return item;
}

// Without its rank, which is a column of the row.
static char *stalls_json_detail(const struct stall *stall)
{
    json_t *item = stalls_json_stall(stall);
    char *text = json_dumps(item, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(item);
    return text ? text : xstrdup("{}");
}

const struct stalls_words stalls_view_words = {stalls_text_advice_full, stalls_json_detail};

static json_t *stalls_json_trust(const struct stalls *stalls)
{
    json_t *breaches = json_array();
    for (size_t i = 0; i < stalls->breach_count; i++) {
        const struct stall_breach *breach = &stalls->breaches[i];
        json_array_append_new(breaches,
                render_json_set(json_object(), "producer", render_json_text(breach->producer),
                        "kind", render_json_text(breach->kind), "count",
                        json_integer(breach->count), "detail",
                        render_json_text(stalls_text_breach_detail(breach)), NULL));
    }
    return render_json_set(json_object(), "ok", json_boolean(stalls->breach_count == 0), "breaches",
            breaches, "missing",
            render_json_list(i, stalls->missing_count,
                    render_json_take(stalls_text_missing(&stalls->missing[i]))),
            NULL);
}

static json_t *stalls_json_recordings(const struct stalls_recordings *recordings)
{
    json_t *list = json_array();
    for (size_t i = 0; recordings && i < recordings->count; i++) {
        const struct stalls_recording *recording = &recordings->items[i];
        json_array_append_new(list,
                render_json_set(json_object(), "id", json_integer(recording->id), "workload",
                        render_json_text(recording->workload), "side",
                        recording->side < 0 ? json_null()
                                            : json_string(recording->side == 0 ? "a" : "b"),
                        "pair", render_json_count(recording->pair), "pid",
                        recording->target.known ? json_integer(recording->target.pid) : json_null(),
                        NULL));
    }
    return list;
}

// What lies before the first step and behind the last one, with causes of its own.
static json_t *stalls_json_outside(const struct stalls *stalls)
{
    int64_t window_ns = stalls->startup_ns + stalls->exit_ns;
    if (!window_ns)
        return json_null();
    json_t *list = json_array(), *item = json_object();
    for (size_t i = 0; i < stalls->outside_count; i++) {
        json_t *stall = stalls_json_stall(&stalls->outside[i]);
        render_json_set(stall, "rank", json_integer((json_int_t)i + 1), "share",
                json_real((double)stalls->outside[i].total_ns / (double)window_ns), NULL);
        json_array_append_new(list, stall);
    }
    return render_json_set(item, "startup_ns", json_integer(stalls->startup_ns), "exit_ns",
            json_integer(stalls->exit_ns), "until",
            json_string(stalls->by_steps ? "steps" : "collectives"), "stalls", list, NULL);
}

json_t *stalls_view_json(const struct stalls_view *view)
{
    const struct stalls *stalls = view->shown[0].stalls;
    const struct stalls_recording *recording = view->shown[0].recording;
    json_t *list = json_array(), *document = json_object(), *counts = json_object();
    for (size_t i = 0; i < stalls->count; i++) {
        json_t *item = stalls_json_stall(&stalls->stalls[i]);
        render_json_set(item, "rank", json_integer((json_int_t)i + 1), "share",
                render_json_real(stalls_text_fraction(stalls, &stalls->stalls[i])), NULL);
        json_array_append_new(list, item);
    }
    render_json_set(counts, "gaps", json_integer(recording->gaps), "samples",
            json_integer(recording->samples), "lock_waits", json_integer(recording->lock_waits),
            "facts", json_integer(recording->facts), NULL);
    char *why_not = stalls_view_nothing(&view->shown[0]);
    char *answer = why_not ? why_not : stalls_text_answer(&view->shown[0]);
    render_json_set(document, "schema", json_string("upgate.stalls/1"), "answer",
            render_json_text(answer), "recording", json_integer(recording->id), "window_ns",
            json_integer(stalls->window_ns), "threshold_ns", json_integer(stalls->threshold_ns),
            "target", stalls_json_task(&recording->target), "target_threads",
            json_integer((json_int_t)stalls->target_threads), "idle_ns",
            json_integer(stalls->idle_ns), "events", counts, "stalls", list, "outside",
            stalls_json_outside(stalls), "what_if", stalls_what_if_json(&stalls->what_if), "heat",
            stalls_heat_json(&stalls->heat), "trust", stalls_json_trust(stalls), "recordings",
            stalls_json_recordings(view->recordings), NULL);
    free(answer);
    return document;
}
