// SPDX-License-Identifier: Apache-2.0
// Contributions from trees made by hand: sums that close, intervals that hold what was planted, A/A
// runs of which at most one in a hundred names anything, merging over places, what is spread over a
// place, kinds, kernels that are all slower alike, threads lost.
#include "tests/unit/diff_world.h"

// The same times, once of calls that every window of b has and none of a, once of a sampled
// function: executions are counted.
static size_t one_side_named(enum cost_kind kind)
{
    size_t named = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const struct world_leaf leaves[] = {
                KERNEL("layers.0.mlp", "gemm_nt", 4e6, 4e6),
                KERNEL("head", "gelu", 6e6, 6e6),
                {kind, COST_LAUNCH_BOUND, "loss", NULL, "cuCtxSynchronize_v2", ALIGN_ONLY_B, 0, 9e4,
                        1e6},
        };
        struct world world;
        world_begin(&world, seed);
        world.compared.has_gpu = true;
        CHECK(world_run(&world, leaves, sizeof leaves / sizeof *leaves, true));
        for (size_t i = 0; i < world.workload.contribution_count; i++) {
            const struct diff_contribution *made = &world.workload.contributions[i];
            named +=
                    made->named && made->name_b && strcmp(made->name_b, "cuCtxSynchronize_v2") == 0;
            CHECK(!made->named || made->ci_lo_ns > 0 || made->ci_hi_ns < 0);
        }
        world_end(&world);
    }
    return named;
}

TEST(executions_tell_a_sign)
{
    size_t calls = one_side_named(COST_SYNC), sampled = one_side_named(COST_FUNCTION);
    printf("# named: %zu of 20 with executions, %zu without\n", calls, sampled);
    CHECK(calls >= 14);
    CHECK(sampled <= 6);
}

TEST(sums_close_and_the_planted_one_is_first)
{
    static const struct world_leaf leaves[] = {
            KERNEL("layers.0.attn", "softmax_forward", 1e6, 1.5e6),
            KERNEL("layers.1.attn", "softmax_forward", 1e6, 1.5e6),
            KERNEL("layers.0.mlp", "gemm_nt", 4e6, 4e6),
            KERNEL("layers.1.mlp", "gemm_nt", 4e6, 4e6),
            KERNEL("head", "gelu", 1e6, 1e6),
    };
    struct world world;
    world_begin(&world, 1);
    world.drag = 1.2; // tracing costs b a fifth: it is scaled away
    CHECK(world_run(&world, leaves, sizeof leaves / sizeof *leaves, true));
    const struct diff_contribution *top = &world.workload.contributions[0];
    CHECK_INT(top->kind, DIFF_KERNEL_SLOWER);
    CHECK_STR(top->name_b, "softmax_forward");
    CHECK_STR(top->where, "forward > layers.*.attn");
    CHECK_INT(top->group_count, 2);
    CHECK_DBL(top->delta_ns, 1e6, 3e4);
    CHECK(top->ci_lo_ns < 1e6 && top->ci_hi_ns > 1e6);
    CHECK_DBL(top->share, 1e6 / world.workload.step_a_ns, 0.005);
    CHECK_DBL(world_sum(&world), world.workload.delta_ns, 1);
    CHECK_DBL(world.workload.residual_ns, 0, 1);
    double parts = 0;
    for (int class = 0; class < COST_CLASS_COUNT; class ++)
        parts += world.workload.parts[class].b_ns - world.workload.parts[class].a_ns;
    CHECK_DBL(parts, world.workload.delta_ns, 1);
    CHECK_INT(world.workload.row_count, 3);
    world_end(&world);
}

