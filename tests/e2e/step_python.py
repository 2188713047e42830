#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python extension, one binary, under every CPython of 3.8 or later that this machine has.

Each case runs a small workload (the functions named work_*) in a fresh interpreter, under step_host, and
checks what reached the harness's side. Without arguments: all interpreters. Needs UPGATE_BUILD, or the
build directory as the only argument.
"""

import glob
import json
import os
import signal
import struct
import subprocess
import sys
import time

FLOAT64, FLOAT32, FLOAT16, BFLOAT16, INT64, INT32, UINT8, BOOL = 1, 2, 3, 4, 5, 6, 12, 13

# ---- workloads: run under the interpreter that is tested ----


def work_steps():
    import upgate

    print(upgate.active())
    data = upgate.steps([10, 20, 30], samples=4)
    assert len(data) == 3
    for epoch in range(2):
        seen = []
        for batch in data:
            with upgate.phase("forward"):
                with upgate.phase("attention"):
                    seen.append(batch)
            upgate.record(loss=batch / 2)
        assert seen == [10, 20, 30], seen
    for i, batch in enumerate(upgate.steps(iter(range(100)))):
        if i == 1:
            break
    with upgate.step(samples=2.5):
        pass
    with upgate.step():
        pass
    upgate.note("compile_time_ns", 12)
    upgate.note("a name of more than 23 bytes", 13)


def work_values():
    import array
    import ctypes
    import upgate

    class Scalar:
        def item(self):
            return 2.5

    class Broken:
        def item(self):
            raise RuntimeError("no value here")

    floats = array.array("f", [1.5, -2.0])
    with upgate.step():
        upgate.record(loss=Scalar(), output=floats, doubles=array.array("d", [0.1]))
        upgate.record(None, b"\x01\x02", view=memoryview(array.array("i", range(6)))[::2], none=None)
        upgate.record(float("nan"), number=7, scalar=Scalar(), c=(ctypes.c_int64 * 2)(1, -1))
        upgate.record(loss=float("inf"))
        upgate.record(loss=Broken(), broken=Broken())
        for wrong in ({"loss": "text"}, {"output": "text"}, {"output": [1.0]}, {"x": object()}):
            try:
                upgate.record(**wrong)
            except TypeError as error:
                print("TypeError", error)
    upgate.record(loss=object(), output=object())  # outside a step: looked at by nobody


def work_arrays():
    import upgate

    try:
        import numpy
    except ImportError:
        return
    with upgate.step():
        a = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
        upgate.record(float(a.sum()), a.T, half=a.astype(numpy.float16), flag=numpy.array([True]))
        upgate.record(loss=numpy.float64(0.25), scalar=numpy.int64(3), swapped=a.astype(">f4"))
    print("numpy")


def work_torch():
    import upgate

    try:
        import torch
    except ImportError:
        return
    with upgate.step():
        a = torch.arange(6, dtype=torch.float32, requires_grad=True).reshape(2, 3)
        upgate.record(loss=(a * 2).sum(), output=a.t(), half=a.half(), brain=a.bfloat16())
        upgate.record(conj=torch.tensor([1 + 2j]).conj(), empty=torch.empty(0))
        upgate.record(loss=a, sparse=a.detach().to_sparse())  # six losses are no loss
    print("torch")


def work_cuda():
    """Steps that only queue their work: the mark at the end of a block must wait for the device."""
    import upgate

    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    a = torch.ones(8192, 8192, device="cuda")
    b = torch.empty_like(a)

    def queue():
        for _ in range(3):
            torch.mm(a, a, out=b)

    for measured in (False, True):
        begin = time.monotonic_ns()
        queue()
        torch.cuda.synchronize()
    upgate.note("device_ns", time.monotonic_ns() - begin)
    for i in range(4):
        with upgate.step():
            queue()
            if i == 0:
                upgate.record(loss=b[0, 0], output=a[:2, 0].bfloat16())
    print("cuda")


def work_capture():
    """A step that is captured into a graph: a wait for the device would end the capture, whatever the gate says."""
    import types

    import upgate

    waits = []
    torch, state = types.ModuleType("torch"), {"capturing": False}
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: state["capturing"],
                                       synchronize=lambda: waits.append(state["capturing"]))
    sys.modules["torch"] = torch
    for i in range(5):
        with upgate.step():
            state["capturing"] = i == 2
        state["capturing"] = False
    print(waits)


def work_jax():
    import upgate

    try:
        import jax.numpy
    except ImportError:
        return
    with upgate.step():
        a = jax.numpy.arange(6, dtype="float32").reshape(2, 3)
        upgate.record(loss=a.sum(), output=a.T, brain=a.astype("bfloat16"))
    print("jax")


def work_errors():
    import upgate

    for wrong in (lambda: upgate.step("x"), lambda: upgate.step(1, 2), lambda: upgate.phase(3),
                  lambda: upgate.steps(7), lambda: upgate.steps([], samples="x"), lambda: upgate.phase(),
                  lambda: upgate.requests("x"), lambda: upgate.requests(3, rate="x"),
                  lambda: upgate.record(1, 2, 3), lambda: upgate.note(1, 2)):
        try:
            wrong()
        except TypeError:
            continue
        raise SystemExit("no TypeError")
    try:
        with upgate.step(samples=3):
            with upgate.phase("broken"):
                raise KeyError("mine")
    except KeyError as error:
        assert error.args == ("mine",)
    try:
        for _ in upgate.steps(range(5)):
            raise KeyError("mine")
    except KeyError as error:
        assert error.args == ("mine",)

    def source():
        yield 1
        raise OSError("disk gone")

    try:
        for _ in upgate.steps(source()):
            pass
    except OSError as error:
        assert error.args == ("disk gone",)
    with upgate.step(samples=9):
        with upgate.step(samples=99):
            upgate.record(loss=5)
    with upgate.phase("outside"):
        pass


def work_requests():
    import upgate

    assert list(upgate.requests(4, rate=2000, seed=3, samples=2)) == [0, 1, 2, 3]
    for r in upgate.requests(3):
        pass


def work_fork():
    import upgate

    with upgate.step():
        child = os.fork()
        if child == 0:
            upgate.record(loss=-1)
            os._exit(0)
        os.waitpid(child, 0)
        upgate.record(loss=1)


def work_threads():
    """The GIL must be free while the main thread stands at the gate."""
    import threading
    import upgate

    count, end = [0], threading.Event()

    def spin():
        while not end.is_set():
            count[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=spin)
    thread.start()
    with upgate.step():
        pass
    before = count[0]
    with upgate.step():
        held = count[0] - before
        end.set()
    thread.join()
    print(held)


def work_held():
    """Stands at a gate that never opens; a signal must reach Python's handler all the same."""
    import upgate

    def handler(number, frame):
        raise InterruptedError("woken")

    signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with upgate.step():
            print("ran")
    except InterruptedError:
        print("woken")


