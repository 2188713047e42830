// SPDX-License-Identifier: Apache-2.0
// Runs the control pairs that the gate asks for.
#include "harness/run/calibrate.h"

#include <math.h>
#include <string.h>

#include "common/log.h"
#include "harness/run/session_internal.h"

static void calibrate_tell(const struct session *session, const struct session_workload *workload,
        const struct gate_control *control)
{
    if (session->need.phase == control->need.phase || strcmp(control->need.phase, "control") != 0)
        return;
    log_info(
            "workload '%s': a control, %lld pairs of side '%s' against itself, held %.3g %% longer "
            "once",
            workload->plan->name, (long long)control->need.pairs_wanted,
            session->plan->sides[0].name, 100 * control->share);
}

int calibrate_workload(
        struct session *session, struct session_workload *workload, struct error *err)
{
    struct gate_control control;
    int rc = 0;
    session->workload_idx = (int)(workload - session->workloads);
    while (rc == 0 && !session_stop && !workload->broken) {
        rc = gate_control_need(session->store, workload->id, &control, err);
        if (rc || control.need.pairs_wanted <= control.need.pairs_valid)
            break;
        calibrate_tell(session, workload, &control);
        session->need = control.need;
        session->phase = "control";
        session_display(session);
        if (strcmp(control.need.phase, "control") == 0)
            rc = session_pair_control(session, workload, &control, err);
        else
            rc = session_pair(session, workload, control.need.phase, err);
    }
    return rc;
}
