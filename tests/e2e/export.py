#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate export`: every value of every table and view as SQLite has it, of stores as they are made and of one that is full of hostile values;
a directory that is whole or not there, whatever happens; and damaged stores, whose export is none. Parquet is compared where python3 or one of
envs/ has duckdb."""
import contextlib
import csv
import fcntl
import io
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

import diff_store
import rollout_store

BUILD, SOURCE = os.environ["UPGATE_BUILD"], os.environ["UPGATE_SOURCE"]
UPGATE = os.path.join(BUILD, "upgate")
ENV = {key: value for key, value in os.environ.items() if not key.startswith(("UPGATE_", "RANK", "WORLD_SIZE", "LOCAL_"))}
FIELD = re.compile(rb'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)')
TEXTS = [b"", b"plain", b"a,b", b'say "x"', b"two\nlines", b"cr\rlf\r\nend", b"nul\0byte", b"\xff\xfe bad \xc3", b"\xed\xa0\x80", b"\x1b[31mred\x1b[0m",
         b"'; DROP TABLE gap; --", b"%22%0a%", b"NULL", b" blank ", "\u00e9\u4e2d\U0001f600\u2028".encode(), b"=1+1", b"\\", b"#", b'"', b"\t", b"x" * 3000]
REALS = [0.0, -1.5, 0.1, 1e300, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), 1 / 3, 12304000.0]
INTEGERS = [0, 1, -1, 2 ** 63 - 1, -2 ** 63, 42]


class Skip(Exception):
    pass


def run(*words, env=None, timeout=120, **more):
    done = subprocess.run([UPGATE, "export"] + list(words), env=env or ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=timeout, **more)
    done.err = done.stderr.decode(errors="replace")
    assert "Sanitizer" not in done.err, done.err
    return done


def check(done, code, *says):
    assert done.returncode == code, "exit %d, not %d: %s" % (done.returncode, code, done.err)
    for word in says:
        assert word in done.err, "no %r in %r" % (word, done.err)


def check_nothing(path):
    left = [name for name in os.listdir(os.path.dirname(path)) if name.startswith(os.path.basename(path))]
    assert not left, "left: %s" % left


# --- stores -----------------------------------------------------------------------------------------

def make(path, *parts):
    db = sqlite3.connect(path)
    for part in ("contracts/schema.sql",) + parts:
        with open(os.path.join(SOURCE, part), encoding="utf-8") as file:
            db.executescript(file.read())
    db.close()
    return path


def golden(work, name="golden.db"):
    return make(os.path.join(work, name), "tests/golden/base.sql", "tests/golden/fail.sql")


def change(path, *statements):
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def fits(name):
    """Numbers with a unit have a range (tracer/store/ranges.h)."""
    return name.split("_")[-1] in ("ns", "count", "hz", "step", "steps", "idx", "couple", "couples", "seen", "kept", "dropped", "pairs", "gates",
                                   "fails") or name == "pairs_needed"


def value_of(table, name, kind, key, needed, row):
    if kind == "INTEGER":
        if key or name.endswith(("_id", "_thread", "_stack")) or name in ("side", "number", "stack", "launch", "arm", "kind"):
            return row % 7  # so that what is joined is there
        return row * 1000003 if fits(name) else INTEGERS[row % len(INTEGERS)]
    if not needed and row % 5 == 4:
        return None
    if kind == "REAL":
        return REALS[row % len(REALS)]
    if kind == "BLOB":
        return TEXTS[(row + 1) % len(TEXTS)][:1000]
    if (table, name) == ("stack", "frames"):
        return "[%d,%d]" % (row % 7, (row + 1) % 7)
    return TEXTS[(row + len(name)) % len(TEXTS)] + (b"%d" % row if key else b"")


def hostile(path):
    """A row of each hostile value in every column of every table."""
    make(path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA ignore_check_constraints = ON")
    for table, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = db.execute("PRAGMA table_info(%s)" % table).fetchall()
        for row in range(len(TEXTS) * 2):
            values = [value_of(table, name, kind, key, needed, row) for _, name, kind, needed, _, key in columns]
            # A text whose bytes are no UTF-8 or have a NUL reaches SQLite by a cast only.
            marks = ["CAST(? AS TEXT)" if kind == "TEXT" else "?" for _, _, kind, *_ in columns]
            db.execute("INSERT OR IGNORE INTO %s VALUES (%s)" % (table, ", ".join(marks)), values)
    db.execute("UPDATE note SET text = ? WHERE id = 3", ('%"\n' * 1500000,))  # longer than any line that a reader expects
    db.commit()
    db.close()
    return path


def recorded(work):
    """A real one: a program under `upgate record`."""
    if os.geteuid() != 0:
        raise Skip("recording needs root")
    path = os.path.join(work, "recorded.db")
    done = subprocess.run([UPGATE, "record", "-q", "-o", path, "--", sys.executable, "-c",
                           "import time\nfor i in range(100): time.sleep(0.003); sum(range(20000))"], env=ENV, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, timeout=120)
    if done.returncode:
        raise Skip("`upgate record` does not work here: " + done.stderr.decode(errors="replace").strip())
    return path


def merged(work):
    if os.geteuid() != 0:
        raise Skip("recording needs root")
    shards, path = os.path.join(work, "shards"), os.path.join(work, "merged.db")
    jobs = [subprocess.Popen([UPGATE, "rank", "-q", "-o", shards, "--", "sh", "-c", "for i in 1 2 3 4 5; do sleep 0.05; done"],
                             env=dict(ENV, RANK=str(rank), WORLD_SIZE="2", TORCHELASTIC_RUN_ID="job"), stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE) for rank in range(2)]
    for job in jobs:
        err = job.communicate(timeout=120)[1].decode(errors="replace")
        if job.returncode:
            raise Skip("`upgate rank` does not work here: " + err)
    done = subprocess.run([UPGATE, "merge", shards, "-o", path], env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 0, done.stderr
    return path


# --- what must come out -----------------------------------------------------------------------------

def clean(raw):
    """Each byte that is not part of a whole character, and each NUL, is '?'."""
    out, at = [], 0
    while at < len(raw):
        for size in range(1, 5):
            with contextlib.suppress(UnicodeDecodeError):
                out.append(raw[at:at + size].decode())
                at += size
                break
        else:
            out.append("?")
            at += 1
    return "".join(out).replace("\0", "?")


CLEANED = {raw: clean(raw) for raw in TEXTS}


def expected(path, name):
    """Names of columns and rows by SQLite; texts as they must be written."""
    db = sqlite3.connect(path)
    declared = {row[1]: row[2] for row in db.execute('PRAGMA table_info("%s")' % name)}
    db.text_factory = bytes
    found = db.execute('SELECT * FROM "%s"' % name)
    names = [column[0] for column in found.description]
    rows = [[clean_value(value, declared[one] == "BLOB") for value, one in zip(row, names)] for row in found]
    db.close()
    return names, rows


def clean_value(value, blob):
    if isinstance(value, bytes) and not blob:
        return CLEANED[value] if value in CLEANED else clean(value)
    return value


def names_of(path):
    db = sqlite3.connect(path)
    found = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite@_%' ESCAPE '@'")]
    db.close()
    return found


def parse(raw):
    """RFC 4180, and nothing else: rows of (in quotes?, bytes)."""
    rows, row, at = [], [], 0
    while at < len(raw):
        found = FIELD.match(raw, at)
        assert found, "no CSV at byte %d: %r" % (at, raw[at:at + 60])
        row.append((found.group(1) is not None, (found.group(1) or b"").replace(b'""', b'"') if found.group(1) is not None else found.group(2)))
        if found.group(3) == b"\r\n":
            rows.append(row)
            row = []
        at = found.end()
    assert not row
    return rows


def same_field(field, value):
    quoted, raw = field
    if value is None:
        return not quoted and raw == b""
    if isinstance(value, str):
        return quoted and raw.decode() == value
    if isinstance(value, bytes):
        return quoted and bytes.fromhex(raw.decode()) == value
    if isinstance(value, int):
        return not quoted and raw == b"%d" % value
    return not quoted and float(raw) == value


def same_csv(path, folder, name):
    names, rows = expected(path, name)
    with open(os.path.join(folder, name + ".csv"), "rb") as file:
        raw = file.read()
    found = parse(raw)
    assert [one[1].decode() for one in found[0]] == names, "%s: %s" % (name, found[0])
    assert len(found) - 1 == len(rows), "%s: %d rows, not %d" % (name, len(found) - 1, len(rows))
    for fields, row in zip(found[1:], rows):
        for field, value, column in zip(fields, row, names):
            assert same_field(field, value), "%s.%s: %r is not %r" % (name, column, field[1][:80], value if value is None else str(value)[:80])
        assert len(fields) == len(row)
    csv.field_size_limit(1 << 30)
    again = list(csv.reader(io.StringIO(raw.decode(), newline=""), strict=True))
    assert [len(line) for line in again] == [len(line) for line in found], "%s: Python's csv reads it otherwise" % name
    return len(rows)


def export_csv(work, path, floor):
    folder = os.path.join(work, "out")
    done = run(path, "-o", folder, "--as", "csv", "--format", "json")
    check(done, 0)
    document = json.loads(done.stdout)
    names, total = names_of(path), 0
    assert document["schema"] == "upgate.export/1" and document["as"] == "csv"
    assert sorted(os.listdir(folder)) == sorted(name + ".csv" for name in names)
    assert [table["name"] for table in document["tables"]] == names
    for table in document["tables"]:
        assert table["rows"] == same_csv(path, folder, table["name"]) and table["kind"] == ("view" if table["name"].startswith("v_") else "table")
        assert table["bytes"] == os.path.getsize(os.path.join(folder, table["name"] + ".csv"))
        total += table["rows"]
    filled = {table["name"] for table in document["tables"] if table["rows"]}
    assert total >= floor, "%d rows" % total
    return filled, done


# --- Parquet ----------------------------------------------------------------------------------------

DUMP = """
import duckdb, json, os, sys
os.chdir(sys.argv[1])
out = {}
for name in sorted(os.listdir(".")):
    found = duckdb.sql("SELECT * FROM '%s'" % name)
    kinds = [str(kind) for kind in found.types]
    out[name] = [found.columns, kinds, [[("b" + bytes(v).hex()) if isinstance(v, (bytes, bytearray)) else v for v in row] for row in found.fetchall()]]
