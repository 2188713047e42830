// SPDX-License-Identifier: Apache-2.0
// Questions to the kernel about TCP connections (NETLINK_SOCK_DIAG: what ss asks) and its answers,
// as bytes; and the socket over which they go. An answer may be of a kernel that tells more or less
// than this one: nothing in it is taken to be as long as it says.
#ifndef UPGATE_TRACER_RECORD_SOCK_DIAG_H
#define UPGATE_TRACER_RECORD_SOCK_DIAG_H

#include <linux/inet_diag.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SOCK_DIAG_QUESTION_BYTES = 72 };

struct sock_diag_socket {
    struct inet_diag_sockid id; // by which it is asked for again
    uint8_t family;
    uint32_t inode;          // of "socket:[INODE]"
    uint32_t unread;         // bytes that came and that nobody has read
    uint32_t unacknowledged; // bytes that its process wrote, sent or not
    bool has_counters;       // the rest is told, as Linux 4.19 and newer do where they are asked
    uint64_t written;        // bytes, by its process so far
    uint64_t received;       // bytes, without a hole
    uint64_t retransmits;    // segments
};

enum sock_diag_kind {
    SOCK_DIAG_SOCKET,
    SOCK_DIAG_DONE, // behind the last one of a list
    SOCK_DIAG_FAILED,
};

struct sock_diag_answer {
    enum sock_diag_kind kind;
    uint32_t sequence; // of the question
    int code;          // of SOCK_DIAG_FAILED: -errno
    struct sock_diag_socket socket;
};

// Each fills SOCK_DIAG_QUESTION_BYTES. All established connections of a family; one, with its
// counters.
void sock_diag_ask_all(void *question, uint8_t family, uint32_t sequence);
void sock_diag_ask_one(void *question, const struct sock_diag_socket *socket, uint32_t sequence);
// The answer at *at among len bytes that came, and *at behind it. False: there is no whole one any
// more.
bool sock_diag_next(const void *bytes, size_t len, size_t *at, struct sock_diag_answer *ret);

// A socket for them, and target_file_converse(): in the network namespace of this thread (NULL), or
// in that of a file such as /proc/PID/ns/net, which takes CAP_SYS_ADMIN. -errno.
int sock_diag_open(const char *path);

#endif
