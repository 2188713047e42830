#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often `upgate diff` names a difference where there is none: real A/A runs of a native workload, untraced pairs and traced ones.
Each store is explained with all of its traced pairs, and with the first two of them. Stores in --keep are taken as they are, and made until
there are --count of them: the work can be done in pieces. Exit 1 where more than 1 % of the stores (and more than one) name anything.

    python3 ci/bench/diff_aa.py [--count 20] [--pairs 10] [--traced 4] [--steps 300] [--model dlrm] [--keep DIR] [--command UPGATE]
"""

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys

import rig

ACCUSED_MOST = 0.01


def make(directory, name, args):
    """A store of one A/A run, and how long it took."""
    cpu = str(max(os.sched_getaffinity(0)))
    workload = {"name": "same", "model": args.model, "size": "small", "steps": args.steps}
    document = rig.plan([workload], schedule={"looks": [args.pairs], "traced_launches": args.traced, "cpus": cpu, "voids": 100},
                        gate={"metrics": {"step_time": {"margin": "2%"}}, "alpha": "30%", "parity": {"rule": "off"}, "confirm": "never", "calibrate": "require"})
    return rig.run(directory, name, document)


def first_pairs(store, pairs, to):
    """The store without its later traced pairs."""
    shutil.copy(store, to)
    with contextlib.closing(sqlite3.connect(to)) as db:
        db.execute("UPDATE pair SET state = 'void' WHERE phase = 'traced' AND idx >= ?", (pairs,))
        db.commit()
    return to


def named(upgate, store):
    """The workload of a store, and what is named of it."""
    done = subprocess.run([upgate, "diff", "--format", "json", store], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode not in (0, 1, 3):
        print("upgate diff of '%s' ended with %d:\n%s" % (store, done.returncode, done.stderr), file=sys.stderr)
        sys.exit(1)
    workload, = json.loads(done.stdout)["workloads"]
    if workload["unexplained"]:
        print("'%s' is not explained: %s" % (store, workload["unexplained"]), file=sys.stderr)
        sys.exit(1)
    return workload, [c for c in workload["contributions"] if c["named"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=10, help="untraced ones of each run")
    parser.add_argument("--traced", type=int, default=4, help="traced ones")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--model", default="dlrm")
    parser.add_argument("--keep", metavar="DIR", help="leave the stores here, and take those that are there")
    parser.add_argument("--command", default=rig.UPGATE, help="another upgate for the explanations")
    args = parser.parse_args()
    rig.need_build()
    accused, spreads = {}, []
    with rig.scratch() as scratch:
        directory = args.keep or scratch
        os.makedirs(directory, exist_ok=True)
        for k in range(args.count):
            name = "%s-%d-%d" % (args.model, args.pairs, k)
            store = os.path.join(directory, name + ".db")
            if not os.path.exists(store):
                made = make(scratch, name, args)
                print("# %s: %.0f s" % (name, made.seconds), flush=True)
                if made.store != store:
                    shutil.move(made.store, store)
            for traced in sorted({2, args.traced}):
                workload, found = named(args.command, first_pairs(store, traced, os.path.join(scratch, "first.db")))
                if workload["traced_pairs"] != traced:
                    continue  # a pair was void
                accused.setdefault(traced, []).append(bool(found))
                for one in found[:2]:
                    print("# %s, %d traced pairs: %s %s %+.1f %% of the step" %
                          (name, traced, one["kind"], one["label"], 100 * one["delta_ns"] / workload["step_a_ns"]), flush=True)
            spreads += [row[0] for row in rig.query(store, "SELECT pair_sd FROM cell WHERE metric = 'step_time'") if row[0]]
    rows = []
    for traced, words in sorted(accused.items()):
        rows.append(rig.row("%d traced pairs: of %d stores name anything" % (traced, len(words)), sum(words), max(1, ACCUSED_MOST * len(words))))
    if spreads:
        rows.append(rig.row("spread of an untraced pair, median", 100 * rig.quantile(spreads, 0.5), None, " %"))
    if not rows:
        print("no store had as many traced pairs as asked for", file=sys.stderr)
        sys.exit(1)
    rig.finish("A/A runs of %s: %d untraced pairs of %d steps" % (args.model, args.pairs, args.steps), rows)


if __name__ == "__main__":
    main()
