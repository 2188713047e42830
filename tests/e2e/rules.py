#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is a step by `nvtx:NAME` and by `graph`: the library in a program (tests/mock/rules_subject.c: ranges of the real NVTX, graphs of the
fake CUDA) speaks the step protocol to a harness of nothing else (step_host), which holds it in blocks. What the program does is not
changed by that, and where nothing fits it is said what was seen. Ranges are skipped without NVTX's headers."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

BUILD = os.environ["UPGATE_BUILD"]
MOCK = os.path.join(BUILD, "tests", "mock")
SUBJECT = os.path.join(MOCK, "rules_subject")
LIBRARY = os.path.join(BUILD, "libupgate_inject.so")
COUNT, STEP_US = 20, 300
SHELL = 'export UPGATE_STEPS_INJECT="$UPGATE_STEPS"; unset UPGATE_STEPS; exec "$@"'


def launch(how, step, count=COUNT, us=STEP_US, block="3", **env):
    """Lines of step_host; the program must have come to its end."""
    env = dict(os.environ, UPGATE_STEP=step, NVTX_INJECTION64_PATH=LIBRARY, CUDA_INJECTION64_PATH=LIBRARY,
               **dict({"UPGATE_CUPTI": os.path.join(MOCK, "cupti-13.0", "libcupti.so.13")}, **env))
    words = [os.path.join(BUILD, "tests", "e2e", "step_host"), block, "0", "sh", "-c", SHELL, "sh", SUBJECT, how, str(count), str(us)]
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0 and "done %d" % count in done.stderr, "the program was disturbed: " + done.stdout[-2000:] + done.stderr
    return lines


def texts(lines, name, slot=0):
    return [bytes.fromhex(line["hex"]).decode() for line in lines if line["kind"] == "bytes" and line["name"] == name and line["slot"] == slot]


def steps(lines, slot=0):
    return [line for line in lines if line["kind"] == "step" and line["slot"] == slot]


def check(lines, rule, found, count=COUNT, slots=1, least_us=STEP_US):
    for slot in range(slots):
        got = steps(lines, slot)
        assert [step["step"] for step in got] == list(range(count)), (found, len(got), lines[-3:])
        # The first replay of a graph is a step from where it begins.
        assert all(step["end_ns"] - step["begin_ns"] >= least_us * 990 for step in got[rule == "graph":]), got
        assert texts(lines, "steps_from", slot)[-1] == rule and texts(lines, "steps_found", slot)[-1] == found, lines[:4]
    assert len({line["slot"] for line in lines if line["kind"] == "step"}) == slots


def unseen(lines):
    return [line["text"] for line in lines if line["kind"] == "unseen"][0]


def test_ways_to_mark_a_range():
    for how, step, found in (("push", "nvtx:step", "range 'step'"),  # within itself: the outermost counts
                             ("push", "nvtx:step@*", "range 'step'"),
                             ("started", "nvtx:batch", "range 'batch'"),  # ended by another thread
                             ("registered", "nvtx:batch@train", "range 'batch' of domain 'train'"),
                             ("extended", "nvtx:ba*@train", "range 'ba*' of domain 'train'"),
                             ("wide", "nvtx:Schritt \u00fc", "range 'Schritt \u00fc'"),
                             ("numbered", "nvtx:iteration *", "range 'iteration *'")):
        check(launch(how, step), "nvtx", found)


def test_two_threads():
    """Of ranges at one time the first counts; one that begins when no other is open, counts, whoever makes it."""
    got = steps(launch("threads", "nvtx:step"))
    assert COUNT <= len(got) <= 2 * COUNT and all(a["end_ns"] <= b["begin_ns"] for a, b in zip(got, got[1:])), got


def test_processes():
    """Each that makes the range is a rank; a child that was forked within a step and ends it has none."""
    check(launch("workers", "nvtx:step"), "nvtx", "range 'step'", slots=2)
    check(launch("fork_within", "nvtx:step"), "nvtx", "range 'step'")


