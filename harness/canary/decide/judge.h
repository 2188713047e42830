// SPDX-License-Identifier: Apache-2.0
// What the evidence of a stage says to the state machine. Pure: cells and counts in, answers out.
#ifndef UPGATE_HARNESS_CANARY_DECIDE_JUDGE_H
#define UPGATE_HARNESS_CANARY_DECIDE_JUDGE_H

#include "harness/canary/decide/machine.h"

struct judge_facts { // of the present stage
    const struct canary_cell *cells;
    int cell_count;
    uint64_t requests[CANARY_ARMS]; // judged, of the stage
    uint64_t wrong;                 // of the candidate, since the stage began, warm-up included
    double recent_errors; // canary_recent_errors(), warm-up included; NaN: too few requests
    int64_t judged_ns;    // time of evidence since it is judged
    uint64_t refused;     // connections that the candidate refused in the last 10 s, by a log
    uint64_t down;        // looks in a row at which the candidate was down and the baseline was not
    uint64_t lost;        // log lines of the stage that were lost: the cells know of them
    bool maybe_tripped;   // with all that was lost within ten seconds as its errors, the tripwire
                          // would have fired
    bool shared;          // both arms failed together, or were down, so that no tripwire fired
    bool lost_before;     // some were lost before this controller was started: nobody knows when
};

struct judge_answer {
    bool tripped;
    enum rollout_rule tripwire;
    int failed; // index of the first gated cell that fails; -1: none
    bool soaked, requests_enough, cells_passed;
    bool withheld; // by lost lines or an outage of both only: it would pass
    bool wrong; // wrong answers beyond their limit, or their cell fails: whatever else has tripped
                // or failed
    char text[400]; // why, or what is missing: for people
};

// A stage passes by time (soak), by count (requests of the candidate) and by its gated cells, and
// only where lost log lines, each the worst that it can have been, would change none of it, and
// both arms have not failed together. Which cells:
//   with traffic on both arms  every gated one has passed, on requests of both in this stage
//   100 %                      nothing is left to compare with: none has failed, and the last 10 s
//                              were as the baseline's were (alone.h)
//   A/A                        the arms are equal, none has failed
//   shadow                     the answers: wrong_answers, where it is gated, has passed; no other
//                              has failed
void judge_stage(const struct rollout *rollout, int stage, const struct judge_facts *facts,
        struct judge_answer *ret);

// For whoever reads the cells: those that repeat an earlier stage's pass, in a stage that passes by
// its own, become undecided.
void judge_cells(const struct rollout_stage *stage, struct canary_cell *cells, int count);

#endif
