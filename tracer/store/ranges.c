// SPDX-License-Identifier: Apache-2.0
// Units out of the names of columns, and the check of a row.
#include "tracer/store/ranges.h"

#include <math.h>
#include <string.h>

enum { RANGES_COLUMNS_MAX = 64 };

static bool range_ends(const char *name, size_t len, const char *ending)
{
    size_t size = strlen(ending);
    return len >= size && memcmp(name + len - size, ending, size) == 0;
}

static bool range_is_count(const char *name, size_t len)
{
    static const char *const endings[] = {"_count", "step", "steps", "idx", "couple", "seen",
            "kept", "dropped", "pairs", "pairs_needed", "gates", "fails", "_hz"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (range_ends(name, len, endings[i]))
            return true;
    return false;
}

void ranges_of(sqlite3_stmt *stmt, struct ranges *ret)
{
    int count = sqlite3_column_count(stmt);
    *ret = (struct ranges){0};
    for (int i = 0; i < count && i < RANGES_COLUMNS_MAX; i++) {
        const char *name = sqlite3_column_name(stmt, i);
        size_t len = name && name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == 0
                ? strlen(name)
                : 0;
        uint64_t bit = (uint64_t)1 << i;
        ret->columns[RANGE_WALL_NS] |= range_ends(name, len, "_wall_ns") ? bit : 0;
        ret->columns[RANGE_NS] |=
                range_ends(name, len, "_ns") && !range_ends(name, len, "_wall_ns") ? bit : 0;
        ret->columns[RANGE_COUNT] |= range_is_count(name, len) ? bit : 0;
    }
}

static bool range_holds(sqlite3_stmt *stmt, int column, int64_t end)
{
    switch (sqlite3_column_type(stmt, column)) {
    case SQLITE_NULL:
        return true;
    case SQLITE_INTEGER: {
        int64_t value = sqlite3_column_int64(stmt, column);
        return value >= -end && value < end;
    }
    case SQLITE_FLOAT: // a mean, or a sum that was too large for an integer
        return fabs(sqlite3_column_double(stmt, column)) < (double)end;
    default:
        return false;
    }
}

int ranges_odd(const struct ranges *ranges, sqlite3_stmt *stmt)
{
    static const int64_t ends[RANGE_KINDS] = {RANGE_NS_END, RANGE_WALL_NS_END, RANGE_COUNT_END};
    for (int kind = 0; kind < RANGE_KINDS; kind++)
        for (uint64_t left = ranges->columns[kind]; left; left &= left - 1)
            if (!range_holds(stmt, __builtin_ctzll(left), ends[kind]))
                return __builtin_ctzll(left);
    return -1;
}

uint64_t ranges_ns_columns(const char *columns)
{
    uint64_t found = 0;
    for (int i = 0; i < RANGES_COLUMNS_MAX && *columns; i++) {
        size_t len = strcspn(columns, ",");
        found |= range_ends(columns, len, "_ns") ? (uint64_t)1 << i : 0;
        columns += len;
        columns += strspn(columns, ", ");
    }
    return found;
}
