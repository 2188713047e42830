// SPDX-License-Identifier: Apache-2.0
// How far one clock is ahead of another, from collectives that were made up: the truth is known,
// and must lie within what the fit says of itself.
#include "harness/rank/clock_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

enum { COLLECTIVES = 4000, US = 1000, MS = 1000000 };
#define SECOND INT64_C(1000000000)
#define BEGIN (INT64_C(7200) * SECOND) // of the first clock

struct world {
    int64_t offset_ns, length_ns; // of the second clock at the begin; of the run
    double drift, wave_ns;        // it swings by so much, once in the run
    int64_t there_ns, back_ns;    // from the first node to the second; the other way
    int64_t jitter_ns, late_ns;   // of who comes, both ways; of the second one, always
    unsigned seed;
};

static double world_random(struct world *world) // 0 to 1
{
    world->seed = world->seed * 1103515245 + 12345;
    return (double)(world->seed >> 16 & 0x7fff) / 0x8000;
}

// The second clock's time at a time of the first one.
static int64_t world_second(const struct world *world, int64_t at_ns)
{
    double since = (double)(at_ns - BEGIN);
    return at_ns + world->offset_ns +
            llround(world->drift * since +
                    world->wave_ns * sin(2 * M_PI * since / (double)world->length_ns));
}

static struct clock_bounds *world_bounds(struct world *world, size_t count)
{
    struct clock_bounds *bounds = xcalloc(count, sizeof *bounds);
    for (size_t i = 0; i < count; i++) {
        int64_t at = BEGIN + (int64_t)((double)world->length_ns * (double)i / (double)count);
        int64_t first = at + (int64_t)(world_random(world) * (double)world->jitter_ns);
        int64_t second =
                at + world->late_ns + (int64_t)(world_random(world) * (double)world->jitter_ns);
        int64_t first_out = second + world->back_ns > first ? second + world->back_ns : first;
        int64_t second_out = first + world->there_ns > second ? first + world->there_ns : second;
        first_out += (int64_t)(world_random(world) * 30 * US);
        second_out += (int64_t)(world_random(world) * 30 * US);
        bounds[i] = (struct clock_bounds){.low_at_ns = first_out,
                .low_ns = world_second(world, second) - first_out,
                .high_at_ns = first,
                .high_ns = world_second(world, second_out) - first};
    }
    return bounds;
}

// How far the fit is from the truth at most.
static int64_t world_apart(const struct world *world, const struct clock_fit *fit)
{
    int64_t most = 0;
    for (int i = 0; i <= 100; i++) {
        int64_t at = BEGIN + world->length_ns / 100 * i,
                apart = llabs(clock_map_apply(&fit->map, at) - world_second(world, at));
        most = apart > most ? apart : most;
    }
    return most;
}

static enum clock_fit_state world_fit(
        struct world *world, struct clock_bounds *bounds, size_t count, struct clock_fit *ret)
{
    enum clock_fit_state state = clock_fit(bounds, count, BEGIN, BEGIN + world->length_ns, ret);
    free(bounds);
    return state;
}

static struct world world_usual(void)
{
    return (struct world){.offset_ns = 100 * MS,
            .length_ns = 10 * SECOND,
            .there_ns = 20 * US,
            .back_ns = 20 * US,
            .jitter_ns = 200 * US,
            .seed = 7};
}

TEST(an_offset_is_found)
{
    static const int64_t offsets[] = {
            100 * MS, -100 * MS, 0, 40 * 86400 * SECOND, -BEGIN + 1000 * SECOND};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        struct world world = world_usual();
        struct clock_fit fit;
        world.offset_ns = offsets[i];
        CHECK_INT(world_fit(&world, world_bounds(&world, COLLECTIVES), COLLECTIVES, &fit),
                CLOCK_FIT_DONE);
        CHECK(world_apart(&world, &fit) <= clock_fit_error_ns(&fit));
        CHECK(clock_fit_error_ns(&fit) < 40 * US);
    }
}

TEST(a_drift_is_no_error)
{
    static const double drifts[] = {50e-6, -50e-6, 100e-6};
    for (size_t i = 0; i < sizeof drifts / sizeof *drifts; i++)
        for (int64_t length = 10; length <= 3600; length *= 60) {
            struct world world = world_usual();
            struct clock_fit fit;
            world.drift = drifts[i];
            world.length_ns = length * SECOND;
            CHECK_INT(world_fit(&world, world_bounds(&world, COLLECTIVES), COLLECTIVES, &fit),
                    CLOCK_FIT_DONE);
            CHECK(world_apart(&world, &fit) <= clock_fit_error_ns(&fit));
            CHECK(clock_fit_error_ns(&fit) < 40 * US);
            CHECK_DBL(fit.map.drift, drifts[i], 10e-6);
        }
}

