// SPDX-License-Identifier: Apache-2.0
// Plants about limits of a cgroup: CPU quota, freezer, memory, bytes a second from the disk. The
// group is made by the director, below its own where that is possible, and removed by the janitor.
#include "reference_models/plants/plant.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define FROZEN_NS (60 * PLANT_MS)
// The kernel lets 100 ms worth of bytes through at once, 400 KiB; the rest waits 90 ms.
#define DISK_BYTES_PER_S 4194304
#define DISK_STEP_BYTES ((size_t)768 << 10)
#define FILE_BYTES (64 * DISK_STEP_BYTES)
#define MEMORY_LIMIT "67108864"
#define WRITE_BYTES ((size_t)1 << 20)
#define ZOMBIES 1000
#define ZOMBIES_WAIT_MAX 3000
// 128 MiB: 40 ms of page faults before the end.
#define OOM_LIMIT "134217728"
#define OOM_BYTES ((size_t)256 << 20)
#define WRITTEN_BYTES ((size_t)256 << 20)

// What a victim or culprit of this family needs; static, as children inherit it.
static struct {
    char group[224];
    bool v2;
    char file[224];
    int fd;
    char *map;
    size_t at;
} world;

static void victim_works(struct plant *plant, void *arg)
{
    (void)arg;
    plant_steps(plant, NULL, NULL);
}

// quota: 30 of each 100 ms. The limit is set when the victim has measured its own step.
static int start_quota(struct plant *plant, struct error *err)
{
    plant->cpu_counts = true;
    int rc = plant_victim(plant, "pl-victim", victim_works, NULL, err);
    if (!rc)
        rc = plant_cgroup(plant, "cpu", world.group, &world.v2, err);
    if (!rc && !plant->innocent && world.v2)
        rc = plant_cgroup_write(world.group, "cpu.max", "30000 100000", err);
    if (!rc && !plant->innocent && !world.v2) {
        rc = plant_cgroup_write(world.group, "cpu.cfs_period_us", "100000", err);
        if (!rc)
            rc = plant_cgroup_write(world.group, "cpu.cfs_quota_us", "30000", err);
    }
    return rc ? rc : plant_cgroup_enter(world.group, plant->victim_pid, err);
}

static void freeze_act(struct plant *plant, void *arg)
{
    const char *const *words = arg;
    (void)plant;
    plant_cgroup_write(world.group, words[0], words[1], NULL);
    plant_sleep_ns(FROZEN_NS);
    plant_cgroup_write(world.group, words[0], words[2], NULL);
}

static void freezer(struct plant *plant, void *arg)
{
    plant_pin(plant->cpu_other);
    plant_every(plant, 500 * PLANT_MS, freeze_act, arg);
}

static int start_freezer_of(
        struct plant *plant, const char *controller, const char *const *words, struct error *err)
{
    char path[320];
    int rc = plant_need_cpus(err);
    if (!rc)
        rc = plant_cgroup(plant, controller, world.group, &world.v2, err);
    if (rc)
        return rc;
    snprintf(path, sizeof(path), "%s/%s", world.group, words[0]);
    if (access(path, W_OK))
        return error_set(err, -ENOTSUP, "no '%s'", path);
    rc = plant_clean_up(plant, PLANT_CLEAN_WRITE, path, words[2], err);
    if (!rc)
        rc = plant_victim(plant, "pl-victim", victim_works, NULL, err);
    if (!rc)
        rc = plant_cgroup_enter(world.group, plant->victim_pid, err);
    return rc ? rc : plant_culprit(plant, "pl-freezer", freezer, (void *)words, err);
}

static int start_freezer(struct plant *plant, struct error *err)
{
    static const char *const words[] = {"cgroup.freeze", "1", "0"};
    return start_freezer_of(plant, "", words, err);
}

static int start_freezer_v1(struct plant *plant, struct error *err)
{
    static const char *const words[] = {"freezer.state", "FROZEN", "THAWED"};
    return start_freezer_of(plant, "freezer", words, err);
}

// memcg: a step appends to a file; its page cache, dirty, is all the group may have.
static void step_write(struct plant *plant, void *arg)
{
    static char block[WRITE_BYTES];
    (void)plant;
    (void)arg;
    for (int i = 0; i < 4; i++) {
        if (pwrite(world.fd, block, sizeof(block), (off_t)world.at) < 0)
            return;
        world.at = (world.at + sizeof(block)) % WRITTEN_BYTES;
    }
}

static void victim_writes(struct plant *plant, void *arg)
{
    (void)arg;
    plant_steps(plant, step_write, NULL);
}

