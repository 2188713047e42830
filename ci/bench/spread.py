#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What taking turns is worth beside a bursty neighbour (neighbour.py). First: the spread of a pair, the sd of
ln(b / a) of the step time of a side against itself, in turns at step borders and one launch after the other, in turn
in the same runs; at most a tenth. Then: a planted 3 % slow-down must fail the gate at its first look, with the true
ratio in the interval. All pairs count: those that the gate voids are part of what back-to-back launches do, and
their ratio (of the medians of their steps) is taken from the raw rows.

Judged with the neighbour beside the sides: they are pinned to one CPU, it has all others, and slows them through the
shared core and memory, as another tenant of the machine does.
With --same-cpus it shares the CPUs of the sides instead and takes slices of their time: shown, not judged.

    python3 ci/bench/spread.py [--rounds N] [--repeat N] [--seed N] [--same-cpus]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

import rig

SHARE_LIMIT = 0.1
PLANTED = 1.03
SPREAD_STEPS = 200  # of dlrm demo: 0.8 s a side on an idle core
FOUND_STEPS = 500
FOUND_MARGINS_PCT = (2, 1)  # the default, which is judged, and a tighter one on the same pairs
FIRST_LOOK_ALPHA = 0.01 / 4  # what the first of the four default looks has of the default alpha


def schedule(args, **keys):
    return keys if args.same_cpus else dict(keys, cpus="0")


def neighbour(args, seed):
    cpus = sorted(os.sched_getaffinity(0))
    return rig.neighbour(seed, cpus if args.same_cpus else cpus[1:])


def spread(args, scratch):
    ratios, means = {"turns": [], "launches": []}, []
    valid = {"turns": 0, "launches": 0}
    for round_idx in range(args.rounds):
        workloads = [{"name": name, "model": "dlrm", "steps": SPREAD_STEPS, "interleave": interleave}
                     for name, interleave in (("turns", "steps"), ("launches", "launches"))]
        document = rig.plan(workloads[::-1] if round_idx % 2 else workloads,
                            schedule=schedule(args, looks=[5], seed=args.seed + round_idx),
                            gate={"alpha": 0.05, "calibrate": "require", "parity": {"rule": "off"},
                                  "metrics": {"step_time": {"margin": "2%"}}})
        with neighbour(args, args.seed + round_idx):
            result = rig.run(scratch, "spread", document)
        for name, values in ratios.items():
            values += rig.gate_ratios(result.store, name)
            valid[name] += len(rig.pair_ratios(result.store, name, states=("valid",)))
        means += rig.pair_ratios(result.store, "turns")
        print("round %d: %s" % (round_idx + 1, ", ".join("%s %s" % (name, ["%+.3f" % v for v in values[-5:]])
                                                        for name, values in ratios.items())), file=sys.stderr)
    turns, launches = (100 * statistics.stdev(ratios[name]) for name in ("turns", "launches"))
    return [
        rig.row("sd of %d pairs of launches, one after the other" % len(ratios["launches"]), launches, None, " %"),
        rig.row("    of them not voided by the gate", valid["launches"]),
        rig.row("sd of %d pairs in turns" % len(ratios["turns"]), turns, None if args.same_cpus else SHARE_LIMIT * launches, " %"),
        rig.row("    turns are better by a factor of", launches / turns),
        rig.row("    in turns, means of blocks instead of the gate's estimate", 100 * statistics.stdev(means), None, " %"),
    ]


def judge_again(scratch, store, margin_pct):
    """The verdict of the stored pairs under another margin, and their cell of step_time."""
    policy = os.path.join(scratch, "policy.yaml")
    with open(policy, "w") as file:
        json.dump({"alpha": FIRST_LOOK_ALPHA, "calibrate": "require", "parity": {"rule": "off"},
                   "metrics": {"step_time": {"margin": "%d%%" % margin_pct}}}, file)
    process = subprocess.run([rig.UPGATE, "gate", store, "--policy", policy, "-q"], env=rig.environment(scratch),
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if process.returncode not in rig.VERDICTS:
        raise SystemExit("upgate gate ended with %d:\n%s" % (process.returncode, process.stderr.decode()))
    return rig.VERDICTS[process.returncode], next(c for c in rig.cells(store) if c["metric"] == "step_time")


def found(args, scratch):
    """Gates that end at the first look of the default four: 10 pairs at a quarter of alpha."""
    candidate = rig.planted(scratch, "slow:3%")
    fails = {margin: 0 for margin in FOUND_MARGINS_PCT}
    inside, estimates, spreads = 0, [], []
    for i in range(args.repeat):
        document = rig.plan([{"name": "w", "model": "dlrm", "steps": FOUND_STEPS}], candidate=candidate,
                            schedule=schedule(args, looks=[10], interleave="steps", seed=args.seed + i),
                            gate={"alpha": FIRST_LOOK_ALPHA, "parity": {"rule": "off"}, "calibrate": "require",
                                  "metrics": {"step_time": {"margin": "%d%%" % FOUND_MARGINS_PCT[0]}}})
        with neighbour(args, args.seed + 100 + i):
            result = rig.run(scratch, "found", document)
        for margin in FOUND_MARGINS_PCT:
            verdict, cell = judge_again(scratch, result.store, margin)
            fails[margin] += verdict == "fail"
        inside += cell["ci_lower"] is not None and cell["ci_lower"] <= PLANTED <= cell["ci_upper"]
        estimates.append(cell["ratio"])
        spreads.append(100 * statistics.stdev(rig.gate_ratios(result.store, "w")))
        print("gate %d: %s at %d pairs, %.4f [%.4f %.4f], sd of a pair %.2f %%, %.0f s" %
              (i + 1, result.verdict, cell["pairs"], cell["ratio"], cell["ci_lower"] or 0, cell["ci_upper"] or 0,
               spreads[-1], result.seconds), file=sys.stderr)
    judged, tighter = FOUND_MARGINS_PCT
    return [
        rig.row("3 %% planted, margin %d %%: failed at the first look, of %d" % (judged, args.repeat), fails[judged],
                None if args.same_cpus else args.repeat, more_is_better=True),
        rig.row("    with a margin of %d %%, the same pairs" % tighter, fails[tighter]),
        rig.row("    interval holds the planted ratio, of %d" % args.repeat, inside),
        rig.row("    ratio, median", statistics.median(estimates)),
        rig.row("    sd of a pair, median", statistics.median(spreads), None, " %"),
    ]


def main():
    parser = argparse.ArgumentParser(description="turns beside a bursty neighbour")
    parser.add_argument("--rounds", type=int, default=4, help="of 5 pairs each way (4)")
    parser.add_argument("--repeat", type=int, default=3, help="gates with 3 %% planted (3)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--same-cpus", action="store_true", help="the neighbour takes time of the sides' own CPUs")
    args = parser.parse_args()
    rig.need_build()
    if not args.same_cpus and len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("spread: one CPU only, no room for a neighbour beside the sides; try --same-cpus")
    with rig.scratch() as scratch:
        rig.calibrate(scratch)
        rows = spread(args, scratch) if args.rounds else []
        rows += found(args, scratch) if args.repeat else []
    rig.finish("Spread of a pair beside a bursty neighbour", rows)


if __name__ == "__main__":
    main()