// The middle is off by half of what the ways differ, which the error holds.
TEST(ways_of_different_lengths)
{
    for (int back = 0; back < 2; back++) {
        struct world world = world_usual();
        struct clock_fit fit;
        *(back ? &world.back_ns : &world.there_ns) = 180 * US;
        world.drift = 50e-6;
        CHECK_INT(world_fit(&world, world_bounds(&world, COLLECTIVES), COLLECTIVES, &fit),
                CLOCK_FIT_DONE);
        int64_t apart = world_apart(&world, &fit);
        CHECK(apart <= clock_fit_error_ns(&fit));
        CHECK(apart > 50 * US);
        CHECK(clock_fit_error_ns(&fit) < 130 * US);
    }
}

// Whatever is wrong of it, wherever it stands, the others say the same as without it.
TEST(one_wrong_record_moves_nothing)
{
    static const int64_t wrong[] = {300 * US, -300 * US, 20 * MS, -20 * MS, 1000 * SECOND,
            -1000 * SECOND, INT64_C(1) << 59};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t at = 0; at < COLLECTIVES; at += COLLECTIVES / 8 - 1)
            for (int what = 0; what < 3; what++) {
                struct world world = world_usual();
                struct clock_fit fit;
                world.drift = 50e-6;
                struct clock_bounds *bounds = world_bounds(&world, COLLECTIVES);
                // of both nodes, or of one bound only
                bounds[at].low_ns += what != 1 ? wrong[i] : 0;
                bounds[at].high_ns += what != 2 ? wrong[i] : 0;
                bounds[at].high_at_ns -= what == 1 ? wrong[i] : 0;
                CHECK_INT(world_fit(&world, bounds, COLLECTIVES, &fit), CLOCK_FIT_DONE);
                CHECK(world_apart(&world, &fit) <= clock_fit_error_ns(&fit));
                CHECK(clock_fit_error_ns(&fit) < 40 * US);
            }
}

TEST(one_of_few_that_is_wrong)
{
    for (size_t at = 0; at < 2 * CLOCK_FIT_MIN; at++) {
        struct world world = world_usual();
        struct clock_fit fit;
        struct clock_bounds *bounds = world_bounds(&world, 2 * CLOCK_FIT_MIN);
        bounds[at].low_ns += 50 * MS;
        bounds[at].high_ns += 50 * MS;
        CHECK_INT(world_fit(&world, bounds, 2 * CLOCK_FIT_MIN, &fit), CLOCK_FIT_DONE);
        CHECK(world_apart(&world, &fit) <= clock_fit_error_ns(&fit));
    }
}

TEST(what_contradicts_itself_tells_nothing)
{
    struct world world = world_usual();
    struct clock_fit fit = {.begin_ns = 7};
    struct clock_bounds *bounds = world_bounds(&world, COLLECTIVES);
    for (size_t i = 0; i < COLLECTIVES; i++) {
        int64_t wrong = i % 2 ? 30 * MS : 0;
        bounds[i].low_ns += wrong;
        bounds[i].high_ns += wrong;
    }
    CHECK_INT(world_fit(&world, bounds, COLLECTIVES, &fit), CLOCK_FIT_CONTRADICT);
    CHECK_INT(fit.begin_ns, 7);
    bounds = world_bounds(&world, CLOCK_FIT_MIN - 1);
    CHECK_INT(world_fit(&world, bounds, CLOCK_FIT_MIN - 1, &fit), CLOCK_FIT_FEW);
    CHECK_INT(clock_fit(NULL, 0, 0, 1, &fit), CLOCK_FIT_FEW);
}

// Of a file that somebody made up: numbers as large as a store may hold.
TEST(times_beyond_all_sense)
{
    static const int64_t most = (INT64_C(1) << 61) - 1;
    for (unsigned which = 0; which < 16; which++) {
        struct clock_bounds bounds[2 * CLOCK_FIT_MIN];
        struct clock_fit fit;
        for (size_t i = 0; i < 2 * CLOCK_FIT_MIN; i++) {
            bool odd = which & 8 && i % 2;
            int64_t enter[2] = {(which & 1) != odd ? most : 1, (which & 2) != odd ? most : 1},
                    leave[2] = {which & 4 ? most : enter[0], which & 4 ? most : enter[1]};
            bounds[i] = (struct clock_bounds){
                    leave[0], enter[1] - leave[0], enter[0], leave[1] - enter[0]};
        }
        enum clock_fit_state state =
                clock_fit(bounds, 2 * CLOCK_FIT_MIN, 1, which & 1 ? most : 100 * MS, &fit);
        if (state == CLOCK_FIT_DONE) // of times that are all the same
            CHECK(clock_fit_error_ns(&fit) < 3600 * SECOND &&
                    llabs(fit.map.shift_ns) < INT64_C(1) << 58);
    }
}

