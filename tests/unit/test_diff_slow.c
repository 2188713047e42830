// SPDX-License-Identifier: Apache-2.0
// What slow steps are made of, from steps made by hand: four traced launches a side of 200 steps of
// 10 ms, with what a story puts into some of them, and cells that ask.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "tests/unit/runner.h"

enum { MS = 1000000, PAIRS = 4, FIRST = 5, STEPS = 200 };

struct extra { // in a step; ns 0: none
    const char *name, *place;
    enum cost_kind kind;
    enum cost_class class;
    int64_t ns;
    const char *caller, *python; // functions of Python that it is below, of the second with another
                                 // leaf that takes as much; NULL: none
};
typedef struct extra (*extra_fn)(int side, int pair, int step);

static struct store *store;
static struct diff_workload workload;
static struct diff_opts opts;
static struct diff_input input;
static const struct diff_slow *told;
static bool mean; // the contributions are the mean step's

static void cell(const char *metric, double ratio, double low, double high, const char *verdict)
{
    char *why = NULL,
         *sql = xasprintf(
                 "INSERT INTO cell (workload, metric, unit, direction, gating, ratio, ci_lower, ci_upper, alpha, pairs, verdict, "
                 "improved, reason) VALUES ('train', '%s', 'ns', 'lower', 1, %f, %f, %f, 0.01, 10, '%s', 0, '')",
                 metric, ratio, low, high, verdict);
    if (sqlite3_exec(store_db(store), sql, NULL, NULL, &why)) {
        printf("%s: %s\n", sql, why);
        exit(1);
    }
    free(sql);
}

static void begin(void)
{
    struct error err = {0};
    CHECK_INT(store_open("", STORE_CREATE, &store, &err), 0);
}

static uint32_t place_of(struct cost_tree *tree, const char *name)
{
    return cost_tree_child(tree, 0, &(struct cost_key){.kind = COST_PHASE, .name = name});
}

// A window of `block` steps, the first of which is `first`. Steps differ by 1 % each.
static void window(struct cost_tree *tree, int side, int pair, int first, int block, extra_fn story)
{
    struct extra extra = {0};
    int64_t usual = 0;
    for (int step = first; step < first + block; step++) {
        usual += 10 * MS + (step * 7 + pair * 3 + side) % 5 * (MS / 10);
        struct extra one = story(side, pair, step);
        extra = one.ns ? one : extra;
    }
    uint32_t id = cost_tree_window(tree,
            &(struct cost_window){.pair = (uint32_t)pair,
                    .couple = -1,
                    .steps = (uint32_t)block,
                    .first_step = (uint32_t)first,
                    .wall_ns = usual + extra.ns});
    uint32_t gemm = cost_tree_child(tree, place_of(tree, "forward"),
            &(struct cost_key){.kind = COST_FUNCTION,
                    .class = COST_HOST_RUN,
                    .name = "gemm",
                    .module = "libm.so"});
    cost_tree_add(tree, gemm, id, usual, usual, block);
    if (!extra.ns)
        return;
    uint32_t place = place_of(tree, extra.place);
    if (extra.caller)
        place = cost_tree_child(tree, place,
                &(struct cost_key){.kind = COST_PYTHON, .name = extra.caller, .module = "loop.py"});
    if (extra.python) {
        place = cost_tree_child(tree, place,
                &(struct cost_key){
                        .kind = COST_PYTHON, .name = extra.python, .module = "train.py"});
        uint32_t other = cost_tree_child(tree, place,
                &(struct cost_key){.kind = extra.kind,
                        .class = extra.class,
                        .name = "softmax",
                        .module = "libx.so"});
        extra.ns /= 2;
        cost_tree_add(tree, other, id, extra.ns, extra.ns, 1);
    }
    uint32_t leaf = cost_tree_child(tree, place,
            &(struct cost_key){.kind = extra.kind,
                    .class = extra.class,
                    .name = extra.name,
                    .module = "libx.so"});
    cost_tree_add(tree, leaf, id, extra.ns, extra.ns, 1);
}

