// SPDX-License-Identifier: Apache-2.0
// Counts, and how they are told. Latency is the time from when a request was due: a client that is
// late does not make the server look faster.
#include "reference_models/load/account.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/units.h"

static const char *const outcome_names[OUTCOME_COUNT] = {
        "ok", "http_error", "timed_out", "lost", "truncated", "wrong"};
static const char *const wrong_names[WRONG_COUNT] = {
        "none", "malformed", "swapped", "doubled", "not_finite", "scores"};

const char *outcome_name(enum outcome outcome)
{
    return outcome_names[outcome];
}

static struct account_side *account_side(struct account *account, const char *name)
{
    for (int i = 0; i < account->side_count; i++) {
        if (strcmp(account->sides[i].name, name) == 0)
            return &account->sides[i];
    }
    if (account->side_count == ACCOUNT_SIDES_MAX) {
        struct account_side *others = &account->sides[ACCOUNT_SIDES_MAX];
        snprintf(others->name, sizeof others->name, "(others)");
        return others;
    }
    struct account_side *side = &account->sides[account->side_count++];
    snprintf(side->name, sizeof side->name, "%s", name);
    return side;
}

void account_add(struct account *account, const struct account_request *request)
{
    struct account_side *side = account_side(account, request->side);
    account->count[request->outcome]++;
    side->count[request->outcome]++;
    if (request->outcome == OUTCOME_WRONG)
        account->wrong[request->wrong]++;
    if (request->outcome == OUTCOME_HTTP && request->status < ACCOUNT_STATUS_MAX)
        account->status[request->status]++;
    if (request->sent_ns) {
        int64_t wall = request->sent_ns + request->wall_ns;
        histogram_add(&account->lag, request->sent_ns - request->due_ns);
        if (!side->first_ns || wall < side->first_ns)
            side->first_ns = wall;
        if (wall > side->last_ns)
            side->last_ns = wall;
    }
    if (request->outcome == OUTCOME_OK) {
        histogram_add(&account->latency, request->done_ns - request->due_ns);
        histogram_add(&side->latency, request->done_ns - request->due_ns);
    }
}

uint64_t account_failed(const struct account *account)
{
    uint64_t failed = account->extra;
    for (int i = OUTCOME_OK + 1; i < OUTCOME_COUNT; i++)
        failed += account->count[i];
    return failed;
}

bool account_balanced(const struct account *account)
{
    uint64_t sum = 0;
    for (int i = 0; i < OUTCOME_COUNT; i++)
        sum += account->count[i];
    return sum == account->sent;
}

static json_t *account_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *account_latency(const struct histogram *histogram)
{
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++)
        json_object_set_new(out, quantiles[i].name,
                account_number(histogram_quantile(histogram, quantiles[i].q) / 1e6));
    json_object_set_new(
            out, "max", account_number(histogram->count ? (double)histogram->max_ns / 1e6 : NAN));
    json_object_set_new(out, "mean", account_number(histogram_mean(histogram) / 1e6));
    return out;
}

static json_t *account_counts(const uint64_t count[OUTCOME_COUNT])
{
    json_t *out = json_object();
    for (int i = 0; i < OUTCOME_COUNT; i++)
        json_object_set_new(out, outcome_names[i], json_integer((json_int_t)count[i]));
    return out;
}

static json_t *account_sides(const struct account *account)
{
    json_t *out = json_array();
    for (int i = 0; i <= ACCOUNT_SIDES_MAX; i++) {
        const struct account_side *side = &account->sides[i];
        if (i >= account->side_count && !(i == ACCOUNT_SIDES_MAX && side->name[0]))
            continue;
        json_t *one = account_counts(side->count);
        json_object_set_new(one, "side", json_string(side->name));
        json_object_set_new(one, "latency_ms", account_latency(&side->latency));
        json_object_set_new(one, "first_sent_ns", json_integer(side->first_ns));
        json_object_set_new(one, "last_sent_ns", json_integer(side->last_ns));
        json_array_append_new(out, one);
    }
    return out;
}

