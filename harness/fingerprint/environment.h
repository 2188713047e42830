// SPDX-License-Identifier: Apache-2.0
// The environment of a process, as far as it steers performance: a list of names, secrets hidden.
#ifndef UPGATE_FINGERPRINT_ENVIRONMENT_H
#define UPGATE_FINGERPRINT_ENVIRONMENT_H

#include <jansson.h>
#include <stddef.h>

// `block` is "NAME=value\0NAME=value\0". A new object of the variables on the list; the number of
// the others goes to *ret_other_count.
json_t *environment_collect(const char *block, size_t length, size_t *ret_other_count);

#endif
