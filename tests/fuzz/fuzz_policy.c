// SPDX-License-Identifier: Apache-2.0
// A policy, as `upgate gate --policy POLICY.yaml` reads it, and a plan as JSON, as it does from a
// store.
#include <jansson.h>

#include "harness/plan/plan.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan_gate gate = {0};
    struct plan *plan = NULL;
    struct error err = {0};
    const char *path = fuzz_path("policy.yaml");
    fuzz_write(path, data, size);
    if (fuzz_check(plan_load_gate(path, &gate, &err), &err) == 0) {
        fuzz_require(gate.alpha > 0 && gate.alpha < 1, "an error rate");
        json_decref(plan_gate_to_json(&gate));
    }
    json_t *json = json_loadb((const char *)data, size, 0, NULL);
    if (json && fuzz_check(plan_from_json(json, &plan, &err), &err) == 0)
        plan_free(plan);
    json_decref(json);
    return 0;
}
