# SPDX-License-Identifier: Apache-2.0
"""The Python side of a plant: names, CPUs, and the counters of struct plant_share (plant.h knows their
offsets too). The step is the one of plant_victim.c: 6 ms of work, the operation, 1 ms of sleep."""
import ctypes
import mmap
import os
import struct
import sys
import time

STALL_NS = 5000000
WORK_S = 0.006
STOP, READY, STEPS, STALLS, TOTAL, LONGEST, ACTS, CULPRIT, QUEUED = 0, 4, 8, 16, 24, 32, 40, 48, 56
SIGKILL, PR_SET_PDEATHSIG = 9, 1

share = mmap.mmap(int(os.environ["PLANT_SHARE"]), mmap.PAGESIZE)
cpu_victim = int(os.environ["PLANT_CPU"])
cpu_other = int(os.environ["PLANT_CPU_OTHER"])
guilty = sys.argv[-1] != "innocent"


def name(comm):
    """Names the calling thread; of a process, its main one. Not by prctl: it would name the caller only too."""
    with open("/proc/thread-self/comm", "w") as file:
        file.write(comm)


def pin(cpu):
    os.sched_setaffinity(0, {cpu})


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)


def stopped():
    return struct.unpack_from("I", share, STOP)[0] != 0


def is_ready():
    return struct.unpack_from("I", share, READY)[0] != 0


def add(offset, value):
    struct.pack_into("Q", share, offset, struct.unpack_from("Q", share, offset)[0] + value)


def blame(pid):
    struct.pack_into("I", share, CULPRIT, pid)


def count(late_ns):
    add(STEPS, 1)
    if late_ns >= STALL_NS:
        add(STALLS, 1)
        add(TOTAL, late_ns)
        struct.pack_into("Q", share, LONGEST, max(late_ns, struct.unpack_from("Q", share, LONGEST)[0]))


def work(rounds):
    x = 1
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0x7fffffff
    return x


def least_ns(rounds):
    least = None
    for _ in range(10):
        begin = time.monotonic_ns()
        work(rounds)
        took = time.monotonic_ns() - begin
        least = took if least is None else min(least, took)
    return least


def queued_ns(file):
    """Time in the run queue so far."""
    return int(os.pread(file.fileno(), 96, 0).split()[1]) if file else 0


def schedstat():
    try:
        return open("/proc/thread-self/schedstat", "rb", buffering=0)
    except OSError:
        return None


def steps(operation=None):
    """The loop of a victim's main thread, until the plant stops."""
    pin(cpu_victim)
    rounds = int(20000 * WORK_S * 1e9 / least_ns(20000))
    usual_ns = least_ns(rounds)
    file = schedstat()
    struct.pack_into("I", share, READY, 1)
    while not stopped():
        queued, begin = queued_ns(file), time.monotonic_ns()
        work(rounds)
        if operation:
            operation()
        late_ns = time.monotonic_ns() - begin - usual_ns
        queued = queued_ns(file) - queued
        add(QUEUED, queued)
        count(late_ns - queued)
        time.sleep(0.001)


_due = [0.0]


def due():
    """True once in 400 ms, as plant_due()."""
    now = time.monotonic()
    is_due = 0.0 < _due[0] <= now
    if is_due or not _due[0]:
        _due[0] = now + 0.4
    return is_due


def every(period_s, act):
    """Calls act() by an absolute clock, until the plant stops, once the victim takes its steps."""
    while not is_ready():
        time.sleep(0.001)
    due = time.monotonic()
    while not stopped():
        act()
        add(ACTS, 1)
        due = max(due + period_s, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
