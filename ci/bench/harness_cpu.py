#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time that upgate itself takes (the program and its guardian) while a workload runs, as a share of one
core. Samples /proc/PID/task/*/schedstat beside the run, and takes the time between the begin and the end of the
pairs from the store. The default block of 20 ms. Exit 1 above 0.5 %.

    python3 ci/bench/harness_cpu.py [--pairs N] [--steps N] [--block 20ms]
"""

import argparse
import bisect
import contextlib
import os
import time

import rig

LIMIT_PCT = 0.5
SAMPLE_S = 0.02


def task_ns(pid):
    """On-CPU time of all threads of a process; None when it is gone."""
    total = 0
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/schedstat" % (pid, task)) as file:
                total += int(file.read().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return None
    return total


def guardian_of(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            for child in file.read().split():
                with contextlib.suppress(FileNotFoundError), open("/proc/%s/comm" % child) as comm:
                    if comm.read().strip() == "ug-guardian":
                        return int(child)
    return None


def watch(process):
    """[(monotonic ns, program ns, guardian ns)] until the program ends."""
    samples, guardian, guardian_ns = [], None, 0
    while process.poll() is None:
        guardian = guardian or guardian_of(process.pid)
        own_ns = task_ns(process.pid)
        guardian_ns = (guardian and task_ns(guardian)) or guardian_ns
        if own_ns:
            samples.append((time.clock_gettime_ns(time.CLOCK_MONOTONIC), own_ns, guardian_ns))
        time.sleep(SAMPLE_S)
    return samples


def at(samples, when_ns, column):
    """CPU time at a moment, between two samples by a straight line."""
    i = bisect.bisect_left(samples, (when_ns,))
    if i == 0 or i == len(samples):
        return samples[min(i, len(samples) - 1)][column]
    before, after = samples[i - 1], samples[i]
    share = (when_ns - before[0]) / (after[0] - before[0])
    return before[column] + share * (after[column] - before[column])


def main():
    parser = argparse.ArgumentParser(description="CPU time of the harness")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--block", default="20ms")
    args = parser.parse_args()
    rig.need_build()
    with rig.scratch() as scratch:
        rig.calibrate(scratch)
        document = rig.plan([{"name": "w", "model": "dlrm", "steps": args.steps}],
                            schedule={"looks": [args.pairs], "interleave": "steps", "block": args.block, "voids": 100},
                            gate={"calibrate": "require"})
        argv, store = rig.command(scratch, "cpu", document)
        process = rig.start(scratch, argv)
        samples = watch(process)
        stderr = process.communicate()[1].decode()
        if process.returncode not in rig.VERDICTS:
            raise SystemExit("upgate ended with %d:\n%s" % (process.returncode, stderr))
        pairs = rig.query(store, "SELECT started_ns, ended_ns FROM pair WHERE phase = 'main'")
        turns = rig.query(store, "SELECT count(*) FROM block")[0][0]
        launches = rig.query(store, "SELECT count(*) FROM launch")[0][0]
    wall_ns = sum(end - begin for begin, end in pairs)
    pair_ns = [sum(at(samples, end, c) - at(samples, begin, c) for begin, end in pairs) for c in (1, 2)]
    whole_wall_ns = samples[-1][0] - samples[0][0]
    whole_ns = samples[-1][1] + samples[-1][2]
    rows = [
        rig.row("CPU of upgate and its guardian while a pair runs", 100 * sum(pair_ns) / wall_ns, LIMIT_PCT, " %"),
        rig.row("    of it the guardian", 100 * pair_ns[1] / wall_ns, None, " %"),
        rig.row("    a turn, if turns were all there is", sum(pair_ns) / turns / 1e3, None, " us"),
        rig.row("CPU of the whole run, start, storing and judging included", 100 * whole_ns / whole_wall_ns, None, " %"),
        rig.row("    outside the pairs, a pair", (whole_ns - sum(pair_ns)) / len(pairs) / 1e6, None, " ms"),
        rig.row("pairs of %.2f s, launches %d, turns" % (wall_ns / 1e9 / len(pairs), launches), turns),
    ]
    rig.finish("CPU time of the harness, share of one core", rows)


if __name__ == "__main__":
    main()
