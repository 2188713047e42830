// SPDX-License-Identifier: Apache-2.0
// Files of another process. A file is first found without being opened (O_PATH) and looked at; only
// what is known to be regular is opened for reading. All of it is done in the process of reader.h,
// as every step may wait for a file system. What lies on a local one is then ours to read. Of any
// other we get the O_PATH descriptor, which nothing waits for, and it is read there.
#include "common/target/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/strings.h"
#include "common/target/reader.h"

enum {
    // Who changes its memory map holds the lock for microseconds, or milliseconds where much of it
    // comes or goes.
    TARGET_STREAM_WAIT_MS = 100,
    TARGET_MEMORY_WAIT_MS = 50,
};

static void target_close(int fd)
{
    int code = errno;
    close(fd);
    errno = code;
}

// --- in the process that may wait ----------------------------------------------------------------

// No server and no program answers for these, unless their disk is one (nbd, a loop over NFS). What
// is not here is read at arm's length.
static bool target_is_local(uint32_t type)
{
    static const uint32_t local[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
            TMPFS_MAGIC, RAMFS_MAGIC, F2FS_SUPER_MAGIC, SQUASHFS_MAGIC, OVERLAYFS_SUPER_MAGIC,
            HUGETLBFS_MAGIC, ISOFS_SUPER_MAGIC, EROFS_SUPER_MAGIC_V1, 0x2fc12fc1 /* ZFS */,
            0xca451a4e /* bcachefs */};
    bool found = false;
    for (size_t i = 0; !found && i < sizeof local / sizeof *local; i++)
        found = type == local[i];
    return found;
}

struct target_identity {
    dev_t device;
    ino_t inode;
    bool any_inode;
};

static int target_open_found(int found, int access)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
    return open(path, access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

// Does an O_PATH descriptor stand for a regular file, and for the one that is wanted (NULL: any)?
static bool target_is_wanted(int found, const struct target_identity *wanted)
{
    struct stat status;
    if (found < 0 || fstat(found, &status) != 0)
        return false;
    bool other = wanted &&
            (status.st_dev != wanted->device ||
                    (status.st_ino != wanted->inode && !wanted->any_inode));
    errno = EINVAL;
    return !other && S_ISREG(status.st_mode);
}

// What may be given away of the file that was found. Takes the descriptor. Nothing of /proc: to
// read there may be to take (kmsg).
static int target_take(int found, const struct target_identity *wanted)
{
    struct statfs system;
    int fd = -1;
    if (target_is_wanted(found, wanted) && fstatfs(found, &system) == 0) {
        if (system.f_type != PROC_SUPER_MAGIC && !target_is_local((uint32_t)system.f_type))
            return found;
        errno = EINVAL;
        fd = system.f_type == PROC_SUPER_MAGIC ? -1 : target_open_found(found, O_RDONLY);
    }
    if (found >= 0)
        target_close(found);
    return fd;
}

// Without openat2(2): a component at a time, and no link is followed. Paths of maps have none.
static int target_walk(int root, const char *path)
{
    char name[NAME_MAX + 1];
    int at = dup(root);
    while (at >= 0 && *(path += strspn(path, "/"))) {
        size_t len = strcspn(path, "/");
        int next = -1;
        errno = ELOOP;
        if (len <= NAME_MAX && !(len == 2 && memcmp(path, "..", 2) == 0)) {
            memcpy(name, path, len);
            name[len] = '\0';
            next = openat(at, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
        }
        target_close(at);
        at = next;
        path += len;
    }
    return at;
}

// cached: RESOLVE_CACHED, or 0.
static int target_open_inside(const char *proc, pid_t pid, const char *path, uint64_t cached)
{
    char root_path[TARGET_PATH_MAX];
    snprintf(root_path, sizeof(root_path), "%s/%d/root", proc, (int)pid);
    int root = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -1;
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | cached};
    int found = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    if (found < 0 && cached)
        errno = ENOENT; // a file system would have to be asked, or Linux is older than 5.12
    else if (found < 0 && (errno == ENOSYS || errno == EPERM))
        // before 5.6, or filtered in a container
        found = target_walk(root, path);
    target_close(root);
    return target_take(found, NULL);
}

static int target_open_path(const char *path, const struct target_identity *wanted)
{
    return target_take(open(path, O_PATH | O_CLOEXEC), wanted);
}

static bool target_is_deleted(const char *path)
{
    size_t len = strlen(path), mark = strlen(" (deleted)");
    return len > mark && !strcmp(path + len - mark, " (deleted)");
}

static int target_open_mapped(const struct target_question *question)
{
    char mapped[TARGET_PATH_MAX];
    snprintf(mapped, sizeof(mapped), "%s/%d/map_files/%llx-%llx", question->proc,
            (int)question->pid, (unsigned long long)question->begin,
            (unsigned long long)question->end);
    int fd = target_open_path(mapped, NULL);
    // No check of the inode: overlayfs shows another one in maps. A replaced file says "(deleted)".
    if (fd >= 0 || question->path[0] != '/' || target_is_deleted(question->path))
        return fd;
    return target_open_inside(question->proc, question->pid, question->path, 0);
}

// All memory files are on one device of the kernel's, which nobody can mount.
static int target_open_memory(const char *path)
{
    struct stat status;
    int own = memfd_create("upgate-probe", MFD_CLOEXEC), fd = -1;
    bool known = own >= 0 && fstat(own, &status) == 0;
    if (own >= 0)
        target_close(own);
    int found = known ? open(path, O_PATH | O_CLOEXEC) : -1;
    if (target_is_wanted(found, &(struct target_identity){status.st_dev, 0, true}))
        fd = target_open_found(found, O_RDWR);
    if (found >= 0)
        target_close(found);
    return fd;
}

// One file stays open between the reads of it. The same is what the same descriptor of who asks
// stands for: an inode's number may be two files' where a program makes them up.
static ssize_t target_read(const struct target_question *question, int found, char *bytes)
{
    static int open_fd = -1, open_found = -1;
    if (open_found < 0 ||
            syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, open_found, found) != 0) {
        if (open_fd >= 0)
            close(open_fd);
        if (open_found >= 0)
            close(open_found);
        open_found = dup(found);
        open_fd = target_open_found(found, O_RDONLY);
    }
    return open_fd < 0 ? -1 : pread(open_fd, bytes, question->len, (off_t)question->offset);
}

