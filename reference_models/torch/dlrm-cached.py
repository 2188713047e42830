# SPDX-License-Identifier: Apache-2.0
"""dlrm-cached: a dlrm whose ids are not known beforehand, with a look-ahead cache between the memory of the host and the device.

Ids are 64-bit numbers: most are of a fixed set after Zipf's law, a tenth are of the latest items, and with every batch come some that
were never seen before.
Their rows (vector and Adagrad sum) live in a store of the host that grows; the device has a cache of fewer rows. A look ahead of
LOOK_AHEAD batches says what will be needed: missing rows are fetched, rows that no coming batch wants are written back, the
least recently used first. A row of a new id starts with values of its id, whatever the order in which ids come. Training
changes the rows in the cache; what is written back is what comes again.
"""
import collections
import sys

import cli  # before torch: it sets the thread counts
import common
import dlrm
import numpy
import torch
from dlrm_data import Zipf
from torch import nn
from torch.nn import functional

import upgate

LOOK_AHEAD = 3
FRESH, RECENT = 0.1, 10  # share of latest items; how many of them there are, in windows of the smallest table
LEARNING_RATE, EPSILON = 0.01, 1e-10
# tables: popular ids -> mean ids in a bag; drift: how many items are new with a batch
SIZES = {
    "small": dict(tables={400: 3, 50: 2}, dim=8, batch=32, drift=4, cache=420),
    "demo": dict(tables={30000: 6, 10000: 4, 3000: 4, 600: 2, 60: 1}, dim=32, batch=128, drift=16, cache=6000),
    "large": dict(tables={2000000: 20, 500000: 10, 100000: 10, 20000: 4, 2000: 2}, dim=128, batch=1024, drift=1000, cache=400000),
}


class Stream:
    """Batches drawn one after the other: dense [batch, 13], per table (ids, offsets), labels."""

    def __init__(self, args, size):
        self._args, self._size, self._next = args, size, 0
        self._draw = common.Draw(args.seed, "dlrm-cached/" + args.mode)
        self._zipf = [Zipf(window) for window in size["tables"]]

    def draw(self):
        draw, size, at = self._draw, self._size, self._next
        self._next += 1
        batch, sparse = size["batch"], []
        dense = draw.uniform(batch * dlrm.DENSE_FEATURES).reshape(batch, -1) * 2 - 1
        score = dense[:, 0] - dense[:, 1] + dense[:, 2] * dense[:, 3]
        for table, (zipf, mean) in enumerate(zip(self._zipf, size["tables"].values())):
            lengths = 1 + draw.integers(batch, 2 * mean - 1)
            ends = numpy.cumsum(lengths)
            ids = zipf.ids(draw, int(ends[-1]))
            # A tenth is of the latest items, and newest ones come with every batch.
            latest, age = draw.uniform(len(ids)) < FRESH, draw.uniform(len(ids)) ** 2 * min(size["tables"]) * RECENT
            ids = numpy.where(latest, (1 << 36) + at * size["drift"] - age.astype("int64"), ids) + (table << 40)
            first = ids[ends - lengths]
            score = score + (first * 40503 % 1024) * 2.0 ** -10 - 0.5
            sparse.append((ids, torch.from_numpy(ends - lengths)))
        labels = draw.uniform(batch) < numpy.clip(0.5 + score * 0.25, 0.02, 0.98)
        dtype = self._args.torch_dtype
        return (torch.from_numpy(dense).to(dtype), sparse, torch.from_numpy(labels.astype("float64")).to(dtype))


