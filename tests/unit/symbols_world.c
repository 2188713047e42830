// SPDX-License-Identifier: Apache-2.0
// See symbols_world.h. Anything that fails here is a failure of the test machine, and aborts the
// case.
#include "tests/unit/symbols_world.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"
#include "tracer/symbols/elf_reader.h"

enum { WORLD_SKIP = 77 };

static char world_root[PATH_MAX];
static pid_t world_owner;

static void world_need(bool good, const char *what)
{
    if (good)
        return;
    printf("    the test machine failed: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int world_remove_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status, (void)kind, (void)at;
    return remove(path) ? 0 : 0;
}

static void world_remove(void)
{
    if (getpid() == world_owner)
        nftw(world_root, world_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

const char *world_path(const char *fmt, ...)
{
    static char paths[256][PATH_MAX];
    static unsigned next;
    if (!*world_root) {
        const char *base = getenv("TMPDIR");
        snprintf(world_root, sizeof(world_root), "%s/upgate-symbols-XXXXXX", base ? base : "/tmp");
        world_need(mkdtemp(world_root), "mkdtemp");
        world_owner = getpid();
        atexit(world_remove);
    }
    char *path = paths[next++ % 256];
    va_list args;
    va_start(args, fmt);
    int len = snprintf(path, PATH_MAX, "%s/", world_root);
    vsnprintf(path + len, (size_t)(PATH_MAX - len), fmt, args);
    va_end(args);
    return path;
}

void world_directory(const char *path)
{
    char part[PATH_MAX];
    for (const char *at = path + 1;; at++) {
        if (*at && *at != '/')
            continue;
        snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
        world_need(!mkdir(part, 0755) || errno == EEXIST, part);
        if (!*at)
            return;
    }
}

void world_write(const char *path, const char *fmt, ...)
{
    char *directory = xstrdup(path);
    *strrchr(directory, '/') = '\0';
    world_directory(directory);
    free(directory);
    FILE *file = fopen(path, "we");
    world_need(file, path);
    va_list args;
    va_start(args, fmt);
    vfprintf(file, fmt, args);
    va_end(args);
    world_need(!fclose(file), path);
}

void world_append(const char *path, const char *text)
{
    FILE *file = fopen(path, "ae");
    world_need(file, path);
    fputs(text, file);
    world_need(!fclose(file), path);
}

void world_copy(const char *from, const char *to)
{
    size_t len = 0;
    char *bytes = string_read_file(from, 64 << 20, &len);
    world_need(bytes, from);
    FILE *file = fopen(to, "we");
    world_need(file && fwrite(bytes, 1, len, file) == len && !fclose(file), to);
    free(bytes);
}

struct world_process world_start(const char *program, const char *library, bool (*before)(void))
{
    int in[2], out[2];
    struct world_process process = {0};
    world_need(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC), "pipe");
    process.pid = fork();
    world_need(process.pid >= 0, "fork");
    if (!process.pid) {
        if (before && !before())
            _exit(WORLD_SKIP);
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl(program, program, library, (char *)NULL);
        _exit(2);
    }
    close(in[0]);
    close(out[1]);
    process.stdin_fd = in[1];
    FILE *lines = fdopen(out[0], "r");
    uint64_t *const fields[] = {&process.local, &process.libc, &process.page};
    bool good = lines;
    for (int i = 0; good && i < 3 + FIXTURE_COUNT; i++) {
        char line[64];
        good = fgets(line, sizeof(line), lines);
        uint64_t *field = i < 3 ? fields[i] : &process.library[i - 3];
        *field = good ? strtoull(line, NULL, 16) : 0;
    }
    if (lines)
        fclose(lines);
    if (!good) {
        int status = 0;
        waitpid(process.pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == WORLD_SKIP)
            runner_skip("this machine does not allow a mount namespace");
        world_need(false, "the fixture process gave no addresses");
    }
    return process;
}

void world_end(struct world_process *process)
{
    int status;
    close(process->stdin_fd);
    waitpid(process->pid, &status, 0);
}

static struct elf_segment world_segment(const char *library)
{
    struct elf_image image = {0};
    int fd = open(library, O_RDONLY | O_CLOEXEC);
    world_need(fd >= 0 && !elf_image_read(fd, &image), library);
    close(fd);
    return image.segments[0];
}

uint64_t world_library_address(const char *library, int which)
{
    Dl_info info = {0};
    void *handle = dlopen(library, RTLD_NOW);
    void *(*address)(int) = handle ? (void *(*)(int))dlsym(handle, "fixture_address") : NULL;
    world_need(address && dladdr((void *)address, &info), library);
    return (uint64_t)((char *)address(which) - (char *)info.dli_fbase);
}

uint64_t world_fake_address(const struct world_fake *fake, int which)
{
    struct elf_segment segment = world_segment(fake->library);
    uint64_t offset = world_library_address(fake->library, which) - segment.address;
    return fake->base + (segment.offset & 4095) + offset;
}

void world_fake(const struct world_fake *fake)
{
    struct elf_segment segment = world_segment(fake->library);
    uint64_t from = segment.offset & ~(uint64_t)4095;
    uint64_t to = (segment.offset + segment.file_bytes + 4095) & ~(uint64_t)4095;
    world_write(world_path("proc/%d/stat", fake->pid),
            "%d (a ) b) %c 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %llu 4096 1 "
            "18446744073709551615 4194304 4194999 %llu 0 0\n",
            fake->pid, fake->state ? fake->state : 'S', (unsigned long long)fake->start,
            (unsigned long long)fake->stack);
    // The last inode is one that no file has: it must not matter while the process lives.
    world_write(world_path("proc/%d/maps", fake->pid),
            "00400000-00401000 r--p 00000000 08:01 11 /nowhere/else\n"
            "%llx-%llx r-xp %08llx 08:01 4294967295    %s\n"
            "7ffff0000000-7ffff0001000 rw-p 00000000 00:00 0    [stack]\n",
            (unsigned long long)fake->base, (unsigned long long)(fake->base + to - from),
            (unsigned long long)from, fake->library);
    const char *root = world_path("proc/%d/root", fake->pid);
    world_need(!symlink("/", root) || errno == EEXIST, root);
}

void world_fake_gone(pid_t pid)
{
    static const char *const names[] = {"stat", "maps", "root", "status", ""};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        remove(world_path("proc/%d/%s", (int)pid, names[i]));
}

struct symbols *world_symbols(struct symbols_opts opts)
{
    struct symbols *symbols = NULL;
    struct error err = {0};
    if (!opts.recheck_ns)
        opts.recheck_ns = 1;
    if (symbols_new(&opts, &symbols, &err)) {
        printf("    %s\n", err.text);
        exit(1);
    }
    return symbols;
}
