#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a trace of a CUDA program must hold, on a machine with a GPU: one part each, every part robust on its own. Prints
a line an expectation, "ok" or "MISSED"; stores and logs go to the directory. Exit 1 when something is missed.

    python3 ci/bench/gpu/checks.py DIRECTORY PART…

smoke    does anything come out: the library, its spool, two sessions in a process, the recorder's store
calls    which calls CUPTI tells of: to know, nothing is expected
play     a program with streams, threads, copies, sets and a graph: every count, under each libcupti there is
match    kernels of an eager and a CUDA-graph step: as torch.profiler's, with step and module path
cupti12  the same under the CUPTI 12 that Triton brings
sums     kernel time against CUDA events
sleep    a sleep of 50 ms: the gap on the GPU, and the thread off its CPU inside it
pid      a prepared process is switched on for three seconds and off again
soak     SOAK_SECONDS (60) at the highest launch rate: what is dropped is counted; memory and CPU of the recorder, bytes, load rate
ab       dlrm, transformer and on two GPUs ddp through `upgate ab` with a traced launch
nccl     all-reduce over two GPUs under two versions of NCCL ($NCCL_A and $NCCL_B: paths of libnccl.so.2)
"""

import argparse
import collections
import contextlib
import ctypes
import ctypes.util
import glob
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time

import arms
from arms import Failed, Talker, rig

WORKER = os.path.join(arms.HERE, "steps_worker.py")
NODES_OPTION = ["--gpu", "nodes"]  # `upgate record`: kernels of graphs one by one
BYTES_LIMIT, RAW_BYTES_LIMIT, MEMORY_LIMIT_MB, LOAD_LIMIT = 64, 256, 128, 2_000_000
SUM_LIMIT, SLEEP_MS = 0.01, 50


class Check:
    def __init__(self, out):
        self.out, self.rows = out, []

    def path(self, name):
        return os.path.join(self.out, name)

    def add(self, *args, **more):
        self.rows.append(rig.row(*args, **more))

    def equal(self, what, measured, wanted):
        # A long value once where it is right.
        limit = "= %s" % (wanted,) if measured != wanted or len(str(wanted)) < 40 else "the same"
        self.rows.append(rig.Row(what, str(measured), limit, "", "ok" if measured == wanted else "MISSED"))

    def true(self, what, holds, text=""):
        text = str(text) if text != "" else ("yes" if holds else "no")
        if len(text) > 60:
            print("    %s: %.600s" % (what, text))
            text = text[:57] + "..."
        self.rows.append(rig.Row(what, text, "yes", "", "ok" if holds else "MISSED"))

    def record_argv(self, name, *options):
        """`upgate record` into a fresh store, the options before a command or a pid."""
        store = self.path(name + ".db")
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(store + suffix)
        return [rig.UPGATE, "record", "-q", "-o", store, *options], store

    def environment(self, **more):
        return arms.environment(None, PYTHONPATH=os.path.join(rig.BUILD, "python"), **more)

    def recorded(self, name, command, *options, **env):
        """A talker under `upgate record -- COMMAND`, its pid once it is ready, and the store."""
        argv, store = self.record_argv(name, *options)
        talker = Talker(argv + ["--"] + command, self.environment(**env), self.path(name + ".log"))
        pid = talker.line(90)["ready"]
        return talker, pid, store

    def close(self, talker, store, name):
        code = talker.close(60)
        if code != 0 or not os.path.exists(store):
            raise Failed("%s: upgate record ended with %s: %s" % (name, code, talker.tail()))


# --- reading a store --------------------------------------------------------------------------------


def query(store, sql, *values):
    with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % store, uri=True)) as connection:
        return connection.execute(sql, values).fetchall()


def summary(store):
    """What a person wants to see of a store first, in few lines."""
    print("  store %s, %.2f MB" % (os.path.basename(store), os.path.getsize(store) / 1e6))
    tables = ("gpu_op", "gpu_kernel", "gpu_call", "gpu_sync", "gpu_memory", "gpu_overhead", "nvtx_range", "nccl_op", "python_mark",
              "python_gc", "clock_sample", "gap", "sample")
    counts = [(name, query(store, "SELECT count(*) FROM %s" % name)[0][0]) for name in tables]
    print("  rows: " + ", ".join("%s %d" % pair for pair in counts if pair[1]))
    for row in query(store, "SELECT state, reason, printf('0x%x', kinds), cupti_version, driver_version, nccl_version, per_thread_buffers, "
                            "clock_slope, clock_residual_ns, clock_residual_max_ns, clock_samples, cupti_path FROM gpu_process"):
        print("  gpu_process: %s" % (row,))
    for row in query(store, "SELECT producer, kind, seen, kept, dropped, breach, detail FROM ledger WHERE dropped > 0 OR breach > 0 OR producer = "
                            "'gpu.clock' LIMIT 12"):
        print("  ledger: %s" % (row,))
    for row in query(store, "SELECT level, text FROM note LIMIT 8"):
        print("  note: %s %.200s" % row)
    missing = query(store, "SELECT missing FROM recording")
    print("  missing: %s" % "; ".join("%.150s" % row[0] for row in missing if row[0] != "[]"))


def kinds(store, begin_ns=0, end_ns=1 << 62):
    """How many of each kind started in a window: kernel, graph, set, and the directions of copies."""
    return dict(query(store, "SELECT coalesce(direction, kind), count(*) FROM v_gpu_op WHERE start_ns BETWEEN ? AND ? GROUP BY 1", begin_ns, end_ns))


def kernel_names(store, begin_ns=0, end_ns=1 << 62):
    """Mangled names and how often, of kernels that started in a window."""
    return collections.Counter(dict(query(
        store, "SELECT s.text, count(*) FROM gpu_op o JOIN gpu_work w ON w.id = o.work_id JOIN gpu_kernel k ON k.id = w.kernel_id JOIN string s ON "
               "s.id = k.name_id WHERE o.start_ns BETWEEN ? AND ? GROUP BY 1", begin_ns, end_ns)))


def order_violations(store):
    return query(store, "SELECT count(*) FROM v_gpu_op WHERE call_start_ns > start_ns")[0][0]


def demangle(name):
    """As the C++ library does it, which is what torch.profiler prints."""
    library = ctypes.CDLL(ctypes.util.find_library("stdc++") or "libstdc++.so.6")
    function = getattr(library, "__cxa_demangle")
    function.restype = ctypes.c_void_p
    status = ctypes.c_int()
    text = function(name.encode(), None, None, ctypes.byref(status))
    return ctypes.string_at(text).decode() if text and status.value == 0 else name


# --- smoke ---------------------------------------------------------------------------------------------


def play_by_hand(check):
    """Through the spool alone: three sessions in one process, the second with the nodes of graphs."""
    log = check.path("smoke_spool.log")
    worker = Talker([arms.LAUNCH], arms.environment(arms.INJECT, UPGATE_INJECT_DEBUG="1"), log)
    pid = worker.line(60)["ready"]
    status = subprocess.run([arms.SWITCH, "status", str(pid)], capture_output=True, text=True, timeout=20).stdout
    print("  dormant: %.300s" % status.strip())
    for name, kinds_wanted in (("first", arms.DEFAULT), ("nodes", arms.KERNELS | arms.NODES), ("third", arms.DEFAULT)):
        switch = Talker([arms.SWITCH, "drain", str(pid), str(kinds_wanted)])
        state = switch.line(30)
        print("  %s: on %.1f ms, state %s, cupti %s %s, reason '%s'" % (name, state.get("on_ms", -1), state.get("state"), state.get("cupti"),
                                                                     state.get("cupti_path"), state.get("reason")))
        played = worker.ask("play")
        worker.ask("loop 2000")
        switch.process.stdin.close()
        ended = dict(switch.line(30), have_kinds=state["have_kinds"])
        print("    %s" % arms.account(ended))
        own = played["play_first"] + played["play_second"] + played["play_thread"] + 2000
        wanted = own + (played["play_node"] if kinds_wanted & arms.NODES else 0)
        check.equal("spool, %s session: kernels" % name, ended["records"]["kernel"], wanted)
        check.true("spool, %s session: a call for each launch" % name, ended["records"]["call"] >= own, "%d calls" % ended["records"]["call"])
        check.equal("spool, %s session: copies and sets" % name, ended["records"]["copy"],
                    played["HtoD"] + played["DtoD"] + played["DtoH"] + played["sets"])
        check.equal("spool, %s session: graph launches" % name, ended["records"]["graph"], 0 if kinds_wanted & arms.NODES else played["graphs"])
        check.equal("spool, %s session: broken, zero, backwards" % name, [ended["broken"], ended["zero_time"], ended["backwards"]], [0, 0, 0])
    worker.close()
    with open(log, errors="replace") as file:
        print("  what the library said: %s" % " | ".join(line.strip() for line in file)[:3000])


def smoke(check):
    print("  %s" % subprocess.run(["ldd", arms.INJECT], capture_output=True, text=True).stdout.replace("\n\t", " ").strip()[:300])
    try:
        play_by_hand(check)
    except (Failed, KeyError, subprocess.SubprocessError) as error:
        check.true("the spool alone", False, error)
    talker, _, store = check.recorded("smoke", [arms.LAUNCH])
    played = talker.ask("play")
    check.close(talker, store, "smoke")
    summary(store)
    check_play(check, store, played, "recorded", nodes=False)


def calls(check):
    """Which calls CUPTI tells of when the driver's, the runtime's or both are chosen; no expectation."""
    argv = {"C": [arms.LAUNCH], "PyTorch": [sys.executable, WORKER]}
    for which in ("driver", "both", "select", "all"):
        for name, command in argv.items():
            log = check.path("calls_%s_%s.log" % (which, name))
            try:
                worker = Talker(command, arms.environment(arms.RECYCLE, RECYCLE_CALLS=which, RECYCLE_COUNT="1"), log)
                worker.line(90)
                worker.ask("play" if name == "C" else "round 1")
                worker.close()
                with open(log, errors="replace") as file:
                    said = [line.strip() for line in file if line.startswith("recycle")]
                print("  %s, %s: %.900s" % (which, name, " | ".join(said)))
            except Failed as error:
                print("  %s, %s: FAILED %s" % (which, name, error))


# --- play ------------------------------------------------------------------------------------------


def check_play(check, store, played, name, nodes):
    names = collections.Counter()
    for mangled, count in kernel_names(store, played["begin_ns"]).items():
        names[next((word for word in ("play_first", "play_second", "play_thread", "play_node") if word in mangled), "other")] += count
    wanted = {word: played[word] for word in ("play_first", "play_second", "play_thread") + (("play_node",) if nodes else ())}
    check.equal("%s: kernels by name" % name, dict(sorted(names.items())), dict(sorted(wanted.items())))
    found = kinds(store, played["begin_ns"])
    for word in ("HtoD", "DtoD", "DtoH"):
        check.equal("%s: %s copies" % (name, word), found.get(word, 0), played[word])
    check.equal("%s: sets" % name, found.get("set", 0), played["sets"])
    check.equal("%s: graph launches" % name, found.get("graph", 0), 0 if nodes else played["graphs"])
    check.equal("%s: kernels before their launch" % name, order_violations(store), 0)
    orphans = query(store, "SELECT count(*) FROM v_gpu_op WHERE call_start_ns IS NULL")[0][0]
    check.equal("%s: without the call that launched" % name, orphans, 0)
    shape = query(store, "SELECT DISTINCT grid_x, block_x, dynamic_shared_bytes FROM gpu_kernel WHERE name LIKE '%play_first%'")
    check.equal("%s: shape of play_first" % name, shape, [(2, 64, 128)])
    threads = query(store, "SELECT count(DISTINCT call_tid) FROM v_gpu_op WHERE name LIKE '%play_thread%'")
    check.equal("%s: threads that launched play_thread" % name, threads[0][0], 3)


def cuptis():
    """Every libcupti of this machine: (name, path); none: what the library finds itself."""
    found = [("own choice", None)]
    for pattern in ("nvidia/cu13/lib/libcupti.so.13", "nvidia/cuda_cupti/lib/libcupti.so.1[23]", "triton/backends/nvidia/lib/cupti/libcupti.so*"):
        for folder in sys.path:
            for path in glob.glob(os.path.join(folder, pattern)) if folder else ():
                real = os.path.realpath(path)
                if real not in [other for _, other in found]:
                    found.append((os.path.basename(os.path.dirname(os.path.dirname(path))) + "/" + os.path.basename(real), real))
    return found


def play_one(check, title, store_name, nodes, command, **more):
    try:
        talker, _, store = check.recorded(store_name, command, *(NODES_OPTION if nodes else ()), **more)
        played = talker.ask("play")
        check.close(talker, store, title)
        print("  %s: %s" % (title, query(store, "SELECT cupti_version, cupti_path, state, reason FROM gpu_process")))
        check_play(check, store, played, title, nodes)
        return query(store, "SELECT cupti_path FROM gpu_process")[0][0]
    except (Failed, KeyError, IndexError, sqlite3.Error) as error:
        check.true(title, False, error)


def play(check):
    for number, (name, path) in enumerate(cuptis()):
        for nodes in (False, True):
            play_one(check, "%s%s" % (name, ", nodes" if nodes else ""), "play%d%s" % (number, "_nodes" if nodes else ""), nodes, [arms.LAUNCH],
                     **({"UPGATE_CUPTI": path} if path else {}))
    other = next((path for _, path in cuptis() if path and "triton" in path), None)
    if other:  # the one that the process has mapped already is taken
        used = play_one(check, "mapped first", "play_mapped", False, ["env", "LD_PRELOAD=" + other, arms.LAUNCH])
        check.equal("the CUPTI that was mapped first", os.path.realpath(used or ""), other)


# --- steps of PyTorch ---------------------------------------------------------------------------------


def compare(check, name, ours, theirs, moved):
    """Multisets of names: ours demangled as torch.profiler does. moved: copies and sets that we have more than they. A
    copy or set of a graph may be a kernel of the driver's (memcpy32_post), which CUPTI tells now as the one, now as the other."""
    mine = collections.Counter()
    for mangled, count in ours.items():
        mine[demangle(mangled)] += count
    theirs_alone = theirs - mine
    of_driver = sum(count for text, count in theirs_alone.items() if text.startswith(("memcpy", "memset")))
    check.equal("%s: kernels, copies and sets, ours and torch.profiler's" % name, sum(mine.values()) + moved, sum(theirs.values()))
    check.equal("%s: names and counts that differ" % name, sum(((mine - theirs) + theirs_alone).values()) - min(of_driver, max(0, moved)), 0)
    for who, rest in (("ours alone", mine - theirs), ("theirs alone", theirs_alone)):
        for text, count in list(rest.items())[:4]:
            print("    %s: %d x %.110s" % (who, count, text))


