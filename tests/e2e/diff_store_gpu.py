# SPDX-License-Identifier: Apache-2.0
"""A simulation of ranks with a host and a GPU each: the host calls in order at a cost each, streams run first in first out,
what waits holds the host up, collectives begin when the last rank has come. Gives launches of both sides in turns."""
import math

from diff_store_model import BETWEEN_NS, BLOCK_STEPS, LATENCY_NS, Op, SYNC_NS, US
from diff_store_noise import habits


class Noise:
    """Factors around 1. None of them when there is no generator."""

    def __init__(self, generator):
        self.generator = generator

    def __call__(self, sd):
        return math.exp(self.generator.gauss(0, sd)) if self.generator else 1.0


class Rank:
    """One process with its GPU: a host clock and streams. Collects what a tracer would see."""

    def __init__(self, noise, rank, device_factor, host_factor, habit):
        self.noise, self.rank, self.habit = noise, rank, habit
        self.device_factor, self.host_factor = device_factor, host_factor
        self.now, self.free = 0, {}
        self.ops, self.calls, self.marks, self.phases, self.steps, self.offs, self.runs, self.nccl = [], [], [], [], [], [], [], []
        self.captured, self.sequence = {}, 0

    def spend(self, ns, op):
        begin = self.now
        self.now += max(1, int(ns))
        self.runs.append((begin, self.now, op))
        return begin

    def call(self, op):
        """The host's way to a call: Python first, then the call itself, four tenths of it. Gives the call's begin."""
        cost = op.cost * self.host_factor * self.noise(0.03)
        self.spend(cost * 0.6, op)
        return self.spend(cost * 0.4, op)

    def start(self, stream, ready):
        free = self.free.get(stream)
        return ready if free is None else max(ready, free + BETWEEN_NS)

    def put(self, op, call, start, dur, name, node=None, graph=False):
        self.free[op.stream] = start + dur
        self.ops.append((start, dur, op, call, self.now - call, name, node, graph))

    def wait_until(self, at, name, op):
        begin = self.spend(2 * US, op)
        if at > self.now:
            self.offs.append((self.now, at + SYNC_NS, "cuda", op))
            self.now = at + SYNC_NS
        self.calls.append((begin, self.now, name, "sync", op.phase))

    def step(self, ops, idx, last):
        """A generator: it yields (start, dur) of a collective when its data is ready here, and is sent the end."""
        begin, phase, phase_begin, module = self.now, None, self.now, None
        self.marks.append((self.now, 3, None, idx))
        for op in ops:
            if op.steps is not None and idx not in op.steps:
                continue
            if op.phase != phase:
                if phase:
                    self.phases.append((phase_begin, self.now, phase))
                phase, phase_begin = op.phase, self.now
            if (op.module, op.phase == "backward") != module:
                module = (op.module, op.phase == "backward")
                self.marks.append((self.now, 2 if module[1] else 1, op.module, 0))
            yield from self.run(op)
        if last:
            self.wait_until(max([self.now, *self.free.values()]), "cudaDeviceSynchronize", Op("sync", "cudaDeviceSynchronize", phase="optimizer"))
        self.phases.append((phase_begin, self.now, phase))
        self.marks += [(self.now, 1, None, 0), (self.now, 4, None, idx)]
        self.steps.append((idx, begin, self.now - begin))

    def run(self, op):
        op = self.habit(op)
        dur = max(1, int(op.dur * self.noise(0.012)))
        if op.kind == "host":
            self.spend(dur * self.host_factor, op)
        elif op.kind == "off":
            self.offs.append((self.now, self.now + dur, op.stall, op))
            self.now += dur
        elif op.kind == "call":
            begin = self.now
            self.spend(dur, op)
            self.calls.append((begin, self.now, op.name, "call", op.phase))
        elif op.kind == "sync":
            self.wait_until(max([self.now, *self.free.values()]) if "Device" in op.name else self.free.get(op.stream, 0), op.name, op)
        elif op.kind == "wait":
            self.spend(op.cost, op)
            self.free[op.stream] = max(self.free.get(op.stream, 0), self.free.get(op.other, 0))
        elif op.kind == "graph":
            call = self.call(op)
            ready = self.now + LATENCY_NS
            for k, node in enumerate(op.nodes):
                self.captured.setdefault(k, node)
                self.put(node, call, self.start(node.stream, ready), max(1, int(node.dur * self.device_factor * self.noise(0.012))),
                         node.name, k, True)
        else:
            call = self.call(op)
            start = self.start(op.stream, self.now + LATENCY_NS)
            dur = max(1, int(dur * (self.device_factor if op.kind == "kernel" else 1.0)))
            if op.kind == "collective":
                end = yield start, dur
                self.nccl.append((call, start, end, op, self.sequence))
                self.sequence += 1
                dur = end - start
            self.put(op, call, start, dur, op.name)


def run_steps(ranks, steps, last_of):
    """All ranks through the same steps: (idx, ops of each rank). A collective ends on all when the last has come."""
    for idx, ops in steps:
        generators = [rank.step(ops[i], idx, last_of(idx)) for i, rank in enumerate(ranks)]
        asked = [next(g, None) for g in generators]
        while asked[0] is not None:
            end = max(start for start, _ in asked) + max(dur for _, dur in asked)
            asked = [next_of(g, end) for g in generators]
        end = max(rank.now for rank in ranks)
        if last_of(idx):  # arrival at the gate: together
            for rank in ranks:
                rank.now = end


def next_of(generator, value):
    try:
        return generator.send(value)
    except StopIteration:
        return None


class Launch:
    def __init__(self, noise, ranks, traced, kind):
        habit = habits(kind, noise.generator)
        device, host = noise(0.002) * habit.device, noise(0.004) * habit.host
        host *= 1.04 if traced else 1.0  # what tracing costs
        self.ranks = [Rank(noise, r, device * noise(0.0005), host, habit) for r in range(ranks)]
        self.blocks = []

    def block(self, ops, begin, first, count, drift):
        for rank in self.ranks:
            rank.now = begin
            rank.free.clear()
            saved = rank.device_factor, rank.host_factor
            rank.device_factor, rank.host_factor = saved[0] * drift, saved[1] * drift
            rank.saved = saved
        run_steps(self.ranks, [(first + i, ops) for i in range(count)], lambda idx: idx == first + count - 1)
        for rank in self.ranks:
            rank.device_factor, rank.host_factor = rank.saved
        end = max(rank.now for rank in self.ranks)
        self.blocks.append((begin, end - begin, first, count))
        return end


def run_pair(sides, generator, couples, ranks, traced, begin, kind="quiet"):
    """Both launches of a pair in turns. sides: their op lists by rank; kind: of noise, diff_store_noise.KINDS."""
    noise = Noise(generator)
    launches = [Launch(noise, ranks, traced, kind) for _ in sides]
    now, order = begin, []
    for couple in range(couples):
        first = generator.randrange(2) if generator else couple % 2
        count = 1 if couple == 0 else BLOCK_STEPS
        at = 0 if couple == 0 else 1 + (couple - 1) * BLOCK_STEPS
        drift = noise(0.002)
        order.append(first)
        for side in (first, 1 - first):
            now = launches[side].block(sides[side], now + 60 * US, at, count, drift)
    return launches, order, now
