#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop on the GPU that knows nothing of upgate, for ci/gpu/found_rules. WAY: range (eager, each step in a range of NVTX),
graph (the step captured once and replayed), rounds (two graphs in turn), capture (the range lies inside what is captured, too), cost (replays of
one small kernel, and what each takes the host).
WORK: matrix products of a step, of which 100 take some 5 ms."""
import os
import sys
import time

import torch

SIZE = 1024


def body(work, a, b):
    for _ in range(work):
        torch.mm(a, b, out=b)
    return b.mul_(1 / SIZE)


def captured(work, a, b, name=None):
    """As PyTorch's manual has it: warm up on another stream, then capture."""
    def step():
        if name:
            torch.cuda.nvtx.range_push(name)
        body(work, a, b)
        if name:
            torch.cuda.nvtx.range_pop()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def main():
    way, steps = sys.argv[1], int(sys.argv[2])
    work = int(os.environ.get("WORK", "100"))
    a, b = (torch.randn(SIZE, SIZE, device="cuda") / SIZE**0.5 for _ in range(2))
    begin = time.monotonic()
    if way == "range":
        for step in range(steps):
            torch.cuda.nvtx.range_push("train_step")
            with torch.cuda.nvtx.range("forward"):
                body(work, a, b)
            torch.cuda.nvtx.range_pop()
            if step % 10 == 9:
                b.sum().item()  # as a program logs its loss: else the host is launches ahead
    elif way == "graph":
        graph = captured(work, a, b)
        for step in range(steps):
            graph.replay()
            b[0, 0].item()  # else a step is what a launch takes, some 50 us
    elif way == "rounds":
        first, second = captured(work // 2, a, b), captured(work // 2, a, b)
        for step in range(steps):
            first.replay()
            second.replay()
            b[0, 0].item()
    elif way == "capture":
        for _ in range(2):
            captured(work, a, b, "train_step").replay()
        for _ in range(steps):
            torch.cuda.nvtx.range_push("train_step")
            body(work, a, b)
            torch.cuda.nvtx.range_pop()
    elif way == "cost":
        graph, took = captured(1, a[:32, :32].contiguous(), b[:32, :32].contiguous()), []
        for _ in range(steps):
            before = time.perf_counter_ns()
            for _ in range(200):  # fewer than the driver has room for: it is the host that is measured
                graph.replay()
            took.append((time.perf_counter_ns() - before) / 200e3)
            torch.cuda.synchronize()
        with open(sys.argv[3], "a") as file:
            file.write("%.3f\n" % sorted(took)[len(took) // 2])
    torch.cuda.synchronize()
    print("%s: %d steps, %.2f s" % (way, steps, time.monotonic() - begin))


if __name__ == "__main__":
    main()
