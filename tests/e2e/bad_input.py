#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a user can get wrong on the command line of `upgate ab` and in a plan: exit code 2, one message on
stderr with line, column and the nearest word, nothing on stdout, and no file left behind. Plans go
through --dry-run, so nothing is started."""
import glob
import json
import os
import subprocess
import sys
import tempfile

UPGATE = os.path.join(os.environ["UPGATE_BUILD"], "upgate")
SIDES = "baseline: {python: a}\ncandidate: {python: b}\n"
ONE = "workloads: [{name: w, model: dlrm}]\n"
HEAD = SIDES + ONE

# (text of the plan, "line:column" or None, words of the message)
PLANS = [
    (SIDES + "wrokloads: []\n", "3:1",
     ["unknown key 'wrokloads'", "did you mean 'workloads'?", "Known keys here: baseline"]),
    (SIDES + "workloads:\n  - {name: w, modle: dlrm}\n", "4:15", ["did you mean 'model'?"]),
    (HEAD + "margin: 2%\n", "4:1", ["unknown key 'margin'", "belongs to 'gate.metrics.margin'"]),
    (HEAD + "schedule: {looks: ten}\n", "4:19", ["'looks' must be a list such as [10, 14, 20, 28], not 'ten'"]),
    (HEAD + "schedule: {looks: [14, 10]}\n", "4:24", ["looks must rise: 10 after 14"]),
    (HEAD + "schedule: {looks: [5, 10]}\n", "4:20", ["5 pairs can never decide", "at least 8"]),
    (HEAD + "schedule: {block: 20}\n", "4:19", ["'20' has no unit"]),
    (HEAD + "schedule: {timeout: soon}\n", "4:21", ["'soon' is not a number with a unit"]),
    (SIDES + "workloads:\n  - {name: w, model: dlrm}\n  - {name: w, model: transformer}\n", "5:12",
     ["two workloads are named 'w'"]),
    (HEAD + "gate: {metrics: {step_time: {margin: 0}}}\n", "4:38",
     ["'margin'", "out of range; accepted: above 0% to 100%"]),
    (HEAD + "gate: {metrics: {step_time: {margin: -2%}}}\n", "4:38", ["out of range"]),
    (HEAD + "gate: {metrics: {step_time: {margin: 2}}}\n", "4:38", ["did you mean '2%'?"]),
    (HEAD + "gate: {metrics: {step_tmie: {}}}\n", "4:18", ["unknown metric 'step_tmie'; did you mean 'step_time'?"]),
    (HEAD + "gate: {metrics: {latency_p99: {}}}\n", "4:18",
     ["no workload of this plan can measure 'latency_p99'", "mode: infer"]),
    (HEAD + "gate: {metrics: {scaling_efficiency: {}}}\n", "4:18", ["can measure 'scaling_efficiency'"]),
    (HEAD + "gate: {metrics: {scaling_efficiency: {floors: {2: 85}}}}\n", "4:51", ["'floors': '85' is out of range"]),
    (HEAD + "gate: {metrics: {memory_saved: {}}}\n", "4:18", ["can measure 'memory_saved'", "variant: eager"]),
    (SIDES + "workloads: [{name: %s, model: dlrm}]\n" % ("w" * 201), "3:20", ["more than 200 bytes"]),
    (SIDES + "workloads: [{name: w, model: dlrm, steps: 0}]\n", "3:43", ["'steps': '0' is out of range; accepted: 1"]),
    (SIDES + "workloads: [{name: w, model: dlrm, ranks: 0}]\n", "3:43", ["'ranks': '0' is out of range"]),
    (SIDES + "workloads: [{name: w, model: dlrm, mode: trian}]\n", "3:42", ["did you mean 'train'?"]),
    (SIDES + "workloads: [{name: w, model: dlrm, command: [x]}]\n", "3:36", ["both 'model' and 'command'"]),
    (SIDES + "workloads: [{name: w}]\n", "3:13", ["neither 'model' nor 'command'"]),
    (SIDES + "workloads: [{name: w, model: dlmr}]\n", "3:30", ["unknown model 'dlmr'; did you mean 'dlrm'?"]),
    (SIDES + "workloads: [{name: w, model: allreduce}]\n", "3:30", ["native only"]),
    (SIDES + "workloads: [{name: w, command: [\"{pyton}\", x.py]}]\n", "3:33",
     ["unknown placeholder '{pyton}'; did you mean '{python}'?"]),
    (SIDES + "workloads: [{name: w, command: python x.py}]\n", "3:32", ["'command' must be a list"]),
    (SIDES + "workloads: [{name: w, model: dlrm, steps: 5, steps: 6}]\n", "3:46",
     ["duplicate key 'steps'; first in line 3"]),
    ("baseline: {python: a}\n" + ONE, "1:1", ["the plan lacks the key 'candidate'"]),
    (HEAD + "schedule:\n\tseed: 1\n", "5:1", ["a tab; indent with spaces"]),
    (HEAD + "schedule: {seed: 1\n", "5:1", ["not valid YAML"]),
    (HEAD + "---\n" + HEAD, "4:1", ["a second document"]),
    (HEAD.replace("\n", "\r\n") + "gaet: {}\r\n", "4:1", ["did you mean 'gate'?"]),
    ("\ufeff" + HEAD + "gaet: {}\n", "4:1", ["did you mean 'gate'?"]),
    (b"a: \xff\n", "1:4", ["not UTF-8 text"]),
    ("x: " + "[" * 40 + "]" * 40 + "\n", "1:35", ["nested too deep"]),
    ("", None, ["is empty"]),
    (b"\x7fELF\x02\x00", None, ["is a binary file"]),
    (b"# " + b"x" * (1 << 20) + b"\n", None, ["larger than 1 MiB"]),
]

# (arguments, words of the message); PLAN is a right one
LINES = [
    (["--basline", "x"], ["unknown option '--basline'; did you mean '--baseline'?", "try `upgate ab --help`"]),
    (["-baseline", "x"], ["unknown option '-baseline'; did you mean '--baseline'?"]),
    (["--baseline"], ["option '--baseline' needs a value"]),
    (["--baseline=", "--candidate=x"], ["option '--baseline' has an empty value"]),
    (["--baseline", "x"], ["--candidate"]),
    (["--seed", "many", "PLAN"], ["option '--seed': 'many' is not a whole number"]),
    (["--format", "jsn", "PLAN"], ["'jsn' is not one of table,json; did you mean 'json'?"]),
    (["--quiet=yes", "PLAN"], ["option '--quiet' takes no value"]),
    (["PLAN", "PLAN"], ["unexpected argument"]),
    (["no/such/plan.yaml"], ["failed to read 'no/such/plan.yaml': No such file"]),
    (["/"], ["Is a directory"]),
    (["-a", "x", "-b", "y", "--"], ["no command after '--'"]),
    (["--step", "train.py:one", "PLAN"], ["--step is of commands, and no workload is one"]),
    (["--steps", "50", "-a", "x", "-b", "y"], ["'dlrm-infer' makes 50 requests a launch", "needs 662: raise --steps, or write a plan"]),
    (["-a", "x", "-b", "y", "--", "{pyhton}", "t.py"], ["unknown placeholder '{pyhton}'; did you mean '{python}'?"]),
]

failures = []
checks = 0


def check(condition, what):
    global checks
    checks += 1
    if not condition:
        failures.append(what)
        print("FAIL " + what)


def upgate(arguments, cwd, code, env=None):
    done = subprocess.run([UPGATE] + arguments, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, timeout=60, env=dict(os.environ, **(env or {})))
    errors = done.stderr.decode("utf-8", "replace")
    check(done.returncode == code, "%s: exit code %d, not %d: %s" % (arguments, done.returncode, code, errors))
    return done.stdout.decode(), errors


def refused(arguments, cwd, where, words):
    before = sorted(os.listdir(cwd))
    out, errors = upgate(arguments, cwd, 2)
    check(out == "", "%s: stdout is not empty: %r" % (arguments, out))
    one = errors.startswith("upgate: error: ") and errors.count("\n") == 1
    check(one, "%s: not one message: %r" % (arguments, errors))
    if where:
        check("plan.yaml:%s: " % where in errors, "no position %s in %r" % (where, errors))
    for word in words:
        check(word in errors, "no %r in %r" % (word, errors))
    check(sorted(os.listdir(cwd)) == before, "%s: left files behind" % arguments)


def write(path, text):
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def main():
    if subprocess.run([UPGATE, "help", "ab"], stdout=subprocess.PIPE, stderr=subprocess.PIPE).returncode:
        print("skipped: this build has no `upgate ab`")
        return 77
    with tempfile.TemporaryDirectory(prefix="upgate-bad-") as cwd:
        plan = os.path.join(cwd, "plan.yaml")
        for text, where, words in PLANS:
            write(plan, text)
            refused(["ab", "--dry-run", "plan.yaml"], cwd, where, words)
        write(plan, HEAD)
        for arguments, words in LINES:
            refused(["ab", "--dry-run"] + ["plan.yaml" if a == "PLAN" else a for a in arguments], cwd, None, words)
        # and what is right is shown, normalised
        out, errors = upgate(["ab", "--dry-run", "--format", "json", "plan.yaml"], cwd, 0)
        shown = json.loads(out)
        check(shown["schema"] == "upgate.plan/1", "schema of the shown plan: %s" % shown.get("schema"))
        check(shown["schedule"]["looks"] == [10, 14, 20, 28], "default looks are not shown")
        check(shown["workloads"][0]["steps"] == 200, "default steps are not shown")
        out, _ = upgate(["ab", "--dry-run", "--seed", "99", "--format=json", "plan.yaml"], cwd, 0)
        check(json.loads(out)["schedule"]["seed"] == 99, "--seed does not reach the plan")
        _, errors = upgate(["ab", "--dry-run", "plan.yaml"], cwd, 0, env={"UPGATE_STEPSS": "x"})
        check("variable 'UPGATE_STEPSS'; did you mean 'UPGATE_STEPS'?" in errors, "no warning: %r" % errors)
        out, errors = upgate(["ab", "--dry-run", "--aa", "-a", "x", "-b", "y"], cwd, 0)
        check([json.loads(out)[side]["python"] for side in ("baseline", "candidate")] == ["x", "x"], "--aa takes the candidate: %s" % out)
        check("--aa runs the baseline against itself: --candidate is left out" in errors, "not said: %r" % errors)
        # the plans that come with the source are right ones
        plans = sorted(glob.glob(os.path.join(os.environ["UPGATE_SOURCE"], "ci", "plans", "*.yaml")))
        for shipped in plans:
            upgate(["ab", "--dry-run", shipped], cwd, 0)
        # the program itself
        _, errors = upgate(["gaet"], cwd, 2)
        check("unknown verb 'gaet'" in errors, errors)
        out, errors = upgate([], cwd, 2)
        check(out == "" and "Usage:" in errors, "no usage on stderr")
    print("%d checks, %d failed" % (checks, len(failures)))
    return 1 if failures or checks < 250 else 0


sys.exit(main())
