// SPDX-License-Identifier: Apache-2.0
// The machine under both sides: kernel, CPU, memory management, security features that cost time.
#ifndef UPGATE_FINGERPRINT_HOST_H
#define UPGATE_FINGERPRINT_HOST_H

#include <jansson.h>

// `root` is put before "/proc" and "/sys": "" for the real machine. A new object; unknown is null.
json_t *host_collect(const char *root);

#endif
