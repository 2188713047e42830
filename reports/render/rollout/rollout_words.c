// SPDX-License-Identifier: Apache-2.0
// Words and numbers of a rollout; see rollout_words.h. Pure.
#include "reports/render/rollout/rollout_words.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/strings.h"

// The controller writes its heartbeat every second; ten of them missing is no busy disk any more.
static const int64_t words_heartbeat_ns = INT64_C(10000000000);

static const struct {
    const char *word, *title;
} words_states[ROLLOUT_STATES] = {
        [ROLLOUT_WAITING] = {"waiting", "waiting"},
        [ROLLOUT_RUNNING] = {"running", "running"},
        [ROLLOUT_PAUSED] = {"paused", "paused"},
        [ROLLOUT_PROMOTED] = {"promoted", "promoted"},
        [ROLLOUT_ROLLED_BACK] = {"rolled_back", "rolled back"},
        [ROLLOUT_ABORTED] = {"aborted", "aborted"},
        [ROLLOUT_FAILED] = {"failed", "failed"},
};
static const char *const words_verdicts[ROLLOUT_VERDICTS] = {
        [ROLLOUT_UNDECIDED] = "undecided", [ROLLOUT_PASS] = "pass", [ROLLOUT_FAIL] = "fail"};

static const char *const words_metrics[][2] = {
        {"error_rate", "Error rate"},
        {"wrong_answers", "Wrong answers"},
        {"latency_p50", "Median latency"},
        {"latency_p99", "p99 latency"},
        {"latency_mean", "Mean latency"},
        {"rejected_rate", "Rejected rate"},
};
static const char *const words_rules[][2] = {
        {"evidence", "evidence of a regression"},
        {"tripwire-errors", "tripwire: error rate"},
        {"tripwire-unreachable", "tripwire: unreachable"},
        {"tripwire-wrong", "tripwire: wrong answers"},
        {"soak", "stage passed"},
        {"patience", "no verdict in time"},
        {"window", "outside the window"},
        {"freeze", "change freeze"},
        {"stale", "evidence stopped"},
        {"person", "a person"},
        {"preflight", "preflight"},
        {"traffic", "the proxy"},
        {"restart", "controller restarted"},
        {"proxy", "the proxy was started again"},
        {"clock", "the clock jumped"},
        {"signal", "a signal to the controller"},
        {"store", "the store"},
};

int rollout_state_by_word(const char *word)
{
    for (int i = 0; i < ROLLOUT_STATES; i++)
        if (strcmp(words_states[i].word, word) == 0)
            return i;
    return -1;
}

const char *rollout_state_word(enum rollout_state state)
{
    return words_states[state].word;
}

const char *rollout_state_title(enum rollout_state state)
{
    return words_states[state].title;
}

int rollout_verdict_by_word(const char *word)
{
    for (int i = 0; i < ROLLOUT_VERDICTS; i++)
        if (strcmp(words_verdicts[i], word) == 0)
            return i;
    return -1;
}

const char *rollout_verdict_word(enum rollout_verdict verdict)
{
    return words_verdicts[verdict];
}

static const char *words_find(const char *const table[][2], size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i][0], word) == 0)
            return table[i][1];
    return word;
}

const char *rollout_metric_title(const char *metric)
{
    return words_find(words_metrics, sizeof words_metrics / sizeof *words_metrics, metric);
}

const char *rollout_rule_title(const char *rule)
{
    return words_find(words_rules, sizeof words_rules / sizeof *words_rules, rule);
}

const char *rollout_arm_word(int arm)
{
    return arm == CANARY_BASELINE ? "baseline" : "candidate";
}

char *rollout_percent(double percent, char *buf)
{
    return isfinite(percent)
            ? numbers_print(buf, percent && percent < 10 ? "%.2g %%" : "%.3g %%", percent)
            : numbers_print(buf, "-");
}

char *rollout_rate(uint64_t part, uint64_t whole, char *buf)
{
    if (whole == 0)
        return numbers_print(buf, "-");
    return part ? numbers_print(buf, "%.3g %%", 100.0 * (double)part / (double)whole)
                : numbers_print(buf, "0 %%");
}

