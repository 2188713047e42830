// SPDX-License-Identifier: Apache-2.0
// Looks at a recording that goes on: one that keeps what the looks before have read sees what one
// sees that reads all of it.
#include <stdio.h>

#include "common/containers/arena.h"
#include "reports/analyse/trace/trace_cache.h"
#include "tests/unit/stall_story.h"

struct looks {
    struct story story;
    struct trace_cache *cache;
    struct arena *arena;
    struct trace *trace; // of the last look
};

static void looks_wait(struct looks *looks, struct story_gap gap)
{
    gap.kernel =
            gap.kernel ? gap.kernel : "jbd2_log_wait_commit;ext4_sync_file;do_fsync" STORY_SYSCALL;
    gap.state = 2;
    gap.in = gap.in > 0 ? gap.in : gap.out + 50;
    gap.waking = gap.flags & UG_GAP_UNFINISHED ? 0 : gap.in;
    story_gap(&looks->story, gap);
}

static void looks_open(struct looks *looks)
{
    *looks = (struct looks){.cache = trace_cache_new()};
    story_open(&looks->story);
    story_sql(&looks->story, "UPDATE recording SET end_ns = NULL");
    story_counter(&looks->story, "stat", "ctxt", 500, 1);
    for (int i = 0; i < 40; i++)
        looks_wait(looks,
                (struct story_gap){.out = 1000 + i * 100, .target = i % 3 ? "/log" : "pipe:[7]"});
    for (int i = 0; i < 20; i++)
        looks_wait(looks,
                (struct story_gap){
                        .out = 1000 + i * 200, .in = 1000.5 + i * 200, .flags = UG_GAP_SHORT});
    story_samples(&looks->story, (struct story_samples){.from = 0, .to = 5000, .user = "work"});
}

static void looks_close(struct looks *looks)
{
    trace_free(looks->trace);
    arena_free(looks->arena);
    trace_cache_free(looks->cache);
    story_close(&looks->story);
}

static const char *looks_leaf(const struct trace *trace, uint32_t stack)
{
    const struct trace_stack *row = &trace->stacks[stack];
    return row->count ? trace->frames[trace->stack_frames[row->first]].name : "";
}

static void looks_check_gaps(const struct trace *got, const struct trace_gap *a,
        const struct trace *want, const struct trace_gap *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CHECK_INT(a[i].out, b[i].out);
        CHECK_INT(a[i].in, b[i].in);
        CHECK_INT(a[i].thread, b[i].thread);
        CHECK_INT(a[i].waker, b[i].waker);
        CHECK_INT(a[i].owner, b[i].owner);
        CHECK_INT(a[i].flags, b[i].flags);
        CHECK_STR(got->texts[a[i].target], want->texts[b[i].target]);
        CHECK_STR(looks_leaf(got, a[i].kernel), looks_leaf(want, b[i].kernel));
        CHECK_STR(looks_leaf(got, a[i].user), looks_leaf(want, b[i].user));
        CHECK_INT(got->stacks[a[i].kernel].count, want->stacks[b[i].kernel].count);
        CHECK(!memcmp(&got->stacks[a[i].kernel].marks, &want->stacks[b[i].kernel].marks,
                sizeof(struct marks)));
    }
}

