// SPDX-License-Identifier: Apache-2.0
// Evidence from Prometheus: every step all queries of both arms are asked at once; what their
// counters grew by is spread evenly over the seconds since they grew last (a server is scraped more
// seldom than it is asked about), and only these seconds are finished.
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/canary/http/http.h"
#include "harness/canary/sources/counter.h"
#include "harness/canary/sources/sources_internal.h"

enum {
    PROMETHEUS_GAPS = 8,            // between two growths, of which the longest counts
    PROMETHEUS_ANSWER_MAX = 4 << 20 // bytes
};
#define PROMETHEUS_STEP_NS 5000000000LL
#define PROMETHEUS_HOLD_NS \
    60000000000LL // at most: the scrape interval is 1 minute by default, and more is not usual
#define PROMETHEUS_TIMEOUT_NS 10000000000LL // as Prometheus's own clients have it
#define PROMETHEUS_WORK_NS 5000000LL        // between two looks at answers under way
#define PROMETHEUS_QUIET_NS \
    100000000LL // and when nothing is: what other sources tell goes on being finished

enum prometheus_query {
    QUERY_REQUESTS,
    QUERY_ERRORS,
    QUERY_WRONG,
    QUERY_REJECTED,
    QUERY_BUCKETS,
    QUERIES
};
static const char *const prometheus_query_names[QUERIES] = {
        "requests", "errors", "wrong", "rejected", "latency_buckets"};
static const char *const prometheus_arm_names[CANARY_ARMS] = {"baseline", "candidate"};

struct prometheus_arm {
    struct counter counters[QUERIES];
    struct http_call *calls[QUERIES];
    bool named[QUERIES]; // it has given a series
    bool blind; // the last answers were usable, and one of its queries has never given a series, or
                // more than can be counted
    double at_s;       // of the last look, by Prometheus's clock
    int64_t looked_ns; // at which all answers were usable
    int64_t grown_ns;  // at which requests had grown; 0: never
    int64_t gaps_ns[PROMETHEUS_GAPS];
    unsigned gap;
    uint64_t errors, wrong, rejected; // grown, but for requests that have not been told yet
    uint32_t bins[CANARY_BINS];
};

struct source_prometheus {
    struct http *http;
    char *url, *token;
    int64_t step_ns, asked_ns, read_ns, next_ns;
    bool asking;
    struct prometheus_arm arms[CANARY_ARMS];
    char problem[256]; // of the look under way
};

static const char *prometheus_query(const struct source *source, int arm, int query)
{
    const struct rollout_queries *queries = &source->plan->queries[arm];
    const char *const all[QUERIES] = {queries->requests, queries->errors, queries->wrong,
            queries->rejected, queries->latency_buckets};
    return all[query];
}

static int source_prometheus_open(struct source *source, struct error *err)
{
    struct source_prometheus *own = xcalloc(1, sizeof *own);
    const char *url = source->plan->url;
    source->own = own;
    if (!url || (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)) {
        char *plain = http_url_plain(url ? url : "");
        int refused = error_set(err, -EINVAL,
                "the source prometheus needs a url such as http://127.0.0.1:9090, not '%.200s'",
                plain);
        free(plain);
        return refused;
    }
    size_t len = strlen(url);
    while (len && url[len - 1] == '/')
        len--;
    own->url = xasprintf("%.*s/api/v1/query", (int)len, url);
    own->step_ns = source->plan->step_ns > 0 ? source->plan->step_ns : PROMETHEUS_STEP_NS;
    if (own->step_ns > PROMETHEUS_HOLD_NS)
        return error_set(err, -EINVAL,
                "the source prometheus is asked every 60 s at least; its step is longer");
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        own->arms[arm].at_s = -INFINITY;
    int rc = source->plan->token_file ? http_token_read(source->plan->token_file, &own->token, err)
                                      : 0;
    return rc ? rc : http_open(&own->http, err);
}

