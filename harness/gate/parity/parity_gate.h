// SPDX-License-Identifier: Apache-2.0
// Numerical parity of a workload: one row a tensor name, and two for the loss. A gate of its own: a
// candidate that is fast and wrong fails. And what the run loop must still do for it.
#ifndef UPGATE_GATE_PARITY_GATE_H
#define UPGATE_GATE_PARITY_GATE_H

#include "harness/gate/cell.h"

struct parity_row {
    const char *workload; // belongs to the facts
    char *tensor;
    const char *rule;        // static
    double error_a, error_b; // NAN: not known
    enum cell_verdict verdict;
    char *reason;
    int want_main;   // valid main pairs to have before this row is asked again; 0: no more
    long uncompared; // outputs without values that differ, or that are drawn at random
};

struct parity_context {
    struct store *store;
    const struct workload_facts *facts;
    const struct plan_gate *gate;
    const struct plan_schedule *schedule;
};

// No rows where nothing was recorded, or the policy says parity: off. The caller frees.
int parity_judge(const struct parity_context *context, struct parity_row **ret_rows, int *ret_count,
        struct error *err);
// What a pass by these rows of the workload says nothing of, as a note.
int parity_find_uncompared(const struct parity_context *context, const struct parity_row *rows,
        int count, struct findings *findings, struct error *err);
enum { PARITY_LOSS_ROWS_MAX = 2 };
// The rows of the loss, at most PARITY_LOSS_ROWS_MAX into ret_rows; their number, or -errno.
int parity_losses(
        const struct parity_context *context, struct parity_row *ret_rows, struct error *err);
void parity_free(struct parity_row *rows, int count);

// For gate_need: the valid main pairs that parity wants before it is asked again, 0: none. Judges
// parity only when the last valid main pair was the one of a look (at most a few seconds), and
// else names the next look, if the last one had left something open: so ask after every pair.
int parity_pairs_wanted(const struct parity_context *context, int *ret_pairs, struct error *err);

#endif
