// SPDX-License-Identifier: Apache-2.0
// A launch whose side is a container image: what differs from a bare process. Shared by launch.c
// and launch_image.c only.
#ifndef UPGATE_HARNESS_RUN_LAUNCH_IMAGE_H
#define UPGATE_HARNESS_RUN_LAUNCH_IMAGE_H

#include <stdbool.h>
#include <sys/resource.h>

#include "harness/run/launch.h"

// --- of launch.c

// Forks argv as the root of the launch: the workload, or (with launch->hold) the engine that makes
// its container.
int launch_fork(struct launch_env *env, const struct launch_spec *spec, struct launch *launch,
        char **argv, struct error *err);
// Calls of a native function are the steps of launch->program: seen from before its exec.
int launch_see_calls(const struct launch_spec *spec, struct launch *launch, struct error *err);
// In a child: memory may be allocated. The parent has one thread, or (in a traced pair) others that
// are none of ours to meet but in malloc, which glibc makes usable after a fork.
void launch_set_environment(
        const struct launch_env *env, const struct launch_spec *spec, const struct launch *launch);

// --- of launch_image.c

// Starts a container of the side's image, puts its program into the tree, and lets it begin.
int launch_image_fork(struct launch_env *env, const struct launch_spec *spec, struct launch *launch,
        char **argv, struct error *err);
// Can a library of ours be loaded in it? True of bare processes, and before a container has said
// what it has.
bool launch_image_loads(
        const struct launch_env *env, const struct launch_spec *spec, const char *library);
// The program has ended, or its container is gone (SIGKILL then).
void launch_image_wait(struct launch *launch, int *ret_status, struct rusage *ret_usage);
void launch_image_kill(struct launch *launch); // all of the container, while its engine looks on
// The engine removes the container: until that is done, at most 15 s. No-op for bare processes.
void launch_image_end(struct launch *launch);

#endif
