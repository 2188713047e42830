// SPDX-License-Identifier: Apache-2.0
// What /proc tells of time namespaces, of directories by hand; and the clock of a program that
// follows the machine's, in real ones where they can be made.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/proc.h"
#include "tests/unit/runner.h"
#include "tests/unit/test_time_rig.h"

#define AHEAD_NS INT64_C(7200123456789)

static void expect_offsets(const char *text, int64_t monotonic_ns, int64_t boottime_ns)
{
    struct time_offsets offsets = {1, 2};
    CHECK_INT(time_offsets_parse(text, &offsets), 0);
    CHECK_INT(offsets.monotonic_ns, monotonic_ns);
    CHECK_INT(offsets.boottime_ns, boottime_ns);
}

TEST(offsets_as_the_kernel_writes_them)
{
    expect_offsets("monotonic           0         0\nboottime            0         0\n", 0, 0);
    expect_offsets("monotonic           0 100000000\nboottime            0 100000000\n", 100000000,
            100000000);
    expect_offsets("monotonic       18000 123456789\nboottime           -1 500000000\n",
            INT64_C(18000123456789), -500000000);
    expect_offsets("boottime 3 0\nmonotonic -4000000000 999999999", INT64_C(-3999999999000000001),
            3000000000);
    expect_offsets("monotonic 1 2\nlater 9 9\nboottime 3 4\n", 1000000002, 3000000004);
}

TEST(offsets_that_are_none)
{
    static const char *const texts[] = {"", "\n", "monotonic 0 0\n", "boottime 0 0\n",
            "monotonic 0 0\nboottime 0\n", "monotonic 0 0\nboottime 0 0 0\n",
            "monotonic 0 0\nboottime 0 0\nx", "monotonic 0 0\n\nboottime 0 0\n",
            "monotonic 0 0\nboottime 0 -1\n", "monotonic 0 0\nboottime 0 1000000000\n",
            "monotonic 0 0\nboottime 4000000001 0\n", "monotonic 0 0\nboottime -4000000001 0\n",
            "monotonic 0 0\nboottime 99999999999999999999 0\n", "monotonic 0 0\nboottime +1 0\n",
            "monotonic 0 0\nboottime - 0\n", "monotonic 0 0\nboottime 0x1 0\n",
            "monotonic 0 0\nboottime 1.5 0\n", "monotonic 0 0\nmonotonic 0 0\nboottime 0 0\n",
            "monotonic 0 0 boottime 0 0\n", "monotonic0 0\nboottime 0 0\n", " monotonic 0 0\n",
            "monotonic 0 0\nboottime 0 0\r\n", "monotonic\n0 0\nboottime 0 0\n",
            "monotonic 0 0\nboottime 0 0\nmonotonic", "\xff\xfe monotonic 0 0\nboottime 0 0\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct time_offsets offsets = {1, 2};
        if (time_offsets_parse(texts[i], &offsets) != -EBADMSG)
            runner_fail(__FILE__, __LINE__, "taken for offsets: '%s'", texts[i]);
        CHECK_INT(offsets.monotonic_ns, 1);
        CHECK_INT(offsets.boottime_ns, 2);
    }
}

// --- of a process --------------------------------------------------------------------------------

static char world[] = "/tmp/upgate_time_XXXXXX";

static void world_file(const char *name, const char *text, size_t len)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", world, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fwrite(text, 1, len, file) == len && fclose(file) == 0);
}

static int mkdir_in(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", world, name);
    return mkdir(path, 0755);
}

// Its children come into the same namespace, or into another one.
static void world_begin(bool same, const char *offsets, size_t len)
{
    char own[128], children[128];
    runner_directory(world);
    snprintf(own, sizeof own, "%s/ns", world);
    CHECK_INT(mkdir(own, 0755), 0);
    world_file("ns/time", "", 0);
    snprintf(own, sizeof own, "%s/ns/time", world);
    snprintf(children, sizeof children, "%s/ns/time_for_children", world);
    if (same)
        CHECK_INT(link(own, children), 0);
    else
        world_file("ns/time_for_children", "", 0);
    if (offsets)
        world_file("timens_offsets", offsets, len);
}

TEST(of_a_process)
{
    static const char text[] = "monotonic 0 100000000\nboottime 1 0\n";
    struct time_offsets offsets;
    struct stat status;
    char path[128];
    uint64_t inode;
    world_begin(true, text, sizeof text - 1);
    CHECK_INT(time_offsets_of(world, &inode, &offsets), 0);
    CHECK_INT(offsets.monotonic_ns, 100000000);
    CHECK_INT(offsets.boottime_ns, 1000000000);
    snprintf(path, sizeof path, "%s/ns/time", world);
    CHECK_INT(stat(path, &status), 0);
    CHECK_INT(inode, status.st_ino);
}

