// SPDX-License-Identifier: Apache-2.0
// Closing what a fork has inherited; the limit, which it must not inherit raised.
#include "common/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

static struct rlimit descriptors_given; // before descriptors_raise()
static atomic_bool descriptors_raised;

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
    int end = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1 << 20
            ? (int)limit.rlim_cur
            : 1 << 20;
    for (int fd = first; fd < end; fd++)
        close(fd);
}

static void descriptors_raise_once(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    descriptors_given = limit;
    atomic_store(&descriptors_raised, true); // first: another thread may fork in between
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

void descriptors_raise(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, descriptors_raise_once);
}

void descriptors_restore(void)
{
    if (atomic_load(&descriptors_raised))
        setrlimit(RLIMIT_NOFILE, &descriptors_given);
}

int descriptors_limit(struct rlimit *ret)
{
    int rc = getrlimit(RLIMIT_NOFILE, ret);
    if (rc == 0 && atomic_load(&descriptors_raised))
        *ret = descriptors_given;
    return rc;
}
