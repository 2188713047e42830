// SPDX-License-Identifier: Apache-2.0
// A snapshot as time series. What is not known has no series: NaN would be taken for a number by
// somebody.
#include "harness/canary/serve/series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"

static const struct {
    const char *name, *type, *help;
} families[SERIES_FAMILIES] = {
        [SERIES_VERDICT] = {"gate_verdict", "gauge",
                "May the rollout go on? 0 pass, 1 inconclusive, 2 fail. metric=\"all\" stage=\"all\": the whole rollout."},
        [SERIES_RATIO] = {"gate_ratio", "gauge",
                "Candidate over baseline (wrong_answers: their count)."},
        [SERIES_RATIO_LOWER] = {"gate_ratio_ci_lower", "gauge", "Lower bound of gate_ratio."},
        [SERIES_RATIO_UPPER] = {"gate_ratio_ci_upper", "gauge", "Upper bound of gate_ratio."},
        [SERIES_EVIDENCE] = {"gate_evidence", "gauge",
                "Logarithm of the e-value against equal arms."},
        [SERIES_EVIDENCE_NEEDED] = {"gate_evidence_needed", "gauge",
                "What gate_evidence must pass for a fail."},
        [SERIES_PAIRS] = {"gate_pairs_total", "counter",
                "Valid pairs of launches that were judged."},
        [SERIES_REQUESTS] = {"canary_requests_total", "counter",
                "Requests by arm; code is ok, error or truncated."},
        [SERIES_WRONG] = {"canary_wrong_answers_total", "counter",
                "Requests with a wrong answer by arm."},
        [SERIES_WEIGHT] = {"canary_weight", "gauge",
                "Percent of the traffic by arm, as read back from the proxy."},
        [SERIES_UP] = {"canary_up", "gauge", "1: the arm is healthy."},
        [SERIES_STATE] = {"canary_state", "gauge", "1 for the state the rollout is in."},
        [SERIES_STAGE] = {"canary_stage", "gauge", "Number of the stage at hand."},
        [SERIES_HEARTBEAT] = {"canary_heartbeat_timestamp_seconds", "gauge",
                "When the controller last gave a sign of life."},
        [SERIES_ROLLBACKS] = {"rollback_total", "counter", "Rollbacks by the rule that decided."},
        [SERIES_SOURCE_SEEN] = {"canary_source_seen_total", "counter",
                "Lines, datagrams or answers that a source has read."},
        [SERIES_SOURCE_KEPT] = {"canary_source_kept_total", "counter", "Of them: became evidence."},
        [SERIES_SOURCE_DROPPED] = {"canary_source_dropped_total", "counter",
                "Of them: not understood."},
        [SERIES_SOURCE_LOST] = {"canary_source_lost_total", "counter",
                "Known to be lost before they were read."},
        [SERIES_SOURCE_LATE] = {"canary_source_late_total", "counter",
                "Of a second that had been judged."},
};
static const char *const states[] = {
        "waiting", "running", "paused", "promoted", "rolled_back", "aborted", "failed"};
static const char *const arm_names[SNAPSHOT_ARMS] = {"baseline", "candidate"};

const char *series_family_name(enum series_family family)
{
    return families[family].name;
}

int series_family_by_name(const char *name)
{
    for (int i = 0; i < SERIES_FAMILIES; i++)
        if (strcmp(families[i].name, name) == 0)
            return i;
    return -1;
}

struct maker {
    struct series_list list;
    struct arena *arena;
    const char *rollout;
};

// The label values of one series after rollout="…": key, value, key, value, NULL.
static void make(
        struct maker *maker, enum series_family family, double value, const char *const *labels)
{
    if (isnan(value))
        return;
    struct series series = {.family = family,
            .value = value,
            .keys = {"rollout"},
            .values = {maker->rollout},
            .labels = 1};
    for (; labels && *labels && series.labels < SERIES_LABELS_MAX; labels += 2) {
        series.keys[series.labels] = labels[0];
        series.values[series.labels++] = arena_copy(maker->arena, labels[1]);
    }
    vector_push(maker->list.items, maker->list.count, series);
}
#define MAKE(maker, family, value, ...) \
    make(maker, family, value, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void make_cell(
        struct maker *maker, const struct snapshot *snapshot, const struct snapshot_cell *cell)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)cell->stage);
    const char *key = snapshot->kind == SNAPSHOT_RUN ? "workload" : "stage";
    const char *value = snapshot->kind == SNAPSHOT_RUN ? cell->workload : number;
    const char *const labels[] = {"metric", cell->metric, key, value, NULL};
    if (cell->gating)
        make(maker, SERIES_VERDICT, verdict_by_cell(cell->verdict), labels);
    make(maker, SERIES_RATIO, cell->value, labels);
    make(maker, SERIES_RATIO_LOWER, cell->low, labels);
    make(maker, SERIES_RATIO_UPPER, cell->high, labels);
    make(maker, SERIES_EVIDENCE, cell->evidence, labels);
    make(maker, SERIES_EVIDENCE_NEEDED, cell->needed, labels);
    if (cell->pairs >= 0)
        make(maker, SERIES_PAIRS, (double)cell->pairs, labels);
}

