// SPDX-License-Identifier: Apache-2.0
// A process as a target: its interpreter, its thread numbers, and whether it is still the same
// program. /proc/PID/mem is kept open for that last question: the file stays with the memory it was
// opened on, so after an exec, an exit or a reuse of the pid it reads as empty, which no number in
// /proc can promise.
#include "tracer/pystack/pystack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/proc.h"
#include "tracer/pystack/interpreter.h"
#include "tracer/pystack/target.h"

#define TASKS_MAX 65536 // of one process that are looked through for a tid
#define HOST_TIDS 256

struct pystack {
    pid_t tgid;
    int mem_fd;
    bool is_nested;             // in a pid namespace below ours: its own tids are not ours
    pid_t host_tids[HOST_TIDS]; // of threads that held the GIL, by their own tid; 0: none yet
    struct interpreter interpreter;
    struct target target;
    struct pystack_stats stats;
};

// The tid that thread `tid` (as we count) has in its own namespace.
static int own_tid(const struct pystack *ps, pid_t tid, uint32_t *ret)
{
    char dir[64];
    *ret = (uint32_t)tid;
    if (!ps->is_nested)
        return 0;
    snprintf(dir, sizeof(dir), "/proc/%d/task/%d", (int)ps->tgid, (int)tid);
    *ret = (uint32_t)proc_inner_pid(dir);
    return *ret ? 0 : -ENOENT;
}

static int search_tasks(const struct pystack *ps, uint32_t own, pid_t *ret)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)ps->tgid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return -ESRCH;
    struct dirent *entry;
    int code = -ENOENT;
    for (unsigned i = 0; i < TASKS_MAX && code < 0 && (entry = readdir(tasks)) != NULL; i++) {
        uint32_t found = 0;
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid <= 0 || own_tid(ps, tid, &found) < 0 || found != own)
            continue;
        *ret = tid;
        code = 0;
    }
    closedir(tasks);
    return code;
}

// And back. The last answers are kept and tried first: a search reads a file a thread, some 10 us
// each.
static int host_tid(struct pystack *ps, uint32_t own, pid_t *ret)
{
    pid_t *known = &ps->host_tids[own % HOST_TIDS];
    uint32_t found = 0;
    *ret = (pid_t)own;
    if (!ps->is_nested)
        return 0;
    if (*known == 0 || own_tid(ps, *known, &found) < 0 || found != own) {
        int code = search_tasks(ps, own, known);
        if (code < 0)
            return code;
    }
    *ret = *known;
    return 0;
}

// Whether the memory that was opened still belongs to a process.
static bool is_alive(const struct pystack *ps)
{
    char byte;
    return pread(ps->mem_fd, &byte, 1, (off_t)ps->interpreter.runtime) == 1;
}

static int fail(const struct pystack *ps, int code, struct error *err)
{
    if (code != -EPERM && code != -ENOENT && !is_alive(ps))
        code = -ESRCH;
    if (!err)
        return code;
    if (code == -ESRCH)
        return error_set(
                err, code, "process %d is gone, or runs another program now", (int)ps->tgid);
    if (code == -EPERM)
        return error_set(err, code, "may not read the memory of process %d", (int)ps->tgid);
    if (code == -ENOENT)
        return error_set(err, code, "process %d has no such Python thread", (int)ps->tgid);
    return error_set(err, -EIO, "failed to read the memory of process %d: %s", (int)ps->tgid,
            strerror(-code));
}

static int open_files(struct pystack *ps, struct error *err)
{
    char path[64];
    pid_t outer, own;
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)ps->tgid);
    ps->mem_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (ps->mem_fd < 0 && (errno == EACCES || errno == EPERM))
        return error_set(err, -EPERM,
                "may not read the memory of process %d: it takes CAP_SYS_PTRACE, or "
                "the same user and no limit by ptrace_scope",
                (int)ps->tgid);
    if (ps->mem_fd < 0)
        return error_set(err, -ESRCH, "there is no process %d: %s", (int)ps->tgid, strerror(errno));
    snprintf(path, sizeof(path), "/proc/%d", (int)ps->tgid);
    int depth = proc_pids(path, &outer, &own);
    ps->is_nested = depth > 1;
    if (!depth)
        return error_set(err, -ESRCH, "process %d is gone", (int)ps->tgid);
    return 0;
}

// The table's layout, or what a 3.13 or later says of itself.
static int choose_layout(
        struct pystack *ps, struct memory *memory, struct layout *ret, struct error *err)
{
    uint8_t published[LAYOUT_PUBLISHED_SIZE];
    const struct interpreter *interpreter = &ps->interpreter;
    if (interpreter->minor < 13) {
        const struct layout *table = layout_of(interpreter->minor);
        if (!table)
            return error_set(
                    err, -ENOTSUP, "no table of the structures of Python %s", interpreter->version);
        *ret = *table;
        return 0;
    }
    int code = memory_read(memory, interpreter->runtime, published, sizeof(published));
    if (code < 0)
        return error_set(err, code == -EFAULT ? -EIO : code,
                "failed to read the state of the Python of process %d", (int)ps->tgid);
    return layout_from_published(published, sizeof(published), interpreter->minor, ret, err);
}

