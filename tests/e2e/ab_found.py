#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate ab` of Python programs that make no step calls: their steps are found, both sides take turns at them and are
judged by them; where no rule cuts both sides alike the whole is judged, and the reason said. The torch is a few lines
(fake_torch), so that launches are short; found_steps.py has the real ones."""
import os
import re
import sys
import time

import ab_rig
from ab_rig import SOURCE, Skip, check_code, check_judged, check_says

PROGRAM = """
import os, sys, time, torch
side, work = os.environ['SIDE'], int(os.environ.get('WORK', '3000'))
class Model(torch.nn.Module):
    def forward(self):
        time.sleep(float(os.environ.get('SLEEP', '0')))
        return sum(range(work))
def train(count, model=None, optimizer=None, steps=iter):
    model, optimizer = model or Model(), optimizer or torch.optim.SGD()
    for i in steps(range(count)):
        model()
        torch.autograd.backward([])
        optimizer.step()
"""
STEPS = "SELECT min(steps), max(steps) FROM launch"
NOTE = "SELECT note FROM workload"


def program(case, text, baseline=None, candidate=None, workload=None, **keys):
    case.write("train.py", PROGRAM + text)
    sides = [{"python": sys.executable, "env": dict({"PYTHONPATH": os.path.join(SOURCE, "tests/e2e/fake_torch"),
                                                      "SIDE": name}, **(env or {}))}
             for name, env in (("a", baseline), ("b", candidate))]
    case.plan(dict({"command": ["{python}", case.path("train.py")]}, **(workload or {})), *sides, **keys)


def interleave(case):
    return case.value("SELECT interleave FROM workload")


def test_an_unchanged_program(case):
    """More steps than the plan's default, which nobody asked the program for."""
    program(case, "train(400)")
    done = case.run()
    check_judged(case, done)
    check_says(done, "steps: Optimizer.step of SGD, 400 a launch", "startup_time", "first_step_time")
    assert interleave(case) == "steps" and case.rows(STEPS) == [(400, 400)]
    assert case.rows("SELECT DISTINCT steps FROM pair") == [(400,)]
    # Turns to the end of the program: not to the 200th step.
    last = case.value("SELECT min(last) FROM (SELECT max(first_step + steps) AS last FROM block GROUP BY pair_id)")
    assert last > 250, last
    phases = {name for name, in case.rows("SELECT DISTINCT name FROM step_phase")}
    assert phases <= {"data", "forward", "backward", "optimizer"}, phases
    started = case.rows("SELECT c.median_a, c.median_b, c.gating FROM cell c WHERE metric = 'startup_time'")
    assert started[0][2] == 0 and all(1e6 < value < 60e9 for value in started[0][:2]), started
    assert case.value("SELECT gating FROM cell WHERE metric = 'total_time'") == 0


def test_a_slower_step_is_found_as_with_step_calls(case):
    """Twice as long in each step: the same verdict as a program with step calls, and the ratio that both have."""
    ratios = []
    for calls in ("iter", "__import__('upgate').steps"):
        program(case, "train(40, steps=%s)" % calls, {"SLEEP": "0.02"}, {"SLEEP": "0.04"},
                gate={"metrics": {"step_time": {"margin": "5%"}}})
        done = case.run()
        check_code(done, 1)
        ratio, verdict = case.rows("SELECT ratio, verdict FROM cell WHERE metric = 'step_time'")[0]
        assert verdict == "fail", str(done)
        ratios.append(ratio)
        os.unlink(case.db_path)
    # Each is of three pairs, maybe on a busy machine, where each sleep lasts longer by some ms.
    assert all(1.3 < ratio < 2.4 for ratio in ratios), ratios


def test_several_ranks_that_nobody_announced(case):
    """Held at the same step, though the plan says nothing of ranks."""
    program(case, "train(60)")
    case.write("launch.py", """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, sys.argv[1]], env=dict(os.environ, RANK=str(rank), LOCAL_WORLD_SIZE='2'))
         for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
""")
    case.plan({"command": ["{python}", case.path("launch.py"), case.path("train.py")]},
              *[{"python": sys.executable, "env": {"PYTHONPATH": os.path.join(SOURCE, "tests/e2e/fake_torch"),
                                                   "SIDE": side}} for side in "ab"])
    done = case.run()
    check_judged(case, done)
    check_says(done, "steps: Optimizer.step of SGD, 60 a rank, 2 ranks")
    assert interleave(case) == "steps" and case.rows("SELECT DISTINCT ranks FROM launch") == [(2,)]
    held = case.rows("SELECT max(last) - min(last) FROM (SELECT launch_id, rank, max(idx) AS last FROM step "
                     "GROUP BY launch_id, rank)")
    assert held == [(0,)], held


