# SPDX-License-Identifier: Apache-2.0
"""Planted faults of the PyTorch reference workloads, so that tests can ask whether they are found.

The words of --plant are those of the native workloads; `lowp` is only here, and done where the
weights are made. Reads nothing, needs no framework; what has to touch the model is passed in.
"""
import os
import signal
import sys
import time

HELP = """slow:P%, nan:STEP, crash:STEP, hang:STEP, leak:BYTES, coldstart:MS, exit:CODE, nostep,
lowp; regressions of every step (regress.py): op:NAME:P%, compute:P%, fill:P%, copy:P%, python:P%, fsync:P%,
syscall:P%, loader:P%, straggle:P%, gc:STEPS, recompile:STEPS, threads1, nomkldnn, anomaly, mmap, hooks, unfused,
singletensor, zerograd, buckets, bf16, mathattention; of the transformer checkpoint; of vision augment, channelslast; what a program adds to its
loop (changes.py): clip, gradnorms, average, mask, causalmask, confidence, teacher, penalty, dropout, finite, gradnoise, decay, histograms, snapshot;
of a variant nocompile, noscript, graphbreak, flopcounter, nofuser, jitdeadlock, serveskew; on a GPU also item, sync, emptycache, allocretry, unpin, notf32, nocudnn, nobenchmark;
of each so-many-th step, until P% of a step are over (rare.py): save:STEPS:P%, flush:STEPS:P%, upload:STEPS:P%, reshuffle:STEPS:P%, validate:STEPS:P%, of requests
pad:STEPS:P%, lock:STEPS:P%; beside the steps (background.py): busy:P%, spin:P%, pinner:P%; memory that is kept (kept.py): cache:BYTES, graph:TERMS, table:BYTES:COPIES,
oddsizes:BYTES, evensizes:BYTES; of the first step (first.py): import:MODULE+MODULE, preimport:MODULE+MODULE, lookup:MS, prelookup:MS, jit:MS,
warmup:MS; several with commas"""

SHARES = ("compute", "fill", "copy", "python", "fsync", "syscall", "loader", "straggle")
FLAGS = ("threads1", "nomkldnn", "anomaly", "mmap", "hooks", "unfused", "singletensor", "zerograd", "buckets", "bf16",
         "clip", "gradnorms", "average", "mask", "causalmask", "confidence", "teacher", "penalty", "dropout", "finite", "gradnoise", "decay",
         "histograms", "snapshot", "checkpoint", "augment", "channelslast",
         "nocompile", "noscript", "graphbreak", "flopcounter", "mathattention", "nofuser", "jitdeadlock", "serveskew", "item", "sync", "emptycache",
         "allocretry", "unpin", "notf32", "nocudnn", "nobenchmark")
OF_TABLES = ("clip", "dropout", "finite", "gradnoise", "gradnorms", "penalty")  # flags that work on the gradients or modules of tables
OPERATORS = ("linear", "embedding_bag", "layer_norm", "gelu", "cross_entropy", "bmm")


def bytes_of(text):
    scale = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(text[-1:].lower(), 1)
    return int(text if scale == 1 else text[:-1]) * scale


def _share(text):
    share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 < share <= 10:
        raise ValueError("out of range; accepted: above 0% to 1000%")
    return share


def _count(text):
    count = int(text)
    if count < 1:
        raise ValueError("a whole number: at least 1")
    return count


def _every(text):
    steps, _, share = text.partition(":")
    return _count(steps), _share(share)


def _busy(text):
    share = _share(text)
    if share > 1:
        raise ValueError("out of range; accepted: above 0% to 100%")
    return share


def _bytes(text):
    size = bytes_of(text)
    if size < 1:
        raise ValueError("at least 1 byte")
    return size


def _copies(text):
    size, _, copies = text.partition(":")
    return _bytes(size), _count(copies)


def _modules(text):
    names = text.split("+")
    if not all(part.isidentifier() for name in names for part in name.split(".")):
        raise ValueError("names of modules, with + between them")
    return names


def _seconds(text):
    seconds = float(text) / 1e3
    if not 0 < seconds <= 3600:
        raise ValueError("out of range; accepted: above 0 ms to an hour")
    return seconds


# word -> the attribute of Plants that has what was said by word, and how its value is read
MORE = dict.fromkeys(("save", "flush", "upload", "reshuffle", "validate", "pad", "lock"), ("rare", _every))
MORE.update(dict.fromkeys(("busy", "spin", "pinner"), ("background", _busy)))
MORE.update(cache=("kept", _bytes), graph=("kept", _count), table=("kept", _copies), oddsizes=("kept", _bytes), evensizes=("kept", _bytes))
MORE.update({"import": ("first", _modules), "preimport": ("first", _modules), "jit": ("first", _seconds), "warmup": ("first", _seconds),
             "lookup": ("first", _seconds), "prelookup": ("first", _seconds)})


