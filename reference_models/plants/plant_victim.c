// SPDX-License-Identifier: Apache-2.0
// The step of a victim, and its own measure of how late each was: wall time of work and operation,
// by CLOCK_MONOTONIC, less what the work takes undisturbed, and less what it waited for a CPU:
// other load of a small machine is not the plant's. With it "the plant did not stall its victim on
// this machine" can be told from "upgate did not find it". Runs in the victim's main thread.
#include "reference_models/plants/plant.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORK_NS (6 * PLANT_MS)
#define CALIBRATION_ROUNDS 10
#define STEP_BYTES ((size_t)64 << 10)

static uint64_t work_state = 88172645463325252ULL;

static void work(uint64_t rounds)
{
    uint64_t x = work_state;
    for (uint64_t i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    work_state = x;
}

static int64_t work_least_ns(uint64_t rounds)
{
    int64_t least_ns = INT64_MAX;
    for (int i = 0; i < CALIBRATION_ROUNDS; i++) {
        int64_t begin_ns = plant_now_ns();
        work(rounds);
        int64_t took_ns = plant_now_ns() - begin_ns;
        if (took_ns < least_ns)
            least_ns = took_ns;
    }
    return least_ns;
}

void plant_count(struct plant *plant, int64_t late_ns)
{
    struct plant_share *share = plant->share;
    atomic_fetch_add(&share->steps, 1);
    if (late_ns < PLANT_STALL_NS)
        return;
    atomic_fetch_add(&share->stalls, 1);
    atomic_fetch_add(&share->total_ns, (uint64_t)late_ns);
    if ((uint64_t)late_ns > atomic_load(&share->max_ns)) // the victim alone writes it
        atomic_store(&share->max_ns, (uint64_t)late_ns);
}

// Time in the run queue so far, the second number of schedstat; 0 on kernels without.
static int64_t queued_ns(int fd)
{
    char text[96];
    ssize_t len = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    if (len <= 0)
        return 0;
    text[len] = '\0';
    char *second = strchr(text, ' ');
    return second ? strtoll(second, NULL, 10) : 0;
}

void plant_steps(struct plant *plant, plant_fn operation, void *arg)
{
    plant_pin(plant->cpu_victim);
    uint64_t rounds = 1000000;
    rounds = rounds * (uint64_t)WORK_NS / (uint64_t)work_least_ns(rounds);
    int64_t usual_ns = work_least_ns(rounds);
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    atomic_store(&plant->share->ready, 1);
    while (!plant_stopped(plant)) {
        int64_t queued = queued_ns(fd), begin_ns = plant_now_ns();
        work(rounds);
        if (operation)
            operation(plant, arg);
        int64_t late_ns = plant_now_ns() - begin_ns - usual_ns;
        queued = queued_ns(fd) - queued;
        atomic_fetch_add(&plant->share->queued_ns, (uint64_t)queued);
        plant_count(plant, plant->cpu_counts ? late_ns : late_ns - queued);
        plant_sleep_ns(PLANT_MS);
    }
}

void plant_touch(char *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 4096)
        *(volatile char *)(memory + at) = 1;
}

char *plant_map(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    // Their number is what walks of the page table cost. It fails on a kernel without THP: well.
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    return memory;
}

char *plant_memory(size_t bytes)
{
    char *memory = plant_map(bytes);
    if (!memory) {
        fprintf(stderr, "plant: failed to map %zu bytes: %s\n", bytes, strerror(errno));
        _exit(4);
    }
    plant_touch(memory, bytes);
    return memory;
}

void plant_step_map(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    char *memory = plant_map(STEP_BYTES);
    if (!memory)
        return;
    plant_touch(memory, STEP_BYTES);
    munmap(memory, STEP_BYTES);
}
