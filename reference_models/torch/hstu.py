# SPDX-License-Identifier: Apache-2.0
"""hstu: a generative recommender on PyTorch: long histories of users, pointwise attention without softmax.

A user's history and, behind it, the targets that are to be ranked: the history is read causally, every
target sees all of it and itself, so that one pass scores them all. SiLU of the scores plus a relative
bias, divided by the longest history; gated by a projection of the input. Plain SGD, sparse on the items.
Data is drawn at the start from --seed and cycled through: whether a target is clicked depends on the item
and on what the user clicked before, so the loss falls. The native hstu draws and computes the same.
"""
import sys

import cli  # before torch: it sets the thread counts
import common
import room
import torch
import variants
from torch import nn
from torch.nn import functional

TASTES = 4
CALIBRATION_BATCHES = 4
LACKS = {("cuda-graphs", "train"): "the sparse gradients of hstu's items have no fixed shape: no CUDA graph"}
INFER_FACTOR = 4  # a request has fewer users and more targets than a training step
TARGET = 2        # the action of what is not known yet
SIZES = {
    "small": dict(items=500, history=16, targets=4, batch=4, dim=16, heads=2, layers=1, pool=8, rate=0.05),
    "demo": dict(items=20000, history=64, targets=8, batch=8, dim=64, heads=2, layers=2, pool=32, rate=0.05),
    "large": dict(items=1000000, history=2048, targets=64, batch=8, dim=512, heads=4, layers=4, pool=8, rate=0.005),
}


def places(size):
    """How many differences of places there can be, in either mode: weights of a training serve requests."""
    return size["history"] + INFER_FACTOR * size["targets"]


class Data:
    """A pool of batches: items, actions [batch, history + targets], lengths of the histories [batch], labels
    [batch, targets]."""

    def __init__(self, args, size):
        infer = args.mode == "infer"
        self.batch = max(1, size["batch"] // INFER_FACTOR) if infer else size["batch"]
        self.targets = size["targets"] * INFER_FACTOR if infer else size["targets"]
        draw = common.Draw(args.seed, "hstu/" + args.mode)
        self.batches = [self._batch(draw, size, args) for _ in range(size["pool"])]

    def _batch(self, draw, size, args):
        users, history, seen = self.batch, size["history"], size["history"] + self.targets
        lengths = history - draw.integers(users, history // 2 + 1)
        taste = draw.integers(users, TASTES)[:, None]
        first, second = draw.uniform(users * seen), draw.uniform(users * seen)
        items = (first * second * size["items"]).astype("int64").reshape(users, seen)
        chance = draw.uniform(users * seen).reshape(users, seen)
        liked = items % TASTES == taste
        actions = (chance < 0.3 + 0.5 * liked).astype("int64")
        actions[:, history:] = TARGET
        clicked = chance < 0.25 + 0.25 * liked + (items * 40503 % 1024) * 2.0 ** -12
        tensors = [torch.from_numpy(value) for value in (items, actions, lengths)]
        tensors.append(torch.from_numpy(clicked[:, history:].astype("float64")).to(args.torch_dtype))
        return [value.pin_memory() for value in tensors] if common.pins(args) else tensors


class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        dim = size["dim"]
        self.heads, self.history = size["heads"], size["history"]
        self.norm = nn.LayerNorm(dim)
        self.uvqk = nn.Linear(dim, 4 * dim)
        self.place_bias = nn.Parameter(torch.empty(size["heads"], places(size)))
        self.gate_norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, dim)

    def attend(self, v, q, k, bias, seen):
        batch, length, dim = q.shape
        v, q, k = (part.view(batch, length, self.heads, dim // self.heads).transpose(1, 2) for part in (v, q, k))
        scores = q @ k.transpose(-2, -1) * (dim // self.heads) ** -0.5 + bias
        y = (functional.silu(scores) * seen) @ v                                 # [batch, heads, length, head]
        return y.transpose(1, 2).reshape(batch, length, dim)

    def forward(self, x, distance, seen):
        u, v, q, k = functional.silu(self.uvqk(self.norm(x))).chunk(4, dim=-1)
        # Of each row its own: what gather sends back has few duplicates in a row, those of indexing would be added one by one.
        places = self.place_bias[None, :, None].expand(x.shape[0], -1, x.shape[1], -1)
        bias = places.gather(3, distance[:, None].expand(-1, self.heads, -1, -1))  # [batch, heads, length, length]
        return x + self.out(self.gate_norm(self.attend(v, q, k, bias, seen)) * u)


class Hstu(nn.Module):
    def __init__(self, size):
        super().__init__()
        dim = size["dim"]
        self.history = size["history"]
        self.items = nn.Embedding(size["items"], dim, sparse=True)
        self.actions = nn.Embedding(TARGET + 1, dim)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size["layers"]))
        self.final_norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 1)

    def forward(self, items, actions, lengths):
        """Logits of the targets, which stand behind the longest possible history: [batch, targets]."""
        index = torch.arange(items.shape[1], device=items.device)
        target = index >= self.history
        # What stands behind the end of a shorter history is padding: nobody sees it.
        known = index < torch.minimum(lengths, torch.full_like(lengths, self.history))[:, None]
        seen = torch.where(target[:, None], known[:, None, :] | (index[:, None] == index),
                           known[:, None, :] & (index[:, None] >= index))         # [batch, query, key]
        place = torch.where(target, lengths[:, None] + index - self.history, index)
        distance = (place[:, :, None] - place[:, None, :]).clamp(min=0)          # [batch, query, key]
        x = self.items(items) + self.actions(actions)
        share = seen[:, None].to(x.dtype) / self.history
        for layer in self.layers:
            x = layer(x, distance, share)
        return self.head(self.final_norm(x[:, self.history:])).squeeze(2)


class Work:
    def __init__(self, args):
        size = SIZES[args.size]
        room.check(args, [size["items"]], size["dim"])
        self.model = common.prepare(args, Hstu(size))
        self._args, self._data = args, Data(args, size)
        self.samples, self.period = self._data.batch * self._data.targets, size["pool"]
        variants.outside_of_graphs(args, self.model.items)
        self._run = common.variant(args, self.model, [self.batch(i)[:3] for i in range(CALIBRATION_BATCHES)], lacks=LACKS)
        if args.mode == "train":
            common.quiet_sparse()
            self._optimizer = torch.optim.SGD(self.model.parameters(), lr=size["rate"])

    def batch(self, i):
        batches = self._data.batches
        return common.to_device(self._args, batches[i % len(batches)])

    def forward(self, batch):
        logits = self._run(*batch[:3])
        return functional.binary_cross_entropy_with_logits(logits, batch[3]), logits

    def update(self):
        common.update(self._args, self._optimizer)

    def answer(self, batch):
        return self._run(*batch[:3])

    def visible(self, output):
        return output.contiguous()

    def unit(self, batch):
        with torch.no_grad():
            layer = self.model.layers[0]
            layer.uvqk(layer.norm(self.model.items(batch[0][:1, :16])))


def main():
    return common.main("hstu", Work)


if __name__ == "__main__":
    sys.exit(main())
