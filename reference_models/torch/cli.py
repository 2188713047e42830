# SPDX-License-Identifier: Apache-2.0
"""Command line and plants of the PyTorch reference workloads, without torch.

Reads the command line; writes the thread counts into the environment, where the numeric libraries look
once, when they load: import it before torch. A bad argument costs no import of a framework.
"""
import argparse
import os
import signal
import sys
import time

NAMES_OF_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PLANTS = "slow:PCT%, nan:STEP, crash:STEP, hang:STEP, exit1, leak:BYTES, lowp"


def _threads_of(argv):
    """--threads ahead of the real parser, which reports what is wrong with it."""
    for i, word in enumerate(argv):
        value = word[len("--threads="):] if word.startswith("--threads=") else None
        if word == "--threads" and i + 1 < len(argv):
            value = argv[i + 1]
        if value is not None and value.isdigit() and int(value) > 0:
            return value
    return "1"


# OpenBLAS with threads of its own reads its variable at load; torch.set_num_threads() does not reach it.
for _name in NAMES_OF_THREADS:
    os.environ[_name] = _threads_of(sys.argv[1:])


class Plant:
    """A named fault, put in on request so that tests can ask whether it is found. `lowp`, a silent loss
    of precision in the weights, is done where the weights are made."""

    def __init__(self, spec=None):
        self.kind, _, value = (spec or "none").partition(":")
        self.share, self.step, self.leak_bytes = 0.0, -1, 0
        self._debt_ns, self._base_ns, self._kept = 0.0, 0, []
        if self.kind == "slow":
            self.share = float(value[:-1]) / 100 if value.endswith("%") else float(value)
            if not 0 < self.share <= 10:
                raise ValueError("a share is above 0 and at most 1000%")
        elif self.kind in ("nan", "crash", "hang"):
            self.step = int(value)
            if self.step < 0:
                raise ValueError("steps are counted from 0")
        elif self.kind == "leak":
            scale = {"k": 1 << 10, "m": 1 << 20}.get(value[-1:].lower(), 1)
            self.leak_bytes = int(value if scale == 1 else value[:-1]) * scale
            if self.leak_bytes < 1:
                raise ValueError("a leak has at least 1 byte")
        elif self.kind not in ("none", "exit1", "lowp") or value:
            raise ValueError("no such plant")

    def strike(self, step, poison):
        """Inside step number `step`: what happens once, or adds up. poison() puts a NaN in the model."""
        if self.leak_bytes:
            self._kept.append(bytearray(b"\1") * self.leak_bytes)  # not zeros: they would cost no memory
        if step != self.step:
            return
        if self.kind == "nan":
            poison()
        elif self.kind == "crash":
            sys.stderr.write("plant: crash in step %d\n" % step)
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self.kind == "hang":
            while True:
                time.sleep(3600)

    def drag(self, unit, clock):
        """Repeat `unit`, a small share of the step's own work, until the share of the step before is
        used up; returns the time it took. What a unit runs over is taken off the next step, so that the
        sum is exact."""
        if not self.share or not self._base_ns:
            return 0
        self._debt_ns += self.share * self._base_ns
        begin = now = clock()
        while self._debt_ns > now - begin:
            unit()
            now = clock()
        self._debt_ns = max(self._debt_ns - (now - begin), -self.share * self._base_ns)
        return now - begin

    def step_took(self, elapsed_ns):
        """Without what drag() added."""
        self._base_ns = elapsed_ns


def _count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1, not %s" % text)
    return value


def _rate(text):
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be a rate per second, 0 or more, not %s" % text)
    return value


def _plant(text):
    try:
        return Plant(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError("'%s': %s; known: %s" % (text, error, PLANTS))


def arguments(name, argv=None):
    """The command line of every reference workload. A bad argument ends with status 2."""
    p = argparse.ArgumentParser(prog=name, description="upgate reference workload on PyTorch",
                                allow_abbrev=False)
    p.add_argument("--mode", choices=("train", "infer"), default="train")
    p.add_argument("--steps", type=_count, default=100, help="steps, or requests with --mode infer")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--ranks", type=_count, default=2 if name == "ddp" else 1)
    p.add_argument("--rate", type=_rate, default=0.0, help="requests per second; 0: closed loop")
    p.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    p.add_argument("--threads", type=_count, default=1)
    p.add_argument("--size", choices=("small", "demo", "large"), default="demo")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto",
                   help="auto: cuda where torch sees a device")
    p.add_argument("--compile", action="store_true", help="torch.compile, where the version has it")
    p.add_argument("--plant", type=_plant, default=Plant(), help=PLANTS.replace("%", "%%"))
    args = p.parse_args(argv)
    if name != "ddp" and args.ranks != 1:
        p.error("argument --ranks: %s has one rank; ddp takes more" % name)
    args.name, args.fail = name, p.error
    return args
