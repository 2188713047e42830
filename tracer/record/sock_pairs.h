// SPDX-License-Identifier: Apache-2.0
// Of all connections that the kernel lists those that have both ends in the list, and whose ends
// these are: of the target's processes, as their descriptors say. Begin with {0}. One owner thread.
#ifndef UPGATE_TRACER_RECORD_SOCK_PAIRS_H
#define UPGATE_TRACER_RECORD_SOCK_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/containers/map.h"
#include "tracer/record/sock_diag.h"
#include "tracer/record/tasks.h"

enum { PAIRS_ENDS_MAX = 16384 }; // of connections in all namespaces: 2 MB, and 10 ms for a list

struct pairs_process {
    uint64_t start_ns;
    uint32_t tgid, row;
};

struct socket_end {
    struct sock_diag_socket socket;
    uint32_t space;   // network namespace
    uint32_t process; // row; 0: none of the target's
    uint32_t mate;    // of ends, the other one; MAP_NONE
};

struct socket_pairs {
    struct pairs_process *processes; // of the target, in the order of their start
    struct socket_end *ends;
    size_t process_count, end_count, end_room;
    uint64_t crowd;    // who the processes are, as one number; 0: they are read anew
    struct map names;  // of an end: its index
    struct map owners; // of the inode of an end that has a mate: the row of its process; 0: none of
                       // the target's
};

void pairs_free(struct socket_pairs *pairs);
// True: the target's processes are others than last time.
bool pairs_take_processes(struct socket_pairs *pairs, struct tasks *tasks);
// False: there are too many.
bool pairs_add(struct socket_pairs *pairs, const struct sock_diag_socket *socket, uint32_t space);
// Fills mates and processes of all ends. changed: of pairs_take_processes(). False: there were too
// many descriptors to know all.
bool pairs_find(struct socket_pairs *pairs, bool changed);
// Is it, with its mate, a connection between two processes of the target? Of the two ends the first
// one is.
bool pairs_is_link(const struct socket_pairs *pairs, uint32_t index);

#endif
