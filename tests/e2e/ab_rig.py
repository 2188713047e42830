# SPDX-License-Identifier: Apache-2.0
"""Shared by the ab_*.py tests: makes a plan and a directory for each, starts `upgate ab` there, and after
every run looks at what must hold whatever happened: the store is readable and holds whole pairs only,
no process of the run lives, no cgroup and no shared memory of it is left. Not a test itself."""
import glob
import inspect
import json
import os
import pwd
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid

BUILD, SOURCE = os.environ["UPGATE_BUILD"], os.environ["UPGATE_SOURCE"]
UPGATE = os.path.join(BUILD, "upgate")
# Under the sanitizers a model is twenty times slower: those of another build may be lent.
NATIVE = os.environ.get("UPGATE_NATIVE", os.path.join(BUILD, "reference_models", "native"))
SH = "/bin/sh"
WORK = "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done"  # some 10 ms of CPU time in sh
SANITIZED = b"__asan" in open(UPGATE, "rb").read()
CERTIFICATE_TRIES = 25  # three pairs beside busy neighbours may say anything: at load 11 five in a row were not enough
CLEAN_S = 15.0  # after upgate has ended nothing of it may live longer: 0.1 s, and what a busy machine adds


class Skip(Exception):
    """The machine cannot do what the test needs; the text says what."""


class Done:
    """A run of upgate that has ended."""

    def __init__(self, pid, code, out, err):
        self.pid, self.code, self.out, self.err = pid, code, out, err

    def __str__(self):
        return "exit %s\n--- stdout\n%s--- stderr\n%s" % (self.code, self.out[-4000:], self.err[-4000:])


def cgroup_parents():
    """Directories in which a run of ours makes its groups."""
    own = dict(line.rstrip("\n").split(":", 2)[1:] for line in open("/proc/self/cgroup"))
    parents = []
    for line in open("/proc/mounts"):
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup2":
            parents.append(where + own.get("", "/"))
        elif kind == "cgroup" and "freezer" in options.split(","):
            parents.append(where + own.get("freezer", "/"))
    return parents


