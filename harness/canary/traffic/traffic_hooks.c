// SPDX-License-Identifier: Apache-2.0
// Any other system: commands of the user, or one address that JSON is posted to.
//   set   "{percent}": of the candidate; exit 0, or 2xx: done
//   get   prints the candidate's percent (also with a % sign); of an address: {"percent": 5}
//   drain "{arm}": baseline or candidate; exit 0, or 2xx: nothing is in flight; of an address also
//       {"in_flight": 3}
// The address gets {"rollout": NAME, "verb": "set", "percent": 5.0}, {…, "verb": "get"}, {…,
// "verb": "drain", "arm": "candidate"}. What fails is tried again while there is time. What is set
// is read back where there is a `get`; else it is believed.
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/canary/http/http.h"
#include "harness/canary/traffic/hook.h"
#include "harness/canary/traffic/traffic_internal.h"

enum { HOOKS_ANSWER_MAX = 65536 };
#define HOOKS_RETRY_NS 100000000LL // doubled each time
#define HOOKS_ROUNDING 0.5         // percent: systems that take whole percents only

struct traffic_hooks {
    struct http *http; // where the plan has a url
    double percent;    // as set last
};

static const char *const hooks_arms[CANARY_ARMS] = {"baseline", "candidate"};

static int traffic_hooks_get(struct traffic *traffic, double *ret_percent, struct error *err);

static int traffic_hooks_open(struct traffic *traffic, bool back, struct error *err)
{
    const struct rollout_traffic *plan = traffic->plan;
    struct traffic_hooks *own = xcalloc(1, sizeof *own);
    traffic->own = own;
    if (!plan->url && (!plan->set || !plan->set[0]))
        return error_set(err, -EINVAL, "traffic.hooks needs a command 'set' or a url");
    int rc = plan->url ? http_open(&own->http, err) : 0;
    double percent;
    return rc || back ? rc : traffic_hooks_get(traffic, &percent, err);
}

static void traffic_hooks_close(struct traffic *traffic)
{
    struct traffic_hooks *own = traffic->own;
    if (own)
        http_close(own->http);
    free(own);
}

static int hooks_post(struct traffic *traffic, const char *body, int64_t deadline_ns,
        char **ret_answer, struct error *err)
{
    struct traffic_hooks *own = traffic->own;
    int64_t left_ns = deadline_ns - clock_monotonic_ns();
    struct http_request request = {.url = traffic->plan->url,
            .content_type = "application/json",
            .body = body,
            .timeout_ns = left_ns > 0 ? left_ns : 0,
            .answer_max = HOOKS_ANSWER_MAX};
    struct http_call *call;
    const char *answer;
    long status = 0;
    int rc = http_call_new(own->http, &request, &call, err);
    if (rc)
        return rc;
    while (!http_call_ended(call))
        http_work(own->http, 100);
    rc = http_call_answer(call, &status, &answer, err);
    if (rc == 0 && (status < 200 || status > 299)) {
        char *words = xasprintf("%.200s", answer), *url = http_url_plain(traffic->plan->url);
        string_make_plain(words, strlen(words));
        rc = error_set(err, -EIO, "'%s' answers %ld: %s", url, status, words);
        free(words);
        free(url);
    }
    if (rc == 0)
        *ret_answer = xstrdup(answer);
    http_call_free(call);
    return rc;
}

// One verb, by command or by address. Failures that a second try could mend are tried again: not a
// command that is not there.
static int hooks_run(struct traffic *traffic, char *const *argv, const char *body,
        int64_t deadline_ns, char **ret_answer, struct error *err)
{
    int64_t pause_ns = HOOKS_RETRY_NS;
    for (uint64_t i = 0;; i++, pause_ns *= 2) {
        int rc = traffic->plan->url ? hooks_post(traffic, body, deadline_ns, ret_answer, err)
                                    : hook_run(argv, deadline_ns, ret_answer, err);
        bool again = rc == -EIO || rc == -ECONNREFUSED;
        if (!again || i >= traffic->plan->retries || clock_monotonic_ns() + pause_ns >= deadline_ns)
            return rc;
        clock_sleep_until_ns(clock_monotonic_ns() + pause_ns);
    }
}

static int64_t hooks_deadline_ns(const struct traffic *traffic)
{
    return clock_monotonic_ns() + traffic->plan->timeout_ns;
}

static int hooks_verb(struct traffic *traffic, const char *verb, char *const *command, json_t *more,
        const struct hook_word *word, int64_t deadline_ns, char **ret_answer, struct error *err)
{
    json_t *body = json_pack("{s:s, s:s}", "rollout",
            traffic->rollout->name ? traffic->rollout->name : "", "verb", verb);
    json_object_update(body, more);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL, **argv = NULL;
    json_decref(body);
    json_decref(more);
    if (!text)
        return error_set(err, -EINVAL, "the name of the rollout is not UTF-8");
    if (!traffic->plan->url)
        argv = hook_argv(command, word, word ? 1 : 0);
    int rc = hooks_run(traffic, argv, text, deadline_ns, ret_answer, err);
    hook_argv_free(argv);
    free(text);
    if (rc && err)
        error_prefix(err, "the hook '%s'", verb);
    return rc;
}

