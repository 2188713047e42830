# SPDX-License-Identifier: Apache-2.0
"""Runs inside a guest of ci/arm64, started by its /init: what of this it is asked for: upgate doctor, the stacks of a Python
program, plants and their innocent twins, tests, and always the kernel's log. One line of JSON for each on the console; judges
nothing but the plants, which judge themselves (ci/plants)."""
import json
import os
import re
import sqlite3
import subprocess
import sys
import time

CI = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, CI)
from emulated import alarms, load_program, run

MARK = "@@ "
# Two threads that block in functions with a name: one in a sleep, one in a lock that stays taken.
WAITER = """
import sys, threading, time
lock = threading.Lock()
end = time.monotonic() + float(sys.argv[1])
def waits_for_it():
    lock.acquire(timeout=0.1)
def one_step():
    waits_for_it()
def loop(step):
    while time.monotonic() < end:
        step()
def sleeps():
    time.sleep(0.08)
lock.acquire()
thread = threading.Thread(target=loop, args=(one_step,))
thread.start()
loop(sleeps)
thread.join()
"""
SECONDS = 300  # of a command
LONG_NS = 50000000  # of its waits, all but those of its start


def tell(what, begin, **values):
    line = MARK + json.dumps(dict(values, what=what, took_s=round(time.monotonic() - begin, 1)))
    with open("/dev/console", "w", encoding="utf-8") as console:
        console.write("\n" + line + "\n")


def tests(work):
    for test in work["tests"]:
        begin = time.monotonic()
        os.makedirs(test["folder"], exist_ok=True)
        os.chdir(test["folder"])
        status, out, errors = run(test["command"], test["seconds"], **test["environment"])
        words = [line.strip() for line in (out + errors).split("\n") if re.match(r"FAIL|    /|    skipped|    ended|  ", line)]
        tell("test", begin, name=test["name"], status=status, words=words[:12] or (out + errors)[-300:].split("\n"))


def doctor(upgate):
    begin = time.monotonic()
    status, out, errors = run([upgate, "doctor", "--format", "json"], SECONDS)
    checks = json.loads(out)["checks"] if out.startswith("{") else []
    words = {check["id"]: [check["status"], check["found"], check["remedy"]] for check in checks}
    tell("doctor", begin, status=status, errors=errors.strip(), words=words)


def python(upgate):
    """Are the frames of blocked Python threads named, and those of the kernel and of the C library below them? Of each
    kind: long gaps in which the name stands, and all long gaps in a sleep or a lock."""
    begin, store = time.monotonic(), "/tmp/python.db"
    status, _, errors = run([upgate, "record", "-o", store, "--", sys.executable, "-S", "-c", WAITER, "20"], SECONDS)
    named, rows = {}, []
    if status == 0:
        db = sqlite3.connect(store)
        db.execute("CREATE TEMP TABLE named AS SELECT k.id, group_concat(f.name, ' < ') AS names FROM stack k, "
                   "json_each(k.frames) j JOIN frame f ON f.id = j.value GROUP BY k.id")
        rows = db.execute("SELECT p.names, k.names, u.names FROM gap g LEFT JOIN named p ON p.id = g.python_stack "
                          "LEFT JOIN named k ON k.id = g.kernel_stack LEFT JOIN named u ON u.id = g.user_stack "
                          "WHERE g.in_ns - g.out_ns > ? AND g.syscall_nr IN (98, 115)", (LONG_NS,)).fetchall() # futex, clock_nanosleep
        expected = (("waits_for_it < one_step < loop", "sleeps < loop < <module>"), ("__arm64_sys_futex", "__arm64_sys_clock_nanosleep"),
                    ("futex", "clock_nanosleep", "lock_timed", "libc.so.6+"))
        for kind, column, names in zip(("python", "kernel", "user"), range(3), expected):
            named[kind] = sum(any(name in (row[column] or "") for name in names) for row in rows)
        named["machine"] = db.execute("SELECT json_extract(host, '$.architecture') FROM run").fetchone()[0]
    tell("python", begin, status=status, errors=errors.strip(), named=named, waits=len(rows), example=rows[len(rows) // 2] if rows else None)


def walks(probe):
    """The frames of both threads, asked for again and again while they block: [right, asked]. Without the recorder's limit
    on its own CPU time, which leaves most stacks of an emulated CPU unread."""
    begin, right, asked, example = time.monotonic(), 0, 0, None
    names = (["sleeps", "loop", "<module>"], ["waits_for_it", "one_step", "loop"])
    with subprocess.Popen([sys.executable, "-S", "-c", WAITER, "30"]) as program:
        time.sleep(8)
        with subprocess.Popen([probe, str(program.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            example = json.loads(reader.stdout.readline() or "{}") # what it has opened
            tids = sorted(int(tid) for tid in os.listdir("/proc/%d/task" % program.pid))
            for tid in tids * 40:
                reader.stdin.write("walk %d\n" % tid)
                reader.stdin.flush()
                answer = json.loads(reader.stdout.readline() or "{}")
                found = [frame[0] for frame in answer.get("frames", [])][:3]
                asked, right, example = asked + 1, right + (found == names[tid != tids[0]]), answer
            reader.stdin.close()
        program.kill()
    tell("walks", begin, right=right, asked=asked, threads=len(tids), example=example)


def main():
    with open("/guest.json", encoding="utf-8") as file:
        work = json.load(file)
    begin = time.monotonic()
    tell("kernel", begin, release=os.uname().release, machine=os.uname().machine, cpus=os.cpu_count(), page=os.sysconf("SC_PAGESIZE"),
         up_s=float(open("/proc/uptime", encoding="ascii").read().split()[0]))
    os.environ["UPGATE_BUILD"] = work["build"]
    upgate = os.path.join(work["build"], "upgate")
    if work["recorder"]:
        doctor(upgate)
        python(upgate)
        walks(os.path.join(work["build"], "tests/root/pystack_probe"))
    tests(work)
    plants = load_program(os.path.join(CI, "plants"))
    plants.PERIODS_LEAST = float("inf")  # an emulated machine keeps none of 300 ms
    for name, innocent in work["plants"]:
        begin = time.monotonic()
        result = plants.run(name, work["window"], innocent)
        if result["verdict"] == plants.QUIET and not innocent: # a busy host emulates slowly: too few stalls in that time
            result = plants.run(name, 4 * work["window"], innocent)
        tell("plant", begin, **result)
    begin = time.monotonic()
    lines, count = alarms()
    tell("log", begin, alarms=lines, lines=count)
    tell("end", begin)


if __name__ == "__main__":
    main()
