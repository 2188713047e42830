// SPDX-License-Identifier: Apache-2.0
// A difference as it is shown: made by hand, rendered in every form, compared byte by byte with
// tests/golden/diff_*. UPGATE_GOLDEN_UPDATE=1 rewrites the files; read the diff before you commit
// it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/diff/diff_words.h"
#include "reports/render/text/numbers.h"
#include "reports/render/text/screen.h"
#include "tests/unit/golden.h"
#include "tests/unit/runner.h"

static const struct cost_shape shapes[] = {
        {.grid = {512, 1, 1}, .registers = 32}, {.grid = {1024, 1, 1}, .registers = 64}};
static const struct diff_evidence_part place[] = {{"backward > layers.*.attn", 1.7e6, NAN}};
static const struct diff_evidence evidence[] = {
        {.kind = DIFF_EVIDENCE_TIMES, .sides = {"step", {4.2e6, 5.9e6}, {96, 96}}},
        {.kind = DIFF_EVIDENCE_SHAPE, .shape = {shapes, {NULL, NULL}}},
        {.kind = DIFF_EVIDENCE_PLACES, .list = {place, 1, 24}}};
static const struct diff_suspect suspects[] = {
        {"torch", {"2.4.0", "2.6.0"}, DIFF_SUSPECT_FUNCTION_OF, "torch"}};
static const struct diff_evidence_part hostile_part[] = {
        {"<script>alert(1)</script> | `*_\x1b[31m\xff line\nnext", 3.1e5, NAN}};
static const struct diff_evidence hostile[] = {
        {.kind = DIFF_EVIDENCE_TIMES, .sides = {"step", {0, 3.1e5}, {0, 1}}},
        {.kind = DIFF_EVIDENCE_FUNCTIONS, .list = {hostile_part, 1, 2}}};
static const struct diff_note notes[] = {{.kind = DIFF_NOTE_ONE_PAIR}};

static struct diff_beside beside[] = {{.name = "AllReduce f32 / RING LL",
        .label = "AllReduce f32 / RING LL",
        .collective = true,
        .share = {0, 0.71},
        .told = {false, true}}};
static struct diff_contribution contributions[] = {
        {.rank = 1,
                .kind = DIFF_KERNEL_SLOWER,
                .name_a = "void softmax_warp_forward<float>(float*)",
                .name_b = "void softmax_warp_forward<float>(float*)",
                .label = "softmax_warp_forward",
                .where = "backward > layers.*.attn",
                .a_ns = 4.2e6,
                .b_ns = 5.9e6,
                .delta_ns = 1.7e6,
                .ci_lo_ns = 1.6e6,
                .ci_hi_ns = 1.8e6,
                .share = 0.14,
                .named = true,
                .count_a = 96,
                .count_b = 96,
                .busy_a_ns = 4.2e6,
                .busy_b_ns = 5.9e6,
                .evidence = evidence,
                .evidence_count = 3,
                .suspects = suspects,
                .suspect_count = 1,
                .beside = beside,
                .beside_count = 1,
                .beside_cause = "AllReduce f32 / RING LL"},
        {.rank = 2,
                .kind = DIFF_KERNEL_ADDED,
                .name_b = "fill<script>\x1b[31m\xff",
                .label = "fill<script>\x1b[31m\xff",
                .where = "optimizer",
                .a_ns = 0,
                .b_ns = 3.1e5,
                .delta_ns = 3.1e5,
                .ci_lo_ns = 3e5,
                .ci_hi_ns = 3.2e5,
                .share = 0.0256,
                .named = true,
                .count_a = 0,
                .count_b = 1,
                .busy_b_ns = 3.1e5,
                .evidence = hostile,
                .evidence_count = 2},
        {.rank = 3,
                .kind = DIFF_MEMCPY,
                .name_a = "DtoD",
                .label = "DtoD copy",
                .where = "forward",
                .a_ns = 1.2e5,
                .delta_ns = -1.2e5,
                .ci_lo_ns = -1.3e5,
                .ci_hi_ns = -1.1e5,
                .share = -0.0099,
                .named = true,
                .count_a = 2,
                .count_b = 0,
                .busy_a_ns = 1.2e5},
        {.rank = 4,
                .kind = DIFF_CPU_FUNCTION_SLOWER,
                .name_a = "gelu",
                .name_b = "gelu",
                .label = "gelu",
                .where = "",
                .a_ns = 1e6,
                .b_ns = 9.8e5,
                .delta_ns = -2e4,
                .ci_lo_ns = NAN,
                .ci_hi_ns = NAN,
                .share = NAN,
                .count_a = NAN,
                .count_b = NAN,
                .busy_a_ns = NAN,
                .busy_b_ns = NAN},
};
static double first_a[] = {0, 0}, first_b[] = {3.1e8, 3e8};
static const struct diff_evidence_part first_part[] = {{"load|module", 3e8, NAN}};
static const struct diff_evidence first_evidence[] = {
        {.kind = DIFF_EVIDENCE_TIMES, .sides = {"first step", {0, 3.05e8}, {NAN, NAN}}},
        {.kind = DIFF_EVIDENCE_FUNCTIONS, .list = {first_part, 1, 2}}};
static struct diff_launch_part first_parts[] = {{.contribution = {.rank = 1,
                                                         .kind = DIFF_COLD_START,
                                                         .name_b = "cuLibraryLoadData",
                                                         .label = "cuLibraryLoadData",
                                                         .where = "forward",
                                                         .b_ns = 3.05e8,
                                                         .delta_ns = 3.05e8,
                                                         .ci_lo_ns = NAN,
                                                         .ci_hi_ns = NAN,
                                                         .share = 0.98,
                                                         .named = true,
                                                         .count_a = NAN,
                                                         .count_b = NAN,
                                                         .evidence = first_evidence,
                                                         .evidence_count = 2},
        .launch_ns = {first_a, first_b},
        .launch_count = 2}};
static struct diff_once_place first_phases[] = {{"forward", 2e6, 3.07e8, 0}};
static struct diff_straggler stragglers[] = {{.rank = 3,
        .side = 1,
        .last_count = 40,
        .collectives = 48,
        .late_ns = 2.1e5,
        .wait_ns = 1.9e5,
        .exposed_ns = 1.2e5,
        .told = true,
        .deed = DIFF_DEED_FUNCTION,
        .why = "gemm",
        .why_ns = 2e5}};
static const struct diff_straggler late = {.rank = 3,
        .side = 1,
        .last_count = 40,
        .collectives = 48,
        .late_ns = 2.1e5,
        .deed = DIFF_DEED_FUNCTION,
        .why = "<gemm>",
        .why_ns = NAN};

static struct diff_collective collectives[] = {
        {"AllReduce f32", "more than 16 MiB", {"RING SIMPLE", "RING LL"}, {12, 12}, {4.6e6, 6.2e6},
                {3.9e5, 5.2e5}},
        {"Broad|cast u8", "", {NULL, ""}, {NAN, 0.5}, {NAN, 1e4}, {NAN, 0}}};

static struct diff_memory_part memory_parts[] = {
        {.kind = DIFF_MEMORY_FILE,
                .name = "libtorch_cpu.so",
                .name_a = "libtorch_cpu.so.1.13.0",
                .name_b = "libtorch_cpu.so",
                .a_bytes = 88 << 20,
                .b_bytes = 149 << 20,
                .anonymous_bytes = {2 << 20, 4 << 20},
                .told = true},
        {.kind = DIFF_MEMORY_ANONYMOUS,
                .name = "",
                .name_a = "",
                .name_b = "",
                .a_bytes = 50 << 20,
                .b_bytes = 80 << 20,
                .anonymous_bytes = {50 << 20, 80 << 20},
                .told = true},
        {.kind = DIFF_MEMORY_FILE,
                .name = "lib<script>alert|\x1b[31m.so",
                .name_a = "lib<script>alert|\x1b[31m.so",
                .a_bytes = 6 << 20,
                .told = true},
        {.kind = DIFF_MEMORY_HEAP,
                .name = "",
                .name_a = "",
                .name_b = "",
                .a_bytes = 90 << 20,
                .b_bytes = 91 << 20},
};

