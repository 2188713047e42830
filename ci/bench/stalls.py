#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often `upgate stalls` is right: every plant --count times through ci/plants, in rounds, so that what else the
machine does meets all plants alike; and as many innocent runs, in which nobody may be named above 1 % of the window.
Runs in which the plant did not stall its victim (measured by the victim itself) say nothing and are made good at the
end, as far as that helps. Needs root. Exit 1 when a limit is missed.

    python3 ci/bench/stalls.py [--count N] [--innocent N] [--window S] [--lanes N] [--log FILE] [NAME ...]

With --log every run is appended to a file (JSON lines), and runs of it are counted: 20 runs may be made in parts.
With --lanes that many runs go on at a time, each on its own share of the CPUs.
"""

import argparse
import concurrent.futures
import importlib.machinery
import importlib.util
import itertools
import json
import os
import sys
import threading

import rig

RIGHT_SHARE = 0.95
ALWAYS = {"smaps"}  # 20 of 20, with the period within 10 %
EXTRA = 3  # times that runs which said nothing are made good


def load_plants():
    """ci/plants is a program without an ending: loaded by its path."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("plants", os.path.join(rig.ROOT, "ci/plants"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("plants", loader))
    loader.exec_module(module)
    return module


class Runs:
    """What was run so far, by (plant, innocent)."""

    def __init__(self, plants, log, lanes=1):
        self.plants, self.log, self.results = plants, log, {}
        self.lock, self.lanes, self.lane = threading.Lock(), lanes, itertools.count()
        if log and os.path.exists(log):
            with open(log) as file:
                for line in file:
                    self.add(json.loads(line))

    def add(self, result):
        self.results.setdefault((result["plant"], result["innocent"]), []).append(result)

    def count(self, key, *verdicts):
        return sum(result["verdict"] in verdicts for result in self.results.get(key, []))

    def skipped(self, key):
        return self.count(key, self.plants.SKIPPED) > 0

    def judged(self, key):
        return self.count(key, self.plants.RIGHT, self.plants.WRONG, self.plants.FAILED)

    def take_lane(self):
        """Of a thread: its CPUs, which the processes that it starts inherit."""
        cpus = sorted(os.sched_getaffinity(0))
        share = len(cpus) // self.lanes
        lane = next(self.lane)
        if self.lanes > 1:
            os.sched_setaffinity(0, cpus[lane * share:(lane + 1) * share])

    def run(self, key, window):
        result = self.plants.run(key[0], window, key[1])
        with self.lock:
            self.add(result)
            print(("innocent " if key[1] else "") + self.plants.describe(result), file=sys.stderr, flush=True)
            if self.log:
                with open(self.log, "a") as file:
                    file.write(json.dumps(result) + "\n")

    def fill(self, keys, count, window):
        for _ in range(1 + EXTRA):
            due = [key for nth in range(count) for key in keys if not self.skipped(key) and self.judged(key) + nth < count]
            self.lane = itertools.count()
            with concurrent.futures.ThreadPoolExecutor(self.lanes, initializer=self.take_lane) as pool:
                list(pool.map(lambda key: self.run(key, window), due))


def main():
    parser = argparse.ArgumentParser(description="how often the stall analysis is right")
    parser.add_argument("names", nargs="*", metavar="NAME", help="plants; default: all")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--innocent", type=int, default=20, help="innocent runs in all")
    parser.add_argument("--window", type=float, default=5, help="seconds recorded")
    parser.add_argument("--lanes", type=int, default=1, help="runs at a time, each on its share of the CPUs (1)")
    parser.add_argument("--log", help="append the runs to this file, and count what is in it")
    args = parser.parse_args()
    rig.need_build()
    if not 1 <= args.lanes <= len(os.sched_getaffinity(0)):
        parser.error("--lanes: at least 1 and at most as many as there are CPUs")
    if os.geteuid():
        raise SystemExit("stalls: needs root")
    plants = load_plants()
    answers = plants.answers()
    runs = Runs(plants, args.log, args.lanes)
    keys = [(name, False) for name in args.names or answers]
    innocents = [(name, True) for name in answers if answers[name].get("innocent")] if args.innocent else []
    runs.fill(keys, args.count, args.window)
    runs.fill(innocents, -(-args.innocent // max(1, len(innocents))), args.window)
    rows = []
    for key in keys:
        judged = runs.judged(key)
        if not judged:
            state = "the machine lacks what it needs" if runs.skipped(key) else "did not stall its victim"
            rows.append(rig.row("%s: %s" % (key[0], state), None))
            continue
        need = judged if key[0] in ALWAYS else RIGHT_SHARE * judged
        rows.append(rig.row("%s: right, of %d" % (key[0], judged), runs.count(key, plants.RIGHT), need, more_is_better=True))
    accused = sum(runs.count(key, plants.WRONG, plants.FAILED) for key in innocents)
    if innocents:
        total = sum(runs.judged(key) for key in innocents)
        rows.append(rig.row("innocent runs in which somebody was accused, of %d" % total, accused, 0))
    rig.finish("Stalls that were planted, and what upgate said", rows)


if __name__ == "__main__":
    main()
