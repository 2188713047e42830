#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every plant once through ci/plants: upgate must name its cause and culprit. A plant that does not stall its
victim on this machine proves nothing and fails nothing. Some at a time, as most of them wait; a wrong answer is tried again, twice,
alone, as other load on a small machine is a cause of its own, and one plant in twenty may stay wrong. Without upgate's capture
(root, BTF) what the plants say about themselves is still tested."""
import importlib.machinery
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WINDOW_S, TRIES, AT_A_TIME = 3.0, 3, 3
# Of the 20 minutes the test may take. What is left then is tried once only.
RETRY_UNTIL_S = 700
# One in twenty may be wrong (ci/bench/stalls.py counts them), but never this one.
WRONG_SHARE, ALWAYS = 0.05, "smaps"
CLEAN_S = 30
README = os.path.join(ROOT, "reference_models", "plants", "README.md")


def load_plants():
    """ci/plants is a program without an ending: loaded by its path."""
    loader = importlib.machinery.SourceFileLoader("plants", os.path.join(ROOT, "ci", "plants"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("plants", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def check_lists(plants):
    """The program, the answers and the README know the same plants."""
    named = subprocess.run([plants.PLANT, "--list"], check=True, stdout=subprocess.PIPE).stdout.decode().split()
    assert sorted(named) == sorted(plants.answers()), "plant --list and answers.json differ: %s" % (
        set(named) ^ set(plants.answers()))
    with open(README, encoding="utf-8") as file:
        assert plants.table() in file.read(), "README.md of the plants is not what ci/plants --list prints"


def check_judge(plants):
    """The judge itself: each of these must be found wrong, and the first one right."""
    who = {"victim_pid": 10, "culprit_pids": [11], "pids": [9, 10, 11, 98]}
    stall = {"cause": "smaps_read", "culprit": {"pid": 11, "comm": "pl-smaps"}, "period_ns": 310000000,
             "total_ns": 500000000}
    answer = plants.answers()["smaps"]

    def judged(**changed):
        return plants.judge(answer, {"stalls": [dict(stall, **changed)]}, who, 5.0)
    assert judged() == "", judged()
    assert judged(cause="fork_large") and judged(culprit=None) and judged(period_ns=None)
    assert judged(period_ns=340000000), "13 % off"
    assert judged(culprit={"pid": 12, "comm": "pl-smaps"}) and judged(culprit={"pid": 11, "comm": "pl-busy"})
    assert plants.judge(answer, {"stalls": []}, who, 5.0)
    assert plants.judge_innocent({"stalls": [stall]}, 5.0)
    outside = {"cause": "cpu_contention", "culprit": {"pid": 99, "comm": "pl-busy"}}
    inside = {"cause": "cpu_contention", "culprit": {"pid": 98, "comm": "pl-busy"}}
    for queued_ns, left in ((2000000000, [inside, stall]), (100000000, [outside, inside, stall])):
        document = plants.without_others({"stalls": [outside, inside, stall]}, who,
                                         {"queued_ns": queued_ns, "stolen_s": 0.0, "seconds": 5.0})
        assert document["stalls"] == left, document
    assert not plants.judge_innocent({"stalls": [dict(stall, total_ns=40000000)]}, 5.0), "below 1 % of the window"
    assert not plants.judge_innocent({"stalls": [dict(stall, culprit=None)]}, 5.0)


def left_over(director, pids):
    """What a plant that is gone left behind."""
    found = ["process %d" % pid for pid in pids if os.path.exists("/proc/%d" % pid)]
    name = "upgate-plant-%d" % director
    for folder in (os.environ.get("TMPDIR") or "/var/tmp", "/sys/fs/cgroup"):
        for path, names, _ in os.walk(folder):
            if name in names:
                found.append(os.path.join(path, name))
    with open("/proc/self/mounts", encoding="utf-8") as file:
        return found + [line for line in file if name in line]


def check_clean(plants):
    """Killed, even while its victim is frozen or waits for a filesystem, a plant leaves nothing behind."""
    for name, number in (("freezer", signal.SIGKILL), ("freezer-v1", signal.SIGKILL), ("fuse", signal.SIGKILL),
                         ("quota", signal.SIGINT), ("mutex", signal.SIGTERM)):
        plant = plants.Plant(name, 60)
        if not plant.who:
            assert plant.end() == 77, plant.errors
            print("clean %-10s skipped: %s" % (name, plant.errors))
            continue
        time.sleep(0.5)
        director = plant.process.pid
        pids = [plant.who["victim_pid"]] + plant.who["culprit_pids"]
        plant.process.send_signal(number)
        deadline = time.monotonic() + CLEAN_S
        plant.end()
        while left_over(director, pids):
            assert time.monotonic() < deadline, "%s, ended by %d, left %s" % (name, number,
                                                                              left_over(director, pids))
            time.sleep(0.1)
        print("clean %-10s after signal %d" % (name, number))


def cannot_capture(plants):
    """Why upgate cannot record here, or ''."""
    if os.geteuid() != 0:
        return "not root"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "this kernel has no BTF"
    for verb in ("record", "stalls"):
        if subprocess.run([plants.UPGATE, verb, "--help"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode != 0:
            return "upgate was built without '%s'" % verb
    doctor = subprocess.run([plants.UPGATE, "doctor", "--json"], stdout=subprocess.PIPE).stdout
    checks = {check["id"]: check for check in json.loads(doctor)["checks"]}
    if checks["kernel-symbols"]["status"] != "ok":
        return "kernel functions have no names here: " + checks["kernel-symbols"]["found"]
    return ""


def main():
    plants = load_plants()
    check_lists(plants)
    check_judge(plants)
    check_clean(plants)
    why = cannot_capture(plants)
    if why:
        print("skipped: %s" % why)
        return 77
    begin, failed = time.monotonic(), []
    answers = plants.answers()
    runs = [(name, False) for name in answers] + [(name, True) for name in answers if answers[name].get("innocent")]

    def right(name, innocent):
        result = plants.run(name, WINDOW_S, innocent)
        print(("innocent " if innocent else "") + plants.describe(result), flush=True)
        return result["verdict"] not in (plants.WRONG, plants.FAILED)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        again = [run for run, ok in zip(runs, list(pool.map(lambda run: right(*run), runs))) if not ok]
    for name, innocent in again:
        tries = TRIES - 1 if time.monotonic() - begin < RETRY_UNTIL_S else 0
        if not any(right(name, innocent) for _ in range(tries)):
            failed.append(name + (" (innocent)" if innocent else ""))
    print("%d runs, %.0f s, failed: %s" % (len(runs), time.monotonic() - begin, ", ".join(failed) or "none"))
    return 1 if len(failed) > WRONG_SHARE * len(runs) or ALWAYS in failed else 0


if __name__ == "__main__":
    sys.exit(main())
