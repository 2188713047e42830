// SPDX-License-Identifier: Apache-2.0
// The alignment of two cost trees, by its properties: what is the same is found the same, whatever
// was renamed, fused, moved or scrambled; and in bounded time. Functions of the host:
// test_diff_align_host.c.
#include "reports/analyse/diff/align/align.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/unit/cost_trees.h"
#include "tests/unit/runner.h"

enum { KERNELS_MAX = 200000 };

struct kernel { // of a step, in its order
    char name[64];
    uint32_t grid;
    int64_t ns;
    int truth; // number that both sides' same kernels share
    uint32_t place;
};

static uint32_t random_state = 1;

static uint32_t random_next(uint32_t below)
{
    random_state = random_state * 1664525 + 1013904223;
    return (uint32_t)(((uint64_t)(random_state >> 8) * below) >> 24);
}

// A step of kernels; truth[node] is the kernel's number. seed != 0: made in another order, so with
// other ids.
static struct cost_tree *step(const struct kernel *kernels, size_t count, int *truth, uint32_t seed)
{
    struct cost_tree *tree = cost_tree_new();
    uint32_t phase = place(tree, 0, COST_PHASE, "forward", NULL);
    uint32_t *occurrence = calloc(count + 1, sizeof *occurrence),
             *order = calloc(count + 1, sizeof *order);
    // of a hash of name, grid and place: the newest occurrence
    uint32_t *last = malloc(65536 * sizeof *last);
    memset(last, 0xff, 65536 * sizeof *last);
    for (size_t i = 0; i < count; i++) {
        uint32_t hash = kernels[i].grid * 31 + kernels[i].place * 7;
        for (const char *c = kernels[i].name; *c; c++)
            hash = hash * 33 + (unsigned char)*c;
        uint32_t *slot = &last[hash & 65535];
        // a collision only skips numbers
        occurrence[i] = *slot == UINT32_MAX ? 0 : occurrence[*slot] + 1;
        *slot = (uint32_t)i;
        order[i] = (uint32_t)i;
    }
    if (seed) {
        random_state = seed;
        for (size_t i = count; i > 1; i--) {
            uint32_t k = random_next((uint32_t)i), swap = order[i - 1];
            order[i - 1] = order[k];
            order[k] = swap;
        }
    }
    cost_tree_window(tree, &(struct cost_window){.steps = 1});
    for (size_t n = 0; n < count; n++) {
        size_t i = order[n];
        char name[32];
        snprintf(name, sizeof name, "layers.%u", kernels[i].place);
        uint32_t parent = kernels[i].place ? place(tree, phase, COST_MODULE, name, NULL) : phase;
        struct cost_shape shape = {.grid = {kernels[i].grid, 1, 1},
                .block = {128, 1, 1},
                .registers = (uint32_t)random_next(64)};
        shape.registers = 32;
        uint32_t node = cost_tree_child(tree, parent,
                &(struct cost_key){.kind = COST_KERNEL,
                        .name = kernels[i].name,
                        .shape = &shape,
                        .occurrence = occurrence[i]});
        // 0: it ran in no window
        cost_tree_add(tree, node, 0, kernels[i].ns, kernels[i].ns, kernels[i].ns > 0);
        cost_tree_place(tree, node, (double)i);
        truth[node] = kernels[i].truth;
    }
    cost_tree_finish(tree);
    free(occurrence);
    free(order);
    free(last);
    return tree;
}

// A transformer's step: layers of 9 kernels of 5 names, and single ones before and behind.
static size_t transformer(struct kernel *kernels, size_t layers, bool modules)
{
    static const char *const names[9] = {"layer_norm_kernel", "ampere_sgemm_128x64_tn",
            "softmax_warp_forward", "ampere_sgemm_64x64_nn", "elementwise_kernel<AddFunctor>",
            "layer_norm_kernel", "ampere_sgemm_128x64_tn", "elementwise_kernel<GeluFunctor>",
            "elementwise_kernel<AddFunctor>"};
    static const uint32_t grids[9] = {32, 256, 96, 64, 512, 32, 512, 2048, 512};
    size_t count = 0;
    for (size_t i = 0; i < layers * 9; i++) {
        struct kernel *kernel = &kernels[count];
        *kernel = (struct kernel){.grid = grids[i % 9],
                .ns = 1000 + grids[i % 9] * 20 + (int64_t)random_next(200),
                .truth = (int)count,
                .place = modules ? (uint32_t)(i / 9 + 1) : 0};
        snprintf(kernel->name, sizeof kernel->name, "%s", names[i % 9]);
        count++;
    }
    return count;
}

