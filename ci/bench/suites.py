#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Error rates of the gate over whole suites: dlrm, transformer, all-reduce by two ranks and an unchanged command, judged by one
`upgate ab` a suite, each suite with its own seed. Both sides are the same (none may fail; how many pairs does a pass take?), or
the candidate's typical step is --slower by some percent (every one must fail). --models: torch runs the PyTorch models on the CPU under $PYTHON
instead of the native ones. --beside: bursty neighbours on the same CPUs. Every suite is appended to --log, so that rounds add up and
an interruption loses nothing; a suite of another build does not count.

    python3 ci/bench/suites.py [--only NAME…] [--models native|torch] [--slower PCT] [--beside] [--count N] [--jobs N] [--minutes M] [--log FILE]
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import statistics
import sys

import rig

sys.path.insert(0, os.path.join(rig.ROOT, "ci"))
import parallel
import plant_verdicts as judge

FALSE_FAILS_MOST, EARLY_PAIRS, EARLY_LEAST = 0.005, 14, 0.80  # of suites
POWER_LEAST = 0.95  # of cells of a planted side, within the last look
MARGIN_PCT = 2  # of step_time, the default: a side that is less slower than that may not fail
JOB = [judge.JOB, "--steps", "{steps}", "--seed", "{seed}", "--dtype", "{dtype}", "--work", "1ms", "--outputs", "none"]
RUN_STEPS = 100000  # a real run: its warm-up is judged as a share of that
STEPS = {"dlrm": 240, "transformer": 240, "allreduce": 4000, "ddp": 180}


def torch_command(model):
    return ["{python}", os.path.join(rig.BUILD, "reference_models/torch", model + ".py"), "--mode", "train", "--steps", "{steps}",
            "--seed", "{seed}", "--ranks", "{ranks}", "--device", "cpu"]


def workloads(models, only=None):
    if models == "torch":
        asked = [{"name": name, "command": torch_command(name), "mode": "train", "steps": steps, "ranks": ranks}
                 for name, steps, ranks in (("dlrm", 200, 1), ("transformer", 100, 1), ("ddp", STEPS["ddp"], 2))]
    else:
        asked = [{"name": name, "model": name, "size": "small", "steps": STEPS[name]} for name in ("dlrm", "transformer", "allreduce")]
        asked[-1]["ranks"] = 2
    asked.append({"name": "command", "command": JOB, "mode": "train", "steps": 400})
    return [dict(one, run_steps=RUN_STEPS) for one in asked if one["name"] in (only or one["name"])]


def build_key():
    """What makes two suites comparable: the program and the workloads."""
    digest = hashlib.sha256()
    for path in [rig.UPGATE, judge.JOB] + [os.path.join(rig.MODELS, name) for name in ("dlrm", "transformer", "allreduce")]:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def plan_of(options, scratch, seed):
    slower = options.slower and rig.planted(scratch, "slow:%g%%" % options.slower)
    plan = rig.plan(workloads(options.models, options.only), candidate=slower or None,
                    schedule={"looks": [10, 14, 20, 28], "interleave": "auto", "block": "20ms", "seed": seed, "timeout": "2min"},
                    gate={"calibrate": "require"})  # what is asked here is the verdict; the control is asked in plants
    if options.models == "torch":
        for side in ("baseline", "candidate"):
            del plan[side]["models"]
            plan[side]["python"] = os.environ.get("PYTHON", sys.executable)
    if options.slower:
        plan["candidate"]["env"] = {"PLANT": "from=0%%,to=100%%,times=%g" % (1 + options.slower / 100)}
    return plan


def one_suite(options, seed):
    with rig.scratch() as scratch, (rig.neighbour(seed, parallel.own_cpus()) if options.beside else contextlib.nullcontext()):
        result = rig.run(scratch, "suite", plan_of(options, scratch, seed), prefix=parallel.pinned([]))
        document = json.loads(judge.upgate(["report", result.store, "--format", "json"], scratch))
    gated = [cell for cell in document["cells"] if cell["gating"]]
    by_workload = {}
    for cell in gated:
        own = by_workload.setdefault(cell["workload"], {"cells": {}, "pairs": 0})
        own["cells"][cell["metric"]] = cell["verdict"]
        own["pairs"] = max(own["pairs"], cell["pairs"] if cell["unit"] != "bytes" else 0)
        if cell["metric"] == "step_time":
            own.update({name: cell[name] for name in ("ratio", "ci_lower", "ci_upper")})
    unmeasured = [name for name, own in by_workload.items() if not own["pairs"]]
    if unmeasured or not by_workload:
        sys.exit("suites.py: nothing was measured of %s: %s" % (", ".join(unmeasured) or "anything", document["reason"]))
    return {"build": build_key(), "seed": seed, "outcome": judge.outcome(document), "reason": document["reason"][:300], "seconds": round(result.seconds, 1),
            "findings": sorted({f["kind"] for f in document["findings"] if f["effect"] != "note"}), "workloads": by_workload}


def worst(own):
    for verdict in ("fail", "inconclusive", "pass"):
        if verdict in own["cells"].values():
            return verdict
    return "none"


