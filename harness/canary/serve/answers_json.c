// SPDX-License-Identifier: Apache-2.0
// The body of Argo's answer: {"schema": "gate/1", …}. A number that is not known is null: NaN is no
// JSON.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/canary/serve/answers_parts.h"

// Argo keeps the whole object of every measurement where jsonPath is {$}
enum { JSON_CELLS_MAX = 32 };

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *count(int64_t value)
{
    return value >= 0 ? json_integer(value) : json_null();
}

static json_t *text_or_null(const char *text)
{
    json_t *json = text ? json_string(text) : NULL;
    return json ? json : json_null();
}

static json_t *cell_json(const struct snapshot_cell *cell)
{
    json_t *json = json_pack("{ss so so so so ss}", "metric", cell->metric, "value",
            number(cell->value), "low", number(cell->low), "high", number(cell->high), "threshold",
            number(cell->threshold), "verdict", cell->verdict);
    if (cell->workload)
        json_object_set_new(json, "workload", json_string(cell->workload));
    return json;
}

// Of the stage that was asked for, the present one for the whole rollout; of a run: those that did
// not pass, first.
static json_t *cells_json(const struct snapshot *snapshot, const struct snapshot_stage *stage)
{
    json_t *list = json_array();
    int64_t number_at = stage ? stage->number : snapshot->has_stage ? snapshot->stage : -1;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < snapshot->cell_count && json_array_size(list) < JSON_CELLS_MAX; i++) {
            const struct snapshot_cell *cell = &snapshot->cells[i];
            bool passed = verdict_by_cell(cell->verdict) == VERDICT_PASS;
            if (cell->gating && cell->stage == number_at && passed == (round == 1))
                json_array_append_new(list, cell_json(cell));
        }
    return list;
}

static json_t *evidence_json(const struct snapshot *snapshot, const struct snapshot_stage *stage)
{
    if (snapshot->kind == SNAPSHOT_RUN) {
        int64_t pairs = -1;
        for (int i = 0; i < snapshot->cell_count; i++)
            if (snapshot->cells[i].gating && snapshot->cells[i].pairs > pairs)
                pairs = snapshot->cells[i].pairs;
        return json_pack("{so so so}", "pairs", count(pairs), "alpha", number(snapshot->alpha),
                "run_id", text_or_null(snapshot->run_id));
    }
    int64_t requests[SNAPSHOT_ARMS] = {0};
    for (int i = 0; i < snapshot->stage_count; i++)
        for (int arm = 0; arm < SNAPSHOT_ARMS; arm++)
            if (!stage || stage == &snapshot->stages[i])
                requests[arm] += snapshot->stages[i].arms[arm].requests;
    return json_pack("{sI sI so so}", "n_canary", (json_int_t)requests[SNAPSHOT_CANDIDATE],
            "n_stable", (json_int_t)requests[SNAPSHOT_BASELINE], "alpha", number(snapshot->alpha),
            "run_id", text_or_null(snapshot->run_id));
}

void answers_make_json(const struct snapshot *snapshot, const struct snapshot_stage *stage,
        struct answers_entry *entry, struct arena *arena)
{
    const struct verdict *verdict = &entry->verdict;
    const struct snapshot_stage *at = stage ? stage
            : snapshot->has_stage           ? snapshot_find_stage(snapshot, snapshot->stage)
                                            : NULL;
    json_t *json = json_pack("{ss ss ss so so so so sb so so so}", "schema", "gate/1", "verdict",
            verdict_name(verdict->kind), "reason", verdict->reason, "rollout",
            text_or_null(snapshot->name), "state",
            text_or_null(snapshot->kind == SNAPSHOT_RUN ? snapshot->run_state : snapshot->state),
            "stage", at ? json_integer(at->number) : json_null(), "percent",
            snapshot->kind == SNAPSHOT_ROLLOUT ? number(snapshot->percent) : json_null(), "final",
            verdict->final, "retry_after_s",
            verdict->retry_after_s >= 0 ? json_integer(verdict->retry_after_s) : json_null(),
            "evidence", evidence_json(snapshot, stage), "cells", cells_json(snapshot, stage));
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    // What cannot be said in JSON is not known: every text of a snapshot is valid UTF-8, so this is
    // out of memory or a mistake of ours.
    entry->json = text
            ? arena_print(arena, "%s\n", text)
            : "{\"schema\":\"gate/1\",\"verdict\":\"inconclusive\",\"reason\":\"the verdict could not be written\",\"final\":false}\n";
    if (!text)
        entry->verdict.kind = VERDICT_INCONCLUSIVE;
    entry->json_len = strlen(entry->json);
    free(text);
    json_decref(json);
}
