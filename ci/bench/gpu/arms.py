# SPDX-License-Identifier: Apache-2.0
"""Arms of the measurements on a GPU: processes that answer commands on stdin with a line of JSON (launch_bench,
steps_worker.py), started traced in several ways and all alive at the same time, so that rounds can be
interleaved. Reads $UPGATE_BUILD (build/gpu) and $GPU_PROGRAMS (where build_programs left its programs).
"""

import contextlib
import json
import os
import random
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
os.environ.setdefault("UPGATE_BUILD", os.path.join(ROOT, "build/gpu"))
sys.path.insert(0, os.path.dirname(HERE))
import rig  # noqa: E402

PROGRAMS = os.path.abspath(os.environ.get("GPU_PROGRAMS", os.path.join(rig.BUILD, "bench/gpu")))
INJECT = os.environ.get("UPGATE_INJECT", os.path.join(rig.BUILD, "libupgate_inject.so"))
NOP = os.path.join(rig.BUILD, "libupgate_inject_nop.so")
RECYCLE = os.path.join(PROGRAMS, "librecycle.so")
SWITCH = os.path.join(PROGRAMS, "spool_switch")
LAUNCH = os.path.join(PROGRAMS, "launch_bench")

OTHER_CPUS = []  # what starts those that read the spools where the arms do not run


def share_cpus(arms, count):
    """Arms that have started stay on the first CPUs that we may use, the readers of their spools on the rest: an eager loop
    is bound by its launches, and on few CPUs its rounds spread a third as much."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2 * count:
        return
    for arm in arms:
        readers = [arm.switch.pid] if arm.switch else []
        for pid, own in [(arm.pid, cpus[:count])] + [(reader, cpus[count:]) for reader in readers]:
            for tid in os.listdir("/proc/%d/task" % pid):
                with contextlib.suppress(OSError):  # it has ended
                    os.sched_setaffinity(int(tid), own)


def keep_free():
    """A CPU for the threads that launch, of all arms in turn ($BENCH_CPU); the readers of spools stay off it."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) > 4 and shutil.which("taskset"):
        OTHER_CPUS[:] = ["taskset", "-c", ",".join(map(str, cpus[:-3] + cpus[-2:]))]
    return {"BENCH_CPU": cpus[max(0, len(cpus) - 3)]}


# contracts/spool.h
KERNELS, NODES, SYNC, MEMORY, NVTX, OVERHEAD, NCCL, PYTHON = (1 << bit for bit in range(8))
DEFAULT = KERNELS | SYNC | MEMORY | NVTX | OVERHEAD | NCCL | PYTHON


class Failed(Exception):
    """An arm that cannot be measured; the others go on."""


def environment(library=None, **more):
    """Of a workload: with a library that CUDA loads, or with none."""
    names = ("CUDA_INJECTION64_PATH", "UPGATE_TRACE", "NVTX_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN")
    env = {name: value for name, value in os.environ.items() if name not in names}
    if library:
        if not os.path.exists(library):
            raise Failed("'%s' is missing" % library)
        env["CUDA_INJECTION64_PATH"] = os.path.abspath(library)
    env.update(UPGATE_PYTHON_PATH=os.path.join(rig.BUILD, "python"), PYTHONUNBUFFERED="1")
    env.update({name: str(value) for name, value in more.items()})
    return env


class Talker:
    """A process that answers lines with lines."""

    alive = []

    @classmethod
    def end_all(cls):
        """What a failed part has left behind, with what it started."""
        for talker in cls.alive:
            if talker.process.poll() is None:
                os.killpg(talker.process.pid, signal.SIGKILL)
                talker.process.wait()
        cls.alive.clear()

    def __init__(self, argv, env=None, log=None):
        self.argv, self._rest = argv, b""
        self.log = log or os.devnull
        with open(self.log, "wb") as stderr:
            self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                                            start_new_session=True)
        Talker.alive.append(self)
        self.pid = self.process.pid

    def line(self, timeout):
        """The next line that is JSON; other lines (a profiler's greeting) are passed over."""
        end = time.monotonic() + timeout
        while True:
            while b"\n" in self._rest:
                text, self._rest = self._rest.split(b"\n", 1)
                if text.startswith(b"{"):
                    return json.loads(text)
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Failed("%s: no answer within %g s" % (os.path.basename(self.argv[0]), timeout))
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                raise Failed("%s ended with %s: %s" % (os.path.basename(self.argv[0]), self.process.wait(), self.tail()))
            self._rest += part

    def tail(self):
        if self.log == os.devnull:
            return ""
        with open(self.log, errors="replace") as file:
            return " | ".join(file.read().strip().splitlines()[-3:])

    def ask(self, command, timeout=60):
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Failed("%s is gone: %s %s" % (os.path.basename(self.argv[0]), error, self.tail())) from error
        return self.line(timeout)

    def close(self, timeout=20):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        return self.process.returncode


def end_with_children():
    """When a limit of time ends us, nothing that we started goes on."""
    def leave(*_):
        Talker.end_all()
        os._exit(124)
    signal.signal(signal.SIGTERM, leave)


