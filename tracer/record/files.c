// SPDX-License-Identifier: Apache-2.0
// What a file descriptor of the target is.
#include "tracer/record/files.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/budget.h"
#include "common/proc.h"
#include "common/strings.h"

enum {
    FILES_CACHE = 512, // (process, descriptor), by hash; a newer one takes an older one's place
    FILES_KEEP_NS = 20000000, // a descriptor may be closed and opened again at any time: a round of
                              // the recorder
    FILES_SOCKETS_NS = 1000000000, // the table of connections is read at most this often
    // bytes of /proc/PID/net/tcp: some 7,000 connections; the rest have no peer
    FILES_TABLE_MAX = 1 << 20,
    FILES_OWNERS = 64,            // sockets whose process is known, by hash
    FILES_HOLDERS_MAX = 64,       // processes that have one socket; of more not all are looked at
    FILES_OWNERS_NS = 1000000000, // every process's descriptors are read at most this often: some 5
                                  // ms for 200 processes
    FILES_ADDRESS_MAX = 48,
    FILES_SHARE_DIVISOR = 100, // 1 %; a server with 3,000 connections would take 60 % of a core
    FILES_BURST_NS = 100000000,
};

struct files_owner {
    uint64_t inode; // of a socket
    uint32_t tgid;  // 0: not known
    uint64_t start_ticks;
};

struct files_holder { // a process that has the socket
    uint32_t tgid, parent;
    uint64_t start_ticks, code, stack;
};

// A line of /proc/PID/net/tcp, addresses as the kernel prints them.
struct files_connection {
    char local[FILES_ADDRESS_MAX], remote[FILES_ADDRESS_MAX];
    uint64_t inode;
};

struct files_entry {
    uint32_t tgid;
    uint64_t fd;
    int64_t at_ns, asked_ns; // of what happened, and when /proc was asked
    uint32_t peer;           // process; 0: none
    char *text;              // NULL: not known
};

struct files {
    struct files_entry entries[FILES_CACHE];
    char *tables[2]; // tcp, tcp6 of one process's network namespace
    uint32_t tables_tgid;
    int64_t tables_ns;
    struct files_owner owners[FILES_OWNERS];
    int64_t owners_ns;    // of the last search
    struct budget budget; // of connections
};

struct files *files_new(void)
{
    struct files *files = xcalloc(1, sizeof *files);
    files->budget = (struct budget){.divisor = FILES_SHARE_DIVISOR, .burst_ns = FILES_BURST_NS};
    return files;
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
    // clang-format off
    static const int calls[] = {
        SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_preadv,
        SYS_pwritev,
        SYS_preadv2, SYS_pwritev2, SYS_fsync, SYS_fdatasync, SYS_sync_file_range, SYS_syncfs,
        SYS_fallocate,
        SYS_ftruncate, SYS_flock, SYS_fcntl, SYS_ioctl, SYS_getdents64, SYS_fstat, SYS_sendfile,
        SYS_splice,
        SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg, SYS_sendmmsg,
        SYS_connect, SYS_accept,
        SYS_accept4, SYS_epoll_pwait, SYS_io_uring_enter,
#ifdef SYS_epoll_wait
        SYS_epoll_wait,
#endif
#ifdef SYS_getdents
        SYS_getdents,
#endif
    };
    // clang-format on
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
static bool files_address(const char *hex, char *out, size_t size)
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

static bool files_parse(const char *line, struct files_connection *ret)
{
    return sscanf(line, " %*s %47s %47s %*s %*s %*s %*s %*s %*s %" SCNu64, ret->local, ret->remote,
                   &ret->inode) == 3;
}

// The line that holds what stands at `at`.
static const char *files_line(const char *table, const char *at)
{
    while (at > table && at[-1] != '\n')
        at--;
    return at;
}

// The text is searched, not parsed: a line costs 1 us to parse, and there are thousands.
static bool files_connection(
        const struct files *files, uint64_t inode, struct files_connection *ret_connection)
{
    char text[24];
    snprintf(text, sizeof text, " %" PRIu64 " ", inode);
    for (int i = 0; i < 2; i++)
        for (const char *at = files->tables[i]; at && (at = strstr(at, text)); at++)
            if (files_parse(files_line(files->tables[i], at), ret_connection) &&
                    ret_connection->inode == inode)
                return true;
    return false;
}

// Reads the descriptors of one process. True: the socket is among them.
static bool files_has_socket(const char *pid, const char *socket)
{
    char path[32], link[48], target[64];
    snprintf(path, sizeof path, "/proc/%.10s/fd", pid);
    DIR *dir = opendir(path);
    bool has = false;
    for (struct dirent *entry; dir && !has && (entry = readdir(dir));) {
        snprintf(link, sizeof link, "%s/%.12s", path, entry->d_name);
        ssize_t len = readlink(link, target, sizeof target - 1);
        target[len > 0 ? len : 0] = 0;
        has = !strcmp(target, socket);
    }
    if (dir)
        closedir(dir);
    return has;
}

// It may have ended, and its number be another process's: a connection outlives it where others
// have it, too.
static bool files_owns(const struct files_owner *owner, uint64_t inode)
{
    struct proc_stat stat;
    return owner->inode == inode && owner->tgid && proc_stat_of((pid_t)owner->tgid, &stat) == 0 &&
            stat.start_ticks == owner->start_ticks && !proc_stat_ended(&stat);
}

static size_t files_find_holders(uint64_t inode, struct files_holder ret[FILES_HOLDERS_MAX])
{
    char socket[40];
    size_t count = 0;
    snprintf(socket, sizeof socket, "socket:[%" PRIu64 "]", inode);
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && count < FILES_HOLDERS_MAX && (entry = readdir(dir));) {
        uint32_t tgid = (uint32_t)strtoul(entry->d_name, NULL, 10);
        struct proc_stat stat;
        if (!tgid || !files_has_socket(entry->d_name, socket) || proc_stat_of((pid_t)tgid, &stat))
            continue;
        ret[count++] = (struct files_holder){.tgid = tgid,
                .parent = (uint32_t)stat.parent,
                .start_ticks = stat.start_ticks,
                .code = stat.code_begin,
                .stack = stat.stack_begin};
    }
    if (dir)
        closedir(dir);
    return count;
}