struct score {
    double right, total; // time of side b in groups whose truth fits
    size_t one_one, groups, only;
};

static struct score judge(const struct alignment *alignment, const struct cost_tree *a,
        const struct cost_tree *b, const int *truth_a, const int *truth_b)
{
    struct score score = {0};
    size_t leaves_a = 0, leaves_b = 0, seen_a = 0, seen_b = 0;
    for (size_t i = 0; i < a->node_count; i++)
        leaves_a += a->nodes[i].kind >= COST_KERNEL;
    for (size_t i = 0; i < b->node_count; i++)
        leaves_b += b->nodes[i].kind >= COST_KERNEL;
    for (size_t i = 0; i < alignment->count; i++) {
        const struct align_group *group = &alignment->groups[i];
        seen_a += group->count_a;
        seen_b += group->count_b;
        score.one_one += group->count_a == 1 && group->count_b == 1;
        score.groups += group->match == ALIGN_GROUP;
        score.only += group->match >= ALIGN_ONLY_A;
        for (size_t k = 0; k < group->count_b; k++) {
            double ns = (double)b->nodes[group->b[k]].ns;
            bool right = false;
            for (size_t j = 0; j < group->count_a; j++)
                right |= truth_a[group->a[j]] == truth_b[group->b[k]];
            score.total += ns;
            score.right += right ? ns : 0;
        }
    }
    CHECK_INT(seen_a, leaves_a); // each leaf is in one group
    CHECK_INT(seen_b, leaves_b);
    return score;
}

static struct kernel kernels_a[KERNELS_MAX + 10], kernels_b[KERNELS_MAX + 10];
static int truth_a[2 * KERNELS_MAX], truth_b[2 * KERNELS_MAX];

TEST(a_tree_is_itself)
{
    size_t count = transformer(kernels_a, 50, true);
    struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                     *b = step(kernels_a, count, truth_b, 0);
    struct alignment *alignment = align_trees(a, b, NULL);
    struct score score = judge(alignment, a, b, truth_a, truth_b);
    CHECK_INT(score.one_one, 450);
    CHECK_DBL(alignment->coverage, 1, 1e-12);
    CHECK_DBL(alignment->coverage_match[ALIGN_EXACT], 1, 1e-12);
    CHECK_DBL(score.right, score.total, 0);
    for (size_t i = 0; i < a->node_count; i++)
        if (a->nodes[i].kind < COST_KERNEL)
            CHECK_STR(b->nodes[alignment->place_b[i]].name, a->nodes[i].name);
    alignment_free(alignment);
    alignment_free(NULL);
    struct align_opts blind = {.ignore_names = true};
    alignment = align_trees(a, b, &blind);
    score = judge(alignment, a, b, truth_a, truth_b);
    CHECK_DBL(score.right, score.total, 0);
    // found without names, told with them
    CHECK_DBL(alignment->coverage_match[ALIGN_EXACT], 1, 1e-12);
    alignment_free(alignment);
    cost_tree_free(a);
    cost_tree_free(b);
}

