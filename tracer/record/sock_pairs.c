// SPDX-License-Identifier: Apache-2.0
// Ends of connections by their addresses, processes by the inodes of their descriptors.
#include "tracer/record/sock_pairs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/containers/vector.h"
#include "common/strings.h"

enum {
    PAIRS_PROCESSES_MAX = 4096,
    PAIRS_OWNERS_MAX = 65536,
    PAIRS_READS_MAX = 8192, // descriptors looked at for their owner at once: 10 ms
};

// --- which ends are of one connection ------------------------------------------------------------

struct pairs_name {
    uint8_t local[16], remote[16]; // of IPv4 as IPv6 spells it: one end may be a socket of the one,
                                   // the other of the other
    uint16_t local_port, remote_port;
};
_Static_assert(sizeof(struct pairs_name) == 36, "compared as bytes");

static const uint8_t pairs_mapped[12] = {[10] = 0xff, [11] = 0xff};

static void pairs_address(uint8_t family, const void *words, uint8_t *out)
{
    if (family == AF_INET6) {
        memcpy(out, words, 16);
        return;
    }
    memcpy(out, pairs_mapped, sizeof pairs_mapped);
    memcpy(out + sizeof pairs_mapped, words, 4);
}

// other: as the other end of the connection has it.
static struct pairs_name pairs_name_of(const struct sock_diag_socket *end, bool other)
{
    struct pairs_name name;
    pairs_address(end->family, other ? end->id.idiag_dst : end->id.idiag_src, name.local);
    pairs_address(end->family, other ? end->id.idiag_src : end->id.idiag_dst, name.remote);
    name.local_port = other ? end->id.idiag_dport : end->id.idiag_sport;
    name.remote_port = other ? end->id.idiag_sport : end->id.idiag_dport;
    return name;
}

static bool pairs_is_loopback(const uint8_t *address)
{
    static const uint8_t one[16] = {[15] = 1};
    return memcmp(address, one, sizeof one) == 0 ||
            (memcmp(address, pairs_mapped, sizeof pairs_mapped) == 0 && address[12] == 127);
}

// Each namespace has loopback addresses of its own.
static uint32_t pairs_mate_of(const struct socket_pairs *pairs, uint32_t index)
{
    const struct socket_end *end = &pairs->ends[index];
    struct pairs_name wanted = pairs_name_of(&end->socket, true);
    bool inside = pairs_is_loopback(wanted.local);
    uint64_t key = hash_bytes(0, &wanted, sizeof wanted);
    uint32_t found = MAP_NONE;
    size_t at = 0;
    for (uint32_t i = map_first(&pairs->names, key, &at); i != MAP_NONE;
            i = map_next(&pairs->names, key, &at)) {
        struct pairs_name name = pairs_name_of(&pairs->ends[i].socket, false);
        if (i == index || memcmp(&name, &wanted, sizeof name) != 0)
            continue;
        if (pairs->ends[i].space == end->space)
            return i;
        if (!inside)
            found = i;
    }
    return found;
}

static void pairs_find_mates(struct socket_pairs *pairs)
{
    map_clear(&pairs->names);
    for (uint32_t i = 0; i < pairs->end_count; i++) {
        struct pairs_name name = pairs_name_of(&pairs->ends[i].socket, false);
        map_add(&pairs->names, hash_bytes(0, &name, sizeof name), i);
    }
    for (uint32_t i = 0; i < pairs->end_count; i++)
        pairs->ends[i].mate = pairs->ends[i].socket.inode ? pairs_mate_of(pairs, i) : MAP_NONE;
}

// --- whose they are ------------------------------------------------------------------------------

static void pairs_on_process(void *context, struct task_process *process)
{
    struct socket_pairs *pairs = context;
    if (process->id && pairs->process_count < PAIRS_PROCESSES_MAX)
        pairs->processes[pairs->process_count++] =
                (struct pairs_process){process->start_ns, process->tgid, process->id};
}

