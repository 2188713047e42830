// SPDX-License-Identifier: Apache-2.0
// Reads /proc/PID/{limits,stat,status,cgroup,personality} and the cgroup file systems. A limit of
// an ancestor binds as well as the own one, so the tightest on the way up is reported.
#include "harness/fingerprint/limits.h"

#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/proc.h"
#include "common/strings.h"
#include "harness/fingerprint/read.h"

enum {
    PERSONALITY_NO_RANDOMIZE = 0x0040000,
    CGROUP_DEPTH_MAX = 64,
};

// v1 writes "no limit" as the largest page-aligned number; nothing real comes near an exbibyte.
static const uint64_t cgroup_v1_unlimited = UINT64_C(1) << 60;

static const char unlimited[] = "unlimited";

// Rows of /proc/PID/limits that change how a workload runs: title there, key here.
// clang-format off
static const char *const rlimit_rows[][2] = {
    {"Max cpu time", "cpu_seconds"},       {"Max stack size", "stack_bytes"},
    {"Max open files", "open_files"},      {"Max locked memory", "locked_memory_bytes"},
    {"Max address space", "address_space_bytes"}, {"Max processes", "processes"},
    {"Max data size", "data_bytes"},       {"Max nice priority", "nice"},
    {"Max realtime priority", "realtime_priority"},
};
// clang-format on

json_t *limits_rlimits(const char *proc_dir, json_t *missing)
{
    json_t *object = json_object();
    char *text = read_text("%s/limits", proc_dir);
    if (!text)
        missing_add(missing, "process.rlimits", "%s/limits cannot be read: %m", proc_dir);
    for (size_t i = 0; text && i < sizeof(rlimit_rows) / sizeof(rlimit_rows[0]); i++) {
        char soft[32], hard[32];
        const char *row = strstr(text, rlimit_rows[i][0]);
        if (!row || sscanf(row + strlen(rlimit_rows[i][0]), "%31s %31s", soft, hard) != 2)
            continue;
        json_object_set_new(object, rlimit_rows[i][1],
                json_pack("{s:o,s:o}", "soft", json_number_take(xstrdup(soft)), "hard",
                        json_number_take(xstrdup(hard))));
    }
    free(text);
    return object;
}

// The text behind "KEY:" in /proc/PID/status, or NULL.
static char *status_value(const char *status, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = status; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) || line[length] != ':')
            continue;
        const char *value = line + length + 1 + strspn(line + length + 1, " \t");
        return xasprintf("%.*s", (int)strcspn(value, "\n"), value);
    }
    return NULL;
}

static const char *policy_name(unsigned policy)
{
    switch (policy) {
    case SCHED_OTHER:
        return "other";
    case SCHED_FIFO:
        return "fifo";
    case SCHED_RR:
        return "rr";
    case SCHED_BATCH:
        return "batch";
    case SCHED_IDLE:
        return "idle";
    case 6:
        return "deadline";
    case 7:
        return "ext"; // sched_ext: a BPF scheduler decides
    default:
        return "unknown";
    }
}

json_t *limits_scheduling(const char *proc_dir, json_t *missing)
{
    json_t *object = json_object();
    char *status = read_text("%s/status", proc_dir);
    json_object_set_new(object, "cpus", json_text_take(status_value(status, "Cpus_allowed_list")));
    json_object_set_new(object, "mems", json_text_take(status_value(status, "Mems_allowed_list")));
    struct proc_stat stat;
    if (!proc_stat_read(proc_dir, &stat)) {
        json_object_set_new(object, "nice", json_integer(stat.nice));
        json_object_set_new(object, "realtime_priority", json_integer(stat.realtime_priority));
        json_object_set_new(object, "policy", json_string(policy_name(stat.policy)));
    } else {
        missing_add(missing, "process.scheduling.policy", "%s/stat cannot be read", proc_dir);
    }
    json_object_set_new(
            object, "timer_slack_ns", json_number_take(read_text("%s/timerslack_ns", proc_dir)));
    json_object_set_new(
            object, "oom_score_adj", json_number_take(read_text("%s/oom_score_adj", proc_dir)));
    json_object_set_new(object, "seccomp", json_number_take(status_value(status, "Seccomp")));
    json_object_set_new(object, "speculative_store_bypass",
            json_text_take(status_value(status, "Speculation_Store_Bypass")));
    free(status);
    return object;
}

json_t *limits_memory(const char *proc_dir, json_t *missing)
{
    json_t *object = json_object();
    char *status = read_text("%s/status", proc_dir);
    char *huge_pages = status_value(status, "THP_enabled"); // 0: prctl(PR_SET_THP_DISABLE)
    json_object_set_new(object, "transparent_huge_pages",
            json_text(!huge_pages                ? NULL
                            : *huge_pages == '1' ? "allowed"
                                                 : "disabled"));
    char *personality = read_text("%s/personality", proc_dir);
    if (personality)
        json_object_set_new(object, "address_randomization",
                json_boolean(!(strtoul(personality, NULL, 16) & PERSONALITY_NO_RANDOMIZE)));
    else
        missing_add(missing, "process.memory.address_randomization",
                "%s/personality cannot be read: %m", proc_dir);
    free(personality);
    free(huge_pages);
    free(status);
    return object;
}

