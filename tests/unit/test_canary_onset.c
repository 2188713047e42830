// SPDX-License-Identifier: Apache-2.0
// E-processes that begin at every second: against the sum written out, by adding up all outcomes,
// and by simulation.
#include "reports/analyse/canary/onset.h"

#include "ci/sim/canary_sim_stream.h"
#include "reports/analyse/quantile.h"
#include "tests/unit/runner.h"

enum { SECONDS = 40 };

// Counts of one second into the onset; returns the factors.
static void second_of(struct canary_onset *onset, double baseline, double candidate, double share,
        double logs[CANARY_BETS])
{
    struct canary_since second = {0};
    canary_counts_add(&second.counts, baseline, candidate, 1000 * (1 - share), 1000 * share, 1);
    canary_counts_add(&second.beyond, baseline, candidate / 2, 1000 * (1 - share), 1000 * share, 1);
    bool grows = canary_counts_bets(&second.counts, logs);
    canary_onset_add(onset, grows ? logs : NULL, &second);
    for (int i = 0; i < CANARY_BETS && !grows; i++)
        logs[i] = 0;
}

TEST(weights_are_one_wealth)
{
    double sum = 0, last = 1;
    for (uint64_t n = 0; n < 100000; n++) {
        double weight = canary_onset_weight(n);
        CHECK(weight > 0 && weight < last);
        last = weight;
        sum += weight;
    }
    CHECK_DBL(sum, 1 - 1 / (1 + log1p(100000 / 10.0)), 1e-9);
    double price = log(canary_onset_weight(300) / canary_onset_weight(3600)); // as the header says
    CHECK_DBL(price, 3.3, 0.1);
    CHECK(canary_onset_weight(30 * 86400) > 1e-10); // after a month there is something left
}

TEST(the_recursion_is_the_sum_over_beginnings)
{
    struct random_state random = {12};
    struct canary_onset onset = {0};
    double logs[SECONDS][CANARY_BETS], events[SECONDS][2], most = -INFINITY, sum = 0;
    int begin = -1;
    for (int i = 0; i < SECONDS; i++) {
        bool late = i >= 25;
        events[i][0] = stream_poisson(&random, 3);
        events[i][1] = stream_poisson(&random, late ? 4 : 1);
        second_of(&onset, events[i][0], events[i][1], 0.25, logs[i]);
    }
    for (int from = 0; from < SECONDS; from++)
        for (int bet = 0; bet < CANARY_BETS; bet++) {
            double term = log(canary_onset_weight((uint64_t)from)) + log(canary_bet_weight[bet]);
            for (int i = from; i < SECONDS; i++)
                term += logs[i][bet];
            sum += exp(term);
            if (term > most) {
                most = term;
                begin = from;
            }
        }
    CHECK_DBL(canary_onset_evidence(&onset), log(sum), 1e-9);
    CHECK(canary_onset_evidence(&onset) >= most);
    struct canary_since since;
    CHECK_INT(canary_onset_likely(&onset, &since), SECONDS - begin);
    CHECK(begin >= 20 && begin <= 30);
    double candidate = 0, all = 0;
    for (int i = begin; i < SECONDS; i++) {
        candidate += events[i][1];
        all += events[i][0] + events[i][1];
    }
    CHECK_DBL(since.counts.candidate, candidate, 1e-9);
    CHECK_DBL(since.counts.all, all, 1e-9);
    CHECK_DBL(since.beyond.candidate, candidate / 2, 1e-9);
}

static double binomial(int k, int n, double p)
{
    return exp(
            lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p));
}

// Four seconds of 4 events, all 625 outcomes: where the rates are equal, what is in the bets and
// what has not begun is worth 1.
TEST(expectation_is_exactly_one)
{
    enum { LONG = 4, EVENTS = 4 };
    for (int better = 0; better < 2; better++) {
        double share = 0.25, p = better ? 0.2 : share, mean = 0, all = 0, weights = 0;
        int outcomes[LONG];
        for (int code = 0; code < (EVENTS + 1) * (EVENTS + 1) * (EVENTS + 1) * (EVENTS + 1);
                code++) {
            struct canary_onset onset = {0};
            double chance = 1, logs[CANARY_BETS];
            for (int i = 0, rest = code; i < LONG; i++, rest /= EVENTS + 1) {
                outcomes[i] = rest % (EVENTS + 1);
                chance *= binomial(outcomes[i], EVENTS, p);
                second_of(&onset, EVENTS - outcomes[i], outcomes[i], share, logs);
            }
            mean += chance * exp(canary_onset_evidence(&onset));
            all += chance;
        }
        double of_bets = 0;
        for (int i = 0; i < CANARY_BETS; i++)
            of_bets += canary_bet_weight[i];
        for (uint64_t i = 0; i < LONG; i++)
            weights += canary_onset_weight(i);
        CHECK_DBL(all, 1, 1e-9);
        CHECK_DBL(of_bets, 1, 1e-5);
        if (better)
            CHECK(mean < weights);
        else
            CHECK_DBL(mean, weights * of_bets, 1e-9);
    }
}

