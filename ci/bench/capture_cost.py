#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `upgate record` costs the program it looks at, and those it does not. Needs root.

Steps: dlrm and transformer run for the whole of it; the recorder is attached and detached in turn, every few
seconds, and the steps that lie wholly inside are compared with those wholly outside just before and after.
Switches: two threads on one CPU hand a byte back and forth (switcher, built beside this file) untraced, as the
recorder's target, beside a recorder with another target, under `offcputime -p` and `perf sched record` where they
are installed; the arms in turn, medians of the rounds. Exit 1 when a limit is missed.

    python3 ci/bench/capture_cost.py [--rounds N] [--seconds S]
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

import rig

STEP_LIMIT = 1.01
FILTERED_LIMIT_NS = 150  # a switch
OFFCPUTIME_SHARE = 0.5
SETTLE_NS = 300_000_000  # after attaching and before detaching: loading programs takes CPU time of its own
SWITCHER = os.path.join(rig.BUILD, "ci/bench/switcher")
STEP_HOST = os.path.join(rig.BUILD, "tests/e2e/step_host")


def child_of(pid):
    for _ in range(200):
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            children = file.read().split()
        if children:
            return int(children[0])
        time.sleep(0.01)
    raise SystemExit("capture_cost: the workload did not start")


def record(scratch, seconds, pid, options):
    """One recording; (begin_ns, end_ns) of the capture."""
    store = os.path.join(scratch, "record.db")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(store)
    done = subprocess.run([rig.UPGATE, "record", "-q", "--pid", str(pid), "--duration", "%gs" % seconds, "-o", store,
                           *options],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        raise SystemExit("upgate record ended with %d:\n%s" % (done.returncode, done.stderr.decode()))
    return rig.query(store, "SELECT begin_ns, end_ns FROM recording")[0]


def steps_ratio(scratch, command, rounds, seconds, options):
    """Medians and means of step times, traced over untraced, a ratio a round."""
    log = os.path.join(scratch, "steps.jsonl")
    with open(log, "w") as file:
        process = subprocess.Popen([STEP_HOST, "0", "0", *command, "--steps", "100000000"],
                                   stdout=file, stderr=subprocess.DEVNULL, start_new_session=True,
                                   env=dict(os.environ, PYTHONPATH=os.path.join(rig.BUILD, "python")))
        try:
            workload = child_of(process.pid)
            time.sleep(2 if len(command) == 1 else 8)  # an interpreter imports its framework
            windows = []
            for _ in range(rounds):
                time.sleep(seconds)
                windows.append(record(scratch, seconds, workload, options))
            time.sleep(seconds)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    steps = []
    with open(log) as file:
        for line in file:
            with contextlib.suppress(ValueError):  # the last line may be cut
                step = json.loads(line)
                if step["kind"] == "step":
                    steps.append((step["begin_ns"], step["end_ns"]))

    def between(begin, end):
        values = [e - b for b, e in steps if b >= begin and e <= end]
        if len(values) < 20:
            raise SystemExit("capture_cost: only %d steps of %s between attaching and detaching" % (len(values), command[-1]))
        return statistics.median(values), statistics.fmean(values)

    medians, means = [], []
    outside_ns = int(seconds * 1e9)
    for begin, end in windows:
        inside = between(begin + SETTLE_NS, end - SETTLE_NS)
        # One second is left to the recorder's start and end on both sides.
        before = between(begin - outside_ns, begin - 1_000_000_000)
        after = between(end + 1_000_000_000, end + outside_ns)
        medians.append(inside[0] / ((before[0] + after[0]) / 2))
        means.append(inside[1] / ((before[1] + after[1]) / 2))
    return medians, means


@contextlib.contextmanager
def background(argv, ready_s=1.5):
    """A tool that runs beside the switcher. None: nothing."""
    if argv is None:
        yield
        return
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(ready_s)
    if process.poll() is not None:
        raise SystemExit("capture_cost: %s ended at once with %d" % (argv[0], process.returncode))
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait()


def switch_ns(arm, scratch, seconds):
    """ns a round trip of two switches. The switcher begins first, so that tools can be told its pid."""
    store = os.path.join(scratch, "switch.db")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(store)
    warm_s = 2.0
    switcher = subprocess.Popen([SWITCHER, "0", str(seconds + warm_s)], stdout=subprocess.PIPE)
    sleeper = subprocess.Popen(["sleep", "1000"])
    pid = switcher.pid
    argv = {
        "untraced": None,
        "target": [rig.UPGATE, "record", "-q", "--pid", str(pid), "--duration", "10min", "-o", store],
        "other": [rig.UPGATE, "record", "-q", "--pid", str(sleeper.pid), "--duration", "10min", "-o", store],
        "offcputime": ["offcputime", "-p", str(pid), "600"],
        "perf": ["perf", "sched", "record", "-o", os.path.join(scratch, "perf.data"), "sleep", "600"],
    }[arm]
    with background(argv):
        begin = switches(pid)
        t0 = time.monotonic_ns()
        time.sleep(seconds - 1)
        count, took = switches(pid) - begin, time.monotonic_ns() - t0
    switcher.kill()
    switcher.wait()
    sleeper.kill()
    sleeper.wait()
    return 2 * took / count


def switches(pid):
    """Context switches of all threads so far."""
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task)) as file:
            total += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
    return total