static void run(const char *unit, int pairs, int block, extra_fn story)
{
    struct error err = {0};
    workload = (struct diff_workload){
            .name = "train", .unit = unit, .step_a_ns = 10.2 * MS, .step_b_ns = 10.2 * MS};
    input = (struct diff_input){
            .store = store, .opts = &opts, .workload = "train", .arena = arena_new()};
    const struct diff_units units = {.scale = {1, 1}};
    const struct diff_untraced untraced = {.unit = unit,
            .launches = strcmp(unit, "launch") == 0,
            .step = {10.2 * MS, 10.2 * MS},
            .mean = mean};
    struct diff_compared compared = {.arena = input.arena, .untraced = &untraced, .units = &units};
    for (int side = 0; side < 2; side++) {
        compared.trees[side] = workload.trees[side] = cost_tree_new();
        for (int pair = 0; pair < pairs; pair++)
            for (int step = FIRST; step < FIRST + STEPS; step += block)
                window(workload.trees[side], side, pair, step, block, story);
        compared.first[side] = cost_tree_finish(workload.trees[side]);
    }
    compared.alignment = workload.alignment =
            align_trees(workload.trees[0], workload.trees[1], &(struct align_opts){0});
    compared.places = diff_places_new(input.arena, workload.trees[0], workload.trees[1]);
    int rc = diff_slow(&input, &compared, &workload.slow, &err);
    if (rc)
        printf("%s\n", err.text);
    CHECK_INT(rc, 0);
    told = &workload.slow;
}

static void clear(void)
{
    alignment_free(workload.alignment);
    cost_tree_free(workload.trees[0]);
    cost_tree_free(workload.trees[1]);
    arena_free(input.arena);
}

static void end(void)
{
    clear();
    store_close(store);
}

static struct extra runs(const char *name, const char *place, int64_t ns)
{
    return (struct extra){
            .name = name, .place = place, .kind = COST_FUNCTION, .class = COST_HOST_RUN, .ns = ns};
}

static struct extra nothing(int side, int pair, int step)
{
    (void)side, (void)pair, (void)step;
    return (struct extra){0};
}

static struct extra checkpoint(int side, int pair, int step)
{
    (void)pair;
    return runs("save_state", "checkpoint", side && step % 20 == 19 ? 90 * MS : 0);
}

static struct extra validation(int side, int pair, int step) // in what both sides call
{
    bool logs = !side && pair == 0 && step == 50;
    struct extra extra = logs ? runs("log", "checkpoint", MS / 100)
                              : runs("sgemm", "checkpoint", checkpoint(side, pair, step).ns);
    extra.caller = "on_step_end";
    extra.python = logs ? NULL : "validate";
    return extra;
}

// a launch of the baseline stood still
static struct extra checkpoint_beside_an_outage(int side, int pair, int step)
{
    struct extra save = checkpoint(side, pair, step);
    return save.ns
            ? save
            : runs("reconnect", "forward", !side && pair == 1 && step == 100 ? 1500 * MS : 0);
}

// one on either side; the candidate's takes next to nothing more
static struct extra checkpoint_beside_outages(int side, int pair, int step)
{
    if (step % 20 == 19)
        return runs("save_state", "checkpoint", 90 * MS + (side ? MS / 10 : 0));
    return runs("reconnect", "forward", pair == 1 + side && step == 100 ? 1500 * MS : 0);
}

// of the candidate; and a shorter one of the baseline
static struct extra checkpoint_beside_a_long_outage(int side, int pair, int step)
{
    struct extra save = checkpoint(side, pair, step);
    int64_t outage_ms = step != 100 ? 0 : side && pair == 2 ? 20000 : !side && pair == 1 ? 1000 : 0;
    return save.ns ? save : runs("reconnect", "forward", outage_ms * MS);
}

static struct extra checkpoint_of_a(int side, int pair, int step)
{
    return checkpoint(!side, pair, step);
}

static struct extra collection(int side, int pair, int step)
{
    (void)side, (void)pair;
    return runs("garbage collection", "forward", step % 50 == 40 ? 60 * MS : 0);
}

static struct extra collection_and_checkpoint(int side, int pair, int step)
{
    struct extra save = checkpoint(side, pair, step);
    return save.ns ? save : collection(side, pair, step);
}

static struct extra checkpoint_for_a_collection(int side, int pair, int step)
{
    return side ? checkpoint(side, pair, step) : collection(side, pair, step);
}

