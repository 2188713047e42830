// SPDX-License-Identifier: Apache-2.0
// What identifies the machine, and what differs between two.
#include "harness/contain/host.h"

#include <stdlib.h>

#include "tests/unit/runner.h"

static json_t *machine(const char *kernel, const char *cpus)
{
    return json_pack("{s:s,s:s,s:s?,s:s,s:s}", "machine_id", "m1", "hostname", "h1", "kernel", kernel, "cpu_model", "c1", "cpus_used", cpus);
}

TEST(the_key_of_a_machine)
{
    json_t *host = machine("6.1.0", "0-2");
    char *key = host_key(host);
    CHECK_STR(key, "m1|h1|6.1.0|c1|0-2");
    free(key);
    json_object_set_new(host, "nodes", json_integer(2));
    key = host_key(host);
    CHECK_STR(key, "m1|h1|6.1.0|c1|0-2|2 nodes");
    free(key);
    json_decref(host);
}

TEST(what_differs_between_two_machines)
{
    static const struct {
        const char *kernel, *cpus, *says;
    } cases[] = {{"6.1.0", "0-2", NULL},
                 {NULL, "0-2", NULL}, // not told
                 {"6.8.1", "0-2", "kernel 6.8.1, was 6.1.0"},
                 {"6.1.0", "0", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *before = machine("6.1.0", "0-2"), *now = machine(cases[i].kernel, cases[i].cpus);
        char *text = host_changes(before, now);
        if (cases[i].says)
            CHECK_STR(text, cases[i].says);
        else
            CHECK(!text);
        free(text);
        json_decref(before);
        json_decref(now);
    }
    json_t *here = host_describe("0");
    CHECK(!host_changes(here, here));
    json_decref(here);
}
