// SPDX-License-Identifier: Apache-2.0
// Plants about the lock of an address space (mmap_lock): somebody holds it while he walks or fills
// gigabytes of 4 KiB pages, and the victim, which maps and unmaps a little in every step, waits.
// The culprit is another process (smaps) or a thread of the victim (fork, munmap, populate, mlock).
#include "reference_models/plants/plant.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
// 256 MiB: 15 ms of unmapping and 100 ms of populating in 4 KiB pages on an idle VM of 2024, some
// times that on a busy one.
#define REGION_BYTES ((size_t)256 << 20)
// Given back in pieces: one call for all of it would be a stall of its own.
#define PIECE_BYTES ((size_t)1 << 20)

static void victim_maps(struct plant *plant, void *arg)
{
    (void)arg;
    plant_memory(plant->size_bytes);
    plant_steps(plant, plant_step_map, NULL);
}

// smaps: reads a file of /proc of the victim, as psutil's memory_full_info does.
static void read_proc(struct plant *plant, void *arg)
{
    static char text[1 << 20];
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", plant->victim_pid, (const char *)arg);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    while (read(fd, text, sizeof(text)) > 0) {
    }
    close(fd);
}

static void reader(struct plant *plant, void *arg)
{
    plant_pin(plant->cpu_other);
    plant_every(plant, 300 * PLANT_MS, read_proc, arg);
}

static int start_reader(struct plant *plant, const char *file, struct error *err)
{
    int rc = plant_need_cpus(err);
    if (!rc)
        rc = plant_victim(plant, "pl-victim", victim_maps, NULL, err);
    return rc ? rc : plant_culprit(plant, "pl-smaps", reader, (void *)file, err);
}

static int start_smaps(struct plant *plant, struct error *err)
{
    return start_reader(plant, "smaps_rollup", err);
}

static int start_smaps_full(struct plant *plant, struct error *err)
{
    return start_reader(plant, "smaps", err);
}

static void psutil(struct plant *plant, void *arg)
{
    (void)arg;
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", plant->victim_pid);
    plant_pin(plant->cpu_other);
    plant_python(plant, "read_memory.py", pid);
}

static int start_smaps_psutil(struct plant *plant, struct error *err)
{
    int rc = plant_need_cpus(err);
    if (rc)
        return rc;
    rc = plant_python_can(plant, "import psutil", err);
    if (rc == -ENOTSUP && strcmp(plant->python, "/usr/bin/python3") != 0) {
        // A Python of the user's in PATH hides the distribution's, which has it.
        plant->python = "/usr/bin/python3";
        rc = plant_python_can(plant, "import psutil", err);
    }
    if (!rc)
        rc = plant_victim(plant, "pl-victim", victim_maps, NULL, err);
    return rc ? rc : plant_culprit(plant, "pl-psutil", psutil, NULL, err);
}

// fork: the page table is copied, the lock held.
static void act_fork(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

static int start_fork(struct plant *plant, struct error *err)
{
    static const struct plant_sibling sibling = {
            "pl-forker", 500 * PLANT_MS, act_fork, plant_step_map, true};
    int rc = plant_need_cpus(err);
    return rc ? rc : plant_victim_sibling(plant, &sibling, err);
}

// munmap: filled by page faults, which need the lock of one mapping only, and unmapped at once.
static void act_munmap(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    char *region = plant_map(REGION_BYTES);
    if (!region)
        return;
    plant_touch(region, REGION_BYTES);
    munmap(region, REGION_BYTES);
}

static int start_munmap(struct plant *plant, struct error *err)
{
    static const struct plant_sibling sibling = {
            "pl-unmapper", 600 * PLANT_MS, act_munmap, plant_step_map, false};
    int rc = plant_need_cpus(err);
    return rc ? rc : plant_victim_sibling(plant, &sibling, err);
}

static char *region_once(void)
{
    static char *region;
    if (!region)
        region = plant_map(REGION_BYTES);
    return region;
}

static void region_give_back(char *region)
{
    for (size_t at = 0; at < REGION_BYTES; at += PIECE_BYTES)
        madvise(region + at, PIECE_BYTES, MADV_DONTNEED);
}

static void act_populate(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    char *region = region_once();
    if (!region)
        return;
    madvise(region, REGION_BYTES, MADV_POPULATE_WRITE);
    region_give_back(region);
}

static int start_populate(struct plant *plant, struct error *err)
{
    static const struct plant_sibling sibling = {
            "pl-populate", 800 * PLANT_MS, act_populate, plant_step_map, false};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || madvise(page, 4096, MADV_POPULATE_WRITE))
        return error_set(err, -ENOTSUP, "this kernel has no MADV_POPULATE_WRITE (Linux 5.14)");
    int rc = plant_need_cpus(err);
    return rc ? rc : plant_victim_sibling(plant, &sibling, err);
}

// mlock: what pinning for a device (cudaHostRegister, ibv_reg_mr) does to the address space.
static void act_mlock(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    char *region = region_once();
    if (!region)
        return;
    mlock(region, REGION_BYTES);
    munlock(region, REGION_BYTES);
    region_give_back(region);
}

static int start_mlock(struct plant *plant, struct error *err)
{
    static const struct plant_sibling sibling = {
            "pl-pinner", 800 * PLANT_MS, act_mlock, plant_step_map, false};
    char *region = plant_map(REGION_BYTES);
    bool allowed = region && mlock(region, REGION_BYTES) == 0;
    int saved = errno;
    if (region)
        munmap(region, REGION_BYTES);
    if (!allowed)
        return error_set(err, -ENOTSUP, "256 MiB cannot be locked: %s", strerror(saved));
    int rc = plant_need_cpus(err);
    return rc ? rc : plant_victim_sibling(plant, &sibling, err);
}

const struct plant_kind plants_memory[] = {
        {"smaps", start_smaps},
        {"smaps-psutil", start_smaps_psutil},
        {"smaps-full", start_smaps_full},
        {"fork", start_fork},
        {"munmap", start_munmap},
        {"populate", start_populate},
        {"mlock", start_mlock},
        {NULL, NULL},
};
