#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The traced launches of `upgate ab`: both sides are recorded once the verdict stands, and whatever becomes of
that (Ctrl-C, kill -9, no permission) changes neither the verdict nor the rest of the run. Without capture in the
build, or on a kernel that forbids it, only what is said about it is tested, and the rest is skipped."""
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import time

SOURCE = os.environ["UPGATE_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "e2e"))
sys.dont_write_bytecode = True

import ab_rig
from ab_rig import Skip, as_nobody, check_code, check_judged, check_says

MODEL = {"model": "dlrm", "steps": 60, "size": "small"}
WAIT_S = 60


def skip_without_capture(done):
    for line in done.err.splitlines():
        if "launches are not traced" in line:
            raise Skip(line)


def traced_pairs(case):
    return case.value("SELECT count(*) FROM pair WHERE phase = 'traced'")


def verdict(case):
    return case.rows("SELECT verdict, reason FROM verdict") + case.rows(
        "SELECT workload, metric, ratio, pairs, verdict FROM cell ORDER BY id")


def test_both_sides_are_recorded(case):
    case.plan(MODEL, traced_launches=1)
    done = case.run()
    check_judged(case, done)
    skip_without_capture(done)
    assert traced_pairs(case) == 1, done
    recordings = case.rows(
        "SELECT l.side, r.end_ns IS NOT NULL, (SELECT count(*) FROM v_off_cpu g WHERE g.recording = r.id), "
        "(SELECT count(*) FROM v_sample s WHERE s.recording = r.id) FROM recording r "
        "JOIN launch l ON l.id = r.launch_id JOIN pair p ON p.id = l.pair_id AND p.phase = 'traced' ORDER BY l.side")
    assert [row[:2] for row in recordings] == [(0, 1), (1, 1)], "%s\n%s" % (recordings, done)
    # Every turn of the other side is a stay off the CPU: there are gaps whatever the machine does.
    assert all(gaps > 0 for _, _, gaps, _ in recordings), recordings
    targets = case.rows("SELECT p.recording_id, count(*) FROM process p WHERE p.kind = 'target' GROUP BY 1")
    assert len(targets) == 2, targets
    assert case.rows("SELECT text FROM note WHERE text LIKE '%a traced step took % times as long as an untraced one%'"), case.rows("SELECT text FROM note")
    # Phases one by one of the traced launches alone, each within a step; of every launch which process made the steps.
    assert case.rows("SELECT DISTINCT p.phase FROM phase_span s JOIN launch l ON l.id = s.launch_id JOIN pair p ON p.id = l.pair_id") == [
        ("traced",)]
    assert case.value("SELECT count(*) FROM phase_span s WHERE NOT EXISTS (SELECT 1 FROM step t WHERE t.launch_id = s.launch_id AND "
                      "t.rank = s.rank AND t.begin_ns <= s.begin_ns AND s.begin_ns + s.dur_ns <= t.begin_ns + t.dur_ns)") == 0
    sums = case.rows("SELECT p.launch_id, p.name, p.total_ns, sum(s.dur_ns), p.count, count(*) FROM step_phase p JOIN phase_span s "
                     "USING (launch_id, rank, name) GROUP BY p.launch_id, p.rank, p.name")
    assert len(sums) == 8 and all(row[2] == row[3] and row[4] == row[5] for row in sums), sums
    assert case.value("SELECT count(*) FROM launch l WHERE l.state = 'ok' AND NOT EXISTS (SELECT 1 FROM launch_rank r WHERE "
                      "r.launch_id = l.id AND r.pid > 0)") == 0
    # What each traced launch held in memory, and no other launch: files, the heap, all of it no more than the peak.
    held = case.rows("SELECT side, count(*), sum(resident_bytes), max(peak_memory_bytes), sum(name LIKE 'libc.so%' OR name LIKE 'libc-%'), "
                     "sum(kind = 'anonymous') FROM v_memory GROUP BY launch ORDER BY side")
    assert [row[0] for row in held] == ["a", "b"], held
    assert all(rows > 4 and resident > 1 << 20 and libc and anonymous for _, rows, resident, _, libc, anonymous in held), held
    # A launch that was too short to be watched has no peak.
    assert all(peak is None or peak / 2 < resident < 1.1 * peak for _, _, resident, peak, _, _ in held), held
    assert case.value("SELECT count(*) FROM launch_memory m JOIN launch l ON l.id = m.launch_id JOIN pair p ON p.id = l.pair_id "
                      "WHERE p.phase <> 'traced'") == 0
    # The run took as long as all its launches, the traced ones included; gone on with below, it takes no longer.
    took = "SELECT ended_wall_ns - started_wall_ns FROM run"
    took_ns = case.value(took)
    assert took_ns >= case.value("SELECT max(ended_ns) - min(started_ns) FROM pair"), took_ns
    before = verdict(case)
    stalls = case.run("stalls", case.db_path)
    check_code(stalls, 0)
    check_says(stalls, "old", "new")
    # Judged again, and gone on with: the same verdict, and no further traced launch.
    check_code(case.run("gate", case.db_path), done.code)
    check_code(case.resume(), done.code)
    assert verdict(case) == before
    assert traced_pairs(case) == 1
    assert case.value(took) == took_ns


PLANTED_MEMORY = """
import mmap, os, time
def works(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
def fills(bytes):
    memory = mmap.mmap(-1, bytes + 1, mmap.MAP_PRIVATE)
    for at in range(0, bytes, 4096):
        memory[at] = 1
    return memory
def reads(bytes):
    with open(os.environ["PLANT_FILE"], "rb") as handle:
        data = mmap.mmap(handle.fileno(), bytes, prot=mmap.PROT_READ)
    sum(data[at] for at in range(0, bytes, 4096))
    return data
anonymous, file = (int(os.environ[name]) << 20 for name in ("ANONYMOUS_MIB", "FILE_MIB"))
time.sleep(1.5) # until the recorder has found the interpreter: 0.15 s were too few on a loaded machine
works(0.15)
fills(anonymous // 4).close() # gone before the peak
kept = fills(anonymous), reads(file)
works(0.3)
"""


def plan_memory(case, anonymous, file):
    """Two programs that hold these many MiB of anonymous memory and of a file."""
    side = {}
    for i, name in enumerate(("baseline", "candidate")):
        library = case.write("libplant.so.%d.0" % (i + 1), "x" * (64 << 20))
        side[name] = {"env": {"ANONYMOUS_MIB": str(anonymous[i]), "FILE_MIB": str(file[i]), "PLANT_FILE": library}}
    case.plan({"command": [sys.executable, "-c", PLANTED_MEMORY]}, traced_launches=2,
              gate={"metrics": {"peak_memory": {"margin": "5%"}, "total_time": {"observe": True}, "cpu_time": {"observe": True}},
                    "calibrate": "auto"}, **side)


def memory_of(case):
    done = case.run("diff", case.db_path, "--format", "json")
    check_code(done, 0, 4)
    workload, = json.loads(done.out)["workloads"]
    return workload.get("memory")


def test_planted_memory_is_named_first(case):
    plan_memory(case, (20, 84), (8, 40))
    done = case.run()
    skip_without_capture(done)
    check_code(done, 1)
    memory = memory_of(case)
    assert memory and memory["failed"], case.rows("SELECT * FROM cell")
    told = [(part["kind"], part["name"]) for part in memory["parts"] if part["told"]]
    assert told == [("anonymous", ""), ("file", "libplant.so")], "%s\n%s" % (memory, done)
    for part, mib in zip(memory["parts"], (64, 32)):
        assert abs(part["delta_bytes"] - (mib << 20)) < 4 << 20, part
    # Who touched it first, without what the candidate gave back. Of a launch of the baseline, whose interpreter may be found too late, it may be
    # nobody: some 12 MiB.
    code = {touch["caller"]: touch["delta_bytes"] / (1 << 20) for touch in memory["touched"] if touch["told"]}
    assert set(code) == {"fills", "reads"} and abs(code["fills"] - 64) < 24 and abs(code["reads"] - 32) < 12, (code, memory["touched"][:6])
    said = " ".join(done.out.split())  # at the end of `upgate ab`, before the step that only got longer
    assert -1 < said.find("w0: peak memory") < said.find("w0: launch"), done
    assert re.search(r"anonymous memory \+6\d\.\d MiB, libplant\.so \+[23]\d\.\d MiB", said), done
    html = case.path("report.html")
    check_code(case.run("report", case.db_path, "-o", html), 0, 1)
    check_code(case.run("report", case.db_path, "-o", case.path("report.md")), 0, 1)
    assert "libplant.so +" in open(case.path("report.md")).read().replace("\\", "")


def test_the_same_memory_says_nothing(case):
    plan_memory(case, (20, 20), (8, 8))
    done = case.run()
    skip_without_capture(done)
    assert case.value("SELECT count(DISTINCT launch_id) FROM launch_memory") == 4, done
    assert memory_of(case) is None, done
    assert "anonymous memory" not in done.out


def start_and_wait_until_it_traces(case):
    """The verdict stands and the process lives on: it traces. There is enough to trace for a minute."""
    case.plan(MODEL, traced_launches=100)
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            db = sqlite3.connect("file:%s?mode=ro" % case.db_path, uri=True, timeout=0)
            traces = db.execute("SELECT 1 FROM run WHERE state = 'done' AND writer_pid IS NOT NULL").fetchall()
            db.close()
            if traces:
                return process
        except sqlite3.OperationalError:
            pass  # not there yet, or locked by a commit
        if process.poll() is not None:
            skip_without_capture(case.finish(process))
            raise AssertionError("it ended before it traced")
        time.sleep(0.01)
    raise AssertionError("it did not trace within %d s" % WAIT_S)


def check_stands(case):
    assert case.value("SELECT state FROM run") == "done"
    assert case.pairs() == case.pairs_wanted
    assert len(verdict(case)) > 1
    whole = case.rows("SELECT count(*) FROM recording WHERE launch_id IS NULL OR end_ns IS NULL")
    assert whole == [(0,)], whole
    check_code(case.run("gate", case.db_path), 0, 3)


def test_interrupted_while_it_traces(case):
    process = start_and_wait_until_it_traces(case)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    done = case.finish(process)
    skip_without_capture(done)
    check_code(done, 0, 3)
    check_says(done, "the verdict stands")
    assert traced_pairs(case) < 100
    assert case.value("SELECT writer_pid FROM run") is None
    check_stands(case)


def capabilities(task):
    """(effective, can gain no others) of a thread; None: it has ended."""
    try:
        with open("%s/status" % task) as file:
            fields = dict(line.split(":", 1) for line in file)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields["CapEff"], 16), fields["NoNewPrivs"].strip() == "1"


def test_a_recorder_gives_up_what_attaching_took(case):
    """Its thread, and no other of the process."""
    kept = sum(1 << number for number in (1, 2, 19, 34, 38, 39, 40))  # privileges.c
    process = start_and_wait_until_it_traces(case)
    own = capabilities("/proc/%d" % process.pid)
    deadline, sealed = time.monotonic() + WAIT_S, []
    while not sealed and process.poll() is None and time.monotonic() < deadline:
        told = [capabilities("/proc/%d/task/%s" % (process.pid, tid)) for tid in os.listdir("/proc/%d/task" % process.pid)]
        sealed = [effective for effective, seals in filter(None, told) if seals]
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    done = case.finish(process)
    skip_without_capture(done)
    assert own == (capabilities("/proc/self")[0], False), own
    assert sealed and not any(effective & ~kept for effective in sealed) and all(effective & 1 << 19 for effective in sealed), (
        "%s\n%s" % ([hex(effective) for effective in sealed], done))
    check_stands(case)


def test_killed_while_it_traces(case):
    for wait_s in (0.05, 0.4, 0.9):  # while a recorder attaches, while steps are made, while a pair is stored
        process = start_and_wait_until_it_traces(case)
        time.sleep(wait_s)
        if process.poll() is not None:
            skip_without_capture(case.finish(process))
        process.kill()
        case.finish(process)  # nothing of it lives or is frozen
        check_stands(case)
        os.unlink(case.db_path)


def test_without_permission(case):
    """The verdict comes as ever, and one line says why nothing was recorded."""
    case.plan(MODEL, traced_launches=2)
    shutil.copytree(case.env["UPGATE_STATE_DIR"], case.path("certificates"))
    done = case.run(env={"UPGATE_STATE_DIR": case.path("certificates")}, command=as_nobody(case))
    check_code(done, 0, 3)
    said = [line for line in done.err.splitlines() if "launches are not traced" in line]
    assert len(said) == 1, str(done)
    assert case.value("SELECT state FROM run") == "done" and case.pairs() == case.pairs_wanted
    assert traced_pairs(case) == 0
    assert case.value("SELECT count(*) FROM note WHERE text LIKE 'launches are not traced%'") == 1


if __name__ == "__main__":
    ab_rig.main(globals())
