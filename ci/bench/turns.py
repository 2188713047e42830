#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a turn costs: the time from the arrival of one side at its gate to the begin of the next side's first
step (hold, freeze, thaw, wake-up), for 1 and 2 ranks, by each way to stop a tree that this machine has.
Reads table block and launch.covariates. Exit 1 when the median is above 200 us.

    python3 ci/bench/turns.py [--pairs N]
"""

import argparse
import json
import os
import statistics
import sys

import rig

LIMIT_US = 200
# Hiding a mount from upgate makes it take the next way it knows. Needs the right to make a mount namespace.
MEANS = (
    ("cgroup v2", None),
    ("cgroup v1 freezer", ("cgroup2",)),
    ("signals", ("cgroup2", "freezer")),
)
WORKLOADS = (
    ("1 rank", {"name": "w", "model": "dlrm", "size": "small", "steps": 800}),
    ("2 ranks", {"name": "w", "model": "allreduce", "size": "small", "ranks": 2, "steps": 800}),
)


def mounts(kind):
    with open("/proc/self/mounts") as file:
        fields = [line.split() for line in file]
    return [f[1] for f in fields if f[2] == kind or (f[2] == "cgroup" and kind in f[3].split(","))]


def hide(kinds):
    """A prefix that runs a command without these mounts; it exec's, so the process id stays."""
    paths = [path for kind in kinds for path in mounts(kind)]
    if not paths:
        return ()
    return ("unshare", "--mount", "sh", "-c",
            " && ".join('umount "%s"' % path for path in paths) + ' && exec "$@"', "sh")


def gaps_us(store):
    """From the end of a block to the begin of the next one of the pair, the first two couples left out."""
    gaps = []
    for (pair,) in rig.query(store, "SELECT DISTINCT pair_id FROM block"):
        blocks = rig.query(store, "SELECT begin_ns, active_ns FROM block WHERE pair_id = ? AND couple >= 2 "
                                  "ORDER BY begin_ns", pair)
        gaps += [(after[0] - before[0] - before[1]) / 1e3 for before, after in zip(blocks, blocks[1:])]
    return gaps


def freezes(store):
    """How the trees were stopped, the mean time of freeze and thaw, and of readings of the machine, in us."""
    covariates = [json.loads(text) for (text,) in rig.query(
        store, "SELECT covariates FROM launch l JOIN pair p ON p.id = l.pair_id WHERE p.phase = 'main'")]
    count = sum(c["freeze_count"] for c in covariates)
    return covariates[0]["freezer"], *(sum(c[key] for c in covariates) / max(count, 1) / 1e3
                                      for key in ("freeze_ns", "machine_read_ns"))


def main():
    parser = argparse.ArgumentParser(description="cost of a turn")
    parser.add_argument("--pairs", type=int, default=10)
    args = parser.parse_args()
    rig.need_build()
    rows, seen = [], set()
    with rig.scratch() as scratch:
        rig.calibrate(scratch)
        for hidden in (means[1] for means in MEANS):
            for ranks, workload in WORKLOADS:
                document = rig.plan([workload], schedule={"looks": [args.pairs], "interleave": "steps", "voids": 100},
                                    gate={"parity": {"rule": "off"}, "metrics": {"step_time": {"margin": "50%"}},
                                          "calibrate": "require"})
                if hidden and os.geteuid() != 0:
                    print("without root no mount can be hidden: %s not measured" % ", ".join(hidden), file=sys.stderr)
                    continue
                result = rig.run(scratch, "turns", document, prefix=hide(hidden) if hidden else ())
                means, freeze_us, read_us = freezes(result.store)
                if (means, ranks) in seen:
                    continue
                seen.add((means, ranks))
                gaps = gaps_us(result.store)
                rows.append(rig.row("%s, %s: a turn, median of %d" % (means, ranks, len(gaps)),
                                    statistics.median(gaps) if gaps else None, LIMIT_US, " us"))
                rows.append(rig.row("    the longest tenth begins at", rig.quantile(gaps, 0.9) if gaps else None, None, " us"))
                rows.append(rig.row("    of it freeze and thaw, mean", freeze_us, None, " us"))
                rows.append(rig.row("    of it readings of the machine, mean", read_us, None, " us"))
    rig.finish("Cost of a turn: from one side's arrival at its gate to the other side's first step", rows)


if __name__ == "__main__":
    main()
