// SPDX-License-Identifier: Apache-2.0
// Naming addresses of real processes: this one and fixture programs whose addresses are known.
#include "common/target/file.h"
#include "tests/unit/runner.h"
#include "tests/unit/symbols_world.h"
#include "tracer/symbols/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static __attribute__((noinline)) int own_function(int x)
{
    __asm__ volatile("");
    return x + 1;
}

static struct symbol look(struct symbols *symbols, pid_t pid, uint64_t ip)
{
    struct symbol symbol;
    symbols_process_lookup_at(symbols, pid, 0, UINT64_MAX, ip, &symbol);
    return symbol;
}

TEST(own_functions_have_names)
{
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    struct symbol symbol = look(symbols, getpid(), (uint64_t)(uintptr_t)own_function + 1);
    CHECK(symbol.known);
    CHECK_STR(symbol.name, "own_function");
    CHECK_STR(symbol.module, "test_symbols");
    CHECK_INT(symbol.offset, 1);
    symbols_free(symbols);
}

static void check_fixture(
        struct symbols *symbols, const struct world_process *process, const char *module)
{
    struct symbol symbol = look(symbols, process->pid, process->local);
    CHECK_STR(symbol.name, "process_local");
    symbol = look(symbols, process->pid, process->libc);
    CHECK_STR(symbol.name, "getppid");
    CHECK_CONTAINS(symbol.module, "libc");
    symbol = look(symbols, process->pid, process->library[FIXTURE_EXPORTED] + 2);
    CHECK_STR(symbol.name, "fixture_exported");
    CHECK_STR(symbol.module, module);
    CHECK_STR(symbol.build_id, SYMBOLS_BUILD_ID);
    CHECK_INT(symbol.offset, 2);
    CHECK(symbol.known);
}

TEST(pie_and_nopie_programs_have_names)
{
    static const char *const programs[] = {SYMBOLS_PIE, SYMBOLS_NOPIE};
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    for (int i = 0; i < 2; i++) {
        struct world_process process = world_start(programs[i], SYMBOLS_WHOLE, NULL);
        check_fixture(symbols, &process, "libsymbols_fixture_whole.so");
        struct symbol symbol = look(symbols, process.pid, process.library[FIXTURE_HIDDEN]);
        CHECK_STR(symbol.name, "fixture_hidden");
        symbol = look(symbols, process.pid, process.library[FIXTURE_CLONE]);
        CHECK_STR(symbol.name, "fixture_clone"); // not .constprop.0
        symbol = look(symbols, process.pid, process.library[FIXTURE_CXX]);
        CHECK_STR(symbol.name,
                SYMBOLS_DEMANGLE ? "fixture::plane<float>::lift" : "_ZN7fixture5planeIfE4liftEi");
        world_end(&process);
    }
    symbols_free(symbols);
}

TEST(stripped_library_has_exported_names_only)
{
    char want[128];
    struct symbols *symbols =
            world_symbols((struct symbols_opts){.debug_path = world_path("debug")});
    struct world_process process = world_start(SYMBOLS_PIE, SYMBOLS_STRIPPED, NULL);
    check_fixture(symbols, &process, "libsymbols_fixture_stripped.so");
    struct symbol symbol = look(symbols, process.pid, process.library[FIXTURE_HIDDEN]);
    snprintf(want, sizeof(want), "libsymbols_fixture_stripped.so+0x%llx",
            (unsigned long long)world_library_address(SYMBOLS_STRIPPED, FIXTURE_HIDDEN));
    CHECK(!symbol.known);
    CHECK_STR(symbol.name, want);
    CHECK_STR(symbol.module, "libsymbols_fixture_stripped.so");
    CHECK_STR(symbol.build_id, SYMBOLS_BUILD_ID);
    world_end(&process);
    symbols_free(symbols);
}