static void source_prometheus_end_calls(struct prometheus_arm *arm)
{
    for (int query = 0; query < QUERIES; query++) {
        http_call_free(arm->calls[query]);
        arm->calls[query] = NULL;
    }
}

static void source_prometheus_close(struct source *source)
{
    struct source_prometheus *own = source->own;
    if (!own)
        return;
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        source_prometheus_end_calls(&own->arms[arm]);
        for (int query = 0; query < QUERIES; query++)
            counter_free(&own->arms[arm].counters[query]);
    }
    http_close(own->http);
    free(own->url);
    free(own->token);
    free(own);
}

static int64_t source_prometheus_due_ns(const struct source *source)
{
    const struct source_prometheus *own = source->own;
    int64_t quiet_ns = own->read_ns + PROMETHEUS_QUIET_NS;
    return own->asking                ? own->read_ns + PROMETHEUS_WORK_NS
            : own->next_ns < quiet_ns ? own->next_ns
                                      : quiet_ns;
}

static void prometheus_note(struct source_prometheus *own, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
// the first of a look is told
static void prometheus_note(struct source_prometheus *own, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!own->problem[0])
        vsnprintf(own->problem, sizeof own->problem, fmt, args);
    va_end(args);
}

// Tokens of service accounts are replaced every hour: with the first one a long rollout would be
// blind after it. One that cannot be read leaves the one before.
static void prometheus_token(struct source *source)
{
    struct source_prometheus *own = source->own;
    struct error err = {0};
    char *fresh;
    if (!source->plan->token_file)
        return;
    if (http_token_read(source->plan->token_file, &fresh, &err)) {
        prometheus_note(own, "%.200s", err.text);
        return;
    }
    free(own->token);
    own->token = fresh;
}

static void prometheus_ask(struct source *source, int64_t now_ns)
{
    struct source_prometheus *own = source->own;
    int64_t timeout_ns =
            own->step_ns < PROMETHEUS_TIMEOUT_NS ? PROMETHEUS_TIMEOUT_NS : own->step_ns;
    own->problem[0] = 0;
    own->asking = true;
    own->asked_ns = now_ns;
    own->next_ns = now_ns + own->step_ns;
    prometheus_token(source);
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        for (int query = 0; query < QUERIES; query++) {
            struct error err = {0};
            const char *text = prometheus_query(source, arm, query);
            if (!text)
                continue;
            char *form = prometheus_form(text, timeout_ns);
            struct http_request request = {.url = own->url,
                    .content_type = "application/x-www-form-urlencoded",
                    .body = form,
                    .token = own->token,
                    .timeout_ns = timeout_ns,
                    .answer_max = PROMETHEUS_ANSWER_MAX};
            if (http_call_new(own->http, &request, &own->arms[arm].calls[query], &err))
                prometheus_note(own, "%.200s", err.text);
            free(form);
        }
}

static bool prometheus_all_ended(const struct source *source)
{
    const struct source_prometheus *own = source->own;
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        for (int query = 0; query < QUERIES; query++)
            if (own->arms[arm].calls[query] && !http_call_ended(own->arms[arm].calls[query]))
                return false;
    return true;
}

// All answers of an arm, or none: half of them would set errors against requests of another moment.
static bool prometheus_answers(
        struct source *source, int arm, struct prometheus_answer answers[QUERIES])
{
    struct source_prometheus *own = source->own;
    bool ok = true;
    for (int query = 0; query < QUERIES; query++) {
        struct http_call *call = own->arms[arm].calls[query];
        struct error err = {0};
        const char *body = NULL;
        long status = 0;
        answers[query] = (struct prometheus_answer){.at_s = NAN};
        if (!prometheus_query(source, arm, query))
            continue;
        if (!call || http_call_answer(call, &status, &body, &err) ||
                prometheus_parse(status, body, &answers[query], &err)) {
            prometheus_note(own, "the query '%s' of %s: %.180s", prometheus_query_names[query],
                    prometheus_arm_names[arm], err.text);
            ok = false;
            continue;
        }
        source->state.seen++;
        source->state.dropped += answers[query].dropped;
        if (answers[query].dropped) { // errors that nobody can count are not none
            prometheus_note(own,
                    "the query '%s' of %s gives what is no count (NaN, infinite or negative)",
                    prometheus_query_names[query], prometheus_arm_names[arm]);
            ok = false;
        }
        if (answers[query].warning[0])
            prometheus_note(own, "Prometheus warns: %s", answers[query].warning);
        own->arms[arm].named[query] |= answers[query].count > 0;
    }
    return ok;
}

