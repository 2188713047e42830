// SPDX-License-Identifier: Apache-2.0
// Process trees on the real kernel: contained, frozen, thawed and killed, by each means this
// machine has. A tree here is a shell with busy children, one of them in a session of its own.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/proc.h"
#include "common/strings.h"
#include "harness/contain/guardian.h"
#include "harness/contain/keeper.h"
#include "harness/contain/process.h"
#include "harness/contain/tree.h"
#include "tests/unit/runner.h"

#define TEST_PATIENCE_NS \
    INT64_C(60000000000) // what is waited for comes at once, but for a machine that is busy
enum { TEST_FILE_BYTES = 32 << 20 };

static char test_mark[64]; // of this run alone: all processes of the machine are looked at

__attribute__((constructor)) static void test_mark_make(void)
{
    snprintf(test_mark, sizeof test_mark, "/dev/shm/upgate-test-tree-%d", (int)getpid());
}

// Counters that the tree's processes raise as long as they run.
static volatile long *test_counters;

static void test_spin(int which)
{
    for (;;)
        test_counters[which]++;
}

// A root with two children: one plain, one that left for a session of its own.
static pid_t test_tree_start(struct tree *tree)
{
    test_counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        tree_join(tree);
        // The mark is read from the environment a program was started with.
        setenv("UPGATE_STEPS", test_mark, 1);
        if (fork() == 0)
            test_spin(0);
        if (fork() == 0) {
            setsid();
            test_spin(1);
        }
        test_spin(2);
    }
    tree_set_root(tree, pid, 0);
    return pid;
}

static bool test_moves(void)
{
    long before[3] = {test_counters[0], test_counters[1], test_counters[2]};
    int64_t deadline = clock_monotonic_ns() + TEST_PATIENCE_NS;
    while (clock_monotonic_ns() < deadline) {
        clock_sleep_until_ns(clock_monotonic_ns() + 20000000);
        if (test_counters[0] > before[0] && test_counters[1] > before[1] &&
                test_counters[2] > before[2])
            return true;
    }
    return false;
}

static bool test_stands_still(void)
{
    long before[3] = {test_counters[0], test_counters[1], test_counters[2]};
    clock_sleep_until_ns(clock_monotonic_ns() + 60000000);
    return test_counters[0] == before[0] && test_counters[1] == before[1] &&
            test_counters[2] == before[2];
}

static void test_turns(enum tree_means means, const char *base)
{
    struct tree *tree = NULL;
    struct error err = {0};
    CHECK_INT(tree_new(means, base, "t", test_mark, &tree, &err), 0);
    pid_t root = test_tree_start(tree);
    CHECK(test_moves());
    for (int i = 0; i < 5; i++) {
        CHECK_INT(tree_freeze(tree, TEST_PATIENCE_NS), 0);
        CHECK(tree_stopped(tree));
        CHECK(test_stands_still());
        CHECK_INT(tree_thaw(tree), 0);
        CHECK(test_moves());
    }
    tree_sample_memory(tree);
    CHECK(tree_peak_memory_bytes(tree) > 3 * 100000);
    CHECK_INT(tree_freeze(tree, TEST_PATIENCE_NS), 0); // killing must work on a frozen tree
    CHECK_INT(tree_kill(tree), 0);
    int status = 0;
    CHECK_INT(waitpid(root, &status, 0), root);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(test_stands_still());
    tree_free(tree);
}

TEST(best_means)
{
    char *base = NULL;
    enum tree_means means = tree_detect(&base);
    printf("    means: %s, base '%s'\n", tree_means_name(means), base);
    test_turns(means, base);
    tree_release_base(base);
    CHECK(means == TREE_MEANS_SIGNALS || access(base, F_OK) < 0);
    free(base);
}

TEST(signals)
{
    test_turns(TREE_MEANS_SIGNALS, "");
}

TEST(cpu_time_of_the_tree)
{
    char *base = NULL;
    enum tree_means means = tree_detect(&base);
    if (means != TREE_MEANS_CGROUP2) {
        tree_release_base(base);
        runner_skip("no writable cgroup v2");
    }
    struct tree *tree = NULL;
    CHECK_INT(tree_new(means, base, "t", test_mark, &tree, NULL), 0);
    int64_t begin_ns = clock_monotonic_ns(), cpu;
    pid_t root = test_tree_start(tree);
    while ((cpu = tree_cpu_ns(tree)) <= 20000000 &&
            clock_monotonic_ns() - begin_ns < TEST_PATIENCE_NS)
        clock_sleep_until_ns(clock_monotonic_ns() + 10000000);
    // of three that spin, in nanoseconds
    CHECK(cpu > 20000000 && cpu <= 4 * (clock_monotonic_ns() - begin_ns));
    CHECK_INT(tree_kill(tree), 0);
    waitpid(root, NULL, 0);
    tree_free(tree);
    tree_release_base(base);
    free(base);
}

