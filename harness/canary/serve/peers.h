// SPDX-License-Identifier: Apache-2.0
// The connections of the server and how long each may take. What a client does between two answers,
// or before its first, has a deadline of its own that no trickle of bytes puts off. One owner
// thread; knows sockets only to cut them off.
#ifndef UPGATE_HARNESS_CANARY_SERVE_PEERS_H
#define UPGATE_HARNESS_CANARY_SERVE_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum peer_phase {
    PEER_NEW,    // connected; its first request's headers are awaited
    PEER_ASKING, // headers are in: body awaited, answer sent
    PEER_IDLE,   // answered; the next request's headers are awaited
    PEER_PHASES
};

struct peer {
    struct peer *previous, *next; // of its phase's list, oldest first
    enum peer_phase phase;
    int64_t since_ns;
    int fd;
    bool cut; // its socket was shut down, the end is awaited
    // of the request at hand
    bool seen;           // its headers
    bool stranger;       // without a valid token where one is asked for
    bool refused;        // answered at the headers already, or its body is read and thrown away
    char *target, *body; // kept from request to request; NULL: none so far
    size_t target_len, target_capacity, body_len, body_capacity;
};

struct peers {
    struct peer *oldest[PEER_PHASES], *newest[PEER_PHASES];
    uint64_t count, cut_off;
};

struct peer *peers_add(struct peers *peers, int fd, int64_t now_ns);
void peers_remove(struct peers *peers, struct peer *peer); // frees it
void peers_move(struct peers *peers, struct peer *peer, enum peer_phase phase, int64_t now_ns);
// Shuts down the sockets of those that are over their time; their owner then sees the end and
// removes them.
void peers_sweep(struct peers *peers, int64_t now_ns);
// The same for those that have waited longest without asking, a second at least, until no more than
// `most` are left: where all connections are taken, newcomers do not wait for the deadlines of who
// is silent.
void peers_make_room(struct peers *peers, uint64_t most, int64_t now_ns);
void peer_keep_target(struct peer *peer, const char *target, size_t len);
void peer_add_body(struct peer *peer, const char *bytes, size_t len);

#endif
