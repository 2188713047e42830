# SPDX-License-Identifier: Apache-2.0
"""Is the verdict right? The part of ci/plants that judges the judge: each case of reference_models/plants/verdicts.json is
run with the real `upgate ab` (R), or written as a store and judged with the real `upgate gate` (W), or made a certificate
of (C); the answer is compared with the one that is known. Regressions must not pass, equal sides must not fail."""
import collections
import datetime
import functools
import json
import math
import os
import random
import re
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time

import parallel
import verdict_held_out as held_out
import verdict_stores as stores

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("UPGATE_BUILD") or os.path.join(ROOT, "build", "release")
UPGATE = os.path.join(os.path.abspath(BUILD), "upgate")
JOB = os.path.join(os.path.abspath(BUILD), "reference_models", "plants", "verdict_steps")
CASES = os.path.join(ROOT, "reference_models", "plants", "verdicts.json")

MARGIN, RUN_S, VOIDS, LAUNCHES_MAX = 0.02, 600, 40, 200
RIGHT_LEAST, PASS_LEAST, WRONG_MOST = 0.95, 0.80, 0.01
# What withholds a pass only because nobody has calibrated this host: no answer to what a case asks.
CERTIFICATE_KINDS = ("calibration", "certificate", "control")
FAILED = "failed"  # no answer: the text says why
HEAD = "%-30s %-3s %5s %5s %5s %5s %7s %7s  %-9s %-4s %s" % ("case", "how", "runs", "pass", "fail", "incon", "unseen", "named", "expected", "ok",
                                                            "what was planted, or what is missing")


class Trouble(Exception):
    """upgate could not be run; the text says why."""


HOST_KEY = threading.Lock()


def cases(seed=1, with_held_out=False):
    if with_held_out:
        return held_out.draw(seed)
    with open(CASES, encoding="utf-8") as file:
        return json.load(file)["cases"]


# ---- asking upgate -----------------------------------------------------------------------------------

