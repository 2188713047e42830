// SPDX-License-Identifier: Apache-2.0
// Three lists, each in the order of time, because all of one phase have the same deadline: a sweep
// looks only at those that are over.
#include "harness/canary/serve/peers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/containers/vector.h"
#include "common/strings.h"

// Argo and Flagger ask within milliseconds of connecting; 10 s are their own time-outs. Prometheus
// scrapes every 15 to 60 s and keeps its connection.
static const int64_t phase_ns_max[PEER_PHASES] = {[PEER_NEW] = INT64_C(10000000000),
        [PEER_ASKING] = INT64_C(10000000000),
        [PEER_IDLE] = INT64_C(75000000000)};
#define PEER_PATIENCE_NS INT64_C(1000000000) // who has just connected is about to ask
enum { PEER_BODY_KEPT = 4096 };              // a larger buffer is given back after its request

static void list_append(struct peers *peers, struct peer *peer)
{
    peer->next = NULL;
    peer->previous = peers->newest[peer->phase];
    *(peer->previous ? &peer->previous->next : &peers->oldest[peer->phase]) = peer;
    peers->newest[peer->phase] = peer;
}

static void list_take(struct peers *peers, struct peer *peer)
{
    *(peer->previous ? &peer->previous->next : &peers->oldest[peer->phase]) = peer->next;
    *(peer->next ? &peer->next->previous : &peers->newest[peer->phase]) = peer->previous;
}

struct peer *peers_add(struct peers *peers, int fd, int64_t now_ns)
{
    struct peer *peer = xcalloc(1, sizeof *peer);
    peer->fd = fd;
    peer->since_ns = now_ns;
    list_append(peers, peer);
    peers->count++;
    return peer;
}

void peers_remove(struct peers *peers, struct peer *peer)
{
    list_take(peers, peer);
    peers->count--;
    free(peer->target);
    free(peer->body);
    free(peer);
}

void peers_move(struct peers *peers, struct peer *peer, enum peer_phase phase, int64_t now_ns)
{
    list_take(peers, peer);
    peer->phase = phase;
    peer->since_ns = now_ns;
    list_append(peers, peer);
    if (phase == PEER_ASKING)
        return;
    peer->seen = peer->refused = peer->stranger = false;
    peer->target_len = peer->body_len = 0;
    if (peer->body_capacity > PEER_BODY_KEPT) {
        free(peer->body);
        peer->body = NULL;
        peer->body_capacity = 0;
    }
}

static void peer_cut(struct peers *peers, struct peer *peer)
{
    peer->cut = true;
    peers->cut_off += peer->phase != PEER_IDLE; // an idle connection that ends is no offence
    shutdown(peer->fd, SHUT_RDWR);
}

void peers_sweep(struct peers *peers, int64_t now_ns)
{
    for (int phase = 0; phase < PEER_PHASES; phase++)
        for (struct peer *peer = peers->oldest[phase];
                peer && now_ns - peer->since_ns > phase_ns_max[phase]; peer = peer->next)
            if (!peer->cut)
                peer_cut(peers, peer);
}

void peers_make_room(struct peers *peers, uint64_t most, int64_t now_ns)
{
    static const enum peer_phase silent[] = {PEER_IDLE, PEER_NEW};
    uint64_t left = peers->count;
    for (size_t i = 0; i < 2; i++)
        for (struct peer *peer = peers->oldest[silent[i]];
                peer && left > most && now_ns - peer->since_ns > PEER_PATIENCE_NS;
                peer = peer->next) {
            if (!peer->cut)
                peer_cut(peers, peer);
            left--;
        }
}

void peer_keep_target(struct peer *peer, const char *target, size_t len)
{
    peer->target = vector_reserve(peer->target, &peer->target_capacity, len + 1, 1);
    memcpy(peer->target, target, len);
    peer->target[len] = 0;
    peer->target_len = len;
}

void peer_add_body(struct peer *peer, const char *bytes, size_t len)
{
    peer->body = vector_reserve(peer->body, &peer->body_capacity, peer->body_len + len + 1, 1);
    memcpy(peer->body + peer->body_len, bytes, len);
    peer->body_len += len;
    peer->body[peer->body_len] = 0;
}