json.dump(out, sys.stdout)
"""
KINDS = {"INTEGER": "BIGINT", "REAL": "DOUBLE", "TEXT": "VARCHAR", "BLOB": "BLOB"}


def python_with_duckdb():
    for python in ("python3", os.path.join(SOURCE, "envs/baseline/bin/python"), os.path.join(SOURCE, "envs/candidate/bin/python")):
        found = shutil.which(python)
        if found and subprocess.run([found, "-I", "-c", "import duckdb"], stderr=subprocess.DEVNULL).returncode == 0:
            return found
    raise Skip("neither python3 nor envs/ has duckdb (pip install duckdb)")


def same_parquet(python, path, folder):
    done = subprocess.run([python, "-c", DUMP, folder], stdout=subprocess.PIPE, check=True, timeout=300)
    found = json.loads(done.stdout)
    assert sorted(found) == sorted(name + ".parquet" for name in names_of(path))
    db = sqlite3.connect(path)
    for name in names_of(path):
        columns, kinds, got = found[name + ".parquet"]
        names, rows = expected(path, name)
        assert columns == names
        declared = {row[1]: KINDS.get(row[2]) for row in db.execute("PRAGMA table_info(%s)" % name)}
        for column, kind in zip(columns, kinds):
            assert kind == (declared[column] or kind), "%s.%s is %s" % (name, column, kind)
            assert not column.endswith("_ns") or kind == "BIGINT", "%s.%s is %s" % (name, column, kind)
        wanted = [["b" + value.hex() if isinstance(value, bytes) else value for value in row] for row in rows]
        assert got == wanted, "%s: %s" % (name, next((a, b) for a, b in zip(got + [None], wanted + [None]) if a != b))
    db.close()


# --- cases ------------------------------------------------------------------------------------------

def test_hostile(work):
    path = hostile(os.path.join(work, "hostile.db"))
    filled, done = export_csv(work, path, 1500)
    empty = set(names_of(path)) - filled
    assert empty <= {"v_rollout"}, "nothing in %s" % empty
    assert re.search(r"[0-9]{3} texts, the first of them in run, are not UTF-8", done.err) and done.err.count("\n") == 1, done.err


def test_written(work):
    """Stores with all that the reports are tested with."""
    for name, write in (("model.db", lambda path: diff_store.write(sorted(diff_store.PLANTS)[0], path)),
                        ("rollout.db", lambda path: rollout_store.promoted(path)), ("golden.db", None)):
        path = os.path.join(work, name)
        if write:
            write(path)
        else:
            golden(work)
        export_csv(work, path, 20)
        shutil.rmtree(os.path.join(work, "out"))


def test_recorded(work):
    filled, _ = export_csv(work, recorded(work), 100)
    assert {"gap", "v_off_cpu", "v_stack", "frame", "process"} <= filled, filled


def test_merged(work):
    filled, _ = export_csv(work, merged(work), 20)
    assert {"gap", "v_off_cpu", "recording"} <= filled, filled


def test_old(work):
    """What version 1 has not is there, and empty."""
    path = os.path.join(work, "old.db")
    db = sqlite3.connect(path)
    with open(os.path.join(SOURCE, "tests/unit/store_v1.sql"), encoding="utf-8") as file:
        db.executescript(file.read())
    have = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    db.close()
    check(run(path, "-o", os.path.join(work, "out"), "--as", "csv"), 0)
    present = names_of(make(os.path.join(work, "present.db")))
    assert sorted(os.listdir(os.path.join(work, "out"))) == sorted(name + ".csv" for name in present)
    for name in ("gap", "launch_memory", "v_gpu_op"):
        with open(os.path.join(work, "out", name + ".csv"), "rb") as file:
            assert name not in have and len(parse(file.read())) == 1, name


def test_tables(work):
    path, out = golden(work), os.path.join(work, "out")
    done = run(path, "-o", out, "--as", "csv", "--tables", "v_cell,pair,pair")
    check(done, 0)
    assert sorted(os.listdir(out)) == ["pair.csv", "v_cell.csv"]
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 3 and lines[0].split() == ["table", "rows", "bytes"] and lines[1].split()[:2] == ["pair", "40"], lines
    for wrong, says in (("v_cel", "did you mean 'v_cell'?"), ("sqlite_master", "no table or view"), ("pair,", "an empty name"), ("", "empty value")):
        done = run(path, "-o", os.path.join(work, "more"), "--as", "csv", "--tables", wrong)
        check(done, 2, says)
        check_nothing(os.path.join(work, "more"))
    check(run(path, "-o", os.path.join(work, "more"), "--as", "csv", "--dry-run"), 0, "would write 8")
    check_nothing(os.path.join(work, "more"))


def test_place(work):
    path, out = golden(work), os.path.join(work, "out")
    words = ("--as", "csv", "--tables", "pair")
    check(run(path, *words), 2, "-o wants a directory")
    check(run(os.path.join(work, "none.db"), "-o", out, *words), 2, "none.db")
    check(run(os.path.join(SOURCE, "README.md"), "-o", out, *words), 2, "not a store")
    check_nothing(out)
    os.mkdir(out)
    check(run(path, "-o", ".", *words, cwd=out), 2, "the directory that you are in")
    check(run(path, "-o", out + "/", *words), 0)
    check(run(path, "-o", out, *words), 2, "is not empty")
    check(run(path, "-o", path, *words), 2, "is not a directory")
    check(run(path, "-o", os.path.join(work, "no/such"), *words), 4, "No such file")
    strange = os.path.join(work, "it's \"a\"\n%n \x1b[31m")
    check(run(path, "-o", strange, *words), 0)
    assert os.listdir(strange) == ["pair.csv"]
    link, real = os.path.join(work, "link"), os.path.join(work, "real")
    os.mkdir(real)
    os.symlink(real, link)
    check(run(path, "-o", link, *words), 0)
    assert os.path.islink(link) and os.listdir(real) == ["pair.csv"]
    if os.geteuid() == 0:
        assert os.stat(out).st_mode & 0o777 == 0o700 and os.stat(os.path.join(out, "pair.csv")).st_mode & 0o777 == 0o600


def test_partial(work):
    """What lies where the directory is made."""
    path, out = golden(work), os.path.join(work, "out")
    partial = out + ".partial"
    words = (path, "-o", out, "--as", "csv", "--tables", "pair")
    os.mkdir(partial)
    for name in ("mine.txt", "pair.csv"):
        with open(os.path.join(partial, name), "w") as file:
            file.write("x")
    check(run(*words), 4, "is in the way, and holds more")
    assert sorted(os.listdir(partial)) == ["mine.txt", "pair.csv"] and not os.path.exists(out)
    os.unlink(os.path.join(partial, "mine.txt"))
    lock = os.open(partial, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    check(run(*words), 4, "another upgate is exporting")
    os.close(lock)
    check(run(*words), 0)
    assert os.listdir(out) == ["pair.csv"] and not os.path.exists(partial)
    shutil.rmtree(out)
    os.mkdir(os.path.join(work, "elsewhere"))
    os.symlink(os.path.join(work, "elsewhere"), partial)
    check(run(*words), 4, "is in the way")
    assert os.listdir(os.path.join(work, "elsewhere")) == []


def slow_python(work):
    """Has a DuckDB, it says, and takes for ever to make anything."""
    path = os.path.join(work, "slow")
    with open(path, "w") as file:
        file.write('#!/bin/sh\n[ $# -gt 3 ] && : > "$0.begun" && exec sleep 60\necho 1.0\n')
    os.chmod(path, 0o755)
    return path


def start_slow(work, path, out):
    python = slow_python(work)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(python + ".begun")
    process = subprocess.Popen([UPGATE, "export", path, "-o", out, "--python", python], env=ENV, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while not os.path.exists(python + ".begun"):
        assert time.monotonic() < end and process.poll() is None, "it does not begin"
        time.sleep(0.01)
    return process


def test_killed(work):
    path, out = golden(work), os.path.join(work, "out")
    process = start_slow(work, path, out)
    check(run(path, "-o", out, "--as", "csv"), 4, "another upgate is exporting")
    assert process.poll() is None
    process.kill()
    process.communicate()
    assert not os.path.exists(out) and "gap.csv" in os.listdir(out + ".partial")
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start_slow(work, path, out)
        process.send_signal(number)
        err = process.communicate(timeout=60)[1].decode()
        assert process.returncode == 4 and "ended by a signal; nothing was left" in err, (process.returncode, err)
        check_nothing(out)
    check(run(path, "-o", out, "--as", "csv", "--tables", "pair"), 0)
    assert os.listdir(out) == ["pair.csv"]


def test_full(work):
    path, out = hostile(os.path.join(work, "hostile.db")), os.path.join(work, "out")
    check(run(path, "-o", out, "--as", "csv", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))), 4, "File too large")
    check_nothing(out)
    small = os.path.join(work, "small")
    os.mkdir(small)
    change(path, "UPDATE note SET text = ''")
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=250k", "tmpfs", small], stderr=subprocess.DEVNULL).returncode:
        raise Skip("no tmpfs can be mounted here")
    try:
        check(run(path, "-o", os.path.join(small, "out"), "--as", "csv"), 4, "No space left", "free space")
        assert os.listdir(small) == []
        check(run(golden(work), "-o", small, "--as", "csv"), 2, small, "is a mount point", "a directory in it")  # not when all is written
        assert os.listdir(small) == [] and not os.path.exists(small + ".partial")
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def unstrict(path, table):
    """As a damaged page may make it: a table that holds anything."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, ') STRICT', ')') WHERE name = ?", (table,))
    db.commit()
    db.close()