def modules(check, name, store, step):
    """Steps and module paths of the kernels of a step."""
    rows = query(store, "SELECT python_step, module, count(*) FROM v_gpu_op WHERE kind IN ('kernel', 'graph') AND start_ns BETWEEN ? AND ? GROUP BY 1, 2",
                 step["begin_ns"], step["end_ns"])
    total = sum(row[2] for row in rows)
    orphans = query(store, "SELECT count(*) FROM v_gpu_op WHERE call_start_ns IS NULL AND start_ns BETWEEN ? AND ?", step["begin_ns"], step["end_ns"])[0][0]
    check.equal("%s: kernels and copies without the call that launched them" % name, orphans, 0)
    with_step = sum(row[2] for row in rows if row[0] is not None)
    check.equal("%s: kernels with their step" % name, "%d of %d" % (with_step, total), "%d of %d" % (total, total))
    check.true("%s: one step" % name, len({row[0] for row in rows if row[0] is not None}) == 1, sorted({str(row[0]) for row in rows}))
    for phase, (begin, end) in step["marks"].items():
        inside = query(store, "SELECT module, count(*) FROM v_gpu_op WHERE kind = 'kernel' AND call_start_ns BETWEEN ? AND ? GROUP BY 1", begin, end)
        number, with_module = sum(row[1] for row in inside), sum(row[1] for row in inside if row[0])
        names = sorted({row[0] for row in inside if row[0]})
        print("    %s: %d kernels, %d with a module of %d: %s" % (name + " " + phase, number, with_module, len(names), ", ".join(names[:6])))
        if phase == "forward":  # all but the loss, which belongs to no module: square and mean
            check.true("%s: kernels of the forward pass with a module" % name, number > 0 and with_module >= number - 3, "%d of %d" % (with_module, number))
        if phase == "backward":
            check.true("%s: kernels of the backward pass with a module" % name, number > 0 and with_module >= 0.9 * number, "%d of %d" % (with_module, number))
    return rows


