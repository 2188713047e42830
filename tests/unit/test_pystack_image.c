// SPDX-License-Identifier: Apache-2.0
// Finding the interpreter: ELF symbols against the linker's own answer, files that are cut off or
// damaged, versions in names and in constants, and processes that are none of ours or no Python.
#include "tracer/pystack/image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"
#include "tracer/pystack/interpreter.h"
#include "tracer/pystack/memory.h"
#include "tracer/pystack/pystack.h"

int Py_test_marker = 42;
int Py_test_other = 43;
__attribute__((visibility("hidden"))) int Py_test_hidden = 44;

// A copy of our own program in memory, `bytes` long at most.
static int copy_of_self(size_t bytes)
{
    size_t len = 0;
    char *content = string_read_file("/proc/self/exe", bytes, &len);
    int fd = memfd_create("copy", MFD_CLOEXEC);
    CHECK(fd >= 0 && content != NULL);
    CHECK_INT(write(fd, content, len), len);
    free(content);
    return fd;
}

// Where the first mapping of our own program stands.
static void own_mapping(uint64_t *start, uint64_t *offset)
{
    char exe[4096], line[8192];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    CHECK(len > 0);
    exe[len > 0 ? len : 0] = '\0';
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof(line), maps)) {
        unsigned long long from, at;
        if (!strstr(line, exe) || sscanf(line, "%llx-%*x %*s %llx", &from, &at) != 2)
            continue;
        *start = from;
        *offset = at;
        break;
    }
    if (maps)
        fclose(maps);
}

TEST(symbols_stand_where_the_linker_put_them)
{
    struct image_symbol wanted[] = {
            {"Py_test_marker", 0}, {"Py_test_other", 0}, {"Py_test_missing", 0}};
    struct error err;
    uint64_t start = 0, offset = 1, bias = 0;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    own_mapping(&start, &offset);
    CHECK_INT(image_symbols(fd, wanted, 3, &err), 0);
    CHECK_INT(image_bias(fd, start, offset, &bias, &err), 0);
    CHECK_INT(wanted[0].value + bias, (uint64_t)(uintptr_t)&Py_test_marker);
    CHECK_INT(wanted[1].value + bias, (uint64_t)(uintptr_t)&Py_test_other);
    CHECK_INT(wanted[2].value, 0);
    CHECK_INT(image_bias(fd, start, 0x123456789000, &bias, &err), -ENOEXEC);
    close(fd);
}

TEST(a_program_that_exports_none_of_them_is_not_searched_further)
{
    struct image_symbol wanted[] = {{"Py_test_hidden", 0}}; // stands in .symtab alone
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK_INT(image_symbols(fd, wanted, 1, NULL), 0);
    CHECK_INT(wanted[0].value, 0);
    struct image_symbol both[] = {{"Py_test_hidden", 0}, {"Py_test_marker", 0}};
    CHECK_INT(image_symbols(fd, both, 2, NULL), 0);
    CHECK(both[0].value != 0);
    CHECK(both[1].value != 0);
    close(fd);
}

TEST(a_section_is_found_by_name)
{
    uint64_t address = 0;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK_INT(image_section(fd, ".data", &address), 0);
    CHECK(address != 0);
    CHECK_INT(image_section(fd, ".PyRuntime", &address), -ENOENT);
    close(fd);
}

TEST(a_file_that_is_cut_off_is_an_error)
{
    static const size_t lengths[] = {0, 1, 16, 63, 64, 100, 1000, 4096, 9999};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct image_symbol wanted[] = {{"Py_test_marker", 0}};
        struct error err;
        uint64_t value;
        int fd = copy_of_self(lengths[i]);
        CHECK_INT(image_symbols(fd, wanted, 1, &err), -ENOEXEC);
        CHECK(wanted[0].value == 0);
        CHECK(image_section(fd, ".data", &value) < 0);
        close(fd);
    }
}

