// SPDX-License-Identifier: Apache-2.0
// The host's certificate. Runs `upgate ab --aa` on itself in a child process: a session owns signal
// handlers, a guardian and cgroups, and there is one a process.
#include "harness/run/calibrate.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"
#include "harness/run/host.h"
#include "harness/run/process.h"
#include "harness/run/session_internal.h"

enum { CALIBRATE_LOOK_NS = 20000000 };

// A short native workload in turns of steps. 28 pairs of 0.3 s: the direct gate and 299 re-split ones
// bound the false-fail rate at 1 %.
static const char calibrate_plan[] =
    "baseline:  {name: host, models: %s}\n"
    "candidate: {name: host again, models: %s}\n"
    "workloads:\n"
    "  - {name: host, model: dlrm, mode: train, steps: 120, size: small}\n"
    "schedule: {looks: [14], seed: 1, interleave: %s, block: 10ms, timeout: 30s%s%s}\n"
    "gate: {metrics: {%s: {margin: 2%%}}, parity: {rule: off}}\n";

static int calibrate_write_plan(const struct session *session, enum plan_interleave interleave,
                                const char *path)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return -errno;
    char *native = xasprintf("%s/native", session->env.models_dir);
    const char *cpus = session->plan->schedule.cpus;
    fprintf(file, calibrate_plan, native, native, plan_interleave_name(interleave),
            cpus ? ", cpus: " : "", cpus ? cpus : "",
            interleave == PLAN_INTERLEAVE_STEPS ? "step_time" : "total_time");
    free(native);
    return fclose(file) == 0 ? 0 : -errno;
}

// Runs upgate ab --aa PLAN -o STORE --quiet, and waits; what ends us, ends it too.
static int calibrate_spawn(struct session *session, const char *plan_path, const char *store_path)
{
    char *argv[] = {"upgate",           "ab", (char *)plan_path, "--aa", "-o",
                    (char *)store_path, "-q", NULL};
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); // then its own guardian cleans up after it
        // Its tables are not ours: stdout stays clean, its errors are seen.
        if (getppid() != parent || !freopen("/dev/null", "w", stdout))
            _exit(127);
        // By its path, so that it is called upgate in `ps`; a program that was replaced meanwhile has none.
        char path[PATH_MAX];
        ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
        path[len > 0 ? len : 0] = 0;
        cpu_set_t none;
        CPU_ZERO(&none);
        host_leave_cpus(&none); // it chooses its own
        execv(path, argv);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    process_own(pid);
    int status = 0;
    bool told = false;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (session_stop && !told)
            told = kill(pid, SIGTERM) == 0;
        session_tick(session);
        clock_sleep_until_ns(clock_monotonic_ns() + CALIBRATE_LOOK_NS);
    }
    process_disown(pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int calibrate_make(struct session *session, enum plan_interleave interleave)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = xasprintf("%s/upgate-calibrate-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) {
        int failed = -errno;
        log_warn("failed to make '%s' for the A/A run: %s; name a directory that can be written in TMPDIR",
                 dir, strerror(errno));
        free(dir);
        return failed;
    }
    char *plan_path = xasprintf("%s/plan.yaml", dir), *store_path = xasprintf("%s/run.db", dir);
    int rc = calibrate_write_plan(session, interleave, plan_path);
    if (rc == 0)
        rc = calibrate_spawn(session, plan_path, store_path);
    unlink(plan_path);
    unlink(store_path);
    rmdir(dir);
    free(dir);
    free(plan_path);
    free(store_path);
    return rc;
}

int calibrate_ensure(struct session *session, const struct session_workload *workload,
                     struct error *err)
{
    enum plan_interleave interleave = workload->interleave;
    bool covered = false;
    char *why = NULL;
    int rc = gate_load_certificate(session->store, workload->id, interleave, &covered, &why, err);
    bool make = session->plan->gate.calibrate == PLAN_CALIBRATE_AUTO && !session_stop &&
                !session->calibration_tried[interleave];
    if (rc == 0 && !covered && make) {
        session->calibration_tried[interleave] = true;
        log_info("this host has no valid certificate for turns of %s (%s): a short A/A run first",
                 plan_interleave_name(interleave), why ? why : "none");
        int status = calibrate_make(session, interleave);
        // Whatever its verdict, the certificate says how often such gates fail here.
        if (status < 0 || status == EXIT_CODE_USAGE || status >= EXIT_CODE_OPERATIONAL)
            log_warn("the A/A run that calibrates this host did not come to an end (%d)", status);
        free(why);
        why = NULL;
        rc = gate_load_certificate(session->store, workload->id, interleave, &covered, &why, err);
    }
    if (rc == 0 && !covered)
        log_warn("uncalibrated host: %s; no verdict will be a pass", why ? why : "no certificate");
    free(why);
    return rc;
}
