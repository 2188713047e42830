// SPDX-License-Identifier: Apache-2.0
// Prometheus' instant query, as far as a metric template of Flagger or a prometheus metric of Argo
// needs it: vector(NUMBER), which Flagger asks for to see whether the server is there, and one of
// our series with matchers = and !=. Everything else is refused in Prometheus' words: an empty
// result would be taken for one.
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/canary/serve/answers_parts.h"

enum { QUERY_MATCHERS_MAX = 8 };

struct matcher {
    char key[64], value[256];
    bool differs; // !=
};
struct selector {
    int family;
    struct matcher matchers[QUERY_MATCHERS_MAX];
    int count;
};

static void query_error(struct answer *ret, const char *text)
{
    json_t *json =
            json_pack("{ss ss ss}", "status", "error", "errorType", "bad_data", "error", text);
    char *body = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    answer_owned(ret, 400, ANSWER_JSON, body, strlen(body));
}

// Takes ownership of `result`.
static void query_result(struct answer *ret, json_t *result)
{
    json_t *json = json_pack(
            "{ss s{ss so}}", "status", "success", "data", "resultType", "vector", "result", result);
    char *body = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(json);
    answer_owned(ret, 200, ANSWER_JSON, body, strlen(body));
}

static json_t *sample(const struct call *call, double value)
{
    char text[32];
    series_print_value(text, value);
    return json_pack("[fs]", round((double)call->now.wall_ns / 1e6) / 1e3, text);
}

static const char *skip(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

static size_t word(const char *at, char *ret, size_t size)
{
    size_t len = 0;
    if (isalpha((unsigned char)*at) || *at == '_' || *at == ':')
        while (isalnum((unsigned char)at[len]) || at[len] == '_' || at[len] == ':')
            len++;
    if (!len || len >= size)
        return 0;
    memcpy(ret, at, len);
    ret[len] = 0;
    return len;
}

// A string of PromQL, with \\ \" \' and \n; NULL: it is none, or longer than any of our labels.
static const char *quoted(const char *at, char *ret, size_t size)
{
    char quote = *at++;
    size_t len = 0;
    if (quote != '"' && quote != '\'')
        return NULL;
    for (; *at && *at != quote; at++) {
        char letter = *at;
        if (letter == '\\') {
            letter = *++at;
            if (letter == 'n')
                letter = '\n';
            else if (letter != '\\' && letter != '"' && letter != '\'')
                return NULL;
        }
        if (len + 1 >= size)
            return NULL;
        ret[len++] = letter;
    }
    ret[len] = 0;
    return *at == quote ? at + 1 : NULL;
}

static const char *parse_matchers(const char *at, struct selector *ret)
{
    for (at = skip(at + 1); *at != '}'; at = skip(at)) {
        if (ret->count == QUERY_MATCHERS_MAX)
            return "too many matchers";
        struct matcher *matcher = &ret->matchers[ret->count++];
        size_t len = word(at, matcher->key, sizeof matcher->key);
        if (!len)
            return "a matcher is malformed: expected {label=\"value\", …}";
        at = skip(at + len);
        matcher->differs = at[0] == '!' && at[1] == '=';
        if (!matcher->differs && (at[0] != '=' || at[1] == '~' || at[1] == '='))
            return "only the matchers = and != are known here";
        at = quoted(skip(at + 1 + matcher->differs), matcher->value, sizeof matcher->value);
        if (!at)
            return "a matcher is malformed: expected {label=\"value\", …}";
        at = skip(at);
        if (*at == ',')
            at++;
        else if (*at != '}')
            return "a matcher is malformed: expected {label=\"value\", …}";
    }
    return *skip(at + 1) ? "only one series can be asked for, without operators" : NULL;
}

// NULL, or what is wrong.
static const char *parse_selector(const char *query, struct selector *ret)
{
    char name[64];
    const char *at = skip(query);
    size_t len = word(at, name, sizeof name);
    ret->count = 0;
    ret->family = len ? series_family_by_name(name) : -1;
    if (!len || ret->family < 0)
        return "only vector(N) and the series of /metrics can be asked for, such as gate_verdict{rollout=\"…\",metric=\"all\",stage=\"all\"}";
    at = skip(at + len);
    return *at == '{' ? parse_matchers(at, ret)
            : *at     ? "only one series can be asked for, without operators"
                      : NULL;
}

static bool parse_vector(const char *query, double *ret)
{
    const char *at = skip(query);
    if (strncmp(at, "vector", 6) != 0 || *(at = skip(at + 6)) != '(')
        return false;
    char *end = NULL;
    at = skip(at + 1);
    if (!isdigit((unsigned char)*at) && *at != '-' && *at != '+' && *at != '.')
        return false;
    *ret = strtod(at, &end);
    if (end == at)
        return false;
    at = skip(end);
    return isfinite(*ret) && *at == ')' && !*skip(at + 1);
}

// A label that a series does not have is the empty one.
static bool selected(const struct selector *selector, const struct series *series)
{
    for (int i = 0; i < selector->count; i++) {
        const char *value = strcmp(selector->matchers[i].key, "__name__") == 0
                ? series_family_name(series->family)
                : "";
        for (int k = 0; k < series->labels; k++)
            if (strcmp(series->keys[k], selector->matchers[i].key) == 0)
                value = series->values[k];
        if ((strcmp(value, selector->matchers[i].value) == 0) == selector->matchers[i].differs)
            return false;
    }
    return true;
}

static void give_series(const struct series_list *list, const struct selector *selector,
        const struct call *call, struct answer *ret)
{
    json_t *result = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const struct series *series = &list->items[i];
        if ((int)series->family != selector->family || !selected(selector, series))
            continue;
        json_t *metric = json_pack("{ss}", "__name__", series_family_name(series->family));
        for (int k = 0; k < series->labels; k++)
            json_object_set_new(metric, series->keys[k], json_string(series->values[k]));
        json_array_append_new(result,
                json_pack("{so so}", "metric", metric, "value", sample(call, series->value)));
    }
    query_result(ret, result);
}

void answers_query(const struct answers *answers, const struct call *call,
        const struct target *target, struct answer *ret)
{
    struct target form = {0};
    int twice = 0, twice_form = 0, rc = 0;
    if (call->method == CALL_POST && call->body)
        rc = target_parse_form(call->body, call->body_len, &form);
    const char *query = target_get(target, "query", &twice),
               *in_form = target_get(&form, "query", &twice_form);
    double value = 0;
    struct selector selector;
    const char *problem = rc                            ? "the form is malformed or too long"
            : twice || twice_form || (query && in_form) ? "parameter 'query' is given twice"
            : !query && !in_form                        ? "parameter 'query' is missing"
                                                        : NULL;
    query = query ? query : in_form;
    if (!problem && parse_vector(query, &value)) {
        query_result(ret, json_pack("[{s{} so}]", "metric", "value", sample(call, value)));
        return;
    }
    problem = problem ? problem : parse_selector(query, &selector);
    if (problem)
        query_error(ret, problem);
    else
        give_series(answers_old(answers, call) ? &answers->series_blind : &answers->series,
                &selector, call, ret);
}