// A misspelled query gives no series, as one does whose series begins with the first error: the
// second can be written otherwise.
static bool prometheus_named(struct source *source, int arm)
{
    for (int query = QUERY_ERRORS; query <= QUERY_REJECTED; query++)
        if (prometheus_query(source, arm, query) &&
                !((struct source_prometheus *)source->own)->arms[arm].named[query]) {
            prometheus_note(source->own,
                    "the query '%s' of %s has given no series yet: is its name right? where the series begins "
                    "with the first, end the query in `or vector(0)`",
                    prometheus_query_names[query], prometheus_arm_names[arm]);
            return false;
        }
    return true;
}

// part of `whole`, of which `done` is told and `now` comes: so that sums come out, and no part runs
// ahead of its whole.
static uint64_t prometheus_share(uint64_t part, uint64_t whole, uint64_t done, uint64_t now)
{
    __uint128_t wide = part;
    return whole ? (uint64_t)(wide * (done + now) / whole) - (uint64_t)(wide * done / whole) : 0;
}

static void prometheus_second(struct canary_second *second, const struct prometheus_arm *arm,
        uint64_t requests, uint64_t done, uint64_t now)
{
    uint64_t errors = arm->errors < requests ? arm->errors : requests;
    uint64_t wrong = arm->wrong < requests ? arm->wrong : requests;
    uint64_t rejected = arm->rejected < requests ? arm->rejected : requests;
    second->requests += now;
    second->errors += prometheus_share(errors, requests, done, now);
    second->wrong += prometheus_share(wrong, requests, done, now);
    second->rejected += prometheus_share(rejected, requests, done, now);
    for (int bin = 0; bin < CANARY_BINS; bin++)
        if (arm->bins[bin])
            second->bins[bin] += (uint32_t)prometheus_share(arm->bins[bin], requests, done, now);
}

static void prometheus_spread(
        struct source *source, int number, struct prometheus_arm *arm, uint64_t requests)
{
    struct source_prometheus *own = source->own;
    struct timeline *timeline = source->timeline;
    struct timeline_total *total = &timeline->totals[number];
    int64_t until_s = timeline_second_of(timeline, own->asked_ns);
    int64_t since_ns = arm->grown_ns > own->asked_ns - PROMETHEUS_HOLD_NS
            ? arm->grown_ns
            : own->asked_ns - own->step_ns;
    int64_t since_s = timeline_second_of(timeline, since_ns);
    if (since_s <= timeline->taken_s)
        since_s = timeline->taken_s + 1;
    if (since_s >= until_s)
        since_s = until_s - 1;
    uint64_t seconds = (uint64_t)(until_s - since_s), done = 0;
    for (uint64_t i = 0; i < seconds; i++) {
        uint64_t now = prometheus_share(requests, seconds, i, 1);
        struct canary_second *second =
                timeline_at(timeline, since_s + (int64_t)i, (enum timeline_arm)number);
        if (second)
            prometheus_second(second, arm, requests, done, now);
        else
            source->state.late += now;
        done += now;
    }
    total->requests += requests;
    total->errors += arm->errors < requests ? arm->errors : requests;
    arm->errors = arm->wrong = arm->rejected = 0;
    memset(arm->bins, 0, sizeof arm->bins);
}

