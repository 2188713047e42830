#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often `upgate diff` names what was planted into synthetic stores (tests/e2e/diff_store.py), by mode and strength of the plant, noise of the
launches (tests/e2e/diff_store_noise.py) and traced pairs. A store's answer is right first (kind, name, place and sign of what is named first), right in
the first three, missed (nothing else is named), or wrong (something else is named first and the plant is not among the first three). Plants that cost
nothing, and A/A stores, are right when nothing is named. A plant that cannot be as strong as asked is left out and counted.
Exit 1 where with quiet launches and the most traced pairs fewer than 95 % of those as planted or of 3 % and more are right first, or where with any noise and
number of traced pairs more than 1 % of the A/A stores (and more than one) name anything.

    python3 ci/bench/diff_plants.py [--seeds 101-106] [--modes plain,host,autograd,scrambled] [--strengths 0,0.03,0.1,0.3]
        [--noise quiet,kernels-1,... | all] [--traced 2,4] [--aa 40] [--jobs 2] [--plants NAME ... | none] [--json]
"""

import argparse
import collections
import contextlib
import itertools
import json
import multiprocessing
import os
import re
import sqlite3
import subprocess
import sys
import tempfile

import rig

sys.path.insert(0, os.path.join(rig.ROOT, "tests/e2e"))
import diff_store  # noqa: E402

MODES = {"plain": {}, "host": {"host": True}, "autograd": {"host": True, "autograd": True}, "scrambled": {"names": "scrambled"},
         "scrambled-host": {"names": "scrambled", "host": True}}
FIRST, THREE, MISSED, WRONG = "first", "first three", "missed", "wrong"
WORDS = FIRST, THREE, MISSED, WRONG
AA, AA_COUPLES, AA_HZ = ("aa", "aa_host"), 5, 199  # small ones: what counts is how many there are
Result = collections.namedtuple("Result", "plant seed noise traced mode strength word said")
FIRST_LEAST, STRONG, ACCUSED_MOST = 0.95, 0.03, 0.01  # of the strong ones; of a step; of A/A: intervals hold 99 % for all together


def text(contribution):
    return " ".join(str(contribution.get(key)) for key in ("name_a", "name_b", "label"))


def is_the_plant(contribution, answer):
    return (contribution["kind"] in answer.kinds and re.search(answer.name, text(contribution)) is not None
            and answer.where in str(contribution["where"]) and (contribution["delta_ns"] > 0) == (answer.delta_ns > 0))


def judge(workload, answer):
    """One of WORDS."""
    named = [c for c in workload["contributions"] if c["named"]]
    if any(answer.never and re.search(answer.never, text(c)) for c in named):
        return WRONG
    if answer.silent:
        return WRONG if named else FIRST
    hits = [k for k, c in enumerate(named[:3]) if is_the_plant(c, answer)]
    return (FIRST if hits[0] == 0 else THREE) if hits else WRONG if named else MISSED


def explain(path, traced):
    """The workload, by the first `traced` of its traced pairs."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE pair SET state = CASE WHEN idx < ? THEN 'valid' ELSE 'void' END WHERE phase = 'traced'", (traced,))
        db.commit()
    done = subprocess.run([rig.UPGATE, "diff", "--format", "json", path], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"upgate diff of '{path}': exit {done.returncode}: {done.stderr[-300:]}")
    return json.loads(done.stdout)["workloads"][0]


def work(job):
    """All strengths, modes and numbers of traced pairs of a plant with a seed."""
    plant, seed, noise, modes, strengths, traced = job
    results = []
    small = {"couples": AA_COUPLES, "hz": AA_HZ} if plant in AA else {}
    with tempfile.TemporaryDirectory(prefix="upgate-diff-plants-") as directory:
        path = os.path.join(directory, "run.db")
        for mode, strength in itertools.product(modes, strengths):
            try:
                answer = diff_store.write(plant, path, seed=seed, strength=strength, noise=noise, traced=max(traced), **small, **MODES[mode])
            except ValueError:  # it cannot be as strong
                results += [Result(plant, seed, noise, count, mode, strength, None, "") for count in traced]
                continue
            for count in traced:
                workload = explain(path, count)
                first = [f"{c['kind']} {c['label'][:60]} {c['delta_ns'] / 1e3:.1f} us in {c['where']}" for c in workload["contributions"] if c["named"]][:3]
                said = "; ".join(first) or "nothing named"
                results.append(Result(plant, seed, noise, count, mode, strength, judge(workload, answer), f"{said} (planted {answer.delta_ns / 1e3:.1f} us)"))
    return results


def numbers(words):
    first, _, last = words.partition("-")
    return list(range(int(first), int(last or first) + 1))


