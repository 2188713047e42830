#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A monitoring agent of the kind that runs on every node: asks psutil for the memory of a process again and again.
memory_full_info() reads /proc/PID/smaps_rollup, for which the kernel walks all pages of the process and holds its
mmap_lock. Ends with the process it looks at."""
import argparse
import time

try:
    import psutil
except ImportError:
    psutil = None


def rollup(pid):
    """What memory_full_info() reads, where psutil is not installed."""
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--period", type=float, default=0.3, help="seconds from look to look (default 0.3)")
    args = parser.parse_args()
    next_look = time.monotonic()
    while True:
        try:
            if psutil:
                psutil.Process(args.pid).memory_full_info()
            else:
                rollup(args.pid)
        except (OSError, psutil.Error if psutil else OSError):
            return  # the process has ended
        next_look += args.period
        time.sleep(max(0, next_look - time.monotonic()))


if __name__ == "__main__":
    main()
