#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tracing of Python costs, in ns: a call of a module (torch's, whose forward is empty; one that needs a gradient, and
its backward), a garbage collection, a step marker; on, and dormant, less the same without, in turns in one process.
The least of each arm: what others on the machine take away is not ours. Exit 1 above a limit; the modules' part is left out where the interpreter has no torch.

    python3 ci/bench/python_trace.py BUILD_DIRECTORY [ROUNDS]
"""

import gc
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tests/e2e"))

LIMITS = {"module": 1000, "collection": 1000, "step marker": 500}
COUNT = 200


def cases(torch, upgate):
    def steps():
        for _ in range(COUNT):
            with upgate.step():
                pass

    def collections():
        for _ in range(COUNT):
            gc.collect(0)

    yield "step marker", steps, 2 * COUNT
    yield "collection", collections, COUNT
    if torch is None:
        return
    torch.set_num_threads(1)

    class Leaf(torch.nn.Module):
        def forward(self, x):
            return x

    class Sine(torch.nn.Module):
        def forward(self, x):
            return torch.sin(x)

    leaves = torch.nn.Sequential(*[Leaf() for _ in range(COUNT)])
    sines = torch.nn.Sequential(*[Sine() for _ in range(COUNT)])
    constant, variable = torch.ones(4), torch.ones(4, requires_grad=True)
    yield "module", lambda: leaves(constant), COUNT + 1
    yield "module that needs a gradient", lambda: sines(variable), COUNT + 1
    yield "the same and its backward", lambda: sines(variable).sum().backward(), COUNT + 1


def ns(work, count):
    times = []
    for _ in range(5):
        begin = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - begin)
    return min(times) / count


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("UPGATE_BUILD", "build/release"))
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    os.environ["UPGATE_BUILD"] = build
    sys.path.insert(0, os.path.join(build, "python"))
    if not os.path.exists(os.path.join(build, "tests/e2e/python_trace/libupgate_inject.so")):
        print("python_trace: %s has no Python extension or no tests; build first" % build, file=sys.stderr)
        return 2
    from python_trace import Library
    import upgate
    try:
        import torch
    except ImportError:
        torch = None
    library = Library()
    print("python                          %s, torch %s" % (sys.version.split()[0], torch and torch.__version__))
    missed = False
    for name, work, count in cases(torch, upgate):
        work()
        plain, on, off = [], [], []
        for _ in range(rounds):
            plain.append(ns(work, count))
            library.start()
            work()
            library.library.stub_clear()
            on.append(ns(work, count))
            library.stop()
            off.append(ns(work, count))
        cost, dormant = min(on) - min(plain), min(off) - min(plain)
        limit = LIMITS.get(name)
        slow = limit is not None and cost > limit
        missed |= slow
        print("%-30s %8.1f ns without, %+8.1f ns on, %+7.1f ns dormant%s"
              % (name, min(plain), cost, dormant,
                 "" if limit is None else "  limit %d ns  %s" % (limit, "TOO SLOW" if slow else "ok")))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
