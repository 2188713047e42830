# SPDX-License-Identifier: Apache-2.0
"""Runs of Python programs as forks of one interpreter that has imported torch. For torch_drive.py, and as a program: a JSON line in is
{"number", "words": the program and its arguments, "environment", "out", "err": files, "limit_s"}, a line out when it has ended is
"number status", as subprocess says it; beyond its limit it is killed. Several at a time. Ends when standard input does."""
import json
import os
import runpy
import select
import signal
import sys
import tempfile
import time
import traceback


def preload():
    import torch
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # since 2.x this imports half of the compiler
    return torch.__version__


def fork(out, err, run):
    """The pid of a child, leader of a session, that writes to these descriptors and ends with what run() returns."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    os.dup2(out, 1)
    os.dup2(err, 2)
    status = 1
    try:
        status = run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


def program(case):
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(case["environment"])
    tempfile.tempdir = None
    sys.dont_write_bytecode = True
    sys.argv = case["words"]
    sys.path[:1] = [os.path.dirname(sys.argv[0])] + os.environ["PYTHONPATH"].split(os.pathsep)
    runpy.run_path(sys.argv[0], run_name="__main__")


def start(case):
    with open(case["out"], "wb") as out, open(case["err"], "wb") as err:
        return fork(out.fileno(), err.fileno(), lambda: program(case))


def main():
    running, text, ended = {}, b"", False
    preload()
    while running or not ended:
        if select.select([] if ended else [0], [], [], 0.01)[0]:
            got = os.read(0, 1 << 16)
            ended = not got
            *lines, text = (text + got).split(b"\n")
            for case in map(json.loads, lines):
                running[start(case)] = case["number"], time.monotonic() + case["limit_s"]
        for pid, (number, limit) in list(running.items()):
            if time.monotonic() > limit:
                os.killpg(pid, signal.SIGKILL)
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del running[pid]
                print(number, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
