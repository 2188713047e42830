#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate record` on this kernel: live processes, commands, and everything that can go wrong with the target, the
recorder and the place of the store. Without root or on a kernel that forbids the capture: skipped, but for
what is said about that. Waits for conditions, with a deadline; counts, never times."""
import contextlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import traceback

BUILD, SOURCE = os.environ["UPGATE_BUILD"], os.environ["UPGATE_SOURCE"]
UPGATE = os.path.join(BUILD, "upgate")
DLRM = os.path.join(BUILD, "reference_models", "native", "dlrm")
NOBODY = 65534
WAIT_S = 60  # for anything that takes a moment on a quiet machine
MS = 1000000
FUTEX = (202, 98)  # the system call, on x86-64 and on arm64
# A thread that sleeps 3 ms at a time: a gap each; the comment names it.
SLEEPER = "import time  # the-sleeper\ndef waits_here():\n    time.sleep(0.003)\nwhile True:\n    waits_here()"


class Skip(Exception):
    pass


class Done:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return "exit %d\n%s\n%s" % (self.code, self.out, self.err)


class Case:
    """A directory, a store's name in it, and processes that end with it."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="upgate-record-")
        os.chmod(self.dir, 0o755)
        self.db = os.path.join(self.dir, "run.db")
        self.processes, self.mounts = [], []

    def path(self, name):
        return os.path.join(self.dir, name)

    def start(self, *command, **more):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, **more)
        self.processes.append(process)
        return process

    def sleeper(self, program=SLEEPER):
        return self.start(sys.executable, "-c", program)

    def record(self, *options, **more):
        return self.start(more.pop("program", UPGATE), "record", "-o", self.db, *options, **more)

    def finish(self, process, wait_s=WAIT_S):
        out, err = process.communicate(timeout=wait_s)
        done = Done(process.returncode, out, err)
        assert "Sanitizer" not in err, done
        return done

    def run(self, *options, **more):
        return self.finish(self.record(*options, **more))

    def rows(self, sql, *values):
        db = sqlite3.connect("file:%s?mode=ro" % self.db, uri=True, timeout=5)
        try:
            return db.execute(sql, values).fetchall()
        finally:
            db.close()

    def value(self, sql, *values):
        return self.rows(sql, *values)[0][0]

    def wait_until(self, what, condition):
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if condition():
                return
            time.sleep(0.02)
        raise AssertionError("never came: " + what)

    def wait_for_rows(self, process, sql="SELECT count(*) FROM gap"):
        """The recorder is at work: something was committed."""
        def there():
            if process.poll() is not None:
                raise AssertionError("ended early: %s" % self.finish(process))
            try:
                return self.value(sql) > 0
            except sqlite3.OperationalError:
                return False  # not there yet, or locked
        self.wait_until(sql, there)

    def tmpfs(self, options):
        where = os.path.join(self.dir, "mount")
        os.mkdir(where)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", where]).returncode:
            raise Skip("cannot mount a tmpfs")
        self.mounts.append(where)
        self.db = os.path.join(where, "run.db")

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for where in self.mounts:
            subprocess.run(["umount", "-l", where])
        shutil.rmtree(self.dir, ignore_errors=True)


def check(done, code, *says):
    assert done.code == code, done
    for text in says:
        assert text in done.err or text in done.out, "%r is missing:\n%s" % (text, done)


def check_whole(case, state="done"):
    """A store that was ended properly: nothing dangles, what was seen is kept or counted."""
    assert case.value("PRAGMA integrity_check") == "ok"
    assert case.rows("PRAGMA foreign_key_check") == []
    assert case.rows("SELECT kind, state, writer_pid FROM run") == [("record", state, None)]
    assert case.value("SELECT end_ns > begin_ns FROM recording") == 1
    ledger = case.rows("SELECT producer, seen, kept, dropped FROM ledger WHERE producer LIKE 'bpf.%'")
    assert len(ledger) == 6 and all(seen == kept + dropped for _, seen, kept, dropped in ledger), ledger


def alive(process):
    return process.poll() is None


def capabilities(pid):
    with open("/proc/%d/status" % pid) as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["CapEff"], 16), int(fields["CapPrm"], 16), int(fields["NoNewPrivs"])