def upgate(words, directory):
    """stdout of upgate; (exit, text)."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("UPGATE_") and key != "PLANT"}
    env["UPGATE_STATE_DIR"] = os.path.join(directory, "state")
    try:
        done = subprocess.run(parallel.pinned([UPGATE, *words]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=RUN_S, env=env, cwd=directory)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Trouble("%s: %s" % (words[0], error)) from None
    if done.returncode not in (0, 1, 3):
        raise Trouble("upgate %s: exit %d: %s" % (words[0], done.returncode, (done.stderr.strip().splitlines() or ["no message"])[-1]))
    return done.stdout


def document_of(words, directory):
    return json.loads(upgate([*words, "--format", "json"], directory))


def outcome(document):
    """pass, fail or inconclusive; a pass that only a certificate is missing for is one."""
    gated = [cell for cell in document["cells"] if cell["gating"]]
    objections = [f for f in document["findings"] if f["effect"] != "note" and f["kind"] not in CERTIFICATE_KINDS]
    if document["verdict"] != "inconclusive":
        return document["verdict"]
    clean = gated and all(cell["verdict"] == "pass" for cell in gated) and all(row["verdict"] in ("pass", "unchecked") for row in document["parity"])
    return "pass" if clean and not objections and document["trust"]["ok"] else "inconclusive"


def said(document):
    """Every sentence of the verdict."""
    lines = [document["reason"]] + [f["text"] for f in document["findings"]]
    lines += [cell["reason"] for cell in document["cells"] if cell["gating"]] + [row["reason"] for row in document["parity"]]
    return "\n".join(lines)


def pairs_of(document):
    """How many pairs the cells rest on that took longest."""
    return max([cell["pairs"] for cell in document["cells"] if cell["gating"] and cell["unit"] != "bytes"] or [0])


# ---- R: runs -----------------------------------------------------------------------------------------

def launches_of(spec, rng):
    """None: all. A share; "2-": from there on; "5"; "1 of 10": so many among the first ones."""
    if spec is None:
        return None
    if isinstance(spec, float):
        return [k for k in range(1, LAUNCHES_MAX) if rng.random() < spec]
    if spec.endswith("-"):
        return list(range(int(spec[:-1]), LAUNCHES_MAX))
    if " of " in spec:
        count, among = map(int, spec.split(" of "))
        return sorted(rng.sample(range(2, among + 1), count))
    return [int(spec)]


def side_env(case, name, directory, rng):
    """The environment of a side, and its launches that are planted (None: all, or nothing)."""
    plant = ",".join(filter(None, (case.get("both"), case.get(name))))
    env = {"PLANT_COUNT": os.path.join(directory, name + ".count")}
    launches = launches_of(case.get("launches"), rng) if plant else None
    if launches is not None:
        plant += ",launches=" + ":".join(map(str, launches or [LAUNCHES_MAX - 1]))
    return dict(env, **({"PLANT": plant} if plant else {})), launches


def run_plan(case, seed, directory):
    rng = random.Random("run %d" % seed)
    envs = {name: side_env(case, name, directory, rng) for name in ("baseline", "candidate")}
    job, outputs = case.get("job", {}), case.get("outputs")
    command = [JOB, "--steps", "{steps}", "--seed", "{seed}", "--dtype", "{dtype}", "--work", job.get("work", "1ms"), "--outputs", outputs or "none"]
    plan = {"baseline": {"name": "old", "env": envs["baseline"][0]}, "candidate": {"name": "new", "env": envs["candidate"][0]},
            "workloads": [{"name": "w", "command": command, "mode": "train", "steps": job.get("steps", 400), "interleave": "steps",
                           "anchor": bool(outputs)}],
            "schedule": {"traced_launches": 0, "timeout": "1min", "seed": 1000 * seed + 7, "voids": VOIDS},
            "gate": {"calibrate": "require", "parity": {"rule": "fp64-anchored" if outputs or "loss" in str(case.get("candidate")) else "off"}}}
    if case.get("only") == "parity":
        plan["gate"]["metrics"] = {"peak_memory": {"margin": "5%"}}
    path = os.path.join(directory, "plan.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(plan, file)
    return path, envs["candidate"][1]


def ask_run(case, seed, directory, result):
    plan, launches = run_plan(case, seed, directory)
    document = document_of(["ab", plan, "-q", "-o", result["store"]], directory)
    slower = re.search(r"times=([\d.]+)", case.get("candidate") or "")
    if launches is not None and slower:
        effects = [(float(slower.group(1)) - 1) * (k + 1 in launches) for k in range(LAUNCHES_MAX)]
        result["effect"] = seen(effects, document)
    if case.get("steps_min"):
        with sqlite3.connect(result["store"]) as database:
            result["steps_min"] = database.execute("SELECT min(steps) FROM pair WHERE phase IN ('main', 'confirm')").fetchone()[0]
    return document


# ---- W: written stores -------------------------------------------------------------------------------

def seen(effects, document):
    """The mean of what was planted in the pairs that the verdict rests on."""
    used = effects[:pairs_of(document)]
    return sum(used) / len(used) if used else math.nan


def ask_written(case, seed, directory, result):
    job = stores.Job(**case.get("job", {}))
    effects = stores.write(result["store"], stores.plan_of(UPGATE, job, directory), job, case, seed)
    document = document_of(["gate", result["store"]], directory)
    if case.get("candidate"):
        result["effect"] = seen(effects, document)
    return document


# ---- C: certificates ---------------------------------------------------------------------------------

def ask_certificate(case, seed, directory, result):
    """An A/A that is written (or run: "honest") and certified by resuming it; then an unchanged command, whose own certificate
    or the lack of it decides."""
    plan, _ = run_plan({}, seed, directory)
    aa = os.path.join(directory, "aa.db")
    if case.get("honest"):
        upgate(["ab", "--aa", plan, "-q", "-o", aa], directory)
    else:
        job = stores.Job(**case.get("job", {}))
        with open(plan, encoding="utf-8") as file:
            small = json.load(file)
        small["gate"].update(case.get("aa_gate", {}))
        small["schedule"]["looks"] = [job.pairs] if job.pairs < 10 else [10, 14, 20, 28]
        if job.pairs < 10:
            small["gate"]["alpha"] = 0.2
        with open(os.path.join(directory, "aa.yaml"), "w", encoding="utf-8") as file:
            json.dump(small, file)
        written = document_of(["ab", "aa.yaml", "--dry-run"], directory)
        stores.write(aa, written, job, case, seed, kind="aa", host_key=host_key(directory))
        with sqlite3.connect(aa) as database:
            database.execute("UPDATE run SET state = 'interrupted'")
            database.execute("UPDATE side SET config = (SELECT config FROM side WHERE id = 0)")
        upgate(["ab", "--resume", aa, "-q"], directory)
    document = document_of(["ab", plan, "-q", "-o", result["store"]], directory)
    result["raw"] = document["verdict"]
    return document


def host_key(directory):
    """What certificates of this host are kept under, from a run of one pair."""
    with HOST_KEY:
        return host_key_once(directory)


def host_key_once(directory):
    if not hasattr(host_key, "key"):
        path = os.path.join(directory, "host.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"baseline": {"name": "old", "env": {}}, "candidate": {"name": "new", "env": {}},
                       "workloads": [{"name": "w", "command": ["/bin/true"], "mode": "command"}],
                       "schedule": {"looks": [1], "traced_launches": 0},
                       "gate": {"alpha": 0.5, "calibrate": "require", "parity": {"rule": "off"}}}, file)
        store = os.path.join(directory, "host.db")
        upgate(["ab", path, "-q", "-o", store], directory)
        with sqlite3.connect(store) as database:
            host_key.key = database.execute("SELECT host_key FROM run").fetchone()[0]
    return host_key.key


# ---- one run, and what all runs of a case say ----------------------------------------------------------

def run(name, case, seed, keep=None):
    result = {"case": name, "how": case["how"], "seed": seed, "outcome": FAILED, "raw": None, "effect": None, "named": None, "reason": ""}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="upgate-verdict-") as directory:
        result["store"] = os.path.join(directory, "run.db")
        try:
            document = {"R": ask_run, "W": ask_written, "C": ask_certificate}[case["how"]](case, seed, directory, result)
            result.update(outcome=outcome(document), raw=document["verdict"], reason=document["reason"][:300], pairs=pairs_of(document))
            if case.get("named") and result["outcome"] == "fail":
                text = said(document)
                result["named"] = all(re.search(pattern, text, re.IGNORECASE) for pattern in case["named"])
        except (Trouble, subprocess.CalledProcessError, OSError, ValueError, KeyError, sqlite3.Error) as trouble:
            result["reason"] = "%s: %s" % (type(trouble).__name__, trouble)
        if keep and os.path.exists(result["store"]):
            os.makedirs(keep, exist_ok=True)
            shutil.copyfile(result["store"], os.path.join(keep, "%s.%d.db" % (name, seed)))
    del result["store"]
    result["seconds"] = round(time.monotonic() - started, 1)
    return result


def unseen(case, result):
    """A pass that rests on pairs in which nothing beyond the margin was planted: rare launches, none among the first ones."""
    return case["expect"] in ("fail", "no pass") and result["outcome"] == "pass" and result["effect"] is not None and result["effect"] < MARGIN


def judge(case, runs):
    """'' or what is wrong with the answers of a case."""
    count = collections.Counter(r["outcome"] for r in runs)
    answered = len(runs) - count[FAILED]
    if count[FAILED]:
        return "%d without an answer: %s" % (count[FAILED], next(r["reason"] for r in runs if r["outcome"] == FAILED))
    passes = sum(r["outcome"] == "pass" and not unseen(case, r) for r in runs)
    short = [r["steps_min"] for r in runs if r.get("steps_min") is not None and r["steps_min"] < case["steps_min"]]
    expect, wrong = case["expect"], []
    if expect in ("fail", "no pass") and passes:
        wrong.append("%d pass" % passes)
    if expect == "fail" and count["fail"] < RIGHT_LEAST * answered:
        wrong.append("%d of %d fail" % (count["fail"], answered))
    if expect == "uncovered" and any(r["raw"] == "pass" for r in runs):
        wrong.append("%d certified" % sum(r["raw"] == "pass" for r in runs))
    if expect in ("no fail", "pass") and count["fail"] > WRONG_MOST * answered:
        wrong.append("%d fail" % count["fail"])
    passed = sum(r["raw"] == "pass" for r in runs) if case["how"] == "C" else count["pass"]
    if expect == "pass" and passed < PASS_LEAST * answered:
        wrong.append("%d of %d pass" % (passed, answered))
    if short:
        wrong.append("pairs of %d steps" % min(short))
    named = [r["named"] for r in runs if r["named"] is not None]
    if sum(named) < RIGHT_LEAST * len(named):
        wrong.append("%d of %d name it" % (sum(named), len(named)))
    return ", ".join(wrong)


def columns(name, case, runs):
    count = collections.Counter(r["outcome"] for r in runs)
    named = [r["named"] for r in runs if r["named"] is not None]
    wrong = judge(case, runs)
    return (name, case["how"], len(runs), count["pass"], count["fail"], count["inconclusive"], sum(unseen(case, r) for r in runs),
            "%d/%d" % (sum(named), len(named)) if named else "-", case["expect"], "NO" if wrong else "yes", wrong or case["what"])


def describe(name, case, runs):
    return "%-30s %-3s %5d %5d %5d %5d %7d %7s  %-9s %-4s %s" % columns(name, case, runs)


def held_out_rates(known, by_case):
    """Of the held-out runs: (worse, of them passed, passed unseen), (equal, of them failed)."""
    worse = [(known[name], r) for name in by_case for r in by_case[name] if known[name]["row"] == held_out.WORSE]
    equal = [r for name in by_case for r in by_case[name] if known[name]["row"] == held_out.EQUAL]
    blind = sum(unseen(case, r) for case, r in worse)
    return (len(worse), sum(r["outcome"] == "pass" for _, r in worse) - blind, blind), (len(equal), sum(r["outcome"] == "fail" for r in equal))


def summary(known, by_case):
    """The sentence, and whether all is as it must be: of the held-out ones a share may be wrong."""
    wrong = [name for name, runs in by_case.items() if judge(known[name], runs)]
    (worse, passes, blind), (equal, fails) = held_out_rates(known, by_case)
    text = "%d of %d cases as expected, %d runs" % (len(by_case) - len(wrong), len(by_case), sum(map(len, by_case.values())))
    if worse:
        text += "; held out: %d of %d pass (%.1f %%, at most %.0f %%), and %d more whose pairs hold nothing beyond the margin" % (
            passes, worse, 100 * passes / worse, 100 * WRONG_MOST, blind)
    if equal:
        text += "; the same on both sides: %d of %d fail (%.1f %%, at most %.0f %%)" % (fails, equal, 100 * fails / equal, 100 * WRONG_MOST)
    if worse or equal:
        unanswered = any(r["outcome"] == FAILED for runs in by_case.values() for r in runs)
        return text, not unanswered and passes <= WRONG_MOST * worse and fails <= WRONG_MOST * equal
    return text, bool(by_case) and not wrong


PAGE = """<!-- Made by {command}; edit ci/plant_verdicts.py. -->
# Verdicts with a known answer

