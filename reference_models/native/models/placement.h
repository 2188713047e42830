// SPDX-License-Identifier: Apache-2.0
// Where the embedding tables of a model go: a plan of pieces for ranks that have so much memory
// each. The decisions are those of torch/placement.py, which says the rules: whole to the emptiest
// rank, else by columns, else by rows.
#ifndef UPGATE_NATIVE_PLACEMENT_H
#define UPGATE_NATIVE_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define PLACEMENT_TABLES_MAX 16
#define PLACEMENT_RANKS_MAX 64
#define PLACEMENT_PIECES_MAX (PLACEMENT_TABLES_MAX * PLACEMENT_RANKS_MAX)

enum placement_kind { PLACEMENT_TABLE, PLACEMENT_ROW, PLACEMENT_COLUMN, PLACEMENT_KIND_COUNT };

struct placement_piece {
    uint32_t table, rank;
    enum placement_kind kind;
    uint32_t row, rows, column, columns; // what it has of its table
};

struct placement {
    size_t pieces; // in the order of the tables, and of their place in one
    struct placement_piece piece[PLACEMENT_PIECES_MAX];
};

// The budget of a rank that has none: 1.25 of an equal share, bytes.
uint64_t placement_budget(const uint32_t *rows, size_t tables, size_t dim, uint32_t ranks);

// rows: of each table; budget: bytes of a rank. -EINVAL: the tables do not fit, and by how much;
// more than the above, or nothing to place.
int placement_plan(const uint32_t *rows, size_t tables, size_t dim, uint32_t ranks, uint64_t budget,
        struct placement *ret, struct error *err);

#endif
