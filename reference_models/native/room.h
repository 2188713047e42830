// SPDX-License-Identifier: Apache-2.0
// Is there memory for what a model is made of? Asked before any is written: beyond what there is
// the kernel ends this process without a word, or another one. The Python models ask alike
// (reference_models/torch/room.py).
#ifndef UPGATE_NATIVE_ROOM_H
#define UPGATE_NATIVE_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

// Bytes that this machine (MemAvailable) and the limits of this process's control group (v2), and
// of those that it is in, leave; pages of files, and names and inodes that the kernel keeps, go
// when others are wanted. root: "", or where a test has its own /proc and /sys. false: nobody
// tells.
bool room_left(const char *root, uint64_t *ret_bytes);

// Before `bytes` are written; room_taken() behind that, with as many. what: of which the sentence
// speaks. -ENOMEM: so many are not left, and nothing was taken. Waits while another rank writes
// what it has taken, and both together would not fit.
int room_take(size_t bytes, const char *what, struct error *err);
void room_taken(size_t bytes);

// From here on this process and those that it forks count what the others have taken and not yet
// written.
int room_share(struct error *err);

#endif
