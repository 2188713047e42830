// SPDX-License-Identifier: Apache-2.0
// upgate's end of the line into a container (inside.h): waits until the program of the image is
// held before its exec, says what it shall become, and hears how it ends. Letting go, or dying,
// ends all that lives in the container. One owner thread.
#ifndef UPGATE_HARNESS_IMAGE_HOLD_H
#define UPGATE_HARNESS_IMAGE_HOLD_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "harness/image/inside.h"

struct image_hold;

// The socket that a container of this name is given: in a directory of its own that only we can
// enter. The caller frees.
char *image_hold_path(const char *name);
// Listens there; who may die tells a guardian of the path first. The file is gone once somebody has
// come.
int image_hold_new(const char *path, struct image_hold **ret_hold, struct error *err);
void image_hold_free(struct image_hold *hold); // lets go; NULL ok

// Is there still the process whose pid and start stand in this name, "upgate-PID-START-…"? True for
// other names.
bool image_owner_lives(const char *name);
void image_hold_sweep(void); // removes what upgates left that were killed with all their helpers

struct image_guest {
    struct inside_hello hello;
    pid_t pid; // of the held process, as we know it; 0 = of a pid namespace that we cannot see into
    uid_t uid; // likewise
    char *env; // hello.env_bytes of "NAME=value\0", and one NUL more; the caller frees
};
// Waits for a container to say hello. end_fd: readable when the engine has ended (-ECHILD). stop:
// becomes non-zero on a signal
// (-EINTR), or NULL. -ETIME: it did not come until the deadline; -EPROTO: what came was no hello.
int image_hold_hello(struct image_hold *hold, int end_fd, int64_t deadline_ns,
        const volatile int *stop, struct image_guest *ret_guest, struct error *err);

struct image_start {
    const char *dir; // working directory in the container; "" = the image's
    char *const *argv, *const *env;
    const cpu_set_t *cpus;
    int output_fd;
};
// Lets the program begin. 0 also when the container is gone: then no event follows.
int image_hold_start(struct image_hold *hold, const struct image_start *start, struct error *err);
// The next event, within the time; -ESRCH: the container is gone, -ETIME.
int image_hold_event(struct image_hold *hold, int64_t deadline_ns, struct inside_event *ret_event);
// readable when an event has come or the container is gone
int image_hold_fd(const struct image_hold *hold);
// its processes are ended; an event may still follow
void image_hold_let_go(struct image_hold *hold);

#endif
