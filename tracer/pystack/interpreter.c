// SPDX-License-Identifier: Apache-2.0
#include "tracer/pystack/interpreter.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/proc.h"
#include "common/strings.h"
#include "common/target/file.h"
#include "tracer/pystack/image.h"
#include "tracer/pystack/layout.h"

// libpython3.so, libpython3.X.so and the executable; more is a strange process.
#define CANDIDATES_MAX 8

struct candidate {
    uint64_t start, end, offset; // its first mapping
    dev_t device;
    bool is_executable;
    char path[PATH_MAX];
};

int interpreter_name_version(const char *path, int *ret_major)
{
    const char *name = strstr(string_base_name(path), "python");
    int major = 0, minor = 0;
    if (!name || sscanf(name, "python%1d.%2d", &major, &minor) != 2)
        return -1;
    *ret_major = major;
    return minor;
}

static int proc_error(int number, pid_t tgid, const char *what, struct error *err)
{
    if (number == ENOENT || number == ESRCH)
        return error_set(err, -ESRCH, "process %d is gone", (int)tgid);
    if (number == EACCES || number == EPERM)
        return error_set(err, -EPERM,
                "may not read %s of process %d: it takes the same user and no limit by "
                "ptrace_scope, or CAP_SYS_PTRACE",
                what, (int)tgid);
    if (number == EAGAIN)
        return error_set(err, -EIO,
                "failed to read %s of process %d in time: somebody holds the lock of its memory map",
                what, (int)tgid);
    return error_set(
            err, -EIO, "failed to read %s of process %d: %s", what, (int)tgid, strerror(number));
}

// A file's first mapping is taken: they stand in the order of their addresses.
static void take_mapping(
        const struct proc_mapping *mapping, const char *exe, struct candidate *found, size_t *count)
{
    if (*count == CANDIDATES_MAX)
        return;
    const char *path = mapping->path, *name = string_base_name(path);
    size_t len = strlen(path);
    bool is_executable = !strcmp(path, exe);
    // A python that was started by naming the loader is a mapped file like a library.
    bool is_library = ((!strncmp(name, "libpython", 9) || !strncmp(name, "libpypy", 7)) &&
                              strstr(name, ".so")) ||
            !strncmp(name, "python3", 7);
    if (len == 0 || len >= sizeof(found->path) || (!is_executable && !is_library))
        return;
    for (size_t i = 0; i < *count; i++)
        if (!strcmp(found[i].path, path))
            return;
    struct candidate *candidate = &found[(*count)++];
    *candidate = (struct candidate){.start = mapping->begin,
            .end = mapping->end,
            .offset = mapping->offset,
            .device = mapping->device,
            .is_executable = is_executable};
    memcpy(candidate->path, path, len);
}

// The executable and every libpython of the process. Where somebody holds its mmap lock this fails
// in time, and nobody goes on to its memory, to read which takes that lock, too.
static int find_candidates(pid_t tgid, struct candidate *found, size_t *count, struct error *err)
{
    char path[64], exe[PATH_MAX] = "";
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)tgid);
    ssize_t len = readlink(path, exe, sizeof(exe) - 1);
    if (len < 0 && errno == ENOENT && kill(tgid, 0) == 0)
        return -ENOENT; // a kernel thread, or a zombie
    if (len < 0)
        return proc_error(errno, tgid, "the executable", err);
    exe[len] = '\0';
    struct proc_maps maps;
    struct proc_mapping mapping;
    snprintf(path, sizeof(path), "/proc/%d", (int)tgid);
    int code = proc_maps_ask(path, &maps);
    if (code)
        return proc_error(-code, tgid, "the mappings", err);
    *count = 0;
    while (proc_maps_next(&maps, &mapping))
        take_mapping(&mapping, exe, found, count);
    code = proc_maps_close(&maps);
    return code ? proc_error(-code, tgid, "the mappings", err) : 0;
}

static int open_candidate(pid_t tgid, const struct candidate *candidate)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)tgid);
    return candidate->is_executable ? target_file_open_here(path, candidate->device)
                                    : target_file_open_mapped("/proc", tgid, candidate->start,
                                              candidate->end, candidate->path, candidate->device);
}

