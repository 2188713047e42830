// SPDX-License-Identifier: Apache-2.0
// Prometheus's JSON.
#include "harness/canary/sources/prometheus_answer.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"

// "1.5", "+Inf", "NaN": all that Prometheus writes.
static double prometheus_number(const json_t *json)
{
    const char *text = json_string_value(json);
    char *end;
    if (!text || !*text || isspace((unsigned char)*text))
        return NAN;
    double value = strtod(text, &end);
    return *end ? NAN : value;
}

// value: [moment, "number"]. metric: NULL for a scalar.
static void prometheus_sample(struct prometheus_answer *answer, json_t *metric, const json_t *value)
{
    const json_t *at = json_array_get(value, 0);
    double number = prometheus_number(json_array_get(value, 1));
    if (!json_is_number(at) || !isfinite(number) || number < 0) {
        answer->dropped++;
        return;
    }
    const json_t *le = json_object_get(metric, "le");
    char *labels = metric ? json_dumps(metric, JSON_COMPACT | JSON_SORT_KEYS) : xstrdup("{}");
    if (!labels) {
        answer->dropped++;
        return;
    }
    answer->at_s = json_number_value(at);
    vector_push(answer->samples, answer->count,
            (struct prometheus_sample){.labels = labels,
                    .bare = json_object_size(metric) == (le ? 1 : 0),
                    .le = le ? prometheus_number(le) : NAN,
                    .value = number});
}

static int prometheus_vector(struct prometheus_answer *answer, json_t *result, struct error *err)
{
    size_t i;
    json_t *item;
    if (!json_is_array(result))
        return error_set(err, -EBADMSG, "the answer of Prometheus has no result");
    if (json_array_size(result) > PROMETHEUS_SAMPLES_MAX)
        return error_set(err, -EINVAL, "the query gives %zu series, more than %d; sum them",
                json_array_size(result), PROMETHEUS_SAMPLES_MAX);
    json_array_foreach(result, i, item)
    {
        json_t *metric = json_object_get(item, "metric");
        if (json_is_object(metric))
            prometheus_sample(answer, metric, json_object_get(item, "value"));
        else
            answer->dropped++;
    }
    return 0;
}

static void prometheus_words(char *ret, size_t size, const char *words)
{
    snprintf(ret, size, "%s", words ? words : "");
    string_make_plain(ret, strlen(ret));
}

static int prometheus_refused(long status, json_t *root, struct error *err)
{
    char words[300];
    const char *text = json_string_value(json_object_get(root, "error"));
    prometheus_words(words, sizeof words, text);
    // 400: not a query; 422: cannot be carried out. 503, 5xx and others: not now.
    bool query = status == 400 || status == 422;
    return error_set(err, query ? -EINVAL : -EIO, "Prometheus answers %ld%s%s", status,
            words[0] ? ": " : "", words);
}

static int prometheus_read(json_t *root, struct prometheus_answer *answer, struct error *err)
{
    json_t *data = json_object_get(root, "data"), *result = json_object_get(data, "result");
    const char *type = json_string_value(json_object_get(data, "resultType"));
    if (!type)
        return error_set(err, -EBADMSG, "the answer of Prometheus has no resultType");
    prometheus_words(answer->warning, sizeof answer->warning,
            json_string_value(json_array_get(json_object_get(root, "warnings"), 0)));
    if (strcmp(type, "vector") == 0)
        return prometheus_vector(answer, result, err);
    if (strcmp(type, "scalar") == 0) {
        prometheus_sample(answer, NULL, result);
        return 0;
    }
    char words[40];
    prometheus_words(words, sizeof words, type);
    return error_set(err, -EINVAL,
            "the query gives a %s; one that gives an instant vector is wanted", words);
}

int prometheus_parse(
        long status, const char *body, struct prometheus_answer *ret, struct error *err)
{
    json_error_t bad;
    struct prometheus_answer answer = {.at_s = NAN};
    json_t *root = json_loads(body, JSON_REJECT_DUPLICATES, &bad);
    const char *said = json_string_value(json_object_get(root, "status"));
    int rc;
    if (status < 200 || status > 299 || (said && strcmp(said, "success") != 0))
        rc = prometheus_refused(status, root, err);
    else if (!root)
        rc = error_set(err, -EBADMSG, "the answer is not Prometheus's: %s", bad.text);
    else
        rc = prometheus_read(root, &answer, err);
    json_decref(root);
    if (rc)
        prometheus_answer_free(&answer);
    else
        *ret = answer;
    return rc;
}

void prometheus_answer_free(struct prometheus_answer *answer)
{
    for (int i = 0; i < answer->count; i++)
        free(answer->samples[i].labels);
    free(answer->samples);
    *answer = (struct prometheus_answer){.at_s = NAN};
}

char *prometheus_form(const char *query, int64_t timeout_ns)
{
    struct strbuf form = {0};
    strbuf_add(&form, "query=");
    for (const char *at = query; *at; at++) {
        unsigned char c = (unsigned char)*at;
        if (isalnum(c) && c < 128)
            strbuf_add_bytes(&form, at, 1);
        else
            strbuf_add(&form, "%%%02X", c);
    }
    strbuf_add(&form, "&timeout=%lldms", (long long)(timeout_ns / 1000000));
    return strbuf_take(&form);
}
