#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests that the servers themselves tell by the step protocol, as evidence: the native reference server and Python ones, several
processes an arm, begun before and after the controller; a controller that is started again; damaged files; a whole rollout and a
rollback without a proxy's log."""
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time

import canary_rig as rig
from canary_rig import Drive, evidence, sums, until
import rollouts  # of ci/canary, which the rig puts on the path
import stage

GOOD = [0.5] * 13 + [1, 2, 3]
HOOKS = {"set": ["/bin/true", "{percent}"], "get": ["/bin/true"]}
# Tells a request for each line of stdin: "STATUS [wrong]", from two threads in turn, while a third marks steps; with an argument: no steps.
PYTHON = """
import concurrent.futures, sys, threading, time, upgate
end = threading.Event()
def steps():
    while not end.is_set():
        with upgate.step():
            time.sleep(0.001)
if len(sys.argv) > 1:
    end.set()
marker = threading.Thread(target=steps)
marker.start()
def done(words):
    upgate.request_done(time.monotonic_ns() - 5000000, int(words[0]), wrong=len(words) > 1)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for line in sys.stdin:
        pool.submit(done, line.split()).result()
        print("told", flush=True)
end.set()
marker.join()
"""


@contextlib.contextmanager
def files():
    """A step file an arm, and a folder."""
    with tempfile.TemporaryDirectory(prefix="upgate-canary-") as folder:
        paths = ["/dev/shm/test-canary-%d-%s.steps" % (os.getpid(), name) for name in ("old", "new")]
        try:
            yield paths, folder
        finally:
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)


def steps_source(paths):
    return {"steps": True, "baseline": paths[0], "candidate": paths[1]}


