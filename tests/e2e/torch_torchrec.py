#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The variant torchrec of dlrm and dlrm-sharded. With a stand-in for torch: what a side lacks is said, with what to install; plants that need
gradients of tables are refused. With torchrec (envs/torchrec, or UPGATE_TORCHREC_PYTHON): losses and
answers are those of the eager run, scores that are off are told. Without it that part is left out, which is said. --all: that it is not there is
a failure, and two ranks have the losses of the eager ones too. ci/torchrec makes the environment and runs all."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import torch_models  # noqa: E402  the recorder, and launches of several ranks

SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(HERE))
MODELS = os.path.join(SOURCE, "reference_models", "torch")
PYTHON = os.environ.get("UPGATE_TORCHREC_PYTHON", os.path.join(SOURCE, "envs", "torchrec", "bin", "python"))
LIMIT_S = 240
# In units of the largest value. An epsilon of Adagrad of 1e-8 in place of torch's 1e-10 is off by 2.6e-6.
EXACT = 1e-6
COMMON = ["--size", "small", "--steps", "10", "--seed", "3", "--device", "cpu"]
PLANTS = ("average", "hooks", "snapshot", "teacher", "validate:4:50%")
failures = []

LACK = '''
import sys, types, torchrec_tables
args = types.SimpleNamespace(name=sys.argv[1], device=sys.argv[2], mode="train")
print(torchrec_tables.lack(args, tuple(map(int, sys.argv[3].split(".")))))
'''

REFUSED = '''
import sys, cli
cli.arguments("dlrm", ["--variant", "torchrec", "--plant", sys.argv[1]])
'''


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what, flush=True)


def write(path, text=""):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def make_torchrec(directory, version, error=""):
    """Stand-ins for both libraries: torchrec is of this version, or raises this."""
    write(os.path.join(directory, "fbgemm_gpu", "__init__.py"))
    write(os.path.join(directory, "fbgemm_gpu_cpu-1.8.0.dist-info", "METADATA"), "Metadata-Version: 2.1\nName: fbgemm_gpu-cpu\nVersion: 1.8.0\n")
    write(os.path.join(directory, "torchrec", "__init__.py"), "raise %s" % error if error else "")
    for module in ("distributed/planner.py", "modules/fused_embedding_modules.py", "quant/embedding_modules.py"):
        write(os.path.join(directory, "torchrec", os.path.dirname(module), "__init__.py"))
        write(os.path.join(directory, "torchrec", module))
    write(os.path.join(directory, "torchrec-%s.dist-info" % version, "METADATA"), "Metadata-Version: 2.1\nName: torchrec\nVersion: %s\n" % version)


def start(text, words, *paths):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join((MODELS,) + paths), PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1")
    return subprocess.run([sys.executable, "-c", text] + list(words), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=LIMIT_S)


