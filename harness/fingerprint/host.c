// SPDX-License-Identifier: Apache-2.0
// Reads the settings of the machine that move performance from /proc and /sys: a table of files,
// and a few facts that need more than one. Reads files only; changes and starts nothing.
#include "harness/fingerprint/host.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/fingerprint/read.h"

enum host_value { HOST_TEXT, HOST_NUMBER, HOST_CHOICE };

struct host_file {
    const char *group, *key, *path;
    enum host_value kind;
};

#define THP "/sys/kernel/mm/transparent_hugepage/"
#define CPU0 "/sys/devices/system/cpu/cpu0/"
#define CLOCKSOURCE "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#define VM "/proc/sys/vm/"
#define KERNEL "/proc/sys/kernel/"

// clang-format off
static const struct host_file host_files[] = {
    {"kernel", "release", KERNEL "osrelease", HOST_TEXT},
    {"kernel", "build", KERNEL "version", HOST_TEXT},
    {"kernel", "clocksource", CLOCKSOURCE, HOST_TEXT},
    {"kernel", "address_randomization", KERNEL "randomize_va_space", HOST_NUMBER},
    {"kernel", "perf_event_paranoid", KERNEL "perf_event_paranoid", HOST_NUMBER},
    {"kernel", "kptr_restrict", KERNEL "kptr_restrict", HOST_NUMBER},
    {"kernel", "sched_autogroup", KERNEL "sched_autogroup_enabled", HOST_NUMBER},
    {"kernel", "sched_rt_runtime_us", KERNEL "sched_rt_runtime_us", HOST_NUMBER},
    {"kernel", "nmi_watchdog", KERNEL "nmi_watchdog", HOST_NUMBER},
    {"kernel", "preemption", "/sys/kernel/debug/sched/preempt", HOST_TEXT},
    {"cpu", "smt_active", "/sys/devices/system/cpu/smt/active", HOST_NUMBER},
    {"cpu", "smt_control", "/sys/devices/system/cpu/smt/control", HOST_TEXT},
    {"cpu", "online", "/sys/devices/system/cpu/online", HOST_TEXT},
    {"cpu", "isolated", "/sys/devices/system/cpu/isolated", HOST_TEXT},
    {"cpu", "frequency_driver", CPU0 "cpufreq/scaling_driver", HOST_TEXT},
    {"cpu", "frequency_min_khz", CPU0 "cpufreq/scaling_min_freq", HOST_NUMBER},
    {"cpu", "frequency_max_khz", CPU0 "cpufreq/scaling_max_freq", HOST_NUMBER},
    {"cpu", "energy_preference", CPU0 "cpufreq/energy_performance_preference", HOST_TEXT},
    {"cpu", "boost", "/sys/devices/system/cpu/cpufreq/boost", HOST_NUMBER},
    {"cpu", "intel_no_turbo", "/sys/devices/system/cpu/intel_pstate/no_turbo", HOST_NUMBER},
    {"cpu", "idle_driver", "/sys/devices/system/cpu/cpuidle/current_driver", HOST_TEXT},
    {"memory", "transparent_huge_pages", THP "enabled", HOST_CHOICE},
    {"memory", "huge_page_defrag", THP "defrag", HOST_CHOICE},
    {"memory", "huge_page_shmem", THP "shmem_enabled", HOST_CHOICE},
    {"memory", "khugepaged_defrag", THP "khugepaged/defrag", HOST_NUMBER},
    {"memory", "khugepaged_scan_sleep_ms", THP "khugepaged/scan_sleep_millisecs", HOST_NUMBER},
    {"memory", "numa_balancing", KERNEL "numa_balancing", HOST_NUMBER},
    {"memory", "swappiness", VM "swappiness", HOST_NUMBER},
    {"memory", "zone_reclaim_mode", VM "zone_reclaim_mode", HOST_NUMBER},
    {"memory", "overcommit_memory", VM "overcommit_memory", HOST_NUMBER},
    {"memory", "compaction_proactiveness", VM "compaction_proactiveness", HOST_NUMBER},
    {"memory", "min_free_kbytes", VM "min_free_kbytes", HOST_NUMBER},
    {"memory", "watermark_scale_factor", VM "watermark_scale_factor", HOST_NUMBER},
    {"memory", "max_map_count", VM "max_map_count", HOST_NUMBER},
    {"memory", "huge_pages_reserved", VM "nr_hugepages", HOST_NUMBER},
    {"memory", "same_page_merging", "/sys/kernel/mm/ksm/run", HOST_NUMBER},
    {"memory", "numa_nodes", "/sys/devices/system/node/online", HOST_TEXT},
    {"memory", "lru_gen", "/sys/kernel/mm/lru_gen/enabled", HOST_TEXT},
    {"machine", "vendor", "/sys/class/dmi/id/sys_vendor", HOST_TEXT},
    {"machine", "product", "/sys/class/dmi/id/product_name", HOST_TEXT},
    {"machine", "hypervisor", "/sys/hypervisor/type", HOST_TEXT},
};
// clang-format on

