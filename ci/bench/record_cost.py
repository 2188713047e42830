#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the recorder itself takes: CPU and memory of `upgate record` beside a target that makes 50,000 switches a
second (switcher, built beside this file), and beside a Python program with threads that sleep and compute. With
--flood: a threshold so low that nearly every switch is an event, and a look at the ledger: kept + dropped must be
seen. --mappings: what a mapping of code or data costs the target, and the recorder beside one that maps code as fast as it
can (mapper, built beside this file). --live: `upgate stalls --live` beside eight processes that make as many switches together,
recorder and screen. Needs root. Exit 1 when a limit is missed.

    python3 ci/bench/record_cost.py [--seconds S]
    python3 ci/bench/record_cost.py --flood [--seconds 600]
    python3 ci/bench/record_cost.py --mappings [--seconds S]
    python3 ci/bench/record_cost.py --live [--seconds S]
"""

import argparse
import os
import signal
import subprocess
import sys
import time

import rig

CPU_LIMIT_PCT = 2.0
MEMORY_LIMIT_MB = 64
STORM_CPU_LIMIT_PCT = 5.0
LIVE_CPU_LIMIT_PCT = 3.0
RANKS = 8
SWITCHES_PER_S = 50_000
FLOOD_EVENTS_PER_S = 200_000
MAPPER = os.path.join(rig.BUILD, "ci/bench/mapper")
MAPPER_ROUNDS = 5
SWITCHER = os.path.join(rig.BUILD, "ci/bench/switcher")

PYTHON_TARGET = """
import threading, time
def work(n):
    while True:
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            sum(range(200))
        time.sleep(0.005 * n)
for i in range(1, 5):
    threading.Thread(target=work, args=(i,), daemon=True).start()
time.sleep(3600)
"""


def cpu_ns(pid):
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, task)) as file:
            total += int(file.read().split()[0])
    return total


def peak_mb(pid):
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def record(scratch, name, target, seconds, options=()):
    """Recorder's share of a core between its third second and its end, its peak memory, and its store."""
    store = os.path.join(scratch, name + ".db")
    process = subprocess.Popen([rig.UPGATE, "record", "-q", "--pid", str(target), "-o", store, *options],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(3)  # loading programs, reading symbols
    begin_ns, begin = cpu_ns(process.pid), time.monotonic_ns()
    time.sleep(seconds)
    share = 100 * (cpu_ns(process.pid) - begin_ns) / (time.monotonic_ns() - begin)
    memory = peak_mb(process.pid)
    process.send_signal(signal.SIGINT)
    stderr = process.communicate()[1].decode()
    if process.returncode:
        raise SystemExit("upgate record ended with %d:\n%s" % (process.returncode, stderr))
    return share, memory, store


def kill(process):
    process.kill()
    process.wait()


def cost(args, scratch):
    rows = []
    switcher = subprocess.Popen([SWITCHER, str(SWITCHES_PER_S), str(args.seconds + 30)], stdout=subprocess.DEVNULL)
    share, memory, _ = record(scratch, "switches", switcher.pid, args.seconds)
    kill(switcher)
    rows.append(rig.row("recorder beside %d switches/s of its target" % SWITCHES_PER_S, share, CPU_LIMIT_PCT, " %"))
    rows.append(rig.row("    its peak memory", memory, MEMORY_LIMIT_MB, " MB"))
    python = subprocess.Popen([sys.executable, "-c", PYTHON_TARGET])
    time.sleep(1)
    share, memory, _ = record(scratch, "python", python.pid, args.seconds)
    kill(python)
    # Frames of each of its waits are walked: more than the limit, which is for what a switch costs.
    rows.append(rig.row("recorder of a Python program with 5 threads, 450 waits/s", share, None, " %"))
    rows.append(rig.row("    its peak memory", memory, MEMORY_LIMIT_MB, " MB"))
    return rows


def flood(args, scratch):
    switcher = subprocess.Popen([SWITCHER, str(FLOOD_EVENTS_PER_S), str(args.seconds + 60), "1"], stdout=subprocess.DEVNULL)
    share, memory, store = record(scratch, "flood", switcher.pid, args.seconds, ("--threshold", "1ns"))
    kill(switcher)
    ledger = rig.query(store, "SELECT producer, kind, seen, kept, dropped FROM v_ledger WHERE producer LIKE 'bpf.%'")
    if not ledger:
        raise SystemExit("record_cost: the store has no ledger of the capture")
    seen = sum(row[2] for row in ledger)
    dropped = sum(row[4] for row in ledger)
    unexplained = sum(abs(row[2] - row[3] - row[4]) for row in ledger)
    stored = rig.query(store, "SELECT count(*) FROM gap")[0][0]
    return [
        rig.row("events a second, %.0f s long" % args.seconds, seen / args.seconds),
        rig.row("    dropped, all counted", 100 * dropped / seen, None, " %"),
        rig.row("    seen and neither kept nor dropped", unexplained, 0),
        rig.row("    gaps in the store", stored),
        rig.row("    bytes a gap", os.path.getsize(store) / max(stored, 1)),
        rig.row("    CPU of the recorder", share, None, " %"),
        rig.row("    its peak memory", memory, MEMORY_LIMIT_MB, " MB"),
    ]


def children_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(word) for word in file.read().split()]


