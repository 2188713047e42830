#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ways in which two sides take turns, and how `auto` finds the right one: steps, slices, launches; sides
that cannot be alive together; several ranks, and ranks that die; several workloads of which one fails."""
import os

import ab_rig
from ab_rig import SH, WORK, check_code, check_judged, check_says
from ab_machine import in_namespace
from ab_rude import python

MODEL = {"model": "dlrm", "steps": 30, "size": "small"}
COMMAND = {"command": [SH, "-c", WORK]}
COLLECTIVE = {"model": "allreduce", "ranks": 2, "steps": 30, "size": "small"}
# Holds a lock while it works, and gives up where somebody else holds it.
EXCLUSIVE = {"command": [SH, "-c", 'flock -n -E 1 "$LOCK" sh -c "%s"' % WORK.replace("$", "\\$")]}


def interleaves(case):
    return case.rows("SELECT name, interleave FROM workload ORDER BY id")


def overlaps(case):
    """Pairs that count in which both launches were alive at the same time."""
    return case.value("SELECT count(*) FROM launch a JOIN launch b ON a.pair_id = b.pair_id AND a.side = 0 AND b.side = 1 "
                      "JOIN pair p ON p.id = a.pair_id WHERE p.state = 'valid' AND a.started_ns < b.ended_ns AND b.started_ns < a.ended_ns")


def test_steps(case):
    case.plan(MODEL, interleave="steps", block="2ms")
    check_judged(case, case.run())
    assert interleaves(case) == [("w0", "steps")] and overlaps(case) == 3
    blocks = case.rows("SELECT pair_id, couple, side, first_step, steps, begin_ns, active_ns FROM block "
                       "ORDER BY pair_id, side, couple")
    assert len(blocks) >= 3 * 2 * 4 and all(block[6] > 0 for block in blocks)
    ends = {}
    for pair, couple, side, first, steps, begin, active in sorted(blocks, key=lambda block: block[5]):
        # One at a time: a block begins after the one before it, of either side, has ended.
        assert begin >= ends.get(pair, 0), "blocks of pair %d overlap" % pair
        ends[pair] = begin + active
    for pair, couple, side, first, steps, begin, active in blocks:
        following = [block for block in blocks if block[:3] == (pair, couple + 1, side)]
        assert not following or following[0][3] == first + steps, "steps were skipped or made twice"
    for order, in case.rows("SELECT group_concat(ran_first, '') FROM (SELECT * FROM block ORDER BY pair_id, couple) "
                            "WHERE side = 0 GROUP BY pair_id"):
        assert len(order) < 8 or set(order) == {"0", "1"}, "the order was never drawn: " + order


def test_slices(case):
    # Long beside what a block may last where the machine is busy.
    case.plan({"command": [SH, "-c", (WORK + "; ") * 6 + "sleep 0.2"]}, interleave="slices", block="2ms")
    check_judged(case, case.run())
    assert interleaves(case) == [("w0", "slices")] and overlaps(case) == 3
    turns = case.rows("SELECT json_extract(covariates, '$.freeze_count'), held_ns FROM launch")
    assert all(count >= 2 and held > 0 for count, held in turns), turns


def test_launches(case):
    case.plan(MODEL, interleave="launches")
    check_judged(case, case.run())
    assert interleaves(case) == [("w0", "launches")] and overlaps(case) == 0
    assert case.value("SELECT count(*) FROM block") == 0


def test_a_workload_has_its_own_way(case):
    case.plan([dict(MODEL, interleave="launches"), dict(COMMAND, interleave="slices"), MODEL], interleave="steps")
    check_judged(case, case.run())
    assert interleaves(case) == [("w0", "launches"), ("w1", "slices"), ("w2", "steps")]


def test_auto_takes_steps(case):
    case.plan(MODEL)
    check_judged(case, case.run())
    assert interleaves(case) == [("w0", "steps")]


def test_auto_falls_back_to_launches(case):
    """Where the second side finds the first one in its way: twice, so that it is no crash that would come alone as well."""
    case.plan(EXCLUSIVE)
    done = case.run(env={"LOCK": case.path("lock")})
    check_judged(case, done)
    check_says(done, "the two sides cannot be alive together", "one after the other", "more pairs")
    assert interleaves(case) == [("w0", "launches")] and overlaps(case) == 0
    assert case.pairs() == 3 and case.pairs("failed") == 2
    assert "cannot be alive together" in case.value("SELECT note FROM workload")
    (effect, text), = case.rows("SELECT effect, text FROM finding WHERE kind IN ('beside', 'crash')")
    assert effect == "note" and text.startswith("2 pairs failed while both sides were alive") and text.endswith("exited with 1"), text


def test_auto_falls_back_to_launches_with_step_calls(case):
    python(case, """
