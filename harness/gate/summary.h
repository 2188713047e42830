// SPDX-License-Identifier: Apache-2.0
// From cells, parity, findings, trust and calibration to one verdict and one sentence.
#ifndef UPGATE_GATE_SUMMARY_H
#define UPGATE_GATE_SUMMARY_H

#include "contracts/exit_code.h"
#include "harness/gate/certificate/calibration.h"
#include "harness/gate/parity/parity_gate.h"
#include "harness/gate/run_facts.h"

struct summary_input {
    const struct run_facts *run;
    const struct parity_row *parity;
    int parity_count;
    const struct calibration *calibration;
    bool trust_ok;
    const char *trust_breach; // words about the first breach; NULL
};

struct summary {
    enum exit_code exit; // PASS, FAIL or INCONCLUSIVE
    char *reason;        // one sentence; caller frees
    char *margin_note;   // which margins and alpha were applied; caller frees
};

// Never passes without a gated cell that passes.
struct summary summary_make(const struct summary_input *input);

#endif
