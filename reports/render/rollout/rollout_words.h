// SPDX-License-Identifier: Apache-2.0
// Words and numbers of a rollout, the same in every form. Internal to this room. Buffers are filled
// and returned; NUMBERS_SIZE is enough for each; what was not measured is "-".
#ifndef UPGATE_REPORTS_ROLLOUT_WORDS_H
#define UPGATE_REPORTS_ROLLOUT_WORDS_H

#include "reports/render/rollout/rollout_data.h"
#include "reports/render/text/numbers.h"

int rollout_state_by_word(const char *word);                    // -1: none
const char *rollout_state_word(enum rollout_state state);       // "rolled_back": of JSON and store
const char *rollout_state_title(enum rollout_state state);      // "rolled back"
int rollout_verdict_by_word(const char *word);                  // -1: none
const char *rollout_verdict_word(enum rollout_verdict verdict); // "pass", "fail", "undecided"
// "p99 latency"; the metric itself where it is not known
const char *rollout_metric_title(const char *metric);
// what the rule says, a few words; the rule itself where not known
const char *rollout_rule_title(const char *rule);
const char *rollout_arm_word(int arm); // "baseline"

char *rollout_percent(double percent, char *buf);             // 25 -> "25 %"
char *rollout_rate(uint64_t part, uint64_t whole, char *buf); // "0.12 %"; "-" of nothing
char *rollout_ms(double seconds, char *buf);                  // "4.21 ms"
char *rollout_clock(int64_t wall_ns, char *buf);              // "2026-11-21 12:00:07 UTC"
char *rollout_ago(int64_t ns, char *buf);                     // "3 min 20 s"
char *rollout_change(double ratio, char *buf);                // 1.031 -> "+3.1 %"
// Value, bound and threshold of a cell in its own unit: a count for wrong answers, else a change.
char *rollout_cell_value(const char *metric, double value, char *buf);

// One sentence: how it stands or ended, from the state, the stage and the share. The caller frees.
char *rollout_sentence(const struct rollout_view *view);
// What a cell still lacks, or what it found: "about 12,300 more requests", "passed". The caller
// frees.
char *rollout_missing(
        const struct rollout_view *view, const char *metric, const struct rollout_point *point);
// What may not be concluded from a controller that is not there, lost evidence, an arm that is
// down; lines, "" if nothing. The caller frees.
char *rollout_warnings(const struct rollout_view *view);
// The decision that ended or paused it: the newest one into the present state; NULL.
const struct rollout_decision *rollout_last_decision(const struct rollout_view *view);
// "95 ms": from the decision until the traffic was read back; "-" where not known.
char *rollout_effect(const struct rollout_decision *decision, char *buf);
bool rollout_ended(const struct rollout_view *view);
// Of a metric, does this stage's series hold: is it the latest in which it was decided, or, while
// none was, the latest?
bool rollout_holds(const struct rollout_view *view, const struct rollout_series *series);
// What the outcome rests on, or what is still open: a line a metric, what failed first; then how
// often chance alone would have done it.
char *rollout_basis(const struct rollout_view *view);

#endif
