// SPDX-License-Identifier: Apache-2.0
// How far one clock is ahead of another, from collectives that both saw: no rank leaves one before
// the last has entered it. Each collective says at least how far, and at most; over many little is
// left between both. The clocks run at rates of their own. Pure mathematics: no I/O.
#ifndef UPGATE_HARNESS_RANK_CLOCK_FIT_H
#define UPGATE_HARNESS_RANK_CLOCK_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLOCK_FIT_MIN = 16, // collectives: of fewer, one that was recorded with wrong times cannot be
                        // told from the others
    CLOCK_FIT_ERROR_MIN_NS = 1000 // two clocks are never known better
};

// From one clock to another: the time t becomes t + shift_ns + drift * (t - from_ns).
struct clock_map {
    int64_t shift_ns, from_ns;
    double drift;
};

int64_t clock_map_apply(const struct clock_map *map, int64_t ns);
struct clock_map clock_map_inverse(const struct clock_map *map);
struct clock_map clock_map_compose(const struct clock_map *first, const struct clock_map *then);

// One collective: by it the second clock was at least `low_ns` ahead when the first one showed
// low_at_ns, and at most `high_ns` at high_at_ns.
struct clock_bounds {
    int64_t low_at_ns, low_ns, high_at_ns, high_ns;
};

enum clock_fit_state {
    CLOCK_FIT_DONE,
    CLOCK_FIT_FEW,       // fewer than CLOCK_FIT_MIN, or they tell next to nothing
    CLOCK_FIT_CONTRADICT // more than a few of them cannot all be true
};

struct clock_fit {
    int64_t begin_ns, end_ns; // of the first clock
    struct clock_map map;     // from the first clock to the second
    double half_ns[2];        // at begin and end the second clock is that far from `map` at most
};

// In any order, which changes; all are differences of times from 0 to 2^61, or such. begin_ns <
// end_ns: the time for which the fit holds. *ret is filled where it is done.
enum clock_fit_state clock_fit(struct clock_bounds *bounds, size_t count, int64_t begin_ns,
        int64_t end_ns, struct clock_fit *ret);
// Somebody else knows, too: at any time between begin and end the second clock is shift_ns ahead,
// within error_ns. false: both cannot be true, and the fit stays as it is.
bool clock_fit_clip(struct clock_fit *fit, int64_t shift_ns, int64_t error_ns);
// Within what the second clock is known.
int64_t clock_fit_error_ns(const struct clock_fit *fit);
// How far the fit is from that: the farthest of what it leaves possible.
int64_t clock_fit_distance_ns(const struct clock_fit *fit, int64_t shift_ns);

#endif
