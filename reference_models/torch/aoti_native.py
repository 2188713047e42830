# SPDX-License-Identifier: Apache-2.0
"""The variant aotinductor-native: a package of AOTInductor that a C++ program serves through the side's own libtorch.

Python exports the model, compiles the package, writes down the inputs of all requests and the scores of the first one, and becomes the program
(aoti/runner.cpp): the same process, with no Python left in it. The program is compiled against the side's torch at its first launch there, and
kept. All files are below the state directory; a launch that was killed leaves its directory there, and the next one removes it.
"""
import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import torch

PROGRAM = "aotinductor-native"
MODELS = ("dlrm", "hstu", "transformer", "vision")
HERE = os.path.dirname(os.path.abspath(__file__))
LOADER = "torch/csrc/inductor/aoti_package/model_package_loader.h"
STEP_HEADERS = ("upgate_step.h", "step_claim.h", "step_gate.h", "step_writer.h", "step_layout.h")
ALIGN_BYTES = 64  # of each tensor in data.bin, as the program has it
PREFIX = "torchinductor_"  # what lies below is code that was made in the process: a fingerprint has no use for its names


# ---- what a side has -------------------------------------------------------------------------------

def _paths():
    """Directories with the headers and with the libraries of this torch."""
    try:
        from torch.utils import cpp_extension
        return cpp_extension.include_paths(), cpp_extension.library_paths()
    except ImportError:  # without setuptools
        root = os.path.dirname(os.path.abspath(torch.__file__))
        return [os.path.join(root, "include")], [os.path.join(root, "lib")]


def _compiler():
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    return None


def _state():
    """Where the harness keeps what lasts (docs/environment.md), or None."""
    base = os.environ.get("UPGATE_STATE_DIR")
    for name, below in (("XDG_STATE_HOME", "upgate"), ("HOME", ".local/state/upgate")):
        if not base and os.environ.get(name):
            base = os.path.join(os.environ[name], below)
    return os.path.join(os.path.abspath(base), "aoti") if base else None


def _headers_lack():
    roots, version = _paths()[0], torch.__version__
    loader = next((path for path in (os.path.join(root, LOADER) for root in roots) if os.path.exists(path)), None)
    if not loader:
        return "torch %s has no header '%s' in '%s'" % (version, LOADER, roots[0])
    with open(loader, encoding="utf-8") as file:
        if "nlohmann/json.hpp" in file.read() and not any(os.path.exists(os.path.join(root, "nlohmann/json.hpp")) for root in roots):
            return "the headers of torch %s want 'nlohmann/json.hpp', and it is not among them" % version
    return ""


def lack(name):
    """'' or why a model of this name cannot be served so, where there are packages of AOTInductor."""
    if name not in MODELS:
        return "%s serves %s" % (PROGRAM, ", ".join(MODELS))
    if not _compiler():
        return "%s needs a C++ compiler, and there is none" % PROGRAM
    if not _state():
        return "%s needs a place for its program: neither UPGATE_STATE_DIR, XDG_STATE_HOME nor HOME is set" % PROGRAM
    return _headers_lack()


# ---- directories -----------------------------------------------------------------------------------

@contextlib.contextmanager
def _locked(path):
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _remove_if_dead(directory):
    """One that nobody holds the lock of: its launch was killed."""
    lock = None
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        if lock is not None:
            os.close(lock)


def own_directory(state):
    """(path, lock): a new directory of this launch, which is alive for as long as the lock is open in a process. Removes those of the dead."""
    launches = os.path.join(state, "launches")
    os.makedirs(launches, mode=0o700, exist_ok=True)
    with _locked(os.path.join(state, "launches.lock")):
        for name in os.listdir(launches):
            _remove_if_dead(os.path.join(launches, name))
        directory = tempfile.mkdtemp(prefix=PREFIX, dir=launches)
        lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return directory, lock


# ---- the program -----------------------------------------------------------------------------------

