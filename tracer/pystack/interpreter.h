// SPDX-License-Identifier: Apache-2.0
// Which mapped file of a process is its Python: the executable, or a libpython that it has loaded.
// Files are opened through /proc/PID (exe, map_files, root), so that containers and deleted files
// work.
#ifndef UPGATE_TRACER_PYSTACK_INTERPRETER_H
#define UPGATE_TRACER_PYSTACK_INTERPRETER_H

#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "tracer/pystack/memory.h"

struct interpreter {
    int minor;          // of 3.minor
    char version[32];   // "3.11.2"
    char path[1024];    // as the process has mapped it
    uint64_t runtime;   // address of _PyRuntime in the process
    uint64_t code_type; // of PyCode_Type, PyUnicode_Type, PyBytes_Type; 0: not known
    uint64_t string_type;
    uint64_t bytes_type;
};

// -ENOENT: no Python; -ENOTSUP: one that is not supported, in words; -ESRCH, -EPERM, -EIO.
int interpreter_find(pid_t tgid, struct memory *memory, struct interpreter *ret, struct error *err);

// The minor version in a file's name, "libpython3.10.so.1.0" or "python3.10": 10; *ret_major the 3.
// -1: it has none.
int interpreter_name_version(const char *path, int *ret_major);

#endif