// A number of an answer in JSON. False: it has none.
static bool hooks_member(const char *answer, const char *name, double *ret)
{
    json_error_t bad;
    json_t *root = json_loads(answer, 0, &bad), *member = json_object_get(root, name);
    bool is_number = json_is_number(member);
    if (is_number)
        *ret = json_number_value(member);
    json_decref(root);
    return is_number;
}

// "5", "5.0\n", "5 %".
static bool hooks_percent(const char *answer, double *ret)
{
    char text[64];
    size_t len = strcspn(answer, "%\r\n");
    const char *rest = answer + len + strspn(answer + len, "% \t\r\n");
    while (len && strchr(" \t", answer[len - 1]))
        len--;
    while (len && strchr(" \t", *answer))
        answer++, len--;
    if (*rest || len >= sizeof text)
        return false;
    snprintf(text, sizeof text, "%.*s", (int)len, answer);
    return unit_parse_double(text, 0, 100, ret, NULL) == 0;
}

static int traffic_hooks_get(struct traffic *traffic, double *ret_percent, struct error *err)
{
    const struct traffic_hooks *own = traffic->own;
    char *answer;
    double percent = NAN;
    if (!traffic->plan->url && (!traffic->plan->get || !traffic->plan->get[0])) {
        *ret_percent = own->percent;
        return 0;
    }
    int rc = hooks_verb(traffic, "get", traffic->plan->get, NULL, NULL, hooks_deadline_ns(traffic),
            &answer, err);
    if (rc)
        return rc;
    bool ok = traffic->plan->url
            ? hooks_member(answer, "percent", &percent) && percent >= 0 && percent <= 100
            : hooks_percent(answer, &percent);
    if (ok) {
        *ret_percent = percent;
    } else {
        string_make_plain(answer, strlen(answer));
        rc = error_set(err, -EPROTO,
                "the hook 'get' must tell the candidate's share, 0 to 100%s, not: %.100s",
                traffic->plan->url ? " as {\"percent\": 5}" : "", answer);
    }
    free(answer);
    return rc;
}

// Nothing and everything must be so; else a system may round.
static bool hooks_same(double wanted, double have)
{
    if (wanted <= 0 || wanted >= 100)
        return fabs(wanted - have) < 1e-6;
    return have > 0 && have < 100 && fabs(wanted - have) <= HOOKS_ROUNDING;
}

static int traffic_hooks_set(
        struct traffic *traffic, double percent, double *ret_percent, struct error *err)
{
    struct traffic_hooks *own = traffic->own;
    char number[32], *answer;
    double have;
    snprintf(number, sizeof number, "%.10g", percent);
    struct hook_word word = {"percent", number};
    json_t *more = json_pack("{s:f}", "percent", percent);
    int rc = hooks_verb(traffic, "set", traffic->plan->set, more, &word, hooks_deadline_ns(traffic),
            &answer, err);
    if (rc)
        return rc;
    free(answer);
    own->percent = percent;
    rc = traffic_hooks_get(traffic, &have, err);
    if (rc)
        return rc;
    if (!hooks_same(percent, have))
        return error_set(err, -EPROTO,
                "the hook 'set' was told %g %%, and the hook 'get' tells %g %%", percent, have);
    *ret_percent = have;
    return 0;
}

static int traffic_hooks_set_aa(
        struct traffic *traffic, double percent, double *ret_percent, struct error *err)
{
    (void)traffic;
    (void)percent;
    (void)ret_percent;
    return error_set(err, -ENOTSUP, "hooks know no second baseline");
}

static int traffic_hooks_look(
        struct traffic *traffic, struct traffic_arm ret_arms[CANARY_ARMS], struct error *err)
{
    (void)traffic;
    (void)err;
    for (int i = 0; i < CANARY_ARMS; i++)
        ret_arms[i] = (struct traffic_arm){.up = true};
    return 0;
}

static int traffic_hooks_drain(struct traffic *traffic, enum canary_arm arm, int64_t deadline_ns,
        uint64_t *ret_left, struct error *err)
{
    char *answer;
    double left = 0;
    if (!traffic->plan->url && (!traffic->plan->drain || !traffic->plan->drain[0])) {
        *ret_left = 0;
        return 0;
    }
    struct hook_word word = {"arm", hooks_arms[arm]};
    json_t *more = json_pack("{s:s}", "arm", hooks_arms[arm]);
    int rc = hooks_verb(
            traffic, "drain", traffic->plan->drain, more, &word, deadline_ns, &answer, err);
    if (rc)
        return rc;
    if (traffic->plan->url && hooks_member(answer, "in_flight", &left) &&
            !(left >= 0 && left < 1e15))
        left = 0;
    *ret_left = (uint64_t)left;
    free(answer);
    return 0;
}

const struct traffic_ops traffic_hooks_ops = {
        .open = traffic_hooks_open,
        .close = traffic_hooks_close,
        .set = traffic_hooks_set,
        .set_aa = traffic_hooks_set_aa,
        .get = traffic_hooks_get,
        .look = traffic_hooks_look,
        .drain = traffic_hooks_drain,
};
