# SPDX-License-Identifier: Apache-2.0
"""Stores of runs that never ran, for ci/plants --verdicts: pairs of launches drawn step by step from the statistics
of real jobs (noise of steps and launches, drift that meets both sides, slow first steps, stragglers of the machine) and
from what is planted on the candidate. Written row by row as `upgate ab` writes them; knows nothing of how they are judged."""
import atexit
import contextlib
import functools
import json
import math
import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCHEMA = os.path.join(ROOT, "contracts", "schema.sql")
PAIRS, GAP_NS, BLOCK_NS, SWITCH_NS = 28, 2000, 20e6, 1.5e6
EMPTY = threading.Lock()
WARM_STEPS, WARM_FIRST = 5, 7.0  # step 0 takes 8 times as long, the next ones ever less

# sd of a launch, of a drift of both sides (AR(1) over couples), of a step; share of steps that the machine hits and the mean hit.
HOSTS = {"idle": (0.0015, 0.002, 0.008, 0.001, 0.5), "busy": (0.004, 0.01, 0.02, 0.01, 0.5),
         "unsteady": (0.01, 0.04, 0.06, 0.02, 1.0)}


class Job:
    """What both sides run. part: of the time the hypervisor gives to others, in lumps of some steps."""

    def __init__(self, steps=400, step_ns=1e6, host="idle", ranks=1, steal=0.0, pairs=PAIRS):
        self.steps, self.step_ns, self.host, self.ranks, self.steal, self.pairs = steps, step_ns, host, ranks, steal, pairs
        self.block_steps = max(1, int(BLOCK_NS / step_ns))
        self.blocks = self.layout()

    def layout(self):
        """(first step, steps) of the blocks: 1, 2, then full ones; what does not fill one is in none."""
        blocks, at = [], 0
        for size in [1, 2] + [self.block_steps] * self.steps:
            if at + size > self.steps:
                break
            blocks.append((at, size))
            at += size
        return blocks


# ---- patterns: how much of the strength each step of a launch gets ----------------------------------

def pattern(job, kind, options, rng):
    steps, weights = job.steps, [0.0] * job.steps
    if kind == "scale":
        return [1.0] * steps
    if kind == "every":
        for i in range(options.get("offset", options["n"] - 1), steps, options["n"]):
            weights[i] = 1.0
    elif kind in ("rare", "bimodal"):
        weights = [float(rng.random() < options["share"]) for _ in range(steps)]
    elif kind == "huge":
        for i in rng.sample(range(10, steps), options.get("count", 1)):
            weights[i] = 1.0
    elif kind == "burst":
        for _ in range(options["count"]):
            at = rng.randrange(10, steps - options["length"])
            weights[at:at + options["length"]] = [1.0] * options["length"]
    elif kind == "head":
        end = options["share"] * steps
        weights = [(math.exp(-3 * i / end) if options.get("decays") else 1.0) if i < end else 0.0 for i in range(steps)]
    elif kind == "tail":
        weights = [float(i >= (1 - options["share"]) * steps) for i in range(steps)]
    elif kind == "grow":
        stairs = options.get("stairs")
        weights = [math.floor(stairs * i / steps) / stairs if stairs else i / steps for i in range(steps)]
    elif kind == "block_first":
        for first, _ in job.blocks[2:]:
            weights[first] = 1.0
    elif kind == "block_every":
        for first, size in job.blocks[2 + rng.randrange(options["n"])::options["n"]]:
            weights[first:first + size] = [1.0] * size
    else:
        raise ValueError("no such pattern: %s" % kind)
    return weights


def mean_weight(job, part):
    """Of all steps of all launches: what the strength of a part is worth in the mean."""
    rng = random.Random(1)
    kind, options = part["kind"], part
    total = sum(sum(pattern(job, kind, options, rng)) for _ in range(50)) / 50 / job.steps
    return total * part.get("launches", 1.0)


def chosen(job, part, rng):
    """Which launches a part is about: {"launches": share}, or exactly {"of": count}."""
    if "of" in part:
        return set(rng.sample(range(job.pairs), part["of"]))
    return {k for k in range(job.pairs) if rng.random() < part.get("launches", 1.0)}


# ---- launches --------------------------------------------------------------------------------------

