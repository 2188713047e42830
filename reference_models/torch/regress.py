# SPDX-License-Identifier: Apache-2.0
"""Planted regressions of the PyTorch reference workloads: what a version that got slower does in every step.

The words are parsed by plants.py. Each kind is a function whose name says what it is, so that a profile of the
workload reads like one of a real program. Shares are found from the steps themselves: what a step took without
the plants is known from those before it, and what a unit of a plant runs over is taken off the next step.
"""
import ctypes
import gc
import os
import queue
import tempfile
import threading
import time

import background
import first
import rare
import torch
from kept import Kept
from torch.nn import functional

COLD_STEPS = 3  # not yet what a step takes later
SLEEP_LEAST_NS = 60000  # shorter sleeps are mostly the timer's slack
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)


# ---- one unit of each kind -----------------------------------------------------------------------

class _Units:
    """Small pieces of work, a few 10 us each."""

    def __init__(self, device):
        self.block = torch.ones(256, 256, device=device)
        self.table = {}
        self.log = None

    def fill_gradients(self):
        self.block.zero_()

    def copy_activations(self):
        self.block.t().contiguous().clone()

    def update_statistics(self):
        """Pure Python, as a callback for logging has it."""
        table = self.table
        for i in range(60):
            key = "metric/%d" % (i % 16)
            table[key] = 0.9 * table.get(key, 0.0) + 0.1 * i

    def write_log(self):
        if self.log is None:
            self.log = tempfile.TemporaryFile(dir=rare.ON_DISK)
        self.log.seek(0)
        self.log.write(b"x" * 4096)
        self.log.flush()
        os.fsync(self.log.fileno())

    def read_memory_use(self):
        with open("/proc/self/statm", "rb") as file:
            file.read()

    def compute_more(self):
        torch.mm(self.block, self.block)


UNITS = {"fill": _Units.fill_gradients, "copy": _Units.copy_activations, "python": _Units.update_statistics,
         "fsync": _Units.write_log, "syscall": _Units.read_memory_use, "compute": _Units.compute_more}


# ---- an operator that got slower -----------------------------------------------------------------

OPERATORS = {"linear": (functional, "linear"), "embedding_bag": (functional, "embedding_bag"),
             "layer_norm": (functional, "layer_norm"), "gelu": (functional, "gelu"),
             "cross_entropy": (functional, "cross_entropy"), "bmm": (torch, "bmm")}


class _SlowOperator:
    """Stands in for a function of the framework: calls it, and again until its share is used up."""

    def __init__(self, regress, name, share):
        module, attribute = OPERATORS[name]
        self._regress, self._share, self._original = regress, share, getattr(module, attribute)
        self._owed_ns, self._calls, self._calls_before = 0.0, 0, 1
        setattr(module, attribute, self.call)

    def call(self, *args, **options):
        result = self._original(*args, **options)
        self._calls += 1
        self._owed_ns += self._share * self._regress.step_ns / self._calls_before
        if self._owed_ns > 0:
            begin = time.perf_counter_ns()
            with torch.no_grad():
                while self._owed_ns > 0:
                    before = time.perf_counter_ns()
                    self._original(*args, **options)
                    self._owed_ns -= time.perf_counter_ns() - before
            self._regress.own_ns += time.perf_counter_ns() - begin
        return result

    def end_step(self):
        self._calls_before, self._calls = max(1, self._calls), 0


class _Loader(threading.Thread):
    """A data loader that is too slow: the step waits for what it hands over."""

    def __init__(self):
        super().__init__(name="loader", daemon=True)
        self._asked, self._given = queue.Queue(), queue.Queue()
        self.start()

    def run(self):
        while True:
            time.sleep(self._asked.get())
            self._given.put(None)

    def next_batch(self, seconds):
        self._asked.put(seconds)
        self._given.get()


# ---- what is switched ----------------------------------------------------------------------------

def switch(plant):
    """Before the model is made: defaults of the process that an upgrade may change."""
    if "threads1" in plant.flags:
        torch.set_num_threads(1)
    if "nomkldnn" in plant.flags:
        torch._C._set_mkldnn_enabled(False)
    if "anomaly" in plant.flags:
        torch.autograd.set_detect_anomaly(True)
    if "mmap" in plant.flags:  # every larger block comes from the kernel and goes back to it
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 64 << 10)
        libc.mallopt(M_TRIM_THRESHOLD, 0)
    if "mathattention" in plant.flags:  # no fused kernel takes this head size or mask
        for kind in ("flash", "mem_efficient", "cudnn"):
            switch_off = getattr(torch.backends.cuda, "enable_%s_sdp" % kind, None)
            if switch_off:
                switch_off(False)
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = "notf32" not in plant.flags
        torch.backends.cudnn.enabled = "nocudnn" not in plant.flags


class _Hooks:
    """A callback for every module, before and after it: 4,000 calls a step and more in real trainers."""

    def __init__(self, model):
        self._seen = {}
        for module in model.modules():
            module.register_forward_hook(self.on_forward)

    def on_forward(self, module, inputs, output):
        name = type(module).__name__
        for i in range(50):
            self._seen[name] = self._seen.get(name, 0) + i


