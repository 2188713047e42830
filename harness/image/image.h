// SPDX-License-Identifier: Apache-2.0
// A side's container image: which engine runs it, that it is there (pulled once, before anything is
// measured), by which digest, and the command line that starts a container of it. What differs
// between the engines is a table in image.c.
#ifndef UPGATE_HARNESS_IMAGE_IMAGE_H
#define UPGATE_HARNESS_IMAGE_IMAGE_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>

#include "common/error.h"
#include "harness/plan/plan.h"

struct image_engine;

struct image {
    const struct image_engine *engine; // NULL: the side is no image
    char *program;                     // of the engine
    char *version;                     // as the engine tells it
    char *name;                        // as the plan has it
    char *id;                          // "sha256:…", by which it is run: a tag may move meanwhile
    char *digest;                      // of the registry's manifest; NULL: it has none (made here)
    char *user;                        // that the image asks for; "" = root
    char *start;                       // upgate's program for the inside, on this machine
    char **mounts;     // "SOURCE:TARGET" or "SOURCE:TARGET:ro" of the plan, made absolute;
                       // NULL-terminated
    bool joins_cgroup; // its containers stay in the cgroup of who starts them
};

// Finds the engine and the image, pulls it if it is not there (the engine's progress goes to
// stderr). stop: a signal's, or NULL. -ENOENT: no engine, or no such mount; -EIO: no such image.
// The texts say what to do.
int image_open(const struct plan_side *side, const volatile sig_atomic_t *stop,
        struct image *ret_image, struct error *err);
void image_clear(struct image *image);
const char *image_engine_name(const struct image *image);
// "registry/train:torch2.1 (sha256:1234…), run by podman 4.3.1". The caller frees.
char *image_describe(const struct image *image);
// {name, digest, id, engine}, for the fingerprint; new reference
json_t *image_to_json(const struct image *image);

struct image_run {
    const char *container;      // its name; NULL = the engine's choice
    char *const *own_mounts;    // likewise, before the plan's; NULL-terminated
    char *const *args;          // of the plan, for the engine; may be NULL
    const char *socket;         // of image_hold_new(): the container waits there for its words
    char *const *words;         // instead: the program; NULL-terminated
    const struct plan_env *env; // with words: of its environment
    int env_count;
    bool gpus; // of the machine go in
};
// Words to exec, NULL-terminated; the caller frees each and the array.
char **image_argv(const struct image *image, const struct image_run *run);
void image_argv_free(char **argv);

// Where upgate is started: is that directory in the container, too? Else "": the image's own. The
// caller frees.
char *image_workdir(const struct image *image);

// Removes containers that an upgate of this machine, namespace of processes and user left, killed
// with all its helpers. Those of living ones stay, and those of upgates that cannot be seen from
// here: an engine may be shared.
void image_sweep(const struct image *image);

// Removes a container of this name, running or not. No-op where there is none, or the engine keeps
// no list.
void image_remove(const struct image *image, const char *container);

// Of a library of ours: the newest version of glibc that it asks for, as major * 1000 + minor; 0 =
// none, or not to be read.
int image_glibc_needed(const char *library);

#endif
