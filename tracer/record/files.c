// SPDX-License-Identifier: Apache-2.0
// What a file descriptor of the target is.
#include "tracer/record/files.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/strings.h"

enum {
    FILES_CACHE = 512,             // (process, descriptor), by hash; a newer one takes an older one's place
    FILES_KEEP_NS = 20000000,      // a descriptor may be closed and opened again at any time: a round of the recorder
    FILES_SOCKETS_NS = 1000000000, // the table of connections is read at most this often
    FILES_TABLE_MAX = 1 << 20,     // bytes of /proc/PID/net/tcp: some 7,000 connections; the rest have no peer
};

struct files_entry {
    uint32_t tgid;
    uint64_t fd;
    int64_t at_ns;
    char *text; // NULL: not known
};

struct files {
    struct files_entry entries[FILES_CACHE];
    char *tables[2]; // tcp, tcp6 of one process's network namespace
    uint32_t tables_tgid;
    int64_t tables_ns;
};

struct files *files_new(void)
{
    return xcalloc(1, sizeof(struct files));
}

void files_free(struct files *files)
{
    if (!files)
        return;
    for (size_t i = 0; i < FILES_CACHE; i++)
        free(files->entries[i].text);
    free(files->tables[0]);
    free(files->tables[1]);
    free(files);
}

// System calls that wait for the descriptor in their first argument.
static bool files_takes_descriptor(int64_t syscall_nr)
{
    static const int calls[] = {
        SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_preadv, SYS_pwritev,
        SYS_preadv2, SYS_pwritev2, SYS_fsync, SYS_fdatasync, SYS_sync_file_range, SYS_syncfs, SYS_fallocate,
        SYS_ftruncate, SYS_flock, SYS_fcntl, SYS_ioctl, SYS_getdents64, SYS_fstat, SYS_sendfile, SYS_splice,
        SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_connect, SYS_accept,
        SYS_accept4, SYS_epoll_pwait, SYS_io_uring_enter,
#ifdef SYS_epoll_wait
        SYS_epoll_wait,
#endif
#ifdef SYS_getdents
        SYS_getdents,
#endif
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i] == syscall_nr)
            return true;
    return false;
}

static void files_read_tables(struct files *files, uint32_t tgid, int64_t now_ns)
{
    static const char *const names[] = {"tcp", "tcp6"};
    if (files->tables_tgid == tgid && now_ns - files->tables_ns < FILES_SOCKETS_NS)
        return;
    files->tables_tgid = tgid;
    files->tables_ns = now_ns;
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%u/net/%s", tgid, names[i]);
        free(files->tables[i]);
        files->tables[i] = string_read_file(path, FILES_TABLE_MAX, NULL);
    }
}

// "0100007F:1F90" of the kernel's table, which prints each word as the machine holds it.
static bool files_peer(const char *hex, char *out, size_t size)
{
    const char *colon = strchr(hex, ':');
    size_t words = colon ? (size_t)(colon - hex) / 8 : 0;
    uint32_t address[4] = {0};
    unsigned port = 0;
    char text[INET6_ADDRSTRLEN];
    if ((words != 1 && words != 4) || sscanf(colon + 1, "%4x", &port) != 1 || !port)
        return false;
    for (size_t i = 0; i < words; i++)
        if (sscanf(hex + i * 8, "%8" SCNx32, &address[i]) != 1)
            return false;
    inet_ntop(words == 1 ? AF_INET : AF_INET6, address, text, sizeof text);
    snprintf(out, size, words == 1 ? "%s:%u" : "[%s]:%u", text, port);
    return true;
}

// The other end of a TCP connection by the number of its socket.
static bool files_find_peer(const char *table, uint64_t inode, char *out, size_t size)
{
    for (const char *line = table ? strchr(table, '\n') : NULL; line && line[1]; line = strchr(line + 1, '\n')) {
        char remote[48];
        uint64_t number = 0;
        if (sscanf(line + 1, " %*s %*s %47s %*s %*s %*s %*s %*s %*s %" SCNu64, remote, &number) == 2 && number == inode)
            return files_peer(remote, out, size);
    }
    return false;
}

static char *files_describe(struct files *files, uint32_t tgid, uint64_t fd, int64_t now_ns)
{
    char path[64], target[1024], peer[80];
    uint64_t inode = 0;
    snprintf(path, sizeof path, "/proc/%u/fd/%" PRIu64, tgid, fd);
    ssize_t len = readlink(path, target, sizeof target - 1);
    if (len <= 0)
        return NULL;
    target[len] = 0;
    string_make_utf8(target, (size_t)len);
    if (sscanf(target, "socket:[%" SCNu64 "]", &inode) != 1)
        return xstrdup(target);
    files_read_tables(files, tgid, now_ns);
    if (files_find_peer(files->tables[0], inode, peer, sizeof peer) ||
        files_find_peer(files->tables[1], inode, peer, sizeof peer))
        return xasprintf("%s %s", target, peer);
    return xstrdup(target);
}

const char *files_target(struct files *files, uint32_t tgid, int64_t syscall_nr, uint64_t arg0, int64_t now_ns)
{
    if (arg0 > INT32_MAX || !files_takes_descriptor(syscall_nr))
        return NULL;
    struct files_entry *entry = &files->entries[(tgid * 31 + arg0) % FILES_CACHE];
    if (entry->tgid == tgid && entry->fd == arg0 && now_ns - entry->at_ns < FILES_KEEP_NS)
        return entry->text;
    free(entry->text);
    *entry = (struct files_entry){
        .tgid = tgid, .fd = arg0, .at_ns = now_ns, .text = files_describe(files, tgid, arg0, now_ns)};
    return entry->text;
}
