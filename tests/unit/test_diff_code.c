// SPDX-License-Identifier: Apache-2.0
// Code of one side, with all that it causes, is one line with the name of the smallest function
// that carries it.
#include "tests/unit/diff_world.h"

#define ONLY(match, kind, class, where, name, ns) \
    { \
        kind, class, where, (match) == ALIGN_ONLY_A ? name : NULL, \
                (match) == ALIGN_ONLY_B ? name : NULL, match, (match) == ALIGN_ONLY_A ? ns : 0, \
                (match) == ALIGN_ONLY_B ? ns : 0, 0 \
    }

// What is first where one side alone has these operations; the rest is the same on both sides.
static void code_run(
        struct world *world, enum align_match match, const char *caller, bool calls_all, bool one)
{
    const struct world_leaf leaves[] = {
            KERNEL("layers.0", "gemm", 6e6, 6e6),
            KERNEL("layers.0", "softmax", 2e6, 2e6),
            ONLY(match, COST_KERNEL, COST_GPU_COMPUTE, "optimizer", "norm", 5e5),
            ONLY(match, COST_KERNEL, COST_GPU_COMPUTE, "optimizer", "scale", 3e5),
            ONLY(match, COST_TRANSFER, COST_COPY, "optimizer", "DtoH", 2e5),
    };
    world_begin(world, 1);
    world->launched = true;
    world->caller = caller;
    world->calls_all = calls_all;
    CHECK(world_run(world, leaves, one ? 3 : 5, true));
    CHECK_DBL(world_sum(world), world->workload.delta_ns, 1);
}

static void code_check(enum align_match match, const char *caller, bool calls_all,
        enum diff_kind kind, const char *label)
{
    struct world world;
    code_run(&world, match, caller, calls_all, false);
    const struct diff_contribution *made = &world.workload.contributions[0];
    CHECK_INT(world_named(&world), 1);
    CHECK_INT(made->kind, kind);
    CHECK_STR(made->label, label);
    CHECK_INT(made->part_count, 3);
    CHECK_DBL(fabs(made->delta_ns), 1e6, 2e4);
    world_end(&world);
}

TEST(code_of_one_side_is_one_line_with_all_that_it_causes)
{
    code_check(ALIGN_ONLY_B, "clip", false, DIFF_CODE_ADDED, "clip");
    code_check(ALIGN_ONLY_A, "clip", false, DIFF_CODE_REMOVED, "clip");
    // nobody knows who launched them
    code_check(ALIGN_ONLY_B, NULL, false, DIFF_CODE_ADDED, "norm, scale and 1 more");
    // both sides have the function
    code_check(ALIGN_ONLY_B, "step", true, DIFF_CODE_ADDED, "norm, scale and 1 more");
}

// Launches that differ by as much as is new leave an interval with 0 in it; that the operations are
// new is counted.
TEST(new_operations_are_told_by_their_number)
{
    static const struct world_leaf leaves[] = {
            KERNEL("layers.0", "gemm", 6e6, 6e6),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "optimizer", "norm", 3e5),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "optimizer", "scale", 3e5),
    };
    struct world world;
    world_begin(&world, 3);
    world.launched = true;
    world.caller = "clip";
    world.own_sd = 0.6;
    CHECK(world_run(&world, leaves, sizeof leaves / sizeof *leaves, true));
    const struct diff_contribution *made = &world.workload.contributions[0];
    CHECK(made->named);
    CHECK_INT(made->kind, DIFF_CODE_ADDED);
    CHECK_STR(made->label, "clip");
    CHECK(made->ci_lo_ns > 0);
    world_end(&world);
}

