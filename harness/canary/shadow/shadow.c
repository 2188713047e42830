// SPDX-License-Identifier: Apache-2.0
// Mirrors requests: a pair of transfers (libcurl's multi interface) for each, both begun at once,
// the first in turn; what came back is compared when both are over, and counted in that second. One
// thread, bounded everywhere; nobody waits for it.
#include "harness/canary/shadow/shadow.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/canary/http/http.h"
#include "harness/canary/shadow/shadow_parity.h"
#include "harness/canary/shadow/shadow_requests.h"
#include "reports/analyse/parity.h"

enum {
    SHADOW_ASKS = 3,
    SHADOW_AGAIN = 2,
    SHADOW_SECONDS = 64,
    SHADOW_PATHS_MAX = 16,
    SHADOW_EXAMPLE_BYTES = 600
};
static const int64_t shadow_timeout_ns = INT64_C(10000000000), shadow_second_ns = 1000000000;

struct shadow_ask { // one request to one arm; the third asks the baseline again
    CURL *easy;
    char *url;
    struct curl_slist *headers;
    struct strbuf answer;
    bool under_way, too_long, failed;
    long status;
    double seconds;
};

struct shadow_pair {
    bool used, again;
    struct shadow_request request; // the file's
    struct shadow_ask asks[SHADOW_ASKS];
};

struct shadow_slot { // of one second
    int64_t at_s;
    struct canary_second arms[CANARY_ARMS];
};

struct shadow {
    struct shadow_opts opts;
    char *urls[CANARY_ARMS], **methods, **ignore, *paths[SHADOW_PATHS_MAX + 1];
    size_t path_count;
    CURLM *multi;
    struct shadow_request *requests;
    size_t request_count, request_next, under_way;
    struct shadow_pair *pairs;
    double allowed; // requests that may be mirrored now
    double behind;  // that were not, while all pairs were under way
    uint64_t begun;
    double apart; // how far two answers of the baseline were from each other; NAN: not known yet
    struct shadow_slot slots[SHADOW_SECONDS];
    size_t slot_first, slot_count;
    struct shadow_example examples[SHADOW_EXAMPLES_MAX];
    size_t example_count, example_next;
    struct shadow_state state;
};

static char **shadow_copy_list(const char *const *list)
{
    char **copy = NULL;
    size_t count = 0;
    if (!list)
        return NULL;
    for (; *list; list++)
        vector_push(copy, count, xstrdup(*list));
    vector_push(copy, count, NULL);
    return copy;
}

static void shadow_free_list(char **list)
{
    for (char **at = list; at && *at; at++)
        free(*at);
    free(list);
}

// "http://HOST:PORT/BASE" without the slash at its end.
static int shadow_url(const char *url, char **ret_url, struct error *err)
{
    size_t len = url ? strlen(url) : 0;
    if (!url || (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) ||
            strpbrk(url, " \t\r\n?#")) {
        char *plain = http_url_plain(url ? url : "");
        int rc = error_set(err, -EINVAL,
                "the shadow stage needs the base URL of each arm, like http://127.0.0.1:8001, without spaces, `?` "
                "and `#`; not '%.200s'",
                plain);
        free(plain);
        return rc;
    }
    while (len && url[len - 1] == '/')
        len--;
    *ret_url = xasprintf("%.*s", (int)len, url);
    return 0;
}