TEST(ids_do_not_matter)
{
    size_t count = transformer(kernels_a, 30, true);
    for (size_t i = 0; i < count; i++) {
        kernels_b[i] = kernels_a[i];
        if (i % 7 == 3)
            snprintf(kernels_b[i].name, sizeof kernels_b[i].name, "new_kernel_%zu", i % 5);
        if (i % 11 == 5)
            kernels_b[i].grid += 1;
    }
    struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                     *b = step(kernels_b, count, truth_b, 0);
    struct cost_tree *c = step(kernels_a, count, truth_a, 77);
    struct alignment *plain = align_trees(a, b, NULL), *other = align_trees(c, b, NULL);
    CHECK_INT(plain->count, other->count);
    for (size_t i = 0; i < plain->count && i < other->count; i++) {
        const struct align_group *x = &plain->groups[i], *y = &other->groups[i];
        CHECK_INT(x->match, y->match);
        CHECK_INT(x->count_a, y->count_a);
        CHECK_INT(x->count_b, y->count_b);
        for (size_t k = 0; k < x->count_b && k < y->count_b; k++)
            CHECK_INT(x->b[k], y->b[k]);
        for (size_t k = 0; k < x->count_a && k < y->count_a; k++)
            CHECK(a->nodes[x->a[k]].order == c->nodes[y->a[k]].order);
    }
    alignment_free(plain);
    alignment_free(other);
    cost_tree_free(a);
    cost_tree_free(b);
    cost_tree_free(c);
}

