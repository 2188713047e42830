// SPDX-License-Identifier: Apache-2.0
// upgate.rollout/1: the contract of INTERFACES. Reads the view only.
#include "reports/render/rollout/rollout_words.h"
#include "reports/render/text/json_text.h"

static json_t *json_arm(const struct rollout_arm *arm)
{
    return json_pack("{s:I, s:I, s:o, s:o}", "requests", (json_int_t)arm->sum.requests, "errors",
            (json_int_t)arm->sum.errors, "p50_ms", render_json_real(arm->p50_s * 1e3), "p99_ms",
            render_json_real(arm->p99_s * 1e3));
}

static json_t *json_evidence(const struct rollout_series *series)
{
    const struct rollout_point *point = &series->points[series->count - 1];
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "metric",
            render_json_text(series->metric), "stage", render_json_count(series->stage), "value",
            render_json_real(point->value), "bound", render_json_real(point->high), "threshold",
            render_json_real(point->threshold), "verdict", rollout_verdict_word(point->verdict),
            "requests", render_json_count(point->requests));
}

static json_t *json_decision(const struct rollout_decision *decision)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o}", "at", (json_int_t)decision->at_ns, "from",
            render_json_text(decision->state_from), "to", render_json_text(decision->state_to),
            "rule", render_json_text(decision->rule), "reason", render_json_text(decision->reason),
            "who", render_json_text(decision->who));
}

json_t *rollout_view_json(const struct rollout_view *view)
{
    json_t *evidence = render_json_list(i, view->series_count, json_evidence(&view->series[i]));
    json_t *decisions =
            render_json_list(i, view->decision_count, json_decision(&view->decisions[i]));
    return json_pack("{s:s, s:o, s:s, s:o, s:o, s:I, s:o, s:{s:o, s:o}, s:o, s:o}", "schema",
            "upgate.rollout/1", "name", render_json_text(view->name), "state",
            rollout_state_word(view->state), "stage", render_json_count(view->stage), "percent",
            render_json_real(view->percent), "since", (json_int_t)view->since_ns, "reason",
            render_json_text(view->reason), "arms", "baseline",
            json_arm(&view->arms[CANARY_BASELINE]), "candidate",
            json_arm(&view->arms[CANARY_CANDIDATE]), "evidence", evidence, "decisions", decisions);
}
