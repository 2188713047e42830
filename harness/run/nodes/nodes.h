// SPDX-License-Identifier: Apache-2.0
// What the nodes of `upgate node` say to each other: between pairs and when something has failed,
// never in a turn. Each has a file of its own in the shared directory, node-K.log, to which it
// appends JSON lines and which the others only read: no server, no port. Each line of a pair has
// its number, n. One owner thread.
#ifndef UPGATE_HARNESS_RUN_NODES_H
#define UPGATE_HARNESS_RUN_NODES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct nodes_opts {
    const char *dir;          // DIR/RUN; is made
    int node, count;          // 0 <= node < count
    const char *master;       // the host of node 0, as this node knows it; node 0's counts
    const char *identity;     // of the plan and the program: the same on all nodes
    int64_t wait_ns;          // for the others at the start
    int64_t handover_ns;      // for an answer
    const volatile int *stop; // becomes non-zero on a signal
    // What may take minutes on one node and no time on another, done before this node says that it
    // has come. Where it fails the others are told why. NULL ok.
    int (*prepare)(void *arg, struct error *err);
    void *arg;
};

struct nodes;

// All are there, and of one mind. -EINVAL: this node has a file there already, or the nodes have
// different plans or programs; -ETIMEDOUT: nodes that did not come, which are named; -ECANCELED:
// one that has said why it cannot; -EINTR; what prepare() or the file system says. Nothing is left
// behind then, but where prepare() has failed the file that says so.
int nodes_open(const struct nodes_opts *opts, struct nodes **ret_nodes, struct error *err);
void nodes_close(struct nodes *nodes); // the file stays; NULL ok

int nodes_self(const struct nodes *nodes);
int nodes_count(const struct nodes *nodes);
const char *nodes_master(const struct nodes *nodes);         // as node 0 says
char *nodes_store_path(const struct nodes *nodes, int node); // the caller frees

// Node 0: asks all for the next pair, and says that it begins once all have answered. order: taken.
// 0, or 1 with *ret_why (the caller frees): who did not answer in time; the pair is not to be run.
// -errno: cannot be said.
int nodes_order(struct nodes *nodes, json_t *order, char **ret_why, struct error *err);
// The others: wait for the next pair that begins. 1: *ret_order, borrowed until the next call; 0:
// the run has ended, with the exit code in *ret_exit; -ETIMEDOUT: node 0 says nothing any more;
// -EINTR.
int nodes_next(struct nodes *nodes, const json_t **ret_order, int *ret_exit, struct error *err);

// A side has failed here; side -1: this node cannot go on with the pair at all.
void nodes_fail(struct nodes *nodes, int side, const char *reason);
// Has a side failed on another node in this pair? Who and why, until the next call; NULL: nobody
// says so. Node 0 looks at all others, they look at node 0, which says what has failed there and
// elsewhere.
const char *nodes_failed(struct nodes *nodes, int side);

// The others: what became of the pair. answer: taken.
int nodes_answer(struct nodes *nodes, json_t *answer, struct error *err);
// Node 0: the answer of a node, borrowed. NULL: it did not come in time.
const json_t *nodes_wait_answer(struct nodes *nodes, int node);

// node 0: the run has ended; the others: this node takes no part any more
void nodes_end(struct nodes *nodes, int exit_code);

#endif