// From 3.11 the version stands in the process's memory, before in the file.
static int find_version(int fd, struct memory *memory, const struct candidate *candidate,
        uint64_t symbol, struct interpreter *ret, struct error *err)
{
    int major = 3, minor = interpreter_name_version(candidate->path, &major);
    uint64_t number = 0;
    if (symbol && memory_u64(memory, symbol, &number) == 0 && number >> 24 == 3) {
        static const char *const levels[16] = {[0xa] = "a", [0xb] = "b", [0xc] = "rc"};
        const char *level = levels[number >> 4 & 15];
        ret->minor = (int)(number >> 16 & 255);
        snprintf(ret->version, sizeof(ret->version), "3.%d.%d", ret->minor,
                (int)(number >> 8 & 255));
        if (level)
            snprintf(ret->version + strlen(ret->version), 8, "%s%d", level, (int)(number & 15));
    } else if (major == 3 && image_version(fd, minor, ret->version, sizeof(ret->version)) == 0) {
        ret->minor = (int)strtol(ret->version + 2, NULL, 10);
    } else if (minor >= 0) {
        snprintf(ret->version, sizeof(ret->version), "%d.%d", major, minor);
        ret->minor = major == 3 ? minor : 0;
    } else {
        return error_set(
                err, -ENOTSUP, "'%s' has a Python whose version cannot be told", candidate->path);
    }
    if (ret->minor < LAYOUT_MINOR_MIN || ret->minor > LAYOUT_MINOR_MAX)
        return error_set(err, -ENOTSUP, "Python %s ('%s') is not supported: only 3.%d to 3.%d are",
                ret->version, candidate->path, LAYOUT_MINOR_MIN, LAYOUT_MINOR_MAX);
    return 0;
}

// -ENOENT: this file holds no Python.
static int examine(int fd, struct memory *memory, const struct candidate *candidate,
        struct interpreter *ret, struct error *err)
{
    enum { RUNTIME, VERSION, CODE, STRING, BYTES, MAIN, COUNT };
    struct image_symbol symbols[COUNT] = {
            [RUNTIME] = {"_PyRuntime", 0},
            [VERSION] = {"Py_Version", 0},
            [CODE] = {"PyCode_Type", 0},
            [STRING] = {"PyUnicode_Type", 0},
            [BYTES] = {"PyBytes_Type", 0},
            [MAIN] = {"PyEval_EvalCode", 0},
    };
    uint64_t bias = 0;
    int major = 3, minor = interpreter_name_version(candidate->path, &major);
    if (!strncmp(string_base_name(candidate->path), "libpypy", 7))
        return error_set(err, -ENOTSUP, "'%s' is PyPy; only CPython is supported", candidate->path);
    int code = image_symbols(fd, symbols, COUNT, err);
    if (code == 0)
        code = image_bias(fd, candidate->start, candidate->offset, &bias, err);
    if (code == -ENOTSUP && minor >= 0)
        return error_set(err, -ENOTSUP,
                "'%s' is a Python of another machine than this one (an emulated program), or this one is "
                "neither x86-64 nor arm64",
                candidate->path);
    if (code < 0)
        return code == -ENOMEM || code == -EIO ? code : -ENOENT;
    if (symbols[RUNTIME].value == 0)
        image_section(fd, ".PyRuntime", &symbols[RUNTIME].value);
    if (symbols[RUNTIME].value == 0) {
        if (symbols[MAIN].value == 0)
            return -ENOENT;
        if (minor >= 0)
            return error_set(err, -ENOTSUP,
                    "Python %d.%d ('%s') is not supported: only 3.%d to 3.%d are", major, minor,
                    candidate->path, LAYOUT_MINOR_MIN, LAYOUT_MINOR_MAX);
        return error_set(err, -ENOTSUP,
                "the Python of '%s' does not say where its state is (_PyRuntime)", candidate->path);
    }
    ret->runtime = symbols[RUNTIME].value + bias;
    ret->code_type = symbols[CODE].value ? symbols[CODE].value + bias : 0;
    ret->string_type = symbols[STRING].value ? symbols[STRING].value + bias : 0;
    ret->bytes_type = symbols[BYTES].value ? symbols[BYTES].value + bias : 0;
    snprintf(ret->path, sizeof(ret->path), "%s", candidate->path);
    return find_version(fd, memory, candidate,
            symbols[VERSION].value ? symbols[VERSION].value + bias : 0, ret, err);
}

int interpreter_find(pid_t tgid, struct memory *memory, struct interpreter *ret, struct error *err)
{
    struct candidate *found = calloc(CANDIDATES_MAX, sizeof(*found));
    struct interpreter interpreter = {0};
    size_t count = 0;
    if (!found)
        return error_set(err, -ENOMEM, "out of memory");
    int code = find_candidates(tgid, found, &count, err);
    int result = code < 0 ? code : -ENOENT;
    // Libraries first: where there is one, the executable is a shell around it.
    for (int executables = 0; executables < 2 && code == 0 && result == -ENOENT; executables++)
        for (size_t i = 0; i < count && result == -ENOENT; i++) {
            if (found[i].is_executable != (executables == 1))
                continue;
            int fd = open_candidate(tgid, &found[i]);
            if (fd < 0) {
                if (errno == EACCES || errno == EPERM)
                    result = proc_error(errno, tgid, found[i].path, err);
                continue;
            }
            result = examine(fd, memory, &found[i], &interpreter, err);
            close(fd);
        }
    free(found);
    if (result == -ENOENT)
        return error_set(err, -ENOENT, "no Python in process %d", (int)tgid);
    if (result == 0)
        *ret = interpreter;
    return result;
}