// own_sd: how far each function's launches differ, whatever its windows and the step say.
static size_t same_sides_named(uint64_t seed, bool couples, int pairs, double own_sd)
{
    struct world_leaf leaves[24];
    char names[24][16], places[24][16];
    struct world world;
    world_begin(&world, seed);
    for (int i = 0; i < 24; i++) {
        double ns = 2e7 * pow(0.75, i);
        snprintf(names[i], sizeof names[i], "function_%c", 'a' + i);
        snprintf(places[i], sizeof places[i], "block_%c", 'a' + i % 6);
        leaves[i] = (struct world_leaf)FUNCTION(places[i], names[i], ns, ns);
        leaves[i].tick = own_sd > 0 ? 0 : leaves[i].tick; // its windows differ by 1 %
    }
    world.launch_sd = 0.01;
    world.own_sd = own_sd;
    world.pairs = pairs;
    CHECK(world_run(&world, leaves, 24, couples));
    size_t named = world_named(&world);
    world_end(&world);
    return named;
}

TEST(equal_sides_name_nothing)
{
    size_t named = 0, draws = 0;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        bool any = same_sides_named(seed, seed % 2, 1 + (int)(seed % 4), 0) > 0;
        named += any;
        draws++;
    }
    CHECK_INT(draws, 600);
    CHECK(named <= 6); // 99 % for all contributions of a run together
}

TEST(functions_that_differ_from_launch_to_launch_name_nothing)
{
    static const double sds[] = {0.01, 0.02, 0.1};
    for (size_t k = 0; k < sizeof sds / sizeof *sds; k++) {
        size_t named = 0;
        for (uint64_t seed = 1; seed <= 300; seed++)
            named += same_sides_named(seed, seed % 2, 2 + (int)(seed % 3), sds[k]) > 0;
        printf("# %.0f %%: %zu of 300 name anything\n", 100 * sds[k], named);
        CHECK(named <= 3);
    }
}

static const struct diff_contribution *world_contribution(
        const struct world *world, const char *name)
{
    const struct diff_workload *workload = &world->workload;
    for (size_t i = 0; i < workload->contribution_count; i++)
        if (workload->contributions[i].name_b &&
                strcmp(workload->contributions[i].name_b, name) == 0)
            return &workload->contributions[i];
    abort();
}

// One kernel takes 13 % longer, where launches of each differ by 1.5 %.
TEST(few_launches_tell_little)
{
    size_t named[2] = {0}, few[2] = {0};
    for (uint64_t seed = 1; seed <= 40; seed++)
        for (int many = 0; many < 2; many++) {
            struct world_leaf leaves[10];
            char names[10][16];
            struct world world;
            world_begin(&world, seed);
            world.pairs = many ? 4 : 2;
            world.own_sd = 0.015;
            world.launch_sd = 0.01; // else the step itself would tell of it
            for (int i = 0; i < 10; i++) {
                snprintf(names[i], sizeof names[i], "kernel_%c", 'a' + i);
                leaves[i] = (struct world_leaf)KERNEL("layers.0", names[i], 1e6, i ? 1e6 : 1.13e6);
            }
            CHECK(world_run(&world, leaves, 10, true));
            const struct diff_contribution *top = world_contribution(&world, "kernel_a");
            named[many] += top->named;
            few[many] += top->few;
            CHECK(!top->named || !top->few);
            bool said = false;
            for (size_t i = 0; i < top->evidence_count; i++)
                said = said || top->evidence[i].kind == DIFF_EVIDENCE_FEW;
            CHECK(said == top->few);
            world_end(&world);
        }
    printf("# of 40: 2 launches name %zu (%zu too few), 4 name %zu\n", named[0], few[0], named[1]);
    CHECK(named[0] <= 20 && few[0] >= 15);
    CHECK(named[1] >= 39);
}

static bool modes_possible(uint32_t pairs, size_t untraced, size_t off, double told_ns)
{
    double ratios[20] = {0};
    for (size_t i = 0; i < off; i++)
        ratios[i] = i % 2 ? 0.03 : -0.03;
    const struct diff_untraced of = {.step = {1e6, 1e6},
            .delta = told_ns,
            .lo = told_ns,
            .hi = told_ns,
            .ratios = ratios,
            .ratio_count = untraced};
    return diff_units_modes(&of, pairs, 3e4);
}