TEST(of_a_process_whose_children_come_into_another)
{
    static const char text[] = "monotonic 0 100000000\nboottime 1 0\n"; // theirs
    struct time_offsets offsets = {1, 2};
    uint64_t inode = 0;
    world_begin(false, text, sizeof text - 1);
    CHECK_INT(time_offsets_of(world, &inode, &offsets), -EXDEV);
    CHECK(inode != 0);
    CHECK_INT(offsets.monotonic_ns, 1);
}

TEST(of_a_process_that_says_nonsense_and_of_none)
{
    static const char text[] = "monotonic 0 1\nboottime 0 1\n\0monotonic 5 5\n";
    struct time_offsets offsets = {1, 2};
    uint64_t inode;
    char none[160];
    world_begin(true, text, sizeof text - 1);
    CHECK_INT(time_offsets_of(world, &inode, &offsets), -EBADMSG);
    snprintf(none, sizeof none, "%s/none", world);
    int code = access("/proc/self/ns/time", F_OK) == 0 ? -ESRCH : 0; // a kernel that has none
    CHECK_INT(time_offsets_of(none, &inode, &offsets), code);
    CHECK_INT(inode, 0);
}

TEST(of_a_process_that_has_ended)
{
    struct time_offsets offsets;
    siginfo_t info;
    uint64_t inode;
    char dir[32];
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK_INT(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0); // it stays a zombie
    snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    int code = access("/proc/self/ns/time", F_OK) == 0 ? -ESRCH : 0;
    CHECK_INT(time_offsets_of(dir, &inode, &offsets), code);
    CHECK_INT(waitpid(pid, NULL, 0), pid);
    CHECK_INT(time_offsets_of(dir, &inode, &offsets), code);
}

// --- clocks --------------------------------------------------------------------------------------

static int64_t own_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

TEST(by_itself_a_clock_is_the_process_s_own)
{
    struct time_offsets ahead = {1, 2};
    uint64_t inode = 1;
    CHECK_INT(clock_machine_code(), 0);
    CHECK_INT(clock_boottime_ahead_ns(), 0);
    CHECK_INT(clock_compare("/proc/self", &inode, &ahead), 0);
    CHECK_INT(ahead.monotonic_ns, 0);
    CHECK_INT(ahead.boottime_ns, 0);
    CHECK_INT(clock_namespace(), inode);
    int64_t before = clock_monotonic_ns(), own = own_ns(CLOCK_MONOTONIC);
    CHECK(before <= own && own <= clock_monotonic_ns());
}

struct told { // by a child, of moments that its parent surrounds
    int64_t monotonic_ns, boottime_ns, own_ns, slept_ns, boot_ahead_ns;
    int code, compared;
    struct time_offsets self, parent;
    uint64_t inode, start_ticks, start_ticks_there; // the last one as its parent sees it
};

static void tell(int fd, bool follow)
{
    struct told told = {0};
    struct proc_stat stat;
    char dir[32];
    if (follow)
        clock_follow_machine();
    told.code = clock_machine_code();
    told.monotonic_ns = clock_monotonic_ns();
    told.boottime_ns = clock_boottime_ns();
    told.own_ns = own_ns(CLOCK_MONOTONIC);
    int64_t begin = clock_monotonic_ns();
    clock_sleep_until_ns(begin + 30000000);
    told.slept_ns = clock_monotonic_ns() - begin;
    told.boot_ahead_ns = clock_boottime_ahead_ns();
    told.compared = clock_compare("/proc/self", &told.inode, &told.self);
    snprintf(dir, sizeof dir, "/proc/%d", (int)getppid());
    told.compared = told.compared ? told.compared : clock_compare(dir, &told.inode, &told.parent);
    told.inode = clock_namespace();
    told.start_ticks = proc_stat_of(getpid(), &stat) ? 0 : stat.start_ticks;
    _exit(write(fd, &told, sizeof told) != sizeof told);
}

static struct told hear(bool follow, int64_t *ret_before, int64_t *ret_after)
{
    struct told told = {0};
    struct proc_stat stat;
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    *ret_before = own_ns(CLOCK_MONOTONIC);
    pid_t pid = fork();
    if (pid == 0)
        tell(ends[1], follow);
    uint64_t start_ticks = proc_stat_of(pid, &stat) ? 1000 : stat.start_ticks;
    CHECK_INT(read(ends[0], &told, sizeof told), sizeof told);
    told.start_ticks_there = start_ticks;
    *ret_after = own_ns(CLOCK_MONOTONIC);
    CHECK_INT(waitpid(pid, NULL, 0), pid);
    return told;
}