class _ShortMemory:
    """Room for one of two blocks that are asked for in turns, each on a stream of its own: a stream's cached block does
    not serve another's, so every time the allocator asks the driver in vain, gives its cache back and asks again."""

    BYTES, STEPS_BEFORE = 1 << 30, 5

    def __init__(self):
        self._streams, self._steps = (torch.cuda.Stream(), torch.cuda.Stream()), 0

    def allocate(self):
        self._steps += 1
        if self._steps < self.STEPS_BEFORE:  # what the step itself needs is not known yet
            return
        if self._steps == self.STEPS_BEFORE:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 1.5 * self.BYTES) / total)
        for stream in self._streams:
            with torch.cuda.stream(stream):
                torch.empty(self.BYTES, dtype=torch.uint8, device="cuda")


class Regress:
    """Around the steps of one process. begin, data, forward, end are called in each."""

    def __init__(self, args, work):
        self._plant, self._args, self._work = args.plant, args, work
        self.number = 0  # of the step that runs, from 1 on
        self.step_ns, self.own_ns, self._begin_ns = 0.0, 0, 0
        self._units = _Units(args.device)
        self._owed_ns = dict.fromkeys(UNITS, 0.0)
        self._sleep_ns = 0.0
        shares = self._plant.shares
        self._operators = [_SlowOperator(self, name, share) for name, share in self._plant.operators.items()]
        self._loader = _Loader() if "loader" in shares else None
        last = int(os.environ.get("RANK", "0")) + 1 == args.ranks
        self._straggles = shares.get("straggle", 0.0) if last else 0.0
        if "hooks" in self._plant.flags:
            self._hooks = _Hooks(work.model)
        self._short = _ShortMemory() if "allocretry" in self._plant.flags and args.device == "cuda" else None
        background.start(self._plant, args.device)
        first.before_steps(self._plant)
        self._rare = rare.Rare(self, args, work) if self._plant.rare else None
        self._kept = Kept(args) if self._plant.kept else None
        self._any = bool(shares or self._operators or self._rare)

    def begin(self):
        self.number += 1
        self.own_ns, self._begin_ns = 0, time.perf_counter_ns()

    def data(self):
        """In the phase that gets the data."""
        if self._loader:
            self._wait_for_loader()
        if self._straggles:
            self._repeat("compute", self._straggles)
        if self._rare:
            self._rare.data()

    def request(self, batch):
        """What is computed in place of it, where requests are padded."""
        return self._rare.request(batch) if self._rare else batch

    def forward(self, loss, scores=None):
        """In the phase that computes."""
        if self._rare:
            self._rare.forward()
        for kind in UNITS:
            share = self._plant.shares.get(kind, 0.0)
            if share:
                self._repeat(kind, share)
        if "item" in self._plant.flags and loss is not None:
            loss.item()
        if "sync" in self._plant.flags and self._args.device == "cuda":
            torch.cuda.synchronize()
        if "emptycache" in self._plant.flags and self._args.device == "cuda":
            torch.cuda.empty_cache()
        if self._short:
            self._short.allocate()
        if self._kept:
            self._kept.step(scores)
        if self.number == 1:
            first.in_first_step(self._plant, self._work)

    def end(self):
        """In the step, last."""
        if self._rare:
            self._rare.end()
        if self._plant.gc_steps and self.number % self._plant.gc_steps == 0:
            gc.collect()
        if self._plant.recompile_steps and self.number % self._plant.recompile_steps == 0:
            import torch._dynamo as dynamo
            dynamo.reset()
        if not self._any:
            return
        for operator in self._operators:
            operator.end_step()
        plain_ns = time.perf_counter_ns() - self._begin_ns - self.own_ns
        if self.number > COLD_STEPS:
            if self.step_ns:
                plain_ns = min(plain_ns, 2 * self.step_ns)  # it was disturbed
            self.step_ns += (0.1 if self.step_ns else 1) * (plain_ns - self.step_ns)

    def _wait_for_loader(self):
        self._sleep_ns += self._plant.shares["loader"] * self.step_ns
        if self._sleep_ns < SLEEP_LEAST_NS:
            return
        begin = time.perf_counter_ns()
        self._loader.next_batch(self._sleep_ns / 1e9)
        took = time.perf_counter_ns() - begin
        self._sleep_ns -= took
        self.own_ns += took

    def _repeat(self, kind, share):
        target = share * self.step_ns
        if not target:
            return
        self._owed_ns[kind] += target
        unit, units = UNITS[kind], self._units
        begin = now = time.perf_counter_ns()
        with torch.no_grad():
            while self._owed_ns[kind] > now - begin:
                unit(units)
                now = time.perf_counter_ns()
        self.own_ns += now - begin
        # What a hiccup in a unit took is not saved for ever: it would hide the plant for many steps.
        self._owed_ns[kind] = max(self._owed_ns[kind] - (now - begin), -10 * target)