def work_report():
    import upgate

    for _ in range(3):
        with upgate.step():
            pass


# ---- the harness's side ----

failures = 0
checks = 0


def check(what, got, expected):
    global failures, checks
    checks += 1
    if got != expected:
        failures += 1
        print("    %s: got %r, expected %r" % (what, got, expected))


def run(python, work, block=0, bits=0, env=None):
    """Returns (records, stdout of the workload, its stderr)."""
    build = os.environ["UPGATE_BUILD"]
    read_fd, write_fd = os.pipe()
    # The workload's stdout goes through a pipe of its own; step_host's is the records.
    shell = 'exec "$0" "$@" >&%d' % write_fd
    command = [os.path.join(build, "tests/e2e/step_host"), str(block), str(bits), "sh", "-c", shell,
               python, os.path.abspath(__file__), "--work", work]
    environment = dict(os.environ, PYTHONPATH=os.path.join(build, "python"), PYTHONDONTWRITEBYTECODE="1",
                       **(env or {}))
    environment.pop("PYTHONHOME", None)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                               pass_fds=[write_fd])
    os.close(write_fd)
    out, err = process.communicate(timeout=100)
    with os.fdopen(read_fd) as pipe:
        said = pipe.read()
    err = err.decode()
    records = [json.loads(line) for line in out.decode().splitlines()]
    check("step_host's exit", process.returncode, 0)
    check("exit of the workload", [r["status"] for r in records if r["kind"] == "exit"], [0])
    if failures and err:
        print(err)
    return records, said, err


