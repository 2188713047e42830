// SPDX-License-Identifier: Apache-2.0
// Texts and their ids; used through spool_writer.h, which makes and drops the tables together with
// the spool.
#ifndef UPGATE_TRACER_INJECT_SPOOL_STRINGS_H
#define UPGATE_TRACER_INJECT_SPOOL_STRINGS_H

#include <stdint.h>

// Maps the tables, empty; takes no memory before the first text. 0 or -errno.
int strings_create(void);
// In a child after fork: the ids belong to the parent's spool. Async-signal-safe.
void strings_forget(void);

// value: generation << 32 | id; mixed: value ^ address. Two threads that store here at once leave a
// pair that gives neither address: a miss, never a wrong id.
struct strings_address {
    uint64_t mixed, value;
};

enum { STRINGS_ADDRESS_BITS = 12 }; // 64 KiB, in the cache of the second level

// Of strings.c, seen here so that a kernel's name costs no call.
#define STRINGS_HIDDEN __attribute__((visibility("hidden")))
extern STRINGS_HIDDEN struct strings_address *strings_addresses;
// grows with strings_run and with each module that is unloaded
extern STRINGS_HIDDEN uint32_t strings_generation;
extern STRINGS_HIDDEN uint32_t strings_run_number;

// The id of a text by its address, 0: not remembered. Writes nothing, so it may be asked between
// spool_room and spool_publish. Only while there is a spool.
static inline uint32_t strings_known(const char *text)
{
    uint64_t where = (uint64_t)(uintptr_t)text;
    const struct strings_address *address =
            &strings_addresses[where * 0x9e3779b97f4a7c15ull >> (64 - STRINGS_ADDRESS_BITS)];
    uint64_t value = __atomic_load_n(&address->value, __ATOMIC_ACQUIRE);
    uint64_t mixed = __atomic_load_n(&address->mixed, __ATOMIC_ACQUIRE);
    if ((mixed ^ value) != where ||
            value >> 32 != __atomic_load_n(&strings_generation, __ATOMIC_ACQUIRE))
        return 0;
    return (uint32_t)value;
}

// Grows when the strings are written again: ids remembered elsewhere are to be asked for again.
static inline uint32_t strings_run(void)
{
    return __atomic_load_n(&strings_run_number, __ATOMIC_ACQUIRE);
}

#endif
