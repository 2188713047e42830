// SPDX-License-Identifier: Apache-2.0
// Stalls as they are shown: findings made by hand, rendered in every form and width, compared byte
// by byte with tests/golden/stalls_*. UPGATE_GOLDEN_UPDATE=1 rewrites the files; read the diff
// before you commit it. The recordings of a store are read from one made by SQL.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/strings.h"
#include "reports/render/stalls/stalls_heat.h"
#include "reports/render/stalls/stalls_tally.h"
#include "reports/render/stalls/stalls_text.h"
#include "reports/render/stalls/stalls_view.h"
#include "reports/render/stalls/stalls_what_if.h"
#include "reports/render/text/screen.h"
#include "tests/unit/golden.h"
#include "tests/unit/runner.h"
#include "tracer/store/store.h"

#define MS INT64_C(1000000)
// Static: the stalls that are returned by value outlive the functions that made them.
#define STACK(...) \
    ({ \
        static const char *frames_[] = {__VA_ARGS__}; \
        (struct stall_stack){.frames = frames_, .count = sizeof frames_ / sizeof *frames_}; \
    })

static const struct stall_task trainer = {.known = true,
        .pid = 4121,
        .tid = 4121,
        .comm = "python3",
        .cmdline = "/usr/bin/python3 -u ci/stalls/trainer.py --steps 400",
        .kind = "target"};
static const struct stall_task loader = {.known = true,
        .pid = 4121,
        .tid = 4127,
        .comm = "pt_data_worker",
        .cmdline = "/usr/bin/python3 -u ci/stalls/trainer.py --steps 400",
        .kind = "target"};
static const struct stall_task agent = {.known = true,
        .pid = 4188,
        .tid = 4188,
        .comm = "python3",
        .cmdline = "/usr/bin/python3 ci/stalls/agent.py --pid 4121 --period 0.3",
        .kind = "other"};
static const struct stall_task flusher = {
        .known = true, .pid = 77, .tid = 77, .comm = "kworker/u4:2", .kind = "kernel"};

// What the smaps case gave on a 12 GiB process.
static struct stall smaps_stall(void)
{
    return (struct stall){
            .cause = "smaps_read",
            .title = "A monitor reads the smaps of the process",
            .total_ns = 4260 * MS,
            .max_ns = 137 * MS,
            .count = 98,
            .first_ns = 412 * MS,
            .last_ns = 29800 * MS,
            .has_period = true,
            .period_ns = 300 * MS,
            .blocked_ns = 4195 * MS,
            .run_queue_ns = 65 * MS,
            .confidence = 0.94,
            .doubts = STALL_DOUBT_READER,
            .victim = trainer,
            .victim_threads = 1,
            .victim_kernel = STACK("__schedule", "schedule", "schedule_preempt_disabled",
                    "rwsem_down_write_slowpath", "down_write_killable", "vm_mmap_pgoff",
                    "do_syscall_64", "entry_SYSCALL_64_after_hwframe"),
            .victim_user = STACK(
                    "mmap64", "sysmalloc", "_int_malloc", "malloc", "[anon]", "[anon]", "[anon]"),
            .victim_python = STACK("allocate (trainer.py:48)", "step (trainer.py:71)",
                    "main (trainer.py:102)", "<module> (trainer.py:110)"),
            .culprit = agent,
            .culprit_function = "show_smaps_rollup",
            .culprit_kernel = STACK("__traceiter_sched_waking", "smaps_account", "smaps_pte_range",
                    "walk_pgd_range", "__walk_page_range", "walk_page_vma", "smap_gather_stats",
                    "show_smaps_rollup", "seq_read_iter", "vfs_read", "ksys_read"),
            .resource = {.kind = STALL_RESOURCE_MMAP_LOCK, .pid = 4121},
            .chain = {{.from = trainer, .to = agent, .via = VIA_MMAP_LOCK}},
            .chain_count = 1,
            .has_steps = true,
            .steps_hit = 98,
            .steps_total = 1204,
    };
}

static struct stall chain_stall(void)
{
    return (struct stall){
            .cause = "disk_read",
            .title = "The trainer waits for its data loader",
            .total_ns = 21500 * MS,
            .max_ns = 801 * MS,
            .count = 1423,
            .blocked_ns = 21400 * MS,
            .run_queue_ns = 100 * MS,
            .confidence = 0.61,
            .doubts = STALL_DOUBT_INFERRED,
            .victim = loader,
            .victim_threads = 4,
            .victim_kernel = STACK("futex_do_wait", "__futex_wait", "futex_wait", "do_futex"),
            .culprit = flusher,
            .culprit_kernel = STACK("ext4_map_blocks"),
            .chain = {{.from = trainer, .to = loader, .via = VIA_PIPE, .name = "pipe:[8812]"},
                    {.from = loader, .to = flusher, .via = VIA_WAKE}},
            .chain_count = 2,
    };
}

static struct stall lone_stall(void)
{
    return (struct stall){.cause = "python_gc",
            .title = "Python's garbage collector runs",
            .total_ns = 84 * MS,
            .max_ns = 84 * MS,
            .count = 1,
            .on_cpu_ns = 84 * MS,
            .confidence = 1,
            .victim = trainer,
            .victim_threads = 1,
            .victim_python = STACK("step (trainer.py:71)")};
}

