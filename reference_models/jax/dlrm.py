# SPDX-License-Identifier: Apache-2.0
"""dlrm: the recommendation model of reference_models/torch in JAX: same tables, batches, labels and start values; one jitted step.

A command of a plan, in an interpreter with jax and numpy:
    command: ["{python}", reference_models/jax/dlrm.py, --steps, "{steps}", --seed, "{seed}", --dtype, "{dtype}"]
Its losses are those of the PyTorch twin to rounding: Adagrad on the rows of the tables that a batch names, SGD on the networks. What is compiled
has fixed shapes, so a bag is as long as the longest there can be; places of it that hold no id name a row behind the table's last.
"""
import sys

import common  # before dlrm_data and room: it says where they are
import dlrm_data
import jax
import jax.numpy as jnp
import numpy
import room
from common import linear

RATE, TABLE_RATE, EPSILON = 0.1, 0.01, 1e-10  # SGD, Adagrad, as torch has it
LAYERS = ("0", "2", "4")                      # of a network, by the names of the PyTorch twin


def network_shapes(size):
    dim, count = size["dim"], len(size["tables"]) + 1
    widths = {"bottom": (dlrm_data.DENSE_FEATURES, 8 * dim, 4 * dim, dim), "top": (dim + count * (count - 1) // 2, 16 * dim, 8 * dim, 1)}
    found = {}
    for name, wide in widths.items():
        for layer, inputs, outputs in zip(LAYERS, wide, wide[1:]):
            found["%s.%s.weight" % (name, layer)] = (outputs, inputs)
            found["%s.%s.bias" % (name, layer)] = (outputs,)
    return found


def padded(ids, offsets, longest, rows):
    """Bags as a matrix [batch, longest]; places without an id hold `rows`."""
    lengths = numpy.diff(numpy.append(offsets, len(ids)))
    bags = numpy.full((len(offsets), longest), rows, dtype=numpy.int32)
    bags[numpy.arange(longest) < lengths[:, None]] = ids
    return bags


def pooled(table, bags):
    """The sum of the rows of each bag, [batch, dim]; no row, 0, where none is named."""
    return table.at[bags].get(mode="fill", fill_value=0).sum(axis=1)


def logits_of(values, dense, vectors):
    """Logits from the dense features [batch, 13] and one vector [batch, dim] a table."""
    bottom = dense
    for layer in LAYERS:
        bottom = jax.nn.relu(linear(values, "bottom." + layer, bottom))
    stacked = jnp.stack([bottom] + vectors, axis=1)  # [batch, tables + 1, dim]
    left, right = numpy.tril_indices(stacked.shape[1], -1)
    x = jnp.concatenate([bottom, (stacked @ stacked.transpose(0, 2, 1))[:, left, right]], axis=1)
    for layer in LAYERS[:-1]:
        x = jax.nn.relu(linear(values, "top." + layer, x))
    return linear(values, "top." + LAYERS[-1], x)[:, 0]


def loss_of(values, vectors, dense, labels):
    logits = logits_of(values, dense, vectors)
    # Binary cross entropy that overflows nowhere.
    return (jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits)))).mean(), logits


def adagrad(table, total, bags, slopes):
    """Table and sums of squares after a step, from the gradient [batch, dim] of its pooled vectors. A row that is named several times has the sum
    of their gradients; rows that are not named are not read."""
    flat = bags.reshape(-1)
    rows, place = jnp.unique(flat, return_inverse=True, size=flat.size, fill_value=table.shape[0])
    slope = jax.ops.segment_sum(jnp.repeat(slopes, bags.shape[1], axis=0), place.reshape(-1), num_segments=flat.size)
    square = total.at[rows].get(mode="fill", fill_value=0) + slope * slope
    moved = TABLE_RATE * slope / (jnp.sqrt(square) + EPSILON)
    return table.at[rows].add(-moved, mode="drop"), total.at[rows].set(square, mode="drop")


class Dlrm:
    """State: the parameters of the networks by name, and the tables; in training also the sums of Adagrad."""

    def __init__(self, args):
        self._args, self._size = args, dlrm_data.SIZES[args.size]
        room.check(args, list(self._size["tables"]), self._size["dim"], state=1)
        self._batches = [self._fixed(*batch) for batch in dlrm_data.batches(args.seed, args.mode, self._size)]
        self.samples = len(self._batches[0][0])

    def _fixed(self, dense, sparse, labels):
        tables = zip(sparse, self._size["tables"].items())
        bags = [padded(ids, offsets, 2 * mean - 1, rows) for (ids, offsets), (rows, mean) in tables]
        return dense.astype(self._args.dtype), bags, labels.astype(self._args.dtype)

    def start(self):
        names = {"tables.%d.weight" % i: (rows, self._size["dim"]) for i, rows in enumerate(self._size["tables"])}
        networks, tables = common.initial(network_shapes(self._size), self._args), list(common.initial(names, self._args).values())
        if self._args.mode == "infer":
            return networks, tables
        return networks, tables, [jnp.zeros_like(table) for table in tables]

    def batch(self, i):
        return jax.tree.map(jnp.asarray, self._batches[i % len(self._batches)])

    def advance(self, state, _, batch):
        networks, tables, totals = state
        dense, bags, labels = batch
        vectors = [pooled(table, one) for table, one in zip(tables, bags)]
        (loss, logits), (gradients, slopes) = jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True)(networks, vectors, dense, labels)
        networks = jax.tree.map(lambda p, g: p - RATE * g, networks, gradients)
        moved = [adagrad(*one) for one in zip(tables, totals, bags, slopes)]
        return (networks, [table for table, _ in moved], [total for _, total in moved]), loss, logits

    def answer(self, state, batch):
        networks, tables = state
        dense, bags, _ = batch
        return logits_of(networks, dense, [pooled(table, one) for table, one in zip(tables, bags)])


def main():
    args = common.arguments("dlrm", dlrm_data.SIZES)
    return common.run(args, Dlrm(args))


if __name__ == "__main__":
    sys.exit(main())
