// SPDX-License-Identifier: Apache-2.0
// The NCCL plugin against an NCCL that plays every version of the interface, with the spool in an
// array. What must hold: one record an operation, all of its members, an end only when it was seen,
// and nothing that NCCL does late can hurt.
#include "tests/mock/fake_nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/mock/nccl_rig.h"
#include "tests/unit/runner.h"
#include "tracer/inject/nccl/nccl.h"

enum { SLOTS = 1024, THREADED_OPS = 20000 }; // operations in flight of a communicator; of a thread
enum { MASK_KERNEL_CH = 64 };

extern const char ncclProfiler_v1[], ncclProfiler_v2[], ncclProfiler_v3[], ncclProfiler_v4[],
        ncclProfiler_v5[], ncclProfiler_v6[];

static const struct fake_call all_reduce = {.function = "AllReduce",
        .datatype = "ncclFloat32",
        .algorithm = "RING",
        .protocol = "SIMPLE",
        .count = 262144,
        .channels = 4,
        .announced = 4,
        .warps = 16};
static const struct fake_call send_call = {.function = "Send",
        .datatype = "ncclBfloat16",
        .count = 1000,
        .peer = 1,
        .channels = 2,
        .announced = 2};

static void load(int version)
{
    static const char *const plugins[] = {NULL, ncclProfiler_v1, ncclProfiler_v2, ncclProfiler_v3,
            ncclProfiler_v4, ncclProfiler_v5, ncclProfiler_v6};
    fake_load(version, plugins[version]);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// Polls as the control thread does, until there are so many records.
static void wait_for(uint32_t count)
{
    uint64_t end = now_ns() + 20000000000u;
    while (rig_count() < count && now_ns() < end) {
        nccl_poll();
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    CHECK_INT(rig_count(), count);
}

static void check_all_reduce(const struct ug_rec_nccl *record, uint64_t begun_ns)
{
    CHECK_INT(record->head.type, UG_REC_NCCL);
    CHECK_INT(record->head.bytes, sizeof(*record));
    CHECK_INT(record->head.tid, gettid());
    CHECK_STR(rig_text(record->function), "AllReduce");
    CHECK_STR(rig_text(record->datatype), "ncclFloat32");
    CHECK_STR(rig_text(record->algorithm), "RING");
    CHECK_STR(rig_text(record->protocol), "SIMPLE");
    CHECK_STR(rig_text(record->communicator_name), "pg0");
    CHECK(record->communicator == 0xfeedf00dcafe1234u);
    CHECK_INT(record->count, 262144);
    CHECK_INT(record->element_bytes, 4);
    CHECK_INT(record->rank, 1);
    CHECK_INT(record->ranks, fake_version >= 4 ? 2 : 0);
    CHECK_INT(record->peer, UINT32_MAX);
    CHECK_INT(record->channels, fake_version < 3 ? 64 : 4);
    CHECK_INT(record->warps, 16);
    CHECK_INT(record->plugin_version, fake_version);
    CHECK(record->enqueued_ns >= begun_ns && record->enqueued_ns <= record->ended_ns);
    CHECK(record->ended_ns <= now_ns());
    if (fake_version < 4) {
        CHECK_INT(record->kernel_start_ns, 0);
        CHECK_INT(record->kernel_end_ns, 0);
    } else {
        CHECK(record->kernel_start_ns >= begun_ns &&
                record->kernel_start_ns < record->kernel_end_ns);
        CHECK(record->kernel_end_ns <= record->ended_ns);
    }
}

TEST(a_collective_in_every_version)
{
    rig_kinds(UG_WANT_NCCL);
    for (int version = 1; version <= FAKE_VERSIONS; version++) {
        struct fake_comm comm;
        struct fake_task task;
        uint32_t before = rig_count();
        load(version);
        CHECK_STR(fake_log, "upgate");
        fake_comm_init(&comm, 0xfeedf00dcafe1234u, "pg0", 2, 1);
        CHECK((fake_mask & 6) == 6);
        CHECK_INT(!!(fake_mask & MASK_KERNEL_CH), version >= 3);
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t begun_ns = now_ns();
            fake_enqueue(&comm, &all_reduce, &task);
            CHECK(task.event != NULL);
            CHECK_INT(rig_count(), before + i); // that it is enqueued says nothing of its end
            fake_run(&task, 4);
            if (version >= 4)
                CHECK_INT(rig_count(), before + i + 1); // the last of the announced channels
            wait_for(before + i + 1);
            check_all_reduce(rig_record(before + i), begun_ns);
            CHECK_INT(rig_record(before + i)->sequence, i);
        }
        fake_comm_finalize(&comm);
        CHECK_INT(rig_count(), before + 3);
    }
    CHECK_INT(rig_header()->counts[UG_PRODUCER_NCCL].seen, 18);
    CHECK_INT(rig_header()->counts[UG_PRODUCER_NCCL].dropped, 0);
    CHECK_INT(rig_header()->nccl_version, 22809);
    CHECK(rig_starts() > 0);
}

TEST(sends_and_receives)
{
    rig_kinds(UG_WANT_NCCL);
    for (int version = 1; version <= FAKE_VERSIONS; version++) {
        struct fake_comm comm;
        struct fake_task send, receive, self;
        struct fake_call call = send_call;
        uint32_t at = rig_count();
        load(version);
        fake_comm_init(&comm, 7, NULL, 4, 2);
        fake_enqueue(&comm, &call, &send);
        call.function = "Recv";
        call.peer = 3;
        fake_enqueue(&comm, &call, &receive);
        fake_run(&receive, 2);
        fake_run(&send, 2);
        wait_for(at + 2);
        for (int i = 0; i < 2; i++) {
            const struct ug_rec_nccl *record = rig_record(at + (uint32_t)i);
            bool is_send = !strcmp(rig_text(record->function), "Send");
            CHECK_STR(rig_text(record->function), is_send ? "Send" : "Recv");
            CHECK_INT(record->peer, is_send ? 1 : 3);
            CHECK_INT(record->rank, 2);
            CHECK_INT(record->count, 1000);
            CHECK_INT(record->element_bytes, 2);
            CHECK_STR(rig_text(record->datatype), "ncclBfloat16");
            CHECK_INT(record->algorithm, 0);
            CHECK_INT(record->communicator_name, 0);
            CHECK(record->communicator == 7 && record->ended_ns > 0);
            if (version >= 3)
                CHECK_INT(record->channels, 2);
        }
        CHECK(rig_record(at)->function != rig_record(at + 1)->function);
        call.peer = 2; // to itself: a copy that no channel tells of
        fake_enqueue(&comm, &call, &self);
        if (version >= 3)
            CHECK_INT(rig_count(), at + 3);
        wait_for(at + 3);
        CHECK_INT(rig_record(at + 2)->ended_ns, 0);
        fake_comm_finalize(&comm);
    }
}

TEST(operations_of_a_group_end_in_any_order)
{
    rig_kinds(UG_WANT_NCCL);
    struct fake_comm comm;
    struct fake_task tasks[3];
    load(5);
    fake_comm_init(&comm, 9, "pg", 2, 0);
    for (int i = 0; i < 3; i++)
        fake_enqueue(&comm, &all_reduce, &tasks[i]);
    for (int channel = 0; channel < 3; channel++) // a channel may start after another has stopped
        for (int i = 2; i >= 0; i--) {
            fake_channel_start(&tasks[i], channel, 0);
            fake_channel_stop(&tasks[i], channel, 0);
        }
    nccl_poll();
    CHECK_INT(rig_count(), 0);
    for (int i = 2; i >= 0; i--) {
        fake_channel_start(&tasks[i], 3, 0);
        CHECK_INT(rig_count(), 2 - i);
        fake_channel_stop(&tasks[i], 3, 0);
    }
    CHECK_INT(rig_count(), 3);
    for (uint32_t i = 0; i < 3; i++)
        CHECK_INT(rig_record(i)->sequence, 2 - i);
}

TEST(channels_that_nobody_announced)
{
    rig_kinds(UG_WANT_NCCL);
    struct fake_comm comm;
    struct fake_task task;
    struct fake_call call = all_reduce;
    call.algorithm = "NVLS";
    call.announced = 0;
    load(5);
    fake_comm_init(&comm, 9, "pg", 8, 0);
    fake_enqueue(&comm, &call, &task);
    fake_run(&task, 16);
    CHECK_INT(rig_count(), 0);
    wait_for(1);
    CHECK_INT(rig_record(0)->channels, 16);
    CHECK(rig_record(0)->ended_ns > 0);
    CHECK_STR(rig_text(rig_record(0)->algorithm), "NVLS");
}

TEST(finalize_writes_what_is_in_flight)
{
    rig_kinds(UG_WANT_NCCL);
    for (int version = 1; version <= FAKE_VERSIONS; version++) {
        struct fake_comm comm, next;
        struct fake_task never, half, broken, task;
        uint32_t at = rig_count();
        load(version);
        fake_comm_init(&comm, 1, "a", 2, 0);
        fake_enqueue(&comm, &all_reduce, &never);
        fake_enqueue(&comm, &all_reduce, &half);
        fake_enqueue_broken(&comm, &all_reduce, &broken);
        fake_channel_start(&half, 0, 0);
        fake_channel_start(&half, 1, 0);
        fake_channel_stop(&half, 0, 0);
        CHECK_INT(rig_count(), at);
        fake_comm_finalize(&comm);
        CHECK_INT(rig_count(), at + 3);
        for (uint32_t i = 0; i < 3; i++)
            CHECK_INT(rig_record(at + i)->ended_ns, 0);
        // Late: the communicator's place and its slots have a new owner.
        fake_comm_init(&next, 2, "b", 2, 0);
        fake_enqueue(&next, &all_reduce, &task);
        fake_channel_stop(&half, 1, 0);
        fake_channel_start(&never, 0, 0);
        CHECK(never.children[0] == NULL);
        fake_stop_raw(broken.event);
        fake_enqueue(&comm, &all_reduce, &broken);
        fake_run(&broken, 4);
        fake_run(&task, 4);
        fake_comm_finalize(&next);
        fake_comm_finalize(&comm);
        CHECK(rig_count() >= at + 4);
    }
}

TEST(handles_that_are_none)
{
    rig_kinds(UG_WANT_NCCL);
    struct fake_comm comm;
    struct fake_task task = {.comm = &comm, .mask = 127};
    load(5);
    fake_comm_init(&comm, 1, "a", 2, 0);
    static const uint64_t bad[] = {0, 1, ~0ull, 2ull << 61, 3ull << 61, 2ull << 61 | 1,
            3ull << 61 | 1, 3ull << 61 | 127ull << 44, 2ull << 61 | 128ull << 44, 0x7fffdeadbeef};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fake_stop_raw((void *)(uintptr_t)bad[i]);
        task.event = (void *)(uintptr_t)bad[i];
        fake_channel_start(&task, 0, 1);
        task.children[0] = (void *)(uintptr_t)bad[i];
        fake_channel_stop(&task, 0, 1);
    }
    load(2);
    fake_comm_init(&comm, 1, "a", 2, 0);
    fake_enqueue(&comm, &all_reduce, &task);
    fake_foreign_proxy(&comm,
            task.event); // PXN: an address of another process, which may look like ours
    fake_comm_finalize(&comm);
    CHECK_INT(rig_count(), 1);
    CHECK_INT(rig_record(0)->ended_ns, 0);
}

