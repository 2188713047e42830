// SPDX-License-Identifier: Apache-2.0
// What the analysis says when data is missing, lost or damaged, the window is cut, or there is
// nothing; saving, folded stacks, the table of causes.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/random.h"
#include "reports/analyse/stalls/group.h"
#include "reports/analyse/trace/trace.h"
#include "tests/unit/stall_story.h"

static void one_wait(struct story *story, double out, double in)
{
    story_gap(story,
            (struct story_gap){.out = out,
                    .waking = in,
                    .in = in,
                    .state = 2,
                    .kernel = "jbd2_log_wait_commit;ext4_sync_file;do_fsync" STORY_SYSCALL,
                    .target = "/log"});
}

TEST(no_recording)
{
    struct story story;
    struct error err = {0};
    struct stalls *stalls = NULL;
    story_open(&story);
    struct stalls_opts opts = {.recording_id = 7};
    CHECK_INT(stalls_analyse(story.store, &opts, &stalls, &err), -ENOENT);
    CHECK_CONTAINS(err.text, "has no recording with this number");
    story_sql(&story, "DELETE FROM thread_total");
    story_sql(&story, "DELETE FROM thread");
    story_sql(&story, "DELETE FROM process");
    story_sql(&story, "DELETE FROM recording");
    CHECK_INT(stalls_analyse(story.store, NULL, &stalls, &err), -ENOENT);
    CHECK_CONTAINS(err.text, "upgate record");
    CHECK(!stalls);
    story_close(&story);
}

TEST(empty_window)
{
    struct story story;
    story_open_quiet(&story);
    story_sql(&story,
            "UPDATE recording SET end_ns = begin_ns, missing = '[\"no tracefs: softirqs "
            "are not seen\"]'");
    struct stalls *stalls = story_analyse(&story);
    CHECK_INT(stalls->count, 0);
    CHECK_INT(stalls->window_ns, 0);
    CHECK_INT(stalls->missing_count, 1);
    CHECK_INT(stalls->missing[0].kind, STALL_MISSING_SOURCE);
    CHECK_STR(stalls->missing[0].text, "no tracefs: softirqs are not seen");
    story_close(&story);
}

TEST(a_single_stall_counts)
{
    struct story story;
    story_open(&story);
    one_wait(&story, 4000, 4300);
    story_sql(&story, "UPDATE recording SET end_ns = begin_ns + 600000000000"); // 10 minutes
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "fsync_journal");
    CHECK_INT(top->count, 1);
    CHECK(!top->has_period);
    struct stalls_opts opts = {.share_min = 0.01};
    struct stalls *stalls = NULL;
    CHECK_INT(stalls_analyse(story.store, &opts, &stalls, NULL), 0);
    CHECK_INT(stalls->count, 0);
    stalls_free(stalls);
    story_close(&story);
}

TEST(a_main_thread_that_only_waits)
{
    struct story story;
    story_open_quiet(&story);
    story_total(&story, story.main, 5);
    story_gap(&story,
            (struct story_gap){.out = 100,
                    .waking = 9000,
                    .in = 9000,
                    .state = 1,
                    .kernel = "schedule;ep_poll;do_epoll_wait" STORY_SYSCALL});
    CHECK_STR(story_top(&story)->cause, "(none)");
    CHECK(story.stalls->quiet.known);
    CHECK_INT(story.stalls->quiet.tid, 1000);
    CHECK_INT(story.stalls->quiet_ns, 8900000000);
    CHECK_STR(story.stalls->quiet_function, "ep_poll");
    story_sql(&story, "UPDATE thread_total SET run_ns = 500000000"); // it does work
    story_analyse(&story);
    CHECK(!story.stalls->quiet.known);
    story_close(&story);
}

TEST(killed_recorder)
{
    struct story story;
    story_open(&story);
    one_wait(&story, 1000, 1300);
    story_sql(&story, "UPDATE recording SET end_ns = NULL");
    CHECK_STR(story_top(&story)->cause, "fsync_journal");
    CHECK_INT(story.stalls->window_ns, 1300000000); // to the last event
    CHECK_INT(story.stalls->breach_count, 1);
    CHECK_STR(story.stalls->breaches[0].producer, "recorder");
    CHECK(story.stalls->breaches[0].unended);
    double whole = story_top(&story)->confidence;
    story_counter(&story, "drops", "gap", 400, 100); // there was no time for the ledger
    story_counter(&story, "drops", "gap", 1200, 5000);
    story_counter(&story, "drops", "sample", 1200, 0);
    CHECK(story_top(&story)->confidence < whole);
    CHECK_INT(story.stalls->breach_count, 2);
    CHECK_STR(story.stalls->breaches[1].producer, "bpf.gap");
    CHECK_INT(story.stalls->breaches[1].count, 5000);
    CHECK(story.stalls->breaches[1].events);
    story_close(&story);
}