static int pairs_by_start(const void *left, const void *right)
{
    const struct pairs_process *a = left, *b = right;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

bool pairs_take_processes(struct socket_pairs *pairs, struct tasks *tasks)
{
    uint64_t before = pairs->crowd;
    if (!pairs->processes)
        pairs->processes = xcalloc(PAIRS_PROCESSES_MAX, sizeof *pairs->processes);
    pairs->process_count = 0;
    pairs->crowd = 0;
    tasks_each_target(tasks, pairs_on_process, pairs);
    qsort(pairs->processes, pairs->process_count, sizeof *pairs->processes, pairs_by_start);
    for (size_t i = 0; i < pairs->process_count; i++)
        pairs->crowd = hash_mix(pairs->crowd, pairs->processes[i].row);
    return pairs->crowd != before;
}

static void pairs_read_descriptors(
        struct socket_pairs *pairs, const struct pairs_process *process, int *reads)
{
    char path[32], target[64];
    snprintf(path, sizeof path, "/proc/%u/fd", process->tgid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && *reads < PAIRS_READS_MAX && (entry = readdir(dir));
            ++*reads) {
        unsigned long inode = 0;
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);
        target[len > 0 ? len : 0] = 0;
        if (sscanf(target, "socket:[%lu]", &inode) == 1 && map_get(&pairs->owners, inode) == 0)
            *map_put(&pairs->owners, inode) = process->row;
    }
    if (dir)
        closedir(dir);
}

// Descriptors are read when somebody is new. Of several processes that have a socket the oldest
// made it: its children inherited it.
static bool pairs_find_owners(struct socket_pairs *pairs, bool changed)
{
    bool unknown = false;
    int reads = 0;
    if (changed || pairs->owners.count > PAIRS_OWNERS_MAX)
        map_clear(&pairs->owners);
    for (size_t i = 0; i < pairs->end_count; i++) {
        const struct socket_end *end = &pairs->ends[i];
        if (end->mate == MAP_NONE || map_get(&pairs->owners, end->socket.inode) != MAP_NONE)
            continue;
        *map_put(&pairs->owners, end->socket.inode) = 0;
        unknown = true;
    }
    for (size_t i = 0; unknown && i < pairs->process_count && reads < PAIRS_READS_MAX; i++)
        pairs_read_descriptors(pairs, &pairs->processes[i], &reads);
    for (size_t i = 0; i < pairs->end_count; i++)
        if (pairs->ends[i].mate != MAP_NONE)
            pairs->ends[i].process = map_get(&pairs->owners, pairs->ends[i].socket.inode);
    return reads < PAIRS_READS_MAX;
}

bool pairs_find(struct socket_pairs *pairs, bool changed)
{
    pairs_find_mates(pairs);
    return pairs_find_owners(pairs, changed);
}

bool pairs_add(struct socket_pairs *pairs, const struct sock_diag_socket *socket, uint32_t space)
{
    if (pairs->end_count == PAIRS_ENDS_MAX)
        return false;
    pairs->ends = vector_reserve(
            pairs->ends, &pairs->end_room, pairs->end_count + 1, sizeof *pairs->ends);
    pairs->ends[pairs->end_count++] =
            (struct socket_end){.socket = *socket, .space = space, .mate = MAP_NONE};
    return true;
}

void pairs_free(struct socket_pairs *pairs)
{
    free(pairs->processes);
    free(pairs->ends);
    map_free(&pairs->names);
    map_free(&pairs->owners);
}

bool pairs_is_link(const struct socket_pairs *pairs, uint32_t index)
{
    const struct socket_end *end = &pairs->ends[index],
                            *mate = end->mate == MAP_NONE ? NULL : &pairs->ends[end->mate];
    return mate && end->mate > index && mate->mate == index && end->process && mate->process &&
            end->process != mate->process;
}
