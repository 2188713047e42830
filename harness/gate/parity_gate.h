// SPDX-License-Identifier: Apache-2.0
// Numerical parity of a workload: one row a tensor name, and two for the loss. A gate of its own: a
// candidate that is fast and wrong fails.
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
};

// No rows where nothing was recorded, or the policy says parity: off. The caller frees.
int parity_judge(struct store *store, const struct workload_facts *facts,
                 const struct plan_gate *gate, struct parity_row **ret_rows, int *ret_count,
                 struct error *err);
enum { PARITY_LOSS_ROWS_MAX = 2 };
// The rows of the loss, at most PARITY_LOSS_ROWS_MAX into ret_rows; their number, or -errno.
int parity_losses(struct store *store, const struct workload_facts *facts,
                  const struct plan_gate *gate, struct parity_row *ret_rows, struct error *err);
void parity_free(struct parity_row *rows, int count);

#endif
