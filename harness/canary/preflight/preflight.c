// SPDX-License-Identifier: Apache-2.0
// What must hold before the first stage: the verdict of the offline gate, free memory, the user's
// checks. GPUs: preflight_gpu.c; profilers: preflight_profilers.c. Main thread; commands run with
// their output on our stderr.
#include "harness/canary/preflight/preflight.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/child.h"
#include "common/clock.h"
#include "common/strings.h"
#include "common/units.h"
#include "contracts/exit_code.h"
#include "harness/canary/preflight/preflight_internal.h"
#include "harness/fingerprint/fingerprint.h"
#include "tracer/store/store.h"

#define CHECK_TIMEOUT_NS 300000000000
enum { PREFLIGHT_DIFFERENCES_SHOWN = 5 };

int preflight_fail(struct preflight *ret, enum exit_code code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!ret->exit_code)
        vsnprintf(ret->reason, sizeof ret->reason, fmt, args);
    va_end(args);
    if (!ret->exit_code)
        ret->exit_code = (int)code;
    return (int)code;
}

void preflight_note(struct preflight *ret, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *line = xvasprintf(fmt, args),
         *notes = xasprintf("%s%s%s", ret->notes ? ret->notes : "", ret->notes ? "\n" : "", line);
    va_end(args);
    free(line);
    free(ret->notes);
    ret->notes = notes;
}

void preflight_clear(struct preflight *preflight)
{
    free(preflight->notes);
    *preflight = (struct preflight){0};
}

// --- the offline gate ----------------------------------------------------------------------------

int preflight_gate(const char *path, struct preflight *ret)
{
    struct store *store = NULL;
    struct error err = {0};
    if (store_open(path, STORE_READ, &store, &err))
        return preflight_fail(ret, EXIT_CODE_OPERATIONAL, "%.400s", err.text);
    char *verdict = store_get_text(store, "SELECT verdict FROM verdict", "");
    char *reason = store_get_text(store, "SELECT reason FROM verdict", "");
    char *state = store_get_text(store, "SELECT state FROM run", "");
    char *kind = store_get_text(store, "SELECT kind FROM run", "");
    int code = 0;
    if (store_failed(store, &err))
        code = preflight_fail(ret, EXIT_CODE_OPERATIONAL, "%.400s", err.text);
    else if (kind && strcmp(kind, "aa") == 0)
        // the baseline against itself: it passes whatever the candidate does
        code = preflight_fail(ret, EXIT_CODE_INCONCLUSIVE,
                "'%s' is an A/A run, which judges no candidate: the offline gate is a run of `upgate ab` "
                "without --aa",
                path);
    else if (!kind || strcmp(kind, "ab") != 0)
        code = preflight_fail(
                ret, EXIT_CODE_INCONCLUSIVE, "'%s' holds no run of `upgate ab`", path);
    else if (!verdict)
        code = preflight_fail(ret, EXIT_CODE_INCONCLUSIVE,
                "'%s' has no verdict yet; `upgate gate %s` gives one", path, path);
    else if (strcmp(verdict, "pass") != 0)
        code = preflight_fail(ret, EXIT_CODE_INCONCLUSIVE, "the offline gate '%s' says %s: %.300s",
                path, verdict, reason ? reason : "");
    else if (!state || strcmp(state, "done") != 0)
        code = preflight_fail(ret, EXIT_CODE_INCONCLUSIVE, "the run '%s' is %s, not done", path,
                state ? state : "without a state");
    free(verdict);
    free(reason);
    free(state);
    free(kind);
    store_close(store);
    return code;
}

static json_t *preflight_fingerprint(struct store *store, int64_t side)
{
    char *text = store_get_text(store, "SELECT fingerprint FROM side WHERE id = ?", "i", side);
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return json;
}