static struct stalls_recording smaps_recording(void)
{
    return (struct stalls_recording){.id = 1,
            .side = -1,
            .pair = -1,
            .begin_ns = 1000,
            .end_ns = 30000 * MS,
            .threshold_ns = MS,
            .sample_hz = 199,
            .python = true,
            .target = trainer,
            .processes = 1,
            .threads = 12,
            .gaps = 1733,
            .samples = 6021,
            .lock_waits = 98,
            .facts = 100};
}

static char *table_text(const struct stalls_view *view, const struct render_opts *opts)
{
    char *text = NULL;
    size_t len = 0;
    struct error err = {0};
    FILE *stream = open_memstream(&text, &len);
    CHECK_INT(stalls_view_table(view, opts, stream, &err), 0);
    fclose(stream);
    return text;
}

// Nothing is wider than the screen, except a word that cannot be broken.
static void check_width(const char *text, int width)
{
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        char *line = xasprintf("%.*s", (int)strcspn(text, "\n"), text);
        if (screen_columns(line) > width)
            runner_fail(__FILE__, __LINE__, "wider than %d: %s", width, line);
        CHECK(line[0] == 0 || line[strlen(line) - 1] != ' ');
        free(line);
    }
}

static void golden_table(
        const struct stalls_view *view, const struct render_opts *opts, const char *name)
{
    char *text = table_text(view, opts);
    if (!opts->color)
        check_width(text, opts->width ? opts->width : RENDER_WIDTH_DEFAULT);
    golden_compare(text, name);
    free(text);
}

static void golden_json(const struct stalls_view *view, const char *name)
{
    json_t *document = stalls_view_json(view);
    char *json = json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    char *text = xasprintf("%s\n", json);
    golden_compare(text, name);
    free(text);
    free(json);
    json_decref(document);
}

TEST(the_smaps_case_in_every_form)
{
    struct stall found[] = {smaps_stall(), lone_stall()};
    struct stalls stalls = {.recording_id = 1,
            .window_ns = 30000 * MS,
            .threshold_ns = MS,
            .target_threads = 12,
            .stalls = found,
            .count = 2,
            .idle_ns = 210000 * MS};
    struct stalls_recording recording = smaps_recording();
    struct stalls_recordings recordings = {.items = &recording, .count = 1};
    struct stalls_shown shown = {.recording = &recording, .stalls = &stalls};
    struct stalls_view view = {.shown = &shown,
            .count = 1,
            .recordings = &recordings,
            .path = "run.db",
            .rows_max = 10,
            .details_max = 3};
    golden_table(&view, &(struct render_opts){.width = 80}, "stalls_smaps_80.txt");
    golden_table(&view, &(struct render_opts){.utf8 = true}, "stalls_smaps.txt");
    golden_table(&view, &(struct render_opts){.width = 120, .utf8 = true, .color = true},
            "stalls_smaps_120.txt");
    golden_json(&view, "stalls_smaps.json");
    char *markdown = stalls_view_markdown(&view);
    golden_compare(markdown, "stalls_smaps.md");
    free(markdown);
    char *answer = stalls_text_answer(&shown);
    CHECK_STR(answer,
            "trainer.py (pid 4121) lost 14.2 % of 30 s: python3 agent.py (pid 4188) reads its "
            "smaps_rollup every 300 ms and holds its mmap_lock meanwhile");
    free(answer);
}

TEST(two_sides_with_drops_and_threads_that_waited_together)
{
    struct stall found[] = {chain_stall(), smaps_stall(), lone_stall()};
    struct stall_breach breaches[] = {{.producer = "bpf",
                                              .kind = "gaps",
                                              .count = 12345,
                                              .detail = "the ring was full",
                                              .events = true},
            {.producer = "bpf", .kind = "samples", .count = 2, .events = true}};
    struct stall_missing missing[] = {
            {.text = "signals: no tracepoint signal_generate on this kernel; who sent "
                     "SIGSTOP is told from wakers only"}};
    struct stalls b = {.recording_id = 2,
            .window_ns = 30000 * MS,
            .threshold_ns = MS,
            .stalls = found,
            .count = 3,
            .breaches = breaches,
            .breach_count = 2,
            .missing = missing,
            .missing_count = 1};
    struct stalls a = {.recording_id = 1, .window_ns = 29000 * MS, .threshold_ns = MS};
    struct stalls_recording items[] = {smaps_recording(), smaps_recording()};
    for (int i = 0; i < 2; i++) {
        items[i].id = i + 1;
        items[i].side = i;
        items[i].pair = 0;
        items[i].workload = (char *)"dlrm-train";
        items[i].side_name = (char *)(i ? "torch-2.x" : "torch-1.13");
    }
    items[0].sample_hz = 0;
    items[1].python = false;
    items[1].processes = 5;
    items[1].end_ns = 0;
    struct stalls_recordings recordings = {.items = items, .count = 2};
    struct stalls_shown shown[] = {{&items[0], &a}, {&items[1], &b}};
    struct stalls_view view = {.shown = shown,
            .count = 2,
            .recordings = &recordings,
            .path = "ab.db",
            .rows_max = 2,
            .details_max = 1};
    golden_table(&view, &(struct render_opts){.width = 100}, "stalls_sides.txt");
    golden_table(&view, &(struct render_opts){.width = 60}, "stalls_sides_60.txt");
    golden_json(&(struct stalls_view){.shown = &shown[1], .count = 1, .recordings = &recordings},
            "stalls_sides.json");
    for (int i = 0; i < 2; i++) { // Markdown says as well as the table what nobody looked at
        char *markdown = stalls_view_markdown(&(struct stalls_view){
                .shown = &shown[i], .count = 1, .rows_max = 2, .details_max = 1});
        CHECK((strstr(markdown, "\n* **not seen**: Python stacks: they were not walked\n") !=
                      NULL) == (i == 1));
        free(markdown);
    }
}

