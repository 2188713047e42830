// SPDX-License-Identifier: Apache-2.0
// The reader of the spool: the life of segments, a writer that ends at any moment, spools that are
// not ours, and bytes that nobody wrote on purpose: counted losses, never a crash.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/unit/gpu_world.h"
#include "tests/unit/runner.h"
#include "tracer/gpu/spool_reader.h"

static struct spool_world spool;
static struct spool_reader *reader;

struct seen {
    uint64_t count, sum, last;
    bool out_of_order;
};

static void see(void *context, const struct ug_rec_head *record)
{
    struct seen *seen = context;
    if (record->type != UG_REC_MARK)
        return;
    uint64_t value = ((const struct ug_rec_mark *)record)->value;
    seen->out_of_order |= seen->count && value <= seen->last;
    seen->last = value;
    seen->count++;
    seen->sum += value;
}

static void put(int writer, uint64_t value)
{
    struct ug_rec_mark mark = {.head = {UG_REC_MARK, sizeof mark, 1},
            .at_ns = 1,
            .value = value,
            .kind = UG_MARK_MODULE};
    spool_world_put(&spool, writer, &mark);
}

static void begin(void)
{
    struct error err = {0};
    spool_world_new(&spool);
    if (spool_reader_open(spool.fd, &reader, &err))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
}

static void end(void)
{
    spool_reader_close(reader);
    spool_world_free(&spool);
}

TEST(segments_go_round)
{
    begin();
    struct seen seen = {0};
    uint64_t count = 0;
    for (int round = 0; round < 50; round++) { // 13 times the spool
        for (int i = 0; i < 30000; i++)
            put(1, ++count);
        spool_reader_drain(reader, UINT64_MAX, see, &seen);
        CHECK_INT(seen.count, count); // of the segment that is being written, too
    }
    CHECK(!seen.out_of_order);
    CHECK_INT(seen.sum, count * (count + 1) / 2);
    uint32_t free_segments = 0;
    for (int i = 0; i < WORLD_SEGMENTS; i++)
        free_segments += spool.segments[i].state == UG_SEGMENT_FREE;
    CHECK_INT(free_segments, WORLD_SEGMENTS - 1);
    struct spool_damage damage;
    spool_reader_damage(reader, &damage);
    CHECK_INT(damage.records, 0);
    end();
}

TEST(a_segment_taken_again_before_it_is_cleared)
{
    begin();
    struct seen seen = {0};
    put(1, 1);
    spool_world_full(&spool, 1);
    spool_reader_drain(reader, UINT64_MAX, see, &seen);
    CHECK_INT(spool.segments[0].state, UG_SEGMENT_FREE);
    spool.segments[0].state = UG_SEGMENT_WRITING; // taken, and its owner was killed at once
    CHECK_INT(spool_reader_drain(reader, UINT64_MAX, see, &seen), 0);
    CHECK_INT(seen.count, 1);
    end();
}

TEST(what_was_read_of_a_segment_that_is_written_on_is_let_go)
{
    begin();
    struct seen seen = {0};
    uint64_t count = 0;
    for (int writer = 0; writer < 8; writer++)
        for (int i = 0; i < 2000; i++) // of 2,048
            put(writer, ++count);
    spool_reader_drain(reader, UINT64_MAX, see, &seen);
    CHECK_INT(seen.count, count);
    for (int writer = 0; writer < 8; writer++)
        put(writer, ++count); // not read yet
    spool_reader_let_go(reader);
    for (int writer = 0; writer < 8; writer++) {
        const struct ug_spool_segment *segment = &spool.segments[spool.at[writer]];
        CHECK_INT(segment->read >> UG_SPOOL_READ_BITS, segment->sequence);
        CHECK_INT(
                segment->read & ((1 << UG_SPOOL_READ_BITS) - 1), 2000 * sizeof(struct ug_rec_mark));
    }
    for (int writer = 0; writer < 8; writer++)
        for (int i = 0; i < 200; i++) // and to the next one
            put(writer, ++count);
    spool_reader_drain(reader, UINT64_MAX, see, &seen);
    CHECK_INT(seen.count, count);
    CHECK_INT(seen.sum, count * (count + 1) / 2);
    struct spool_damage damage;
    spool_reader_damage(reader, &damage);
    CHECK_INT(damage.records, 0);
    end();
}

static bool is_taken_full;