// A recording that goes on, of which the last second is asked for: what is older is not even read,
// and that it has no end is no fault.
TEST(the_last_of_a_recording_that_goes_on)
{
    struct story story;
    struct error err = {0};
    struct trace *trace = NULL;
    struct arena *arena = arena_new();
    story_open(&story);
    for (int i = 0; i < 50; i++)
        one_wait(&story, 1000 + i * 100, 1040 + i * 100);
    story_samples(&story, (struct story_samples){.from = 0, .to = 6000, .user = "work"});
    story_sql(&story, "UPDATE recording SET end_ns = NULL");
    story_counter(&story, "stat", "ctxt", 500, 1);
    story_counter(&story, "stat", "ctxt", 6000, 2); // the recorder's last second
    CHECK_INT(trace_load_last(story.store, story.recording, 1000000000, NULL, arena, &trace, &err),
            0);
    CHECK_INT(trace->gap_count, 10); // of those that ended in it
    CHECK(trace->sample_count > 190 && trace->sample_count < 210 &&
            trace->samples[0].at >= trace->windows[0].begin);
    CHECK_INT(trace->windows[0].begin, story_ns(5000));
    trace_free(trace);
    arena_free(arena);
    struct stalls *stalls = NULL;
    struct stalls_opts opts = {.recording_id = story.recording, .last_ns = 1000000000};
    CHECK_INT(stalls_analyse(story.store, &opts, &stalls, &err), 0);
    CHECK_STR(stalls->stalls[0].cause, "fsync_journal");
    CHECK_INT(stalls->stalls[0].count, 10);
    CHECK_INT(stalls->breach_count, 0);
    stalls_free(stalls);
    opts.last_ns = 60000000000; // more than there is: all
    CHECK_INT(stalls_analyse(story.store, &opts, &stalls, &err), 0);
    CHECK_INT(stalls->stalls[0].count, 50);
    stalls_free(stalls);
    story_close(&story);
}

// There are more of them with each second: the old ones are passed over, and what was dropped in
// all is known.
TEST(old_rows_of_a_recording_that_goes_on)
{
    struct story story;
    struct error err = {0};
    struct trace *trace = NULL;
    struct stalls *stalls = NULL;
    struct arena *arena = arena_new();
    story_open(&story);
    story_sql(&story, "UPDATE recording SET end_ns = NULL");
    for (int i = 0; i < 10; i++) {
        story_counter(&story, "stat", "ctxt", 500 + i * 1000, i);
        story_counter(&story, "drops", "gap", 500 + i * 1000, i * 10);
    }
    for (int i = 0; i < 80; i++)
        story_lock(&story,
                (struct story_lock){
                        .begin = 1000 + i * 100, .end = 1040 + i * 100, .kind = UG_LOCK_MUTEX});
    CHECK_INT(trace_load_last(story.store, story.recording, 3000000000, NULL, arena, &trace, &err),
            0);
    CHECK_INT(trace->windows[0].begin, story_ns(6500));
    CHECK_INT(trace->counter_count, 4);
    CHECK_INT(trace->lock_count, 25);
    CHECK(trace->counters_before > 0 && trace->counters_before < 14);
    trace_free(trace);
    arena_free(arena);
    CHECK_INT(stalls_analyse(
                      story.store, &(struct stalls_opts){.last_ns = 3000000000}, &stalls, &err),
            0);
    CHECK_INT(stalls->breach_count, 1);
    CHECK_INT(stalls->breaches[0].count, 90);
    stalls_free(stalls);
    story_close(&story);
}

