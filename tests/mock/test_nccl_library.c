// SPDX-License-Identifier: Apache-2.0
// The NCCL plugin inside the real library, loaded by NCCL alone, without any CUDA: the way from the
// environment and from a recorder's wish to the activation mask, and what stands in the spool after
// an exit and after a kill.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contracts/spool.h"
#include "tests/mock/fake_nccl.h"
#include "tests/unit/runner.h"

enum { MASK_KERNEL_CH = 64, DEADLINE_MS = 20000 };

static const struct fake_call all_reduce = {.function = "AllReduce",
        .datatype = "ncclFloat32",
        .algorithm = "RING",
        .protocol = "LL128",
        .count = 4194304,
        .channels = 8,
        .announced = 8,
        .warps = 8};

struct spool {
    uint8_t *base;
    struct ug_spool_header *header;
};

static void *load(void)
{
    void *library = dlopen(NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL); // as NCCL opens its plugins
    CHECK(library != NULL);
    void *plugin = library ? dlsym(library, "ncclProfiler_v5") : NULL;
    CHECK(plugin != NULL);
    if (!plugin)
        exit(1);
    fake_load(5, plugin);
    return library;
}

// The spool of a process, as a recorder finds it. No base: it has none.
static struct spool spool_open(pid_t pid)
{
    char path[64], target[128];
    struct spool spool = {0};
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && !spool.base && (entry = readdir(directory));) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
        ssize_t bytes = readlink(path, target, sizeof(target) - 1);
        if (bytes <= 0)
            continue;
        target[bytes] = '\0';
        struct stat status;
        int fd = strstr(target, UG_SPOOL_NAME) ? open(path, O_RDWR | O_CLOEXEC) : -1;
        if (fd < 0 || fstat(fd, &status))
            continue;
        void *base = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        spool.base = base == MAP_FAILED ? NULL : base;
        close(fd);
    }
    if (directory)
        closedir(directory);
    spool.header = (struct ug_spool_header *)spool.base;
    return spool;
}

// Records of NCCL in the spool, and the last of them.
static uint32_t records(
        const struct spool *spool, struct ug_rec_nccl *ret_last, uint32_t *ret_strings)
{
    const struct ug_spool_header *header = spool->header;
    const struct ug_spool_segment *segments = (const void *)(spool->base + UG_SPOOL_HEADER_BYTES);
    uint32_t count = 0;
    *ret_strings = 0;
    for (uint32_t i = 0; i < header->segment_count; i++) {
        const uint8_t *data =
                spool->base + header->data_offset + (uint64_t)i * header->segment_bytes;
        uint32_t committed = __atomic_load_n(&segments[i].committed, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&segments[i].state, __ATOMIC_ACQUIRE) == UG_SEGMENT_FREE)
            continue;
        for (uint32_t at = 0; at < committed;) {
            const struct ug_rec_head *head = (const void *)(data + at);
            if (head->type == UG_REC_NCCL) {
                memcpy(ret_last, head, sizeof(*ret_last));
                count++;
            }
            *ret_strings += head->type == UG_REC_STRING;
            at += head->bytes;
        }
    }
    return count;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void want(const struct spool *spool, uint32_t state, uint32_t kinds)
{
    struct ug_spool_header *header = spool->header;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    header->heartbeat_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    header->want_state = state;
    header->want_kinds = kinds;
    uint32_t generation = __atomic_add_fetch(&header->generation, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &header->generation, FUTEX_WAKE, 1000, NULL, NULL, 0);
    for (int i = 0; i < DEADLINE_MS &&
            __atomic_load_n(&header->done_generation, __ATOMIC_ACQUIRE) != generation;
            i++)
        nap();
    CHECK_INT(header->done_generation, generation);
    CHECK_INT(header->state, state);
}

