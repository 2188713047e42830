#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python frames walked by the BPF programs, for every CPython 3.8 to 3.14 that is found, side by side in one recording: at
switch-outs they are what the interpreter itself says (sys._current_frames): function, file and line of every frame; at samples
they are of the thread's own nest of functions, at their moment; the holder of the GIL and the collector are told; a child by
fork has frames of its own; and who has too many threads is read from outside. Needs root and a kernel that permits the capture.

    python_frames.py [CASE...]"""
import functools
import json
import os
import platform
import shlex
import sys

import pystack_live
import record_live
from record_live import Skip, check, check_whole

SUBJECT = os.path.join(record_live.SOURCE, "tests", "root", "python_frames_subject.py")
LATE = 64  # UG_SAMPLE_LATE
FOUND_NS = 100000000  # after the first stack of a process all have theirs
OF_GAP = "FROM gap g JOIN thread t ON t.id = g.thread_id JOIN process p ON p.id = t.process_id "
OF_SAMPLE = "FROM sample s JOIN thread t ON t.id = s.thread_id JOIN process p ON p.id = t.process_id "
UNKNOWN = ["[unknown]", None, None]


@functools.lru_cache(maxsize=None)
def all_of_them():
    """[(version, path)]"""
    if platform.machine() != "x86_64":
        raise Skip("frames are walked in the kernel on x86-64 only")
    found = [(version, python) for python, version in pystack_live.interpreters([])]
    if not found:
        raise Skip("no CPython 3.8 to 3.14 in PATH or under pyenv")
    return found


def one_of_each():
    """Of each way in which they keep their frames."""
    ways = {tuple(int(version.split(".")[1]) > last for last in (10, 12)): (version, python) for version, python in all_of_them()}
    return list(ways.values())


def record_once(case, pythons, what, seconds):
    told = {version: case.path("told-%s.json" % version) for version, _ in pythons}
    each = [" ".join(shlex.quote(word) for word in (python, SUBJECT, what, str(seconds), told[version]))
            for version, python in pythons]
    if os.path.exists(case.db):
        os.unlink(case.db)
    check(case.run("--sample-hz", "499", "--", "sh", "-c", " & ".join(each) + " & wait"), 0)
    check_whole(case)
    answers = []
    for version, path in told.items():
        with open(path) as file:
            answers.append((version, json.load(file)))
    return answers


def record(case, pythons, what):
    """What each told of itself: [(version, told)]. On a busy machine an interpreter is found late, or is late itself with what
    it is to do: then they run longer."""
    for seconds in (2, 6, 18):
        answers = record_once(case, pythons, what, seconds)
        ready = {version: max(found_ns(case, told.get("child", told["pid"])), told.get("slept_ns", 0)) - told["began_ns"]
                 for version, told in answers}
        if max(ready.values()) < seconds * 1e9 / 4:
            return answers
    raise AssertionError("ready after (ns) %s" % ready)


def stacks(case):
    """Of each stack the frames [function, file, line]."""
    names = {row[0]: list(row[1:]) for row in case.rows("SELECT id, name, module, line FROM frame")}
    return {stack: [names[frame] for frame in json.loads(frames)]
            for stack, frames in case.rows("SELECT id, frames FROM stack WHERE kind = 'python'")}


def walked(case):
    """How many stacks came with their records, and how many records could have had one."""
    wanted, detail = case.rows("SELECT seen, detail FROM ledger WHERE producer = 'pystack'")[0]
    return int(detail.split()[0]), wanted


def found_ns(case, pid):
    """When the interpreter had been found."""
    first = case.value("SELECT min(g.out_ns) " + OF_GAP + "WHERE p.tgid = ? AND g.python_stack", pid)
    return float("inf") if first is None else first + FOUND_NS


def test_switch_outs(case):
    """Of each wait that lasted when the interpreter was asked. A function that has gone is [unknown], in its place."""
    answers = record(case, all_of_them(), "waits")
    known = stacks(case)
    for version, told in answers:
        gaps = {}
        for tid, begin, end, stack in case.rows("SELECT t.tid, g.out_ns, g.in_ns, g.python_stack " + OF_GAP + "WHERE p.tgid = ?",
                                                told["pid"]):
            gaps.setdefault(tid, []).append((begin, end, stack))
        first = found_ns(case, told["pid"])
        right, unknown = [], 0
        for waiter in told["stacks"]:
            begin, _, stack = next((gap for gap in gaps.get(waiter["tid"], []) if gap[0] <= waiter["at_ns"] <= gap[1]),
                                   (first, 0, None))
            if begin < first:
                continue
            want = [[pystack_live.cut(function), pystack_live.cut(file), line] for function, file, line, _ in waiter["frames"]]
            got = known.get(stack, [])
            if waiter["nest"] == "gone":
                unknown += got == [UNKNOWN] + want[1:]
            else:
                right.append(got == want)
            # Without its names (the machine is busy, the process has ended) it is not told: neither right nor wrong.
            told_so = [wanted if one == UNKNOWN else one for one, wanted in zip(got, want)]
            assert not got or (len(got) == len(want) and told_so == want), (version, waiter["nest"], got, want)
        assert len(right) >= 20 and sum(right) >= 0.9 * len(right), (version, sum(right), len(right))
        assert unknown > 0, (version, unknown)
    in_kernel, wanted = walked(case)
    assert in_kernel >= 0.9 * wanted, (in_kernel, wanted)


def test_samples_and_the_gil(case):
    answers = record(case, all_of_them(), "spins")
    known = stacks(case)
    for version, told in answers:
        # While the main thread sleeps it has no GIL: what one of the others waits for is the other's.
        begin, end = case.rows("SELECT g.out_ns, g.in_ns " + OF_GAP + "WHERE p.tgid = ? AND t.tid = p.tgid "
                               "AND g.out_ns BETWEEN ? AND ? ORDER BY g.in_ns - g.out_ns DESC LIMIT 1",
                               told["pid"], told["slept_ns"], told["woke_ns"])[0]
        begin = max(begin, found_ns(case, told["pid"]))
        tids = [thread["tid"] for thread in told["stacks"]]
        below = {thread["tid"]: [frame[0] for frame in thread["frames"]] for thread in told["stacks"]}
        below = {tid: names[names.index("spin"):] for tid, names in below.items()}
        samples = case.rows("SELECT t.tid, s.why, s.python_stack " + OF_SAMPLE + "WHERE s.at_ns BETWEEN ? AND ? "
                            "AND t.tid IN (?, ?)", begin, end, *tids)
        right = on_the_way = 0
        for tid, why, stack in samples:
            names = [frame[0] for frame in known.get(stack, [])]
            if names and "spin" not in names:
                on_the_way += 1
                continue
            assert not why & LATE, (version, names)
            assert not names or names in [nest + below[tid] for nest in ([], ["spin_middle"], ["spin_leaf", "spin_middle"])], \
                (version, names, below)
            right += bool(names)
        assert len(samples) > 50 and right + on_the_way >= 0.9 * len(samples) and on_the_way < 0.2 * len(samples), \
            (version, right, on_the_way, len(samples))
        waits = case.rows("SELECT t.tid, o.tid, g.python_stack " + OF_GAP + "LEFT JOIN thread o ON o.id = g.owner_thread "
                          "WHERE g.out_ns BETWEEN ? AND ? AND t.tid IN (?, ?)", begin, end, *tids)
        waits = [(tid, owner) for tid, owner, stack in waits if known.get(stack) and known[stack][0][0] == "[gil]"]
        # Nobody has it where one that gave it up waits until the other has taken it.
        held = [(tid, owner) for tid, owner in waits if owner]
        wrong = [(tid, owner) for tid, owner in held if owner == tid or owner not in tids]
        assert not wrong, (version, tids, wrong[:5], len(wrong), len(held))
        assert len(held) > 20 and len(held) > 0.25 * len(waits), (version, len(held), len(waits))


def test_collections(case):
    answers = record(case, one_of_each(), "collects")
    known = stacks(case)
    for version, told in answers:
        rows = case.rows("SELECT s.python_stack " + OF_SAMPLE + "WHERE s.why & 1 AND s.python_stack AND p.tgid = ?", told["pid"])
        leaves = [known[stack][0][0] for stack, in rows if known[stack]]
        assert leaves.count("[gc]") > 0.5 * len(leaves) > 20, (version, leaves.count("[gc]"), len(leaves))


def naps(case, known, pid):
    """Stacks of threads that sleep in leaf_nap, as far as they have one, and how many have none."""
    rows = case.rows("SELECT g.python_stack " + OF_GAP + "WHERE g.in_ns - g.out_ns > 2500000 AND p.tgid = ?", pid)
    found = [[frame[0] for frame in known[stack]] for stack, in rows if stack and known[stack]]
    return [names for names in found if names[0] == "leaf_nap"], len(rows)


def test_fork(case):
    answers = record(case, one_of_each(), "forks")
    known = stacks(case)
    for version, told in answers:
        found, count = naps(case, known, told["child"])
        assert count > 50 and len(found) > 0.5 * count, (version, len(found), count)
        assert all(names[:3] == ["leaf_nap", "naps", "forks"] for names in found), (version, found[:3])


def test_deep(case):
    """As much of it as there is room for, from the leaf on."""
    answers = record(case, one_of_each(), "deep")
    known = stacks(case)
    for version, told in answers:
        found, count = naps(case, known, told["pid"])
        assert len(found) > 0.5 * count > 50, (version, len(found), count)
        assert all(names[:2] == ["leaf_nap", "naps"] and names.count("deeper") in (125, 254) for names in found), \
            (version, found[0])


def test_crowd(case):
    """More threads than are looked through: those that are not found are read from outside, within a share of one CPU that
    all have together. So there is one at a time."""
    pythons = one_of_each()
    for python in {pythons[0], pythons[-1]}:
        (version, told), = record(case, [python], "crowd")
        found, count = naps(case, stacks(case), told["pid"])
        assert count > 1000 and len(found) > 0.2 * count, (version, len(found), count)
        assert all(names[:2] == ["leaf_nap", "naps"] for names in found), (version, found[:3])


if __name__ == "__main__":
    sys.exit(record_live.main(globals()))