static struct extra unseen(int side, int pair, int step)
{
    struct extra extra = checkpoint(side, pair, step);
    return (struct extra){.name = "unknown",
            .place = "forward",
            .kind = COST_GAP,
            .class = COST_IDLE,
            .ns = extra.ns};
}

static struct extra once(int side, int pair, int step)
{
    return runs("save_state", "checkpoint", side && pair == 2 && step == 100 ? 90 * MS : 0);
}

static struct extra retry(int side, int pair, int step) // too short for a slow step
{
    (void)pair;
    return runs("retry_lookup", "forward", side && step % 60 == 30 ? 6 * MS : 0);
}

static void check_checkpoint(void)
{
    CHECK_INT(told->part_count, 1);
    const struct diff_launch_part *part = &told->parts[0];
    CHECK_INT(part->contribution.kind, DIFF_CPU_FUNCTION_ADDED);
    CHECK_STR(part->contribution.label, "save_state");
    CHECK_STR(part->contribution.where, "checkpoint");
    CHECK_STR(told->where, "checkpoint");
    CHECK(!told->why_not);
    CHECK_DBL(part->contribution.a_ns, 0, 0);
    CHECK_DBL(part->contribution.delta_ns, 4.5 * MS, 0.001 * MS); // 90 ms in each 20th
    CHECK_DBL(part->contribution.share, 1, 0.02);
    CHECK_DBL(told->told_ns, part->contribution.delta_ns, 1);
    CHECK_DBL(told->unseen_ns, 0, 1);
    CHECK_INT(part->launch_count, PAIRS);
    for (int pair = 0; pair < PAIRS; pair++) {
        CHECK_DBL(part->launch_ns[0][pair], 0, 0);
        CHECK_DBL(part->launch_ns[1][pair], 4.5 * MS, 0.001 * MS);
        CHECK_DBL(told->launch_ns[1][pair] - told->launch_ns[0][pair], 4.5 * MS, 0.05 * MS);
    }
}

TEST(a_checkpoint_of_the_candidate_alone)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, 1, checkpoint);
    CHECK_STR(told->metric, "slow_steps");
    CHECK(told->failed && !told->typical_failed && !told->tail);
    check_checkpoint();
    CHECK_INT(told->found[0].count, 0);
    CHECK_INT(told->found[1].count, 10 * PAIRS);
    CHECK_INT(told->found[1].of, STEPS * PAIRS);
    CHECK_INT(told->found[0].period, 0);
    CHECK_INT(told->found[1].period, 20);
    CHECK_INT(told->found[0].of, STEPS * PAIRS);
    CHECK_DBL(told->found[1].slow_ns, 100 * MS, 0.5 * MS);
    CHECK_DBL(told->found[1].typical_ns, 10.2 * MS, 0.05 * MS);
    end();
}

// A device's windows are of several steps.
TEST(windows_of_several_steps)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, 5, checkpoint);
    check_checkpoint();
    CHECK_INT(told->found[1].count, 10 * PAIRS);
    CHECK_INT(told->found[1].of, STEPS / 5 * PAIRS);
    end();
}

// What both sides' slow steps have is no difference; what the candidate's have more is.
TEST(a_collection_on_both_sides_alike)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, 1, collection);
    CHECK_INT(told->part_count, 0);
    CHECK_INT(told->why_not, DIFF_SLOW_NOT_EVERY);
    CHECK(told->found[0].count == told->found[1].count && told->found[0].count > 0);
    clear();
    run("step", PAIRS, 1, collection_and_checkpoint);
    check_checkpoint();
    CHECK(told->a_ns > 1 * MS);
    end();
}

// Else what is told would be more than all.
TEST(what_slow_steps_have_no_more_is_told_beside_what_they_have_more)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, 1, checkpoint_for_a_collection);
    CHECK_INT(told->part_count, 2);
    CHECK_STR(told->parts[0].contribution.label, "save_state");
    CHECK_DBL(told->parts[0].contribution.delta_ns, 4.5 * MS, 0.001 * MS);
    CHECK_DBL(told->parts[1].contribution.delta_ns, -1.2 * MS, 0.001 * MS); // 60 ms in each 50th
    CHECK_DBL(told->parts[0].contribution.share, 1, 0.001);                 // not 4.5 ms of 3.3
    CHECK_DBL(told->parts[1].contribution.share, -1.2 / 4.5, 0.001);
    CHECK_DBL(told->told_ns, told->b_ns - told->a_ns, 0.1 * MS);
    end();
}

