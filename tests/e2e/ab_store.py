#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The store of `upgate ab` where it cannot be written: full disk, read-only, locked, held by another
upgate, damaged, foreign, of another version. Words and exit code of each; what was committed stays readable,
and --resume goes on with it."""
import json
import os
import shutil
import sqlite3
import subprocess
import time

import ab_rig
from ab_rig import SH, WORK, check_code, check_judged, check_says, mount_tmpfs

COMMAND = {"command": [SH, "-c", WORK]}
SLOW = {"command": [SH, "-c", "sleep 0.3; " + WORK]}


def earlier(case):
    """Everything about the pairs there are, byte by byte."""
    tables = {"pair": "id", "launch": "id", "block": "pair_id, couple, side", "step": "launch_id, rank, idx",
              "loss": "launch_id, rank, step", "tensor": "launch_id, rank, step, name"}
    return {table: case.rows("SELECT * FROM %s ORDER BY %s" % (table, order)) for table, order in tables.items()}


def check_kept(case, before):
    """--resume has added pairs and changed none."""
    after = earlier(case)
    for table, rows in before.items():
        left = set(rows) - set(after[table])
        assert not left, "%d rows of %s changed on --resume" % (len(left), table)


def start_until_pairs(case, pairs):
    """A run in the background that has stored some pairs."""
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_pairs(case, pairs)
    return process


def wait_until_one_has_ended(both):
    """Of two that want the same store one is refused, and the other is at work by then."""
    deadline = time.monotonic() + 90
    while all(process.poll() is None for process in both):
        assert time.monotonic() < deadline, "both went on"
        time.sleep(0.01)


def wait_for_pairs(case, pairs, phase="%"):
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            db = sqlite3.connect("file:%s?mode=ro" % case.db_path, uri=True, timeout=0)
            count = db.execute("SELECT count(*) FROM pair WHERE phase LIKE ?", (phase,)).fetchone()[0]
            db.close()
            if count >= pairs:
                return
        except sqlite3.OperationalError:
            pass  # not there yet, or locked by a commit
        time.sleep(0.02)
    raise AssertionError("no pair was stored")


def test_disk_full(case):
    where = mount_tmpfs(case, "small", "size=452k")
    case.db_path = os.path.join(where, "run.db")
    case.plan({"model": "dlrm", "steps": 30, "size": "small"}, looks=[20])
    done = case.run()
    check_code(done, 4)
    check_says(done, case.db_path, "the disk is full", "free space and go on with --resume")
    kept = case.pairs()
    assert 0 < kept < 20
    before = earlier(case)
    subprocess.run(["mount", "-o", "remount,size=32m", where], check=True)
    done = case.resume()
    check_judged(case, done)
    check_kept(case, before)


def test_disk_full_from_the_start(case):
    where = mount_tmpfs(case, "small", "size=32k")
    case.db_path = os.path.join(where, "run.db")
    case.plan(COMMAND)
    done = case.run()
    check_code(done, 4)
    check_says(done, "the disk is full; free space and start again")
    assert "--resume" not in done.err, str(done)  # there is nothing yet to go on with
    subprocess.run(["mount", "-o", "remount,size=32m", where], check=True)
    check_judged(case, case.run())


def test_disk_full_at_every_size(case):
    """Wherever in a pair's transaction the room ends: exit 4, whole pairs, and --resume goes on."""
    where = mount_tmpfs(case, "small", "size=280k")
    case.db_path = os.path.join(where, "run.db")
    case.plan({"model": "dlrm", "steps": 30, "size": "small"}, looks=[20])
    done = case.run()
    seen = set()
    for size in range(303, 579, 23):
        check_code(done, 4)
        check_says(done, "the disk is full")
        subprocess.run(["mount", "-o", "remount,size=%dk" % size, where], check=True)
        begun = os.path.getsize(case.db_path) and case.rows("SELECT name FROM sqlite_master WHERE name = 'verdict'")
        if begun and case.value("SELECT count(*) FROM run"):
            before = earlier(case)
            seen.add(case.pairs())
            done = case.resume()
            check_kept(case, before)
        else:
            done = case.run()
    assert len(seen) >= 3, seen