// Of a store that forgets, the window begins where what is left does.
TEST(what_was_deleted_is_no_quiet_time)
{
    struct story story;
    story_open(&story);
    for (int i = 80; i < 90; i++)
        one_wait(&story, i * 100, i * 100 + 50);
    story_counter(&story, "stat", "ctxt", 8500, 1);
    CHECK_STR(story_top(&story)->cause, "fsync_journal");
    CHECK_INT(story.stalls->window_ns, STORY_WINDOW_MS * 1000000LL);
    story_sql(&story,
            "INSERT INTO ledger (producer, kind, dropped, breach) VALUES ('retention', 'gap', 100, 0)");
    CHECK_STR(story_top(&story)->cause, "fsync_journal");
    CHECK_INT(story.stalls->window_ns, 2500 * 1000000LL); // a second before the first count
    // An incident of `record --trigger` is a copy of what goes on, and a recorder that is killed
    // leaves none either: no ledger says what went.
    story_sql(&story, "DELETE FROM ledger WHERE producer = 'retention'");
    CHECK_STR(story_top(&story)->cause, "fsync_journal");
    CHECK_INT(story.stalls->window_ns, STORY_WINDOW_MS * 1000000LL);
    story_sql(&story, "UPDATE counter SET rowid = rowid + 100"); // those before it are gone
    CHECK_STR(story_top(&story)->cause, "fsync_journal");
    CHECK_INT(story.stalls->window_ns, 2500 * 1000000LL);
    story_close(&story);
}

TEST(drops_lower_the_confidence)
{
    struct story story;
    story_open(&story);
    one_wait(&story, 1000, 1300);
    double whole = story_top(&story)->confidence;
    CHECK(!story_top(&story)->doubts);
    story_sql(&story,
            "INSERT INTO ledger (producer, kind, seen, kept, dropped, breach, detail) "
            "VALUES ('bpf.gap', 'records', 1000, 600, 400, 1, 'ring full')");
    story_sql(&story,
            "INSERT INTO ledger (producer, kind, seen, kept, dropped, breach) VALUES "
            "('steps', 'tensor', 9, 1, 8, 0)");
    const struct stall *top = story_top(&story);
    CHECK(top->confidence < 0.85 * whole);
    CHECK_INT(top->doubts, STALL_DOUBT_LOST);
    CHECK_INT(story.stalls->breach_count, 1);
    CHECK_INT(story.stalls->breaches[0].count, 400);
    CHECK_STR(story.stalls->breaches[0].detail, "ring full");
    CHECK(story.stalls->breaches[0].events && !story.stalls->breaches[0].unended);
    story_close(&story);
}

TEST(references_that_lead_nowhere)
{
    struct story story;
    story_open(&story);
    one_wait(&story, 1000, 1300);
    CHECK_INT(store_commit(story.store, NULL), 0);
    story_sql(&story, "PRAGMA foreign_keys = OFF");
    story_sql(&story, "UPDATE stack SET frames = '[1,99999,\"x\",-4,2' WHERE kind = 'kernel'");
    story_sql(&story,
            "INSERT INTO gap (thread_id, out_ns, waking_ns, in_ns, state, flags, kernel_stack) "
            "VALUES (1, 5005000000000, 5005400000000, 5005400000000, 2, 0, 4242)");
    story_sql(&story, "UPDATE recording SET missing = 'not json'");
    story_analyse(&story);
    CHECK(story_find(&story, "fsync_journal"));
    CHECK(story_find(&story, "unknown"));
    CHECK_INT(story.stalls->missing_count, 0);
    story_close(&story);
}

TEST(attached_in_the_middle)
{
    struct story story;
    story_open(&story);
    story_gap(&story,
            (struct story_gap){.out = 0,
                    .waking = 700,
                    .in = 700,
                    .state = 2,
                    .flags = UG_GAP_NO_OUT,
                    .kernel =
                            "folio_wait_bit_common;filemap_get_pages;filemap_read" STORY_SYSCALL});
    story_gap(&story,
            (struct story_gap){.thread = story.worker,
                    .out = 9000,
                    .in = 10000,
                    .state = 0x104,
                    .flags = UG_GAP_UNFINISHED,
                    .kernel = "do_signal_stop;get_signal"});
    story_analyse(&story);
    const struct stall *read = story_find(&story, "disk_read"),
                       *stop = story_find(&story, "sigstop");
    CHECK(read && stop);
    CHECK(read->doubts & STALL_DOUBT_UNFINISHED);
    CHECK(!stop->culprit.known);
    CHECK(stop->confidence < 0.9);
    story_close(&story);
}

