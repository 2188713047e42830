// SPDX-License-Identifier: Apache-2.0
// What a step would take if, as it is told. Pure; the caller frees texts.
#ifndef UPGATE_REPORTS_STALLS_WHAT_IF_H
#define UPGATE_REPORTS_STALLS_WHAT_IF_H

#include <jansson.h>

#include "reports/analyse/stalls/stalls.h"

enum stalls_question {
    STALLS_QUESTION_STRAGGLERS,
    STALLS_QUESTION_EVEN,
    STALLS_QUESTION_INSTANT,
    STALLS_QUESTION_BALANCED,
    STALLS_QUESTION_COUNT
};

// "What if: a step took 33 ms, the mean of 149; the replay gives 33 ms (+0.0 %)", or why that is
// not known; NULL: there is nothing to ask.
char *stalls_what_if_head(const struct stall_what_if *what_if);
// NAN: does not apply
double stalls_what_if_ns(const struct stall_what_if *what_if, enum stalls_question question);
// "instant communication"
char *stalls_what_if_question(const struct stall_what_if *what_if, enum stalls_question question);
// "-38.1 %", against the job as it was, replayed. Into a buffer of NUMBERS_SIZE, which is returned.
char *stalls_what_if_change(const struct stall_what_if *what_if, double ns, char *buf);
// of upgate.stalls/1; null: there is nothing to ask
json_t *stalls_what_if_json(const struct stall_what_if *what_if);

#endif
