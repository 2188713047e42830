// SPDX-License-Identifier: Apache-2.0
// The process tree of one launch. Reads and writes cgroup files, or /proc and signals where there
// are no cgroups. Measured on Linux 6.18, 2 cores: writing cgroup.freeze takes 11 us and the tree
// is stopped 2 us later, so a turn costs far less than the 20 ms block it separates.
#include "harness/contain/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/proc.h"
#include "common/strings.h"
#include "harness/contain/process.h"

enum {
    TREE_PROCESSES_MAX = 4096, // of one launch; more are still frozen and killed by the cgroup
    TREE_FILES_MAX = 100,      // whose memory is told apart, the largest
    TREE_ROUNDS_MAX = 100,     // a tree that forks faster than we signal is left half stopped
    TREE_BYSTANDERS_MAX = 32,  // podman has four
    TREE_SPIN_NS = 5000,       // a freeze takes about 2 us on an idle machine
    TREE_SLEEP_NS = 20000
};

struct tree_bystander {
    pid_t pid;
    int64_t start_ticks; // the number may be somebody else's later
};

struct tree {
    enum tree_means means;
    char *cgroup;  // directory, NULL for signals
    char *members; // where its processes are: the same, or a directory below it (tree_set_apart)
    char *mark;
    pid_t root, keeper;
    int64_t root_start_ticks;
    int freeze_fd, state_fd, procs_fd; // state: cgroup.events, or freezer.state
    int join_fd; // cgroup.procs for who starts it, where that is another; else -1
    int cpu_fd;  // cpu.stat: opening it would cost more than reading it
    bool frozen;
    pid_t *stopped; // by signals: who got SIGSTOP, and gets SIGCONT
    int stopped_count;
    struct tree_memory {
        pid_t pid;
        int64_t files; // the most pages of files that it was seen with: its peak holds them for
                       // ever
    } * memory;        // of those that lived at the last look, by pid
    int memory_count;
    int64_t peak_bytes; // of all that lived at a look, the most; -1: no look yet
    int process_count;  // likewise
    // by signals: neither stopped nor measured
    struct tree_bystander bystanders[TREE_BYSTANDERS_MAX];
    int bystander_count;
};

const char *tree_means_name(enum tree_means means)
{
    static const char *const names[] = {"cgroup v2", "cgroup v1 freezer", "signals"};
    return names[means];
}

// Mount point of a cgroup file system: type cgroup2, or cgroup with the freezer option.
static char *tree_mount_find(const char *type, const char *option)
{
    FILE *mounts = setmntent("/proc/self/mounts", "r");
    if (!mounts)
        return NULL;
    char *found = NULL;
    struct mntent *entry;
    while (!found && (entry = getmntent(mounts)))
        if (strcmp(entry->mnt_type, type) == 0 && (!option || hasmntopt(entry, option)))
            found = xstrdup(entry->mnt_dir);
    endmntent(mounts);
    return found;
}

// Our own path in a hierarchy: the line of /proc/self/cgroup that starts with "0::" or holds
// ":freezer:".
static char *tree_own_path(const char *needle)
{
    char *text = string_read_file("/proc/self/cgroup", 65536, NULL);
    char *path = NULL;
    for (char *line = text ? strtok(text, "\n") : NULL; line; line = strtok(NULL, "\n")) {
        char *at = strstr(line, needle);
        if (at && (needle[0] == ':' || at == line))
            path = xstrdup(strcmp(at + strlen(needle), "/") == 0 ? "" : at + strlen(needle));
    }
    free(text);
    return path;
}

static int tree_write(const char *dir, const char *file, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t wrote = write(fd, text, strlen(text));
    int rc = wrote < 0 ? -errno : 0;
    close(fd);
    return rc;
}

static int tree_cgroup_processes(const char *cgroup, pid_t *pids, int max)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
    char *text = string_read_file(path, 1 << 20, NULL);
    int count = 0;
    for (char *at = text; at && *at && count < max;
            at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        pid_t pid = (pid_t)atoi(at);
        if (pid > 0) // 0: of a pid namespace that we cannot see into; kill(0) would end ourselves
            pids[count++] = pid;
    }
    free(text);
    return count;
}

