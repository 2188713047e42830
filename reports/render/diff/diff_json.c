// SPDX-License-Identifier: Apache-2.0
// upgate.diff/1 (INTERFACES: "JSON documents"): where the difference comes from, as other tools
// read it. Returns a jansson tree. What is not known is null, times are integers of nanoseconds.
// Members beyond the contract may be added.
#include "reports/render/diff/diff_view.h"
#include "reports/render/diff/diff_words.h"
#include "reports/render/text/json_text.h"

enum { DIFF_JSON_PARTS = 20, DIFF_JSON_TOUCHES_MAX = 200 };

static json_t *diff_json_pair(double a, double b)
{
    return render_json_pair(render_json_whole(a), render_json_whole(b));
}

static json_t *diff_json_counts(long a, long b)
{
    return json_pack("{s:I, s:I}", "a", (json_int_t)a, "b", (json_int_t)b);
}

// What it is spread over; empty where it is one thing.
static json_t *diff_json_parts(const struct diff_contribution *contribution)
{
    json_t *parts = json_array();
    for (size_t i = 0; i < contribution->part_count && i < DIFF_JSON_PARTS; i++) {
        const struct diff_contribution_part *part = &contribution->parts[i];
        json_array_append_new(parts,
                render_json_set(json_object(), "kind", json_string(diff_kind_word(part->kind)),
                        "label", render_json_text(part->label), "a_ns",
                        render_json_whole(part->a_ns), "b_ns", render_json_whole(part->b_ns),
                        "delta_ns", render_json_whole(part->b_ns - part->a_ns), NULL));
    }
    return parts;
}

// What ran beside its kernels on the device.
static json_t *diff_json_beside(const struct diff_contribution *contribution)
{
    json_t *list = json_array();
    for (size_t i = 0; i < contribution->beside_count; i++) {
        const struct diff_beside *one = &contribution->beside[i];
        json_array_append_new(list,
                render_json_set(json_object(), "name", render_json_text(one->name), "collective",
                        json_boolean(one->collective), "share_a", render_json_real(one->share[0]),
                        "share_b", render_json_real(one->share[1]), NULL));
    }
    return list;
}

json_t *diff_view_json_contribution(const struct diff_contribution *contribution)
{
    json_t *item = render_json_set(json_object(), "rank", json_integer(contribution->rank), "kind",
            json_string(diff_kind_word(contribution->kind)), "title",
            json_string(diff_text_change(contribution)), "label",
            render_json_text(contribution->label), "name_a", render_json_text(contribution->name_a),
            "name_b", render_json_text(contribution->name_b), "where",
            render_json_text(contribution->where), "a_ns", render_json_whole(contribution->a_ns),
            "b_ns", render_json_whole(contribution->b_ns), "delta_ns",
            render_json_whole(contribution->delta_ns), "ci_ns",
            diff_json_pair(contribution->ci_lo_ns, contribution->ci_hi_ns), "share",
            render_json_real(contribution->share), // of the baseline's step
            "named", json_boolean(contribution->named), "busy_a_ns",
            render_json_whole(contribution->busy_a_ns), "busy_b_ns",
            render_json_whole(contribution->busy_b_ns), "count_a",
            render_json_real(contribution->count_a), "count_b",
            render_json_real(contribution->count_b), NULL);
    if (contribution->part_count)
        json_object_set_new(item, "parts", diff_json_parts(contribution));
    if (contribution->beside_count)
        render_json_set(item, "beside", diff_json_beside(contribution), "beside_cause",
                render_json_text(contribution->beside_cause), NULL);
    return render_json_set(item, "evidence",
            render_json_list(i, contribution->evidence_count,
                    render_json_take(diff_text_evidence(&contribution->evidence[i]))),
            "suspects",
            render_json_list(i, contribution->suspect_count,
                    render_json_take(diff_text_suspect(&contribution->suspects[i]))),
            NULL);
}

