// SPDX-License-Identifier: Apache-2.0
// A plan, as `upgate ab PLAN.yaml` reads it. What is accepted must survive the way into the store
// and back.
#include <jansson.h>

#include "harness/plan/plan.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan *plan = NULL, *again = NULL;
    struct error err = {0};
    const char *path = fuzz_path("plan.yaml");
    fuzz_write(path, data, size);
    if (fuzz_check(plan_load(path, &plan, &err), &err))
        return 0;
    json_t *json = plan_to_json(plan), *json_again = NULL;
    fuzz_require(plan_from_json(json, &again, &err) == 0,
            "a plan that is accepted can be read back from its JSON");
    json_again = plan_to_json(again);
    fuzz_require(json_equal(json, json_again), "and says the same");
    json_decref(json);
    json_decref(json_again);
    plan_free(plan);
    plan_free(again);
    return 0;
}
