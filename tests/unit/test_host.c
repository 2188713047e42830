// SPDX-License-Identifier: Apache-2.0
// What identifies the machine, and what differs between two.
#include "harness/contain/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/runner.h"

static json_t *machine(const char *kernel, const char *cpus)
{
    return json_pack("{s:s,s:s,s:s?,s:s,s:s}", "machine_id", "m1", "hostname", "h1", "kernel",
            kernel, "cpu_model", "c1", "cpus_used", cpus);
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

static void key_with_gpu(
        const char *driver, const char *uuid, int mig, const char *visible, const char *wanted)
{
    json_t *host = machine("6.1.0", "0-2");
    json_t *gpu = driver
            ? json_pack("{s:s,s:[{s:s,s:s?,s:b,s:i}]}", "driver", driver, "devices", "name", "H100",
                      "uuid", uuid, "mig", mig, "power_limit_mw", 700000)
            : json_null();
    host_set_gpu(host, gpu, visible);
    char *key = host_key(host);
    CHECK_STR(key, wanted);
    free(key);
    json_decref(gpu);
    json_decref(host);
}

// What one GPU shows says nothing of another; where there is none the key is as ever.
TEST(the_key_of_a_machine_with_gpus)
{
    key_with_gpu("550.54", "GPU-1", 0, NULL, "m1|h1|6.1.0|c1|0-2|driver 550.54, H100 GPU-1");
    key_with_gpu("560.35", "GPU-2", 0, NULL, "m1|h1|6.1.0|c1|0-2|driver 560.35, H100 GPU-2");
    key_with_gpu("550.54", "GPU-1", 1, "MIG-7",
            "m1|h1|6.1.0|c1|0-2|driver 550.54, H100 GPU-1 in slices, visible: MIG-7");
    key_with_gpu("550.54", NULL, 0, "1", "m1|h1|6.1.0|c1|0-2|driver 550.54, H100 , visible: 1");
    key_with_gpu(NULL, NULL, 0, "1", "m1|h1|6.1.0|c1|0-2");
}

TEST(what_differs_between_two_machines)
{
    static const struct {
        const char *kernel, *cpus, *says;
    } cases[] = {{"6.1.0", "0-2", NULL}, {NULL, "0-2", NULL}, // not told
            {"6.8.1", "0-2", "kernel 6.8.1, was 6.1.0"}, {"6.1.0", "0", NULL}};
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

// How many are left of all where the file has this list, and which of the first ten.
static int left_of(const char *path, const char *list, const char *want)
{
    char has[11] = "";
    cpu_set_t cpus;
    FILE *file = list ? fopen(path, "w") : NULL;
    CHECK(!list || (file && fputs(list, file) >= 0 && fclose(file) == 0));
    memset(&cpus, 0xff, sizeof cpus);
    host_take_cpus(path, &cpus);
    for (int cpu = 0; cpu < 10; cpu++)
        has[cpu] = CPU_ISSET(cpu, &cpus) ? 'x' : '.';
    CHECK_STR(has, want);
    return CPU_COUNT(&cpus);
}

TEST(isolated_cpus_are_taken_away)
{
    static char dir[] = "/tmp/upgate-host-XXXXXX";
    char path[64];
    CHECK(runner_directory(dir) != NULL);
    snprintf(path, sizeof path, "%s/isolated", dir);
    CHECK_INT(left_of(path, NULL, "xxxxxxxxxx"), CPU_SETSIZE); // a kernel that does not tell
    CHECK_INT(left_of(path, "\n", "xxxxxxxxxx"), CPU_SETSIZE);
    CHECK_INT(left_of(path, "2-5,8\n", "xx....xx.x"), CPU_SETSIZE - 5);
    CHECK_INT(left_of(path, "no list\n", "xxxxxxxxxx"), CPU_SETSIZE);
}
