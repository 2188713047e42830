// SPDX-License-Identifier: Apache-2.0
// Reads a live process: its program, every loaded shared object, environment and limits. Files are
// opened the way the process sees them (its root, its mounts), and only if they are the very inode
// it has mapped: an upgrade may have put another file at the same path meanwhile.
#include "harness/fingerprint/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/proc.h"
#include "common/strings.h"
#include "harness/fingerprint/elf_file.h"
#include "harness/fingerprint/environment.h"
#include "harness/fingerprint/fingerprint.h"
#include "harness/fingerprint/gpu.h"
#include "harness/fingerprint/host.h"
#include "harness/fingerprint/library.h"
#include "harness/fingerprint/limits.h"
#include "harness/fingerprint/maps.h"
#include "harness/fingerprint/read.h"

enum { ENVIRON_BYTES_MAX = 4 << 20 };

// Open a regular file for reading. Never opens anything else: opening a device can start it.
// `inode`, if not 0, must match. -1 with errno.
static int open_regular(const char *path, uint64_t inode)
{
    int look = open(path, O_PATH | O_CLOEXEC);
    if (look < 0)
        return -1;
    struct stat status;
    int fd = -1;
    if (fstat(look, &status)) {
        // errno is set
    } else if (!S_ISREG(status.st_mode)) {
        errno = EMEDIUMTYPE;
    } else if (inode && status.st_ino != inode) {
        errno = ESTALE;
    } else {
        char *link = xasprintf("/proc/self/fd/%d", look);
        fd = open(link, O_RDONLY | O_CLOEXEC);
        free(link);
    }
    int saved = errno;
    close(look);
    errno = saved;
    return fd;
}

// The kernel marks a file that was replaced as deleted. A path that is not marked and yet leads to
// another inode is on overlayfs, which shows the inode of a lower layer: then the address is tried
// first, and the path believed if that is not allowed.
static int open_mapped(const char *proc_dir, const struct mapped_file *file)
{
    char *inside = xasprintf("%s/root%s", proc_dir, file->path);
    char *by_address =
            xasprintf("%s/map_files/%" PRIx64 "-%" PRIx64, proc_dir, file->start, file->end);
    const struct {
        const char *path;
        uint64_t inode;
        bool by_path;
    } ways[] = {
            {inside, file->inode, true},
            {file->path, file->inode, true}, // a process in a chroot below our root
            {by_address, 0, false},          // needs privileges that we may not have
            {inside, 0, true},
    };
    int fd = -1, first_error = 0;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]) && fd < 0; i++) {
        if (ways[i].by_path && file->deleted)
            continue;
        fd = open_regular(ways[i].path, ways[i].inode);
        if (fd < 0 && (!first_error || errno == EMEDIUMTYPE))
            first_error = errno;
        if (fd < 0 && errno == EMEDIUMTYPE)
            break;
    }
    free(inside);
    free(by_address);
    errno = first_error;
    return fd;
}

// Describe the object open at fd (or not open: why says so). NULL: it is no ELF file.
static json_t *describe(int fd, const char *why, const char *path)
{
    const struct library_kind *kind = library_kind_of(path);
    struct elf_facts facts = {0};
    struct error problem = {0};
    int code = fd < 0 ? error_set(&problem, -ENOENT, "%s", why)
                      : elf_facts_read(fd, kind->prefix, &facts, &problem);
    if (code == -ENOEXEC) {
        elf_facts_clear(&facts);
        return NULL;
    }
    json_t *object = json_object();
    char *key = library_key(path);
    char *from_name = facts.version ? NULL : library_version_of_name(path);
    json_object_set_new(object, "key", json_text_take(key));
    json_object_set_new(object, "role", json_text(library_role_name(kind->role)));
    json_object_set_new(object, "name", json_text(kind->name));
    json_object_set_new(object, "version_source",
            json_text(facts.version     ? "contents"
                            : from_name ? "file name"
                                        : NULL));
    json_object_set_new(
            object, "version", from_name ? json_text_take(from_name) : json_text(facts.version));
    json_object_set_new(object, "build_id", json_text(facts.build_id));
    json_object_set_new(object, "soname", json_text(facts.soname));
    json_object_set_new(object, "compiler", json_text(facts.compiler));
    json_object_set_new(object, "size_bytes",
            fd < 0 ? json_null() : json_integer((json_int_t)facts.size_bytes));
    json_object_set_new(object, "path", json_text(path));
    if (code)
        json_object_set_new(object, "problem", json_text(problem.text));
    elf_facts_clear(&facts);
    return object;
}

static json_t *collect_exe(const char *proc_dir, json_t *missing)
{
    char *link = xasprintf("%s/exe", proc_dir), target[4096];
    ssize_t length = readlink(link, target, sizeof(target) - 1);
    json_t *object = NULL;
    if (length > 0) {
        target[length] = '\0';
        int fd = open_regular(link, 0);
        object = describe(fd, strerror(errno), target);
        if (fd >= 0)
            close(fd);
    }
    if (!object)
        missing_add(missing, "process.exe", "%s cannot be read: %m", link);
    free(link);
    return object ? object : json_null();
}

