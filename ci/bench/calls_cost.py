#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs a program that calls of a function are its steps (`--step symbol:NAME`). Needs root.

One program calls a function without end (calls_host, built beside this file) and says how much CPU time a call took. It is recorded with and
without --step in turn, a second and more each; what counts are the lines between attaching and detaching, medians of the rounds. Where the
function saves registers its breakpoints stand at instructions that the kernel emulates; a leaf's first one takes a single step more, which
ends in the hypervisor where there is one. Exit 1 when a call of the usual function costs more than 2 us.

    python3 ci/bench/calls_cost.py [--rounds N] [--seconds S]
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import rig

LIMIT_NS = 2000
HOST = os.path.join(rig.BUILD, "ci/bench/calls_host")
SETTLE_NS = 400_000_000  # to attach, and to learn where it returns to


def record(scratch, pid, seconds, options):
    store = os.path.join(scratch, "run.db")
    if os.path.exists(store):
        os.unlink(store)
    subprocess.run([rig.UPGATE, "record", "-q", "--gpu", "off", "--sample-hz", "0", "--pid", str(pid), "--duration", "%gs" % seconds, "-o", store]
                   + options, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    begin_ns, end_ns = rig.query(store, "SELECT begin_ns, end_ns FROM recording")[0]
    return begin_ns + SETTLE_NS, end_ns - SETTLE_NS // 4, rig.query(store, "SELECT count(*) FROM recorded_step")[0][0]


def cost(shape, rounds, seconds):
    lines = []
    host = subprocess.Popen([HOST, shape], stdout=subprocess.PIPE, text=True)
    reader = threading.Thread(target=lambda: lines.extend(tuple(map(int, line.split())) for line in host.stdout), daemon=True)
    reader.start()
    times, steps = {"without": [], "with": []}, 0
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for _ in range(rounds):
                for arm, options in (("without", []), ("with", ["--step", "symbol:host_%s" % shape])):
                    begin_ns, end_ns, seen = record(scratch, host.pid, seconds, options)
                    steps += seen
                    time.sleep(0.2)
                    inside = [cpu_ns for at_ns, cpu_ns in list(lines) if begin_ns < at_ns < end_ns]
                    times[arm].append(statistics.median(inside))
    finally:
        host.kill()
        host.wait()
    if not steps:
        raise SystemExit("calls_cost: no step was seen")
    pairs = [b - a for a, b in zip(times["without"], times["with"])]
    print("%-6s a call: %.1f us without, %.1f us with; added %.2f us (rounds %.2f to %.2f), %d steps seen" % (
        shape, statistics.median(times["without"]) / 1e3, statistics.median(times["with"]) / 1e3, statistics.median(pairs) / 1e3,
        min(pairs) / 1e3, max(pairs) / 1e3, steps), flush=True)
    return statistics.median(pairs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    usual = cost("usual", options.rounds, options.seconds)
    cost("leaf", options.rounds, options.seconds)
    return 1 if usual > LIMIT_NS else 0


if __name__ == "__main__":
    sys.exit(main())
