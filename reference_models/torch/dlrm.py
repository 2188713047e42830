# SPDX-License-Identifier: Apache-2.0
"""dlrm: a recommendation model as production runs it, on PyTorch.

Embedding bags over tables of very different sizes, ids after Zipf's law (exponent 1.05), a bottom
network over the dense features, pairwise dot interaction, a top network, binary cross entropy;
sparse Adagrad on the tables, SGD on the rest. Data is drawn at the start from --seed and cycled
through, the labels from a hidden rule, so the loss falls. Not the MLPerf model: sizes are chosen
for steps of a few ms.
"""
import functools
import sys

import cli  # before torch: it sets the thread counts
import common
import room
import torch
from dlrm_data import DENSE_FEATURES, SIZES, batches
from torch import nn
from torch.nn import functional

CALIBRATION_BATCHES = 4
LACKS = {"cuda-graphs": "dlrm's bags differ from batch to batch, and a CUDA graph has fixed shapes"}


class Data:
    """A pool of batches: dense features, one (ids, offsets) per table, labels."""

    def __init__(self, args, size, rank):
        self.batches = [self._tensors(args.torch_dtype, *batch) for batch in batches(args.seed, args.mode, size, rank)]

    def pin(self):
        """In memory that a GPU can fetch from by itself."""
        self.batches = [(dense.pin_memory(), [(ids.pin_memory(), offsets.pin_memory()) for ids, offsets in sparse],
                         labels.pin_memory()) for dense, sparse, labels in self.batches]

    @staticmethod
    def _tensors(dtype, dense, sparse, labels):
        return (torch.from_numpy(dense).to(dtype), [(torch.from_numpy(ids), torch.from_numpy(offsets)) for ids, offsets in sparse],
                torch.from_numpy(labels).to(dtype))


class Dlrm(nn.Module):
    ADAGRAD = dict(lr=0.01, eps=1e-10)  # of the tables

    def __init__(self, size):
        super().__init__()
        self.collection = None  # of the variant torchrec: all tables in one
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
        if self.collection is not None:
            return self.interact(dense, self.collection(sparse))
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
        room.check(args, list(size["tables"]), size["dim"], state=1)
        self.model = make() if make else common.prepare(args, Dlrm(size))
        self._args, self._data = args, Data(args, size, rank)
        if common.pins(args):
            self._data.pin()
        self.samples, self.period = len(self._data.batches[0][2]), len(self._data.batches)
        self._run = common.variant(args, self.model, [self.batch(i)[:2] for i in range(CALIBRATION_BATCHES)],
                                   functools.partial(dynamic, len(size["tables"])), LACKS)
        common.quiet_sparse()
        if args.mode == "train":
            networks = self.model.networks if make else self.model
            tables = list((self.model.bags if make else self.model.tables).parameters())
            rest = list(networks.bottom.parameters()) + list(networks.top.parameters())
            self._optimizers = [torch.optim.SGD(rest, lr=0.1)]
            if tables:  # those of torchrec have theirs inside
                self._optimizers.append(torch.optim.Adagrad(tables, **Dlrm.ADAGRAD))

    def batch(self, i):
        batches = self._data.batches
        dense, sparse, labels = batches[i % len(batches)]
        if self._args.device == "cpu":
            collection = getattr(self.model, "collection", None)
            return dense, collection.features(sparse) if collection is not None else sparse, labels
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
