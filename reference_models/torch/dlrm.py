# SPDX-License-Identifier: Apache-2.0
"""dlrm: a recommendation model as production runs it, on PyTorch.

Embedding bags over tables of very different sizes, ids after Zipf's law (exponent 1.05), a bottom
network over the dense features, pairwise dot interaction, a top network, binary cross entropy;
sparse Adagrad on the tables, SGD on the rest. Data is drawn at the start from --seed and cycled
through, the labels from a hidden rule, so the loss falls. Not the MLPerf model: sizes are chosen
for steps of a few ms.
"""
import functools
import itertools
import sys

import cli  # before torch: it sets the thread counts
import common
import numpy
import torch
from torch import nn
from torch.nn import functional

DENSE_FEATURES = 13
ZIPF_EXPONENT = 1.05
CALIBRATION_BATCHES = 4
LACKS = {"cuda-graphs": "dlrm's bags differ from batch to batch, and a CUDA graph has fixed shapes"}
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


class Data:
    """A pool of batches: dense features, one (ids, offsets) per table, labels."""

    def __init__(self, args, size, rank):
        self.batches = []
        draw = common.Draw(args.seed, "dlrm/%s" % args.mode + ("/%d" % rank if rank else ""))
        tables = [(Zipf(rows), rows, bag) for rows, bag in size["tables"].items()]
        factor = INFER_FACTOR if args.mode == "infer" else 1
        for _ in range(max(1, size["pool"] // factor)):
            self.batches.append(self._batch(draw, tables, size["batch"] * factor, args.torch_dtype))

    def pin(self):
        """In memory that a GPU can fetch from by itself."""
        self.batches = [(dense.pin_memory(), [(ids.pin_memory(), offsets.pin_memory()) for ids, offsets in sparse],
                         labels.pin_memory()) for dense, sparse, labels in self.batches]

    @staticmethod
    def _batch(draw, tables, batch, dtype):
        dense = draw.uniform(batch * DENSE_FEATURES).reshape(batch, DENSE_FEATURES) * 2 - 1
        score = dense[:, 0] - dense[:, 1] + dense[:, 2] * dense[:, 3]
        sparse = []
        for zipf, rows, mean in tables:
            lengths = 1 + draw.integers(batch, 2 * mean - 1)
            ends = numpy.cumsum(lengths)
            ids = zipf.ids(draw, int(ends[-1]))
            offsets = ends - lengths
            first = ids[offsets]  # the first id of a bag has a hidden effect of its own
            score = score + (first * 40503 % 1024) * 2.0 ** -10 - 0.5
            sparse.append((torch.from_numpy(ids), torch.from_numpy(offsets)))
        labels = draw.uniform(batch) < numpy.clip(0.5 + score * 0.25, 0.02, 0.98)
        return (torch.from_numpy(dense).to(dtype), sparse,
                torch.from_numpy(labels.astype(numpy.float64)).to(dtype))


class Dlrm(nn.Module):
    def __init__(self, size):
        super().__init__()
        dim, count = size["dim"], len(size["tables"]) + 1
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, dim, mode="sum", sparse=True)
                                    for rows in size["tables"])
        self.bottom = nn.Sequential(nn.Linear(DENSE_FEATURES, 8 * dim), nn.ReLU(),
                                    nn.Linear(8 * dim, 4 * dim), nn.ReLU(),
                                    nn.Linear(4 * dim, dim), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(dim + count * (count - 1) // 2, 16 * dim), nn.ReLU(),
                                 nn.Linear(16 * dim, 8 * dim), nn.ReLU(), nn.Linear(8 * dim, 1))
        pairs = [(i, j) for i in range(count) for j in range(i)]
        self.register_buffer("left", torch.tensor([i for i, _ in pairs]), persistent=False)
        self.register_buffer("right", torch.tensor([j for _, j in pairs]), persistent=False)

    def forward(self, dense, sparse):
        return self.interact(dense, [table(ids, offsets) for table, (ids, offsets) in zip(self.tables, sparse)])

    def interact(self, dense, vectors):
        """Logits from the dense features [batch, 13] and one vector [batch, dim] a table."""
        bottom = self.bottom(dense)
        stacked = torch.stack([bottom] + vectors, dim=1)                    # [batch, tables + 1, dim]
        dots = torch.bmm(stacked, stacked.transpose(1, 2))       # [batch, tables + 1, tables + 1]
        features = torch.cat([bottom, dots[:, self.left, self.right]], dim=1)
        return self.top(features).squeeze(1)


def dynamic(tables, dim):
    """What of a batch changes: how many ids the bags of a table hold."""
    return None, [({0: dim.AUTO}, None) for _ in range(tables)]


class Work:
    def __init__(self, args, rank=0, make=None):
        """make: the model of one of several ranks, with bags in place of tables and the networks inside."""
        size = SIZES[args.size]
        self.model = make() if make else common.prepare(args, Dlrm(size))
        self._args, self._data = args, Data(args, size, rank)
        if common.pins(args):
            self._data.pin()
        self.samples = len(self._data.batches[0][2])
        self._run = common.variant(args, self.model, [self.batch(i)[:2] for i in range(CALIBRATION_BATCHES)],
                                   functools.partial(dynamic, len(size["tables"])), LACKS)
        common.quiet_sparse()
        if args.mode == "train":
            networks = self.model.networks if make else self.model
            tables = list((self.model.bags if make else self.model.tables).parameters())
            rest = list(networks.bottom.parameters()) + list(networks.top.parameters())
            self._optimizers = [torch.optim.SGD(rest, lr=0.1)]
            if tables:
                self._optimizers.append(torch.optim.Adagrad(tables, lr=0.01))

    def batch(self, i):
        batches = self._data.batches
        dense, sparse, labels = batches[i % len(batches)]
        if self._args.device == "cpu":
            return dense, sparse, labels
        to = self._args.device
        sparse = [(ids.to(to, non_blocking=True), offsets.to(to, non_blocking=True)) for ids, offsets in sparse]
        return dense.to(to, non_blocking=True), sparse, labels.to(to, non_blocking=True)

    def forward(self, batch):
        dense, sparse, labels = batch
        logits = self._run(dense, sparse)
        return functional.binary_cross_entropy_with_logits(logits, labels), logits

    def update(self):
        common.update(self._args, *self._optimizers)

    def answer(self, batch):
        return self._run(batch[0], batch[1])

    def visible(self, output):
        return output

    def unit(self, batch):
        with torch.no_grad():
            getattr(self.model, "networks", self.model).bottom(batch[0][:16])


def main():
    return common.main("dlrm", Work)


if __name__ == "__main__":
    sys.exit(main())
