#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stores that a disk, a copy or somebody has damaged, through every verb that reads one: no signal, no pass that the
sound store would not get, and words on stderr with every exit code that is no verdict. Damage is a zeroed byte of
the header, and a NULL or an empty text in each column of the tables a verdict is made of."""
import os
import sqlite3
import subprocess
import sys
import tempfile

BUILD, SOURCE = os.environ["UPGATE_BUILD"], os.environ["UPGATE_SOURCE"]
UPGATE = os.path.join(BUILD, "upgate")
ENV = {key: value for key, value in os.environ.items() if not key.startswith(("UPGATE_", "GITHUB_"))}
TABLES = ["run", "side", "workload", "pair", "launch", "ledger", "cell", "parity", "finding", "calibration", "note",
          "verdict"]
READ_TEXTS = ["run.uuid", "run.kind", "run.state", "run.plan", "side.name", "workload.name", "workload.mode",
              "cell.workload", "cell.metric", "cell.unit", "cell.reason", "parity.workload", "parity.rule",
              "finding.kind", "finding.text", "note.level", "note.text", "verdict.calibration_note"]
FORMS = ["out.html", "out.md", "out.json", "out.xml"]
failures = []


def make(path):
    db = sqlite3.connect(path)
    for part in ("contracts/schema.sql", "tests/golden/base.sql", "tests/golden/calibrated.sql", "tests/golden/fail.sql"):
        with open(os.path.join(SOURCE, part), encoding="utf-8") as file:
            db.executescript(file.read())
    db.close()


def run(work, *words):
    done = subprocess.run([UPGATE] + list(words), cwd=work, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60)
    return done.returncode, done.stderr.decode(errors="replace")


READERS = [("report", "s.db"), ("report", "s.db", "--github")] + [("report", "s.db", "-o", form) for form in FORMS] + \
    [("gate", "s.db"), ("diff", "s.db"), ("stalls", "s.db")]


def look(work, what, missing=False):
    """The sound store is no pass; nothing may make one of it. What the schema always has is missed in words."""
    said = False
    for words in READERS:
        code, err = run(work, *words)
        said = said or (code == 4 and "is damaged: " in err)
        if code not in (1, 2, 3, 4) and not (code == 0 and words[0] != "gate") or "Sanitizer" in err or \
                (code in (2, 4) and "error: " not in err):
            failures.append("%s: %s: exit %d %s" % (what, " ".join(words), code, err[-300:]))
            print("FAIL " + failures[-1], flush=True)
    if missing and not said:
        failures.append("%s: nobody says that the store is damaged" % what)
        print("FAIL " + failures[-1], flush=True)


def test_header(work, sound):
    for at in range(100):
        if sound[at]:
            with open(os.path.join(work, "s.db"), "wb") as file:
                file.write(sound[:at] + b"\0" + sound[at + 1:])
            look(work, "byte %d is 0" % at)


def columns():
    db = sqlite3.connect(":memory:")
    with open(os.path.join(SOURCE, "contracts/schema.sql"), encoding="utf-8") as file:
        db.executescript(file.read())
    for table in TABLES:
        for _, name, kind, needed, _, key in db.execute("PRAGMA table_info(%s)" % table):
            if not key:
                yield table, name, kind, needed


def test_values(work, sound):
    """A table without its constraints: whatever a damaged page may hold."""
    path = os.path.join(work, "s.db")
    for table, column, kind, needed in columns():
        for value in ("NULL", "''"):
            with open(path, "wb") as file:
                file.write(sound)
            db = sqlite3.connect(path)
            # Another type than the schema's, and no NOT NULL or CHECK: as the file may be, not as it was made.
            names = [row[1] for row in db.execute("PRAGMA table_info(%s)" % table)]
            db.executescript("PRAGMA foreign_keys = OFF; PRAGMA legacy_alter_table = ON; DROP VIEW IF EXISTS v_x;"
                             "CREATE TABLE copy AS SELECT * FROM %s;" % table)
            db.execute("PRAGMA writable_schema = ON")
            db.execute("UPDATE sqlite_master SET sql = 'CREATE TABLE %s (%s)' WHERE name = '%s' AND type = 'table'" % (
                table, ", ".join("id INTEGER PRIMARY KEY" if name == "id" else name for name in names), table))
            db.execute("DELETE FROM sqlite_master WHERE tbl_name = '%s' AND type = 'index'" % table)
            db.commit()
            db.close()
            db = sqlite3.connect(path)
            db.executescript("DROP TABLE copy; UPDATE %s SET %s = %s;" % (table, column, value))
            db.close()
            look(work, "%s.%s = %s" % (table, column, value),
                 value == "NULL" and needed and kind == "TEXT" and "%s.%s" % (table, column) in READ_TEXTS)


def main():
    with tempfile.TemporaryDirectory(prefix="upgate-damaged-") as work:
        path = os.path.join(work, "s.db")
        make(path)
        look(work, "sound")
        with open(path, "rb") as file:
            sound = file.read()
        if "values" not in sys.argv:
            test_header(work, sound)
        if "header" not in sys.argv:
            test_values(work, sound)
    print("%d failed" % len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