// Every cgroup below this one, the innermost first, and itself at last, until one is false.
static bool tree_each_group(const char *cgroup, bool (*each)(const char *cgroup))
{
    DIR *dir = opendir(cgroup);
    struct dirent *entry;
    bool goes_on = true;
    while (dir && goes_on && (entry = readdir(dir))) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", cgroup, entry->d_name);
        goes_on = tree_each_group(path, each);
    }
    if (dir)
        closedir(dir);
    return goes_on && each(cgroup);
}

static bool tree_thaw_one(const char *cgroup)
{
    tree_write(cgroup, "cgroup.freeze", "0");
    tree_write(cgroup, "freezer.state", "THAWED");
    return true;
}

static bool tree_end_one(const char *cgroup)
{
    pid_t pids[256];
    for (int i = 0; i < 200; i++) {
        tree_thaw_one(cgroup);
        if (tree_write(cgroup, "cgroup.kill", "1")) {
            int count = tree_cgroup_processes(cgroup, pids, 256);
            for (int k = 0; k < count; k++)
                kill(pids[k], SIGKILL);
        }
        if (rmdir(cgroup) == 0 || errno == ENOENT)
            break;
        clock_sleep_until_ns(clock_monotonic_ns() + 5000000);
    }
    return true;
}

void tree_end_group(const char *cgroup)
{
    tree_each_group(cgroup, tree_end_one);
}

static bool tree_is_one_empty(const char *cgroup)
{
    pid_t pids[1];
    return tree_cgroup_processes(cgroup, pids, 1) == 0;
}

static bool tree_group_is_empty(const char *cgroup)
{
    return tree_each_group(cgroup, tree_is_one_empty);
}

void tree_let_end(const char *cgroup, int64_t patience_ns)
{
    int64_t deadline_ns = clock_monotonic_ns() + patience_ns;
    while (!tree_group_is_empty(cgroup) && clock_monotonic_ns() < deadline_ns) {
        tree_each_group(cgroup, tree_thaw_one); // a freeze may have been on its way
        clock_sleep_until_ns(clock_monotonic_ns() + 10000000);
    }
}

// The owner of a group directory holds a lock on it. A pid says nothing: it may be of another
// namespace.
static int tree_lock(const char *base)
{
    int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

// Directories "upgate-PID-START" that nobody holds any more: a kill -9 may have left them frozen.
static void tree_sweep(const char *parent)
{
    DIR *dir = opendir(parent);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        int pid;
        long long start;
        if (sscanf(entry->d_name, "upgate-%d-%lld", &pid, &start) != 2)
            continue;
        struct proc_stat stat;
        if (!proc_stat_of(pid, &stat) && proc_same_start(stat.start_ticks, (uint64_t)start))
            continue; // one that has yet to lock it
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", parent, entry->d_name);
        int lock = tree_lock(path);
        if (lock < 0)
            continue;
        tree_end_group(path);
        close(lock);
    }
    if (dir)
        closedir(dir);
}

struct tree_teller {
    void (*before)(void *arg, const char *base);
    void *arg;
};

// Held until the program ends, or the directory goes: one a process.
static int tree_base_lock = -1;

// Below a threaded cgroup (a container in a threaded subtree) a group takes no processes: "domain
// invalid".
static bool tree_takes_processes(const char *base)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/cgroup.type", base);
    char *type = string_read_file(path, 64, NULL); // v1 has none
    bool takes = !type || strcmp(type, "domain\n") == 0;
    free(type);
    return takes;
}

static bool tree_base_try(const char *base, const char *file)
{
    char probe[4096];
    snprintf(probe, sizeof probe, "%s/%s", base, file);
    bool ours = mkdir(base, 0755) == 0;
    if (!ours && errno != EEXIST)
        return false;
    int lock = access(probe, W_OK) == 0 && tree_takes_processes(base) ? tree_lock(base) : -1;
    // Between mkdir and lock another upgate may have taken it for a dead one's.
    if (lock < 0 || access(probe, W_OK) < 0) {
        if (lock >= 0)
            close(lock);
        if (ours)
            rmdir(base);
        return false;
    }
    if (tree_base_lock >= 0)
        close(tree_base_lock);
    tree_base_lock = lock;
    return true;
}

