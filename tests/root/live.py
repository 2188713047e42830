#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate stalls --live`: a stall is shown while it happens, with its culprit; a program that hangs is told before it comes back;
what is kept is a store like any other; whatever ends the screen, nothing of it stays. `upgate record --trigger` keeps the moments
that it names and no others. Skipped without root or capture."""
import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

UPGATE = os.path.join(os.environ["UPGATE_BUILD"], "upgate")
WAIT_S = 60
UNFINISHED = 1 << 5  # UG_GAP_UNFINISHED
sys.dont_write_bytecode = True
import needs  # noqa: E402
import plants  # noqa: E402

HANG = """
import os, time
ends = os.pipe()
if os.fork() == 0:
    time.sleep(600)
    os._exit(0)
end = time.monotonic() + 2
while time.monotonic() < end:
    sum(range(1000))
os.read(ends[0], 1)
"""


def upgate(*words):
    return subprocess.run([UPGATE, "stalls", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=WAIT_S)


def looks(pid, *words):
    """The documents of a while."""
    done = upgate("--live", "--pid", str(pid), "--every", "1s", "--format", "json", *words)
    assert done.returncode == 0, done.stderr
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(documents) >= 2, done
    assert all(document["schema"] == "upgate.stalls/1" for document in documents)
    return documents


def stopped(document):
    """By the plant, whatever else a busy machine does to the victim."""
    return any(stall["cause"] == "sigstop" and stall["culprit"]["comm"] == "pl-stopper" for stall in document["stalls"])


def until(what, seconds=WAIT_S):
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def left_in(folder):
    return [name for name in os.listdir(folder) if name.startswith("upgate-live")]


def lost(document):
    """What was lost but records of mappings: those are of the whole machine, and another program may map more than their rings hold."""
    return [breach for breach in document["trust"]["breaches"] if (breach["producer"], breach["kind"]) != ("symbols", "mappings")]


def test_a_stall_and_its_culprit(folder):
    plant = plants.load_plants().Plant("sigstop", 60)
    kept = os.path.join(folder, "kept.db")
    try:
        documents = looks(plant.who["victim_pid"], "--window", "3s", "--duration", "8s", "-o", kept)
    finally:
        plant.stop()
    # What has been forgotten is so at a commit, which a busy machine holds up; without --window it would be 8 s at the end.
    assert all(document["window_ns"] < 6e9 for document in documents), [document["window_ns"] for document in documents]
    assert all(stopped(document) for document in documents), [document["answer"] for document in documents]
    after = upgate(kept, "--format", "json")
    assert after.returncode == 0, after.stderr
    document = json.loads(after.stdout)
    assert document["window_ns"] > 5e9 and stopped(document), document["answer"]
    assert not lost(document), document["trust"]
    # Of the waits that went on at some look none is left but those at the end: once a thread.
    with sqlite3.connect(kept) as db:
        twice = db.execute("SELECT thread_id, count(*) FROM gap WHERE flags & ? GROUP BY 1 HAVING count(*) > 1", (UNFINISHED,)).fetchall()
        over = db.execute("SELECT count(*) FROM gap a JOIN gap b ON a.thread_id = b.thread_id AND a.out_ns = b.out_ns AND "
                          "a.rowid < b.rowid").fetchone()[0]
    assert not twice and not over, (twice, over)


def test_a_hang_is_told_before_it_ends(folder):
    process = subprocess.Popen([sys.executable, "-c", HANG], start_new_session=True)
    try:
        documents = looks(process.pid, "--window", "2s", "--duration", "9s")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert "hardly ran: it waited" in documents[-1]["answer"], [document["answer"] for document in documents]


def targets(folder, name, *words, **more):
    """Who is a target of a look at `words`, and who looks."""
    kept = os.path.join(folder, name)
    process = subprocess.Popen([UPGATE, "stalls", "--live", "--every", "1s", "--duration", "6s", "--format", "json", "-o", kept, *words],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    err = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 0, err
    with sqlite3.connect(kept) as db:
        return {pid for pid, in db.execute("SELECT tgid FROM process WHERE kind = 'target'")}, process.pid


def make_cgroup():
    """Its directory, or None where none can be made that takes processes."""
    for line in open("/proc/mounts", encoding="utf-8"):
        if line.split()[2] in ("cgroup2", "cgroup"):
            group = os.path.join(line.split()[1], "upgate-live-%d" % os.getpid())
            try:
                os.mkdir(group)
            except OSError:
                continue
            enter = subprocess.run(["sh", "-c", 'echo $$ > "$0/cgroup.procs"', group], stderr=subprocess.DEVNULL)
            if enter.returncode == 0:
                return group
            os.rmdir(group)
    return None


def removed(group):
    try:
        os.rmdir(group)
    except OSError:  # a process is still on its way out, which cgroup.procs does not tell
        return False
    return True


def test_who_looks_is_no_target(folder):
    """Neither as a child of the target nor in its cgroup: what upgate waits for is nobody's stall."""
    found, who = targets(folder, "child.db", "--pid", str(os.getpid()))
    assert os.getpid() in found and who not in found, (found, who)
    group = make_cgroup()
    if not group:
        print("no cgroup can be made here")
        return

    def enter():
        with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as procs:
            procs.write(str(os.getpid()))
    sleeper = subprocess.Popen([sys.executable, "-c", "import time\nwhile True:\n    time.sleep(0.01)"], preexec_fn=enter)
    try:
        found, who = targets(folder, "cgroup.db", "--cgroup", group, preexec_fn=enter)
    finally:
        sleeper.kill()
        sleeper.wait()
        assert until(lambda: removed(group)), "processes are left in %s" % group
    assert found == {sleeper.pid}, (found, who)