static void scramble(struct kernel *kernel)
{
    uint32_t hash = 5381;
    for (const char *c = kernel->name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    snprintf(kernel->name, sizeof kernel->name, "k%08x", hash * 2654435761u);
}

TEST(scrambled_names_pair_by_order_and_shape)
{
    for (int modules = 0; modules < 2; modules++) {
        size_t count = transformer(kernels_a, 50, modules), kept = 0;
        for (size_t i = 0; i < count; i++) {
            if (i == 100 || i == 333) { // an extra one, and one gone
                kernels_b[kept] = (struct kernel){.grid = 7,
                        .ns = 3000,
                        .truth = -1,
                        .place = kernels_a[i].place,
                        .name = "fill"};
                scramble(&kernels_b[kept++]);
            }
            if (i == 200)
                continue;
            kernels_b[kept] = kernels_a[i];
            kernels_b[kept].ns = kernels_a[i].ns * (95 + random_next(10)) / 100;
            scramble(&kernels_b[kept++]);
        }
        struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                         *b = step(kernels_b, kept, truth_b, 0);
        struct alignment *alignment = align_trees(a, b, NULL);
        struct score score = judge(alignment, a, b, truth_a, truth_b);
        printf("# modules %d: %.4f right\n", modules, score.right / score.total);
        CHECK(score.right >= 0.95 * score.total);
        CHECK(alignment->coverage > 0.95);
        alignment_free(alignment);
        cost_tree_free(a);
        cost_tree_free(b);
    }
}

// A kernel of another stream comes before its neighbour on one side and behind it on the other,
// with the same shape and nearly the same time; what it is called elsewhere on its own side tells
// it apart.
TEST(scrambled_names_that_recur_are_learned)
{
    size_t count = transformer(kernels_a, 20, false), kept = 0;
    static struct kernel source[400];
    for (size_t i = 0; i < count; i++) {
        bool swapped = i % 54 == 5, extra = i % 18 == 5;
        struct kernel augment = {.name = "augment",
                .grid = 32,
                .ns = kernels_a[i].ns + 100,
                .truth = (int)(1000 + i)};
        if (extra && !swapped)
            source[kept++] = augment;
        source[kept++] = kernels_a[i];
        if (swapped)
            source[kept++] = augment;
    }
    memcpy(kernels_a, source, kept * sizeof *source);
    for (size_t i = 0; i < kept; i++) {
        kernels_b[i] = source[i];
        scramble(&kernels_b[i]);
    }
    for (size_t i = 0; i + 1 < kept; i++)
        // back before its neighbour
        if (source[i + 1].truth >= 1000 && source[i].truth < 1000 && source[i].grid == 32) {
            struct kernel swap = kernels_b[i];
            kernels_b[i] = kernels_b[i + 1];
            kernels_b[i + 1] = swap;
        }
    struct cost_tree *a = step(kernels_a, kept, truth_a, 0), *b = step(kernels_b, kept, truth_b, 0);
    struct alignment *alignment = align_trees(a, b, NULL);
    struct score score = judge(alignment, a, b, truth_a, truth_b);
    printf("# %.4f right\n", score.right / score.total);
    CHECK(score.right >= 0.999 * score.total);
    alignment_free(alignment);
    cost_tree_free(a);
    cost_tree_free(b);
}

TEST(fused_and_split)
{
    for (int same_shape = 0; same_shape < 2; same_shape++) {
        size_t count = transformer(kernels_a, 50, false), kept = 0;
        for (size_t i = 0; i < count; i++) {
            kernels_b[kept] = kernels_a[i];
            if (i == 202) { // three become one
                snprintf(kernels_b[kept].name, sizeof kernels_b[kept].name,
                        "triton_fused_softmax_gemm_add");
                kernels_b[kept].grid = same_shape ? kernels_a[i].grid : 777;
                i += 2;
            }
            kept++;
        }
        struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                         *b = step(kernels_b, kept, truth_b, 0);
        for (int back = 0; back < 2; back++) {
            struct alignment *alignment = back ? align_trees(b, a, NULL) : align_trees(a, b, NULL);
            size_t found = 0, exact = 0;
            for (size_t i = 0; i < alignment->count; i++) {
                const struct align_group *group = &alignment->groups[i];
                size_t several = back ? group->count_b : group->count_a,
                       one = back ? group->count_a : group->count_b;
                found += several == 3 && one == 1 && group->match == ALIGN_GROUP;
                exact += several == 1 && one == 1 && group->match == ALIGN_EXACT;
            }
            CHECK_INT(found, 1);
            CHECK_INT(exact, 447);
            CHECK_INT(alignment->count, 448);
            CHECK_DBL(alignment->coverage, 1, 1e-12);
            alignment_free(alignment);
        }
        cost_tree_free(a);
        cost_tree_free(b);
    }
}

// As torch.compile leaves a model: all kernels at one place, additions fused with the layer norm
// behind them, generated names.
TEST(places_that_one_side_lost)
{
    size_t count = transformer(kernels_a, 12, true), kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool fused = i % 9 == 8 && i + 1 < count;
        i += fused;
        struct kernel *kernel = &kernels_b[kept++];
        *kernel = kernels_a[i];
        kernel->place = 1; // which a has, too, with a twelfth of the kernels
        if (fused) {
            snprintf(kernel->name, sizeof kernel->name,
                    "triton_per_fused_add_native_layer_norm_%zu", i % 4);
            kernel->grid = 777;
        } else if (i % 9 == 7) {
            snprintf(kernel->name, sizeof kernel->name, "triton_poi_fused_gelu_view_2");
        }
    }
    struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                     *b = step(kernels_b, kept, truth_b, 0);
    struct score forth = {0};
    for (int back = 0; back < 2; back++) {
        struct alignment *alignment = back ? align_trees(b, a, NULL) : align_trees(a, b, NULL);
        size_t found = 0, same = 0, replaced = 0;
        struct score score = back ? judge(alignment, b, a, truth_b, truth_a)
                                  : judge(alignment, a, b, truth_a, truth_b);
        for (size_t i = 0; i < alignment->count; i++) {
            const struct align_group *group = &alignment->groups[i];
            found += (back ? group->count_b : group->count_a) == 2 &&
                    (back ? group->count_a : group->count_b) == 1;
            same += group->match == ALIGN_EXACT;
            // gelu: generated code of this operator, and the same shape
            replaced += group->match == ALIGN_RESOURCES;
        }
        CHECK_INT(found, 11);
        CHECK_INT(replaced, 12);
        CHECK_INT(same, count - 12 - 2 * 11);
        CHECK_INT(score.only, 0);
        CHECK_DBL(alignment->coverage, 1, 1e-12);
        // The other way round half of what was fused has no kernel of its own on the other side.
        CHECK(back ? score.right == forth.right : score.right == score.total);
        forth = score;
        alignment_free(alignment);
    }
    cost_tree_free(a);
    cost_tree_free(b);
}