def test_ranks_that_the_job_alone_knows(case):
    """Spawned in a batch script, whose own rank all of them inherit: torch.distributed says which one each is, and none is stored over another."""
    program(case, """
import types
rank, distributed = int(os.environ['SPAWNED']), types.ModuleType('torch.distributed')
distributed.is_available = distributed.is_initialized = lambda: True
distributed.get_rank, distributed.get_world_size = lambda: rank, lambda: 2
sys.modules['torch.distributed'] = distributed
with open('ranks', 'a') as file:
    file.write('%d %d\\n' % (rank, os.getpid()))
train(60)
""")
    case.write("launch.py", """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, sys.argv[1]], env=dict(os.environ, SPAWNED=str(rank))) for rank in (1, 0)]
sys.exit(max(rank.wait() for rank in ranks))
""")
    case.plan({"command": ["{python}", case.path("launch.py"), case.path("train.py")]},
              *[{"python": sys.executable, "env": {"PYTHONPATH": os.path.join(SOURCE, "tests/e2e/fake_torch"), "SIDE": side}} for side in "ab"])
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        case.env.pop(name, None)
    done = case.run(env={"SLURM_PROCID": "0"})
    check_code(done, 0, 3)
    check_says(done, "60 a rank, 2 ranks")
    with open(case.path("ranks")) as file:
        told = {tuple(map(int, line.split())) for line in file}
    stored = case.rows("SELECT rank, pid FROM launch_rank")
    assert len(stored) >= 12 and set(stored) <= told, (stored, told)
    counts = case.rows("SELECT DISTINCT count(*), count(DISTINCT rank) FROM step s JOIN launch l ON l.id = s.launch_id JOIN pair p ON p.id = l.pair_id "
                       "WHERE p.state = 'valid' GROUP BY l.id")
    assert counts == [(120, 2)], counts


