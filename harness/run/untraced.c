// SPDX-License-Identifier: Apache-2.0
// In place of traced.c where the build has no capture (libbpf or clang were missing).
#include "harness/run/traced.h"

#include "common/log.h"

void traced_run(struct session *session)
{
    static const char text[] = "launches are not traced: this build has no capture (it needs libbpf and clang)";
    log_warn("%s", text);
    store_note(session->store, "warning", "%s", text);
}