def print_table(results, aa):
    counts = collections.Counter((r.noise, r.traced, r.mode, r.strength, r.word) for r in results)
    print("| launches | traced pairs | names, host | moved by | stores | right first | in the first three | missed | wrong | left out |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for key in dict.fromkeys((r.noise, r.traced, r.mode, r.strength) for r in results):
        row = {word: counts[(*key, word)] for word in (*WORDS, None)}
        noise, traced, mode, strength = key
        print(f"| {noise} | {traced} | {mode} | {f'{strength:.1%}' if strength else 'as planted'} | {sum(row[word] for word in WORDS)} | " +
              " | ".join(str(row[word]) for word in (*WORDS, None)) + " |")
    for noise, traced in dict.fromkeys((r.noise, r.traced) for r in results):
        words = [r.word for r in results if (r.noise, r.traced) == (noise, traced) and r.word]
        if words:
            print(f"\n{noise}, {traced} traced pairs: " + ", ".join(f"{word} {words.count(word) / len(words):.1%}" for word in WORDS) + f" of {len(words)} stores")
    if not aa:
        return
    print("\n| A/A: launches | traced pairs | stores | name anything |\n|---|---|---|---|")
    for noise, traced in dict.fromkeys((r.noise, r.traced) for r in aa):
        words = [r.word for r in aa if (r.noise, r.traced) == (noise, traced)]
        print(f"| {noise} | {traced} | {len(words)} | {words.count(WRONG)} |")


def kept_limits(results, aa):
    most = max(r.traced for r in (*results, *aa))
    strong = [r.word for r in results if r.word and r.noise == "quiet" and r.traced == most and (r.strength == 0 or r.strength >= STRONG)]
    stores = collections.Counter((r.noise, r.traced) for r in aa)
    accused = collections.Counter((r.noise, r.traced) for r in aa if r.word == WRONG)
    return strong.count(FIRST) >= FIRST_LEAST * len(strong) and all(accused[key] <= max(1, ACCUSED_MOST * stores[key]) for key in stores)


def show(result, as_json):
    if as_json:
        print(json.dumps({"plant": result.plant, "seed": result.seed, "noise": result.noise, "traced": result.traced, "mode": result.mode,
                          "strength": result.strength, "answer": result.word, "said": result.said}), flush=True)
    elif result.word in (THREE, MISSED, WRONG):
        print(f"{result.word}: {result.plant}, seed {result.seed}, {result.noise}, {result.traced} traced pairs, {result.mode}, "
              f"{f'{result.strength:.1%}' if result.strength else 'as planted'}: {result.said}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", default="101-106", metavar="FIRST-LAST")
    parser.add_argument("--modes", default="plain,host,autograd,scrambled", help="of " + ", ".join(MODES))
    parser.add_argument("--strengths", default="0", metavar="SHARES", help="of a step; 0: as planted")
    parser.add_argument("--noise", default="quiet", metavar="KINDS", help="of launches: of all, " + ", ".join(diff_store.KINDS))
    parser.add_argument("--traced", default="4", metavar="NUMBERS", help="traced pairs that are looked at")
    parser.add_argument("--aa", type=int, default=0, metavar="N", help="A/A stores of each of two programs in each mode and noise")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--plants", nargs="+", choices=["none", *sorted(diff_store.PLANTS)], metavar="NAME")
    parser.add_argument("--json", action="store_true", help="a line a store instead of the table")
    options = parser.parse_args()
    modes, kinds = options.modes.split(","), list(diff_store.KINDS) if options.noise == "all" else options.noise.split(",")
    for word, words in [(mode, MODES) for mode in modes] + [(kind, diff_store.KINDS) for kind in kinds]:
        if word not in words:
            parser.error("there is no '%s', but %s" % (word, ", ".join(words)))
    if not os.path.exists(rig.UPGATE):
        parser.error("'%s' is missing; build first, or set UPGATE_BUILD" % rig.UPGATE)
    strengths, traced = [[kind(word) for word in words.split(",")] for kind, words in ((float, options.strengths), (int, options.traced))]
    jobs, seeds = [], numbers(options.seeds)
    for plant in options.plants or diff_store.PLANTS:
        if plant == "none" or plant in AA:
            continue
        costs_nothing = diff_store.sides_of(plant)[2].silent
        jobs += [(plant, seed, kind, modes, [0.0] if costs_nothing else strengths, traced)
                 for kind in kinds for seed in seeds if not costs_nothing or 0.0 in strengths]
    jobs += [(plant, seeds[0] + i, kind, modes, [0.0], traced) for kind in kinds for i in range(options.aa) for plant in AA]
    if not jobs:
        parser.error("nothing to do: no plants, and no --aa")
    results, aa = [], []
    with multiprocessing.Pool(options.jobs) as pool:
        for rows in pool.imap(work, jobs):
            for result in rows:
                (aa if result.plant in AA else results).append(result)
                show(result, options.json)
    if not options.json:
        print_table(results, aa)
    return 0 if kept_limits(results, aa) else 1


if __name__ == "__main__":
    sys.exit(main())