def switch_rows(scratch, args):
    """What a switch costs: a round trip of two, against its own arm without a recorder."""
    rows = []
    arms = ["untraced", "target", "other"]
    arms += [arm for arm, tool in (("offcputime", "offcputime"), ("perf", "perf")) if shutil.which(tool)]
    ns = {arm: [] for arm in arms}
    for i in range(args.rounds):
        for arm in arms[i % len(arms):] + arms[:i % len(arms)]:
            ns[arm].append(switch_ns(arm, scratch, args.seconds))
        print("round %d: %s" % (i + 1, ", ".join("%s %.0f ns" % (arm, ns[arm][-1]) for arm in arms)), file=sys.stderr)
    # Ratios to the untraced arm of the same round, so that a machine that gets slower does not count.
    added = {arm: statistics.median(x - base for x, base in zip(ns[arm], ns["untraced"])) for arm in arms[1:]}
    rows.append(rig.row("a round trip of two switches, untraced", statistics.median(ns["untraced"]), None, " ns"))
    limit = OFFCPUTIME_SHARE * added["offcputime"] if "offcputime" in added else None
    rows.append(rig.row("    as the recorder's target: more by", added["target"], limit, " ns"))
    rows.append(rig.row("    a switch, when another process is the target", added["other"] / 2, FILTERED_LIMIT_NS, " ns"))
    for arm, name in (("offcputime", "under offcputime -p"), ("perf", "under perf sched record")):
        rows.append(rig.row("    %s: more by" % name, added.get(arm), None, " ns"))
    return rows


def main():
    parser = argparse.ArgumentParser(description="cost of recording to the recorded")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--steps-only", action="store_true", help="not the cost of a switch")
    parser.add_argument("--python", metavar="PYTHON",
                        help="also steps of dlrm on the PyTorch of this interpreter")
    parser.add_argument("--traced", action="store_true",
                        help="as traced launches of `upgate ab` are recorded: 997 samples a second, gaps from 100 us")
    args = parser.parse_args()
    rig.need_build()
    if os.geteuid():
        raise SystemExit("capture_cost: needs root")
    rows = []
    with rig.scratch() as scratch:
        if not args.steps_only:
            rows += switch_rows(scratch, args)
        commands = {model: [os.path.join(rig.MODELS, model)] for model in ("dlrm", "transformer")}
        if args.python:
            commands["dlrm on PyTorch"] = [args.python, os.path.join(os.path.dirname(rig.MODELS), "torch", "dlrm.py")]
        options = ["--sample-hz", "997", "--threshold", "100us"] if args.traced else []
        for name, command in commands.items():
            medians, means = steps_ratio(scratch, command, args.rounds, args.seconds, options)
            print("%s: medians %s means %s" % (name, ["%.4f" % r for r in medians], ["%.4f" % r for r in means]),
                  file=sys.stderr)
            rows.append(rig.row("step of %s, recorded over not" % name, statistics.median(medians),
                                None if args.traced else STEP_LIMIT))
            rows.append(rig.row("    by the mean step", statistics.median(means)))
            rows.append(rig.row("    sd of a round", 100 * statistics.stdev(medians) if len(medians) > 1 else None, None, " %"))
    rig.finish("What recording costs the recorded", rows)


if __name__ == "__main__":
    main()
