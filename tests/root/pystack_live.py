#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python stack reader on real interpreters: every CPython 3.8 to 3.14 that is found in PATH or under
pyenv. A subject's threads wait in known nests of functions; what is read from outside must be what the
interpreter itself says (sys._current_frames), function, file and line of every frame. Then the GIL's holder,
the collector, a fork without exec, a pid namespace, a deleted interpreter, an exec and an exit.

    pystack_live.py [PYTHON...]

Nothing here waits for a time: each step waits for a state in /proc, with a deadline that only a hang meets.
Exit 77: no interpreter, or the process may not be read."""
import ctypes
import glob
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROBE = os.path.join(os.environ.get("UPGATE_BUILD", os.path.join(ROOT, "build", "release")), "tests", "root", "pystack_probe")
SUBJECT = os.path.join(ROOT, "tests", "root", "pystack_subject.py")
DEADLINE_S = 60
UNSURE, TORN, CUT, HAS_GIL, IN_GC = 1, 2, 4, 8, 16
STRING_MAX = 1023
SYS_READ, SYS_FUTEX = 0, 202


class Failure(Exception):
    pass


def check(condition, text, *values):
    if not condition:
        raise Failure(text % values if values else text)


def until(what, ask):
    """The first true answer of ask(), within the deadline."""
    end = time.monotonic() + DEADLINE_S
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Failure("%s: not within %d s" % (what, DEADLINE_S))
        time.sleep(0.002)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Lines:
    """A program at the end of two pipes: a line in, a line of JSON out."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent, bufsize=0,
                                        **options)
        self.buffer = b""

    def read(self):
        end = time.monotonic() + DEADLINE_S
        while b"\n" not in self.buffer:
            ready = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]
            got = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            check(got, "no answer from %s", self.process.args[0])
            self.buffer += got
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode("utf-8")

    def send(self, text):
        self.process.stdin.write(text.encode() + b"\n")

    def ask(self, text):
        self.send(text)
        return json.loads(self.read())

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def opened(pid):
    """A probe on the process; or its error number, when it cannot be opened."""
    probe = Lines([PROBE, str(pid)])
    head = json.loads(probe.read())
    if "error" in head:
        head["text"] = probe.read()
        probe.close()
    return probe, head