// An autotuner's choice moves a step by 3 %: that all launches of a side chose alike is chance in 2
// (1 / 4)^pairs of the runs where half of all launches do.
TEST(launches_of_two_kinds_fall_so_by_chance)
{
    CHECK(modes_possible(2, 0, 0, 0));
    CHECK(modes_possible(4, 0, 0, 0));  // 0.8 %
    CHECK(!modes_possible(5, 0, 0, 0)); // 0.2 %
    CHECK(modes_possible(2, 3, 0, 0));
    CHECK(!modes_possible(2, 10, 0, 0)); // the untraced launches never differ by it
    CHECK(modes_possible(2, 10, 2, 0));
    CHECK(!modes_possible(4, 10, 2, 0));
    CHECK(modes_possible(4, 10, 8, 0));
    CHECK(!modes_possible(2, 0, 0, 1e4)); // the untraced step says the same sign
    CHECK(modes_possible(2, 0, 0, -1e4));
}

// Garbage collections, one in fifteen windows, as long as fifteen steps each. They move the step as
// much as themselves: counted as a share of it they are told from noise, counted alone three in
// four times.
TEST(a_rare_long_event_is_named)
{
    size_t named = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct world_leaf leaves[11];
        char names[10][16];
        for (int i = 0; i < 10; i++) {
            snprintf(names[i], sizeof names[i], "function_%c", 'a' + i);
            leaves[i] = (struct world_leaf)FUNCTION("layers.0", names[i], 1e6, 1e6);
        }
        leaves[10] = (struct world_leaf){COST_FUNCTION, COST_HOST_RUN, "layers.0", NULL, "collect",
                ALIGN_ONLY_B, 0, 10e6, 150e6};
        struct world world;
        world_begin(&world, seed);
        world.pairs = 6;
        world.mean = true;
        CHECK(world_run(&world, leaves, 11, true));
        const struct diff_contribution *top = &world.workload.contributions[0];
        named += top->named && strcmp(top->label, "collect") == 0;
        world_end(&world);
    }
    CHECK(named >= 36);
}

// An operator of ten functions got slower by 5 % of the step, half a percent each; beside it stands
// as much that did not.
static bool spread_found(uint64_t seed, bool slower)
{
    struct world_leaf leaves[20];
    char names[20][16];
    struct world world;
    world_begin(&world, seed);
    for (int i = 0; i < 20; i++) {
        double ns = 1e6, more = slower && i < 10 ? 1.1e6 : 1e6;
        snprintf(names[i], sizeof names[i], "function_%c", 'a' + i);
        leaves[i] = (struct world_leaf)FUNCTION(i < 10 ? "linear" : "norm", names[i], ns, more);
        leaves[i].tick = 2e5;
    }
    world.pairs = 4;
    CHECK(world_run(&world, leaves, 20, true));
    CHECK_DBL(world_sum(&world), world.workload.delta_ns, 1);
    const struct diff_contribution *top = &world.workload.contributions[0];
    bool found = top->named && top->part_count > 5 && strstr(top->label, "linear:") == top->label &&
            strcmp(top->where, "forward > linear") == 0 && top->kind == DIFF_CPU_FUNCTION_SLOWER;
    double parts = 0;
    for (size_t i = 0; i < top->part_count; i++)
        parts += top->parts[i].b_ns - top->parts[i].a_ns;
    if (top->part_count)
        CHECK_DBL(parts, top->delta_ns, 1);
    for (size_t i = 1; i < top->part_count; i++)
        CHECK(top->parts[i].b_ns - top->parts[i].a_ns <=
                top->parts[i - 1].b_ns - top->parts[i - 1].a_ns);
    world_end(&world);
    return found;
}

TEST(what_is_spread_over_a_place_is_one_contribution)
{
    size_t found = 0, none = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        found += spread_found(seed, true);
        none += spread_found(seed, false);
    }
    CHECK(found >= 36);
    CHECK_INT(none, 0);
}

