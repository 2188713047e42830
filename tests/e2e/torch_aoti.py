#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The variant aotinductor-native: a package of AOTInductor, served by a C++ program through the side's own libtorch.

A launch marks its requests as one process without Python, gives the answers of the eager run, and leaves nothing; another process that wants the
program at the same moment makes no second one. The program by itself: scores that are off, files that are damaged, a directory that is not of
a launch. What a side lacks is said. Most of its CPU time is the C++ compiler's. Exits 77 when no interpreter has torch 2.6 or later, or
there is no compiler.
"""
import fcntl
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import torch_models  # noqa: E402  which interpreters there are, and the recorder

HOST = os.path.join(os.environ["UPGATE_BUILD"], "tests", "e2e", "step_host")
MODEL = os.path.join(torch_models.MODELS, "transformer.py")
STEPS, RATE = 24, 4
WORDS = ["--mode", "infer", "--steps", str(STEPS), "--size", "small", "--seed", "3", "--device", "cpu"]
NATIVE = ["--variant", "aotinductor-native"]
LIMIT_S = 400
failures = []

# Beside the launch, from the same state directory.
BESIDE = '''
import sys, aoti_native
state = aoti_native._state()
directory, lock = aoti_native.own_directory(state)
print(aoti_native.program(state, directory, "cpu"))
print(directory)
'''

# What a side may lack, in one interpreter that has imported torch.
LACKS = '''
import os, sys, tempfile, types
import aoti_native
assert aoti_native.lack("transformer") == "", aoti_native.lack("transformer")
assert "serves dlrm, hstu, transformer, vision" in aoti_native.lack("dlrm-cached")
kept = dict(os.environ)
os.environ.pop("CXX", None)
os.environ["PATH"] = "/nonexistent"
assert "needs a C++ compiler" in aoti_native.lack("hstu"), aoti_native.lack("hstu")
os.environ.update(kept)
for name in ("UPGATE_STATE_DIR", "XDG_STATE_HOME", "HOME"):
    os.environ.pop(name, None)
assert "neither UPGATE_STATE_DIR, XDG_STATE_HOME nor HOME" in aoti_native.lack("hstu")
os.environ["HOME"] = "/h"
assert aoti_native._state() == "/h/.local/state/upgate/aoti"
os.environ["XDG_STATE_HOME"] = "/x"
assert aoti_native._state() == "/x/upgate/aoti"
os.environ.update(kept)
aoti_native._paths = lambda: (["/nonexistent/include"], [])
assert "has no header 'torch/csrc/inductor" in aoti_native.lack("hstu"), aoti_native.lack("hstu")
print("lacks are said")
'''


def unpacked():
    """Packages where libtorch puts them by itself: of 2.6, and of later versions."""
    return set(glob.glob("/tmp/*/data/aotinductor") + glob.glob("/tmp/*/*/data/aotinductor"))


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what, flush=True)


def environment_of(directory, shim, record):
    """With a g++ that writes down what it is called with. The model is compiled without optimising and without vector instructions, for which
    Inductor would compile a file each: it is about results."""
    environment = dict(os.environ, PYTHONPATH=shim, RECORD_DIR=record, UPGATE_STATE_DIR=os.path.join(directory, "state"), PYTHONDONTWRITEBYTECODE="1",
                       PYTHONNOUSERSITE="1", AOT_INDUCTOR_DEBUG_COMPILE="1", TORCHINDUCTOR_VEC_ISA_OK="0",
                       PATH=os.path.join(directory, "bin") + os.pathsep + os.environ["PATH"])
    for variable in ("UPGATE_STEPS", "RANK", "TORCHINDUCTOR_CACHE_DIR", "CXX"):
        environment.pop(variable, None)
    return environment


class Launch:
    """A run of the model; by step_host where it is to be recorded."""

    def __init__(self, python, shim, directory, name, words, recorded=False):
        self.name, self._record = name, os.path.join(directory, name + ".record")
        os.mkdir(self._record)
        environment = environment_of(directory, shim, self._record)
        self._paths = {end: os.path.join(directory, name + end) for end in (".out", ".err", ".host", ".pid")}
        command = [python, MODEL] + WORDS + words
        if recorded:  # two writers on one pipe would cut each other's lines
            shell = 'echo $$ >"$0"; out=$1; shift; exec "$@" >"$out"'
            command = [HOST, "0", "0", "sh", "-c", shell, self._paths[".pid"], self._paths[".out"]] + command
        with open(self._paths[".host" if recorded else ".out"], "w") as out, open(self._paths[".err"], "w") as err:
            self._process = subprocess.Popen(command, env=environment, stdout=out, stderr=err)

    def text(self, end):
        path = self._paths[end]
        if not os.path.exists(path):
            return ""
        with open(path) as file:
            return file.read()

    def alive(self):
        return self._process.poll() is None

    def wait(self):
        try:
            self.status = self._process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.status = self._process.wait()
            check(False, "%s: did not end within %d s" % (self.name, LIMIT_S))
        self.stdout, self.stderr = self.text(".out"), self.text(".err")
        self.lines = [json.loads(line) for line in self.text(".host").splitlines() if line.startswith("{")]
        self.recorded = []
        for path in glob.glob(os.path.join(self._record, "*.jsonl")):
            with open(path) as file:
                self.recorded += [json.loads(line) for line in file]
        return self

    def seen_serving(self):
        """(the program's file, what it has mapped) once the process has become the program, or ('', '') where it ended before."""
        until = time.monotonic() + LIMIT_S
        while self.alive() and time.monotonic() < until:
            pid = self.text(".pid").strip()
            try:
                path = os.readlink("/proc/%s/exe" % pid) if pid else ""
                if path.endswith("/aotinductor-native"):
                    with open("/proc/%s/maps" % pid) as file:
                        maps = file.read()
                    if "/model/" in maps:  # the package is loaded
                        return path, maps
            except OSError:
                pass  # not there yet, or ended meanwhile
            time.sleep(0.02)
        return "", ""


def floats(hexadecimal):
    data = bytes.fromhex(hexadecimal)
    return struct.unpack("%df" % (len(data) // 4), data)


def of(lines, kind):
    return [line for line in lines if line["kind"] == kind]


def check_good(good, eager, path, maps):
    check(good.status == 0 and of(good.lines, "exit")[-1]["status"] == 0, "the good launch ends with 0: %s" % good.stderr[-1500:])
    check(path and "libtorch_cpu" in maps and not re.search("/bin/python|libpython|libtorch_python", maps),
          "the process is the program, and no Python is in it")
    check("/launches/torchinductor_" in maps, "the package is unpacked below the state directory")
    check(not good.recorded, "Python marks nothing: %s" % good.recorded[:3])
    steps = of(good.lines, "step")
    check([step["step"] for step in steps] == list(range(STEPS)) and {step["slot"] for step in steps} == {0}
          and all(step["sched_ns"] for step in steps) and {step["value"] for step in steps} == {4.0}, "%d requests of one process, as they were scheduled: %s" % (STEPS, steps[:2]))
    check({line["name"] for line in of(good.lines, "phase")} == {"data", "forward"}, "the phases of a request")
    notes = {line["name"]: line["value"] for line in of(good.lines, "note")}
    check(0 <= notes.get("serve_error_ppb", -1) < 1e5 and notes.get("compile_time_ns", 0) > 1e8, "the notes: %s" % notes)
    outputs = [floats(line["hex"]) for line in of(good.lines, "bytes") if line["name"] == "output"]
    wanted = [floats(line["output"]) for line in eager.recorded if "output" in line]
    check(len(outputs) == len(wanted) == 8 and [len(one) for one in outputs] == [len(one) for one in wanted], "answers of 8 requests")
    worst = max((abs(a - b) for one, other in zip(outputs, wanted) for a, b in zip(one, other)), default=float("inf"))
    check(worst < 2e-4 * max((abs(value) for one in wanted for value in one), default=0), "the answers are off those of the eager run by %g" % worst)
    line, known = json.loads(good.stdout or "{}"), json.loads(eager.stdout or "{}")
    check(line.keys() == known.keys() and line.get("variant") == "aotinductor-native" and 0 < line.get("median_step_ns", 0) and
          all(line[key] == known[key] for key in ("model", "mode", "framework", "steps", "samples", "seed")), "its line: %s, %s" % (line, known))


def check_program(path, launch):
    """The program by itself, in copies of a launch's directory."""
    def run(what, *names):
        done = subprocess.run([path] + list(names), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
                              env={name: value for name, value in os.environ.items() if name != "UPGATE_STEPS"})
        return done.returncode, done.stdout, done.stderr, "%s: %d, %r, %r" % (what, done.returncode, done.stdout, done.stderr[-800:])

    def change(name, what, *words):
        shutil.copytree(launch, name)
        with open(os.path.join(name, "data.bin"), "r+b") as data:
            what(data, *words)
        return name

    def scale(data, factor):
        values = struct.unpack("%df" % count, data.read(4 * count))
        data.seek(0)
        data.write(struct.pack("%df" % count, *(factor * value for value in values)))

    with open(os.path.join(launch, "launch.txt")) as file:
        words = file.read().split()
    at = words.index("scores")
    dims = list(map(int, words[at + 4:at + 4 + int(words[at + 3])]))
    check(words[at + 1:at + 3] == ["tensor", "float32"] and dims == [4, 32, 256], "the scores of the first request: %s" % words[at:at + 8])
    count = dims[0] * dims[1] * dims[2]
    skewed, cut, strange = (os.path.join(os.path.dirname(launch), name) for name in ("skewed", "cut", "strange"))
    status, out, err, what = run("scores that are off", change(skewed, scale, 1.5))
    check(status == 1 and not out and "transformer: the scores of the serving graph (aotinductor-native) are 0.33 of their rms off" in err, what)
    check(not os.path.exists(skewed), "a launch that fails leaves nothing")
    status, out, err, what = run("scores that are not finite", change(skewed, scale, float("nan")))
    check(status == 1 and not out and "are nan of their rms off" in err, what)
    status, out, err, what = run("data.bin cut off", change(cut, lambda data: data.truncate(4 * count)))
    check(status == 1 and not out and "'data.bin' is cut off" in err, what)
    os.mkdir(strange)
    with open(os.path.join(strange, "launch.txt"), "w") as file:
        file.write("somebody else's")
    status, out, err, what = run("a directory that is not of a launch", strange)
    check(status == 1 and "'upgate-aoti' expected" in err and os.path.exists(os.path.join(strange, "launch.txt")), what)
    status, out, err, what = run("no directory")
    check(status == 2 and err.startswith("usage: ") and err.count("\n") == 1, what)


def check_bad_input(python, shim, directory):
    planted = Launch(python, shim, directory, "planted", NATIVE + ["--plant", "serveskew,slow:5%"]).wait()
    check(planted.status == 2 and planted.stderr.count("\n") == 1 and "only serveskew" in planted.stderr,
          "a plant that is not served: %s" % planted.stderr)
    done = python_text(python, shim, directory, LACKS).communicate(timeout=LIMIT_S)
    check(done[0] == "lacks are said\n", "what a side may lack: %s" % done[1][-1500:])


def python_text(python, shim, directory, text):
    environment = environment_of(directory, torch_models.MODELS + os.pathsep + shim, directory)
    return subprocess.Popen([python, "-c", text], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test(python, shim, directory):
    launches, calls = os.path.join(directory, "state", "aoti", "launches"), os.path.join(directory, "calls")
    before, copy = unpacked(), os.path.join(directory, "copy")
    for name in ("dead", "alive"):  # of a launch that was killed, and of one that runs
        os.makedirs(os.path.join(launches, "torchinductor_" + name, "model"))
        with open(os.path.join(launches, "torchinductor_" + name, "lock"), "w"):
            pass
    with open(os.path.join(launches, "torchinductor_alive", "lock")) as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        good = Launch(python, shim, directory, "good", NATIVE + ["--rate", str(RATE)], recorded=True)
        beside = python_text(python, shim, directory, BESIDE)
        path, maps = good.seen_serving()
        for own in glob.glob(os.path.join(launches, "*", "launch.txt")) if path else []:
            shutil.copytree(os.path.dirname(own), copy, ignore=shutil.ignore_patterns("lock", ".tmp"))
        eager = Launch(python, shim, directory, "eager", []).wait()
        said = beside.communicate(timeout=LIMIT_S)
        good.wait()
        left = os.listdir(launches)
    check(eager.status == 0, "the eager run: %s" % eager.stderr[-800:])
    if eager.status == 0 and good.lines:
        check_good(good, eager, path, maps)
    lines = said[0].splitlines() or [""]
    check(lines[0].endswith("/aotinductor-native") and (not path or lines[0] == path),
          "both have one program: %s, %s, %s" % (said[0], path, said[1][-1500:]))
    # The one beside has no atexit: it stands for a launch that was killed, and is removed by whoever comes next.
    check(set(left) - {os.path.basename(lines[-1])} == {"torchinductor_alive"}, "what is left of launches: %s, %s" % (left, lines))
    with open(calls) as file:
        check(sum("aoti/runner.cpp" in call for call in file) == 1, "the program is compiled once")
    programs = glob.glob(os.path.join(directory, "state", "aoti", "programs", "*"))
    check(len(programs) == 1 and sorted(os.listdir(programs[0])) == ["aotinductor-native", "lock"], "one program for both: %s" % programs)
    check(unpacked() <= before, "packages in /tmp: %s" % (unpacked() - before))
    check(os.path.exists(copy), "a launch has been seen to serve")
    if os.path.exists(copy):
        check_program(path, copy)
    check_bad_input(python, shim, directory)


def main():
    compiler = shutil.which("g++")
    if not compiler:
        print("skipped: no g++")
        return 77
    with tempfile.TemporaryDirectory() as directory:
        shim = os.path.join(directory, "shim")
        os.mkdir(shim)
        with open(os.path.join(shim, "upgate.py"), "w", encoding="utf-8") as file:
            file.write(torch_models.RECORDER)
        os.mkdir(os.path.join(directory, "bin"))
        with open(os.path.join(directory, "calls"), "w", encoding="utf-8"):
            pass
        with open(os.path.join(directory, "bin", "g++"), "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "$*" >>%s/calls\nexec %s "$@"\n' % (directory, compiler))
        os.chmod(os.path.join(directory, "bin", "g++"), 0o755)
        pythons = [python for python, version in torch_models.interpreters(shim) if tuple(map(int, version.split(".")[:2])) >= (2, 6)]
        if not pythons:
            print("skipped: no interpreter here has torch 2.6 or later; ci/setup --envs makes one")
            return 77
        test(pythons[0], shim, directory)
    print("%d failures" % len(failures) if failures else "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