static void make_traffic(struct maker *maker, const struct snapshot *snapshot)
{
    for (int arm = 0; arm < SNAPSHOT_ARMS; arm++) {
        struct snapshot_counts sum = {0};
        for (int i = 0; i < snapshot->stage_count; i++) {
            const struct snapshot_counts *more = &snapshot->stages[i].arms[arm];
            sum.requests += more->requests, sum.errors += more->errors,
                    sum.truncated += more->truncated, sum.wrong += more->wrong;
        }
        const char *name = arm_names[arm];
        MAKE(maker, SERIES_REQUESTS, (double)(sum.requests - sum.errors), "arm", name, "code",
                "ok");
        MAKE(maker, SERIES_REQUESTS, (double)(sum.errors - sum.truncated), "arm", name, "code",
                "error");
        MAKE(maker, SERIES_REQUESTS, (double)sum.truncated, "arm", name, "code", "truncated");
        MAKE(maker, SERIES_WRONG, (double)sum.wrong, "arm", name);
        MAKE(maker, SERIES_WEIGHT,
                arm == SNAPSHOT_CANDIDATE ? snapshot->percent : 100 - snapshot->percent, "arm",
                name);
        if (snapshot->up[arm] >= 0)
            MAKE(maker, SERIES_UP, snapshot->up[arm], "arm", name);
    }
}

static void make_sources(struct maker *maker, const struct snapshot *snapshot)
{
    for (int i = 0; i < snapshot->source_count; i++) {
        const struct snapshot_source *source = &snapshot->sources[i];
        const int64_t counts[] = {
                source->seen, source->kept, source->dropped, source->lost, source->late};
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)source->number);
        for (int k = 0; k < 5; k++)
            if (counts[k] >= 0)
                MAKE(maker, SERIES_SOURCE_SEEN + k, (double)counts[k], "source", number, "kind",
                        source->kind);
    }
}

static void make_rollout(struct maker *maker, const struct snapshot *snapshot)
{
    make_traffic(maker, snapshot);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        MAKE(maker, SERIES_STATE, snapshot->state && strcmp(snapshot->state, states[i]) == 0,
                "state", states[i]);
    if (snapshot->has_stage)
        MAKE(maker, SERIES_STAGE, (double)snapshot->stage);
    if (snapshot->heartbeat_ns > 0)
        MAKE(maker, SERIES_HEARTBEAT, (double)snapshot->heartbeat_ns / 1e9);
    for (int i = 0; i < snapshot->rule_count; i++)
        MAKE(maker, SERIES_ROLLBACKS, (double)snapshot->rules[i].count, "reason",
                snapshot->rules[i].rule);
    make_sources(maker, snapshot);
}

// Stable, and the families stand together, as the text format wants it.
static struct series_list maker_sort(struct maker *maker)
{
    struct series_list sorted = {
            .items = arena_alloc(maker->arena, maker->list.count + 1, sizeof *sorted.items)};
    for (int family = 0; family < SERIES_FAMILIES; family++)
        for (size_t i = 0; i < maker->list.count; i++)
            if ((int)maker->list.items[i].family == family)
                sorted.items[sorted.count++] = maker->list.items[i];
    free(maker->list.items);
    return sorted;
}

struct series_list series_of(const struct snapshot *snapshot, const struct verdict *whole,
        const struct verdict *stages, struct arena *arena)
{
    struct maker maker = {.arena = arena, .rollout = arena_copy(arena, snapshot->name)};
    for (int i = 0; i < snapshot->cell_count; i++)
        make_cell(&maker, snapshot, &snapshot->cells[i]);
    for (int i = 0; i < snapshot->stage_count; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)snapshot->stages[i].number);
        MAKE(&maker, SERIES_VERDICT, stages[i].kind, "metric", "all", "stage", number);
    }
    MAKE(&maker, SERIES_VERDICT, whole->kind, "metric", "all", "stage", "all");
    if (snapshot->kind == SNAPSHOT_ROLLOUT)
        make_rollout(&maker, snapshot);
    return maker_sort(&maker);
}

struct series_list series_blind(const char *name, struct arena *arena)
{
    struct maker maker = {.arena = arena, .rollout = arena_copy(arena, name)};
    MAKE(&maker, SERIES_VERDICT, VERDICT_INCONCLUSIVE, "metric", "all", "stage", "all");
    return maker_sort(&maker);
}

static void series_print_label(struct strbuf *text, const char *value)
{
    strbuf_add_bytes(text, "\"", 1);
    for (; *value; value++) {
        const char *escaped = *value == '\\' ? "\\\\"
                : *value == '"'              ? "\\\""
                : *value == '\n'             ? "\\n"
                                             : NULL;
        strbuf_add_bytes(text, escaped ? escaped : value, escaped ? 2 : 1);
    }
    strbuf_add_bytes(text, "\"", 1);
}

void series_print_value(char buf[32], double value)
{
    if (isnan(value))
        snprintf(buf, 32, "NaN");
    else if (isinf(value))
        snprintf(buf, 32, "%cInf", value < 0 ? '-' : '+');
    else
        snprintf(buf, 32, "%.17g", value);
    double short_value = 0; // 0.1, not 0.10000000000000001
    char brief[32];
    snprintf(brief, sizeof brief, "%.15g", value);
    if (sscanf(brief, "%lf", &short_value) == 1 && short_value == value && !isinf(value))
        memcpy(buf, brief, sizeof brief);
}

void series_print(const struct series_list *list, struct strbuf *text)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct series *series = &list->items[i];
        char value[32];
        if (i == 0 || series->family != list->items[i - 1].family)
            strbuf_add(text, "# HELP %s %s\n# TYPE %s %s\n", families[series->family].name,
                    families[series->family].help, families[series->family].name,
                    families[series->family].type);
        strbuf_add(text, "%s{", families[series->family].name);
        for (int k = 0; k < series->labels; k++) {
            strbuf_add(text, "%s%s=", k ? "," : "", series->keys[k]);
            series_print_label(text, series->values[k]);
        }
        series_print_value(value, series->value);
        strbuf_add(text, "} %s\n", value);
    }
}
