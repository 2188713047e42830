#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a step by `--step nvtx:NAME` costs its program, in CPU time: 4,000 ranges of the real NVTX with nothing in them (tests/mock/rules_subject.c),
with the rule and without the library, in turns, under a harness that reads and holds nobody. Medians of the rounds. What a replay of a
graph costs is measured where there is a GPU: ci/gpu/found_rules, part cost. Exit 1 when a step costs more than 2 us.

    python3 ci/bench/rules_cost.py [BUILD] [--rounds 9]
"""
import argparse
import os
import re
import statistics
import subprocess

SHELL = 'export UPGATE_STEPS_INJECT="$UPGATE_STEPS"; unset UPGATE_STEPS; exec "$@"'
COUNT = 4000  # more without anything in them are no steps (QUICK_MANY of tracer/inject/steps)


def cost(build, **env):
    env = dict(os.environ, **env)
    words = [os.path.join(build, "tests", "e2e", "step_host"), "0", "0", "sh", "-c", SHELL, "sh", os.path.join(build, "tests", "mock", "rules_subject"),
             "bare", str(COUNT), "0"]
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
    steps = done.stdout.count('"kind":"step"')
    return float(re.search(r"([0-9.]+) us each", done.stderr).group(1)), steps


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?", default=os.path.join(os.path.dirname(os.path.dirname(here)), "build", "release"))
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    library = os.path.join(arguments.build, "libupgate_inject.so")
    pairs = []
    for _ in range(arguments.rounds):
        plain, none = cost(arguments.build)
        ours, steps = cost(arguments.build, NVTX_INJECTION64_PATH=library, UPGATE_STEP="nvtx:step")
        assert none == 0 and steps >= COUNT, (none, steps)
        pairs.append((plain, ours))
    more = sorted(ours - plain for plain, ours in pairs)
    print("a range: %.3f us without, %.3f us as a step; added %.3f us (rounds %.3f to %.3f)" % (
        statistics.median(plain for plain, _ in pairs), statistics.median(ours for _, ours in pairs), statistics.median(more), more[0], more[-1]))
    return 1 if statistics.median(more) > 2 else 0


if __name__ == "__main__":
    raise SystemExit(main())