// What three ranks of two nodes cost in six parts of 4 s.
static struct stall_heat ranks_heat(void)
{
    static const double even[] = {0, 0.02, 0, 0.01, 0, 0}, late[] = {0.4, 0.3, 0.2, 0, 0, 0},
                        more[] = {0, 0, 0.03, 0.09, 0.15, 0};
    static struct stall_heat_row rows[] = {{.rank = 0,
                                                   .pid = 4121,
                                                   .host = "node-6",
                                                   .of = 1,
                                                   .worst = true,
                                                   .shares = even,
                                                   .mean = 0.005},
            {.rank = 1,
                    .pid = 4122,
                    .host = "node-7",
                    .of = 1,
                    .worst = true,
                    .shares = late,
                    .mean = 0.15},
            {.rank = 2,
                    .pid = 4123,
                    .host = "node-6",
                    .of = 1,
                    .worst = true,
                    .shares = more,
                    .mean = 0.045}};
    return (struct stall_heat){.blocks = 6,
            .begin_ns = 26000 * MS,
            .end_ns = 30000 * MS,
            .ranks = 3,
            .rows = rows,
            .row_count = 3,
            .worst = rows[1]};
}

// A job of four ranks, one of which an agent holds up; and what its start was like.
TEST(a_rank_that_comes_late_and_a_start_up_apart)
{
    struct stall_task rank = trainer;
    rank.pid = rank.tid = 4122;
    struct stall late = {.cause = "straggler",
            .title = "One rank of the job comes late, and the others wait for it",
            .total_ns = 600 * MS,
            .max_ns = 9 * MS,
            .count = 148,
            .first_ns = 26100 * MS,
            .last_ns = 29900 * MS,
            .blocked_ns = 600 * MS,
            .confidence = 0.95,
            .victim_threads = 3,
            .culprit = rank,
            .has_steps = true,
            .steps_hit = 148,
            .steps_total = 150,
            .is_straggler = true,
            .rank = 1,
            .ranks = 4,
            .host = "node-7",
            .deed = {.kind = STALL_DEED_CAUSE, .cause = "smaps_read", .function = "stage (ddp.py)"},
            .late_by = agent,
            .late_ns = 4054054,
            .more_ns = 3 * MS,
            .ranks_ns = 1790 * MS,
            .culprit_python = STACK("stage (ddp.py:41)", "main (ddp.py:84)"),
            .chain = {{.from = trainer, .to = rank, .via = VIA_COLLECTIVE},
                    {.from = rank, .to = agent, .via = VIA_CAUSE, .name = "smaps_read"}},
            .chain_count = 2};
    struct stall startup[] = {lone_stall()};
    struct stall_missing missing[] = {
            {.kind = STALL_MISSING_RANKS, .count = 1, .of = 4, .ranks = {3}}};
    struct stalls stalls = {.recording_id = 1,
            .window_ns = 4000 * MS,
            .threshold_ns = MS,
            .target_threads = 12,
            .stalls = &late,
            .count = 1,
            .startup_ns = 25000 * MS,
            .exit_ns = 1000 * MS,
            .by_steps = true,
            .outside = startup,
            .outside_count = 1,
            .missing = missing,
            .missing_count = 1,
            .what_if = {.known = true,
                    .by_steps = true,
                    .steps = 1149,
                    .measured_ns = 26.6e6,
                    .replayed_ns = 26.8e6,
                    .stragglers = 1,
                    .straggler = 1,
                    .without_stragglers_ns = 22.5e6,
                    .even_ns = 23.4e6,
                    .instant_ns = 26.59e6,
                    .balanced_ns = NAN,
                    .unsure_ns = 0.4e6},
            .heat = ranks_heat()};
    struct stalls_recording recording = smaps_recording();
    struct stalls_recordings recordings = {.items = &recording, .count = 1};
    struct stalls_shown shown = {.recording = &recording, .stalls = &stalls};
    struct stalls_view view = {.shown = &shown,
            .count = 1,
            .recordings = &recordings,
            .path = "run.db",
            .rows_max = 10,
            .details_max = 3,
            .heat = true};
    golden_table(&view, &(struct render_opts){.width = 100}, "stalls_ranks.txt");
    golden_json(&view, "stalls_ranks.json");
    char *markdown = stalls_view_markdown(&view);
    golden_compare(markdown, "stalls_ranks.md");
    free(markdown);
    stalls.exit_ns = 0;
    late.rank = -1;
    late.deed = (struct stall_deed){0};
    late.chain_count = 0;
    char *answer = stalls_text_answer(&shown);
    CHECK_STR(answer,
            "trainer.py (pid 4121) lost 15.0 % of 4 s after its start-up: trainer.py (pid 4122) comes late 148 times, 4.05 ms each");
    free(answer);
}