// The library believes that the reader is gone: the segment is another take's, with records for the
// next reader.
static void take_again(void)
{
    static bool is_done;
    if (is_done)
        return;
    is_done = true;
    spool_world_full(&spool, 1);
    spool.segments[0].committed = 0;
    spool.segments[0].state = UG_SEGMENT_FREE;
    for (uint64_t i = 1; i <= 2000; i++)
        put(2, i);
    if (is_taken_full)
        spool_world_full(&spool, 2);
}

// In place of the system's, for all of this program: a reader that punches is stopped right before
// it.
int fallocate(int fd, int mode, off_t offset, off_t length)
{
    take_again();
    return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

TEST(a_reader_that_was_stopped_does_nothing_to_the_next_take)
{
    begin();
    struct seen seen = {0};
    struct error err = {0};
    struct spool_reader *next = NULL;
    for (uint64_t i = 1; i <= 2000; i++)
        put(1, i);
    spool_reader_drain(reader, UINT64_MAX, see, &seen);
    spool_reader_let_go(reader); // stopped in it
    take_again();
    spool_reader_let_go(reader); // or before it
    CHECK_INT(spool.at[2], 0);
    CHECK(spool.segments[0].read >> UG_SPOOL_READ_BITS < spool.segments[0].sequence);
    CHECK_INT(spool_reader_open(spool.fd, &next, &err), 0);
    seen = (struct seen){0};
    spool_reader_drain(next, UINT64_MAX, see, &seen);
    CHECK_INT(seen.count, 2000);
    CHECK_INT(seen.sum, 2000 * 2001 / 2);
    spool_reader_close(next);
    end();
}

// It believes that its reader is gone, which was only stopped.
static void take_away(void *context, const struct ug_rec_head *record)
{
    see(context, record);
    spool.segments[0].committed = 0;
    spool.segments[0].state = UG_SEGMENT_HELD;
}

TEST(a_segment_that_the_library_has_taken_back_is_left_to_it)
{
    begin();
    struct seen seen = {0};
    put(1, 1);
    spool_world_full(&spool, 1);
    spool_reader_drain(reader, UINT64_MAX, take_away, &seen);
    CHECK_INT(seen.count, 1);
    CHECK_INT(spool.segments[0].state, UG_SEGMENT_HELD);
    CHECK_INT(spool_reader_drain(reader, UINT64_MAX, see, &seen), 0);
    spool_reader_skip(reader);
    CHECK_INT(spool.segments[0].state, UG_SEGMENT_HELD);
    end();
}

// The same, and the segment has been taken again.
static void take_away_and_write(void *context, const struct ug_rec_head *record)
{
    see(context, record);
    take_again();
}

static void drain_while_it_is_taken_again(bool is_full)
{
    begin();
    struct seen seen = {0};
    struct error err = {0};
    struct spool_reader *next = NULL;
    put(1, 1);
    int old = spool.at[1];
    spool_world_full(&spool, 1);
    is_taken_full = is_full;
    spool_reader_drain(reader, UINT64_MAX, take_away_and_write, &seen);
    CHECK_INT(seen.count, 1);
    CHECK_INT(spool.segments[old].sequence, 2);
    CHECK_INT(spool_reader_open(spool.fd, &next, &err), 0);
    seen = (struct seen){0};
    spool_reader_drain(next, UINT64_MAX, see, &seen);
    CHECK_INT(seen.count, 2000);
    spool_reader_close(next);
    end();
}

TEST(a_segment_that_is_written_again_is_left_to_the_next_reader)
{
    drain_while_it_is_taken_again(false);
}

TEST(a_segment_that_is_full_again_is_left_to_the_next_reader)
{
    drain_while_it_is_taken_again(true);
}

TEST(a_spool_that_is_full_drops)
{
    begin();
    struct seen seen = {0};
    uint64_t room = (uint64_t)WORLD_SEGMENTS * (WORLD_SEGMENT_BYTES / sizeof(struct ug_rec_mark));
    for (uint64_t i = 1; i <= room + 1000; i++)
        put(1, i);
    CHECK_INT(spool.header->counts[UG_PRODUCER_PYTHON].dropped, 1000);
    while (spool_reader_drain(reader, 1 << 20, see, &seen)) // in turns
        ;
    CHECK_INT(seen.count, (long long)room);
    CHECK(!seen.out_of_order);
    end();
}

// A child writes as fast as it can and is killed; what it published is whole.
TEST(writer_killed_at_any_moment)
{
    for (int turn = 0; turn < 20; turn++) {
        begin();
        struct seen seen = {0};
        pid_t pid = fork();
        if (pid == 0) {
            for (uint64_t i = 1;; i++)
                put(1, i);
        }
        int64_t end_ns = clock_monotonic_ns() + 2000000 + turn * 300000;
        while (clock_monotonic_ns() < end_ns)
            spool_reader_drain(reader, 4 << 20, see, &seen);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        while (spool_reader_drain(reader, UINT64_MAX, see, &seen))
            ;
        struct spool_damage damage;
        spool_reader_damage(reader, &damage);
        CHECK_INT(damage.records, 0);
        CHECK(!seen.out_of_order);
        const struct ug_spool_counts *counts = &spool.header->counts[UG_PRODUCER_PYTHON];
        // The one it was about to write is counted and not there.
        CHECK(seen.count + counts->dropped <= counts->seen &&
                seen.count + counts->dropped + 1 >= counts->seen);
        end();
    }
}

TEST(asks_and_answers)
{
    begin();
    spool_reader_ask(reader, UG_SPOOL_ACTIVE, UG_WANT_KERNELS, 123);
    CHECK_INT(spool.header->want_state, UG_SPOOL_ACTIVE);
    CHECK_INT(spool.header->want_kinds, UG_WANT_KERNELS);
    CHECK_INT(spool.header->heartbeat_ns, 123);
    CHECK_INT(spool.header->generation, 1);
    CHECK(!spool_reader_done(reader));
    spool.header->done_generation = 1;
    CHECK(spool_reader_done(reader));
    spool_reader_heartbeat(reader, 456);
    CHECK_INT(spool.header->heartbeat_ns, 456);
    memset(spool.header->reason, 'x', sizeof spool.header->reason);
    struct ug_spool_header header;
    spool_reader_header(reader, &header);
    CHECK_INT(strlen(header.reason), sizeof header.reason - 1);
    end();
}

struct times {
    uint64_t times[16];
    int count;
};

// All CLOCK_MONOTONIC times of a record.
static void see_times(void *context, const struct ug_rec_head *record)
{
    struct times *seen = context;
    const struct ug_rec_clock *clock = (const void *)record;
    const struct ug_rec_nccl *nccl = (const void *)record;
    const struct ug_rec_gc *gc = (const void *)record;
    uint64_t *to = seen->times + seen->count, *begin = to;
    if (record->type == UG_REC_MARK)
        *to++ = ((const struct ug_rec_mark *)record)->at_ns;
    if (record->type == UG_REC_GRAPH_NODE)
        *to++ = ((const struct ug_rec_graph_node *)record)->at_ns;
    if (record->type == UG_REC_CLOCK)
        *to++ = clock->before_ns, *to++ = clock->gpu_ns, *to++ = clock->after_ns;
    if (record->type == UG_REC_GC)
        *to++ = gc->start_ns, *to++ = gc->end_ns;
    if (record->type == UG_REC_NCCL)
        *to++ = nccl->enqueued_ns, *to++ = nccl->ended_ns, *to++ = nccl->kernel_start_ns,
        *to++ = nccl->kernel_end_ns;
    if (record->type == UG_REC_CALL)
        *to++ = ((const struct ug_rec_call *)record)->start_gpu;
    seen->count += (int)(to - begin);
}

TEST(of_another_clock)
{
    const struct ug_rec_mark mark = {.head = {UG_REC_MARK, sizeof mark, 1}, .at_ns = 5100};
    const struct ug_rec_clock clock = {.head = {UG_REC_CLOCK, sizeof clock, 1},
            .before_ns = 5200,
            .gpu_ns = 70,
            .after_ns = 5210};
    const struct ug_rec_gc gc = {
            .head = {UG_REC_GC, sizeof gc, 1}, .start_ns = 5300, .end_ns = 5310};
    const struct ug_rec_nccl nccl = {.head = {UG_REC_NCCL, sizeof nccl, 1},
            .enqueued_ns = 5400,
            .kernel_start_ns = 5410,
            .kernel_end_ns = 5420}; // ended_ns 0: not seen
    const struct ug_rec_graph_node node = {
            .head = {UG_REC_GRAPH_NODE, sizeof node, 1}, .at_ns = 5500};
    const struct ug_rec_call call = {.head = {UG_REC_CALL, sizeof call, 1}, .start_gpu = 5600};
    const void *const records[] = {&mark, &clock, &gc, &nccl, &node, &call};
    for (int i = 0; i < 2; i++) {
        const uint64_t ahead = i ? (uint64_t)-400 : 5000; // of two processes
        const uint64_t wanted[] = {5100 - ahead, 5200 - ahead, 70, 5210 - ahead, 5300 - ahead,
                5310 - ahead, 5400 - ahead, 0, 5410 - ahead, 5420 - ahead, 5500 - ahead, 5600};
        struct times seen = {0};
        begin();
        spool_reader_set_clock(reader, (int64_t)ahead);
        for (size_t k = 0; k < sizeof records / sizeof *records; k++)
            spool_world_put(&spool, 1, records[k]);
        spool_reader_drain(reader, UINT64_MAX, see_times, &seen);
        CHECK_INT(seen.count, sizeof wanted / sizeof *wanted);
        for (int k = 0; k < seen.count; k++)
            CHECK_INT(seen.times[k], wanted[k]);
        // The process knows by its own clock whether we live.
        spool_reader_ask(reader, UG_SPOOL_ACTIVE, UG_WANT_KERNELS, 10000);
        CHECK_INT(spool.header->heartbeat_ns, 10000 + ahead);
        spool_reader_heartbeat(reader, 20000);
        CHECK_INT(spool.header->heartbeat_ns, 20000 + ahead);
        end();
    }
}

TEST(found_in_the_process_and_not_in_its_child)
{
    int fd = -1;
    spool_world_new(&spool);
    CHECK_INT(spool_reader_find(getpid(), &fd), 0);
    close(fd);
    pid_t pid = fork(); // has its parent's spool open, too
    if (pid == 0) {
        pause();
        _exit(0);
    }
    CHECK_INT(spool_reader_find(pid, &fd), -ENOENT);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(spool_reader_find(pid, &fd) < 0);
    spool_world_free(&spool);
    CHECK_INT(spool_reader_find(getpid(), &fd), -ENOENT);
}

static void check_refused(const char *why)
{
    struct error err = {0};
    struct spool_reader *none = NULL;
    CHECK_INT(spool_reader_open(spool.fd, &none, &err), -EPROTO);
    CHECK_CONTAINS(err.text, why);
}

TEST(what_is_no_spool_is_refused)
{
    spool_world_new(&spool);
    struct ug_spool_header good = *spool.header;
    spool.header->version = 99;
    check_refused("another upgate");
    *spool.header = good;
    spool.header->magic = 1;
    check_refused("not a spool");
    *spool.header = good;
    spool.header->segment_count = 1 << 20;
    check_refused("do not fit");
    spool.header->segment_count = UINT32_MAX;
    check_refused("do not fit");
    *spool.header = good;
    spool.header->segment_bytes = 1u << 31;
    check_refused("do not fit");
    *spool.header = good;
    spool.header->data_offset = UINT64_MAX - 100;
    check_refused("do not fit");
    spool.header->data_offset = 0;
    check_refused("do not fit");
    spool_world_free(&spool);
    spool.fd = memfd_create(UG_SPOOL_NAME, MFD_CLOEXEC); // cannot be sealed
    good.pid = 0;
    CHECK_INT(write(spool.fd, &good, sizeof good), (long long)sizeof good);
    CHECK_INT(ftruncate(spool.fd, (off_t)good.file_bytes), 0);
    check_refused("shorter");
    close(spool.fd);
}

// A file of holes: 256 GiB that cost its maker nothing, and a day of whoever looks through them.
TEST(a_spool_that_is_too_large_is_refused)
{
    spool_world_new(&spool);
    struct ug_spool_header vast = *spool.header;
    spool_world_free(&spool);
    vast.segment_bytes = 4 << 20;
    vast.segment_count = 65536;
    vast.data_offset =
            UG_SPOOL_HEADER_BYTES + (uint64_t)vast.segment_count * sizeof(struct ug_spool_segment);
    spool.fd = memfd_create(UG_SPOOL_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(spool.fd,
                (off_t)(vast.data_offset + (uint64_t)vast.segment_count * vast.segment_bytes)) < 0)
        runner_skip("no file of that size here");
    CHECK_INT(pwrite(spool.fd, &vast, sizeof vast, 0), (long long)sizeof vast);
    check_refused("do not fit");
    close(spool.fd);
}

static void count_strings(void *context, const struct ug_rec_head *record)
{
    *(int *)context += record->type == UG_REC_STRING;
}

TEST(a_look_ahead_has_an_end)
{
    begin();
    int seen = 0;
    for (int i = 0; i < 3; i++) {
        spool_world_string(&spool, 1, "text");
        put(1, 1);
        spool_world_full(&spool, 1);
    }
    uint64_t all = spool_reader_peek(reader, UINT64_MAX, count_strings, &seen);
    CHECK_INT(seen, 3);
    CHECK_INT(spool_reader_peek(reader, all, count_strings, &seen), (long long)all);
    CHECK_INT(seen, 6);
    CHECK_INT(
            spool_reader_peek(reader, all / 3 + 1, count_strings, &seen), (long long)(all / 3 * 2));
    CHECK_INT(seen, 8);
    CHECK_INT(spool_reader_peek(reader, 0, count_strings, &seen), 0);
    CHECK_INT(seen, 8);
    end();
}

static uint64_t dice_state = 20260101;

static uint32_t dice(uint32_t below)
{
    dice_state = dice_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(dice_state >> 33) % below;
}

// Records of the right size with anything in them, records of any size, states and counts that
// cannot be.
static void damage_spool(uint32_t *correlation)
{
    static const uint32_t words[] = {
            0, 1, 2, 5, 0x7fffffff, 0x80000000, UINT32_MAX, 0xfffff000, 4096, 100};
    union {
        unsigned char bytes[512];
        uint32_t words[128];
        struct ug_rec_head head;
    } record;
    for (int i = 0; i < 300; i++) {
        for (int word = 0; word < 128; word++)
            record.words[word] =
                    dice(3) ? words[dice(sizeof words / sizeof *words)] : dice(UINT32_MAX >> 1);
        record.head.type = (uint16_t)(dice(20) ? 1 + dice(UG_REC_TYPE_COUNT) : dice(65536));
        record.head.bytes = (uint16_t)(dice(50) ? 16 + 8 * dice(60) : dice(65536));
        uint16_t told = record.head.bytes;
        record.head.bytes = told > sizeof record ? sizeof record : told;
        int writer = (int)dice(4);
        spool_world_put(&spool, writer, &record);
        if (told != record.head.bytes && spool.at[writer] >= 0) {
            struct ug_spool_segment *segment = &spool.segments[spool.at[writer]];
            memcpy(spool.data + (size_t)spool.at[writer] * WORLD_SEGMENT_BYTES +
                            segment->committed - record.head.bytes +
                            offsetof(struct ug_rec_head, bytes),
                    &told, sizeof told);
        }
        ++*correlation;
    }
    struct ug_spool_segment *segment = &spool.segments[dice(WORLD_SEGMENTS)];
    if (dice(4) == 0)
        segment->committed = dice(3) ? dice(WORLD_SEGMENT_BYTES) : dice(UINT32_MAX);
    if (dice(8) == 0)
        segment->state = dice(5);
}

TEST(any_bytes_into_a_store)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/upgate-gpu-fuzz-%d.db", (int)getpid());
    for (int story = 0; story < 12; story++) {
        struct store *store = gpu_world_store(path);
        struct gpu_recorder *gpu = NULL;
        struct error err = {0};
        spool_world_new(&spool);
        CHECK_INT(gpu_recorder_new(store, 1, &gpu_world_callbacks, NULL, &gpu, &err), 0);
        CHECK_INT(gpu_recorder_attach_fd(gpu, 100, spool.fd, &err), 0);
        uint32_t correlation = 0;
        for (int round = 0; round < 8; round++) {
            for (int i = 0; i < 8; i++)
                spool_world_clock(&spool,
                        5000000000ull + (uint64_t)round * 700000000 + (uint64_t)i * 50000000,
                        9000000000ull + (uint64_t)round * 700000000 + (uint64_t)i * 50000000);
            damage_spool(&correlation);
            memset(spool.header->reason, dice(256), sizeof spool.header->reason);
            spool.header->state = dice(6);
            CHECK_INT(gpu_recorder_poll(gpu, 5000000000ll + round * 700000000ll, &err), 0);
        }
        spool.header->segment_bytes = 1u << 30; // after it was mapped
        spool.header->segment_count = UINT32_MAX;
        spool.header->data_offset = UINT64_MAX;
        CHECK_INT(gpu_recorder_stop(gpu, 0, &err), 0);
        struct gpu_totals totals;
        gpu_recorder_totals(gpu, &totals);
        CHECK(totals.dropped > 0);
        int64_t lost = -1;
        CHECK_INT(
                store_get_int(store, &lost, &err,
                        "SELECT sum(dropped) FROM ledger WHERE producer = 'gpu.spool' AND breach = 1",
                        ""),
                0);
        CHECK(lost > 0);
        char *check = store_get_text(store, "PRAGMA integrity_check", "");
        CHECK_STR(check, "ok");
        free(check);
        gpu_recorder_free(gpu);
        store_close(store);
        spool_world_free(&spool);
    }
    unlink(path);
}
