# SPDX-License-Identifier: Apache-2.0
"""How `ci/plants --stragglers` makes one rank late from outside: each kind has a function that does it to a running rank and
returns the pids of the culprits. What the rank itself does differently is in reference_models/plants/python/straggler.py."""
import contextlib
import os
import subprocess
import sys
import time

AGENT = """
import sys, time
while True:
    open('/proc/%s/smaps_rollup' % sys.argv[1]).read()
    time.sleep(float(sys.argv[2]))
"""
STOPPER = """
import os, signal, sys, time
pid, hold_s = int(sys.argv[1]), float(sys.argv[2])
while True:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(hold_s)
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.5 - hold_s)
"""
BURNER = "while True: pass"
QUOTA_MS = 4
SWAP_BYTES, TABLE_BYTES = 256 << 20, 32 << 20


class Lacking(Exception):
    """This machine cannot do it; the text says why."""


def python(undo, script, *words):
    return undo.begin([sys.executable, "-c", script, *map(str, words)]).pid


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(text))


def group(undo, controller):
    """A cgroup with that controller below the root; (path, version)."""
    name = "upgate-straggler-%d" % os.getpid()
    for path, version in (("/sys/fs/cgroup/" + controller, 1), ("/sys/fs/cgroup", 2)):
        control = os.path.join(path, "cgroup.subtree_control")
        if version == 1 and not os.path.exists(os.path.join(path, "cgroup.procs")):
            continue
        if version == 2:
            if not os.path.exists(control):
                continue
            with open(control, encoding="ascii") as file:
                if controller not in file.read().split():
                    continue
        path = os.path.join(path, name)
        undo.later("group", path)
        os.mkdir(path)
        return path, version
    raise Lacking("no cgroup controller '%s'" % controller)


# ---- kinds: (undo, job, rank, size) -> pids of culprits ----

def agent(undo, job, rank, size):
    return [python(undo, AGENT, job.pids[rank], size / 1000)]


def stop(undo, job, rank, size):
    undo.later("go on", job.pids[rank])
    return [python(undo, STOPPER, job.pids[rank], size / 1000)]


def contention(undo, job, rank, size):
    """The late rank and its neighbours on the last CPU, the other ranks on the others."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise Lacking("one CPU")
    for one, pid in enumerate(job.pids):
        undo.later("all cpus", pid)
        for tid in os.listdir("/proc/%d/task" % pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(tid), cpus[-1:] if one == rank else cpus[:-1])
    pids = [python(undo, BURNER) for _ in range(size)]
    for pid in pids:
        os.sched_setaffinity(pid, cpus[-1:])
    return pids


def quota(undo, job, rank, size):
    path, version = group(undo, "cpu")
    if version == 1:
        write(os.path.join(path, "cpu.cfs_period_us"), size * 1000)
        write(os.path.join(path, "cpu.cfs_quota_us"), QUOTA_MS * 1000)
    else:
        write(os.path.join(path, "cpu.max"), "%d %d" % (QUOTA_MS * 1000, size * 1000))
    write(os.path.join(path, "cgroup.procs"), job.pids[rank])
    return []


def swap(undo, job, rank, size):
    """The table is made when the job is told; by then the rank is in its group."""
    path = os.path.join(job.folder, "swap")
    undo.later("unlink", path)
    with open(path, "wb") as file:
        os.chmod(path, 0o600)
        os.posix_fallocate(file.fileno(), 0, SWAP_BYTES)
    made = subprocess.run(["mkswap", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    undo.later("swap", path)
    done = subprocess.run(["swapon", path], stderr=subprocess.PIPE, text=True)
    if made.returncode or done.returncode:
        raise Lacking("no swap on a file: " + (made.stderr or done.stderr).strip())
    where, version = group(undo, "memory")
    write(os.path.join(where, "memory.limit_in_bytes" if version == 1 else "memory.high"), TABLE_BYTES // 2)
    if version == 1:
        write(os.path.join(where, "memory.swappiness"), 100)
    write(os.path.join(where, "cgroup.procs"), job.pids[rank])
    return []


def network(undo, job, rank, size):
    undo.later("shaper", job.pids[rank])
    done = subprocess.run(["nsenter", "-t", str(job.pids[rank]), "-n", "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "%dmbit" % size,
                           "burst", "8kb", "latency", "2s"], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Lacking("tc: " + done.stderr.strip())
    return []


def busy(undo, _job, _rank, size):
    """Nobody is late: neighbours on all CPUs, and all ranks take turns with them and with each other."""
    return [python(undo, BURNER) for _ in range(size)]


OUTSIDE = {"busy": busy, "agent": agent, "stop": stop, "contention": contention, "quota": quota, "swap": swap, "network": network}


def plant(undo, job, kind, rank, size):
    """Makes the rank late; the culprits' pids."""
    pids = OUTSIDE[kind](undo, job, rank, size) if kind in OUTSIDE else []
    job.tell({"kind": kind, "rank": rank, "ms": size})
    time.sleep(3 if kind in ("gc", "loader", "swap") else 1)  # what is made once, and the first steps with it
    return pids
