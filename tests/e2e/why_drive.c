// SPDX-License-Identifier: Apache-2.0
// For the test of the recordings at a breach: why_drive STORE PROGRAM DURATION_MS GRACE_MS KILL_MS
// BASELINE CANDIDATE, each arm a pid, a cgroup's path or a URL; PROGRAM is the upgate that records.
// Prints how long the calls took, in ms: "begin LONGEST_DONE TOTAL".
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "common/clock.h"
#include "harness/canary/why/why.h"

int main(int argc, char **argv)
{
    struct rollout rollout = {0};
    struct store *store = NULL;
    struct error err = {0};
    if (argc != 8)
        return 2;
    rollout.why.record = true;
    rollout.why.duration_ns = atoll(argv[3]) * 1000000;
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        char *target = argv[6 + arm];
        if (isdigit((unsigned char)*target))
            rollout.why.pids[arm] = strtoull(target, NULL, 10);
        else if (*target == '/')
            rollout.why.cgroups[arm] = target;
        else
            rollout.shadow_urls[arm] = target;
    }
    int rc = store_open(argv[1], STORE_WRITE, &store, &err);
    if (rc) {
        fprintf(stderr, "%s\n", err.text);
        return error_exit_code(rc);
    }
    // Like the controller's lock: inheritable by a mistake, and a recording must not keep it.
    char lock_path[4096];
    snprintf(lock_path, sizeof lock_path, "%s.lock", argv[1]);
    int lock = open(lock_path, O_RDWR | O_CREAT, 0600);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0)
        return 4;
    struct why *why = why_new(argv[2]);
    why_patience(why, atoll(argv[4]) * 1000000, atoll(argv[5]) * 1000000);
    int64_t start = clock_monotonic_ns(), longest = 0;
    why_begin(why, &rollout, store);
    int64_t begun = clock_monotonic_ns();
    for (bool over = false; !over;) {
        int64_t before = clock_monotonic_ns();
        over = why_done(why, store);
        longest = clock_monotonic_ns() - before > longest ? clock_monotonic_ns() - before : longest;
        clock_sleep_until_ns(before + 20000000);
    }
    why_done(why, store); // asked again, it writes nothing twice
    printf("%.3f %.3f %.3f\n", (double)(begun - start) / 1e6, (double)longest / 1e6,
            (double)(clock_monotonic_ns() - start) / 1e6);
    why_free(why);
    store_close(store);
    return 0;
}