// The file stays open while it is read on: the kernel makes maps a page at a time, and would begin
// anew for each piece.
static ssize_t target_text(const struct target_question *question, char *bytes)
{
    static char open_path[TARGET_PATH_MAX];
    static int fd = -1;
    if (fd < 0 || !question->offset || strcmp(open_path, question->path) != 0) {
        if (fd >= 0)
            close(fd);
        fd = open(question->path, O_RDONLY | O_CLOEXEC);
        snprintf(open_path, sizeof open_path, "%s", question->path);
    }
    ssize_t got = fd < 0 ? -1 : 0;
    size_t done = 0;
    while (fd >= 0 && done < question->len &&
            (got = pread(
                     fd, bytes + done, question->len - done, (off_t)(question->offset + done))) > 0)
        done += (size_t)got;
    if (fd >= 0 && done < question->len) {
        target_close(fd);
        fd = -1;
    }
    return got < 0 ? -1 : (ssize_t)done; // a part of it would be taken for all
}

// Messages side by side, each at a multiple of four bytes. Only those for which there is room are
// taken.
static ssize_t target_converse(const struct target_question *question, int fd, char *bytes)
{
    size_t got = 0;
    if (question->offset && send(fd, question->path, question->offset, MSG_DONTWAIT) < 0)
        return -1;
    while (question->len - got >= TARGET_MESSAGE_MAX) {
        ssize_t len = recv(fd, bytes + got, TARGET_MESSAGE_MAX, MSG_DONTWAIT);
        if (len <= 0)
            break;
        got += ((size_t)len + 3) & ~(size_t)3;
    }
    return (ssize_t)got;
}

