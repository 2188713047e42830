// SPDX-License-Identifier: Apache-2.0
// Are the two sides one and the same? A gate whose candidate was never installed passes for ever.
// Reads the plan and table side; adds a finding.
#include <jansson.h>

#include "harness/gate/run_facts.h"

// By what the processes said of themselves. Python only: of other programs there is nothing like a
// list of packages.
static bool sides_have_the_same_packages(struct store *store)
{
    int64_t same = 0;
    store_get_int(store, &same, NULL,
            "SELECT CASE WHEN json_valid(a.fingerprint) AND json_valid(b.fingerprint) THEN "
            "json_extract(a.fingerprint, '$.python.packages') = json_extract(b.fingerprint, '$.python.packages') AND "
            "json_extract(a.fingerprint, '$.python.packages') <> '{}' AND "
            "json_extract(a.fingerprint, '$.components') = json_extract(b.fingerprint, '$.components') END "
            "FROM side a JOIN side b ON a.id = 0 AND b.id = 1",
            "");
    return same == 1;
}

void run_facts_find_same(struct store *store, struct run_facts *run)
{
    if (run->aa)
        return;
    json_t *plan = plan_to_json(run->plan);
    json_t *a = json_object_get(plan, "baseline"), *b = json_object_get(plan, "candidate");
    json_object_del(a, "name");
    json_object_del(b, "name");
    bool equal = json_equal(a, b);
    json_object_del(a, "python");
    json_object_del(b, "python");
    bool elsewhere = !equal && json_equal(a, b);
    json_decref(plan);
    if (equal)
        findings_add(&run->findings, NULL, "same", -1, FINDING_NOTE,
                "both sides of the plan are the same but for their names: nothing was upgraded");
    else if (elsewhere && sides_have_the_same_packages(store))
        findings_add(&run->findings, NULL, "same", -1, FINDING_NOTE,
                "the sides differ in no setting and in no version of a package, but in where their interpreters are: was anything upgraded?");
}
