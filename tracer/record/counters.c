// SPDX-License-Identifier: Apache-2.0
// Numbers of the machine that tell why.
#include "tracer/record/counters.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/strings.h"

enum {
    COUNTERS_FILE_MAX = 1 << 20,
    COUNTERS_GROUP_FILE_MAX = 4096,
    COUNTERS_CPUS_MAX = 1024,
    COUNTERS_DIRECTORIES_MAX = 200000, // then the walk ends: more than that is the answer, too
    // reading those of ranks takes one part of so many: of a thousand not each second
    COUNTERS_RANKS_SHARE = 100,
};

static const ino_t counters_first_namespace = 0xEFFFFFFB; // PROC_CGROUP_INIT_INO of linux/proc_ns.h

struct counters_rank {
    int32_t rank;
    char *cpu_stat; // NULL: none
};

struct counters {
    struct writer *writer;
    int64_t recording_id;
    char *cpu_stat;     // of the target's cgroup; NULL: none
    char *memory_mount; // directory whose directories are the memory cgroups; NULL: none
    struct counters_rank *ranks;
    size_t rank_count;
    bool apart; // they have, or had, more than one cgroup
    int64_t ranks_next_ns;
};

void counters_put(struct counters *counters, int64_t now_ns, const char *source, const char *name,
        int64_t value)
{
    struct row row = writer_row(counters->writer, WRITER_COUNTER);
    row_int(&row, counters->recording_id);
    row_int(&row, now_ns);
    row_text(&row, source);
    row_text(&row, name);
    row_int(&row, value);
    writer_put(counters->writer, &row);
}

// Where a controller is mounted: its own hierarchy, or the unified one. Caller frees.
static char *counters_mount(const char *controller)
{
    char *text = string_read_file("/proc/self/mounts", COUNTERS_FILE_MAX, NULL), *found = NULL,
         *unified = NULL;
    for (char *line = text; line && *line && !found;
            line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char where[512], kind[64], options[512];
        if (sscanf(line, "%*s %511s %63s %511s", where, kind, options) != 3)
            continue;
        char *word = xasprintf(",%s,", controller), *list = xasprintf(",%s,", options);
        if (strcmp(kind, "cgroup") == 0 && strstr(list, word))
            found = xstrdup(where);
        else if (strcmp(kind, "cgroup2") == 0 && !unified)
            unified = xstrdup(where);
        free(word);
        free(list);
    }
    free(text);
    if (found)
        free(unified);
    return found ? found : unified;
}

// DIRECTORY/cpu.stat of a process.
char *counters_cpu_stat(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    char *text = string_read_file(path, 1 << 16, NULL), *mount = counters_mount("cpu"),
         *found = NULL;
    for (char *line = text; mount && line && *line;
            line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char controllers[256] = "", group[1024];
        bool unified = sscanf(line, "0::%1023[^\n]", group) == 1;
        if (!unified && sscanf(line, "%*d:%255[^:]:%1023[^\n]", controllers, group) != 2)
            continue;
        char *list = xasprintf(",%s,", controllers),
             *candidate = xasprintf("%s%s/cpu.stat", mount, group);
        bool ours = (unified || strstr(list, ",cpu,")) && access(candidate, R_OK) == 0;
        free(list);
        if (ours && !found)
            found = candidate;
        else
            free(candidate);
    }
    free(text);
    free(mount);
    return found;
}

struct counters *counters_new(
        struct writer *writer, int64_t recording_id, pid_t pid, const char *cgroup, int32_t rank)
{
    struct counters *counters = xcalloc(1, sizeof *counters);
    counters->writer = writer;
    counters->recording_id = recording_id;
    counters->cpu_stat = cgroup ? xasprintf("%s/cpu.stat", cgroup)
            : pid               ? counters_cpu_stat(pid)
                                : NULL;
    counters->memory_mount = counters_mount("memory");
    if (rank >= 0)
        vector_push(counters->ranks, counters->rank_count,
                ((struct counters_rank){
                        rank, counters->cpu_stat ? xstrdup(counters->cpu_stat) : NULL}));
    return counters;
}

void counters_free(struct counters *counters)
{
    if (!counters)
        return;
    for (size_t i = 0; i < counters->rank_count; i++)
        free(counters->ranks[i].cpu_stat);
    free(counters->ranks);
    free(counters->cpu_stat);
    free(counters->memory_mount);
    free(counters);
}