static char *tree_base_make(const struct tree_teller *teller, const char *type, const char *option,
        const char *needle, const char *file)
{
    enum { TRIES = 3 };
    char *mount = tree_mount_find(type, option);
    char *own = mount ? tree_own_path(needle) : NULL;
    char *base = NULL;
    if (own) {
        char *parent = xasprintf("%s%s", mount, own);
        tree_sweep(parent);
        bool made = false;
        for (int i = 0; !made && i < TRIES; i++) {
            free(base);
            base = xasprintf("%s/upgate-%d-%lld%s", parent, getpid(),
                    (long long)process_start_ticks(getpid()),
                    i == 0           ? ""
                            : i == 1 ? "-2"
                                     : "-3");
            if (teller->before)
                teller->before(teller->arg, base);
            made = tree_base_try(base, file);
        }
        if (!made) {
            free(base);
            base = NULL;
        }
        free(parent);
    }
    free(own);
    free(mount);
    return base;
}

enum tree_means tree_detect(char **ret_base)
{
    return tree_detect_telling(NULL, NULL, ret_base);
}

enum tree_means tree_detect_telling(
        void (*before)(void *arg, const char *base), void *arg, char **ret_base)
{
    struct tree_teller teller = {before, arg};
    *ret_base = tree_base_make(&teller, "cgroup2", NULL, "0::", "cgroup.freeze");
    if (*ret_base)
        return TREE_MEANS_CGROUP2;
    *ret_base = tree_base_make(&teller, "cgroup", "freezer", ":freezer:", "freezer.state");
    if (*ret_base)
        return TREE_MEANS_FREEZER1;
    *ret_base = xstrdup("");
    return TREE_MEANS_SIGNALS;
}

int tree_base_lock_fd(void)
{
    return tree_base_lock;
}

void tree_release_base(const char *base)
{
    if (!base || !*base)
        return;
    tree_end_group(base);
    if (tree_base_lock >= 0)
        close(tree_base_lock);
    tree_base_lock = -1;
}

static int tree_open(const char *dir, const char *file, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return open(path, flags | O_CLOEXEC);
}