def test_damaged(work):
    out = os.path.join(work, "out")

    def look(name, *statements, says, loose=None):
        print("     " + name, flush=True)
        path = golden(work, name)
        if loose:
            unstrict(path, loose)
        change(path, *statements)
        check(run(path, "-o", out, "--as", "csv"), 4, says)
        check_nothing(out)

    look("type.db", "UPDATE pair SET seed = 'many' WHERE id = 5", says="of another type", loose="pair")
    look("range.db", "UPDATE launch SET active_ns = 1 << 62 WHERE id = 3", says="out of range")
    look("column.db", "ALTER TABLE note RENAME COLUMN text TO words", says="note.text")
    look("json.db", "INSERT INTO stack (kind, depth, frames) VALUES ('user', 1, '[1,')", says="JSON")
    with open("/proc/self/stat") as file:
        start = int(file.read().rsplit(")", 1)[1].split()[19])
    look("live.db", "UPDATE run SET writer_pid = %d, writer_start = %d" % (os.getpid(), start), says="is being written")
    path = hostile(os.path.join(work, "pages.db"))
    with open(path, "r+b") as file:
        size = os.path.getsize(path) // 4096
        for page in range(40, size, 3):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    check(run(path, "-o", out, "--as", "csv"), 4, "damaged")
    check_nothing(out)


