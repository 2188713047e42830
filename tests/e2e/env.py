#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate env` as a user runs it: show and diff on real interpreters, on native programs and on a store;
sides that cannot be read; and collect() inside programs that must not notice it. With envs/baseline and
envs/candidate (made by ci/setup) it also checks the upgrade from PyTorch 1.13 to 2.x."""
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ.get("UPGATE_SOURCE", os.getcwd())
BUILD = os.environ.get("UPGATE_BUILD", os.path.join(SOURCE, "build/release"))
UPGATE = os.path.join(BUILD, "upgate")
PACKAGE = os.path.join(SOURCE, "tracer/python")
ENV = {key: value for key, value in os.environ.items() if not key.startswith("UPGATE_")}
BASELINE = os.path.join(SOURCE, "envs/baseline/bin/python")
CANDIDATE = os.path.join(SOURCE, "envs/candidate/bin/python")


def run(*args, status=0, env=None):
    result = subprocess.run([UPGATE, "env", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            timeout=200, env=env or ENV, cwd=SOURCE)
    assert result.returncode == status, (args, result.returncode, result.stdout, result.stderr)
    return result


def document(*args, **kwargs):
    return json.loads(run(*args, "--format", "json", **kwargs).stdout)


def has_torch(python):
    """Not imported, which takes 2 s: one that does not import fails in its test."""
    return os.path.exists(python) and subprocess.run(
        [python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))"], env=ENV).returncode == 0


def write_plan(directory, name, baseline, candidate, workload="{name: w, model: dlrm, mode: train, steps: 10}"):
    path = os.path.join(directory, name)
    with open(path, "w") as stream:
        stream.write("baseline: %s\ncandidate: %s\nworkloads:\n  - %s\n" % (baseline, candidate, workload))
    return path


def test_show(directory):
    plan = write_plan(directory, "show.yaml", "{name: one, python: %s}" % sys.executable,
                      "{name: two, python: %s, env: {OMP_NUM_THREADS: \"3\", TORCH_TOKEN: hush}}" % sys.executable)
    both = document("show", plan)
    assert both["schema"] == "upgate.env/1", both["schema"]
    one = document("show", plan, "--side", "b")
    assert one["schema"] == "upgate.fingerprint/1"
    assert one["python"]["interpreter"]["version"] == "%d.%d.%d" % sys.version_info[:3]
    assert one["process"]["environment"]["OMP_NUM_THREADS"] == "3"
    assert one["process"]["environment"]["TORCH_TOKEN"] == "[redacted]"
    assert "hush" not in json.dumps(one)
    assert any(library["role"] == "libc" and len(library["build_id"]) == 40
               for library in one["process"]["libraries"]), one["process"]["libraries"]
    assert one["host"]["kernel"]["release"] == os.uname().release
    text = run("show", plan, "--side", "a").stdout
    assert "baseline: one" in text and "interpreter.version" in text and "candidate: " not in text, text
    assert "\033" not in text
    assert all(len(line) <= 100 or "/" in line for line in text.splitlines()), text
    # What one option changes is what the diff says.
    differences = document("diff", plan)["differences"]
    sides = {difference["path"]: (difference["a"], difference["b"]) for difference in differences}
    sides.pop("python.torch.threads", None)  # of an interpreter with torch
    assert sides == {"process.environment.OMP_NUM_THREADS": (None, "3"), "process.environment.TORCH_TOKEN": (None, "[redacted]")}, sides
    assert "OMP_NUM_THREADS" in run("diff", plan).stdout


def test_same_interpreter_does_not_differ():
    result = document("diff", "-a", sys.executable, "-b", sys.executable)
    assert result["schema"] == "upgate.env_diff/1" and result["differences"] == [], result


def test_output_file_and_dry_run(directory):
    path = os.path.join(directory, "out.json")
    result = run("diff", "-a", sys.executable, "-b", sys.executable, "--format", "json", "-o", path)
    assert result.stdout == "" and json.load(open(path))["differences"] == []
    result = run("show", "-a", sys.executable, "-b", sys.executable, "--dry-run")
    assert result.stdout.count(sys.executable) == 2, result.stdout
    run("diff", "-a", sys.executable, "-b", sys.executable, "-o", "/no/such/dir/x", status=4)


def test_native_sides(directory):
    models = os.path.join(BUILD, "reference_models/native")
    other = os.path.join(BUILD, "reference_models/native-O1")
    if not (os.path.exists(models + "/dlrm") and os.path.exists(other + "/dlrm")):
        print("  skipped: the native workloads are not built")
        return
    plan = write_plan(directory, "native.yaml", "{name: O1, models: %s}" % other, "{name: O3, models: %s}" % models)
    result = document("diff", plan)
    assert result["differences"][0]["path"] == "process.exe.program", result["differences"][:2]
    shown = document("show", plan, "--side", "a")
    assert shown["process"]["exe"]["path"].endswith("native-O1/dlrm") and shown["python"] is None
    plan = write_plan(directory, "ranks.yaml", "{name: O1, models: %s}" % other, "{name: O3, models: %s}" % models,
                      "{name: w, model: allreduce, mode: train, steps: 10}")  # it does not start as one rank
    assert document("show", plan, "--side", "b")["process"]["exe"]["path"].endswith("native/allreduce")


def test_command_without_interpreter(directory):
    """A program that does not speak is started as its workload would be, read, and ended."""
    plan = write_plan(directory, "command.yaml", "{name: a, env: {OMP_NUM_THREADS: \"1\"}}",
                      "{name: b, env: {OMP_NUM_THREADS: \"2\"}}", "{name: w, command: [sleep, \"60\"]}")
    assert [one["path"] for one in document("diff", plan)["differences"]] == [
        "process.environment.OMP_NUM_THREADS"]
    assert document("show", plan, "--side", "b")["process"]["exe"]["path"].endswith("sleep")


def test_command_that_is_python(directory):
    """Sides that name no interpreter, of a command that does: it is read when its imports are over."""
    import _ctypes
    if not getattr(_ctypes, "__file__", None):
        print("  skipped: this Python has it built in")
        return
    script = os.path.join(directory, "late.py")
    with open(script, "w") as stream:
        stream.write("import time\ntime.sleep(0.5)\nimport ctypes\ntime.sleep(60)\n")
    plan = write_plan(directory, "late.yaml", "{name: a}", "{name: b}", "{name: w, command: [%s, -S, %s]}" % (sys.executable, script))
    shown = document("show", plan, "--side", "b")["process"]
    assert os.path.basename(_ctypes.__file__) in json.dumps(shown), shown


def test_a_side_that_starts_elsewhere(directory):
    """Paths of a plan are relative to where upgate was started, whatever the workdir of a side is."""
    elsewhere = os.path.join(directory, "far/away")
    os.makedirs(elsewhere)
    here = os.path.realpath(SOURCE)  # .. of a symbolic link is not where its name stands
    side = "{name: %%s, python: %s, workdir: %s, libs: [harness], cuda: contracts}" % (os.path.relpath(sys.executable, here), elsewhere)
    plan = write_plan(directory, "elsewhere.yaml", side % "a", side % "b")
    shown = document("show", plan, "--side", "b")
    assert shown["process"]["environment"]["LD_LIBRARY_PATH"].startswith("%s/contracts/lib64:%s/harness" % (here, here)), shown["process"]["environment"]
    assert shown["process"]["environment"]["CUDA_HOME"] == here + "/contracts"
    plan = write_plan(directory, "words.yaml", "{name: a}", "{name: b}",
                      "{name: w, command: [sh, -c, \"sleep 60; :\", \"--steps={steps}\", \"{nodes}\", \"${rank}\"]}")
    assert run("show", plan, "--side", "a", "--dry-run").stdout.endswith(" --steps=1000000 1 ${rank}\n")


def test_killed_in_the_middle(directory):
    """kill -9 of upgate while a side imports: the side does not stay."""
    slow = os.path.join(directory, "slow")
    os.mkdir(slow)
    mark = os.path.join(slow, "pid")
    with open(os.path.join(slow, "torch.py"), "w") as stream:
        stream.write("import os, time\nopen(%r, 'w').write(str(os.getpid()) + '\\n')\ntime.sleep(100)\n" % mark)
    plan = write_plan(directory, "slow.yaml", "{name: a, python: %s, env: {PYTHONPATH: %s}}" % (sys.executable, slow),
                      "{name: b, python: %s}" % sys.executable)
    upgate = subprocess.Popen([UPGATE, "env", "diff", plan], stdout=subprocess.DEVNULL, env=ENV)
    deadline = time.monotonic() + 60
    while not (os.path.exists(mark) and open(mark).read().endswith("\n")):
        assert time.monotonic() < deadline and upgate.poll() is None
        time.sleep(0.05)
    side = int(open(mark).read())
    upgate.kill()
    upgate.wait()
    while os.path.exists("/proc/%d/stat" % side) and ") Z" not in open("/proc/%d/stat" % side).read():
        assert time.monotonic() < deadline, "the side is still alive"
        time.sleep(0.05)


def test_bad_input(directory):
    assert "neither 'show' nor 'diff'" in run("list", "x.yaml", status=2).stderr
    run(status=2)
    assert "nothing to read" in run("diff", status=2).stderr
    run("diff", os.path.join(directory, "missing.yaml"), status=2)
    result = run("diff", "-a", "/no/such/python", "-b", sys.executable, status=4)
    assert "/no/such/python" in result.stderr and result.stdout == "", result
    result = run("diff", "-a", "/bin/false", "-b", sys.executable, status=4)
    assert "exit code 1" in result.stderr, result.stderr
    plan = write_plan(directory, "both.yaml", "{name: a, python: python3}", "{name: b, python: python3}")
    assert "not both" in run("diff", plan, "-a", "python3", status=2).stderr
    assert "a diff is of both sides" in run("diff", plan, "--side", "a", status=2).stderr


def test_framework_that_does_not_import(directory):
    broken = os.path.join(directory, "broken")
    os.mkdir(broken)
    with open(os.path.join(broken, "torch.py"), "w") as stream:
        stream.write("raise OSError('libdoom.so: cannot open shared object file')\n")
    plan = write_plan(directory, "broken.yaml", "{name: whole, python: %s}" % sys.executable,
                      "{name: torn, python: %s, env: {PYTHONPATH: %s}}" % (sys.executable, broken))
    result = run("diff", plan)
    assert "side 'torn' cannot import torch" in result.stderr and "libdoom" in result.stderr, result.stderr


def test_store(directory):
    """A stored run: the newest schema of the source, with two fingerprints in it."""
    path = os.path.join(directory, "run.db")
    one = document("show", "-a", sys.executable, "-b", sys.executable, "--side", "a")
    two = json.loads(json.dumps(one))
    two["python"]["gc"]["threshold"] = [1, 2, 3]
    database = sqlite3.connect(path)
    with open(os.path.join(SOURCE, "contracts/schema.sql")) as stream:
        database.executescript(stream.read())
    for side, name, fingerprint in ((0, "old", one), (1, "new", two)):
        database.execute("INSERT INTO side (id, name, config, fingerprint) VALUES (?, ?, '{}', ?)",
                         (side, name, json.dumps(fingerprint)))
    database.commit()
    result = document("diff", path)
    assert (result["baseline"], result["candidate"]) == ("old", "new"), result
    assert [(one["path"], one["b"]) for one in result["differences"]] == [("python.gc.threshold", "1, 2, 3")]
    database.execute("UPDATE side SET fingerprint = NULL WHERE id = 1")
    database.commit()
    assert "no fingerprint of the candidate" in run("diff", path, status=4).stderr
    run("show", path, "--side", "a")
    database.execute("UPDATE side SET fingerprint = '{' WHERE id = 0")
    database.commit()
    assert "damaged" in run("show", path, "--side", "a", status=4).stderr
    # What a side calls itself, and its variables, reach a terminal as plain text: escapes of a terminal stay out.
    evil = "\x1b[2J\x1b]0;title\x07\u202e"
    one["python"]["gc"][evil] = evil
    database.execute("UPDATE side SET name = CAST(x'1b5b324aff' AS TEXT), fingerprint = ?", (json.dumps(one),))
    database.commit()
    for words in (("show", path), ("diff", path), ("diff", path, "--format", "json"), ("show", path, "--format", "json")):
        result = run(*words)
        bad = "\x1b\x07\x9b" + ("" if "json" in words else "\u202e")  # JSON is data: it says what there is
        assert not set(bad) & set(result.stdout + result.stderr), result.stdout
    database.close()


def test_log_is_plain_text():
    result = run("show", "no-\x1b[2J-such.yaml", status=2)
    assert "no-?[2J-such.yaml" in result.stderr and "\x1b" not in result.stderr, result.stderr


def test_output_that_does_not_fit(directory):
    """No part of a document is left in its place."""
    path = os.path.join(directory, "part.json")
    result = subprocess.run([UPGATE, "env", "show", "-a", sys.executable, "-b", sys.executable, "-o", path],
                            stderr=subprocess.PIPE, universal_newlines=True,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
    assert result.returncode == 4 and "File too large" in result.stderr, result.stderr
    assert not [name for name in os.listdir(directory) if name.startswith("part.json")], os.listdir(directory)


# --- collect() inside a program -----------------------------------------------------------------------

COLLECT = """
import json, sys, threading, warnings
sys.path.insert(0, %r)
before = set(sys.modules)
%s
import upgate_fingerprint_alone as fingerprint
filters = list(warnings.filters)
loaded = {name for name in sys.modules if name.split(".")[0] in ("torch", "jax", "tensorflow", "numpy")}
result = fingerprint.collect()
assert warnings.filters == filters
assert {name for name in sys.modules if name.split(".")[0] in ("torch", "jax", "tensorflow", "numpy")} == loaded
%s
json.dump(result, sys.stdout, allow_nan=False)
"""


def collect(directory, python, before="", after=""):
    """Run collect() from the file alone: the package's extension is not needed for it."""
    alone = os.path.join(directory, "upgate_fingerprint_alone.py")
    if not os.path.exists(alone):
        os.symlink(os.path.join(PACKAGE, "upgate/fingerprint.py"), alone)
    result = subprocess.run([python, "-W", "error", "-c", COLLECT % (directory, before, after)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV, timeout=120)
    assert result.returncode == 0 and result.stderr == "", (python, result.stderr)
    return json.loads(result.stdout)


def test_collect_imports_nothing(directory):
    seen = collect(directory, sys.executable)
    assert seen["not_loaded"] == ["torch", "jax", "tensorflow", "numpy"], seen["not_loaded"]
    assert seen["torch"] is None and seen["missing"] == {}, seen["missing"]
    assert sum(seen["collect_ns"][part] for part in seen["collect_ns"] if part != "packages") < 1_000_000_000


def test_collect_reports_what_the_program_set(directory):
    seen = collect(directory, sys.executable, "import os; os.environ['OMP_NUM_THREADS'] = '5'\n"
                   "os.environ['MY_PASSWORD'] = 'hush'; os.environ.pop('PATH', None)")
    assert seen["environment_changes"]["OMP_NUM_THREADS"] == "5"
    assert seen["environment_changes"]["PATH"] is None
    assert "hush" not in json.dumps(seen)


def write(*parts, text):
    path = os.path.join(*parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as stream:
        stream.write(text)
    return path


def test_collect_tells_commits_of_editable_packages(directory):
    """The same version of two commits is other code."""
    site, tree = os.path.join(directory, "editable"), os.path.join(directory, "tree")
    write(site, "mine-1.0.dist-info/METADATA", text="Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    write(site, "mine-1.0.dist-info/direct_url.json", text=json.dumps({"url": "file://" + tree + "/part", "dir_info": {"editable": True}}))
    write(tree, ".git/HEAD", text="ref: refs/heads/main\n")
    write(tree, ".git/packed-refs", text="# pack-refs with: peeled\n%s refs/heads/main\n" % ("1" * 40))
    before = "sys.path.append(%r)" % site
    assert collect(directory, sys.executable, before)["packages"]["mine"] == "1.0 (editable, commit 111111111111)"
    write(tree, ".git/refs/heads/main", text="2" * 40 + "\n")  # wins over packed-refs
    assert collect(directory, sys.executable, before)["packages"]["mine"] == "1.0 (editable, commit 222222222222)"


def test_collect_tells_hooks(directory):
    """Who runs at every call slows a program; upgate's own hook, by which a named step is found, is none of the side's."""
    def profiled(before):
        return collect(directory, sys.executable, before)["interpreter"]["profiled"]
    assert profiled("") is False
    assert profiled("import cProfile; profile = cProfile.Profile(); profile.enable()") is True
    ours = "def look(*arguments): pass\nlook.__module__ = %r\nsys.setprofile(look)"
    assert profiled(ours % "upgate._step_function") is False and profiled(ours % "other") is True


def test_collect_tells_settings_without_a_variable(directory):
    home = os.path.join(directory, "home")
    write(home, ".nccl.conf", text="# ours\nNCCL_PROTO=LL\n\nNCCL_ALGO = Ring\n")
    before = "import os, tracemalloc, multiprocessing\nos.environ['HOME'] = %r\n" % home
    seen = collect(directory, sys.executable, before + "tracemalloc.start(); multiprocessing.set_start_method('spawn')")
    assert seen["nccl_files"].endswith("NCCL_PROTO=LL NCCL_ALGO = Ring"), seen["nccl_files"]
    assert seen["interpreter"]["tracemalloc"] is True and seen["interpreter"]["start_method"] == "spawn", seen["interpreter"]
    after = "assert multiprocessing.get_start_method(allow_none=True) is None"  # asking has chosen none
    seen = collect(directory, sys.executable, "import multiprocessing", after)["interpreter"]
    assert seen["tracemalloc"] is False and seen["options"] == "none" and seen["start_method"] in ("fork", "forkserver"), seen


def test_collect_tells_what_comes_from_elsewhere(directory):
    custom = write(directory, "custom.py", text="import os\n")
    before = ("import types, mmap\nmodule = types.ModuleType('sitecustomize'); module.__file__ = %r\n"
              "sys.modules['sitecustomize'] = module; sys.modules.pop('usercustomize', None)\n" % custom)
    one = collect(directory, sys.executable, before)["interpreter"]["site_modules"]
    write(directory, "custom.py", text="import sys\n")
    two = collect(directory, sys.executable, before)["interpreter"]["site_modules"]
    assert one.startswith("sitecustomize ") and two.startswith("sitecustomize ") and one != two, (one, two)
    assert collect(directory, sys.executable, before + "module._run_next = 1")["interpreter"]["site_modules"] == "none"  # upgate's
    site = os.path.join(os.path.realpath(directory), "other/site-packages")
    library = write(site, "nvidia/nccl/lib/libnccl.so.2", text="x" * 8192)
    before = "import mmap\nfile = open(%r, 'rb'); kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); file.close()\n" % library
    assert collect(directory, sys.executable, before)["interpreter"]["foreign_libraries"] == [library]
    assert collect(directory, sys.executable, before + "sys.path.append(%r)" % site)["interpreter"]["foreign_libraries"] == []
    replaced = before + "import os; os.unlink(%r)" % library  # by an upgrade: of this environment or another, nobody knows
    assert collect(directory, sys.executable, replaced)["interpreter"]["foreign_libraries"] == []


def test_collect_survives_a_hostile_framework(directory):
    before = """
import types
class Trap(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__") and name != "__config__":
            raise AttributeError(name)
        raise SystemExit("trapped " + name)
trap = Trap("torch"); trap.__version__ = "9.9"; sys.modules["torch"] = trap
half = types.ModuleType("jax"); sys.modules["jax"] = half
"""
    seen = collect(directory, sys.executable, before)
    assert "trapped" in seen["missing"]["torch"], seen["missing"]
    assert "jax" in seen["not_loaded"]  # half imported: no version yet
    assert seen["interpreter"]["version"]


def test_collect_on_every_interpreter(directory):
    count = 0
    root = os.path.expanduser("~/.pyenv/versions")
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        parts = name.split(".")
        if parts[0] != "3" or int(parts[1]) < 8:
            continue
        seen = collect(directory, os.path.join(root, name, "bin/python"))
        assert seen["interpreter"]["version"] == name and seen["missing"] == {}, (name, seen["missing"])
        count += 1
    print("  %d interpreters" % count)


TORCH_STATE = """
def state():
    out = [torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(),
           torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark,
           torch.backends.cudnn.deterministic, torch.get_float32_matmul_precision(),
           torch.backends.mkldnn.enabled, torch.cuda.is_initialized(), torch.is_grad_enabled()]
    return out
"""


def test_collect_leaves_torch_alone(directory):
    for python in (BASELINE, CANDIDATE):
        if not has_torch(python):
            print("  skipped: no torch in %s" % python)
            continue
        before = "warnings.simplefilter('ignore'); import torch\n" + TORCH_STATE + """
torch.set_num_threads(1); torch.use_deterministic_algorithms(True); torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
first = state()
"""
        seen = collect(directory, python, before, "assert state() == first, (state(), first)")
        torch = seen["torch"]
        assert torch["threads"] == 1 and torch["deterministic"]["algorithms"] is True, torch
        assert torch["backend"]["cudnn_benchmark"] is True
        assert torch["fp32"]["matmul_precision"] == "high" and torch["fp32"]["cuda_matmul"] == "tf32", torch["fp32"]
        assert seen["collect_ns"]["torch"] < 1_000_000_000, seen["collect_ns"]
        reasons = {reason.split(":")[0] for reason in seen["missing"].values()}
        assert reasons <= {"not in this version"}, seen["missing"]
        if "fp32_precision" == torch["fp32"]["interface"]:
            # Both interfaces mixed: the old getters raise then; collect() must still tell.
            mixed = collect(directory, python, "warnings.simplefilter('ignore'); import torch\n"
                            "torch.backends.cuda.matmul.fp32_precision = 'tf32'\n")
            assert mixed["torch"]["fp32"]["cuda_matmul"] == "tf32", mixed["torch"]["fp32"]


def test_torch_upgrade(directory):
    if not (has_torch(BASELINE) and has_torch(CANDIDATE)):
        print("  skipped: envs/baseline and envs/candidate with torch are made by ci/setup")
        return
    text = run("show", "-a", BASELINE, "-b", CANDIDATE, "--side", "a").stdout
    assert "python.torch.deterministic.fill_uninitialized_memory" in text, text  # a name longer than its column
    assert all(len(line) <= 100 or "/" in line for line in text.splitlines()), text
    result = document("diff", "-a", BASELINE, "-b", CANDIDATE)
    first = [difference["path"] for difference in result["differences"][:12]]
    assert first[0] == "components.torch" and first[1] == "components.blas", first
    for path in ("components.onednn", "python.torch.attention", "components.openmp"):
        assert path in first, (path, first)
    by_path = {difference["path"]: difference for difference in result["differences"]}
    assert "OpenBLAS" in by_path["components.blas"]["a"] or "BLAS" in by_path["components.blas"]["a"]
    assert "MKL" in by_path["components.blas"]["b"], by_path["components.blas"]
    assert by_path["python.torch.compile.available"]["b"] == "yes"
    ranks = [difference["suspicion"] for difference in result["differences"]]
    assert ranks == sorted(ranks, reverse=True)
    text = run("diff", "-a", BASELINE, "-b", CANDIDATE).stdout
    assert text.index("torch") < text.index("BLAS") < text.index("attention backends"), text[:2000]
    assert all(len(line) <= 100 and line == line.rstrip() for line in text.splitlines()), text
    assert len(text.splitlines()) < 120  # a tired engineer reads the first screen
    assert len(run("diff", "-a", BASELINE, "-b", CANDIDATE, "--all").stdout.splitlines()) > 400


def main():
    with tempfile.TemporaryDirectory() as directory:
        for name, test in sorted(globals().items()):
            if name.startswith("test_"):
                print(name, flush=True)
                test(directory) if test.__code__.co_argcount else test()
    print("ok")


if __name__ == "__main__":
    main()
