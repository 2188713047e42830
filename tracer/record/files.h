// SPDX-License-Identifier: Apache-2.0
// What a file descriptor of the target is: the system call a thread sleeps in names only its
// number. Asked of /proc when the record of a gap arrives and remembered for 20 ms: a descriptor
// that was closed meanwhile stays unknown. One thread.
#ifndef UPGATE_TRACER_RECORD_FILES_H
#define UPGATE_TRACER_RECORD_FILES_H

#include <stdint.h>

struct files;

struct files *files_new(void);
void files_free(struct files *files); // NULL ok
// Path, "pipe:[123]", "socket:[45] 10.0.0.1:443"; NULL: the call takes no descriptor, or nobody
// knows. Valid until the next call. at_ns: when the wait ended; now_ns: it is asked for now.
const char *files_target(struct files *files, uint32_t tgid, int64_t syscall_nr, uint64_t arg0,
        int64_t at_ns, int64_t now_ns);
// The process at the other end of the TCP connection that files_target() was just asked about, when
// it is a process of this machine in the same network namespace: the waker does not tell it where
// another CPU delivers the packets (receive packet steering, ksoftirqd). 0: none, or nobody knows.
uint32_t files_peer(const struct files *files, uint32_t tgid, uint64_t arg0);

#endif
