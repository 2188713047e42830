# SPDX-License-Identifier: Apache-2.0
"""Noise that real machines have from launch to launch, and that no number of windows within a launch tells: each kind gives a launch
its habits, which it keeps to its end. What tests/e2e/diff_store_gpu.py has besides (1.2 % for each operation, 0.2 % for each launch's
device) is called quiet."""
import math

AUTOTUNED = 0.25  # of the launches choose another algorithm
CLOCK_LOW, CLOCK_FACTOR = 0.3, 1.04  # of the launches run with a lower clock; by how much
HOST_SLOW, HOST_FACTOR = 0.2, 1.08  # the same for the host: where its memory came to lie
RARE, RARE_FACTOR = 0.0005, 20  # of the operations take that many times as long
KERNELS = ("kernel", "copy", "set")


class Habits:
    """Of a launch without noise of its own. device, host: factors of all that runs there."""

    def __init__(self, generator):
        self.generator, self.device, self.host, self.made = generator, 1.0, 1.0, {}

    def __call__(self, op):
        """The op as this launch does it."""
        if id(op) not in self.made:
            changed = self.change(op)
            if op.nodes:
                changed = changed.but(nodes=tuple(self(node) for node in op.nodes))
            self.made[id(op)] = op, changed
        return self.once(self.made[id(op)][1])

    def change(self, op):
        return op

    def once(self, op):
        return op


class Kernels(Habits):
    """Every kernel and every function by a factor of its own, wherever it runs: cache, placement, alignment."""

    def __init__(self, generator, sd=0.01):
        super().__init__(generator)
        self.sd, self.factors = sd, {}

    def factor(self):
        return math.exp(self.generator.gauss(0, self.sd))

    def change(self, op):
        key = op.kind, op.name, op.python
        if key not in self.factors:
            self.factors[key] = self.factor(), self.factor()
        dur, cost = self.factors[key]
        return op.but(dur=int(op.dur * dur), cost=int(op.cost * cost))


class Kernels2(Kernels):
    """The same, 2 %."""

    def __init__(self, generator):
        super().__init__(generator, 0.02)


class Unlike(Kernels):
    """The same, but a few kernels by 6 %, and most by 0.2 %: by their names."""

    def change(self, op):
        self.sd = 0.06 if sum(op.name.encode()) % 7 == 0 else 0.002
        return super().change(op)


class Autotuned(Habits):
    """A library that measures its algorithms in every launch: some choose another one for a product, by another name and 2 to 15 % slower."""

    def __init__(self, generator):
        super().__init__(generator)
        self.other = {}

    def change(self, op):
        if not op.gemm:
            return op
        if op.name not in self.other:
            self.other[op.name] = self.generator.random() < AUTOTUNED
        slower = 1.02 + 0.13 * (sum(op.name.encode()) % 100) / 100
        return op.but(name=op.name.replace("128x128_16x4", "256x64_32x3"), dur=int(op.dur * slower)) if self.other[op.name] else op


class Modes(Habits):
    """Launches of two kinds: some have a lower clock, some a slower host."""

    def __init__(self, generator):
        super().__init__(generator)
        self.device = CLOCK_FACTOR if generator.random() < CLOCK_LOW else 1.0
        self.host = HOST_FACTOR if generator.random() < HOST_SLOW else 1.0


class Tails(Kernels):
    """As Kernels, by Student's t of 2 degrees (no variance), and rare operations that take 20 times as long."""

    def factor(self):
        t = self.generator.gauss(0, 1) / math.sqrt(self.generator.expovariate(1))
        return max(0.8, min(1.5, 1 + 0.004 * t))

    def once(self, op):
        return op.but(dur=op.dur * RARE_FACTOR) if op.dur and self.generator.random() < RARE else op


KINDS = {"quiet": Habits, "kernels-1": Kernels, "kernels-2": Kernels2, "unlike": Unlike, "autotuned": Autotuned, "modes": Modes, "tails": Tails}


def habits(kind, generator):
    return KINDS[kind](generator) if generator else Habits(None)
