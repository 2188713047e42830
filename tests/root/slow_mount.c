// SPDX-License-Identifier: Apache-2.0
// slow_mount FILE DIRECTORY: serves FILE as DIRECTORY/file, by FUSE, until it is killed. The kernel
// is told to remember nothing but pages: every look at the file is a question to us. After SIGUSR1
// it takes questions and does not answer: who asked cannot be killed.
#define FUSE_USE_VERSION 35
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int source;
static volatile sig_atomic_t silent;

static void on_signal(int number)
{
    (void)number;
    silent = 1;
}

static void mount_wait(void)
{
    while (silent)
        pause();
}

static void *mount_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    config->entry_timeout = config->attr_timeout = 0;
    config->kernel_cache = 1;
    return NULL;
}

static int mount_getattr(const char *path, struct stat *ret, struct fuse_file_info *info)
{
    (void)info;
    mount_wait();
    if (strcmp(path, "/") == 0)
        *ret = (struct stat){.st_mode = S_IFDIR | 0755, .st_nlink = 2};
    else if (strcmp(path, "/file") || fstat(source, ret))
        return -ENOENT;
    return 0;
}

static int mount_read(
        const char *path, char *buf, size_t len, off_t offset, struct fuse_file_info *info)
{
    (void)path, (void)info;
    mount_wait();
    ssize_t got = pread(source, buf, len, offset);
    return got < 0 ? -errno : (int)got;
}

int main(int argc, char **argv)
{
    static const struct fuse_operations operations = {
            .init = mount_init, .getattr = mount_getattr, .read = mount_read};
    source = argc == 3 ? open(argv[1], O_RDONLY) : -1;
    if (source < 0) {
        fprintf(stderr, "usage: slow_mount FILE DIRECTORY\n");
        return 2;
    }
    signal(SIGUSR1, on_signal);
    char *arguments[] = {
            argv[0], (char *)"-f", (char *)"-s", (char *)"-o", (char *)"allow_other,exec", argv[2]};
    return fuse_main(6, arguments, &operations, NULL);
}
