#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The variant aotinductor-native up to its first tensor, with a torch that is a version and a header, and a compiler that makes a shell script:
what a side lacks is said; launches that begin at once make one program, another torch another one; a compiler that fails is told, and leaves
nothing that would be taken for a program; directories of launches that were killed go, those of others stay; plants are refused.
ci/aoti serves real packages."""
import fcntl
import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(HERE))
MODELS = os.path.join(SOURCE, "reference_models", "torch")
HEADER = "include/torch/csrc/inductor/aoti_package/model_package_loader.h"
LIMIT_S = 60
failures = []

# The last word of its command line is what it makes. The other launch comes meanwhile.
COMPILER = '''#!/bin/sh
echo "$*" >>'%s/calls'
for made; do :; done
sleep 0.3
echo "#!/bin/sh" >"$made"
[ -z "$BROKEN" ] || { echo "runner.cpp: it is broken" >&2; exit 1; }
chmod +x "$made"
'''

# A launch as far as its program. It removes nothing at its end, as one that was killed.
LAUNCH = '''
import os, aoti_native
directory, lock = aoti_native.own_directory(aoti_native._state())
print(aoti_native.program(aoti_native._state(), directory, "cpu"))
print(os.path.basename(directory))
'''

LACKS = '''
import os, aoti_native
assert aoti_native.lack("transformer") == "", aoti_native.lack("transformer")
assert "serves dlrm, hstu, transformer, vision" in aoti_native.lack("dlrm-cached")
kept = dict(os.environ)
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
header = os.path.join(os.path.dirname(aoti_native.torch.__file__), "%s")
with open(header, "w") as file:
    file.write("#include <nlohmann/json.hpp>")
assert "want 'nlohmann/json.hpp'" in aoti_native.lack("hstu"), aoti_native.lack("hstu")
os.unlink(header)
assert "torch 2.6.0 has no header 'torch/csrc/inductor" in aoti_native.lack("hstu"), aoti_native.lack("hstu")
print("lacks are said")
''' % HEADER

# Which of the scores a client sees, also where some are no number.
SEEN = '''
import types, aoti_native
class Scores:
    def __init__(self, rows):
        self.rows, self.shape = rows, (len(rows), len(rows[0])) if isinstance(rows[0], list) else (len(rows),)
    def __getitem__(self, places):
        assert places == (slice(None), -1), places
        return Scores([row[-1] for row in self.rows])
def allclose(one, other, rtol, atol, equal_nan):
    assert one.shape == other.shape and (rtol, atol, equal_nan) == (0, 0, True)
    return repr(one.rows) == repr(other.rows)
def last(rows, visible):
    native = types.SimpleNamespace(_scores=Scores(rows), _args=types.SimpleNamespace(name="hstu"))
    return aoti_native.Native._last(native, types.SimpleNamespace(visible=visible))
aoti_native.torch.allclose = allclose
nan = float("nan")
assert last([1.0, nan], lambda scores: scores) is False
assert last([[1.0, nan], [2.0, 3.0]], lambda scores: scores) is False
assert last([[1.0, nan], [2.0, 3.0]], lambda scores: scores[:, -1]) is True
try:
    last([[1.0, nan], [2.0, 3.0]], lambda scores: Scores([1.0, 2.0]))
except SystemExit as end:
    assert "neither its scores nor the last of them" in str(end), end
    print("what is seen is known")
'''

# A disk that fills while the launch is prepared.
FULL = '''
import aoti_native
def fill(_):
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"x")
native = aoti_native.Native.__new__(aoti_native.Native)
native._directory, native._compile, native._write = "/state/aoti/launches/one", fill, fill
try:
    native.compile(None, None)
except SystemExit as end:
    print(end)
native.serve(None, {})
'''

PLANTS = '''
import sys, cli
cli.arguments("transformer", ["--mode", "infer", "--variant", "aotinductor-native", "--plant", sys.argv[1]])
'''


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what, flush=True)


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def make_torch(directory, version):
    write(directory + "/torch/__init__.py", "from torch import version\n__version__ = version.__version__\ncompiled_with_cxx11_abi = lambda: True\n")
    write(directory + "/torch/version.py", "__version__ = '%s'\ngit_version = 'of %s'\n" % (version, version))
    write(os.path.join(directory, "torch", HEADER), "")


def start(directory, text, *words, torch="new", **more):
    environment = dict(os.environ, PYTHONPATH=MODELS + os.pathsep + os.path.join(directory, torch), PYTHONDONTWRITEBYTECODE="1",
                       PYTHONNOUSERSITE="1", UPGATE_STATE_DIR=os.path.join(directory, "state"),
                       PATH=os.path.join(directory, "bin") + os.pathsep + os.environ["PATH"], **more)
    environment.pop("CXX", None)
    return subprocess.Popen([sys.executable, "-c", text] + list(words), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            universal_newlines=True)


def end(process):
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out.splitlines(), err


def check_programs(directory):
    launches, programs = (os.path.join(directory, "state", "aoti", name) for name in ("launches", "programs"))
    for name in ("dead", "alive"):  # of a launch that was killed, and of one that runs
        write(os.path.join(launches, "torchinductor_" + name, "lock"), "")
    write(os.path.join(launches, "torchinductor_dead", "model", "weights"), "")
    with open(os.path.join(launches, "torchinductor_alive", "lock")) as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        status, out, err = end(start(directory, LAUNCH, BROKEN="1"))
        told = "failed to compile" in err and "for torch 2.6.0:\nrunner.cpp: it is broken" in err and "Traceback" not in err
        check(status == 1 and not out and told, "a compiler that fails: %s, %s, %s" % (status, out, err))
        check(not glob.glob(programs + "/*/aotinductor-native"), "a program that was not made is there")
        ends = [end(process) for process in [start(directory, LAUNCH) for _ in range(2)]]
        left = set(os.listdir(launches))
    check([status for status, _, _ in ends] == [0, 0] and all(len(out) == 2 for _, out, _ in ends), "two launches: %s" % ends)
    if any(len(out) != 2 for _, out, _ in ends):
        return
    made = ends[0][1][0]
    check(made == ends[1][1][0] and os.access(made, os.X_OK) and os.path.dirname(os.path.dirname(made)) == programs,
          "both have one program: %s" % ends)
    own = {out[1] for _, out, _ in ends}
    # Whoever came first may have ended before the other one looked.
    check(len(own) == 2 and "torchinductor_alive" in left and left - own == {"torchinductor_alive"} and left & own,
          "what is left of launches: %s, not only of %s" % (left, own))
    status, out, err = end(start(directory, LAUNCH, torch="newer"))
    check(status == 0 and out[0] != made, "another torch, another program: %s, %s" % (out, err))
    check(os.listdir(launches) == out[1:], "directories of launches that have ended: %s" % os.listdir(launches))
    with open(os.path.join(directory, "calls")) as file:
        calls = file.read().splitlines()
    check(len(calls) == 3 and all("aoti/runner.cpp" in call and "-Wl,-rpath," in call and "-ltorch_cuda" not in call for call in calls),
          "a broken program, one for two launches, one for another torch: %s" % calls)


def check_refusals(directory):
    for plant, status in (("serveskew", 0), ("slow:5%", 2), ("serveskew,lowp", 2), ("nostep", 2), ("item", 2)):
        code, _, err = end(start(directory, PLANTS, plant))
        check(code == status and (not status or err.count("\n") == 1 and "only serveskew" in err), "--plant %s: %s, %s" % (plant, code, err))
    status, out, err = end(start(directory, SEEN))
    check(status == 0 and out == ["what is seen is known"], "what a client sees of the scores: %s" % err[-1500:])
    status, out, err = end(start(directory, FULL))
    told = [line for line in out + err.splitlines() if "launch in '/state/aoti/launches': [Errno 28]" in line and "UPGATE_STATE_DIR" in line]
    check(status == 1 and len(told) == 2 and len(out) == 1 and err.count("\n") == 1, "a full disk: %s, %s, %s" % (status, out, err[-1500:]))
    status, out, err = end(start(directory, LACKS))
    check(status == 0 and out == ["lacks are said"], "what a side may lack: %s" % err[-1500:])


def main():
    with tempfile.TemporaryDirectory() as directory:
        make_torch(os.path.join(directory, "new"), "2.6.0")
        make_torch(os.path.join(directory, "newer"), "2.7.0")
        write(os.path.join(directory, "bin", "g++"), COMPILER % directory, 0o755)
        check_programs(directory)
        check_refusals(directory)
    print("%d failures" % len(failures) if failures else "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