def of(records, kind, **filters):
    return [r for r in records
            if r["kind"] == kind and all(r[key] == value for key, value in filters.items())]


def values(records, kind):
    return [r["value"] for r in of(records, kind)]


def counters(records):
    return [{k: v for k, v in r.items() if k not in ("kind", "slot")} for r in of(records, "counters")]


def tensor(records, name, form):
    """(dtype, values) of the one tensor of a name."""
    found = of(records, "bytes", name=name)
    if len(found) != 1:
        return "%d records" % len(found)
    data = bytes.fromhex(found[0]["hex"])
    unpacked = list(struct.unpack("<%d%s" % (found[0]["count"], form), data))
    return found[0]["dtype"], unpacked


NOTHING_LOST = {"dropped": 0, "bytes_dropped": 0, "truncated": 0, "misplaced": 0}


def case_steps(python):
    records, said, err = run(python, "steps", block=2)
    check("active", said, "True\n")
    check("stderr", err, "")
    check("samples", values(records, "step"), [4] * 6 + [1, 1, 2.5, 1])
    check("steps", [r["step"] for r in of(records, "step")], list(range(10)))
    check("losses", values(records, "loss"), [5, 10, 15] * 2)
    check("forward", len(of(records, "phase", name="forward", value=0.0)), 6)
    check("attention", len(of(records, "phase", name="attention", value=1.0)), 6)
    check("data", len(of(records, "phase", name="data")), 8)
    # Two steps a block; a loop that asks for an item and finds none may have been held for it.
    check("holds", len(of(records, "hold")) >= 5, True)
    check("notes", [(r["name"], r["value"]) for r in of(records, "note")],
          [("compile_time_ns", 12), ("a name of more than 23 ", 13)])
    check("counters", counters(records), [dict(NOTHING_LOST, truncated=1)])
    for step in of(records, "step"):
        for phase in of(records, "phase", step=step["step"]):
            check("phase lies in its step",
                  step["begin_ns"] <= phase["begin_ns"] <= phase["end_ns"] <= step["end_ns"], True)


def case_values(python):
    records, said, err = run(python, "values")
    check("losses", values(records, "loss"), [2.5, None, None])
    check("output", [r["hex"] for r in of(records, "bytes", name="output")], ["0000c03f000000c0", "0102"])
    check("dtypes", [r["dtype"] for r in of(records, "bytes", name="output")], [FLOAT32, UINT8])
    check("doubles", tensor(records, "doubles", "d"), (FLOAT64, [0.1]))
    check("view", tensor(records, "view", "i"), (INT32, [0, 2, 4]))
    check("number", tensor(records, "number", "d"), (FLOAT64, [7]))
    check("scalar", tensor(records, "scalar", "d"), (FLOAT64, [2.5]))
    check("ctypes", tensor(records, "c", "q")[1:], ([1, -1],))
    check("none", of(records, "bytes", name="none"), [])
    check("TypeErrors", said.count("TypeError upgate: "), 4)
    check("said once", err.splitlines(),
          ["upgate: failed to record the loss: no value here, going on without it"])
    check("counters", counters(records), [dict(NOTHING_LOST, dropped=1, bytes_dropped=1, misplaced=1)])


