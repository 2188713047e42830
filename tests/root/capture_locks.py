#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A reader of /proc/PID/smaps_rollup holds the target's mmap_lock: the wait names it, and samples show what it does.
Stalls that began before the attachment, and those that have not ended at its end. Series of facts to their end."""
import fcntl
import os
import signal
import subprocess
import tempfile
import time

from capture_rig import LOCK_MMAP, MS, NO_OUT, OWNER_READER, SAMPLE_OWNER, UNFINISHED, Capture, Failed, Lines, \
    Subject, check, is_gap, length, main

MIGRATE = 6  # enum ug_fact_what
RESIDENT = 1 << 30  # walked in 10 ms or more: several time slices, and some ticks of 499 Hz
READER = """
import sys, time
while True:
    with open(f"/proc/{sys.argv[1]}/smaps_rollup") as file:
        file.read()
    time.sleep(0.02)
"""


def mmap_lock():
    with Subject("map", RESIDENT) as subject, Capture(subject.pid, options=["-z", "499", "-L"]) as capture, \
            Lines(["python3", "-c", READER, str(subject.pid)]) as reader:
        culprit = reader.process.pid
        lock = capture.wait(lambda r: r["kind"] == "lock" and r["lock_kind"] == LOCK_MMAP and
                            r["owner"]["tid"] == culprit, "a wait for mmap_lock, held by the reader")
        check(lock["owner_flags"] & OWNER_READER >> 12, "a reader's lock:", lock)
        check(length(lock) >= MS, lock)
        check(any("map" in frame for frame in lock["kernel"]), lock["kernel"])  # mmap or munmap
        capture.have(lambda r: is_gap(r, subject.pid) and r["lock"] == lock["lock"] and
                     r["lock_kind"] == LOCK_MMAP and r["owner"]["tid"] == culprit, "the gap of such a wait")
        capture.have(lambda r: r["kind"] == "sample" and r["why"] & SAMPLE_OWNER and r["task"]["tid"] == culprit and
                     any("smaps" in frame for frame in r["kernel"]), "samples of the owner at work")
        capture.have(lambda r: r["kind"] == "state" and r["task"]["tid"] == subject.pid and
                     r["lock_kind"] == LOCK_MMAP and r["owner"]["tid"] == culprit, "a look in the middle of a wait")


def stopped_before():
    """Stopped before we came: the look shows it, the gap has no beginning, and its end names who ended it."""
    with Subject("spin") as subject:
        os.kill(subject.pid, signal.SIGSTOP)
        end = time.monotonic() + 60
        while state_of(subject.pid) != "T": # it stops when it runs
            check(time.monotonic() < end, "the subject does not stop")
            time.sleep(0.01)
        with Capture(subject.pid, options=["-L"]) as capture:
            state = capture.wait(lambda r: r["kind"] == "state" and r["task"]["tid"] == subject.pid,
                                 "the state of the stopped")
            check(state["state"] & 4 and not state["on_cpu"], "state", state)
            check(any("do_signal_stop" in frame for frame in state["kernel"]), state["kernel"])
            time.sleep(0.05)
            os.kill(subject.pid, signal.SIGCONT)
            gap = capture.wait(lambda r: is_gap(r, subject.pid) and r["flags"] & NO_OUT, "a gap without beginning")
            check(gap["waker"]["tid"] == os.getpid() and length(gap) >= 50 * MS, gap)
            capture.have(lambda r: r["kind"] == "fact" and r["what"] == 1 and r["value"][0] == signal.SIGCONT and
                         r["actor"]["tgid"] == os.getpid(), "the signal and its sender")


def lock_before():
    """Waits for a file lock that somebody else has: still waiting when we come, and when we go."""
    with tempfile.NamedTemporaryFile() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiter = subprocess.Popen(["python3", "-c", f"import fcntl; fcntl.flock(open('{file.name}'), fcntl.LOCK_EX)"])
        try:
            end = time.monotonic() + 60
            while "locks_lock" not in wchan(waiter.pid):
                if time.monotonic() > end:
                    raise Failed("the waiter does not wait")
                time.sleep(0.01)
            with Capture(waiter.pid, options=["-l"]) as capture:
                state = capture.wait(lambda r: r["kind"] == "state", "the waiter's state")
                check(state["syscall_nr"] == 73 and any("flock" in frame for frame in state["kernel"]), state)
                time.sleep(0.05)
                records, _ = capture.stop()
                gap = [r for r in records if is_gap(r, waiter.pid)]
                check(len(gap) == 1 and gap[0]["flags"] & UNFINISHED and gap[0]["flags"] & NO_OUT, "unfinished:", gap)
                check(gap[0]["waking_ns"] == 0 and any("flock" in frame for frame in gap[0]["kernel"]), gap)
        finally:
            waiter.kill()
            waiter.wait()


def pages_moved():
    with open("/proc/vmstat", encoding="ascii") as file:
        return dict((words[0], int(words[1])) for words in map(str.split, file)).get("pgmigrate_success", 0)


def end_of_a_series():
    """Pages that are moved in less than the period of a series (100 ms), or in the last one that began: all are told."""
    with Subject("idle") as subject, Capture(subject.pid) as capture:
        before = pages_moved()
        try:
            with open("/proc/sys/vm/compact_memory", "w", encoding="ascii") as file:
                file.write("1")
        except OSError as error:
            print(f"no memory can be compacted here ({error}): not tested")
            return
        moved = pages_moved() - before
        records, counts = capture.stop()
        told = sum(r["value"][0] for r in records if r["kind"] == "fact" and r["what"] == MIGRATE)
        if moved < 1000 or not told:
            print(f"{moved} pages were moved, {told} were told: not tested")
            return
        check(counts["fact"]["dropped"] or told >= moved * 9 // 10, "moved", moved, "told", told)


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(") ")[2][0]


def wchan(pid):
    with open(f"/proc/{pid}/stack", encoding="ascii") as file:
        return file.read()


main(mmap_lock, stopped_before, lock_before, end_of_a_series)
