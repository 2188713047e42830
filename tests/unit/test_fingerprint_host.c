// SPDX-License-Identifier: Apache-2.0
// Machine, GPU and cgroup facts from directories made for the test: settings that this machine does
// not have, both cgroup versions, limits of ancestors, and nothing at all.
#include "harness/fingerprint/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/fingerprint/gpu.h"
#include "harness/fingerprint/limits.h"
#include "tests/unit/runner.h"

static char root[64];

static void make_root(void)
{
    strcpy(root, "/tmp/test_fingerprint_host.XXXXXX");
    CHECK(mkdtemp(root) != NULL);
}

static void remove_root(void)
{
    char *command = xasprintf("rm -rf '%s'", root);
    CHECK_INT(system(command), 0);
    free(command);
}

// Write root/path, with the directories on the way.
static void put(const char *path, const char *text)
{
    char *full = xasprintf("%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
    free(full);
}

static const json_t *at(const json_t *object, const char *group, const char *key)
{
    return json_object_get(json_object_get(object, group), key);
}

static const char *text_at(const json_t *object, const char *group, const char *key)
{
    return json_string_value(at(object, group, key));
}

TEST(settings_of_a_machine)
{
    make_root();
    put("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    put("/proc/sys/kernel/numa_balancing", "1\n");
    put("/proc/sys/vm/swappiness", "60\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("/sys/kernel/mm/transparent_hugepage/defrag",
            "always defer defer+madvise madvise [never]\n");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
    put("/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "powersave\n");
    put("/sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n");
    put("/sys/devices/system/cpu/vulnerabilities/retbleed", "Mitigation: Enhanced IBRS\n");
    put("/proc/cpuinfo",
            "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Test CPU @ 2 "
            "GHz\nstepping\t: 8\n"
            "microcode\t: 0x2b\nflags\t\t: fpu avx avx2 avx512f amx_tile unknown_flag\n\n"
            "processor\t: 1\nmodel name\t: Other\n");
    put("/proc/cmdline", "root=/dev/sda1 mitigations=off quiet isolcpus=2-3 secret=x\n");
    put("/proc/meminfo",
            "MemTotal:       1048576 kB\nSwapTotal:      0 kB\nHugepagesize:   2048 kB\n");
    put("/etc/os-release", "NAME=X\nPRETTY_NAME=\"Test Linux 3\"\n");
    json_t *host = host_collect(root);
    CHECK_STR(text_at(host, "kernel", "release"), "6.1.0-18-amd64");
    CHECK_STR(text_at(host, "kernel", "boot_options"), "mitigations=off isolcpus=2-3");
    CHECK_INT(json_integer_value(at(host, "memory", "numa_balancing")), 1);
    CHECK_STR(text_at(host, "memory", "transparent_huge_pages"), "madvise");
    CHECK_STR(text_at(host, "memory", "huge_page_defrag"), "never");
    CHECK_INT(json_integer_value(at(host, "memory", "total_bytes")), 1LL << 30);
    CHECK_INT(json_integer_value(at(host, "memory", "swap_bytes")), 0); // none is 0, not unknown
    CHECK(json_is_integer(at(host, "memory", "swap_bytes")));
    CHECK_STR(text_at(host, "cpu", "governor"), "performance+powersave");
    CHECK_STR(text_at(host, "cpu", "model"), "Test CPU @ 2 GHz");
    CHECK_STR(text_at(host, "cpu", "family"), "6-143-8");
    CHECK_STR(text_at(host, "cpu", "microcode"), "0x2b");
    CHECK_STR(text_at(host, "cpu", "flags"), "avx avx2 avx512f amx_tile");
    const json_t *mitigations = at(host, "cpu", "mitigations");
    CHECK_INT(json_object_size(mitigations), 1);
    CHECK_STR(json_string_value(json_object_get(mitigations, "retbleed")),
            "Mitigation: Enhanced IBRS");
    CHECK_STR(text_at(host, "machine", "distribution"), "Test Linux 3");
    CHECK(json_is_null(at(host, "kernel", "clocksource"))); // not in this root
    json_decref(host);
    remove_root();
}

TEST(an_arm64_machine_has_a_cpu_model_too)
{
    static const struct {
        const char *part, *model;
    } cases[] = {{"0xd4f", "ARM Neoverse-V2"}, {"0xfff", "CPU implementer 0x41, part 0xfff"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[400];
        snprintf(text, sizeof(text),
                "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve2 bf16 paca\nCPU implementer\t: 0x41\n"
                "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: %s\nCPU revision\t: 0\n",
                cases[i].part);
        make_root();
        put("/proc/cpuinfo", text);
        json_t *host = host_collect(root);
        CHECK_STR(text_at(host, "cpu", "model"), cases[i].model);
        CHECK_STR(text_at(host, "cpu", "flags"), "asimd sve2 bf16");
        json_decref(host);
        remove_root();
    }
}

TEST(a_machine_that_shows_nothing)
{
    make_root();
    json_t *host = host_collect(root), *missing = json_object();
    CHECK(json_is_null(at(host, "kernel", "release")));
    CHECK(json_is_null(at(host, "cpu", "model")));
    CHECK(json_is_null(at(host, "cpu", "governor")));
    CHECK(json_is_null(at(host, "memory", "total_bytes")));
    json_t *gpu = gpu_collect(root, "/no/such/nvml.so", missing);
    CHECK(json_is_null(gpu));
    CHECK_INT(json_object_size(missing), 0); // no driver: nothing is missing
    json_decref(gpu);
    json_decref(missing);
    json_decref(host);
    remove_root();
}

static const char nvidia_version[] =
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs)\n"
        "GCC version:  gcc version 12.2.0\n";

TEST(gpu_without_nvml)
{
    make_root();
    put("/proc/driver/nvidia/version", nvidia_version);
    put("/proc/driver/nvidia/gpus/0000:01:00.0/information",
            "Model: \t\t NVIDIA H100\nIRQ:   \t\t 11\nGPU UUID: \t GPU-aaaa\nVideo BIOS: \t 96.00\n");
    json_t *missing = json_object(), *gpu = gpu_collect(root, "/no/such/nvml.so", missing);
    // The version behind "Kernel Module", not the 64 of "x86_64".
    CHECK_STR(json_string_value(json_object_get(gpu, "driver")), "550.54.15");
    CHECK(json_is_true(json_object_get(gpu, "open_kernel_module")));
    const json_t *card = json_array_get(json_object_get(gpu, "devices"), 0);
    CHECK_STR(json_string_value(json_object_get(card, "name")), "NVIDIA H100");
    CHECK_STR(json_string_value(json_object_get(card, "uuid")), "GPU-aaaa");
    CHECK(json_object_get(missing, "host.gpu.devices") != NULL);
    json_decref(gpu);
    json_decref(missing);
    remove_root();
}

TEST(gpu_with_libraries_of_another_driver)
{
    make_root();
    put("/proc/driver/nvidia/version", nvidia_version);
    setenv("FAKE_NVML_INIT", "18", 1);
    json_t *missing = json_object(), *gpu = gpu_collect(root, FIXTURE_NVML, missing);
    CHECK_STR(json_string_value(json_object_get(gpu, "driver")), "550.54.15");
    CHECK_CONTAINS(
            json_string_value(json_object_get(missing, "host.gpu.devices")), GPU_OTHER_DRIVER);
    json_decref(gpu);
    json_decref(missing);
    remove_root();
}

TEST(gpu_through_nvml)
{
    make_root();
    json_t *missing = json_object(), *gpu = gpu_collect(root, FIXTURE_NVML, missing);
    CHECK_STR(json_string_value(json_object_get(gpu, "driver")), "575.51.03");
    CHECK_STR(json_string_value(json_object_get(gpu, "cuda_driver")), "12.9");
    CHECK_INT(json_array_size(json_object_get(gpu, "devices")), 1);
    const json_t *card = json_array_get(json_object_get(gpu, "devices"), 0);
    CHECK_STR(json_string_value(json_object_get(card, "name")), "Test Card 100");
    CHECK_INT(json_integer_value(json_object_get(card, "memory_bytes")), 85899345920LL);
    CHECK_INT(json_integer_value(json_object_get(card, "power_limit_mw")), 700000);
    CHECK_INT(json_integer_value(json_object_get(card, "clock_max_mhz")), 1980);
    CHECK(json_is_null(json_object_get(card, "ecc"))); // refused by the driver
    CHECK(json_is_null(json_object_get(card, "mig"))); // not in the library
    CHECK_INT(json_object_size(missing), 0);
    json_decref(gpu);
    json_decref(missing);
    remove_root();
}

// A process in /proc/9 of the root, and a mountinfo that mounts hierarchies inside the root.
static json_t *cgroup_of(const char *cgroup, const char *mounts_fmt, json_t *missing)
{
    char *mounts = xcalloc(1, 8192), *proc = xasprintf("%s/proc/9", root);
    char *mountinfo = xasprintf("%s/mountinfo", root);
    snprintf(mounts, 8192, mounts_fmt, root, root, root, root);
    put("/mountinfo", mounts);
    put("/proc/9/cgroup", cgroup);
    json_t *object = limits_cgroup(proc, mountinfo, missing);
    free(mounts);
    free(proc);
    free(mountinfo);
    return object;
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

TEST(cgroup_v2_takes_the_tightest_on_the_way_up)
{
    make_root();
    put("/cg/pod/job/cpu.max", "400000 100000\n");
    put("/cg/pod/job/memory.max", "max\n");
    put("/cg/pod/job/cpu.weight", "100\n");
    put("/cg/pod/job/cpuset.cpus.effective", "0-3\n");
    put("/cg/pod/cpu.max", "150000 100000\n"); // binds more than the job's own
    put("/cg/pod/memory.max", "1073741824\n");
    put("/cg/pod/pids.max", "max\n");
    json_t *missing = json_object();
    json_t *object = cgroup_of(
            "0::/pod/job\n", "30 23 0:26 / %s/cg rw shared:4 - cgroup2 cgroup2 rw\n", missing);
    CHECK_STR(json_string_value(json_object_get(object, "version")), "v2");
    CHECK_DBL(number(object, "cpu_quota_cores"), 1.5, 1e-9);
    CHECK_DBL(number(object, "memory_max_bytes"), 1073741824.0, 0);
    CHECK_STR(json_string_value(json_object_get(object, "tasks_max")), "unlimited");
    CHECK_STR(json_string_value(json_object_get(object, "cpuset_cpus")), "0-3");
    CHECK_INT(number(object, "cpu_weight"), 100);
    CHECK(json_is_null(json_object_get(object, "cpuset_mems"))); // not told is not unlimited
    CHECK_STR(json_string_value(json_object_get(object, "path")), "/pod/job");
    json_decref(object);
    json_decref(missing);
    remove_root();
}

TEST(cgroup_v1_has_a_hierarchy_a_controller)
{
    make_root();
    put("/cpu/job/cpu.cfs_quota_us", "50000\n");
    put("/cpu/job/cpu.cfs_period_us", "100000\n");
    put("/cpu/job/cpu.shares", "512\n");
    put("/cpu/cpu.cfs_quota_us", "-1\n");
    put("/cpu/cpu.cfs_period_us", "100000\n");
    put("/memory/other/memory.limit_in_bytes", "9223372036854771712\n"); // v1's "no limit"
    put("/memory/memory.limit_in_bytes", "9223372036854771712\n");
    json_t *missing = json_object();
    json_t *object = cgroup_of("4:memory:/other\n2:cpu,cpuacct:/job\n0::/\n",
            "30 23 0:26 / %s/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
            "31 23 0:27 / %s/memory rw - cgroup cgroup rw,memory\n"
            "32 23 0:28 / %s/unified rw - cgroup2 cgroup2 rw\n",
            missing);
    CHECK_STR(json_string_value(json_object_get(object, "version")), "v1");
    CHECK_DBL(number(object, "cpu_quota_cores"), 0.5, 1e-9);
    CHECK_INT(number(object, "cpu_weight"), 512);
    CHECK_STR(json_string_value(json_object_get(object, "memory_max_bytes")), "unlimited");
    json_decref(object);
    json_decref(missing);
    remove_root();
}

TEST(cgroup_of_a_container_is_mounted_from_its_middle)
{
    make_root();
    put("/cg/memory.max", "2048\n");
    put("/cg/sub/memory.max", "max\n");
    json_t *missing = json_object();
    json_t *object = cgroup_of("0::/docker/abc/sub\n",
            "30 23 0:26 /docker/abc %s/cg rw - cgroup2 cgroup rw\n", missing);
    CHECK_INT(number(object, "memory_max_bytes"), 2048);
    json_decref(object);
    json_decref(missing);
    remove_root();
}

static int64_t room_of(const char *cgroup, const char *mounts)
{
    json_t *missing = json_object();
    json_decref(cgroup_of(cgroup, mounts, missing)); // writes the files
    json_decref(missing);
    char *proc = xasprintf("%s/proc/9", root), *mountinfo = xasprintf("%s/mountinfo", root);
    int64_t bytes = limits_memory_free_bytes(proc, mountinfo);
    free(proc);
    free(mountinfo);
    return bytes;
}

TEST(memory_that_the_groups_on_the_way_up_still_allow)
{
    static const char v2[] = "30 23 0:26 / %s/cg rw shared:4 - cgroup2 cgroup2 rw\n";
    make_root();
    put("/cg/pod/job/memory.max", "max\n");
    put("/cg/pod/job/memory.current", "900\n");
    CHECK(room_of("0::/pod/job\n", v2) == INT64_MAX);
    put("/cg/pod/memory.max", "1000\n");
    put("/cg/pod/memory.current", "900\n");
    CHECK_INT(room_of("0::/pod/job\n", v2), 100);
    // the kernel gives these back first
    put("/cg/pod/memory.stat", "anon 100\ninactive_file 300\nactive_file 400\n");
    CHECK_INT(room_of("0::/pod/job\n", v2), 400);
    put("/cg/pod/job/memory.max", "950\n");
    CHECK_INT(room_of("0::/pod/job\n", v2), 50);
    put("/cg/pod/job/memory.current", "960\n");
    CHECK_INT(room_of("0::/pod/job\n", v2), 0);
    put("/memory/job/memory.limit_in_bytes", "5000\n");
    put("/memory/job/memory.usage_in_bytes", "3000\n");
    put("/memory/job/memory.stat", "inactive_file 7\ntotal_inactive_file 500\n");
    put("/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/memory/memory.usage_in_bytes", "8000\n");
    CHECK_INT(room_of("4:memory:/job\n0::/\n",
                      "31 23 0:27 / %s/memory rw - cgroup cgroup rw,memory\n"),
            2500);
    CHECK(room_of("0::/\n", "30 23 0:26 / %s/proc rw - proc proc rw\n") == INT64_MAX);
    remove_root();
}

TEST(no_cgroups_are_unknown_not_unlimited)
{
    make_root();
    json_t *missing = json_object();
    json_t *object = cgroup_of("0::/\n", "30 23 0:26 / %s/proc rw - proc proc rw\n", missing);
    CHECK(json_is_null(json_object_get(object, "cpu_quota_cores")));
    CHECK(json_is_null(json_object_get(object, "version")));
    json_decref(object);
    object = limits_cgroup("/no/such/proc", "/no/such/mountinfo", missing);
    CHECK(json_object_get(missing, "process.cgroup") != NULL);
    json_decref(object);
    json_decref(missing);
    remove_root();
}

TEST(limits_and_memory_of_a_process)
{
    make_root();
    put("/proc/9/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max stack size            8388608              unlimited            bytes     \n"
            "Max open files            1024                 4096                 files     \n");
    put("/proc/9/status", "Name:\tx\nTHP_enabled:\t0\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n");
    put("/proc/9/personality", "00040000\n");
    char *proc = xasprintf("%s/proc/9", root);
    json_t *missing = json_object(), *limits = limits_rlimits(proc, missing);
    CHECK_INT(json_integer_value(at(limits, "open_files", "hard")), 4096);
    CHECK_STR(text_at(limits, "stack_bytes", "hard"), "unlimited");
    json_t *memory = limits_memory(proc, missing);
    CHECK_STR(json_string_value(json_object_get(memory, "transparent_huge_pages")), "disabled");
    CHECK(json_is_false(json_object_get(memory, "address_randomization")));
    json_t *scheduling = limits_scheduling(proc, missing);
    CHECK_STR(json_string_value(json_object_get(scheduling, "cpus")), "0-3");
    CHECK(json_object_get(missing, "process.scheduling.policy") != NULL);
    json_decref(limits);
    json_decref(memory);
    json_decref(scheduling);
    json_decref(missing);
    free(proc);
    remove_root();
}
