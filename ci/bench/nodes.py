#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate node` with nodes that are processes of this machine, a rank each (tests/root/node_job.c): does it give the verdict that `upgate ab`
gives of as many ranks on one node, with equal sides and with one that is 10 % slower, controls and all; and what a hand-over costs, in turns
of few steps. Exit 1 when verdicts differ, a cell is wrong, or a pair is lost. Needs root, and CPUs that nobody else wants: a CPU a
rank for the control, which holds all ranks at work at a time. --torch: the same with two nodes of PyTorch over gloo, each started by
a torchrun of its own, whose steps are found.

    python3 ci/bench/nodes.py [--nodes 4] [--rounds 1] [--torch PYTHON] | --kills N
"""
import argparse
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("UPGATE_BUILD", os.path.join(ROOT, "build", "release"))
UPGATE, JOB = os.path.join(BUILD, "upgate"), os.path.join(BUILD, "tests", "root", "node_job")
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "MASTER_", "PET_")
TRAIN = """
import os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    time.sleep(int(sys.argv[2]) * 1e-6)
    model(torch.ones(32, 256)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
os._exit(0)  # as in ci/stalls/ddp.py
"""


def environment(folder, **more):
    own = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return dict(own, OMP_NUM_THREADS="1", UPGATE_STATE_DIR=os.path.join(folder, "state"), **{name: str(value) for name, value in more.items()})


def write_plan(folder, name, step_us, command, steps, schedule, gate, python=None, ranks=1):
    path = os.path.join(folder, name + ".yaml")
    side = ', python: "%s"' % python if python else ""
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(['baseline: {name: old, env: {STEP_US: "%d"}%s}' % (step_us[0], side),
                              'candidate: {name: new, env: {STEP_US: "%d"}%s}' % (step_us[1], side),
                              "workloads:", "  - {name: job, steps: %d, ranks: %d, command: %s}" % (steps, ranks, json.dumps(command)),
                              "schedule: {traced_launches: 0, %s}" % schedule, "gate: {%s}" % gate, ""]))
    return path


def nodes(folder, plan, name, count):
    """Verdict document and exit code, the same on all."""
    words = [UPGATE, "node", plan, "-o", os.path.join(folder, "ab"), "--job", name, "--format", "json", "-q"]
    running = [subprocess.Popen(words, env=environment(folder, RANK=k, WORLD_SIZE=count, MASTER_ADDR="127.0.0.1"), stdout=subprocess.PIPE, text=True)
               for k in range(count)]
    said = [one.communicate(timeout=1800)[0] for one in running]
    assert len({one.returncode for one in running}) == 1, [one.returncode for one in running]
    return json.loads(said[0])


def alone(folder, plan, name):
    done = subprocess.run([UPGATE, "ab", plan, "-o", os.path.join(folder, name + ".db"), "--format", "json", "-q"], env=environment(folder),
                          stdout=subprocess.PIPE, text=True, timeout=1800)
    return json.loads(done.stdout)


def step_time(document):
    return [one for one in document["cells"] if one["metric"] == "step_time"][0]


def say(what, document):
    cell = step_time(document)
    print("%-24s %-13s step_time %s %.4f (%.4f to %.4f), %d pairs" % (what, document["verdict"], cell["verdict"], cell["ratio"],
                                                                     cell["ci_lower"], cell["ci_upper"], cell["pairs"]), flush=True)
    if document["verdict"] == "inconclusive":
        print("  " + document["reason"])


def lost(folder, name):
    with sqlite3.connect(os.path.join(folder, "ab", name, "run.db")) as base:
        return base.execute("SELECT count(*) FROM pair WHERE state <> 'valid'").fetchone()[0]


def hand_overs(folder, name, count):
    """From the arrival of the last rank of all nodes to the begin of the last one's second step, less a step: us, each turn."""
    turns = {}
    for k in range(count):
        store = "node-%d.db" % k if k else "run.db"
        with sqlite3.connect(os.path.join(folder, "ab", name, store)) as base:
            for pair, couple, ran_first, steps, begin, active in base.execute(
                    "SELECT pair_id, couple, ran_first, steps, begin_ns, active_ns FROM block WHERE couple > 0"):
                turn = turns.setdefault((pair, couple, -ran_first), [0, 0, []])
                turn[0], turn[1] = max(turn[0], begin), max(turn[1], begin + active)
                turn[2].append(active / steps)
    ordered = sorted(turns.items())
    result = []
    for (before, last), (after, this) in zip(ordered, ordered[1:]):
        if before[0] == after[0] and after[1] - before[1] <= 1:
            result.append((this[0] - last[1] - statistics.median(this[2])) / 1000)
    return result


def left(folder):
    """Processes of it that are still there after 10 s."""
    for _ in range(100):
        found = subprocess.run(["pgrep", "-f", folder], stdout=subprocess.PIPE, text=True).stdout.split()
        if not found:
            return []
        time.sleep(0.1)
    return found


def kills(folder, plan, times, count):
    """One node is killed at any moment: how the others end. False: one hung, agreed to pass, or left something behind."""
    draw, good = random.Random(5), True
    for number in range(times):
        name, who, when = "kill%d" % number, draw.randrange(count), draw.uniform(0.05, 6)
        words = [UPGATE, "node", plan, "-o", os.path.join(folder, "ab"), "--job", name, "-q", "--wait", "5s"]
        running = [subprocess.Popen(words, env=environment(folder, RANK=k, WORLD_SIZE=count, MASTER_ADDR="127.0.0.1"),
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for k in range(count)]
        time.sleep(when)
        running[who].kill()
        begun, codes = time.monotonic(), []
        for one in running:
            try:
                codes.append(one.wait(timeout=60))
            except subprocess.TimeoutExpired:
                codes.append("hangs")
                one.kill()
        bad = [code for k, code in enumerate(codes) if k != who and code not in (3, 4)]
        rest = left(folder)
        good = good and not bad and not rest
        print("node %d killed after %.2f s: %s after %.1f s%s" % (who, when, codes, time.monotonic() - begun, ", left: %s" % rest if rest else ""),
              flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="only kill one of three nodes, N times at any moment")
    asked = parser.parse_args()
    failed = 0
    gate = "metrics: {step_time: {margin: 5%}, mean_step_time: {observe: true}, slow_steps: {observe: true}, warm_up_time: {observe: true}}, " \
           "parity: {rule: off}"
    # A CPU for each rank, as on nodes of their own: who is woken by a peer would else wait until that one has been held.
    cpus = len(os.sched_getaffinity(0))
    command = ["sh", "-c", "exec taskset -c $(({node_rank} %% %d)) %s {steps} $STEP_US {node_rank} {nodes} {port}" % (cpus, JOB)]
    together = ["sh", "-c", "for rank in $(seq 0 %d); do RANK=$rank taskset -c $((rank %% %d)) %s {steps} $STEP_US $rank "
                "%d {port} & done; wait" % (asked.nodes - 1, cpus, JOB, asked.nodes)]
    torch = ["sh", "-c", "exec {python} -m torch.distributed.run --nnodes {nodes} --node-rank {node_rank} --nproc-per-node 1 --master-addr {master} "
             "--master-port {port} %s {steps} $STEP_US"]
    with tempfile.TemporaryDirectory(prefix="upgate-nodes-", dir=BUILD) as folder:
        if asked.kills:
            again = ["sh", "-c", "exec %s {steps} $STEP_US {node_rank} {nodes} {port} %s/none" % (JOB, folder)]
            plan = write_plan(folder, "kills", (2000, 2000), again, 150, "block_steps: 10, handover: 1s, timeout: 10s, looks: [20]",
                              gate + ", calibrate: require")
            return 0 if kills(folder, plan, asked.kills, 3) else 1
        for number in range(asked.rounds):
            for what, step_us, wanted in (("same", (2000, 2000), "pass"), ("slow", (2000, 2200), "fail")):
                name = "%s%d" % (what, number)
                plan = write_plan(folder, name, step_us, command, 200, "block_steps: 10", gate)
                one_plan = write_plan(folder, name + "-one", step_us, together, 200, "block: 20ms", gate, ranks=asked.nodes)
                one, all_of = alone(folder, one_plan, name), nodes(folder, plan, name, asked.nodes)
                say(what + ", upgate ab", one)
                say("%s, %d nodes" % (what, asked.nodes), all_of)
                failed += one["verdict"] != all_of["verdict"] or step_time(one)["verdict"] != wanted or step_time(all_of)["verdict"] != wanted
        plan = write_plan(folder, "turns", (300, 300), command, 2200, "looks: [7], block_steps: 3", gate + ", calibrate: require")
        nodes(folder, plan, "turns", asked.nodes)
        took = sorted(hand_overs(folder, "turns", asked.nodes))
        failed += lost(folder, "turns")
        print("%d hand-overs of %d nodes: median %.0f us, p90 %.0f us, p99 %.0f us, longest %.1f ms; %d pairs lost" % (
            len(took), asked.nodes, took[len(took) // 2], took[len(took) * 9 // 10], took[len(took) * 99 // 100], took[-1] / 1000,
            lost(folder, "turns")))
        if asked.torch:
            script = os.path.join(folder, "train.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write(TRAIN)
            torch[2] = torch[2] % script
            for what, step_us, wanted in (("torch same", (5000, 5000), ("pass", "inconclusive")), ("torch slow", (5000, 6000), ("fail",))):
                plan = write_plan(folder, what.replace(" ", "-"), step_us, torch, 100, "looks: [7], block_steps: 10",
                                  gate + ", calibrate: require", asked.torch)
                document = nodes(folder, plan, what.replace(" ", "-"), 2)
                say(what + ", 2 nodes", document)
                failed += document["verdict"] not in wanted
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