def task(pid, tid, name):
    try:
        with open("/proc/%d/task/%d/%s" % (pid, tid, name), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def is_asleep(pid, tid):
    return task(pid, tid, "stat").rpartition(") ")[2][:1] == "S"


def waits_in(pid, tid, name, fd):
    """Whether the thread sleeps in its own call: read(fd), or for the sleeper anything but a lock."""
    words = task(pid, tid, "syscall").split()
    if not is_asleep(pid, tid) or len(words) < 2 or not words[0].isdigit():
        return False
    if name == "sleeper":
        return int(words[0]) not in (SYS_FUTEX, SYS_READ)
    return int(words[0]) == SYS_READ and int(words[1], 16) == fd


# ---- what is checked ----------------------------------------------------------------------------------

def cut(text):
    """As the reader cuts a name: whole characters in 1023 bytes."""
    return text.encode("utf-8")[:STRING_MAX].decode("utf-8", "ignore")


def same_frames(name, got, want):
    check(got.get("flags") is not None, "%s: %s", name, got)
    check(got["flags"] & (UNSURE | TORN | CUT) == 0, "%s: flags %d of a thread that waits", name, got["flags"])
    want = [[cut(function), cut(file), line, first] for function, file, line, first in want]
    for i, (a, b) in enumerate(zip(got["frames"], want)):
        check(a == b, "%s: frame %d is %s, the interpreter says %s", name, i, a, b)
    check(len(got["frames"]) == len(want), "%s: %d frames, the interpreter has %d", name, len(got["frames"]), len(want))


# Leaf first; the same in every version. The function's own name, without what 3.11 put before it.
NESTS = {
    "nest": ["leaf", "middle", "nest", "run"], "sleeper": ["nap", "sleeper", "run"], "generator": ["numbers", "generator", "run"],
    "through_c": ["<lambda>", "through_c", "run"], "handler": ["handler", "run"], "manager": ["leaf", "managed"],
    "coroutine": ["inner", "outer"], "deep": ["leaf"] + ["deep"] * 31 + ["run"], "far": ["größe_名前", "far", "run"],
}


def check_waiters(subject, probe, pid, tid_of):
    told = subject.ask("frames")
    version = probe_version(probe)
    for name, waiter in subject.waiters.items():
        got = probe.ask("walk %d" % tid_of(waiter["tid"]))
        same_frames(name, got, told[name])
        check(not got["flags"] & HAS_GIL, "%s waits and is said to hold the GIL", name)
        functions = [frame[0].rpartition(".")[2] for frame in got["frames"]]
        if name in NESTS:
            check(functions[:len(NESTS[name])] == NESTS[name], "%s: %s", name, functions)
    nest = probe.ask("walk %d" % tid_of(subject.waiters["nest"]["tid"]))["frames"][1][0]
    check(nest == ("Worker.middle" if version >= (3, 11) else "middle"), "the method is called %s", nest)


def probe_version(probe):
    return tuple(int(part) for part in probe.version.split(".")[:2])


def check_main(subject, probe, pid, tid_of):
    """The main thread waits for our next line: in serve, called by main, called by the module."""
    tid = tid_of(subject.tid)
    got = until("the main thread in its read", lambda: waits_in(pid, tid, "main", 0) and probe.ask("walk %d" % tid))
    check([frame[0] for frame in got["frames"]] == ["serve", "main", "<module>"], "main: %s", got)
    check(got["flags"] == 0, "main: flags %d", got["flags"])
    until("a GIL that nobody holds", lambda: probe.ask("gil") == {"tid": 0})
    check(probe.ask("walk %d" % os.getpid())["error"] == 2, "a thread of another process has frames here")


def check_running(subject, probe, tid_of):
    """A thread that runs: whatever is seen is a function of its own nest, or said to be torn."""
    tid = tid_of(subject.ask("spin")["tid"])
    seen = set()
    # Not before it has left the thread's own start behind, whose functions are many.
    until("the start of the running thread", lambda: "spin" in [frame[0] for frame in probe.ask("walk %d" % tid).get("frames", [])])

    def look():
        for _ in range(100):
            got = probe.ask("walk %d" % tid)
            check("frames" in got, "a running thread: %s", got)
            if not got["flags"] & (TORN | UNSURE):
                seen.update(frame[0] for frame in got["frames"])
        return "spin_middle" in seen

    until("the frames of a running thread", look)
    strange = seen - {"spin_leaf", "spin_middle", "spin", "Thread.run", "run", "Thread._bootstrap_inner", "_bootstrap_inner",
                      "Thread._bootstrap", "_bootstrap", "Context.run"}
    check(len(strange) <= 3, "a running thread was seen in %s", sorted(strange))  # a walk may be torn unseen
    subject.ask("rest")


def check_churn(subject, probe):
    """Threads that come and go under the walks: frames, or no state (2); nothing else, whatever was freed."""
    subject.ask("churn")
    known = {waiter["tid"] for waiter in subject.waiters.values()} | {subject.tid}
    seen = set()

    def look():
        for tid in [int(name) for name in os.listdir("/proc/%d/task" % subject.pid)]:
            got = probe.ask("walk %d" % tid)
            check("frames" in got or got.get("error") == 2, "threads that come and go: %s", got)
            if tid not in known and got.get("frames"):
                seen.add(tid)
        return len(seen) >= 40

    until("the frames of 40 short threads", look)
    subject.ask("rest")


def check_fork(subject, probe):
    """A child of fork without exec, as a data loader's worker is."""
    subject.ask("fork")
    try:
        host = children_of(subject.pid)
        check(len(host) == 1, "the children of the subject: %s", host)
        until("the child in its read", lambda: is_asleep(host[0], host[0]) and task(host[0], host[0], "syscall").startswith("0 "))
        other, head = opened(host[0])
        check("version" in head, "the child: %s", head)
        got = other.ask("walk %d" % host[0])
        check([frame[0] for frame in got.get("frames", [])[:2]] == ["child_waits", "serve"], "the child: %s", got)
        other.close()
    finally:
        for child in children_of(subject.pid):
            os.kill(child, signal.SIGKILL)


def children_of(pid):
    return [int(word) for word in task(pid, pid, "children").split()]


def check_cost(subject, probe, tid_of):
    tid = tid_of(subject.waiters["deep"]["tid"])
    timed = probe.ask("time %d 300" % tid)
    check(timed["walks"] == 300, "walks failed: %s", timed)
    check(timed["reads"] <= 20, "%d system calls for a walk of %d known frames", timed["reads"], timed["frames"])
    return timed


def check_hog(subject, probe, pid, tid_of):
    subject.send("hog")
    subject.read()

    def holder():
        for tid in (int(name) for name in os.listdir("/proc/%d/task" % pid)):
            got = probe.ask("walk %d" % tid)
            if "frames" in got and got["frames"] and got["frames"][0][0] == "hog":
                return tid, got
        return None

    tid, _ = until("the thread of the long C call", holder)
    got = until("the holder of the GIL", lambda: probe.ask("gil").get("tid") == tid and probe.ask("walk %d" % tid))
    check(got["flags"] & HAS_GIL, "the holder's walk does not say so: %s", got)
    with open(SUBJECT, encoding="utf-8") as file:
        line = [i for i, text in enumerate(file, 1) if "sum(range(" in text][0]
    check(got["frames"][0][:3] == ["hog", SUBJECT, line], "the hog: %s", got["frames"][0])
    for _ in range(20):
        check(probe.ask("gil")["tid"] == tid, "the GIL left a C call")


def check_collector(subject, probe, tid_of):
    subject.send("collect")
    subject.read()
    got = until("the collector's thread", lambda: [w for w in [probe.ask("walk %d" % tid_of(subject.tid))]
                                                  if w.get("flags", 0) & IN_GC and w["frames"]])[0]
    check(got["frames"][0][0] == "collect_forever" and got["flags"] & HAS_GIL, "in the collector: %s", got)


# ---- one interpreter ----------------------------------------------------------------------------------

class Subject(Lines):
    def __init__(self, command):
        super().__init__(command + ["-B", "-W", "ignore", SUBJECT], cwd="/")
        self.hello = json.loads(self.read())
        self.pid, self.tid, self.waiters = self.process.pid, self.hello["tid"], self.hello["waiters"]

    def settle(self, pid, tid_of):
        for name, waiter in self.waiters.items():
            until("%s in its call" % name, lambda: waits_in(pid, tid_of(waiter["tid"]), name, waiter["fd"]))


def start(command):
    subject = Subject(command)
    subject.settle(subject.pid, int)
    probe, head = opened(subject.pid)
    if head.get("error") == 1:
        subject.close()
        print("skipped: %s" % head["text"])
        sys.exit(77)
    check("version" in head, "open: %s", head)
    probe.version = head["version"]
    return subject, probe


def with_subject(command, *steps):
    subject, probe = start(command)
    try:
        for step in steps:
            step(subject, probe)
    finally:
        subject.close()
        probe.close()


def check_end(subject, probe):
    subject.close()
    got = probe.ask("walk %d" % subject.tid)
    check(got.get("error") == 3, "after the end: %s", got)
    check(probe.ask("gil").get("error") == 3, "the GIL after the end")
    check(opened(subject.pid)[1].get("error") == 3, "opened after the end")


def check_exec(subject, probe):
    subject.send("exec %s 100000" % shutil.which("sleep"))
    until("the new program", lambda: probe.ask("walk %d" % subject.tid).get("error") == 3)
    got = until("its name", lambda: [head for head in [opened(subject.pid)[1]] if "error" in head])[0]
    check(got["error"] == 2 and "no Python" in got["text"], "after exec: %s", got)


def check_table(python, version):
    """layout_table.c is what this interpreter's own headers say, where they are installed."""
    ask = "import sysconfig; print(sysconfig.get_paths()['include'])"
    include = subprocess.check_output([python, "-c", ask], text=True, cwd="/").strip()
    if not shutil.which("cc") or not os.path.isdir(os.path.join(include, "internal")) or version.startswith("3.14"):
        print("    its headers or a compiler are missing: the table is not compared")
        return
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tracer", "pystack", "make_layout.py"), "--check", python],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, "%s", done.stdout)


def all_of(python, version):
    def first(subject, probe):
        check(probe.version == version, "the version reads as %s", probe.version)
        check_waiters(subject, probe, subject.pid, int)
        check_main(subject, probe, subject.pid, int)
        timed = check_cost(subject, probe, int)
        check_running(subject, probe, int)
        check_churn(subject, probe)
        check_fork(subject, probe)
        check_collector(subject, probe, int)
        print("    %d frames in %.1f us of CPU time, %d reads" % (timed["frames"], timed["ns"] / 1e3, timed["reads"]))

    with_subject([python], first, check_end)
    with_subject([python], lambda subject, probe: check_hog(subject, probe, subject.pid, int), check_end)
    with_subject([python], check_exec)


def in_namespace(python):
    """The same in a pid namespace of its own, where the interpreter's thread numbers are not ours."""
    try:
        subject = Subject(["unshare", "--pid", "--fork", "--kill-child", python])
    except (Failure, OSError):
        print("    no pid namespace here, left out")
        return
    try:
        pid = until("the namespace's first process", lambda: children_of(subject.pid))[0]
        numbers = {}
        for tid in os.listdir("/proc/%d/task" % pid):
            line = [text for text in task(pid, int(tid), "status").split("\n") if text.startswith("NSpid:")][0]
            numbers[int(line.split()[-1])] = int(tid)
        check(subject.hello["pid"] == 1, "not the first of its namespace")
        subject.settle(pid, numbers.get)
        probe, head = opened(pid)
        check("version" in head, "open in a namespace: %s", head)
        probe.version = head["version"]
        check_waiters(subject, probe, pid, numbers.get)
        check_hog(subject, probe, pid, numbers.get)
        probe.close()
    finally:
        subject.close()


def in_venv(python, folder):
    venv = os.path.join(folder, "venv")
    subprocess.check_call([python, "-m", "venv", "--without-pip", venv])
    with_subject([os.path.join(venv, "bin", "python")], lambda subject, probe: check_waiters(subject, probe, subject.pid, int))


def by_loader(python):
    """Started by naming the loader: the executable is the loader then, the interpreter a mapped file."""
    for loader in filter(os.path.exists, ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")):
        with_subject([loader, os.path.realpath(python)], lambda subject, probe: check_waiters(subject, probe, subject.pid, int))


def deleted(python, folder):
    """The interpreter's file is gone while it runs, as after an update of the package."""
    copy = os.path.join(folder, "python-that-goes")
    shutil.copy(os.path.realpath(python), copy)
    subject = Subject([copy])
    try:
        os.unlink(copy)
        subject.settle(subject.pid, int)
        probe, head = opened(subject.pid)
        check("version" in head, "open a deleted interpreter: %s", head)
        probe.version = head["version"]
        check_waiters(subject, probe, subject.pid, int)
        probe.close()
    finally:
        subject.close()


# ---- the interpreters ---------------------------------------------------------------------------------

def interpreters(given):
    """(path, version) of each distinct CPython 3.8 to 3.14 with a GIL."""
    names = given or [path for minor in range(8, 15) for path in [shutil.which("python3.%d" % minor)] if path] + \
        [shutil.which("python3") or sys.executable, "/usr/bin/python3"] + \
        sorted(glob.glob(os.path.join(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"), "versions", "3.*", "bin", "python3")))
    ask = "import platform, sys, sysconfig; print(sys.implementation.name, platform.python_version(), " \
          "sysconfig.get_config_var('Py_GIL_DISABLED') or 0, sys.executable)"
    found = {}
    for name in names:
        try:
            words = subprocess.run([name, "-c", ask], capture_output=True, text=True, timeout=DEADLINE_S, cwd="/").stdout.split(None, 3)
        except OSError:
            continue
        if len(words) == 4 and words[0] == "cpython" and words[2] == "0" and 8 <= int(words[1].split(".")[1]) <= 14:
            found.setdefault(os.path.realpath(words[3].strip()), (words[3].strip(), words[1]))
    return sorted(found.values(), key=lambda item: [int(part) for part in item[1].split(".")[:2]])


def main():
    found = interpreters(sys.argv[1:])
    if not found:
        print("skipped: no CPython 3.8 to 3.14 in PATH or under pyenv")
        return 77
    if not task(os.getpid(), os.getpid(), "syscall"):
        print("skipped: /proc does not tell here in which call a thread waits")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for i, (python, version) in enumerate(found):
            print("%s (%s)" % (version, python), flush=True)
            try:
                check_table(python, version)
                all_of(python, version)
                in_namespace(python)
                if i == 0:
                    in_venv(python, folder)
                if python.startswith("/usr/"):
                    deleted(python, folder)
                    by_loader(python)
            except (Failure, OSError, subprocess.SubprocessError) as failure:
                failed += 1
                print("    FAILED: %s" % failure, flush=True)
    print("%d interpreters, %d failed" % (len(found), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