TEST(what_if_is_told_or_why_not_or_not_at_all)
{
    struct stall_what_if what_if = {0};
    CHECK(stalls_what_if_head(&what_if) == NULL);
    json_t *item = stalls_what_if_json(&what_if);
    CHECK(json_is_null(item));
    json_decref(item);
    what_if.why_not = STALL_WHY_NOT_LOST;
    char *text = stalls_what_if_head(&what_if);
    CHECK_STR(text,
            "What if: not known: events were lost while it was recorded: who waits for whom is not known");
    free(text);
    CHECK(isnan(stalls_what_if_ns(&what_if, STALLS_QUESTION_EVEN))); // no answer beside a reason
    item = stalls_what_if_json(&what_if);
    CHECK_STR(json_string_value(json_object_get(item, "why_not")),
            "events were lost while it was recorded: who waits for whom is not known");
    CHECK(json_is_null(json_object_get(item, "measured_ns")) &&
            json_is_null(json_object_get(item, "steps")));
    json_decref(item);
    what_if = (struct stall_what_if){.known = true,
            .steps = 1,
            .measured_ns = 8e9,
            .replayed_ns = 8e9,
            .stragglers = 2,
            .straggler = -1,
            .without_stragglers_ns = 6e9,
            .even_ns = NAN,
            .instant_ns = 8.001e9,
            .balanced_ns = 9e9};
    text = stalls_what_if_head(&what_if);
    CHECK_STR(text,
            "What if: the job took 8 s from its first collective to its last one; the replay gives 8 s (+0.0 %)");
    free(text);
    text = stalls_what_if_question(&what_if, STALLS_QUESTION_STRAGGLERS);
    CHECK_STR(text, "the 2 late ranks on time");
    free(text);
    CHECK_STR(stalls_what_if_change(&what_if, 7.9999e9, NUMBERS_BUFFER), "+0.0 %"); // no "-0.0 %"
    CHECK_STR(stalls_what_if_change(&what_if, 9e9, NUMBERS_BUFFER), "+12.5 %");
}

static void check_head(const struct stall_heat *heat, const char *part)
{
    char *text = stalls_heat_head(heat);
    CHECK_CONTAINS(text, part);
    free(text);
}

static void check_label(const struct stall_heat *heat, size_t row, const char *label)
{
    char *text = stalls_heat_label(heat, &heat->rows[row]);
    CHECK_STR(text, label);
    free(text);
}

TEST(the_gpu_of_a_rank_is_told_where_it_has_one)
{
    struct stall_heat heat = ranks_heat();
    struct stall late = {.cause = "straggler",
            .culprit = trainer,
            .is_straggler = true,
            .rank = 1,
            .ranks = 4,
            .count = 2,
            .late_ns = 4 * MS};
    const struct stall_gpu gpu = {
            true, 0, "GPU-1a2b3c4d-0011-2233-4455-66778899aabb", "NVIDIA H100"};
    char *text = stalls_text_rank(&late);
    CHECK_STR(text, "rank 1 of 4 (trainer.py, pid 4121)");
    free(text);
    late.gpu = gpu;
    text = stalls_text_blame(&late);
    CHECK_STR(text,
            "rank 1 of 4 (trainer.py, pid 4121, GPU-1a2b3c4d NVIDIA H100) comes late 2 times, 4 ms each");
    free(text);
    late.gpu = (struct stall_gpu){true, 3, "", ""};
    text = stalls_text_rank(&late);
    CHECK_STR(text, "rank 1 of 4 (trainer.py, pid 4121, GPU 3)");
    free(text);
    heat.rows[1].gpu = heat.worst.gpu = gpu;
    check_label(&heat, 0, "rank 0 on node-6");
    check_label(&heat, 1, "rank 1 on node-7, GPU-1a2b3c4d");
    check_head(&heat, "most for rank 1 on node-7, GPU-1a2b3c4d: 40.0 %");
    json_t *item = stalls_heat_json(&heat), *ranks = json_object_get(item, "ranks");
    CHECK(!json_object_get(json_array_get(ranks, 0), "gpu"));
    CHECK_STR(json_string_value(
                      json_object_get(json_object_get(json_array_get(ranks, 1), "gpu"), "uuid")),
            gpu.uuid);
    CHECK_STR(json_string_value(json_object_get(
                      json_object_get(json_object_get(item, "worst"), "gpu"), "name")),
            "NVIDIA H100");
    json_decref(item);
}

