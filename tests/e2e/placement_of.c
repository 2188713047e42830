// SPDX-License-Identifier: Apache-2.0
// The planner of the native dlrm-sharded for tests/e2e/placement.py. Reads lines `RANKS DIM BUDGET
// ROWS...` from stdin; a budget of 0 is the default one. Writes a line for each: the budget, then
// the pieces as table,kind,rank,row,rows,column,columns, or `refused: WHY`.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "reference_models/native/models/placement.h"

static const char *const kinds[PLACEMENT_KIND_COUNT] = {"table", "row", "column"};

static void placement_of(char *line)
{
    static struct placement plan;
    uint32_t rows[PLACEMENT_TABLES_MAX] = {0}, ranks = (uint32_t)strtoul(line, &line, 10);
    size_t dim = strtoul(line, &line, 10), tables = 0;
    uint64_t budget = strtoull(line, &line, 10);
    struct error err = {0};
    for (; *line == ' ' && tables < PLACEMENT_TABLES_MAX; tables++)
        rows[tables] = (uint32_t)strtoul(line, &line, 10);
    if (budget == 0)
        budget = placement_budget(rows, tables, dim, ranks);
    printf("%" PRIu64, budget);
    if (placement_plan(rows, tables, dim, ranks, budget, &plan, &err)) {
        printf(" refused: %s\n", err.text);
        return;
    }
    for (size_t i = 0; i < plan.pieces; i++) {
        const struct placement_piece *piece = &plan.piece[i];
        printf(" %" PRIu32 ",%s,%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32,
                piece->table, kinds[piece->kind], piece->rank, piece->row, piece->rows,
                piece->column, piece->columns);
    }
    printf("\n");
}

int main(void)
{
    char line[512];
    while (fgets(line, sizeof line, stdin))
        placement_of(line);
    return fflush(stdout) == 0 ? 0 : 4;
}