TEST(one_that_follows_the_machine_is_the_parent_s)
{
    int64_t before, after;
    time_rig_enter(AHEAD_NS, AHEAD_NS + 5);
    struct told told = hear(true, &before, &after);
    CHECK_INT(told.code, 0);
    CHECK_INT(told.inode, TIME_NAMESPACE_FIRST);
    CHECK(before <= told.monotonic_ns && told.monotonic_ns <= after);
    CHECK(told.own_ns - AHEAD_NS >= before && told.own_ns - AHEAD_NS <= after);
    CHECK(told.boottime_ns >= before && told.boottime_ns <= own_ns(CLOCK_BOOTTIME));
    CHECK(told.slept_ns >= 30000000 && told.slept_ns < 20000000000);
    CHECK_INT(told.boot_ahead_ns, AHEAD_NS + 5);
    CHECK_INT(told.compared, 0);
    CHECK_INT(told.self.monotonic_ns, AHEAD_NS);
    CHECK_INT(told.self.boottime_ns, AHEAD_NS + 5);
    CHECK_INT(told.parent.monotonic_ns, 0);
    CHECK_INT(told.parent.boottime_ns, 0);
    CHECK(proc_same_start(told.start_ticks_there, told.start_ticks));
}

TEST(a_fork_in_another_namespace_follows_too)
{
    int64_t before, after;
    clock_follow_machine();
    time_rig_enter(AHEAD_NS, 7200000000000); // whole ticks
    struct told told = hear(false, &before, &after);
    CHECK_INT(told.code, 0);
    CHECK(before <= told.monotonic_ns && told.monotonic_ns <= after);
    CHECK_INT(told.boot_ahead_ns, 7200000000000);
    CHECK_INT(told.start_ticks, told.start_ticks_there);
    CHECK_INT(told.self.monotonic_ns, AHEAD_NS);
}

// In a root directory of its own: what a case cleans up with lies outside of it.
static void look_without_namespaces(int fd)
{
    struct told told = {.code = 1};
    if (chroot(world) != 0)
        _exit(2);
    told.compared = time_offsets_of("/proc/self", &told.inode, &told.self);
    clock_follow_machine();
    told.code = clock_machine_code();
    told.boot_ahead_ns = clock_boottime_ahead_ns();
    told.inode = clock_namespace();
    told.self = (struct time_offsets){1, 2};
    told.slept_ns = clock_knows(TIME_NAMESPACE_FIRST, &told.self);
    told.own_ns = own_ns(CLOCK_MONOTONIC);
    told.monotonic_ns = clock_monotonic_ns();
    _exit(write(fd, &told, sizeof told) != sizeof told);
}

// Where not even that can be seen, it is as before there were time namespaces: nobody is refused,
// and who says that it is in the first one needs no look.
TEST(one_that_cannot_see_its_own_namespace_has_the_machine_s_clock)
{
    struct told told = {0};
    int ends[2], status;
    runner_directory(world);
    CHECK(mkdir_in("proc") == 0 && mkdir_in("proc/self") == 0 && pipe(ends) == 0);
    world_file("proc/self/ns", "", 0); // no directory: by a file that is missing a kernel has none
    pid_t pid = fork();
    if (pid == 0)
        look_without_namespaces(ends[1]);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        runner_skip("a root directory of its own needs privileges");
    CHECK_INT(status, 0);
    CHECK_INT(read(ends[0], &told, sizeof told), sizeof told);
    CHECK_INT(told.compared, -ENOTDIR);
    CHECK_INT(told.code, 0);
    CHECK_INT(told.boot_ahead_ns, 0);
    CHECK_INT(told.inode, 0);
    CHECK(told.slept_ns); // the first namespace is known
    CHECK_INT(told.self.monotonic_ns, 0);
    CHECK_INT(told.self.boottime_ns, 0);
    CHECK(told.monotonic_ns >= told.own_ns && told.monotonic_ns <= own_ns(CLOCK_MONOTONIC));
}

TEST(one_that_does_not_is_compared_all_the_same)
{
    int64_t before, after;
    time_rig_enter(AHEAD_NS, AHEAD_NS);
    struct told told = hear(false, &before, &after);
    CHECK_INT(told.code, 0);
    CHECK(told.monotonic_ns >= before + AHEAD_NS && told.monotonic_ns <= after + AHEAD_NS);
    CHECK_INT(told.compared, 0);
    CHECK_INT(told.self.monotonic_ns, 0);
    CHECK_INT(told.parent.monotonic_ns, -AHEAD_NS);
    CHECK_INT(told.parent.boottime_ns, -AHEAD_NS);
}