def match_mode(check, mode, cupti=None, eager=None):
    """The number of kernels of the step that have a module path; eager: that of the eager step."""
    argv = [sys.executable, WORKER, "--mode", mode]
    theirs = Talker(argv, check.environment(), check.path("match_theirs.log"))
    theirs.line(120)
    name, more = "match%s_%s" % ("12" if cupti else "", mode), {"UPGATE_CUPTI": cupti} if cupti else {}
    talker, _, store = check.recorded(name, argv, *(NODES_OPTION if mode == "graph" else ()), **more)
    for _ in range(3):
        step = talker.ask("step")
    profile = theirs.ask("profile", 120)
    theirs.close()
    check.close(talker, store, name)
    summary(store)
    mode = "%s%s" % (mode, ", CUPTI 12" if cupti else "")
    if "error" in step or "error" in profile:
        raise Failed("the worker: %s %s" % (step.get("error"), profile.get("error")))
    ours = kernel_names(store, step["begin_ns"], step["end_ns"])
    found = kinds(store, step["begin_ns"], step["end_ns"])
    copies = sum(count for word, count in found.items() if word not in ("kernel", "graph", "set"))
    print("    %s: copies %d and sets %d, theirs %d and %d" % (mode, copies, found.get("set", 0), profile["copies"], profile["sets"]))
    compare(check, mode, ours, collections.Counter(name for name, _ in profile["kernels"]),
            copies + found.get("set", 0) - profile["copies"] - profile["sets"])
    check.equal("%s: kernels before their launch" % mode, order_violations(store), 0)
    rows = modules(check, mode, store, step)
    with_module, total = sum(row[2] for row in rows if row[1]), sum(row[2] for row in rows)
    if not mode.startswith("graph"):
        return with_module
    names = sorted({row[1] for row in rows if row[1]})
    print("    %s: %d of %d kernels with a module of %d: %s" % (mode, with_module, total, len(names), ", ".join(names[:6])))
    # The optimizer's kernels belong to no module, in a graph as eagerly; the rest must have theirs from the capture.
    check.true("%s: kernels with a module path, as many as eagerly" % mode, with_module > 0 and with_module >= 0.95 * (eager or 0),
               "%d of %d, eagerly %s" % (with_module, total, eager))
    return with_module