TEST(ranks_by_time_in_words)
{
    struct stall_heat heat = {0};
    CHECK(stalls_heat_head(&heat) == NULL);
    json_t *item = stalls_heat_json(&heat);
    CHECK(json_is_null(item));
    json_decref(item);
    heat = ranks_heat();
    check_label(&heat, 1, "rank 1 on node-7");
    heat.by_work = true;
    check_head(&heat,
            "Ranks by time: how much longer each rank worked than the one in the middle, over 4 s in 6 parts; most rank 1 on node-7: 40.0 %");
    heat.worst = heat.rows[2];
    heat.worst_block = 5;
    check_head(&heat, "of the part from 3.33 s to 4 s");
    // a part of 15 s, as of longer recordings one of some seconds
    heat.end_ns = heat.begin_ns + 90000000000;
    check_head(&heat, "of the part from 75 s to 90 s");
    heat.end_ns = heat.begin_ns + 4000000000;
    heat.worst = heat.rows[1];
    heat.worst_block = 0;
    heat.worst.host = heat.rows[1].host = "node-6"; // all on one: nobody needs to hear it
    heat.rows[2].rank = -1;
    check_label(&heat, 1, "rank 1");
    check_label(&heat, 2, "pid 4123");
    heat.ranks = 16;
    heat.unknown = 2;
    heat.rows[0].of = heat.rows[1].of = 8;
    heat.rows[0].worst = false;
    check_label(&heat, 0, "rank 0, median of 8");
    check_label(&heat, 1, "rank 1, worst of 8");
    check_head(&heat,
            "; of 16 ranks the median and the worst one of each group are shown; of 2 more it is not known");
    item = stalls_heat_json(&heat);
    CHECK_STR(json_string_value(
                      json_object_get(json_array_get(json_object_get(item, "ranks"), 0), "which")),
            "median");
    CHECK_STR(json_string_value(json_object_get(item, "by")), "work");
    CHECK(json_is_null(json_object_get(json_array_get(json_object_get(item, "ranks"), 2), "rank")));
    json_decref(item);
}

static char *heat_drawn(const struct stall_heat *heat, int width, bool utf8)
{
    struct table table = {.width = width, .utf8 = utf8};
    stalls_heat_table(&table, heat);
    if (table.out.len)
        check_width(table.out.text, width);
    return strbuf_take(&table.out);
}

TEST(ranks_by_time_drawn_in_any_width)
{
    struct stall_heat none = {0}, heat = ranks_heat();
    char *text = heat_drawn(&none, 80, true);
    CHECK_STR(text, "");
    free(text);
    text = heat_drawn(&heat, 80, true);
    CHECK_CONTAINS(text, "\nrank 1 on node-7  ██▓▓▒▒······   15.0 %\n");
    free(text);
    text = heat_drawn(&heat, 30, false);
    CHECK_CONTAINS(text,
            "\n               0  4 s   in all\nrank 0~node-6  ......    0.5 %\nrank 1~node-7  #*+...   15.0 %\n");
    free(text);
    text = heat_drawn(&heat, 24, false); // no room: the sentence says the worst
    CHECK_CONTAINS(text, "40.0 %");
    CHECK(strstr(text, "#*+") == NULL);
    free(text);
}

TEST(what_cannot_be_said_is_not_called_innocence)
{
    struct stalls stalls = {.recording_id = 1, .window_ns = 30000 * MS};
    struct stalls_recording recording = smaps_recording();
    struct stalls_shown shown = {.recording = &recording, .stalls = &stalls};
    CHECK(stalls_view_nothing(&shown) == NULL); // events and no stall: that is an answer
    struct stall_breach lost = {
            .producer = "bpf.gap", .kind = "records", .count = 1200, .events = true};
    stalls.breaches = &lost;
    stalls.breach_count = 1;
    char *answer = stalls_text_answer(&shown);
    CHECK_CONTAINS(answer, " up, but 1,200 events were dropped");
    free(answer);
    stalls.breach_count = 0;
    size_t threads = (size_t)recording.threads;
    recording.threads = 0; // events of others only
    answer = stalls_view_nothing(&shown);
    CHECK_CONTAINS(answer, "no thread of the target was seen");
    free(answer);
    recording.threads = (int64_t)threads;
    recording.gaps = recording.samples = recording.lock_waits = recording.facts = 0;
    char *text = stalls_view_nothing(&shown);
    CHECK_CONTAINS(text, "recording 1: no event of its 12 threads");
    free(text);
    struct stall_breach breach = {.producer = "bpf", .kind = "gaps", .count = 5000, .events = true};
    stalls.breaches = &breach;
    stalls.breach_count = 1;
    text = stalls_view_nothing(&shown);
    CHECK_CONTAINS(text, "all 5,000 events were dropped");
    free(text);
    stalls.breach_count = 0;
    recording.threads = 0;
    text = stalls_view_nothing(&shown);
    CHECK_CONTAINS(text, "no thread of the target was seen");
    free(text);
    struct stalls_view view = {.shown = &shown, .count = 1, .rows_max = 10, .details_max = 3};
    text = table_text(&view, &(struct render_opts){0});
    CHECK(strncmp(text, "recording 1: no thread of the target was seen", 40) == 0);
    free(text);
}

