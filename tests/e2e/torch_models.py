#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch reference workloads under every interpreter here that has torch.

They train and answer, the loss falls, float64 is float64; the same seed gives the same inputs to
the bit and nearly the same first loss, whatever the version; planted faults do what they say, and planted regressions change no loss. The
step API is replaced by a recorder, so that the workloads are tested and not the harness; one run
uses the real extension, where it is built. Exits 77 when no interpreter has torch: ci/setup --envs
makes two.
"""
import glob
import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ.get("UPGATE_SOURCE", os.path.dirname(os.path.dirname(HERE)))
MODELS = os.path.join(SOURCE, "reference_models", "torch")
STEPS = 80
LIMIT_S = 240
failures = []

# Written as upgate.py into a directory of its own. One JSON line a call, one file a process.
RECORDER = '''
import contextlib, json, os
_file = open(os.path.join(os.environ["RECORD_DIR"], "%d.jsonl" % os.getpid()), "w")
def _put(**line):
    _file.write(json.dumps(line) + "\\n")
    _file.flush()
def active():
    return True
def note(name, value):
    _put(note=name, value=value)
def steps(iterable, samples=None):
    for item in iterable:
        yield item
        _put(step=True, samples=samples)
def requests(n, rate=0.0, seed=0, samples=1):
    _put(rate=rate)
    return steps(range(n), samples)
@contextlib.contextmanager
def phase(name):
    yield
    _put(phase=name)
def record(loss=None, output=None, **tensors):
    if loss is not None:
        _put(loss=float(loss).hex())
    if output is not None:
        a = output.detach().cpu().numpy()
        _put(output=a.tobytes().hex(), dtype=str(a.dtype), count=a.size)
'''

INPUTS = '''
import hashlib, sys
sys.argv = ["x"]
import cli, common, dlrm, transformer, torch
def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().numpy().tobytes())
    return h.hexdigest()[:16]
for seed in ("1", "2"):
    for dtype in ("float32", "float64"):
        for mode in ("train", "infer"):
            args = cli.arguments("x", ["--seed", seed, "--dtype", dtype, "--mode", mode])
            args.size, args.device = "demo", "cpu"
            common.open_device(args)
            d, t = dlrm.Work(args), transformer.Work(args)
            flat = []
            for i in range(3):
                dense, sparse, labels = d.batch(i)
                flat += [dense, labels] + [x for pair in sparse for x in pair]
                flat += list(t.batch(i))
            print(seed, dtype, mode, digest(flat), digest(d.model.parameters()),
                  digest(t.model.parameters()))
'''

DRAG = '''
import plants
class Clock:
    now = 0
    def __call__(self):
        return self.now
clock, unit_ns, total, plant = Clock(), 700, 0, plants.Plants("slow:5%")
def unit():
    clock.now += unit_ns
for step in range(1001):
    clock.now += 20000
    total += plant.drag(unit, clock)
    plant.step_took(20000)
print(total)
'''


# Each in a fork of one interpreter, whose import of torch takes 3 s: what the parts of the plants do, by a clock that only they move.
RARE = '''
import types, plants, rare
class Clock:
    now = 0
    def perf_counter_ns(self):
        return self.now
    def sleep(self, seconds):
        self.now += round(seconds * 1e9)
rare.time = Clock()
regress = types.SimpleNamespace(number=0, step_ns=2000000, own_ns=0)
args = types.SimpleNamespace(plant=plants.Plants("upload:4:300%,pad:3:150%"), mode="infer", name="vision")
made, slow, padded = rare.Rare(regress, args, None), [], []
for regress.number in range(1, 13):
    before = regress.own_ns
    made.end()
    slow.append(regress.own_ns - before)
    padded.append(len(made.request((rare.torch.ones(4, 2), rare.torch.ones(4)))[1]))
assert slow == [0, 0, 0, 6000000] * 3, slow
assert padded == [4, 4, 10] * 4, padded
'''
KEPT = '''
import types, kept, plants
def of(words):
    return kept.Kept(types.SimpleNamespace(plant=plants.Plants(words), mode="train", device="cpu"))
made = of("cache:4K,table:64K:2,oddsizes:600000")
for _ in range(3):
    made.step(None)
assert [value.numel() for value in made._features.values()] == [1024] * 3, made._features
assert [table.numel() for table in made._tables] == [16384] * 2
assert sorted(map(len, made._buffers)) == [60000] * 5 + [64096] * 5, [len(one) for one in made._buffers]
assert sorted(map(len, of("evensizes:600000")._buffers)) == [60000] * 10
summed, x = of("graph:2"), kept.torch.ones(3, requires_grad=True)
for _ in range(2):
    summed.step(x * 2)
assert abs(summed._loss_sum.item() - 4) < 1e-6 and summed._loss_sum.requires_grad, summed._loss_sum
'''
FIRST = '''
import sys, time, types, first, plants
assert "sqlite3" not in sys.modules
first.before_steps(plants.Plants("import:sqlite3"))
assert "sqlite3" not in sys.modules, "not before the steps"
began = time.perf_counter()
answered = []
work = types.SimpleNamespace(batch=lambda i: i, answer=answered.append)
first.in_first_step(plants.Plants("import:sqlite3,jit:50,warmup:20"), work)
assert "sqlite3" in sys.modules and time.perf_counter() - began >= 0.07 and set(answered) == {0}
first.before_steps(plants.Plants("preimport:xmlrpc.client"))
assert "xmlrpc.client" in sys.modules
asked, make_lookup = [], first.make_lookup
def noted(seconds):  # what is not called takes time too, on a busy machine
    began = time.perf_counter()
    make_lookup(seconds)
    asked.append(time.perf_counter() - began >= seconds >= 0.02)
first.make_lookup = noted
for lookup, made in (("prelookup:20", [1, 0]), ("lookup:20", [0, 1])):
    times = []
    for call in (lambda: first.before_steps(plants.Plants(lookup)), lambda: first.in_first_step(plants.Plants(lookup), work)):
        del asked[:]
        call()
        assert all(asked), (lookup, asked)
        times.append(len(asked))
    assert times == made, (lookup, times)
'''
BACKGROUND = '''
import os, time, background, plants
forked, fork = [], os.fork
def noted():
    forked.append(fork())
    return forked[-1]
os.fork = noted
background.start(plants.Plants("busy:50%,spin:50%,pinner:50%"), "cpu")
wanted = {"log-compressor", "batch-pinner", "queue-poller"}
def names():
    files = ["/proc/self/task/%s/comm" % tid for tid in os.listdir("/proc/self/task")] + ["/proc/%d/comm" % pid for pid in forked]
    return {open(file).read().strip() for file in files}
until = time.monotonic() + 20
while not wanted <= names() and time.monotonic() < until:
    time.sleep(0.05)
assert wanted <= names(), names()
print(*forked)
'''

# Tables that do not fit are refused before they are made, whoever sets the limit: the machine or a control group.
ROOM = '''
import contextlib, io, os, sys, tempfile, types
sys.argv, sys.modules["upgate"] = ["x"], types.ModuleType("upgate")
import cli, common, dlrm, hstu, room
with tempfile.TemporaryDirectory() as root:
    def put(path, text):
        path = os.path.join(root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
    assert room.available(root) is None
    put("proc/meminfo", "MemTotal: 900 kB\\nMemAvailable:   800 kB\\n")
    assert room.available(root) == 800 << 10
    put("proc/self/cgroup", "1:cpu:/x\\n0::/job/step\\n")
    put("sys/fs/cgroup/job/step/memory.max", "max\\n")
    assert room.available(root) == 800 << 10
    put("sys/fs/cgroup/job/memory.max", "500000\\n")
    put("sys/fs/cgroup/job/memory.current", "400000\\n")
    put("sys/fs/cgroup/job/memory.stat", "anon 250000\\ninactive_file 100000\\nactive_file 50000\\n")
    assert room.available(root) == 250000, room.available(root)
    put("sys/fs/cgroup/job/memory.stat", "anon 50000\\ninactive_file 100000\\nactive_file 50000\\nslab_reclaimable 200000\\nslab_unreclaimable 7\\n")
    assert room.available(root) == 450000, room.available(root)
room.available = lambda: 1 << 20
for model in (dlrm, hstu):
    args, told = cli.arguments(model.__name__, ["--size", "demo", "--device", "cpu"]), io.StringIO()
    common.open_device(args)
    try:
        with contextlib.redirect_stderr(told):
            model.Work(args)
        raise AssertionError("it was made")
    except SystemExit as end:
        assert end.code == 2 and "argument --size: the tables of demo take" in told.getvalue(), (end.code, told.getvalue())
'''


PARTS = (("rare", RARE), ("kept", KEPT), ("first", FIRST), ("background", BACKGROUND), ("room", ROOM))
FORKED = '''
import os, sys, traceback, torch
for name, script in %r:
    child = os.fork()
    if not child:
        status = 1
        try:
            exec(script, {"__name__": "__main__"})
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    if os.waitpid(child, 0)[1]:
        sys.exit(name + ".py failed")
'''

# Version and file of an interpreter's torch. Not imported, which takes 2 s: one that does not import fails in the first run.
WHICH = '''
import importlib.util, os, runpy
path = importlib.util.find_spec("torch").origin
print(runpy.run_path(os.path.join(os.path.dirname(path), "version.py"))["__version__"], os.path.realpath(path))
'''


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what, flush=True)


class Forks:
    """One interpreter that has imported torch once: a run of it is a fork (torch_forks.py)."""

    _all = {}

    def __init__(self, python):
        environment = dict(os.environ, PYTHONNOUSERSITE="1", OMP_NUM_THREADS="1")  # several run at a time, and wait for each other's threads by spinning
        self._process = subprocess.Popen([python, os.path.join(HERE, "torch_forks.py")], env=environment, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE)
        self._ended, self._text, self._started = {}, b"", 0

    @classmethod
    def of(cls, python):
        if python not in cls._all:
            cls._all[python] = cls(python)
        return cls._all[python]

    @classmethod
    def close(cls):
        for forks in cls._all.values():
            forks._process.communicate(timeout=60)

    def start(self, **case):
        self._started += 1
        self._process.stdin.write(json.dumps(dict(case, number=self._started)).encode() + b"\n")
        self._process.stdin.flush()
        return self._started

    def wait(self, number):
        """As subprocess says it; None: the interpreter itself has ended."""
        while number not in self._ended:
            got = os.read(self._process.stdout.fileno(), 4096)
            if not got:
                return None
            *lines, self._text = (self._text + got).split(b"\n")
            self._ended.update([map(int, line.split()) for line in lines])
        return self._ended[number]


class Run:
    """A finished run of a workload, with what it recorded: a process, or where `forked` a fork."""

    def __init__(self, python, shim, model, words, extra_path=None, forked=False):
        self.name = "%s %s %s" % (python, model, " ".join(words))
        self._dir = tempfile.TemporaryDirectory()
        self._out, self._err = (os.path.join(self._dir.name, name) for name in ("out", "err"))
        environment = dict(os.environ, PYTHONPATH=extra_path or shim, RECORD_DIR=self._dir.name,
                           PYTHONDONTWRITEBYTECODE="1", TMPDIR=self._dir.name, PYTHONNOUSERSITE="1", OMP_NUM_THREADS="1")
        environment.pop("UPGATE_STEPS", None)
        words = [os.path.join(MODELS, model + ".py")] + words
        self._forks = Forks.of(python) if forked else None
        if forked:
            self._process = self._forks.start(words=words, environment=environment, out=self._out, err=self._err, limit_s=LIMIT_S)
            return
        with open(self._out, "w") as out, open(self._err, "w") as err:
            self._process = subprocess.Popen([python] + words, env=environment, stdout=out, stderr=err)

    def _status(self):
        if self._forks:
            return self._forks.wait(self._process)
        try:
            return self._process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def wait(self):
        self.status = self._status()
        check(self.status not in (None, -signal.SIGKILL), "%s: did not end within %d s, or not by itself" % (self.name, LIMIT_S))
        self.stdout, self.stderr = (open(path).read() if os.path.exists(path) else "" for path in (self._out, self._err))
        self.ranks = []
        for path in sorted(glob.glob(os.path.join(self._dir.name, "*.jsonl"))):
            with open(path) as file:
                lines = [json.loads(line) for line in file]
            if lines:
                self.ranks.append(lines)
        self.left = [n for n in os.listdir(self._dir.name) if "ddp" in n or "elastic" in n]
        self._dir.cleanup()
        return self

    def losses(self, rank=0):
        return [float.fromhex(line["loss"]) for line in self.ranks[rank] if "loss" in line]

    def outputs(self, rank=0):
        result = []
        for line in self.ranks[rank]:
            if "output" in line:
                code = "%d%s" % (line["count"], {"float32": "f", "float64": "d"}[line["dtype"]])
                result.append(struct.unpack(code, bytes.fromhex(line["output"])))
        return result

    def good(self, ranks=1):
        check(self.status == 0,
              "%s: ended with %s\n%s" % (self.name, self.status, self.stderr[-1500:]))
        check(len(self.ranks) == ranks,
              "%s: %d ranks recorded, not %d" % (self.name, len(self.ranks), ranks))
        check(not self.left, "%s: left %s behind" % (self.name, self.left))
        return self.status == 0 and len(self.ranks) == ranks


def start(python, shim, model, mode, *words):
    return Run(python, shim, model, ["--mode", mode, "--steps", str(STEPS), "--size", "small",
                                     "--seed", "3", "--device", "cpu"] + list(words), forked=model != "ddp")


def check_training(run, ranks=1):
    if not run.good(ranks):
        return
    for rank in range(ranks):
        losses = run.losses(rank)
        check(len(losses) == STEPS and all(map(math.isfinite, losses)),
              run.name + ": a loss for every step")
        check(sum(losses[-8:]) < 0.97 * sum(losses[:8]),
              "%s: loss does not fall: %s ... %s" % (run.name, losses[:3], losses[-3:]))
        phases = {line["phase"] for line in run.ranks[rank] if "phase" in line}
        check(phases == {"data", "forward", "backward", "optimizer"},
              "%s: phases %s" % (run.name, phases))
        check(len(run.outputs(rank)) == 8, run.name + ": outputs of the first 8 steps")
    line = json.loads(run.stdout)
    check(line["steps"] == STEPS and line["ranks"] == ranks, run.name + ": JSON line " + run.stdout)
    check(line["loss_first"] == run.losses()[0] or ranks > 1,
          run.name + ": loss_first of the JSON line")


def check_inference(run, ranks=1):
    if not run.good(ranks):
        return
    steps = [line for line in run.ranks[0] if "step" in line]
    check(len(steps) == STEPS and steps[0]["samples"] >= 1, run.name + ": requests answered")
    outputs = run.outputs()
    check(len(outputs) == 8 and all(math.isfinite(v) for o in outputs for v in o),
          run.name + ": outputs of the first 8 requests")
    check(len(set(outputs)) > 1, run.name + ": different requests have different answers")


def check_float64(single, double):
    """Same start, more bits: close to float32, and not the same."""
    if not double.good() or not single.ranks:
        return
    a, b = single.outputs()[0], double.outputs()[0]
    worst = max(abs(x - y) for x, y in zip(a, b))
    check(0 < worst < 1e-4, "%s: float32 and float64 differ by %g" % (double.name, worst))
    check(len(a) == len(b), double.name + ": number of outputs")


def check_plants(python, shim):
    out = subprocess.run([python, "-c", DRAG], cwd=MODELS, stdout=subprocess.PIPE,
                         universal_newlines=True)
    extra = int(out.stdout or 0)
    check(0.0495 < extra / 20e6 < 0.0505, "slow:5%% adds %g of the time" % (extra / 20e6))
    nan = start(python, shim, "dlrm", "train", "--plant", "nan:5,leak:64K")
    crash = start(python, shim, "dlrm", "infer", "--plant", "crash:4")
    nan.wait(), crash.wait()
    losses = nan.losses()
    check(all(map(math.isfinite, losses[:5])) and math.isnan(losses[5]),
          nan.name + ": NaN from step 5 on")
    check(json.loads(nan.stdout)["loss_last"] is None, nan.name + ": JSON without NaN")
    check(crash.status == -signal.SIGSEGV, "%s: ended with %s" % (crash.name, crash.status))
    check(len([r for r in crash.ranks[0] if "step" in r]) == 4,
          crash.name + ": 4 steps before the crash")
    # What regresses takes time and changes nothing: the same losses as without it.
    words = "op:linear:9%,op:bmm:3%,fill:5%,copy:5%,python:5%,fsync:1%,syscall:2%,loader:5%,compute:2%,gc:7,hooks,zerograd"
    plain, slower = start(python, shim, "dlrm", "train"), start(python, shim, "dlrm", "train", "--plant", words)
    plain.wait(), slower.wait()
    check(plain.losses() == slower.losses(), slower.name + ": regressions change the losses")
    early = start(python, shim, "transformer", "train", "--plant", "exit:9")
    nothing = start(python, shim, "transformer", "train", "--plant", "nostep")
    early.wait(), nothing.wait()
    check(early.status == 9, "%s: ended with %s" % (early.name, early.status))
    check(nothing.status == 0 and not nothing.ranks, nothing.name + ": no step")


def check_parts(python, shim):
    """The plants that are rare, kept, beside the steps or of the first step; the check of memory."""
    environment = dict(os.environ, PYTHONPATH=MODELS + os.pathsep + shim, PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1", OMP_NUM_THREADS="1")
    done = subprocess.run([python, "-c", FORKED % (PARTS,)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=LIMIT_S)
    children = done.stdout.split()  # of background.py
    check(done.returncode == 0 and children, "%s: %s" % (python, done.stderr[-1500:]))
    for pid in children:  # a child ends with its parent, at the latest at its next look
        until = time.monotonic() + 20
        while os.path.exists("/proc/" + pid) and time.monotonic() < until:
            time.sleep(0.05)
        check(not os.path.exists("/proc/" + pid), "%s: a child of background.py outlives it" % python)
    # What they do changes nothing of the training: the same losses as without it.
    words = "save:7:50%,flush:9:50%,upload:8:50%,reshuffle:5:50%,validate:11:50%,lock:6:50%,busy:20%,spin:20%,pinner:20%,cache:4K,graph:1,table:64K:2,oddsizes:1M," \
            "import:sqlite3,lookup:5,prelookup:5,jit:5,warmup:5"
    plain, planted = start(python, shim, "transformer", "train"), start(python, shim, "transformer", "train", "--plant", words)
    asked = start(python, shim, "transformer", "infer", "--plant", "pad:5:300%,lock:6:50%")
    plain.wait(), planted.wait(), asked.wait()
    check(planted.good() and plain.losses() == planted.losses(), planted.name + ": plants change the losses")
    check(asked.good() and len(asked.outputs()) == 8, asked.name + ": requests answered")


def check_arguments(python, shim):
    bad = (["--steps", "0"], ["--mode", "test"], ["--plant", "slow:0%"], ["--plant", "x"],
           ["--plant", "op:linaer:3%"], ["--plant", "gc:0"], ["--plant", "save:20"], ["--plant", "busy:200%"], ["--plant", "table:1M"], ["--plant", "import:os;x"],
           ["--size", "small", "--plant", "pad:9:100%"],
           ["--stepz", "3"])
    runs = [Run(python, shim, "dlrm", words, forked=i > 0) for i, words in enumerate(bad)]  # one as a user starts it
    runs.append(Run(python, shim, "ddp", ["--ranks", "no"]))
    for run in runs:
        run.wait()
        check(run.status == 2 and run.stderr.count("\n") == 1 and not run.stdout,
              "%s: status %s, %r" % (run.name, run.status, run.stderr))


def check_interpreter(python, shim):
    """Returns what must be the same under every version."""
    first = {}
    for model in ("dlrm", "transformer"):
        # Two at a time: the test is about results, not about times.
        train, infer = start(python, shim, model, "train"), start(python, shim, model, "infer")
        check_training(train.wait())
        check_inference(infer.wait())
        again = start(python, shim, model, "train")
        anchor = start(python, shim, model, "train", "--dtype", "float64")
        again.wait(), anchor.wait()
        check(again.losses() == train.losses(), again.name + ": the same seed gives the same bits")
        check_float64(train, anchor)
        first[model] = (train.losses()[:1], anchor.losses()[:1])
    rate = start(python, shim, "dlrm", "infer", "--rate", "250").wait()
    check(rate.good() and rate.ranks[0][0].get("rate") == 250.0, rate.name + ": open loop")
    inputs = subprocess.run([python, "-c", INPUTS], stdout=subprocess.PIPE, universal_newlines=True,
                            env=dict(os.environ, PYTHONPATH=MODELS + os.pathsep + shim,
                                     RECORD_DIR=os.path.dirname(shim), PYTHONDONTWRITEBYTECODE="1"))
    lines = inputs.stdout.splitlines()
    check(inputs.returncode == 0 and len(lines) == 8, python + ": inputs of 8 configurations")
    check(len({line.split()[3] for line in lines}) == 8,
          python + ": seed, mode and dtype change the inputs")
    return first, lines


def interpreters(shim):
    """(path, torch version), one for each torch that there is."""
    found, seen = [], set()
    candidates = sorted(glob.glob(os.path.join(SOURCE, "envs", "*", "bin", "python")))
    for python in candidates + ["/usr/bin/python3"]:
        if not os.access(python, os.X_OK):
            continue
        out = subprocess.run([python, "-s", "-c", WHICH], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, universal_newlines=True)
        if out.returncode == 0 and out.stdout not in seen:
            seen.add(out.stdout)
            found.append((python, out.stdout.split()[0]))
    return found


def main():
    with tempfile.TemporaryDirectory() as scratch:
        shim = os.path.join(scratch, "shim")
        os.mkdir(shim)
        with open(os.path.join(shim, "upgate.py"), "w") as file:
            file.write(RECORDER)
        pythons = interpreters(shim)
        if not pythons:
            print("skipped: no interpreter here has torch; ci/setup --envs makes two")
            return 77
        results = {}
        for python, version in pythons:
            print("torch %s: %s" % (version, python), flush=True)
            results[version] = check_interpreter(python, shim)
        # The two sides of a pair are alive at once: their rendezvous must not meet.
        both = [start(python, shim, "ddp", "train", "--ranks", "2")
                for python, _ in pythons + pythons[:1]]
        for run in both:
            check_training(run.wait(), 2)
        check_inference(start(pythons[-1][0], shim, "ddp", "infer", "--ranks", "2").wait(), 2)
        check_plants(pythons[-1][0], shim)
        for python, _ in pythons:
            check_parts(python, shim)
        check_arguments(pythons[0][0], shim)
        versions = list(results)
        for version in versions[1:]:
            check(results[version][1] == results[versions[0]][1],
                  "inputs under %s are those under %s, to the bit" % (version, versions[0]))
            for model, losses in results[version][0].items():
                for a, b in zip(results[versions[0]][0][model], losses):
                    check(a and b and abs(a[0] - b[0]) < 2e-6 * abs(a[0]),
                          "%s: first loss %s under %s, %s under %s"
                          % (model, a, versions[0], b, version))
        extension = os.path.join(os.environ.get("UPGATE_BUILD", "."), "python")
        if os.path.exists(os.path.join(extension, "upgate", "__init__.py")):
            words = ["--steps", "5", "--size", "small"]
            run = Run(pythons[-1][0], shim, "dlrm", words, extension).wait()
            check(run.status == 0 and not run.ranks,
                  run.name + ": runs with the real step API: " + run.stderr)
        Forks.close()
    print("%d failures" % len(failures) if failures else "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
