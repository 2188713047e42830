// SPDX-License-Identifier: Apache-2.0
// The gate: raw rows of the store in, cells and verdict out. Called by the run loop between pairs
// (what is still undecided?) and at the end; by `upgate gate` at any time later, with the same
// answer. Reads tables run, side, workload, pair, launch, block, step, loss, tensor, ledger,
// control; rewrites the derived ones.
#ifndef UPGATE_HARNESS_GATE_GATE_H
#define UPGATE_HARNESS_GATE_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "contracts/exit_code.h"
#include "harness/plan/plan.h"
#include "tracer/store/store.h"

// Judge the run. policy NULL = the gate section of the run's plan. Writes the derived tables in one
// transaction; the verdict's is fsync'ed. *ret_exit is EXIT_CODE_PASS, _FAIL or _INCONCLUSIVE.
int gate_judge(struct store *store, const struct plan_gate *policy, enum exit_code *ret_exit,
        struct error *err);

// What a workload still needs. pairs_wanted = valid pairs of `phase` to have before judging again;
// 0 = nothing: every gating cell is decided, or the last look is over. Never more than the next
// look.
struct gate_need {
    const char *phase; // "main" or "confirm"
    int64_t pairs_valid, pairs_wanted;
};
// Reads and derives what it must, decides nothing that gate_judge would not.
int gate_need(
        struct store *store, int64_t workload_id, struct gate_need *ret_need, struct error *err);

// One line a cell of a workload for the progress display, judged with what there is.
struct gate_glance {
    const char *metric;  // static
    const char *verdict; // static: "pass", "fail", "inconclusive"; "-" while too few pairs
    double ratio, ci_lower, ci_upper; // NAN = not known
};
int gate_glance(struct store *store, int64_t workload_id, struct gate_glance *ret_cells, int max);

// What the control of a workload still needs, when gate_need wants nothing more: pairs of the
// baseline against itself, plain ("main", of an A/A run) or with side b held longer ("control").
// Certificates of the host's file that cover its cells are copied into the run's table control.
struct gate_control {
    struct gate_need need;
    double share; // by which side b is to be held longer; 0: it is not, nothing gated would feel it
    bool frozen;  // by standing still in its turns: it makes no step calls that could wait
};
int gate_control_need(struct store *store, int64_t workload_id, struct gate_control *ret_control,
        struct error *err);
// At the end of a run: what its A/A and control pairs show, into its table control and, as far as
// they are certificates, into the file in the host's state directory.
int gate_certify(struct store *store, struct error *err);

#endif
