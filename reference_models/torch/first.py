# SPDX-License-Identifier: Apache-2.0
"""Planted first steps: what was done before the loop, or needs not be done at all, is done when it is first needed. The words are parsed by
plants.py; no later step has any of it.
"""
import importlib
import time

import torch

# One function of many: TorchScript, which all versions have, parses and compiles it.
SOURCE = """
def feature(x: Tensor, scale: float) -> Tensor:
    y = torch.relu(x * scale) + torch.sigmoid(x)
    for i in range(4):
        y = y + torch.tanh(y * float(i)) * 0.5
    return y / (1.0 + y.abs().sum())
"""


def load_plugins(names):
    """Modules that are imported by whoever calls this first."""
    for name in names:
        importlib.import_module(name)


def compile_functions(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        torch.jit.CompilationUnit(SOURCE)


def warm_up(work, seconds):
    """The first batch, again and again: somebody thought that it makes later steps faster."""
    end = time.perf_counter() + seconds
    with torch.no_grad():
        while time.perf_counter() < end:
            work.answer(work.batch(0))


def make_lookup(seconds):
    """A table of names, which is made by whoever needs it first."""
    end = time.perf_counter() + seconds
    table = {}
    while time.perf_counter() < end:
        for number in range(1000):
            table["feature %d" % number] = sorted(str(number * 7919))


def before_steps(plant):
    load_plugins(plant.first.get("preimport", ()))
    if "prelookup" in plant.first:
        make_lookup(plant.first["prelookup"])


def in_first_step(plant, work):
    """In its forward pass."""
    load_plugins(plant.first.get("import", ()))
    if "lookup" in plant.first:
        make_lookup(plant.first["lookup"])
    if "jit" in plant.first:
        compile_functions(plant.first["jit"])
    if "warmup" in plant.first:
        warm_up(work, plant.first["warmup"])