// So many of 40 functions too short to be told alone are new, the others were replaced by longer
// ones: what the whole is called.
static enum diff_kind mixed_kind(int fresh)
{
    struct world_leaf leaves[41] = {FUNCTION("norm", "norm_kernel", 15e6, 15e6)};
    char names[2][40][16];
    struct world world;
    world_begin(&world, 1);
    for (int i = 0; i < 40; i++) {
        for (int side = 0; side < 2; side++)
            snprintf(names[side][i], sizeof names[side][i], "%s_%c%c", side ? "new" : "old",
                    'a' + i / 20, 'a' + i % 20);
        leaves[i + 1] = i < fresh
                ? (struct world_leaf){COST_FUNCTION, COST_HOST_RUN, "linear", NULL, names[1][i],
                          ALIGN_ONLY_B, 0, 25e3, 0}
                : (struct world_leaf){COST_FUNCTION, COST_HOST_RUN, "linear", names[0][i],
                          names[1][i], ALIGN_SIMILAR, 100e3, 125e3, 0};
    }
    CHECK(world_run(&world, leaves, 41, true));
    const struct diff_contribution *top = &world.workload.contributions[0];
    CHECK(top->named && top->part_count == 40);
    enum diff_kind kind = top->kind;
    world_end(&world);
    return kind;
}

TEST(work_of_which_some_is_new_got_slower)
{
    CHECK_INT(mixed_kind(40), DIFF_CPU_FUNCTION_ADDED);
    CHECK_INT(mixed_kind(22), DIFF_CPU_FUNCTION_SLOWER); // 55 %
    CHECK_INT(mixed_kind(0), DIFF_CPU_FUNCTION_REPLACED);
}

TEST(a_sampled_function_is_named_with_an_interval_that_holds)
{
    size_t named = 0, held = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct world_leaf leaves[] = {FUNCTION("layers.0", "gemm", 8e6, 8e6),
                FUNCTION("layers.0", "relu", 2e6, 4e6), FUNCTION("layers.1", "copy", 3e6, 3e6)};
        struct world world;
        world_begin(&world, seed);
        world.launch_sd = 0.01;
        CHECK(world_run(&world, leaves, 3, true));
        const struct diff_contribution *top = &world.workload.contributions[0];
        named += top->named && strcmp(top->name_b, "relu") == 0;
        for (size_t i = 0; i < world.workload.contribution_count; i++) {
            const struct diff_contribution *one = &world.workload.contributions[i];
            double truth = strcmp(one->name_b, "relu") == 0 ? 2e6 : 0;
            held += one->ci_lo_ns <= truth && truth <= one->ci_hi_ns;
        }
        world_end(&world);
    }
    CHECK(named >= 39);
    CHECK(held >= 118); // of 120
}

TEST(code_without_names_is_compared_by_place)
{
    static const struct world_leaf leaves[] = {
            {COST_FUNCTION, COST_HOST_RUN, "update", "[unknown]", NULL, ALIGN_ONLY_A, 3e6, 0, 0},
            {COST_FUNCTION, COST_HOST_RUN, "update", NULL, "axpy_impl", ALIGN_ONLY_B, 0, 2e6, 0},
            {COST_FUNCTION, COST_HOST_RUN, "update", NULL, "index_kernel", ALIGN_ONLY_B, 0, 1.5e6,
                    0},
            {COST_FUNCTION, COST_HOST_RUN, "rest", "gemm", "gemm", ALIGN_EXACT, 6e6, 6e6, 0},
            {COST_FUNCTION, COST_HOST_RUN, "rest", NULL, "bias_part", ALIGN_ONLY_B, 0, 1e6, 0},
    };
    struct world world;
    uint32_t places[LEAVES_MAX] = {0};
    world_begin(&world, 1);
    world.places = places;
    CHECK(world_run(&world, leaves, sizeof leaves / sizeof *leaves, true));
    CHECK_INT(world_named(&world), 2);
    const struct diff_contribution *added = &world.workload.contributions[0], *native = added + 1;
    CHECK_INT(added->kind, DIFF_CPU_FUNCTION_ADDED); // both sides have names there
    CHECK_STR(added->label, "bias_part");
    CHECK_INT(native->kind, DIFF_NATIVE_CODE);
    CHECK_STR(native->label, "what update computes");
    CHECK_DBL(native->delta_ns, 5e5, 5e4);
    CHECK_DBL(world.workload.slower_ns, 1.5e6, 1e5);
    CHECK_DBL(world.workload.faster_ns, 0, 0);
    world_end(&world);
}

