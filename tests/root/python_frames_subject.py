# SPDX-License-Identifier: Apache-2.0
"""The program that python_frames.py records: it does what the first argument says for some seconds, and writes its process's
number and what its own interpreter says of its stacks into the file of the third. The nests of functions are those of
pystack_subject.py."""
import ctypes
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


def gone(fd):
    """A function that has gone, and its memory with it, when its wait is over."""
    space = {}
    exec(compile("def goes(read, fd):\n    read(fd, 1)\n", "goes.py", "exec"), space)
    code = space["goes"].__code__
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))  # never freed by the interpreter, which would find no type in it
    type_of = ctypes.c_size_t.from_address(id(code) + ctypes.sizeof(ctypes.c_size_t))
    try:
        space["goes"](os.read, fd)
    finally:
        del code
        space.clear()
        type_of.value = 0


def waits(end):
    """Threads that wait, each in its nest, until it has been asked where."""
    stacks = []
    while time.monotonic() < end:
        waiters = nests.start_waiters([each for each in nests.WAITERS if each is not nests.sleeper] + [gone])
        for waiter in waiters.values():
            while not is_in(waiter["tid"], waiter["fd"]):
                time.sleep(0.001)
        at_ns = time.monotonic_ns()
        frames = sys._current_frames()
        stacks += [{"tid": waiter["tid"], "at_ns": at_ns, "nest": name, "frames": nests.frames_of(frames[waiter["ident"]])}
                   for name, waiter in waiters.items()]
        del frames
        time.sleep(0.01)
        for waiter in waiters.values():
            os.write(waiter["writer"], b"x")
    return {"stacks": stacks}


def spins(end):
    """Threads that run, by turns of the GIL, while the main thread sleeps and so has no turn."""
    stop = []
    threads = [threading.Thread(target=nests.spin, args=(stop,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    slept_ns = time.monotonic_ns()
    time.sleep(max(0, end - time.monotonic()))
    frames = sys._current_frames()
    stacks = [{"tid": thread.native_id, "frames": nests.frames_of(frames[thread.ident])} for thread in threads]
    woke_ns = time.monotonic_ns()
    stop.append(1)
    return {"stacks": stacks, "slept_ns": slept_ns, "woke_ns": woke_ns}


def collects(end):
    gc.disable()
    keep = [[i] for i in range(300000)]
    while keep and time.monotonic() < end:
        gc.collect()
    return {}


def naps(end):
    while time.monotonic() < end:
        nests.leaf_nap()


def forks(end):
    time.sleep(0.3)  # the interpreter was found
    child = os.fork()
    if child == 0:
        naps(end)
        os._exit(0)
    os.wait()
    return {"child": child}


def crowd(end):
    """More threads than the kernel side looks through."""
    threads = [threading.Thread(target=naps, args=(end,)) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {}


def deeper(end, depth):
    return deeper(end, depth - 1) if depth else naps(end)


def deep(end):
    deeper(end, 300)
    return {}


if __name__ == "__main__":
    began_ns = time.monotonic_ns()
    told = dict(globals()[sys.argv[1]](time.monotonic() + float(sys.argv[2])), pid=os.getpid(), began_ns=began_ns)
    with open(sys.argv[3], "w") as file:
        json.dump(told, file)
    time.sleep(1.5)  # names are read a moment after their stack was taken, of a busy machine a long one
    os._exit(0)