static struct diff_touch memory_touches[] = {
        {.caller = "Adam.step",
                .caller_file = "torch/optim/adam.py",
                .outside = "train",
                .outside_file = "train.py",
                .function = "fill",
                .module = "libtorch_cpu.so",
                .a_bytes = 4 << 20,
                .b_bytes = 64 << 20,
                .samples = {2, 31},
                .told = true},
        {.caller = "import of torch",
                .function = "lib<script>alert|\x1b[31m.so",
                .loads = true,
                .b_bytes = 20 << 20,
                .start_bytes = {0, 19 << 20},
                .samples = {0, 9},
                .told = true},
        {.function = "main", .module = "plant", .a_bytes = 3 << 20, .b_bytes = 4 << 20},
};

static struct diff_memory memory(bool failed)
{
    return (struct diff_memory){.failed = failed,
            .time_failed = true,
            .peak_a_bytes = 240 << 20,
            .peak_b_bytes = 326 << 20,
            .held = {234 << 20, 320 << 20},
            .peak = {241 << 20, 327 << 20},
            .launches = {2, 2},
            .parts = memory_parts,
            .touches = memory_touches,
            .touch_count = 3,
            .touch_told_count = 2,
            .touch_more_bytes = 80 << 20,
            .seen = {220 << 20, 310 << 20},
            .part_count = 4,
            .told_count = 3,
            .more_bytes = 91 << 20,
            .less_bytes = -(6 << 20)};
}

static struct diff_workload explained(void)
{
    return (struct diff_workload){.name = "dlrm-train",
            .unit = "step",
            .step_a_ns = 12.1e6,
            .step_b_ns = 14.1e6,
            .delta_ns = 2e6,
            .delta_lo_ns = 1.9e6,
            .delta_hi_ns = 2.1e6,
            .traced_ratio = {1.04, 1.05},
            .match_coverage = 0.982,
            .residual_ns = 1e4,
            .slower_ns = 2.01e6,
            .faster_ns = -1.2e5,
            .unaccounted = {0.001, 0.002},
            .traced_pairs = 1,
            .windows = {94, 94},
            .parts = {[COST_GPU_COMPUTE] = {11e6, 13e6},
                    [COST_LAUNCH_BOUND] = {1e6, 1e6},
                    [COST_IDLE] = {1e5, 1e5}},
            .contributions = contributions,
            .contribution_count = 4,
            .stragglers = stragglers,
            .straggler_count = 1,
            .collectives = collectives,
            .collective_count = 2,
            .nccl_version = {"2.28.3", "2.28.9"},
            .late = &late,
            .notes = notes,
            .note_count = 1,
            .cold_a_ns = 3.2e7,
            .cold_b_ns = 3.4e8,
            .first = {.parts = first_parts,
                    .part_count = 1,
                    .phases = first_phases,
                    .phase_count = 1,
                    .pairs = 2},
            .memory = memory(true),
            .couple = -1};
}

static struct diff_workload unexplained(void)
{
    return (struct diff_workload){.name = "dlrm-infer",
            .unit = "request",
            .unexplained = DIFF_UNEXPLAINED_NOT_TRACED,
            .step_a_ns = NAN,
            .step_b_ns = NAN,
            .delta_ns = NAN,
            .delta_lo_ns = NAN,
            .delta_hi_ns = NAN,
            .traced_ratio = {NAN, NAN},
            .match_coverage = NAN,
            .residual_ns = NAN,
            .unaccounted = {NAN, NAN},
            .cold_a_ns = NAN,
            .cold_b_ns = NAN,
            .couple = -1};
}

static char *table_of(const struct diff_view *view, const struct render_opts *opts)
{
    char *text = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&text, &len);
    struct error err = {0};
    CHECK(diff_view_table(view, opts, stream, &err) == 0);
    fclose(stream);
    return text;
}

TEST(goldens)
{
    struct diff_workload workloads[] = {explained(), unexplained()};
    const struct diff diff = {
            .side_names = {"old", "new"}, .workloads = workloads, .workload_count = 2};
    char *text = table_of(&(struct diff_view){.diff = &diff, .path = "run.db"},
            &(struct render_opts){.utf8 = true});
    golden_compare(text, "diff_train.txt");
    free(text);
    text = table_of(&(struct diff_view){.diff = &diff, .path = "run.db", .brief = true},
            &(struct render_opts){0});
    golden_compare(text, "diff_brief.txt");
    free(text);
    text = diff_view_markdown(&diff);
    golden_compare(text, "diff_train.md");
    free(text);
    json_t *document = diff_view_json(&diff);
    char *json = json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    text = xasprintf("%s\n", json);
    golden_compare(text, "diff_train.json");
    free(text);
    free(json);
    json_decref(document);
}

