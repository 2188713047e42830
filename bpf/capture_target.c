// SPDX-License-Identifier: Apache-2.0
// Who is a target: processes, what descends from them, cgroups. The kernel side follows births by
// itself; this file reads /proc and cgroup.procs for those that exist already, writes their ids
// into the map `wanted`, and lets the iterator mark their threads.
#include <bpf/bpf.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/capture_inside.h"
#include "bpf/descendants.h"
#include "common/containers/vector.h"
#include "common/proc.h"

enum { CGROUP_DEPTH_MAX = 32 };

static int add_wanted(struct capture *capture, pid_t pid, struct error *err)
{
    uint32_t key = (uint32_t)pid, value = 1;
    int map = capture_map(capture, "wanted"), status = 0;

    if (bpf_map_update_elem(map, &key, &value, BPF_ANY))
        status = -errno;
    if (status == -E2BIG && capture_mark(capture) >= 0) // full: mark those, which empties it
        status = bpf_map_update_elem(map, &key, &value, BPF_ANY) ? -errno : 0;
    if (status)
        return error_set(
                err, status, "failed to make process %d a target: %s", pid, strerror(-status));
    return 0;
}

size_t capture_read_processes(struct descendant **ret_processes)
{
    struct descendant *processes = NULL;
    size_t count = 0;
    DIR *dir = opendir("/proc");
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        struct proc_stat stat;
        pid_t pid = atoi(entry->d_name);
        vector_push(processes, count,
                (struct descendant){
                        .pid = pid, .parent = proc_stat_of(pid, &stat) ? -1 : stat.parent});
    }
    if (dir)
        closedir(dir);
    *ret_processes = processes;
    return count;
}

// The top of upgate's own processes.
static pid_t own_top(pid_t watcher)
{
    return watcher ? watcher : getpid();
}

// Everything below `root` in the tree of processes, but not what is below upgate.
static int want_descendants(struct capture *capture, pid_t root, struct error *err)
{
    struct descendant *processes;
    size_t count = capture_read_processes(&processes);
    int status = 0;

    if (!count) // not even this one: /proc could not be opened
        return error_set(err, -errno, "failed to list the processes: %s", strerror(errno));
    descendants_mark(processes, count, root, own_top(capture->watcher));
    for (size_t i = 0; i < count && !status; i++)
        if (processes[i].below)
            status = add_wanted(capture, processes[i].pid, err);
    free(processes);
    return status;
}

int capture_want(struct capture *capture, pid_t pid, bool children, struct error *err)
{
    pid_t process = pid > 0 ? proc_tgid(pid) : -ESRCH; // a thread id is taken for its process

    if (process < 0)
        return error_set(err, process, "failed to record process %d: %s", pid,
                process == -ESRCH ? "there is no such process" : strerror(-process));
    if (process == getpid())
        return error_set(err, -EINVAL, "failed to record process %d: it is upgate itself", pid);
    if (!children)
        return add_wanted(capture, process, err);
    return want_descendants(capture, process, err);
}

// Who is to be told of each process of a cgroup. Not 0: the walk ends with it.
struct members {
    int (*each)(void *context, pid_t pid, struct error *err);
    void *context;
    pid_t watcher; // who is left out, beside us
};

static int walk_procs_file(const struct members *members, const char *path, struct error *err)
{
    FILE *file = fopen(path, "re");
    int pid, status = 0;

    if (!file)
        return errno == ENOENT || errno == ENODEV ? 0 : // removed meanwhile
                error_set(err, -errno, "failed to read '%s': %s", path, strerror(errno));
    while (!status && fscanf(file, "%d", &pid) == 1)
        if (pid > 0 && pid != getpid() && pid != members->watcher)
            status = members->each(members->context, pid, err);
    fclose(file);
    return status;
}

static int walk_cgroup_below(
        const struct members *members, const char *path, int depth, struct error *err)
{
    char below[PATH_MAX];
    struct dirent *entry;
    int status;
    DIR *dir;

    snprintf(below, sizeof(below), "%s/cgroup.procs", path);
    status = walk_procs_file(members, below, err);
    dir = status || depth == CGROUP_DEPTH_MAX ? NULL : opendir(path);
    while (dir && !status && (entry = readdir(dir))) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
        status = walk_cgroup_below(members, below, depth + 1, err);
    }
    if (dir)
        closedir(dir);
    return status;
}

static int want_member(void *context, pid_t pid, struct error *err)
{
    return add_wanted(context, pid, err);
}

int capture_want_cgroup(struct capture *capture, struct error *err)
{
    const struct members members = {want_member, capture, capture->watcher};
    char path[PATH_MAX];
    struct stat info;

    snprintf(path, sizeof(path), "%s/cgroup.procs", capture->cgroup);
    if (stat(path, &info))
        return error_set(err, -errno, "failed to record cgroup '%s': no cgroup.procs in it: %s",
                capture->cgroup, strerror(errno));
    return walk_cgroup_below(&members, capture->cgroup, 0, err);
}

static int count_member(void *context, pid_t pid, struct error *err)
{
    (void)pid, (void)err;
    ++*(size_t *)context;
    return 0;
}

size_t capture_count_targets(const struct capture_opts *opts)
{
    struct descendant *processes = NULL;
    size_t listed = 0, count = opts->no_children ? opts->pid_count : 0;
    const struct members members = {count_member, &count, opts->watcher};

    if (opts->pid_count && !opts->no_children)
        listed = capture_read_processes(&processes);
    for (size_t i = 0; i < opts->pid_count && listed; i++) {
        descendants_mark(processes, listed, opts->pids[i], own_top(opts->watcher));
        for (size_t j = 0; j < listed; j++)
            count += processes[j].below;
    }
    free(processes);
    if (opts->cgroup)
        // what cannot be read is told by capture_open
        walk_cgroup_below(&members, opts->cgroup, 0, NULL);
    return count;
}

static void deliver(void *context, const void *record)
{
    struct capture *capture = context;

    capture->callback(capture->context, record);
}

void capture_unwant(struct capture *capture)
{
    int map = capture_map(capture, "wanted");
    uint32_t key;

    while (!bpf_map_get_next_key(map, NULL, &key))
        if (bpf_map_delete_elem(map, &key))
            break;
}

// Twice: a thread may be born while the first walk goes by, of a parent that is not marked yet.
// Behind the first the target is what it is to be: that the second cannot be made is no failure, by
// which nothing would be a target. What was wanted is forgotten then: an id may come again for
// another process.
int capture_mark(struct capture *capture)
{
    int count = capture_iterate(capture, ITERATE_MARK, deliver, capture);

    if (count >= 0 && capture_iterate(capture, ITERATE_MARK_AGAIN, deliver, capture) < 0 &&
            !capture->births_missed) {
        capture->births_missed = true;
        capture_say(capture,
                "threads: those that were born just as their process became a target may not be recorded");
    }
    capture_unwant(capture);
    return count;
}