def ignore_hangup():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_gives_up_what_attaching_took(case):
    """Of another user's program it still reads stacks, names, descriptors and Python frames."""
    kept = sum(1 << number for number in (1, 2, 19, 34, 38, 39, 40))  # privileges.c
    program = ("import os, time  # the-sleeper\nr, w = os.pipe()\ndef waits_here():\n    time.sleep(0.003)\n"
               "while True:\n    waits_here()")
    if not os.path.exists("/usr/bin/python3"):
        raise Skip("no Python that another user may start")
    sleeper = case.start("/usr/bin/python3", "-c", program, user=NOBODY)
    recorder = case.record("--pid", str(sleeper.pid), "--duration", "5s")
    case.wait_for_rows(recorder)
    effective, permitted, sealed = capabilities(recorder.pid)
    assert effective == permitted and not effective & ~kept and effective & 1 << 19, hex(effective)
    assert sealed == 1
    check(case.finish(recorder), 0)
    check_whole(case)
    assert case.value("SELECT count(*) FROM v_off_cpu g JOIN v_stack k ON k.stack = g.python_stack "
                      "WHERE g.pid = ? AND k.name LIKE '%waits_here%'", sleeper.pid) > 5
    assert case.value("SELECT count(*) FROM v_off_cpu g JOIN v_stack k ON k.stack = g.kernel_stack "
                      "WHERE g.pid = ? AND k.name LIKE '%nanosleep%'", sleeper.pid) > 5
    assert case.value("SELECT count(*) FROM v_off_cpu g JOIN v_stack k ON k.stack = g.user_stack "
                      "WHERE g.pid = ? AND k.name NOT LIKE '[%'", sleeper.pid) > 5


def test_a_command_keeps_its_own(case):
    before = capabilities(os.getpid())
    out = case.path("status")
    check(case.run("--", "/bin/sh", "-c", "cat /proc/self/status > %s" % out), 0)
    with open(out) as file:
        fields = dict(line.split(":", 1) for line in file)
    assert (int(fields["CapEff"], 16), int(fields["NoNewPrivs"])) == (before[0], before[2]), fields
    os.unlink(case.db)
    signals = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
    for restores in (False, True):  # Python ignores SIGPIPE and SIGXFSZ, and so do its children unless it restores them
        for more in ((), ("--trigger", "stall > 5s")):
            plain = subprocess.run(signals, stdout=subprocess.PIPE, restore_signals=restores, preexec_fn=ignore_hangup, text=True).stdout
            done = case.run("-q", "--gpu", "off", *more, "--", *signals, restore_signals=restores, preexec_fn=ignore_hangup)
            assert done.code == 0 and done.out.startswith(plain), (plain, done)
            if not more:
                os.unlink(case.db)


def test_a_hangup_that_is_ignored(case):
    """Under nohup a recording outlives its terminal."""
    sleeper = case.sleeper()
    recorder = case.record("--pid", str(sleeper.pid), preexec_fn=ignore_hangup)
    case.wait_for_rows(recorder)
    recorder.send_signal(signal.SIGHUP)
    rows = case.value("SELECT count(*) FROM gap")
    case.wait_for_rows(recorder, "SELECT count(*) > %d FROM gap" % rows)
    recorder.send_signal(signal.SIGTERM)
    check(case.finish(recorder), 0, "ended by")