import fcntl
lock = open(os.environ['LOCK'], 'a')
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
steps(20)
""")
    done = case.run(env={"LOCK": case.path("lock")})
    check_judged(case, done)
    check_says(done, "the two sides cannot be alive together")
    assert interleaves(case) == [("w0", "launches")]
    assert case.rows("SELECT DISTINCT l.steps FROM launch l JOIN pair p ON p.id = l.pair_id WHERE p.state = 'valid'") == [(20,)]


def test_auto_falls_back_to_launches_for_want_of_memory(case):
    """A machine on which the second side would not fit beside the first."""
    case.write("meminfo", "MemTotal: 16000 kB\nMemAvailable: 20 kB\n")
    case.plan(MODEL)
    done = case.run(command=in_namespace("mount --bind %s /proc/meminfo" % case.path("meminfo")))
    check_judged(case, done)
    check_says(done, "not enough memory for both sides at once", "one after the other")
    assert interleaves(case) == [("w0", "launches")] and overlaps(case) == 0


def test_what_cannot_be_alive_together_where_it_must(case):
    """Nobody asked for another way: the pairs fail, and the output says how."""
    case.plan(EXCLUSIVE, interleave="slices")
    done = case.run(env={"LOCK": case.path("lock")})
    assert done.code in (1, 3), str(done)
    check_says(done, "exited with 1")


def test_auto_blames_a_side_that_fails_alone(case):
    """The candidate fails by itself: no word of living together."""
    case.plan({"command": [SH, "-c", WORK + "; [ $SIDE = a ]"]})
    done = case.run()
    check_code(done, 1)
    assert "cannot be alive together" not in done.err + done.out, str(done)
    assert interleaves(case) == [("w0", None)]


def test_ranks_in_turns(case):
    case.plan(COLLECTIVE)
    check_judged(case, case.run())
    assert interleaves(case) == [("w0", "steps")]
    assert case.rows("SELECT DISTINCT ranks, steps FROM launch") == [(2, 30)]
    # Of the pairs that count: on a busy machine one more may be made, and be void.
    ranks = case.rows("SELECT s.launch_id, s.rank, count(*), min(s.idx), max(s.idx) FROM step s "
                      "JOIN launch l ON l.id = s.launch_id JOIN pair p ON p.id = l.pair_id "
                      "WHERE p.phase = 'main' AND p.state = 'valid' GROUP BY s.launch_id, s.rank")
    assert len(ranks) == 3 * 2 * 2 and all(row[2:] == (30, 0, 29) for row in ranks), ranks


# Of the candidate's launches some run out of memory in their fifth step, in a turn: the steps are long enough for blocks of a few.
LACKS = """
count = os.environ['COUNT']
n = int(open(count).read()) if os.path.exists(count) else 0
if side == 'b':
    open(count, 'w').write(str(n + 1))
def rude(i):
    if i == 4 and n in %s:
        raise MemoryError('none left')