static int open_target(struct pystack *ps, struct error *err)
{
    struct memory memory;
    struct layout layout;
    if (memory_init(&memory, memory_read_process, &ps->tgid) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    int code = interpreter_find(ps->tgid, &memory, &ps->interpreter, err);
    if (code == 0)
        code = choose_layout(ps, &memory, &layout, err);
    memory_clear(&memory);
    if (code < 0)
        return code;
    code = target_init(
            &ps->target, &layout, ps->interpreter.runtime, memory_read_process, &ps->tgid);
    if (code < 0)
        return error_set(err, code, "out of memory");
    ps->target.codes.code_type = ps->interpreter.code_type;
    ps->target.codes.string_type = ps->interpreter.string_type;
    ps->target.codes.bytes_type = ps->interpreter.bytes_type;
    code = target_check(&ps->target, err);
    if (code == -ENOENT || code == -ENOTSUP)
        error_prefix(err, "process %d", (int)ps->tgid);
    else if (code < 0)
        code = fail(ps, code, err);
    return code;
}

int pystack_open(pid_t tgid, struct pystack **ret, struct error *err)
{
    struct pystack *ps = calloc(1, sizeof(*ps));
    if (!ps)
        return error_set(err, -ENOMEM, "out of memory");
    ps->tgid = tgid;
    ps->mem_fd = -1;
    int code = open_files(ps, err);
    if (code == 0)
        code = open_target(ps, err);
    if (code == 0 && !is_alive(ps))
        code = error_set(
                err, -ESRCH, "process %d ended, or began another program, meanwhile", (int)tgid);
    if (code < 0) {
        pystack_close(ps);
        return code;
    }
    *ret = ps;
    return 0;
}

void pystack_close(struct pystack *ps)
{
    if (!ps)
        return;
    target_clear(&ps->target);
    if (ps->mem_fd >= 0)
        close(ps->mem_fd);
    free(ps);
}

const char *pystack_version(const struct pystack *ps)
{
    return ps->interpreter.version;
}

static int walk(struct pystack *ps, pid_t tid, struct pystack_frame *frames, size_t max,
        size_t *ret_count, unsigned *flags)
{
    struct target *target = &ps->target;
    struct target_thread thread;
    bool collecting;
    uint64_t holder = 0;
    uint32_t own = 0;
    memory_refresh(&target->memory);
    int code = own_tid(ps, tid, &own);
    if (code == 0)
        code = target_thread_find(target, own, &thread);
    if (code < 0)
        return code;
    if (target_gil_holder(target, thread.interpreter, &holder) == 0 && holder == thread.address)
        *flags |= PYSTACK_HAS_GIL;
    if (target_collecting(target, thread.interpreter, &collecting) == 0 && collecting)
        *flags |= PYSTACK_IN_GC;
    return target_walk(target, &thread, frames, max, ret_count, flags);
}

int pystack_walk(struct pystack *ps, pid_t tid, struct pystack_frame *frames, size_t max,
        size_t *ret_count, unsigned *ret_flags, struct error *err)
{
    unsigned flags = 0;
    size_t count = 0;
    int code = walk(ps, tid, frames, max, &count, &flags);
    if ((code == 0 || code == -ENOENT) && !is_alive(ps))
        code = -ESRCH;
    if (code < 0)
        return fail(ps, code, err);
    ps->stats.walks++;
    *ret_count = count;
    if (ret_flags)
        *ret_flags = flags;
    return 0;
}

const struct layout *pystack_layout(const struct pystack *ps, uint64_t *ret_runtime)
{
    *ret_runtime = ps->interpreter.runtime;
    return &ps->target.layout;
}

void pystack_name(struct pystack *ps, const struct pystack_place *places, size_t count, bool read,
        struct pystack_frame *frames)
{
    target_name(&ps->target, places, count, read && is_alive(ps), frames);
}

bool pystack_refresh(struct pystack *ps, bool all)
{
    return code_cache_refresh(&ps->target.codes, all && is_alive(ps));
}

int pystack_host_tid(struct pystack *ps, uint32_t own, pid_t *ret_tid)
{
    return host_tid(ps, own, ret_tid);
}

int pystack_gil_holder(struct pystack *ps, pid_t *ret_tid, struct error *err)
{
    struct target *target = &ps->target;
    struct target_thread thread;
    uint64_t interpreter = 0, holder = 0;
    pid_t tid = 0;
    memory_refresh(&target->memory);
    int code = target_main_interpreter(target, &interpreter);
    if (code == 0)
        code = target_gil_holder(target, interpreter, &holder);
    if (code == 0 && holder) {
        code = target_thread_read(target, holder, &thread);
        if (code == 0)
            code = host_tid(ps, target_thread_tid(target, &thread), &tid);
    }
    if (code == 0 && !is_alive(ps))
        code = -ESRCH;
    if (code < 0)
        return fail(ps, code, err);
    *ret_tid = tid;
    return 0;
}

void pystack_stats_read(const struct pystack *ps, struct pystack_stats *ret)
{
    *ret = ps->stats;
    ret->reads = ps->target.memory.reads;
}
