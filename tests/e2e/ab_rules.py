#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate ab --step nvtx:NAME` and `--step graph`: a program that makes no step call (tests/mock/rules_subject.c) is cut at its ranges of NVTX
or its replays of graphs, both sides take turns at them and are judged by them; a slower candidate is found. Where the cuts are not the same
the whole is judged, and the reason said. Skipped without NVTX's headers."""
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import ab_rig  # noqa: E402
from ab_rig import BUILD, check_code, check_says, processes  # noqa: E402

SUBJECT = os.path.join(BUILD, "tests", "mock", "rules_subject")
CUPTI = {"UPGATE_CUPTI": os.path.join(BUILD, "tests", "mock", "cupti-13.0", "libcupti.so.13")}
# One pair shows how a program is cut; of its times, on a busy machine, the median alone may be asked for.
ONE = {"alpha": "50%", "metrics": dict({"step_time": {"margin": "100%"}},
                                       **{name: {"observe": True} for name in ("mean_step_time", "slow_steps", "warm_up_time")})}


def program(case, how, step, count=30, us=500, baseline=None, candidate=None, gate=ONE, looks=(1,), **keys):
    case.plan({"command": [SUBJECT, how, str(count), str(us)], "step": step},
              *[{"env": dict(CUPTI, **(env or {}))} for env in (baseline, candidate)], gate=gate, looks=list(looks), **keys)


def check_steps(case, says, steps):
    done = case.run()
    check_code(done, 0, 1, 3)  # as the machine is
    check_says(done, says)
    assert case.value("SELECT interleave FROM workload") == "steps" and case.rows("SELECT DISTINCT steps FROM launch") == [(steps,)], str(done)
    # The blocks of a side follow on each other without a hole: 1, 2, then the same many.
    blocks = case.rows("SELECT first_step, steps FROM block WHERE pair_id = 1 AND side = 0 ORDER BY couple")
    assert all(a[0] + a[1] == b[0] for a, b in zip(blocks, blocks[1:])) and len(blocks) >= 2, blocks
    return done


def check_whole(case, *says):
    done = case.run()
    check_code(done, 0, 1, 3)
    check_says(done, "judged on total time", *says)
    assert case.value("SELECT interleave FROM workload") == "slices", str(done)
    assert case.rows("SELECT verdict FROM cell WHERE metric = 'step_time'") in ([], [("not_gated",)]), str(done)


def test_ranges_by_an_option(case):
    case.plan({"command": [SUBJECT, "registered", "30", "500"]}, gate=ONE, looks=[1])
    done = case.run("ab", "--step", "nvtx:batch@train", case.plan_path, "-o", case.db_path)
    check_code(done, 0, 1, 3)
    check_says(done, "steps: range 'batch' of domain 'train', 30 a launch")
    assert case.value("SELECT interleave FROM workload") == "steps"
    assert case.value("SELECT sum(dropped) FROM ledger WHERE producer = 'step protocol'") == 0


def test_a_slower_candidate_is_found(case):
    """Twice as slow: beside busy loops three pairs leave an interval of 20 %, and a sleep of some ms lasts as many more."""
    program(case, "push", "nvtx:step", us=30000, baseline={"SLEEPS": "1"}, candidate={"SLEEPS": "1", "SLOWER_PCT": "100"}, looks=(3,),
            gate={"alpha": "20%", "metrics": {"step_time": {"margin": "10%"}}})
    done = case.run()
    check_code(done, 1)
    ratio, verdict = case.rows("SELECT ratio, verdict FROM cell WHERE metric = 'step_time'")[0]
    assert verdict == "fail" and 1.5 < ratio < 2.5, str(done)


def test_rounds_of_graphs(case):
    program(case, "rounds", "graph")
    check_steps(case, "steps: rounds of 2 CUDA graphs, 30 a launch", 30)


