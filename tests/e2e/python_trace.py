#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tracing of Python (upgate/_trace.py and the C beside it) under every CPython of 3.8 or later that this machine has.

Each case (a function named work_*) runs in a fresh interpreter that loads python_trace_library.c in the place of
libupgate_inject.so; that starts the tracing as the real one does and keeps the records. A torch made of one class stands
in for the modules' side everywhere; with the real one, where an interpreter has it, a training must come out the same
to the bit. Needs UPGATE_BUILD, or the build directory as the only argument. --torch: only the cases that need torch, 77
when no interpreter has it.
"""

import ctypes
import gc
import json
import os
import struct
import subprocess
import sys
import threading
import time
import types
import weakref

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE, BACKWARD, STEP_BEGIN, STEP_END, PHASE_BEGIN, PHASE_END = 1, 2, 3, 4, 5, 6
PYTHON, LAUNCH_STACKS = 0x80, 0x100

# ---- the stand-in for the library, in the interpreter that is tested ----


class Library:
    def __init__(self):
        build = os.environ["UPGATE_BUILD"]
        self.directory = os.path.join(build, "python").encode()
        self.library = ctypes.CDLL(os.path.join(build, "tests/e2e/python_trace/libupgate_inject.so"))
        self.library.stub_records.restype = ctypes.c_void_p
        self.library.stub_bytes.restype = ctypes.c_uint64
        self.library.stub_text.restype = ctypes.c_char_p

    def start(self, kinds=PYTHON):
        self.library.stub_clear()
        assert self.library.stub_python(self.directory, kinds) == 0

    def stop(self):
        assert self.library.stub_python(self.directory, 0) == 0

    def launch(self, correlation):
        self.library.stub_launch(correlation)

    def text(self, id):
        text = self.library.stub_text(id)
        return None if text is None else text.decode()

    def records(self):
        """(type, tid, ...) of each record, names as texts."""
        data = ctypes.string_at(self.library.stub_records(), self.library.stub_bytes())
        at, found = 0, []
        while at < len(data):
            kind, size, tid = struct.unpack_from("<HHI", data, at)
            if kind == 15:
                at_ns, value, name, mark = struct.unpack_from("<QQII", data, at + 8)
                found.append(("mark", tid, mark, self.text(name), value, at_ns))
            elif kind == 16:
                found.append(("gc", tid) + struct.unpack_from("<QQII", data, at + 8))
            elif kind == 5:
                found.append(("thread", tid, self.text(struct.unpack_from("<I", data, at + 8)[0])))
            elif kind == 17:
                correlation, depth = struct.unpack_from("<II", data, at + 8)
                frames = struct.unpack_from("<%dI" % depth, data, at + 16)
                found.append(("stack", tid, correlation, [self.text(frame) for frame in frames]))
            else:
                raise AssertionError("a record of type %d" % kind)
            at += size
        return found

    def names(self, *kinds):
        return [r[3] for r in self.records() if r[0] == "mark" and r[2] in kinds]

    def of(self, kind):
        return [r for r in self.records() if r[0] == kind]


def equal(found, wanted):
    assert found == wanted, "\n  %s\nis not\n  %s" % (found, wanted)


def fake_torch():
    """As much of torch as the hooks look at: torch.nn.Module, whose __call__ is a function of Python."""
    torch, nn = types.ModuleType("torch"), types.ModuleType("torch.nn")
    files = types.ModuleType("torch.nn.modules.module")

    class Module(object):
        def __init__(self):
            self.__dict__["_modules"] = {}

        def __setattr__(self, name, value):
            (self._modules if isinstance(value, Module) else self.__dict__)[name] = value

        def __getattr__(self, name):
            try:
                return self.__dict__["_modules"][name]
            except KeyError:
                raise AttributeError(name)

        def _call_impl(self, *args, **kwargs):
            return self.forward(*args, **kwargs)

        __call__ = _call_impl

    class List(Module):
        def __init__(self, items):
            super(List, self).__init__()
            for i, item in enumerate(items):
                self._modules[str(i)] = item

        def __iter__(self):
            return iter(self._modules.values())

    nn.Module = files.Module = Module
    nn.ModuleList = List
    torch.nn = nn
    sys.modules.update({"torch": torch, "torch.nn": nn, "torch.nn.modules.module": files})
    return torch


def collect():
    """New classes are looked for every 50 ms at least."""
    time.sleep(0.06)
    gc.collect()


def model_of(nn):
    class Leaf(nn.Module):
        def forward(self, x, fail=False):
            if fail:
                raise ValueError("planted")
            return x + 1

    class Block(nn.Module):
        def __init__(self):
            super(Block, self).__init__()
            self.attn = Leaf()
            self.mlp = Leaf()

        def forward(self, x, fail=False):
            return self.mlp(self.attn(x), fail=fail)

    class Net(nn.Module):
        def __init__(self):
            super(Net, self).__init__()
            self.layers = nn.ModuleList([Block(), Block()])
            self.again = self.layers._modules["0"].attn  # shared: the first path counts

        def forward(self, x, fail=False):
            for layer in self.layers:
                x = layer(x, fail=fail)
            return self.again(x)

    return Net, Block, Leaf


PATHS = ["Net", "layers.0", "layers.0.attn", "layers.0", "layers.0.mlp", "layers.0", "Net",
         "layers.1", "layers.1.attn", "layers.1", "layers.1.mlp", "layers.1", "Net", "layers.0.attn", "Net", None]

# ---- cases ----


def work_manners():
    """A program that never imports upgate sees nothing of it, and dormant nothing is written."""
    library = Library()
    before = (list(sys.modules["__main__"].__dict__), list(sys.path), list(sys.meta_path), list(gc.callbacks))
    library.start()
    assert "upgate._trace" in sys.modules
    equal([sys.path, list(sys.modules["__main__"].__dict__)], [before[1], before[0]])
    equal(len(gc.callbacks), len(before[3]) + 1)
    gc.collect()
    assert library.of("gc")
    library.stop()
    equal((list(sys.path), list(sys.meta_path), list(gc.callbacks)), before[1:])
    library.library.stub_clear()
    gc.collect()
    import upgate
    with upgate.step():
        pass
    equal(library.records(), [])
    assert "torch" not in sys.modules


def work_imports():
    """The import at which torch is found, and one beside which the tracing ends, ask every finder of the program."""
    asked = []

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            asked.append(name)

    def ask(name):
        try:
            __import__(name)
        except ImportError:
            return
        raise AssertionError(name)

    library = Library()
    sys.meta_path.insert(0, Finder)
    before = list(sys.meta_path)
    library.start()  # ours stands before it now
    equal(sys.meta_path[1:], before)
    gc.disable()  # a collection is a moment to find torch, too
    fake_torch()
    sys.modules["torch.optim.optimizer"] = types.ModuleType("torch.optim.optimizer")
    del asked[:]
    ask("upgate_none")
    equal((asked, sys.meta_path), (["upgate_none"], before))
    library.stop()
    for name in [name for name in sys.modules if name.startswith("torch")]:
        del sys.modules[name]
    library.start()
    ends = iter(sys.meta_path)
    next(ends)  # as an import that has asked ours
    library.stop()
    assert next(ends) is Finder
    equal(sys.meta_path, before)


def work_collections():
    library = Library()
    gc.collect()
    library.start()
    for _ in range(50):
        cycle = []
        cycle.append(cycle)
    del cycle
    gc.collect()
    full = [r for r in library.of("gc") if r[4] == 2]
    equal(len(full), 1)
    assert full[0][2] <= full[0][3] < full[0][2] + 10**10, full
    assert sum(r[5] for r in library.of("gc")) >= 50, library.of("gc")
    library.stop()


def work_steps():
    library = Library()
    sys.path.insert(0, library.directory.decode())
    import upgate
    with upgate.step():  # dormant
        pass
    with upgate.step():
        library.start()
    with upgate.step():
        with upgate.phase("forward"):
            pass
        with upgate.step():  # ignored
            pass
    equal(len([None for _ in upgate.steps([1, 2])]), 2)
    for _ in upgate.requests(1):
        pass
    other = threading.Thread(target=lambda: upgate.step().__enter__(), name="the other")
    other.start()
    other.join()
    marks = [r for r in library.of("mark")]
    equal([(r[2], r[3] if r[2] >= PHASE_BEGIN else r[4]) for r in marks], [
        (STEP_BEGIN, 0), (PHASE_BEGIN, "forward"), (PHASE_END, "forward"), (STEP_END, 0),
        (STEP_BEGIN, 1), (PHASE_BEGIN, "data"), (PHASE_END, "data"), (STEP_END, 1),
        (STEP_BEGIN, 2), (PHASE_BEGIN, "data"), (PHASE_END, "data"), (STEP_END, 2),
        (STEP_BEGIN, 3), (STEP_END, 3), (STEP_BEGIN, 4)])
    times = [r[5] for r in marks]
    equal(times, sorted(times))
    equal(sorted(r[2] for r in library.of("thread")), ["MainThread", "the other"])
    assert marks[-1][1] != marks[0][1]
    library.stop()


def work_harness():
    """Under a harness a step has the same number there and in the trace."""
    library = Library()
    sys.path.insert(0, library.directory.decode())
    import upgate
    assert upgate.active()
    for _ in upgate.steps(range(2)):
        pass
    library.start()
    for _ in upgate.steps(range(2)):
        with upgate.step():  # ignored by both
            pass
        with upgate.phase("forward"):
            pass
    equal([(r[2], r[3] if r[2] >= PHASE_BEGIN else r[4]) for r in library.of("mark")], [
        mark for step in (2, 3) for mark in (
            (STEP_BEGIN, step), (PHASE_BEGIN, "data"), (PHASE_END, "data"), (PHASE_BEGIN, "forward"), (PHASE_END, "forward"),
            (STEP_END, step))])
    with upgate.step():
        library.stop()
        library.start()
    equal([(r[2], r[3] if r[2] >= PHASE_BEGIN else r[4]) for r in library.of("mark")], [(STEP_END, 4)])
    with upgate.step():
        thread = threading.Thread(target=lambda: upgate.step().__enter__())
        thread.start()
        thread.join()
    equal([(r[2], r[4]) for r in library.of("mark")], [(STEP_END, 4), (STEP_BEGIN, 5), (STEP_END, 5)])
    library.stop()


def work_fork():
    """The child writes nothing and goes on; it may be traced itself."""
    library = Library()
    library.start()
    torch = fake_torch()
    Net, Block, Leaf = model_of(torch.nn)
    collect()
    net = Net()
    net(0)
    if os.fork() == 0:
        before = library.library.stub_bytes()
        equal(net(0), 5)
        gc.collect()
        equal(library.library.stub_bytes(), before)
        library.start()
        net(0)
        equal(library.names(MODULE), PATHS)
        os._exit(0)
    equal(os.wait()[1], 0)
    library.library.stub_clear()
    net(0)
    equal(library.names(MODULE), PATHS)


def work_stacks():
    library = Library()
    library.start(LAUNCH_STACKS)

    def inner():
        library.launch(7)

    def outer():
        inner()

    for _ in range(2):
        outer()
    library.launch(8)
    thread = threading.Thread(target=inner)
    thread.start()
    thread.join()
    stacks = library.of("stack")
    equal([s[2] for s in stacks], [7, 7, 8, 7])
    equal(stacks[0][3], stacks[1][3])
    texts = [frame.rsplit(":", 1)[0].rsplit(".", 2) for frame in stacks[0][3]]
    assert "launch (" in stacks[0][3][0] and "inner (" in stacks[0][3][1] and "outer (" in stacks[0][3][2], texts
    assert stacks[0][3][1].endswith("%s:%d)" % (os.path.basename(__file__), inner.__code__.co_firstlineno + 1)), texts
    library.stop()
    library.library.stub_clear()
    library.launch(9)
    equal(library.records(), [])


def work_modules():
    library = Library()
    library.start()
    torch = fake_torch()
    gc.collect()  # a moment to see that it came
    Net, Block, Leaf = model_of(torch.nn)
    collect()  # and that there are new classes
    library.library.stub_clear()
    net = Net()
    equal(net(0), 5)
    equal(library.names(MODULE), PATHS)
    library.library.stub_clear()
    try:
        net(0, fail=True)
        raise AssertionError("no exception")
    except ValueError as error:
        equal(str(error), "planted")
    equal(library.names(MODULE), PATHS[:6] + ["Net", None])
    assert type(net).__call__ is torch.nn.Module.__dict__["_call_impl"]

    net.layers._modules["1"].late = Leaf()  # a module more, and one that belongs to nobody
    net.layers._modules["1"].forward = lambda x, fail: Leaf()(net.layers._modules["1"].late(x))
    library.library.stub_clear()
    net(0)
    equal(library.names(MODULE)[7:12], ["layers.1", "layers.1.late", "layers.1", "layers.1", "layers.1"])
    for _ in range(20):
        net(0)

    library.library.stub_clear()
    threads = [threading.Thread(target=Net(), args=(0,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_thread = {}
    for r in library.of("mark"):
        by_thread.setdefault(r[1], []).append(r[3])
    equal(list(by_thread.values()), [PATHS] * 4)
    library.stop()
    library.library.stub_clear()
    equal(net(0), 5)
    equal(library.records(), [])
    library.start()
    equal(net(0), 5)
    assert library.names(MODULE)[:2] == ["Net", "layers.0"]
    library.stop()


def work_wrappers():
    library = Library()
    library.start()
    torch = fake_torch()
    gc.collect()
    Net, Block, Leaf = model_of(torch.nn)

    class DistributedDataParallel(torch.nn.Module):
        def __init__(self, module):
            super(DistributedDataParallel, self).__init__()
            self.module = module

        def forward(self, x):
            return self.module(x)

    class OptimizedModule(torch.nn.Module):
        def __init__(self, module):
            super(OptimizedModule, self).__init__()
            self._orig_mod = module

        def forward(self, x):
            return self._orig_mod(x)

    collect()
    net = DistributedDataParallel(OptimizedModule(Net()))
    library.library.stub_clear()
    net(0)
    equal(library.names(MODULE), ["Net", "Net"] + PATHS[:-1] + ["Net", "Net", None])

    gone = [weakref.ref(net), weakref.ref(net.module._orig_mod.layers._modules["1"].mlp)]
    del net
    gc.collect()
    equal([ref() for ref in gone], [None, None])
    for _ in range(300):  # addresses come again with other modules behind them
        library.library.stub_clear()
        net = Block() if _ % 2 else Leaf()
        net(0)
        equal(library.names(MODULE)[0], type(net).__name__)

    impl = torch.nn.Module.__call__  # what a tracer of graphs does: the slots are written anew
    torch.nn.Module.__call__ = lambda self, *args, **kwargs: impl(self, *args, **kwargs)
    torch.nn.Module.__call__ = impl
    collect()
    library.library.stub_clear()
    Net()(0)
    equal(library.names(MODULE), PATHS)
    library.stop()


def work_failures():
    """Ten failures end it, and are said once, in the spool."""
    library = Library()
    torch = fake_torch()
    Net, Block, Leaf = model_of(torch.nn)

    class Node:
        count = 0

        def _sequence_nr(self):
            Node.count += 1
            return Node.count

        def _register_hook_dict(self, tensor):
            raise RuntimeError("planted")

    class Tensor:
        grad_fn = Node()

        def __add__(self, other):
            return self

    library.start()
    library.library.stub_clear()
    sys.modules["upgate._core"].trace_backward(Tensor, Tensor(), None, None)
    leaf = Leaf()
    x = Tensor()
    for _ in range(30):
        assert leaf(x) is x
    said = [r[3] for r in library.of("mark") if r[2] == PHASE_BEGIN]
    equal(said, ["upgate: tracing of Python ended: failed to note a backward pass 10 times"])
    assert library.names(MODULE).count("Leaf") < 20
    library.stop()


def torch_model(torch):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = torch.nn.Linear(8, 8)
            self.mlp = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))

        def forward(self, x):
            return x + self.mlp(torch.nn.functional.gelu(self.attn(x)))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([Block(), Block()])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    return Net()


def train(torch, steps=3):
    torch.manual_seed(1)
    net = torch_model(torch)
    collect()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in net.parameters()]


def work_torch():
    library = Library()
    library.start()  # before torch is there
    import torch

    gc.collect()
    if not hasattr(torch.Tensor, "square"):
        return
    traced = train(torch)
    marks = library.of("mark")
    library.stop()
    plain = train(torch)
    equal(traced[0], plain[0])
    assert all(torch.equal(a, b) for a, b in zip(traced[1], plain[1]))
    forward = [r[3] for r in marks if r[2] == MODULE]
    for path in ("Net", "layers.0.attn", "layers.1.mlp.0"):
        assert path in forward, forward
    version = tuple(int(x) for x in torch.__version__.split(".")[:2])
    if version < (2, 1):
        return
    assert forward.count("optimizer:Adam") == 3, forward
    backward = [r[3] for r in marks if r[2] == BACKWARD]
    one = ["layers.1", "layers.1.mlp.1", "layers.1.mlp.0", "layers.1", "layers.1.attn",
           "layers.0", "layers.0.mlp.1", "layers.0.mlp.0", "layers.0", "layers.0.attn", None]
    equal(backward, 3 * one)

    net = torch_model(torch)
    library.start()
    x = torch.ones(2, 8, requires_grad=True)
    from torch.utils.checkpoint import checkpoint
    checkpoint(net, x, use_reentrant=False).sum().backward()  # its forward runs again in the backward pass
    kinds = [(r[2], r[3]) for r in library.of("mark")]
    assert kinds.count((MODULE, "layers.1.attn")) == 2, kinds
    assert (BACKWARD, "layers.0.attn") in kinds and kinds[-1] == (BACKWARD, None), kinds
    held = torch.ones(2, 8)
    alive = weakref.ref(held)
    out = net(held)
    del held
    assert alive() is not None  # by the graph
    del out
    assert alive() is None
    failing = net(x)
    failing.register_hook(lambda grad: 1 / 0)
    try:
        failing.sum().backward()
    except ZeroDivisionError:
        pass
    library.library.stub_clear()
    net(x).sum().backward()
    equal([r[3] for r in library.of("mark") if r[2] == BACKWARD][-2:], ["layers.0.attn", None])
    library.stop()
    net(x).sum().backward()
    import torch.nn.modules.module as files
    assert not files._global_forward_hooks and not files._global_forward_pre_hooks
    optimizers = sys.modules["torch.optim.optimizer"]
    assert not optimizers._global_optimizer_pre_hooks and not optimizers._global_optimizer_post_hooks
    if sys.version_info < (3, 14):
        compiled_stays_compiled(torch, library)


def compiled_stays_compiled(torch, library):
    import torch._dynamo
    from torch._dynamo.utils import counters

    torch.manual_seed(1)
    net = torch_model(torch)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    torch._dynamo.config.error_on_recompile = True
    x = torch.ones(2, 8)
    compiled(x)
    graphs = counters["stats"]["unique_graphs"]
    library.start()
    compiled(x).sum().backward()  # compiled without, run with
    library.library.stub_clear()
    compiled(x).sum().backward()
    names = library.names(MODULE)
    assert set(names) == {"Net", None}, names
    equal(counters["stats"]["unique_graphs"], graphs)
    library.stop()
    compiled(x)
    torch._dynamo.reset()
    library.start()
    torch.compile(net, backend="eager", fullgraph=True)(x)  # compiled with
    library.stop()
    equal(sum(counters["graph_break"].values()), 0)


# ---- the runner ----


def interpreters():
    sys.path.insert(0, HERE)
    import step_python
    return step_python.interpreters()


def run(python, name):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "UPGATE_STEPS"))}
    command = [python, os.path.abspath(__file__), "--work", name]
    host = os.path.join(os.environ["UPGATE_BUILD"], "tests/e2e/step_host")
    if name == "harness":
        result = subprocess.run([host, "0", "0"] + command, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, timeout=300)
        last = json.loads(result.stdout.decode().splitlines()[-1])
        return last.get("status"), result.stderr
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    return result.returncode, result.stdout


def torch_of(python):
    """The version of its torch; None: it has none."""
    code = "import importlib.metadata as m; print(m.version('torch'))"
    result = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return result.stdout.decode().strip() if result.returncode == 0 else None


def with_different_torch(found):
    seen, kept = {None}, {}
    for version, python in sorted(found.items()):
        torch = torch_of(python)
        if torch not in seen:
            seen.add(torch)
            kept["%s, torch %s" % (version, torch)] = python
    return kept


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--work":
        globals()["work_" + sys.argv[2]]()
        return 0
    arguments = [a for a in sys.argv[1:] if a != "--torch"]
    with_torch = "--torch" in sys.argv
    if arguments:
        os.environ["UPGATE_BUILD"] = os.path.abspath(arguments[0])
    build = os.environ.get("UPGATE_BUILD")
    if not build:
        print("usage: python_trace.py [--torch] BUILD_DIRECTORY")
        return 2
    if not os.path.exists(os.path.join(build, "python/upgate/_core.abi3.so")):
        print("skipped: the Python extension is not built (see the configure summary)")
        return 77
    cases = [n[5:] for n in sorted(globals()) if n.startswith("work_") and n.startswith("work_torch") == with_torch]
    if not os.path.exists(os.path.join(build, "tests/e2e/step_host")) and "harness" in cases:
        cases.remove("harness")
    found = with_different_torch(interpreters()) if with_torch else interpreters()
    if not found:
        print("skipped: no interpreter here has torch" if with_torch else "skipped: no CPython of 3.8 or later")
        return 77
    failed = 0
    for version, python in sorted(found.items()):
        for name in cases:
            status, output = run(python, name)
            if status != 0 or output:
                failed += 1
                print("FAIL CPython %s, %s: exit %s\n%s" % (version, name, status, output.decode()))
        print("CPython %s: %s" % (version, ", ".join(cases)))
        sys.stdout.flush()
    print("%d interpreters, %d cases, %d failed" % (len(found), len(found) * len(cases), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
