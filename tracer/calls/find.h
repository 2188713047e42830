// SPDX-License-Identifier: Apache-2.0
// A function of native code by its name, looked for in files that processes map. Reads files; no
// threads.
#ifndef UPGATE_TRACER_CALLS_FIND_H
#define UPGATE_TRACER_CALLS_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FIND_PLACES_MAX = 8, // of more the first ones are named
    FIND_NEAR_MAX = 3,
};

struct find_place {
    uint64_t device, inode, offset; // of its first byte in the file
    char *name;                     // as people read it
    char *symbol;                   // as it stands in the file
    char *module;                   // last part of the file's path
};

// What is looked for, and what has been found so far. `= {0}` before find_parse.
struct find {
    char *library; // last part of a path, up to where it goes on with a version; NULL: anywhere
    char *name;
    struct find_place places[FIND_PLACES_MAX];
    size_t place_count, place_over;
    char *near[FIND_NEAR_MAX]; // names like it
    size_t near_count;
    size_t near_distance[FIND_NEAR_MAX];
    size_t file_count, library_count; // files that were looked at; those that `library` names
};

// "symbol:NAME" or "symbol:LIBRARY:NAME", checked before (plan_check_step); a C++ name has no
// parameters: "symbol:ns::Server::handle".
void find_parse(const char *text, struct find *ret);

// Looks into the ELF file open at fd, which the process calls `path`. 0; -ENOEXEC: it is none;
// -EAGAIN: its file system does not answer now. *ret_loader: where _dl_debug_state stands in it,
// for a file that is the dynamic loader; else 0.
int find_in_file(struct find *find, int fd, const char *path, uint64_t device, uint64_t inode,
        uint64_t *ret_loader);

// Why there is not one place: "no function 'x' in …; near: …" or "'x' is 2 functions: …". NULL:
// there is. The caller frees.
char *find_why_not(const struct find *find);
void find_free(struct find *find);

#endif
