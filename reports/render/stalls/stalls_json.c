// SPDX-License-Identifier: Apache-2.0
// upgate.stalls/1 (INTERFACES: "JSON documents"): the stalls of one recording as other tools read
// them. Returns a jansson tree. What is not known is null, times are integers of nanoseconds.
// Members beyond the contract may be added.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/render/stalls/stalls_heat.h"
#include "reports/render/stalls/stalls_text.h"
#include "reports/render/stalls/stalls_view.h"
#include "reports/render/stalls/stalls_what_if.h"
#include "reports/render/text/json_text.h"

static json_t *stalls_json_stack(const struct stall_stack *stack)
{
    json_t *frames = json_array();
    for (size_t i = 0; i < stack->count; i++) {
        char *frame = stalls_text_frame(stack, i);
        json_array_append_new(frames, render_json_text(frame));
        free(frame);
    }
    return frames;
}

static json_t *stalls_json_task(const struct stall_task *task)
{
    if (!task->known)
        return json_null();
    json_t *item = json_object();
    json_object_set_new(item, "pid", json_integer(task->pid));
    json_object_set_new(item, "tid", json_integer(task->tid));
    json_object_set_new(item, "comm", render_json_text(task->comm));
    json_object_set_new(item, "cmdline", render_json_text(task->cmdline));
    json_object_set_new(item, "kind", render_json_text(task->kind));
    return item;
}

static json_t *stalls_json_victim(const struct stall *stall)
{
    json_t *item = stalls_json_task(&stall->victim);
    if (json_is_null(item))
        return item;
    json_object_set_new(item, "kernel_stack", stalls_json_stack(&stall->victim_kernel));
    json_object_set_new(item, "user_stack", stalls_json_stack(&stall->victim_user));
    json_object_set_new(item, "python_stack", stalls_json_stack(&stall->victim_python));
    return item;
}

static json_t *stalls_json_culprit(const struct stall *stall)
{
    json_t *item = stalls_json_task(&stall->culprit);
    if (json_is_null(item))
        return item;
    json_object_set_new(item, "kernel_function", render_json_text(stall->culprit_function));
    json_object_set_new(item, "kernel_stack", stalls_json_stack(&stall->culprit_kernel));
    if (!stall->is_straggler)
        return item;
    json_object_set_new(item, "rank", stall->rank < 0 ? json_null() : json_integer(stall->rank));
    json_object_set_new(item, "host", render_json_text(stall->host));
    if (stall->gpu.known)
        json_object_set_new(item, "gpu", stalls_gpu_json(&stall->gpu));
    json_object_set_new(item, "what", render_json_text(stall->what));
    json_object_set_new(item, "user_stack", stalls_json_stack(&stall->culprit_user));
    json_object_set_new(item, "python_stack", stalls_json_stack(&stall->culprit_python));
    return item;
}

static json_t *stalls_json_chain(const struct stall *stall)
{
    json_t *chain = json_array();
    for (size_t i = 0; i < stall->chain_count; i++) {
        json_t *link = json_object();
        json_object_set_new(link, "from", stalls_json_task(&stall->chain[i].from));
        json_object_set_new(link, "to", stalls_json_task(&stall->chain[i].to));
        json_object_set_new(link, "via", render_json_text(stall->chain[i].via));
        json_array_append_new(chain, link);
    }
    return chain;
}

static json_t *stalls_json_stall(const struct stall *stall)
{
    json_t *item = json_object();
    json_object_set_new(item, "cause", render_json_text(stall->cause));
    json_object_set_new(item, "title", render_json_text(stall->title));
    json_object_set_new(item, "total_ns", json_integer(stall->total_ns));
    json_object_set_new(item, "count", json_integer((json_int_t)stall->count));
    json_object_set_new(item, "max_ns", json_integer(stall->max_ns));
    json_object_set_new(item, "period_ns",
                        stall->has_period ? json_integer(stall->period_ns) : json_null());
    json_object_set_new(item, "first_ns", json_integer(stall->first_ns));
    json_object_set_new(item, "last_ns", json_integer(stall->last_ns));
    json_object_set_new(item, "blocked_ns", json_integer(stall->blocked_ns));
    json_object_set_new(item, "run_queue_ns", json_integer(stall->run_queue_ns));
    json_object_set_new(item, "preempted_ns", json_integer(stall->preempted_ns));
    json_object_set_new(item, "on_cpu_ns", json_integer(stall->on_cpu_ns));
    json_object_set_new(item, "confidence",
                        isfinite(stall->confidence) ? json_real(stall->confidence) : json_null());
    json_object_set_new(item, "confidence_note", render_json_text(stall->confidence_note));
    json_object_set_new(item, "steps_hit",
                        stall->has_steps ? json_integer((json_int_t)stall->steps_hit)
                                         : json_null());
    json_object_set_new(item, "steps_total",
                        stall->has_steps ? json_integer((json_int_t)stall->steps_total)
                                         : json_null());
    json_object_set_new(item, "resource", render_json_text(stall->resource));
    json_object_set_new(item, "victim", stalls_json_victim(stall));
    json_object_set_new(item, "victim_threads", json_integer((json_int_t)stall->victim_threads));
    json_object_set_new(item, "culprit", stalls_json_culprit(stall));
    json_object_set_new(item, "chain", stalls_json_chain(stall));
    if (stall->is_straggler) {
        json_object_set_new(item, "ranks", json_integer(stall->ranks));
        json_object_set_new(item, "late_ns", json_integer(stall->late_ns));
        json_object_set_new(item, "more_ns", stall->more_ns > 0 ? json_integer(stall->more_ns) : json_null());
        json_object_set_new(item, "ranks_ns", json_integer(stall->ranks_ns));
    }
    json_object_set_new(item, "advice", render_json_text(stall->advice));
    return item;
}

