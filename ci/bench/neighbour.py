#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bursty neighbour: busy on each of the CPUs for 0.3 to 3 s, idle for 0.3 to 3 s, and so on, the same times for
the same seed. Half of its work computes, half copies 32 MB at a time, as a neighbour on the other hyper-thread or
behind the same memory does. Runs until its stdin ends. Not a workload of upgate: what a shared machine does to one.

    python3 ci/bench/neighbour.py SEED CPU[,CPU...]
"""

import os
import random
import select
import sys
import time

COPIED = bytes(32 << 20)


def burn_until(end):
    while time.monotonic() < end:
        for _ in range(20000):
            pass
        bytearray(COPIED)


def main():
    schedule = random.Random(int(sys.argv[1]))
    cpus = [int(cpu) for cpu in sys.argv[2].split(",")]
    at = time.monotonic()
    parent = os.getpid()
    child = False
    for cpu in cpus[1:]:
        child = child or os.fork() == 0
        if child:
            os.sched_setaffinity(0, {cpu})
            break
    if not child:
        os.sched_setaffinity(0, {cpus[0]})
    while True:
        at += schedule.uniform(0.3, 3)
        burn_until(at)
        at += schedule.uniform(0.3, 3)
        if child:
            time.sleep(max(0, at - time.monotonic()))
            if os.getppid() != parent:
                return
        elif select.select([sys.stdin], [], [], max(0, at - time.monotonic()))[0]:
            return


if __name__ == "__main__":
    main()