def base_steps(job, rng, drift):
    """Durations without a plant, by rank, and what the machine took of each."""
    launch_sd, _, step_sd, hits, hit = HOSTS[job.host]
    level = job.step_ns * math.exp(rng.gauss(0, launch_sd))
    ranks, takes = [], []
    for _ in range(job.ranks):
        steps, taken = [], []
        for i in range(job.steps):
            one, lost = level * drift[i] * math.exp(rng.gauss(0, step_sd)), 0.0
            if rng.random() < hits:
                lost += one * rng.expovariate(1 / hit)
            if i < WARM_STEPS:
                one *= 1 + WARM_FIRST * 0.2 ** i
            if job.steal and rng.random() < 0.5:
                lost += rng.expovariate(1 / (2 * job.step_ns * job.steal / (1 - job.steal)))
            steps.append(one + lost)
            taken.append(lost)
        ranks.append(steps)
        takes.append(taken)
    return ranks, takes


def drift_of(job, rng):
    """The same for both sides: what the machine does over seconds."""
    sd, level, values = HOSTS[job.host][1], rng.gauss(0, HOSTS[job.host][1]), []
    for _, size in job.blocks + [(0, job.steps)]:
        level = 0.9 * level + math.sqrt(1 - 0.81) * rng.gauss(0, sd)
        values += [math.exp(level)] * size
    return values[:job.steps]


def planted(job, parts, picked, k, base, taken, gaps, rng):
    """Adds the parts that hold in launch k; the share of the launch's time that they are. Of several ranks one is hit. A part that is
    "blamed" is a delay that the readings of the machine call the machine's; one that is "between" comes after the end of its step."""
    added, whole = 0.0, sum(base[0])
    for part, launches in zip(parts, picked):
        if k not in launches:
            continue
        rank = part.get("rank", 0) % job.ranks
        target = base[rank]
        for i, weight in enumerate(pattern(job, part["kind"], part, rng)):
            if weight:
                extra = target[i] * part["strength"] * weight / (1 + WARM_FIRST * 0.2 ** i if i < WARM_STEPS else 1)
                (gaps if part.get("between") else target)[i] += extra
                taken[rank][i] += extra if part.get("blamed") else 0
                added += extra
    return added / whole


@functools.cache
def empty_store_once():
    path = os.path.join(tempfile.mkdtemp(prefix="upgate-verdicts-"), "empty.db")
    atexit.register(shutil.rmtree, os.path.dirname(path), True)
    with open(SCHEMA, encoding="utf-8") as file, contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA synchronous = OFF;" + file.read())
    return path


def empty_store():
    """The path of a store with its tables, and no rows."""
    with EMPTY:
        return empty_store_once()


