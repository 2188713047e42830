#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate canary run` with a shadow stage before two real HTTP servers, and with recordings at a breach: a wrong candidate never gets a
user's request, an equal one does, and the rollback does not wait for the recordings that explain it."""
import json
import os
import subprocess
import sys

from canary_run import Rig, UPGATE
from canary_shadow import Server, good, scores

STAGES = "[{percent: 0, name: shadow, mirror: 2%, soak: 2s, warm_up: 0s, requests: 30}, {percent: 50, soak: 2s, warm_up: 0s}, {percent: 100, soak: 2s, warm_up: 0s}]"
failures = []


def check(what, condition, seen=None):
    if not condition:
        failures.append("%s: %s" % (what, str(seen)[:600]))
        print("not ok  " + failures[-1])


def report(rig):
    path = os.path.join(rig.path, "report.md")
    done = rig.upgate("report", rig.yaml, "-o", path)
    check("a report", done.returncode == 0, done.stderr)
    with open(path, encoding="utf-8") as file:
        return file.read()


def shadow(answer):
    baseline, candidate = Server(good), Server(answer)
    rig = Rig(stages=STAGES)
    requests = os.path.join(rig.path, "requests.jsonl")
    with open(requests, "w", encoding="utf-8") as file:
        for i in range(20):
            file.write(json.dumps({"method": "POST", "path": "/score", "body": {"id": i}}) + "\n")
    # Expected is next to nothing: what is mirrored is a share of the users' requests, not of what was expected.
    rig.plan("shadow: {baseline: \"%s\", candidate: \"%s\", requests: %s, methods: [POST]}\n" % (baseline.url, candidate.url, requests), STAGES, "1/s")
    done = rig.upgate("run", rig.yaml)
    seen = len(baseline.seen), len(candidate.seen)
    baseline.close(), candidate.close()
    return rig, done, seen


def test_shadow_equal():
    rig, done, seen = shadow(good)
    check("an equal candidate is promoted", done.returncode == 0, done.stdout + done.stderr)
    check("by way of every stage", rig.weights == [0, 50, 100], rig.weights)
    check("both were asked", min(seen) >= 30, seen)
    mirrored = rig.rows("SELECT sum(requests), sum(wrong) FROM rollout_second WHERE stage = 0 AND arm = 1")[0]
    check("mirrored requests are evidence of that stage", mirrored[0] >= 30 and mirrored[1] == 0, mirrored)
    check("what was compared is told", "requests sent to both" in rig.rows("SELECT group_concat(text) FROM note")[0][0], rig.rows("SELECT text FROM note"))
    document = rig.status()
    total = rig.rows("SELECT sum(requests) FROM rollout_second WHERE stage > 0 AND arm = 1")[0][0]
    check("no mirrored request is a user's", document["arms"]["candidate"]["requests"] == total, (document["arms"], total))
    rig.end()


def test_shadow_wrong():
    rig, done, _ = shadow(lambda request, number: (200, scores(request, 1.5), 0))
    check("a wrong candidate is rolled back", done.returncode == 1, done.stdout + done.stderr)
    check("and never had a user", rig.weights == [0], rig.weights)
    text = report(rig)
    check("examples are in the report", "Answers that differ" in text and "differs by 0.5 of its rms" in text, text[-1500:])
    rig.end()


def test_why():
    servers = [subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(0.002)"]) for _ in range(2)]
    rig = Rig(more="why: {record: true, duration: 3s, baseline: {pid: %d}, candidate: {pid: %d}}\n" % tuple(server.pid for server in servers), errors=(0.01, 0.6))
    done = rig.upgate("run", rig.yaml)
    check("rolled back", done.returncode == 1, done.stdout + done.stderr)
    at, effect = rig.rows("SELECT at_ns, effect_ns FROM rollout_decision WHERE state_to = 'rolled_back'")[0]
    rows = rig.rows("SELECT arm, path, end_ns, problem FROM rollout_recording ORDER BY arm")
    check("both arms have a row", [row[0] for row in rows] == [0, 1], rows)
    # The recorder takes its 3 s on any machine; what failed to record was nothing to wait for.
    ends = [row[2] for row in rows if row[2] and row[3] is None]
    check("the rollback did not wait for a recording of 3 s", effect is not None and (not ends or effect < max(ends)), (at, effect, rows))
    text = report(rig)
    check("the report has it, or says why not", "Why" in text and ("recorded at the breach" in text or rows[0][3] in text), (text[:1500], rows))
    for server in servers:
        server.kill()
        server.wait()
    rig.end()


def main():
    if not os.path.exists(UPGATE) or subprocess.run([UPGATE, "canary", "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        print("skipped: this upgate has no canary")
        return 77
    for test in (test_shadow_equal, test_shadow_wrong, test_why):
        test()
    print("%d failures" % len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
