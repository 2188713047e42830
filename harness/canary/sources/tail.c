// SPDX-License-Identifier: Apache-2.0
// Reading a growing file.
#include "harness/canary/sources/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"

// of TAIL_LINE_MAX bytes: 4 MiB, 15,000 lines, before others get their turn
enum { TAIL_READS_MAX = 64 };
#define TAIL_LOOK_NS 200000000LL

static void tail_close(struct tail *tail)
{
    if (tail->fd >= 0)
        close(tail->fd);
    tail->fd = -1;
    tail->len = 0;
    tail->at = 0;
    tail->skipping = false;
}

// -errno. O_NONBLOCK: a FIFO must not hold us.
static int tail_open(struct tail *tail)
{
    struct stat status;
    int fd = open(tail->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = fstat(fd, &status) ? -errno : S_ISREG(status.st_mode) ? 0 : -EINVAL;
    if (rc) {
        close(fd);
        return rc;
    }
    tail->fd = fd;
    tail->device = status.st_dev;
    tail->inode = status.st_ino;
    return 0;
}

static void tail_tell(struct tail *tail, int rc)
{
    if (rc == 0)
        tail->problem[0] = 0;
    else
        snprintf(tail->problem, sizeof tail->problem, "%.150s: %s", tail->path,
                rc == -EINVAL ? "is not a regular file" : strerror(-rc));
}

void tail_begin(struct tail *tail, const char *path)
{
    char last = '\n';
    *tail = (struct tail){.path = xstrdup(path), .fd = -1, .buf = xcalloc(1, TAIL_LINE_MAX)};
    int rc = tail_open(tail);
    tail_tell(tail, rc);
    if (rc)
        return;
    tail->at = lseek(tail->fd, 0, SEEK_END);
    if (tail->at < 0)
        tail->at = 0;
    else if (tail->at > 0 && pread(tail->fd, &last, 1, tail->at - 1) == 1)
        tail->skipping = last != '\n'; // half a line stands there
}

void tail_end(struct tail *tail)
{
    if (!tail->path)
        return;
    tail_close(tail);
    free(tail->path);
    free(tail->buf);
    *tail = (struct tail){.fd = -1};
}

static void tail_lines(
        struct tail *tail, void (*take)(void *arg, const char *line, size_t len), void *arg)
{
    char *from = tail->buf, *end = tail->buf + tail->len;
    for (char *stop; (stop = memchr(from, '\n', (size_t)(end - from))); from = stop + 1) {
        if (!tail->skipping && stop > from)
            take(arg, from, (size_t)(stop - from));
        tail->skipping = false;
    }
    tail->len = (size_t)(end - from);
    memmove(tail->buf, from, tail->len);
    if (tail->len == TAIL_LINE_MAX) {
        tail->too_long += !tail->skipping;
        tail->skipping = true;
        tail->len = 0;
    }
}

// Another file has the name, and somebody writes to it: so nobody writes to ours any more. An empty
// one may have been made before the writer was told.
static bool tail_replaced(const struct tail *tail)
{
    struct stat status;
    return stat(tail->path, &status) == 0 && status.st_size > 0 &&
            (status.st_dev != tail->device || status.st_ino != tail->inode);
}

static bool tail_read_file(
        struct tail *tail, void (*take)(void *arg, const char *line, size_t len), void *arg)
{
    struct stat status;
    if (fstat(tail->fd, &status) == 0 && status.st_size < tail->at) { // cut to nothing
        tail->at = 0;
        tail->len = 0;
        tail->skipping = false;
    }
    for (int i = 0; i < TAIL_READS_MAX; i++) {
        ssize_t got = pread(tail->fd, tail->buf + tail->len, TAIL_LINE_MAX - tail->len, tail->at);
        if (got < 0 && errno != EINTR)
            tail_tell(tail, -errno);
        if (got <= 0)
            return false;
        tail->at += got;
        tail->len += (size_t)got;
        tail_lines(tail, take, arg);
    }
    return true;
}

bool tail_read(struct tail *tail, int64_t now_ns,
        void (*take)(void *arg, const char *line, size_t len), void *arg)
{
    bool look = now_ns - tail->looked_ns >= TAIL_LOOK_NS;
    if (look)
        tail->looked_ns = now_ns;
    // asked before ours is read to its end
    bool replaced = look && tail->fd >= 0 && tail_replaced(tail);
    if (tail->fd >= 0 && tail_read_file(tail, take, arg))
        return true;
    if (replaced)
        tail_close(tail);
    if (tail->fd >= 0 || !(look || replaced))
        return false;
    int rc = tail_open(tail);
    tail_tell(tail, rc);
    return rc == 0 && tail_read_file(tail, take, arg);
}
