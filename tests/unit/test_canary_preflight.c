// SPDX-License-Identifier: Apache-2.0
// The preflight: verdicts of stores, memory, checks that fail, hang or end by a signal, a
// nvidia-smi of its own.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/canary/preflight/preflight.h"
#include "tests/unit/runner.h"
#include "tracer/store/store.h"

static char path[64];

static void verdict(const char *kind, const char *state, const char *word)
{
    struct store *store = NULL;
    struct error err = {0};
    snprintf(path, sizeof path, "/tmp/test_preflight_%d.db", (int)getpid());
    unlink(path);
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    CHECK_INT(
            store_exec(store, &err,
                    "INSERT INTO run VALUES (1,'u',?,?,'0',0,NULL,7,'{}',NULL,'[]','{}','k',NULL,NULL)",
                    "ss", kind, state),
            0);
    if (word)
        CHECK_INT(
                store_exec(store, &err,
                        "INSERT INTO verdict VALUES (1, ?, 'p99 is 9 % slower', NULL, '{}', 1, 1, '', 1)",
                        "s", word),
                0);
    store_close(store);
}

TEST(the_offline_gate)
{
    static const struct {
        const char *kind, *state, *word, *says;
        int code;
    } cases[] = {{"ab", "done", "pass", "", 0},
            {"ab", "done", "fail", "says fail: p99 is 9 % slower", 3},
            {"ab", "done", "inconclusive", "says inconclusive", 3},
            {"ab", "running", "pass", "is running, not done", 3},
            {"aa", "done", "pass", "is an A/A run, which judges no candidate", 3},
            {"record", "done", "pass", "holds no run of `upgate ab`", 3},
            {"ab", "done", NULL, "no verdict yet", 3}}; // the last one is used below
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct preflight result = {0};
        verdict(cases[i].kind, cases[i].state, cases[i].word);
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
    CHECK_INT(preflight_check("true", 5000000000000, &stop, &result), 0);
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

// What nvidia-smi's manual and its users have seen it write.
TEST(gpus)
{
    static const struct {
        const char *script, *says, *notes;
        int code;
    } cases[] = {{"echo '0, 0, Not Active, Not Active'", "", "", 0},
            {"echo '0, 0, Not Active, Not Active'; echo '1, 0, Not Active, Not Active'; echo '10, 0, Not Active, Not Active'",
                    "", "", 0},
            // a GPU without ECC
            {"echo '0, [N/A], Not Active, Not Active'; echo '1, 0, Not Active, Not Active'", "", "",
                    0},
            {"echo '0, N/A, Not Active, Not Active'", "", "", 0},
            {"echo '0, [Not Supported], Not Active, Not Active'", "", "", 0}, // drivers before 2021
            {"printf '0, 0, Not Active, Not Active\\r\\n'", "", "", 0},
            // MIG, a vGPU
            {"echo '0, [N/A], [N/A], [N/A]'; echo '1, 0, Not Active, Not Active'", "",
                    "GPU 0 tells neither", 0},
            {"echo '0, [Insufficient Permissions], Not Active, Not Active'", "",
                    "GPU 0 does not tell its memory errors: '[Insufficient Permissions]'", 0},
            {"echo '0, 0, [Insufficient Permissions], Not Active'", "",
                    "GPU 0 does not tell its slowdown by hardware", 0},
            {"echo '0, 0, Perhaps, Not Active'", "",
                    "'Perhaps' for slowdown by hardware is not understood", 0},
            {"echo '0, -1, Not Active, Not Active'", "", "'-1' for memory errors is not understood",
                    0},
            {"true", "", "nvidia-smi lists no GPU", 0},
            {"echo '0, 0, Not Active, Not Active'; echo '1, 3, Not Active, Not Active'",
                    "GPU 1 has had 3 uncorrected", "", 4},
            {"echo '0, 00000000000000000000000000003, Not Active, Not Active'", "uncorrected", "",
                    4},
            {"echo '0, 0, Active, Not Active'", "GPU 0 is slowed down now (hardware)", "", 4},
            {"echo '0, 0, Not Active, Active'", "GPU 0 is slowed down now (temperature)", "", 4},
            {"echo '0, [N/A], Not Active, Active'", "GPU 0 is slowed down now (temperature)", "",
                    4},
            {"echo '0, ERR!, Not Active, Not Active'",
                    "GPU 0 answers 'ERR!' for memory errors: it needs a reset", "", 4},
            {"echo '0, 0, Not Active, Not Active'; echo '3, [Unknown Error], Not Active, Not Active'",
                    "GPU 3 answers '[Unknown Error]'", "", 4},
            {"echo '0, [GPU requires reset], [GPU requires reset], [GPU requires reset]'",
                    "GPU 0 answers '[GPU requires reset]'", "", 4},
            {"echo '0, 0, [GPU is lost], Not Active'",
                    "GPU 0 answers '[GPU is lost]' for slowdown by hardware", "", 4},
            {"echo '0, 0, Not Active, Not Active'; echo 'Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error'",
                    "nvidia-smi says: Unable to determine the device handle for GPU0000:3B:00.0",
                    "", 4},
            {"echo '0, 0, Not Active'", "nvidia-smi says: 0, 0, Not Active", "", 4},
            {"echo 'No devices were found'; exit 6", "it ended with 6: No devices were found", "",
                    4},
            {"echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\"; exit 9",
                    "it ended with 9: NVIDIA-SMI has failed", "", 4},
            {"echo 'GPU is lost.  Reboot the system to recover this GPU'; exit 15",
                    "it ended with 15: GPU is lost.", "", 4},
            {"echo 'no memory' >&2; exit 255", "it ended with 255: no memory", "", 4},
            {"kill -9 $$", "is the driver healthy?", "", 4},
            // A driver that knows the new names only, or the old ones only, and one that knows
            // neither.
            {"case $1 in *clocks_throttle*) echo 'Field \"x\" is not a valid field to query.'; exit 2;; esac; echo '0, 7, Not Active, Not Active'",
                    "GPU 0 has had 7 uncorrected", "", 4},
            {"case $1 in *clocks_event*) exit 2;; esac; echo '0, 0, Not Active, Not Active'", "",
                    "", 0},
            {"echo 'Field \"x\" is not a valid field to query.'; exit 2",
                    "it ended with 2: Field \"x\" is not a valid field", "", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct preflight result = {0};
        smi(cases[i].script);
        // The kernel's log of the machine may have errors of its own; what is checked is what
        // nvidia-smi says.
        int code = preflight_gpu(path, &result);
        if (!strstr(result.reason, "within the last hour")) {
            CHECK_INT(code, cases[i].code);
            CHECK_CONTAINS(result.reason, cases[i].says);
            CHECK_CONTAINS(result.notes ? result.notes : "", cases[i].notes);
            // no words where nothing is to be said
            CHECK_INT(cases[i].code || cases[i].notes[0] || !result.notes, 1);
        }
        preflight_clear(&result);
    }
    struct preflight none = {0};
    CHECK_INT(preflight_gpu("/no/such/nvidia-smi", &none), 0); // nothing to look at
    unlink(path);
}

TEST(gpu_memory)
{
    static const struct {
        const char *script, *says;
        double bytes;
        int code;
    } cases[] = {{"echo '0, 40000'", "", 4e10, 0},
            {"printf '0, 40000\r\n1, 40000\r\n'", "", 4e10, 0},
            {"echo '0, 40000'; echo '1, 1000'",
                    "1000 MiB of memory are free on GPU 1, and the plan wants 2.00 GiB",
                    2147483648., 4},
            {"echo '0, [N/A]'", "GPU 0 does not tell its free memory: '[N/A]'", 1, 4},
            {"echo '0'", "GPU 0 does not tell its free memory: ''", 1, 4},
            {"echo 'Unable to determine the device handle'",
                    "GPU Unable to determine the device handle does not tell", 1, 4},
            {"true", "nvidia-smi lists no GPU", 1, 4},
            {"echo 'No devices were found'; exit 6", "it ended with 6: No devices were found", 1,
                    4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct preflight result = {0};
        smi(cases[i].script);
        CHECK_INT(preflight_gpu_memory(path, cases[i].bytes, &result), cases[i].code);
        CHECK_CONTAINS(result.reason, cases[i].says);
        CHECK_INT(cases[i].code || !result.reason[0], 1);
        preflight_clear(&result);
    }
    struct preflight none = {0};
    // asked for, and nobody to tell
    CHECK_INT(preflight_gpu_memory("/no/such/nvidia-smi", 1, &none), 4);
    CHECK_CONTAINS(none.reason, "'/no/such/nvidia-smi' is not there");
    preflight_clear(&none);
    unlink(path);
}

// Processes 7 (the baseline) and 8 (the candidate) of a /proc of our own, and 9, which may be a
// debugger or DCGM.
static char *processes(const char *seven, const char *eight, const char *nine_comm)
{
    static char dir[64];
    snprintf(dir, sizeof dir, "/tmp/test_profilers_XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    char *command = xasprintf(
            "cd %s && mkdir -p proc/7 proc/8 proc/9 && for i in 7 8 9; do cd proc/$i; printf 'TracerPid:\t0\n' > status;"
            " : > maps; : > environ; printf \"$i (%s) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 1 1 1 0 0 0 0 0 0 0 0 0 17 0 0 0 0\" > stat;"
            " cd ../..; done; cd proc/7; %s; cd ../8; %s",
            dir, nine_comm, seven, eight);
    CHECK_INT(system(command), 0);
    free(command);
    return dir;
}

TEST(profilers)
{
    static const char map[] =
            "echo '7f0000000000-7f0000001000 r-xp 00000000 08:01 42 /opt/%s' > maps";
    char *nsys = xasprintf(map, "nsight/libToolsInjectionProxy64.so"),
         *ours = xasprintf(map, "lib/libupgate_inject.so");
    const struct {
        const char *baseline, *candidate, *comm, *says, *notes;
        int code;
    } cases[] = {{"true", "true", "python3", "", "", 0}, {ours, ours, "python3", "", "", 0},
            {"true", "printf 'TracerPid:\\t9\\n' > status", "strace",
                    "the candidate is traced by process 9 (strace) with ptrace, and the baseline is not",
                    "", 4},
            {nsys, "true", "python3",
                    "the baseline runs under another profiler (libToolsInjectionProxy64.so), and the candidate is not",
                    "a recording of the baseline will have no GPU side", 4},
            {nsys, nsys, "python3", "", "the candidate runs under another profiler", 0},
            {"true", "printf 'A=b\\0CUDA_INJECTION64_PATH=/opt/x.so\\0' > environ", "python3",
                    "(CUDA_INJECTION64_PATH=/opt/x.so)", "a recording of the candidate", 4},
            {"true", "printf 'CUDA_INJECTION64_PATH=/lib/libupgate_inject.so\\0' > environ",
                    "python3", "", "", 0},
            {"true", "true", "nv-hostengine", "", "DCGM runs (nv-hostengine, process ", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct preflight result = {0};
        char *dir = processes(cases[i].baseline, cases[i].candidate, cases[i].comm);
        CHECK_INT(preflight_profilers(dir, (const uint64_t[CANARY_ARMS]){7, 8}, true, &result),
                cases[i].code);
        CHECK_CONTAINS(result.reason, cases[i].says);
        CHECK_CONTAINS(result.notes ? result.notes : "", cases[i].notes);
        CHECK_INT(cases[i].notes[0] || !result.notes, 1);
        preflight_clear(&result);
        // Of one arm alone nothing can be said that stops a rollout.
        CHECK_INT(preflight_profilers(dir, (const uint64_t[CANARY_ARMS]){0, 8}, false, &result), 0);
        preflight_clear(&result);
        char *command = xasprintf("rm -r %s", dir);
        CHECK_INT(system(command), 0);
        free(command);
    }
    free(nsys);
    free(ours);
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
