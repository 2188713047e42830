// SPDX-License-Identifier: Apache-2.0
// The cost tree: children by their whole key, rows by node and window, sums, speed.
#include "reports/analyse/diff/path/cost_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/unit/runner.h"

static uint32_t child(
        struct cost_tree *tree, uint32_t parent, enum cost_kind kind, const char *name)
{
    return cost_tree_child(tree, parent, &(struct cost_key){.kind = kind, .name = name});
}

TEST(children_are_found_again)
{
    struct cost_tree *tree = cost_tree_new();
    CHECK_INT(tree->node_count, 1);
    CHECK_INT(tree->nodes[0].kind, COST_ROOT);
    CHECK_STR(tree->nodes[0].name, "");
    CHECK_INT(tree->nodes[0].parent, COST_NONE);
    uint32_t step = child(tree, 0, COST_PHASE, "step");
    struct cost_key key = {.kind = COST_KERNEL, .name = "gemm", .module = "m"};
    uint32_t gemm = cost_tree_child(tree, step, &key);
    char other[] = "gemm"; // another pointer, the same text
    key.name = other;
    CHECK_INT(cost_tree_child(tree, step, &key), gemm);
    key.occurrence = 1;
    CHECK(cost_tree_child(tree, step, &key) != gemm);
    key.occurrence = 0;
    key.module = NULL;
    uint32_t bare = cost_tree_child(tree, step, &key);
    CHECK(bare != gemm && !tree->nodes[bare].module);
    struct cost_shape shape = {.grid = {1, 2, 3}};
    key.shape = &shape;
    uint32_t shaped = cost_tree_child(tree, step, &key);
    CHECK(shaped != bare);
    shape = (struct cost_shape){0};
    CHECK_INT(cost_tree_child(tree, step, &key), bare); // none and all zero are the same
    key.class = COST_COPY;
    CHECK(cost_tree_child(tree, step, &key) != bare);
    CHECK(tree->nodes[gemm].name == cost_tree_text(tree, "gemm"));
    CHECK(!cost_tree_text(tree, NULL));
    CHECK_INT(tree->nodes[gemm].depth, 2);
    CHECK_INT(tree->nodes[step].first_child, gemm);
    cost_tree_free(tree);
    cost_tree_free(NULL);
}

TEST(functions_elsewhere_stand_once)
{
    struct cost_tree *tree = cost_tree_new();
    char name[] = "load"; // another pointer, the same text
    cost_tree_elsewhere(tree, COST_PYTHON, "load", "loop.py", 3);
    cost_tree_elsewhere(tree, COST_PYTHON, "load", NULL, 5);
    cost_tree_elsewhere(tree, COST_PYTHON, name, "loop.py", 4);
    cost_tree_elsewhere(tree, COST_FUNCTION, "load", "loop.py", 1);
    CHECK_INT(tree->elsewhere_count, 3);
    CHECK_INT(tree->elsewhere[0].ticks, 7);
    CHECK_INT(tree->elsewhere[1].ticks, 5);
    CHECK(!tree->elsewhere[1].module);
    cost_tree_free(tree);
}

TEST(rows_are_sorted_and_merged)
{
    struct cost_tree *tree = cost_tree_new();
    uint32_t a = child(tree, 0, COST_FUNCTION, "a"), b = child(tree, 0, COST_FUNCTION, "b");
    uint32_t empty = child(tree, 0, COST_FUNCTION, "empty");
    for (uint32_t i = 0; i < 3; i++)
        cost_tree_window(tree, &(struct cost_window){.pair = i, .wall_ns = 100});
    cost_tree_add(tree, b, 2, 5, 6, 1);
    cost_tree_add(tree, b, 2, 5, 6, 1); // the newest grows
    CHECK_INT(tree->row_count, 1);
    cost_tree_add(tree, a, 1, 1, 1, 1);
    cost_tree_add(tree, b, 0, 7, 7, 1);
    cost_tree_add(tree, b, 2, 1, 1, 1);
    const uint32_t *first = cost_tree_finish(tree);
    CHECK_INT(tree->row_count, 3);
    CHECK_INT(first[a], 0);
    CHECK_INT(first[b], 1);
    CHECK_INT(first[empty], 3);
    CHECK_INT(first[empty + 1], 3);
    CHECK_INT(tree->rows[1].window, 0);
    CHECK_INT(tree->rows[2].ns, 11);
    CHECK_INT(tree->rows[2].busy_ns, 13);
    CHECK_INT(tree->rows[2].count, 3);
    CHECK_INT(tree->nodes[b].ns, 18);
    CHECK_INT(cost_tree_below_ns(tree, 0), 19);
    CHECK(cost_tree_finish(tree) == first); // once is enough
    cost_tree_free(tree);
}

