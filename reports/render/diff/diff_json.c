// SPDX-License-Identifier: Apache-2.0
// upgate.diff/1 (INTERFACES: "JSON documents"): where the difference comes from, as other tools
// read it. Returns a jansson tree. What is not known is null, times are integers of nanoseconds.
// Members beyond the contract may be added.
#include <math.h>
#include <string.h>

#include "reports/render/diff/diff_view.h"
#include "reports/render/text/json_text.h"

enum { DIFF_JSON_PARTS = 20, DIFF_JSON_TOUCHES_MAX = 200 };

static json_t *diff_json_ns(double ns)
{
    return isfinite(ns) && fabs(ns) < 9e18 ? json_integer(llround(ns)) : json_null();
}

static json_t *diff_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *diff_json_pair(double a, double b)
{
    json_t *pair = json_array();
    json_array_append_new(pair, diff_json_ns(a));
    json_array_append_new(pair, diff_json_ns(b));
    return pair;
}

static json_t *diff_json_texts(const char *const *texts, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, render_json_text(texts[i]));
    return list;
}

// What it is spread over; empty where it is one thing.
static json_t *diff_json_parts(const struct diff_contribution *contribution)
{
    json_t *parts = json_array();
    for (size_t i = 0; i < contribution->part_count && i < DIFF_JSON_PARTS; i++) {
        const struct diff_contribution_part *part = &contribution->parts[i];
        json_t *item = json_object();
        json_object_set_new(item, "kind", json_string(diff_kind_word(part->kind)));
        json_object_set_new(item, "label", render_json_text(part->label));
        json_object_set_new(item, "a_ns", diff_json_ns(part->a_ns));
        json_object_set_new(item, "b_ns", diff_json_ns(part->b_ns));
        json_object_set_new(item, "delta_ns", diff_json_ns(part->b_ns - part->a_ns));
        json_array_append_new(parts, item);
    }
    return parts;
}

// What ran beside its kernels on the device.
static json_t *diff_json_beside(const struct diff_contribution *contribution)
{
    json_t *list = json_array();
    for (size_t i = 0; i < contribution->beside_count; i++) {
        const struct diff_beside *one = &contribution->beside[i];
        json_t *item = json_object();
        json_object_set_new(item, "name", render_json_text(one->name));
        json_object_set_new(item, "collective", json_boolean(one->collective));
        json_object_set_new(item, "share_a", diff_json_real(one->share[0]));
        json_object_set_new(item, "share_b", diff_json_real(one->share[1]));
        json_array_append_new(list, item);
    }
    return list;
}

json_t *diff_view_json_contribution(const struct diff_contribution *contribution)
{
    json_t *item = json_object();
    json_object_set_new(item, "rank", json_integer(contribution->rank));
    json_object_set_new(item, "kind", json_string(diff_kind_word(contribution->kind)));
    json_object_set_new(item, "title", json_string(diff_title(contribution)));
    json_object_set_new(item, "label", render_json_text(contribution->label));
    json_object_set_new(item, "name_a", render_json_text(contribution->name_a));
    json_object_set_new(item, "name_b", render_json_text(contribution->name_b));
    json_object_set_new(item, "where", render_json_text(contribution->where));
    json_object_set_new(item, "a_ns", diff_json_ns(contribution->a_ns));
    json_object_set_new(item, "b_ns", diff_json_ns(contribution->b_ns));
    json_object_set_new(item, "delta_ns", diff_json_ns(contribution->delta_ns));
    json_object_set_new(item, "ci_ns",
                        diff_json_pair(contribution->ci_lo_ns, contribution->ci_hi_ns));
    json_object_set_new(item, "share", diff_json_real(contribution->share)); // of the baseline's step
    json_object_set_new(item, "named", json_boolean(contribution->named));
    json_object_set_new(item, "busy_a_ns", diff_json_ns(contribution->busy_a_ns));
    json_object_set_new(item, "busy_b_ns", diff_json_ns(contribution->busy_b_ns));
    json_object_set_new(item, "count_a", diff_json_real(contribution->count_a));
    json_object_set_new(item, "count_b", diff_json_real(contribution->count_b));
    if (contribution->part_count)
        json_object_set_new(item, "parts", diff_json_parts(contribution));
    if (contribution->beside_count) {
        json_object_set_new(item, "beside", diff_json_beside(contribution));
        json_object_set_new(item, "beside_cause", render_json_text(contribution->beside_cause));
    }
    json_object_set_new(item, "evidence",
                        diff_json_texts(contribution->evidence, contribution->evidence_count));
    json_object_set_new(item, "suspects",
                        diff_json_texts(contribution->suspects, contribution->suspect_count));
    return item;
}