def test_open_files(case):
    """The recorder may have as many as the hard limit permits; a command, what the recorder was given."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    go, out = case.path("go"), case.path("limit")
    command = "ulimit -n > %s; while ! test -e %s; do sleep 0.05; done" % (out, go)
    recorder = case.record("--", "sh", "-c", command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard)))
    case.wait_until("the command", lambda: os.path.exists(out) and os.path.getsize(out))
    with open("/proc/%d/limits" % recorder.pid) as file:
        soft = next(line.split()[3] for line in file if line.startswith("Max open files"))
    open(go, "w").close()
    check(case.finish(recorder), 0)
    assert soft == str(hard), soft
    with open(out) as file:
        assert file.read() == "200\n"


def test_live_process(case):
    sleeper = case.sleeper()
    done = case.run("--pid", str(sleeper.pid), "--duration", "2s")
    check(done, 0, "time is over", "next: upgate stalls " + case.db)
    assert alive(sleeper)
    check_whole(case)
    gaps = case.rows("SELECT gap_ns, blocked_ns, run_queue_ns, kernel_stack, syscall_nr FROM v_off_cpu WHERE pid = ?",
                     sleeper.pid)
    assert len(gaps) >= 20, len(gaps)  # 600 on a quiet machine
    assert all(gap >= 1000000 and gap == blocked + queued for gap, blocked, queued, _, _ in gaps), gaps
    slept = case.value("SELECT count(*) FROM v_off_cpu g JOIN v_stack k ON k.stack = g.kernel_stack "
                       "WHERE g.pid = ? AND k.name LIKE '%nanosleep%'", sleeper.pid)
    named = case.value("SELECT missing FROM recording")
    assert slept >= 20 or "kallsyms" in named or "kptr" in named, named
    kind, cmdline, ended = case.rows("SELECT kind, cmdline, ended_ns FROM process WHERE tgid = ?", sleeper.pid)[0]
    assert kind == "target" and "the-sleeper" in cmdline and ended is None, (kind, cmdline, ended)
    assert case.value("SELECT count(*) FROM process WHERE tgid IN (SELECT writer_pid FROM run)") == 0
    switches = case.value("SELECT switches FROM thread_total t JOIN thread d ON d.id = t.thread_id WHERE d.tid = ?",
                          sleeper.pid)
    assert switches >= len(gaps) / 2, (switches, len(gaps))  # read a moment before the last gaps came
    sources = {row[0] for row in case.rows("SELECT DISTINCT source FROM counter")}
    assert {"vmstat", "stat", "drops"} <= sources, sources


def test_python_frames(case):
    sleeper = case.sleeper(SLEEPER.replace("0.003", "0.03"))
    done = case.run("--pid", str(sleeper.pid), "--duration", "3s")
    check(done, 0)
    need_python(case)
    walked = case.value("SELECT count(*) FROM v_off_cpu g JOIN v_stack k ON k.stack = g.python_stack "
                        "WHERE g.pid = ? AND k.name LIKE '%waits_here' AND k.line = 3", sleeper.pid)
    assert walked >= 3, walked  # 95 on a quiet machine
    seen, kept = case.rows("SELECT seen, kept FROM ledger WHERE producer = 'pystack'")[0]
    assert seen >= kept >= walked


def need_python(case):
    if not case.value("SELECT python FROM recording"):
        raise Skip("this Python cannot be read: " + case.value("SELECT missing FROM recording"))


def test_waker_that_renames_itself(case):
    """Seen first under the name it was started by; the name it gives itself then is the one to tell."""
    read, write = os.pipe()
    told, tell = os.pipe()
    waker = case.start(sys.executable, "-c", """
import os, time
os.set_blocking(%d, False)
left = -1
while left:
    os.write(%d, b"x")
    time.sleep(0.005)
    left -= 1
    try:
        os.read(%d, 1)  # it was seen
        open("/proc/self/comm", "w").write("called-later")
        left = 50
    except BlockingIOError:
        pass
""" % (told, write, told), pass_fds=[write, told])
    os.close(write)
    os.close(told)
    done = case.run("--", sys.executable, "-c", """
import os
count = 0
while os.read(%d, 1):
    count += 1
    if count == 100:
        os.write(%d, b"x")
