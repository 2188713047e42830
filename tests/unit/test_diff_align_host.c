// SPDX-License-Identifier: Apache-2.0
// The alignment of what the host runs: modules and functions that were renamed, moved, wrapped,
// replaced or are new.
#include "reports/analyse/diff/align/align.h"

#include <stdio.h>

#include "tests/unit/cost_trees.h"
#include "tests/unit/runner.h"

// torch 2 has _wrapped_call_impl between _call_impl and what it calls; and torch moved into another
// directory.
TEST(wrappers_are_taken_out)
{
    struct cost_tree *trees[2];
    uint32_t gemm[2] = {0}, softmax[2] = {0};
    for (int s = 0; s < 2; s++) {
        struct cost_tree *tree = trees[s] = cost_tree_new();
        uint32_t at = place(tree, 0, COST_PHASE, "forward", NULL);
        const char *module = s ? "/opt/b/lib/python3.11/site-packages/torch/nn/modules/module.py"
                               : "/usr/lib/python3/dist-packages/torch/nn/modules/module.py";
        for (int depth = 0; depth < 4; depth++) {
            char name[32];
            if (s)
                at = place(tree, at, COST_PYTHON, "Module._wrapped_call_impl", module);
            at = place(tree, at, COST_PYTHON, "Module._call_impl", module);
            snprintf(name, sizeof name, "Block%d.forward", depth);
            at = place(tree, at, COST_PYTHON, name, s ? "/opt/b/model.py" : "/opt/a/model.py");
        }
        gemm[s] = leaf(tree, at, COST_FUNCTION,
                s ? "mkl_blas_avx512_sgemm_kernel_0" : "mkl_blas_avx2_sgemm_kernel_0", 1000);
        softmax[s] = leaf(tree, at, COST_FUNCTION, "softmax", 500);
        leaf(tree, tree->nodes[at].parent, COST_FUNCTION, "softmax", 100);
        cost_tree_finish(tree);
    }
    struct alignment *alignment = align_trees(trees[0], trees[1], NULL);
    CHECK_INT(alignment->count, 3);
    CHECK_INT(alignment->groups[0].match, ALIGN_NORMALISED);
    CHECK_INT(alignment->groups[0].a[0], gemm[0]);
    CHECK_INT(alignment->groups[0].b[0], gemm[1]);
    CHECK_INT(alignment->groups[1].a[0], softmax[0]);
    CHECK_INT(alignment->groups[1].b[0], softmax[1]);
    CHECK_STR(trees[0]->nodes[alignment->groups[0].place_a].name, "Block3.forward");
    CHECK_STR(trees[1]->nodes[alignment->groups[0].place_b].name, "Block3.forward");
    uint32_t block = alignment->groups[0].place_a;
    CHECK_INT(alignment->place_b[block], alignment->groups[0].place_b);
    alignment_free(alignment);
    cost_tree_free(trees[0]);
    cost_tree_free(trees[1]);
}

TEST(renamed_modules_pair_by_content)
{
    struct cost_tree *trees[2];
    for (int s = 0; s < 2; s++) {
        struct cost_tree *tree = trees[s] = cost_tree_new();
        uint32_t phase = place(tree, 0, COST_PHASE, "forward", NULL);
        uint32_t encoder = place(tree, phase, COST_MODULE, s ? "enc" : "encoder", NULL);
        uint32_t head = place(tree, phase, COST_MODULE, s ? "classifier" : "head", NULL);
        leaf(tree, encoder, COST_FUNCTION, "conv", 1000);
        leaf(tree, encoder, COST_FUNCTION, "relu", 300);
        leaf(tree, head, COST_FUNCTION, "gemm", 800);
        leaf(tree, head, COST_FUNCTION, "relu", 50);
        cost_tree_finish(tree);
    }
    struct alignment *alignment = align_trees(trees[0], trees[1], NULL);
    CHECK_INT(alignment->count, 4);
    CHECK_DBL(alignment->coverage_match[ALIGN_EXACT], 1, 1e-12);
    for (size_t i = 0; i < alignment->count; i++)
        CHECK_INT(trees[0]->nodes[alignment->groups[i].a[0]].ns,
                trees[1]->nodes[alignment->groups[i].b[0]].ns);
    alignment_free(alignment);
    cost_tree_free(trees[0]);
    cost_tree_free(trees[1]);
}

