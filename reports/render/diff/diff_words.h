// SPDX-License-Identifier: Apache-2.0
// Sentences of the facts of a difference (reports/analyse/diff/facts.h), the same in every form.
// The caller frees. Texts of the store are not cleaned here.
#ifndef UPGATE_REPORTS_DIFF_WORDS_H
#define UPGATE_REPORTS_DIFF_WORDS_H

#include "reports/analyse/diff/diff.h"

// "a: 4.2 ms a step in 96 executions; b: 5.9 ms a step in 96 executions" (diff_evidence.c)
char *diff_text_evidence(const struct diff_evidence *evidence);
// "torch 1.13.1 -> 2.13.0: libtorch_cpu.so holds it" (diff_suspects.c)
char *diff_text_suspect(const struct diff_suspect *suspect);
// NULL for NULL; "Rank 3 arrives last at 40 of 48 collectives, by 210 us: function gemm, 200 us a
// traced step more than on the other ranks"
char *diff_text_late(const struct diff_straggler *late);
// "One traced pair: how far launches of one side differ ..." (diff_notes.c)
char *diff_text_note(const struct diff_note *note);
// "no launches of 'dlrm-infer' were traced: ..."; NULL: it is explained
char *diff_text_unexplained(const struct diff_workload *workload);

#endif
