#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Regressions of 0, 3 and 5 % planted in each step of unchanged programs (train.py: one process; gloo under torchrun; NCCL
on two GPUs), judged by the steps that are found and by step calls: the same verdict, the same ratio? All at the same
time, each pinned to two CPUs of its own.

    python3 ci/bench/found/judge.py UPGATE PYTHON OUT [PAIRS]
"""

import json
import os
import sqlite3
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORK = 1000


def plan(python, cpus, pairs, plant, calls, command, candidate=()):
    side = {"python": python}
    return {
        "baseline": dict(side, name="old", env={"WORK": str(WORK), "CALLS": calls}),
        "candidate": dict(side, name="new", env={"WORK": str(round(WORK * (1 + plant))), "CALLS": calls}),
        "workloads": [{"name": "train", "command": command}],
        "schedule": {"looks": [pairs], "traced_launches": 0, "timeout": "3min", "cpus": cpus},
        "gate": {"parity": {"rule": "off"}, "calibrate": "require"},
    }


def cases(gpus):
    train = os.path.join(HERE, "train.py")
    run = ["{python}", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", train]
    for plant in (0, 0.03, 0.05):
        for calls in ("0", "1"):
            way = "calls" if calls == "1" else "found"
            yield "one process, %d %%, %s" % (100 * plant, way), plant, calls, ["{python}", train]
            if plant != 0.05:
                yield "gloo, 2 ranks, %d %%, %s" % (100 * plant, way), plant, calls, run + ["--steps", "100"]
            if gpus >= 2 and plant != 0.03:
                yield "NCCL, 2 GPUs, %d %%, %s" % (100 * plant, way), plant, calls, run + ["--device", "cuda"]


def main():
    upgate, python, out = sys.argv[1:4]
    pairs = int(sys.argv[4]) if len(sys.argv) > 4 else 7
    gpus = int(subprocess.run([python, "-c", "import torch; print(torch.cuda.device_count())"], stdout=subprocess.PIPE,
                              check=True).stdout)
    cpus = sorted(os.sched_getaffinity(0))
    running, queue, done = {}, list(enumerate(cases(gpus))), []
    free = [cpus[i:i + 2] for i in range(0, len(cpus) - 1, 2)]
    while queue or running:
        while queue and free:
            index, (name, plant, calls, command) = queue.pop(0)
            pair = free.pop(0)
            path = os.path.join(out, "case%d" % index)
            with open(path + ".json", "w") as file:
                json.dump(plan(python, ",".join(map(str, pair)), pairs, plant, calls, command), file)
            with open(path + ".txt", "w") as text:
                process = subprocess.Popen([upgate, "ab", path + ".json", "-q", "-o", path + ".db"], stdout=text,
                                           stderr=subprocess.STDOUT)
            running[process] = (name, path, pair)
        time.sleep(0.1)
        for process in [process for process in running if process.poll() is not None]:
            name, path, pair = running.pop(process)
            free.append(pair)
            done.append((name, process.returncode, path))
    for name, code, path in sorted(done, key=lambda case: case[0]):
        try:
            db = sqlite3.connect(path + ".db")
            row = db.execute("SELECT ratio, ci_lower, ci_upper, verdict, median_a FROM cell WHERE metric = 'step_time'"
                             ).fetchone()
            note = db.execute("SELECT note FROM workload").fetchone()[0]
            started = db.execute("SELECT median_a FROM cell WHERE metric = 'startup_time'").fetchone()
            print("%-36s exit %d  step %8.3f ms  %+6.2f %% (%+.2f to %+.2f)  %-12s start-up %5.2f s  %s" % (
                name, code, row[4] / 1e6, 100 * (row[0] - 1), 100 * (row[1] - 1), 100 * (row[2] - 1), row[3],
                started[0] / 1e9, note), flush=True)
        except (sqlite3.Error, TypeError, IndexError) as error:
            print("%-36s exit %d  %s\n%s" % (name, code, error, open(path + ".txt").read()[-600:]), flush=True)


if __name__ == "__main__":
    main()