static void prometheus_grown(struct source *source, int number, uint64_t requests)
{
    struct source_prometheus *own = source->own;
    struct prometheus_arm *arm = &own->arms[number];
    prometheus_spread(source, number, arm, requests);
    if (arm->grown_ns && own->asked_ns - arm->grown_ns < PROMETHEUS_HOLD_NS)
        arm->gaps_ns[arm->gap++ % PROMETHEUS_GAPS] = own->asked_ns - arm->grown_ns;
    arm->grown_ns = own->asked_ns;
    source->state.kept++;
    source->state.last_ns = own->asked_ns;
}

// Errors and wrong answers without a count of requests (another source counts those): to the second
// that has just ended.
static void prometheus_alone(struct source *source, int number, struct prometheus_arm *arm)
{
    struct source_prometheus *own = source->own;
    if (!arm->errors && !arm->wrong)
        return;
    struct canary_second *second = timeline_at(source->timeline,
            timeline_second_of(source->timeline, own->asked_ns) - 1, (enum timeline_arm)number);
    if (second) {
        second->errors += arm->errors;
        second->wrong += arm->wrong;
        source->state.kept++;
        source->state.last_ns = own->asked_ns;
    } else {
        source->state.late++;
    }
    source->timeline->totals[number].errors += arm->errors;
    arm->errors = arm->wrong = 0;
}

static void prometheus_count(
        struct source *source, int number, const struct prometheus_answer answers[QUERIES])
{
    struct source_prometheus *own = source->own;
    struct prometheus_arm *arm = &own->arms[number];
    struct counter_look looks[QUERIES];
    bool counts = prometheus_query(source, number, QUERY_REQUESTS) != NULL;
    counter_look(&arm->counters[QUERY_REQUESTS], &answers[QUERY_REQUESTS], false,
            &looks[QUERY_REQUESTS]);
    // a new server brings counters that have a past
    for (int query = QUERY_ERRORS; query < QUERIES; query++)
        counter_look(&arm->counters[query], &answers[query],
                query != QUERY_BUCKETS && !looks[QUERY_REQUESTS].began, &looks[query]);
    bool known = true;
    for (int query = 0; query < QUERIES; query++) {
        source->state.dropped += looks[query].fallen;
        known &= !looks[query].full &&
                (!looks[query].fallen || query == QUERY_REQUESTS || query == QUERY_BUCKETS);
        if (looks[query].full)
            prometheus_note(own,
                    "the query '%s' of %s has given more than %d series so far, and the newest cannot be counted; ask for one a "
                    "server, `sum by (instance) (…)`",
                    prometheus_query_names[query], prometheus_arm_names[number],
                    PROMETHEUS_SAMPLES_MAX);
        if (looks[query].behind)
            prometheus_note(own,
                    "a series of the query '%s' of %s is behind what it has been: do two Prometheus answer at this address? ask one",
                    prometheus_query_names[query], prometheus_arm_names[number]);
        if (looks[query].fallen)
            prometheus_note(own,
                    "the sum '%s' of %s has fallen, so how much it grew is not known; ask for the series, not for "
                    "their sum",
                    prometheus_query_names[query], prometheus_arm_names[number]);
    }
    arm->errors += looks[QUERY_ERRORS].grown;
    arm->wrong += looks[QUERY_WRONG].grown;
    arm->rejected += looks[QUERY_REJECTED].grown;
    counter_bins(&arm->counters[QUERY_BUCKETS], arm->bins);
    if (!known) // nor are these: the requests of this time are no evidence, its errors are
        memset(arm->bins, 0, sizeof arm->bins);
    arm->blind = !counts && looks[QUERY_WRONG].full;
    if (!counts)
        prometheus_alone(source, number, arm);
    else if (looks[QUERY_REQUESTS].grown && known)
        prometheus_grown(source, number, looks[QUERY_REQUESTS].grown);
}

