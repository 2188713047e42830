#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a found step costs: a loop whose optimizer, model and backward pass do next to nothing, without upgate and with
its steps found (and no gate), by turns in processes of their own, in CPU time; the difference of the medians, in microseconds a step.
PYTHON's torch is the real one.

    python3 ci/bench/found/cost.py BUILD PYTHON [ROUNDS]
"""

import os
import statistics
import subprocess
import sys

LOOP = """
import sys, time, torch
class Nothing(torch.optim.Optimizer):
    def __init__(self):
        super().__init__([torch.zeros(1, requires_grad=True)], {})
    def step(self, closure=None):
        pass
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
    def forward(self, x):
        return x
torch.set_num_threads(1)
model, x, leaf = Model(), torch.ones(1), torch.ones(1, requires_grad=True)
kind, count, times = KIND, 3000, []
optimizer = Nothing() if kind != "inference" else None
for round in range(12):
    begin = time.thread_time_ns()
    for _ in range(count):
        model(x)
        if kind == "training":
            torch.autograd.backward(leaf * 1)
        if optimizer is not None:
            optimizer.step()
    times.append((time.thread_time_ns() - begin) / count / 1e3)
print("LOOP", min(times[2:]), file=sys.stderr)
"""


LIMIT_US = 2.0


def loop(build, python, kind, found):
    env = {key: value for key, value in os.environ.items() if not key.startswith("UPGATE_")}
    command = [python, "-c", LOOP.replace("KIND", repr(kind))]
    if found:
        env.update(UPGATE_STEPS_FROM="auto", PYTHONPATH="%s/python/start:%s/python" % (build, build))
        command = [os.path.join(build, "tests/e2e/step_host"), "0", "0"] + command
    done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 0 and "LOOP " in done.stderr, done.stderr
    return float(done.stderr.split("LOOP ")[1].split()[0])


def main():
    build, python = os.path.abspath(sys.argv[1]), sys.argv[2]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    missed = False
    for kind in ("optimizer", "training", "inference"):
        costs, plain = [], []
        for _ in range(rounds):
            plain.append(loop(build, python, kind, False))
            costs.append(loop(build, python, kind, True))
        cost = statistics.median(costs) - statistics.median(plain)
        missed |= cost > LIMIT_US
        print("%-10s %6.2f us a step without, %6.2f with: %5.2f us, at most %g: %s" % (
            kind, statistics.median(plain), statistics.median(costs), cost, LIMIT_US, "MISSED" if cost > LIMIT_US else "ok"),
              flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
