// SPDX-License-Identifier: Apache-2.0
// Checks of the machine: load, pressure, steal, frequency, clock, memory, disk. Reads /proc and
// /sys below the doctor's root; writes nothing.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/doctor/check.h"

static const uint64_t CHECK_SHM_MIN = 16ull << 20; // the rings of one launch of a few ranks
static const uint64_t CHECK_SHM_ENOUGH = 128ull << 20;
static const uint64_t CHECK_DISK_ENOUGH = 256ull
        << 20; // a store is some MB; a full disk stops a run
static const uint64_t CHECK_MEMORY_ENOUGH = 2ull << 30;

void check_load(struct doctor *doctor)
{
    char *text = doctor_read(doctor, "/proc/loadavg");
    double load = text ? strtod(text, NULL) : NAN;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    bool known = text != NULL, busy = known && load > 0.25 * (double)cpus;
    struct doctor_finding *finding = known
            ? doctor_add(doctor, "load", busy ? DOCTOR_STATUS_LIMITED : DOCTOR_STATUS_OK,
                      "load of the last minute %.2f on %ld CPUs", load, cpus)
            : doctor_add(doctor, "load", DOCTOR_STATUS_LIMITED, "/proc/loadavg cannot be read");
    if (busy)
        doctor_lose(finding,
                "other processes share the CPUs: more pairs are needed for the same certainty",
                "stop them, or wait (top, systemctl list-timers); turns keep what is left out "
                "of the ratio");
    else if (!known)
        doctor_lose(finding, "the load is not recorded beside the launches", "mount /proc");
    doctor_fact(finding, "load1", known ? json_real(load) : json_null());
    free(text);
}

void check_pressure(struct doctor *doctor)
{
    char *text = doctor_read(doctor, "/proc/pressure/cpu");
    const char *average = text ? strstr(text, "avg60=") : NULL;
    if (average) {
        double share = strtod(average + strlen("avg60="), NULL);
        struct doctor_finding *finding = doctor_add(doctor, "pressure", DOCTOR_STATUS_OK,
                "PSI is there; some task waited for a CPU in %.3g %% of the last minute", share);
        doctor_fact(finding, "cpu_some_avg60_pct", json_real(share));
    } else {
        struct doctor_finding *finding =
                doctor_add(doctor, "pressure", DOCTOR_STATUS_LIMITED, "no PSI (/proc/pressure)");
        doctor_lose(finding, "waiting for CPU, memory and disk is not recorded beside the launches",
                "boot with psi=1, on a kernel with CONFIG_PSI");
    }
    free(text);
}

void check_steal(struct doctor *doctor)
{
    char *text = doctor_read(doctor, "/proc/stat");
    unsigned long long t[8] = {0}, sum = 0;
    int got = text ? sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1],
                             &t[2], &t[3], &t[4], &t[5], &t[6], &t[7])
                   : 0;
    free(text);
    for (int i = 0; i < 8; i++)
        sum += t[i];
    if (got != 8 || sum == 0) {
        struct doctor_finding *finding =
                doctor_add(doctor, "steal", DOCTOR_STATUS_LIMITED, "/proc/stat does not tell it");
        doctor_lose(finding, "CPU time taken by the hypervisor is not recorded", "mount /proc");
        return;
    }
    double share = 100.0 * (double)t[7] / (double)sum;
    struct doctor_finding *finding =
            doctor_add(doctor, "steal", share > 1 ? DOCTOR_STATUS_LIMITED : DOCTOR_STATUS_OK,
                    "the hypervisor took %.2g %% of the CPU time since boot", share);
    if (share > 1)
        doctor_lose(finding, "neighbours on the same host slow both sides in bursts",
                "use a dedicated or metal instance, or go on: both sides take turns and are hit alike");
    doctor_fact(finding, "steal_pct", json_real(share));
}

static bool check_turbo_on(struct doctor *doctor, bool *ret_known)
{
    char *intel = doctor_read(doctor, "/sys/devices/system/cpu/intel_pstate/no_turbo");
    char *boost = doctor_read(doctor, "/sys/devices/system/cpu/cpufreq/boost");
    bool on = intel ? strcmp(intel, "0") == 0 : boost && strcmp(boost, "1") == 0;
    *ret_known = intel || boost;
    free(intel);
    free(boost);
    return on;
}

