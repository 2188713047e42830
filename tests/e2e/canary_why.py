#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recordings of both arms at a breach: the calls of the controller do not wait, a recorder that hangs is ended, what fails is a sentence,
who serves a port is found, no lock outlives the controller. With a stand-in for `upgate record`; and, where the machine allows BPF, with
`upgate record` itself on two programs of which one does more, up to the report that says so."""
import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

import rollout_store

BUILD = os.path.abspath(os.environ.get("UPGATE_BUILD", "build/release"))
DRIVE, RENDER, UPGATE = (os.path.join(BUILD, name) for name in ("tests/e2e/why_drive", "tests/e2e/rollout_render", "upgate"))
SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
failures = []


def check(what, good, seen=None):
    if not good:
        failures.append("%s%s" % (what, "" if seen is None else ": " + str(seen)[:600]))
        print("not ok  " + failures[-1])


def script(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def drive(store, program, baseline, candidate, duration=300, grace=60000, kill=500):
    with sqlite3.connect(store) as db:
        db.execute("DELETE FROM rollout_recording")
    done = subprocess.run([DRIVE, store, program, str(duration), str(grace), str(kill), str(baseline), str(candidate)], capture_output=True, text=True, timeout=120, check=False)
    times = [float(word) for word in done.stdout.split()] if done.returncode == 0 else None
    with sqlite3.connect(store) as db:
        rows = db.execute("SELECT arm, path, begin_ns, end_ns, problem FROM rollout_recording ORDER BY arm").fetchall()
    return times, rows, done.stderr


def stand_in(folder, store):
    sample = os.path.join(folder, "sample.db")
    rollout_store.recording(sample, 1, 1, 0)
    good = script(folder, "good", 'echo "$@" >> %s/args; cp %s "$4"; sleep 0.3\n' % (folder, sample))
    times, rows, stderr = drive(store, good, os.getpid(), "/sys/fs/cgroup/x")
    check("both are recorded", len(rows) == 2 and all(row[4] is None for row in rows), (rows, stderr))
    check("beside the store", all(row[1].startswith(store + ".") and os.path.exists(row[1]) for row in rows), rows)
    check("of the recording's own window", all(row[3] - row[2] == 10 * 10 ** 9 for row in rows), rows)
    with open(os.path.join(folder, "args"), encoding="utf-8") as file:
        lines = file.read()
    check("pid and duration", "record --quiet --output" in lines and "--duration 300ms --pid %d" % os.getpid() in lines and "--cgroup /sys/fs/cgroup/x" in lines, lines)

    bad = script(folder, "bad", 'echo "upgate: info: something" >&2; echo "upgate: error: no permission for BPF; run as root" >&2; exit 4\n')
    times, rows, _ = drive(store, bad, 1, 1, duration=60000)
    check("a failure is its own last sentence", len(rows) == 2 and all(row[4] == "error: no permission for BPF; run as root" for row in rows), rows)
    check("and at once", times[2] < 30000, times)

    hang = script(folder, "hang", 'trap "" INT; while :; do sleep 1; done\n')
    times, rows, _ = drive(store, hang, 1, 1, grace=5200)
    check("one that hangs is killed", all(row[4] == "its recording did not end in time and was killed" for row in rows) and times[2] > 6000, (times, rows))
    check("without waiting for it", times[0] < 4000 and times[1] < 4000, times)

    polite = script(folder, "polite", 'trap "cp %s $4; exit 0" INT; i=0; while [ $i -lt 1000 ]; do sleep 0.1; i=$((i+1)); done\n' % sample)
    times, rows, _ = drive(store, polite, 1, 1, grace=5200, kill=60000)  # asked when its trap is set
    check("one that is late is asked, and ends whole", all(row[4] is None for row in rows) and times[2] < 50000, (times, rows))

    crash = script(folder, "crash", "kill -SEGV $$\n")
    _, rows, _ = drive(store, crash, 1, 1)
    check("one that crashes", all("signal 11" in row[4] for row in rows), rows)
    _, rows, _ = drive(store, os.path.join(folder, "nothing"), 1, 1)
    check("no program", all("failed to start" in row[4] for row in rows), rows)
    empty = script(folder, "empty", "exit 0\n")
    _, rows, _ = drive(store, empty, 1, 1)
    check("a success without a store is none", all(row[4] for row in rows), rows)

    with socket.socket() as one, socket.socket(socket.AF_INET6) as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("::1", 0))
        one.listen()
        two.listen()
        open(os.path.join(folder, "args"), "w", encoding="utf-8").close()
        _, rows, _ = drive(store, good, "http://127.0.0.1:%d" % one.getsockname()[1], "http://[::1]:%d/base" % two.getsockname()[1])
        with open(os.path.join(folder, "args"), encoding="utf-8") as file:
            check("who listens on the port", file.read().count("--pid %d" % os.getpid()) == 2, rows)
        free = one.getsockname()[1]
    _, rows, _ = drive(store, good, "http://127.0.0.1:%d" % free, "nonsense")
    check("nobody listens there any more", "listens on port %d" % free in (rows[0][4] or ""), rows)
    check("no target at all", "neither pid nor cgroup nor URL" in (rows[1][4] or ""), rows)


def locks(folder, store):
    """A controller that is killed leaves no recorder that holds its lock, and none that goes on."""
    marker = os.path.join(folder, "pid")
    slow = script(folder, "slow", "echo $$ >> %s; exec sleep 60\n" % marker)
    process = subprocess.Popen([DRIVE, store, slow, "60000", "1000", "500", "1", "1"], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while time.monotonic() < until and not (os.path.exists(marker) and len(open(marker, encoding="utf-8").read().split()) == 2):
        time.sleep(0.05)
    pids = [int(word) for word in open(marker, encoding="utf-8").read().split()]
    for pid in pids:
        held = []
        for fd in os.listdir("/proc/%d/fd" % pid):
            with contextlib.suppress(FileNotFoundError):  # what it closes at this moment it does not keep
                held.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        check("a recorder holds nothing of the controller", not any(store in target for target in held), held)
    process.kill()
    process.wait()
    until = time.monotonic() + 20
    while time.monotonic() < until and any(os.path.exists("/proc/%d" % pid) and "Z" not in open("/proc/%d/stat" % pid, encoding="utf-8").read().split(")")[1][:3] for pid in pids):
        time.sleep(0.05)
    check("and ends with it", not any(os.path.exists("/proc/%d/fd/0" % pid) for pid in pids), pids)


LOOP = """
import time
def usual():
    for i in range(3000):
        i * i