def test_ddp_under_torchrun(case):
    """The real thing: DistributedDataParallel over gloo, twice the code of the user in each step of the candidate."""
    python = os.path.join(SOURCE, "envs/candidate/bin/python")
    if not os.path.exists(python):
        raise Skip("no Python environment at envs/candidate")
    train = os.path.join(SOURCE, "ci/bench/found/train.py")
    run = ["{python}", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", train, "--steps", "40"]
    # A rank of two CPUs waits for the other, which a neighbour holds up: the median of the steps is what is asked for.
    case.plan({"command": run}, *[{"python": python, "env": {"WORK": work}} for work in ("1500", "3000")], timeout="100s", looks=[2],
              gate={"alpha": "40%", "metrics": {"step_time": {"margin": "10%"}}})
    done = case.run(timeout=500)
    check_says(done, "steps: Optimizer.step of AdamW, 40 a rank, 2 ranks")
    assert interleave(case) == "steps" and case.rows("SELECT DISTINCT ranks FROM launch") == [(2,)]
    check_code(done, 1)
    ratio, verdict = case.rows("SELECT ratio, verdict FROM cell WHERE metric = 'step_time'")[0]
    assert verdict == "fail" and 1.2 < ratio < 2.1, (ratio, verdict)


def test_step_calls_win(case):
    program(case, "import upgate\ntrain(40, steps=upgate.steps)")
    done = case.run()
    check_judged(case, done)
    assert interleave(case) == "steps" and case.rows(STEPS) == [(40, 40)] and case.value(NOTE) is None
    assert case.rows("SELECT DISTINCT name FROM step_phase") == [("data",)]


def check_whole(case, *says, steps=(None, None)):
    """Judged as a whole, with the reason."""
    done = case.run()
    check_judged(case, done)
    check_says(done, "judged on total time", *says)
    assert interleave(case) == "slices" and case.rows(STEPS) == [steps]
    assert case.value("SELECT gating FROM cell WHERE metric = 'total_time'") == 1
    assert case.pairs() == 3 and case.pairs("failed") == 0


WHOLE = {"gate": {"metrics": {"total_time": {"margin": "100%"}, "cpu_time": {"margin": "100%"}}}}


def test_one_side_makes_step_calls(case):
    program(case, "import upgate\ntrain(40, steps=upgate.steps if side == 'b' else iter)", **WHOLE)
    check_whole(case, "no rule cuts both sides into steps: Optimizer.step on side 'old', step calls of its own on", steps=(40, 40))


def test_two_rules(case):
    program(case, "if side == 'a':\n    train(40)\nelse:\n    model = Model()\n    for i in range(40): model()", **WHOLE)
    check_whole(case, "no rule cuts both sides into steps")


def test_one_side_has_none(case):
    program(case, "if side == 'a':\n    train(40)\nelse:\n    sum(range(10**6))", **WHOLE)
    check_whole(case, "none were found on both sides")


def test_one_step_only(case):
    program(case, "train(1)", **WHOLE)
    check_whole(case, "Optimizer.step of SGD comes 1 time only")


def test_sides_with_different_numbers_of_ranks(case):
    """Never a verdict on steps of one rank beside those of two."""
    program(case, "train(60)")
    case.write("launch.py", """
import os, subprocess, sys
count = 1 + (os.environ['SIDE'] == 'b')
ranks = [subprocess.Popen([sys.executable, sys.argv[1]], env=dict(os.environ, RANK=str(rank), LOCAL_WORLD_SIZE=str(count)))
         for rank in range(count)]
sys.exit(max(rank.wait() for rank in ranks))
""")
    case.plan({"command": ["{python}", case.path("launch.py"), case.path("train.py")]},
              *[{"python": sys.executable, "env": {"PYTHONPATH": os.path.join(SOURCE, "tests/e2e/fake_torch"), "SIDE": side}} for side in "ab"], **WHOLE)
    check_whole(case, "no rule cuts both sides into steps: side 'new' has 2 ranks, side 'old' one, or tells none", steps=(None, None))


def test_steps_of_a_warm_up_only(case):
    """Most of the work comes behind the last step: replays, say, by something that has no hooks."""
    program(case, "train(20)\ntime.sleep(5.3)", looks=[2], gate=dict(WHOLE["gate"], alpha="40%"))
    done = case.run()
    check_says(done, "Optimizer.step of SGD: the last of 20 is over ", "most of the work is in none", "judged on total time")
    behind = re.search(r"the last of 20 is over (\d+\.\d)", done.err + done.out)
    assert behind and 5 <= float(behind.group(1)) < 60, str(done)
    assert interleave(case) == "slices" and case.value("SELECT gating FROM cell WHERE metric = 'total_time'") == 1


def test_a_tail_that_is_shorter_than_the_rest(case):
    """A side may stand at its last gate while the other side has its end: that is no end of its own."""
    program(case, "train(24)\ntime.sleep(2.6)", {"SLEEP": "0.05"}, {"SLEEP": "0.05"}, looks=[2],
            gate={"alpha": "40%", "metrics": {"step_time": {"margin": "50%"}}})
    done = case.run()
    check_says(done, "steps: Optimizer.step of SGD, 24 a launch")
    assert interleave(case) == "steps"


GRAPHS = """
graphed = side == 'b'
class Step:
    def __init__(self, count=1):
        self.model, self.optimizers = Model(), [torch.optim.SGD() for _ in range(count)]
    def __call__(self):
        self.model()
        torch.autograd.backward([])
        for optimizer in self.optimizers:
            optimizer.step()
def captured(function):
    for _ in range(12):
        function()
    if not graphed:
        return function
    graph = torch.cuda.graphs.CUDAGraph()
    graph.capture_begin()
    function()
    graph.capture_end()
    return graph.replay
"""


def check_cut_alike(case, text, said, count):
    """One side calls, the other replays what it has captured."""
    program(case, GRAPHS + text)
    done = case.run()
    check_judged(case, done)
    check_says(done, said)
    assert interleave(case) == "steps" and case.rows(STEPS) == [(count, count)], case.rows(STEPS)


def test_a_whole_step_in_a_cuda_graph(case):
    """What is captured is not run, and each replay is a step, of two optimizers as on the other side."""
    check_cut_alike(case, "run = captured(Step(2))\nfor i in range(60): run()", "steps: Optimizer.step of SGD, 72 a launch", 72)


def test_several_graphs_of_one_step(case):
    """One for each shape, and the last batch of an epoch without."""
    check_cut_alike(case, "step = Step()\nrun = [captured(step), captured(step)]\n"
                          "for i in range(60): (step if i % 10 == 9 else run[i % 2])()", "steps: Optimizer.step of SGD, 84 a launch", 84)


def test_inference_in_cuda_graphs(case):
    check_cut_alike(case, "model = Model()\nrun = [captured(model), captured(model)]\n"
                          "for i in range(60): (model if i % 10 == 9 else run[i % 2])()", "steps: the call of Model, 84 a launch", 84)


SEVERAL = "step = Step()\ndef some(): [step() for _ in range(%s)]\nrun = captured(some)\nfor i in range(60): %s"


def test_several_steps_in_one_cuda_graph(case):
    """Which a replay makes all at once: the other side's steps are no such ones."""
    program(case, GRAPHS + SEVERAL % ("2", "run()"), **WHOLE)
    check_whole(case)
    assert "Optimizer.step of SGD on side 'old', Optimizer.step of SGD, 2 in each CUDA graph behind 24 called on side 'new'" in case.value(NOTE), case.value(NOTE)


def test_as_many_steps_in_each_cuda_graph(case):
    """A replay is a step, where both sides make as many in it, behind as many that are none."""
    program(case, GRAPHS.replace("side == 'b'", "True") + SEVERAL % ("2", "run()"))
    done = case.run()
    check_judged(case, done)
    assert "steps: Optimizer.step of SGD, 2 in each CUDA graph behind 24 called, 84 a launch" in case.value(NOTE), case.value(NOTE)
    assert interleave(case) == "steps" and case.rows(STEPS) == [(84, 84)], case.rows(STEPS)


def test_other_numbers_of_steps_in_cuda_graphs(case):
    program(case, GRAPHS.replace("side == 'b'", "True") + SEVERAL % ("2 + (side == 'b')", "run()"), **WHOLE)
    check_whole(case)
    assert "2 in each CUDA graph behind 24 called on side 'old', Optimizer.step of SGD, 3 in each CUDA graph behind 36 called on side 'new'" in case.value(NOTE), case.value(NOTE)
    os.unlink(case.db_path)
    program(case, GRAPHS.replace("side == 'b'", "True") + SEVERAL % ("2", "(step if i == 30 else run)()"), **WHOLE)
    check_whole(case)
    assert "CUDA graphs with several steps, and steps without, or with another number, on side 'old'" in case.value(NOTE), case.value(NOTE)


def test_a_rule_that_does_not_hold(case):
    program(case, "model = Model()\nfor i in range(20): model()\ntrain(20, model)", **WHOLE)
    check_whole(case, "calls of a model, then an optimizer")


def test_steps_from_calls_and_off(case):
    program(case, "train(40)", workload={"steps_from": "calls"}, **WHOLE)
    check_whole(case, "makes no step calls:")
    os.unlink(case.db_path)
    program(case, "import upgate\ntrain(40, steps=upgate.steps)", **WHOLE)
    done = case.run("ab", case.plan_path, "-o", case.db_path, "--steps-from", "off")
    check_judged(case, done)
    assert interleave(case) == "slices" and case.rows(STEPS) == [(None, None)], str(done)


def test_an_optimizer_at_full_speed(case):
    """Some 10,000 steps a second and more: nothing is lost, and phases are left out."""
    program(case, "train(20000)", {"WORK": "1"}, {"WORK": "1"}, timeout="60s")
    done = case.run()
    check_judged(case, done)
    assert case.rows(STEPS) == [(20000, 20000)]
    counted = case.value("SELECT max(count) FROM step_phase")
    assert counted < 100, counted
    assert case.value("SELECT sum(dropped) FROM ledger WHERE producer = 'step protocol'") == 0


def test_a_named_function(case):
    program(case, "def train_one():\n    train(1)\nfor i in range(30):\n    train_one()",
            workload={"step": "train.py:train_one"})
    done = case.run()
    check_judged(case, done)
    check_says(done, "steps: train.py:train_one, 30 a launch")
    assert interleave(case) == "steps" and case.rows(STEPS) == [(30, 30)]


def test_a_function_that_nobody_calls(case):
    program(case, "train(40)", workload={"step": "train.py:nothing"}, **WHOLE)
    check_whole(case, "'train.py:nothing' was not called on both sides")


def test_what_is_no_function(case):
    program(case, "train(40)")
    for step, says in (("symbol:", "is no symbol:NAME"), ("symbol:Server::handle(int)", "without its parameters"),
                       ("train_one", "is no FILE.py:FUNCTION")):
        for arguments in (("ab", case.plan_path, "-o", case.db_path), ("record", "-o", case.db_path)):
            done = case.run(*arguments, "--step", step, *(("--", "true") if arguments[0] == "record" else ()))
            check_code(done, 2)
            check_says(done, says)
    assert not os.path.exists(case.db_path)


def wait_for_a_pair(case, process):
    deadline = time.monotonic() + 60
    while not os.path.exists(case.db_path) or not case.rows("SELECT 1 FROM sqlite_master WHERE name = 'pair'") or \
            not case.pairs():
        assert time.monotonic() < deadline and process.poll() is None, "no pair was made"
        time.sleep(0.05)


def test_resume_goes_on_by_the_same_rule(case):
    program(case, "train(60)", looks=[4])
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_a_pair(case, process)
    process.terminate()
    case.finish(process)
    done = case.resume()
    check_judged(case, done)
    assert case.rows(STEPS.replace("launch", "v_launch WHERE pair_state = 'valid'")) == [(60, 60)]
    check_says(done, "steps: Optimizer.step of SGD, 60 a launch")


if __name__ == "__main__":
    ab_rig.main(globals(), certificates=False)
