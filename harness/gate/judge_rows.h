// SPDX-License-Identifier: Apache-2.0
// Writes the derived tables of a judgement. Old rows go, new ones come, in the caller's
// transaction.
#ifndef UPGATE_GATE_JUDGE_ROWS_H
#define UPGATE_GATE_JUDGE_ROWS_H

#include "harness/gate/summary.h"

ERROR_CHECKED int judge_rows_write(struct store *store, const struct summary_input *input,
        const struct summary *summary, struct error *err);

#endif