TEST(dormant_costs_nothing_and_is_switched_on_later)
{
    for (int version = 1; version <= FAKE_VERSIONS; version++) {
        struct fake_comm old, young;
        struct fake_task task;
        uint32_t at = rig_count();
        load(version);
        fake_comm_init(&old, 1, "old", 2, 0);
        CHECK_INT(fake_mask, 0);
        fake_enqueue(&old, &all_reduce, &task);
        CHECK(task.event == NULL);
        rig_kinds(UG_WANT_KERNELS);
        CHECK_INT(fake_mask, 0);
        rig_kinds(UG_WANT_KERNELS | UG_WANT_NCCL);
        CHECK((fake_mask & 6) == 6 && !(fake_mask & MASK_KERNEL_CH));
        fake_enqueue(&old, &all_reduce, &task);
        if (version >= 3)
            CHECK_INT(rig_count(), at + 1); // nothing more will come
        wait_for(at + 1);
        CHECK_INT(rig_record(at)->ended_ns, 0);
        CHECK_INT(rig_record(at)->count, 262144);
        fake_comm_init(&young, 2, "young", 2, 0); // the mask is everybody's
        CHECK(!(fake_mask & MASK_KERNEL_CH));
        fake_comm_finalize(&young);
        fake_comm_finalize(&old);
        fake_comm_init(&young, 3, "alone", 2, 0);
        CHECK_INT(!!(fake_mask & MASK_KERNEL_CH), version >= 3);
        rig_kinds(0);
        CHECK_INT(fake_mask, 0);
        fake_comm_finalize(&young);
        CHECK_INT(rig_count(), at + 1);
    }
}