static void target_serve_question(
        const struct target_question *question, int fd, struct target_answer *ret)
{
    static _Alignas(struct stat) char bytes[TARGET_READ_MAX];
    const struct target_identity wanted = {question->device, question->inode, false};
    errno = EINVAL;
    ret->bytes = bytes;
    switch (question->what) {
    case TARGET_OPEN:
        ret->fd = target_open_inside(question->proc, question->pid, question->path, 0);
        break;
    case TARGET_OPEN_CACHED:
        ret->fd = target_open_inside(question->proc, question->pid, question->path, RESOLVE_CACHED);
        break;
    case TARGET_OPEN_MAPPED:
        ret->fd = target_open_mapped(question);
        break;
    case TARGET_OPEN_HERE:
        ret->fd = target_open_path(question->path, NULL);
        break;
    case TARGET_OPEN_KNOWN:
        ret->fd = target_open_path(question->path, &wanted);
        break;
    case TARGET_OPEN_MEMORY:
        ret->fd = target_open_memory(question->path);
        break;
    case TARGET_STATUS:
        ret->result = fstat(fd, (struct stat *)(void *)bytes) ? -1 : (ssize_t)sizeof(struct stat);
        break;
    case TARGET_READ:
        ret->result = target_read(question, fd, bytes);
        break;
    case TARGET_TEXT:
        ret->result = target_text(question, bytes);
        break;
    case TARGET_CONVERSE:
        ret->result = target_converse(question, fd, bytes);
        break;
    }
    if (question->what <= TARGET_OPEN_MEMORY) {
        ret->bytes = NULL;
        ret->result = ret->fd < 0 ? -1 : 0;
    }
    ret->code = errno;
}

// --- in the process that must not ----------------------------------------------------------------

void target_file_start(void (*prepare)(void))
{
    target_reader_start(target_serve_question, prepare);
}

char *target_file_silent(void)
{
    return target_reader_silent();
}

static int target_ask(const struct target_question *question)
{
    int fd = -1;
    return target_reader_ask(target_serve_question, question, -1, &fd, NULL) < 0 ? -1 : fd;
}

static bool target_fits(struct target_question *question, const char *proc, const char *path)
{
    int proc_len = snprintf(question->proc, sizeof question->proc, "%s", proc);
    int path_len = snprintf(question->path, sizeof question->path, "%s", path);
    errno = ENAMETOOLONG;
    return proc_len < (int)sizeof question->proc && path_len < (int)sizeof question->path;
}

int target_file_open(const char *proc, pid_t pid, const char *path, dev_t device)
{
    struct target_question question = {.what = TARGET_OPEN, .pid = pid, .device = device};
    return target_fits(&question, proc, path) ? target_ask(&question) : -1;
}

int target_file_open_cached(const char *proc, pid_t pid, const char *path, dev_t device)
{
    struct target_question question = {.what = TARGET_OPEN_CACHED, .pid = pid, .device = device};
    return target_fits(&question, proc, path) ? target_ask(&question) : -1;
}

int target_file_open_mapped(
        const char *proc, pid_t pid, uint64_t begin, uint64_t end, const char *path, dev_t device)
{
    struct target_question question = {
            .what = TARGET_OPEN_MAPPED, .pid = pid, .begin = begin, .end = end, .device = device};
    return target_fits(&question, proc, path) ? target_ask(&question) : -1;
}

int target_file_open_here(const char *path, dev_t device)
{
    struct target_question question = {.what = TARGET_OPEN_HERE, .device = device};
    return target_fits(&question, "", path) ? target_ask(&question) : -1;
}

int target_file_open_known(const char *path, dev_t device, ino_t inode)
{
    struct target_question question = {.what = TARGET_OPEN_KNOWN, .device = device, .inode = inode};
    return target_fits(&question, "", path) ? target_ask(&question) : -1;
}

int target_file_open_memory(const char *path)
{
    struct target_question question = {.what = TARGET_OPEN_MEMORY};
    return target_fits(&question, "", path) ? target_ask(&question) : -1;
}

static bool target_is_remote(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && flags & O_PATH;
}

// Of its mount, which no file system is asked for.
static dev_t target_mount(int fd)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = info < 0 ? -1 : read(info, text, sizeof text - 1);
    if (info >= 0)
        close(info);
    text[len > 0 ? len : 0] = '\0';
    const char *mount = strstr(text, "mnt_id:");
    return mount ? strtoul(mount + strlen("mnt_id:"), NULL, 10) << 32 | 1 : 1;
}

ssize_t target_file_read(int fd, void *buf, size_t len, uint64_t offset)
{
    if (!target_is_remote(fd))
        return pread(fd, buf, len, (off_t)offset);
    struct target_question question = {
            .what = TARGET_READ, .device = target_mount(fd), .offset = offset};
    size_t done = 0;
    ssize_t got;
    do {
        question.len = len - done < TARGET_READ_MAX ? len - done : TARGET_READ_MAX;
        got = target_reader_ask(target_serve_question, &question, fd, NULL, (char *)buf + done);
        done += got > 0 ? (size_t)got : 0;
        question.offset = offset + done;
    } while (got > 0 && done < len);
    return done && got >= 0 ? (ssize_t)done : got;
}