TEST(a_damaged_file_never_breaks_the_reader)
{
    srand(7);
    int fd = copy_of_self(64 << 20);
    off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *bytes = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(bytes != MAP_FAILED);
    if (bytes == MAP_FAILED)
        return;
    Elf64_Ehdr header;
    memcpy(&header, bytes, sizeof(header));
    for (int round = 0; round < 400; round++) {
        // A byte of the ELF header behind its identity, or of the section or segment headers.
        size_t at = round % 4 == 0
                ? 16 + (size_t)rand() % 48
                : (round % 4 == 1 ? header.e_phoff + (size_t)rand() % (header.e_phnum * 56u)
                                  : header.e_shoff + (size_t)rand() % (header.e_shnum * 64u));
        struct image_symbol wanted[] = {{"Py_test_marker", 0}, {"Py_test_missing", 0}};
        uint64_t value;
        uint8_t old = bytes[at];
        bytes[at] = (uint8_t)rand();
        int code = image_symbols(fd, wanted, 2, NULL);
        CHECK(code == 0 || code == -ENOEXEC || code == -ENOTSUP || code == -ENOMEM);
        image_section(fd, ".data", &value);
        image_bias(fd, 0x1000, 0, &value, NULL);
        bytes[at] = old;
    }
    struct image_symbol wanted[] = {{"Py_test_marker", 0}};
    CHECK_INT(image_symbols(fd, wanted, 1, NULL), 0);
    CHECK(wanted[0].value != 0);
    munmap(bytes, (size_t)size);
    close(fd);
}

TEST(a_file_of_another_machine_is_refused)
{
    int fd = copy_of_self(64 << 20);
    uint16_t other = EM_RISCV;
    CHECK_INT(pwrite(fd, &other, sizeof(other), offsetof(Elf64_Ehdr, e_machine)), sizeof(other));
    struct image_symbol wanted[] = {{"Py_test_marker", 0}};
    uint64_t value;
    CHECK_INT(image_symbols(fd, wanted, 1, NULL), -ENOTSUP);
    CHECK_INT(image_bias(fd, 0, 0, &value, NULL), -ENOTSUP);
    CHECK_INT(image_section(fd, ".data", &value), -ENOTSUP);
    close(fd);
}

static int version_in(const char *bytes, size_t len, int minor, char *ret)
{
    char name[] = "/tmp/test_pystack.XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    CHECK_INT(ftruncate(fd, 3 << 20), 0);
    CHECK_INT(pwrite(fd, bytes, len, (1 << 20) - 4), len); // across the border of two reads
    int code = image_version(fd, minor, ret, 32);
    close(fd);
    return code;
}

TEST(the_version_is_found_among_constants)
{
    static const char text[] = "\0\00036\0003.x\0003.8\0003.40.1\0003.1.2.3\0003.7.16\0003.10.13+\0"
                               "x13.8.7\0libpython3.8.7\0/versions/3.9.18\0";
    char version[32] = "untouched";
    CHECK_INT(version_in(text, sizeof(text), -1, version), 0);
    CHECK_STR(version, "3.10.13+");
    CHECK_INT(version_in(text, sizeof(text), 9, version), 0);
    CHECK_STR(version, "3.9.18");
    CHECK_INT(version_in(text, sizeof(text), 8, version), -ENOENT);
    CHECK_STR(version, "3.9.18");
}