def test_read_only_directory(case):
    where = mount_tmpfs(case, "fixed", "ro")
    case.db_path = os.path.join(where, "run.db")
    case.plan(COMMAND)
    done = case.run()
    check_code(done, 4)
    check_says(done, case.db_path, "does the directory exist, and may you read and write it?")


def test_read_only_store(case):
    where = mount_tmpfs(case, "fixed", "size=8m")
    case.db_path = os.path.join(where, "run.db")
    case.plan(COMMAND)
    check_judged(case, case.run())
    subprocess.run(["mount", "-o", "remount,ro", where], check=True)
    for verb in (["ab", "--resume", case.db_path], ["gate", case.db_path]):
        done = case.run(*verb)
        check_code(done, 4)
        check_says(done, case.db_path, "read-only")
    assert case.pairs() == 3


def test_no_directory(case):
    case.plan(COMMAND)
    for path in (case.path("none", "run.db"), case.dir):
        done = case.run("ab", case.plan_path, "-o", path)
        check_code(done, 4)
        check_says(done, path)


def test_locked_before_and_while_it_runs(case):
    """One process holds the store: refused in words after some seconds; a run ends with what it has."""
    case.plan(SLOW, looks=[30])
    process = start_until_pairs(case, 1)
    lock = sqlite3.connect(case.db_path, timeout=5, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    second = case.start("ab", "--resume", case.db_path)
    for done in (case.finish(process, clean=False), case.finish(second, clean=False)):
        check_code(done, 4)
        check_says(done, case.db_path, "the database is locked; another upgate run or sqlite3 may hold it")
    lock.execute("ROLLBACK")
    lock.close()
    case.check_clean()
    before = earlier(case)
    assert before["pair"]
    case.write("x", "")
    process = case.start("ab", "--resume", case.db_path)
    wait_for_pairs(case, len(before["pair"]) + 1)
    process.terminate()
    check_code(case.finish(process), 3)
    check_kept(case, before)


def test_read_while_it_runs(case):
    """Somebody looks into the store all the time: the run does not notice."""
    case.plan(COMMAND, looks=[8])
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    looks = 0
    while process.poll() is None:
        try:
            db = sqlite3.connect("file:%s?mode=ro" % case.db_path, uri=True, timeout=0.5)
            looks += len(db.execute("SELECT * FROM v_launch").fetchall()) > 0
            db.close()
        except sqlite3.OperationalError:
            pass
        time.sleep(0.001)
    check_judged(case, case.finish(process))
    assert looks > 0 and case.pairs() == 8


def test_second_upgate_is_refused(case):
    case.plan(SLOW, looks=[30])
    process = start_until_pairs(case, 1)
    for verb in (["ab", "--resume", case.db_path], ["gate", case.db_path]):
        done = case.run(*verb, clean=False)
        check_code(done, 4)
        check_says(done, case.db_path, "being written by another upgate that is still alive")
    process.terminate()
    check_code(case.finish(process), 3)


def test_two_resumes_at_once(case):
    case.plan(SLOW, looks=[10])  # more than three rounds can make: two that find it finished both end well
    process = start_until_pairs(case, 1)
    process.kill()
    process.communicate()
    case.check_clean()
    for _ in range(3):
        both = [case.start("ab", "--resume", case.db_path) for _ in range(2)]
        wait_until_one_has_ended(both)
        for process in both:
            process.terminate()
        codes = sorted(case.finish(process, clean=False).code for process in both)
        assert codes in ([0, 4], [3, 4]), "both went on, or none: %s" % codes
    check_judged(case, case.resume())
    indices = case.rows("SELECT idx FROM pair ORDER BY idx")
    assert indices == [(i,) for i in range(10)], indices


def test_a_dead_writer_that_nobody_waited_for(case):
    """A killed upgate stays a zombie under a parent that does not wait, as in many containers."""
    case.plan(SLOW, looks=[3])
    process = start_until_pairs(case, 1)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is dead, and stays a zombie
    case.pids.remove(process.pid)
    check_judged(case, case.resume())
    process.communicate()


def test_two_runs_into_one_store_at_once(case):
    case.plan(SLOW, looks=[30])
    for _ in range(3):
        both = [case.start("ab", case.plan_path, "-o", case.db_path) for _ in range(2)]
        wait_until_one_has_ended(both)
        for process in both:
            process.terminate()
        done = [case.finish(process, clean=False) for process in both]
        codes = sorted(one.code for one in done)
        assert codes in ([2, 3], [3, 4]), "%s\n%s" % (done[0], done[1])
        assert case.value("SELECT count(*) FROM run") == 1
        os.unlink(case.db_path)


def test_names_that_look_like_something_else(case):
    case.plan(COMMAND)
    for name in ("run ?mode=memory#%20.db", "file:run.db", "'; DROP TABLE run; --", "r\u00fcn\n.db"):
        case.db_path = case.path(name)
        check_judged(case, case.run("ab", case.plan_path, "-o", "./" + name))
        assert os.path.getsize(case.db_path) > 0


def test_store_deleted_while_it_runs(case):
    """What was recorded is gone: that is no verdict."""
    case.plan(SLOW, looks=[8])
    process = start_until_pairs(case, 1)
    os.unlink(case.db_path)
    done = case.finish(process)
    check_code(done, 4)
    check_says(done, case.db_path)


def test_file_size_limit(case):
    """ulimit -f: an error in words and not a signal."""
    case.plan({"model": "dlrm", "steps": 30, "size": "small"}, looks=[20])
    for size in (4096, 378000, 408000):
        done = case.run(command=["prlimit", "--fsize=%d" % size])
        check_code(done, 4)
        check_says(done, case.db_path if size == 4096 else "/dev/shm/upgate-")
        assert "Success" not in done.err, str(done)
        os.unlink(case.db_path)


def test_what_resume_does_not_take(case):
    case.plan(COMMAND)
    check_judged(case, case.run())
    for more in ([case.plan_path], ["-o", "other.db"], ["--steps", "5"], ["--seed", "3"], ["--aa"], ["-a", "x"],
                 ["--", "true"]):
        done = case.run("ab", "--resume", case.db_path, *more)
        check_code(done, 2)
        check_says(done, "--resume takes everything from the store")
    before = earlier(case)
    done = case.run("ab", "--resume", case.db_path, "--dry-run")
    check_code(done, 0)
    check_says(done, '"workloads"')
    assert earlier(case) == before


def test_resume_of_another_command(case):
    """A script that it names was edited, or lies elsewhere: its pairs say nothing of those that are there. What it writes is its own."""
    script = "#!/bin/sh\n" + WORK + "\ndate +%N | tee log.txt >out.yaml\n"
    case.write("work.sh", script)
    case.write("log.txt", "nothing yet\n")
    case.write("out.yaml", "nothing yet\n")
    os.makedirs(case.path("other"))
    case.plan({"command": [SH, "work.sh", "log.txt", "--save=out.yaml"]})
    check_judged(case, case.run())
    check_judged(case, case.resume())
    case.write("work.sh", script + "sleep 0.01\n")
    edited = case.resume()
    os.unlink(case.path("work.sh"))
    gone = case.resume()
    case.write("work.sh", script)
    elsewhere = case.resume(command=["env", "-C", case.path("other")])
    for done, says in ((edited, "work.sh' was changed"), (gone, "work.sh' is not there any more"), (elsewhere, "it was started in the directory")):
        check_code(done, 4)
        check_says(done, says, "or start a new run", "upgate gate " + case.db_path)
    check_judged(case, case.resume())


def test_newer_version(case):
    case.plan(COMMAND)
    check_judged(case, case.run())
    db = sqlite3.connect(case.db_path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    for verb in (["ab", "--resume", case.db_path], ["gate", case.db_path],
                 ["report", case.db_path, "-o", case.path("r.md")]):
        done = case.run(*verb)
        check_code(done, 2)
        check_says(done, case.db_path, "store version 99", "use a newer upgate")


def test_a_store_of_version_4_is_resumed_and_judged(case):
    """Its blocks know nothing of the machine and stay so; pairs that follow do, where this machine tells."""
    case.plan({"model": "dlrm", "steps": 60, "size": "small"}, interleave="steps")
    check_judged(case, case.run())
    db = sqlite3.connect(case.db_path)
    columns = "pair_id, couple, side, ran_first, first_step, steps, begin_ns, active_ns"
    views = [name for name, in db.execute("SELECT name FROM sqlite_master WHERE type = 'view' AND sql LIKE '%machine_ns%'")]
    assert views
    db.executescript("".join("DROP VIEW %s;" % name for name in views) +
                     "CREATE TABLE old (pair_id INTEGER NOT NULL REFERENCES pair (id), couple INTEGER NOT NULL, side INTEGER "
                     "NOT NULL, ran_first INTEGER NOT NULL, first_step INTEGER, steps INTEGER, begin_ns INTEGER NOT NULL, "
                     "active_ns INTEGER NOT NULL, PRIMARY KEY (pair_id, couple, side)) STRICT, WITHOUT ROWID;"
                     "INSERT INTO old SELECT %s FROM block; DROP TABLE block; ALTER TABLE old RENAME TO block;"
                     "PRAGMA user_version = 4" % columns)
    db.close()
    bytes_before = open(case.db_path, "rb").read()
    check_code(case.run("report", case.db_path, "-o", case.path("r.md")), 0)
    assert open(case.db_path, "rb").read() == bytes_before, "a reader wrote to it"
    db = sqlite3.connect(case.db_path)
    db.executescript("DELETE FROM verdict; UPDATE run SET state = 'interrupted'; PRAGMA foreign_keys = OFF;")
    last, = db.execute("SELECT max(id) FROM pair WHERE phase = 'main'").fetchone()
    for table, key in (("step", "launch_id"), ("loss", "launch_id"), ("tensor", "launch_id"), ("launch_metric", "launch_id")):
        db.execute("DELETE FROM %s WHERE %s IN (SELECT id FROM launch WHERE pair_id = ?)" % (table, key), (last,))
    for table in ("step_phase", "launch_value", "launch_rank", "ledger"):
        db.execute("DELETE FROM %s WHERE launch_id IN (SELECT id FROM launch WHERE pair_id = ?)" % table, (last,))
    for table in ("block", "launch", "pair_ratio"):
        db.execute("DELETE FROM %s WHERE pair_id = ?" % table, (last,))
    db.execute("DELETE FROM pair WHERE id = ?", (last,))
    kept, = db.execute("SELECT count(*) FROM block").fetchone()
    db.commit()
    db.close()
    check_judged(case, case.resume())
    assert case.value("PRAGMA user_version") == 12
    assert case.value("SELECT count(*) FROM block WHERE pair_id < ? AND wait_ns IS NULL AND machine_ns IS NULL", last) == kept
    blocks, told = case.rows("SELECT count(*), count(wait_ns) FROM block WHERE pair_id >= ?", last)[0]
    assert blocks > 0 and told == (blocks if os.path.exists("/proc/self/schedstat") else 0), (blocks, told)


def test_existing_store_is_not_overwritten(case):
    case.plan(COMMAND)
    check_judged(case, case.run())
    before = open(case.db_path, "rb").read()
    done = case.run()
    check_code(done, 2)
    check_says(done, "exists already", "upgate ab --resume %s" % case.db_path)
    assert open(case.db_path, "rb").read() == before


def test_foreign_files(case):
    case.plan(COMMAND)
    db = sqlite3.connect(case.path("other.db"))
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.commit()
    db.close()
    case.write("text.db", "dear diary\n" * 200)
    for name in ("other.db", "text.db"):
        path = case.path(name)
        before = open(path, "rb").read()
        for verb in (["ab", case.plan_path, "-o", path], ["ab", "--resume", path], ["gate", path]):
            done = case.run(*verb)
            check_code(done, 2)
            check_says(done, path)
        assert open(path, "rb").read() == before, "%s was changed" % name


def test_empty_and_missing_files(case):
    case.plan(COMMAND)
    case.write("run.db", "")
    for verb in ("--resume", "gate"):
        done = case.run(*(["ab", verb] if verb == "--resume" else [verb]), case.db_path)
        check_code(done, 2)
        check_says(done, case.db_path, "empty")
    done = case.run("ab", "--resume", case.path("none.db"))
    check_code(done, 2)
    check_says(done, "none.db", "No such file")
    check_judged(case, case.run())


def test_created_and_killed_before_the_run_was_in_it(case):
    case.plan(COMMAND)
    with open(os.path.join(ab_rig.SOURCE, "contracts/schema.sql")) as file:
        sqlite3.connect(case.db_path).executescript(file.read()).connection.close()
    done = case.resume()
    check_code(done, 2)
    check_says(done, "holds no run", "upgate ab PLAN.yaml -o")
    done = case.run("gate", case.db_path)
    assert done.code in (2, 3), str(done)
    check_judged(case, case.run())


def test_damaged_stores(case):
    """Cut off or overwritten somewhere: an error or a verdict that is no pass, never a crash."""
    case.plan({"model": "dlrm", "steps": 30, "size": "small"})
    check_judged(case, case.run())
    shutil.copy(case.db_path, case.path("whole.db"))
    size = os.path.getsize(case.db_path)
    for cut in (100, 5000, size // 2, size - 4096):
        shutil.copy(case.path("whole.db"), case.db_path)
        os.truncate(case.db_path, cut)
        for verb in (["ab", "--resume", case.db_path], ["gate", case.db_path]):
            done = case.run(*verb)
            check_code(done, 2, 4)
            check_says(done, case.db_path)
    for at in range(4096, size, max(4096, size // 12 // 4096 * 4096)):
        shutil.copy(case.path("whole.db"), case.db_path)
        with open(case.db_path, "r+b") as file:
            file.seek(at + 200)
            file.write(b"\xa5" * 1500)
        done = case.run("gate", case.db_path)
        assert done.code in (0, 1, 2, 3, 4), str(done)
    shutil.copy(case.path("whole.db"), case.db_path)
    db = sqlite3.connect(case.db_path)
    db.execute("UPDATE run SET plan = '{\"baseline\": '")
    db.commit()
    db.close()
    done = case.resume()
    check_code(done, 2)
    check_says(done, "the plan", "damaged")


def test_resume_of_a_finished_run(case):
    case.plan(COMMAND)
    first = case.run()
    check_judged(case, first)
    before = earlier(case)
    check_judged(case, case.resume())
    assert earlier(case) == before


def test_resume_on_another_machine(case):
    """Its pairs would say nothing of those that are there. What is there can be judged everywhere."""
    case.plan(COMMAND)
    check_judged(case, case.run())
    before = earlier(case)
    db = sqlite3.connect(case.db_path)
    host = json.loads(db.execute("SELECT host FROM run").fetchone()[0])
    db.execute("UPDATE run SET host = ?", (json.dumps(dict(host, kernel="0.0")),))
    db.commit()
    db.close()
    done = case.resume()
    check_code(done, 4)
    check_says(done, "this machine differs from the one on which the run", "kernel %s, was 0.0" % host["kernel"], "upgate gate")
    assert earlier(case) == before and case.value("SELECT state FROM run") == "done"
    check_code(case.run("gate", case.db_path), 0, 3)


def test_a_missing_arm_never_passes(case):
    """Pairs, launches or everything deleted: the gate has less, and says so."""
    case.plan(COMMAND)
    check_judged(case, case.run())
    shutil.copy(case.db_path, case.path("whole.db"))
    for sql in ("DELETE FROM launch WHERE side = 1", "DELETE FROM launch WHERE side = 0", "DELETE FROM launch",
                "DELETE FROM pair", "UPDATE pair SET state = 'void', reason = 'x'", "UPDATE launch SET cpu_ns = NULL",
                "UPDATE launch SET cpu_ns = NULL WHERE side = 1", "DELETE FROM workload"):
        shutil.copy(case.path("whole.db"), case.db_path)
        db = sqlite3.connect(case.db_path)
        db.execute(sql)
        db.commit()
        db.close()
        done = case.run("gate", case.db_path)
        assert done.code not in (0, 1) or "= 1" in sql and done.code == 1, "%s\n%s" % (sql, done)
        bisect = case.run("gate", case.db_path, "--bisect")
        assert bisect.code == {2: 2, 3: 125, 4: 125}.get(done.code, done.code), str(bisect)


if __name__ == "__main__":
    ab_rig.main(globals())
