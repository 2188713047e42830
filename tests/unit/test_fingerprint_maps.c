// SPDX-License-Identifier: Apache-2.0
// The parser of /proc/PID/maps on lines that real kernels write: blanks and newlines in paths,
// files that are gone, anonymous code, the kernel's own areas, and lines that no kernel writes.
#include "harness/fingerprint/maps.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

static struct maps parse(const char *text)
{
    struct maps maps;
    char *copy = xstrdup(text);
    maps_parse(copy, &maps);
    free(copy);
    return maps;
}

static const struct mapped_file *find(const struct maps *maps, const char *path)
{
    for (size_t i = 0; i < maps->file_count; i++)
        if (!strcmp(maps->files[i].path, path))
            return &maps->files[i];
    return NULL;
}

TEST(one_file_of_many_mappings)
{
    struct maps maps = parse("7f0000000000-7f0000001000 r--p 00000000 08:01 42                     "
                             "    /usr/lib/libm.so.6\n"
                             "7f0000001000-7f0000002000 r-xp 00001000 08:01 42                     "
                             "    /usr/lib/libm.so.6\n"
                             "7f0000002000-7f0000003000 ---p 00000000 00:00 0 \n"
                             "7f0000003000-7f0000004000 rw-p 00002000 08:01 42                     "
                             "    /usr/lib/libm.so.6\n");
    CHECK_INT(maps.file_count, 1);
    CHECK_STR(maps.files[0].path, "/usr/lib/libm.so.6");
    CHECK_INT(maps.files[0].inode, 42);
    CHECK(maps.files[0].executable);
    CHECK(!maps.files[0].deleted);
    CHECK_INT(maps.files[0].start, 0x7f0000000000);
    CHECK_INT(maps.files[0].end, 0x7f0000001000);
    maps_free(&maps);
}

TEST(mappings_far_apart_are_one_file)
{
    struct strbuf text = {0};
    for (int i = 0; i < 40; i++)
        strbuf_add(&text, "7f%08x000-7f%08x000 r--p 00000000 08:01 %d /lib/%c.so\n", 2 * i,
                2 * i + 1, i % 8 + 1, "abcdefgh"[i % 8]);
    struct maps maps = parse(text.text);
    CHECK_INT(maps.file_count, 8);
    CHECK_STR(maps.files[0].path, "/lib/a.so");
    CHECK_STR(maps.files[7].path, "/lib/h.so");
    maps_free(&maps);
    strbuf_free(&text);
}

TEST(paths_with_blanks_and_newlines)
{
    struct maps maps = parse("1000-2000 r-xp 00000000 08:01 5    /opt/my libs/lib a.so\n"
                             "2000-3000 r-xp 00000000 08:01 6    /opt/two\\012lines.so\n");
    CHECK_INT(maps.file_count, 2);
    CHECK(find(&maps, "/opt/my libs/lib a.so") != NULL);
    CHECK(find(&maps, "/opt/two\nlines.so") != NULL);
    maps_free(&maps);
}

TEST(deleted_files)
{
    struct maps maps = parse("1000-2000 r-xp 00000000 08:01 5    /opt/lib.so (deleted)\n"
                             "2000-3000 r-xp 00000000 08:01 6    /opt/lib.so\n"
                             "3000-4000 rw-s 00000000 00:01 7    /dev/zero (deleted)\n");
    CHECK_INT(maps.file_count, 3); // the old and the new file of one path are two
    const struct mapped_file *gone = &maps.files[1];
    CHECK_STR(gone->path, "/opt/lib.so");
    CHECK_INT(gone->inode, 5);
    CHECK(gone->deleted);
    CHECK(!maps.files[2].deleted);
    maps_free(&maps);
}

TEST(memory_files_and_anonymous_code)
{
    struct maps maps = parse("1000-2000 r-xp 00000000 00:01 1029  /memfd:jit (deleted)\n"
                             "2000-3000 r-xp 00000000 00:00 0 \n"
                             "3000-4000 rwxp 00000000 00:00 0 \n"
                             "4000-5000 rw-p 00000000 00:00 0 \n");
    CHECK_INT(maps.file_count, 1);
    CHECK_STR(maps.files[0].path, "/memfd:jit");
    CHECK(maps.files[0].deleted);
    CHECK_INT(maps.anonymous_exec_count, 2);
    maps_free(&maps);
}

TEST(areas_of_the_kernel_are_no_files)
{
    struct maps maps =
            parse("1000-2000 r-xp 00000000 00:00 0    [vdso]\n"
                  "2000-3000 r--p 00000000 00:00 0    [vvar]\n"
                  "3000-4000 rw-p 00000000 00:00 0    [heap]\n"
                  "4000-5000 rw-p 00000000 00:00 0    [anon:.bss]\n"
                  "5000-6000 rw-s 00000000 00:0e 99   anon_inode:[perf_event]\n"
                  "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0    [vsyscall]\n");
    CHECK_INT(maps.file_count, 0);
    CHECK_INT(maps.anonymous_exec_count, 0);
    CHECK_INT(maps.malformed_count, 0);
    maps_free(&maps);
}

TEST(malformed_lines_are_counted)
{
    struct maps maps = parse("hello\n"
                             "1000-2000\n"
                             "zz-2000 r-xp 00000000 08:01 5    /a.so\n"
                             "1000-2000 r-xp 00000000 08:01 5    /b.so");
    CHECK_INT(maps.malformed_count, 3);
    CHECK_INT(maps.file_count, 1); // the last line ends without a newline
    CHECK_STR(maps.files[0].path, "/b.so");
    maps_free(&maps);
    maps = parse("");
    CHECK_INT(maps.file_count, 0);
    maps_free(&maps);
}

TEST(own_map_has_our_program)
{
    struct maps maps;
    struct error err = {0};
    char exe[4096];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    CHECK(length > 0);
    exe[length > 0 ? length : 0] = '\0';
    CHECK_INT(maps_read("/proc/self", &maps, &err), 0);
    CHECK(find(&maps, exe) != NULL);
    CHECK_INT(maps.malformed_count, 0);
    maps_free(&maps);
}

TEST(a_zombie_is_gone)
{
    struct maps maps;
    struct error err = {0};
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    CHECK_INT(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    char *dir = xasprintf("/proc/%d", (int)pid);
    CHECK_INT(maps_read(dir, &maps, &err), -ESRCH);
    CHECK_CONTAINS(err.text, "has ended");
    waitpid(pid, NULL, 0);
    CHECK_INT(maps_read(dir, &maps, &err), -ESRCH);
    free(dir);
}
