// SPDX-License-Identifier: Apache-2.0
// Would this workload's pairs show a regression, and none where there is none? Where no earlier run
// on this host has shown it, this one does: control pairs of the baseline against itself, side b
// held longer by the margin, at the end. They go into the store like other pairs; the gate judges
// them.
#ifndef UPGATE_HARNESS_RUN_CALIBRATE_H
#define UPGATE_HARNESS_RUN_CALIBRATE_H

#include "common/error.h"

struct session;
struct session_workload;

// When all workloads are decided. Costs nothing where a certificate covers the cells; else as many
// pairs as the first look, and at most one look more than the cells themselves took. 0 also when
// the control did not come to an end: the gate then says so and never passes.
int calibrate_workload(
        struct session *session, struct session_workload *workload, struct error *err);

#endif
