// SPDX-License-Identifier: Apache-2.0
// Files in memory, and numbers from the front of an input.
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "common/strings.h"

enum { FUZZ_NAMES_MAX = 8 };

static char fuzz_folder[64], fuzz_paths[FUZZ_NAMES_MAX][128];
static pid_t fuzz_owner;

static void fuzz_folder_of(pid_t pid, char ret[64])
{
    snprintf(ret, 64, "/dev/shm/upgate-fuzz-%d", (int)pid);
}

void fuzz_sweep(int pid)
{
    char folder[64], path[sizeof folder + 256 + 2];
    fuzz_folder_of(pid, folder);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path); // fails for . and ..
    }
    if (dir)
        closedir(dir);
    rmdir(folder);
}

static void fuzz_clean(void)
{
    if (getpid() == fuzz_owner)
        fuzz_sweep(fuzz_owner);
}

static void fuzz_start(void)
{
    log_set_level(LOG_LEVEL_ERROR); // warnings about the input are no news
    fuzz_owner = getpid();
    fuzz_folder_of(fuzz_owner, fuzz_folder);
    fuzz_sweep(fuzz_owner); // of one with this pid that crashed
    fuzz_require(mkdir(fuzz_folder, 0700) == 0, "a folder in /dev/shm");
    atexit(fuzz_clean);
}

const char *fuzz_path(const char *name)
{
    if (!fuzz_folder[0])
        fuzz_start();
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
    for (int i = 0; i < FUZZ_NAMES_MAX; i++) {
        if (!fuzz_paths[i][0])
            memcpy(fuzz_paths[i], path, sizeof path);
        if (strcmp(fuzz_paths[i], path) == 0)
            return fuzz_paths[i];
    }
    abort(); // a target with more names than there is room for
}

void fuzz_remove(const char *name)
{
    static const char *const endings[] = {"", "-journal", "-wal", "-shm"};
    char path[192];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(path, sizeof path, "%s%s", fuzz_path(name), endings[i]);
        unlink(path);
    }
}

static void fuzz_write_fd(int fd, const void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t put = write(fd, (const char *)data + done, size - done);
        fuzz_require(put > 0, "room in /dev/shm");
        done += (size_t)put;
    }
}

void fuzz_write(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_require(fd >= 0, "a file in /dev/shm");
    fuzz_write_fd(fd, data, size);
    close(fd);
}

int fuzz_memfd(const void *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fuzz_require(fd >= 0, "a memfd");
    fuzz_write_fd(fd, data, size);
    return fd;
}

uint8_t *fuzz_read(const char *path, size_t *ret_size)
{
    uint8_t *data = (uint8_t *)string_read_file(path, (size_t)64 << 20, ret_size);
    if (!data)
        fprintf(stderr, "cannot read %s\n", path);
    fuzz_require(data != NULL, "a readable file");
    return data;
}

uint8_t *fuzz_template(size_t *ret_size)
{
    const char *path = getenv("FUZZ_TEMPLATE");
    return fuzz_read(path ? path : FUZZ_TEMPLATE, ret_size);
}

uint64_t fuzz_take(struct fuzz_input *input, size_t bytes)
{
    uint64_t value = 0;
    fuzz_take_bytes(input, &value, bytes);
    return value;
}

size_t fuzz_take_bytes(struct fuzz_input *input, void *ret, size_t bytes)
{
    size_t have = bytes < input->size ? bytes : input->size;
    memset(ret, 0, bytes);
    if (have)
        memcpy(ret, input->data, have);
    input->data += have;
    input->size -= have;
    return have;
}

int fuzz_check(int rc, const struct error *err)
{
    fuzz_require(rc <= 0, "an error is a negative errno");
    fuzz_require(rc == 0 || err->text[0], "an error says what is wrong");
    return rc;
}

void fuzz_require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz: does not hold: %s\n", what);
    abort();
}
