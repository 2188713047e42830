#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trainer of an embedding model as they run in production, small: the table lies in host memory in 4 KiB pages,
each step gathers rows into a fresh staging buffer, trains a small dense network (PyTorch where it is, on the CPU or
with --device cuda; else numpy), and writes the rows back. The staging buffer is larger than what malloc keeps, so each
step calls mmap and munmap: what anybody who holds mmap_lock of this process holds up.

At the end one line of JSON: steps, median and 99th percentile of their time, and how much slower steps cost. A
demo program for `upgate record` and `upgate stalls`; knows nothing about either."""
import argparse
import json
import mmap
import os
import sys
import time

DIM = 64
STAGING_BYTES = 40 << 20  # glibc's malloc never keeps more than 32 MiB of one piece


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=40, help="how long to train (default 40)")
    parser.add_argument("--table-gib", type=float, default=3, help="size of the embedding table (default 3)")
    parser.add_argument("--lookups", type=int, default=8192, help="rows a step (default 8192)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the dense network is")
    parser.add_argument("--ready", metavar="FILE", help="made when the first steps are done")
    parser.add_argument("--stats", metavar="FILE", help="the line of JSON goes there too")
    return parser.parse_args()


def make_table(gib):
    """Anonymous memory in small pages, as a table grown row by row has it, all of it touched."""
    size = int(gib * (1 << 30)) // (DIM * 4) * DIM * 4
    memory = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(0, size, mmap.PAGESIZE):
        memory[page] = 1
    return memory


class TorchStep:
    def __init__(self, memory, args):
        import torch
        self.torch, self.device, self.lookups = torch, args.device, args.lookups
        torch.manual_seed(7)
        torch.set_num_threads(1)
        self.table = torch.frombuffer(memory, dtype=torch.float32).view(-1, DIM)
        self.net = torch.nn.Sequential(torch.nn.Linear(DIM, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)).to(args.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)

    def stage(self, index):
        """A fresh buffer, as caching allocators of the host side do not keep it."""
        buffer = self.torch.empty(STAGING_BYTES // 4, dtype=self.torch.float32)
        rows = buffer[:self.lookups * DIM].view(-1, DIM)
        self.torch.index_select(self.table, 0, index, out=rows)
        return rows

    def step(self):
        torch = self.torch
        index = torch.randint(0, self.table.shape[0], (self.lookups,))
        rows = self.stage(index).to(self.device).requires_grad_()
        loss = self.net(rows.clamp(-1, 1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.table.index_add_(0, index, rows.grad.to("cpu"), alpha=-1e-3)
        return float(loss)


class NumpyStep:
    def __init__(self, memory, args):
        import numpy
        self.numpy, self.lookups = numpy, args.lookups
        self.random = numpy.random.default_rng(7)
        self.table = numpy.frombuffer(memory, dtype=numpy.float32).reshape(-1, DIM)
        self.weights = self.random.standard_normal((DIM, 128), dtype=numpy.float32)

    def stage(self, index):
        buffer = self.numpy.empty(STAGING_BYTES // 4, dtype=self.numpy.float32)
        rows = buffer[:self.lookups * DIM].reshape(-1, DIM)
        self.numpy.take(self.table, index, axis=0, out=rows)
        return rows

    def step(self):
        index = self.random.integers(0, self.table.shape[0], self.lookups)
        rows = self.stage(index).clip(-1, 1)
        hidden = (rows @ self.weights).clip(0)
        self.table[index] -= 1e-6 * (hidden @ self.weights.T)
        return float((hidden * hidden).mean())


def make_step(memory, args):
    for kind in (TorchStep, NumpyStep):
        try:
            return kind(memory, args)
        except ImportError as error:
            print(f"trainer: {error}", file=sys.stderr)
            if kind is TorchStep and args.device == "cuda":
                sys.exit("trainer: --device cuda needs PyTorch")
    sys.exit("trainer: neither PyTorch nor numpy is installed for " + sys.executable)


def summary(times, backend):
    ordered = sorted(times)
    median = ordered[len(ordered) // 2]
    slow = [t for t in times if t > 2 * median]
    return {"backend": backend, "steps": len(times), "median_ms": round(1e3 * median, 3),
            "p99_ms": round(1e3 * ordered[int(0.99 * (len(ordered) - 1))], 3),
            "max_ms": round(1e3 * ordered[-1], 3), "slow_steps": len(slow),
            "lost_share": round(sum(t - median for t in slow) / sum(times), 4)}


def main():
    args = arguments()
    memory = make_table(args.table_gib)
    work = make_step(memory, args)
    for _ in range(20):
        work.step()
    if args.ready:
        with open(args.ready, "w") as file:
            print(os.getpid(), file=file)
    times, end = [], time.monotonic() + args.seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        work.step()
        times.append(time.monotonic() - begin)
    line = json.dumps(summary(times, type(work).__name__))
    print(line)
    if args.stats:
        with open(args.stats, "w") as file:
            print(line, file=file)


if __name__ == "__main__":
    main()
