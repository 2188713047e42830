#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A million requests through rollouts and rollbacks, on this machine.

HAProxy, two reference servers, upgate-load in the open loop, and one `upgate canary run` after the other: a candidate that is
good goes to 100 %, one that is slow is rolled back; between them the idle side is drained and started anew. Counted at the
client: requests that failed, were lost, or were answered twice; compared with what the servers count. --errors: every fourth
candidate answers 5 % with 500, and the client must see exactly those.

From detection to silence: from the decision's row to the last request that reached the candidate, as sent by the client.
The controller's CPU: its user and system time over the time it ran, while the load was on.

Wants an idle machine of 2 cores, 10 minutes. --rate, --requests for less; such figures are no result."""
import argparse
import csv
import os
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "canary")]
import rig  # noqa: E402
import rollouts  # noqa: E402
import stage  # noqa: E402

CANDIDATES = [("good", None), ("slow", "slow:400%")]
WITH_ERRORS = CANDIDATES + [("good", None), ("errors", "errors:5%")]
LIMIT_S = 300  # of a rollout


def wait4(rollout, controller):
    """(exit status, CPU seconds) of the controller when it ends; one without an end is told to pause, and what it waited for is told."""
    end, pid = time.monotonic() + LIMIT_S, 0
    while not pid:
        pid, status, usage = os.wait4(controller.pid, os.WNOHANG)
        if not pid and time.monotonic() > end:
            status_now = rollout.status()
            print("  %-9s still %s in stage %s: %s" % (rollout.name, status_now["state"], status_now["stage"], status_now["reason"]), flush=True)
            os.kill(controller.pid, signal.SIGTERM)
            end = time.monotonic() + 10
        time.sleep(0.05)
    controller.popen.returncode = os.waitstatus_to_exitcode(status)
    return controller.popen.returncode, usage.ru_utime + usage.ru_stime


def one_rollout(folder, proxy, new, number, kind, up):
    """Runs it to its end. What is needed to judge it later."""
    rollout = rollouts.Rollout(folder, "%d-%s" % (number, kind), proxy)
    begin_ns = time.time_ns()
    controller = rollout.run()
    up.append(controller)
    code, cpu_s = wait4(rollout, controller)
    end_ns = time.time_ns()
    time.sleep(0.5)
    decisions = rollout.decisions()
    back = [row for row in decisions if row["state_to"] == "rolled_back" and row["percent_to"] == 0]
    want = rollouts.PROMOTED if kind == "good" else rollouts.ROLLED_BACK
    print("  %-9s exit %d after %5.1f s, %s" % (rollout.name, code, (end_ns - begin_ns) / 1e9, decisions[-1]["reason"] if decisions else
                                             controller.complaint()), flush=True)
    return {"kind": kind, "good": code == want, "begin_ns": begin_ns, "end_ns": end_ns, "cpu_s": cpu_s, "scored": new.stats()["scored"],
            "errors": new.stats()["answers"].get("500", 0), "decided_ns": back[0]["at_ns"] if back else None}


def play(folder, args):
    """(rollouts, account, scored by the servers, planted errors)"""
    runs, scored = [], 0
    with stage.stage() as up:
        old = stage.Server(folder, "old").ready()
        new = stage.Server(folder, "new", "--drain-delay", "200ms").ready()
        up += [old, new]
        proxy = stage.Proxy(folder, [("old", old.port), ("new", new.port)], os.path.join(folder, "log.sock") if args.unix else stage.free_port())
        up.append(proxy)
        load = stage.Load(folder, proxy.port, "--rate", str(args.rate), "--duration", "24h", "--timeout", "10s",
                          "--reference", "old", "--log", os.path.join(folder, "requests.csv"))
        up.append(load)
        number, begin = 0, time.monotonic()
        # Whole rollouts only. The rate is a Poisson process: one in a hundred more than asked for.
        while (time.monotonic() - begin) * args.rate < 1.01 * args.requests:
            candidates = WITH_ERRORS if args.errors else CANDIDATES
            kind, plant = candidates[number % len(candidates)]
            proxy.weights(old=256, new=0)
            time.sleep(0.5)
            if number:
                scored += new.stats()["scored"]
                if new.stop():
                    raise RuntimeError("the candidate did not drain: %s" % new.complaint())
                new = stage.Server(folder, "new", "--drain-delay", "200ms", plant=plant, port=new.port).ready()
                up.append(new)
                end = time.monotonic() + 30
                while not proxy.up("new") and time.monotonic() < end:
                    time.sleep(0.1)
            runs.append(one_rollout(folder, proxy, new, number, kind, up))
            number += 1
        account = load.finish()
        scored += new.stats()["scored"] + old.stats()["scored"]
    return runs, account, scored


def silences(folder, runs):
    """Seconds from each decision to roll back to the last request that the candidate got before the next rollout."""
    rolled = [run for run in runs if run["decided_ns"]]
    last = [0] * len(rolled)
    with open(os.path.join(folder, "requests.csv"), encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["side"] != "new":
                continue
            sent = int(row["due_ns"]) + int(row["lag_us"]) * 1000
            for i, run in enumerate(rolled):
                if run["begin_ns"] <= sent <= run["end_ns"] + 10**9:
                    last[i] = max(last[i], sent)
    return [(one - run["decided_ns"]) / 1e9 for one, run in zip(last, rolled) if one]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000000)
    parser.add_argument("--rate", type=int, default=2000, help="requests a second")
    parser.add_argument("--errors", action="store_true", help="also candidates that answer errors")
    parser.add_argument("--unix", action="store_true", help="the log comes through a Unix socket, not by UDP")
    args = parser.parse_args()
    reason = stage.missing() or (None if rollouts.has_verb() else "this build has no `upgate canary`")
    if reason:
        print("canary_million: %s" % reason, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="upgate-") as folder:
        runs, account, scored = play(folder, args)
        quiet = silences(folder, runs)
    planted = sum(run["errors"] for run in runs)
    failed = account["failed"] - account["http_error"] + (account["http_error"] - planted)
    wall_s = sum(run["end_ns"] - run["begin_ns"] for run in runs) / 1e9
    stage.tell(account)
    rig.finish("canary: %d rollouts under %d requests/s" % (len(runs), args.rate), [
        rig.row("requests sent", account["sent"], args.requests, more_is_better=True),
        rig.row("failed, but for planted errors", failed, 0),
        rig.row("lost, truncated or timed out", account["lost"] + account["truncated"] + account["timed_out"], 0),
        rig.row("answered twice or to another request", account["extra"] + account["wrong_kinds"]["doubled"] + account["wrong_kinds"]["swapped"], 0),
        rig.row("computed by servers more often than asked", scored - (account["sent"] - planted), 0),
        rig.row("rollouts that ended as they should, share", sum(run["good"] for run in runs) / max(1, len(runs)), 1, more_is_better=True),
        rig.row("rolled back", len(quiet)),
        rig.row("from decision to the last request there, most", 1000 * max(quiet, default=float("nan")), 200, " ms"),
        rig.row("controller, of a core", 100 * sum(run["cpu_s"] for run in runs) / max(wall_s, 1e-9), 2, " %"),
        rig.row("sent again after an idle connection was closed", account["retried"]),
        rig.row("latency p99 at the client", account["latency_ms"]["p99"], None, " ms"),
    ])


if __name__ == "__main__":
    sys.exit(main())