int target_file_status(int fd, struct stat *ret)
{
    if (!target_is_remote(fd))
        return fstat(fd, ret);
    struct target_question question = {
            .what = TARGET_STATUS, .device = target_mount(fd), .len = sizeof *ret};
    return target_reader_ask(target_serve_question, &question, fd, NULL, ret) ==
                    (ssize_t)sizeof *ret
            ? 0
            : -1;
}

char *target_file_text(const char *path, size_t max, size_t *ret_len)
{
    struct target_question question = {.what = TARGET_TEXT, .len = TARGET_READ_MAX};
    if (!target_fits(&question, "", path))
        return NULL;
    char *text = NULL;
    ssize_t got;
    size_t len = 0;
    do {
        text = xrealloc(text, len + TARGET_READ_MAX + 1);
        question.offset = len;
        got = target_reader_ask(target_serve_question, &question, -1, NULL, text + len);
        len += got > 0 ? (size_t)got : 0;
    } while (got == TARGET_READ_MAX && len < max);
    if (got < 0) {
        int code = errno;
        free(text);
        errno = code;
        return NULL;
    }
    *ret_len = len < max ? len : max;
    text[*ret_len] = '\0';
    return text;
}

struct target_stream {
    struct target_question question;
    size_t len, at; // of the piece, and how much of it has been read
    bool last;
    char bytes[TARGET_READ_MAX];
};

// The next piece. False: errno.
static bool target_stream_fill(struct target_stream *stream)
{
    ssize_t got =
            target_reader_ask(target_serve_question, &stream->question, -1, NULL, stream->bytes);
    if (got < 0)
        return false;
    stream->question.offset += (uint64_t)got;
    stream->len = (size_t)got;
    stream->at = 0;
    stream->last = got < TARGET_READ_MAX;
    return true;
}

static ssize_t target_stream_read(void *cookie, char *ret, size_t size)
{
    struct target_stream *stream = cookie;
    if (stream->at == stream->len && !stream->last && !target_stream_fill(stream))
        return -1;
    size_t left = stream->len - stream->at, part = left < size ? left : size;
    memcpy(ret, stream->bytes + stream->at, part);
    stream->at += part;
    return (ssize_t)part;
}

static int target_stream_close(void *cookie)
{
    free(cookie);
    return 0;
}

FILE *target_file_stream(const char *path)
{
    const cookie_io_functions_t functions = {
            .read = target_stream_read, .close = target_stream_close};
    struct target_stream *stream = xcalloc(1, sizeof *stream);
    stream->question = (struct target_question){
            .what = TARGET_TEXT, .len = TARGET_READ_MAX, .wait_ms = TARGET_STREAM_WAIT_MS};
    FILE *file = target_fits(&stream->question, "", path) && target_stream_fill(stream)
            ? fopencookie(stream, "r", functions)
            : NULL;
    if (!file) {
        int code = errno;
        free(stream);
        errno = code;
    }
    return file;
}

// A command line is read out of the process's memory. Of one that has ended there is none, and
// nobody holds anything.
bool target_memory_is_free(pid_t pid)
{
    char byte;
    struct target_question question = {.what = TARGET_TEXT,
            .len = sizeof byte,
            .wait_ms = TARGET_MEMORY_WAIT_MS,
            .quiet = true};
    snprintf(question.path, sizeof question.path, "/proc/%d/cmdline", (int)pid);
    return target_reader_ask(target_serve_question, &question, -1, NULL, &byte) >= 0 ||
            errno != EAGAIN;
}

ssize_t target_file_converse(
        int fd, const void *question, size_t len, void *ret_answers, size_t max)
{
    const dev_t device = (dev_t)1 << 32 | 2; // no file's: one process that waits holds up all such
                                             // questions (sock_diag_mutex, before Linux 6.10)
    struct target_question one = {
            .what = TARGET_CONVERSE, .device = device, .offset = len, .len = max};
    if (len > sizeof one.path) {
        errno = EMSGSIZE;
        return -1;
    }
    if (len)
        memcpy(one.path, question, len);
    return target_reader_ask(target_serve_question, &one, fd, NULL, ret_answers);
}