TEST(only_the_turns_of_a_side_count)
{
    struct story story;
    story_open(&story);
    story_sql(&story, "INSERT INTO side (id, name, config) VALUES (0, 'a', '{}'), (1, 'b', '{}')");
    story_sql(&story, "INSERT INTO workload (id, name, mode) VALUES (1, 'w', 'train')");
    story_sql(&story,
            "INSERT INTO pair (id, workload_id, idx, phase, seed, first_side, interleave, state, "
            "started_ns, ended_ns) VALUES (1, 1, 0, 'traced', 1, 0, 'slices', 'valid', 1, 2)");
    story_sql(&story,
            "INSERT INTO launch (id, pair_id, side, state, started_ns, ended_ns, "
            "covariates) VALUES (2, 1, 1, 'ok', 5000000000000, 5010000000000, '{}')");
    story_sql(&story,
            "INSERT INTO block (pair_id, couple, side, ran_first, begin_ns, active_ns) VALUES "
            "(1, 0, 0, 1, 5000000000000, 1000000000), "
            "(1, 0, 1, 0, 5001000000000, 1000000000), (1, 1, 1, 0, 5003000000000, 1000000000)");
    story_sql(&story,
            "INSERT INTO step (launch_id, rank, idx, begin_ns, dur_ns) VALUES (2, 0, 0, "
            "1000000000, 500000000), (2, 0, 1, 3000000000, 500000000)");
    story_sql(&story, "UPDATE recording SET launch_id = 2");
    story_gap(&story,
            (struct story_gap){.out = 1999,
                    .waking = 3000.5,
                    .in = 3001,
                    .state = 0x104,
                    .kernel = "do_signal_stop;get_signal"}); // frozen by us
    // over both turns
    story_gap(&story,
            (struct story_gap){.thread = story.worker,
                    .out = 1500,
                    .waking = 3300,
                    .in = 3300,
                    .state = 1,
                    .flags = UG_GAP_FROZEN,
                    .kernel = "do_sys_poll;do_restart_poll"});
    one_wait(&story, 3100, 3200);
    one_wait(&story, 5000, 6000); // the other side's turn
    const struct stall *top = story_top(&story);
    CHECK_INT(story.stalls->window_ns, 2000000000);
    CHECK_INT(story.stalls->launch_id, 2);
    CHECK_STR(top->cause, "fsync_journal");
    CHECK_INT(top->total_ns, 100000000);
    CHECK(top->has_steps);
    CHECK_INT(top->steps_total, 2);
    CHECK_INT(top->steps_hit, 1);
    CHECK_INT(story.stalls->count, 1);
    story_close(&story);
}

// Beyond every clock, or in sum beyond what anybody records: an error that says so.
TEST(times_out_of_range)
{
    static const struct {
        const char *sql, *says;
    } rows[] = {
            {"UPDATE recording SET end_ns = 9223372036854775807", "end_ns"},
            {"UPDATE recording SET end_ns = 2305843009213693951", "longer than nine years"},
            {"UPDATE gap SET out_ns = -9223372036854775808", "out_ns"},
            {"UPDATE gap SET in_ns = 2305843009213693952", "in_ns"},
            {"UPDATE gap SET out_ns = 5000000000000, in_ns = 200000000000000000",
                    "sum up to more than nine years"},
            {"INSERT INTO sample (thread_id, at_ns, cpu, why) VALUES (1, 9223372036854775807, 0, 1)",
                    "at_ns"},
            {"INSERT INTO host_fact (recording_id, what, begin_ns, end_ns, flags) VALUES (1, 1, -9223372036854775808, 7, 0)",
                    "begin_ns"},
            {"INSERT INTO counter VALUES (1, 7, 'stat', 'cpu0', 9223372036854775807)",
                    "value_count"},
            {"UPDATE process SET started_ns = -9223372036854775808", "started_ns"},
            {"UPDATE thread_total SET run_ns = 9223372036854775807", "run_ns"},
            {"INSERT INTO recorded_step VALUES (1, 0, 0, 9223372036854775807, 1)", "begin_ns"},
            {"INSERT INTO recorded_step VALUES (1, 0, 0, 2305843009213693951, 1)", "end_ns"},
            {"INSERT INTO connection VALUES (1, 1, '', '', 7, 9223372036854775807, 1, 0, 1, 0)",
                    "end_ns"},
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        struct story story;
        struct error err = {0};
        struct stalls *stalls = NULL;
        story_open(&story);
        one_wait(&story, 1000, 1300);
        one_wait(&story, 2000, 2300);
        story_sql(&story, "UPDATE recording SET end_ns = NULL"); // until the last event
        story_analyse(&story);
        story_sql(&story, rows[i / 2].sql);
        // gaps and samples of a large store are read by connections of their own
        bool apart = i % 2;
        if (apart) {
            story_sql(&story,
                    "INSERT INTO note (at_ns, level, text) VALUES (1, 'info', printf('%.*c', 600000, 'x'))");
            CHECK_INT(store_commit(story.store, &err), 0);
        }
        CHECK_INT(stalls_analyse(story.store, NULL, &stalls, &err), -EBADMSG);
        CHECK_CONTAINS(err.text, "is damaged");
        if (!apart || !strstr(err.text, "of a gap or of a sample"))
            CHECK_CONTAINS(err.text, rows[i / 2].says);
        CHECK(!stalls);
        story_close(&story);
    }
}

