# SPDX-License-Identifier: Apache-2.0
"""One kill of the matrix (kill.py): starts `upgate ab` in a mode, beside a job that is a child of upgate and none of
its business, another upgate, and readers of the store; kills at a moment drawn from the seed; then looks at
everything that must hold, from outside (kill_look.py); of the store it believes what SQLite says. Not a program of
its own."""
import collections
import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid

import rig
from kill_look import MARK, cgroups, key_of, marked, programs_loaded, programs_of, stat_of, step_files, targets_of, upgate_of

MODES = ("v2", "v1", "signals", "noclose", "pidns", "pid1")  # see words()
KINDS = ("upgate", "guardian", "both", "side")
PLANS = ("turns", "slices")
MEANS = {"v2": "cgroup v2", "v1": "cgroup v1 freezer", "signals": "signals"}  # how sides are stopped; else the best there is
CLEAN_S = 15.0  # nothing may live longer: 0.1 s, what a busy machine adds, and the keepers' patience
END_S = 120.0   # a run of 3 s that takes longer hangs
BEAT_S = 3.0    # the foreign job beats every 50 ms
PAIRS = 4

Truth = collections.namedtuple("Truth", "code took_s")
# hit: it was killed before it had ended. held: BPF programs that upgate held at that moment.
Result = collections.namedtuple("Result", "number mode kind plan moment_s hit held clean_s bad")


class Missing(Exception):
    """This machine does not have the mode; the text says what it lacks."""


# --- ways to start it ------------------------------------------------------------------------------


def refuse_close_range(command):
    """Becomes a command for which close_range(2) is unknown, as before Linux 5.9 or under a container's filter."""
    close_range, errno_return, allow, nosys = 436, 0x00050000, 0x7fff0000, 38
    program = b"".join(struct.pack("HBBI", *line) for line in (
        (0x20, 0, 0, 0), (0x15, 0, 1, close_range), (0x06, 0, 0, errno_return | nosys), (0x06, 0, 0, allow)))
    libc, buffer = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(program, len(program))

    class Filter(ctypes.Structure):
        _fields_ = [("count", ctypes.c_ushort), ("lines", ctypes.c_void_p)]
    one = Filter(len(program) // 8, ctypes.addressof(buffer))
    no_new_privs, set_seccomp, by_filter = 38, 22, 2
    if libc.prctl(no_new_privs, 1, 0, 0, 0) or libc.prctl(set_seccomp, by_filter, ctypes.byref(one), 0, 0):
        sys.exit("failed to install a seccomp filter: " + os.strerror(ctypes.get_errno()))
    if libc.close_range(1000, 1001, 0) == 0 or ctypes.get_errno() != nosys:
        sys.exit("close_range(2) is still there")
    os.execvp(command[0], command)


def words(mode):
    """What stands before the command."""
    hide = "umount -a -t %s 2>/dev/null; exec \"$@\""
    return {"v2": [], "v1": ["unshare", "-m", "/bin/sh", "-c", hide % "cgroup2", "sh"],
            "signals": ["unshare", "-m", "/bin/sh", "-c", hide % "cgroup,cgroup2", "sh"],
            "noclose": [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "kill.py"),
                        "--refuse-close-range"],
            # Its own namespace of processes, in which a shell is process 1 and stays.
            "pidns": ["unshare", "-pf", "--mount-proc", "--kill-child", "/bin/sh", "-c", "\"$@\" & wait $!; sleep 1000", "sh"],
            # Process 1 itself, as in a container: it inherits every orphan, and all end with it.
            "pid1": ["unshare", "-pf", "--mount-proc", "--kill-child"]}[mode]


def plan_of(plan, pairs=PAIRS):
    """Verdicts that do not depend on what else the machine does: memory that is equal, time that is doubled."""
    turns = plan == "turns"
    return {
        "baseline": {"name": "old", "models": rig.MODELS}, "candidate": {"name": "new", "models": rig.MODELS},
        "workloads": [{"name": "w", "model": "dlrm", "size": "small", "steps": 30}],
        "schedule": {"looks": [pairs], "timeout": "20s", "block": "5ms", "voids": 100,
                     "interleave": "steps" if turns else "slices", "traced_launches": 1 if turns else 0},
        "gate": {"alpha": "20%", "parity": {"rule": "off"}, "calibrate": "auto",
                 "metrics": {"peak_memory": {"margin": "20%"}} if turns else
                            {"cpu_time": {"margin": "50%"}, "total_time": {"margin": "50%", "observe": True}}}}