int shadow_open(const struct shadow_opts *opts, struct shadow **ret_shadow, struct error *err)
{
    struct shadow *shadow = xcalloc(1, sizeof *shadow);
    shadow->opts = *opts;
    shadow->opts.concurrent = opts->concurrent > 0 ? opts->concurrent : SHADOW_CONCURRENT;
    shadow->opts.timeout_ns = opts->timeout_ns > 0 ? opts->timeout_ns : shadow_timeout_ns;
    shadow->methods = shadow_copy_list(opts->methods);
    shadow->ignore = shadow_copy_list(opts->ignore);
    shadow->opts.methods = (const char *const *)shadow->methods;
    shadow->opts.ignore = (const char *const *)shadow->ignore;
    shadow->apart = NAN;
    int rc = opts->mirror > 0 && opts->mirror <= 1
            ? 0
            : error_set(err, -EINVAL,
                      "the shadow stage mirrors more than 0 and at most all of the requests");
    for (int arm = 0; arm < CANARY_ARMS && rc == 0; arm++)
        rc = shadow_url(opts->urls[arm], &shadow->urls[arm], err);
    if (rc == 0)
        rc = shadow_requests_load(opts->requests, shadow->opts.methods, &shadow->requests,
                &shadow->request_count, err);
    if (rc == 0 &&
            (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
                    !(shadow->multi = curl_multi_init())))
        rc = error_set(err, -ENOMEM, "failed to start libcurl for the shadow stage");
    shadow->pairs = xcalloc((size_t)shadow->opts.concurrent, sizeof *shadow->pairs);
    if (rc) {
        shadow_close(shadow);
        return rc;
    }
    *ret_shadow = shadow;
    return 0;
}

static void shadow_ask_clear(struct shadow *shadow, struct shadow_ask *ask)
{
    if (ask->under_way)
        curl_multi_remove_handle(shadow->multi, ask->easy);
    if (ask->easy)
        curl_easy_cleanup(ask->easy);
    curl_slist_free_all(ask->headers);
    strbuf_free(&ask->answer);
    free(ask->url);
    *ask = (struct shadow_ask){0};
}

static void shadow_pair_clear(struct shadow *shadow, struct shadow_pair *pair)
{
    for (int i = 0; i < SHADOW_ASKS; i++)
        shadow_ask_clear(shadow, &pair->asks[i]);
    *pair = (struct shadow_pair){0};
}

void shadow_close(struct shadow *shadow)
{
    if (!shadow)
        return;
    for (int i = 0; shadow->pairs && i < shadow->opts.concurrent; i++)
        shadow_pair_clear(shadow, &shadow->pairs[i]);
    if (shadow->multi)
        curl_multi_cleanup(shadow->multi);
    for (size_t i = 0; i < shadow->request_count; i++)
        shadow_request_clear(&shadow->requests[i]);
    for (size_t i = shadow->example_next; i < shadow->example_count; i++)
        shadow_example_clear(&shadow->examples[i]);
    for (size_t i = 0; i < shadow->path_count; i++)
        free(shadow->paths[i]);
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        free(shadow->urls[arm]);
    shadow_free_list(shadow->methods);
    shadow_free_list(shadow->ignore);
    free(shadow->requests);
    free(shadow->pairs);
    free(shadow);
}

void shadow_traffic(struct shadow *shadow, uint64_t requests)
{
    shadow->allowed += (double)requests * shadow->opts.mirror;
    double most = shadow->opts.concurrent; // a burst is not made up for later
    if (shadow->allowed > most) {
        shadow->behind += shadow->allowed - most;
        shadow->allowed = most;
    }
}

static size_t shadow_take_bytes(char *bytes, size_t size, size_t count, void *data)
{
    struct shadow_ask *ask = data;
    if (ask->answer.len + size * count > SHADOW_BODY_MAX) {
        ask->too_long = true;
        return 0; // ends the transfer
    }
    strbuf_add_bytes(&ask->answer, bytes, size * count);
    return size * count;
}