""" % (read, tell), pass_fds=[read, tell])
    os.close(read)
    os.close(tell)
    check(done, 0)
    names = case.rows("SELECT waker_comm, count(*) FROM v_off_cpu WHERE waker_pid = ? GROUP BY 1", waker.pid)
    assert [name for name, _ in names] == ["called-later"] and names[0][1] > 20, names
    assert case.value("SELECT comm FROM process WHERE tgid = ?", waker.pid) == "called-later"


def test_gil(case):
    """Two threads that want the interpreter at the same time: each waits for the other, by name."""
    target = case.sleeper("import threading\ndef spin():\n    while True:\n        sum(range(1000))\n"
                          "none = threading.Semaphore(0)\ndef wait():\n    while True:\n"
                          "        none.acquire(timeout=0.02)\n"
                          "[threading.Thread(target=work).start() for work in (spin, spin, wait)]")
    check(case.run("--pid", str(target.pid), "--duration", "3s"), 0)
    need_python(case)
    waits = case.rows("SELECT g.tid, o.tid, g.owner_pid FROM v_off_cpu g JOIN v_stack k ON k.stack = g.python_stack "
                      "AND k.depth = 0 AND k.name = '[gil]' JOIN gap b ON b.id = g.gap JOIN thread o "
                      "ON o.id = b.owner_thread WHERE g.pid = ? AND g.flags & 8192", target.pid)
    assert len(waits) >= 5, len(waits)  # 400 on a quiet machine
    assert all(owner_pid == target.pid and waiter != owner for waiter, owner, owner_pid in waits), waits[:5]
    # The interpreter's own lock and its condition lie together; the semaphore's lock is on the heap.
    places = case.rows("SELECT min(g.lock_address), max(g.lock_address) FROM gap g JOIN v_stack k "
                       "ON k.stack = g.python_stack AND k.depth = 0 AND k.name = '[gil]'")[0]
    assert places[1] - places[0] < 4096, places
    assert case.value("SELECT count(*) FROM gap g WHERE g.syscall_nr = (SELECT b.syscall_nr FROM gap b WHERE b.lock_address "
                      "= ?) AND (g.lock_address < ? OR g.lock_address > ?)", places[0], *places) > 0


def test_garbage_collection(case):
    target = case.sleeper("import gc\nkept = [[i] for i in range(1000000)]\nprint('ready', flush=True)\nwhile True:\n    gc.collect()")
    assert target.stdout.readline() == "ready\n"
    check(case.run("--pid", str(target.pid), "--duration", "3s"), 0)
    need_python(case)
    ticks = case.value("SELECT count(*) FROM v_sample s JOIN v_stack k ON k.stack = s.python_stack AND k.depth = 0 "
                       "AND k.name = '[gc]' WHERE s.pid = ?", target.pid)
    assert ticks >= 5, ticks  # 590 on a quiet machine


def test_no_python(case):
    sleeper = case.sleeper()
    check(case.run("--pid", str(sleeper.pid), "--duration", "500ms", "--no-python", "--sample-hz", "0"), 0)
    assert case.value("SELECT count(*) FROM gap WHERE python_stack IS NOT NULL") == 0
    assert case.rows("SELECT python, sample_hz FROM recording") == [(0, 0)]
    assert case.value("SELECT count(*) FROM sample") == 0


def test_command(case):
    """From its first instruction: children are followed, births, names and ends are known, and it is the end."""
    # Seconds: what ends at once may be gone before /proc is asked for its words.
    done = case.run("--", "sh", "-c", "sleep 2; exec 2>&1; env sleep 3; exit 7")
    check(done, 0, "'sh' ended with exit code 7", "the target ended")
    check_whole(case)
    sleeps = case.rows("SELECT cmdline, started_ns, ended_ns, exit_code FROM process "
                       "WHERE kind = 'target' AND comm = 'sleep' ORDER BY started_ns")
    everybody = case.rows("SELECT tgid, ppid, comm, cmdline, kind, started_ns, ended_ns FROM process WHERE kind = 'target'")
    assert [row[0] for row in sleeps] == ["sleep 2", "sleep 3"], everybody
    assert all(started and ended > started and code == 0 for _, started, ended, code in sleeps), sleeps
    shell = case.rows("SELECT cmdline, exit_code >> 8 FROM process WHERE kind = 'target' AND comm = 'sh'")
    assert len(shell) == 1 and shell[0][1] == 7 and shell[0][0].startswith("sh -c"), shell
    longest = case.value("SELECT max(gap_ns) FROM v_off_cpu WHERE comm = 'sleep'")
    assert longest >= 2500000000, longest


def test_what_a_thread_did_that_has_ended(case):
    """Its waits below the threshold are counted, though at the end nobody is left to be asked."""
    done = case.run("--", sys.executable, "-c", "import time\nfor _ in range(3000): time.sleep(0.0001)")
    check(done, 0, "the target ended")
    check_whole(case)
    totals = case.rows("SELECT t.switches, t.short_gaps, t.short_gap_ns, t.run_ns FROM thread_total t JOIN thread d ON d.id = t.thread_id "
                       "JOIN process p ON p.id = d.process_id WHERE p.kind = 'target' AND d.tid = p.tgid")
    # Nearly all of them on a quiet machine; on a busy one many sleeps are longer than the threshold, and one whose time is over before it sleeps is none.
    assert len(totals) == 1 and totals[0][0] >= 2500 and totals[0][1] >= 30 and totals[0][2] >= 1000000 and totals[0][3] > 0, totals


def test_command_as_json(case):
    done = case.run("--format", "json", "-q", "--", "sh", "-c", "exit 3")
    check(done, 0)
    document = json.loads(done.out)
    assert document["schema"] == "upgate.record/1" and document["command_exit_code"] == 3, document
    assert document["ending"] == "target" and document["store"] == case.db, document


def test_json_of_any_name(case):
    """A name in another encoding than UTF-8, which JSON cannot hold, is no reason to print nothing."""
    case.db = os.path.join(os.fsencode(case.dir), b"run-\xff.db")
    done = case.run("--format", "json", "-q", "--gpu", "off", "--", "true")
    check(done, 0)
    document = json.loads(done.out)
    assert document["schema"] == "upgate.record/1" and document["store"].endswith("/run-\ufffd.db"), document


def test_command_that_is_none(case):
    done = case.run("--", "/none/such-program")
    check(done, 4, "failed to start '/none/such-program': No such file or directory")
    assert not os.path.exists(case.db)


def test_steps(case):
    if not os.access(DLRM, os.X_OK):
        raise Skip("no native models in this build")
    check(case.run("--", DLRM, "--steps", "20", "--size", "small"), 0, "20 steps")
    rows = case.rows("SELECT idx, dur_ns FROM recorded_step ORDER BY idx")
    assert [row[0] for row in rows] == list(range(20)) and all(row[1] > 0 for row in rows), rows
    assert case.value("SELECT count(*) FROM recorded_step s, recording r WHERE s.begin_ns < r.begin_ns "
                      "OR s.begin_ns > r.end_ns") == 0
    own = "upgate-%d-" % case.processes[-1].pid  # others record here too
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(own)]


def test_steps_of_more_processes_than_have_room(case):
    """64 have: of the others it is told that their steps are not there, as what else is missing."""
    if not os.access(DLRM, os.X_OK):
        raise Skip("no native models in this build")
    recorder = case.record("--", "sh", "-c", "for i in $(seq 66); do %s --steps 1 --size small; done" % DLRM)
    check(case.finish(recorder, 3 * WAIT_S), 0, "64 steps", "steps: 2 processes found no room beside 64 others")
    assert case.rows("SELECT seen, kept, dropped, breach FROM ledger WHERE producer = 'steps' AND kind = 'processes'") == [(66, 64, 2, 1)]
    assert "steps: 2 processes found no room" in case.value("SELECT missing FROM recording")


def test_room_for_steps(case):
    """A process whose steps are recorded takes little of /dev/shm, where its own libraries want room."""
    header = case.path("header")
    check(case.run("--", "sh", "-c", "head -c 64 $UPGATE_STEPS > %s" % header), 0)
    with open(header, "rb") as file:
        _, _, slots, _, _, _, _, _, _, stride = struct.unpack("<QIIIIQQQQQ", file.read())  # struct ug_step_header
    assert slots == 64 and 1 << 20 <= stride <= 2 << 20, (slots, stride)


def test_target_is_killed(case):
    sleeper = case.sleeper()
    recorder = case.record("--pid", str(sleeper.pid))
    case.wait_for_rows(recorder)
    sleeper.kill()
    sleeper.wait()
    check(case.finish(recorder), 0, "the target ended")
    check_whole(case)
    assert case.rows("SELECT exit_code & 127, ended_ns IS NOT NULL FROM process WHERE tgid = ?", sleeper.pid) == [(9, 1)]


def test_target_becomes_another(case):
    """It forks and calls exec, once it is recorded."""
    go = case.path("go")
    program = ("import os, time\nwhile not os.path.exists(%r):\n    time.sleep(0.003)\nif os.fork() == 0:\n"
               "    time.sleep(0.3)\n    os._exit(5)\nos.execvp('sleep', ['sleep', '3'])" % go)  # seconds, as in test_command
    changer = case.sleeper(program)
    recorder = case.record("--pid", str(changer.pid))
    case.wait_for_rows(recorder)
    open(go, "w").close()
    check(case.finish(recorder), 0, "the target ended")
    check_whole(case)
    named = case.rows("SELECT cmdline FROM process WHERE tgid = ?", changer.pid)
    assert named == [("sleep 3",)], named
    child = case.rows("SELECT ppid, exit_code >> 8 FROM process WHERE kind = 'target' AND tgid != ?", changer.pid)
    assert child == [(changer.pid, 5)], child


def test_other_namespaces(case):
    """A target in another pid and mount namespace is named by the ids of ours."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-m", "-p", "-f", "true"]).returncode:
        raise Skip("no namespaces can be made here")
    check(case.run("--", "unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", "sleep 3; exit 0"), 0)
    check_whole(case)
    sleeps = case.rows("SELECT tgid, cmdline FROM process WHERE comm = 'sleep' AND kind = 'target'")
    assert len(sleeps) == 1 and sleeps[0][1] == "sleep 3" and sleeps[0][0] > 2, sleeps
    assert case.value("SELECT max(gap_ns) FROM v_off_cpu WHERE pid = ?", sleeps[0][0]) >= 2500000000