// Launches behind what is new come late at one place, and less so at another by nearly as much.
TEST(launches_that_gain_as_much_as_others_lose_are_not_late_for_it)
{
    static const struct world_leaf leaves[] = {
            KERNEL("layers.0", "gemm", 6e6, 6e6),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "optimizer", "norm", 5e5),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "optimizer", "scale", 3e5),
            KERNEL("tail", "softmax", 1e6, 1e6),
            KERNEL("end", "loss", 1e6, 1e6),
            {COST_GAP, COST_LAUNCH_BOUND, "tail", "launch", "launch", ALIGN_EXACT, 1e6, 1.3e6, 0},
            {COST_GAP, COST_LAUNCH_BOUND, "end", "launch", "launch", ALIGN_EXACT, 1e6, 7.08e5, 0},
    };
    struct world world;
    world_begin(&world, 1);
    world.compared.has_gpu = true;
    world.launched = true;
    world.caller = "clip";
    CHECK(world_run(&world, leaves, sizeof leaves / sizeof *leaves, true));
    const struct diff_contribution *made = &world.workload.contributions[0];
    CHECK_INT(made->kind, DIFF_CODE_ADDED);
    CHECK_STR(made->label, "clip");
    CHECK_INT(made->part_count, 2);
    CHECK_DBL(made->delta_ns, 8e5, 4e3);
    world_end(&world);
}

TEST(one_operation_more_is_what_it_is)
{
    struct world world;
    code_run(&world, ALIGN_ONLY_B, "clip", false, true);
    CHECK_INT(world_named(&world), 1);
    CHECK_INT(world.workload.contributions[0].kind, DIFF_KERNEL_ADDED);
    CHECK_STR(world.workload.contributions[0].label, "norm");
    world_end(&world);
}

TEST(code_that_both_sides_have_elsewhere_is_repeated)
{
    static const struct world_leaf leaves[] = {
            KERNEL("layers.0", "gemm", 5e5, 5e5),
            KERNEL("layers.0", "softmax", 3e5, 3e5),
            KERNEL("layers.0", "dropout", 2e5, 2e5),
            KERNEL("head", "loss", 6e6, 6e6),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "unpack", "gemm", 5e5),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "unpack", "softmax", 3e5),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "unpack", "dropout", 2e5),
    };
    struct world world;
    world_begin(&world, 1);
    world.launched = true;
    world.caller = "unpack_hook";
    CHECK(world_run(&world, leaves, sizeof leaves / sizeof *leaves, true));
    CHECK_INT(world_named(&world), 1);
    CHECK_INT(world.workload.contributions[0].kind, DIFF_CODE_REPEATED);
    CHECK_STR(world.workload.contributions[0].label,
            "what forward > layers.0 does, called by unpack_hook");
    CHECK_INT(diff_change_of(&world.workload.contributions[0]), DIFF_CHANGE_MORE);
    world_end(&world);
}

// A function of the loop that both sides call, which calls what is new.
static void code_inner(const char *inner, const char *module, const char *label)
{
    static const struct world_leaf leaves[] = {
            KERNEL("layers.0", "gemm", 6e6, 6e6),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "optimizer", "norm", 5e5),
            ONLY(ALIGN_ONLY_B, COST_TRANSFER, COST_COPY, "optimizer", "DtoH", 3e5),
    };
    struct world world;
    world_begin(&world, 1);
    world.launched = true;
    world.caller = "on_step_end";
    world.inner = inner;
    world.inner_module = module;
    CHECK(world_run(&world, leaves, sizeof leaves / sizeof *leaves, true));
    CHECK_INT(world_named(&world), 1);
    CHECK_INT(world.workload.contributions[0].kind, DIFF_CODE_ADDED);
    CHECK_STR(world.workload.contributions[0].label, label);
    world_end(&world);
}

TEST(code_is_called_after_the_smallest_function_of_its_file)
{
    code_inner("update_average", "train.py", "update_average");
    code_inner("Tensor.norm", "torch/_tensor.py", "on_step_end"); // how it does it
    code_inner("on_step_end", "train.py", "on_step_end");         // it calls itself
}

struct compiled_case {
    int side;         // that is compiled
    const char *mode; // under which the other one runs operator by operator
    double drag;
    const struct world_leaf *more;
    size_t more_count;
    size_t named;
};

