#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tracing costs a CUDA program: medians of interleaved arms, all of them processes that are alive at the same time.
Exit 1 when a limit is missed.

    python3 ci/bench/gpu/overhead.py [launch] [dormant] [graph] [eager] [--seconds S] [--logs DIR] [--json FILE]

launch   an empty-kernel launch: untraced, recycle-only CUPTI with the same kinds, ours, ours -nop, nsys where it is
dormant  the library loaded and dormant; after it was active and has detached: against untraced processes of the same rounds
graph    replay of a CUDA graph of 1,000 empty kernels: as a whole, and node by node
eager    a PyTorch training step of about 453 kernels: recycle-only, ours with the same records, ours with everything,
         torch.profiler with CUDA alone
"""

import argparse
import glob
import json
import os
import shutil
import statistics
import sys

import arms
from arms import Arm, rig

# Rounds so short that a machine whose speed drifts by 10 % in a second is the same for all arms of a round.
LAUNCHES = 4_000
BURST = "burst 4000 500"
DORMANT_LAUNCHES = 1_500
RECYCLE_SLACK_NS = 100
EAGER_LIMIT, GRAPH_LIMIT = 1.15, 1.01
DORMANT_LIMIT_PCT, DETACHED_LIMIT_PCT = 0.2, 0.1
EAGER_STEPS, GRAPH_REPLAYS = 5, 50
TWINS = 3  # processes an arm where 0.1 % is asked for: addresses alone make more between two processes


class Bench:
    def __init__(self, args):
        self.args, self.rows, self.found = args, [], {}
        os.makedirs(args.logs, exist_ok=True)

    def arm(self, name, argv, question, library=None, kinds=0, key="ns", **env):
        log = os.path.join(self.args.logs, "".join(c if c.isalnum() else "-" for c in name) + ".log")
        try:
            environment = arms.environment(library, PYTHONPATH=os.path.join(rig.BUILD, "python"), **env)
        except arms.Failed as error:
            arm = Arm(name, argv, None, log, question, kinds, key)
            arm.start = lambda text=str(error): (_ for _ in ()).throw(arms.Failed(text))
            return arm
        return Arm(name, argv, environment, log, question, kinds, key)

    def measure(self, title, wanted, rounds, unit, scale, cpus=None):
        """Starts, interleaves, ends and shows arms; those that failed too. cpus: so many for all of them."""
        print("== %s" % title, flush=True)
        alive = arms.start_all(wanted)
        if cpus:
            arms.share_cpus(alive, cpus)
        try:
            arms.interleave(alive, rounds, seconds=self.args.seconds)
        finally:
            for arm in wanted:
                arm.close()
        arms.show(wanted, unit, scale)
        self.found[title] = {arm.name: arm.failure or arm.values for arm in wanted}
        return {arm.name: arm for arm in wanted}

    def add(self, *args, **more):
        self.rows.append(rig.row(*args, **more))

    def median_of(self, what, values, limit=None, unit="", form="%.3f"):
        """A row of the median of paired values, and in its name the interval."""
        if len(values) < 3:
            self.add(what, float("nan"), limit, unit)
            return
        low, high = arms.interval(values)
        self.add(("%s, 95 %%: " + form + " to " + form) % (what, low, high), statistics.median(values), limit, unit)

    def share(self, what, by_name, name, base, limit=None):
        self.median_of(what, arms.paired(by_name.get(name), by_name.get(base), lambda a, b: a / b), limit, "x")


def find_nsys():
    places = [shutil.which("nsys")] + sorted(glob.glob("/opt/nvidia/nsight-*/*/host/target-linux-x64/nsys")) + \
        sorted(glob.glob("/opt/nvidia/nsight-systems/*/bin/nsys"))
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def launch(bench):
    argv, nsys, cpu = [arms.LAUNCH], find_nsys(), arms.keep_free()
    for kind, question in (("loop", "loop %d" % LAUNCHES), ("burst", BURST)):
        wanted = [
            bench.arm("untraced", argv, question, **cpu),
            bench.arm("recycle-only", argv, question, arms.RECYCLE, RECYCLE_CALLS="driver", **cpu),
            bench.arm("recycle-only, runtime too", argv, question, arms.RECYCLE, RECYCLE_CALLS="both", **cpu),
            bench.arm("ours", argv, question, arms.INJECT, arms.KERNELS, UPGATE_TRACE=arms.KERNELS, **cpu),
            bench.arm("ours, switched on later", argv, question, arms.INJECT, arms.KERNELS, **cpu),
            bench.arm("ours, everything", argv, question, arms.INJECT, arms.DEFAULT, UPGATE_TRACE=arms.DEFAULT, **cpu),
            bench.arm("ours -nop", argv, question, arms.NOP, arms.KERNELS, UPGATE_TRACE=arms.KERNELS, **cpu),
        ]
        if nsys:
            wanted.append(bench.arm("nsys -t cuda", [nsys, "profile", "-t", "cuda", "--sample=none", "--cpuctxsw=none", "-f", "true", "-o",
                                                     os.path.join(bench.args.logs, "nsys-" + kind)] + argv, question, TMPDIR="/tmp", **cpu))
        by_name = bench.measure("launch, " + kind, wanted, 1000, "ns", 1)
        floor, ours = by_name["recycle-only"], by_name["ours"]
        bench.median_of("empty launch, %s: ours over recycle-only" % kind, arms.paired(ours, floor, lambda a, b: a - b), RECYCLE_SLACK_NS, " ns", "%.0f")
        for name in ("recycle-only", "recycle-only, runtime too", "ours", "ours, switched on later", "ours, everything", "ours -nop"):
            bench.median_of("    %s over untraced" % name, arms.paired(by_name[name], by_name["untraced"], lambda a, b: a - b), None, " ns", "%.0f")
        if nsys:
            bench.median_of("empty launch, %s: ours less nsys -t cuda" % kind, arms.paired(ours, by_name["nsys -t cuda"], lambda a, b: a - b), 0, " ns", "%.0f")


def phase_ratios(subjects, others):
    """Of each round: mean of the subjects over the mean of the others."""
    rounds = min(len(arm.values) for arm in subjects + others)
    return [statistics.mean(arm.values[i] for arm in subjects) / statistics.mean(arm.values[i] for arm in others) for i in range(rounds)]


def standard_error(values):
    """Of their median."""
    middle = statistics.median(values)
    return 1.2533 * 1.4826 * statistics.median(abs(value - middle) for value in values) / len(values)**0.5


def dormant(bench):
    """Three untraced and three dormant processes in interleaved short rounds, all launching from one CPU, each round's figure the
    tenth part of its chunks (what disturbs a chunk only makes it longer); then the dormant ones are active for a
    while and detach, and the same rounds again. Before and after of the same processes: what differs between two
    processes for other reasons falls out of the second figure, and is shown for the first."""
    question, more = "loop %d" % DORMANT_LAUNCHES, dict(arms.keep_free(), key="low_ns")
    plain = [bench.arm("untraced %d" % i, [arms.LAUNCH], question, **more) for i in range(TWINS)]
    ours = [bench.arm("dormant %d" % i, [arms.LAUNCH], question, arms.INJECT, **more) for i in range(TWINS)]
    print("== dormant and detached", flush=True)
    alive = arms.start_all(plain + ours)
    try:
        if len(alive) != 2 * TWINS:
            raise arms.Failed("; ".join(arm.failure for arm in plain + ours if arm.failure))
        before, after = {}, {}
        arms.interleave(alive, 4000, seconds=bench.args.seconds)
        before = phase_ratios(ours, plain)
        floor = phase_ratios(plain[:1], plain[1:2])
        first = {arm.name: list(arm.values) for arm in alive}
        arms.show(alive)
        for arm in ours:
            arm.on(arms.KERNELS)
            arm.round()
            arm.off()
            print("    %s" % arms.account(arm.ended))
        arms.interleave(alive, 4000, seed=2, seconds=bench.args.seconds)
        after = phase_ratios(ours, plain)
        arms.show([arm for arm in alive if not arm.failure])
        bench.found["dormant"] = {"before": first, "after": {arm.name: arm.values for arm in alive}}
        middle = statistics.median(before)
        bench.add("dormant over untraced, %d processes each" % TWINS, 100 * (middle - 1), DORMANT_LIMIT_PCT, " %")
        bench.add("    standard error of that", 100 * standard_error(before), None, " %")
        bench.add("    one untraced over another", 100 * (statistics.median(floor) - 1), None, " %")
        bench.add("after detach over before, same processes", 100 * (statistics.median(after) / middle - 1), DETACHED_LIMIT_PCT, " %")
        bench.add("    standard error of that", 100 * (standard_error(before)**2 + standard_error(after)**2)**0.5, None, " %")
        half = len(before) // 2
        bench.add("    second half of before over its first", 100 * (statistics.median(before[half:]) / statistics.median(before[:half]) - 1), None, " %")
    except (arms.Failed, statistics.StatisticsError, ValueError) as error:
        print("  FAILED %s" % error)
        bench.add("dormant over untraced", float("nan"), DORMANT_LIMIT_PCT, " %")
    finally:
        for arm in plain + ours:
            arm.close()


# Replays as a whole, then node by node: name, library, kinds, environment.
NODES = arms.KERNELS | arms.NODES
GRAPH_ARMS = [
    ("recycle, graph level", arms.RECYCLE, 0, {"RECYCLE_GRAPH": "1", "RECYCLE_CALLS": "driver"}),
    ("recycle, graph kind alone", arms.RECYCLE, 0, {"RECYCLE_GRAPH": "1", "RECYCLE_CALLS": "none", "RECYCLE_KERNELS": "0"}),
    ("recycle, launch calls alone", arms.RECYCLE, 0, {"RECYCLE_CALLS": "driver", "RECYCLE_KERNELS": "0"}),
    ("recycle, nothing asked for", arms.RECYCLE, 0, {"RECYCLE_CALLS": "none", "RECYCLE_KERNELS": "0"}),
    ("ours, graph level", arms.INJECT, arms.KERNELS, {"UPGATE_TRACE": arms.KERNELS}),
    ("ours, everything", arms.INJECT, arms.DEFAULT, {"UPGATE_TRACE": arms.DEFAULT}),
    ("recycle, node level", arms.RECYCLE, 0, {"RECYCLE_CALLS": "driver"}),
    ("ours, node level", arms.INJECT, NODES, {"UPGATE_TRACE": NODES}),
    ("ours -nop, node level", arms.NOP, NODES, {"UPGATE_TRACE": NODES}),
]


def graph(bench):
    question = "graph %d" % GRAPH_REPLAYS
    wanted = [bench.arm("untraced", [arms.LAUNCH], question)] + \
        [bench.arm(name, [arms.LAUNCH], question, library, kinds, **more) for name, library, kinds, more in GRAPH_ARMS]
    by_name = bench.measure("graph of 1,000 nodes", wanted, 200, "us", 1000)
    bench.share("graph replay, graph level over untraced", by_name, "ours, graph level", "untraced", GRAPH_LIMIT)
    bench.share("graph replay, graph level over recycle-only", by_name, "ours, graph level", "recycle, graph level")
    for name in [name for name, *_ in GRAPH_ARMS if name != "ours, graph level"]:
        bench.share("    %s over untraced" % name, by_name, name, "untraced")


# Name, library, kinds, environment.
EAGER_ARMS = [
    ("recycle-only", arms.RECYCLE, 0, {"RECYCLE_CALLS": "driver"}),
    ("recycle-only, runtime too", arms.RECYCLE, 0, {"RECYCLE_CALLS": "both"}),
    # From the first instruction, as `upgate record -- COMMAND` does it; then switched on later, as `upgate record --pid` does.
    ("ours", arms.INJECT, arms.KERNELS, {"UPGATE_TRACE": arms.KERNELS}),
    ("ours, switched on later", arms.INJECT, arms.KERNELS, {}),
    ("ours -nop", arms.NOP, arms.KERNELS, {"UPGATE_TRACE": arms.KERNELS}),
    ("ours, with module paths", arms.INJECT, arms.KERNELS | arms.PYTHON, {"UPGATE_TRACE": arms.KERNELS | arms.PYTHON}),
    ("ours, everything", arms.INJECT, arms.DEFAULT, {"UPGATE_TRACE": arms.DEFAULT}),
]


def eager(bench):
    argv, question = [sys.executable, os.path.join(arms.HERE, "steps_worker.py")], "round %d" % EAGER_STEPS
    wanted = [bench.arm("untraced", argv, question), bench.arm("torch.profiler CUDA", argv, "profiled %d" % EAGER_STEPS)] + \
        [bench.arm(name, argv, question, library, kinds, **more) for name, library, kinds, more in EAGER_ARMS]
    by_name = bench.measure("eager PyTorch step", wanted, 200, "us", 1000, cpus=4)
    ours = by_name["ours"]
    if ours.ended:
        steps = EAGER_STEPS * 2 * (len(ours.values) + 1)  # and the round that warms up
        bench.add("kernels of a step", ours.ended["records"]["kernel"] / steps)
        bench.add("calls recorded of a step", ours.ended["records"]["call"] / steps)
    bench.share("eager step, ours over untraced", by_name, "ours", "untraced", EAGER_LIMIT)
    bench.share("eager step, ours switched on later over untraced", by_name, "ours, switched on later", "untraced", EAGER_LIMIT)
    for name in [name for name, *_ in EAGER_ARMS if name not in ("ours", "ours, switched on later")] + ["torch.profiler CUDA"]:
        bench.share("    %s over untraced" % name, by_name, name, "untraced")


PARTS = {"launch": launch, "dormant": dormant, "graph": graph, "eager": eager}


def main():
    parser = argparse.ArgumentParser(description="what tracing costs a CUDA program")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--seconds", type=float, default=20, help="of the rounds of each table")
    parser.add_argument("--logs", default="out/gpu/trace/overhead")
    parser.add_argument("--json", help="every round of every arm")
    args = parser.parse_args()
    bench = Bench(args)
    arms.end_with_children()
    for part in args.parts or list(PARTS):
        try:
            PARTS[part](bench)
        except Exception as error:  # a part that fails does not end the rest
            print("  FAILED %s: %r" % (part, error), flush=True)
            bench.add("%s could be measured" % part, float("nan"), 0)
        arms.Talker.end_all()
    missed = arms.table(bench.rows)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(bench.found, file)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
