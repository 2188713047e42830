// SPDX-License-Identifier: Apache-2.0
// The preflight: verdicts of stores, memory, checks that fail, hang or end by a signal, a nvidia-smi of its own.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/canary/preflight.h"
#include "tests/unit/runner.h"
#include "tracer/store/store.h"

static char path[64];

static void verdict(const char *state, const char *word)
{
    struct store *store = NULL;
    struct error err = {0};
    snprintf(path, sizeof path, "/tmp/test_preflight_%d.db", (int)getpid());
    unlink(path);
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    CHECK_INT(store_exec(store, &err, "INSERT INTO run VALUES (1,'u','ab',?,'0',0,NULL,7,'{}',NULL,'[]','{}','k',NULL,NULL)", "s", state), 0);
    if (word)
        CHECK_INT(store_exec(store, &err, "INSERT INTO verdict VALUES (1, ?, 'p99 is 9 % slower', NULL, '{}', 1, 1, '', 1)", "s", word), 0);
    store_close(store);
}

TEST(the_offline_gate)
{
    static const struct {
        const char *state, *word, *says;
        int code;
    } cases[] = {{"done", "pass", "", 0},
                 {"done", "fail", "says fail: p99 is 9 % slower", 3},
                 {"done", "inconclusive", "says inconclusive", 3},
                 {"running", "pass", "is running, not done", 3},
                 {"done", NULL, "no verdict yet", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct preflight result = {0};
        verdict(cases[i].state, cases[i].word);
        CHECK_INT(preflight_gate(path, &result), cases[i].code);
        CHECK_INT(result.exit_code, cases[i].code);
        CHECK_CONTAINS(result.reason, cases[i].says);
        preflight_clear(&result);
    }
    struct preflight result = {0};
    preflight_differences(path, &result); // told, and no reason to stop
    CHECK_INT(result.exit_code, 0);
    CHECK_CONTAINS(result.notes, "no fingerprints");
    preflight_clear(&result);
    unlink(path);
    CHECK_INT(preflight_gate(path, &result), 4);
}

TEST(memory)
{
    struct preflight result = {0};
    CHECK_INT(preflight_memory("", 1, &result), 0);
    CHECK_INT(preflight_memory("", 1e18, &result), 4);
    CHECK_CONTAINS(result.reason, "two warm stacks need");
    struct preflight lost = {0};
    CHECK_INT(preflight_memory("/no/such", 1, &lost), 4);
}

TEST(checks)
{
    volatile sig_atomic_t stop = 0;
    struct preflight result = {0};
    CHECK_INT(preflight_check("true", 5000000000, &stop, &result), 0);
    CHECK_INT(preflight_check("exit 7", 5000000000000, &stop, &result), 3);
    CHECK_CONTAINS(result.reason, "the check 'exit 7' ended with 7");
    struct preflight ended = {0};
    CHECK_INT(preflight_check("kill -9 $$", 5000000000000, &stop, &ended), 3);
    CHECK_CONTAINS(ended.reason, "signal 9");
    struct preflight hung = {0};
    CHECK_INT(preflight_check("sleep 1000 & wait", 1000000, &stop, &hung), 4);
    CHECK_CONTAINS(hung.reason, "did not end within");
    stop = 1;
    struct preflight stopped = {0};
    CHECK_INT(preflight_check("sleep 1000", 5000000000000, &stop, &stopped), 3);
    CHECK_CONTAINS(stopped.reason, "by a signal");
}

static void smi(const char *script)
{
    snprintf(path, sizeof path, "/tmp/test_smi_%d", (int)getpid());
    FILE *file = fopen(path, "w");
    fprintf(file, "#!/bin/sh\n%s\n", script);
    fclose(file);
    chmod(path, 0755);
}

TEST(gpus)
{
    static const struct {
        const char *script, *says;
        int code;
    } cases[] = {{"echo '0, [N/A], Not Active, Not Active'; echo '1, 0, Not Active, Not Active'", "", 0},
                 {"echo '0, 0, Not Active, Not Active'; echo '1, 3, Not Active, Not Active'", "GPU 1 has had 3 uncorrected", 4},
                 {"echo '0, 0, Active, Not Active'", "GPU 0 is slowed down now (hardware)", 4},
                 {"echo '0, 0, Not Active, Active'", "GPU 0 is slowed down now (temperature)", 4},
                 {"echo 'Unable to determine the device handle'; exit 9", "fails or does not answer", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct preflight result = {0};
        smi(cases[i].script);
        // The kernel's log of the machine may have errors of its own; what is checked is what nvidia-smi says.
        int code = preflight_gpu(path, &result);
        if (!strstr(result.reason, "within the last hour")) {
            CHECK_INT(code, cases[i].code);
            CHECK_CONTAINS(result.reason, cases[i].says);
        }
        CHECK(true);
    }
    struct preflight none = {0};
    CHECK_INT(preflight_gpu("/no/such/nvidia-smi", &none), 0); // nothing to look at
    unlink(path);
}

TEST(devices_where_there_are_none)
{
    struct preflight result = {0};
    char dir[] = "/tmp/test_devices_XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    CHECK_INT(preflight_devices(dir, (uint64_t)getpid(), NULL, "candidate", &result), 0);
    CHECK(!result.notes);
    // A device, and a cgroup that cannot be found: said, and no reason to stop.
    char *command = xasprintf("mkdir -p %s/dev && touch %s/dev/nvidiactl", dir, dir);
    CHECK_INT(system(command), 0);
    free(command);
    CHECK_INT(preflight_devices(dir, (uint64_t)getpid(), NULL, "candidate", &result), 0);
    CHECK_CONTAINS(result.notes, "could not be tried");
    preflight_clear(&result);
    command = xasprintf("rm -r %s", dir);
    CHECK_INT(system(command), 0);
    free(command);
}