static json_t *diff_json_decomposition(const struct diff_workload *workload)
{
    if (workload->unexplained)
        return json_null();
    json_t *parts = json_object();
    for (int class = 0; class < COST_CLASS_COUNT; class ++)
        json_object_set_new(
            parts, cost_class_word((enum cost_class) class),
            diff_json_pair(workload->parts[class].a_ns, workload->parts[class].b_ns));
    return parts;
}

json_t *diff_view_json_straggler(const struct diff_straggler *straggler)
{
    json_t *item = json_object();
    json_object_set_new(item, "side", json_string(straggler->side ? "b" : "a"));
    json_object_set_new(item, "rank", json_integer(straggler->rank));
    json_object_set_new(item, "last_count", json_integer(straggler->last_count));
    json_object_set_new(item, "collectives", json_integer(straggler->collectives));
    json_object_set_new(item, "late_ns", diff_json_ns(straggler->late_ns));
    json_object_set_new(item, "wait_ns", diff_json_ns(straggler->wait_ns));
    json_object_set_new(item, "exposed_ns", diff_json_ns(straggler->exposed_ns));
    json_object_set_new(item, "told", json_boolean(straggler->told));
    json_object_set_new(item, "why", render_json_text(straggler->why));
    json_object_set_new(item, "why_ns", diff_json_ns(straggler->why_ns));
    return item;
}

// Values of each traced launch, by side.
static json_t *diff_json_launches(double *const launch_ns[2], size_t count)
{
    json_t *launches = json_object();
    for (int side = 0; side < 2; side++) {
        json_t *values = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(values, diff_json_ns(launch_ns[side][i]));
        json_object_set_new(launches, side ? "b" : "a", values);
    }
    return launches;
}

// As a contribution of a step, with the values of each traced launch.
static json_t *diff_json_launch_part(const struct diff_launch_part *part)
{
    json_t *item = diff_view_json_contribution(&part->contribution);
    json_object_set_new(item, "launches_ns", diff_json_launches(part->launch_ns, part->launch_count));
    return item;
}

static json_t *diff_json_once(const struct diff_once *once, double a_ns, double b_ns, const char *places)
{
    json_t *item = json_object(), *parts = json_array(), *phases = json_array();
    for (size_t i = 0; i < once->part_count; i++)
        json_array_append_new(parts, diff_json_launch_part(&once->parts[i]));
    for (size_t i = 0; i < once->phase_count; i++) {
        json_t *phase = json_object();
        json_object_set_new(phase, "name", render_json_text(once->phases[i].name));
        json_object_set_new(phase, "a_ns", diff_json_ns(once->phases[i].a_ns));
        json_object_set_new(phase, "b_ns", diff_json_ns(once->phases[i].b_ns));
        json_array_append_new(phases, phase);
    }
    json_object_set_new(item, "a_ns", diff_json_ns(a_ns));
    json_object_set_new(item, "b_ns", diff_json_ns(b_ns));
    json_object_set_new(item, "contributions", parts);
    json_object_set_new(item, places, phases);
    return item;
}

json_t *diff_view_json_first(const struct diff_workload *workload)
{
    return diff_json_once(&workload->first, workload->cold_a_ns, workload->cold_b_ns, "phases");
}

json_t *diff_view_json_cpu(const struct diff_workload *workload)
{
    json_t *item = diff_json_once(&workload->cpu, workload->cpu_a_ns, workload->cpu_b_ns, "places");
    json_object_set_new(item, "why_not", render_json_text(workload->cpu.why_not));
    return item;
}