TEST(nothing_of_the_store_acts_on_a_terminal_or_a_page)
{
    struct diff_workload workload = explained();
    const struct diff diff = {.workloads = &workload, .workload_count = 1};
    char *text = table_of(
            &(struct diff_view){.diff = &diff, .all = true}, &(struct render_opts){.width = 60});
    CHECK(!strchr(text, '\x1b'));
    for (char *line = text; line && *line;
            line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        CHECK(strcspn(line, "\n") <= 62 || strncmp(line, "2. ", 3) == 0);
    free(text);
    text = diff_view_markdown(&diff);
    CHECK(!strstr(text, "<script>alert") && !strchr(text, '\x1b'));
    free(text);
}

TEST(nothing_named_is_said_so)
{
    struct diff_workload workload = explained();
    workload.contributions = contributions + 3;
    workload.contribution_count = 1;
    workload.slower_ns = workload.faster_ns = 0;
    char *answer = diff_text_answer(&workload);
    CHECK_CONTAINS(answer, "no single part"); // the step itself did change
    free(answer);
    workload.delta_lo_ns = -1e5;
    answer = diff_text_answer(&workload);
    CHECK_CONTAINS(answer, "Nothing stands out");
    free(answer);
    const struct diff diff = {.workloads = &workload, .workload_count = 1};
    char *text = diff_view_markdown(&diff);
    // what weakens it is not folded away with the evidence
    CHECK_CONTAINS(text, "\n- note: One traced pair: how far");
    free(text);
    workload = unexplained();
    CHECK(!diff_view_explained(&diff));
    text = diff_view_markdown(&diff);
    CHECK_STR(text, "");
    free(text);
    text = diff_text_headline(&workload);
    CHECK_CONTAINS(text, "was not measured");
    free(text);
}

TEST(a_long_name_leaves_room_for_its_doubt)
{
    struct diff_contribution one = contributions[3];
    struct diff_workload workload = explained();
    one.label =
            "a_function_whose_name_is_so_long_that_it_is_cut_in_its_middle_wherever_it_may_stand_on_a_screen";
    one.delta_ns = -2e5;
    workload.contributions = &one;
    workload.contribution_count = 1;
    workload.slower_ns = workload.faster_ns = 0;
    const struct diff diff = {.workloads = &workload, .workload_count = 1};
    char *text = table_of(&(struct diff_view){.diff = &diff}, &(struct render_opts){.width = 80});
    char *line = strstr(text, "\n4. "), *end = line ? strchr(line + 1, '\n') : NULL;
    CHECK(end && end - line - 1 == 80);
    CHECK(end && strncmp(end - 22, " (not told from noise)", 22) == 0);
    CHECK_CONTAINS(text, "no interval: one traced pair gives none"); // however many windows it has
    free(text);
}

TEST(workloads_that_do_not_fit_into_markdown_are_counted)
{
    enum { WORKLOADS = 400 };
    struct diff_workload *workloads = xcalloc(WORKLOADS, sizeof *workloads);
    for (int i = 0; i < WORKLOADS; i++)
        workloads[i] = explained();
    const struct diff diff = {.workloads = workloads, .workload_count = WORKLOADS};
    char *text = diff_view_markdown(&diff);
    size_t shown = 0;
    for (const char *at = text; (at = strstr(at, "\n**dlrm-train: step ")); at++)
        shown++;
    char *want = xasprintf("\n%zu more workloads did not fit here: `upgate diff RUN.db` has all.\n",
            WORKLOADS - shown);
    CHECK(shown > 0 && shown < WORKLOADS);
    CHECK_CONTAINS(text, want);
    free(want);
    free(text);
    free(workloads);
}

// "-0.0 %" would ask on which side of 0.
TEST(a_difference_that_rounds_to_nothing_has_no_sign)
{
    struct diff_workload workload = explained();
    workload.delta_ns = -2e3;
    workload.delta_lo_ns = -3e4;
    workload.delta_hi_ns = 2.5e3;
    workload.cold_b_ns = workload.cold_a_ns - 10;
    char *headline = diff_text_headline(&workload), *first = diff_text_first(&workload),
         share[NUMBERS_SIZE];
    CHECK_CONTAINS(headline, " (0.0 %, -0.2 to 0.0 %)");
    CHECK_STR(first, "32 ms -> 32 ms (0.0 %)");
    CHECK_STR(diff_text_share(-0.0001, share), "0.0 %");
    CHECK_STR(diff_text_share(-0.0099, share), "-1.0 %");
    free(headline);
    free(first);
}

// Also where the step is not explained; before the step where nothing of the time failed, else
// behind it.
TEST(memory_that_failed_is_told_first)
{
    struct diff_workload workload = explained();
    const struct diff diff = {.workloads = &workload, .workload_count = 1};
    for (int faster = 0; faster < 2; faster++) {
        workload.memory.time_failed = !faster;
        char *text = table_of(&(struct diff_view){.diff = &diff}, &(struct render_opts){0});
        const char *
                memory_at = strstr(text,
                       "peak memory 240 MiB -> 326 MiB (+35.8 %, +86.0 MiB): libtorch_cpu.so +61.0"),
               *step_at = strstr(text, "dlrm-train: step");
        CHECK(memory_at && step_at && (memory_at < step_at) == faster);
        free(text);
    }
    workload = unexplained();
    workload.memory = memory(true);
    CHECK(diff_view_explained(&diff));
    char *text = diff_view_markdown(&diff);
    CHECK(strstr(text, "anonymous memory +30.0 MiB") && !strstr(text, "<script>alert") &&
            !strchr(text, '\x1b'));
    CHECK(strstr(text,
            "first touched in Adam.step (torch/optim/adam.py), called by train (train.py), most by fill of libtorch"));
    free(text);
    text = table_of(&(struct diff_view){.diff = &diff, .all = true}, &(struct render_opts){0});
    CHECK(strstr(text, "touched") && strstr(text, "main of plant") && !strchr(text, '\x1b'));
    free(text);
    text = diff_text_memory_touched(&workload.memory);
    CHECK_STR(text,
            "By the code that touched it first: +60.0 MiB in Adam.step (torch/optim/adam.py), called by train (train.py), most by fill "
            "of libtorch_cpu.so; +20.0 MiB in import of torch, most by loading of lib<script>alert|\x1b[31m.so; all else +6.00 MiB. "
            "Page faults are sampled: 94 % (a) and 97 % (b) of what was held lies at one.");
    free(text);
    text = diff_text_touch(&workload.memory, &memory_touches[1]);
    CHECK_CONTAINS(text, "0 B -> 20.0 MiB, before the first step");
    free(text);
    workload.memory.touch_told_count = 0;
    text = diff_text_memory_touched(&workload.memory);
    CHECK_CONTAINS(text, "No single piece of code");
    free(text);
    workload.memory.touch_count = 0; // nobody watched
    CHECK(!diff_text_memory_touched(&workload.memory));
    // What was freed by the time anybody looked is in no part, and that is said.
    workload.memory.held[1] = workload.memory.held[0] + (1 << 20);
    workload.memory.told_count = 0;
    workload.memory.more_bytes = workload.memory.less_bytes = 0;
    text = diff_text_memory(&workload, &workload.memory);
    CHECK_CONTAINS(text, "no single file");
    free(text);
    text = diff_text_memory_answer(&workload.memory);
    CHECK_CONTAINS(text, "freed by then");
    free(text);
    workload.memory.peak[0] = NAN; // too short to be watched
    text = diff_text_memory_answer(&workload.memory);
    CHECK_CONTAINS(text, "held 234 MiB (a), 235 MiB of a peak of 327 MiB (b).");
    free(text);
}

static struct diff_memory_part gpu_parts[] = {
        {.kind = DIFF_MEMORY_RESERVE,
                .name = "",
                .name_a = "",
                .name_b = "",
                .a_bytes = 10 << 20,
                .b_bytes = 68 << 20,
                .told = true},
        {.kind = DIFF_MEMORY_TENSORS,
                .name = "",
                .name_a = "",
                .name_b = "",
                .a_bytes = 90 << 20,
                .b_bytes = 92 << 20},
};
static struct diff_touch gpu_touches[] = {{.caller = "backward of layers.*.attn",
        .function = "keep<script>alert|\x1b[31m",
        .module = "train.py",
        .b_bytes = 60 << 20,
        .samples = {0, 6},
        .told = true}};

// In the same form as the host's, in its own words, also where nothing else is explained; first
// where it alone failed.
TEST(memory_of_the_gpu)
{
    struct diff_workload workload = unexplained();
    const struct diff diff = {.workloads = &workload, .workload_count = 1};
    workload.gpu_memory = (struct diff_memory){.gpu = true,
            .failed = true,
            .peak_a_bytes = 100 << 20,
            .peak_b_bytes = 160 << 20,
            .held = {100 << 20, 160 << 20},
            .peak = {100 << 20, 160 << 20},
            .launches = {2, 2},
            .parts = gpu_parts,
            .part_count = 2,
            .told_count = 1,
            .more_bytes = 58 << 20,
            .touches = gpu_touches,
            .touch_count = 1,
            .touch_told_count = 1,
            .touch_more_bytes = 60 << 20,
            .seen = {50 << 20, 120 << 20}};
    CHECK(diff_view_explained(&diff));
    char *text = diff_text_memory(&workload, &workload.gpu_memory);
    CHECK_STR(text,
            "dlrm-infer: peak GPU memory 100 MiB -> 160 MiB (+60.0 %, +60.0 MiB): the allocator's reserve beyond tensors +58.0 MiB");
    free(text);
    text = diff_text_memory_answer(&workload.gpu_memory);
    CHECK_STR(text,
            "Together +58.0 MiB, all else +2.00 MiB. The traced launches held 100 MiB at most, of it 100 MiB reserved by the framework's "
            "allocator (a), 160 MiB, of it 160 MiB (b).");
    free(text);
    text = diff_text_memory_touched(&workload.gpu_memory);
    CHECK_CONTAINS(text,
            "By the code that allocated it: +60.0 MiB in backward of layers.*.attn, most by keep");
    CHECK_CONTAINS(text,
            "; all else 0 B. Allocations are recorded: 50 % (a) and 75 % (b) of what was held lies at one.");
    free(text);
    for (int failed = 0; failed < 2; failed++) {
        workload.gpu_memory.failed = failed;
        text = table_of(&(struct diff_view){.diff = &diff}, &(struct render_opts){0});
        const char *memory_at = strstr(text, "peak GPU memory 100"),
                   *step_at = strstr(text, "dlrm-infer: step");
        step_at = step_at ? step_at : strstr(text, "was not measured");
        CHECK(memory_at && step_at && (memory_at < step_at) == failed);
        CHECK(strstr(text, "+60.0 MiB allocated in backward of") && !strstr(text, "touched") &&
                !strchr(text, '\x1b'));
        free(text);
    }
    text = diff_view_markdown(&diff);
    CHECK(strstr(text, "peak GPU memory 100 MiB") && !strstr(text, "<script>alert") &&
            !strchr(text, '\x1b'));
    free(text);
    json_t *document = diff_view_json(&diff),
           *item = json_array_get(json_object_get(document, "workloads"), 0);
    json_t *touched =
            json_array_get(json_object_get(json_object_get(item, "gpu_memory"), "touched"), 0);
    CHECK_INT(json_integer_value(json_object_get(json_object_get(touched, "allocations"), "b")), 6);
    CHECK(!json_object_get(touched, "faults") && !json_object_get(item, "memory"));
    json_decref(document);
}

TEST(numbers_that_are_not_measured_are_null)
{
    struct diff_workload workload = unexplained();
    const struct diff diff = {.workloads = &workload, .workload_count = 1};
    json_t *document = diff_view_json(&diff),
           *item = json_array_get(json_object_get(document, "workloads"), 0);
    CHECK(json_is_null(json_object_get(item, "step_a_ns")));
    CHECK(json_is_null(json_object_get(item, "residual_ns")));
    CHECK(json_is_null(json_object_get(item, "decomposition")));
    CHECK(json_is_string(json_object_get(item, "unexplained")));
    json_decref(document);
}

static double slow_a[] = {0, 0}, slow_b[] = {4.8e6, 5.2e6};
static struct diff_launch_part slow_parts[] = {{.contribution = {.rank = 1,
                                                        .kind = DIFF_CPU_FUNCTION_ADDED,
                                                        .name_b = "save<script>alert(1)\x1b[31m",
                                                        .label = "save<script>alert(1)\x1b[31m",
                                                        .where = "checkpoint",
                                                        .b_ns = 4.9e6,
                                                        .delta_ns = 4.9e6,
                                                        .ci_lo_ns = NAN,
                                                        .ci_hi_ns = NAN,
                                                        .share = 0.94,
                                                        .named = true,
                                                        .count_a = NAN,
                                                        .count_b = NAN,
                                                        .busy_a_ns = NAN,
                                                        .busy_b_ns = NAN,
                                                        .suspects = suspects,
                                                        .suspect_count = 1},
        .launch_ns = {slow_a, slow_b},
        .launch_count = 2}};

static struct diff_slow slow(size_t parts)
{
    return (struct diff_slow){.metric = "slow_steps",
            .failed = true,
            .a_ns = 0,
            .b_ns = 5.2e6,
            .launch_ns = {slow_a, slow_b},
            .launch_count = 2,
            .found = {{.of = 240},
                    {.count = 12, .of = 240, .slow_ns = 1.1e8, .typical_ns = 1e7, .period = 20}},
            .parts = slow_parts,
            .part_count = parts,
            .told_ns = parts ? 4.9e6 : 0,
            .unseen_ns = 1e4,
            .where = parts ? "checkpoint" : NULL,
            .why_not = parts ? DIFF_SLOW_EXPLAINED : DIFF_SLOW_ONE_LAUNCH};
}

// Before the typical step where that did not fail, else behind it; nothing where no cell asks.
TEST(slow_steps_that_failed_are_told_first)
{
    struct diff_workload workload = explained();
    const struct diff diff = {.workloads = &workload, .workload_count = 1};
    CHECK(!diff_text_slow(&workload) && !diff_text_slow_answer(&workload) &&
            !diff_text_slow_first(&workload));
    workload.slow = slow(1);
    for (int typical = 0; typical < 2; typical++) {
        workload.slow.typical_failed = typical;
        char *text =
                table_of(&(struct diff_view){.diff = &diff}, &(struct render_opts){.width = 200});
        const char *
                slow_at = strstr(text,
                       "dlrm-train: slow steps take 0 -> 5.2 ms of the mean step (+5.2 ms): Function added: save"),
               *step_at = strstr(text, "dlrm-train: step");
        CHECK(slow_at && step_at && (slow_at < step_at) == !typical);
        CHECK_CONTAINS(text, "every 20 steps; baseline: 0 slow steps of 240.");
        CHECK_CONTAINS(text, "suspect: torch 2.4.0 -> 2.6.0");
        CHECK(!strchr(text, '\x1b'));
        free(text);
        text = table_of(
                &(struct diff_view){.diff = &diff, .brief = true}, &(struct render_opts){0});
        CHECK_CONTAINS(text, "slow steps take");
        free(text);
        text = diff_view_markdown(&diff);
        CHECK_CONTAINS(text, "Most of it is in checkpoint");
        slow_at = strstr(text, "slow steps take 0"), step_at = strstr(text, "dlrm-train: step");
        CHECK(slow_at && step_at && (slow_at < step_at) == !typical);
        CHECK(!strstr(text, "<script>alert") && !strchr(text, '\x1b'));
        free(text);
    }
    char *text = diff_text_slow_part(&slow_parts[0]);
    CHECK_STR(text,
            "+4.9 ms Function added: save<script>alert(1)\x1b[31m, in checkpoint (a 0, 0; b 4.8 ms, 5.2 ms), 94 % of it");
    free(text);
    static double less[] = {-2e6, 0};
    struct diff_launch_part part = slow_parts[0];
    part.launch_ns[0] = less;
    text = diff_text_slow_part(&part);
    CHECK_CONTAINS(text, "(a -2 ms, 0; b 4.8 ms, 5.2 ms)");
    free(text);
    text = diff_text_slow_answer(&workload);
    CHECK_CONTAINS(text, "What is told is 94 % of it.");
    free(text);
    workload.slow.told_ns = 5.5e6;
    text = diff_text_slow_answer(&workload);
    CHECK_CONTAINS(text,
            "What is told is all of it and 300 us more: what is not told goes the other way.");
    CHECK(!strstr(text, "106 %"));
    free(text);
    workload.slow.tail = true;
    text = diff_text_slow(&workload);
    CHECK_CONTAINS(text, "the slowest steps take 0 -> 5.2 ms more than a typical one (+5.2 ms)");
    free(text);
}

TEST(slow_steps_that_are_not_explained_say_why)
{
    struct diff_workload workload = explained();
    const struct diff diff = {.workloads = &workload, .workload_count = 1};
    workload.slow = slow(0);
    char *text = diff_text_slow(&workload);
    CHECK_STR(text,
            "dlrm-train: what slow_steps fails by is not explained: one traced launch a side does not tell what is chance; trace more "
            "(schedule.traced_launches)");
    free(text);
    text = diff_text_slow_answer(&workload);
    CHECK_STR(text,
            "In the traced launches, candidate: 12 slow steps of 240, 110 ms beside 10 ms, every 20 steps; baseline: 0 slow steps of 240. "
            "There slow steps take 0 -> 5.2 ms of the mean step (+5.2 ms), launch by launch (a 0, 0; b 4.8 ms, 5.2 ms).");
    free(text);
    workload.slow.failed = false; // the end of a run tells what failed
    text = table_of(&(struct diff_view){.diff = &diff, .brief = true}, &(struct render_opts){0});
    CHECK(!strstr(text, "slow_steps"));
    free(text);
    CHECK(!diff_text_slow(&workload)); // it passes, and there is nothing to tell
    workload.slow.open = true;
    text = diff_text_slow(&workload);
    CHECK_STR(text,
            "dlrm-train: slow_steps is inconclusive, and not explained: one traced launch a side does not tell what is chance; trace more "
            "(schedule.traced_launches)");
    free(text);
    json_t *document = diff_view_json(&diff),
           *item = json_object_get(
                   json_array_get(json_object_get(document, "workloads"), 0), "slow_steps");
    CHECK_STR(json_string_value(json_object_get(item, "metric")), "slow_steps");
    CHECK(json_is_null(json_object_get(item, "where")) &&
            json_is_null(json_object_get(item, "unseen_ns")));
    CHECK(json_is_null(json_object_get(json_object_get(item, "period"), "a")));
    CHECK_INT(json_integer_value(json_object_get(json_object_get(item, "slow"), "b")), 12);
    CHECK_INT(json_array_size(json_object_get(item, "contributions")), 0);
    CHECK_INT(json_array_size(json_object_get(json_object_get(item, "launches_ns"), "b")), 2);
    json_decref(document);
    workload.slow = (struct diff_slow){0};
    document = diff_view_json(&diff);
    CHECK(!json_object_get(
            json_array_get(json_object_get(document, "workloads"), 0), "slow_steps"));
    json_decref(document);
}

TEST(cpu_time_is_told_where_it_is_asked_for)
{
    static double cpu_a[] = {0, 0}, cpu_b[] = {2.4e9, 2.6e9};
    static struct diff_launch_part parts[] = {{.contribution = {.rank = 1,
                                                       .kind = DIFF_CPU_FUNCTION_ADDED,
                                                       .label = "spin<script>alert(1)\x1b[31m",
                                                       .where = "thread python",
                                                       .b_ns = 2.5e9,
                                                       .delta_ns = 2.5e9},
            .launch_ns = {cpu_a, cpu_b},
            .launch_count = 2}};
    static struct diff_once_place places[] = {
            {"forward", 3e9, 3.01e9, 0}, {"thread python", 0, 2.5e9, 0}, {NULL, 5e8, 1e9, 26}};
    struct diff_workload workload = explained();
    const struct diff diff = {.workloads = &workload, .workload_count = 1};
    CHECK(!diff_text_cpu(&workload));
    workload.cpu_a_ns = 3e9;
    workload.cpu_b_ns = 5.5e9;
    workload.cpu = (struct diff_once){
            .parts = parts, .part_count = 1, .phases = places, .phase_count = 3, .pairs = 2};
    char *text = diff_text_cpu(&workload);
    CHECK_STR(text,
            "dlrm-train: CPU time of a launch 3 s -> 5.5 s (+83.3 %): Function added: spin<script>alert(1)\x1b[31m +2.5 s");
    free(text);
    text = diff_text_cpu_answer(&workload);
    CHECK_STR(text,
            "By thread, and by phase of those that make steps: thread python 0 -> 2.5 s; 26 others 500 ms -> 1 s.");
    free(text);
    text = diff_text_once_place(&(struct diff_once_place){.others = 1});
    CHECK_STR(text, "1 other");
    free(text);
    text = table_of(&(struct diff_view){.diff = &diff}, &(struct render_opts){.width = 140});
    CHECK_CONTAINS(text, "CPU time of a launch 3 s -> 5.5 s");
    CHECK_CONTAINS(text, "in thread python (a 0, 0; b 2.4 s, 2.6 s)");
    CHECK(!strchr(text, '\x1b'));
    free(text);
    text = diff_view_markdown(&diff);
    CHECK_CONTAINS(text, "thread python 0 -> 2.5 s");
    CHECK(!strstr(text, "<script>alert") && !strchr(text, '\x1b'));
    free(text);
    json_t *document = diff_view_json(&diff),
           *item = json_object_get(
                   json_array_get(json_object_get(document, "workloads"), 0), "cpu_time");
    CHECK_INT(json_integer_value(json_object_get(item, "b_ns")), 5500000000LL);
    json_t *places_shown = json_object_get(item, "places");
    CHECK_INT(json_array_size(places_shown), 3);
    CHECK_STR(json_string_value(json_object_get(json_array_get(places_shown, 2), "name")),
            "26 others");
    CHECK_INT(json_array_size(json_object_get(item, "contributions")), 1);
    json_decref(document);
    workload.cpu = (struct diff_once){.pairs = 1, .why_not = DIFF_ONCE_ONE_LAUNCH};
    text = diff_text_cpu(&workload);
    CHECK_STR(text,
            "dlrm-train: CPU time of a launch 3 s -> 5.5 s (+83.3 %), not explained: one traced launch a side does not tell which part of it differs");
    free(text);
    CHECK(!diff_text_cpu_answer(&workload));
    text = table_of(&(struct diff_view){.diff = &diff, .brief = true}, &(struct render_opts){0});
    CHECK(!strstr(text, "CPU time"));
    free(text);
}

static void check_evidence(const struct diff_evidence *fact, const char *want)
{
    char *text = diff_text_evidence(fact);
    CHECK_STR(text, want);
    free(text);
}

TEST(evidence_in_words)
{
    static const struct diff_evidence_part three[] = {{"launches", 1.2e6, 0.8}, {"norm", 3e5, 0.2}},
                                           less[] = {{"launches", -1.2e6, 1}},
                                           whole[] = {{"forward", 2e6, NAN}, {"", -1e5, NAN}},
                                           functions[] = {{"gemm", -2e6, NAN}, {"relu", 4e5, NAN}};
    static const struct cost_shape same[2] = {{.grid = {1, 1, 1}}, {.grid = {1, 1, 1}}},
                                   copies[2] = {{.shared_bytes = 16, .bytes = 1024},
                                           {.shared_bytes = 32, .bytes = 2048}},
                                   blocks[2] = {{.block = {64, 1, 1}}, {.block = {32, 2, 1}}};
    static const struct diff_beside company[] = {
            {.label = "AllReduce f32 / RING LL", .share = {0.001, 0.71}, .told = {false, true}},
            {.label = "softmax", .share = {0.001, 0.2}, .told = {false, true}}};
    static const struct {
        struct diff_evidence fact;
        const char *text;
    } cases[] = {
            {{.kind = DIFF_EVIDENCE_TIMES, .sides = {"request", {1e6, 2e6}, {NAN, NAN}}},
                    "a: 1 ms a request; b: 2 ms a request"},
            {{.kind = DIFF_EVIDENCE_TIMES, .sides = {"step", {1e6, 2e6}, {2.5, 12.5}}},
                    "a: 1 ms a step in 2.50 executions; b: 2 ms a step in 12 executions"},
            {{.kind = DIFF_EVIDENCE_LAUNCH_WAIT, .sides = {"step", {0, 2e6}, {NAN, NAN}}},
                    "of it until the host had launched it, with nothing else on the device: a 0 ns, b 2 ms a step"},
            {{.kind = DIFF_EVIDENCE_LATE_BEHIND, .sides = {"step", {0, 2e6}, {NAN, NAN}}},
                    "of it late launches behind it, until the host was as far ahead of the device again: a 0 ns, b 2 ms a step"},
            {{.kind = DIFF_EVIDENCE_BUSY, .sides = {"step", {1e6, 2e6}, {NAN, NAN}}},
                    "busy, also behind other work: a 1 ms, b 2 ms a step"},
            {{.kind = DIFF_EVIDENCE_EXECUTION, .sides = {"step", {1e6, 1.5e6}, {NAN, NAN}}},
                    "one execution: a 1 ms, b 1.5 ms (+50.0 %)"},
            {{.kind = DIFF_EVIDENCE_CLOCK, .clock = {40, {1e6, 1.1e6}}},
                    "every one of 40 kernels takes 10.0 % longer: a clock, not a kernel, has changed"},
            {{.kind = DIFF_EVIDENCE_CLOCK, .clock = {40, {1e6, 0.9e6}}},
                    "every one of 40 kernels takes 10.0 % less: a clock, not a kernel, has changed"},
            {{.kind = DIFF_EVIDENCE_FEW, .number = 2},
                    "too few traced launches to tell: 2 of each side"},
            {{.kind = DIFF_EVIDENCE_CAUSES, .list = {three, 2, 3}},
                    "what it causes, in 3 parts: launches +1.2 ms (80 %), norm +300 us (20 %), and less"},
            {{.kind = DIFF_EVIDENCE_CAUSES, .list = {less, 1, 1}},
                    "what it causes, in 1 part: launches -1.2 ms (100 %)"},
            {{.kind = DIFF_EVIDENCE_SPREAD, .list = {three, 2, 2}},
                    "spread over 2 parts, none of which is told from noise alone: launches +1.2 ms (80 %), norm +300 us (20 %)"},
            {{.kind = DIFF_EVIDENCE_SPREAD, .list = {three, 0, 9}},
                    "spread over 9 parts, none of which is told from noise alone: -, and less"},
            {{.kind = DIFF_EVIDENCE_FUNCTIONS, .list = {functions, 2, 2}},
                    "most of it: gemm -2 ms, relu +400 us"},
            {{.kind = DIFF_EVIDENCE_PLACES, .list = {whole, 2, 7}},
                    "at 7 places: forward +2 ms, elsewhere -100 us"},
            {{.kind = DIFF_EVIDENCE_NAMES,
                     .names = {{"gemm_v1", "gemm_v2"}, {1, 1}, ALIGN_RESOURCES}},
                    "gemm_v1 -> gemm_v2 (same place in the order and same shape)"},
            {{.kind = DIFF_EVIDENCE_NAMES, .names = {{"a", "b"}, {1, 1}, ALIGN_SIMILAR}},
                    "a -> b (similar, or the only ones left at their place)"},
            {{.kind = DIFF_EVIDENCE_NAMES, .names = {{"a + b + c", "d"}, {3, 1}, ALIGN_GROUP}},
                    "3 of a for 1 of b: a + b + c -> d (what is left at their place)"},
            {{.kind = DIFF_EVIDENCE_SHAPE, .shape = {copies, {NULL, NULL}}},
                    "changed: shared bytes 16 -> 32, bytes 1024 -> 2048"},
            {{.kind = DIFF_EVIDENCE_SHAPE,
                     .shape = {blocks, {"AllReduce / RING", "AllReduce / TREE"}}},
                    "changed: block 64x1x1 -> 32x2x1, AllReduce / RING -> AllReduce / TREE"},
            {{.kind = DIFF_EVIDENCE_SHAPE,
                     .shape = {same, {"AllReduce / RING", "AllReduce / TREE"}}},
                    "changed: AllReduce / RING -> AllReduce / TREE"},
            {{.kind = DIFF_EVIDENCE_BESIDE, .beside = {company, 2}},
                    "beside it on the same device: a: nothing; b: AllReduce f32 / RING LL 71 % of its time, softmax 20 % of its time"},
            {{.kind = DIFF_EVIDENCE_OVERLAP,
                     .overlap = {{0.32, 0.95}, {2.5e5, 2.9e5}, {1.9e5, 1.91e5}, true}},
                    "others ran beside 32 % (a) and 95 % (b) of the executions; one of them: a 250 us, b 290 us (+16.0 %); one of the "
                    "others: a 190 us, b 191 us (+0.5 %): the kernel is the same, what runs beside it is not"},
            {{.kind = DIFF_EVIDENCE_OVERLAP, .overlap = {{0, 1}, {NAN, 2.9e5}, {NAN, NAN}, false}},
                    "others ran beside 0 % (a) and 100 % (b) of the executions; one of them: a -, b 290 us"},
            {{.kind = DIFF_EVIDENCE_THREADS, .threads = {{2, 1}, {1.7, 1}, 3}},
                    "threads that worked: a 2, b 1; on a CPU at a time: a 1.70, b 1.00; 3 functions take longer together"},
            {{.kind = DIFF_EVIDENCE_NO_NAMES},
                    "compared by place: one side has no names for most of these functions"},
            {{.kind = DIFF_EVIDENCE_ALSO_LATER, .number = 0},
                    "the baseline runs it too, outside of its first step"},
            {{.kind = DIFF_EVIDENCE_ALSO_LATER, .number = 1},
                    "the candidate runs it too, outside of its first step"},
            {{.kind = DIFF_EVIDENCE_STALL, .stall = {"ptrace", "py-spy"}},
                    "to do: end py-spy, or let it not stop the target (py-spy --nonblocking, a lower rate)"},
            {{.kind = DIFF_EVIDENCE_STALL, .stall = {"ptrace", NULL}},
                    "to do: end the culprit, or let it not stop the target (py-spy --nonblocking, a lower rate)"},
            {{.kind = DIFF_EVIDENCE_LATE_RANK, .late = &late},
                    "Rank 3 arrives last at 40 of 48 collectives, by 210 us: function <gemm>"},
    };
    bool seen[DIFF_EVIDENCE_KINDS] = {false};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_evidence(&cases[i].fact, cases[i].text);
        seen[cases[i].fact.kind] = true;
    }
    for (int kind = 0; kind < DIFF_EVIDENCE_KINDS; kind++)
        CHECK(seen[kind]);
}