TEST(traced_from_the_start)
{
    struct fake_comm comm;
    struct fake_task task;
    struct ug_rec_nccl last = {0};
    uint32_t strings;
    setenv("UPGATE_TRACE", "0x40", 1);
    load();
    fake_comm_init(&comm, 42, "default_pg", 2, 1);
    for (int i = 0; i < DEADLINE_MS && !(fake_mask & MASK_KERNEL_CH); i++)
        nap();
    CHECK(fake_mask & MASK_KERNEL_CH);
    struct spool spool = spool_open(getpid());
    CHECK(spool.base != NULL);
    for (int i = 0; i < DEADLINE_MS && spool.header->state != UG_SPOOL_ACTIVE; i++)
        nap();
    CHECK_INT(spool.header->have_kinds, UG_WANT_NCCL);
    for (int i = 0; i < 100; i++) {
        fake_enqueue(&comm, &all_reduce, &task);
        fake_run(&task, 8);
    }
    CHECK_INT(records(&spool, &last, &strings), 100);
    CHECK_INT(strings, 5);
    CHECK_INT(last.count * last.element_bytes, 16 << 20);
    CHECK_INT(last.sequence, 99);
    CHECK_INT(last.ranks, 2);
    CHECK_INT(spool.header->nccl_version, 22809);
    CHECK_INT(spool.header->counts[UG_PRODUCER_NCCL].seen, 100);
    CHECK_INT(spool.header->counts[UG_PRODUCER_NCCL].dropped, 0);
}

TEST(switched_by_a_recorder)
{
    struct fake_comm comm;
    struct fake_task task;
    struct ug_rec_nccl last = {0};
    uint32_t strings;
    unsetenv("UPGATE_TRACE");
    void *library = load();
    fake_comm_init(&comm, 42, "pg", 2, 1);
    CHECK_INT(fake_mask, 0);
    struct spool spool = spool_open(getpid());
    CHECK(spool.base != NULL);
    for (uint32_t round = 1; round <= 3; round++) {
        want(&spool, UG_SPOOL_ACTIVE, UG_WANT_NCCL);
        CHECK(fake_mask != 0);
        fake_enqueue(&comm, &all_reduce, &task);
        CHECK_INT(records(&spool, &last, &strings), round);
        CHECK_INT(strings, 5 * round); // a new recorder knows no name
        want(&spool, UG_SPOOL_DORMANT, 0);
        CHECK_INT(fake_mask, 0);
        fake_enqueue(&comm, &all_reduce, &task);
        CHECK(task.event == NULL);
    }
    fake_comm_finalize(&comm);
    dlclose(library); // as NCCL does behind its last communicator
    load();
    want(&spool, UG_SPOOL_ACTIVE, UG_WANT_NCCL);
    fake_comm_init(&comm, 43, "pg", 2, 1);
    CHECK(fake_mask & MASK_KERNEL_CH);
    fake_enqueue(&comm, &all_reduce, &task);
    fake_run(&task, 8);
    CHECK_INT(records(&spool, &last, &strings), 4);
    CHECK_INT(last.communicator, 43);
}

// A child that has one operation behind it and one in flight, and tells when. It exits as soon as
// *ret_go is closed.
static pid_t child_start(int *ret_go)
{
    int pipes[2], go[2];
    char byte;
    CHECK_INT(pipe(pipes) | pipe(go), 0);
    pid_t child = fork();
    if (child == 0) {
        struct fake_comm comm;
        struct fake_task task, flying;
        close(go[1]);
        setenv("UPGATE_TRACE", "64", 1);
        load();
        fake_comm_init(&comm, 42, "pg", 2, 0);
        struct spool spool = spool_open(getpid());
        for (int i = 0; i < DEADLINE_MS && spool.header->state != UG_SPOOL_ACTIVE; i++)
            nap();
        fake_enqueue(&comm, &all_reduce, &task);
        fake_run(&task, 8);
        fake_enqueue(&comm, &all_reduce, &flying);
        fake_channel_start(&flying, 0, 0);
        if (write(pipes[1], "x", 1) != 1)
            _exit(2);
        exit(read(go[0], &byte, 1) != 0); // the parent opens the spool first
    }
    close(pipes[1]);
    close(go[0]);
    *ret_go = go[1];
    CHECK_INT(read(pipes[0], &byte, 1), 1);
    close(pipes[0]);
    return child;
}

TEST(killed)
{
    struct ug_rec_nccl last = {0};
    uint32_t strings;
    int status, go;
    pid_t child = child_start(&go);
    struct spool spool = spool_open(child);
    CHECK(spool.base != NULL);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(go);
    CHECK_INT(records(&spool, &last, &strings), 1);
    CHECK(last.ended_ns > 0);
}

TEST(exited_with_an_operation_in_flight)
{
    struct ug_rec_nccl last = {0};
    uint32_t strings;
    int status, go;
    pid_t child = child_start(&go);
    struct spool spool = spool_open(child);
    CHECK(spool.base != NULL);
    close(go);
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
    CHECK_INT(spool.header->state, UG_SPOOL_ENDED);
    CHECK_INT(records(&spool, &last, &strings), 2);
    CHECK_INT(last.ended_ns, 0);
}
