// SPDX-License-Identifier: Apache-2.0
// The stores of incidents that are kept, at most so many of one name: also those that an earlier
// watch left, which may have been one of the same service before it was started again. One thread.
#ifndef UPGATE_HARNESS_LIVE_KEPT_H
#define UPGATE_HARNESS_LIVE_KEPT_H

#include <stddef.h>

struct kept {
    char **paths; // oldest first
    size_t count;
};

// Of name "night.db" this user's files "night-20261126-031207.db", as look_save() names them.
void kept_find(struct kept *kept, const char *name);
// Takes the path. Of more than `most` the oldest ones are removed.
void kept_add(struct kept *kept, char *path, size_t most);
void kept_free(struct kept *kept);

#endif
