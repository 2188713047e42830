# SPDX-License-Identifier: Apache-2.0
"""The process that pystack_live.py looks into: threads that wait, each in a known nest of functions, and a
main thread that does what the lines of stdin say and answers each with one line of JSON. Python 3.8 and later.

Every waiting thread waits in os.read of its own pipe, so that its state in /proc tells when it waits there."""
import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time


def leaf(fd):
    os.read(fd, 1)


def leaf_nap():
    time.sleep(0.003)


class Worker:
    def middle(self, fd):
        self.count = 1
        leaf(fd)


def nest(fd):
    worker = Worker()
    worker.middle(fd)


def sleeper(_fd):
    def nap():
        time.sleep(100000)
    nap()


def numbers(fd):
    yield 1
    yield (
        len(
            os.read(fd, 1)))


def generator(fd):
    for _ in numbers(fd):
        pass


async def inner(fd):
    os.read(fd, 1)


async def outer(fd):
    await asyncio.sleep(0)
    await inner(fd)


def coroutine(fd):
    asyncio.run(outer(fd))


def comprehension(fd):
    return [os.read(fd, 1)
            for _ in range(1)]


def through_c(fd):
    return sorted([3, 1, 2],
                  key=lambda value: (os.read(fd, 1), value))


def manager(fd):
    @contextlib.contextmanager
    def managed():
        try:
            yield 1
        finally:
            leaf(fd)

    try:
        with managed():
            raise ValueError("on the way out")
    except ValueError:
        pass


def handler(fd):
    try:
        raise KeyError("x")
    except KeyError:
        try:
            int("1")
        finally:
            os.read(fd, 1)


def deep(fd, depth=30):
    if depth:
        deep(fd, depth - 1)
    else:
        leaf(fd)


MADE = {}


def made(name, text, file):
    """A function of that text, made once: it lives as long as the process."""
    if name not in MADE:
        space = {}
        exec(compile(text % name, file, "exec"), space)
        MADE[name] = space[name]
    return MADE[name]


def far(fd):
    """Names and a path beyond ASCII, and a line far from the function's first."""
    text = "def %s(read, fd):\n    a = 1\n" + "\n" * 700 + "    a = a + 2\n" * 300 + "    read(fd, 1)\n"
    made("größe_名前", text, "/nowhere/naïve_файл_\U0001f40d.py")(os.read, fd)


def long_name(fd):
    made("n" * 3000, "def %s(read, fd):\n    read(fd, 1)\n", "x" * 3000)(os.read, fd)


WAITERS = [nest, sleeper, generator, coroutine, comprehension, through_c, manager, handler, deep, far, long_name]


def frames_of(frame):
    found = []
    while frame:
        code = frame.f_code
        found.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno, code.co_firstlineno])
        frame = frame.f_back
    return found


def start_waiters(functions=WAITERS):
    told = {}
    for function in functions:
        fd, writer = os.pipe()
        thread = threading.Thread(target=function, args=(fd,), daemon=True)
        thread.start()
        told[function.__name__] = {"tid": thread.native_id, "fd": fd, "writer": writer, "ident": thread.ident}
    return told


def spin_leaf(value):
    return value + 1


def spin_middle(value):
    for _ in range(20):
        value = spin_leaf(value)
    return value


def spin(stop):
    value = 0
    while not stop:
        value = spin_middle(value)


def churn(stop):
    """Threads, functions and generators that are made, run and freed as fast as it goes."""
    count = 0
    while not stop:
        count += 1
        space = {}
        exec(compile("def churned_%d(n):\n    yield n\n    if n:\n        yield from churned_%d(n - 1)\n" % (count, count),
                     "churn_%d.py" % count, "exec"), space)
        made = space["churned_%d" % count]
        threads = [threading.Thread(target=lambda: [time.sleep(0.0005) for _ in made(10)]) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def hog(_never):
    sum(range(10 ** 15))  # one call of C that never lets go of the GIL


def collect_forever():
    gc.disable()
    keep = [[i] for i in range(300000)]
    while keep:
        gc.collect()


def child_waits():
    os.read(os.pipe()[0], 1)


def serve(waiters):
    stop = []
    for line in iter(sys.stdin.readline, ""):
        word = line.split()
        answer = {}
        if word[0] == "frames":
            current = sys._current_frames()
            answer = {name: frames_of(current[waiter["ident"]]) for name, waiter in waiters.items()}
        elif word[0] in ("spin", "churn"):
            stop = []
            thread = threading.Thread(target=spin if word[0] == "spin" else churn, args=(stop,), daemon=True)
            thread.start()
            answer = {"tid": thread.native_id}
        elif word[0] == "rest":
            stop.append(1)
        elif word[0] == "fork":
            pid = os.fork()
            if pid == 0:
                signal.alarm(120)
                child_waits()
                os._exit(0)
            answer = {"pid": pid}
        elif word[0] == "hog":
            thread = threading.Thread(target=hog, args=(0,), daemon=True)
            print(json.dumps({}), flush=True)
            thread.start()
            continue
        elif word[0] == "collect":
            print(json.dumps({}), flush=True)
            collect_forever()
        elif word[0] == "exec":
            os.execv(word[1], word[1:])
        print(json.dumps(answer), flush=True)


def main():
    waiters = start_waiters()
    print(json.dumps({"pid": os.getpid(), "tid": threading.get_native_id(), "waiters": waiters}), flush=True)
    serve(waiters)
    os._exit(0)


if __name__ == "__main__":
    main()