static json_t *diff_json_counts(long a, long b)
{
    return json_pack("{s:I, s:I}", "a", (json_int_t)a, "b", (json_int_t)b);
}

// What slow steps, or the slowest requests, have that typical ones have not.
json_t *diff_view_json_slow(const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    json_t *item = json_object(), *parts = json_array(), *period = json_object(), *found = json_object();
    for (size_t i = 0; i < slow->part_count; i++)
        json_array_append_new(parts, diff_json_launch_part(&slow->parts[i]));
    for (int side = 0; side < 2; side++) {
        json_object_set_new(period, side ? "b" : "a", slow->period[side] ? json_integer(slow->period[side]) : json_null());
        json_object_set_new(found, side ? "b" : "a", render_json_text(slow->told[side]));
    }
    json_object_set_new(item, "metric", render_json_text(slow->metric));
    json_object_set_new(item, "failed", json_boolean(slow->failed));
    json_object_set_new(item, "tail", json_boolean(slow->tail));
    json_object_set_new(item, "a_ns", diff_json_ns(slow->a_ns));
    json_object_set_new(item, "b_ns", diff_json_ns(slow->b_ns));
    json_object_set_new(item, "launches_ns", diff_json_launches(slow->launch_ns, slow->launch_count));
    json_object_set_new(item, "slow", diff_json_counts(slow->count[0], slow->count[1]));
    json_object_set_new(item, "steps", diff_json_counts(slow->of[0], slow->of[1]));
    json_object_set_new(item, "period", period);
    json_object_set_new(item, "found", found);
    json_object_set_new(item, "told_ns", diff_json_ns(slow->told_ns));
    json_object_set_new(item, "unseen_ns", slow->where ? diff_json_ns(slow->unseen_ns) : json_null());
    json_object_set_new(item, "where", render_json_text(slow->where));
    json_object_set_new(item, "overlaps", json_boolean(slow->overlaps));
    json_object_set_new(item, "why_not", render_json_text(slow->why_not));
    json_object_set_new(item, "contributions", parts);
    return item;
}

static json_t *diff_json_sides(double a, double b)
{
    json_t *sides = json_object();
    json_object_set_new(sides, "a", diff_json_real(a));
    json_object_set_new(sides, "b", diff_json_real(b));
    return sides;
}

// NCCL's versions, and what the collectives of both sides took.
json_t *diff_view_json_collectives(const struct diff_workload *workload)
{
    json_t *item = json_object(), *list = json_array();
    for (size_t i = 0; i < workload->collective_count; i++) {
        const struct diff_collective *one = &workload->collectives[i];
        json_t *row = json_object();
        json_object_set_new(row, "name", render_json_text(one->name));
        json_object_set_new(row, "size", render_json_text(one->size));
        json_object_set_new(row, "how_a", render_json_text(one->how[0]));
        json_object_set_new(row, "how_b", render_json_text(one->how[1]));
        json_object_set_new(row, "count_a", diff_json_real(one->count[0]));
        json_object_set_new(row, "count_b", diff_json_real(one->count[1]));
        json_object_set_new(row, "busy_a_ns", diff_json_ns(one->busy_ns[0]));
        json_object_set_new(row, "busy_b_ns", diff_json_ns(one->busy_ns[1]));
        json_object_set_new(row, "exposed_a_ns", diff_json_ns(one->exposed_ns[0]));
        json_object_set_new(row, "exposed_b_ns", diff_json_ns(one->exposed_ns[1]));
        json_array_append_new(list, row);
    }
    json_object_set_new(item, "nccl_a", render_json_text(workload->nccl_version[0]));
    json_object_set_new(item, "nccl_b", render_json_text(workload->nccl_version[1]));
    json_object_set_new(item, "kinds", list);
    return item;
}

static json_t *diff_json_bytes(double bytes)
{
    return isfinite(bytes) && fabs(bytes) < 9e18 ? json_integer(llround(bytes)) : json_null();
}