static int compare_libraries(const void *left, const void *right)
{
    json_t *const *a = left, *const *b = right;
    int order = strcmp(json_string_value(json_object_get(*a, "key")),
            json_string_value(json_object_get(*b, "key")));
    return order ? order
                 : strcmp(json_string_value(json_object_get(*a, "path")),
                           json_string_value(json_object_get(*b, "path")));
}

static void collect_libraries(const char *proc_dir, const struct maps *maps, json_t *process)
{
    const char *program =
            json_string_value(json_object_get(json_object_get(process, "exe"), "path"));
    json_t **found = xcalloc(maps->file_count + 1, sizeof(*found));
    size_t count = 0, other_count = 0, unreadable_count = 0;
    for (size_t i = 0; i < maps->file_count; i++) {
        const struct mapped_file *file = &maps->files[i];
        if (program && !strcmp(program, file->path))
            continue;
        if (!file->executable && !strstr(file->path, ".so")) {
            other_count++; // locales, fonts, weights, shared memory
            continue;
        }
        int fd = open_mapped(proc_dir, file);
        int code = errno;
        json_t *object =
                fd < 0 && code == EMEDIUMTYPE ? NULL : describe(fd, strerror(code), file->path);
        if (fd >= 0)
            close(fd);
        else
            unreadable_count += object != NULL;
        if (!object) {
            other_count++;
            continue;
        }
        json_object_set_new(object, "deleted", json_boolean(file->deleted));
        found[count++] = object;
    }
    qsort(found, count, sizeof(*found), compare_libraries);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, found[i]);
    free(found);
    json_object_set_new(process, "libraries", array);
    json_object_set_new(
            process, "libraries_unreadable_count", json_integer((json_int_t)unreadable_count));
    json_object_set_new(process, "other_files_count", json_integer((json_int_t)other_count));
    json_object_set_new(process, "runtime_code", json_boolean(maps->anonymous_exec_count > 0));
}

static void collect_environment(const char *proc_dir, json_t *process, json_t *missing)
{
    char *path = xasprintf("%s/environ", proc_dir);
    size_t length = 0, other_count = 0;
    char *block = string_read_file(path, ENVIRON_BYTES_MAX, &length);
    if (!block)
        missing_add(missing, "process.environment", "%s cannot be read: %m", path);
    json_object_set_new(process, "environment",
            block ? environment_collect(block, length, &other_count) : json_null());
    json_object_set_new(process, "environment_other_count",
            block ? json_integer((json_int_t)other_count) : json_null());
    free(block);
    free(path);
}

// Start time of the process in clock ticks, or 0: a reused pid has another.
static uint64_t start_time(const char *proc_dir)
{
    struct proc_stat stat;
    return proc_stat_read(proc_dir, &stat) ? 0 : stat.start_ticks;
}

int process_collect(const char *proc_dir, json_t *missing, json_t **ret_process, struct error *err)
{
    struct maps maps = {0};
    uint64_t started = start_time(proc_dir);
    if (!started)
        return error_set(
                err, -ESRCH, "failed to read the process at '%s': there is none", proc_dir);
    int code = maps_read(proc_dir, &maps, err);
    if (code)
        return code;
    json_t *process = json_object();
    json_object_set_new(process, "exe", collect_exe(proc_dir, missing));
    collect_libraries(proc_dir, &maps, process);
    collect_environment(proc_dir, process, missing);
    json_object_set_new(process, "rlimits", limits_rlimits(proc_dir, missing));
    json_object_set_new(process, "scheduling", limits_scheduling(proc_dir, missing));
    json_object_set_new(process, "memory", limits_memory(proc_dir, missing));
    json_object_set_new(
            process, "cgroup", limits_cgroup(proc_dir, "/proc/self/mountinfo", missing));
    if (maps.malformed_count)
        missing_add(missing, "process.libraries", "%zu lines of the memory map were not understood",
                maps.malformed_count);
    maps_free(&maps);
    if (start_time(proc_dir) != started) {
        json_decref(process);
        return error_set(err, -ESRCH,
                "failed to read the process at '%s': it ended while being read", proc_dir);
    }
    *ret_process = process;
    return 0;
}

json_t *fingerprint_host(void)
{
    json_t *host = host_collect(""), *missing = json_object();
    json_object_set_new(host, "gpu", gpu_collect("", NULL, missing));
    if (json_object_size(missing))
        json_object_set(host, "missing", missing);
    json_decref(missing);
    return host;
}

int fingerprint_process(pid_t pid, json_t **ret_process, struct error *err)
{
    int64_t begin_ns = clock_monotonic_ns();
    char *proc_dir = xasprintf("/proc/%d", (int)pid);
    json_t *missing = json_object(), *process = NULL;
    int code = process_collect(proc_dir, missing, &process, err);
    free(proc_dir);
    if (code) {
        json_decref(missing);
        return code;
    }
    json_object_set_new(process, "pid", json_integer(pid));
    json_t *host = fingerprint_host();
    *ret_process = json_pack("{s:I,s:I,s:o,s:o,s:o}", "taken_wall_ns", (json_int_t)clock_wall_ns(),
            "read_ns", (json_int_t)(clock_monotonic_ns() - begin_ns), "process", process, "host",
            host, "missing", missing);
    return 0;
}