def test_nothing_stays_when_it_is_killed(folder):
    env = dict(os.environ, TMPDIR=folder)
    for end in (lambda process: process.kill(), lambda process: os.killpg(process.pid, signal.SIGQUIT)):  # Ctrl-backslash: of a terminal's whole group
        process = subprocess.Popen([UPGATE, "stalls", "--live", "--pid", str(os.getpid()), "--every", "1s", "--format", "json"],
                                   stdout=subprocess.PIPE, env=env, start_new_session=True)
        assert process.stdout.readline()
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid), encoding="ascii") as file:
            recorder = int(file.read().split()[0])
        assert left_in(folder)
        end(process)
        assert process.wait(WAIT_S) in (0, -signal.SIGKILL)
        assert until(lambda: not os.path.exists("/proc/%d" % recorder)), "the recorder lives on"
        assert not left_in(folder), left_in(folder)


class Screen:
    """The verb on a terminal of 100 columns and 40 rows."""
    def __init__(self, folder, *words):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(TMPDIR=folder, TERM="xterm", COLUMNS="100", LINES="40")
            os.execv(UPGATE, [UPGATE, "stalls", "--live", *words])

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.text += os.read(self.fd, 1 << 16).decode("utf-8", "replace")
            except OSError:  # it has ended
                return False
        return True

    def shows(self, pattern):
        deadline = time.monotonic() + WAIT_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline and self.read(0.2), "%s is not in: %s" % (pattern, self.text[-3000:])
        found = re.search(pattern, self.text)
        self.text = self.text[found.end():]
        return found

    def key(self, key):
        os.write(self.fd, key.encode())

    def end(self):
        while self.read(0.2):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_keys(folder):
    screen = Screen(folder, "--pid", str(os.getpid()), "--every", "1s")
    screen.shows(r"\x1b\[\?1049h")
    screen.shows("the last 10 s")
    screen.shows("recorded")
    screen.key("+")
    screen.shows("the last 20 s")
    screen.key(" ")
    screen.shows("FROZEN")
    screen.key("\x1b[B")
    screen.key("s")
    saved = screen.shows(r"saved: upgate stalls (stalls-[0-9-]+\.db)").group(1)
    screen.key("q")
    assert screen.end() == 0
    assert "\x1b[?1049l" in screen.text, screen.text[-500:]
    assert not left_in(folder)
    with sqlite3.connect(os.path.join(folder, saved)) as db:  # the recorder's own store goes without
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'gap_thread'").fetchone()[0] == 1
    done = upgate(os.path.join(folder, saved), "--format", "json")
    assert done.returncode in (0, 3), done.stderr
    assert "not ended in order" not in done.stdout, done.stdout


def test_whatever_ends_the_screen(folder):
    """Ctrl-\\ too, which would end the recorder with it: the terminal is as before, and nothing is left."""
    for end in (lambda screen: os.kill(screen.pid, signal.SIGTERM), lambda screen: os.kill(screen.pid, signal.SIGQUIT),
                lambda screen: screen.key("\x1c")):
        screen = Screen(folder, "--pid", str(os.getpid()))
        screen.shows("the last 10 s")
        end(screen)
        assert screen.end() == 0 and "\x1b[?1049l" in screen.text, screen.text[-500:]
        assert not left_in(folder)


