// SPDX-License-Identifier: Apache-2.0
// Files of a process that does its worst: links out of its root, FIFOs, devices, directories.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "common/target/file.h"
#include "tests/unit/runner.h"

static char test_dir[] = "/tmp/upgate-target-XXXXXX";

static void test_sh(const char *command)
{
    char *line = xasprintf("cd %s && %s", test_dir, command);
    CHECK_INT(system(line), 0);
    free(line);
}

// A process whose root is test_dir, until it is killed.
static pid_t test_jail(void)
{
    int ready[2];
    char byte;
    CHECK(mkdtemp(test_dir) != NULL);
    CHECK_INT(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char ok = chroot(test_dir) == 0 && chdir("/") == 0 ? 'y' : 'n';
        if (write(ready[1], &ok, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    CHECK_INT(read(ready[0], &byte, 1), 1);
    if (byte == 'y')
        return pid;
    kill(pid, SIGKILL);
    test_sh("rm -r .");
    runner_skip("chroot(2) needs root");
}

static void check_open(pid_t pid, const char *path, const char *want)
{
    char text[64] = "";
    int fd = target_file_open("/proc", pid, path, 0);
    if (fd >= 0 && target_file_read(fd, text, sizeof text - 1, 0) < 0)
        runner_fail(__FILE__, __LINE__, "'%s' cannot be read", path);
    CHECK_STR(fd < 0 ? "refused" : text, want);
    if (fd >= 0)
        close(fd);
}

// Every openat2(2) answers as before Linux 5.6, or (EPERM) as under a filter of an old container
// runtime.
static void test_without_openat2(int code)
{
    struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_INT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    CHECK_INT(syscall(SYS_openat2, AT_FDCWD, "/", NULL, (size_t)0), -1);
    CHECK_INT(errno, code);
}

// filtered: openat2(2) fails with this code. Then no link is followed, also none that stays inside.
static void test_root(int filtered)
{
    pid_t pid = test_jail();
    char *outside = xasprintf("%s.outside", test_dir),
         *escape = xasprintf("../../../../../../../..%s", outside);
    test_sh("mkdir a && echo -n inside > a/file && ln -s /a/file absolute && ln -s a relative && mkfifo fifo");
    char *plant = xasprintf(
            "echo -n stolen > %s && ln -s %s out && ln -s %s up && mknod device c 1 3 && ln -s loop loop",
            outside, outside, escape);
    test_sh(plant);
    alarm(200);
    if (filtered)
        test_without_openat2(filtered);
    check_open(pid, "/a/file", "inside");
    check_open(pid, "/absolute", filtered ? "refused" : "inside");
    check_open(pid, "/relative/file", filtered ? "refused" : "inside");
    check_open(pid, "/../../a/file", filtered ? "refused" : "inside");
    check_open(pid, "/out", "refused");
    check_open(pid, "/up", "refused");
    check_open(pid, escape, "refused");
    check_open(pid, "/fifo", "refused");
    check_open(pid, "/device", "refused");
    check_open(pid, "/loop", "refused");
    check_open(pid, "/a", "refused");
    char *fifo = xasprintf("%s/fifo", test_dir);
    CHECK_INT(target_file_open_here(fifo, 0), -1);
    CHECK_INT(errno, EINVAL);
    alarm(0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(outside);
    char *clean = xasprintf("rm -r %s", test_dir);
    CHECK_INT(system(clean), 0);
    free(outside);
    free(escape);
    free(plant);
    free(fifo);
    free(clean);
}

TEST(nothing_outside_the_root_and_only_regular_files)
{
    test_root(0);
}

TEST(the_same_without_openat2)
{
    test_root(ENOSYS);
}

TEST(the_same_where_openat2_is_forbidden)
{
    test_root(EPERM);
}

// A process over whose /tmp somebody has mounted a file system that answers nothing.
static void test_dead_mount(int ready)
{
    char words[64];
    int fuse = open("/dev/fuse", O_RDWR);
    snprintf(words, sizeof words, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse);
    bool ok = fuse >= 0 && unshare(CLONE_NEWNS) == 0 &&
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
            mount("dead", "/tmp", "fuse", 0, words) == 0;
    if (write(ready, ok ? "y" : "n", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

TEST(a_file_system_that_does_not_answer_holds_nobody_up)
{
    int ready[2];
    char byte = 'n';
    CHECK_INT(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0)
        test_dead_mount(ready[1]);
    CHECK_INT(read(ready[0], &byte, 1), 1);
    pid_t opener = byte == 'y' ? fork() : -1;
    if (opener == 0) { // only SIGKILL ends one that waits
        bool refused = target_file_open("/proc", pid, "/tmp/perf-1.map", 0) < 0 && errno == EAGAIN;
        int64_t then_ns = clock_monotonic_ns();
        for (int i = 0; i < 1000; i++) // it is not asked again at once
            refused = refused && target_file_open("/proc", pid, "/tmp/perf-1.map", 0) < 0 &&
                    errno == EAGAIN;
        // each would take 20 ms at least
        bool briefly = clock_monotonic_ns() - then_ns < INT64_C(15000000000);
        bool others = target_file_open_here("/proc/self/exe", 0) >= 0 &&
                target_file_open("/proc", pid, "/proc/self/exe", 7) < 0 && errno != EAGAIN;
        char *silent = target_file_silent();
        _exit(refused && briefly && others && silent && !strcmp(silent, "/tmp/perf-1.map") ? 0 : 1);
    }
    int status = -1;
    for (int i = 0; opener > 0 && i < 5000 && waitpid(opener, &status, WNOHANG) == 0; i++)
        usleep(20000);
    if (opener > 0 && status == -1)
        kill(opener, SIGKILL);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (byte != 'y')
        runner_skip("no FUSE can be mounted here");
    CHECK_INT(status, 0);
}

// Who looks for what a process has mapped waits where its mmap lock is held, for which a /proc
// stands that does not answer; or for the file's file system, while the maps of the process are to
// be had. It is the device only in the second case.
TEST(a_process_whose_memory_map_is_locked_is_no_device_that_does_not_answer)
{
    enum { DEVICE = 7, OTHER = 8 };
    int ready[2];
    char byte = 'n';
    CHECK_INT(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0)
        test_dead_mount(ready[1]);
    CHECK_INT(read(ready[0], &byte, 1), 1);
    if (byte != 'y') {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        runner_skip("no FUSE can be mounted here");
    }
    char *proc = xasprintf("/proc/%d/root/tmp", (int)pid);
    alarm(200);
    CHECK(target_file_open_mapped(proc, 5, 4096, 8192, "/file", DEVICE) < 0 && errno == EAGAIN);
    CHECK(target_file_open_here("/proc/self/exe", DEVICE) >= 0);
    // another process's
    CHECK(target_file_open_mapped("/proc", getpid(), 4096, 8192, "/proc/self/exe", DEVICE) < 0 &&
            errno != EAGAIN);
    CHECK(target_file_open_mapped(proc, 5, 4096, 8192, "/file", DEVICE) < 0 && errno == EAGAIN);
    CHECK(target_file_open_mapped("/proc", pid, 4096, 8192, "/tmp/file", OTHER) < 0 &&
            errno == EAGAIN);
    CHECK(target_file_open_here("/proc/self/exe", OTHER) < 0 && errno == EAGAIN);
    CHECK(target_file_open_here("/proc/self/exe", DEVICE) >= 0);
    alarm(0);
    free(proc);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

// sysfs: not among those of which it is known that nobody else answers for them.
TEST(what_is_not_known_to_be_local_is_read_at_arms_length)
{
    char want[4096], got[4096], byte;
    struct stat here, status;
    const char *path = "/sys/devices/system/cpu/online";
    int direct = open(path, O_RDONLY);
    ssize_t bytes = direct < 0 ? -1 : pread(direct, want, sizeof want, 0);
    if (bytes <= 1)
        runner_skip("no sysfs here");
    int fd = target_file_open_here(path, 0);
    CHECK(fd >= 0);
    CHECK(pread(fd, &byte, 1, 0) < 0 && errno == EBADF);
    CHECK_INT(target_file_read(fd, got, sizeof got, 0), bytes);
    CHECK(memcmp(got, want, (size_t)bytes) == 0);
    CHECK_INT(target_file_read(fd, got, sizeof got, 1), bytes - 1);
    CHECK_INT(target_file_read(fd, got, sizeof got, (uint64_t)bytes), 0);
    CHECK(fstat(direct, &here) == 0 && target_file_status(fd, &status) == 0);
    CHECK(status.st_dev == here.st_dev && status.st_ino == here.st_ino &&
            status.st_mode == here.st_mode);
}

static pid_t test_reader(void) // who waits for file systems on our behalf
{
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) >= 0);
    close(fd);
    return (pid_t)atoi(text);
}

TEST(who_reads_is_replaced_when_it_was_killed_and_ends_with_us)
{
    int fd = target_file_open_here("/proc/self/exe", 0);
    pid_t reader = test_reader();
    CHECK(fd >= 0 && reader > 0);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1); // nobody's who waits for any child
    CHECK_INT(kill(reader, SIGKILL), 0);
    CHECK_INT(waitpid(reader, NULL, __WCLONE), reader);
    CHECK(target_file_open_here("/proc/self/exe", 0) >= 0);
    CHECK(test_reader() > 0 && test_reader() != reader);
    pid_t other = fork();
    if (other == 0) // one of its own
        _exit(target_file_open_here("/proc/self/exe", 0) >= 0 && test_reader() != reader ? 0 : 1);
    int status = 1;
    CHECK(waitpid(other, &status, 0) == other && status == 0);
}

static pid_t test_child(const char *name) // of ours, by its name; 0: none
{
    char path[64], text[256] = "", comm[32];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) >= 0);
    close(fd);
    for (char *at = text, *end; strtol(at, &end, 10) > 0; at = end) {
        pid_t pid = (pid_t)strtol(at, NULL, 10);
        snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
        FILE *file = fopen(path, "r");
        bool same = file && fscanf(file, "%31s", comm) == 1 && !strcmp(comm, name);
        if (file)
            fclose(file);
        if (same)
            return pid;
    }
    return 0;
}

static long test_resident_bytes(pid_t pid)
{
    char path[64];
    long pages = -1, all;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    CHECK(file && fscanf(file, "%ld %ld", &all, &pages) == 2);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void test_kill(pid_t pid)
{
    // a child of ours, whoever forked it
    CHECK(pid > 0 && kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, __WCLONE) == pid);
}

static bool test_opens(void)
{
    int fd = target_file_open_here("/proc/self/exe", 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

// 128 MB that were taken after the start: the second one has none of them, and the third, without
// whom forks them, opens files all the same.
TEST(who_takes_its_place_holds_nothing_of_what_was_taken_since)
{
    enum { BYTES = 128 << 20 };
    target_file_start(NULL);
    CHECK(test_opens());
    pid_t reader = test_child("upgate-files"), forker = test_child("upgate-forker");
    CHECK(reader > 0 && forker > 0);
    char *volatile memory = malloc(BYTES); // volatile: it is taken, whoever reads it
    memset(memory, 1, BYTES);
    test_kill(reader);
    CHECK(test_opens());
    pid_t next = test_child("upgate-files");
    CHECK(next > 0 && next != reader);
    CHECK(test_resident_bytes(getpid()) >= BYTES);
    CHECK(test_resident_bytes(next) < BYTES / 2);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1); // nor are these anybody's who waits for any child
    test_kill(forker);
    test_kill(next);
    CHECK(test_opens());
    CHECK(test_child("upgate-files") > 0 && test_child("upgate-forker") == 0);
    CHECK_INT(memory[BYTES - 1], 1);
    free(memory);
}

// It has a second, as a file system has; then we fork who reads next.
TEST(a_forker_that_was_stopped_holds_nobody_up)
{
    target_file_start(NULL);
    CHECK(test_opens());
    pid_t forker = test_child("upgate-forker");
    CHECK(forker > 0 && kill(forker, SIGSTOP) == 0);
    test_kill(test_child("upgate-files"));
    int64_t begin_ns = clock_monotonic_ns();
    CHECK(test_opens());
    // 1 s, and what a busy machine adds
    CHECK(clock_monotonic_ns() - begin_ns < INT64_C(60000000000));
    CHECK(test_child("upgate-files") > 0);
}

TEST(a_fork_of_ours_asks_for_none_of_our_readers)
{
    target_file_start(NULL);
    CHECK(test_opens());
    pid_t forker = test_child("upgate-forker");
    pid_t other = fork();
    if (other == 0) {
        // it would be the child of our parent else
        bool own = test_opens() && test_child("upgate-files") > 0;
        target_file_start(NULL);
        _exit(own && test_child("upgate-files") > 0 ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(other, &status, 0) == other && status == 0);
    CHECK(forker > 0 && kill(forker, 0) == 0);
    test_kill(test_child("upgate-files"));
    CHECK(test_opens());
}

TEST(another_file_at_the_path_is_not_opened)
{
    struct stat status;
    CHECK(mkdtemp(test_dir) != NULL);
    test_sh("echo a > a && echo b > b && mkfifo fifo");
    char *a = xasprintf("%s/a", test_dir), *b = xasprintf("%s/b", test_dir),
         *fifo = xasprintf("%s/fifo", test_dir);
    CHECK_INT(stat(a, &status), 0);
    int fd = target_file_open_known(a, status.st_dev, status.st_ino);
    CHECK(fd >= 0);
    close(fd);
    CHECK_INT(target_file_open_known(b, status.st_dev, status.st_ino), -1);
    CHECK_INT(target_file_open_known(a, status.st_dev + 1, status.st_ino), -1);
    CHECK_INT(stat(fifo, &status), 0);
    CHECK_INT(target_file_open_known(fifo, status.st_dev, status.st_ino), -1);
    test_sh("rm -r .[!.]* * 2>/dev/null; true");
    rmdir(test_dir);
    free(a);
    free(b);
    free(fifo);
}

TEST(only_memory_files_are_opened_as_such)
{
    char path[64];
    int memory = memfd_create("upgate-spool", 0);
    int disk = open("/proc/self/exe", O_RDONLY), device = open("/dev/null", O_RDWR);
    // on a tmpfs, as memory files are, but not on theirs
    FILE *shared = fopen("/dev/shm/memfd:upgate-spool", "w+");
    CHECK(memory >= 0 && disk >= 0 && device >= 0);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), memory);
    int fd = target_file_open_memory(path);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, "x", 1), 1);
    const int others[] = {disk, device, shared ? fileno(shared) : disk};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), others[i]);
        CHECK_INT(target_file_open_memory(path), -1);
        CHECK_INT(errno, EINVAL);
    }
    unlink("/dev/shm/memfd:upgate-spool");
}

