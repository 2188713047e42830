#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planners of dlrm-sharded, in Python and in C, decide the same: every piece, every refusal and its words, over a grid of ranks, rows,
tables and budgets, and the budget that there is without --budget. Needs no torch."""
import ast
import os
import subprocess
import sys

SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TORCH = os.path.join(SOURCE, "reference_models", "torch")
sys.path.insert(0, TORCH)
sys.dont_write_bytecode = True
import placement  # noqa: E402

PROGRAM = os.path.join(os.environ["UPGATE_BUILD"], "tests", "e2e", "placement_of")
# Of the model's sizes, and others: equal tables, one, tiny ones, one that all others are nothing beside.
TABLES = ([800, 100, 20], [60000, 20000, 6000, 2000, 600, 200, 60, 20],
          [4000000, 1000000, 300000, 100000, 40000, 10000, 3000, 1000, 300, 100, 30, 10],
          [50, 50, 50, 50], [7], [1, 2, 3], [20, 100000, 20, 20], [3, 5, 800, 799, 801])
DIMS = (1, 4, 8, 10, 32)
RANKS = (1, 2, 3, 4, 5, 7, 8, 13, 64)
SHARES = (0, 0.7, 0.99, 1, 1.01, 1.1, 1.25, 1.6, 2, 3, 100)  # budgets, of an equal share; 0: the default one


def margin():
    """dlrm-sharded.py's BUDGET_MARGIN: read, as importing it needs torch."""
    with open(os.path.join(TORCH, "dlrm-sharded.py"), encoding="utf-8") as file:
        return next(ast.literal_eval(node.value) for node in ast.parse(file.read()).body
                    if isinstance(node, ast.Assign) and node.targets[0].id == "BUDGET_MARGIN")


def grid():
    for rows in TABLES:
        for dim in DIMS:
            for ranks in RANKS:
                need = sum(rows) * dim * placement.BYTES_A_VALUE
                for share in SHARES:
                    yield rows, dim, ranks, max(1, int(share * need / ranks)) if share else 0


def planned(rows, dim, ranks, budget, without):
    budget = budget or int(without * sum(rows) * dim * placement.BYTES_A_VALUE / ranks)
    try:
        pieces = placement.plan(rows, dim, ranks, budget)
    except placement.TooSmall as why:
        return "%d refused: %s" % (budget, why)
    return " ".join(["%d" % budget] + [",".join(map(str, piece)) for piece in pieces])


def main():
    cases, without = list(grid()), margin()
    lines = ["%d %d %d %s" % (ranks, dim, budget, " ".join(map(str, rows))) for rows, dim, ranks, budget in cases]
    done = subprocess.run([PROGRAM], input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True, timeout=100, check=True)
    got = done.stdout.splitlines()
    assert len(got) == len(cases), (len(got), len(cases))
    wrong, seen = 0, set()
    for case, line in zip(cases, got):
        want = planned(*case, without)
        seen |= {kind for kind in ("table", "row", "column", "the tables take", "no rank has room") if kind in want}
        if line != want and (wrong := wrong + 1) <= 5:
            print("FAIL ranks %d, rows of %d, budget %d, tables %s\n  C      %s\n  Python %s" % (case[2], case[1], case[3], case[0], line, want))
    # A grid that has not all kinds in it would hold nothing.
    assert len(seen) == 5, seen
    print("%d plans, %d differ" % (len(cases), wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