class Store:
    """All rows that ever were, in the memory of the host: [vector, Adagrad sum] of each id."""

    def __init__(self, args, dim):
        self._places, self._args, self._dim = {}, args, dim
        self._rows = torch.zeros(1024, 2 * dim, dtype=args.torch_dtype)
        self.new = 0

    def _fresh(self, ids):
        counter = (numpy.array(ids, dtype=numpy.uint64)[:, None] * numpy.uint64(0x9E3779B97F4A7C15)
                   + numpy.arange(1, self._dim + 1, dtype=numpy.uint64) * numpy.uint64(0xBF58476D1CE4E5B9)
                   + numpy.uint64(self._args.seed & (2 ** 64 - 1)))
        bits = common.mix_all(counter) >> numpy.uint64(11)
        bound = self._dim ** -0.5
        return torch.from_numpy(bits.astype(numpy.float64) * (2 * bound * 2.0 ** -53) - bound).to(self._args.torch_dtype)

    def place(self, ids):
        """Places of the ids in the store; those never seen before get one, and their first values."""
        new = [one for one in ids if one not in self._places]
        if new:
            begin = len(self._places)
            self._places.update(zip(new, range(begin, begin + len(new))))
            while len(self._places) > len(self._rows):
                self._rows = torch.cat([self._rows, torch.zeros_like(self._rows)])
            self._rows[begin:begin + len(new), :self._dim] = self._fresh(new)
            self.new += len(new)
        return torch.tensor([self._places[one] for one in ids], dtype=torch.int64)

    def fetch(self, ids):
        places = self.place(ids)  # it may make the store larger
        return self._rows[places]

    def put(self, ids, rows):
        places = self.place(ids)
        self._rows[places] = rows


class Cache:
    """Rows on the device. Every id of the batches ahead has a slot; others keep theirs until somebody needs it."""

    def __init__(self, args, size):
        self._store, self._device = Store(args, size["dim"]), args.device
        count = args.cache or size["cache"]
        self.rows = torch.zeros(count, 2 * size["dim"], dtype=args.torch_dtype, device=args.device)
        self._slots = collections.OrderedDict()  # id -> slot, least recently used first
        self._free, self._wanted = list(range(count - 1, -1, -1)), collections.Counter()
        self._fail, self.hits, self.misses = args.fail, 0, 0

    @property
    def new(self):
        return self._store.new

    def _victims(self, count):
        found = []
        for one in self._slots:
            if len(found) == count:
                break
            if not self._wanted[one]:
                found.append(one)
        if len(found) < count:
            self._fail("argument --cache: the batches ahead want more than %d rows" % len(self.rows))
        return found

    def want(self, ids):
        """A batch that comes: its rows are there from now on, until it is done()."""
        distinct = numpy.unique(numpy.concatenate(ids)).tolist()
        self._wanted.update(distinct)
        missing = [one for one in distinct if one not in self._slots]
        self.misses += len(missing)
        self.hits += len(distinct) - len(missing)
        victims = self._victims(max(0, len(missing) - len(self._free)))
        if victims:
            slots = [self._slots.pop(one) for one in victims]
            self._store.put(victims, self.rows[torch.tensor(slots, device=self._device)].cpu())
            self._free += slots
        if missing:
            slots = [self._free.pop() for _ in missing]
            rows = self._store.fetch(missing)
            rows = rows.pin_memory() if self._device == "cuda" else rows
            self.rows[torch.tensor(slots, device=self._device)] = rows.to(self._device, non_blocking=True)
            self._slots.update(zip(missing, slots))
        return distinct

    def done(self, distinct):
        for one in distinct:
            self._wanted[one] -= 1
            if not self._wanted[one]:
                del self._wanted[one]

    def places(self, ids):
        """Slots of ids that batches ahead want. Who is evicted next does not depend on this."""
        return torch.tensor([self._slots[one] for one in ids.tolist()], dtype=torch.int64, device=self._device)

    def slots(self, ids):
        """The same of a batch that is computed now."""
        for one in numpy.unique(ids).tolist():  # in an order that the native twin has too: who is evicted depends on it
            self._slots.move_to_end(one)
        return self.places(ids)