def test_ctrl_c(case):
    sleeper = case.sleeper()
    for number in (signal.SIGINT, signal.SIGTERM):
        recorder = case.record("--pid", str(sleeper.pid))
        case.wait_for_rows(recorder)
        recorder.send_signal(number)
        check(case.finish(recorder), 0, "ended by")
        check_whole(case)
        assert alive(sleeper)
        os.unlink(case.db)


def test_recorder_is_killed(case):
    """What was committed is readable, the target runs on, and the next recording is not hindered."""
    sleeper = case.sleeper()
    recorder = case.record("--pid", str(sleeper.pid))
    case.wait_for_rows(recorder)
    recorder.kill()
    recorder.wait()
    db = sqlite3.connect(case.db)  # rolls back what was open
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT count(*) FROM v_off_cpu WHERE pid = ?", (sleeper.pid,)).fetchone()[0] > 0
    assert db.execute("SELECT end_ns FROM recording").fetchall() == [(None,)]
    db.close()
    assert alive(sleeper)
    case.db += "2"
    check(case.run("--pid", str(sleeper.pid), "--duration", "300ms"), 0)
    check_whole(case)


def removed(group):
    try:
        os.rmdir(group)
    except OSError:  # a process is still on its way out, which cgroup.procs does not tell
        return False
    return True


