# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of upgate share: runs the built program on plans in a scratch directory, reads the
store it leaves, and prints one table. Reads $UPGATE_BUILD (default build/release); writes nothing but the
scratch directory and what a benchmark is told to. Judges nothing: the ratios here are an independent look
at the same blocks, so that a mistake of the gate does not hide itself.
"""

import collections
import contextlib
import json
import math
import os
import platform
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("UPGATE_BUILD", os.path.join(ROOT, "build/release")))
UPGATE = os.path.join(BUILD, "upgate")
MODELS = os.path.join(BUILD, "reference_models/native")
VERDICTS = {0: "pass", 1: "fail", 3: "inconclusive"}

Run = collections.namedtuple("Run", "verdict store seconds stderr")
Row = collections.namedtuple("Row", "what measured limit ratio state")


def need_build():
    """Exit 2 in words when there is nothing to measure."""
    for path in (UPGATE, os.path.join(MODELS, "dlrm")):
        if not os.path.exists(path):
            print("%s: '%s' is missing; build first, or set UPGATE_BUILD" % (sys.argv[0], path), file=sys.stderr)
            sys.exit(2)


# --- running the program ---------------------------------------------------------------------------


@contextlib.contextmanager
def scratch():
    """A directory that is gone afterwards; certificates live in it too."""
    path = tempfile.mkdtemp(prefix="upgate-bench-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def planted(directory, plant):
    """A `models:` directory whose workloads are the real ones with a planted fault."""
    path = os.path.join(directory, "planted-" + plant.replace(":", "-").replace("%", ""))
    os.makedirs(path, exist_ok=True)
    for name in ("dlrm", "transformer", "allreduce"):
        program = os.path.join(path, name)
        with open(program, "w") as file:
            file.write('#!/bin/sh\nexec "%s" "$@" --plant %s\n' % (os.path.join(MODELS, name), plant))
        os.chmod(program, 0o755)
    return path


def plan(workloads, candidate=None, schedule=None, gate=None):
    """A plan as JSON, which is YAML. The sides are the native workloads; candidate: other models."""
    return {
        "baseline": {"name": "native", "models": MODELS},
        "candidate": {"name": "native again" if candidate is None else "planted", "models": candidate or MODELS},
        "workloads": workloads,
        "schedule": dict({"traced_launches": 0}, **(schedule or {})),
        "gate": gate or {},
    }


def command(directory, name, plan_document, aa=False):
    """Writes the plan; returns the command line that runs it and the path of its store."""
    plan_path = os.path.join(directory, name + ".yaml")
    store = os.path.join(directory, name + ".db")
    with open(plan_path, "w") as file:
        json.dump(plan_document, file)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(store)
    argv = [UPGATE, "ab", plan_path, "-o", store, "-q"] + (["--aa"] if aa else [])
    return argv, store


def environment(directory):
    return dict(os.environ, UPGATE_STATE_DIR=os.path.join(directory, "state"))


def start(directory, argv, prefix=()):
    return subprocess.Popen(list(prefix) + argv, env=environment(directory), stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE)


def run(directory, name, plan_document, aa=False, prefix=()):
    """One `upgate ab`. Any exit code that is no verdict ends the benchmark."""
    argv, store = command(directory, name, plan_document, aa)
    begin = time.monotonic()
    process = start(directory, argv, prefix)
    stderr = process.communicate()[1].decode(errors="replace")
    if process.returncode not in VERDICTS:
        print("upgate ended with %d:\n%s" % (process.returncode, stderr), file=sys.stderr)
        sys.exit(1)
    return Run(VERDICTS[process.returncode], store, time.monotonic() - begin, stderr)


def calibrate(directory, interleave="steps"):
    """A/A and control, once: gates of the native dlrm that follow find it and do not make their own."""
    document = plan([{"name": "host", "model": "dlrm", "size": "small", "steps": 120}],
                    schedule={"looks": [14], "seed": 1, "interleave": interleave, "block": "10ms"},
                    gate={"metrics": {"step_time": {"margin": "2%"}}, "parity": {"rule": "off"}})
    return run(directory, "calibrate-" + interleave, document, aa=True)


@contextlib.contextmanager
def neighbour(seed, cpus):
    """Bursty load on some CPUs while the block runs: neighbour.py, killed at the end."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "neighbour.py")
    process = subprocess.Popen([sys.executable, program, str(seed), ",".join(map(str, cpus))], stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:  # when we are killed, the end of its stdin stops it
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# --- reading a store -------------------------------------------------------------------------------


def query(store, sql, *values):
    with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % store, uri=True)) as connection:
        return connection.execute(sql, values).fetchall()