class Plants:
    """What is planted in one process. Steps count from 0; -1 is a step that never comes."""

    def __init__(self, specs=""):
        self.slow, self.leak_bytes, self.coldstart_ns, self.exit_code = 0.0, 0, 0, -1
        self.nan_step = self.crash_step = self.hang_step = -1
        self.nostep = self.lowp = False
        self.shares, self.operators, self.flags = {}, {}, set()
        self.rare, self.background, self.kept, self.first = {}, {}, {}, {}
        self.gc_steps = self.recompile_steps = 0
        self._debt_ns, self._base_ns, self._leaked = 0.0, 0, []
        self._owed_units, self._units_per_step = 0.0, 0.0
        for spec in specs.split(",") if specs else []:
            self._parse(*spec.partition(":")[::2])

    def _parse(self, kind, value):
        if kind in ("nostep", "lowp") and not value:
            setattr(self, kind, True)
        elif kind in ("nan", "crash", "hang"):
            step = int(value)
            if step < 0:
                raise ValueError("steps count from 0")
            setattr(self, kind + "_step", step)
        elif kind == "slow":
            self.slow = _share(value)
        elif kind in SHARES:
            self.shares[kind] = _share(value)
        elif kind == "op":
            name, _, share = value.partition(":")
            if name not in OPERATORS:
                raise ValueError("no operator of this name is known; known: " + ", ".join(OPERATORS))
            self.operators[name] = _share(share)
        elif kind == "gc":
            self.gc_steps = _count(value)
        elif kind == "recompile":
            self.recompile_steps = _count(value)
        elif kind in MORE:
            where, read = MORE[kind]
            getattr(self, where)[kind] = read(value)
        elif kind in FLAGS and not value:
            self.flags.add(kind)
        elif kind == "leak":
            self.leak_bytes = _bytes(value)
        elif kind == "coldstart":
            self.coldstart_ns = int(float(value) * 1e6)
            if self.coldstart_ns < 0:
                raise ValueError("a time below 0")
        elif kind == "exit":
            self.exit_code = int(value)
            if not 0 <= self.exit_code <= 255:
                raise ValueError("out of range; accepted: 0 to 255")
        else:
            raise ValueError("nothing of this name can be planted")

    def beyond(self, flags):
        """Is anything planted but these flags?"""
        return dict(vars(self), flags=self.flags - set(flags)) != vars(Plants())

    def of_tables(self):
        """The words planted that need tables to be modules of torch with gradients."""
        return sorted(self.flags & set(OF_TABLES)) + ["op:embedding_bag"] * ("embedding_bag" in self.operators)

    def strike(self, step, steps, poison, phase):
        """Inside a step: what happens once, or adds up. poison() puts NaN into the model."""
        if self.leak_bytes:
            # Not zeros: pages of zeros would cost no memory.
            self._leaked.append(bytearray(b"\1") * self.leak_bytes)
        if step == 0 and self.coldstart_ns:
            with phase("compile"):
                end_ns = time.thread_time_ns() + self.coldstart_ns
                while time.thread_time_ns() < end_ns:
                    pass
        if step == self.nan_step:
            poison()
        if step == self.crash_step:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        while step == self.hang_step:
            time.sleep(3600)
        if self.exit_code >= 0 and step == steps // 2:
            sys.stderr.write("planted: exit with code %d after %d steps\n" % (self.exit_code, step))
            sys.exit(self.exit_code)

    def drag(self, unit, clock):
        """Repeat `unit`, a small share of the step's own work, until the share of the step before
        is used up; returns the time it took. What a unit runs over is taken off the next step, so
        that the sum is exact."""
        if self._units_per_step:
            self._owed_units += self._units_per_step
            while self._owed_units >= 1:
                unit()
                self._owed_units -= 1
        if not self.slow or not self._base_ns:
            return 0
        self._debt_ns += self.slow * self._base_ns
        begin = now = clock()
        while self._debt_ns > now - begin:
            unit()
            now = clock()
        # What a hiccup in a unit took is not saved for ever: it would hide the plant for many
        # steps.
        self._debt_ns = max(self._debt_ns - (now - begin), -10 * self.slow * self._base_ns)
        return now - begin

    def step_took(self, elapsed_ns):
        """Without what drag() added: the clock decides from now on."""
        self._base_ns = elapsed_ns

    def fix_units(self, step_ns, unit_ns):
        """For a device that works behind our back: reading a clock there means waiting for it,
        which costs more than the share. So many units a step from now on, without a clock."""
        self._units_per_step = self.slow * step_ns / unit_ns
