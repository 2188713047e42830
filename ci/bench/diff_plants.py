#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often `upgate diff` names what was planted into synthetic stores (tests/e2e/diff_store.py), by mode and strength of the plant.
A store's answer is right first (kind, name, place and sign of what is named first), right in the first three, missed (nothing
else is named), or wrong (something else is named first and the plant is not among the first three). Plants that cost nothing, and A/A stores, are
right when nothing is named. A plant that cannot be as strong as asked is left out and counted.
Exit 1 where fewer than 95 % of those as planted or of 3 % and more are right first, or more than 1 % of the A/A stores (and more than one) name anything.

    python3 ci/bench/diff_plants.py [--seeds 101-106] [--modes plain,host,autograd,scrambled] [--strengths 0,0.03,0.1,0.3]
        [--aa 40] [--jobs 2] [--plants NAME ...] [--json]
"""

import argparse
import collections
import json
import multiprocessing
import os
import re
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


def work(job):
    """All strengths and modes of a plant with a seed."""
    plant, seed, modes, strengths = job
    results = []
    with tempfile.TemporaryDirectory(prefix="upgate-diff-plants-") as directory:
        path = os.path.join(directory, "run.db")
        for mode in modes:
            for strength in strengths:
                try:
                    answer = diff_store.write(plant, path, seed=seed, strength=strength, **MODES[mode])
                except ValueError:  # it cannot be as strong
                    results.append((plant, seed, mode, strength, None, ""))
                    continue
                done = subprocess.run([rig.UPGATE, "diff", "--format", "json", path], capture_output=True, text=True, timeout=120, check=False)
                if done.returncode not in (0, 1, 3):
                    raise SystemExit(f"upgate diff of {plant}, seed {seed}, {mode}: exit {done.returncode}: {done.stderr[-300:]}")
                workload = json.loads(done.stdout)["workloads"][0]
                first = [f"{c['kind']} {c['label'][:60]} {c['delta_ns'] / 1e3:.1f} us in {c['where']}" for c in workload["contributions"] if c["named"]][:3]
                said = "; ".join(first) or "nothing named"
                results.append((plant, seed, mode, strength, judge(workload, answer), f"{said} (planted {answer.delta_ns / 1e3:.1f} us)"))
    return results


def numbers(words):
    first, _, last = words.partition("-")
    return list(range(int(first), int(last or first) + 1))


def print_table(results, aa):
    counts = collections.Counter((mode, strength, word) for _, _, mode, strength, word, _ in results)
    print("| names, host | moved by | stores | right first | in the first three | missed | wrong | left out |")
    print("|---|---|---|---|---|---|---|---|")
    total = collections.Counter()
    for mode, strength in dict.fromkeys((mode, strength) for _, _, mode, strength, _, _ in results):
        row = {word: counts[mode, strength, word] for word in (*WORDS, None)}
        total.update(row)
        stores = sum(row[word] for word in WORDS)
        print(f"| {mode} | {f'{strength:.0%}' if strength else 'as planted'} | {stores} | {row[FIRST]} | {row[THREE]} | {row[MISSED]} | {row[WRONG]} | {row[None]} |")
    stores = sum(total[word] for word in WORDS)
    print(f"| all | | {stores} | " + " | ".join(str(total[word]) for word in WORDS) + f" | {total[None]} |")
    if stores:
        print(f"\nright first {total[FIRST] / stores:.1%}, in the first three {(total[FIRST] + total[THREE]) / stores:.1%}, "
              f"missed {total[MISSED] / stores:.1%}, wrong {total[WRONG] / stores:.1%} of {stores} stores")
    if aa:
        wrong = sum(word == WRONG for *_, word, _ in aa)
        print(f"A/A: {wrong} of {len(aa)} stores name anything")


def kept_limits(results, aa):
    strong = [word for _, _, _, strength, word, _ in results if word and (strength == 0 or strength >= STRONG)]
    accused = sum(word == WRONG for *_, word, _ in aa)
    return strong.count(FIRST) >= FIRST_LEAST * len(strong) and accused <= max(1, ACCUSED_MOST * len(aa))


def show(row, as_json):
    plant, seed, mode, strength, word, said = row
    if as_json:
        print(json.dumps({"plant": plant, "seed": seed, "mode": mode, "strength": strength, "answer": word, "said": said}), flush=True)
    elif word in (THREE, MISSED, WRONG):
        print(f"{word}: {plant}, seed {seed}, {mode}, {f'{strength:.0%}' if strength else 'as planted'}: {said}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", default="101-106", metavar="FIRST-LAST")
    parser.add_argument("--modes", default="plain,host,autograd,scrambled", help="of " + ", ".join(MODES))
    parser.add_argument("--strengths", default="0", metavar="SHARES", help="of a step; 0: as planted")
    parser.add_argument("--aa", type=int, default=0, metavar="N", help="A/A stores in each mode")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--plants", nargs="+", choices=sorted(diff_store.PLANTS), metavar="NAME")
    parser.add_argument("--json", action="store_true", help="a line a store instead of the table")
    options = parser.parse_args()
    modes = options.modes.split(",")
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown:
        parser.error("no mode '%s'; there are %s" % (unknown[0], ", ".join(MODES)))
    if not os.path.exists(rig.UPGATE):
        parser.error("'%s' is missing; build first, or set UPGATE_BUILD" % rig.UPGATE)
    strengths = [float(word) for word in options.strengths.split(",")]
    jobs, seeds = [], numbers(options.seeds)
    for plant in options.plants or diff_store.PLANTS:
        if plant == "aa":
            continue
        costs_nothing = diff_store.sides_of(plant)[2].silent
        jobs += [(plant, seed, modes, [0.0] if costs_nothing else strengths) for seed in seeds if not costs_nothing or 0.0 in strengths]
    aa_jobs = [("aa", seeds[0] + i, modes, [0.0]) for i in range(options.aa)]
    results, aa = [], []
    with multiprocessing.Pool(options.jobs) as pool:
        for rows in pool.imap(work, jobs + aa_jobs):
            for row in rows:
                (aa if row[0] == "aa" else results).append(row)
                show(row, options.json)
    if not options.json:
        print_table(results, aa)
    return 0 if kept_limits(results, aa) else 1


if __name__ == "__main__":
    sys.exit(main())