`{command}`, {date}. R: run under `upgate ab`; W: a store written by ci/verdict_stores.py, judged by `upgate gate`; C: a certificate.
"unseen" are passes that rest on pairs in which the draw had put nothing beyond the margin. {summary}.

| case | how | what was planted | runs | pass | fail | inconclusive | unseen | named | must | ok |
|---|---|---|---|---|---|---|---|---|---|---|
{rows}
"""


def page(known, by_case, command):
    rows = []
    for name, runs in by_case.items():
        _, how, total, passes, fails, open_, blind, named, expect, ok, _ = columns(name, known[name], runs)
        rows.append("| " + " | ".join(map(str, (name, how, known[name]["what"], total, passes, fails, open_, blind, named, expect, ok))) + " |")
    return PAGE.format(command=command, date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
                       summary=summary(known, by_case)[0], rows="\n".join(rows))


def results_of(known, names, options):
    """Each run as it ends; in rounds, so that what else the machine does meets all of them."""
    tasks = [functools.partial(run, name, known[name], options.seed + turn, options.keep) for turn in range(options.count) for name in names]
    return parallel.run_all(tasks, options.jobs, options.minutes)


def main(options, out):
    """options: names, count, seed, held_out, results, write, keep, list, json, every_run, jobs, minutes. The exit status."""
    known = cases(options.seed, options.held_out)
    names = options.names or list(known)
    if options.list:
        print("\n".join("%-30s %-8s %-3s %-9s %s" % (name, known[name]["row"], known[name]["how"], known[name]["expect"], known[name]["what"])
                        for name in names), file=out)
        return 0
    by_case = {name: [] for name in names}
    if options.results and os.path.exists(options.results):
        with open(options.results, encoding="utf-8") as file:
            for line in file:
                earlier = json.loads(line)
                if earlier["case"] in by_case:
                    by_case[earlier["case"]].append(earlier)
    for result in results_of(known, names, options):
        by_case[result["case"]].append(result)
        if options.results:
            with open(options.results, "a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        if options.every_run:
            print("%-30s seed %-3d %-12s %6.1f s  %s" % (result["case"], result["seed"], result["outcome"], result["seconds"], result["reason"]), file=out, flush=True)
    by_case = {name: runs for name, runs in by_case.items() if runs}
    print(HEAD, file=out)
    for name, runs in by_case.items():
        print(describe(name, known[name], runs), file=out)
    text, good = summary(known, by_case)
    print(text, file=out)
    if options.json:
        print(json.dumps({"schema": "upgate.verdicts/1", "good": good, "results": [r for runs in by_case.values() for r in runs]}, indent=2))
    if options.write:
        with open(options.write, "w", encoding="utf-8") as file:
            file.write(page(known, by_case, "ci/plants --verdicts %s --count %d" % ("--held-out" if options.held_out else "--all",
                                                                                    max(map(len, by_case.values())))))
    return 0 if good else 1