json_t *account_json(const struct account *account, const char *url)
{
    json_t *out = json_object(), *status = json_object(), *wrong = json_object();
    json_object_set_new(out, "schema", json_string("upgate.load/1"));
    json_object_set_new(out, "url", json_string(url));
    json_object_set_new(out, "seconds", json_real(account->seconds));
    json_object_set_new(out, "sent", json_integer((json_int_t)account->sent));
    json_t *counts = account_counts(account->count);
    json_object_update(out, counts);
    json_decref(counts);
    json_object_set_new(out, "failed", json_integer((json_int_t)account_failed(account)));
    json_object_set_new(out, "balanced", json_boolean(account_balanced(account)));
    for (int i = 0; i < ACCOUNT_STATUS_MAX; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        if (account->status[i])
            json_object_set_new(status, name, json_integer((json_int_t)account->status[i]));
    }
    json_object_set_new(out, "http_errors", status);
    for (int i = WRONG_NONE + 1; i < WRONG_COUNT; i++)
        json_object_set_new(wrong, wrong_names[i], json_integer((json_int_t)account->wrong[i]));
    json_object_set_new(out, "wrong_kinds", wrong);
    json_object_set_new(out, "retried", json_integer((json_int_t)account->retried));
    json_object_set_new(out, "extra", json_integer((json_int_t)account->extra));
    json_object_set_new(out, "compared", json_integer((json_int_t)account->compared));
    json_object_set_new(out, "connections_opened", json_integer((json_int_t)account->opened));
    json_object_set_new(
            out, "connections_idle_closed", json_integer((json_int_t)account->idle_closed));
    json_object_set_new(out, "latency_ms", account_latency(&account->latency));
    json_object_set_new(out, "lag_ms", account_latency(&account->lag));
    json_object_set_new(out, "sides", account_sides(account));
    return out;
}

static void account_print_latency(const struct histogram *histogram, FILE *file)
{
    char p50[32], p99[32], p999[32], max[32];
    double top = histogram->count ? (double)histogram->max_ns : NAN;
    fprintf(file, "p50 %s, p99 %s, p99.9 %s, most %s\n",
            unit_format_ns(p50, sizeof p50, histogram_quantile(histogram, 0.5)),
            unit_format_ns(p99, sizeof p99, histogram_quantile(histogram, 0.99)),
            unit_format_ns(p999, sizeof p999, histogram_quantile(histogram, 0.999)),
            unit_format_ns(max, sizeof max, top));
}

void account_print(const struct account *account, FILE *file)
{
    fprintf(file, "sent %" PRIu64 " requests in %.1f s: %" PRIu64 " ok, %" PRIu64 " failed\n",
            account->sent, account->seconds, account->count[OUTCOME_OK], account_failed(account));
    fprintf(file,
            "  http errors %" PRIu64 ", timed out %" PRIu64 ", lost %" PRIu64 ", truncated %" PRIu64
            ", wrong %" PRIu64 "\n",
            account->count[OUTCOME_HTTP], account->count[OUTCOME_TIMED_OUT],
            account->count[OUTCOME_LOST], account->count[OUTCOME_TRUNCATED],
            account->count[OUTCOME_WRONG]);
    for (int i = 0; i < ACCOUNT_STATUS_MAX; i++) {
        if (account->status[i])
            fprintf(file, "  status %d: %" PRIu64 "\n", i, account->status[i]);
    }
    for (int i = WRONG_NONE + 1; i < WRONG_COUNT; i++) {
        if (account->wrong[i])
            fprintf(file, "  wrong, %s: %" PRIu64 "\n", wrong_names[i], account->wrong[i]);
    }
    if (account->extra)
        fprintf(file, "  answers nobody asked for: %" PRIu64 "\n", account->extra);
    if (account->retried)
        fprintf(file, "  sent again, the idle connection had been closed: %" PRIu64 "\n",
                account->retried);
    fprintf(file, "  latency from when a request was due: ");
    account_print_latency(&account->latency, file);
    fprintf(file, "  the client was late by: ");
    account_print_latency(&account->lag, file);
    for (int i = 0; i < account->side_count; i++) {
        const struct account_side *side = &account->sides[i];
        uint64_t all = 0;
        for (int o = 0; o < OUTCOME_COUNT; o++)
            all += side->count[o];
        fprintf(file, "  %s: %" PRIu64 " requests, %" PRIu64 " ok; ",
                side->name[0] ? side->name : "(no side named)", all, side->count[OUTCOME_OK]);
        account_print_latency(&side->latency, file);
    }
}

void account_print_progress(const struct account *account, double seconds, FILE *file)
{
    fprintf(file, "upgate-load: %3.0f s: %" PRIu64 " sent, %" PRIu64 " failed", seconds,
            account->sent, account_failed(account));
    for (int i = 0; i < account->side_count; i++)
        fprintf(file, ", %s %" PRIu64,
                account->sides[i].name[0] ? account->sides[i].name : "no side",
                account->sides[i].count[OUTCOME_OK]);
    fputc('\n', file);
}

void account_log(FILE *file, uint64_t id, bool retried, const struct account_request *request)
{
    fprintf(file, "%" PRIu64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%d,%s,%d\n", id,
            request->due_ns + request->wall_ns,
            request->sent_ns ? (request->sent_ns - request->due_ns) / 1000 : -1,
            (request->done_ns - request->due_ns) / 1000, request->side, request->status,
            outcome_name(request->outcome), retried);
}