def match(check):
    eager = None
    for mode in ("eager", "graph"):
        try:
            eager = match_mode(check, mode, None, eager)
        except (Failed, KeyError, sqlite3.Error) as error:
            check.true("match " + mode, False, error)


def cupti12(check):
    """The same in a process that has CUPTI 13 mapped, under the 12 that Triton brings."""
    path = next((path for _, path in cuptis() if path and os.path.basename(path).startswith("libcupti.so.12")
                 or path and "triton" in path), None)
    check.true("Triton's CUPTI", bool(path), path or "none found")
    eager = None
    for mode in ("eager", "graph") if path else ():
        try:
            eager = match_mode(check, mode, path, eager)
        except (Failed, KeyError, sqlite3.Error) as error:
            check.true("CUPTI 12, " + mode, False, error)


def sums(check):
    """Products of some 20 ms, each between two events and all of them between two more."""
    talker, _, store = check.recorded("sums", [sys.executable, WORKER, "--mode", "gemm"])
    answers = [talker.ask("events 6") for _ in range(4)]
    check.close(talker, store, "sums")
    single, whole = [], []
    for answer in answers[1:]:
        kernels = [row[0] for row in query(store, "SELECT dur_ns FROM v_gpu_op WHERE kind = 'kernel' AND dur_ns > 1000000 AND start_ns BETWEEN ? AND ? "
                                                  "ORDER BY start_ns", answer["begin_ns"], answer["end_ns"])][1:]  # the first lies before the first event
        if len(kernels) != len(answer["each_ns"]):
            print("    %d kernels for %d products" % (len(kernels), len(answer["each_ns"])))
            continue
        single += [kernel / event - 1 for kernel, event in zip(kernels, answer["each_ns"])]
        whole.append(sum(kernels) / answer["elapsed_ns"] - 1)
        print("    kernels %.3f ms, CUDA events %.3f ms, each %s" % (sum(kernels) / 1e6, answer["elapsed_ns"] / 1e6,
                                                               " ".join("%+.3f %%" % (100 * share) for share in single[-len(kernels):])))
    worst = max((abs(share) for share in single), default=float("nan"))
    check.add("time of a kernel against CUDA events around it, worst of %d" % len(single), 100 * worst, 100 * SUM_LIMIT, " %")
    worst = max((abs(share) for share in whole), default=float("nan"))
    check.add("sum of a step's kernels against CUDA events around it, worst of %d" % len(whole), 100 * worst, 100 * SUM_LIMIT, " %")


