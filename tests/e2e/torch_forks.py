# SPDX-License-Identifier: Apache-2.0
"""Runs Python programs as forks of one interpreter that has imported torch, several at a time. A JSON line in: {"number", "words": the
program and its arguments, "environment", "out", "err": files}. A line out when it has ended: "number status", as subprocess says it.
Ends when standard input does."""
import json
import os
import runpy
import select
import sys
import tempfile
import traceback

import torch

torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # since 2.x this imports half of the compiler


def child(case):
    os.setsid()
    for descriptor, path in ((0, os.devnull), (1, case["out"]), (2, case["err"])):
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(case["environment"])
    tempfile.tempdir = None
    sys.dont_write_bytecode = True
    sys.argv = case["words"]
    sys.path[:1] = [os.path.dirname(sys.argv[0])] + os.environ["PYTHONPATH"].split(os.pathsep)
    status = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main():
    running, text, ended = {}, b"", False
    while running or not ended:
        if not ended and select.select([0], [], [], 0.01)[0]:
            got = os.read(0, 1 << 16)
            ended = not got
            *lines, text = (text + got).split(b"\n")
            for line in lines:
                case = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    child(case)
                running[pid] = case["number"]
        pid, status = os.waitpid(-1, 0 if ended else os.WNOHANG) if running else (0, 0)
        if pid:
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            print(running.pop(pid), code, flush=True)


if __name__ == "__main__":
    main()
