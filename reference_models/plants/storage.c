// SPDX-License-Identifier: Apache-2.0
// Plants about files without any limit: one inode two processes write to (inode), one descriptor
// two processes read from (fdpos), and a filesystem whose server is slow to read (fuse) or to write
// (dirty): raw protocol, so that no library is needed.
#include "reference_models/plants/plant.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

// 128 MiB: one write of it takes 40 to 100 ms in the page cache.
#define BIG_BYTES ((size_t)128 << 20)
#define FUSE_NODE_FILE 2
#define FUSE_DELAY_NS (80 * PLANT_MS)
#define FUSE_BUFFER_BYTES ((size_t)1 << 20)
#define FUSE_FILE_BYTES 4096
// The victim dirties 512 KiB a step, about 70 MB/s.
#define FUSE_WRITE_BYTES_PER_S 20000000
#define DIRTY_STEP_BYTES ((size_t)512 << 10)

static struct {
    char file[224];
    int fd;
    char *block;
} world;

static int world_open(struct plant *plant, struct error *err)
{
    int rc = plant_need_cpus(err);
    if (!rc)
        rc = plant_file(plant, "shared", world.file, err);
    if (rc)
        return rc;
    world.fd = open(world.file, O_RDWR | O_CLOEXEC);
    if (world.fd < 0 || ftruncate(world.fd, BIG_BYTES))
        return error_set(err, -errno, "failed to open '%s': %s", world.file, strerror(errno));
    return 0;
}

// inode: a log line of the victim waits for a checkpoint write to the same file.
static void step_log(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    if (pwrite(world.fd, "line\n", 5, 0) < 0)
        return;
}

static void victim_logs(struct plant *plant, void *arg)
{
    (void)arg;
    plant_steps(plant, step_log, NULL);
}

static void checkpoint_act(struct plant *plant, void *arg)
{
    (void)plant;
    if (pwrite(*(int *)arg, world.block, BIG_BYTES, 0) < 0)
        return;
}

static void checkpointer(struct plant *plant, void *arg)
{
    (void)arg;
    plant_pin(plant->cpu_other);
    world.block = plant_memory(BIG_BYTES);
    int fd = open(world.file, O_WRONLY | O_CLOEXEC); // its own: the position is not shared
    plant_every(plant, 400 * PLANT_MS, checkpoint_act, &fd);
}

static int start_inode(struct plant *plant, struct error *err)
{
    int rc = world_open(plant, err);
    if (!rc)
        rc = plant_victim(plant, "pl-victim", victim_logs, NULL, err);
    return rc ? rc : plant_culprit(plant, "pl-ckpt", checkpointer, NULL, err);
}

// fdpos: the position of an inherited descriptor is kept by a mutex, held for the whole read.
static void step_read(struct plant *plant, void *arg)
{
    char byte;
    (void)plant;
    (void)arg;
    if (read(world.fd, &byte, 1) <= 0)
        lseek(world.fd, 0, SEEK_SET);
}

static void victim_reads(struct plant *plant, void *arg)
{
    (void)arg;
    plant_steps(plant, step_read, NULL);
}

static void scan_act(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    lseek(world.fd, 0, SEEK_SET);
    if (read(world.fd, world.block, BIG_BYTES) < 0)
        return;
}

static void scanner(struct plant *plant, void *arg)
{
    plant_pin(plant->cpu_other);
    world.block = plant_memory(BIG_BYTES);
    plant_every(plant, 300 * PLANT_MS, scan_act, arg);
}

static int start_fdpos(struct plant *plant, struct error *err)
{
    int rc = world_open(plant, err);
    if (!rc)
        rc = plant_victim(plant, "pl-victim", victim_reads, NULL, err);
    return rc ? rc : plant_culprit(plant, "pl-scanner", scanner, NULL, err);
}

// fuse and dirty: a filesystem with one file, "data".
static bool fuse_cached;

