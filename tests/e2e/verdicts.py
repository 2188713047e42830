#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Written stores with a known answer, judged by `upgate gate` (ci/plant_verdicts.py has them all, and runs): what is worse does not
pass, what is equal does not fail. The judge of the judge is looked through as well: the stores hold what was planted, the draw of held-out
regressions has the mean that it promises, a wrong answer is called wrong, and every case can be started."""
import os
import re
import sqlite3
import subprocess
import sys
import tempfile

ROOT = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "ci"))
import plant_verdicts as verdicts  # noqa: E402
import verdict_stores as stores  # noqa: E402

SEEDS = (1, 2)
HELD_OUT_EACH = 5  # of the eighty, each fifth
EXPECTED = {"fail", "no pass", "no fail", "pass", "uncovered"}
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what)


def check_cases():
    rows = set()
    for name, case in verdicts.cases().items():
        check({"row", "how", "what", "expect"} <= set(case) and case["expect"] in EXPECTED, "%s lacks something" % name)
        rows.add(case["row"])
        for pattern in case.get("named", ()):
            re.compile(pattern)
        if case["how"] == "R":
            for side in ("baseline", "candidate"):
                plant = ",".join(filter(None, (case.get("both"), case.get(side))))
                words = [word for word in plant.split(",") if not word.startswith("crash=")]
                done = subprocess.run([verdicts.JOB, "--steps", "1", "--work", "1us"], stderr=subprocess.PIPE, text=True,
                                      env=dict(os.environ, PLANT=",".join(words)))
                check(done.returncode == 0, "%s: %s" % (name, done.stderr))
        if case["how"] == "W":
            for part in case.get("candidate", []) + case.get("both", []) + case.get("baseline", []):
                check(sum(stores.pattern(stores.Job(), part["kind"], part, stores.random.Random(1))) > 0, "%s plants nothing" % name)
    check(rows == set(range(12)), "rows of the table: %s" % sorted(rows))
    wrong = subprocess.run([verdicts.JOB], stderr=subprocess.PIPE, text=True, env=dict(os.environ, PLANT="evry=3"))
    check(wrong.returncode == 2 and "evry" in wrong.stderr, "a plant that nobody knows is refused")


def planted_share(path):
    """Mean step of the candidate over the baseline's, less 1, from the rows."""
    with sqlite3.connect(path) as database:
        a, b = [database.execute("SELECT avg(s.dur_ns) FROM step s JOIN launch l ON l.id = s.launch_id WHERE l.side = ?", (side,)).fetchone()[0]
                for side in range(2)]
    return b / a - 1


def check_stores(directory):
    """The rows hold what was planted, and no more."""
    job, path = stores.Job(steps=200), os.path.join(directory, "planted.db")
    plan = stores.plan_of(verdicts.UPGATE, job, directory)
    for parts, least, most in (({}, -0.005, 0.005), ({"both": [{"kind": "head", "share": 0.3, "strength": 2}]}, -0.005, 0.005),
                               ({"candidate": [{"kind": "every", "n": 100, "strength": 10}]}, 0.08, 0.11),
                               ({"candidate": [{"kind": "scale", "strength": 0.5, "of": 14}]}, 0.22, 0.28)):
        effects = stores.write(path, plan, job, parts, 1)
        share = planted_share(path)
        check(least < share < most, "%s: %.3f in the rows" % (parts, share))
        check(abs(sum(effects) / len(effects) - share) < 0.02, "%s: %.3f told, %.3f in the rows" % (parts, sum(effects) / len(effects), share))
    for name, case in [one for one in verdicts.cases(5, True).items() if "candidate" in one[1]][::4]:
        job = stores.Job(**case["job"])
        stores.write(path, stores.plan_of(verdicts.UPGATE, job, directory), job, case, 1)
        promised, share = float(re.search(r"mean \+([\d.]+)", case["what"]).group(1)) / 100, planted_share(path) * job.ranks
        check(abs(share - promised) < 0.03, "%s: %.3f promised, %.3f in the rows" % (name, promised, share))


def check_judge():
    """Answers that are wrong are called wrong."""
    def runs(**counts):
        return [{"outcome": outcome, "effect": None, "named": None, "raw": outcome, "reason": ""} for outcome, n in counts.items() for _ in range(n)]
    case = {"row": 1, "how": "W"}
    for expect, good, bad in (("fail", runs(fail=20), runs(fail=18, inconclusive=2)), ("fail", runs(fail=19, inconclusive=1), runs(fail=19, **{"pass": 1})),
                              ("no pass", runs(inconclusive=20), runs(inconclusive=19, **{"pass": 1})), ("no fail", runs(inconclusive=20), runs(fail=1)),
                              ("pass", runs(**{"pass": 20}), runs(inconclusive=20)), ("uncovered", runs(inconclusive=1), runs(**{"pass": 1})),
                              ("fail", runs(fail=1), runs(failed=1))):
        check(not verdicts.judge(dict(case, expect=expect), good), "%s: %s is right" % (expect, good))
        check(verdicts.judge(dict(case, expect=expect), bad), "%s: %s is wrong" % (expect, bad))


def check_verdicts():
    known = {name: case for name, case in verdicts.cases().items() if case["how"] == "W"}
    held_out = list(verdicts.cases(1, True).items())
    known.update(held_out[::HELD_OUT_EACH])
    by_case = {name: [verdicts.run(name, case, seed) for seed in SEEDS] for name, case in known.items()}
    print(verdicts.HEAD)
    for name, runs in by_case.items():
        print(verdicts.describe(name, known[name], runs))
        check(not verdicts.judge(known[name], runs), "%s: %s" % (name, verdicts.judge(known[name], runs)))


def main():
    check_cases()
    check_judge()
    with tempfile.TemporaryDirectory(prefix="upgate-test-verdicts-") as directory:
        check_stores(directory)
    if not failures:
        check_verdicts()
    print("%d failures" % len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