# --- one clock -------------------------------------------------------------------------------------------


def sleep(check):
    talker, pid, store = check.recorded("sleep", [sys.executable, WORKER])
    slept = talker.ask("sleep %d" % SLEEP_MS)
    check.close(talker, store, "sleep")
    residual = query(store, "SELECT clock_residual_ns, clock_residual_max_ns FROM gpu_process WHERE state = 'traced'")
    slack = max([row[1] or 0 for row in residual] + [1000])
    middle = (slept["begin_ns"] + slept["end_ns"]) // 2
    before = query(store, "SELECT max(start_ns + dur_ns) FROM gpu_op WHERE start_ns < ?", middle)[0][0]
    after = query(store, "SELECT min(start_ns) FROM gpu_op WHERE start_ns >= ?", middle)[0][0]
    rows = query(store, "SELECT out_ns, in_ns, python_stack, kernel_stack FROM v_off_cpu WHERE tid = ? AND out_ns < ? AND in_ns > ?", pid, middle, middle)
    print("    sleep %s, GPU idle %.3f ms, off CPU %s, residual %s" % (
        slept, ((after or 0) - (before or 0)) / 1e6, ["%.3f ms" % ((row[1] - row[0]) / 1e6) for row in rows], residual))
    check.true("the GPU stands still for the sleep", bool(before and after) and SLEEP_MS <= (after - before) / 1e6 < SLEEP_MS + 5,
               "%.3f ms" % (((after or 0) - (before or 0)) / 1e6))
    check.equal("one stay off the CPU in it", len(rows), 1)
    if not (rows and before and after):
        return
    out_ns, in_ns, python, _ = rows[0]
    check.add("off the CPU", (in_ns - out_ns) / 1e6, SLEEP_MS, " ms", more_is_better=True)
    check.true("inside the gap on the GPU, +-%d ns" % slack, before - slack <= out_ns and in_ns <= after + slack,
               "%+d, %+d ns" % (out_ns - before, after - in_ns))
    names = [row[0] for row in query(store, "SELECT name FROM v_stack WHERE stack = ? ORDER BY depth", python or -1)]
    check.true("its Python stack names the sleep", any("planted_sleep" in name for name in names), names[:3])


