#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stores of A/B runs on GPUs that never were, with one planted difference between the sides and the answer to it.

A step is a list of ops. A small simulation runs it as a GPU does: the host calls in order at a cost each, streams run
first in first out, what waits holds the host up, collectives begin when the last rank has come. So a plant moves the step
time as it would in reality, and a slower kernel that is hidden behind another one moves nothing. The untraced pairs, the
traced ones with their tables, and what the gate would have judged go into a store by contracts/schema.sql.

    python3 tests/e2e/diff_store.py PLANT out.db [--names scrambled] [--seed N] [--pairs N] [--traced N] [--host] [--autograd] [--strength SHARE] [--noise KIND]
    python3 tests/e2e/diff_store.py --list

From Python: write(plant, path, **options) -> Answer."""
import argparse
import dataclasses
import difflib
import functools
import json
import math
import random
import sys

from diff_store_model import Answer, BLOCK_STEPS, MS, PLANTS
from diff_store_gpu import run_pair
from diff_store_noise import KINDS
from diff_store_writer import Recording, Writer


@dataclasses.dataclass
class Options:
    seed: int = 1
    pairs: int = 10
    traced: int = 4  # as a plan has it
    couples: int = 8
    names: str = "plain"
    host: bool = False
    hz: int = 997
    interleave: str = "steps"
    autograd: bool = False  # the backward pass is called by a thread of its own, as PyTorch does
    noise: str = "quiet"  # from launch to launch: diff_store_noise
    strength: float = 0.0  # share of the step that the plant moves it by; 0: as it was planted


def as_strong(a, b, factor):
    """Both sides' ops with `factor` times of what was planted: what was changed lies between the sides, or beyond the new one."""
    changes = difflib.SequenceMatcher(None, [repr(op) for op in a], [repr(op) for op in b], autojunk=False).get_opcodes()
    only_removed = all(word in ("equal", "delete") for word, *_ in changes)
    sides = [], []

    def between(old, new):
        return max(0, int(old + factor * (new - old)))

    for word, a0, a1, b0, b1 in changes:
        old, new = a[a0:a1], b[b0:b1]
        if word == "delete" and only_removed:
            old = [op.but(dur=int(op.dur * factor)) for op in old]
        elif word in ("insert", "replace") and [op.kind for op in old] == [op.kind for op in new]:
            new = [to.but(dur=between(op.dur, to.dur), cost=between(op.cost, to.cost),
                          nodes=tuple(as_strong(op.nodes, to.nodes, factor)[1])) for op, to in zip(old, new)]
        elif new:
            field = "cost" if any(op.kind == "graph" for op in old) else "dur"
            before_ns, after_ns = (sum(getattr(op, field) for op in ops) for ops in (old, new))
            scale = between(before_ns, after_ns) / after_ns if after_ns else 1
            new = [op.but(**{field: int(getattr(op, field) * scale)}) for op in new]
        sides[0].extend(old)
        sides[1].extend(new)
    return sides


@functools.lru_cache(maxsize=None)
def sides_of(name, strength=0.0):
    """strength: share of the step that the plant moves it by; 0: as it was planted. ValueError: this plant cannot be as strong."""
    change, kinds, pattern, where, base, ranks, answer = PLANTS[name]
    plain = base()
    a = [plain] * ranks
    b = [change(plain, r) if name == "straggler" else change(plain) for r in range(ranks)]
    if strength and answer.get("whole"):
        raise ValueError(f"{name} changes where all kernels are")
    if strength:
        before_ns, after_ns = truth((a, b), ranks)
        sign = 1 if after_ns > before_ns else -1
        low, high = 0.0, 64.0
        for _ in range(14):
            middle = math.sqrt(max(low, 1 / 64) * high)
            new = [list(side) for side in zip(*(as_strong(x, y, middle) for x, y in zip(a, b)))]
            before_ns, after_ns = truth(new, ranks)
            moved = sign * (after_ns / before_ns - 1)
            if abs(moved / strength - 1) < 0.005:
                break
            low, high = (low, middle) if moved > strength else (middle, high)
        if abs(moved / strength - 1) > 0.1:
            raise ValueError(f"{name} cannot move a step by {strength:.0%}")
        a, b = new
    return [a, b], ranks, Answer(name, kinds, pattern, where, **answer)


def truth(sides, ranks):
    """Step time of each side without noise and tracing."""
    launches, _, _ = run_pair(sides, None, 4, ranks, False, MS)
    return tuple(sum(b[1] for b in launch.blocks[1:]) / sum(b[3] for b in launch.blocks[1:]) for launch in launches)


