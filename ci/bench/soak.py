#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An hour of `upgate record` beside a trainer that forks workers, loads libraries, makes code as a JIT does, and runs
itself again (soak_trainer.py). Memory of the recorder and of the trainer must be flat: the mean of the last quarter
at most 2 % above that of the second, by when all caches are full. No descriptor may be left, and the ledger must close: what was seen was kept or
dropped, and what was kept is in the store. Needs root. Exit 1 when one of it is missed.

    python3 ci/bench/soak.py [--minutes 60] [--keep STORE]
"""
import argparse
import os
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import time

import rig

DRIFT_LIMIT_PCT = 2.0
MEMORY_LIMIT_MB = 64
FILES_LIMIT = 512 + 8  # SYMBOLS_FILES_MAX; the store and its journal, /proc files
LIVES_PER_QUARTER = 6  # the trainer's memory is a saw: a quarter holds whole teeth
SAMPLES_PER_QUARTER = 120
TRAINER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "soak_trainer.py")
# A kind of record and the table its kept ones are in; the others make no row each.
TABLES = {"bpf.gap": "gap", "bpf.sample": "sample", "bpf.lock": "lock_wait", "bpf.fact": "host_fact"}


def status_kb(pid, key):
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key + ":"))


def cpu_ns(pid):
    with open("/proc/%d/schedstat" % pid) as file:
        return int(file.read().split()[0])


def measure(pid):
    """Memory, descriptors that are no regular files, and those that are."""
    folder, files = "/proc/%d/fd" % pid, 0
    names = os.listdir(folder)
    for name in names:
        try:
            files += stat.S_ISREG(os.stat(os.path.join(folder, name)).st_mode)
        except FileNotFoundError:
            pass  # closed since
    return status_kb(pid, "VmRSS"), len(names) - files, files


def soak(minutes, store):
    """Quarters of measure() of the recorder and of the trainer; the recorder's share of a core, its peak."""
    seconds = minutes * 60
    trainer = subprocess.Popen([sys.executable, TRAINER, "--restart", str(seconds / 4 / LIVES_PER_QUARTER)],
                               start_new_session=True)
    time.sleep(1)
    recorder = subprocess.Popen([rig.UPGATE, "record", "-q", "--pid", str(trainer.pid), "-o", store],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(3)  # loading programs
    begin, begin_cpu_ns = time.monotonic(), cpu_ns(recorder.pid)
    quarters = [[] for _ in range(4)]
    try:
        for i in range(4 * SAMPLES_PER_QUARTER):
            time.sleep(max(0, begin + (i + 1) * seconds / 4 / SAMPLES_PER_QUARTER - time.monotonic()))
            if recorder.poll() is not None or trainer.poll() is not None:
                raise SystemExit("soak: %s ended early: %s" % ("the recorder" if recorder.poll() is not None else
                                                               "the trainer", recorder.communicate(timeout=10)[1].decode()))
            quarters[i // SAMPLES_PER_QUARTER].append(measure(recorder.pid) + measure(trainer.pid))
        share = 100 * (cpu_ns(recorder.pid) - begin_cpu_ns) / 1e9 / (time.monotonic() - begin)
        peak_mb = status_kb(recorder.pid, "VmHWM") / 1024
        recorder.send_signal(signal.SIGINT)
        stderr = recorder.communicate(timeout=60)[1].decode()
        if recorder.returncode:
            raise SystemExit("soak: upgate record ended with %d:\n%s" % (recorder.returncode, stderr))
    finally:
        recorder.kill()
        os.killpg(trainer.pid, signal.SIGKILL)
        trainer.wait()
    return quarters, share, peak_mb


def drift(quarters, column):
    """Of the means, in percent; and the four means."""
    means = [statistics.mean(row[column] for row in quarter) for quarter in quarters]
    return 100 * (means[3] / means[1] - 1), means


def judge(quarters, share, peak_mb, store):
    rows = []
    for column, who, unit in ((0, "recorder", "kB"), (3, "trainer", "kB")):
        change, means = drift(quarters, column)
        rows.append(rig.row("memory of the %s, last quarter against the second" % who, change, DRIFT_LIMIT_PCT, " %"))
        rows.append(rig.row("    quarters: " + ", ".join("%.0f" % mean for mean in means) + " " + unit, means[3]))
    for column, who in ((1, "recorder"), (4, "trainer"), (5, "trainer's files")):
        # The fewest: a leak lifts the floor, and what is now there and now gone does not.
        least = [min(row[column] for row in quarter) for quarter in quarters]
        rows.append(rig.row("descriptors of the %s, last quarter's fewest less the second's" % who, least[3] - least[1], 0))
        rows.append(rig.row("    quarters: " + ", ".join(map(str, least)), least[3]))
    # Programs and libraries of whoever held the trainer up, deleted ones too: a cache that grows with what runs on the machine.
    rows.append(rig.row("files that the recorder has open, at most", max(row[2] for quarter in quarters for row in quarter), FILES_LIMIT))
    rows.append(rig.row("CPU of the recorder", share, None, " %"))
    rows.append(rig.row("    its peak memory", peak_mb, MEMORY_LIMIT_MB, " MB"))
    return rows + judge_ledger(store)


def judge_ledger(store):
    ledger = rig.query(store, "SELECT producer, seen, kept, dropped FROM ledger WHERE seen >= 0")
    records = {row[0]: row for row in ledger if row[0].startswith("bpf.")}
    if not set(TABLES) <= set(records) or not records["bpf.gap"][1]:
        raise SystemExit("soak: the store has no ledger of the capture, or no gap: %s" % ledger)
    rows = []
    for producer, table in TABLES.items():
        _, seen, kept, dropped = records[producer]
        stored = rig.query(store, "SELECT count(*) FROM %s" % table)[0][0]
        rows.append(rig.row("%s: seen and neither kept nor dropped" % producer, abs(seen - kept - dropped), 0))
        rows.append(rig.row("    kept and not in the store, of %d" % kept, abs(kept - stored), 0))
        rows.append(rig.row("    dropped", 100 * dropped / seen if seen else 0, None, " %"))
    seen, dropped = [(row[1], row[3]) for row in ledger if row[0] == "recorder"][0]
    rows.append(rig.row("distinct stacks that could not be kept, of %d" % seen, dropped, 0))
    tables = [row[0] for row in rig.query(store, "PRAGMA integrity_check")]
    rows.append(rig.row("what integrity_check of the store complains of", 0 if tables == ["ok"] else len(tables), 0))
    return rows


def main():
    parser = argparse.ArgumentParser(description="an hour beside a lively trainer")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--keep", metavar="STORE", help="copy the store there")
    args = parser.parse_args()
    if os.geteuid() or not os.path.exists(rig.UPGATE):
        raise SystemExit("soak: needs root, and '%s'" % rig.UPGATE)
    with rig.scratch() as scratch:
        store = os.path.join(scratch, "soak.db")
        quarters, share, peak_mb = soak(args.minutes, store)
        if args.keep:
            shutil.copyfile(store, args.keep)
        rows = judge(quarters, share, peak_mb, store)
    rig.finish("Soak, %g minutes" % args.minutes, rows)


if __name__ == "__main__":
    main()