static void fuse_reply(int fd, uint64_t unique, int error, const void *body, size_t len)
{
    char reply[sizeof(struct fuse_out_header) + FUSE_FILE_BYTES] = {0};
    struct fuse_out_header header = {.error = error, .unique = unique};
    header.len = (uint32_t)(sizeof(header) + len);
    memcpy(reply, &header, sizeof(header));
    if (len)
        memcpy(reply + sizeof(header), body, len);
    if (write(fd, reply, header.len) < 0)
        return; // the reader was killed meanwhile
}

static struct fuse_attr fuse_attr_of(uint64_t node)
{
    bool file = node == FUSE_NODE_FILE;
    return (struct fuse_attr){.ino = node,
            .size = !file         ? 0
                    : fuse_cached ? BIG_BYTES
                                  : FUSE_FILE_BYTES,
            .mode = file ? S_IFREG | 0644 : S_IFDIR | 0755,
            .nlink = 1};
}

static void fuse_answer_read(struct plant *plant, int fd, const struct fuse_in_header *in)
{
    static char data[FUSE_FILE_BYTES];
    struct fuse_read_in read_in;
    memcpy(&read_in, in + 1, sizeof(read_in));
    if (!plant->innocent && plant_due()) {
        plant_sleep_ns(FUSE_DELAY_NS);
        atomic_fetch_add(&plant->share->acts, 1);
    }
    fuse_reply(fd, in->unique, 0, data,
            read_in.size < FUSE_FILE_BYTES ? read_in.size : FUSE_FILE_BYTES);
}

static void fuse_answer_write(struct plant *plant, int fd, const struct fuse_in_header *in)
{
    struct fuse_write_in write_in;
    memcpy(&write_in, in + 1, sizeof(write_in));
    struct fuse_write_out out = {.size = write_in.size};
    if (!plant->innocent) {
        plant_sleep_ns(write_in.size * INT64_C(1000000000) / FUSE_WRITE_BYTES_PER_S);
        atomic_fetch_add(&plant->share->acts, 1);
    }
    fuse_reply(fd, in->unique, 0, &out, sizeof(out));
}

static void fuse_answer(struct plant *plant, int fd, const struct fuse_in_header *in)
{
    struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};
    // Valid for an hour: nobody has to ask again, and to wait for an answer that is not the
    // plant's.
    struct fuse_entry_out entry = {.nodeid = FUSE_NODE_FILE,
            .entry_valid = 3600,
            .attr_valid = 3600,
            .attr = fuse_attr_of(FUSE_NODE_FILE)};
    struct fuse_attr_out attr = {.attr_valid = 3600, .attr = fuse_attr_of(in->nodeid)};
    // Each read comes to us; writes go through the page cache.
    struct fuse_open_out opened = {.open_flags = fuse_cached ? 0 : FOPEN_DIRECT_IO};
    switch (in->opcode) {
    case FUSE_INIT:
        init.max_write = 131072;
        init.flags = fuse_cached ? FUSE_WRITEBACK_CACHE | FUSE_BIG_WRITES : 0;
        fuse_reply(fd, in->unique, 0, &init, sizeof(init));
        break;
    case FUSE_LOOKUP: {
        bool ours = strcmp((const char *)(in + 1), "data") == 0;
        fuse_reply(fd, in->unique, ours ? 0 : -ENOENT, &entry, ours ? sizeof(entry) : 0);
        break;
    }
    case FUSE_GETATTR:
    case FUSE_SETATTR:
        fuse_reply(fd, in->unique, 0, &attr, sizeof(attr));
        break;
    case FUSE_OPEN:
        fuse_reply(fd, in->unique, 0, &opened, sizeof(opened));
        break;
    case FUSE_READ:
        fuse_answer_read(plant, fd, in);
        break;
    case FUSE_WRITE:
        fuse_answer_write(plant, fd, in);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break; // want no answer
    case FUSE_FLUSH:
    case FUSE_RELEASE:
        fuse_reply(fd, in->unique, 0, NULL, 0);
        break;
    default:
        fuse_reply(fd, in->unique, -ENOSYS, NULL, 0);
    }
}