def live(args, scratch):
    ranks = [subprocess.Popen([SWITCHER, str(SWITCHES_PER_S // RANKS), str(2 * args.seconds + 60), str(i % os.cpu_count())],
                              stdout=subprocess.DEVNULL) for i in range(RANKS)]
    pids = ",".join(str(rank.pid) for rank in ranks)
    alone, _, store = record(scratch, "ranks", pids, args.seconds)  # what of it `upgate record` takes as well
    waits = rig.query(store, "SELECT count(*) FROM gap")[0][0] / (args.seconds + 3)
    process = subprocess.Popen([rig.UPGATE, "stalls", "--live", "--pid", pids, "--format", "json"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(2):  # it looks at what there is
        if not process.stdout.readline():
            raise SystemExit("upgate stalls --live: %s" % process.stderr.read().decode())
    both = [process.pid] + children_of(process.pid)
    begin, begin_ns = [cpu_ns(pid) for pid in both], time.monotonic_ns()
    time.sleep(args.seconds)
    took = time.monotonic_ns() - begin_ns
    shares = [100 * (cpu_ns(pid) - before) / took for pid, before in zip(both, begin)]
    memory = sum(peak_mb(pid) for pid in both)
    process.send_signal(signal.SIGINT)
    process.communicate()
    for rank in ranks:
        kill(rank)
    return [
        rig.row("upgate stalls --live beside %d ranks, %d switches/s" % (RANKS, SWITCHES_PER_S), sum(shares), LIVE_CPU_LIMIT_PCT, " %"),
        rig.row("    of it what looks and shows", shares[0], None, " %"),
        rig.row("    peak memory of both", memory, None, " MB"),
        rig.row("upgate record beside the same", alone, None, " %"),
        rig.row("    waits of 1 ms and longer a second", waits),
    ]


def mapping_ns(kind, seconds=1):
    return float(subprocess.run([MAPPER, kind, str(seconds)], stdout=subprocess.PIPE, check=True).stdout.split()[1])


def mappings(args, scratch):
    """The target's cost by turns with and without a recording of another process: the records are of the whole machine."""
    rows, took = [], {}
    for _ in range(MAPPER_ROUNDS):
        for recorded in (False, True):
            other = subprocess.Popen(["sleep", "3600"])
            recorder = recorded and subprocess.Popen([rig.UPGATE, "record", "-q", "--pid", str(other.pid), "-o",
                                                      os.path.join(scratch, "other-%d.db" % other.pid)])
            time.sleep(2)
            for kind in ("code", "data"):
                took.setdefault((kind, recorded), []).append(mapping_ns(kind))
            if recorder:
                recorder.send_signal(signal.SIGINT)
                recorder.wait()
            kill(other)
    for kind, what in (("code", "a page of a file, as code"), ("data", "256 KiB of memory")):
        plain, seen = (min(took[kind, recorded]) for recorded in (False, True))
        rows.append(rig.row("mmap and munmap of %s, nobody records" % what, plain, None, " ns"))
        rows.append(rig.row("    more while somebody does", seen - plain, None, " ns"))
    storm = subprocess.Popen([MAPPER, "code", str(args.seconds + 30)], stdout=subprocess.PIPE)
    share, memory, store = record(scratch, "storm", storm.pid, args.seconds)
    kill(storm)
    ledger = rig.query(store, "SELECT seen, kept, dropped FROM v_ledger WHERE producer = 'symbols' AND kind = 'mappings'")
    rows.append(rig.row("recorder beside a target that maps code as fast as it can", share, STORM_CPU_LIMIT_PCT, " %"))
    rows.append(rig.row("    its peak memory", memory, MEMORY_LIMIT_MB, " MB"))
    if ledger:
        rows.append(rig.row("    mappings told", ledger[0][0]))
        rows.append(rig.row("    lost, all counted", ledger[0][2]))
    return rows


def main():
    parser = argparse.ArgumentParser(description="cost of the recorder")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--flood", action="store_true", help="200,000 events a second instead; wants --seconds 600")
    parser.add_argument("--mappings", action="store_true", help="what mapping code costs, and a storm of it")
    parser.add_argument("--live", action="store_true", help="upgate stalls --live")
    args = parser.parse_args()
    rig.need_build()
    if os.geteuid():
        raise SystemExit("record_cost: needs root")
    with rig.scratch() as scratch:
        rows = (flood if args.flood else mappings if args.mappings else live if args.live else cost)(args, scratch)
    rig.finish("What the recorder takes", rows)


if __name__ == "__main__":
    main()