static json_t *diff_json_decomposition(const struct diff_workload *workload)
{
    if (workload->unexplained)
        return json_null();
    json_t *parts = json_object();
    for (int class = 0; class < COST_CLASS_COUNT; class ++)
        json_object_set_new(parts, cost_class_word((enum cost_class) class),
                diff_json_pair(workload->parts[class].a_ns, workload->parts[class].b_ns));
    return parts;
}

json_t *diff_view_json_straggler(const struct diff_straggler *straggler)
{
    return render_json_set(json_object(), "side", json_string(straggler->side ? "b" : "a"), "rank",
            json_integer(straggler->rank), "last_count", json_integer(straggler->last_count),
            "collectives", json_integer(straggler->collectives), "late_ns",
            render_json_whole(straggler->late_ns), "wait_ns", render_json_whole(straggler->wait_ns),
            "exposed_ns", render_json_whole(straggler->exposed_ns), "told",
            json_boolean(straggler->told), "why", render_json_take(diff_text_deed(straggler)),
            "why_ns", render_json_whole(straggler->why_ns), NULL);
}

// Values of each traced launch, by side.
static json_t *diff_json_launches(double *const launch_ns[2], size_t count)
{
    return render_json_set(json_object(), "a",
            render_json_list(i, count, render_json_whole(launch_ns[0][i])), "b",
            render_json_list(i, count, render_json_whole(launch_ns[1][i])), NULL);
}

// As a contribution of a step, with the values of each traced launch.
static json_t *diff_json_launch_part(const struct diff_launch_part *part)
{
    json_t *item = diff_view_json_contribution(&part->contribution);
    json_object_set_new(
            item, "launches_ns", diff_json_launches(part->launch_ns, part->launch_count));
    return item;
}

static json_t *diff_json_once(
        const struct diff_once *once, double a_ns, double b_ns, const char *places)
{
    json_t *parts = render_json_list(i, once->part_count, diff_json_launch_part(&once->parts[i]));
    json_t *phases = render_json_list(i, once->phase_count,
            render_json_set(json_object(), "name",
                    render_json_take(diff_text_once_place(&once->phases[i])), "a_ns",
                    render_json_whole(once->phases[i].a_ns), "b_ns",
                    render_json_whole(once->phases[i].b_ns), NULL));
    return render_json_set(json_object(), "a_ns", render_json_whole(a_ns), "b_ns",
            render_json_whole(b_ns), "contributions", parts, places, phases, NULL);
}

json_t *diff_view_json_first(const struct diff_workload *workload)
{
    return diff_json_once(&workload->first, workload->cold_a_ns, workload->cold_b_ns, "phases");
}

json_t *diff_view_json_cpu(const struct diff_workload *workload)
{
    json_t *item = diff_json_once(&workload->cpu, workload->cpu_a_ns, workload->cpu_b_ns, "places");
    json_object_set_new(item, "why_not",
            render_json_take(diff_text_once_why(workload->cpu.why_not, "CPU time")));
    return item;
}

// What slow steps, or the slowest requests, have that typical ones have not.
json_t *diff_view_json_slow(const struct diff_workload *workload)
{
    const struct diff_slow *slow = &workload->slow;
    json_t *period = json_object(), *found = json_object();
    json_t *parts = render_json_list(i, slow->part_count, diff_json_launch_part(&slow->parts[i]));
    for (int side = 0; side < 2; side++) {
        json_object_set_new(period, side ? "b" : "a",
                slow->found[side].period ? json_integer(slow->found[side].period) : json_null());
        json_object_set_new(
                found, side ? "b" : "a", render_json_take(diff_text_slow_found(workload, side)));
    }
    return render_json_set(json_object(), "metric", render_json_text(slow->metric), "failed",
            json_boolean(slow->failed), "tail", json_boolean(slow->tail), "a_ns",
            render_json_whole(slow->a_ns), "b_ns", render_json_whole(slow->b_ns), "launches_ns",
            diff_json_launches(slow->launch_ns, slow->launch_count), "slow",
            diff_json_counts(slow->found[0].count, slow->found[1].count), "steps",
            diff_json_counts(slow->found[0].of, slow->found[1].of), "period", period, "found",
            found, "told_ns", render_json_whole(slow->told_ns), "unseen_ns",
            slow->where ? render_json_whole(slow->unseen_ns) : json_null(), "where",
            render_json_text(slow->where), "overlaps", json_boolean(slow->overlaps), "why_not",
            render_json_take(diff_text_slow_why(workload)), "contributions", parts, NULL);
}

