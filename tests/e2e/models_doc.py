#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/MODELS.md is true: its example, a file and an entry, runs under `upgate ab` as it stands there; every model of a plan and every
variant is in its tables; a variant that a side does not have is skipped with the reason, without a second attempt, and no pass.

Exits 77 when no interpreter has torch.
"""
import glob
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import torch_models  # noqa: E402  which interpreters there are

SOURCE = torch_models.SOURCE
UPGATE = os.path.join(os.path.abspath(os.environ["UPGATE_BUILD"]), "upgate")
# Enough to see that it runs, and no more.
QUICK = {"schedule": {"looks": [1], "traced_launches": 0, "seed": 3, "timeout": "4min"},
         "gate": {"alpha": 0.5, "calibrate": "require", "metrics": {"step_time": {"margin": "90%"}}}}
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what, flush=True)


def ab(plan, directory):
    for old in glob.glob(os.path.join(directory, "run.db*")):
        os.unlink(old)
    with open(os.path.join(directory, "plan.yaml"), "w", encoding="utf-8") as file:
        file.write(plan)
    env = dict(os.environ, UPGATE_STATE_DIR=os.path.join(directory, "state"))
    for name in ("UPGATE_BUILD", "UPGATE_SOURCE"):
        env.pop(name, None)
    done = subprocess.run([UPGATE, "ab", "plan.yaml", "-q", "-o", "run.db", "--format", "json"], cwd=directory, env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    check(done.returncode in (0, 1, 3), "upgate ab: %d: %s" % (done.returncode, done.stderr[-1000:]))
    return done.returncode, json.loads(done.stdout or "{}"), os.path.join(directory, "run.db")


def rows(store, sql):
    with sqlite3.connect(store) as database:
        return database.execute(sql).fetchall()


def check_example(text, pythons, directory):
    program, entry = re.search(r"```python\n(.*?)```", text, re.S).group(1), re.search(r"```yaml\n(.*?)```", text, re.S).group(1)
    with open(os.path.join(directory, "mine.py"), "w", encoding="utf-8") as file:
        file.write(program)
    for side, python in (("baseline", pythons[0]), ("candidate", pythons[-1])):
        entry = entry.replace("envs/%s/bin/python" % side, python)
    status, document, store = ab(entry + "schedule: %s\ngate: %s\n" % (json.dumps(QUICK["schedule"]), json.dumps(QUICK["gate"])), directory)
    check(status in (0, 3) and rows(store, "SELECT min(l.steps), count(*) FROM launch l JOIN pair p ON p.id = l.pair_id WHERE p.phase = 'main'")
          == [(200, 2)], "the example makes its steps on both sides: %s" % document.get("reason"))
    parity = {row["tensor"]: row["verdict"] for row in document["parity"]}
    check(parity.get("output") == "pass", "the outputs of the example are in parity: %s" % document["parity"])


def check_skip(pythons, old, directory):
    """An interpreter without torch.compile on one side, or none that has what is asked for: a CUDA device."""
    variant, reason = ("compile", "skipped: torch 1.13 has no torch.compile") if old else ("cuda-graphs", "skipped: CUDA graphs need a CUDA device")
    plan = dict(QUICK, baseline={"python": pythons[0]}, candidate={"python": pythons[-1]},
                workloads=[{"name": "w", "model": "hstu", "size": "small", "steps": 20, "variant": variant, "args": ["--device", "cpu"]}])
    status, document, store = ab(json.dumps(plan), directory)
    check(status == 3 and reason in document["reason"], "a variant that is not there: exit %d, %s" % (status, document["reason"]))
    findings = [finding for finding in document["findings"] if finding["kind"] == "skipped"]
    check(len(findings) == 1 and findings[0]["effect"] == "inconclusive", "the finding: %s" % document["findings"])
    check(rows(store, "SELECT count(*) FROM pair") == [(1,)], "no second attempt: %s" % rows(store, "SELECT phase, state, reason FROM pair"))
    check(all(cell["verdict"] == "inconclusive" for cell in document["cells"] if cell["gating"]), "no cell passes or fails")


def check_tables(text):
    with open(os.path.join(SOURCE, "harness", "plan", "plan_tables.c"), encoding="utf-8") as file:
        tables = file.read()
    models = re.findall(r'\{"([a-z-]+)", (?:true|false), (?:true|false),', tables)
    variants = re.findall(r'"([a-z0-9-]+)"', re.search(r"plan_variants\[PLAN_VARIANT_COUNT\] = \{(.*?)\}", tables, re.S).group(1))
    with open(os.path.join(torch_models.MODELS, "cli.py"), encoding="utf-8") as file:
        known = re.findall(r'"([a-z0-9-]+)"', re.search(r"VARIANTS = \((.*?)\)", file.read(), re.S).group(1))
    check(variants == known, "the variants of plans are those of the programs: %s, %s" % (variants, known))
    for word in models + variants:
        check(re.search(r"^\|.*`%s`" % re.escape(word), text, re.M), "docs/MODELS.md has '%s' in a table" % word)
    with open(os.path.join(SOURCE, "reference_models", "plants", "regressions.json"), encoding="utf-8") as file:
        plants = json.load(file)["plants"]
    for name in re.findall(r"`((?:torch|gpu)-[a-z0-9-]+)`", text):
        check(name in plants, "'%s' of docs/MODELS.md is a plant" % name)


def main():
    with open(os.path.join(SOURCE, "docs", "MODELS.md"), encoding="utf-8") as file:
        text = file.read()
    check_tables(text)
    with tempfile.TemporaryDirectory() as directory:
        found = sorted(torch_models.interpreters(directory), key=lambda one: int(one[1].split(".")[0]))
        pythons = [python for python, _ in found]
        if pythons:
            check_example(text, pythons, directory)
            check_skip(pythons, "1.13" in found[0][1], directory)
    print("%d failures" % len(failures) if failures else "all good" if pythons else "skipped: no interpreter here has torch; ci/setup --envs makes two")
    return 1 if failures else 0 if pythons else 77


if __name__ == "__main__":
    sys.exit(main())