steps(20, 200000)
"""


def launched(case):
    return int(open(case.path("count")).read())


def test_memory_that_does_for_one_at_a_time(case):
    """Beside the other, in the second pair; alone it works: nothing is wrong with the candidate."""
    python(case, LACKS % "(1,)")
    done = case.run(env={"COUNT": case.path("count")})
    check_judged(case, done)
    said = case.rows("SELECT reason, void_side FROM pair WHERE state = 'void' AND reason LIKE '%ran out of memory%'")
    assert len(said) == 1 and "beside the other side, and not alone" in said[0][0] and said[0][1] is None, str(done)
    assert case.pairs("failed") == 0 and case.value("SELECT count(*) FROM finding WHERE kind = 'crash'") == 0, str(done)
    assert case.rows("SELECT effect FROM finding WHERE kind = 'void'") == [("note",)], str(done)
    assert launched(case) == case.value("SELECT count(*) FROM launch WHERE side = 1") + 1  # one alone, which counts for nothing


def test_memory_that_does_not_do_alone(case):
    python(case, LACKS % "(1, 2)")
    done = case.run(env={"COUNT": case.path("count")})
    check_code(done, 1)
    assert case.pairs("failed") == 1 and case.value("SELECT effect FROM finding WHERE kind = 'crash'") == "fail", str(done)


def test_another_crash_is_not_tried_alone(case):
    """It would work the next time, and that says nothing."""
    python(case, LACKS.replace("MemoryError", "ValueError") % "(1,)")
    done = case.run(env={"COUNT": case.path("count")})
    check_code(done, 1)
    assert case.pairs("failed") == 1, str(done)
    assert launched(case) == case.value("SELECT count(*) FROM launch WHERE side = 1")


def test_a_crash_in_the_first_pair_is_a_crash(case):
    """Once, beside the other: the next pair shows that both can be alive, and so it is no reason to run them one after the other."""
    python(case, LACKS.replace("MemoryError", "ValueError") % "(0,)")
    done = case.run(env={"COUNT": case.path("count")})
    check_code(done, 1)
    assert interleaves(case) == [("w0", "steps")] and case.pairs("failed") == 1, str(done)
    assert case.value("SELECT effect FROM finding WHERE kind = 'crash'") == "fail", str(done)


def test_ranks_in_slices_and_launches(case):
    for interleave in ("slices", "launches"):
        case.plan(COLLECTIVE, interleave=interleave)
        check_judged(case, case.run())
        os.unlink(case.db_path)


def test_a_rank_dies(case):
    case.plan(COLLECTIVE, None, {"env": {"PLANT": "crash:5"}}, timeout="2s")
    done = case.run()
    check_code(done, 1)
    check_says(done, "side 'new'")


RANKS = """
import subprocess
if 'RANK' not in os.environ:
    ranks = [subprocess.Popen([sys.executable, __file__], env=dict(os.environ, RANK=str(i))) for i in range(2)]
    sys.exit(max(rank.wait() for rank in ranks))
rank = int(os.environ['RANK'])
%s
steps(20)
"""


def test_ranks_of_a_launcher(case):
    """Processes below the root, with the launcher's ranks."""
    python(case, RANKS % "", ranks=2)
    check_judged(case, case.run())
    assert case.rows("SELECT DISTINCT rank FROM step ORDER BY rank") == [(0,), (1,)]


def test_a_rank_is_killed_and_its_launcher_ends(case):
    python(case, RANKS % "def rude(i):\n    if i == 5 and rank == 1: os.kill(os.getpid(), 9)", ranks=2, timeout="10s")
    done = case.run()
    check_code(done, 1)
    check_says(done, "rank 1 of side 'new' ended without a word after 5 steps, another made 20")


def test_a_rank_never_comes(case):
    """One of two starts its steps, the other hangs before: the timeout, and what was missing."""
    python(case, RANKS % "if rank == 1 and side == 'b': time.sleep(100)", ranks=2, timeout="4s")
    done = case.run()
    check_code(done, 1)
    check_says(done, "'new' reached the timeout: 1 of its 2 ranks made step calls") # the table breaks lines


def test_a_side_that_goes_on_in_the_turns_of_the_other(case):
    """A tree that cannot be frozen makes every pair void; here it can, if late now and then on a busy machine."""
    python(case, """
import threading
def busy():
    while True: sum(range(1000))
threading.Thread(target=busy, daemon=True).start()
steps(30)
os._exit(0)
""")
    check_judged(case, case.run())
    reasons = case.rows("SELECT reason FROM pair WHERE state = 'void'")
    assert len(reasons) < case.pairs_wanted, reasons