class Store:
    """One store in the making; .effects holds what was planted in each pair, a share of the launch's time."""

    def __init__(self, path, plan, kind="ab", host_key="host-1", rng=None):
        shutil.copyfile(empty_store(), path)
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; BEGIN")
        self.rng, self.effects, self.at_ns = rng or random.Random(1), [], 10 ** 12
        now = time.time_ns()
        self.add("run", id=1, uuid="%032x" % self.rng.getrandbits(128), kind=kind, state="done", upgate_version="0", started_wall_ns=now, seed=7,
                 plan=json.dumps(plan), command_line="[]", host="{}", host_key=host_key)
        for side, name in enumerate(("baseline", "candidate")):
            self.add("side", id=side, name=plan[name]["name"], config=json.dumps(plan[name]))
        self.add("workload", id=1, name=plan["workloads"][0]["name"], mode=plan["workloads"][0]["mode"], interleave="steps")

    def add(self, table, **row):
        self.db.execute("INSERT INTO %s (%s) VALUES (%s)" % (table, ",".join(row), ",".join("?" * len(row))), tuple(row.values()))

    def many(self, table, columns, rows):
        self.db.executemany("INSERT INTO %s (%s) VALUES (%s)" % (table, ",".join(columns), ",".join("?" * len(columns))), rows)

    def pair(self, k, job, sides, takes, gaps):
        """sides: durations of both, by rank; takes: what the machine took of them; gaps: what comes after each step."""
        first_side, pair = self.rng.randrange(2), k + 1
        total = sum(map(sum, (sides[0][0], sides[1][0], *gaps))) + 5e7
        self.add("pair", id=pair, workload_id=1, idx=k, phase="main", seed=7 + k, first_side=first_side, interleave="steps", steps=job.steps,
                 state="valid", started_ns=int(self.at_ns), ended_ns=int(self.at_ns + total))
        begins, blocks = [[], []], []
        at = 3e7
        for couple, (first, size) in enumerate(job.blocks + [(sum(size for _, size in job.blocks), job.block_steps)]):
            leader = self.rng.randrange(2)
            for side in (leader, 1 - leader):
                at += SWITCH_NS
                start = at
                for i in range(first, min(first + size, job.steps)):
                    begins[side].append(at)
                    at += max(rank[i] for rank in sides[side]) + gaps[side][i]
                if couple < len(job.blocks):
                    lost = int(max(sum(rank[first:first + size]) for rank in takes[side]))
                    row = (pair, couple, side, int(side == leader), first, size, int(self.at_ns + start), int(at - start))
                    blocks.append(row + (int(at - start) - lost,) * 2 + (0, lost, lost, lost))
        columns = ("pair_id", "couple", "side", "ran_first", "first_step", "steps", "begin_ns", "active_ns")
        self.many("block", columns + ("cpu_ns", "step_cpu_ns", "wait_ns", "foreign_ns", "steal_ns", "machine_ns"), blocks)
        for side in range(2):
            self.launch(2 * k + 1 + side, pair, side, job, sides[side], begins[side], sum(gaps[side]), total)
        self.at_ns += total + 5e7

    def launch(self, launch, pair, side, job, ranks, begins, between, total):
        active = sum(map(max, zip(*ranks))) + between
        memory = 1e9 * math.exp(self.rng.gauss(0, 1e-4))
        covariates = {"window_ns": int(total), "load1": 0.2, "steal_ns": int(total * job.steal), "psi_cpu_ns": int(0.01 * total), "psi_io_ns": 0,
                      "psi_memory_ns": 0, "throttle_events": None, "suspended_ns": 0, "oom_kills": 0, "freq_khz": None, "foreign_cpu_ns": int(0.02 * total),
                      "freezer": "cgroup v2", "freeze_count": len(job.blocks), "freeze_ns": 1000000}
        self.add("launch", id=launch, pair_id=pair, side=side, state="ok", exit_code=0, started_ns=int(self.at_ns), ended_ns=int(self.at_ns + total),
                 active_ns=int(active + 3e7), held_ns=int(total - active), cpu_ns=int(active * job.ranks + 2e7), peak_memory_bytes=int(memory),
                 steps=job.steps, ranks=job.ranks, dropped=0, covariates=json.dumps(covariates))
        self.many("launch_rank", ("launch_id", "rank", "pid"), [(launch, rank, 100 + 10 * launch + rank) for rank in range(job.ranks)])
        self.many("step", ("launch_id", "rank", "idx", "begin_ns", "dur_ns", "samples"),
                  [(launch, rank, i, int(begin), int(dur), 32.0) for rank, steps in enumerate(ranks)
                   for i, (begin, dur) in enumerate(zip(begins, steps))])
        self.add("ledger", launch_id=launch, producer="step protocol", kind="records", seen=2 * job.steps, kept=2 * job.steps, dropped=0, breach=0)

    def close(self):
        self.db.execute("COMMIT")
        self.db.close()


def plan_of(upgate, job, directory, gate=None):
    """A plan with every default, as `upgate ab --dry-run` tells it."""
    path = os.path.join(directory, "written.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"baseline": {"name": "old", "env": {}}, "candidate": {"name": "new", "env": {}},
                   "workloads": [{"name": "w", "command": ["job", "{steps}"], "mode": "train", "steps": job.steps, "ranks": job.ranks,
                                  "interleave": "steps"}],
                   "schedule": {"traced_launches": 0},
                   "gate": dict({"parity": {"rule": "off"}, "calibrate": "require"}, **(gate or {}))}, file)
    done = subprocess.run([upgate, "ab", path, "--dry-run", "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def write(path, plan, job, parts, seed, kind="ab", host_key="host-1"):
    """parts: of "baseline", "candidate" and "both", lists of {"kind", "strength", …, "launches" or "of"}; of `both` each side makes its
    own draw. Returns, for each pair, what was planted on the candidate alone, as a share of the launch."""
    rng = random.Random("%s %d" % (json.dumps(parts, sort_keys=True), seed))
    store = Store(path, plan, kind, host_key, rng)
    own = [parts.get("baseline") or [], parts.get("candidate") or []]
    both = parts.get("both") or []
    picked = [[chosen(job, part, rng) for part in side + both] for side in own]
    effects = []
    for k in range(job.pairs):
        drift = drift_of(job, rng)
        sides, takes = zip(*[base_steps(job, rng, drift) for _ in range(2)])
        gaps = [[GAP_NS] * job.steps for _ in range(2)]
        for side in range(2):
            share = planted(job, own[side], picked[side], k, sides[side], takes[side], gaps[side], rng)
            planted(job, both, picked[side][len(own[side]):], k, sides[side], takes[side], gaps[side], rng)
        effects.append(share)
        store.pair(k, job, sides, takes, gaps)
    store.close()
    return effects
