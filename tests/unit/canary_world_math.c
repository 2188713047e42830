// SPDX-License-Identifier: Apache-2.0
// Takes the place of reports/analyse/canary in tests of the controller: decisions that can be told in advance.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/canary/evidence.h"

enum { WORLD_PASS_REQUESTS = 100, WORLD_FAIL_ERRORS = 50, WORLD_RECENT = 10 };

static const char *const world_names[CANARY_METRICS] = {"error_rate", "wrong_answers", "latency_p50", "latency_p99", "latency_mean"};

const char *canary_metric_name(enum canary_metric metric)
{
    return world_names[metric];
}

int canary_metric_by_name(const char *name)
{
    for (int i = 0; i < CANARY_METRICS; i++)
        if (strcmp(world_names[i], name) == 0)
            return i;
    return -1;
}

int canary_bin(double latency_s)
{
    return latency_s > 1e-6 ? (int)fmin(log(latency_s / 1e-6) / log(1.02), CANARY_BINS - 1) : 0;
}

double canary_bin_low_s(int bin)
{
    return 1e-6 * pow(1.02, bin);
}

double canary_quantile(const struct canary_second *second, double q)
{
    (void)second;
    (void)q;
    return NAN;
}

void canary_second_add(struct canary_second *sum, const struct canary_second *more)
{
    sum->requests += more->requests;
    sum->errors += more->errors;
    sum->truncated += more->truncated;
    sum->wrong += more->wrong;
    for (int i = 0; i < CANARY_BINS; i++)
        sum->bins[i] += more->bins[i];
}

// Pairs (bin, count) of three bytes and four.
size_t canary_pack(const uint32_t bins[CANARY_BINS], uint8_t ret[CANARY_PACKED_MAX])
{
    size_t size = 0;
    for (int i = 0; i < CANARY_BINS; i++) {
        if (!bins[i])
            continue;
        uint16_t bin = (uint16_t)i;
        memcpy(ret + size, &bin, 2);
        memcpy(ret + size + 2, &bins[i], 4);
        size += 6;
    }
    return size;
}

int canary_unpack(const uint8_t *bytes, size_t size, uint32_t bins[CANARY_BINS])
{
    memset(bins, 0, CANARY_BINS * sizeof *bins);
    for (size_t at = 0; at < size; at += 6) {
        uint16_t bin;
        if (size - at < 6)
            return -EBADMSG;
        memcpy(&bin, bytes + at, 2);
        if (bin >= CANARY_BINS)
            return -EBADMSG;
        memcpy(&bins[bin], bytes + at + 2, 4);
    }
    return 0;
}

struct canary_evidence {
    struct canary_rules rules;
    int stage;
    bool learns;
    struct canary_second sum[CANARY_ARMS];
    struct canary_second recent[WORLD_RECENT];
    int seconds;
    double opens;
    uint64_t lost;
};

struct canary_evidence *canary_evidence_new(const struct canary_rules *rules)
{
    struct canary_evidence *evidence = calloc(1, sizeof *evidence);
    evidence->rules = *rules;
    return evidence;
}

void canary_evidence_free(struct canary_evidence *evidence)
{
    free(evidence);
}

void canary_evidence_stage(struct canary_evidence *evidence, int stage, bool learns)
{
    evidence->stage = stage;
    evidence->learns = learns;
    memset(evidence->sum, 0, sizeof evidence->sum);
    evidence->lost = 0;
}

void canary_evidence_lost(struct canary_evidence *evidence, uint64_t requests)
{
    evidence->lost = requests;
}

void canary_evidence_opens(struct canary_evidence *evidence, double share, uint64_t requests)
{
    (void)requests;
    evidence->opens = share;
}

bool canary_evidence_add(struct canary_evidence *evidence, const struct canary_second arms[CANARY_ARMS])
{
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        canary_second_add(&evidence->sum[arm], &arms[arm]);
    evidence->recent[evidence->seconds++ % WORLD_RECENT] = arms[CANARY_CANDIDATE];
    return true;
}

void canary_evidence_cells(const struct canary_evidence *evidence, struct canary_cell ret_cells[CANARY_METRICS], int *ret_count)
{
    const struct canary_second *candidate = &evidence->sum[CANARY_CANDIDATE];
    *ret_count = 0;
    for (int i = 0; i < CANARY_METRICS; i++) {
        const struct canary_rule *rule = &evidence->rules.metrics[i];
        if (!rule->gated && !rule->observed)
            continue;
        bool limited = !isnan(rule->limit);
        bool fails = limited ? (double)candidate->wrong > rule->limit : candidate->errors >= WORLD_FAIL_ERRORS;
        bool passes = candidate->requests >= WORLD_PASS_REQUESTS;
        bool worst = limited ? (double)(candidate->wrong + evidence->lost) > rule->limit : candidate->errors + evidence->lost >= WORLD_FAIL_ERRORS;
        ret_cells[(*ret_count)++] = (struct canary_cell){.metric = (enum canary_metric)i,
                                                         .stage = evidence->stage,
                                                         .value = limited ? (double)candidate->wrong : 1,
                                                         .low = NAN,
                                                         .high = 1.01,
                                                         .threshold = limited ? rule->limit : 1 + rule->margin,
                                                         .pass_below = limited ? rule->limit : 1 + rule->margin / evidence->opens,
                                                         .needed = 6,
                                                         .dispersion = 1,
                                                         .requests = candidate->requests,
                                                         .requests_missing = passes ? 0 : WORLD_PASS_REQUESTS - candidate->requests,
                                                         .verdict = fails    ? CANARY_FAIL
                                                                    : passes && !worst ? CANARY_PASS
                                                                                       : CANARY_UNDECIDED,
                                                         .withheld = passes && worst && !fails ? evidence->lost : 0};
    }
}

double canary_evidence_recent_errors(const struct canary_evidence *evidence)
{
    uint64_t requests = 0, errors = 0;
    for (int i = 0; i < WORLD_RECENT && i < evidence->seconds; i++) {
        requests += evidence->recent[i].requests;
        errors += evidence->recent[i].errors;
    }
    return requests >= 10 ? (double)errors / (double)requests : NAN;
}

struct canary_foresight canary_foresee(const struct canary_rules *rules, enum canary_metric metric, double share, double soak_s,
                                       const struct canary_traffic *traffic)
{
    (void)rules;
    (void)metric;
    double requests = traffic->requests_per_s * share * soak_s;
    return (struct canary_foresight){.requests = (uint64_t)requests,
                                     .seen_ratio = requests > 1000 ? 1.5 : INFINITY,
                                     .pass_s = requests > 0 ? WORLD_PASS_REQUESTS / (traffic->requests_per_s * share) : INFINITY,
                                     .zero_error_bound = requests > 5 ? 4.6 / requests : 1};
}
