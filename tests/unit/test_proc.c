// SPDX-License-Identifier: Apache-2.0
// What the kernel tells of processes: ourselves, and directories by hand.
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/proc.h"
#include "tests/unit/runner.h"

static char world[64];

static void world_begin(void)
{
    snprintf(world, sizeof world, "/tmp/upgate_proc_XXXXXX");
    CHECK(mkdtemp(world) != NULL);
}

static void world_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", world, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void world_end(void)
{
    static const char *const names[] = {"stat", "status", "maps", "smaps", "environ"};
    char path[128];
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", world, names[i]);
        unlink(path);
    }
    CHECK_INT(rmdir(world), 0);
}

TEST(stat_of_ourselves)
{
    struct proc_stat stat;
    CHECK_INT(prctl(PR_SET_NAME, "a) Z 1 (b"), 0); // what a name may hold
    CHECK_INT(proc_stat_of(getpid(), &stat), 0);
    CHECK_STR(stat.comm, "a) Z 1 (b");
    CHECK_INT(stat.state, 'R');
    CHECK_INT(stat.parent, getppid());
    CHECK_INT(stat.threads, 1);
    CHECK(stat.start_ticks > 0 && stat.code_begin > 1 && stat.code_end > stat.code_begin &&
            stat.stack_begin > 1);
    CHECK(!proc_stat_ended(&stat));
}

TEST(one_process_as_two_tell_of_it)
{
    CHECK(proc_same_start(7, 7) && proc_same_start(7, 8) && proc_same_start(8, 7));
    CHECK(proc_same_start(0, 1) && proc_same_start(1, 0) && proc_same_start(0, 0));
    CHECK(!proc_same_start(7, 9) && !proc_same_start(9, 7) && !proc_same_start(0, 2));
    CHECK(!proc_same_start(2, 0) && !proc_same_start(5, UINT64_MAX));
}

TEST(stat_of_a_zombie_and_of_nobody)
{
    struct proc_stat stat;
    siginfo_t info;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK_INT(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    CHECK_INT(proc_stat_of(child, &stat), 0);
    CHECK(proc_stat_ended(&stat));
    CHECK_INT(stat.parent, getpid());
    CHECK_INT(waitpid(child, NULL, 0), child);
    CHECK_INT(proc_stat_of(child, &stat), -ESRCH);
}

TEST(stat_fields_by_number)
{
    struct proc_stat stat;
    world_begin();
    world_file("stat",
            "7 (x y) S 4 5 6 7 -1 9 10 11 12 13 14 15 16 17 18 -19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 "
            "35 36 37 38 39 40 41 42\n");
    CHECK_INT(proc_stat_read(world, &stat), 0);
    CHECK_INT(stat.parent, 4);
    CHECK_INT(stat.flags, 9);
    CHECK_INT(stat.nice, -19);
    CHECK_INT(stat.threads, 20);
    CHECK_INT(stat.start_ticks, 22);
    CHECK_INT(stat.code_begin, 26);
    CHECK_INT(stat.code_end, 27);
    CHECK_INT(stat.stack_begin, 28);
    CHECK_INT(stat.realtime_priority, 40);
    CHECK_INT(stat.policy, 41);
    world_file("stat", "7 (x) S 4 5 6"); // cut
    CHECK_INT(proc_stat_read(world, &stat), -EBADMSG);
    world_file("stat", "7 (x");
    CHECK_INT(proc_stat_read(world, &stat), -EBADMSG);
    world_file("stat", "7 )x(");
    CHECK_INT(proc_stat_read(world, &stat), -EBADMSG);
    world_file("stat", "");
    CHECK_INT(proc_stat_read(world, &stat), -ESRCH);
    world_end();
}

TEST(status_lines)
{
    char text[16];
    world_begin();
    CHECK_INT(proc_status_read(world, "Name", text, sizeof text), -ESRCH);
    CHECK_INT(proc_inner_pid(world), 0);
    world_file("status",
            "Name:\ta name that is long\nTgid:\t81\nPid:\t82\nVmHWM:\t    1234 kB\nX:\nNSpid:\t82\t12\t5\n");
    CHECK_INT(proc_status_read(world, "Name", text, sizeof text), 0);
    CHECK_STR(text, "a name that is "); // cut, with its end
    CHECK_INT(proc_status_number(world, "Tgid"), 81);
    CHECK_INT(proc_status_number(world, "VmHWM"), 1234);
    CHECK_INT(proc_status_number(world, "Name"), -1);
    CHECK_INT(proc_status_number(world, "X"), -1); // not what the next line has
    static const char *const keys[] = {"VmHWM", "Name", "X", "NSpid", "none"};
    int64_t numbers[5];
    CHECK_INT(proc_status_numbers(world, keys, 5, numbers), 0);
    static const int64_t wanted[] = {1234, -1, -1, 82, -1};
    for (int i = 0; i < 5; i++)
        CHECK_INT(numbers[i], wanted[i]);
    CHECK_INT(proc_status_numbers("/proc/none", keys, 5, numbers), -ESRCH);
    CHECK_INT(proc_status_read(world, "pid", text, sizeof text), -EBADMSG); // only whole keys
    pid_t outer = 0, inner = 0;
    CHECK_INT(proc_pids(world, &outer, &inner), 3);
    CHECK_INT(outer, 82);
    CHECK_INT(inner, 5);
    CHECK_INT(proc_inner_pid(world), 5);
    world_file("status", "Name:\tx\nTgid:\t81\nPid:\t82\n"); // of an old kernel
    CHECK_INT(proc_inner_pid(world), 82);
    CHECK_INT(proc_inner_pid("/proc/self"), getpid());
    world_end();
}

static int in_namespace(void *arg)
{
    int *fds = arg;
    char bytes[1];
    pid_t self = getpid();
    return write(fds[1], &self, sizeof self) != sizeof self || read(fds[2], bytes, 1) < 0;
}

// A process is found by what it calls itself in a pid namespace of its own; another's number is not
// taken for it.
TEST(pids_of_another_namespace)
{
    static char stack[65536] __attribute__((aligned(16)));
    int fds[4];
    struct stat status;
    char path[64];
    CHECK_INT(pipe(fds) | pipe(fds + 2), 0);
    int of_child[3] = {fds[0], fds[1], fds[2]};
    pid_t pid = clone(in_namespace, stack + sizeof stack, CLONE_NEWPID | SIGCHLD, of_child),
          inner = 0;
    if (pid < 0) // not root
        return;
    CHECK_INT(read(fds[0], &inner, sizeof inner), sizeof inner);
    CHECK_INT(inner, 1);
    snprintf(path, sizeof path, "/proc/%d/ns/pid", pid);
    CHECK_INT(stat(path, &status), 0);
    CHECK_INT(proc_outer_pid(1, status.st_ino), pid);
    CHECK_INT(proc_outer_pid(2, status.st_ino), -1);
    CHECK_INT(proc_outer_tid(pid, 1), pid);
    CHECK_INT(proc_outer_tid(pid, 2), -1);
    CHECK_INT(proc_outer_pid(7, 0), 7);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_INT(proc_outer_pid(1, status.st_ino), -1);
}

TEST(variables)
{
    static const char block[] = "PATH=/bin\0NAME=\0NAME2=two=2\0no sign\0NAME2=late";
    char path[128];
    world_begin();
    CHECK(!proc_variable(world, "PATH")); // no such file
    snprintf(path, sizeof path, "%s/environ", world);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fwrite(block, 1, sizeof block - 1, file) == sizeof block - 1 &&
            fclose(file) == 0);
    char *empty = proc_variable(world, "NAME"), *two = proc_variable(world, "NAME2");
    CHECK_STR(empty, "");
    CHECK_STR(two, "two=2");
    CHECK(!proc_variable(world, "NAM") && !proc_variable(world, "no sign") &&
            !proc_variable(world, ""));
    free(empty);
    free(two);
    world_end();
}

