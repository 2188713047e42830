#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ci/gpu/suite without a GPU: nvidia-smi, nproc and upgate are scripts that say how many there are and write down what they are asked for. Which model
goes to which GPU and to which CPUs, with one lane a GPU and with several; what of LANES is refused; an earlier run's exit code is not taken for one of this."""
import collections
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(HERE))
LIMIT_S = 60
failures = []

TOOLS = {"nvidia-smi": '[ "$1" != -L ] || seq "$GPUS_HERE"', "nproc": 'echo "${OMP_NUM_THREADS:-$CPUS_HERE}"',
         "upgate": 'echo "$CUDA_VISIBLE_DEVICES $2" >>"$CALLS"'}
ONE_RANK = {"dlrm-train", "dlrm-infer", "dlrm-cached-train", "transformer-train", "transformer-infer", "transformer-decode-infer", "hstu-train",
            "hstu-infer", "vision-train", "vision-infer"}
TWO_RANKS = {"ddp-train", "fsdp-train", "dlrm-sharded-train"}


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what, flush=True)


class Suite:
    """A run of the script. runs: {name of the run: (GPUs, first CPU, last CPU, models)}."""

    def __init__(self, directory, gpus, cpus, part, **environment):
        tools, out, calls = (os.path.join(directory, name) for name in ("bin", "out", "calls"))
        os.makedirs(tools, exist_ok=True)
        for name, text in TOOLS.items():
            with open(os.path.join(tools, name), "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n%s\n" % text)
            os.chmod(file.name, 0o755)
        open(calls, "w", encoding="utf-8").close()
        own = dict(os.environ, PATH=tools + os.pathsep + os.environ["PATH"], UPGATE=os.path.join(tools, "upgate"), CALLS=calls, PYTHON="python3",
                   GPUS_HERE=str(gpus), CPUS_HERE=str(cpus), OMP_NUM_THREADS="1")
        for name in ("LANES", "GPUS", "MODELS"):
            own.pop(name, None)
        done = subprocess.run([os.path.join(SOURCE, "ci", "gpu", "suite"), out, part], env=dict(own, **environment), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True, timeout=LIMIT_S)
        self.status, self.said, self.runs = done.returncode, done.stdout, {}
        with open(calls, encoding="utf-8") as file:
            asked = [line.split() for line in file]
        for shown, plan in asked:
            with open(plan, encoding="utf-8") as file:
                text = file.read()
            first, last = map(int, re.search(r'cpus: "(\d+)-(\d+)"', text).groups())
            self.runs[os.path.basename(plan)[:-len(".yaml")]] = (shown, first, last, re.findall(r"- \{name: ([a-z-]+),", text))


def check_lanes(directory):
    suite = Suite(directory, 1, 16, "same", LANES="4")
    check(suite.status == 0 and "two ranks are left out" in suite.said, "four lanes on a GPU: %d: %s" % (suite.status, suite.said))
    check({name: run[:3] for name, run in suite.runs.items()} == {"same-1-%d" % i: ("0", 4 * i, 4 * i + 3) for i in range(4)},
          "four lanes on a GPU, each with four CPUs of its own: %s" % suite.runs)
    models = collections.Counter(model for run in suite.runs.values() for model in run[3])
    check(models == collections.Counter(ONE_RANK), "each model once: %s" % models)
    few = Suite(directory, 1, 6, "same", LANES="3")
    check(sorted(run[1:3] for run in few.runs.values()) == [(0, 1), (2, 3), (4, 5)], "six CPUs for three lanes: %s" % few.runs)
    # The first lanes of both GPUs before the second of one; another suite may have the GPUs 0 and 1, and so their CPUs.
    some = Suite(directory, 4, 64, "same", LANES="2", GPUS="2-3", MODELS="^(hstu|ddp)-")
    check(some.runs == {"same-1-0": ("2", 16, 19, ["hstu-train"]), "same-1-1": ("3", 24, 27, ["hstu-infer"]),
                        "same-2-0": ("2,3", 16, 23, ["ddp-train"])}, "two lanes on two GPUs of four: %s" % some.runs)


def check_plain(directory):
    suite = Suite(directory, 2, 8, "same")
    check(suite.status == 0 and {name: run[:3] for name, run in suite.runs.items()} == {
        "same-1-0": ("0", 0, 3), "same-1-1": ("1", 4, 7), "same-2-0": ("0,1", 0, 7)}, "two GPUs: %d, %s" % (suite.status, suite.runs))
    check(set(suite.runs["same-2-0"][3]) == TWO_RANKS, "models of two ranks: %s" % suite.runs["same-2-0"][3])


def check_refusals(directory):
    for lanes, words in (("0", "LANES=0: runs a GPU"), ("x", "LANES=x: runs a GPU"), ("32", "32 lanes on each of 1 GPUs need as many CPUs, and here are 16")):
        suite = Suite(directory, 1, 16, "same", LANES=lanes)
        check(suite.status == 2 and not suite.runs and words in suite.said, "LANES=%s: %d: %s" % (lanes, suite.status, suite.said))
    with open(os.path.join(directory, "out", "tf32-1-9.rc"), "w", encoding="utf-8") as file:
        file.write("1\n")
    suite = Suite(directory, 1, 4, "tf32")
    check(suite.status == 1 and suite.runs, "no run of tf32 fails, but one did before: %d: %s" % (suite.status, suite.said))


def main():
    with tempfile.TemporaryDirectory() as directory:
        check_lanes(directory)
        check_plain(directory)
        check_refusals(directory)
    print("%d failures" % len(failures) if failures else "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
