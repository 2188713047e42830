// SPDX-License-Identifier: Apache-2.0
// Files of another process. A file is first found without being opened (O_PATH) and looked at; only what is known to
// be regular is opened for reading.
#include "common/target_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/strings.h"

enum { TARGET_PATH_MAX = 4096 + 64, TARGET_MOUNTS_MAX = 4 << 20 };

static void target_close(int fd)
{
    int code = errno;
    close(fd);
    errno = code;
}

struct target_identity {
    dev_t device;
    ino_t inode;
    bool any_inode;
};

// What an O_PATH descriptor stands for, if it is a regular file, and the one that is wanted (NULL: any). Takes the
// descriptor.
static int target_reopen(int found, int access, const struct target_identity *wanted)
{
    char path[64];
    struct stat status;
    int fd = -1;
    if (found < 0)
        return -1;
    bool known = fstat(found, &status) == 0;
    bool other = known && wanted && (status.st_dev != wanted->device ||
                                     (status.st_ino != wanted->inode && !wanted->any_inode));
    if (known && (other || !S_ISREG(status.st_mode))) {
        errno = EINVAL;
    } else if (known) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
        fd = open(path, access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    }
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

// A program serves a FUSE mount, perhaps the target, and perhaps it does not answer: who looks up a name there waits for ever,
// and no signal but SIGKILL ends that. More mounts than are read: there may be one.
static bool target_sees_fuse(const char *proc, pid_t pid)
{
    char path[TARGET_PATH_MAX];
    size_t len = 0;
    snprintf(path, sizeof(path), "%s/%d/mountinfo", proc, (int)pid);
    char *mounts = string_read_file(path, TARGET_MOUNTS_MAX, &len);
    bool seen = mounts && (len == TARGET_MOUNTS_MAX || strstr(mounts, " - fuse ") || strstr(mounts, " - fuse."));
    free(mounts);
    return seen;
}

int target_file_open(const char *proc, pid_t pid, const char *path)
{
    char root_path[TARGET_PATH_MAX];
    snprintf(root_path, sizeof(root_path), "%s/%d/root", proc, (int)pid);
    int root = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -1;
    // What the kernel knows by heart takes no file system's answer: what is mapped, and what was opened lately.
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_CACHED};
    int found = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    bool asks = found < 0 && (errno == EAGAIN || errno == EINVAL), // EINVAL: before 5.12
        walks = found < 0 && (errno == ENOSYS || errno == EPERM);  // before 5.6, or filtered in a container
    if ((asks || walks) && target_sees_fuse(proc, pid)) {
        errno = EAGAIN;
    } else if (asks) {
        how.resolve &= ~(uint64_t)RESOLVE_CACHED;
        found = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    } else if (walks) {
        found = target_walk(root, path);
    }
    target_close(root);
    return target_reopen(found, O_RDONLY, NULL);
}

int target_file_open_here(const char *path)
{
    return target_reopen(open(path, O_PATH | O_CLOEXEC), O_RDONLY, NULL);
}

int target_file_open_known(const char *path, dev_t device, ino_t inode)
{
    return target_reopen(open(path, O_PATH | O_CLOEXEC), O_RDONLY, &(struct target_identity){device, inode, false});
}

// All memory files are on one device of the kernel's, which nobody can mount.
int target_file_open_memory(int directory, const char *name)
{
    struct stat status;
    int own = memfd_create("upgate-probe", MFD_CLOEXEC);
    bool known = own >= 0 && fstat(own, &status) == 0;
    if (own >= 0)
        target_close(own);
    return known ? target_reopen(openat(directory, name, O_PATH | O_CLOEXEC), O_RDWR,
                                 &(struct target_identity){status.st_dev, 0, true})
                 : -1;
}

static bool target_is_deleted(const char *path)
{
    size_t len = strlen(path), mark = strlen(" (deleted)");
    return len > mark && !strcmp(path + len - mark, " (deleted)");
}

int target_file_open_mapped(const char *proc, pid_t pid, uint64_t begin, uint64_t end, const char *path)
{
    char mapped[TARGET_PATH_MAX];
    snprintf(mapped, sizeof(mapped), "%s/%d/map_files/%llx-%llx", proc, (int)pid, (unsigned long long)begin,
             (unsigned long long)end);
    int fd = target_file_open_here(mapped);
    // No check of the inode: overlayfs shows another one in maps. A replaced file says "(deleted)".
    if (fd >= 0 || path[0] != '/' || target_is_deleted(path))
        return fd;
    return target_file_open(proc, pid, path);
}