// Who reads the first line of several recordings alone must not take it for innocence either.
TEST(no_stall_in_several_recordings_says_how_far_that_goes)
{
    static const struct {
        bool mute[2];
        int64_t dropped[2];
        const char *want;
    } cases[] = {{{0}, {0}, "No stall found in 2 recordings\n"},
            {{0}, {0, 1200},
                    "No stall found in 2 recordings; in 1 of them events were dropped, or the main thread hardly ran\n"},
            {{true}, {0}, "No stall found in 1 of 2 recordings; the other says nothing\n"},
            {{true}, {0, 7},
                    "No stall found in 1 of 2 recordings; the other says nothing; in 1 of them events were dropped, or the main thread "},
            {{true, true}, {0},
                    "Nothing can be said: none of 2 recordings has events of its target\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stalls stalls[2];
        struct stalls_recording items[2];
        struct stalls_shown shown[2];
        struct stall_breach lost[2];
        for (int k = 0; k < 2; k++) {
            lost[k] = (struct stall_breach){.producer = "bpf.gap",
                    .kind = "records",
                    .count = cases[i].dropped[k],
                    .events = true};
            stalls[k] = (struct stalls){.recording_id = k + 1,
                    .window_ns = 30000 * MS,
                    .breaches = &lost[k],
                    .breach_count = cases[i].dropped[k] > 0};
            items[k] = smaps_recording();
            items[k].id = k + 1;
            items[k].threads = cases[i].mute[k] ? 0 : 12;
            shown[k] = (struct stalls_shown){.recording = &items[k], .stalls = &stalls[k]};
        }
        const struct stalls_view view = {
                .shown = shown, .count = 2, .rows_max = 10, .details_max = 3};
        char *text = table_text(&view, &(struct render_opts){.width = 140});
        if (strncmp(text, cases[i].want, strlen(cases[i].want)) != 0)
            runner_fail(__FILE__, __LINE__, "case %zu: %.200s", i, text);
        free(text);
    }
    // A stall that cost no time is one.
    struct stall killed = {.cause = "oom_kill",
            .title = "A process was killed for lack of memory",
            .count = 1,
            .confidence = 0.9,
            .culprit = trainer};
    struct stalls none = {.recording_id = 1, .window_ns = 30000 * MS},
                  one = {.recording_id = 2, .window_ns = 30000 * MS, .stalls = &killed, .count = 1};
    struct stalls_recording items[] = {smaps_recording(), smaps_recording()};
    const struct stalls_shown shown[] = {{&items[0], &none}, {&items[1], &one}};
    char *text = table_text(
            &(struct stalls_view){.shown = shown, .count = 2, .rows_max = 10, .details_max = 3},
            &(struct render_opts){.width = 140});
    static const char first[] = "Worst of 2 recordings, recording 1: trainer.py (pid 4121): ";
    CHECK(strncmp(text, first, strlen(first)) == 0);
    CHECK_CONTAINS(text, "was killed for lack of memory");
    free(text);
}

TEST(functions_without_a_name_are_told_by_what_they_are_inside_of)
{
    static const char *inside[] = {"at::_ops::mm", "at::_ops::mm", NULL, "at::_ops::linear", NULL};
    struct stall_stack stack = STACK("libt.so+0x10", "libt.so+0x20", "at::_ops::mm::call",
            "libt.so+0x30", "at::_ops::linear::call");
    char *text = stalls_text_stack(&stack, 9, false);
    CHECK_STR(text,
            "libt.so+0x10 < libt.so+0x20 < at::_ops::mm::call < libt.so+0x30 < at::_ops::linear::call");
    free(text);
    stack.inside = inside;
    text = stalls_text_stack(&stack, 9, false);
    CHECK_STR(text,
            "libt.so+0x10 (inside at::_ops::mm) < libt.so+0x20 < at::_ops::mm::call < "
            "libt.so+0x30 (inside at::_ops::linear) < at::_ops::linear::call");
    free(text);
    text = stalls_text_frame(&stack, 1);
    CHECK_STR(text, "libt.so+0x20 (inside at::_ops::mm)");
    free(text);
    text = stalls_text_frame(&stack, 2);
    CHECK_STR(text, "at::_ops::mm::call");
    free(text);
}

TEST(names_of_processes)
{
    static const struct {
        const char *cmdline, *comm, *name, *program;
    } cases[] = {
            {"/usr/bin/python3.11 -u -X dev /srv/job/train.py --x", "python3.11", "train.py",
                    "python3.11 train.py"},
            {"python -m torch.distributed.run a.py", "python", "torch.distributed.run",
                    "python -m torch.distributed.run"},
            {"python3 -c import time", "python3", "python3", "python3"},
            {"/bin/bash", "bash", "bash", "bash"},
            {"/usr/bin/shred x", "shred", "shred", "shred"},
            {"ray::train_step", "ray::train_step", "ray::train_step", "ray::train_step"},
            {NULL, "kswapd0", "kswapd0", "kswapd0"},
            {"   ", "odd", "odd", "odd"},
            {"/opt/x/", "x", "x/", "x/"},
            {NULL, NULL, "?", "?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stall_task task = {
                .known = true, .comm = cases[i].comm, .cmdline = cases[i].cmdline};
        char *name = stalls_text_name(&task, STALLS_NAME_SHORT);
        char *program = stalls_text_name(&task, STALLS_NAME_PROGRAM);
        CHECK_STR(name, cases[i].name);
        CHECK_STR(program, cases[i].program);
        free(name);
        free(program);
    }
    char *kernel = stalls_text_task(&flusher, STALLS_NAME_PROGRAM);
    CHECK_STR(kernel, "kernel thread kworker/u4:2 (pid 77)");
    free(kernel);
}

TEST(a_cause_nobody_wrote_a_sentence_for)
{
    struct stall stall = {.cause = "new_one",
            .title = "GPU driver held up",
            .culprit = flusher,
            .culprit_function = "ext4_map_blocks",
            .resource = {.kind = STALL_RESOURCE_NAMED, .name = "i_rwsem"},
            .has_period = true,
            .period_ns = 5 * MS};
    char *text = stalls_text_blame(&stall);
    CHECK_STR(text,
            "GPU driver held up every 5 ms: kernel thread kworker/u4:2 (pid 77) in "
            "ext4_map_blocks (i_rwsem)");
    free(text);
    stall.culprit.known = false;
    stall.has_period = false;
    stall.resource.kind = STALL_RESOURCE_NONE;
    stall.title = "A thing happened";
    text = stalls_text_blame(&stall);
    CHECK_STR(text, "a thing happened");
    free(text);
    stall.meanwhile = STALL_MEANWHILE_UNKNOWN;
    text = stalls_text_blame(&stall);
    CHECK_STR(text, "a thing happened; what it does meanwhile was not recorded");
    free(text);
    stall.meanwhile = STALL_MEANWHILE_NO_GPU;
    stall.cause = "smaps_read"; // its sentence needs a culprit
    text = stalls_text_blame(&stall);
    CHECK_STR(text, "a thing happened");
    free(text);
}

TEST(what_cost_no_time_has_no_share)
{
    struct stall stall = {.cause = "zombie_memcg",
            .title = "Thousands of dead cgroups slow the kernel down",
            .total_ns = 1,
            .confidence = 0.4,
            .victim = trainer};
    struct stalls stalls = {.window_ns = 1000 * MS, .stalls = &stall, .count = 1};
    struct stalls_recording recording = smaps_recording();
    struct stalls_shown shown = {.recording = &recording, .stalls = &stalls};
    char *text = stalls_text_answer(&shown);
    CHECK_STR(
            text, "trainer.py (pid 4121): probably thousands of dead cgroups slow the kernel down");
    free(text);
}

TEST(texts_of_the_store_cannot_act)
{
    struct stall stall = smaps_stall();
    stall.culprit.cmdline = "evil\033]0;x\a\n| `a` <b>\xff";
    stall.culprit.comm = "\033[2J";
    stall.victim_python = STACK("f\033[31m (a.py:1)");
    stall.resource =
            (struct stall_resource){.kind = STALL_RESOURCE_NAMED, .name = "no\r\nway\033[2J"};
    struct stalls stalls = {.window_ns = 1000 * MS, .stalls = &stall, .count = 1};
    struct stalls_recording recording = smaps_recording();
    struct stalls_shown shown = {.recording = &recording, .stalls = &stalls};
    struct stalls_view view = {
            .shown = &shown, .count = 1, .rows_max = 9, .details_max = 9, .heat = true};
    stalls.heat = ranks_heat();
    stalls.heat.worst.host = stalls.heat.rows[1].host = "node\033[31m|<b>\n7";
    char *text = table_text(&view, &(struct render_opts){0});
    CHECK(strchr(text, '\033') == NULL && strchr(text, '\r') == NULL && strchr(text, '\a') == NULL);
    free(text);
    text = stalls_view_markdown(&view);
    CHECK(strchr(text, '\033') == NULL && strstr(text, "<b>") == NULL);
    CHECK_CONTAINS(text, "| rank 1 on node&#124;&lt;b> 7 | `");
    free(text);
    json_t *document = stalls_view_json(&view);
    CHECK(document != NULL);
    char *json = json_dumps(document, 0);
    CHECK(json != NULL);
    CHECK_CONTAINS(json, "\xef\xbf\xbd");
    free(json);
    json_decref(document);
    char *detail = stalls_view_words.detail(&stall);
    CHECK(detail[0] == '{' && strstr(detail, "\"rank\"") == NULL);
    free(detail);
}

TEST(the_recordings_of_a_store)
{
    char path[] = "/tmp/upgate-stalls-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    struct store *store = NULL;
    struct error err = {0};
    struct stalls_recordings recordings;
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    CHECK_INT(stalls_recordings_load(store, &recordings, &err), 0);
    CHECK_INT(recordings.count, 0);
    static const char sql[] =
            "INSERT INTO recording (id, begin_ns, end_ns, threshold_ns, sample_hz, python, target, "
            "missing) "
            "VALUES (3, 10, 20, 1000000, 0, 1, '{}', '[]'), (5, 10, NULL, 1000000, 199, 0, '{}', '[]');"
            "INSERT INTO process (id, recording_id, tgid, start_ns, comm, cmdline, kind) VALUES "
            "(1, 3, 40, 1, 'bash', 'bash', 'other'), (2, 3, 41, 1, 'python3', 'python3 a.py', "
            "'target'),"
            "(3, 3, 42, 1, 'python3', NULL, 'target'), (4, 5, 50, 1, 'x', 'x', 'target');"
            "INSERT INTO thread (id, process_id, tid, comm) VALUES (1, 1, 40, 'bash'), (2, 2, 41, "
            "'python3'),"
            "(3, 2, 43, 'w'), (4, 3, 42, 'python3'), (5, 4, 50, 'x');"
            "INSERT INTO gap (thread_id, out_ns, in_ns, state, flags) VALUES (2, 1, 2, 1, 0), (5, 1, "
            "2, 1, 0),"
            "(4, 1, 2, 1, 0);"
            "INSERT INTO sample (thread_id, at_ns, cpu, why) VALUES (5, 1, 0, 1);";
    CHECK_INT(sqlite3_exec(store_db(store), sql, NULL, NULL, NULL), SQLITE_OK);
    CHECK_INT(stalls_recordings_load(store, &recordings, &err), 0);
    CHECK_INT(recordings.count, 2);
    const struct stalls_recording *first = &recordings.items[0], *second = &recordings.items[1];
    CHECK_INT(first->id, 3);
    CHECK_INT(first->target.pid, 41);
    CHECK_STR(first->target.cmdline, "python3 a.py");
    CHECK_INT(first->processes, 2);
    CHECK_INT(first->threads, 3);
    CHECK_INT(first->gaps, 2);
    CHECK_INT(first->samples, 0);
    CHECK_INT(first->side, -1);
    CHECK_INT(second->end_ns, 0);
    CHECK_INT(second->gaps, 1);
    CHECK_INT(second->samples, 1);
    CHECK(!second->python);
    stalls_recordings_clear(&recordings);
    CHECK_INT(sqlite3_exec(store_db(store),
                      "DELETE FROM sample; DELETE FROM gap; DELETE FROM thread; "
                      "DELETE FROM process; DROP VIEW v_stall; DROP TABLE stall; "
                      "DROP TABLE recorded_step; DROP TABLE counter; DROP TABLE "
                      "host_fact; DROP TABLE recording",
                      NULL, NULL, NULL),
            SQLITE_OK);
    CHECK_INT(stalls_recordings_load(store, &recordings, &err),
            0); // of an upgate that did not record
    CHECK_INT(recordings.count, 0);
    store_close(store);
    unlink(path);
}

static void tally_sql(struct store *store, const char *sql)
{
    CHECK_INT(sqlite3_exec(store_db(store), sql, NULL, NULL, NULL), SQLITE_OK);
}

// As many as are there, however often they were counted before.
static void tally_check(
        struct store *store, struct stalls_tally *tally, int64_t gaps, int64_t samples)
{
    struct error err = {0};
    struct stalls_recordings again, fresh;
    CHECK_INT(stalls_recordings_again(store, tally, &again, &err), 0);
    CHECK_INT(stalls_recordings_load(store, &fresh, &err), 0);
    CHECK_INT(fresh.items[0].gaps, gaps);
    CHECK_INT(fresh.items[0].samples, samples);
    CHECK_INT(again.items[0].gaps, gaps);
    CHECK_INT(again.items[0].samples, samples);
    CHECK_INT(again.items[0].lock_waits, fresh.items[0].lock_waits);
    CHECK_INT(again.items[0].facts, fresh.items[0].facts);
    stalls_recordings_clear(&again);
    stalls_recordings_clear(&fresh);
}

#define TALLY_GAPS(count, flags) \
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " #count \
    ") INSERT INTO gap (thread_id, " \
    "out_ns, in_ns, state, flags) SELECT 1, 1, 2, 1, " #flags " FROM n;"