// The first contribution of a forward pass that one side runs as compiled code, and the other one
// operator by operator.
static void compiled_check(const struct compiled_case *of, enum diff_kind kind, const char *label)
{
    struct world_leaf leaves[8] = {
            ONLY(ALIGN_ONLY_A, COST_KERNEL, COST_GPU_COMPUTE, "layers.0", "triton_fused", 8e5),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "layers.0", "gelu", 5e5),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "layers.0", "norm", 9e5),
            {COST_GAP, COST_LAUNCH_BOUND, "layers.0", "launch", "launch", ALIGN_EXACT, 1e6, 1.6e6,
                    0},
            KERNEL("grad.layers.0", "gemm", 6e6, 6e6),
    };
    const size_t count = 5 + of->more_count;
    if (of->more_count)
        memcpy(leaves + 5, of->more, of->more_count * sizeof *leaves);
    struct world world;
    world_begin(&world, 2);
    world.compared.has_gpu = true;
    world.launched = true;
    world.caller = "Model.forward";
    world.inner = "Runner.call";
    world.inner_module = "[inductor]";
    world.mode = of->mode;
    world.mode_side = !of->side;
    world.drag = of->drag ? of->drag : 1;
    for (size_t i = 0; i < count && of->side; i++) {
        struct world_leaf *leaf = &leaves[i];
        *leaf = (struct world_leaf){leaf->kind, leaf->class, leaf->place, leaf->name_b,
                leaf->name_a,
                leaf->match == ALIGN_ONLY_A           ? ALIGN_ONLY_B
                        : leaf->match == ALIGN_ONLY_B ? ALIGN_ONLY_A
                                                      : leaf->match,
                leaf->ns_b, leaf->ns_a, 0};
    }
    CHECK(world_run(&world, leaves, count, true));
    const struct diff_contribution *made = &world.workload.contributions[0];
    CHECK_INT(made->kind, kind);
    CHECK_DBL(world_sum(&world), world.workload.delta_ns, 1);
    if (label) {
        CHECK_INT(world_named(&world), of->named ? of->named : 1);
        CHECK_STR(made->label, label);
        CHECK_DBL(made->delta_ns, of->side ? -1.2e6 : 1.2e6, 2e4);
        CHECK(made->ci_lo_ns * made->ci_hi_ns > 0);
    }
    world_end(&world);
}

TEST(code_that_is_compiled_on_one_side_alone_is_one_line)
{
    static const char counter[] = "_FlopCounterMode.__torch_dispatch__",
                      under[] = "forward, under _FlopCounterMode.__torch_dispatch__";
    const struct compiled_case lost = {.mode = counter}, eager = {.mode = "Linear.forward"},
                               // the untraced steps tell
            dragged = {.mode = counter, .drag = 1.2},
                               gained = {.side = 1, .mode = "Linear.forward"},
                               both = {.mode = NULL};
    compiled_check(&lost, DIFF_CODE_UNCOMPILED, under);
    compiled_check(&eager, DIFF_CODE_UNCOMPILED, "forward");
    compiled_check(&dragged, DIFF_CODE_UNCOMPILED, under);
    compiled_check(&gained, DIFF_CODE_COMPILED, "forward");
    compiled_check(&both, DIFF_KERNEL_ADDED, NULL);
}

TEST(a_phase_is_compiled_where_most_of_it_is)
{
    static const struct world_leaf eager[] = {KERNEL("layers.1", "gemm", 3e6, 3e6)},
                                   backward[] = {
                                           ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE,
                                                   "grad.layers.0", "expand", 4e5),
                                           ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE,
                                                   "grad.layers.0", "mul", 2e5),
                                   };
    const struct compiled_case most = {.mode = "Linear.forward", .more = eager, .more_count = 1},
                               // what is new in a pass that was not compiled is another line
            apart = {.mode = "Linear.forward", .more = backward, .more_count = 2, .named = 3};
    compiled_check(&most, DIFF_CODE_ADDED, NULL);
    compiled_check(&apart, DIFF_CODE_UNCOMPILED, "forward");
}

