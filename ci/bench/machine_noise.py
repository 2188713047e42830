#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of the noise of the *mean* step time is the machine's, and known: pairs of dlrm against itself in turns,
ln(sum of active time of b / of a) over all couples of blocks behind the first two, as it is and with table block's
machine_ns taken out; for steps of some 1.5 ms and 10 ms. On the machine as it is, with a bursty neighbour
(neighbour.py) on the other CPUs, and with it on the CPUs of the sides. Also how much machine time there was, and
the slope of a block's time on its machine_ns within a pair and side: 1 where what is taken out is just what was lost.

Exit 1 when taking it out makes the spread of a row larger by more than a quarter.

    python3 ci/bench/machine_noise.py [--pairs N] [--seed N] [--only quiet|beside|same]
"""

import argparse
import contextlib
import math
import os
import statistics
import sys

import rig

WORKLOADS = (  # some 1 s a side on an idle core
    ("1.5 ms", {"name": "w", "model": "dlrm", "size": "small", "args": ["--plant", "slow:150%"], "steps": 600}),
    ("10 ms", {"name": "w", "model": "dlrm", "size": "demo", "args": ["--plant", "slow:100%"], "steps": 100}),
)
WORSE_LIMIT = 1.25


def neighbour(where, seed):
    cpus = sorted(os.sched_getaffinity(0))
    if where == "quiet":
        return contextlib.nullcontext()
    return rig.neighbour(seed, cpus if where == "same" else cpus[1:])


def sides(store):
    """Blocks of each pair and side, (active, machine, steps), the first two couples left out."""
    for (pair,) in rig.query(store, "SELECT id FROM pair WHERE phase = 'main' AND state IN ('valid', 'void')"):
        yield [rig.query(store, "SELECT active_ns, machine_ns, steps FROM block WHERE pair_id = ? AND side = ? AND "
                                "couple >= 2 ORDER BY couple", pair, side) for side in (0, 1)]


def slope(sets):
    """Of active time on machine time, both about their means within each pair and side, one regression for all."""
    above = below = 0.0
    for blocks in sets:
        active, machine = (statistics.fmean(b[i] for b in blocks) for i in (0, 1))
        above += sum((b[0] - active) * (b[1] - machine) for b in blocks)
        below += sum((b[1] - machine) ** 2 for b in blocks)
    return above / below if below else float("nan")


def measure(args, scratch, where, what, workload):
    document = rig.plan([workload], schedule={"looks": [args.pairs], "interleave": "steps", "seed": args.seed,
                                              "voids": 100, "cpus": "0"},
                        gate={"parity": {"rule": "off"}, "calibrate": "require", "alpha": 0.05,
                              "metrics": {"step_time": {"margin": "50%"}}})
    with neighbour(where, args.seed):
        result = rig.run(scratch, "noise", document)
    raw, clean, middle, clean_middle, told, sets = [], [], [], [], [], []
    for a, b in sides(result.store):
        if not a or any(block[1] is None for block in a + b):
            print("a pair without machine_ns: this kernel does not tell it", file=sys.stderr)
            sys.exit(1)
        sets += [a, b]
        raw.append(math.log(sum(x[0] for x in b) / sum(x[0] for x in a)))
        clean.append(math.log(sum(x[0] - x[1] for x in b) / sum(x[0] - x[1] for x in a)))
        middle.append(rig.hodges_lehmann([math.log(y[0] / x[0]) for x, y in zip(a, b)]))
        clean_middle.append(rig.hodges_lehmann([math.log((y[0] - y[1]) / (x[0] - x[1])) for x, y in zip(a, b)]))
        told += a + b
    step_ms = statistics.median(x[0] / x[2] for x in told) / 1e6
    share = 100 * sum(x[1] for x in told) / sum(x[0] for x in told)
    title = {"quiet": "as it is", "beside": "neighbour beside", "same": "neighbour on the same CPU"}[where]
    spread, left = 100 * statistics.stdev(raw), 100 * statistics.stdev(clean)
    return [
        rig.row("%s, steps of %s (median %.1f ms): sd of %d pairs, sums as they are" % (title, what, step_ms, len(raw)), spread,
                None, " %"),
        rig.row("    machine_ns taken out", left, WORSE_LIMIT * spread, " %"),
        rig.row("    Hodges-Lehmann over couples, for comparison", 100 * statistics.stdev(middle), None, " %"),
        rig.row("    the same, machine_ns taken out", 100 * statistics.stdev(clean_middle), None, " %"),
        rig.row("    machine_ns, of all active time", share, None, " %"),
        rig.row("    slope of a block's time on its machine_ns", slope(sets)),
    ]


def main():
    parser = argparse.ArgumentParser(description="noise of the mean step time, with and without what the machine took")
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("quiet", "beside", "same"))
    args = parser.parse_args()
    rig.need_build()
    rows = []
    with rig.scratch() as scratch:
        for where in (args.only,) if args.only else ("quiet", "beside", "same"):
            if where == "beside" and len(os.sched_getaffinity(0)) < 2:
                print("one CPU only, no room for a neighbour beside the sides: not measured", file=sys.stderr)
                continue
            for what, workload in WORKLOADS:
                rows += measure(args, scratch, where, what, workload)
    rig.finish("Noise of the mean step time: sum of the active time of b over that of a", rows)


if __name__ == "__main__":
    main()
