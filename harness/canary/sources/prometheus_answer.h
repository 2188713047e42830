// SPDX-License-Identifier: Apache-2.0
// The answer of Prometheus's /api/v1/query, and the form that asks. Foreign bytes.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_PROMETHEUS_ANSWER_H
#define UPGATE_HARNESS_CANARY_SOURCES_PROMETHEUS_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

enum { PROMETHEUS_SAMPLES_MAX = 4096 };

struct prometheus_answer {
    double at_s; // the moment that was asked about, by Prometheus's clock; NaN: no sample tells
    struct prometheus_sample {
        char *labels; // as JSON, in order of name: equal for the same series
        bool bare;    // no label but `le`: a sum of series
        double le;    // of a bucket; +INFINITY for the last; NaN: it is none
        double value; // finite, not negative
    } * samples;
    int count;
    uint64_t dropped;  // NaN, infinite, negative, or not a number
    char warning[160]; // of Prometheus; ""
};

// status: of HTTP. -EBADMSG for what is no such answer, -EINVAL for a query that was refused or
// that is no instant one, -EIO for a server that cannot answer now, all in words.
int prometheus_parse(
        long status, const char *body, struct prometheus_answer *ret, struct error *err);
void prometheus_answer_free(struct prometheus_answer *answer);

// "query=…&timeout=…"; the caller frees it
char *prometheus_form(const char *query, int64_t timeout_ns);

#endif
