#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The store that the fuzzed ones are made of: a small A/B run on GPUs with a planted difference, and a row in every
table. `template.py OUT.db`; always the same bytes."""
import os
import sqlite3
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import diff_store  # noqa: E402


def main():
    path = sys.argv[1] + ".new"
    diff_store.write("two_changes", path, seed=1, pairs=10, traced=1, couples=4, host=True)
    db = sqlite3.connect(path)
    db.execute("PRAGMA foreign_keys = ON")
    begin, = db.execute("SELECT begin_ns FROM recording WHERE id = 1").fetchone()
    db.create_function("t", 1, lambda offset: begin + offset)
    with open(os.path.join(HERE, "template.sql"), encoding="utf-8") as file:
        db.executescript("BEGIN;" + file.read() + "COMMIT;")
    empty = [name for name, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
             if name not in ("stall",) and not db.execute("SELECT 1 FROM %s LIMIT 1" % name).fetchone()]
    db.execute("VACUUM")
    db.close()
    if empty:
        sys.exit("no row in %s: tests/fuzz/template.sql wants one" % ", ".join(empty))
    os.replace(path, sys.argv[1])  # what fails leaves no template that a later build takes for whole


if __name__ == "__main__":
    main()