static void tree_close(struct tree *tree)
{
    int *fds[] = {
            &tree->freeze_fd, &tree->state_fd, &tree->procs_fd, &tree->cpu_fd, &tree->join_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

// The files of the directory of its processes, which is made.
static int tree_open_members(struct tree *tree, struct error *err)
{
    bool v2 = tree->means == TREE_MEANS_CGROUP2;
    if (mkdir(tree->members, 0755) == 0 || errno == EEXIST) {
        tree->freeze_fd =
                tree_open(tree->members, v2 ? "cgroup.freeze" : "freezer.state", O_WRONLY);
        tree->state_fd = tree_open(tree->members, v2 ? "cgroup.events" : "freezer.state", O_RDONLY);
        tree->procs_fd = tree_open(tree->members, "cgroup.procs", O_WRONLY);
        tree->cpu_fd = v2 ? tree_open(tree->members, "cpu.stat", O_RDONLY) : -1;
    }
    if (tree->freeze_fd >= 0 && tree->state_fd >= 0 && tree->procs_fd >= 0)
        return 0;
    return error_set(
            err, -errno, "failed to make the cgroup '%s': %s", tree->members, strerror(errno));
}

int tree_set_apart(struct tree *tree, struct error *err)
{
    if (!tree->cgroup)
        return 0;
    char *engine = xasprintf("%s/engine", tree->cgroup);
    tree_close(tree);
    free(tree->members);
    tree->members = xasprintf("%s/program", tree->cgroup);
    int rc = tree_open_members(tree, err);
    if (rc == 0 &&
            ((mkdir(engine, 0755) && errno != EEXIST) ||
                    (tree->join_fd = tree_open(engine, "cgroup.procs", O_WRONLY)) < 0))
        rc = error_set(err, -errno, "failed to make the cgroup '%s': %s", engine, strerror(errno));
    free(engine);
    return rc;
}

int tree_new(enum tree_means means, const char *base, const char *name, const char *mark,
        struct tree **ret_tree, struct error *err)
{
    struct tree *tree = xcalloc(1, sizeof *tree);
    tree->means = means;
    tree->mark = xstrdup(mark);
    tree->freeze_fd = tree->state_fd = tree->procs_fd = tree->cpu_fd = tree->join_fd = -1;
    tree->peak_bytes = -1;
    if (means != TREE_MEANS_SIGNALS) {
        tree->cgroup = xasprintf("%s/%s", base, name);
        tree->members = xstrdup(tree->cgroup);
        int rc = tree_open_members(tree, err);
        if (rc) {
            tree_free(tree);
            return rc;
        }
    }
    *ret_tree = tree;
    return 0;
}

// What left the cgroup (a launcher with rights may move its children) is known by its mark.
static void tree_kill_strays(const struct tree *tree)
{
    pid_t pids[256];
    for (int round = 0; round < TREE_ROUNDS_MAX; round++) {
        int count = process_find_tree(-1, 0, tree->mark, pids, 256);
        if (!count)
            return;
        for (int i = 0; i < count; i++)
            kill(pids[i], SIGKILL);
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
    }
}

void tree_free(struct tree *tree)
{
    if (!tree)
        return;
    tree_kill(tree);
    if (tree->cgroup && tree->root > 0)
        tree_kill_strays(tree);
    if (tree->cgroup)
        tree_end_group(tree->cgroup);
    tree_close(tree);
    free(tree->memory);
    free(tree->members);
    free(tree->cgroup);
    free(tree->mark);
    free(tree->stopped);
    free(tree);
}

int tree_join(const struct tree *tree)
{
    int fd = tree->join_fd >= 0 ? tree->join_fd : tree->procs_fd;
    if (fd < 0)
        return 0;
    return write(fd, "0", 1) < 0 ? -errno : 0;
}

void tree_set_root(struct tree *tree, pid_t root, pid_t keeper)
{
    tree->root = root;
    tree->root_start_ticks = process_start_ticks(root);
    tree->keeper = keeper;
}

// The keeper waits for the root, and from then on its number may be somebody else's, with all that
// descends from that. -1: it is gone.
static pid_t tree_living_root(const struct tree *tree)
{
    return process_start_ticks(tree->root) == tree->root_start_ticks ? tree->root : -1;
}

static int tree_pids(const struct tree *tree, pid_t *pids, int max)
{
    if (tree->cgroup)
        return tree_cgroup_processes(tree->members, pids, max);
    return tree->root > 0
            ? process_find_tree(tree_living_root(tree), tree->keeper, tree->mark, pids, max)
            : 0;
}

static bool tree_measures(const struct tree *tree, pid_t pid)
{
    for (int i = 0; i < tree->bystander_count; i++)
        if (tree->bystanders[i].pid == pid &&
                process_start_ticks(pid) == tree->bystanders[i].start_ticks)
            return false;
    return true;
}

int tree_take(struct tree *tree, pid_t pid)
{
    char text[16];
    if (tree->procs_fd < 0)
        return -ENOTSUP;
    int len = snprintf(text, sizeof text, "%d", (int)pid);
    return write(tree->procs_fd, text, (size_t)len) < 0 ? -errno : 0;
}

void tree_begin(struct tree *tree, pid_t program)
{
    pid_t pids[TREE_BYSTANDERS_MAX];
    int count = tree_pids(tree, pids, TREE_BYSTANDERS_MAX);
    for (int i = 0; i < count; i++)
        if (pids[i] != program)
            tree->bystanders[tree->bystander_count++] =
                    (struct tree_bystander){pids[i], process_start_ticks(pids[i])};
}

bool tree_is_empty(const struct tree *tree)
{
    pid_t pids[1];
    return tree->cgroup ? tree_group_is_empty(tree->cgroup) : tree_pids(tree, pids, 1) == 0;
}

bool tree_holds(const struct tree *tree, pid_t pid)
{
    pid_t *pids = xcalloc(TREE_PROCESSES_MAX, sizeof *pids);
    int count = tree_pids(tree, pids, TREE_PROCESSES_MAX);
    bool found = false;
    for (int i = 0; i < count && !found; i++)
        found = pids[i] == pid;
    free(pids);
    return found;
}

int tree_resident(const struct tree *tree, struct resident *ret)
{
    pid_t *pids = xcalloc(TREE_PROCESSES_MAX, sizeof *pids);
    int count = tree_pids(tree, pids, TREE_PROCESSES_MAX), rc = 0;
    *ret = (struct resident){0};
    for (int i = 0; i < count && rc == 0; i++) {
        char dir[32];
        struct proc_stat stat;
        snprintf(dir, sizeof dir, "/proc/%d", (int)pids[i]);
        if (tree_measures(tree, pids[i]) && !proc_stat_read(dir, &stat) && !proc_stat_ended(&stat))
            rc = resident_add(ret, dir);
    }
    free(pids);
    if (rc)
        resident_clear(ret);
    resident_sort(ret, TREE_FILES_MAX);
    return rc;
}

static bool tree_stop_one(struct tree *tree, pid_t pid)
{
    for (int i = 0; i < tree->stopped_count; i++)
        if (tree->stopped[i] == pid)
            return false;
    if (tree->stopped_count == TREE_PROCESSES_MAX)
        return false;
    tree->stopped[tree->stopped_count++] = pid;
    kill(pid, SIGSTOP);
    return true;
}

// Signals reach a process at a time: repeat until a look around finds nobody new.
static void tree_signal_stop(struct tree *tree)
{
    pid_t pids[TREE_PROCESSES_MAX];
    bool found = tree->root > 0;
    if (!tree->stopped)
        tree->stopped = xcalloc(TREE_PROCESSES_MAX, sizeof *tree->stopped);
    for (int round = 0; found && round < TREE_ROUNDS_MAX; round++) {
        int count = process_follow_tree(
                tree_living_root(tree), tree->keeper, tree->mark, pids, TREE_PROCESSES_MAX);
        found = false;
        for (int i = 0; i < count; i++)
            found |= tree_measures(tree, pids[i]) && tree_stop_one(tree, pids[i]);
    }
}

bool tree_stopped(const struct tree *tree)
{
    if (tree->means == TREE_MEANS_SIGNALS) {
        for (int i = 0; i < tree->stopped_count; i++)
            if (process_running(tree->stopped[i]))
                return false;
        return true;
    }
    char text[256];
    ssize_t got = pread(tree->state_fd, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = 0;
    // An empty cgroup never reports frozen; a tree that has ended needs no waiting.
    return strstr(text, tree->means == TREE_MEANS_CGROUP2 ? "frozen 1" : "FROZEN") ||
            strstr(text, "populated 0");
}

static int tree_wait_stopped(const struct tree *tree, int64_t patience_ns)
{
    int64_t start = clock_monotonic_ns(), sleep_ns = TREE_SLEEP_NS;
    while (!tree_stopped(tree)) {
        int64_t waited = clock_monotonic_ns() - start;
        if (waited > patience_ns)
            return -EINPROGRESS;
        // The harness has real-time priority: spinning on would keep what must stop from its CPU.
        if (waited > TREE_SPIN_NS) {
            clock_sleep_until_ns(clock_monotonic_ns() + sleep_ns);
            // a look costs 20 us: one for every so much more
            sleep_ns += sleep_ns < waited ? sleep_ns / 2 : 0;
        }
    }
    return 0;
}

int tree_freeze(struct tree *tree, int64_t patience_ns)
{
    tree->frozen = true;
    if (tree->means == TREE_MEANS_SIGNALS) {
        tree_signal_stop(tree);
        return patience_ns < 0 ? -EINPROGRESS : tree_wait_stopped(tree, patience_ns);
    }
    bool v2 = tree->means == TREE_MEANS_CGROUP2;
    if (pwrite(tree->freeze_fd, v2 ? "1" : "FROZEN", v2 ? 1 : 6, 0) < 0)
        return -errno;
    return patience_ns < 0 ? -EINPROGRESS : tree_wait_stopped(tree, patience_ns);
}

int tree_thaw(struct tree *tree)
{
    tree->frozen = false;
    if (tree->means == TREE_MEANS_SIGNALS) {
        // Whoever was stopped has neither ended nor forked since.
        for (int i = 0; i < tree->stopped_count; i++)
            kill(tree->stopped[i], SIGCONT);
        tree->stopped_count = 0;
        return 0;
    }
    bool v2 = tree->means == TREE_MEANS_CGROUP2;
    return pwrite(tree->freeze_fd, v2 ? "0" : "THAWED", v2 ? 1 : 6, 0) < 0 ? -errno : 0;
}

int tree_kill(struct tree *tree)
{
    int64_t deadline = clock_monotonic_ns() + 5000000000;
    if (tree->frozen)
        tree_thaw(tree);
    pid_t pids[256];
    int count;
    while ((count = tree_pids(tree, pids, 256)) > 0) {
        if (!tree->cgroup || tree_write(tree->cgroup, "cgroup.kill", "1"))
            for (int i = 0; i < count; i++)
                kill(pids[i], SIGKILL);
        if (clock_monotonic_ns() > deadline)
            return -ETIMEDOUT;
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
        if (!tree->cgroup && count == 1 && pids[0] == tree->root && !process_running(tree->root))
            return 0; // only the root is left, dead, for its owner to wait for
    }
    return 0;
}

int64_t tree_cpu_ns(const struct tree *tree)
{
    if (tree->cpu_fd < 0)
        return -1;
    char text[64]; // it is the first line
    ssize_t got = pread(tree->cpu_fd, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = 0;
    const char *at = strstr(text, "usage_usec ");
    return at ? strtoll(at + strlen("usage_usec "), NULL, 10) * 1000 : -1;
}

// Of those that live: each one's own peak so far, which the kernel keeps however seldom anybody
// looks, and pages of files once. They are in every process that has mapped the file, a library of
// all ranks, and are the same ones: those of the process that has most of them count. Of one
// process that is its peak.
void tree_sample_memory(struct tree *tree)
{
    pid_t pids[TREE_PROCESSES_MAX];
    int count = tree_pids(tree, pids, TREE_PROCESSES_MAX), seen = 0;
    int64_t sum = 0, most_of_files = 0;
    struct tree_memory *memory = xcalloc((size_t)count + 1, sizeof *memory);
    for (int i = 0; i < count; i++) {
        int64_t peak, of_files;
        if (!tree_measures(tree, pids[i]) || !process_memory(pids[i], &peak, &of_files))
            continue;
        size_t known = search_first(k, (size_t)tree->memory_count, tree->memory[k].pid >= pids[i]);
        if (known < (size_t)tree->memory_count && tree->memory[known].pid == pids[i] &&
                tree->memory[known].files > of_files)
            of_files = tree->memory[known].files;
        of_files = of_files < peak ? of_files : peak; // another process by the same number
        memory[seen++] = (struct tree_memory){pids[i], of_files};
        sum += peak - of_files;
        most_of_files = of_files > most_of_files ? of_files : most_of_files;
    }
    sort_in_place(memory, (size_t)seen, x, y, x->pid < y->pid);
    free(tree->memory);
    tree->memory = memory;
    tree->memory_count = seen;
    if (seen && sum + most_of_files > tree->peak_bytes)
        tree->peak_bytes = sum + most_of_files;
    tree->process_count = seen > tree->process_count ? seen : tree->process_count;
}

int64_t tree_peak_memory_bytes(const struct tree *tree)
{
    return tree->peak_bytes;
}

int tree_process_count(const struct tree *tree)
{
    return tree->process_count;
}

const char *tree_cgroup(const struct tree *tree)
{
    return tree->cgroup;
}
