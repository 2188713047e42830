# SPDX-License-Identifier: Apache-2.0
"""A PyTorch training loop as an arm (arms.py) or a target: an eager step of about 453 kernels, the same as a
CUDA graph, or a step of large matrix products. Needs torch with CUDA. Commands on stdin, an answer a line:

    round N         N steps: median ns a step
    profiled N      the same inside torch.profiler, CUDA alone
    step            one step between two waits: begin_ns and end_ns (CLOCK_MONOTONIC), elapsed time by CUDA events
    profile         that step inside torch.profiler: names and times of its kernels, of copies and sets
    events N        N large products (--mode gemm) with events around each
    sleep MS        steps, a sleep of MS milliseconds, steps: when it slept
    go S            steps for S seconds: [begin_ns, ns] of each
    quit

    python3 steps_worker.py [--mode eager|graph|gemm] [--layers L]
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-2, -1) * (dim // self.heads) ** -0.5, dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, dim))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn_norm, self.attn = nn.LayerNorm(dim), Attention(dim, heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    def __init__(self, layers, dim=256, heads=4):
        super().__init__()
        self.layers = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.head = nn.Linear(dim, 64)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Products(nn.Module):
    """A matrix product of some 20 ms a layer: what an event or a gap between kernels takes is nothing beside it."""

    def __init__(self, layers, dim=20480):
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(dim, dim, dtype=torch.bfloat16)), torch.empty(dim, dim, dtype=torch.bfloat16)
        self.count = layers

    def forward(self, x):
        for _ in range(self.count):
            torch.mm(x, self.weight, out=self.out)
        return self.out


class Loop:
    def __init__(self, args):
        torch.manual_seed(1)
        torch.backends.cuda.matmul.allow_tf32 = True
        self.mode, self.marks = args.mode, {}
        self.gemm = args.mode == "gemm"
        with torch.device("cuda"):
            if self.gemm:
                self.model = Products(args.layers)
                self.data = torch.randn_like(self.model.weight)
            else:
                self.model, self.data = Model(args.layers), torch.randn(8, 64, 256)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, foreach=False)
        self.replay = None
        for _ in range(3):
            self.work()
        if args.mode == "graph":
            self.capture()
        for _ in range(5):
            self.step()
        torch.cuda.synchronize()

    def work(self):
        if self.gemm:
            with torch.no_grad():
                self.model(self.data)
            return
        begin = time.monotonic_ns()
        loss = self.model(self.data).square().mean()
        middle = time.monotonic_ns()
        loss.backward()
        backward = time.monotonic_ns()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        self.marks = {"forward": [begin, middle], "backward": [middle, backward], "optimizer": [backward, time.monotonic_ns()]}

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.work()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.work()
        self.replay = self.graph.replay

    def step(self):
        (self.replay or self.work)()

    def round(self, count):
        times = []
        torch.cuda.synchronize()
        whole = time.perf_counter_ns()
        for _ in range(count):
            begin = time.perf_counter_ns()
            self.step()
            torch.cuda.synchronize()
            times.append(time.perf_counter_ns() - begin)
        return {"ns": statistics.median(times), "mean_ns": (time.perf_counter_ns() - whole) / count}

    def profiled(self, count):
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CUDA]):
            self.round(3)
            return self.round(count)

    def one_step(self):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin_ns = time.monotonic_ns()
        start.record()
        step = step_marker(self.step)
        end.record()
        torch.cuda.synchronize()
        return {"begin_ns": begin_ns, "end_ns": time.monotonic_ns(), "elapsed_ns": start.elapsed_time(end) * 1e6, "step": step,
                "marks": self.marks if self.mode == "eager" else {}}

    def events(self, count):
        """Products with an event before and behind each: their times, and that of all."""
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        torch.cuda.synchronize()
        begin_ns = time.monotonic_ns()
        with torch.no_grad():
            torch.mm(self.data, self.model.weight, out=self.model.out)  # the CPU gets ahead
            marks[0].record()
            for mark in marks[1:]:
                torch.mm(self.data, self.model.weight, out=self.model.out)
                mark.record()
        torch.cuda.synchronize()
        each = [a.elapsed_time(b) * 1e6 for a, b in zip(marks, marks[1:])]
        return {"begin_ns": begin_ns, "end_ns": time.monotonic_ns(), "each_ns": each, "elapsed_ns": marks[0].elapsed_time(marks[-1]) * 1e6}

    def profile_step(self):
        from torch.profiler import ProfilerActivity, profile
        for _ in range(2):  # the first one warms the profiler up
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                torch.cuda.synchronize()
                self.step()
                torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profiler.export_chrome_trace(path)
            with open(path) as file:
                events = json.load(file)["traceEvents"]
        kinds = {"kernel": [], "gpu_memcpy": [], "gpu_memset": []}
        for event in events:
            if event.get("cat") in kinds:
                kinds[event["cat"]].append([event["name"], event.get("dur", 0)])
        return {"kernels": kinds["kernel"], "copies": len(kinds["gpu_memcpy"]), "sets": len(kinds["gpu_memset"])}

    def sleep(self, milliseconds):
        for _ in range(20):
            self.step()
        torch.cuda.synchronize()
        begin_ns = time.monotonic_ns()
        planted_sleep(milliseconds)
        end_ns = time.monotonic_ns()
        for _ in range(20):
            self.step()
        torch.cuda.synchronize()
        return {"begin_ns": begin_ns, "end_ns": end_ns}

    def go(self, seconds):
        steps, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic_ns()
            self.step()
            torch.cuda.synchronize()
            steps.append([begin, time.monotonic_ns() - begin])
        return {"steps": steps}


def planted_sleep(milliseconds):
    time.sleep(milliseconds / 1000)


_step_index = 0


def step_marker(work):
    """Runs work as a step of upgate where the package is there: its index, or None."""
    global _step_index
    try:
        import upgate
    except ImportError:
        work()
        return None
    for index in upgate.steps(range(_step_index, _step_index + 1)):
        work()
    _step_index += 1
    return _step_index - 1


def answer(loop, words):
    name, number = words[0], float(words[1]) if len(words) > 1 else 0
    if name in ("round", "profiled"):
        return getattr(loop, name)(int(number))
    if name == "step":
        return loop.one_step()
    if name == "events":
        return loop.events(int(number))
    if name == "profile":
        return loop.profile_step()
    if name in ("sleep", "go"):
        return getattr(loop, name)(number)
    return {"error": "no such command"}


def main():
    parser = argparse.ArgumentParser(description="a PyTorch training loop that obeys")
    parser.add_argument("--mode", choices=("eager", "graph", "gemm"), default="eager")
    parser.add_argument("--layers", type=int, default=0, help="0: about 453 kernels, or 2 products")
    args = parser.parse_args()
    args.layers = args.layers or (2 if args.mode == "gemm" else 5)
    loop = Loop(args)
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            break
        try:
            print(json.dumps(answer(loop, words)), flush=True)
        except Exception as error:  # the other questions may still be answered
            print(json.dumps({"error": repr(error)}), flush=True)


if __name__ == "__main__":
    main()
