// SPDX-License-Identifier: Apache-2.0
// Which processes of this machine serve a URL: those that hold the socket that listens on its port.
// Reads /proc.
#ifndef UPGATE_HARNESS_CANARY_WHY_WHY_PIDS_H
#define UPGATE_HARNESS_CANARY_WHY_WHY_PIDS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

enum { WHY_PIDS_MAX = 64 };

// The port of "http://HOST:PORT/…", 80 or 443 where it has none; -EINVAL: no such URL.
int why_port(const char *url, uint16_t *ret_port);
// -ESRCH: nobody here listens there (or we may not see who). ret_pids holds WHY_PIDS_MAX;
// *ret_count >= 1.
int why_pids(uint16_t port, pid_t *ret_pids, size_t *ret_count, struct error *err);

#endif