char *rollout_ms(double seconds, char *buf)
{
    return isfinite(seconds)
            ? numbers_print(buf, seconds < 0.1 ? "%.3g ms" : "%.0f ms", seconds * 1e3)
            : numbers_print(buf, "-");
}

char *rollout_clock(int64_t wall_ns, char *buf)
{
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm parts;
    if (wall_ns < 0 || !gmtime_r(&seconds, &parts) ||
            !strftime(buf, NUMBERS_SIZE, "%Y-%m-%d %H:%M:%S UTC", &parts))
        snprintf(buf, NUMBERS_SIZE, "-");
    return buf;
}

char *rollout_ago(int64_t ns, char *buf)
{
    return numbers_duration(ns < 0 ? 0 : ns, buf);
}

char *rollout_change(double ratio, char *buf)
{
    if (!isfinite(ratio))
        return numbers_print(buf, "-");
    if (fabs(ratio) >= 10)
        return numbers_print(buf, "x %.3g", ratio);
    return fabs(ratio - 1) < 0.1 ? numbers_change(ratio - 1, buf)
                                 : numbers_print(buf, "%+.0f %%", 100 * (ratio - 1));
}

char *rollout_cell_value(const char *metric, double value, char *buf)
{
    if (strcmp(metric, "wrong_answers") != 0)
        return rollout_change(value, buf);
    return isfinite(value) && fabs(value) < 1e15 ? numbers_count((int64_t)value, buf)
                                                 : numbers_print(buf, "-");
}

bool rollout_ended(const struct rollout_view *view)
{
    return view->state >= ROLLOUT_PROMOTED;
}

const struct rollout_decision *rollout_last_decision(const struct rollout_view *view)
{
    for (size_t i = view->decision_count; i-- > 0;)
        if (strcmp(view->decisions[i].state_to, rollout_state_word(view->state)) == 0)
            return &view->decisions[i];
    return NULL;
}

char *rollout_effect(const struct rollout_decision *decision, char *buf)
{
    return numbers_ns(decision->effect_ns < decision->at_ns
                    ? NAN
                    : (double)(decision->effect_ns - decision->at_ns),
            buf);
}

char *rollout_sentence(const struct rollout_view *view)
{
    char percent[NUMBERS_SIZE];
    const struct rollout_view_stage *stage = rollout_view_stage(view, view->stage);
    rollout_percent(view->percent, percent);
    switch (view->state) {
    case ROLLOUT_WAITING:
        return xasprintf("Waiting; the candidate gets %s of the traffic.", percent);
    case ROLLOUT_PROMOTED:
        return xasprintf("Promoted: the candidate gets %s of the traffic.", percent);
    default:
        break;
    }
    static const char *const words[ROLLOUT_STATES] = {[ROLLOUT_RUNNING] = "Running",
            [ROLLOUT_PAUSED] = "Paused",
            [ROLLOUT_ROLLED_BACK] = "Rolled back",
            [ROLLOUT_ABORTED] = "Aborted",
            [ROLLOUT_FAILED] = "Failed"};
    const char *read = view->state == ROLLOUT_FAILED ? ", as last read back" : "";
    if (!stage)
        return xasprintf("%s before the first stage; the candidate gets %s of the traffic%s.",
                words[view->state], percent, read);
    return xasprintf("%s in stage %s (%" PRId64 " of %zu); the candidate gets %s of the traffic%s.",
            words[view->state], stage->name, view->stage + 1, view->stage_count, percent, read);
}

bool rollout_holds(const struct rollout_view *view, const struct rollout_series *series)
{
    const struct rollout_series *holding = NULL;
    for (size_t i = 0; i < view->series_count; i++) {
        const struct rollout_series *other = &view->series[i];
        const struct rollout_view_stage *stage = rollout_view_stage(view, other->stage);
        if (strcmp(other->metric, series->metric) != 0 ||
                (stage && stage->aa && view->stage != other->stage))
            continue;
        bool decided = other->points[other->count - 1].verdict != ROLLOUT_UNDECIDED;
        if (!holding || decided || holding->points[holding->count - 1].verdict == ROLLOUT_UNDECIDED)
            holding = other;
    }
    return holding == series;
}

