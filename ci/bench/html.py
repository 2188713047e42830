#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Size of `upgate report -o report.html`, how long it takes to make and how long Chromium takes to open it and draw everything: a run
of ten pairs of which two were traced, and one with 200,000 events and more in its timeline. Exit 1 above 5 MB or 2 s.

    python3 ci/bench/html.py [--repeat N] [STORE...]
"""
import argparse
import os
import resource
import sqlite3
import subprocess
import sys
import time

import rig

sys.path.insert(0, os.path.join(rig.ROOT, "tests/e2e"))
import browser  # noqa: E402
import diff_store  # noqa: E402

BYTES_MAX, OPEN_S = 5_000_000, 2
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"


def normal(path):
    diff_store.write("two_changes", path, host=True)


def large(path, ops=97_000):
    """Each traced block gets that many short operations more, side by side on the stream of its first one."""
    diff_store.write("kernel_slower", path, traced=1, couples=3)
    db = sqlite3.connect(path)
    works = dict(db.execute("SELECT l.side, min(w.id) FROM gpu_work w JOIN gpu_stream s ON s.id = w.stream_id JOIN process p ON p.id = s.process_id "
                            "JOIN recording r ON r.id = p.recording_id JOIN launch l ON l.id = r.launch_id WHERE w.kernel_id NOTNULL GROUP BY 1").fetchall())
    for side, begin, length in db.execute("SELECT b.side, b.begin_ns, b.active_ns FROM block b JOIN pair p ON p.id = b.pair_id WHERE p.phase = 'traced' "
                                    "AND b.couple > 0").fetchall():
        db.execute("WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1) "
                   "INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation, call_ns, call_dur_ns) "
                   "SELECT ? + i * ? / ?, ? / ? / 2, ?, 0, NULL, NULL FROM n", (ops, begin, length, ops, length, ops, works[side]))
    db.commit()
    db.close()


def measure(store, page_path, page, repeat):
    """Best of `repeat`: bytes, seconds to make, to open, to open and draw every part."""
    made, opened, drawn = [], [], []
    for _ in range(repeat):
        start = time.monotonic()
        subprocess.run([rig.UPGATE, "report", store, "-o", page_path, "--quiet"], check=True)
        made.append(time.monotonic() - start)
        if page:
            start = time.monotonic()
            page.open(page_path)
            opened.append(time.monotonic() - start)
            page.eval("UP.ensureIn(document.body)")
            page.eval(DRAWN)
            drawn.append(time.monotonic() - start)
    return os.path.getsize(page_path), min(made), min(opened, default=None), min(drawn, default=None)


def rows(name, store, scratch, page, repeat):
    size, made, opened, drawn = measure(store, os.path.join(scratch, "report.html"), page, repeat)
    found = [rig.row("%s: size of the file" % name, size / 1e6, BYTES_MAX / 1e6, " MB"),
             rig.row("    to make it, best of %d" % repeat, made, None, " s"),
             rig.row("    its store", os.path.getsize(store) / 1e6, None, " MB")]
    if opened is not None:
        found += [rig.row("    to open it", opened, OPEN_S, " s"), rig.row("    to open it and draw every part", drawn, None, " s")]
    return found


def main():
    parser = argparse.ArgumentParser(description="size and speed of the HTML report")
    parser.add_argument("stores", nargs="*", help="stores to measure beside the synthetic ones")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    if not os.path.exists(rig.UPGATE): # the workloads that rig.need_build asks for are not needed
        print("%s: '%s' is missing; build first, or set UPGATE_BUILD" % (sys.argv[0], rig.UPGATE), file=sys.stderr)
        sys.exit(2)
    program = browser.find()
    if not program:
        print("no chromium: opening is not measured", file=sys.stderr)
    page = browser.Browser(program) if program else None
    table = []
    with rig.scratch() as scratch:
        try:
            if page:
                page.size(1280, 900)
            for name, fill in (("a run of 10 pairs, 2 traced", normal), ("195,000 events in its timeline", large)):
                store = os.path.join(scratch, "run.db")
                if os.path.exists(store):
                    os.remove(store)
                fill(store)
                table += rows(name, store, scratch, page, args.repeat)
            for store in args.stores:
                table += rows(os.path.basename(store), store, scratch, page, args.repeat)
        finally:
            if page:
                page.close()
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    table.append(rig.row("memory of upgate report, at most", memory, None, " MB"))
    rig.finish("The HTML report", table)


if __name__ == "__main__":
    main()