TEST(the_environment_decides_on_channels)
{
    struct fake_comm comm;
    load(5);
    setenv("UPGATE_NCCL_CHANNELS", "1", 1);
    fake_comm_init(&comm, 1, "a", 2, 0);
    CHECK_INT(fake_mask, 0);
    rig_kinds(UG_WANT_NCCL);
    CHECK(fake_mask & MASK_KERNEL_CH);
    fake_comm_finalize(&comm);
    setenv("UPGATE_NCCL_CHANNELS", "0", 1);
    fake_comm_init(&comm, 1, "a", 2, 0);
    CHECK(fake_mask && !(fake_mask & MASK_KERNEL_CH));
}

TEST(a_process_traced_from_its_start_may_be_on_in_a_moment)
{
    struct fake_comm comm;
    load(5);
    rig_header()->want_state = UG_SPOOL_ACTIVE;
    rig_header()->want_kinds = UG_WANT_DEFAULT;
    fake_comm_init(&comm, 1, "a", 2, 0);
    CHECK(fake_mask & MASK_KERNEL_CH);
    struct fake_task task;
    fake_enqueue(&comm, &all_reduce, &task);
    CHECK(task.event == NULL);
    fake_run(&task, 4);
    CHECK_INT(rig_count(), 0);
    rig_kinds(UG_WANT_DEFAULT);
    fake_enqueue(&comm, &all_reduce, &task);
    fake_run(&task, 4);
    CHECK_INT(rig_count(), 1);
    fake_comm_finalize(&comm);
    rig_kinds(0);
    rig_header()->state = UG_SPOOL_REFUSED;
    fake_comm_init(&comm, 1, "a", 2, 0);
    CHECK_INT(fake_mask, 0);
}