// The kernel makes maps a page at a time, and what is longer than a question is read on.
TEST(the_text_of_a_file_that_the_kernel_makes_in_pieces_is_whole)
{
    enum { PAGES = 3000 }; // a mapping each, of about 50 characters
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char path[64], *area = mmap(NULL, PAGES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    for (size_t i = 0; i < PAGES; i += 2)
        CHECK_INT(mprotect(area + i * page, page, PROT_READ), 0);
    snprintf(path, sizeof path, "/proc/%d/maps", (int)getpid());
    size_t len = 0, found = 0;
    char *text = target_file_text(path, 1 << 20, &len);
    CHECK(text && strlen(text) == len && len > 2 * 65536);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        uintptr_t begin = strtoul(line, NULL, 16);
        found += begin >= (uintptr_t)area && begin < (uintptr_t)area + PAGES * page;
    }
    free(text);
    // the first and the last may have been joined to a neighbour
    CHECK(found >= PAGES - 2 && found <= PAGES);
    text = target_file_text(path, 100, &len);
    CHECK(text && len == 100 && strlen(text) == len);
    free(text);
    text = target_file_text(path, 1 << 20, &len); // from its begin again
    CHECK(text && len > 2 * 65536);
    free(text);
    CHECK(!target_file_text("/proc/4100000/maps", 1 << 20, &len));
    CHECK_INT(errno, ENOENT);
    FILE *stream = target_file_stream(path);
    char line[512];
    CHECK(stream != NULL);
    for (len = found = 0; fgets(line, sizeof line, stream); len += strlen(line)) {
        uintptr_t begin = strtoul(line, NULL, 16);
        found += begin >= (uintptr_t)area && begin < (uintptr_t)area + PAGES * page;
    }
    CHECK(feof(stream) && !ferror(stream) && len > 2 * 65536);
    CHECK_INT(fclose(stream), 0);
    CHECK(found >= PAGES - 2 && found <= PAGES);
    CHECK(!target_file_stream("/proc/4100000/maps"));
    CHECK_INT(errno, ENOENT);
}