static json_t *diff_json_bytes_sides(double a, double b)
{
    json_t *sides = json_object();
    json_object_set_new(sides, "a", diff_json_bytes(a));
    json_object_set_new(sides, "b", diff_json_bytes(b));
    return sides;
}

static json_t *diff_json_memory_part(const struct diff_memory_part *part)
{
    json_t *item = json_object();
    json_object_set_new(item, "kind", json_string(diff_memory_word(part->kind)));
    json_object_set_new(item, "name", render_json_text(part->name));
    json_object_set_new(item, "name_a", render_json_text(part->name_a));
    json_object_set_new(item, "name_b", render_json_text(part->name_b));
    json_object_set_new(item, "a_bytes", diff_json_bytes(part->a_bytes));
    json_object_set_new(item, "b_bytes", diff_json_bytes(part->b_bytes));
    json_object_set_new(item, "delta_bytes", diff_json_bytes(part->b_bytes - part->a_bytes));
    json_object_set_new(item, "anonymous_bytes",
                        diff_json_bytes_sides(part->anonymous_bytes[0], part->anonymous_bytes[1]));
    json_object_set_new(item, "told", json_boolean(part->told));
    return item;
}

static json_t *diff_json_touch(const struct diff_touch *touch, bool gpu)
{
    json_t *item = json_object();
    json_object_set_new(item, "function", render_json_text(touch->function));
    json_object_set_new(item, "module", render_json_text(touch->module));
    json_object_set_new(item, "caller", render_json_text(touch->caller));
    json_object_set_new(item, "caller_file", render_json_text(touch->caller_file));
    json_object_set_new(item, "outside", render_json_text(touch->outside));
    json_object_set_new(item, "outside_file", render_json_text(touch->outside_file));
    json_object_set_new(item, "a_bytes", diff_json_bytes(touch->a_bytes));
    json_object_set_new(item, "b_bytes", diff_json_bytes(touch->b_bytes));
    json_object_set_new(item, "delta_bytes", diff_json_bytes(touch->b_bytes - touch->a_bytes));
    json_object_set_new(item, "start_bytes", diff_json_bytes_sides(touch->start_bytes[0], touch->start_bytes[1]));
    json_object_set_new(item, gpu ? "allocations" : "faults",
                        json_pack("{s:I, s:I}", "a", (json_int_t)touch->samples[0], "b", (json_int_t)touch->samples[1]));
    json_object_set_new(item, "told", json_boolean(touch->told));
    return item;
}

json_t *diff_view_json_memory(const struct diff_memory *memory)
{
    json_t *item = json_object(), *parts = json_array(), *touched = json_array();
    for (size_t i = 0; i < memory->touch_count && i < DIFF_JSON_TOUCHES_MAX; i++)
        json_array_append_new(touched, diff_json_touch(&memory->touches[i], memory->gpu));
    for (size_t i = 0; i < memory->part_count; i++)
        json_array_append_new(parts, diff_json_memory_part(&memory->parts[i]));
    json_object_set_new(item, "failed", json_boolean(memory->failed));
    json_object_set_new(item, "peak_bytes", diff_json_bytes_sides(memory->peak_a_bytes, memory->peak_b_bytes));
    json_object_set_new(item, "traced_peak_bytes", diff_json_bytes_sides(memory->peak[0], memory->peak[1]));
    json_object_set_new(item, "held_bytes", diff_json_bytes_sides(memory->held[0], memory->held[1]));
    json_object_set_new(item, "launches",
                        json_pack("{s:I, s:I}", "a", (json_int_t)memory->launches[0], "b", (json_int_t)memory->launches[1]));
    json_object_set_new(item, "more_bytes", diff_json_bytes(memory->more_bytes));
    json_object_set_new(item, "less_bytes", diff_json_bytes(memory->less_bytes));
    json_object_set_new(item, "parts", parts);
    json_object_set_new(item, "touched", touched);
    json_object_set_new(item, "touched_more_bytes", diff_json_bytes(memory->touch_more_bytes));
    json_object_set_new(item, "touched_less_bytes", diff_json_bytes(memory->touch_less_bytes));
    json_object_set_new(item, "seen_bytes", diff_json_bytes_sides(memory->seen[0], memory->seen[1]));
    return item;
}

