// SPDX-License-Identifier: Apache-2.0
// Time namespaces for tests, where they can be made.
#ifndef UPGATE_TESTS_UNIT_TEST_TIME_RIG_H
#define UPGATE_TESTS_UNIT_TEST_TIME_RIG_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/time_namespace.h"
#include "tests/unit/runner.h"

#define TIME_RIG_NEWTIME 0x80 // CLONE_NEWTIME

// The children of this process are ahead from here on; this process stays where it is. Lengths are
// not below 0.
__attribute__((unused)) static void time_rig_enter(int64_t monotonic_ns, int64_t boottime_ns)
{
    char text[128], why[128];
    struct stat status;
    int fd;

    if (stat("/proc/self/ns/time", &status) != 0 || status.st_ino != TIME_NAMESPACE_FIRST)
        runner_skip("this kernel has no time namespaces, or this test is in one itself");
    if (syscall(SYS_unshare, TIME_RIG_NEWTIME) != 0) {
        snprintf(why, sizeof(why), "no time namespace can be made here: %s", strerror(errno));
        runner_skip(why);
    }
    fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    snprintf(text, sizeof(text), "monotonic %lld %lld\nboottime %lld %lld\n",
            (long long)(monotonic_ns / 1000000000), (long long)(monotonic_ns % 1000000000),
            (long long)(boottime_ns / 1000000000), (long long)(boottime_ns % 1000000000));
    CHECK_INT(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

#endif