TEST(functions_move_and_are_replaced)
{
    struct cost_tree *trees[2];
    for (int s = 0; s < 2; s++) {
        struct cost_tree *tree = trees[s] = cost_tree_new();
        uint32_t phase = place(tree, 0, COST_PHASE, "step", NULL);
        uint32_t f = place(tree, phase, COST_PYTHON, "f", "m.py"),
                 g = place(tree, phase, COST_PYTHON, "g", "m.py");
        leaf(tree, f, COST_FUNCTION, "common", 1000);
        leaf(tree, g, COST_FUNCTION, "common", 900);
        leaf(tree, s ? g : f, COST_FUNCTION, "memset", 200); // moved
        leaf(tree, f, COST_FUNCTION, s ? "quick_sort" : "bubble", 700);
        leaf(tree, f, COST_FUNCTION, s ? "tiny_b" : "tiny_a", 3); // a sample or two
        leaf(tree, f, COST_STALL, s ? "fsync" : "smaps_read", 50);
        cost_tree_finish(tree);
    }
    struct alignment *alignment = align_trees(trees[0], trees[1], NULL);
    size_t only = 0, replaced = 0, moved = 0;
    for (size_t i = 0; i < alignment->count; i++) {
        const struct align_group *group = &alignment->groups[i];
        only += group->match >= ALIGN_ONLY_A;
        if (!group->count_a || !group->count_b)
            continue;
        const char *name = trees[0]->nodes[group->a[0]].name;
        replaced += !strcmp(name, "bubble") && group->count_a == 1 && group->count_b == 1 &&
                group->match == ALIGN_SIMILAR;
        moved += !strcmp(name, "memset") && group->match == ALIGN_EXACT;
    }
    CHECK_INT(replaced, 1);
    CHECK_INT(moved, 1);
    CHECK_INT(only, 4); // the tiny ones and the stalls
    alignment_free(alignment);
    cost_tree_free(trees[0]);
    cost_tree_free(trees[1]);
}

// A product by OpenBLAS, and by MKL, whose entry is called alike and only calls the kernel.
static struct cost_tree *product(bool mkl, int64_t entry_ns)
{
    struct cost_tree *tree = cost_tree_new();
    uint32_t at = place(tree, place(tree, 0, COST_PHASE, "forward", NULL), COST_PYTHON,
            "Linear.forward", "linear.py");
    leaf(tree, at, COST_FUNCTION, mkl ? "SGEMM" : "sgemm_kernel_HASWELL", mkl ? entry_ns : 1000);
    leaf(tree, at, COST_FUNCTION, mkl ? "mkl_blas_def_inner_zen" : "incopy", mkl ? 1200 : 200);
    cost_tree_finish(tree);
    return tree;
}

TEST(a_similar_name_that_takes_next_to_nothing_is_no_partner)
{
    for (int alike = 0; alike < 2; alike++) { // in time too: the name decides
        struct cost_tree *a = product(false, 0), *b = product(true, alike ? 900 : 10);
        struct alignment *alignment = align_trees(a, b, NULL);
        size_t pairs = 0, several = 0;
        for (size_t i = 0; i < alignment->count; i++) {
            const struct align_group *group = &alignment->groups[i];
            pairs += group->count_a == 1 && group->count_b == 1 &&
                    strcmp(b->nodes[group->b[0]].name, "SGEMM") == 0;
            several += group->count_a == 2 && group->count_b >= 1 && group->match == ALIGN_GROUP;
        }
        CHECK_INT(pairs, alike);
        CHECK_INT(several, !alike);
        alignment_free(alignment);
        cost_tree_free(a);
        cost_tree_free(b);
    }
}