TEST(switched_off_in_flight)
{
    struct fake_comm comm;
    struct fake_task task, other;
    rig_kinds(UG_WANT_NCCL);
    load(5);
    fake_comm_init(&comm, 1, "a", 2, 0);
    fake_enqueue(&comm, &all_reduce, &task);
    fake_channel_start(&task, 0, 0);
    rig_kinds(0);
    CHECK_INT(rig_count(), 1);
    CHECK_INT(rig_record(0)->ended_ns, 0);
    fake_channel_stop(&task, 0, 0);
    for (int i = 1; i < 4; i++)
        fake_channel_start(&task, i, 0);
    rig_kinds(UG_WANT_NCCL);
    fake_enqueue(&comm, &all_reduce, &other);
    for (int i = 1; i < 4; i++)
        fake_channel_stop(&task, i, 0);
    CHECK_INT(rig_count(), 2); // the first is not written twice
    CHECK_INT(rig_record(1)->sequence, 1);
}

TEST(a_full_pool_is_counted)
{
    static struct fake_task tasks[SLOTS + 50];
    struct fake_comm comm;
    rig_kinds(UG_WANT_NCCL);
    load(5);
    fake_comm_init(&comm, 1, "a", 2, 0);
    for (int i = 0; i < SLOTS + 50; i++)
        fake_enqueue(&comm, &all_reduce, &tasks[i]);
    CHECK_INT(rig_header()->counts[UG_PRODUCER_NCCL].dropped, 50);
    for (int i = 0; i < SLOTS + 50; i++) {
        CHECK_INT(tasks[i].event != NULL, i < SLOTS);
        fake_run(&tasks[i], 4);
    }
    CHECK_INT(rig_count(), SLOTS);
    CHECK_INT(rig_header()->counts[UG_PRODUCER_NCCL].seen, SLOTS + 50);
    fake_enqueue(&comm, &all_reduce, &tasks[0]);
    fake_run(&tasks[0], 4);
    CHECK_INT(rig_count(), SLOTS + 1);
}