static int world_file(struct plant *plant, size_t bytes, struct error *err)
{
    static char block[WRITE_BYTES];
    int rc = plant_file(plant, "data", world.file, err);
    if (rc)
        return rc;
    world.fd = open(world.file, O_RDWR | O_CLOEXEC);
    if (world.fd < 0)
        return error_set(err, -errno, "failed to open '%s': %s", world.file, strerror(errno));
    for (size_t at = 0; at < bytes; at += sizeof(block)) {
        if (pwrite(world.fd, block, sizeof(block), (off_t)at) != sizeof(block))
            return error_set(err, -EIO, "failed to write '%s': %s", world.file, strerror(errno));
    }
    if (bytes && fsync(world.fd))
        return error_set(err, -EIO, "failed to write '%s': %s", world.file, strerror(errno));
    return 0;
}

static int start_memory(struct plant *plant, bool high, struct error *err)
{
    int rc = plant_cgroup(plant, "memory", world.group, &world.v2, err);
    if (!rc && high && !world.v2)
        rc = error_set(err, -ENOTSUP, "memory.high needs the memory controller in cgroup v2");
    if (!rc)
        rc = world_file(plant, 0, err);
    if (!rc)
        rc = plant_victim(plant, "pl-victim", victim_writes, NULL, err);
    const char *file = !world.v2 ? "memory.limit_in_bytes" : high ? "memory.high" : "memory.max";
    if (!rc && !plant->innocent)
        rc = plant_cgroup_write(world.group, file, MEMORY_LIMIT, err);
    return rc ? rc : plant_cgroup_enter(world.group, plant->victim_pid, err);
}

static int start_memcg(struct plant *plant, struct error *err)
{
    return start_memory(plant, false, err);
}

// zombies: groups that are removed and live on, as a page of the director's is charged to each. Who
// reclaims above them walks them all.
static int zombies_make(struct plant *plant, struct error *err)
{
    char group[256];
    int fd = memfd_create("upgate-plant-zombies", MFD_CLOEXEC);
    if (fd < 0)
        return error_set(err, -errno, "failed to make shared memory: %s", strerror(errno));
    snprintf(group, sizeof(group), "%s/zombie", world.group);
    int rc = plant_clean_up(plant, PLANT_CLEAN_RMDIR, group, "", err);
    for (int i = 0; !rc && i < ZOMBIES; i++) {
        if (mkdir(group, 0755))
            return error_set(err, -ENOTSUP, "failed to make '%s': %s", group, strerror(errno));
        rc = plant_cgroup_enter(group, getpid(), err);
        if (!rc && pwrite(fd, "", 1, (off_t)i * 4096) != 1)
            rc = error_set(err, -errno, "failed to write shared memory: %s", strerror(errno));
        if (!rc)
            rc = plant_cgroup_enter(world.group, getpid(), err);
        rmdir(group);
    }
    return rc;
}

// In a child, as it lives in the group; it keeps the pages, and so the zombies, as long as it
// lives.
static void zombie_keeper(struct plant *plant, void *arg)
{
    struct error err = {0};
    (void)arg;
    if (zombies_make(plant, &err)) {
        fprintf(stderr, "plant: %s\n", err.text);
        _exit(err.code == -ENOTSUP ? 77 : 4);
    }
    atomic_fetch_add(&plant->share->acts, 1);
    while (!plant_stopped(plant))
        plant_sleep_ns(100 * PLANT_MS);
}

static int start_zombies(struct plant *plant, struct error *err)
{
    int rc = plant_cgroup(plant, "memory", world.group, &world.v2, err);
    if (!rc && world.v2)
        rc = error_set(err, -ENOTSUP, "the memory controller of cgroup v1 is needed");
    if (!rc)
        rc = world_file(plant, 0, err);
    if (!rc && !plant->innocent)
        rc = plant_helper(plant, "pl-keeper", zombie_keeper, NULL, NULL, err);
    for (int i = 0; !rc && !plant->innocent && !atomic_load(&plant->share->acts); i++) {
        if (i == ZOMBIES_WAIT_MAX)
            return error_set(err, -ENOTSUP, "no %d zombie groups in 30 s", ZOMBIES);
        plant_sleep_ns(10 * PLANT_MS);
    }
    if (!rc)
        rc = plant_victim(plant, "pl-victim", victim_writes, NULL, err);
    if (!rc && !plant->innocent)
        rc = plant_cgroup_write(world.group, "memory.limit_in_bytes", MEMORY_LIMIT, err);
    return rc ? rc : plant_cgroup_enter(world.group, plant->victim_pid, err);
}

// oom: the victim starts a worker that needs more than its group may have, and waits for it.
static void act_oom(struct plant *plant, void *arg)
{
    (void)arg;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "pl-worker");
        plant_pin(plant->cpu_other);
        if (plant_cgroup_enter(world.group, getpid(), NULL) == 0)
            plant_memory(OOM_BYTES);
        _exit(0);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

