# SPDX-License-Identifier: Apache-2.0
"""transformer: a small causal language model over bytes, on PyTorch.

The text is what every Debian carries: /usr/share/common-licenses. Attention is the framework's
scaled_dot_product_attention where it exists (2.0 on) and the explicit softmax form where not: a
default that an upgrade from 1.13 really changes. Pre-norm blocks, GELU, AdamW, cross entropy on
the next byte. A request of inference is a batch of prompts, answered with the logits of the next
byte; no key-value cache.
"""
import os
import sys

import cli  # before torch: it sets the thread counts
import common
import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

TEXT_DIR = "/usr/share/common-licenses"
VOCABULARY = 256
HAS_SDPA = hasattr(functional, "scaled_dot_product_attention")
SIZES = {
    "small": dict(layers=1, dim=32, heads=2, context=32, batch=4),
    "demo": dict(layers=2, dim=128, heads=4, context=64, batch=4),
    "large": dict(layers=12, dim=768, heads=12, context=512, batch=16),
}


def licence_text():
    """The licence texts, in the order of their names; without them this repository's licence."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.join(here, "..", "..", "LICENSE")]
    if os.path.isdir(TEXT_DIR):
        names = sorted(os.listdir(TEXT_DIR))
        paths = [p for p in (os.path.join(TEXT_DIR, n) for n in names)
                 if os.path.isfile(p) and not os.path.islink(p)] or paths
    text = b""
    for path in paths:
        with open(path, "rb") as file:
            text += file.read()
    return torch.from_numpy(numpy.frombuffer(text, dtype=numpy.uint8).astype(numpy.int64))


def explicit_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return torch.softmax(scores + mask, dim=-1) @ v


class Block(nn.Module):
    def __init__(self, dim, heads, context, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.attention_norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        if not fused:
            # Added, and not of type bool: gloo in 1.13 cannot send bool buffers to the other ranks.
            mask = torch.full((context, context), float("-inf")).triu(1)
            self.register_buffer("mask", mask, persistent=False)

    def attend(self, x):
        batch, length, dim = x.shape
        q, k, v = (part.view(batch, length, self.heads, dim // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(dim, dim=2))
        if self.fused:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = explicit_attention(q, k, v, self.mask[:length, :length])
        return self.out(y.transpose(1, 2).reshape(batch, length, dim))

    def forward(self, x):
        x = x + self.attend(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    def __init__(self, size, fused, recomputes=False):
        super().__init__()
        self.recomputes = recomputes
        dim, context = size["dim"], size["context"]
        self.token = nn.Embedding(VOCABULARY, dim)
        self.position = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, size["heads"], context, fused)
                                    for _ in range(size["layers"]))
        self.final_norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recomputes else block(x)
        return self.head(self.final_norm(x))


class Work:
    def __init__(self, args, rank=0, wrap=None, kept=None):
        """wrap: makes the model one of several ranks; kept: the parameters that this rank updates, of a sharded model."""
        size, flags = SIZES[args.size], args.plant.flags
        self.samples, self._args = size["batch"], args
        self._text = licence_text()
        self._window = torch.arange(size["context"] + 1)
        draw = common.Draw(args.seed, "transformer/%s/%d" % (args.mode, rank))
        starts = draw.integers(args.steps * size["batch"], len(self._text) - size["context"])
        self._starts = torch.from_numpy(starts).view(args.steps, size["batch"])
        self.model = common.prepare(args, Transformer(size, HAS_SDPA and "unfused" not in flags, "checkpoint" in flags))
        self._run = common.variant(args, wrap(self.model) if wrap else self.model, [self.batch(0)[:1]])
        if args.mode == "train":
            options = {"foreach": False} if "singletensor" in flags else {}
            self._optimizer = torch.optim.AdamW((kept or self.model.parameters)(), lr=1e-3, **options)

    def batch(self, i):
        tokens = self._text[self._starts[i][:, None] + self._window].to(self._args.device)
        return tokens[:, :-1], tokens[:, 1:]

    def forward(self, batch):
        tokens, following = batch
        logits = self._run(tokens)
        loss = functional.cross_entropy(logits.reshape(-1, VOCABULARY), following.reshape(-1))
        return loss, logits

    def update(self):
        common.update(self._args, self._optimizer)

    def answer(self, batch):
        return self._run(batch[0])

    def visible(self, output):
        return output[:, -1].contiguous()

    def unit(self, batch):
        model = self.model
        with torch.no_grad():
            model.blocks[0].attend(model.token(batch[0][:1, :16]))


def main():
    return common.main("transformer", Work)


if __name__ == "__main__":
    sys.exit(main())
