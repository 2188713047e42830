// SPDX-License-Identifier: Apache-2.0
// What this machine allows, what is missing, what that costs and how to get it. Each check looks at
// one thing, tries it where trying is harmless, and changes nothing that stays.
#ifndef UPGATE_HARNESS_DOCTOR_H
#define UPGATE_HARNESS_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "reports/render/render.h"

enum doctor_status { DOCTOR_STATUS_OK, DOCTOR_STATUS_LIMITED, DOCTOR_STATUS_MISSING };

struct doctor;

// Runs every check; some 100 ms. root is put before /proc and /sys and is "" but in tests.
struct doctor *doctor_examine(const char *root);
// The checks of a container image that is to be a side: pulls it, starts a container of it for a
// moment; some seconds.
struct doctor *doctor_examine_image(const char *name);
void doctor_free(struct doctor *doctor); // NULL ok

bool doctor_can_run(const struct doctor *doctor); // can `upgate ab` run at all?
json_t *doctor_json(const struct doctor *doctor); // upgate.doctor/1, a new reference
int doctor_print(const struct doctor *doctor, const struct render_opts *opts, FILE *stream,
        struct error *err);

#endif
