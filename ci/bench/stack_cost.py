#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What whole stacks cost the program they are taken of, and how whole they are, beside py-spy and perf. Needs root.

A model of reference_models/torch trains all the time; each arm watches it in turn for some seconds, and the steps within
are compared with those just before and after. Arms: `upgate record` as `upgate ab` records traced launches (997 samples a
second, gaps from 100 us), the same by another build (--other, its upgate), `py-spy record --native` and `perf record -g
--call-graph dwarf`, where they are installed, at the same rate. Of ours, the kernel's own account of the programs
(kernel.bpf_stats_enabled) gives microseconds a sample and a switch-out. With --parts, what each part of a recording costs
by itself in place of other tools; on a GPU (--args "--device cuda") its side is switched on and off with it.

    python3 ci/bench/stack_cost.py --python PYTHON [--model dlrm] [--args WORDS] [--rounds N] [--seconds S] [--cpus LIST]
                                   [--parts] [--other UPGATE] [--py-spy PATH]
"""
import argparse
import contextlib
import functools
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time

import capture_cost
import rig

HZ = "997"
WAIT_S = 600  # for a tool that is late on a busy machine
ROOTS = "'_start', 'main', 'clone3', 'clone', '__clone3', '__clone', 'start_thread'"
STATS = "/proc/sys/kernel/bpf_stats_enabled"


def programs(pid):
    """{name: ns} that the programs of this recorder ran so far."""
    ids, found = set(), {}
    with contextlib.suppress(OSError):
        for fd in os.listdir("/proc/%d/fdinfo" % pid):
            with open("/proc/%d/fdinfo/%s" % (pid, fd)) as file:
                ids |= {int(line.split()[1]) for line in file if line.startswith("prog_id:")}
    if not shutil.which("bpftool"):
        return found
    for program in json.loads(subprocess.run(["bpftool", "-j", "prog", "show"], capture_output=True, text=True).stdout or "[]"):
        if program["id"] in ids:
            found[program.get("name")] = program.get("run_time_ns", 0)
    return found


def watch(argv, seconds, during=None):
    """Run a tool; (begin, end) of the time in which it watched, as well as it can be told from outside."""
    begin = time.monotonic_ns()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    if during:
        during(process)
    _, err = process.communicate(timeout=WAIT_S)
    if process.returncode not in (0, -signal.SIGINT):
        raise SystemExit("stack_cost: %s ended with %d:\n%s" % (argv[0], process.returncode, err.decode()))
    return begin, begin + int(seconds * 1e9)


# Of `upgate record`: what is left out.
HOST_ONLY, STILL = ["--gpu", "off", "--no-modules"], ["--sample-hz", "0"]
PARTS = {"everything": [],
         "switches": HOST_ONLY + STILL + ["--no-python"],
         "switches, Python stacks": HOST_ONLY + STILL,
         "samples, switches, Python stacks": HOST_ONLY,
         "modules and steps": STILL + ["--gpu", "off", "--no-python", "--threshold", "1s"],
         "kernels and calls": STILL + ["--no-python", "--no-modules", "--threshold", "1s"],
         "kernels, calls, modules": STILL + ["--no-python", "--threshold", "1s"]}


def ours(upgate, scratch, pid, seconds, facts, options=()):
    store = os.path.join(scratch, "record.db")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(store)
    last = {}

    def ask(process):
        while process.poll() is None:
            last.update(programs(process.pid))
            time.sleep(0.2)
    watch([upgate, "record", "-q", "--pid", str(pid), "--duration", "%gs" % seconds, "-o", store, "--sample-hz", HZ,
           "--threshold", "100us", *options], seconds, ask)
    query = lambda sql: rig.query(store, sql)[0][0]
    facts["samples"] = query("SELECT count(*) FROM sample WHERE why & 1")
    facts["whole"] = query("SELECT avg(EXISTS (SELECT 1 FROM v_stack f WHERE f.stack = t.user_stack AND f.name IN (%s))) "
                           "FROM sample t WHERE why & 1 AND user_stack" % ROOTS)
    facts["python"] = query("SELECT avg(python_stack IS NOT NULL AND NOT why & 64) FROM sample WHERE why & 1 AND thread_id IN "
                            "(SELECT thread_id FROM sample WHERE python_stack)")
    facts["GPU operations"] = query("SELECT count(*) FROM v_gpu_op")
    facts["late"] = query("SELECT avg((why & 64) != 0) FROM sample WHERE why & 1 AND python_stack")
    if "task_switch" in last:
        facts["us a sample"] = last["sample_tick"] / facts["samples"] / 1e3 if facts["samples"] else None
        facts["us a switch-out"] = last["task_switch"] / max(1, query("SELECT sum(switches) FROM thread_total")) / 1e3
    return rig.query(store, "SELECT begin_ns, end_ns FROM recording")[0]


def py_spy(tool, scratch, pid, seconds, facts):
    out = os.path.join(scratch, "py-spy.txt")
    window = watch([tool, "record", "--native", "-r", HZ, "-d", "%d" % seconds, "-f", "raw", "-o", out, "-p", str(pid)],
                   seconds)
    with open(out) as file:
        rows = [line.rsplit(" ", 1) for line in file.read().splitlines()]
    facts["samples"] = sum(int(count) for _, count in rows)
    whole = sum(int(count) for stack, count in rows if "<module>" in stack or "_bootstrap" in stack)
    facts["whole"] = whole / max(1, facts["samples"])
    return window


def perf(tool, scratch, pid, seconds, facts):
    out = os.path.join(scratch, "perf.data")
    window = watch([tool, "record", "-q", "-F", HZ, "-e", "cpu-clock", "-g", "--call-graph", "dwarf", "-o", out, "-p",
                    str(pid), "sleep", "%d" % seconds], seconds)
    facts["bytes"] = os.path.getsize(out)
    try:
        text = subprocess.run([tool, "script", "-i", out, "-F", "comm,ip,sym", "--no-inline"], capture_output=True, text=True,
                              timeout=WAIT_S, errors="replace").stdout
    except subprocess.TimeoutExpired:
        return window
    stacks = [stack for stack in text.split("\n\n") if len(stack.splitlines()) > 1]
    roots = {root.strip(" '") for root in ROOTS.split(",")}
    facts["samples"] = len(stacks)
    facts["whole"] = sum(any(line.split()[-1] in roots for line in stack.splitlines()[1:]) for stack in stacks) / max(1, len(stacks))
    return window


def arms_of(args):
    if args.parts:
        return {name: functools.partial(ours, rig.UPGATE, options=options) for name, options in PARTS.items()}
    arms = {"upgate record": functools.partial(ours, rig.UPGATE)}
    if args.other:
        arms["the other build"] = lambda *rest: ours(args.other, *rest)
    if args.py_spy:
        arms["py-spy record --native"] = lambda *rest: py_spy(args.py_spy, *rest)
    if shutil.which("perf") and not args.no_perf:
        arms["perf record --call-graph dwarf"] = lambda *rest: perf(shutil.which("perf"), *rest)
    return arms


def prepared():
    """The environment of a program whose GPU side can be recorded later."""
    text = subprocess.run([rig.UPGATE, "record", "--print-env"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in text.splitlines())


def measure(args, scratch, arms):
    """{arm: ([ratio of a round], [facts of a round])}."""
    log = os.path.join(scratch, "steps.jsonl")
    model = os.path.join(os.path.dirname(rig.MODELS), "torch", args.model + ".py")
    windows = {arm: [] for arm in arms}
    facts = {arm: [] for arm in arms}
    with open(log, "w") as file:
        pin = ["taskset", "-c", args.cpus] if args.cpus else []
        process = subprocess.Popen([*pin, capture_cost.STEP_HOST, "0", "0", args.python, model, "--steps", "100000000",
                                    *shlex.split(args.args)], stdout=file, stderr=subprocess.DEVNULL, start_new_session=True,
                                   env=dict(os.environ, **prepared(), PYTHONPATH=os.path.join(rig.BUILD, "python")))
        try:
            pid = capture_cost.child_of(process.pid)
            while not os.path.getsize(log):
                time.sleep(0.1)
            for i in range(args.rounds):
                for arm in list(arms)[i % len(arms):] + list(arms)[:i % len(arms)]:
                    time.sleep(args.seconds)
                    facts[arm].append({})
                    windows[arm].append(arms[arm](scratch, pid, args.seconds, facts[arm][-1]))
            time.sleep(args.seconds)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with open(log) as file:
        steps = [json.loads(line) for line in file.read().splitlines()[:-1]]
    steps = [(step["begin_ns"], step["end_ns"]) for step in steps if step.get("kind") == "step"]

    def median(begin, end):
        values = [e - b for b, e in steps if b >= begin and e <= end]
        return statistics.median(values) if len(values) >= 10 else None
    ratios = {}
    for arm in arms:
        ratios[arm] = []
        for begin, end in windows[arm]:
            inside = median(begin + capture_cost.SETTLE_NS, end)
            before = median(begin - int(args.seconds * 1e9), begin - 1_000_000_000)
            if inside and before:
                ratios[arm].append(inside / before)
    return ratios, facts


def main():
    parser = argparse.ArgumentParser(description="what whole stacks cost, and how whole they are")
    parser.add_argument("--python", required=True)
    parser.add_argument("--model", default="dlrm")
    parser.add_argument("--args", default="", metavar="WORDS", help="more of the model's command line")
    parser.add_argument("--cpus", metavar="LIST", help="of the model, which the recorder may use, too")
    parser.add_argument("--parts", action="store_true", help="what each part of a recording costs by itself")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--other", metavar="UPGATE")
    parser.add_argument("--py-spy", metavar="PATH")
    parser.add_argument("--no-perf", action="store_true")
    args = parser.parse_args()
    rig.need_build()
    if os.geteuid():
        raise SystemExit("stack_cost: needs root")
    with open(STATS) as file:
        was = file.read()
    with open(STATS, "w") as file:
        file.write("1")
    arms = arms_of(args)
    try:
        with rig.scratch() as scratch:
            ratios, facts = measure(args, scratch, arms)
    finally:
        with open(STATS, "w") as file:
            file.write(was)
    rows = []
    for arm in arms:
        rows.append(rig.row("%s: a step over one that is not watched" % arm,
                            statistics.median(ratios[arm]) if ratios[arm] else None))
        for name in ("samples", "GPU operations", "whole", "python", "late", "us a sample", "us a switch-out", "bytes"):
            values = [one[name] for one in facts[arm] if one.get(name) is not None]
            if values:
                rows.append(rig.row("    %s" % name, statistics.median(values)))
    rig.finish("What whole stacks cost, %s on %s" % (args.model, args.python), rows)


if __name__ == "__main__":
    main()
