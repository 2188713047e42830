// SPDX-License-Identifier: Apache-2.0
// The text by which a range of NVTX is named: what it means, and what is wrong with it.
#include "contracts/step_range.h"

#include <stdio.h>

#include "tests/unit/runner.h"

static bool is_ours(const char *text, const char *name, const char *domain)
{
    struct step_range range;
    CHECK(step_range_parse(text, &range) == NULL);
    return step_range_matches_name(&range, name) && step_range_matches_domain(&range, domain);
}

TEST(domains)
{
    CHECK(is_ours("step", "step", NULL) && is_ours("step", "step", ""));
    CHECK(!is_ours("step", "steps", NULL) && !is_ours("step", "ste", NULL) &&
            !is_ours("step", "step", "train"));
    CHECK(is_ours("step@train", "step", "train") && !is_ours("step@train", "step", NULL) &&
            !is_ours("step@train", "step@train", NULL));
    CHECK(is_ours("step@*", "step", "train") && is_ours("step@*", "step", NULL));
    CHECK(is_ours("a@b@c", "a@b", "c")); // the last one
}

TEST(rest_of_a_name)
{
    CHECK(is_ours("iteration *", "iteration 17", NULL) &&
            is_ours("iteration *", "iteration ", NULL) &&
            !is_ours("iteration *", "iteration", NULL));
    CHECK(is_ours("it*@train", "iteration", "train") &&
            !is_ours("it*@train", "iteration", "trainer"));
    CHECK(is_ours("a*b", "a*b", NULL) && !is_ours("a*b", "axb", NULL)); // only at the end
}

TEST(escapes)
{
    CHECK(is_ours("a\\@b", "a@b", NULL) && !is_ours("a\\@b", "a", "b"));
    CHECK(is_ours("a\\*", "a*", NULL) && !is_ours("a\\*", "ab", NULL));
    CHECK(is_ours("a\\*@b", "a*", "b") && !is_ours("a\\*@b", "ab", "b"));
    // a backslash, and the rest
    CHECK(is_ours("a\\\\*", "a\\b", NULL) && is_ours("a\\\\*@d", "a\\b", "d"));
    CHECK(is_ours("a\\n", "a\\n", NULL) && is_ours("a\\", "a\\", NULL));
}

TEST(bad_texts)
{
    char longest[UG_RANGE_BYTES + 2];
    struct step_range range;
    const char *const bad[] = {"", "*", "@", "@train", "*@train", "step@"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(step_range_parse(bad[i], &range) != NULL);
    memset(longest, 'a', sizeof longest);
    longest[UG_RANGE_BYTES] = 0;
    CHECK(step_range_parse(longest, &range) != NULL);
    longest[UG_RANGE_BYTES - 1] = 0;
    CHECK(step_range_parse(longest, &range) == NULL && range.name_bytes == UG_RANGE_BYTES - 1);
}
