// SPDX-License-Identifier: Apache-2.0
// Facts about processes from /proc, and what the guardian and the keepers share.
#include "harness/contain/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/proc.h"
#include "common/strings.h"

int64_t process_start_ticks(pid_t pid)
{
    struct proc_stat stat;
    return proc_stat_of(pid, &stat) ? -1 : (int64_t)stat.start_ticks;
}

bool process_running(pid_t pid)
{
    struct proc_stat stat;
    return !proc_stat_of(pid, &stat) && stat.state != 'T' && stat.state != 't' &&
            !proc_stat_ended(&stat);
}

bool process_memory(pid_t pid, int64_t *ret_peak_bytes, int64_t *ret_file_bytes)
{
    static const char *const keys[] = {"VmHWM", "RssFile"};
    char dir[64];
    int64_t kib[2];
    snprintf(dir, sizeof dir, "/proc/%d", pid);
    if (proc_status_numbers(dir, keys, 2, kib) || kib[0] < 0)
        return false;
    *ret_peak_bytes = kib[0] * 1024;
    *ret_file_bytes = kib[1] < 0 ? 0 : kib[1] * 1024;
    return true;
}

static bool process_has_mark(pid_t pid, const char *mark)
{
    char dir[64];
    snprintf(dir, sizeof dir, "/proc/%d", pid);
    char *value = proc_variable(dir, "UPGATE_STEPS");
    bool found = value && strcmp(value, mark) == 0;
    free(value);
    return found;
}

static bool process_listed(const pid_t *pids, int count, pid_t pid)
{
    for (int i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

// When the upgate was started that made the mark of a launch (its file of steps): nobody older has
// it. 0: a mark of another form.
static uint64_t process_mark_ticks(const char *mark)
{
    int pid;
    long long ticks;
    return sscanf(mark, "/dev/shm/upgate-%d-%lld-", &pid, &ticks) == 2 && ticks > 0
            ? (uint64_t)ticks
            : 0;
}

int process_find_tree(pid_t root, pid_t keeper, const char *mark, pid_t *pids, int max)
{
    // To read an environment waits for the mmap_lock of its process, which one that hangs (on a
    // file system that does not answer) may not give back: who was there before upgate is not
    // asked.
    const uint64_t since = process_mark_ticks(mark);
    int count = 0;
    if (process_start_ticks(root) >= 0)
        pids[count++] = root;
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && count < max && (entry = readdir(proc))) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        pid_t pid = (pid_t)atoi(entry->d_name);
        struct proc_stat stat;
        if (pid == getpid() || process_listed(pids, count, pid) || proc_stat_of(pid, &stat))
            continue;
        // A parent has a lower pid than its child except after the numbers wrap around; the mark
        // catches that case.
        if ((keeper > 0 && stat.parent == keeper) ||
                (count && process_listed(pids, count, stat.parent)) ||
                (stat.start_ticks >= since && process_has_mark(pid, mark)))
            pids[count++] = pid;
    }
    if (proc)
        closedir(proc);
    return count;
}

// Adds the children of every thread of a process to the list. -1: gone, or a kernel without the
// lists.
static int process_add_children(pid_t parent, pid_t *pids, int count, int max)
{
    char path[64 + NAME_MAX];
    snprintf(path, sizeof path, "/proc/%d/task", parent);
    DIR *tasks = opendir(path);
    struct dirent *entry;
    bool read_any = false;
    while (tasks && (entry = readdir(tasks))) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/children", parent, entry->d_name);
        char *text = string_read_file(path, 1 << 20, NULL);
        read_any |= text != NULL;
        for (char *at = text; at && *at && count < max; at += strcspn(at, " "), at += *at == ' ') {
            pid_t pid = (pid_t)atoi(at);
            if (pid > 0 && !process_listed(pids, count, pid))
                pids[count++] = pid;
        }
        free(text);
    }
    if (tasks)
        closedir(tasks);
    return read_any ? count : -1;
}

int process_follow_tree(pid_t root, pid_t keeper, const char *mark, pid_t *pids, int max)
{
    int count = keeper > 0 ? process_add_children(keeper, pids, 0, max) : -1;
    if (count < 0)
        return process_find_tree(root, keeper, mark, pids, max);
    for (int i = 0; i < count; i++) {
        int more = process_add_children(pids[i], pids, count, max);
        count = more < 0 ? count : more;
    }
    return count;
}

// --- a process of ours that outlives us ----------------------------------------------------------

int process_detach(const char *name, int fd, int lock)
{
    setsid();
    prctl(PR_SET_NAME, name);
    signal(SIGCHLD, SIG_DFL);
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGCHLD) // not for a moment: a child that ends while it is ignored is never
                            // heard of
            signal(sig, SIG_IGN);
    if (lock >= 0) // above both of their places
        lock = fcntl(lock, F_DUPFD_CLOEXEC, 5);
    dup2(fd, 3);
    if (lock >= 0)
        dup2(lock, 4);
    descriptors_close_from(lock >= 0 ? 5 : 4);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    close(null);
    return 3;
}

// --- its end -------------------------------------------------------------------------------------

static int process_list_all(pid_t *pids, int max)
{
    int count = 0;
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && count < max && (entry = readdir(proc)))
        if (isdigit((unsigned char)entry->d_name[0]))
            pids[count++] = (pid_t)atoi(entry->d_name);
    if (proc)
        closedir(proc);
    return count;
}

// Children of ours that live; zombies are only waited for.
static int process_find_children(pid_t *pids, int max)
{
    enum { ALL_MAX = 32768 };
    pid_t *all = xcalloc(ALL_MAX, sizeof *all);
    int count = 0, all_count = process_add_children(getpid(), all, 0, ALL_MAX);
    if (all_count < 0) // a kernel without the lists
        all_count = process_list_all(all, ALL_MAX);
    for (int i = 0; i < all_count && count < max; i++) {
        struct proc_stat stat;
        if (!proc_stat_of(all[i], &stat) && !proc_stat_ended(&stat) && stat.parent == getpid())
            pids[count++] = all[i];
    }
    free(all);
    return count;
}

void process_kill_children(int64_t deadline_ns)
{
    pid_t pids[256];
    int count;
    while ((count = process_find_children(pids, 256)) > 0 && clock_monotonic_ns() < deadline_ns) {
        for (int i = 0; i < count; i++)
            kill(pids[i], SIGKILL);
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}