static int start_oom(struct plant *plant, struct error *err)
{
    static const struct plant_self self = {.act = act_oom};
    int rc = plant_cgroup(plant, "memory", world.group, &world.v2, err);
    if (!rc)
        rc = plant_cgroup_write(
                world.group, world.v2 ? "memory.max" : "memory.limit_in_bytes", OOM_LIMIT, err);
    if (!rc)
        rc = plant_victim_self(plant, &self, err);
    if (!plant->innocent)
        strcpy(plant->culprit_comm, "pl-worker"); // a new pid each time
    return rc;
}

static int start_memory_high(struct plant *plant, struct error *err)
{
    return start_memory(plant, true, err);
}

// The disk plants: a step every 400 ms needs 768 KiB from, or on, a disk that gives 4 MiB/s.
static int disk_limit(struct plant *plant, bool writes, struct error *err)
{
    struct stat st;
    char text[96];
    if (fstat(world.fd, &st))
        return error_set(err, -errno, "failed to look at '%s': %s", world.file, strerror(errno));
    if (major(st.st_dev) == 0)
        return error_set(err, -ENOTSUP, "'%s' is not on a block device", world.file);
    int rc = plant_cgroup(plant, "blkio", world.group, &world.v2, err);
    if (rc)
        rc = plant_cgroup(plant, "io", world.group, &world.v2, err);
    // A partition cannot be limited on its own: then the write says so and the plant is skipped.
    snprintf(text, sizeof(text), "%u:%u %s%d", major(st.st_dev), minor(st.st_dev),
            !world.v2        ? ""
                    : writes ? "wbps="
                             : "rbps=",
            DISK_BYTES_PER_S);
    const char *file = world.v2 ? "io.max"
            : writes            ? "blkio.throttle.write_bps_device"
                                : "blkio.throttle.read_bps_device";
    if (!rc && !plant->innocent)
        rc = plant_cgroup_write(world.group, file, text, err);
    return rc ? rc : plant_cgroup_enter(world.group, plant->victim_pid, err);
}

// Now and then; world.at is then the next part of the file.
static bool disk_turn(void)
{
    if (!plant_due())
        return false;
    world.at = (world.at + DISK_STEP_BYTES) % FILE_BYTES;
    return true;
}

static void step_read(struct plant *plant, void *arg)
{
    static char block[DISK_STEP_BYTES];
    (void)plant;
    (void)arg;
    if (!disk_turn())
        return;
    posix_fadvise(world.fd, 0, 0, POSIX_FADV_DONTNEED);
    if (pread(world.fd, block, sizeof(block), (off_t)world.at) < 0)
        return;
}

static void step_fault(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    if (!disk_turn())
        return;
    madvise(world.map, FILE_BYTES, MADV_DONTNEED); // a page that is mapped stays in the cache
    posix_fadvise(world.fd, 0, 0, POSIX_FADV_DONTNEED);
    for (size_t at = 0; at < DISK_STEP_BYTES; at += 4096)
        (void)*(volatile char *)(world.map + world.at + at);
}

static void step_sync(struct plant *plant, void *arg)
{
    static char block[DISK_STEP_BYTES];
    (void)plant;
    (void)arg;
    if (!disk_turn())
        return;
    if (pwrite(world.fd, block, sizeof(block), (off_t)world.at) < 0)
        return;
    fsync(world.fd);
}

static void victim_disk(struct plant *plant, void *arg)
{
    plant_fn *operation = arg;
    plant_steps(plant, *operation, NULL);
}

static int start_disk(struct plant *plant, plant_fn operation, bool writes, struct error *err)
{
    int rc = world_file(plant, FILE_BYTES, err);
    if (rc)
        return rc;
    world.map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, world.fd, 0);
    if (world.map == MAP_FAILED)
        return error_set(err, -errno, "failed to map '%s': %s", world.file, strerror(errno));
    madvise(world.map, FILE_BYTES, MADV_RANDOM); // one fault a page, no read-ahead
    rc = plant_victim(plant, "pl-victim", victim_disk, &operation, err);
    return rc ? rc : disk_limit(plant, writes, err);
}

static int start_disk_read(struct plant *plant, struct error *err)
{
    return start_disk(plant, step_read, false, err);
}

static int start_major_fault(struct plant *plant, struct error *err)
{
    return start_disk(plant, step_fault, false, err);
}

static int start_fsync(struct plant *plant, struct error *err)
{
    return start_disk(plant, step_sync, true, err);
}

const struct plant_kind plants_groups[] = {
        {"quota", start_quota},
        {"freezer", start_freezer},
        {"freezer-v1", start_freezer_v1},
        {"memcg", start_memcg},
        {"memory-high", start_memory_high},
        {"zombies", start_zombies},
        {"oom", start_oom},
        {"disk-read", start_disk_read},
        {"major-fault", start_major_fault},
        {"fsync", start_fsync},
        {NULL, NULL},
};
