// SPDX-License-Identifier: Apache-2.0
// From an instruction to its line, in each of CPython's three formats: co_lnotab until 3.9,
// co_linetable of 3.10, and the location table (PEP 657) from 3.11.
#ifndef UPGATE_TRACER_PYSTACK_LINE_TABLE_H
#define UPGATE_TRACER_PYSTACK_LINE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "tracer/pystack/layout.h"

// The line of the instruction `offset` bytes into the code, whose function begins at first_line;
// before the first instruction it is first_line. 0: it has none, or the table is damaged.
int line_table_lookup(
        enum layout_lines format, const uint8_t *table, size_t len, int first_line, int64_t offset);

#endif
