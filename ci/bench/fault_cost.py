#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a page fault costs while page faults are sampled, as in traced launches: a program touches memory for the first time beside nobody,
beside a recorder that samples no faults, beside one that does, and as the target of that one; in turn. Needs root.

    python3 ci/bench/fault_cost.py [--rounds N]
"""
import argparse
import os
import statistics
import subprocess
import time

import rig

SUBJECT = os.path.join(rig.BUILD, "tests/root/touched_subject")
DUMP = os.path.join(rig.BUILD, "tests/root/capture_dump")
TOUCHES = "15"  # rounds of 64 MiB in the program, of which the fastest counts
ATTACH_S = 1.5


def touch(options, target):
    """ns a fault, beside a recorder with these options (None: nobody) of the program itself, or of another one."""
    delay = "sleep %g; " % (2 * ATTACH_S) if options is not None else ""
    program = subprocess.Popen(["sh", "-c", delay + 'exec "$0" "$1"', SUBJECT, TOUCHES], stdout=subprocess.PIPE)
    other = subprocess.Popen(["sleep", "1000"])
    recorder = None
    if options is not None:
        recorder = subprocess.Popen([DUMP, *options, "-d", "600000", str(program.pid if target else other.pid)], stdin=subprocess.PIPE,
                                    stdout=subprocess.DEVNULL)
        time.sleep(ATTACH_S)
    out, _ = program.communicate()
    for process in (recorder, other):
        if process:
            if process.poll() is not None:
                raise SystemExit("fault_cost: %s ended early" % process.args[0])
            process.kill()
            process.wait()
    return float(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    arms = {"nobody records": (None, False), "a recorder without page faults": ((), False), "page faults of another target": (("-f",), False),
            "page faults of it": (("-f",), True)}
    found = {name: [] for name in arms}
    for _ in range(rounds):
        for name, (options, target) in arms.items():
            found[name].append(touch(options, target))
    for name, values in found.items():
        print("%-32s %6.0f ns a fault (%.0f to %.0f)" % (name, statistics.median(values), min(values), max(values)))


if __name__ == "__main__":
    main()