// Differences of means: as likely above 0 as below, whatever their size.
TEST(means_expect_at_most_one)
{
    for (double size = 0.1; size < 100; size *= 1.5) {
        double up[CANARY_BETS], down[CANARY_BETS];
        struct canary_means more = {0}, less = {0};
        canary_means_add(&more, 10, 10 + size, 100, 100);
        canary_means_add(&less, 10, 10 - size, 100, 100);
        canary_means_bets(&more, 4, 1, up);
        canary_means_bets(&less, 4, 1, down);
        for (int i = 0; i < CANARY_BETS; i++)
            CHECK(0.5 * (exp(up[i]) + exp(down[i])) <= 1 + 1e-12);
    }
}

// 2,000 streams of a thousand looks: Ville's bound, at any look.
TEST(equal_arms_at_every_look)
{
    enum { STREAMS = 2000, LOOKS = 1000 };
    int found = 0;
    for (uint64_t stream = 0; stream < STREAMS; stream++) {
        struct random_state random = stream_random(31000 + stream);
        struct canary_onset onset = {0};
        double logs[CANARY_BETS];
        for (int look = 0; look < LOOKS; look++) {
            double rate = look % 200 < 100 ? 0.4 : 4; // of both arms
            second_of(&onset, stream_poisson(&random, 0.75 * rate),
                    stream_poisson(&random, 0.25 * rate), 0.25, logs);
            if (canary_onset_evidence(&onset) < log(100))
                continue;
            found++;
            break;
        }
    }
    CHECK(found <= 34); // 20 expected at most; beyond 34 with probability 0.1 %
}

// Five times the errors from the 300th second on, 1,000 requests/s, errors at 0.1 %, a quarter on
// the candidate.
TEST(delay_and_since_when)
{
    enum { STREAMS = 300, GOOD = 300 };
    double delay[STREAMS], off[STREAMS];
    for (uint64_t stream = 0; stream < STREAMS; stream++) {
        struct random_state random = stream_random(52000 + stream);
        struct canary_onset onset = {0};
        double logs[CANARY_BETS];
        struct canary_since since;
        uint64_t look = 0;
        for (; look < 10000 && (look < GOOD || canary_onset_evidence(&onset) < log(1000)); look++)
            second_of(&onset, stream_poisson(&random, 0.75),
                    stream_poisson(&random, look < GOOD ? 0.25 : 1.25), 0.25, logs);
        uint64_t seconds = canary_onset_likely(&onset, &since);
        delay[stream] = (double)(look - GOOD);
        off[stream] = fabs((double)seconds - delay[stream]);
    }
    quantile_sort(delay, STREAMS);
    quantile_sort(off, STREAMS);
    // 0.63 a second in ln e: 6.9 for alpha, about 6 for when it began, 2 for how much: 24 s.
    CHECK(delay[STREAMS / 2] >= 12 && delay[STREAMS / 2] <= 30);
    CHECK(delay[STREAMS * 9 / 10] <= 55);
    CHECK(off[STREAMS / 2] <= 5);
    CHECK(off[STREAMS * 9 / 10] <= 30);
}

TEST(nothing)
{
    struct canary_onset onset = {0};
    struct canary_since since;
    double logs[CANARY_BETS];
    CHECK(isinf(canary_onset_evidence(&onset)));
    CHECK_INT(canary_onset_likely(&onset, &since), 0);
    CHECK_DBL(since.counts.all, 0, 0);
    for (int i = 0; i < 3000; i++) // all of it on the candidate: large, and a number
        second_of(&onset, 0, 1000, 0.01, logs);
    CHECK(canary_onset_evidence(&onset) > 600);
    CHECK(isfinite(canary_onset_evidence(&onset)));
    for (int i = 0; i < 3000; i++)
        second_of(&onset, 1000, 0, 0.5, logs);
    CHECK(!isnan(canary_onset_evidence(&onset)));
    CHECK(canary_onset_evidence(&onset) < 0);
}