static bool words_is_times(double ratio)
{
    return ratio >= 2 || ratio <= 0.5;
}

// "4.64 times", "+3.1 %"
static char *words_times(double ratio, char *buf)
{
    return words_is_times(ratio) ? numbers_print(buf, "%.3g times", ratio)
                                 : rollout_change(ratio, buf);
}

// "6.29 ms against the baseline's 1.42 ms": what both arms had in the stage; "" where that says
// nothing.
static void words_arms(struct strbuf *out, const struct rollout_series *series,
        const struct rollout_view_stage *stage)
{
    const struct rollout_arm *a = &stage->arms[CANARY_BASELINE],
                             *b = &stage->arms[CANARY_CANDIDATE];
    char of_a[NUMBERS_SIZE] = "-", of_b[NUMBERS_SIZE] = "-";
    if (strcmp(series->metric, "error_rate") == 0) {
        rollout_rate(a->sum.errors, a->sum.requests, of_a);
        rollout_rate(b->sum.errors, b->sum.requests, of_b);
    } else if (strcmp(series->metric, "rejected_rate") == 0) {
        rollout_rate(a->sum.rejected, a->sum.requests, of_a);
        rollout_rate(b->sum.rejected, b->sum.requests, of_b);
    } else if (strcmp(series->metric, "latency_p50") == 0) {
        rollout_ms(a->p50_s, of_a);
        rollout_ms(b->p50_s, of_b);
    } else if (strcmp(series->metric, "latency_p99") == 0) {
        rollout_ms(a->p99_s, of_a);
        rollout_ms(b->p99_s, of_b);
    }
    if (strcmp(of_a, "-") != 0 && strcmp(of_b, "-") != 0)
        strbuf_add(out, "%s against the baseline's %s", of_b, of_a);
}

// "12; allowed: 0"
static void words_count(struct strbuf *out, const char *metric, const struct rollout_point *point)
{
    if (isfinite(point->value))
        strbuf_add(out, "%s", rollout_cell_value(metric, point->value, NUMBERS_BUFFER));
    if (isfinite(point->threshold))
        strbuf_add(out, "%sallowed: %s", out->len ? "; " : "",
                rollout_cell_value(metric, point->threshold, NUMBERS_BUFFER));
}

// "6.29 ms against the baseline's 1.42 ms; estimate 4.64 times, at most 6 times; allowed: up to +10
// %"
static void words_ratio(struct strbuf *out, const struct rollout_series *series,
        const struct rollout_view_stage *stage)
{
    const struct rollout_point *point = &series->points[series->count - 1];
    if (stage)
        words_arms(out, series, stage);
    if (isfinite(point->value) && out->len)
        strbuf_add(out, "; estimate %s", words_times(point->value, NUMBERS_BUFFER));
    else if (isfinite(point->value))
        strbuf_add(out, "%s%s", words_times(point->value, NUMBERS_BUFFER),
                words_is_times(point->value) ? " the baseline's" : " against the baseline's");
    else if (point->low > 0) // errors of the candidate alone
        strbuf_add(out, "%sat least %s", out->len ? "; " : "none on the baseline; ",
                words_times(point->low, NUMBERS_BUFFER));
    if (isfinite(point->value) && isfinite(point->high))
        strbuf_add(out, ", at most %s", words_times(point->high, NUMBERS_BUFFER));
    if (isfinite(point->threshold))
        strbuf_add(out, "%sallowed: up to %s", out->len ? "; " : "",
                words_times(point->threshold, NUMBERS_BUFFER));
}

static void words_cell(
        struct strbuf *out, const struct rollout_view *view, const struct rollout_series *series)
{
    const struct rollout_point *point = &series->points[series->count - 1];
    const struct rollout_view_stage *stage = rollout_view_stage(view, series->stage);
    struct strbuf told = {0};
    if (strcmp(series->metric, "wrong_answers") == 0)
        words_count(&told, series->metric, point);
    else
        words_ratio(&told, series, stage);
    strbuf_add(out, "%s", rollout_metric_title(series->metric));
    if (stage)
        strbuf_add(out, " in stage %s", stage->name);
    strbuf_add(out, ": %s.", told.len ? told.text : "nothing measured");
    if (point->verdict == ROLLOUT_UNDECIDED && !rollout_ended(view)) {
        char *missing = rollout_missing(view, series->metric, point);
        strbuf_add(out, " Undecided: %s.", missing);
        free(missing);
    }
    strbuf_add(out, "\n");
    strbuf_free(&told);
}