static bool test_comes_to(volatile long *counter, long value)
{
    int64_t deadline = clock_monotonic_ns() + TEST_PATIENCE_NS;
    while (*counter < value && clock_monotonic_ns() < deadline)
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
    return *counter >= value;
}

enum { TEST_CHILDREN = 4, TEST_CHILD_BYTES = 64 << 20 };

// Children of the root one after the other, each with memory of its own until it is told to end.
static void test_one_after_the_other(void)
{
    for (int i = 0; i < TEST_CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            char *memory = mmap(NULL, TEST_CHILD_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(memory, 1, TEST_CHILD_BYTES);
            test_counters[0] = i + 1;
            test_comes_to(&test_counters[1], i + 1);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    test_comes_to(&test_counters[1], TEST_CHILDREN + 1);
}

TEST(what_has_ended_holds_no_memory)
{
    struct tree *tree = NULL;
    CHECK_INT(tree_new(TREE_MEANS_SIGNALS, "", "t", test_mark, &tree, NULL), 0);
    CHECK_INT(tree_peak_memory_bytes(tree), -1);
    test_counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(NULL);
    pid_t root = fork();
    if (root == 0) {
        test_one_after_the_other();
        _exit(0);
    }
    tree_set_root(tree, root, 0);
    for (int i = 0; i < TEST_CHILDREN; i++) {
        CHECK(test_comes_to(&test_counters[0], i + 1));
        tree_sample_memory(tree);
        test_counters[1] = i + 1;
    }
    CHECK(tree_peak_memory_bytes(tree) > TEST_CHILD_BYTES);
    // the root, and what a child has of it
    CHECK(tree_peak_memory_bytes(tree) < 2 * (int64_t)TEST_CHILD_BYTES + (32 << 20));
    CHECK_INT(tree_process_count(tree), 2);
    test_counters[1] = TEST_CHILDREN + 1;
    waitpid(root, NULL, 0);
    tree_free(tree);
}

// A child with the number that is asked for. -1: that takes a right, or Linux 5.5.
static pid_t test_fork_as(pid_t number)
{
    // struct clone_args: exit_signal, set_tid, set_tid_size
    const uint64_t args[] = {[4] = SIGCHLD, [8] = (uint64_t)(uintptr_t)&number, [9] = 1};
    return (pid_t)syscall(SYS_clone3, args, sizeof args);
}

// How many have the mark of a launch of an upgate that was started at `ticks`, where one has it.
static int test_count_marked(int64_t ticks)
{
    char *mark = xasprintf("/dev/shm/upgate-%d-%lld-launch-0", getpid(), (long long)ticks);
    char dir[32], *has = NULL;
    pid_t pids[4], pid = fork();
    if (pid == 0) {
        setenv("UPGATE_STEPS", mark, 1);
        execl("/bin/sleep", "sleep", "600", NULL);
        _exit(1);
    }
    int64_t deadline = clock_monotonic_ns() + TEST_PATIENCE_NS;
    snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    while (!(has = proc_variable(dir, "UPGATE_STEPS")) && clock_monotonic_ns() < deadline)
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
    CHECK_STR(has ? has : "", mark);
    free(has);
    int count = process_find_tree(-1, 0, mark, pids, 4);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    free(mark);
    return count;
}

// Its environment would be waited for where it hangs.
TEST(who_was_there_before_upgate_has_no_mark_of_it)
{
    int64_t own = process_start_ticks(getpid());
    CHECK_INT(test_count_marked(own), 1);
    CHECK_INT(test_count_marked(own + 1000000), 0);
    CHECK_INT(test_count_marked(-1), 1); // not known: all are asked
}

TEST(the_number_of_a_root_that_ended_is_anothers)
{
    struct tree *tree = NULL;
    CHECK_INT(tree_new(TREE_MEANS_SIGNALS, "", "t", "/dev/shm/upgate-test-number", &tree, NULL), 0);
    pid_t root = fork();
    while (root == 0)
        pause();
    tree_set_root(tree, root, 0);
    CHECK(tree_holds(tree, root));
    kill(root, SIGKILL);
    CHECK_INT(waitpid(root, NULL, 0), root);
    clock_sleep_until_ns(clock_monotonic_ns() + 50000000); // starts are told in ticks of 10 ms
    pid_t other = test_fork_as(root);
    while (other == 0)
        pause();
    if (other < 0) {
        tree_free(tree);
        runner_skip("no process can be made with a number that is asked for");
    }
    CHECK_INT(other, root);
    CHECK(!tree_holds(tree, other));
    CHECK(tree_is_empty(tree));
    CHECK_INT(tree_freeze(tree, TEST_PATIENCE_NS), 0);
    CHECK(process_running(other));
    CHECK_INT(tree_kill(tree), 0);
    tree_free(tree);
    CHECK_INT(waitpid(other, NULL, WNOHANG), 0);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}

// Of three that are equal pages of files count once, and what each has besides three times.
TEST(files_count_once)
{
    struct tree *tree = NULL;
    CHECK_INT(tree_new(TREE_MEANS_SIGNALS, "", "t", test_mark, &tree, NULL), 0);
    pid_t root = test_tree_start(tree), pids[8];
    CHECK(test_moves());
    CHECK_INT(tree_freeze(tree, TEST_PATIENCE_NS), 0);
    tree_sample_memory(tree);
    int count = process_find_tree(root, 0, test_mark, pids, 8);
    int64_t others = 0, files = 0, all = 0;
    CHECK_INT(count, 3);
    for (int i = 0; i < count; i++) {
        int64_t peak = 0, of_files = 0;
        CHECK(process_memory(pids[i], &peak, &of_files));
        CHECK(of_files > 0 && of_files < peak);
        others += peak - of_files;
        all += peak;
        files = of_files > files ? of_files : files;
    }
    CHECK_DBL((double)tree_peak_memory_bytes(tree), (double)(others + files), 256 << 10);
    CHECK(tree_peak_memory_bytes(tree) < all);
    int64_t peak, of_files;
    // a kernel thread has none; in a container it is a process
    CHECK(!process_memory(2, &peak, &of_files) || peak > 0);
    tree_kill(tree);
    waitpid(root, NULL, 0);
    tree_free(tree);
}

// Maps a file of 32 MiB, reads it, and gives it back when it is told to.
static void test_maps_a_file(const char *path, int index) __attribute__((noreturn));
static void test_maps_a_file(const char *path, int index)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *file = mmap(NULL, TEST_FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    volatile char sum = 0;
    for (size_t at = 0; file != MAP_FAILED && at < TEST_FILE_BYTES; at += 4096)
        sum = (char)(sum + file[at]);
    test_counters[index] = file != MAP_FAILED;
    while (!test_counters[2])
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
    munmap(file, TEST_FILE_BYTES);
    test_counters[index] = 2;
    for (;;)
        pause();
}

static void test_wait_for(long value)
{
    int64_t deadline = clock_monotonic_ns() + TEST_PATIENCE_NS;
    while ((test_counters[0] != value || test_counters[1] != value) &&
            clock_monotonic_ns() < deadline)
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
    CHECK(test_counters[0] == value && test_counters[1] == value);
}

// A process's peak holds for ever what it had of files; given back, that is still no memory of its
// own.
TEST(files_that_were_given_back)
{
    // no tmpfs: its pages are counted as shared memory
    char path[] = "/var/tmp/upgate-test-tree-XXXXXX";
    int fd = mkstemp(path);
    struct tree *tree = NULL;
    CHECK(fd >= 0 && ftruncate(fd, TEST_FILE_BYTES) == 0);
    CHECK_INT(tree_new(TREE_MEANS_SIGNALS, "", "t", test_mark, &tree, NULL), 0);
    test_counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t root = fork();
    if (root == 0) {
        if (fork() == 0)
            test_maps_a_file(path, 1);
        test_maps_a_file(path, 0);
    }
    tree_set_root(tree, root, 0);
    test_wait_for(1);
    tree_sample_memory(tree);
    int64_t mapped = tree_peak_memory_bytes(tree);
    CHECK(tree_process_count(tree) == 2 && mapped > TEST_FILE_BYTES &&
            mapped < 2 * TEST_FILE_BYTES);
    test_counters[2] = 1;
    test_wait_for(2);
    tree_sample_memory(tree);
    CHECK_DBL((double)tree_peak_memory_bytes(tree), (double)mapped, 1 << 20);
    tree_kill(tree);
    waitpid(root, NULL, 0);
    tree_free(tree);
    close(fd);
    unlink(path);
}

// Linux before 5.9, or a container's filter.
static void test_refuse_close_range(int error)
{
    struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        runner_skip("no seccomp filters here");
    CHECK(close_range(1000, 1001, 0) < 0 && errno == error);
}

// The process under test: makes a tree, freezes it, and waits to be killed.
static void test_doomed(int report_fd, enum tree_means forced) __attribute__((noreturn));
static void test_doomed(int report_fd, enum tree_means forced)
{
    char *base = NULL;
    enum tree_means means = forced == TREE_MEANS_SIGNALS ? forced : tree_detect(&base);
    if (!base)
        base = xstrdup("");
    struct guardian *guardian = NULL;
    struct tree *tree = NULL;
    if (guardian_start(base, &guardian, NULL) || guardian_watch(guardian, test_mark, NULL) ||
            tree_new(means, base, "t", test_mark, &tree, NULL))
        _exit(1);
    pid_t root = fork();
    if (root == 0) {
        tree_join(tree);
        setenv("UPGATE_STEPS", test_mark, 1);
        execl("/bin/sh", "sh", "-c", "setsid sleep 1000 & sleep 1000 & sleep 1000", NULL);
        _exit(127);
    }
    tree_set_root(tree, root, 0);
    close(open(test_mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    pid_t pids[64]; // until three are there
    int64_t deadline = clock_monotonic_ns() + TEST_PATIENCE_NS;
    while (process_find_tree(-1, 0, test_mark, pids, 64) < 3 && clock_monotonic_ns() < deadline)
        clock_sleep_until_ns(clock_monotonic_ns() + 10000000);
    tree_freeze(tree, TEST_PATIENCE_NS);
    ssize_t wrote = write(report_fd, base, strlen(base) + 1);
    (void)wrote;
    for (;;)
        pause();
}

static void test_kill9(enum tree_means means)
{
    int fds[2];
    char base[4096] = "";
    CHECK_INT(pipe(fds), 0);
    fflush(NULL);
    pid_t doomed = fork();
    if (doomed == 0)
        test_doomed(fds[1], means);
    close(fds[1]);
    CHECK(read(fds[0], base, sizeof base) > 0);
    pid_t pids[64];
    CHECK(process_find_tree(-1, 0, test_mark, pids, 64) >= 3);
    kill(doomed, SIGKILL);
    waitpid(doomed, NULL, 0);
    int left = -1;
    int64_t deadline = clock_monotonic_ns() + TEST_PATIENCE_NS;
    while (left && clock_monotonic_ns() < deadline) {
        clock_sleep_until_ns(clock_monotonic_ns() + 10000000);
        left = process_find_tree(-1, 0, test_mark, pids, 64);
    }
    CHECK_INT(left, 0);
    while ((access(test_mark, F_OK) == 0 || (base[0] && access(base, F_OK) == 0)) &&
            clock_monotonic_ns() < deadline)
        clock_sleep_until_ns(clock_monotonic_ns() + 10000000);
    CHECK(access(test_mark, F_OK) < 0);
    CHECK(!base[0] || access(base, F_OK) < 0);
}

TEST(kill_9_leaves_nothing_frozen_or_alive)
{
    test_kill9(TREE_MEANS_CGROUP2);
}

TEST(kill_9_without_close_range)
{
    test_refuse_close_range(ENOSYS);
    test_kill9(TREE_MEANS_CGROUP2);
}

TEST(kill_9_where_close_range_is_forbidden)
{
    test_refuse_close_range(EPERM);
    test_kill9(TREE_MEANS_SIGNALS);
}

TEST(kill_9_without_cgroups)
{
    test_kill9(TREE_MEANS_SIGNALS);
}

// A command about the guardian, until it succeeds: it gives itself its name after fork.
static int test_until(const char *command)
{
    char *loop =
            xasprintf("for i in $(seq 1000); do %s && exit 0; sleep 0.02; done; exit 1", command);
    int rc = system(loop);
    free(loop);
    return rc;
}

TEST(a_killed_guardian_is_replaced)
{
    struct guardian *guardian = NULL;
    CHECK_INT(guardian_start("", &guardian, NULL), 0);
    CHECK_INT(test_until("pkill -9 -P $PPID ug-guardian"), 0);
    siginfo_t info;
    CHECK_INT(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0); // until it has ended
    CHECK_INT(guardian_watch(guardian, test_mark, NULL), 0);
    CHECK_INT(test_until("pgrep -P $PPID ug-guardian > /dev/null"), 0);
    guardian_stop(guardian);
}

// A side can do that to both: they are processes of the same user.
TEST(a_stopped_guardian_holds_nobody_up)
{
    struct guardian *guardian = NULL;
    CHECK_INT(guardian_start("", &guardian, NULL), 0);
    CHECK_INT(test_until("pkill -STOP -P $PPID ug-guardian"), 0);
    guardian_stop(guardian);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1); // it has ended
}

static void test_stop_keeper(void *arg)
{
    (void)arg;
    kill(getppid(), SIGSTOP);
    _exit(3);
}

TEST(a_stopped_keeper_holds_nobody_up)
{
    struct keeper *keeper = NULL;
    struct rusage usage;
    struct error err = {0};
    pid_t root = 0;
    int status = 0;
    CHECK_INT(keeper_start(test_stop_keeper, NULL, NULL, false, &keeper, &root, &err), 0);
    CHECK_INT(keeper_wait(keeper, &status, &usage), 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK_INT(kill(keeper_pid(keeper), SIGSTOP), 0);
    keeper_free(keeper);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
}

// `pkill -9 upgate` of an annoyed user: the guardian is who cleans up after it.
TEST(the_guardian_is_not_called_upgate)
{
    struct guardian *guardian = NULL;
    CHECK_INT(guardian_start("", &guardian, NULL), 0);
    CHECK_INT(test_until("pgrep -P $PPID guardian > /dev/null"), 0);
    CHECK(system("pgrep -P $PPID upgate > /dev/null") != 0);
    guardian_stop(guardian);
}

TEST(what_a_dead_run_left_is_swept)
{
    char *base = NULL, *again = NULL;
    enum tree_means means = tree_detect(&base);
    if (means == TREE_MEANS_SIGNALS)
        runner_skip("no writable cgroup");
    // A directory as another process of this name would have left it: pid 1 did not start at
    // tick 1.
    char *stale = xstrdup(base);
    strcpy(strstr(stale, "upgate-"), "upgate-1-1");
    char *command = xasprintf("mkdir -p %s/launch-0", stale);
    CHECK_INT(system(command), 0);
    free(command);
    tree_detect(&again);
    CHECK(access(stale, F_OK) < 0);
    CHECK(access(base, F_OK) == 0); // held, by ourselves
    tree_release_base(again);
    tree_release_base(base);
    free(base);
    free(again);
    free(stale);
}

// An upgate of another pid namespace looks around: pids mean nothing to it.
static void test_stranger(void) __attribute__((noreturn));
static void test_stranger(void)
{
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0)
        _exit(77);
    pid_t pid = fork();
    if (pid == 0) {
        if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                mount("proc", "/proc", "proc", 0, NULL) < 0)
            _exit(77);
        char *base = NULL;
        tree_detect(&base);
        tree_release_base(base);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    _exit(WEXITSTATUS(status));
}

TEST(what_lives_in_another_pid_namespace_is_not_swept)
{
    char *base = NULL;
    if (tree_detect(&base) == TREE_MEANS_SIGNALS)
        runner_skip("no writable cgroup");
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        test_stranger();
    int status = 0;
    CHECK_INT(waitpid(pid, &status, 0), pid);
    bool stays = access(base, F_OK) == 0;
    tree_release_base(base);
    free(base);
    if (WEXITSTATUS(status) == 77)
        runner_skip("no namespaces of processes can be made here");
    CHECK_INT(status, 0);
    CHECK(stays);
}

// A container in a threaded subtree: another means, not a launch that cannot be put into its
// cgroup.
TEST(below_a_threaded_cgroup_something_else_is_used)
{
    char *base = NULL;
    if (tree_detect(&base) != TREE_MEANS_CGROUP2) {
        tree_release_base(base);
        runner_skip("no writable cgroup v2");
    }
    char *group = xasprintf("%s/threaded", base);
    char *make = xasprintf("mkdir %s && echo threaded > %s/cgroup.type", group, group);
    char *enter = xasprintf("echo %d > %s/cgroup.procs && echo %d > %s/cgroup.procs", getpid(),
            base, getpid(), group);
    char *leave = xasprintf("echo %d > %s/../cgroup.procs", getpid(), base);
    bool inside = system(make) == 0 && system(enter) == 0;
    char *other = NULL;
    enum tree_means means = inside ? tree_detect(&other) : TREE_MEANS_CGROUP2;
    tree_release_base(other);
    CHECK_INT(system(leave), 0);
    tree_release_base(base);
    free(base);
    free(other);
    free(group);
    free(make);
    free(enter);
    free(leave);
    if (!inside)
        runner_skip("no threaded cgroup can be made here");
    CHECK(means != TREE_MEANS_CGROUP2);
}
