// SPDX-License-Identifier: Apache-2.0
// The processes that mpirun or srun started, and what they do together: say who has failed, tell
// what process 0 knows, add in a tree. Before each message all agree that nobody has failed, so
// that no process waits for one that does not come. Errors of MPI itself end all of them, as MPI
// does unless told otherwise. Every function is called by all processes, in the same order, from
// the main thread.
#ifndef UPGATE_HARNESS_MPI_TEAM_H
#define UPGATE_HARNESS_MPI_TEAM_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "common/strings.h"

// bytes of a message, which MPI counts as an int
enum { TEAM_HOST_MAX = 80, TEAM_BYTES_MAX = 1 << 30 };

struct team {
    int number, count; // of this process, and of all
    char host[TEAM_HOST_MAX];
};

void team_join(struct team *ret);
void team_leave(void); // once, at the end

enum team_whose { TEAM_OF_ALL, TEAM_OF_PROCESS }; // the latter is named in the sentence

// 0: rc is 0 everywhere. Else, everywhere, the error of the first process that has one.
int team_agree(const struct team *team, enum team_whose whose, int rc, struct error *err);
// What process 0 has in `bytes` is then in those of all.
ERROR_CHECKED int team_tell(const struct team *team, struct strbuf *bytes, struct error *err);
int team_tell_number(int number); // that of process 0

// What each process has of something that can be added in any order that keeps a lower process on
// the left.
struct team_sum {
    // what this process has by now
    int (*give)(void *arg, struct strbuf *ret, struct error *err);
    // what another gave is added to it
    int (*take)(void *arg, const void *bytes, size_t size, int from, struct error *err);
    void *arg;
};
// In a binary tree, after as many steps as the count of processes has doublings: all is with
// process 0. -E2BIG: TEAM_BYTES_MAX.
ERROR_CHECKED int team_add(const struct team *team, const struct team_sum *sum, struct error *err);

#endif
