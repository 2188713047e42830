#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kill matrix: kill -9 at random moments of an `upgate ab`, in each way in which a run can be set up (MODES) and of
each process that matters (KINDS), with a job of the user's own as a child of upgate, another upgate and readers of
the store beside it. After each kill nothing of the run may be left, nobody else may have been touched, and --resume
must come to the verdict of an undisturbed run. Prints a table by mode and kind, and how to run what was bad again;
exit 1 when anything was, 77 when nothing could be run here. What one kill is and what is looked at: kill_case.py.

    python3 ci/bench/kill.py [--count N] [--seed S] [--only MODE] [--kind KIND] [--case N]
"""

import argparse
import collections
import os
import statistics
import sys
import time

import kill_case
import rig
from kill_case import KINDS, MODES


def undisturbed(scratch, modes):
    """What each plan comes to when nobody interferes, and how long that takes, by mode. The short plan is run in each
    mode: one that this machine does not have is left out, with the reason. The long one is run once."""
    truths, missing, long = {}, {}, None
    for mode in modes:
        try:
            truths[mode, "slices"] = kill_case.undisturbed(scratch, mode, "slices")
            long = long or kill_case.undisturbed(scratch, mode, "turns")
            truths[mode, "turns"] = long
        except kill_case.Missing as why:
            missing[mode] = str(why)
    for (mode, plan), truth in truths.items():
        print("%-8s %-6s undisturbed: exit %d, %.1f s" % (mode, plan, truth.code, truth.took_s), file=sys.stderr)
    return truths, missing


# All modes and kinds in 24 numbers; in any 12 in a row each mode twice, each kind at least twice.
CELLS = [(MODES[number % len(MODES)], KINDS[(number + number // len(MODES)) % len(KINDS)])
         for number in range(len(MODES) * len(KINDS))]


def draw(args, missing):
    """The kills to be made: (number, mode, kind). A kill follows from the seed and its number alone."""
    wanted = [number for number, (mode, kind) in enumerate(CELLS)
              if mode not in missing and args.only in (None, mode) and args.kind in (None, kind)]
    if args.case is not None:
        numbers = [args.case] if args.case % len(CELLS) in wanted else []
    else:
        numbers = [wanted[i % len(wanted)] + i // len(wanted) * len(CELLS) for i in range(args.count if wanted else 0)]
    return [(number,) + CELLS[number % len(CELLS)] for number in numbers]


def report(args, results, missing, seconds):
    print("\n%d kills in %.0f s, seed %d, %s, load %.1f at the end" %
          (len(results), seconds, args.seed, rig.machine(), os.getloadavg()[0]))
    print("%-8s %-9s %6s %6s %4s   %s" % ("mode", "killed", "kills", "hit", "bad", "clean after, median and longest"))
    cells = collections.OrderedDict(((result.mode, result.kind), []) for result in sorted(
        results, key=lambda result: (MODES.index(result.mode), KINDS.index(result.kind))))
    for result in results:
        cells[result.mode, result.kind].append(result)
    for (mode, kind), some in cells.items():
        clean = [result.clean_s for result in some if result.clean_s is not None]
        print("%-8s %-9s %6d %6d %4d   %s" % (
            mode, kind, len(some), sum(result.hit for result in some), sum(bool(result.bad) for result in some),
            "%.2f s, %.2f s" % (statistics.median(clean), max(clean)) if clean else "-"))
    for mode, why in missing.items():
        print("%-8s not tried: %s" % (mode, why))
    bad = [result for result in results if result.bad]
    for result in bad:
        print("\nBAD  python3 ci/bench/kill.py --seed %d --case %d   (%s, %s, %s, %.3f s after its start)" %
              (args.seed, result.number, result.mode, result.kind, result.plan, result.moment_s))
        for line in result.bad:
            print("     " + line)
    print("\n%d of %d bad; %d were killed before their end, %d of them while BPF programs of theirs were loaded" % (
        len(bad), len(results), sum(result.hit for result in results), sum(result.held > 0 for result in results)))
    return 1 if bad else 0


def main():
    if sys.argv[1:2] == ["--refuse-close-range"]:  # how a case starts upgate in that mode
        kill_case.refuse_close_range(sys.argv[2:])
    parser = argparse.ArgumentParser(description="kill -9 at random moments")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=MODES, help="this mode alone")
    parser.add_argument("--kind", choices=KINDS, help="this kind of kill alone")
    parser.add_argument("--case", type=int, help="the kill of this number alone, as a table names it")
    args = parser.parse_args()
    rig.need_build()
    if os.geteuid() != 0:
        print("kill.py: namespaces, cgroups and what BPF programs are loaded need root")
        sys.exit(77)
    with rig.scratch() as scratch:
        modes = [args.only] if args.only else MODES if args.case is None else [draw(args, {})[0][1]]
        truths, missing = undisturbed(scratch, modes)
        kills = draw(args, missing)
        if not kills:
            print("kill.py: " + "; ".join("%s: %s" % item for item in missing.items()))
            sys.exit(77)
        begin, results = time.monotonic(), []
        with kill_case.Neighbour(scratch) as neighbour:
            for number, mode, kind in kills:
                result = kill_case.run(scratch, args.seed, number, mode, kind, truths, neighbour)
                results.append(result)
                print("%4d %-8s %-9s %-6s %6.3f s  %s" % (number, mode, kind, result.plan, result.moment_s,
                      "BAD: " + "; ".join(result.bad) if result.bad else "ok" if result.hit else "ok, after its end"),
                      file=sys.stderr, flush=True)
        sys.exit(report(args, results, missing, time.monotonic() - begin))


if __name__ == "__main__":
    main()