def test_replays():
    """The first step ends with the first replay, each later one where its round is over."""
    check(launch("graph", "graph"), "graph", "replays of a CUDA graph")
    check(launch("rounds", "graph"), "graph", "rounds of 2 CUDA graphs", least_us=0)
    check(launch("graph", "graph", MORE="1"), "graph", "replays of a CUDA graph", count=3 * COUNT)


def test_the_device_is_waited_for_at_the_end_of_a_turn():
    """And nowhere else: not where the gate is open, nor while a graph is captured, which rules_subject exits by."""
    with tempfile.NamedTemporaryFile("r") as file:
        for how, step, block, most in (("graph", "graph", "3", 7), ("capture", "nvtx:step", "1", COUNT - 1), ("capture", "nvtx:step", "0", 0)):
            launch(how, step, block=block, WAITS=file.name)
            waits = int(file.readlines()[-1])
            assert (most * 2 // 3 <= waits <= most) if most else waits == 0, (how, block, waits)


def test_without_cupti():
    """Replays cannot be seen, and it says why; ranges can, and it says that nobody waits for the GPU."""
    none = os.path.join(tempfile.gettempdir(), "none.so")
    lines = launch("graph", "graph", UPGATE_CUPTI=none)
    assert not steps(lines) and re.match("no CUDA graph was replayed: .*none.so", unseen(lines)), unseen(lines)
    lines = launch("capture", "nvtx:step", UPGATE_CUPTI=none)
    check(lines, "nvtx", "range 'step' (the GPU is not waited for: CUPTI cannot be used)")


def test_what_is_not_there():
    for how, step, says in (("push", "nvtx:stepp", "no range 'stepp' among the 3 that were seen; near: step, data, forward"),
                            ("registered", "nvtx:batch", "no range 'batch' among the 1 that was seen; near: batch@train"),
                            ("none", "nvtx:step", "no range 'step': no process of it has called NVTX"),
                            ("push", "graph", "no CUDA graph was replayed: no process of it uses CUDA"),
                            ("capture", "graph", "no CUDA graph was replayed")):
        lines = launch(how, step)
        assert not steps(lines) and not texts(lines, "steps_from") and unseen(lines) == says, (step, unseen(lines))


def test_a_range_that_never_ends():
    lines = launch("unpopped", "nvtx:step")
    assert not steps(lines) and texts(lines, "steps_from")[-1] == "!range 'step' begins and never ends", lines


def test_too_often():
    """10,000 times a second are steps; more than 50,000 are given up, and the program goes on."""
    check(launch("push", "nvtx:step", count=5000, us=90, block="200"), "nvtx", "range 'step'", count=5000, least_us=90)
    lines = launch("push", "nvtx:step", count=50000, us=0, block="1000")
    assert texts(lines, "steps_from")[-1] == "!range 'step' comes more than 50000 times a second", texts(lines, "steps_from")
    assert len(steps(lines)) < 20000


def test_its_own_calls_are_left_alone():
    """Without the file, or with a rule that is none of the library's, nothing is hooked."""
    for step in ("trainer.py:train", "symbol:main", "nvtx:", ""):
        lines = launch("push", step, block="0")
        assert not steps(lines) and not texts(lines, "steps_from"), lines


def main():
    tests = [(name, call) for name, call in globals().items() if name.startswith("test_")]
    tests = [test for test in tests if not sys.argv[1:] or any(word in test[0] for word in sys.argv[1:])]
    failed = 0
    for name, call in tests:
        begin = time.monotonic()
        try:
            call()
            verdict = "ok"
        except (AssertionError, ValueError, IndexError, OSError, subprocess.SubprocessError) as error:
            failed, verdict = failed + 1, "FAILED\n%s: %s" % (type(error).__name__, error)
        print("%-60s %5.1f s  %s" % (name, time.monotonic() - begin, verdict), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if subprocess.run([SUBJECT, "push", "1", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 77:
        print("skipped: NVTX's headers were not there when this was built")
        sys.exit(77)
    sys.exit(main())
