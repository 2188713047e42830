#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate stalls` as a user runs it, on recordings made by hand: the answer in the first line, the document
upgate.stalls/1 as the contract says, every form of file, rows kept in the store, and exit codes for what is no store,
no recording, or says nothing. Records nothing, needs no root."""
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("UPGATE_SOURCE", os.getcwd())
UPGATE = os.path.abspath(os.path.join(os.environ.get("UPGATE_BUILD", "build/release"), "upgate"))
ENV = {k: v for k, v in os.environ.items() if not k.startswith("UPGATE_") and k not in ("LC_ALL", "LC_CTYPE")}
ENV["LANG"] = "C.UTF-8"
WORK = tempfile.mkdtemp(prefix="upgate-stalls-")
MS = 1000000
MMAP_WAIT = ["rwsem_down_write_slowpath", "down_write_killable", "vm_mmap_pgoff", "do_syscall_64"]
ROLLUP = ["smaps_account", "smaps_pte_range", "walk_pgd_range", "walk_page_vma", "smap_gather_stats",
          "show_smaps_rollup", "seq_read_iter", "vfs_read", "ksys_read", "do_syscall_64"]
EPOLL = ["schedule_hrtimeout_range", "ep_poll", "do_epoll_wait", "do_syscall_64"]
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what)


class Made:
    """A store made of the schema, with recordings put in by hand."""

    def __init__(self, name):
        self.path = os.path.join(WORK, name)
        self.db = sqlite3.connect(self.path)
        with open(os.path.join(SOURCE, "contracts/schema.sql"), encoding="utf-8") as file:
            self.db.executescript(file.read())
        self.frames = {}

    def add(self, table, **values):
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        return self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values())).lastrowid

    def recording(self, seconds=30, missing=(), **values):
        return self.add("recording", begin_ns=0, end_ns=seconds * 1000 * MS, threshold_ns=MS, sample_hz=199, python=1,
                        target='{"pids": [4121]}', missing=json.dumps(list(missing)), **values)

    def thread(self, recording, pid, tid, comm, cmdline, kind):
        row = self.db.execute("SELECT id FROM process WHERE recording_id = ? AND tgid = ?", (recording, pid)).fetchone()
        process = row[0] if row else self.add("process", recording_id=recording, tgid=pid, start_ns=pid, comm=comm,
                                              cmdline=cmdline, kind=kind)
        return self.add("thread", process_id=process, tid=tid, comm=comm)

    def stack(self, kind, names):
        ids = []
        for name in names:
            if name not in self.frames:
                module = "[kernel]" if kind == "kernel" else "trainer.py"
                self.frames[name] = self.add("frame", name=name, module=module, line=7 if kind == "python" else None)
            ids.append(self.frames[name])
        return self.add("stack", kind=kind, depth=len(ids), frames=json.dumps(ids))

    def done(self):
        self.db.commit()
        self.db.close()
        return self.path


def smaps(made, recording):
    """100 waits of 40 ms for mmap_lock, every 300 ms, while agent.py runs in show_smaps_rollup."""
    victim = made.thread(recording, 4121, 4121, "python3", "/usr/bin/python3 trainer.py", "target")
    worker = made.thread(recording, 4121, 4127, "worker", "/usr/bin/python3 trainer.py", "target")
    agent = made.thread(recording, 4188, 4188, "python3", "/usr/bin/python3 agent.py --pid 4121", "other")
    made.add("thread_total", thread_id=victim, switches=400, short_gaps=300, short_gap_ns=30 * MS, run_ns=25000 * MS)
    made.add("thread_total", thread_id=worker, switches=100, short_gaps=0, short_gap_ns=0, run_ns=5 * MS)
    wait, walk = made.stack("kernel", MMAP_WAIT), made.stack("kernel", ROLLUP)
    epoll, python = made.stack("kernel", EPOLL), made.stack("python", ["allocate", "step", "main"])
    for i in range(100):
        begin = (100 + 300 * i) * MS
        common = {"waking_ns": begin + 39 * MS, "in_ns": begin + 40 * MS, "cpu_out": 0, "cpu_in": 0}
        made.add("gap", thread_id=victim, out_ns=begin, state=0x102, flags=1 << 12, kernel_stack=wait, python_stack=python,
                 waker_thread=agent, waker_stack=walk, owner_thread=agent, lock_kind=2, lock_address=0x1000, syscall_nr=9,
                 **common)
        made.add("lock_wait", thread_id=victim, begin_ns=begin, end_ns=begin + 40 * MS, address=0x1000, kind=2, flags=4,
                 owner_thread=agent, kernel_stack=wait)
        made.add("gap", thread_id=worker, out_ns=begin, state=1, flags=1 << 7, kernel_stack=epoll, syscall_nr=232, **common)
        for tick in range(1, 40, 5):
            made.add("sample", thread_id=agent, at_ns=begin + tick * MS, cpu=1, why=2, kernel_stack=walk)
        made.add("host_fact", recording_id=recording, what=14, begin_ns=begin - MS, end_ns=begin - MS, cpu=1,
                 target_thread=victim, actor_thread=agent, flags=0, value0=1, kernel_stack=None)


def innocent(made, recording):
    """A server that waits for requests: nothing of it is a stall."""
    thread = made.thread(recording, 50, 50, "server", "/usr/bin/server", "target")
    made.add("thread_total", thread_id=thread, switches=60, short_gaps=0, short_gap_ns=0, run_ns=6 * MS)
    epoll = made.stack("kernel", EPOLL)
    for i in range(60):
        begin = 500 * i * MS
        made.add("gap", thread_id=thread, out_ns=begin, waking_ns=begin + 499 * MS, in_ns=begin + 499 * MS + 20000, state=1,
                 flags=1 << 8, kernel_stack=epoll, syscall_nr=232)


def upgate(*arguments, stdout=subprocess.PIPE, **options):
    done = subprocess.run([UPGATE, "stalls", *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=WORK,
                          timeout=120, env=ENV, **options)
    return done.returncode, done.stdout, done.stderr


def made_smaps(name, **values):
    made = Made(name)
    recording = made.recording(**values)
    smaps(made, recording)
    return made


def test_table():
    made_smaps("run.db", missing=["signals: no tracepoint signal_generate on this kernel"]).done()
    code, out, errors = upgate("run.db")
    check(code == 0 and errors == "", "the smaps case: %d %s" % (code, errors))
    first = " ".join(out.split("\n\n")[0].split())
    for word in ("trainer.py (pid 4121) lost 1", "% of 30 s: python3 agent.py (pid 4188)", "smaps_rollup every 300 ms"):
        check(word in first, "no %r in %r" % (word, first))
    for word in ("smaps_read", "/usr/bin/python3 agent.py --pid 4121", "show_smaps_rollup", "allocate", "memory_full_info",
                 "no event was dropped", "signal_generate"):
        check(word in out, "no %r in the table" % word)
    check("\033" not in out and max(map(len, out.splitlines())) <= 100, "the table is not plain text of 100 columns")
    check("epoll" not in out, "an idle wait is told as a stall")


def check_members(item, members, what):
    """members: name -> types; None in types means null is allowed."""
    for name, types in members.items():
        value = item.get(name, "absent")
        good = any(value is None if t is None else isinstance(value, t) and not (t is int and isinstance(value, bool))
                   for t in types)
        check(good, "%s.%s is %r" % (what, name, value))


def test_json():
    code, out, errors = upgate("run.db", "--format", "json")
    check(code == 0 and errors == "", "--format json: %d %s" % (code, errors))
    document = json.loads(out)
    check(document["schema"] == "upgate.stalls/1", "schema %s" % document["schema"])
    check_members(document, {"window_ns": [int], "stalls": [list], "trust": [dict], "recordings": [list]}, "document")
    check_members(document["trust"], {"ok": [bool], "breaches": [list], "missing": [list]}, "trust")
    task = {"pid": [int], "tid": [int], "comm": [str]}
    for rank, stall in enumerate(document["stalls"], 1):
        check(stall["rank"] == rank, "rank %s" % stall["rank"])
        check_members(stall, {"cause": [str], "total_ns": [int], "count": [int], "max_ns": [int], "period_ns": [int, None],
                              "victim": [dict], "culprit": [dict, None], "chain": [list], "advice": [str],
                              "confidence": [float, int]}, "stall")
        check_members(stall["victim"], dict(task, kernel_stack=[list], user_stack=[list], python_stack=[list]), "victim")
        if stall["culprit"]:
            check_members(stall["culprit"], dict(task, cmdline=[str, None], kernel_function=[str, None],
                                                 kernel_stack=[list]), "culprit")
        for link in stall["chain"]:
            check_members(link, {"from": [dict], "to": [dict, None], "via": [str, None]}, "link")
    first = document["stalls"][0]
    check(first["cause"] == "smaps_read" and first["culprit"]["pid"] == 4188, "first: %s" % first)
    check(abs(first["period_ns"] - 300 * MS) < 30 * MS, "period %s" % first["period_ns"])
    check(abs(first["total_ns"] - 4000 * MS) < 400 * MS, "total %s" % first["total_ns"])
    check(first["total_ns"] >= first["max_ns"] > 30 * MS and document["window_ns"] == 30000 * MS, "window or longest")
    check(all("%" not in stall["advice"].replace(" %", "") for stall in document["stalls"]), "a place was not filled")


def test_files():
    for ending, words in (("txt", "trainer.py (pid 4121) lost"), ("md", "## Stalls"), ("json", "upgate.stalls/1"),
                          ("folded", "rwsem_down_write_slowpath")):
        code, out, errors = upgate("run.db", "-o", "out." + ending)
        check(code == 0 and out == "" and errors == "", "-o out.%s: %d %s" % (ending, code, errors))
        with open(os.path.join(WORK, "out." + ending)) as file:
            check(words in file.read(), "no %r in out.%s" % (words, ending))
    code, out, _ = upgate("run.db", "--folded", "off.folded")
    check(code == 0 and "smaps_read" in out, "--folded prints no table")
    with open(os.path.join(WORK, "off.folded")) as file:
        lines = file.read().splitlines()
    check(lines and all(re.fullmatch(r"[^;\s][^;]*(;[^;]+)+ \d+", line) for line in lines), "folded: %s" % lines[:3])
    total = sum(int(line.rsplit(" ", 1)[1]) for line in lines)
    check(abs(total - 8000000) < 100000, "folded stacks have %d us, not 8 s" % total)
    check(upgate("run.db", "-o", "none/out.md")[0] == 4, "-o into nowhere")
    code, _, errors = upgate("run.db", "-o", "out.pdf")
    check(code == 2 and ".folded" in errors, "-o out.pdf: %d %s" % (code, errors))
    with open("/dev/full", "w") as full:
        code, _, errors = upgate("run.db", stdout=full)
        check(code == 4 and "No space left" in errors, "/dev/full: %d %s" % (code, errors))


def rows(path):
    with sqlite3.connect(os.path.join(WORK, path)) as db:
        return db.execute("SELECT cause, total_ns, culprit_pid, culprit_cmdline FROM v_stall ORDER BY rank").fetchall()


def test_rows():
    kept = rows("run.db")
    check(kept and kept[0][0] == "smaps_read" and kept[0][2] == 4188, "v_stall: %s" % kept)
    upgate("run.db")
    check(rows("run.db") == kept, "analysed again, other rows")
    with sqlite3.connect(os.path.join(WORK, "run.db")) as db:
        detail = json.loads(db.execute("SELECT detail FROM stall ORDER BY rank").fetchone()[0])
    check(detail["cause"] == "smaps_read" and detail["victim"]["pid"] == 4121, "detail: %s" % detail)
    made_smaps("dry.db").done()
    code, out, _ = upgate("dry.db", "--dry-run")
    check(code == 0 and out == "" and rows("dry.db") == [], "--dry-run wrote or printed")


def test_store_of_a_live_writer():
    """It cannot be written, and is shown all the same."""
    made = made_smaps("live.db")
    with open("/proc/self/stat") as file:
        start = int(file.read().rpartition(")")[2].split()[19])
    made.add("run", id=1, uuid="u", kind="record", state="running", upgate_version="0", started_wall_ns=1, seed=7, plan="{}",
             command_line="[]", host="{}", host_key="h", writer_pid=os.getpid(), writer_start=start)
    made.done()
    code, out, errors = upgate("live.db")
    check(code == 0 and "agent.py (pid 4188)" in out, "a store being written: %d %s" % (code, errors))
    check(rows("live.db") == [], "rows were written into a store that belongs to another")


def test_innocent():
    made = Made("innocent.db")
    innocent(made, made.recording())
    made.done()
    code, out, errors = upgate("innocent.db")
    check(code == 0 and out.startswith("no stall found: in 30 s nothing held server (pid 50) up"),
          "innocent: %d %s %s" % (code, out, errors))
    document = json.loads(upgate("innocent.db", "--format", "json")[1])
    check(document["stalls"] == [] and document["trust"]["ok"], "innocent: %s" % document)


def test_nothing_can_be_said():
    made = Made("silent.db")
    made.thread(made.recording(), 60, 60, "x", "x", "target")
    made.done()
    for arguments in ((), ("--format", "json")):
        code, out, errors = upgate("silent.db", *arguments)
        check(code == 3 and "nothing can be said" in out, "no events: %d %s %s" % (code, out, errors))
    made = Made("blind.db")
    made.recording()
    made.done()
    check(upgate("blind.db")[0] == 3, "a recording without a thread")


def test_refusals():
    Made("none.db").done()
    with open(os.path.join(WORK, "text.db"), "w") as file:
        file.write("no store, " * 100)
    open(os.path.join(WORK, "empty.db"), "w").close()
    for arguments, words in ((["none.db"], "has no recording"), (["text.db"], "text.db"), (["empty.db"], "empty"),
                             (["missing.db"], "missing.db"), (["run.db", "--recording", "9"], "no such recording; it has 1"),
                             (["run.db", "--side", "c"], "not one of a,b"), (["run.db", "--workload", "x"], "no such recording"),
                             (["run.db", "--top", "0"], "out of range"), ([], "name RUN.db, or --live"),
                             (["run.db", "--recrding", "1"], "did you mean '--recording'?")):
        code, out, errors = upgate(*arguments)
        check(code == 2 and out == "" and words in errors and errors.count("\n") == 1,
              "%s: %d %r %r" % (arguments, code, out, errors))


def test_sides():
    """The traced launches of both sides of an `upgate ab`."""
    made = Made("ab.db")
    for side, name in ((0, "torch-1.13"), (1, "torch-2.x")):
        made.add("side", id=side, name=name, config="{}")
    workload = made.add("workload", name="dlrm-train", mode="train")
    pair = made.add("pair", workload_id=workload, idx=3, phase="traced", seed=1, first_side=0, interleave="launches",
                    state="valid", started_ns=0, ended_ns=1)
    for side in (0, 1):
        launch = made.add("launch", pair_id=pair, side=side, state="ok", started_ns=0, ended_ns=1, active_ns=1, covariates="{}")
        (smaps if side else innocent)(made, made.recording(launch_id=launch))
    made.done()
    code, out, errors = upgate("ab.db")
    check(code == 0 and errors == "", "ab: %d %s" % (code, errors))
    check(out.startswith("Worst of 2 recordings, dlrm-train, candidate (torch-2.x), pair 3"), out[:100])
    for words in ("dlrm-train, baseline (torch-1.13), pair 3, recording 1\nno stall found", "agent.py (pid 4188)"):
        check(words in out, "no %r in the table of both sides" % words)
    code, out, _ = upgate("ab.db", "--side", "b", "--pair", "3", "--format", "json")
    document = json.loads(out)
    check(code == 0 and document["recording"] == 2 and document["stalls"], "--side b: %s" % out[:200])
    check([(r["id"], r["workload"], r["side"], r["pair"]) for r in document["recordings"]]
          == [(1, "dlrm-train", "a", 3), (2, "dlrm-train", "b", 3)], "recordings: %s" % document["recordings"])
    code, out, errors = upgate("ab.db", "--format", "json")
    check(code == 0 and json.loads(out)["recording"] == 1 and "2 recordings" in errors, "several: %s" % errors)
    check(upgate("ab.db", "--workload", "dlrm")[0] == 2, "a workload that is none")


def test_sentences_are_of_causes():
    """Each sentence of the renderer belongs to a cause that the analysis can give."""
    with open(os.path.join(SOURCE, "reports/render/stalls/stalls_text.c")) as file:
        phrases = re.search(r"\} text_phrases\[\] = \{\n(.*?)\n\};", file.read(), re.S)
    said = re.findall(r'^ +\{"([a-z_]+)",', phrases.group(1) if phrases else "", re.M)
    with open(os.path.join(SOURCE, "docs/stall-causes.md")) as file:
        known = set(re.findall(r"^\| `([a-z_]+)` \|", file.read(), re.M))
    check(len(said) > 20 and set(said) <= known, "no such cause: %s" % (set(said) - known))


def main():
    if not os.access(UPGATE, os.X_OK) or subprocess.run([UPGATE, "help", "stalls"], capture_output=True).returncode:
        print("skipped: this build has no `upgate stalls`")
        return 77
    for name, test in [(n, t) for n, t in globals().items() if n.startswith("test_")]:
        before = len(failures)
        test()
        print("%s %s" % ("ok  " if len(failures) == before else "FAIL", name))
    return 1 if failures else 0


sys.exit(main())