class Work:
    def __init__(self, args):
        size = SIZES[args.size]
        networks = dict(tables=dict.fromkeys(range(1, len(size["tables"]) + 1), 1), dim=size["dim"])
        self.model = dlrm.Dlrm(networks)
        self.model.tables = nn.ModuleList()
        common.prepare(args, self.model)
        self._args, self._size, self.samples = args, size, size["batch"]
        self._stream, self._cache = Stream(args, size), Cache(args, size)
        self._ahead = collections.deque()
        for _ in range(LOOK_AHEAD):
            self._look_ahead()
        # What the variants see is the dense part: its shapes are fixed, and the cache is no part of a graph. Real batches: of zeros the
        # scores are zeros, which any serving graph gives, and int8 would be calibrated for them.
        self._dense = Dense(self.model).train(args.mode == "train")
        self._run = common.variant(args, self._dense, [self._example(batch) for batch, _ in self._ahead])
        common.quiet_sparse()
        if args.mode == "train":
            self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def _look_ahead(self):
        batch = self._stream.draw()
        self._ahead.append((batch, self._cache.want([ids for ids, _ in batch[1]])))

    def batch(self, i):
        self._look_ahead()
        (dense, sparse, labels), self._distinct = self._ahead.popleft()
        slots = [(self._cache.slots(ids), offsets.to(self._args.device)) for ids, offsets in sparse]
        return dense.to(self._args.device), slots, labels.to(self._args.device)

    def _example(self, batch):
        dense, sparse, _ = batch
        slots = [(self._cache.places(ids), offsets.to(self._args.device)) for ids, offsets in sparse]
        vectors = self._vectors(slots, self._cache.rows[:, :self._size["dim"]].detach())
        return dense.to(self._args.device), vectors.requires_grad_(self._args.mode == "train")

    def _vectors(self, sparse, weights):
        return torch.stack([functional.embedding_bag(slots, weights, offsets, mode="sum", sparse=weights.requires_grad)
                            for slots, offsets in sparse])

    def forward(self, batch):
        dense, sparse, labels = batch
        self._leaf = self._cache.rows[:, :self._size["dim"]].detach().requires_grad_()
        logits = self._run(dense, self._vectors(sparse, self._leaf))
        return functional.binary_cross_entropy_with_logits(logits, labels), logits

    def update(self):
        gradient, dim = self._leaf.grad.coalesce(), self._size["dim"]
        rows, values = gradient.indices()[0], gradient.values()
        if self._args.scaler:
            values = values / self._args.scaler.get_scale()
        common.update(self._args, self._optimizer)
        if self._args.scaler and not torch.isfinite(values).all():
            rows, values = rows[:0], values[:0]  # the scaler leaves such a step out
        kept = self._cache.rows[rows]
        kept[:, dim:] += values * values
        kept[:, :dim] -= LEARNING_RATE * values / (kept[:, dim:].sqrt() + EPSILON)
        self._cache.rows[rows] = kept
        self._cache.done(self._distinct)
        self._leaf = None

    def answer(self, batch):
        scores = self._run(batch[0], self._vectors(batch[1], self._cache.rows[:, :self._size["dim"]]))
        self._cache.done(self._distinct)
        return scores

    def visible(self, output):
        return output.contiguous()

    def unit(self, batch):
        with torch.no_grad():
            self.model.bottom(batch[0][:16])

    def note(self):
        """How well the cache did: of the distinct ids of all batches."""
        cache = self._cache
        for name, value in (("cache_hits", cache.hits), ("cache_misses", cache.misses), ("new_ids", cache.new)):
            upgate.note(name, value)
        self._args.extra = {"cache_hits": cache.hits, "cache_misses": cache.misses, "new_ids": cache.new}


class Dense(nn.Module):
    def __init__(self, networks):
        super().__init__()
        self.networks = networks

    def forward(self, dense, vectors):
        return self.networks.interact(dense, list(vectors.unbind(0)))


def main():
    return common.main("dlrm-cached", Work, [("--cache", dict(type=cli.rows, default=0, metavar="ROWS", help="of the cache; default: "
                                                              "of the size"))])


if __name__ == "__main__":
    sys.exit(main())
