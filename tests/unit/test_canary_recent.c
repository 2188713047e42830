// SPDX-License-Identifier: Apache-2.0
// The tripwire's ten seconds.
#include "reports/analyse/canary/recent.h"

#include <math.h>

#include "tests/unit/runner.h"

static struct canary_recent recent;
static struct canary_recent_look total;

static void look(double after_s, uint64_t requests, uint64_t errors)
{
    total.at_ns += (int64_t)(after_s * 1e9);
    total.requests += requests;
    total.errors += errors;
    canary_recent_add(&recent, &total);
}

static void anew(void)
{
    recent = (struct canary_recent){0};
    look(1, 0, 0);
}

TEST(ten_seconds)
{
    CHECK(isnan(canary_recent_errors(&recent, NAN)));
    anew();
    CHECK(isnan(canary_recent_errors(&recent, NAN)));
    look(1, 2, 2);
    look(1, 2, 2);
    CHECK(isnan(canary_recent_errors(&recent, NAN))); // 4 requests
    for (int i = 0; i < 8; i++)
        look(1, 2, 2);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 12 / 20.0, 1e-12);
    for (int i = 0; i < 10; i++)
        look(1, 200, 0);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 0, 0); // forgotten
}

TEST(bursts_are_no_crash)
{
    anew();
    look(5, 10, 8);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 0, 0); // two bursts of four among ten requests
    anew();
    look(5, 12, 12);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 4 / 12.0, 1e-12); // all of twelve
    anew();
    for (int i = 0; i < 100000; i++) { // a request a second, one of eleven fails
        look(1, 1, i % 11 == 0);
        CHECK(!(canary_recent_errors(&recent, NAN) > 0.2));
    }
}

// What ten good seconds before it would hide for two: a hundred requests are enough.
TEST(a_crash_is_seen_within_half_a_second)
{
    int looks = 0;
    anew();
    for (int i = 0; i < 200; i++)
        look(0.1, 25, 0);
    while (!(canary_recent_errors(&recent, NAN) > 0.2) && ++looks < 100)
        look(0.1, 25, 25);
    CHECK(looks <= 4);
}

TEST(what_was_lost)
{
    anew();
    look(1, 50, 0);
    CHECK(isnan(canary_recent_errors_lost(&recent, NAN)));
    total.lost += 60;
    look(1, 0, 0);
    CHECK_DBL(canary_recent_errors_lost(&recent, NAN), 52 / 110.0, 1e-12);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 0, 0);
    look(12, 50, 0);
    CHECK(isnan(canary_recent_errors_lost(&recent, NAN))); // of another time
    total.lost = 0;                                        // counted anew
    look(1, 50, 0);
    CHECK(isnan(canary_recent_errors_lost(&recent, NAN)));
}

// A server that hangs, whose clients wait for less long than the proxy.
TEST(what_clients_gave_up)
{
    anew();
    total.given_up += 30;
    look(5, 100, 0);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 0, 0);  // of typing ahead it may be so always
    CHECK_DBL(canary_recent_errors(&recent, 0.15), 0, 0); // twice the usual
    CHECK_DBL(canary_recent_errors(&recent, 0.02), (30 - 4 - 8) / 100.0, 1e-12);
    CHECK_DBL(canary_recent_errors(&recent, 0), (30 - 8) / 100.0, 1e-12);
}

// What hits both is no fault of the candidate; what hits the candidate at another moment, or
// harder, is.
TEST(an_outage_of_both)
{
    anew();
    total.baseline.requests += 900;
    total.baseline.errors += 450;
    look(5, 100, 50);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 0, 0);
    CHECK_DBL(canary_recent_errors_alone(&recent, NAN), 42 / 100.0, 1e-12);
    total.baseline.requests += 900; // it is over for the baseline
    look(0.5, 100, 100);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 92 / 100.0, 1e-12);
    anew();
    total.baseline.requests += 900;
    total.baseline.errors += 100; // far less
    look(5, 100, 50);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 42 / 100.0, 1e-12);
    anew();
    total.baseline.requests += 9; // too few to tell
    total.baseline.errors += 9;
    look(5, 100, 50);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 42 / 100.0, 1e-12);
    anew();
    total.baseline.requests += 10;
    total.baseline.errors += 1; // 10 %, and no outage
    look(5, 100, 26);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 18 / 100.0, 1e-12);
    anew();
    total.baseline.requests += 10; // few, and nearly all of them fail
    total.baseline.errors += 9;
    look(5, 100, 50);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 0, 0);
    anew();
    total.given_up += 50; // both hang
    total.baseline.requests += 900;
    total.baseline.given_up += 450;
    look(5, 100, 0);
    CHECK_DBL(canary_recent_errors(&recent, 0.01), 0, 0);
    anew();
    total.refused += 20;
    total.baseline.requests += 900;
    total.baseline.refused += 180;
    look(5, 100, 20);
    CHECK_INT(canary_recent_refused(&recent), 0);
    CHECK_INT(canary_recent_refused_alone(&recent), 20);
    total.refused += 40;
    total.baseline.requests += 900;
    look(1, 100, 40);
    CHECK_INT(canary_recent_refused(&recent), 60);
    total.lost += 60; // a pass is withheld as ever
    total.baseline.requests += 900;
    total.baseline.errors += 900;
    look(1, 0, 0);
    CHECK(canary_recent_errors_lost(&recent, NAN) > 0.2);
}

TEST(counted_anew_and_often)
{
    anew();
    look(1, 1000, 1000);
    total.requests = total.errors = 20;
    look(1, 0, 0); // sources that were opened again
    CHECK(isnan(canary_recent_errors(&recent, NAN)));
    total.refused = 3;
    for (int i = 0; i < 1000; i++) // more looks than there is room for
        look(0.001, 10, 0);
    CHECK(recent.count <= CANARY_RECENT);
    CHECK_DBL(canary_recent_errors(&recent, NAN), 0, 0);
}