def case_arrays(python):
    records, said, err = run(python, "arrays")
    if said == "":
        return "no numpy"
    check("losses", values(records, "loss"), [15, 0.25])
    check("output", tensor(records, "output", "f"), (FLOAT32, [0, 3, 1, 4, 2, 5]))
    check("half", tensor(records, "half", "e"), (FLOAT16, [0, 1, 2, 3, 4, 5]))
    check("flag", tensor(records, "flag", "?"), (BOOL, [True]))
    check("scalar", tensor(records, "scalar", "q"), (INT64, [3]))
    check("swapped is refused", counters(records), [dict(NOTHING_LOST, bytes_dropped=1)])
    check("said once", err.count("upgate: failed to record a tensor: dtype '>f4'"), 1)


def case_torch(python):
    records, said, err = run(python, "torch")
    if said == "":
        return "no torch"
    check("losses", values(records, "loss"), [30])
    check("output", tensor(records, "output", "f"), (FLOAT32, [0, 3, 1, 4, 2, 5]))
    check("half", tensor(records, "half", "e"), (FLOAT16, [0, 1, 2, 3, 4, 5]))
    check("brain", tensor(records, "brain", "H"), (BFLOAT16, [0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0]))
    check("conj", tensor(records, "conj", "q")[0], 14)
    check("conj values", bytes.fromhex(of(records, "bytes", name="conj")[0]["hex"]), struct.pack("<ff", 1, -2))
    check("empty", tensor(records, "empty", "f"), (FLOAT32, []))
    check("counters", counters(records), [dict(NOTHING_LOST, dropped=1, bytes_dropped=1)])


def case_cuda(python):
    records, said, err = run(python, "cuda", block=2, bits=2)
    if said == "":
        return "no cuda"
    check("stderr", err, "")
    notes = {r["name"]: r["value"] for r in of(records, "note")}
    steps = of(records, "step")
    check("steps", len(steps), 4)
    check("a step only queues", steps[2]["end_ns"] - steps[2]["begin_ns"] < notes["device_ns"] / 2, True)
    check("the block ends with the device",
          steps[3]["end_ns"] - steps[2]["begin_ns"] > 1.5 * notes["device_ns"], True)
    check("peak memory", notes["peak_gpu_memory_bytes"] >= notes["peak_gpu_tensor_bytes"] >= 2 * 4 * 8192 * 8192, True)
    check("loss", values(records, "loss"), [8192])
    check("output", tensor(records, "output", "H"), (BFLOAT16, [0x3f80, 0x3f80]))


def case_capture(python):
    records, said, err = run(python, "capture", block=1)
    check("steps", len(of(records, "step")), 5)
    check("waits", said, "[False, False, False, False]\n")


def case_jax(python):
    records, said, err = run(python, "jax")
    if said == "":
        return "no jax"
    check("losses", values(records, "loss"), [15])
    check("output", tensor(records, "output", "f"), (FLOAT32, [0, 3, 1, 4, 2, 5]))
    check("brain", tensor(records, "brain", "H"), (BFLOAT16, [0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0]))


def case_errors(python):
    records, said, err = run(python, "errors")
    check("stderr", err, "")
    check("samples", values(records, "step"), [3, 1, 1, 9])
    check("broken phase", len(of(records, "phase", name="broken")), 1)
    check("loss", [(r["step"], r["value"]) for r in of(records, "loss")], [(3, 5)])
    check("counters", counters(records), [dict(NOTHING_LOST, misplaced=3)])


def case_requests(python):
    records, said, err = run(python, "requests", block=3)
    steps = of(records, "step")
    check("samples", values(records, "step"), [2] * 4 + [1] * 3)
    for step in steps[:4]:
        check("arrives before it begins", 0 < step["sched_ns"] <= step["begin_ns"], True)
    for step in steps[4:]:
        check("closed loop", step["sched_ns"], step["begin_ns"])


def case_fork(python):
    records, said, err = run(python, "fork")
    check("losses", values(records, "loss"), [1])
    check("slots", len(counters(records)), 1)


