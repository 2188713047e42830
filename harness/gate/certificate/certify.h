// SPDX-License-Identifier: Apache-2.0
// A row of the run's table control, from a certificate.
#ifndef UPGATE_GATE_CERTIFY_H
#define UPGATE_GATE_CERTIFY_H

#include "harness/gate/certificate/certificate.h"
#include "tracer/store/store.h"

ERROR_CHECKED int certify_insert(
        struct store *store, const struct certificate *one, const char *scope, struct error *err);

#endif
