// SPDX-License-Identifier: Apache-2.0
// Does this host have a certificate that A/A gates do not fail here, for this way of taking turns? If
// not, and the plan says auto, a short A/A run of a native workload makes one (some ten seconds). It
// goes into the host's state directory and into the run's calibration table.
#ifndef UPGATE_HARNESS_RUN_CALIBRATE_H
#define UPGATE_HARNESS_RUN_CALIBRATE_H

#include "common/error.h"

struct session;
struct session_workload;

// For a workload whose interleave is known. 0 also when no certificate could be made: the gate then
// says so and never passes.
int calibrate_ensure(struct session *session, const struct session_workload *workload,
                     struct error *err);

#endif
