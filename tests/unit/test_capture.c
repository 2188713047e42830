// SPDX-License-Identifier: Apache-2.0
// What the loader does without a kernel: the frames of a tracepoint are taken off stacks, every
// program has its source, and the table of sources is whole.
#include "bpf/capture_inside.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/runner.h"

static struct capture capture;

static void add_ranges(void)
{
    capture_add_tracing(&capture, 100, 110);
    capture_add_tracing(&capture, 50, 60);
    capture_sort_tracing(&capture);
}

TEST(gap_loses_leading_frames_only)
{
    static const uint64_t frames[9] = {105, 55, 1, 105, /* user */ 105, 3, /* waker */ 50, 59, 60};
    struct {
        struct ug_gap gap;
        uint64_t frames[9];
    } record = {.gap = {.head = {UG_EVENT_GAP, sizeof(record)},
                        .kernel_count = 4,
                        .user_count = 2,
                        .waker_count = 3,
                        .lock = 7}};
    const struct ug_gap *gap;
    const uint64_t *left;

    add_ranges();
    memcpy(record.frames, frames, sizeof(frames));
    gap = (const struct ug_gap *)capture_strip(&capture, &record.gap.head);
    left = (const uint64_t *)(gap + 1);
    CHECK_INT(gap->kernel_count, 2);
    CHECK_INT(gap->user_count, 2);
    CHECK_INT(gap->waker_count, 1);
    CHECK_INT(gap->head.size, sizeof(*gap) + 5 * 8);
    CHECK_INT(gap->lock, 7);
    CHECK(left[0] == 1 && left[1] == 105 && left[2] == 105 && left[3] == 3 && left[4] == 60);
    CHECK_INT(record.gap.kernel_count, 4); // the ring is not ours to write
}

TEST(lock_keeps_its_owner)
{
    struct {
        struct ug_lock lock;
        uint64_t frames[4];
    } record = {
        .lock = {.head = {UG_EVENT_LOCK, sizeof(record)}, .kernel_count = 2, .owner_count = 2},
        .frames = {101, 1, 102, 2}};
    const struct ug_lock *lock;
    const uint64_t *left;

    add_ranges();
    lock = (const struct ug_lock *)capture_strip(&capture, &record.lock.head);
    left = (const uint64_t *)(lock + 1);
    CHECK_INT(lock->kernel_count, 1);
    CHECK_INT(lock->owner_count, 2);
    CHECK(left[0] == 1 && left[1] == 102 && left[2] == 2);
}

TEST(nothing_to_take_off)
{
    struct {
        struct ug_fact fact;
        uint64_t frames[1];
    } record = {.fact = {.head = {UG_EVENT_FACT, sizeof(record)}, .kernel_count = 1},
                .frames = {1}};

    CHECK(capture_strip(&capture, &record.fact.head) == &record.fact.head); // no ranges known
    add_ranges();
    CHECK(capture_strip(&capture, &record.fact.head) == &record.fact.head);
}

TEST(sources_are_whole)
{
    for (int id = 0; id < SOURCE_COUNT; id++) {
        CHECK(sources[id].name && sources[id].gives && sources[id].lost);
        for (size_t i = 0; i < 8 && sources[id].programs[i]; i++)
            CHECK_INT(source_of_program(sources[id].programs[i]), id);
    }
    CHECK_INT(source_of_program("no such program"), SOURCE_COUNT);
}

TEST(what_is_missing_is_a_sentence)
{
    const char *const *missing;
    size_t count;

    capture_lack(&capture, SOURCE_SIGNALS, "no tracepoint %s on this kernel", "signal_generate");
    missing = capture_missing(&capture, &count);
    CHECK_INT(count, 1);
    CHECK_STR(missing[0], "signals: no tracepoint signal_generate on this kernel; "
                          "who sent SIGSTOP is told from wakers only");
    CHECK(capture.lost[SOURCE_SIGNALS] && !capture.lost[SOURCE_LOCKS]);
    for (int i = 0; i < 2 * CAPTURE_MISSING_MAX; i++)
        capture_lack(&capture, SOURCE_LOCKS, "again");
    capture_missing(&capture, &count);
    CHECK_INT(count, CAPTURE_MISSING_MAX);
    capture_forget_missing(&capture);
    CHECK(!capture.lost[SOURCE_SIGNALS]);
}