static bool counters_wanted(const char *name)
{
    static const char *const names[] = {"pgmajfault", "pgscan_direct", "pgsteal_direct",
            "compact_stall", "compact_fail", "compact_success", "compact_migrate_scanned",
            "compact_free_scanned", "compact_daemon_wake", "numa_pte_updates", "numa_hint_faults",
            "numa_pages_migrated", "pgmigrate_success", "pgmigrate_fail", "thp_fault_alloc",
            "thp_fault_fallback", "thp_collapse_alloc", "thp_collapse_alloc_failed",
            "thp_split_page", "pswpin", "pswpout", "oom_kill", "nr_dirty", "nr_writeback",
            "balloon_inflate", "nr_throttled_written"};
    if (strncmp(name, "allocstall", 10) == 0)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

// Lines "NAME NUMBER". rank: whose they are; -1: the target's, or the machine's.
static void counters_pairs(struct counters *counters, int64_t now_ns, const char *path,
        const char *source, bool all, int32_t rank)
{
    char *text = string_read_file(path, COUNTERS_FILE_MAX, NULL);
    for (char *line = text; line && *line;
            line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char name[64], own[96];
        int64_t value = 0;
        if (sscanf(line, "%63s %" SCNd64, name, &value) != 2 || !(all || counters_wanted(name)))
            continue;
        snprintf(own, sizeof own, "%s rank %d", name, (int)rank);
        counters_put(counters, now_ns, source, rank < 0 ? name : own, value);
    }
    free(text);
}

static void counters_steal(struct counters *counters, int64_t now_ns)
{
    int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
    char *text = string_read_file("/proc/stat", COUNTERS_FILE_MAX, NULL);
    for (char *line = text; line && *line;
            line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char name[64];
        int cpu = 0;
        int64_t steal = 0;
        if (sscanf(line, "cpu%d %*u %*u %*u %*u %*u %*u %*u %" SCNd64, &cpu, &steal) != 2 ||
                cpu >= COUNTERS_CPUS_MAX)
            continue;
        snprintf(name, sizeof name, "cpu%d.steal_ns", cpu);
        counters_put(counters, now_ns, "stat", name, steal * tick_ns);
    }
    free(text);
}

static void counters_pressure(struct counters *counters, int64_t now_ns)
{
    static const char *const kinds[] = {"cpu", "memory", "io"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/pressure/%s", kinds[i]);
        char *text = string_read_file(path, 4096, NULL);
        for (char *line = text; line && *line;
                line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            char word[16], name[64];
            const char *total = strstr(line, "total=");
            if (!total || sscanf(line, "%15s", word) != 1)
                continue;
            snprintf(name, sizeof name, "%s.%s_us", kinds[i], word);
            counters_put(counters, now_ns, "psi", name, strtoll(total + 6, NULL, 10));
        }
        free(text);
    }
}

static char *counters_group_text(const char *group, const char *file)
{
    char *path = xasprintf("%s/%s", group, file),
         *text = string_read_file(path, COUNTERS_GROUP_FILE_MAX, NULL);
    free(path);
    return text;
}

// Has the cgroup a quota? Asked first: to read cpu.stat of a large cgroup is to have the kernel add
// up all below it.
static bool counters_is_limited(const char *group)
{
    // version 2: "max 100000", or "50000 100000"
    char *text = counters_group_text(group, "cpu.max");
    bool limited = text && strncmp(text, "max", 3) != 0;
    if (!text && (text = counters_group_text(group, "cpu.cfs_quota_us"))) // -1: none
        limited = strtoll(text, NULL, 10) > 0;
    free(text);
    return limited;
}

static int64_t counters_throttled(const char *group)
{
    static const char name[] = "nr_throttled ";
    char *text = counters_group_text(group, "cpu.stat"), *at = text ? strstr(text, name) : NULL;
    int64_t value = at ? strtoll(at + sizeof name - 1, NULL, 10) : 0;
    free(text);
    return value;
}

// A quota may stand on a cgroup above (of a pod, a slice), and is counted there alone.
static void counters_above(
        struct counters *counters, int64_t now_ns, const char *cpu_stat, int32_t rank)
{
    char *group = xstrdup(cpu_stat), *end = strrchr(group, '/'), *name;
    int64_t sum = 0;
    bool limited = false;
    while (end > group && end[-1] == '/') // of a root: "/sys/fs/cgroup//cpu.stat"
        end--;
    if (end)
        *end = '\0'; // its own
    while ((end = strrchr(group, '/')) && end > group) {
        *end = '\0';
        if (!counters_is_limited(group))
            continue;
        limited = true;
        sum += counters_throttled(group);
    }
    free(group);
    if (!limited)
        return;
    name = rank < 0 ? xstrdup("nr_throttled.above")
                    : xasprintf("nr_throttled.above rank %d", (int)rank);
    counters_put(counters, now_ns, "cpu.stat", name, sum);
    free(name);
}

// NULL: it has none.
static void counters_cpu(
        struct counters *counters, int64_t now_ns, const char *cpu_stat, int32_t rank)
{
    if (!cpu_stat)
        return;
    counters_pairs(counters, now_ns, cpu_stat, "cpu.stat", true, rank);
    counters_above(counters, now_ns, cpu_stat, rank);
}

static void counters_read_rank(
        struct counters *counters, const struct counters_rank *one, int64_t now_ns)
{
    counters_cpu(counters, now_ns, one->cpu_stat, one->rank);
}

static void counters_read_target(struct counters *counters, int64_t now_ns)
{
    counters_cpu(counters, now_ns, counters->cpu_stat, -1);
}

static void counters_read_ranks(struct counters *counters, int64_t now_ns, bool last)
{
    int64_t begin_ns = clock_monotonic_ns();
    if (begin_ns < counters->ranks_next_ns && !last)
        return;
    for (size_t i = 0; i < counters->rank_count; i++)
        counters_read_rank(counters, &counters->ranks[i], now_ns);
    counters->ranks_next_ns = begin_ns + COUNTERS_RANKS_SHARE * (clock_monotonic_ns() - begin_ns);
}

void counters_add_rank(struct counters *counters, int32_t rank, char *cpu_stat, int64_t now_ns)
{
    bool same = cpu_stat && counters->cpu_stat ? strcmp(cpu_stat, counters->cpu_stat) == 0
                                               : cpu_stat == counters->cpu_stat;
    vector_push(counters->ranks, counters->rank_count, ((struct counters_rank){rank, cpu_stat}));
    if (counters->apart) {
        counters_read_rank(counters, &counters->ranks[counters->rank_count - 1], now_ns);
    } else if (!same) { // what was the target's is that of the others, without a hole
        counters_read_target(counters, now_ns);
        counters->apart = true;
        counters_read_ranks(counters, now_ns, false);
    }
}

void counters_remove_rank(struct counters *counters, int32_t rank)
{
    for (size_t i = 0; i < counters->rank_count; i++) {
        if (counters->ranks[i].rank != rank)
            continue;
        free(counters->ranks[i].cpu_stat);
        counters->ranks[i] = counters->ranks[--counters->rank_count];
        return;
    }
}

void counters_read(struct counters *counters, int64_t now_ns, bool last)
{
    counters_pairs(counters, now_ns, "/proc/vmstat", "vmstat", false, -1);
    if (counters->apart)
        counters_read_ranks(counters, now_ns, last);
    else
        counters_read_target(counters, now_ns);
    counters_steal(counters, now_ns);
    counters_pressure(counters, now_ns);
}

// nftw has no context; recorders may run on several threads
static _Thread_local int64_t counters_directories;

static int counters_on_directory(
        const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)path, (void)info, (void)where;
    counters_directories += kind == FTW_D;
    return counters_directories >= COUNTERS_DIRECTORIES_MAX;
}

void counters_read_cgroups(struct counters *counters, int64_t now_ns)
{
    char *text = string_read_file("/proc/cgroups", 1 << 16, NULL);
    const char *line = text ? strstr(text, "\nmemory\t") : NULL;
    int64_t count = 0;
    if (line && sscanf(line, "\nmemory %*d %" SCNd64, &count) == 1)
        counters_put(counters, now_ns, "cgroups", "memory.num_cgroups", count);
    free(text);
    struct stat namespace;
    // Elsewhere the mount shows a part of the tree, and the kernel's number is of all of it: what
    // is out of sight would count as dead.
    if (!counters->memory_mount || stat("/proc/self/ns/cgroup", &namespace) != 0 ||
            namespace.st_ino != counters_first_namespace)
        return;
    counters_directories = 0;
    nftw(counters->memory_mount, counters_on_directory, 16, FTW_PHYS | FTW_MOUNT);
    counters_put(counters, now_ns, "cgroups", "memory.directories", counters_directories);
}