// Then nobody can tell whether it is late or its clock is ahead: what is left is as wide as it is
// late.
TEST(who_is_always_late_hides_his_clock)
{
    struct world world = world_usual();
    struct clock_fit fit;
    world.late_ns = MS;
    CHECK_INT(world_fit(&world, world_bounds(&world, COLLECTIVES), COLLECTIVES, &fit),
            CLOCK_FIT_DONE);
    CHECK(world_apart(&world, &fit) <= clock_fit_error_ns(&fit));
    CHECK(2 * clock_fit_error_ns(&fit) > world.late_ns - world.jitter_ns);
}

// No line is between all bounds. The error is that of the pieces, and not too small.
TEST(a_clock_that_runs_unevenly)
{
    struct world world = world_usual();
    struct clock_fit fit;
    world.length_ns = 600 * SECOND;
    world.wave_ns = 500 * US;
    CHECK_INT(world_fit(&world, world_bounds(&world, COLLECTIVES), COLLECTIVES, &fit),
            CLOCK_FIT_DONE);
    int64_t apart = world_apart(&world, &fit);
    CHECK(apart <= clock_fit_error_ns(&fit));
    CHECK(apart > 100 * US);
    CHECK(clock_fit_error_ns(&fit) < MS);
}

// Collectives in the last tenth only: what they say of the begin is less.
TEST(the_error_holds_where_there_were_no_collectives)
{
    struct world world = world_usual(), last = world;
    struct clock_fit fit;
    last.drift = world.drift = 50e-6;
    last.length_ns = 100 * SECOND;
    struct clock_bounds *bounds = world_bounds(&last, COLLECTIVES);
    size_t count = COLLECTIVES / 10;
    memmove(bounds, bounds + COLLECTIVES - count, count * sizeof *bounds);
    CHECK_INT(world_fit(&last, bounds, count, &fit), CLOCK_FIT_DONE);
    CHECK(world_apart(&last, &fit) <= clock_fit_error_ns(&fit));
    CHECK(fit.half_ns[0] > 3 * fit.half_ns[1]);
}

TEST(what_others_know_is_taken_in)
{
    struct world world = world_usual();
    struct clock_fit fit, before;
    CHECK_INT(world_fit(&world, world_bounds(&world, COLLECTIVES), COLLECTIVES, &fit),
            CLOCK_FIT_DONE);
    before = fit;
    CHECK(clock_fit_clip(&fit, world.offset_ns + MS, 2 * MS)); // known worse
    CHECK_DBL((double)clock_fit_error_ns(&fit), (double)clock_fit_error_ns(&before), 2);
    CHECK(!clock_fit_clip(&fit, world.offset_ns + MS, MS / 2));
    CHECK(world_apart(&world, &fit) <= clock_fit_error_ns(&fit));
    CHECK(clock_fit_distance_ns(&fit, world.offset_ns + MS) > MS);
    CHECK(clock_fit_distance_ns(&fit, world.offset_ns + MS) < MS + 100 * US);
    CHECK(clock_fit_clip(&fit, world.offset_ns, 5 * US)); // and better
    CHECK(clock_fit_error_ns(&fit) <= 5 * US);
    CHECK(world_apart(&world, &fit) <= 5 * US);
}

TEST(maps_there_and_back)
{
    const struct clock_map map = {.shift_ns = -5 * SECOND, .from_ns = BEGIN, .drift = 80e-6},
                           other = {.shift_ns = 70 * SECOND, .from_ns = 9, .drift = -30e-6};
    const struct clock_map back = clock_map_inverse(&map), both = clock_map_compose(&map, &other);
    for (int64_t at = 0; at < 20000 * SECOND; at += 777 * SECOND) {
        int64_t there = clock_map_apply(&map, at);
        CHECK(llabs(clock_map_apply(&back, there) - at) <= 2);
        CHECK(llabs(clock_map_apply(&both, at) - clock_map_apply(&other, there)) <= 2);
    }
}
