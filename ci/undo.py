#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must not stay behind. Each thing is told to a process of its own before it is made; that process undoes all of them, the
last one first, when it is asked to or when whoever told it is gone, also by SIGKILL."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

TRIES, PAUSE_S = 250, 0.04  # a process that was killed leaves its cgroup only when its memory is gone


class Undo:
    """with Undo() as undo: undo.later("unlink", path); …"""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__)], stdin=subprocess.PIPE, start_new_session=True, text=True)

    def later(self, what, *words):
        assert what in DEEDS
        self.process.stdin.write(json.dumps([what, *words]) + "\n")
        self.process.stdin.flush()

    def begin(self, command, **options):
        """A process, in a session of its own, that ends with the rest."""
        process = subprocess.Popen(command, start_new_session=True, **options)
        self.later("end", process.pid)
        return process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def end(leader):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def go_on(pid):
    os.kill(pid, signal.SIGCONT)


def threads(pid):
    return [int(tid) for tid in os.listdir("/proc/%d/task" % pid)]


def all_cpus(pid):
    for tid in threads(pid):
        os.sched_setaffinity(tid, range(os.cpu_count()))


def leave_group(path):
    """Removes a cgroup; who is still in it goes to the one above."""
    for _ in range(TRIES):
        with open(os.path.join(path, "cgroup.procs"), encoding="ascii") as file:
            pids = file.read().split()
        for pid in pids:
            with contextlib.suppress(OSError), open(os.path.join(os.path.dirname(path), "cgroup.procs"), "w", encoding="ascii") as file:
                file.write(pid)
        with contextlib.suppress(OSError):
            os.rmdir(path)
            return
        time.sleep(PAUSE_S)


def run(*command):
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


DEEDS = {
    "end": end,
    "go on": go_on,
    "all cpus": all_cpus,
    "group": leave_group,
    "unlink": os.unlink,
    "tree": lambda path: shutil.rmtree(path, ignore_errors=True),
    "swap": lambda path: run("swapoff", path),
    "link": lambda name: run("ip", "link", "delete", name),
    "shaper": lambda pid: run("nsenter", "-t", str(pid), "-n", "tc", "qdisc", "delete", "dev", "eth0", "root"),
}


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = [json.loads(line) for line in sys.stdin]
    for what, *words in reversed(told):
        with contextlib.suppress(OSError):
            DEEDS[what](*words)


if __name__ == "__main__":
    main()
