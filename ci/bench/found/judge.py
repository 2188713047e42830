#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Regressions of 0, 3 and 5 % planted in each step of unchanged programs (train.py: one process; gloo under torchrun; NCCL on two GPUs;
serve.py: an inference server), judged by the steps that are found and by step calls. All at the same time, each pinned to two CPUs
of its own, and on GPUs of its own. Neither way may contradict the other (pass and fail), their ratios must be within 1 % or in each other's
intervals, and what is equal must not fail. How many had the same verdict, and ratios within 1 %, is said.

    python3 ci/bench/found/judge.py UPGATE PYTHON OUT [PAIRS [PART OF A NAME…]]

Exit 0: all of it held; 1: not."""

import json
import os
import sqlite3
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORK = 1000
RATIO_MAX = 0.01  # between the two ratios


def plan(case, python, cpus, gpus, pairs):
    sides = [{"name": name, "python": python,
              "env": {"WORK": str(work), "CALLS": case["calls"], "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}}
             for name, work in (("old", WORK), ("new", round(WORK * (1 + case["plant"]))))]
    return {
        "baseline": sides[0],
        "candidate": sides[1],
        "workloads": [{"name": "train", "command": case["command"]}],
        "schedule": {"looks": [pairs], "traced_launches": 0, "timeout": "3min", "cpus": cpus},
        # Seven pairs can decide at 1 %, five at 5 %.
        "gate": {"alpha": 0.01 if pairs >= 7 else 0.05, "parity": {"rule": "off"}, "calibrate": "require"},
    }


def cases(gpus):
    train, serve = (os.path.join(HERE, name) for name in ("train.py", "serve.py"))
    run = ["{python}", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", train]
    programs = [("one process", ["{python}", train], 0, (0, 0.03, 0.05)), ("gloo, 2 ranks", run + ["--steps", "100"], 0, (0, 0.03)),
                ("a server", ["{python}", serve], 0, (0, 0.03))]
    if gpus >= 1:
        programs += [("one process, GPU", ["{python}", train, "--device", "cuda"], 1, (0, 0.03)),
                     ("a server, GPU", ["{python}", serve, "--device", "cuda"], 1, (0.03,))]
    if gpus >= 2:
        programs.insert(0, ("NCCL, 2 GPUs", run + ["--device", "cuda"], 2, (0, 0.03)))
    for name, command, needs, plants in programs:
        for plant in plants:
            for calls in "01":
                yield {"name": "%s, %d %%" % (name, 100 * plant), "plant": plant, "calls": calls, "command": command, "gpus": needs}


def start(case, upgate, python, path, cpus, gpus, pairs):
    case.update(path=path, cpus=cpus, on=gpus)
    with open(path + ".json", "w") as file:
        json.dump(plan(case, python, ",".join(map(str, cpus)), gpus, pairs), file)
    with open(path + ".txt", "w") as text:
        case["process"] = subprocess.Popen([upgate, "ab", path + ".json", "-q", "-o", path + ".db"], stdout=text, stderr=subprocess.STDOUT)


def result(case):
    """(ratio, low, high, verdict) of the step time; None, with what upgate printed, where there is none."""
    way = "calls" if case["calls"] == "1" else "found"
    try:
        db = sqlite3.connect(case["path"] + ".db")
        ratio, low, high, verdict, step_ns = db.execute(
            "SELECT ratio, ci_lower, ci_upper, verdict, median_a FROM cell WHERE metric = 'step_time'").fetchone()
        note = db.execute("SELECT note FROM workload").fetchone()[0]
        print("%-24s %s exit %d  step %8.3f ms  %+6.2f %% (%+.2f to %+.2f)  %-12s %s" % (
            case["name"], way, case["process"].returncode, step_ns / 1e6, 100 * (ratio - 1), 100 * (low - 1), 100 * (high - 1), verdict,
            note or ""))
        return ratio, low, high, verdict
    except (sqlite3.Error, TypeError) as error:
        print("%-24s %s exit %d  %s\n%s" % (case["name"], way, case["process"].returncode, error, open(case["path"] + ".txt").read()[-600:]))
        return None


def is_near(found, calls):
    return abs(found[0] / calls[0] - 1) <= RATIO_MAX


def compare(plant, found, calls):
    if found is None or calls is None:
        return "no step time"
    wrong = []
    if {found[3], calls[3]} == {"pass", "fail"}:
        wrong.append("the verdicts contradict each other")
    if not is_near(found, calls) and not (calls[1] <= found[0] <= calls[2] and found[1] <= calls[0] <= found[2]):
        wrong.append("ratios differ by %.2f %%" % (100 * abs(found[0] / calls[0] - 1)))
    if not plant and found[3] == "fail":
        wrong.append("equal sides failed")
    return ", ".join(wrong)


def main():
    upgate, python, out = sys.argv[1:4]
    pairs = int(sys.argv[4]) if len(sys.argv) > 4 else 7
    gpus = int(subprocess.run([python, "-c", "import torch; print(torch.cuda.device_count())"], stdout=subprocess.PIPE, check=True).stdout)
    os.makedirs(out, exist_ok=True)
    queue = [case for case in cases(gpus) if not sys.argv[5:] or any(word in case["name"] for word in sys.argv[5:])]
    cpus = sorted(os.sched_getaffinity(0))
    free, free_gpus, running, done = [cpus[i:i + 2] for i in range(0, len(cpus) - 1, 2)], list(range(gpus)), [], []
    while queue or running:
        for case in list(queue):
            if free and case["gpus"] <= len(free_gpus):
                queue.remove(case)
                on = [free_gpus.pop() for _ in range(case["gpus"])]
                start(case, upgate, python, os.path.join(out, "case%d" % (len(done) + len(running))), free.pop(), on, pairs)
                running.append(case)
        time.sleep(0.1)
        for case in [case for case in running if case["process"].poll() is not None]:
            running.remove(case)
            free.append(case["cpus"])
            free_gpus.extend(case["on"])
            done.append(case)
    failed, same, near = 0, 0, 0
    for case in sorted((case for case in done if case["calls"] == "0"), key=lambda case: case["name"]):
        other = next(one for one in done if one["calls"] == "1" and one["name"] == case["name"])
        found, calls = result(case), result(other)
        wrong = compare(case["plant"], found, calls)
        print("%-24s %s" % ("", "FAILED: " + wrong if wrong else "ok"), flush=True)
        failed += bool(wrong)
        same += bool(found and calls and found[3] == calls[3])
        near += bool(found and calls and is_near(found, calls))
    print("%d of %d contradict step calls; the same verdict in %d, ratios within 1 %% in %d" % (failed, len(done) // 2, same, near))
    sys.exit(bool(failed) or not done)


if __name__ == "__main__":
    main()