TEST(more_communicators_than_there_is_room_for)
{
    static struct fake_comm comms[140];
    struct fake_task task;
    rig_kinds(UG_WANT_NCCL);
    load(5);
    for (int i = 0; i < 140; i++)
        fake_comm_init(&comms[i], (uint64_t)i + 1, "a", 2, 0);
    for (int i = 0; i < 140; i++) {
        CHECK(comms[i].context != NULL);
        fake_enqueue(&comms[i], &all_reduce, &task);
        fake_run(&task, 4);
    }
    CHECK_INT(rig_count(), 128);
    CHECK_INT(rig_header()->counts[UG_PRODUCER_NCCL].seen, 140);
    CHECK_INT(rig_header()->counts[UG_PRODUCER_NCCL].dropped, 12);
    for (int i = 0; i < 140; i++)
        fake_comm_finalize(&comms[i]);
    fake_comm_init(&comms[0], 1, "a", 2, 0);
    fake_enqueue(&comms[0], &all_reduce, &task);
    fake_run(&task, 4);
    CHECK_INT(rig_count(), 129);
}

TEST(only_counted_when_nothing_is_to_be_kept)
{
    struct fake_comm comm;
    struct fake_task task;
    rig_kinds(UG_WANT_NCCL | UG_WANT_NOTHING_KEPT);
    load(5);
    fake_comm_init(&comm, 1, "a", 2, 0);
    fake_enqueue(&comm, &all_reduce, &task);
    fake_run(&task, 4);
    CHECK_INT(rig_count(), 0);
    CHECK_INT(rig_header()->counts[UG_PRODUCER_NCCL].seen, 1);
}

TEST(kernel_times_are_on_the_hosts_clock)
{
    struct fake_comm comm;
    struct fake_task task;
    rig_kinds(UG_WANT_NCCL);
    load(5);
    fake_comm_init(&comm, 1, "a", 2, 0);
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < 50; i++) {
        fake_enqueue(&comm, &all_reduce, &task);
        uint64_t start = now_ns();
        for (int c = 0; c < 4; c++)
            fake_channel_start(&task, c, start + FAKE_GPU_EPOCH + (uint64_t)c);
        uint64_t end = now_ns();
        for (int c = 0; c < 4; c++)
            fake_channel_stop(&task, c, end + FAKE_GPU_EPOCH - (uint64_t)c);
        const struct ug_rec_nccl *record = rig_record(i);
        CHECK(record->kernel_start_ns >= start); // never before the truth
        CHECK(record->kernel_end_ns <= record->ended_ns);
        CHECK_INT(record->kernel_end_ns - record->kernel_start_ns, end - start);
        if (record->kernel_start_ns - start < best)
            best = record->kernel_start_ns - start;
    }
    CHECK(best < 2000000); // late by the shortest delay; a busy machine may take its time
}

TEST(stamps_of_another_kernel_are_no_times)
{
    struct fake_comm comm;
    struct fake_task task;
    rig_kinds(UG_WANT_NCCL);
    load(5);
    fake_comm_init(&comm, 1, "a", 2, 0);
    fake_enqueue(&comm, &all_reduce, &task);
    fake_run(&task, 4);
    CHECK(rig_record(0)->kernel_start_ns > 0);
    fake_enqueue(&comm, &all_reduce, &task);
    uint64_t old = now_ns() + FAKE_GPU_EPOCH - 3000000000u; // of a graph replay, 3 s ago
    for (int c = 0; c < 4; c++) {
        fake_channel_start(&task, c, old);
        fake_channel_stop(&task, c, old + 1000);
    }
    CHECK_INT(rig_count(), 2);
    CHECK_INT(rig_record(1)->kernel_start_ns, 0);
    CHECK_INT(rig_record(1)->kernel_end_ns, 0);
    CHECK_INT(rig_record(1)->ended_ns, 0);
}

TEST(a_replay_is_enqueued_when_it_runs)
{
    struct fake_comm comm;
    struct fake_task task;
    struct fake_call call = all_reduce;
    rig_kinds(UG_WANT_NCCL);
    load(5);
    fake_comm_init(&comm, 1, "a", 2, 0);
    call.is_captured = true;
    uint64_t begun_ns = now_ns();
    fake_enqueue(&comm, &call, &task);
    fake_run(&task, 4);
    CHECK_INT(rig_count(), 1);
    CHECK(rig_record(0)->enqueued_ns >= begun_ns && rig_record(0)->enqueued_ns <= now_ns());
}

TEST(copy_engines)
{
    struct fake_comm comm;
    rig_kinds(UG_WANT_NCCL);
    load(6);
    fake_comm_init(&comm, 77, "a", 2, 1);
    fake_copy_engine(&comm, "AllGather", 4096);
    CHECK_INT(rig_count(), 1);
    CHECK_STR(rig_text(rig_record(0)->function), "AllGather");
    CHECK_STR(rig_text(rig_record(0)->algorithm), "CE");
    CHECK_STR(rig_text(rig_record(0)->protocol), "MC");
    CHECK_INT(rig_record(0)->count, 4096);
    CHECK_INT(rig_record(0)->communicator, 77);
    CHECK_INT(rig_record(0)->ended_ns, 0);
}

