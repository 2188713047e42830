// SPDX-License-Identifier: Apache-2.0
// Who descends from whom, out of a list of processes.
#ifndef UPGATE_BPF_DESCENDANTS_H
#define UPGATE_BPF_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct descendant {
    pid_t pid, parent; // parent: -1 where it is not known
    bool below;
};

// Sets `below` for root, which need not be in the list with a parent, and for all that descend from
// it, but not for `without` and what is below that. In any order; the list was read while processes
// came and went, and may even go round in a circle. Linear in count.
void descendants_mark(struct descendant *all, size_t count, pid_t root, pid_t without);

#endif