TEST(a_late_rank_in_words)
{
    struct diff_straggler rank = {.rank = 1,
            .side = 1,
            .last_count = 90,
            .collectives = 100,
            .late_ns = 5e5,
            .deed = DIFF_DEED_FUNCTION,
            .why = "slow",
            .why_ns = 9e5};
    char *text = diff_text_late(&rank);
    CHECK_STR(text,
            "Rank 1 arrives last at 90 of 100 collectives, by 500 us: function slow, 900 us a traced step more than on "
            "the other ranks");
    free(text);
    rank.deed = DIFF_DEED_UNKNOWN;
    rank.why = NULL;
    text = diff_text_late(&rank);
    CHECK_STR(text, "Rank 1 arrives last at 90 of 100 collectives, by 500 us");
    free(text);
    rank.last_count = 100;
    text = diff_text_late(&rank);
    CHECK_STR(text, "Rank 1 arrives last at all 100 collectives, by 500 us");
    free(text);
    rank = (struct diff_straggler){.rank = 1,
            .last_count = 90,
            .collectives = 100,
            .late_ns = 5e5,
            .deed = DIFF_DEED_FUNCTION,
            .why = "slow",
            .why_ns = NAN};
    text = diff_text_late(&rank);
    CHECK_STR(text,
            "In the baseline, rank 1 arrives last at 90 of 100 collectives, by 500 us: function slow");
    free(text);
    CHECK(!diff_text_late(NULL));
}

