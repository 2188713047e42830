#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The JAX twins of the transformer and the dlrm: commands of a plan that know nothing of PyTorch. Their losses and answers are those of the
PyTorch workloads, float64 is float64, what is asked for wrongly is refused. Exits 77 when no interpreter here has jax: ci/setup --jax makes one.
"""
import array
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import torch_models  # noqa: E402  the recorder, and which interpreters have torch

SOURCE = torch_models.SOURCE
PYTHON = os.environ.get("UPGATE_JAX_PYTHON", os.path.join(SOURCE, "envs", "jax", "bin", "python"))
WORDS = ["--seed", "3", "--size", "small"]
failures = 0

# A model of the common part whose loss is no number.
DIVERGES = '''
import os, sys, types
sys.path.insert(0, os.path.join(%r, "reference_models", "jax"))
import common
import jax.numpy as jnp
class Model:
    samples = 1
    def start(self):
        return jnp.zeros(())
    def batch(self, i):
        return jnp.zeros(())
    def advance(self, state, count, batch):
        return state + 1, batch + float("nan"), state * 2
sys.exit(common.run(types.SimpleNamespace(name="x", mode="train", steps=2, seed=1, rate=0.0, dtype="float32", size="small"), Model()))
''' % SOURCE

# A machine that has 1 MiB left.
NO_ROOM = '''
import os, sys
sys.path.insert(0, os.path.join(%r, "reference_models", "jax"))
import dlrm
import room
room.available = lambda: 1 << 20
sys.argv[1:] = ["--size", "demo"]
sys.exit(dlrm.main())
''' % SOURCE


def check(what, ok, detail=""):
    global failures
    print("%s %s%s" % ("ok  " if ok else "FAIL", what, "" if ok else ": %s" % (detail,)))
    failures += not ok


def start(python, program, words, directory):
    for old in glob.glob(os.path.join(directory, "*.jsonl")):
        os.unlink(old)
    env = dict(os.environ, PYTHONPATH=directory, PYTHONDONTWRITEBYTECODE="1", JAX_PLATFORMS="cpu", RECORD_DIR=directory)
    return subprocess.run([python, os.path.join(SOURCE, "reference_models", program)] + words, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=300)


def run(python, program, words, directory):
    """Its line, and what it recorded."""
    done = start(python, program, words, directory)
    check("%s %s ends well" % (program, " ".join(words)), done.returncode == 0, done.stderr[-1500:])
    if done.returncode:
        return None, []
    with open(glob.glob(os.path.join(directory, "*.jsonl"))[0], encoding="utf-8") as file:
        return json.loads(done.stdout), [json.loads(line) for line in file]


def marks(records):
    """Phases, and what came of each step."""
    return ([line["phase"] for line in records if "phase" in line][:2], sum("step" in line for line in records),
            [line["note"] for line in records if "note" in line])


def answers(records):
    kinds = {"float32": "f", "float64": "d"}
    return [list(array.array(kinds[line["dtype"]], bytes.fromhex(line["output"]))) for line in records if "output" in line]


def check_training(model, twin, directory, last):
    """twin: an interpreter with torch, or None; last: how far off its last loss may be."""
    single, records = run(PYTHON, "jax/%s.py" % model, WORDS + ["--steps", "12"], directory)
    double, _ = run(PYTHON, "jax/%s.py" % model, WORDS + ["--steps", "12", "--dtype", "float64"], directory)
    if not single or not double:
        return
    check("%s marks its steps, two phases, and what it compiled" % model, marks(records) == (["data", "compute"], 12, ["compile_time_ns"]),
          marks(records))
    check("%s records 12 losses and 8 outputs" % model, (sum("loss" in line for line in records), len(answers(records))) == (12, 8), records[:3])
    check("%s: float64 is close to float32, and not the same" % model, 0 < abs(single["loss_last"] - double["loss_last"]) < 1e-4, (single, double))
    other, _ = run(twin, "torch/%s.py" % model, WORDS + ["--steps", "12", "--device", "cpu"], directory) if twin else (None, [])
    if other:
        check("%s: the first loss is that of the PyTorch twin" % model, abs(single["loss_first"] - other["loss_first"]) < 5e-6, (single, other))
        check("%s: 12 steps come to the same loss" % model, abs(single["loss_last"] - other["loss_last"]) < last, (single, other))
    if model == "transformer":
        check("the loss falls", single["loss_last"] < 0.95 * single["loss_first"], single)


def check_answers(model, twin, directory):
    words = WORDS + ["--steps", "3", "--mode", "infer"]
    line, records = run(PYTHON, "jax/%s.py" % model, words, directory)
    mine = answers(records)
    check("%s answers 3 requests, without a loss" % model, len(mine) == 3 and line["loss_first"] is None, line)
    if not twin or len(mine) != 3:
        return
    _, records = run(twin, "torch/%s.py" % model, words + ["--device", "cpu"], directory)
    theirs = answers(records)
    check("%s: as many numbers as the twin answers with" % model, list(map(len, mine)) == list(map(len, theirs)), list(map(len, theirs)))
    off = max((abs(a - b) if math.isfinite(a - b) else math.inf for one, two in zip(mine, theirs) for a, b in zip(one, two)), default=1)
    check("%s: the answers are those of the PyTorch twin" % model, off < 1e-4, off)


def check_refused(directory):
    cases = (("jax/dlrm.py", ["--steps", "0"], "must be at least 1"), ("jax/dlrm.py", ["--rate", "9"], "--rate is for --mode infer"),
             ("jax/transformer.py", ["--size", "large"], "invalid choice: 'large'"))
    for program, words, says in cases:
        done = start(PYTHON, program, words, directory)
        check("%s %s is refused" % (program, " ".join(words)), done.returncode == 2 and says in done.stderr and not done.stdout, done.stderr[-300:])


def start_text(text, directory):
    path = os.path.join(directory, "program.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return start(PYTHON, path, [], directory)


def check_room(directory):
    done = start_text(NO_ROOM, directory)
    check("tables that do not fit are refused before they are made", done.returncode == 2 and not done.stdout and
          "argument --size: the tables of demo take" in done.stderr and "and 1 are left here" in done.stderr, done.stdout + done.stderr[-500:])


def check_diverged(directory):
    done = start_text(DIVERGES, directory)
    check("a loss that is no number is null: JSON has no NaN", done.returncode == 0 and '"loss_first": null, "loss_last": null' in done.stdout,
          done.stdout + done.stderr[-500:])


def main():
    probe = subprocess.run([PYTHON, "-c", "import jax"], stderr=subprocess.DEVNULL) if os.access(PYTHON, os.X_OK) else None
    if probe is None or probe.returncode:
        print("skipped: no '%s' with jax; ci/setup --jax makes it" % PYTHON)
        return 77
    with tempfile.TemporaryDirectory() as directory:
        tensor = "output.detach().cpu().numpy()"
        recorder = torch_models.RECORDER.replace(tensor, tensor + " if hasattr(output, 'detach') else output")
        with open(os.path.join(directory, "upgate.py"), "w", encoding="utf-8") as file:
            file.write(recorder)
        pythons = torch_models.interpreters(directory)
        twin = pythons[0][0] if pythons else None
        if not twin:
            print("no interpreter here has torch: the twins are not compared")
        # Adagrad's first move of a row is by the sign of its gradient: of one that is nearly 0 the rounding decides.
        for model, last in (("transformer", 2e-5), ("dlrm", 1e-4)):
            check_training(model, twin, directory, last)
            check_answers(model, twin, directory)
        check_refused(directory)
        check_room(directory)
        check_diverged(directory)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