// Of a function that is new in the forward pass; `other`: and of what else the candidate has more
// of.
static void code_backward(
        const struct world_leaf *more, size_t more_count, size_t named, double delta)
{
    struct world_leaf leaves[8] = {
            KERNEL("layers.0", "gemm", 6e6, 6e6),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "loss", "pow", 5e5),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "loss", "sum", 3e5),
            KERNEL("grad.layers.0", "gemm", 6e6, 6e6),
    };
    memcpy(leaves + 4, more, more_count * sizeof *more);
    struct world world;
    world_begin(&world, 1);
    world.launched = true;
    world.caller = "weight_penalty";
    CHECK(world_run(&world, leaves, 4 + more_count, true));
    CHECK_INT(world_named(&world), named);
    const struct diff_contribution *made = &world.workload.contributions[0];
    for (size_t i = 0; i < world.workload.contribution_count; i++)
        if (strcmp(world.workload.contributions[i].label, "weight_penalty") == 0)
            made = &world.workload.contributions[i];
    CHECK_STR(made->label, "weight_penalty");
    CHECK_DBL(made->delta_ns, delta, 2e4);
    CHECK_DBL(world_sum(&world), world.workload.delta_ns, 1);
    world_end(&world);
}

TEST(the_backward_pass_of_new_code_is_its_own)
{
    static const struct world_leaf own[] = {
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "grad.loss", "expand", 4e5),
            ONLY(ALIGN_ONLY_B, COST_KERNEL, COST_GPU_COMPUTE, "grad.loss", "mul", 2e5),
    };
    static const struct world_leaf slower[] = {KERNEL("grad.layers.0", "softmax", 1e6, 1.5e6)};
    code_backward(own, 2, 1, 1.4e6);
    code_backward(own, 1, 1, 1.2e6);
    code_backward(slower, 1, 2, 8e5); // what both sides have got slower by itself
}

static void shares_check(struct diff_contribution_part *parts, enum diff_kind kind, double delta)
{
    const struct diff_untraced untraced = {.unit = "step", .step = {1e7, 1e7 + delta}};
    const struct diff_compared compared = {.arena = arena_new(), .untraced = &untraced};
    struct diff_contribution made = {.rank = 1,
            .kind = kind,
            .delta_ns = delta,
            .named = true,
            .count_a = NAN,
            .count_b = NAN,
            .parts = parts,
            .part_count = 3};
    diff_evidence(&compared, &made, NULL);
    CHECK(made.evidence_count > 0);
    const struct diff_evidence *last = &made.evidence[made.evidence_count - 1];
    CHECK_INT(last->kind, DIFF_EVIDENCE_CAUSES);
    CHECK_INT(last->list.of, 3);
    CHECK_INT(last->list.count, 2);
    CHECK_STR(last->list.parts[0].name, "launches");
    CHECK_DBL(last->list.parts[0].delta_ns, 1.2 * delta, 1);
    CHECK_DBL(last->list.parts[0].share, 0.8, 1e-9);
    CHECK_STR(last->list.parts[1].name, "norm");
    CHECK_DBL(last->list.parts[1].delta_ns, 0.3 * delta, 1);
    CHECK_DBL(last->list.parts[1].share, 0.2, 1e-9);
    arena_free(compared.arena);
}

// A part is no more than all of it, also where others take of that.
TEST(shares_of_parts_are_of_what_goes_the_same_way)
{
    struct diff_contribution_part more[] = {{DIFF_LAUNCH_GAP, "launches", 0, 1.2e6},
            {DIFF_KERNEL_ADDED, "norm", 0, 3e5}, {DIFF_KERNEL_REMOVED, "relu", 5e5, 0}};
    struct diff_contribution_part less[] = {{DIFF_LAUNCH_GAP, "launches", 1.2e6, 0},
            {DIFF_KERNEL_REMOVED, "norm", 3e5, 0}, {DIFF_KERNEL_ADDED, "relu", 0, 5e5}};
    shares_check(more, DIFF_CODE_ADDED, 1e6);
    shares_check(less, DIFF_CODE_REMOVED, -1e6);
}
