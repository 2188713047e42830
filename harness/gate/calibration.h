// SPDX-License-Identifier: Apache-2.0
// Does a valid certificate stand behind this run? Reads the run's own calibration table, which was
// filled while the run was made: judging again needs no other file and gives the same answer.
#ifndef UPGATE_GATE_CALIBRATION_H
#define UPGATE_GATE_CALIBRATION_H

#include "harness/gate/run_facts.h"

struct calibration {
    bool covered; // every workload with pairs has a valid certificate, or the run is an A/A run
    char *note;   // which certificate, or why not; caller frees
};

int calibration_check(struct store *store, const struct run_facts *run,
                      struct calibration *ret_calibration, struct error *err);
// NULL: valid under this policy at that time; else what is wrong (caller frees).
char *calibration_objection(const struct plan_gate *gate, int64_t made_wall_ns, int64_t at_wall_ns,
                            double upper_bound);

#endif
