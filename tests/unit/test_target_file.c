// SPDX-License-Identifier: Apache-2.0
// Files of a process that does its worst: links out of its root, FIFOs, devices, directories.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "common/target_file.h"
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
    int fd = target_file_open("/proc", pid, path);
    if (fd >= 0 && read(fd, text, sizeof text - 1) < 0)
        runner_fail(__FILE__, __LINE__, "'%s' cannot be read", path);
    CHECK_STR(fd < 0 ? "refused" : text, want);
    if (fd >= 0)
        close(fd);
}

TEST(nothing_outside_the_root_and_only_regular_files)
{
    pid_t pid = test_jail();
    char *outside = xasprintf("%s.outside", test_dir), *escape = xasprintf("../../../../../../../..%s", outside);
    test_sh("mkdir a && echo -n inside > a/file && ln -s /a/file absolute && ln -s a relative && mkfifo fifo");
    char *plant = xasprintf("echo -n stolen > %s && ln -s %s out && ln -s %s up && mknod device c 1 3 && ln -s loop loop",
                            outside, outside, escape);
    test_sh(plant);
    alarm(20);
    check_open(pid, "/a/file", "inside");
    check_open(pid, "/absolute", "inside");
    check_open(pid, "/relative/file", "inside");
    check_open(pid, "/../../a/file", "inside");
    check_open(pid, "/out", "refused");
    check_open(pid, "/up", "refused");
    check_open(pid, escape, "refused");
    check_open(pid, "/fifo", "refused");
    check_open(pid, "/device", "refused");
    check_open(pid, "/loop", "refused");
    check_open(pid, "/a", "refused");
    char *fifo = xasprintf("%s/fifo", test_dir);
    CHECK_INT(target_file_open_here(fifo), -1);
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