TEST(maps_line_by_line)
{
    struct proc_maps maps;
    struct proc_mapping one;
    world_begin();
    CHECK_INT(proc_maps_open(world, &maps), -ENOENT);
    world_file("maps",
            "400000-401000 r-xp 00001000 08:01 77 /usr/bin/a b (deleted)\nnonsense\n"
            "7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n"
            "7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0                          [stack]\n");
    CHECK_INT(proc_maps_open(world, &maps), 0);
    CHECK(proc_maps_next(&maps, &one));
    CHECK_INT(one.begin, 0x400000);
    CHECK_INT(one.end, 0x401000);
    CHECK_INT(one.offset, 0x1000);
    CHECK_INT(one.inode, 77);
    CHECK_INT(one.device, 0x801);
    CHECK_STR(one.permissions, "r-xp");
    CHECK_STR(one.path, "/usr/bin/a b (deleted)");
    CHECK(proc_maps_next(&maps, &one)); // nonsense is skipped
    CHECK_STR(one.path, "");
    CHECK(proc_maps_next(&maps, &one));
    CHECK_STR(one.path, "[stack]");
    CHECK(!proc_maps_next(&maps, &one));
    CHECK_INT(proc_maps_close(&maps), 0);
    world_end();
}

TEST(maps_of_ourselves)
{
    struct proc_maps maps;
    struct proc_mapping one;
    bool found = false;
    CHECK_INT(proc_maps_open("/proc/self", &maps), 0);
    while (proc_maps_next(&maps, &one))
        found |= one.begin <= (uintptr_t)&proc_maps_next && (uintptr_t)&proc_maps_next < one.end &&
                one.permissions[2] == 'x' && one.path[0] == '/' && one.inode;
    CHECK_INT(proc_maps_close(&maps), 0);
    CHECK(found);
}