TEST(notes_in_words)
{
    static const struct {
        struct diff_note note;
        const char *text;
    } cases[] = {
            {{.kind = DIFF_NOTE_TRACED_ONLY},
                    "There are no untraced launches: the traced ones stand in for them, with what tracing costs."},
            {{.kind = DIFF_NOTE_NOT_JUDGED},
                    "The run was not judged: the step times are medians of its launches so far."},
            {{.kind = DIFF_NOTE_MEAN, .share = {20.0 / 35, 0}},
                    "Few steps take most of the difference: the mean step changed by +57.1 %, the median by 0.0 %; the mean is what is "
                    "explained here."},
            {{.kind = DIFF_NOTE_DOUBT,
                     .side = 1,
                     .pair = 2,
                     .doubt = {.kind = LAUNCH_DOUBT_OUTSIDE, .count = 3}},
                    "Candidate, traced pair 2: 3 steps lie outside the recording"},
            {{.kind = DIFF_NOTE_DOUBTS_LEFT, .count = 7},
                    "7 more of the kind, of traced launches, are not listed."},
            {{.kind = DIFF_NOTE_DOUBTS_LEFT, .count = 1},
                    "1 more of the kind, of traced launches, is not listed."},
            {{.kind = DIFF_NOTE_NO_SAMPLES, .side = 1, .pair = 1},
                    "Traced pair 1 is left out: no samples of the candidate were recorded."},
            {{.kind = DIFF_NOTE_LEFT_OUT,
                     .pair = 1,
                     .text = "'run.db' has no recording of launch 7"},
                    "Traced pair 1 is left out: 'run.db' has no recording of launch 7."},
            {{.kind = DIFF_NOTE_FOREIGN, .share = {0.051, 0.12}},
                    "Other programs took the CPU for 5.1 % (a) and 12.0 % (b) of the traced time: that is left out."},
            {{.kind = DIFF_NOTE_RESIDUAL, .ns = {-2e5}, .share = {0.02}},
                    "-200 us of the difference (2.0 % of a step) are in no contribution: not all time of the traced windows is accounted "
                    "for."},
            {{.kind = DIFF_NOTE_TRACED_SLOW, .unit = "step", .share = {1.3, NAN}},
                    "A traced step took 1.300 (a) and unknown (b) times as long as an untraced one: what is short and often is told too "
                    "long."},
            {{.kind = DIFF_NOTE_TRACED_APART, .share = {0.0312}},
                    "The traced steps of the sides differ otherwise than the untraced ones do, by 3.1 %: intervals are wider by that."},
            {{.kind = DIFF_NOTE_ONE_PAIR},
                    "One traced pair: how far launches of one side differ from each other is not known, and nothing is told from it; "
                    "traced_launches: 4 and more measure it."},
            {{.kind = DIFF_NOTE_FEW, .count = 1, .of = 2, .ns = {3e5}},
                    "1 part that differs by up to 300 us: too few traced launches to tell, 2 of each side; traced_launches: 4 and more "
                    "tell more."},
            {{.kind = DIFF_NOTE_FEW, .count = 3, .of = 2, .ns = {3e5}},
                    "3 parts that differ by up to 300 us: too few traced launches to tell, 2 of each side; traced_launches: 4 and more "
                    "tell more."},
            {{.kind = DIFF_NOTE_COUPLES, .count = 3, .of = 90},
                    "3 of 90 couples of windows are left out: one took far longer than the others, and the middle of the steps is what is "
                    "explained."},
            {{.kind = DIFF_NOTE_COUPLES, .count = 1, .of = 90},
                    "1 of 90 couples of windows is left out: one took far longer than the others, and the middle of the steps is what is "
                    "explained."},
            {{.kind = DIFF_NOTE_MATCHED, .share = {0.64}},
                    "64 % of the time was matched between the sides; the rest stands on one side only."},
            {{.kind = DIFF_NOTE_UNKNOWN, .side = 1, .share = {0.3}},
                    "Of 30 % of a step of the candidate it is not known what ran."},
            {{.kind = DIFF_NOTE_FIRST_STEP, .ns = {1e8, 1.5e8}},
                    "The first step changed too, and is in no contribution: 100 ms -> 150 ms (+50.0 %)."},
            {{.kind = DIFF_NOTE_FIRST_STEP, .ns = {1e8, 1.5e8}, .why = DIFF_ONCE_NO_PAIR},
                    "The first step changed too, and is in no contribution: 100 ms -> 150 ms (+50.0 %); no pair of traced launches has "
                    "both first steps."},
            {{.kind = DIFF_NOTE_NO_FINGERPRINT},
                    "No suspects: the fingerprint of a side is not in the store."},
    };
    bool seen[DIFF_NOTE_KINDS] = {false};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = diff_text_note(&cases[i].note);
        CHECK_STR(text, cases[i].text);
        seen[cases[i].note.kind] = true;
        free(text);
    }
    for (int kind = 0; kind < DIFF_NOTE_KINDS; kind++)
        CHECK(seen[kind]);
}