TEST(a_forked_child_has_no_communicators)
{
    struct fake_comm comm;
    struct fake_task task;
    rig_kinds(UG_WANT_NCCL);
    load(5);
    fake_comm_init(&comm, 1, "a", 2, 1);
    fake_enqueue(&comm, &all_reduce, &task);
    pid_t child = fork();
    if (child == 0) {
        nccl_forget();
        fake_comm_finalize(&comm);
        fake_enqueue(&comm, &all_reduce, &task);
        nccl_kinds_changed(0);
        _exit(task.event == NULL && rig_count() == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
}

// --- threads
// ----------------------------------------------------------------------------------------

enum { QUEUE = 256 };

struct world {
    struct fake_comm comm;
    struct fake_task queue[QUEUE];
    uint32_t enqueued, done; // by the launching thread, by the proxy
    bool is_over;
};

static void *launch_run(void *arg)
{
    struct world *world = arg;
    for (uint32_t i = 0; i < THREADED_OPS; i++) {
        while (i - __atomic_load_n(&world->done, __ATOMIC_ACQUIRE) >= QUEUE)
            sched_yield();
        fake_enqueue(&world->comm, &all_reduce, &world->queue[i % QUEUE]);
        __atomic_store_n(&world->enqueued, i + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void *proxy_run(void *arg)
{
    struct world *world = arg;
    for (uint32_t i = 0; i < THREADED_OPS; i++) {
        while (__atomic_load_n(&world->enqueued, __ATOMIC_ACQUIRE) <= i)
            sched_yield();
        fake_run(&world->queue[i % QUEUE], 4);
        __atomic_store_n(&world->done, i + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

// Two communicators, each with a thread that launches and a proxy; beside them one that does as
// `toggles` says.
static void play(struct world *worlds, bool toggles)
{
    pthread_t threads[4];
    for (int i = 0; i < 2; i++) {
        fake_comm_init(&worlds[i].comm, (uint64_t)i + 1, i ? "b" : "a", 2, 0);
        pthread_create(&threads[2 * i], NULL, launch_run, &worlds[i]);
        pthread_create(&threads[2 * i + 1], NULL, proxy_run, &worlds[i]);
    }
    for (bool is_over = false; !is_over;) {
        if (toggles)
            rig_kinds(0);
        nccl_poll();
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
        if (toggles)
            rig_kinds(UG_WANT_NCCL);
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
        is_over = true;
        for (int i = 0; i < 2; i++)
            is_over = is_over && __atomic_load_n(&worlds[i].done, __ATOMIC_ACQUIRE) == THREADED_OPS;
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        fake_comm_finalize(&worlds[i].comm);
}

TEST(two_communicators_on_four_threads)
{
    static struct world worlds[2];
    static uint8_t seen[2][THREADED_OPS];
    rig_kinds(UG_WANT_NCCL);
    load(5);
    play(worlds, false);
    CHECK_INT(rig_count(), 2 * THREADED_OPS);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < rig_count(); i++) {
        const struct ug_rec_nccl *record = rig_record(i);
        if (record->communicator - 1 > 1 || record->sequence >= THREADED_OPS || !record->ended_ns ||
                record->channels != 4 || seen[record->communicator - 1][record->sequence]++)
            wrong++;
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(rig_header()->counts[UG_PRODUCER_NCCL].dropped, 0);
}

TEST(switched_on_and_off_under_load)
{
    static struct world worlds[2];
    static uint8_t seen[2][THREADED_OPS];
    setenv("UPGATE_NCCL_CHANNELS", "1", 1);
    rig_kinds(UG_WANT_NCCL);
    load(5);
    play(worlds, true);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < rig_count(); i++) {
        const struct ug_rec_nccl *record = rig_record(i);
        if (record->communicator - 1 > 1 || record->sequence >= THREADED_OPS ||
                seen[record->communicator - 1][record->sequence]++)
            wrong++;
    }
    CHECK_INT(wrong, 0);
    CHECK(rig_count() > 0 && rig_count() <= 2 * THREADED_OPS);
}
