#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Candidates that go wrong in the middle of a rollout, each a real server behind HAProxy under load: the rollout goes back, says
why, and the client sees no other failures than those that the candidate itself made. One stage after the A/A is enough: what
is asked is the way back. `canary_faults.py [NAME…]`; exits 77 without HAProxy or without the verb."""
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "ci", "canary"))
import rollouts  # noqa: E402
import stage  # noqa: E402

RATE, LIMIT_S = 500, 120
STAGES = ("{percent: 50, name: aa, soak: 5s}", "{percent: 50, soak: 60s, warm_up: 1s}", "{percent: 100, soak: 5s}")
# Where others have the CPUs, p99 may stay open for minutes: the way to 100 % is not what is asked.
ALONE_METRICS = "error_rate: {margin: 1000%}, latency_p50: {margin: 200%}"
ALONE = ("{percent: 50, name: aa, soak: 12s}", "{percent: 50, soak: 10s, warm_up: 1s}", "{percent: 100, soak: 20s, warm_up: 1s}")
METRICS = "error_rate: {margin: 50%}, latency_p99: {margin: 200%}, wrong_answers: {limit: 0}"
AT_ONCE = {"tripwire-unreachable", "tripwire-errors", "evidence"}

# Fault of the candidate; rules that may end it; outcomes at the client that the candidate may make.
FAULTS = {
    "crash": ("crash-after:200", AT_ONCE, {"lost", "http_error"}),
    "hang": ("hang-after:200", AT_ONCE, {"timed_out", "http_error"}),
    "errors": ("errors:0.5%", {"evidence"}, {"http_error"}),
    # On a machine with other work one request in a hundred took 140 ms of the baseline, too: three times that are within the margin.
    "long": ("hold-long:2s", {"evidence"}, set()),
    "nan": ("nan:1%", {"tripwire-wrong"}, {"wrong"}),
    "leak": ("leak:1M", AT_ONCE, {"lost", "http_error"}),
    # As good as the baseline until no baseline is left beside it.
    "alone": ("late:400ms", {"evidence"}, set()),
    "held": ("hold:8s", {"person"}, set()),  # aborted while its requests take longer than the drain
}
# Of the few requests above its p99 one burst in the A/A stage, beside other programs, makes events of which 32 are worth one (5 % long: 37 s
# until the way back, and once more than 97); of many of them there is enough.
LOADS = {"long": ("--long", "20%")}
OUTCOMES = ("http_error", "timed_out", "lost", "truncated", "wrong")
failures = []


def check(what, good, detail=""):
    print("%-4s %s%s" % ("ok" if good else "FAIL", what, "" if good else ": %s" % (detail,)), flush=True)
    if not good:
        failures.append(what)


def abort_when_it_has_traffic(rollout, proxy, new):
    stage.until(lambda: not proxy.command("get weight ranker/new").startswith("0 "), LIMIT_S, 0.1)
    before = new.stats()["scored"]
    check("held: it has traffic", stage.until(lambda: new.stats()["scored"] >= before + 100, LIMIT_S, 0.1), new.stats())
    return subprocess.run([stage.UPGATE, "canary", "abort", rollout.plan, "--reason", "asked by a test"], capture_output=True).returncode


def late_when_alone(proxy, new, over):
    """From the moment the candidate has all the traffic its answers take 0.4 s, those to health checks as long as ever."""
    while not over.wait(0.1):
        if proxy.command("get weight ranker/old").startswith("0 "):
            new.signal(signal.SIGUSR1)
            return


def one(folder, name):
    plant, rules, may = FAULTS[name]
    with stage.stage() as up:
        old = stage.Server(folder, "old").ready()
        new = stage.Server(folder, "new", plant=plant).ready()
        up += [old, new]
        if name == "leak":  # as a container that allows it so much
            subprocess.run(["prlimit", "--pid", str(new.pid), "--as=700000000"], check=True)
        proxy = stage.Proxy(folder, [("old", old.port), ("new", new.port)], stage.free_port())
        up.append(proxy)
        load = stage.Load(folder, proxy.port, "--rate", str(RATE), "--duration", "10min", "--timeout", "12s", "--reference", "old", *LOADS.get(name, ()))
        up.append(load)
        rollout = rollouts.Rollout(folder, name, proxy, ALONE if name == "alone" else STAGES, ALONE_METRICS if name == "alone" else METRICS)
        controller = rollout.run()
        up.append(controller)
        if name == "held":
            check("%s: abort is heard while it runs" % name, abort_when_it_has_traffic(rollout, proxy, new) == 0)
        over = threading.Event()
        watch = threading.Thread(target=late_when_alone, args=(proxy, new, over), daemon=True)
        if name == "alone":
            watch.start()
        try:
            code = controller.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            check("%s: it ends" % name, False, (rollout.status(), rollout.decisions(), new.alive() and new.stats(), controller.complaint(), load.finish()))
            return
        finally:
            over.set()
        weight = proxy.command("get weight ranker/new")
        time.sleep(1)
        before = load.pid and new.alive() and new.stats()["scored"] if name not in ("crash", "hang", "leak") else None
        time.sleep(1)
        after = new.stats()["scored"] if before is not None else None
        account = load.finish()
    last = rollout.decisions()[-1]
    want = rollouts.PAUSED if name == "held" else rollouts.ROLLED_BACK
    check("%s: exit %d" % (name, want), code == want, (code, last["reason"], controller.complaint()))
    check("%s: the rule is one of %s" % (name, ", ".join(sorted(rules))), last["rule"] in rules, last)
    check("%s: the traffic is at the baseline" % name, weight.startswith("0 "), weight)
    check("%s: nothing more reaches the candidate" % name, before == after, (before, after))
    if name == "alone":
        check("alone: it had all the traffic", "with no baseline left" in last["reason"], last)
    others = {kind: account[kind] for kind in OUTCOMES if account[kind] and kind not in may}
    check("%s: no other request failed" % name, not others and account["balanced"], others or account)
    print("     %s: %s; %d of %d requests failed" % (last["rule"], last["reason"], account["failed"], account["sent"]), flush=True)


def main():
    reason = stage.missing() or (None if rollouts.has_verb() else "this build has no `upgate canary`")
    if reason:
        print("skipped: %s" % reason)
        return stage.EXIT_SKIP
    with contextlib.suppress(PermissionError):  # before other programs: a fault is to be told from the candidate's own noise
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    for name in sys.argv[1:] or FAULTS:
        with tempfile.TemporaryDirectory(prefix="upgate-") as folder:
            one(folder, name)
    print("%d failed" % len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
