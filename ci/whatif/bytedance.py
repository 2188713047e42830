#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What if, held against published answers: the three sample traces of "Understanding Stragglers in Large Model Training Using What-if Analysis"
(OSDI 2025), from the directory data/ of github.com/ByteDance-Seed/StragglerAnalysis. Needs the package duckdb to read Parquet.

    python3 ci/whatif/bytedance.py DATA [--replay build/release/ci/whatif/replay_file]

Each trace is brought into operations and dependencies by the rules of the paper's section 3, replayed by reports/analyse/replay, and compared, step by
step, with what is published: the replay of the job as it was, with all operations ideal, without the slowness of its last stage, and
without that of its slowest worker. Exit 1 when a step differs from the published one by more than 0.1 %, or a replay from what was measured by more
than the target (1 % in the median, 4 % at p90)."""
import argparse
import json
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIELDS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
COMPUTES = ("forward-compute", "backward-compute")
SENDS = ("forward-send", "forward-recv", "backward-send", "backward-recv")
OF_REPLICAS = ("params-all-gather", "grads-reduce-scatter")
COMMUNICATES = SENDS + OF_REPLICAS + ("layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad")
TARGET_MEDIAN, TARGET_P90, TARGET_PUBLISHED = 1.0, 4.0, 0.1  # per cent


def load(path):
    import duckdb
    return duckdb.sql("SELECT %s FROM read_parquet('%s') ORDER BY step, rank, optype, seq_id" % (", ".join(FIELDS), path.replace("'", "''"))).fetchall()


def chain(deps, ops):
    for before, op in zip(ops, ops[1:]):
        deps[op].append(before)


def stage_deps(rows, stages):
    """What depends on what in one stage of one replica in one step: {(optype, seq): [(optype, seq), …]}. All steps and replicas do alike."""
    of = {}
    for row in sorted(rows, key=lambda row: (row["start"], row["seq"], row["type"])):
        of.setdefault(row["type"], []).append((row["type"], row["seq"]))
    computes = [(row["type"], row["seq"]) for row in sorted(rows, key=lambda row: (row["start"], row["seq"], row["type"])) if row["type"] in COMPUTES]
    deps = {(row["type"], row["seq"]): [] for row in rows}
    stage = rows[0]["stage"]
    chain(deps, computes)  # the GPU does one after the other
    for kind in SENDS:  # each direction has a stream of its own
        chain(deps, of.get(kind, []))
    for way in ("forward", "backward"):
        for compute in of[way + "-compute"]:
            send, receive, before = (way + "-send", compute[1]), (way + "-recv", compute[1]), (way + "-compute", compute[1] - 1)
            if send in deps:
                deps[send].append(compute)
            if receive in deps:
                deps[compute].append(receive)
                if before in deps:
                    deps[receive].append(before)
    first = next(i for i, op in enumerate(computes) if op[0] == "backward-compute")
    for op in (("backward-send", 0), ("backward-recv", 0)):
        if first >= 2 and op in deps:  # it is launched while the warm-up's last forward pass runs
            deps[op].append(computes[first - 2])
    replicas = [op for kind in OF_REPLICAS for op in of.get(kind, [])]
    chain(deps, replicas)
    if "params-all-gather" in of:
        deps[of["forward-compute"][0]].append(of["params-all-gather"][-1])
    last = max((row for row in rows if row["type"] in COMPUTES), key=lambda row: row["end"])
    tail = [(last["type"], last["seq"]), ("gc", 0), ("layernorm-grads-all-reduce", 0)]
    if stage in (0, stages - 1):
        tail.append(("embedding-grads-all-reduce", 0))
    chain(deps, tail + of.get("grads-reduce-scatter", []) + [("optimizer-clip-main-grad", 0), ("optimizer", 0)])
    return deps


def group_of(row, stages):
    """Who waits for whom: operations with the same key."""
    kind, stage, step, replica, seq = row["type"], row["stage"], row["step"], row["dp"], row["seq"]
    if kind in ("forward-send", "backward-recv"):
        return kind.split("-")[0], step, replica, stage, seq
    if kind in ("forward-recv", "backward-send"):
        return kind.split("-")[0], step, replica, stage - 1, seq
    if kind in OF_REPLICAS:
        return kind, step, stage, seq
    if kind == "embedding-grads-all-reduce":
        return kind, step, replica
    if kind == "optimizer-clip-main-grad":
        return kind, step
    return None


def as_job(rows):
    """The text that replay_file reads; the numbers of the steps."""
    keys = ("dp", "stage", "rank", "step", "type", "start", "duration", "seq")
    rows = [dict(zip(keys, row)) for row in rows]
    for row in rows:
        row["end"] = row["start"] + row["duration"]
    steps, stages = sorted({row["step"] for row in rows}), max(row["stage"] for row in rows) + 1
    number = {row["rank"]: None for row in rows}
    number = {rank: i for i, rank in enumerate(sorted(number))}
    kinds = {kind: i for i, kind in enumerate(sorted({row["type"] for row in rows}))}
    deps = [stage_deps([row for row in rows if row["step"] == steps[0] and row["dp"] == 0 and row["stage"] == stage], stages)
            for stage in range(stages)]
    at = {(row["step"], row["dp"], row["stage"], row["type"], row["seq"]): i for i, row in enumerate(rows)}
    base = {step: min(row["start"] for row in rows if row["step"] == step) for step in steps}
    index, groups, lines = {step: i for i, step in enumerate(steps)}, {}, []
    for row in rows:
        key, on = group_of(row, stages), deps[row["stage"]][(row["type"], row["seq"])]
        group = -1 if key is None else groups.setdefault(key, len(groups))
        begin = round((row["start"] - base[row["step"]]) * 1e9)
        line = [begin, begin + round(row["duration"] * 1e9), number[row["rank"]], index[row["step"]], kinds[row["type"]], group,
                int(row["type"] in COMMUNICATES), len(on)]
        lines.append(line + [at[(row["step"], row["dp"], row["stage"]) + op] for op in on])
    stage_of = {number[row["rank"]]: row["stage"] for row in rows}
    head = [[len(rows), len(steps), len(number), len(kinds), len(groups), stages], [stage_of[i] for i in range(len(number))], [0] * len(steps)]
    measured = [max(row["end"] for row in rows if row["step"] == step) - base[step] for step in steps]
    grid = {(row["dp"], row["stage"]): number[row["rank"]] for row in rows}
    return "\n".join(" ".join(map(str, line)) for line in head + lines), steps, measured, grid


def worst_ranks(result, grid):
    """The 3 % of the workers that the published result gives most of the slowness, by replica and stage."""
    replicas, stages = result["blocking_decompose_by_dp_rank"], result["blocking_decompose_by_stage"]
    scores = sorted(grid, key=lambda cell: (-min(replicas[str(cell[0])], stages[str(cell[1])]), grid[cell]))
    return [grid[cell] for cell in scores[:-(-len(scores) * 3 // 100)]]


def mean(values):
    return sum(values) / len(values)


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def apart(ours, theirs):
    return [100 * abs(a / b - 1) for a, b in zip(ours, theirs)]


def check(name, directory, program):
    def known(kind):
        with open(os.path.join(directory, "%s-%s.json" % (kind, name)), encoding="utf-8") as file:
            return json.load(file)
    result = known("result")
    text, steps, measured, grid = as_job(load(os.path.join(directory, "trace-%s.parquet" % name)))
    begun = time.monotonic()
    run = subprocess.run([program] + [str(rank) for rank in worst_ranks(result, grid)], input=text, capture_output=True, text=True, check=True)
    took = time.monotonic() - begun
    ours = {line.split()[0]: [int(value) / 1e9 for value in line.split()[1:]] for line in run.stdout.splitlines()}
    published = {key: [result["step_t_" + key][str(step)] for step in steps] for key in ("base", "nodelay", "noblk")}
    simulated = apart(ours["replayed"], measured)
    rows = [("replayed", apart(ours["replayed"], published["nodelay"])), ("ideal", apart(ours["ideal"], published["noblk"]))]
    for question, kind, key in (("last_removed", "ms", "trem"), ("last_added", "ms", "tadd"), ("ranks_removed", "mw", "trem"), ("ranks_added", "mw", "tadd")):
        rows.append((question, apart([mean(ours[question])], [known(kind)[key]])))
    print("%s: %s operations, %d workers, %d steps; %.1f s for ten replays, with reading" % (name, text.split()[0], len(grid), len(steps), took))
    print("  measured %.3f s a step, replayed %.3f, all ideal %.3f, instant communication %.3f, stages balanced %.3f, without the slowest worker %.3f" % (
        mean(measured), mean(ours["replayed"]), mean(ours["ideal"]), mean(ours["instant"]), mean(ours["balanced"]), mean(ours["without"])))
    print("  off the measured step by %.2f %% in the median, %.2f %% at p90; with what delays them %.2f %% at most" % (
        quantile(simulated, 0.5), quantile(simulated, 0.9), max(apart(ours["delayed"], measured))))
    for question, errors in rows:
        print("  %-14s off the published answer by %.4f %% at most" % (question, max(errors)))
    return simulated, max(max(errors) for _, errors in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--replay", default=os.path.join(os.environ.get("UPGATE_BUILD") or os.path.join(ROOT, "build/release"), "ci/whatif/replay_file"))
    args = parser.parse_args()
    errors, worst = [], 0
    for name in ("AR", "SE", "ST"):
        simulated, apart_most = check(name, args.data, args.replay)
        errors += simulated
        worst = max(worst, apart_most)
    median, high = quantile(errors, 0.5), quantile(errors, 0.9)
    print("all %d steps: off the measured one by %.2f %% in the median, %.2f %% at p90 (target %g and %g); off the published answers by %.4f %% at most (%g)" % (
        len(errors), median, high, TARGET_MEDIAN, TARGET_P90, worst, TARGET_PUBLISHED))
    return int(median > TARGET_MEDIAN or high > TARGET_P90 or worst > TARGET_PUBLISHED)


if __name__ == "__main__":
    sys.exit(main())