def pid(check):
    worker = Talker([sys.executable, WORKER], arms.environment(arms.INJECT, PYTHONPATH=os.path.join(rig.BUILD, "python")), check.path("pid_worker.log"))
    target = worker.line(90)["ready"]
    argv, store = check.record_argv("pid", "--pid", str(target), "--duration", "3s")
    worker.process.stdin.write(b"go 11\n")
    worker.process.stdin.flush()
    time.sleep(3)
    on_ns = time.monotonic_ns()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    off_ns = time.monotonic_ns()
    steps = worker.line(60)["steps"]
    worker.close()
    print("  record took %.2f s, exit %d %s" % ((off_ns - on_ns) / 1e9, done.returncode, done.stderr.strip()[-300:]))
    summary(store)
    begin, end, calls = query(store, "SELECT min(start_ns), max(start_ns), count(*) FROM v_gpu_op WHERE kind = 'kernel'")[0]
    check.true("kernels of a process that was switched on", calls > 0, calls)
    medians = {}
    for name, low, high in (("before", 0, on_ns), ("during", begin or on_ns, end or off_ns), ("after", off_ns, 1 << 62)):
        inside = [took for at, took in steps if low <= at and at + took <= high]
        medians[name] = statistics.median(inside) if inside else float("nan")
        print("    %s: %d steps, median %.3f ms" % (name, len(inside), medians[name] / 1e6))
    check.add("step while it is on, over before", medians["during"] / medians["before"], None, "x")
    check.add("step after it is off, over before", medians["after"] / medians["before"], 1.02, "x")
    in_window = sum(1 for at, took in steps if (begin or 0) <= at and at + took <= (end or 0))
    per_step = calls / in_window if in_window else float("nan")
    check.add("kernels of a step while it is on", per_step)


# --- soak ------------------------------------------------------------------------------------------


def process_status(pid):
    with open("/proc/%d/status" % pid) as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem") if name in fields}


def process_cpu_s(pid):
    with open("/proc/%d/stat" % pid) as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def soak(check):
    seconds = float(os.environ.get("SOAK_SECONDS", "60"))
    for name, command in (("soak", "soak %g 0" % seconds), ("soak_graph", "soakgraph %g" % min(10, seconds))):
        try:
            soak_one(check, name, command, seconds)
        except (Failed, KeyError, sqlite3.Error, OSError) as error:
            check.true(name, False, error)


def soak_one(check, name, command, seconds):
    nodes = name == "soak_graph"
    talker, _, store = check.recorded(name, [arms.LAUNCH], *(NODES_OPTION if nodes else ()), "--sample-hz", "0")
    recorder = talker.pid
    talker.process.stdin.write(command.encode() + b"\n")
    talker.process.stdin.flush()
    peak, parts, end = 0.0, {}, time.monotonic() + seconds + 60
    answer = None
    while answer is None and time.monotonic() < end:
        try:
            answer = talker.line(0.5)
        except Failed:
            if talker.process.poll() is not None:
                raise
        with contextlib.suppress(OSError, ValueError):
            status = process_status(recorder)
            if status.get("RssAnon", 0) > parts.get("RssAnon", -1):
                parts = status
            peak = max(peak, status.get("VmHWM", 0))
    if answer is None:
        raise Failed("%s: no answer" % name)
    cpu = process_cpu_s(recorder)
    closing = time.monotonic()
    talker.process.stdin.close()
    while talker.process.poll() is None and time.monotonic() < closing + 90:
        with contextlib.suppress(OSError, ValueError, KeyError):
            peak, cpu = max(peak, process_status(recorder)["VmHWM"]), process_cpu_s(recorder)
        time.sleep(0.05)
    print("  %s; the recorder ended %.1f s after, %.1f s of CPU, %s" % (answer, time.monotonic() - closing, cpu, {k: round(v, 1) for k, v in parts.items()}))
    check.close(talker, store, name)
    summary(store)
    kept = query(store, "SELECT count(*) FROM v_gpu_op WHERE kind = 'kernel'")[0][0]
    rows = kept + sum(query(store, "SELECT count(*) FROM %s" % table)[0][0] for table in ("gpu_call", "gpu_sync", "gpu_overhead"))
    ledger = query(store, "SELECT sum(dropped) FROM ledger WHERE kind LIKE '%kernel%' OR producer LIKE '%kernel%' OR kind LIKE '%cupti%'")[0][0]
    size = os.path.getsize(store)
    check.add("%s: launches a second" % name, answer["per_second"])
    check.equal("%s: launched, and kernels in the store + dropped" % name, answer["launched"], kept + (ledger or 0))
    check.add("%s: dropped" % name, answer["launched"] - kept, 0)
    check.add("%s: bytes a kernel in the store" % name, size / max(kept, 1), BYTES_LIMIT, " bytes")
    check.add("%s: peak memory of the recorder" % name, peak, MEMORY_LIMIT_MB, " MB")
    check.add("%s: kernels a second of the recorder's CPU" % name, kept / cpu if cpu else float("nan"))
    check.add("%s: CPU of the recorder" % name, 100 * cpu / answer["seconds"], None, " % of a core")
    check.equal("%s: kernels before their launch" % name, order_violations(store), 0)
    if size > 12e6:
        os.unlink(store)