class Arm:
    """One way of being traced. kinds: switched on by spool_switch (0: stays dormant). question: what a round asks."""

    def __init__(self, name, argv, env, log, question, kinds=0, key="ns"):
        self.name, self.question, self.key = name, question, key
        self.values, self.failure, self.switch, self.ended = [], None, None, None
        self.have_kinds = 0
        self.argv, self.env, self.log, self.kinds = argv, env, log, kinds
        self.worker = None

    def start(self):
        self.worker = Talker(self.argv, self.env, self.log)

    def ready(self, timeout=60):
        self.pid = self.worker.line(timeout)["ready"]
        if self.kinds:
            self.on(self.kinds)

    def on(self, kinds):
        self.switch = Talker(OTHER_CPUS + [SWITCH, "drain", str(self.pid), str(kinds)])
        state = self.switch.line(30)
        if state.get("error") or state["on_ms"] < 0 or state["state"] != 1:
            raise Failed("%s: not switched on: %s" % (self.name, state))
        self.have_kinds = state["have_kinds"]
        return state

    def off(self):
        """The account of the spool."""
        if not self.switch:
            return None
        switch, self.switch = self.switch, None
        switch.process.stdin.close()
        self.ended = dict(switch.line(30), have_kinds=self.have_kinds)
        switch.process.wait()
        return self.ended

    def round(self):
        if self.failure:
            return
        try:
            self.values.append(self.worker.ask(self.question)[self.key])
        except (Failed, KeyError, ValueError) as error:
            self.failure = str(error)

    def close(self):
        try:
            if not self.failure:
                self.off()
        except (Failed, OSError, ValueError) as error:
            self.failure = str(error)
        if self.worker:
            self.worker.close()

    def median(self):
        return statistics.median(self.values) if self.values else None


def start_all(arms):
    """Those that came up; the rest keep their failure."""
    for arm in arms:
        try:
            arm.start()
        except (Failed, OSError) as error:
            arm.failure = str(error)
    # Those that trace from the start first: they go dormant when no recorder comes within 10 s.
    for arm in sorted(arms, key=lambda arm: "UPGATE_TRACE" not in (arm.env or {})):
        if arm.failure:
            continue
        try:
            arm.ready()
        except (Failed, KeyError, ValueError, OSError) as error:
            arm.failure = str(error)
    return [arm for arm in arms if not arm.failure]


def interleave(arms, rounds, seed=1, warm=1, seconds=None):
    """Rounds over the arms in a drawn order and back again (ABBA): the value of a round is the mean of both. The
    first `warm` rounds are thrown away. seconds: ends earlier."""
    draw, end = random.Random(seed), time.monotonic() + (seconds or 1e9)
    for number in range(rounds + warm):
        order = list(arms)
        draw.shuffle(order)
        for arm in order + order[::-1]:
            arm.round()
        for arm in arms:
            if not arm.failure:
                arm.values[-2:] = [statistics.mean(arm.values[-2:])]
            if number < warm:
                arm.values.clear()
        if number > warm + 3 and time.monotonic() > end:
            break


def interval(values, seed=7, draws=2000):
    """95 % of the median of paired values, by drawing rounds again."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(draws))
    return medians[draws // 40], medians[-draws // 40 - 1]


def paired(arm, base, of):
    """of(a, b) of every round that both have; [] when one of them failed."""
    return [of(a, b) for a, b in zip(arm.values, base.values)] if arm and base else []


def ratio_of(arm, base):
    """Median over rounds of arm / base in the same round."""
    if not arm or not base or not arm.values or not base.values:
        return None
    return statistics.median(a / b for a, b in zip(arm.values, base.values))


def spread(arm):
    """Half the middle half of an arm's rounds, over their median: what a difference must beat."""
    if len(arm.values) < 4:
        return None
    low, _, high = statistics.quantiles(arm.values, n=4)
    return (high - low) / 2 / statistics.median(arm.values)


def show(arms, unit="ns", scale=1.0):
    for arm in arms:
        if arm.failure:
            print("  %-34s FAILED %s" % (arm.name, arm.failure))
        else:
            print("  %-34s %10.2f %s  +-%.2f %%  %d rounds" % (arm.name, arm.median() / scale if arm.values else float("nan"), unit,
                                                             100 * (spread(arm) or 0), len(arm.values)))
        if arm.ended:
            print("    %s" % account(arm.ended))


def account(ended):
    """The account of a spool in one line: what is not zero."""
    names = ("dropped", "cupti_dropped", "discarded", "broken", "zero_time", "backwards", "unknown")
    wrong = " ".join("%s %d" % (name, ended[name]) for name in names if ended.get(name))
    records = " ".join("%s %d" % pair for pair in ended.get("records", {}).items() if pair[1])
    return "seen %d: %s%s, kinds 0x%x, CUPTI %s, off in %.1f ms%s" % (
        ended["seen_total"], records, "; WRONG: " + wrong if wrong else "", ended["have_kinds"], ended["cupti"], ended.get("off_ms", -1),
        "; '%s'" % ended["reason"] if ended["reason"] else "")


def table(rows):
    """Rows of rig.row; the number of those that missed."""
    widths = [max([min(len(line[i]), 60) for line in rows] + [1]) for i in range(len(rig.Row._fields))]
    for line in rows:
        print(("  %-*s  %*s  %*s  %*s  %s" % (widths[0], line.what, widths[1], line.measured, widths[2], line.limit,
                                            widths[3], line.ratio, line.state)).rstrip())
    return sum(line.state == "MISSED" for line in rows)
