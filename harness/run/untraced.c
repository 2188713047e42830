// SPDX-License-Identifier: Apache-2.0
// In place of traced.c where the build has no capture (libbpf or clang were missing).
#include "harness/run/traced.h"

#include "common/log.h"

void traced_run(struct session *session)
{
    static const char text[] =
            "launches are not traced: this build has no capture (it needs libbpf and clang)";
    struct error err = {0};
    log_warn("%s", text);
    if (store_note(session->store, &err, "warning", "%s", text))
        log_warn("%s", err.text);
}
