// SPDX-License-Identifier: Apache-2.0
// What the tests of the step protocol share: a reader on a fresh file, children that write, and a
// log of what the reader received. The case is the harness; each child is a workload process.
#ifndef UPGATE_TESTS_UNIT_TEST_STEP_RIG_H
#define UPGATE_TESTS_UNIT_TEST_STEP_RIG_H

#include "contracts/upgate_step.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "harness/steps/reader.h"
#include "tests/unit/runner.h"

#define RIG_SECOND_NS 1000000000ll
#define RIG_LOG_MAX 200000

struct rig {
    char path[64];
    struct reader *reader;
    struct ug_step_record *log;
    uint32_t *log_slot;
    uint64_t log_count;
};

__attribute__((unused)) static int64_t rig_deadline(int64_t seconds)
{
    return clock_monotonic_ns() + seconds * RIG_SECOND_NS;
}

__attribute__((unused)) static void rig_path(char *path, size_t path_bytes)
{
    snprintf(path, path_bytes, "/dev/shm/test-upgate-steps-%d", (int)getpid());
}

__attribute__((unused)) static struct rig rig_make(const struct reader_opts *opts)
{
    struct rig rig = {.log = calloc(RIG_LOG_MAX, sizeof(struct ug_step_record)),
            .log_slot = calloc(RIG_LOG_MAX, sizeof(uint32_t))};
    struct error err = {0};

    rig_path(rig.path, sizeof(rig.path));
    unlink(rig.path);
    CHECK_INT(reader_create(&rig.reader, rig.path, opts, &err), 0);
    if (rig.reader == NULL) {
        printf("    %s\n", err.text);
        exit(1);
    }
    setenv("UPGATE_STEPS", rig.path, 1);
    return rig;
}

// Until so many processes have made their first step call.
__attribute__((unused)) static void rig_wait_claimed(const struct rig *rig, uint32_t slots)
{
    int64_t deadline_ns = rig_deadline(60);

    while (reader_slot_count(rig->reader) < slots && clock_monotonic_ns() < deadline_ns) {
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
    }
    CHECK_INT(reader_slot_count(rig->reader), slots);
}

__attribute__((unused)) static void rig_free(struct rig *rig)
{
    reader_free(rig->reader);
    CHECK_INT(access(rig->path, F_OK), -1);
    free(rig->log);
    free(rig->log_slot);
}

// A workload process. It ends by exit(), so that what a process does at its end is tested too.
__attribute__((unused)) static pid_t rig_fork(void (*work)(void *), void *arg)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        alarm(300); // one that never ends, not one on a busy machine
        work(arg);
        exit(0);
    }
    return pid;
}

__attribute__((unused)) static int rig_join(pid_t pid)
{
    int status = -1;

    waitpid(pid, &status, 0);
    return status;
}

__attribute__((unused)) static void rig_log(
        void *arg, uint32_t slot_idx, const struct ug_step_record *record)
{
    struct rig *rig = arg;

    if (rig->log_count < RIG_LOG_MAX) {
        rig->log_slot[rig->log_count] = slot_idx;
        rig->log[rig->log_count++] = *record;
    }
}

__attribute__((unused)) static void rig_drain(struct rig *rig, uint32_t slot_idx)
{
    struct error err = {0};

    CHECK_INT(reader_drain(rig->reader, slot_idx, rig_log, NULL, rig, &err), 0);
}

// The n-th record of a kind; NULL when there are fewer.
__attribute__((unused)) static const struct ug_step_record *rig_find(
        const struct rig *rig, enum ug_record_kind kind, uint64_t n)
{
    for (uint64_t i = 0; i < rig->log_count; i++) {
        if (rig->log[i].kind == (uint32_t)kind && n-- == 0) {
            return &rig->log[i];
        }
    }
    return NULL;
}

__attribute__((unused)) static uint64_t rig_count(const struct rig *rig, enum ug_record_kind kind)
{
    uint64_t count = 0;

    while (rig_find(rig, kind, count) != NULL) {
        count++;
    }
    return count;
}

#endif