static json_t *diff_json_sides(double a, double b)
{
    return render_json_set(json_object(), "a", render_json_real(a), "b", render_json_real(b), NULL);
}

// NCCL's versions, and what the collectives of both sides took.
json_t *diff_view_json_collectives(const struct diff_workload *workload)
{
    json_t *item = json_object(), *list = json_array();
    for (size_t i = 0; i < workload->collective_count; i++) {
        const struct diff_collective *one = &workload->collectives[i];
        json_array_append_new(list,
                render_json_set(json_object(), "name", render_json_text(one->name), "size",
                        render_json_text(one->size), "how_a", render_json_text(one->how[0]),
                        "how_b", render_json_text(one->how[1]), "count_a",
                        render_json_real(one->count[0]), "count_b", render_json_real(one->count[1]),
                        "busy_a_ns", render_json_whole(one->busy_ns[0]), "busy_b_ns",
                        render_json_whole(one->busy_ns[1]), "exposed_a_ns",
                        render_json_whole(one->exposed_ns[0]), "exposed_b_ns",
                        render_json_whole(one->exposed_ns[1]), NULL));
    }
    return render_json_set(item, "nccl_a", render_json_text(workload->nccl_version[0]), "nccl_b",
            render_json_text(workload->nccl_version[1]), "kinds", list, NULL);
}

static json_t *diff_json_bytes_sides(double a, double b)
{
    return render_json_set(
            json_object(), "a", render_json_whole(a), "b", render_json_whole(b), NULL);
}

static json_t *diff_json_memory_part(const struct diff_memory_part *part)
{
    return render_json_set(json_object(), "kind", json_string(diff_memory_word(part->kind)), "name",
            render_json_text(part->name), "name_a", render_json_text(part->name_a), "name_b",
            render_json_text(part->name_b), "a_bytes", render_json_whole(part->a_bytes), "b_bytes",
            render_json_whole(part->b_bytes), "delta_bytes",
            render_json_whole(part->b_bytes - part->a_bytes), "anonymous_bytes",
            diff_json_bytes_sides(part->anonymous_bytes[0], part->anonymous_bytes[1]), "told",
            json_boolean(part->told), NULL);
}

static json_t *diff_json_touch(const struct diff_touch *touch, bool gpu)
{
    return render_json_set(json_object(), "function",
            render_json_take(diff_text_touch_function(touch)), "module",
            render_json_text(touch->module), "caller", render_json_text(touch->caller),
            "caller_file", render_json_text(touch->caller_file), "outside",
            render_json_text(touch->outside), "outside_file", render_json_text(touch->outside_file),
            "a_bytes", render_json_whole(touch->a_bytes), "b_bytes",
            render_json_whole(touch->b_bytes), "delta_bytes",
            render_json_whole(touch->b_bytes - touch->a_bytes), "start_bytes",
            diff_json_bytes_sides(touch->start_bytes[0], touch->start_bytes[1]),
            gpu ? "allocations" : "faults", diff_json_counts(touch->samples[0], touch->samples[1]),
            "told", json_boolean(touch->told), NULL);
}