// How often chance alone would have done it.
static void words_chance(struct strbuf *out, const struct rollout_view *view)
{
    const struct rollout_decision *last = rollout_last_decision(view);
    const struct rollout_view_stage *stage = rollout_view_stage(view, view->stage);
    const json_t *alpha = json_object_get(json_object_get(view->plan, "gate"), "alpha");
    if (view->state != ROLLOUT_ROLLED_BACK || !last || strcmp(last->rule, "evidence") != 0 ||
            !stage || !json_is_number(alpha))
        return;
    strbuf_add(out,
            "Compared second by second in that stage: %s requests of the candidate, %s of the baseline. Of candidates that equal the baseline "
            "at most %.3g %% are rolled back for evidence, however often one looks.\n",
            numbers_count((int64_t)stage->arms[CANARY_CANDIDATE].sum.requests, NUMBERS_BUFFER),
            numbers_count((int64_t)stage->arms[CANARY_BASELINE].sum.requests, NUMBERS_BUFFER),
            100 * json_number_value(alpha));
}

char *rollout_basis(const struct rollout_view *view)
{
    struct strbuf out = {0};
    for (int failed = 1; failed >= 0; failed--) // what failed first
        for (size_t i = 0; i < view->series_count; i++) {
            const struct rollout_series *series = &view->series[i];
            enum rollout_verdict verdict = series->points[series->count - 1].verdict;
            if (rollout_holds(view, series) && (verdict == ROLLOUT_FAIL) == failed &&
                    !(verdict == ROLLOUT_UNDECIDED && rollout_ended(view)))
                words_cell(&out, view, series);
        }
    words_chance(&out, view);
    return strbuf_take(&out);
}

char *rollout_missing(
        const struct rollout_view *view, const char *metric, const struct rollout_point *point)
{
    if (point->verdict == ROLLOUT_PASS)
        return xstrdup("passed");
    if (point->verdict == ROLLOUT_FAIL)
        return xstrdup(strcmp(metric, "wrong_answers") == 0 ? "more than allowed"
                                                            : "worse than the margin allows");
    if (rollout_ended(view))
        return xstrdup("no verdict");
    if (point->missing > 0)
        return xasprintf("about %s more requests, if the arms are equal",
                numbers_count(point->missing, NUMBERS_BUFFER));
    if (isfinite(point->low) && isfinite(point->threshold) && point->low > point->threshold)
        return xstrdup("beyond the margin, and not told from chance");
    return xstrdup("no verdict yet");
}

char *rollout_warnings(const struct rollout_view *view)
{
    struct strbuf out = {0};
    int64_t silent = view->read_ns - view->heartbeat_ns;
    if (!rollout_ended(view) && silent > words_heartbeat_ns)
        strbuf_add(&out, "%s for %s: start `upgate canary run` again; it goes on where it was.\n",
                view->pid > 0 ? "The controller has not written" : "No controller is at work",
                rollout_ago(silent, NUMBERS_BUFFER));
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        if (view->up[arm] == 0)
            strbuf_add(
                    &out, "The %s is down by the proxy's health check.\n", rollout_arm_word(arm));
    for (size_t i = 0; i < view->source_count; i++) {
        const struct rollout_view_source *source = &view->sources[i];
        if (source->problem && *source->problem)
            strbuf_add(&out, "Source %s: %s\n", source->kind, source->problem);
        else if (source->lost > 0 || source->dropped > 0)
            strbuf_add(&out,
                    "Source %s: %s lines lost, %s not understood; what they told is in no count.\n",
                    source->kind,
                    numbers_count(source->lost > 0 ? source->lost : 0, NUMBERS_BUFFER),
                    numbers_count(source->dropped > 0 ? source->dropped : 0, NUMBERS_BUFFER));
    }
    return strbuf_take(&out);
}
