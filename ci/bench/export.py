#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of a store to files: `upgate export` beside Python's sqlite3 and csv, and DuckDB's own reader of SQLite, each where this Python has it
(PyPI: duckdb, duckdb-extension-sqlite-scanner). User and system time of whole commands with their children, the least of --rounds in turns;
the time of a wall clock beside it. The store has tables step and gap of --mb together, numbers and texts.

    python3 ci/bench/export.py [--mb 100] [--rounds 3]
"""
import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import time

import rig

TABLES = ("step", "gap")
LOOP = """
import csv, sqlite3, sys
base = sqlite3.connect('file:%s?mode=ro' % sys.argv[1], uri=True)
for name in sys.argv[3:]:
    with open('%s/%s.csv' % (sys.argv[2], name), 'w', newline='') as file:
        found = base.execute('SELECT * FROM ' + name)
        out = csv.writer(file)
        out.writerow([column[0] for column in found.description])
        out.writerows(found)
"""
DUCK = """
import sys
import duckdb, duckdb_extensions
duckdb_extensions.import_extension('sqlite_scanner')
base = duckdb.connect()
for name in sys.argv[3:]:
    base.execute("COPY (SELECT * FROM sqlite_scan('%s', '%s')) TO '%s/%s.parquet' (FORMAT parquet, COMPRESSION zstd)" % (sys.argv[1], name, sys.argv[2], name))
"""
FILL = """
INSERT INTO workload (id, name, mode) VALUES (1, 'w', 'train');
INSERT INTO side (id, name, config) VALUES (0, 'a', '{}'), (1, 'b', '{}');
INSERT INTO pair (id, workload_id, idx, phase, seed, first_side, interleave, state, started_ns, ended_ns) VALUES (1, 1, 0, 'main', 1, 0, 'steps', 'valid', 0, 1);
INSERT INTO launch (id, pair_id, side, state, started_ns, ended_ns, covariates) VALUES (1, 1, 0, 'ok', 0, 1, '{}');
INSERT INTO recording (id, begin_ns, threshold_ns, sample_hz, python, target, missing) VALUES (1, 0, 1000000, 99, 1, '{}', '[]');
INSERT INTO process (id, recording_id, tgid, start_ns, comm, kind) VALUES (1, 1, 1, 0, 'python', 'target');
INSERT INTO thread (id, process_id, tid, comm) VALUES (1, 1, 1, 'python');
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :rows - 1)
INSERT INTO step (launch_id, rank, idx, begin_ns, dur_ns, samples) SELECT 1, 0, i, i * 20000000, 20000000 + i % 977 * 1013, 32.0 + i % 7 / 3.0 FROM n;
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :rows - 1)
INSERT INTO gap (thread_id, out_ns, waking_ns, in_ns, state, flags, cpu_out, cpu_in, kernel_stack, syscall_nr, syscall_arg0, syscall_target)
SELECT 1, 5000000000000 + i * 3000000, 5000000000000 + i * 3000000 + 1000000 + i % 991, 5000000000000 + i * 3000000 + 1100000 + i % 983, 1, i % 5, i % 8,
       (i + 1) % 8, NULL, 7, i % 300, CASE i % 3 WHEN 0 THEN 'pipe:[' || (5936369 + i % 50) || ']' WHEN 1 THEN 'socket:[81] 10.0.0.1:443' END FROM n;
"""
BYTES_OF_A_ROW = 115  # of both tables together


def make(path, megabytes):
    base = sqlite3.connect(path)
    with open(os.path.join(rig.ROOT, "contracts/schema.sql"), encoding="utf-8") as file:
        base.executescript(file.read())
    base.execute("PRAGMA synchronous = OFF")
    base.executescript(FILL.replace(":rows", str(int(megabytes * 1e6 / BYTES_OF_A_ROW))))
    base.close()


def cost(command):
    """CPU time with that of its children, and wall time."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit("export: %s ended with %d" % (command[0], process.returncode))
    return used.ru_utime + used.ru_stime, time.monotonic() - begin, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rig.need_build()
    has = [subprocess.run([sys.executable, "-c", "import " + name], stderr=subprocess.DEVNULL).returncode == 0 for name in ("duckdb", "duckdb_extensions")]
    with rig.scratch() as folder:
        store, out = os.path.join(folder, "run.db"), os.path.join(folder, "out")
        make(store, args.mb)
        ours = [rig.UPGATE, "export", store, "-o", out, "--tables", ",".join(TABLES)]
        commands = {"CSV, upgate export": ours + ["--as", "csv"], "CSV, Python": [sys.executable, "-c", LOOP, store, out, *TABLES]}
        if has[0]:
            commands["Parquet, upgate export"] = ours + ["--python", sys.executable]
        if all(has):
            commands["Parquet, DuckDB"] = [sys.executable, "-c", DUCK, store, out, *TABLES]
        print("store of %.1f MB; least of %d" % (os.path.getsize(store) / 1e6, args.rounds))
        best = {}
        for _ in range(args.rounds):
            for who, command in commands.items():
                os.mkdir(out)
                took = cost(command)
                best[who] = min(best[who][0] if who in best else took, took), sum(os.path.getsize(os.path.join(out, name)) for name in os.listdir(out))
                shutil.rmtree(out)
        for who, ((cpu, wall, memory), size) in best.items():
            print("%-24s %6.2f s of CPU, %6.2f s, %4.0f MB of memory, files of %.1f MB" % (who, cpu, wall, memory, size / 1e6))
    for name, there in zip(("duckdb", "duckdb-extension-sqlite-scanner"), has):
        if not there:
            print("left out: what needs %s" % name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