// Not its parts one by one: what only slow steps of one side run is one line, named after the
// function that is new, and not after its caller.
TEST(a_function_that_only_slow_steps_run)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, 1, validation);
    CHECK_INT(told->part_count, 1);
    CHECK_INT(told->parts[0].contribution.kind, DIFF_CODE_ADDED);
    CHECK_STR(told->parts[0].contribution.label, "validate");
    CHECK_DBL(told->parts[0].contribution.delta_ns, 4.5 * MS, 0.001 * MS);
    CHECK(!told->overlaps);
    end();
}

// A launch that something else held up hides nothing that the others all have.
TEST(launches_that_overlap_in_sum)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, 1, checkpoint_beside_an_outage);
    CHECK(told->overlaps && !told->why_not);
    CHECK_INT(told->part_count, 1);
    CHECK_STR(told->parts[0].contribution.label, "save_state");
    CHECK_DBL(told->parts[0].contribution.delta_ns, 4.5 * MS, 0.001 * MS);
    CHECK_DBL(told->parts[0].contribution.share, 1, 0.001); // not 4.5 ms of 2.6
    clear();
    run("step", PAIRS, 1, checkpoint_beside_a_long_outage);
    CHECK(told->overlaps && !told->why_not);
    CHECK_INT(told->part_count, 1);
    CHECK_STR(told->parts[0].contribution.label, "save_state");
    CHECK_STR(told->where, ""); // and not in the outage's place, which most of the sum is
    end();
}

// The sums differ by 4 us of 4.5 ms, by chance: that one part differs by 5 us in each launch
// explains no failure.
TEST(launches_that_overlap_and_hardly_differ)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, 1, checkpoint_beside_outages);
    CHECK(told->overlaps && told->b_ns > told->a_ns);
    CHECK_INT(told->part_count, 0);
    CHECK(!told->where);
    CHECK_INT(told->why_not, DIFF_SLOW_NOT_EVERY);
    end();
}

TEST(slow_by_nothing_that_was_seen)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, 1, unseen);
    CHECK_INT(told->part_count, 0);
    CHECK_INT(told->why_not, DIFF_SLOW_BLIND);
    CHECK_DBL(told->unseen_ns, 4.5 * MS, 0.001 * MS);
    CHECK_STR(told->where, "");
    end();
}

TEST(one_slow_step_of_one_launch_is_chance)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, 1, once);
    CHECK_INT(told->part_count, 0);
    CHECK_INT(told->found[1].count, 1);
    CHECK_INT(told->why_not, DIFF_SLOW_NOT_EVERY);
    clear();
    run("step", 1, 1, checkpoint);
    CHECK_INT(told->part_count, 0);
    CHECK_INT(told->why_not, DIFF_SLOW_ONE_LAUNCH);
    CHECK(!told->overlaps);
    end();
}

TEST(no_slow_steps_in_the_traced_launches)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "inconclusive");
    run("step", PAIRS, 1, nothing);
    CHECK_STR(told->metric, "slow_steps");
    CHECK(!told->failed && told->open);
    CHECK_INT(told->part_count, 0);
    CHECK_INT(told->why_not, DIFF_SLOW_NONE);
    CHECK_INT(told->found[0].of + told->found[1].of, 1600);
    end();
}

// A mean step that is explained as such is not said to be unexplained; one that slow steps made is
// told.
TEST(a_mean_without_slow_steps_is_left_to_the_contributions)
{
    begin();
    cell("step_time", 1, 0.99, 1.01, "pass");
    cell("mean_step_time", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, 1, nothing);
    CHECK_STR(told->metric, "mean_step_time");
    CHECK_INT(told->why_not, DIFF_SLOW_NONE);
    clear();
    mean = true;
    run("step", PAIRS, 1, nothing);
    CHECK(!told->metric && !told->why_not);
    clear();
    run("step", PAIRS, 1, checkpoint);
    CHECK_STR(told->metric, "mean_step_time");
    check_checkpoint();
    end();
}

