#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many answers a second `upgate canary serve` gives on one core, and how long one takes. The server on one CPU, wrk on another,
a controller's commit a second to the store meanwhile. Two loads: as fast as it goes (16 connections), and 48 connections that pause
2 ms between requests, some 20,000 a second, for the latency. In the same run, in turns: the same library with a handler that does
nothing (serve_bare), which is the limit. Exit 1 below 20,000 answers/s or at a p99 of 2 ms and more.

    python3 ci/bench/canary_serve.py [--seconds N] [--rounds N] [--cpus SERVER,WRK]
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ.setdefault("UPGATE_BUILD", os.path.join(ROOT, "build/release"))
os.environ.setdefault("UPGATE_SOURCE", ROOT)
sys.path.insert(0, os.path.join(ROOT, "tests/e2e"))
import canary_rig  # noqa: E402
import canary_serve_rig as rig  # noqa: E402

RATE_LEAST, P99_MOST_MS = 20000, 2.0
TICKS = os.sysconf("SC_CLK_TCK")
PACED = "function delay() return 2 end\n"
HOOK = ('wrk.method = "POST"\nwrk.body = \'%s\'\nwrk.headers["Content-Type"] = "application/json"\n'
        % json.dumps(dict(rig.PAYLOAD, metadata={"stage": "1"})))
TOKEN = 'wrk.headers["Authorization"] = "Bearer %s"\n' % rig.TOKEN


def cpu_s(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def milliseconds(text):
    number, unit = re.match(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


def wrk(options, folder, pid, url, script, connections):
    """{rate, p50, p99, share: of a core a 20,000 answers/s}, of one run."""
    path = os.path.join(folder, "load.lua")
    with open(path, "w") as file:
        file.write(script)
    began, busy = time.monotonic(), cpu_s(pid)
    text = subprocess.run(["taskset", "-c", str(options.cpus[1]), "wrk", "-t1", "-c%d" % connections, "-d%ds" % options.seconds, "--latency",
                           "-s", path, url], stdout=subprocess.PIPE, check=True, text=True).stdout
    busy, took = cpu_s(pid) - busy, time.monotonic() - began
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", text)
    if bad:
        sys.exit("canary_serve.py: %s: %s" % (url, bad.group(0)))
    return {"rate": rate, "p50": milliseconds(re.search(r"\n +50% +(\S+)", text).group(1)), "p99": milliseconds(re.search(r"\n +99% +(\S+)", text).group(1)),
            "share": busy / took / rate * 20000}


def writer(store, stop):
    while not stop.wait(1):
        store.db.execute("BEGIN IMMEDIATE")
        store.seconds(1900, 100)
        store.cell("undecided")
        store.alive()
        store.db.execute("COMMIT")


def measure(options, folder):
    """{(what, load): [runs]}."""
    path = os.path.join(folder, "ranker.db")
    rig.Store(path).close()
    stop, found = threading.Event(), {}

    def write():
        import sqlite3
        store = rig.Store.__new__(rig.Store)
        store.path, store.at_s, store.db = path, 5000, sqlite3.connect(path, isolation_level=None)
        writer(store, stop)
        store.close()
    thread = threading.Thread(target=write)
    port = canary_rig.free_port()
    with rig.Server(path, "name=ranker") as plain, rig.Server(path, "name=ranker", "token=" + rig.token_file(folder)) as closed:
        body = len(plain.ask("GET", "/v1/gate/ranker?stage=1")[2])
        bare = subprocess.Popen([os.path.join(rig.BUILD, "ci/bench/serve_bare"), str(port), str(body)])
        for pid in (plain.process.pid, closed.process.pid, bare.pid):
            subprocess.run(["taskset", "-acp", str(options.cpus[0]), str(pid)], check=True, stdout=subprocess.DEVNULL)
        thread.start()
        gate = "http://127.0.0.1:%d/v1/gate/ranker?stage=1&stable=7d5&canary=6c4"
        cases = [("bare handler", bare.pid, "http://127.0.0.1:%d/" % port, ""), ("Argo's question", plain.process.pid, gate % plain.port, ""),
                 ("the same with a token", closed.process.pid, gate % closed.port, TOKEN),
                 ("Flagger's event", plain.process.pid, "http://127.0.0.1:%d/v1/flagger/ranker/event" % plain.port, HOOK),
                 ("query gate_verdict", plain.process.pid, "http://127.0.0.1:%d/api/v1/query?query=gate_verdict%%7Bstage%%3D%%22all%%22%%7D" % plain.port, ""),
                 ("/metrics", plain.process.pid, "http://127.0.0.1:%d/metrics" % plain.port, "")]
        try:
            for turn in range(options.rounds):
                for what, pid, url, script in cases if turn % 2 == 0 else cases[::-1]:
                    found.setdefault((what, "full"), []).append(wrk(options, folder, pid, url, script, 16))
                    if what in ("bare handler", "Argo's question", "the same with a token"):
                        found.setdefault((what, "paced"), []).append(wrk(options, folder, pid, url, script + PACED, 48))
        finally:
            stop.set()
            thread.join()
            bare.terminate()
            bare.wait()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpus", default="0,1", help="of the server, of wrk")
    options = parser.parse_args()
    options.cpus = [int(one) for one in options.cpus.split(",")]
    if not shutil.which("wrk") or len(os.sched_getaffinity(0)) < 2:
        print("skipped: needs wrk (ci/setup installs it) and two CPUs")
        return 77
    with tempfile.TemporaryDirectory(prefix="upgate-bench-") as folder:
        found = measure(options, folder)
    print("%-24s %-6s %12s %10s %10s %22s" % ("", "load", "answers/s", "p50 ms", "p99 ms", "of a core at 20,000/s"))
    for (what, load), runs in found.items():
        middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        print("%-24s %-6s %12.0f %10.3f %10.3f %21.1f%%" % (what, load, middle["rate"], middle["p50"], middle["p99"], 100 * middle["share"]))

    def of(load, key):
        return statistics.median(run[key] for run in found[("Argo's question", load)])
    ratio = of("full", "rate") / statistics.median(run["rate"] for run in found[("bare handler", "full")])
    print("Argo's question: %.2f of the bare handler's rate; medians of %d runs of %d s each; load average %.2f"
          % (ratio, options.rounds, options.seconds, os.getloadavg()[0]))
    good = of("full", "rate") >= RATE_LEAST and of("paced", "rate") >= 0.9 * RATE_LEAST and of("paced", "p99") < P99_MOST_MS
    print("at least %d answers/s on one core: %s; p99 below %g ms at %.0f/s: %s" % (
        RATE_LEAST, "yes" if of("full", "rate") >= RATE_LEAST else "NO", P99_MOST_MS, of("paced", "rate"), "yes" if of("paced", "p99") < P99_MOST_MS else "NO"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
