# SPDX-License-Identifier: Apache-2.0
"""Planted work beside the steps, that no step waits for: threads and a process of their own that take CPU time.

The words are parsed by plants.py: KIND:P% is busy for P % of the time. Each needs a CPU that the steps do not need; nothing here holds the
interpreter's lock for long, but the process, which has one of its own.
"""
import atexit
import contextlib
import os
import signal
import threading
import time
import zlib

import torch

SLICE_S = 0.05  # busy for a share of each
BLOCK_BYTES = 1 << 18  # of a log that is compressed: some ms without the interpreter's lock
BATCH_ELEMENTS = 1 << 20  # of a batch that is copied
NAME_MAX = 15  # characters of a thread's name in the kernel


def name_thread(name):
    """Of the thread that calls, in the kernel: Python's own name is not before 3.14."""
    with contextlib.suppress(OSError), open("/proc/self/task/%d/comm" % threading.get_native_id(), "w") as file:
        file.write(name[:NAME_MAX])


def _slices(share, unit):
    """unit() again and again for a share of each slice. Yields behind each."""
    while True:
        begin = time.monotonic()
        while time.monotonic() - begin < share * SLICE_S:
            unit()
        yield
        time.sleep(max(0.0, (1 - share) * SLICE_S))


class _Worker(threading.Thread):
    def __init__(self, name, share, unit):
        super().__init__(name=name, daemon=True)
        self._share, self._unit, self._ended = share, unit, threading.Event()
        self.start()
        atexit.register(self._end)  # PyTorch 1.13 aborts where its threads outlive the interpreter

    def run(self):
        name_thread(self.name)
        for _ in _slices(self._share, self._unit):
            if self._ended.is_set():
                return

    def _end(self):
        self._ended.set()
        self.join()


class _Log:
    def __init__(self):
        self._block = os.urandom(BLOCK_BYTES // 2) + bytes(BLOCK_BYTES // 2)

    def compress_log(self):
        zlib.compress(self._block, 6)


class _Batches:
    """Copies as a loader's pinning thread makes them; pinned where there is a GPU."""

    def __init__(self, device):
        self._batch, self._pinned = torch.ones(BATCH_ELEMENTS), torch.empty(BATCH_ELEMENTS)
        if device == "cuda":
            self._pinned = self._pinned.pin_memory()

    def pin_batches(self):
        self._pinned.copy_(self._batch)


def poll_queue():
    """Is there work? There never is, and nothing waits between two looks."""
    waiting = {}
    for key in range(2000):
        if waiting.get(key):
            return key
    return None


def _poll_in_child(share):
    """A worker of a pool that spins. It ends with its parent, at the next slice at the latest."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        atexit.register(_end, pid)
        return
    try:
        name_thread("queue-poller")
        for _ in _slices(share, poll_queue):
            if os.getppid() != parent:
                break
    finally:
        os._exit(0)  # nothing of the parent's is undone here


def _end(pid):
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def start(plant, device):
    """What plant.background names, from now to the end of the process."""
    shares = plant.background
    if "spin" in shares:  # before there are threads: a child has only the one that forked
        _poll_in_child(shares["spin"])
    if "busy" in shares:
        _Worker("log-compressor", shares["busy"], _Log().compress_log)
    if "pinner" in shares:
        _Worker("batch-pinner", shares["pinner"], _Batches(device).pin_batches)