static struct cost_tree *optimizer(const char *around, const char *clip, int clipped)
{
    struct cost_tree *tree = cost_tree_new();
    cost_tree_window(tree, &(struct cost_window){.steps = 1});
    uint32_t phase = place(tree, 0, COST_PHASE, "optimizer", NULL), at = phase;
    uint32_t adam = place(tree, phase, COST_PYTHON, "Adam.step", "torch/optim/adam.py");
    for (int i = 0; i < 40; i++)
        leaf(tree, adam, COST_FUNCTION, "addcdiv_kernel", 1000);
    if (!clip)
        leaf(tree, adam, COST_FUNCTION, "norm_kernel", 1000); // seen there by chance
    at = around ? place(tree, phase, COST_PYTHON, around, "train.py") : phase;
    at = clip ? place(tree, at, COST_PYTHON, clip, "torch/nn/utils/clip_grad.py") : at;
    for (int i = 0; i < clipped; i++)
        leaf(tree, at, COST_FUNCTION, "norm_kernel", 1000);
    cost_tree_finish(tree);
    return tree;
}

static enum align_match match_of(struct cost_tree *a, struct cost_tree *b, const char *name)
{
    struct alignment *alignment = align_trees(a, b, NULL);
    enum align_match match = ALIGN_MATCH_COUNT;
    for (size_t i = 0; i < alignment->count; i++) {
        const struct align_group *group = &alignment->groups[i];
        if (group->count_b && strcmp(b->nodes[group->b[0]].name, name) == 0)
            match = group->match;
    }
    alignment_free(alignment);
    cost_tree_free(a);
    cost_tree_free(b);
    return match;
}

TEST(what_a_new_function_does_has_no_partner)
{
    CHECK_INT(match_of(optimizer(NULL, NULL, 0), optimizer(NULL, "clip_grad_norm_", 30),
                      "norm_kernel"),
            ALIGN_ONLY_B);
    // Renamed, or put around what was there: no new ones.
    CHECK_INT(match_of(optimizer(NULL, "clip_old", 30), optimizer(NULL, "clip_grad_norm_", 30),
                      "norm_kernel"),
            ALIGN_EXACT);
    CHECK_INT(match_of(optimizer(NULL, NULL, 30), optimizer(NULL, "clip_grad_norm_", 30),
                      "norm_kernel"),
            ALIGN_EXACT);
    CHECK_INT(match_of(optimizer(NULL, "clip_grad_norm_", 30),
                      optimizer("wrapper", "clip_grad_norm_", 30), "norm_kernel"),
            ALIGN_EXACT);
    // A few ticks may have been missed.
    CHECK_INT(match_of(optimizer(NULL, NULL, 0), optimizer(NULL, "clip_grad_norm_", 5),
                      "norm_kernel"),
            ALIGN_EXACT);
}

TEST(functions_without_names_pair_by_time)
{
    struct cost_tree *trees[2];
    for (int s = 0; s < 2; s++) {
        struct cost_tree *tree = trees[s] = cost_tree_new();
        uint32_t phase = place(tree, 0, COST_PHASE, "step", NULL);
        leaf(tree, phase, COST_FUNCTION, "gemm", s ? 1010 : 1000);
        leaf(tree, phase, COST_FUNCTION, "relu", s ? 290 : 300);
        leaf(tree, phase, COST_FUNCTION, "tiny", s ? 85 : 80);
        if (s)
            leaf(tree, phase, COST_FUNCTION, "new", 450);
        cost_tree_finish(tree);
    }
    struct align_opts blind = {.ignore_names = true};
    struct alignment *alignment = align_trees(trees[0], trees[1], &blind);
    CHECK_INT(alignment->count, 4);
    for (size_t i = 0; i < alignment->count; i++) {
        const struct align_group *group = &alignment->groups[i];
        bool new = !strcmp(trees[1]->nodes[group->b[0]].name, "new");
        CHECK_INT(group->match, new ? ALIGN_ONLY_B : ALIGN_EXACT);
    }
    alignment_free(alignment);
    cost_tree_free(trees[0]);
    cost_tree_free(trees[1]);
}