TEST(debug_file_by_build_id_names_the_rest)
{
    world_directory(world_path("debug/.build-id/fe"));
    world_copy(SYMBOLS_WHOLE, world_path("debug/.build-id/fe/%s.debug", &SYMBOLS_BUILD_ID[2]));
    struct symbols *symbols =
            world_symbols((struct symbols_opts){.debug_path = world_path("debug")});
    struct world_process process = world_start(SYMBOLS_PIE, SYMBOLS_STRIPPED, NULL);
    CHECK_STR(look(symbols, process.pid, process.library[FIXTURE_HIDDEN]).name, "fixture_hidden");
    check_fixture(symbols, &process, "libsymbols_fixture_stripped.so");
    world_end(&process);
    symbols_free(symbols);
}

TEST(debug_file_by_link_names_the_rest)
{
    char command[4096];
    const char *library = world_path("lib/libcopy.so");
    const char *debug = world_path("lib/.debug/libfixture.debug");
    world_directory(world_path("lib/.debug"));
    world_copy(SYMBOLS_WHOLE, debug);
    snprintf(command, sizeof(command), "objcopy --add-gnu-debuglink='%s' '%s' '%s' 2>/dev/null",
            debug, SYMBOLS_STRIPPED, library);
    if (system(command))
        runner_skip("objcopy is needed to make the file");
    struct symbols *symbols =
            world_symbols((struct symbols_opts){.debug_path = world_path("debug")});
    struct world_process process = world_start(SYMBOLS_PIE, library, NULL);
    CHECK_STR(look(symbols, process.pid, process.library[FIXTURE_HIDDEN]).name, "fixture_hidden");
    world_end(&process);
    symbols_free(symbols);
}

TEST(debug_file_of_another_build_is_not_believed)
{
    world_directory(world_path("debug/.build-id/fe"));
    world_copy(SYMBOLS_PIE, world_path("debug/.build-id/fe/%s.debug", &SYMBOLS_BUILD_ID[2]));
    struct symbols *symbols =
            world_symbols((struct symbols_opts){.debug_path = world_path("debug")});
    struct world_process process = world_start(SYMBOLS_PIE, SYMBOLS_STRIPPED, NULL);
    CHECK(!look(symbols, process.pid, process.library[FIXTURE_HIDDEN]).known);
    CHECK(look(symbols, process.pid, process.library[FIXTURE_EXPORTED]).known);
    world_end(&process);
    symbols_free(symbols);
}

TEST(compressed_symbols_name_the_rest)
{
    char command[4096];
    const char *library = world_path("libmini.so"), *data = world_path("mini.xz");
    if (!SYMBOLS_LZMA)
        runner_skip("built without liblzma");
    snprintf(command, sizeof(command),
            "xz -c '%s' >'%s' 2>/dev/null && objcopy --add-section .gnu_debugdata='%s' '%s' '%s'",
            SYMBOLS_WHOLE, data, data, SYMBOLS_STRIPPED, library);
    if (system(command))
        runner_skip("xz and objcopy are needed to make the file");
    struct symbols *symbols =
            world_symbols((struct symbols_opts){.debug_path = world_path("debug")});
    struct world_process process = world_start(SYMBOLS_PIE, library, NULL);
    CHECK_STR(look(symbols, process.pid, process.library[FIXTURE_HIDDEN]).name, "fixture_hidden");
    CHECK_STR(
            look(symbols, process.pid, process.library[FIXTURE_EXPORTED]).name, "fixture_exported");
    world_end(&process);
    symbols_free(symbols);
}

// Root in a container often may not.
static bool map_files_open(void)
{
    bool good = false;
    DIR *directory = opendir("/proc/self/map_files");
    for (struct dirent *entry; directory && !good && (entry = readdir(directory));) {
        int fd = *entry->d_name == '.' ? -1 : openat(dirfd(directory), entry->d_name, O_RDONLY);
        good = fd >= 0;
        if (good)
            close(fd);
    }
    if (directory)
        closedir(directory);
    return good;
}

