// SPDX-License-Identifier: Apache-2.0
// Closing what a fork has inherited.
#include "common/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

static int descriptors_number(const char *name) // -1: it is none
{
    int number = *name ? 0 : -1;
    for (; number >= 0 && *name; name++)
        number = *name >= '0' && *name <= '9' ? 10 * number + *name - '0' : -1;
    return number;
}

void descriptors_close_from(int first)
{
    // Linux 5.9; older kernels and filters of containers refuse it.
    if (close_range((unsigned)first, ~0u, 0) == 0)
        return;
    _Alignas(struct dirent64) char entries[4096];
    int directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ssize_t got;
    while (directory >= 0 && (got = getdents64(directory, entries, sizeof entries)) > 0)
        for (ssize_t at = 0; at < got;) {
            const struct dirent64 *entry = (const void *)(entries + at);
            int fd = descriptors_number(entry->d_name);
            if (fd >= first && fd != directory)
                close(fd);
            at += entry->d_reclen;
        }
    if (directory >= 0) {
        close(directory);
        return;
    }
    struct rlimit limit;
    int end = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1 << 20 ? (int)limit.rlim_cur : 1 << 20;
    for (int fd = first; fd < end; fd++)
        close(fd);
}
