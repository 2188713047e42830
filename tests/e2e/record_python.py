#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Python program whose kernels must come out of `upgate record` with the module and the step that they belong to, their
Python stack, and the collections between them: the whole way through the injected library, its spool and the store,
against the fake CUDA of tests/mock. The program never asks for any of it. Exits 77 where a part is not built."""
import ctypes
import gc
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
BUILD = os.environ["UPGATE_BUILD"]
MOCK = os.path.join(BUILD, "tests", "mock")
CUPTI = os.path.join(MOCK, "cupti-13.0", "libcupti.so.13")
CUDA = os.path.join(MOCK, "libcuda.so.1")
LIBRARY = os.path.join(BUILD, "libupgate_inject.so")
LAUNCH, CONTEXT, STREAM = 0, 11, 12  # enum fake_what
HEARTBEAT_AT = 64  # struct ug_spool_header
STEPS = 3


class FakeOp(ctypes.Structure):
    """struct fake_op of tests/mock/fake.h"""
    _fields_ = [(name, ctypes.c_uint32) for name in ("what", "kind", "device", "context", "stream", "graph", "nodes")] + [
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("bytes", ctypes.c_uint64),
        ("address", ctypes.c_uint64), ("id", ctypes.c_uint64), ("name", ctypes.c_char_p), ("domain", ctypes.c_char_p)]


def wait_until(what, condition):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("waited 60 s until %s" % what)
        time.sleep(0.01)


def is_recorded():
    """Has the recorder found the spool of this process? Whoever ends before that has not been recorded."""
    for name in os.listdir("/proc/self/fd"):
        path = os.path.join("/proc/self/fd", name)
        try:
            if "memfd:upgate-spool" in os.readlink(path):
                with open(path, "rb") as file:
                    file.seek(HEARTBEAT_AT)
                    return file.read(4) != bytes(4)
        except OSError:
            pass  # the folder's own, closed meanwhile
    return False


def program():
    ctypes.CDLL(CUPTI, ctypes.RTLD_GLOBAL)
    cuda = ctypes.CDLL(CUDA)
    one = (ctypes.c_uint32 * 3)(1, 1, 1)

    def play(what, name=None):
        op = FakeOp(what=what, context=1, stream=7, grid=one, block=one, name=name)
        return cuda.fake_op(ctypes.byref(op))

    assert cuda.cuInit(0) == 0
    play(CONTEXT)
    play(STREAM)
    wait_until("tracing has begun", lambda: "upgate._trace" in sys.modules and gc.callbacks)
    wait_until("the recorder is there", is_recorded)
    from python_trace import collect, fake_torch
    torch = fake_torch()

    class Leaf(torch.nn.Module):
        def __init__(self, kernel):
            super(Leaf, self).__init__()
            self.kernel = kernel

        def forward(self, x):
            play(LAUNCH, self.kernel)
            return x

    class Block(torch.nn.Module):
        def __init__(self, number):
            super(Block, self).__init__()
            self.attn, self.mlp = Leaf(b"attn%d" % number), Leaf(b"mlp%d" % number)

        def forward(self, x):
            play(LAUNCH, b"norm")
            return self.mlp(self.attn(x))

    class Net(torch.nn.Module):
        def __init__(self):
            super(Net, self).__init__()
            self.layers = torch.nn.ModuleList([Block(0), Block(1)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    collect()
    net = Net()
    other = Leaf(b"elsewhere")
    import upgate  # for the steps alone: what began above is the same package
    for _ in upgate.steps(range(STEPS)):
        net(1)
        thread = threading.Thread(target=other, args=(1,), name="feeder")
        thread.start()
        thread.join()
        play(LAUNCH, b"loss")
    gc.collect()


def check(db):
    store = sqlite3.connect(db)
    rows = store.execute("SELECT name, module, python_step, correlation FROM v_gpu_op WHERE kind = 'kernel' ORDER BY start_ns").fetchall()
    wanted = []
    for step in range(STEPS):
        for block in range(2):
            wanted += [("norm", "layers.%d" % block, step), ("attn%d" % block, "layers.%d.attn" % block, step),
                       ("mlp%d" % block, "layers.%d.mlp" % block, step)]
        wanted += [("elsewhere", "Leaf", step), ("loss", None, step)]
    assert sorted(map(str, (row[:3] for row in rows))) == sorted(map(str, wanted)), rows
    assert store.execute("SELECT count(*) FROM python_gc WHERE generation = 2").fetchone()[0] > 0
    assert store.execute("SELECT count(DISTINCT value) FROM python_mark WHERE kind = 3").fetchone() == (STEPS,)
    texts = dict(store.execute("SELECT id, text FROM string"))
    stacks = {correlation: [texts[frame] for frame in json.loads(frames)]
              for correlation, frames in store.execute("SELECT correlation, frames FROM launch_stack")}
    for name, module, _, correlation in rows:
        stack = stacks[correlation]
        assert "play (" in stack[0], stack
        assert any("Net.forward (" in frame or " forward (" in frame for frame in stack) or name in ("loss", "elsewhere"), stack
        assert ("forward (" in stack[1]) == (name != "loss"), stack
    lost = store.execute("SELECT producer, dropped, detail FROM v_ledger WHERE producer = 'gpu.python' AND dropped > 0").fetchall()
    assert lost == [], lost
    return len(rows), len(stacks)


def preload():
    """The fakes of a sanitized build want the sanitizer's library before all others: ["env", …], [] for other builds."""
    for line in subprocess.run(["ldd", CUDA], stdout=subprocess.PIPE, text=True).stdout.splitlines():
        if "libasan" in line:
            return ["env", "LD_PRELOAD=" + line.split()[2], "ASAN_OPTIONS=detect_leaks=0"]
    return []


def main():
    if sys.argv[1:] == ["--program"]:
        program()
        return 0
    for path in (os.path.join(BUILD, "upgate"), LIBRARY, CUPTI, CUDA, os.path.join(BUILD, "python/upgate/_core.abi3.so")):
        if not os.path.exists(path):
            print("skipped: %s is not built" % path)
            return 77
    with tempfile.TemporaryDirectory(prefix="upgate-record-python-") as folder:
        db = os.path.join(folder, "run.db")
        done = subprocess.run(
            [os.path.join(BUILD, "upgate"), "record", "-o", db, "--launch-stacks", "--"] + preload() +
            [sys.executable, os.path.abspath(__file__), "--program"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200, text=True)
        if done.returncode != 0:
            print(done.stdout)
            return 1
        print("%d kernels with their modules and steps, %d stacks" % check(db))
    return 0


if __name__ == "__main__":
    sys.exit(main())