// The last seconds up to now_ms, which become the recorder's last one, by both ways.
static void looks_look(struct looks *looks, double now_ms, int64_t seconds)
{
    struct story *story = &looks->story;
    struct error err = {0};
    struct trace *fresh = NULL;
    trace_free(looks->trace);
    arena_free(looks->arena);
    looks->trace = NULL;
    looks->arena = arena_new();
    story_counter(story, "stat", "ctxt", now_ms, 2);
    CHECK_INT(trace_load_last(story->store, story->recording, seconds * 1000000000, looks->cache,
                      looks->arena, &looks->trace, &err),
            0);
    CHECK_INT(trace_load_last(story->store, story->recording, seconds * 1000000000, NULL,
                      looks->arena, &fresh, &err),
            0);
    CHECK_INT(looks->trace->gap_count, fresh->gap_count);
    CHECK_INT(looks->trace->short_count, fresh->short_count);
    CHECK_INT(looks->trace->sample_count, fresh->sample_count);
    CHECK_INT(looks->trace->windows[0].begin, fresh->windows[0].begin);
    looks_check_gaps(looks->trace, looks->trace->gaps, fresh, fresh->gaps, fresh->gap_count);
    looks_check_gaps(looks->trace, looks->trace->shorts, fresh, fresh->shorts, fresh->short_count);
    for (size_t i = 0; i < fresh->sample_count; i++) {
        CHECK_INT(looks->trace->samples[i].at, fresh->samples[i].at);
        CHECK_INT(looks->trace->samples[i].thread, fresh->samples[i].thread);
        CHECK_STR(looks_leaf(looks->trace, looks->trace->samples[i].user),
                looks_leaf(fresh, fresh->samples[i].user));
    }
    trace_free(fresh);
}

// Once more by what is kept alone, whatever the store says by now.
static void looks_kept(struct looks *looks)
{
    trace_free(looks->trace);
    arena_free(looks->arena);
    looks->trace = NULL;
    looks->arena = arena_new();
    CHECK_INT(trace_load_last(looks->story.store, looks->story.recording, INT64_C(3000000000),
                      looks->cache, looks->arena, &looks->trace, NULL),
            0);
}

TEST(each_look_sees_what_came_since)
{
    struct looks looks;
    looks_open(&looks);
    looks_look(&looks, 5000, 3);
    CHECK_INT(looks.trace->gap_count, 30);
    size_t kept = looks.cache->rows.sample_count;
    CHECK(kept > 590 && kept < 610);
    int64_t other = story_other(&looks.story, 77, "late", "late 77"); // who came in between
    for (int i = 0; i < 10; i++)
        looks_wait(&looks,
                (struct story_gap){.out = 5000 + i * 100,
                        .waker = other,
                        .target = "/new",
                        .kernel = "futex_wait;do_futex" STORY_SYSCALL});
    story_samples(
            &looks.story, (struct story_samples){.from = 5000, .to = 6000, .user = "other_work"});
    looks_look(&looks, 6000, 3);
    CHECK_INT(looks.trace->gap_count, 30);
    CHECK_INT(looks.cache->gap_row, 70);
    looks_look(&looks, 6100, 3); // nothing came
    // What has been read is not read again.
    story_sql(&looks.story, "UPDATE gap SET state = 77");
    looks_kept(&looks);
    // the recorder came 100 ms further: one wait has left the window
    CHECK_INT(looks.trace->gap_count, 29);
    for (size_t i = 0; i < looks.trace->gap_count; i++)
        CHECK_INT(looks.trace->gaps[i].state, 2);
    looks_close(&looks);
}

TEST(a_wait_that_goes_on_is_read_anew)
{
    struct looks looks;
    looks_open(&looks);
    looks_wait(&looks, (struct story_gap){.out = 4950, .in = 5000, .flags = UG_GAP_UNFINISHED});
    looks_look(&looks, 5000, 3);
    CHECK_INT(looks.trace->gap_count, 31);
    CHECK_INT(looks.cache->gap_row, 60);
    // The recorder did not ask again: what stands behind it comes, and it stays.
    looks_wait(&looks, (struct story_gap){.thread = looks.story.worker, .out = 5050});
    looks_look(&looks, 5200, 3);
    CHECK_INT(looks.cache->gap_row, 60);
    // It has come back; its row's number is another's now.
    story_sql(&looks.story, "DELETE FROM gap WHERE id >= 61");
    looks_wait(&looks,
            (struct story_gap){.thread = looks.story.worker, .out = 5050, .target = "/other"});
    looks_wait(&looks, (struct story_gap){.out = 4950, .in = 5300});
    looks_look(&looks, 5400, 3);
    CHECK_INT(looks.cache->gap_row, 62);
    for (size_t i = 0; i < looks.trace->gap_count; i++)
        CHECK(!(looks.trace->gaps[i].flags & UG_GAP_UNFINISHED));
    looks_close(&looks);
}

