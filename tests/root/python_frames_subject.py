# SPDX-License-Identifier: Apache-2.0
"""The program that python_frames.py records: it does what the first argument says for some seconds, and writes what its own
interpreter says of its stacks into the file of the third. The nests of functions are those of pystack_subject.py."""
import gc
import json
import os
import sys
import threading
import time

import pystack_subject as nests


def is_in(tid, fd):
    with open("/proc/self/task/%d/syscall" % tid) as file:
        words = file.read().split()
    return len(words) > 1 and words[0] == "0" and int(words[1], 16) == fd


def waits(end):
    """Threads that wait, each in its nest, until it has been asked where."""
    told = []
    while time.monotonic() < end:
        waiters = nests.start_waiters([each for each in nests.WAITERS if each is not nests.sleeper])
        for waiter in waiters.values():
            while not is_in(waiter["tid"], waiter["fd"]):
                time.sleep(0.001)
        frames = sys._current_frames()
        told += [{"tid": waiter["tid"], "fd": waiter["fd"], "frames": nests.frames_of(frames[waiter["ident"]])}
                 for waiter in waiters.values()]
        time.sleep(0.01)
        for waiter in waiters.values():
            os.write(waiter["writer"], b"x")
    return told


def spins(end):
    """Threads that run, by turns of the GIL."""
    stop = []
    threads = [threading.Thread(target=nests.spin, args=(stop,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        time.sleep(0.05)
    frames = sys._current_frames()
    told = [{"tid": thread.native_id, "frames": nests.frames_of(frames[thread.ident])} for thread in threads]
    stop.append(1)
    return told


def collects(end):
    gc.disable()
    keep = [[i] for i in range(300000)]
    while keep and time.monotonic() < end:
        gc.collect()
    return []


def naps(end):
    while time.monotonic() < end:
        nests.leaf_nap()


def forks(end):
    time.sleep(0.3)  # the interpreter was found
    if os.fork() == 0:
        naps(end)
        os._exit(0)
    os.wait()
    return []


def crowd(end):
    """More threads than the kernel side looks through."""
    threads = [threading.Thread(target=naps, args=(end,)) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return []


def deeper(end, depth):
    return deeper(end, depth - 1) if depth else naps(end)


def deep(end):
    deeper(end, 300)
    return []


if __name__ == "__main__":
    told = globals()[sys.argv[1]](time.monotonic() + float(sys.argv[2]))
    with open(sys.argv[3], "w") as file:
        json.dump(told, file)
    time.sleep(0.5)  # names are read a moment after their stack was taken
    os._exit(0)
