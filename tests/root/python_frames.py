#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python frames walked by the BPF programs, for every CPython 3.8 to 3.14 that is found: at switch-outs they are what the
interpreter itself says (sys._current_frames): function, file and line of every frame; at samples they are of the thread's own
nest of functions, at their moment; the holder of the GIL and the collector are told; a child by fork has frames of its
own; and who has too many threads is read from outside. Needs root and a kernel that permits the capture.

    python_frames.py [CASE...]"""
import json
import os
import platform
import sys

import pystack_live
import record_live
from record_live import Skip, check, check_whole

SUBJECT = os.path.join(record_live.SOURCE, "tests", "root", "python_frames_subject.py")
LATE = 64  # UG_SAMPLE_LATE
SLEEPS_NS = 5000000  # a waiter waits for 10 ms and more; a shorter gap may lie before its call, on its way there


def record(case, python, what, seconds="2"):
    if platform.machine() != "x86_64":
        raise Skip("frames are walked in the kernel on x86-64 only")
    told = case.path("told.json")
    if os.path.exists(case.db):
        os.unlink(case.db)
    check(case.run("--sample-hz", "499", "--", python, SUBJECT, what, seconds, told), 0)
    check_whole(case)
    with open(told) as file:
        return json.load(file)


def stacks(case):
    """Of each stack the frames [function, file, line]."""
    names = {row[0]: list(row[1:]) for row in case.rows("SELECT id, name, module, line FROM frame")}
    return {stack: [names[frame] for frame in json.loads(frames)]
            for stack, frames in case.rows("SELECT id, frames FROM stack WHERE kind = 'python'")}


def walked(case):
    """How many stacks came with their records, and how many records could have had one."""
    wanted, detail = case.rows("SELECT seen, detail FROM ledger WHERE producer = 'pystack'")[0]
    return int(detail.split()[0]), wanted


def found_ns(case):
    """When the interpreter had been found."""
    return case.value("SELECT min(out_ns) FROM gap WHERE python_stack") + 100000000


def each(case, what, seconds="2", every=False):
    """Every interpreter, or one of each way in which they keep their frames."""
    found = pystack_live.interpreters([])
    if not found:
        raise Skip("no CPython 3.8 to 3.14 in PATH or under pyenv")
    ways = {tuple(minor > last for last in (10, 12)): (python, version) for python, version in found
            for minor in [int(version.split(".")[1])]}
    for python, version in found if every else ways.values():
        yield version, record(case, python, what, seconds), stacks(case)


def test_switch_outs(case):
    for version, told, known in each(case, "waits", every=True):
        gaps = {(tid, fd): (stack, begin) for tid, fd, stack, begin in case.rows(
            "SELECT t.tid, g.syscall_arg0, g.python_stack, g.out_ns FROM gap g JOIN thread t ON t.id = g.thread_id "
            "WHERE g.syscall_nr = 0 AND g.in_ns - g.out_ns > ? ORDER BY g.out_ns", SLEEPS_NS)}
        first = found_ns(case)
        right = []
        for waiter in told:
            stack, begin = gaps.get((waiter["tid"], waiter["fd"]), (None, 0))
            if begin < first:
                continue
            want = [[pystack_live.cut(function), pystack_live.cut(file), line] for function, file, line, _ in waiter["frames"]]
            right.append(known.get(stack) == want)
            # A line that could not be read any more on a busy machine is not told: neither right nor wrong.
            seen = [[function, file, line if told_line is None else told_line]
                    for (function, file, told_line), (_, _, line) in zip(known.get(stack, []), want)]
            assert not known.get(stack) or (len(known[stack]) == len(want) and seen == want), (version, known[stack], want)
        assert len(right) >= 20 and sum(right) >= 0.9 * len(right), (version, sum(right), len(right))
        in_kernel, wanted = walked(case)
        assert in_kernel >= 0.9 * wanted, (version, in_kernel, wanted)


def test_samples_and_the_gil(case):
    for version, told, known in each(case, "spins", every=True):
        first = found_ns(case)
        tids = [thread["tid"] for thread in told]
        below = {thread["tid"]: [frame[0] for frame in thread["frames"]] for thread in told}
        below = {tid: names[names.index("spin"):] for tid, names in below.items()}
        samples = case.rows("SELECT t.tid, s.why, s.python_stack FROM sample s JOIN thread t ON t.id = s.thread_id "
                            "WHERE s.at_ns > ? AND t.tid IN (?, ?)", first, *tids)
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
        waits = case.rows("SELECT t.tid, o.tid, g.python_stack FROM gap g JOIN thread t ON t.id = g.thread_id "
                          "JOIN thread o ON o.id = g.owner_thread WHERE g.out_ns > ? AND t.tid IN (?, ?)", first, *tids)
        waits = [(tid, owner) for tid, owner, stack in waits if known.get(stack) and known[stack][0][0] == "[gil]"]
        other = sum(owner in tids and owner != tid for tid, owner in waits)
        assert len(waits) > 20 and other > 0.9 * len(waits), (version, other, len(waits))


def test_collections(case):
    for version, _, known in each(case, "collects"):
        rows = case.rows("SELECT python_stack FROM sample WHERE why & 1 AND python_stack")
        leaves = [known[stack][0][0] for stack, in rows if known[stack]]
        assert leaves.count("[gc]") > 0.5 * len(leaves) > 20, (version, leaves.count("[gc]"), len(leaves))


def naps(case, known, where="1"):
    """Stacks of threads that sleep in leaf_nap, as far as they have one, and how many have none."""
    rows = case.rows("SELECT g.python_stack FROM gap g JOIN thread t ON t.id = g.thread_id JOIN process p ON p.id = t.process_id "
                     "WHERE g.in_ns - g.out_ns > 2500000 AND %s" % where)
    found = [[frame[0] for frame in known[stack]] for stack, in rows if stack and known[stack]]
    return [names for names in found if names[0] == "leaf_nap"], len(rows)


def test_fork(case):
    for version, _, known in each(case, "forks"):
        found, count = naps(case, known, "p.tgid != (SELECT min(tgid) FROM process WHERE kind = 'target')")
        assert count > 50 and len(found) > 0.5 * count, (version, len(found), count)
        assert all(names[:3] == ["leaf_nap", "naps", "forks"] for names in found), (version, found[:3])


def test_deep(case):
    """As much of it as there is room for, from the leaf on."""
    for version, _, known in each(case, "deep"):
        found, count = naps(case, known)
        assert len(found) > 0.5 * count > 50, (version, len(found), count)
        assert all(names[:2] == ["leaf_nap", "naps"] and names.count("deeper") in (125, 254) for names in found), \
            (version, found[0])


def test_crowd(case):
    """More threads than are looked through: those that are not found are read from outside."""
    for version, _, known in each(case, "crowd", "3"):
        found, count = naps(case, known)
        assert count > 1000 and len(found) > 0.2 * count, (version, len(found), count)
        assert all(names[:2] == ["leaf_nap", "naps"] for names in found), (version, found[:3])


if __name__ == "__main__":
    sys.exit(record_live.main(globals()))