void preflight_differences(const char *path, struct preflight *ret)
{
    struct store *store = NULL;
    struct error err = {0};
    json_t *differences = NULL;
    if (store_open(path, STORE_READ, &store, &err)) {
        preflight_note(ret, "what differs between the sides is not known: %s", err.text);
        return;
    }
    json_t *a = preflight_fingerprint(store, 0), *b = preflight_fingerprint(store, 1);
    if (!a || !b)
        preflight_note(ret, "'%s' has no fingerprints of both sides", path);
    else if (fingerprint_diff(a, b, &differences, NULL, &err))
        preflight_note(
                ret, "what differs between the sides of '%s' is not known: %s", path, err.text);
    for (size_t i = 0;
            differences && i < json_array_size(differences) && i < PREFLIGHT_DIFFERENCES_SHOWN;
            i++) {
        const json_t *one = json_array_get(differences, i);
        char *was = json_dumps(json_object_get(one, "a"), JSON_COMPACT | JSON_ENCODE_ANY);
        char *is = json_dumps(json_object_get(one, "b"), JSON_COMPACT | JSON_ENCODE_ANY);
        const char *what = json_string_value(json_object_get(one, "what"));
        preflight_note(ret, "%s: %.80s -> %.80s", what ? what : "something", was ? was : "-",
                is ? is : "-");
        free(was);
        free(is);
    }
    if (differences)
        preflight_note(ret, "%zu differences between the sides; `upgate env diff %s` shows all",
                json_array_size(differences), path);
    json_decref(differences);
    json_decref(a);
    json_decref(b);
    store_close(store);
}

// --- memory --------------------------------------------------------------------------------------

int preflight_memory(const char *root, double bytes, struct preflight *ret)
{
    char *path = xasprintf("%s/proc/meminfo", root), *text = string_read_file(path, 1 << 16, NULL),
         have[32], want[32];
    const char *at = text ? strstr(text, "MemAvailable:") : NULL;
    double available = at ? strtod(at + strlen("MemAvailable:"), NULL) * 1024 : -1;
    free(path);
    free(text);
    if (available < 0)
        return preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                "how much memory is free cannot be read from /proc/meminfo");
    if (available >= bytes)
        return 0;
    return preflight_fail(ret, EXIT_CODE_OPERATIONAL,
            "%s of memory are free on this machine, and two warm stacks need %s",
            unit_format_bytes(have, sizeof have, available),
            unit_format_bytes(want, sizeof want, bytes));
}

// --- the user's checks ---------------------------------------------------------------------------

int preflight_check(const char *command, int64_t timeout_ns, const volatile sig_atomic_t *stop,
        struct preflight *ret)
{
    char *const argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)command, NULL};
    const struct child_opts opts = {
            .deadline_ns = clock_monotonic_ns() + timeout_ns, .stop = stop, .shows = true};
    struct child_end end;
    struct error err = {0};
    char span[32];
    int rc = child_run(argv, &opts, &end, &err);
    if (rc == -EINTR)
        return preflight_fail(ret, EXIT_CODE_INCONCLUSIVE,
                "ended by a signal within the check '%.200s'", command);
    if (rc == -ETIMEDOUT)
        return preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                "the check '%.200s' did not end within %s", command,
                unit_format_ns(span, sizeof span, (double)timeout_ns));
    if (rc)
        return preflight_fail(ret, EXIT_CODE_OPERATIONAL, "failed to start the check '%.200s': %s",
                command, err.text);
    free(end.output);
    if (end.code == 0)
        return 0;
    if (end.signal)
        return preflight_fail(ret, EXIT_CODE_INCONCLUSIVE,
                "the check '%.200s' was ended by signal %d", command, end.signal);
    return preflight_fail(
            ret, EXIT_CODE_INCONCLUSIVE, "the check '%.200s' ended with %d", command, end.code);
}

// --- all -----------------------------------------------------------------------------------------

void preflight_run(
        const struct rollout *rollout, const volatile sig_atomic_t *stop, struct preflight *ret)
{
    const struct rollout_preflight *wanted = &rollout->preflight;
    const char *sides = wanted->plan ? wanted->plan : wanted->gate;
    *ret = (struct preflight){0};
    char *advice = rollout_advice(rollout);
    if (advice)
        preflight_note(ret, "%s", advice);
    free(advice);
    if (wanted->gate)
        preflight_gate(wanted->gate, ret);
    if (sides)
        preflight_differences(sides, ret);
    if (wanted->free_memory > 0)
        preflight_memory("", wanted->free_memory, ret);
    preflight_gpu("nvidia-smi", ret);
    if (wanted->free_gpu_memory > 0)
        preflight_gpu_memory("nvidia-smi", wanted->free_gpu_memory, ret);
    static const char *const arms[CANARY_ARMS] = {"baseline", "candidate"};
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        if (rollout->why.pids[arm] || rollout->why.cgroups[arm])
            preflight_devices(
                    "", rollout->why.pids[arm], rollout->why.cgroups[arm], arms[arm], ret);
    preflight_profilers("", rollout->why.pids, rollout->why.record, ret);
    // the dear ones last
    for (char **check = wanted->checks; check && *check && !ret->exit_code; check++)
        preflight_check(*check, CHECK_TIMEOUT_NS, stop, ret);
}