TEST(a_window_that_changes)
{
    struct looks looks;
    looks_open(&looks);
    looks_look(&looks, 5000, 1);
    CHECK_INT(looks.trace->gap_count, 10);
    looks_look(&looks, 5000, 4);
    CHECK_INT(looks.trace->gap_count, 40);
    looks_look(&looks, 5000, 60);
    CHECK_INT(looks.trace->gap_count, 40);
    looks_look(&looks, 5000, 2);
    CHECK_INT(looks.trace->gap_count, 20);
    looks_close(&looks);
}

// --max-size has emptied a table: its numbers begin again, below or beyond the last one that was
// read.
TEST(numbers_that_are_given_anew)
{
    struct looks looks;
    looks_open(&looks);
    looks_look(&looks, 5000, 3);
    story_sql(&looks.story, "DELETE FROM gap");
    story_sql(&looks.story, "DELETE FROM sample");
    looks_look(&looks, 5100, 3);
    CHECK_INT(looks.trace->gap_count, 0);
    CHECK_INT(looks.trace->sample_count, 0);
    for (int i = 0; i < 5; i++)
        looks_wait(&looks, (struct story_gap){.out = 5100 + i * 100});
    looks_look(&looks, 5700, 3);
    CHECK_INT(looks.trace->gap_count, 5);
    story_sql(&looks.story, "DELETE FROM gap");
    for (int i = 0; i < 9; i++)
        looks_wait(&looks, (struct story_gap){.out = 5700 + i * 100});
    story_samples(&looks.story, (struct story_samples){.from = 5700, .to = 6600, .user = "work"});
    looks_look(&looks, 6700, 3);
    CHECK_INT(looks.trace->gap_count, 9);
    looks_close(&looks);
}

// The recorder names a stack of user space when it has time, a Python one at its next look.
TEST(names_that_come_later)
{
    struct looks looks;
    looks_open(&looks);
    looks_wait(&looks, (struct story_gap){.out = 4900, .user = "[not resolved]"});
    looks_wait(&looks, (struct story_gap){.out = 4910, .user = "pthread_mutex_lock;work;main"});
    looks_look(&looks, 5000, 3);
    int64_t stack = story_stack(&looks.story, 'u', "[not resolved]"),
            named = story_stack(&looks.story, 'u', "step;main");
    char sql[160];
    snprintf(sql, sizeof sql,
            "UPDATE stack SET depth = 2, frames = (SELECT frames FROM stack WHERE id = %lld) WHERE id = %lld",
            (long long)named, (long long)stack);
    story_sql(&looks.story, sql);
    looks_look(&looks, 5200, 3); // compares
    size_t found = 0;
    for (size_t i = 0; i < looks.trace->gap_count; i++)
        found += !strcmp(looks_leaf(looks.trace, looks.trace->gaps[i].user), "step");
    CHECK_INT(found, 1);
    // What has its names is not read again.
    story_sql(&looks.story, "UPDATE frame SET name = 'changed'");
    looks_kept(&looks);
    for (size_t i = 0; i < looks.trace->gap_count; i++)
        CHECK_STR(looks_leaf(looks.trace, looks.trace->gaps[i].kernel), "jbd2_log_wait_commit");
    looks_close(&looks);
}

// More than is kept: each look reads all of it, as before.
TEST(too_much_to_be_kept)
{
    struct looks looks;
    looks_open(&looks);
    story_samples(&looks.story,
            (struct story_samples){.from = 4000, .to = 5000, .user = "work", .every = 0.015});
    looks_look(&looks, 5000, 3);
    CHECK(looks.trace->sample_count > 65536);
    CHECK_INT(looks.cache->rows.sample_count, 0);
    looks_look(&looks, 5100, 3);
    looks_close(&looks);
}
