// SPDX-License-Identifier: Apache-2.0
// Checks of how processes can be contained: freezing, priority, CPUs, quotas. Tries them on a child
// of its own, which is gone when the check returns.
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/contain/host.h"
#include "harness/contain/tree.h"
#include "harness/doctor/check.h"
#include "harness/fingerprint/limits.h"

enum { CHECK_PATIENCE_NS = 500000000 };

static const char check_delegate[] =
        "run as root, or in a cgroup of your own: systemd-run --user --scope -p Delegate=yes upgate ab "
        "…; in a "
        "container, mount /sys/fs/cgroup writable (docker: --privileged, or --cgroupns=private with a "
        "writable mount)";

// Freeze and thaw a child in a tree of these means. Nanoseconds until it stood still, or -errno.
static int64_t check_freeze_child(enum tree_means means, const char *base, bool *ret_killed)
{
    struct tree *tree = NULL;
    struct error err = {0};
    int ends[2];
    *ret_killed = false;
    int rc = tree_new(means, base, "doctor", "upgate-doctor", &tree, &err);
    if (rc)
        return rc;
    if (pipe(ends) < 0) {
        rc = -errno;
        tree_free(tree);
        return rc;
    }
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char joined = (char)(tree_join(tree) == 0);
        if (write(ends[1], &joined, 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    char joined = 0;
    close(ends[1]);
    if (child < 0 || read(ends[0], &joined, 1) != 1 || !joined)
        rc = -EPERM;
    close(ends[0]);
    int64_t took = rc;
    if (rc == 0) {
        tree_set_root(tree, child, 0);
        int64_t begin = clock_monotonic_ns();
        rc = tree_freeze(tree, CHECK_PATIENCE_NS);
        took = rc ? rc : clock_monotonic_ns() - begin;
        tree_thaw(tree);
    }
    if (child > 0) {
        *ret_killed = tree_kill(tree) == 0;
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    tree_free(tree);
    return took;
}

void check_freezer(struct doctor *doctor)
{
    char *base = NULL;
    bool killed = false;
    enum tree_means means = tree_detect(&base);
    int64_t took = check_freeze_child(means, base, &killed);
    tree_release_base(base);
    char *slash = strrchr(base, '/'); // its last part was made for this check
    if (slash)
        *slash = 0;
    const char *name = tree_means_name(means);
    struct doctor_finding *finding;
    if (took < 0 || !killed) {
        finding = doctor_add(doctor, "freezer", DOCTOR_STATUS_MISSING,
                "a child could not be %s by %s: %s", took < 0 ? "stopped" : "ended", name,
                took < 0 ? strerror((int)-took) : "it is still alive");
        doctor_lose(finding, "no launch can be held back or ended", check_delegate);
        finding->required = true;
    } else if (means == TREE_MEANS_SIGNALS) {
        finding = doctor_add(doctor, "freezer", DOCTOR_STATUS_LIMITED,
                "signals only (SIGSTOP): a child stood still after %.0f us", (double)took / 1e3);
        doctor_lose(finding,
                "a process that is born while its tree is being stopped runs on in the other side's "
                "turn, and CPU time is known only of processes that have ended",
                check_delegate);
    } else {
        finding = doctor_add(doctor, "freezer",
                means == TREE_MEANS_CGROUP2 ? DOCTOR_STATUS_OK : DOCTOR_STATUS_LIMITED,
                "%s below '%s': a child stood still after %.0f us", name, base, (double)took / 1e3);
        if (means == TREE_MEANS_FREEZER1)
            doctor_lose(finding,
                    "a tree is ended process by process, and its CPU time is known only of "
                    "processes that have ended",
                    "boot with systemd.unified_cgroup_hierarchy=1 (cgroup v2), or mount a cgroup2 "
                    "file system that you may write");
    }
    doctor_fact(finding, "means", json_string(name));
    doctor_fact(finding, "freeze_ns", took < 0 ? json_null() : json_integer(took));
    free(base);
}

void check_priority(struct doctor *doctor)
{
    pid_t child = fork(); // a try changes the scheduling of the process that makes it
    if (child == 0)
        _exit(-host_raise_priority() & 0x7f);
    int status = 0;
    bool tried = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    if (tried && WEXITSTATUS(status) == 0) {
        doctor_add(
                doctor, "priority", DOCTOR_STATUS_OK, "the harness may run at real-time priority");
        return;
    }
    struct doctor_finding *finding = doctor_add(doctor, "priority", DOCTOR_STATUS_LIMITED,
            "no real-time priority for the harness: %s",
            tried ? strerror(WEXITSTATUS(status)) : "could not be tried");
    doctor_lose(finding,
            "on CPUs that the workload keeps busy a turn may begin a scheduler slice late (measured: "
            "2.9 ms instead of 0.1 ms)",
            geteuid() == 0
                    ? "root needs CAP_SYS_NICE for it (docker, podman: --cap-add SYS_NICE), and in a cgroup of v1 time of "
                      "its own (cpu.rt_runtime_us)"
                    : "run as root, or give the user 'rtprio 1' in /etc/security/limits.conf, or for a group: "
                      "f=\"$(command -v upgate)\"; sudo groupadd -f upgate; sudo chgrp upgate \"$f\"; "
                      "sudo chmod 0750 \"$f\"; sudo setcap cap_sys_nice+ep \"$f\" (with those that other lines ask for: setcap replaces)");
}

void check_cpus(struct doctor *doctor)
{
    cpu_set_t chosen;
    char *text = NULL;
    struct error err = {0};
    if (host_choose_cpus(NULL, &chosen, &text, &err)) {
        struct doctor_finding *finding =
                doctor_add(doctor, "cpus", DOCTOR_STATUS_MISSING, "%s", err.text);
        doctor_lose(finding, "the sides cannot be pinned", "see sched_setaffinity(2)");
        finding->required = true;
        return;
    }
    int used = CPU_COUNT(&chosen);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    struct doctor_finding *finding =
            doctor_add(doctor, "cpus", used == 1 ? DOCTOR_STATUS_LIMITED : DOCTOR_STATUS_OK,
                    "%ld online; both sides would be pinned to %s", online, text);
    if (used == 1)
        doctor_lose(finding, "the harness shares the only CPU with the workload",
                online == 1
                        ? "use a machine with 2 CPUs or more"
                        : "give this container or session 2 CPUs or more (docker: --cpuset-cpus; taskset)");
    doctor_fact(finding, "online", json_integer(online));
    doctor_fact(finding, "used", json_integer(used));
    doctor_fact(finding, "list", json_string(text));
    free(text);
}

json_t *check_limits(const struct doctor *doctor)
{
    json_t *missing = json_object();
    char *self = xasprintf("%s/proc/self", doctor->root);
    char *mounts = xasprintf("%s/proc/self/mountinfo", doctor->root);
    json_t *limits = limits_cgroup(self, mounts, missing);
    json_decref(missing);
    free(self);
    free(mounts);
    return limits;
}

// A CPU quota stops a group in the middle of a block whenever it is used up.
void check_quota(struct doctor *doctor)
{
    json_t *limits = check_limits(doctor);
    const json_t *cores = json_object_get(limits, "cpu_quota_cores");
    struct doctor_finding *finding;
    if (json_is_number(cores)) {
        finding = doctor_add(doctor, "cpu-quota", DOCTOR_STATUS_LIMITED,
                "this process group may use %.3g CPUs of time", json_number_value(cores));
        doctor_lose(finding,
                "when the quota is used up, the kernel stops the workload in the middle of a block",
                "run without a CPU limit (docker: no --cpus; Kubernetes: no limits.cpu, or the static "
                "CPU "
                "manager), and keep the workload's threads below the quota");
        doctor_fact(finding, "cores", json_real(json_number_value(cores)));
    } else {
        finding = doctor_add(doctor, "cpu-quota", DOCTOR_STATUS_OK, "no CPU quota %s",
                json_is_string(cores) ? "is set" : "is known");
        doctor_fact(finding, "cores", json_null());
    }
    json_decref(limits);
}
