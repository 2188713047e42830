# SPDX-License-Identifier: Apache-2.0
"""Where the embedding tables of a model go: a plan of pieces for ranks that have so much memory each.

Largest table first. A table that fits into what the emptiest rank has left goes there whole (table-wise). One that would
fit an empty rank, and does not fit what is left, is cut by columns into as few pieces as fit, while a piece keeps
COLUMNS_LEAST columns (column-wise). One that is larger than all a rank has is cut by rows, a piece a rank (row-wise): its ids go to
one rank each, where those of columns go to all of its ranks. Needs no framework.
"""
import collections

COLUMNS_LEAST = 4
BYTES_A_VALUE = 8  # a float32 and its Adagrad sum

Piece = collections.namedtuple("Piece", "table kind rank row rows column columns")


class TooSmall(ValueError):
    """The tables do not fit; the text says how much is missing."""


def _bytes(rows, columns):
    return rows * columns * BYTES_A_VALUE


def _cut(length, count):
    """(begin, length) of count parts that differ by 1 at most."""
    edges = [length * k // count for k in range(count + 1)]
    return [(lo, hi - lo) for lo, hi in zip(edges, edges[1:])]


def plan(tables, dim, ranks, budget):
    """tables: rows of each; budget: bytes of a rank. Pieces in the order of the tables, and of their place in one."""
    need = sum(_bytes(rows, dim) for rows in tables)
    if need > ranks * budget:
        raise TooSmall("the tables take %d bytes with their optimizer state, %d ranks have %d each" % (need, ranks, budget))
    left, pieces = [budget] * ranks, []

    def take(rank, size):
        left[rank] -= size
        return rank

    def emptiest():
        return max(range(ranks), key=lambda rank: (left[rank], -rank))

    def by_columns(table, rows):
        for count in range(2, min(ranks, dim // COLUMNS_LEAST) + 1):
            free, parts = list(left), []
            for column, columns in _cut(dim, count):
                rank = max(range(ranks), key=lambda r: (free[r], -r))
                free[rank] -= _bytes(rows, columns)
                parts.append(Piece(table, "column", rank, 0, rows, column, columns))
            if min(free) >= 0:
                left[:] = free
                return parts
        return []

    for table in sorted(range(len(tables)), key=lambda t: (-tables[t], t)):
        rows, rank = tables[table], emptiest()
        if _bytes(rows, dim) <= left[rank]:
            pieces.append(Piece(table, "table", take(rank, _bytes(rows, dim)), 0, rows, 0, dim))
            continue
        parts = by_columns(table, rows) if _bytes(rows, dim) <= budget else []
        if not parts:
            parts = [Piece(table, "row", take(rank, _bytes(count, dim)), row, count, 0, dim)
                     for rank, (row, count) in enumerate(_cut(rows, ranks)) if count]
            if min(left) < 0:
                raise TooSmall("no rank has room for its rows of a table of %d" % rows)
        pieces += parts
    return sorted(pieces, key=lambda piece: (piece.table, piece.row, piece.column))