def test_foreign_views(work):
    """A store of somebody else: its views are not run, ours are."""
    path, out = golden(work), os.path.join(work, "out")
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT * FROM n"
    change(path, "DROP VIEW v_cell", "CREATE VIEW v_cell AS " + endless, "DROP VIEW v_pair", "CREATE TABLE v_pair (ratio)",
           "CREATE VIEW v_mine AS " + endless, "DROP VIEW v_ledger")
    check(run(path, "-o", out, "--as", "csv", timeout=30), 0)
    assert "v_mine.csv" not in os.listdir(out)
    sound = golden(work, "sound.db")
    for name in ("v_cell", "v_pair", "v_ledger", "cell"):
        same_csv(sound, out, name)


def test_no_duckdb(work):
    path, out, bare = golden(work), os.path.join(work, "out"), os.path.join(work, "bare")
    with open(bare, "w") as file:
        file.write('#!/bin/sh\nexec "%s" -S "$@"\n' % sys.executable)
    os.chmod(bare, 0o755)
    check(run(path, "-o", out, "--python", bare), 2, "No module named 'duckdb'", "pip install duckdb", "--as csv")
    check(run(path, "-o", out, "--python", os.path.join(work, "none")), 2, "there is no Python", "--as csv")
    for other in ("/bin/false", "/bin/true"):
        check(run(path, "-o", out, "--python", other), 2, "is no Python that works")
    check_nothing(out)
    # What lies where one stands is not imported, nor what PYTHONPATH names.
    with open(os.path.join(work, "duckdb.py"), "w") as file:
        file.write("open('%s/ran', 'w')\n" % work)
    run(path, "-o", out, "--python", bare, cwd=work, env=dict(ENV, PYTHONPATH=work))
    assert not os.path.exists(os.path.join(work, "ran"))