TEST(kinds_by_match_and_leaf)
{
    static const struct world_leaf leaves[] = {
            {COST_KERNEL, COST_GPU_COMPUTE, "a", NULL, "fill_kernel", ALIGN_ONLY_B, 0, 3e6, 0},
            {COST_KERNEL, COST_GPU_COMPUTE, "a", "old_gemm", "new_gemm", ALIGN_RESOURCES, 4e6, 6e6,
                    0},
            {COST_SYNC, COST_HOST_STALLED, "a", NULL, "cudaStreamSynchronize", ALIGN_ONLY_B, 0,
                    1.5e6, 0},
            {COST_SYNC, COST_HOST_STALLED, "a", NULL, "cudaMalloc", ALIGN_ONLY_B, 0, 1.2e6, 0},
            {COST_STALL, COST_HOST_STALLED, "a", NULL, "smaps_read", ALIGN_ONLY_B, 0, 1e6, 0},
            {COST_TRANSFER, COST_COPY, "a", "HtoD", "HtoD", ALIGN_EXACT, 1e6, 1.8e6, 0},
            {COST_COLLECTIVE, COST_COMM_EXPOSED, "a", "AllReduce f32 ring", "AllReduce f32 tree",
                    ALIGN_SIMILAR, 1e6, 1.7e6, 0},
            {COST_FUNCTION, COST_LAUNCH_BOUND, "a", "launch", "launch", ALIGN_EXACT, 1e6, 1.6e6, 0},
            {COST_FUNCTION, COST_DATA_WAIT, "a", "read", "read", ALIGN_EXACT, 1e6, 1.5e6, 0},
            {COST_FUNCTION, COST_HOST_RUN, "a", "malloc", "malloc", ALIGN_EXACT, 1e6, 1.1e6, 0},
            KERNEL("b", "steady", 2e7, 2e7),
    };
    static const struct {
        enum diff_kind kind;
        const char *name;
    } want[] = {{DIFF_KERNEL_ADDED, "fill_kernel"}, {DIFF_KERNEL_REPLACED, "new_gemm"},
            {DIFF_SYNC_ADDED, "cudaStreamSynchronize"}, {DIFF_HOST_STALL, "smaps_read"},
            {DIFF_MEMCPY, "HtoD"}, {DIFF_COMM_EXPOSED, "AllReduce f32 tree"},
            {DIFF_LAUNCH_GAP, "launch"}, {DIFF_DATA_WAIT, "read"}};
    struct world world;
    world_begin(&world, 3);
    world.compared.has_gpu = true;
    CHECK(world_run(&world, leaves, sizeof leaves / sizeof *leaves, true));
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        bool found = false;
        for (size_t i = 0; i < world.workload.contribution_count; i++) {
            const struct diff_contribution *one = &world.workload.contributions[i];
            found = found ||
                    (one->kind == want[k].kind && one->named &&
                            strcmp(one->name_b, want[k].name) == 0);
        }
        if (!found)
            runner_fail(
                    __FILE__, __LINE__, "no %s of %s", diff_kind_word(want[k].kind), want[k].name);
    }
    bool memory = false;
    for (size_t i = 0; i < world.workload.contribution_count; i++)
        memory = memory ||
                (world.workload.contributions[i].kind ==
                                DIFF_MEMORY_ALLOC && // cudaMalloc and malloc
                        world.workload.contributions[i].group_count == 2);
    CHECK(memory);
    CHECK_DBL(world.workload.residual_ns, 0, 1);
    world_end(&world);
}