def test_workers(case):
    """Each is a rank, held at the same step."""
    program(case, "workers", "nvtx:step")
    check_steps(case, "steps: range 'step', 30 a rank, 2 ranks", 30)
    held = case.rows("SELECT max(last) - min(last) FROM (SELECT launch_id, rank, max(idx) AS last FROM step GROUP BY launch_id, rank)")
    assert held == [(0,)], held


def test_a_name_that_never_comes(case):
    program(case, "push", "nvtx:stepp")
    check_whole(case, "no range 'stepp' among the 3 that were seen; near: step, data, forward")


def test_a_range_of_one_side_only(case):
    sh = case.write("start.sh", '#!/bin/sh\nexec %s "$WAY" 30 500\n' % SUBJECT, 0o755)
    case.plan({"command": [sh], "step": "nvtx:batch"}, {"env": {"WAY": "started"}}, {"env": {"WAY": "numbered"}}, gate=ONE, looks=[1])
    check_whole(case, "no range 'batch' among the", "on side 'new'")


def test_a_range_that_never_ends(case):
    program(case, "unpopped", "nvtx:step")
    check_whole(case, "range 'step' begins and never ends")


def test_too_few(case):
    program(case, "push", "nvtx:step", count=6)
    check_whole(case, "range 'step' comes 6 times only")


def test_too_often(case):
    program(case, "push", "nvtx:step", count=30000, us=0)
    check_whole(case, "range 'step' comes more than 50000 times a second")


def test_graphs_that_cut_the_same_work_otherwise(case):
    """Three replays where the other side makes one: no verdict on steps that are not the same."""
    program(case, "graph", "graph", us=200, candidate={"MORE": "1"})
    check_whole(case, "replays of a CUDA graph: 30 on side 'old', 90 on side 'new', so they are not the same work")


def test_another_tool_is_in_the_place(case):
    program(case, "push", "nvtx:step", candidate={"NVTX_INJECTION64_PATH": "/opt/other.so"})
    done = case.run()
    check_code(done, 2)
    check_says(done, "'nvtx:step' cannot be seen on side 'new': NVTX_INJECTION64_PATH is set to '/opt/other.so', another tool's")


def test_a_process_that_scribbles(case):
    """Over what it was to say of what it saw; or it cuts the file short. Neither moves a terminal, nor ends us."""
    case.write("evil.py", r"""
import mmap, os, sys
fd = os.open(os.environ['UPGATE_STEPS_INJECT'], os.O_RDWR) if 'UPGATE_STEPS_INJECT' in os.environ else -1
if fd >= 0 and sys.argv[1] == 'cut':
    os.ftruncate(fd, 0)
elif fd >= 0:
    page = mmap.mmap(fd, 4096)
    for at in range(1024 + 16, 3968, 128):  # each entry a name
        page[at:at + 128] = b'\2\0\0\0\0\0\0\0' + b'\33[31m\377\n' * 17 + b'A'
""")
    for how in ("write", "cut"):
        case.plan({"command": [sys.executable, case.path("evil.py"), how], "step": "nvtx:step"}, gate=ONE, looks=[1])
        done = case.run("ab", case.plan_path, "-o", case.path(how + ".db"))
        check_code(done, 0, 1, 3, 4)
        assert "\33[31m" not in done.out + done.err, str(done)
        check_says(done, "no range 'step'", "judged on total time")


def test_killed_while_it_holds(case):
    """kill -9 at any moment: what waits at the gate goes on to its end, or is ended, and nothing is left."""
    program(case, "push", "nvtx:step", count=20000)
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    deadline = time.monotonic() + 60
    while sum("(rules_subject)" in text for text in processes(case.mark)) < 2:
        assert time.monotonic() < deadline and process.poll() is None, "the sides were not started"
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    case.finish(process)  # check_clean


if __name__ == "__main__":
    if subprocess.run([SUBJECT, "push", "1", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 77:
        print("skipped: NVTX's headers were not there when this was built")
        sys.exit(77)
    ab_rig.main(globals(), certificates=False)