// To ask for the mapping takes the lock of the target's memory map.
TEST(a_mapped_file_is_opened_by_its_path_first)
{
    const char *proc = world_path("proc"), *library = world_path("libown.so"),
               *decoy = world_path("libdecoy.so");
    struct stat own, other, got;
    world_copy(SYMBOLS_WHOLE, library);
    world_copy(SYMBOLS_PIE, decoy);
    world_directory(world_path("proc/7/map_files"));
    CHECK(stat(library, &own) == 0 && stat(decoy, &other) == 0);
    CHECK(symlink("/", world_path("proc/7/root")) == 0 &&
            symlink(decoy, world_path("proc/7/map_files/1000-2000")) == 0);
    struct mapping mapping = {.start = 0x1000,
            .end = 0x2000,
            .path = library,
            .device = own.st_dev,
            .inode = own.st_ino};
    int fd = proc_open_mapping(proc, 7, false, 0, &mapping);
    CHECK(fd >= 0 && target_file_status(fd, &got) == 0);
    CHECK_INT(got.st_ino, own.st_ino);
    close(fd);
    mapping.inode = other.st_ino; // the path leads to another file: then it is asked for
    fd = proc_open_mapping(proc, 7, false, 0, &mapping);
    CHECK(fd >= 0 && target_file_status(fd, &got) == 0);
    CHECK_INT(got.st_ino, other.st_ino);
    close(fd);
}

TEST(deleted_file_still_has_names)
{
    const char *library = world_path("libgone.so");
    if (!map_files_open())
        runner_skip("deleted files are reached through map_files, which needs CAP_SYS_ADMIN");
    world_copy(SYMBOLS_WHOLE, library);
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    struct world_process process = world_start(SYMBOLS_PIE, library, NULL);
    unlink(library);
    struct symbol symbol = look(symbols, process.pid, process.library[FIXTURE_HIDDEN]);
    CHECK_STR(symbol.module, "libgone.so"); // without " (deleted)"
    CHECK_STR(symbol.name, "fixture_hidden");
    world_end(&process);
    symbols_free(symbols);
}

TEST(replaced_file_does_not_lend_its_names)
{
    const char *library = world_path("libnew.so");
    world_copy(SYMBOLS_WHOLE, library);
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    struct world_process process = world_start(SYMBOLS_PIE, library, NULL);
    unlink(library);
    world_copy(SYMBOLS_PIE, library); // as an upgrade under a running process does
    struct symbol symbol = look(symbols, process.pid, process.library[FIXTURE_HIDDEN]);
    CHECK(!symbol.known || !strcmp(symbol.name, "fixture_hidden"));
    CHECK_STR(symbol.module, "libnew.so");
    world_end(&process);
    symbols_free(symbols);
}

static const char *hidden_mount, *hidden_library;

static bool enter_mount_namespace(void)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("upgate", hidden_mount, "tmpfs", 0, NULL))
        return false;
    world_copy(SYMBOLS_WHOLE, hidden_library);
    return true;
}

TEST(another_mount_namespace_has_names)
{
    hidden_mount = world_path("mount");
    hidden_library = world_path("mount/libinside.so");
    world_directory(hidden_mount);
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    struct world_process process = world_start(SYMBOLS_PIE, hidden_library, enter_mount_namespace);
    CHECK_INT(access(hidden_library, F_OK), -1); // not there for us
    struct symbol symbol = look(symbols, process.pid, process.library[FIXTURE_HIDDEN]);
    CHECK_STR(symbol.name, "fixture_hidden");
    CHECK_STR(symbol.module, "libinside.so");
    world_end(&process);
    symbols_free(symbols);
}

// Field 22 of /proc/PID/stat; the test's processes have no blank in their names.
static uint64_t test_start(pid_t pid)
{
    char path[64];
    unsigned long long start = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file) {
        char word[64];
        for (int field = 1; field < 22; field++)
            CHECK_INT(fscanf(file, "%63s", word), 1);
        CHECK_INT(fscanf(file, "%llu", &start), 1);
        fclose(file);
    }
    return start;
}

