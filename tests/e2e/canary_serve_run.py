#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate canary run` and `upgate canary serve` on one rollout, as in ci/kubernetes: the server is there before the store, follows the
controller to the end, and never says pass or fail before the controller has decided. A good candidate and a bad one."""
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request

from canary_run import UPGATE, Rig, check, failures
from canary_serve_players import fetch

PAYLOAD = json.dumps({"name": "r", "namespace": "prod", "phase": "Progressing", "checksum": "1", "metadata": {}}).encode()


class Serve:
    def __init__(self, *words):
        self.process = subprocess.Popen([UPGATE, "canary", "serve"] + list(words), stderr=subprocess.PIPE, text=True)
        self.log = ""
        while " on http" not in self.log:
            line = self.process.stderr.readline()
            if not line:
                raise RuntimeError("the server does not start: " + self.log)
            self.log += line
        self.url = re.search(r"http://\S+:\d+", self.log).group()
        self.reader = threading.Thread(target=self.process.stderr.read, daemon=True)
        self.reader.start()

    def gate(self, query=""):
        with urllib.request.urlopen(self.url + "/v1/gate/r" + query, timeout=10) as answer:
            return json.loads(answer.read())

    def hook(self, name):
        return fetch("POST", "%s/v1/flagger/r/%s" % (self.url, name), {"Content-Type": "application/json"}, PAYLOAD)[0]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(timeout=20) == 0, "serve ends with %d" % self.process.returncode)


def decided(rig):
    """(state, names of passed stages), as the store has them; asked before the server, who may only know less."""
    try:
        rows = rig.rows("SELECT state FROM rollout")
        return rows[0][0] if rows else None, {row[0] for row in rig.rows("SELECT number FROM rollout_stage WHERE result = 'passed'")}
    except sqlite3.Error:
        return None, set()


def follow(rig, serve, process):
    """Asks until the controller has ended; what was said, in its order."""
    said = []
    while process.poll() is None:
        whole, hooks = serve.gate(), {name: serve.hook(name) for name in ("rollback", "confirm-promotion")}
        stages = {}
        if whole["state"]:
            stages = {number: serve.gate("?stage=%d" % number) for number in range(3)}
        state, passed = decided(rig)  # afterwards: whatever the server knew was in the store by now
        check(whole["verdict"] != "pass" or state == "promoted", "pass in state %s" % state)
        check(whole["verdict"] != "fail" or state in ("running", "rolled_back"), "fail in state %s" % state)
        check(hooks["confirm-promotion"] != 200 or state == "promoted", "promotion in state %s" % state)
        for number, answer in stages.items():
            check(answer["verdict"] != "pass" or number in passed, "stage %d passes before the controller says so" % number)
        said.append(whole["verdict"])
        time.sleep(0.2)
    return said


def finish(rig, serve, verdict, rollback):
    # A breach is told before the controller has ended: the last snapshot is the one that is final.
    check(rig.wait(lambda: serve.gate()["final"]) and serve.gate()["verdict"] == verdict, "at the end: %s" % serve.gate())
    for number in range(3):
        check(serve.gate("?stage=%d" % number)["verdict"] == verdict, "stage %d at the end: %s" % (number, serve.gate("?stage=%d" % number)))
    check((serve.hook("rollback") == 200) == rollback and (serve.hook("confirm-promotion") == 200) == (verdict == "pass"), "hooks at the end")


def test(errors, code, verdict):
    rig = Rig(errors=errors)
    serve = Serve(rig.yaml, "--listen", "127.0.0.1:0")
    try:
        check(serve.gate()["verdict"] == "inconclusive" and serve.hook("rollback") == 403, "before the store")
        process = rig.start()
        said = follow(rig, serve, process)
        check(process.returncode == code, "the controller ends with %d, not %d: %s" % (process.returncode, code, rig.log()[-300:]))
        check(said[0] == "inconclusive" and set(said) <= {"inconclusive", verdict}, "said %s" % sorted(set(said)))
        finish(rig, serve, verdict, verdict == "fail")
        stored = rig.rows("SELECT sum(requests) FROM rollout_second")[0][0] or 0

        def counted():
            return sum(int(one) for one in re.findall(r"canary_requests_total\{[^}]*\} (\d+)", fetch("GET", serve.url + "/metrics")[1]))
        # The state is read by itself, the seconds a few rows at a time: the last of them may come a moment later.
        check(rig.wait(lambda: counted() == stored) and (stored or verdict == "fail"), "/metrics counts %d, the store has %d" % (counted(), stored))
    finally:
        serve.end()
        rig.end()


def test_words():
    for words, want in ((["/no/such/rollout.yaml"], 2), ([UPGATE], 2)):
        done = subprocess.run([UPGATE, "canary", "serve"] + words + ["--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True, timeout=30)
        check(done.returncode == want and done.stderr, "%s: %d %s" % (words, done.returncode, done.stderr))
    rig = Rig()
    done = rig.upgate("serve", rig.yaml, "--listen", ":0")
    check(done.returncode == 2 and "--token-file" in done.stderr, "every address without a token: %d %s" % (done.returncode, done.stderr))
    rig.end()


if __name__ == "__main__":
    test_words()
    test((0.01, 0.01), 0, "pass")
    test((0.01, 0.12), 1, "fail")  # below the tripwire: by evidence
    test((0.01, 0.5), 1, "fail")
    print("canary run beside serve: %d failed" % len(failures))
    sys.exit(1 if failures else 0)