// Looks at a recording that goes on: rows come, those of waits that go on are written anew, the
// oldest go, all go.
TEST(rows_are_counted_once)
{
    char path[] = "/tmp/upgate-stalls-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    struct store *store = NULL;
    struct error err = {0};
    struct stalls_tally *tally = stalls_tally_new();
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    tally_sql(store,
            "INSERT INTO recording (id, begin_ns, end_ns, threshold_ns, sample_hz, python, target, missing) VALUES "
            "(1, 10, NULL, 1000000, 199, 0, '{}', '[]');"
            "INSERT INTO process (id, recording_id, tgid, start_ns, comm, kind) VALUES (1, 1, 40, 1, 'x', 'target');"
            "INSERT INTO thread (id, process_id, tid, comm) VALUES (1, 1, 40, 'x');");
    tally_check(store, tally, 0, 0);
    tally_sql(store, TALLY_GAPS(10, 0) TALLY_GAPS(5, 0x100000) TALLY_GAPS(3, 0x20)); // three go on
    tally_sql(store,
            "INSERT INTO sample (thread_id, at_ns, cpu, why) VALUES (1, 1, 0, 1), (1, 2, 0, 1);"
            "INSERT INTO lock_wait (thread_id, begin_ns, end_ns, address, kind, flags) VALUES (1, 1, 2, 3, 2, 0);");
    tally_check(store, tally, 13, 2);
    tally_check(store, tally, 13, 2);
    // the same numbers
    tally_sql(store, "DELETE FROM gap WHERE flags & 0x20;" TALLY_GAPS(7, 0) TALLY_GAPS(2, 0x20));
    tally_check(store, tally, 19, 2);
    tally_sql(store, TALLY_GAPS(4, 0)); // behind waits that were not asked for again
    tally_check(store, tally, 23, 2);
    tally_sql(store, "DELETE FROM gap WHERE flags & 0x20;" TALLY_GAPS(1, 0x20));
    tally_check(store, tally, 22, 2);
    // --max-size: a part of what was counted
    tally_sql(store, "DELETE FROM gap WHERE id <= 4; DELETE FROM sample WHERE rowid = 1;");
    tally_check(store, tally, 18, 1);
    tally_sql(store, "DELETE FROM gap WHERE id <= 17;");
    tally_check(store, tally, 10, 1);
    tally_sql(store, "DELETE FROM gap; DELETE FROM sample;");
    tally_check(store, tally, 0, 0);
    tally_sql(store, TALLY_GAPS(6, 0)); // numbers begin again
    tally_check(store, tally, 6, 0);
    tally_sql(store, "DELETE FROM gap;" TALLY_GAPS(2, 0));
    tally_check(store, tally, 2, 0);
    stalls_tally_free(tally);
    store_close(store);
    unlink(path);
}
