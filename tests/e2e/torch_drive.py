# SPDX-License-Identifier: Apache-2.0
"""Runs many short launches of the PyTorch reference workloads in one interpreter: torch is imported once, each launch is a fork.

Usage: python torch_drive.py MODELS CASES.json. A case: {"name", "model", "words", "limit_s"}. Prints one JSON line a case, when it has
ended: {"name", "status", "seconds", "line": the workload's own, "losses", "outputs", "notes", "phases", "stderr"}. The step API is replaced by
a recorder. Used by tests/e2e/torch_variants.py and ci/gpu/torch.
"""
import contextlib
import importlib.util
import json
import os
import pickle
import signal
import sys
import tempfile
import time
import types

import torch_forks

MODELS, CASES = os.path.abspath(sys.argv[1]), sys.argv[2]
sys.argv[1:] = []
sys.path.insert(0, MODELS)
RECORD = {}


def _recorder():
    upgate = types.ModuleType("upgate")

    def steps(iterable, samples=None):
        for item in iterable:
            yield item

    @contextlib.contextmanager
    def phase(name):
        yield
        RECORD["phases"].add(name)

    def record(loss=None, output=None, **_):
        if loss is not None:
            RECORD["losses"].append(float(loss))
        if output is not None:
            RECORD["outputs"].append(output.detach().double().cpu().reshape(-1)[:64].tolist())

    upgate.active, upgate.steps, upgate.phase, upgate.record = lambda: True, steps, phase, record
    upgate.requests = lambda n, rate=0.0, seed=0, samples=1: steps(range(n), samples)
    upgate.note = lambda name, value: RECORD["notes"].__setitem__(name, value)
    return upgate


def load(model):
    path = os.path.join(MODELS, model + ".py")
    spec = importlib.util.spec_from_file_location(model.replace("-", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def child(case, result):
    RECORD.update(losses=[], outputs=[], notes={}, phases=set())
    sys.argv[1:] = case["words"]
    try:
        return load(case["model"]).main()
    finally:
        with open(result, "wb") as file:
            pickle.dump(dict(RECORD, phases=sorted(RECORD["phases"])), file)


def wait(pid, limit_s):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timeout"


def run(case):
    with tempfile.TemporaryDirectory() as directory, open(os.path.join(directory, "out"), "w+b") as out, \
            open(os.path.join(directory, "err"), "w+b") as err:
        result, begin = os.path.join(directory, "result"), time.monotonic()
        status = wait(torch_forks.fork(out.fileno(), err.fileno(), lambda: child(case, result)), case.get("limit_s", 240))
        record = {"losses": [], "outputs": [], "notes": {}, "phases": []}
        if os.path.exists(result):
            with open(result, "rb") as file:
                record = pickle.load(file)
        out.seek(0)
        err.seek(0)
        lines = out.read().decode(errors="replace").splitlines()
        line = next((json.loads(text) for text in reversed(lines) if text.startswith("{")), None)
        return dict(record, name=case["name"], status=status, seconds=round(time.monotonic() - begin, 2), line=line,
                    stderr=err.read().decode(errors="replace")[-3000:])


def main():
    sys.modules["upgate"] = _recorder()
    import common  # noqa: F401
    version = torch_forks.preload()
    with open(CASES, encoding="utf-8") as file:
        cases = json.load(file)
    print(json.dumps({"torch": version}), flush=True)
    for case in cases:
        print(json.dumps(run(case)), flush=True)


if __name__ == "__main__":
    main()