static char *detail(const struct stall *stall)
{
    char *text = malloc(64);
    snprintf(text, 64, "{\"cause\":\"%s\"}", stall->cause);
    return text;
}

static char *advice(const struct stall *stall)
{
    char *text = malloc(64);
    snprintf(text, 64, "do something about %s", stall->cause);
    return text;
}

static char *no_advice(const struct stall *stall)
{
    (void)stall;
    return NULL;
}

TEST(saved_and_saved_again)
{
    struct story story;
    struct error err = {0};
    int64_t value = 0;
    story_open(&story);
    one_wait(&story, 1000, 1300);
    one_wait(&story, 2000, 2300);
    story_analyse(&story);
    const struct stalls_words words = {advice, detail}, mute = {no_advice, detail};
    CHECK_INT(stalls_save(story.store, story.stalls, &words, &err), 0);
    CHECK_INT(stalls_save(story.store, story.stalls, &words, &err), 0);
    CHECK_INT(store_get_int(story.store, &value, NULL,
                      "SELECT count(*) FROM v_stall WHERE cause = 'fsync_journal' AND "
                      "victim_tid = 1000 AND period_ns IS NULL",
                      ""),
            0);
    CHECK_INT(value, 1);
    char *text = store_get_text(story.store, "SELECT detail FROM stall", "");
    CHECK_STR(text, "{\"cause\":\"fsync_journal\"}");
    free(text);
    text = store_get_text(story.store, "SELECT advice FROM stall", "");
    CHECK_STR(text, "do something about fsync_journal");
    free(text);
    CHECK_INT(stalls_save(story.store, story.stalls, &mute, &err), 0);
    text = store_get_text(story.store, "SELECT advice || detail FROM stall", "");
    CHECK_STR(text, "{\"cause\":\"fsync_journal\"}");
    free(text);
    story_close(&story);
}

static const char *leaf_of(const struct trace *trace, uint32_t stack)
{
    const struct trace_stack *row = &trace->stacks[stack];
    return row->count ? trace->frames[trace->stack_frames[row->first]].name : "(empty)";
}

// A store of many launches: of its stacks and frames only the recording's own are read, however far
// apart they are.
TEST(stacks_of_other_recordings_are_not_read)
{
    struct story story;
    struct error err = {0};
    struct trace *trace = NULL;
    struct arena *arena = arena_new();
    story_open_quiet(&story);
    story_gap(&story,
            (struct story_gap){.out = 1,
                    .waking = 3,
                    .in = 3,
                    .state = 1,
                    .kernel = "first;shared",
                    .user = "poll"});
    story_sql(&story,
            "INSERT INTO frame (id, name) WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n "
            "WHERE i < 1500) SELECT i, 'other ' || i FROM n");
    story_sql(&story,
            "INSERT INTO stack (kind, depth, frames) SELECT 'kernel', 1, '[' || id || ']' FROM frame WHERE "
            "id >= 1000");
    story_gap(&story,
            (struct story_gap){
                    .out = 10, .waking = 13, .in = 13, .state = 1, .kernel = "second;shared"});
    // behind all that is used
    story_sql(&story, "INSERT INTO stack (kind, depth, frames) VALUES ('kernel', 1, '[1500]')");
    CHECK_INT(trace_load(story.store, story.recording, arena, &trace, &err), 0);
    CHECK_INT(trace->stack_count, 4);
    CHECK_INT(trace->frame_count, 4);
    CHECK_INT(trace->gap_count, 2);
    CHECK_STR(leaf_of(trace, trace->gaps[0].kernel), "first");
    CHECK_STR(leaf_of(trace, trace->gaps[0].user), "poll");
    CHECK_STR(leaf_of(trace, trace->gaps[1].kernel), "second");
    CHECK_STR(leaf_of(trace, trace->gaps[1].user), "(empty)");
    trace_free(trace);
    arena_free(arena);
    story_close(&story);
}