TEST(versions_in_names)
{
    static const struct {
        const char *path;
        int minor, major;
    } cases[] = {
            {"/usr/lib/libpython3.11.so.1.0", 11, 3},
            {"/opt/python3.9/bin/python3.8", 8, 3},
            {"/opt/python3.9/bin/python3", -1, 0},
            {"/usr/lib/libpython2.7.so", 7, 2},
            {"libpython3.10d.so", 10, 3},
            {"/bin/true", -1, 0},
            {"/usr/lib/libpython3.so", -1, 0},
            {"", -1, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int major = 0;
        CHECK_INT(interpreter_name_version(cases[i].path, &major), cases[i].minor);
        CHECK_INT(major, cases[i].major);
    }
}

// A container's seccomp filter may forbid the call altogether.
static void skip_without_reads(void)
{
    uint64_t value = 1, got = 0;
    pid_t self = getpid();
    struct memory_span span = {(uintptr_t)&value, &got, 8, false};
    if (memory_read_process(&self, &span, 1) == -EPERM)
        runner_skip("process_vm_readv is forbidden here");
}

TEST(memory_of_a_process_bad_addresses_among_good_ones)
{
    skip_without_reads();
    uint64_t values[3] = {11, 22, 33}, got[5] = {0};
    pid_t self = getpid();
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *hole = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct memory_span spans[5] = {
            {(uintptr_t)&values[0], &got[0], 8, false},
            {(uintptr_t)hole, &got[1], 8, false},
            {(uintptr_t)&values[1], &got[2], 8, false},
            {(uintptr_t)hole + 8, &got[3], 8, false},
            {(uintptr_t)&values[2], &got[4], 8, false},
    };
    CHECK_INT(memory_read_process(&self, spans, 5), 0);
    CHECK(spans[0].ok && !spans[1].ok && spans[2].ok && !spans[3].ok && spans[4].ok);
    CHECK_INT(got[0], 11);
    CHECK_INT(got[2], 22);
    CHECK_INT(got[4], 33);
    struct memory memory;
    uint8_t word[8];
    CHECK_INT(memory_init(&memory, memory_read_process, &self), 0);
    CHECK_INT(memory_read(&memory, (uintptr_t)hole, word, 8), -EFAULT);
    CHECK_INT(memory_read(&memory, 0, word, 8), -EFAULT);
    CHECK_INT(memory_read(&memory, UINT64_MAX - 3, word, 8), -EFAULT);
    CHECK_INT(memory_read(&memory, (uintptr_t)&values[1], word, 8), 0);
    CHECK_INT(word[0], 22);
    values[1] = 23; // the page was read already
    CHECK_INT(memory_read(&memory, (uintptr_t)&values[1], word, 8), 0);
    CHECK_INT(word[0], 22);
    memory_refresh(&memory);
    CHECK_INT(memory_read(&memory, (uintptr_t)&values[1], word, 8), 0);
    CHECK_INT(word[0], 23);
    memory_clear(&memory);
    munmap(hole, page);
}

TEST(more_pages_than_are_kept_are_read_all_the_same)
{
    skip_without_reads();
    pid_t self = getpid();
    size_t pages = MEMORY_PAGES * 2;
    uint8_t *block = malloc(pages * MEMORY_PAGE), last;
    struct memory memory;
    CHECK_INT(memory_init(&memory, memory_read_process, &self), 0);
    for (size_t i = 0; i < pages * MEMORY_PAGE; i++)
        block[i] = (uint8_t)(i / 1000);
    for (size_t i = 0; i < pages * MEMORY_PAGE; i += 1024) {
        CHECK_INT(memory_read(&memory, (uintptr_t)block + i, &last, 1), 0);
        CHECK_INT(last, (uint8_t)(i / 1000));
    }
    uint8_t across[3 * MEMORY_PAGE]; // a read longer than two pages, and one over a border
    CHECK_INT(memory_read(&memory, (uintptr_t)block + 100, across, sizeof(across)), 0);
    CHECK(!memcmp(across, block + 100, sizeof(across)));
    CHECK_INT(memory_read(&memory, (uintptr_t)block + 4000, across, 5000), 0);
    CHECK(!memcmp(across, block + 4000, 5000));
    memory_clear(&memory);
    free(block);
}

// Who reads for us is stopped: so it waits where the mmap lock of a process is held. Its memory is
// not read then: that waits for the lock, too.
TEST(a_process_whose_memory_map_is_locked_says_so)
{
    struct pystack *ps = NULL;
    struct error err;
    char path[64], text[64] = "";
    int code = pystack_open(getpid(), &ps, &err);
    if (code == -EPERM)
        runner_skip("no process may be read here");
    CHECK_INT(code, -ENOENT);
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *children = fopen(path, "re");
    CHECK(children && fgets(text, sizeof(text), children));
    pid_t reader = (pid_t)strtol(text, NULL, 10);
    CHECK(reader > 0 && kill(reader, SIGSTOP) == 0);
    CHECK_INT(pystack_open(getpid(), &ps, &err), -EIO);
    CHECK_CONTAINS(err.text, "somebody holds the lock of its memory map");
    CHECK(ps == NULL);
    if (children)
        fclose(children);
}

TEST(a_process_without_python_says_so)
{
    struct pystack *ps = NULL;
    struct error err;
    int release[2];
    CHECK_INT(pipe(release), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(release[1]);
        _exit(read(release[0], &byte, 1) != 0);
    }
    close(release[0]);
    int code = pystack_open(child, &ps, &err);
    if (code != -EPERM) { // a container may forbid it
        CHECK_INT(code, -ENOENT);
        CHECK_CONTAINS(err.text, "no Python");
        CHECK_INT(pystack_open(child, &ps, NULL), -ENOENT);
    }
    CHECK(ps == NULL);
    close(release[1]);
    waitpid(child, NULL, 0);
    CHECK_INT(pystack_open(child, &ps, &err), -ESRCH); // it is gone
    CHECK_CONTAINS(err.text, "process");
    CHECK(ps == NULL);
    pystack_close(NULL);
}
