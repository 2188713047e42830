#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a step marker costs in Python: ns for a begin or an end, by each way to mark a step, less the empty
loop, next to time.perf_counter_ns() in the same run. Exit 1 above the limit.

    python3 ci/bench/step_marker.py BUILD_DIRECTORY [BATCHES]
"""

import json
import os
import statistics
import subprocess
import sys
import time

LIMIT_NS = 300
STEPS = 2000  # a batch; the ring of 65,536 records is emptied by step_host every 20 ms


def with_step(upgate):
    step = upgate.step
    for _ in range(STEPS):
        with step(samples=1):
            pass


def with_steps(upgate):
    for _ in upgate.steps(range(STEPS)):
        pass


def with_phase(upgate):
    with upgate.step():
        for _ in range(STEPS):
            with upgate.phase("forward"):
                pass


def empty(upgate):
    for _ in range(STEPS):
        pass


def clock(upgate):
    now = time.perf_counter_ns
    for _ in range(STEPS):
        now()


def measure(batches):
    import upgate

    assert upgate.active()
    ways = (empty, clock, with_step, with_steps, with_phase)
    times = {way.__name__: [] for way in ways}
    for _ in range(batches):
        for way in ways:
            begin = time.perf_counter_ns()
            way(upgate)
            times[way.__name__].append((time.perf_counter_ns() - begin) / STEPS)
        time.sleep(0.05)  # room in the ring
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(json.dumps(medians), file=sys.stderr)


def main():
    if sys.argv[1:2] == ["--measure"]:
        measure(int(sys.argv[2]))
        return 0
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("UPGATE_BUILD", "build/release"))
    batches = sys.argv[2] if len(sys.argv) > 2 else "40"
    host = os.path.join(build, "tests/e2e/step_host")
    if not os.path.exists(host) or not os.path.exists(os.path.join(build, "python/upgate/_core.abi3.so")):
        print("step_marker: %s has no step_host or no Python extension; build first" % build, file=sys.stderr)
        return 2
    out = subprocess.run([host, "0", "0", sys.executable, os.path.abspath(__file__), "--measure", batches],
                         env=dict(os.environ, PYTHONPATH=os.path.join(build, "python")),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    last = [json.loads(line) for line in out.stdout.decode().splitlines()[-2:]]
    if last[0].get("dropped") != 0 or last[1].get("status") != 0:
        print("step_marker: records were lost or the workload failed: %s" % out.stderr.decode(), file=sys.stderr)
        return 1
    ns = json.loads(out.stderr.decode().splitlines()[-1])
    clock_ns = ns["clock"] - ns["empty"]
    print("python                      %s" % sys.version.split()[0])
    print("time.perf_counter_ns()      %7.1f ns" % clock_ns)
    worst = 0.0
    for name, text in (("with_step", "with upgate.step()"), ("with_steps", "for in upgate.steps()"),
                       ("with_phase", "with upgate.phase()")):
        marker_ns = (ns[name] - ns["empty"]) / 2
        if name != "with_phase":
            worst = max(worst, marker_ns)
        print("%-26s  %7.1f ns a marker  %.2f clocks" % (text, marker_ns, marker_ns / clock_ns))
    print("step marker in Python       %7.1f ns  limit %d ns  %s"
          % (worst, LIMIT_NS, "ok" if worst <= LIMIT_NS else "TOO SLOW"))
    return 0 if worst <= LIMIT_NS else 1


if __name__ == "__main__":
    sys.exit(main())
