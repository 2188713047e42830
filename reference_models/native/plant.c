// SPDX-License-Identifier: Apache-2.0
// Planted faults: parsing, and what happens at the begin of a step. The slow-down itself is done by
// the pool (pool.h), the NaN by the workload.
#include "reference_models/native/plant.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/strings.h"
#include "common/units.h"
#include "contracts/upgate_step.h"
#include "reference_models/native/rng.h"

static const char *const plant_kinds[] = {"slow", "nan", "crash", "hang", "leak", "coldstart",
        "exit", "nostep", "op", "replace", "unfuse", "root", "buckets", "pool1", "compute", "fill",
        "copy", "fault", "syscall", "fsync", "sleep", "lock", "rival", "straggle"};

static const char *const plant_shares[PLANT_SHARE_COUNT] = {[PLANT_SHARE_COMPUTE] = "compute",
        [PLANT_SHARE_FILL] = "fill",
        [PLANT_SHARE_COPY] = "copy",
        [PLANT_SHARE_FAULT] = "fault",
        [PLANT_SHARE_SYSCALL] = "syscall",
        [PLANT_SHARE_FSYNC] = "fsync",
        [PLANT_SHARE_SLEEP] = "sleep",
        [PLANT_SHARE_LOCK] = "lock",
        [PLANT_SHARE_RIVAL] = "rival",
        [PLANT_SHARE_STRAGGLE] = "straggle"};

static int plant_parse_slow(const char *value, double *ret, struct error *err)
{
    double share;
    int rc = unit_parse_fraction(value, &share, err);
    if (rc)
        return rc;
    if (!(share > 0 && share <= 10))
        return error_set(
                err, -EINVAL, "%s is out of range; accepted: above 0 %% to 1000 %%", value);
    *ret = share;
    return 0;
}

// op:NAME:P%, replace:P%, unfuse:P%
static int plant_set_op(const char *kind, const char *value, struct plant *plant, struct error *err)
{
    const char *name = strcmp(kind, "unfuse") == 0 ? "bias_part" : "gemm_rows", *share = value;
    size_t length = strlen(name);
    plant->op = strcmp(kind, "unfuse") == 0 ? POOL_OP_ADDED
            : strcmp(kind, "replace") == 0  ? POOL_OP_REPLACE
                                            : POOL_OP_SLOW;
    if (strcmp(kind, "op") == 0) {
        const char *colon = strchr(value, ':');
        if (!colon || colon == value || (size_t)(colon - value) >= sizeof plant->op_name)
            return error_set(err, -EINVAL,
                    "accepted: the name of a piece of work and a share, as in gemm_rows:5%%");
        name = value;
        length = (size_t)(colon - value);
        share = colon + 1;
    }
    snprintf(plant->op_name, sizeof plant->op_name, "%.*s", (int)length, name);
    return plant_parse_slow(share, &plant->op_share, err);
}

static int plant_set(const char *kind, const char *value, struct plant *plant, struct error *err)
{
    uint64_t number = 0;
    if (strcmp(kind, "slow") == 0)
        return plant_parse_slow(value, &plant->slow, err);
    if (strcmp(kind, "nan") == 0)
        return unit_parse_uint(value, 0, UINT64_MAX - 1, &plant->nan_step, err);
    if (strcmp(kind, "crash") == 0)
        return unit_parse_uint(value, 0, UINT64_MAX - 1, &plant->crash_step, err);
    if (strcmp(kind, "hang") == 0)
        return unit_parse_uint(value, 0, UINT64_MAX - 1, &plant->hang_step, err);
    if (strcmp(kind, "leak") == 0)
        return unit_parse_bytes(value, &plant->leak_bytes, err);
    for (size_t i = 0; i < PLANT_SHARE_COUNT; i++)
        if (strcmp(kind, plant_shares[i]) == 0)
            return plant_parse_slow(value, &plant->share[i], err);
    if (strcmp(kind, "op") == 0 || strcmp(kind, "replace") == 0 || strcmp(kind, "unfuse") == 0)
        return plant_set_op(kind, value, plant, err);
    if (strcmp(kind, "coldstart") == 0) {
        double ms;
        int rc = unit_parse_double(value, 0, 1e6, &ms, err);
        if (rc == 0)
            plant->coldstart_ns = llround(ms * 1e6);
        return rc;
    }
    int rc = unit_parse_uint(value, 0, 255, &number, err);
    if (rc == 0)
        plant->exit_code = (int)number;
    return rc;
}