TEST(all_kernels_slower_alike_are_a_clock)
{
    struct world_leaf leaves[8];
    char names[8][16];
    for (int i = 0; i < 8; i++) {
        snprintf(names[i], sizeof names[i], "kernel_%c", 'a' + i);
        leaves[i] = (struct world_leaf)KERNEL("layers.0", names[i], 1e6 * (1 + i), 1.1e6 * (1 + i));
    }
    struct world world;
    world_begin(&world, 4);
    CHECK(world_run(&world, leaves, 8, true));
    CHECK_INT(world.workload.contribution_count, 1);
    CHECK_INT(world.workload.contributions[0].kind, DIFF_CLOCK_THROTTLE);
    CHECK(world.workload.contributions[0].named);
    world_end(&world);
    leaves[7].ns_b = 1.6e7; // one that differs by more is told by itself
    world_begin(&world, 5);
    CHECK(world_run(&world, leaves, 8, true));
    CHECK_INT(world.workload.contributions[0].kind, DIFF_KERNEL_SLOWER);
    world_end(&world);
}

TEST(lost_threads_are_one_contribution)
{
    struct world_leaf leaves[] = {FUNCTION("layers.0", "gemm", 8e6, 1.5e7),
            FUNCTION("layers.0", "relu", 4e6, 7.8e6), FUNCTION("layers.1", "serial", 6e6, 6e6)};
    struct world world;
    world_begin(&world, 6);
    world.compared.parallel[0] = (struct diff_parallel){1.7, 2, 1};
    world.compared.parallel[1] = (struct diff_parallel){1.0, 1, 1};
    CHECK(world_run(&world, leaves, 3, true));
    CHECK_INT(world.workload.contributions[0].kind, DIFF_PARALLELISM);
    CHECK_INT(world.workload.contributions[0].group_count, 2);
    CHECK(world.workload.contributions[0].named);
    const struct diff_evidence *threads = &world.workload.contributions[0].evidence[1];
    CHECK_INT(threads->kind, DIFF_EVIDENCE_THREADS);
    CHECK_INT(threads->threads.functions, 2);
    CHECK_DBL(threads->threads.working[0], 2, 0);
    CHECK_DBL(threads->threads.running[1], 1, 0);
    world_end(&world);
}

TEST(one_window_alone_gives_no_interval)
{
    static const struct world_leaf leaves[] = {KERNEL("a", "gemm", 8e6, 9e6)};
    struct world world;
    world_begin(&world, 7);
    world.pairs = 4;
    world_align(&world, leaves, 1);
    world_window(&world, 0, leaves, 1, 0, -1, NULL);
    world_window(&world, 1, leaves, 1, 0, -1, NULL);
    world.compared.first[0] = cost_tree_finish(world.workload.trees[0]);
    world.compared.first[1] = cost_tree_finish(world.workload.trees[1]);
    world.untraced = (struct diff_untraced){
            .unit = "launch", .launches = true, .step = {8e6, 9e6}, .delta = 1e6};
    world.workload.step_a_ns = 8e6;
    world.workload.delta_ns = 1e6;
    world.workload.alignment = &world.alignment;
    CHECK(diff_units_make(world.compared.trees, &world.untraced, &world.units));
    world_contribute(&world);
    CHECK(isnan(world.workload.contributions[0].ci_lo_ns));
    CHECK(!world.workload.contributions[0].named);
    CHECK_DBL(world.workload.contributions[0].delta_ns, 1e6, 1);
    world_end(&world);
}