def test_memory_of_short_launches(case):
    """Told where it was seen, never the few pages that a program has when it is looked at too early."""
    short = {"command": [SH, "-c", WORK]}
    grows = {"command": ["{python}", "-c", "import time; x = bytearray(50 << 20); time.sleep(0.1)"]}
    for interleave in ("slices", "launches"):
        case.plan([short, grows], {"python": "python3"}, {"python": "python3"}, interleave=interleave)
        done = case.run()
        check_code(done, 0, 3)
        peaks = case.rows("SELECT w.name, l.peak_memory_bytes FROM launch l JOIN pair p ON p.id = l.pair_id "
                          "JOIN workload w ON w.id = p.workload_id")
        for name, peak in peaks:
            assert peak is None or peak > (50 << 20 if name == "w1" else 1 << 20), (name, peak)
            assert name == "w0" or peak is not None
        os.unlink(case.db_path)


def test_open_loop_requests(case):
    case.plan({"model": "dlrm", "mode": "infer", "steps": 60, "size": "small"})
    done = case.run()
    check_judged(case, done)
    check_says(done, "open loop at", "half of what side 'old' can do")
    assert case.value("SELECT rate_per_s FROM workload") > 0
    assert case.value("SELECT count(*) FROM pair WHERE phase = 'pilot' AND state = 'valid'") == 1
    late = case.value("SELECT count(*) FROM step s JOIN launch l ON l.id = s.launch_id JOIN pair p ON p.id = l.pair_id "
                      "WHERE p.phase = 'main' AND s.late_ns IS NULL")
    assert late == 0, "%d requests without a scheduled time" % late


def test_baseline_cannot_serve_the_pilot(case):
    case.plan({"model": "dlrm", "mode": "infer", "steps": 60, "size": "small"}, {"env": {"PLANT": "crash:3"}})
    done = case.run()
    check_code(done, 3)
    check_says(done, "side 'old'", "signal 11")


def test_one_workload_fails_and_another_is_judged(case):
    case.plan([{"command": [SH, "-c", "[ $SIDE = a ]"]}, COMMAND])
    done = case.run()
    check_code(done, 1)
    check_says(done, "w0")
    assert case.value("SELECT count(*) FROM pair p JOIN workload w ON w.id = p.workload_id "
                      "WHERE w.name = 'w1' AND p.state = 'valid'") == 3
    assert case.value("SELECT verdict FROM cell WHERE workload = 'w1' AND gating") == "pass"


def test_one_program_after_another(case):
    """The second one makes more steps than the first: it is not held where that one stopped, for nobody would let it go."""
    case.write("work.py", "import sys, upgate\nfor _ in upgate.steps(range(int(sys.argv[1])), samples=1):\n    sum(range(3000))\n")
    case.plan({"command": [SH, "-c", "python3 work.py 20 && python3 work.py 400"]}, block="1ms", timeout="8s")
    done = case.run()
    check_code(done, 0, 3)
    assert case.pairs() == 3 and case.pairs("failed") == 0, str(done)
    assert interleaves(case) == [("w0", "steps")], str(done)
    counts = case.rows("SELECT DISTINCT count(*) FROM step s JOIN launch l ON l.id = s.launch_id JOIN pair p ON p.id = l.pair_id "
                       "WHERE p.state = 'valid' GROUP BY l.id")
    assert counts == [(420,)], counts


def test_timeout_counts_the_own_time_only(case):
    """Turns of many short blocks: the timeout falls within a side's own time, and does fall."""
    python(case, "steps(100000, 30000)", steps=100000, timeout="700ms", block="2ms")
    done = case.run()
    check_code(done, 3)
    check_says(done, "reached the timeout")
    longest = case.value("SELECT max(active_ns) FROM launch WHERE state = 'timeout'")
    assert 0.7e9 <= longest < 2.5e9, longest  # looked at every 0.1 s; the steps would take 3 s


if __name__ == "__main__":
    ab_rig.main(globals())
