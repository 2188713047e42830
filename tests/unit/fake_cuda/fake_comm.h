// SPDX-License-Identifier: Apache-2.0
// NCCL between forked processes of one host, for kernels/comm.h over fake_cuda: what ranks send
// lies in memory that they share.
#ifndef UPGATE_TESTS_FAKE_COMM_H
#define UPGATE_TESTS_FAKE_COMM_H

#include "reference_models/native/ranks/ranks.h"

// Set before the ranks are forked.
struct fake_comm_world {
    struct ranks_barrier *barrier; // shared; NULL: there is no NCCL
    char *memory;                  // shared: a slot of each rank
    size_t slot;                   // bytes
    size_t calls;                  // collectives of this process
};
extern struct fake_comm_world fake_comm_world;

#endif
