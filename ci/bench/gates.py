#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Error rates of the gate, by running it: many gates of a short native workload, each a fresh `upgate ab` with
its own seed, against itself (--kind aa: none may fail) or with a planted slow-down (--kind slow --share 5: at
least 95 % must fail; --share 0.5, well inside the margin of 2 %: none may). Every verdict is appended to --log,
so that rounds add up and an interruption loses nothing. A gate of an earlier build does not count.

    python3 ci/bench/gates.py --kind aa|slow [--share PCT] [--count N] [--log FILE]
"""

import argparse
import hashlib
import json
import math
import os
import statistics
import sys

import rig

MARGIN_PCT = 2  # of step_time, the default
STEPS = 240     # of dlrm small: 0.13 s a side, with start and end a pair of 0.3 s


def build_key():
    """What makes two gates comparable: the program and the workload."""
    digest = hashlib.sha256()
    for path in (rig.UPGATE, os.path.join(rig.MODELS, "dlrm")):
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def read_log(path, key):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        gates = [json.loads(line) for line in file]
    return [gate for gate in gates if gate["build"] == key]


def one_gate(scratch, candidate, seed, key):
    document = rig.plan([{"name": "w", "model": "dlrm", "size": "small", "steps": STEPS}], candidate=candidate,
                        schedule={"looks": [10, 14, 20, 28], "interleave": "steps", "block": "10ms", "seed": seed})
    result = rig.run(scratch, "gate", document)
    cell = next(c for c in rig.cells(result.store) if c["metric"] == "step_time")
    own = rig.pair_ratios(result.store, "w", states=("valid",))
    calibrated = rig.query(result.store, "SELECT calibrated FROM verdict")[0][0]
    return {"build": key, "seed": seed, "verdict": result.verdict, "seconds": round(result.seconds, 3),
            "pairs": cell["pairs"], "ratio": cell["ratio"], "ci": [cell["ci_lower"], cell["ci_upper"]],
            "own_ratio": math.exp(rig.hodges_lehmann(own)) if own else None,
            "sd": spread(rig.gate_ratios(result.store, "w")), "own_sd": spread(own), "calibrated": calibrated,
            "cells": {c["metric"]: c["verdict"] for c in rig.cells(result.store) if c["gating"]}}


def run_gates(args, name, gates, key):
    """Runs what is missing up to the count; returns all."""
    with rig.scratch() as scratch:
        rig.calibrate(scratch)
        candidate = rig.planted(scratch, "slow:%g%%" % args.share) if args.kind == "slow" else None
        while len(gates) < args.count:
            gate = one_gate(scratch, candidate, args.seed + len(gates), key)
            gates.append(gate)
            with open(args.log, "a") as file:
                file.write(json.dumps(gate) + "\n")
            print("%s %d/%d: %s at %d pairs, %.4f [%s], %.1f s" %
                  (name, len(gates), args.count, gate["verdict"], gate["pairs"], gate["ratio"] or math.nan,
                   " ".join("%.4f" % (bound or math.nan) for bound in gate["ci"]), gate["seconds"]), file=sys.stderr)
    return gates


def spread(ratios):
    """None: a gate that had to give up had fewer than two pairs."""
    return statistics.stdev(ratios) if len(ratios) > 1 else None


def rows_of(args, gates):
    count, true_ratio = len(gates), 1 + args.share / 100
    verdicts = [gate["verdict"] for gate in gates]
    fails = verdicts.count("fail")
    rows = []
    if args.kind == "slow" and args.share > MARGIN_PCT:
        rows.append(rig.row("of %d gates, fail" % count, 100 * fails / count, 95, " %", more_is_better=True))
        with_bounds = [gate for gate in gates if None not in gate["ci"]]
        inside = sum(gate["ci"][0] <= true_ratio <= gate["ci"][1] for gate in with_bounds)
        rows.append(rig.row("    intervals that hold the planted ratio", 100 * inside / max(1, len(with_bounds)), None, " %"))
    else:
        rows.append(rig.row("of %d gates, false fails" % count, fails, 0))
        rows.append(rig.row("    95 % upper bound of their rate", 100 * rig.clopper_pearson_upper(fails, count), None, " %"))
    rows.append(rig.row("    pass", verdicts.count("pass")))
    rows.append(rig.row("    inconclusive", verdicts.count("inconclusive")))
    for metric in sorted({metric for gate in gates for metric in gate["cells"]}):
        undecided = sum(gate["cells"].get(metric) == "inconclusive" for gate in gates)
        rows.append(rig.row("        because of %s" % metric, undecided))
    rows.append(rig.row("    not calibrated", sum(not gate["calibrated"] for gate in gates)))
    rows.append(rig.row("    pairs until the verdict, mean", statistics.mean(gate["pairs"] for gate in gates)))
    rows.append(rig.row("    seconds until the verdict, mean", statistics.mean(gate["seconds"] for gate in gates)))
    rows.append(rig.row("    sd of a pair, median over gates", 100 * statistics.median(g["sd"] for g in gates if g["sd"] is not None), None, " %"))
    rows.append(rig.row("    ratio, median over gates", statistics.median(g["ratio"] for g in gates if g["ratio"])))
    rows.append(rig.row("    the same from the means of blocks", statistics.median(g["own_ratio"] for g in gates if g["own_ratio"])))
    return rows


def main():
    parser = argparse.ArgumentParser(description="error rates of the gate")
    parser.add_argument("--kind", choices=("aa", "slow"), required=True)
    parser.add_argument("--share", type=float, default=5, help="planted slow-down, percent (5)")
    parser.add_argument("--count", type=int, default=100, help="gates in all, those in the log included (100)")
    parser.add_argument("--seed", type=int, default=1000, help="of the first gate (1000)")
    parser.add_argument("--log", help="default: out/bench/gates-KIND.jsonl")
    args = parser.parse_args()
    rig.need_build()
    if args.kind == "aa":
        args.share = 0
    name = "aa" if args.kind == "aa" else "slow-%g" % args.share
    args.log = args.log or os.path.join(rig.ROOT, "out/bench/gates-%s.jsonl" % name)
    os.makedirs(os.path.dirname(args.log), exist_ok=True)
    key = build_key()
    gates = run_gates(args, name, read_log(args.log, key)[:args.count], key)
    rig.finish("Gates, a side against itself" if args.kind == "aa" else
               "Gates with a planted slow-down of %g %%, margin %d %%" % (args.share, MARGIN_PCT), rows_of(args, gates))


if __name__ == "__main__":
    main()
