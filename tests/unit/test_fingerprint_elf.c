// SPDX-License-Identifier: Apache-2.0
// The ELF reader against readelf on real files, and on files that are cut off, damaged, or none at
// all.
#include "harness/fingerprint/elf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

#if defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "x86_64-linux-gnu"
#endif

static int read_facts(
        const char *path, const char *prefix, struct elf_facts *facts, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    int code = elf_facts_read(fd, prefix, facts, err);
    close(fd);
    return code;
}

// Our own program; "/proc/self/exe" would be readelf to readelf.
static const char *own_path(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = '\0';
    return path;
}

static char *readelf_build_id(const char *path)
{
    char *command =
            xasprintf("readelf -n '%s' 2>/dev/null | sed -n 's/.*Build ID: //p' | head -1", path);
    char line[256] = "";
    FILE *pipe = popen(command, "r");
    if (pipe && !fgets(line, sizeof(line), pipe))
        line[0] = '\0';
    if (pipe)
        pclose(pipe);
    free(command);
    line[strcspn(line, "\n")] = '\0';
    return xstrdup(line);
}

// A writable copy of the first `bytes` bytes of the file at `path`.
static int copy_of(const char *path, size_t bytes)
{
    char name[] = "/tmp/test_fingerprint_elf.XXXXXX";
    int fd = mkstemp(name);
    size_t length = 0;
    char *content = string_read_file(path, bytes, &length);
    CHECK(fd >= 0 && content != NULL);
    unlink(name);
    CHECK_INT(write(fd, content, length), length);
    free(content);
    return fd;
}

TEST(build_id_is_what_readelf_says)
{
    const char *const files[] = {own_path(), "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/aarch64-linux-gnu/libc.so.6", "/usr/bin/python3.11", "/lib/ld-linux-aarch64.so.1",
            "/lib64/ld-linux-x86-64.so.2"};
    int compared = 0;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct elf_facts facts;
        struct error err = {0};
        if (access(files[i], R_OK))
            continue;
        char *want = readelf_build_id(files[i]);
        if (*want) {
            CHECK_INT(read_facts(files[i], NULL, &facts, &err), 0);
            CHECK_STR(facts.build_id, want);
            elf_facts_clear(&facts);
            compared++;
        }
        free(want);
    }
    if (!compared)
        runner_skip("readelf is not installed, or finds no build-id");
}

TEST(c_library_tells_its_version_and_soname)
{
    const char *path = "/lib/" MULTIARCH "/libc.so.6";
    if (access(path, R_OK))
        runner_skip("no libc.so.6 where Debian and Ubuntu keep it");
    struct elf_facts facts;
    struct error err = {0};
    CHECK_INT(read_facts(path, "stable release version ", &facts, &err), 0);
    CHECK_STR(facts.soname, "libc.so.6");
    char want[32];
    snprintf(want, sizeof(want), "%d.%d", __GLIBC__, __GLIBC_MINOR__);
    CHECK_STR(facts.version, want);
    elf_facts_clear(&facts);
    CHECK_INT(read_facts(path, "@GLIBC_", &facts, &err), 0);
    char *highest = xasprintf("GLIBC_%s", want);
    CHECK_STR(facts.version, highest); // every release of glibc so far has added a version
    free(highest);
    elf_facts_clear(&facts);
}

TEST(no_build_id_is_null)
{
    struct elf_facts facts;
    struct error err = {0};
    CHECK_INT(read_facts(FIXTURE_PLAIN, "fixture version ", &facts, &err), 0);
    CHECK(facts.build_id == NULL);
    CHECK_STR(facts.soname, "libfixture.so.3");
    CHECK_STR(facts.version, "4.5.6-rc1"); // not the text that has no digit behind the prefix
    CHECK(facts.compiler != NULL);
    CHECK(facts.size_bytes > 1000);
    elf_facts_clear(&facts);
    CHECK_INT(read_facts(FIXTURE_PLAIN, "no such text ", &facts, &err), 0);
    CHECK(facts.version == NULL);
    elf_facts_clear(&facts);
    CHECK_INT(read_facts(FIXTURE_PLAIN, "@NO_SUCH_", &facts, &err), 0);
    CHECK(facts.version == NULL);
    elf_facts_clear(&facts);
}

TEST(truncated_file_keeps_its_build_id)
{
    // Program headers and their notes stand in front, so the build-id survives a cut; sections do
    // not.
    char *want = readelf_build_id(own_path());
    int fd = copy_of("/proc/self/exe", 8192);
    struct elf_facts facts;
    struct error err = {0};
    CHECK_INT(elf_facts_read(fd, NULL, &facts, &err), -EBADMSG);
    CHECK_CONTAINS(err.text, "cut off or damaged");
    CHECK_INT(facts.size_bytes, 8192);
    if (*want)
        CHECK_STR(facts.build_id, want);
    elf_facts_clear(&facts);
    free(want);
    close(fd);
}

TEST(every_cut_and_every_broken_byte_of_the_head_is_survived)
{
    // No crash and no endless loop is the point; the answer may be an error or an odd success.
    int survived = 0;
    for (size_t length = 1; length < 1200; length += 37, survived++) {
        int fd = copy_of(FIXTURE_PLAIN, length);
        struct elf_facts facts;
        int code = elf_facts_read(fd, "fixture version ", &facts, NULL);
        CHECK(code == -EBADMSG || (length < 4 && code == -ENOEXEC));
        elf_facts_clear(&facts);
        close(fd);
    }
    for (off_t at = 4; at < 640; at++, survived++) {
        int fd = copy_of(FIXTURE_PLAIN, 1 << 20);
        struct elf_facts facts;
        CHECK_INT(pwrite(fd, "\xff", 1, at), 1);
        int code = elf_facts_read(fd, "fixture version ", &facts, NULL);
        CHECK(code == 0 || code == -EBADMSG);
        elf_facts_clear(&facts);
        close(fd);
    }
    CHECK(survived > 600);
}

TEST(other_files_are_no_elf)
{
    struct elf_facts facts;
    struct error err = {0};
    CHECK_INT(read_facts("/proc/self/status", NULL, &facts, &err), -ENOEXEC);
    elf_facts_clear(&facts);
    int fd = copy_of("/dev/null", 1);
    CHECK_INT(elf_facts_read(fd, NULL, &facts, &err), -ENOEXEC);
    CHECK_INT(facts.size_bytes, 0);
    elf_facts_clear(&facts);
    close(fd);
}
