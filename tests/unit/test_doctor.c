// SPDX-License-Identifier: Apache-2.0
// The doctor on machines made of files: what it says when something is there, limited or missing.
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/doctor/check.h"
#include "tests/unit/runner.h"

static char root[] = "/tmp/upgate-doctor-XXXXXX";

static void machine_new(void)
{
    CHECK(mkdtemp(root) != NULL);
}

static void machine_write(const char *path, const char *text)
{
    char *full = xasprintf("%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    free(full);
}

static void machine_remove(void)
{
    char *command = xasprintf("rm -r '%s'", root);
    CHECK_INT(system(command), 0);
    free(command);
}

static void expect_remedy(void (*check)(struct doctor *), enum doctor_status status,
        const char *words, const char *remedy)
{
    struct doctor *doctor = xcalloc(1, sizeof *doctor);
    doctor->root = root;
    check(doctor);
    CHECK_INT(doctor->count, 1);
    CHECK_INT(doctor->findings[0].status, status);
    CHECK_CONTAINS(doctor->findings[0].found, words);
    CHECK_INT(doctor->findings[0].lost == NULL, status == DOCTOR_STATUS_OK);
    CHECK_INT(doctor->findings[0].remedy == NULL, status == DOCTOR_STATUS_OK);
    if (remedy)
        CHECK_CONTAINS(doctor->findings[0].remedy, remedy);
    doctor_free(doctor);
}

static void expect(void (*check)(struct doctor *), enum doctor_status status, const char *words)
{
    expect_remedy(check, status, words, NULL);
}

TEST(a_bare_machine_is_limited_everywhere)
{
    machine_new();
    expect(check_load, DOCTOR_STATUS_LIMITED, "cannot be read");
    expect(check_pressure, DOCTOR_STATUS_LIMITED, "no PSI");
    expect(check_steal, DOCTOR_STATUS_LIMITED, "does not tell");
    expect(check_frequency, DOCTOR_STATUS_LIMITED, "cannot be seen");
    expect(check_clock, DOCTOR_STATUS_LIMITED, "not known");
    expect(check_memory, DOCTOR_STATUS_LIMITED, "not known");
    expect(check_tracing, DOCTOR_STATUS_LIMITED, "BTF no");
    expect(check_kernel_symbols, DOCTOR_STATUS_LIMITED, "no /proc/kallsyms");
    expect(check_python_stacks, DOCTOR_STATUS_LIMITED, "own processes only");
    expect(check_lockdown, DOCTOR_STATUS_OK, "not mounted");
    machine_remove();
}

// Whoever may run a program with file capabilities has them: never everybody.
TEST(capabilities_are_given_to_a_group)
{
    machine_new();
    machine_write("/sys/kernel/btf/vmlinux", "x");
    struct doctor *doctor = xcalloc(1, sizeof *doctor);
    doctor->root = root;
    check_tracing(doctor);
    const char *remedy = doctor->findings[0].remedy;
    CHECK_CONTAINS(remedy, "chmod 0750");
    // a change of the group takes them away
    CHECK_CONTAINS(strstr(remedy, "chgrp upgate"), "setcap cap_bpf");
    doctor_free(doctor);
    machine_remove();
}

TEST(a_good_machine_is_ok)
{
    machine_new();
    machine_write("/proc/loadavg", "0.02 0.05 0.01 1/123 4567\n");
    machine_write("/proc/pressure/cpu", "some avg10=0.10 avg60=0.25 avg300=0.05 total=123\n");
    machine_write("/proc/stat", "cpu  1000 0 500 98000 100 0 10 20 0 0\n");
    machine_write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
    machine_write("/sys/devices/system/cpu/intel_pstate/no_turbo", "1\n");
    machine_write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    machine_write("/proc/meminfo", "MemTotal: 64000000 kB\nMemAvailable:   16777216 kB\n");
    machine_write("/proc/self/status", "Name: x\nCapEff:\t000001ffffffffff\n");
    machine_write("/sys/kernel/btf/vmlinux", "btf");
    expect(check_load, DOCTOR_STATUS_OK, "0.02");
    expect(check_pressure, DOCTOR_STATUS_OK, "0.25 %");
    expect(check_steal, DOCTOR_STATUS_OK, "0.02 %");
    expect(check_frequency, DOCTOR_STATUS_OK, "turbo off");
    expect(check_clock, DOCTOR_STATUS_OK, "tsc");
    expect(check_memory, DOCTOR_STATUS_OK, "16.0 GiB available");
    machine_write(
            "/proc/kallsyms", "0000000000000000 A fixed_percpu_data\nffffffff81000000 T _text\n");
    machine_write("/proc/sys/kernel/kptr_restrict", "1\n");
    machine_write("/proc/sys/kernel/yama/ptrace_scope", "1\n");
    machine_write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    machine_write("/proc/sys/kernel/osrelease", "6.18.44-x\n");
    expect(check_tracing, DOCTOR_STATUS_OK, "BPF yes"); // below another root nothing is loaded
    expect(check_kernel_symbols, DOCTOR_STATUS_OK, "kptr_restrict 1");
    expect(check_python_stacks, DOCTOR_STATUS_OK, "any process");
    expect(check_lockdown, DOCTOR_STATUS_OK, "integrity");
    machine_remove();
}

TEST(a_troubled_machine_says_what_to_do)
{
    machine_new();
    machine_write("/proc/loadavg", "900.5 0.05 0.01 1/123 4567\n");
    machine_write("/proc/stat", "cpu  1000 0 500 90000 100 0 10 8000 0 0\n");
    machine_write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    machine_write("/sys/devices/system/cpu/cpufreq/boost", "1\n");
    machine_write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
    machine_write("/proc/meminfo", "MemAvailable:   1024 kB\n");
    expect(check_load, DOCTOR_STATUS_LIMITED, "900.50");
    expect(check_steal, DOCTOR_STATUS_LIMITED, "8 %");
    expect(check_frequency, DOCTOR_STATUS_LIMITED, "'powersave', turbo on");
    expect(check_clock, DOCTOR_STATUS_LIMITED, "hpet");
    expect(check_memory, DOCTOR_STATUS_LIMITED, "1.00 MiB available");
    machine_write("/proc/self/status", "Name: x\nCapEff:\t0000000000000000\n");
    machine_write(
            "/proc/kallsyms", "0000000000000000 A fixed_percpu_data\n0000000000000000 T _text\n");
    machine_write("/proc/sys/kernel/kptr_restrict", "2\n");
    machine_write("/proc/sys/kernel/yama/ptrace_scope", "3\n");
    machine_write("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    expect(check_tracing, DOCTOR_STATUS_LIMITED, "BPF no");
    expect(check_kernel_symbols, DOCTOR_STATUS_LIMITED, "kptr_restrict 2");
    expect(check_python_stacks, DOCTOR_STATUS_LIMITED, "no other process");
    expect(check_lockdown, DOCTOR_STATUS_LIMITED, "confidentiality");
    machine_remove();
}

TEST(a_cpu_quota_is_found)
{
    machine_new();
    char *group = xasprintf("%s/cgroup", root);
    char *mounts = xasprintf("30 20 0:26 / %s rw - cgroup2 cgroup2 rw\n", group);
    machine_write("/proc/self/cgroup", "0::/job\n");
    machine_write("/proc/self/mountinfo", mounts);
    machine_write("/cgroup/cgroup.controllers", "cpu memory\n");
    machine_write("/cgroup/job/cgroup.controllers", "cpu memory\n");
    machine_write("/cgroup/job/cpu.max", "150000 100000\n");
    expect(check_quota, DOCTOR_STATUS_LIMITED, "1.5 CPUs");
    free(group);
    free(mounts);
    machine_remove();
}

// A container on a large machine has what its cgroup allows.
TEST(a_limit_of_memory_is_found)
{
    machine_new();
    char *mounts = xasprintf("30 20 0:26 / %s/cgroup rw - cgroup2 cgroup2 rw\n", root);
    machine_write("/proc/meminfo", "MemTotal: 64000000 kB\nMemAvailable:   16777216 kB\n");
    machine_write("/proc/self/cgroup", "0::/job\n");
    machine_write("/proc/self/mountinfo", mounts);
    machine_write("/cgroup/job/memory.max", "max\n");
    expect(check_memory, DOCTOR_STATUS_OK, "16.0 GiB available");
    machine_write("/cgroup/job/memory.max", "1073741824\n");
    expect_remedy(check_memory, DOCTOR_STATUS_LIMITED,
            "the cgroup may use 1.00 GiB; the machine has 16.0 GiB available", "--memory");
    machine_write("/cgroup/job/memory.max", "8589934592\n");
    expect(check_memory, DOCTOR_STATUS_OK, "the cgroup may use 8.00 GiB");
    free(mounts);
    machine_remove();
}

// One CPU of many that are online is one CPU.
TEST(a_session_with_one_cpu)
{
    cpu_set_t cpus;
    int one = 0;
    CHECK_INT(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    while (!CPU_ISSET(one, &cpus))
        one++;
    CPU_ZERO(&cpus);
    CPU_SET(one, &cpus);
    CHECK_INT(sched_setaffinity(0, sizeof cpus, &cpus), 0);
    expect_remedy(
            check_cpus, DOCTOR_STATUS_LIMITED, "both sides would be pinned to ", "2 CPUs or more");
}

TEST(memory_of_processes_that_only_administrators_may_read)
{
    machine_new();
    machine_write("/proc/self/status",
            "Name: x\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n");
    machine_write("/proc/sys/kernel/yama/ptrace_scope", "2\n");
    expect_remedy(check_python_stacks, DOCTOR_STATUS_LIMITED, "no other process", "CAP_SYS_PTRACE");
    machine_write("/proc/sys/kernel/yama/ptrace_scope", "1\n");
    expect(check_python_stacks, DOCTOR_STATUS_LIMITED, "own children only");
    machine_remove();
}

// What helps a user on a machine, file capabilities, does not help root of a container.
TEST(root_of_a_container_is_told_of_the_container)
{
    machine_new();
    machine_write("/sys/kernel/btf/vmlinux", "x");
    machine_write("/proc/self/status", "Name: x\nUid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n");
    expect_remedy(check_tracing, DOCTOR_STATUS_LIMITED, "BPF no", "--cap-add BPF");
    machine_write("/proc/self/status",
            "Name: x\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n");
    expect_remedy(check_tracing, DOCTOR_STATUS_LIMITED, "BPF no", "setcap");
    machine_remove();
}

// After an upgrade of the driver without a reboot the GPU is there, and nothing can use it.
TEST(libraries_of_another_driver)
{
    machine_new();
    CHECK(dlopen(FIXTURE_NVML, RTLD_NOW | RTLD_LOCAL) != NULL); // it has the name of the system's
    machine_write("/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n");
    machine_write("/proc/driver/nvidia/gpus/0000:01:00.0/information",
            "Model: \t NVIDIA H100\nGPU UUID: \t GPU-aaaa\n");
    expect(check_gpu, DOCTOR_STATUS_OK, "driver 575.51.03");
    setenv("FAKE_NVML_INIT", "18", 1); // NVML_ERROR_LIB_RM_VERSION_MISMATCH
    expect_remedy(check_gpu, DOCTOR_STATUS_MISSING,
            "1 GPU, NVIDIA H100; driver 550.54.15; the driver's libraries", "reboot");
    setenv("FAKE_NVML_INIT", "999", 1);
    expect_remedy(check_gpu, DOCTOR_STATUS_LIMITED, "1 GPU, NVIDIA H100; driver 550.54.15",
            "libnvidia-ml.so.1");
    machine_remove();
}

TEST(a_place_for_certificates_that_cannot_be_written)
{
    setenv("UPGATE_STATE_DIR", "/dev/null/state", 1);
    expect_remedy(check_calibration, DOCTOR_STATUS_LIMITED,
            "'/dev/null/state/calibration.db' cannot be written", "UPGATE_STATE_DIR");
    char dir[] = "/tmp/upgate-doctor-state-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *state = xasprintf("%s/to/come", dir);
    setenv("UPGATE_STATE_DIR", state, 1);
    expect_remedy(check_calibration, DOCTOR_STATUS_LIMITED, "this host has no certificate",
            "upgate ab --aa");
    CHECK_INT(rmdir(dir), 0); // nothing was made
    free(state);
}

TEST(what_is_required_and_missing_stops_the_main_job)
{
    struct doctor *doctor = xcalloc(1, sizeof *doctor);
    doctor->root = "";
    doctor_lose(doctor_add(doctor, "one", DOCTOR_STATUS_MISSING, "not %s", "there"), "a", "b");
    CHECK(doctor_can_run(doctor));
    struct doctor_finding *finding = doctor_add(doctor, "two", DOCTOR_STATUS_MISSING, "gone");
    doctor_lose(finding, "all", "buy one");
    finding->required = true;
    CHECK(!doctor_can_run(doctor));
    json_t *document = doctor_json(doctor);
    CHECK(json_is_false(json_object_get(document, "can_run")));
    CHECK_STR(json_string_value(json_object_get(document, "schema")), "upgate.doctor/1");
    json_decref(document);
    char *text = NULL;
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    struct error err = {0};
    CHECK_INT(doctor_print(doctor, &(struct render_opts){0}, file, &err), 0);
    fclose(file);
    CHECK_STR(text,
            "`upgate ab` CANNOT run here: 0 ok, 0 limited, 2 missing\n\n"
            "missing  two            gone\n"
            "                        lost: all\n"
            "                        do:   buy one\n"
            "missing  one            not there\n"
            "                        lost: a\n"
            "                        do:   b\n");
    free(text);
    doctor_free(doctor);
}
