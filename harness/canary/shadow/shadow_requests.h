// SPDX-License-Identifier: Apache-2.0
// Requests that may be mirrored: checked, so that none of them can say more to a server than
// method, path and body. From a file of JSON lines, or one by one.
#ifndef UPGATE_HARNESS_CANARY_SHADOW_REQUESTS_H
#define UPGATE_HARNESS_CANARY_SHADOW_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

struct shadow_request {
    char *method, *path, *body; // body NULL: none
    size_t size;
};

// False: no method, no path of a URL, or a body that is too long.
bool shadow_request_valid(const char *method, const char *path, size_t size);
void shadow_request_clear(struct shadow_request *request);

// All of a file whose method is allowed. -EINVAL with the line; -EINVAL for one of which none is
// left.
int shadow_requests_load(const char *path, const char *const *methods,
        struct shadow_request **ret_requests, size_t *ret_count, struct error *err);

#endif
