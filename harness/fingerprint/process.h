// SPDX-License-Identifier: Apache-2.0
// The process part of a fingerprint from a directory like "/proc/PID"; what fingerprint_process()
// adds is the pid and the machine. Split so that tests can show it any directory.
#ifndef UPGATE_FINGERPRINT_PROCESS_H
#define UPGATE_FINGERPRINT_PROCESS_H

#include <jansson.h>

#include "common/error.h"

// 0, or -ESRCH, -EACCES as fingerprint_process(). Reasons for nulls go to `missing`.
int process_collect(const char *proc_dir, json_t *missing, json_t **ret_process, struct error *err);

#endif
