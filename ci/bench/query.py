#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SQL over the shards of 1,000 ranks: `upgate query` beside a loop of Python's sqlite3, and DuckDB where this Python has it (PyPI: duckdb,
duckdb-extension-sqlite-scanner). One shard is recorded, cut to --rows waits, and copied. Needs root. Wall time of whole commands, the
files in memory, the best of --rounds in turns. Exit 1 when upgate takes more than 0.5 s, which is half of DuckDB's on the machine
where that limit was set, for a row of each shard; or more than the loop, where all rows are moved.

    python3 ci/bench/query.py [--shards 1000] [--rows 500] [--rounds 5]
"""
import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import time

import rig

LIMIT_S = 0.5
LOOP = """
import glob, sqlite3, sys
rows = []
for rank, path in enumerate(sorted(glob.glob(sys.argv[1] + '/*.db'))):
    base = sqlite3.connect('file:%s?mode=ro' % path, uri=True)
    rows += base.execute(sys.argv[2]).fetchall()
    base.close()
print(sum(row[0] for row in rows))
"""
DUCK = """
import glob, sys
import duckdb, duckdb_extensions
duckdb_extensions.import_extension('sqlite_scanner')
base = duckdb.connect()
paths = sorted(glob.glob(sys.argv[1] + '/*.db'))
union = ' UNION ALL '.join("SELECT count(*) AS n, avg(in_ns - out_ns) AS ns FROM sqlite_scan('%s', 'gap')" % path for path in paths)
print(base.execute('SELECT sum(n) FROM (%s)' % union).fetchall())
"""
ASKED = {"a row of each": ("SELECT count(*) AS n, avg(in_ns - out_ns) AS ns FROM gap", "SELECT sum(n) AS n, avg(ns) AS ns FROM map"),
         "all rows": ("SELECT in_ns - out_ns AS ns FROM gap", "SELECT count(*) AS n, avg(ns) AS ns FROM map")}


def make_shards(folder, shards, rows):
    """The directory of the run: one shard, recorded, and copies of it that say that they are other ranks."""
    env = dict(os.environ, RANK="0", WORLD_SIZE=str(shards))
    subprocess.run([rig.UPGATE, "rank", "-o", folder, "--job", "job", "--", "sleep", "1.5"], env=env, check=True)
    run, first = os.path.join(folder, "job"), os.path.join(folder, "job", "0-0.db")
    until = time.monotonic() + 20
    while not os.path.exists(first) or rows_of(first, "SELECT state FROM run") != [("done",)]:
        if time.monotonic() > until:
            raise SystemExit("query: no shard was made")
        time.sleep(0.1)
    base = sqlite3.connect(first)
    base.execute("DELETE FROM gap")
    base.execute("WITH RECURSIVE many (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many WHERE i < ?) INSERT INTO gap (thread_id, out_ns, in_ns, state, "
                 "flags) SELECT (SELECT min(id) FROM thread), begin_ns + i * 1000, begin_ns + i * 1000 + i % 97, 1, 0 FROM many, recording", (rows,))
    base.commit()
    base.execute("VACUUM")
    base.close()
    for rank in range(1, shards):
        path = shutil.copy(first, os.path.join(run, "0-%d.db" % rank))
        base = sqlite3.connect(path)
        base.execute("PRAGMA synchronous = OFF")
        base.execute("UPDATE recording SET target = json_set(target, '$.rank.rank', ?)", (rank,))
        base.commit()
        base.close()
    return run


def rows_of(path, sql):
    try:
        base = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
        found = base.execute(sql).fetchall()
        base.close()
        return found
    except sqlite3.Error:
        return []


def timed(command, best):
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    took = time.monotonic() - begin
    if done.returncode:
        raise SystemExit("query: %s ended with %d: %s" % (command[0], done.returncode, done.stderr[-500:]))
    return min(best, took), done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    duck = subprocess.run([sys.executable, "-c", "import duckdb, duckdb_extensions"], stderr=subprocess.DEVNULL).returncode == 0
    missed = False
    with rig.scratch() as folder:
        run = make_shards(folder, args.shards, args.rows)
        print("%d shards of %d waits, %.1f kB each; best of %d" % (args.shards, args.rows, os.path.getsize(os.path.join(run, "0-0.db")) / 1e3,
                                                                   args.rounds))
        for name, (select, reduce) in ASKED.items():
            commands = {"upgate query": [rig.UPGATE, "query", folder, "--map", select, "--reduce", reduce, "--format", "json"],
                        "Python, sqlite3": [sys.executable, "-c", LOOP, run, select]}
            if duck and name == "a row of each":
                commands["DuckDB"] = [sys.executable, "-c", DUCK, run]
            best = dict.fromkeys(commands, float("inf"))
            for _ in range(args.rounds):
                for who, command in commands.items():
                    best[who], printed = timed(command, best[who])
                    if who == "upgate query" and '"n":%d' % (args.shards * args.rows) not in printed:
                        raise SystemExit("query: the wrong answer: %s" % printed)
            for who, seconds in best.items():
                limit_s = LIMIT_S if name == "a row of each" else best["Python, sqlite3"]
                over = who == "upgate query" and seconds > limit_s
                missed |= over
                print("%-14s %-16s %6.3f s%s" % (name, who, seconds, "   MISSED: %.3f s" % limit_s if over else ""))
    if not duck:
        print("left out: DuckDB is not there")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
