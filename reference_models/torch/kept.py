# SPDX-License-Identifier: Apache-2.0
"""Planted memory: what a program keeps, loads twice or wastes, though each step is as it was. The words are parsed by plants.py.

cache:BYTES and graph:TERMS grow in each step; table:BYTES:COPIES and oddsizes:BYTES are there before the first one. Pages are written, since
those of zeros would cost nothing. graph and oddsizes are of the device, the others of the host.
"""
import numpy
import torch

BLOCK_BYTES = 60000  # below what malloc asks the kernel for by itself: it comes from the heap, as it is: numpy aligns nothing
GROWN_BYTES = 4096  # so much more does not fit where a block was
# Of a GPU: PyTorch's allocator takes 20 MiB for blocks of less than 10 MiB, and cuts them.
GPU_BLOCK_BYTES, GPU_GROWN_BYTES = 5 << 20, 1 << 19


class Kept:
    """Of one process. Called in the forward pass of each step."""

    def __init__(self, args):
        kept = args.plant.kept
        if "graph" in kept and args.mode != "train":
            args.fail("argument --plant: graph is of --mode train")
        self._cache_bytes, self._terms = kept.get("cache", 0), kept.get("graph", 0)
        self._features, self._loss_sum, self._tables, self._buffers = {}, 0.0, [], []
        size, copies = kept.get("table", (0, 0))
        for _ in range(copies):
            self._tables.append(self.load_table(size))
        for word, odd in (("oddsizes", True), ("evensizes", False)):
            if word in kept and args.device == "cuda":
                self._buffers = self.cut_gpu_buffers(kept[word] // GPU_BLOCK_BYTES, GPU_GROWN_BYTES if odd else 0)
            elif word in kept:
                self._buffers = self.cut_buffers(kept[word] // BLOCK_BYTES, GROWN_BYTES if odd else 0)

    def step(self, scores):
        if self._cache_bytes:
            self.remember_features()
        if self._terms and scores is not None:
            self.sum_losses(scores)

    def remember_features(self):
        """A cache by step, of which nobody removes anything."""
        self._features[len(self._features)] = torch.ones(max(1, self._cache_bytes // 4))

    def sum_losses(self, scores):
        """A metric of each step is summed with its graph, as without .item() or .detach(): what the graph saved stays."""
        for _ in range(self._terms):
            self._loss_sum = self._loss_sum + (scores * 0.5).square().mean()

    @staticmethod
    def load_table(size):
        return torch.rand(max(1, size // 4), generator=torch.Generator().manual_seed(1))

    @staticmethod
    def cut_buffers(count, grown):
        """Every second one of many blocks is given back, and as many are asked for again. grown: by so much larger, so that no hole
        takes one, and the heap grows by half."""
        blocks = [numpy.ones(BLOCK_BYTES, numpy.uint8) for _ in range(count)]
        del blocks[::2]
        return blocks + [numpy.ones(BLOCK_BYTES + grown, numpy.uint8) for _ in range(count - len(blocks))]

    @staticmethod
    def cut_gpu_buffers(count, grown):
        """The same of a GPU: half of the blocks become holes of its allocator that no block fits into."""
        blocks = [torch.empty(GPU_BLOCK_BYTES, dtype=torch.uint8, device="cuda") for _ in range(count)]
        del blocks[::2]
        return blocks + [torch.empty(GPU_BLOCK_BYTES + grown, dtype=torch.uint8, device="cuda") for _ in range(count - len(blocks))]