TEST(folded_stacks)
{
    struct story story;
    story_open(&story);
    story_gap(&story,
            (struct story_gap){.out = 1,
                    .waking = 3,
                    .in = 3,
                    .state = 1,
                    .kernel = "futex_wait;do_syscall_64",
                    .python = "get@/q.py:3;main@/t.py:1"});
    story_gap(&story,
            (struct story_gap){.out = 10,
                    .waking = 13,
                    .in = 13,
                    .state = 1,
                    .kernel = "futex_wait;do_syscall_64",
                    .python = "get@/q.py:3;main@/t.py:1"});
    story_gap(&story,
            (struct story_gap){.thread = story.worker,
                    .out = 10,
                    .waking = 11,
                    .in = 11,
                    .state = 1,
                    .user = "poll"});
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    struct error err = {0};
    CHECK_INT(stalls_folded(story.store, 0, file, &err), 0);
    fclose(file);
    CHECK_STR(text, "python3;main;get;do_syscall_64;futex_wait 5000\nworker;poll 1000\n");
    free(text);
    story_close(&story);
}

TEST(folded_stacks_of_functions_without_a_name)
{
    struct story story;
    story_open(&story);
    story_gap(&story,
            (struct story_gap){.out = 1,
                    .waking = 3,
                    .in = 3,
                    .state = 1,
                    .user = "libt.so+0x10|libt.so;libt.so+0x20|libt.so;at::_ops::mm::call|libt.so;libapp.so+0x7|libapp.so"});
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    struct error err = {0};
    CHECK_INT(stalls_folded(story.store, 0, file, &err), 0);
    fclose(file);
    CHECK_STR(text,
            "python3;libapp.so+0x7;at::_ops::mm::call;libt.so+0x20 (inside at::_ops::mm);libt.so+0x10 (inside at::_ops::mm) 2000\n");
    free(text);
    story_close(&story);
}

static const struct trace_frame *frame_called(const struct trace *trace, const char *name)
{
    for (size_t i = 0; i < trace->frame_count; i++)
        if (!strcmp(trace->frames[i].name, name))
            return &trace->frames[i];
    return NULL;
}