static int shadow_ask_begin(struct shadow *shadow, const struct shadow_request *request, int arm,
        struct shadow_ask *ask, struct error *err)
{
    CURL *easy = ask->easy = curl_easy_init();
    if (!easy)
        return error_set(
                err, -ENOMEM, "failed to start a request of the shadow stage: out of memory");
    ask->url = xasprintf("%s%s", shadow->urls[arm], request->path);
    // a server may leave it out of its own statistics
    ask->headers = curl_slist_append(ask->headers, "X-Upgate-Shadow: 1");
    ask->headers = curl_slist_append(ask->headers, "Expect:");
    curl_easy_setopt(easy, CURLOPT_URL, ask->url);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); // the arms themselves, whatever the environment says
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(shadow->opts.timeout_ns / 1000000));
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, shadow_take_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, ask);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, ask);
    if (request->body) {
        ask->headers = curl_slist_append(ask->headers,
                strchr("{[", *request->body) ? "Content-Type: application/json"
                                             : "Content-Type: application/octet-stream");
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->size);
    }
    if (strcmp(request->method, "HEAD") == 0)
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    else if (strcmp(request->method, request->body ? "POST" : "GET") != 0)
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, ask->headers);
    if (curl_multi_add_handle(shadow->multi, easy) != CURLM_OK)
        return error_set(err, -EIO, "failed to start a request of the shadow stage");
    ask->under_way = true;
    return 0;
}

static int shadow_begin(struct shadow *shadow, struct error *err)
{
    for (int i = 0; i < shadow->opts.concurrent && shadow->allowed >= 1; i++) {
        struct shadow_pair *pair = &shadow->pairs[i];
        if (pair->used)
            continue;
        pair->request = shadow->requests[shadow->request_next++ % shadow->request_count];
        pair->used = true;
        pair->again = shadow->begun < SHADOW_LEARN;
        shadow->allowed -= 1;
        int rc = 0, first = shadow->begun++ % 2 ? CANARY_CANDIDATE : CANARY_BASELINE;
        rc = shadow_ask_begin(shadow, &pair->request, first, &pair->asks[first], err);
        if (rc == 0)
            rc = shadow_ask_begin(shadow, &pair->request, !first, &pair->asks[!first], err);
        if (rc == 0 && pair->again)
            rc = shadow_ask_begin(
                    shadow, &pair->request, CANARY_BASELINE, &pair->asks[SHADOW_AGAIN], err);
        if (rc) {
            shadow_pair_clear(shadow, pair);
            return rc;
        }
    }
    return 0;
}

static struct shadow_slot *shadow_slot_now(struct shadow *shadow)
{
    int64_t now = clock_wall_ns() / shadow_second_ns;
    struct shadow_slot *last = shadow->slot_count
            ? &shadow->slots[(shadow->slot_first + shadow->slot_count - 1) % SHADOW_SECONDS]
            : NULL;
    if (last && last->at_s >= now) // the clock was set back: time does not
        return last;
    if (shadow->slot_count == SHADOW_SECONDS) // nobody takes them: the last one holds what follows
        return last;
    struct shadow_slot *slot =
            &shadow->slots[(shadow->slot_first + shadow->slot_count++) % SHADOW_SECONDS];
    *slot = (struct shadow_slot){.at_s = now};
    return slot;
}

static void shadow_count(struct canary_second *second, const struct shadow_ask *ask, bool wrong)
{
    bool error = ask->failed || ask->status >= 500;
    second->requests++;
    second->errors += error;
    second->wrong += wrong;
    if (!error)
        second->bins[canary_bin(ask->seconds)]++;
}

static struct shadow_answer shadow_answer(const struct shadow_ask *ask)
{
    return (struct shadow_answer){.status = ask->status,
            .body = ask->answer.text ? ask->answer.text : "",
            .size = ask->answer.len};
}

static struct shadow_rule shadow_rule(const struct shadow *shadow)
{
    return (struct shadow_rule){.limit = parity_spread_limit(shadow->opts.tolerance, shadow->apart),
            .ignore = shadow->opts.ignore,
            .paths = (const char *const *)shadow->paths};
}

static bool shadow_answered(const struct shadow_ask *ask)
{
    return !ask->failed && !ask->too_long && ask->status < 500;
}