def extra():
    for i in range(3000):
        i ^ 7
print("goes")
while True:
    usual()
    %s
    time.sleep(0.002)
"""


def first():
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)


def real(folder, store):
    """`upgate record` on two programs."""
    if not os.path.exists(UPGATE):
        return "no upgate in the build"
    # Before other programs, as far as one may: those that get a tenth of a CPU ten seconds do not tell apart.
    programs = [subprocess.Popen([sys.executable, "-u", "-c", LOOP % extra], stdout=subprocess.PIPE, preexec_fn=first)
                for extra in ("pass", "[extra() for _ in range(12)]")]
    try:
        for program in programs:
            program.stdout.readline()
        times, rows, stderr = drive(store, UPGATE, programs[0].pid, programs[1].pid, duration=10000, grace=20000, kill=30000)
        if any(row[4] and ("permi" in row[4] or "BPF" in row[4] or "BTF" in row[4]) for row in rows):
            return "this machine allows no BPF: %s" % rows[0][4]
        check("upgate record of both", len(rows) == 2 and not any(row[4] for row in rows), (rows, stderr))
        check("the controller's calls, with it", times[0] < 5000 and times[1] < 5000, times)
        done = subprocess.run([UPGATE, "diff", rows[0][1], rows[1][1]], capture_output=True, text=True, timeout=120, check=False)
        check("upgate diff names the function", done.returncode == 0 and "Python function" in done.stdout and "extra" in done.stdout, done.stdout + done.stderr)
        if os.path.exists(RENDER):
            out = os.path.join(folder, "why.md")
            done = subprocess.run([RENDER, store, out], capture_output=True, text=True, timeout=120, check=False)
            text = open(out, encoding="utf-8").read() if done.returncode == 0 else done.stderr
            check("and so does the rollout's report", "Both arms recorded" in text and "extra" in text, text[:1500])
    finally:
        for program in programs:
            program.kill()
            program.wait()
    return None


def main():
    with open(os.path.join(SOURCE, "contracts/schema.sql"), encoding="utf-8") as file:
        if "CREATE TABLE rollout " not in file.read():
            print("skipped: this schema has no rollouts")
            return 77
    folder = tempfile.mkdtemp(prefix="upgate-why-")
    try:
        store = os.path.join(folder, "r.db")
        rollout_store.running(store)
        stand_in(folder, store)
        locks(folder, store)
        skipped = real(folder, store)
        if skipped:
            print("skipped in part: " + skipped)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("%d failures" % len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