char *stalls_view_detail(const struct stall *stall)
{
    json_t *item = stalls_json_stall(stall);
    char *text = json_dumps(item, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(item);
    return text ? text : xstrdup("{}");
}

static json_t *stalls_json_trust(const struct stalls *stalls)
{
    json_t *breaches = json_array(), *missing = json_array(), *trust = json_object();
    for (size_t i = 0; i < stalls->breach_count; i++) {
        const struct stall_breach *breach = &stalls->breaches[i];
        json_t *item = json_object();
        json_object_set_new(item, "producer", render_json_text(breach->producer));
        json_object_set_new(item, "kind", render_json_text(breach->kind));
        json_object_set_new(item, "count", json_integer(breach->count));
        json_object_set_new(item, "detail", render_json_text(breach->detail));
        json_array_append_new(breaches, item);
    }
    for (size_t i = 0; i < stalls->missing_count; i++)
        json_array_append_new(missing, render_json_text(stalls->missing[i]));
    json_object_set_new(trust, "ok", json_boolean(stalls->breach_count == 0));
    json_object_set_new(trust, "breaches", breaches);
    json_object_set_new(trust, "missing", missing);
    return trust;
}

static json_t *stalls_json_recordings(const struct stalls_recordings *recordings)
{
    json_t *list = json_array();
    for (size_t i = 0; recordings && i < recordings->count; i++) {
        const struct stalls_recording *recording = &recordings->items[i];
        json_t *item = json_object();
        json_object_set_new(item, "id", json_integer(recording->id));
        json_object_set_new(item, "workload", render_json_text(recording->workload));
        json_object_set_new(item, "side",
                            recording->side < 0 ? json_null()
                                                : json_string(recording->side == 0 ? "a" : "b"));
        json_object_set_new(item, "pair",
                            recording->pair < 0 ? json_null() : json_integer(recording->pair));
        json_object_set_new(item, "pid",
                            recording->target.known ? json_integer(recording->target.pid)
                                                    : json_null());
        json_array_append_new(list, item);
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
        json_object_set_new(stall, "rank", json_integer((json_int_t)i + 1));
        json_object_set_new(stall, "share", json_real((double)stalls->outside[i].total_ns / (double)window_ns));
        json_array_append_new(list, stall);
    }
    json_object_set_new(item, "startup_ns", json_integer(stalls->startup_ns));
    json_object_set_new(item, "exit_ns", json_integer(stalls->exit_ns));
    json_object_set_new(item, "until", json_string(stalls->by_steps ? "steps" : "collectives"));
    json_object_set_new(item, "stalls", list);
    return item;
}

json_t *stalls_view_json(const struct stalls_view *view)
{
    const struct stalls *stalls = view->shown[0].stalls;
    const struct stalls_recording *recording = view->shown[0].recording;
    json_t *list = json_array(), *document = json_object(), *counts = json_object();
    for (size_t i = 0; i < stalls->count; i++) {
        json_t *item = stalls_json_stall(&stalls->stalls[i]);
        json_object_set_new(item, "rank", json_integer((json_int_t)i + 1));
        double share = stalls_text_fraction(stalls, &stalls->stalls[i]);
        json_object_set_new(item, "share", isfinite(share) ? json_real(share) : json_null());
        json_array_append_new(list, item);
    }
    json_object_set_new(counts, "gaps", json_integer(recording->gaps));
    json_object_set_new(counts, "samples", json_integer(recording->samples));
    json_object_set_new(counts, "lock_waits", json_integer(recording->lock_waits));
    json_object_set_new(counts, "facts", json_integer(recording->facts));
    char *why_not = stalls_view_nothing(&view->shown[0]);
    char *answer = why_not ? why_not : stalls_text_answer(&view->shown[0]);
    json_object_set_new(document, "schema", json_string("upgate.stalls/1"));
    json_object_set_new(document, "answer", render_json_text(answer));
    json_object_set_new(document, "recording", json_integer(recording->id));
    json_object_set_new(document, "window_ns", json_integer(stalls->window_ns));
    json_object_set_new(document, "threshold_ns", json_integer(stalls->threshold_ns));
    json_object_set_new(document, "target", stalls_json_task(&recording->target));
    json_object_set_new(document, "target_threads",
                        json_integer((json_int_t)stalls->target_threads));
    json_object_set_new(document, "idle_ns", json_integer(stalls->idle_ns));
    json_object_set_new(document, "events", counts);
    json_object_set_new(document, "stalls", list);
    json_object_set_new(document, "outside", stalls_json_outside(stalls));
    json_object_set_new(document, "what_if", stalls_what_if_json(&stalls->what_if));
    json_object_set_new(document, "heat", stalls_heat_json(&stalls->heat));
    json_object_set_new(document, "trust", stalls_json_trust(stalls));
    json_object_set_new(document, "recordings", stalls_json_recordings(view->recordings));
    free(answer);
    return document;
}