TEST(ended_process_keeps_its_names_after_a_snapshot)
{
    struct error err = {0};
    struct symbol symbol;
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    const char *library = world_path("libsnap.so");
    world_copy(SYMBOLS_WHOLE, library);
    struct world_process process = world_start(SYMBOLS_PIE, library, NULL);
    CHECK_INT(symbols_process_snapshot(symbols, process.pid, NULL, &err), 0);
    uint64_t start = test_start(process.pid);
    CHECK(start > 0);
    world_end(&process);
    unlink(library);
    check_fixture(symbols, &process, "libsnap.so");
    symbols_process_lookup_at(
            symbols, process.pid, start, UINT64_MAX, process.library[FIXTURE_HIDDEN], &symbol);
    CHECK_STR(symbol.name, "fixture_hidden");
    symbols_process_lookup_at(symbols, process.pid, start + 1, UINT64_MAX, process.local, &symbol);
    CHECK(!symbol.known);
    CHECK_STR(symbol.module, "[ended]");
    symbols_free(symbols);
}

TEST(process_that_was_never_seen_is_an_error_in_words)
{
    struct error err = {0};
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    struct world_process process = world_start(SYMBOLS_PIE, SYMBOLS_WHOLE, NULL);
    world_end(&process);
    CHECK_INT(symbols_process_snapshot(symbols, process.pid, NULL, &err), -ESRCH);
    CHECK_CONTAINS(err.text, "it is gone");
    struct symbol symbol = look(symbols, process.pid, process.local);
    CHECK(!symbol.known);
    CHECK_STR(symbol.name, "[ended]");
    symbols_free(symbols);
}

TEST(vdso_has_names)
{
    bool found = false;
    uint64_t vdso = getauxval(AT_SYSINFO_EHDR);
    if (!vdso)
        runner_skip("no vdso here");
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    for (uint64_t at = vdso; at < vdso + 4096 && !found; at += 16) {
        struct symbol symbol = look(symbols, getpid(), at);
        CHECK_STR(symbol.module, "[vdso]");
        found = symbol.known && strstr(symbol.name, "clock_gettime");
    }
    CHECK(found);
    symbols_free(symbols);
}

TEST(code_without_file_or_map_is_jit_and_no_code_is_anon)
{
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    struct world_process process = world_start(SYMBOLS_PIE, SYMBOLS_WHOLE, NULL);
    if (!process.page)
        runner_skip("no executable anonymous memory allowed here");
    struct symbol symbol = look(symbols, process.pid, process.page + 8);
    CHECK(!symbol.known);
    CHECK_STR(symbol.name, "[jit]");
    CHECK_STR(look(symbols, process.pid, 16).name, "[anon]");
    CHECK_STR(look(symbols, process.pid, (uint64_t)(uintptr_t)&symbol).module, "[anon]");
    struct symbols_stats stats;
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.lookups, 3);
    CHECK_INT(stats.unknown, 3);
    CHECK_INT(stats.processes, 1);
    world_end(&process);
    symbols_free(symbols);
}

TEST(perf_map_names_generated_code)
{
    char map[64], line[128];
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    struct world_process process = world_start(SYMBOLS_PIE, SYMBOLS_WHOLE, NULL);
    if (!process.page)
        runner_skip("no executable anonymous memory allowed here");
    snprintf(map, sizeof(map), "/tmp/perf-%d.map", (int)process.pid);
    world_write(map, "%llx 40 py::train:/srv/train.py\n", (unsigned long long)process.page);
    struct symbol symbol = look(symbols, process.pid, process.page + 0x3f);
    CHECK_STR(symbol.name, "py::train:/srv/train.py");
    CHECK_STR(symbol.module, "[jit]");
    CHECK_INT(symbol.offset, 0x3f);
    CHECK(!look(symbols, process.pid, process.page + 0x40).known);
    snprintf(line, sizeof(line), "%llx 40 second function\n",
            (unsigned long long)process.page + 0x40);
    world_append(map, line); // the file grew
    CHECK_STR(look(symbols, process.pid, process.page + 0x41).name, "second function");
    CHECK_INT(symbols_process_snapshot(symbols, process.pid, NULL, NULL), 0);
    world_end(&process);
    unlink(map);
    CHECK_STR(look(symbols, process.pid, process.page).name, "py::train:/srv/train.py");
    symbols_free(symbols);
}
