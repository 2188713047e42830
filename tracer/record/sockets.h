// SPDX-License-Identifier: Apache-2.0
// TCP connections between two processes of the target: what went over them, and how often something
// was under way that the receiver had nothing but to wait for. Both ends are looked at some 50
// times a second, in what the kernel tells anybody (as ss does); the sender's first, so that
// nothing seems to be under way which arrived meanwhile. Rows of table connection. One thread; what
// may wait is asked by the process of common/target.
//
// Not by the kernel's own sum of busy time (tcpi_busy_time): that goes on until the last byte is
// acknowledged, and who answers later puts that off by 40 ms.
#ifndef UPGATE_TRACER_RECORD_SOCKETS_H
#define UPGATE_TRACER_RECORD_SOCKETS_H

#include <stdint.h>

#include "tracer/record/tasks.h"
#include "tracer/record/writer.h"

struct sockets;

// In the network namespaces that the processes of the target are in by now, and that are kept until
// sockets_free(). Before privileges_drop(): to enter another one takes CAP_SYS_ADMIN.
struct sockets *sockets_new(struct writer *writer, struct tasks *tasks);
void sockets_free(struct sockets *sockets); // NULL ok
void sockets_round(struct sockets *sockets, int64_t now_ns);
void sockets_end(struct sockets *sockets, int64_t now_ns); // what has no row yet
// Why connections are not told of, a sentence; NULL: they are, or there is one process only.
const char *sockets_missing(const struct sockets *sockets);

#endif
