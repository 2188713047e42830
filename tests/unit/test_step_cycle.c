// SPDX-License-Identifier: Apache-2.0
// What repeats: rounds of one optimizer, of several, of those that come once or now and then. Each
// word of a case is the name of who has ended; the answer has a '.' where a round is over.
#include "contracts/step_cycle.h"

#include <string.h>

#include "tests/unit/runner.h"

static int names[128];

// Rounds in a text of one-letter names; *ret_last: whether the last one ended a round.
static unsigned rounds_of(struct cycle *cycle, const char *text, bool *ret_last)
{
    unsigned rounds = 0;
    for (; *text; text++) {
        *ret_last = cycle_ended(cycle, &names[(int)*text]);
        rounds += *ret_last;
    }
    return rounds;
}

static unsigned rounds(const char *text)
{
    struct cycle cycle = {0};
    bool last;
    return rounds_of(&cycle, text, &last);
}

TEST(one)
{
    CHECK_INT(rounds("aaaaa"), 5);
}

TEST(two_in_turn)
{
    CHECK_INT(rounds("dgdgdgdgdg"), 5); // d | gd | gd | gd | gd | g
}

TEST(one_comes_five_times_as_often)
{
    struct cycle cycle = {0};
    bool last = false;
    rounds_of(&cycle, "dddddgdddddgdddddg", &last);
    CHECK_INT(rounds_of(&cycle, "dddddg", &last), 1);
    CHECK(last);
    CHECK_INT(rounds_of(&cycle, "dddddgdddddg", &last), 2);
}

TEST(one_that_comes_once)
{
    CHECK_INT(rounds("iaaaaa"), 5); // i | aa | a | a | a: the first that was run, to make it ready
}

TEST(one_that_comes_rarely)
{
    struct cycle cycle = {0};
    bool last = false;
    rounds_of(&cycle, "aaae", &last);
    // with the first, and when e has been missed
    CHECK_INT(rounds_of(&cycle, "aaaaaaaaa", &last), 2);
    CHECK_INT(rounds_of(&cycle, "aaaaaaaaaaaaaaaaaa", &last), 18);
    CHECK_INT(rounds_of(&cycle, "eeaeea", &last), 2); // evaluation, once all is settled
}

TEST(a_second_training)
{
    struct cycle cycle = {0};
    bool last = false;
    CHECK_INT(rounds_of(&cycle, "aaaaaaaaaaaaaaaaaaaa", &last), 20);
    CHECK_INT(rounds_of(&cycle, "bbbbbbbbbbbbbbbbbbbb", &last), 20 - CYCLE_STRANGERS_MAX + 1);
}

TEST(a_second_training_before_the_first_has_settled)
{
    struct cycle cycle = {0};
    bool last = false;
    CHECK_INT(rounds_of(&cycle, "aaaaaaaaaaaa", &last), 12);
    CHECK_INT(rounds_of(&cycle, "bbbbbbbbbbbbbbbbbbbb", &last), 20 - CYCLE_WAIT_MAX + 1);
}

TEST(more_than_there_is_room_for)
{
    // a | bc…: the round is still open, until a comes again.
    CHECK_INT(rounds("abcdefghijkl"), 1 + 0);
    CHECK_INT(rounds("abcdefghijklabcdefghijklabcdefghijkl"), 3);
    char all[CYCLE_KEYS_MAX + 5], text[3 * sizeof all] = "";
    for (size_t i = 0; i < sizeof all - 1; i++)
        all[i] = (char)('!' + i);
    all[sizeof all - 1] = '\0';
    for (int i = 0; i < 3; i++)
        strcat(text, all);
    CHECK_INT(rounds(text), 3); // the last four have no part in it
}