// Where a function without a name begins says something across sides only where they have one build
// of its library.
TEST(begins_of_functions_without_a_name)
{
    struct story story;
    struct error err = {0};
    struct trace *trace = NULL;
    struct arena *arena = arena_new();
    story_open(&story);
    story_gap(&story,
            (struct story_gap){.out = 1,
                    .waking = 3,
                    .in = 3,
                    .state = 1,
                    .user = "libone.so+0x10|libone.so;libone.so+0x99|libone.so;libtwo-1.2.so+0x20|libtwo-1.2.so;"
                            "libtwo-1.3.so+0x28|libtwo-1.3.so;libnone.so+0x30|libnone.so;known|libone.so"});
    story_sql(&story, "UPDATE frame SET build_id = 'aa', offset = 4 WHERE module = 'libone.so'");
    // the address itself
    story_sql(&story, "UPDATE frame SET offset = 153 WHERE name = 'libone.so+0x99'");
    story_sql(&story,
            "UPDATE frame SET build_id = 'b' || substr(module, 10, 1), offset = 4 WHERE module LIKE 'libtwo%'");
    story_sql(&story, "UPDATE frame SET offset = 4 WHERE module = 'libnone.so'"); // no build-id
    CHECK_INT(trace_load(story.store, story.recording, arena, &trace, &err), 0);
    CHECK(frame_called(trace, "libone.so+0x10")->starts &&
            frame_called(trace, "libtwo-1.2.so+0x20")->starts);
    CHECK(frame_called(trace, "libnone.so+0x30")->starts);
    CHECK(!frame_called(trace, "libone.so+0x99")->starts && !frame_called(trace, "known")->starts);
    CHECK_INT(trace_keep_starts(trace, story.store, &err), 0);
    CHECK(frame_called(trace, "libone.so+0x10")->starts);
    CHECK(!frame_called(trace, "libtwo-1.2.so+0x20")->starts &&
            !frame_called(trace, "libtwo-1.3.so+0x28")->starts);
    CHECK(!frame_called(trace, "libnone.so+0x30")->starts && !frame_called(trace, "known")->starts);
    // What is it inside of, by the trace and by the store.
    CHECK_STR(trace_inside(trace, trace->gaps[0].user, 0), "known");
    CHECK(!trace_inside(trace, trace->gaps[0].user, 2) &&
            !trace_inside(trace, trace->gaps[0].user, 5) && !trace_inside(trace, 0, 0));
    int64_t stack = 0;
    CHECK_INT(store_get_int(story.store, &stack, &err, "SELECT user_stack FROM gap", ""), 0);
    char *inside = trace_leaf_inside(story.store, stack);
    CHECK_STR(inside, "known");
    free(inside);
    CHECK(!trace_leaf_inside(story.store, 4711));
    CHECK(trace->gaps[0].user && trace_stack_of(trace, stack) == trace->gaps[0].user);
    // By its number, whatever recording it is of; what is not there is nothing, and no error.
    struct trace_names *names = calloc(1, sizeof *names);
    const char *text = "";
    CHECK_INT(trace_read_stack(story.store, stack, arena, names, &err), 0);
    CHECK(names->count == 6 && names->kind == 'u' && !strcmp(names->functions[5].name, "known"));
    CHECK_STR(names->functions[5].module, "libone.so");
    CHECK(trace_read_stack(story.store, 4711, arena, names, NULL) == 0 && !names->count);
    CHECK(trace_read_text(story.store, 4711, arena, &text, &err) == 0 && !text);
    free(names);
    CHECK(!trace_stack_of(trace, stack + 1) && !trace_stack_of(trace, 0) &&
            !trace_stack_of(trace, -1));
    trace_free(trace);
    arena_free(arena);
    story_close(&story);
}

TEST(table_of_causes)
{
    size_t count = 0;
    const struct stall_cause *causes = stall_causes(&count);
    CHECK_INT(count, CAUSE_COUNT);
    for (size_t i = 0; i < count; i++) {
        CHECK(causes[i].id && causes[i].title && causes[i].looks_like);
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(causes[i].id, causes[k].id));
    }
}

static void at(struct trace_window *span, double ms, double length_ms)
{
    *span = (struct trace_window){(int64_t)(ms * 1e6), (int64_t)((ms + length_ms) * 1e6)};
}

TEST(periods)
{
    struct trace_window spans[64];
    for (int i = 0; i < 64; i++)
        at(&spans[i], i * 300 + i * 37 % 11, 60);
    CHECK_DBL((double)period_of(spans, 64), 300e6, 10e6);
    size_t kept = 0; // every third is missed
    for (int i = 0; i < 64; i++)
        if (i % 3 != 1)
            spans[kept++] = spans[i];
    CHECK_DBL((double)period_of(spans, kept), 300e6, 20e6);
    CHECK_INT(period_of(spans, 3), 0);
    // As it was recorded on a loaded machine: the victim waited twice in one read, and longer than
    // half a period.
    static const double seen[][2] = {{1528, 168}, {1812, 193}, {2099, 136}, {2236, 7}, {2424, 38},
            {2712, 166}, {2879, 3}, {3011, 142}};
    for (int i = 0; i < 8; i++)
        at(&spans[i], seen[i][0], seen[i][1]);
    CHECK_DBL((double)period_of(spans, 8), 295e6, 30e6);
    struct random_state random = {7}; // no rule: exponential distances
    int found = 0;
    for (int round = 0; round < 200; round++) {
        double ms = 0;
        for (int i = 0; i < 64; i++)
            at(&spans[i], ms -= log(1 - random_uniform(&random)) * 300, 1);
        found += period_of(spans, 10 + (size_t)round % 54) > 0;
    }
    CHECK(found <= 10);
}