TEST(doubts_in_words)
{
    static const struct {
        struct launch_doubt doubt;
        const char *text;
    } cases[] = {{{.kind = LAUNCH_DOUBT_NOT_ENDED}, "the recording was not ended in order"},
            {{.kind = LAUNCH_DOUBT_RECORDINGS, .count = 2},
                    "the launch has 2 recordings: the first one is looked at"},
            {{.kind = LAUNCH_DOUBT_NO_HOST},
                    "nothing of the host was recorded in the turns of this launch"},
            {{.kind = LAUNCH_DOUBT_LOST,
                     .count = 7,
                     .of = 100,
                     .producer = "gpu.kernel",
                     .what = "records",
                     .detail = "buffers were full"},
                    "gpu.kernel (records): 7 of 100 lost: buffers were full"},
            {{.kind = LAUNCH_DOUBT_LOST, .count = 2, .producer = "bpf.gap", .what = "records"},
                    "bpf.gap (records): 2 lost"},
            {{.kind = LAUNCH_DOUBT_REFUSED, .pid = 1001, .detail = "CUPTI is in use"},
                    "what process 1001 ran on the GPU is not recorded: CUPTI is in use"},
            {{.kind = LAUNCH_DOUBT_REFUSED, .pid = 1001},
                    "what process 1001 ran on the GPU is not recorded"},
            {{.kind = LAUNCH_DOUBT_CLOCK, .pid = 1001, .count = 25},
                    "the GPU's clock of process 1001 is up to 25 us off"},
            {{.kind = LAUNCH_DOUBT_OUTSIDE, .count = 15}, "15 steps lie outside the recording"},
            {{.kind = LAUNCH_DOUBT_OUTSIDE, .count = 1}, "1 step lies outside the recording"},
            {{.kind = LAUNCH_DOUBT_RANKS_BY_PID},
                    "which process is which rank is not recorded: taken in the order of their pids"},
            {{.kind = LAUNCH_DOUBT_RANKS_UNKNOWN, .count = 1, .of = 2},
                    "of 1 of 2 ranks it is not known which process they were"},
            {{.kind = LAUNCH_DOUBT_EARLY, .count = 1, .of = 3},
                    "1 of 3 operations of the GPU began before the call that launched them: its clock is off"}};
    bool seen[LAUNCH_DOUBT_KINDS] = {false};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = diff_text_note(
                &(struct diff_note){.kind = DIFF_NOTE_DOUBT, .doubt = cases[i].doubt});
        CHECK_STR(strstr(text, ": ") + 2, cases[i].text);
        seen[cases[i].doubt.kind] = true;
        free(text);
    }
    for (int kind = 0; kind < LAUNCH_DOUBT_KINDS; kind++)
        CHECK(seen[kind]);
}