static void prometheus_look(struct source *source, int number)
{
    struct source_prometheus *own = source->own;
    struct prometheus_arm *arm = &own->arms[number];
    struct prometheus_answer answers[QUERIES];
    bool ok = prometheus_answers(source, number, answers);
    const char *requests = prometheus_query(source, number, QUERY_REQUESTS);
    double at_s = requests ? answers[QUERY_REQUESTS].at_s : arm->at_s;
    if (ok && requests && answers[QUERY_REQUESTS].count == 0) {
        prometheus_note(own,
                "the query 'requests' of %s gives no series: there is none of that name, or its server is not "
                "scraped",
                prometheus_arm_names[number]);
        arm->looked_ns = own->asked_ns;
    } else if (ok && (arm->blind = !prometheus_named(source, number))) {
        arm->looked_ns = own->asked_ns;
    } else if (ok && requests && at_s <= arm->at_s) {
        prometheus_note(own,
                "the clock of Prometheus was set back by %.0f s; waiting until it is beyond",
                arm->at_s - at_s);
    } else if (ok) {
        arm->at_s = at_s;
        arm->looked_ns = own->asked_ns;
        prometheus_count(source, number, answers);
    }
    for (int query = 0; query < QUERIES; query++)
        prometheus_answer_free(&answers[query]);
}

// Until when everything is in: a second is held until the counts of requests of both arms have
// grown beyond it, but not for one that stands still, and for a minute at most. What is counted
// beside the requests of another source goes to the requests that come next and holds nothing,
// unless nobody ever counted it: then these requests, told as none of them wrong, would be evidence
// of what was not seen.
static int64_t prometheus_complete_ns(const struct source *source, int64_t now_ns)
{
    const struct source_prometheus *own = source->own;
    int64_t complete_ns = now_ns;
    for (int number = 0; number < CANARY_ARMS; number++) {
        const struct prometheus_arm *arm = &own->arms[number];
        if (!prometheus_query(source, number, QUERY_REQUESTS)) {
            if (arm->blind)
                return source->complete_ns;
            continue;
        }
        int64_t hold_ns = arm->gap ? 0 : PROMETHEUS_HOLD_NS, until_ns = arm->looked_ns;
        for (int i = 0; i < PROMETHEUS_GAPS; i++)
            hold_ns = 2 * arm->gaps_ns[i] > hold_ns ? 2 * arm->gaps_ns[i] : hold_ns;
        hold_ns = hold_ns < PROMETHEUS_HOLD_NS ? hold_ns : PROMETHEUS_HOLD_NS;
        if (arm->grown_ns && now_ns - arm->grown_ns < hold_ns)
            until_ns = arm->grown_ns;
        if (until_ns < now_ns - PROMETHEUS_HOLD_NS)
            until_ns = now_ns - PROMETHEUS_HOLD_NS;
        complete_ns = until_ns < complete_ns ? until_ns : complete_ns;
    }
    return complete_ns + SOURCE_FINISH_NS; // nothing comes behind an answer
}

static bool source_prometheus_read(struct source *source, int64_t now_ns)
{
    struct source_prometheus *own = source->own;
    uint64_t before = source->state.kept;
    own->read_ns = now_ns;
    if (!own->asking && now_ns >= own->next_ns)
        prometheus_ask(source, now_ns);
    if (own->asking)
        http_work(own->http, 0);
    if (own->asking && prometheus_all_ended(source)) {
        own->asking = false;
        for (int number = 0; number < CANARY_ARMS; number++) {
            prometheus_look(source, number);
            source_prometheus_end_calls(&own->arms[number]);
        }
        source_problem(source, "%s", own->problem);
    }
    source->complete_ns = prometheus_complete_ns(source, now_ns);
    return source->state.kept != before;
}

const struct source_ops source_prometheus_ops = {source_prometheus_open, source_prometheus_close,
        source_prometheus_due_ns, source_prometheus_read};
