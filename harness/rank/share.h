// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a job that run on one node meet (`upgate rank --shared`): a socket in the
// abstract namespace. To bind its name is to be the one that starts the recorder; the kernel gives
// it to one process only, and takes it back when the last holder has ended, by whatever signal:
// there is no file that could be stale or forged. A network namespace has names of its own, so that
// a container with one meets only itself. Both ends ask the kernel who the other is: another user
// is refused.
#ifndef UPGATE_HARNESS_RANK_SHARE_H
#define UPGATE_HARNESS_RANK_SHARE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

enum { SHARE_NAME_MAX = 48 };

// key: what all who share have in common. Further what they may not differ in: user and namespaces.
// No directory is looked at: it may hang. -errno in words.
ERROR_CHECKED int share_name(const char *key, char ret[SHARE_NAME_MAX], struct error *err);
// A descriptor that listens, or -EADDRINUSE: somebody else does; else -errno.
int share_listen(const char *name);
// Connects, says which rank this is, waits until end_ns for an answer of `size` bytes, and confirms
// that it came. -ECONNREFUSED, -ECONNRESET: nobody listens any more; -EPERM: it is another user;
// -ETIMEDOUT; other -errno.
int share_join(const char *name, int32_t rank, void *answer, size_t size, int64_t end_ns);

// A process that wants to join.
struct share_guest {
    int fd; // for the answer, and its confirmation
    pid_t pid;
    int32_t rank;
};
// 1: one more, whose fd the caller closes; 0: nobody until end_ns. Of another user, without a word,
// or gone again: closed, and passed over.
int share_accept(int listener, int64_t end_ns, struct share_guest *ret);
// Has the answer come? 1: yes; 0: not yet; -ECONNRESET: never, the process has ended or given up.
int share_confirmed(int fd);

#endif