// A template's name is nobody's own: with another shape and another time it is no border in a
// sequence of a whole phase.
TEST(a_shared_name_is_no_border)
{
    size_t count = transformer(kernels_a, 12, true), kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct kernel *kernel = &kernels_b[kept++];
        *kernel = kernels_a[i];
        kernel->place = 1;
        if (i % 9 == 4) { // an addition of all, and then a small one: two for what was "softmax,
                          // gemm" before
            snprintf(kernels_a[i - 1].name, sizeof kernels_a[i - 1].name, "reduce_kernel");
            snprintf(kernels_a[i].name, sizeof kernels_a[i].name, "split_kernel");
            snprintf(kernels_b[kept - 2].name, sizeof kernels_b[kept - 2].name,
                    "triton_red_fused_sum_1");
            snprintf(kernel->name, sizeof kernel->name, "reduce_kernel");
            kernels_b[kept - 2].grid = 3;
            kernel->grid = 7;
            kernel->ns = 300;
        }
    }
    struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                     *b = step(kernels_b, kept, truth_b, 0);
    struct alignment *alignment = align_trees(a, b, NULL);
    size_t found = 0;
    for (size_t i = 0; i < alignment->count; i++)
        found += alignment->groups[i].count_a == 2 && alignment->groups[i].count_b == 2;
    CHECK_INT(found, 12);
    CHECK_INT(alignment->count, 12 + 7 * 12);
    CHECK_DBL(alignment->coverage, 1, 1e-12);
    alignment_free(alignment);
    cost_tree_free(a);
    cost_tree_free(b);
}

// What ran in a first step that is in no window stands between the kernels of all steps, elsewhere
// on each side.
TEST(what_ran_in_no_window_is_nobody)
{
    size_t count = transformer(kernels_a, 20, false), kept = 0;
    struct kernel fill = {.name = "fill_kernel", .grid = 512, .truth = -1};
    for (size_t i = 0; i < 30; i++)
        kernels_b[kept++] = fill;
    for (size_t i = 0; i < count; i++)
        kernels_b[kept++] = kernels_a[i];
    for (size_t i = 0; i < 30; i++)
        kernels_a[count + i] = fill; // behind all kernels here, before them there: as anchors they
                                     // would leave no kernel a partner
    struct cost_tree *a = step(kernels_a, count + 30, truth_a, 0),
                     *b = step(kernels_b, kept, truth_b, 0);
    struct alignment *alignment = align_trees(a, b, NULL);
    CHECK_INT(alignment->count, count);
    CHECK_DBL(alignment->coverage_match[ALIGN_EXACT], 1, 1e-12);
    for (size_t i = 0; i < alignment->count; i++)
        CHECK_INT(truth_a[alignment->groups[i].a[0]], truth_b[alignment->groups[i].b[0]]);
    alignment_free(alignment);
    cost_tree_free(a);
    cost_tree_free(b);
}

static void kernel_of_steps(struct cost_tree *tree, uint32_t parent, const char *name,
        uint32_t grid, double order, int64_t count)
{
    struct cost_shape shape = {.grid = {grid, 1, 1}, .block = {128, 1, 1}};
    uint32_t node = cost_tree_child(
            tree, parent, &(struct cost_key){.kind = COST_KERNEL, .name = name, .shape = &shape});
    cost_tree_add(tree, node, 0, 1000 * count, 1000 * count, count);
    cost_tree_place(tree, node, order);
}