static json_t *diff_json_workload(const struct diff_workload *workload)
{
    json_t *item = json_object(), *contributions = json_array(), *stragglers = json_array();
    for (size_t i = 0; i < workload->contribution_count; i++)
        json_array_append_new(contributions,
                              diff_view_json_contribution(&workload->contributions[i]));
    for (size_t i = 0; i < workload->straggler_count; i++)
        json_array_append_new(stragglers, diff_view_json_straggler(&workload->stragglers[i]));
    json_object_set_new(item, "workload", render_json_text(workload->name));
    json_object_set_new(item, "unit", json_string(workload->unit));
    json_object_set_new(item, "unexplained", render_json_text(workload->unexplained));
    json_object_set_new(item, "step_a_ns", diff_json_ns(workload->step_a_ns));
    json_object_set_new(item, "step_b_ns", diff_json_ns(workload->step_b_ns));
    json_object_set_new(item, "delta_ns", diff_json_ns(workload->delta_ns));
    json_object_set_new(item, "delta_ci_ns",
                        diff_json_pair(workload->delta_lo_ns, workload->delta_hi_ns));
    json_object_set_new(item, "match_coverage", diff_json_real(workload->match_coverage));
    json_object_set_new(item, "residual_ns", diff_json_ns(workload->residual_ns));
    json_object_set_new(item, "slower_ns", diff_json_ns(workload->slower_ns));
    json_object_set_new(item, "faster_ns", diff_json_ns(workload->faster_ns));
    json_object_set_new(item, "unaccounted",
                        diff_json_sides(workload->unaccounted[0], workload->unaccounted[1]));
    json_object_set_new(item, "traced_pairs", json_integer((json_int_t)workload->traced_pairs));
    json_object_set_new(item, "windows",
                        json_pack("{s:I, s:I}", "a", (json_int_t)workload->windows[0], "b",
                                  (json_int_t)workload->windows[1]));
    json_object_set_new(item, "traced_ratio",
                        diff_json_sides(workload->traced_ratio[0], workload->traced_ratio[1]));
    json_object_set_new(item, "first_step", diff_view_json_first(workload));
    if (workload->cpu.pairs || workload->cpu.why_not)
        json_object_set_new(item, "cpu_time", diff_view_json_cpu(workload));
    if (workload->slow.metric)
        json_object_set_new(item, "slow_steps", diff_view_json_slow(workload));
    json_object_set_new(item, "decomposition", diff_json_decomposition(workload));
    json_object_set_new(item, "contributions", contributions);
    if (workload->collective_count)
        json_object_set_new(item, "collectives", diff_view_json_collectives(workload));
    if (workload->memory.part_count)
        json_object_set_new(item, "memory", diff_view_json_memory(&workload->memory));
    if (workload->gpu_memory.part_count)
        json_object_set_new(item, "gpu_memory", diff_view_json_memory(&workload->gpu_memory));
    json_object_set_new(item, "stragglers", stragglers);
    json_object_set_new(item, "late", render_json_text(workload->late));
    json_object_set_new(item, "notes", diff_json_texts(workload->notes, workload->note_count));
    return item;
}

json_t *diff_view_json(const struct diff *diff)
{
    json_t *document = json_object(), *workloads = json_array(), *sides = json_object();
    for (size_t i = 0; i < diff->workload_count; i++)
        json_array_append_new(workloads, diff_json_workload(&diff->workloads[i]));
    json_object_set_new(sides, "a", render_json_text(diff->side_names[0]));
    json_object_set_new(sides, "b", render_json_text(diff->side_names[1]));
    json_object_set_new(document, "schema", json_string("upgate.diff/1"));
    json_object_set_new(document, "sides", sides);
    json_object_set_new(document, "workloads", workloads);
    return document;
}