// Who forked the holder and has the socket, too. NULL: nobody, or it is another program by now,
// which keeps what it was given.
static const struct files_holder *files_forked_by(
        const struct files_holder *holder, const struct files_holder *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        // 0 or 1: not told
        if (all[i].tgid == holder->parent && all[i].code == holder->code &&
                all[i].stack == holder->stack && holder->stack > 1)
            return &all[i];
    return NULL;
}

// Of several processes that have it, the one started last: a parent that forgot to close what
// another program inherited is not the one that uses it. But of a process and its forks (workers of
// a data loader have all sockets of their rank) it is the process; unless who waits has this end,
// too: then all of them inherited both.
static uint32_t files_owner(struct files *files, uint32_t asker, uint64_t inode, int64_t now_ns)
{
    struct files_owner *owner = &files->owners[inode % FILES_OWNERS];
    if (files_owns(owner, inode))
        return owner->tgid;
    if (now_ns - files->owners_ns < FILES_OWNERS_NS)
        return 0;
    struct files_holder holders[FILES_HOLDERS_MAX];
    size_t count = files_find_holders(inode, holders);
    const struct files_holder *found = NULL, *by;
    bool inherited = false;
    for (size_t i = 0; i < count; i++) {
        found = found && holders[i].start_ticks < found->start_ticks ? found : &holders[i];
        inherited |= holders[i].tgid == asker;
    }
    for (size_t i = 0; i < count && !inherited && (by = files_forked_by(found, holders, count));
            i++)
        found = by;
    files->owners_ns = now_ns;
    *owner = (struct files_owner){.inode = inode};
    if (found) {
        owner->tgid = found->tgid;
        owner->start_ticks = found->start_ticks;
    }
    return owner->tgid;
}

// The end that has our addresses the other way round.
static uint32_t files_find_peer(
        struct files *files, uint32_t tgid, const struct files_connection *own, int64_t now_ns)
{
    struct files_connection other;
    char text[2 * FILES_ADDRESS_MAX + 4];
    snprintf(text, sizeof text, " %s %s ", own->remote, own->local);
    for (int i = 0; i < 2; i++) {
        const char *at = files->tables[i] ? strstr(files->tables[i], text) : NULL;
        if (at && files_parse(files_line(files->tables[i], at), &other) && other.inode)
            return files_owner(files, tgid, other.inode, now_ns);
    }
    return 0;
}

// "10.0.0.1:443", the other end of a socket. False: nobody knows, or it was asked for too often.
static bool files_remote(struct files *files, uint32_t tgid, uint64_t inode, int64_t now_ns,
        char *address, size_t size, uint32_t *ret_peer)
{
    struct files_connection connection;
    if (!budget_affords(&files->budget))
        return false;
    budget_begin(&files->budget);
    files_read_tables(files, tgid, now_ns);
    bool found = files_connection(files, inode, &connection) &&
            files_address(connection.remote, address, size);
    if (found)
        *ret_peer = files_find_peer(files, tgid, &connection, now_ns);
    budget_end(&files->budget);
    return found;
}

static char *files_describe(
        struct files *files, uint32_t tgid, uint64_t fd, int64_t now_ns, uint32_t *ret_peer)
{
    char path[64], target[1024], address[80];
    uint64_t inode = 0;
    snprintf(path, sizeof path, "/proc/%u/fd/%" PRIu64, tgid, fd);
    ssize_t len = readlink(path, target, sizeof target - 1);
    if (len <= 0)
        return NULL;
    target[len] = 0;
    string_make_utf8(target, (size_t)len);
    if (sscanf(target, "socket:[%" SCNu64 "]", &inode) != 1 ||
            !files_remote(files, tgid, inode, now_ns, address, sizeof address, ret_peer))
        return xstrdup(target);
    return xasprintf("%s %s", target, address);
}

static struct files_entry *files_entry(const struct files *files, uint32_t tgid, uint64_t fd)
{
    return (struct files_entry *)&files->entries[(tgid * 31 + fd) % FILES_CACHE];
}

uint32_t files_peer(const struct files *files, uint32_t tgid, uint64_t arg0)
{
    const struct files_entry *entry = files_entry(files, tgid, arg0);
    return entry->tgid == tgid && entry->fd == arg0 ? entry->peer : 0;
}

const char *files_target(struct files *files, uint32_t tgid, int64_t syscall_nr, uint64_t arg0,
        int64_t at_ns, int64_t now_ns)
{
    if (arg0 > INT32_MAX || !files_takes_descriptor(syscall_nr))
        return NULL;
    struct files_entry *entry = files_entry(files, tgid, arg0);
    // the waits of a round come at once
    bool fresh = at_ns - entry->at_ns < FILES_KEEP_NS || now_ns - entry->asked_ns < FILES_KEEP_NS;
    if (entry->tgid == tgid && entry->fd == arg0 && fresh)
        return entry->text;
    free(entry->text);
    *entry = (struct files_entry){.tgid = tgid, .fd = arg0, .at_ns = at_ns, .asked_ns = now_ns};
    entry->text = files_describe(files, tgid, arg0, at_ns, &entry->peer);
    return entry->text;
}