def test_cgroup(case):
    """Its processes and those that join it, by path and by a part of its name, as of a container."""
    name = "upgate-%d-0123456789abcdef" % os.getpid()
    mounts = [line.split()[1] for line in open("/proc/mounts") if line.split()[2] in ("cgroup2", "cgroup")]
    group = None
    for mount in mounts:
        try:
            group = os.path.join(mount, name)
            os.mkdir(group)
            break
        except OSError:
            group = None
    if not group:
        raise Skip("no cgroup can be made here")
    try:
        sleeper, later = case.sleeper(), case.sleeper()
        try:
            with open(os.path.join(group, "cgroup.procs"), "w") as procs:
                procs.write(str(sleeper.pid))
        except OSError as error:
            raise Skip("nothing can be put into %s: %s" % (group, error))
        recorder = case.record("--cgroup", "/" + name)
        case.wait_for_rows(recorder)
        with open(os.path.join(group, "cgroup.procs"), "w") as procs:
            procs.write(str(later.pid))
        case.wait_until("gaps of the process that joined", lambda: case.value(
            "SELECT count(*) FROM v_off_cpu WHERE pid = %d" % later.pid) > 0)
        recorder.send_signal(signal.SIGINT)
        check(case.finish(recorder), 0)
        check_whole(case)
        assert case.value("SELECT count(*) FROM v_off_cpu WHERE pid = ?", sleeper.pid) > 0
        os.unlink(case.db)

        def enter():
            with open(os.path.join(group, "cgroup.procs"), "w") as procs:
                procs.write(str(os.getpid()))
        check(case.run("--container", name[-16:], "--duration", "3s", preexec_fn=enter), 0)
        told = case.rows("SELECT DISTINCT pid, comm FROM v_off_cpu")  # none of those that the recorder is made of
        assert sorted(pid for pid, _ in told) == sorted((sleeper.pid, later.pid)), told
    finally:
        case.close()
        case.wait_until("an empty cgroup", lambda: removed(group))


def test_wrong_targets(case):
    gone = case.start("true")
    gone.wait()
    sleeper = case.sleeper("import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n"
                           "time.sleep(1000)")
    tasks = "/proc/%d/task" % sleeper.pid
    case.wait_until("a second thread", lambda: len(os.listdir(tasks)) == 2)
    thread = max(map(int, os.listdir(tasks)))
    for options, code, says in (
            (("--pid", str(gone.pid)), 2, "there is no process %d" % gone.pid),
            (("--pid", str(thread)), 2, "%d is a thread of process %d" % (thread, sleeper.pid)),
            (("--pid", "12x"), 2, "'12x' is no process id"),
            (("--cgroup", "/no/such/group"), 2, "no cgroup '/no/such/group'"),
            (("--cgroup", "", "--duration", "1s"), 2, "an empty value"),
            (("--container", "0123456789abcdef"), 2, "no cgroup belongs to a container"),
            (("--container", "12"), 2, "at least 6"),
            ((), 2, "nothing to record"),
            (("--pid", str(sleeper.pid), "--duration", "0s"), 2, "option '--duration'"),
            (("--pid", str(sleeper.pid), "--", "true"), 2, "exclude each other")):
        check(case.run(*options), code, says)
        check(case.run("--dry-run", *options), code, says)
        assert not os.path.exists(case.db), options


def test_no_threshold(case):
    sleeper = case.sleeper()
    check(case.run("--pid", str(sleeper.pid), "--threshold", "0s", "--duration", "300ms"), 0)
    assert case.value("SELECT threshold_ns FROM recording") == 1


