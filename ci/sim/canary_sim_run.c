// SPDX-License-Identifier: Apache-2.0
// One rollout after the other through the evidence, in as many processes as asked for.
#include "ci/sim/canary_sim_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ci/sim/canary_sim_judges.h"
#include "reports/analyse/canary/recent.h"

enum { RUN_KAYENTA_OFTEN_MIN = 10, RUN_FIXED_COUNT = 5, RUN_FIXED_LIMIT = 3 };

void *run_shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("canary_sim: cannot map memory");
        exit(4);
    }
    return memory;
}

void run_forked(int count, int jobs, void (*fn)(void *context, int i), void *context)
{
    fflush(NULL);
    for (int job = 0; job < jobs; job++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("canary_sim: cannot fork");
            exit(4);
        }
        if (pid)
            continue;
        for (int i = job; i < count; i += jobs)
            fn(context, i);
        _exit(0);
    }
    for (int job = 0; job < jobs; job++) {
        int status;
        if (wait(&status) < 0 || status) {
            fputs("canary_sim: a process of it has failed\n", stderr);
            exit(4);
        }
    }
}

static double run_truth(const struct run_plan *plan, enum canary_metric metric)
{
    return metric == CANARY_ERROR_RATE ? plan->fault.errors : plan->fault.latency;
}

static void run_look(const struct run_plan *plan, const struct canary_evidence *evidence, int stage,
        double at_s, struct run_result *result)
{
    struct canary_cell cells[CANARY_METRICS];
    int count;
    bool pass = true;
    canary_evidence_cells(evidence, cells, &count);
    for (int i = 0; i < count; i++) {
        enum canary_metric metric = cells[i].metric;
        double truth = run_truth(plan, metric);
        if (plan->rules.metrics[metric].gated)
            pass &= cells[i].verdict == CANARY_PASS;
        if (plan->stages[stage].aa || metric == CANARY_WRONG_ANSWERS)
            continue;
        result->missed_low[metric] |= cells[i].low > truth;
        result->missed_high[metric] |= cells[i].high < truth;
    }
    if (pass && !(result->pass_s[stage] > 0))
        result->pass_s[stage] = at_s;
}

static void run_judges(struct judge_minutes *minutes, const struct canary_second *arms, int *fixed,
        double at_s, double late_s, struct run_result *result)
{
    if (!judge_add(minutes, arms))
        return;
    if (minutes->minutes <= RUN_FIXED_COUNT && judge_fixed_fails(minutes)) {
        ++*fixed;
        if (!(result->fixed_s > 0))
            result->fixed_s = at_s;
        if (*fixed > RUN_FIXED_LIMIT && !(result->fixed_patient_s > 0))
            result->fixed_patient_s = at_s;
    }
    if (judge_fixed_fails(minutes) && at_s > late_s && !(result->fixed_always_s > 0))
        result->fixed_always_s = at_s;
    bool often = minutes->minutes % RUN_KAYENTA_OFTEN_MIN == 0 && at_s > late_s &&
            !(result->kayenta_often_s > 0);
    if (!often && minutes->minutes != JUDGE_MINUTES)
        return;
    if (!judge_kayenta_fails(minutes))
        return;
    if (often)
        result->kayenta_often_s = at_s;
    if (minutes->minutes == JUDGE_MINUTES)
        result->kayenta_s = at_s;
}

static void run_one(const struct run_plan *plan, uint64_t seed, struct run_result *result)
{
    struct stream *stream = malloc(sizeof *stream);
    struct judge_minutes *minutes = calloc(1, sizeof *minutes);
    struct canary_second arms[CANARY_ARMS];
    struct canary_evidence *evidence = canary_evidence_new(&plan->rules);
    double clock_s = 0;
    int fixed = 0;
    if (!stream || !minutes)
        _exit(4);
    *result = (struct run_result){.failed_stage = -1, .failed_metric = -1};
    stream_start_odd(stream, &plan->world, &plan->fault, &plan->odd, seed);
    for (int i = 0; i < plan->count; i++) {
        const struct run_stage *stage = &plan->stages[i];
        bool judges = plan->judges && i == plan->count - 1;
        double requests = 0;
        if (result->failed_stage >= 0 && !judges)
            break;
        canary_evidence_stage(evidence, i, stage->aa);
        canary_evidence_opens(evidence, stage->opens, 0);
        struct canary_recent recent = {0};
        struct canary_recent_look look = {0};
        canary_recent_add(&recent, &look);
        for (double at_s = 1; at_s <= stage->seconds; at_s++, clock_s++) {
            bool good = i < plan->count - 1 ? plan->good_before : at_s <= plan->late_s;
            stream_second_of(stream,
                    stage->aa      ? STREAM_AA
                            : good ? STREAM_GOOD
                                   : STREAM_BAD,
                    clock_s, at_s - 1, stage->share, arms);
            requests += (double)(arms[0].requests + arms[1].requests);
            if (judges)
                run_judges(minutes, arms, &fixed, at_s, plan->late_s, result);
            if (result->failed_stage >= 0)
                continue;
            canary_evidence_add(evidence, arms);
            if (plan->cells_s > 0 && fmod(at_s, plan->cells_s) == 0)
                run_look(plan, evidence, i, at_s, result);
            int failed = canary_evidence_failed(evidence); // the look: once a second
            look.at_ns += 1000000000;
            look.requests += arms[CANARY_CANDIDATE].requests;
            look.errors += arms[CANARY_CANDIDATE].errors;
            canary_recent_add(&recent, &look);
            bool tripped = !stage->aa &&
                    canary_recent_errors(&recent, NAN) > plan->rules.tripwire_error_rate;
            if (failed < 0 && !tripped)
                continue;
            result->failed_stage = i;
            result->failed_metric = failed;
            result->failed_s = at_s;
            result->failed_requests = requests;
            if (!judges)
                break;
        }
    }
    canary_evidence_free(evidence);
    free(minutes);
    free(stream);
}

struct run_context {
    const struct run_plan *plan;
    struct run_result *results;
    uint64_t seed;
};

static void run_forked_one(void *context, int i)
{
    struct run_context *run = context;
    run_one(run->plan, run->seed + (uint64_t)i, &run->results[i]);
}

struct run_result *run_many(const struct run_plan *plan, int count, uint64_t seed, int jobs)
{
    struct run_result *results = run_shared((size_t)count * sizeof *results);
    struct run_context context = {plan, results, seed};
    run_forked(count, jobs, run_forked_one, &context);
    return results;
}

void run_free(struct run_result *results, int count)
{
    munmap(results, (size_t)count * sizeof *results);
}