// Every pread(2) fails but those from the begin of a file. Whoever reads for us inherits that.
static void test_fail_behind_the_begin(void)
{
    struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pread64, 0, 3),
            // its lower half: little endian
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                    offsetof(struct seccomp_data, args) + 3 * sizeof(uint64_t)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_INT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

// As of a process that ends while its maps are read. What is mapped behind would be taken for
// unmapped.
TEST(a_part_of_a_text_is_not_taken_for_all_of_it)
{
    char path[64];
    size_t len = 7;
    test_fail_behind_the_begin();
    snprintf(path, sizeof path, "/proc/%d/maps", (int)getpid());
    CHECK(!target_file_text(path, 1 << 20, &len));
    CHECK_INT(errno, EIO);
    CHECK(!target_file_stream(path));
    CHECK_INT(errno, EIO);
}

// Who reads for us is stopped: so it waits where the mmap lock of a process is held.
TEST(memory_that_is_locked_is_not_free)
{
    CHECK(target_memory_is_free(getpid()));
    CHECK(target_memory_is_free(4100000)); // nobody
    pid_t reader = test_reader();
    CHECK(reader > 0 && kill(reader, SIGSTOP) == 0);
    int64_t begin_ns = clock_monotonic_ns();
    CHECK(!target_memory_is_free(getpid()));
    // 50 ms, and what a busy machine adds
    CHECK(clock_monotonic_ns() - begin_ns < INT64_C(60000000000));
    // for a second
    CHECK(!target_memory_is_free(getpid()) ||
            clock_monotonic_ns() - begin_ns >= INT64_C(1000000000));
    CHECK(target_memory_is_free(getppid())); // of another one that is another matter
    CHECK(!target_file_silent());
}

// A FIFO that nobody writes into: it is given up within a second, and asked for again 2 s later,
// other files at once.
TEST(a_stream_that_does_not_come_is_given_up_soon)
{
    CHECK(mkdtemp(test_dir) != NULL);
    test_sh("mkfifo fifo");
    char *fifo = xasprintf("%s/fifo", test_dir);
    int64_t begin_ns = clock_monotonic_ns();
    alarm(60);
    CHECK(!target_file_stream(fifo));
    CHECK_INT(errno, EAGAIN);
    CHECK(!target_file_stream(fifo));
    CHECK_INT(errno, EAGAIN);
    alarm(0);
    // 0.1 s, and what a busy machine adds
    CHECK(clock_monotonic_ns() - begin_ns < INT64_C(60000000000));
    FILE *own = target_file_stream("/proc/self/maps");
    CHECK(own != NULL);
    fclose(own);
    char *silent = target_file_silent();
    CHECK_STR(silent, fifo);
    free(silent);
    unlink(fifo);
    rmdir(test_dir);
    free(fifo);
}