def processes(mark):
    """Living processes whose environment carries the mark: upgate, its guardian, every workload."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if mark.encode() not in file.read().split(b"\0"):
                    continue
            with open("/proc/%s/stat" % pid) as file:
                name, state = file.read().rsplit(")", 1)
            if state.split()[0] not in "ZX":
                found.append("%s) %s" % (name, state.split()[0]))  # PID (COMM) STATE
        except OSError:
            continue  # ended meanwhile
    return found


class Case:
    """One test: its directory, its environment, what it has started."""

    def __init__(self, name, state_dir=None):
        self.dir = tempfile.mkdtemp(prefix="upgate-test-%s-" % name)
        os.chmod(self.dir, 0o755)
        self.mark = "RIG_MARK=" + uuid.uuid4().hex
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("UPGATE_")}
        self.env.update([self.mark.split("=")])
        self.env["UPGATE_STATE_DIR"] = state_dir or self.path("state")
        self.db_path = self.path("run.db")
        self.plan_path = self.path("plan.yaml")
        self.pids = []
        self.undo = []  # called at the end, last first

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def models(self, name="models"):
        """A directory of native models that reads planted faults from the side's $PLANT."""
        os.makedirs(self.path(name), exist_ok=True)
        for model in ("dlrm", "allreduce"):
            self.write("%s/%s" % (name, model), '#!/bin/sh\nexec "%s/%s" "$@" ${PLANT:+--plant "$PLANT"}\n'
                       % (NATIVE, model), 0o755)
        return self.path(name)

    def plan(self, workloads, baseline=None, candidate=None, gate=None, **schedule):
        """Three pairs decide, on what a busy machine disturbs least. YAML reads JSON."""
        if isinstance(workloads, dict):
            workloads = [workloads]
        document = {
            "baseline": dict({"name": "old", "env": {"SIDE": "a"}}, **(baseline or {})),
            "candidate": dict({"name": "new", "env": {"SIDE": "b"}}, **(candidate or {})),
            "workloads": [dict({"name": "w%d" % i}, **workload) for i, workload in enumerate(workloads)],
            "schedule": dict({"looks": [3], "timeout": "20s", "block": "5ms", "voids": 50,
                              "traced_launches": 0}, **schedule),
            "gate": dict({"alpha": "20%", "parity": {"rule": "off"},
                          "metrics": {"cpu_time": {"margin": "100%"},
                                      "total_time": {"margin": "100%", "observe": True}},
                          "calibrate": "require"}, **(gate or {})),
        }
        if "model" in document["workloads"][0]:
            for side in ("baseline", "candidate"):
                document[side].setdefault("models", self.models())
        self.pairs_wanted = document["schedule"]["looks"][-1] * len(workloads)
        return self.write("plan.yaml", json.dumps(document, indent=1))

    def start(self, *arguments, **options):
        command = options.pop("command", []) + [UPGATE] + list(arguments)
        env = dict(self.env, **options.pop("env", {}))
        process = subprocess.Popen(command, cwd=self.dir, env=env, stdin=subprocess.DEVNULL,
                                   stdout=options.pop("stdout", subprocess.PIPE),
                                   stderr=options.pop("stderr", subprocess.PIPE), **options)
        self.pids.append(process.pid)
        return process

    def finish(self, process, timeout=150, clean=True):
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError("upgate still ran after %d s\n%s" % (timeout, err.decode(errors="replace")))
        done = Done(process.pid, process.returncode, (out or b"").decode(errors="replace"),
                    (err or b"").decode(errors="replace"))
        for word in ("Sanitizer", "runtime error:", "core dumped"):
            assert word not in done.err, str(done)
        if clean:
            self.check_clean()
        return done

    def run(self, *arguments, **options):
        """`upgate ARGUMENTS`, to its end; without arguments `upgate ab PLAN -o STORE`."""
        if not arguments:
            arguments = ("ab", self.plan_path, "-o", self.db_path)
        timeout, clean = options.pop("timeout", 150), options.pop("clean", True)
        return self.finish(self.start(*arguments, **options), timeout, clean)

    def resume(self, **options):
        return self.run("ab", "--resume", self.db_path, **options)

    def check_clean(self):
        """Nothing is alive or frozen, nothing is left in the cgroups and in shared memory."""
        deadline = time.monotonic() + CLEAN_S
        while True:
            left = ["process " + text for text in processes(self.mark)]
            for pid in self.pids:
                left += glob.glob("/dev/shm/upgate-%d-*" % pid)
                left += [path for parent in cgroup_parents() for path in glob.glob("%s/upgate-%d-*" % (parent, pid))]
            if not left:
                return
            assert time.monotonic() < deadline, "left behind: " + "; ".join(left)
            time.sleep(0.02)

    def db(self):
        """The store, after having looked whether it is whole."""
        db = sqlite3.connect("file:%s?mode=rw" % urllib.parse.quote(self.db_path), uri=True)  # rw: a journal may wait
        for sql, want in (("PRAGMA integrity_check", [("ok",)]), ("PRAGMA foreign_key_check", [])):
            got = db.execute(sql).fetchall()
            assert got == want, "%s: %s" % (sql, got)
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'pair'").fetchall():
            return db  # killed before it was created
        half = db.execute("SELECT p.id FROM pair p WHERE p.state = 'valid' AND p.phase IN ('main', 'confirm') AND "
                          "(SELECT count(*) FROM launch l WHERE l.pair_id = p.id) <> 2").fetchall()
        assert not half, "pairs with a launch missing: %s" % half
        return db

    def rows(self, sql, *values):
        db = self.db()
        try:
            return db.execute(sql, values).fetchall()
        finally:
            db.close()

    def value(self, sql, *values):
        return self.rows(sql, *values)[0][0]

    def pairs(self, state="valid"):
        return self.value("SELECT count(*) FROM pair WHERE phase = 'main' AND state = ?", state)

    def close(self):
        for call in reversed(self.undo):
            call()
        for pid in self.pids:
            if os.path.exists("/proc/%d" % pid):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)


def wait_for_process(case, process, name):
    """A process of this command name runs: upgate has come as far as that."""
    deadline = time.monotonic() + 60
    while not any("(%s" % name in text for text in processes(case.mark)):
        assert time.monotonic() < deadline and process.poll() is None, "no '%s' was ever started" % name
        time.sleep(0.01)


def check_code(done, *codes):
    assert done.code in codes, "wanted exit %s\n%s" % (codes, done)


def check_judged(case, done):
    """Everything was run and can be trusted; a pass, or noise of a busy machine that let none through."""
    check_code(done, 0, 3)
    assert case.pairs() == case.pairs_wanted and case.value("SELECT state FROM run") == "done", str(done)
    assert case.value("SELECT trust_ok FROM verdict") == 1, str(done)
    undecided = case.rows("SELECT reason FROM cell WHERE gating AND verdict <> 'pass'")
    # A few launches of milliseconds each: one that was held up weighs on the mean.
    noise = ("lies inside", "the typical launch is within the margin", "the pass is withdrawn")
    assert all(any(words in reason for words in noise) for reason, in undecided), str(done)
    # Steps of microseconds beside busy neighbours: three launches may look as if one side were not steady.
    unsteady = case.value("SELECT count(*) FROM finding WHERE kind = 'not_steady'")
    # Of the pairs that other load makes void more may fall on one side than chance allows in nine of ten runs.
    lopsided = case.value("SELECT count(*) FROM finding WHERE kind = 'void' AND effect = 'inconclusive'")
    # And its pairs may spread more than those of the control.
    uncovered = case.value("SELECT calibrated FROM verdict") == 0
    assert done.code == 3 if undecided else unsteady or lopsided or uncovered or done.code == 0, str(done)