// CPU flags that decide which kernels a library picks, or what a system call costs.
// clang-format off
static const char *const cpu_flags[] = {
    "sse4_2", "avx", "avx2", "fma", "f16c", "bmi2", "avx_vnni", "avx512f", "avx512bw", "avx512dq",
    "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx512vbmi2", "amx_tile",
    "amx_bf16", "amx_int8", "erms", "fsrm", "pcid", "invpcid", "constant_tsc", "nonstop_tsc",
    "hypervisor", "asimd", "asimdhp", "asimddp", "sve", "sve2", "bf16", "i8mm",
};
// clang-format on

// Boot options that move performance; others (root=, console=) say nothing.
// clang-format off
static const char *const boot_options[] = {
    "mitigations", "isolcpus", "nohz", "nohz_full", "rcu_nocbs", "transparent_hugepage",
    "numa_balancing", "intel_pstate", "amd_pstate", "idle", "processor.max_cstate",
    "intel_idle.max_cstate", "clocksource", "tsc", "preempt", "iommu", "intel_iommu", "amd_iommu",
    "pti", "nopti", "nospectre_v2", "spectre_v2", "hugepages", "hugepagesz", "default_hugepagesz",
    "pcie_aspm", "nosmt", "spec_store_bypass_disable", "retbleed", "init_on_alloc",
    "init_on_free", "slab_nomerge", "audit",
};
// clang-format on

static json_t *group_of(json_t *host, const char *name)
{
    json_t *group = json_object_get(host, name);
    if (!group) {
        group = json_object();
        json_object_set_new(host, name, group);
    }
    return group;
}

static void collect_files(const char *root, json_t *host)
{
    for (size_t i = 0; i < sizeof(host_files) / sizeof(host_files[0]); i++) {
        const struct host_file *file = &host_files[i];
        char *text = read_text("%s%s", root, file->path);
        json_t *value;
        if (text && file->kind == HOST_CHOICE) {
            value = json_text_take(read_choice(text));
            free(text);
        } else {
            value = file->kind == HOST_NUMBER ? json_number_take(text) : json_text_take(text);
        }
        json_object_set_new(group_of(host, file->group), file->key, value);
    }
}

// The value of the first line "KEY<blanks>: VALUE" of /proc/cpuinfo, or NULL.
static char *cpuinfo_value(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length))
            continue;
        const char *colon = line + length + strspn(line + length, " \t");
        if (*colon != ':')
            continue;
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        return xasprintf("%.*s", (int)strcspn(value, "\n"), value);
    }
    return NULL;
}

// The kernel of arm64 tells numbers only. The names are those of lscpu, of the CPUs that stand
// beside GPUs; of others the numbers.
static char *cpuinfo_model(const char *text)
{
    static const struct {
        const char *maker, *part, *name;
    } known[] = {
            {"0x41", "0xd08", "ARM Cortex-A72"},
            {"0x41", "0xd0c", "ARM Neoverse-N1"},
            {"0x41", "0xd40", "ARM Neoverse-V1"},
            {"0x41", "0xd42", "ARM Cortex-A78AE"},
            {"0x41", "0xd49", "ARM Neoverse-N2"},
            {"0x41", "0xd4f", "ARM Neoverse-V2"}, // Grace, Graviton 4
            {"0xc0", "0xac3", "Ampere-1"},
            {"0x4e", "0x004", "NVIDIA Carmel"},
    };
    char *name = cpuinfo_value(text, "model name");
    char *maker = cpuinfo_value(text, "CPU implementer"), *part = cpuinfo_value(text, "CPU part");
    for (size_t i = 0; !name && maker && part && i < sizeof(known) / sizeof(known[0]); i++)
        if (!strcmp(maker, known[i].maker) && !strcmp(part, known[i].part))
            name = xasprintf("%s", known[i].name);
    if (!name && maker && part)
        name = xasprintf("CPU implementer %s, part %s", maker, part);
    free(maker);
    free(part);
    return name;
}

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; at && (at = strstr(at, word)); at += length)
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