static void fuse_daemon(struct plant *plant, void *arg)
{
    int fd = *(int *)arg;
    plant_pin(plant->cpu_other);
    char *buffer = plant_memory(FUSE_BUFFER_BYTES);
    while (!plant_stopped(plant)) {
        ssize_t len = read(fd, buffer, FUSE_BUFFER_BYTES);
        if (len >= (ssize_t)sizeof(struct fuse_in_header))
            fuse_answer(plant, fd, (const struct fuse_in_header *)buffer);
        else if (len < 0 && errno == ENODEV)
            return;
    }
}

static void step_pread(struct plant *plant, void *arg)
{
    char block[64];
    (void)plant;
    if (pread(*(int *)arg, block, sizeof(block), 0) < 0)
        return;
}

static void step_dirty(struct plant *plant, void *arg)
{
    static char block[DIRTY_STEP_BYTES];
    static size_t at;
    (void)plant;
    if (pwrite(*(int *)arg, block, sizeof(block), (off_t)at) < 0)
        return;
    at = (at + sizeof(block)) % BIG_BYTES;
}

static void victim_fuse(struct plant *plant, void *arg)
{
    int fd = open(arg, (fuse_cached ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "plant: failed to open '%s': %s\n", (char *)arg, strerror(errno));
        _exit(4);
    }
    plant_steps(plant, fuse_cached ? step_dirty : step_pread, &fd);
}

static int fuse_mount(struct plant *plant, int fd, struct error *err)
{
    char options[96];
    int rc = plant_temp(plant, err);
    if (rc)
        return rc;
    snprintf(world.file, sizeof(world.file), "%s/mount", plant->temp_dir);
    rc = plant_clean_up(plant, PLANT_CLEAN_RMDIR, world.file, "", err);
    if (!rc && mkdir(world.file, 0700))
        rc = error_set(err, -errno, "failed to make '%s': %s", world.file, strerror(errno));
    if (!rc)
        rc = plant_clean_up(plant, PLANT_CLEAN_UMOUNT, world.file, "", err);
    if (rc)
        return rc;
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    if (mount("upgate-plant", world.file, "fuse", MS_NOSUID | MS_NODEV, options))
        return error_set(err, -ENOTSUP, "a FUSE filesystem cannot be mounted: %s", strerror(errno));
    return 0;
}

static int start_fuse(struct plant *plant, struct error *err)
{
    static int fd;
    pid_t pid = 0;
    int rc = plant_need_cpus(err);
    if (rc)
        return rc;
    fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, -ENOTSUP, "no /dev/fuse: %s", strerror(errno));
    rc = fuse_mount(plant, fd, err);
    // It serves in an innocent run too, only never late.
    if (!rc)
        rc = plant_helper(plant, "pl-fused", fuse_daemon, &fd, &pid, err);
    close(fd); // with the server the filesystem ends, whatever happens to us
    if (!rc && !plant->innocent) {
        plant->culprits[plant->culprit_count++] = pid;
        strcpy(plant->culprit_comm, "pl-fused");
    }
    strcat(world.file, "/data");
    return rc ? rc : plant_victim(plant, "pl-victim", victim_fuse, world.file, err);
}

// dirty: the server writes slowly, and the kernel makes who dirties pages wait for it.
static int start_dirty(struct plant *plant, struct error *err)
{
    fuse_cached = true;
    return start_fuse(plant, err);
}

const struct plant_kind plants_storage[] = {
        {"inode", start_inode},
        {"fdpos", start_fdpos},
        {"fuse", start_fuse},
        {"dirty", start_dirty},
        {NULL, NULL},
};