# --- upgate ab ---------------------------------------------------------------------------------------


PLAN = """baseline:  {name: same, python: %(python)s%(env_a)s}
candidate: {name: other, python: %(python)s%(env_b)s}
workloads:
  - {name: %(model)s, command: ["{python}", %(models)s/%(model)s.py, --mode, train, --steps, "{steps}", --seed, "{seed}", --ranks, "%(ranks)d",
      --device, cuda], steps: %(steps)d, ranks: %(ranks)d}
schedule: {looks: [%(looks)s], seed: 7, interleave: steps, timeout: 2min, traced_launches: 1}
gate: {alpha: 0.5, calibrate: require, metrics: {step_time: {margin: 10%%}, throughput: {observe: true}, peak_gpu_memory: {observe: true},
                 peak_memory: {observe: true}, first_step_time: {observe: true}}, parity: {rule: off}}
"""


def run_ab(check, name, model, ranks, steps, env_a="", env_b="", looks="1", timeout=120):
    plan, store = check.path(name + ".yaml"), check.path(name + ".db")
    with open(plan, "w") as file:
        file.write(PLAN % {"python": sys.executable, "model": model, "ranks": ranks, "steps": steps, "env_a": env_a, "env_b": env_b,
                           "models": os.path.join(rig.BUILD, "reference_models/torch"), "looks": looks})
    with contextlib.suppress(FileNotFoundError):
        os.unlink(store)
    env = dict(check.environment(), UPGATE_STATE_DIR=check.path("state"))
    with open(check.path(name + ".log"), "w") as log:
        process = subprocess.Popen([rig.UPGATE, "ab", plan, "-o", store], env=env, stdout=log, stderr=log)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            code = "timeout, then %s" % process.wait(30)
    with open(check.path(name + ".log"), errors="replace") as log:
        print("  ab %s: exit %s; %s" % (name, code, " | ".join(log.read().strip().splitlines()[-4:])[-500:]))
    return store


def ab(check):
    wanted = [("dlrm", 1, 60), ("transformer", 1, 60)] + ([("ddp", 2, 60)] if gpus() >= 2 else [])
    for model, ranks, steps in wanted:
        try:
            store = run_ab(check, "ab_" + model, model, ranks, steps)
            summary(store)
            rows = query(store, "SELECT l.side, count(*), count(v.python_step), count(v.module), count(DISTINCT v.python_step), count(DISTINCT v.module), "
                                "count(DISTINCT v.pid) FROM v_gpu_op v JOIN launch l ON l.id = v.launch WHERE v.kind = 'kernel' GROUP BY 1")
            for row in rows:
                print("    side %s: %d kernels, %d with a step, %d with a module, %d steps, %d modules, %d processes" % row)
            check.equal("%s through ab: sides with kernels" % model, [row[0] for row in rows], [0, 1])
            check.true("%s through ab: equal counts" % model, len(rows) == 2 and rows[0][1] == rows[1][1], [row[1] for row in rows])
            check.true("%s through ab: steps" % model, all(row[4] >= steps for row in rows) and rows, [row[4] for row in rows])
            check.true("%s through ab: module paths" % model, all(row[5] > 3 for row in rows) and rows, [row[5] for row in rows])
            check.true("%s through ab: ranks" % model, all(row[6] == ranks for row in rows) and rows, [row[6] for row in rows])
            if ranks > 1:
                collectives(check, store, model)
        except (Failed, KeyError, sqlite3.Error, OSError) as error:
            check.true("%s through ab" % model, False, error)


# --- NCCL --------------------------------------------------------------------------------------------


def gpus():
    return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())


