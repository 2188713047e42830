// SPDX-License-Identifier: Apache-2.0
// From a port to the sockets that listen on it (/proc/net/tcp, tcp6), from those to who holds them
// (/proc/PID/fd). Takes tens of milliseconds on a machine with thousands of processes: called in a
// child, never in the controller's loop.
#include "harness/canary/why/why_pids.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "common/units.h"

enum { PIDS_LISTEN = 0x0a }; // TCP_LISTEN

int why_port(const char *url, uint16_t *ret_port)
{
    bool tls = strncmp(url, "https://", 8) == 0;
    if (!tls && strncmp(url, "http://", 7) != 0)
        return -EINVAL;
    const char *host = url + (tls ? 8 : 7), *end = host + strcspn(host, "/?#");
    const char *at = *host == '[' ? memchr(host, ']', (size_t)(end - host)) : host,
               *colon = at ? memchr(at, ':', (size_t)(end - at)) : NULL;
    if (end == host || !at)
        return -EINVAL;
    uint64_t port = tls ? 443 : 80;
    char *word = colon ? xasprintf("%.*s", (int)(end - colon - 1), colon + 1) : NULL;
    int rc = word ? unit_parse_uint(word, 1, UINT16_MAX, &port, NULL) : 0;
    free(word);
    if (rc)
        return -EINVAL;
    *ret_port = (uint16_t)port;
    return 0;
}

static void pids_inodes(const char *table, uint16_t port, unsigned long **inodes, size_t *count)
{
    FILE *file = fopen(table, "re");
    char line[512];
    while (file && fgets(line, sizeof line, file)) {
        unsigned local = 0, state = 0;
        unsigned long inode = 0;
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*d %lu",
                    &local, &state, &inode) == 3 &&
                local == port && state == PIDS_LISTEN && inode)
            vector_push(*inodes, *count, inode);
    }
    if (file)
        fclose(file);
}

static bool pids_holds(const char *pid, const unsigned long *inodes, size_t count)
{
    char *folder = xasprintf("/proc/%s/fd", pid), link[64];
    DIR *dir = opendir(folder);
    bool found = false;
    for (struct dirent *entry; !found && dir && (entry = readdir(dir));) {
        unsigned long inode = 0;
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, link, sizeof link - 1);
        if (len <= 0)
            continue;
        link[len] = 0;
        for (size_t i = 0; sscanf(link, "socket:[%lu]", &inode) == 1 && i < count; i++)
            found = found || inodes[i] == inode;
    }
    if (dir)
        closedir(dir);
    free(folder);
    return found;
}

int why_pids(uint16_t port, pid_t *ret_pids, size_t *ret_count, struct error *err)
{
    unsigned long *inodes = NULL;
    size_t count = 0, pids = 0;
    pids_inodes("/proc/net/tcp", port, &inodes, &count);
    pids_inodes("/proc/net/tcp6", port, &inodes, &count);
    DIR *dir = count ? opendir("/proc") : NULL;
    for (struct dirent *entry; dir && pids < WHY_PIDS_MAX && (entry = readdir(dir));)
        if (isdigit((unsigned char)entry->d_name[0]) && pids_holds(entry->d_name, inodes, count))
            ret_pids[pids++] = (pid_t)atoi(entry->d_name);
    if (dir)
        closedir(dir);
    free(inodes);
    if (pids == 0)
        return error_set(err, -ESRCH,
                count ? "who listens on port %u cannot be seen from here: `why: {baseline: {pid}, candidate: {pid}}` names it"
                      : "nothing on this machine listens on port %u",
                port);
    *ret_count = pids;
    return 0;
}