// Of a kernel 6.1: a library, anonymous memory, a shared one.
static const char smaps_text[] =
        "7f5a3c000000-7f5a3c200000 r-xp 00026000 fe:01 1318                       /usr/lib/libc.so.6\n"
        "Size:               2048 kB\nKernelPageSize:        4 kB\nMMUPageSize:           4 kB\nRss:                1360 kB\n"
        "Pss:                 103 kB\nPss_Dirty:             0 kB\nShared_Clean:       1356 kB\nShared_Dirty:          0 kB\n"
        "Private_Clean:         0 kB\nPrivate_Dirty:         4 kB\nReferenced:         1360 kB\nAnonymous:             4 kB\n"
        "LazyFree:              0 kB\nAnonHugePages:         0 kB\nFilePmdMapped:         0 kB\nLocked:                0 kB\n"
        "THPeligible:    0\nVmFlags: rd ex mr mw me sd \n"
        "7f5a40000000-7f5a44000000 rw-p 00000000 00:00 0 \n"
        "Size:              65536 kB\nRss:               65536 kB\nAnonymous:         65536 kB\nAnonHugePages:     65536 kB\n"
        "VmFlags: rd wr mr mw me ac sd \n"
        "7f5a50000000-7f5a50001000 rw-s 00000000 00:01 4                          /memfd:a b (deleted)\n"
        "Size:                  4 kB\nRss:                   4 kB\nAnonymous:             0 kB\n";

TEST(smaps_of_a_kernel)
{
    struct proc_smaps smaps;
    struct proc_usage one;
    world_begin();
    CHECK_INT(proc_smaps_open(world, &smaps), -ENOENT);
    world_file("smaps", smaps_text);
    CHECK_INT(proc_smaps_open(world, &smaps), 0);
    CHECK(proc_smaps_next(&smaps, &one));
    CHECK_STR(one.mapping.path, "/usr/lib/libc.so.6");
    CHECK_INT(one.mapping.end, 0x7f5a3c200000);
    CHECK_INT(one.resident_bytes, 1360 * 1024);
    CHECK_INT(one.anonymous_bytes, 4 * 1024);
    CHECK(proc_smaps_next(&smaps, &one));
    CHECK_STR(one.mapping.path, "");
    CHECK_INT(one.resident_bytes, 65536 * 1024);
    CHECK_INT(one.anonymous_bytes, 65536 * 1024);
    CHECK(proc_smaps_next(&smaps, &one));
    CHECK_STR(one.mapping.path, "/memfd:a b (deleted)");
    CHECK_INT(one.resident_bytes, 4 * 1024);
    CHECK_INT(one.anonymous_bytes, 0);
    CHECK(!proc_smaps_next(&smaps, &one));
    CHECK_INT(proc_smaps_close(&smaps), 0);
    world_end();
}

// Cut anywhere, it gives no mapping that is not there and no number that is larger.
TEST(smaps_damaged)
{
    world_begin();
    for (size_t len = 0; len < sizeof smaps_text; len++) {
        char text[sizeof smaps_text];
        struct proc_smaps smaps;
        struct proc_usage one;
        int64_t sum = 0;
        int count = 0;
        snprintf(text, sizeof text, "%.*s", (int)len, smaps_text);
        world_file("smaps", text);
        CHECK_INT(proc_smaps_open(world, &smaps), 0);
        while (proc_smaps_next(&smaps, &one)) {
            sum += one.resident_bytes;
            count++;
        }
        CHECK(count <= 3 && sum <= (1360 + 65536 + 4) * 1024);
        CHECK_INT(proc_smaps_close(&smaps), 0);
    }
    struct proc_smaps smaps;
    struct proc_usage one;
    world_file("smaps",
            "Rss: 7 kB\nnonsense\n400000-401000 r-xp 0 08:01 77 /a\nRss: 99999999999999999999999 kB\nAnonymous: x kB\nRss\n");
    CHECK_INT(proc_smaps_open(world, &smaps), 0);
    CHECK(proc_smaps_next(&smaps, &one));
    CHECK_STR(one.mapping.path, "/a");
    CHECK_INT(one.resident_bytes, 0);
    CHECK_INT(one.anonymous_bytes, 0);
    CHECK(!proc_smaps_next(&smaps, &one));
    CHECK_INT(proc_smaps_close(&smaps), 0);
    world_end();
}

TEST(smaps_of_ourselves)
{
    struct proc_smaps smaps;
    struct proc_usage one;
    enum { TOUCHED = 4 << 20 };
    volatile char *memory = malloc(TOUCHED);
    int64_t sum = 0, holding = 0;
    for (size_t i = 0; i < TOUCHED; i += 4096)
        memory[i] = 1;
    CHECK_INT(proc_smaps_open("/proc/self", &smaps), 0);
    while (proc_smaps_next(&smaps, &one)) {
        sum += one.resident_bytes;
        if (one.mapping.begin <= (uintptr_t)memory && (uintptr_t)memory < one.mapping.end)
            holding = one.anonymous_bytes;
    }
    CHECK_INT(proc_smaps_close(&smaps), 0);
    int64_t told = proc_status_number("/proc/self", "VmRSS") * 1024;
    free((void *)memory);
    CHECK(holding >= TOUCHED - 4096);
    // The kernel's own counters are behind: before Linux 6.2 three of them by 64 pages each, since
    // then by some pages a CPU.
    CHECK(llabs(sum - told) <= told / 10 + 3 * 64 * 4096);
}