// --- cgroups -------------------------------------------------------------------------------------

struct hierarchy {
    char *top;   // where it is mounted
    char *group; // directory of the process's group, below top
};

static void hierarchy_clear(struct hierarchy *hierarchy)
{
    free(hierarchy->top);
    free(hierarchy->group);
    *hierarchy = (struct hierarchy){0};
}

static bool word_in_list(const char *list, size_t length, const char *word)
{
    size_t word_length = strlen(word);
    for (const char *at = list; at < list + length;) {
        size_t count = strcspn(at, ",");
        if (count > (size_t)(list + length - at))
            count = (size_t)(list + length - at);
        if (count == word_length && !strncmp(at, word, count))
            return true;
        at += count + 1;
    }
    return false;
}

// The path of a process in the v1 hierarchy of `controller`, or in v2's for NULL; NULL if it has
// none.
static char *cgroup_path(const char *text, const char *controller)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        size_t length = (size_t)(path - list - 1);
        if (controller ? word_in_list(list + 1, length, controller) : length == 0)
            return xasprintf("%.*s", (int)strcspn(path + 1, "\n"), path + 1);
    }
    return NULL;
}

// Find the mount of a hierarchy and the group's directory in it. In a container the mount shows
// only a part of the tree: its root is cut from the front of the path.
static bool hierarchy_find(
        const char *mountinfo, const char *controller, const char *path, struct hierarchy *ret)
{
    for (const char *line = mountinfo; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        char root[1024], top[1024], type[64], options[1024];
        size_t length = strcspn(line, "\n");
        const char *dash = memmem(line, length, " - ", 3);
        if (!dash || sscanf(line, "%*s %*s %*s %1023s %1023s", root, top) != 2 ||
                sscanf(dash + 3, "%63s %*s %1023s", type, options) != 2)
            continue;
        if (strcmp(type, controller ? "cgroup" : "cgroup2") ||
                (controller && !word_in_list(options, strlen(options), controller)))
            continue;
        const char *below = path;
        size_t root_length = strlen(root);
        if (strcmp(root, "/"))
            below = !strncmp(path, root, root_length) ? path + root_length : "";
        ret->top = xstrdup(top);
        ret->group = xasprintf("%s%s", top, strcmp(below, "/") ? below : "");
        return true;
    }
    return false;
}

// Go from the group to the top; `visit` sees each directory.
static void hierarchy_walk(
        const struct hierarchy *hierarchy, void (*visit)(const char *dir, void *arg), void *arg)
{
    char *dir = xstrdup(hierarchy->group);
    size_t top_length = strlen(hierarchy->top);
    for (int depth = 0; depth < CGROUP_DEPTH_MAX; depth++) {
        visit(dir, arg);
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < top_length)
            break;
        *slash = '\0';
    }
    free(dir);
}

struct tightest {
    const char *files[2]; // of v1 and v2. Bytes: one number; "cpu": quota and period
    bool is_cpu, is_v2;
    bool limited;
    double value;
};

static void tightest_visit(const char *dir, void *arg)
{
    struct tightest *limit = arg;
    char *text = NULL;
    double value = 0, period = 0;
    bool found = false;
    if (limit->is_cpu && !limit->is_v2) {
        char *period_text = read_text("%s/cpu.cfs_period_us", dir);
        text = read_text("%s/cpu.cfs_quota_us", dir);
        value = text ? strtod(text, NULL) : -1;
        period = period_text ? strtod(period_text, NULL) : 0;
        found = value > 0 && period > 0;
        free(period_text);
    } else if (limit->is_cpu) {
        text = read_text("%s/cpu.max", dir);
        found = text && sscanf(text, "%lf %lf", &value, &period) == 2 && period > 0;
    } else {
        text = read_text("%s/%s", dir, limit->files[limit->is_v2]);
        value = text ? strtod(text, NULL) : 0;
        period = 1;
        found = text && strcmp(text, "max") && *text &&
                (limit->is_v2 || value < (double)cgroup_v1_unlimited);
    }
    free(text);
    if (found && (!limit->limited || value / period < limit->value)) {
        limit->limited = true;
        limit->value = value / period;
    }
}

struct cgroup_view {
    const char *cgroups, *mountinfo; // texts of the two files
};

// The hierarchy that rules `controller` for this process: v1's where it is mounted there, else
// v2's.
static bool controller_find(
        const struct cgroup_view *view, const char *controller, struct hierarchy *ret, bool *ret_v2)
{
    for (int v2 = 0; v2 < 2; v2++) {
        char *path = cgroup_path(view->cgroups, v2 ? NULL : controller);
        bool found = path && hierarchy_find(view->mountinfo, v2 ? NULL : controller, path, ret);
        free(path);
        if (found) {
            *ret_v2 = v2;
            return true;
        }
    }
    return false;
}