// What the baseline itself does not answer alike twice (a time, an id, the last bits of a sum in
// another batch) is no difference.
static void shadow_learn(struct shadow *shadow, const struct shadow_pair *pair)
{
    if (!shadow_answered(&pair->asks[CANARY_BASELINE]) ||
            !shadow_answered(&pair->asks[SHADOW_AGAIN]))
        return;
    struct shadow_answer first = shadow_answer(&pair->asks[CANARY_BASELINE]),
                         second = shadow_answer(&pair->asks[SHADOW_AGAIN]);
    for (;;) {
        struct shadow_rule rule = shadow_rule(shadow);
        struct shadow_compared compared;
        rule.limit = INFINITY;
        shadow_compare(&first, &second, &rule, &compared);
        bool learnt = compared.path && *compared.path && shadow->path_count < SHADOW_PATHS_MAX;
        if (isfinite(compared.distance) && !(compared.distance <= shadow->apart))
            shadow->apart = compared.distance;
        if (learnt) {
            size_t used = strlen(shadow->state.ignored);
            snprintf(shadow->state.ignored + used, sizeof shadow->state.ignored - used, "%s%s",
                    used ? ", " : "", compared.path);
            shadow->paths[shadow->path_count++] = compared.path;
            compared.path = NULL;
        }
        shadow_compared_clear(&compared);
        if (!learnt)
            return;
    }
}

static char *shadow_cut(const char *text, size_t size)
{
    size_t len = size < SHADOW_EXAMPLE_BYTES ? size : SHADOW_EXAMPLE_BYTES;
    char *copy = xcalloc(len + 4, 1);
    if (len)
        memcpy(copy, text, len);
    string_make_plain(copy, len);
    if (len < size)
        strcpy(copy + len, "...");
    return copy;
}

static void shadow_keep(struct shadow *shadow, const struct shadow_pair *pair,
        const struct shadow_compared *compared)
{
    if (shadow->example_count == SHADOW_EXAMPLES_MAX)
        return;
    const struct shadow_request *request = &pair->request;
    struct shadow_answer a = shadow_answer(&pair->asks[0]), b = shadow_answer(&pair->asks[1]);
    char *body = shadow_cut(request->body ? request->body : "", request->size),
         *what = shadow_cut(compared->what, strlen(compared->what));
    char *first = shadow_cut(a.body, a.size), *second = shadow_cut(b.body, b.size);
    shadow->examples[shadow->example_count++] = (struct shadow_example){.at_ns = clock_wall_ns(),
            .distance = isfinite(compared->distance) ? compared->distance : NAN,
            .request = xasprintf(
                    "%s %s%s%s: %s", request->method, request->path, *body ? " " : "", body, what),
            .baseline = xasprintf("%ld %s", a.status, first),
            .candidate = xasprintf("%ld %s", b.status, second)};
    free(first);
    free(second);
    free(body);
    free(what);
}

static void shadow_pair_over(struct shadow *shadow, struct shadow_pair *pair)
{
    struct shadow_slot *slot = shadow_slot_now(shadow);
    struct shadow_compared compared = {.distance = NAN};
    const struct shadow_ask *a = &pair->asks[CANARY_BASELINE], *b = &pair->asks[CANARY_CANDIDATE];
    bool wrong[CANARY_ARMS] = {false, false};
    shadow->state.pairs++;
    if (pair->again)
        shadow_learn(shadow, pair);
    // A candidate that fails is an error, and counted as one; of a baseline that fails nothing can
    // be learnt.
    if (shadow_answered(a) && shadow_answered(b)) {
        struct shadow_answer first = shadow_answer(a), second = shadow_answer(b);
        struct shadow_rule rule = shadow_rule(shadow);
        shadow_compare(&first, &second, &rule, &compared);
        wrong[CANARY_BASELINE] = compared.nan[CANARY_BASELINE];
        wrong[CANARY_CANDIDATE] = !compared.equal &&
                (compared.nan[CANARY_CANDIDATE] || !compared.nan[CANARY_BASELINE]);
        shadow->state.compared++;
        shadow->state.different += wrong[CANARY_CANDIDATE];
    } else if (!shadow_answered(a) || b->too_long) {
        shadow->state.unanswered++;
    }
    shadow_count(&slot->arms[CANARY_BASELINE], a, wrong[CANARY_BASELINE]);
    // Where nothing was compared, nothing is known of the candidate: a stage of such answers would
    // pass without a wrong one. Nor are its failures counted beside a baseline that fails: with
    // none of the answers beside them, few of them would be all that there is.
    if (shadow_answered(a) && (!b->too_long || b->status >= 500))
        shadow_count(&slot->arms[CANARY_CANDIDATE], b, wrong[CANARY_CANDIDATE]);
    if (wrong[CANARY_CANDIDATE])
        shadow_keep(shadow, pair, &compared);
    shadow_compared_clear(&compared);
    shadow_pair_clear(shadow, pair);
}

