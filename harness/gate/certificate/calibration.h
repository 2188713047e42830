// SPDX-License-Identifier: Apache-2.0
// Does a control stand behind each cell? Reads the run's own table control, which was filled while
// the run was made: judging again needs no other file and gives the same answer.
#ifndef UPGATE_GATE_CALIBRATION_H
#define UPGATE_GATE_CALIBRATION_H

#include "harness/gate/certificate/certificate.h"
#include "harness/gate/run_facts.h"

struct calibration {
    bool covered; // every gated cell that passes or fails is covered, or the run is an A/A run
    char *note;   // by which controls, or which cell is not and why; caller frees
};

int calibration_check(struct store *store, const struct run_facts *run,
        struct calibration *ret_calibration, struct error *err);

// Rows of the run's table; the caller frees with certificates_free.
int calibration_load(struct store *store, struct certificate **ret_certificates, int *ret_count,
        struct error *err);
// The certificate that covers this cell, the workload's own before others, newer before older. Else
// NULL, *ret_why says why not (caller frees), and *ret_nearest (NULL ok) is the one that comes
// nearest.
const struct certificate *calibration_find(const struct run_facts *run,
        const struct run_workload *workload, const struct cell *cell,
        const struct certificate *certificates, int count, const struct certificate **ret_nearest,
        char **ret_why);
// "train model": workloads of one kind share certificates.
void calibration_kind(const struct workload_facts *facts, char kind[CERTIFICATE_TEXT]);
// Does the verdict of this cell rest on a certificate at all?
bool calibration_concerns(const struct cell *cell);

#endif
