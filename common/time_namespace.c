// SPDX-License-Identifier: Apache-2.0
// What /proc tells of the time namespace of a process. Called in a child between fork and exec,
// too: allocates nothing.
#include "common/time_namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OFFSETS_BYTES = 512 };
// 126 years. The kernel lets no clock come beyond 146 (KTIME_SEC_MAX / 2); the difference of two
// such lengths has room in 64 bits.
#define OFFSET_SECONDS_MAX INT64_C(4000000000)

// A number at *at, behind blanks; *at is then behind it.
static bool offsets_number(const char **at, int64_t least, int64_t most, int64_t *ret)
{
    const char *begin = *at + strspn(*at, " \t");
    char *end;
    if (begin == *at || (*begin != '-' && (*begin < '0' || *begin > '9')))
        return false;
    errno = 0;
    long long value = strtoll(begin, &end, 10);
    if (end == begin || errno || value < least || value > most)
        return false;
    *ret = value;
    *at = end;
    return true;
}

// "monotonic           0 100000000\n"; of a length below 0 the nanoseconds count up, too. Returns
// what follows; NULL: it is no such line.
static const char *offsets_line(const char *line, struct time_offsets *offsets, unsigned *told)
{
    static const char *const names[] = {"monotonic", "boottime"};
    int64_t *const lengths[] = {&offsets->monotonic_ns, &offsets->boottime_ns};
    int64_t seconds, rest;
    const char *at = line + strcspn(line, " \t\n");
    size_t len = (size_t)(at - line);
    if (!len || !offsets_number(&at, -OFFSET_SECONDS_MAX, OFFSET_SECONDS_MAX, &seconds) ||
            !offsets_number(&at, 0, 999999999, &rest) || (*at != '\n' && *at != '\0'))
        return NULL;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) != len || memcmp(line, names[i], len) != 0)
            continue; // of later clocks nothing is known, and none is used
        if (*told & 1u << i)
            return NULL;
        *told |= 1u << i;
        *lengths[i] = seconds * 1000000000 + rest;
    }
    return at + (*at == '\n');
}

int time_offsets_parse(const char *text, struct time_offsets *ret)
{
    struct time_offsets offsets = {0};
    unsigned told = 0;
    while (text && *text)
        text = offsets_line(text, &offsets, &told);
    if (!text || told != 3)
        return -EBADMSG;
    *ret = offsets;
    return 0;
}

static int inode_of(const char *dir, const char *name, uint64_t *ret)
{
    char path[PATH_MAX];
    struct stat status;
    snprintf(path, sizeof path, "%s/ns/%s", dir, name);
    if (stat(path, &status) < 0)
        return errno == EPERM ? -EACCES : -errno;
    *ret = status.st_ino;
    return 0;
}

static int offsets_read(const char *dir, struct time_offsets *ret)
{
    char path[PATH_MAX], text[OFFSETS_BYTES];
    snprintf(path, sizeof path, "%s/timens_offsets", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    int code = got < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    if (code)
        return code == -ENOENT ? -ESRCH : code == -EPERM ? -EACCES : code;
    text[got] = '\0';
    return strlen(text) == (size_t)got ? time_offsets_parse(text, ret) : -EBADMSG;
}

int time_offsets_of(const char *dir, uint64_t *ret_inode, struct time_offsets *ret)
{
    uint64_t own = 0, children = 0, again = 0;
    struct time_offsets offsets = {0};
    int code = inode_of(dir, "time", &own);
    if (code == -ENOENT) // it has ended, or the kernel has no such file of anybody
        code = inode_of("/proc/self", "time", &again) == -ENOENT ? 0 : -ESRCH;
    *ret_inode = own;
    if (code == 0 && own && own != TIME_NAMESPACE_FIRST) {
        code = inode_of(dir, "time_for_children", &children);
        if (code == 0)
            code = children != own ? -EXDEV : offsets_read(dir, &offsets);
        if (code == 0) // it may have unshared one meanwhile, or have become another program there
            code = inode_of(dir, "time_for_children", &again);
        if (code == 0 && again != own)
            code = -EXDEV;
    }
    if (code)
        return code == -ENOENT ? -ESRCH : code;
    *ret = offsets;
    return 0;
}