TEST(why_nothing_is_explained_has_words)
{
    struct diff_workload workload = unexplained();
    for (int why = 0; why < DIFF_UNEXPLAINED_KINDS; why++) {
        workload.unexplained = (enum diff_unexplained)why;
        char *text = diff_text_unexplained(&workload);
        CHECK((text == NULL) == (why == DIFF_EXPLAINED));
        if (text)
            CHECK_CONTAINS(text, "'dlrm-infer'");
        free(text);
    }
}

TEST(suspects_in_words)
{
    static const struct {
        struct diff_suspect suspect;
        const char *text;
    } cases[] = {{{"torch", {"1.13.1", "2.13.0"}, DIFF_SUSPECT_HOLDS, "libtorch_cpu.so"},
                         "torch 1.13.1 -> 2.13.0: libtorch_cpu.so holds it"},
            {{"torch", {"1.13.1", "2.13.0"}, DIFF_SUSPECT_BELONGS, NULL},
                    "torch 1.13.1 -> 2.13.0: libc10 belongs to torch"},
            {{"torch", {"1.13.1", "2.13.0"}, DIFF_SUSPECT_LOADER, NULL},
                    "torch 1.13.1 -> 2.13.0: the loader is torch's"},
            {{"NCCL_PROTO", {NULL, "LL"}, DIFF_SUSPECT_SETTING_OF, "NCCL"},
                    "NCCL_PROTO none -> LL: a setting of NCCL"},
            {{"threads", {"2", "1"}, DIFF_SUSPECT_KIND, NULL}, "threads 2 -> 1"},
            {{"NCCL", {"2.28.3", "2.28.9"}, DIFF_SUSPECT_BESIDE, NULL},
                    "NCCL 2.28.3 -> 2.28.9: the collective beside it"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = diff_text_suspect(&cases[i].suspect);
        CHECK_STR(text, cases[i].text);
        free(text);
    }
    char *plain = diff_text_suspect(&(struct diff_suspect){.what = "x"});
    for (int why = DIFF_SUSPECT_KIND + 1; why < DIFF_SUSPECT_WHYS; why++) { // each has its words
        char *text = diff_text_suspect(
                &(struct diff_suspect){.what = "x", .why = (enum diff_suspect_why)why});
        CHECK(strlen(text) > strlen(plain) + strlen(": "));
        CHECK(!strstr(text, "(null)"));
        free(text);
    }
    free(plain);
}

// A long value is cut between characters, not within one.
TEST(a_long_value_of_a_suspect_stays_text)
{
    struct strbuf value = {0}, cut = {0};
    for (int i = 0; i < 60; i++)
        strbuf_add(&value, "\u00e4");
    strbuf_add(&cut, "MALLOC_CONF ");
    for (int i = 0; i < 38; i++) // of 77 bytes
        strbuf_add(&cut, "\u00e4");
    strbuf_add(&cut, "... -> none: a setting of the allocator");
    char *text = diff_text_suspect(&(struct diff_suspect){
            "MALLOC_CONF", {value.text, NULL}, DIFF_SUSPECT_SETTING_OF, "the allocator"});
    CHECK_STR(text, cut.text);
    free(text);
    strbuf_free(&value);
    strbuf_free(&cut);
}

TEST(why_there_are_no_parts_has_words)
{
    static const char *const once[DIFF_ONCE_WHYS] = {
            [DIFF_ONCE_NOT_TRACED] = "the CPU times are not in the traces",
            [DIFF_ONCE_NO_PAIR] = "no pair of traced launches has both CPU times",
            [DIFF_ONCE_ONE_LAUNCH] =
                    "one traced launch a side does not tell which part of it differs",
            [DIFF_ONCE_NOT_ALIKE] = "no part of it differs in all traced launches alike"};
    for (int why = 0; why < DIFF_ONCE_WHYS; why++) {
        char *text = diff_text_once_why((enum diff_once_why)why, "CPU time");
        CHECK_STR(text ? text : "", once[why] ? once[why] : "");
        free(text);
    }
    static const char *const steps[DIFF_SLOW_WHYS] = {
            [DIFF_SLOW_NO_PAIR] = "no pair of traced launches has steps on both sides",
            [DIFF_SLOW_NONE] =
                    "the traced launches had no slow steps: none of 480 took twice the typical one; trace more "
                    "(schedule.traced_launches)",
            [DIFF_SLOW_ONE_LAUNCH] =
                    "one traced launch a side does not tell what is chance; trace more "
                    "(schedule.traced_launches)",
            [DIFF_SLOW_NOT_EVERY] =
                    "not every traced launch of the side that is worse lies beyond those of the other; trace more "
                    "(schedule.traced_launches)",
            [DIFF_SLOW_BLIND] =
                    "in most of the time that they take longer, nothing was seen to run",
            [DIFF_SLOW_NOT_ALIKE] = "no part of them is larger in all traced launches alike"};
    struct diff_workload workload = explained();
    workload.slow = slow(0);
    for (int why = 0; why < DIFF_SLOW_WHYS; why++) {
        workload.slow.why_not = (enum diff_slow_why)why;
        char *text = diff_text_slow_why(&workload);
        CHECK_STR(text ? text : "", steps[why] ? steps[why] : "");
        free(text);
    }
}

TEST(what_a_late_rank_did_has_words)
{
    static const char *const words[DIFF_DEEDS] = {[DIFF_DEED_FUNCTION] = "function x",
            [DIFF_DEED_STALL] = "stall x",
            [DIFF_DEED_HOST] = "host x",
            [DIFF_DEED_CALL] = "call x",
            [DIFF_DEED_KERNEL] = "kernel x"};
    for (int deed = 0; deed < DIFF_DEEDS; deed++) {
        char *text =
                diff_text_deed(&(struct diff_straggler){.deed = (enum diff_deed)deed, .why = "x"});
        CHECK_STR(text ? text : "", words[deed] ? words[deed] : "");
        free(text);
    }
}

TEST(what_happened_has_words)
{
    static const struct {
        struct diff_contribution made;
        const char *text;
    } cases[] = {{{.kind = DIFF_KERNEL_SLOWER, .delta_ns = 1}, "Kernel slower"},
            {{.kind = DIFF_KERNEL_SLOWER, .delta_ns = -1}, "Kernel faster"},
            {{.kind = DIFF_CODE_MOVED, .delta_ns = 1}, "Moved into the first step"},
            {{.kind = DIFF_CODE_MOVED, .delta_ns = -1}, "Moved out of the first step"},
            {{.kind = DIFF_CODE_REPEATED, .delta_ns = 1}, "Runs more often"},
            {{.kind = DIFF_CODE_REPEATED, .delta_ns = -1}, "Runs less often"},
            {{.kind = DIFF_CODE_UNCOMPILED, .delta_ns = 1}, "No longer compiled"},
            {{.kind = DIFF_CODE_COMPILED, .delta_ns = -1}, "Now compiled"},
            {{.kind = DIFF_CODE_ADDED, .delta_ns = 1}, "Added"},
            {{.kind = DIFF_CODE_REMOVED, .delta_ns = -1}, "Removed"},
            {{.kind = DIFF_CPU_FUNCTION_ADDED, .delta_ns = 1}, "Function added"},
            {{.kind = DIFF_MEMCPY, .b_ns = 1e6, .delta_ns = 1e6}, "Copies added"},
            {{.kind = DIFF_MEMCPY, .a_ns = 1e6, .delta_ns = -1e6}, "Copies removed"},
            {{.kind = DIFF_KERNEL_REPLACED, .a_ns = 2, .b_ns = 1, .count_a = 10, .count_b = 7},
                    "Kernels fused"},
            {{.kind = DIFF_KERNEL_REPLACED, .a_ns = 1, .b_ns = 2, .count_a = 7, .count_b = 10},
                    "Kernels split"},
            {{.kind = DIFF_SYNC_ADDED, .a_ns = 1, .b_ns = 2, .delta_ns = 1},
                    "Longer waits for the GPU"},
            {{.kind = DIFF_SYNC_ADDED, .a_ns = 2, .b_ns = 1, .delta_ns = -1},
                    "Shorter waits for the GPU"},
            {{.kind = DIFF_KIND_COUNT, .delta_ns = 1}, "Unknown"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_STR(diff_text_change(&cases[i].made), cases[i].text);
    for (int kind = 0; kind < DIFF_KIND_COUNT; kind++)
        for (int sign = -1; sign <= 1; sign += 2) {
            const char *title = diff_text_change(
                    &(struct diff_contribution){.kind = (enum diff_kind)kind, .delta_ns = sign});
            CHECK(title && *title && strcmp(title, "Unknown") != 0);
        }
    CHECK_STR(diff_text_class(COST_GPU_COMPUTE), "GPU compute");
    for (int class = 0; class < COST_CLASS_COUNT; class ++)
        CHECK(strcmp(diff_text_class((enum cost_class) class), "Unknown") != 0);
}
