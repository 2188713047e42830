#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate ab` with a side that fails: cannot be started, exits, crashes, hangs, is killed for want of
memory, writes NaN, makes no step call. The exit code follows the rules (the candidate alone: fail; both or
the baseline: inconclusive; cannot be executed: operational), and the output says who, how, and what the side
itself had to say."""
import os
import time

import ab_rig
from ab_rig import SH, WORK, Skip, check_code, check_judged, check_says

def fails(case, script, code, *says, **keys):
    """A command that fails where $SIDE says so."""
    case.plan({"command": [SH, "-c", script]}, **keys)
    done = case.run()
    check_code(done, code)
    check_says(done, *says)
    return done


def test_the_rig_sees_a_pass(case):
    case.plan({"command": [SH, "-c", WORK]})
    done = case.run()
    check_judged(case, done)
    assert case.pairs() == 3 and case.value("SELECT state FROM run") == "done"
    again = case.run("gate", case.db_path)
    check_code(again, done.code)


def test_missing_interpreter_of_the_candidate(case):
    case.plan({"command": ["{python}", "-c", "pass"]}, {"python": "python3"},
              {"python": "/opt/none/bin/python"})
    done = case.run()
    check_code(done, 4)
    check_says(done, "side 'new'", "/opt/none/bin/python", "No such file")
    assert case.rows("SELECT side, state FROM launch WHERE state = 'not_started'") == [(1, "not_started")]


def test_missing_interpreter_of_both(case):
    case.plan({"command": ["{python}", "-c", "pass"]}, {"python": "/opt/none/a"}, {"python": "/opt/none/b"})
    done = case.run()
    check_code(done, 4)
    check_says(done, "/opt/none/", "No such file")


def test_interpreter_without_permission_or_format(case):
    case.plan({"command": ["{python}", "-c", "pass"]}, {"python": "python3"},
              {"python": case.write("plain", "no program", 0o644)})
    check_says(case.run(), "side 'new'", "Permission denied")
    os.unlink(case.db_path)
    case.plan({"command": ["{python}", "-c", "pass"]}, {"python": "python3"},
              {"python": case.write("junk", "\x7fjunk", 0o755)})
    done = case.run()
    check_code(done, 4)
    check_says(done, "side 'new'", "junk")


def test_missing_model(case):
    case.plan({"model": "dlrm", "steps": 20, "size": "small"}, None, {"models": case.path("nothing")})
    done = case.run()
    check_code(done, 4)
    check_says(done, "side 'new'", "nothing/dlrm")


def test_workdir_that_does_not_exist(case):
    case.plan({"command": [SH, "-c", "true"]}, None, {"workdir": case.path("gone")})
    done = case.run()
    check_code(done, 4)
    check_says(done, "side 'new'", "gone", "No such file")


def test_import_fails_on_the_candidate(case):
    case.write("train.py", "import sys\nif '%s' in sys.path: pass\nimport the_framework\n")
    os.makedirs(case.path("site"))
    case.write("site/the_framework.py", "")
    case.plan({"command": ["{python}", case.path("train.py")]},
              {"python": "python3", "env": {"PYTHONPATH": case.path("site")}}, {"python": "python3"})
    done = case.run()
    check_code(done, 1)
    check_says(done, "new", "exited with 1", "No module named 'the_framework'")
    assert case.value("SELECT count(*) FROM launch WHERE side = 1 AND stderr_tail LIKE '%the_framework%'") >= 2


def test_import_fails_on_both(case):
    case.plan({"command": ["{python}", "-c", "import the_framework"]}, {"python": "python3"},
              {"python": "python3"})
    done = case.run()
    check_code(done, 3)
    check_says(done, "both sides", "No module named 'the_framework'")


def test_candidate_exits_1(case):
    done = fails(case, 'sleep 0.05; [ $SIDE = a ] || { echo "cannot read shard 7" >&2; exit 1; }', 1,
                 "side 'new' exited with 1", "cannot read shard 7")
    check_says(done, "fail")


def test_baseline_exits_1(case):
    fails(case, 'sleep 0.05; [ $SIDE = b ] || { echo "cannot read shard 7" >&2; exit 1; }', 3,
          "side 'old' exited with 1", "cannot read shard 7")


def test_both_exit_1(case):
    fails(case, "exit 1", 3, "both sides failed")


def test_candidate_crashes_at_once_whoever_is_first(case):
    for interleave in ("slices", "launches", "auto"):
        for seed in range(1, 4):
            fails(case, "[ $SIDE = a ] || kill -SEGV $$; sleep 0.02", 1, "signal 11", interleave=interleave,
                  seed=seed)
            os.unlink(case.db_path)


def test_both_crash_whoever_is_first(case):
    """The one that came to its end later would have crashed too: no finding about the candidate."""
    for interleave in ("slices", "launches", "auto"):
        for seed in range(1, 4):
            fails(case, "[ $SIDE = a ] || sleep 0.02; kill -SEGV $$", 3, "both sides failed",
                  interleave=interleave, seed=seed)
            os.unlink(case.db_path)


def test_candidate_crashes_in_a_step(case):
    case.plan({"model": "dlrm", "steps": 20, "size": "small"}, None, {"env": {"PLANT": "crash:5"}})
    done = case.run()
    check_code(done, 1)
    check_says(done, "side 'new'", "signal 11")
    assert set(case.rows("SELECT DISTINCT state FROM launch WHERE side = 0")) == {("ok",)}


def test_baseline_crashes_in_a_step(case):
    case.plan({"model": "dlrm", "steps": 20, "size": "small"}, {"env": {"PLANT": "crash:5"}})
    check_code(case.run(), 3)


def test_both_crash_in_a_step(case):
    for seed in range(1, 5):
        case.plan({"model": "dlrm", "steps": 20, "size": "small"}, {"env": {"PLANT": "crash:7"}},
                  {"env": {"PLANT": "crash:5"}}, seed=seed)
        done = case.run()
        check_code(done, 3)
        check_says(done, "both sides failed")
        os.unlink(case.db_path)


def test_candidate_crashes_before_its_first_step(case):
    case.plan({"model": "dlrm", "steps": 20, "size": "small"}, None, {"env": {"PLANT": "crash:0"}})
    done = case.run()
    check_code(done, 1)
    check_says(done, "side 'new'")


def test_candidate_exits_in_mid_run_with_0(case):
    """An early end in good order is a launch that made fewer steps, not a success."""
    case.plan({"model": "dlrm", "steps": 20, "size": "small"}, None, {"env": {"PLANT": "exit:0"}})
    done = case.run()
    check_code(done, 1)
    check_says(done, "side 'new' ended in good order after 10 of 20 steps, side 'old' after 20")


def test_candidate_makes_no_step_in_later_launches(case):
    """One after the other nobody waits for a first step: none, of a side that has made some, is an early end as well."""
    script = ("import os, upgate\n"
              "with open(os.environ['COUNT'], 'a') as file: file.write('x')\n"
              "idle = os.environ['SIDE'] == 'b' and os.path.getsize(os.environ['COUNT']) > 1\n"
              "for _ in (() if idle else upgate.steps(range({steps}))): sum(range(20000))")
    sides = [{"python": "python3", "env": {"SIDE": side, "COUNT": case.path("count-" + side)}} for side in "ab"]
    case.plan({"command": ["{python}", "-c", script], "steps": 20}, *sides, interleave="launches")
    done = case.run()
    check_code(done, 1)
    check_says(done, "side 'new' ended in good order after 0 of 20 steps, side 'old' after 20")
    assert case.pairs("failed") == 2


def test_candidate_hangs(case):
    case.plan({"model": "dlrm", "steps": 20, "size": "small"}, None, {"env": {"PLANT": "hang:5"}},
              timeout="3s")
    done = case.run()
    check_code(done, 1)
    check_says(done, "side 'new' reached the timeout")


def test_command_hangs(case):
    fails(case, "[ $SIDE = a ] || sleep 1000", 1, "side 'new' reached the timeout", timeout="2s")


def test_both_hang(case):
    fails(case, "sleep 1000", 3, "reached the timeout", timeout="300ms")


def test_hangs_before_the_first_step(case):
    case.plan({"command": ["{python}", "-c", "import time, upgate\ntime.sleep(1000)\n"
                           "for _ in upgate.steps(range({steps})): pass"], "steps": 20, "interleave": "steps"},
              {"python": "python3"}, {"python": "python3"}, timeout="500ms")
    done = case.run()
    check_code(done, 3)
    check_says(done, "reached the timeout")


def test_candidate_is_killed_for_want_of_memory(case):
    group = memory_group(case, 64 << 20)
    join = [SH, "-c", 'echo $$ > "%s/cgroup.procs"; exec "$@"' % group, "sh"]
    case.plan({"command": ["{python}", "-c", "import os\nif os.environ['SIDE'] == 'b': x = bytearray(1 << 28)"]},
              {"python": "python3"}, {"python": "python3", "prefix": join}, interleave="launches")
    done = case.run()
    check_code(done, 1)
    check_says(done, "side 'new' was killed for want of memory")
    assert case.value("SELECT count(*) FROM launch WHERE state = 'oom'") >= 1


def remove_group(group):
    """What was in it has ended, and may be on its way out."""
    deadline = time.monotonic() + ab_rig.CLEAN_S
    while True:
        try:
            return os.rmdir(group)
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def memory_group(case, limit_bytes):
    """A memory cgroup with a limit, v1 or v2."""
    for line in open("/proc/mounts"):
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup" and "memory" in options.split(","):
            name = "memory.limit_in_bytes"
        elif kind == "cgroup2" and "memory" in open(where + "/cgroup.controllers").read().split():
            name = "memory.max"
        else:
            continue
        group = "%s/rig-%d" % (where, os.getpid())
        try:
            os.mkdir(group)
            case.undo.append(lambda: remove_group(group))
            with open("%s/%s" % (group, name), "w") as file:
                file.write(str(limit_bytes))
            return group
        except OSError:
            continue
    raise Skip("no memory cgroup can be made here")


def test_nan(case):
    """Finite on the baseline, NaN on the candidate: the parity gate fails, whatever the speed."""
    case.plan({"model": "dlrm", "steps": 20, "size": "small"}, None, {"env": {"PLANT": "nan:3"}},
              gate={"parity": {"rule": "fp64-anchored"}})
    done = case.run()
    check_code(done, 1)
    check_says(done, "NaN")
    assert case.value("SELECT count(*) FROM parity WHERE verdict = 'fail'") >= 1


def test_nan_on_both(case):
    nan = {"env": {"PLANT": "nan:3"}}
    case.plan({"model": "dlrm", "steps": 20, "size": "small"}, nan, nan, gate={"parity": {"rule": "fp64-anchored"}})
    done = case.run()
    check_code(done, 3)
    check_says(done, "NaN")


def test_no_step_call_falls_to_slices(case):
    case.plan({"command": [SH, "-c", WORK]})
    done = case.run()
    check_judged(case, done)
    check_says(done, "makes no step calls")
    assert case.rows("SELECT interleave FROM workload") == [("slices",)]


def test_no_step_call_where_steps_are_asked_for(case):
    case.plan({"command": [SH, "-c", WORK]}, interleave="steps")
    done = case.run()
    check_code(done, 3)
    check_says(done, "made no step call", "interleave")


def test_step_calls_on_one_side_only(case):
    script = ("import os, upgate\n"
              "for _ in (upgate.steps(range(20)) if os.environ['SIDE'] == '%s' else range(20)): sum(range(20000))")
    for side in "ab":
        case.plan({"command": ["{python}", "-c", script % side]}, {"python": "python3"}, {"python": "python3"})
        done = case.run()
        check_says(done, "makes step calls on one side only")
        check_judged(case, done)
        assert case.rows("SELECT interleave FROM workload") == [("slices",)]
        os.unlink(case.db_path)


def test_candidate_fails_now_and_then(case):
    """One failed pair among good ones is repeated. That the candidate ended itself, and the baseline never does, is a fail by a signal; one
    exit code, without a step call, may be chance."""
    for name, end, code, says in (("abort", "kill -ABRT $$", 1, "was ended by signal 6"), ("exit", "exit 9", 3, "exited with 9, without a step call")):
        script = WORK + '; [ $SIDE = a ] || [ -e "$FLAG" ] || { touch "$FLAG"; %s; }' % end
        case.plan({"command": [SH, "-c", script]}, interleave="slices")
        done = case.run(env={"FLAG": case.path(name)})
        check_code(done, code)
        check_says(done, "1 of 4 pairs failed", "in 1; side 'new' " + says)
        assert case.pairs("failed") == 1 and case.pairs() == 3
        os.unlink(case.db_path)


if __name__ == "__main__":
    ab_rig.main(globals())