def check_lacks(directory):
    torch = os.path.join(directory, "torch only")
    write(os.path.join(torch, "torch", "__init__.py"))
    write(os.path.join(torch, "torch", "nn.py"), "Module = object\n")
    versions = {"right": ("1.8.0+cpu", ""), "other": ("1.9.2", ""), "nightly": ("2026.10.16", ""),
                "broken": ("1.8.0", "ImportError(\"No module\\nnamed 'tensordict'\")"), "native": ("1.8.0", "OSError('undefined symbol: x')")}
    for name, (version, error) in versions.items():
        make_torchrec(os.path.join(directory, name), version, error)
    fix = "install torchrec==1.8.* and fbgemm-gpu-cpu==1.8.*"
    cases = [(("dlrm", "cpu", "2.13"), "right", ""), (("dlrm", "cpu", "2.13"), "nightly", ""),
             (("dlrm", "cpu", "2.13"), "other", "torch 2.13 does not go with torchrec 1.9.2; " + fix),
             (("dlrm", "cpu", "2.14"), "right", "torch 2.14 does not go with torchrec 1.8.0+cpu and fbgemm-gpu-cpu 1.8.0; "
              "install torchrec==1.9.* and fbgemm-gpu-cpu==1.9.*"),
             (("dlrm", "cpu", "2.13"), "broken",
              "torch 2.13: torchrec cannot be imported: No module named 'tensordict'; %s, and what they require" % fix),
             (("dlrm", "cpu", "2.13"), "native", "torch 2.13: torchrec cannot be imported: undefined symbol: x; %s, and what they require" % fix),
             (("dlrm", "cpu", "2.4"), "right", "torch 2.4 has no torchrec 1.x: it begins with torch 2.5"),
             (("dlrm", "cpu", "1.13"), None, "torch 1.13 has no torchrec 1.x: it begins with torch 2.5"),
             (("dlrm-cached", "cpu", "2.13"), "right", "torchrec is a path of dlrm and dlrm-sharded"),
             (("dlrm-sharded", "cpu", "2.13"), "right", ""),
             (("dlrm", "cuda", "2.13"), "right", "torchrec runs by fbgemm's kernels for the CPU here: --device cpu")]
    if not any(importlib.util.find_spec(module) for module in ("torchrec", "fbgemm_gpu")):  # else this interpreter has them itself
        cases += [(("dlrm", "cpu", "2.13"), None, "torch 2.13 is without torchrec and fbgemm_gpu here; " + fix),
                  (("dlrm", "cpu", "3.0"), None,
                   "torch 3.0 is without torchrec and fbgemm_gpu here; install torchrec and fbgemm-gpu-cpu of its release")]
    for words, libraries, reason in cases:
        done = start(LACK, words, torch, *([os.path.join(directory, libraries)] if libraries else []))
        check((done.returncode, done.stdout, done.stderr) == (0, reason + "\n", ""), "%s with %s: %r, %r instead of %r" % (
            words, libraries, done.stdout, done.stderr[-800:], reason))


def check_refusals():
    for plant, refused in (("clip", "clip"), ("penalty,gradnorms,item", "gradnorms, penalty"), ("op:embedding_bag:5%", "op:embedding_bag"),
                           ("dropout", "dropout"), ("finite,gradnoise", "finite, gradnoise"), ("slow:5%", ""), ("op:linear:5%,average", "")):
        done = start(REFUSED, [plant])
        told = done.stderr.count("\n") == 1 and "not of --variant torchrec: %s; its tables" % refused in done.stderr
        check((done.returncode == 2 and told) if refused else (done.returncode, done.stderr) == (0, ""), "--plant %s: %d, %s" % (
            plant, done.returncode, done.stderr[-800:]))


def off(run, other):
    worst = 0.0
    for mine, theirs in ((run["losses"], other["losses"]), (sum(run["outputs"], []), sum(other["outputs"], []))):
        if len(mine) != len(theirs):
            return float("inf")
        worst = max([worst] + [abs(a - b) for a, b in zip(mine, theirs)] + [0 if a == a else float("inf") for a in mine])
    return worst / max(map(abs, other["losses"] + sum(other["outputs"], [])), default=1.0)