def _contracts():
    """The directory with contracts/upgate_step.h: with the program where it is installed, else the root of the sources."""
    for root in (os.path.join(HERE, "aoti"), os.path.dirname(os.path.dirname(HERE))):
        if os.path.exists(os.path.join(root, "contracts", STEP_HEADERS[0])):
            return root
    sys.exit("%s: 'contracts/%s' is missing below '%s'" % (PROGRAM, STEP_HEADERS[0], os.path.join(HERE, "aoti")))


def _standard_library():
    """The C++ library that torch has loaded here, or None. Where a compiler has the static one alone, its program would have two, and libtorch parts of both."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = (line.rstrip("\n").split(None, 5)[-1] for line in maps)
        return next((path for path in paths if os.path.basename(path).startswith("libstdc++.so.6")), None)


def _command(device, source, contracts):
    """The compiler's words, without what it makes."""
    headers, libraries = _paths()
    # C++20, by the name that GCC before 10 has too: the headers of 2.13 want it, and those of 2.6 take it.
    words = [_compiler(), "-std=gnu++2a", "-O2", "-pthread", "-D_GLIBCXX_USE_CXX11_ABI=%d" % torch.compiled_with_cxx11_abi(), "-I" + contracts]
    for path in headers:
        words += ["-isystem", path]
    words.append(source)
    for path in libraries:
        words += ["-L" + path, "-Wl,-rpath," + path]
    standard = _standard_library()
    if standard:
        words += [standard, "-Wl,-rpath," + os.path.dirname(standard)]
    # The rpath of the old kind goes before LD_LIBRARY_PATH: the libtorch of this side and no other. Models find their device by what is linked.
    words += ["-Wl,--disable-new-dtags", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", "-ltorch", "-ltorch_cpu"]
    return words + (["-ltorch_cuda"] if device == "cuda" else []) + ["-lc10", "-ldl"]


def _key(command, files):
    """Of all that the program is made from."""
    root = os.path.dirname(os.path.abspath(torch.__file__))
    looked_at = [os.stat(path) for path in (os.path.realpath(command[0]), os.path.join(root, "version.py"))]
    facts = [torch.__version__, torch.version.git_version, platform.machine(), command] + [(one.st_size, one.st_mtime_ns) for one in looked_at]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for path in files:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:20]


def program(state, scratch, device):
    """The path of the program for this torch, made if nobody has. Where several launches begin at once, one makes it and the others wait."""
    source, contracts = os.path.join(HERE, "aoti", "runner.cpp"), _contracts()
    command = _command(device, source, contracts)
    key = _key(command, [source] + [os.path.join(contracts, "contracts", name) for name in STEP_HEADERS])
    directory = os.path.join(state, "programs", key)
    path = os.path.join(directory, PROGRAM)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    with _locked(os.path.join(directory, "lock")):
        if not os.access(path, os.X_OK):
            made = os.path.join(scratch, PROGRAM)
            done = subprocess.run(command + ["-o", made], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, TMPDIR=scratch))
            if done.returncode != 0:
                sys.exit("%s: failed to compile '%s' with '%s' for torch %s:\n%s" % (
                    PROGRAM, source, command[0], torch.__version__, done.stdout.decode(errors="replace")[-2000:]))
            os.replace(made, path)
    return path


# ---- a launch --------------------------------------------------------------------------------------

def _put(file, value):
    """A tensor's values go to the file; returns what launch.txt says of it."""
    array = value.detach().cpu().contiguous().numpy()
    file.write(array.tobytes())
    file.write(b"\0" * (-array.nbytes % ALIGN_BYTES))
    return "tensor %s %d %s" % (array.dtype.name, array.ndim, " ".join(map(str, array.shape)))