// Grids that follow from the data are other ones in every step: one kernel all the same. Two shapes
// in every step are two kernels.
TEST(shapes_that_vary_from_step_to_step)
{
    struct cost_tree *trees[2];
    for (int s = 0; s < 2; s++) {
        struct cost_tree *tree = trees[s] = cost_tree_new();
        cost_tree_window(tree, &(struct cost_window){.steps = 8});
        uint32_t phase = place(tree, 0, COST_PHASE, "optimizer", NULL);
        kernel_of_steps(tree, phase, "gemm_kernel", 64, 0, 8);
        for (uint32_t i = 0; i < (s ? 7 : 8); i++) // one of b is there twice
            kernel_of_steps(tree, phase, "index_kernel", 100 + 10 * i + (uint32_t)s, 1 + 0.01 * i,
                    s && !i ? 2 : 1);
        kernel_of_steps(tree, phase, "add_kernel", 32, 2, 8);
        for (uint32_t i = 0; i < 4; i++) // the same name at another position
            kernel_of_steps(tree, phase, "index_kernel", 500 + 10 * i + (uint32_t)s, 3, 2);
        kernel_of_steps(tree, phase, "norm_kernel", 16, 4, 8);
        if (s)
            kernel_of_steps(tree, phase, "norm_kernel", 17, 5, 8);
        cost_tree_finish(tree);
    }
    struct alignment *alignment = align_trees(trees[0], trees[1], NULL);
    size_t several = 0, only = 0;
    CHECK_INT(alignment->count, 6);
    for (size_t i = 0; i < alignment->count; i++) {
        const struct align_group *group = &alignment->groups[i];
        several += (group->count_a == 8 && group->count_b == 7) ||
                (group->count_a == 4 && group->count_b == 4);
        only += group->match == ALIGN_ONLY_B;
        CHECK(group->match == ALIGN_EXACT || group->match == ALIGN_ONLY_B);
    }
    CHECK_INT(several, 2);
    CHECK_INT(only, 1);
    alignment_free(alignment);
    cost_tree_free(trees[0]);
    cost_tree_free(trees[1]);
}

// Between two borders generated code says with its name where an operator's work begins.
TEST(operators_part_what_is_fused)
{
    static const char *const names_a[5] = {"first_gemm", "reduce_kernel<sum_functor>",
            "layer_norm_grad_kernel", "gamma_kernel", "second_gemm"};
    static const char *const names_b[5] = {"first_gemm", "triton_red_fused_sum_view_1",
            "triton_per_fused_sum_view_2", "triton_per_fused_add_native_layer_norm_backward_view_3",
            "second_gemm"};
    for (uint32_t i = 0; i < 60; i++) {
        kernels_a[i] = (struct kernel){
                .grid = 10 + i % 5, .ns = 2000, .place = i / 5 + 1, .truth = (int)i};
        kernels_b[i] = (struct kernel){.grid = i % 5 % 4 ? 20 + i % 5 : 10 + i % 5,
                .ns = 2000,
                .place = 1,
                .truth = (int)i};
        snprintf(kernels_a[i].name, sizeof kernels_a[i].name, "%s", names_a[i % 5]);
        snprintf(kernels_b[i].name, sizeof kernels_b[i].name, "%s", names_b[i % 5]);
    }
    struct cost_tree *a = step(kernels_a, 60, truth_a, 0), *b = step(kernels_b, 60, truth_b, 0);
    for (int back = 0; back < 2; back++) {
        struct alignment *alignment = back ? align_trees(b, a, NULL) : align_trees(a, b, NULL);
        size_t split = 0, fused = 0;
        for (size_t i = 0; i < alignment->count; i++) {
            const struct align_group *group = &alignment->groups[i];
            size_t from = back ? group->count_b : group->count_a,
                   to = back ? group->count_a : group->count_b;
            split += from == 1 && to == 2;
            fused += from == 2 && to == 1;
        }
        CHECK_INT(alignment->count, 48);
        CHECK_INT(split, 12);
        CHECK_INT(fused, 12);
        alignment_free(alignment);
    }
    cost_tree_free(a);
    cost_tree_free(b);
}

TEST(random_changes)
{
    double right = 0, total = 0;
    for (uint32_t seed = 1; seed <= 10; seed++) {
        random_state = seed * 7919;
        size_t count = transformer(kernels_a, 50, seed % 2), kept = 0;
        for (size_t i = 0; i < count; i++) {
            uint32_t what = random_next(100);
            if (what < 3)
                continue;
            if (what < 6)
                kernels_b[kept++] = (struct kernel){.grid = random_next(50) + 1,
                        .ns = 2000,
                        .truth = -2,
                        .place = kernels_a[i].place,
                        .name = "extra_kernel"};
            kernels_b[kept] = kernels_a[i];
            kernels_b[kept].ns = kernels_a[i].ns * (90 + random_next(20)) / 100;
            if (what >= 90)
                snprintf(kernels_b[kept].name, sizeof kernels_b[kept].name, "renamed_%u",
                        random_next(4));
            kept++;
        }
        struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                         *b = step(kernels_b, kept, truth_b, seed);
        struct alignment *alignment = align_trees(a, b, NULL);
        struct score score = judge(alignment, a, b, truth_a, truth_b);
        right += score.right;
        total += score.total;
        CHECK(score.right >= 0.85 * score.total);
        alignment_free(alignment);
        cost_tree_free(a);
        cost_tree_free(b);
    }
    printf("# %.4f right\n", right / total);
    CHECK(right >= 0.9 * total);
}