def cells(store):
    names = ("workload", "metric", "verdict", "ratio", "ci_lower", "ci_upper", "pairs", "look", "gating")
    return [dict(zip(names, row)) for row in query(store, "SELECT %s FROM v_cell" % ", ".join(names))]


def hodges_lehmann(values):
    """Median of the pairwise means, of at most 400 values taken in order of a fixed draw."""
    if len(values) > 400:
        values = random.Random(1).sample(values, 400)
    return statistics.median((values[i] + values[j]) / 2 for i in range(len(values)) for j in range(i, len(values)))


def pair_ratios(store, workload, states=("valid", "void")):
    """ln(b / a) of the step time of each main pair, from raw rows: of the couples of blocks where there are
    any, else of the medians of the steps behind the first fifth."""
    ratios = []
    for pair, state in query(store, "SELECT p.id, p.state FROM pair p JOIN workload w ON w.id = p.workload_id "
                                    "WHERE w.name = ? AND p.phase = 'main' ORDER BY p.idx", workload):
        if state not in states:
            continue
        blocks = query(store, "SELECT couple, side, 1.0 * active_ns / steps FROM block WHERE pair_id = ? AND "
                              "couple >= 2 ORDER BY couple, side", pair)
        if blocks:
            ratios.append(hodges_lehmann([math.log(b[2] / a[2]) for a, b in zip(blocks[::2], blocks[1::2])]))
            continue
        medians = []
        for side in (0, 1):
            steps = query(store, "SELECT s.dur_ns FROM step s JOIN launch l ON l.id = s.launch_id "
                                 "WHERE l.pair_id = ? AND l.side = ? ORDER BY s.idx", pair, side)
            medians.append(statistics.median(row[0] for row in steps[len(steps) // 5:]))
        ratios.append(math.log(medians[1] / medians[0]))
    return ratios


def gate_ratios(store, workload):
    """ln(b / a) of the step time of each main pair as the gate measured it; where it did not (a void pair), ours."""
    ours = query(store, "SELECT p.idx, p.state FROM pair p JOIN workload w ON w.id = p.workload_id "
                        "WHERE w.name = ? AND p.phase = 'main' ORDER BY p.idx", workload)
    ours = [idx for idx, state in ours if state in ("valid", "void")]
    theirs = dict(query(store, "SELECT pair, log_ratio FROM v_pair WHERE workload = ? AND phase = 'main' AND "
                               "metric = 'step_time'", workload))
    return [theirs.get(idx, own) for idx, own in zip(ours, pair_ratios(store, workload))]


# --- numbers ---------------------------------------------------------------------------------------


def quantile(values, share):
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def binomial_tail_below(events, trials, rate):
    """P(X <= events)."""
    return sum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(events + 1))


def clopper_pearson_upper(events, trials, confidence=0.95):
    """One-sided upper bound of a rate, by bisection."""
    if trials == 0 or events >= trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if binomial_tail_below(events, trials, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


# --- the table -------------------------------------------------------------------------------------


def row(what, measured, limit=None, unit="", more_is_better=False):
    """A line of the table. limit None: shown, not judged."""
    text = "-" if measured is None else "%.4g%s" % (measured, unit)
    if limit is None:
        return Row(what, text, "", "", "")
    if measured is None or math.isnan(measured):
        return Row(what, text, "%.4g%s" % (limit, unit), "-", "MISSED")
    met = measured >= limit if more_is_better else measured <= limit
    return Row(what, text, "%s %.4g%s" % (">=" if more_is_better else "<=", limit, unit),
               "%.2f" % (measured / limit) if limit else "-", "ok" if met else "MISSED")


def machine():
    model = "unknown processor"
    with contextlib.suppress(OSError):
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    return "%d CPUs, %s, Linux %s" % (os.cpu_count(), model, platform.release())


def finish(title, rows):
    """Print the table with machine, load and command; exit 1 when a limit is missed."""
    load = os.getloadavg()[0]
    print("%s\n  machine  %s, load %.2f at the end\n  command  %s\n  date     %s\n"
          % (title, machine(), load, " ".join(["python3"] + [os.path.relpath(sys.argv[0], ROOT)] + sys.argv[1:]),
             time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())))
    table = [Row("what", "measured", "limit", "ratio", "")] + rows
    widths = [max(len(line[i]) for line in table) for i in range(len(Row._fields))]
    for line in table:
        print(("  %-*s  %*s  %*s  %*s  %s" % (widths[0], line.what, widths[1], line.measured, widths[2], line.limit,
                                            widths[3], line.ratio, line.state)).rstrip())
    sys.exit(1 if any(line.state == "MISSED" for line in rows) else 0)
