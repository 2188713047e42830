// SPDX-License-Identifier: Apache-2.0
// A rollout plan, as `upgate canary run ROLLOUT.yaml` reads it. What is accepted must survive the
// way into the store and back, and every stage of it can be foreseen.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/canary/decide/machine.h"
#include "harness/canary/plan/foresight.h"
#include "tests/fuzz/fuzz.h"

static void same_again(const struct rollout *rollout)
{
    struct rollout *again = NULL;
    struct error err = {0};
    json_t *json = rollout_to_json(rollout);
    int rc = rollout_from_json(json, &again, &err);
    if (rc)
        printf("%s\n", err.text);
    fuzz_require(rc == 0, "a rollout that is accepted can be read back from its JSON");
    json_t *json_again = rollout_to_json(again);
    char *changes = rollout_changes(json, json_again);
    fuzz_require(changes[0] == 0 && json_equal(json, json_again), "and says the same");
    free(changes);
    json_decref(json);
    json_decref(json_again);
    rollout_free(again);
}

static void holds(const struct rollout *rollout)
{
    struct machine_plan plan = machine_plan_of(rollout);
    fuzz_require(plan.count == rollout->stage_count && plan.stages[plan.count - 1].percent == 100,
            "the last stage is 100 %");
    fuzz_require(rollout->rules.alpha > 0 && rollout->rules.alpha < 1, "an error rate");
    fuzz_require(rollout->source_count > 0 && rollout->stale_ns > 0 && rollout->drain_ns >= 0,
            "sources and times");
    for (int i = 0; i < rollout->stage_count; i++) {
        double opens = rollout_opens(rollout, i);
        fuzz_require(opens >= 0 && opens <= 1 && rollout->stages[i].soak_ns > 0 &&
                        rollout->stages[i].name,
                "a stage");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rollout *rollout = NULL;
    struct error err = {0};
    const char *path = fuzz_path("rollout.yaml");
    fuzz_write(path, data, size);
    if (fuzz_check(rollout_load(path, &rollout, &err), &err) == 0) {
        same_again(rollout);
        holds(rollout);
        json_decref(foresight_to_json(rollout));
        rollout_free(rollout);
    }
    json_t *json = json_loadb((const char *)data, size, 0, NULL); // as a store has it
    if (json && fuzz_check(rollout_from_json(json, &rollout, &err), &err) == 0) {
        holds(rollout);
        rollout_free(rollout);
    }
    json_decref(json);
    return 0;
}