TEST(added_and_removed_stand_alone)
{
    size_t count = transformer(kernels_a, 20, true);
    memcpy(kernels_b, kernels_a, count * sizeof *kernels_a);
    memmove(kernels_b + 61, kernels_b + 60, (count - 60) * sizeof *kernels_b);
    kernels_b[60] = (struct kernel){.name = "fill_kernel",
            .grid = 512,
            .ns = 9000,
            .truth = -1,
            .place = kernels_b[61].place};
    struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                     *b = step(kernels_b, count + 1, truth_b, 0);
    struct alignment *alignment = align_trees(a, b, NULL);
    size_t only = 0;
    for (size_t i = 0; i < alignment->count; i++)
        if (alignment->groups[i].match == ALIGN_ONLY_B) {
            only++;
            CHECK_STR(b->nodes[alignment->groups[i].b[0]].name, "fill_kernel");
            CHECK_STR(b->nodes[alignment->groups[i].place_b].name, "layers.7");
            CHECK_INT(alignment->groups[i].place_a, COST_NONE);
        } else {
            CHECK_INT(alignment->groups[i].match, ALIGN_EXACT);
        }
    CHECK_INT(only, 1);
    alignment_free(alignment);
    cost_tree_free(a);
    cost_tree_free(b);
}

// Without names, too: a tenth of a kernel is how two launches differ.
TEST(what_is_added_beside_a_kernel_that_varies_is_no_part_of_it)
{
    size_t count = transformer(kernels_a, 20, false);
    for (size_t i = 0; i < count; i++) {
        struct kernel *kernel = &kernels_b[i + (i > 60)];
        *kernel = kernels_a[i];
        scramble(kernel);
    }
    kernels_b[60].ns -= kernels_a[60].ns / 10;
    kernels_b[61] =
            (struct kernel){.name = "fill", .grid = 7, .ns = kernels_a[60].ns / 10, .truth = -1};
    struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                     *b = step(kernels_b, count + 1, truth_b, 0);
    struct alignment *alignment = align_trees(a, b, NULL);
    struct score score = judge(alignment, a, b, truth_a, truth_b);
    CHECK_INT(score.one_one, count);
    CHECK_INT(score.only, 1);
    CHECK_INT(score.groups, 0);
    alignment_free(alignment);
    cost_tree_free(a);
    cost_tree_free(b);
}

TEST(a_replaced_kernel_is_one_to_one)
{
    size_t count = transformer(kernels_a, 10, false);
    memcpy(kernels_b, kernels_a, count * sizeof *kernels_a);
    snprintf(kernels_b[20].name, sizeof kernels_b[20].name, "nvjet_hsh_128x256"); // same shape
    snprintf(kernels_b[50].name, sizeof kernels_b[50].name, "flash_fwd");         // another
    kernels_b[50].grid = 4711;
    struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                     *b = step(kernels_b, count, truth_b, 0);
    struct alignment *alignment = align_trees(a, b, NULL);
    struct score score = judge(alignment, a, b, truth_a, truth_b);
    CHECK_DBL(score.right, score.total, 0);
    size_t matches[ALIGN_MATCH_COUNT] = {0};
    for (size_t i = 0; i < alignment->count; i++)
        matches[alignment->groups[i].match]++;
    CHECK_INT(matches[ALIGN_RESOURCES], 1);
    CHECK_INT(matches[ALIGN_SIMILAR], 1);
    CHECK_INT(matches[ALIGN_EXACT], 88);
    alignment_free(alignment);
    cost_tree_free(a);
    cost_tree_free(b);
}

