#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTA (HolisticTraceAnalysis) and `upgate diff` on the same pair: what each ranks first, how much of the untraced
difference its list adds up to, whether it holds intervals, and what it takes. Prints Markdown; every figure is measured
here. HTA is given a Kineto trace of each side (ci/bench/gpu/kineto.py) and compares them its own way, over all their
steps: TraceDiff, temporal breakdown, kernel breakdown, idle time. Twice: as it comes, and without its rounding, because
as it comes it cuts up to 2 us off every kernel.

    python3 -m venv VENV && VENV/bin/pip install HolisticTraceAnalysis
    ci/bench/diff_hta.py OLD.json.gz NEW.json.gz STORE [--workload NAME] [--python VENV/bin/python] [--repeat N]

Exit 77 without HTA. TraceLens, AMD's, is not to be had from PyPI: what has that name there (0.7.0) evaluates agents and
reads no trace of a GPU.
"""

import argparse
import collections
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

import rig

TOP, SKIP = 5, 77
ROUNDING = "HTA_DISABLE_NS_ROUNDING"


# --- in the interpreter that has HTA ---------------------------------------------------------------


def steps_ms(trace):
    """The median step as the profiler saw it, on the host."""
    frame, ids = trace.t.get_trace(0), set(trace.iteration_df["id"])
    return float(frame[frame["name"].isin(ids) & frame["stream"].eq(-1)]["dur"].median()) / 1e3


def attempted(analyse):
    """What one of its analyses finds, or how it ended: as it comes it may fail where its comparison does not, by what its
    rounding leaves of kernels shorter than 1 us (less than nothing)."""
    try:
        return analyse()
    except Exception as error:  # whatever it raises is its answer
        return "it ends with %s" % type(error).__name__


def breakdown(path, steps):
    """Its breakdowns, ms a step."""
    from hta.trace_analysis import TraceAnalysis

    # With its last step, which it drops otherwise, so that it holds the steps by which we divide.
    analysis = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path), include_last_profiler_step=True)

    def temporal():
        row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        return {name: float(row[name + "_time(us)"]) / steps / 1e3 for name in ("compute", "non_compute", "idle")}

    def idle():
        frame = analysis.get_idle_time_breakdown(visualize=False)[0]
        return {name: float(us) / steps / 1e3 for name, us in frame.groupby("idle_category")["idle_time"].sum().items()}

    def types():
        frame = analysis.get_gpu_kernel_breakdown(visualize=False)[0]
        return {row["kernel_type"]: float(row["sum"]) / steps / 1e3 for _, row in frame.iterrows()}

    return {"time": attempted(temporal), "idle": attempted(idle), "types": attempted(types)}


def of_hta(old, new):
    """What it finds, as JSON on stdout."""
    from importlib import metadata

    from hta.common.trace import Trace
    from hta.trace_diff import DeviceType, LabeledTrace, TraceDiff

    pair = [LabeledTrace(label, Trace(trace_files={0: path}, trace_dir=os.path.dirname(path)))
            for label, path in (("old", old), ("new", new))]
    given = {"control_iteration": pair[0].iterations(), "test_iteration": pair[1].iterations(), "device_type": DeviceType.GPU}
    table = TraceDiff.compare_traces(*pair, **given)
    if table.empty:
        sys.exit("the traces hold no work of a GPU: HTA compares nothing else")
    count = [len(given["control_iteration"]), len(given["test_iteration"])]
    a, b = (table[side + "_total_duration"] / n / 1e3 for side, n in zip(("old", "new"), count))
    order = (b - a).abs().sort_values(ascending=False, kind="stable").index
    changes = TraceDiff.ops_diff(*pair, **given)
    print(json.dumps({
        "version": metadata.version("HolisticTraceAnalysis"), "columns": list(table.columns), "steps": count,
        "step_ms": [steps_ms(trace) for trace in pair], "events": [len(trace.t.get_trace(0)) for trace in pair],
        "changes": {kind: len(names) for kind, names in changes.items()},
        "rows": [{"name": name, "ms": float(b[name] - a[name]),
                  "count": [float(table[side + "_counts"][name]) / n for side, n in zip(("old", "new"), count)]} for name in order],
        "busy_ms": [float(a.sum()), float(b.sum())],
        "breakdown": [breakdown(path, n) for path, n in zip((old, new), count)],
    }))


# --- both programs ---------------------------------------------------------------------------------


def measured(command, repeat, codes, **environment):
    """Its answer as JSON, and of the fastest of its runs: seconds, seconds on the CPU, MB at most."""
    best = None
    for _ in range(repeat):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            start = time.monotonic()
            child = subprocess.Popen(command, stdout=out, stderr=errors, env=dict(os.environ, **environment))
            _, status, usage = os.wait4(child.pid, 0)
            seconds = time.monotonic() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            errors.seek(0)
            text = out.read()
            if child.returncode not in codes:
                said = errors.read().decode(errors="replace")[-2000:]
                print("'%s' ended with %d:\n%s" % (" ".join(command), child.returncode, said), file=sys.stderr)
                sys.exit(1)
        cost = (seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
        best = min(best or cost, cost)
    # What is below HTA may write to stdout too: its answer is the last line.
    return json.loads(text if text.startswith(b"{\n") else text.strip().rsplit(b"\n", 1)[-1]), best


# What a row of its table of differences holds (0.5.0): nothing that spreads.
COLUMNS = ["old_counts", "old_total_duration", "new_counts", "new_total_duration", "diff_counts", "diff_duration",
           "counts_change_categories"]
ON_GPU = ("gpu_compute", "copy", "comm_exposed")


def interval_of(ns, digits):
    return "[%+.*f, %+.*f]" % (digits, ns[0] / 1e6, digits, ns[1] / 1e6) if ns else "[not measured]"


def share(ms, workload):
    return "not measured" if not workload["delta_ns"] else "%+.3f ms = %.0f %%" % (ms, 100 * ms * 1e6 / workload["delta_ns"])


def pair_of(a, b, digits=3):
    return "not measured" if a is None or b is None else "%.*f -> %.*f" % (digits, a, digits, b)


def of_both(sides, what):
    """By kind the values of both sides; in words where one of them failed."""
    found = [side[what] for side in sides]
    failed = [value for value in found if isinstance(value, str)]
    return failed[0] if failed else {kind: [value.get(kind, 0) for value in found] for kind in sorted({*found[0], *found[1]})}


def parts(of_kinds):
    return of_kinds if isinstance(of_kinds, str) else "; ".join("%s %s" % (kind, pair_of(*both)) for kind, both in of_kinds.items())


def taken(cost):
    return ["%.2f s" % cost[0], "%.2f s" % cost[1], "%.0f MB" % cost[2]]


def column_of_hta(hta, cost, workload):
    rows, steps, sides = hta["rows"], hta["step_ms"], hta["breakdown"]
    untraced = [workload[key] / 1e6 for key in ("step_a_ns", "step_b_ns")]
    time_of, idle_of, types_of = (of_both(sides, what) for what in ("time", "idle", "types"))
    return [
        "%d and %d steps, one launch a side; %d events" % (*hta["steps"], sum(hta["events"])),
        pair_of(*steps),
        pair_of(*(t / u for t, u in zip(steps, untraced))),
        "%+.3f ms" % (steps[1] - steps[0]),
        "none" if hta["columns"] == COLUMNS else "its columns: " + ", ".join(hta["columns"]),
        "%d names: %s" % (len(rows), ", ".join("%d %s" % (n, kind) for kind, n in hta["changes"].items())),
        share(sum(row["ms"] for row in rows[:TOP]), workload),
        share(sum(row["ms"] for row in rows), workload),
        time_of if isinstance(time_of, str) else share(sum(b - a for a, b in time_of.values()), workload),
        "not in it",
        pair_of(*hta["busy_ms"]) + ": " + parts(types_of),
        parts(time_of),
        parts(idle_of),
        *taken(cost),
    ]


def column_of_upgate(workload, cost, operations):
    found, ratio = workload["contributions"], workload["traced_ratio"]
    interval = interval_of(workload["delta_ci_ns"], 3)
    kinds = collections.Counter(one["kind"] for one in found)
    ms = {kind: [None if ns is None else ns / 1e6 for ns in both] for kind, both in (workload["decomposition"] or {}).items()}
    return [
        "%s and %s windows of steps, %d traced pairs; %d operations of the GPU in the store"
        % (*workload["windows"].values(), workload["traced_pairs"], operations),
        pair_of(workload["step_a_ns"] / 1e6, workload["step_b_ns"] / 1e6) + ", untraced",
        pair_of(ratio["a"], ratio["b"]),
        "%+.3f ms %s, untraced" % (workload["delta_ns"] / 1e6, interval),
        "%d of %d contributions" % (sum(one["ci_ns"] is not None for one in found), len(found)),
        "%d contributions, %d of them named: %s"
        % (len(found), sum(one["named"] for one in found), ", ".join("%d %s" % (n, kind) for kind, n in kinds.items())),
        share(sum(one["delta_ns"] for one in found[:TOP]) / 1e6, workload),
        share(sum(one["delta_ns"] for one in found) / 1e6, workload),
        "its list holds all of them",
        "not measured" if workload["residual_ns"] is None else "%+.3f ms" % (workload["residual_ns"] / 1e6),
        parts({kind: both for kind, both in ms.items() if kind in ON_GPU}),
        "as above and below",
        parts({kind: both for kind, both in ms.items() if kind not in ON_GPU}),
        *taken(cost),
    ]


LINES = ["what it read", "a step, ms", "traced over untraced step", "difference of a step", "intervals", "what it lists",
         "its first %d, of the untraced difference" % TOP, "its whole list, of the untraced difference",
         "work and idle time of the GPU, of the untraced difference", "residual it tells",
         "work on the GPU, ms a step", "a step in parts, ms", "the GPU idle, ms a step", "time", "on the CPU", "memory"]


def cell(text, width=90):
    """A name in a cell: kernels are called whole paragraphs."""
    text = text.replace("|", "\\|").replace("\n", " ")
    return text if len(text) <= width else text[:width - 1] + "…"


def table(head, rows):
    return ["| %s |" % " | ".join(head), "|%s" % (" --- |" * len(head)), *("| %s |" % " | ".join(row) for row in rows)]


def ranked(runs, workload):
    """The first of each, side by side: ms a step, new less old."""
    for i in range(TOP):
        row = [str(i + 1)]
        for hta in runs:
            one = hta["rows"][i] if i < len(hta["rows"]) else None
            row.append("%+.4f `%s` %s a step" % (one["ms"], cell(one["name"]), pair_of(*one["count"], 0)) if one else "")
        one = workload["contributions"][i] if i < len(workload["contributions"]) else None
        if one:
            where = " in " + cell(one["where"]) if one["where"] else ""
            row.append("%+.4f %s %s `%s`%s"
                       % (one["delta_ns"] / 1e6, interval_of(one["ci_ns"], 4), one["kind"], cell(one["label"]), where))
        yield row if one else [*row, ""]


def has_hta(python):
    try:
        return subprocess.run([python, "-c", "import hta.trace_diff"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:  # no such interpreter
        return False


def main():
    parser = argparse.ArgumentParser(description="HTA and upgate diff on the same pair")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("store")
    parser.add_argument("--workload", help="of the store; the first otherwise")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has HTA")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the fastest counts")
    args = parser.parse_args()
    old, new = os.path.abspath(args.old), os.path.abspath(args.new)
    for path in (old, new, args.store, rig.UPGATE):
        if not os.path.exists(path):
            print("%s: '%s' is missing" % (sys.argv[0], path), file=sys.stderr)
            sys.exit(2)
    if not has_hta(args.python):
        print("HTA is missing: %s cannot import it; python3 -m venv VENV && VENV/bin/pip install HolisticTraceAnalysis, "
              "then --python VENV/bin/python" % args.python, file=sys.stderr)
        sys.exit(SKIP)
    inside = [args.python, os.path.abspath(__file__), "--inside", old, new]
    runs = [measured(inside, args.repeat, (0,), **{ROUNDING: value}) for value in ("0", "1")]
    answer, cost = measured([rig.UPGATE, "diff", args.store, "--format", "json"], args.repeat, (0, 1, 3))
    chosen = [w for w in answer["workloads"] if args.workload in (None, w["workload"])]
    if not chosen or chosen[0]["unexplained"] or chosen[0]["delta_ns"] is None:
        print("%s: '%s' explains no workload %s" % (sys.argv[0], args.store, args.workload or "at all"), file=sys.stderr)
        sys.exit(1)
    workload, version = chosen[0], runs[0][0]["version"]
    with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % os.path.abspath(args.store), uri=True)) as db:
        operations = db.execute("SELECT count(*) FROM gpu_op").fetchone()[0]
    head = ["HTA %s" % version, "HTA, %s=1" % ROUNDING, "upgate diff"]
    columns = [column_of_hta(*run, workload) for run in runs] + [column_of_upgate(workload, cost, operations)]
    sizes = ", ".join("%s %.1f MB" % (what, os.path.getsize(path) / 1e6)
                      for what, path in (("old trace", old), ("new trace", new), ("store", args.store)))
    lines = table(["", *head], [list(row) for row in zip(LINES, *columns)])
    first = table(["first by ms a step, new less old", *head], ranked([run[0] for run in runs], workload))
    print("\n".join(["%s: %s" % (workload["workload"], sizes), "", *lines, "", *first]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sys.path.pop(0)  # html.py beside this file is not the html that a library below HTA imports
        of_hta(*sys.argv[2:4])
    else:
        main()