// The walk from the process's group to the top of that hierarchy. ret_v2 is set before `visit` sees
// the first directory. False: there is none.
static bool controller_walk(const struct cgroup_view *view, const char *controller,
        void (*visit)(const char *dir, void *arg), void *arg, bool *ret_v2)
{
    struct hierarchy hierarchy = {0};
    if (!controller_find(view, controller, &hierarchy, ret_v2))
        return false;
    hierarchy_walk(&hierarchy, visit, arg);
    hierarchy_clear(&hierarchy);
    return true;
}

static json_t *tightest_limit(const struct cgroup_view *view, const char *controller,
        const char *file_v1, const char *file_v2, bool is_cpu)
{
    struct tightest limit = {.files = {file_v1, file_v2}, .is_cpu = is_cpu};
    if (!controller_walk(view, controller, tightest_visit, &limit, &limit.is_v2))
        return json_null();
    if (!limit.limited)
        return json_string(unlimited);
    return is_cpu ? json_real(limit.value) : json_integer((json_int_t)limit.value);
}

struct room {
    bool is_v2;
    int64_t bytes;
};

static void room_visit(const char *dir, void *arg)
{
    struct room *room = arg;
    char *limit = read_text("%s/%s", dir, room->is_v2 ? "memory.max" : "memory.limit_in_bytes");
    char *used = read_text("%s/%s", dir, room->is_v2 ? "memory.current" : "memory.usage_in_bytes");
    char *stat = read_text("%s/memory.stat", dir);
    const char *files =
            stat ? strstr(stat, room->is_v2 ? "\ninactive_file " : "\ntotal_inactive_file ") : NULL;
    double most = limit && strcmp(limit, "max") ? strtod(limit, NULL) : (double)cgroup_v1_unlimited;
    if (used && most < (double)cgroup_v1_unlimited) {
        double rest = most - strtod(used, NULL) + (files ? strtod(strchr(files, ' '), NULL) : 0);
        int64_t bytes = rest > 0 ? (int64_t)rest : 0;
        room->bytes = bytes < room->bytes ? bytes : room->bytes;
    }
    free(limit);
    free(used);
    free(stat);
}

int64_t limits_memory_free_bytes(const char *proc_dir, const char *mountinfo)
{
    struct room room = {.bytes = INT64_MAX};
    char *cgroups = read_text("%s/cgroup", proc_dir), *mounts = read_text("%s", mountinfo);
    const struct cgroup_view view = {cgroups, mounts};
    if (cgroups && mounts)
        controller_walk(&view, "memory", room_visit, &room, &room.is_v2);
    free(cgroups);
    free(mounts);
    return room.bytes;
}

static char *own_value(const struct cgroup_view *view, const char *controller, const char *file_v1,
        const char *file_v2)
{
    struct hierarchy hierarchy = {0};
    bool v2;
    if (!controller_find(view, controller, &hierarchy, &v2))
        return NULL;
    char *text = read_text("%s/%s", hierarchy.group, v2 ? file_v2 : file_v1);
    hierarchy_clear(&hierarchy);
    return text;
}

json_t *limits_cgroup(const char *proc_dir, const char *mountinfo, json_t *missing)
{
    json_t *object = json_object();
    char *cgroups = read_text("%s/cgroup", proc_dir), *mounts = read_text("%s", mountinfo);
    if (!cgroups || !mounts) {
        missing_add(missing, "process.cgroup", "%s cannot be read", cgroups ? mountinfo : "cgroup");
    } else {
        struct cgroup_view view = {cgroups, mounts};
        struct hierarchy hierarchy = {0};
        bool v2 = false, found = controller_find(&view, "memory", &hierarchy, &v2);
        json_object_set_new(object, "version", json_text(!found ? NULL : v2 ? "v2" : "v1"));
        json_object_set_new(
                object, "path", json_text(found ? hierarchy.group + strlen(hierarchy.top) : NULL));
        hierarchy_clear(&hierarchy);
        json_object_set_new(
                object, "cpu_quota_cores", tightest_limit(&view, "cpu", NULL, NULL, true));
        json_object_set_new(object, "memory_max_bytes",
                tightest_limit(&view, "memory", "memory.limit_in_bytes", "memory.max", false));
        json_object_set_new(object, "memory_high_bytes", // v1 has no such limit: no file, no limit
                tightest_limit(&view, "memory", "memory.high", "memory.high", false));
        json_object_set_new(
                object, "tasks_max", tightest_limit(&view, "pids", "pids.max", "pids.max", false));
        json_object_set_new(object, "cpu_weight",
                json_number_take(own_value(&view, "cpu", "cpu.shares", "cpu.weight")));
        json_object_set_new(object, "cpuset_cpus",
                json_text_take(own_value(
                        &view, "cpuset", "cpuset.effective_cpus", "cpuset.cpus.effective")));
        json_object_set_new(object, "cpuset_mems",
                json_text_take(own_value(
                        &view, "cpuset", "cpuset.effective_mems", "cpuset.mems.effective")));
    }
    free(cgroups);
    free(mounts);
    return object;
}