// Fewer of them are told with their sign; launches that say the opposite of the gate tell nothing.
TEST(the_sign_is_the_gates)
{
    begin();
    cell("slow_steps", 0.8, 0.7, 0.9, "pass");
    run("step", PAIRS, 1, checkpoint_of_a);
    CHECK_INT(told->part_count, 1);
    CHECK_INT(told->parts[0].contribution.kind, DIFF_CPU_FUNCTION_REMOVED);
    CHECK_DBL(told->parts[0].contribution.delta_ns, -4.5 * MS, 0.001 * MS);
    clear();
    run("step", PAIRS, 1, checkpoint);
    CHECK_INT(told->part_count, 0);
    CHECK_INT(told->why_not, DIFF_SLOW_NOT_EVERY);
    end();
}

TEST(the_slowest_requests_of_a_tail)
{
    begin();
    cell("latency_p50", 1, 0.99, 1.01, "pass");
    cell("latency_p99", 1.5, 1.4, 1.6, "fail");
    run("request", PAIRS, 1, retry);
    CHECK_STR(told->metric, "latency_p99");
    CHECK(told->tail && told->failed);
    CHECK_INT(told->found[1].count, 3 * PAIRS); // at and beyond p99 of 200
    CHECK_INT(told->part_count, 1);
    CHECK_STR(told->parts[0].contribution.label, "retry_lookup");
    CHECK_DBL(told->parts[0].contribution.delta_ns, 6 * MS, 0.001 * MS); // of one of them
    CHECK_INT(told->found[1].of, 4 * 200);
    end();
}

struct asking {
    const char *metric, *verdict;
    double ratio, low, high;
};

TEST(who_asks)
{
    static const struct {
        struct asking cells[2];
        const char *metric; // NULL: nobody
    } cases[] = {
            {{{"slow_steps", "pass", 1, 0.99, 1.01}}, NULL},
            // within the margin, and told from 0
            {{{"slow_steps", "pass", 1.01, 1.001, 1.015}}, "slow_steps"},
            {{{"slow_steps", "inconclusive", 1.01, 0.9, 1.1}}, "slow_steps"},
            // the typical step is why
            {{{"step_time", "fail", 1.2, 1.19, 1.21}, {"mean_step_time", "fail", 1.2, 1.18, 1.22}},
                    NULL},
            {{{"step_time", "fail", 1.2, 1.19, 1.21}, {"mean_step_time", "fail", 1.4, 1.35, 1.45}},
                    "mean_step_time"},
            {{{"step_time", "pass", 1, 0.99, 1.01}, {"mean_step_time", "fail", 1.2, 1.1, 1.3}},
                    "mean_step_time"},
            // so is all of it
            {{{"step_time", "inconclusive", 1, 0.95, 1.05},
                     {"mean_step_time", "inconclusive", 1, 0.94, 1.06}},
                    NULL},
            {{{"step_time", "pass", 1, 0.99, 1.01},
                     {"mean_step_time", "inconclusive", 1, 0.94, 1.06}},
                    "mean_step_time"},
            {{{"latency_p50", "fail", 1.2, 1.19, 1.21}, {"latency_p99", "fail", 1.2, 1.15, 1.25}},
                    NULL},
            // what fails first
            {{{"slow_steps", "inconclusive", 1, 0.9, 1.1},
                     {"latency_p99", "fail", 1.2, 1.15, 1.25}},
                    "latency_p99"},
            {{{"total_time", "fail", 1.2, 1.15, 1.25}}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        for (size_t k = 0; k < 2 && cases[i].cells[k].metric; k++) {
            const struct asking *one = &cases[i].cells[k];
            cell(one->metric, one->ratio, one->low, one->high, one->verdict);
        }
        run("step", PAIRS, 1, nothing);
        CHECK_STR(told->metric ? told->metric : "nobody",
                cases[i].metric ? cases[i].metric : "nobody");
        end();
    }
}

// Slices and whole launches are no steps.
TEST(windows_without_numbers_are_no_steps)
{
    begin();
    cell("slow_steps", 1.2, 1.1, 1.3, "fail");
    run("step", PAIRS, STEPS, checkpoint);
    CHECK_INT(told->part_count, 0);
    CHECK_INT(told->why_not, DIFF_SLOW_NO_PAIR);
    clear();
    run("launch", PAIRS, 1, checkpoint);
    CHECK(!told->metric);
    end();
}