def test_existing_store(case):
    sleeper = case.sleeper()
    check(case.run("--pid", str(sleeper.pid), "--duration", "200ms"), 0)
    before = open(case.db, "rb").read()
    check(case.run("--pid", str(sleeper.pid), "--duration", "200ms"), 2, "exists already")
    check(case.run("--pid", str(sleeper.pid), "--dry-run"), 2, "exists already")
    check(case.run("--pid", str(sleeper.pid), "--trigger", "stall > 1s", "--dry-run"), 0, "would record %d" % sleeper.pid)
    assert open(case.db, "rb").read() == before


def test_without_permission(case):
    sleeper = case.sleeper()
    where = os.path.join(case.dir, "open")
    os.mkdir(where, 0o777)
    os.chmod(where, 0o777)
    case.db = os.path.join(where, "run.db")
    program = shutil.copy(UPGATE, where)  # others may not enter every build directory
    try:
        done = case.run("--pid", str(sleeper.pid), "--duration", "1s", program=program, user=NOBODY, group=NOBODY,
                        extra_groups=[])
    except PermissionError:
        raise Skip("another user cannot run a program in " + where) from None
    check(done, 4, "root")
    assert not os.path.exists(case.db), done


def test_as_few_capabilities_as_the_readme_says(case):
    """libbpf goes through the BTF of all modules for a type that the kernel lacks, which takes CAP_SYS_ADMIN."""
    if not shutil.which("setpriv"):
        raise Skip("no setpriv")
    few = ["setpriv", "--bounding-set=-all,+bpf,+perfmon,+sys_ptrace", "--inh-caps=-all"]
    check(case.finish(case.start(*few, UPGATE, "record", "-o", case.db, "--", "sleep", "0.3")), 0, "the target ended")
    check_whole(case)
    assert case.value("SELECT count(*) FROM v_off_cpu WHERE comm = 'sleep'") >= 1


def test_read_only_place(case):
    sleeper = case.sleeper()
    case.tmpfs("ro")
    check(case.run("--pid", str(sleeper.pid), "--duration", "1s"), 4, case.db)


def test_full_disk(case):
    """In words, with what was committed; the target runs on."""
    sleeper = case.sleeper(SLEEPER.replace("0.003", "0.0002"))
    case.tmpfs("size=500k")
    done = case.run("--pid", str(sleeper.pid), "--threshold", "1us", "--duration", "%ds" % WAIT_S)
    check(done, 4, "the disk is full", "is readable", case.db)
    assert alive(sleeper)
    assert case.value("PRAGMA integrity_check") == "ok"
    assert case.value("SELECT count(*) FROM recording") == 1