def incidents(folder, *words):
    done = subprocess.run([UPGATE, "record", "-o", os.path.join(folder, "night.db"), "--format", "json", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(line["schema"] == "upgate.incident/1" and re.search(r"night-\d{8}-\d{6}\.db$", line["path"]) for line in lines), lines
    return lines


def test_a_trigger_keeps_what_was_around_it(folder):
    plant = plants.load_plants().Plant("sigstop", 60)
    words = ("--pid", str(plant.who["victim_pid"]), "--after", "2s")
    try:
        found = incidents(folder, "--trigger", "stall > 30ms", "--duration", "8s", *words)
        quiet = incidents(folder, "--trigger", "stall > 3s", "--duration", "4s", *words)
    finally:
        plant.stop()
    assert len(found) == 1 and not quiet, (found, quiet)
    assert os.listdir(folder) == [os.path.basename(found[0]["path"])] and os.stat(found[0]["path"]).st_mode & 0o777 == 0o600
    document = json.loads(upgate(found[0]["path"], "--format", "json").stdout)
    assert stopped(document) and not lost(document), (document["answer"], found)


STEPS = """
import time
def work(i):
    time.sleep(4 if i == 150 else 0.01)
for i in range(250):
    work(i)
"""


def test_a_slow_step_sets_it_off(folder):
    script = os.path.join(folder, "steps.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(STEPS)
    # 0.8 s, or more where a sleep of 10 ms takes longer: on a busy machine any step may stand still for half a second.
    found = incidents(folder, "--trigger", "step_time > 80x median", "--after", "100ms", "--step", "steps.py:work", "--gpu", "off", "--",
                      sys.executable, script)
    assert len(found) == 1 and re.match(r"step 150 took [45](\.\d+)? s, \d+\.\d times the median of \d+ steps; ", found[0]["answer"]), found


STOPPED = """
import os, signal, time
def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
work(1)
if os.fork() == 0:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(10.5)
    os.kill(os.getppid(), signal.SIGCONT)
    os._exit(0)
os.wait()
work(0.3)
"""


def test_a_long_stall_sets_it_off(folder):
    """Longer than the window of a short one. What an earlier watch left counts for --keep."""
    others = ["night-2020.db", "night-20200101-000000.db.txt", "other-20200101-000000.db"]
    for name in others + ["night-20200101-000000.db", "night-20200101-000001.db"]:
        open(os.path.join(folder, name), "w", encoding="utf-8").close()
    found = incidents(folder, "--trigger", "stall > 10s", "--after", "100ms", "--keep", "1", "--gpu", "off", "--", sys.executable, "-c", STOPPED)
    assert len(found) == 1, found
    assert sorted(os.listdir(folder)) == sorted(others + [os.path.basename(found[0]["path"])]), os.listdir(folder)
    stalls = json.loads(upgate(found[0]["path"], "--format", "json").stdout)["stalls"]
    assert any(stall["cause"] == "sigstop" and stall["max_ns"] >= 10e9 for stall in stalls), found


GOES_ON = """
import os, sys, time
def work(seconds):
    time.sleep(seconds)
while not os.path.exists(sys.argv[1]):
    work(0.01)
work(4)
for _ in range(30):
    work(0.01)
"""


def watch(folder, name, *words):
    return subprocess.Popen([UPGATE, "record", "--max-size", "8M", "--gpu", "off", "--format", "json", "-o", os.path.join(folder, name), *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, TMPDIR=folder))


def now(folder, sql):
    """A number out of the store that the recorder writes; 0: it is not there."""
    for name in left_in(folder):
        try:
            with sqlite3.connect("file:%s/run.db?mode=ro" % os.path.join(folder, name), uri=True, timeout=5) as db:
                return db.execute(sql).fetchone()[0]
        except sqlite3.Error:
            pass
    return 0


def begins_anew(folder, process):
    """The store is made as large as names and stacks of weeks make it."""
    first = left_in(folder)

    def another():
        assert process.poll() is None, process.communicate()
        try:
            path = os.path.join(folder, first[0], "run.db")
            if os.path.getsize(path) < 17 << 20:
                os.truncate(path, 17 << 20)
        except FileNotFoundError:
            pass
        return left_in(folder) not in ([], first)
    assert until(another), "no other recorder has come"


def ends(process):
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0 and "begins anew" in err, (process.returncode, err)
    return [json.loads(line) for line in out.splitlines()]


def test_a_recorder_goes_on_with_what_another_one_had(folder):
    script, go = os.path.join(folder, "steps.py"), os.path.join(folder, "go")
    with open(script, "w", encoding="utf-8") as file:
        file.write(GOES_ON)
    process = watch(folder, "night.db", "--trigger", "step_time > 80x median", "--after", "100ms", "--step", "steps.py:work", "--",
                    sys.executable, script, go)
    assert until(lambda: now(folder, "SELECT count(*) FROM recorded_step") > 0)
    begins_anew(folder, process)
    assert until(lambda: now(folder, "SELECT count(*) FROM recorded_step") > 30), "the steps of the command are not seen any more"
    open(go, "w", encoding="utf-8").close()
    found = ends(process)
    assert len(found) == 1 and re.match(r"step \d+ took [45](\.\d+)? s, ", found[0]["answer"]), found
    with sqlite3.connect(found[0]["path"]) as db:
        assert db.execute("SELECT min(idx) > 0 FROM recorded_step").fetchone()[0] == 1
    assert not left_in(folder) and not [name for name in os.listdir("/dev/shm") if name.startswith("upgate-%d-" % process.pid)]


def test_a_recorder_goes_on_with_those_that_are_left(folder):
    sleepers = [subprocess.Popen([sys.executable, "-c", "import time\nwhile True:\n    time.sleep(0.01)"]) for _ in range(2)]
    try:
        process = watch(folder, "night.db", "--trigger", "stall > 5s", "--pid", "%d,%d" % tuple(sleeper.pid for sleeper in sleepers))
        assert until(lambda: now(folder, "SELECT count(*) FROM gap") > 0)
        sleepers[0].kill()
        sleepers[0].wait()
        begins_anew(folder, process)
        assert until(lambda: now(folder, "SELECT count(*) FROM gap") > 0)
        assert until(lambda: now(folder, "SELECT group_concat(DISTINCT tgid) FROM process WHERE kind = 'target'") == str(sleepers[1].pid))
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    assert not ends(process)


def test_a_look_goes_on_with_another_recorder(folder):
    """One that is left alone for weeks does not fill $TMPDIR."""
    path = os.path.join(folder, "documents")
    with open(path, "w", encoding="utf-8") as out:
        process = subprocess.Popen([UPGATE, "stalls", "--live", "--pid", str(os.getpid()), "--every", "1s", "--max-size", "8M", "--format", "json"],
                                   stdout=out, stderr=subprocess.PIPE, text=True, env=dict(os.environ, TMPDIR=folder))

    def documents():
        with open(path, encoding="utf-8") as file:
            return len(file.readlines())
    assert until(lambda: documents() > 0), "nothing is shown"
    begins_anew(folder, process)
    before = documents()
    assert until(lambda: documents() > before), "nothing is shown any more"
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 0, err
    assert not left_in(folder) and os.path.getsize(path), err


def test_bad_input(folder):
    own = str(os.getpid())
    for words, says in (((), "--live"), (("--live",), "--pid"), (("run.db", "--live", "--pid", own), "not with RUN.db"),
                        (("--live", "--pid", own, "--all"), "from a store"), (("run.db", "--window", "3s"), "--live"),
                        (("--live", "--pid", "x"), "no process id"), (("--live", "--pid", "4194303"), "4194303"),
                        (("--live", "--pid", own, "--duration", "0s"), "--duration"), (("run.db", "--duration", "0s"), "--live"),
                        (("--live", "--pid", own, "--every", "1ms"), "100 ms"), (("--live", "--pid", own, "-o", __file__), "exists already")):
        done = upgate(*words)
        assert done.returncode == 2 and says in done.stderr, (words, done)
        done = upgate(*words, "--dry-run")
        assert done.returncode == 2 and says in done.stderr, (words, done)
    for words, says in ((("--trigger", "stall > soon", "--pid", own), "no time"), (("--trigger", "stall > 11min", "--pid", own), "to 10 min"),
                        (("--trigger", "latency > 3", "--pid", own), "not known"),
                        (("--trigger", "step_time > 2x median", "--pid", own), "by --step symbol:NAME only"), (("--keep", "3", "--pid", own), "of --trigger"),
                        (("--trigger", "step_time > 1x median", "--pid", own), "not known")):
        done = subprocess.run([UPGATE, "record", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=WAIT_S)
        assert done.returncode == 2 and says in done.stderr, (words, done)


    done = subprocess.run([UPGATE, "record", "--trigger", "stall > 1s", "--pid", own, "-o", os.path.join(folder, "none", "x.db")],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=WAIT_S)
    assert done.returncode and "none/'" in done.stderr and "-o" in done.stderr, done  # now, not at the first stall


def main():
    why = needs.lacks()
    if why:
        print("skipped: " + why)
        return 77
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="upgate-live-test-") as folder:
                test(folder)
            print("%-40s %.1f s" % (name, time.monotonic() - begin), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