TEST(a_far_window_is_left_out_and_moves_nothing_else)
{
    struct world_leaf leaves[] = {KERNEL("a", "gemm", 8e6, 8e6), KERNEL("a", "relu", 2e6, 2e6)};
    struct world world;
    world_begin(&world, 8);
    world_align(&world, leaves, 2);
    leaves[1].ns_b = 4e9; // once
    world_window(&world, 1, leaves, 2, 0, 1000, NULL);
    leaves[1].ns_b = 2e6;
    world_window(&world, 0, leaves, 2, 0, 1000, NULL);
    CHECK(world_run(&world, leaves, 2, true));
    CHECK_INT(world.units.left_out, 1);
    CHECK_INT(world_named(&world), 0);
    world_end(&world);
}

TEST(a_pair_of_one_side_is_no_pair)
{
    static const struct world_leaf leaves[] = {KERNEL("a", "gemm", 8e6, 9e6)};
    struct world world;
    world_begin(&world, 9);
    world_align(&world, leaves, 1);
    for (int couple = 0; couple < 20; couple++)
        world_window(&world, 0, leaves, 1, 0, couple, NULL);
    world.compared.first[0] = cost_tree_finish(world.workload.trees[0]);
    world.compared.first[1] = cost_tree_finish(world.workload.trees[1]);
    world.untraced = (struct diff_untraced){.unit = "step", .step = {8e6, 9e6}, .delta = 1e6};
    CHECK(!diff_units_make(world.compared.trees, &world.untraced, &world.units));
    world_end(&world);
}

static uint32_t trunk_path(struct cost_tree *tree, int64_t ns, const char *const *names)
{
    uint32_t node = 0;
    for (int i = 0; names[i]; i++)
        node = cost_tree_child(tree, node,
                &(struct cost_key){.kind = i ? COST_PYTHON : COST_PHASE, .name = names[i]});
    const struct cost_key leaf = {.kind = COST_FUNCTION, .class = COST_HOST_RUN, .name = "f"};
    cost_tree_add(tree, cost_tree_child(tree, node, &leaf), 0, ns, ns, 1);
    return node;
}

// "main > train" holds every phase and tells no place; what one phase alone has does.
TEST(what_is_around_all_phases_is_no_place)
{
    struct world world;
    world_begin(&world, 1);
    struct cost_tree *tree = world.workload.trees[0];
    for (int side = 0; side < 2; side++)
        cost_tree_window(world.workload.trees[side], &(struct cost_window){.steps = 1});
    trunk_path(tree, 5, (const char *[]){"data", "Loader.run", NULL});
    trunk_path(tree, 5, (const char *[]){"data", "main", "train", "next_batch", NULL});
    uint32_t forward =
            trunk_path(tree, 5, (const char *[]){"forward", "main", "train", "Net.forward", NULL});
    uint32_t loop = trunk_path(tree, 0, (const char *[]){"optimizer", "main", "train", NULL});
    trunk_path(tree, 9, (const char *[]){"optimizer", "main", "train", "Adam.step", NULL});
    // Samples behind the border of their phase.
    trunk_path(tree, 1, (const char *[]){"optimizer", "main", "train", "Net.forward", NULL});
    trunk_path(tree, 1, (const char *[]){"data", "main", "train", "Net.forward", NULL});
    uint32_t step = trunk_path(world.workload.trees[1], 5, (const char *[]){"step", "main", NULL});
    cost_tree_finish(tree);
    cost_tree_finish(world.workload.trees[1]);
    CHECK_STR(diff_place(world.compared.places, 0, forward), "forward > Net.forward");
    CHECK_STR(diff_place(world.compared.places, 0, loop), "optimizer");
    CHECK_STR(diff_place(world.compared.places, 1, step), "step > main");
    world_end(&world);
}

