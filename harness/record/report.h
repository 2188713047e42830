// SPDX-License-Identifier: Apache-2.0
// What `upgate record` prints: what it recorded, what is missing and how to get it, and the
// environment that prepares a service for a recording of its GPU side.
#ifndef UPGATE_HARNESS_RECORD_REPORT_H
#define UPGATE_HARNESS_RECORD_REPORT_H

#include "harness/record/recording.h"

void report_print(const struct recording_opts *opts, const struct recording_result *result);
void report_print_json(const struct recording_opts *opts, const struct recording_result *result);
// Lines "NAME=value", or a JSON object. -ENOENT: no library.
int report_print_environment(bool json, struct error *err);

#endif
