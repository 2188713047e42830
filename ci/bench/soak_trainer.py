#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trainer of soak.py: forks workers that end, loads libraries, writes a perf map as a JIT does, sleeps, computes, and
runs itself again (exec) every --restart seconds. Its own memory must not grow, so that what grows is somebody else's."""
import argparse
import ctypes
import gc
import mmap
import os
import shutil
import sys
import tempfile
import threading
import time

JIT_ENTRIES = 20000  # of one life; a perf map that only grows would be the trainer's leak
LIBRARIES = 16
WORKERS = 4


def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(300))


def worker():
    for _ in range(20):
        compute(0.002)
        time.sleep(0.003)
    os._exit(0)


def thread():
    while True:
        time.sleep(0.005)
        compute(0.001)


def load_library(source, path):
    """A library as a training program loads one late: opened, used, its file gone."""
    shutil.copyfile(source, path)
    library = ctypes.CDLL(path)
    os.unlink(path)
    library.cos.restype, library.cos.argtypes = ctypes.c_double, [ctypes.c_double]
    for i in range(1000):
        library.cos(float(i))


def mathematics():
    """libm: a copy of it has nothing to set up."""
    ctypes.CDLL("libm.so.6")
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if "/libm.so" in line or "/libm-" in line)


def jit(file, page, number):
    """An entry of the map, and code there that is run: a return."""
    offset = number * 16 % len(page)
    page[offset:offset + 1] = b"\xc3"
    base = ctypes.addressof(ctypes.c_char.from_buffer(page))
    file.write("%x 10 jit_function_%d\n" % (base + offset, number))
    file.flush()
    if os.uname().machine == "x86_64":
        ctypes.CFUNCTYPE(None)(base + offset)()


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--restart", type=float, default=60)
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="upgate-soak-")
    library = mathematics()
    page = mmap.mmap(-1, 1 << 20, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    for _ in range(3):
        threading.Thread(target=thread, daemon=True).start()
    number, end = 0, time.monotonic() + args.restart
    with open("/tmp/perf-%d.map" % os.getpid(), "w") as perf_map:
        while time.monotonic() < end:
            compute(0.005)
            time.sleep(0.01)
            if number < JIT_ENTRIES:
                jit(perf_map, page, number)
            if number % 50 == 0 and number // 50 < LIBRARIES:
                load_library(library, os.path.join(directory, "lib%d.so" % (number // 50)))
            if number % 20 == 0:
                for _ in range(WORKERS):
                    if os.fork() == 0:
                        worker()
            reap()
            number += 1
            if number % 500 == 0:
                gc.collect()
    shutil.rmtree(directory, ignore_errors=True)
    os.execv(sys.executable, [sys.executable] + sys.argv)


if __name__ == "__main__":
    main()