def check_says(done, *parts):
    """Each part stands somewhere in what a person sees."""
    text = done.err + done.out
    for part in parts:
        assert part in text, "does not say %r\n%s" % (part, done)


def as_nobody(case):
    """Words before a command that give up root; the test's directory becomes nobody's."""
    if os.geteuid() != 0:
        raise Skip("only root can become somebody else")
    nobody = pwd.getpwnam("nobody")
    for path, directories, files in os.walk(case.dir):
        for name in [path] + [os.path.join(path, name) for name in directories + files]:
            os.chown(name, nobody.pw_uid, nobody.pw_gid)
    words = ["setpriv", "--reuid", str(nobody.pw_uid), "--regid", str(nobody.pw_gid), "--clear-groups"]
    for test, path in (("-x", UPGATE), ("-w", case.dir)):
        if subprocess.run(words + ["test", test, path], stderr=subprocess.PIPE).returncode:
            raise Skip("nobody cannot reach " + path)
    return words


def image_label():
    """By which an upgate of this machine, namespace of processes and user knows its containers."""
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        if os.path.exists(path):
            with open(path) as file:
                machine = re.match("[0-9a-fA-F-]*", file.read()).group()
            if machine:
                break
    return "upgate=%s.%d.%d" % (machine, os.stat("/proc/self/ns/pid").st_ino, os.geteuid())


def mount_tmpfs(case, name, options):
    if os.geteuid() != 0:
        raise Skip("mounting needs root")
    where = case.path(name)
    os.makedirs(where, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", where], stderr=subprocess.PIPE)
    if done.returncode:
        raise Skip("no tmpfs can be mounted here: " + done.stderr.decode().strip())
    case.undo.append(lambda: subprocess.run(["umount", "-l", where]))
    return where


def make_certificate(directory, workload, interleave):
    case = Case("certificate", directory)
    try:
        case.plan(dict(workload, name="host"), interleave=interleave)
        done = case.run("ab", "--aa", case.plan_path, "-o", case.db_path)
        assert done.code in (0, 3), "the A/A run of %s: %s" % (interleave, done)
        return case.rows("SELECT metric, objection FROM control WHERE objection IS NOT NULL AND metric = 'cpu_time'")
    finally:
        case.close()


def make_certificates(directory):
    """A/A runs with their controls, of the kinds of workload and of turns that tests use, so that runs may pass."""
    model, command = {"model": "dlrm", "steps": 30, "size": "small"}, {"command": [SH, "-c", WORK]}
    steps = {"command": [NATIVE + "/dlrm", "--steps", "{steps}", "--size", "small"], "steps": 30}
    for interleave, workloads in (("steps", (model, dict(model, mode="infer", steps=60), steps)),
                                  ("slices", (model, command)), ("launches", (model, command))):
        for workload in workloads:
            for _ in range(CERTIFICATE_TRIES):
                objections = make_certificate(directory, workload, interleave)
                if not objections:
                    break
            assert not objections, "turns of %s, %s: %s" % (interleave, workload, objections)


def main(module_globals, certificates=True):
    """Runs the test_* functions of a file, or those whose names contain an argument."""
    tests = [(name, value) for name, value in module_globals.items()
             if name.startswith("test_") and inspect.isfunction(value)]
    tests = [test for test in tests if not sys.argv[1:] or any(word in test[0] for word in sys.argv[1:])]
    state_dir = tempfile.mkdtemp(prefix="upgate-test-state-")
    os.chmod(state_dir, 0o755)
    failed = skipped = 0
    begin = time.monotonic()
    try:
        if certificates:
            make_certificates(state_dir)
        for name, test in tests:
            case, started = Case(name[5:30], state_dir if certificates else None), time.monotonic()
            verdict = "ok"
            try:
                test(case)
            except Skip as why:
                verdict, skipped = "skipped: %s" % why, skipped + 1
            except (AssertionError, sqlite3.Error, OSError, subprocess.SubprocessError) as error:
                verdict, failed = "FAILED\n%s: %s" % (type(error).__name__, error), failed + 1
            finally:
                case.close()
            print("%-64s %5.1f s  %s" % (name, time.monotonic() - started, verdict), flush=True)
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)
    print("%d tests, %d failed, %d skipped, %.0f s" % (len(tests), failed, skipped, time.monotonic() - begin))
    sys.exit(1 if failed else 77 if tests and skipped == len(tests) else 0)