def _same(one, other):
    """Also where both are no number: that the program tells."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


class Native:
    """A launch on its way to the program. Takes the model's place in the workload, and keeps what it is called with."""

    def __init__(self, args, limit):
        """limit: how far the scores of the package may be off, in units of their rms. OSError: the state directory cannot be used."""
        self._args, self._limit = args, limit
        # Of the program. The directory is that of the workload's own launches, and no news to a fingerprint.
        self._environment = {name: value for name, value in os.environ.items() if name not in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        state = _state()
        self._directory, self._lock = own_directory(state)
        atexit.register(shutil.rmtree, self._directory, True)
        self._program = program(state, self._directory, args.device)
        self._inputs = []

    def _path(self, *names):
        return os.path.join(self._directory, *names)

    @contextlib.contextmanager
    def _told(self):
        """A full disk, or what else the system refuses, ends the process in words. Not with 77: the side has the variant, and a launch of it failed."""
        try:
            yield
        except OSError as error:
            sys.exit("%s: failed to prepare the launch in '%s': %s; UPGATE_STATE_DIR says where that is" % (
                PROGRAM, os.path.dirname(self._directory), error))

    def compile(self, compile_package, scores):
        """compile_package(path) makes the package; scores: the eager model's of the first request."""
        with self._told():
            self._compile(compile_package)
        self._scores = scores
        self._end_workers()

    def _compile(self, compile_package):
        from torch._inductor import config
        os.mkdir(self._path("tmp"))
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=self._path("inductor"), TRITON_CACHE_DIR=self._path("triton"), TMPDIR=self._path("tmp"))
        tempfile.tempdir = None
        if self._args.device == "cpu":
            config.compile_threads = 1  # there is one file to compile, and workers would only begin and end
        if hasattr(config.aot_inductor, "precompile_headers"):
            config.aot_inductor.precompile_headers = False  # they would be used once
        begin = time.perf_counter_ns()
        compile_package(self._path("model.pt2"))
        self._compile_ns = time.perf_counter_ns() - begin

    def _end_workers(self):
        """Those that compile beside this process: the program would have them as children. And what the package was made from goes."""
        from torch._inductor import async_compile
        async_compile.shutdown_compile_workers()
        for name in ("inductor", "triton", "tmp"):
            shutil.rmtree(self._path(name), ignore_errors=True)

    def __call__(self, *batch):
        from torch.utils import _pytree
        self._inputs = _pytree.tree_flatten(batch)[0]

    def _last(self, work):
        """Is what a client sees of the scores the last place of dimension 1? Else it is all of them."""
        seen = work.visible(self._scores)
        if _same(seen, self._scores):
            return False
        if len(self._scores.shape) > 1 and _same(seen, self._scores[:, -1]):
            return True
        sys.exit("%s: what a client sees of %s is neither its scores nor the last of them" % (PROGRAM, self._args.name))

    def _write(self, work):
        args = self._args
        period = min(args.steps, getattr(work, "period", args.steps))
        words = ["upgate-aoti 1", "model " + args.name, "device " + args.device, "threads %d" % args.threads,
                 "tf32 %d" % torch.backends.cuda.matmul.allow_tf32, "benchmark %d" % torch.backends.cudnn.benchmark,
                 "steps %d" % args.steps, "seed %d" % (args.seed & (1 << 64) - 1), "rate %.17g" % args.rate, "samples %d" % work.samples,
                 "last %d" % self._last(work), "limit %.17g" % self._limit, "compile_ns %d" % self._compile_ns]
        with open(self._path("data.bin"), "wb") as data:
            scores = self._scores * 1.5 if "serveskew" in args.plant.flags else self._scores
            words += ["scores", _put(data, scores), "batches %d" % period]
            for i in range(period):
                work.answer(work.batch(i))
                words.append("inputs %d" % len(self._inputs))
                words += [_put(data, value) for value in self._inputs]
        with open(self._path("launch.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(words + ["end", ""]))

    def serve(self, work, line):
        """Becomes the program. line: what is known of the JSON line for stdout, to which it adds the times. Does not return."""
        with self._told():
            self._write(work)
            with open(self._path("result.json"), "w", encoding="utf-8") as file:
                file.write(json.dumps(line)[:-1])
        sys.stdout.flush()
        sys.stderr.flush()
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and so by what it becomes
            signal.signal(ignored, signal.SIG_DFL)
        os.set_inheritable(self._lock, True)
        try:
            os.execve(self._program, [self._program, self._directory], self._environment)
        except OSError as error:
            sys.exit("%s: failed to start '%s': %s" % (PROGRAM, self._program, error.strerror))
