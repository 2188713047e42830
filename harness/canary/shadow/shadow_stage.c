// SPDX-License-Identifier: Apache-2.0
// Between the controller and the shadow stage: users' requests in, examples into the store.
#include "harness/canary/shadow/shadow_stage.h"

#include <errno.h>
#include <inttypes.h>

enum { STAGE_POLL_MS = 10 };

int shadow_stage_begin(void *arg, const struct rollout *rollout, int number, struct store *store,
        struct error *err)
{
    struct shadow_stage *stage = arg;
    const struct shadow_opts opts = {
            .urls = {rollout->shadow_urls[CANARY_BASELINE], rollout->shadow_urls[CANARY_CANDIDATE]},
            .requests = stage->requests,
            .methods = stage->methods,
            .ignore = stage->ignore,
            .tolerance = stage->tolerance,
            .mirror = rollout->stages[number].mirror};
    if (!stage->requests)
        return error_set(err, -EINVAL,
                "the shadow stage needs recorded requests: shadow: {requests: FILE}, a JSON line {\"method\", \"path\", \"body\"} each");
    int rc = shadow_open(&opts, &stage->shadow, err);
    if (rc)
        return rc;
    stage->store = store;
    return 0;
}

static void stage_examples(struct shadow_stage *stage)
{
    struct shadow_example example;
    while (shadow_example(stage->shadow, &example)) {
        struct error err = {0};
        // An example that cannot be stored is no reason to stop: the count of wrong answers is the
        // evidence.
        if (store_exec(stage->store, &err,
                    "INSERT INTO rollout_shadow (at_ns, request, equal, distance, baseline, candidate) VALUES (?, ?, 0, ?, ?, ?)",
                    "isdss", example.at_ns, example.request, example.distance, example.baseline,
                    example.candidate))
            err.code = 0;
        shadow_example_clear(&example);
    }
}

void shadow_stage_traffic(void *arg, uint64_t requests)
{
    struct shadow_stage *stage = arg;
    if (stage->shadow)
        shadow_traffic(stage->shadow, requests);
}

bool shadow_stage_take(void *arg, int64_t *ret_at_s, struct canary_second ret_arms[CANARY_ARMS])
{
    struct shadow_stage *stage = arg;
    struct error err = {0};
    if (!stage->shadow)
        return false;
    if (shadow_poll(stage->shadow, STAGE_POLL_MS, &err))
        return false; // seconds without requests: the stage ends by its patience, and says that
                      // evidence is missing
    stage_examples(stage);
    return shadow_take(stage->shadow, ret_at_s, ret_arms);
}

void shadow_stage_end(void *arg)
{
    struct shadow_stage *stage = arg;
    struct shadow_state state;
    struct error err = {0};
    if (!stage->shadow)
        return;
    stage_examples(stage);
    shadow_look(stage->shadow, &state);
    int rc = store_note(stage->store, &err, "info",
            "shadow stage: %" PRIu64 " requests sent to both, %" PRIu64 " compared, %" PRIu64
            " differ; %" PRIu64 " not compared (the baseline failed, or a long answer), "
            "%" PRIu64 " not sent (both arms busy); numbers may be %.2g apart%s%s",
            state.pairs, state.compared, state.different, state.unanswered, state.behind,
            state.limit, *state.ignored ? "; the baseline itself answers differently in " : "",
            state.ignored);
    if (rc)
        err.code = 0; // the counts are in the seconds
    shadow_close(stage->shadow);
    stage->shadow = NULL;
}
