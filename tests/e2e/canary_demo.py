#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ci/canary/demo from outside: a good candidate reaches 100 %, a slow one is rolled back, no request fails, the reports are
there, and nothing of it is left running. Exits 77 without HAProxy or without the verb."""
import glob
import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "ci", "canary"))
import rollouts  # noqa: E402
import stage  # noqa: E402

failures = []


def check(what, good, detail=""):
    print("%-4s %s%s" % ("ok" if good else "FAIL", what, "" if good else ": %s" % (detail,)), flush=True)
    if not good:
        failures.append(what)


def left_running(folder):
    """Processes whose command line names the folder."""
    left = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in words and "canary_demo" not in words:
            left.append(words)
    return left


def main():
    reason = stage.missing() or (None if rollouts.has_verb() else "this build has no `upgate canary`")
    if reason:
        print("skipped: %s" % reason)
        return stage.EXIT_SKIP
    with tempfile.TemporaryDirectory(prefix="upgate-") as scratch:
        folder = os.path.join(scratch, "out")
        run = subprocess.run([sys.executable, os.path.join(SOURCE, "ci", "canary", "demo"), "--no-build", "--output", folder],
                             capture_output=True, text=True, timeout=700)
        print(run.stderr, run.stdout, sep="", flush=True)
        check("the demo says it went well", run.returncode == 0, run.returncode)
        check("nothing is left running", not left_running(folder), left_running(folder))
        if run.returncode not in (0, 1):
            return 1
        with open(os.path.join(folder, "demo.json"), encoding="utf-8") as file:
            result = json.load(file)
        account = result["account"]
        check("the good candidate is promoted", result["promoted"] == 0, result["promoted"])
        check("the slow candidate is rolled back", result["rolled_back"] == 1, result["rolled_back"])
        check("no request failed, every one has an outcome", account["failed"] == 0 and account["balanced"] and account["sent"] > 10000, account)
        check("both sides had requests", {side["side"] for side in account["sides"]} == {"old", "new"}, account["sides"])
        check("scores of both sides were compared", account["compared"] > 5000, account["compared"])
        for name in ("report.html", "good.html"):
            path = os.path.join(folder, name)
            check("%s is a page" % name, os.path.exists(path) and os.path.getsize(path) > 10000)
        for name in ("bad", "good"):
            with open(os.path.join(folder, name + "-controller.err"), encoding="utf-8") as file:
                check("%s: the controller had nothing to complain about" % name, "error" not in file.read())
    print("%d failed" % len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
