// SPDX-License-Identifier: Apache-2.0
// Which numbers a store may hold, so that what is computed of them cannot overflow. The name of a
// column says its unit:
// *_ns are times and durations, *_wall_ns times since 1970; counts end in _count, step, steps, idx,
// couple, seen, kept, dropped, pairs, pairs_needed, gates, fails or _hz; any other name may hold
// anything. Writers keep to it (what a traced process made up is dropped and counted), store_step()
// refuses a row that does not, and who reads by other means asks range_ns(). An expression has a
// unit only by AS.
#ifndef UPGATE_TRACER_STORE_RANGES_H
#define UPGATE_TRACER_STORE_RANGES_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

// 73 years since the machine started. Also CUPTI's own clock, of a process whose clocks could not
// be compared: until 2043.
#define RANGE_NS_END ((int64_t)1 << 61)
#define RANGE_WALL_NS_END ((int64_t)1 << 62) // until 2116
#define RANGE_COUNT_END ((int64_t)1 << 53)   // what a double holds to the last digit

enum range_kind { RANGE_NS, RANGE_WALL_NS, RANGE_COUNT, RANGE_KINDS };

// Of a statement's result: bit i is column i; columns beyond 63 are not looked at.
struct ranges {
    uint64_t columns[RANGE_KINDS];
};

void ranges_of(sqlite3_stmt *stmt, struct ranges *ret);
// The first column of the present row that is out of its range, or is no number; -1: none. NULL is
// in every range.
int ranges_odd(const struct ranges *ranges, sqlite3_stmt *stmt);
// Bit i: column i of a list "a, b, c" is a time, at most 64 of them.
uint64_t ranges_ns_columns(const char *columns);

static inline bool range_ns(int64_t value)
{
    return value >= -RANGE_NS_END && value < RANGE_NS_END;
}

#endif