def add_launch(w, pair, side, launch, options, span):
    steps = sum(b[3] for b in launch.blocks)
    active = sum(b[1] for b in launch.blocks)
    launch_id = w.add("launch", pair_id=pair, side=side, state="ok", exit_code=0, started_ns=span[0], ended_ns=span[1], active_ns=active,
                      held_ns=span[1] - span[0] - active, cpu_ns=active, peak_memory_bytes=300 << 20, peak_gpu_memory_bytes=4 << 30, steps=steps,
                      ranks=len(launch.ranks), dropped=0, covariates="{}")
    for rank in launch.ranks:
        w.many("step", ("launch_id", "rank", "idx", "begin_ns", "dur_ns", "samples"),
               [(launch_id, rank.rank, idx, begin - span[0], dur, 32.0) for idx, begin, dur in rank.steps])
    w.add("ledger", launch_id=launch_id, producer="step protocol", kind="records", seen=steps, kept=steps, dropped=0, breach=0)
    warm = launch.blocks[1:]
    step_ns = sum(b[1] for b in warm) / max(1, sum(b[3] for b in warm))
    for metric, value in (("step_time", step_ns), ("throughput", 32e9 / step_ns), ("first_step_time", float(launch.blocks[0][1])), ("total_time", float(active))):
        w.add("launch_metric", launch_id=launch_id, metric=metric, value=value)
    return launch_id, step_ns


