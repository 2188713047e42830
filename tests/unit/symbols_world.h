// SPDX-License-Identifier: Apache-2.0
// A small world for the symbols tests: a directory that disappears with the case, processes that
// live until told to end, and a /proc made of files, in which pids can be reused at will.
#ifndef UPGATE_TESTS_UNIT_SYMBOLS_WORLD_H
#define UPGATE_TESTS_UNIT_SYMBOLS_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tracer/symbols/fixture/library.h"
#include "tracer/symbols/symbols.h"

// "DIR/" + name, DIR being the directory of this case; valid until the case ends.
const char *world_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void world_directory(const char *path); // with its parents
void world_write(const char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void world_append(const char *path, const char *text);
void world_copy(const char *from, const char *to);

struct world_process {
    pid_t pid;
    int stdin_fd;
    uint64_t local, libc, page, library[FIXTURE_COUNT];
};
// Start a fixture program with a library; with `before`, it is called in the child first, and the
// case is skipped if it returns false. Returns when the addresses are there.
struct world_process world_start(const char *program, const char *library, bool (*before)(void));
void world_end(struct world_process *process); // ends and is reaped

// A process of the made /proc (world_path("proc")), with the library mapped at `base`.
struct world_fake {
    pid_t pid;
    char state;
    uint64_t start, stack, base;
    const char *library;
};
void world_fake(const struct world_fake *fake);
void world_fake_gone(pid_t pid);
// Where in such a process one of the library's functions lies.
uint64_t world_fake_address(const struct world_fake *fake, int which);
// Virtual address of a function in the library file.
uint64_t world_library_address(const char *library, int which);

struct symbols *world_symbols(struct symbols_opts opts); // never fails; opts.recheck_ns 0 becomes 1

#endif