def rows_equal(suites):
    count, names = len(suites), sorted({name for suite in suites for name in suite["workloads"]})
    fails = sum(suite["outcome"] == "fail" for suite in suites)
    rows = [rig.row("of %d suites, false fails" % count, 100 * fails / count, 100 * FALSE_FAILS_MOST, " %"),
            rig.row("    95 % upper bound of their rate", 100 * rig.clopper_pearson_upper(fails, count), None, " %")]
    for kind in ("pass", "inconclusive"):
        rows.append(rig.row("    " + kind, sum(suite["outcome"] == kind for suite in suites)))
    early = sum(worst(s["workloads"][n]) == "pass" and s["workloads"][n]["pairs"] <= EARLY_PAIRS for s in suites for n in s["workloads"])
    total = sum(len(suite["workloads"]) for suite in suites)
    rows.append(rig.row("of %d workloads, pass within %d pairs" % (total, EARLY_PAIRS), 100 * early / total, 100 * EARLY_LEAST, " %", more_is_better=True))
    for name in names:
        own = [suite["workloads"][name] for suite in suites if name in suite["workloads"]]
        early = sum(worst(one) == "pass" and one["pairs"] <= EARLY_PAIRS for one in own)
        rows.append(rig.row("    %s" % name, 100 * early / len(own), None, " %"))
        for verdict in ("fail", "inconclusive"):
            for metric in sorted({m for one in own for m in one["cells"]}):
                hits = sum(one["cells"].get(metric) == verdict for one in own)
                if hits:
                    rows.append(rig.row("        %s because of %s" % (verdict, metric), hits))
    return rows


def rows_slower(suites, slower):
    rows, planted = [], 1 + slower / 100
    for name in sorted({name for suite in suites for name in suite["workloads"]}):
        own = [suite["workloads"][name] for suite in suites if name in suite["workloads"]]
        fails = sum(worst(one) == "fail" for one in own)
        passes = sum(worst(one) == "pass" for one in own)
        if slower > MARGIN_PCT:
            rows.append(rig.row("%s: of %d, fail" % (name, len(own)), 100 * fails / len(own), 100 * POWER_LEAST, " %", more_is_better=True))
            rows.append(rig.row("    pass", passes, 0))
        else:
            rows.append(rig.row("%s: of %d, fail" % (name, len(own)), fails, 0))
            rows.append(rig.row("    pass", passes))
        bounds = [one for one in own if None not in (one.get("ci_lower"), one.get("ci_upper"))]
        rows.append(rig.row("    of %d intervals, hold the planted ratio" % len(bounds), sum(one["ci_lower"] <= planted <= one["ci_upper"] for one in bounds)))
        rows.append(rig.row("    pairs, mean", statistics.mean(one["pairs"] for one in own)))
        ratios = [one["ratio"] for one in own if one.get("ratio")]
        rows.append(rig.row("    ratio of the typical step, median", statistics.median(ratios) if ratios else None))
    return rows


def main():
    parser = argparse.ArgumentParser(description="error rates of the gate over whole suites")
    parser.add_argument("--models", choices=("native", "torch"), default="native")
    parser.add_argument("--slower", type=float, default=0, help="planted slow-down of every step, percent (0)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these workloads of the suite")
    parser.add_argument("--beside", action="store_true", help="beside bursty neighbours")
    parser.add_argument("--count", type=int, default=20, help="suites in all, those in the log included (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the first suite (1)")
    parser.add_argument("--jobs", type=int, default=1, help="suites at a time, each on CPUs of its own (1)")
    parser.add_argument("--minutes", type=float, help="begin no suite after so long")
    parser.add_argument("--log", help="suites of earlier rounds are here; new ones are appended")
    options = parser.parse_args()
    rig.need_build()
    unknown = set(options.only or ()) - {one["name"] for one in workloads(options.models)}
    if unknown:
        parser.error("no workload '%s'" % unknown.pop())
    if options.slower and options.models == "torch":
        parser.error("--slower plants in the native models only")
    suites = []
    if options.log and os.path.exists(options.log):
        with open(options.log, encoding="utf-8") as file:
            suites = [suite for suite in map(json.loads, file) if suite["build"] == build_key()]
    had = {suite["seed"] for suite in suites}
    seeds = [seed for seed in range(options.seed, options.seed + options.count) if seed not in had]
    for suite in parallel.run_all([functools.partial(one_suite, options, seed) for seed in seeds], options.jobs, options.minutes):
        suites.append(suite)
        if options.log:
            with open(options.log, "a", encoding="utf-8") as file:
                file.write(json.dumps(suite) + "\n")
        print("seed %d: %s, %s, %.1f s: %s" % (suite["seed"], suite["outcome"], " ".join(
            "%s %s/%d" % (n, worst(w), w["pairs"]) for n, w in sorted(suite["workloads"].items())), suite["seconds"], suite["reason"]), file=sys.stderr)
    if not suites:
        sys.exit("no suite was run")
    rig.finish("Suites%s, %s models%s" % (" slower by %g %%" % options.slower if options.slower else ", a side against itself", options.models,
                                          ", beside a neighbour" if options.beside else ""),
               rows_slower(suites, options.slower) if options.slower else rows_equal(suites))


if __name__ == "__main__":
    main()