def test_killed_while_the_disk_fills(case):
    """kill -9 before, at and after the moment at which nothing more can be written: the store opens, and what its
    ledger says was kept is there."""
    sleeper = case.sleeper(SLEEPER.replace("0.003", "0.0002"))
    case.tmpfs("size=500k")
    seen = set()
    for after_s in (0, 0.05, 0.15, 0.4, 1.2, WAIT_S):  # the last one ends by itself
        process = case.record("--pid", str(sleeper.pid), "--threshold", "1us", "--duration", "%ds" % WAIT_S)
        case.wait_until("a store, or its end", lambda: process.poll() is not None or os.path.exists(case.db))
        full_s = time.monotonic() + after_s
        while process.poll() is None and time.monotonic() < full_s:
            time.sleep(0.005)
        process.kill()
        process.communicate()
        with contextlib.closing(sqlite3.connect(case.db, timeout=5)) as db:  # it may have to roll back
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            # A stack that still waited for its symbols is not there; nothing else dangles.
            dangling = {row[2] for row in db.execute("PRAGMA foreign_key_check")}
            assert dangling <= {"stack"}, (process.returncode, dangling)
            tables = {name for name, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            gaps = db.execute("SELECT count(*) FROM gap").fetchone()[0] if "gap" in tables else 0
            ledger = db.execute("SELECT seen, kept, dropped FROM ledger WHERE producer = 'bpf.gap'").fetchall() if tables else []
            seen.add((process.returncode, bool(ledger), gaps > 0))
            assert all(row[0] == row[1] + row[2] and row[1] == gaps for row in ledger), (ledger, gaps)
        for name in os.listdir(os.path.dirname(case.db)):
            os.unlink(os.path.join(os.path.dirname(case.db), name))
    assert alive(sleeper)
    assert {code for code, _, _ in seen} >= {-signal.SIGKILL, 4}, seen
    assert any(ledger and gaps for _, ledger, gaps in seen), seen


SLEEPERS = '''import json, sys, threading, time
slept = {}
def sleeps(end):
    own = slept[threading.get_native_id()] = []
    while time.monotonic() < end or len(own) < 35:  # as few as that on a busy machine
        begin = time.monotonic_ns()
        time.sleep(0.02)
        own.append((begin, time.monotonic_ns()))
threads = [threading.Thread(target=sleeps, args=(time.monotonic() + 3,)) for _ in range(100)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with open(sys.argv[1], "w") as file:
    json.dump(slept, file)
'''


def test_every_sleep(case):
    """Also where the kernel does not tell of each switch and of each wake-up (bpf/sched.bpf.h: end_untold)."""
    check(case.run("--no-python", "--", sys.executable, "-c", SLEEPERS, case.path("slept")), 0)
    check_whole(case)
    gaps = {}
    for tid, *gap in case.rows("SELECT t.tid, g.out_ns, g.in_ns, g.waking_ns, g.syscall_nr FROM gap g JOIN thread t "
                                "ON t.id = g.thread_id"):
        gaps.setdefault(tid, []).append(gap)
    with open(case.path("slept")) as file:
        slept = json.load(file)
    missed, runnable, count = [], [], 0
    for tid, sleeps in slept.items():
        for begin, end in sleeps:
            # What was not told is by the scheduler's account: 38 of 550,000 ended up to 17 us late beside a storm of orphans.
            within = [gap for gap in gaps.get(int(tid), []) if gap[0] >= begin and gap[1] <= end + MS // 10]
            count += 1
            if sum(back - out for out, back, _, _ in within) < 10 * MS:
                missed.append((begin, end, within))
            # A sleep that began in time is not woken at once: it would have been said to wait for a CPU. A wait for the GIL may be.
            runnable += [(begin, end, gap) for gap in within
                         if gap[0] - begin < 2 * MS and gap[2] and gap[2] - gap[0] < MS and gap[3] not in (None, *FUTEX)]
    dropped = case.value("SELECT dropped FROM ledger WHERE producer = 'bpf.gap'")
    # Of the wake-ups that were not told that account has some too early, why is not known: 17 in one of some hundred such recordings, 3 in another.
    assert count > 3000 and len(missed) <= dropped and len(runnable) < count / 500, (count, dropped, missed, runnable)


def test_five_thousand_threads(case):
    program = ("import sys, threading\nthreading.stack_size(65536)\ngo = threading.Event()\n"
               "made = [threading.Thread(target=go.wait, daemon=True) for _ in range(5000)]\n"
               "for thread in made:\n    thread.start()\nprint('ready', flush=True)\nthreading.Event().wait()")
    try:
        limit = int(open("/sys/fs/cgroup/pids/pids.max").read())
    except (OSError, ValueError):
        limit = 1 << 20
    if limit < 6000 or int(open("/proc/sys/kernel/threads-max").read()) < 12000:
        raise Skip("this machine does not allow 5,000 threads")
    target = case.sleeper(program)
    line = target.stdout.readline()
    if line != "ready\n":
        raise Skip("5,000 threads could not be started")
    check(case.run("--pid", str(target.pid), "--duration", "2s"), 0)
    check_whole(case)
    assert alive(target)
    waiting = case.value("SELECT count(DISTINCT tid) FROM v_off_cpu WHERE pid = ? AND flags & 32", target.pid)
    assert waiting >= 5000, waiting


def cannot():
    """Why nothing can be recorded here, or None. Said in words, with nothing left behind."""
    case = Case()
    try:
        done = case.run("--duration", "10ms", "--", "true")
        if done.code == 2 and "is not in this build" in done.err:
            return "this build has no capture"
        if done.code == 4:
            assert done.err.startswith("upgate: error: ") and len(done.err) > 40 and not os.path.exists(case.db), done
            return done.err.strip()
        return None
    finally:
        case.close()


def main(tests):
    why = cannot()
    if why:
        print(why)
        return 77
    failed = 0
    wanted = sys.argv[1:]
    unknown = [name for name in wanted if "test_" + name not in tests]
    if unknown:
        print("no such case: " + ", ".join(unknown))
        return 2
    for name, test in sorted(tests.items()):
        if not name.startswith("test_") or (wanted and name[5:] not in wanted):
            continue
        case, begin = Case(), time.monotonic()
        try:
            test(case)
            print("ok   %s (%.1f s)" % (name, time.monotonic() - begin))
        except Skip as reason:
            print("skip %s: %s" % (name, reason))
        except Exception as error:  # one case's failure is no other's
            failed += 1
            print("FAIL %s: %s: %s" % (name, type(error).__name__, error))
            traceback.print_tb(error.__traceback__, file=sys.stdout)
        finally:
            case.close()
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(globals()))