# --- one run ---------------------------------------------------------------------------------------


def ask(path, sql):
    """Through SQLite alone; rw, for a journal may wait for somebody who rolls it back."""
    with contextlib.closing(sqlite3.connect("file:%s?mode=rw" % urllib.parse.quote(path), uri=True, timeout=20)) as db:
        return db.execute(sql).fetchall()


def has_run(path):
    return os.path.exists(path) and bool(ask(path, "SELECT 1 FROM sqlite_master WHERE name = 'run'")) and \
        bool(ask(path, "SELECT 1 FROM run"))


class Subject:
    """An `upgate ab` with a job of the user's own as its child, in a directory of its own."""

    def __init__(self, scratch, mode, plan, pairs=PAIRS):
        self.mode, self.dir = mode, os.path.join(scratch, uuid.uuid4().hex)
        self.mark, self.keys, self.process, self.main = uuid.uuid4().hex, set(), None, None
        os.makedirs(self.dir)
        self.store, self.beat, self.plan = (os.path.join(self.dir, name) for name in ("run.db", "beat", "plan.yaml"))
        document = plan_of(plan, pairs)
        if plan == "slices":
            document["candidate"]["models"] = rig.planted(self.dir, "slow:400%")
        with open(self.plan, "w") as file:
            json.dump(document, file)

    def start(self, resume=False):
        arguments = ["ab", "--resume", self.store] if resume else ["ab", self.plan, "-o", self.store]
        job = "(while :; do : >\"$BEAT\"; sleep 0.05; done) >/dev/null 2>&1 & "
        line = words(self.mode) + ["bash", "-c", job + "exec env \"$@\"", "bash", "%s=%s" % (MARK, self.mark),
                                   rig.UPGATE] + arguments
        environment = {key: value for key, value in os.environ.items() if not key.startswith("UPGATE_")}
        environment.update(UPGATE_STATE_DIR=os.path.join(self.dir, "state"), BEAT=self.beat)
        self.errors = open(os.path.join(self.dir, "stderr"), "w+b")
        self.process = subprocess.Popen(line, cwd=self.dir, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.errors, start_new_session=True)
        self.main = None
        deadline = time.monotonic() + 30
        while not self.main and self.process.poll() is None and time.monotonic() < deadline:
            self.main = upgate_of(marked(self.mark))
        key = self.main and key_of(self.main)
        self.keys |= {key} if key else set()

    def alive(self):
        stat = self.main and stat_of(self.main)
        return bool(stat) and stat[1] not in "ZX" and stat[0] == "upgate"

    def wait_until(self, begin, moment_s):
        """None, or how many seconds after its begin it had ended already."""
        while self.alive():
            left = begin + moment_s - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(left, 0.005))
        return time.monotonic() - begin

    def end(self):
        """Waits for upgate; its exit code, None when it does not end. The shell of a namespace stays behind."""
        deadline = time.monotonic() + END_S
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        if self.alive():
            return None
        if self.mode == "pidns":  # its parent is the shell
            return None if not has_run(self.store) else self.code_of_store()
        return self.process.wait()

    def code_of_store(self):
        words_of = {"pass": 0, "fail": 1, "inconclusive": 3}
        rows = ask(self.store, "SELECT verdict FROM verdict")
        return words_of.get(rows[0][0]) if rows else None

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")[-600:]

    def job_lives(self):
        """It beats, and nobody has stopped it."""
        deadline = time.monotonic() + BEAT_S
        before = os.stat(self.beat).st_mtime_ns if os.path.exists(self.beat) else 0
        while time.monotonic() < deadline:
            if os.path.exists(self.beat) and os.stat(self.beat).st_mtime_ns > before:
                return True
            time.sleep(0.02)
        return False

    def end_job(self):
        """All that is still in the session or the namespace: the job, the shell."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def left(self):
        return ["process %d (%s) %s" % (pid, stat[0], stat[1]) for pid, stat in marked(self.mark).items()]

    def left_over(self):
        keys = tuple(self.keys)
        return ["cgroup " + path for path in cgroups(keys)] + ["file " + path for path in step_files(keys)] if keys else []

    def close(self):
        for pid in marked(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process:
            self.end_job()
        shutil.rmtree(self.dir, ignore_errors=True)


class Neighbour:
    """Another upgate, the same all the time; a new one when it has come to its verdict. `bad`: what befell it."""

    def __init__(self, scratch):
        self.scratch, self.subject, self.bad = scratch, None, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.subject:
            self.subject.close()

    def take_part(self):
        """It runs now."""
        if self.subject and not self.subject.alive():
            self.check_end()
        if not self.subject:
            self.subject = Subject(self.scratch, "v2", "turns", pairs=30)
            self.subject.start()

    def check_end(self):
        code = self.subject.end()
        if code != 0:
            self.bad.append("the neighbour ended with %s: %s" % (code, self.subject.said()))
        self.subject.close()
        self.subject = None

    def pop_bad(self):
        """What befell it until now. Frozen or stopped it would not come to its end."""
        if self.subject and not self.subject.alive():
            self.check_end()
        bad, self.bad = self.bad, []
        return bad


class Readers(threading.Thread):
    """Somebody who looks at the store all the time: through SQLite, and by `upgate report`."""

    def __init__(self, subject):
        super().__init__(daemon=True)
        self.subject, self.done, self.bad = subject, threading.Event(), []

    def look(self):
        try:
            ask(self.subject.store, "SELECT count(*) FROM pair")
        except sqlite3.OperationalError as error:  # not there yet, being made, or written to for longer than we wait
            if not any(word in str(error) for word in ("unable to open", "no such table", "locked")):
                self.bad.append("a reader: %s" % error)
        except sqlite3.DatabaseError as error:
            self.bad.append("a reader: %s" % error)

    def run(self):
        looks = 0
        while not self.done.wait(0.03):
            if not os.path.exists(self.subject.store):
                continue
            self.look()
            looks += 1
            if looks % 16 == 1:
                done = subprocess.run([rig.UPGATE, "report", self.subject.store, "-o", self.subject.dir + "/report.json"],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                text = done.stderr.decode(errors="replace")
                if done.returncode < 0 or any(word in text for word in ("damaged", "malformed", "disk I/O")):
                    self.bad.append("upgate report: exit %d: %s" % (done.returncode, text[-200:]))

    def end(self):
        self.done.set()
        self.join()
        return self.bad[:3]


# --- what must hold --------------------------------------------------------------------------------


def check_store(subject):
    if not os.path.exists(subject.store):
        return []
    bad = []
    for sql, want in (("PRAGMA integrity_check", [("ok",)]), ("PRAGMA foreign_key_check", [])):
        got = ask(subject.store, sql)
        bad += [] if got == want else ["%s: %s" % (sql, got[:3])]
    if not bad and has_run(subject.store):
        half = ask(subject.store, "SELECT p.id FROM pair p WHERE p.state = 'valid' AND "
                                  "(SELECT count(*) FROM launch l WHERE l.pair_id = p.id) <> 2")
        wrong = ask(subject.store, "SELECT producer, kind, seen, kept, dropped FROM ledger WHERE seen IS NOT NULL AND "
                                   "kept IS NOT NULL AND seen <> kept + dropped AND producer <> 'symbols'")
        bad += ["pairs with a launch missing: %s" % half] if half else []
        bad += ["the ledger does not add up: %s" % wrong[:3]] if wrong else []
    return bad


def wait_until_clean(subject, programs, sweeping):
    """(seconds it took, what is left). sweeping: groups wait for the next upgate, nobody of this one lives."""
    begin = time.monotonic()
    while True:
        left = subject.left() + ([] if sweeping else subject.left_over())
        left += ["BPF program %d" % number for number in sorted(programs & programs_loaded())]
        took = time.monotonic() - begin
        if not left or took > CLEAN_S:
            return took, left
        time.sleep(0.01)


def check_resumed(subject, truth):
    resume = has_run(subject.store)
    if not resume:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(subject.store)
    subject.end_job()
    subject.start(resume)
    code = subject.end()
    bad = []
    if code != truth.code:
        bad.append("%s ended with %s, undisturbed with %d: %s" %
                   ("--resume" if resume else "a new run", code, truth.code, subject.said()))
    elif ask(subject.store, "SELECT count(*) FROM pair WHERE phase = 'main' AND state = 'valid'") != [(PAIRS,)]:
        bad.append("not %d valid pairs after --resume" % PAIRS)
    return bad


def undisturbed(scratch, mode, plan):
    """What --resume must come to."""
    subject = Subject(scratch, mode, plan)
    try:
        subject.start()
        begin = time.monotonic()
        code = subject.end()
        took = time.monotonic() - begin
        if code is None or not has_run(subject.store):
            raise Missing("upgate does not run here: " + subject.said())
        means = ask(subject.store, "SELECT json_extract(covariates, '$.freezer') FROM launch LIMIT 1")[0][0]
        if means != MEANS.get(mode, means):
            raise Missing("sides are stopped by %s here" % means)
        want = 0 if plan == "turns" else 1
        if code != want:
            raise SystemExit("an undisturbed run ended with %s, and not with %d: %s" % (code, want, subject.said()))
        subject.end_job()
        left = wait_until_clean(subject, set(), False)[1]
        if left:
            raise SystemExit("an undisturbed run left: " + "; ".join(left))
        return Truth(code, took)
    finally:
        subject.close()


def kill(subject, kind, dice, deadline):
    """Kills at once, or as soon as there is one to kill. (Hit?, BPF programs held at that moment)"""
    while subject.alive() and time.monotonic() < deadline:
        targets = targets_of(marked(subject.mark), kind)
        if not targets:
            continue
        programs = programs_of(subject.main)
        for pid in targets if kind == "both" else [dice.choice(sorted(targets))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return True, programs
    return False, set()


def run(scratch, seed, number, mode, kind, truths, neighbour):
    dice = random.Random("%d-%d" % (seed, number))
    plan = dice.choice(PLANS)
    truth = truths[mode, plan]
    moment_s, bad, clean_s = truth.took_s * dice.random(), [], None
    subject = Subject(scratch, mode, plan)
    neighbour.take_part()
    try:
        subject.start()
        begin = time.monotonic()
        readers = Readers(subject)
        readers.start()
        ended_s = subject.wait_until(begin, moment_s)
        hit, programs = kill(subject, kind, dice, begin + moment_s + 5)
        dies = hit and kind in ("upgate", "both")
        nobody = dies and (kind == "both" or mode == "pid1")  # nobody is left who could remove groups
        if not dies:
            code = subject.end()
            if kind != "side":  # moments of the next one lie in this one's length: the machine's load changes
                truths[mode, plan] = Truth(truth.code, ended_s or time.monotonic() - begin)
            wanted = (0, 1, 3) if kind == "side" else (truth.code,)
            if code not in wanted:
                bad.append("upgate ended with %s, undisturbed with %d: %s" % (code, truth.code, subject.said()))
        clean_s, left = wait_until_clean(subject, programs, nobody)
        bad += ["left after %.0f s: %s" % (clean_s, "; ".join(left))] if left else []
        if mode != "pid1" and not subject.job_lives():  # with its process 1 a namespace ends
            bad.append("the foreign job does not live on")
        bad += check_store(subject)
        bad += readers.end()
        if kind != "side":
            bad += check_resumed(subject, truth)
        else:
            subject.end_job()
            subprocess.run([rig.UPGATE, "report", subject.store], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subject.end_job()
        left = wait_until_clean(subject, programs, False)[1]
        bad += ["left for good: " + "; ".join(left)] if left else []
        bad += check_store(subject) + neighbour.pop_bad()
        return Result(number, mode, kind, plan, moment_s, hit, len(programs), clean_s if dies else None, bad)
    finally:
        subject.close()