TEST(every_kind_has_its_word)
{
    for (int kind = 0; kind < DIFF_KIND_COUNT; kind++)
        CHECK(diff_kind_word((enum diff_kind)kind) && *diff_kind_word((enum diff_kind)kind));
    CHECK_STR(diff_kind_word(DIFF_CPU_FUNCTION_REPLACED), "cpu_function_replaced");
    CHECK_STR(diff_kind_word(DIFF_CLOCK_THROTTLE), "clock_throttle");
}

TEST(what_happened_follows_from_kind_sides_and_executions)
{
    static const struct {
        struct diff_contribution made;
        enum diff_change change;
    } cases[] = {{{.kind = DIFF_KERNEL_SLOWER, .a_ns = 1e6, .b_ns = 2e6, .delta_ns = 1e6},
                         DIFF_CHANGE_MORE},
            {{.kind = DIFF_KERNEL_SLOWER, .a_ns = 2e6, .b_ns = 1e6, .delta_ns = -1e6},
                    DIFF_CHANGE_LESS},
            {{.kind = DIFF_MEMCPY, .b_ns = 1e6, .delta_ns = 1e6}, DIFF_CHANGE_ADDED},
            {{.kind = DIFF_MEMCPY, .a_ns = 1e6, .delta_ns = -1e6}, DIFF_CHANGE_REMOVED},
            {{.kind = DIFF_MEMCPY, .a_ns = 1e6, .b_ns = 2e6, .delta_ns = 1e6}, DIFF_CHANGE_MORE},
            {{.kind = DIFF_KERNEL_REPLACED,
                     .a_ns = 2e6,
                     .b_ns = 1e6,
                     .delta_ns = -1e6,
                     .count_a = 10,
                     .count_b = 7},
                    DIFF_CHANGE_FUSED},
            {{.kind = DIFF_KERNEL_REPLACED,
                     .a_ns = 1e6,
                     .b_ns = 2e6,
                     .delta_ns = 1e6,
                     .count_a = 7,
                     .count_b = 10},
                    DIFF_CHANGE_SPLIT},
            {{.kind = DIFF_KERNEL_REPLACED,
                     .a_ns = 1e6,
                     .b_ns = 2e6,
                     .delta_ns = 1e6,
                     .count_a = 9,
                     .count_b = 10},
                    DIFF_CHANGE_MORE},
            {{.kind = DIFF_SYNC_ADDED, .a_ns = 1e6, .b_ns = 2e6, .delta_ns = 1e6},
                    DIFF_CHANGE_LONGER},
            {{.kind = DIFF_SYNC_ADDED, .a_ns = 2e6, .b_ns = 1e6, .delta_ns = -1e6},
                    DIFF_CHANGE_SHORTER},
            {{.kind = DIFF_SYNC_ADDED, .b_ns = 1e6, .delta_ns = 1e6}, DIFF_CHANGE_MORE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_INT(diff_change_of(&cases[i].made), cases[i].change);
}

// A value is told as it is, however long.
TEST(a_setting_of_the_allocator_is_a_suspect_of_more_allocation)
{
    const struct diff_compared compared = {.arena = arena_new()};
    struct diff_contribution made = {.kind = DIFF_MEMORY_ALLOC};
    struct strbuf value = {0};
    for (int i = 0; i < 60; i++)
        strbuf_add(&value, "\u00e4");
    json_t *differences = json_pack("[{s:s, s:s, s:s, s:i}]", "path", "environment.MALLOC_CONF",
            "what", "MALLOC_CONF", "a", value.text, "suspicion", 50);
    CHECK(differences);
    diff_suspects(differences, &compared, &made, NULL);
    CHECK_INT(made.suspect_count, 1);
    CHECK_STR(made.suspects[0].what, "MALLOC_CONF");
    CHECK_STR(made.suspects[0].value[0], value.text);
    CHECK(!made.suspects[0].value[1]);
    CHECK_INT(made.suspects[0].why, DIFF_SUSPECT_SETTING_OF);
    CHECK_STR(made.suspects[0].of, "the allocator");
    json_decref(differences);
    strbuf_free(&value);
    arena_free(compared.arena);
}
