// SPDX-License-Identifier: Apache-2.0
// Sentences of the facts of a difference (evidence.h, suspect.h and facts.h of
// reports/analyse/diff), the same in every form.
// The caller frees, but for constants. Texts of the store are not cleaned here.
#ifndef UPGATE_REPORTS_DIFF_WORDS_H
#define UPGATE_REPORTS_DIFF_WORDS_H

#include "reports/analyse/diff/diff.h"

// "Kernel slower": what happened; a constant (diff_titles.c)
const char *diff_text_change(const struct diff_contribution *contribution);
const char *diff_text_class(enum cost_class class); // "GPU compute"; a constant
// "a: 4.2 ms a step in 96 executions; b: 5.9 ms a step in 96 executions" (diff_evidence.c)
char *diff_text_evidence(const struct diff_evidence *evidence);
// "torch 1.13.1 -> 2.13.0: libtorch_cpu.so holds it" (diff_suspects.c)
char *diff_text_suspect(const struct diff_suspect *suspect);
// NULL for NULL; "Rank 3 arrives last at 40 of 48 collectives, by 210 us: function gemm, 200 us a
// traced step more than on the other ranks"
char *diff_text_late(const struct diff_straggler *late);
// What it did meanwhile: "function gemm"; NULL: not known.
char *diff_text_deed(const struct diff_straggler *straggler);
// "One traced pair: how far launches of one side differ ..." (diff_notes.c)
char *diff_text_note(const struct diff_note *note);
// "no launches of 'dlrm-infer' were traced: ..."; NULL: it is explained
char *diff_text_unexplained(const struct diff_workload *workload);
// "no part of it differs in all traced launches alike"; what: "first step", "CPU time"; NULL: there
// are parts, or none is asked for
char *diff_text_once_why(enum diff_once_why why, const char *what);
// "not every traced launch of the side ..."; NULL: the same
char *diff_text_slow_why(const struct diff_workload *workload);
// "forward", "26 others"
char *diff_text_once_place(const struct diff_once_place *place);
// "12 slow steps of 240, 110 ms beside 10 ms, every 20 steps"
char *diff_text_slow_found(const struct diff_workload *workload, int side);

#endif
