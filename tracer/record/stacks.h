// SPDX-License-Identifier: Apache-2.0
// Stacks by content: each distinct one is resolved and stored once. A kernel stack is resolved at once; the symbols
// of user space may take 0.1 s to load, so those stacks get their row's number now and their frames when
// there is time (stacks_resolve). Symbols of a process are held from its first stack on, so that its end
// does not matter. One thread.
#ifndef UPGATE_TRACER_RECORD_STACKS_H
#define UPGATE_TRACER_RECORD_STACKS_H

#include <stddef.h>
#include <stdint.h>

#include "tracer/pystack/pystack.h"
#include "tracer/record/tasks.h"
#include "tracer/record/writer.h"
#include "tracer/symbols/symbols.h"

struct stacks;

struct stacks *stacks_new(struct writer *writer, struct symbols *symbols);
void stacks_free(struct stacks *stacks); // NULL ok

// Ids of rows; 0: no stack, or no room for a new one (counted).
uint32_t stacks_kernel(struct stacks *stacks, const __u64 *addresses, size_t count);
uint32_t stacks_user(struct stacks *stacks, struct task_process *process, const __u64 *addresses, size_t count);
// leaf: a frame put before the others ("[gc]", "[gil]"), or NULL.
uint32_t stacks_python(struct stacks *stacks, const char *leaf, const struct pystack_frame *frames, size_t count);
// Frames of pending user stacks, for at most budget_ns (one symbol table may take longer). How many are left.
size_t stacks_resolve(struct stacks *stacks, int64_t budget_ns);

uint64_t stacks_seen(const struct stacks *stacks);    // distinct
uint64_t stacks_dropped(const struct stacks *stacks); // not stored: too many distinct ones

#endif