TEST(empty_and_one_sided)
{
    struct cost_tree *empty = cost_tree_new(), *one = cost_tree_new();
    cost_tree_finish(empty);
    leaf(one, 0, COST_KERNEL, "", 5);
    leaf(one, 0, COST_FUNCTION, "f", -5);
    leaf(one, leaf(one, 0, COST_GRAPH, "graph", 7), COST_KERNEL, "inside", 1); // below a leaf
    // a place with time of its own
    cost_tree_add(one, place(one, 0, COST_PHASE, "p", NULL), 0, 9, 9, 1);
    cost_tree_finish(one);
    struct alignment *alignment = align_trees(empty, empty, NULL);
    CHECK_INT(alignment->count, 0);
    CHECK(isnan(alignment->coverage));
    alignment_free(alignment);
    alignment = align_trees(empty, one, NULL);
    CHECK_INT(alignment->count, 5);
    CHECK_DBL(alignment->coverage, 0, 0);
    alignment_free(alignment);
    alignment = align_trees(one, empty, NULL);
    CHECK_INT(alignment->count, 5);
    alignment_free(alignment);
    alignment = align_trees(one, one, NULL);
    CHECK_DBL(alignment->coverage, 1, 1e-12);
    alignment_free(alignment);
    cost_tree_free(empty);
    cost_tree_free(one);
}

static double align_seconds(size_t count, bool scrambled, double *ret_right)
{
    size_t kept = 0;
    count = transformer(kernels_a, (count + 8) / 9, false);
    for (size_t i = 0; i < count; i++) {
        if (i % 100 == 50)
            continue;
        if (i % 100 == 20)
            kernels_b[kept++] =
                    (struct kernel){.name = "extra", .grid = 5, .ns = 3000, .truth = -1};
        kernels_b[kept] = kernels_a[i];
        if (scrambled)
            scramble(&kernels_b[kept]);
        kept++;
    }
    struct cost_tree *a = step(kernels_a, count, truth_a, 0),
                     *b = step(kernels_b, kept, truth_b, 0);
    clock_t begin = clock();
    struct alignment *alignment = align_trees(a, b, NULL);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    struct score score = judge(alignment, a, b, truth_a, truth_b);
    *ret_right = score.right / score.total;
    printf("# %zu leaves a side%s: %.0f ms, %.4f right\n", count, scrambled ? ", scrambled" : "",
            seconds * 1e3, *ret_right);
    alignment_free(alignment);
    cost_tree_free(a);
    cost_tree_free(b);
    return seconds;
}

// What it takes is printed, not judged (17 ms and 0.6 s on an idle core, 0.74 s with scrambled
// names): work without a bound would take hours.
TEST(five_thousand_leaves)
{
    double right;
    align_seconds(5000, false, &right);
    CHECK(right > 0.98);
    align_seconds(5000, true, &right);
    CHECK(right > 0.9);
}

TEST(two_hundred_thousand_leaves)
{
    double right;
    align_seconds(KERNELS_MAX - 100, false, &right);
    CHECK(right > 0.9);
}

TEST(deep_places_that_never_match)
{
    struct cost_tree *trees[2];
    for (int s = 0; s < 2; s++) {
        struct cost_tree *tree = trees[s] = cost_tree_new();
        uint32_t at = 0;
        for (int i = 0; i < 20000; i++) {
            char name[32];
            snprintf(name, sizeof name, "%c%d", s ? 'x' : 'y', i);
            at = place(tree, at, COST_PYTHON, name, NULL);
            leaf(tree, at, COST_FUNCTION, name, 10);
        }
        cost_tree_finish(tree);
    }
    clock_t begin = clock();
    struct alignment *alignment = align_trees(trees[0], trees[1], NULL);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    printf("# %.0f ms\n", seconds * 1e3);
    CHECK(alignment->count > 0);
    alignment_free(alignment);
    cost_tree_free(trees[0]);
    cost_tree_free(trees[1]);
}