def check_runs(directory):
    """One interpreter for all; the eager ones first, which do not import torchrec."""
    def case(name, *words):
        return {"name": name, "model": "dlrm", "words": COMMON + list(words)}

    cases = [case("train"), case("infer", "--mode", "infer"), case("float64", "--dtype", "float64"),
             case("torchrec train", "--variant", "torchrec"), case("torchrec infer", "--variant", "torchrec", "--mode", "infer"),
             case("torchrec float64", "--variant", "torchrec", "--dtype", "float64"),
             case("torchrec skew", "--variant", "torchrec", "--mode", "infer", "--plant", "serveskew"),
             case("plants", "--plant", ",".join(PLANTS)), case("torchrec plants", "--variant", "torchrec", "--plant", ",".join(PLANTS))]
    path = os.path.join(directory, "cases.json")
    write(path, json.dumps(cases))
    done = subprocess.run([PYTHON, os.path.join(HERE, "torch_drive.py"), MODELS, path], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S,
                          env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1"))
    runs = {run["name"]: run for run in map(json.loads, done.stdout.splitlines()) if "name" in run}
    check(done.returncode == 0 and len(runs) == len(cases), "the driver ended with %d after %s" % (done.returncode, list(runs)))
    if len(runs) != len(cases):
        return
    skew = runs.pop("torchrec skew")
    check(skew["status"] == 1 and "the scores of the serving graph (torchrec) are 0.5 of their rms off" in skew["stderr"],
          "scores that are off: %s, %s" % (skew["status"], skew["stderr"][-800:]))
    for name, run in runs.items():
        check(run["status"] == 0 and len(run["outputs"]) == 8, "%s: %s, %s" % (name, run["status"], run["stderr"][-1500:]))
    for name in ("train", "infer", "float64", "plants"):
        error = off(runs["torchrec " + name], runs[name])
        print("torchrec %s: off eager by %.2g" % (name, error), flush=True)
        check(error < EXACT, "torchrec %s is off eager by %g" % (name, error))
    check("compile_time_ns" in runs["torchrec train"]["notes"] and "serve_error_ppb" in runs["torchrec infer"]["notes"]
          and not runs["torchrec float64"]["notes"], "notes: torchrec is prepared, and in float64 it is the eager run: %s" % {
              name: run["notes"] for name, run in runs.items()})


def check_ranks(directory):
    """dlrm-sharded, where the planner of torchrec places the tables. Not the answers: there is no inference of it, which is said."""
    write(os.path.join(directory, "shim", "upgate.py"), torch_models.RECORDER)
    words = COMMON + ["--ranks", "2"]
    runs = {name: torch_models.Run(PYTHON, os.path.join(directory, "shim"), "dlrm-sharded", words + more)
            for name, more in (("eager", []), ("torchrec", ["--variant", "torchrec"]),
                               ("torchrec 1000", ["--variant", "torchrec", "--budget", "1000"]),
                               ("torchrec infer", ["--variant", "torchrec", "--mode", "infer"]))}
    for run in runs.values():
        run.wait()
    small, infer = runs.pop("torchrec 1000"), runs.pop("torchrec infer")
    check(small.status not in (0, 77) and "argument --budget: torchrec's planner: " in small.stderr,
          "a budget that is too small: %s" % small.stderr[-800:])
    check(infer.status == 77 and infer.stderr.count("\n") == 1 and "torchrec of dlrm-sharded is of training" in infer.stderr,
          "there is no inference: %s, %s" % (infer.status, infer.stderr[-800:]))
    if not all([run.good(2) for run in runs.values()]):
        return check(False, "two ranks do not train: %s" % {name: run.stderr[-800:] for name, run in runs.items()})
    losses = {name: sum(sorted(run.losses(rank) for rank in (0, 1)), []) for name, run in runs.items()}  # by pid, which tells no rank
    error = max(abs(a / b - 1) for a, b in zip(losses["torchrec"], losses["eager"]))
    pieces = json.loads(runs["torchrec"].stdout.splitlines()[-1])["pieces"]
    print("torchrec, two ranks: pieces %s, losses off eager by %.2g" % (pieces, error), flush=True)
    check(error < EXACT and len(losses["torchrec"]) == len(losses["eager"]) == 20, "torchrec, two ranks: losses off eager by %g" % error)
    check(pieces and set(pieces) <= {"table", "column"} and sum(pieces.values()) >= 3, "torchrec places three tables: %s" % pieces)


def main():
    everything = sys.argv[1:] == ["--all"]
    with tempfile.TemporaryDirectory() as directory:
        check_lacks(directory)
        check_refusals()
        if os.access(PYTHON, os.X_OK):
            check_runs(directory)
            if everything:
                check_ranks(directory)
        else:
            print("losses and answers are not compared: no '%s'; ci/torchrec makes it and compares them" % PYTHON)
            check(not everything, "--all: torchrec is not there")
    print("%d failures" % len(failures) if failures else "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