class Python:
    """A server that is only its marks."""

    def __init__(self, path, *words):
        self.process = subprocess.Popen([sys.executable, "-c", PYTHON, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=dict(os.environ, UPGATE_STEPS=path,
                                                                                    PYTHONPATH=os.path.join(rig.BUILD, "python")))

    def tell(self, *lines):
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "told\n", self.process.stderr.read()

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        return self.process.stderr.read()


def requests_reach_their_arms():
    with files() as (paths, folder), stage.stage() as up:
        early = stage.Server(folder, "early", steps=paths[0]).ready()  # its file comes later
        up.append(early)
        assert stage.score(early.port, 0, GOOD)[0] == 200
        with Drive(HOOKS, [steps_source(paths)]) as drive:
            drive.good("sources")
            assert until(lambda: drive.good("poll", 50) == {} and "no server has come" in drive.state()["problem"], 60, 0), drive.state()
            new = [stage.Server(folder, "new-%d" % i, steps=paths[1], plant=plant).ready()
                   for i, plant in enumerate(("errors:50%", "nan:25%", "stream-cut:50%", "hold:30ms"))]
            up.extend(new)
            # Told to the early one until it looks again.
            assert until(lambda: stage.score(early.port, 0, GOOD) and drive.good("poll", 100) == {}
                         and drive.ask("totals")["requests"][0] > 0, 20, 0.2), drive.state()
            base = drive.ask("totals")["requests"][0]
            for server in new:
                for number in range(20):
                    with contextlib.suppress(Exception):  # cut answers
                        stage.score(server.port, number, GOOD)
                stage.get(server.port, "/health")  # not traffic
            stage.score(new[0].port, 1, [1, 2])  # 400: the client's fault
            python = Python(paths[0])
            python.tell("200", "503", "0", "200 wrong", "404")
            total = sums(evidence(drive, base + 5 + 81))
            state = drive.state()
            assert total[0] == {"requests": base + 5, "errors": 2, "truncated": 0, "wrong": 1, "timed": base + 3}, (total, base)
            assert total[1] == {"requests": 81, "errors": 10 + 10, "truncated": 0, "wrong": 5, "timed": 61}, total
            assert (state["seen"], state["dropped"], state["lost"], state["late"]) == (state["kept"], 0, 0, 0), state
            assert state["problem"] == "", state
            assert python.close() == ""
        # As the client saw it: those that are held take so long.
        with Drive(HOOKS, [steps_source(paths)]) as drive:
            drive.good("sources")  # the same servers; nothing of before comes again
            for number in range(10):
                stage.score(new[3].port, number, GOOD)
            seconds = evidence(drive, 10, arms=[1])
            assert sums(seconds)[1]["requests"] == 10, seconds
            assert all(s["arms"][1]["p50"] >= 0.029 for s in seconds if s["arms"][1]["requests"]), seconds


def torch_servers_tell_as_native_ones_do():
    for side in ("candidate", "baseline"):  # one of them: the marks are the same
        python = os.path.join(rig.SOURCE, "envs", side, "bin", "python")
        if not os.path.exists(python) or subprocess.run([python, "-c", "import aiohttp, torch"], capture_output=True).returncode:
            print("   %s: no torch and aiohttp there (ci/setup --envs)" % side)
            continue
        with files() as (paths, folder), stage.stage() as up, Drive(HOOKS, [steps_source(paths)]) as drive:
            drive.good("sources")
            servers = [stage.Server(folder, "torch-%d" % i, python=python, steps=path, plant=plant).ready()
                       for i, (path, plant) in enumerate(zip(paths, (None, "nan:25%,stream-cut:10%")))]
            up.extend(servers)
            for server in servers:
                for number in range(20):
                    with contextlib.suppress(Exception):  # cut answers
                        stage.score(server.port, number, GOOD)
                stage.get(server.port, "/ready")
            stage.score(servers[0].port, 1, [1, 2])  # 400
            total = sums(evidence(drive, 41))
            assert total[0] == {"requests": 21, "errors": 0, "truncated": 0, "wrong": 0, "timed": 21}, total
            assert total[1] == {"requests": 20, "errors": 2, "truncated": 0, "wrong": 4, "timed": 18}, total  # number 19 is cut and NaN
        return


def servers_come_and_go():
    with files() as (paths, _), Drive(HOOKS, [steps_source(paths)]) as drive:
        drive.good("sources")
        gone = Python(paths[1])
        gone.tell(*["200"] * 10)
        gone.process.kill()  # what it told is told
        gone.process.wait()
        base, new = Python(paths[0]), Python(paths[1])
        base.tell("200")
        new.tell(*["200"] * 5)
        total = sums(evidence(drive, 16))
        assert (total[0]["requests"], total[1]["requests"], total[1]["errors"]) == (1, 15, 0), total
        with Drive(HOOKS, [steps_source(paths)]) as second:
            second.bad(paths[0] + "|another process reads it", "sources")
        new.tell("999999")  # no status of HTTP
        new.tell("200")
        total = sums(evidence(drive, 1))
        assert total[1]["requests"] == 1 and drive.state()["dropped"] == 1, (total, drive.state())
        # 65,536 records fit: more than that while nobody reads is lost, and known.
        os.kill(drive.process.pid, signal.SIGSTOP)
        flood = subprocess.run([sys.executable, "-c", "import time, upgate\nfor i in range(70000): upgate.request_done(time.monotonic_ns(), 200)"],
                               env=dict(os.environ, UPGATE_STEPS=paths[1], PYTHONPATH=os.path.join(rig.BUILD, "python")), timeout=60)
        os.kill(drive.process.pid, signal.SIGCONT)
        assert flood.returncode == 0
        assert until(lambda: drive.good("poll", 100) == {} and drive.state()["lost"], 20), drive.state()
        state = drive.state()
        assert state["lost"] == 70000 - 65536, state
        assert base.close() == "" and new.close() == ""


def steps_that_are_no_requests():
    with files() as (paths, _), Drive(HOOKS, [steps_source(paths)]) as drive:
        drive.good("sources")
        servers = [Python(path) for path in paths]
        assert until(lambda: drive.good("poll", 100) == {} and "steps come, but no requests" in drive.state()["problem"], 20), drive.state()
        assert not drive.state()["ever"]
        for server in servers:
            server.close()


def damaged_files():
    with files() as (paths, folder):
        with open(paths[0], "w", encoding="utf-8") as file:
            file.write("not yours\n" * 1000)
        with Drive(HOOKS, [steps_source(paths)]) as drive:
            drive.bad(paths[0] + "|no step file of this user", "sources")
        os.unlink(paths[0])
        with Drive(HOOKS, [steps_source([os.path.join(folder, "no", "such"), paths[1]])]) as drive:
            drive.bad("No such file", "sources")
        with Drive(HOOKS, [steps_source(paths)]) as drive:
            drive.good("sources")
            server = Python(paths[1], "quiet")
            server.tell("200")
            evidence(drive, 1, arms=[1])
            with open(paths[1], "r+b") as file:
                file.seek(4096 + 64)  # the first slot's count of records
                file.write(b"\xff" * 8)
            assert until(lambda: drive.good("poll", 50) == {} and "wrote over its own records" in drive.state()["problem"], 60, 0), drive.state()
            state = drive.state()
            assert state["lost"] >= 1 and state["kept"] == 1, state
            server.tell("200")  # its next one says where it is
            drive.good("poll", 200)
            server.tell("200")
            evidence(drive, 1, arms=[1])
            os.truncate(paths[0], 0)  # nobody writes to it: only we would fall
            assert until(lambda: drive.good("poll", 50) == {} and "was cut short" in drive.state()["problem"], 60, 0), drive.state()
            server.tell("200")
            evidence(drive, 1, arms=[1])
            server.close()
        with Drive(HOOKS, [steps_source(paths)]) as drive:
            drive.good("sources")  # cut to nothing is made anew


def plans_are_checked():
    with tempfile.TemporaryDirectory(prefix="upgate-canary-") as folder:
        def plan(source):
            path = os.path.join(folder, "rollout.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write("name: r\ntraffic: {hooks: {url: \"http://127.0.0.1:1\"}}\nsources:\n  - %s\nstages: [{percent: 100}]\n" % source)
            run = subprocess.run([stage.UPGATE, "canary", "plan", path], capture_output=True, text=True)
            return run.returncode, run.stderr

        for source, words in (("steps: {baseline: a}", ("rollout.yaml:4:", "candidate")),
                              ("steps: {baseline: a, candidate: a}", ("rollout.yaml:4:", "from one file")),
                              ("steps: {baseline: /dev/shm/upgate-old, candidate: b}", ("rollout.yaml:4:", "'upgate-'")),
                              ("steps: {baseline: a, candidate: b, baselin: c}", ("rollout.yaml:4:", "baselin", "baseline")),
                              ("steps: {baseline: [a], candidate: b}", ("rollout.yaml:4:", "baseline")),
                              ("stepz: {baseline: a, candidate: b}", ("rollout.yaml:4:5:", "steps"))):
            code, text = plan(source)
            assert code == 2 and all(word in text for word in words), (source, code, text)
        code, text = plan("steps: {baseline: a, candidate: b}")
        assert code == 0, text


def a_rollout_and_a_rollback():
    missing = stage.missing()
    if missing:
        print("skipped: " + missing)
        return
    with files() as (paths, folder), stage.stage() as up:
        old = stage.Server(folder, "old", steps=paths[0]).ready()
        new = stage.Server(folder, "new", steps=paths[1]).ready()
        up.extend([old, new])
        proxy = stage.Proxy(folder, [("old", old.port), ("new", new.port)], stage.free_port())
        up.append(proxy)
        load = stage.Load(folder, proxy.port, "--rate", "400", "--duration", "10min", "--timeout", "10s", "--reference", "old")
        up.append(load)
        source = "steps: {baseline: %s, candidate: %s}" % tuple(paths)
        stages = ("{percent: 50, soak: 3s, requests: 200, warm_up: 1s}", "{percent: 100, soak: 2s, warm_up: 0s}")
        metrics = "latency_p50: {margin: 300%}, wrong_answers: {limit: 0}"
        good = rollouts.Rollout(folder, "good", proxy, stages, metrics, source)
        controller = good.run()
        up.append(controller)
        assert controller.wait(120) == rollouts.PROMOTED, (controller.complaint(), good.decisions())
        proxy.weights(old=256, new=0)
        new.stop()
        new = stage.Server(folder, "new", steps=paths[1], plant="nan:5%", port=new.port).ready()
        up.append(new)
        assert until(lambda: proxy.up("new"), 30)
        bad = rollouts.Rollout(folder, "bad", proxy, stages, metrics, source)
        controller = bad.run()
        up.append(controller)
        assert controller.wait(120) == rollouts.ROLLED_BACK, (controller.complaint(), bad.decisions())
        assert "tripwire-wrong" in [row["rule"] for row in bad.decisions()], bad.decisions()
        account = load.finish()
        assert account["failed"] == account["wrong_kinds"]["not_finite"] and account["balanced"], account


if __name__ == "__main__":
    rig.run([requests_reach_their_arms, torch_servers_tell_as_native_ones_do, servers_come_and_go, steps_that_are_no_requests, damaged_files, plans_are_checked,
             a_rollout_and_a_rollback])