def add_first_step(w, firsts):
    """The cell of the first step: observed, never judged."""
    logs = [math.log(b / a) for a, b in zip(*firsts)]
    mean = sum(logs) / len(logs)
    half = 3.2 * math.sqrt(sum((x - mean) ** 2 for x in logs) / max(1, len(logs) - 1) / len(logs))
    medians = [sorted(side)[len(side) // 2] for side in firsts]
    w.add("cell", workload="train", metric="first_step_time", unit="ns", direction="lower", gating=0, median_a=medians[0], median_b=medians[1],
          ratio=math.exp(mean), ci_lower=math.exp(mean - half), ci_upper=math.exp(mean + half), alpha=0.01, pairs=len(logs), look=0, margin=0.1,
          verdict="pass", improved=0, reason="observed")


def add_judgement(w, ratios, options, medians):
    mean = sum(ratios) / len(ratios)
    sd = math.sqrt(sum((r - mean) ** 2 for r in ratios) / max(1, len(ratios) - 1)) or 1e-6
    half = 3.2 * sd / math.sqrt(len(ratios))
    lower, upper = math.exp(mean - half), math.exp(mean + half)
    word = "fail" if lower > 1.02 else "pass" if upper <= 1.02 else "inconclusive"
    reason = f"{abs(math.expm1(mean)) * 100:.1f} % {'slower' if mean > 0 else 'faster'}: ratio {math.exp(mean):.4f} ({lower:.4f} to {upper:.4f}) at {len(ratios)} pairs"
    w.add("cell", workload="train", metric="step_time", unit="ns", direction="lower", gating=1, median_a=medians[0], median_b=medians[1], ratio=math.exp(mean),
          ci_lower=lower, ci_upper=upper, alpha=0.01, pairs=len(ratios), look=0, margin=0.02, mde=half * 2, pair_sd=sd, verdict=word,
          improved=int(upper < 0.98), reason=reason)
    w.add("verdict", id=1, verdict=word, reason=f"train step_time: {reason}", margin_note="step_time 2 %", policy="{}", trust_ok=1, calibrated=1,
          calibration_note="train: a side held 2 % longer was found, +1.72 to +2.27 % in step_time, at 14 pairs of this run; 0 false fails in 12 A/A gates here", judged_wall_ns=1795263850000000001)


def write(plant_name, path, **options):
    """Writes the store of a plant and gives its answer."""
    options = Options(**options)
    sides, ranks, answer = sides_of(plant_name, options.strength)
    answer = dataclasses.replace(answer)
    answer.step_ns = truth(sides, ranks)
    answer.delta_ns = answer.step_ns[1] - answer.step_ns[0]
    generator = random.Random(f"{plant_name} {options.seed}" + (f" {options.noise}" if options.noise != "quiet" else ""))
    w = Writer(path)
    fingerprints = [json.dumps({"schema": "upgate.fingerprint/1", "taken_wall_ns": 1, "read_ns": 1, "components": {"torch": v, "nccl": n, "cuda_runtime": c}})
                    for v, n, c in (("2.4.0", "2.20.5", "12.4"), ("2.6.0", "2.25.1", "12.6"))]
    w.add("run", id=1, uuid="5d1f0000-0000-4000-8000-000000000001", kind="aa" if plant_name.startswith("aa") else "ab", state="done", upgate_version="0.1.0",
          started_wall_ns=1795262400000000000, ended_wall_ns=1795263850000000000, seed=options.seed, plan="{}", plan_path="plan.yaml",
          command_line='["upgate","ab","plan.yaml"]', host="{}", host_key="test-host")
    for side, name in enumerate(("old", "new")):
        w.add("side", id=side, name=name, config="{}", fingerprint=fingerprints[side])
    w.add("workload", id=1, name="train", mode="train", interleave=options.interleave)
    now, ratios, per_side, firsts = 1000 * MS, [], ([], []), ([], [])
    for idx in range(options.pairs + options.traced):
        traced = idx >= options.pairs
        begin = now + 500 * MS
        launches, order, end = run_pair(sides, generator, options.couples, ranks, traced, begin + 2 * MS, options.noise)
        now = end + 10 * MS
        span = begin, now
        pair = w.add("pair", workload_id=1, idx=idx - options.pairs if traced else idx, phase="traced" if traced else "main", seed=100 + idx,
                     first_side=order[0], interleave=options.interleave, steps=1 + (options.couples - 1) * BLOCK_STEPS, state="valid",
                     started_ns=begin, ended_ns=now)
        times = []
        for side, launch in enumerate(launches):
            launch_id, step_ns = add_launch(w, pair, side, launch, options, span)
            times.append(step_ns)
            w.many("block", ("pair_id", "couple", "side", "ran_first", "first_step", "steps", "begin_ns", "active_ns"),
                   [(pair, couple, side, int(order[couple] == side), first, count, at, dur)
                    for couple, (at, dur, first, count) in enumerate(launch.blocks)])
            if traced:
                Recording(w, launch_id, launch, side, options, span)
        if not traced:
            logs = [math.log(b[1] / b[3] / (a[1] / a[3])) for a, b in zip(launches[0].blocks[1:], launches[1].blocks[1:])]
            mean = sum(logs) / len(logs)
            within = math.sqrt(sum((x - mean) ** 2 for x in logs) / max(1, len(logs) - 1) / len(logs))
            w.add("pair_ratio", pair_id=pair, metric="step_time", log_ratio=mean, within_sd=within, couples=len(logs))
            ratios.append(mean)
            for side in (0, 1):
                per_side[side].append(times[side])
                firsts[side].append(launches[side].blocks[0][1])
    if ratios:
        add_judgement(w, ratios, options, [sorted(times)[len(times) // 2] for times in per_side])
        add_first_step(w, firsts)
    w.db.commit()
    w.db.close()
    if not options.host and "host_stall" in answer.kinds:  # the device alone tells that the host was late, not why
        answer.kinds, answer.name = (*answer.kinds, "launch_gap"), ""
    if options.names == "scrambled":
        answer.name = ""  # names of the candidate say nothing any more
        if "kernel_slower" in answer.kinds:
            answer.kinds = (*answer.kinds, "kernel_replaced")
    return answer


def main():
    parser = argparse.ArgumentParser(description="Writes the store of an A/B run with a planted difference; prints the answer as JSON.")
    parser.add_argument("plant", nargs="?", choices=sorted(PLANTS))
    parser.add_argument("out", nargs="?")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--names", choices=("plain", "scrambled"), default="plain")
    parser.add_argument("--noise", choices=KINDS, default="quiet", help="from launch to launch")
    parser.add_argument("--host", action="store_true", help="host samples, gaps and stacks, too")
    parser.add_argument("--autograd", action="store_true", help="the backward pass is called by a thread of its own")
    for name in ("seed", "pairs", "traced", "couples"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Options, name))
    parser.add_argument("--strength", type=float, default=0.0, metavar="SHARE", help="of the step, such as 0.03; as planted without it")
    arguments = parser.parse_args()
    if arguments.list or not arguments.out:
        for name in PLANTS:
            sides, ranks, answer = sides_of(name)
            a, b = truth(sides, ranks)
            print(f"{name:24} {a / MS:7.3f} ms {b / MS:7.3f} ms {100 * (b / a - 1):+7.2f} %  {' '.join(answer.kinds) or 'nothing'}")
        return 0
    answer = write(arguments.plant, arguments.out, seed=arguments.seed, pairs=arguments.pairs, traced=arguments.traced, couples=arguments.couples,
                   names=arguments.names, host=arguments.host, autograd=arguments.autograd, strength=arguments.strength, noise=arguments.noise)
    print(json.dumps(dataclasses.asdict(answer)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