static void shadow_ask_over(struct shadow *shadow, CURL *easy, CURLcode code)
{
    struct shadow_ask *ask = NULL;
    curl_off_t micros = 0;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &ask);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &ask->status);
    curl_easy_getinfo(easy, CURLINFO_TOTAL_TIME_T, &micros);
    ask->seconds = (double)micros / 1e6;
    ask->failed = code != CURLE_OK && !ask->too_long;
    curl_multi_remove_handle(shadow->multi, easy);
    ask->under_way = false;
}

int shadow_poll(struct shadow *shadow, int timeout_ms, struct error *err)
{
    int rc = shadow_begin(shadow, err), running = 0, left = 0;
    if (rc)
        return rc;
    if (curl_multi_perform(shadow->multi, &running) != CURLM_OK)
        return error_set(err, -EIO, "failed to go on with the requests of the shadow stage");
    if (running && timeout_ms > 0) {
        curl_multi_poll(shadow->multi, NULL, 0, timeout_ms, NULL);
        curl_multi_perform(shadow->multi, &running);
    }
    for (CURLMsg *message; (message = curl_multi_info_read(shadow->multi, &left));)
        if (message->msg == CURLMSG_DONE)
            shadow_ask_over(shadow, message->easy_handle, message->data.result);
    for (int i = 0; i < shadow->opts.concurrent; i++) {
        struct shadow_pair *pair = &shadow->pairs[i];
        bool over = pair->used;
        for (int j = 0; j < SHADOW_ASKS; j++)
            over = over && !pair->asks[j].under_way;
        if (over)
            shadow_pair_over(shadow, pair);
    }
    return 0;
}

bool shadow_take(
        struct shadow *shadow, int64_t *ret_at_s, struct canary_second ret_arms[CANARY_ARMS])
{
    struct shadow_slot *slot = &shadow->slots[shadow->slot_first];
    if (!shadow->slot_count || slot->at_s >= clock_wall_ns() / shadow_second_ns)
        return false;
    *ret_at_s = slot->at_s;
    memcpy(ret_arms, slot->arms, sizeof slot->arms);
    shadow->slot_first = (shadow->slot_first + 1) % SHADOW_SECONDS;
    shadow->slot_count--;
    return true;
}

bool shadow_example(struct shadow *shadow, struct shadow_example *ret_example)
{
    if (shadow->example_next == shadow->example_count)
        return false;
    *ret_example = shadow->examples[shadow->example_next];
    shadow->examples[shadow->example_next++] = (struct shadow_example){0};
    return true;
}

void shadow_example_clear(struct shadow_example *example)
{
    free(example->request);
    free(example->baseline);
    free(example->candidate);
    *example = (struct shadow_example){0};
}

void shadow_look(const struct shadow *shadow, struct shadow_state *ret_state)
{
    *ret_state = shadow->state;
    ret_state->behind = (uint64_t)shadow->behind;
    ret_state->limit = shadow_rule(shadow).limit;
}
