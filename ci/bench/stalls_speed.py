#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long `upgate stalls` takes over a long recording: a synthetic store of 1 million gaps and 4 million samples
over 10 minutes, 40 threads and 2,000 distinct stacks, beside a plain sum over the same rows by SQLite in the same
run. Exit 1 above 3 s.

    python3 ci/bench/stalls_speed.py [--gaps N] [--samples N] [--repeat N]
"""

import argparse
import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import time

import rig

LIMIT_S = 3
THREADS = 40
STACKS = 2000
WINDOW_NS = 600 * 10**9
BEGIN_NS = 5 * 10**12
FUNCTIONS = ["futex_do_wait", "futex_wait", "do_futex", "do_syscall_64", "entry_SYSCALL_64_after_hwframe", "schedule", "ep_poll",
             "vm_mmap_pgoff", "rwsem_down_write_slowpath", "down_write_killable", "handle_mm_fault", "exc_page_fault",
             "filemap_read", "folio_wait_bit_common", "vfs_read", "hrtimer_nanosleep", "tcp_recvmsg", "do_wait"]


def fill(path, gaps, samples):
    """The store as the recorder leaves it, made by SQL alone."""
    with open(os.path.join(rig.ROOT, "contracts/schema.sql")) as file:
        schema = file.read()
    db = sqlite3.connect(path)
    db.executescript(schema)
    rng = random.Random(7)
    db.execute("INSERT INTO run VALUES (1, 'u', 'record', 'done', '0', 0, 1, 7, '{}', NULL, '[]', '{}', 'k', NULL, NULL)")
    db.execute("INSERT INTO recording VALUES (1, NULL, ?, ?, 1000000, 199, 1, '{}', '[]')", (BEGIN_NS, BEGIN_NS + WINDOW_NS))
    db.execute("INSERT INTO process VALUES (1, 1, 1000, 1, 1, 'python3', 'python3 train.py', 'target', NULL, NULL, NULL)")
    db.execute("INSERT INTO process VALUES (2, 1, 2000, 1, 1, 'python3', 'python3 monitor.py', 'other', NULL, NULL, NULL)")
    db.executemany("INSERT INTO thread VALUES (?, ?, ?, 'thread', NULL, NULL)",
                   [(i, 1 if i < THREADS else 2, 999 + i) for i in range(1, THREADS + 1)])
    names = FUNCTIONS + ["function_%d" % i for i in range(3000)]
    db.executemany("INSERT INTO frame VALUES (?, ?, '[kernel]', NULL, NULL, 0)", list(enumerate(names, 1)))
    db.executemany("INSERT INTO stack VALUES (?, ?, 12, ?)",
                   [(i, "kernel" if i % 2 else "user", json.dumps([rng.randint(1, 18 if k < 3 else len(names)) for k in range(12)],
                                                                  separators=(",", ":"))) for i in range(1, STACKS + 1)])
    db.execute("WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1) INSERT INTO gap "
               "SELECT i + 1, 1 + i % ?, ? + i * ?, ? + i * ? + 4000000, ? + i * ? + 4010000, 1 + i % 2, 0, 0, 0, 1 + (i * 7919 % ?) / 2 * 2, "
               "2 + (i * 104729 % ?) / 2 * 2, NULL, 1 + i % 39, 1 + i * 31 % ? / 2 * 2, 1 + i % 37, 120, 1 + i % 31, 120, NULL, NULL, NULL, 202, "
               "140000000000000, 128, NULL FROM n",
               (gaps, THREADS - 1, BEGIN_NS, WINDOW_NS // gaps, BEGIN_NS, WINDOW_NS // gaps, BEGIN_NS, WINDOW_NS // gaps, STACKS, STACKS - 2, STACKS))
    db.execute("WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1) INSERT INTO sample "
               "SELECT 1 + i % ?, ? + i * ?, i % 8, 1 + (i % 2) * 16, CASE i % 2 WHEN 0 THEN 1 + (i * 7919 % ?) / 2 * 2 END, "
               "2 + (i * 104729 % ?) / 2 * 2, NULL FROM n",
               (samples, THREADS, BEGIN_NS, WINDOW_NS // samples, STACKS, STACKS - 2))
    db.commit()
    db.close()


def plain(path):
    """Seconds of a sum over a few columns of the same rows: what reading them costs at least."""
    db = sqlite3.connect(path)
    start = time.monotonic()
    db.execute("SELECT count(*), sum(in_ns - out_ns), sum(kernel_stack), sum(waker_thread) FROM gap").fetchone()
    db.execute("SELECT count(*), sum(at_ns % 1000000), sum(kernel_stack), sum(user_stack) FROM sample").fetchone()
    db.close()
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description="time of upgate stalls")
    parser.add_argument("--gaps", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    if not os.path.exists(rig.UPGATE): # the workloads that rig.need_build asks for are not needed
        print("%s: '%s' is missing; build first, or set UPGATE_BUILD" % (sys.argv[0], rig.UPGATE), file=sys.stderr)
        sys.exit(2)
    with rig.scratch() as scratch:
        path = os.path.join(scratch, "run.db")
        fill(path, args.gaps, args.samples)
        size = os.path.getsize(path)
        sums, runs, found = [], [], 0
        for _ in range(args.repeat):
            sums.append(plain(path))
            start = time.monotonic()
            done = subprocess.run([rig.UPGATE, "stalls", path, "--format", "json"], check=True, capture_output=True)
            runs.append(time.monotonic() - start)
            found = len(json.loads(done.stdout)["stalls"])
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    best, rows = min(runs), args.gaps + args.samples
    rig.finish("Time of upgate stalls", [
        rig.row("upgate stalls over %d rows, best of %d" % (rows, args.repeat), best, LIMIT_S, " s"),
        rig.row("    the slowest of them", max(runs), None, " s"),
        rig.row("    a row", best / rows * 1e9, None, " ns"),
        rig.row("SELECT count(*), sum() over the same rows", min(sums), None, " s"),
        rig.row("    upgate stalls over that", best / min(sums), None, " times"),
        rig.row("memory of upgate stalls", memory, None, " MB"),
        rig.row("store", size / 1e6, None, " MB"),
        rig.row("causes found", found, None),
    ])


if __name__ == "__main__":
    main()