static void collect_cpuinfo(const char *root, json_t *cpu)
{
    char *text = read_text("%s/proc/cpuinfo", root);
    char *flags = cpuinfo_value(text, "flags");
    if (!flags)
        flags = cpuinfo_value(text, "Features");
    struct strbuf known = {0};
    for (size_t i = 0; flags && i < sizeof(cpu_flags) / sizeof(cpu_flags[0]); i++)
        if (has_word(flags, cpu_flags[i]))
            strbuf_add(&known, "%s%s", known.len ? " " : "", cpu_flags[i]);
    json_object_set_new(cpu, "model", json_text_take(cpuinfo_model(text)));
    char *family = cpuinfo_value(text, "cpu family"), *number = cpuinfo_value(text, "model");
    char *stepping = cpuinfo_value(text, "stepping");
    json_object_set_new(cpu, "family",
            json_text_take(family && number && stepping
                            ? xasprintf("%s-%s-%s", family, number, stepping)
                            : NULL));
    free(family);
    free(number);
    free(stepping);
    json_object_set_new(cpu, "microcode", json_text_take(cpuinfo_value(text, "microcode")));
    json_object_set_new(cpu, "cache", json_text_take(cpuinfo_value(text, "cache size")));
    json_object_set_new(cpu, "flags", json_text_take(flags ? strbuf_take(&known) : NULL));
    free(flags);
    free(text);
}

// One governor if all CPUs have the same, else all of them: "performance+powersave".
static char *read_governors(const char *root)
{
    char *all = NULL, *pattern = xasprintf("%s/sys/devices/system/cpu", root);
    DIR *dir = opendir(pattern);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, "cpu", 3) || !isdigit((unsigned char)entry->d_name[3]))
            continue;
        char *one = read_text("%s/%s/cpufreq/scaling_governor", pattern, entry->d_name);
        if (one && !all) {
            all = xstrdup(one);
        } else if (one && !strstr(all, one)) {
            char *joined = strcmp(all, one) < 0 ? xasprintf("%s+%s", all, one)
                                                : xasprintf("%s+%s", one, all);
            free(all);
            all = joined;
        }
        free(one);
    }
    if (dir)
        closedir(dir);
    free(pattern);
    return all;
}

static json_t *collect_mitigations(const char *root)
{
    char *path = xasprintf("%s/sys/devices/system/cpu/vulnerabilities", root);
    DIR *dir = opendir(path);
    json_t *object = dir ? json_object() : json_null();
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char *text = entry->d_name[0] == '.' ? NULL : read_text("%s/%s", path, entry->d_name);
        if (text && strcmp(text, "Not affected"))
            json_object_set_new(object, entry->d_name, json_text(text));
        free(text);
    }
    if (dir)
        closedir(dir);
    free(path);
    return object;
}

static json_t *collect_boot_options(const char *root)
{
    char *text = read_text("%s/proc/cmdline", root), *rest = text, *word;
    if (!text)
        return json_null();
    struct strbuf kept = {0};
    while ((word = strsep(&rest, " \t")))
        for (size_t i = 0; i < sizeof(boot_options) / sizeof(boot_options[0]); i++) {
            size_t length = strlen(boot_options[i]);
            if (!strncmp(word, boot_options[i], length) && (!word[length] || word[length] == '='))
                strbuf_add(&kept, "%s%s", kept.len ? " " : "", word);
        }
    free(text);
    return json_text_take(strbuf_take(&kept));
}

static json_t *meminfo_bytes(const char *text, const char *key)
{
    unsigned long long kibibytes;
    const char *line = text ? strstr(text, key) : NULL;
    if (!line || sscanf(line + strlen(key), ": %llu kB", &kibibytes) != 1)
        return json_null();
    return json_integer((json_int_t)kibibytes * 1024);
}

static char *distribution(const char *root)
{
    char *text = read_text("%s/etc/os-release", root), *name = NULL;
    const char *at = text ? strstr(text, "PRETTY_NAME=") : NULL;
    if (at) {
        at += strlen("PRETTY_NAME=");
        at += *at == '"';
        name = xasprintf("%.*s", (int)strcspn(at, "\"\n"), at);
    }
    free(text);
    return name;
}

json_t *host_collect(const char *root)
{
    json_t *host = json_object();
    collect_files(root, host);
    collect_cpuinfo(root, group_of(host, "cpu"));
    json_object_set_new(group_of(host, "cpu"), "governor", json_text_take(read_governors(root)));
    json_object_set_new(group_of(host, "cpu"), "mitigations", collect_mitigations(root));
    json_object_set_new(group_of(host, "kernel"), "boot_options", collect_boot_options(root));
    json_object_set_new(
            group_of(host, "machine"), "distribution", json_text_take(distribution(root)));
    char *meminfo = read_text("%s/proc/meminfo", root);
    json_object_set_new(
            group_of(host, "memory"), "total_bytes", meminfo_bytes(meminfo, "MemTotal"));
    json_object_set_new(
            group_of(host, "memory"), "swap_bytes", meminfo_bytes(meminfo, "SwapTotal"));
    json_object_set_new(
            group_of(host, "memory"), "huge_page_bytes", meminfo_bytes(meminfo, "Hugepagesize"));
    free(meminfo);
    return host;
}