TEST(sums_do_not_wrap)
{
    struct cost_tree *tree = cost_tree_new();
    uint32_t a = child(tree, 0, COST_FUNCTION, "a"), b = child(tree, a, COST_FUNCTION, "b");
    cost_tree_add(tree, a, 0, INT64_MAX, INT64_MIN, 1);
    cost_tree_add(tree, a, 0, INT64_MAX, INT64_MIN, 1);
    cost_tree_add(tree, b, 0, INT64_MAX, 0, 1);
    cost_tree_finish(tree);
    CHECK(tree->nodes[a].ns == INT64_MAX && tree->nodes[a].busy_ns == INT64_MIN);
    CHECK(cost_tree_below_ns(tree, 0) == INT64_MAX);
    cost_tree_free(tree);
}

TEST(order_is_the_mean_place)
{
    struct cost_tree *tree = cost_tree_new();
    uint32_t a = child(tree, 0, COST_KERNEL, "a");
    CHECK_DBL(tree->nodes[a].order, 0, 0);
    cost_tree_place(tree, a, 3);
    cost_tree_place(tree, a, 4);
    CHECK_DBL(tree->nodes[a].order, 3.5, 0);
    cost_tree_free(tree);
}

TEST(an_empty_tree_is_whole)
{
    struct cost_tree *tree = cost_tree_new();
    const uint32_t *first = cost_tree_finish(tree);
    CHECK_INT(first[0], 0);
    CHECK_INT(first[1], 0);
    CHECK_INT(cost_tree_below_ns(tree, 0), 0);
    CHECK_STR(cost_class_word(COST_COMM_EXPOSED), "comm_exposed");
    for (int i = 0; i < COST_CLASS_COUNT; i++)
        CHECK(cost_class_word(i));
    cost_tree_free(tree);
}

TEST(deep_and_wide)
{
    struct cost_tree *tree = cost_tree_new();
    uint32_t at = 0;
    for (int i = 0; i < 100000; i++)
        at = child(tree, at, COST_PYTHON, "f");
    CHECK_INT(tree->nodes[at].depth, UINT16_MAX);
    cost_tree_add(tree, at, 0, 1, 1, 1);
    cost_tree_finish(tree);
    CHECK_INT(cost_tree_below_ns(tree, 0), 1);
    char *long_name = malloc(65537);
    memset(long_name, 'x', 65536);
    long_name[65536] = '\0';
    uint32_t huge = child(tree, 0, COST_KERNEL, long_name);
    CHECK_INT(child(tree, 0, COST_KERNEL, long_name), huge);
    free(long_name);
    cost_tree_free(tree);
}

// 500 kernels of 100 bytes, 2 million look-ups and additions: a second and a half even with
// sanitizers on a busy machine.
TEST(two_million_look_ups)
{
    struct cost_tree *tree = cost_tree_new();
    static char names[500][120];
    for (int i = 0; i < 500; i++)
        snprintf(names[i], sizeof names[i],
                "void at::native::vectorized_elementwise_kernel<4, at::native::Functor_%d<float>, "
                "std::array<char*, 1ul> >(int)",
                i);
    clock_t begin = clock();
    for (uint32_t i = 0; i < 2000000; i++) {
        struct cost_shape shape = {.grid = {i % 500, 1, 1}, .block = {128, 1, 1}};
        uint32_t node = cost_tree_child(tree, 0,
                &(struct cost_key){.kind = COST_KERNEL, .name = names[i % 500], .shape = &shape});
        cost_tree_add(tree, node, i / 50000, 10, 10, 1);
    }
    cost_tree_finish(tree);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    printf("# %.0f ns a look-up\n", seconds / 2e6 * 1e9);
    CHECK_INT(tree->node_count, 501);
    CHECK_INT(tree->row_count, 500 * 40);
    CHECK(seconds < 4);
    cost_tree_free(tree);
}
