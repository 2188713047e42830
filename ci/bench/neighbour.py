#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bursty neighbour: busy on every CPU for 0.3 to 3 s, idle for 0.3 to 3 s, and so on, the same times for
the same seed. Runs until its stdin ends. Not a workload of upgate: what a shared machine does to one.

    python3 ci/bench/neighbour.py SEED
"""

import os
import random
import select
import sys
import time


def burn_until(end):
    while time.monotonic() < end:
        for _ in range(20000):
            pass


def main():
    schedule = random.Random(int(sys.argv[1]))
    start = time.monotonic()
    parent = os.getpid()
    first = all(os.fork() for _ in range((os.cpu_count() or 1) - 1))  # a child leaves all() early with a 0
    at = start
    while True:
        at += schedule.uniform(0.3, 3)
        burn_until(at)
        at += schedule.uniform(0.3, 3)
        if first:
            if select.select([sys.stdin], [], [], max(0, at - time.monotonic()))[0]:
                break
        else:
            time.sleep(max(0, at - time.monotonic()))
            if os.getppid() != parent:
                return


if __name__ == "__main__":
    main()
