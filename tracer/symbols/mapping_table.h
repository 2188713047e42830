// SPDX-License-Identifier: Apache-2.0
// The code of one process over time: what is mapped now, and what was in its place before, each
// with the moment it came and went. Events may come out of order. No munmap is told by anybody, and
// none is needed: nothing runs where nothing is mapped. Bounded: a process that maps without end
// loses its own names.
#ifndef UPGATE_TRACER_SYMBOLS_MAPPING_TABLE_H
#define UPGATE_TRACER_SYMBOLS_MAPPING_TABLE_H

#include "tracer/symbols/maps.h"

enum {
    MAPPING_PAST_MAX = 512, // what went: needed until the stacks of its time are named, which takes
                            // milliseconds
    MAPPING_CHANGES_MAX = 64,
};

struct mapping_table {   // = {0} is empty
    struct mapping *all; // now, in ascending order
    uint32_t count;
    struct mapping *past; // a ring
    uint32_t past_count, past_next;
    size_t capacity, past_capacity;
    uint64_t ended_ns; // exec: what is older is past
    uint32_t changes;  // how often code took the place of other code
    uint64_t change_ns[MAPPING_CHANGES_MAX];
    uint64_t dropped; // beyond the maximum
};

// Mapped since one->since_ns.
void mapping_table_add(struct mapping_table *table, const struct mapping *one);
// Does what it says stand there already?
bool mapping_table_has(const struct mapping_table *table, const struct mapping *one);
// What /proc/PID/maps says at at_ns; `first`: nothing says since when. Anything that differs counts
// as a change if changes are not told otherwise.
void mapping_table_update(
        struct mapping_table *table, const struct mappings *maps, uint64_t at_ns, bool first);
// From at_ns on addresses may mean something else.
void mapping_table_change(struct mapping_table *table, uint64_t at_ns);
// Nothing is mapped any more since at_ns: exec.
void mapping_table_end(struct mapping_table *table, uint64_t at_ns);
// A fork: what `from` had mapped at at_ns is what was there at first.
void mapping_table_copy(
        struct mapping_table *table, const struct mapping_table *from, uint64_t at_ns);
// What lay at the address at at_ns; what came there later if nothing is known to have been there
// then. Valid until the next change.
struct mapping *mapping_table_find(
        const struct mapping_table *table, uint64_t address, uint64_t at_ns);
// The number of changes before at_ns: as long as it is the same, an address means the same.
uint32_t mapping_table_epoch(const struct mapping_table *table, uint64_t at_ns);
uint64_t mapping_table_bytes(const struct mapping_table *table);
void mapping_table_free(struct mapping_table *table);

#endif
