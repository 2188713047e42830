#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long `upgate diff` takes over two long launches on a GPU: 10 million operations each, 450 kernels a step, with marks of
Python, phases, calls and samples of the host beside them. The steps are those of tests/e2e/diff_store.py, repeated by SQL. On one
CPU, beside a plain sum over gpu_op by SQLite in the same run. Exit 1 above 3 s or 1 GB.

    python3 ci/bench/diff_speed.py [--ops N] [--repeat N] [--keep FILE] [--command PROGRAM ...]
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import time

import rig

sys.path.insert(0, os.path.join(rig.ROOT, "tests/e2e"))
import diff_store  # noqa: E402
import diff_store_model  # noqa: E402

LIMIT_S, LIMIT_MB = 3, 1000
LAYERS, COUPLES = 23, 9  # 450 kernels a step; 33 steps, which are repeated
PROCESS = "process_id IN (SELECT id FROM process WHERE recording_id = {0})"
THREAD = f"thread_id IN (SELECT id FROM thread WHERE {PROCESS})"
WORK = f"work_id IN (SELECT id FROM gpu_work WHERE stream_id IN (SELECT id FROM gpu_stream WHERE {PROCESS}))"
# What a launch has more of when it runs longer: whose rows, and what shifts with every repetition.
TABLES = [
    ("gpu_op", WORK, {"start_ns": "period"}),
    ("gpu_call", PROCESS, {"start_ns": "period"}),
    ("gpu_sync", PROCESS, {"start_ns": "period"}),
    ("python_mark", PROCESS, {"at_ns": "period"}),
    ("sample", THREAD, {"at_ns": "period"}),
    ("gap", THREAD, {"out_ns": "period", "waking_ns": "period", "in_ns": "period", "id": "rows"}),
    ("step", "launch_id = {1}", {"begin_ns": "period", "idx": "steps"}),
    ("phase_span", "launch_id = {1}", {"begin_ns": "period"}),
    ("block", "pair_id = {2} AND side = {3}", {"begin_ns": "period", "couple": "couples", "first_step": "steps"}),
]


def repeat(db, table, where, shifts, times, sizes):
    """Every row `times` times, the copies behind each other and the launches too."""
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    shifted = ", ".join(f"{c} + k * {sizes[shifts[c]]}" if c in shifts else c for c in columns)
    for name, one in (("base0", where[0]), ("base1", where[1])):
        db.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {table} WHERE {one}")
        db.execute(f"DELETE FROM {table} WHERE {one}")
    for name in ("base0", "base1"):
        db.execute(f"WITH RECURSIVE n (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < {times} - 1) "
                   f"INSERT INTO {table} SELECT {shifted} FROM n CROSS JOIN {name}")
        db.execute(f"DROP TABLE {name}")


def fill(path, ops):
    """The store; gives how many operations it has."""
    diff_store_model.LAYERS = LAYERS
    diff_store.write("kernel_slower", path, pairs=4, traced=1, couples=COUPLES, host=True, hz=199)
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("PRAGMA synchronous = OFF")
    launches = db.execute("SELECT r.id, l.id, l.pair_id, l.side FROM recording r JOIN launch l ON l.id = r.launch_id ORDER BY r.id").fetchall()
    each = db.execute("SELECT count(*) / 2 FROM gpu_op").fetchone()[0]
    times = max(1, ops // each)
    period = db.execute("SELECT max(end_ns - begin_ns) FROM recording").fetchone()[0]
    steps = db.execute("SELECT max(idx) + 1 FROM step WHERE launch_id = ?", (launches[0][1],)).fetchone()[0]
    for table, where, shifts in TABLES:
        rows = db.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0] if "id" in shifts else 0
        sizes = {"period": period, "steps": steps, "couples": COUPLES, "rows": rows or 1}
        repeat(db, table, [where.format(*launch) for launch in launches], shifts, times, sizes)
    more = period * (times - 1)
    db.execute("UPDATE recording SET end_ns = end_ns + ?", (more,))
    db.execute("UPDATE launch SET ended_ns = ended_ns + ?, steps = steps * ? WHERE id IN (SELECT launch_id FROM recording)", (more, times))
    db.commit()
    count = db.execute("SELECT count(*) FROM gpu_op").fetchone()[0]
    db.close()
    return count


def plain(path):
    """Seconds of a sum over the columns that a diff reads."""
    db = sqlite3.connect(path)
    start = time.monotonic()
    db.execute("SELECT sum(start_ns % 1000), sum(dur_ns), sum(work_id), sum(call_ns), sum(call_dur_ns) FROM gpu_op").fetchone()
    db.close()
    return time.monotonic() - start


def measure(command):
    """Seconds, MB and the answer of one run on one CPU."""
    done = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}))
    start = time.monotonic()
    text = done.stdout.read()
    _, status, usage = os.wait4(done.pid, 0)
    done.returncode = os.waitstatus_to_exitcode(status)
    if done.returncode not in (0, 1, 3):
        print("'%s' ended with %d" % (" ".join(command), done.returncode), file=sys.stderr)
        sys.exit(1)
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text


def main():
    parser = argparse.ArgumentParser(description="time of upgate diff")
    parser.add_argument("--ops", type=int, default=10_000_000, help="of one launch")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", help="leave the store here, and take one that is there already")
    parser.add_argument("--command", nargs="+", help="instead of `upgate diff --format json`; the store is appended")
    args = parser.parse_args()
    command = args.command or [rig.UPGATE, "diff", "--format", "json"]
    if not os.path.exists(command[0]):
        print("%s: '%s' is missing; build first, or set UPGATE_BUILD" % (sys.argv[0], command[0]), file=sys.stderr)
        sys.exit(2)
    with rig.scratch() as scratch:
        path = args.keep or os.path.join(scratch, "run.db")
        if args.keep and os.path.exists(path):
            with sqlite3.connect(path) as db:
                count = db.execute("SELECT count(*) FROM gpu_op").fetchone()[0]
        else:
            count = fill(path, args.ops)
        size = os.path.getsize(path)
        sums, runs = [], []
        for _ in range(args.repeat):
            sums.append(plain(path))
            runs.append(measure([*command, path]))
    seconds, cpu, memory, text = min(runs)
    rows = [
        rig.row("upgate diff over %d operations, best of %d" % (count, args.repeat), seconds, LIMIT_S, " s"),
        rig.row("    the slowest of them", max(runs)[0], None, " s"),
        rig.row("    on the CPU", cpu, None, " s"),
        rig.row("    operations a second", count / seconds / 1e6, None, " million"),
        rig.row("    a row", seconds / count * 1e9, None, " ns"),
        rig.row("memory of upgate diff", memory, LIMIT_MB, " MB"),
        rig.row("SELECT sum() over the same rows", min(sums), None, " s"),
        rig.row("store", size / 1e6, None, " MB"),
    ]
    if not args.command:
        rows.append(rig.row("contributions found", sum(len(w["contributions"]) for w in json.loads(text)["workloads"]), None))
    rig.finish("Time of upgate diff", rows)


if __name__ == "__main__":
    main()