def test_parquet(work):
    python = python_with_duckdb()
    for at, path in enumerate((hostile(os.path.join(work, "hostile.db")), golden(work))):
        out = os.path.join(work, "it's \"%d\"\n" % at)
        done = run(path, "-o", out, "--python", python, "--format", "json")
        check(done, 0)
        same_parquet(python, path, out)
        for table in json.loads(done.stdout)["tables"]:
            assert table["bytes"] == os.path.getsize(os.path.join(out, table["name"] + ".parquet"))


def test_parquet_full(work):
    python, path, out = python_with_duckdb(), hostile(os.path.join(work, "hostile.db")), os.path.join(work, "out")
    check(run(path, "-o", out, "--python", python, "--tables", "run", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))), 4)
    check_nothing(out)


CASES = {name[len("test_"):]: case for name, case in list(globals().items()) if name.startswith("test_")}


def main():
    failed = 0
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory(prefix="upgate-export-") as work:
            try:
                CASES[name](work)
                print("ok   " + name, flush=True)
            except Skip as why:
                print("skip %s: %s" % (name, why), flush=True)
            except (AssertionError, subprocess.SubprocessError) as error:
                failed += 1
                print("FAIL %s: %s" % (name, str(error)[:2000]), flush=True)
    print("%d failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