static int plant_parse_one(char *spec, struct plant *plant, struct error *err)
{
    size_t kinds = sizeof plant_kinds / sizeof *plant_kinds;
    char *value = strchr(spec, ':');
    if (value)
        *value++ = 0;
    bool known = false;
    for (size_t i = 0; i < kinds; i++)
        known |= strcmp(plant_kinds[i], spec) == 0;
    if (!known) {
        const char *nearest = string_nearest(spec, plant_kinds, kinds);
        return error_set(err, -EINVAL, "nothing called '%s' can be planted; %s%s", spec,
                nearest ? "nearest: " : "see --help", nearest ? nearest : "");
    }
    bool *flag = strcmp(spec, "nostep") == 0 ? &plant->nostep
            : strcmp(spec, "root") == 0      ? &plant->root
            : strcmp(spec, "buckets") == 0   ? &plant->buckets
            : strcmp(spec, "pool1") == 0     ? &plant->pool1
                                             : NULL;
    if (flag) {
        *flag = true;
        return value ? error_set(err, -EINVAL, "'%s' takes no value", spec) : 0;
    }
    if (!value || !*value)
        return error_set(err, -EINVAL, "'%s' needs a value, as in %s:1", spec, spec);
    int rc = plant_set(spec, value, plant, err);
    return rc ? error_prefix(err, "failed to plant '%s'", spec) : 0;
}

int plant_parse(const char *text, struct plant *plant, struct error *err)
{
    char *copy = xstrdup(text), *rest = copy;
    int rc = 0;
    do {
        char *spec = strsep(&rest, ",");
        rc = plant_parse_one(spec, plant, err);
    } while (rc == 0 && rest);
    free(copy);
    return rc;
}

static void plant_crash(void)
{
    // The default action even where a sanitizer or the harness has put a handler.
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

static void plant_leak(uint64_t bytes)
{
    // The chain stays reachable: a leak in the sense of memory that grows, not of a lost pointer.
    static void *chain;
    if (bytes < sizeof chain)
        bytes = sizeof chain;
    char *more = malloc(bytes);
    if (!more)
        return;
    memset(more, 1, bytes);
    memcpy(more, &chain, sizeof chain);
    chain = more;
}

static int64_t plant_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Own CPU time, so that a side that is held or shares its core does the same work.
static void plant_coldstart(int64_t ns)
{
    static volatile uint64_t sink;
    ug_step_phase_begin("compile");
    int64_t end_ns = plant_cpu_ns() + ns;
    uint64_t value = 1;
    while (plant_cpu_ns() < end_ns) {
        for (int i = 0; i < 10000; i++)
            value = rng_mix(value);
    }
    sink = value;
    (void)sink;
    ug_step_phase_end();
}

bool plant_enter_step(const struct plant *plant, uint64_t step)
{
    if (step == plant->crash_step)
        plant_crash();
    while (step == plant->hang_step)
        pause();
    if (step == 0 && plant->coldstart_ns > 0)
        plant_coldstart(plant->coldstart_ns);
    if (plant->leak_bytes > 0)
        plant_leak(plant->leak_bytes);
    return step == plant->nan_step;
}

void plant_before_step(const struct plant *plant, uint64_t step, uint64_t steps)
{
    if (plant->exit_code >= 0 && step == steps / 2) {
        fprintf(stderr, "planted: exit with code %d after %llu steps\n", plant->exit_code,
                (unsigned long long)step);
        exit(plant->exit_code);
    }
}
