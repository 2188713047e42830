// SPDX-License-Identifier: Apache-2.0
// Stacks by content: each distinct one is resolved and stored once. A kernel stack is resolved at
// once; the symbols of user space may take 0.1 s to load, so those stacks get their row's number
// now and their frames when there is time (stacks_resolve). Symbols of a process are held from its
// first stack on, so that its end does not matter. All that has its share of a CPU, whatever a
// target has on its stacks. One thread.
#ifndef UPGATE_TRACER_RECORD_STACKS_H
#define UPGATE_TRACER_RECORD_STACKS_H

#include <stddef.h>
#include <stdint.h>

#include "tracer/pystack/pystack.h"
#include "tracer/record/tasks.h"
#include "tracer/record/writer.h"
#include "tracer/symbols/symbols.h"

struct stacks;

// prompt: it may cost more
struct stacks *stacks_new(struct writer *writer, struct symbols *symbols, bool prompt);
void stacks_free(struct stacks *stacks); // NULL ok

// Ids of rows; 0: no stack, or no time for a new one (counted).
uint32_t stacks_kernel(struct stacks *stacks, const __u64 *addresses, size_t count);
// at_ns: when it was taken; the same addresses may have been other functions before.
uint32_t stacks_user(struct stacks *stacks, struct task_process *process, uint64_t at_ns,
        const __u64 *addresses, size_t count);
// leaf: a frame put before the others ("[gc]", "[gil]"), or NULL.
uint32_t stacks_python(
        struct stacks *stacks, const char *leaf, const struct pystack_frame *frames, size_t count);
// The same by a key of the caller's (well mixed): the row that it has, or 0; a new row, whose
// frames must follow.
uint32_t stacks_python_known(const struct stacks *stacks, uint64_t key);
uint32_t stacks_python_reserve(struct stacks *stacks, uint64_t key);
void stacks_python_store(struct stacks *stacks, uint32_t id, const char *leaf,
        const struct pystack_frame *frames, size_t count);
// Frames of pending user stacks, for at most wait_ns (one symbol table may take longer). How much
// is left.
size_t stacks_resolve(struct stacks *stacks, int64_t wait_ns);
// Before a commit: what waits has a row that says so, should nobody live to name it.
void stacks_tell_waiting(struct stacks *stacks);
// nothing is left; what takes too long has one frame that says so
void stacks_finish(struct stacks *stacks);

uint64_t stacks_seen(const struct stacks *stacks);    // distinct, as far as that is remembered
uint64_t stacks_dropped(const struct stacks *stacks); // not stored: too many new ones at once

#endif