void check_frequency(struct doctor *doctor)
{
    char *governor = doctor_read(doctor, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    bool known, turbo = check_turbo_on(doctor, &known);
    struct doctor_finding *finding;
    if (!governor) {
        finding = doctor_add(doctor, "frequency", DOCTOR_STATUS_LIMITED,
                "the CPU frequency cannot be seen from here (a virtual machine, or no cpufreq driver)");
        doctor_lose(finding, "a change of frequency between launches is not recorded",
                "nothing within a virtual machine; on metal load the cpufreq driver");
    } else {
        bool steady = strcmp(governor, "performance") == 0;
        finding = doctor_add(doctor, "frequency", steady ? DOCTOR_STATUS_OK : DOCTOR_STATUS_LIMITED,
                "governor '%s', turbo %s", governor,
                !known          ? "not known"
                        : turbo ? "on"
                                : "off");
        if (!steady)
            doctor_lose(finding,
                    "the frequency follows the load: short launches run slower at their begin",
                    "sudo cpupower frequency-set -g performance (Debian: linux-cpupower; Ubuntu: "
                    "linux-tools-common)");
    }
    doctor_fact(finding, "governor", governor ? json_string(governor) : json_null());
    doctor_fact(finding, "turbo", known ? json_boolean(turbo) : json_null());
    free(governor);
}

static void check_add_found(struct doctor_finding *finding, const char *more)
{
    char *found = xasprintf("%s; %s", finding->found, more);
    free(finding->found);
    finding->found = found;
}

// Said only where this process is in one that is not the machine's.
static void check_time_namespace(struct doctor_finding *finding)
{
    struct time_offsets ahead;
    uint64_t inode;
    if (clock_machine_code()) {
        check_add_found(finding, "in a time namespace of which the kernel does not tell");
        finding->status = DOCTOR_STATUS_LIMITED;
        free(finding->lost);
        free(finding->remedy);
        doctor_lose(finding,
                "nothing can be recorded: times could not be compared with those of the kernel",
                "start upgate outside of the time namespace, or by `unshare --fork`");
    } else if (clock_compare("/proc/self", &inode, &ahead) == 0 && ahead.monotonic_ns) {
        char *text = xasprintf(
                "in a time namespace, off by %+.9f s: times are brought to the machine's clock",
                (double)ahead.monotonic_ns / 1e9);
        check_add_found(finding, text);
        doctor_fact(finding, "time_namespace_ahead_ns", json_integer(ahead.monotonic_ns));
        free(text);
    }
}

void check_clock(struct doctor *doctor)
{
    char *source =
            doctor_read(doctor, "/sys/devices/system/clocksource/clocksource0/current_clocksource");
    static const char *const fast[] = {
            "tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"};
    bool good = false;
    for (size_t i = 0; source && i < sizeof fast / sizeof *fast; i++)
        good = good || strcmp(source, fast[i]) == 0;
    struct doctor_finding *finding =
            doctor_add(doctor, "clock", good ? DOCTOR_STATUS_OK : DOCTOR_STATUS_LIMITED,
                    "clock source %s", source ? source : "not known");
    if (!good)
        doctor_lose(finding,
                "each reading of the clock may be a system call: step markers cost more",
                "see available_clocksource beside it; boot with clocksource=tsc where the TSC "
                "is stable");
    doctor_fact(finding, "source", source ? json_string(source) : json_null());
    free(source);
    check_time_namespace(finding);
}

void check_shared_memory(struct doctor *doctor)
{
    struct statvfs info;
    char size[32];
    const char *path = "/dev/shm";
    if (statvfs(path, &info) < 0 || access(path, W_OK | X_OK) < 0) {
        struct doctor_finding *finding = doctor_add(doctor, "shared-memory", DOCTOR_STATUS_MISSING,
                "%s cannot be written: %s", path, strerror(errno));
        finding->required = true;
        doctor_lose(finding, "the step protocol has no place: no launch can be started",
                "mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm; docker, podman: --shm-size=1g; Kubernetes: an "
                "emptyDir with medium: Memory at /dev/shm");
        return;
    }
    uint64_t bytes = (uint64_t)info.f_bavail * info.f_frsize;
    bool missing = bytes < CHECK_SHM_MIN, tight = bytes < CHECK_SHM_ENOUGH;
    struct doctor_finding *finding = doctor_add(doctor, "shared-memory",
            missing         ? DOCTOR_STATUS_MISSING
                    : tight ? DOCTOR_STATUS_LIMITED
                            : DOCTOR_STATUS_OK,
            "%s free in %s", unit_format_bytes(size, sizeof size, (double)bytes), path);
    finding->required = missing;
    if (tight)
        doctor_lose(finding,
                "step records are dropped when it is full, which makes a verdict inconclusive; "
                "data loaders of PyTorch need it too",
                "docker: --shm-size=1g; else: mount -o remount,size=1g /dev/shm");
    doctor_fact(finding, "free_bytes", json_integer((json_int_t)bytes));
}

void check_memory(struct doctor *doctor)
{
    char *text = doctor_read(doctor, "/proc/meminfo");
    const char *at = text ? strstr(text, "MemAvailable:") : NULL;
    char size[32], whole[32];
    uint64_t bytes = at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024 : 0;
    json_t *limits = check_limits(doctor);
    const json_t *limit = json_object_get(limits, "memory_max_bytes");
    uint64_t allowed = json_is_integer(limit) ? (uint64_t)json_integer_value(limit) : UINT64_MAX;
    bool bound = at && allowed < bytes,
         tight = !at || (bound ? allowed : bytes) < CHECK_MEMORY_ENOUGH;
    unit_format_bytes(whole, sizeof whole, (double)bytes);
    struct doctor_finding *finding = !at
            ? doctor_add(doctor, "memory", DOCTOR_STATUS_LIMITED, "available memory is not known")
            : bound ? doctor_add(doctor, "memory", tight ? DOCTOR_STATUS_LIMITED : DOCTOR_STATUS_OK,
                              "the cgroup may use %s; the machine has %s available",
                              unit_format_bytes(size, sizeof size, (double)allowed), whole)
                    : doctor_add(doctor, "memory", tight ? DOCTOR_STATUS_LIMITED : DOCTOR_STATUS_OK,
                              "%s available", whole);
    if (tight && bound)
        doctor_lose(finding,
                "both sides of a pair are alive at once, and the kernel ends one of them where they need more",
                "raise the limit (docker: --memory; Kubernetes: limits.memory), use smaller workloads, or interleave: launches");
    else if (tight)
        doctor_lose(finding,
                "both sides of a pair are alive at once; where they do not fit, launches run one "
                "after the other, which needs many more pairs",
                "free memory, or use smaller workloads");
    doctor_fact(finding, "available_bytes",
            at ? json_integer((json_int_t)(bound ? allowed : bytes)) : json_null());
    json_decref(limits);
    free(text);
}

void check_disk(struct doctor *doctor)
{
    struct statvfs info;
    char size[32];
    if (statvfs(".", &info) < 0 || access(".", W_OK | X_OK) < 0) {
        struct doctor_finding *finding = doctor_add(doctor, "disk", DOCTOR_STATUS_LIMITED,
                "this directory cannot be written: %s", strerror(errno));
        doctor_lose(finding, "run.db has no place here", "name another with -o DIRECTORY/run.db");
        return;
    }
    uint64_t bytes = (uint64_t)info.f_bavail * info.f_frsize;
    bool tight = bytes < CHECK_DISK_ENOUGH;
    struct doctor_finding *finding = doctor_add(doctor, "disk",
            tight ? DOCTOR_STATUS_LIMITED : DOCTOR_STATUS_OK, "%s free in this directory",
            unit_format_bytes(size, sizeof size, (double)bytes));
    if (tight)
        doctor_lose(finding, "a run stops when the disk is full (it goes on with --resume)",
                "free space, or name another directory with -o");
    doctor_fact(finding, "free_bytes", json_integer((json_int_t)bytes));
}