def collectives(check, store, name):
    rows = query(store, "SELECT l.side, v.function, v.datatype, v.algorithm, v.protocol, v.bytes, v.ranks, v.channels, count(*) FROM v_nccl_op v LEFT JOIN "
                        "launch l ON l.id = v.launch GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 1, 6 DESC LIMIT 14")
    for row in rows:
        print("    side %s: %s %s %s/%s %d bytes, %d ranks, %s channels, %d times" % row)
    for row in query(store, "SELECT l.side, g.nccl_version, count(*) FROM gpu_process g JOIN process p ON p.id = g.process_id JOIN recording r ON "
                            "r.id = p.recording_id LEFT JOIN launch l ON l.id = r.launch_id GROUP BY 1, 2"):
        print("    side %s: NCCL %s in %d processes" % row)
    for row in query(store, "SELECT function, bytes, count(*), sum(ended_ns IS NULL), sum(kernel_start_ns IS NULL), min(kernel_start_ns - enqueued_ns), "
                            "max(ended_ns - kernel_end_ns), avg(kernel_end_ns - kernel_start_ns), min(channels), max(channels), plugin_version FROM nccl_op "
                            "GROUP BY function, bytes, plugin_version ORDER BY 2 DESC LIMIT 8"):
        print("    %s %s bytes: %s ops, %s without end, %s without kernel; launch to kernel min %s, kernel to end max %s, kernel avg %s ns; channels %s to %s; v%s" % row)
    both = query(store, "SELECT count(*), sum(n = ranks) FROM (SELECT count(DISTINCT rank) AS n, ranks FROM v_nccl_op WHERE peer IS NULL GROUP BY recording, "
                        "communicator, function, sequence)")[0]
    print("    collectives %s, seen by all ranks %s" % both)
    reduce = [row for row in rows if row[1] == "AllReduce"]
    check.true("%s: algorithm, protocol and bytes of each all-reduce" % name, bool(reduce) and all(row[3] and row[4] and row[5] > 0 for row in reduce),
               "%d kinds" % len(reduce))
    return reduce


def known_collectives(check, name, path):
    """All-reduces of known sizes, recorded: each with its algorithm, protocol and bytes, on both ranks."""
    argv, store = check.record_argv("nccl_" + name.lower())
    preload = ["env", "LD_PRELOAD=" + path] if path else []  # of the workload, not of the recorder
    done = subprocess.run(argv + ["--"] + preload + [sys.executable, os.path.join(arms.HERE, "collectives_worker.py"), "2"],
                          env=check.environment(), capture_output=True, text=True, timeout=120)
    print("  %s %s: exit %d %s %s" % (name, path, done.returncode, done.stdout.strip()[-100:], done.stderr.strip()[-400:]))
    summary(store)
    collectives(check, store, name)
    found = query(store, "SELECT bytes, rank, count(*) FROM v_nccl_op WHERE function = 'AllReduce' AND bytes >= 1048576 GROUP BY 1, 2 ORDER BY 1, 2")
    check.equal("%s: bytes, rank and number of the all-reduces" % name, found, [(size << 20, rank, 3) for size in (1, 16, 256) for rank in (0, 1)])


def nccl(check):
    if gpus() < 2:
        print("  one GPU: nothing to check")
        return
    versions = {name: os.environ[name] for name in ("NCCL_A", "NCCL_B") if os.environ.get(name)}
    for name, path in versions.items() or {"own": None}.items():
        try:
            known_collectives(check, name, path)
        except (Failed, sqlite3.Error, OSError, subprocess.SubprocessError) as error:
            check.true(name, False, error)
    if len(versions) == 2:
        env = {side: ", env: {LD_PRELOAD: %s}" % path for side, path in versions.items()}
        store = run_ab(check, "ab_nccl", "ddp", 2, 60, env["NCCL_A"], env["NCCL_B"])
        reduce = collectives(check, store, "two sides")
        check.equal("both sides have all-reduces", sorted({row[0] for row in reduce}), [0, 1])
        used = query(store, "SELECT DISTINCT nccl_version FROM gpu_process WHERE nccl_version > 0 ORDER BY 1")
        check.true("two versions of NCCL", len(used) == 2, [row[0] for row in used])


PARTS = {"smoke": smoke, "calls": calls, "play": play, "match": match, "cupti12": cupti12, "sums": sums, "sleep": sleep, "pid": pid, "soak": soak, "ab": ab, "nccl": nccl}


def main():
    parser = argparse.ArgumentParser(description="what a trace of a CUDA program must hold")
    parser.add_argument("out")
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    arms.end_with_children()
    missed = 0
    for part in args.parts:
        check, begin = Check(args.out), time.monotonic()
        print("== %s" % part, flush=True)
        try:
            PARTS[part](check)
        except Exception as error:  # the other parts go on
            check.true("%s came to its end" % part, False, "%s: %.300s" % (type(error).__name__, error))
        Talker.end_all()
        # What is right is counted, what is wrong or a figure is shown; all of it is in full-PART.out.
        with open(check.path("full-%s.out" % part), "w") as file, contextlib.redirect_stdout(file):
            missed += arms.table(check.rows)
        shown = [row for row in check.rows if row.state == "MISSED" or not row.limit.startswith(("=", "yes", "the same"))]
        arms.table(shown)
        print("  %d other expectations hold" % (len(check.rows) - len(shown)))
        print("-- %s, %.1f s" % (part, time.monotonic() - begin), flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