json_t *diff_view_json_memory(const struct diff_memory *memory)
{
    size_t touches = memory->touch_count < DIFF_JSON_TOUCHES_MAX ? memory->touch_count
                                                                 : DIFF_JSON_TOUCHES_MAX;
    return render_json_set(json_object(), "failed", json_boolean(memory->failed), "peak_bytes",
            diff_json_bytes_sides(memory->peak_a_bytes, memory->peak_b_bytes), "traced_peak_bytes",
            diff_json_bytes_sides(memory->peak[0], memory->peak[1]), "held_bytes",
            diff_json_bytes_sides(memory->held[0], memory->held[1]), "launches",
            diff_json_counts(memory->launches[0], memory->launches[1]), "more_bytes",
            render_json_whole(memory->more_bytes), "less_bytes",
            render_json_whole(memory->less_bytes), "parts",
            render_json_list(i, memory->part_count, diff_json_memory_part(&memory->parts[i])),
            "touched",
            render_json_list(i, touches, diff_json_touch(&memory->touches[i], memory->gpu)),
            "touched_more_bytes", render_json_whole(memory->touch_more_bytes), "touched_less_bytes",
            render_json_whole(memory->touch_less_bytes), "seen_bytes",
            diff_json_bytes_sides(memory->seen[0], memory->seen[1]), NULL);
}

static json_t *diff_json_workload(const struct diff_workload *workload)
{
    json_t *item = render_json_set(json_object(), "workload", render_json_text(workload->name),
            "unit", json_string(workload->unit), "unexplained",
            render_json_take(diff_text_unexplained(workload)), "step_a_ns",
            render_json_whole(workload->step_a_ns), "step_b_ns",
            render_json_whole(workload->step_b_ns), "delta_ns",
            render_json_whole(workload->delta_ns), "delta_ci_ns",
            diff_json_pair(workload->delta_lo_ns, workload->delta_hi_ns), "match_coverage",
            render_json_real(workload->match_coverage), "residual_ns",
            render_json_whole(workload->residual_ns), "slower_ns",
            render_json_whole(workload->slower_ns), "faster_ns",
            render_json_whole(workload->faster_ns), "unaccounted",
            diff_json_sides(workload->unaccounted[0], workload->unaccounted[1]), "traced_pairs",
            json_integer((json_int_t)workload->traced_pairs), "windows",
            diff_json_counts((long)workload->windows[0], (long)workload->windows[1]),
            "traced_ratio", diff_json_sides(workload->traced_ratio[0], workload->traced_ratio[1]),
            "first_step", diff_view_json_first(workload), NULL);
    if (workload->cpu.pairs || workload->cpu.why_not)
        json_object_set_new(item, "cpu_time", diff_view_json_cpu(workload));
    if (workload->slow.metric)
        json_object_set_new(item, "slow_steps", diff_view_json_slow(workload));
    render_json_set(item, "decomposition", diff_json_decomposition(workload), "contributions",
            render_json_list(i, workload->contribution_count,
                    diff_view_json_contribution(&workload->contributions[i])),
            NULL);
    if (workload->collective_count)
        json_object_set_new(item, "collectives", diff_view_json_collectives(workload));
    if (workload->memory.part_count)
        json_object_set_new(item, "memory", diff_view_json_memory(&workload->memory));
    if (workload->gpu_memory.part_count)
        json_object_set_new(item, "gpu_memory", diff_view_json_memory(&workload->gpu_memory));
    return render_json_set(item, "stragglers",
            render_json_list(i, workload->straggler_count,
                    diff_view_json_straggler(&workload->stragglers[i])),
            "late", render_json_take(diff_text_late(workload->late)), "notes",
            render_json_list(
                    i, workload->note_count, render_json_take(diff_text_note(&workload->notes[i]))),
            NULL);
}

json_t *diff_view_json(const struct diff *diff)
{
    json_t *sides = render_json_set(json_object(), "a", render_json_text(diff->side_names[0]), "b",
            render_json_text(diff->side_names[1]), NULL);
    return render_json_set(json_object(), "schema", json_string("upgate.diff/1"), "sides", sides,
            "workloads",
            render_json_list(i, diff->workload_count, diff_json_workload(&diff->workloads[i])),
            NULL);
}
