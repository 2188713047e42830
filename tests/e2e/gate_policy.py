#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate gate`: the same pairs give the same verdict again; another policy gives another; what is wrong
in a policy, in the file or with stdout is never a pass. One short run, an A/A of 9 pairs of a shell loop."""
import json
import os
import sqlite3
import subprocess
import sys
import tempfile

UPGATE = os.path.join(os.environ["UPGATE_BUILD"], "upgate")
# A margin of 90 %: whatever the machine does meanwhile, no pair of equal sides is that far apart in 9 pairs.
PLAN = """
baseline: {name: old}
candidate: {name: new}
workloads: [{name: loop, command: [sh, -c, "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"]}]
schedule: {looks: [9], block: 20ms, timeout: 60s, traced_launches: 0, voids: 20}
gate: {metrics: {cpu_time: {margin: 90%}}, parity: {rule: off}}
"""
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what)


def gate(cwd, *arguments, **options):
    done = subprocess.run([UPGATE, "gate"] + list(arguments), cwd=cwd, stdout=options.get("stdout", subprocess.PIPE),
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def write(cwd, name, text):
    with open(os.path.join(cwd, name), "w") as file:
        file.write(text)


def cells(cwd):
    with sqlite3.connect(os.path.join(cwd, "run.db")) as db:
        return db.execute("SELECT * FROM cell ORDER BY id").fetchall(), db.execute(
            "SELECT verdict, reason FROM verdict").fetchall()


def judge_again(cwd, first):
    before = cells(cwd)
    code, out, errors = gate(cwd, "run.db", "--format", "json")
    check(code == first, "judged again: exit code %d, not %d: %s" % (code, first, errors))
    check(cells(cwd) == before, "judged again: other cells")
    document = json.loads(out)
    check(document["schema"] == "upgate.verdict/1", "no verdict document")
    cell = [c for c in document["cells"] if c["metric"] == "cpu_time"][0]
    check(cell["pairs"] == 9 and cell["ci_upper"] < 1.9, "nine pairs within 90 %%: %s" % cell)
    check(cell["verdict"] == "pass", "the cell: %s" % cell["verdict"])


def other_policies(cwd):
    write(cwd, "strict.yaml", "gate: {metrics: {cpu_time: {margin: 0.0001%}}, parity: {rule: off}}\n")
    code, out, errors = gate(cwd, "run.db", "--policy", "strict.yaml", "--format", "json", "-o", "report.md")
    document = json.loads(out)
    cell = [c for c in document["cells"] if c["metric"] == "cpu_time"][0]
    check(abs(cell["margin"] - 1e-6) < 1e-12, "the policy's margin is not used: %s" % cell["margin"])
    check(cell["verdict"] != "pass" and code in (1, 3), "equal sides shown to be within 0.0001 %%: %d" % code)
    check(os.path.getsize(os.path.join(cwd, "report.md")) > 100, "no report.md")
    code, _, _ = gate(cwd, "run.db", "--policy", "strict.yaml", "--bisect")
    check(code in (1, 125), "--bisect: %d" % code)
    code, out, _ = gate(cwd, "run.db", "--policy", "strict.yaml", "--dry-run")
    check(code == 0 and json.loads(out)["metrics"]["cpu_time"]["margin"] == 1e-6, "--dry-run: %s" % out)
    code, out, _ = gate(cwd, "run.db", "--dry-run")
    check(code == 0 and json.loads(out)["metrics"]["cpu_time"]["margin"] == 0.9, "--dry-run, the plan's: %s" % out)


def refusals(cwd):
    write(cwd, "bad.yaml", "gate:\n  metrics:\n    cpu_tiem: {margin: 2%}\n")
    write(cwd, "text.db", "no store, " * 100)
    before = cells(cwd)
    for arguments, want, words in (
            (["run.db", "--policy", "bad.yaml"], 2, "bad.yaml:3:5: unknown metric 'cpu_tiem'; did you mean 'cpu_time'?"),
            (["run.db", "--policy", "none.yaml"], 2, "failed to read 'none.yaml'"),
            (["run.db", "--polcy", "bad.yaml"], 2, "did you mean '--policy'?"),
            (["run.db", "-o", "x.pdf"], 2, "x.pdf"),
            (["none.db"], 2, "none.db"),
            (["text.db"], 2, "text.db"),
            ([], 2, "an argument is missing; usage: upgate gate RUN.db")):
        code, out, errors = gate(cwd, *arguments)
        check(code == want and out == "" and words in errors, "%s: %d %r %r" % (arguments, code, out, errors))
    with open("/dev/full", "w") as full:
        code, _, errors = gate(cwd, "run.db", stdout=full)
    check(code == 4 and "No space left" in errors and errors.count("upgate: error") == 1, "/dev/full: %d %s" % (code, errors))
    check(cells(cwd) == before, "a refusal changed the store")


def main():
    if subprocess.run([UPGATE, "help", "ab"], stdout=subprocess.PIPE, stderr=subprocess.PIPE).returncode:
        print("skipped: this build has no `upgate ab`")
        return 77
    with tempfile.TemporaryDirectory(prefix="upgate-gate-") as cwd:
        os.environ["UPGATE_STATE_DIR"] = os.path.join(cwd, "state")
        write(cwd, "plan.yaml", PLAN)
        done = subprocess.run([UPGATE, "ab", "--aa", "plan.yaml", "-o", "run.db"], cwd=cwd, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=240)
        check(done.returncode in (0, 3), "the run: %d %s" % (done.returncode, done.stderr))
        check("time is not judged: gate.metrics names cpu_time only" in done.stderr, "what is not judged is not said: %s" % done.stderr)
        judge_again(cwd, done.returncode)
        other_policies(cwd)
        code, _, errors = gate(cwd, "run.db")
        check(code == done.returncode, "after other policies, the plan's again: %d %s" % (code, errors))
        refusals(cwd)
    print("%d failed" % len(failures))
    return 1 if failures else 0


sys.exit(main())