def case_threads(python):
    # Blocks of one step: between the two steps lies a hold of up to 20 ms or so.
    records, said, err = run(python, "threads", block=1)
    check("holds", len(of(records, "hold")), 2)
    check("steps", len(of(records, "step")), 2)
    check("thread ran", said.strip().isdigit(), True)


def case_signal(python):
    records, said, err = run(python, "held", block="closed")
    check("the handler's exception", said, "woken\n")
    check("steps", of(records, "step"), [])


def case_report(python):
    records, said, err = run(python, "report", block=1, bits=3)
    found = of(records, "bytes", bytes_kind=2)
    check("stderr", err, "")
    check("fingerprints", len(found), 1)
    if found:
        facts = json.loads(bytes.fromhex(found[0]["hex"]).decode())
        check("a dict", isinstance(facts, dict) and len(facts) > 0, True)


def case_off(python):
    """No harness, and a file that is none: the same programs, and nothing but their own output."""
    build = os.environ["UPGATE_BUILD"]
    for path, said in ((None, ""), ("/etc/passwd", "upgate: steps are off: '/etc/passwd'")):
        env = dict(os.environ, PYTHONPATH=os.path.join(build, "python"), PYTHONDONTWRITEBYTECODE="1")
        env.pop("UPGATE_STEPS", None)
        if path:
            env["UPGATE_STEPS"] = path
        for work in ("steps", "errors", "requests", "fork"):
            out = subprocess.run([python, os.path.abspath(__file__), "--work", work], env=env,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
            check("exit of %s" % work, (out.returncode, out.stderr.decode()[-300:])[0], 0)
            check("stderr of %s" % work, out.stderr.decode()[:len(said) or 1], said)
            if work == "steps":
                check("active", out.stdout.decode(), "True\n" if path else "False\n")


CASES = (case_steps, case_values, case_arrays, case_torch, case_cuda, case_capture, case_jax, case_errors, case_requests, case_fork,
         case_threads, case_signal, case_report, case_off)


def interpreters():
    """{version: path}, one for each version; a virtual environment counts on its own: it has packages."""
    source = os.environ.get("UPGATE_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(
        os.path.abspath(__file__)))))
    patterns = [os.path.join(source, "envs/*/bin/python"), "/usr/bin/python3.[0-9]*",
                "/usr/local/bin/python3.[0-9]*", os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")]
    found = {}
    for path in [p for pattern in patterns for p in sorted(glob.glob(pattern))] + [sys.executable]:
        if path.endswith("-config"):
            continue
        ask = ("import sys; print(sys.implementation.name, '%d.%02d.%d' % sys.version_info[:3], "
               "sys.version_info[:2] >= (3, 8), sys.prefix != sys.base_prefix)")
        out = subprocess.run([path, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        words = out.stdout.decode().split()
        if out.returncode == 0 and words[0] == "cpython" and words[2] == "True":
            version = words[1] + (" " + path if words[3] == "True" else "")
            found.setdefault(version, path)
    return found


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--work":
        globals()["work_" + sys.argv[2]]()
        return 0
    if len(sys.argv) > 1:
        os.environ["UPGATE_BUILD"] = os.path.abspath(sys.argv[1])
    build = os.environ.get("UPGATE_BUILD")
    if not build:
        print("usage: step_python.py BUILD_DIRECTORY")
        return 2
    if not os.path.exists(os.path.join(build, "python/upgate/_core.abi3.so")):
        print("skipped: the Python extension is not built (see the configure summary)")
        return 77
    found = interpreters()
    for version, python in sorted(found.items()):
        notes = []
        before = failures
        for case in CASES:
            note = case(python)
            if note:
                notes.append(note)
        print("%s CPython %s  %s" % ("FAIL" if failures > before else "ok  ", version, ", ".join(notes)))
        sys.stdout.flush()
    print("%d interpreters, %d checks, %d failed" % (len(found), checks, failures))
    return 1 if failures or not found else 0


if __name__ == "__main__":
    sys.exit(main())
