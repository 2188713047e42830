# SPDX-License-Identifier: Apache-2.0
"""What the dlrm is fed with, whatever the framework: sizes, and batches drawn from the seed, the same bits everywhere. Needs numpy only."""
import itertools

import numpy
from draw import Draw

DENSE_FEATURES = 13
ZIPF_EXPONENT = 1.05
INFER_FACTOR = 4  # a request ranks more candidates than a training step has samples
# tables: rows -> mean ids in a bag; pool: batches that are cycled through
SIZES = {
    "small": dict(tables={800: 3, 100: 2, 20: 1}, dim=8, batch=32, pool=8),
    "demo": dict(tables={60000: 6, 20000: 4, 6000: 4, 2000: 2, 600: 2, 200: 1, 60: 1, 20: 1},
                 dim=32, batch=128, pool=96),
    "large": dict(tables={4000000: 20, 1000000: 10, 300000: 10, 100000: 6, 40000: 4, 10000: 4,
                          3000: 2, 1000: 2, 300: 1, 100: 1, 30: 1, 10: 1},
                  dim=128, batch=4096, pool=8),
}


class Zipf:
    """Ids of one table. Ranks up to 1,024 have a weight each; beyond, blocks a 32nd of their first
    rank wide share one, so that a table of millions of rows costs no more start-up than a small
    one."""

    def __init__(self, rows):
        edges = [1]
        while edges[-1] <= rows:
            edges.append(edges[-1] + max(1, edges[-1] // 32 if edges[-1] > 1024 else 1))
        edges[-1] = rows + 1
        # Python's power function, not numpy's: that one is vectorised and may differ by a bit.
        weights = [(hi - lo) * ((lo + hi - 1) / 2.0) ** -ZIPF_EXPONENT
                   for lo, hi in zip(edges, edges[1:])]
        total = list(itertools.accumulate(weights))
        self._rows = rows
        self._first = numpy.array(edges[:-1], dtype=numpy.int64)
        self._width = numpy.array([hi - lo for lo, hi in zip(edges, edges[1:])], dtype=numpy.int64)
        self._upto = numpy.array([t / total[-1] for t in total[:-1]], dtype=numpy.float64)

    def ids(self, draw, count):
        block = numpy.searchsorted(self._upto, draw.uniform(count), side="right")
        inside = (draw.uniform(count) * self._width[block]).astype(numpy.int64)
        rank = self._first[block] + inside - 1
        return rank * 2654435761 % self._rows  # popular ids spread over the table, as hashing does


def batches(seed, mode, size, rank=0):
    """The pool, one after the other: dense features [batch, 13] in float64, (ids, offsets) of each table in int64, labels."""
    draw = Draw(seed, "dlrm/%s" % mode + ("/%d" % rank if rank else ""))
    tables = [(Zipf(rows), bag) for rows, bag in size["tables"].items()]
    factor = INFER_FACTOR if mode == "infer" else 1
    for _ in range(max(1, size["pool"] // factor)):
        yield _batch(draw, tables, size["batch"] * factor)


def _batch(draw, tables, batch):
    dense = draw.uniform(batch * DENSE_FEATURES).reshape(batch, DENSE_FEATURES) * 2 - 1
    score = dense[:, 0] - dense[:, 1] + dense[:, 2] * dense[:, 3]
    sparse = []
    for zipf, mean in tables:
        lengths = 1 + draw.integers(batch, 2 * mean - 1)
        ends = numpy.cumsum(lengths)
        ids = zipf.ids(draw, int(ends[-1]))
        offsets = ends - lengths
        first = ids[offsets]  # the first id of a bag has a hidden effect of its own
        score = score + (first * 40503 % 1024) * 2.0 ** -10 - 0.5
        sparse.append((ids, offsets))
    labels = draw.uniform(batch) < numpy.clip(0.5 + score * 0.25, 0.02, 0.98)
    return dense, sparse, labels.astype(numpy.float64)
